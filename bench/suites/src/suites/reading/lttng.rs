//! LTTng's trace, which is recorded and not generated, so that it equals the traces of LTTng's
//! users.

use std::path::Path;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::tracer::{Availability, Tracer as _};

use super::traces::TraceFolder;
use crate::trace_check;
use crate::tracers::Lttng;

/// Checks that LTTng can record the trace on this machine; otherwise returns the reason.
pub(super) fn check_availability(workspace: &Workspace) -> std::result::Result<(), String> {
    match Lttng::with_own_daemon().availability(workspace) {
        Availability::Ready => Ok(()),
        Availability::Missing(reason) => Err(reason),
    }
}

/// Records a number of events by `recorder`, which is set up first if it is `None`.
pub(super) fn record_trace(
    recorder: &mut Option<Lttng>,
    workspace: &Workspace,
    folder: &Path,
    events: u64,
) -> Result<TraceFolder> {
    if recorder.is_none() {
        let mut lttng = Lttng::with_own_daemon();
        lttng.set_up(workspace)?;
        *recorder = Some(lttng);
    }
    let recorder = recorder.as_ref().ok_or_else(|| Error::output("LTTng", "it is not set up"))?;
    let emitted = recorder.record_all(workspace, folder, events)?;
    let counted = trace_check::count_trace(folder)?.unwrap_or_default();
    if counted.events != emitted {
        let message = format!("{emitted} events emitted, {} in the trace", counted.events);
        return Err(Error::output("LTTng", message));
    }
    let bytes = trace_check::stream_bytes(folder)?;
    Ok(TraceFolder { path: folder.to_owned(), events: emitted, bytes })
}
