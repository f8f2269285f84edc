//! Homes: the windows that this process has been in, each at an address range of its own.
//!
//! Nearly every process has one home, for life. Who becomes another user (see
//! [`crate::privileges`]) moves to that user's window and leaves zeros where the old one was.
//! Invariant: an address range belongs to one window's file for the process's life, and shows that
//! file or zeros. So addresses that a thread has in its hand stay meaningful however long it
//! sleeps: docs/design/0004-privileges.md has the argument.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::window::EVENTS_MAX;
use trackway_window::{ProcessSlot, Window};

use crate::known::Places;

/// Most windows that a process can have been in. A further user's is not taken: 64 GiB of address
/// space each, and who needs more changes its user for other reasons than to give up rights.
const HOMES_MAX: usize = 4;

/// A window that this process has been in, and what it remembers of its life there.
pub(crate) struct Home {
    /// Where the window is mapped; null: the place is free. Stored once, after all the rest.
    base: AtomicPtr<u8>,
    window: UnsafeCell<Option<Window>>,
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

// SAFETY: `window` is written once, before `base` is published with Release; read only by those
// who saw `base` with Acquire.
unsafe impl Sync for Home {}

static HOMES: [Home; HOMES_MAX] = [const { Home::new() }; HOMES_MAX];

impl Home {
    const fn new() -> Self {
        Self {
            base: AtomicPtr::new(core::ptr::null_mut()),
            window: UnsafeCell::new(None),
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
    pub(crate) fn all() -> impl Iterator<Item = (&'static Self, &'static Window)> {
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
    /// lock of [`crate::privileges`]).
    pub(crate) fn found(window: Window, uid: u32, file: [u64; 2]) -> Option<&'static Self> {
        let home = HOMES.iter().find(|home| home.window().is_none())?;
        home.uid.store(uid, Ordering::Relaxed);
        for (ours, its) in home.file.iter().zip(file) {
            ours.store(its, Ordering::Relaxed);
        }
        home.slot.store(ProcessSlot::NONE.owner_word(0), Ordering::Relaxed);
        // SAFETY: nobody reads it before `base` is published below.
        unsafe { *home.window.get() = Some(window) };
        // ORDERING: Release pairs with the Acquire in `window`.
        home.base.store(window.base(), Ordering::Release);
        Some(home)
    }

    /// The home in whose window `word` is an enable word, and the event's number there.
    pub(crate) fn of(word: *const AtomicU32) -> Option<(&'static Self, &'static Window, usize)> {
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

    /// Its window; `None` while the place is free.
    #[inline(always)]
    pub(crate) fn window(&self) -> Option<&'static Window> {
        // ORDERING: Acquire pairs with the Release in `found`.
        if self.base.load(Ordering::Acquire).is_null() {
            return None;
        }
        // SAFETY: it was written before `base` and never again; homes are static.
        unsafe { (*self.window.get().cast_const()).as_ref() }
    }

    /// Whose window it is.
    pub(crate) fn uid(&self) -> u32 {
        self.uid.load(Ordering::Relaxed)
    }

    /// Notes by which number its user goes now.
    pub(crate) fn set_uid(&self, uid: u32) {
        self.uid.store(uid, Ordering::Relaxed);
    }

    /// Bytes of its window that are backed: noted, for [`Self::reach`].
    pub(crate) fn usable_bytes(&self, window: &Window) -> u64 {
        let usable = window.usable_bytes();
        if self.reach.load(Ordering::Relaxed) < usable {
            self.reach.fetch_max(usable, Ordering::Relaxed);
        }
        usable
    }

    /// Most bytes of its window that were ever backed when anybody here looked.
    pub(crate) fn reach(&self, window: &Window) -> u64 {
        self.usable_bytes(window).max(self.reach.load(Ordering::Relaxed))
    }
}
