//! The frame: the slots that a filter reads, preceded by data that only helpers read.
//!
//! ```text
//! environment | bytes | count of filled slots || slot 0 | slot 1 | …
//!                                             ^ register 1
//! ```
//!
//! The verifier keeps bytecode from reading before slot 0. Helpers read backward from there to find
//! the filter's state and the bytes that words refer to.
#![expect(unsafe_code, reason = "machine code has nothing but a pointer to the slots")]

use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::AtomicU64;

use crate::SLOTS_MAX;

/// Eight bytes of a filter's state, initially zero.
pub type Cell = AtomicU64;

/// Machine code of a program: takes the slots of a [`Frame`], returns the program's answer.
pub type Entry = unsafe extern "C" fn(slots: *const u64) -> u64;

/// Machine code that fills slots from a payload: [`crate::x86::emit_fill`].
pub type Fill = unsafe extern "C" fn(payload: *const u8, slots: *mut u64);

/// Machine code that runs on a payload without a frame: [`crate::x86::emit_direct`]. The code
/// returns 0 or 1, changes no memory, and does not use the stack.
pub type Direct = unsafe extern "C" fn(payload: *const u8) -> u64;

/// Values that all frames of a filter share.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Environment<'a> {
    /// Constants of the alternative.
    pub constants: &'a [u8],
    /// State of the filter.
    pub cells: &'a [Cell],
    entries: *const Option<Entry>,
    entries_count: usize,
    /// Returns the CLOCK_MONOTONIC time in nanoseconds.
    pub time_ns: extern "C" fn() -> u64,
    /// Returns 64 random bits.
    pub random: extern "C" fn() -> u64,
    /// Limits the lifetime of `entries`.
    lent: core::marker::PhantomData<&'a [Option<Entry>]>,
}

// SAFETY: `entries` is a shared slice of function pointers, which any thread may read.
unsafe impl Send for Environment<'_> {}
// SAFETY: as for `Send`: `entries` is only read.
unsafe impl Sync for Environment<'_> {}

impl<'a> Environment<'a> {
    /// Creates the environment of a filter whose programs make no tail calls.
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

    /// Adds the machine code of the alternative's programs, in order, for tail calls between them;
    /// `None` where a program has no machine code.
    ///
    /// # Safety
    /// Each entry must be the result of [`crate::x86::emit_program`] for that program, in
    /// executable memory that stays valid while a program runs in this environment. All programs
    /// must have been verified for at most as many slots as the frames have.
    pub const unsafe fn with_entries(self, entries: &'a [Option<Entry>]) -> Self {
        Self { entries: entries.as_ptr(), entries_count: entries.len(), ..self }
    }
}

/// The slots of one event, and the bytes that their words refer to. A new frame is empty; slots are
/// filled in order, so that unneeded slots cost nothing.
#[repr(C)]
pub struct Frame<'a> {
    pub(crate) environment: &'a Environment<'a>,
    /// Bytes that words refer to, and their size. A split slice, since machine code reads both
    /// parts.
    bytes: *const u8,
    size_bytes: usize,
    filled: usize,
    slots: [MaybeUninit<u64>; SLOTS_MAX],
    /// Limits the lifetime of the bytes.
    lent: core::marker::PhantomData<&'a [u8]>,
}

// SAFETY: `bytes` is a shared slice of bytes, which any thread may read.
unsafe impl Send for Frame<'_> {}
// SAFETY: as for `Send`: `bytes` is only read.
unsafe impl Sync for Frame<'_> {}

/// Offsets for machine code, in bytes from the start of the slots or of the environment.
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
    /// From the environment to the pointer to the program entries.
    pub(crate) const ENTRIES: i32 = offset_of!(Environment<'_>, entries) as i32;
    /// From the environment to the number of program entries.
    pub(crate) const ENTRIES_COUNT: i32 = offset_of!(Environment<'_>, entries_count) as i32;
}

impl<'a> Frame<'a> {
    /// Creates an empty frame; words contain offsets into `bytes`.
    pub const fn new(environment: &'a Environment<'a>, bytes: &'a [u8]) -> Self {
        let slots = [const { MaybeUninit::uninit() }; SLOTS_MAX];
        let lent = core::marker::PhantomData;
        let (bytes, size_bytes) = (bytes.as_ptr(), bytes.len());
        Self { environment, bytes, size_bytes, filled: 0, slots, lent }
    }

    /// Fills the next slot; returns false if all slots are filled.
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

    /// Sets a filled slot; returns false if the slot is not filled.
    pub fn set(&mut self, slot: usize, value: u64) -> bool {
        let place = self.slots[..self.filled.min(SLOTS_MAX)].get_mut(slot);
        place.map(|place| place.write(value)).is_some()
    }

    /// Fills the first `count` slots of an empty frame by machine code. All slots that the code
    /// leaves must be [set](Self::set) before the frame is read.
    ///
    /// # Safety
    /// `fill` must be the result of [`crate::x86::emit_fill`] for a framer with `count` slots, in
    /// executable memory. `payload` must have at least the bytes that the code reads. The slots
    /// that the code leaves must be set.
    #[inline(always)]
    pub unsafe fn fill_by(&mut self, fill: Fill, payload: *const u8, count: usize) {
        self.filled = count.min(SLOTS_MAX);
        // SAFETY: by contract the code writes only slots below `count`, the framer's slot count.
        unsafe { fill(payload, self.slots.as_mut_ptr().cast()) };
    }

    /// Replaces the bytes that words refer to.
    pub const fn set_bytes(&mut self, bytes: &'a [u8]) {
        (self.bytes, self.size_bytes) = (bytes.as_ptr(), bytes.len());
    }

    /// Returns the bytes that words refer to.
    pub const fn bytes(&self) -> &'a [u8] {
        // SAFETY: pointer and size come from a slice with lifetime `'a`, from `new` or `set_bytes`.
        unsafe { core::slice::from_raw_parts(self.bytes, self.size_bytes) }
    }

    /// Returns the filled slots.
    pub fn slots(&self) -> &[u64] {
        let filled = &self.slots[..self.filled.min(SLOTS_MAX)];
        // SAFETY: `push` has written each of the first `filled`, and `MaybeUninit<u64>` has the
        // layout of `u64`.
        unsafe { core::slice::from_raw_parts(filled.as_ptr().cast(), filled.len()) }
    }

    /// Runs machine code on this frame, and returns its answer. Returns 0 if the program was
    /// verified for more slots than are filled.
    ///
    /// # Safety
    /// `entry` must be the result of [`crate::x86::emit_program`] for a program verified for
    /// `slots` slots, in executable memory.
    pub unsafe fn run(&self, entry: Entry, slots: usize) -> u64 {
        if slots > self.filled {
            return 0;
        }
        // SAFETY: by contract the code belongs to a verified program, which reads only filled
        // slots. Helpers get the pointer that is passed here.
        unsafe { entry(self.as_slots()) }
    }

    /// Runs machine code like [`Self::run`]; signal handlers can unwind through it: see
    /// [`crate::call`].
    ///
    /// # Safety
    /// Same contract as [`Self::run`].
    #[inline(always)]
    pub unsafe fn run_unwindable(&self, entry: Entry, slots: usize) -> u64 {
        if slots > self.filled {
            return 0;
        }
        // SAFETY: by contract, as in `run`.
        unsafe { crate::call::call_program(self.as_slots(), 0, entry as *const ()) }
    }

    /// Returns the initial value of register 1. The pointer's provenance is the whole frame, so
    /// that helpers may read before the slots.
    pub fn as_slots(&self) -> *const u64 {
        let frame: *const Self = self;
        frame.wrapping_byte_add(offset_of!(Frame<'_>, slots)).cast()
    }

    /// Returns the frame that contains these slots.
    ///
    /// # Safety
    /// The pointer must come from [`Frame::as_slots`], and the frame must live, unchanged, for
    /// `'f`.
    pub(crate) unsafe fn of_slots<'f>(slots: *const u64) -> &'f Frame<'f> {
        let frame: *const Frame<'f> = slots.wrapping_byte_sub(offset_of!(Frame<'_>, slots)).cast();
        // SAFETY: by contract the pointer comes from `as_slots` of a living frame.
        unsafe { &*frame }
    }
}

impl core::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut frame = f.debug_struct("Frame");
        frame.field("slots", &self.slots()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
