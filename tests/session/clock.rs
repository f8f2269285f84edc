//! Steps of the wall clock, and times in which no process runs.

use std::fs;
use std::process::Command;

use trackway_tests::steps::{Steps, send_signal, wait_for};
use trackway_tests::{LONGER_THAN_SHORT_LEASE, SHORT_LEASE, is_root, report_skipped};

use crate::session_test::{
    BurstProgram, CountingProgram, SessionTest, assert_all_present, assert_range_present,
    command_result,
};

/// A library that sets the wall clock back by an hour once a file exists, as date(1) does for the
/// whole machine.
const CLOCK_STEP_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && access(getenv("STEPPED"), F_OK) == 0)
        now->tv_sec -= 3600;
    return failed;
}
"#;

/// RUN snapshots before and after the wall clock is set back. EXPECT each event once in the merged
/// trace, at the same time, in order: traces use a clock that is never set.
#[test]
fn a_clock_that_is_set_back_does_not_reorder_events() {
    let test = SessionTest::new("session-stepped");
    let library = test.fixture.compile("stepped", CLOCK_STEP_SOURCE, false, &["-shared", "-fPIC"]);
    let stepped = test.fixture.path("set-back");
    let mut create = test.command("session create flight --flight-recorder -o flight");
    create.env("LD_PRELOAD", &library).env("STEPPED", &stepped);
    let (is_success, _, talk) = command_result(&create.output().expect("trackway runs"));
    assert!(is_success, "{talk}");
    let mut bursts = BurstProgram::of(&test, 100);
    test.ok("session snapshot");
    fs::write(&stepped, "").expect("a file");
    bursts.next();
    test.ok("session snapshot");
    test.ok("channel add flight late --event life:* --context vpid");
    test.ok("session destroy");
    test.ok("merge -o both flight/snapshot-1 flight/snapshot-2");
    let numbers = test.numbers("both");
    assert_range_present(&numbers, 0, 0..200);
    assert_eq!(numbers[&0].len(), 200);
    let seconds = |trace: &str| {
        let (text, _) = test.ok(&format!("print --clock-seconds {trace}"));
        let of = |line: &str| line.split_once("] ").map(|(time, _)| time.to_owned());
        text.lines().filter_map(of).take(100).collect::<Vec<_>>()
    };
    assert_eq!(seconds("flight/snapshot-1"), seconds("flight/snapshot-2"));
}

/// Creates the session `web` with a recorder whose lease is short.
fn create_short_lease_session(test: &SessionTest) {
    let mut create = test.command("session create web --event life:* -o trace");
    let (name, value) = SHORT_LEASE;
    let status = create.env(name, value).status().expect("trackway runs");
    assert!(status.success());
}

/// RUN recorder and program suspended for longer than the recorder's lease, as in a machine that
/// sleeps; the recorder wakes first. EXPECT no lost event.
#[test]
fn nothing_is_lost_while_everything_sleeps() {
    let test = SessionTest::new("session-sleep");
    create_short_lease_session(&test);
    let counting = CountingProgram::threads(&test, 2);
    counting.steps.wait_more(50);
    let recorder = test.recorder_of("web").cast_signed();
    counting.running.signal(libc::SIGSTOP);
    send_signal(recorder, libc::SIGSTOP);
    std::thread::sleep(LONGER_THAN_SHORT_LEASE);
    send_signal(recorder, libc::SIGCONT);
    assert_eq!(test.status("web")["is-recording"], true);
    counting.running.signal(libc::SIGCONT);
    counting.steps.wait_more(50);
    let steps = counting.finish();
    let (_, talk) = test.ok("session destroy");
    assert!(talk.contains("the recorder was stopped for 2 s"), "the lease is short: {talk}");
    assert!(talk.contains(" 0 lost, "), "{talk}");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN a recorder that is suspended while a program continues. EXPECT clients to report it, with a
/// hint; the program to continue; and events after the recorder's return to be recorded.
#[test]
fn a_recorder_that_stands_still_is_said_to() {
    let test = SessionTest::new("session-stopped-recorder");
    test.ok("session create web --event life:* --buffer-size 64K -o trace");
    let counting = CountingProgram::threads(&test, 1);
    let recorder = test.recorder_of("web");
    send_signal(recorder.cast_signed(), libc::SIGSTOP);
    let talk = test.refused("session status");
    let stopped = format!("the recorder of session 'web' (process {recorder}) is stopped");
    assert!(talk.contains(&stopped), "{talk}");
    assert!(talk.contains(&format!("hint: kill -CONT {recorder} lets it go on")), "{talk}");
    let (is_success, text, talk) = command_result(&test.run("session list"));
    assert!(is_success && text.contains("stands still") && talk.contains(&stopped), "{text}{talk}");
    counting.steps.wait_more(200);
    send_signal(recorder.cast_signed(), libc::SIGCONT);
    wait_for("the recorder", || test.run("session status").status.success());
    counting.steps.wait_more(10);
    let begin = counting.steps.counts().started[&0];
    counting.steps.wait_more(100);
    let steps = counting.finish();
    test.ok("session destroy");
    assert_range_present(&test.numbers("trace"), 0, begin..steps.counts().emitted());
}

/// RUN a recorder that is suspended for longer than its lease. EXPECT a message when it continues,
/// and another with the counts at the end, which do not include the missing events.
#[test]
fn uncounted_events_of_a_suspended_recorder_are_reported() {
    let test = SessionTest::new("session-standstill");
    create_short_lease_session(&test);
    let recorder = test.recorder_of("web").cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    std::thread::sleep(LONGER_THAN_SHORT_LEASE);
    send_signal(recorder, libc::SIGCONT);
    let said = "the recorder was stopped for 2 s: events of that time may be missing, uncounted";
    wait_for("the notice", || test.status("web")["notices"].to_string().contains(said));
    test.emit("steps", 3);
    let (_, talk) = test.ok("session destroy");
    assert!(talk.contains("3 events recorded") && talk.contains(said), "{talk}");
}

/// Returns the program in this mode, in a time namespace whose CLOCK_MONOTONIC is days ahead; or
/// `None`, after printing the reason, if that is impossible.
fn command_in_time_namespace(
    test: &SessionTest,
    steps: &Steps,
    mode: &str,
    argument: u64,
) -> Option<Command> {
    let namespace: &[&str] = if is_root() { &[] } else { &["--map-root-user"] };
    let of_time = ["--time", "--fork", "--monotonic", "1000000", "--"];
    let options: Vec<&str> = namespace.iter().copied().chain(of_time).collect();
    let probe = Command::new("unshare").args(&options).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        report_skipped("time namespaces cannot be made here");
        return None;
    }
    let program = test.program(steps, mode, argument);
    let mut command = test.fixture.command("unshare");
    command.args(&options).arg(program.get_program()).args(program.get_args());
    command.env("STEPS", steps.path());
    Some(command)
}

/// RUN a program in a time namespace, with the recorder suspended for a moment, so that buffers of
/// 16 KiB are full. EXPECT each event recorded or counted: the recorder counts as alive, for any
/// time of the program.
#[test]
fn a_program_in_a_time_namespace_does_not_take_its_recorder_for_dead() {
    let test = SessionTest::new("session-time-namespace");
    test.ok("session create web --event life:* --buffer-size 16K --sub-buffers 4 -o trace");
    let steps = test.steps_of_one();
    let Some(mut program) = command_in_time_namespace(&test, &steps, "steps", 5000) else { return };
    let recorder = test.recorder_of("web").cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    let status = program.status();
    send_signal(recorder, libc::SIGCONT);
    assert!(status.expect("it runs").success());
    let counts = || {
        let counts = test.status("web")["counts"].clone();
        ["recorded", "lost"].map(|of| counts[of].as_u64().expect("a number"))
    };
    wait_for("the losses", || counts()[1] > 0);
    test.ok("session stop");
    assert_eq!(counts().iter().sum::<u64>(), 5000, "{:?} recorded and lost", counts());
}

/// RUN the program in a time namespace with TRACKWAY_ALLOW_BLOCKING=1, in a channel that lets
/// programs wait. EXPECT no lost event.
#[test]
fn a_program_in_a_time_namespace_waits_for_its_recorder() {
    let test = SessionTest::new("session-time-namespace-blocking");
    test.ok("session create web --event life:* --buffer-size 16K --sub-buffers 4 \
              --blocking-timeout 20s -o trace");
    let steps = test.steps_of_one();
    let Some(mut program) = command_in_time_namespace(&test, &steps, "steps", 20_000) else {
        return;
    };
    assert!(program.env("TRACKWAY_ALLOW_BLOCKING", "1").status().expect("it runs").success());
    let (_, talk) = test.ok("session destroy");
    assert!(talk.contains("trackway: 20,000 events recorded, 0 lost, "), "{talk}");
    assert_all_present(&test.numbers("trace"), &steps);
}
