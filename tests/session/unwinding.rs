//! Signal handlers that unwind while a thread is in the library, as profilers and crash reporters
//! do, and the C library where it cancels a thread.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{World, has, skipped, source_dir};

use crate::place::told;

/// Stacks that are looked at for each filter.
const SAMPLES: u64 = 4000;

/// What events are emitted, and the filter: each is another way through the library.
const WAYS: [(&str, &str); 9] = [
    ("numbers", ""),
    ("strings", ""),
    // Asked in one sequence: no event passes; each fourth does.
    ("numbers", "second > 5000000000000"),
    ("numbers", "number % 4 == 1 && third < 5"),
    // With a frame, with state, on strings, by helpers, and by functions that helpers call.
    ("numbers", "$ctx.procname == \"nobody*\" && number > 3"),
    ("numbers", "count() % 1000 == 3"),
    ("strings", "path == \"/nowhere\""),
    ("strings", "contains(path, \"users\") && path == \"*s*s\""),
    ("strings", "any(words == 30001) || path == \"*png\""),
];

/// The program of `unwinding.c` by each compiler that there is, without frame pointers.
fn programs(world: &World) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source_dir().join("tests/session/unwinding.c"));
    let text = text.expect("a source file");
    let is_there = |compiler: &&str| {
        has(compiler) || {
            skipped(&format!("{compiler} is not installed"));
            false
        }
    };
    let compile = |compiler: &str| {
        let file = format!("unwinding-{compiler}.c");
        world.compile_with(compiler, &file, &text, true, &["-fomit-frame-pointer"])
    };
    ["gcc", "clang"].into_iter().filter(is_there).map(compile).collect()
}

/// `record` with this filter, of the program with these arguments; into little memory that is
/// written over.
fn recorder(world: &World, filter: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = world.trackway(&["record", "--overwrite", "--buffer-size=64K", "-o"]);
    let trace = world.path("trace");
    let _ = std::fs::remove_dir_all(&trace);
    command.arg(trace);
    if !filter.is_empty() {
        command.args(["--filter", filter]);
    }
    command.arg("--").arg(program).args(arguments);
    command
}

/// Runs it. The two numbers that the program said.
fn counts(mut command: Command, about: &str) -> (u64, u64) {
    let (is_success, said, talk) = told(&command.output().expect("it runs"));
    assert!(is_success, "{about}: {said}{talk}");
    print!("{about}: {said}");
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [first, second] = numbers[..] else { panic!("{about}: two numbers: {said}") };
    (first, second)
}

/// RUN a program whose timer's handler calls backtrace(3) while it emits, with every kind of filter.
/// EXPECT that it lives, and that stacks lead to main().
#[test]
fn handlers_may_unwind_wherever_they_interrupt_an_event() {
    let world = World::new("session-unwinding");
    for program in programs(&world) {
        for (kind, filter) in WAYS {
            let about = format!("{} {kind} {filter}", program.display());
            let samples = SAMPLES.to_string();
            let command = recorder(&world, filter, &program, &[kind, &samples, "places"]);
            let (samples, whole) = counts(command, &about);
            assert!(samples >= SAMPLES, "{about}");
            let least = if filter.is_empty() { samples } else { 1 };
            assert!(whole >= least, "{about}: {whole} of {samples}");
        }
    }
}

/// RUN threads that are cancelled (PTHREAD_CANCEL_ASYNCHRONOUS) while they emit: the C library
/// unwinds from a handler. EXPECT that each ends as it should.
#[test]
fn threads_may_be_cancelled_wherever_they_are_in_an_event() {
    let world = World::new("session-cancelled");
    for program in programs(&world) {
        for (kind, filter) in WAYS {
            let about = format!("{} {kind} {filter}", program.display());
            let command = recorder(&world, filter, &program, &[kind, "cancel"]);
            let (cancelled, cleaned) = counts(command, &about);
            assert!(cancelled == cleaned && cancelled > 0, "{about}: {cancelled}, {cleaned}");
        }
    }
}
