//! Death of a recorder of kernel events while it records: none of its objects stays in the kernel,
//! the written part is a complete trace, and recovery reports the missing part.
//!
//! The recorder's programs and maps are identified by the kernel's ids, read from its own file
//! descriptors while it lives. So other processes' objects do not matter, and a test that finds no
//! objects cannot pass. The kernel increments the ids and never uses one twice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use trackway_tests::steps::{is_running, send_signal, wait_for};
use trackway_tests::{Fixture, build_dir, has, has_kernel_events, is_root, report_skipped};

/// Kinds of BPF objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BpfObjectKind {
    Program,
    Map,
    Link,
}

impl BpfObjectKind {
    const ALL: [Self; 3] = [Self::Program, Self::Map, Self::Link];

    /// Returns the command `BPF_…_GET_NEXT_ID` (include/uapi/linux/bpf.h).
    const fn next_id(self) -> libc::c_int {
        match self {
            Self::Program => 11,
            Self::Map => 12,
            Self::Link => 31,
        }
    }

    /// Returns the word before the object's id in /proc/PID/fdinfo.
    const fn word(self) -> &'static str {
        match self {
            Self::Program => "prog_id:",
            Self::Map => "map_id:",
            Self::Link => "link_id:",
        }
    }
}

/// A BPF object, by its kind and id.
type BpfObject = (BpfObjectKind, u32);

/// Returns all BPF objects of the machine.
fn kernel_objects() -> BTreeSet<BpfObject> {
    let mut all = BTreeSet::new();
    for kind in BpfObjectKind::ALL {
        // `start_id`, `next_id`, `open_flags` of `union bpf_attr`.
        let mut attribute = [0_u32; 3];
        loop {
            // SAFETY: the attribute has the passed length, and the kernel writes only there.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_bpf,
                    kind.next_id(),
                    attribute.as_mut_ptr(),
                    size_of_val(&attribute),
                )
            };
            if result != 0 {
                let error = std::io::Error::last_os_error();
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{kind:?}: {error}");
                break;
            }
            all.insert((kind, attribute[1]));
            attribute[0] = attribute[1];
        }
    }
    all
}

/// Returns the BPF objects that a process holds by its file descriptors.
fn open_objects(pid: u32) -> BTreeSet<BpfObject> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        // A descriptor may be closed during the iteration.
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        for line in text.lines() {
            let number = |kind: BpfObjectKind| line.strip_prefix(kind.word())?.trim().parse().ok();
            // The lines of a link also name its program.
            all.extend(
                BpfObjectKind::ALL.into_iter().filter_map(|kind| Some((kind, number(kind)?))),
            );
        }
    }
    all
}

/// Returns Trackway's private tracefs instances and its mounts of tracefs, with their numbers.
fn find_private_tracefs() -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let is_ours = |line: &&str| line.contains("trackway");
    let mut all: BTreeSet<String> = mounts.lines().filter(is_ours).map(str::to_owned).collect();
    for root in ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"] {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        all.extend(names.filter(|name| name.contains("trackway")));
    }
    all
}

/// A recorder, and the program that it records; both end when this value is dropped.
struct RecordedProgram<'fixture> {
    fixture: &'fixture Fixture,
    recorder: Child,
    program: u32,
}

impl<'fixture> RecordedProgram<'fixture> {
    /// Starts a recorder; returns `None`, after printing the reason, if kernel events cannot be
    /// recorded.
    fn start(fixture: &'fixture Fixture, options: &[&str]) -> Option<Self> {
        if !has_kernel_events(fixture) {
            return None;
        }
        let program = fixture.compile_file("kernel/paced.c", false, &[]);
        let mut record =
            fixture.trackway(&["record", "--kernel", "syscalls:getpgid", "-o", "trace"]);
        record.args(options).arg("--").arg(program);
        record.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let recorder = record.spawn().expect("trackway runs");
        let mut scene = Self { fixture, recorder, program: 0 };
        let pid = scene.recorder.id();
        wait_for("the program", || {
            scene.program = child_of(pid).unwrap_or(0);
            scene.program != 0 && process_has_name(scene.program, "paced")
        });
        Some(scene)
    }

    /// Returns the number of bytes in the trace's kernel streams so far.
    fn written(&self) -> u64 {
        let entries =
            fs::read_dir(self.fixture.path("trace/kernel")).into_iter().flatten().flatten();
        let streams = entries.filter(|entry| entry.file_name() != "metadata");
        streams.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
    }

    /// Kills the recorder, and waits until none of its objects is left in the kernel.
    fn kill(&mut self) {
        let ours = open_objects(self.recorder.id());
        let count = |kind: BpfObjectKind| ours.iter().filter(|thing| thing.0 == kind).count();
        // There are programs for entry and exit of calls and for the scope; maps for buffers and
        // other data.
        assert!(count(BpfObjectKind::Program) >= 3 && count(BpfObjectKind::Map) >= 3, "{ours:?}");
        assert!(ours.is_subset(&kernel_objects()), "the kernel lists what is held: {ours:?}");
        send_signal(self.recorder.id().cast_signed(), libc::SIGKILL);
        self.recorder.wait().expect("it ends");
        wait_for("the kernel to forget all of it", || kernel_objects().is_disjoint(&ours));
        assert!(is_running(self.program), "the program goes on");
    }

    fn recover(&self) -> String {
        let output = self.fixture.trackway(&["recover"]).output().expect("it runs");
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{talk}");
        talk
    }
}

impl Drop for RecordedProgram<'_> {
    fn drop(&mut self) {
        send_signal(self.recorder.id().cast_signed(), libc::SIGKILL);
        let _ = self.recorder.wait();
        // The program is an orphan, but its name identifies it: it was compiled in this fixture.
        if self.program != 0 && process_has_name(self.program, "paced") {
            send_signal(self.program.cast_signed(), libc::SIGKILL);
        }
    }
}

fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn process_has_name(pid: u32, name: &str) -> bool {
    let found = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    found.trim_end() == name
}

/// Returns the lines that `print` writes of the trace. If babeltrace2 is installed, its lines must
/// be equal.
fn printed_lines(fixture: &Fixture) -> Vec<String> {
    let trace = fixture.path("trace");
    let printed = fixture.print(&trace);
    if has("babeltrace2") {
        let mut babeltrace = Command::new("babeltrace2");
        let theirs = babeltrace.arg(&trace).output().expect("it runs");
        assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stderr));
        assert!(theirs.stdout == printed.as_bytes(), "babeltrace2 prints something else");
    }
    printed.lines().map(str::to_owned).collect()
}

/// Returns true if a folder contains a trace of the kernel.
fn has_kernel_metadata(trace: &Path) -> bool {
    trace.join("kernel/metadata").is_file()
}

/// KILL a recorder that has written a lot. EXPECT its programs, maps, instances and mounts to be
/// released, every call from the first to the last written one, entry and exit, and a message that
/// later calls are missing.
#[test]
fn a_killed_recorder_leaves_a_whole_trace_and_nothing_in_the_kernel() {
    let fixture = Fixture::new("kernel-killed");
    let before = find_private_tracefs();
    let Some(mut scene) = RecordedProgram::start(&fixture, &["--buffer-size=32M"]) else { return };
    wait_for("some sub-buffers", || scene.written() > 8 << 16);
    scene.kill();
    wait_for("instances and mounts to be as before", || find_private_tracefs().is_subset(&before));
    for when in ["killed", "recovered"] {
        let lines = printed_lines(&fixture);
        assert!(lines.len() > 10_000, "{when}: {} lines", lines.len());
        for (number, line) in lines.iter().enumerate() {
            let expected = match number % 2 {
                0 => format!("pid = {} }}", 1_000_000_000 + number / 2),
                _ => "ret = -3 }".to_owned(),
            };
            assert!(line.ends_with(&expected), "{when}, line {number}: {line}, not {expected}");
        }
        if when == "killed" {
            let talk = scene.recover();
            assert!(talk.contains("what was in buffers when the recorder was killed"), "{talk}");
        }
    }
}

/// KILL a flight recorder that has written nothing yet. EXPECT a valid trace without kernel events,
/// and a message about their absence.
#[test]
fn a_killed_flight_recorder_leaves_nothing_of_the_kernels_and_that_is_said() {
    let fixture = Fixture::new("kernel-killed-flight");
    let Some(mut scene) = RecordedProgram::start(&fixture, &["--flight-recorder"]) else { return };
    assert!(has_kernel_metadata(&fixture.path("trace")));
    scene.kill();
    let talk = scene.recover();
    assert!(talk.contains("what was in buffers when the recorder was killed"), "{talk}");
    assert_eq!(printed_lines(&fixture), Vec::<String>::new());
}

/// INTERRUPT a recorder that is still preparing. EXPECT it to end by the signal, to report what it
/// left behind, no command and no trace, and the release of its kernel objects.
#[test]
fn a_recorder_interrupted_early_leaves_nothing_in_the_kernel() {
    /// The recorder may be ready before it is interrupted.
    const TRIES: usize = 20;
    /// Number of tracepoints that exceeds those of the recorder's test of its rights, and is far
    /// below the final number.
    const TRACEPOINTS_MIN: usize = 20;
    let fixture = Fixture::new("kernel-interrupted");
    if !has_kernel_events(&fixture) {
        return;
    }
    for _ in 0..TRIES {
        let mut record = fixture.trackway(&["record", "--kernel", "*", "-o", "trace"]);
        record.args(["--", "touch", "ran"]).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut recorder = record.spawn().expect("trackway runs");
        let pid = recorder.id();
        // The recorder runs only between checks, however long a check takes.
        wait_for("some tracepoints", || {
            send_signal(pid.cast_signed(), libc::SIGSTOP);
            let is_there = count_open_tracepoints(pid) > TRACEPOINTS_MIN
                || !matches!(recorder.try_wait(), Ok(None));
            if !is_there {
                send_signal(pid.cast_signed(), libc::SIGCONT);
            }
            is_there
        });
        let ours = open_objects(pid);
        // Not SIGINT: a shell's background processes ignore it.
        send_signal(pid.cast_signed(), libc::SIGTERM);
        send_signal(pid.cast_signed(), libc::SIGCONT);
        let output = recorder.wait_with_output().expect("it ends");
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.signal() != Some(libc::SIGTERM) {
            println!("too late: {talk}");
            continue;
        }
        let is_said =
            talk.contains("a process 'trackway-detach' waits until the kernel has let go");
        assert!(is_said, "{talk}");
        assert!(
            !ours.is_empty() && !fixture.path("ran").exists() && !fixture.path("trace").exists()
        );
        wait_for("the kernel to forget all of it", || kernel_objects().is_disjoint(&ours));
        return;
    }
    panic!("it was never interrupted in time");
}

/// KILL a recorder of many tracepoints, and RECORD at once. EXPECT the next recording to be
/// complete, although the kernel is still releasing the first recorder's objects, and the first
/// trace to be completed.
#[test]
fn a_recorder_misses_nothing_while_the_kernel_releases_another() {
    /// Some of these events are read from their arguments, without a tracepoint to release.
    const MANY_TRACEPOINTS: &str = "b*,k*";
    let fixture = Fixture::new("kernel-leaving");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/paced.c", false, &[]);
    let mut record =
        fixture.trackway(&["record", "--kernel", MANY_TRACEPOINTS, "--kernel-only", "-o", "trace"]);
    record.arg("--").arg(&program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let recorder = record.spawn().expect("trackway runs");
    let mut scene = RecordedProgram { fixture: &fixture, recorder, program: 0 };
    let pid = scene.recorder.id();
    wait_for("the program", || {
        scene.program = child_of(pid).unwrap_or(0);
        scene.program != 0 && process_has_name(scene.program, "paced")
    });
    let count = count_open_tracepoints(pid);
    assert!(count > 50, "{count}");
    send_signal(pid.cast_signed(), libc::SIGKILL);
    let mut next = fixture.trackway(&["record", "--kernel", "syscalls:getpid,sched_process_exec"]);
    next.args(["--kernel-only", "-o", "next", "--", "sh", "-c", "exec true"]);
    let output = next.output().expect("it runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{talk}");
    let printed = fixture.print(&fixture.path("next"));
    assert_eq!(printed.matches(" sched_process_exec: ").count(), 2, "{printed}");
    // The next command completed the trace; or this command does, if the kernel was still releasing
    // the recorder's objects then.
    scene.recorder.wait().expect("it ends");
    let output = fixture.trackway(&["recover", "trace"]).output().expect("it runs");
    assert!(output.status.success());
    assert!(fixture.path("trace/kernel/trackway/complete").is_file());
}

/// Returns the number of tracepoints that a process has open.
fn count_open_tracepoints(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("[perf_event]")).count()
}

/// KILL the bench while it has an ftrace instance. EXPECT that neither the instance nor the bench's
/// folders remain.
#[test]
fn a_killed_bench_leaves_no_instance_and_no_folder() {
    const SCRIPT: &str = "
        instances=/sys/kernel/tracing/instances
        [ -d $instances ] || mount -t tracefs nodev /sys/kernel/tracing || exit 90
        \"$1\" bench syscall --quick --tracers ftrace --out \"$2\" >/dev/null 2>&1 & bench=$!
        i=0; until [ -d $instances/trackway-lab-$bench-kernel ]; do
            kill -0 $bench 2>/dev/null && [ $i -lt 2000 ] || exit 91; sleep 0.02; i=$((i+1))
        done
        [ -n \"$(ls $TMPDIR)\" ] || exit 92
        kill -9 $bench
        i=0; while [ -d $instances/trackway-lab-$bench-kernel ] || [ -n \"$(ls $TMPDIR)\" ]; do
            [ $i -lt 2000 ] || exit 93; sleep 0.02; i=$((i+1))
        done";
    let fixture = Fixture::new("kernel-bench");
    if !is_root() {
        return report_skipped("only root traces the kernel");
    }
    let folder = fixture.path("scratch");
    fs::create_dir(&folder).expect("a folder");
    let mut command = fixture.command("unshare");
    command.args(["-m", "sh", "-c", SCRIPT, "sh"]).arg(build_dir().join("trackway"));
    let status =
        command.arg(fixture.path("results")).env("TMPDIR", &folder).status().expect("unshare runs");
    match status.code() {
        Some(90) => report_skipped("tracefs cannot be mounted here"),
        code => assert_eq!(code, Some(0), "91: no instance, 92: no folder, 93: they stay"),
    }
}
