//! Prefilters: they decide before an event is staged, with the same result as the filter
//! afterwards.

use std::path::PathBuf;

use trackway_tests::Fixture;

use crate::session_test::command_result;

/// Compiles the program of `unstaged.c` in a separate fixture.
fn compile_unstaged(name: &str) -> (Fixture, PathBuf) {
    let fixture = Fixture::new(name);
    let program = fixture.compile_file("session/unstaged.c", true, &[]);
    (fixture, program)
}

/// Runs `record` with these options, for the program in this mode; returns its messages, or `None`
/// if it failed.
fn record_program(
    fixture: &Fixture,
    options: &[&str],
    program: &PathBuf,
    mode: [&str; 2],
) -> Option<String> {
    let mut command = fixture.trackway(&["record"]);
    command.args(options).arg("--").arg(program).args(mode);
    let (is_success, _, talk) = command_result(&command.output().expect("it runs"));
    is_success.then_some(talk)
}

/// Returns the output of `print` with these options, without the times and origins of events.
fn printed_payloads(fixture: &Fixture, trace: &str, options: &[&str]) -> Vec<String> {
    let mut command = fixture.trackway(&["print"]);
    command.args(options).arg(fixture.path(trace));
    let (is_success, text, talk) = command_result(&command.output().expect("it runs"));
    assert!(is_success, "{options:?}: {talk}");
    let payload = |line: &str| line.split_once("{ number").expect("an event").1.to_owned();
    text.lines().map(payload).collect()
}

/// RUN a program whose events have fields of every kind, among them null and truncated ones, with
/// filters on each. EXPECT the events that print selects with the same filter from an unfiltered
/// recording.
#[test]
fn prefilters_decide_as_filters_on_recorded_events() {
    let (fixture, program) = compile_unstaged("session-unstaged");
    let all = ["kinds", "2000"];
    record_program(&fixture, &["-o", "all"], &program, all).expect("it succeeds");
    for filter in [
        "path == \"/api/*\"",
        "path == \"(null)\" || path == \"\"",
        "length(path) > 1000",
        "length(path) == 6000",
        "length(path) < 6000 && length(path) > 20",
        "small < -2000 && odd",
        "ratio >= 100.25 && ratio < 200",
        "where in (5, 50, 500)",
        "note == \"note\"",
        "note == \"(null)\" && number > 100",
        "any(words > 5000)",
        "length(words) == 0",
        "words[2] == 300",
        "three[1] == -7 || three[2] == 0",
        "any(three == 64)",
        "phase == \"busy\" && last == \"c\"",
        "exact * 2 == 1234.0",
        "last == \"q\" && $ctx.procname == \"unstaged\" && $ctx.vpid == $ctx.vtid",
        "count() % 10 == 3",
        "path == \"/api/*\" && count() % 7 == 0",
        "changed(path) && number % 2 == 0",
        "starts_with(path, \"xxx\") && contains(note, \"o\")",
    ] {
        let options = ["-o", "some", "--context", "vpid,vtid,procname", "--filter", filter];
        let talk = record_program(&fixture, &options, &program, all).expect("it succeeds");
        assert!(talk.contains(" 0 lost"), "{filter}: {talk}");
        let meant = match filter {
            // The unfiltered trace has no contexts.
            _ if filter.contains("$ctx") => {
                printed_payloads(&fixture, "all", &["--filter", "last == \"q\""])
            }
            _ => printed_payloads(&fixture, "all", &["--filter", filter]),
        };
        // A path of 6000 bytes is always truncated.
        let is_of_none = filter.contains("== 6000");
        assert!(meant.is_empty() == is_of_none && meant.len() < 2000, "{filter}: {}", meant.len());
        assert_eq!(printed_payloads(&fixture, "some", &[]), meant, "{filter}");
    }
}

/// RUN a program whose strings and texts, of all lengths, end right before unreadable memory, with
/// filters on each. EXPECT it to survive, and the events that print selects with the same filter
/// from an unfiltered recording.
#[test]
fn strings_that_end_where_memory_does_are_answered_as_what_is_recorded() {
    let (fixture, program) = compile_unstaged("session-ends");
    let all = ["ends", "2000"];
    record_program(&fixture, &["-o", "all"], &program, all).expect("it succeeds");
    // Returns the string of this length that ends `end` bytes before the unreadable memory.
    let of = |length: usize, end: usize| -> String {
        (end + 1..=end + length).rev().map(|before| char::from(b'a' + before as u8 % 26)).collect()
    };
    let (path, note) = (|length| of(length, 1), |length| of(length, 0));
    let mut filters: Vec<String> = [1, 2, 3, 4, 5, 8, 9, 12, 13, 15, 16, 17, 31, 32, 33, 48]
        .iter()
        .map(|&length| {
            let (path, note) = (path(length), note(length.min(36)));
            format!("path == \"{path}\" || note == \"{note}\"")
        })
        .collect();
    filters.extend([
        format!("starts_with(path, \"{}\") || ends_with(note, \"{}\")", of(9, 30), note(11)),
        format!("path == \"*{}\" && note != \"{}*\"", path(13), of(2, 20)),
        // Eight more fields, of which some find no room.
        format!("s0 == \"{}\" || s3 == \"{}\" || s7 == \"{}\"", path(29), path(0), path(240)),
        (0..8).map(|n| format!("length(s{n})")).collect::<Vec<_>>().join(" + ") + " > 950",
        (0..8).map(|n| format!("s{n} == \"{}\"", path(11 * n))).collect::<Vec<_>>().join(" || "),
    ]);
    for filter in filters {
        let options = ["-o", "some", "--filter", &filter];
        let talk = record_program(&fixture, &options, &program, all).expect("it lives");
        assert!(talk.contains(" 0 lost"), "{filter}: {talk}");
        let meant = printed_payloads(&fixture, "all", &["--filter", &filter]);
        assert!(!meant.is_empty() && meant.len() < 2000, "{filter}: {}", meant.len());
        assert_eq!(printed_payloads(&fixture, "some", &[]), meant, "{filter}");
    }
}

/// RUN a program with an event whose string cannot be read, and a filter that drops the event by
/// another field. EXPECT the program to survive: the string is not copied. (A thread that is
/// preempted in the prefilter stages the event, so one of ten runs suffices.)
#[test]
fn dropped_events_are_not_copied() {
    let (fixture, program) = compile_unstaged("session-untouched");
    let options = ["-o", "trace", "--filter", "kinds:untouched: number > 1000"];
    let lives = |_| record_program(&fixture, &options, &program, ["untouched", "100"]).is_some();
    assert!((0..10).any(lives), "it is staged");
    // Without a filter, the program cannot survive.
    assert_eq!(record_program(&fixture, &["-o", "trace"], &program, ["untouched", "100"]), None);
}

/// RUN a program whose source files define an event differently, with a filter on the definition
/// that counts. EXPECT the program to survive: the prefilter reads no arguments of the other
/// definition.
#[test]
fn a_site_of_another_definition_than_the_one_that_counts_lives() {
    let fixture = Fixture::new("session-definitions");
    let other = fixture.path("other.c");
    let short = "#include <trackway/trackway.h>\n\
        TRACKWAY_EVENT(two, ways, TRACKWAY_INFO, (text, only));\n\
        void emit_other(void) { trackway(two, ways, \"x\", 1); }\n";
    std::fs::write(&other, short).expect("a source");
    let long = "#include <trackway/trackway.h>\n\
        TRACKWAY_EVENT(two, ways, TRACKWAY_INFO, (str, s0), (str, s1), (str, s2), (str, s3));\n\
        void emit_other(void);\n\
        int main(void) { for (int i = 0; i < 100; i++) {\n\
        trackway(two, ways, \"a\", \"b\", \"c\", \"d\"); emit_other(); } return 0; }\n";
    let flags = ["-O0", other.to_str().expect("a path")];
    let program = fixture.compile("definitions", long, true, &flags);
    for filter in ["s3 == \"zzz\"", "s1 == \"zzz\"", "length(s2) > 100"] {
        let options = ["-o", "trace", "--filter", filter];
        assert!(record_program(&fixture, &options, &program, ["", ""]).is_some(), "{filter}");
    }
}
