//! The prefilter: filters judge an event before its site stages it.
//!
//! Staging an event with strings measures and copies each of them, which costs several times as
//! much as a filter on one. If all sessions that enable such an event have filters, its site calls
//! [`run_prefilter`] first. The site stages an event that passes, and hands the verdict back with
//! the event, because a stateful filter must run only once. Without a verdict the event takes the
//! ordinary path, so the prefilter is optional (docs/design/0008-filters.md, "Prefilters before
//! staging").
//!
//! Invariant: a verdict holds for one session, in one generation, in the present window. The
//! verdict contains all three values, and the recording path compares them.

use core::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::session::SESSIONS_MAX;
use trackway_window::SessionLayout;

use super::enabled_sessions::EnabledSessions;
use super::fast_path;
use crate::abi::{Argument, AskingEvent, Event, Library};
use crate::filters::{self, FilterVerdict};
use crate::payload::StagedPayload;
use crate::state::process::PROCESS;
use crate::state::session_cache::Decision;
use crate::state::window_map::MappedWindow;

/// Answer of the prefilter that rejects the event: `TRACKWAY_ABI_UNWANTED`.
const UNWANTED: u64 = 0;
/// Answer of the prefilter without a verdict: `TRACKWAY_ABI_UNASKED`.
const UNASKED: u64 = u64::MAX;

/// The structure that sites find in their events.
pub(crate) static LIBRARY: Library = Library {
    size: size_of::<Library>() as u32,
    filtered: AtomicU32::new(0),
    ask: run_prefilter,
    emit_asked,
};

/// A verdict: the event passes.
///
/// ```text
/// 01 | moves, 14 bits | generation, 43 bits | session, 5 bits
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefilterVerdict {
    /// The session that the verdict holds for.
    pub(crate) session: usize,
    /// The generation that the verdict holds for.
    pub(crate) generation: u64,
    /// Lowest bits of the number of the process's moves.
    moves: u64,
}

impl PrefilterVerdict {
    const SESSION_BITS: u32 = 5;
    const GENERATION_BITS: u32 = 43;
    const MOVES_BITS: u32 = 14;
    const MARK: u64 = 1 << 62;

    /// Encodes the verdict as a word, distinct from the other answers. `None`: the generation is
    /// too large.
    const fn to_word(self) -> Option<u64> {
        if self.generation >> Self::GENERATION_BITS != 0 {
            return None;
        }
        let above = self.moves << Self::GENERATION_BITS | self.generation;
        Some(Self::MARK | above << Self::SESSION_BITS | self.session as u64)
    }

    const fn from_word(word: u64) -> Self {
        let above = word >> Self::SESSION_BITS;
        Self {
            session: (word & ((1 << Self::SESSION_BITS) - 1)) as usize,
            generation: above & ((1 << Self::GENERATION_BITS) - 1),
            moves: Self::moves_of(above >> Self::GENERATION_BITS),
        }
    }

    const fn moves_of(moves: u64) -> u64 {
        moves & ((1 << Self::MOVES_BITS) - 1)
    }

    /// Returns true if the process is still in the window of the verdict.
    pub(crate) fn is_current(self) -> bool {
        Self::moves_of(PROCESS.moves()) == self.moves
    }
}

const _: () = assert!(
    SESSIONS_MAX == 1 << PrefilterVerdict::SESSION_BITS
        && PrefilterVerdict::SESSION_BITS
            + PrefilterVerdict::GENERATION_BITS
            + PrefilterVerdict::MOVES_BITS
            == 62
);

/// Decides whether this process takes part in a session
/// ([`crate::state::process::Process::decide`]), and publishes for sites whether the session has
/// filters.
#[inline(always)] // one layout less on signal handlers' stacks
pub(crate) fn decide_participation(mapped: &MappedWindow, session: usize) -> Option<SessionLayout> {
    let layout = PROCESS.decide(mapped, session);
    publish_filter_bit(session, &PROCESS.decisions[session % SESSIONS_MAX]);
    layout
}

/// Publishes for sites whether a session has filters, according to a decision. It does not matter
/// which of two concurrent decisions wins: the bit only decides which sites use the prefilter.
fn publish_filter_bit(session: usize, decision: &Decision) {
    let bit = 1 << (session % SESSIONS_MAX);
    let has = decision.link_tag.load(Ordering::Relaxed) != 0;
    if (LIBRARY.filtered.load(Ordering::Relaxed) & bit != 0) == has {
        return;
    }
    if has {
        LIBRARY.filtered.fetch_or(bit, Ordering::Relaxed);
    } else {
        LIBRARY.filtered.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Judges an event that is not staged: `trackway_abi_ask_fn` of include/trackway/abi/abi.h, which
/// states the contract.
///
/// # Safety
/// The C declaration states the contract: `event` is registered, and its site found `LIBRARY` in
/// it; `arguments` belong to the event's fields.
unsafe extern "C" fn run_prefilter(event: *mut Event, arguments: *const Argument) -> u64 {
    // SAFETY: the caller's event.
    let enabled = unsafe { EnabledSessions::load(event) };
    if enabled.bits == 0 {
        return UNWANTED;
    }
    if !enabled.bits.is_power_of_two() {
        return UNASKED;
    }
    let session = enabled.first();
    let moves = PrefilterVerdict::moves_of(PROCESS.moves());
    // SAFETY: an event that points to the library is long enough.
    let known = unsafe { (*event.cast::<AskingEvent>()).known.load(Ordering::Relaxed) };
    // SAFETY: the caller's arguments, of the event with this description.
    match unsafe { filters::judge_unstaged(session, enabled.word, arguments, known) } {
        FilterVerdict::Fails => UNWANTED,
        FilterVerdict::Unknown => UNASKED,
        FilterVerdict::Passes(generation) => {
            // No session reaches a generation that does not fit.
            PrefilterVerdict { session, generation, moves }.to_word().unwrap_or(UNASKED)
        }
    }
}

/// Records an event with a verdict: `trackway_abi_emit_asked_fn` of include/trackway/abi/abi.h,
/// which states the contract.
///
/// # Safety
/// The contracts of the C declaration and [`fast_path::emit`] apply; `verdict` is an answer of
/// [`run_prefilter`].
unsafe extern "C" fn emit_asked(event: *mut Event, payload: *mut u8, size: usize, verdict: u64) {
    // SAFETY: the caller upholds the same contract.
    unsafe {
        fast_path::emit_with_verdict(
            event,
            StagedPayload::new(payload, size),
            PrefilterVerdict::from_word(verdict),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back() {
        for (session, generation, moves) in [(0, 0, 0), (31, (1 << 43) - 1, (1 << 14) - 1)] {
            let verdict = PrefilterVerdict { session, generation, moves };
            let word = verdict.to_word().expect("it fits");
            assert_ne!(word, UNWANTED);
            assert_ne!(word, UNASKED);
            assert_eq!(PrefilterVerdict::from_word(word), verdict);
        }
        assert_eq!(PrefilterVerdict { session: 1, generation: 1 << 43, moves: 0 }.to_word(), None);
    }
}
