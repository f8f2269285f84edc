//! The shared window: opening or making it, mapping it, and its tables of sessions, events,
//! processes and memory.
//!
//! The library inside traced processes and recorders use this crate. So nothing here allocates, and
//! nothing waits except the recorder's memory allocator. Main invariant: whatever another process
//! of the user writes into the window, no function here reads or writes outside the mapping, and
//! every loop is bounded.
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

/// Returns the header word for a file with `bytes` backed bytes; more bytes give a greater word.
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
    /// Makes a window from the mapping of a file with at least `DATA_OFFSET` bytes.
    pub(crate) const fn new(mapping: Mapping) -> Self {
        Self { mapping }
    }

    /// Returns the address of the window.
    #[inline(always)]
    pub const fn base(&self) -> *mut u8 {
        self.mapping.base()
    }

    /// Makes a window from its base, readable size and reserved address space.
    ///
    /// # Safety
    ///
    /// The requirements of [`Mapping::from_parts`], for a window that was opened in this process.
    #[inline(always)]
    pub const unsafe fn from_parts(base: *mut u8, mapped_bytes: u64, reserved_bytes: u64) -> Self {
        // SAFETY: by contract.
        Self::new(unsafe { Mapping::from_parts(base, mapped_bytes, reserved_bytes) })
    }

    /// Returns the size of the readable and writable part, in bytes. In a traced program, or with
    /// limited address space (RLIMIT_AS), it is smaller than the window.
    #[inline(always)]
    pub const fn mapped_bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// Returns the size of the window's reserved address space, in bytes.
    #[inline(always)]
    pub const fn reserved_bytes(&self) -> u64 {
        self.mapping.reserved()
    }

    /// Makes the first `bytes` bytes of the window readable and writable, if that much address
    /// space is reserved.
    pub fn extend(&self, bytes: u64) -> Result<(), Errno> {
        self.mapping.extend(bytes)
    }

    /// Returns the header, which is the first page.
    pub fn header(&self) -> &'static Header {
        self.at(0)
    }

    /// Returns the session in slot `index`; an index of `SESSIONS_MAX` or more wraps.
    #[inline(always)]
    pub fn session(&self, index: usize) -> &'static Session {
        self.at(SESSIONS_OFFSET + index % SESSIONS_MAX * SESSION_BYTES)
    }

    /// Returns the process in slot `index`; an index of `PROCESSES_MAX` or more wraps.
    pub fn process(&self, index: usize) -> &'static Process {
        self.at(PROCESSES_OFFSET + index % PROCESSES_MAX * size_of::<Process>())
    }

    /// Returns the event in slot `index`; an index of `EVENTS_MAX` or more wraps.
    #[inline(always)]
    pub fn event(&self, index: usize) -> &'static Event {
        self.at(EVENTS_OFFSET + index % EVENTS_MAX * size_of::<Event>())
    }

    /// Returns the index of the event whose enable word is at `word`, in a window mapped at `base`.
    /// The result is `EVENTS_MAX` or more if the word is not in that window.
    #[inline(always)]
    pub fn event_at(base: *mut u8, word: *const AtomicU32) -> usize {
        const _: () = assert!(core::mem::offset_of!(Event, enabled) == 0);
        let first = base as usize + EVENTS_OFFSET;
        (word as usize).wrapping_sub(first) / size_of::<Event>()
    }

    /// Replaces the fixed part (`true`) or everything else by zero pages. Users of the window
    /// continue in private memory of this process; `needed` limits that memory, in bytes.
    pub fn blank(&self, fixed_part: bool, needed: u64) -> Result<(), Errno> {
        let fixed = DATA_OFFSET as u64;
        if fixed_part {
            self.mapping.blank(0, fixed, fixed)
        } else {
            self.mapping.blank(fixed, self.reserved_bytes(), needed)
        }
    }

    /// Prepares zero pages for the whole window while the process may still allocate them; `needed`
    /// as for [`Self::blank`].
    pub fn zeros(&self, needed: u64) -> Option<ZeroPages> {
        ZeroPages::new(self.reserved_bytes(), self.mapped_bytes(), needed)
    }

    /// Blanks the window like [`Self::blank`], with prepared zero pages: first the fixed part, then
    /// everything else.
    pub fn blank_by(&self, zeros: &mut ZeroPages, fixed_part: bool) -> Result<(), Errno> {
        let end = if fixed_part { DATA_OFFSET as u64 } else { self.reserved_bytes() };
        self.mapping.blank_by(zeros, end)
    }

    /// Replaces zero pages by the window's file.
    pub fn refill(&self, file: &Fd) -> Result<(), Errno> {
        self.mapping.refill(file)
    }

    /// Unmaps a window that no other code has used yet.
    ///
    /// # Safety
    /// No reference into the window was given out, by this value or by its copies.
    pub unsafe fn discard(self) {
        // SAFETY: the caller makes the same promise.
        unsafe { self.mapping.unmap() };
    }

    /// Returns the number of bytes from the start that may be touched: backed by the file, and
    /// mapped.
    pub fn usable_bytes(&self) -> u64 {
        self.backed_bytes().unwrap_or(DATA_OFFSET as u64).min(self.mapped_bytes())
    }

    /// Returns the number of bytes from the start that the file backs; `None` if the header has a
    /// value that no recorder writes.
    pub fn backed_bytes(&self) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in the allocator, which grows the file first.
        let word = self.header().backed.load(Ordering::Acquire);
        let bytes = word >> 32 << GRANULE_SHIFT;
        (word == backed_word(bytes) && bytes >= DATA_OFFSET as u64).then_some(bytes)
    }

    /// Returns a reference to a table of the fixed part.
    ///
    /// Private: callers compute offsets that are inside the fixed part by construction.
    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &'static T {
        debug_assert!(offset + size_of::<T>() <= DATA_OFFSET);
        // SAFETY: the fixed part is permanently mapped (open checked its length), offsets are
        // multiples of 64 from a page boundary, and every T here consists of atomics, for which any
        // bytes are valid and concurrent writes are defined.
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
        // copied as bytes, through a pointer, and the caller checks the copy afterwards.
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

/// Memory of lockless buffers up to a fixed end, the usable end at creation. Writers create it
/// before they reserve a slot, because a reserved slot must be written. If the process leaves its
/// window meanwhile (see the agent's `setuid`), the memory has zero pages.
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
    /// The first `usable_bytes` bytes of the window are mapped and backed, and stay mapped.
    pub const unsafe fn new(base: *mut u8, usable_bytes: u64) -> Self {
        Self { base, end: usable_bytes }
    }

    /// Returns the end of the memory, in bytes from the window's start.
    pub const fn end(&self) -> u64 {
        self.end
    }
}

impl lockless::Store for SlotMemory {
    unsafe fn store(&self, at: u64, source: &[u8]) {
        // The offset comes from shared memory, so it is bounded here.
        let end = at.checked_add(source.len() as u64);
        if end.is_none_or(|end| end > self.end) {
            return;
        }
        // SAFETY: the range is mapped and backed, and belongs to the caller's slot.
        unsafe { copy_by_words(source.as_ptr(), self.base.add(at as usize), source.len()) };
    }
}

impl claim::Copy for MappedMemory {
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: a plan's target is in a sub-buffer inside the usable bytes (the caller checked),
        // with space for whole words after it; the source has as many readable bytes.
        unsafe { copy_by_words(source, self.0.base().add(at as usize), bytes.next_multiple_of(8)) };
    }
}
