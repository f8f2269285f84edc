//! Events in the form that was asked for, whoever writes them.

use std::fs::File;

use trackway_console::Stream;
use trackway_ctf::read::EventClass;
use trackway_reader::{Input, Selection};
use trackway_render::{
    Csv, Discard, EventOutput, Json, LineOutput, OneLine, Pretty, Symbolic, event_columns,
};

use super::Clock;
use crate::arguments::EventFormat;

/// Events that can be written to any output.
pub(super) trait EventSource {
    /// Writes the events; returns true if nothing was damaged.
    fn write_to(self, output: &mut impl EventOutput) -> anyhow::Result<bool>;
}

/// In which form events are written.
pub(super) struct Form {
    pub(super) format: EventFormat,
    /// The columns of comma-separated values, if all events have the same.
    pub(super) columns: Option<Vec<String>>,
    /// Whether there may be several traces, so that events must say of which they are.
    pub(super) has_traces: bool,
    /// Whether values are shown by what they stand for.
    pub(super) is_symbolic: bool,
}

/// Writes events in this form to `writer`.
pub(super) fn write(
    form: Form,
    pretty: Pretty<Clock>,
    events: impl EventSource,
    writer: &mut Stream<File>,
) -> anyhow::Result<bool> {
    let Form { format, columns, has_traces, is_symbolic } = form;
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

/// The columns of the only kind of event that is asked for, if there is only one: of one name,
/// with the same fields wherever it is declared.
pub(super) fn common_columns<B>(
    inputs: &[Input<B>],
    selection: &Selection<'_>,
) -> Option<Vec<String>> {
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
