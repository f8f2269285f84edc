//! Rules that change while events are described, as in `rules` of `trackway_window`. For every
//! interleaving, an event's bit matches the last rules once the recorder has handled the libraries'
//! notifications. A bit that the rules select is never off meanwhile.
//!
//! This is a model of the protocol, not of its code, which lives above this crate.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use crate::fixture::{assert_model_fails, assert_model_holds};

/// The mistake that a library or the recorder makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleMistake {
    Nothing,
    /// A library that has set the bit does not check that the rules are unchanged.
    NotAgain,
    /// There is no full fence between the library's bit and its second load.
    LibraryUnfenced,
    /// There is no full fence between the recorder's change and its load of the bit.
    RecorderUnfenced,
    /// Rules are used without a second load of their revision.
    Torn,
    /// The revision becomes odd too late: the bytes may be visible before it.
    OddLate,
    /// A library clears a bit that it has set, if the bit is wrong.
    TakenBack,
    /// A library moves a bit to the successor.
    MovedByOthers,
    /// A library leaves a wrong bit, and does not notify the recorder.
    Untold,
    /// The recorder sets the successor's bit beside a bit that a library set meanwhile.
    LateLeft,
    /// The recorder sets the successor's bit beside the old one.
    BothBits,
    /// The decision is applied to any later value of the word.
    Blindly,
    /// The word is loaded without Acquire: the data for the decision may be older.
    LoadedRelaxed,
}

/// Slots of the session and of its successor.
const SESSION: usize = 0;
const SUCCESSOR: usize = 1;
/// Bits of the session and of its successor in the enable word.
const SESSION_BIT: u32 = 1 << SESSION;
const SUCCESSOR_BIT: u32 = 1 << SUCCESSOR;
/// Maximum number of tries: more than the changes of a model, as in the product.
const TRIES_MAX: usize = 8;

#[derive(Default)]
struct Session {
    has_ended: AtomicU32,
    revision: AtomicU32,
    /// Rules of two bytes: both 1 select the event; both 0 do not.
    rules: [AtomicU32; 2],
    paused: AtomicU32,
    successor: AtomicU32,
}

/// State of a session, which decides whether its bits in events' enable words are set.
struct SessionState {
    revision: u32,
    has_ended: bool,
    is_paused: bool,
    target: usize,
}

impl SessionState {
    fn is_settled(&self) -> bool {
        !self.has_ended && self.revision & 1 == 0
    }
}

impl Session {
    /// Returns the decision of this revision's rules; `None` if they were rewritten meanwhile.
    fn selects(&self, revision: u32, wrong: RuleMistake) -> Option<bool> {
        let [first, second] = [0, 1].map(|byte: usize| self.rules[byte].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if wrong != RuleMistake::Torn && self.revision.load(Ordering::Relaxed) != revision {
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
    /// The window's `events_revision`.
    news: AtomicU32,
}

impl Table {
    /// Makes a session whose rules select the event or not, and a successor without rules.
    fn new(selects: u32) -> Self {
        let table = Self::default();
        for byte in &table.sessions[SESSION].rules {
            byte.store(selects, Ordering::Relaxed);
        }
        table
    }

    fn standing(&self, slot: usize) -> SessionState {
        let session = &self.sessions[slot];
        let revision = session.revision.load(Ordering::Acquire);
        let successor = session.successor.load(Ordering::Relaxed);
        let target = if successor == 0 { slot } else { SUCCESSOR };
        let has_ended = session.has_ended.load(Ordering::Acquire) != 0;
        let is_paused = session.paused.load(Ordering::Relaxed) != 0;
        SessionState { revision, has_ended, is_paused, target }
    }

    /// Models a library: `intern_event`, then `enable_if_selected` for each slot.
    fn describe(&self, wrong: RuleMistake) {
        self.event_is_ready.store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        for slot in [SESSION, SUCCESSOR] {
            assert!(self.enable_if_selected(slot, 0, TRIES_MAX, wrong), "more tries than changes");
        }
    }

    /// `own_bits` is the bit that this call may have set before. Returns true if it finished within
    /// `tries`.
    fn enable_if_selected(
        &self,
        slot: usize,
        mut own_bits: u32,
        tries: usize,
        wrong: RuleMistake,
    ) -> bool {
        let is_relaxed = wrong == RuleMistake::LoadedRelaxed;
        let load = if is_relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        for _ in 0..tries {
            let word = self.enabled.load(load);
            let standing = self.standing(slot);
            let Some(wanted) = self.wanted(slot, &standing, wrong) else { continue };
            let late = if wanted == 0 { 0 } else { word & self.predecessors(standing.target) };
            let into = match wrong {
                RuleMistake::BothBits => word | wanted,
                RuleMistake::MovedByOthers if wanted != 0 => word & !late | wanted,
                RuleMistake::TakenBack => word & !(own_bits & !wanted) | wanted,
                _ if late != 0 => word,
                _ => word | wanted,
            };
            if into == word {
                let is_right = (word ^ wanted) & (own_bits | wanted) == 0;
                if !is_right && wrong != RuleMistake::Untold {
                    self.news.store(1, Ordering::Release);
                }
                return true;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_changed = if wrong == RuleMistake::Blindly {
                let next = |now| Some(now & !(word & !into) | into & !word);
                self.enabled.fetch_update(success, failure, next).is_ok()
            } else {
                self.enabled.compare_exchange(word, into, success, failure).is_ok()
            };
            if !is_changed {
                continue;
            }
            own_bits = (own_bits | wanted) & into;
            if wrong == RuleMistake::NotAgain {
                return true;
            }
            if wrong != RuleMistake::LibraryUnfenced {
                fence(Ordering::SeqCst);
            }
        }
        false
    }

    /// Returns the bit of the slot that names this slot as its successor.
    fn predecessors(&self, slot: usize) -> u32 {
        let session = &self.sessions[SESSION];
        let precedes = slot == SUCCESSOR
            && session.successor.load(Ordering::Relaxed) == 1
            && session.has_ended.load(Ordering::Relaxed) == 0;
        if precedes { SESSION_BIT } else { 0 }
    }

    /// Returns the required bit; `None` if the rules are being rewritten at this moment.
    fn wanted(&self, slot: usize, standing: &SessionState, wrong: RuleMistake) -> Option<u32> {
        if !standing.is_settled() {
            return Some(0);
        }
        let selects = self.sessions[slot].selects(standing.revision, wrong)?;
        Some(if selects && !standing.is_paused { 1 << standing.target } else { 0 })
    }

    /// Models the recorder's `set_rules`.
    fn set_rules(&self, slot: usize, selects: u32, wrong: RuleMistake) {
        let session = &self.sessions[slot];
        let odd = session.revision.load(Ordering::Relaxed) | 1;
        session.revision.store(odd, Ordering::Relaxed);
        if wrong != RuleMistake::OddLate {
            fence(Ordering::Release);
        }
        for byte in &session.rules {
            byte.store(selects, Ordering::Relaxed);
        }
        session.revision.store(odd + 1, Ordering::Release);
    }

    /// Models the recorder's `apply_rules`.
    fn apply(&self, slot: usize, wanted: bool, wrong: RuleMistake) {
        let bit = 1 << slot;
        if wrong != RuleMistake::RecorderUnfenced {
            fence(Ordering::SeqCst);
        }
        if wanted && self.event_is_ready.load(Ordering::Acquire) == 1 {
            let late = if wrong == RuleMistake::LateLeft { 0 } else { self.predecessors(slot) };
            let next = |word| Some(word & !late | bit);
            let _ = self.enabled.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        } else if !wanted && self.enabled.load(Ordering::Relaxed) & bit != 0 {
            self.enabled.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Models the recorder's check of an event after a notification.
    fn check_revision(&self, wrong: RuleMistake) {
        if self.news.load(Ordering::Acquire) == 0 {
            return;
        }
        for slot in [SESSION, SUCCESSOR] {
            let standing = self.standing(slot);
            if !standing.has_ended && standing.target == slot {
                let wanted = self.wanted(slot, &standing, wrong);
                self.apply(slot, wanted.is_some_and(|bits| bits != 0), wrong);
            }
        }
    }

    /// Returns the bits of sessions that have not ended: late libraries may have left other bits.
    fn bits(&self) -> u32 {
        let has_ended = |slot: usize| self.sessions[slot].has_ended.load(Ordering::Acquire) != 0;
        let ended = u32::from(has_ended(SESSION)) * SESSION_BIT
            | u32::from(has_ended(SUCCESSOR)) * SUCCESSOR_BIT;
        self.enabled.load(Ordering::Acquire) & !ended
    }

    /// Models the recorder's `move_event`.
    fn move_event(&self, wrong: RuleMistake) {
        if wrong != RuleMistake::RecorderUnfenced {
            fence(Ordering::SeqCst);
        }
        let next = |word| (word & SESSION_BIT != 0).then_some(word & !SESSION_BIT | SUCCESSOR_BIT);
        let _ = self.enabled.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
    }
}

/// The steps of a recorder.
type RecorderSteps = fn(&Table, RuleMistake);

/// A library describes an event while the `recorder` works. Checks the bits at the end.
fn model_description(
    selects: u32,
    expected: u32,
    wrong: RuleMistake,
    recorder: RecorderSteps,
) -> impl Fn() + Send + Sync {
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

/// A library describes an enabled event and is stopped for good after its exchange. The rules
/// select the event, or the library has just set the bit for older rules. Once the recorder has
/// worked, the bit is `on`, and that does not change.
fn model_bit_stays_on(
    selects: u32,
    on: u32,
    wrong: RuleMistake,
    recorder: RecorderSteps,
) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(selects));
        table.event_is_ready.store(1, Ordering::Relaxed);
        table.enabled.store(SESSION_BIT, Ordering::Relaxed);
        let library = {
            let table = Arc::clone(&table);
            let own_bits = if selects == 1 { 0 } else { SESSION_BIT };
            thread::spawn(move || table.enable_if_selected(SESSION, own_bits, 1, wrong))
        };
        recorder(&table, wrong);
        assert_eq!(table.enabled.load(Ordering::Acquire) & on, on, "a bit is off");
        library.join().unwrap();
        assert_eq!(table.enabled.load(Ordering::Acquire) & on, on, "a bit was taken away");
    }
}

/// An event that was described before, and whose site runs meanwhile: the site finds one of both
/// bits, or none if the rules have not selected it (`old_bit`).
fn model_site_reads_bits(
    old_bit: u32,
    wrong: RuleMistake,
    recorder: RecorderSteps,
) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(old_bit));
        table.event_is_ready.store(1, Ordering::Relaxed);
        table.enabled.store(if old_bit == 1 { SESSION_BIT } else { 0 }, Ordering::Relaxed);
        let with = |work: fn(&Table, u32, RuleMistake)| {
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
        assert_eq!(table.enabled.load(Ordering::Acquire), SUCCESSOR_BIT, "a wrong bit");
    }
}

fn deselect_event(table: &Table, wrong: RuleMistake) {
    table.set_rules(SESSION, 0, wrong);
    table.apply(SESSION, false, wrong);
}

fn select_event(table: &Table, wrong: RuleMistake) {
    table.set_rules(SESSION, 1, wrong);
    table.apply(SESSION, true, wrong);
}

fn deselect_and_select(table: &Table, wrong: RuleMistake) {
    deselect_event(table, wrong);
    select_event(table, wrong);
}

fn pause_session(table: &Table, wrong: RuleMistake) {
    table.sessions[SESSION].paused.store(1, Ordering::Relaxed);
    table.apply(SESSION, false, wrong);
}

fn pause_and_resume(table: &Table, wrong: RuleMistake) {
    pause_session(table, wrong);
    table.sessions[SESSION].paused.store(0, Ordering::Relaxed);
    table.apply(SESSION, true, wrong);
}

fn end_session(table: &Table, wrong: RuleMistake) {
    table.sessions[SESSION].has_ended.store(1, Ordering::Release);
    table.apply(SESSION, false, wrong);
}

fn install_successor(table: &Table, wrong: RuleMistake) {
    table.sessions[SESSION].successor.store(1, Ordering::Relaxed);
    table.move_event(wrong);
    table.set_rules(SUCCESSOR, 1, wrong);
    table.apply(SUCCESSOR, true, wrong);
}

/// The old bit was set after the recorder had searched for bits to move.
fn install_successor_with_late_bit(table: &Table, wrong: RuleMistake) {
    table.sessions[SESSION].successor.store(1, Ordering::Relaxed);
    table.set_rules(SUCCESSOR, 1, wrong);
    table.apply(SUCCESSOR, true, wrong);
}

fn install_successor_and_end(table: &Table, wrong: RuleMistake) {
    install_successor(table, wrong);
    end_session(table, wrong);
}

fn select_and_install_successor(table: &Table, wrong: RuleMistake) {
    select_event(table, wrong);
    install_successor(table, wrong);
}

/// A session with a successor ends, and another one takes its slot.
fn reuse_session_slot(table: &Table, wrong: RuleMistake) {
    let session = &table.sessions[SESSION];
    session.successor.store(1, Ordering::Relaxed);
    end_session(table, wrong);
    session.successor.store(0, Ordering::Relaxed);
    session.has_ended.store(0, Ordering::Release);
    table.apply(SESSION, true, wrong);
}

/// The successor gets other rules as soon as it is alone.
fn install_successor_and_deselect(table: &Table, wrong: RuleMistake) {
    install_successor_and_end(table, wrong);
    table.set_rules(SUCCESSOR, 0, wrong);
    table.apply(SUCCESSOR, false, wrong);
}

#[test]
fn the_last_rules_win() {
    assert_model_holds(model_description(1, 0, RuleMistake::Nothing, deselect_event));
    assert_model_holds(model_description(0, SESSION_BIT, RuleMistake::Nothing, select_event));
    assert_model_holds(model_description(
        1,
        SESSION_BIT,
        RuleMistake::Nothing,
        deselect_and_select,
    ));
}

#[test]
fn a_pause_leaves_no_bit_and_its_end_sets_them() {
    assert_model_holds(model_description(1, 0, RuleMistake::Nothing, pause_session));
    assert_model_holds(model_description(1, SESSION_BIT, RuleMistake::Nothing, pause_and_resume));
}

#[test]
fn a_successor_has_every_bit() {
    assert_model_holds(model_description(
        1,
        SUCCESSOR_BIT,
        RuleMistake::Nothing,
        install_successor,
    ));
    assert_model_holds(model_description(
        1,
        SUCCESSOR_BIT,
        RuleMistake::Nothing,
        install_successor_and_end,
    ));
}

#[test]
fn a_site_finds_one_bit_or_the_other() {
    assert_model_holds(model_site_reads_bits(1, RuleMistake::Nothing, install_successor));
    assert_model_holds(model_site_reads_bits(
        0,
        RuleMistake::Nothing,
        select_and_install_successor,
    ));
    assert_model_holds(model_site_reads_bits(
        1,
        RuleMistake::Nothing,
        install_successor_with_late_bit,
    ));
}

#[test]
fn a_session_that_ended_leaves_its_successor_what_that_ones_rules_say() {
    assert_model_holds(model_description(1, 0, RuleMistake::Nothing, end_session));
    assert_model_holds(model_description(
        1,
        0,
        RuleMistake::Nothing,
        install_successor_and_deselect,
    ));
}

#[test]
fn a_bit_that_is_on_stays_on() {
    assert_model_holds(model_bit_stays_on(
        1,
        SESSION_BIT,
        RuleMistake::Nothing,
        deselect_and_select,
    ));
    assert_model_holds(model_bit_stays_on(0, SESSION_BIT, RuleMistake::Nothing, select_event));
    assert_model_holds(model_bit_stays_on(1, SESSION_BIT, RuleMistake::Nothing, pause_and_resume));
    assert_model_holds(model_bit_stays_on(
        1,
        SUCCESSOR_BIT,
        RuleMistake::Nothing,
        install_successor,
    ));
    assert_model_holds(model_bit_stays_on(
        1,
        SESSION_BIT,
        RuleMistake::Nothing,
        reuse_session_slot,
    ));
}

#[test]
fn a_bit_that_is_taken_away_is_caught() {
    assert_model_fails(model_bit_stays_on(0, SESSION_BIT, RuleMistake::TakenBack, select_event));
    assert_model_fails(model_bit_stays_on(
        1,
        SESSION_BIT,
        RuleMistake::MovedByOthers,
        reuse_session_slot,
    ));
}

#[test]
fn a_wrong_bit_that_nobody_is_told_of_is_caught() {
    assert_model_fails(model_description(1, 0, RuleMistake::Untold, deselect_event));
    assert_model_fails(model_description(1, 0, RuleMistake::Untold, pause_session));
}

#[test]
fn two_bits_at_once_are_caught() {
    assert_model_fails(model_site_reads_bits(1, RuleMistake::BothBits, install_successor));
    assert_model_fails(model_site_reads_bits(
        0,
        RuleMistake::Blindly,
        select_and_install_successor,
    ));
    assert_model_fails(model_site_reads_bits(
        0,
        RuleMistake::LoadedRelaxed,
        select_and_install_successor,
    ));
    assert_model_fails(model_site_reads_bits(
        1,
        RuleMistake::LateLeft,
        install_successor_with_late_bit,
    ));
}

#[test]
fn a_missing_second_look_is_caught() {
    assert_model_fails(model_description(1, 0, RuleMistake::NotAgain, deselect_event));
    assert_model_fails(model_description(1, 0, RuleMistake::NotAgain, pause_session));
}

#[test]
fn a_missing_fence_is_caught() {
    for wrong in [RuleMistake::LibraryUnfenced, RuleMistake::RecorderUnfenced] {
        assert_model_fails(model_description(1, 0, wrong, deselect_event));
        assert_model_fails(model_description(1, 0, wrong, pause_session));
    }
    assert_model_fails(model_description(
        0,
        SESSION_BIT,
        RuleMistake::RecorderUnfenced,
        select_event,
    ));
}

#[test]
fn rules_believed_too_early_are_caught() {
    assert_model_fails(model_description(1, SESSION_BIT, RuleMistake::Torn, deselect_and_select));
    assert_model_fails(model_description(
        1,
        SESSION_BIT,
        RuleMistake::OddLate,
        deselect_and_select,
    ));
}
