//! The shared window: found or made, mapped, and its tables of sessions, events, processes and
//! memory.
//!
//! Used by the library inside traced processes and by recorders, so nothing here allocates, and
//! nothing waits except the recorder's memory allocator. Main invariant: whatever another process
//! of the user writes into the window, no function here reads or writes outside the mapping, and
//! none loops without a bound.
#![cfg_attr(not(test), no_std)]

mod allocator;
mod events;
#[cfg(test)]
#[path = "../tests/support/fixture.rs"]
mod fixture;
mod layout;
mod lease;
mod open;
mod processes;
mod rules;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

pub use allocator::{AllocateError, Allocator};
pub use events::DescriptionBytes;
pub use layout::{
    CPU_STRIDE, NOT_OF_SESSION, SessionLayout, WriterPath, ids_before, region_at, reset_region,
};
pub use lease::lease_is_over;
pub use open::{NAME_BYTES, OpenError, READABLE_BYTES, readable_when_extended, window_name};
pub use processes::{Owner, ProcessSlot};

#[cfg(test)]
extern crate self as trackway_window;

use core::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::session::{SESSION_BYTES, SESSIONS_MAX, Session};
use trackway_abi::window::{
    DATA_OFFSET, EVENTS_MAX, EVENTS_OFFSET, Event, GRANULE_SHIFT, Header, PROCESSES_MAX,
    PROCESSES_OFFSET, Process, SESSIONS_OFFSET,
};
use trackway_ring::{Damage, Memory, claim, copy_by_words, lockless};
use trackway_sys::Errno;
use trackway_sys::file::Fd;
use trackway_sys::memory::{Mapping, ZeroPages};

/// Returns the header's word for a file of which `bytes` are backed: greater for more.
pub const fn backed_word(bytes: u64) -> u64 {
    let granules = bytes >> GRANULE_SHIFT;
    granules << 32 | (!granules & 0xffff_ffff)
}

/// A mapped window. Copies refer to the same mapping, which is never unmapped.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    mapping: Mapping,
}

impl Window {
    /// A window over memory that holds one: at least `DATA_OFFSET` bytes of it exist.
    pub(crate) const fn new(mapping: Mapping) -> Self {
        Self { mapping }
    }

    /// Returns its address.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// The window whose base, readable part and address space are these.
    ///
    /// # Safety
    ///
    /// As [`Mapping::from_parts`], of a window that was opened in this process.
    #[inline(always)]
    pub const unsafe fn from_parts(base: *mut u8, mapped_bytes: u64, reserved_bytes: u64) -> Self {
        // SAFETY: by contract.
        Self::new(unsafe { Mapping::from_parts(base, mapped_bytes, reserved_bytes) })
    }

    /// Returns the size of the readable and writable part, in bytes. It is less than the whole in a
    /// traced program, and where the address space is limited (RLIMIT_AS).
    #[inline(always)]
    pub const fn mapped_bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// Returns the address space that it has, in bytes.
    #[inline(always)]
    pub const fn reserved_bytes(&self) -> u64 {
        self.mapping.reserved()
    }

    /// Makes its first `bytes` bytes readable and writable, if so much is reserved.
    pub fn extend(&self, bytes: u64) -> Result<(), Errno> {
        self.mapping.extend(bytes)
    }

    /// The first page.
    pub fn header(&self) -> &'static Header {
        self.at(0)
    }

    /// The session in slot `index` (below `SESSIONS_MAX`; higher ones wrap).
    #[inline(always)]
    pub fn session(&self, index: usize) -> &'static Session {
        self.at(SESSIONS_OFFSET + index % SESSIONS_MAX * SESSION_BYTES)
    }

    /// The process in slot `index` (wraps likewise).
    pub fn process(&self, index: usize) -> &'static Process {
        self.at(PROCESSES_OFFSET + index % PROCESSES_MAX * size_of::<Process>())
    }

    /// The event in slot `index` (wraps likewise).
    #[inline(always)]
    pub fn event(&self, index: usize) -> &'static Event {
        self.at(EVENTS_OFFSET + index % EVENTS_MAX * size_of::<Event>())
    }

    /// The number of the event whose enable word is at `word`, in a window mapped at `base`: not
    /// below `EVENTS_MAX` if the word is none of that window's.
    #[inline(always)]
    pub fn event_at(base: *mut u8, word: *const AtomicU32) -> usize {
        const _: () = assert!(core::mem::offset_of!(Event, enabled) == 0);
        let first = base as usize + EVENTS_OFFSET;
        (word as usize).wrapping_sub(first) / size_of::<Event>()
    }

    /// Puts zero pages in place of the fixed part (`true`) or of all the rest. Users of the window
    /// go on in memory of this process's own; `needed` is how far in bytes that may be.
    pub fn blank(&self, fixed_part: bool, needed: u64) -> Result<(), Errno> {
        let fixed = DATA_OFFSET as u64;
        if fixed_part {
            self.mapping.blank(0, fixed, fixed)
        } else {
            self.mapping.blank(fixed, self.reserved_bytes(), needed)
        }
    }

    /// Zero pages for all of the window, to be had while the process may have them; `needed` as for
    /// [`Self::blank`].
    pub fn zeros(&self, needed: u64) -> Option<ZeroPages> {
        ZeroPages::new(self.reserved_bytes(), self.mapped_bytes(), needed)
    }

    /// Blanks the window like [`Self::blank`], with zero pages that were prepared: first the fixed
    /// part, then the rest.
    pub fn blank_by(&self, zeros: &mut ZeroPages, fixed_part: bool) -> Result<(), Errno> {
        let end = if fixed_part { DATA_OFFSET as u64 } else { self.reserved_bytes() };
        self.mapping.blank_by(zeros, end)
    }

    /// Puts the window's file in the place of zero pages.
    pub fn refill(&self, file: &Fd) -> Result<(), Errno> {
        self.mapping.refill(file)
    }

    /// Unmaps a window that no other code has looked into yet.
    ///
    /// # Safety
    /// No reference into it was given out, here or in copies of this.
    pub unsafe fn discard(self) {
        // SAFETY: the caller's promise is the same.
        unsafe { self.mapping.unmap() };
    }

    /// Bytes from the start that may be touched: backed by the file, as far as they are mapped.
    pub fn usable_bytes(&self) -> u64 {
        self.backed_bytes().unwrap_or(DATA_OFFSET as u64).min(self.mapped_bytes())
    }

    /// Bytes from the start that are backed by the file; `None` where the header says what no
    /// recorder writes.
    pub fn backed_bytes(&self) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in the allocator: the file was grown before.
        let word = self.header().backed.load(Ordering::Acquire);
        let bytes = word >> 32 << GRANULE_SHIFT;
        (word == backed_word(bytes) && bytes >= DATA_OFFSET as u64).then_some(bytes)
    }

    /// A table of the fixed part.
    ///
    /// Private: callers above compute offsets that lie inside the fixed part by construction.
    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &'static T {
        debug_assert!(offset + size_of::<T>() <= DATA_OFFSET);
        // SAFETY: the fixed part is mapped for good (open checked its length), offsets are
        // multiples of 64 from a page boundary, and every T here consists of atomics, for which
        // any bytes are valid and concurrent writes are defined.
        unsafe { &*self.base().add(offset).cast::<T>() }
    }
}

/// Access to sub-buffers through the mapping.
#[derive(Debug, Clone, Copy)]
pub struct MappedMemory(pub Window);

impl Memory for MappedMemory {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        let end = at.checked_add(into.len() as u64).ok_or(Damage::Table(at))?;
        if end > self.0.usable_bytes() {
            return Err(Damage::Table(at));
        }
        // SAFETY: the range is mapped and backed. Other processes may write it meanwhile: it is
        // copied as bytes, through a pointer, and the caller checks it afterwards.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.0.base().add(at as usize),
                into.as_mut_ptr(),
                into.len(),
            );
        }
        Ok(())
    }
}

/// Memory of lockless buffers, up to the end that was usable when it was created: that is looked up
/// before a slot is reserved, and not again. A process that leaves its window (see the agent's
/// `setuid`) finds zeros there, and a slot that is reserved must be written.
#[derive(Debug, Clone, Copy)]
pub struct SlotMemory {
    base: *mut u8,
    end: u64,
}

impl SlotMemory {
    /// Creates the memory of a window that is mapped at `base`.
    ///
    /// # Safety
    ///
    /// Its first `usable_bytes` are mapped and backed, and stay mapped.
    pub const unsafe fn new(base: *mut u8, usable_bytes: u64) -> Self {
        Self { base, end: usable_bytes }
    }

    /// Returns its end, in bytes from the window's start.
    pub const fn end(&self) -> u64 {
        self.end
    }
}

impl lockless::Store for SlotMemory {
    unsafe fn store(&self, at: u64, source: &[u8]) {
        // What is in shared memory says where; so it is bounded here.
        let end = at.checked_add(source.len() as u64);
        if end.is_none_or(|end| end > self.end) {
            return;
        }
        // SAFETY: the range is mapped and backed, and the caller's slot.
        unsafe { copy_by_words(source.as_ptr(), self.base.add(at as usize), source.len()) };
    }
}

impl claim::Copy for MappedMemory {
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: a plan's target lies in a sub-buffer inside the usable bytes (the caller
        // checked), with room for whole words behind; the source has as many readable bytes.
        unsafe { copy_by_words(source, self.0.base().add(at as usize), bytes.next_multiple_of(8)) };
    }
}
