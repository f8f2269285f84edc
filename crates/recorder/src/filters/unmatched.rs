//! Filter patterns that match no known event, mostly because of a misspelt name.
//!
//! A filter that matches no event lets all events pass, so the recorder must report it. All kernel
//! events are known; programs that start later may bring matching user events.

use std::collections::BTreeSet;

use trackway_kernel::catalogue::error::CatalogueError;
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_schema::{EventDescription, Rules, glob_matches};
use trackway_session::FilterSpec;

use crate::error::RecordError;

/// A filter that matches no recorded kernel event, but may match user events.
#[derive(Debug)]
pub(crate) struct UnmatchedFilter {
    pub(crate) filter: FilterSpec,
    /// Reason to take the filter for one of kernel events, with the remedy.
    of_kernel: Option<(String, String)>,
}

impl UnmatchedFilter {
    /// Returns the error of a filter meant for kernel events; otherwise returns the filter.
    pub(crate) fn into_kernel_error(self) -> Result<RecordError, FilterSpec> {
        let (why, hint) = self.of_kernel.ok_or(self.filter)?;
        Ok(RecordError::Kernel(why, Some(hint)))
    }
}

/// Returns the filters that match none of the kernel events selected by `patterns`.
///
/// # Errors
///
/// If the kernel does not list its events, or the patterns match none.
pub(crate) fn find_unmatched(
    patterns: &[String],
    filters: &[FilterSpec],
) -> Result<Vec<UnmatchedFilter>, RecordError> {
    let named: Vec<&FilterSpec> =
        filters.iter().filter(|filter| !filter.is_for_all_events()).collect();
    if named.is_empty() {
        return Ok(Vec::new());
    }
    let catalogue = Catalogue::open()?;
    let recorded = Selection::new(patterns)?;
    let recorded: Vec<EventName> =
        recorded.select_from(catalogue.names())?.into_iter().cloned().collect();
    let stray = |filter: &&FilterSpec| {
        let found = classify_pattern(filter.pattern.as_deref()?, &recorded, catalogue.names());
        let of_kernel = match found {
            PatternTarget::Recorded => return None,
            PatternTarget::UserEvents => None,
            PatternTarget::UnrecordedKernelEvents(why, hint) => {
                Some((format!("filter '{filter}': {why}"), hint))
            }
        };
        Some(UnmatchedFilter { filter: (*filter).clone(), of_kernel })
    };
    Ok(named.iter().filter_map(stray).collect())
}

/// Kind of events that a filter's pattern matches.
enum PatternTarget {
    /// Recorded kernel events.
    Recorded,
    /// No known kernel events.
    UserEvents,
    /// Kernel events that are not recorded: the reason and the remedy.
    UnrecordedKernelEvents(String, String),
}

fn classify_pattern(pattern: &str, recorded: &[EventName], all: &[EventName]) -> PatternTarget {
    let Ok(selection) = Selection::new(&[pattern]) else { return PatternTarget::UserEvents };
    let near = |error| match error {
        CatalogueError::NoEvent(_, Some(meant)) if !meant.starts_with('*') => Some(meant),
        _ => None,
    };
    let not_recorded = match selection.select_from(recorded) {
        Ok(_) => return PatternTarget::Recorded,
        Err(error) => near(error),
    };
    match selection.select_from(all) {
        Ok(_) if pattern.starts_with('*') => PatternTarget::UserEvents,
        Ok(_) => PatternTarget::UnrecordedKernelEvents(
            format!("'{pattern}' is for events of the kernel that are not recorded"),
            format!("--kernel '{pattern}' records them, too"),
        ),
        Err(error) => {
            let subsystem = pattern.split_once(':').map(|(subsystem, _)| subsystem);
            let is_there = all.iter().any(|event| Some(event.subsystem.as_str()) == subsystem);
            let why = format!("no kernel event that is recorded matches '{pattern}'");
            let hint = || "trackway list --kernel shows what there is".to_owned();
            match not_recorded.or_else(|| near(error)) {
                Some(meant) => PatternTarget::UnrecordedKernelEvents(
                    format!("{why}; did you mean '{meant}'?"),
                    hint(),
                ),
                None if is_there => PatternTarget::UnrecordedKernelEvents(why, hint()),
                None => PatternTarget::UserEvents,
            }
        }
    }
}

/// Refuses the first filter that matches no known user event and was meant for kernel events.
/// Returns warnings about the other filters without events.
///
/// # Errors
///
/// Returns the error for the refused filter.
pub(crate) fn reject_kernel_misses(
    unmatched_filters: Vec<UnmatchedFilter>,
    known: &[EventDescription],
) -> Result<Vec<String>, RecordError> {
    let mut hints = Vec::new();
    for UnmatchedFilter { filter, of_kernel } in unmatched_filters {
        if matches_any_event(&filter, known) {
            continue;
        }
        if let Some((why, hint)) = of_kernel {
            return Err(RecordError::Kernel(why, Some(hint)));
        }
        hints.push(format!(
            "the filter '{filter}' is about no event that is known, neither of the kernel's that \
             are recorded, nor of a program{}",
            format_suggestion(&filter, known)
        ));
    }
    Ok(hints)
}

/// Returns the warning about a filter that matches none of the events `known`, which are all known
/// user events. `are_own` is true if they are the events of the program to be traced.
pub(crate) fn unmatched_warning(
    filter: &FilterSpec,
    known: &[EventDescription],
    are_own: bool,
) -> Option<String> {
    if filter.is_for_all_events() || known.is_empty() || matches_any_event(filter, known) {
        return None;
    }
    let near = format_suggestion(filter, known);
    let said = format!("the filter '{filter}' is about no event that is known{near}");
    (are_own || !near.is_empty()).then_some(said)
}

fn matches_any_event(filter: &FilterSpec, known: &[EventDescription]) -> bool {
    let rules = filter.rules();
    let rules = Rules::new(rules.as_bytes());
    known.iter().any(|event| rules.may_select(event.provider.as_bytes(), event.name.as_bytes()))
}

/// Returns a message suffix that suggests a similar name; empty if no name is similar.
fn format_suggestion(filter: &FilterSpec, known: &[EventDescription]) -> String {
    let names: BTreeSet<String> = known.iter().map(EventDescription::full_name).collect();
    let meant = filter.pattern.as_deref().and_then(|pattern| suggest_pattern(pattern, &names));
    meant.map(|meant| format!("; did you mean '{meant}'?")).unwrap_or_default()
}

/// Returns a similar pattern that matches one of `names`, for the first pattern in `list` that has
/// one.
pub fn suggest_pattern(list: &str, names: &BTreeSet<String>) -> Option<String> {
    list.split(',').find_map(|pattern| suggest_single_pattern(pattern.trim(), names))
}

fn suggest_single_pattern(pattern: &str, names: &BTreeSet<String>) -> Option<String> {
    if pattern.contains(':') {
        return nearest_pattern(pattern, names);
    }
    // A bare name counts as a provider, but may be meant as an event.
    let whole = |meant: String| match meant.strip_prefix("*:") {
        Some(name) => names.iter().find(|full| full.ends_with(&format!(":{name}"))).cloned(),
        None => Some(meant),
    };
    nearest_pattern(&format!("{pattern}:*"), names)
        .or_else(|| nearest_pattern(&format!("*:{pattern}"), names).and_then(whole))
}

/// Returns the pattern that is most similar to `pattern` and matches one of the names. A provider
/// or event name without a match is replaced by one from `names`.
pub fn nearest_pattern(pattern: &str, names: &BTreeSet<String>) -> Option<String> {
    let (provider, name) = pattern.split_once(':')?;
    let candidate = |full: &String| {
        let (its_provider, its_name) = full.split_once(':')?;
        let (provider_changes, provider) = suggest_part(provider, its_provider)?;
        let (name_changes, name) = suggest_part(name, its_name)?;
        Some((provider_changes + name_changes, format!("{provider}:{name}")))
    };
    names.iter().filter_map(candidate).min().map(|(_, near)| near)
}

/// Returns the replacement for a part of a pattern that must match `there`, and the number of
/// changes: the part itself if it matches, or `there` if few changes lead to it.
fn suggest_part<'text>(part: &'text str, there: &'text str) -> Option<(usize, &'text str)> {
    if glob_matches(part.as_bytes(), there.as_bytes()) {
        return Some((0, part));
    }
    let most = (part.len() / 3).max(1);
    let changes = strsim::levenshtein(&part.to_lowercase(), &there.to_lowercase());
    let is_like = !part.contains('*') && changes <= most;
    // A name in another case is a different name.
    is_like.then_some((changes.max(1), there))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_events() -> Vec<EventDescription> {
        let named = |name: &str| {
            let (provider, name) = name.split_once(':').expect("a full name");
            EventDescription {
                provider: provider.into(),
                name: name.into(),
                level: 6,
                fields: vec![],
            }
        };
        ["myapp:request", "myapp:noise", "sched:tick"].map(named).into()
    }

    #[test]
    fn a_filter_for_nothing_is_refused_where_the_kernel_was_meant_and_said_where_not() {
        let names = |names: &[&str]| -> Vec<EventName> {
            names.iter().map(|name| name.parse().expect("a name")).collect()
        };
        let all = names(&[
            "irq:softirq_entry",
            "sched:sched_switch",
            "syscalls:sys_enter_open",
            "syscalls:sys_enter_openat",
            "syscalls:sys_exit_openat",
        ]);
        let recorded = names(&["syscalls:sys_enter_openat", "syscalls:sys_exit_openat"]);
        let said = |pattern: &str| {
            let filter = FilterSpec::of(Some(pattern), "x == 1");
            let of_kernel = match classify_pattern(pattern, &recorded, &all) {
                PatternTarget::Recorded => return "recorded".to_owned(),
                PatternTarget::UserEvents => None,
                PatternTarget::UnrecordedKernelEvents(why, hint) => Some((why, hint)),
            };
            match reject_kernel_misses(vec![UnmatchedFilter { filter, of_kernel }], &user_events())
            {
                Ok(hints) => hints.concat(),
                Err(error) => error.to_string(),
            }
        };
        for (pattern, then) in [
            ("syscalls:openat", "recorded"),
            ("sys_enter_openat", "recorded"),
            ("syscalls:opennat", "did you mean 'syscalls:openat'?"),
            ("syscals:openat", "did you mean 'syscalls:openat'?"),
            ("openat", "did you mean 'syscalls:openat'?"),
            ("syscalls:open", "not recorded"),
            ("sched_switch", "not recorded"),
            ("syscalls:openat,sched_switch", "not recorded"),
            ("sched:nothing", "no kernel event that is recorded"),
            ("foo:bar", "is about no event that is known"),
            ("myapp:requst", "nor of a program; did you mean 'myapp:request'?"),
            ("request", "nor of a program; did you mean 'myapp:request'?"),
            ("requst", "nor of a program; did you mean 'myapp:request'?"),
            ("*:whatever", "is about no event that is known"),
            // These patterns are for user events, even if the kernel has events with such names.
            ("myapp:*", ""),
            ("sched:tick", ""),
        ] {
            let said = said(pattern);
            assert!(said.contains(then) && said.is_empty() == then.is_empty(), "{said}");
        }
    }

    #[test]
    fn of_programs_filters_something_is_said_where_it_is_known_what_they_have() {
        let said = |text: &str, are_own| {
            super::unmatched_warning(&FilterSpec::new(text), &user_events(), are_own)
        };
        let meant = said("requst: status > 3", false).expect("it is like one");
        assert!(meant.ends_with("known; did you mean 'myapp:request'?"), "{meant}");
        assert!(said("web:*: status > 3", true).is_some_and(|said| said.ends_with("known")));
        assert_eq!(said("web:*: status > 3", false), None, "it may come later");
        assert_eq!(said("status > 3", true), None);
        assert_eq!(said("myapp:*: status > 3", true), None);
        assert_eq!(super::unmatched_warning(&FilterSpec::new("web:*: a > 3"), &[], true), None);
    }
}
