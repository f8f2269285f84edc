//! Scales: positions of figures on an axis, and figures that are written along the axis.

/// A logarithmic scale from left to right, or a linear scale if all figures are of similar size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    /// Returns a scale for these figures; `None` if none can be shown, or all are zero.
    pub(super) fn covering(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        let deepest = figures.iter().copied().fold(0.0, f64::min);
        let (least, most) =
            positive_bounds(figures.into_iter()).or((deepest < 0.0).then_some((1.0, 1.0)))?;
        // A difference may be less than zero; a slightly negative figure does not make the scale
        // linear.
        if deepest < -0.01 * most {
            return Some(Self {
                from: -round_up_to_step(-deepest),
                to: round_up_to_step(most),
                is_log: false,
            });
        }
        if most <= 20.0 * least {
            return Some(Self { from: 0.0, to: round_up_to_step(most), is_log: false });
        }
        Self::decades(least, most)
    }

    /// Returns a logarithmic scale for these figures.
    pub(super) fn logarithmic(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let (least, most) = positive_bounds(figures)?;
        Self::decades(least, most)
    }

    fn decades(least: f64, most: f64) -> Option<Self> {
        let from = 10_f64.powf(least.log10().floor());
        let to = 10_f64.powf(most.log10().ceil()).max(10.0 * from);
        Some(Self { from, to, is_log: true })
    }

    /// Returns the position at which bars begin.
    pub(super) const fn base(&self) -> f64 {
        if self.is_log { self.from } else { 0.0 }
    }

    /// Returns the position of a figure on the scale, from 0 to 1.
    pub(super) fn part(&self, figure: f64) -> f64 {
        let part = if self.is_log {
            (figure.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (figure - self.from) / (self.to - self.from)
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns the figures at which lines are drawn.
    pub(super) fn marks(&self) -> Vec<f64> {
        if !self.is_log {
            let length = self.to - self.from;
            return (0..=4).map(|part| self.from + length * f64::from(part) / 4.0).collect();
        }
        let next = |mark: &f64| Some(mark * 10.0);
        let most = self.to * 1.001;
        std::iter::successors(Some(self.from), next).take_while(|mark| *mark <= most).collect()
    }

    /// Returns the kind of the scale, for the label of the axis.
    pub(super) const fn kind(&self) -> &'static str {
        if self.is_log { "logarithmic" } else { "linear" }
    }
}

/// Returns the least and the greatest figure that a logarithmic scale can show.
fn positive_bounds(figures: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let shown = figures.filter(|figure| figure.is_finite() && *figure > 0.0);
    shown.fold(None, |bounds: Option<(f64, f64)>, figure| {
        let (least, most) = bounds.unwrap_or((figure, figure));
        Some((least.min(figure), most.max(figure)))
    })
}

/// Returns the next larger figure that has one digit, or ends in 5.
fn round_up_to_step(figure: f64) -> f64 {
    let power = 10_f64.powf(figure.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.iter().map(|step| step * power).find(|nice| *nice >= figure).unwrap_or(10.0 * power)
}

/// Formats a figure on an axis.
pub(super) fn format_mark(figure: f64) -> String {
    let (figure, letter) = match figure.abs() {
        1e9.. => (figure / 1e9, " G"),
        1e6.. => (figure / 1e6, " M"),
        1e4.. => (figure / 1e3, " k"),
        _ => (figure, ""),
    };
    let text = format!("{figure:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned() + letter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_logarithmic_only_where_they_must_be() {
        let scale = Scale::covering([1.1, 540.0, f64::NAN, 0.0].into_iter()).expect("figures");
        assert_eq!(scale.marks(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((scale.part(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((scale.part(0.1), scale.part(1e9)), (0.0, 1.0));
        let near = Scale::covering([15.0, 110.0].into_iter()).expect("figures");
        assert_eq!((near.kind(), near.marks().last()), ("linear", Some(&120.0)));
        assert_eq!(Scale::covering(std::iter::empty()), None);
        let deep = Scale::covering([-3.0, 4.0].into_iter()).expect("figures");
        assert_eq!((deep.marks().len(), deep.base()), (5, 0.0));
        assert_eq!((deep.part(-3.2), deep.part(4.0)), (0.0, 1.0));
    }

    #[test]
    fn marks_are_short() {
        assert_eq!(
            (format_mark(0.25), format_mark(1200.0), format_mark(2.5e6)),
            ("0.25".into(), "1200".into(), "2.5 M".into())
        );
    }
}
