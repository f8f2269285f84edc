//! What was measured of the ways to reserve, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use crate::bars::{at_most, ratio};
use crate::machine::Machine;
use crate::results::{Account, Bar, Note};
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;

/// How writers keep apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Not at all: the floor.
    Nothing,
    /// By restartable sequence.
    Rseq,
    /// By an owner word, taken by compare-and-swap.
    Claim,
    /// By the 2012 paper's reserve and commit.
    Lockless,
    /// The same, with a clock that may be read too early: not fit for use.
    LocklessUnfenced,
    /// By a mutex for each CPU.
    Mutex,
    /// By blocking signals, with a region for each thread.
    Signals,
}

impl Way {
    /// All of them, in the order of the rows.
    pub(super) const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Rseq,
        Self::Claim,
        Self::Lockless,
        Self::LocklessUnfenced,
        Self::Mutex,
        Self::Signals,
    ];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no protection",
            Self::Rseq => "rseq",
            Self::Claim => "claim",
            Self::Lockless => "lockless",
            Self::LocklessUnfenced => "lockless, clock unfenced",
            Self::Mutex => "mutex",
            Self::Signals => "signals blocked",
        }
    }

    /// Those that are there to be used, or to be compared with.
    pub(super) fn in_use() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|way| *way != Self::LocklessUnfenced)
    }
}

/// What became of the events of a run at the level of the buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Events emitted.
    pub emitted: u64,
    /// Events recorded, those that were overwritten later included.
    pub recorded: u64,
    /// Events that opened a sub-buffer.
    pub switches: u64,
    /// Sequences that were aborted, and claim regions that were found in use.
    pub restarts: u64,
}

impl Tally {
    /// Events lost: there was no place for them, and that was counted.
    pub const fn lost(&self) -> u64 {
        self.emitted - self.recorded
    }

    /// Adds another run.
    pub(super) const fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.switches += other.switches;
        self.restarts += other.restarts;
    }
}

/// Which clock events are stamped with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// The processor's counter, as the product reads it.
    Counter,
    /// One that always says the same.
    Still,
}

/// An event of one thread, by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EventCost {
    /// How writers keep apart.
    pub way: Way,
    /// Bytes of its payload.
    pub payload_bytes: usize,
    /// Its clock.
    pub clock: ClockKind,
    /// ns per event: the median of each round's batches, over the rounds.
    pub ns: Spread,
    /// The same in terms of what it is without protection, in the same round.
    pub times: Spread,
    /// What became of the events.
    pub tally: Tally,
}

/// Threads that emit at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ThreadsCost {
    /// How writers keep apart.
    pub way: Way,
    /// How many.
    pub threads: usize,
    /// Time of a CPU for each event that was recorded, in ns, by the scheduler's account.
    pub ns: Spread,
    /// Events recorded in a second, in millions: of all threads together, by the clock.
    pub millions_per_second: Spread,
    /// What became of the events.
    pub tally: Tally,
}

/// Events in sub-buffers of some size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SizeCost {
    /// How writers keep apart.
    pub way: Way,
    /// Size of a sub-buffer, in bytes.
    pub sub_bytes: u64,
    /// How many there are.
    pub sub_count: u64,
    /// ns per event, those that switch included.
    pub ns: Spread,
    /// What became of the events.
    pub tally: Tally,
}

/// What the two code paths cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    /// How writers keep apart.
    pub way: Way,
    /// ns of an event that stays in its sub-buffer, by itself: from the moment at which all before
    /// it is done until its loads are. `None` without a counter.
    pub fast_ns: Option<Spread>,
    /// The same of one that opens a sub-buffer.
    pub switch_ns: Option<Spread>,
    /// ns of an event in a loop that never switched, by the line through the sizes of the same
    /// ring.
    pub line_fast_ns: Spread,
    /// What a switch adds, by the slope of that line.
    pub line_switch_ns: Spread,
}

/// A code path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// The event stays in its sub-buffer.
    Fast,
    /// It opens one.
    Switch,
}

/// Instructions of one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// All of them, without the kernel's.
    pub instructions: u64,
    /// Atomic ones: with a lock prefix, or an exchange with memory.
    pub locked: u64,
    /// Fences.
    pub fences: u64,
    /// Reads of the processor's counter.
    pub clock_reads: u64,
    /// System calls.
    pub system_calls: u64,
}

/// Instructions of the events on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepsOnPath {
    /// How writers keep apart.
    pub way: Way,
    /// The path.
    pub path: Path,
    /// Events that were stepped through.
    pub events: u64,
    /// Of most of them.
    pub steps: Steps,
    /// Fewest instructions of one.
    pub least: u64,
    /// Most instructions of one.
    pub most: u64,
}

/// An event through the product: `trackway record --reserve WAY`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProductCost {
    /// How writers keep apart.
    pub way: Way,
    /// What events carry.
    pub payload: crate::case::Payload,
    /// Threads that emit.
    pub threads: usize,
    /// Time of a CPU for each event recorded, in ns.
    pub ns: Spread,
    /// What became of the events.
    pub account: Account,
}

/// Everything that a run of the lab found about ways to reserve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReserveResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// Ticks of the processor's counter in a ns, if there is one.
    pub ticks_per_ns: Option<f64>,
    /// One thread.
    pub events: Vec<EventCost>,
    /// Threads at once.
    pub threads: Vec<ThreadsCost>,
    /// Sizes of sub-buffers.
    pub sizes: Vec<SizeCost>,
    /// Code paths.
    pub paths: Vec<PathCost>,
    /// Instructions.
    pub steps: Vec<StepsOnPath>,
    /// The product.
    pub product: Vec<ProductCost>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// Most that a protection may cost beyond none, as a ratio.
const ABOVE_FLOOR: f64 = 1.25;
/// How much worse than one thread as many as there are CPUs may do.
const MORE_THREADS: f64 = 1.10;

impl ReserveResults {
    /// What an event of one thread costs.
    pub(super) fn event(&self, way: Way, bytes: usize, clock: ClockKind) -> Option<&EventCost> {
        let mut events = self.events.iter();
        events.find(|one| (one.way, one.payload_bytes, one.clock) == (way, bytes, clock))
    }

    /// The same in ns.
    pub(super) fn event_ns(&self, way: Way, bytes: usize, clock: ClockKind) -> Option<f64> {
        self.event(way, bytes, clock).map(|event| event.ns.median)
    }

    /// What an event of one of so many threads costs.
    pub(super) fn at_once(&self, way: Way, threads: usize) -> Option<&ThreadsCost> {
        self.threads.iter().find(|one| (one.way, one.threads) == (way, threads))
    }

    /// Instructions of a way's path.
    pub(super) fn steps(&self, way: Way, path: Path) -> Option<&StepsOnPath> {
        self.steps.iter().find(|one| (one.way, one.path) == (way, path))
    }

    /// The bars. Reported, never asserted.
    pub(super) fn all_bars(&self) -> Vec<Bar> {
        let ns = |way| self.event_ns(way, 4, ClockKind::Counter);
        let beside = |what: &str, way| {
            at_most(what, ratio(ns(Way::Rseq), ns(way)), 1.0, |ratio| format!("{ratio:.2} of it"))
        };
        let floor = self.event(Way::Rseq, 4, ClockKind::Counter).map(|event| event.times.median);
        let cpus = self.machine.cpus;
        let at_once = |threads| Some(self.at_once(Way::Rseq, threads)?.ns.median);
        let most = self.threads.iter().map(|one| one.threads).max();
        let crowd = most.and_then(|most| Some(self.at_once(Way::Rseq, most)?.tally));
        let locked = self.steps(Way::Rseq, Path::Fast).map(|steps| steps.steps.locked as f64);
        vec![
            at_most(
                &format!("u32: rseq at most {ABOVE_FLOOR} of no protection"),
                floor,
                ABOVE_FLOOR,
                |ratio| format!("{ratio:.2} of it"),
            ),
            beside("u32: rseq costs less than lockless", Way::Lockless),
            beside("u32: rseq costs less than a mutex", Way::Mutex),
            at_most("rseq: no atomic instruction", locked, 0.0, |locked| format!("{locked}")),
            at_most(
                &format!("rseq: a thread on each CPU costs at most {MORE_THREADS:.2} of one"),
                ratio(at_once(cpus), at_once(1)).filter(|_| cpus > 1),
                MORE_THREADS,
                |ratio| format!("{ratio:.2}"),
            ),
            at_most(
                &format!("rseq: {} threads lose nothing", most.unwrap_or_default()),
                crowd.map(|tally| tally.lost() as f64),
                0.0,
                |lost| format!("{lost} lost"),
            ),
        ]
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// Never for figures that were measured: they are finite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::case::Payload;
    use crate::results::Verdict;

    fn spread(median: f64) -> Spread {
        Spread::of(&[median - 0.5, median, median + 0.5]).expect("figures")
    }

    const TALLY: Tally = Tally { emitted: 1000, recorded: 1000, switches: 2, restarts: 0 };

    fn threads() -> Vec<ThreadsCost> {
        let cost = |way, threads: usize, ns: f64, tally| {
            let millions_per_second = spread(threads.min(2) as f64 * 1000.0 / ns);
            ThreadsCost { way, threads, ns: spread(ns), millions_per_second, tally }
        };
        let lost = Tally { recorded: 900, restarts: 3, ..TALLY };
        vec![
            cost(Way::Rseq, 1, 25.0, TALLY),
            cost(Way::Rseq, 2, 25.5, TALLY),
            cost(Way::Rseq, 16, 26.0, Tally { restarts: 1, ..TALLY }),
            cost(Way::Lockless, 1, 45.0, TALLY),
            cost(Way::Lockless, 2, 46.0, TALLY),
            cost(Way::Lockless, 16, 50.0, lost),
        ]
    }

    fn steps() -> Vec<StepsOnPath> {
        let on = |way, path, instructions, locked| StepsOnPath {
            way,
            path,
            events: 20,
            steps: Steps { instructions, locked, clock_reads: 1, ..Steps::default() },
            least: instructions,
            most: instructions + if path == Path::Fast { 0 } else { 3 },
        };
        vec![
            on(Way::Rseq, Path::Fast, 90, 0),
            on(Way::Rseq, Path::Switch, 260, 0),
            on(Way::Lockless, Path::Fast, 130, 3),
        ]
    }

    pub(in crate::reserve) fn example() -> ReserveResults {
        let event = |way, payload_bytes, clock, ns: f64, times: f64| EventCost {
            way,
            payload_bytes,
            clock,
            ns: spread(ns),
            times: Spread::of(&[times]).expect("a figure"),
            tally: TALLY,
        };
        let size = |way, sub_bytes, sub_count, ns: f64| SizeCost {
            way,
            sub_bytes,
            sub_count,
            ns: spread(ns),
            tally: TALLY,
        };
        let path = |way, fast: f64, switch: f64| PathCost {
            way,
            fast_ns: Some(spread(fast + 10.0)),
            switch_ns: Some(spread(switch + 10.0)),
            line_fast_ns: spread(fast),
            line_switch_ns: spread(switch),
        };
        let account =
            Account { emitted: 1000, recorded: 300, lost: 100, overwritten: 600, record_bytes: 0 };
        let machine = Machine { cpus: 2, ..Machine::default() };
        let (counter, still) = (ClockKind::Counter, ClockKind::Still);
        ReserveResults {
            format: FORMAT,
            machine,
            rounds: 3,
            ticks_per_ns: Some(2.0),
            events: vec![
                event(Way::Nothing, 4, counter, 22.0, 1.0),
                event(Way::Nothing, 4, still, 8.0, 1.0),
                event(Way::Rseq, 4, counter, 24.0, 1.09),
                event(Way::Rseq, 32, counter, 27.0, 1.1),
                event(Way::Rseq, 4, still, 10.0, 1.25),
                event(Way::Lockless, 4, counter, 44.0, 2.0),
                event(Way::Lockless, 32, counter, 47.0, 2.0),
                event(Way::Signals, 4, counter, 220.0, 10.0),
                event(Way::Signals, 32, counter, 222.0, 10.0),
            ],
            threads: threads(),
            sizes: vec![
                size(Way::Rseq, 4096, 256, 25.0),
                size(Way::Lockless, 4096, 256, 46.0),
                size(Way::Rseq, 4 << 20, 2, 24.0),
            ],
            paths: vec![path(Way::Rseq, 24.0, 80.0), path(Way::Lockless, 44.0, 140.0)],
            steps: steps(),
            product: vec![
                ProductCost {
                    way: Way::Rseq,
                    payload: Payload::Number,
                    threads: 1,
                    ns: spread(26.0),
                    account: Account { lost: 0, recorded: 400, ..account },
                },
                ProductCost {
                    way: Way::Lockless,
                    payload: Payload::Number,
                    threads: 16,
                    ns: spread(80.0),
                    account,
                },
            ],
            bars: Vec::new(),
            notes: vec![Note::skipped("mutex", "it is an example")],
        }
    }

    #[test]
    fn bars_follow_the_figures() {
        let told: Vec<(String, Verdict)> =
            example().all_bars().into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("1.09 of it".to_owned(), Verdict::Holds),
            ("0.55 of it".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
            ("0".to_owned(), Verdict::Holds),
            ("1.02".to_owned(), Verdict::Holds),
            ("0 lost".to_owned(), Verdict::Holds),
        ];
        assert_eq!(told, expected);
        let mut worse = example();
        worse.threads[2].tally.recorded -= 1;
        worse.events[2].times.median = 1.3;
        let verdicts: Vec<Verdict> = worse.all_bars().iter().map(|bar| bar.verdict).collect();
        assert_eq!((verdicts[0], verdicts[5]), (Verdict::Misses, Verdict::Misses));
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(serde_json::from_str::<ReserveResults>(&text).expect("results"), results);
        assert!(text.contains(r#""way": "lockless""#), "{text}");
    }
}
