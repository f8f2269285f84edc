//! What was measured of the helper, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use crate::bars::at_most;
use crate::machine::Machine;
use crate::results::{Bar, Note};
use crate::stats::Spread;

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;
/// Most that an idle helper may cost a program that allocates a lot.
const IDLE_TIMES: f64 = 1.02;

/// Everything that a run of the lab found about the helper `libc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreloadResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// Each program in each way.
    pub costs: Vec<PreloadCost>,
    /// Programs that are installed here.
    pub real: Vec<RealCost>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// A program that allocates (`workloads/allocate.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Counts words in a hash table: allocates a lot.
    Words,
    /// Builds and fells binary trees: does little else.
    Trees,
    /// malloc and free in pairs: does nothing else.
    Pairs,
}

impl Program {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Words, Self::Trees, Self::Pairs];

    /// Its name, as the workload takes it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Trees => "trees",
            Self::Pairs => "pairs",
        }
    }

    /// Its size: a batch takes some milliseconds.
    pub(super) const fn size(self) -> &'static str {
        match self {
            Self::Words => "50000",
            Self::Trees => "16",
            Self::Pairs => "300000",
        }
    }
}

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Alone.
    Plain,
    /// With a library between it and malloc that does nothing.
    Interposed,
    /// With our helper, while nobody records.
    Idle,
    /// With LTTng's, its daemon running, while nobody records.
    LttngIdle,
    /// With our helper, into a flight recorder.
    Recorded,
    /// With LTTng's, into a snapshot session.
    LttngRecorded,
}

impl Way {
    /// All of them.
    pub(super) const ALL: [Self; 6] = [
        Self::Plain,
        Self::Interposed,
        Self::Idle,
        Self::LttngIdle,
        Self::Recorded,
        Self::LttngRecorded,
    ];

    /// In words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "alone",
            Self::Interposed => "with a function between",
            Self::Idle => "Trackway's libc, idle",
            Self::LttngIdle => "LTTng's libc-wrapper, idle",
            Self::Recorded => "Trackway's libc, recording",
            Self::LttngRecorded => "LTTng's libc-wrapper, recording",
        }
    }
}

/// One program in one way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PreloadCost {
    /// How it was run.
    pub way: Way,
    /// The program.
    pub program: Program,
    /// Time of the program on CPUs, divided by its calls of malloc and free, in ns: the median of
    /// each round's batches, over the rounds.
    pub call_ns: Spread,
    /// The same in terms of the program alone, in the same round.
    pub times: Spread,
}

/// What the helper costs a program that is installed here, while nobody records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RealCost {
    /// Its name.
    pub name: String,
    /// Events of the helper in one run that was recorded: its calls that allocate and free.
    pub calls: u64,
    /// Time of all of its processes on CPUs in a run alone, in ms, from start to end.
    pub cpu_ms: Spread,
    /// The same with a function between that does nothing, in terms of the run alone of the same
    /// round.
    pub between_times: Spread,
    /// The same with the helper.
    pub times: Spread,
    /// Between which figures the median of `times` lies with 95 % confidence, if there were
    /// rounds enough to say so.
    pub interval: Option<(f64, f64)>,
}

impl RealCost {
    /// How much it allocates.
    pub(super) fn calls_per_ms(&self) -> f64 {
        self.calls as f64 / self.cpu_ms.median
    }
}

impl PreloadResults {
    /// What was measured of one program in one way.
    pub(super) fn cost(&self, way: Way, program: Program) -> Option<&PreloadCost> {
        self.costs.iter().find(|cost| cost.way == way && cost.program == program)
    }

    /// The bars. Reported, never asserted.
    pub(super) fn all_bars(&self) -> Vec<Bar> {
        let times = |way, program| self.cost(way, program).map(|cost| cost.times.median);
        let idle = at_most(
            "words: an idle helper costs at most 2 %",
            times(Way::Idle, Program::Words),
            IDLE_TIMES,
            |times| format!("{:+.1} %", (times - 1.0) * 100.0),
        );
        let worst = self.real.iter().max_by(|a, b| a.times.median.total_cmp(&b.times.median));
        let real = at_most(
            "installed programs: at most 2 % in the worst case",
            worst.map(|cost| cost.times.median),
            IDLE_TIMES,
            |times| {
                let name = worst.map_or("", |cost| cost.name.as_str());
                format!("{name} {:+.1} %", (times - 1.0) * 100.0)
            },
        );
        let above = |way| self.cost(way, Program::Pairs).map(|cost| cost.call_ns.median);
        let added = above(Way::Idle).zip(above(Way::Interposed));
        let floor = at_most(
            "pairs: idle, 0.5 ns more than a bare function between",
            added.map(|(idle, between)| idle - between),
            0.5,
            |ns| format!("{ns:+.2} ns"),
        );
        let beside = at_most(
            "words: recording costs less than LTTng's",
            times(Way::Recorded, Program::Words)
                .zip(times(Way::LttngRecorded, Program::Words))
                .map(|(ours, theirs)| (ours - 1.0) / (theirs - 1.0)),
            1.0,
            |ratio| format!("{ratio:.2} of it"),
        );
        vec![idle, real, floor, beside]
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
    use crate::results::Verdict;
    use crate::stats::median_interval;

    pub(in crate::preload) fn example() -> PreloadResults {
        let cost = |way, program, ns: f64, times: f64| PreloadCost {
            way,
            program,
            call_ns: Spread::of(&[ns, ns + 1.0]).expect("figures"),
            times: Spread::of(&[times]).expect("figures"),
        };
        let real = |name: &str, calls, times: &[f64]| RealCost {
            name: name.to_owned(),
            calls,
            cpu_ms: Spread::of(&[200.0]).expect("figures"),
            between_times: Spread::of(&[1.0025]).expect("figures"),
            times: Spread::of(times).expect("figures"),
            interval: median_interval(times),
        };
        PreloadResults {
            format: FORMAT,
            machine: Machine::default(),
            rounds: 2,
            costs: vec![
                cost(Way::Plain, Program::Words, 40.0, 1.0),
                cost(Way::Idle, Program::Words, 40.5, 1.0125),
                cost(Way::Recorded, Program::Words, 60.0, 1.5),
                cost(Way::Plain, Program::Pairs, 5.0, 1.0),
                cost(Way::Interposed, Program::Pairs, 5.5, 1.1),
                cost(Way::Idle, Program::Pairs, 6.5, 1.3),
            ],
            real: vec![
                real("perl", 400_000, &[1.01; 6]),
                real("clang", 30_000, &[1.001, 0.999, 1.004, 1.0, 0.98, 1.02]),
                real("git", 5_000, &[1.002]),
            ],
            bars: Vec::new(),
            notes: vec![Note::skipped("LTTng", "lttng is not installed")],
        }
    }

    #[test]
    fn bars_follow_the_figures() {
        let told: Vec<(String, Verdict)> =
            example().all_bars().into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("+1.2 %".to_owned(), Verdict::Holds),
            ("perl +1.0 %".to_owned(), Verdict::Holds),
            ("+1.00 ns".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn json_goes_round() {
        let results = example();
        let text = results.to_json().expect("text");
        assert_eq!(serde_json::from_str::<PreloadResults>(&text).expect("results"), results);
    }
}
