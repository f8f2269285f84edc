//! Prints complete traces: their events, or information about them.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use trackway_console::Stream;
use trackway_reader::{
    FoundTraces, Input, Selection, Settings, TraceFile, collect_statistics,
    find_unfinished_recordings, first_packet_time, open_traces, print_events,
};
use trackway_render::{Discard, EventOutput, LineOutput};

use super::format::{self, OutputForm};
use super::{PrintRequest, report_unfinished, stats};
use crate::common::jobs::limit_thread_count;
use crate::{progress, time_range};

/// Prints the requested parts of traces; returns true if nothing was damaged.
///
/// # Errors
///
/// See [`super::run`].
pub(super) fn run(request: &PrintRequest<'_>, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let arguments = request.arguments;
    let FoundTraces { mut inputs, folders, is_whole } = open_traces(&arguments.traces, messages)?;
    for input in &mut inputs {
        let moved = request.shift(&mut input.trace);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    let range = time_range::resolve_range(&arguments.selection, arguments.clock_gmt, || {
        first_packet_time(&inputs)
    })?;
    request.patterns.warn_if_none(&inputs, messages)?;
    request.check_filters(&inputs, messages)?;
    let output = request.open_output()?;
    let settings = Settings {
        jobs: limit_thread_count(arguments.jobs),
        progress: progress::choose_reporter(output.is_terminal()),
        ..Settings::default()
    };
    let events = |name: &str| request.patterns.select(name);
    let selection = Selection { range, events: &events, filters: request.filters.as_ref() };
    let whole = CompleteTraces {
        request,
        inputs,
        folders: &folders,
        selection,
        settings,
        output,
        messages: &mut *messages,
    };
    let read_whole = if arguments.details {
        whole.print_details()
    } else if arguments.stats {
        whole.print_statistics()
    } else if arguments.count {
        whole.print_count()
    } else {
        whole.print_events()
    }?;
    report_unfinished(&find_unfinished_recordings(&folders), messages)?;
    Ok(is_whole && read_whole)
}

/// Traces to print, with the options. Each print method returns true if nothing was damaged.
struct CompleteTraces<'a> {
    request: &'a PrintRequest<'a>,
    inputs: Vec<Input<TraceFile>>,
    /// The folder of each trace.
    folders: &'a [PathBuf],
    selection: Selection<'a>,
    settings: Settings,
    output: Stream<File>,
    messages: &'a mut dyn Write,
}

impl CompleteTraces<'_> {
    /// Prints the declarations in the traces' metadata.
    fn print_details(mut self) -> anyhow::Result<bool> {
        let mut out = Vec::new();
        for (input, folder) in self.inputs.iter().zip(self.folders) {
            let folder = folder.display().to_string();
            self.request.arguments.format.push_details(&mut out, &folder, &input.trace)?;
        }
        self.output.write_all(&out)?;
        Ok(true)
    }

    /// Prints the statistics of the traces.
    fn print_statistics(mut self) -> anyhow::Result<bool> {
        let sources = stats::collect_sources(&self.inputs, self.folders);
        let all =
            collect_statistics(self.inputs, &self.selection, self.settings.jobs, self.messages)?;
        let format = self.request.arguments.format;
        let text =
            format.format_statistics(&all, &sources, self.request.calendar(), &self.output)?;
        self.output.write_all(text.as_bytes())?;
        Ok(all.is_whole)
    }

    /// Prints the number of events.
    fn print_count(self) -> anyhow::Result<bool> {
        let Self { request, inputs, selection, settings, mut output, messages, .. } = self;
        let mut passed = LineOutput::new(Discard::without_decoding(request.pretty()), io::sink());
        let summary = print_events(inputs, &selection, &mut passed, &settings, messages)?;
        writeln!(output, "{}", summary.events)?;
        Ok(summary.is_whole)
    }

    /// Prints the events.
    fn print_events(self) -> anyhow::Result<bool> {
        let Self { request, inputs, selection, settings, mut output, messages, .. } = self;
        let (of_events, pretty) = (request.arguments.format, request.pretty_with_colours(&output));
        let columns = of_events.columns(&inputs, &selection);
        let has_traces = inputs.len() > 1;
        let is_symbolic = request.arguments.symbolic;
        let form = OutputForm { format: of_events, columns, has_traces, is_symbolic };
        let recorded = RecordedEvents { inputs, selection, settings, messages };
        format::write_events(form, pretty, recorded, &mut output)
    }
}

/// The recorded events of complete traces.
struct RecordedEvents<'a> {
    inputs: Vec<Input<TraceFile>>,
    selection: Selection<'a>,
    settings: Settings,
    messages: &'a mut dyn Write,
}

impl format::EventSource for RecordedEvents<'_> {
    fn write_to(self, output: &mut impl EventOutput) -> anyhow::Result<bool> {
        let Self { inputs, selection, settings, messages } = self;
        Ok(print_events(inputs, &selection, output, &settings, messages)?.is_whole)
    }
}
