//! Figures and accounts of system calls, by outputs that were made up.

use trackway_bench_engine::results::Verdict;
use trackway_bench_engine::results::fixtures::{row, steady, suite, with_extra};

use super::goals::{bars, drained_bar, of_ftrace};
use super::*;
use crate::tracers::kernel::Found;

fn ns_row(tracer: KernelTracer, samples: &[f64]) -> Row {
    Row {
        unit: Unit::NsPerCall,
        samples: samples.iter().copied().map(Some).collect(),
        ..row(tracer.name(), GETPPID, samples[0])
    }
}

#[test]
fn what_is_added_is_held_against_ftraces_of_the_same_round() {
    // A machine that is three times as slow in the second round.
    let mut rows = suite([
        ns_row(KernelTracer::Untraced, &[100.0, 300.0].repeat(3)),
        ns_row(KernelTracer::Trackway, &[200.0, 600.0].repeat(3)),
        ns_row(KernelTracer::FtraceRaw, &[300.0, 900.0].repeat(3)),
    ]);
    let ratio = of_ftrace(&rows, &rows.rows[1]).expect("a ratio");
    assert_eq!((ratio.ratio.median, ratio.rounds), (0.5, 6));
    assert_eq!(of_ftrace(&rows, &rows.rows[0]), None);
    Syscall::default().complete(&mut rows);
    assert_eq!(rows.rows[1].extra.get(OF_FTRACE), Some(&0.5));
    let bars = bars(&rows);
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
    let found = Found { events: 5995, of_call: Some(5995), lost: 5, ..Found::default() };
    let ran = Ran { stdout, found: Some(found), ..Ran::default() };
    let samples = shared(&ran, 1000).expect("samples");
    let accounts: Vec<Account> = samples.iter().flatten().filter_map(|one| one.account).collect();
    assert!(accounts.len() == NAME_BYTES.len() && accounts.iter().all(Account::is_complete));
    let sum = |of: fn(&Account) -> u64| accounts.iter().map(of).sum::<u64>();
    assert_eq!((sum(|one| one.recorded), sum(|one| one.lost)), (5995, 5));
    // The first batches do not count.
    assert_eq!(samples[1].as_ref().map(|sample| sample.figure), Some(101.5));
    let silent = Ran { found: Some(Found { lost: 0, ..found }), ..ran };
    let error = shared(&silent, 1000).expect_err("five are missing").to_string();
    assert!(error.contains("events do not add up: 6000 emitted, 5995 recorded"), "{error}");
}

#[test]
fn single_calls_are_told_without_what_measuring_takes() {
    let stdout = "clock 40\nsingle 35 2\nsingle 147 10\nsingle 149 5\nsingle 1041 1\n".to_owned();
    let (histogram, clock_ns) =
        single_calls(&Ran { stdout, ..Ran::default() }).expect("a histogram");
    assert_eq!(histogram, [(-5.0, 2), (107.0, 10), (109.0, 5), (1000.0, 1)]);
    assert_eq!(clock_ns, Some(40.0));
    assert!(single_calls(&Ran::default()).expect("none").0.is_empty());
}

#[test]
fn what_is_in_buffers_when_the_program_ends_has_not_arrived() {
    let drained = |written: u64| {
        let stdout = format!("emitted 0 500 1000000 9\nload 1000000 1 2\nwritten {written}\n");
        let found = Found { events: 1000, bytes: 8000, ..Found::default() };
        super::drained(&Ran { stdout, found: Some(found), ..Ran::default() }).expect("a sample")
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
        let row = steady(KernelTracer::Trackway.name(), PACED, 1e6);
        let row = with_extra(with_extra(row, EMITTED, 1e6), RECORDER, percent);
        drained_bar(Some(&Row { lost: Some(lost), ..row })).verdict
    };
    assert_eq!(drained(0, 40.0), Verdict::Holds);
    assert_eq!(drained(0, 140.0), Verdict::Misses);
    assert_eq!(drained(3, 40.0), Verdict::Misses);
    assert_eq!(drained_bar(None).verdict, Verdict::Unknown);
}

#[test]
fn rows_are_told_in_terms_of_the_untraced_and_drains_of_ours() {
    let row_spec = |tracer, turn| RowSpec { tracer, turn, again: false };
    let rows = vec![
        row_spec(KernelTracer::Untraced, Turn::Getppid),
        row_spec(KernelTracer::Trackway, Turn::Getppid),
        row_spec(KernelTracer::Trackway, Turn::Paced),
        row_spec(KernelTracer::Perf, Turn::Paced),
        RowSpec { again: true, ..row_spec(KernelTracer::Untraced, Turn::Getppid) },
    ];
    let suite = Syscall { rows, ..Syscall::default() };
    assert_eq!(suite.baselines(), [None, Some(0), None, Some(2), Some(0)]);
}
