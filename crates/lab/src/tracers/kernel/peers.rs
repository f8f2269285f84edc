//! perf, bpftrace and strace: programs that run the workload, and write down what they saw.

use std::fs;
use std::process::Command;

use super::{BUFFER_KIB, Found, Job, KernelEvents, LIMIT_S, Ran, SUBSYSTEMS};
use crate::child;
use crate::error::{Error, Result};
use crate::tracers::bpftrace::{self, Said};
use crate::tracers::perf;

/// What they write, in the scratch folder.
const OUTPUT: &str = "kernel-peer";
/// Numbers of system calls, by which bpftrace counts.
const NUMBERS: [(&str, libc::c_long); 2] =
    [("getppid", libc::SYS_getppid), ("openat", libc::SYS_openat)];

/// `perf record -a`, of which `perf report --stats` says what there is.
pub(super) fn by_perf(job: &Job<'_>) -> Result<Ran> {
    let output = job.place.path(OUTPUT);
    let mut command = perf::record(BUFFER_KIB << 10, &output);
    command.arg("-a");
    for event in perf_events(job.events) {
        command.args(["-e", &event]);
    }
    command.arg("--").args(job.command("0"));
    let finished = child::run_for(&mut command, "perf record", LIMIT_S)?;
    let (events, lost) = perf::recorded(&output)?;
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

/// bpftrace, which counts: all system calls by their numbers, and what else there is altogether.
pub(super) fn by_bpftrace(job: &Job<'_>) -> Result<Ran> {
    let output = job.place.path(OUTPUT);
    let mut command = bpftrace::command(&script(job.events), &job.command("0"), &output);
    let finished = child::run_for(&mut command, "bpftrace", LIMIT_S)?;
    let said = Said::take(&output)?;
    let number = NUMBERS.iter().find(|(name, _)| *name == job.call).map(|(_, number)| *number);
    let found = counted(&said, number);
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

/// Sums of its maps; apart, those of the call with that number, or of the one that was traced.
fn counted(said: &Said, number: Option<libc::c_long>) -> Found {
    let number = number.map(|number| number.to_string());
    let each = ["@enter", "@exit"].into_iter().flat_map(|map| said.counts(map));
    let (mut events, mut of_call) = (said.count("@events"), said.count("@of_call"));
    events += of_call;
    for (id, count) in each {
        events += count;
        of_call += if number.as_deref() == Some(id) { count } else { 0 };
    }
    Found { events, lost: said.lost, of_call: Some(of_call), ..Found::default() }
}

/// strace, which writes a line for each call: its entry and its exit.
pub(super) fn by_strace(job: &Job<'_>) -> Result<Ran> {
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
    fn maps_of_bpftrace_are_added_up() {
        let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n\
                    {\"type\": \"map\", \"data\": {\"@enter\": {\"1\": 3, \"110\": 5}}}\n\
                    {\"type\": \"map\", \"data\": {\"@exit\": {\"110\": 5}}}\n";
        let found = counted(&Said::of(text), Some(110));
        assert_eq!((found.events, found.of_call), (13, Some(10)));
        let text = "{\"type\": \"map\", \"data\": {\"@of_call\": 7}}\n\
                    {\"type\": \"map\", \"data\": {\"@events\": 5}}\n";
        let found = counted(&Said::of(text), None);
        assert_eq!((found.events, found.of_call), (12, Some(7)));
    }
}
