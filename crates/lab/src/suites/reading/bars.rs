//! What the reader set out to reach, held against what was measured. Reported, never asserted.

use super::works::{Size, Tool, TraceKind, Work};
use super::{PEAK, first_line_case, speed_case};
use crate::bars::{at_least, at_most};
use crate::results::Bar;
use crate::rows::{Row, SuiteRows};

/// How much faster than babeltrace2 it must be.
const TIMES: f64 = 10.0;
/// Most that the first line may take, in ms.
const FIRST_LINE_MS: f64 = 100.0;
/// How many MiB more a trace with four million events more may need: what is left of the reader's
/// buffers where the smaller one does not fill them. A reader that kept a byte of each event would
/// need more.
const GROWTH_MIB: f64 = 4.0;

/// All bars.
pub(crate) fn bars(suite: &SuiteRows) -> Vec<Bar> {
    let kinds = TraceKind::ALL.into_iter();
    let has_row = |kind: &TraceKind| {
        let case = speed_case(*kind, Work::Text, Size::Small);
        suite.row(Tool::Trackway.name(), &case).is_some_and(|row| row.spread.is_some())
    };
    let kinds: Vec<TraceKind> = kinds.filter(has_row).collect();
    let mut bars = Vec::new();
    for &kind in &kinds {
        for work in [Work::Text, Work::Decode] {
            for tool in [Tool::OneCpu, Tool::Trackway] {
                bars.extend(speed_bar(suite, kind, work, tool));
            }
        }
    }
    for kind in kinds {
        bars.extend(size_bars(suite, kind));
    }
    bars
}

fn speed_bar(suite: &SuiteRows, kind: TraceKind, work: Work, tool: Tool) -> Option<Bar> {
    let row = suite.row(tool.name(), &speed_case(kind, work, Size::Small))?;
    let (trace, work) = (kind.words(), work.words());
    let cpus = if tool == Tool::OneCpu { "one CPU" } else { "all CPUs" };
    let what = format!("{trace}: {work}, {cpus}: {TIMES} × babeltrace2");
    Some(at_least(&what, row.times.map(|times| times.median), TIMES))
}

fn size_bars(suite: &SuiteRows, kind: TraceKind) -> [Bar; 2] {
    let ours = |case: String| suite.row(Tool::Trackway.name(), &case);
    let peak_mib = |size| ours(speed_case(kind, Work::Text, size))?.extra.get(PEAK).copied();
    let first_ms = |size| ours(first_line_case(kind, size)).and_then(Row::median);
    let both = |of: &dyn Fn(Size) -> Option<f64>| of(Size::Small).zip(of(Size::Large));
    let trace = kind.words();
    [
        at_most(
            &format!("{trace}: memory does not grow with the trace"),
            both(&peak_mib).map(|(small, large)| large - small),
            GROWTH_MIB,
            |mib| format!("{mib:+.1} MiB"),
        ),
        at_most(
            &format!("{trace}: first line within {FIRST_LINE_MS} ms"),
            both(&first_ms).map(|(small, large)| small.max(large)),
            FIRST_LINE_MS,
            |ms| format!("{ms:.1} ms"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::rows::tests::{row, suite};
    use crate::stats::Ratio;

    #[test]
    fn bars_follow_the_figures() {
        let kind = TraceKind::Numbers;
        let speed = |tool: Tool, work, size, times: Option<f64>, peak_mib| Row {
            times: times.map(|median| Ratio { median, interval: None }),
            extra: [(PEAK.to_owned(), peak_mib)].into_iter().collect(),
            ..row(tool.name(), &speed_case(kind, work, size), 8e6)
        };
        let first = |size, ms| row(Tool::Trackway.name(), &first_line_case(kind, size), ms);
        let rows = |large_mib, large_ms| {
            let all = [
                speed(Tool::OneCpu, Work::Text, Size::Small, Some(12.5), 19.0),
                speed(Tool::Trackway, Work::Text, Size::Small, None, 19.0),
                speed(Tool::OneCpu, Work::Decode, Size::Small, Some(8.0), 19.0),
                speed(Tool::Trackway, Work::Text, Size::Large, None, large_mib),
                first(Size::Small, 10.0),
                first(Size::Large, large_ms),
            ];
            let told = |bar: Bar| (bar.measured, bar.verdict);
            bars(&suite(all)).into_iter().map(told).collect::<Vec<(String, Verdict)>>()
        };
        let mut expected = [
            ("12.50 times".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
            ("8.00 times".to_owned(), Verdict::Misses),
            ("+1.0 MiB".to_owned(), Verdict::Holds),
            ("11.0 ms".to_owned(), Verdict::Holds),
        ];
        assert_eq!(rows(20.0, 11.0), expected);
        expected[3] = ("+21.0 MiB".to_owned(), Verdict::Misses);
        expected[4] = ("100.5 ms".to_owned(), Verdict::Misses);
        assert_eq!(rows(40.0, 100.5), expected);
        assert!(bars(&suite([])).is_empty(), "of traces that could not be had");
    }
}
