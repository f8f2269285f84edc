//! The table of links: for each session and event, what its filters decided ([`crate::filters`]).
//!
//! The words are opaque here: [`crate::filters`] makes and reads them. The table lies below the
//! application contexts, because a context that the program declares voids the links that depend
//! on which contexts there are.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use trackway_abi::session::SESSIONS_MAX;
use trackway_abi::window::EVENTS_MAX;

/// A word for each session and event; 0: no link.
static LINKS: [AtomicU64; SESSIONS_MAX * EVENTS_MAX] =
    [const { AtomicU64::new(0) }; SESSIONS_MAX * EVENTS_MAX];

/// The sessions, a bit each, that have a link which depends on the application contexts that the
/// process has.
static DEPENDENT_SESSIONS: AtomicU32 = AtomicU32::new(0);

/// Notes that links of this session depend on the application contexts that the process has. The
/// linker calls it before it searches a context.
pub(crate) fn mark_context_dependent(session: usize) {
    // ORDERING: SeqCst pairs with `void_context_dependent_links`: it sees a linker that has not
    // found a context, or that linker finds it.
    DEPENDENT_SESSIONS.fetch_or(1 << (session % SESSIONS_MAX), Ordering::SeqCst);
}

/// Removes the links that depend on which application contexts there are, because the process has
/// another one. Any thread; async-signal-safe.
#[cold]
pub(crate) fn void_context_dependent_links() {
    // ORDERING: SeqCst, a Dekker pair with the linker, which stores a link, then checks for another
    // context: it sees the one that was counted before this, or its link is removed.
    fence(Ordering::SeqCst);
    // ORDERING: SeqCst, as above.
    let dependent = DEPENDENT_SESSIONS.load(Ordering::SeqCst);
    for session in (0..SESSIONS_MAX).filter(|session| dependent & 1 << session != 0) {
        for event in 0..EVENTS_MAX {
            // A thread that entered the plan by this link goes on; a later store of the link's part
            // finds another word in this place.
            place_of(session, event).store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the place of a session's link for an event.
#[inline(always)]
pub(crate) fn place_of(session: usize, event: usize) -> &'static AtomicU64 {
    &LINKS[session % SESSIONS_MAX * EVENTS_MAX + event % EVENTS_MAX]
}

/// Returns the event_numbers of all links.
pub(crate) fn link_places() -> impl Iterator<Item = &'static AtomicU64> {
    LINKS.iter()
}
