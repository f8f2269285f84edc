//! Checks of the traced command's program against filters and rules, before the command runs.

use std::path::PathBuf;

use trackway_session::{FilterSpec, KernelSpec, Mode, SessionSpec};
use trackway_window::Window;

use crate::command::launch::Executable;
use crate::diagnosis::{Reason, unmatched_patterns};
use crate::elf;
use crate::error::RecordError;
use crate::filters::check;
use crate::filters::publish::registered_events;
use crate::filters::unmatched::{self, UnmatchedFilter};
use crate::kernel::filters::AcceptedFilters;
use crate::notices::Notices;
use crate::window::handle::WindowHandle;
use crate::window::settings::ChannelSettings;

/// Checks the sizes of the channels in a specification.
pub(super) fn check_sizes(spec: &SessionSpec) -> Result<(), RecordError> {
    for channel in &spec.channels {
        channel.tracefiles().check(&channel.plan()?, channel.mode)?;
    }
    Ok(())
}

/// Rejects a process selection for kernel events: the command's processes are recorded.
pub(super) fn check_kernel_scope(kernel: &KernelSpec) -> Result<(), RecordError> {
    if kernel.pids.is_empty() {
        return Ok(());
    }
    let why = "the file has processes whose kernel events are recorded (pids), not CMD's";
    let hint = "trackway session load records them, in the background".to_owned();
    Err(RecordError::Kernel(why.into(), Some(hint)))
}

/// Returns true if all channels overwrite their oldest records.
pub(super) fn is_overwriting(spec: &SessionSpec) -> bool {
    spec.channels.iter().all(|channel| channel.mode == Mode::Overwrite)
}

/// Reports a static program as the command, since its events are not recorded.
pub(super) fn warn_if_static(found: &Executable, has_kernel: bool, notices: &Notices) {
    if elf::read_module(&found.file).is_some_and(|module| module.is_static) {
        let what = match has_kernel {
            true => "of what it does, the kernel's events alone are recorded",
            false => "it cannot be traced",
        };
        notices.report(format_args!("{} is a static program: {what}", found.file.display()));
    }
}

/// Checks the channels' filters against the known events of the command's program, and compiles the
/// filters for these events before the command runs.
pub(super) fn check_filters(
    channels: &mut [(ChannelSettings, u32)],
    (unmatched_filters, of_kernel): (Vec<UnmatchedFilter>, Option<&AcceptedFilters>),
    (found, libraries): (&Executable, &[PathBuf]),
    window: &Window,
    notices: &Notices,
) -> Result<(), RecordError> {
    let has_none = |(channel, _): &(ChannelSettings, u32)| channel.filters.is_empty();
    if unmatched_filters.is_empty() && channels.iter().all(has_none) {
        return Ok(());
    }
    let files: Vec<PathBuf> = std::iter::once(&found.file).chain(libraries).cloned().collect();
    let program = elf::scan_instrumentation(&files);
    let of_window = registered_events(window, "*");
    let events: Vec<_> = program.events.iter().chain(&of_window).cloned().collect();
    let is_taken =
        |filter: &FilterSpec| of_kernel.is_some_and(|filters| filters.applies_to_kernel(filter));
    let is_stray: Vec<FilterSpec> =
        unmatched_filters.iter().map(|stray| stray.filter.clone()).collect();
    for hint in unmatched::reject_kernel_misses(unmatched_filters, &events)? {
        notices.report(format_args!("{hint}"));
    }
    of_kernel.map_or(Ok(()), |filters| filters.refuse_unmet(&events))?;
    for (channel, _) in channels.iter_mut() {
        let named = channel.filters.iter().filter(|filter| !is_stray.contains(filter));
        let are_own = program.registers && !program.hides_events;
        for said in
            named.filter_map(|filter| unmatched::unmatched_warning(filter, &events, are_own))
        {
            notices.report(format_args!("{said}"));
        }
        for hint in check::check_channel_filters(channel, window, &program, is_taken)? {
            notices.report(format_args!("{hint}"));
        }
        channel.expected.clone_from(&program.events);
    }
    Ok(())
}

/// Warns of patterns that match no known event, if the program has events. A wrapper (env, a shell,
/// an interpreter) has none, but its children may. Returns true if it warned.
pub(super) fn warn_of_rules(
    rules: &str,
    found: &Executable,
    libraries: &[PathBuf],
    handle: &WindowHandle,
    notices: &Notices,
) -> bool {
    // Events of Trackway's own library: trackway_printf and trackway_log.
    const BUILT_IN: [&str; 2] = ["lttng_ust_tracef", "lttng_ust_tracelog"];
    if rules == "*" || !elf::HAS_POINTS {
        return false;
    }
    let elf::ProgramInstrumentation { points: mut names, registers, .. } =
        elf::scan_instrumentation(std::slice::from_ref(&found.file));
    if !registers {
        return false;
    }
    names.extend(elf::scan_instrumentation(libraries).points);
    let events = (0..trackway_abi::window::EVENTS_MAX).filter_map(|event| {
        let bytes = handle.window().description(event)?;
        trackway_schema::EventDescription::decode(bytes.as_slice()).ok()
    });
    names.extend(events.map(|event| event.full_name()));
    let patterns =
        patterns_of(rules).filter(|pattern| !BUILT_IN.iter().any(|name| pattern.contains(name)));
    let unmatched: Vec<Reason> = unmatched_patterns(patterns, &names).collect();
    for reason in &unmatched {
        let Reason::UnmatchedRule { pattern, near, .. } = reason else { continue };
        let near = near.as_ref().map(|near| format!("; did you mean '{near}'?"));
        notices.report(format_args!(
            "'{pattern}' matches no event in {} or its libraries{}",
            found.file.display(),
            near.unwrap_or_default()
        ));
    }
    !unmatched.is_empty()
}

/// Returns the patterns of rules that include events.
pub(super) fn patterns_of(rules: &str) -> impl Iterator<Item = String> {
    rules.lines().filter(|line| !line.starts_with('!')).map(str::to_owned)
}
