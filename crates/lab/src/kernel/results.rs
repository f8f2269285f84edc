//! What was measured of tracing the kernel, in the form in which it is kept.

use serde::{Deserialize, Serialize};

use super::tracer::{KernelEvents, KernelTracer};
use crate::bars::at_most;
use crate::machine::Machine;
use crate::results::{Bar, Note, Verdict};
use crate::stats::{Ratio, Spread};

/// Version of the JSON form: raised when a member changes its meaning or goes.
pub(super) const FORMAT: u32 = 1;
/// Most that entry and exit may cost beside ftrace's, recording everything.
const EVERYTHING: f64 = 0.75;
/// The same of one process tree.
const TREE: f64 = 1.0;
/// Events a second that are to be drained by less than one core.
const DRAINED: f64 = 1e6;

/// Everything that a run of the lab found about tracing the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// Which tracers took part, and why others did not.
    pub tracers: Vec<Participant>,
    /// System calls one after another.
    pub calls: Vec<CallCost>,
    /// What became of their events.
    pub accounts: Vec<KernelAccount>,
    /// Whole programs.
    pub loads: Vec<LoadCost>,
    /// Recorders at work.
    pub drains: Vec<Drain>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// Whether a tracer was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was, and its own output shows the events.
    Measured,
    /// It cannot be had here.
    Absent,
    /// It should have worked.
    Failed,
}

/// A tracer that was to take part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Participant {
    /// Which.
    pub tracer: KernelTracer,
    /// Whether it did.
    pub status: Status,
    /// Why not.
    pub reason: Option<String>,
}

/// What a system call costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCost {
    /// Under which tracer.
    pub tracer: KernelTracer,
    /// Which.
    pub call: String,
    /// Bytes of the name that it is given, if it is.
    pub name_bytes: Option<u64>,
    /// What figures are in.
    pub unit: String,
    /// A call: the median of each round's batches, over the rounds.
    pub ns: Spread,
    /// The same beyond the untraced one, in the same round.
    pub added_ns: Option<Spread>,
    /// That, in terms of what ftrace's raw_syscalls add, in the same round.
    pub of_ftrace: Option<Ratio>,
}

/// What became of the events of calls, by the tracer's own output, over all rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// Entries and exits that the workload made.
    pub emitted: u64,
    /// How many of them the tracer has: where it cannot be told, of all that it has, at most those.
    pub recorded: u64,
    /// Events that it says it has lost, of everything.
    pub lost: u64,
    /// Bytes of an event, if it keeps any.
    pub bytes_per_event: Option<f64>,
    /// What the same event would take in LTTng's layout, on average.
    pub lttng_bytes_per_event: Option<f64>,
}

impl Traced {
    /// Whether all that was emitted is there, or said to be lost.
    pub const fn is_complete(&self) -> bool {
        self.recorded + self.lost >= self.emitted && self.recorded > 0
    }
}

/// What became of the events of a kind of calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelAccount {
    /// Under which tracer.
    pub tracer: KernelTracer,
    /// Of which calls.
    pub call: String,
    /// What.
    pub traced: Traced,
}

/// What a program's run takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadCost {
    /// Under which tracer.
    pub tracer: KernelTracer,
    /// Which of the kernel's events were traced.
    pub events: KernelEvents,
    /// The program, with its arguments.
    pub command: String,
    /// From its start to its end, over the rounds.
    pub ms: Spread,
    /// In terms of the untraced run in the same round.
    pub times: Option<Ratio>,
    /// Events in the tracer's output, of all rounds.
    pub recorded: u64,
    /// Events that it says it has lost.
    pub lost: u64,
    /// Percent of a CPU that the recorder took meanwhile.
    pub recorder_percent: Option<Spread>,
}

/// A recorder at work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// Which.
    pub tracer: KernelTracer,
    /// Events a second that were asked for; `None`: as many as it goes.
    pub asked: Option<f64>,
    /// Events a second that there were.
    pub emitted_per_second: f64,
    /// Events a second that arrived on disk.
    pub recorded_per_second: f64,
    /// Events that were emitted.
    pub emitted: u64,
    /// Events that it says it has lost.
    pub lost: u64,
    /// Percent of a CPU that the recorder took meanwhile.
    pub recorder_percent: f64,
    /// Buffer memory of each CPU, in bytes.
    pub buffer_bytes: u64,
}

impl KernelResults {
    /// What a call costs under a tracer.
    pub fn call(&self, tracer: KernelTracer, call: &str, bytes: Option<u64>) -> Option<&CallCost> {
        let is_it = |cost: &&CallCost| {
            cost.tracer == tracer && cost.call == call && cost.name_bytes == bytes
        };
        self.calls.iter().find(is_it)
    }

    /// What became of the events of a call under a tracer.
    pub fn account(&self, tracer: KernelTracer, call: &str) -> Option<&Traced> {
        let is_it = |one: &&KernelAccount| one.tracer == tracer && one.call == call;
        self.accounts.iter().find(is_it).map(|one| &one.traced)
    }

    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// None that is known: all of it can be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// What Trackway set out to reach.
    pub(super) fn all_bars(&self) -> Vec<Bar> {
        let ratio = |tracer| self.call(tracer, "getppid", None)?.of_ftrace;
        let beside = |tracer, words: &str, bound: f64| {
            let what = format!("getppid, {words}: at most {bound:.2} of what ftrace adds");
            let ratio = ratio(tracer);
            let words = |median: f64| match ratio.and_then(|ratio| ratio.interval) {
                Some((low, high)) => format!("{median:.2} ({low:.2} to {high:.2})"),
                None => format!("{median:.2}"),
            };
            at_most(&what, ratio.map(|ratio| ratio.median), bound, words)
        };
        let mut bars = vec![
            beside(KernelTracer::Trackway, "everything (aim: 0.50)", EVERYTHING),
            beside(KernelTracer::TrackwayTree, "one process tree", TREE),
        ];
        for call in ["getppid", "openat"] {
            let traced = self.account(KernelTracer::Trackway, call);
            let ours = traced.and_then(|traced| traced.bytes_per_event);
            let theirs = traced.and_then(|traced| traced.lttng_bytes_per_event);
            let what = format!("bytes of an event of {call}: at most as in LTTng's layout");
            let bound = theirs.unwrap_or(0.0);
            let words = |bytes: f64| format!("{bytes:.2}, LTTng {bound:.2}");
            bars.push(at_most(&what, ours.and(theirs).and(ours), bound, words));
        }
        bars.push(self.drained());
        bars
    }

    /// A million events a second, by less than a core, none lost.
    fn drained(&self) -> Bar {
        let is_it = |drain: &&Drain| drain.tracer == KernelTracer::Trackway;
        let paced = self.drains.iter().filter(is_it).find(|drain| drain.asked.is_some());
        let what = "1 M events/s drained by less than one core, none lost, 8 MiB a CPU";
        // A machine that does not get so far says nothing of the recorder.
        let paced = paced.filter(|drain| drain.emitted_per_second > 0.9 * DRAINED);
        let words = |percent: f64| {
            let (rate, lost) = paced.map_or((0.0, 0), |one| (one.emitted_per_second, one.lost));
            format!("{:.2} M/s, {percent:.0} %, {lost} lost", rate / 1e6)
        };
        let mut bar = at_most(what, paced.map(|drain| drain.recorder_percent), 100.0, words);
        if paced.is_some_and(|drain| drain.lost > 0) {
            bar.verdict = Verdict::Misses;
        }
        bar
    }
}
