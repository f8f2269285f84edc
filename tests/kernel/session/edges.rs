//! Sessions that end badly or meet obstacles: killed recorders, full disks, other users, few file
//! descriptors; and `trackway record` in the same situations.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{Fixture, build_dir, has, is_root, lossy_text, report_skipped};

use super::kernel_test::KernelTest;

const OTHER_USER: u32 = 65_534;

/// KILL a session's recorder. EXPECT recovery to make a complete trace of the written part, and a
/// message that later kernel events are lost.
#[test]
fn recover_says_what_is_lost_of_the_kernel() {
    let Some(test) = KernelTest::new("ksession-killed") else { return };
    test.ok("session create k --kernel syscalls:getpgid -o trace");
    test.calls(0..1000);
    // Streams are written during the recording, or half a second later.
    let printed = || test.command("print trace").output().expect("it runs");
    let lines = || lossy_text(&printed().stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    wait_for("the events", || !test.numbers(&lines()).is_empty());
    let pid = test.status("k")["pid"].as_u64().expect("a process id");
    send_signal(i32::try_from(pid).expect("a process id"), libc::SIGKILL);
    wait_for("its end", || lossy_text(&printed().stderr).contains("trackway recover"));
    let talk = test.ok("recover trace").1;
    assert!(talk.contains("the kernel's events in ") && talk.contains(" is lost"), "{talk}");
    assert!(talk.contains("they end at 20"), "{talk}");
    // The message appears once, whatever else is recovered.
    assert_eq!(talk.matches("kernel's events").count(), 1, "{talk}");
    assert!(!talk.contains("nothing to recover"), "{talk}");
    let entries = test.numbers(&test.lines("trace"));
    assert!(!entries.is_empty() && entries.iter().copied().eq(0..entries.len() as u64));
    let again = test.ok("recover trace").1;
    assert!(again.contains("nothing to recover"), "{again}");
    assert!(!lossy_text(&printed().stderr).contains("trackway recover"));
}

/// KILL a recorder of kernel events only, and recover at once. EXPECT recover to wait until the
/// kernel has released it, to report the losses once, and some recorded events.
#[test]
fn recover_waits_for_a_recorder_that_was_just_killed() {
    let Some(test) = KernelTest::new("ksession-just-killed") else { return };
    for round in 0..5 {
        let trace = format!("trace-{round}");
        test.ok(&format!("session create k --kernel syscalls:getpgid --kernel-only -o {trace}"));
        let pid = test.status("k")["pid"].as_u64().expect("a process id");
        let mut recover = test.command("recover");
        send_signal(i32::try_from(pid).expect("a process id"), libc::SIGKILL);
        let output = recover.output().expect("it runs");
        let talk = lossy_text(&output.stderr);
        assert!(output.status.success(), "{talk}");
        assert_eq!(talk.matches("kernel's events").count(), 1, "{talk}");
        assert!(!talk.contains("nothing to recover"), "{talk}");
    }
}

/// RUN a session that writes to a disk which is full for a while. EXPECT a message at once, a
/// message when writing continues, and the summary at the end.
#[test]
fn a_full_disk_is_told_of_at_once_and_the_summary_comes_all_the_same() {
    let Some(test) = KernelTest::new("ksession-full") else { return };
    let disk = test.fixture.path("disk");
    fs::create_dir(&disk).expect("a folder");
    // A mount namespace hides the mount from other processes, and removes it with the shell.
    let script = "mount -t tmpfs -o size=2m trackway-test disk || exit 77; \
                  \"$@\"; cp -r disk/trace left; read line";
    let trackway = build_dir().join("trackway");
    let mut inside = test.fixture.command("unshare");
    inside.args(["-m", "sh", "-c", script, "sh"]).arg(trackway);
    let create = "session create k --foreground --kernel syscalls:getpgid --buffer-size 128K \
                  -o disk/trace";
    inside.args(create.split_whitespace()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = inside.spawn().expect("unshare runs");
    let mut has_ended = false;
    wait_for("the session", || {
        has_ended = child.try_wait().expect("a child").is_some();
        has_ended || test.command("session status k").output().is_ok_and(|it| it.status.success())
    });
    if has_ended {
        report_skipped("a tmpfs cannot be mounted here");
        return;
    }
    let notices = || {
        let status = test.status("k");
        let said = status["notices"].as_array().expect("notices").clone();
        said.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let is_said = |what: &str| notices().iter().any(|line| line.contains(what));
    let mut first = 0;
    wait_for("a full disk", || {
        test.calls(first..first + 20_000);
        first += 20_000;
        is_said("cannot write kernel events: No space left on device")
    });
    assert!(first <= 400_000, "2 MiB hold fewer");
    let talk = test.command("session destroy k").output().expect("it runs");
    let talk = lossy_text(&talk.stderr);
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("a child");
    let said = lossy_text(&output.stderr);
    assert!(
        said.contains("kernel: ") && said.contains("the trace has not all of the kernel's events"),
        "{talk}\n{said}"
    );
    // The trace has complete packets, and the last ones count the losses, as the summary does.
    let number = |text: &str, before: &str| -> Option<u64> {
        text.split_once(before)?.0.rsplit(' ').next()?.replace(',', "").parse().ok()
    };
    let summary = said.lines().find(|line| line.contains("kernel: ")).expect("one");
    let recorded = number(summary, " events recorded").expect("a number");
    let lost = number(summary, " lost").expect("a number");
    let stats = test.ok("print --stats left/kernel").0;
    let told = stats.lines().find_map(|line| line.strip_prefix("lost: ")).expect("it is there");
    let told = told.split(' ').next().map(|told| told.replace(',', ""));
    assert_eq!(told, Some(lost.to_string()), "{said}\n{stats}");
    assert!(recorded > 0 && lost > 0, "{summary}");
    // The trace also contains the events of the program.
    let lines = test.lines("left");
    let of_kernel = lines.iter().filter(|line| line.contains(" syscall_")).count();
    assert_eq!(of_kernel as u64, recorded, "{summary}\n{stats}");
}

/// RUN record, stopped by another process between its setup as root and the beginning. EXPECT none
/// of the events in between, and none counted as lost.
#[test]
fn nothing_is_recorded_before_somebody_drains() {
    let Some(test) = KernelTest::new("ksession-before") else { return };
    if !has("strace") {
        report_skipped("strace is not installed");
        return;
    }
    let log = test.fixture.path("log");
    let mut record = test.fixture.command("strace");
    record.args(["-f", "-e", "trace=mkdir,mkdirat", "-o"]).arg(&log);
    // The recorder stops where it makes the first folder.
    record.args(["-e", "inject=mkdir,mkdirat:signal=SIGSTOP:when=1"]);
    record.arg(build_dir().join("trackway"));
    let options = "record --system-wide --kernel syscalls:getpgid --buffer-size 128K -o new/trace";
    record.args(options.split(' ')).args(["--", "true"]).stderr(Stdio::piped());
    let mut record = record.spawn().expect("strace runs");
    let stopped = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let line = log.lines().find(|line| line.contains("--- stopped by SIGSTOP ---"))?;
        line.split(' ').next()?.parse().ok()
    };
    wait_for("a stop", || stopped().is_some());
    test.calls(0..50_000);
    let pid = stopped().expect("a process id");
    wait_for("its end", || {
        // Each of the recorder's threads stops once.
        send_signal(pid, libc::SIGCONT);
        record.try_wait().expect("a child").is_some()
    });
    let output = record.wait_with_output().expect("a child");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success() && talk.contains("kernel: "), "{talk}");
    assert!(talk.contains(" events recorded, 0 lost"), "{talk}");
    test.check("new/trace", []);
}

/// RUN record --kernel as a user other than root. EXPECT a message that names the users who may
/// record the kernel, before there is a session.
#[test]
fn a_refusal_names_the_users_who_may_record_the_kernel() {
    if !is_root() {
        let fixture = Fixture::new("ksession-may-not");
        let create = fixture.trackway(&["session", "create", "k", "--kernel", "sched"]).output();
        let talk = lossy_text(&create.expect("it runs").stderr);
        assert!(talk.contains("root") || talk.contains("sudo"), "{talk}");
        return;
    }
    let Some(test) = KernelTest::new("ksession-nobody") else { return };
    let theirs = test.fixture.path("theirs");
    fs::create_dir(&theirs).expect("a folder");
    for folder in [&theirs, &test.fixture.window_dir().to_owned()] {
        std::os::unix::fs::chown(folder, Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
    }
    let mut create = test.command("session create k --kernel sched_switch");
    create.current_dir(&theirs).env("TRACKWAY_RUN_DIR", theirs.join("run"));
    create.uid(OTHER_USER).gid(OTHER_USER);
    let output = create.output().expect("it runs");
    let talk = lossy_text(&output.stderr);
    assert!(!output.status.success(), "{talk}");
    assert!(talk.contains("hint: ") && talk.contains("root"), "{talk}");
    assert!(!theirs.join("run/k.sock").exists());
}

/// Starts `trackway record OPTIONS -o trace` of a program that makes a hundred calls in each of
/// these rounds. The program begins a round at a line from its pipe, and ends when the pipe is
/// closed. Returns the recorder, its session, and a function that starts a round and returns after
/// its calls.
fn start_recorded_rounds<'test>(
    test: &'test KernelTest,
    options: &str,
    rounds: &str,
) -> (Child, String, impl FnMut(usize) + use<'test>) {
    let script = format!(
        "for n in {rounds}; do read x; \"$0\" 100 $(($1 + ${{n}}00)); : > done-$n; done; read x; :"
    );
    let mut record = test.command(&format!("record {options} -o trace"));
    record.args(["--", "sh", "-c", &script]).arg(&test.program);
    record.arg(test.first().0.to_string());
    record.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut record = record.spawn().expect("trackway runs");
    let session = format!("record-{}", record.id());
    let is_there = || test.command(&format!("session status {session}")).output().expect("it runs");
    wait_for("the session", || is_there().status.success());
    let mut input = record.stdin.take().expect("a pipe");
    let go_on = move |round: usize| {
        std::io::Write::write_all(&mut input, b"\n").expect("it reads");
        let done = test.fixture.path(&format!("done-{round}"));
        wait_for("the calls", || done.exists());
    };
    (record, session, go_on)
}

/// RUN stop, start, clear and snapshot while `trackway record` also records the kernel. EXPECT
/// these requests to apply to kernel events as to the program's events.
#[test]
fn record_is_told_what_to_do_with_the_kernels_events() {
    let Some(test) = KernelTest::new("ksession-record") else { return };
    let options = "--kernel syscalls:getpgid --flight-recorder";
    let (record, session, mut go_on) = start_recorded_rounds(&test, options, "0 1 2 3 4");
    go_on(0);
    test.ok(&format!("session clear {session}"));
    go_on(1);
    test.ok(&format!("session stop {session}"));
    go_on(2);
    test.ok(&format!("session start {session}"));
    go_on(3);
    test.ok(&format!("session snapshot {session} -o shot"));
    let kernel = test.status(&session)["kernel"].clone();
    assert_eq!(kernel["recorded"], 400, "{kernel}");
    go_on(4);
    drop(go_on);
    let output = record.wait_with_output().expect("a child");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success() && talk.contains("kernel: 600 events recorded"), "{talk}");
    test.check("shot", (100..200).chain(300..400));
    test.check("trace", (100..200).chain(300..500));
}

/// RUN a flight recorder by tracefs, a snapshot, more calls, and its end, while the kernel's
/// buffers cannot be read. EXPECT the events of the snapshot in the trace, and the later events
/// counted.
#[test]
fn a_snapshot_is_written_though_later_events_cannot_be_read() {
    let Some(test) = super::tracefs::tracefs_test("ksession-held") else { return };
    if !has("strace") {
        report_skipped("strace is not installed");
        return;
    }
    let options = "--kernel syscalls:getpgid --kernel-backend tracefs --flight-recorder";
    let (record, session, mut go_on) = start_recorded_rounds(&test, options, "0 1");
    go_on(0);
    test.ok(&format!("session snapshot {session} -o shot"));
    go_on(1);
    let ours = format!("trackway-{}-", record.id());
    let instances = fs::read_dir("/sys/kernel/tracing/instances").expect("instances").flatten();
    let instance = instances
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().contains(&ours))
        .expect("its instance");
    let mut strace = test.fixture.command("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=read"]);
    strace.args(["-e", "inject=read:error=EIO"]);
    for cpu in fs::read_dir(instance.join("per_cpu")).expect("CPUs").flatten() {
        strace.arg("-P").arg(cpu.path().join("trace_pipe_raw"));
    }
    let strace = strace.args(["-p", &record.id().to_string()]).spawn().expect("strace runs");
    let status = format!("/proc/{}/status", record.id());
    let tracer = format!("TracerPid:\t{}\n", strace.id());
    wait_for("strace", || fs::read_to_string(&status).expect("it runs").contains(&tracer));
    // The command waits for the end of this pipe.
    drop(go_on);
    let output = record.wait_with_output().expect("a child");
    let mut strace = strace;
    assert!(strace.wait().expect("it ends with it").success());
    let talk = lossy_text(&output.stderr);
    assert!(talk.contains("kernel: 200 events recorded, 200 lost"), "{talk}");
    test.check("shot", 0..100);
    test.check("trace", 0..100);
}

/// RUN record without a command, and Ctrl-C. EXPECT all events until then, and a summary without
/// user events, which were not requested.
#[test]
fn record_without_a_command_records_everything_until_it_is_told_to_end() {
    let Some(test) = KernelTest::new("ksession-endless") else { return };
    if !has("perl") {
        report_skipped("perl is not installed");
        return;
    }
    let mut record = test.command("record --kernel syscalls:getpgid -o trace");
    let record = record.stderr(Stdio::piped()).spawn().expect("trackway runs");
    let session = format!("kernel-{}", record.id());
    wait_for("the session", || {
        test.command(&format!("session status {session}"))
            .output()
            .expect("it runs")
            .status
            .success()
    });
    let mut plain = test.fixture.command("perl");
    let script = format!("syscall(121, {} + $_) for 0..99", test.first().1);
    plain.args(["-e", &script]);
    assert!(plain.status().expect("perl runs").success());
    send_signal(i32::try_from(record.id()).expect("a process id"), libc::SIGINT);
    let output = record.wait_with_output().expect("a child");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert!(!talk.contains("trackway: 0 events recorded"), "{talk}");
    assert!(talk.contains("trackway: kernel: ") && talk.contains(" bytes in "), "{talk}");
    test.check("trace", 0..100);
    let talk = test.refused("record -o none");
    assert!(talk.contains("<CMD>"), "{talk}");
}

/// RUN record for two processes, of which one ends after the other. EXPECT both to be recorded, and
/// the recording to end with the last process.
#[test]
fn record_of_processes_ends_when_they_have() {
    let Some(test) = KernelTest::new("ksession-ends") else { return };
    let mut shells = [0, 1].map(|n| test.shell(&format!("read x; \"$0\" 100 $(($1 + {n}00))")));
    let pids = format!("{},{}", shells[0].pid(), shells[1].pid());
    let mut record = test.command(&format!("record --kernel syscalls:getpgid --pid {pids} -o two"));
    let mut record = record.stderr(Stdio::piped()).spawn().expect("trackway runs");
    let session = format!("kernel-{}", record.id());
    let has_begun = || test.command(&format!("session status {session}")).output();
    wait_for("the session", || has_begun().expect("it runs").status.success());
    for shell in &mut shells {
        assert!(record.try_wait().expect("a child").is_none(), "one of them is there still");
        shell.go_on();
        shell.wait();
    }
    let output = record.wait_with_output().expect("a child");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success() && talk.contains("kernel: 400 events recorded"), "{talk}");
    test.check("two", 0..200);
    let talk = test.refused("record --pid 1");
    assert!(talk.contains("--kernel <LIST>") && !talk.contains("  <CMD>"), "{talk}");
    let nothing = test.ok("record --kernel syscalls,!syscalls:* -o none -- true").1;
    assert!(nothing.contains("no event of the kernel is recorded"), "{nothing}");
}

/// RUN record --user. EXPECT the command to run as that user, the trace to belong to that user, and
/// a refusal for every user but root.
#[test]
fn the_command_runs_as_the_user_who_is_named_and_the_trace_is_theirs() {
    let Some(test) = KernelTest::new("ksession-user") else { return };
    let theirs = test.fixture.path("theirs");
    fs::create_dir(&theirs).expect("a folder");
    for folder in [&theirs, &test.fixture.window_dir().to_owned()] {
        std::os::unix::fs::chown(folder, Some(OTHER_USER), Some(OTHER_USER)).expect("root may");
    }
    let record = |user: &str| {
        let mut record = test.command("record --kernel syscalls:getpgid -o theirs/trace --user");
        record.arg(user).args(["--", "sh", "-c", "id -u; echo $USER; exit 3"]);
        record.env("TRACKWAY_RUN_DIR", theirs.join("run"));
        record
    };
    for user in ["nobody", "65534"] {
        let output = record(user).output().expect("it runs");
        let talk = lossy_text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{talk}");
        assert_eq!(lossy_text(&output.stdout), "65534\nnobody\n", "{talk}");
        assert!(talk.contains("recording as nobody"), "{talk}");
        for folder in ["trace/kernel", "trace/ust"] {
            let status = fs::metadata(theirs.join(folder)).expect("a folder");
            assert_eq!(status.uid(), OTHER_USER, "{folder}");
        }
    }
    let unknown = record("no-such-user").output().expect("it runs");
    assert!(lossy_text(&unknown.stderr).contains("there is no user 'no-such-user'"));
    let mut other = test.command("record --user root -- true");
    other.uid(OTHER_USER).gid(OTHER_USER).current_dir(&theirs);
    let talk = lossy_text(&other.output().expect("it runs").stderr);
    assert!(talk.contains("only root runs commands as another user"), "{talk}");
}

/// RUN a command with few file descriptors, and a larger number of kernel events. EXPECT enough
/// descriptors for the command and the recorder.
#[test]
fn many_events_need_no_descriptors_of_the_commands() {
    let Some(test) = KernelTest::new("ksession-limit") else { return };
    let trackway = build_dir().join("trackway");
    let mut limited = test.fixture.command("sh");
    let script = "ulimit -Sn 40; exec \"$0\" record --kernel 'sched_*' --system-wide -o trace -- \
                  sh -c 'ulimit -Sn'";
    let output = limited.args(["-c", script]).arg(trackway).output().expect("sh runs");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success() && talk.contains("kernel: "), "{talk}");
    assert_eq!(lossy_text(&output.stdout), "40\n");
    assert!(!test.lines("trace").is_empty());
}

/// RUN record with an impossible buffer size. EXPECT a message with the possible sizes.
#[test]
fn sizes_that_the_kernels_buffers_cannot_have_are_told() {
    let Some(test) = KernelTest::new("ksession-size") else { return };
    for (size, is_said) in [("300K", true), ("256K", false)] {
        let line =
            format!("record --kernel syscalls:getpgid --buffer-size {size} -o trace -- true");
        let talk = test.ok(&line).1;
        assert_eq!(talk.contains("256.0 KiB for each CPU, not 300.0 KiB"), is_said, "{talk}");
        assert!(!talk.contains("0 events recorded, 0 lost, 0 process"), "{talk}");
    }
}
