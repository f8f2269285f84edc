//! The same ways through the product: `trackway record --reserve WAY`, with the tracepoint in C
//! that `trackway bench tracepoint` measures.

use std::process::Command;

use super::results::Way;
use crate::case::{Case, Payload, Plan};
use crate::child;
use crate::error::Result;
use crate::place::{Place, has};
use crate::results::Account;
use crate::stats::Spread;
use crate::tracer::Availability;
use crate::tracers::trackway::{account, availability, in_window, link_flags};
use crate::tracers::{RING_BYTES, batch_arguments};
use crate::workload::{self, Batch};

/// The workload.
const PROGRAM: &str = "trackway";
/// Where traces go, in the scratch folder.
const TRACE: &str = "reserve-trace";
/// Events of a batch.
const BATCH_EVENTS: u64 = 10_000;

/// The ways that there are, by their names on the command line.
pub(super) const WAYS: [Way; 3] = [Way::Rseq, Way::Claim, Way::Lockless];

/// Why it cannot be measured here.
pub(super) fn missing(place: &Place) -> Option<String> {
    match availability(&place.kit, has("cc")) {
        Availability::Ready => None,
        Availability::Missing(reason) => Some(reason),
    }
}

/// Compiles the workload.
pub(super) fn set_up(place: &Place) -> Result<()> {
    let flags = link_flags(place)?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    place.compile(PROGRAM, &flags).map(|_| ())
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    /// ns of a CPU for each event recorded.
    pub(super) ns: f64,
    /// What became of the events, by the trace.
    pub(super) account: Account,
}

fn record(place: &Place, way: Way, arguments: &[String]) -> Result<child::Finished> {
    place.clear(TRACE);
    let mut command = Command::new(&place.kit.trackway);
    command.args(["record", "--flight-recorder", "--context", "none"]);
    command.args(["--reserve", way.name(), "--buffer-size", &RING_BYTES.to_string(), "-o"]);
    command.arg(place.path(TRACE)).arg("--").arg(place.path(PROGRAM)).args(arguments);
    in_window(&mut command, place.window_dir());
    child::run(&mut command, way.name())
}

/// One thread, batch by batch.
pub(super) fn alone(place: &Place, way: Way, payload: Payload, plan: &Plan) -> Result<Run> {
    let case = Case { payload, ..Case::SIMPLEST };
    let arguments = batch_arguments(payload.work(), &case, plan, BATCH_EVENTS);
    let finished = record(place, way, &arguments)?;
    let batches = workload::batches(&finished.stdout)?;
    let emitted = batches.iter().map(|batch| batch.events).sum();
    let account = account(&place.path(TRACE), &finished.stderr, emitted)?;
    let counted = batches.iter().filter(|batch| batch.number >= plan.warm_up);
    let figures: Vec<f64> = counted.map(Batch::event_ns).collect();
    let ns = Spread::of(&figures).map_or(f64::NAN, |spread| spread.median);
    Ok(Run { ns, account })
}

/// Threads on all CPUs, for so long.
pub(super) fn at_once(place: &Place, way: Way, threads: usize, milliseconds: u32) -> Result<Run> {
    let arguments =
        ["for", Payload::Number.work(), &threads.to_string(), &milliseconds.to_string()];
    let finished = record(place, way, &arguments.map(str::to_owned))?;
    let emitted = workload::emitted(&finished.stdout)?;
    let cpu_ns: u64 = emitted.iter().map(|thread| thread.cpu_ns).sum();
    let events = emitted.iter().map(|thread| thread.events).sum();
    let account = account(&place.path(TRACE), &finished.stderr, events)?;
    let kept = account.recorded + account.overwritten;
    Ok(Run { ns: cpu_ns as f64 / kept as f64, account })
}
