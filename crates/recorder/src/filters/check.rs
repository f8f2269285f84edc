//! Checks of filters against the known events, before a recording begins.
//!
//! Events that no program has registered yet may have any field. So a filter is refused only if its
//! events are known and it fits none of them. A filter that names no events, in a channel of all
//! events, is refused only if the program's own events are known, or a misspelling is likely.

use trackway_filter::checked::{CheckedObject, MissingField};
use trackway_filter::compile::{check_for, compile_for_any};
use trackway_filter::error::{Error, Subject, Topic};
use trackway_filter::layout::Layout;
use trackway_schema::EventDescription;
use trackway_session::{FilterObject, FilterSource, FilterSpec};
use trackway_window::Window;

use crate::elf::ProgramInstrumentation;
use crate::error::RecordError;
use crate::filters::publish::{GENERIC_BYTES_MAX, layouts_of, registered_events, rules_select};
use crate::filters::scope::names_kernel_context;
use crate::window::settings::ChannelSettings;

/// Most hints about an accepted filter.
const HINTS_MAX: usize = 4;

/// Checks the filters of a new channel; `program` is the program to be traced, if known. Returns
/// probable mistakes as text. Filters that `is_taken` accepts are not checked here, because they
/// are for kernel events.
///
/// # Errors
///
/// Returns an error for the first invalid filter.
pub(crate) fn check_channel_filters(
    settings: &ChannelSettings,
    window: &Window,
    program: &ProgramInstrumentation,
    is_taken: impl Fn(&FilterSpec) -> bool,
) -> Result<Vec<String>, RecordError> {
    let open = settings.filters.iter().filter(|filter| !is_taken(filter));
    check_filters(&open.cloned().collect::<Vec<_>>(), &settings.rules, window, program)
}

/// Checks filters of a channel with these rules. Returns probable mistakes as text.
pub(crate) fn check_filters(
    filters: &[FilterSpec],
    rules: &str,
    window: &Window,
    program: &ProgramInstrumentation,
) -> Result<Vec<String>, RecordError> {
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let events = registered_events(window, rules);
    let of_program: Vec<_> =
        program.events.iter().filter(|event| rules_select(rules, event)).cloned().collect();
    let mut hints = Vec::new();
    for filter in filters {
        // The program file is current; events in the window may be of an earlier build.
        let mut layouts = layouts_of(filter, &of_program);
        let are_own = !layouts.is_empty();
        if !are_own {
            layouts = layouts_of(filter, &events);
        }
        if let FilterSource::Expression(text) = &filter.source
            && names_kernel_context(text)
        {
            return Err(RecordError::Filter(format_kernel_context(text)));
        }
        if layouts.is_empty() || program.hides_events {
            continue;
        }
        let names_events = filter.pattern.is_some() || rules != "*";
        let unmet = match &filter.source {
            FilterSource::Expression(text) => {
                let unmet = check_for(text, &layouts).err();
                if unmet.is_none() {
                    hints.extend(find_probable_mistakes(text, &layouts)?);
                }
                unmet.map(|error| {
                    let message = format_general_mismatch(text, &error);
                    let is_sure = are_own || is_probable_misspelling(&error);
                    (is_sure, message, format_mismatch(text, error, names_events))
                })
            }
            FilterSource::Object(object) => {
                let unmet = find_missing_field(object, &layouts)?;
                unmet.map(|lack| {
                    let (is_sure, message) = (are_own || lack.is_near, lack.message.clone());
                    (is_sure, message, format_missing_field(object, lack, names_events))
                })
            }
            _ => None,
        };
        match unmet {
            Some((is_sure, _, why)) if names_events || is_sure => {
                return Err(RecordError::Filter(why));
            }
            Some((_, message, _)) => {
                hints.push(format!(
                    "no program's event that is known is one for the filter '{filter}': {message}"
                ));
            }
            None => {}
        }
    }
    Ok(hints)
}

/// Finds the lost events, each with its number of losses, for which a filter uses a name with the
/// wrong type. Returns the sum of their losses, and the remedy for the first event.
pub(crate) fn explain_losses<'filter>(
    filters: impl Iterator<Item = &'filter FilterSpec> + Clone,
    known: &[EventDescription],
    lost: &[(String, u64)],
) -> Option<(u64, String)> {
    let why = |name: &str| {
        let events =
            known.iter().filter(|event| format!("{}:{}", event.provider, event.name) == name);
        let events: Vec<_> = events.cloned().collect();
        filters.clone().find_map(|filter| {
            let FilterSource::Expression(text) = &filter.source else { return None };
            let layouts = layouts_of(filter, &events);
            // (Events without a name that the filter uses are not counted.)
            let error = check_for(text, &layouts).err().filter(|_| !layouts.is_empty())?;
            (error.topic != Topic::Unknown).then(|| {
                format!(
                    "the filter '{text}' makes no sense for {name} ({}): name the events that it \
                     is for, PATTERN: EXPR",
                    error.message
                )
            })
        })
    };
    let found = lost.iter().filter_map(|(name, count)| Some((*count, why(name)?)));
    found.reduce(|(sum, first), (count, _)| (sum + count, first))
}

/// Returns true if a filter fits one of these events.
pub(crate) fn fits_any_event(filter: &FilterSpec, known: &[EventDescription]) -> bool {
    let layouts = layouts_of(filter, known);
    match &filter.source {
        FilterSource::Expression(text) => check_for(text, &layouts).is_ok(),
        FilterSource::Object(object) => {
            find_missing_field(object, &layouts).is_ok_and(|lack| lack.is_none())
        }
        _ => false,
    }
}

/// Returns the message for a filter that uses a kernel context on user events.
fn format_kernel_context(text: &str) -> String {
    let layout = Layout { contexts: Layout::program_contexts(), ..Layout::default() };
    let compiled = compile_for_any(text, &[layout], GENERIC_BYTES_MAX);
    let why = compiled.err().map_or_else(|| text.to_owned(), |error| error.render(text));
    format!("{why}\nhint: it is known of the kernel's events alone (--kernel)")
}

/// Returns the probable mistakes of a filter for events with these layouts, as lines of text.
fn find_probable_mistakes(text: &str, layouts: &[Layout]) -> Result<Vec<String>, RecordError> {
    let compiled = compile_for_any(text, layouts, GENERIC_BYTES_MAX);
    let warnings = compiled.map_err(|error| RecordError::Filter(error.render(text)))?.warnings;
    let shown = warnings.iter().take(HINTS_MAX);
    let mut hints: Vec<String> =
        shown.map(|warning| format!("filter:\n{}", warning.render(text))).collect();
    if warnings.len() > HINTS_MAX {
        hints.push(format!("and {} more like it", warnings.len() - HINTS_MAX));
    }
    Ok(hints)
}

/// Returns the field or part that a filter in C requires and none of these events has.
fn find_missing_field(
    object: &FilterObject,
    layouts: &[Layout],
) -> Result<Option<MissingField>, RecordError> {
    let checked = CheckedObject::new(&object.bytes);
    let checked = checked.map_err(|why| RecordError::Filter(format!("{}: {why}", object.file)))?;
    Ok(checked.check_for(layouts).err())
}

/// Returns the error for a filter in C that fits no event, as lines of text.
fn format_missing_field(object: &FilterObject, lack: MissingField, names_events: bool) -> String {
    let (file, MissingField { message, hint, .. }) = (&object.file, lack);
    let hint = match names_events {
        true => hint,
        false => "if it is about events that come later, name them: PATTERN: FILE".into(),
    };
    format!("{file}: {message}\nhint: {hint}")
}

/// Returns true if the error is probably a misspelling.
fn is_probable_misspelling(error: &Error) -> bool {
    error.topic != Topic::Unknown || error.suggestion.is_some()
}

/// Returns the error for a filter that fits no event of other programs as text, without the name of
/// an event.
fn format_general_mismatch(text: &str, error: &Error) -> String {
    let named = text.get(error.span.from..error.span.to).unwrap_or_default();
    match error.subject {
        Some(Subject::Name | Subject::Part) => format!("none has '{named}'"),
        Some(Subject::Combination) | None => error.message.clone(),
    }
}

/// Returns the error for a filter that fits no event, as lines of text.
fn format_mismatch(text: &str, mut error: Error, names_events: bool) -> String {
    if !names_events {
        let hint = "if it is about events that come later, name them: PATTERN: EXPR";
        let has = error.hint.take().map(|has| format!("{has}; {hint}"));
        error.hint = Some(has.unwrap_or_else(|| hint.into()));
    }
    error.render(text)
}
