//! The suite's goals, and its rows for each protection.

use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};
use trackway_bench_engine::results::{Report, Verdict};
use trackway_bench_engine::stats::Ratio;

use super::*;

#[test]
fn threads_are_doubled_until_there_are_enough_and_then_too_many() {
    assert_eq!(thread_counts(2), [1, 2, 4, 16]);
    assert_eq!(thread_counts(1), [1, 2, 8]);
    assert_eq!(thread_counts(6), [1, 2, 4, 6, 12, 48]);
    assert_eq!(thread_counts(512), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]);
}

#[test]
fn the_line_through_points_is_the_nearest() {
    let (start, slope) = line_through(&[(0.0, 20.0), (0.5, 60.0), (1.0, 100.0)]).expect("one");
    assert!((start - 20.0).abs() < 1e-9 && (slope - 80.0).abs() < 1e-9);
    assert_eq!(line_through(&[(0.5, 1.0)]), None);
    assert_eq!(line_through(&[(0.5, 1.0), (0.5, 2.0)]), None);
    assert_eq!(line_through(&[(0.5, f64::NAN), (1.0, 2.0)]), None);
}

#[test]
fn every_row_has_words_of_its_own() {
    let all = RowKind::all(2);
    let words: std::collections::BTreeSet<String> =
        all.iter().map(|question| question.words()).collect();
    assert_eq!(words.len(), all.len());
    assert!(words.contains("256 B, sub-buffers of 4 KiB"), "{words:?}");
}

#[test]
fn bars_follow_the_figures() {
    let of = |protection: ProtectionKind, question: RowKind, ns| {
        steady_row(protection.name(), &question.words(), ns)
    };
    let one = RowKind::Loop(BYTES, ClockKind::Counter);
    let mut rseq = of(ProtectionKind::Rseq, one, 24.0);
    rseq.times = Ratio::of(&[1.09; 8]);
    let mut steps = of(ProtectionKind::Rseq, RowKind::Instructions(Path::Fast), 90.0);
    steps.extra.insert("atomic instructions".to_owned(), 0.0);
    let mut crowd = of(ProtectionKind::Rseq, RowKind::Threads(16), 26.0);
    crowd.lost = Some(3);
    let threads = [1, 2].map(|count| of(ProtectionKind::Rseq, RowKind::Threads(count), 25.0));
    let mut rows = vec![rseq, of(ProtectionKind::Lockless, one, 48.0), steps, crowd];
    rows.extend(threads);
    let mut report = Report::default();
    report.machine.cpus = 2;
    let bars = judge_goals(&report, &suite_of_rows(rows));
    let told: Vec<(String, Verdict)> =
        bars.into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
    let expected = [
        ("1.09 of it (1.09 to 1.09)".to_owned(), Verdict::Holds),
        ("0.50 of it (0.50 to 0.50)".to_owned(), Verdict::Holds),
        ("not measured".to_owned(), Verdict::Unknown),
        ("0".to_owned(), Verdict::Holds),
        ("1.00 of it (1.00 to 1.00)".to_owned(), Verdict::Holds),
        ("3 lost".to_owned(), Verdict::Misses),
    ];
    assert_eq!(told, expected);
}
