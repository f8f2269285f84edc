//! `trackway record` as its users know it: what it passes through, what it records, what it says.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use trackway_tests::{World, build_dir};

const HELLO: &str = r#"
#include <trackway/trackway.h>
#include <stdlib.h>
TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO, (str, path), (u32, status), (u64, latency_us));
TRACKWAY_EVENT(myapp, tick, TRACKWAY_DEBUG);
int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 10;
    for (long i = 0; i < n; i++) {
        trackway(myapp, request, "/index", 200 + (unsigned)(i % 3), (unsigned long long)i);
        trackway(myapp, tick);
    }
    trackway_printf("loaded %s in %d ms", "it", 42);
    trackway_log(TRACKWAY_WARNING, "retry %d", 3);
    return 0;
}
"#;

#[test]
fn every_event_arrives_and_reads_as_babeltrace_reads_it() {
    let world = World::new("hello");
    let program = world.compile("hello", HELLO, true, &[]);
    let recording = world.record(&[], &[program.to_str().unwrap(), "1000"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(recording.summary.recorded, 2002, "{}", recording.messages());
    assert_eq!(recording.summary.lost, 0);
    assert_eq!(recording.summary.processes, 1);
    let text = world.print(&recording.trace);
    assert_eq!(text.lines().count(), 2002);
    assert_eq!(text.matches("myapp:request:").count(), 1000);
    assert!(text.contains("{ path = \"/index\", status = 200, latency_us = 0 }"), "{text}");
    assert!(text.contains("msg = \"loaded it in 42 ms\""));
    assert!(text.contains("msg = \"retry 3\""));
    if let Some(theirs) = world.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
        assert_eq!(theirs.stderr, b"", "{}", String::from_utf8_lossy(&theirs.stderr));
    }
}

#[test]
fn a_header_only_program_is_traced_when_recorded_and_runs_when_not() {
    let world = World::new("header-only");
    let program = world.compile("hello", HELLO, false, &[]);
    assert!(world.command(&program).status().unwrap().success());
    let recording = world.record(&["--on", "myapp:*"], &[program.to_str().unwrap()]);
    assert_eq!(recording.summary.recorded, 20, "{}", recording.messages());
}

#[test]
fn rules_select_events() {
    let world = World::new("rules");
    let program = world.compile("hello", HELLO, true, &[]);
    let recording = world.record(&["--on", "myapp:t*"], &[program.to_str().unwrap()]);
    assert_eq!(recording.summary.recorded, 10, "{}", recording.messages());
    assert_eq!(world.print(&recording.trace).matches("myapp:tick").count(), 10);
}

#[test]
fn contexts_are_those_asked_for() {
    let world = World::new("contexts");
    let program = world.compile("hello", HELLO, true, &[]);
    for (option, expected) in [
        ("none", "{ cpu_id = "),
        ("vtid", "}, { vtid = "),
        ("vpid,vtid,procname", "procname = \"hello\" }"),
    ] {
        let _ = std::fs::remove_dir_all(world.path("trace"));
        let recording = world.record(&["--context", option], &[program.to_str().unwrap()]);
        let text = world.print(&recording.trace);
        assert!(text.contains(expected), "{option}: {text}");
        assert_eq!(text.contains("vtid"), option.contains("vtid"));
        assert_eq!(text.contains("vpid"), option.contains("vpid"));
        if let Some(theirs) = world.babeltrace(&recording.trace) {
            assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
        }
    }
}

#[test]
fn a_filled_flight_recorder_keeps_the_newest() {
    let world = World::new("flight");
    let program = world.compile("hello", HELLO, true, &[]);
    let options = ["--overwrite", "--buffer-size", "64K", "--sub-buffers", "4", "--on", "myapp:*"];
    let recording = world.record(&options, &[program.to_str().unwrap(), "200000"]);
    let summary = recording.summary;
    assert!(summary.overwritten > 0, "{}", recording.messages());
    assert_eq!(summary.recorded + summary.overwritten + summary.lost, 400_000);
    let text = world.print(&recording.trace);
    assert_eq!(text.lines().count() as u64, summary.recorded);
    assert!(text.contains("latency_us = 199999 }"), "the newest is there");
    if let Some(theirs) = world.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
    }
}

#[test]
fn an_unmodified_program_shows_allocations_and_locks() {
    let world = World::new("preload");
    let input = world.path("input");
    std::fs::write(&input, vec![b'x'; 4 << 20]).unwrap();
    let command = ["xz", "-T2", "--block-size=1MiB", "-0", "-k", input.to_str().unwrap()];
    let recording = world.record(&["--preload", "libc,pthread"], &command);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let text = world.print(&recording.trace);
    for event in [
        "lttng_ust_libc:malloc: ",
        "lttng_ust_libc:free: ",
        "lttng_ust_pthread:pthread_mutex_lock_req: ",
        "lttng_ust_pthread:pthread_mutex_lock_acq: ",
        "lttng_ust_pthread:pthread_mutex_unlock: ",
    ] {
        assert!(text.contains(event), "{event} is missing");
    }
    assert_eq!(text.lines().count() as u64, recording.summary.recorded);
    if let Some(theirs) = world.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
    }
}

#[test]
fn exit_status_signals_and_streams_pass_through() {
    let world = World::new("status");
    let status = |command: &[&str]| world.record(&["-q"], command).output.status;
    assert_eq!(status(&["true"]).code(), Some(0));
    assert_eq!(status(&["sh", "-c", "exit 3"]).code(), Some(3));
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]).signal(), Some(libc::SIGTERM));
    assert_eq!(status(&["./no-such-program"]).code(), Some(127));
    std::fs::write(world.path("not-executable"), "").unwrap();
    assert_eq!(status(&["./not-executable"]).code(), Some(126));
    let wrong = world.trackway(&["record", "--no-such-option", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125));

    let mut cat = world.trackway(&["record", "-q", "-o", "cat-trace", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), b"through").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"through", "stdout is the command's alone");
    assert!(output.status.success());
}

#[test]
fn under_sudo_command_and_trace_are_the_invoking_users() {
    if !trackway_tests::is_root() {
        return trackway_tests::skipped("only root can become another user");
    }
    let world = World::new("sudo");
    for folder in [&world.path(""), &world.window_dir().to_owned()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, open).unwrap();
    }
    let mut record = world.trackway(&["record", "-o", "trace", "--", "sh", "-c", "id -u; id -g"]);
    record.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    let output = record.output().unwrap();
    assert_eq!(output.stdout, b"65534\n65534\n", "{output:?}");
    let owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(world.path("trace")).unwrap());
    assert_eq!(owner, 65534);
    let window = world.window_dir().join("trackway-65534-v1");
    assert!(window.exists(), "the user's window served");
}

#[test]
fn the_status_line_shows_on_a_terminal() {
    if !trackway_tests::has("script") {
        return trackway_tests::skipped("script (bsdutils) is not installed");
    }
    let world = World::new("status-line");
    let trackway = build_dir().join("trackway");
    // script(1) gives the command a terminal, whose output it copies.
    let line = format!("{} record -o trace -- sleep 2.5", trackway.display());
    let output = world.command("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\r\u{1b}[Ktrackway: 0 events"), "{text:?}");
    assert!(text.contains("\r\u{1b}[Ktrackway: 0 events recorded, 0 lost"), "cleared: {text:?}");
}

#[test]
fn the_list_shows_events_of_running_processes() {
    let world = World::new("list");
    let text = HELLO.replace("return 0;", "getchar(); return 0;");
    let text = text.replace("#include <stdlib.h>", "#include <stdlib.h>\n#include <stdio.h>");
    let program = world.compile("lister", &text, true, &[]);
    let mut child =
        world.command(program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // The library registers before main, so waiting for the process to sleep in getchar is
    // enough; the list itself shows when that is.
    let mut listed = String::new();
    for _ in 0..200 {
        let output = world.trackway(&["list"]).output().unwrap();
        listed = String::from_utf8_lossy(&output.stdout).into_owned();
        if listed.contains("myapp:request") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(listed.contains("myapp:request"), "{listed}");
    assert!(listed.contains("lister"), "{listed}");
    assert!(listed.contains("latency_us"), "{listed}");
}

#[test]
fn the_library_exports_what_the_header_declares() {
    if !trackway_tests::has("nm") {
        return trackway_tests::skipped("binutils is not installed");
    }
    let library = build_dir().join("libtrackway.so");
    let mut nm = std::process::Command::new("nm");
    let output = nm.args(["-D", "--defined-only", "--format=just-symbols"]).arg(library).output();
    let symbols = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut symbols: Vec<&str> = symbols.lines().collect();
    symbols.sort_unstable();
    assert_eq!(symbols, ["clone", "trackway_abi_register", "vfork"]);
}
