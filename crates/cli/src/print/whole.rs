//! Traces that are printed as they are: their events, or what there is.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use trackway_console::Stream;
use trackway_reader::{
    Found, Input, Selection, Settings, TraceFile, first_time, open, print, statistics, unfinished,
};
use trackway_render::{Discard, EventOutput, LineOutput};

use super::format::{self, Form};
use super::{Asked, stats, tell_unfinished};
use crate::common::jobs::threads;
use crate::{progress, time_range};

/// Prints what is asked for of traces; whether nothing was damaged.
///
/// # Errors
///
/// As [`super::run`].
pub(super) fn run(asked: &Asked<'_>, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let arguments = asked.arguments;
    let Found { mut inputs, folders, is_whole } = open(&arguments.traces, messages)?;
    for input in &mut inputs {
        let moved = asked.shift(&mut input.trace);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    let range = time_range::of(&arguments.selection, arguments.clock_gmt, || first_time(&inputs))?;
    asked.patterns.warn_if_none(&inputs, messages)?;
    asked.check_filters(&inputs, messages)?;
    let output = asked.output()?;
    let settings = Settings {
        jobs: threads(arguments.jobs),
        progress: progress::wanted(output.is_terminal()),
        ..Settings::default()
    };
    let events = |name: &str| asked.patterns.select(name);
    let selection = Selection { range, events: &events, filters: asked.filters.as_ref() };
    let whole = Whole {
        asked,
        inputs,
        folders: &folders,
        selection,
        settings,
        output,
        messages: &mut *messages,
    };
    let read_whole = if arguments.details {
        whole.details()
    } else if arguments.stats {
        whole.stats()
    } else if arguments.count {
        whole.count()
    } else {
        whole.events()
    }?;
    tell_unfinished(&unfinished(&folders), messages)?;
    Ok(is_whole && read_whole)
}

/// Traces, and what is done with them. Each way of printing them says whether nothing was damaged.
struct Whole<'a> {
    asked: &'a Asked<'a>,
    inputs: Vec<Input<TraceFile>>,
    /// The folder of each of them.
    folders: &'a [PathBuf],
    selection: Selection<'a>,
    settings: Settings,
    output: Stream<File>,
    messages: &'a mut dyn Write,
}

impl Whole<'_> {
    /// Prints what the traces say of themselves.
    fn details(mut self) -> anyhow::Result<bool> {
        let mut out = Vec::new();
        for (input, folder) in self.inputs.iter().zip(self.folders) {
            let folder = folder.display().to_string();
            self.asked.arguments.format.push_details(&mut out, &folder, &input.trace)?;
        }
        self.output.write_all(&out)?;
        Ok(true)
    }

    /// Prints what there is.
    fn stats(mut self) -> anyhow::Result<bool> {
        let sources = stats::sources(&self.inputs, self.folders);
        let all = statistics(self.inputs, &self.selection, self.settings.jobs, self.messages)?;
        let format = self.asked.arguments.format;
        let text = format.stats(&all, &sources, self.asked.calendar(), &self.output)?;
        self.output.write_all(text.as_bytes())?;
        Ok(all.is_whole)
    }

    /// Prints how many events there are.
    fn count(self) -> anyhow::Result<bool> {
        let Self { asked, inputs, selection, settings, mut output, messages, .. } = self;
        let mut passed = LineOutput::new(Discard::passing(asked.pretty()), io::sink());
        let summary = print(inputs, &selection, &mut passed, &settings, messages)?;
        writeln!(output, "{}", summary.events)?;
        Ok(summary.is_whole)
    }

    /// Prints the events.
    fn events(self) -> anyhow::Result<bool> {
        let Self { asked, inputs, selection, settings, mut output, messages, .. } = self;
        let (of_events, pretty) = (asked.arguments.format, asked.coloured(&output));
        let columns = of_events.columns(&inputs, &selection);
        let has_traces = inputs.len() > 1;
        let is_symbolic = asked.arguments.symbolic;
        let form = Form { format: of_events, columns, has_traces, is_symbolic };
        let recorded = Recorded { inputs, selection, settings, messages };
        format::write(form, pretty, recorded, &mut output)
    }
}

/// The events of traces as they are.
struct Recorded<'a> {
    inputs: Vec<Input<TraceFile>>,
    selection: Selection<'a>,
    settings: Settings,
    messages: &'a mut dyn Write,
}

impl format::EventSource for Recorded<'_> {
    fn write_to(self, output: &mut impl EventOutput) -> anyhow::Result<bool> {
        let Self { inputs, selection, settings, messages } = self;
        Ok(print(inputs, &selection, output, &settings, messages)?.is_whole)
    }
}
