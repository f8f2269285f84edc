//! perf, bpftrace and strace: programs that run the workload, and write their events.

use std::fs;
use std::path::Path;
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;

use super::{BUFFER_KIB, FoundEvents, Job, KernelEvents, LIMIT_S, SUBSYSTEMS, TracedRun};
use crate::trace_check::marks::{self, FoundMarks, MadeMarks};
use crate::tracers::bpftrace::{self, BpftraceOutput};
use crate::tracers::perf;

/// Output file of these programs, in the scratch folder.
const OUTPUT: &str = "kernel-peer";
/// Numbers of system calls, by which bpftrace counts them.
const NUMBERS: [(&str, libc::c_long); 2] =
    [("getppid", libc::SYS_getppid), ("openat", libc::SYS_openat)];

/// Runs `perf record -a`, and reads the counts from `perf report --stats`.
pub(super) fn run_perf(job: &Job<'_>) -> Result<TracedRun> {
    let output = job.workspace.path(OUTPUT);
    let mut command = perf::record_command(BUFFER_KIB << 10, &output);
    command.arg("-a");
    for event in perf_events(job.events) {
        command.args(["-e", &event]);
    }
    command.arg("--").args(job.command("0"));
    let finished = child::run_for(&mut command, "perf record", LIMIT_S)?;
    let (events, lost) = perf::count_samples(&output)?;
    let marks = match MadeMarks::of(&finished.stdout)? {
        Some(made) => read_perf_marks(&output, &made)?,
        None => FoundMarks::default(),
    };
    let bytes = fs::metadata(&output).map_or(0, |file| file.len());
    let _ = fs::remove_file(&output);
    Ok(TracedRun {
        stdout: finished.stdout,
        found: Some(FoundEvents { events, lost, bytes, ..FoundEvents::default() }),
        marks,
        of_user: None,
    })
}

/// Reads the marks in a file of perf, only from the marks' threads, since all events would take
/// long.
fn read_perf_marks(file: &Path, made: &MadeMarks) -> Result<FoundMarks> {
    let names: Vec<String> = made.names().collect();
    let mut script = Command::new("perf");
    script.args(["script", "-F", "event,trace", "--comms", &names.join(",")]);
    let shown = child::run_for(script.arg("-i").arg(file), "perf script", LIMIT_S)?.stdout;
    Ok(parse_perf_marks(&shown))
}

/// Parses lines `raw_syscalls:sys_enter: NR 121 (4e200001, …)` and `sched:sched_process_exit:
/// comm=…`.
fn parse_perf_marks(shown: &str) -> FoundMarks {
    let mut marks = FoundMarks::default();
    for line in shown.lines().map(str::trim) {
        if let Some(call) = line.strip_prefix("raw_syscalls:sys_enter:") {
            let call = call.trim_start().strip_prefix("NR ").and_then(|call| call.split_once(" ("));
            let argument = call
                .filter(|(number, _)| *number == marks::CALL_NUMBER.to_string())
                .and_then(|(_, arguments)| arguments.split([',', ')']).next());
            if let Some(argument) = argument.and_then(|one| u64::from_str_radix(one, 16).ok()) {
                marks.add_call(argument);
            }
        } else if let Some(exit) = line.strip_prefix("sched:sched_process_exit:") {
            let name = exit.trim_start().strip_prefix("comm=");
            marks.add_exit(name.and_then(|name| name.split(' ').next()).unwrap_or_default());
        }
    }
    marks
}

fn perf_events(events: KernelEvents) -> Vec<String> {
    let all = |subsystem: &str| format!("{subsystem}:*");
    match events {
        KernelEvents::Calls => vec![all("raw_syscalls")],
        KernelEvents::OneCall(call) => {
            ["enter", "exit"].map(|side| format!("syscalls:sys_{side}_{call}")).into()
        }
        KernelEvents::Sched => vec![all("sched")],
        KernelEvents::Everything => {
            SUBSYSTEMS.into_iter().chain(["raw_syscalls"]).map(all).collect()
        }
    }
}

/// Runs bpftrace, which counts all system calls by their numbers, and all other events together.
pub(super) fn run_bpftrace(job: &Job<'_>) -> Result<TracedRun> {
    let output = job.workspace.path(OUTPUT);
    let mut command =
        bpftrace::build_command(&bpftrace_script(job.events), &job.command("0"), &output);
    let finished = child::run_for(&mut command, "bpftrace", LIMIT_S)?;
    let results = BpftraceOutput::read_and_remove(&output)?;
    let number = NUMBERS.iter().find(|(name, _)| *name == job.call).map(|(_, number)| *number);
    let found = sum_maps(&results, number);
    Ok(TracedRun {
        stdout: finished.stdout,
        found: Some(found),
        marks: bpftrace_marks(&results),
        of_user: None,
    })
}

/// Returns the marks that bpftrace has counted by argument and by name.
fn bpftrace_marks(results: &BpftraceOutput) -> FoundMarks {
    let mut marks = FoundMarks::default();
    results.counts("@mark_calls").filter_map(|(key, _)| key.parse().ok()).for_each(|argument| {
        marks.add_call(argument);
    });
    results.counts("@mark_exits").for_each(|(name, _)| marks.add_exit(name));
    marks
}

fn bpftrace_script(events: KernelEvents) -> String {
    let all = |subsystem: &str| format!("tracepoint:{subsystem}:*");
    let calls = |and: &str| {
        format!(
            "tracepoint:raw_syscalls:sys_enter {{ @enter[args->id] = count(); {and}}} \
             tracepoint:raw_syscalls:sys_exit {{ @exit[args->id] = count(); }}"
        )
    };
    let (name, bytes, call) = (marks::NAME, marks::NAME.len(), marks::CALL_NUMBER);
    let exits = format!(
        "tracepoint:sched:sched_process_exit /strncmp(comm, \"{name}\", {bytes}) == 0/ \
         {{ @mark_exits[comm] = count(); }}"
    );
    match events {
        KernelEvents::Calls => calls(""),
        KernelEvents::OneCall(call) => {
            let side = |side| format!("tracepoint:syscalls:sys_{side}_{call}");
            format!("{}, {} {{ @of_call = count(); }}", side("enter"), side("exit"))
        }
        KernelEvents::Sched => format!("{} {{ @events = count(); }} {exits}", all("sched")),
        KernelEvents::Everything => {
            let others = SUBSYSTEMS.map(all).join(", ");
            let marks = "@mark_calls[args->args[0]] = count();";
            let calls = calls(&format!("if (args->id == {call}) {{ {marks} }} "));
            format!("{others} {{ @events = count(); }} {calls} {exits}")
        }
    }
}

/// Sums the maps, with a separate count of the system call with this number, or of the only traced
/// call.
fn sum_maps(results: &BpftraceOutput, number: Option<libc::c_long>) -> FoundEvents {
    let number = number.map(|number| number.to_string());
    let each = ["@enter", "@exit"].into_iter().flat_map(|map| results.counts(map));
    let (mut events, mut of_call) = (results.count("@events"), results.count("@of_call"));
    events += of_call;
    for (id, count) in each {
        events += count;
        of_call += if number.as_deref() == Some(id) { count } else { 0 };
    }
    FoundEvents { events, lost: results.lost, of_call: Some(of_call), ..FoundEvents::default() }
}

/// Runs strace, which writes a line for each call, with its entry and exit.
pub(super) fn run_strace(job: &Job<'_>) -> Result<TracedRun> {
    let output = job.workspace.path(OUTPUT);
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&output).arg("--").args(job.command("0"));
    let finished = child::run_for(&mut command, "strace", LIMIT_S)?;
    let text = fs::read_to_string(&output).map_err(Error::io("cannot read what strace wrote"))?;
    let _ = fs::remove_file(&output);
    // Each line begins with the id of the thread.
    let is_call = |line: &&str| {
        let rest = line.trim_start_matches(|one: char| one.is_ascii_digit() || one == ' ');
        rest.strip_prefix(job.call).is_some_and(|rest| rest.starts_with('('))
    };
    let lines = text.lines().count() as u64;
    let of_call = text.lines().filter(is_call).count() as u64;
    let found = FoundEvents {
        events: 2 * lines,
        of_call: Some(2 * of_call),
        bytes: text.len() as u64,
        ..FoundEvents::default()
    };
    Ok(TracedRun { stdout: finished.stdout, found: Some(found), ..TracedRun::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the marks that all of these tracers must find.
    fn expected_marks() -> FoundMarks {
        let mut marks = FoundMarks::default();
        marks.add_call(0x4e20_0001);
        marks.add_exit("mark-20000-1");
        marks
    }

    #[test]
    fn marks_are_found_in_what_perf_shows() {
        let text = "  raw_syscalls:sys_enter: NR 121 (4e200001, 7f01, 0, 0, 0, 0)\n\
                    raw_syscalls:sys_enter: NR 39 (4e200002, 7f01, 0, 0, 0, 0)\n\
                    raw_syscalls:sys_exit: NR 121 = -3\n\
                    sched:sched_process_exit: comm=mark-20000-1 pid=7 prio=120\n\
                    sched:sched_switch: prev_comm=mark-20000-3 prev_pid=7\n";
        assert_eq!(parse_perf_marks(text), expected_marks());
    }

    #[test]
    fn marks_are_found_in_bpftraces_maps() {
        let text = "{\"type\": \"map\", \"data\": {\"@mark_calls\": {\"1310720001\": 1}}}\n\
                    {\"type\": \"map\", \"data\": {\"@mark_exits\": {\"mark-20000-1\": 1}}}\n";
        assert_eq!(bpftrace_marks(&BpftraceOutput::of(text)), expected_marks());
        let script = bpftrace_script(KernelEvents::Sched);
        assert!(script.contains("strncmp(comm, \"mark-\", 5) == 0"), "{script}");
    }

    #[test]
    fn maps_of_bpftrace_are_added_up() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n\
                    {\"type\": \"map\", \"data\": {\"@enter\": {\"1\": 3, \"110\": 5}}}\n\
                    {\"type\": \"map\", \"data\": {\"@exit\": {\"110\": 5}}}\n";
        let found = sum_maps(&BpftraceOutput::of(text), Some(110));
        assert_eq!((found.events, found.of_call), (13, Some(10)));
        let text = "{\"type\": \"map\", \"data\": {\"@of_call\": 7}}\n\
                    {\"type\": \"map\", \"data\": {\"@events\": 5}}\n";
        let found = sum_maps(&BpftraceOutput::of(text), None);
        assert_eq!((found.events, found.of_call), (12, Some(7)));
    }
}
