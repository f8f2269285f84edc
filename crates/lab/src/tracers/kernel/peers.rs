//! perf, bpftrace and strace: programs that run the workload, and write down what they saw.

use std::fs;
use std::process::Command;

use super::{BUFFER_KIB, Found, Job, KernelEvents, LIMIT_S, Ran, SUBSYSTEMS};
use crate::child;
use crate::error::{Error, Result};

/// What they write, in the scratch folder.
const OUTPUT: &str = "kernel-peer";
/// Bytes of a page, of which perf's buffers are counted.
const PAGE_KIB: u64 = 4;
/// Numbers of system calls, by which bpftrace counts.
const NUMBERS: [(&str, libc::c_long); 2] =
    [("getppid", libc::SYS_getppid), ("openat", libc::SYS_openat)];

/// `perf record -a`, of which `perf report --stats` says what there is.
pub(super) fn perf(job: &Job<'_>) -> Result<Ran> {
    let output = job.place.path(OUTPUT);
    let mut command = Command::new("perf");
    let pages = BUFFER_KIB / PAGE_KIB;
    command.args(["record", "-q", "-a", "-N", "-B", "-m", &pages.to_string(), "-o"]).arg(&output);
    for event in perf_events(job.events) {
        command.args(["-e", &event]);
    }
    command.arg("--").args(job.command("0"));
    let finished = child::run_for(&mut command, "perf record", LIMIT_S)?;
    let mut report = Command::new("perf");
    report.args(["report", "--stats", "-i"]).arg(&output);
    let stats = child::run_for(&mut report, "perf report", LIMIT_S)?.stdout;
    let (events, lost) = perf_counts(&stats)
        .ok_or_else(|| Error::output("perf report --stats", "there are no samples"))?;
    let bytes = fs::metadata(&output).map_or(0, |file| file.len());
    let _ = fs::remove_file(&output);
    Ok(Ran {
        stdout: finished.stdout,
        found: Some(Found { events, lost, bytes, ..Found::default() }),
    })
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

/// Samples, and lost ones: the first lines, which are of all events.
fn perf_counts(stats: &str) -> Option<(u64, u64)> {
    let mut samples = None;
    let mut lost = 0;
    for line in stats.lines() {
        // What follows is of each event.
        if line.ends_with(" stats:") && !line.starts_with("Aggregated") {
            break;
        }
        let Some((name, rest)) = line.trim().split_once(" events:") else { continue };
        let count: u64 = rest.split_whitespace().next()?.parse().ok()?;
        match name {
            "SAMPLE" => samples = Some(count),
            // Records that say so, each of many samples: how many is said below, of each event.
            "LOST_SAMPLES" | "LOST" => lost = lost.max(count),
            _ => {}
        }
    }
    // Of each event, where the kernel counts them (since Linux 6.0).
    let of_each: u64 = stats
        .lines()
        .skip_while(|line| !line.ends_with(" stats:") || line.starts_with("Aggregated"))
        .filter_map(|line| line.trim().strip_prefix("LOST_SAMPLES events:"))
        .filter_map(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Some((samples?, lost.max(of_each)))
}

/// bpftrace, which counts: all system calls by their numbers, and what else there is altogether.
pub(super) fn bpftrace(job: &Job<'_>) -> Result<Ran> {
    let output = job.place.path(OUTPUT);
    // What it is to run is one word to it, taken apart at spaces.
    let words = job.command("0").join(" ");
    let mut command = Command::new("bpftrace");
    command.args(["-f", "json", "-e", &script(job.events), "-c", &words, "-o"]).arg(&output);
    let finished = child::run_for(&mut command, "bpftrace", LIMIT_S)?;
    let text = fs::read_to_string(&output).map_err(Error::io("cannot read what bpftrace wrote"))?;
    let _ = fs::remove_file(&output);
    let number = NUMBERS.iter().find(|(name, _)| *name == job.call).map(|(_, number)| *number);
    let found = bpftrace_counts(&text, number);
    Ok(Ran { stdout: finished.stdout, found: Some(found) })
}

fn script(events: KernelEvents) -> String {
    let all = |subsystem: &str| format!("tracepoint:{subsystem}:*");
    let calls = "tracepoint:raw_syscalls:sys_enter { @enter[args->id] = count(); } \
                 tracepoint:raw_syscalls:sys_exit { @exit[args->id] = count(); }";
    match events {
        KernelEvents::Calls => calls.to_owned(),
        KernelEvents::OneCall(call) => {
            let side = |side| format!("tracepoint:syscalls:sys_{side}_{call}");
            format!("{}, {} {{ @of_call = count(); }}", side("enter"), side("exit"))
        }
        KernelEvents::Sched => format!("{} {{ @events = count(); }}", all("sched")),
        KernelEvents::Everything => {
            let others = SUBSYSTEMS.map(all).join(", ");
            format!("{others} {{ @events = count(); }} {calls}")
        }
    }
}

/// Sums of its maps: lines of JSON. Of the call with that number, or of the one that was traced.
fn bpftrace_counts(text: &str, number: Option<libc::c_long>) -> Found {
    let mut found = Found::default();
    let mut of_call = 0;
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let data = &line["data"];
        if line["type"] == "lost_events" {
            found.lost += data["events"].as_u64().unwrap_or(0);
        }
        for map in ["@of_call", "@events"] {
            let count = data[map].as_u64().unwrap_or(0);
            found.events += count;
            of_call += if map == "@of_call" { count } else { 0 };
        }
        for map in ["@enter", "@exit"] {
            let counts = data[map].as_object().into_iter().flatten();
            for (id, count) in counts {
                let count = count.as_u64().unwrap_or(0);
                found.events += count;
                if number.is_some_and(|number| *id == number.to_string()) {
                    of_call += count;
                }
            }
        }
    }
    found.of_call = Some(of_call);
    found
}

/// strace, which writes a line for each call: its entry and its exit.
pub(super) fn strace(job: &Job<'_>) -> Result<Ran> {
    let output = job.place.path(OUTPUT);
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(&output).arg("--").args(job.command("0"));
    let finished = child::run_for(&mut command, "strace", LIMIT_S)?;
    let text = fs::read_to_string(&output).map_err(Error::io("cannot read what strace wrote"))?;
    let _ = fs::remove_file(&output);
    // Each line begins with the thread's number.
    let is_call = |line: &&str| {
        let rest = line.trim_start_matches(|one: char| one.is_ascii_digit() || one == ' ');
        rest.strip_prefix(job.call).is_some_and(|rest| rest.starts_with('('))
    };
    let lines = text.lines().count() as u64;
    let of_call = text.lines().filter(is_call).count() as u64;
    let found = Found {
        events: 2 * lines,
        of_call: Some(2 * of_call),
        bytes: text.len() as u64,
        ..Found::default()
    };
    Ok(Ran { stdout: finished.stdout, found: Some(found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_perf_are_counted_once() {
        let text = "\nAggregated stats:\n           TOTAL events:         30\n            \
                    LOST events:         12  ( 0.0%)\n          \
                    SAMPLE events:         18  (98.5%)\n\
                    sched:sched_stat_runtime stats:\n          SAMPLE events:      10\n    \
                    LOST_SAMPLES events:      21504\nsched:sched_switch stats:\n          \
                    SAMPLE events:      8\n    LOST_SAMPLES events:      2\n";
        assert_eq!(perf_counts(text), Some((18, 21506)));
        assert_eq!(perf_counts("nothing"), None);
    }

    #[test]
    fn maps_of_bpftrace_are_added_up() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n\
                    {\"type\": \"map\", \"data\": {\"@enter\": {\"1\": 3, \"110\": 5}}}\n\
                    {\"type\": \"map\", \"data\": {\"@exit\": {\"110\": 5}}}\n";
        let found = bpftrace_counts(text, Some(110));
        assert_eq!((found.events, found.of_call), (13, Some(10)));
        let text = "{\"type\": \"map\", \"data\": {\"@of_call\": 7}}\n\
                    {\"type\": \"map\", \"data\": {\"@events\": 5}}\n";
        let found = bpftrace_counts(text, None);
        assert_eq!((found.events, found.of_call), (12, Some(7)));
    }
}
