//! The suites of events, defined by their turns.

use trackway_bench_engine::case::{BufferState, Case};
use trackway_bench_engine::results::Unit;
use trackway_bench_engine::suite::About;

use super::Events;
use super::turn::Turn;
use crate::tracers::{self, FLOW_BYTES, name};

/// Sizes of the per-CPU buffers that are drained, in bytes.
const DRAIN_BYTES: [u64; 4] = [256 << 10, 1 << 20, FLOW_BYTES, 16 << 20];

impl Events {
    /// Makes the suite of an event's cost: in loops, in each mode, one by one, and in instructions.
    pub(crate) fn tracepoint() -> Self {
        let about = About {
            name: "tracepoint",
            title: "What an event costs",
            repeats: "survey, Tables IV and VI",
            unit: Unit::NsPerEvent,
            x_axis: "",
        };
        Self::new(about, (230.0, 25.0), |_| {
            let one = Case::SIMPLEST;
            let mut cases = Case::table_columns(1);
            cases.extend(Case::OUTSIDE_TABLE);
            let loops = cases.into_iter().map(|case| Turn::Batches(case, BufferState::Overwrite));
            let modes =
                [BufferState::Steady, BufferState::Producer].map(|mode| Turn::Batches(one, mode));
            let singles = BufferState::ALL.map(|mode| Turn::Singles(one, mode));
            let text = Turn::Singles(Case::PRINTF, BufferState::Overwrite);
            let steps = [one, Case::PRINTF].map(Turn::Steps);
            loops.chain(modes).chain(singles).chain([text]).chain(steps).collect()
        })
    }

    /// Makes the suite of an event's cost while other threads emit events: the user-space part of
    /// `scaling`.
    pub(crate) fn scaling() -> Self {
        let about = About {
            name: "scaling",
            title: "What an event costs in each of several threads",
            repeats: "survey, Figures 5, 6 and 8",
            unit: Unit::NsPerEvent,
            x_axis: "threads",
        };
        let mut suite = Self::new(about, (60.0, 10.0), |cpus| {
            // Up to four threads for each CPU: threads are then preempted within an event.
            let most = 4 * cpus.max(1) as u32;
            let doubled = std::iter::successors(Some(1_u32), |threads| Some(threads * 2));
            let threads = doubled.take_while(|&threads| threads <= most);
            let case = |threads| Case::SIMPLEST.with_threads(threads);
            threads.map(|threads| Turn::Batches(case(threads), BufferState::Overwrite)).collect()
        });
        // C++ has the same events as C, and is measured in one thread.
        suite.takes = |name| {
            let is_left_out = name == name::EMPTY || name == name::CXX;
            !name.ends_with("-off") && !is_left_out && !tracers::is_external(name)
        };
        suite
    }

    /// Makes the suite of a program's start.
    pub(crate) fn startup() -> Self {
        let about = About {
            name: "startup",
            title: "Start of a program that is linked with a tracer: the fastest of a turn",
            repeats: "design, bars",
            unit: Unit::Us,
            x_axis: "",
        };
        let mut suite = Self::new(about, (30.0, 4.0), |_| vec![Turn::Starts]);
        suite.baselines = &[name::EMPTY];
        suite
    }

    /// Makes the suite of the event rate to files, by the size of buffers.
    pub(crate) fn drain() -> Self {
        let about = About {
            name: "drain",
            title: "Events a second that arrive in files",
            repeats: "2012 paper, 6.2; design, bars",
            unit: Unit::EventsPerSecond,
            x_axis: "MiB of buffers for each CPU",
        };
        Self::new(about, (160.0, 8.0), |_| DRAIN_BYTES.map(Turn::Flow).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_four_for_each_cpu() {
        let turns = (Events::scaling().turns)(2);
        let threads: Vec<u32> = turns
            .iter()
            .map(|turn| match turn {
                Turn::Batches(case, BufferState::Overwrite) => case.threads,
                _ => 0,
            })
            .collect();
        assert_eq!(threads, [1, 2, 4, 8]);
    }

    #[test]
    fn cases_are_told_apart_by_their_words() {
        let turns = (Events::tracepoint().turns)(2);
        let words: std::collections::BTreeSet<String> =
            turns.iter().map(|turn| turn.words()).collect();
        assert_eq!(words.len(), turns.len());
        for case in ["u32, steady", "u32, single events, producer only", "u32, instructions"] {
            assert!(words.contains(case), "{case}: {words:?}");
        }
    }
}
