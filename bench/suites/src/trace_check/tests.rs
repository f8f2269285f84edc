//! Tests of the module `trace_check`.

use super::*;

#[test]
fn summaries_are_read() {
    let text = r#"{"programs": {"recorded": 1234567, "lost": 3, "overwritten": 4000, "cut": 1},
        "kernel": null}"#;
    let expected = RecorderSummary { recorded: 1_234_567, lost: 3, overwritten: 4000 };
    assert_eq!(RecorderSummary::parse(text, "programs"), Some(expected));
    assert_eq!(RecorderSummary::parse(text, "kernel"), None);
    assert_eq!(RecorderSummary::parse("", "programs"), None);
}

#[test]
fn what_is_missing_at_the_begin_must_have_been_in_packets() {
    let counted = |packets_before, events| TraceCounts {
        events,
        packets_before,
        full: Some((100, 101)),
        ..TraceCounts::default()
    };
    let account = |first: u64, packets, size| {
        let emitted = [1000];
        let mut threads = Threads::new(&emitted);
        (first..1000).for_each(|number| threads.add(number));
        threads.overwritten_in_packets(&counted(packets, 1000 - first), size)
    };
    for first in [392, 400, 412] {
        let found = account(first, 4, EventSizeKind::Same).expect("four packets");
        assert_eq!((found.overwritten, found.is_complete()), (first, true));
    }
    // The tracer was on only from the 20th event on, or from the begin with the same number of
    // packets.
    for (first, packets) in [(420, 4), (380, 4), (20, 0), (400, 3), (0, 1)] {
        let error = account(first, packets, EventSizeKind::Same).unwrap_err().to_string();
        assert!(error.contains("missing at the begin"), "{error}");
    }
    account(420, 4, EventSizeKind::Text).expect("numbers had fewer digits");
    account(520, 4, EventSizeKind::Text).expect_err("not so much fewer");
    account(0, 0, EventSizeKind::Same).expect("nothing was overwritten");
    let none = TraceCounts { packets_before: 1, ..TraceCounts::default() };
    assert_eq!(none.overwritten_range(EventSizeKind::Same), None);
}

#[test]
fn each_number_is_there_once_or_lost() {
    let kept = |numbers: &[u64], discarded| {
        let mut threads = Threads::new(&[4]);
        numbers.iter().for_each(|number| threads.add(*number));
        let events = numbers.len() as u64;
        threads.complete(&TraceCounts { events, discarded, ..TraceCounts::default() })
    };
    assert!(kept(&[0, 1, 2, 3], 0).expect("all").is_complete());
    assert!(kept(&[0, 3], 2).expect("some").is_complete());
    assert!(!kept(&[0, 3], 1).expect("fewer than are missing").is_complete());
    // The count of events is right, but the numbers are wrong.
    for numbers in [[0, 1, 1, 3], [0, 1, 2, 64]] {
        let error = kept(&numbers, 0).unwrap_err().to_string();
        assert!(error.contains("4 events, 3 with numbers of threads and once each"), "{error}");
    }
}

#[test]
fn our_recorder_must_say_what_is_overwritten_as_others_packets_do() {
    let found = |numbers: std::ops::Range<u64>, (lost, overwritten)| {
        let mut threads = Threads::new(&[100]);
        let recorded = numbers.end - numbers.start;
        numbers.for_each(|number| threads.add(number));
        let counted = TraceCounts { events: recorded, discarded: lost, ..TraceCounts::default() };
        threads.summarized(&counted, &RecorderSummary { recorded, lost, overwritten })
    };
    assert!(found(40..100, (0, 40)).expect("the newest").is_complete());
    assert!(found(0..100, (0, 0)).expect("all").is_complete());
    assert!(found(40..100, (40, 0)).expect("the first are lost").is_complete());
    assert!(found(40..90, (10, 40)).expect("the last are lost").is_complete());
    assert!(!found(40..90, (0, 50)).expect("the last, and it says nothing").is_complete());
    // The tracer was on only from the 40th event on: more events are missing than were overwritten.
    for reported in [0, 20, 60] {
        let error = found(40..100, (0, reported)).unwrap_err().to_string();
        assert!(error.contains(&format!("overwrote {reported} events")), "{error}");
    }
}

#[test]
fn numbers_end_messages() {
    assert_eq!(parse_number_at_end(b"a name of 16 by (17)"), Some(17));
    for text in [&b"none"[..], b"()", b"(x)", b"17)"] {
        assert_eq!(parse_number_at_end(text), None);
    }
}

#[test]
fn where_there_is_no_trace_there_is_nothing() {
    assert_eq!(count_trace(Path::new("/nonexistent")).expect("no trace"), None);
}
