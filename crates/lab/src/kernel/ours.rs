//! Trackway itself: `trackway record --kernel`.

use std::process::Command;

use super::count;
use super::tracer::{BUFFER_KIB, Job, KernelEvents, KernelTracer, Ran, SUBSYSTEMS};
use crate::child;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::tracers::trackway::in_window;

/// Where traces go, in the scratch folder.
const TRACE: &str = "kernel-trace";

/// Whether it can be had here: by doing it. Else, why not.
pub(super) fn availability(place: &Place, tracer: KernelTracer) -> std::result::Result<(), String> {
    let mut command = record(place, tracer, KernelEvents::OneCall);
    let output = command.arg("true").output().map_err(|error| error.to_string())?;
    place.clear(TRACE);
    let talk = String::from_utf8_lossy(&output.stderr);
    let line = talk.lines().next().unwrap_or("it fails").trim_start_matches("trackway: ");
    let line = line.trim_start_matches("error: ");
    if output.status.success() { Ok(()) } else { Err(line.to_owned()) }
}

/// What is to be recorded, up to the command.
fn record(place: &Place, tracer: KernelTracer, events: KernelEvents) -> Command {
    let mut command = Command::new(&place.kit.trackway);
    in_window(&mut command, place.window_dir());
    command.env("TRACKWAY_RUN_DIR", place.path("run"));
    command.args(["record", "--kernel", &patterns(events), "-o"]).arg(place.path(TRACE));
    command.arg(format!("--buffer-size={BUFFER_KIB}K"));
    match tracer {
        KernelTracer::TrackwayTree => {}
        KernelTracer::TrackwayTracefs => {
            command.args(["--system", "--kernel-via", "tracefs"]);
        }
        _ => {
            command.arg("--system");
        }
    }
    command.arg("--");
    command
}

fn patterns(events: KernelEvents) -> String {
    match events {
        KernelEvents::Calls => "syscalls".to_owned(),
        KernelEvents::OneCall => "syscalls:getppid".to_owned(),
        KernelEvents::Sched => "sched".to_owned(),
        KernelEvents::Everything => {
            SUBSYSTEMS.into_iter().chain(["syscalls"]).collect::<Vec<_>>().join(",")
        }
    }
}

/// Runs a job, recorded; what is counted apart are events of `call`.
pub(super) fn run(tracer: KernelTracer, job: &Job<'_>, call: &str) -> Result<Ran> {
    job.place.clear(TRACE);
    let mut command = record(job.place, tracer, job.events);
    command.args(job.command("0"));
    let finished = child::run_for(&mut command, tracer.name(), super::LIMIT_S)?;
    let found = count::count(&job.place.path(TRACE).join("kernel"), call)?;
    let mut found = found.ok_or_else(|| Error::output(tracer.name(), "there is no trace"))?;
    // What belongs to no stream is in the summary alone.
    found.lost = lost(&finished.stderr)
        .ok_or_else(|| Error::output(tracer.name(), "its summary has no losses"))?;
    Ok(Ran { stdout: finished.stdout, found: Some(found) })
}

/// Of `trackway: kernel: N events recorded, M lost, …`.
fn lost(talk: &str) -> Option<u64> {
    let line = talk.lines().find_map(|line| line.strip_prefix("trackway: kernel: "))?;
    let part = line.split(", ").find_map(|part| part.strip_suffix(" lost"))?;
    part.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_the_summary() {
        let talk = "trackway: 0 events recorded, 9 lost, 0 processes, 5 bytes in t\n\
                    trackway: kernel: 632,045 events recorded, 1,784,837 lost, 0 overwritten\n";
        assert_eq!(lost(talk), Some(1_784_837));
        assert_eq!(lost("trackway: 1 event recorded, 0 lost"), None);
    }

    #[test]
    fn everything_is_the_same_as_for_others() {
        let all = "sched,irq,timer,kmem,exceptions,signal,task,syscalls";
        assert_eq!(patterns(KernelEvents::Everything), all);
    }
}
