//! The command `trackway record`: its inputs and outputs, recorded events, messages.
//!
//! Longer than 600 lines: the tests share the commands that they record.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use trackway_tests::steps::{RunningProgram, Steps, send_signal, wait_for};
use trackway_tests::{
    Fixture, LONGER_THAN_SHORT_LEASE, Recording, SHORT_LEASE, build_dir, has, is_root,
};

const HELLO_SOURCE: &str = r#"
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
    let fixture = Fixture::new("hello");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap(), "1000"]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(recording.summary.recorded, 2002, "{}", recording.messages());
    assert_eq!(recording.summary.lost, 0);
    assert_eq!(recording.summary.processes, 1);
    let text = fixture.print(&recording.trace);
    assert_eq!(text.lines().count(), 2002);
    assert_eq!(text.matches("myapp:request:").count(), 1000);
    assert!(text.contains("{ path = \"/index\", status = 200, latency_us = 0 }"), "{text}");
    assert!(text.contains("msg = \"loaded it in 42 ms\""));
    assert!(text.contains("msg = \"retry 3\""));
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
        assert_eq!(theirs.stderr, b"", "{}", String::from_utf8_lossy(&theirs.stderr));
    }
}

#[test]
fn programs_of_all_cxx_compilers_record_the_same() {
    for compiler in ["g++", "clang++"] {
        if !trackway_tests::has(compiler) {
            trackway_tests::report_skipped(format!("{compiler} is not installed"));
            continue;
        }
        for flags in [["-O0", "-std=c++11"], ["-O2", "-std=c++20"]] {
            let fixture = Fixture::new("cxx");
            let program = fixture.compile_with(compiler, "hello.cc", HELLO_SOURCE, false, &flags);
            let recording = fixture.record(&[], &[program.to_str().unwrap()]);
            assert_eq!(recording.summary.recorded, 22, "{compiler}: {}", recording.messages());
            let text = fixture.print(&recording.trace);
            assert!(text.contains("msg = \"loaded it in 42 ms\""), "{compiler}: {text}");
            assert!(text.contains("TRACE_WARNING: "), "{compiler}: {text}");
            assert!(text.contains("msg = \"retry 3\""), "{compiler}: {text}");
        }
    }
}

#[test]
fn a_header_only_program_is_traced_when_recorded_and_runs_when_not() {
    let fixture = Fixture::new("header-only");
    let program = fixture.compile("hello", HELLO_SOURCE, false, &[]);
    assert!(fixture.command(&program).status().unwrap().success());
    let recording = fixture.record(&["--event", "myapp:*"], &[program.to_str().unwrap()]);
    assert_eq!(recording.summary.recorded, 20, "{}", recording.messages());
}

#[test]
fn rules_select_events() {
    let fixture = Fixture::new("rules");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    let recording = fixture.record(&["--event", "myapp:t*"], &[program.to_str().unwrap()]);
    assert_eq!(recording.summary.recorded, 10, "{}", recording.messages());
    assert_eq!(fixture.print(&recording.trace).matches("myapp:tick").count(), 10);
}

#[test]
fn contexts_are_those_asked_for() {
    let fixture = Fixture::new("contexts");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    for (option, expected) in [
        ("none", "{ cpu_id = "),
        ("vtid", "}, { vtid = "),
        ("vpid,vtid,procname", "procname = \"hello\" }"),
    ] {
        let _ = std::fs::remove_dir_all(fixture.path("trace"));
        let recording = fixture.record(&["--context", option], &[program.to_str().unwrap()]);
        let text = fixture.print(&recording.trace);
        assert!(text.contains(expected), "{option}: {text}");
        assert_eq!(text.contains("vtid"), option.contains("vtid"));
        assert_eq!(text.contains("vpid"), option.contains("vpid"));
        if let Some(theirs) = fixture.babeltrace(&recording.trace) {
            assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
        }
    }
}

#[test]
fn losses_are_counted_for_every_event() {
    let fixture = Fixture::new("losses");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    let options = ["--buffer-size", "8K", "--sub-buffers", "2", "--event", "myapp:*"];
    let recording = fixture.record(&options, &[program.to_str().unwrap(), "300000"]);
    let summary = recording.summary;
    assert!(summary.lost > 0, "{}", recording.messages());
    assert_eq!(summary.recorded + summary.lost, 600_000);
    let messages = recording.messages();
    let mut by_event = 0;
    for name in ["myapp:request", "myapp:tick"] {
        let line = messages.lines().find(|line| line.ends_with(&format!("× {name}")));
        let line = line.unwrap_or_else(|| panic!("no losses of {name}: {messages}"));
        let number = line.split_whitespace().nth(2).unwrap().replace(',', "");
        by_event += number.parse::<u64>().unwrap();
    }
    assert_eq!(by_event, summary.lost);
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        let messages = String::from_utf8_lossy(&theirs.stderr);
        assert_eq!(trackway_tests::babeltrace_discarded_events(&messages), summary.lost);
    }
}

#[test]
fn a_filled_flight_recorder_keeps_the_newest() {
    let fixture = Fixture::new("flight");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    let options =
        ["--overwrite", "--buffer-size", "64K", "--sub-buffers", "4", "--event", "myapp:*"];
    let recording = fixture.record(&options, &[program.to_str().unwrap(), "200000"]);
    let summary = recording.summary;
    assert!(summary.overwritten > 0, "{}", recording.messages());
    assert_eq!(summary.recorded + summary.overwritten + summary.lost, 400_000);
    let text = fixture.print(&recording.trace);
    assert_eq!(text.lines().count() as u64, summary.recorded);
    assert!(text.contains("latency_us = 199999 }"), "the newest is there");
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
    }
}

#[test]
fn an_unmodified_program_shows_allocations_and_locks() {
    let fixture = Fixture::new("preload");
    let input = fixture.path("input");
    std::fs::write(&input, vec![b'x'; 4 << 20]).unwrap();
    let command = ["xz", "-T2", "--block-size=1MiB", "-0", "-k", input.to_str().unwrap()];
    let recording = fixture.record(&["--preload", "libc,pthread"], &command);
    assert!(recording.output.status.success(), "{}", recording.messages());
    let text = fixture.print(&recording.trace);
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
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        assert_eq!(text, String::from_utf8_lossy(&theirs.stdout));
    }
}

#[test]
fn exit_status_signals_and_streams_pass_through() {
    let fixture = Fixture::new("status");
    let status = |command: &[&str]| fixture.record(&["-q"], command).output.status;
    assert_eq!(status(&["true"]).code(), Some(0));
    assert_eq!(status(&["sh", "-c", "exit 3"]).code(), Some(3));
    assert_eq!(status(&["sh", "-c", "kill -TERM $$"]).signal(), Some(libc::SIGTERM));
    assert_eq!(status(&["./no-such-program"]).code(), Some(127));
    std::fs::write(fixture.path("not-executable"), "").unwrap();
    assert_eq!(status(&["./not-executable"]).code(), Some(126));
    let wrong = fixture.trackway(&["record", "--no-such-option", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(125));

    let mut cat = fixture.trackway(&["record", "-q", "-o", "cat-trace", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), b"through").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"through", "stdout is the command's alone");
    assert!(output.status.success());
}

#[test]
fn under_sudo_command_and_trace_are_the_invoking_users() {
    if !trackway_tests::is_root() {
        return trackway_tests::report_skipped("only root can become another user");
    }
    let fixture = Fixture::new("sudo");
    for folder in [&fixture.path(""), &fixture.window_dir().to_owned()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, open).unwrap();
    }
    let mut record = fixture.trackway(&["record", "-o", "trace", "--", "sh", "-c", "id -u; id -g"]);
    record.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    let output = record.output().unwrap();
    assert_eq!(output.stdout, b"65534\n65534\n", "{output:?}");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("trackway: recording as nobody (sudo)\n"), "{messages}");
    let owner =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(fixture.path("trace")).unwrap());
    assert_eq!(owner, 65534);
    let window = fixture.window_dir().join("trackway-65534-v2");
    assert!(window.exists(), "the user's window served");
}

/// RUN under sudo, with kernel events if possible, a command that lists its recorder's file
/// descriptors; and under a fake sudo. EXPECT its environment to be the user's, and no file
/// descriptor that root has opened; a refusal under the fake one.
#[test]
fn under_sudo_the_command_has_what_is_the_users_and_nothing_of_roots() {
    if !trackway_tests::is_root() {
        return trackway_tests::report_skipped("only root can become another user");
    }
    let fixture = Fixture::new("sudo-things");
    for folder in [&fixture.path(""), &fixture.window_dir().to_owned()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder, open).unwrap();
    }
    let script = "echo $USER $LOGNAME $HOME; ls /proc/$PPID/fd >/dev/null 2>&1 && echo open";
    let has_kernel = trackway_tests::has_kernel_events(&fixture);
    for kernel in [false, true].into_iter().take(1 + usize::from(has_kernel)) {
        let mut record = fixture.trackway(&["record", "-o", "trace"]);
        record.args(if kernel { &["--kernel", "sched_switch"][..] } else { &[] });
        record.args(["--", "sh", "-c", script]).env("HOME", "/root").env("USER", "root");
        record.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
        let output = record.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_open = said.ends_with("open\n");
        assert!(said.starts_with("nobody nobody /nonexistent\n"), "{output:?}");
        assert_eq!(is_open, !kernel, "{output:?}");
    }
    let mut record = fixture.trackway(&["record", "-o", "other", "--", "id", "-u"]);
    let output = record.env("SUDO_UID", "some").env("SUDO_GID", "65534").output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("SUDO_UID and SUDO_GID do not say who called"), "{messages}");
    assert!(
        !output.status.success() && output.stdout.is_empty() && !fixture.path("other").exists()
    );
}

#[test]
fn a_recording_keeps_its_folder_from_other_recorders() {
    let fixture = Fixture::new("same-folder");
    let steps = Steps::new(&fixture, "steps");
    let program = fixture.compile_file("lives/processes.c", true, &[]);
    let trace = fixture.path("trace");
    let command = [program.to_str().unwrap(), "busy", "100"];
    let first = RunningProgram::start(&mut fixture.recorder(&steps, &trace, &[], &command));
    steps.wait_ready(1);
    steps.wait_more(100);
    let second = fixture.record(&[], &["true"]);
    assert_eq!(second.output.status.code(), Some(125), "{}", second.messages());
    assert!(second.messages().contains("is being recorded into"), "{}", second.messages());
    steps.stop();
    let first = Recording::new(trace, first.finish());
    steps.check(&fixture, &first);
    let third = fixture.record(&[], &["true"]);
    assert!(third.output.status.success(), "{}", third.messages());
    assert!(fixture.path("trace.old").exists());
}

#[test]
fn recorders_that_start_at_the_same_time_make_a_folder_each() {
    const RECORDERS: usize = 6;
    let fixture = Fixture::new("same-time");
    let start = |_| fixture.trackway(&["record", "-q", "--", "true"]).spawn().unwrap();
    let recorders: Vec<_> = (0..RECORDERS).map(start).collect();
    for mut recorder in recorders {
        assert!(recorder.wait().unwrap().success());
    }
    // The folder of the sockets is not compared: it does not belong to the user.
    let entries = std::fs::read_dir(fixture.path("")).unwrap().flatten();
    let folders: Vec<_> = entries.filter(|entry| entry.path() != fixture.run_dir()).collect();
    assert_eq!(folders.len(), RECORDERS, "{folders:?}");
    assert!(folders.iter().all(|folder| folder.path().join("ust").is_dir()), "{folders:?}");
}

#[test]
fn a_folder_with_other_things_is_left_alone() {
    let fixture = Fixture::new("other-things");
    std::fs::create_dir(fixture.path("work")).unwrap();
    std::fs::write(fixture.path("work/precious"), "mine").unwrap();
    let record = || {
        let mut record = fixture.trackway(&["record", "-o", ".", "--", "true"]);
        record.current_dir(fixture.path("work")).output().unwrap()
    };
    for folder in ["", "ust", "ust/uid"] {
        std::fs::create_dir_all(fixture.path("work").join(folder)).unwrap();
        let output = record();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{messages}");
        assert!(messages.contains("exists and is not only an earlier trace"), "{messages}");
    }
    assert_eq!(std::fs::read(fixture.path("work/precious")).unwrap(), b"mine");
    assert!(!fixture.path("work.old").exists());
    std::fs::remove_file(fixture.path("work/precious")).unwrap();
    assert_eq!(record().status.code(), Some(125), "we stand in it");
    std::fs::remove_dir_all(fixture.path("work/ust")).unwrap();
    assert!(record().status.success(), "an empty folder will do");
    assert!(fixture.path("work/ust").is_dir());
}

#[test]
fn a_full_table_of_events_is_said() {
    let fixture = Fixture::new("full-table");
    let program = fixture.compile("hello", HELLO_SOURCE, true, &[]);
    // The first recording makes the window.
    assert!(fixture.record(&["-q"], &["true"]).output.status.success());
    let entries = std::fs::read_dir(fixture.window_dir()).unwrap().flatten();
    let path = entries.map(|entry| entry.path()).next().expect("the window");
    let text = |path: &std::path::Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap());
    let (window, _file) =
        trackway_window::Window::open(&text(fixture.window_dir()), &text(&path), owner, false)
            .expect("the window opens");
    // The number of events fills every slot, for all hashes.
    for number in 0..8 * trackway_abi::window::EVENTS_MAX {
        let _ = window.intern_event(format!("filler {number}").as_bytes());
    }
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert!(recording.messages().contains(" could not be registered"), "{}", recording.messages());
    assert!(recording.messages().contains("hint: remove /dev/shm/"), "{}", recording.messages());
    let listed = fixture.trackway(&["list"]).output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&listed).contains(" could not be registered"));
}

#[test]
fn a_recorder_that_was_stopped_says_so() {
    let fixture = Fixture::new("stopped");
    let mut recorder = fixture.trackway(&["record", "-o", "trace", "--", "cat"]);
    recorder.stdin(Stdio::piped()).stderr(Stdio::piped()).env(SHORT_LEASE.0, SHORT_LEASE.1);
    let mut recorder = recorder.spawn().unwrap();
    wait_for("the trace", || fixture.path("trace/ust").exists());
    wait_for("the command", || child_of(recorder.id()).is_some());
    send_signal(recorder.id().cast_signed(), libc::SIGSTOP);
    std::thread::sleep(LONGER_THAN_SHORT_LEASE);
    send_signal(recorder.id().cast_signed(), libc::SIGCONT);
    drop(recorder.stdin.take());
    let messages = recorder.wait_with_output().unwrap().stderr;
    let messages = String::from_utf8_lossy(&messages).into_owned();
    let said = "the recorder was stopped for 2 s: events of that time may be missing, uncounted";
    let (before, after) = messages.split_once(" recorded, ").expect("a summary");
    assert!(before.contains(said) && after.contains(said), "{messages}");
}

/// Returns the first child of a process.
fn child_of(pid: u32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

#[test]
fn signals_sent_to_the_recorder_reach_the_command() {
    for name in ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2"] {
        let fixture = Fixture::new("forwarded");
        let script = format!(
            "trap 'echo got {name}; exit 9' {name}; echo ready > ready; \
             while :; do sleep 0.01; done"
        );
        let mut recorder = fixture.trackway(&["record", "-q", "-o", "trace", "--", "sh", "-c"]);
        trackway_tests::steps::restore_signal_actions(&mut recorder);
        let recorder = RunningProgram::start(recorder.arg(&script));
        wait_for("the trap", || fixture.path("ready").exists());
        let signal = match name {
            "TERM" => libc::SIGTERM,
            "HUP" => libc::SIGHUP,
            "INT" => libc::SIGINT,
            "QUIT" => libc::SIGQUIT,
            "USR1" => libc::SIGUSR1,
            _ => libc::SIGUSR2,
        };
        recorder.signal(signal);
        let output = recorder.finish();
        assert_eq!(output.status.code(), Some(9), "{name}: {output:?}");
        assert_eq!(output.stdout, format!("got {name}\n").as_bytes());
    }
}

#[test]
fn a_program_with_address_sanitizer_is_recorded() {
    let fixture = Fixture::new("asan");
    std::fs::write(fixture.path("empty.c"), "int main(void) { return 0; }\n").unwrap();
    let mut gcc = fixture.command("gcc");
    gcc.args(["-fsanitize=address", "empty.c", "-o", "empty"]).stderr(Stdio::null());
    if !gcc.status().is_ok_and(|status| status.success()) {
        return trackway_tests::report_skipped("gcc has no AddressSanitizer here");
    }
    assert!(fixture.command(fixture.path("empty")).status().unwrap().success());
    let program = fixture.compile("hello", HELLO_SOURCE, true, &["-fsanitize=address"]);
    let recording = fixture.record(&["--event", "myapp"], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(recording.summary.recorded, 20, "{}", recording.messages());
}

#[test]
fn patterns_that_match_nothing_are_said_once_and_not_of_wrappers() {
    let fixture = Fixture::new("patterns");
    let program = fixture.compile("hello", HELLO_SOURCE, false, &[]);
    let program = program.to_str().unwrap();
    let said = |options: &[&str], command: &[&str]| {
        let messages = fixture.record(options, command).messages();
        (
            messages.matches("matches no event").count(),
            messages.matches("matches no known event").count(),
        )
    };
    assert_eq!(said(&["--event", "myapp"], &["env", program]), (0, 0));
    assert_eq!(said(&["--event", "myapp"], &["sh", "-c", program]), (0, 0));
    assert_eq!(said(&["--event", "other"], &["env", program]), (0, 1));
    assert_eq!(said(&["--event", "other"], &[program]), (1, 0));
    assert_eq!(said(&["--event", "!myapp"], &[program]), (0, 0));
    assert_eq!(said(&["--event", "!myapp"], &["true"]), (0, 0));
    let nothing = fixture.record(&["--event", "!*"], &["true"]);
    assert_eq!(nothing.output.status.code(), Some(125));
    assert!(nothing.messages().contains("'!*' excludes all events"), "{}", nothing.messages());
}

/// RUN a command with `--summary-json`, and others that lose events, are killed, or cannot write
/// the file. EXPECT the numbers of the summary line, the command's exit status, and hints
/// separately; and no recording without the file.
#[test]
fn a_summary_is_written_as_json() {
    let fixture = Fixture::new("summary-json");
    let program = fixture.compile("hello", HELLO_SOURCE, false, &[]);
    let program = program.to_str().unwrap();
    let file = fixture.path("summary.json");
    let file = file.to_str().unwrap();
    let recorded = |options: &[&str], command: &[&str]| {
        let recording = fixture.record(&[&["--summary-json", file], options].concat(), command);
        let text = std::fs::read_to_string(file).expect("the file");
        let summary: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        (recording, summary)
    };
    let (recording, summary) = recorded(&[], &[program]);
    assert_eq!(summary["trace"], recording.trace.to_str().unwrap());
    assert_eq!(summary["is-complete"], true, "{summary:#}");
    assert_eq!(summary["programs"]["recorded"], recording.summary.recorded);
    assert_eq!(summary["programs"]["processes"], recording.summary.processes);
    assert_eq!(summary["programs"]["lost-by-event"], serde_json::json!({}));
    assert_eq!((&summary["kernel"], &summary["command"]["exit-status"]), (&().into(), &0.into()));
    let (_, summary) = recorded(&["--event", "other"], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(summary["command"], serde_json::json!({ "signal": 9 }));
    let notices = summary["notices"].as_array().expect("notices");
    assert!(notices.iter().any(|notice| notice["hint"].is_string()), "{summary:#}");
    assert!(notices.iter().all(|notice| !notice.to_string().contains("hint: ")), "{summary:#}");
    let none = fixture.trackway(&["record", "--summary-json", "none/file", "--", "touch", "ran"]);
    let output = { none }.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(!fixture.path("ran").exists());
}

#[test]
fn the_usage_shows_the_dashes() {
    let fixture = Fixture::new("usage");
    let output = fixture.trackway(&["record", "--help"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Usage: trackway record [OPTIONS] -- <CMD>...\n"), "{text}");
    assert!(text.contains("sudo"), "{text}");
}

/// Few events also reach the trace: a sub-buffer is written before it is full, and the next packet
/// continues in the middle of it.
#[test]
fn events_reach_the_trace_while_the_program_runs() {
    let source = r#"
#include <trackway/trackway.h>
#include <stdio.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO, (u32, n));
int main(void) {
    for (unsigned n = 0; getchar() != EOF; n++)
        trackway(myapp, tick, n);
    return 0;
}
"#;
    let fixture = Fixture::new("flushed");
    let program = fixture.compile("answerer", source, true, &[]);
    let trace = fixture.path("trace");
    let mut recorder = fixture.trackway(&["record", "-o"]);
    let mut recorder = recorder
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("trackway runs");
    let mut input = recorder.stdin.take().expect("a pipe");
    let ticks = || {
        let output = fixture.trackway(&["print"]).arg(&trace).output().expect("trackway runs");
        String::from_utf8_lossy(&output.stdout).matches("myapp:tick").count()
    };
    for n in 1..=4 {
        input.write_all(b"x").expect("the program reads");
        wait_for("the event", || ticks() == n);
    }
    drop(input);
    assert!(recorder.wait().expect("it ends").success());
    assert_eq!(ticks(), 4);
    if let Some(theirs) = fixture.babeltrace(&trace) {
        assert_eq!(fixture.print(&trace), String::from_utf8_lossy(&theirs.stdout));
    }
}

/// Emits on one CPU and then, after it has read a byte, on another.
const MOVER_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <trackway/trackway.h>
TRACKWAY_EVENT(myapp, before, TRACKWAY_INFO);
TRACKWAY_EVENT(myapp, after, TRACKWAY_INFO);
static void go_to(int number) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(all), &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && number-- == 0)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}
int main(void) {
    cpu_set_t all;
    sched_getaffinity(0, sizeof(all), &all);
    go_to(0);
    trackway(myapp, before);
    getchar();
    sched_setaffinity(0, sizeof(all), &all);
    go_to(1);
    trackway(myapp, after);
    return 0;
}
"#;

#[test]
fn events_after_a_trace_was_moved_follow_it() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return trackway_tests::report_skipped("there is one CPU");
    }
    let fixture = Fixture::new("moved");
    let program = fixture.compile("mover", MOVER_SOURCE, true, &[]);
    let (trace, moved) = (fixture.path("trace"), fixture.path("moved"));
    let recorder = fixture
        .trackway(&["record", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut recorder = recorder.expect("trackway runs");
    let shown = || fixture.trackway(&["print"]).arg(&trace).output().expect("it runs");
    wait_for("the first event", || {
        String::from_utf8_lossy(&shown().stdout).contains("myapp:before")
    });
    std::fs::rename(&trace, &moved).expect("moved");
    drop(recorder.stdin.take());
    let output = recorder.wait_with_output().expect("it ends");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    // The second event is the first of its CPU: its file did not exist when the trace was moved.
    let text = fixture.print(&moved);
    assert_eq!((text.matches("before").count(), text.matches("after").count()), (1, 1), "{text}");
    assert!(!trace.exists(), "{messages}");
}

#[test]
fn the_status_line_tells_how_it_goes() {
    if !trackway_tests::has("script") {
        return trackway_tests::report_skipped("script (bsdutils) is not installed");
    }
    let source = r#"
#include <trackway/trackway.h>
#include <unistd.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO, (u32, n));
int main(void) {
    for (unsigned round = 0; round < 26; round++) {
        for (unsigned n = 0; n < 20000; n++)
            trackway(myapp, tick, n);
        usleep(100 * 1000);
    }
    return 0;
}
"#;
    let fixture = Fixture::new("status-events");
    let program = fixture.compile("ticker", source, true, &[]);
    let trackway = build_dir().join("trackway");
    // Each burst is larger than the buffer, so that some events are lost.
    let options = "-o trace --buffer-size 16K --sub-buffers 2";
    let line = format!("{} record {options} -- {}", trackway.display(), program.display());
    let output = fixture.command("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.split("\r\u{1b}[K").collect();
    let shown: Vec<Vec<u64>> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("trackway: ")?.strip_suffix(", 1 process"))
        .map(status_numbers)
        .collect();
    assert!(shown.len() >= 2, "{text:?}");
    let [first, .., last] = &shown[..] else { unreachable!() };
    assert!(first.iter().all(|&number| number > 0), "events, rate, lost, bytes: {text:?}");
    assert!(last[0] > first[0] && last[2] > first[2], "{text:?}");
    assert!(last[0] + last[2] <= 26 * 20_000, "{text:?}");
    let summary = trackway_tests::Summary::parse(lines.last().unwrap());
    assert_eq!(summary.recorded + summary.lost, 26 * 20_000, "{text:?}");
}

/// Returns the numbers in `1,234 events, 1,234/s, 5 lost, 12.3 KiB`; the size without its fraction.
fn status_numbers(line: &str) -> Vec<u64> {
    let number = |word: &str| {
        let digits: String =
            word.replace(',', "").chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or_else(|_| panic!("{word} in {line}"))
    };
    let parts: Vec<&str> = line.split(", ").collect();
    let ends = [" events", "/s", " lost", "B"];
    assert!(parts.len() == 4 && parts.iter().zip(ends).all(|(part, end)| part.ends_with(end)));
    parts.into_iter().map(number).collect()
}

#[test]
fn the_status_line_shows_on_a_terminal() {
    if !trackway_tests::has("script") {
        return trackway_tests::report_skipped("script (bsdutils) is not installed");
    }
    let fixture = Fixture::new("status-line");
    let trackway = build_dir().join("trackway");
    // script(1) gives the command a terminal, and copies its output.
    let line = format!("{} record -o trace -- sleep 2.5", trackway.display());
    let output = fixture.command("script").args(["-qec", &line, "/dev/null"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\r\u{1b}[Ktrackway: 0 events"), "{text:?}");
    assert!(text.contains("\r\u{1b}[Ktrackway: 0 events recorded, 0 lost"), "cleared: {text:?}");
}

/// Cut strings end with "…", but cut sequences have no mark: so the summary counts them.
#[test]
fn records_that_were_cut_are_counted() {
    let source = r#"
#include <trackway/trackway.h>
#include <string.h>
TRACKWAY_EVENT(myapp, text, TRACKWAY_INFO, (str, path));
TRACKWAY_EVENT(myapp, numbers, TRACKWAY_INFO, (seq, all, u64));
int main(void) {
    static char path[9000];
    static unsigned long all[1000];
    memset(path, 'x', sizeof(path) - 1);
    trackway(myapp, text, "short");
    trackway(myapp, text, path);
    for (unsigned long i = 0; i < 1000; i++)
        all[i] = i;
    trackway(myapp, numbers, (const uint64_t *)all, 499);
    for (int i = 0; i < 3; i++)
        trackway(myapp, numbers, (const uint64_t *)all, 1000);
    return 0;
}
"#;
    let fixture = Fixture::new("cut");
    let program = fixture.compile("cutter", source, true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    let messages = recording.messages();
    assert_eq!((recording.summary.recorded, recording.summary.lost), (6, 0), "{messages}");
    let line = "trackway: 4 records were cut to fit, the last of myapp:numbers";
    assert!(messages.lines().any(|said| said == line), "{messages}");
    let text = fixture.print(&recording.trace);
    assert_eq!(text.matches("_all_length = 499").count(), 4, "{text}");
    assert!(text.contains("x…\""), "{text}");
    // These records are too large for a sub-buffer of 4 KiB: they are lost, so not counted as cut.
    let options = ["--buffer-size", "8K", "--sub-buffers", "2"];
    let recording = fixture.record(&options, &[program.to_str().unwrap()]);
    let messages = recording.messages();
    assert_eq!((recording.summary.recorded, recording.summary.lost), (1, 5), "{messages}");
    assert!(!messages.contains("cut to fit"), "{messages}");
    // No record was cut, so there is no message.
    let recording = fixture.record(&[], &["true"]);
    assert!(!recording.messages().contains("cut to fit"), "{}", recording.messages());
    // A flight recorder has cut more records than its trace contains.
    let options = ["--overwrite", "--buffer-size", "32K", "--sub-buffers", "2"];
    let messages = fixture.record(&options, &[program.to_str().unwrap()]).messages();
    let line = "4 records were cut to fit (overwritten ones included), the last of myapp:numbers";
    assert!(messages.contains(line), "{messages}");
}

#[test]
fn the_list_shows_events_of_running_processes() {
    let fixture = Fixture::new("list");
    let text = HELLO_SOURCE.replace("return 0;", "getchar(); return 0;");
    let text = text.replace("#include <stdlib.h>", "#include <stdlib.h>\n#include <stdio.h>");
    let program = fixture.compile("lister", &text, true, &[]);
    let mut child =
        fixture.command(&program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Another program runs in a namespace where its process id is that of another process here.
    let mut within = fixture.command("unshare");
    within.args(["--pid", "--fork"]).arg(&program).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut within = (is_root() && has("unshare")).then(|| within.spawn().unwrap());
    let names = |listed: &str| -> Vec<String> {
        let processes = listed.lines().filter_map(|line| line.strip_prefix("  "));
        let processes = processes.filter(|line| line.starts_with(char::is_numeric));
        processes.filter_map(|line| Some(line.split_once(' ')?.1.to_owned())).collect()
    };
    // The library registers before main, so it is enough to wait until the processes sleep in
    // getchar; the list itself shows when they do.
    let mut listed = String::new();
    for _ in 0..200 {
        let output = fixture.trackway(&["list"]).output().unwrap();
        listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_there = within.is_none() || names(&listed).len() == 2;
        if listed.contains("myapp:request") && is_there {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for child in [Some(&mut child), within.as_mut()].into_iter().flatten() {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert!(
        listed.starts_with("running processes: trackway session create --pid PID "),
        "{listed}"
    );
    assert_eq!(names(&listed), vec!["lister"; 1 + usize::from(within.is_some())], "{listed}");
    let listed_after = fixture.trackway(&["list"]).output().unwrap().stdout;
    assert_eq!(names(&String::from_utf8_lossy(&listed_after)), Vec::<String>::new());
    assert!(listed.contains("    myapp:request"), "{listed}");
    assert!(listed.contains("latency_us"), "{listed}");
}
