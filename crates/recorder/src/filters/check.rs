//! Whether filters can be meant: before anything begins, they are compared with the events that are
//! known.
//!
//! Events that nobody has described yet may have whatever a filter asks for. So a filter is refused
//! only where the events that it is about are known, and none of them is one for it; and one that
//! names no events, and has a channel of all events, only where the program's own are known, or it
//! is likely that it is misspelt.

use trackway_filter::checked::{CheckedObject, MissingField};
use trackway_filter::compile::{check_for, compile_for_any};
use trackway_filter::error::{Error, Subject, Topic};
use trackway_filter::layout::Layout;
use trackway_schema::EventDescription;
use trackway_session::{FilterObject, FilterSource, FilterSpec};
use trackway_window::Window;

use crate::elf::Reach;
use crate::error::RecordError;
use crate::filters::publish::{GENERIC_BYTES_MAX, known, layouts_of, selects};
use crate::filters::scope::is_kernels;
use crate::window::settings::ChannelSettings;

/// Most things that are said of a filter that is taken.
const HINTS_MAX: usize = 4;

/// Checks the filters of a channel that is to be, where `program` is what is to be traced, if that
/// is known; what is perhaps not meant, for people. Of a filter that is taken anyway, nothing need
/// be known: the kernel's events have what it asks for.
///
/// # Errors
///
/// The first filter that makes no sense.
pub(crate) fn check(
    settings: &ChannelSettings,
    window: &Window,
    program: &Reach,
    is_taken: impl Fn(&FilterSpec) -> bool,
) -> Result<Vec<String>, RecordError> {
    let open = settings.filters.iter().filter(|filter| !is_taken(filter));
    check_some(&open.cloned().collect::<Vec<_>>(), &settings.rules, window, program)
}

/// The same of filters of a channel with these rules.
pub(crate) fn check_some(
    filters: &[FilterSpec],
    rules: &str,
    window: &Window,
    program: &Reach,
) -> Result<Vec<String>, RecordError> {
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let events = known(window, rules);
    let of_program: Vec<_> =
        program.events.iter().filter(|event| selects(rules, event)).cloned().collect();
    let mut hints = Vec::new();
    for filter in filters {
        // What the file says is so now; what is in the window may be of an earlier build.
        let mut layouts = layouts_of(filter, &of_program);
        let are_own = !layouts.is_empty();
        if !are_own {
            layouts = layouts_of(filter, &events);
        }
        if let FilterSource::Expression(text) = &filter.source
            && is_kernels(text)
        {
            return Err(RecordError::Filter(of_kernel(text)));
        }
        if layouts.is_empty() || program.hides_events {
            continue;
        }
        let names_events = filter.pattern.is_some() || rules != "*";
        let unmet = match &filter.source {
            FilterSource::Expression(text) => {
                let unmet = check_for(text, &layouts).err();
                if unmet.is_none() {
                    hints.extend(perhaps_not_meant(text, &layouts)?);
                }
                unmet.map(|error| {
                    let message = what_none_has(text, &error);
                    (are_own || is_likely(&error), message, refused(text, error, names_events))
                })
            }
            FilterSource::Object(object) => {
                let unmet = unmet_by_all(object, &layouts)?;
                unmet.map(|lack| {
                    let message = lack.message.clone();
                    (are_own || lack.is_near, message, lacking(object, lack, names_events))
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

/// Of events that were lost, so many each, those that have what a filter names as something that
/// it makes no sense for: how many that are in all, and what to do about the first.
pub(crate) fn senseless<'filter>(
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
            // (Those that lack something are not counted.)
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

/// Whether one of these events is one for a filter.
pub(crate) fn is_met(filter: &FilterSpec, known: &[EventDescription]) -> bool {
    let layouts = layouts_of(filter, known);
    match &filter.source {
        FilterSource::Expression(text) => check_for(text, &layouts).is_ok(),
        FilterSource::Object(object) => {
            unmet_by_all(object, &layouts).is_ok_and(|lack| lack.is_none())
        }
        _ => false,
    }
}

/// That a filter asks programs' events for a context of the kernel's.
fn of_kernel(text: &str) -> String {
    let layout = Layout { contexts: Layout::program_contexts(), ..Layout::default() };
    let compiled = compile_for_any(text, &[layout], GENERIC_BYTES_MAX);
    let why = compiled.err().map_or_else(|| text.to_owned(), |error| error.render(text));
    format!("{why}\nhint: it is known of the kernel's events alone (--kernel)")
}

/// What is perhaps not meant in a filter for these events, in lines for people.
fn perhaps_not_meant(text: &str, layouts: &[Layout]) -> Result<Vec<String>, RecordError> {
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

/// What all of these events lack that a filter in C reads.
fn unmet_by_all(
    object: &FilterObject,
    layouts: &[Layout],
) -> Result<Option<MissingField>, RecordError> {
    let checked = CheckedObject::new(&object.bytes);
    let checked = checked.map_err(|why| RecordError::Filter(format!("{}: {why}", object.file)))?;
    Ok(checked.check_for(layouts).err())
}

/// Why a filter in C is refused, in lines.
fn lacking(object: &FilterObject, lack: MissingField, names_events: bool) -> String {
    let (file, MissingField { message, hint, .. }) = (&object.file, lack);
    let hint = match names_events {
        true => hint,
        false => "if it is about events that come later, name them: PATTERN: FILE".into(),
    };
    format!("{file}: {message}\nhint: {hint}")
}

/// Whether something else was meant.
fn is_likely(error: &Error) -> bool {
    error.topic != Topic::Unknown || error.suggestion.is_some()
}

/// What is wrong with a filter for events of other programs, in words: which of them is no matter.
fn what_none_has(text: &str, error: &Error) -> String {
    let named = text.get(error.span.from..error.span.to).unwrap_or_default();
    match error.subject {
        Some(Subject::Name | Subject::Part) => format!("none has '{named}'"),
        Some(Subject::Combination) | None => error.message.clone(),
    }
}

/// Why a filter is refused, in lines.
fn refused(text: &str, mut error: Error, names_events: bool) -> String {
    if !names_events {
        let hint = "if it is about events that come later, name them: PATTERN: EXPR";
        let has = error.hint.take().map(|has| format!("{has}; {hint}"));
        error.hint = Some(has.unwrap_or_else(|| hint.into()));
    }
    error.render(text)
}
