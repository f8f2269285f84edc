//! `trackway filter`: shows the internal forms of filters.

mod args;
mod assembly;
mod header;
pub(crate) mod object;

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_console::{stdout, write_lines};
use trackway_filter::applications::add_application_contexts;
use trackway_filter::compile::{CompiledFor, compile_for};
use trackway_filter::error::Error;
use trackway_filter::explain;
use trackway_filter::layout::Layout;
use trackway_filter::object::Alternative;
use trackway_filter::parse::split_pattern;
use trackway_jit::meaning::{Meaning, Meanings};
use trackway_jit::object::{Alternative as Read, Object};
use trackway_reader::{FoundTraces, event_layouts, open_traces};

pub(crate) use self::args::Arguments;
use self::args::{ExplainArguments, Verb};
use crate::common::events;
use crate::patterns::matches_event_name;
use crate::session_traces;

/// Runs a subcommand of `trackway filter`.
///
/// # Errors
///
/// If the events do not exist, or the filter is invalid for them.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let output = &mut stdout();
    match arguments.verb {
        Verb::Explain(ExplainArguments { object: Some(file), .. }) => {
            object::explain(&file, output)
        }
        Verb::Explain(arguments) => explain_expression(arguments, output),
        Verb::Header(arguments) => header::run(arguments, output),
        Verb::Compile(arguments) => object::compile(&arguments),
    }
}

fn explain_expression(
    arguments: ExplainArguments,
    output: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let filter = arguments.filter.unwrap_or_default();
    let (pattern, expression) = split_pattern(&filter);
    let is_meant = |layout: &Layout| {
        let named =
            arguments.event.as_deref().is_none_or(|event| matches_event_name(event, &layout.event));
        named && pattern.is_none_or(|pattern| matches_event_name(pattern, &layout.event))
    };
    let mut known = load_event_layouts(arguments.trace)?;
    let any = !known.is_empty();
    known.retain(is_meant);
    anyhow::ensure!(!known.is_empty(), "{}", no_event_message(any));
    let known = add_application_contexts(expression, known);
    let compiled = compile_for(expression, &known)
        .map_err(|error: Error| anyhow::anyhow!("filter:\n{}", error.render(expression)))?;
    for warning in &compiled.warnings {
        write_lines(format_args!("trackway: filter:\n{}", warning.render(expression)));
    }
    output.write_all(format_filters(&compiled, &known)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the layouts of events in a trace, or in the window.
fn load_event_layouts(trace: Option<PathBuf>) -> anyhow::Result<Vec<Layout>> {
    let Some(trace) = trace else {
        return Ok(events::read_registered_events()?.iter().map(Layout::of_event).collect());
    };
    let mut folders = vec![trace];
    session_traces::resolve_session_names(&mut folders);
    let mut told = Vec::new();
    let FoundTraces { inputs, .. } = open_traces(&folders, &mut told)?;
    Ok(inputs.iter().flat_map(|input| event_layouts(&input.trace)).collect())
}

fn no_event_message(any: bool) -> &'static str {
    if any {
        "no kind of event has such a name (trackway list, or trackway print --stats, shows them)"
    } else {
        "no kind of event is known here yet: run the program once, or name a trace by --trace"
    }
}

fn format_filters(compiled: &CompiledFor, layouts: &[Layout]) -> anyhow::Result<String> {
    let bytes = compiled.object.encode()?;
    let object = Object::decode(&bytes).context("the object cannot be read back")?;
    let meanings = Meanings::decode(&compiled.meanings).unwrap_or_default();
    let mut text = String::new();
    let parts = compiled.filters.iter().zip(&compiled.object.alternatives);
    for (number, ((filter, written), read)) in parts.zip(object.alternatives()).enumerate() {
        let separator = if number > 0 { "\n" } else { "" };
        let served = compiled.alternatives.iter().zip(layouts);
        let mut names: Vec<&str> = served
            .filter(|(alternative, _)| **alternative == Some(number))
            .map(|(_, layout)| layout.event.as_str())
            .collect();
        names.dedup();
        writeln!(text, "{separator}For {}", names.join(", "))?;
        writeln!(text, "\nTree\n{}", indent_lines(&explain::format_tree(filter)))?;
        push_filter_forms(&mut text, written, read, &|slot| {
            slot_conditions(&meanings, (number, slot), &names)
        })?;
    }
    Ok(text)
}

/// Appends a filter's forms after the tree: slots with additional conditions, bytecode, machine
/// code.
fn push_filter_forms(
    text: &mut String,
    written: &Alternative,
    read: Read<'_>,
    conditions: &dyn Fn(usize) -> String,
) -> anyhow::Result<()> {
    writeln!(text, "Frame")?;
    for (slot, need) in written.needs.iter().enumerate() {
        writeln!(
            text,
            "{:6}  {:10}  {}{}",
            8 * slot,
            need.kind.name(),
            need.path,
            conditions(slot)
        )?;
    }
    writeln!(text, "\nBytecode\n{}", explain::format_listing(written))?;
    *text += &assembly::disassemble_programs(read)?;
    Ok(())
}

/// Returns the conditions on a slot besides its kind. This code does not apply to an event whose
/// field has that kind but breaks a condition; other code does.
fn slot_conditions(
    meanings: &Meanings<'_>,
    (alternative, slot): (usize, usize),
    events: &[&str],
) -> String {
    let one = |meaning: Meaning| {
        let narrow = meaning.is_narrow.then(|| "less than 64 bits".to_owned());
        let wide = meaning.is_wide.then(|| "64 bits".to_owned());
        let array = meaning.is_of_array.then(|| "an array".to_owned());
        let elements = meaning.elements.map(|of| format!("elements {}", events::scalar_name(of)));
        let labels = meaning.labels.map(|_| format!("the labels of {}", events.join(" or ")));
        [narrow, wide, array, elements, labels]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" and ")
    };
    let mut all: Vec<String> = meanings.of(alternative, slot).map(one).collect();
    all.dedup();
    if all.is_empty() { String::new() } else { format!(", of {}", all.join(", or of ")) }
}

fn indent_lines(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
