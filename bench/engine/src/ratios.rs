//! Figures round by round: figures relative to another figure of the same round, and their
//! certainty.
//!
//! Main invariant: only figures of the same round are combined; a round that lacks one of the
//! figures does not count. A tracer that loses events has less work: no comparison is decided if
//! one of its tracers lost events.

use crate::results::{Bar, Row, SuiteRows, Verdict};
use crate::stats::Ratio;

/// A figure for each round; `None` for rounds without a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct FiguresByRound {
    rounds: Vec<Option<f64>>,
    /// True if a round was left out because of its figures, and not because it was not measured.
    /// Then the remaining rounds are a selection, which decides nothing.
    is_chosen: bool,
    /// The tracer among the measured ones that lost the largest part of its events, if losses
    /// count.
    lost: Option<TracerLoss>,
}

/// Largest part of its events that a tracer may lose without a withdrawn verdict.
const LOST_PART_MAX: f64 = 0.001;

/// A tracer that lost too many events, with the lost part of its events.
#[derive(Debug, Clone, PartialEq)]
pub struct TracerLoss {
    tracer: String,
    part: f64,
}

impl TracerLoss {
    /// Returns the losses of a row; events that a flight recorder overwrote are not lost.
    fn of(row: &Row) -> Option<Self> {
        let part = row.lost? as f64 / row.emitted.filter(|&emitted| emitted > 0)? as f64;
        (part > LOST_PART_MAX).then(|| Self { tracer: row.tracer.clone(), part })
    }

    /// Returns the larger loss.
    fn larger_of(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).max_by(|one, other| one.part.total_cmp(&other.part))
    }

    fn words(&self) -> String {
        format!("{} lost {:.1} % of its events", self.tracer, self.part * 100.0)
    }
}

impl FiguresByRound {
    const fn new(rounds: Vec<Option<f64>>) -> Self {
        Self { rounds, is_chosen: false, lost: None }
    }

    /// Returns the figures of a row, if the row was measured.
    pub fn of(row: Option<&Row>) -> Self {
        let Some(row) = row.filter(|row| row.spread.is_some()) else {
            return Self::new(Vec::new());
        };
        Self { lost: TracerLoss::of(row), ..Self::new(row.samples.clone()) }
    }

    /// Returns an extra figure of a row. The caller must consider losses: the only extra figure
    /// that losses make smaller is a recorder's share of a CPU, which has its own goal for losses.
    pub fn of_extra(row: Option<&Row>, what: &str) -> Self {
        let measured = row.filter(|row| row.spread.is_some());
        let samples = measured.and_then(|row| row.extra_samples.get(what));
        Self::new(samples.cloned().unwrap_or_default())
    }

    /// Returns the difference between a row and its baseline, round by round.
    pub fn above_baseline(suite: &SuiteRows, row: Option<&Row>) -> Self {
        let other = row.and_then(|row| suite.rows.get(row.baseline?));
        Self::of(row).less(&Self::of(other))
    }

    /// Divides by the figures of `under` in the same round. Rounds with a divisor that is not
    /// greater than zero are left out, which would favour the divisor: so there is no interval
    /// then.
    pub fn over(&self, under: &Self) -> Self {
        let found = self.with(under, |one, other| (other > 0.0).then_some(one / other));
        let measured = self.with(under, |_, other| Some(other));
        Self { is_chosen: found.is_chosen || found.count() < measured.count(), ..found }
    }

    /// Subtracts the figures of the same round.
    pub fn less(&self, other: &Self) -> Self {
        self.with(other, |one, other| Some(one - other))
    }

    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> Option<f64>) -> Self {
        let pairs = self.rounds.iter().zip(&other.rounds);
        let rounds = pairs.map(|(one, other)| of((*one)?, (*other)?)).collect();
        let lost = TracerLoss::larger_of(self.lost.clone(), other.lost.clone());
        Self { rounds, is_chosen: self.is_chosen || other.is_chosen, lost }
    }

    fn count(&self) -> usize {
        self.rounds.iter().flatten().count()
    }

    /// Summarizes all rounds.
    pub fn estimate(&self) -> Option<Estimate> {
        let figures: Vec<f64> = self.rounds.iter().flatten().copied().collect();
        let ratio = Ratio::of(&figures)?;
        let interval = ratio.interval.filter(|_| !self.is_chosen);
        let (ratio, lost) = (Ratio { interval, ..ratio }, self.lost.clone());
        Some(Estimate { ratio, rounds: figures.len(), lost })
    }
}

/// A figure over several rounds, and its certainty.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The median, and the interval that contains the true figure.
    pub ratio: Ratio,
    /// Number of rounds behind the estimate.
    pub rounds: usize,
    /// The tracer among the compared ones that lost the largest part of its events.
    lost: Option<TracerLoss>,
}

impl Estimate {
    /// Returns the ratio of a row to its baseline.
    pub fn ratio_to_baseline(suite: &SuiteRows, row: Option<&Row>) -> Option<Self> {
        let row = row.filter(|row| row.spread.is_some())?;
        let other = row.baseline.and_then(|other| suite.rows.get(other));
        let lost = TracerLoss::larger_of(TracerLoss::of(row), other.and_then(TracerLoss::of));
        Some(Self { ratio: row.times?, rounds: row.samples.iter().flatten().count(), lost })
    }

    /// Returns the upper end of the interval, or the median if there is no interval.
    pub fn at_most(&self) -> f64 {
        self.ratio.interval.map_or(self.ratio.median, |(_, high)| high)
    }

    /// Converts the estimate to another unit: `of` must be increasing.
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        let interval = self.ratio.interval.map(|(low, high)| (of(low), of(high)));
        Self { ratio: Ratio { median: of(self.ratio.median), interval }, ..self }
    }

    /// Judges the estimate by a goal of at most `bound`.
    fn is_at_most(&self, bound: f64) -> Verdict {
        match self.ratio.interval {
            Some((_, high)) if high <= bound => Verdict::Holds,
            Some((low, _)) if low > bound => Verdict::Misses,
            _ => Verdict::Undecided,
        }
    }

    /// Judges the estimate by a goal of at least `bound`.
    fn is_at_least(&self, bound: f64) -> Verdict {
        match self.ratio.interval {
            Some((low, _)) if low >= bound => Verdict::Holds,
            Some((_, high)) if high < bound => Verdict::Misses,
            _ => Verdict::Undecided,
        }
    }
}

/// The format of a goal's figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureFormat {
    /// Digits after the point.
    digits: usize,
    /// True if the figure is a difference, and so has a sign.
    is_signed: bool,
    /// Unit after the figure.
    unit: &'static str,
}

impl FigureFormat {
    /// Format of a part of a whole.
    pub const PART: Self = Self::of(2, "of it");
    /// Format of a ratio.
    pub const TIMES: Self = Self::of(2, "times");

    /// Makes the format of a figure in this unit.
    pub const fn of(digits: usize, unit: &'static str) -> Self {
        Self { digits, is_signed: false, unit }
    }

    /// Returns the format of a difference in this unit.
    pub const fn signed(digits: usize, unit: &'static str) -> Self {
        Self { digits, is_signed: true, unit }
    }

    fn number(self, figure: f64) -> String {
        let digits = self.digits;
        if self.is_signed { format!("{figure:+.digits$}") } else { format!("{figure:.digits$}") }
    }

    fn words(self, ratio: &Ratio) -> String {
        let figure = format!("{} {}", self.number(ratio.median), self.unit);
        let figure = figure.trim_end();
        match ratio.interval {
            Some((low, high)) => {
                format!("{figure} ({} to {})", self.number(low), self.number(high))
            }
            None => figure.to_owned(),
        }
    }
}

/// Makes a goal that figures of at most `bound` reach.
pub fn bar_at_most(what: &str, estimate: Option<Estimate>, bound: f64, form: FigureFormat) -> Bar {
    build_bar(what, estimate, form, |estimate| estimate.is_at_most(bound))
}

/// Makes a goal that figures of at least `bound` reach.
pub fn bar_at_least(what: &str, estimate: Option<Estimate>, bound: f64, form: FigureFormat) -> Bar {
    build_bar(what, estimate, form, |estimate| estimate.is_at_least(bound))
}

/// Makes a goal that several figures must all reach; the worst figure is reported. If one of them
/// was not measured, the goal has no verdict.
pub fn bar_all_at_most(
    what: &str,
    all: impl IntoIterator<Item = Option<Estimate>>,
    bound: f64,
    form: FigureFormat,
) -> Bar {
    let all: Option<Vec<Estimate>> = all.into_iter().collect();
    let all = all.unwrap_or_default();
    let worst = all.iter().max_by(|one, other| one.at_most().total_cmp(&other.at_most()));
    let is_any = |verdict| all.iter().any(|estimate| estimate.is_at_most(bound) == verdict);
    let verdicts = [Verdict::Misses, Verdict::Undecided, Verdict::Holds];
    let verdict = verdicts.into_iter().find(|verdict| is_any(*verdict));
    let lost =
        all.iter().fold(None, |lost, estimate| TracerLoss::larger_of(lost, estimate.lost.clone()));
    let worst = worst.map(|worst| Estimate { lost, ..worst.clone() });
    build_bar(what, worst, form, |_| verdict.unwrap_or(Verdict::Unknown))
}

/// Makes a goal with a figure and without a bound.
pub fn bar_without_bound(what: &str, estimate: Option<Estimate>, form: FigureFormat) -> Bar {
    build_bar(what, estimate, form, |_| Verdict::Unknown)
}

fn build_bar(
    what: &str,
    estimate: Option<Estimate>,
    form: FigureFormat,
    verdict: impl Fn(&Estimate) -> Verdict,
) -> Bar {
    let Some(estimate) = estimate else { return Bar::not_measured(what) };
    let mut bar = Bar {
        measured: form.words(&estimate.ratio),
        figure: Some(estimate.ratio),
        rounds: estimate.rounds,
        verdict: verdict(&estimate),
        ..Bar::not_measured(what)
    };
    if let Some(lost) = estimate.lost {
        bar.withdraw_verdict(lost.words());
    }
    bar
}

/// Makes a goal that a counted figure of at most `bound` reaches: a count needs no interval.
pub fn counted_bar_at_most(
    what: &str,
    counted: Option<f64>,
    bound: f64,
    words: impl Fn(f64) -> String,
) -> Bar {
    let Some(counted) = counted else { return Bar::not_measured(what) };
    let verdict = if counted <= bound { Verdict::Holds } else { Verdict::Misses };
    Bar { measured: words(counted), verdict, ..Bar::not_measured(what) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::fixtures::{measured_row, steady_row, suite_of_rows};

    fn figures_by_round(figures: &[f64]) -> FiguresByRound {
        FiguresByRound::new(figures.iter().copied().map(Some).collect())
    }

    #[test]
    fn figures_of_the_same_round_are_put_together() {
        let mut ours = figures_by_round(&[20.0, 40.0, 60.0]);
        let theirs = figures_by_round(&[100.0, 200.0, 300.0, 7.0]);
        assert_eq!(theirs.over(&ours), figures_by_round(&[5.0; 3]));
        assert_eq!(theirs.less(&ours), figures_by_round(&[80.0, 160.0, 240.0]));
        ours.rounds[1] = None;
        assert_eq!(theirs.over(&ours).estimate().map(|estimate| estimate.rounds), Some(2));
        let some = ours.over(&figures_by_round(&[0.0, -1.0, 2.0]));
        assert_eq!((some.rounds, some.is_chosen), (vec![None, None, Some(30.0)], true));
        let failed = Row { spread: None, ..measured_row("trackway", "u32", 21.0) };
        assert_eq!(FiguresByRound::of(Some(&failed)).estimate(), None);
    }

    #[test]
    fn bars_are_decided_by_intervals_that_lie_on_one_side() {
        // Six rounds: the interval is from the least to the greatest.
        let six =
            |low: f64, high: f64| figures_by_round(&[low, high, low, high, low, high]).estimate();
        let verdict = |estimate| {
            bar_at_most("at most 8", estimate, 8.0, FigureFormat::signed(1, "ns")).verdict
        };
        assert_eq!(verdict(six(5.0, 8.0)), Verdict::Holds);
        assert_eq!(verdict(six(8.5, 9.0)), Verdict::Misses);
        assert_eq!(verdict(six(7.0, 9.0)), Verdict::Undecided);
        let verdict =
            |estimate| bar_at_least("at least 4", estimate, 4.0, FigureFormat::TIMES).verdict;
        assert_eq!(verdict(six(4.0, 6.0)), Verdict::Holds);
        assert_eq!(verdict(six(3.0, 3.5)), Verdict::Misses);
        assert_eq!(verdict(six(3.0, 6.0)), Verdict::Undecided);
        // One round, or five, decide nothing, however far the figure is from the bound.
        for count in [1, 5] {
            let few = figures_by_round(&vec![1.0; count]).estimate();
            assert_eq!(
                bar_at_most("at most 8", few, 8.0, FigureFormat::TIMES).verdict,
                Verdict::Undecided
            );
        }
        assert_eq!(verdict(None), Verdict::Unknown);
    }

    #[test]
    fn rounds_that_are_chosen_decide_nothing() {
        let theirs = figures_by_round(&[10.0, 10.0, 10.0, 10.0, 10.0, 10.0, -1.0]);
        let estimate = figures_by_round(&[1.0; 7]).over(&theirs).estimate();
        assert_eq!(
            bar_at_most("at most 8", estimate, 8.0, FigureFormat::TIMES).verdict,
            Verdict::Undecided
        );
        // There is no interval, either, if the ratio is divided by another figure.
        let estimate =
            figures_by_round(&[1.0; 7]).over(&theirs).over(&figures_by_round(&[1.0; 7])).estimate();
        assert_eq!(estimate.and_then(|estimate| estimate.ratio.interval), None);
    }

    #[test]
    fn who_loses_events_decides_nothing() {
        let losing = |tracer: &str, lost| Row {
            emitted: Some(10_000),
            lost: Some(lost),
            overwritten: Some(9_000),
            ..steady_row(tracer, "u32", 20.0)
        };
        let bar = |ours: &Row, theirs: &Row| {
            let estimate =
                FiguresByRound::of(Some(theirs)).over(&FiguresByRound::of(Some(ours))).estimate();
            bar_at_least("as fast", estimate, 1.0, FigureFormat::TIMES)
        };
        let (few, many, most) = (losing("a", 10), losing("b", 11), losing("c", 9_000));
        assert_eq!(bar(&few, &few).verdict, Verdict::Holds);
        assert_eq!(bar(&few, &many).standing(), "not decided: b lost 0.1 % of its events");
        assert_eq!(bar(&most, &many).standing(), "not decided: c lost 90.0 % of its events");
        // A goal that is undecided by its interval needs no other reason.
        let open = Row { samples: vec![Some(20.0)], ..most.clone() };
        assert_eq!(bar(&few, &open).reason, None);
        let baseline = Row { baseline: Some(0), times: Ratio::of(&[1.0; 8]), ..few };
        let found = suite_of_rows([most, baseline]);
        let estimate = || Estimate::ratio_to_baseline(&found, found.rows.get(1));
        let all = bar_all_at_most("", [estimate_of_six(1.0), estimate()], 2.0, FigureFormat::PART);
        assert_eq!(all.standing(), "not decided: c lost 90.0 % of its events");
    }

    fn estimate_of_six(figure: f64) -> Option<Estimate> {
        figures_by_round(&[figure; 6]).estimate()
    }

    #[test]
    fn all_must_hold_what_is_asked_of_all() {
        let six =
            |low: f64, high: f64| figures_by_round(&[low, high, low, high, low, high]).estimate();
        let bar = |all: &[Option<Estimate>]| {
            bar_all_at_most("", all.iter().cloned(), 1.4, FigureFormat::PART)
        };
        // The row with the smaller median is the undecided one.
        let both = [six(1.29, 1.31), six(1.0, 1.5)];
        assert_eq!(bar(&both).verdict, Verdict::Undecided);
        assert_eq!(bar(&both).measured, "1.25 of it (1.00 to 1.50)");
        assert_eq!(bar(&[six(1.0, 1.1), six(1.2, 1.3)]).verdict, Verdict::Holds);
        assert_eq!(bar(&[six(1.5, 1.6), six(1.2, 1.5)]).verdict, Verdict::Misses);
        assert_eq!(bar(&[six(1.0, 1.1), None]).verdict, Verdict::Unknown);
        assert_eq!(bar(&[]).verdict, Verdict::Unknown);
    }

    #[test]
    fn figures_are_told_with_their_intervals() {
        let estimate = figures_by_round(&[5.0, 6.0, 5.0, 6.0, 5.0, 6.0]).estimate();
        let bar = bar_at_most("at most 8", estimate.clone(), 8.0, FigureFormat::signed(1, "ns"));
        assert_eq!(bar.measured, "+5.5 ns (+5.0 to +6.0)");
        assert_eq!((bar.rounds, bar.figure.and_then(|it| it.interval)), (6, Some((5.0, 6.0))));
        let percent = estimate.map(|estimate| estimate.map(|times| (times - 5.0) * 100.0));
        assert_eq!(
            bar_without_bound("", percent, FigureFormat::of(0, "%")).measured,
            "50 % (0 to 100)"
        );
        assert_eq!(
            bar_at_least("", figures_by_round(&[6.0]).estimate(), 4.0, FigureFormat::TIMES)
                .measured,
            "6.00 times"
        );
    }
}
