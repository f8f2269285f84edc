//! The figures of the 2015 paper (Sharma, Dagenais: *Enhanced Userspace and In-Kernel Trace
//! Filtering for Quasi-Realtime Systems*, 10 to 12), from what was measured here.

use super::results::{
    Chain, FilterResults, FilterTracer, Operands, PREDICATES, Runner, TRACED_PREDICATES,
};
use crate::chart::{self, Frame, Group, Line};

/// What times are of.
const TIMES: &str = "ns per event (log scale)";
/// What x is.
const PREDICATES_AXIS: &str = "predicates, joined by &&";

impl FilterResults {
    /// Figures that can be drawn: names of files, and SVG.
    pub fn figures(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("filter-50-predicates.svg", self.fifty()),
            ("filter-integers.svg", self.chains(Operands::Integers)),
            ("filter-strings.svg", self.chains(Operands::Strings)),
            ("filter-traced-integers.svg", self.in_programs(Operands::Integers)),
            ("filter-traced-strings.svg", self.in_programs(Operands::Strings)),
        ];
        all.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect()
    }

    /// Figure 10: fifty predicates, all true.
    fn fifty(&self) -> Option<String> {
        let predicates = PREDICATES[PREDICATES.len() - 1];
        let group = |operands: Operands| Group {
            name: operands.name().to_owned(),
            bars: Runner::ALL
                .into_iter()
                .enumerate()
                .filter_map(|(colour, runner)| {
                    let cost = self.cost(runner, operands, Chain::AndTrue, predicates)?;
                    Some((runner.name().to_owned(), colour, cost.ns.median))
                })
                .collect(),
        };
        let title =
            format!("A filter of {predicates} predicates, all true (the paper's figure 10)");
        let frame = Frame { title: &title, times: TIMES, x: "" };
        chart::bars(frame, &Operands::ALL.map(group))
    }

    /// Figure 11: chains of more and more predicates, all true.
    fn chains(&self, operands: Operands) -> Option<String> {
        let title =
            format!("Filters on {}, all predicates true (the paper's figure 11)", operands.name());
        let line = |(colour, runner): (usize, Runner)| Line {
            name: runner.name().to_owned(),
            colour,
            is_broken: false,
            points: PREDICATES
                .into_iter()
                .filter_map(|count| {
                    let cost = self.cost(runner, operands, Chain::AndTrue, count)?;
                    Some((count as f64, cost.ns.median))
                })
                .collect(),
        };
        let lines: Vec<Line> = Runner::ALL.into_iter().enumerate().map(line).collect();
        let frame = Frame { title: &title, times: TIMES, x: PREDICATES_AXIS };
        chart::lines(frame, &PREDICATES.map(|count| count as f64), &lines)
    }

    /// Figure 12: events of a program that are dropped or taken, LTTng's and ours, and filters by
    /// themselves.
    fn in_programs(&self, operands: Operands) -> Option<String> {
        if self.traced.iter().all(|cost| cost.operands != operands) {
            return None;
        }
        let title =
            format!("Events of nine {} in a program (the paper's figure 12)", operands.name());
        let mut lines = Vec::new();
        for (colour, tracer) in [(2, FilterTracer::Lttng), (1, FilterTracer::Trackway)] {
            let without = self.traced(tracer, operands, None, 0).map(|cost| cost.ns.median);
            let points = TRACED_PREDICATES.map(|count| without.map(|ns| (count as f64, ns)));
            lines.push(Line {
                name: format!("{}, no filter", tracer.name()),
                colour,
                is_broken: true,
                points: points.into_iter().flatten().collect(),
            });
            for (chain, what) in [(Chain::AndTrue, "taken"), (Chain::AndFalseLast, "dropped")] {
                let chain = |count: usize| match chain {
                    // Of one predicate, the last is the first.
                    Chain::AndFalseLast if count == 1 => Chain::AndFalseFirst,
                    chain => chain,
                };
                let point = |count| {
                    let cost = self.traced(tracer, operands, Some(chain(count)), count)?;
                    Some((count as f64, cost.ns.median))
                };
                lines.push(Line {
                    name: format!("{}, {what}", tracer.name()),
                    colour,
                    is_broken: false,
                    points: TRACED_PREDICATES.into_iter().filter_map(point).collect(),
                });
            }
        }
        for (colour, runner) in [(0, Runner::C), (4, Runner::Compiled), (3, Runner::Interpreted)] {
            let point = |count| {
                let chain = if count == 1 { Chain::AndFalseFirst } else { Chain::AndFalseLast };
                let cost = self.cost(runner, operands, chain, count)?;
                Some((count as f64, cost.ns.median))
            };
            lines.push(Line {
                name: format!("alone: {}", runner.name()),
                colour,
                is_broken: false,
                points: TRACED_PREDICATES.into_iter().filter_map(point).collect(),
            });
        }
        let frame = Frame { title: &title, times: TIMES, x: PREDICATES_AXIS };
        chart::lines(frame, &TRACED_PREDICATES.map(|count| count as f64), &lines)
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::results::tests::example;

    #[test]
    fn what_was_measured_is_drawn() {
        let figures = example().figures();
        let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
        let expected = ["filter-integers.svg", "filter-strings.svg", "filter-traced-integers.svg"];
        assert_eq!(names, expected, "nothing of fifty predicates, nor of strings in programs");
        let (_, traced) = &figures[2];
        assert!(traced.contains(">102  LTTng-UST, dropped<"), "{traced}");
        assert!(traced.contains(">10  Trackway, dropped<"), "{traced}");
    }
}
