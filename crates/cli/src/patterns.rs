//! Patterns of event names in traces: as for `record`, and for events without a provider, too.

use std::collections::BTreeSet;
use std::io::{self, Write};

use trackway_ctf::read::{EventClass, StreamClass};
use trackway_filter::types::closest_name;
use trackway_kernel::catalogue::select::matches_recorded_name;
use trackway_reader::{Input, UnmatchedFilter};
use trackway_recorder::suggest_pattern;
use trackway_schema::glob_matches;

/// Patterns of event names. A pattern without a colon matches the whole name, or the provider. A
/// leading `!` excludes events; exclusions alone select all other events.
pub(crate) struct Patterns<'a> {
    included: Vec<&'a str>,
    excluded: Vec<&'a str>,
}

impl<'a> Patterns<'a> {
    /// Creates patterns from the user's words.
    ///
    /// # Errors
    ///
    /// If a pattern is empty.
    pub(crate) fn new(patterns: &'a [String]) -> anyhow::Result<Self> {
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        for pattern in patterns {
            let (list, name) = match pattern.strip_prefix('!') {
                Some(name) => (&mut excluded, name),
                None => (&mut included, pattern.as_str()),
            };
            anyhow::ensure!(!name.is_empty(), "'{pattern}' is no pattern of events' names");
            list.push(name);
        }
        Ok(Self { included, excluded })
    }

    /// Warns if no kind of event in `inputs` is selected, usually because a name is misspelt.
    pub(crate) fn warn_if_none<B>(
        &self,
        inputs: &[Input<B>],
        messages: &mut dyn Write,
    ) -> io::Result<()> {
        let is_asked = !self.included.is_empty() || !self.excluded.is_empty();
        if is_asked && !inputs.is_empty() && !event_names(inputs).any(|name| self.select(name)) {
            writeln!(messages, "trackway: no kind of event matches --event")?;
        }
        Ok(())
    }

    /// Returns true if events of this name are selected.
    pub(crate) fn select(&self, name: &str) -> bool {
        let matches =
            |patterns: &[&str]| patterns.iter().any(|pattern| matches_event_name(pattern, name));
        (self.included.is_empty() || matches(&self.included)) && !matches(&self.excluded)
    }
}

/// Returns the names of all kinds of events in `inputs`.
fn event_names<B>(inputs: &[Input<B>]) -> impl Iterator<Item = &str> {
    let classes = inputs.iter().flat_map(|input| input.trace.streams());
    classes.flat_map(StreamClass::events).filter_map(EventClass::name)
}

/// Returns a message that a filter matches no kind of event in `inputs`, with the closest name.
pub(crate) fn no_match_message<B>(filter: &UnmatchedFilter, inputs: &[Input<B>]) -> String {
    let UnmatchedFilter { pattern, option } = filter;
    let known: BTreeSet<String> = event_names(inputs).map(str::to_owned).collect();
    let near = suggest_pattern(pattern, &known);
    let near = near.or_else(|| closest_name(pattern, event_names(inputs)).map(str::to_owned));
    let near = near.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
    format!("{option}: no kind of event matches '{pattern}'{near}")
}

/// Returns true if a pattern matches this event name. Matches a name without a provider like the
/// patterns of `record --kernel`.
pub(crate) fn matches_event_name(pattern: &str, name: &str) -> bool {
    let is_whole = glob_matches(pattern.as_bytes(), name.as_bytes());
    let provider = name.split_once(':').map(|(provider, _)| provider);
    let is_kernels = || provider.is_none() && matches_recorded_name(pattern, name);
    is_whole
        || is_kernels()
        || !pattern.contains(':')
            && provider
                .is_some_and(|provider| glob_matches(pattern.as_bytes(), provider.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_selected_as_users_expect() {
        let select = |patterns: &[&str], name: &str| {
            let patterns: Vec<String> = patterns.iter().map(|&text| text.to_owned()).collect();
            Patterns::new(&patterns).expect("patterns").select(name)
        };
        assert!(select(&[], "app:request"));
        assert!(select(&["app"], "app:request"));
        assert!(select(&["app:req*"], "app:request"));
        assert!(select(&["sched_*"], "sched_switch"));
        assert!(!select(&["sched_*"], "irq_handler_entry"));
        assert!(!select(&["app", "!*:request"], "app:request"));
        assert!(select(&["!app"], "db:query"));
        assert!(!select(&["!app"], "app:request"));
        assert!(!select(&["request"], "app:request"));
        assert!(select(&["syscalls:openat"], "syscall_entry_openat"));
        assert!(select(&["sched:sched_switch"], "sched_switch"));
        assert!(Patterns::new(&["!".to_owned()]).is_err());
    }
}
