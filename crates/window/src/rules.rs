//! The rules of a session and its enable bits, while the rules change.
//!
//! **Who writes.** Only the session's recorder writes its rules, their revision, its state, flags
//! and successor. The recorder and every library that registers an event set bits in enable words,
//! at any moment, each by one atomic operation. *Only the recorder clears bits*; the exception is
//! [`Window::clear_bit_unless`], for sessions without a recorder.
//!
//! **Why the last rules win.** The recorder changes the selection state (rules, [`flag::PAUSED`],
//! state, successor), *then* corrects the bit of every event. A library makes its event READY,
//! reads the selection state, sets the bit if it must, *then* reads the state again. Both have a
//! full fence between their two steps, and so (Dekker):
//!
//! - the recorder finds every event whose library has read the old state;
//! - a bit that was set for the old state is either found and corrected by the recorder, or its
//!   setter finds the change and raises `events_revision`. The recorder checks that number ten
//!   times a second, and corrects every event if it has changed: so the bit is right soon.
//!
//! **Why no event is lost meanwhile.** A word does not show when a bit was set, nor for which
//! session in the slot. A library may be stopped for any time between its reads and its exchange.
//! Meanwhile values may change and change back, and the slot may get another session and other
//! rules. A further check does not help: the library may be stopped after it. So a library does
//! nothing that would be wrong for a later session in the slot: a surplus bit causes unwanted
//! records until the recorder's next check; a missing bit loses records, uncounted. Hence the
//! invariant: *once a bit is set that the rules of its slot select, it stays set until the recorder
//! of that slot decides otherwise.* The invariant follows from which code clears bits, not from who
//! reads what and when. (Even a bit that a library has just set and knows to be wrong must stay:
//! the recorder may have found it set, and relied on it.)
//!
//! This process ends: a library notifies at most once for each event and slot, and a recorder's
//! check sends no notification. A library need not wait while rules are rewritten, because their
//! recorder corrects the event afterwards. Nor does it retry without bound: a library that
//! repeatedly finds changed rules also leaves the event to the recorder.
//!
//! **Why no event has two bits for one channel,** which sites would record twice. A library loads
//! the word, *then* reads the selection state, and changes the word by one exchange, which fails if
//! the word has changed since the load. If the recorder changed the word before the load, the
//! library reads the state that caused the change (Acquire). If it changes the word afterwards, the
//! exchange fails, and the library decides again. So a delayed library cannot set a session's bit
//! beside the successor's, to which the recorder has moved the event meanwhile. If the word has a
//! predecessor's bit, the library sets none beside it, and notifies. That bit may have been set
//! after the recorder looked for bits to move: then [`Window::apply_rules`] moves it, by one
//! exchange. (A library whose word has changed and changed back may set a second bit after all: the
//! event can be recorded twice until the recorder's next check.)
//!
//! **Bits of ended sessions.** The recorder has cleared them, twice, and does not check again. A
//! delayed library may set one later, and it stays. Sites then pay for nothing until the slot is
//! taken again; likewise if a library is killed between setting a bit and its second read.
//!
//! **The rules' bytes** are under a sequence count, `rules_revision`: odd while they change. A
//! reader copies them between two loads of the same even number.
//!
//! **A session with a successor** hands over to another slot, bit by bit. An event that is
//! registered meanwhile gets the successor's bit by the old session's rules. So the successor has
//! no rules before all bits are moved; otherwise an event could have both bits:
//!
//! 1. the successor becomes ACTIVE, with no rules;
//! 2. the old session's `successor` names it: one store, after which no library sets the old bit;
//! 3. [`Window::move_event`] for every event;
//! 4. [`Window::set_rules`] and [`Window::apply_rules`] for the successor, with the old session's
//!    rules: this moves bits set after step 3. The old session ends, and only then may the
//!    successor get other rules.
//!
//! `crates/ring/tests/loom/rules.rs` has models of this. The sequence count is the kernel's
//! (Documentation/locking/seqlock.rst), its fences those of Boehm, "Can seqlocks get along with
//! programming language memory models?" (2012).

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};

use trackway_abi::session::{RULES_BYTES_MAX, SESSIONS_MAX, Session, flag, state};
use trackway_schema::{Heading, Rules};

use crate::{SessionLayout, Window};

/// Most decisions of a library before it leaves the event to the recorder. A repetition needs a
/// complete change of rules by a recorder, or a change of another bit of the same word.
const TRIES_MAX: usize = 64;
/// Most attempts to exchange bits, by the recorder, or by a library that finds it dead.
const EXCHANGES_MAX: usize = 1000;
/// Value that replaces words of a window that the process has left (`RETARGET` of
/// `agent::state::event_archive`). It stands for no sessions, and no bit in it is cleared. (If all
/// 32 sessions enable an event, a writer therefore clears none of their bits.)
const LEFT_WINDOW_WORD: u32 = u32::MAX;

/// State that decides about a session's bits, in addition to the rules' bytes.
#[derive(Debug, Clone, Copy)]
struct SelectionState {
    revision: u32,
    /// Slot whose bit a selected event gets: the session's slot, or its successor's.
    target: usize,
    /// True if bits may be set.
    is_open: bool,
}

impl SelectionState {
    fn of(window: &Window, slot: usize) -> Self {
        let is_active = |session: &Session| {
            // ORDERING: Acquire pairs with the recorder's store of ACTIVE: the rest is complete.
            session.state.load(Ordering::Acquire) == state::ACTIVE
        };
        let is_paused =
            |session: &Session| session.flags.load(Ordering::Relaxed) & flag::PAUSED != 0;
        let session = window.session(slot);
        // ORDERING: Acquire pairs with the Release of the even number in `set_rules`.
        let revision = session.rules_revision.load(Ordering::Acquire);
        let successor = session.successor.load(Ordering::Relaxed);
        let target = successor.checked_sub(1).map_or(slot, |heir| heir as usize % SESSIONS_MAX);
        let heir = window.session(target);
        Self {
            revision,
            target,
            is_open: is_active(session)
                && !is_paused(session)
                && (target == slot || is_active(heir) && !is_paused(heir)),
        }
    }

    /// Returns true if the rules are being rewritten.
    const fn is_changing(self) -> bool {
        self.revision & 1 != 0
    }
}

impl Window {
    /// Sets the rules of session `slot`, as `trackway_schema::Rules` reads them. Returns false and
    /// keeps the old rules if `text` exceeds `RULES_BYTES_MAX`. Only the recorder calls it, then
    /// [`Self::apply_rules`] for every event. Also works after a recorder that died in here.
    pub fn set_rules(&self, slot: usize, text: &[u8]) -> bool {
        if text.len() > RULES_BYTES_MAX {
            return false;
        }
        let session = self.session(slot);
        let odd = session.rules_revision.load(Ordering::Relaxed) | 1;
        session.rules_revision.store(odd, Ordering::Relaxed);
        // ORDERING: Release keeps the odd number before the bytes, for readers that find any of
        // them; pairs with the Acquire fence in `selects`.
        fence(Ordering::Release);
        for (place, &byte) in session.rules.iter().zip(text) {
            place.store(byte, Ordering::Relaxed);
        }
        session.rules_bytes.store(text.len() as u32, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `SelectionState::of`: the bytes belong to it.
        session.rules_revision.store(odd.wrapping_add(1), Ordering::Release);
        // ORDERING: SeqCst, the recorder's half of the module's Dekker argument.
        fence(Ordering::SeqCst);
        true
    }

    /// Returns true if the rules of session `slot` select an event; `None` if the rules have
    /// another revision, or were rewritten meanwhile.
    fn selects(&self, slot: usize, revision: u32, heading: &Heading<'_>) -> Option<bool> {
        let session = self.session(slot);
        let mut text = [0_u8; RULES_BYTES_MAX];
        let length = (session.rules_bytes.load(Ordering::Relaxed) as usize).min(RULES_BYTES_MAX);
        copy_shared_bytes(&session.rules, &mut text[..length]);
        // ORDERING: Acquire keeps the loads of the bytes before this second check; see `set_rules`.
        fence(Ordering::Acquire);
        let is_whole = session.rules_revision.load(Ordering::Relaxed) == revision;
        let selects =
            || Rules::new(&text[..length]).selects(heading.provider, heading.name, heading.level);
        is_whole.then(selects)
    }

    /// Enables event `index` (with this heading) in the session of `layout`, or in its successor,
    /// if the session's rules select it now: takes an id, then sets the bit. Returns true if the
    /// event is enabled now.
    ///
    /// For the library, about an event that it has registered; repeated calls are harmless. Any
    /// thread or process may call it, also in a signal handler; no system call; 3 KiB of stack.
    pub fn enable_if_selected(
        &self,
        layout: &SessionLayout,
        index: usize,
        heading: &Heading<'_>,
    ) -> bool {
        self.settle_bit(layout.index, index, heading, &mut || {})
    }

    /// Implements [`Self::enable_if_selected`]. Calls `meanwhile`, for tests, between reading
    /// shared values and acting on them.
    #[cold]
    #[inline(never)] // keeps its stack out of its callers' usual path
    fn settle_bit(
        &self,
        slot: usize,
        index: usize,
        heading: &Heading<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> bool {
        let enabled = &self.event(index).enabled;
        // `ours`: the bit that this call has set; `last_answer`: the last result of the rules.
        let (mut ours, mut last_answer) = (0, None);
        for _ in 0..TRIES_MAX {
            // ORDERING: Acquire, before the state: a reader of a recorder's word finds the state
            // behind it. Pairs with the Release in all changes of bits.
            let word = enabled.load(Ordering::Acquire);
            let standing = SelectionState::of(self, slot);
            let Some(wanted) =
                self.required_bit(slot, standing, (index, heading), &mut last_answer)
            else {
                continue;
            };
            meanwhile();
            let is_replaced = wanted != 0 && word & self.predecessors(standing.target) != 0;
            let into = if is_replaced { word } else { word | wanted };
            if into == word {
                if (word ^ wanted) & (ours | wanted) != 0 {
                    break;
                }
                return wanted != 0;
            }
            // ORDERING: as in `set_bits`.
            let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
            if enabled.compare_exchange(word, into, success, failure).is_ok() {
                ours |= wanted;
                // ORDERING: SeqCst, the library's half of the module's Dekker argument.
                fence(Ordering::SeqCst);
            }
        }
        // The word is wrong, or its right value is unknown: the recorder must decide.
        // ORDERING: Release: a reader of this revision also finds the bit.
        self.header().events_revision.fetch_add(1, Ordering::Release);
        false
    }

    /// Returns the bits of active slots of the same trace whose successor is this slot.
    fn predecessors(&self, slot: usize) -> u32 {
        let trace = |slot: usize| {
            self.session(slot).trace_uuid.each_ref().map(|half| half.load(Ordering::Relaxed))
        };
        let precedes = |&of: &usize| {
            let session = self.session(of);
            of != slot
                && session.successor.load(Ordering::Relaxed) == slot as u32 + 1
                && session.state.load(Ordering::Relaxed) == state::ACTIVE
                && trace(of) == trace(slot)
        };
        (0..SESSIONS_MAX).filter(precedes).fold(0, |bits, slot| bits | bit_of(slot))
    }

    /// Returns the bit that the state of slot `slot` requires for an event, and ensures its id: the
    /// session's bit, its successor's, or none. `None` if the state has just changed. Keeps the
    /// last result of the rules: slot, revision, and true if they select the event.
    fn required_bit(
        &self,
        slot: usize,
        standing: SelectionState,
        (index, heading): (usize, &Heading<'_>),
        last_answer: &mut Option<(usize, u32, bool)>,
    ) -> Option<u32> {
        if !standing.is_open || standing.is_changing() {
            return Some(0);
        }
        let is_same = |&(of, revision, _): &(usize, u32, bool)| {
            (of, revision) == (slot, standing.revision) // slot and revision identify the rules
        };
        let (.., selects) = match last_answer.filter(is_same) {
            Some(answer) => answer,
            None => {
                let selects = self.selects(slot, standing.revision, heading)?;
                *last_answer.insert((slot, standing.revision, selects))
            }
        };
        if !selects {
            return Some(0);
        }
        // After the selection state: the id is of the same session in the slot, or of a later one.
        let target = SessionLayout::read(self, standing.target)?;
        self.ensure_id(&target, index);
        Some(bit_of(standing.target))
    }

    /// Clears the bit of event `index` in session `slot`; if `stays` returns true afterwards, the
    /// rules decide again. For writers that find the session's recorder dead; any thread or process
    /// may call it, also in a signal handler.
    #[cold]
    #[inline(never)] // keeps its stack out of its callers' usual path
    pub fn clear_bit_unless(&self, slot: usize, index: usize, stays: impl FnOnce() -> bool) {
        let bit = bit_of(slot);
        let is_set = |word: u32| word & bit != 0 && word != LEFT_WINDOW_WORD;
        // The exchange is SeqCst for `stays`, which checks for a recorder that has come back: that
        // recorder first renews its lease, then sets the bits (Dekker).
        if exchange_bits(&self.event(index).enabled, bit, 0, is_set) == Some(true) && stays() {
            self.settle_described_event(slot, index);
        }
    }

    /// Enables a registered event whose description the caller does not have, like
    /// [`Self::enable_if_selected`].
    #[cold]
    #[inline(never)] // keeps its stack out of its callers' usual path
    fn settle_described_event(&self, slot: usize, index: usize) {
        let mut beginning = [0; Heading::BYTES_MAX];
        if let Some(heading) = self.read_heading(index, &mut beginning) {
            self.settle_bit(slot, index, &heading, &mut || {});
        }
    }

    /// Makes the bit of event `index` match the rules of the session of `layout`. The session's
    /// recorder alone calls it: after [`Self::set_rules`], pauses, changes of process rules, and
    /// changes of `events_revision`. Returns true if the bit is set now. Does nothing after a
    /// handover.
    pub fn apply_rules(&self, layout: &SessionLayout, index: usize) -> bool {
        // ORDERING: SeqCst, the recorder's half of the module's Dekker argument.
        fence(Ordering::SeqCst);
        let mut beginning = [0; Heading::BYTES_MAX];
        let standing = SelectionState::of(self, layout.index);
        if standing.target != layout.index {
            return false;
        }
        let wanted = standing.is_open
            && self.read_heading(index, &mut beginning).is_some_and(|heading| {
                self.selects(layout.index, standing.revision, &heading) == Some(true)
            });
        let (enabled, bit) = (&self.event(index).enabled, bit_of(layout.index));
        if wanted {
            self.ensure_id(layout, index);
            let late = self.predecessors(layout.index);
            let is_due = |word: u32| word & (late | bit) != bit;
            if late == 0 || exchange_bits(enabled, late, bit, is_due).is_none() {
                set_bits(enabled, bit);
            }
        } else if enabled.load(Ordering::Relaxed) & bit != 0 {
            // A load of the word by Acquire finds the selection state, by the fence above.
            enabled.fetch_and(!bit, Ordering::Relaxed);
        }
        wanted
    }

    /// Moves event `index` from session `from` to its successor, which `to` describes: a site finds
    /// one of the two bits in the enable word. Returns true if the event was enabled in `from`.
    /// Only the recorder of both calls it, in the order that the module's documentation gives.
    pub fn move_event(&self, index: usize, from: usize, to: &SessionLayout) -> bool {
        // ORDERING: SeqCst, the recorder's half of the module's Dekker argument.
        fence(Ordering::SeqCst);
        let enabled = &self.event(index).enabled;
        let (old, new) = (bit_of(from), bit_of(to.index));
        let is_set = |word: u32| word & old != 0;
        if !is_set(enabled.load(Ordering::Relaxed)) {
            return false;
        }
        self.ensure_id(to, index);
        exchange_bits(enabled, old, new, is_set).unwrap_or_else(|| {
            // Another process changes the word all the time. The new bit comes first: a duplicate
            // record is better than a lost one.
            set_bits(enabled, new);
            enabled.fetch_and(!old, Ordering::Relaxed);
            true
        })
    }

    /// Gives event `index` an id in the session of `layout`, if it has none.
    fn ensure_id(&self, layout: &SessionLayout, index: usize) {
        let id = layout.id(self, index);
        if id.load(Ordering::Relaxed) == 0 {
            let session = self.session(layout.index);
            let taken = session.next_id.fetch_add(1, Ordering::Relaxed);
            // If another process was first, this number is a gap; if the counter was overwritten,
            // it may be 0.
            // ORDERING: Release, so that a recorder that sees records with this id (published by
            // the commit store) finds it in the table; the partner is its Acquire scan.
            let _ =
                id.compare_exchange(0, taken.wrapping_add(1), Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// Returns a session's bit in enable words.
const fn bit_of(slot: usize) -> u32 {
    1 << (slot % SESSIONS_MAX)
}

fn set_bits(enabled: &AtomicU32, bits: u32) {
    // ORDERING: a site that sees the bit finds the id; SeqCst because a recorder that comes back
    // renews its lease first (see `disable_if_lease_expired` in the agent).
    enabled.fetch_or(bits, Ordering::SeqCst);
}

/// Clears bits and sets others in one operation if `is_right` accepts the word. Returns true if it
/// did; `None` if other processes change the word all the time.
fn exchange_bits(
    enabled: &AtomicU32,
    old: u32,
    new: u32,
    is_right: impl Fn(u32) -> bool,
) -> Option<bool> {
    for _ in 0..EXCHANGES_MAX {
        let word = enabled.load(Ordering::Relaxed);
        if !is_right(word) {
            return Some(false);
        }
        // ORDERING: as in `set_bits`.
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        if enabled.compare_exchange(word, word & !old | new, success, failure).is_ok() {
            return Some(true);
        }
    }
    None
}

/// Copies bytes of shared memory, up to the length of the shorter slice.
fn copy_shared_bytes(from: &[AtomicU8], into: &mut [u8]) {
    for (byte, shared) in into.iter_mut().zip(from) {
        *byte = shared.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// Steps of other processes between a library's read of the state and its exchange, one for
    /// each attempt.
    type Meanwhile<'fixture> = &'fixture dyn Fn();

    /// Registers an event for slot 4 like a library; other processes run `meanwhile`.
    fn describe_event(fixture: &Fixture, index: usize, meanwhile: &[Meanwhile<'_>]) -> bool {
        let mut beginning = [0; Heading::BYTES_MAX];
        let heading = fixture.window.read_heading(index, &mut beginning).expect("an event");
        let mut turns = meanwhile.iter();
        fixture.window.settle_bit(4, index, &heading, &mut || {
            if let Some(others) = turns.next() {
                others();
            }
        })
    }

    /// Hands the event over from session 4 to session 5 like a recorder, except for the rules.
    fn pass_to_successor(fixture: &Fixture, index: usize) -> SessionLayout {
        let heir = fixture.session(5, "");
        fixture.window.session(4).successor.store(5 + 1, Ordering::Relaxed);
        fixture.window.move_event(index, 4, &heir);
        heir
    }

    fn end_session(fixture: &Fixture, index: usize) {
        fixture.window.session(4).state.store(state::ENDING, Ordering::Relaxed);
        fixture.window.event(index).enabled.fetch_and(!bit_of(4), Ordering::Relaxed);
    }

    #[test]
    fn a_library_that_slept_sets_no_bit_beside_that_of_a_successor() {
        let fixture = Fixture::new("beside");
        let old = fixture.session(4, "");
        let (index, _) = fixture.describe(&old, "request");
        fixture.window.set_rules(4, b"app:*");
        let moved = || {
            assert!(fixture.window.apply_rules(&old, index));
            pass_to_successor(&fixture, index);
        };
        let looked = || assert_eq!(fixture.bits(index), 1 << 5, "a site would record it twice");
        assert!(describe_event(&fixture, index, &[&moved, &looked, &looked]));
        assert_eq!(fixture.bits(index), 1 << 5);
    }

    /// Returns the count that rises when a library leaves an event to the recorder.
    fn events_revision(fixture: &Fixture) -> u32 {
        fixture.window.header().events_revision.load(Ordering::Relaxed)
    }

    #[test]
    fn a_bit_that_is_to_go_to_a_successor_is_left_to_the_recorder() {
        let fixture = Fixture::new("behind");
        let old = fixture.session(4, "app:*");
        let (index, _) = fixture.describe(&old, "request");
        let heir = fixture.session(5, "");
        fixture.window.session(4).successor.store(5 + 1, Ordering::Relaxed);
        // The recorder has not moved this event yet.
        let before = events_revision(&fixture);
        assert!(!describe_event(&fixture, index, &[]));
        assert_eq!((fixture.bits(index), events_revision(&fixture)), (1 << 4, before + 1));
        assert!(fixture.window.move_event(index, 4, &heir));
        assert_eq!(fixture.bits(index), 1 << 5);
        assert_ne!(fixture.id(&heir, index), 0);
    }

    #[test]
    fn a_bit_that_was_set_behind_the_recorders_back_is_moved_with_the_rules() {
        let fixture = Fixture::new("late");
        let old = fixture.session(4, "");
        let (index, _) = fixture.describe(&old, "request");
        fixture.window.set_rules(4, b"app:*");
        let pass_on = || {
            pass_to_successor(&fixture, index);
        };
        assert!(!describe_event(&fixture, index, &[&pass_on]));
        assert_eq!(fixture.bits(index), 1 << 4, "one bit, and a site records it once");
        let heir = SessionLayout::read(&fixture.window, 5).expect("a session");
        assert!(!fixture.window.apply_rules(&old, index), "it is not the old one's any more");
        fixture.window.set_rules(5, b"app:*");
        // A library that registers it between rules and bit sets no second bit either.
        let mut beginning = [0; Heading::BYTES_MAX];
        let heading = fixture.window.read_heading(index, &mut beginning).expect("an event");
        assert!(!fixture.window.enable_if_selected(&heir, index, &heading));
        assert_eq!(fixture.bits(index), 1 << 4);
        assert!(fixture.window.apply_rules(&heir, index));
        assert_eq!(fixture.bits(index), 1 << 5);
    }

    #[test]
    fn another_traces_slot_is_no_predecessor() {
        let fixture = Fixture::new("stranger");
        let old = fixture.session(4, "app:*");
        let (index, _) = fixture.describe(&old, "request");
        let other = fixture.session(5, "app:*");
        fixture.window.session(5).trace_uuid[0].store(9, Ordering::Relaxed);
        fixture.window.session(4).successor.store(5 + 1, Ordering::Relaxed);
        assert!(fixture.window.apply_rules(&other, index));
        assert_eq!(fixture.bits(index), 1 << 4 | 1 << 5);
    }

    #[test]
    fn a_bit_that_the_rules_select_anew_stays() {
        let fixture = Fixture::new("anew");
        let session = fixture.session(4, "");
        let (index, _) = fixture.describe(&session, "request");
        fixture.window.set_rules(4, b"app:*");
        let deselected = || assert!(fixture.window.set_rules(4, b""));
        let anew = || {
            fixture.window.set_rules(4, b"app:*");
            assert!(fixture.window.apply_rules(&session, index), "it is on already");
        };
        // The library sets its bit, finds it wrong, and is stopped; then it is right again.
        let before = events_revision(&fixture);
        describe_event(&fixture, index, &[&deselected, &anew]);
        assert_eq!((fixture.bits(index), events_revision(&fixture)), (1 << 4, before + 1));
    }

    #[test]
    fn a_bit_of_another_life_of_the_slot_stays() {
        let fixture = Fixture::new("another");
        let old = fixture.session(4, "app:*");
        let (index, _) = fixture.describe(&old, "request");
        fixture.session(5, "");
        fixture.window.session(4).successor.store(5 + 1, Ordering::Relaxed);
        // The library finds a bit that must move to the successor, and is stopped. Then slot 4 has
        // another session, without successor, that records the event.
        let others = || {
            end_session(&fixture, index);
            fixture.session(4, "app:*");
            fixture.window.session(4).successor.store(0, Ordering::Relaxed);
            let layout = SessionLayout::read(&fixture.window, 4).expect("a session");
            assert!(fixture.window.apply_rules(&layout, index));
        };
        describe_event(&fixture, index, &[&others]);
        assert_ne!(fixture.bits(index) & 1 << 4, 0, "the other session's events are lost");
    }

    #[test]
    fn a_wrong_bit_is_left_to_the_recorder() {
        let fixture = Fixture::new("wrong");
        let session = fixture.session(4, "");
        let (index, _) = fixture.describe(&session, "request");
        fixture.window.set_rules(4, b"app:*");
        let deselected = || assert!(fixture.window.set_rules(4, b""));
        let before = events_revision(&fixture);
        assert!(!describe_event(&fixture, index, &[&deselected]));
        assert_eq!((fixture.bits(index), events_revision(&fixture)), (1 << 4, before + 1));
        assert!(!fixture.window.apply_rules(&session, index));
        assert_eq!(fixture.bits(index), 0);
        // If nothing is wrong, the library does not notify the recorder.
        assert!(!describe_event(&fixture, index, &[]));
        assert_eq!((fixture.bits(index), events_revision(&fixture)), (0, before + 1));
    }

    #[test]
    fn a_session_that_ended_gets_no_bit_where_the_word_has_changed() {
        let fixture = Fixture::new("ended");
        let old = fixture.session(4, "");
        let (index, _) = fixture.describe(&old, "request");
        fixture.window.set_rules(4, b"app:*");
        let others = || {
            fixture.window.event(index).enabled.fetch_or(1 << 9, Ordering::Relaxed);
            end_session(&fixture, index);
        };
        assert!(!describe_event(&fixture, index, &[&others]));
        assert_eq!(fixture.bits(index), 1 << 9);
    }

    #[test]
    fn nothing_is_taken_from_what_stands_for_a_window_that_was_left() {
        let fixture = Fixture::new("left");
        let session = fixture.session(4, "app:*");
        let (index, _) = fixture.describe(&session, "request");
        let enabled = &fixture.window.event(index).enabled;
        enabled.store(0, Ordering::Relaxed);
        let left = || enabled.store(LEFT_WINDOW_WORD, Ordering::Relaxed);
        describe_event(&fixture, index, &[&left]);
        assert_eq!(enabled.load(Ordering::Relaxed), LEFT_WINDOW_WORD);
        fixture.window.clear_bit_unless(4, index, || true);
        assert_eq!(enabled.load(Ordering::Relaxed), LEFT_WINDOW_WORD);
    }
}
