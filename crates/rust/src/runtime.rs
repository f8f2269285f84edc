//! Events that are described at run time, for programs that speak through `tracing`.
//!
//! A description is made when a callsite is visited for the first time, because only then are the
//! types of its values known, and stays for ever: libtrackway.so may be using it. It is made
//! without locks: two threads may make the same one, and then one of them is never used.

use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::ffi::CString;

use crate::event::{Event, Field, VERSION};

/// Longest name of a provider, event or field: `NAME_BYTES_MAX` of crates/schema.
const NAME_BYTES_MAX: usize = 254;

/// `trackway_abi_register`.
type RegisterFn = unsafe extern "C" fn(*const *const Event, *const *const Event);

/// The library's function, if the library is there: it is preloaded or linked, or never comes.
pub(crate) fn registrar() -> Option<RegisterFn> {
    let address: *mut ();
    #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]
    // SAFETY: reads the address of a weak symbol from the global offset table; zero without it.
    unsafe {
        core::arch::asm!(
            ".weak trackway_abi_register",
            "mov {}, qword ptr [rip + trackway_abi_register@GOTPCREL]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64")))]
    {
        address = ptr::null_mut();
    }
    // SAFETY: null is None, and else it is the function of that declaration.
    unsafe { core::mem::transmute::<*mut (), Option<RegisterFn>>(address) }
}

/// What a field is: a code in four bits, so that 32 of them make a signature of 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// It has no value this time.
    Absent = 0,
    I64 = 1,
    U64 = 2,
    F64 = 3,
    Bool = 4,
    Str = 5,
    Bytes = 6,
}

impl Code {
    const fn scalar_and_shape(self) -> (u8, u8) {
        use crate::kind::{scalar, shape};
        match self {
            Self::Absent | Self::Str => (scalar::NONE, shape::STR),
            Self::I64 => (scalar::I64, shape::SCALAR),
            Self::U64 => (scalar::U64, shape::SCALAR),
            Self::F64 => (scalar::F64, shape::SCALAR),
            Self::Bool => (scalar::BOOL, shape::SCALAR),
            Self::Bytes => (scalar::U8, shape::SEQUENCE),
        }
    }
}

/// A description of `provider:name` with these fields, registered. It and its names are never
/// freed. Without the library it is off.
pub(crate) fn describe(
    provider: &str,
    name: &str,
    level: u8,
    fields: impl Iterator<Item = (String, Code)>,
) -> &'static Event {
    let fields: Vec<Field> = fields.map(|(name, code)| field(&name, code)).collect();
    let event = Box::leak(Box::new(Event {
        enabled: AtomicPtr::new(ptr::null_mut()),
        emit: AtomicPtr::new(ptr::null_mut()),
        off: AtomicU32::new(0),
        index: AtomicU32::new(0),
        version: VERSION,
        size: size_of::<Event>() as u16,
        level,
        field_count: fields.len() as u8,
        reserved: 0,
        provider: leaked(provider, is_of_name),
        name: leaked(name, is_of_name),
        fields: Vec::leak(fields).as_ptr(),
    }));
    *event.enabled.get_mut() = (&raw const event.off).cast_mut();
    let event: &'static Event = event;
    if let Some(register) = registrar() {
        let events = [ptr::from_ref(event)];
        // SAFETY: the range holds a pointer to an event that stays for ever.
        unsafe { register(events.as_ptr(), events.as_ptr().add(1)) };
    }
    event
}

fn field(name: &str, code: Code) -> Field {
    let (scalar, shape) = code.scalar_and_shape();
    let is_of_field = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let name = leaked(name, is_of_field);
    Field { name, labels: ptr::null(), scalar, shape, length: 0, reserved: 0 }
}

/// What the names of providers and events may be made of: crates/schema's `is_name`.
fn is_of_name(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// A name as a C string that stays for ever, with `_` for what it may not have in it.
fn leaked(name: &str, allowed: impl Fn(u8) -> bool) -> *const c_char {
    let bytes = name.bytes().map(|byte| if allowed(byte) { byte } else { b'_' });
    let mut bytes: Vec<u8> = bytes.take(NAME_BYTES_MAX).collect();
    if bytes.is_empty() {
        bytes.push(b'_');
    }
    CString::new(bytes).unwrap_or_default().into_raw()
}
