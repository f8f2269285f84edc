//! The values that the calling thread has set.
//!
//! A slot has two copies of its value and a *state*: which copy is valid, whether there is a value,
//! and a count that changes with every write. Only the thread reads and writes its slots. A signal
//! handler may interrupt it anywhere, read, set, and be interrupted itself. Invariant: **nothing
//! writes the valid copy**, so every reader finds a whole value.
//!
//! A set writes the other copy and makes it valid by one instruction, if the state is unchanged.
//! Then the set repeats this with the first copy. So the same copy is valid before and after a set.
//! An interrupted set continues to write the invalid copy, finds another state, and starts again. A
//! reader compares the state, too.

use core::sync::atomic::{Ordering, compiler_fence};

use super::names::{CONTEXTS_MAX, ContextIndex, NUMBERS_MAX};
use crate::tls;

/// Bytes of a string, its NUL included.
pub(crate) const TEXT_BYTES: usize = 32;
/// Words of a string.
pub(super) const TEXT_WORDS: usize = TEXT_BYTES / 8;

/// The end of a string that was cut: "…".
const ELLIPSIS: &[u8] = "\u{2026}".as_bytes();
/// The string that a null pointer sets.
const NULL: &[u8] = b"(null)";

/// Maximum number of tries. Each fails because signal handlers set the same context within a few
/// instructions.
const TRIES_MAX: usize = 64;

/// Bit of a state: the number of the valid copy.
const COPY: u64 = 1;
/// Bit of a state: there is a value.
const SET: u64 = 2;
/// Increment of a state's count.
const STEP: u64 = 4;

#[repr(C)]
struct Slot<const WORDS: usize> {
    state: u64,
    copies: [[u64; WORDS]; 2],
}

/// A thread's values.
#[repr(C)]
struct Values {
    numbers: [Slot<1>; NUMBERS_MAX],
    texts: [Slot<TEXT_WORDS>; CONTEXTS_MAX - NUMBERS_MAX],
}

const VALUES_BYTES: usize = size_of::<Values>();
const _: () = assert!(VALUES_BYTES == 240);

tls::define!("trackway_values", bytes = VALUES_BYTES, alignment = 8);

/// Returns the address of the calling thread's values.
#[inline(always)]
fn thread_values() -> *mut Values {
    tls::address_of!("trackway_values")
}

/// A value. A number is the first word alone; a string is all words, and ends with a NUL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    words: [u64; TEXT_WORDS],
}

impl Value {
    pub(super) const fn number(bits: u64) -> Self {
        Self { words: [bits, 0, 0, 0] }
    }

    pub(super) const fn words(self) -> [u64; TEXT_WORDS] {
        self.words
    }

    pub(super) const fn from_words(words: [u64; TEXT_WORDS]) -> Self {
        Self { words }
    }

    /// Makes a string of these bytes, up to their first NUL, cut to the slot's size.
    ///
    /// # Safety
    /// `text` is null, or points to `length` bytes, or to fewer bytes and a NUL.
    pub(super) unsafe fn text(text: *const u8, length: usize) -> Self {
        let (text, length) =
            if text.is_null() { (NULL.as_ptr(), NULL.len()) } else { (text, length) };
        let mut bytes = [0; TEXT_BYTES];
        let mut count = 0;
        let mut is_whole = false;
        // One byte more than fits shows that the string is cut.
        for (at, place) in bytes.iter_mut().enumerate() {
            // SAFETY: by contract, and nothing is read after a NUL.
            let byte = if at < length { unsafe { text.add(at).read_volatile() } } else { 0 };
            if byte == 0 {
                is_whole = true;
                break;
            }
            *place = byte;
            count = at + 1;
        }
        if !is_whole {
            append_ellipsis(&mut bytes, count.min(TEXT_BYTES - 1 - ELLIPSIS.len()));
        }
        let mut words = [0; TEXT_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        Self { words }
    }

    /// Returns the bits of a number.
    pub(crate) const fn bits(&self) -> u64 {
        self.words[0]
    }

    /// Returns the bytes of a string, and the number of bytes before the NUL.
    pub(crate) fn bytes(&self) -> ([u8; TEXT_BYTES], usize) {
        let mut bytes = [0; TEXT_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        // Ends the string even if a restored value has arbitrary words.
        bytes[TEXT_BYTES - 1] = 0;
        let length = bytes.iter().position(|&byte| byte == 0);
        (bytes, length.unwrap_or(TEXT_BYTES - 1))
    }
}

/// Ends `length` bytes of cut UTF-8 with "…" and NULs. Removes a character that the cut has split.
fn append_ellipsis(bytes: &mut [u8; TEXT_BYTES], mut length: usize) {
    for back in 1..=length.min(3) {
        let byte = bytes[length - back];
        if byte >= 0xc0 {
            let needed = match byte {
                0xf0.. => 4,
                0xe0.. => 3,
                _ => 2,
            };
            if back < needed {
                length -= back;
            }
            break;
        }
        if byte < 0x80 {
            break;
        }
    }
    bytes[length..].fill(0);
    if let Some(end) = bytes.get_mut(length..length + ELLIPSIS.len()) {
        end.copy_from_slice(ELLIPSIS);
    }
}

/// Sets the calling thread's value of a context.
pub(super) fn set_value(place: ContextIndex, value: Value) {
    let values = thread_values();
    let (number, text) = (place.index(), place.index().wrapping_sub(NUMBERS_MAX));
    // SAFETY: the thread's own, for as long as it runs; indices are in bounds.
    unsafe {
        if place.is_text() {
            Slot::set((&raw mut (*values).texts).cast::<Slot<TEXT_WORDS>>().add(text), value.words);
        } else {
            let words = [value.words[0]];
            Slot::set((&raw mut (*values).numbers).cast::<Slot<1>>().add(number), words);
        }
    }
}

/// Clears the calling thread's value of a context.
pub(super) fn clear_value(place: ContextIndex) {
    // SAFETY: the state is the calling thread's own.
    unsafe {
        let state = state_of(place);
        for _ in 0..TRIES_MAX {
            let now = state.read_volatile();
            if compare_and_swap(state, now, (now & !SET).wrapping_add(STEP)) {
                return;
            }
        }
        let now = state.read_volatile();
        state.write_volatile(now & !SET);
    }
}

/// Returns the calling thread's value of a context, if it has one.
#[inline]
pub(crate) fn read_value(place: ContextIndex) -> Option<Value> {
    let values = thread_values();
    let (number, text) = (place.index(), place.index().wrapping_sub(NUMBERS_MAX));
    // SAFETY: the thread's own values, for as long as it runs; indices are in bounds.
    unsafe {
        if place.is_text() {
            let slot = (&raw mut (*values).texts).cast::<Slot<TEXT_WORDS>>().add(text);
            Slot::get(slot).map(Value::from_words)
        } else {
            let slot = (&raw mut (*values).numbers).cast::<Slot<1>>().add(number);
            Slot::get(slot).map(|[bits]| Value::number(bits))
        }
    }
}

fn state_of(place: ContextIndex) -> *mut u64 {
    let values = thread_values();
    let (number, text) = (place.index(), place.index().wrapping_sub(NUMBERS_MAX));
    // SAFETY: the thread's own values, for as long as it runs; indices are in bounds.
    unsafe {
        if place.is_text() {
            &raw mut (*values).texts[text].state
        } else {
            &raw mut (*values).numbers[number].state
        }
    }
}

impl<const WORDS: usize> Slot<WORDS> {
    /// Sets the slot's value.
    ///
    /// # Safety
    /// The slot is the calling thread's.
    unsafe fn set(slot: *mut Self, value: [u64; WORDS]) {
        // SAFETY: the caller upholds the same contract.
        if !unsafe { Self::write_inactive_copy(slot, |_| (value, SET)) } {
            return; // a handler's value is as recent as this one
        }
        // Writes the valid value, which may be a handler's or none, to the other copy, too.
        // SAFETY: the caller upholds the same contract.
        if !unsafe {
            Self::write_inactive_copy(slot, |state| (Self::valid_copy(slot, state), state & SET))
        } {
            // An interrupted set may write the valid copy.
            // SAFETY: the caller's slot, of the calling thread.
            unsafe {
                let state = &raw mut (*slot).state;
                state.write_volatile(state.read_volatile() & !SET);
            }
        }
    }

    /// Writes the invalid copy, with the value for a state, and makes that copy valid. Returns
    /// false if handlers have been faster each time.
    ///
    /// # Safety
    /// The slot is the calling thread's.
    #[inline(always)]
    unsafe fn write_inactive_copy(
        slot: *mut Self,
        mut value: impl FnMut(u64) -> ([u64; WORDS], u64),
    ) -> bool {
        for _ in 0..TRIES_MAX {
            // SAFETY: the caller's slot; handlers on this thread observe, at each instruction,
            // everything before it.
            unsafe {
                let state = &raw mut (*slot).state;
                let now = state.read_volatile();
                let (words, is_set) = value(now);
                let copy = (&raw mut (*slot).copies).cast::<[u64; WORDS]>();
                let copy = copy.add(usize::from(now & COPY == 0)).cast::<u64>();
                for (index, word) in words.into_iter().enumerate() {
                    copy.add(index).write_volatile(word);
                }
                // ORDERING: SeqCst, for the compiler alone: a handler on this thread finds the
                // words before the state.
                compiler_fence(Ordering::SeqCst);
                let next =
                    ((now & !(SET | COPY)) | is_set | (now & COPY ^ COPY)).wrapping_add(STEP);
                if compare_and_swap(state, now, next) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns the copy that is valid in this state.
    fn valid_copy(slot: *mut Self, state: u64) -> [u64; WORDS] {
        // SAFETY: the caller's slot, of the calling thread.
        unsafe {
            let copy = (&raw mut (*slot).copies).cast::<[u64; WORDS]>();
            let copy = copy.add(usize::from(state & COPY != 0)).cast::<u64>();
            core::array::from_fn(|index| copy.add(index).read_volatile())
        }
    }

    /// Returns the slot's value, if it has one.
    ///
    /// # Safety
    /// The slot is the calling thread's.
    #[inline(always)]
    unsafe fn get(slot: *mut Self) -> Option<[u64; WORDS]> {
        for _ in 0..TRIES_MAX {
            // SAFETY: the caller upholds the contract.
            let state = unsafe { (&raw mut (*slot).state).read_volatile() };
            if state & SET == 0 {
                return None;
            }
            let words = Self::valid_copy(slot, state);
            // ORDERING: SeqCst, for the compiler alone: keeps the words before the second load of
            // the state.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: the caller's slot, of the calling thread.
            if unsafe { (&raw mut (*slot).state).read_volatile() } == state {
                return Some(words);
            }
        }
        None
    }
}

/// Replaces `expected` by `next`, in one instruction. Returns false if the word holds another
/// value. Needs no lock prefix, because other threads do not access the word.
///
/// # Safety
/// The word is the calling thread's.
#[inline(always)]
unsafe fn compare_and_swap(word: *mut u64, expected: u64, next: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let found: u64;
        // SAFETY: the caller's word.
        unsafe {
            core::arch::asm!(
                "cmpxchg qword ptr [{word}], {next}",
                word = in(reg) word,
                next = in(reg) next,
                inout("rax") expected => found,
                options(nostack),
            );
        }
        found == expected
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use core::sync::atomic::AtomicU64;
        // SAFETY: the caller's word, which is aligned.
        let word = unsafe { AtomicU64::from_ptr(word) };
        word.compare_exchange(expected, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests;
