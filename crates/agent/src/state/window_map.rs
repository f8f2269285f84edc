//! Homes: the windows that this process has been in, each at an address range of its own.
//!
//! Nearly every process has one mapped, for life. Who becomes another user (see
//! [`crate::setuid`]) moves to that user's window and leaves zeros where the old one was.
//! Invariant: an address range belongs to one window's file for the process's life, and shows that
//! file or zeros. So addresses that a thread has in its hand stay meaningful however long it
//! sleeps: docs/design/0004-privileges.md has the argument.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::session::{Clock, SESSION_BYTES, SESSIONS_MAX, Session};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, SESSIONS_OFFSET};
use trackway_sys::Errno;
use trackway_window::{ProcessSlot, Window, readable_when_extended};

use crate::state::event_archive::EventNumbers;
use crate::state::process::PROCESS;

/// Most windows that a process can have been in. A further user's is not taken: 64 GiB of address
/// space each, and who needs more changes its user for other reasons than to give up rights.
const WINDOWS_MAX: usize = 4;

/// A window that this process has been in, and what it remembers of its life there.
pub(crate) struct MappedWindow {
    /// Where the window is mapped_bytes; null: the place is free. Stored once, after all the rest.
    base: AtomicPtr<u8>,
    /// How much of the window is readable and writable, in bytes. Only grows: see
    /// [`MappedWindow::extend`].
    mapped_bytes: AtomicU64,
    /// How much of it somebody has begun to make so, at least.
    extending_bytes: AtomicU64,
    /// How much address space the window has, in bytes.
    reserved: AtomicU64,
    /// How much was backed when the window could not be extended, in bytes.
    refused_bytes: AtomicU64,
    /// Whose window it is.
    uid: AtomicU32,
    /// The file: device and inode.
    file: [AtomicU64; 2],
    /// Most bytes of the window that were ever seen backed.
    used_bytes_max: AtomicU64,
    /// Place in the table of processes, as `ProcessSlot::owner_word(0)`.
    pub(crate) slot: AtomicU64,
    /// Traces (halves of their UUIDs), by session, that have counted this process.
    pub(crate) counting_traces: [AtomicU64; SESSIONS_MAX],
    /// Those in which it has said that it interprets filters.
    pub(crate) interpreter_traces: [AtomicU64; SESSIONS_MAX],
    /// Those that have counted it as departed.
    pub(crate) departure_traces: [AtomicU64; SESSIONS_MAX],
    /// The numbers there of what this process has described.
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

    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = (&'static Self, Window)> {
        WINDOWS.iter().filter_map(|mapped| Some((mapped, mapped.window()?)))
    }

    /// The mapped with this file (device, inode), if the process has been there.
    pub(crate) fn find_by_file(file: [u64; 2]) -> Option<&'static Self> {
        Self::all().map(|(mapped, _)| mapped).find(|mapped| mapped.shows_file(file))
    }

    /// Whether its window is this file.
    pub(crate) fn shows_file(&self, file: [u64; 2]) -> bool {
        self.file.iter().zip(file).all(|(ours, its)| ours.load(Ordering::Relaxed) == its)
    }

    /// A new mapped; `None`: there have been too many. One thread at a time (at load, or under the
    /// lock of [`crate::setuid`]).
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
        // ORDERING: Release pairs with the Acquire in `window`.
        mapped.base.store(window.base(), Ordering::Release);
        Some(mapped)
    }

    /// The mapped in whose window `word` is an enable word, and the event's number there.
    pub(crate) fn find_by_word(word: *const AtomicU32) -> Option<(&'static Self, Window, usize)> {
        Self::all().find_map(|(mapped, window)| {
            let event = Window::event_at(window.base(), word);
            (event < EVENTS_MAX).then_some((mapped, window, event))
        })
    }

    /// Forgets what only the parent of a fork child may know.
    pub(crate) fn reset_all() {
        for mapped in &WINDOWS {
            mapped.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
            let said = mapped.counting_traces.iter().chain(&mapped.interpreter_traces);
            for trace in said.chain(&mapped.departure_traces) {
                trace.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Its window, as far as it is mapped_bytes now; `None` while the place is free.
    #[inline(always)]
    pub(crate) fn window(&self) -> Option<Window> {
        self.window_up_to(&self.mapped_bytes)
    }

    /// Its window, with what is backed of it mapped_bytes, if that can be.
    pub(crate) fn extended_window(&self) -> Option<Window> {
        self.usable_bytes();
        self.window()
    }

    /// Its window, as far as anybody may be about to use it: to be left, or come back to.
    pub(crate) fn whole_window(&self) -> Option<Window> {
        self.window_up_to(&self.extending_bytes)
    }

    #[inline(always)]
    fn window_up_to(&self, mapped_bytes: &AtomicU64) -> Option<Window> {
        // ORDERING: Acquire pairs with the Release in `found`.
        let base = self.base.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // ORDERING: SeqCst pairs with `extend`, as said there.
        let mapped_bytes = mapped_bytes.load(Ordering::SeqCst);
        // SAFETY: these were the window's when it was found; so much is readable since, or was made
        // so before it was stored.
        Some(unsafe {
            Window::from_parts(base, mapped_bytes, self.reserved.load(Ordering::Relaxed))
        })
    }

    /// Whose window it is.
    pub(crate) fn uid(&self) -> u32 {
        self.uid.load(Ordering::Relaxed)
    }

    /// Notes by which number its user goes now.
    pub(crate) fn set_uid(&self, uid: u32) {
        self.uid.store(uid, Ordering::Relaxed);
    }

    /// Bytes of its window that may be touched: backed, and mapped_bytes here, as [`Self::window`]
    /// says from then on. Where more is backed than is mapped_bytes, that is mapped_bytes first, by
    /// a system call. Async-signal-safe.
    #[inline(never)] // for the stack of who asks
    pub(crate) fn usable_bytes(&self) -> u64 {
        let Some(window) = self.window() else { return 0 };
        let backed = window.backed_bytes().unwrap_or(DATA_OFFSET as u64);
        // ORDERING: SeqCst pairs with `extend`, as said there.
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

    /// Maps what is backed, and as much again, if this process makes system calls that it need not
    /// make, and no limit forbids it. How much is mapped_bytes then, in bytes.
    ///
    /// Another thread may be leaving this mapped: it moves out, then asks how far anybody may be
    /// about to use the window ([`Self::whole_window`]), then puts zeros there, writable so far. We
    /// say so first, then ask whether the process lives here still: either it does not, and nobody
    /// is told of what was mapped_bytes; or whoever leaves comes later, and finds what we have
    /// said.
    #[cold]
    #[inline(never)] // for the stack of those that do not come here
    fn extend(&self, window: &Window, backed: u64) -> u64 {
        // Of what lies behind the address space that a limit has left, nothing can be used.
        let wanted = readable_when_extended(backed).min(window.reserved_bytes());
        let is_known = self.refused_bytes.load(Ordering::Relaxed) == backed;
        // ORDERING: SeqCst, a Dekker pair with `setuid::leave`, and so are those below.
        let mut mapped_bytes = self.mapped_bytes.load(Ordering::SeqCst);
        if mapped_bytes < wanted.min(backed) && !is_known && !PROCESS.is_sandboxed() {
            let errno = Errno::last();
            // ORDERING: SeqCst, as said above.
            self.extending_bytes.fetch_max(wanted, Ordering::SeqCst);
            if window.extend(wanted).is_err() {
                self.refused_bytes.store(backed, Ordering::Relaxed);
            } else if PROCESS.is_in(self) {
                // ORDERING: SeqCst, as said above.
                self.mapped_bytes.fetch_max(wanted, Ordering::SeqCst);
            }
            errno.set();
            mapped_bytes = self.mapped_bytes.load(Ordering::SeqCst);
        }
        mapped_bytes
    }

    /// Most bytes of its window that were ever usable when anybody here looked.
    pub(crate) fn used_bytes_max(&self, window: &Window) -> u64 {
        window.usable_bytes().max(self.used_bytes_max.load(Ordering::Relaxed))
    }
}

/// Where session `index`'s generation is, in a window mapped_bytes at `base`.
#[inline(always)]
pub(crate) fn generation_of(base: *mut u8, index: usize) -> *const u64 {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, generation);
    base.wrapping_add(AT + index * SESSION_BYTES).cast()
}

/// Session `index`'s clock line, in a window mapped_bytes at `base`.
///
/// # Safety
/// A window is mapped_bytes at `base`, and `index` is below `SESSIONS_MAX`.
#[inline(always)]
pub(crate) unsafe fn clock_of(base: *mut u8, index: usize) -> &'static Clock {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, clock);
    // SAFETY: the caller's promise; sessions are in the fixed part, mapped_bytes for good.
    unsafe { &*base.wrapping_add(AT + index * SESSION_BYTES).cast() }
}
