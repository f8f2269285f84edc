//! A comparison of two reports: the changes from one to the other, and their certainty.
//!
//! ```text
//! ranks   the change between two samples of figures, of any distribution
//! text    the comparison as text
//! ```
//!
//! Main invariant: a slower machine makes no tracer slower. A row is compared by the ratio of its
//! figures to those of a yardstick in the same round. A yardstick is a program that does not belong
//! to Trackway and that both reports measured. So rows also compare between machines, if one
//! machine is slower at all work alike. The change of the figures themselves is reported next to
//! the ratio.

mod ranks;
mod text;

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::results::{BUILD_KEYS, NO_PROTECTION, Report, Row, RowStatus, SuiteRows, Unit};
use crate::stats::Spread;
use crate::tracer_names;

pub use ranks::Shift;
pub use text::print_comparison;

/// Most bytes of a report.
const REPORT_BYTES_MAX: u64 = 256 << 20;
/// Fewest rounds for a verdict.
const ROUNDS_MIN: usize = 6;
/// Smallest change that is reported, however certain it is: memory layout and other work of the
/// machine cause such a difference between two runs.
const CHANGE_MIN: f64 = 0.02;
/// Smallest reported change of the part of lost events, from 0 to 1.
const LOST_CHANGE_MIN: f64 = 0.01;
/// Least ratio of a yardstick's figure to the cost of timing that was subtracted from it. A smaller
/// figure, such as a bare routine's, is zero except for noise, and cannot be a yardstick.
const YARDSTICK_COST_RATIO_MIN: f64 = 0.1;
/// Tracers that are nearest to no tracer at all, which is the best yardstick; the nearest is first.
const YARDSTICKS: [&str; 7] =
    ["rdtsc", "empty-loop", "none", "bare", "untraced", "lw-ust", NO_PROTECTION];
/// Changes between two reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Differences between the conditions of the two reports: name, before, after.
    pub circumstances: Vec<(String, String, String)>,
    /// True if both reports measure the same build of Trackway; `None` if one does not record its
    /// build.
    pub is_same_build: Option<bool>,
    /// All rows of both reports.
    pub rows: Vec<RowChange>,
    /// Number of rows that had enough rounds to be compared.
    pub compared: usize,
    /// Number of compared rows that would differ by chance alone if each row were tested by itself.
    pub by_chance: f64,
    /// The changes that a comparison of so many rows and rounds can show.
    pub reach: Reach,
}

/// The sensitivity of a comparison: the more rows are compared, the more rounds it takes to tell
/// the change of one row from chance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Rows that both reports measured, yardsticks left out.
    pub rows: usize,
    /// Rows with too few rounds for this number of rows: if one of them changes alone, by any
    /// amount, the change is not shown.
    pub blind: usize,
    /// The most rounds that any row has in both reports.
    pub rounds: usize,
    /// Number of rounds in each report that one row needs to be shown if it changes alone.
    pub rounds_needed: usize,
}

/// A row in both reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowChange {
    /// The suite of the row.
    pub suite: String,
    /// The tracer of the row.
    pub tracer: String,
    /// The case of the row.
    pub case: String,
    /// The unit of the row's figures.
    pub unit: Unit,
    /// The median in the first report.
    pub before: Option<f64>,
    /// The median in the second report.
    pub after: Option<f64>,
    /// Numbers of rounds in the first and in the second report.
    pub rounds: (usize, usize),
    /// True if the row has enough rounds to show a change of this row alone, among so many rows.
    pub could_be_shown: bool,
    /// The lost parts of the row's events in both reports, if both are known.
    pub lost: Option<(f64, f64)>,
    /// The change of the figures themselves.
    pub figures: Option<Shift>,
    /// The yardstick for `relative`.
    pub yardstick: Option<String>,
    /// The change of the figures relative to the yardstick.
    pub relative: Option<Shift>,
    /// The verdict.
    pub verdict: RowVerdict,
    /// The reason, if the figures do not decide the verdict.
    pub reason: Option<String>,
}

/// The verdict on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowVerdict {
    /// The row is certainly worse: slower, or larger.
    Worse,
    /// The row was measured before, and has failed now.
    Broken,
    /// The row is certainly better.
    Better,
    /// The row is certainly the same, to 2 %.
    Same,
    /// No difference was shown.
    NotShown,
    /// There are too few rounds for a verdict.
    TooFewRounds,
    /// The row is the yardstick of others: its change is that of the machine.
    Yardstick,
    /// The row is a time, and the reports have no common yardstick.
    NothingBeside,
    /// Only the first report has a figure.
    OnlyBefore,
    /// Only the second report has a figure.
    OnlyAfter,
}

impl Comparison {
    /// Returns true if a row is certainly worse or has failed.
    pub fn has_worse(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.verdict, RowVerdict::Worse | RowVerdict::Broken))
    }

    /// Returns the rows whose part of lost events has changed.
    pub fn losing(&self) -> impl Iterator<Item = &RowChange> {
        self.rows.iter().filter(|row| row.has_loss_change())
    }

    /// Returns the comparison as JSON, for programs.
    ///
    /// # Errors
    ///
    /// None is known.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

impl RowChange {
    /// Returns true if the part of lost events has changed: from none to some, from some to none,
    /// or by more than the difference between two runs.
    pub fn has_loss_change(&self) -> bool {
        self.lost.is_some_and(|(before, after)| {
            (before > 0.0) != (after > 0.0) || (after - before).abs() > LOST_CHANGE_MIN
        })
    }
}

/// Reads a report.
///
/// # Errors
///
/// If the report cannot be read, or `trackway bench` did not write it; the error has the reason.
pub fn read_report(path: &Path) -> std::result::Result<Report, Error> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(Error::io(format!("cannot open {name}")))?;
    let mut text = String::new();
    let read = file.take(REPORT_BYTES_MAX + 1).read_to_string(&mut text);
    if text.len() as u64 > REPORT_BYTES_MAX {
        return Err(Error::output(name, "it is too large for a report"));
    }
    if let Err(error) = read {
        let is_text = error.kind() != std::io::ErrorKind::InvalidData;
        let error = Error::io(format!("cannot read {name}"))(error);
        let message = "it is not text; a report of trackway bench is called results.json";
        return Err(if is_text { error } else { Error::output(name, message) });
    }
    Report::from_json(&text).map_err(|error| {
        let message = format!("it is not a report of trackway bench (results.json): {error}");
        Error::output(name, message)
    })
}

/// Compares two reports, for the tracers that the names in `tracers` select, or for all.
pub fn compare_reports(before: &Report, after: &Report, tracers: &[String]) -> Comparison {
    let is_wanted = |row: &Row| tracer_names::is_chosen(tracers, &row.tracer);
    let circumstances = differing_conditions(before, after);
    let mut rows = Vec::new();
    let mut names: Vec<&str> = before.ordered().map(|(name, _)| name).collect();
    names.extend(after.ordered().map(|one| one.0).filter(|one| !before.suites.contains_key(*one)));
    for name in names {
        let suites = [before.suites.get(name), after.suites.get(name)];
        rows.extend(compare_suites(name, suites, &is_wanted));
    }
    let compared = set_verdicts(&mut rows);
    let reach = compute_reach(&mut rows);
    let is_same_build = is_same_build(before, after);
    let by_chance = 0.05 * compared as f64;
    Comparison { circumstances, is_same_build, rows, compared, by_chance, reach }
}

/// Returns true if both reports have the same build ids of the executable and the library; `None`
/// if one of the reports lacks the build id of the executable.
fn is_same_build(before: &Report, after: &Report) -> Option<bool> {
    let builds = |report: &Report| BUILD_KEYS.map(|name| report.versions.get(name).cloned());
    let (before, after) = (builds(before), builds(after));
    (before[0].is_some() && after[0].is_some()).then(|| before == after)
}

/// Computes the sensitivity over all rows that are compared or would be compared with more rounds,
/// and marks the rows that could be shown.
fn compute_reach(rows: &mut [RowChange]) -> Reach {
    let is_looked_at = |row: &&mut RowChange| {
        use RowVerdict::{Better, NotShown, Same, TooFewRounds, Worse};
        let is_one = matches!(row.verdict, Worse | Better | Same | NotShown | TooFewRounds);
        is_one && row.figures.is_some()
    };
    let mut rows: Vec<&mut RowChange> = rows.iter_mut().filter(is_looked_at).collect();
    let count = rows.len();
    for row in &mut rows {
        let chance = ranks::least_chance(row.rounds.0, row.rounds.1);
        let is_enough = row.rounds.0.min(row.rounds.1) >= ROUNDS_MIN;
        row.could_be_shown = is_enough && chance <= ranks::significance_bound(0, count);
    }
    Reach {
        rows: count,
        blind: rows.iter().filter(|row| !row.could_be_shown).count(),
        rounds: rows.iter().map(|row| row.rounds.0.min(row.rounds.1)).max().unwrap_or(0),
        rounds_needed: ranks::figures_needed(count.max(1)).max(ROUNDS_MIN),
    }
}

/// Returns the differences between the conditions of two reports.
fn differing_conditions(before: &Report, after: &Report) -> Vec<(String, String, String)> {
    let (before, after) = (measurement_conditions(before), measurement_conditions(after));
    let mut found = Vec::new();
    for (name, was) in &before {
        let is = after.iter().find(|one| one.0 == *name).map_or("not there", |one| &one.1);
        // Two loads are never equal: a load counts only if other processes were running.
        let busy = |load: &str| load.parse::<f64>().is_ok_and(|load| load > 0.5);
        let differs = if *name == "load" { busy(was) || busy(is) } else { was != is };
        if differs {
            found.push(((*name).to_owned(), was.clone(), is.to_owned()));
        }
    }
    let new = after.iter().filter(|one| !before.iter().any(|other| other.0 == one.0));
    found.extend(new.map(|(name, is)| ((*name).to_owned(), "not there".to_owned(), is.clone())));
    found
}

/// Returns the conditions on which figures depend, in addition to the programs.
fn measurement_conditions(report: &Report) -> Vec<(&str, String)> {
    let (machine, settings) = (&report.machine, &report.settings);
    let mut words = vec![
        ("processor", machine.cpu.clone()),
        ("CPUs", machine.cpus.to_string()),
        ("virtual machine", machine.is_virtual.to_string()),
        ("kernel", machine.kernel.clone()),
        ("clock source", machine.clocksource.clone()),
        ("C library", machine.libc.clone()),
        ("compiler", machine.compiler.clone()),
        ("Trackway", machine.trackway.clone()),
        ("quick", settings.quick.to_string()),
        ("partial", report.is_partial.to_string()),
        ("load", machine.load.clone()),
    ];
    let versions = report.versions.iter().map(|one| (one.0.as_str(), one.1.clone()));
    words.extend(versions.filter(|one| one.0 != "cc"));
    words
}

/// Compares the rows of a suite that are in one report or in both.
fn compare_suites(
    name: &str,
    suites: [Option<&SuiteRows>; 2],
    is_wanted: &dyn Fn(&Row) -> bool,
) -> Vec<RowChange> {
    let empty: &[Row] = &[];
    let [before, after] = suites.map(|suite| suite.map_or(empty, |suite| suite.rows.as_slice()));
    let is_pair = |one: &Row, other: &Row| {
        one.tracer == other.tracer && one.case == other.case && one.unit == other.unit
    };
    let mut found = Vec::new();
    // Rows with equal names are matched by their order: the second with the second.
    let mut taken = vec![false; after.len()];
    for row in before {
        let partner = (0..after.len()).find(|&at| !taken[at] && is_pair(row, &after[at]));
        if let Some(at) = partner {
            taken[at] = true;
        }
        if is_wanted(row) {
            found.push(compare_rows(name, Some(row), partner.map(|at| &after[at])));
        }
    }
    let new = after.iter().zip(&taken).filter(|one| !one.1 && is_wanted(one.0));
    found.extend(new.map(|(row, _)| compare_rows(name, None, Some(row))));
    // Without any figure there is nothing to compare.
    found.retain(|change| change.before.is_some() || change.after.is_some());
    for change in &mut found {
        compare_to_yardstick(change, before, after);
        // A machine's speed varies from hour to hour, above all a virtual machine's. Counts of
        // bytes and instructions do not.
        if change.verdict == RowVerdict::NotShown && decisive_shift(change).is_none() {
            let is_yardstick = YARDSTICKS.contains(&change.tracer.as_str());
            change.verdict =
                if is_yardstick { RowVerdict::Yardstick } else { RowVerdict::NothingBeside };
        }
    }
    found
}

/// Returns the change that decides the verdict on a row: for a time, the change relative to a
/// yardstick.
fn decisive_shift(row: &RowChange) -> Option<Shift> {
    if is_countable(row.unit) { row.figures } else { row.relative }
}

/// Returns true if figures of this unit are counted, not timed.
const fn is_countable(unit: Unit) -> bool {
    match unit {
        Unit::BytesPerEvent | Unit::InstructionsPerEvent | Unit::Kib => true,
        Unit::NsPerEvent
        | Unit::NsPerCall
        | Unit::Ns
        | Unit::Us
        | Unit::Ms
        | Unit::EventsPerSecond
        | Unit::RequestsPerSecond
        | Unit::MbPerSecond
        | Unit::PercentOfCpu => false,
    }
}

/// Returns the figures of the rounds, or none if the row was not measured.
fn measured_figures(row: &Row) -> Vec<f64> {
    let is_measured = row.status == RowStatus::Measured;
    row.samples.iter().filter(|_| is_measured).flatten().copied().collect()
}

fn compare_rows(suite: &str, before: Option<&Row>, after: Option<&Row>) -> RowChange {
    let [was, is] = [before, after].map(|row| row.map_or_else(Vec::new, measured_figures));
    let has_failed = after.is_some_and(|row| row.status == RowStatus::Failed);
    let verdict = match (was.len(), is.len()) {
        (1.., 0) if has_failed => RowVerdict::Broken,
        (1.., 0) => RowVerdict::OnlyBefore,
        (0, _) => RowVerdict::OnlyAfter,
        (..ROUNDS_MIN, _) | (_, ..ROUNDS_MIN) => RowVerdict::TooFewRounds,
        _ => RowVerdict::NotShown,
    };
    let other = if was.is_empty() { before } else { after };
    let missing = other.filter(|row| row.status != RowStatus::Measured);
    let reason = missing.and_then(|row| row.reason.clone());
    let row = before.or(after);
    let lost = |row: Option<&Row>| {
        let row = row.filter(|row| row.status == RowStatus::Measured)?;
        let emitted = row.emitted.filter(|emitted| *emitted > 0)?;
        Some(row.lost? as f64 / emitted as f64)
    };
    RowChange {
        suite: suite.to_owned(),
        tracer: row.map_or_else(String::new, |row| row.tracer.clone()),
        case: row.map_or_else(String::new, |row| row.case.clone()),
        unit: row.map_or(Unit::Ns, |row| row.unit),
        before: Spread::of(&was).map(|spread| spread.median),
        after: Spread::of(&is).map(|spread| spread.median),
        rounds: (was.len(), is.len()),
        could_be_shown: false,
        lost: lost(before).zip(lost(after)),
        figures: Shift::of(&was, &is),
        yardstick: None,
        relative: None,
        verdict,
        reason,
    }
}

/// Compares a row's figures relative to a yardstick in the same rounds, if there is a yardstick.
fn compare_to_yardstick(change: &mut RowChange, before: &[Row], after: &[Row]) {
    if is_countable(change.unit) || change.figures.is_none() {
        return;
    }
    // A control cannot be a yardstick, but can be compared with one.
    let find = |rows: &[Row], tracer: &str, case: &str| {
        let is_it =
            |row: &&Row| row.tracer == tracer && row.case == case && row.unit == change.unit;
        rows.iter().find(is_it).cloned()
    };
    let Some((tracer, case)) = find_yardstick(change, before, after) else { return };
    let in_terms = |rows: &[Row]| -> Option<Vec<f64>> {
        let row = find(rows, &change.tracer, &change.case)?;
        let other = find(rows, &tracer, &case)?;
        let pairs = row.samples.iter().zip(&other.samples);
        // Rounds with a zero of the yardstick are left out.
        let other = |other: &Option<f64>| other.filter(|other| *other > 0.0);
        Some(pairs.filter_map(|(one, baseline)| Some((*one)? / other(baseline)?)).collect())
    };
    let (Some(was), Some(is)) = (in_terms(before), in_terms(after)) else { return };
    if was.len() < ROUNDS_MIN || is.len() < ROUNDS_MIN {
        return;
    }
    change.relative = Shift::of(&was, &is);
    let is_same_case = case == change.case;
    change.yardstick = Some(if is_same_case { tracer } else { format!("{tracer}, {case}") });
}

/// Returns tracer and case of the yardstick: a row of both reports that does not belong to
/// Trackway, in the same unit. Rows of the same case come first, then tracers nearest to no tracer,
/// then rows whose figures vary least.
fn find_yardstick(change: &RowChange, before: &[Row], after: &[Row]) -> Option<(String, String)> {
    let wander = |row: &Row| {
        let spread = row.spread.filter(|spread| spread.median > 0.0);
        spread.map_or(f64::INFINITY, |spread| (spread.p95 - spread.p5) / spread.median)
    };
    let is_something = |row: &Row| {
        let left =
            |cost| row.median().is_some_and(|median| median > YARDSTICK_COST_RATIO_MIN * cost);
        row.measuring.is_none_or(left)
    };
    let can_be = |row: &&Row| {
        row.status == RowStatus::Measured
            && row.unit == change.unit
            && !row.is_control
            && (!row.tracer.starts_with("trackway") || row.tracer == NO_PROTECTION)
            && (row.tracer != change.tracer || row.case != change.case)
            && measured_figures(row).len() >= ROUNDS_MIN
            && is_something(row)
    };
    let is_in_both = |row: &&Row| {
        let is_it = |other: &Row| other.tracer == row.tracer && other.case == row.case;
        after.iter().filter(can_be).any(is_it)
    };
    // A yardstick is only compared with a yardstick that is nearer to no tracer.
    let known = |tracer: &str| YARDSTICKS.iter().position(|one| *one == tracer);
    let own = known(&change.tracer);
    let rank = |row: &Row| (row.case != change.case, known(&row.tracer).unwrap_or(usize::MAX));
    let best = before.iter().filter(can_be).filter(is_in_both).min_by(|one, other| {
        let by_rank = rank(one).cmp(&rank(other));
        by_rank.then_with(|| wander(one).total_cmp(&wander(other)))
    })?;
    let is_nearer = own.is_none_or(|own| known(&best.tracer).is_some_and(|best| best < own));
    is_nearer.then(|| (best.tracer.clone(), best.case.clone()))
}

/// Sets the verdicts of all rows that can be compared; returns their number.
fn set_verdicts(rows: &mut [RowChange]) -> usize {
    let mut comparable: Vec<&mut RowChange> = rows
        .iter_mut()
        .filter(|row| row.verdict == RowVerdict::NotShown && decisive_shift(row).is_some())
        .collect();
    let chances: Vec<f64> =
        comparable.iter().filter_map(|row| decisive_shift(row)).map(|shift| shift.chance).collect();
    for (row, is_surprising) in comparable.iter_mut().zip(ranks::find_significant(&chances)) {
        let Some(shift) = decisive_shift(row) else { continue };
        let found = judge_shift(&shift, is_surprising, row.unit.more_is_better());
        // If the figures themselves have not changed in the same direction, the yardstick has
        // changed.
        let is_so = |figures: Shift| {
            exceeds_run_noise(figures.times) && { (figures.times > 1.0) == (shift.times > 1.0) }
        };
        let is_change = matches!(found, RowVerdict::Better | RowVerdict::Worse);
        let is_doubtful = is_change && row.figures.is_some_and(|figures| !is_so(figures));
        row.verdict = if is_doubtful { RowVerdict::NotShown } else { found };
    }
    comparable.len()
}

/// Returns true if a ratio is larger than the difference between two runs of the same work.
fn exceeds_run_noise(times: f64) -> bool {
    !(1.0 / (1.0 + CHANGE_MIN)..=1.0 + CHANGE_MIN).contains(&times)
}

fn judge_shift(shift: &Shift, is_surprising: bool, more_is_better: bool) -> RowVerdict {
    let bounds = (1.0 / (1.0 + CHANGE_MIN), 1.0 + CHANGE_MIN);
    let is_within = |(low, high): (f64, f64)| bounds.0 <= low && high <= bounds.1;
    if is_surprising && exceeds_run_noise(shift.times) {
        let is_better = (shift.times > 1.0) == more_is_better;
        return if is_better { RowVerdict::Better } else { RowVerdict::Worse };
    }
    if shift.interval.is_some_and(is_within) { RowVerdict::Same } else { RowVerdict::NotShown }
}

#[cfg(test)]
mod tests;
