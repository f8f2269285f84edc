//! The table of links: the result of an event's filters, by session and event ([`crate::filters`]).
//!
//! The words are opaque here: [`crate::filters`] makes and reads them. The table lies below the
//! application contexts, because a context that the program declares voids the links that depend on
//! the set of contexts.

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
/// linker calls this function before it searches for a context.
pub(crate) fn mark_context_dependent(session: usize) {
    // ORDERING: SeqCst pairs with `void_context_dependent_links`: that function finds the bit of a
    // linker that has not found a context, or the linker finds the context.
    DEPENDENT_SESSIONS.fetch_or(1 << (session % SESSIONS_MAX), Ordering::SeqCst);
}

/// Removes the links that depend on the set of application contexts, because the process has a new
/// context. Any thread; async-signal-safe.
#[cold]
pub(crate) fn void_context_dependent_links() {
    // ORDERING: SeqCst, a Dekker pair with the linker, which stores a link, then checks for a new
    // context: the linker finds the context that was counted before this, or its link is removed.
    fence(Ordering::SeqCst);
    // ORDERING: SeqCst pairs with `mark_context_dependent`.
    let dependent = DEPENDENT_SESSIONS.load(Ordering::SeqCst);
    for session in (0..SESSIONS_MAX).filter(|session| dependent & 1 << session != 0) {
        for event in 0..EVENTS_MAX {
            // A thread that entered the plan by this link continues. A later retirement of the
            // link's part finds another word in this place.
            place_of(session, event).store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the place of a session's link for an event.
#[inline(always)]
pub(crate) fn place_of(session: usize, event: usize) -> &'static AtomicU64 {
    &LINKS[session % SESSIONS_MAX * EVENTS_MAX + event % EVENTS_MAX]
}

/// Returns the places of all links.
pub(crate) fn link_places() -> impl Iterator<Item = &'static AtomicU64> {
    LINKS.iter()
}
