//! Stack use of the library, compared with the figures in headers and guides.

use std::fs;
use std::process::Command;

use trackway_tests::{Fixture, source_dir};

const DYNAMIC_H: &str = "include/trackway/dynamic.h";
const TRACKWAY_H: &str = "include/trackway/trackway.h";
const PROCESSES_GUIDE: &str = "docs/guides/processes.md";
const FILTERS_GUIDE: &str = "docs/guides/filters.md";

/// Calls that `stack.c` measures: their largest stack use in bytes while they are recorded, and the
/// place of the documented figure.
const RECORDED_CALLS_MAX: [(&str, u64, &str, &str); 10] = [
    ("small_event", 3 << 10, TRACKWAY_H, "Uses up to 7 KiB of stack when on, 3 KiB"),
    ("large_event", 7 << 10, TRACKWAY_H, "Uses up to 7 KiB of stack when on, 3 KiB"),
    ("wide_event", 7 << 10, TRACKWAY_H, "Uses up to 7 KiB of stack when on, 3 KiB"),
    ("describe", 5 << 10, DYNAMIC_H, "up to 5 KiB of stack, 12 KiB"),
    ("describe_long", 12 << 10, DYNAMIC_H, "up to 5 KiB of stack, 12 KiB"),
    ("enabled", 256, DYNAMIC_H, "Two loads"),
    ("record", 3 << 10, DYNAMIC_H, "up to 7 KiB of stack, 3 KiB"),
    ("record_long", 7 << 10, DYNAMIC_H, "up to 7 KiB of stack, 3 KiB"),
    ("snapshot", 2 << 10, TRACKWAY_H, "change errno; uses up to 2 KiB of stack."),
    ("setuid", 5 << 10, PROCESSES_GUIDE, "5 KiB of stack"),
];

/// Additional stack bytes of an event while a filter is linked for it, and the place of the
/// documented figure.
const LINKING_MAX: (u64, &str, &str) = (10 << 10, FILTERS_GUIDE, "up to 10 KiB of stack");

/// Largest stack use of a disabled event, in bytes.
const DISABLED_BYTES_MAX: u64 = 512;

/// Runs the program; returns its figures for each call.
fn measure_stack_bytes(command: &mut Command) -> Vec<(String, u64)> {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr)); // shown where the test fails
    assert!(output.status.success(), "{}", output.status);
    let lines = said.lines().filter_map(|line| line.split_once(' '));
    let all: Vec<_> =
        lines.map(|(name, bytes)| (name.to_owned(), bytes.parse().expect("a number"))).collect();
    // The whole output is present, from the parent and from its fork child.
    assert!(all.iter().filter(|(name, _)| name == "record_long").count() == 2);
    all
}

/// Symbols are resolved at load time: otherwise the first call of a function includes the loader's
/// stack.
const BIND_NOW_FLAGS: [&str; 1] = ["-Wl,-z,now"];

#[test]
fn documented_stack_sizes_hold() {
    let fixture = Fixture::new("stack");
    let program = fixture.compile_file("instrument/abi/stack.c", true, &BIND_NOW_FLAGS);
    let linking = ("linking", LINKING_MAX.0, LINKING_MAX.1, LINKING_MAX.2);
    for (name, _, document, words) in RECORDED_CALLS_MAX.into_iter().chain([linking]) {
        let text = fs::read_to_string(source_dir().join(document)).expect("a document");
        let text = text.replace("\n * ", " ").replace('\n', " ");
        assert!(text.contains(words), "{document} says of {name}: {words}");
    }
    // A filter is linked for the first event after each change.
    for filter in ["$ctx.vtid > 0", "$ctx.procname != \"x\" && $ctx.vpid > 0 && sample(1/1)"] {
        let trace = fixture.path("trace");
        let mut recorder =
            fixture.trackway(&["record", "--event", "stack:*", "--filter", filter, "-o"]);
        recorder.arg(&trace).arg("--").arg(&program);
        for (call, bytes) in measure_stack_bytes(&mut recorder) {
            let (_, most, ..) =
                RECORDED_CALLS_MAX.iter().find(|(name, ..)| *name == call).expect("known");
            let most = most + LINKING_MAX.0;
            println!("filtered {call} {bytes}");
            assert!(bytes <= most, "{call}, filtered: {bytes} bytes, not {most}");
        }
        fs::remove_dir_all(&trace).expect("its trace");
    }
    // Events are recorded by restartable sequences, and by claims.
    for tunables in ["glibc.pthread.rseq=1", "glibc.pthread.rseq=0"] {
        let trace = fixture.path("trace");
        let mut recorder = fixture.trackway(&["record", "--event", "stack:*", "-o"]);
        recorder.arg(&trace).arg("--").arg(&program).env("GLIBC_TUNABLES", tunables);
        for (call, bytes) in measure_stack_bytes(&mut recorder) {
            let (_, most, ..) =
                RECORDED_CALLS_MAX.iter().find(|(name, ..)| *name == call).expect("known");
            assert!(bytes <= *most, "{call}: {bytes} bytes, not {most}");
        }
        fs::remove_dir_all(&trace).expect("its trace");
    }
}

#[test]
fn disabled_events_take_no_stack_for_records() {
    let fixture = Fixture::new("stack-off");
    let program = fixture.compile_file("instrument/abi/stack.c", true, &BIND_NOW_FLAGS);
    for (call, bytes) in measure_stack_bytes(&mut fixture.command(&program)) {
        if !call.starts_with("describe") && !["snapshot", "setuid"].contains(&&*call) {
            assert!(bytes <= DISABLED_BYTES_MAX, "{call}: {bytes} bytes, not {DISABLED_BYTES_MAX}");
        }
    }
}
