//! Traces that are printed while they grow.

use std::fs::File;
use std::io::{self, Write};

use trackway_ctf::read::Trace;
use trackway_ctf::text::LineFormat;
use trackway_reader::{Input, OpenError, Selection, Settings, TraceFile, first_time, follow, open};

use super::{Asked, events};
use crate::arguments::threads;
use crate::time_range;

/// Prints the events of traces and those that come; whether nothing was damaged.
///
/// # Errors
///
/// As [`super::run`]; but a folder that has no trace yet is waited for.
pub(super) fn run(asked: &Asked<'_>, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let arguments = asked.arguments;
    let mut inputs = there(asked)?;
    for input in &mut inputs {
        let moved = asked.shift(&mut input.trace);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    let range = time_range::of(&arguments.selection, arguments.clock_gmt, || first_time(&inputs))?;
    let settings = Settings { jobs: threads(arguments.jobs), ..Settings::default() };
    let selection = Selection { range, events: &|name| asked.patterns.select(name) };
    let output = asked.output()?;
    let following = Following { asked, selection, settings, output, messages };
    // Of growing traces it is not known what kinds of events will come, so there are no columns.
    events::write(arguments.format, None, asked.pretty(), following)
}

/// The traces that are there. What is damaged is told while they are followed.
fn there(asked: &Asked<'_>) -> Result<Vec<Input<TraceFile>>, OpenError> {
    match open(&asked.arguments.traces, &mut io::sink()) {
        Ok(found) => Ok(found.inputs),
        Err(OpenError::NoTrace(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// What following needs but the format.
struct Following<'a> {
    asked: &'a Asked<'a>,
    selection: Selection<'a>,
    settings: Settings,
    output: File,
    messages: &'a mut dyn Write,
}

impl events::Writes for Following<'_> {
    fn write(self, format: &(impl LineFormat + Sync)) -> anyhow::Result<bool> {
        let Self { asked, selection, settings, mut output, messages } = self;
        let prepare = |trace: &mut Trace| {
            // Those that are there were checked; one that comes later may keep its clocks.
            let _ = asked.shift(trace);
        };
        let paths = &asked.arguments.traces;
        Ok(follow(paths, &prepare, &selection, format, &settings, &mut output, messages)?)
    }
}
