//! Scope of kernel events: a command and events about it, control groups, CPUs.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use trackway_tests::cgroup::TestCgroup;
use trackway_tests::{Fixture, has, has_kernel_events, lossy_text, report_skipped};

use crate::support::run_record;

/// Program that sends a byte back and forth: pong IN OUT COUNT answers; ping IN OUT COUNT begins,
/// in a child. Then the child makes a 32-bit system call, lets io_uring's thread open a file, and
/// lets another thread run `true` on its parent's CPU, so that the parent is preempted. Both
/// processes report their ids.
const PING_PONG_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* 1: there is no io_uring for us. */
static int open_elsewhere(void)
{
    struct io_uring_params params = { 0 };
    const int fd = syscall(SYS_io_uring_setup, 4, &params);
    if (fd < 0)
        return 1;
    const int access = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_POPULATE;
    char *ring = mmap(0, params.sq_off.array + 16, access, how, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(0, 4 * sizeof(*entry), access, how, fd, IORING_OFF_SQES);
    if (ring == MAP_FAILED || entry == MAP_FAILED)
        return 1;
    entry->opcode = IORING_OP_OPENAT;
    entry->fd = AT_FDCWD;
    entry->addr = (unsigned long)"/nowhere/ring";
    entry->flags = IOSQE_ASYNC;
    *(unsigned *)(ring + params.sq_off.tail) = 1;
    return syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1;
}

static sigjmp_buf otherwise;

static void no_such_call(int signal)
{
    siglongjmp(otherwise, signal);
}

/* dup2(2), and access(NULL), whose number that is, of 32 bits. 1: the kernel does not have it. */
static int call_narrow(void)
{
    long number = 33;
    if (syscall(SYS_dup2, -1, 0) != -1)
        return 2;
    signal(SIGSEGV, no_such_call);
    if (sigsetjmp(otherwise, 1))
        return 1;
    __asm__ volatile("int $0x80"
                     : "+a"(number)
                     : "b"(0L), "c"(0L)
                     : "memory", "r8", "r9", "r10", "r11");
    return 0;
}

static void *run_true(void *unused)
{
    execlp("true", "true", NULL);
    return unused;
}

int main(int argc, char **argv)
{
    char byte = 0, large[256];
    pthread_t thread;
    if (argc != 5)
        return 97;
    const int is_ping = !strcmp(argv[1], "ping");
    cpu_set_t all, one;
    if (is_ping) {
        sched_getaffinity(0, sizeof(all), &all);
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof(one), &one);
        printf("%d ", getpid());
        fflush(stdout);
        if (fork())
            return wait(NULL) < 0;
        sched_setaffinity(0, sizeof(all), &all);
    }
    const int in = open(argv[2], O_RDWR), out = open(argv[3], O_RDWR);
    for (int i = atoi(argv[4]); i > 0; i--) {
        if (is_ping && write(out, &byte, 1) != 1)
            return 98;
        if (read(in, &byte, 1) != 1)
            return 98;
        /* The other one sleeps by then, whoever runs where. */
        if (!is_ping && (usleep(50), write(out, &byte, 1) != 1))
            return 98;
    }
    if (is_ping) {
        sched_setaffinity(0, sizeof(one), &one);
        /* Structures of which only so many bytes are there. */
        memset(large, 0xaa, sizeof(large));
        syscall(SYS_clone3, large, 64);
        syscall(SYS_sched_getattr, 0, large, 48, 0);
        printf("%d %d %d\n", getpid(), open_elsewhere(), call_narrow());
        fflush(stdout);
        if (pthread_create(&thread, NULL, run_true, NULL))
            return 99;
        for (;;)
            pause();
    }
    return 0;
}
"#;

/// Returns the report of ping: the ids of its child and of itself, and whether io_uring and 32-bit
/// calls are unavailable.
fn parse_ping_report(output: &Output) -> (i64, i64, [bool; 2]) {
    let text = lossy_text(&output.stdout);
    let words: Vec<i64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [parent, child, no_ring, no_narrow] = words[..] else { panic!("it said {text}") };
    (child, parent, [no_ring != 0, no_narrow != 0])
}

/// Runs a recording; returns its output and the lines of its trace.
fn record_and_print(
    fixture: &Fixture,
    options: &[&str],
    command: &[&str],
) -> (Output, Vec<String>) {
    let output = run_record(fixture, options, command);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let printed = fixture.trackway(&["print", "trace"]).output().expect("it runs");
    assert!(printed.status.success(), "{}", lossy_text(&printed.stderr));
    (output, lossy_text(&printed.stdout).lines().map(str::to_owned).collect())
}

/// A process that is killed when this value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ChildGuard {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().expect("it runs"))
    }
}

/// Makes a named pipe.
fn make_fifo(fixture: &Fixture, name: &str) -> String {
    let path = fixture.path(name);
    let made = Command::new("mkfifo").arg(&path).status().expect("it runs");
    assert!(made.success());
    path.display().to_string()
}

/// Returns the number after `name = ` in the last structure of a line.
fn field_value(line: &str, name: &str) -> Option<i64> {
    let fields = line.rsplit_once(", { ")?.1;
    let value = fields
        .split(", ")
        .find_map(|field| field.trim_end_matches(" }").strip_prefix(name)?.strip_prefix(" = "))?;
    value.parse().ok()
}

/// Returns the thread in which a line's event happened.
fn event_tid(line: &str) -> Option<i64> {
    line.split_once("{ tid = ")?.1.split_once(" }")?.0.parse().ok()
}

/// RUN two programs that wake each other up; one of them is the command. EXPECT both sides of the
/// command's switches and wake-ups, and no other events of the other program; its events at its
/// end; its threads that are made without a fork, and a thread that takes over another's id. EXPECT
/// a 32-bit system call not to appear as a 64-bit call; and no data from beyond the end of
/// structures.
#[test]
fn events_about_a_command_are_recorded_wherever_they_happen() {
    const TURNS: &str = "300";
    let fixture = Fixture::new("kernel-about");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile("pingpong", PING_PONG_SOURCE, false, &[]).display().to_string();
    let (to, fro) = (make_fifo(&fixture, "to"), make_fifo(&fixture, "fro"));
    let pong = ChildGuard::start(Command::new(&program).args(["pong", &to, &fro, TURNS]));
    let pong_tid = i64::from(pong.0.id());
    let events = "sched_switch,sched_waking,task_newtask,task_rename,exit_mmap,syscalls:dup2,\
                  syscalls:clone3,sys_exit_sched_getattr";
    let events = ["--kernel", events];
    let (output, lines) =
        record_and_print(&fixture, &events, &[&program, "ping", &fro, &to, TURNS]);
    let (ping, parent, [has_no_ring, has_no_narrow]) = parse_ping_report(&output);
    let count = |is_it: &dyn Fn(&str) -> bool| lines.iter().filter(|line| is_it(line)).count();
    let of = |event: &str, name: &str, tid: i64| {
        let event = format!(" {event}: ");
        count(&|line| line.contains(&event) && field_value(line, name) == Some(tid))
    };
    let (from, to) = (of("sched_switch", "prev_tid", ping), of("sched_switch", "next_tid", ping));
    // BPF programs may miss some processes, and so some switches from them.
    assert!(to > 10 && from > to && from < to + to / 4, "{from} from it, {to} to it: {lines:#?}");
    let renamed = lines
        .iter()
        .position(|line| line.contains(r#"newcomm = "true""#) && event_tid(line) == Some(ping));
    let renamed = renamed.expect("in exec, between the end of its first thread and its own");
    let is_end = |line: &String| line.contains(" exit_mmap: ") && event_tid(line) == Some(ping);
    assert!(lines[renamed..].iter().any(is_end), "behind its end: {lines:#?}");
    let made: Vec<i64> = lines
        .iter()
        .filter(|line| line.contains(" task_newtask: ") && event_tid(line) == Some(ping))
        .filter_map(|line| field_value(line, "pid"))
        .collect();
    assert_eq!(made.len(), if has_no_ring { 1 } else { 2 }, "{lines:#?}");
    if has_no_ring {
        report_skipped("io_uring is not for us");
    }
    let calls = |name: &str| count(&|line| line.contains(&format!(" syscall_entry_{name}: ")));
    assert_eq!(calls("dup2"), 1, "{lines:#?}");
    for (small, there, behind) in [
        (" size = 64,", "uargs_tls = 12297829382473034410,", "uargs_set_tid = 0,"),
        (" syscall_exit_sched_getattr: ", "uattr_size = 48", "uattr_sched_util_min = 0,"),
    ] {
        let is_it = |line: &str| line.contains(small) && line.contains(there);
        assert_eq!(count(&|line| is_it(line) && line.contains(behind)), 1, "{lines:#?}");
    }
    let talk = lossy_text(&output.stderr);
    match has_no_narrow {
        true => report_skipped("the kernel has no system calls of 32 bits"),
        // The session does not record this call.
        false => assert!(!talk.contains("32 bits") && calls("access") == 0, "{talk}"),
    }
    for &tid in &made {
        let (from, to) = (of("sched_switch", "prev_tid", tid), of("sched_switch", "next_tid", tid));
        assert!(from > 0 && to > 0, "{tid}: {from}, {to}: {lines:#?}");
    }
    let wakes = |line: &str| line.contains(" sched_waking: ") && event_tid(line) == Some(pong_tid);
    let woken = count(&|line| wakes(line) && field_value(line, "tid") == Some(ping));
    assert!(woken > 10, "{woken} times woken by the other");
    let others = |line: &str| {
        let is_from =
            line.contains(" sched_switch: ") && field_value(line, "prev_tid") == Some(pong_tid);
        let is_to = |tid: i64| field_value(line, "next_tid") == Some(tid);
        is_from && !made.iter().chain([&ping, &parent]).any(|&tid| is_to(tid))
    };
    assert_eq!(count(&others), 0, "switches that are not about it");
}

/// RUN programs in a control group, in a group below it, and in none, the command among the last;
/// and with another group that replaces the first. EXPECT the events of the group and of groups
/// below it.
#[test]
fn a_cgroup_is_what_is_in_it_and_below() {
    let fixture = Fixture::new("kernel-cgroup");
    if !has_kernel_events(&fixture) {
        return;
    }
    let Some(group) = TestCgroup::new("in") else { return };
    let script = format!(
        "cat /nowhere/before; ({0}; exec cat /nowhere/inside); ({1}; exec cat /nowhere/below); \
         ({0}; sh -c 'cat /nowhere/child; true'); cat /nowhere/behind; \
         for turn in $(seq 100); do rmdir {2}/below {2} && break; sleep 0.02; done; \
         mkdir -p {2}/below; \
         for turn in $(seq 10); do ({0}; exec cat /nowhere/anew); sleep 0.05; done; true",
        group.enter(""),
        group.enter("below"),
        group.path(),
    );
    // The group is given as a folder, and as a path of /proc/PID/cgroup.
    let name = format!("/{}", group.folder().file_name().expect("a name").to_str().expect("UTF-8"));
    for path in [group.path(), name] {
        let options = ["--kernel", "syscalls:openat", "--cgroup", &path];
        let (output, lines) = record_and_print(&fixture, &options, &["sh", "-c", &script]);
        let has = |name: &str| lines.iter().any(|line| line.contains(name));
        let talk = lossy_text(&output.stderr);
        assert!(talk.contains("was made anew: what is in the new one is recorded"), "{talk}");
        for inside in ["/nowhere/inside", "/nowhere/below", "/nowhere/child", "/nowhere/anew"] {
            assert!(has(inside), "{inside}: {lines:?}");
        }
        assert!(!has("/nowhere/before") && !has("/nowhere/behind"), "{lines:?}");
    }
}

/// RUN a program that was in a control group before the recording, and is woken from outside.
/// EXPECT both sides of its wake-ups.
#[test]
fn events_about_a_cgroup_are_recorded_wherever_they_happen() {
    const TURNS: &str = "300";
    let fixture = Fixture::new("kernel-cgroup-about");
    if !has_kernel_events(&fixture) {
        return;
    }
    let Some(group) = TestCgroup::new("about") else { return };
    let program = fixture.compile("pingpong", PING_PONG_SOURCE, false, &[]).display().to_string();
    let (to, fro) = (make_fifo(&fixture, "to"), make_fifo(&fixture, "fro"));
    let script = format!("{}; exec {program} pong {to} {fro} {TURNS}", group.enter("below"));
    let pong = ChildGuard::start(Command::new("sh").args(["-c", &script]));
    let tid = i64::from(pong.0.id());
    let procs = group.folder().join("below/cgroup.procs");
    trackway_tests::steps::wait_for("the other one to be there", || {
        procs_file_contains(&procs, tid)
    });
    let options = ["--kernel", "sched_switch,sched_waking", "--cgroup", &group.path()];
    let (output, lines) =
        record_and_print(&fixture, &options, &[&program, "ping", &fro, &to, TURNS]);
    let (ping, ..) = parse_ping_report(&output);
    let woken = lines.iter().filter(|line| {
        let is_waking = line.contains(" sched_waking: ") && event_tid(line) == Some(ping);
        is_waking && field_value(line, "tid") == Some(tid)
    });
    assert!(woken.count() > 10, "{} lines", lines.len());
    let switched = lines.iter().filter(|line| field_value(line, "next_tid") == Some(tid)).count();
    assert!(switched > 10, "{switched} switches to it");
    let others = lines.iter().filter(|line| {
        let is_from =
            line.contains(" sched_switch: ") && field_value(line, "prev_tid") == Some(ping);
        is_from && field_value(line, "next_tid") != Some(tid)
    });
    assert_eq!(others.count(), 0, "switches that are not about it");
}

fn procs_file_contains(procs: &Path, pid: i64) -> bool {
    let text = fs::read_to_string(procs).unwrap_or_default();
    text.lines().any(|line| line.parse() == Ok(pid))
}

/// RUN programs on one CPU and on another. EXPECT only events of the selected CPU, for every scope.
#[test]
fn a_list_of_cpus_leaves_the_others_out() {
    let fixture = Fixture::new("kernel-cpus");
    if !has_kernel_events(&fixture) {
        return;
    }
    if !has("taskset") {
        return report_skipped("taskset is not installed");
    }
    let pinned = |cpu: u32| Command::new("taskset").args(["-c", &cpu.to_string(), "true"]).status();
    if ![0, 1].into_iter().all(|cpu| pinned(cpu).is_ok_and(|status| status.success())) {
        return report_skipped("there are no two CPUs for us");
    }
    let script = "taskset -c 0 cat /nowhere/zero; taskset -c 1 cat /nowhere/one; true";
    let group = TestCgroup::new("cpus");
    let inside = group.as_ref().map(|group| (group.path(), group.enter("")));
    for (cpu, there, elsewhere) in [("0", "zero", "one"), ("1-1", "one", "zero")] {
        let options = ["--kernel", "syscalls:openat", "--cpu", cpu];
        let more: [&[&str]; 2] = [&[], &["--system-wide"]];
        let mut runs: Vec<(Vec<&str>, String)> =
            more.map(|more| ([&options, more].concat(), script.to_owned())).to_vec();
        if let Some((path, enter)) = &inside {
            runs.push(([&options[..], &["--cgroup", path]].concat(), format!("{enter}; {script}")));
        }
        for (options, script) in &runs {
            let (_, lines) = record_and_print(&fixture, options, &["sh", "-c", script]);
            let has = |name: &str| lines.iter().any(|line| line.contains(name));
            assert!(has(&format!("/nowhere/{there}")), "{options:?}: {lines:?}");
            assert!(!has(&format!("/nowhere/{elsewhere}")), "{options:?}: {lines:?}");
            let here = format!("{{ cpu_id = {} }}", &cpu[..1]);
            let kernel = lines.iter().filter(|line| line.contains("syscall_"));
            assert!(kernel.clone().all(|line| line.contains(&here)), "{lines:?}");
        }
    }
    drop(group);
}

/// RUN impossible selections. EXPECT a refusal with the reason, before the command runs.
#[test]
fn impossible_scopes_are_refused() {
    let fixture = Fixture::new("kernel-selected");
    let refused = |options: &[&str]| {
        let output = run_record(&fixture, options, &["touch", "ran"]);
        assert!(!output.status.success() && !fixture.path("ran").exists(), "{options:?}");
        lossy_text(&output.stderr)
    };
    for options in [&["--cpu", "0"][..], &["--cgroup", "/"]] {
        let talk = refused(options);
        assert!(talk.contains("--kernel"), "{talk}");
    }
    let talk = refused(&["--kernel", "sched_switch", "--system-wide", "--cgroup", "/"]);
    assert!(talk.contains("--system-wide") && talk.contains("--cgroup"), "{talk}");
    if !has_kernel_events(&fixture) {
        return;
    }
    let elsewhen = ["--time", "--monotonic", "100", "--fork", "--"];
    let unshare = || Command::new("unshare");
    if unshare().args(elsewhen).arg("true").status().is_ok_and(|status| status.success()) {
        let record =
            fixture.trackway(&["record", "--kernel", "sched_switch", "--", "touch", "ran"]);
        let mut inside = unshare();
        inside.args(elsewhen).arg(record.get_program()).args(record.get_args());
        for (name, value) in record.get_envs() {
            inside.env(name, value.unwrap_or_default());
        }
        let output = inside.output().expect("it runs");
        let talk = lossy_text(&output.stderr);
        assert!(talk.contains("has a clock of its own"), "{talk}");
        assert!(!output.status.success() && !fixture.path("ran").exists());
    } else {
        report_skipped("there are no time namespaces for us");
    }
    for (options, why) in [
        (["--cpu", "8191"], "there is no CPU 8191"),
        (["--cpu", "one"], "hint: as in --cpu 0,2-3"),
        (["--cgroup", "/no/such/group"], "there is no cgroup /no/such/group"),
        (["--cgroup", "/proc"], "/proc is no cgroup of version 2"),
    ] {
        let talk = refused(&[&["--kernel", "sched_switch"][..], &options].concat());
        assert!(talk.contains(why), "{talk}");
    }
}
