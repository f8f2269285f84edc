//! `trackway record --kernel … --filter`: filters that the kernel evaluates before it records an
//! event.
//!
//! Longer than 600 lines: the tests share one traced program.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trackway_tests::{
    Fixture, copy_program, has, has_kernel_events, lossy_text, report_skipped, source_dir,
};

use crate::support::run_record_into;

/// Compiles the program, which always makes the same system calls; returns `None`, after printing
/// the reason, where kernel events cannot be recorded.
fn compile_program(fixture: &Fixture) -> Option<PathBuf> {
    if !has_kernel_events(fixture) {
        return None;
    }
    Some(fixture.compile_file("kernel/filtered.c", false, &["-pthread"]))
}

/// Runs `record` into a new trace, which must succeed, and returns its output.
fn record_trace(fixture: &Fixture, trace: &str, options: &[&str], command: &[&str]) -> Output {
    let output = run_record_into(fixture, trace, options, command);
    assert!(output.status.success(), "{options:?}: {}", lossy_text(&output.stderr));
    output
}

/// Returns the lines of a trace that these filters select.
fn filtered_lines(fixture: &Fixture, trace: &str, filters: &[&str]) -> Vec<String> {
    let mut print = fixture.trackway(&["print", trace]);
    for filter in filters {
        print.args(["--filter", filter]);
    }
    let output = print.output().expect("it runs");
    assert!(output.status.success(), "{filters:?}: {}", lossy_text(&output.stderr));
    lossy_text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Returns the part of a line that is equal in each run: the event, and its fields.
fn name_and_fields(line: &str) -> String {
    let (head, rest) = line.split_once(": { cpu_id").expect("an event's name");
    let name = head.rsplit(' ').next().expect("a word");
    let fields = rest.split_once("}, {").and_then(|(_, rest)| rest.split_once("}, "));
    // Addresses differ in each run.
    let is_address = |word: &&str| word.starts_with("0x") && word.len() > 12;
    let words = fields.expect("fields").1.split(' ').filter(|word| !is_address(word));
    format!("{name} {}", words.collect::<Vec<_>>().join(" "))
}

/// Returns the lines of the program's own calls; the loader makes system calls, too.
fn program_lines(lines: &[String]) -> Vec<String> {
    let is_own = |line: &&String| {
        line.contains("getpgid")
            || line.contains("entry_openat") && line.contains("\"/nowhere/")
            || line.contains("entry_lseek") && line.contains("{ fd = -1,")
            || line.contains("entry_execve") && line.contains("\"/nowhere/")
            || POINTER_CALLS.iter().any(|call| line.contains(call))
    };
    lines.iter().filter(is_own).map(|line| name_and_fields(line)).collect()
}

/// Calls that only the program makes, not the loader.
const POINTER_CALLS: [&str; 7] =
    ["entry_connect", "sendmsg", "entry_poll", "writev", "nanosleep", "newuname", "setgroups"];

fn context_tid(line: &str) -> u32 {
    let rest = line.split_once("{ tid = ").expect("a thread").1;
    rest.split_once(' ').and_then(|(tid, _)| tid.parse().ok()).expect("a number")
}

/// Filters on each event, by its name in the kernel and in the trace.
const FILTER_CASES: [(&str, &str, &[&str]); 12] = [
    (
        "syscalls:sys_enter_getpgid",
        "syscall_entry_getpgid",
        &[
            "pid % 7 == 0",
            "pid > 1000000500 && pid <= 1000000600 || pid == 1000000007",
            "count() % 10 == 3",
            "changed(pid / 100)",
            "pid in (1000000001, 1000000100..1000000109) && !(pid & 1 == 0)",
            "pid - 1000000990 < 0 && pid >> 4 << 4 == pid",
            "pid % 2 == 0 && count() % 10 == 0 && changed(pid % 50)",
        ],
    ),
    (
        "syscalls:sys_exit_getpgid",
        "syscall_exit_getpgid",
        &["ret == -3 && count() % 3 == 0", "ret >= 0", "-ret == 3", "ret != -3"],
    ),
    (
        "syscalls:sys_enter_openat",
        "syscall_entry_openat",
        &[
            "filename == \"/nowhere/a*\"",
            "filename == \"*.so\" && (flags & 0x80000) != 0",
            "filename == \"*/b*c*\"",
            "filename in (\"/nowhere/a\", \"/nowhere/\") || length(filename) > 40",
            "contains(filename, \"to/nothing\") || ends_with(filename, \"bb/cc\")",
            "starts_with(filename, \"/nowhere/b\") && filename != \"/nowhere/b.so\"",
            "filename < \"/nowhere/b\" && dfd == -100",
            "filename == \"/nowhere/a/very/long/way/that/leads/to/nothing/at/all.so\"",
        ],
    ),
    (
        "syscalls:sys_enter_lseek",
        "syscall_entry_lseek",
        &[
            "whence == \"SEEK_END\"",
            "whence == \"SEEK_SET\" && offset < -500",
            "offset % 5 == -3 || whence in (\"SEEK_CUR\", \"SEEK_DATA\") && offset == -1",
            "whence == 2 && offset > -9",
        ],
    ),
    (
        "syscalls:sys_enter_connect",
        "syscall_entry_connect",
        &[
            "dport == 80 || path[0] == \"*-0\"",
            "family == 2 && v4addr[0] == 127 && v4addr[3] in (1, 3)",
            "dport == 443 && v6addr[0] == 0xfe && v6addr[15] != 2",
            "path[0] == \"*/socket-2\" || dport == 80",
            "starts_with(path[0], \"@\") && length(path[0]) == 18",
            "any(v4addr == 4) || any(v6addr == 1)",
            "length(v4addr) + length(v6addr) == 0 && incomplete == 2",
            "family == 0 && dport == 0 && incomplete == 0",
        ],
    ),
    (
        "syscalls:sys_enter_sendmsg",
        "syscall_entry_sendmsg",
        &["dport == 81 && v4addr[3] > 2", "family != 2", "length(v4addr) == 4 && fd < 0"],
    ),
    (
        "syscalls:sys_enter_execve",
        "syscall_entry_execve",
        &[
            "argv[0] == \"some\"",
            "argv[1] == \"-x\" && filename == \"/nowhere/*\"",
            "argv[3] == \"end\" && length(argv[2]) == 255",
            "contains(argv[1], \"y\") && incomplete & 2",
            "filename == \"*/program\" && incomplete == 0",
            "argv[1] == \"-y\" || !(argv[2] == \"y*\") || argv[16] != \"\"",
            "length(filename) == 16 && (incomplete == 0 || argv[20] == \"x\" || argv[0] == \"x\")",
        ],
    ),
    (
        "syscalls:sys_enter_poll",
        "syscall_entry_poll",
        &[
            "any(ufds_fd == -4)",
            "length(ufds_fd) == 3 && ufds_events[2] == 5",
            "ufds_fd[1] == -5 && all(ufds_revents == 0)",
            "nfds == 0 || ufds_events[0] == 7",
            "sum(ufds_fd) == -9 && max(ufds_events) == 5 && min(ufds_fd) == -5",
        ],
    ),
    (
        "syscalls:sys_enter_writev",
        "syscall_entry_writev",
        &[
            "vec_iov_len[0] > 90",
            "any(vec_iov_len == 7) && vec_iov_base[1] == 32",
            "length(vec_iov_len) == 16 && incomplete",
            "vlen == 0 || none(vec_iov_base == 16)",
        ],
    ),
    (
        "syscalls:sys_enter_nanosleep",
        "syscall_entry_nanosleep",
        &[
            "rqtp_tv_sec % 3 == 1",
            "rqtp_tv_nsec != 2s || rqtp_tv_sec >= 990",
            "changed(rqtp_tv_sec / 10)",
        ],
    ),
    (
        "syscalls:sys_exit_newuname",
        "syscall_exit_newuname",
        &["name_sysname == \"Linux\" && count() % 5 == 1", "name_machine == \"\" && ret < 0"],
    ),
    (
        "syscalls:sys_enter_setgroups",
        "syscall_entry_setgroups",
        &[
            "grouplist_values[0] == 3 && grouplist_values[2] == 1000",
            "length(grouplist_values) == 64 && incomplete == 2",
            "any(grouplist_values == 4) && gidsetsize > 0",
        ],
    ),
];

/// A second filter on one of these events with other constants, so that the values that it reads
/// have other offsets.
const SECOND_FILTER: (&str, &str) = ("execve", "contains(filename, \"prog\") && argv[1] != \"\"");

/// RUN a program that always makes the same system calls, with filters and without. EXPECT with
/// each filter the events of the unfiltered trace that it passes, in order.
#[test]
fn kernel_filters_pass_the_events_that_print_selects() {
    const COUNT: &str = "1000";
    let fixture = Fixture::new("kernel-filter");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), COUNT, "1", "pointers"];
    let events = FILTER_CASES.map(|(event, ..)| event).join(",");
    let kernel = ["--kernel", events.as_str()];
    record_trace(&fixture, "all", &kernel, &command);
    let everything = program_lines(&filtered_lines(&fixture, "all", &[]));
    assert_eq!(everything.len(), 1000 * FILTER_CASES.len(), "{:?}", everything.first());
    let rounds =
        FILTER_CASES.iter().map(|(.., expressions)| expressions.len()).max().expect("some");
    let mut passed = BTreeSet::new();
    for round in 0..rounds {
        let expressions = FILTER_CASES.map(|(event, name, expressions)| {
            (event, name, expressions[round % expressions.len()])
        });
        let (call, second) = SECOND_FILTER;
        let filters = expressions.map(|(event, _, expression)| format!("{event}: {expression}"));
        let filters = [&filters[..], &[format!("sys_enter_{call}: {second}")]].concat();
        let given = filters.iter().flat_map(|filter| ["--filter", filter.as_str()]);
        let options: Vec<&str> = kernel.into_iter().chain(given).collect();
        let trace = format!("filtered-{round}");
        let output = record_trace(&fixture, &trace, &options, &command);
        let talk = lossy_text(&output.stderr);
        assert!(talk.contains(" 0 lost, 0 overwritten"), "{talk}");
        // Every fifth address cannot be read, and the recorder reports that.
        assert!(talk.contains("(syscall_entry_connect 200"), "{talk}");
        let ours = program_lines(&filtered_lines(&fixture, &trace, &[]));
        let filters = expressions.map(|(_, name, expression)| format!("{name}: {expression}"));
        let filters = [&filters[..], &[format!("syscall_entry_{call}: {second}")]].concat();
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        let expected = program_lines(&filtered_lines(&fixture, "all", &filters));
        assert!(!expected.is_empty() && expected.len() < everything.len(), "{filters:?}");
        assert!(ours == expected, "{filters:?}\n{} {}", ours.len(), expected.len());
        for (_, name, expression) in expressions {
            if ours.iter().any(|line| line.starts_with(name)) {
                passed.insert((name, expression));
            }
        }
    }
    // All filters except two let some events pass.
    let count: usize = FILTER_CASES.iter().map(|(.., expressions)| expressions.len()).sum();
    assert_eq!(passed.len() + 2, count, "{passed:?}");
}

/// RUN several filters on one event. EXPECT the events that all of them pass; and for a filter
/// without a pattern, the events that have its fields.
#[test]
fn of_several_filters_all_must_let_an_event_pass() {
    let fixture = Fixture::new("kernel-filter-several");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "300"];
    let options = [
        "--kernel",
        "syscalls:getpgid,syscalls:openat",
        "--filter",
        "syscalls:getpgid: pid % 2 == 0",
        "--filter",
        "syscall_entry_getpgid: pid % 3 == 0 && changed(pid)",
        "--filter",
        "pid < 1000000050",
    ];
    let output = record_trace(&fixture, "trace", &options, &command);
    let talk = lossy_text(&output.stderr);
    let all = filtered_lines(&fixture, "trace", &[]);
    let numbers: Vec<String> = all.iter().map(|line| name_and_fields(line)).collect();
    let expected = |number: u32| format!("syscall_entry_getpgid pid = {number} }}");
    let expected: Vec<String> =
        (1_000_000_000..1_000_000_050).filter(|number| number % 6 == 0).map(expected).collect();
    let numbers: Vec<String> = numbers.iter().map(|line| line.replace("{ ", "")).collect();
    assert_eq!(numbers, expected, "{talk}");
    assert!(talk.contains("not recorded, for want of what the filter 'pid < 1000000050' asks for"));
    let names = ["syscall_exit_getpgid", "syscall_entry_openat", "syscall_exit_openat"];
    assert!(names.iter().all(|name| talk.contains(name)), "{talk}");
}

/// RUN threads with filters on thread ids. EXPECT the events of the selected threads.
#[test]
fn filters_know_whose_an_event_is() {
    const COUNT: usize = 200;
    let fixture = Fixture::new("kernel-filter-whose");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "200", "4"];
    let run = |expression: &str| {
        let filter = format!("syscalls:sys_enter_getpgid: {expression}");
        let options = ["--kernel", "syscalls:sys_enter_getpgid", "--filter", &filter];
        let trace = format!("trace-{}", expression.len());
        let output = record_trace(&fixture, &trace, &options, &command);
        let threads = lossy_text(&output.stdout);
        let threads: Vec<u32> = threads.lines().map(|line| line.parse().expect("one")).collect();
        assert_eq!(threads.len(), 4);
        let lines = filtered_lines(&fixture, &trace, &[]);
        fs::remove_dir_all(fixture.path(&trace)).expect("a trace");
        (lines, threads)
    };
    let (lines, threads) = run("$ctx.tid % 2 == 0");
    let even = threads.iter().filter(|tid| tid.is_multiple_of(2)).count();
    assert!(lines.iter().all(|line| context_tid(line).is_multiple_of(2)));
    assert_eq!(lines.len(), COUNT * even);
    let (lines, threads) = run("$ctx.pid == $ctx.tid");
    let first = threads.iter().min().expect("four");
    assert!(lines.len() == COUNT && lines.iter().all(|line| context_tid(line) == *first));
    let (lines, _) = run("$ctx.procname == \"filt*d\" && $ctx.uid == 0 && $ctx.gid == 0");
    assert_eq!(lines.len(), 4 * COUNT);
    let (lines, _) = run("$ctx.procname == \"filtere\" || length($ctx.procname) != 8");
    assert!(lines.is_empty(), "{lines:?}");
    let (zero, _) = run("$ctx.cpu_id == 0");
    assert!(zero.iter().all(|line| line.contains("{ cpu_id = 0 }")));
    let (others, _) = run("$ctx.cpu_id > 0");
    assert!(others.iter().all(|line| !line.contains("{ cpu_id = 0 }")));
}

/// RUN filters by chance, and by time. EXPECT the requested rate, roughly or exactly; and counts
/// over all CPUs.
#[test]
fn samples_rates_and_counts_are_of_all_cpus_together() {
    let fixture = Fixture::new("kernel-filter-some");
    let Some(program) = compile_program(&fixture) else { return };
    let count = |expression: &str| {
        let filter = format!("syscalls:sys_enter_getpgid: {expression}");
        let options = ["--kernel", "syscalls:sys_enter_getpgid", "--filter", &filter];
        let trace = format!("trace-{}", expression.len());
        let command = [program.to_str().expect("a path"), "5000", "4"];
        record_trace(&fixture, &trace, &options, &command);
        filtered_lines(&fixture, &trace, &[]).len()
    };
    let sampled = count("sample(1/4)");
    assert!((4000..6000).contains(&sampled), "{sampled}");
    // (The calls fall into one interval of a day, or into two.)
    let passed = count("rate(7/100000s)");
    assert!(passed == 7 || passed == 14, "{passed}");
    // Four threads, on any CPUs, share one counter.
    assert_eq!(count("count() % 100 == 7"), 200);
    assert_eq!(count("pid > 5 && count() < 1234"), 1234);
}

/// RUN the program together with another one that makes the same calls. EXPECT only the command's
/// calls; for the whole system, the calls of both, or the selected ones.
#[test]
fn filters_go_with_the_command_alone_and_with_everything() {
    let fixture = Fixture::new("kernel-filter-system");
    let Some(program) = compile_program(&fixture) else { return };
    // The name is unique, because other copies of this test may run at the same time.
    let name = format!("ours-{}", std::process::id());
    let (ours, noise) = (fixture.path(&name), fixture.path("noise"));
    copy_program(&program, &ours);
    copy_program(&program, &noise);
    // The command runs until the other programs have twice made as many calls.
    let run = |trace: &str, options: &[&str]| {
        let (begun, enough) = (format!("{trace}-begun"), format!("{trace}-enough"));
        let script = format!(
            "{} 20; touch {begun}; while [ ! -e {enough} ]; do sleep 0.01; done",
            ours.display()
        );
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !fixture.path(&begun).exists() && !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                for _ in 0..2 {
                    assert!(fixture.command(&noise).arg("20").status().expect("it runs").success());
                }
                fs::write(fixture.path(&enough), "").expect("a file");
            });
            let options = [&["--kernel", "syscalls:sys_enter_getpgid"], options].concat();
            let mut command = fixture.trackway(&["record", "-o", trace]);
            let output = command.args(options).args(["--", "sh", "-c", &script]).output();
            ended.store(true, Ordering::Relaxed);
            let output = output.expect("trackway runs");
            assert!(output.status.success(), "{}", lossy_text(&output.stderr));
        });
        filtered_lines(&fixture, trace, &[])
    };
    let one = "sys_enter_getpgid: pid == 1000000007";
    let ours = run("ours", &["--filter", one]);
    assert!(ours.len() == 1 && ours[0].contains("1000000007"), "{ours:?}");
    let all = run("all", &["--filter", one, "--system-wide"]);
    assert!(all.len() >= 3 && all.iter().all(|line| line.contains("1000000007")), "{all:?}");
    let meant = format!("sys_enter_getpgid: $ctx.procname == \"{name}\"");
    let both = run("both", &["--filter", one, "--filter", &meant, "--system-wide"]);
    assert!(both.len() == 1 && both[0].contains("1000000007"), "{both:?}");
}

/// RUN far more calls than the buffers hold, all of which a filter drops. EXPECT no recorded event,
/// and no lost event.
#[test]
fn filtered_events_are_not_counted_as_lost() {
    let fixture = Fixture::new("kernel-filter-lost");
    let Some(program) = compile_program(&fixture) else { return };
    let options = ["--kernel", "syscalls:getpgid", "--buffer-size", "128K", "--filter"];
    let command = [program.to_str().expect("a path"), "100000"];
    let filter = ["syscalls:getpgid: pid < 5"];
    let output = record_trace(&fixture, "trace", &[&options[..], &filter].concat(), &command);
    let talk = lossy_text(&output.stderr);
    assert!(talk.contains("kernel: 0 events recorded, 0 lost, 0 overwritten"), "{talk}");
    assert!(filtered_lines(&fixture, "trace", &[]).is_empty());
}

/// RUN filters that search long strings, while the timer interrupts them and another filter with
/// the same constants evaluates its event. EXPECT each string to be found, and events of the timer.
#[test]
fn interrupts_of_a_filter_have_their_own_frame() {
    const COUNT: usize = 20_000;
    let fixture = Fixture::new("kernel-filter-nested");
    let Some(program) = compile_program(&fixture) else { return };
    let part = format!("\"{}b\"", "a".repeat(24));
    let open = format!("syscalls:sys_enter_openat: contains(filename, {part})");
    let timer = format!("hrtimer_expire_entry: contains($ctx.procname, {part}) || now > 0");
    let kernel = "syscalls:sys_enter_openat,timer:hrtimer_expire_entry";
    let options = ["--kernel", kernel, "--system-wide", "--filter", &open, "--filter", &timer];
    let command = [program.to_str().expect("a path"), "20000", "1", "search"];
    let output = record_trace(&fixture, "trace", &options, &command);
    // Other copies of this test may run at the same time.
    let thread = lossy_text(&output.stdout).trim().parse::<u32>().expect("its number");
    let mut lines = filtered_lines(&fixture, "trace", &[]);
    lines.retain(|line| context_tid(line) == thread);
    let found = lines.iter().filter(|line| line.contains("aaab\"")).count();
    let opened = lines.iter().filter(|line| line.contains("entry_openat")).count();
    // (An event whose name cannot be read passes the filter.)
    let unread = lines.iter().filter(|line| line.contains("filename = \"\"")).count();
    assert_eq!((found, opened - unread), (COUNT / 2, COUNT / 2));
    let inner = fs::read_dir(fixture.path("trace/kernel")).expect("a trace").flatten();
    let is_inner = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("kernel1")
            && entry.metadata().is_ok_and(|file| file.len() > 0)
    };
    assert!(inner.filter(is_inner).count() > 0, "nothing was interrupted");
}

/// RUN calls with a name that cannot be read, with no name, and with a name. EXPECT a filter on
/// names to pass the first call, with a message, and to evaluate the others.
#[test]
fn a_text_that_cannot_be_read_is_no_reason_to_leave_an_event_out() {
    let fixture = Fixture::new("kernel-filter-unread");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "1", "1", "unread"];
    let names = |pattern: &str| {
        let filter = format!("syscalls:sys_enter_openat: filename == \"{pattern}\"");
        let options = ["--kernel", "syscalls:sys_enter_openat", "--filter", &filter];
        let trace = format!("trace-{}", pattern.len());
        let talk = lossy_text(&record_trace(&fixture, &trace, &options, &command).stderr);
        let told = "a filter asks for was not in memory (syscall_entry_openat ";
        assert!(talk.contains(told), "{talk}");
        let lines = filtered_lines(&fixture, &trace, &[]);
        let ours = lines.iter().filter(|line| line.contains("dfd = -77,"));
        let name = |line: &String| {
            line.split("filename = ")
                .nth(1)
                .and_then(|rest| rest.split(", ").next())
                .map(str::to_owned)
        };
        ours.filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("/nowhere/*"), ["\"\"", "\"/nowhere/a\""]);
    assert_eq!(names("/etc/*"), ["\"\""]);
    // The first call has no name, and the name of the second cannot be read.
    assert_eq!(names(""), ["\"\"", "\"\""]);
}

/// RUN calls with a name that cannot be read, with filters on more than the name. EXPECT the other
/// conditions of the filter to be evaluated: if they are false, the event does not pass.
#[test]
fn a_text_that_cannot_be_read_says_nothing_of_what_else_is_asked() {
    let fixture = Fixture::new("kernel-filter-rest");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "1", "1", "unread"];
    // Number of passing calls of three: a name that cannot be read, no name, and /nowhere/a.
    for (number, (expression, count)) in [
        ("$ctx.pid == 1 && filename == \"/nowhere/*\"", 0),
        ("filename == \"/nowhere/*\" && $ctx.pid == 1", 0),
        ("$ctx.pid != 1 && filename == \"/nowhere/*\"", 2),
        ("dfd == -77 && !(filename == \"/nowhere/*\" || $ctx.pid == 1)", 2),
        ("!(filename != \"/nowhere/*\" || dfd == -77)", 0),
        ("dfd == 5 || filename == \"/etc/*\"", 1),
        ("(dfd == 5 && filename == \"/etc/*\") || (dfd == -77 && filename == \"\")", 2),
        ("(dfd == 5 && filename == \"/etc/*\") || (dfd == 6 && filename == \"\")", 0),
    ]
    .into_iter()
    .enumerate()
    {
        let filter = format!("syscalls:sys_enter_openat: {expression}");
        let options = ["--kernel", "syscalls:sys_enter_openat", "--filter", &filter];
        let trace = format!("trace-{number}");
        record_trace(&fixture, &trace, &options, &command);
        let lines = filtered_lines(&fixture, &trace, &[]);
        let ours = lines.iter().filter(|line| line.contains("dfd = -77,"));
        assert_eq!(ours.count(), count, "{expression}");
    }
}

/// RUN calls with long names, and with names longer than the recorded part. EXPECT filters to
/// evaluate the recorded part.
#[test]
fn texts_are_asked_as_they_are_recorded() {
    let fixture = Fixture::new("kernel-filter-long");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "1", "1", "long"];
    let kernel = ["--kernel", "syscalls:sys_enter_openat"];
    record_trace(&fixture, "all", &kernel, &command);
    let ours = |lines: Vec<String>| -> Vec<String> {
        lines
            .iter()
            .filter(|line| line.contains("dfd = -77,"))
            .map(|line| name_and_fields(line))
            .collect()
    };
    let all = ours(filtered_lines(&fixture, "all", &[]));
    assert_eq!(all.len(), 2, "{all:?}");
    for (number, expression) in
        ["ends_with(filename, \"ab\")", "length(filename) > 600", "filename == \"*aaa\""]
            .into_iter()
            .enumerate()
    {
        let filter = format!("sys_enter_openat: {expression}");
        let trace = format!("trace-{number}");
        record_trace(&fixture, &trace, &[&kernel[..], &["--filter", &filter]].concat(), &command);
        let passed = ours(filtered_lines(&fixture, &trace, &[]));
        let filter = format!("syscall_entry_openat: {expression}");
        let expected = ours(filtered_lines(&fixture, "all", &[&filter]));
        assert!(expected.len() == 1 && passed == expected, "{filter}: {passed:?} {expected:?}");
    }
}

/// RUN filters on arrays of a tracepoint, and on strings in its record. EXPECT the events for which
/// the filters are true.
#[test]
fn arrays_and_texts_of_tracepoints_are_asked() {
    let fixture = Fixture::new("kernel-filter-arrays");
    let Some(program) = compile_program(&fixture) else { return };
    let command = [program.to_str().expect("a path"), "100"];
    let expressions = [
        ("raw_syscalls:sys_enter", "any(args == 1000000005) && args[0] > 7", 1),
        (
            "raw_syscalls:sys_enter",
            "id == 8 && args[1] == 0xfffffffffffffff7 && length(args) == 6",
            1,
        ),
        ("sched:sched_process_exec", "filename == \"*/filtered\" && old_tid == tid", 1),
        ("sched:sched_process_exec", "filename == \"*/unfiltered\"", 0),
        ("sched:sched_process_exit", "comm == \"filtered\" && prio > 0", 1),
    ];
    for (number, (event, expression, count)) in expressions.into_iter().enumerate() {
        let filter = format!("{event}: {expression}");
        let trace = format!("trace-{number}");
        let options = ["--kernel", event, "--filter", &filter];
        record_trace(&fixture, &trace, &options, &command);
        let lines = filtered_lines(&fixture, &trace, &[]);
        assert_eq!(lines.len(), count, "{filter}: {lines:?}");
    }
}

/// RUN a filter in C, with a string of the event and with state. EXPECT the events that it passes.
#[test]
fn filters_in_c_are_asked_in_the_kernel() {
    const FILTER: &str = "#include <trackway/filter.h>\n\
        struct opened { trackway_string filename;\n\
        trackway_unsigned flags; trackway_signed tid; };\n\
        #define TRACKWAY_NEEDS_opened \"string filename\\n\" \"unsigned flags\\n\" \\\n\
        \"signed $ctx.tid\\n\"\n\
        TRACKWAY_FILTER(opened, frame) {\n\
        if (frame->flags & 1 || frame->tid <= 0) return 0;\n\
        return trackway_string_ends_with(frame, frame->filename, TRACKWAY_STRING(\"/b.so\")) &&\n\
        trackway_count(frame, 0) % 2 == 1; }\n";
    let fixture = Fixture::new("kernel-filter-c");
    let Some(program) = compile_program(&fixture) else { return };
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    fs::write(fixture.path("some.c"), FILTER).expect("a file");
    let include = format!("-I{}", source_dir().join("include").display());
    let mut clang = fixture.command("clang");
    clang.args(["-O2", "-target", "bpf", "-fno-jump-tables", &include, "-c", "some.c"]);
    let built = clang.output().expect("it runs");
    assert!(built.status.success(), "{}", lossy_text(&built.stderr));
    let options = ["--kernel", "syscalls:openat", "--filter-object"];
    let command = [program.to_str().expect("a path"), "100"];
    record_trace(
        &fixture,
        "trace",
        &[&options[..], &["syscalls:openat: some.o"]].concat(),
        &command,
    );
    let lines = filtered_lines(&fixture, "trace", &[]);
    let is_meant = |line: &String| line.contains("filename = \"/nowhere/b.so\"");
    assert!(lines.len() == 10 && lines.iter().all(is_meant), "{lines:?}");
}

/// RUN a filter in C on calls with an absent, an empty or a present string in a list. EXPECT the
/// same calls from the kernel and from print, and none whose string is present or empty.
#[test]
fn filters_in_c_tell_absent_texts_from_empty_ones() {
    const FILTER: &str = "#include <trackway/filter.h>\n\
        struct called { trackway_string third; };\n\
        #define TRACKWAY_NEEDS_called \"string argv[2]\\n\"\n\
        TRACKWAY_FILTER(called, frame) { return TRACKWAY_IS_ABSENT(frame->third); }\n";
    let fixture = Fixture::new("kernel-filter-absent");
    if !has_kernel_events(&fixture) {
        return;
    }
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    fs::write(fixture.path("absent.c"), FILTER).expect("a file");
    let include = format!("-I{}", source_dir().join("include").display());
    let mut clang = fixture.command("clang");
    let built = clang.args(["-O2", "-target", "bpf", &include, "-c", "absent.c"]).output();
    let built = built.expect("it runs");
    assert!(built.status.success(), "{}", lossy_text(&built.stderr));
    let kernel = ["--kernel", "syscalls:sys_enter_execve"];
    let script = "/bin/true; /bin/true a; /bin/true a ''; /bin/true a b; /bin/true";
    let command = ["sh", "-c", script];
    record_trace(&fixture, "all", &kernel, &command);
    let options = [&kernel[..], &["--filter-object", "absent.o"]].concat();
    record_trace(&fixture, "absent", &options, &command);
    let mut print = fixture.trackway(&["print", "--filter-object", "absent.o", "all"]);
    let output = print.output().expect("it runs");
    let printed: Vec<String> = lossy_text(&output.stdout).lines().map(str::to_owned).collect();
    let of_true = |lines: &[String]| -> Vec<String> {
        let is_it = |line: &&String| line.contains("filename = \"/bin/true\"");
        let arguments = |line: &String| line.split_once("argv = [").expect("a list").1.to_owned();
        let end = |list: String| list.split_once(" ], ").expect("an end").0.to_owned();
        lines.iter().filter(is_it).map(arguments).map(end).collect()
    };
    let expected =
        [" [0] = \"/bin/true\"", " [0] = \"/bin/true\", [1] = \"a\"", " [0] = \"/bin/true\""];
    assert_eq!(of_true(&printed), expected);
    assert_eq!(of_true(&filtered_lines(&fixture, "absent", &[])), expected);
}

/// RUN invalid filters, and filters that the kernel cannot evaluate. EXPECT a refusal with position
/// and reason, before the command runs.
#[test]
fn invalid_filters_are_refused_before_the_command_runs() {
    let fixture = Fixture::new("kernel-filter-refused");
    if compile_program(&fixture).is_none() {
        return;
    }
    let refused = |kernel: &str, filter: &str| {
        let mut record = fixture.trackway(&["record", "-o", "trace", "--kernel", kernel]);
        record.args(["--filter", filter, "--", "touch", "ran"]);
        let output = record.output().expect("trackway runs");
        assert_eq!(output.status.code(), Some(125), "{}", lossy_text(&output.stderr));
        assert!(!fixture.path("ran").exists() && !fixture.path("trace").exists());
        lossy_text(&output.stderr)
    };
    let told = [
        (
            "sched_switch: nxt_prio < 20",
            "^^^^^^^^\nunknown field 'nxt_prio' of sched_switch; did you",
        ),
        ("sched_switch: next_prio < \"20\"", "^^^^^^^^^^^^^^^^\nan integer is not compared"),
        ("sched_swich: next_prio < 20", "matches 'sched_swich'; did you mean 'sched_switch'?"),
        ("sched_switch: next_prio * 1.5 < 3.0", "^^^\nthe kernel does not calculate with"),
        ("sched_switch: $ctx.colour == 5", "unknown context '$ctx.colour'\nhint: of the kernel's"),
        (
            "sched_switch: $ctx.vtidd == 5",
            "'$ctx.vtidd'; did you mean '$ctx.vtid'?\nhint: of the k",
        ),
        ("sched_switch: $ctx.vtidd == 5", "$ctx.vpid, $ctx.vtid, $ctx.procname, $ctx.prio, "),
        ("size > 5", "^^^^\nunknown field 'size'"),
        ("size > 5", "hint: if it is not about the kernel's events, say which: PATTERN: EXPR"),
        ("sched_switch: next_prio <", "^\n"),
        // A filter without an event would let all events pass.
        ("sched:sched_migrate_task: prio > 3", "not recorded\nhint: --kernel 'sched:sched_mig"),
        (
            "syscalls:opennat: ret < 0",
            "matches 'syscalls:opennat'; did you mean 'syscalls:openat'?",
        ),
        ("sched_wakeup: pid > 3", "'pid' of sched_wakeup; did you mean 'tid', or '$ctx.pid'?"),
        ("next_prio > 3 && target_cpu == 3", "^^^^^^^^^^\nno event has all that this names: "),
        ("next_prio < 20 ? 1 : 0", "^\n'?' has no meaning here"),
    ];
    for (filter, why) in told {
        let talk = refused("sched_switch,sched_wakeup", filter);
        assert!(talk.contains(why), "{filter}: {talk}");
    }
    // Errors and labels are those of the nearest matching event, not of the first.
    for (filter, why) in [
        ("ret == \"ENOENTT\"", "^^^^^^^^^\nunknown label \"ENOENTT\"; did you mean 'ENOENT'?"),
        ("dfd == \"AT_FDCWDD\"", "did you mean 'AT_FDCWD'?"),
    ] {
        let talk = refused("syscalls:openat,sched_wakeup", filter);
        assert!(talk.contains(why), "{filter}: {talk}");
    }
    // The recorder has no user events to check the filter against; it accepts the filter.
    let options = ["--kernel", "syscalls:getpgid", "--filter", "myapp:*: size > 5"];
    let talk = lossy_text(&record_trace(&fixture, "trace", &options, &["true"]).stderr);
    // A filter on all events may use contexts that only kernel events have.
    let options = ["--kernel", "syscalls:openat", "--filter", "$ctx.tid > 0 && $ctx.cpu_id >= 0"];
    let of_all = lossy_text(&record_trace(&fixture, "trace", &options, &["true"]).stderr);
    assert!(of_all.contains("kernel: ") && !of_all.contains("kernel: 0 events"), "{of_all}");
    assert!(
        talk.contains("'myapp:*: size > 5' is about no event that is known, neither"),
        "{talk}"
    );
}

/// READ the guide. EXPECT every helper that it names to exist.
#[test]
fn the_guide_names_the_contexts_that_there_are() {
    let guide = fs::read_to_string(source_dir().join("docs/guides/kernel-reference.md"));
    let guide = guide.expect("a reference");
    for context in ["cpu_id", "prio", "euid"] {
        assert!(guide.contains(&format!("`$ctx.{context}`")), "{context}");
    }
}
