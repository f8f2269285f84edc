//! Homes: the windows that this process has been in, each at an address range of its own.
//!
//! Nearly every process has one home, for life. Who becomes another user (see
//! [`crate::setuid`]) moves to that user's window and leaves zeros where the old one was.
//! Invariant: an address range belongs to one window's file for the process's life, and shows that
//! file or zeros. So addresses that a thread has in its hand stay meaningful however long it
//! sleeps: docs/design/0004-privileges.md has the argument.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::session::{Clock, SESSION_BYTES, SESSIONS_MAX, Session};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, SESSIONS_OFFSET};
use trackway_sys::Errno;
use trackway_window::{ProcessSlot, Window, readable_when_extended};

use crate::state::event_archive::Places;
use crate::state::process::PROCESS;

/// Most windows that a process can have been in. A further user's is not taken: 64 GiB of address
/// space each, and who needs more changes its user for other reasons than to give up rights.
const HOMES_MAX: usize = 4;

/// A window that this process has been in, and what it remembers of its life there.
pub(crate) struct Home {
    /// Where the window is mapped; null: the place is free. Stored once, after all the rest.
    base: AtomicPtr<u8>,
    /// How much of the window is readable and writable, in bytes. Only grows: see [`Home::extend`].
    mapped: AtomicU64,
    /// How much of it somebody has begun to make so, at least.
    extent: AtomicU64,
    /// How much address space the window has, in bytes.
    reserved: AtomicU64,
    /// How much was backed when the window could not be extended, in bytes.
    refused: AtomicU64,
    /// Whose window it is.
    uid: AtomicU32,
    /// The file: device and inode.
    file: [AtomicU64; 2],
    /// Most bytes of the window that were ever seen backed.
    reach: AtomicU64,
    /// Place in the table of processes, as `ProcessSlot::owner_word(0)`.
    pub(crate) slot: AtomicU64,
    /// Traces (halves of their UUIDs), by session, that have counted this process.
    pub(crate) counted_in: [AtomicU64; SESSIONS_MAX],
    /// Those in which it has said that it interprets filters.
    pub(crate) interprets_in: [AtomicU64; SESSIONS_MAX],
    /// Those that have counted it as departed.
    pub(crate) departed_from: [AtomicU64; SESSIONS_MAX],
    /// The numbers there of what this process has described.
    pub(crate) places: Places,
}

static HOMES: [Home; HOMES_MAX] = [const { Home::new() }; HOMES_MAX];

impl Home {
    const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            mapped: AtomicU64::new(0),
            extent: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            uid: AtomicU32::new(0),
            file: [const { AtomicU64::new(0) }; 2],
            reach: AtomicU64::new(0),
            slot: AtomicU64::new(0),
            counted_in: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            interprets_in: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            departed_from: [const { AtomicU64::new(0) }; SESSIONS_MAX],
            places: Places::new(),
        }
    }

    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = (&'static Self, Window)> {
        HOMES.iter().filter_map(|home| Some((home, home.window()?)))
    }

    /// The home with this file (device, inode), if the process has been there.
    pub(crate) fn known(file: [u64; 2]) -> Option<&'static Self> {
        Self::all().map(|(home, _)| home).find(|home| home.is_of(file))
    }

    /// Whether its window is this file.
    pub(crate) fn is_of(&self, file: [u64; 2]) -> bool {
        self.file.iter().zip(file).all(|(ours, its)| ours.load(Ordering::Relaxed) == its)
    }

    /// A new home; `None`: there have been too many. One thread at a time (at load, or under the
    /// lock of [`crate::setuid`]).
    pub(crate) fn found(window: Window, uid: u32, file: [u64; 2]) -> Option<&'static Self> {
        let home = HOMES.iter().find(|home| home.window().is_none())?;
        home.uid.store(uid, Ordering::Relaxed);
        for (ours, its) in home.file.iter().zip(file) {
            ours.store(its, Ordering::Relaxed);
        }
        home.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
        home.mapped.store(window.mapped_bytes(), Ordering::Relaxed);
        home.extent.store(window.mapped_bytes(), Ordering::Relaxed);
        home.reserved.store(window.reserved_bytes(), Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `window`.
        home.base.store(window.base(), Ordering::Release);
        Some(home)
    }

    /// The home in whose window `word` is an enable word, and the event's number there.
    pub(crate) fn of(word: *const AtomicU32) -> Option<(&'static Self, Window, usize)> {
        Self::all().find_map(|(home, window)| {
            let event = Window::event_at(window.base(), word);
            (event < EVENTS_MAX).then_some((home, window, event))
        })
    }

    /// Forgets what only the parent of a fork child may know.
    pub(crate) fn forget_all() {
        for home in &HOMES {
            home.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
            let said = home.counted_in.iter().chain(&home.interprets_in);
            for trace in said.chain(&home.departed_from) {
                trace.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Its window, as far as it is mapped now; `None` while the place is free.
    #[inline(always)]
    pub(crate) fn window(&self) -> Option<Window> {
        self.window_of(&self.mapped)
    }

    /// Its window, with what is backed of it mapped, if that can be.
    pub(crate) fn extended_window(&self) -> Option<Window> {
        self.usable_bytes();
        self.window()
    }

    /// Its window, as far as anybody may be about to use it: to be left, or come back to.
    pub(crate) fn whole_window(&self) -> Option<Window> {
        self.window_of(&self.extent)
    }

    #[inline(always)]
    fn window_of(&self, mapped: &AtomicU64) -> Option<Window> {
        // ORDERING: Acquire pairs with the Release in `found`.
        let base = self.base.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // ORDERING: SeqCst pairs with `extend`, as said there.
        let mapped = mapped.load(Ordering::SeqCst);
        // SAFETY: these were the window's when it was found; so much is readable since, or was made
        // so before it was stored.
        Some(unsafe { Window::from_parts(base, mapped, self.reserved.load(Ordering::Relaxed)) })
    }

    /// Whose window it is.
    pub(crate) fn uid(&self) -> u32 {
        self.uid.load(Ordering::Relaxed)
    }

    /// Notes by which number its user goes now.
    pub(crate) fn set_uid(&self, uid: u32) {
        self.uid.store(uid, Ordering::Relaxed);
    }

    /// Bytes of its window that may be touched: backed, and mapped here, as [`Self::window`] says
    /// from then on. Where more is backed than is mapped, that is mapped first, by a system call.
    /// Async-signal-safe.
    #[inline(never)] // for the stack of who asks
    pub(crate) fn usable_bytes(&self) -> u64 {
        let Some(window) = self.window() else { return 0 };
        let backed = window.backed_bytes().unwrap_or(DATA_OFFSET as u64);
        // ORDERING: SeqCst pairs with `extend`, as said there.
        let mut mapped = self.mapped.load(Ordering::SeqCst);
        if backed > mapped {
            mapped = self.extend(&window, backed);
        }
        let usable = backed.min(mapped);
        if self.reach.load(Ordering::Relaxed) < usable {
            self.reach.fetch_max(usable, Ordering::Relaxed);
        }
        usable
    }

    /// Maps what is backed, and as much again, if this process makes system calls that it need not
    /// make, and no limit forbids it. How much is mapped then, in bytes.
    ///
    /// Another thread may be leaving this home: it moves out, then asks how far anybody may be
    /// about to use the window ([`Self::whole_window`]), then puts zeros there, writable so far. We
    /// say so first, then ask whether the process lives here still: either it does not, and nobody
    /// is told of what was mapped; or whoever leaves comes later, and finds what we have said.
    #[cold]
    #[inline(never)] // for the stack of those that do not come here
    fn extend(&self, window: &Window, backed: u64) -> u64 {
        // Of what lies behind the address space that a limit has left, nothing can be used.
        let wanted = readable_when_extended(backed).min(window.reserved_bytes());
        let is_known = self.refused.load(Ordering::Relaxed) == backed;
        // ORDERING: SeqCst, a Dekker pair with `setuid::leave`, and so are those below.
        let mut mapped = self.mapped.load(Ordering::SeqCst);
        if mapped < wanted.min(backed) && !is_known && !PROCESS.is_sandboxed() {
            let errno = Errno::last();
            // ORDERING: SeqCst, as said above.
            self.extent.fetch_max(wanted, Ordering::SeqCst);
            if window.extend(wanted).is_err() {
                self.refused.store(backed, Ordering::Relaxed);
            } else if PROCESS.lives_in(self) {
                // ORDERING: SeqCst, as said above.
                self.mapped.fetch_max(wanted, Ordering::SeqCst);
            }
            errno.set();
            mapped = self.mapped.load(Ordering::SeqCst);
        }
        mapped
    }

    /// Most bytes of its window that were ever usable when anybody here looked.
    pub(crate) fn reach(&self, window: &Window) -> u64 {
        window.usable_bytes().max(self.reach.load(Ordering::Relaxed))
    }
}

/// Where session `index`'s generation is, in a window mapped at `base`.
#[inline(always)]
pub(crate) fn generation_of(base: *mut u8, index: usize) -> *const u64 {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, generation);
    base.wrapping_add(AT + index * SESSION_BYTES).cast()
}

/// Session `index`'s clock line, in a window mapped at `base`.
///
/// # Safety
/// A window is mapped at `base`, and `index` is below `SESSIONS_MAX`.
#[inline(always)]
pub(crate) unsafe fn clock_of(base: *mut u8, index: usize) -> &'static Clock {
    const AT: usize = SESSIONS_OFFSET + core::mem::offset_of!(Session, clock);
    // SAFETY: the caller's promise; sessions are in the fixed part, mapped for good.
    unsafe { &*base.wrapping_add(AT + index * SESSION_BYTES).cast() }
}
