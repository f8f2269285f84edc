//! Events that are described at run time, for programs that use `tracing`.
//!
//! The first visit of a callsite creates a description, because only then are the types of its
//! values known. A description stays for ever: libtrackway.so may be using it. Creation takes no
//! locks: two threads may create equal descriptions, of which one is never used.
//!
//! All memory comes from the C library, whatever the program's allocator is: that allocator may
//! make spans itself, and this may be their first visit.

use core::alloc::Layout;
use core::ffi::c_char;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32};
use std::alloc::{GlobalAlloc, System};

use crate::event::{Event, Field, VERSION};
use crate::weak::weak_function;

/// Longest name of a provider, event or field: `NAME_BYTES_MAX` of crates/schema.
const NAME_BYTES_MAX: usize = 254;

/// The type of `trackway_abi_register`.
type RegisterFn = unsafe extern "C" fn(*const *const Event, *const *const Event);

/// Returns the library's register function. The library is preloaded or linked, or never loaded.
pub(crate) fn find_register_function() -> Option<RegisterFn> {
    weak_function!("trackway_abi_register" as RegisterFn)
}

/// The type of a field: a four-bit code, so that 32 codes fit a signature of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// The field has no value in this record.
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

/// Moves a value to memory where it stays for ever, or until it is [freed](free_value). Returns
/// `None` if memory is short.
pub(crate) fn allocate_value<T>(value: T) -> Option<*mut T> {
    const { assert!(size_of::<T>() > 0) };
    // SAFETY: the layout is not empty.
    let place = unsafe { System.alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: the memory belongs to this function alone, and is large enough.
    unsafe { place.write(value) };
    Some(place)
}

/// Frees a value from [`allocate_value`].
///
/// # Safety
/// No other code may have a pointer to the value.
pub(crate) unsafe fn free_value<T>(kept: *mut T) {
    // SAFETY: the caller promises it is the only owner; the value was allocated with this layout.
    unsafe {
        kept.drop_in_place();
        System.dealloc(kept.cast(), Layout::new::<T>());
    }
}

/// Creates and registers a description of `provider:name` with these fields. The description and
/// its names are never freed. Without the library, the event is off; without memory, returns
/// `None`.
pub(crate) fn register_event(
    provider: &str,
    name: [&str; 2],
    level: u8,
    fields: &[(&str, Code)],
) -> Option<&'static Event> {
    let count = fields.len();
    let names = [provider.len(), name[0].len() + name[1].len()].into_iter();
    let names = names.chain(fields.iter().map(|(name, _)| name.len()));
    // One block contains the description, its fields and all names. The first two have equal
    // alignment.
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
    // SAFETY: the block has room for the description, the fields and the names, in this order: a
    // name takes its bytes, at least one, and a NUL.
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

/// Returns true if names of providers and events may contain this byte: crates/schema's `is_name`.
fn is_name_byte(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// Returns true if names of fields may contain this byte.
fn is_field_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Writes a name of two pieces as a C string to `*at`, and moves `*at` past it. Replaces invalid
/// bytes by `_`.
///
/// # Safety
/// There must be room for the pieces, up to the longest name, and two more bytes.
unsafe fn put_name(
    at: &mut *mut u8,
    pieces: [&str; 2],
    allowed: impl Fn(u8) -> bool,
) -> *const c_char {
    let start = *at;
    let bytes = pieces[0].bytes().chain(pieces[1].bytes()).take(NAME_BYTES_MAX);
    let empty = (pieces[0].is_empty() && pieces[1].is_empty()).then_some(b'_');
    for byte in bytes.chain(empty) {
        // SAFETY: the caller guarantees the room.
        unsafe {
            at.write(if allowed(byte) { byte } else { b'_' });
            *at = at.add(1);
        }
    }
    // SAFETY: the caller guarantees the room for a NUL, too.
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
        // SAFETY: the event has three fields.
        let fields = unsafe { core::slice::from_raw_parts(event.fields, 3) };
        let names: Vec<&str> = fields.iter().map(|field| name(field.name)).collect();
        assert_eq!(names, ["a_b", "_", &long[..254]]);
        let shapes: Vec<(u8, u8)> =
            fields.iter().map(|field| (field.scalar, field.shape)).collect();
        let codes = [Code::I64, Code::Bytes, Code::Str];
        assert_eq!(shapes, codes.map(Code::scalar_and_shape));
    }
}
