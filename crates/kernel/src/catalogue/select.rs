//! Selection of events by patterns: `sched_*,syscalls,block:*rq*,!sched_stat_*`.
//!
//! A pattern without a colon matches an event's name, its LTTng name, or its subsystem; a pattern
//! with a colon matches subsystem and name. The name of a system call matches the call's entry and
//! exit: `syscalls:openat`.

use trackway_schema::glob_matches;

use super::error::CatalogueError;
use super::{EventName, calls};

/// Longest pattern that gets a suggestion.
const WORD_BYTES_MAX: usize = 64;

/// Patterns of event names, as the user typed them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    included: Vec<String>,
    excluded: Vec<String>,
}

impl Selection {
    /// Parses lists of patterns, separated by commas.
    ///
    /// # Errors
    ///
    /// If a pattern is empty, or cannot match any name.
    pub fn new<S: AsRef<str>>(lists: &[S]) -> Result<Self, CatalogueError> {
        let mut selection = Self::default();
        for pattern in lists.iter().flat_map(|list| list.as_ref().split(',')) {
            let pattern = pattern.trim();
            let (into, bare) = match pattern.strip_prefix('!') {
                Some(bare) => (&mut selection.excluded, bare),
                None => (&mut selection.included, pattern),
            };
            let may_be = |c: char| c.is_ascii_alphanumeric() || "_*:".contains(c);
            let has_parts = bare.split(':').all(|part| !part.is_empty());
            if !has_parts || !bare.chars().all(may_be) || bare.matches(':').count() > 1 {
                return Err(CatalogueError::Pattern(pattern.to_owned()));
            }
            into.push(bare.to_owned());
        }
        Ok(selection)
    }

    /// Returns true if an event is selected. If the selection has only exclusions, it selects all
    /// other events.
    pub fn selects(&self, event: &EventName) -> bool {
        let any =
            |patterns: &[String]| patterns.iter().any(|pattern| pattern_matches(pattern, event));
        (self.included.is_empty() || any(&self.included)) && !any(&self.excluded)
    }

    /// Returns true if an event is excluded.
    pub(super) fn excludes(&self, event: &EventName) -> bool {
        self.excluded.iter().any(|pattern| pattern_matches(pattern, event))
    }

    /// Returns the events of `all` that are selected.
    ///
    /// # Errors
    ///
    /// If a pattern matches no event of `all`.
    pub fn select_from<'all>(
        &self,
        all: &'all [EventName],
    ) -> Result<Vec<&'all EventName>, CatalogueError> {
        for pattern in &self.included {
            if !all.iter().any(|event| pattern_matches(pattern, event)) {
                let suggestion = suggest_pattern(pattern, all);
                return Err(CatalogueError::NoEvent(pattern.clone(), suggestion));
            }
        }
        Ok(all.iter().filter(|event| self.selects(event)).collect())
    }
}

fn pattern_matches(pattern: &str, event: &EventName) -> bool {
    let glob = |pattern: &str, name: &str| glob_matches(pattern.as_bytes(), name.as_bytes());
    let named = |pattern: &str| {
        glob(pattern, &event.name)
            || glob(pattern, &super::lttng::event_name(&event.subsystem, &event.name))
    };
    match pattern.split_once(':') {
        Some((subsystem, name)) => {
            let call = event.call().map(|(call, _)| call);
            glob(subsystem, &event.subsystem)
                && (named(name) || call.is_some_and(|call| glob(name, call)))
        }
        None => glob(pattern, &event.subsystem) || named(pattern),
    }
}

/// Returns true if a pattern matches a kernel event with this LTTng name. A trace does not contain
/// the event's subsystem, but most names begin with the subsystem.
pub fn matches_recorded_name(pattern: &str, name: &str) -> bool {
    let glob = |pattern: &str, name: &str| glob_matches(pattern.as_bytes(), name.as_bytes());
    let (subsystem, event) = pattern.split_once(':').unwrap_or(("", pattern));
    let sides = [
        ("syscall_entry_", "sys_enter_"),
        ("syscall_exit_", "sys_exit_"),
        ("compat_syscall_entry_", "compat_sys_enter_"),
        ("compat_syscall_exit_", "compat_sys_exit_"),
    ];
    for (recorded, own) in sides {
        let Some(call) = name.strip_prefix(recorded) else { continue };
        let is_own = glob(event, name) || glob(event, &format!("{own}{call}"));
        return match subsystem {
            "" => glob(pattern, calls::SUBSYSTEM) || is_own,
            _ => glob(subsystem, calls::SUBSYSTEM) && (is_own || glob(event, call)),
        };
    }
    let of_it = |subsystem: &str| glob(&format!("{subsystem}_*"), name);
    match subsystem {
        "" => glob(pattern, name) || of_it(pattern),
        _ if event.starts_with('*') => of_it(subsystem) && glob(event, name),
        _ => glob(event, name) || glob(&super::lttng::event_name(subsystem, event), name),
    }
}

/// Suggests a pattern that is similar to a pattern without matches.
fn suggest_pattern(pattern: &str, all: &[EventName]) -> Option<String> {
    let is_there = |pattern: &String| all.iter().any(|event| pattern_matches(pattern, event));
    if let Some((subsystem, name)) = pattern.split_once(':') {
        let of_it =
            |event: &&EventName| glob_matches(subsystem.as_bytes(), event.subsystem.as_bytes());
        let (word, tail) = split_at_star(name);
        let called = all.iter().filter(of_it).filter_map(|event| Some(event.call()?.0));
        let inside = all.iter().filter(of_it).flat_map(|event| name_beginnings(&event.name, tail));
        let inside = called.chain(inside);
        if let Some(name) = nearest_word(word, inside) {
            return Some(format!("{subsystem}:{name}{tail}")).filter(is_there);
        }
        let subsystems = all.iter().map(|event| event.subsystem.as_str());
        let subsystem = nearest_word(subsystem, subsystems)?;
        return Some(format!("{subsystem}:{name}")).filter(is_there);
    }
    let call = all.iter().find(|event| event.call().is_some_and(|(call, _)| call == pattern));
    if let Some(event) = call {
        return Some(format!("{}:{pattern}", event.subsystem));
    }
    let (word, tail) = split_at_star(pattern);
    let subsystems = all.iter().map(|event| event.subsystem.as_str());
    let subsystems = subsystems.filter(|_| tail.is_empty());
    let names = all.iter().flat_map(|event| name_beginnings(&event.name, tail));
    let near = nearest_word(word, subsystems.chain(names)).map(|name| format!("{name}{tail}"));
    // The pattern may be a system call's name, or a part of an event's name.
    let call = Some(format!("syscalls:{pattern}")).filter(is_there);
    let part = || Some(format!("*{}*", pattern.trim_matches('*'))).filter(is_there);
    call.or(near.filter(is_there)).or_else(part)
}

/// Splits a pattern at the first asterisk.
fn split_at_star(pattern: &str) -> (&str, &str) {
    pattern.split_at(pattern.find('*').unwrap_or(pattern.len()))
}

/// Returns the beginnings of a name that a pattern with this tail could match.
fn name_beginnings<'name>(name: &'name str, tail: &str) -> impl Iterator<Item = &'name str> {
    let is_glob = !tail.is_empty();
    let ends = name.match_indices('_').map(|(at, _)| at + 1).filter(move |_| is_glob);
    ends.chain([name.len()]).map(|end| &name[..end])
}

/// Returns the word with the least edit distance, if that distance is small enough.
fn nearest_word<'words>(
    word: &str,
    words: impl Iterator<Item = &'words str>,
) -> Option<&'words str> {
    if word.len() < 3 || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let most = (word.len() / 3).clamp(1, 3);
    let near = words.filter(|other| other.len().abs_diff(word.len()) <= most);
    let near = near.map(|other| (edit_distance(word.as_bytes(), other.as_bytes()), other));
    near.filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|n| n.1)
}

/// Returns the number of letters to change, add, remove, or swap with the next letter, to turn one
/// word into the other (optimal string alignment).
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, &of_a) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &of_b) in b.iter().enumerate() {
            let changed = above[j] + usize::from(of_a != of_b);
            let mut least = changed.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && of_a == b[j - 1] && a[i - 1] == of_b {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        (before, above) = (above, row);
    }
    above.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_names() -> Vec<EventName> {
        [
            "sched:sched_switch",
            "sched:sched_stat_wait",
            "irq:softirq_entry",
            "irq:irq_handler_entry",
            "kmem:mm_page_alloc",
            "syscalls:sys_enter_openat",
            "syscalls:sys_exit_openat",
            "syscalls:sys_enter_read",
        ]
        .map(|name| name.parse().expect("a name"))
        .into()
    }

    fn select_names(patterns: &[&str]) -> Result<Vec<String>, String> {
        let all = event_names();
        let selection = Selection::new(patterns).map_err(|error| error.to_string())?;
        let chosen = selection.select_from(&all).map_err(|error| error.to_string())?;
        Ok(chosen.into_iter().map(|event| event.name.clone()).collect())
    }

    #[test]
    fn events_are_chosen_by_any_of_their_names() {
        let chosen = |patterns: &[&str]| select_names(patterns).expect("patterns").join(" ");
        assert_eq!(chosen(&[]).split(' ').count(), 8);
        assert_eq!(chosen(&["sched_*"]), "sched_switch sched_stat_wait");
        assert_eq!(chosen(&["sched"]), "sched_switch sched_stat_wait");
        // Selection by an LTTng name.
        assert_eq!(chosen(&["irq_*"]), "softirq_entry irq_handler_entry");
        assert_eq!(chosen(&["kmem_*"]), "mm_page_alloc");
        assert_eq!(chosen(&["syscall_entry_*"]), "sys_enter_openat sys_enter_read");
        assert_eq!(chosen(&["syscalls:openat"]), "sys_enter_openat sys_exit_openat");
        assert_eq!(chosen(&["*:*_entry"]), "softirq_entry irq_handler_entry");
        assert_eq!(chosen(&["sched,!sched_stat_*", "!x"]), "sched_switch");
        assert_eq!(chosen(&["!syscalls", "!irq"]), "sched_switch sched_stat_wait mm_page_alloc");
    }

    #[test]
    fn patterns_match_the_same_events_in_traces() {
        for pattern in [
            "sched_*",
            "sched",
            "irq_*",
            "irq:softirq_entry",
            "kmem",
            "syscalls",
            "syscalls:*",
            "syscalls:openat",
            "syscalls:open*",
            "syscalls:sys_exit_openat",
            "sys_enter_*",
            "syscall_entry_*",
            "sched:sched_switch",
            "sched:*switch",
        ] {
            let is_selected = |event: &EventName| {
                let name = super::super::lttng::event_name(&event.subsystem, &event.name);
                assert_eq!(
                    matches_recorded_name(pattern, &name),
                    pattern_matches(pattern, event),
                    "{name}"
                );
                pattern_matches(pattern, event)
            };
            assert!(event_names().iter().filter(|name| is_selected(name)).count() > 0, "{pattern}");
        }
        assert!(!matches_recorded_name("syscalls:open", "syscall_entry_openat"));
    }

    #[test]
    fn misspelt_patterns_get_suggestions() {
        let error = |pattern: &str| select_names(&[pattern]).expect_err("no event");
        let guess = |pattern: &str| {
            let error = error(pattern);
            assert!(error.starts_with("no kernel event matches '"), "{error}");
            let guess = error.split("mean '").nth(1).and_then(|rest| rest.strip_suffix("'?"));
            guess.unwrap_or_default().to_owned()
        };
        assert_eq!(guess("shced_*"), "sched_*");
        assert_eq!(guess("shced"), "sched");
        assert_eq!(guess("sched_swich"), "sched_switch");
        assert_eq!(guess("shced:sched_switch"), "sched:sched_switch");
        assert_eq!(guess("sched:sched_swtich"), "sched:sched_switch");
        assert_eq!(guess("page_alloc"), "mm_page_alloc");
        assert_eq!(guess("openat"), "syscalls:openat");
        assert_eq!(guess("stat_wait*"), "*stat_wait*");
        assert_eq!(guess("syscalls:opennat"), "syscalls:openat");
        assert_eq!(guess("openat"), "syscalls:openat");
        assert_eq!(guess("nothing_like_it"), "");
        for wrong in ["", "a,,b", "!", "a:b:c", "sched switch", ":", "sched:", "é"] {
            assert!(error(wrong).contains("is no pattern of kernel events"), "{wrong}");
        }
    }
}
