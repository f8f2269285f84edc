//! Kernel events, compared with the counts of independent observers in the same run.
//!
//! The counts can be exact, because both observers count *the same threads from the same moment
//! on*, exec(2) of the program, and only events that happen in a thread's own context. Neither
//! count includes other activity of the machine. perf begins to count when the program is executed;
//! bpftrace selects threads by their name after exec; strace follows the program by ptrace(2),
//! which stops it at every call but adds no calls. Trackway's counts are the records of the
//! program's threads, identified by `sched_process_fork`, after its `sched_process_exec`.
//!
//! Not counted are events between the moment at which the other observer begins and
//! `sched_process_exec` (page faults, switches), and events after the moment at which perf ends,
//! which precedes the signal to the parent (signals of children).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{Fixture, has, has_kernel_events, report_skipped};

/// Counts by event name.
type EventCounts = BTreeMap<String, u64>;

/// Events that the program `agree` causes.
const PROGRAM_EVENTS: [&str; 14] = [
    "syscalls:sys_enter_openat",
    "syscalls:sys_exit_openat",
    "syscalls:sys_enter_close",
    "syscalls:sys_enter_mmap",
    "syscalls:sys_exit_munmap",
    "syscalls:sys_enter_wait4",
    "syscalls:sys_enter_tgkill",
    "sched:sched_process_fork",
    "sched:sched_process_exec",
    "sched:sched_process_exit",
    "sched:sched_process_wait",
    "task:task_newtask",
    "signal:signal_deliver",
    "exceptions:page_fault_user",
];
/// Suffix of the program's name, by which its threads are found in the trace.
const PROGRAM_SUFFIX: &str = "/agree\"";

/// Returns true if `observer` works on this machine; otherwise prints the missing part.
fn is_observer_available(fixture: &Fixture, observer: &str) -> bool {
    if !has(observer) {
        report_skipped(format!("{observer} is not installed"));
        return false;
    }
    has_kernel_events(fixture)
}

/// The recording of a command, with the number of events that may be missing. The kernel skips a
/// BPF program of Trackway while another BPF program runs on the same CPU; it only counts the skips
/// of all programs of the machine together.
struct RecordedCommand {
    lines: Vec<String>,
    missed: u64,
}

/// Records `events` of `command`, with enough memory for all of them. Tries again a few times if
/// the kernel skipped BPF programs. The kernel does not report which programs it skipped, so the
/// counts are then a range.
fn record_command(fixture: &Fixture, events: &str, command: &[&str]) -> RecordedCommand {
    const TRIES_MAX: usize = 4;
    for _ in 1..TRIES_MAX {
        let recorded = record_command_once(fixture, events, command);
        if recorded.missed == 0 {
            return recorded;
        }
        fs::remove_dir_all(fixture.path("trace")).expect("it is ours");
    }
    record_command_once(fixture, events, command)
}

fn record_command_once(fixture: &Fixture, events: &str, command: &[&str]) -> RecordedCommand {
    let mut record = fixture.trackway(&["record", "--kernel", events, "-o", "trace"]);
    let output = record.arg("--buffer-size=32M").arg("--").args(command).output().expect("it runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{talk}");
    RecordedCommand::of(fixture, &talk)
}

impl RecordedCommand {
    fn of(fixture: &Fixture, talk: &str) -> Self {
        assert!(talk.contains(" events recorded, 0 lost, 0 overwritten"), "{talk}");
        let missed = talk.lines().find_map(|line| line.split_once(" up to "));
        let digits = |text: &str| text.split(' ').next().map(|number| number.replace(',', ""));
        let missed = missed.and_then(|(_, rest)| digits(rest)?.parse().ok()).unwrap_or(0);
        let text = fixture.print(&fixture.path("trace"));
        Self { lines: text.lines().map(str::to_owned).collect(), missed }
    }

    /// Counts the events in the threads of the program whose name ends with `program`, from its
    /// first exec on.
    fn counts(&self, program: &str) -> EventCounts {
        let mut threads = BTreeSet::new();
        let mut counts = EventCounts::new();
        for line in &self.lines {
            let name = event_name(line);
            let tid = field_value(line, "tid").unwrap_or_else(|| panic!("no thread: {line}"));
            let is_exec = || name == "sched_process_exec" && line.contains(program);
            if threads.is_empty() && is_exec() {
                threads.insert(tid);
            }
            if !threads.contains(&tid) {
                continue;
            }
            if name == "sched_process_fork" {
                threads.extend(field_value(line, "child_tid"));
            }
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        counts
    }

    /// Compares the recorded counts with those of another observer, by event name.
    fn check(&self, recorded: &EventCounts, observed: &EventCounts) {
        for (name, observed) in observed {
            let recorded = recorded.get(name).copied().unwrap_or(0);
            let is_it = (*observed - (*observed).min(self.missed)..=*observed).contains(&recorded);
            assert!(is_it, "{name}: {recorded}, not {observed} ({} passed over)", self.missed);
        }
    }
}

/// Returns the name in a line `… NAME: {`.
fn event_name(line: &str) -> &str {
    let before = line.split(": {").next().unwrap_or_default();
    before.rsplit(' ').next().unwrap_or_default()
}

/// Returns the value of the first field with this name.
fn field_value(line: &str, field: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!(" {field} = "))?;
    rest.split([' ', ',']).next()?.parse().ok()
}

/// Returns the name in traces of the kernel's event `subsystem:name`.
fn trace_event_name(event: &str) -> String {
    let name = event.split(':').next_back().unwrap_or_default();
    match name.split_once("sys_") {
        Some(("", rest)) if rest.starts_with("enter_") => {
            format!("syscall_entry_{}", &rest["enter_".len()..])
        }
        Some(("", rest)) => format!("syscall_{rest}"),
        _ if event.starts_with("exceptions:") => format!("x86_exceptions_{name}"),
        _ => name.to_owned(),
    }
}

/// RUN a program that does the same work each time, counted by perf. EXPECT the same counts of each
/// event, and the known numbers of the program.
#[test]
fn perf_counts_as_many_of_each_event() {
    let fixture = Fixture::new("kernel-perf");
    if !is_observer_available(&fixture, "perf") {
        return;
    }
    let program = fixture.compile_file("kernel/agree.c", false, &[]).display().to_string();
    let events = PROGRAM_EVENTS.join(",");
    let counted = fixture.path("counted").display().to_string();
    let perf = ["perf", "stat", "-x,", "-o", &counted, "-e", &events];
    let alone = fixture.command("perf").args(&perf[1..]).arg(&program).output().expect("it runs");
    if !alone.status.success() {
        return report_skipped("perf does not count here");
    }
    let recorded = record_command(&fixture, &events, &[&perf[..], &[&program]].concat());
    let text = fs::read_to_string(&counted).expect("perf's counts");
    let count = |line: &str| {
        let mut parts = line.split(',');
        let (count, event) = (parts.next()?.parse().ok()?, parts.nth(1)?);
        Some((trace_event_name(event), count))
    };
    let observed: EventCounts = text.lines().filter_map(count).collect();
    assert_eq!(observed.len(), PROGRAM_EVENTS.len(), "{text}");
    // The program worked as documented, and the other observer counted events.
    assert_eq!((observed["sched_process_exec"], observed["sched_process_fork"]), (5, 17), "{text}");
    assert!(observed.values().all(|&count| count >= 5), "{text}");
    recorded.check(&recorded.counts(PROGRAM_SUFFIX), &observed);
}

/// RUN the same program, counted by bpftrace. EXPECT the same counts of each event.
#[test]
fn bpftrace_counts_as_many_of_each_event() {
    let fixture = Fixture::new("kernel-bpftrace");
    if !is_observer_available(&fixture, "bpftrace") {
        return;
    }
    let program = fixture.compile_file("kernel/agree.c", false, &[]).display().to_string();
    let probe =
        |event: &&str| format!("tracepoint:{event} /comm == \"agree\"/ {{ @[probe] = count(); }}");
    let script = PROGRAM_EVENTS.iter().map(probe).collect::<Vec<_>>().join("\n");
    let counted = fixture.path("counted").display().to_string();
    let command = ["bpftrace", "-f", "json", "-o", &counted, "-e", &script, "-c", &program];
    let alone = fixture.command("bpftrace").args(&command[1..]).output().expect("it runs");
    if !alone.status.success() {
        return report_skipped("bpftrace does not count here");
    }
    let recorded = record_command(&fixture, &PROGRAM_EVENTS.join(","), &command);
    let text = fs::read_to_string(&counted).expect("bpftrace's counts");
    let map = text.lines().find(|line| line.contains("\"map\"")).expect("a map");
    let map: serde_json::Value = serde_json::from_str(map).expect("JSON");
    let counts = map["data"]["@"].as_object().expect("counts");
    let count = |(probe, count): (&String, &serde_json::Value)| {
        let event = probe.strip_prefix("tracepoint:").expect("a tracepoint");
        (trace_event_name(event), count.as_u64().expect("a count"))
    };
    let observed: EventCounts = counts.iter().map(count).collect();
    assert_eq!(observed.len(), PROGRAM_EVENTS.len(), "{text}");
    recorded.check(&recorded.counts(PROGRAM_SUFFIX), &observed);
}

/// Returns strace's name of a call, given the kernel's name.
fn strace_call_name(name: &str) -> &str {
    match name {
        "newstat" => "stat",
        "newfstat" => "fstat",
        "newlstat" => "lstat",
        "newuname" => "uname",
        "sendfile64" => "sendfile",
        "umount" => "umount2",
        _ => name,
    }
}

/// Returns Trackway's counts of entered calls, without calls that never return: strace counts
/// returned calls.
fn count_returned_calls(counts: &EventCounts) -> EventCounts {
    let mut calls = EventCounts::new();
    for (name, count) in counts {
        let Some(name) = name.strip_prefix("syscall_entry_") else { continue };
        if !["exit", "exit_group"].contains(&name) {
            *calls.entry(strace_call_name(name).to_owned()).or_default() += count;
        }
    }
    calls
}

/// Reads strace's table.
fn parse_strace_table(text: &str) -> EventCounts {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_row = (5..=6).contains(&words.len()) && words[0].parse::<f64>().is_ok();
        let name = *words.last().filter(|name| is_row && **name != "total")?;
        Some((name.to_owned(), words[3].parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// Compares the counts of each call, in both directions. strace also reports the call that executes
/// the program, whose entry precedes Trackway's count.
fn check_calls_with_strace(recorded: &RecordedCommand, program: &str, text: &str) -> EventCounts {
    let mut observed = parse_strace_table(text);
    *observed.get_mut("execve").expect("the first call") -= 1;
    observed.retain(|_, count| *count > 0);
    let counted = count_returned_calls(&recorded.counts(program));
    assert_eq!(counted, observed, "{text}");
    observed
}

/// Returns true if strace can follow a program.
fn can_strace(fixture: &Fixture) -> bool {
    let output = fixture.command("strace").args(["-o", "/dev/null", "true"]).output();
    let can = output.expect("it runs").status.success();
    if !can {
        report_skipped("strace does not follow programs here");
    }
    can
}

/// Kernel events that are recorded while strace runs.
const CALL_EVENTS: &str = "syscalls,sched:sched_process_fork,sched:sched_process_exec";

/// RUN a compiler and its children, followed by strace. EXPECT the same number of each call.
#[test]
fn strace_counts_as_many_calls_of_a_compiler() {
    let fixture = Fixture::new("kernel-strace");
    if !is_observer_available(&fixture, "strace") || !can_strace(&fixture) {
        return;
    }
    fs::write(
        fixture.path("hello.c"),
        "#include <stdio.h>\nint main(void) { return puts(\"\"); }\n",
    )
    .expect("a source");
    let counted = fixture.path("counted").display().to_string();
    let command = ["strace", "-f", "-c", "-o", &counted, "cc", "-O1", "-c", "hello.c"];
    let recorded = record_command(&fixture, CALL_EVENTS, &command);
    assert!(fixture.path("hello.o").is_file());
    let text = fs::read_to_string(&counted).expect("strace's counts");
    let observed = check_calls_with_strace(&recorded, "/cc\"", &text);
    assert!(observed.len() > 20 && observed["openat"] > 50 && observed["execve"] > 1, "{text}");
}

/// The recorder of a web server, which ends when this value is dropped.
struct ServerRecorder(Child);

impl Drop for ServerRecorder {
    fn drop(&mut self) {
        // The recorder passes the signal on to its command, which ends; it may have ended already.
        send_signal(self.0.id().cast_signed(), libc::SIGTERM);
        let _ = self.0.wait();
    }
}

/// The server: reports its port and its process, and answers.
const SERVER_SCRIPT: &str = "
import http.server, os, signal
# Also where it was started with SIGINT ignored, as shells start what runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *rest): pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
with open('told.new', 'w') as told: told.write(f'{server.server_address[1]} {os.getpid()}')
os.rename('told.new', 'told')
try: server.serve_forever()
except KeyboardInterrupt: pass
";

fn fetch_page(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// RUN a web server with a thread for each request, under load, followed by strace. EXPECT the same
/// number of each call.
#[test]
fn strace_counts_as_many_calls_of_a_web_server() {
    const CLIENTS: usize = 3;
    const REQUESTS: usize = 40;
    let fixture = Fixture::new("kernel-web");
    if !is_observer_available(&fixture, "strace") || !can_strace(&fixture) {
        return;
    }
    // A python in PATH may be a shell script, so that this path is used.
    let python = PathBuf::from("/usr/bin/python3");
    if !python.is_file() {
        return report_skipped("there is no /usr/bin/python3");
    }
    fs::write(fixture.path("page"), "found").expect("a page");
    fs::write(fixture.path("server.py"), SERVER_SCRIPT).expect("a program");
    let counted = fixture.path("counted");
    let mut record = fixture.trackway(&["record", "--kernel", CALL_EVENTS, "-o", "trace"]);
    record.args(["--buffer-size=32M", "--", "strace", "-f", "-c", "-o"]).arg(&counted);
    record.arg(&python).arg("server.py").stdin(Stdio::null()).stdout(Stdio::null());
    record.stderr(fs::File::create(fixture.path("talk")).expect("a file"));
    let mut server = ServerRecorder(record.spawn().expect("it runs"));
    wait_for("the server", || fixture.path("told").is_file());
    let told = fs::read_to_string(fixture.path("told")).expect("what it told");
    let (port, pid) = told.split_once(' ').expect("two numbers");
    let (port, pid): (u16, i32) = (port.parse().expect("a port"), pid.parse().expect("a number"));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope
                .spawn(|| (0..REQUESTS).for_each(|_| assert!(fetch_page(port).ends_with("found"))));
        }
    });
    // All other threads have ended: no thread ends within a call, which strace would not count.
    wait_for("the last answer's thread", || {
        fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() == 1)
    });
    send_signal(pid, libc::SIGINT);
    let status = server.0.wait().expect("it ends");
    let talk = fs::read_to_string(fixture.path("talk")).expect("what it said");
    assert!(status.success(), "{status} {talk}");
    let text = fs::read_to_string(&counted).expect("strace's counts");
    let observed =
        check_calls_with_strace(&RecordedCommand::of(&fixture, &talk), "/python3", &text);
    let answered = (CLIENTS * REQUESTS) as u64;
    assert!(observed["accept4"] >= answered && observed["clone3"] + 1 > answered, "{text}");
}
