//! Events that filters let pass in programs that run, begin, and change while filters change.

use std::collections::BTreeSet;

use trackway_tests::World;
use trackway_tests::steps::wait_for;

use crate::place::{Bursts, Counting, ONE, Place, assert_none_there, assert_there, told};

/// Runs `trackway WORDS`, which must succeed.
fn ok(place: &Place, words: &[&str]) {
    let (is_success, _, talk) = told(&place.world.trackway(words).output().expect("it runs"));
    assert!(is_success, "{words:?}: {talk}");
}

/// Numbers of one stream in a trace.
fn numbers(place: &Place, trace: &str, who: u32) -> Vec<u64> {
    place.numbers(trace).remove(&who).unwrap_or_default()
}

/// RUN an unknown program with a filter. EXPECT exactly its events for which the filter is true,
/// from the first one on, and none counted as lost.
#[test]
fn a_program_is_filtered_from_its_first_event_on() {
    let place = Place::new("session-filters-first");
    let filter = "number % 3 == 1 && number in (10..99, 200)";
    ok(&place, &["session", "create", "web", "-o", "trace", "--filter", filter]);
    place.emit("steps", 1000);
    // What was recorded counts when the recorder has looked.
    let counts = || place.status("web")["counts"].clone();
    wait_for("that it is counted", || counts()["recorded"].as_u64() >= Some(30));
    let counts = counts();
    assert_eq!((counts["recorded"].as_u64(), counts["lost"].as_u64()), (Some(30), Some(0)));
    place.ok("session destroy web");
    let meant: Vec<u64> = (0..1000).filter(|n| n % 3 == 1 && (10..=99).contains(n)).collect();
    assert_eq!(numbers(&place, "trace", ONE), meant);
}

/// RUN the same by record. EXPECT the same; events that no filter is about are all there.
#[test]
fn what_no_filter_is_about_is_recorded() {
    let place = Place::new("session-filters-about");
    let emitter = place.emitter.to_str().expect("a path");
    for (filter, count) in [
        ("elsewhere:*: nothing > 5", 0..1000),
        ("life: number < 7", 0..7),
        ("life:step: number >= 990 && $ctx.vpid > 0", 990..1000),
        ("$ctx.procname == \"emitt*\" && who == 10000 && number == 5", 5..6),
        ("number < 5 && false", 0..0),
    ] {
        let words = ["record", "-o", "trace", "--filter", filter, "--", emitter, "steps", "1000"];
        let steps = place.steps_of_one();
        let mut command = place.world.trackway(&words);
        let (is_success, _, talk) =
            told(&command.env("STEPS", steps.path()).output().expect("it runs"));
        assert!(is_success, "{filter}: {talk}");
        let stream = place.numbers("trace");
        let found: Vec<u64> = stream.into_values().flatten().collect();
        assert_eq!(found, count.collect::<Vec<_>>(), "{filter}");
    }
}

/// Predicate that is true if an event with this number passes.
type Passes = fn(u64) -> bool;

/// RUN event on with other filters between bursts of a program. EXPECT of each burst what its
/// filter lets pass.
#[test]
fn filters_change_between_two_numbers() {
    let place = Place::new("session-filters-change");
    place.ok("session create web --on life:* -o trace");
    let mut bursts = Bursts::of(&place, 100);
    let mut passing: Vec<Passes> = vec![|_| true];
    let filters: [(&str, Passes); 5] = [
        ("number % 2 == 0", |number| number.is_multiple_of(2)),
        ("number % 2 == 1", |number| number % 2 == 1),
        ("false", |_| false),
        ("pid == tid && number % 10 == 3", |number| number % 10 == 3),
        ("", |_| true),
    ];
    for (filter, passes) in filters {
        ok(&place, &["event", "on", "web", "life:*", "--filter", filter]);
        bursts.next();
        passing.push(passes);
    }
    place.ok("session destroy web");
    let meant = (0..600).filter(|&number: &u64| passing[(number / 100) as usize](number));
    assert_eq!(numbers(&place, "trace", 0), meant.collect::<Vec<_>>());
}

/// RUN filters that change all the time while four threads count. EXPECT nothing that none of them
/// lets pass, all that all of them do, nothing twice. What is missing is counted: where a thread is
/// preempted while it links a filter, others do not wait for it for long (0008).
#[test]
fn no_event_passes_by_half_a_filter_while_threads_emit() {
    let place = Place::new("session-filters-threads");
    ok(&place, &["session", "create", "web", "-o", "trace", "--filter", "life: number % 4 < 2"]);
    let counting = Counting::threads(&place, 4);
    for round in 0..20 {
        counting.steps.wait_more(20);
        // Of the remainders 0 always passes, and 3 never.
        let filter = ["number % 4 == 0", "number % 4 in (0, 2)", "number % 4 < 2"][round % 3];
        ok(&place, &["event", "on", "web", "life", "--filter", filter]);
        if round % 5 == 0 {
            let contexts = if round % 2 == 0 { "vpid" } else { "vtid" };
            place.ok(&format!("channel set web channel0 --context {contexts}"));
        }
    }
    let steps = counting.finish();
    let lost = place.status("web")["counts"]["lost"].as_u64().expect("a number");
    place.ok("session destroy web");
    let found = place.numbers("trace");
    let mut missing = 0;
    for (who, &count) in &steps.counts().started {
        let all = &found[who];
        let once: BTreeSet<u64> = all.iter().copied().collect();
        assert_eq!(once.len(), all.len(), "stream {who}: something is there twice");
        assert!(once.iter().all(|number| number % 4 != 3), "stream {who}");
        missing += (0..count).step_by(4).filter(|number| !once.contains(number)).count() as u64;
    }
    assert!(missing <= lost, "{missing} are missing, {lost} are counted");
}

/// RUN filters that remember, through a change of contexts and of another filter. EXPECT that they
/// go on, and that one that is changed begins anew.
#[test]
fn what_filters_remember_stays_as_long_as_they_do() {
    let place = Place::new("session-filters-state");
    let filter = "life: count() % 10 == 0";
    ok(&place, &["session", "create", "web", "--on", "life", "-o", "trace", "--filter", filter]);
    let mut bursts = Bursts::of(&place, 15);
    place.ok("channel set web channel0 --context vpid");
    bursts.next();
    ok(&place, &["event", "on", "web", "other:*", "--filter", "x > 5"]);
    bursts.next();
    ok(&place, &["event", "on", "web", "life", "--filter", "count() % 10 == 1"]);
    bursts.next();
    place.ok("session destroy web");
    assert_eq!(numbers(&place, "trace", 0), [0, 10, 20, 30, 40, 46, 56]);
}

/// RUN what chooses and what bounds: one in a hundred, ten in a minute, what changes. EXPECT about
/// so many.
#[test]
fn filters_choose_and_bound() {
    let place = Place::new("session-filters-sample");
    for (filter, least, most) in [
        ("sample(1/100)", 50, 150),
        ("rate(10/min)", 10, 20),
        ("changed(number / 1000)", 10, 10),
        ("rate(10/s) && false", 0, 0),
    ] {
        ok(&place, &["session", "create", "web", "-o", "trace", "--filter", filter]);
        place.emit("steps", 10_000);
        place.ok("session destroy web");
        let count = numbers(&place, "trace", ONE).len();
        assert!((least..=most).contains(&count), "{filter}: {count}");
    }
}

/// RUN a session without filters beside one with. EXPECT that each has its own.
#[test]
fn sessions_and_channels_have_filters_of_their_own() {
    let place = Place::new("session-filters-own");
    ok(&place, &["session", "create", "all", "-o", "all"]);
    ok(&place, &["session", "create", "few", "-o", "few", "--filter", "number < 10"]);
    ok(&place, &["session", "create", "none", "-o", "none", "--filter", "number < 0"]);
    place.emit("steps", 100);
    place.ok("session destroy --all");
    for (trace, end) in [("all", 100), ("few", 10), ("none", 0)] {
        let found = place.numbers(trace);
        assert_there(&found, ONE, 0..end);
        assert_none_there(&found, ONE, end..100);
    }
}

/// A program with a string, labels, and sequences.
const KINDS: &str = "
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

/// RUN filters of strings, labels, sequences and floats on a program. EXPECT what `trackway print
/// --filter` takes of a trace of all.
#[test]
fn the_recorder_and_the_reader_are_of_one_mind() {
    let world = World::new("session-filters-kinds");
    let program = world.compile("kinds", KINDS, true, &[]);
    let lines = |text: &str| -> Vec<String> {
        let number = |line: &str| line.split("number = ").nth(1).map(str::to_owned);
        text.lines().filter_map(number).collect()
    };
    let all = world.path("all");
    std::fs::rename(world.record(&[], &[&program]).trace, &all).unwrap();
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
        let printed = world.trackway(&["print", "--filter", filter]).arg(&all).output();
        let (is_success, expected, talk) = told(&printed.expect("it runs"));
        assert!(is_success, "{talk}");
        let recording = world.record(&["--filter", filter], &[&program]);
        let found = lines(&world.print(&recording.trace));
        assert_eq!(found, lines(&expected), "{filter}");
        assert!(!found.is_empty() && found.len() < 12, "{filter}: it decides nothing");
    }
}

/// RUN a program that gets no memory that is executed, and one beside it that does. EXPECT that
/// both are filtered, and that `session status` says which of them has to interpret.
#[test]
fn without_memory_that_is_executed_filters_are_interpreted() {
    let place = Place::new("session-filters-no-exec");
    let source = trackway_tests::source_dir().join("tests/lives/no_exec.c");
    let source = std::fs::read_to_string(source).expect("a source file");
    let launcher = place.world.compile("no-exec", &source, false, &[]);
    ok(&place, &["session", "create", "some", "-o", "trace", "--filter", "number % 10 == 3"]);
    place.emit("steps", 50);
    let says = || place.ok("session status some").0;
    assert!(!says().contains("interpreted"), "{}", says());
    let other = place.steps_from(ONE + 500);
    let mut command = place.world.command(&launcher);
    command.arg(&place.emitter).args(["steps", "50"]).env("STEPS", other.path());
    let output = command.output().expect("it runs");
    if output.status.code() == Some(77) {
        return trackway_tests::skipped("seccomp filters are not available");
    }
    assert!(output.status.success(), "{output:?}");
    assert!(says().contains("filters are interpreted in 1 process"), "{}", says());
    ok(&place, &["session", "destroy", "some"]);
    for stream in [ONE, ONE + 500] {
        assert_eq!(numbers(&place, "trace", stream), [3, 13, 23, 33, 43]);
    }
}
