//! Selection of kernel events by patterns.

use trackway_kernel::catalogue::model::Event;
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::catalogue::{Catalogue, EventName};

use crate::error::RecordError;

/// Returns the events that these patterns select. Each pattern must match an event, whether the
/// pattern includes or excludes events.
pub(crate) fn select_events(
    catalogue: &Catalogue,
    patterns: &[String],
) -> Result<Vec<Event>, RecordError> {
    let selection = parse_selection(catalogue, patterns)?;
    Ok(catalogue.events(&catalogue.selected_names(&selection)?).events)
}

/// Returns the selected events that tracefs has; system calls only by 64-bit numbers.
pub(crate) fn select_tracefs_events(
    catalogue: &Catalogue,
    patterns: &[String],
) -> Result<Vec<Event>, RecordError> {
    Ok(catalogue.select(&parse_selection(catalogue, patterns)?)?.events)
}

/// Parses patterns into a selection. Each pattern that excludes events must match an event.
fn parse_selection(catalogue: &Catalogue, patterns: &[String]) -> Result<Selection, RecordError> {
    let all = patterns.iter().flat_map(|list| list.split(',')).map(str::trim);
    for excluded in all.filter_map(|pattern| pattern.strip_prefix('!')) {
        catalogue.selected_names(&Selection::new(&[excluded])?)?;
    }
    Ok(Selection::new(patterns)?)
}

/// Returns the name of an event.
pub(crate) fn name_of(event: &Event) -> EventName {
    EventName { subsystem: event.subsystem.clone(), name: event.name.clone() }
}
