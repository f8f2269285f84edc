//! Rules that change while events are described, as `trackway_window`'s `rules` has it: whatever
//! the order of things, an event's bit is at the end what the last rules say.
//!
//! A model of the protocol, not of that code, which lives above this crate.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use crate::world::{fails, holds};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Who has set the bit does not look whether the rules are still those.
    NotAgain,
    /// No full fence between the library's bit and its second look.
    LibraryUnfenced,
    /// No full fence between what the recorder changes and its look at the bit.
    RecorderUnfenced,
    /// Rules are believed without a second look at their number.
    Torn,
    /// The number is odd too late: the bytes may be seen before it.
    OddLate,
    /// Who clears its bit again does not look whether that is still right.
    NotAfterClearing,
    /// The heir's bit is set beside the old one.
    Beside,
    /// What was decided is done to whatever the word is by then.
    Blindly,
    /// The word is loaded without Acquire: what decides may be older than it.
    LoadedRelaxed,
    /// A bit that was set for a session that has ended meanwhile is left.
    EndedLeft,
    /// One that was set for the heir of such a session, too, and it may not want it.
    HeirLeft,
}

/// Slots.
const SESSION: usize = 0;
const HEIR: usize = 1;
/// The session's bit in the enable word, and its successor's.
const OLD: u32 = 1 << SESSION;
const NEW: u32 = 1 << HEIR;
/// As `TRIES_MAX` is more than there are changes in a model.
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

/// What decides about a session's bits.
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

    /// Bits that must not be set where `wanted` is.
    fn cleared(&self, slot: usize, ours: u32, wanted: u32, wrong: Wrong) -> u32 {
        let own = 1 << slot;
        if self.revision & 1 != 0 {
            return 0;
        }
        if self.has_ended {
            return if wrong == Wrong::EndedLeft { 0 } else { ours & own };
        }
        let is_heirs = wanted & !own != 0 && wrong != Wrong::Beside;
        ours & !wanted | if is_heirs { own } else { 0 }
    }
}

impl Session {
    /// What the rules of this revision say; `None` if they were rewritten meanwhile.
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
            self.enable_if_selected(slot, wrong);
        }
    }

    fn enable_if_selected(&self, mut slot: usize, wrong: Wrong) {
        // The bit that it has set, and those that it has cleared of other slots.
        let (mut ours, mut owed) = (0_u32, 0_u32);
        let is_relaxed = wrong == Wrong::LoadedRelaxed;
        let load = if is_relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        for _ in 0..TRIES_MAX {
            let word = self.enabled.load(load);
            let standing = self.standing(slot);
            let Some(wanted) = self.wanted(slot, &standing, wrong) else { continue };
            let cleared = standing.cleared(slot, ours, wanted, wrong);
            let into = word & !cleared | wanted;
            if into == word {
                let is_settled = standing.is_settled() || wrong == Wrong::HeirLeft;
                ours = if is_settled { 0 } else { ours & !(1 << slot) };
                let among = if ours != 0 { ours } else { owed };
                if among == 0 {
                    return;
                }
                slot = among.trailing_zeros() as usize;
                owed &= !(1 << slot);
                continue;
            }
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let is_changed = if wrong == Wrong::Blindly {
                let next = |word| Some(word & !cleared | wanted);
                self.enabled.fetch_update(success, failure, next).is_ok()
            } else {
                self.enabled.compare_exchange(word, into, success, failure).is_ok()
            };
            if !is_changed {
                continue;
            }
            let has_cleared = ours & !into != 0;
            ours = ours & into | into & !word;
            owed |= word & !into & !(1 << slot);
            if wrong == Wrong::NotAgain || wrong == Wrong::NotAfterClearing && has_cleared {
                return;
            }
            if wrong != Wrong::LibraryUnfenced {
                fence(Ordering::SeqCst);
            }
        }
        panic!("more tries than changes");
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
            self.enabled.fetch_or(bit, Ordering::AcqRel);
        } else if !wanted && self.enabled.load(Ordering::Relaxed) & bit != 0 {
            self.enabled.fetch_and(!bit, Ordering::Relaxed);
        }
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

/// What a recorder does.
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
        assert_eq!(table.enabled.load(Ordering::Acquire), expected, "a wrong bit");
    }
}

/// The same of an event that somebody has described before, and whose site is reached meanwhile: it
/// finds one bit or the other, or none where the rules have not selected it `before`.
fn passing(before: u32, wrong: Wrong, recorder: Work) -> impl Fn() + Send + Sync {
    move || {
        let table = Arc::new(Table::new(before));
        table.event_is_ready.store(1, Ordering::Relaxed);
        table.enabled.store(if before == 1 { OLD } else { 0 }, Ordering::Relaxed);
        let with = |work: fn(&Table, u32, Wrong)| {
            let table = Arc::clone(&table);
            thread::spawn(move || work(&table, before, wrong))
        };
        let library = with(|table, _, wrong| table.describe(wrong));
        let site = with(|table, before, _| {
            let word = table.enabled.load(Ordering::Acquire);
            let bits = word.count_ones();
            assert!(bits <= 1 && bits >= before, "a wrong word");
        });
        recorder(&table, wrong);
        library.join().unwrap();
        site.join().unwrap();
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

fn succeed_and_end(table: &Table, wrong: Wrong) {
    succeed(table, wrong);
    end(table, wrong);
}

fn select_and_succeed(table: &Table, wrong: Wrong) {
    select(table, wrong);
    succeed(table, wrong);
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
}

#[test]
fn what_has_ended_leaves_no_bit() {
    holds(meeting(1, 0, Wrong::Nothing, end));
    holds(meeting(1, 0, Wrong::Nothing, succeed_and_deselect));
}

#[test]
fn two_bits_at_once_are_caught() {
    fails(passing(1, Wrong::Beside, succeed));
    fails(passing(0, Wrong::Blindly, select_and_succeed));
    fails(passing(0, Wrong::LoadedRelaxed, select_and_succeed));
}

#[test]
fn a_bit_of_what_has_ended_is_caught() {
    fails(meeting(1, 0, Wrong::EndedLeft, end));
    fails(meeting(1, 0, Wrong::HeirLeft, succeed_and_deselect));
}

#[test]
fn a_missing_second_look_is_caught() {
    fails(meeting(1, 0, Wrong::NotAgain, deselect));
    fails(meeting(1, 0, Wrong::NotAgain, pause));
    fails(meeting(1, NEW, Wrong::NotAgain, succeed));
    fails(meeting(1, OLD, Wrong::NotAfterClearing, deselect_and_select));
    fails(meeting(1, OLD, Wrong::NotAfterClearing, pause_and_go_on));
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
