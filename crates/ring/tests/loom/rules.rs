//! Rules that change while events are described, as `trackway_window`'s `rules` has it: whatever
//! the order of things, an event's bit is what the last rules say once the recorder has looked at
//! what libraries tell it, and a bit that the rules select is never off meanwhile.
//!
//! A model of the protocol, not of that code, which lives above this crate.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use crate::fixture::{fails, holds};

/// The mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A library that has set the bit does not look whether the rules are still those.
    NotAgain,
    /// No full fence between the library's bit and its second look.
    LibraryUnfenced,
    /// No full fence between what the recorder changes and its look at the bit.
    RecorderUnfenced,
    /// Rules are believed without a second look at their number.
    Torn,
    /// The number is odd too late: the bytes may be seen before it.
    OddLate,
    /// A library takes a bit back that it has set, where it finds it wrong.
    TakenBack,
    /// It moves a bit to the heir.
    MovedByOthers,
    /// It leaves a wrong bit, and does not tell the recorder.
    Untold,
    /// The recorder sets the heir's bit beside one that was set behind its back.
    LateLeft,
    /// The heir's bit is set beside the old one.
    BothBits,
    /// The decision is applied to whatever the word is by then.
    Blindly,
    /// The word is loaded without Acquire: what decides may be older than it.
    LoadedRelaxed,
}

/// Slots.
const SESSION: usize = 0;
const HEIR: usize = 1;
/// The session's bit in the enable word, and its successor's.
const OLD: u32 = 1 << SESSION;
const NEW: u32 = 1 << HEIR;
/// More than there are changes in a model, as in the product.
const TRIES_MAX: usize = 8;

#[derive(Default)]
struct Session {
    has_ended: AtomicU32,
    revision: AtomicU32,
    /// Rules of two bytes: both 1, they select the event; both 0, they do not.
    rules: [AtomicU32; 2],
    paused: AtomicU32,
    successor: AtomicU32,
}

/// The state that decides about a session's bits.
struct Standing {
    revision: u32,
    has_ended: bool,
    is_paused: bool,
    target: usize,
}

impl Standing {
    fn is_settled(&self) -> bool {
        !self.has_ended && self.revision & 1 == 0
    }
}

impl Session {
    /// Returns the decision of this revision's rules; `None` if they were rewritten meanwhile.
    fn selects(&self, revision: u32, wrong: Wrong) -> Option<bool> {
        let [first, second] = [0, 1].map(|byte: usize| self.rules[byte].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if wrong != Wrong::Torn && self.revision.load(Ordering::Relaxed) != revision {
            return None;
        }
        assert_eq!(first, second, "torn rules");
        Some(first == 1)
    }
}

#[derive(Default)]
struct Table {
    event_is_ready: AtomicU32,
    sessions: [Session; 2],
    enabled: AtomicU32,
    /// `events_revision`.
    news: AtomicU32,
}

impl Table {
    /// With a session whose rules select the event or not, and a successor that has none yet.
    fn new(selects: u32) -> Self {
        let table = Self::default();
        for byte in &table.sessions[SESSION].rules {
            byte.store(selects, Ordering::Relaxed);
        }
        table
    }

    fn standing(&self, slot: usize) -> Standing {
        let session = &self.sessions[slot];
        let revision = session.revision.load(Ordering::Acquire);
        let successor = session.successor.load(Ordering::Relaxed);
        let target = if successor == 0 { slot } else { HEIR };
        let has_ended = session.has_ended.load(Ordering::Acquire) != 0;
        let is_paused = session.paused.load(Ordering::Relaxed) != 0;
        Standing { revision, has_ended, is_paused, target }
    }

    /// The library: `intern_event`, then `enable_if_selected` for each slot.
    fn describe(&self, wrong: Wrong) {
        self.event_is_ready.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        for slot in [SESSION, HEIR] {
            assert!(self.enable_if_selected(slot, 0, TRIES_MAX, wrong), "more tries than changes");
        }
    }

    /// The bit that it has set before may be `own_bits`. Whether it was through with it in so many
    /// `tries`.
    fn enable_if_selected(
        &self,
        slot: usize,
        mut own_bits: u32,
        tries: usize,
        wrong: Wrong,
    ) -> bool {
        let is_relaxed = wrong == Wrong::LoadedRelaxed;
        let load = if is_relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        for _ in 0..tries {
            let word = self.enabled.load(load);
            let standing = self.standing(slot);
            let Some(wanted) = self.wanted(slot, &standing, wrong) else { continue };
            let late = if wanted == 0 { 0 } else { word & self.predecessors(standing.target) };
            let into = match wrong {
                Wrong::BothBits => word | wanted,
                Wrong::MovedByOthers if wanted != 0 => word & !late | wanted,
                Wrong::TakenBack => word & !(own_bits & !wanted) | wanted,
                _ if late != 0 => word,
                _ => word | wanted,
            };
            if into == word {
                let is_right = (word ^ wanted) & (own_bits | wanted) == 0;
                if !is_right && wrong != Wrong::Untold {
                    self.news.store(1, Ordering::Release);
                }
                return true;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_changed = if wrong == Wrong::Blindly {
                let next = |now| Some(now & !(word & !into) | into & !word);
                self.enabled.fetch_update(success, failure, next).is_ok()
            } else {
                self.enabled.compare_exchange(word, into, success, failure).is_ok()
            };
            if !is_changed {
                continue;
            }
            own_bits = (own_bits | wanted) & into;
            if wrong == Wrong::NotAgain {
                return true;
            }
            if wrong != Wrong::LibraryUnfenced {
                fence(Ordering::SeqCst);
            }
        }
        false
    }

    /// The bit of the slot that names this one as its successor.
    fn predecessors(&self, slot: usize) -> u32 {
        let session = &self.sessions[SESSION];
        let precedes = slot == HEIR
            && session.successor.load(Ordering::Relaxed) == 1
            && session.has_ended.load(Ordering::Relaxed) == 0;
        if precedes { OLD } else { 0 }
    }

    /// The bit that there must be; `None` if the rules are being rewritten at this moment.
    fn wanted(&self, slot: usize, standing: &Standing, wrong: Wrong) -> Option<u32> {
        if !standing.is_settled() {
            return Some(0);
        }
        let selects = self.sessions[slot].selects(standing.revision, wrong)?;
        Some(if selects && !standing.is_paused { 1 << standing.target } else { 0 })
    }

    /// The recorder: `set_rules`.
    fn set_rules(&self, slot: usize, selects: u32, wrong: Wrong) {
        let session = &self.sessions[slot];
        let odd = session.revision.load(Ordering::Relaxed) | 1;
        session.revision.store(odd, Ordering::Relaxed);
        if wrong != Wrong::OddLate {
            fence(Ordering::Release);
        }
        for byte in &session.rules {
            byte.store(selects, Ordering::Relaxed);
        }
        session.revision.store(odd + 1, Ordering::Release);
    }

    /// The recorder: `apply_rules`.
    fn apply(&self, slot: usize, wanted: bool, wrong: Wrong) {
        let bit = 1 << slot;
        if wrong != Wrong::RecorderUnfenced {
            fence(Ordering::SeqCst);
        }
        if wanted && self.event_is_ready.load(Ordering::Acquire) == 1 {
            let late = if wrong == Wrong::LateLeft { 0 } else { self.predecessors(slot) };
            let next = |word| Some(word & !late | bit);
            let _ = self.enabled.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        } else if !wanted && self.enabled.load(Ordering::Relaxed) & bit != 0 {
            self.enabled.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The recorder looks at the event because it was told to.
    fn check_revision(&self, wrong: Wrong) {
        if self.news.load(Ordering::Acquire) == 0 {
            return;
        }
        for slot in [SESSION, HEIR] {
            let standing = self.standing(slot);
            if !standing.has_ended && standing.target == slot {
                let wanted = self.wanted(slot, &standing, wrong);
                self.apply(slot, wanted.is_some_and(|bits| bits != 0), wrong);
            }
        }
    }

    /// Bits of sessions that have not ended: who has slept through an end may have left some.
    fn bits(&self) -> u32 {
        let has_ended = |slot: usize| self.sessions[slot].has_ended.load(Ordering::Acquire) != 0;
        let ended = u32::from(has_ended(SESSION)) * OLD | u32::from(has_ended(HEIR)) * NEW;
        self.enabled.load(Ordering::Acquire) & !ended
    }

    /// The recorder: `move_event`.
    fn move_event(&self, wrong: Wrong) {
        if wrong != Wrong::RecorderUnfenced {
            fence(Ordering::SeqCst);
        }
        let next = |word| (word & OLD != 0).then_some(word & !OLD | NEW);
        let _ = self.enabled.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }
}

/// The steps of a recorder.
type Work = fn(&Table, Wrong);

/// A library describes an event while the `recorder` works; the bits that there must be at the end.
fn meeting(selects: u32, expected: u32, wrong: Wrong, recorder: Work) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(selects));
        let library = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.describe(wrong))
        };
        recorder(&table, wrong);
        library.join().unwrap();
        table.check_revision(wrong);
        assert_eq!(table.bits(), expected, "a wrong bit");
    }
}

/// A library describes an event that is on, because the rules select it, or because it has just set
/// the bit for rules of before, and is stopped for good behind its exchange; once the recorder has
/// worked, the bit is `on`, and that does not change.
fn staying(selects: u32, on: u32, wrong: Wrong, recorder: Work) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(selects));
        table.event_is_ready.store(1, Ordering::Relaxed);
        table.enabled.store(OLD, Ordering::Relaxed);
        let library = {
            let table = Arc::clone(&table);
            let own_bits = if selects == 1 { 0 } else { OLD };
            thread::spawn(move || table.enable_if_selected(SESSION, own_bits, 1, wrong))
        };
        recorder(&table, wrong);
        assert_eq!(table.enabled.load(Ordering::Acquire) & on, on, "a bit is off");
        library.join().unwrap();
        assert_eq!(table.enabled.load(Ordering::Acquire) & on, on, "a bit was taken away");
    }
}

/// An event that was described before, and whose site is reached meanwhile: the site finds one bit
/// or the other, or none where the rules have not selected it `old_bit`.
fn passing(old_bit: u32, wrong: Wrong, recorder: Work) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(old_bit));
        table.event_is_ready.store(1, Ordering::Relaxed);
        table.enabled.store(if old_bit == 1 { OLD } else { 0 }, Ordering::Relaxed);
        let with = |work: fn(&Table, u32, Wrong)| {
            let table = Arc::clone(&table);
            thread::spawn(move || work(&table, old_bit, wrong))
        };
        let library = with(|table, _, wrong| table.describe(wrong));
        let site = with(|table, old_bit, _| {
            let word = table.enabled.load(Ordering::Acquire);
            let bits = word.count_ones();
            assert!(bits <= 1 && bits >= old_bit, "a wrong word");
        });
        recorder(&table, wrong);
        library.join().unwrap();
        site.join().unwrap();
        table.check_revision(wrong);
        assert_eq!(table.enabled.load(Ordering::Acquire), NEW, "a wrong bit");
    }
}

fn deselect(table: &Table, wrong: Wrong) {
    table.set_rules(SESSION, 0, wrong);
    table.apply(SESSION, false, wrong);
}

fn select(table: &Table, wrong: Wrong) {
    table.set_rules(SESSION, 1, wrong);
    table.apply(SESSION, true, wrong);
}

fn deselect_and_select(table: &Table, wrong: Wrong) {
    deselect(table, wrong);
    select(table, wrong);
}

fn pause(table: &Table, wrong: Wrong) {
    table.sessions[SESSION].paused.store(1, Ordering::Relaxed);
    table.apply(SESSION, false, wrong);
}

fn pause_and_go_on(table: &Table, wrong: Wrong) {
    pause(table, wrong);
    table.sessions[SESSION].paused.store(0, Ordering::Relaxed);
    table.apply(SESSION, true, wrong);
}

fn end(table: &Table, wrong: Wrong) {
    table.sessions[SESSION].has_ended.store(1, Ordering::Release);
    table.apply(SESSION, false, wrong);
}

fn succeed(table: &Table, wrong: Wrong) {
    table.sessions[SESSION].successor.store(1, Ordering::Relaxed);
    table.move_event(wrong);
    table.set_rules(HEIR, 1, wrong);
    table.apply(HEIR, true, wrong);
}

/// The old bit was set when the recorder had looked for bits to move.
fn succeed_behind_its_back(table: &Table, wrong: Wrong) {
    table.sessions[SESSION].successor.store(1, Ordering::Relaxed);
    table.set_rules(HEIR, 1, wrong);
    table.apply(HEIR, true, wrong);
}

fn succeed_and_end(table: &Table, wrong: Wrong) {
    succeed(table, wrong);
    end(table, wrong);
}

fn select_and_succeed(table: &Table, wrong: Wrong) {
    select(table, wrong);
    succeed(table, wrong);
}

/// A session with a successor ends, and another one takes its slot.
fn begin_anew(table: &Table, wrong: Wrong) {
    let session = &table.sessions[SESSION];
    session.successor.store(1, Ordering::Relaxed);
    end(table, wrong);
    session.successor.store(0, Ordering::Relaxed);
    session.has_ended.store(0, Ordering::Release);
    table.apply(SESSION, true, wrong);
}

/// The successor is given other rules as soon as it is alone.
fn succeed_and_deselect(table: &Table, wrong: Wrong) {
    succeed_and_end(table, wrong);
    table.set_rules(HEIR, 0, wrong);
    table.apply(HEIR, false, wrong);
}

#[test]
fn the_last_rules_win() {
    holds(meeting(1, 0, Wrong::Nothing, deselect));
    holds(meeting(0, OLD, Wrong::Nothing, select));
    holds(meeting(1, OLD, Wrong::Nothing, deselect_and_select));
}

#[test]
fn a_pause_leaves_no_bit_and_its_end_sets_them() {
    holds(meeting(1, 0, Wrong::Nothing, pause));
    holds(meeting(1, OLD, Wrong::Nothing, pause_and_go_on));
}

#[test]
fn a_successor_has_every_bit() {
    holds(meeting(1, NEW, Wrong::Nothing, succeed));
    holds(meeting(1, NEW, Wrong::Nothing, succeed_and_end));
}

#[test]
fn a_site_finds_one_bit_or_the_other() {
    holds(passing(1, Wrong::Nothing, succeed));
    holds(passing(0, Wrong::Nothing, select_and_succeed));
    holds(passing(1, Wrong::Nothing, succeed_behind_its_back));
}

#[test]
fn a_session_that_ended_leaves_its_successor_what_that_ones_rules_say() {
    holds(meeting(1, 0, Wrong::Nothing, end));
    holds(meeting(1, 0, Wrong::Nothing, succeed_and_deselect));
}

#[test]
fn a_bit_that_is_on_stays_on() {
    holds(staying(1, OLD, Wrong::Nothing, deselect_and_select));
    holds(staying(0, OLD, Wrong::Nothing, select));
    holds(staying(1, OLD, Wrong::Nothing, pause_and_go_on));
    holds(staying(1, NEW, Wrong::Nothing, succeed));
    holds(staying(1, OLD, Wrong::Nothing, begin_anew));
}

#[test]
fn a_bit_that_is_taken_away_is_caught() {
    fails(staying(0, OLD, Wrong::TakenBack, select));
    fails(staying(1, OLD, Wrong::MovedByOthers, begin_anew));
}

#[test]
fn a_wrong_bit_that_nobody_is_told_of_is_caught() {
    fails(meeting(1, 0, Wrong::Untold, deselect));
    fails(meeting(1, 0, Wrong::Untold, pause));
}

#[test]
fn two_bits_at_once_are_caught() {
    fails(passing(1, Wrong::BothBits, succeed));
    fails(passing(0, Wrong::Blindly, select_and_succeed));
    fails(passing(0, Wrong::LoadedRelaxed, select_and_succeed));
    fails(passing(1, Wrong::LateLeft, succeed_behind_its_back));
}

#[test]
fn a_missing_second_look_is_caught() {
    fails(meeting(1, 0, Wrong::NotAgain, deselect));
    fails(meeting(1, 0, Wrong::NotAgain, pause));
}

#[test]
fn a_missing_fence_is_caught() {
    for wrong in [Wrong::LibraryUnfenced, Wrong::RecorderUnfenced] {
        fails(meeting(1, 0, wrong, deselect));
        fails(meeting(1, 0, wrong, pause));
    }
    fails(meeting(0, OLD, Wrong::RecorderUnfenced, select));
}

#[test]
fn rules_believed_too_early_are_caught() {
    fails(meeting(1, OLD, Wrong::Torn, deselect_and_select));
    fails(meeting(1, OLD, Wrong::OddLate, deselect_and_select));
}
