//! Routing of a session's filters to user events and to kernel events.
//!
//! A specification holds filters as the user wrote them; they are routed when they are applied. A
//! channel's filter with a pattern for recorded kernel events becomes a kernel filter. A filter for
//! all events applies to user events and to kernel events, as far as each has its contexts.

use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_session::protocol::Refusal;
use trackway_session::{ChannelSpec, FilterSource, FilterSpec, KernelSpec, SessionSpec};

use crate::error::RecordError;
use crate::filters::scope::names_kernel_context;
use crate::filters::unmatched::{self, UnmatchedFilter};
use crate::kernel::filters::find_matching_events;
use crate::kernel::selection;

/// Moves filters whose pattern matches recorded kernel events from the channels to the list of
/// kernel filters.
///
/// # Errors
///
/// If the kernel does not show its events, or a pattern is probably a misspelt kernel event.
pub(crate) fn route_filters(spec: &mut SessionSpec) -> Result<(), RecordError> {
    let Some(kernel) = &mut spec.kernel else { return Ok(()) };
    if spec.channels.iter().flat_map(|channel| &channel.filters).all(FilterSpec::is_for_all_events)
    {
        return Ok(());
    }
    let names = selected_names(&kernel.on)?;
    for channel in &mut spec.channels {
        for filter in std::mem::take(&mut channel.filters) {
            if filter.is_for_all_events() || find_matching_events(&names, &filter)?.is_empty() {
                channel.filters.push(filter);
            } else if !kernel.filters.contains(&filter) {
                kernel.filters.push(filter);
            }
        }
    }
    Ok(())
}

/// Returns the filters of a channel for user events. A filter that is shared with kernel events and
/// names a context of kernel events only is false for user events.
pub(crate) fn user_filters(filters: &[FilterSpec], kernel: Option<&KernelSpec>) -> Vec<FilterSpec> {
    let is_shared = |filter: &FilterSpec| kernel.is_some_and(|it| it.filters.contains(filter));
    let routed = |filter: &FilterSpec| match &filter.source {
        FilterSource::Expression(text) if is_shared(filter) && names_kernel_context(text) => {
            FilterSpec::of(filter.pattern.as_deref(), "false")
        }
        _ => filter.clone(),
    };
    filters.iter().map(routed).collect()
}

/// Returns the filters on kernel events that apply to user events, too.
pub(crate) fn shared_filters(kernel: &KernelSpec, channels: &[ChannelSpec]) -> Vec<FilterSpec> {
    let filters = channels.iter().flat_map(|channel| user_filters(&channel.filters, Some(kernel)));
    filters.filter(|filter| kernel.filters.contains(filter)).collect()
}

/// Returns the filters that match no recorded kernel event, for a session with routed filters. They
/// may be for user events, or misspelt.
///
/// # Errors
///
/// If the kernel does not show its events.
pub(crate) fn find_unmatched_filters(
    spec: &SessionSpec,
) -> Result<Vec<UnmatchedFilter>, RecordError> {
    let Some(kernel) = &spec.kernel else { return Ok(Vec::new()) };
    let of_channels = spec.channels.iter().flat_map(|channel| &channel.filters);
    let of_kernel = kernel.filters.iter().filter(|_| kernel.only);
    let filters: Vec<FilterSpec> = of_channels.chain(of_kernel).cloned().collect();
    unmatched::find_unmatched(&kernel.on, &filters)
}

/// Returns an error for filters on user events if only kernel events are recorded.
///
/// # Errors
///
/// The first filter whose pattern matches no recorded kernel event, or if the kernel does not show
/// its events.
pub fn check_kernel_only(kernel: &KernelSpec) -> Result<(), RecordError> {
    let unmatched_filters = unmatched::find_unmatched(&kernel.on, &kernel.filters)?;
    let Some(stray) = unmatched_filters.into_iter().next() else { return Ok(()) };
    Err(stray.into_kernel_error().unwrap_or_else(|filter: FilterSpec| {
        let why = format!("filter '{filter}' is about none of the kernel's events");
        RecordError::Refused(Refusal::new(why).with_hint("--kernel-only records no others"))
    }))
}

fn selected_names(patterns: &[String]) -> Result<Vec<EventName>, RecordError> {
    let events = selection::select_events(&Catalogue::open()?, patterns)?;
    Ok(events.iter().map(selection::name_of).collect())
}
