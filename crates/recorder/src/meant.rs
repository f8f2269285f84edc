//! Whether filters can be meant: before anything begins, they are compared with the events that are
//! known.
//!
//! Events that nobody has described yet may have whatever a filter asks for. So a filter is refused
//! only where the events that it is about are known, and none of them is one for it; and one that
//! names no events, and has a channel of all events, only where it is likely that it is misspelt.

use std::collections::BTreeSet;

use trackway_filter::compile::check_for;
use trackway_filter::error::{Error, Topic};
use trackway_schema::Rules;
use trackway_session::{FilterSource, FilterSpec};
use trackway_window::Window;

use crate::filters::{known, layouts_of};
use crate::{ChannelSettings, RecordError};

/// Checks the filters of a channel that is to be; what is perhaps not meant, for people. Of a
/// program that is to be traced, `points` are names of events that it has.
///
/// # Errors
///
/// The first filter that makes no sense.
pub(crate) fn check(
    settings: &ChannelSettings,
    window: &Window,
    points: &BTreeSet<String>,
) -> Result<Vec<String>, RecordError> {
    check_some(&settings.filters, &settings.rules, window, points)
}

/// The same of filters of a channel with these rules.
pub(crate) fn check_some(
    filters: &[FilterSpec],
    rules: &str,
    window: &Window,
    points: &BTreeSet<String>,
) -> Result<Vec<String>, RecordError> {
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let events = known(window, rules);
    let mut hints = Vec::new();
    for filter in filters {
        let FilterSource::Expression(text) = &filter.source else { continue };
        let own = filter.rules();
        let is_meant = |name: &&String| may_select(rules, name) && may_select(&own, name);
        let of_program: Vec<&String> = points.iter().filter(is_meant).collect();
        let mut layouts = layouts_of(filter, &events);
        if !of_program.is_empty() {
            layouts.retain(|layout| of_program.contains(&&layout.event));
        }
        let is_described = |name: &&String| layouts.iter().any(|layout| layout.event == **name);
        if layouts.is_empty() || !of_program.iter().all(is_described) {
            continue;
        }
        let Err(error) = check_for(text, &layouts) else { continue };
        let names_events = filter.pattern.is_some() || rules != "*" || !of_program.is_empty();
        if names_events || is_likely(&error) {
            return Err(RecordError::Filter(refused(text, error, names_events)));
        }
        hints.push(format!("no event that is known is one for the filter '{filter}'"));
    }
    Ok(hints)
}

fn may_select(rules: &str, name: &str) -> bool {
    let (provider, event) = name.split_once(':').unwrap_or((name, ""));
    Rules::new(rules.as_bytes()).may_select(provider.as_bytes(), event.as_bytes())
}

/// Whether something else was meant.
fn is_likely(error: &Error) -> bool {
    error.topic != Topic::Unknown || error.message.contains("did you mean")
}

/// Why a filter is refused, in lines.
fn refused(text: &str, mut error: Error, names_events: bool) -> String {
    if !names_events && error.hint.is_none() {
        let hint = "if it is about events that come later, name them: PATTERN: EXPR";
        error.hint = Some(hint.into());
    }
    error.render(text)
}
