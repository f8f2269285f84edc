//! The C structures of include/trackway/abi/abi.h.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// Version of the ABI: `TRACKWAY_ABI_VERSION`.
pub const VERSION: u16 = 1;

/// Label of an enumeration: `struct trackway_abi_label`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Label {
    /// First value, inclusive.
    pub first: i64,
    /// Last value, inclusive.
    pub last: i64,
    /// Name of the label.
    pub name: *const c_char,
}

/// Field of an event: `struct trackway_abi_field`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Name of the field.
    pub name: *const c_char,
    /// Array of `length` labels, for enumerations.
    pub labels: *const Label,
    /// Code of a `trackway_schema::Scalar`, or 0.
    pub scalar: u8,
    /// Code of a `trackway_schema::Shape`.
    pub shape: u8,
    /// Number of elements of an array, or of labels of an enumeration.
    pub length: u16,
    reserved: u32,
}

impl Field {
    /// Returns the reserved word: zero in descriptions of this version.
    pub(crate) const fn reserved(&self) -> u32 {
        self.reserved
    }
}

/// A value of a dynamic event, `struct trackway_value` in include/trackway/dynamic.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Value {
    /// The number, or the address of the data.
    pub bits: u64,
    /// Number of bytes or elements of the data.
    pub length: u64,
}

impl Value {
    /// Returns the address of the data.
    pub(crate) fn data<T>(&self) -> *const T {
        core::ptr::with_exposed_provenance(self.bits as usize)
    }
}

/// Function that records an event: `trackway_abi_emit_fn`.
pub type EmitFn = unsafe extern "C" fn(*mut Event, *mut u8, usize);

/// `struct trackway_abi_event`: lives in the instrumented module, which may be unloaded.
///
/// The structure never changes, because programs compiled with the first release have no more
/// fields. Additions belong in a structure of their own, which the library reads only if `size`
/// includes it.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// The enable word: `off` of this structure, or the event's word in the window.
    pub enabled: *const AtomicU32,
    /// The function that records the event.
    pub emit: Option<EmitFn>,
    /// Enable word of an unregistered event; always zero.
    pub off: u32,
    /// Number of the event in the window.
    pub index: u32,
    /// Version (`TRACKWAY_ABI_VERSION`) of the header that declared the event.
    pub version: u16,
    /// Size of the structure in that header, in bytes.
    pub size: u16,
    /// Level, 0–14.
    pub level: u8,
    /// Number of fields.
    pub field_count: u8,
    reserved: u16,
    /// Provider name.
    pub provider: *const c_char,
    /// Event name.
    pub name: *const c_char,
    /// Array of `field_count` fields.
    pub fields: *const Field,
}

impl Event {
    /// Makes an event with nothing but its enable word, which is all that recording reads.
    pub(crate) const fn with_enable_word(enabled: &AtomicU32) -> Self {
        Self {
            enabled,
            emit: None,
            off: 0,
            index: 0,
            version: VERSION,
            size: size_of::<Self>() as u16,
            level: 0,
            field_count: 0,
            reserved: 0,
            provider: core::ptr::null(),
            name: core::ptr::null(),
            fields: core::ptr::null(),
        }
    }
}

/// Value of a field before staging: `struct trackway_abi_argument`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Address of a scalar, a string or elements. A scalar's address is never null.
    pub at: *const u8,
    /// Number of bytes of a text, or of elements of a sequence.
    pub length: usize,
}

/// Function that judges an event before staging: `trackway_abi_ask_fn`.
pub type AskFn = unsafe extern "C" fn(*mut Event, *const Argument) -> u64;
/// Function that records an event with a verdict: `trackway_abi_emit_asked_fn`.
pub type EmitAskedFn = unsafe extern "C" fn(*mut Event, *mut u8, usize, u64);

/// Functions of the library for sites: `struct trackway_abi_library`.
#[repr(C)]
#[derive(Debug)]
pub struct Library {
    /// Size of this structure, in bytes.
    pub size: u32,
    /// Bits of the sessions that have filters, by this process's decisions.
    pub filtered: AtomicU32,
    /// Judges an event before it is staged.
    pub ask: AskFn,
    /// Records an event with the verdict of `ask`.
    pub emit_asked: EmitAskedFn,
}

/// `struct trackway_abi_event` with the fields that were added later; `size` includes them.
#[repr(C)]
#[derive(Debug)]
pub struct AskingEvent {
    /// The fields of every event.
    pub event: Event,
    /// The library's functions.
    pub library: AtomicPtr<Library>,
    /// Number of the event's description, plus one; 0: the event has none.
    pub known: AtomicU32,
    reserved: u32,
}

// Sizes and offsets; tests/instrument/abi/pins.rs asserts the same values for the C header.
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Label>() == 24 && size_of::<Field>() == 24);
    assert!(size_of::<Event>() == 56 && size_of::<Value>() == 16);
    assert!(offset_of!(Label, first) == 0 && offset_of!(Label, last) == 8);
    assert!(offset_of!(Label, name) == 16);
    assert!(offset_of!(Field, name) == 0 && offset_of!(Field, labels) == 8);
    assert!(offset_of!(Field, scalar) == 16 && offset_of!(Field, shape) == 17);
    assert!(offset_of!(Field, length) == 18 && offset_of!(Field, reserved) == 20);
    assert!(offset_of!(Event, enabled) == 0 && offset_of!(Event, emit) == 8);
    assert!(offset_of!(Event, off) == 16 && offset_of!(Event, index) == 20);
    assert!(offset_of!(Event, version) == 24 && offset_of!(Event, size) == 26);
    assert!(offset_of!(Event, level) == 28 && offset_of!(Event, field_count) == 29);
    assert!(offset_of!(Event, reserved) == 30 && offset_of!(Event, provider) == 32);
    assert!(offset_of!(Event, name) == 40 && offset_of!(Event, fields) == 48);
    assert!(offset_of!(Value, bits) == 0 && offset_of!(Value, length) == 8);
    assert!(size_of::<Argument>() == 16 && offset_of!(Argument, length) == 8);
    assert!(size_of::<Library>() == 24 && offset_of!(Library, filtered) == 4);
    assert!(offset_of!(Library, ask) == 8 && offset_of!(Library, emit_asked) == 16);
    assert!(size_of::<AskingEvent>() == 72 && offset_of!(AskingEvent, library) == 56);
    assert!(offset_of!(AskingEvent, known) == 64 && offset_of!(AskingEvent, reserved) == 68);
};
