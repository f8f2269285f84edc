//! `trackway record --kernel` without BPF: the same events and fields from the kernel's own
//! buffers, by choice or because BPF is refused, and no leftovers in tracefs.
//!
//! Longer than 600 lines: the tests share one program and its expected events.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trackway_tests::cgroup::TestCgroup;
use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{
    Fixture, babeltrace_discarded_events, build_dir, copy_program, has, has_kernel_events,
    lossy_text, report_skipped, source_dir,
};

use crate::support::run_record_into;

/// Folder of the tracefs instances.
const INSTANCES_FOLDER: &str = "/sys/kernel/tracing/instances";

/// Returns true if tracefs is mounted and its instances are readable.
fn is_mounted() -> bool {
    let is = Path::new(INSTANCES_FOLDER).is_dir();
    if !is {
        report_skipped("tracefs is not mounted at /sys/kernel/tracing");
    }
    is
}

/// Returns the lines of a trace.
fn print_trace(fixture: &Fixture, trace: &str) -> Vec<u8> {
    let printed = fixture.trackway(&["print", trace]).output().expect("it runs");
    assert!(printed.status.success(), "{}", lossy_text(&printed.stderr));
    assert!(
        !lossy_text(&printed.stderr).contains("not complete"),
        "{}",
        lossy_text(&printed.stderr)
    );
    printed.stdout
}

/// Returns the lines of a trace. If babeltrace2 is installed, its lines must be equal.
fn printed_lines(fixture: &Fixture, trace: &str) -> Vec<String> {
    let printed = print_trace(fixture, trace);
    if has("babeltrace2") {
        let mut babeltrace = Command::new("babeltrace2");
        let theirs = babeltrace.arg(fixture.path(trace)).output().expect("it runs");
        assert!(theirs.status.success(), "{}", lossy_text(&theirs.stderr));
        assert!(theirs.stdout == printed, "babeltrace2 prints something else");
    }
    lossy_text(&printed).lines().map(str::to_owned).collect()
}

/// Returns the counts of the kernel part: recorded, lost, overwritten.
fn parse_kernel_counts(talk: &str) -> [u64; 3] {
    let line = talk.lines().find_map(|line| line.strip_prefix("trackway: kernel: "));
    let line = line.unwrap_or_else(|| panic!("no summary: {talk}"));
    let mut words = line.split(' ').filter_map(|word| word.replace(',', "").parse().ok());
    [(); 3].map(|()| words.next().expect("a number"))
}

/// Returns the number after `name` in a line.
fn number_after(line: &str, name: &str) -> u64 {
    let digits = line.split(name).nth(1).expect("a field");
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().expect("a number")
}

/// Returns the name and fields of a line, without the parts that differ from run to run (times,
/// CPUs, threads), and without strings.
fn reproducible_fields(line: &str) -> String {
    let (_, line) = line.split_once(") ").expect("a time");
    let (_, line) = line.split_once(' ').expect("a host");
    let mut essence = String::new();
    for (number, part) in line.split(", ").enumerate() {
        let is_of_the_run = ["cpu_id = ", "tid = ", "pid = "].iter().any(|name| {
            let digits = part.split(name).nth(1);
            digits.is_some_and(|digits| {
                let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
                // Large numbers are those that the program chose.
                digits.parse::<u64>().is_ok_and(|value| value < 1_000_000_000)
            })
        });
        // Fields that describe whether strings were read, at entry or exit.
        let is_of_texts = ["incomplete = ", "name_length = ", "name = [ "];
        let is_of_texts = is_of_texts.iter().any(|what| part.contains(what));
        let part = if is_of_the_run || is_of_texts {
            part.split(" = ").next().unwrap_or(part)
        } else {
            part
        };
        let mut quotes = part.split('"');
        let part = match (quotes.next(), quotes.count()) {
            (Some(before), 2) => format!("{before}\"\""),
            _ => part.to_owned(),
        };
        essence.push_str(if number == 0 { "" } else { ", " });
        essence.push_str(&part);
    }
    essence
}

/// RUN a program by both backends. EXPECT the same events of its main thread and child, with the
/// same fields, except strings: those are empty, and the trace lists them.
#[test]
fn both_ways_record_the_same_events_and_fields() {
    const COUNT: usize = 300;
    const CONTEXTS: [&str; 2] = ["--context", "preemptible,interruptible"];
    let fixture = Fixture::new("tracefs-same");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/variety.c", false, &[]);
    let program = program.to_str().expect("a path");
    let events = "syscalls:getpgid,syscalls:openat,syscalls:lseek,syscalls:close,syscalls:dup2,\
                  syscalls:mkdirat,sched_process_exit,sched_process_fork";
    // Not every kernel provides both contexts to BPF programs.
    let options =
        [&["--kernel", "sched_switch", "--kernel-backend", "bpf"], &CONTEXTS[..]].concat();
    let tried = run_record_into(&fixture, "tried", &options, &["true"]);
    let contexts = if tried.status.success() { &CONTEXTS[..] } else { &[] };
    if contexts.is_empty() {
        report_skipped(lossy_text(&tried.stderr).trim());
    }
    let run = |via: &str| {
        let options = [&["--kernel", events, "--kernel-backend", via], contexts].concat();
        let output = run_record_into(&fixture, via, &options, &[program, &COUNT.to_string()]);
        let talk = lossy_text(&output.stderr);
        assert!(output.status.success(), "{talk}");
        // (babeltrace2 2.0.4 prints the previous string in place of an empty one, which BPF records
        // where a page of the program is not in memory.)
        let all: Vec<String> = match via {
            "tracefs" => printed_lines(&fixture, via),
            _ => lossy_text(&print_trace(&fixture, via)).lines().map(str::to_owned).collect(),
        };
        assert_eq!(parse_kernel_counts(&talk), [all.len() as u64, 0, 0], "{talk}");
        let at = |pid: &str| all.iter().position(|line| line.contains(pid)).expect("a call");
        let between = all[at("pid = 1000000001")..at("pid = 1000000002")].to_vec();
        // The child runs at the same time as its parent, so their order differs each time.
        let mut sums: BTreeMap<String, usize> = BTreeMap::new();
        for line in &between {
            *sums.entry(reproducible_fields(line)).or_default() += 1;
        }
        (between, sums)
    };
    let ((by_bpf, bpf), (by_tracefs, tracefs)) = (run("bpf"), run("tracefs"));
    assert!(by_bpf.len() > 10 * COUNT, "{by_bpf:?}");
    assert_eq!(bpf, tracefs);
    let of_calls = |line: &&String| line.contains(" syscall_entry_lseek: ");
    let says = |line: &&String| line.contains(", preemptible = 1, interruptible = 1 }");
    let said = by_tracefs.iter().filter(of_calls).filter(says).count();
    assert!(contexts.is_empty() || said >= COUNT, "{said}: {by_tracefs:?}");
    let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    assert!(has(&by_bpf, "filename = \"/nowhere/variety\""), "{by_bpf:?}");
    assert!(!has(&by_tracefs, "/nowhere/variety") && has(&by_tracefs, "filename = \"\""));
    // Strings that the kernel itself records are present.
    assert!(has(&by_tracefs, "sched_process_exit: ") && has(&by_tracefs, "comm = \"variety\""));
    let metadata =
        lossy_text(&fs::read(fixture.path("tracefs/kernel/metadata")).expect("metadata"));
    assert!(metadata.contains("trackway_kernel_via = \"tracefs\";"), "{metadata}");
    let empty = "trackway_empty_fields = \"sched_process_fork:parent_pid \
                 sched_process_fork:child_pid syscall_entry_mkdirat:pathname \
                 syscall_entry_openat:filename syscall_exit_mkdirat:pathname \
                 syscall_exit_openat:filename\";";
    assert!(metadata.contains(empty), "{metadata}");
    let metadata = lossy_text(&fs::read(fixture.path("bpf/kernel/metadata")).expect("metadata"));
    assert!(metadata.contains("trackway_empty_fields = \"\";"), "{metadata}");
}

/// RUN both backends for whole subsystems. EXPECT the same events declared, field by field; and
/// only the command's events, from its start on, not the recorder's preparations.
#[test]
fn both_ways_declare_the_same_events() {
    let fixture = Fixture::new("tracefs-declared");
    if !has_kernel_events(&fixture) {
        return;
    }
    let declared = |via: &str| {
        // tracefs has no 32-bit system calls.
        let events = "syscalls,!compat_*,irq,signal,task";
        let options = ["--kernel", events, "--kernel-backend", via];
        let output = run_record_into(&fixture, via, &options, &["true"]);
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let lines = lossy_text(&print_trace(&fixture, via));
        let calls: Vec<_> = lines.lines().filter(|line| line.contains(" syscall_")).collect();
        let is_run = |line: &&&str| line.contains(" syscall_entry_execve: ");
        let at = calls.iter().position(|line| is_run(&line)).expect("it is run");
        // With tracefs, the process itself requests its recording, by write(2).
        assert!(at <= usize::from(via == "tracefs"), "{calls:?}");
        assert_eq!(calls.iter().filter(is_run).count(), 1, "{calls:?}");
        let threads: BTreeSet<_> =
            calls.iter().map(|line| number_after(line, "{ tid = ")).collect();
        assert_eq!(threads.len(), 1, "{calls:?}");
        let metadata =
            lossy_text(&fs::read(fixture.path(via).join("kernel/metadata")).expect("metadata"));
        let events = metadata.find("\nevent {").expect("events");
        metadata[events..].to_owned()
    };
    let by_bpf = declared("bpf");
    assert!(by_bpf.matches("\nevent {").count() > 600, "{by_bpf}");
    assert!(by_bpf == declared("tracefs"));
}

/// RUN both backends for events whose values have names. EXPECT the same names in both.
#[test]
fn both_ways_show_what_values_stand_for() {
    let fixture = Fixture::new("tracefs-names");
    if !has_kernel_events(&fixture) {
        return;
    }
    let shown = |via: &str| {
        let options = ["--kernel", "syscalls:socket,syscalls:access", "--kernel-backend", via];
        let output = run_record_into(&fixture, via, &options, &["ls", "/dev/null"]);
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let printed = fixture.trackway(&["print", "--symbolic", via]).output().expect("it runs");
        lossy_text(&printed.stdout)
    };
    for via in ["bpf", "tracefs"] {
        let shown = shown(via);
        assert!(shown.contains("R_OK"), "{via}: {shown}");
    }
}

/// RUN selections that tracefs lacks. EXPECT a refusal that lists the possible ones, and that
/// nothing runs; and for CPUs, only the selected ones.
#[test]
fn selections_beyond_tracefs_are_refused() {
    let fixture = Fixture::new("tracefs-selected");
    if !has_kernel_events(&fixture) {
        return;
    }
    let via = ["--kernel", "syscalls:access", "--kernel-backend", "tracefs"];
    let refused = |options: &[&str]| {
        let output =
            run_record_into(&fixture, "none", &[&via[..], options].concat(), &["touch", "ran"]);
        assert!(!output.status.success() && !fixture.path("ran").exists(), "{options:?}");
        lossy_text(&output.stderr)
    };
    let talk = refused(&["--cgroup", "/no/such/group"]);
    assert!(talk.contains("there is no cgroup /no/such/group"), "{talk}");
    assert!(refused(&["--cgroup", "/proc"]).contains("/proc is no cgroup of version 2"));
    assert!(refused(&["--cpu", "8191"]).contains("there is no CPU 8191"));
    let pinned = |cpu: &str| Command::new("taskset").args(["-c", cpu, "true"]).status();
    if !["0", "1"].into_iter().all(|cpu| pinned(cpu).is_ok_and(|status| status.success())) {
        return report_skipped("there are no two CPUs for us, or no taskset");
    }
    let script = "for cpu in 0 1; do taskset -c $cpu ls /dev/null; done";
    let options = [&via[..], &["--cpu", "1", "--system-wide"]].concat();
    let output = run_record_into(&fixture, "cpu", &options, &["sh", "-c", script]);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let lines = printed_lines(&fixture, "cpu");
    let entries = lines.iter().filter(|line| line.contains("syscall_entry_"));
    assert!(entries.clone().count() > 0, "{lines:?}");
    assert!(entries.clone().all(|line| line.contains("{ cpu_id = 1 }")), "{lines:?}");
}

/// RUN a program that makes system calls between two events. EXPECT, each time and in this order:
/// event, entry, exit, event; and no calls of other programs.
#[test]
fn programs_and_tracefs_are_on_one_clock() {
    const COUNT: usize = 20_000;
    let fixture = Fixture::new("tracefs-clock");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/calls.c", true, &[]);
    let options = ["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"];
    let command = [program.to_str().expect("a path"), "20000"];
    let output = run_record_into(&fixture, "trace", &options, &command);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert_eq!(parse_kernel_counts(&talk), [2 * COUNT as u64, 0, 0], "{talk}");
    let lines = printed_lines(&fixture, "trace");
    assert_eq!(lines.len(), 4 * COUNT);
    for (number, four) in lines.chunks(4).enumerate() {
        let expected = [
            ("calls:before", format!("{{ number = {number} }}")),
            ("syscall_entry_getpgid", format!("{{ pid = {} }}", 1_000_000_000 + number)),
            ("syscall_exit_getpgid", "{ ret = -3 }".into()),
            ("calls:after", format!("{{ number = {number} }}")),
        ];
        for (line, (name, fields)) in four.iter().zip(expected) {
            let is_it = line.contains(&format!(" {name}: ")) && line.ends_with(&fields);
            assert!(is_it, "{four:?}");
        }
    }
}

/// RUN a command whose child makes system calls, while other processes do, too. EXPECT only the
/// child's calls; for the whole system, the others, too.
#[test]
fn a_command_and_what_it_starts_are_recorded_or_everything() {
    const UNMATCHED_FILTER: &str = "pid = 1000777777";
    let fixture = Fixture::new("tracefs-scope");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/calls.c", true, &[]);
    let script = format!("({} 10); true", program.display());
    for (options, is_everything) in [(&[][..], false), (&["--system-wide"][..], true)] {
        let options = [&["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"], options];
        let done = std::sync::atomic::AtomicBool::new(false);
        let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done() {
                    // SAFETY: getpgid has no preconditions.
                    unsafe { libc::getpgid(1_000_777_777) };
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            let output =
                run_record_into(&fixture, "trace", &options.concat(), &["sh", "-c", &script]);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            output
        });
        assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        let lines = printed_lines(&fixture, "trace");
        let count = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
        // Concurrent tests run the same program.
        let calls = count("pid = 100000000");
        assert!(calls == 10 || (calls > 10 && is_everything), "{lines:?}");
        assert_eq!(count(UNMATCHED_FILTER) > 0, is_everything, "{lines:?}");
    }
}

/// RUN a command, and kill it from outside. EXPECT the signal by BPF, as it concerns the command,
/// and not by tracefs; and by both backends the command's signal to its parent.
#[test]
fn only_bpf_records_what_others_do_to_a_command() {
    let fixture = Fixture::new("tracefs-others");
    if !has_kernel_events(&fixture) {
        return;
    }
    for (via, is_there) in [("bpf", true), ("tracefs", false)] {
        let place = fixture.path(&format!("pid-{via}"));
        let file = place.display();
        let script = format!("echo $$ > {file}.new; mv {file}.new {file}; exec sleep 60");
        let options = ["--kernel", "signal_generate", "--kernel-backend", via];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for("the command to run", || place.exists());
                let pid = fs::read_to_string(&place).expect("its number");
                send_signal(pid.trim().parse().expect("a number"), libc::SIGTERM);
            });
            run_record_into(&fixture, via, &options, &["sh", "-c", &script]);
        });
        let lines = printed_lines(&fixture, via);
        let has = |signal: &str| lines.iter().any(|line| line.contains(signal));
        assert_eq!(has(" sig = 15, "), is_there, "{via}: {lines:?}");
        assert!(has(" sig = 17, "), "{via}: {lines:?}");
    }
}

/// RUN a command outside an empty control group. EXPECT no events, and a message about the method
/// of following the group.
#[test]
fn a_cgroup_that_nobody_is_in_has_nothing_by_tracefs() {
    let fixture = Fixture::new("tracefs-cgroup");
    if !has_kernel_events(&fixture) {
        return;
    }
    let Some(nobody) = TestCgroup::new("tracefs-nobody") else { return };
    let program = fixture.compile_file("kernel/calls.c", false, &[]);
    let options = ["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs", "--cgroup"];
    let group = nobody.path();
    let options = [&options[..], &[&group]].concat();
    let output =
        run_record_into(&fixture, "trace", &options, &[program.to_str().expect("a path"), "100"]);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert_eq!(parse_kernel_counts(&talk), [0, 0, 0], "{talk}");
    assert!(talk.contains("apart at most: 0 threads came in meanwhile"), "{talk}");
}

/// RUN record with a clock other than that of kernel events. EXPECT a refusal.
#[test]
fn another_clock_is_refused_by_tracefs_too() {
    let fixture = Fixture::new("tracefs-clock-apart");
    if !has_kernel_events(&fixture) {
        return;
    }
    let elsewhen = ["--time", "--monotonic", "100", "--fork", "--"];
    let unshare = || Command::new("unshare");
    if !unshare().args(elsewhen).arg("true").status().is_ok_and(|status| status.success()) {
        return report_skipped("there are no time namespaces for us");
    }
    let options = ["record", "--kernel", "sched_switch", "--kernel-backend", "tracefs", "--"];
    let mut record = fixture.trackway(&options);
    record.args(["touch", "ran"]);
    let mut inside = unshare();
    inside.args(elsewhen).arg(record.get_program()).args(record.get_args());
    inside.current_dir(fixture.path(""));
    for (name, value) in record.get_envs() {
        inside.env(name, value.unwrap_or_default());
    }
    let output = inside.output().expect("it runs");
    let talk = lossy_text(&output.stderr);
    assert!(talk.contains("has a clock of its own"), "{talk}");
    assert!(!output.status.success() && !fixture.path("ran").exists());
}

/// RUN record with options that only BPF supports. EXPECT a refusal that names the option, the
/// reason and the alternative, and that nothing runs.
#[test]
fn options_beyond_tracefs_are_refused() {
    let fixture = Fixture::new("tracefs-refused");
    if !has_kernel_events(&fixture) {
        return;
    }
    let no_name = "filename is what tracefs does not give";
    let no_context = "$ctx.procname is what records of tracefs do not say";
    for ([option, value], why) in [
        (["--filter", "*openat: filename == \"/x\""], no_name),
        (["--filter", "*openat: $ctx.procname == \"x\""], no_context),
        (["--context", "prio"], "by tracefs there is no context 'prio'"),
        (["--kernel", "!sched_swich"], "no kernel event matches 'sched_swich'"),
        (["--pid", "2147483647"], "there is no process 2147483647"),
    ] {
        let options = ["--kernel", "syscalls:openat", "--kernel-backend", "tracefs", option, value];
        let mut record = fixture.trackway(&["record", "-o", "trace"]);
        record.args(options);
        if option != "--pid" {
            record.args(["--", "touch", "ran"]);
        }
        let output = record.output().expect("trackway runs");
        let talk = lossy_text(&output.stderr);
        assert!(!output.status.success() && !fixture.path("ran").exists(), "{option}: {talk}");
        assert!(talk.contains(why), "{option}: {talk}");
        assert!(option == "--pid" || talk.contains("hint: "), "{option}: {talk}");
    }
}

/// RUN one program repeatedly, with filters by tracefs, and without. EXPECT each time the events
/// that `print` selects by the same filters from the unfiltered recording, also with state,
/// contexts, or names of values; and filtered events not to be reported as lost.
#[test]
fn filters_by_tracefs_take_what_print_takes() {
    let fixture = Fixture::new("tracefs-filters");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/filtered.c", false, &["-pthread"]);
    let program = program.to_str().expect("a path");
    let events = "syscalls:getpgid,syscalls:lseek,sched_process_exit";
    let via = ["--kernel", events, "--kernel-backend", "tracefs"];
    let run = |trace: &str, options: &[&str]| {
        let output =
            run_record_into(&fixture, trace, &[&via[..], options].concat(), &[program, "300"]);
        let talk = lossy_text(&output.stderr);
        assert!(output.status.success(), "{talk}");
        talk
    };
    // Lines without the parts that differ from run to run, and without the loader's calls.
    let told = |trace: &str, filters: &[&str]| -> Vec<String> {
        let mut print = fixture.trackway(&["print", trace]);
        for filter in filters {
            print.args(["--filter", filter]);
        }
        let output = print.output().expect("it runs");
        assert!(output.status.success(), "{filters:?}: {}", lossy_text(&output.stderr));
        let all = lossy_text(&output.stdout);
        let is_own = |line: &&str| line.contains("getpgid") || line.contains("lseek: ");
        all.lines().filter(is_own).map(reproducible_fields).collect()
    };
    run("all", &[]);
    for filters in [
        &["*getpgid: pid % 7 == 3", "*lseek: whence == \"SEEK_END\" && offset < -100"][..],
        &["*lseek: offset < -1 && count() % 10 == 3 || changed(whence)"],
        &["*getpgid: pid & 1", "*getpgid: count() % 4 == 0"],
        &["*getpgid: ret == -3 || $ctx.tid == 0", "*lseek: ret == \"EBADF\""],
        &["sched_process_exit: comm == \"filt*\" && sample(1)", "*getpgid: pid * 0.5 < 5e8 + 20"],
    ] {
        let expected = told("all", filters);
        let options: Vec<&str> = filters.iter().flat_map(|one| ["--filter", one]).collect();
        let talk = run("some", &options);
        assert!((10..1200).contains(&expected.len()), "{filters:?}: {}", expected.len());
        assert_eq!(told("some", &[]), expected, "{filters:?}: {talk}");
        assert_eq!(parse_kernel_counts(&talk)[1..], [0, 0], "{talk}");
    }
    // Programs make system calls with interrupts enabled.
    let none = "*getpgid: $ctx.cpu_id > 8191 || !$ctx.interruptible";
    run("none", &["--filter", none, "--filter", "*lseek: false"]);
    assert_eq!(told("none", &[]), [] as [String; 0]);
}

/// RUN filters in C: on present fields, and on fields that tracefs does not provide. EXPECT the
/// first to be evaluated, with its state, and the other to be refused with the reason.
#[test]
fn filters_in_c_are_asked_by_tracefs_too() {
    const FILTER: &str = "#include <trackway/filter.h>\n\
        struct asked { trackway_signed pid, tid; };\n\
        #define TRACKWAY_NEEDS_asked \"signed pid\\n\" \"signed $ctx.tid\\n\"\n\
        TRACKWAY_FILTER(asked, frame) {\n\
        if (frame->tid <= 0 || frame->pid < 1000000000) return 0;\n\
        return trackway_count(frame, 0) % 4 == 0; }\n";
    const UNMET_FILTER: &str = "#include <trackway/filter.h>\n\
        struct opened { trackway_string filename; };\n\
        #define TRACKWAY_NEEDS_opened \"string filename\\n\"\n\
        TRACKWAY_FILTER(opened, frame) {\n\
        return trackway_string_ends_with(frame, frame->filename, TRACKWAY_STRING(\".so\")); }\n";
    let fixture = Fixture::new("tracefs-filter-c");
    if !has_kernel_events(&fixture) {
        return;
    }
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let include = format!("-I{}", source_dir().join("include").display());
    for (name, source) in [("asked", FILTER), ("unmet", UNMET_FILTER)] {
        let file = format!("{name}.c");
        fs::write(fixture.path(&file), source).expect("a file");
        let mut clang = fixture.command("clang");
        clang.args(["-O2", "-target", "bpf", "-fno-jump-tables", &include, "-c", &file]);
        let built = clang.output().expect("it runs");
        assert!(built.status.success(), "{}", lossy_text(&built.stderr));
    }
    let program = fixture.compile_file("kernel/calls.c", false, &[]);
    let command = [program.to_str().expect("a path"), "100"];
    let via = ["--kernel-backend", "tracefs", "--kernel", "syscalls:getpgid,syscalls:openat"];
    let with = |object: &str, command: &[&str]| {
        run_record_into(
            &fixture,
            "trace",
            &[&via[..], &["--filter-object", object]].concat(),
            command,
        )
    };
    let output = with("syscalls:sys_enter_getpgid: asked.o", &command);
    assert!(output.status.success(), "{}", lossy_text(&output.stderr));
    let lines = printed_lines(&fixture, "trace");
    let entries = lines.iter().filter(|line| line.contains("syscall_entry_getpgid: "));
    let numbers: Vec<u64> =
        entries.map(|line| number_after(line, "{ pid = ") - 1_000_000_000).collect();
    assert_eq!(numbers, (0..100).step_by(4).collect::<Vec<_>>());
    let exits = lines.iter().filter(|line| line.contains("syscall_exit_getpgid: ")).count();
    assert_eq!(exits, 100, "which it is not about");
    let output = with("syscalls:openat: unmet.o", &["touch", "ran"]);
    let talk = lossy_text(&output.stderr);
    assert!(!output.status.success() && !fixture.path("ran").exists(), "{talk}");
    let why = "it is what tracefs does not give";
    assert!(talk.contains("unmet.o: the filter reads 'filename'") && talk.contains(why), "{talk}");
    assert!(talk.contains("hint: "), "{talk}");
}

/// RUN a flight recorder that is too small. EXPECT the newest events, and the number of overwritten
/// ones.
#[test]
fn a_flight_recorder_keeps_the_newest_by_tracefs_too() {
    let fixture = Fixture::new("tracefs-flight");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/calls.c", true, &[]);
    let options = ["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"];
    let options = [&options[..], &["--flight-recorder", "--buffer-size", "128K"]].concat();
    let command = [program.to_str().expect("a path"), "50000"];
    let output = run_record_into(&fixture, "trace", &options, &command);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let [recorded, lost, overwritten] = parse_kernel_counts(&talk);
    assert!(recorded > 1000 && overwritten > 1000, "{talk}");
    assert_eq!((recorded + overwritten, lost), (100_000, 0), "{talk}");
    let lines = printed_lines(&fixture, "trace");
    assert!(lines.iter().any(|line| line.contains("pid = 1000049999")), "{}", lines.len());
}

/// RUN a recording with hardly any buffer. EXPECT every call in the trace or counted as lost, in
/// the trace and in the messages.
#[test]
fn events_without_room_are_counted() {
    let fixture = Fixture::new("tracefs-lost");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile_file("kernel/calls.c", false, &[]);
    let options = ["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"];
    let options = [&options[..], &["--buffer-size", "16K"]].concat();
    let command = [program.to_str().expect("a path"), "100000"];
    let output = run_record_into(&fixture, "trace", &options, &command);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let [recorded, lost, overwritten] = parse_kernel_counts(&talk);
    assert!(recorded > 0 && lost > 0, "{talk}");
    assert_eq!((recorded + lost, overwritten), (200_000, 0), "{talk}");
    let in_trace =
        printed_lines(&fixture, "trace").iter().filter(|line| line.contains("_getpgid: ")).count();
    assert_eq!(in_trace as u64, recorded);
    if has("babeltrace2") {
        let output = Command::new("babeltrace2").arg(fixture.path("trace/kernel")).output();
        let messages = lossy_text(&output.expect("it runs").stderr);
        assert_eq!(babeltrace_discarded_events(&messages), lost, "{messages}");
    }
}

/// RUN a program that calls exec(2) in a thread that is not its first. EXPECT the events after it.
#[test]
fn a_process_whose_thread_calls_exec_is_recorded_after_it() {
    const EXEC: &str = "#include <pthread.h>\n#include <unistd.h>\n\
        static void *go(void *program) {\n\
        execl(program, \"calls\", \"7\", (char *)0); return program; }\n\
        int main(int argc, char **argv) { pthread_t thread; (void)argc;\n\
        if (pthread_create(&thread, 0, go, argv[1])) return 97;\n\
        pthread_join(thread, 0); return 98; }\n";
    let fixture = Fixture::new("tracefs-exec");
    if !has_kernel_events(&fixture) {
        return;
    }
    let program = fixture.compile("exec", EXEC, false, &["-pthread"]);
    let calls = fixture.compile_file("kernel/calls.c", false, &[]);
    let options = ["--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"];
    let command = [program.to_str().expect("a path"), calls.to_str().expect("a path")];
    let output = run_record_into(&fixture, "trace", &options, &command);
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    assert_eq!(parse_kernel_counts(&talk), [14, 0, 0], "{talk}");
}

/// Returns the tracefs instances of a recorder.
fn instances_of(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(INSTANCES_FOLDER).expect("instances").flatten();
    let ours = format!("trackway-{pid}-");
    let is_ours = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&ours))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

/// RUN recordings that end, whose recorder is killed, and whose recorder and cleanup process are
/// killed. EXPECT no instance of the first two; and none of the last after the next recording.
#[test]
fn nothing_stays_in_tracefs() {
    const LIST_INSTANCES_SCRIPT: &str = "ls /sys/kernel/tracing/instances >seen";
    let fixture = Fixture::new("tracefs-gone");
    if !has_kernel_events(&fixture) || !is_mounted() {
        return;
    }
    let run = |script: &str| {
        let options = ["record", "--kernel", "syscalls:getpgid", "--kernel-backend", "tracefs"];
        let mut record = fixture.trackway(&options);
        record.args(["-o", "trace", "--", "sh", "-c", script]);
        let mut recorder = record.stderr(std::process::Stdio::null()).spawn().expect("it runs");
        let status = recorder.wait().expect("it ends");
        let seen = fs::read_to_string(fixture.path("seen")).expect("what the command saw");
        let ours = format!("trackway-{}-", recorder.id());
        assert!(seen.lines().any(|line| line.starts_with(&ours)), "{seen}");
        (recorder.id(), status.success())
    };
    let (pid, is_success) = run(LIST_INSTANCES_SCRIPT);
    assert!(is_success);
    assert_eq!(instances_of(pid), [] as [PathBuf; 0]);

    let (pid, is_success) = run(&format!("{LIST_INSTANCES_SCRIPT}; kill -9 $PPID"));
    assert!(!is_success);
    wait_for("the instance is removed", || instances_of(pid).is_empty());

    let kill_both = "for child in $(cat /proc/$PPID/task/*/children); do\n\
        test $(cat /proc/$child/comm) = trackway-after && kill -9 $child; done; kill -9 $PPID";
    let (pid, is_success) = run(&format!("{LIST_INSTANCES_SCRIPT}; {kill_both}"));
    assert!(!is_success);
    let left = instances_of(pid);
    assert_eq!(left.len(), 1, "nobody was there to remove it");
    // The kernel has ended the recording; another test's recorder may already have removed the
    // instance.
    let is_on = || fs::read_to_string(left[0].join("tracing_on")).is_ok_and(|on| on.trim() != "0");
    wait_for("it records nothing", || !is_on());
    run(LIST_INSTANCES_SCRIPT);
    assert_eq!(instances_of(pid), [] as [PathBuf; 0]);
}

/// RUN a recording as a user who may use tracefs but not BPF. EXPECT it to use tracefs, to report
/// the reason, like doctor before; and a refusal if BPF is required.
#[test]
fn recorders_without_bpf_use_tracefs() {
    let fixture = Fixture::new("tracefs-fallback");
    if !has_kernel_events(&fixture) || !is_mounted() {
        return;
    }
    if !has("capsh") {
        return report_skipped("capsh is not installed");
    }
    let program = fixture.compile_file("kernel/calls.c", false, &[]);
    let trackway = build_dir().join("trackway");
    let run = |arguments: &str| {
        let command = format!("{} {arguments}", trackway.display());
        let drop = "--drop=cap_bpf,cap_perfmon,cap_sys_admin";
        let output = fixture.command("capsh").args([drop, "--", "-c", &command]).output();
        output.expect("capsh runs")
    };
    let command = format!("-o trace -- {} 100", program.display());
    let output = run(&format!("record --kernel syscalls:getpgid {command}"));
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let why = "the kernel's events are recorded by tracefs, since BPF is refused (a map of bpf(2): \
               Operation not permitted";
    assert!(talk.contains(why) && talk.contains("hint: trackway doctor"), "{talk}");
    assert_eq!(parse_kernel_counts(&talk), [200, 0, 0], "{talk}");
    let lines = printed_lines(&fixture, "trace");
    assert_eq!(lines.iter().filter(|line| line.contains("_getpgid: ")).count(), 200);

    let output = run(&format!("record --kernel syscalls:getpgid --kernel-backend bpf {command}"));
    assert!(
        !output.status.success() && lossy_text(&output.stderr).contains("CAP_BPF"),
        "{output:?}"
    );

    let doctor = |output: Output| -> serde_json::Value {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks = json["checks"].as_array().expect("checks").clone();
        checks.into_iter().find(|check| check["name"] == "kernel-events").expect("a check")
    };
    let check = doctor(run("doctor --format json"));
    let fact = check["fact"].as_str().unwrap_or_default();
    assert!(check["result"] == "limited" && fact.contains("by tracefs"), "{check}");
    let with_bpf = fixture.trackway(&["doctor", "--format", "json"]).output().expect("it runs");
    assert!(doctor(with_bpf)["fact"].as_str().is_some_and(|fact| fact.contains("BPF")));
}

/// RUN under sudo. EXPECT the command to run as the invoking user, who cannot remove the instance,
/// and the instance to be removed nevertheless.
#[test]
fn under_sudo_the_instance_goes_too() {
    let fixture = Fixture::new("tracefs-sudo");
    if !has_kernel_events(&fixture) || !is_mounted() {
        return;
    }
    for folder in [&fixture.path(""), &fixture.window_dir().to_owned()] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(folder, open).expect("a mode");
    }
    // The program is in a folder that this user can enter.
    let program = fixture.path("calls-of-all");
    copy_program(&fixture.compile_file("kernel/calls.c", false, &[]), &program);
    let looks =
        format!("ls {INSTANCES_FOLDER} >&2; ls /proc/$PPID/fd >/dev/null 2>&1 && echo open");
    let script = format!("id -u; {} 10; {looks}; echo $PPID", program.display());
    let mut record = fixture.trackway(&["record", "--kernel", "syscalls:getpgid"]);
    record.args(["--kernel-backend", "tracefs", "-o", "trace", "--", "sh", "-c", &script]);
    record.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    let output = record.output().expect("trackway runs");
    let talk = lossy_text(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let said = lossy_text(&output.stdout);
    let (user, pid) = said.trim().split_once('\n').expect("two lines");
    assert_eq!(user, "65534");
    assert_eq!(parse_kernel_counts(&talk), [20, 0, 0], "{talk}");
    assert_eq!(instances_of(pid.parse().expect("a number")), [] as [PathBuf; 0]);
}
