//! New events and new sessions, a protocol of `trackway_window` and the recorder. A library that
//! adds an event makes it READY and then reads the sessions; a recorder that starts a session makes
//! it ACTIVE and then reads the events. At least one of them finds the other, and a call site that
//! finds the bit finds the id.
//!
//! This is a model of the protocol, not of its code, which lives above this crate.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

use crate::fixture::{assert_model_fails, assert_model_holds};

/// The mistake that a library makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableMistake {
    Nothing,
    /// There is no full fence between a side's own store and its load of the other's store.
    Unfenced,
    /// The enable bit is set before the id is there.
    BitFirst,
    /// The length of the table grows only after the event is READY, and the library dies between.
    LengthLate,
}

#[derive(Default)]
struct Table {
    state: AtomicU32,
    length: AtomicU32,
    active: AtomicU32,
    next_id: AtomicU32,
    id: AtomicU32,
    enabled: AtomicU32,
}

impl Table {
    fn enable(&self, wrong: TableMistake) {
        if wrong == TableMistake::BitFirst {
            self.enabled.fetch_or(1, Ordering::Release);
        }
        if self.id.load(Ordering::Relaxed) == 0 {
            let taken = self.next_id.fetch_add(1, Ordering::Relaxed);
            let _ = self.id.compare_exchange(0, taken + 1, Ordering::Release, Ordering::Relaxed);
        }
        self.enabled.fetch_or(1, Ordering::Release);
    }

    fn add_event(&self, wrong: TableMistake) {
        if wrong != TableMistake::LengthLate {
            self.length.fetch_max(1, Ordering::Relaxed);
        }
        self.state.store(1, Ordering::Release);
    }

    fn enable_if_active(&self, wrong: TableMistake) {
        if wrong != TableMistake::Unfenced {
            fence(Ordering::SeqCst);
        }
        if self.active.load(Ordering::Acquire) == 1 {
            self.enable(wrong);
        }
    }

    fn start_session(&self, wrong: TableMistake) {
        self.active.store(1, Ordering::Release);
        if wrong != TableMistake::Unfenced {
            fence(Ordering::SeqCst);
        }
        let length = self.length.load(Ordering::Relaxed);
        if length == 1 && self.state.load(Ordering::Acquire) == 1 {
            self.enable(wrong);
        }
    }
}

fn model_event_and_session(wrong: TableMistake) -> impl Fn() + Sync + Send {
    move || {
        let table = Arc::new(Table::default());
        let library = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.add_event(wrong);
                table.enable_if_active(wrong);
            })
        };
        let recorder = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.start_session(wrong))
        };
        let site = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if table.enabled.load(Ordering::Acquire) == 1 {
                    assert_ne!(table.id.load(Ordering::Relaxed), 0, "enabled without an id");
                }
            })
        };
        library.join().unwrap();
        recorder.join().unwrap();
        site.join().unwrap();
        assert_eq!(table.enabled.load(Ordering::Acquire), 1, "an event was missed");
    }
}

/// The event's library dies once the event is READY; another process finds it and takes it over.
fn model_creator_death(wrong: TableMistake) -> impl Fn() + Sync + Send {
    move || {
        let table = Arc::new(Table::default());
        let maker = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.add_event(wrong))
        };
        let finder = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let found = table.state.load(Ordering::Acquire) == 1;
                if found {
                    table.enable_if_active(wrong);
                }
                found
            })
        };
        let recorder = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.start_session(wrong))
        };
        maker.join().unwrap();
        recorder.join().unwrap();
        if finder.join().unwrap() {
            assert_eq!(table.enabled.load(Ordering::Acquire), 1, "an event was missed");
        }
    }
}

#[test]
fn event_and_session_find_each_other() {
    assert_model_holds(model_event_and_session(TableMistake::Nothing));
    assert_model_holds(model_creator_death(TableMistake::Nothing));
}

#[test]
fn a_missing_fence_is_caught() {
    assert_model_fails(model_event_and_session(TableMistake::Unfenced));
}

#[test]
fn a_bit_before_the_id_is_caught() {
    assert_model_fails(model_event_and_session(TableMistake::BitFirst));
}

#[test]
fn a_length_behind_the_event_is_caught() {
    assert_model_fails(model_creator_death(TableMistake::LengthLate));
}
