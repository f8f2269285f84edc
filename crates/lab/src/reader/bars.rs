//! What the reader set out to reach, held against what was measured. Reported, never asserted.

use super::results::{ReadingResults, Size, TraceKind};
use super::tools::{Tool, Work};
use crate::bars::{at_least, at_most};
use crate::results::Bar;

/// How much faster than babeltrace2 it must be.
const TIMES: f64 = 10.0;
/// Most that the first line may take, in ms.
const FIRST_LINE_MS: f64 = 100.0;
/// How many MiB more a trace ten times as large may need: what is left of the reader's buffers
/// where the smaller one does not fill them. A reader that kept a byte of each event would need
/// more than that from four million events on.
const GROWTH_MIB: f64 = 4.0;
const MIB: f64 = 1_048_576.0;

/// All bars.
pub(super) fn all(results: &ReadingResults) -> Vec<Bar> {
    let mut bars = Vec::new();
    let (kinds, counts) = (results.kinds(), results.cpu_counts());
    for &kind in &kinds {
        for work in [Work::Text, Work::Decode] {
            for &cpus in &counts {
                let plural = if cpus == 1 { "" } else { "s" };
                let (trace, work_words) = (kind.words(), work.words());
                let what =
                    format!("{trace}: {work_words}, {cpus} CPU{plural}: {TIMES} × babeltrace2");
                bars.push(at_least(&what, results.times(work, kind, cpus), TIMES));
            }
        }
    }
    for &kind in &kinds {
        bars.extend(size_bars(results, kind));
    }
    bars
}

fn size_bars(results: &ReadingResults, kind: TraceKind) -> [Bar; 2] {
    let ours = |size: &&Size| size.tool == Tool::Trackway && size.trace == kind;
    let (small, large) = (
        results.sizes.iter().filter(ours).min_by_key(|size| size.events),
        results.sizes.iter().filter(ours).max_by_key(|size| size.events),
    );
    let peak = |size: Option<&Size>| size.map(|size| size.peak_bytes.median);
    let first = |size: Option<&Size>| size.map(|size| size.first_line_ms.median);
    let slowest = first(small).zip(first(large)).map(|(small, large)| small.max(large));
    let trace = kind.words();
    [
        at_most(
            &format!("{trace}: memory does not grow with the trace"),
            peak(large).zip(peak(small)).map(|(large, small)| (large - small) / MIB),
            GROWTH_MIB,
            |mib| format!("{mib:+.1} MiB"),
        ),
        at_most(
            &format!("{trace}: first line within {FIRST_LINE_MS} ms"),
            slowest,
            FIRST_LINE_MS,
            |ms| format!("{ms:.1} ms"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::results::tests::example;
    use crate::results::Verdict;

    #[test]
    fn bars_follow_the_figures() {
        let mut results = example();
        let told = |results: &ReadingResults| -> Vec<(String, Verdict)> {
            all(results).into_iter().map(|bar| (bar.measured, bar.verdict)).collect()
        };
        let mut expected = [
            ("12.50 times".to_owned(), Verdict::Holds),
            ("not measured".to_owned(), Verdict::Unknown),
            ("8.00 times".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
            ("+1.0 MiB".to_owned(), Verdict::Holds),
            ("11.0 ms".to_owned(), Verdict::Holds),
        ];
        assert_eq!(told(&results), expected);
        results.sizes[1].peak_bytes.median *= 2.0;
        results.sizes[0].first_line_ms.median = 100.5;
        expected[4] = ("+21.0 MiB".to_owned(), Verdict::Misses);
        expected[5] = ("100.5 ms".to_owned(), Verdict::Misses);
        assert_eq!(told(&results), expected);
    }
}
