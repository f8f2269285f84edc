//! Prints traces while they grow.

use std::io::{self, Write};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use trackway_ctf::read::Trace;
use trackway_reader::{
    FollowSettings, FollowedRange, Input, OpenError, Settings, TraceFile, follow_traces,
    open_traces,
};
use trackway_render::EventOutput;

use trackway_sys::wait::is_without_reader;

use super::format::{self, OutputForm};
use super::live::{Targets, find_session};
use super::{PrintRequest, report_unfinished};
use crate::common::jobs::limit_thread_count;
use crate::time_range;

/// Prints existing and future events of traces; returns true if nothing is damaged or missing.
///
/// # Errors
///
/// See [`super::run`]; but the function waits for a folder without a trace.
pub(super) fn run(request: &PrintRequest<'_>, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let targets = Targets::resolve(&request.arguments.traces, find_session)?;
    let mut there = open_existing_traces(&targets.folders)?;
    for input in &mut there {
        let moved = request.shift(&mut input.trace);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    request.check_filters(&there, messages)?;
    drop(there);
    // Checks the options before it waits for traces.
    let needs_first = time_range::needs_first_event(&request.arguments.selection)?;
    let mut output = request.open_output()?;
    let pretty = request.pretty_with_colours(&output);
    let growing = GrowingTraces {
        request,
        folders: &targets.folders,
        needs_first,
        fd: output.as_raw_fd(),
        messages,
    };
    // The future kinds of events in growing traces are unknown, so there are no columns.
    let is_symbolic = request.arguments.symbolic;
    let form = OutputForm {
        format: request.arguments.format,
        columns: None,
        has_traces: true,
        is_symbolic,
    };
    format::write_events(form, pretty, growing, &mut output)
}

/// Opens the existing traces in `folders`. Damage is reported later, while the traces are followed.
fn open_existing_traces(folders: &[PathBuf]) -> Result<Vec<Input<TraceFile>>, OpenError> {
    match open_traces(folders, &mut io::sink()) {
        Ok(found) => Ok(found.inputs),
        Err(OpenError::NoTrace(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The data for following traces, without the format.
struct GrowingTraces<'a> {
    request: &'a PrintRequest<'a>,
    folders: &'a [PathBuf],
    /// True if the range of time depends on the first event's day.
    needs_first: bool,
    /// File descriptor of the output.
    fd: RawFd,
    messages: &'a mut dyn Write,
}

impl format::EventSource for GrowingTraces<'_> {
    fn write_to(self, output: &mut impl EventOutput) -> anyhow::Result<bool> {
        let Self { request, folders, needs_first, fd, messages } = self;
        let arguments = request.arguments;
        let prepare = |trace: &mut Trace| {
            // Existing traces were checked before; a later trace may keep its clocks.
            let _ = request.shift(trace);
        };
        let following = FollowSettings {
            paths: folders,
            prepare: &prepare,
            now: &|| now_with_offset(arguments.clock_offset, arguments.clock_offset_ns),
            events: &|name| request.patterns.select(name),
            filters: request.filters.as_ref(),
            is_read: &|| match is_without_reader(fd) {
                Ok(true) => Err(io::ErrorKind::BrokenPipe.into()),
                // If the state of the reader is unknown, writing fails later.
                Ok(false) | Err(_) => Ok(()),
            },
            settings: Settings { jobs: limit_thread_count(arguments.jobs), ..Settings::default() },
        };
        let of_first = |first: Option<i64>| {
            time_range::resolve_range(&arguments.selection, arguments.clock_gmt, || first)
        };
        let range = match needs_first {
            true => FollowedRange::OfFirst(&of_first),
            false => FollowedRange::Known(of_first(None)?),
        };
        let followed = follow_traces(&following, range, output, messages)?;
        report_unfinished(&followed.unfinished, messages)?;
        Ok(followed.is_whole && followed.unfinished.is_empty())
    }
}

/// Returns the current time in nanoseconds since 1970, plus an offset.
fn now_with_offset(seconds: i64, ns: i64) -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    now.saturating_add(seconds.saturating_mul(1_000_000_000)).saturating_add(ns)
}
