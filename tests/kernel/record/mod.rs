//! `trackway record --kernel`: kernel events of a command, or of all processes, together with user
//! events.

mod arguments;
mod compat;
mod contexts;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use trackway_tests::{
    Fixture, build_dir, copy_program, has, has_kernel_events, lossy_text, matches_babeltrace_lines,
    report_skipped, source_dir,
};

use crate::support::run_record;

/// Compiles a program that calls getpgid(2), each time between two events; returns `None`, after
/// printing the reason, where kernel events cannot be recorded.
fn compile_calls(fixture: &Fixture) -> Option<PathBuf> {
    if !has_kernel_events(fixture) {
        return None;
    }
    Some(fixture.compile_file("kernel/calls.c", true, &[]))
}

/// Returns the lines of the trace. If babeltrace2 is installed, its lines must be equal.
fn printed_lines(fixture: &Fixture) -> Vec<String> {
    let printed = fixture.trackway(&["print", "trace"]).output().expect("it runs");
    assert!(printed.status.success(), "{}", lossy_text(&printed.stderr));
    if has("babeltrace2") {
        let mut babeltrace = Command::new("babeltrace2");
        let theirs = babeltrace.arg(fixture.path("trace")).output().expect("it runs");
        assert!(theirs.status.success(), "{}", lossy_text(&theirs.stderr));
        let (ours, theirs) = (lossy_text(&printed.stdout), lossy_text(&theirs.stdout));
        assert!(matches_babeltrace_lines(&ours, &theirs), "babeltrace2 prints something else");
    }
    lossy_text(&printed.stdout).lines().map(str::to_owned).collect()
}

/// RUN a program that makes system calls between two events. EXPECT, each time and in this order:
/// event, entry, exit, event, with the call's own numbers, on one clock; and no calls of other
/// programs.
#[test]
fn programs_and_the_kernel_are_on_one_clock() {
    const COUNT: usize = 20_000;
    let fixture = Fixture::new("kernel-clock");
    let Some(program) = compile_calls(&fixture) else { return };
    let program = program.to_str().expect("a path");
    let output = run_record(&fixture, &["--kernel", "syscalls:getpgid"], &[program, "20000"]);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert!(talk.contains("kernel: 40,000 events recorded, 0 lost, 0 overwritten"), "{talk}");
    let lines = printed_lines(&fixture);
    assert_eq!(lines.len(), 4 * COUNT);
    for (at, line) in lines.iter().enumerate() {
        assert!(is_call_line(at, line), "line {at}: {line}");
    }
}

/// Returns true if the line belongs at this index: each call has the lines `before`, entry, exit,
/// `after`.
fn is_call_line(at: usize, line: &str) -> bool {
    let (number, pid) = (at / 4, 1_000_000_000 + at / 4);
    let (name, fields) = match at % 4 {
        0 => ("calls:before", format!("{{ number = {number} }}")),
        1 => ("syscall_entry_getpgid", format!("{{ pid = {pid} }}")),
        2 => ("syscall_exit_getpgid", "{ ret = -3 }".to_owned()),
        _ => ("calls:after", format!("{{ number = {number} }}")),
    };
    line.contains(&format!(" {name}: ")) && line.ends_with(&fields)
}

/// RUN the same program with a million calls. EXPECT each call in this order, without exception.
/// (If the machine is too busy to write that much, the test repeats it.)
#[test]
fn a_million_calls_are_each_between_what_is_before_and_what_is_behind() {
    const COUNT: usize = 1_000_000;
    const TRIES: usize = 5;
    let fixture = Fixture::new("kernel-million");
    let Some(program) = compile_calls(&fixture) else { return };
    let program = program.to_str().expect("a path");
    let options = ["--kernel", "syscalls:getpgid", "--buffer-size", "16M"];
    let is_whole = || {
        let output = run_record(&fixture, &options, &[program, &COUNT.to_string()]);
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let talk = lossy_text(&output.stderr);
        talk.contains("kernel: 2,000,000 events recorded, 0 lost")
            && talk.contains("trackway: 2,000,000 events recorded, 0 lost")
    };
    assert!((0..TRIES).any(|_| is_whole()), "something was lost each time");
    let mut print = fixture.trackway(&["print", "trace"]);
    let mut print = print.stdout(Stdio::piped()).spawn().expect("it runs");
    let lines = BufReader::new(print.stdout.take().expect("a pipe")).lines();
    let mut count = 0;
    for (at, line) in lines.enumerate() {
        let line = line.expect("text");
        assert!(is_call_line(at, &line), "line {at}: {line}");
        count += 1;
    }
    assert!(print.wait().expect("a child").success());
    assert_eq!(count, 4 * COUNT);
}

/// RUN a command whose child makes the recorded calls, while other processes make the same calls.
/// EXPECT only the calls of the child; for the whole system, the others, too.
#[test]
fn a_command_and_what_it_starts_are_recorded_or_everything() {
    let fixture = Fixture::new("kernel-scope");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let script = "(cat /nowhere/inside) 2>/dev/null; true";
    let outside = |is_running: &dyn Fn() -> bool| {
        while is_running() {
            let _ = std::fs::File::open("/nowhere/outside");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    for (options, is_everything) in [(&[][..], false), (&["--system-wide"][..], true)] {
        let options =
            [&["--kernel", "syscalls:openat,!syscalls:sys_exit_openat"], options].concat();
        let done = std::sync::atomic::AtomicBool::new(false);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| outside(&|| !done.load(std::sync::atomic::Ordering::Relaxed)));
            let output = run_record(&fixture, &options, &["sh", "-c", script]);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            output
        });
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let lines = printed_lines(&fixture);
        let has = |name: &str| lines.iter().any(|line| line.contains(name));
        assert!(has("filename = \"/nowhere/inside\""), "{lines:?}");
        assert_eq!(has("filename = \"/nowhere/outside\""), is_everything);
        assert!(has("libtrackway.so"), "the library's own calls are among them");
        assert!(!has("syscall_exit_openat"), "it was excluded");
    }
    // With kernel events only, the command runs without the library.
    let options = ["--kernel", "syscalls:openat,!sys_exit_openat", "--kernel-only"];
    let script = format!("{script}; echo \"[$LD_PRELOAD$TRACKWAY_TOKEN]\"");
    let output = run_record(&fixture, &options, &["sh", "-c", &script]);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    assert_eq!(lossy_text(&output.stdout), "[]\n");
    let lines = printed_lines(&fixture);
    let has = |name: &str| lines.iter().any(|line| line.contains(name));
    assert!(has("filename = \"/nowhere/inside\"") && !has("trackway"), "{lines:?}");
    assert!(!fixture.path("trace/ust").exists(), "nothing of programs");
}

/// RUN a flight recorder that is too small. EXPECT the newest events, and the number of overwritten
/// ones.
#[test]
fn a_flight_recorder_keeps_the_newest_of_the_kernel_too() {
    let fixture = Fixture::new("kernel-flight");
    let Some(program) = compile_calls(&fixture) else { return };
    let options = ["--kernel", "syscalls:getpgid", "--flight-recorder", "--buffer-size", "128K"];
    let output = run_record(&fixture, &options, &[program.to_str().expect("a path"), "50000"]);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let count = |what: &str| {
        let line = talk.lines().find(|line| line.contains("kernel: ")).expect("a summary");
        let before = line.split(what).next().expect("a number").trim_end();
        let number = before
            .rsplit([' ', ','])
            .take_while(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        let digits: Vec<&str> = number.collect();
        digits.into_iter().rev().collect::<String>().parse::<u64>().expect("a number")
    };
    let (recorded, overwritten) = (count("events recorded"), count("overwritten"));
    assert!(recorded > 1000 && overwritten > 1000, "{talk}");
    assert_eq!(recorded + overwritten, 100_000, "{talk}");
    let lines = printed_lines(&fixture);
    assert!(lines.iter().any(|line| line.contains("pid = 1000049999")), "{}", lines.len());
}

/// RUN impossible recordings. EXPECT a message with a hint, before the command runs.
#[test]
fn refusals_have_hints() {
    let fixture = Fixture::new("kernel-refused");
    let refused = |options: &[&str]| {
        let output = run_record(&fixture, options, &["touch", "ran"]);
        assert!(!output.status.success() && !fixture.path("ran").exists());
        lossy_text(&output.stderr)
    };
    let talk = refused(&["--system-wide"]);
    assert!(talk.contains("--kernel"), "{talk}");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let talk = refused(&["--kernel", "shced_switch"]);
    assert!(talk.contains("no kernel event matches 'shced_switch'; did you mean"), "{talk}");
    let talk = refused(&["--kernel", "sched_switch", "--kernel-only", "--filter", "web:r: a == 1"]);
    assert!(talk.contains("'web:r: a == 1' is about none of the kernel's events"), "{talk}");
    let talk = refused(&["--kernel", "a b"]);
    assert!(talk.contains("is no pattern of kernel events") && talk.contains("hint: "), "{talk}");
    // A recording that needs more open files than are allowed is refused before it makes anything.
    let trackway = build_dir().join("trackway");
    let script = "ulimit -n 256; exec \"$0\" record --kernel '*' -o trace -- touch ran";
    let output =
        fixture.command("sh").args(["-c", script]).arg(&trackway).output().expect("it runs");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.code() == Some(125) && !fixture.path("ran").exists(), "{talk}");
    assert!(talk.contains(" open files, and 256 are allowed") && talk.contains("ulimit -n"));
    // The user lacks the privilege.
    if !has("setpriv") {
        return report_skipped("setpriv is not installed");
    }
    let trackway = fixture.path("trackway");
    copy_program(&build_dir().join("trackway"), &trackway);
    let mut command = fixture.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&trackway);
    command.args(["record", "--kernel", "sched_switch", "--", "true"]);
    let output = command.output().expect("it runs");
    let talk = lossy_text(&output.stderr);
    assert!(talk.contains("cannot list kernel events: only root may"), "{talk}");
    let same = format!("\n  sudo {} record --kernel sched_switch -- true", trackway.display());
    assert!(talk.contains(&same), "{talk}");
}

/// RUN the guide's commands. EXPECT the results that it documents.
#[test]
fn the_commands_of_the_kernel_guide_work() {
    let fixture = Fixture::new("kernel-guide");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let guide = fs::read_to_string(source_dir().join("docs/guides/kernel.md")).expect("a guide");
    let blocks = guide.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let trackway = build_dir().join("trackway").display().to_string();
    for line in blocks.flat_map(str::lines) {
        let command = line.replacen("trackway", &trackway, 1);
        let output = fixture.command("sh").args(["-c", &command]).output().expect("it runs");
        assert!(output.status.success(), "{line}: {}", lossy_text(&output.stderr));
    }
    let print = |trace: &str| {
        let output = fixture.trackway(&["print", trace]).output().expect("it runs");
        lossy_text(&output.stdout)
    };
    let opened = print("what-it-opens");
    assert!(opened.contains("syscall_entry_openat: ") && opened.contains("sched_switch: "));
    let ran = print("what-it-runs");
    assert!(ran.contains("syscall_entry_execve: ") && !ran.contains("syscall_exit_execve: "));
    assert!(print("everything").contains("sched_switch: "));
}

/// RUN a program that calls exec(2) in a thread that is not its first. EXPECT the events after it.
#[test]
fn a_process_whose_thread_calls_exec_is_recorded_after_it() {
    const EXEC: &str = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *go(void *unused) {\n\
        execl(\"/bin/cat\", \"cat\", \"/nowhere/behind-exec\", (char *)0); return unused; }\n\
        int main(void) { pthread_t thread;\n\
        if (pthread_create(&thread, 0, go, 0)) return 97;\n\
        pthread_join(thread, 0); return 98; }\n";
    let fixture = Fixture::new("kernel-exec");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let program = fixture.compile("exec", EXEC, false, &["-pthread"]);
    let options = ["--kernel", "syscalls:openat"];
    let output = run_record(&fixture, &options, &[program.to_str().expect("a path")]);
    assert_eq!(output.status.code(), Some(1), "{}", lossy_text(&output.stderr));
    let lines = printed_lines(&fixture);
    assert!(lines.iter().any(|line| line.contains("/nowhere/behind-exec")), "{lines:?}");
}

/// RUN perf's counter of an event that is recorded. EXPECT perf to count: a recorder does not
/// occupy the event.
#[test]
fn others_see_the_events_too() {
    let fixture = Fixture::new("kernel-others");
    if compile_calls(&fixture).is_none() {
        return;
    }
    if !has("perf") {
        return report_skipped("perf is not installed");
    }
    let perf = ["perf", "stat", "-a", "-x,", "-e", "sched:sched_switch", "sleep", "0.2"];
    let alone = fixture.command(perf[0]).args(&perf[1..]).output().expect("it runs");
    if !alone.status.success() {
        return report_skipped("perf does not count here");
    }
    let options = ["--kernel", "sched:sched_switch", "--system-wide", "-q"];
    let output = run_record(&fixture, &options, &perf);
    let talk = lossy_text(&output.stderr);
    let line = talk.lines().find(|line| line.contains("sched:sched_switch")).expect("a count");
    let count: u64 = line.split(',').next().and_then(|count| count.parse().ok()).expect("a number");
    assert!(count > 0, "{talk}");
}

/// RUN a recording that is ended before its command. EXPECT its kernel part to end with it.
#[test]
fn the_end_of_a_recording_ends_its_kernel_part() {
    let fixture = Fixture::new("kernel-destroyed");
    let Some(program) = compile_calls(&fixture) else { return };
    let script = format!(
        "trackway=$1; {0} 100; $trackway session destroy record-$PPID; {0} 100",
        program.display()
    );
    let trackway = build_dir().join("trackway").display().to_string();
    let options = ["--kernel", "syscalls:getpgid"];
    let output = run_record(&fixture, &options, &["sh", "-c", &script, "sh", &trackway]);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert!(talk.contains("kernel: 200 events recorded, 0 lost, 0 overwritten"), "{talk}");
}

/// RUN a recorder of all processes, whose own preparations cause many of the recorded events.
/// EXPECT few of its own events: recording begins after the preparations.
#[test]
fn the_recorders_own_preparations_are_not_recorded() {
    let fixture = Fixture::new("kernel-ready");
    if compile_calls(&fixture).is_none() {
        return;
    }
    let mut record =
        fixture.trackway(&["record", "--system-wide", "--kernel", "kmem,tcp,block,vmscan"]);
    record.args(["--buffer-size=8M", "-o", "trace", "--", "true"]);
    let recorder = record.stderr(Stdio::piped()).spawn().expect("it runs");
    let pid = recorder.id();
    let talk = lossy_text(&recorder.wait_with_output().expect("it ends").stderr);
    assert!(talk.contains("kernel: "), "{talk}");
    let tid = format!("{{ tid = {pid} }}");
    let is_own = |line: &&String| line.contains(&tid) && line.contains(" kmem_kmalloc: ");
    let own = printed_lines(&fixture).iter().filter(is_own).count();
    // The kernel's verifier allocates memory hundreds of times for each of some sixty programs.
    assert!(own < 2000, "{own} times memory for the recorder itself; {talk}");
}
