//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them.
//!
//! Reading, decoding and merging is `trackway_reader`'s, what lines look like is
//! `trackway_ctf::text`'s; here is only what was asked for.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use trackway_ctf::read::{EventClass, Trace};
use trackway_ctf::text::{
    Csv, DateTime, Fields, Json, LineFormat, Names, Nothing, Pretty, PrettyOptions, event_columns,
    utc,
};
use trackway_reader::{
    Found, Input, Selection, Settings, Summary, TraceFile, first_time, open, print,
};

use crate::arguments::{EventFormat, PrintArguments};
use crate::patterns::Patterns;
use crate::{local_time, time_range};

/// Prints traces, and to `messages` what tracers lost and what is damaged. Whether everything was
/// read: `false` if damage was told of.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if the output or `messages` cannot be written.
pub(crate) fn run(arguments: &PrintArguments, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let options = options(arguments)?;
    let patterns = Patterns::new(&arguments.on)?;
    let Found { mut inputs, is_whole } = open(&arguments.traces, messages)?;
    for input in &mut inputs {
        let (seconds, ns) = (arguments.clock_offset, arguments.clock_offset_ns);
        let moved = (seconds, ns) == (0, 0) || input.trace.shift_clocks(seconds, ns);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    let range = time_range::of(arguments, || first_time(&inputs))?;
    let selection = Selection { range, events: &|name| patterns.select(name) };
    let mut settings = Settings::default();
    settings.jobs = arguments.jobs.unwrap_or(settings.jobs);
    let mut output = output(arguments)?;
    let calendar = if arguments.clock_gmt { utc } else { local_time::local };
    let pretty = Pretty::new(options, calendar as fn(i64) -> Option<DateTime>);
    let columns = match arguments.format {
        EventFormat::Csv => common_columns(inputs.iter().map(|input| &input.trace)),
        _ => None,
    };
    let format = arguments.format;
    let task = Task { inputs, selection, settings, output: &mut output, messages };
    let summary = match format {
        EventFormat::Text => task.print(&pretty),
        EventFormat::Json => task.print(&Json::new(pretty)),
        EventFormat::Csv => match columns {
            Some(columns) => task.print(&Csv::with_columns(pretty, columns)),
            None => task.print(&Csv::new(pretty)),
        },
        EventFormat::None => task.print(&Nothing::new(pretty)),
    }?;
    Ok(summary.is_whole && is_whole)
}

/// All that printing needs but the format.
struct Task<'a> {
    inputs: Vec<Input<TraceFile>>,
    selection: Selection<'a>,
    settings: Settings,
    output: &'a mut dyn Write,
    messages: &'a mut dyn Write,
}

impl Task<'_> {
    fn print(self, format: &(impl LineFormat + Sync)) -> io::Result<Summary> {
        let Self { inputs, selection, settings, output, messages } = self;
        print(inputs, &selection, format, &settings, output, messages)
    }
}

/// What babeltrace2's options ask for.
fn options(arguments: &PrintArguments) -> anyhow::Result<PrettyOptions> {
    let names = arguments.names.as_deref().map(Names::of_list).transpose().context("--names")?;
    let fields = arguments.fields.as_deref().map(Fields::of_list).transpose();
    Ok(PrettyOptions {
        names: names.unwrap_or_default(),
        fields: fields.context("--fields")?.unwrap_or_default(),
        clock_date: arguments.clock_date,
        clock_seconds: arguments.clock_seconds,
        clock_cycles: arguments.clock_cycles,
        no_delta: arguments.no_delta,
    })
}

/// Where to write.
fn output(arguments: &PrintArguments) -> anyhow::Result<File> {
    match &arguments.output {
        Some(path) => File::create(path).with_context(|| format!("cannot create {path:?}")),
        // Not through `io::stdout`, which would look for line ends in all that is written.
        None => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
    }
}

/// The columns of the only kind of event that there is, if there is only one: of one name, with
/// the same fields wherever it is declared.
fn common_columns<'t>(traces: impl Iterator<Item = &'t Trace>) -> Option<Vec<String>> {
    let classes = traces.flat_map(Trace::streams);
    let mut events =
        classes.flat_map(|class| class.events().iter().map(move |event| (class, event)));
    let (first_class, first) = events.next()?;
    let columns = event_columns(first_class, first)?;
    let is_same = |class, event: &EventClass| {
        event.name() == first.name() && event_columns(class, event).as_ref() == Some(&columns)
    };
    events.all(|(class, event)| is_same(class, event)).then_some(columns)
}
