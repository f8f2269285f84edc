//! Selection of processes by id, executable and namespace: running processes, and processes that
//! start later.

use std::os::unix::fs::MetadataExt as _;

use trackway_tests::steps::{RunningProgram, Steps};
use trackway_tests::{is_root, report_skipped};

use crate::session_test::{BurstProgram, RUN_ONCE_STREAM, SessionTest, assert_range_present};

/// RUN create --pid, channel set --pid and --any-process, with another process running. EXPECT the
/// numbers of the processes that are selected at the time.
#[test]
fn processes_are_chosen_by_id() {
    let test = SessionTest::new("session-pid");
    let (mut one, mut two) = (BurstProgram::of(&test, 10), BurstProgram::of(&test, 10));
    test.ok(&format!("session create web --pid {} --context vpid -o trace", one.running.pid()));
    let both = |one: &mut BurstProgram, two: &mut BurstProgram| {
        one.next();
        two.next();
    };
    both(&mut one, &mut two);
    test.ok(&format!("channel set web channel0 --pid {}", two.running.pid()));
    both(&mut one, &mut two);
    let pids = format!("{},{}", one.running.pid(), two.running.pid());
    test.ok(&format!("channel set web channel0 --pid {pids}"));
    both(&mut one, &mut two);
    test.ok("channel set web channel0 --any-process");
    both(&mut one, &mut two);
    test.emit("steps", 5);
    test.ok("session destroy web");
    let text = test.fixture.print(&test.fixture.path("trace"));
    let numbers = |pid: u32| {
        let of = format!("{{ vpid = {pid} }}");
        let lines = text.lines().filter(|line| line.contains(&of));
        crate::session_test::parse_numbers(&lines.collect::<Vec<_>>().join("\n"))
    };
    let (one, two) = (numbers(one.running.pid()), numbers(two.running.pid()));
    assert_eq!(one[&0], (10..20).chain(30..50).collect::<Vec<u64>>());
    assert_eq!(two[&0], (20..50).collect::<Vec<u64>>());
    assert_eq!(text.lines().count(), 30 + 30 + 5);
}

/// RUN create --executable by file name, by path, by pattern; programs that run already, and
/// programs that start later. EXPECT the events of the matching programs.
#[test]
fn processes_are_chosen_by_executable() {
    let test = SessionTest::new("session-executable");
    let copy = |name: &str| {
        let path = test.fixture.path(name);
        trackway_tests::copy_program(&test.emitter, &path);
        path
    };
    let (alpha, beta) = (copy("alpha"), copy("beta"));
    let before = BurstProgram::of(&test, 10);
    test.ok("session create name --executable alpha -o name");
    test.ok("session create pattern --executable alp* --executable beta -o pattern");
    test.ok(&format!("session create path --executable {} -o path", beta.display()));
    test.ok("session create running --executable emitter -o running");
    let mut before = before;
    before.next();
    for (program, count) in [(&alpha, "3"), (&beta, "4"), (&test.emitter, "5")] {
        let steps = Steps::new(&test.fixture, "steps-of-named");
        let mut command = test.fixture.command(program);
        command.args(["steps", count]).env("STEPS", steps.path());
        assert!(command.status().expect("it runs").success());
    }
    test.ok("session destroy --all");
    let count = |trace: &str| test.numbers(trace).values().map(Vec::len).sum::<usize>();
    assert_eq!(["name", "pattern", "path", "running"].map(count), [3, 7, 4, 15]);
}

/// RUN create --pid-namespace of an existing namespace, and of one whose program starts later.
/// EXPECT only the events of that namespace.
#[test]
fn processes_are_chosen_by_namespace() {
    if !is_root() {
        return report_skipped("not root: process-id namespaces");
    }
    let test = SessionTest::new("session-namespace");
    let steps = Steps::new(&test.fixture, "steps-inside");
    // The shell is the first process of the namespace; it starts one program at once, and one on
    // request.
    let script = "\"$1\" steps 6; read line < go; \"$1\" steps 7";
    let go = test.fixture.path("go");
    assert!(test.fixture.command("mkfifo").arg(&go).status().expect("mkfifo runs").success());
    let mut inside = test.fixture.command("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]);
    let inside = RunningProgram::start(inside.arg(&test.emitter).env("STEPS", steps.path()));
    trackway_tests::steps::wait_for("the first program", || {
        steps.counts().completed() == 6 && child_pid_namespace(inside.pid()).is_some()
    });
    let namespace = child_pid_namespace(inside.pid()).expect("a namespace");
    test.ok(&format!("session create inside --pid-namespace {namespace} --context vpid -o inside"));
    let own = std::fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    test.ok(&format!("session create outside --pid-namespace {own} -o outside"));
    test.emit("steps", 8);
    std::fs::write(&go, "go\n").expect("the shell reads");
    assert!(inside.finish().status.success());
    test.ok("session destroy --all");
    let (inside, outside) = (test.numbers("inside"), test.numbers("outside"));
    assert_eq!(inside.values().map(Vec::len).sum::<usize>(), 7, "{inside:?}");
    assert_eq!(outside.values().map(Vec::len).sum::<usize>(), 8, "{outside:?}");
    assert_range_present(&outside, RUN_ONCE_STREAM, 0..8);
}

/// Returns the process-id namespace of the children of a process.
fn child_pid_namespace(pid: u32) -> Option<u64> {
    Some(std::fs::metadata(format!("/proc/{pid}/ns/pid_for_children")).ok()?.ino())
}

/// RUN sessions whose patterns are separated by commas. EXPECT the events of each pattern, and none
/// that an exclusion in the list names.
#[test]
fn patterns_may_stand_with_commas_between_them() {
    let test = SessionTest::new("session-which-commas");
    test.ok("session create both --event nothing:here,life:step -o both");
    test.ok("session create none --event life:*,!life:step -o none");
    test.emit("steps", 10);
    test.ok("event on none nothing:here,life:step");
    test.ok("event off both nothing:here,life:step");
    test.emit("steps", 5);
    test.ok("session destroy both");
    test.ok("session destroy none");
    let count = |trace| test.names(trace).get("life:step").copied().unwrap_or_default();
    assert_eq!((count("both"), count("none")), (10, 5), "what is on again is excluded no more");
}
