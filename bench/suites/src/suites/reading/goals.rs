//! The reader's goals, judged by the measured figures. The bench reports goals and never asserts
//! them.

use trackway_bench_engine::ratios::{
    FigureFormat, FiguresByRound, bar_all_at_most, bar_at_least, bar_at_most,
};
use trackway_bench_engine::results::{Bar, SuiteRows};

use super::works::{Size, Tool, TraceKind, Work};
use super::{EVENTS_M, PEAK_MIB, first_line_case, speed_case};

/// Least ratio of babeltrace2's time to the reader's time.
const SPEED_RATIO_MIN: f64 = 10.0;
/// Longest time to the first line, in ms.
const FIRST_LINE_MS: f64 = 100.0;
/// Additional MiB that a trace with four million more events may need: the part of the reader's
/// buffers that the smaller trace does not fill. A reader that kept one byte for each event would
/// need more.
const GROWTH_MIB: f64 = 4.0;

/// Returns all goals of the reader.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
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
                bars.extend(judge_speed(suite, kind, (work, Size::Small), tool));
            }
            bars.extend(judge_speed(suite, kind, (work, Size::Large), Tool::Trackway));
        }
    }
    for kind in kinds {
        bars.extend(judge_memory_and_latency(suite, kind));
    }
    bars
}

/// Judges the speed on the large trace, or on the small trace if the other reader does not read the
/// large one.
fn judge_speed(
    suite: &SuiteRows,
    kind: TraceKind,
    (work, size): (Work, Size),
    tool: Tool,
) -> Option<Bar> {
    let row = suite.row(tool.name(), &speed_case(kind, work, size))?;
    let of_size = |size| suite.row(Tool::Babeltrace2.name(), &speed_case(kind, work, size));
    let (other, whose) = match (of_size(size), of_size(Size::Small)) {
        (None, small @ Some(_)) => (small, " of the small one"),
        (same, _) => (same, ""),
    };
    let events = row.extra.get(EVENTS_M).map_or_else(String::new, |m| format!(", {m} M"));
    let (trace, work) = (kind.words(), work.words());
    let cpus = if tool == Tool::OneCpu { "one CPU" } else { "all CPUs" };
    let what = format!("{trace}{events}: {work}, {cpus}: {SPEED_RATIO_MIN} × babeltrace2{whose}");
    let times = FiguresByRound::of(Some(row)).over(&FiguresByRound::of(other));
    Some(bar_at_least(&what, times.estimate(), SPEED_RATIO_MIN, FigureFormat::TIMES))
}

fn judge_memory_and_latency(suite: &SuiteRows, kind: TraceKind) -> [Bar; 2] {
    let ours = |case: String| suite.row(Tool::Trackway.name(), &case);
    let peak_mib =
        |size| FiguresByRound::of_extra(ours(speed_case(kind, Work::Text, size)), PEAK_MIB);
    let first_ms = |size| FiguresByRound::of(ours(first_line_case(kind, size))).estimate();
    let trace = kind.words();
    [
        bar_at_most(
            &format!("{trace}: memory does not grow with the trace"),
            peak_mib(Size::Large).less(&peak_mib(Size::Small)).estimate(),
            GROWTH_MIB,
            FigureFormat::signed(1, "MiB"),
        ),
        bar_all_at_most(
            &format!("{trace}: first line within {FIRST_LINE_MS} ms"),
            [Size::Small, Size::Large].map(first_ms),
            FIRST_LINE_MS,
            FigureFormat::of(1, "ms"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows, with_extra_figure};
    use trackway_bench_engine::results::{Row, Verdict};

    use super::*;

    #[test]
    fn bars_follow_the_figures() {
        let kind = TraceKind::Numbers;
        let speed = |tool: Tool, work, size, events_s: f64, peak_mib| {
            let events_m = if size == Size::Large { 22.0 } else { 1.0 };
            let row = steady_row(tool.name(), &speed_case(kind, work, size), events_s);
            with_extra_figure(with_extra_figure(row, PEAK_MIB, peak_mib), EVENTS_M, events_m)
        };
        let first = |size, ms| steady_row(Tool::Trackway.name(), &first_line_case(kind, size), ms);
        let failed = |row: Row| Row { spread: None, ..row };
        let bars_of = |large_mib, large_ms| {
            judge_goals(&suite_of_rows([
                speed(Tool::OneCpu, Work::Text, Size::Small, 12.5e5, 19.0),
                speed(Tool::Trackway, Work::Text, Size::Small, 2e6, 19.0),
                speed(Tool::OneCpu, Work::Decode, Size::Small, 8e5, 19.0),
                speed(Tool::Trackway, Work::Text, Size::Large, 3e6, large_mib),
                speed(Tool::Babeltrace2, Work::Text, Size::Small, 1e5, 8.0),
                failed(speed(Tool::Babeltrace2, Work::Decode, Size::Small, 1e5, 8.0)),
                first(Size::Small, 10.0),
                first(Size::Large, large_ms),
            ]))
        };
        let told = |bars: Vec<Bar>| -> Vec<(String, Verdict)> {
            bars.into_iter().map(|bar| (bar.measured, bar.verdict)).collect()
        };
        let mut expected = [
            ("12.50 times (12.50 to 12.50)".to_owned(), Verdict::Holds),
            ("20.00 times (20.00 to 20.00)".to_owned(), Verdict::Holds),
            ("30.00 times (30.00 to 30.00)".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
            ("+1.0 MiB (+1.0 to +1.0)".to_owned(), Verdict::Holds),
            ("11.0 ms (11.0 to 11.0)".to_owned(), Verdict::Holds),
        ];
        assert_eq!(told(bars_of(20.0, 11.0)), expected);
        expected[4] = ("+21.0 MiB (+21.0 to +21.0)".to_owned(), Verdict::Misses);
        expected[5] = ("100.5 ms (100.5 to 100.5)".to_owned(), Verdict::Misses);
        assert_eq!(told(bars_of(40.0, 100.5)), expected);
        let large = bars_of(20.0, 11.0).swap_remove(2).what;
        assert_eq!(
            large,
            "Trackway's, u32, 22 M: text, all CPUs: 10 × babeltrace2 of the small one"
        );
        assert!(judge_goals(&suite_of_rows([])).is_empty(), "of traces that could not be had");
    }
}
