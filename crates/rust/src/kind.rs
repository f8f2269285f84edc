//! The types of values: [`Value`] for a program's values, [`Kind`] for their form in records.
//!
//! Longer than 600 lines: a table of types, each with the same few functions.

use core::ffi::CStr;
use core::marker::PhantomData;

use crate::budget::{PAYLOAD_MAX, Span, end_cut};

/// Codes of `enum trackway_abi_scalar`.
pub(crate) mod scalar {
    pub(crate) const NONE: u8 = 0;
    pub(crate) const I8: u8 = 1;
    pub(crate) const I16: u8 = 2;
    pub(crate) const I32: u8 = 3;
    pub(crate) const I64: u8 = 4;
    pub(crate) const U8: u8 = 5;
    pub(crate) const U16: u8 = 6;
    pub(crate) const U32: u8 = 7;
    pub(crate) const U64: u8 = 8;
    pub(crate) const X8: u8 = 9;
    pub(crate) const X16: u8 = 10;
    pub(crate) const X32: u8 = 11;
    pub(crate) const X64: u8 = 12;
    pub(crate) const F32: u8 = 13;
    pub(crate) const F64: u8 = 14;
    pub(crate) const BOOL: u8 = 15;
}

/// Codes of `enum trackway_abi_shape`.
pub(crate) mod shape {
    pub(crate) const SCALAR: u8 = 0;
    pub(crate) const STR: u8 = 1;
    pub(crate) const TEXT: u8 = 2;
    pub(crate) const ARRAY: u8 = 3;
    pub(crate) const SEQUENCE: u8 = 4;
    pub(crate) const ENUMERATION: u8 = 5;
}

/// A type whose values can be fields of an event.
///
/// Implemented for integers, floats, `bool`, `char`, [`str`], [`CStr`], arrays and slices of
/// numbers, raw pointers, results of [`hex`] and [`bytes`], enumerations of [`enumeration!`], and
/// references to all of these types; with the feature `std` also for `String`, `Path`, `OsStr`,
/// `Vec`, and `Box`, `Rc`, `Arc` and `Cow` of them.
///
/// | in Rust | in a trace (and in `TRACKWAY_EVENT`) |
/// |---|---|
/// | `i8` … `u64`, `f32`, `f64`, `bool` | the same |
/// | `isize`, `usize` | `i64`, `u64` |
/// | `hex(n)`, raw pointers | `x8` … `x64`, `ptr` |
/// | `str`, `String`, `Path`, `CStr`, `char` | `str`: up to the first NUL |
/// | `bytes(b)` | `text`: all of it |
/// | `[T; N]` of numbers, 1 to 1024 | `array` |
/// | `[T]`, `Vec<T>` of numbers | `seq` |
///
/// `Option` is not implemented: a field always exists. Use `path.unwrap_or("")`, or two events.
///
/// # Safety
///
/// The result of [`Value::kind`] must point only to parts of the value, which must stay in place
/// while the value is borrowed. (Returning the kind of a field of the type is sufficient.)
///
/// [`enumeration!`]: crate::enumeration
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the value of an event's field",
    note = "integers, floats, bool, char, strings, slices and arrays of numbers, and pointers can; \
            `trackway::enumeration!` makes enumerations that can"
)]
pub unsafe trait Value {
    /// The type of the field in records.
    #[doc(hidden)]
    type Kind: Kind;

    /// Returns the field for this value; it may point into the value.
    #[doc(hidden)]
    fn kind(&self) -> Self::Kind;
}

/// A number: an element of arrays and sequences.
///
/// # Safety
/// `SCALAR` must be the code of a type with this size, and all bytes must be initialised.
#[doc(hidden)]
pub unsafe trait Number: Copy {
    const SCALAR: u8;
}

/// A field's value in a form that can be staged, without a lifetime: it is used only while the
/// original value exists.
///
/// # Safety
/// The constants must describe `put`: it writes `FIXED` bytes and at most the bytes granted to a
/// span.
#[doc(hidden)]
pub unsafe trait Kind: Copy {
    const SCALAR: u8;
    const SHAPE: u8;
    /// Number of elements of an array, or of labels of an enumeration.
    const LENGTH: u16 = 0;
    /// The number in the symbol of an enumeration's labels; 0 without labels.
    const LABELS: u64 = 0;
    /// 1 with labels, else 0.
    const HAS_LABELS: u8 = (Self::LABELS != 0) as u8;
    /// Number of bytes that the field takes with any value.
    const FIXED: usize;
    /// True if the field takes more bytes than `FIXED`, and can be cut.
    const IS_SPAN: bool = false;

    /// Returns the number of additional bytes that the field needs: at most about [`PAYLOAD_MAX`],
    /// which exceeds the available room.
    ///
    /// # Safety
    /// The data to which the kind points must still exist.
    #[inline(always)]
    unsafe fn wanted(&self) -> usize {
        0
    }

    /// Appends the field, and returns the payload's new end.
    ///
    /// # Safety
    /// There must be room at `to`, and the data to which the kind points must still exist.
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8;
}

macro_rules! numbers {
    ($($type:ty, $code:ident;)*) => {$(
        // SAFETY: the code is that of the type.
        unsafe impl Number for $type {
            const SCALAR: u8 = scalar::$code;
        }

        // SAFETY: `put` writes `FIXED` bytes.
        unsafe impl Kind for $type {
            const SCALAR: u8 = scalar::$code;
            const SHAPE: u8 = shape::SCALAR;
            const FIXED: usize = size_of::<Self>();

            #[inline(always)]
            unsafe fn put(self, to: *mut u8, _: Span) -> *mut u8 {
                // SAFETY: the caller guarantees room for the number.
                unsafe {
                    to.cast::<Self>().write_unaligned(self);
                    to.add(size_of::<Self>())
                }
            }
        }

        // SAFETY: the kind copies the value, or points to parts of it.
        unsafe impl Value for $type {
            type Kind = Self;

            #[inline(always)]
            fn kind(&self) -> Self {
                *self
            }
        }
    )*};
}

numbers! {
    i8, I8; i16, I16; i32, I32; i64, I64;
    u8, U8; u16, U16; u32, U32; u64, U64;
    f32, F32; f64, F64; bool, BOOL;
    Hex<u8>, X8; Hex<u16>, X16; Hex<u32>, X32; Hex<u64>, X64;
}

macro_rules! converted {
    ($($type:ty, $kind:ty;)*) => {$(
        // SAFETY: the kind copies the value, or points to parts of it.
        unsafe impl Value for $type {
            type Kind = $kind;

            #[inline(always)]
            fn kind(&self) -> $kind {
                *self as $kind
            }
        }
    )*};
}

converted! { isize, i64; usize, u64; }

/// An integer that is displayed in hexadecimal; created by [`hex`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Hex<T>(T);

/// A type that [`hex`] accepts: `u8`, `u16`, `u32`, `u64`, and `usize`, which is recorded as `u64`.
pub trait Unsigned: Copy {
    /// The type in records.
    #[doc(hidden)]
    type As;

    #[doc(hidden)]
    fn recorded(self) -> Self::As;
}

macro_rules! unsigned {
    ($($type:ty, $recorded:ty;)*) => {$(
        impl Unsigned for $type {
            type As = $recorded;

            #[inline(always)]
            fn recorded(self) -> $recorded {
                self as $recorded
            }
        }
    )*};
}

unsigned! { u8, u8; u16, u16; u32, u32; u64, u64; usize, u64; }

/// Returns `number` as a value that is displayed in hexadecimal.
///
/// ```
/// trackway::event!(myapp, register_written, DEBUG, flags = trackway::hex(0x81_u8));
/// ```
#[inline(always)]
pub fn hex<T: Unsigned>(number: T) -> Hex<T::As> {
    Hex(number.recorded())
}

macro_rules! pointers {
    ($($type:ty),*) => {$(
        // SAFETY: the kind copies the value, or points to parts of it.
        unsafe impl<T: ?Sized> Value for $type {
            type Kind = Hex<u64>;

            #[inline(always)]
            fn kind(&self) -> Hex<u64> {
                Hex((*self).cast::<()>().addr() as u64)
            }
        }
    )*};
}

pointers! { *const T, *mut T }

/// Text of any bytes: a 32-bit length, then the bytes.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Text {
    bytes: *const u8,
    length: usize,
}

impl Text {
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.as_ptr(), length: bytes.len() }
    }
}

// SAFETY: `put` writes a length of four bytes, then at most the granted bytes.
unsafe impl Kind for Text {
    const SCALAR: u8 = scalar::NONE;
    const SHAPE: u8 = shape::TEXT;
    const FIXED: usize = 4;
    const IS_SPAN: bool = true;

    #[inline(always)]
    unsafe fn wanted(&self) -> usize {
        self.length.min(PAYLOAD_MAX)
    }

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8 {
        let mut length = span.copied();
        // SAFETY: the caller guarantees room for the length and the granted bytes.
        unsafe {
            let text = to.add(Self::FIXED);
            text.copy_from_nonoverlapping(self.bytes, length);
            if span.is_cut() && span.granted >= 3 {
                length = end_cut(text, length);
            }
            to.cast::<u32>().write_unaligned(length as u32);
            text.add(length)
        }
    }
}

/// Text that need not be UTF-8 and may contain NULs; created by [`bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bytes<'a>(&'a [u8]);

/// Returns `text` as a string with an explicit length, for any bytes: an HTTP header, a frame. (A
/// slice of bytes is recorded as a sequence of numbers, and a `str` ends at its first NUL.)
///
/// ```
/// trackway::event!(myapp, header, DEBUG, value = trackway::bytes(b"caf\xe9"));
/// ```
#[inline(always)]
pub fn bytes(text: &[u8]) -> Bytes<'_> {
    Bytes(text)
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl Value for Bytes<'_> {
    type Kind = Text;

    #[inline(always)]
    fn kind(&self) -> Text {
        Text::new(self.0)
    }
}

/// A string that ends with a NUL, from bytes without NULs.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Str(Text);

// SAFETY: `put` writes at most the granted bytes, then a NUL.
unsafe impl Kind for Str {
    const SCALAR: u8 = scalar::NONE;
    const SHAPE: u8 = shape::STR;
    const FIXED: usize = 1;
    const IS_SPAN: bool = true;

    #[inline(always)]
    unsafe fn wanted(&self) -> usize {
        // SAFETY: the caller promises that the bytes exist.
        unsafe { self.0.wanted() }
    }

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8 {
        let mut length = span.copied();
        // SAFETY: the caller guarantees room for the granted bytes and the NUL.
        unsafe {
            to.copy_from_nonoverlapping(self.0.bytes, length);
            if span.is_cut() && span.granted >= 3 {
                length = end_cut(to, length);
            }
            to.add(length).write(0);
            to.add(length + 1)
        }
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl Value for CStr {
    type Kind = Str;

    #[inline(always)]
    fn kind(&self) -> Str {
        Str(Text::new(self.to_bytes()))
    }
}

/// A string from bytes up to their first NUL. Its form is that of C strings, so that an event in C
/// and in Rust is the same event; and traces show no lengths beside strings.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Utf8(Str);

impl Utf8 {
    #[inline(always)]
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Str(Text::new(bytes)))
    }
}

// SAFETY: `put` is that of `Str`, with at most as many bytes.
unsafe impl Kind for Utf8 {
    const SCALAR: u8 = Str::SCALAR;
    const SHAPE: u8 = Str::SHAPE;
    const FIXED: usize = Str::FIXED;
    const IS_SPAN: bool = Str::IS_SPAN;

    #[inline(always)]
    unsafe fn wanted(&self) -> usize {
        // SAFETY: the caller promises that the bytes exist; `wanted` does not exceed their number.
        let bytes = unsafe { core::slice::from_raw_parts(self.0.0.bytes, self.0.wanted()) };
        length_before_nul(bytes)
    }

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8 {
        // SAFETY: the caller's promises hold for `Str`, too; granted bytes end before the first
        // NUL.
        unsafe { self.0.put(to, span) }
    }
}

/// Returns the number of bytes before the first NUL, or of all bytes. Scans by words: most strings
/// are short and contain no NUL, and a call of memchr(3) costs more.
#[inline(always)]
pub(crate) fn length_before_nul(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest remaining bit is in the first zero byte (Mycroft 1987).
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            return number * 8 + zeros.trailing_zeros() as usize / 8;
        }
    }
    let in_rest = rest.iter().position(|&byte| byte == 0);
    in_rest.map_or(bytes.len(), |at| words.len() * 8 + at)
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl Value for str {
    type Kind = Utf8;

    #[inline(always)]
    fn kind(&self) -> Utf8 {
        Utf8::new(self.as_bytes())
    }
}

/// A string of one character.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Character(char);

// SAFETY: `put` writes up to four bytes, and a NUL. All five count as fixed, because a character is
// never cut.
unsafe impl Kind for Character {
    const SCALAR: u8 = scalar::NONE;
    const SHAPE: u8 = shape::STR;
    const FIXED: usize = 5;

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, _: Span) -> *mut u8 {
        let mut utf8 = [0; 5];
        let length = if self.0 == '\0' { 0 } else { self.0.encode_utf8(&mut utf8).len() };
        // SAFETY: the caller guarantees room for five bytes.
        unsafe {
            to.cast::<[u8; 5]>().write_unaligned(utf8);
            to.add(length + 1)
        }
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl Value for char {
    type Kind = Character;

    #[inline(always)]
    fn kind(&self) -> Character {
        Character(*self)
    }
}

/// A sequence of any number of numbers: a 32-bit count, then the elements.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Sequence<T> {
    elements: *const T,
    count: usize,
}

// SAFETY: `put` writes a count of four bytes, then at most the granted bytes.
unsafe impl<T: Number> Kind for Sequence<T> {
    const SCALAR: u8 = T::SCALAR;
    const SHAPE: u8 = shape::SEQUENCE;
    const FIXED: usize = 4;
    const IS_SPAN: bool = true;

    #[inline(always)]
    unsafe fn wanted(&self) -> usize {
        self.count.min(PAYLOAD_MAX / size_of::<T>() + 1).wrapping_mul(size_of::<T>())
    }

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8 {
        let count = span.granted / size_of::<T>();
        let length = count * size_of::<T>();
        // SAFETY: the caller guarantees room for the count and the granted bytes.
        unsafe {
            to.cast::<u32>().write_unaligned(count as u32);
            let to = to.add(Self::FIXED);
            to.copy_from_nonoverlapping(self.elements.cast(), length);
            to.add(length)
        }
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl<T: Number> Value for [T] {
    type Kind = Sequence<T>;

    #[inline(always)]
    fn kind(&self) -> Sequence<T> {
        Sequence { elements: self.as_ptr(), count: self.len() }
    }
}

/// An array of a fixed number of numbers.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Array<T, const N: usize>(*const [T; N]);

// SAFETY: `put` writes the elements, which have `FIXED` bytes.
unsafe impl<T: Number, const N: usize> Kind for Array<T, N> {
    const SCALAR: u8 = T::SCALAR;
    const SHAPE: u8 = shape::ARRAY;
    const LENGTH: u16 = {
        assert!(N >= 1 && N <= 1024, "arrays have 1 to 1024 elements; slices may have any number");
        N as u16
    };
    const FIXED: usize = size_of::<[T; N]>();

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, _: Span) -> *mut u8 {
        // SAFETY: the caller guarantees the room, and that the array still exists.
        unsafe {
            to.copy_from_nonoverlapping(self.0.cast(), Self::FIXED);
            to.add(Self::FIXED)
        }
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl<T: Number, const N: usize> Value for [T; N] {
    type Kind = Array<T, N>;

    #[inline(always)]
    fn kind(&self) -> Array<T, N> {
        Array(self)
    }
}

/// A type that [`enumeration!`](crate::enumeration) defines.
///
/// # Safety
/// In all code that has a value, the symbol `trackway.labels.NUMBER` must be an array of `COUNT`
/// labels; NUMBER is `LABELS`. In other code it must be null or such an array.
#[doc(hidden)]
pub unsafe trait Enumeration: Copy {
    type Integer: Kind;
    const LABELS: u64;
    const COUNT: u16;

    fn number(self) -> Self::Integer;
}

/// The integer that represents an enumeration.
#[doc(hidden)]
#[derive(Debug)]
pub struct Enumerated<E: Enumeration>(E::Integer, PhantomData<fn(E)>);

impl<E: Enumeration> Enumerated<E> {
    #[inline(always)]
    pub fn new(value: E) -> Self {
        Self(value.number(), PhantomData)
    }
}

impl<E: Enumeration> Clone for Enumerated<E> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Enumeration> Copy for Enumerated<E> {}

// SAFETY: the constants and `put` are those of the integer.
unsafe impl<E: Enumeration> Kind for Enumerated<E> {
    const SCALAR: u8 = E::Integer::SCALAR;
    const SHAPE: u8 = shape::ENUMERATION;
    const LENGTH: u16 = E::COUNT;
    const LABELS: u64 = E::LABELS;
    const FIXED: usize = E::Integer::FIXED;

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, span: Span) -> *mut u8 {
        // SAFETY: the caller's promises hold for the integer, too.
        unsafe { self.0.put(to, span) }
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl<V: Value + ?Sized> Value for &V {
    type Kind = V::Kind;

    #[inline(always)]
    fn kind(&self) -> V::Kind {
        (**self).kind()
    }
}

// SAFETY: the kind copies the value, or points to parts of it.
unsafe impl<V: Value + ?Sized> Value for &mut V {
    type Kind = V::Kind;

    #[inline(always)]
    fn kind(&self) -> V::Kind {
        (**self).kind()
    }
}

#[cfg(feature = "std")]
mod with_std {
    use std::borrow::Cow;
    use std::ffi::{OsStr, OsString};
    use std::path::{Path, PathBuf};
    use std::rc::Rc;
    use std::sync::Arc;

    use super::{Number, Sequence, Utf8, Value};

    macro_rules! strings {
        ($($type:ty, $bytes:expr;)*) => {$(
            // SAFETY: the kind copies the value, or points to parts of it.
            unsafe impl Value for $type {
                type Kind = Utf8;

                #[inline(always)]
                fn kind(&self) -> Utf8 {
                    let bytes: fn(&$type) -> &[u8] = $bytes;
                    Utf8::new(bytes(self))
                }
            }
        )*};
    }

    strings! {
        String, |string| string.as_bytes();
        OsStr, |string| string.as_encoded_bytes();
        OsString, |string| string.as_encoded_bytes();
        Path, |path| path.as_os_str().as_encoded_bytes();
        PathBuf, |path| path.as_os_str().as_encoded_bytes();
    }

    // SAFETY: the kind copies the value, or points to parts of it.
    unsafe impl<T: Number> Value for Vec<T> {
        type Kind = Sequence<T>;

        #[inline(always)]
        fn kind(&self) -> Sequence<T> {
            self.as_slice().kind()
        }
    }

    macro_rules! pointing {
        ($($type:ty),*) => {$(
            // SAFETY: the kind copies the value, or points to parts of it.
            unsafe impl<V: Value + ?Sized> Value for $type {
                type Kind = V::Kind;

                #[inline(always)]
                fn kind(&self) -> V::Kind {
                    (**self).kind()
                }
            }
        )*};
    }

    pointing! { Box<V>, Rc<V>, Arc<V> }

    // SAFETY: the kind copies the value, or points to parts of it.
    unsafe impl<V: Value + ToOwned + ?Sized> Value for Cow<'_, V> {
        type Kind = V::Kind;

        #[inline(always)]
        fn kind(&self) -> V::Kind {
            (**self).kind()
        }
    }
}

/// Returns a number that identifies an enumeration's labels: FNV-1a, as in crates/schema, of names
/// and numbers. Equal labels may share their symbol.
///
/// # Panics
/// If there are more than 64 labels.
#[doc(hidden)]
pub const fn hash_labels(names: &[&str], numbers: &[i64]) -> u64 {
    const fn hash_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        hash
    }
    assert!(names.len() <= 64, "an enumeration has up to 64 labels");
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < names.len() {
        hash = hash_bytes(hash, names[at].as_bytes());
        hash = hash_bytes(hash, &[0]);
        hash = hash_bytes(hash, &numbers[at].to_le_bytes());
        at += 1;
    }
    // Zero is reserved for "no labels".
    if hash == 0 { 1 } else { hash }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_nul_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut bytes = vec![0x80_u8; length];
            assert_eq!(length_before_nul(&bytes), length);
            for at in 0..length {
                // After a zero byte, the word trick mistakes a byte of value one for a zero byte.
                bytes[at] = 0;
                bytes[at + 1..].fill(1);
                assert_eq!(length_before_nul(&bytes), at, "of {length}");
                bytes.fill(0x80);
            }
        }
    }

    #[test]
    fn labels_have_numbers_of_their_own() {
        let number = hash_labels(&["a", "b"], &[0, 1]);
        assert_ne!(number, hash_labels(&["a", "b"], &[0, 2]));
        assert_ne!(number, hash_labels(&["ab"], &[0]));
        assert_eq!(number, hash_labels(&["a", "b"], &[0, 1]));
    }
}
