//! Events that are described at run time, by a C program through dlsym(3) and by a Python program
//! through ctypes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

fn compile_program(fixture: &Fixture) -> PathBuf {
    let source =
        fs::read_to_string(source_dir().join("tests/instrument/abi/dynamic.c")).expect("a source");
    fixture.compile("dynamic", &source, false, &["-std=c11", "-Wall", "-Wextra", "-Werror", "-ldl"])
}

/// Runs a program, which must succeed; returns its standard output.
fn run_program(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn events_are_described_and_recorded_by_dlsym_alone() {
    let fixture = Fixture::new("dynamic");
    let program = compile_program(&fixture);
    let recording = fixture.record(&[], &[program.to_str().unwrap(), "on"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let said = String::from_utf8_lossy(&recording.output.stdout);
    assert_eq!(said, "", "{}", recording.messages());
    assert!(recording.messages().contains(" 0 lost"), "{}", recording.messages());
    let printed = fixture.print(&recording.trace);
    let count = |name: &str| printed.matches(&format!(" dynamic:{name}: ")).count();
    // The events of the macro, the parent and the child are one event.
    assert_eq!((count("same"), count("types"), count("cut")), (3, 2, 2), "{printed}");
    assert_eq!((0..100).map(|number| count(&format!("shared{number}"))).sum::<usize>(), 8000);
    for shown in [
        "{ a = -128, b = -2, c = -3, d = -9223372036854775808, e = 255, f = 65535, g = 7, \
         h = 18446744073709551615, i = 0x12, j = 0x1234, k = 0x12345678, \
         l = 0x123456789ABCDEF0, m = 1.5, n = -2.5, o = 1, p = \"str\", _q_length = 3, \
         q = \"tex\", r = [ [0] = 3, [1] = 4 ], _s_length = 2, s = [ [0] = -5, [1] = 6 ], \
         t = ( \"busy\" : container = 5 ), u = 0 }",
        "p = \"(null)\", _q_length = 6, q = \"(null)\", r = [ [0] = 0, [1] = 0 ], \
         _s_length = 0, s = [ ], ",
    ] {
        assert!(printed.contains(shown), "{shown}\n{printed}");
    }
    // Values that are too long share 4000 bytes, less prefixes, terminator and "whole".
    let mut cut = printed.lines().filter_map(|line| line.split_once(" dynamic:cut: "));
    let payload = |line: &str| line.split_once("{ short").expect("a payload").1.to_owned();
    let (cut, by_macro) = (cut.next().expect("it").1, cut.next().expect("the macro's").1);
    assert_eq!(payload(cut), payload(by_macro));
    assert!(cut.contains("short = \"whole\"") && cut.contains("é…\", "), "{cut}");
    assert!(cut.contains("_many_length = 498,"), "{cut}");
    assert!(recording.messages().contains("cut"), "{}", recording.messages());
}

#[test]
fn without_a_session_without_a_window_without_the_library_nothing_happens() {
    let fixture = Fixture::new("dynamic-off");
    let program = compile_program(&fixture);
    let library = build_dir().join("libtrackway.so");
    let off = |mode: &str| {
        let mut command = fixture.command(&program);
        command.arg(mode).arg(&library);
        command
    };
    assert_eq!(run_program(fixture.command(&program).arg("absent")), "");
    assert_eq!(run_program(&mut off("off")), "");
    let nowhere = fixture.path("nowhere");
    assert_eq!(run_program(off("untraceable").env("TRACKWAY_WINDOW_DIR", nowhere)), "");
}

#[test]
fn a_python_program_describes_its_events_through_ctypes() {
    let fixture = Fixture::new("dynamic-python");
    if !has("python3") {
        return report_skipped("python3 is not installed");
    }
    let script = source_dir().join("tests/instrument/abi/dynamic.py").display().to_string();
    // The program runs without the library, with the library but without a session, and recorded.
    assert_eq!(run_program(fixture.command("python3").args([&script, "3"])), "");
    let mut off = fixture.command("python3");
    assert_eq!(run_program(off.args([&script, "3"]).env("LD_LIBRARY_PATH", build_dir())), "");
    let recording = fixture.record(&[], &["python3", &script, "3"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(String::from_utf8_lossy(&recording.output.stdout), "");
    let printed = fixture.print(&recording.trace);
    for shown in [
        "python:request: { cpu_id = ",
        "{ _path_length = 8, path = \"/päge/0\", status = 200, seconds = 0 }",
        "{ _path_length = 8, path = \"/päge/2\", status = 202, seconds = 0.5 }",
    ] {
        assert!(printed.contains(shown), "{shown}\n{printed}");
    }
    assert_eq!(printed.matches(" python:tick: ").count(), 3, "{printed}");
}
