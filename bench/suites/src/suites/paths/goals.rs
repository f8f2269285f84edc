//! Goals of the suite: bounds for the costs of protections.

use trackway_bench_engine::ratios::{
    Estimate, FigureFormat, FiguresByRound, bar_at_most, counted_bar_at_most,
};
use trackway_bench_engine::results::{Bar, Report, SuiteRows};

use super::protections::ProtectionKind;
use super::{BYTES, ClockKind, Path, RowKind, thread_counts};

/// Largest ratio of a protection's cost to the cost without protection.
const ABOVE_FLOOR: f64 = 1.25;
/// Largest ratio of one thread on each CPU to a single thread.
const MORE_THREADS: f64 = 1.10;

/// Returns the goals of this suite.
pub(crate) fn judge_goals(report: &Report, suite: &SuiteRows) -> Vec<Bar> {
    let find = |protection: ProtectionKind, question: RowKind| {
        suite.row(protection.name(), &question.words())
    };
    let one = RowKind::Loop(BYTES, ClockKind::Counter);
    let ns = |protection| FiguresByRound::of(find(protection, one));
    let compare = |what: &str, protection| {
        bar_at_most(
            what,
            ns(ProtectionKind::Rseq).over(&ns(protection)).estimate(),
            1.0,
            FigureFormat::PART,
        )
    };
    let cpus = report.machine.cpus;
    let at_once = |count| find(ProtectionKind::Rseq, RowKind::Threads(count));
    let more = FiguresByRound::of(at_once(cpus)).over(&FiguresByRound::of(at_once(1))).estimate();
    let most_threads = thread_counts(cpus).last().copied().unwrap_or(1);
    let lost = at_once(most_threads).filter(|row| row.spread.is_some()).and_then(|row| row.lost);
    let instructions = find(ProtectionKind::Rseq, RowKind::Instructions(Path::Fast));
    let locked = instructions.and_then(|row| row.extra.get("atomic instructions")).copied();
    vec![
        bar_at_most(
            &format!("buffer, u32: rseq at most {ABOVE_FLOOR} of no protection"),
            Estimate::ratio_to_baseline(suite, find(ProtectionKind::Rseq, one)),
            ABOVE_FLOOR,
            FigureFormat::PART,
        ),
        compare("buffer, u32: rseq costs less than lockless", ProtectionKind::Lockless),
        compare("buffer, u32: rseq costs less than a mutex", ProtectionKind::Mutex),
        counted_bar_at_most("buffer, rseq: no atomic instruction", locked, 0.0, |locked| {
            format!("{locked}")
        }),
        bar_at_most(
            &format!("buffer, rseq: a thread on each CPU costs at most {MORE_THREADS:.2} of one"),
            more.filter(|_| cpus > 1),
            MORE_THREADS,
            FigureFormat::PART,
        ),
        counted_bar_at_most(
            &format!("buffer, rseq: {most_threads} threads lose nothing"),
            lost.map(|lost| lost as f64),
            0.0,
            |lost| format!("{lost} lost"),
        ),
    ]
}
