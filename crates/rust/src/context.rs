//! Contexts of a program: values that a thread's events have, as `<trackway/context.h>` has them,
//! which says more.

use core::ffi::c_char;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::AtomicU32;

use crate::event::VERSION;
use crate::weak::weak_function;

/// Longest name with its provider and a colon, in bytes: `APPLICATION_BYTES_MAX` of crates/abi.
const NAME_BYTES_MAX: usize = 63;

/// `trackway_abi_context_set` and its like.
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
// SAFETY: as above.
unsafe impl Send for Descriptor {}

/// `struct trackway_abi_context_value`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Saved {
    words: [u64; 4],
    is_set: u64,
}

/// A type that a context can have: an integer, a floating-point number, a truth, or a string.
pub trait ContextValue: sealed::Kind {}

mod sealed {
    /// The library's name of the type: `enum trackway_abi_context_kind`.
    pub trait Kind {
        const KIND: u8;
    }
    /// A number.
    pub trait Number: Kind + Copy {
        /// Returns the value as the library takes it.
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

/// A context of this program, which [`context!`](crate::context!) makes: it has a value in each
/// thread, or none, and the thread's events have it where a session asks for it.
///
/// Setting a value neither blocks nor allocates, and makes no system call; it may be done in signal
/// handlers, and by who interrupts it, who finds a whole value. Without libtrackway.so nothing
/// happens.
pub struct Context<T: ContextValue + ?Sized> {
    descriptor: Descriptor,
    of: PhantomData<fn(&T)>,
}

impl<T: ContextValue + ?Sized> Context<T> {
    /// For the macro. Names end with a NUL.
    #[doc(hidden)]
    pub const fn __new(provider: &'static str, name: &'static str) -> Self {
        assert!(is_c_string(provider) && is_c_string(name), "names are made by `context!`");
        // A colon between them in the place of one of the two NULs.
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

    /// Takes the calling thread's value away.
    pub fn clear(&'static self) {
        if let Some(clear) = weak_function!("trackway_abi_context_clear" as ClearFn) {
            // SAFETY: the descriptor is what it says, and stays.
            unsafe { clear(&raw const self.descriptor) };
        }
    }

    /// Returns the present value, to be put back.
    fn save(&'static self) -> Entered<T> {
        let mut saved = Saved { words: [0; 4], is_set: 0 };
        if let Some(get) = weak_function!("trackway_abi_context_get" as GetFn) {
            // SAFETY: as above; the variable is ours.
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
    /// Sets the calling thread's value, until it is set again, or taken away.
    pub fn set(&'static self, value: T) {
        if let Some(set) = weak_function!("trackway_abi_context_set" as SetFn) {
            // SAFETY: as in `clear`.
            unsafe { set(&raw const self.descriptor, value.bits()) };
        }
    }

    /// Sets the calling thread's value for as long as what this gives is there; then the value of
    /// before is there again, or none.
    #[must_use = "the value of before is put back when this is dropped"]
    pub fn enter(&'static self, value: T) -> Entered<T> {
        let entered = self.save();
        self.set(value);
        entered
    }
}

impl Context<str> {
    /// Sets the calling thread's value, until it is set again, or taken away. Of more than 31 bytes
    /// it is cut, and ends with "…"; a NUL ends it.
    pub fn set(&'static self, value: &str) {
        if let Some(set) = weak_function!("trackway_abi_context_set_text" as SetTextFn) {
            // SAFETY: as in `clear`; there are so many bytes.
            unsafe { set(&raw const self.descriptor, value.as_ptr(), value.len()) };
        }
    }

    /// Sets the calling thread's value for as long as what this gives is there; then the value of
    /// before is there again, or none.
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

/// Puts back what a [`Context`] was in this thread.
#[must_use = "the value of before is put back when this is dropped"]
pub struct Entered<T: ContextValue + ?Sized + 'static> {
    context: &'static Context<T>,
    saved: Saved,
    /// It is about the thread that has made it.
    not_send: PhantomData<*const ()>,
}

impl<T: ContextValue + ?Sized> Drop for Entered<T> {
    fn drop(&mut self) {
        if let Some(put) = weak_function!("trackway_abi_context_put" as PutFn) {
            // SAFETY: the descriptor is what it says; what was saved is the library's.
            unsafe { put(&raw const self.context.descriptor, &raw const self.saved) };
        }
    }
}

impl<T: ContextValue + ?Sized> fmt::Debug for Entered<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entered").finish_non_exhaustive()
    }
}
