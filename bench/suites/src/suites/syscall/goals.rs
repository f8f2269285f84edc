//! Trackway's goals for system calls, judged by the measured figures.

use trackway_bench_engine::ratios::counted_bar_at_most;
use trackway_bench_engine::ratios::{Estimate, FigureFormat, FiguresByRound, bar_at_most};
use trackway_bench_engine::results::{Bar, Row, SuiteRows, Unit, Verdict};

use super::{EMITTED, GETPPID, IN_LTTNGS, NAME_BYTES, OF_LTTNGS, PACED, RECORDER, RowKind};
use crate::tracers::kernel::{BUFFER_KIB, KernelTracer};

/// Largest ratio of entry and exit to ftrace's, if all processes are recorded.
const EVERYTHING: f64 = 0.75;
/// Largest ratio of entry and exit to ftrace's, if one process tree is recorded.
const TREE: f64 = 1.0;
/// Events per second that less than one CPU must drain.
const DRAINED: f64 = 1e6;

/// Returns the cost that a row's tracer adds to a call, relative to ftrace's in the same round.
pub(super) fn ratio_to_ftrace(suite: &SuiteRows, row: &Row) -> Option<Estimate> {
    let plain = suite.row(KernelTracer::Untraced.name(), &row.case)?;
    let ftrace = suite.row(KernelTracer::FtraceRaw.name(), &row.case)?;
    if row.unit != Unit::NsPerCall || row.tracer == plain.tracer {
        return None;
    }
    let plain = FiguresByRound::of(Some(plain));
    let beyond = |row| FiguresByRound::of(Some(row)).less(&plain);
    beyond(row).over(&beyond(ftrace)).estimate()
}

/// Returns Trackway's goals for system calls.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let row = |tracer: KernelTracer, case: &str| suite.row(tracer.name(), case);
    let bar_of = |tracer, words: &str, bound: f64| {
        let what = format!("getppid, {words}: at most {bound:.2} of what ftrace adds");
        let estimate = row(tracer, GETPPID).and_then(|row| ratio_to_ftrace(suite, row));
        bar_at_most(&what, estimate, bound, FigureFormat::PART)
    };
    let mut bars = vec![
        bar_of(KernelTracer::Trackway, "everything (aim: 0.50)", EVERYTHING),
        bar_of(KernelTracer::TrackwayTree, "one process tree", TREE),
    ];
    let longest = RowKind::Openat(NAME_BYTES.len() - 1).words();
    for (words, case) in [(GETPPID, GETPPID), ("openat", &longest)] {
        let ours = row(KernelTracer::Trackway, case);
        let extra = |what: &str| ours.and_then(|row| row.extra.get(what)).copied();
        let what = format!("bytes of an event of {words}: at most as in LTTng's layout");
        let bytes = extra(IN_LTTNGS).unwrap_or_default();
        let words = |times: f64| format!("{times:.3} of {bytes:.2}");
        // Packet headers that events of other processes cause are not part of the goal.
        let times = extra(OF_LTTNGS).map(|times| (times * 1000.0).round() / 1000.0);
        bars.push(counted_bar_at_most(&what, times, 1.0, words));
    }
    bars.push(judge_drain_rate(row(KernelTracer::Trackway, PACED)));
    bars
}

/// Judges a million events per second, by less than a core, without loss.
pub(super) fn judge_drain_rate(row: Option<&Row>) -> Bar {
    let mib = BUFFER_KIB >> 10;
    let what = format!("1 M events/s drained by less than one core, none lost, {mib} MiB a CPU");
    let extra = |row: &Row, what: &str| row.extra.get(what).copied().unwrap_or(0.0);
    // A machine that does not reach this rate gives no verdict on the recorder.
    let row = row.filter(|row| row.spread.is_some() && extra(row, EMITTED) > 0.9 * DRAINED);
    let estimate = FiguresByRound::of_extra(row, RECORDER).estimate();
    let mut bar = bar_at_most(&what, estimate, 100.0, FigureFormat::of(0, "%"));
    let lost = row.and_then(|row| row.lost).unwrap_or(0);
    if let Some(row) = row {
        bar.measured += &format!(", {:.2} M/s, {lost} lost", extra(row, EMITTED) / 1e6);
    }
    if lost > 0 {
        bar.verdict = Verdict::Misses;
    }
    bar
}
