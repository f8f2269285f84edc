//! The frame: what a filter sees of an event, and, in front of that, what only helpers see.
//!
//! ```text
//! environment | bytes | slots that are filled || slot 0 | slot 1 | …
//!                                             ^ register 1
//! ```
//!
//! Bytecode has a pointer to slot 0 and cannot go back from there (the verifier); helpers go back
//! to find the bytes that words speak of, and the filter's state.
#![expect(unsafe_code, reason = "machine code has nothing but a pointer to the slots")]

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::AtomicU64;

use crate::SLOTS_MAX;

/// Eight bytes of a filter's state. Zero at first.
pub type Cell = AtomicU64;

/// Machine code of a program: gets the slots of a [`Frame`], gives the program's answer.
pub type Entry = unsafe extern "C" fn(slots: *const u64) -> u64;

/// Machine code that fills slots from a payload: [`crate::x86::emit_fill`].
pub type Fill = unsafe extern "C" fn(payload: *const u8, slots: *mut u64);

/// Machine code of a program that needs no frame, on a payload: [`crate::x86::emit_direct`]. It
/// answers 0 or 1, changes no memory, and keeps the stack as it finds it up to its end.
pub type Direct = unsafe extern "C" fn(payload: *const u8) -> u64;

/// Values that all frames of a filter have in common.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// The alternative's constants.
    pub constants: &'a [u8],
    /// The filter's state.
    pub cells: &'a [Cell],
    entries: *const Option<Entry>,
    entries_count: usize,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: extern "C" fn() -> u64,
    /// 64 random bits.
    pub random: extern "C" fn() -> u64,
    /// Nothing here may outlive these.
    lent: core::marker::PhantomData<&'a [Option<Entry>]>,
}

// SAFETY: `entries` is a shared slice of function pointers, which any thread may read.
unsafe impl Send for Environment<'_> {}
// SAFETY: as above.
unsafe impl Sync for Environment<'_> {}

impl<'a> Environment<'a> {
    /// Makes the environment of a filter whose programs make no tail calls.
    pub const fn new(
        constants: &'a [u8],
        cells: &'a [Cell],
        time_ns: extern "C" fn() -> u64,
        random: extern "C" fn() -> u64,
    ) -> Self {
        let lent = core::marker::PhantomData;
        let entries = core::ptr::null();
        Self { constants, cells, entries, entries_count: 0, time_ns, random, lent }
    }

    /// The same, with the machine code of the alternative's programs, in order, for tail calls
    /// between them; `None` where a program has none.
    ///
    /// # Safety
    /// Each must be what [`crate::x86::emit_program`] made of that program, in memory that can be
    /// executed, and stay there as long as a program runs in this environment. All must have been
    /// verified for no more slots than the frames have.
    pub const unsafe fn with_entries(self, entries: &'a [Option<Entry>]) -> Self {
        Self { entries: entries.as_ptr(), entries_count: entries.len(), ..self }
    }
}

/// The slots of one event, with what words in them speak of. A new one is empty; slots are filled
/// in order, so that nothing is spent on those that a filter does not need.
#[repr(C)]
pub struct Frame<'a> {
    pub(crate) environment: &'a Environment<'a>,
    /// The bytes in which words are offsets, and their size: a slice in pieces, since machine code
    /// reads both.
    bytes: *const u8,
    size_bytes: usize,
    filled: usize,
    slots: [MaybeUninit<u64>; SLOTS_MAX],
    /// Nothing here may outlive the bytes.
    lent: core::marker::PhantomData<&'a [u8]>,
}

// SAFETY: `bytes` is a shared slice of bytes, which any thread may read.
unsafe impl Send for Frame<'_> {}
// SAFETY: as above.
unsafe impl Sync for Frame<'_> {}

/// Offsets for machine code, in bytes from the slots' beginning and from there on.
pub(crate) mod offset {
    use super::{Environment, Frame, offset_of};

    /// From the slots to the pointer to the environment.
    pub(crate) const ENVIRONMENT: i32 =
        offset_of!(Frame<'_>, environment) as i32 - offset_of!(Frame<'_>, slots) as i32;
    /// From the slots to the pointer to the bytes.
    pub(crate) const BYTES: i32 =
        offset_of!(Frame<'_>, bytes) as i32 - offset_of!(Frame<'_>, slots) as i32;
    /// From the slots to the number of bytes.
    pub(crate) const SIZE_BYTES: i32 =
        offset_of!(Frame<'_>, size_bytes) as i32 - offset_of!(Frame<'_>, slots) as i32;
    /// From the environment to the pointer to the programs' entries.
    pub(crate) const ENTRIES: i32 = offset_of!(Environment<'_>, entries) as i32;
    /// From the environment to their number.
    pub(crate) const ENTRIES_COUNT: i32 = offset_of!(Environment<'_>, entries_count) as i32;
}

impl<'a> Frame<'a> {
    /// An empty frame; words count from the beginning of `bytes`.
    pub const fn new(environment: &'a Environment<'a>, bytes: &'a [u8]) -> Self {
        let slots = [const { MaybeUninit::uninit() }; SLOTS_MAX];
        let lent = core::marker::PhantomData;
        let (bytes, size_bytes) = (bytes.as_ptr(), bytes.len());
        Self { environment, bytes, size_bytes, filled: 0, slots, lent }
    }

    /// Fills the next slot; whether there was one.
    pub fn push(&mut self, value: u64) -> bool {
        match self.slots.get_mut(self.filled) {
            Some(slot) => {
                slot.write(value);
                self.filled += 1;
                true
            }
            None => false,
        }
    }

    /// Sets a slot that is filled; whether there is one.
    pub fn set(&mut self, slot: usize, value: u64) -> bool {
        let place = self.slots[..self.filled.min(SLOTS_MAX)].get_mut(slot);
        place.map(|place| place.write(value)).is_some()
    }

    /// Fills an empty frame's first `count` slots: some by machine code, all others are to be
    /// [set](Self::set) before the frame is looked at.
    ///
    /// # Safety
    /// `fill` must be what [`crate::x86::emit_fill`] made of a framer with so many slots, in memory
    /// that can be executed, and `payload` have as many bytes as that framer's code reads. The
    /// others must be set.
    #[inline(always)]
    pub unsafe fn fill_by(&mut self, fill: Fill, payload: *const u8, count: usize) {
        self.filled = count.min(SLOTS_MAX);
        // SAFETY: by contract the code writes slots below `count`, which is a framer's.
        unsafe { fill(payload, self.slots.as_mut_ptr().cast()) };
    }

    /// From now on words count from the beginning of these bytes.
    pub const fn set_bytes(&mut self, bytes: &'a [u8]) {
        (self.bytes, self.size_bytes) = (bytes.as_ptr(), bytes.len());
    }

    /// Returns the bytes in which words are offsets.
    pub const fn bytes(&self) -> &'a [u8] {
        // SAFETY: the pieces of a slice that is lent for `'a`, from `new`.
        unsafe { core::slice::from_raw_parts(self.bytes, self.size_bytes) }
    }

    /// The slots that are filled.
    pub fn slots(&self) -> &[u64] {
        let filled = &self.slots[..self.filled.min(SLOTS_MAX)];
        // SAFETY: `push` has written each of the first `filled`, and `MaybeUninit<u64>` has the
        // layout of `u64`.
        unsafe { core::slice::from_raw_parts(filled.as_ptr().cast(), filled.len()) }
    }

    /// Runs machine code on this frame; its answer. That of a program that was verified for more
    /// slots than are filled is 0.
    ///
    /// # Safety
    /// `entry` must be what [`crate::x86::emit_program`] made of a program verified for `slots`
    /// slots, in memory that can be executed.
    pub unsafe fn run(&self, entry: Entry, slots: usize) -> u64 {
        if slots > self.filled {
            return 0;
        }
        // SAFETY: by contract the code is that of a verified program, which reads no slot but
        // those that are filled; helpers get back the pointer that is given here.
        unsafe { entry(self.as_slots()) }
    }

    /// The same, so that a signal handler in the middle of it can unwind: see [`crate::call`].
    ///
    /// # Safety
    /// As [`Self::run`].
    #[inline(always)]
    pub unsafe fn run_unwindable(&self, entry: Entry, slots: usize) -> u64 {
        if slots > self.filled {
            return 0;
        }
        // SAFETY: as there.
        unsafe { crate::call::call_program(self.as_slots(), 0, entry as *const ()) }
    }

    /// Returns register 1 of machine code. The pointer comes from the whole frame, so that helpers
    /// may go back from there.
    pub fn as_slots(&self) -> *const u64 {
        let frame: *const Self = self;
        frame.wrapping_byte_add(offset_of!(Frame<'_>, slots)).cast()
    }

    /// The frame that these slots belong to.
    ///
    /// # Safety
    /// The pointer must come from [`Frame::as_slots`], and the frame must be there, unchanged, for
    /// `'f`.
    pub(crate) unsafe fn of_slots<'f>(slots: *const u64) -> &'f Frame<'f> {
        let frame: *const Frame<'f> = slots.wrapping_byte_sub(offset_of!(Frame<'_>, slots)).cast();
        // SAFETY: the frame that the pointer was made of, by contract.
        unsafe { &*frame }
    }
}

impl core::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut frame = f.debug_struct("Frame");
        frame.field("slots", &self.slots()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
