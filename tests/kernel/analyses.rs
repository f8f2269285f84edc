//! LTTng's layout of a kernel trace, read by an independent reader: lttng-analyses, on recordings
//! by BPF and by tracefs of a program with known activity.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use trackway_tests::{Fixture, has, has_kernel_events, report_skipped};

/// Kernel events that `lttng-analyses-record` enables, as far as the program causes them.
const PROGRAM_EVENTS: &str = "sched_switch,sched_wakeup,sched_wakeup_new,sched_waking,\
                      sched_migrate_task,\
                      sched_process_fork,sched_process_exec,sched_process_exit,sched_pi_setprio,\
                      block:block_rq_complete,block:block_rq_issue,block:block_bio_remap,\
                      block:block_bio_backmerge,net_dev_xmit,netif_receive_skb,\
                      mm_vmscan_wakeup_kswapd,mm_page_alloc,mm_page_free,irq_handler_entry,\
                      irq_handler_exit,softirq_entry,softirq_exit,softirq_raise,\
                      writeback_pages_written,syscalls";
/// Kernel events that are recorded of all processes.
const SYSTEM_EVENTS: &str = "sched_switch,irq_handler_entry,irq_handler_exit,softirq_entry,\
                             softirq_exit,softirq_raise,block:block_rq_complete,\
                             block:block_rq_issue";
/// Tools that read the trace of the program, and tools that read the trace of all processes.
const PROGRAM_TOOLS: [&str; 9] = [
    "schedtop",
    "schedstats",
    "schedlog",
    "iousagetop",
    "iolatencytop",
    "iolatencyfreq",
    "iolog",
    "memtop",
    "syscallstats",
];
const SYSTEM_TOOLS: [&str; 5] = ["cputop", "irqstats", "irqfreq", "irqlog", "iolatencystats"];
/// Bytes that the program's main thread writes to its file, and reads from it.
const WRITTEN_BYTES: u64 = 300 * 4096;
const READ_BYTES: u64 = 70 * 1000;
/// System calls of the program, with their counts.
const CALL_COUNTS: [(&str, u64); 4] = [("getppid", 40), ("fsync", 1), ("lseek", 1), ("wait4", 8)];

/// A trace of the program, or of all processes while it runs, with the program's known activity.
struct RecordedProgram {
    _fixture: Fixture,
    folder: String,
    lines: Vec<String>,
    /// Ids of the program's process and of its main thread.
    pid: u64,
    thread: u64,
}

/// Records these events by this kernel backend, while the program runs. Returns `None`, after
/// printing the reason, if a prerequisite is missing.
fn record_program(via: &str, events: &str, options: &[&str]) -> Option<RecordedProgram> {
    if !has("lttng-cputop") || !has("babeltrace") {
        report_skipped("python3-lttnganalyses is not installed");
        return None;
    }
    let fixture = Fixture::new(&format!("analyses-{via}-{}", options.len()));
    if !has_kernel_events(&fixture) {
        return None;
    }
    let program = fixture.compile_file("kernel/analysed.c", false, &[]);
    let mut record = fixture.trackway(&["record", "-o", "trace", "--kernel-only"]);
    record.args(["--buffer-size=32M", "--kernel-backend", via, "--kernel", events]);
    record.args(options).arg("--");
    let output = record.arg(program).arg(fixture.path(".")).output().expect("it runs");
    let talk = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{talk}");
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said.split_whitespace().map(|number| number.parse().expect("a number"));
    let (pid, thread) = (numbers.next().expect("its process"), numbers.next().expect("a thread"));
    let lines = fixture.print(&fixture.path("trace")).lines().map(str::to_owned).collect();
    let folder = fixture.path("trace/kernel").display().to_string();
    Some(RecordedProgram { _fixture: fixture, folder, lines, pid, thread })
}

impl RecordedProgram {
    /// Runs a tool and returns its output. (The first run also validates the trace with babeltrace,
    /// which takes long.)
    fn run(&self, tool: &str, options: &[&str]) -> String {
        let mut command = Command::new(format!("lttng-{tool}"));
        let is_first = tool == PROGRAM_TOOLS[0] || tool == SYSTEM_TOOLS[0];
        command.args((!is_first).then_some("--skip-validation"));
        let output = command.args(options).arg(&self.folder).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool}: {said}");
        // An enumeration has a label for every value.
        assert!(!said.contains("Unknown value"), "{tool}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the rows of the tables of this class that a tool prints, with the tables' titles.
    fn rows(&self, tool: &str, class: &str) -> Vec<(String, Vec<Value>)> {
        let limit = ["--limit", "100000"];
        let options = if tool == "iousagetop" { &limit[..] } else { &[] };
        let json = self.run(&format!("{tool}-mi"), options);
        let results: Value = serde_json::from_str(&json).expect("JSON");
        let mut rows = Vec::new();
        for table in results["results"].as_array().expect("tables") {
            let title = table["class"]["title"].as_str().unwrap_or_default();
            let is_it = table["class"] == class || table["class"]["inherit"] == class;
            for row in table["data"].as_array().expect("rows").iter().filter(|_| is_it) {
                rows.push((title.to_owned(), row.as_array().expect("a row").clone()));
            }
        }
        assert!(!rows.is_empty(), "{tool} has no {class}: {json}");
        rows
    }

    /// Returns the row of this thread.
    fn row_of(&self, tool: &str, class: &str, title: &str, tid: u64) -> Vec<Value> {
        let rows = self.rows(tool, class).into_iter();
        let mut of = rows.filter(|(of, row)| of.contains(title) && row[0]["tid"] == tid);
        let (_, row) = of.next().unwrap_or_else(|| panic!("{tool} does not know {tid}"));
        assert!(of.next().is_none(), "{tool} knows {tid} twice");
        row
    }

    /// Returns the number of records of an event that contain these words.
    fn count(&self, event: &str, words: &str) -> u64 {
        let event = format!(" {event}: ");
        let is_it = |line: &&String| line.contains(&event) && line.contains(words);
        self.lines.iter().filter(is_it).count() as u64
    }

    /// Returns true if, on each CPU, every system call comes from the thread to which the last
    /// switch went. The tools use the switches to find the thread of a call.
    fn has_all_switches(&self) -> bool {
        let mut running: BTreeMap<u64, u64> = BTreeMap::new();
        let number = |line: &str, name: &str| -> Option<u64> {
            line.split_once(name)?.1.split([',', ' ']).next()?.parse().ok()
        };
        self.lines.iter().all(|line| {
            let Some(cpu) = number(line, "cpu_id = ") else { return true };
            if line.contains(" sched_switch: ") {
                running.extend(number(line, " next_tid = ").map(|next| (cpu, next)));
                return true;
            }
            let of = number(line, "{ tid = ").filter(|_| line.contains(" syscall_e"));
            of.is_none_or(|of| running.get(&cpu).is_none_or(|&running| running == of))
        })
    }

    /// Runs all tools on the trace. Each tool must print the program's name and process id, except
    /// tools that print no processes.
    fn check_tools(&self, tools: &[&str]) {
        for tool in tools {
            let found = self.run(tool, &["--no-progress"]);
            assert!(found.contains("Timerange: ["), "{tool}: {found}");
            let is_named = found.contains("analysed") && found.contains(&self.pid.to_string());
            let is_of_processes = ["syscallstats", "schedlog", "iolog"].contains(tool);
            assert!(is_named || !is_of_processes, "{tool}: {found}");
        }
    }

    fn check_calls(&self) {
        let title = format!("TID: {})", self.pid);
        let rows = self.rows("syscallstats", "per-tid").into_iter();
        let of_it: Vec<_> = rows.filter(|(of, _)| of.contains(&title)).collect();
        let count = |name: &str| {
            let row = of_it.iter().find(|(_, row)| row[0]["name"] == name);
            let (_, row) = row.unwrap_or_else(|| panic!("no {name}: {of_it:?}"));
            row[1]["value"].as_u64().expect("a number")
        };
        for (name, expected) in CALL_COUNTS {
            assert_eq!(count(name), expected, "{name}");
        }
        let ours = format!("{{ tid = {} }}", self.pid);
        assert_eq!(count("write"), self.count("syscall_entry_write", &ours));
        let sleeps = self.count("syscall_exit_clock_nanosleep", &ours);
        // The tools know the thread of a CPU only from its first switch on.
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        let found = count("clock_nanosleep");
        assert!((sleeps.saturating_sub(cpus)..=sleeps).contains(&found), "{found} of {sleeps}");
    }

    fn check_usage(&self) {
        let size = |row: &[Value]| row[1]["value"].as_u64().expect("a size");
        let written = self.row_of("iousagetop", "per-process-top", "[written]", self.pid);
        // The program reports its work.
        let said = format!("{} {}\n", self.pid, self.thread).len() as u64;
        assert_eq!(size(&written), WRITTEN_BYTES + said);
        assert_eq!(written[0]["name"], "analysed");
        let read = self.row_of("iousagetop", "per-process-top", "[read]", self.pid);
        // The dynamic loader also reads libraries.
        assert!((READ_BYTES..READ_BYTES + 65_536).contains(&size(&read)), "{read:?}");
        let of_thread = self.row_of("iousagetop", "per-process-top", "[written]", self.thread);
        assert_eq!(size(&of_thread), 25 * 100);
    }

    fn check_switches(&self) {
        let row = self.row_of("schedstats", "per_tid_stats", "", self.pid);
        let count = row[1]["value"].as_u64().expect("a number");
        // The thread was woken up at least as often as it slept; each time, a CPU switched to it.
        let switches = self.count("sched_switch", &format!("next_tid = {}, ", self.pid));
        assert!((31..=switches).contains(&count), "{count} of {switches}");
    }

    fn check_interrupts(&self) {
        let ours = self.count("irq_handler_exit", "");
        if ours == 0 {
            return report_skipped("no interrupt came meanwhile");
        }
        let rows = self.rows("irqstats", "hard-stats");
        let theirs: u64 = rows.iter().map(|(_, row)| row[1]["value"].as_u64().expect("one")).sum();
        // A call that was under way when recording began has no recorded begin.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        assert!((ours.saturating_sub(cpus)..=ours).contains(&theirs), "{theirs} of {ours}");
    }

    /// Checks requests to disks. The tools list those that were both issued and completed.
    fn check_requests(&self) {
        let issued = self.count("block_rq_issue", "");
        if issued == 0 {
            return report_skipped("what is written here goes to no disk");
        }
        let text = self.run("iolatencystats", &["--no-progress"]);
        let disks = text.split("Disk latency statistics").nth(1).expect("disks");
        let counts = disks.lines().filter(|line| line.starts_with('(')).map(|line| {
            line.split_whitespace().nth(1).expect("a count").parse::<u64>().expect("a number")
        });
        let known: u64 = counts.sum();
        assert!((1..=issued).contains(&known), "{known} of {issued}: {text}");
        let flags = self.lines.iter().filter(|line| line.contains(" block_rq_issue: "));
        for line in flags {
            let text = line.split("rwbs_text = \"").nth(1).expect("letters");
            let flags = line.split(" rwbs = 0x").nth(1).expect("flags");
            let flags = flags.split([' ', ',']).next().expect("a number");
            let flags = u64::from_str_radix(flags, 16).expect("a number");
            let is_write = text.trim_start_matches('F').starts_with('W') && !text.contains('Z');
            assert_eq!(flags & 1 == 1, is_write, "{line}");
        }
    }
}

/// Checks the results that both kernel backends have in common.
fn check_analyses(via: &str) -> Option<RecordedProgram> {
    let recorded = record_program(via, PROGRAM_EVENTS, &[])?;
    recorded.check_tools(&PROGRAM_TOOLS);
    if recorded.has_all_switches() {
        recorded.check_calls();
        recorded.check_usage();
        recorded.check_switches();
    } else {
        // Linux 6.18 omits these switches under set_event_pid, with Trackway or without it. BPF
        // cannot omit them.
        assert_eq!(via, "tracefs", "switches to the program are missing");
        report_skipped("the kernel left out switches to the program");
    }
    let all = record_program(via, SYSTEM_EVENTS, &["--system-wide"])?;
    all.check_tools(&SYSTEM_TOOLS);
    all.check_interrupts();
    all.check_requests();
    Some(recorded)
}

/// RUN the analyses on a recording by BPF. EXPECT all to succeed, with the known numbers, including
/// the processes of threads and the owners of files.
#[test]
fn analyses_take_what_bpf_records() {
    let Some(recorded) = check_analyses("bpf") else { return };
    let RecordedProgram { pid, thread, .. } = recorded;
    let of_process = format!(", parent_pid = {pid}, ");
    assert_eq!(recorded.count("sched_process_fork", &of_process), 8 + 1);
    let is_thread = format!("child_tid = {thread}, parent_pid = {pid}, child_pid = {pid} }}");
    assert_eq!(recorded.count("sched_process_fork", &is_thread), 1);
    // All threads and processes of the program have the file, by its name.
    let log = recorded.run("iolog", &["--no-progress"]);
    let named = log.lines().filter(|line| line.contains("analysed.data") && line.contains("write"));
    assert_eq!(named.count(), 300 + 25 + 8 * 10);
}

/// RUN the analyses on a recording by tracefs. EXPECT the same numbers.
#[test]
fn analyses_take_what_tracefs_gives() {
    check_analyses("tracefs");
}
