//! Tests of figures and accounts of system calls, with made-up outputs.

use trackway_bench_engine::results::Verdict;
use trackway_bench_engine::results::fixtures::{
    measured_row, steady_row, suite_of_rows, with_extra_figure,
};

use super::goals::{judge_drain_rate, judge_goals, ratio_to_ftrace};
use super::*;
use crate::tracers::kernel::FoundEvents;

fn ns_row(tracer: KernelTracer, samples: &[f64]) -> Row {
    Row {
        unit: Unit::NsPerCall,
        samples: samples.iter().copied().map(Some).collect(),
        ..measured_row(tracer.name(), GETPPID, samples[0])
    }
}

#[test]
fn what_is_added_is_held_against_ftraces_of_the_same_round() {
    // The machine is three times as slow in every second round.
    let mut rows = suite_of_rows([
        ns_row(KernelTracer::Untraced, &[100.0, 300.0].repeat(3)),
        ns_row(KernelTracer::Trackway, &[200.0, 600.0].repeat(3)),
        ns_row(KernelTracer::FtraceRaw, &[300.0, 900.0].repeat(3)),
    ]);
    let ratio = ratio_to_ftrace(&rows, &rows.rows[1]).expect("a ratio");
    assert_eq!((ratio.ratio.median, ratio.rounds), (0.5, 6));
    assert_eq!(ratio_to_ftrace(&rows, &rows.rows[0]), None);
    Syscall::default().complete(&mut rows);
    assert_eq!(rows.rows[1].extra.get(OF_FTRACE), Some(&0.5));
    let bars = judge_goals(&rows);
    let expected = ("0.50 of it (0.50 to 0.50)", Verdict::Holds);
    assert_eq!((bars[0].measured.as_str(), bars[0].verdict), expected);
    assert_eq!(bars[1].verdict, Verdict::Unknown);
}

#[test]
fn rows_of_a_run_share_its_account() {
    let stdout: String = NAME_BYTES
        .iter()
        .map(|bytes| format!("batch {bytes} 0 10 9999\nbatch {bytes} 30 10 {}\n", 1000 + bytes))
        .collect();
    let found =
        FoundEvents { events: 5995, of_call: Some(5995), lost: 5, ..FoundEvents::default() };
    let ran = TracedRun { stdout, found: Some(found), ..TracedRun::default() };
    let samples = samples_by_name_length(&ran, 1000).expect("samples");
    let accounts: Vec<Account> = samples.iter().flatten().filter_map(|one| one.account).collect();
    assert!(accounts.len() == NAME_BYTES.len() && accounts.iter().all(Account::is_complete));
    let sum = |of: fn(&Account) -> u64| accounts.iter().map(of).sum::<u64>();
    assert_eq!((sum(|one| one.recorded), sum(|one| one.lost)), (5995, 5));
    // The warm-up batches are not counted.
    assert_eq!(samples[1].as_ref().map(|sample| sample.figure), Some(101.5));
    let silent = TracedRun { found: Some(FoundEvents { lost: 0, ..found }), ..ran };
    let error = samples_by_name_length(&silent, 1000).expect_err("five are missing").to_string();
    assert!(error.contains("events do not add up: 6000 emitted, 5995 recorded"), "{error}");
}

#[test]
fn single_calls_are_told_without_what_measuring_takes() {
    let stdout = "clock 40\nsingle 35 2\nsingle 147 10\nsingle 149 5\nsingle 1041 1\n".to_owned();
    let (histogram, clock_ns) =
        parse_single_calls(&TracedRun { stdout, ..TracedRun::default() }).expect("a histogram");
    assert_eq!(histogram, [(-5.0, 2), (107.0, 10), (109.0, 5), (1000.0, 1)]);
    assert_eq!(clock_ns, Some(40.0));
    assert!(parse_single_calls(&TracedRun::default()).expect("none").0.is_empty());
}

#[test]
fn what_is_in_buffers_when_the_program_ends_has_not_arrived() {
    let drained = |written: u64| {
        let stdout = format!("emitted 0 500 1000000 9\nload 1000000 1 2\nwritten {written}\n");
        let found = FoundEvents { events: 1000, bytes: 8000, ..FoundEvents::default() };
        super::sample_of_drain(&TracedRun { stdout, found: Some(found), ..TracedRun::default() })
            .expect("a sample")
    };
    let half = drained(4000);
    assert_eq!((half.figure, half.account.map(|one| one.recorded)), (500_000.0, Some(1000)));
    assert!(half.extra.contains(&(LATER, 50.0)) && half.extra.contains(&(EMITTED, 1e6)));
    assert_eq!(drained(8100).figure, 1e6);
    assert_eq!(drained(0).figure, 0.0);
}

#[test]
fn what_is_lost_misses_the_bar_however_little_the_recorder_took() {
    let drained = |lost, percent| {
        let row = steady_row(KernelTracer::Trackway.name(), PACED, 1e6);
        let row = with_extra_figure(with_extra_figure(row, EMITTED, 1e6), RECORDER, percent);
        judge_drain_rate(Some(&Row { lost: Some(lost), ..row })).verdict
    };
    assert_eq!(drained(0, 40.0), Verdict::Holds);
    assert_eq!(drained(0, 140.0), Verdict::Misses);
    assert_eq!(drained(3, 40.0), Verdict::Misses);
    assert_eq!(judge_drain_rate(None).verdict, Verdict::Unknown);
}

#[test]
fn rows_are_told_in_terms_of_the_untraced_and_drains_of_ours() {
    let row_spec = |tracer, turn| RowSpec { tracer, turn, again: false };
    let rows = vec![
        row_spec(KernelTracer::Untraced, RowKind::Getppid),
        row_spec(KernelTracer::Trackway, RowKind::Getppid),
        row_spec(KernelTracer::Trackway, RowKind::Paced),
        row_spec(KernelTracer::Perf, RowKind::Paced),
        RowSpec { again: true, ..row_spec(KernelTracer::Untraced, RowKind::Getppid) },
    ];
    let suite = Syscall { rows, ..Syscall::default() };
    assert_eq!(suite.baselines(), [None, Some(0), None, Some(2), Some(0)]);
}
