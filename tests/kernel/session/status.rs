//! `trackway session list` and `status` of sessions with kernel events, with live and with dead
//! recorders.

use std::fs;

use trackway_tests::steps::{is_running, send_signal, wait_for};

use super::kernel_test::KernelTest;

/// Returns the line about a session in the output of `session list`.
fn session_list_line(test: &KernelTest, session: &str) -> String {
    let (list, _) = test.ok("session list");
    let line = list.lines().find(|line| line.starts_with(session));
    line.unwrap_or_else(|| panic!("no {session}: {list}")).to_owned()
}

/// Kills the recorder of a session; returns when the kernel has released all its objects.
fn kill_recorder(test: &KernelTest, session: &str) {
    let pid = test.status(session)["pid"].as_u64().expect("a number");
    let pid = u32::try_from(pid).expect("a process id");
    send_signal(pid.cast_signed(), libc::SIGKILL);
    wait_for("the recorder to be gone", || !is_running(pid));
}

/// Returns the number before a word of a text.
fn number_before(text: &str, word: &str) -> u64 {
    let before = text.split_once(word).unwrap_or_else(|| panic!("no {word}: {text}")).0;
    let number = before.split_whitespace().last().expect("a number").replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("no number before {word}: {text}"))
}

/// RUN sessions of kernel events only, and of user events, too. EXPECT the first line to count all
/// recorded events, and to name the scope.
#[test]
fn the_summary_counts_kernel_events_too() {
    let Some(test) = KernelTest::new("ksession-said") else { return };
    test.ok("session create alone --kernel-only --kernel syscalls:getpgid -o alone");
    test.calls(0..1000);
    let (status, _) = test.ok("session status alone");
    let events = status.lines().nth(1).expect("a line");
    assert!(number_before(events, " recorded") >= 2000, "{status}");
    assert!(events.ends_with(" recorded, 0 lost, of the kernel"), "{status}");
    assert!(!status.contains("  only "), "{status}");
    assert!(
        session_list_line(&test, "alone").contains("  kernel  /"),
        "{}",
        session_list_line(&test, "alone")
    );
    test.ok("session destroy alone");

    test.ok("session create both --kernel syscalls:getpgid -o both");
    test.calls(0..1000);
    let (status, _) = test.ok("session status both");
    let events = status.lines().nth(1).expect("a line");
    // The program emits two events with each call.
    assert!(number_before(events, " recorded") >= 4000, "{status}");
    assert!(events.ends_with(", of 1 process and the kernel"), "{status}");
    assert!(
        session_list_line(&test, "both").contains("  own,kernel  /"),
        "{}",
        session_list_line(&test, "both")
    );
}

/// RUN a change of contexts in a session with channels and in one without. EXPECT a message that
/// the change is impossible, and an alternative.
#[test]
fn the_kernels_contexts_stay_and_that_is_said() {
    let Some(test) = KernelTest::new("ksession-contexts") else { return };
    test.ok("session create both --kernel syscalls:getpgid -o both");
    test.ok("session create alone --kernel-only --kernel syscalls:getpgid -o alone");
    let beside = "hint: begin another session beside it (trackway session create NAME \
                  --kernel LIST --context prio)";
    for session in ["both channel0", "both kernel", "alone kernel"] {
        let talk = test.refused(&format!("channel set {session} --context prio"));
        assert!(talk.contains("'prio' is a context of the kernel's events"), "{talk}");
        assert!(talk.contains(beside), "{talk}");
    }
    for session in ["both kernel", "alone kernel", "alone channel0"] {
        let talk = test.refused(&format!("channel set {session} --context procname"));
        assert!(talk.contains("hint: the kernel's events are in none: "), "{talk}");
    }
    let talk = test.refused("channel set both channel1 --context procname");
    assert!(talk.contains("hint: it has channel0"), "{talk}");
}

/// RUN a command that prints the status of its own recording. EXPECT the status to name the scope
/// of the kernel events.
#[test]
fn the_session_of_a_recording_says_that_it_is_of_a_command() {
    let Some(test) = KernelTest::new("ksession-command") else { return };
    let mut ask = test.command("record --kernel-only --kernel syscalls:getpgid -o trace --");
    let trackway = ask.get_program().to_owned();
    ask.args(["sh", "-c", "\"$0\" session status record-$PPID"]).arg(trackway);
    let output = ask.output().expect("it runs");
    let status = String::from_utf8_lossy(&output.stdout);
    assert!(status.contains("\n  only      the command, and what it starts\n"), "{status}");
}

/// KILL the recorder of a session with kernel events only. EXPECT the session to be dead; no
/// message that nothing is lost; and the next command to complete the trace and to report the
/// losses.
#[test]
fn a_killed_session_of_the_kernels_events_is_not_said_to_have_lost_nothing() {
    let Some(test) = KernelTest::new("ksession-dead") else { return };
    let is_complete = |trace: &str| {
        let mark = test.fixture.path(trace).join("kernel/trackway/complete");
        fs::metadata(mark).is_ok()
    };
    let begin = |trace: &str| {
        let options = "--kernel-only --kernel syscalls:getpgid";
        test.ok(&format!("session create k {options} -o {trace}"));
        test.calls(0..10);
    };
    begin("destroyed");
    kill_recorder(&test, "k");
    assert!(session_list_line(&test, "k").contains(" dead "), "{}", session_list_line(&test, "k"));
    let (_, talk) = test.ok("session list");
    assert!(!talk.contains("nothing of it is lost") && talk.contains("trackway recover"), "{talk}");
    assert!(!is_complete("destroyed"));
    let (_, talk) = test.ok("session destroy k");
    assert!(talk.contains("what was in buffers when the recorder was killed"), "{talk}");
    assert!(is_complete("destroyed"));

    begin("recovered");
    kill_recorder(&test, "k");
    let (_, talk) = test.ok("recover");
    assert!(talk.contains("what was in buffers when the recorder was killed"), "{talk}");
    assert!(is_complete("recovered"));
    let (list, talk) = test.ok("session list");
    assert!(list.is_empty() && talk.contains("there is no session"), "{list}{talk}");

    // The trace is completed by a session of the same name, and by another one.
    begin("first");
    kill_recorder(&test, "k");
    begin("second");
    assert!(is_complete("first"));
    kill_recorder(&test, "k");
    test.ok("session create other --kernel-only --kernel syscalls:getpgid -o third");
    assert!(is_complete("second"));
}

/// RUN a recording of kernel events only, twice. EXPECT the second to set the first trace aside,
/// like any recording.
#[test]
fn a_trace_of_the_kernels_events_alone_makes_room_for_the_next() {
    let Some(test) = KernelTest::new("ksession-again") else { return };
    for _ in 0..2 {
        test.ok("record --kernel-only --kernel syscalls:getpgid -o trace -- true");
    }
    assert!(test.fixture.path("trace.old/kernel/metadata").is_file());
}

/// RUN a session in which a CPU seems to appear: in the recorder's mount namespace, another file
/// replaces the list of CPUs. EXPECT a message at once.
#[test]
fn a_cpu_that_comes_is_said_at_once() {
    const SCRIPT: &str = "
        mount --bind online /sys/devices/system/cpu/online || exit 90
        shift; exec \"$0\" \"$@\"";
    let Some(test) = KernelTest::new("ksession-cpus") else { return };
    let real = fs::read_to_string("/sys/devices/system/cpu/online").expect("a list");
    let list = test.fixture.path("online");
    fs::write(&list, &real).expect("a file");
    let line = "session create k --kernel-only --kernel syscalls:getpgid -o trace";
    let create = test.command(line);
    let mut unshare = test.fixture.command("unshare");
    unshare.args(["-m", "sh", "-c", SCRIPT]).arg(create.get_program()).arg("0");
    unshare.args(create.get_args());
    let output = unshare.output().expect("unshare runs");
    if output.status.code() == Some(90) {
        return trackway_tests::report_skipped("nothing can be mounted here");
    }
    assert!(output.status.success(), "{output:?}");
    let said = || test.ok("session status k").0;
    assert!(!said().contains("  said "), "{}", said());
    // The CPU number is far beyond the possible CPUs.
    fs::write(&list, format!("{},4093\n", real.trim_end())).expect("a file");
    wait_for("the recorder to say it", || said().contains("  said      CPU 4093 came while "));
    let (_, talk) = test.ok("session destroy k");
    assert!(talk.contains("1 CPU came while the kernel's events were recorded"), "{talk}");
}

/// RUN a session in which a CPU seems to be offline at first, by the list of CPUs, and calls on
/// that CPU. EXPECT the calls recorded: the CPU is possible, and so has buffers.
#[test]
fn a_cpu_that_was_offline_is_recorded_once_it_comes() {
    const SCRIPT: &str = "
        mount --bind online /sys/devices/system/cpu/online || exit 90
        shift; exec \"$0\" \"$@\"";
    let Some(test) = KernelTest::new("ksession-offline") else { return };
    let real = fs::read_to_string("/sys/devices/system/cpu/online").expect("a list");
    if real.trim() == "0" || !trackway_tests::has("taskset") {
        return trackway_tests::report_skipped("there is one CPU, or no taskset");
    }
    let list = test.fixture.path("online");
    fs::write(&list, "0\n").expect("a file");
    let create = test.command("session create k --kernel-only --kernel syscalls:getpgid -o trace");
    let mut unshare = test.fixture.command("unshare");
    unshare.args(["-m", "sh", "-c", SCRIPT]).arg(create.get_program()).arg("0");
    unshare.args(create.get_args());
    let output = unshare.output().expect("unshare runs");
    if output.status.code() == Some(90) {
        return trackway_tests::report_skipped("nothing can be mounted here");
    }
    assert!(output.status.success(), "{output:?}");
    fs::write(&list, &real).expect("a file");
    test.shell("taskset -c 1 \"$0\" 100 $1").wait();
    let (_, talk) = test.ok("session destroy k");
    assert!(!talk.contains(" came while "), "{talk}");
    test.check("trace", 0..100);
}
