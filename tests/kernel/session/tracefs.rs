//! Sessions of kernel events in which BPF is refused, so that tracefs records the events.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use trackway_tests::cgroup::TestCgroup;
use trackway_tests::steps::wait_for;
use trackway_tests::{build_dir, has, lossy_text, report_skipped};

use super::kernel_test::{KernelTest, stream_file_sizes};

/// Makes a fixture, if kernel sessions are possible without BPF.
pub(crate) fn tracefs_test(name: &str) -> Option<KernelTest> {
    let test = KernelTest::new(name)?;
    if !Path::new("/sys/kernel/tracing/instances").is_dir() {
        report_skipped("tracefs is not mounted at /sys/kernel/tracing");
        return None;
    }
    if !has("capsh") {
        report_skipped("capsh is not installed");
        return None;
    }
    Some(test)
}

/// A process that makes calls on request.
pub(crate) struct CallingProcess {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl CallingProcess {
    pub(crate) fn new(test: &KernelTest) -> Self {
        const SCRIPT: &str = "while read count first; do \"$0\" $count $(($1 + first)); echo; done";
        let mut shell = test.fixture.command("sh");
        shell.args(["-c", SCRIPT]).arg(&test.program).arg(test.first().0.to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let (input, output) = (shell.stdin.take(), shell.stdout.take());
        let output = BufReader::new(output.expect("a pipe"));
        Self { shell, input: input.expect("a pipe"), output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// Makes calls with these numbers; returns after the calls.
    pub(crate) fn calls(&mut self, numbers: Range<u64>) {
        let count = numbers.end - numbers.start;
        writeln!(self.input, "{count} {}", numbers.start).expect("it reads");
        self.output.read_line(&mut String::new()).expect("it answers");
    }
}

impl Drop for CallingProcess {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A process that is ended when this value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the arguments of `capsh` that run `trackway session create k LINE` in a shell without
/// the right to use BPF.
fn create_arguments(line: &str) -> [String; 4] {
    let trackway = build_dir().join("trackway");
    let command = format!("{} session create k {line}", trackway.display());
    let drop = "--drop=cap_bpf,cap_perfmon,cap_sys_admin";
    [drop.into(), "--".into(), "-c".into(), command]
}

/// Creates a session by the command of [`creating`].
pub(crate) fn create_without_bpf(test: &KernelTest, line: &str) {
    let output = test.fixture.command("capsh").args(create_arguments(line)).output();
    let output = output.expect("capsh runs");
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let said = test.status("k")["notices"].to_string();
    assert!(said.contains("recorded by tracefs, since BPF is refused"), "{said}");
}

/// RUN a session of one process that does not start at once; start, stop, clear, status, and calls
/// of that process and of others in between. EXPECT the right calls as soon as the answer arrives;
/// the counts; and events enabled and disabled from then on.
#[test]
fn a_session_by_tracefs_stops_starts_clears_changes_and_says_how_it_goes() {
    let Some(test) = tracefs_test("ksession-tracefs") else { return };
    let mut caller = CallingProcess::new(&test);
    let pid = caller.pid();
    create_without_bpf(
        &test,
        &format!(
            "--kernel syscalls:getpgid --filter 'syscalls:sys_enter_getpgid: count() >= 0' \
             --no-start --pid {pid} --tracefile-size 64K --tracefile-count 2 -o trace"
        ),
    );
    caller.calls(0..100);
    test.ok("session start k");
    caller.calls(100..200);
    test.calls(5000..5100);
    test.ok("session stop k");
    // The trace is complete when the answer arrives.
    test.check("trace", 100..200);
    caller.calls(1000..1100);
    let kernel = test.status("k")["kernel"].clone();
    let numbers = ["events", "recorded", "lost", "overwritten"].map(|name| kernel[name].as_u64());
    assert_eq!(numbers, [Some(2), Some(200), Some(0), Some(0)], "{kernel}");
    assert!(kernel["bytes"].as_u64() > Some(200 * 16), "{kernel}");
    assert!(kernel["memory-bytes"].as_u64() > Some(1 << 20), "{kernel}");
    test.ok("session start k");
    test.ok("session clear k");
    assert!(stream_file_sizes(&test.fixture.path("trace/kernel")).is_empty());
    caller.calls(200..20_200);
    test.ok("event off k --kernel sys_exit_getpgid");
    caller.calls(20_200..20_210);
    test.ok("event on k --kernel syscalls:openat,sys_exit_getpgid");
    caller.calls(20_210..20_220);
    assert_eq!(test.status("k")["kernel"]["events"], 4);
    let talk = test.ok("session destroy k").1;
    assert!(talk.contains("made room for newer ones"), "{talk}");
    let files = stream_file_sizes(&test.fixture.path("trace/kernel"));
    assert!(!files.is_empty() && files.iter().all(|(_, size)| *size <= 64 << 10), "{files:?}");
    let lines = test.lines("trace");
    let numbers = test.numbers(&lines);
    assert!(numbers.ends_with(&[20_218, 20_219]) && numbers.len() < 20_000, "{}", numbers.len());
    // The disabled event is absent; the event that was enabled is present, and lists its missing
    // fields.
    let at = |number: u64| lines.iter().position(|line| test.number(line) == Some(number));
    let between = |from, to| &lines[at(from).expect("a call")..at(to).expect("a call")];
    assert!(!between(20_200, 20_209).iter().any(|line| line.contains("exit_getpgid")));
    let behind = between(20_210, 20_219);
    assert_eq!(behind.iter().filter(|line| line.contains("exit_getpgid")).count(), 9);
    assert!(lines.iter().any(|line| line.contains("syscall_entry_openat: ")));
    let metadata = fs::read_to_string(test.fixture.path("trace/kernel/metadata")).expect("text");
    assert!(metadata.contains("trackway_empty_fields = \"syscall_entry_openat:filename"));
}

/// RUN a flight recorder, with snapshots and calls between them. EXPECT in each snapshot all events
/// of the buffers, each event once in both together, the newest events after the buffer wrapped,
/// and no event from before a clear. (The session records one process: otherwise the calls of other
/// programs would overwrite its calls.)
#[test]
fn snapshots_by_tracefs_have_what_is_in_the_buffers() {
    let Some(test) = tracefs_test("ksession-tracefs-flight") else { return };
    let mut caller = CallingProcess::new(&test);
    let options = "--kernel syscalls:getpgid --flight-recorder --buffer-size 128K -o flight --pid";
    create_without_bpf(&test, &format!("{options} {}", caller.pid()));
    caller.calls(0..200);
    test.ok("session snapshot k");
    caller.calls(200..500);
    test.ok("session snapshot k");
    for (trace, until) in [("flight/snapshot-1", 200), ("flight/snapshot-2", 500)] {
        test.check(trace, 0..until);
    }
    test.ok("merge flight/snapshot-1 flight/snapshot-2 -o merged");
    test.check("merged", 0..500);
    caller.calls(500..30_000);
    test.ok("session snapshot k");
    let newest = test.numbers(&test.lines("flight/snapshot-3"));
    assert!(newest.len() < 29_000 && newest.ends_with(&[29_998, 29_999]), "{}", newest.len());
    assert!(newest.windows(2).all(|two| two[0] < two[1]));
    let kernel = test.status("k")["kernel"].clone();
    assert!(kernel["overwritten"].as_u64() > Some(20_000), "{kernel}");
    test.ok("session clear k");
    caller.calls(30_000..30_100);
    test.ok("session snapshot k --last 1h");
    test.check("flight/snapshot-4", 30_000..30_100);
    test.ok("session destroy k");
    assert!(!test.fixture.path("flight/kernel").exists());
}

/// RUN changes of filters during the recording: for enabled events, for events that are enabled
/// with the filter, to no filter, and to invalid ones. EXPECT the filter at the time of each call
/// to decide, also in a flight recorder, which is read later.
#[test]
fn filters_by_tracefs_change_while_it_records() {
    let Some(test) = tracefs_test("ksession-tracefs-anew") else { return };
    let (_, first) = test.first();
    let on = |patterns: &str, filter: &str| {
        let mut on = test.command("event on k --kernel");
        on.args(patterns.split(' ')).args(["--filter", filter]).output().expect("it runs")
    };
    for flight in [false, true] {
        let line = "--kernel sched_process_exec --filter 'sched_process_exec: tid >= 0' -o";
        let line = match flight {
            true => format!("{line} flight --flight-recorder"),
            false => format!("{line} trace"),
        };
        create_without_bpf(&test, &line);
        let entry = "syscalls:sys_enter_getpgid";
        let seven = format!("pid == {}", first + 7);
        assert!(on(entry, &seven).status.success());
        test.calls(0..100);
        let refused = on(entry, "no_field == 7");
        let talk = lossy_text(&refused.stderr);
        assert!(!refused.status.success() && talk.contains("no_field"), "{talk}");
        test.calls(0..10);
        // Another filter, with an event that was never enabled; the entry, which lacks the field,
        // is dropped.
        let done = on("syscalls:getpgid", "ret == -3 && count() % 2 == 1");
        let talk = lossy_text(&done.stderr);
        assert!(done.status.success(), "{talk}");
        assert_eq!(test.status("k")["kernel"]["events"], 2, "exec, and the call's exit");
        test.calls(0..30);
        // The event is enabled again, with state in its filter.
        assert!(on("syscalls:getpgid", "").status.success());
        assert_eq!(test.status("k")["kernel"]["events"], 3);
        let some = format!("pid >= {first} && pid < {} && count() < 3", first + 1000);
        assert!(on(entry, &some).status.success());
        test.calls(20..40);
        let filters = test.status("k")["kernel"]["spec"]["filters"].to_string();
        assert!(filters.contains(&some) && !filters.contains(&seven), "{filters}");
        assert!(on(entry, "").status.success());
        test.calls(50..53);
        let trace = if flight { "flight/snapshot-1" } else { "trace" };
        if flight {
            test.ok("session snapshot k");
        }
        let talk = test.ok("session destroy k").1;
        assert!(!talk.contains("made no sense"), "{talk}");
        let lines = test.lines(trace);
        let numbers = test.numbers(&lines);
        assert_eq!(numbers, [7, 7, 20, 21, 22, 50, 51, 52], "{flight} {talk}");
        let tid = |line: &str| line.split_once("{ tid = ")?.1.split(' ').next().map(str::to_owned);
        let ours = lines.iter().filter(|line| test.number(line).is_some());
        let ours: Vec<String> = ours.filter_map(|line| tid(line)).collect();
        let exits = lines.iter().filter(|line| line.contains(" syscall_exit_getpgid: "));
        let exits = exits.filter(|line| tid(line).is_some_and(|tid| ours.contains(&tid))).count();
        assert!(exits > 0, "{lines:?}");
        assert!(lines.iter().any(|line| line.contains(" sched_process_exec: ")));
    }
}

/// RUN a session by tracefs and follow it. EXPECT its events while it continues, and the follower
/// to end with the session.
#[test]
fn a_follower_of_a_session_by_tracefs_shows_its_events() {
    let Some(test) = tracefs_test("ksession-tracefs-follow") else { return };
    create_without_bpf(&test, "--kernel syscalls:getpgid -o trace");
    let shown = test.fixture.path("shown");
    let mut follow = test.command("print --follow k");
    follow.stdout(fs::File::create(&shown).expect("a file"));
    let mut follow = follow.spawn().expect("trackway runs");
    for round in 0..3 {
        test.calls(round * 10..round * 10 + 10);
        let seen = || {
            let text = fs::read_to_string(&shown).expect("a file");
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            test.numbers(&lines)
        };
        wait_for("the calls", || seen().into_iter().eq(0..(round + 1) * 10));
    }
    test.ok("session destroy k");
    assert!(follow.wait().expect("it ends with the session").success());
}

/// Returns the number before `words` in a text.
fn number_before(text: &str, words: &str) -> u64 {
    let number = text.split_once(words).and_then(|(before, _)| before.rsplit([' ', '\n']).next());
    let number = number.and_then(|number| number.replace(',', "").parse().ok());
    number.unwrap_or_else(|| panic!("no number before {words}: {text}"))
}

/// RUN a session whose disk is full, has space again, and is full at the end. EXPECT messages about
/// both; the events from the time with space; losses in some packet; and an otherwise complete
/// trace.
#[test]
fn a_full_disk_by_tracefs_is_waited_out_and_leaves_a_trace_that_is_marked() {
    let Some(test) = tracefs_test("ksession-tracefs-full") else { return };
    let disk = test.fixture.path("disk");
    fs::create_dir(&disk).expect("a folder");
    // A mount namespace hides the mount from other processes, and removes it with the shell.
    let script = "mount -t tmpfs -o size=2m trackway-test disk || exit 77; \
                  head -c 1500000 /dev/zero >disk/ballast; \
                  \"$@\"; cp -r disk/trace left; read line";
    let mut inside = test.fixture.command("unshare");
    inside.args(["-m", "sh", "-c", script, "sh", "capsh"]).args(create_arguments(
        "--foreground --kernel-only --kernel syscalls:getpgid --buffer-size 128K -o disk/trace",
    ));
    inside.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = inside.spawn().expect("unshare runs");
    let mut has_ended = false;
    wait_for("the session", || {
        has_ended = child.try_wait().expect("a child").is_some();
        has_ended || test.command("session status k").output().is_ok_and(|it| it.status.success())
    });
    if has_ended {
        return report_skipped("a tmpfs cannot be mounted here");
    }
    let said = |what: &str| {
        let status = test.status("k");
        let notices = status["notices"].as_array().expect("notices").clone();
        let said = notices.iter().filter_map(|line| line.as_str());
        said.filter(|line| line.contains(what)).count()
    };
    let mut next = 0;
    let mut fill = |times: usize| {
        wait_for("a full disk", || {
            // The calls are few, so that most are drained before the buffers are full.
            test.calls(next..next + 1000);
            next += 1000;
            said("cannot write kernel events: No space left on device") == times
        });
        next
    };
    fill(1);
    let ballast = format!("/proc/{}/root{}/ballast", child.id(), disk.display());
    fs::remove_file(ballast).expect("there is a ballast");
    wait_for("room", || said("kernel events are written again") == 1);
    test.calls(249_000..249_100);
    let last = fill(2);
    assert!(last < 249_000, "2 MiB hold fewer");
    test.ok("session destroy k");
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("a child");
    let talk = lossy_text(&output.stderr);
    let why = "the trace has not all of the kernel's events: No space left on device";
    assert!(talk.contains(why), "{talk}");
    let summary = talk.lines().find(|line| line.contains("kernel: ")).expect("one");
    let recorded = number_before(summary, " events recorded");
    let lost = number_before(summary, " lost");
    assert!(recorded > 0 && lost > 0 && recorded + lost >= 2 * (last + 100), "{summary}");
    let print = test.command("print left/kernel").output().expect("it runs");
    let talk = lossy_text(&print.stderr);
    assert!(print.status.success() && !talk.contains("complete"), "{talk}");
    let lines: Vec<String> = lossy_text(&print.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len() as u64, recorded, "{summary}");
    let mut there = test.numbers(&lines);
    there.retain(|number| (249_000..249_100).contains(number));
    let there = there.len();
    assert_eq!(there, 100, "what is recorded while there is room");
    let stats = test.ok("print --stats left/kernel").0;
    let told = stats.lines().find_map(|line| line.strip_prefix("lost: ")).expect("it is there");
    let told = told.split(' ').next().map(|told| told.replace(',', ""));
    assert_eq!(told, Some(lost.to_string()), "{summary}\n{stats}");
}

/// Returns the folder of the session's tracefs instance.
fn find_instance(test: &KernelTest) -> PathBuf {
    let recorder = test.status("k")["pid"].as_u64().expect("a process id");
    let instances = fs::read_dir("/sys/kernel/tracing/instances").expect("instances").flatten();
    let ours = format!("trackway-{recorder}-");
    let is_ours = |path: &PathBuf| path.to_string_lossy().contains(&ours);
    instances.map(|entry| entry.path()).find(is_ours).expect("its instance")
}

/// RUN a session of a control group whose member starts a child directly in another group. EXPECT
/// the child to be left out, though no scan has found it as a member, and the member to be
/// recorded.
#[test]
fn programs_started_into_another_cgroup_are_left_out() {
    let Some(test) = tracefs_test("ksession-tracefs-stranger") else { return };
    let Some(group) = TestCgroup::new("tracefs-stranger") else { return };
    let program = test.fixture.compile_file("kernel/stranger.c", false, &[]);
    create_without_bpf(
        &test,
        &format!("--kernel syscalls:getpgid --cgroup {} -o trace", group.path()),
    );
    let instance = find_instance(&test);
    let says = |list: &str, pid: u32| {
        let list = fs::read_to_string(instance.join(list)).expect("a list");
        list.lines().any(|line| line.trim() == pid.to_string())
    };
    let elsewhere = group.folder().parent().expect("a group").display().to_string();
    let script =
        format!("{} && read go && exec {} {elsewhere}", group.enter(""), program.display());
    let mut member = test.fixture.command("sh");
    member.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut member = ChildGuard(member.spawn().expect("a shell"));
    let pid = member.0.id();
    wait_for("the member is followed", || says("set_event_pid", pid));
    let mut input = member.0.stdin.take().expect("a pipe");
    writeln!(input, "go").expect("it reads");
    let mut stranger = String::new();
    let output = member.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut stranger).expect("it says");
    let stranger: i64 = stranger.trim().parse().expect("a number");
    if stranger < 0 {
        report_skipped("this kernel has no CLONE_INTO_CGROUP");
        return;
    }
    let stranger = stranger as u32;
    wait_for("the child is left out", || says("set_event_notrace_pid", stranger));
    assert!(says("set_event_pid", pid) && !says("set_event_notrace_pid", pid));
    drop(member);
    test.ok("session destroy k");
}

/// RUN a session of a control group, with a process that was in it before, and a process that
/// enters a group below, leaves and returns. EXPECT calls of members, once a scan has found them,
/// and no others; and a message with the number of new members.
#[test]
fn a_session_by_tracefs_follows_who_comes_into_a_cgroup_and_goes() {
    let Some(test) = tracefs_test("ksession-tracefs-cgroup") else { return };
    let Some(group) = TestCgroup::new("tracefs-follow") else { return };
    let (mut member, mut comer) = (CallingProcess::new(&test), CallingProcess::new(&test));
    let pid = comer.pid();
    group.take(member.pid(), "below");
    create_without_bpf(
        &test,
        &format!("--kernel syscalls:getpgid --cgroup {} -o trace", group.path()),
    );
    let instance = find_instance(&test);
    // Reads the process lists of the kernel.
    let says = |list: &str| {
        let list = fs::read_to_string(instance.join(list)).expect("a list");
        list.lines().any(|line| line.trim() == pid.to_string())
    };
    let is_followed = || says("set_event_pid") && !says("set_event_notrace_pid");
    member.calls(0..10);
    comer.calls(100..110);
    assert!(!is_followed());
    group.take(pid, "");
    wait_for("it is followed", is_followed);
    comer.calls(110..120);
    group.take(pid, "..");
    wait_for("it is not followed", || !is_followed());
    comer.calls(120..130);
    group.take(pid, "below");
    wait_for("it is followed again", is_followed);
    comer.calls(130..140);
    group.take(pid, "..");
    wait_for("it is not followed again", || !is_followed());
    comer.calls(140..150);
    member.calls(10..20);
    // (A background session prints its summary when it is destroyed.)
    let talk = test.ok("session destroy k").1;
    test.check("trace", (0..10).chain(110..120).chain(130..140).chain(10..20));
    assert!(talk.contains("apart at most: 2 threads came in meanwhile"), "{talk}");
    drop((member, comer));
}
