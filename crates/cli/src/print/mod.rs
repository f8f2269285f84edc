//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them.
//!
//! Crate `trackway_reader` reads, decodes and merges events, and crate `trackway_render` formats
//! lines; this module handles only the request.

mod args;
mod follow;
mod format;
mod live;
mod stats;
mod whole;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_console::{Stream, Style, Target, stdout_file};
use trackway_ctf::read::Trace;
use trackway_reader::{Filters, Input};
use trackway_render::{DateTime, Pretty, PrettyOptions, ShownFields, ShownNames, utc_date_time};

pub(crate) use self::args::Arguments;
use crate::filter::object::{read_object_bytes, split_object_pattern};
use crate::patterns::{self, Patterns};
use crate::{EXIT_NEGATIVE, local_time, output_guard, progress, session_traces};

/// Prints traces, and reports losses and damage to standard error. Returns a negative exit status
/// if it reported damage, or if a followed trace has no end.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if the output cannot be written.
pub(crate) fn run(mut arguments: Arguments) -> anyhow::Result<ExitCode> {
    if !arguments.follow {
        session_traces::resolve_session_names(&mut arguments.traces);
    }
    let printed = print_traces(&arguments, &mut progress::Messages);
    progress::clear_line();
    Ok(if printed? { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NEGATIVE) })
}

/// Prints traces; returns true if everything was read.
fn print_traces(arguments: &Arguments, messages: &mut dyn Write) -> anyhow::Result<bool> {
    let request = PrintRequest {
        arguments,
        options: parse_pretty_options(arguments)?,
        patterns: Patterns::new(&arguments.selection.event)?,
        filters: parse_filters(arguments)?,
    };
    if arguments.follow { follow::run(&request, messages) } else { whole::run(&request, messages) }
}

/// The parsed request of `trackway print`.
struct PrintRequest<'a> {
    arguments: &'a Arguments,
    options: PrettyOptions,
    patterns: Patterns<'a>,
    filters: Option<Filters>,
}

/// Converts seconds since 1970 to a date and time.
type Calendar = fn(i64) -> Option<DateTime>;

impl PrintRequest<'_> {
    /// Returns the calendar of the requested time zone.
    fn calendar(&self) -> Calendar {
        if self.arguments.clock_gmt { utc_date_time } else { local_time::to_local_date_time }
    }

    /// Returns the formatter for events in the form of babeltrace2.
    fn pretty(&self) -> Pretty<Calendar> {
        Pretty::new(self.options, self.calendar())
    }

    /// Returns the formatter with colours, if `output` and standard error support them.
    fn pretty_with_colours(&self, output: &Stream<File>) -> Pretty<Calendar> {
        self.pretty().with_marks(output.marks(Style::Name), Target::Errors.marks(Style::Loss))
    }

    /// Applies the requested offset to a trace's clocks; returns false if that is impossible.
    fn shift(&self, trace: &mut Trace) -> bool {
        let (seconds, ns) = (self.arguments.clock_offset, self.arguments.clock_offset_ns);
        (seconds, ns) == (0, 0) || trace.shift_clocks(seconds, ns)
    }

    /// Checks the filters against the existing traces; if they are followed, traces may be added.
    ///
    /// # Errors
    ///
    /// If a filter is invalid for every existing kind of event, or its pattern matches none, and no
    /// more kinds can come.
    fn check_filters<B>(
        &self,
        inputs: &[Input<B>],
        messages: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let Some(filters) = &self.filters else { return Ok(()) };
        let traces = inputs.iter().map(|input| &input.trace);
        let follows = self.arguments.follow;
        for nothing in filters.unmatched_filters(traces.clone()) {
            let why = patterns::no_match_message(&nothing, inputs);
            anyhow::ensure!(follows, "{why}\nhint: trackway print --stats shows what there is");
            writeln!(messages, "trackway: {why}, and it keeps nothing out so far")?;
        }
        for hint in filters.check(traces, follows)? {
            writeln!(messages, "trackway: {hint}")?;
        }
        Ok(())
    }

    /// Opens the output.
    fn open_output(&self) -> anyhow::Result<Stream<File>> {
        match &self.arguments.output {
            Some(path) => {
                output_guard::refuse_file(path)?;
                let file = File::create(path).with_context(|| format!("cannot create {path:?}"))?;
                Ok(Stream::of_file(file))
            }
            None => Ok(stdout_file()?),
        }
    }
}

/// Reports unfinished recordings into these folders, and remedies.
fn report_unfinished(folders: &[PathBuf], messages: &mut dyn Write) -> io::Result<()> {
    let whoever = |folder: &Path| fs::metadata(folder).map(|metadata| metadata.uid()).ok();
    let me = whoever(Path::new("/proc/self"));
    for folder in folders {
        let name = folder.display();
        writeln!(
            messages,
            "trackway: {name} is not complete: its recorder was killed or interrupted"
        )?;
        // Only the owner can recover records in the user's memory.
        let by = match whoever(folder) {
            owner if owner.is_some() && me.is_some() && owner != me => {
                ", if whoever recorded it calls it,"
            }
            _ => "",
        };
        writeln!(
            messages,
            "hint: trackway recover {name}{by} completes it with what is still in memory"
        )?;
    }
    Ok(())
}

/// Returns the filters on events, if any were requested.
fn parse_filters(arguments: &Arguments) -> anyhow::Result<Option<Filters>> {
    let texts = arguments.filter.iter().map(String::as_str);
    let mut filters = Filters::new(texts, patterns::matches_event_name)
        .map_err(|error| anyhow::anyhow!("--filter:\n{error}"))?;
    for object in &arguments.filter_object {
        let (pattern, path) = split_object_pattern(object);
        // The bytes live as long as the command, because verified filters refer to them.
        let bytes = read_object_bytes(path)?.leak();
        let told = || format!("--filter-object {}", path.display());
        filters.add_object(pattern, bytes).with_context(told)?;
    }
    Ok(Some(filters).filter(|filters| !filters.is_empty()))
}

/// Returns the requested options of babeltrace2.
fn parse_pretty_options(arguments: &Arguments) -> anyhow::Result<PrettyOptions> {
    let names =
        arguments.names.as_deref().map(ShownNames::of_list).transpose().context("--names")?;
    let fields = arguments.fields.as_deref().map(ShownFields::of_list).transpose();
    Ok(PrettyOptions {
        names: names.unwrap_or_default(),
        fields: fields.context("--fields")?.unwrap_or_default(),
        clock_date: arguments.clock_date,
        clock_seconds: arguments.clock_seconds,
        clock_cycles: arguments.clock_cycles,
        no_delta: arguments.no_delta,
    })
}
