//! Suites of events that programs emit: each tracer's program runs a case in a loop, one event at a
//! time, or by single steps.
//!
//! ```text
//! turn    the measurement of a tracer in one turn
//! which   the suites, defined by their turns
//! ```

mod turn;
mod which;

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};
use trackway_bench_engine::tracer::{Availability, Tracer};

use crate::tracers::{self, baseline, name};
use turn::Turn;

pub(crate) use turn::{THREADS, sample_of_batches};

/// A row: the tracer and its turn.
#[derive(Debug, Clone, Copy)]
struct RowSpec {
    tracer: usize,
    turn: Turn,
}

/// A suite of events.
pub(crate) struct Events {
    about: About,
    /// Approximate duration of a full run and of a quick run, in seconds.
    seconds: (f64, f64),
    /// Returns the turns on this number of CPUs.
    turns: fn(usize) -> Vec<Turn>,
    /// Returns true if the suite has rows for the tracer of this name.
    takes: fn(&str) -> bool,
    /// Baselines in order of preference: each row gets the first one that has the same case.
    baselines: &'static [&'static str],
    tracers: Vec<Box<dyn Tracer>>,
    rows: Vec<RowSpec>,
}

impl Events {
    fn new(about: About, seconds: (f64, f64), turns: fn(usize) -> Vec<Turn>) -> Self {
        let (tracers, rows) = (Vec::new(), Vec::new());
        let baselines = &[name::TRACKWAY, name::TRACKWAY_PRINTF];
        Self { about, seconds, turns, takes: |_| true, baselines, tracers, rows }
    }

    /// Returns true for each tracer that takes part: the selected tracers, the first baseline, and
    /// for each turn of theirs the first baseline that supports the turn.
    fn taking_part(&self, settings: &Settings) -> Vec<bool> {
        let turns = (self.turns)(1);
        let find = |name: &&str| self.tracers.iter().find(|one| one.name() == *name);
        let yardsticks: Vec<&dyn Tracer> =
            self.baselines.iter().filter_map(find).map(|one| one.as_ref()).collect();
        let wants = |tracer: &dyn Tracer| settings.wants(tracer.name());
        let is_wanted = |turn: &Turn| {
            self.tracers.iter().any(|one| wants(one.as_ref()) && turn.is_for(one.as_ref()))
        };
        let yardstick =
            |turn: &Turn| yardsticks.iter().find(|one| turn.is_for(**one)).map(|one| one.name());
        let mut needed: Vec<&str> = self.baselines.iter().take(1).copied().collect();
        needed.extend(turns.iter().filter(|turn| is_wanted(turn)).filter_map(yardstick));
        let takes_part = |tracer: &dyn Tracer| wants(tracer) || needed.contains(&tracer.name());
        self.tracers.iter().map(|one| takes_part(one.as_ref())).collect()
    }

    /// Returns the rows of a tracer: one for each turn that the tracer supports.
    fn rows_of(&self, tracer: usize, context: &SuiteContext<'_>) -> Vec<RowSpec> {
        let turns = (self.turns)(context.cpus).into_iter();
        let turns = turns.filter(|turn| turn.is_for(self.tracers[tracer].as_ref()));
        turns.map(|turn| RowSpec { tracer, turn }).collect()
    }

    /// Prepares a tracer and returns its entry in the list of rows, with the reason if it cannot
    /// run.
    fn set_up(&mut self, tracer: usize, context: &SuiteContext<'_>) -> Result<Entry> {
        let tracer = &mut self.tracers[tracer];
        if context.settings.quick
            && context.settings.tracers.is_empty()
            && tracer.is_slow_to_set_up()
        {
            let reason = "to build it takes longer than --quick has; --tracers names it";
            return Ok(Entry { absent: Some(reason.to_owned()), ..Entry::default() });
        }
        context.progress.show_step(&format!("setting up {}", tracer.name()));
        match tracer.availability(context.workspace) {
            Availability::Missing(reason) => Ok(Entry { absent: Some(reason), ..Entry::default() }),
            Availability::Ready => match tracer.set_up(context.workspace) {
                Ok(()) => Ok(Entry::default()),
                Err(Error::Interrupted) => Err(Error::Interrupted),
                // The tracer is installed, so the failure is reported.
                Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
            },
        }
    }

    fn entry(&self, row_spec: RowSpec, ready: &Entry) -> Entry {
        let tracer = &self.tracers[row_spec.tracer];
        let name = tracer.name();
        Entry {
            tracer: name.to_owned(),
            case: row_spec.turn.words(),
            x: match row_spec.turn {
                Turn::Batches(case, _) if self.about.name == "scaling" => Some(case.threads.into()),
                turn => turn.memory(),
            },
            absent: ready.absent.clone(),
            failed: ready.failed.clone(),
            unit: row_spec.turn.unit(),
            records: tracer.records() && row_spec.turn != Turn::Starts,
            command: format!("trackway bench {} --tracers {name}", self.about.name),
            ..Entry::default()
        }
    }
}

/// Returns the reason if programs cannot be stepped through on this machine.
fn stepping_obstacle(context: &SuiteContext<'_>) -> Result<Option<String>> {
    let program = context.workspace.compile(baseline::PROGRAM, &[])?;
    let mut command = Command::new(program);
    match child::run(command.args(["steps", "empty", "0", "1"]), "stepping") {
        Ok(_) => Ok(None),
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => Ok(Some(format!("programs cannot be stepped through here ({error})"))),
    }
}

impl Suite for Events {
    fn about(&self) -> About {
        self.about
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { self.seconds.1 } else { self.seconds.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        let turns = (self.turns)(1);
        let has_rows = |tracer: &dyn Tracer| turns.iter().any(|turn| turn.is_for(tracer));
        let all = tracers::all_tracers();
        let all = all.iter().filter(|tracer| (self.takes)(tracer.name()));
        all.filter(|tracer| has_rows(tracer.as_ref())).map(|tracer| tracer.name()).collect()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        self.tracers = tracers::all_tracers();
        self.tracers.retain(|tracer| (self.takes)(tracer.name()));
        let mut kept = self.taking_part(context.settings).into_iter();
        self.tracers.retain(|_| kept.next().unwrap_or(false));
        let mut found: Vec<(Entry, RowSpec)> = Vec::new();
        for tracer in 0..self.tracers.len() {
            let rows = self.rows_of(tracer, context);
            if rows.is_empty() {
                continue;
            }
            let ready = self.set_up(tracer, context)?;
            found.extend(rows.into_iter().map(|row_spec| (self.entry(row_spec, &ready), row_spec)));
        }
        // Rows follow the order of the suite's cases, and within a case the order of the tracers.
        let turns = (self.turns)(context.cpus);
        found.sort_by_key(|(_, row_spec)| turns.iter().position(|turn| *turn == row_spec.turn));
        let (mut entries, rows): (Vec<Entry>, Vec<RowSpec>) = found.into_iter().unzip();
        self.rows = rows;
        self.leave_out_steps(&mut entries, context)?;
        self.add_control(&mut entries);
        set_baselines(&mut entries, self.baselines);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let row_spec = self.rows[row];
        row_spec.turn.run(self.tracers[row_spec.tracer].as_mut(), context)
    }

    fn leave(&mut self) {
        for tracer in &mut self.tracers {
            tracer.tear_down();
        }
        self.tracers.clear();
        self.rows.clear();
    }
}

impl Events {
    /// Marks rows of single steps as absent if programs cannot be stepped through.
    fn leave_out_steps(&self, entries: &mut [Entry], context: &SuiteContext<'_>) -> Result<()> {
        let is_ready = |entry: &Entry, row_spec: &RowSpec| {
            entry.can_be_measured() && matches!(row_spec.turn, Turn::Steps(_))
        };
        let mut rows = entries.iter_mut().zip(&self.rows).filter(|one| is_ready(one.0, one.1));
        let Some((first, _)) = rows.next() else { return Ok(()) };
        let reason = stepping_obstacle(context)?;
        first.absent.clone_from(&reason);
        rows.for_each(|(entry, _)| entry.absent.clone_from(&reason));
        Ok(())
    }

    /// Adds the control, which repeats the first row of the first baseline.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let first =
            entries.iter().position(|entry| Some(&&*entry.tracer) == self.baselines.first());
        let Some(first) = first.filter(|&first| entries[first].can_be_measured()) else { return };
        let control = Entry { is_control: true, baseline: Some(first), ..entries[first].clone() };
        let tracer = format!("{} again", control.tracer);
        entries.push(Entry { tracer, ..control });
        self.rows.push(self.rows[first]);
    }
}

/// Sets the baseline of each row: among `names`, the first tracer that has a row of the same case;
/// none if that is the row itself.
fn set_baselines(entries: &mut [Entry], names: &[&str]) {
    let others: Vec<Option<usize>> = entries
        .iter()
        .enumerate()
        .map(|(at, entry)| {
            let of = |name: &&str| {
                let is_it = |other: &Entry| {
                    other.tracer == **name && other.case == entry.case && other.can_be_measured()
                };
                entries.iter().position(is_it)
            };
            names.iter().find_map(of).filter(|&other| other != at)
        })
        .collect();
    for (entry, other) in entries.iter_mut().zip(others) {
        entry.baseline = entry.baseline.or(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_are_told_in_terms_of_takes_part_where_it_does() {
        let taking_part = |word: &str| -> Vec<&str> {
            let mut suite = Events::tracepoint();
            suite.tracers = tracers::all_tracers();
            let settings = Settings { tracers: vec![word.to_owned()], ..Settings::default() };
            let kept = suite.taking_part(&settings);
            let names = suite.tracers.iter().map(|one| one.name()).zip(kept);
            names.filter(|one| one.1).map(|one| one.0).collect()
        };
        assert_eq!(taking_part("rdtsc"), [name::RDTSC, name::TRACKWAY]);
        let text = [name::TRACKWAY, name::PRINTF, name::TRACKWAY_PRINTF];
        assert_eq!(taking_part("printf"), text);
    }

    #[test]
    fn rows_are_told_in_terms_of_the_same_case() {
        let entry = |tracer: &str, case: &str| Entry {
            tracer: tracer.to_owned(),
            case: case.to_owned(),
            ..Entry::default()
        };
        let mut entries =
            [entry("trackway", "a"), entry("trackway", "b"), entry("other", "b"), entry("x", "c")];
        set_baselines(&mut entries, &["trackway", "x"]);
        let baseline: Vec<Option<usize>> = entries.iter().map(|entry| entry.baseline).collect();
        assert_eq!(baseline, [None, None, Some(1), None]);
    }
}
