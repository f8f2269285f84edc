//! Filters divided between the kernel's events and programs' events.

use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_session::{ChannelSpec, FilterSource, FilterSpec};

use super::about;
use crate::error::RecordError;
use crate::filters::scope::{is_everyones, is_kernels};
use crate::kernel::selection;

/// Which filters are about the kernel's events that these patterns select, and which about
/// programs': those about all events are both's.
///
/// # Errors
///
/// If the kernel does not show its events, or a filter was perhaps meant for another of them.
pub fn split_filters(
    patterns: &[String],
    filters: &[FilterSpec],
) -> Result<(Vec<FilterSpec>, Vec<FilterSpec>), RecordError> {
    let (mut of_kernel, mut of_programs) = (Vec::new(), Vec::new());
    if filters.is_empty() {
        return Ok((of_kernel, of_programs));
    }
    let names = selected_names(patterns)?;
    for filter in filters {
        let is_of_kernel = !about(&names, filter)?.is_empty();
        if is_of_kernel {
            of_kernel.push(filter.clone());
        }
        if !is_of_kernel || is_everyones(filter) {
            of_programs.push(self::of_programs(filter));
        }
    }
    Ok((of_kernel, of_programs))
}

/// Takes out of channels, as a session's file has them, the filters that are about the kernel's
/// events which these patterns select: those with a pattern. Others are about the channel's.
///
/// # Errors
///
/// As [`split_filters`].
pub fn take_filters(
    patterns: &[String],
    channels: &mut [ChannelSpec],
) -> Result<Vec<FilterSpec>, RecordError> {
    let mut of_kernel = Vec::new();
    if channels.iter().flat_map(|channel| &channel.filters).all(is_everyones) {
        return Ok(of_kernel);
    }
    let names = selected_names(patterns)?;
    for channel in channels {
        for filter in std::mem::take(&mut channel.filters) {
            if is_everyones(&filter) || about(&names, &filter)?.is_empty() {
                channel.filters.push(filter);
            } else if !of_kernel.contains(&filter) {
                of_kernel.push(filter);
            }
        }
    }
    Ok(of_kernel)
}

fn selected_names(patterns: &[String]) -> Result<Vec<EventName>, RecordError> {
    let events = selection::selected(&Catalogue::open()?, patterns)?;
    Ok(events.iter().map(selection::name_of).collect())
}

/// A filter about all events, as programs' are asked: what only the kernel's have, they lack.
pub(crate) fn of_programs(filter: &FilterSpec) -> FilterSpec {
    match &filter.source {
        FilterSource::Expression(text) if is_kernels(text) => {
            FilterSpec::of(filter.pattern.as_deref(), "false")
        }
        _ => filter.clone(),
    }
}

/// Has channels ask what filters about all events come to for programs', where the kernel's events
/// are asked those, too: what [`as_written`] takes back.
pub fn as_asked(of_kernel: &[FilterSpec], channels: &mut [ChannelSpec]) {
    for filter in channels.iter_mut().flat_map(|channel| &mut channel.filters) {
        if of_kernel.contains(filter) {
            *filter = of_programs(filter);
        }
    }
}

/// The filters of channels as they were written, where something else was made of them for
/// programs' events ([`split_filters`]).
pub fn as_written(of_kernel: &[FilterSpec], channels: &mut [ChannelSpec]) {
    for channel in channels {
        let changed = of_kernel.iter().map(|filter| (filter, of_programs(filter)));
        let mut changed: Vec<_> = changed.filter(|(written, made)| *written != made).collect();
        for filter in &mut channel.filters {
            if let Some(at) = changed.iter().position(|(_, made)| made == filter) {
                filter.clone_from(changed.remove(at).0);
            }
        }
    }
}
