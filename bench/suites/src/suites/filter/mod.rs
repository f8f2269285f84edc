//! The cost of a filter. Isolated: Trackway's machine code and interpreter, next to the same test
//! in C, called through a pointer on the same frame, and next to rbpf, which runs the same
//! bytecode. In traced programs: next to LTTng's filter. Sharma and Dagenais: *Enhanced Userspace
//! and In-Kernel Trace Filtering for Quasi-Realtime Systems* (2015), figures 10 to 12.
//!
//! ```text
//! chains        operands, chains of predicates, contestants
//! questions     filters of 1 to 50 predicates, as text and as C, and their events
//! peer          the questions in C, compiled and loaded
//! machine_code  from text to pages with machine code
//! contest       the contestants, and their timing
//! isolated      rows of isolated filters
//! prepared      rows of the time from text to answer
//! program       programs with filtered events
//! traced        rows of a filter's cost in traced programs: LTTng's and Trackway's
//! goals         goals for filters
//! ```
//!
//! Main invariant: before the measurement, all contestants give the right answers about events in
//! which each predicate is the only true one, or the only false one; and every timed answer is
//! counted.

mod chains;
mod contest;
mod goals;
mod isolated;
mod machine_code;
mod peer;
mod prepared;
mod program;
mod questions;
mod traced;

pub(crate) use goals::judge_goals;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::Unit;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use chains::{
    FilterTracer, Operands, PREDICATES, PREDICATES_QUICK, Runner, TRACED_PREDICATES,
    TRACED_PREDICATES_QUICK,
};
use isolated::IsolatedFilters;
use traced::TracedFilters;

/// The measurement of a row.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// An isolated filter.
    Isolated(isolated::Turn),
    /// The time from a filter's text to its first answer.
    Prepared(Operands),
    /// A filter in a traced program.
    Traced(traced::LoopSetup),
}

/// The suite `filter`.
#[derive(Default)]
pub(crate) struct Filter {
    isolated: Option<IsolatedFilters>,
    traced: Option<TracedFilters>,
    turns: Vec<Turn>,
}

impl Suite for Filter {
    fn about(&self) -> About {
        About {
            name: "filter",
            title: "What a filter costs",
            repeats: "2015 paper, Figures 10 to 12",
            unit: Unit::NsPerEvent,
            x_axis: "predicates",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 12.0 } else { 120.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        let isolated = Runner::ALL.map(Runner::name);
        let traced = FilterTracer::ALL.map(FilterTracer::name);
        [isolated::EMPTY_CALL].into_iter().chain(isolated).chain(traced).collect()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let settings = context.settings;
        let (counts, traced_counts): (&[usize], &[usize]) = match settings.quick {
            true => (&PREDICATES_QUICK, &TRACED_PREDICATES_QUICK),
            false => (&PREDICATES, &TRACED_PREDICATES),
        };
        context.progress.show_step("filter: asking all contestants everything");
        let (isolated, rows) = IsolatedFilters::enter(context.workspace, settings, counts)?;
        self.isolated = Some(isolated);
        let mut entries = Vec::new();
        for (entry, turn) in rows {
            entries.push(entry);
            self.turns.push(Turn::Isolated(turn));
        }
        set_c_baselines(&mut entries);
        if settings.wants(Runner::Compiled.name()) {
            for operands in Operands::ALL {
                entries.push(prepared_entry(operands));
                self.turns.push(Turn::Prepared(operands));
            }
        }
        context.progress.show_step("filter: setting up traced programs");
        let (traced, rows) = TracedFilters::enter(context.workspace, settings, traced_counts)?;
        self.traced = Some(traced);
        let before = entries.len();
        for (entry, setup) in rows {
            let baseline = entry.baseline.map(|baseline| baseline + before);
            entries.push(Entry { baseline, ..entry });
            self.turns.push(Turn::Traced(setup));
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let missing = || Error::output("filter", "there is no such row");
        match *self.turns.get(row).ok_or_else(missing)? {
            Turn::Isolated(turn) => {
                let figure = self.isolated.as_mut().ok_or_else(missing)?.sample(turn)?;
                Ok(Sample { figure, ..Sample::default() })
            }
            Turn::Prepared(operands) => {
                prepared::measure_preparation(operands, context.settings.quick)
            }
            Turn::Traced(setup) => {
                self.traced.as_ref().ok_or_else(missing)?.sample(context.workspace, setup)
            }
        }
    }

    fn leave(&mut self) {
        // Dropping the old value ends LTTng's daemon.
        *self = Self::default();
    }
}

/// Sets the baseline of each row: C's row of the same case; for a control, the row that it repeats.
fn set_c_baselines(entries: &mut [Entry]) {
    let is_baseline = |entry: &Entry, other: &Entry| {
        let first = match entry.is_control {
            true => entry.tracer.trim_end_matches(" again"),
            false => Runner::C.name(),
        };
        other.tracer == first && other.case == entry.case && other.can_be_measured()
    };
    let found: Vec<Option<usize>> = entries
        .iter()
        .map(|entry| {
            let is_it = |other: &Entry| is_baseline(entry, other);
            entries.iter().position(is_it).filter(|_| entry.tracer != Runner::C.name())
        })
        .collect();
    for (entry, baseline) in entries.iter_mut().zip(found) {
        entry.baseline = baseline;
    }
}

fn prepared_entry(operands: Operands) -> Entry {
    let no_code = "machine code is made for x86-64 only".to_owned();
    Entry {
        tracer: Runner::Compiled.name().to_owned(),
        case: prepared::case_name(operands),
        unit: Some(Unit::Us),
        absent: (!contest::HAS_MACHINE_CODE).then_some(no_code),
        command: format!("trackway bench filter --tracers {}", Runner::Compiled.name()),
        ..Entry::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_in_terms_of_c_and_controls_of_their_first() {
        let entry = |tracer: &str, is_control| Entry {
            tracer: tracer.to_owned(),
            case: "a".to_owned(),
            is_control,
            ..Entry::default()
        };
        let mut entries = [
            entry("c", false),
            entry("trackway-compiled", false),
            entry("trackway-compiled again", true),
        ];
        set_c_baselines(&mut entries);
        assert_eq!(entries.map(|entry| entry.baseline), [None, Some(0), Some(1)]);
    }
}
