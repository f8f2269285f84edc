//! `trackway print`: traces as text, byte for byte as babeltrace2 prints them by default.
//!
//! Reading, decoding and merging is `trackway_reader`'s, what lines look like is
//! `trackway_ctf::text`'s; here is only what was asked for.

use std::io::Write;

use trackway_ctf::read::{EventClass, Trace};
use trackway_ctf::text::{Csv, Json, Nothing, Pretty, event_columns};
use trackway_reader::{Settings, open, print};

use crate::arguments::{EventFormat, PrintArguments};
use crate::local_time;

/// Prints traces to `output`, and what tracers lost and what is damaged to `messages`. Whether
/// everything was read: `false` if damage was told of.
///
/// # Errors
///
/// If a folder has no trace, or cannot be read; if `output` or `messages` cannot be written.
pub(crate) fn run(
    arguments: &PrintArguments,
    output: &mut dyn Write,
    messages: &mut dyn Write,
) -> anyhow::Result<bool> {
    let found = open(&arguments.traces, messages)?;
    let mut settings = Settings::default();
    settings.jobs = arguments.jobs.unwrap_or(settings.jobs);
    let (inputs, settings) = (found.inputs, &settings);
    let pretty = Pretty::new(local_time::of_day);
    let summary = match arguments.format {
        EventFormat::Text => print(inputs, &pretty, settings, output, messages)?,
        EventFormat::Json => print(inputs, &Json::new(pretty), settings, output, messages)?,
        EventFormat::Csv => {
            let traces = inputs.iter().map(|input| &input.trace);
            let csv = match common_columns(traces) {
                Some(columns) => Csv::with_columns(pretty, columns),
                None => Csv::new(pretty),
            };
            print(inputs, &csv, settings, output, messages)?
        }
        EventFormat::None => print(inputs, &Nothing::new(pretty), settings, output, messages)?,
    };
    Ok(summary.is_whole && found.is_whole)
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
