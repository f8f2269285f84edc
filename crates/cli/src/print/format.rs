//! Formats of `trackway print`: their kinds of output, and how to print them.
//!
//! A new format needs a variant in [`EventFormat`], its kinds of output in
//! [`EventFormat::capabilities`], and an arm in each `match` here. The crate `render` contains the
//! format itself.

use std::fs::File;

use clap::ValueEnum;
use trackway_console::{Stream, Style};
use trackway_ctf::read::{EventClass, Trace};
use trackway_reader::{Input, Selection, Statistics};
use trackway_render::{
    Csv, Discard, EventOutput, Json, LineOutput, OneLine, Pretty, Symbolic, event_columns,
    push_details, push_details_json,
};

use super::{Calendar, stats};

/// Form of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventFormat {
    /// Lines like babeltrace2's
    Text,
    /// An object on a line of its own
    Json,
    /// Comma-separated values, with a column for each field if all events are of one kind
    Csv,
    /// Nothing: read, decode, and tell of damage alone
    None,
}

/// The kinds of output that a format has; for a missing one, the reason and the alternative.
pub(super) struct Capabilities {
    pub(super) events: Result<(), &'static str>,
    /// The event statistics of option `--stats`.
    pub(super) stats: Result<(), &'static str>,
    /// The metadata declarations of option `--details`.
    pub(super) details: Result<(), &'static str>,
}

/// The refusal of `--format none` for output that exists only as text or JSON.
const PRINTS_NOTHING: &str = "\
    --format none prints nothing: leave it out with --stats and --details, or leave these out to \
    see whether something is damaged";

impl EventFormat {
    /// Returns the kinds of output that the format has.
    pub(super) const fn capabilities(self) -> Capabilities {
        const ALL: Capabilities = Capabilities { events: Ok(()), stats: Ok(()), details: Ok(()) };
        match self {
            Self::Text | Self::Json => ALL,
            Self::Csv => Capabilities {
                details: Err(
                    "--details has no --format csv: what traces say of themselves is no table; \
                     use --format json",
                ),
                ..ALL
            },
            Self::None => {
                Capabilities { stats: Err(PRINTS_NOTHING), details: Err(PRINTS_NOTHING), ..ALL }
            }
        }
    }

    /// Appends the declarations in a trace's metadata.
    ///
    /// # Errors
    ///
    /// If the format has no details, which the command line refuses.
    pub(super) fn push_details(
        self,
        out: &mut Vec<u8>,
        folder: &str,
        trace: &Trace,
    ) -> anyhow::Result<()> {
        match self {
            Self::Text => push_details(out, folder, trace),
            Self::Json => push_details_json(out, folder, trace),
            Self::Csv | Self::None => self.capabilities().details.map_err(anyhow::Error::msg)?,
        }
        Ok(())
    }

    /// Returns the event statistics as text.
    ///
    /// # Errors
    ///
    /// If the format has no statistics, which the command line refuses.
    pub(super) fn format_statistics(
        self,
        all: &Statistics,
        sources: &[stats::TraceSource],
        calendar: Calendar,
        output: &Stream<File>,
    ) -> anyhow::Result<String> {
        Ok(match self {
            Self::Text => {
                let (name, loss) = (output.marks(Style::Name), output.marks(Style::Loss));
                stats::format_text(all, calendar, sources, &stats::Colours { name, loss })
            }
            Self::Json => stats::format_json(all, sources),
            Self::Csv => stats::format_csv(all, output.is_escaped()),
            Self::None => {
                self.capabilities().stats.map_err(anyhow::Error::msg)?;
                String::new()
            }
        })
    }

    /// Returns the columns if the format has columns, and all selected events have equal columns.
    pub(super) fn columns<B>(
        self,
        inputs: &[Input<B>],
        selection: &Selection<'_>,
    ) -> Option<Vec<String>> {
        match self {
            Self::Csv => common_columns(inputs, selection),
            Self::Text | Self::Json | Self::None => None,
        }
    }
}

/// A source of events that can write to any output.
pub(super) trait EventSource {
    /// Writes the events; returns true if nothing was damaged.
    fn write_to(self, output: &mut impl EventOutput) -> anyhow::Result<bool>;
}

/// The form in which events are written.
pub(super) struct OutputForm {
    pub(super) format: EventFormat,
    /// The columns of comma-separated values, if all events have equal columns.
    pub(super) columns: Option<Vec<String>>,
    /// True if there may be several traces, so that events must name their trace.
    pub(super) has_traces: bool,
    /// True to show the meanings of values.
    pub(super) is_symbolic: bool,
}

/// Writes events to `writer` in this form.
pub(super) fn write_events(
    form: OutputForm,
    pretty: Pretty<Calendar>,
    events: impl EventSource,
    writer: &mut Stream<File>,
) -> anyhow::Result<bool> {
    let OutputForm { format, columns, has_traces, is_symbolic } = form;
    let is_escaped = writer.is_escaped();
    match format {
        EventFormat::Text if is_symbolic => {
            let format = OneLine::new(Symbolic::new(pretty), is_escaped);
            events.write_to(&mut LineOutput::new(format, writer))
        }
        EventFormat::Text => {
            events.write_to(&mut LineOutput::new(OneLine::new(pretty, is_escaped), writer))
        }
        EventFormat::Json => {
            let json = if has_traces { Json::with_traces(pretty) } else { Json::new(pretty) };
            let format = OneLine::new(json.symbolic(is_symbolic), is_escaped);
            events.write_to(&mut LineOutput::new(format, writer))
        }
        EventFormat::Csv => {
            let csv = match columns {
                Some(columns) => Csv::with_columns(pretty, columns),
                None => Csv::new(pretty),
            };
            let format = OneLine::new(csv.symbolic(is_symbolic), is_escaped);
            events.write_to(&mut LineOutput::new(format, writer))
        }
        EventFormat::None => events.write_to(&mut LineOutput::new(Discard::new(pretty), writer)),
    }
}

/// Returns the columns of the selected events if all have one name, and equal fields in every
/// declaration.
fn common_columns<B>(inputs: &[Input<B>], selection: &Selection<'_>) -> Option<Vec<String>> {
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
