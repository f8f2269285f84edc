//! Asking first: filters decide about an event before it is staged.
//!
//! To stage an event with strings is to measure and to copy each of them, several times as much
//! work as a filter that looks at one. So a site of such an event asks, where all sessions that
//! want it have filters; it stages what passes, and hands the answer back with it, because a filter
//! that counts may be verdict once only. Who cannot answer says so, and the event goes the ordinary
//! way: to ask is never needed. docs/design/0008-filters.md, "PrefilterVerdict before staging".
//!
//! Invariant: an answer is good for one session, in one generation, in the window that the process
//! was in: all three stand in it, and whoever records by it compares them.

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

/// `TRACKWAY_ABI_UNWANTED`.
const UNWANTED: u64 = 0;
/// `TRACKWAY_ABI_UNASKED`.
const UNASKED: u64 = u64::MAX;

/// What sites find in their events.
pub(crate) static LIBRARY: Library =
    Library { size: size_of::<Library>() as u32, filtered: AtomicU32::new(0), ask, emit_asked };

/// That an event passes.
///
/// ```text
/// 01 | moves, 14 bits | generation, 43 bits | session, 5 bits
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrefilterVerdict {
    /// In which session.
    pub(crate) session: usize,
    /// In which generation.
    pub(crate) generation: u64,
    /// How often the process had moved, the lowest bits.
    moves: u64,
}

impl PrefilterVerdict {
    const SESSION_BITS: u32 = 5;
    const GENERATION_BITS: u32 = 43;
    const MOVES_BITS: u32 = 14;
    const MARK: u64 = 1 << 62;

    /// As a word, which is none of the other answers; `None`: it does not fit.
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

    /// Whether the process is where it was.
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
/// ([`crate::state::process::Process::decide`]), and notes for sites whether the session has
/// filters.
#[inline(always)] // a layout less on the stack of signal handlers
pub(crate) fn decide(mapped: &MappedWindow, session: usize) -> Option<SessionLayout> {
    let layout = PROCESS.decide(mapped, session);
    note_filters(session, &PROCESS.decisions[session % SESSIONS_MAX]);
    layout
}

/// Notes for sites whether a session has filters, as a decision about it says. Which of two that
/// are published at once is noted does not matter: it only decides who asks.
fn note_filters(session: usize, decision: &Decision) {
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

/// `trackway_abi_ask_fn` of include/trackway/abi/abi.h, which states the contract.
///
/// # Safety
/// As the C declaration says: `event` is registered, and found `LIBRARY` in it; `arguments` are
/// those of its fields.
unsafe extern "C" fn ask(event: *mut Event, arguments: *const Argument) -> u64 {
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
    // SAFETY: an event that has found the library in it is so long.
    let known = unsafe { (*event.cast::<AskingEvent>()).known.load(Ordering::Relaxed) };
    // SAFETY: the caller's arguments, of the event with this description.
    match unsafe { filters::judge_unstaged(session, enabled.word, arguments, known) } {
        FilterVerdict::Fails => UNWANTED,
        FilterVerdict::Unknown => UNASKED,
        FilterVerdict::Passes(generation) => {
            // A generation that does not fit is one beyond all that there will be.
            PrefilterVerdict { session, generation, moves }.to_word().unwrap_or(UNASKED)
        }
    }
}

/// `trackway_abi_emit_asked_fn` of include/trackway/abi/abi.h, which states the contract.
///
/// # Safety
/// As the C declaration says, and as [`fast_path::emit`]; `verdict` is what [`ask`] has answered.
unsafe extern "C" fn emit_asked(event: *mut Event, payload: *mut u8, size: usize, verdict: u64) {
    // SAFETY: the caller's promise is the same.
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
