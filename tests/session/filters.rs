//! Events that filters pass, in programs that run or begin, and while filters change.

use std::collections::BTreeSet;

use trackway_tests::Fixture;
use trackway_tests::steps::wait_for;

use crate::session_test::{
    BurstProgram, CountingProgram, RUN_ONCE_STREAM, SessionTest, assert_range_absent,
    assert_range_present, command_result,
};

/// Runs `trackway WORDS`, which must succeed.
fn run_expecting_success(test: &SessionTest, words: &[&str]) {
    let (is_success, _, talk) =
        command_result(&test.fixture.trackway(words).output().expect("it runs"));
    assert!(is_success, "{words:?}: {talk}");
}

/// Returns the numbers of one stream in a trace.
fn numbers_of_stream(test: &SessionTest, trace: &str, stream: u32) -> Vec<u64> {
    test.numbers(trace).remove(&stream).unwrap_or_default()
}

/// RUN an unknown program with a filter. EXPECT exactly the events for which the filter is true,
/// from the first one on, and none counted as lost.
#[test]
fn a_program_is_filtered_from_its_first_event_on() {
    let test = SessionTest::new("session-filters-first");
    let filter = "number % 3 == 1 && number in (10..99, 200)";
    run_expecting_success(&test, &["session", "create", "web", "-o", "trace", "--filter", filter]);
    test.emit("steps", 1000);
    // Events count as recorded when the recorder has drained them.
    let counts = || test.status("web")["counts"].clone();
    wait_for("that it is counted", || counts()["recorded"].as_u64() >= Some(30));
    let counts = counts();
    assert_eq!((counts["recorded"].as_u64(), counts["lost"].as_u64()), (Some(30), Some(0)));
    test.ok("session destroy web");
    let meant: Vec<u64> = (0..1000).filter(|n| n % 3 == 1 && (10..=99).contains(n)).collect();
    assert_eq!(numbers_of_stream(&test, "trace", RUN_ONCE_STREAM), meant);
}

/// RUN record with a filter on some events. EXPECT the events that pass, and all events without a
/// filter.
#[test]
fn events_without_a_filter_are_recorded() {
    let test = SessionTest::new("session-filters-about");
    let emitter = test.emitter.to_str().expect("a path");
    for (filter, count) in [
        ("elsewhere:*: nothing > 5", 0..1000),
        ("life: number < 7", 0..7),
        ("life:step: number >= 990 && $ctx.vpid > 0", 990..1000),
        ("$ctx.procname == \"emitt*\" && who == 10000 && number == 5", 5..6),
        ("number < 5 && false", 0..0),
    ] {
        let words = ["record", "-o", "trace", "--filter", filter, "--", emitter, "steps", "1000"];
        let steps = test.steps_of_one();
        let mut command = test.fixture.trackway(&words);
        let (is_success, _, talk) =
            command_result(&command.env("STEPS", steps.path()).output().expect("it runs"));
        assert!(is_success, "{filter}: {talk}");
        let stream = test.numbers("trace");
        let found: Vec<u64> = stream.into_values().flatten().collect();
        assert_eq!(found, count.collect::<Vec<_>>(), "{filter}");
    }
}

/// Predicate that is true if an event with this number passes.
type NumberPredicate = fn(u64) -> bool;

/// RUN event on with other filters between bursts of a program. EXPECT for each burst the events
/// that its filter passes.
#[test]
fn filters_change_between_two_numbers() {
    let test = SessionTest::new("session-filters-change");
    test.ok("session create web --event life:* -o trace");
    let mut bursts = BurstProgram::of(&test, 100);
    let mut passing: Vec<NumberPredicate> = vec![|_| true];
    let filters: [(&str, NumberPredicate); 5] = [
        ("number % 2 == 0", |number| number.is_multiple_of(2)),
        ("number % 2 == 1", |number| number % 2 == 1),
        ("false", |_| false),
        ("pid == tid && number % 10 == 3", |number| number % 10 == 3),
        ("", |_| true),
    ];
    for (filter, passes) in filters {
        run_expecting_success(&test, &["event", "on", "web", "life:*", "--filter", filter]);
        bursts.next();
        passing.push(passes);
    }
    test.ok("session destroy web");
    let meant = (0..600).filter(|&number: &u64| passing[(number / 100) as usize](number));
    assert_eq!(numbers_of_stream(&test, "trace", 0), meant.collect::<Vec<_>>());
}

/// RUN filters that change all the time while four threads count. EXPECT no event that all filters
/// drop, every event that all of them pass, none twice. Missing events are counted: if a thread is
/// preempted while it links a filter, others wait only briefly (0008).
#[test]
fn no_event_passes_by_half_a_filter_while_threads_emit() {
    let test = SessionTest::new("session-filters-threads");
    run_expecting_success(
        &test,
        &["session", "create", "web", "-o", "trace", "--filter", "life: number % 4 < 2"],
    );
    let counting = CountingProgram::threads(&test, 4);
    for round in 0..20 {
        counting.steps.wait_more(20);
        // Numbers with remainder 0 always pass, and with remainder 3 never.
        let filter = ["number % 4 == 0", "number % 4 in (0, 2)", "number % 4 < 2"][round % 3];
        run_expecting_success(&test, &["event", "on", "web", "life", "--filter", filter]);
        if round % 5 == 0 {
            let contexts = if round % 2 == 0 { "vpid" } else { "vtid" };
            test.ok(&format!("channel set web channel0 --context {contexts}"));
        }
    }
    let steps = counting.finish();
    let lost = test.status("web")["counts"]["lost"].as_u64().expect("a number");
    test.ok("session destroy web");
    let found = test.numbers("trace");
    let mut missing = 0;
    for (stream, &count) in &steps.counts().started {
        let all = &found[stream];
        let once: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(once.len(), all.len(), "stream {stream}: something is there twice");
        assert!(once.iter().all(|number| number % 4 != 3), "stream {stream}");
        missing += (0..count).step_by(4).filter(|number| !once.contains(number)).count() as u64;
    }
    assert!(missing <= lost, "{missing} are missing, {lost} are counted");
}

/// RUN filters with state, through a change of contexts and of another filter. EXPECT their state
/// to remain, and the state of a changed filter to start again.
#[test]
fn filter_state_lives_as_long_as_its_filter() {
    let test = SessionTest::new("session-filters-state");
    let filter = "life: count() % 10 == 0";
    run_expecting_success(
        &test,
        &["session", "create", "web", "--event", "life", "-o", "trace", "--filter", filter],
    );
    let mut bursts = BurstProgram::of(&test, 15);
    test.ok("channel set web channel0 --context vpid");
    bursts.next();
    run_expecting_success(&test, &["event", "on", "web", "other:*", "--filter", "x > 5"]);
    bursts.next();
    run_expecting_success(&test, &["event", "on", "web", "life", "--filter", "count() % 10 == 1"]);
    bursts.next();
    test.ok("session destroy web");
    assert_eq!(numbers_of_stream(&test, "trace", 0), [0, 10, 20, 30, 40, 46, 56]);
}

/// RUN filters that sample and limit: one in a hundred, ten in a minute, changed values. EXPECT
/// about these numbers of events.
#[test]
fn filters_choose_and_bound() {
    let test = SessionTest::new("session-filters-sample");
    for (filter, least, most) in [
        ("sample(1/100)", 50, 150),
        ("rate(10/min)", 10, 20),
        ("changed(number / 1000)", 10, 10),
        ("rate(10/s) && false", 0, 0),
    ] {
        run_expecting_success(
            &test,
            &["session", "create", "web", "-o", "trace", "--filter", filter],
        );
        test.emit("steps", 10_000);
        test.ok("session destroy web");
        let count = numbers_of_stream(&test, "trace", RUN_ONCE_STREAM).len();
        assert!((least..=most).contains(&count), "{filter}: {count}");
    }
}

/// RUN a session without filters and a session with filters at the same time. EXPECT each to apply
/// its own filters.
#[test]
fn sessions_and_channels_have_filters_of_their_own() {
    let test = SessionTest::new("session-filters-own");
    run_expecting_success(&test, &["session", "create", "all", "-o", "all"]);
    run_expecting_success(
        &test,
        &["session", "create", "few", "-o", "few", "--filter", "number < 10"],
    );
    run_expecting_success(
        &test,
        &["session", "create", "none", "-o", "none", "--filter", "number < 0"],
    );
    test.emit("steps", 100);
    test.ok("session destroy --all");
    for (trace, end) in [("all", 100), ("few", 10), ("none", 0)] {
        let found = test.numbers(trace);
        assert_range_present(&found, RUN_ONCE_STREAM, 0..end);
        assert_range_absent(&found, RUN_ONCE_STREAM, end..100);
    }
}

/// A program with a string, labels, and sequences.
const KINDS_SOURCE: &str = "
#include <trackway/trackway.h>
TRACKWAY_ENUM(kinds, state, (idle, 0), (busy, 1), (failed, 5, 9));
TRACKWAY_EVENT(kinds, all, TRACKWAY_INFO, (str, path), (enum, state, kinds, state, u8),
    (seq, sizes, u16), (f64, share), (i64, number));
int main(void)
{
    static const uint16_t sizes[3] = {1, 200, 3};
    static const char *const paths[4] = {\"/api/a\", \"/api/b\", \"/x\", \"\"};
    for (int i = 0; i < 12; i++)
        trackway(kinds, all, paths[i % 4], (uint8_t)(i % 10), sizes, (size_t)(i % 4), i / 4.0, i);
    return 0;
}
";

/// RUN filters of strings, labels, sequences and floats on a program. EXPECT the events that
/// `trackway print --filter` selects from an unfiltered trace.
#[test]
fn the_recorder_and_the_reader_are_of_one_mind() {
    let fixture = Fixture::new("session-filters-kinds");
    let program = fixture.compile("kinds", KINDS_SOURCE, true, &[]);
    let lines = |text: &str| -> Vec<String> {
        let number = |line: &str| line.split("number = ").nth(1).map(str::to_owned);
        text.lines().filter_map(number).collect()
    };
    let all = fixture.path("all");
    std::fs::rename(fixture.record(&[], &[&program]).trace, &all).unwrap();
    for filter in [
        "path == \"/api/*\"",
        "contains(path, \"b\") || length(path) == 0",
        "state == \"failed\"",
        "state != \"idle\" && state < 4",
        "any(sizes > 100)",
        "all(sizes < 100) && length(sizes) > 0",
        "sizes[1] == 200",
        "sizes[number % 3] > 2",
        "share > 1.5 && share <= 2",
        "share * 4 == number && -number < -9",
        "kinds:*: state in (\"busy\", 3..4)",
    ] {
        let printed = fixture.trackway(&["print", "--filter", filter]).arg(&all).output();
        let (is_success, expected, talk) = command_result(&printed.expect("it runs"));
        assert!(is_success, "{talk}");
        let recording = fixture.record(&["--filter", filter], &[&program]);
        let found = lines(&fixture.print(&recording.trace));
        assert_eq!(found, lines(&expected), "{filter}");
        assert!(!found.is_empty() && found.len() < 12, "{filter}: it decides nothing");
    }
}

/// RUN a program without executable memory, and a program with it, at the same time. EXPECT both to
/// be filtered, and `session status` to report which of them interprets.
#[test]
fn without_memory_that_is_executed_filters_are_interpreted() {
    let test = SessionTest::new("session-filters-no-exec");
    let source = trackway_tests::source_dir().join("tests/lives/no_exec.c");
    let source = std::fs::read_to_string(source).expect("a source file");
    let launcher = test.fixture.compile("no-exec", &source, false, &[]);
    run_expecting_success(
        &test,
        &["session", "create", "some", "-o", "trace", "--filter", "number % 10 == 3"],
    );
    test.emit("steps", 50);
    let says = || test.ok("session status some").0;
    assert!(!says().contains("interpreted"), "{}", says());
    let other = test.steps_from(RUN_ONCE_STREAM + 500);
    let mut command = test.fixture.command(&launcher);
    command.arg(&test.emitter).args(["steps", "50"]).env("STEPS", other.path());
    let output = command.output().expect("it runs");
    if output.status.code() == Some(77) {
        return trackway_tests::report_skipped("seccomp filters are not available");
    }
    assert!(output.status.success(), "{output:?}");
    assert!(says().contains("filters are interpreted in 1 process"), "{}", says());
    run_expecting_success(&test, &["session", "destroy", "some"]);
    for stream in [RUN_ONCE_STREAM, RUN_ONCE_STREAM + 500] {
        assert_eq!(numbers_of_stream(&test, "trace", stream), [3, 13, 23, 33, 43]);
    }
}
