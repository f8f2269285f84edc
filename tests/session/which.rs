//! Selection of processes by id, executable and namespace: running ones, and ones that start later.

use std::os::unix::fs::MetadataExt as _;

use trackway_tests::steps::{Running, Steps};
use trackway_tests::{is_root, skipped};

use crate::place::{Bursts, ONE, Place, assert_there};

/// RUN create --pid, channel set --pid and --any-process, beside a process that is not meant.
/// EXPECT the numbers of who is meant at the time.
#[test]
fn processes_are_chosen_by_id() {
    let place = Place::new("session-pid");
    let (mut one, mut two) = (Bursts::of(&place, 10), Bursts::of(&place, 10));
    place.ok(&format!("session create web --pid {} --context vpid -o trace", one.running.pid()));
    let both = |one: &mut Bursts, two: &mut Bursts| {
        one.next();
        two.next();
    };
    both(&mut one, &mut two);
    place.ok(&format!("channel set web channel0 --pid {}", two.running.pid()));
    both(&mut one, &mut two);
    let pids = format!("{},{}", one.running.pid(), two.running.pid());
    place.ok(&format!("channel set web channel0 --pid {pids}"));
    both(&mut one, &mut two);
    place.ok("channel set web channel0 --any-process");
    both(&mut one, &mut two);
    place.emit("steps", 5);
    place.ok("session destroy web");
    let text = place.world.print(&place.world.path("trace"));
    let numbers = |pid: u32| {
        let of = format!("{{ vpid = {pid} }}");
        let lines = text.lines().filter(|line| line.contains(&of));
        crate::place::numbers_of(&lines.collect::<Vec<_>>().join("\n"))
    };
    let (one, two) = (numbers(one.running.pid()), numbers(two.running.pid()));
    assert_eq!(one[&0], (10..20).chain(30..50).collect::<Vec<u64>>());
    assert_eq!(two[&0], (20..50).collect::<Vec<u64>>());
    assert_eq!(text.lines().count(), 30 + 30 + 5);
}

/// RUN create --executable by file name, by path, by pattern; programs that run, and that are
/// started later. EXPECT the events of those that match.
#[test]
fn processes_are_chosen_by_executable() {
    let place = Place::new("session-executable");
    let copy = |name: &str| {
        let path = place.world.path(name);
        trackway_tests::copy_program(&place.emitter, &path);
        path
    };
    let (alpha, beta) = (copy("alpha"), copy("beta"));
    let before = Bursts::of(&place, 10);
    place.ok("session create name --executable alpha -o name");
    place.ok("session create pattern --executable alp* --executable beta -o pattern");
    place.ok(&format!("session create path --executable {} -o path", beta.display()));
    place.ok("session create running --executable emitter -o running");
    let mut before = before;
    before.next();
    for (program, count) in [(&alpha, "3"), (&beta, "4"), (&place.emitter, "5")] {
        let steps = Steps::new(&place.world, "steps-of-named");
        let mut command = place.world.command(program);
        command.args(["steps", count]).env("STEPS", steps.path());
        assert!(command.status().expect("it runs").success());
    }
    place.ok("session destroy --all");
    let count = |trace: &str| place.numbers(trace).values().map(Vec::len).sum::<usize>();
    assert_eq!(["name", "pattern", "path", "running"].map(count), [3, 7, 4, 15]);
}

/// RUN create --pid-namespace of a namespace that is there, and one whose program is started later.
/// EXPECT the events from there alone.
#[test]
fn processes_are_chosen_by_namespace() {
    if !is_root() {
        return skipped("not root: process-id namespaces");
    }
    let place = Place::new("session-namespace");
    let steps = Steps::new(&place.world, "steps-inside");
    // The shell is the first process there, and starts one program at once, one when it is told to.
    let script = "\"$1\" steps 6; read line < go; \"$1\" steps 7";
    let go = place.world.path("go");
    assert!(place.world.command("mkfifo").arg(&go).status().expect("mkfifo runs").success());
    let mut inside = place.world.command("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]);
    let inside = Running::start(inside.arg(&place.emitter).env("STEPS", steps.path()));
    trackway_tests::steps::wait_for("the first program", || {
        steps.counts().completed() == 6 && namespace_of(inside.pid()).is_some()
    });
    let namespace = namespace_of(inside.pid()).expect("a namespace");
    place
        .ok(&format!("session create inside --pid-namespace {namespace} --context vpid -o inside"));
    let own = std::fs::metadata("/proc/self/ns/pid").expect("a namespace").ino();
    place.ok(&format!("session create outside --pid-namespace {own} -o outside"));
    place.emit("steps", 8);
    std::fs::write(&go, "go\n").expect("the shell reads");
    assert!(inside.finish().status.success());
    place.ok("session destroy --all");
    let (inside, outside) = (place.numbers("inside"), place.numbers("outside"));
    assert_eq!(inside.values().map(Vec::len).sum::<usize>(), 7, "{inside:?}");
    assert_eq!(outside.values().map(Vec::len).sum::<usize>(), 8, "{outside:?}");
    assert_there(&outside, ONE, 0..8);
}

/// The process-id namespace of the children of a process.
fn namespace_of(pid: u32) -> Option<u64> {
    Some(std::fs::metadata(format!("/proc/{pid}/ns/pid_for_children")).ok()?.ino())
}

/// RUN sessions whose events are named with commas between them. EXPECT each of them, and none that
/// is excluded so.
#[test]
fn patterns_may_stand_with_commas_between_them() {
    let place = Place::new("session-which-commas");
    place.ok("session create both --on nothing:here,life:step -o both");
    place.ok("session create none --on life:*,!life:step -o none");
    place.emit("steps", 10);
    place.ok("event on none nothing:here,life:step");
    place.ok("event off both nothing:here,life:step");
    place.emit("steps", 5);
    place.ok("session destroy both");
    place.ok("session destroy none");
    let count = |trace| place.names(trace).get("life:step").copied().unwrap_or_default();
    assert_eq!((count("both"), count("none")), (10, 5), "what is on again is excluded no more");
}
