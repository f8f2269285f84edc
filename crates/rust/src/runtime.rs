//! Events that are described at run time, for programs that speak through `tracing`.
//!
//! A description is made when a callsite is visited for the first time, because only then are the
//! types of its values known, and stays for ever: libtrackway.so may be using it. It is made
//! without locks: two threads may make the same one, and then one of them is never used.
//!
//! Its memory is the C library's, whatever the program's allocator is: that may make spans itself,
//! whose first visit may be this one.

use core::alloc::Layout;
use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::alloc::{GlobalAlloc, System};

use crate::event::{Event, Field, VERSION};
use crate::weak::weak_function;

/// Longest name of a provider, event or field: `NAME_BYTES_MAX` of crates/schema.
const NAME_BYTES_MAX: usize = 254;

/// `trackway_abi_register`.
type RegisterFn = unsafe extern "C" fn(*const *const Event, *const *const Event);

/// The library's function, if the library is there: it is preloaded or linked, or never comes.
pub(crate) fn find_register_function() -> Option<RegisterFn> {
    weak_function!("trackway_abi_register" as RegisterFn)
}

/// The type of a field: a code in four bits, so that 32 of them make a signature of 128.
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

/// Puts a value where it stays for ever, or until it is [freed](free_value). `None` without
/// memory.
pub(crate) fn allocate_value<T>(value: T) -> Option<*mut T> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the layout is not empty.
    let place = unsafe { System.alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: it is the caller's alone, and large enough.
    unsafe { place.write(value) };
    Some(place)
}

/// Frees what was [allocated](allocate_value).
///
/// # Safety
/// No other code has seen it.
pub(crate) unsafe fn free_value<T>(kept: *mut T) {
    // SAFETY: the caller's promise; it was made with this layout.
    unsafe {
        kept.drop_in_place();
        System.dealloc(kept.cast(), Layout::new::<T>());
    }
}

/// A description of `provider:name` with these fields, registered. It and its names are never
/// freed. Without the library it is off; without memory there is none.
pub(crate) fn register_event(
    provider: &str,
    name: [&str; 2],
    level: u8,
    fields: &[(&str, Code)],
) -> Option<&'static Event> {
    let count = fields.len();
    let names = [provider.len(), name[0].len() + name[1].len()].into_iter();
    let names = names.chain(fields.iter().map(|(name, _)| name.len()));
    // One block: the description, its fields, all names. The first two are of one alignment.
    const { assert!(align_of::<Event>() == align_of::<Field>()) };
    let fixed = size_of::<Event>() + count * size_of::<Field>();
    let size = fixed + names.map(|length| length.min(NAME_BYTES_MAX) + 2).sum::<usize>();
    let layout = Layout::from_size_align(size, align_of::<Event>()).ok()?;
    // SAFETY: the layout is not empty.
    let block = unsafe { System.alloc(layout) };
    if block.is_null() {
        return None;
    }
    let event = block.cast::<Event>();
    // SAFETY: the block has room for all of that, in this order: a name takes its bytes, of which
    // there is one at least, and a NUL.
    let event: &'static Event = unsafe {
        let fields_at = event.add(1).cast::<Field>();
        let mut at = block.add(fixed);
        let provider = put_name(&mut at, [provider, ""], is_name_byte);
        let name = put_name(&mut at, name, is_name_byte);
        for (index, &(name, code)) in fields.iter().enumerate() {
            let (scalar, shape) = code.scalar_and_shape();
            let name = put_name(&mut at, [name, ""], is_field_name_byte);
            let field = Field { name, labels: ptr::null(), scalar, shape, length: 0, reserved: 0 };
            fields_at.add(index).write(field);
        }
        event.write(Event {
            enabled: AtomicPtr::new((&raw mut (*event).off).cast()),
            emit: AtomicPtr::new(ptr::null_mut()),
            off: AtomicU32::new(0),
            index: AtomicU32::new(0),
            version: VERSION,
            size: size_of::<Event>() as u16,
            level,
            field_count: count as u8,
            reserved: 0,
            provider,
            name,
            fields: fields_at,
        });
        &*event
    };
    if let Some(register) = find_register_function() {
        let events = [ptr::from_ref(event)];
        // SAFETY: the range holds a pointer to an event that stays for ever.
        unsafe { register(events.as_ptr(), events.as_ptr().add(1)) };
    }
    Some(event)
}

/// Returns true if the names of providers and events may have this byte: crates/schema's `is_name`.
fn is_name_byte(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// Returns true if the names of fields may have this byte.
fn is_field_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Puts a name of two pieces as a C string at `*at`, which is then behind it, with `_` for what it
/// may not have in it.
///
/// # Safety
/// There is room for the pieces, as far as names go, and two bytes more.
unsafe fn put_name(
    at: &mut *mut u8,
    pieces: [&str; 2],
    allowed: impl Fn(u8) -> bool,
) -> *const c_char {
    let start = *at;
    let bytes = pieces[0].bytes().chain(pieces[1].bytes()).take(NAME_BYTES_MAX);
    let empty = (pieces[0].is_empty() && pieces[1].is_empty()).then_some(b'_');
    for byte in bytes.chain(empty) {
        // SAFETY: there is the caller's room.
        unsafe {
            at.write(if allowed(byte) { byte } else { b'_' });
            *at = at.add(1);
        }
    }
    // SAFETY: likewise.
    unsafe {
        at.write(0);
        *at = at.add(1);
    }
    start.cast()
}

#[cfg(test)]
mod tests {
    use core::ffi::CStr;

    use super::*;

    #[test]
    fn a_description_is_what_it_was_made_of_with_names_that_traces_can_have() {
        let long = "n".repeat(300);
        let fields = [("a.b", Code::I64), ("", Code::Bytes), (&long, Code::Str)];
        let event = register_event("my\"app", ["name", "_begin"], 6, &fields);
        let event = event.expect("there is memory");
        // SAFETY: names of a description are C strings.
        let name = |name: *const c_char| unsafe { CStr::from_ptr(name) }.to_str().expect("ASCII");
        assert_eq!((name(event.provider), name(event.name)), ("my_app", "name_begin"));
        assert_eq!((event.level, event.field_count), (6, 3));
        assert!(!event.is_on() && event.emitter().is_none(), "there is no library");
        // SAFETY: there are three of them.
        let fields = unsafe { core::slice::from_raw_parts(event.fields, 3) };
        let names: Vec<&str> = fields.iter().map(|field| name(field.name)).collect();
        assert_eq!(names, ["a_b", "_", &long[..254]]);
        let shapes: Vec<(u8, u8)> =
            fields.iter().map(|field| (field.scalar, field.shape)).collect();
        let codes = [Code::I64, Code::Bytes, Code::Str];
        assert_eq!(shapes, codes.map(Code::scalar_and_shape));
    }
}
