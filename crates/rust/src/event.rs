//! The event of a site: its location in memory, and its enable state.
//!
//! A site is an assembly block that writes its descriptor (include/trackway/abi/abi.h) into the
//! module's data and returns its address. A `static` is impossible: fields have the types of their
//! values, which are known only when the enclosing function is compiled, and a `static` has no
//! generic parameters. If the compiler copies a function, its site has several descriptors of the
//! same event; libtrackway.so assigns them one number.

use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// `TRACKWAY_ABI_VERSION`.
pub(crate) const VERSION: u16 = 1;

/// `trackway_abi_emit_fn`.
pub(crate) type EmitFn = unsafe extern "C" fn(*const Event, *mut u8, usize);

/// `struct trackway_abi_event`.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// The enable word: `off` below, or a word in the shared window, permanently.
    pub(crate) enabled: AtomicPtr<AtomicU32>,
    /// An [`EmitFn`], or null before the library has registered the event.
    pub(crate) emit: AtomicPtr<()>,
    pub(crate) off: AtomicU32,
    pub(crate) index: AtomicU32,
    pub(crate) version: u16,
    pub(crate) size: u16,
    pub(crate) level: u8,
    pub(crate) field_count: u8,
    pub(crate) reserved: u16,
    pub(crate) provider: *const c_char,
    pub(crate) name: *const c_char,
    pub(crate) fields: *const Field,
}

/// `struct trackway_abi_field`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: *const c_char,
    pub(crate) labels: *const Label,
    pub(crate) scalar: u8,
    pub(crate) shape: u8,
    pub(crate) length: u16,
    pub(crate) reserved: u32,
}

/// `struct trackway_abi_label`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Label {
    /// First value, inclusive.
    pub(crate) first: i64,
    /// Last value, inclusive.
    pub(crate) last: i64,
    /// The label's name, a C string.
    pub(crate) name: *const c_char,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Label>() == 24 && size_of::<Field>() == 24);
    assert!(size_of::<Event>() == 56);
    assert!(core::mem::offset_of!(Event, provider) == 32);
};

// SAFETY: shared fields that are written are atomic; the pointers lead to constants.
unsafe impl Sync for Event {}
// SAFETY: labels and their names are constants.
unsafe impl Sync for Label {}

impl Event {
    /// Returns true if a session records the event now. Relaxed, because a late answer is
    /// acceptable.
    #[inline(always)]
    pub(crate) fn is_on(&self) -> bool {
        let enabled = self.enabled.load(Ordering::Relaxed);
        // SAFETY: the word belongs to the event or to the library, which never unmaps it.
        unsafe { (*enabled).load(Ordering::Relaxed) != 0 }
    }

    /// Returns the function that records the event, if the event is on.
    #[inline(always)]
    pub(crate) fn emitter(&self) -> Option<EmitFn> {
        // ORDERING: Acquire pairs with the Release by which the library redirects `enabled`, after
        // it has set `emit`.
        let enabled = self.enabled.load(Ordering::Acquire);
        // SAFETY: the word belongs to the event or to the library, which never unmaps it.
        if unsafe { (*enabled).load(Ordering::Relaxed) } == 0 {
            return None;
        }
        let emit = self.emit.load(Ordering::Relaxed);
        // SAFETY: the address is null, which means `None`, or an `EmitFn` from the library.
        unsafe { core::mem::transmute::<*mut (), Option<EmitFn>>(emit) }
    }
}

/// An event that is never on, for machines on which tracing is impossible.
#[derive(Debug)]
pub struct Never(Event);

/// The only value of [`Never`].
pub static NEVER: Never = Never(Event {
    enabled: AtomicPtr::new((&raw const NEVER.0.off).cast_mut()),
    emit: AtomicPtr::new(core::ptr::null_mut()),
    off: AtomicU32::new(0),
    index: AtomicU32::new(0),
    version: VERSION,
    size: size_of::<Event>() as u16,
    level: 0,
    field_count: 0,
    reserved: 0,
    provider: core::ptr::null(),
    name: core::ptr::null(),
    fields: core::ptr::null(),
});

impl Never {
    /// Returns the event's address.
    pub const fn event(&'static self) -> *const Event {
        &raw const self.0
    }
}

/// Panics at compile time if `name` is invalid as the name of a provider, event or field.
pub const fn check_name(name: &str) {
    let bytes = name.as_bytes();
    assert!(bytes.len() <= 254, "names of providers, events and fields have up to 254 bytes");
    assert!(name.is_ascii(), "names of providers, events and fields are ASCII");
    assert!(
        !(bytes.len() > 1 && bytes[0] == b'r' && bytes[1] == b'#'),
        "raw identifiers cannot be names"
    );
}
