//! Contexts of kernel events: `trackway record --kernel … --context …`.

use std::fs;
use std::path::PathBuf;

use trackway_tests::{Fixture, lossy_text, report_skipped};

use super::{compile_calls, printed_lines};
use crate::support::run_record;

/// A control group of this test; `None` if the user may not make one.
struct TestCgroup(PathBuf);

impl TestCgroup {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let of = |line: &str| {
            let mut words = line.split(' ').skip(1);
            let (folder, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(folder))
        };
        let folder = mounts.lines().find_map(of)?;
        let own = folder.join(format!("trackway-test-{}", std::process::id()));
        fs::create_dir(&own).ok()?;
        Some(Self(own))
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

const ALL_CONTEXTS: &str = "procname,tid,pid,ppid,vpid,vtid,prio,nice,uid,euid,suid,gid,egid,sgid,\
    cgroup_ns,ipc_ns,mnt_ns,net_ns,pid_ns,time_ns,user_ns,uts_ns,cgroup_id,\
    preemptible,interruptible,migratable";

/// All contexts, in the order in which the program prints them.
const CONTEXTS_AS_PRINTED: &str = "tid,pid,ppid,vpid,vtid,prio,nice,uid,euid,suid,gid,egid,sgid,\
    cgroup_ns,ipc_ns,mnt_ns,net_ns,pid_ns,time_ns,user_ns,uts_ns,cgroup_id,\
    preemptible,interruptible,migratable,procname";

/// RUN a program that has its own ids, names and namespaces, and prints them. EXPECT equal contexts
/// in kernel events: of entry and exit, and of events that are no system calls.
#[test]
fn contexts_are_what_the_thread_itself_finds() {
    let fixture = Fixture::new("kernel-contexts");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let program = fixture.compile_file("kernel/contexts.c", false, &["-pthread"]);
    let group = TestCgroup::new();
    let folder = group.as_ref().map_or(String::new(), |group| group.0.display().to_string());
    let options = ["--kernel", "syscalls:getpgid,sched_process_exit", "--context", ALL_CONTEXTS];
    let command = [program.to_str().expect("a path"), &folder];
    let output = run_record(&fixture, &options, &command);
    if output.status.code() == Some(81) {
        return report_skipped("nobody may make namespaces here");
    }
    assert!(output.status.success(), "{:?} {}", output.status, lossy_text(&output.stderr));
    let mut expected = lossy_text(&output.stdout).trim().to_owned();
    let lines = printed_lines(&fixture);
    let of = |event: &str| {
        let is_it = |line: &&String| line.contains(event) && line.contains("fifteen letters");
        lines.iter().find(is_it).unwrap_or_else(|| panic!("no {event}: {lines:#?}"))
    };
    if group.is_none() {
        // The program does not print this context.
        let said = of("syscall_entry_getpgid").split("cgroup_id = ").nth(1).expect("a number");
        let said = said.split(',').next().expect("a number");
        expected = expected.replace("cgroup_id = 0", &format!("cgroup_id = {said}"));
    }
    for event in ["syscall_entry_getpgid", "syscall_exit_getpgid", "sched_process_exit"] {
        let line = of(event);
        assert!(line.contains(&expected), "{line}\n{expected}");
    }
    let trace = fixture.trackway(&["print", "--filter", "$ctx.nice == 7", "--count", "trace"]);
    let count = { trace }.output().expect("it runs");
    assert!(
        lossy_text(&count.stdout).trim().parse::<u64>().is_ok_and(|count| count >= 3),
        "{count:?}"
    );
}

/// RUN filters on each context, in a thread that makes system calls with its own value, and with
/// another; and on some contexts at the end of a thread. EXPECT the selected calls, and the same
/// values in the trace.
#[test]
fn filters_ask_for_each_context_that_is_recorded() {
    let fixture = Fixture::new("kernel-contexts-asked");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let program = fixture.compile_file("kernel/contexts.c", false, &["-pthread"]);
    let group = TestCgroup::new();
    let folder = group.as_ref().map_or(String::new(), |group| group.0.display().to_string());
    let names: Vec<&str> = CONTEXTS_AS_PRINTED.split(',').collect();
    let asked = |(number, name): (usize, &&str)| match *name {
        "procname" => format!("(whence == {} && $ctx.procname == \"fift*s\")", 100 + number),
        name => format!("(whence == {} && offset == $ctx.{name})", 100 + number),
    };
    let asked: Vec<String> = names.iter().enumerate().map(asked).collect();
    let calls = format!("syscalls:lseek: offset >= 0 && ({})", asked.join(" || "));
    let ends = "sched_process_exit: $ctx.prio == 27 && $ctx.uid == 1 && $ctx.sgid == 13 && \
                $ctx.preemptible == 1 && $ctx.migratable == 1 && $ctx.vtid != $ctx.vpid";
    let events =
        ["--kernel", "syscalls:sys_enter_lseek,sched_process_exit", "--context", ALL_CONTEXTS];
    let options = [&events[..], &["--filter", &calls, "--filter", ends]].concat();
    let output = run_record(&fixture, &options, &[program.to_str().expect("a path"), &folder]);
    if output.status.code() == Some(81) {
        return report_skipped("nobody may make namespaces here");
    }
    assert!(output.status.success(), "{:?} {}", output.status, lossy_text(&output.stderr));
    let said = lossy_text(&output.stdout);
    let of = |line: &str, name: &str| -> Option<String> {
        let value = line.split(&format!(" {name} = ")).nth(1)?;
        value.split([',', ' ']).next().map(str::to_owned)
    };
    let lines = printed_lines(&fixture);
    let calls: Vec<&String> = lines.iter().filter(|line| line.contains("_lseek: ")).collect();
    let mut calls = calls.into_iter();
    for (number, name) in names.iter().enumerate() {
        if *name == "cgroup_id" && group.is_none() {
            // The program cannot print this context without a control group.
            println!("skipped in part, because no control group can be made here");
            continue;
        }
        let line = calls.next().unwrap_or_else(|| panic!("{name}: {lines:#?}"));
        let whence = format!("whence = {} }}", 100 + number);
        assert!(line.contains(&whence), "{name}: {line}");
        match *name {
            // Only strings are filtered independently of their offset.
            "procname" => assert_eq!(of(line, "offset").as_deref(), Some("0"), "{line}"),
            name => {
                assert_eq!(of(line, "offset"), of(line, name), "{name}: {line}");
                assert_eq!(of(&said, name), of(line, name), "{name}: {said}");
            }
        }
    }
    // The other call of the last context.
    assert_eq!((calls.next().is_some(), calls.next()), (true, None));
    let ends: Vec<&String> = lines.iter().filter(|line| line.contains("process_exit: ")).collect();
    assert!(ends.len() == 1 && ends[0].contains("fifteen letters"), "{ends:?}");
}

/// RUN lists of contexts for user and kernel events. EXPECT each side to have the contexts that it
/// supports, and programs the default contexts if the list names only kernel contexts.
#[test]
fn each_side_has_the_contexts_that_it_knows() {
    let fixture = Fixture::new("kernel-contexts-both");
    let Some(program) = compile_calls(&fixture) else { return };
    let program = program.to_str().expect("a path");
    for (list, of_programs, of_the_kernel) in [
        (None, "{ vtid = ", "{ tid = "),
        (Some("sgid"), "{ vtid = ", "{ tid = T, sgid = 0 }"),
        (Some("none"), "{ number = ", "{ tid = "),
        (Some("vpid,gid"), "{ vpid = ", "{ tid = T, vpid = T, gid = 0 }"),
        (Some("procname,pid"), "{ procname = \"calls\" }", "pid = T, procname = \"calls\" }"),
    ] {
        let mut options = vec!["--kernel", "syscalls:sys_enter_getpgid"];
        options.extend(list.iter().flat_map(|list| ["--context", list]));
        let output = run_record(&fixture, &options, &[program, "1"]);
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let lines = printed_lines(&fixture);
        let call = lines.iter().find(|line| line.contains("syscall_entry_getpgid")).expect("one");
        let event = lines.iter().find(|line| line.contains("calls:before")).expect("one");
        // The thread id may have any value.
        let tid = call.split("tid = ").nth(1).expect("a thread").split([',', ' ']).next();
        let expected = of_the_kernel.replace(" T", &format!(" {}", tid.expect("a number")));
        assert!(call.contains(&expected), "{list:?}: {call}");
        assert!(event.contains(of_programs), "{list:?}: {event}");
    }
}

/// RUN unknown contexts. EXPECT a message that lists the existing ones.
#[test]
fn contexts_that_nobody_has_are_refused() {
    let fixture = Fixture::new("kernel-contexts-refused");
    let refused = |options: &[&str]| {
        let output = run_record(&fixture, options, &["touch", "ran"]);
        assert!(!output.status.success() && !fixture.path("ran").exists());
        lossy_text(&output.stderr)
    };
    let talk = refused(&["--context", "ppid"]);
    assert!(talk.contains("'ppid' is a context of the kernel's events alone"), "{talk}");
    let talk = refused(&["--kernel", "sched_switch", "--context", "vtid,colour"]);
    assert!(talk.contains("no context 'colour'") && talk.contains("cgroup_ns"), "{talk}");
    let output = fixture.trackway(&["session", "create", "one", "--context", "prio"]).output();
    let output = output.expect("it runs");
    assert!(!output.status.success());
    assert!(lossy_text(&output.stderr).contains("of the kernel's events alone"), "{output:?}");
}
