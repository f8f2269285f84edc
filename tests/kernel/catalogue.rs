//! `trackway list --kernel`: the events of the running kernel, compared with the output of ls(1) in
//! tracefs. If tracefs is not mounted, the test mounts it in a namespace.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use trackway_tests::{Fixture, build_dir, copy_program, is_root, report_skipped};

/// Returns the events in tracefs as `subsystem:name`, which are folders with a file to enable the
/// event. Returns `None`, after printing the reason, if tracefs is not readable.
fn tracefs_events() -> Option<BTreeSet<String>> {
    const SCRIPT: &str = "
        [ -d /sys/kernel/tracing/events ] ||
            mount -t tracefs nodev /sys/kernel/tracing || exit 90
        cd /sys/kernel/tracing/events && ls -d */*/enable";
    if !is_root() {
        report_skipped("only root sees tracefs");
        return None;
    }
    let output = Command::new("unshare").args(["-m", "sh", "-c", SCRIPT]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        report_skipped("tracefs cannot be mounted here");
        return None;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.strip_suffix("/enable"));
    Some(names.map(|name| name.replace('/', ":")).collect())
}

fn list_kernel_events(fixture: &Fixture, arguments: &[&str]) -> Output {
    let mut trackway = fixture.trackway(&["list", "--kernel"]);
    trackway.args(arguments).output().expect("trackway runs")
}

fn list_as_json(fixture: &Fixture, patterns: &[&str]) -> Vec<serde_json::Value> {
    let output = list_kernel_events(fixture, &[patterns, &["--format", "json"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{:?}", output.status);
    let mut all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(all["unread"], serde_json::json!([]));
    let serde_json::Value::Array(events) = all["events"].take() else { panic!("{all}") };
    events
}

fn event_name(event: &serde_json::Value) -> &str {
    event["name"].as_str().expect("a name")
}

fn read_mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").expect("mounts")
}

fn is_compat_event(event: &serde_json::Value) -> bool {
    event["is_compat"] == true
}

/// RUN list in both forms. EXPECT each event that ls finds, once, in addition to the 32-bit system
/// calls, which tracefs lacks; and that list mounts nothing.
#[test]
fn every_event_that_the_kernel_has_is_listed_once() {
    let Some(mut expected) = tracefs_events() else { return };
    let fixture = Fixture::new("kernel-all");
    let before = read_mounts();
    let events = list_as_json(&fixture, &[]);
    // If tracefs does not describe system calls, Trackway's table does.
    if !expected.iter().any(|name| name.starts_with("syscalls:")) {
        expected.extend(
            events
                .iter()
                .filter(|event| !is_compat_event(event))
                .map(|event| event_name(event).to_owned())
                .filter(|name| name.starts_with("syscalls:")),
        );
    }
    let compat: Vec<&str> =
        events.iter().filter(|event| is_compat_event(event)).map(event_name).collect();
    assert!(compat.is_empty() || compat.len() > 800, "{}", compat.len());
    assert!(compat.iter().all(|name| name.starts_with("syscalls:compat_sys_")), "{compat:?}");
    expected.extend(compat.into_iter().map(str::to_owned));
    let found: BTreeSet<String> = events.iter().map(|event| event_name(event).to_owned()).collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), events.len(), "each once");
    let output = list_kernel_events(&fixture, &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line.starts_with("    "));
    assert_eq!(lines.count(), expected.len());
    assert_eq!(text.lines().filter(|line| *line == "syscalls").count(), 1);
    assert_eq!(read_mounts(), before);
}

/// RUN list with patterns. EXPECT the matching events, with their fields and meanings.
#[test]
fn events_are_listed_by_pattern_with_fields_and_meanings() {
    if tracefs_events().is_none() {
        return;
    }
    let fixture = Fixture::new("kernel-patterns");
    let events = list_as_json(&fixture, &["sched_switch,irq_softirq_*", "!irq:softirq_raise"]);
    let names: Vec<&str> = events.iter().map(event_name).collect();
    assert_eq!(names, ["irq:softirq_entry", "irq:softirq_exit", "sched:sched_switch"]);
    assert_eq!(events[0]["lttng_name"], "irq_softirq_entry");
    let labels = events[0]["fields"][0]["choices"].as_array().expect("choices").iter();
    let labels: Vec<_> = labels.map(|label| label["name"].as_str().expect("a name")).collect();
    assert!(labels.contains(&"NET_RX"), "{labels:?}");
    let fields = events[2]["fields"].as_array().expect("fields");
    let switch = |field: &str| fields.iter().find(|of| of["name"] == field).expect("a field");
    assert_eq!(switch("prev_comm")["type"], "char[16]");
    assert_eq!(switch("next_pid")["lttng_name"], "next_tid");
    let text =
        String::from_utf8(list_kernel_events(&fixture, &["sched_switch"]).stdout).expect("text");
    assert!(text.starts_with("sched\n    sched:sched_switch: char[16] prev_comm, i32 "), "{text}");
    assert_eq!(text.lines().count(), 2);
}

/// RUN list of a system call. EXPECT its entry and exit, its number, and the meanings of its
/// arguments.
#[test]
fn system_calls_are_listed_with_what_their_arguments_mean() {
    if tracefs_events().is_none() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let fixture = Fixture::new("kernel-calls");
    let events = list_as_json(&fixture, &["syscalls:openat,syscalls:read", "!compat_*"]);
    let names: Vec<&str> = events.iter().map(event_name).collect();
    let calls = ["enter_openat", "enter_read", "exit_openat", "exit_read"];
    assert_eq!(names, calls.map(|call| format!("syscalls:sys_{call}")));
    let openat = &events[0];
    assert_eq!((&openat["number"], &openat["source"]), (&257.into(), &"syscall_enter".into()));
    let fields = &openat["fields"];
    assert_eq!(fields[0]["meaning"], "folder");
    assert_eq!(fields[1]["points_to"], "text");
    let flags = fields[2]["flags"].as_array().expect("flags");
    assert!(flags.iter().any(|flag| flag["name"] == "O_CLOEXEC" && flag["value"] == 0o2000000));
    assert_eq!(events[2]["fields"][0]["meaning"], "file descriptor or error");
    assert_eq!(events[3]["fields"][1]["points_to"], "byte[ret]");
    // 32-bit system calls are listed if the kernel supports them.
    let events = list_as_json(&fixture, &["syscalls:openat,syscalls:sendmsg"]);
    let compat: Vec<_> = events.iter().filter(|event| is_compat_event(event)).collect();
    let names: Vec<&str> = compat.iter().map(|event| event_name(event)).collect();
    let calls = ["enter_openat", "enter_sendmsg", "exit_openat", "exit_sendmsg"];
    assert!(names.is_empty() || names == calls.map(|call| format!("syscalls:compat_sys_{call}")));
    if let [openat, sendmsg, ..] = compat[..] {
        assert_eq!((&openat["number"], &openat["id"]), (&295.into(), &serde_json::Value::Null));
        assert_eq!(sendmsg["fields"][1]["points_to"], "msghdr");
    }
}

/// RUN list with patterns that match nothing. EXPECT a guess, a hint, and status 2.
#[test]
fn patterns_that_match_nothing_are_told_with_a_guess() {
    if tracefs_events().is_none() {
        return;
    }
    let fixture = Fixture::new("kernel-none");
    for (pattern, expected) in [
        ("shced_*", "no kernel event matches 'shced_*'; did you mean 'sched_*'?"),
        ("sched:sched_swich", "did you mean 'sched:sched_switch'?"),
        ("sched,,irq", "'' is no pattern of kernel events"),
    ] {
        let output = list_kernel_events(&fixture, &[pattern]);
        let talk = String::from_utf8_lossy(&output.stderr);
        assert!(talk.contains(expected) && talk.contains("\nhint: "), "{talk}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    }
}

/// RUN list as a user without rights. EXPECT a message with a hint, and status 2.
#[test]
fn users_without_access_to_kernel_events_get_a_message() {
    let fixture = Fixture::new("kernel-rights");
    let program = fixture.path("trackway");
    copy_program(&build_dir().join("trackway"), &program);
    let mut command = if is_root() {
        let mut command = fixture.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
        command
    } else {
        fixture.command(&program)
    };
    let output = command.args(["list", "--kernel"]).output().expect("trackway runs");
    if !is_root() && output.status.success() {
        report_skipped("here anybody may see the kernel's events");
        return;
    }
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(talk.contains("cannot list kernel events: only root may"), "{talk}");
    let same = format!("\n  sudo {} list --kernel ", program.display());
    assert!(talk.contains(&same), "{talk}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}
