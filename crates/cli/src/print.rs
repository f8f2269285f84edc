//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them.
//!
//! Reading, decoding and merging is `trackway_reader`'s, what lines look like is
//! `trackway_ctf::text`'s; here is only what was asked for.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use anyhow::Context as _;
use trackway_ctf::read::{EventClass, Trace};
use trackway_ctf::text::{
    Csv, DateTime, Fields, Json, LineFormat, Names, Nothing, Pretty, PrettyOptions, event_columns,
    push_details, push_details_json, utc,
};
use trackway_reader::{
    Found, Input, OpenError, Selection, Settings, TraceFile, first_time, open, print, statistics,
};

use crate::arguments::{EventFormat, PrintArguments, threads};
use crate::patterns::Patterns;
use crate::{inside, local_time, progress, stats, time_range};

/// Prints traces, and to `messages` what tracers lost and what is damaged. Whether everything was
/// read: `false` if damage was told of.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if the output or `messages` cannot be written.
pub(crate) fn run(arguments: &PrintArguments, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let options = options(arguments)?;
    let patterns = Patterns::new(&arguments.selection.on)?;
    let Found { mut inputs, folders, is_whole } = opened(arguments, messages)?;
    let (seconds, ns) = (arguments.clock_offset, arguments.clock_offset_ns);
    let shift = |trace: &mut Trace| (seconds, ns) == (0, 0) || trace.shift_clocks(seconds, ns);
    for input in &mut inputs {
        let moved = shift(&mut input.trace);
        anyhow::ensure!(moved, "the clock offset is too large for the clocks of the trace");
    }
    let range = time_range::of(&arguments.selection, arguments.clock_gmt, || first_time(&inputs))?;
    let selection = Selection { range, events: &|name| patterns.select(name) };
    if !arguments.follow {
        patterns.warn_if_none(&inputs, messages)?;
    }
    let mut settings = Settings { jobs: threads(arguments.jobs), ..Settings::default() };
    let mut output = output(arguments)?;
    if !arguments.follow {
        settings.progress = progress::wanted(&output);
    }
    let calendar = if arguments.clock_gmt { utc } else { local_time::local };
    let calendar = calendar as fn(i64) -> Option<DateTime>;
    if arguments.details {
        output.write_all(&details(&inputs, &folders, arguments.format))?;
        return Ok(is_whole);
    }
    if arguments.stats {
        let sources = stats::sources(&inputs, &folders);
        let all = statistics(inputs, &selection, settings.jobs, messages)?;
        let text = match arguments.format {
            EventFormat::Text => stats::text(&all, calendar, &sources),
            EventFormat::Json => stats::json(&all, &sources),
            EventFormat::Csv => stats::csv(&all),
            EventFormat::None => String::new(),
        };
        output.write_all(text.as_bytes())?;
        return Ok(is_whole && all.is_whole);
    }
    let pretty = Pretty::new(options, calendar);
    if arguments.count {
        let (mut nowhere, passed) = (io::sink(), Nothing::passing(pretty));
        let summary = print(inputs, &selection, &passed, &settings, &mut nowhere, messages)?;
        writeln!(output, "{}", summary.events)?;
        return Ok(summary.is_whole && is_whole);
    }
    let columns = match arguments.format {
        // Of growing traces it is not known what kinds of events will come.
        EventFormat::Csv if !arguments.follow => common_columns(&inputs, &selection),
        _ => None,
    };
    let format = arguments.format;
    let has_traces = arguments.follow || inputs.len() > 1;
    let follow = arguments.follow.then_some((&arguments.traces[..], &shift as &_));
    let task = Task { inputs, follow, selection, settings, output: &mut output, messages };
    let printed_whole = match format {
        EventFormat::Text => task.print(&pretty),
        EventFormat::Json if has_traces => task.print(&Json::with_traces(pretty)),
        EventFormat::Json => task.print(&Json::new(pretty)),
        EventFormat::Csv => match columns {
            Some(columns) => task.print(&Csv::with_columns(pretty, columns)),
            None => task.print(&Csv::new(pretty)),
        },
        EventFormat::None => task.print(&Nothing::new(pretty)),
    }?;
    Ok(printed_whole && is_whole)
}

/// The traces that are there. What is damaged of growing ones is told while they are followed, and
/// a folder without one is waited for.
fn opened(arguments: &PrintArguments, messages: &mut dyn Write) -> Result<Found, OpenError> {
    if !arguments.follow {
        return open(&arguments.traces, messages);
    }
    match open(&arguments.traces, &mut io::sink()) {
        Ok(found) => Ok(Found { is_whole: true, ..found }),
        Err(OpenError::NoTrace(_)) => {
            Ok(Found { inputs: Vec::new(), folders: Vec::new(), is_whole: true })
        }
        Err(error) => Err(error),
    }
}

/// Moves a trace's clocks as it was asked for; whether that can be done.
type Shift<'a> = &'a dyn Fn(&mut Trace) -> bool;

/// All that printing needs but the format.
struct Task<'a> {
    inputs: Vec<Input<TraceFile>>,
    /// If traces are followed: where they are, and what to do with their clocks.
    follow: Option<(&'a [PathBuf], Shift<'a>)>,
    selection: Selection<'a>,
    settings: Settings,
    output: &'a mut dyn Write,
    messages: &'a mut dyn Write,
}

impl Task<'_> {
    /// Prints; whether nothing was damaged.
    fn print(self, format: &(impl LineFormat + Sync)) -> anyhow::Result<bool> {
        let Self { inputs, follow, selection, settings, output, messages } = self;
        if let Some((paths, shift)) = follow {
            let prepare = |trace: &mut Trace| {
                // Those that are there were checked; one that comes later may keep its clocks.
                let _ = shift(trace);
            };
            let (selection, settings) = (&selection, &settings);
            let (prepare, format) = (&prepare, format);
            return Ok(trackway_reader::follow(
                paths, prepare, selection, format, settings, output, messages,
            )?);
        }
        Ok(print(inputs, &selection, format, &settings, output, messages)?.is_whole)
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
        Some(path) => {
            inside::refuse_file(path)?;
            File::create(path).with_context(|| format!("cannot create {path:?}"))
        }
        // Not through `io::stdout`, which would look for line ends in all that is written.
        None => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
    }
}

/// What the traces say of themselves.
fn details(inputs: &[Input<TraceFile>], folders: &[PathBuf], format: EventFormat) -> Vec<u8> {
    let mut out = Vec::new();
    for (input, folder) in inputs.iter().zip(folders) {
        let folder = folder.display().to_string();
        match format {
            EventFormat::Text => push_details(&mut out, &folder, &input.trace),
            EventFormat::Json => push_details_json(&mut out, &folder, &input.trace),
            EventFormat::Csv | EventFormat::None => {}
        }
    }
    out
}

/// The columns of the only kind of event that is asked for, if there is only one: of one name,
/// with the same fields wherever it is declared.
fn common_columns(inputs: &[Input<TraceFile>], selection: &Selection<'_>) -> Option<Vec<String>> {
    let classes = inputs.iter().flat_map(|input| input.trace.streams());
    let mut events = classes
        .flat_map(|class| class.events().iter().map(move |event| (class, event)))
        .filter(|(_, event)| (selection.events)(event.name().unwrap_or_default()));
    let (first_class, first) = events.next()?;
    let columns = event_columns(first_class, first)?;
    let is_same = |class, event: &EventClass| {
        event.name() == first.name() && event_columns(class, event).as_ref() == Some(&columns)
    };
    events.all(|(class, event)| is_same(class, event)).then_some(columns)
}
