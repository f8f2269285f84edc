//! Signal handlers that unwind the stack while a thread is in the library, like profilers and crash
//! reporters; and the C library, when it cancels a thread.

use std::ffi::OsStr;
use std::path::PathBuf;

use trackway_tests::{Fixture, has, report_skipped, source_dir};

use crate::session_test::command_result;

/// Number of stacks that are sampled for each filter.
const SAMPLE_COUNT: u64 = 2000;

/// Kinds of events, each with a filter: each takes another path through the library.
const FILTERED_EVENTS: [(&str, &str); 9] = [
    ("numbers", ""),
    ("strings", ""),
    // Evaluated in one restartable sequence: no event passes; every fourth event passes.
    ("numbers", "second > 5000000000000"),
    ("numbers", "number % 4 == 1 && third < 5"),
    // Evaluated with a frame, with state, on strings, by helpers, and by functions that helpers
    // call.
    ("numbers", "$ctx.procname == \"nobody*\" && number > 3"),
    ("numbers", "count() % 1000 == 3"),
    ("strings", "path == \"/nowhere\""),
    ("strings", "contains(path, \"users\") && path == \"*s*s\""),
    ("strings", "any(words == 30001) || path == \"*png\""),
];

/// Compiles the program of `unwinding.c` by each installed compiler, without frame pointers.
fn compile_programs(fixture: &Fixture) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source_dir().join("tests/session/unwinding.c"));
    let text = text.expect("a source file");
    let is_there = |compiler: &&str| {
        has(compiler) || {
            report_skipped(format!("{compiler} is not installed"));
            false
        }
    };
    let compile = |compiler: &str| {
        let file = format!("unwinding-{compiler}.c");
        fixture.compile_with(compiler, &file, &text, true, &["-fomit-frame-pointer"])
    };
    ["gcc", "clang"].into_iter().filter(is_there).map(compile).collect()
}

/// Runs `record` with this filter for a command, into a small flight recorder. Returns the
/// program's report, which is two numbers.
fn record_program_report(
    fixture: &Fixture,
    filter: &str,
    command: &[&OsStr],
    about: &str,
) -> (u64, u64) {
    let trace = fixture.path("trace");
    let _ = std::fs::remove_dir_all(&trace);
    let mut recorder = fixture.trackway(&["record", "--overwrite", "--buffer-size=64K", "-o"]);
    recorder.arg(trace);
    if !filter.is_empty() {
        recorder.args(["--filter", filter]);
    }
    recorder.arg("--").args(command);
    let (is_success, said, talk) = command_result(&recorder.output().expect("it runs"));
    assert!(is_success, "{about}: {said}{talk}");
    print!("{about}: {said}"); // shown where the test fails
    let first = said.lines().next().unwrap_or_default();
    let numbers: Vec<u64> = first.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [first, second] = numbers[..] else { panic!("{about}: two numbers: {said}") };
    (first, second)
}

/// Makes the program sample stacks, each of which must be complete.
fn check_sampled_stacks(fixture: &Fixture, (kind, filter): (&str, &str), command: &[&OsStr]) {
    let about = format!("{command:?} {kind} {filter}");
    let samples = SAMPLE_COUNT.to_string();
    let arguments = [kind, &samples, "places"].map(OsStr::new);
    let (samples, whole) =
        record_program_report(fixture, filter, &[command, &arguments].concat(), &about);
    assert_eq!(samples, SAMPLE_COUNT, "{about}");
    assert_eq!(whole, samples, "{about}");
}

/// RUN a program whose timer's handler calls backtrace(3) while it emits, with every kind of
/// filter. EXPECT it to survive, and all stacks to lead to main().
#[test]
fn handlers_may_unwind_wherever_they_interrupt_an_event() {
    let fixture = Fixture::new("session-unwinding");
    for program in compile_programs(&fixture) {
        FILTERED_EVENTS
            .into_iter()
            .for_each(|way| check_sampled_stacks(&fixture, way, &[program.as_os_str()]));
    }
}

/// RUN the program without executable memory, so that filters are interpreted. EXPECT the same
/// result.
#[test]
fn handlers_may_unwind_where_filters_are_interpreted() {
    let fixture = Fixture::new("session-unwinding-no-exec");
    let source = std::fs::read_to_string(source_dir().join("tests/lives/no_exec.c"));
    let launcher = fixture.compile("no-exec", &source.expect("a source file"), false, &[]);
    let runs = fixture.command(&launcher).arg("true").status().expect("it runs");
    if runs.code() == Some(77) {
        return report_skipped("seccomp filters are not available");
    }
    for program in compile_programs(&fixture).iter().take(1) {
        for way in &FILTERED_EVENTS[2..] {
            check_sampled_stacks(&fixture, *way, &[launcher.as_os_str(), program.as_os_str()]);
        }
    }
}

/// RUN threads that are cancelled (PTHREAD_CANCEL_ASYNCHRONOUS) while they emit: the C library
/// unwinds from a handler. EXPECT each to end normally.
#[test]
fn threads_may_be_cancelled_wherever_they_are_in_an_event() {
    let fixture = Fixture::new("session-cancelled");
    for program in compile_programs(&fixture) {
        for (kind, filter) in FILTERED_EVENTS {
            let about = format!("{} {kind} {filter}", program.display());
            let command = [program.as_os_str(), OsStr::new(kind), OsStr::new("cancel")];
            let (cancelled, cleaned) = record_program_report(&fixture, filter, &command, &about);
            assert!(cancelled == cleaned && cancelled > 0, "{about}: {cancelled}, {cleaned}");
        }
    }
}
