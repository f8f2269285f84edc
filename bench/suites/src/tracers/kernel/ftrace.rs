//! ftrace in a private instance: its events are enabled, and its buffers are moved to files, like
//! trace-cmd does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, RunningProgram};
use trackway_bench_engine::host::tracefs::{Instance, Tracefs, read_pages};
use trackway_bench_engine::host::workspace::Workspace;

use super::pages::PageScanner;
use super::{
    BUFFER_KIB, EventStorage, FoundEvents, Job, KernelEvents, KernelTracer, LIMIT_S, PROGRAM,
    SUBSYSTEMS, TracedRun,
};
use crate::trace_check::marks::{FoundMarks, MadeMarks};

/// Name of ftrace's instances.
const NAME: &str = "kernel";

/// Runs a job with ftrace's events of the job's kind enabled, and with this clock.
pub(super) fn run(
    tracefs: &Tracefs,
    (tracer, clock): (KernelTracer, &str),
    job: &Job<'_>,
) -> Result<TracedRun> {
    let instance = Instance::new(tracefs, NAME, BUFFER_KIB)?;
    instance.write("trace_clock", clock)?;
    let drains = match job.keep {
        EventStorage::Disk => start_drains(&instance, job.workspace)?,
        EventStorage::Flight => DrainProcesses(Vec::new()),
    };
    for folder in event_folders(tracer, job.events) {
        instance.write(&format!("events/{folder}/enable"), "1")?;
    }
    let command = job.command(&drains.pids());
    let mut program = Command::new(&command[0]);
    let finished = child::run_for(program.args(&command[1..]), tracer.name(), LIMIT_S);
    instance.write("tracing_on", "0")?;
    drop(drains);
    let finished = finished?;
    let has_marks = MadeMarks::of(&finished.stdout)?.is_some();
    let (found, marks) = collect_events(&instance, job, has_marks)?;
    Ok(TracedRun { stdout: finished.stdout, found: Some(found), marks, of_user: None })
}

/// Returns the folders of the events to enable.
fn event_folders(tracer: KernelTracer, events: KernelEvents) -> Vec<String> {
    let calls = if tracer == KernelTracer::FtraceSyscalls { "syscalls" } else { "raw_syscalls" };
    let folders = match events {
        KernelEvents::Calls => vec![calls],
        KernelEvents::OneCall(call) => {
            return ["enter", "exit"].map(|side| format!("syscalls/sys_{side}_{call}")).into();
        }
        KernelEvents::Sched => vec!["sched"],
        KernelEvents::Everything => SUBSYSTEMS.into_iter().chain([calls]).collect(),
    };
    folders.into_iter().map(str::to_owned).collect()
}

/// Returns the path of a CPU's buffer, and of the file to which it is moved.
fn buffer_paths(cpu: &Path, workspace: &Workspace) -> (PathBuf, PathBuf) {
    let name = cpu.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (cpu.join("trace_pipe_raw"), workspace.path(&format!("ftrace-{name}")))
}

/// Starts processes that move each CPU's buffer to a file.
fn start_drains(instance: &Instance, workspace: &Workspace) -> Result<DrainProcesses> {
    let mut drains = DrainProcesses(Vec::new());
    for cpu in instance.cpus() {
        let (from, to) = buffer_paths(cpu, workspace);
        let mut command = Command::new(workspace.path(PROGRAM));
        command.arg("drain").arg(from).arg(to);
        let mut drain = RunningProgram::start_for(&mut command, "a drain", 2 * LIMIT_S)?;
        let line = drain.line();
        drains.0.push(drain);
        if line? != "ready" {
            return Err(Error::output("a drain", "it is not ready"));
        }
    }
    Ok(drains)
}

/// Returns the recorded events, from the kernel's own counts, with their bytes and marks.
fn collect_events(
    instance: &Instance,
    job: &Job<'_>,
    has_marks: bool,
) -> Result<(FoundEvents, FoundMarks)> {
    let stats = instance.stats()?;
    let mut scanner =
        if has_marks { PageScanner::new(instance, job.events)? } else { PageScanner::default() };
    let mut bytes = 0;
    for cpu in instance.cpus() {
        // The bytes are those of written pages, and of pages that are not full.
        let (from, to) = buffer_paths(cpu, job.workspace);
        bytes += fs::metadata(&to).map_or(0, |file| file.len());
        if has_marks && to.is_file() {
            scanner.scan_file(&to)?;
        }
        read_pages(&from, BUFFER_KIB << 10, |page| {
            bytes += page.len() as u64;
            scanner.scan_page(page);
        })?;
        let _ = fs::remove_file(to);
    }
    // A flight recorder overwrites events by design.
    let (lost, overwritten) = match job.keep {
        EventStorage::Disk => (stats.overrun + stats.dropped, 0),
        EventStorage::Flight => (stats.dropped, stats.overrun),
    };
    let found =
        FoundEvents { events: stats.entries, lost, overwritten, bytes, ..FoundEvents::default() };
    Ok((found, scanner.marks))
}

/// Processes that move buffers to files, until this value is dropped.
struct DrainProcesses(Vec<RunningProgram>);

impl DrainProcesses {
    fn pids(&self) -> String {
        let pids: Vec<String> = self.0.iter().map(|drain| drain.pid().to_string()).collect();
        pids.join(",")
    }
}

impl Drop for DrainProcesses {
    fn drop(&mut self) {
        self.0.iter().for_each(RunningProgram::terminate);
        for drain in self.0.drain(..) {
            // The remaining content of the buffer is read afterwards.
            let _ = drain.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_the_schedulers_events_and_calls() {
        let folders = event_folders(KernelTracer::FtraceRaw, KernelEvents::Everything);
        assert!(folders.contains(&"sched".to_owned()));
        assert!(folders.contains(&"raw_syscalls".to_owned()));
        let one = super::event_folders(KernelTracer::FtraceRaw, KernelEvents::OneCall("getppid"));
        assert_eq!(one, ["syscalls/sys_enter_getppid", "syscalls/sys_exit_getppid"]);
    }
}
