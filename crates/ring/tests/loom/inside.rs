//! Entries and exits: a part is reused while threads on two CPUs, and one without sequences, enter
//! and leave; and while other threads are inside for one sequence each, uncounted.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use trackway_ring::inside::{Line, is_part_empty};

use crate::fixture::{assert_model_holds, failure_message};

/// Value of the link while it leads to the part.
const LINKED: u64 = 7;
const PART: usize = 1;

/// The mistake that a reader or the reusing thread makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// The part is reused without a visit to every CPU.
    NoVisit,
    /// Sequences count without checking the link again.
    LinkNotChecked,
    /// A reader without sequences checks the link first, then counts.
    LooksFirst,
    /// Entries are read before exits.
    EntriesFirst,
    /// Exits are counted without Release.
    LeavesRelaxed,
    /// An uncounted reader checks the link before its sequence begins.
    LooksBefore,
    /// An uncounted reader continues to read after its sequence.
    ReadsAfter,
}

struct Fixture {
    /// Locks of the CPUs: each runs one sequence at a time, and a visit waits for its end.
    cpus: [Mutex<()>; 2],
    /// Lines of the CPUs, then the line of threads without sequences.
    lines: [Line; 3],
    link: AtomicU64,
    part: UnsafeCell<u32>,
    mistake: Mistake,
}

impl Fixture {
    fn new(mistake: Mistake) -> Self {
        Self {
            cpus: [Mutex::new(()), Mutex::new(())],
            lines: [Line::new(), Line::new(), Line::new()],
            link: AtomicU64::new(LINKED),
            part: UnsafeCell::new(1),
            mistake,
        }
    }

    /// Models `rseq::add_one`, which is atomic for all other code on its CPU.
    fn add_one(&self, cpu: usize, counter: &AtomicU64, is_linked: impl Fn() -> bool) -> bool {
        let _sequence = self.cpus[cpu].lock().unwrap();
        if !is_linked() {
            return false;
        }
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
        true
    }

    fn read_part(&self) {
        // SAFETY: loom detects a concurrent write; the models show that there is none.
        let value = self.part.with(|part| unsafe { *part });
        assert_eq!(value, 1, "it was found by its link");
    }

    /// Models a thread that enters on one CPU, and leaves on another one.
    fn come_and_go(&self, from: usize, to: usize) {
        // ORDERING: Acquire, like the agent's load of a link: its target is there.
        if self.link.load(Ordering::Acquire) != LINKED {
            return;
        }
        let is_linked = || {
            self.mistake == Mistake::LinkNotChecked || self.link.load(Ordering::Relaxed) == LINKED
        };
        if self.add_one(from, self.lines[from].entered(PART), is_linked) {
            self.read_part();
            self.add_one(to, self.lines[to].left(PART), || true);
        }
    }

    /// Models a thread that is alone on its CPU. It leaves without the CPU's lock, which is a full
    /// fence in loom, and would hide a missing one.
    fn come_and_go_alone(&self, cpu: usize) {
        if self.link.load(Ordering::Acquire) != LINKED {
            return;
        }
        let is_linked = || self.link.load(Ordering::Relaxed) == LINKED;
        if self.add_one(cpu, self.lines[cpu].entered(PART), is_linked) {
            self.read_part();
            let relaxed = self.mistake == Mistake::LeavesRelaxed;
            let order = if relaxed { Ordering::Relaxed } else { Ordering::Release };
            self.lines[cpu].left(PART).store(1, order);
        }
    }

    /// Models a thread that is inside for one sequence, and is not counted
    /// (`agent::filters::single_sequence`).
    fn be_there_at_once(&self, cpu: usize) {
        // ORDERING: Acquire, like the agent's load of a link: its target is there.
        let looked = self.link.load(Ordering::Acquire) == LINKED;
        if !looked {
            return;
        }
        let sequence = self.cpus[cpu].lock().unwrap();
        let skips = matches!(self.mistake, Mistake::LinkNotChecked | Mistake::LooksBefore);
        if !skips && self.link.load(Ordering::Relaxed) != LINKED {
            return;
        }
        if self.mistake == Mistake::ReadsAfter {
            drop(sequence);
            return self.read_part();
        }
        self.read_part();
    }

    /// Models a thread without sequences.
    fn come_and_go_by_atomics(&self) {
        let looked = self.link.load(Ordering::Acquire) == LINKED;
        let is_linked = || match self.mistake {
            Mistake::LooksFirst => looked,
            _ => self.link.load(Ordering::Acquire) == LINKED,
        };
        if looked && self.lines[2].enter(PART, is_linked) {
            self.read_part();
            self.lines[2].leave(PART);
        }
    }

    fn is_empty(&self) -> bool {
        if self.mistake != Mistake::EntriesFirst {
            return is_part_empty(PART, self.lines.iter());
        }
        let sum = |counter: fn(&Line, usize) -> &AtomicU64| -> u64 {
            self.lines.iter().map(|line| counter(line, PART).load(Ordering::SeqCst)).sum()
        };
        loom::sync::atomic::fence(Ordering::SeqCst);
        let entered = sum(Line::entered);
        entered == sum(Line::left)
    }

    /// Reuses the part if no reader is in it.
    fn use_anew(&self) {
        self.link.store(0, Ordering::Release);
        if self.mistake != Mistake::NoVisit {
            for cpu in &self.cpus {
                drop(cpu.lock().unwrap());
            }
        }
        if self.is_empty() {
            // SAFETY: loom detects a concurrent read; the models show that there is none.
            self.part.with_mut(|part| unsafe { *part = 2 });
        }
    }
}

fn model_sequences(mistake: Mistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(mistake));
        let threads = [(0, 1), (1, 1)].map(|(from, to)| {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || fixture.come_and_go(from, to))
        });
        fixture.use_anew();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// An uncounted thread, on a CPU with another one, or on its own.
fn model_uncounted_reader(mistake: Mistake, is_other_counted: bool) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(mistake));
        let other = Arc::clone(&fixture);
        let thread = thread::spawn(move || other.be_there_at_once(0));
        let other = Arc::clone(&fixture);
        let second = thread::spawn(move || {
            if is_other_counted {
                other.come_and_go(0, 1);
            } else {
                other.be_there_at_once(1);
            }
        });
        fixture.use_anew();
        thread.join().unwrap();
        second.join().unwrap();
    }
}

/// Two threads, each alone on its CPU.
fn model_two_cpus(mistake: Mistake) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(mistake));
        let threads = [0, 1].map(|cpu| {
            let fixture = Arc::clone(&fixture);
            thread::spawn(move || fixture.come_and_go_alone(cpu))
        });
        fixture.use_anew();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// One thread with or without sequences, and `others` without, one after the other in each.
fn model_atomics(mistake: Mistake, with_sequence: bool) -> impl Fn() + Sync + Send {
    move || {
        let fixture = Arc::new(Fixture::new(mistake));
        let other = Arc::clone(&fixture);
        let thread = thread::spawn(move || other.come_and_go_by_atomics());
        let other = Arc::clone(&fixture);
        let second = thread::spawn(move || {
            if with_sequence {
                other.come_and_go(0, 0);
            } else {
                other.come_and_go_by_atomics();
            }
        });
        fixture.use_anew();
        thread.join().unwrap();
        second.join().unwrap();
    }
}

/// Checks that loom finds a write during a read, within this number of preemptions.
fn assert_model_races(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let message = failure_message(move || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    });
    let is_race = message.contains("Causality") || message.contains("found by its link");
    assert!(is_race, "caught for another reason: {message}");
}

#[test]
fn nobody_is_in_a_part_that_is_used_anew() {
    assert_model_holds(model_sequences(Mistake::None));
    assert_model_holds(model_two_cpus(Mistake::None));
    assert_model_holds(model_atomics(Mistake::None, false));
    assert_model_holds(model_atomics(Mistake::None, true));
}

#[test]
fn nobody_is_in_a_part_for_one_sequence_when_it_is_used_anew() {
    assert_model_holds(model_uncounted_reader(Mistake::None, false));
    assert_model_holds(model_uncounted_reader(Mistake::None, true));
}

#[test]
fn who_is_not_counted_is_caught_where_nobody_visits() {
    assert_model_races(2, model_uncounted_reader(Mistake::NoVisit, false));
}

#[test]
fn who_is_not_counted_is_caught_with_a_look_before_his_sequence() {
    assert_model_races(2, model_uncounted_reader(Mistake::LooksBefore, false));
}

#[test]
fn who_is_not_counted_is_caught_behind_his_sequence() {
    assert_model_races(2, model_uncounted_reader(Mistake::ReadsAfter, false));
}

#[test]
fn a_part_used_anew_without_a_visit_is_caught() {
    assert_model_races(2, model_sequences(Mistake::NoVisit));
}

#[test]
fn a_sequence_that_does_not_look_again_is_caught() {
    assert_model_races(2, model_sequences(Mistake::LinkNotChecked));
}

#[test]
fn a_look_before_the_count_is_caught() {
    assert_model_races(2, model_atomics(Mistake::LooksFirst, false));
}

#[test]
fn entries_read_before_exits_are_caught() {
    assert_model_races(3, model_atomics(Mistake::EntriesFirst, false));
}

#[test]
fn an_exit_without_release_is_caught() {
    assert_model_races(2, model_two_cpus(Mistake::LeavesRelaxed));
}
