//! Trackway as a kernel tracer: `trackway record --kernel`.

use std::process::Command;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::Workspace;

use super::count;
use super::{BUFFER_KIB, EventStorage, Job, KernelEvents, KernelTracer, SUBSYSTEMS, TracedRun};
use crate::trace_check::marks::FoundMarks;
use crate::tracers::command_tracer;
use crate::tracers::trackway::{
    account_of_streams, read_kernel_summary, read_summary, set_trace_output, set_window,
};

/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "kernel-trace";

/// Checks by a trial recording that Trackway can record kernel events; otherwise returns the
/// reason.
pub(super) fn check_availability(
    workspace: &Workspace,
    tracer: KernelTracer,
) -> std::result::Result<(), String> {
    if tracer == KernelTracer::TrackwayUser
        && command_tracer::find_preload_helper(&workspace.tools).is_none()
    {
        return Err(command_tracer::NO_HELPER.to_owned());
    }
    let mut command =
        record_command(workspace, tracer, KernelEvents::OneCall("getppid"), EventStorage::Disk);
    let tried =
        child::run_for(command.args(workspace.tools.nothing()), tracer.name(), super::LIMIT_S);
    workspace.clear(TRACE_FOLDER);
    tried.map(|_| ()).map_err(|error| match error {
        Error::Program { message, .. } => failure_reason(&message).to_owned(),
        error => error.to_string(),
    })
}

/// Returns the first words of a recorder's message, which give a reason.
fn failure_reason(message: &str) -> &str {
    let line = message.lines().nth(1).unwrap_or("it fails").trim_start_matches("trackway: ");
    line.trim_start_matches("error: ")
}

/// Returns the command of the recording, without the traced command.
fn record_command(
    workspace: &Workspace,
    tracer: KernelTracer,
    events: KernelEvents,
    keep: EventStorage,
) -> Command {
    let mut command = Command::new(&workspace.tools.trackway);
    set_window(&mut command, workspace.window_dir());
    command.env("TRACKWAY_RUN_DIR", workspace.path("run"));
    set_trace_output(
        command.args(["record", "--kernel", &kernel_patterns(events)]),
        &workspace.path(TRACE_FOLDER),
    );
    command.arg(format!("--buffer-size={BUFFER_KIB}K"));
    match tracer {
        KernelTracer::TrackwayUser => command.args(["--preload", "libc"]),
        _ => command.arg("--kernel-only"),
    };
    match tracer {
        KernelTracer::TrackwayTree => {}
        KernelTracer::TrackwayTracefs => {
            command.args(["--system-wide", "--kernel-backend", "tracefs"]);
        }
        _ => {
            command.arg("--system-wide");
        }
    }
    if keep == EventStorage::Flight {
        command.arg("--flight-recorder");
    }
    command.arg("--");
    command
}

fn kernel_patterns(events: KernelEvents) -> String {
    match events {
        KernelEvents::Calls => "syscalls".to_owned(),
        KernelEvents::OneCall(call) => format!("syscalls:{call}"),
        KernelEvents::Sched => "sched".to_owned(),
        KernelEvents::Everything => {
            SUBSYSTEMS.into_iter().chain(["syscalls"]).collect::<Vec<_>>().join(",")
        }
    }
}

/// Runs a job under Trackway.
pub(super) fn run(tracer: KernelTracer, job: &Job<'_>) -> Result<TracedRun> {
    job.workspace.clear(TRACE_FOLDER);
    let mut command = record_command(job.workspace, tracer, job.events, job.keep);
    command.args(job.command("0"));
    let finished = child::run_for(&mut command, tracer.name(), super::LIMIT_S)?;
    let trace = job.workspace.path(TRACE_FOLDER);
    let found = count::count_trace(&trace.join("kernel"), job.call)?;
    let (mut found, mut marks) =
        found.ok_or_else(|| Error::output(tracer.name(), "there is no trace"))?;
    // Losses that belong to no stream are only in the summary, and overwritten events are in no
    // trace.
    let said = read_kernel_summary(&trace)?;
    said.check_count("recorded", said.recorded, found.events)?;
    (found.lost, found.overwritten) = (said.lost, said.overwritten);
    let mut of_user = None;
    if tracer == KernelTracer::TrackwayUser {
        let streams = trace.join("ust");
        of_user = Some(account_of_streams(&streams, &read_summary(&trace)?, 0)?);
        marks.add(FoundMarks::read_trace(&streams)?);
    }
    job.workspace.clear(TRACE_FOLDER);
    Ok(TracedRun { stdout: finished.stdout, found: Some(found), marks, of_user })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_cannot_be_had_is_what_it_says() {
        assert_eq!(failure_reason("exit status: 1\ntrackway: error: no BPF\nhint: none"), "no BPF");
        assert_eq!(failure_reason("signal: 9"), "it fails");
    }

    #[test]
    fn everything_is_the_same_as_for_others() {
        let all = "sched,irq,timer,kmem,exceptions,signal,task,syscalls";
        assert_eq!(kernel_patterns(KernelEvents::Everything), all);
    }
}
