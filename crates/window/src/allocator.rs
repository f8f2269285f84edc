//! The window's data memory. Recorders take granules under a lock, and back them with memory before
//! any process uses them.
//!
//! Only recorders use this module. The lock is flock(2) on the window's file; the kernel releases
//! it when its holder dies. Every wait for the lock is bounded, because any process of the user may
//! hold it. A map names the session that holds each granule, so that memory of a dead recorder's
//! session can be given back.
//!
//! Control lines stay permanently, so they are at low offsets, below the sub-buffers: when no
//! session is left, the file ends with control lines.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::session::state::FREE;
use trackway_abi::window::{
    ARENA_BYTES, ARENA_OFFSET, DATA_OFFSET, GRANULE_BYTES, GRANULE_MAP_OFFSET, GRANULE_SHIFT,
    GRANULES_MAX, granule,
};
use trackway_sys::Errno;
use trackway_sys::clock::{monotonic_ns, sleep_ns};
use trackway_sys::file::Fd;

use crate::open::is_compact;
use crate::{Window, backed_word};

const FIRST: usize = DATA_OFFSET >> GRANULE_SHIFT;
/// Preferred first granule for sub-buffers. Below it is one granule for each session's control
/// lines (enough for 55 CPUs), which gets memory when it is used.
const FIRST_OF_DATA: usize = FIRST + SESSIONS_MAX;
/// Unit, in bytes, in which the system takes back a file's memory; at most its page size.
const PAGE_BYTES: usize = 4096;
/// Longest wait for the lock, in ns.
const LOCK_PATIENCE_NS: u64 = 2_000_000_000;
/// Time between two attempts to take the lock, in ns.
const LOCK_PERIOD_NS: u64 = 2_000_000;

/// Reason why memory could not be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocateError {
    /// No run of free granules is long enough in this process's mapping.
    NoSpace,
    /// The system refused: for example, the file system is full, or a limit is reached.
    System(Errno),
    /// Another process holds the window's lock for too long.
    Locked,
}

impl core::fmt::Display for AllocateError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoSpace => formatter.write_str("the window has no free address space"),
            Self::System(errno) => write!(formatter, "{errno}"),
            Self::Locked => formatter.write_str("another process keeps it locked"),
        }
    }
}

impl core::error::Error for AllocateError {}

/// Allocator of a window's memory.
#[derive(Debug)]
pub struct Allocator {
    window: Window,
    file: Fd,
    /// Remaining time for all waits for the lock together, in ns.
    patience_ns: AtomicU64,
}

/// Guard that holds the allocator's lock.
struct Locked<'allocator>(&'allocator Fd);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl Allocator {
    /// Makes an allocator for `window`, whose open file is `file`.
    pub const fn new(window: Window, file: Fd) -> Self {
        Self { window, file, patience_ns: AtomicU64::new(u64::MAX) }
    }

    /// Returns the window.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the window's file.
    pub const fn file(&self) -> &Fd {
        &self.file
    }

    fn try_lock(&self) -> Result<Locked<'_>, AllocateError> {
        match self.file.try_lock() {
            Ok(true) => Ok(Locked(&self.file)),
            Ok(false) => Err(AllocateError::Locked),
            Err(errno) => Err(AllocateError::System(errno)),
        }
    }

    fn lock(&self) -> Result<Locked<'_>, AllocateError> {
        let left = self.patience_ns.load(Ordering::Relaxed);
        let begin = monotonic_ns();
        let mut waited = 0;
        let locked = loop {
            match self.try_lock() {
                Err(AllocateError::Locked) if waited < left.min(LOCK_PATIENCE_NS) => {
                    sleep_ns(LOCK_PERIOD_NS);
                    waited = monotonic_ns() - begin;
                }
                other => break other,
            }
        };
        if left != u64::MAX {
            self.patience_ns.store(left.saturating_sub(waited), Ordering::Relaxed);
        }
        locked
    }

    /// Limits the total time of all further waits for the lock to `patience_ns` ns. Needed for
    /// another user's window, whose processes could otherwise delay the recorder.
    pub fn limit_patience(&self, patience_ns: u64) {
        self.patience_ns.store(patience_ns, Ordering::Relaxed);
    }

    /// Runs `body` while no other recorder changes sessions or memory.
    pub fn exclusively<T>(&self, body: impl FnOnce() -> T) -> Result<T, AllocateError> {
        let _locked = self.lock()?;
        Ok(body())
    }

    fn entry(&self, granule: usize) -> &'static AtomicU8 {
        // SAFETY: the map belongs to the fixed part of the window, and the index is bounded.
        unsafe { &*self.window.base().add(GRANULE_MAP_OFFSET + granule % GRANULES_MAX).cast() }
    }

    /// Returns the owner of the granule at `offset` (in bytes of the window): a value of
    /// [`granule`].
    pub fn owner_at(&self, offset: u64) -> u8 {
        self.entry((offset >> GRANULE_SHIFT) as usize).load(Ordering::Relaxed)
    }

    /// Takes one run of `bytes` bytes, rounded up to granules and marked with `owner` (a value of
    /// [`granule`]). Returns its offset in bytes. The run is backed with memory.
    pub fn take(&self, bytes: u64, owner: u8) -> Result<u64, AllocateError> {
        self.take_locked(&self.lock()?, bytes, owner)
    }

    /// Takes memory like [`Self::take`], but does not wait for the lock.
    pub fn try_take(&self, bytes: u64, owner: u8) -> Result<u64, AllocateError> {
        self.take_locked(&self.try_lock()?, bytes, owner)
    }

    fn take_locked(&self, _: &Locked<'_>, bytes: u64, owner: u8) -> Result<u64, AllocateError> {
        let count = bytes.div_ceil(GRANULE_BYTES) as usize;
        let end = ((self.window.mapped_bytes() >> GRANULE_SHIFT) as usize).min(GRANULES_MAX);
        if owner >= granule::DATA
            && let Some(first) = self.find_free(count, FIRST_OF_DATA..end)
        {
            match self.back(first, count, owner) {
                // A limit on the file size (RLIMIT_FSIZE) may still allow lower offsets.
                Err(AllocateError::System(Errno(libc::EFBIG))) => {}
                other => return other,
            }
        }
        let first = self.find_free(count, FIRST..end).ok_or(AllocateError::NoSpace)?;
        self.back(first, count, owner)
    }

    fn back(&self, first: usize, count: usize, owner: u8) -> Result<u64, AllocateError> {
        let offset = (first as u64) << GRANULE_SHIFT;
        let length = (count as u64) << GRANULE_SHIFT;
        self.file.allocate(offset, length).map_err(AllocateError::System)?;
        for granule in first..first + count {
            self.entry(granule).store(owner, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `Window::usable_bytes`: the file already has
        // this length.
        let end = backed_word(offset + length);
        self.window.header().backed.fetch_max(end, Ordering::Release);
        Ok(offset)
    }

    fn find_free(&self, count: usize, among: core::ops::Range<usize>) -> Option<usize> {
        let mut run = 0;
        for index in among {
            let free = self.entry(index).load(Ordering::Relaxed) == granule::FREE;
            run = if free { run + 1 } else { 0 };
            if run == count {
                return Some(index + 1 - count);
            }
        }
        None
    }

    /// Gives back every granule marked with `owner`: its memory reads as zero afterwards. The
    /// caller has waited until no earlier writer can access it. Returns the number of bytes.
    ///
    /// Also returns the memory of free granules in between, since mlockall(2) in a traced process
    /// may have filled them.
    pub fn give_back(&self, owner: u8) -> Result<u64, AllocateError> {
        let _locked = self.lock()?;
        let end = self.end();
        let mut bytes = 0;
        let mut run = FIRST..FIRST;
        for index in FIRST..end {
            let held = self.entry(index).load(Ordering::Relaxed);
            if held == owner || held == granule::FREE {
                run.end = index + 1;
                bytes += if held == owner { GRANULE_BYTES } else { 0 };
            } else {
                self.free(run)?;
                run = index + 1..index + 1;
            }
        }
        self.free(run)?;
        self.shorten(end)?;
        Ok(bytes)
    }

    /// Gives back the granules at these offsets (in bytes of the window) that are marked with
    /// `owner`, like [`Self::give_back`], but does not wait for the lock.
    pub fn try_give_back_some(&self, offsets: &[u64], owner: u8) -> Result<(), AllocateError> {
        let _locked = self.try_lock()?;
        let end = self.end();
        for offset in offsets {
            let index = (offset >> GRANULE_SHIFT) as usize;
            if (FIRST..end).contains(&index) && self.entry(index).load(Ordering::Relaxed) == owner {
                self.free(index..index + 1)?;
            }
        }
        self.shorten(end)
    }

    /// Gives back a run of granules. The caller holds the lock.
    fn free(&self, run: core::ops::Range<usize>) -> Result<(), AllocateError> {
        if run.is_empty() {
            return Ok(());
        }
        let offset = (run.start as u64) << GRANULE_SHIFT;
        let length = (run.len() as u64) << GRANULE_SHIFT;
        self.file.punch(offset, length).map_err(AllocateError::System)?;
        for index in run {
            self.entry(index).store(granule::FREE, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the number of the granule after the last one that is backed and mapped.
    fn end(&self) -> usize {
        ((self.window.usable_bytes() >> GRANULE_SHIFT) as usize).min(GRANULES_MAX)
    }

    /// Cuts free granules off the file's end, because mlockall(2) in a traced process would fill
    /// them. The caller holds the lock. Writers touch only granules of sessions, and none of these
    /// is beyond the new end. Processes that open the window learn the new end first.
    fn shorten(&self, end: usize) -> Result<(), AllocateError> {
        // A shortened mapping (RLIMIT_AS) does not show granules beyond its end; nor does an
        // overwritten header.
        let Some(backed) = self.window.backed_bytes() else { return Ok(()) };
        if backed > self.window.mapped_bytes() {
            return Ok(());
        }
        let used = |&index: &usize| self.entry(index).load(Ordering::Relaxed) != granule::FREE;
        let last = (FIRST..end).rev().find(used);
        let length = (last.map_or(FIRST, |last| last + 1) as u64) << GRANULE_SHIFT;
        if length < backed {
            // ORDERING: Release pairs with the Acquire in `Window::usable_bytes`.
            self.window.header().backed.store(backed_word(length), Ordering::Release);
            self.file.shorten(length).map_err(AllocateError::System)?;
        }
        Ok(())
    }

    /// Gives back memory that an unused window does not need: control lines, the granule map,
    /// unused space for descriptions. The window keeps 0.8 MiB, and the event descriptions. The
    /// next process that opens the window backs it again. Returns true if memory was given back.
    ///
    /// The kernel reports whether another process has the file open or mapped, and lets no
    /// process open it meanwhile ([`Fd::try_lease`]): other processes find the window either as
    /// before or as after.
    pub fn compact(&self) -> Result<bool, AllocateError> {
        if is_compact(&self.file.status().map_err(AllocateError::System)?) {
            return Ok(false);
        }
        if !self.file.try_lease().map_err(AllocateError::System)? {
            return Ok(false);
        }
        let compacted = self.compact_alone();
        self.file.end_lease();
        compacted.map_err(AllocateError::System)
    }

    /// Makes the window compact while this process holds the lease.
    fn compact_alone(&self) -> Result<bool, Errno> {
        let header = self.window.header();
        let is_free = |index| self.window.session(index).state.load(Ordering::Relaxed) == FREE;
        if self.window.backed_bytes().is_none() || !(0..SESSIONS_MAX).all(is_free) {
            return Ok(false);
        }
        header.backed.store(backed_word(DATA_OFFSET as u64), Ordering::Relaxed);
        if self.file.status()?.bytes > DATA_OFFSET as u64 {
            self.file.shorten(DATA_OFFSET as u64)?;
        }
        self.file.punch(GRANULE_MAP_OFFSET as u64, GRANULES_MAX as u64)?;
        let used = header.arena_used.load(Ordering::Relaxed) as usize;
        let kept = used.min(ARENA_BYTES).next_multiple_of(PAGE_BYTES).min(ARENA_BYTES);
        if kept < ARENA_BYTES {
            self.file.punch((ARENA_OFFSET + kept) as u64, (ARENA_BYTES - kept) as u64)?;
        }
        Ok(true)
    }

    /// Returns the memory of one session's sub-buffers and control lines, in bytes.
    pub fn bytes_of(&self, slot: usize) -> u64 {
        let owners = [granule::DATA + slot as u8, granule::CONTROL + slot as u8];
        let is_its = |&index: &usize| owners.contains(&self.entry(index).load(Ordering::Relaxed));
        (FIRST..self.end()).filter(is_its).count() as u64 * GRANULE_BYTES
    }

    /// Returns the memory in use by sessions' sub-buffers and control lines, in bytes.
    pub fn bytes_in_use(&self) -> u64 {
        let used = |&index: &usize| self.entry(index).load(Ordering::Relaxed) != granule::FREE;
        (FIRST..self.end()).filter(used).count() as u64 * GRANULE_BYTES
    }
}
