//! Two samples of figures compared by their ranks (Mann and Whitney, 1947; Hodges and Lehmann,
//! 1963): for any distribution, and any outliers.

use serde::{Deserialize, Serialize};

/// Largest sample for which probabilities are exact, not approximated.
const EXACT_MAX: usize = 30;
/// Most figures of a sample that are compared: all pairs are in memory.
const FIGURES_MAX: usize = 1000;
/// Half width of a 95 % confidence interval, in standard deviations.
const CONFIDENCE_DEVIATIONS: f64 = 1.959_964;

/// The change between two samples of figures.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// The ratio: the median of all ratios between the two samples.
    pub times: f64,
    /// Interval of the true ratio with 95 % confidence, if there is one.
    pub interval: Option<(f64, f64)>,
    /// Probability that figures differ at least this much if nothing has changed: from 0 to 1.
    pub chance: f64,
}

impl Shift {
    /// Computes the change from `before` to `after`; `None` if one is empty, or figures are not
    /// greater than zero, so that ratios have no meaning.
    pub fn of(before: &[f64], after: &[f64]) -> Option<Self> {
        let logarithms = |figures: &[f64]| -> Option<Vec<f64>> {
            let few = &figures[..figures.len().min(FIGURES_MAX)];
            few.iter().map(|one| (*one > 0.0 && one.is_finite()).then(|| one.ln())).collect()
        };
        let (before, after) = (logarithms(before)?, logarithms(after)?);
        if before.is_empty() || after.is_empty() {
            return None;
        }
        let mut ratios: Vec<f64> =
            after.iter().flat_map(|after| before.iter().map(move |one| after - one)).collect();
        ratios.sort_by(f64::total_cmp);
        let pairs = ratios.len();
        let above = ratios.iter().filter(|ratio| **ratio > 0.0).count() as f64;
        let equal = ratios.iter().filter(|ratio| **ratio == 0.0).count() as f64;
        // Number of pairs with a smaller ratio, or with a larger ratio, whichever is less.
        let fewer = (above + equal / 2.0).min(pairs as f64 - above - equal / 2.0);
        let chances = RankSumDistribution::of(before.len(), after.len());
        let middle = f64::midpoint(ratios[(pairs - 1) / 2], ratios[pairs / 2]);
        let interval = chances.rank().and_then(|rank| {
            let (low, high) = (ratios.get(rank)?, ratios.get(pairs.checked_sub(1 + rank)?)?);
            (low <= high).then_some((low.exp(), high.exp()))
        });
        // Rounded to the safe side: ties make a result no less likely.
        Some(Self { times: middle.exp(), interval, chance: chances.at_most(fewer.ceil()) })
    }
}

/// The two-sided distribution of the rank sum test, for two samples of the same distribution: the
/// probability that the first sample has the smaller figure in at most this number of pairs.
struct RankSumDistribution {
    /// Cumulated probabilities for 0, 1, 2… pairs; empty if probabilities are approximated.
    exact: Vec<f64>,
    pairs: f64,
    deviation: f64,
}

impl RankSumDistribution {
    fn of(one: usize, other: usize) -> Self {
        let pairs = (one * other) as f64;
        let deviation = (pairs * (one + other + 1) as f64 / 12.0).sqrt();
        let exact =
            if one.max(other) <= EXACT_MAX { cumulative_chances(one, other) } else { Vec::new() };
        Self { exact, pairs, deviation }
    }

    /// Returns the probability of at most this number of pairs, in either direction.
    fn at_most(&self, pairs: f64) -> f64 {
        let one_way = if self.exact.is_empty() {
            cumulative_normal((pairs + 0.5 - self.pairs / 2.0) / self.deviation)
        } else {
            self.exact.get(pairs as usize).copied().unwrap_or(1.0)
        };
        (2.0 * one_way).min(1.0)
    }

    /// Returns the index of the sorted ratio at which the 95 % confidence interval begins, counted
    /// from either end.
    fn rank(&self) -> Option<usize> {
        if self.exact.is_empty() {
            let rank = self.pairs / 2.0 - CONFIDENCE_DEVIATIONS * self.deviation;
            return (rank >= 1.0).then(|| rank as usize - 1);
        }
        // The index is the largest significant number of pairs.
        let surprising = self.exact.iter().take_while(|chance| 2.0 * **chance <= 0.05).count();
        surprising.checked_sub(1)
    }
}

/// Returns, for each number of pairs, the part of all orders of both samples that have at most this
/// number of pairs.
fn cumulative_chances(one: usize, other: usize) -> Vec<f64> {
    // In an order of `i` and `j` figures, the last figure belongs to the first sample and makes no
    // pair, or belongs to the second and makes `i` pairs. Parts are used, not numbers: 60 over 30
    // exceeds 2^53.
    let most = one * other;
    let mut rows: Vec<Vec<f64>> = vec![distribution_of_no_pair(most); other + 1];
    for i in 1..=one {
        let mut last = distribution_of_no_pair(most);
        for (j, row) in rows.iter_mut().enumerate().skip(1) {
            let first = i as f64 / (i + j) as f64;
            let mut next = vec![0.0; most + 1];
            for (pairs, chance) in next.iter_mut().enumerate() {
                let with = pairs.checked_sub(i).map_or(0.0, |before| last[before]);
                *chance = first * row[pairs] + (1.0 - first) * with;
            }
            row.clone_from(&next);
            last = next;
        }
    }
    let mut sum = 0.0;
    let cumulate = |chance: &f64| {
        sum += chance;
        sum
    };
    rows[other].iter().map(cumulate).collect()
}

/// Returns the distribution in which the number of pairs is always 0.
fn distribution_of_no_pair(most: usize) -> Vec<f64> {
    let mut chances = vec![0.0; most + 1];
    chances[0] = 1.0;
    chances
}

/// Returns the cumulative normal distribution (Abramowitz and Stegun, 26.2.17: to 1e-7).
fn cumulative_normal(deviations: f64) -> f64 {
    let at = deviations.abs();
    let t = 1.0 / (1.0 + 0.231_641_9 * at);
    let factors = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = factors.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let above = sum * (-at * at / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if deviations < 0.0 { above } else { 1.0 - above }
}

/// Returns the smallest possible probability for samples of these sizes, which applies if all
/// figures of one sample are less than all figures of the other.
pub(super) fn least_chance(one: usize, other: usize) -> f64 {
    // One order of all has no pair: the probability is two over the binomial coefficient
    // (two-sided).
    let (few, all) = (one.min(other), one + other);
    let orders: f64 = (0..few).map(|at| (all - at) as f64 / (few - at) as f64).product();
    (2.0 / orders).min(1.0)
}

/// Returns the number of figures that each of two samples needs to show the change of one row
/// alone, among `rows` rows.
pub(super) fn figures_needed(rows: usize) -> usize {
    let is_enough = |count: &usize| least_chance(*count, *count) <= significance_bound(0, rows);
    (1..FIGURES_MAX).find(is_enough).unwrap_or(FIGURES_MAX)
}

/// Returns the largest significant probability at index `place` of `count` probabilities in
/// ascending order.
pub(super) fn significance_bound(place: usize, count: usize) -> f64 {
    0.05 * (place + 1) as f64 / count as f64
}

/// Returns true for each probability that is too small for chance. On average, at most one in
/// twenty of these is wrong, for any number of rows (Benjamini and Hochberg, 1995).
pub(super) fn find_significant(chances: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|one, other| chances[*one].total_cmp(&chances[*other]));
    let is_small =
        |place: &usize| chances[order[*place]] <= significance_bound(*place, chances.len());
    let last = (0..order.len()).rev().find(is_small);
    let mut found = vec![false; chances.len()];
    for &at in order.iter().take(last.map_or(0, |last| last + 1)) {
        found[at] = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_tables() {
        // Six and six figures: 1 of 924 orders has no pair, 1 has one; the tables' bound for 5 % is
        // 5.
        let six = cumulative_chances(6, 6);
        assert!((six[0] - 1.0 / 924.0).abs() < 1e-12 && (six[1] - 2.0 / 924.0).abs() < 1e-12);
        assert!((six[36] - 1.0).abs() < 1e-9);
        let chances = RankSumDistribution::of(6, 6);
        assert!(chances.at_most(5.0) <= 0.05 && chances.at_most(6.0) > 0.05);
        assert_eq!(chances.rank(), Some(5));
        // Twenty and ten figures: the bound is 55 (critical values of the Mann-Whitney U,
        // two-tailed).
        let uneven = RankSumDistribution::of(20, 10);
        assert!(uneven.at_most(55.0) <= 0.05 && uneven.at_most(56.0) > 0.05);
        assert_eq!(RankSumDistribution::of(3, 3).rank(), None);
    }

    #[test]
    fn many_figures_have_about_the_same_chances() {
        let (exact, mut near) = (RankSumDistribution::of(30, 30), RankSumDistribution::of(30, 30));
        near.exact.clear();
        for pairs in [200.0, 300.0, 317.0, 400.0] {
            let (one, other) = (exact.at_most(pairs), near.at_most(pairs));
            assert!((one - other).abs() < 0.003, "{pairs}: {one} {other}");
        }
        let ranks = (exact.rank().expect("a rank"), near.rank().expect("a rank"));
        assert!(ranks.0.abs_diff(ranks.1) <= 2, "{ranks:?}");
        assert!(
            (cumulative_normal(-1.959_964) - 0.025).abs() < 1e-6
                && (cumulative_normal(0.0) - 0.5).abs() < 1e-6
        );
    }

    #[test]
    fn shifts_are_found_and_outliers_do_not_matter() {
        let before: Vec<f64> = (0..12).map(|one| 20.0 + f64::from(one) / 10.0).collect();
        let mut after: Vec<f64> = before.iter().map(|one| one * 1.2).collect();
        after[3] = 9000.0;
        let shift = Shift::of(&before, &after).expect("figures");
        let (low, high) = shift.interval.expect("an interval");
        assert!(low < 1.2 && 1.2 < high && low > 1.1 && high < 1.3, "{shift:?}");
        assert!(shift.chance < 1e-4 && (shift.times - 1.2).abs() < 0.02, "{shift:?}");
        let same = Shift::of(&before, &before).expect("figures");
        assert!(same.chance > 0.9 && (same.times - 1.0).abs() < 1e-9, "{same:?}");
        let equal = Shift::of(&[5.0; 12], &[5.0; 12]).expect("figures");
        assert_eq!((equal.times, equal.interval, equal.chance), (1.0, Some((1.0, 1.0)), 1.0));
    }

    #[test]
    fn what_has_no_ratio_has_no_shift() {
        assert_eq!(Shift::of(&[1.0], &[-1.0]), None);
        assert_eq!(Shift::of(&[], &[1.0]), None);
        let few = Shift::of(&[1.0, 1.1], &[2.0, 2.1]).expect("figures");
        assert!(few.interval.is_none() && few.chance > 0.05, "{few:?}");
        let many = vec![2.0; 5000];
        assert_eq!(Shift::of(&many, &[2.0]).map(|shift| shift.times), Some(1.0));
    }

    #[test]
    fn more_rows_need_more_figures() {
        for (one, other) in [(1, 1), (6, 6), (4, 9), (30, 30)] {
            let told = RankSumDistribution::of(one, other).at_most(0.0);
            assert!((least_chance(one, other) / told - 1.0).abs() < 1e-9, "{one} {other}");
        }
        let needed = [1, 23, 24, 321, 322, 634].map(figures_needed);
        assert_eq!(needed, [4, 6, 7, 8, 9, 9]);
        assert!(
            least_chance(8, 8) > significance_bound(0, 634)
                && least_chance(9, 9) <= significance_bound(0, 634)
        );
    }

    #[test]
    fn of_many_chances_more_must_be_small() {
        assert_eq!(find_significant(&[0.04, 0.5]), [false, false]);
        assert_eq!(find_significant(&[0.5, 0.04, 0.01, 0.02]), [false, false, true, true]);
        let mut hundred = vec![0.6; 100];
        hundred[7] = 0.01;
        assert!(!find_significant(&hundred).contains(&true));
        hundred[7] = 0.0004;
        assert_eq!(find_significant(&hundred).iter().filter(|one| **one).count(), 1);
        assert!(find_significant(&[]).is_empty());
    }
}
