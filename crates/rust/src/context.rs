//! Application contexts of a program: values that a thread's events have. `<trackway/context.h>`
//! has more documentation.

use core::ffi::c_char;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;

use crate::event::VERSION;
use crate::weak::weak_function;

/// Longest name with provider and colon, in bytes: `APPLICATION_BYTES_MAX` of crates/abi.
const NAME_BYTES_MAX: usize = 63;

/// The type of `trackway_abi_context_set`; types of related functions follow.
type SetFn = unsafe extern "C" fn(*const Descriptor, u64);
type SetTextFn = unsafe extern "C" fn(*const Descriptor, *const u8, usize);
type ClearFn = unsafe extern "C" fn(*const Descriptor);
type GetFn = unsafe extern "C" fn(*const Descriptor, *mut Saved);
type PutFn = unsafe extern "C" fn(*const Descriptor, *const Saved);

/// `struct trackway_abi_context`.
#[repr(C)]
struct Descriptor {
    version: u16,
    size: u16,
    kind: u8,
    reserved: [u8; 3],
    place: AtomicU32,
    more_reserved: u32,
    provider: *const c_char,
    name: *const c_char,
}

// SAFETY: the names are in static memory, which is never written; `place` is an atomic.
unsafe impl Sync for Descriptor {}
// SAFETY: the names are in static memory, which is never written; `place` is an atomic.
unsafe impl Send for Descriptor {}

/// `struct trackway_abi_context_value`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Saved {
    words: [u64; 4],
    is_set: u64,
}

/// A type that a context can have: an integer, a floating-point number, a `bool`, or a string.
pub trait ContextValue: sealed::Kind {}

mod sealed {
    /// The library's code for the type: `enum trackway_abi_context_kind`.
    pub trait Kind {
        const KIND: u8;
    }
    /// A number.
    pub trait Number: Kind + Copy {
        /// Returns the value in the form that the library accepts.
        fn bits(self) -> u64;
    }
}

use sealed::Number;

macro_rules! numbers {
    ($kind:literal: $($number:ty as $bits:expr),+) => {$(
        impl sealed::Kind for $number {
            const KIND: u8 = $kind;
        }
        impl Number for $number {
            #[inline(always)]
            fn bits(self) -> u64 {
                let bits: fn($number) -> u64 = $bits;
                bits(self)
            }
        }
        impl ContextValue for $number {}
    )+};
}

numbers!(1: i8 as bits_of_signed, i16 as bits_of_signed, i32 as bits_of_signed);
numbers!(1: i64 as i64::cast_unsigned);
numbers!(2: bool as u64::from, u8 as u64::from, u16 as u64::from, u32 as u64::from);
numbers!(2: u64 as bits_of_u64);
numbers!(3: f32 as |number| f64::from(number).to_bits(), f64 as f64::to_bits);

fn bits_of_signed(number: impl Into<i64>) -> u64 {
    number.into().cast_unsigned()
}

const fn bits_of_u64(number: u64) -> u64 {
    number
}

impl sealed::Kind for str {
    const KIND: u8 = 4;
}
impl ContextValue for str {}

/// An application context of this program, created by [`context!`](crate::context!). It has a value
/// in each thread, or none; the thread's events have that value if a session requests it.
///
/// Setting a value neither blocks nor allocates, and makes no system call. It is permitted in
/// signal handlers; a handler that interrupts it reads a complete value. Without libtrackway.so,
/// calls have no effect.
pub struct Context<T: ContextValue + ?Sized> {
    descriptor: Descriptor,
    of: PhantomData<fn(&T)>,
}

impl<T: ContextValue + ?Sized> Context<T> {
    /// Creates a context, for the macro. Names end with a NUL.
    #[doc(hidden)]
    pub const fn __new(provider: &'static str, name: &'static str) -> Self {
        assert!(is_c_string(provider) && is_c_string(name), "names are made by `context!`");
        // In the full name, a colon replaces one of the two NULs.
        assert!(provider.len() + name.len() - 1 <= NAME_BYTES_MAX, "the name is too long");
        Self {
            descriptor: Descriptor {
                version: VERSION,
                size: size_of::<Descriptor>() as u16,
                kind: T::KIND,
                reserved: [0; 3],
                place: AtomicU32::new(0),
                more_reserved: 0,
                provider: provider.as_ptr().cast(),
                name: name.as_ptr().cast(),
            },
            of: PhantomData,
        }
    }

    /// Removes the calling thread's value.
    pub fn clear(&'static self) {
        if let Some(clear) = weak_function!("trackway_abi_context_clear" as ClearFn) {
            // SAFETY: the descriptor is valid and static.
            unsafe { clear(&raw const self.descriptor) };
        }
    }

    /// Returns the current value, so that it can be restored.
    fn save(&'static self) -> Entered<T> {
        let mut saved = Saved { words: [0; 4], is_set: 0 };
        if let Some(get) = weak_function!("trackway_abi_context_get" as GetFn) {
            // SAFETY: the descriptor is valid and static; `saved` is a local variable.
            unsafe { get(&raw const self.descriptor, &raw mut saved) };
        }
        Entered { context: self, saved, not_send: PhantomData }
    }
}

const fn is_c_string(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] == 0 {
            return false;
        }
        at += 1;
    }
    bytes.len() > 1 && bytes[at] == 0
}

impl<T: ContextValue + Number> Context<T> {
    /// Sets the calling thread's value, until it is set again or removed.
    pub fn set(&'static self, value: T) {
        if let Some(set) = weak_function!("trackway_abi_context_set" as SetFn) {
            // SAFETY: the descriptor is valid and static.
            unsafe { set(&raw const self.descriptor, value.bits()) };
        }
    }

    /// Sets the calling thread's value while the returned guard exists; dropping the guard restores
    /// the previous value, or none.
    #[must_use = "the value of before is put back when this is dropped"]
    pub fn enter(&'static self, value: T) -> Entered<T> {
        let entered = self.save();
        self.set(value);
        entered
    }
}

impl Context<str> {
    /// Sets the calling thread's value, until it is set again or removed. Text of more than 31
    /// bytes is cut and ends with "…"; a NUL ends the text.
    pub fn set(&'static self, value: &str) {
        if let Some(set) = weak_function!("trackway_abi_context_set_text" as SetTextFn) {
            // SAFETY: the descriptor is valid and static; the text has `value.len()` bytes.
            unsafe { set(&raw const self.descriptor, value.as_ptr(), value.len()) };
        }
    }

    /// Sets the calling thread's value while the returned guard exists; dropping the guard restores
    /// the previous value, or none.
    #[must_use = "the value of before is put back when this is dropped"]
    pub fn enter(&'static self, value: &str) -> Entered<str> {
        let entered = self.save();
        self.set(value);
        entered
    }
}

impl<T: ContextValue + ?Sized> fmt::Debug for Context<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Context").finish_non_exhaustive()
    }
}

/// A guard that restores a [`Context`]'s previous value in this thread when it is dropped.
#[must_use = "the value of before is put back when this is dropped"]
pub struct Entered<T: ContextValue + ?Sized + 'static> {
    context: &'static Context<T>,
    saved: Saved,
    /// Makes the guard `!Send`: the saved value belongs to the thread that created the guard.
    not_send: PhantomData<*const ()>,
}

impl<T: ContextValue + ?Sized> Drop for Entered<T> {
    fn drop(&mut self) {
        if let Some(put) = weak_function!("trackway_abi_context_put" as PutFn) {
            // SAFETY: the descriptor is valid and static; the library wrote the saved value.
            unsafe { put(&raw const self.context.descriptor, &raw const self.saved) };
        }
    }
}

impl<T: ContextValue + ?Sized> fmt::Debug for Entered<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entered").finish_non_exhaustive()
    }
}
