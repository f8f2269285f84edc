//! The measurement of rows: in rounds, each in a new random order, until the ratios of the rows are
//! certain enough or the time is over.
//!
//! Main invariants: a row's ratio is of figures of the same round, between which only rows with the
//! same baseline or case are measured. A round without a figure of a row counts for no ratio with
//! that row. A failure costs the tracer's own rows, or only the round if it is rare. A row whose
//! tracer keeps events counts as measured only if the tracer's own output shows them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::order::Shuffle;
use crate::results::{Account, EndReason, Row, RowStatus, SuiteRows};
use crate::settings::Settings;
use crate::signals;
use crate::stats::{self, Ratio, Spread, Tail};
use crate::suite::{Entry, Sample, Suite, SuiteContext};

/// Half width of a ratio's confidence interval, relative to the ratio, at which the ratio is
/// certain enough.
const RATIO_WIDTH_MAX: f64 = 0.02;
/// Most rounds unless the user sets a number.
const ROUNDS_MAX: u32 = 60;
/// Fewest rounds after which certain ratios end a suite. An interval needs six. The check follows
/// each round, so with few more rounds, ratios that agree by chance would end the suite too soon.
const ROUNDS_MIN: u32 = 12;
/// Fewest rounds after which the time limit ends a suite: fewer rounds give no confidence interval
/// (`stats::median_interval`).
const ROUNDS_LATE: u32 = 8;
/// Fewest good rounds of a row with failed rounds; two thirds of all its rounds must be good.
const GOOD_ROUNDS_MIN: usize = 3;
/// Number of entries from which on equal entries of a histogram are merged.
const HISTOGRAM_MERGED_AT: usize = 100_000;

/// Prefixes of keys in [`Sample::extra`]: the report has the greatest figure or the sum over all
/// rounds, instead of the median.
const GREATEST_PREFIX: &str = "greatest";
const SUM_PREFIX: &str = "in all";

/// The limits that end the rounds of a suite.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RoundLimits {
    rounds: Option<u32>,
    seconds: f64,
}

impl RoundLimits {
    fn of(suite: &dyn Suite, settings: &Settings) -> Self {
        let quick = settings.quick.then_some(1);
        Self { rounds: settings.rounds.or(quick), seconds: suite.seconds(settings) }
    }

    /// Returns the reason for the end of the rounds, if a limit is reached.
    fn reached(
        &self,
        rounds: u32,
        elapsed: Duration,
        is_sure: impl Fn() -> bool,
    ) -> Option<EndReason> {
        if let Some(wanted) = self.rounds {
            return (rounds >= wanted.max(1)).then_some(EndReason::Rounds);
        }
        if rounds >= ROUNDS_MIN && is_sure() {
            return Some(EndReason::Sure);
        }
        let is_late = elapsed.as_secs_f64() >= self.seconds && rounds >= ROUNDS_LATE;
        (is_late || rounds >= ROUNDS_MAX).then_some(EndReason::Time)
    }
}

/// Returns the approximate duration of a suite in seconds; with a fixed number of rounds, the
/// longest.
pub(crate) fn estimate_seconds(suite: &dyn Suite, settings: &Settings) -> f64 {
    // A suite estimates the time of `ROUNDS_LATE` rounds, or of one quick round.
    let in_that_time = if settings.quick { 1 } else { ROUNDS_LATE };
    let times = |rounds: u32| f64::from(rounds.max(1)) / f64::from(in_that_time);
    suite.seconds(settings) * settings.rounds.map_or(1.0, times)
}

/// Measures a suite, and passes `keep` the results after each round.
///
/// An interruption ends the suite; the results until then are returned.
///
/// # Errors
///
/// If the suite cannot begin.
pub(crate) fn measure_suite(
    suite: &mut dyn Suite,
    context: &SuiteContext<'_>,
    keep: &mut dyn FnMut(&SuiteRows),
) -> Result<SuiteRows> {
    let entries = suite.enter(context);
    let found = entries.map(|entries| SuiteMeasurement::new(suite, context, entries).all(keep));
    suite.leave();
    found
}

/// A suite while it is measured.
struct SuiteMeasurement<'a> {
    suite: &'a mut dyn Suite,
    context: &'a SuiteContext<'a>,
    entries: Vec<Entry>,
    rows: Vec<RowMeasurement>,
    begin: Instant,
    rounds: u32,
}

/// The figures of a row so far.
#[derive(Debug, Clone, Default, PartialEq)]
struct RowMeasurement {
    figures: Vec<Option<f64>>,
    histogram: Vec<(f64, u64)>,
    account: Option<Account>,
    extra: BTreeMap<&'static str, Vec<Option<f64>>>,
    measuring: Vec<f64>,
    /// Number of failed rounds.
    failed: usize,
    /// The reason of the last failure, or of the row's exclusion.
    failure: Option<String>,
    /// True if the row has no more turns.
    is_out: bool,
}

impl RowMeasurement {
    fn good(&self) -> usize {
        self.figures.iter().flatten().count()
    }

    /// Returns true if the row counts after this number of rounds: a tracer that sometimes fails is
    /// measured by its good rounds, if at least two thirds are good.
    fn is_kept(&self, rounds: u32) -> bool {
        let (good, rounds) = (self.good(), (rounds as usize).max(self.good() + self.failed));
        self.failure.is_none() || (good >= GOOD_ROUNDS_MIN && 3 * good >= 2 * rounds)
    }

    /// Adds a failed round. A row with as many failed rounds as good ones has no more turns.
    fn fail(&mut self, why: String, is_out: bool) {
        self.failed += 1;
        self.failure = Some(why);
        self.is_out = is_out || self.failed >= self.good();
    }

    fn add(&mut self, sample: Sample) {
        // The difference may be less than zero, because both values vary from turn to turn.
        let measuring = sample.measuring.unwrap_or_default();
        self.measuring.extend(sample.measuring);
        self.figures.push(Some(sample.figure - measuring));
        let is_less = sample.measuring.is_some();
        let less =
            |figure| if is_less { stats::round_to_place(figure - measuring) } else { figure };
        self.histogram.extend(sample.histogram.iter().map(|one| (less(one.0), one.1)));
        // Most figures occur in several rounds: without merging, there would be an entry for each
        // event.
        if self.histogram.len() > HISTOGRAM_MERGED_AT {
            self.histogram = stats::merge_equal_figures(&self.histogram);
        }
        if let Some(account) = &sample.account {
            self.account.get_or_insert_default().add(account);
        }
        for (what, figure) in sample.extra {
            let rounds = self.extra.entry(what).or_default();
            rounds.resize(self.figures.len(), None);
            rounds[self.figures.len() - 1] = Some(figure);
        }
    }
}

/// Checks that a sample's events are in the tracer's output.
fn check_sample(entry: &Entry, sample: &Sample) -> Result<()> {
    if !sample.figure.is_finite() || sample.measuring.is_some_and(|one| !one.is_finite()) {
        return Err(Error::output(&entry.tracer, "no figure"));
    }
    if !entry.records {
        return Ok(());
    }
    match &sample.account {
        None => Err(Error::output(&entry.tracer, "its output does not say what it has recorded")),
        Some(account) if account.recorded == 0 => {
            let message = format!("its own output shows no event: {}", account.words());
            Err(Error::output(&entry.tracer, message))
        }
        Some(account) if !account.is_complete() => {
            let message = format!("events do not add up: {}", account.words());
            Err(Error::output(&entry.tracer, message))
        }
        Some(_) => Ok(()),
    }
}

/// Returns the ratio of two figures, NaN if `other` is not greater than zero.
fn ratio_or_nan(figure: f64, other: f64) -> f64 {
    if other > 0.0 { figure / other } else { f64::NAN }
}

impl<'a> SuiteMeasurement<'a> {
    fn new(suite: &'a mut dyn Suite, context: &'a SuiteContext<'a>, entries: Vec<Entry>) -> Self {
        let measured = |entry: &Entry| RowMeasurement {
            failure: entry.failed.clone(),
            is_out: entry.failed.is_some(),
            ..RowMeasurement::default()
        };
        let rows = entries.iter().map(measured).collect();
        Self { suite, context, entries, rows, begin: Instant::now(), rounds: 0 }
    }

    fn all(mut self, keep: &mut dyn FnMut(&SuiteRows)) -> SuiteRows {
        let limits = RoundLimits::of(self.suite, self.context.settings);
        let mut shuffle = Shuffle::of(self.context.settings.seed);
        let ended = loop {
            let order = self.order(&mut shuffle);
            if order.is_empty() {
                break EndReason::Nothing;
            }
            if matches!(self.round(&order), Err(Error::Interrupted)) {
                break EndReason::Interrupted;
            }
            self.rounds += 1;
            let reached = limits.reached(self.rounds, self.begin.elapsed(), || self.is_sure());
            if let Some(ended) = reached {
                break ended;
            }
            // If the process is killed before the next call, the report must show an interruption.
            keep(&self.so_far(EndReason::Interrupted));
        };
        self.so_far(ended)
    }

    /// Returns the rows that are measured in the next round.
    fn taking_part(&self) -> impl Iterator<Item = usize> {
        let is_in = |(entry, row): (&Entry, &RowMeasurement)| entry.absent.is_none() && !row.is_out;
        let rows = self.entries.iter().zip(&self.rows).map(is_in);
        rows.enumerate().filter(|one| one.1).map(|one| one.0)
    }

    /// Returns the rows of the next round: groups in a random order, with the rows of each group in
    /// a random order.
    ///
    /// Ratios are taken within a group: the machine drifts less from one row to the next than
    /// during a round, which may take minutes.
    fn order(&self, shuffle: &mut Shuffle) -> Vec<usize> {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in self.taking_part() {
            let baseline = self.entries[row].baseline.and_then(|other| self.entries.get(other));
            let case = baseline.unwrap_or(&self.entries[row]).case.as_str();
            groups.entry(case).or_default().push(row);
        }
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        shuffle.order(&mut groups);
        groups.iter_mut().for_each(|group| shuffle.order(group));
        groups.concat()
    }

    /// Measures each row of `order` once; only an interruption is returned as an error.
    fn round(&mut self, order: &[usize]) -> Result<()> {
        for (turn, &row) in order.iter().enumerate() {
            if signals::is_stopped() {
                return Err(Error::Interrupted);
            }
            let entry = &self.entries[row];
            // The row's tracer may have been excluded in this round.
            if self.rows[row].is_out {
                continue;
            }
            let about = self.suite.about().name;
            let (round, turns) = (self.rounds + 1, order.len());
            let which = format!("{about}, round {round}, {} of {turns}", turn + 1);
            self.context.progress.show_step(&format!("{which}: {}, {}", entry.tracer, entry.case));
            let sample = self.suite.sample(self.context, row);
            let sample = sample.and_then(|sample| check_sample(entry, &sample).map(|()| sample));
            match sample {
                Ok(sample) => {
                    // Rounds in which the row was not measured stay empty.
                    let measured = &mut self.rows[row];
                    measured.figures.resize(self.rounds as usize, None);
                    measured.add(sample);
                }
                // A program that Ctrl-C has ended may report a failure.
                Err(_) if signals::is_stopped() => return Err(Error::Interrupted),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => self.fail(row, &error),
            }
        }
        Ok(())
    }

    /// Handles a row's failed round. If its tracer hangs, all rows of that tracer are excluded,
    /// because each would take as long.
    fn fail(&mut self, row: usize, error: &Error) {
        let hangs = matches!(error, Error::Overdue { .. });
        self.rows[row].fail(error.to_string(), hangs);
        if !hangs {
            return;
        }
        let (tracer, case) = (self.entries[row].tracer.clone(), self.entries[row].case.clone());
        for (entry, measured) in self.entries.iter().zip(&mut self.rows) {
            if entry.tracer == tracer && entry.absent.is_none() && !measured.is_out {
                measured.is_out = true;
                measured.failure = Some(format!("left out after '{case}': {error}"));
            }
        }
    }

    /// Returns true if all ratios are certain enough.
    fn is_sure(&self) -> bool {
        // Rows that have failed, or have no more turns, get no more certain.
        let counts = |row: &usize| self.rows[*row].is_kept(self.rounds);
        let counted: Vec<usize> = self.taking_part().filter(counts).collect();
        let has_baseline =
            |row: &&usize| self.entries[**row].baseline.is_some_and(|it| counted.contains(&it));
        let mut ratios = counted.iter().filter(has_baseline).peekable();
        // Without a ratio, certainty is undefined.
        ratios.peek().is_some()
            && ratios.all(|&row| {
                let times = self.ratio_to_baseline(row, ratio_or_nan);
                times.is_some_and(|times| times.is_within(RATIO_WIDTH_MAX))
            })
    }

    /// Returns a row's figures relative to those of its baseline, round by round.
    fn ratio_to_baseline(&self, row: usize, of: impl Fn(f64, f64) -> f64) -> Option<Ratio> {
        let other = &self.rows[self.entries[row].baseline?];
        // Figures of a tracer that failed its work cannot be a baseline.
        if !other.is_kept(self.rounds) {
            return None;
        }
        let pairs = self.rows[row].figures.iter().zip(&other.figures);
        let figures: Vec<f64> =
            pairs.filter_map(|(one, other)| Some(of((*one)?, (*other)?))).collect();
        Ratio::of(&figures)
    }

    fn so_far(&self, ended: EndReason) -> SuiteRows {
        let about = self.suite.about();
        let mut rows = SuiteRows {
            title: about.title.to_owned(),
            repeats: about.repeats.to_owned(),
            x_axis: about.x_axis.to_owned(),
            command: self.context.settings.command(about.name),
            rounds: self.rounds_begun(),
            seconds: self.begin.elapsed().as_secs_f64(),
            is_partial: ended == EndReason::Interrupted,
            ended,
            rows: (0..self.entries.len()).map(|row| self.row(row)).collect(),
        };
        self.suite.complete(&mut rows);
        rows
    }

    /// Returns the number of rounds with figures; an interrupted last round counts, too.
    fn rounds_begun(&self) -> u32 {
        let begun = self.rows.iter().any(|row| row.figures.len() > self.rounds as usize);
        self.rounds + u32::from(begun)
    }

    fn row(&self, at: usize) -> Row {
        let (entry, measured) = (&self.entries[at], &self.rows[at]);
        let figures: Vec<f64> = measured.figures.iter().flatten().copied().collect();
        let (status, reason) = match (&entry.absent, &measured.failure) {
            (Some(reason), _) => (RowStatus::Absent, Some(reason.clone())),
            (None, failure) if !measured.is_kept(self.rounds) => {
                (RowStatus::Failed, failure.clone())
            }
            // The run was interrupted before the row's first turn.
            (None, _) if figures.is_empty() => {
                (RowStatus::Absent, Some("not reached: interrupted".to_owned()))
            }
            (None, failure) => (RowStatus::Measured, failure.clone()),
        };
        let mut row = Row {
            tracer: entry.tracer.clone(),
            case: entry.case.clone(),
            x: entry.x,
            status,
            reason,
            failed_rounds: measured.failed,
            unit: entry.unit.unwrap_or(self.suite.about().unit),
            emitted: None,
            recorded: None,
            lost: None,
            overwritten: None,
            bytes_per_event: None,
            samples: Vec::new(),
            spread: None,
            histogram: Vec::new(),
            tail: None,
            measuring: None,
            baseline: entry.baseline,
            times: None,
            added: None,
            extra: BTreeMap::new(),
            extra_samples: BTreeMap::new(),
            is_control: entry.is_control,
            command: entry.command.clone(),
        };
        if let Some(account) = &measured.account {
            row.set_account(account);
        }
        // A figure of a tracer that failed its work does not count.
        if status == RowStatus::Measured {
            row.samples.clone_from(&measured.figures);
            row.spread = Spread::of(&figures);
            let histogram = stats::merge_equal_figures(&measured.histogram);
            row.tail = Tail::of(&histogram);
            row.histogram = stats::limit_histogram(&histogram);
            let extra = measured.extra.iter().filter_map(|(what, rounds)| {
                let figures: Vec<f64> = rounds.iter().flatten().copied().collect();
                let spread = Spread::of(&figures)?;
                let figure = match what {
                    what if what.starts_with(GREATEST_PREFIX) => spread.max,
                    what if what.starts_with(SUM_PREFIX) => figures.iter().sum(),
                    _ => spread.median,
                };
                Some(((*what).to_owned(), figure))
            });
            row.extra = extra.collect();
            let samples = measured.extra.iter();
            row.extra_samples =
                samples.map(|(what, rounds)| ((*what).to_owned(), rounds.clone())).collect();
            row.measuring = Spread::of(&measured.measuring).map(|spread| spread.median);
            row.times = self.ratio_to_baseline(at, ratio_or_nan);
            row.added = self.ratio_to_baseline(at, |figure, other| figure - other);
        }
        row
    }
}

#[cfg(test)]
mod tests;
