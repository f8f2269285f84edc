//! Descriptive statistics, without assumptions about the distribution of noise.

use serde::{Deserialize, Serialize};

/// Median and spread of some figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of figures.
    pub count: usize,
    /// Median of the figures.
    pub median: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The smallest figure.
    pub min: f64,
    /// The greatest figure.
    pub max: f64,
}

impl Spread {
    /// Summarizes `figures`, ignoring NaN and infinities; `None` if nothing is left.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.iter().copied().filter(|one| one.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            count: sorted.len(),
            median: percentile_of_sorted(&sorted, 50.0)?,
            p5: percentile_of_sorted(&sorted, 5.0)?,
            p95: percentile_of_sorted(&sorted, 95.0)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }

    /// Returns half of the distance between the smallest and the greatest figure: the `b` of `a ±
    /// b`.
    pub fn half_range(&self) -> f64 {
        (self.max - self.min) / 2.0
    }
}

/// A figure relative to another in the same round: the median, and the interval that contains the
/// true figure with 95 % confidence, if there were six rounds or more.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The median over the rounds.
    pub median: f64,
    /// The confidence interval: its lower and upper end.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Summarizes the figures of all rounds. If a figure is not finite, the other rounds are a
    /// selection, and there is no interval.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let median = Spread::of(figures)?.median;
        let is_whole = figures.iter().all(|one| one.is_finite());
        Some(Self { median, interval: median_interval(figures).filter(|_| is_whole) })
    }

    /// Returns true if the interval's half width is at most this part of the median.
    pub fn is_within(&self, part: f64) -> bool {
        let half = |(low, high): (f64, f64)| (high - low) / 2.0;
        self.interval.is_some_and(|interval| half(interval) <= part * self.median.abs())
    }

    /// Returns true if the interval contains `figure`.
    pub fn may_be(&self, figure: f64) -> bool {
        self.interval.is_none_or(|(low, high)| low <= figure && figure <= high)
    }
}

/// The distribution of single events' figures. No outlier is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// Number of figures.
    pub count: u64,
    /// The least figure; `None` in reports of earlier versions, which did not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The mean of the figures.
    pub mean: f64,
    /// The standard deviation of the figures.
    pub deviation: f64,
    /// The median of the figures.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The greatest figure.
    pub max: f64,
}

impl Tail {
    /// Summarizes a histogram in ascending order; `None` if it is empty.
    pub fn of(histogram: &[(f64, u64)]) -> Option<Self> {
        let count: u64 = histogram.iter().map(|one| one.1).sum();
        let (min, max) = (histogram.first()?.0, histogram.last()?.0);
        let weighted = |of: &dyn Fn(f64) -> f64| {
            histogram.iter().map(|&(figure, times)| of(figure) * times as f64).sum::<f64>()
        };
        let mean = weighted(&|figure| figure) / count as f64;
        let variance = weighted(&|figure| (figure - mean).powi(2)) / count as f64;
        let above = |part: f64| {
            // Finds the first figure above which at most this part of all figures lies.
            let mut left = count;
            let mut figures = histogram.iter();
            let found = figures.find(|one| {
                left -= one.1;
                left as f64 <= part * count as f64
            });
            found.map_or(max, |one| one.0)
        };
        Some(Self {
            count,
            min: Some(min),
            mean,
            deviation: variance.sqrt(),
            p50: above(0.5),
            p90: above(0.1),
            p99: above(0.01),
            p999: above(0.001),
            max,
        })
    }
}

/// Sorts a histogram by its figures, and merges equal figures.
pub fn merge_equal_figures(histogram: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let mut sorted = histogram.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    sorted.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 += next.1;
        }
        is_same
    });
    sorted
}

/// Returns the figures that a scale must include for a histogram in ascending order: the least, the
/// greatest, and the least above zero, at which a logarithmic scale can begin.
pub fn scale_ends(histogram: &[(f64, u64)]) -> impl Iterator<Item = f64> + use<> {
    let above = histogram.iter().find(|one| one.0 > 0.0);
    [histogram.first(), above, histogram.last()]
        .map(|one| one.map(|one| one.0))
        .into_iter()
        .flatten()
}

/// Rounds to a tenth below 100, and to three digits above. A subtraction that differs from round to
/// round would otherwise make all figures different.
pub fn round_to_place(figure: f64) -> f64 {
    let digits = figure.abs().max(100.0).log10().floor();
    let unit = 10_f64.powf(digits - 2.0);
    let unit = if figure.abs() < 100.0 { 0.1 } else { unit };
    // Rounds in units, so that equal results are equal numbers.
    let places = (figure / unit).round();
    if unit < 1.0 { places / 10.0 } else { places * unit }
}

/// Most entries of a histogram.
const HISTOGRAM_MAX: usize = 4096;

/// Sorts a histogram and limits its length: if necessary, its figures are rounded, to one part in a
/// thousand first. No figure is left out.
pub fn limit_histogram(histogram: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let mut shorter = merge_equal_figures(histogram);
    for digits in [3, 2, 1] {
        if shorter.len() <= HISTOGRAM_MAX {
            break;
        }
        let rounded: Vec<(f64, u64)> =
            shorter.iter().map(|one| (round_to_digits(one.0, digits), one.1)).collect();
        shorter = merge_equal_figures(&rounded);
    }
    shorter
}

/// Rounds to `digits` digits after the first digit.
fn round_to_digits(figure: f64, digits: i32) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    let unit = 10_f64.powi(figure.abs().log10().floor() as i32 - digits);
    (figure / unit).round() * unit
}

/// The figures of a box plot (Tukey, 1977). The box holds half of all figures. Whiskers end at the
/// last figure within one and a half box lengths. Each figure beyond is an outlier and is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Quartiles {
    /// The lower quartile.
    pub low: f64,
    /// The median.
    pub median: f64,
    /// The upper quartile.
    pub high: f64,
    /// Lower and upper end of the range of usual figures.
    pub whiskers: (f64, f64),
    /// Outliers and their counts.
    pub outliers: Vec<(f64, u64)>,
}

impl Quartiles {
    /// Summarizes a histogram in ascending order; `None` if it is empty.
    pub fn of(histogram: &[(f64, u64)]) -> Option<Self> {
        let count: u64 = histogram.iter().map(|one| one.1).sum();
        let quarter = |part: f64| {
            let mut seen = 0;
            let mut figures = histogram.iter();
            figures.find(|one| {
                seen += one.1;
                seen as f64 >= part * count as f64
            })
        };
        let (low, median) = (quarter(0.25)?.0, quarter(0.5)?.0);
        let high = quarter(0.75)?.0;
        let reach = 1.5 * (high - low);
        let is_near = |one: &&(f64, u64)| low - reach <= one.0 && one.0 <= high + reach;
        let first = histogram.iter().find(is_near)?.0;
        let last = histogram.iter().rev().find(is_near)?.0;
        let outliers = histogram.iter().filter(|one| !is_near(one)).copied().collect();
        Some(Self { low, median, high, whiskers: (first, last), outliers })
    }
}

/// Probability with which a confidence interval holds the true figure.
const CONFIDENCE: f64 = 0.95;

/// Returns the interval that contains the true median with 95 % confidence, by the ranks of the
/// figures: for any distribution. `None` for fewer than six figures.
pub fn median_interval(figures: &[f64]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = figures.iter().copied().filter(|one| one.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // Each figure is above or below the median with equal probability. `at_most` is the probability
    // that at most `rank` figures are below.
    let mut exactly = 0.5_f64.powi(i32::try_from(count).ok()?);
    let mut at_most = exactly;
    let mut rank = None;
    for next in 0..count {
        if 2.0 * at_most > 1.0 - CONFIDENCE {
            break;
        }
        rank = Some(next);
        exactly *= (count - next) as f64 / (next + 1) as f64;
        at_most += exactly;
    }
    let rank = rank?;
    Some((*sorted.get(rank)?, *sorted.get(count - 1 - rank)?))
}

/// Returns the percentile `percent` of sorted figures, interpolated between neighbours.
fn percentile_of_sorted(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = percent / 100.0 * last as f64;
    let below = place.floor() as usize;
    let low = sorted.get(below)?;
    let high = sorted.get(below + 1).unwrap_or(low);
    Some(low + (high - low) * (place - below as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_spread(figures: &[f64], expect: (f64, f64, f64)) {
        let spread = Spread::of(figures).expect("figures");
        assert_eq!((spread.median, spread.p5, spread.p95), expect);
    }

    #[test]
    fn medians_and_percentiles() {
        check_spread(&[7.0], (7.0, 7.0, 7.0));
        check_spread(&[3.0, 1.0, 2.0], (2.0, 1.1, 2.9));
        check_spread(&[4.0, 1.0, 3.0, 2.0], (2.5, 1.15, 3.8499999999999996));
    }

    #[test]
    fn an_outlier_moves_the_maximum_but_not_the_median() {
        let mut figures = vec![20.0; 100];
        figures[50] = 1e6;
        let spread = Spread::of(&figures).expect("figures");
        assert_eq!((spread.median, spread.p95, spread.max), (20.0, 20.0, 1e6));
        assert_eq!(spread.half_range(), (1e6 - 20.0) / 2.0);
    }

    #[test]
    fn medians_lie_between_the_ranks_that_tables_give() {
        let interval = |count: u32| {
            let figures: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            median_interval(&figures)
        };
        assert_eq!(interval(5), None);
        assert_eq!(interval(6), Some((1.0, 6.0)));
        assert_eq!(interval(9), Some((2.0, 8.0)));
        assert_eq!(interval(20), Some((6.0, 15.0)));
        assert_eq!(interval(40), Some((14.0, 27.0)));
        assert_eq!(interval(100), Some((40.0, 61.0)));
        assert!(interval(1000).is_some());
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[f64::NAN]), None);
        assert_eq!(Spread::of(&[f64::NAN, 1.0]).expect("one").count, 1);
    }

    #[test]
    fn tails_are_of_all_figures() {
        let histogram =
            merge_equal_figures(&[(20.0, 400), (900.0, 1), (30.0, 98), (20.0, 500), (1e6, 1)]);
        assert_eq!(histogram, [(20.0, 900), (30.0, 98), (900.0, 1), (1e6, 1)]);
        let tail = Tail::of(&histogram).expect("figures");
        assert_eq!((tail.count, tail.p50, tail.p90, tail.p99), (1000, 20.0, 20.0, 30.0));
        assert_eq!((tail.min, tail.p999, tail.max), (Some(20.0), 900.0, 1e6));
        assert!((tail.mean - 1021.84).abs() < 1e-9, "{}", tail.mean);
        assert_eq!(Tail::of(&[]), None);
    }

    #[test]
    fn tails_of_before_there_was_a_least_figure_are_read() {
        let tail = Tail::of(&[(-0.5, 3), (30.0, 1)]).expect("figures");
        let mut json = serde_json::to_value(tail).expect("JSON");
        assert_eq!(json["min"], -0.5);
        json.as_object_mut().expect("an object").remove("min");
        let old: Tail = serde_json::from_value(json).expect("a tail");
        assert_eq!(old, Tail { min: None, ..tail });
    }

    #[test]
    fn scales_are_told_where_a_logarithm_begins() {
        let found: Vec<f64> = scale_ends(&[(-2.2, 9), (-1.0, 3), (7.9, 8), (1e6, 1)]).collect();
        assert_eq!(found, [-2.2, 7.9, 1e6]);
        assert_eq!(scale_ends(&[(-2.0, 1)]).collect::<Vec<f64>>(), [-2.0, -2.0]);
        assert_eq!(scale_ends(&[]).count(), 0);
    }

    #[test]
    fn long_histograms_are_rounded_and_nothing_is_left_out() {
        let long: Vec<(f64, u64)> = (0..100_000).map(|one| (f64::from(one) / 7.0, 2)).collect();
        let short = limit_histogram(&long);
        assert!(short.len() <= HISTOGRAM_MAX, "{}", short.len());
        assert_eq!(short.iter().map(|one| one.1).sum::<u64>(), 200_000);
        let last = short.last().expect("figures").0;
        assert!((last / (99_999.0 / 7.0) - 1.0).abs() < 5e-3, "{last}");
        assert!(short.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(limit_histogram(&[(2.0, 1), (1.0, 1), (2.0, 3)]), [(1.0, 1), (2.0, 4)]);
        assert_eq!((round_to_digits(-12345.0, 3), round_to_digits(0.0, 3)), (-12350.0, 0.0));
    }

    #[test]
    fn boxes_hold_half_of_all_and_outliers_are_beyond_their_whiskers() {
        let figures = [(1.0, 1), (9.0, 2), (10.0, 4), (11.0, 4), (12.0, 3), (14.0, 1), (90.0, 1)];
        let quarters = Quartiles::of(&figures).expect("figures");
        assert_eq!((quarters.low, quarters.median, quarters.high), (10.0, 11.0, 12.0));
        assert_eq!(quarters.whiskers, (9.0, 14.0));
        assert_eq!(quarters.outliers, [(1.0, 1), (90.0, 1)]);
        let one = Quartiles::of(&[(5.0, 1)]).expect("a figure");
        assert_eq!((one.low, one.whiskers, one.outliers.len()), (5.0, (5.0, 5.0), 0));
        assert_eq!(Quartiles::of(&[]), None);
    }

    #[test]
    fn ratios_say_how_sure_they_are() {
        let figures: Vec<f64> = (0..20).map(|one| 1.0 + f64::from(one) / 1000.0).collect();
        let ratio = Ratio::of(&figures).expect("figures");
        assert!(ratio.is_within(0.01) && !ratio.is_within(0.001));
        assert!(ratio.may_be(1.01) && !ratio.may_be(1.02));
        // A ratio with a divisor of zero leaves no interval.
        let chosen = Ratio::of(&[&figures[..], &[f64::INFINITY]].concat()).expect("figures");
        assert_eq!((chosen.median, chosen.interval), (ratio.median, None));
        let one = Ratio::of(&[2.0]).expect("a figure");
        assert!(!one.is_within(1.0) && one.may_be(7.0));
    }

    #[test]
    fn figures_fall_on_few_places() {
        let found: Vec<f64> =
            [21.04, 21.06, -0.04, 99.96, 123.4, 1_234_567.0].map(round_to_place).into();
        assert_eq!(found, [21.0, 21.1, 0.0, 100.0, 123.0, 1_230_000.0]);
    }
}
