//! The windows that this process has been in, each at an address range of its own.
//!
//! Nearly every process has one window for its whole life. A process that becomes another user
//! ([`crate::setuid`]) moves to that user's window and leaves zeros in place of the old one.
//!
//! Invariant: an address range belongs to one window's file for the process's life, and shows that
//! file or zeros. So an address that a thread holds keeps its meaning however long the thread
//! sleeps (docs/design/0004-privileges.md).

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::session::{Clock, SESSION_BYTES, SESSIONS_MAX, Session};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, SESSIONS_OFFSET};
use trackway_sys::Errno;
use trackway_window::{ProcessSlot, Window, readable_when_extended};

use crate::state::event_archive::EventNumbers;
use crate::state::process::PROCESS;

/// Maximum number of windows of one process. A window takes 64 GiB of address space. A process that
/// needs more does not change its user to give up rights, and is not traced in further windows.
const WINDOWS_MAX: usize = 4;

/// A window that this process has been in, with the process's state there.
pub(crate) struct MappedWindow {
    /// The address at which the window is mapped; null: the entry is free. Stored once, after all
    /// other fields.
    base: AtomicPtr<u8>,
    /// Readable and writable bytes of the window. Only grows: see [`MappedWindow::extend`].
    mapped_bytes: AtomicU64,
    /// Upper bound of the bytes that a thread has begun to map.
    extending_bytes: AtomicU64,
    /// Bytes of address space that are reserved for the window.
    reserved: AtomicU64,
    /// Backed bytes when an extension of the mapping failed.
    refused_bytes: AtomicU64,
    /// The user that owns the window.
    uid: AtomicU32,
    /// The window's file: device and inode.
    file: [AtomicU64; 2],
    /// Maximum of the window's backed bytes that any thread has found so far.
    used_bytes_max: AtomicU64,
    /// The process's slot in the process table, as `ProcessSlot::owner_word(0)`.
    pub(crate) slot: AtomicU64,
    /// Traces (halves of their UUIDs), by session, that have counted this process.
    pub(crate) counting_traces: [AtomicU64; SESSIONS_MAX],
    /// Traces, by session, that count this process as an interpreter of filters.
    pub(crate) interpreter_traces: [AtomicU64; SESSIONS_MAX],
    /// Traces, by session, that count this process as departed.
    pub(crate) departure_traces: [AtomicU64; SESSIONS_MAX],
    /// The numbers that this process's events have in the window.
    pub(crate) event_numbers: EventNumbers,
}

static WINDOWS: [MappedWindow; WINDOWS_MAX] = [const { MappedWindow::new() }; WINDOWS_MAX];

impl MappedWindow {
    const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            mapped_bytes: AtomicU64::new(0),
            extending_bytes: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            refused_bytes: AtomicU64::new(0),
            uid: AtomicU32::new(0),
            file: [const { AtomicU64::new(0) }; 2],
            used_bytes_max: AtomicU64::new(0),
            slot: AtomicU64::new(0),
            counting_traces: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            interpreter_traces: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            departure_traces: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            event_numbers: EventNumbers::new(),
        }
    }

    /// Returns all windows of the process.
    pub(crate) fn all() -> impl Iterator<Item = (&'static Self, Window)> {
        WINDOWS.iter().filter_map(|mapped| Some((mapped, mapped.window()?)))
    }

    /// Returns the window with this file (device, inode), if the process has been there.
    pub(crate) fn find_by_file(file: [u64; 2]) -> Option<&'static Self> {
        Self::all().map(|(mapped, _)| mapped).find(|mapped| mapped.shows_file(file))
    }

    /// Returns true if this is the window's file.
    pub(crate) fn shows_file(&self, file: [u64; 2]) -> bool {
        self.file.iter().zip(file).all(|(ours, its)| ours.load(Ordering::Relaxed) == its)
    }

    /// Adds a window; `None`: the table is full. One thread at a time calls this (at load, or under
    /// the lock of [`crate::setuid`]).
    pub(crate) fn add(window: Window, uid: u32, file: [u64; 2]) -> Option<&'static Self> {
        let mapped = WINDOWS.iter().find(|mapped| mapped.window().is_none())?;
        mapped.uid.store(uid, Ordering::Relaxed);
        for (ours, its) in mapped.file.iter().zip(file) {
            ours.store(its, Ordering::Relaxed);
        }
        mapped.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
        mapped.mapped_bytes.store(window.mapped_bytes(), Ordering::Relaxed);
        mapped.extending_bytes.store(window.mapped_bytes(), Ordering::Relaxed);
        mapped.reserved.store(window.reserved_bytes(), Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `window_up_to`.
        mapped.base.store(window.base(), Ordering::Release);
        Some(mapped)
    }

    /// Returns the window to which the enable word belongs, and the event's number there.
    pub(crate) fn find_by_word(word: *const AtomicU32) -> Option<(&'static Self, usize)> {
        Self::all().find_map(|(mapped, window)| {
            let event = Window::event_at(window.base(), word);
            (event < EVENTS_MAX).then_some((mapped, event))
        })
    }

    /// Resets the fields that a fork child must not inherit.
    pub(crate) fn reset_all() {
        for mapped in &WINDOWS {
            mapped.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
            let traces = mapped.counting_traces.iter().chain(&mapped.interpreter_traces);
            for trace in traces.chain(&mapped.departure_traces) {
                trace.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the window, as far as it is mapped now; `None` while the entry is free.
    #[inline(always)]
    pub(crate) fn window(&self) -> Option<Window> {
        self.window_up_to(&self.mapped_bytes)
    }

    /// Returns the window, after mapping all backed bytes if that is possible.
    pub(crate) fn extended_window(&self) -> Option<Window> {
        self.usable_bytes();
        self.window()
    }

    /// Returns the window with every byte that a thread may be about to use, for a process that
    /// leaves or re-enters the window.
    pub(crate) fn whole_window(&self) -> Option<Window> {
        self.window_up_to(&self.extending_bytes)
    }

    #[inline(always)]
    fn window_up_to(&self, mapped_bytes: &AtomicU64) -> Option<Window> {
        // ORDERING: Acquire pairs with the Release in `add`.
        let base = self.base.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // ORDERING: SeqCst pairs with `extend`, which has the argument.
        let mapped_bytes = mapped_bytes.load(Ordering::SeqCst);
        // SAFETY: `add` stored these values. As many bytes are readable since then, or became
        // readable before the number was stored.
        Some(unsafe {
            Window::from_parts(base, mapped_bytes, self.reserved.load(Ordering::Relaxed))
        })
    }

    /// Returns the user that owns the window.
    pub(crate) fn uid(&self) -> u32 {
        self.uid.load(Ordering::Relaxed)
    }

    /// Stores the number that the window's user has now.
    pub(crate) fn set_uid(&self, uid: u32) {
        self.uid.store(uid, Ordering::Relaxed);
    }

    /// Returns the bytes of the window that may be touched: backed, and mapped here, as
    /// [`Self::window`] reports from then on. Maps backed bytes first, by a system call, if they
    /// are not mapped. Async-signal-safe.
    #[inline(never)] // keeps its frame off its callers' stack
    pub(crate) fn usable_bytes(&self) -> u64 {
        let Some(window) = self.window() else { return 0 };
        let backed = window.backed_bytes().unwrap_or(DATA_OFFSET as u64);
        // ORDERING: SeqCst pairs with `extend`, which has the argument.
        let mut mapped_bytes = self.mapped_bytes.load(Ordering::SeqCst);
        if backed > mapped_bytes {
            mapped_bytes = self.extend(&window, backed);
        }
        let usable = backed.min(mapped_bytes);
        if self.used_bytes_max.load(Ordering::Relaxed) < usable {
            self.used_bytes_max.fetch_max(usable, Ordering::Relaxed);
        }
        usable
    }

    /// Maps the backed bytes and as much again, if this process makes avoidable system calls and no
    /// limit forbids it. Returns the mapped bytes.
    ///
    /// Another thread may be leaving this window: it moves out, then reads how far threads may be
    /// about to use the window ([`Self::whole_window`]), then maps writable zeros up to there. This
    /// function stores its intention first, then checks that the process is still in the window.
    /// Either the process is not, and the new size stays unpublished; or the leaving thread comes
    /// later and finds the intention.
    #[cold]
    #[inline(never)] // keeps its frame off its callers' stack
    fn extend(&self, window: &Window, backed: u64) -> u64 {
        // Nothing is usable beyond the address space that a limit has left.
        let wanted = readable_when_extended(backed).min(window.reserved_bytes());
        let is_known = self.refused_bytes.load(Ordering::Relaxed) == backed;
        // ORDERING: SeqCst, here and below, a Dekker pair with `setuid::leave_window`.
        let mut mapped_bytes = self.mapped_bytes.load(Ordering::SeqCst);
        if mapped_bytes < wanted.min(backed) && !is_known && !PROCESS.is_sandboxed() {
            let errno = Errno::last();
            // ORDERING: SeqCst, the Dekker pair with `setuid::leave_window`.
            self.extending_bytes.fetch_max(wanted, Ordering::SeqCst);
            if window.extend(wanted).is_err() {
                self.refused_bytes.store(backed, Ordering::Relaxed);
            } else if PROCESS.is_in(self) {
                // ORDERING: SeqCst, the Dekker pair with `setuid::leave_window`.
                self.mapped_bytes.fetch_max(wanted, Ordering::SeqCst);
            }
            errno.set();
            mapped_bytes = self.mapped_bytes.load(Ordering::SeqCst);
        }
        mapped_bytes
    }

    /// Returns the maximum of the usable bytes that any thread of this process has found.
    pub(crate) fn used_bytes_max(&self, window: &Window) -> u64 {
        window.usable_bytes().max(self.used_bytes_max.load(Ordering::Relaxed))
    }
}

/// Returns the address of session `index`'s generation, in a window mapped at `base`.
#[inline(always)]
pub(crate) fn generation_of(base: *mut u8, index: usize) -> *const u64 {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, generation);
    base.wrapping_add(AT + index * SESSION_BYTES).cast()
}

/// Returns session `index`'s clock line, in a window mapped at `base`.
///
/// # Safety
/// A window is mapped at `base`, and `index` is below `SESSIONS_MAX`.
#[inline(always)]
pub(crate) unsafe fn clock_of(base: *mut u8, index: usize) -> &'static Clock {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, clock);
    // SAFETY: `base` maps a window; sessions are in the fixed part, which stays mapped.
    unsafe { &*base.wrapping_add(AT + index * SESSION_BYTES).cast() }
}
