//! Selection of a recording: events and processes, channel by channel.
//!
//! Channels are never mixed: one channel may record an event that another channel excludes.

use std::path::Path;

use trackway_schema::{ProcessFacts, ProcessRules, Rules};
use trackway_session::{ChannelSpec, FilterSpec, RuleSpec};

use crate::window::processes;

/// Events and processes that a recording selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(Vec<ChannelSelection>);

/// Events and processes that one channel of a recording selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ChannelSelection {
    /// Patterns of the rules that include events.
    patterns: Vec<String>,
    /// Event rules, in the format of [`Rules`].
    rules: String,
    /// For each filter, the rules that select its events, in the format of [`Rules`].
    filtered: Vec<String>,
    /// Process rules, in the format of [`ProcessRules`].
    processes: String,
}

/// Treatment of an event that a process executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventOutcome {
    /// No channel selects the event.
    Unselected,
    /// The event is recorded if it passes filters.
    Filtered,
    /// The event is recorded.
    Recorded,
}

/// Treatment of a process by a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessOutcome {
    /// A channel selects the process.
    Selected,
    /// The process rules of every channel exclude the process.
    Excluded,
    /// The treatment depends on an unknown property of the process.
    Unknown,
}

/// Properties of a process that process rules use.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessProperties<'a> {
    /// Pid namespace of the process and its id in that namespace; `None` if unknown.
    pub(super) id: Option<(u64, u32)>,
    /// Path of the process's program; `None` if unknown.
    pub(super) executable: Option<&'a Path>,
}

impl Selection {
    /// Returns the selection of these channels.
    pub fn of<'spec>(channels: impl Iterator<Item = &'spec ChannelSpec>) -> Self {
        Self(channels.map(ChannelSelection::of).collect())
    }

    /// Returns the selection of every event of every process.
    pub fn all() -> Self {
        Self(vec![ChannelSelection { rules: "*".to_owned(), ..ChannelSelection::default() }])
    }

    /// Returns the patterns of rules that include events.
    pub(super) fn patterns(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|channel| channel.patterns.iter().cloned())
    }

    /// Returns the best treatment of a process by any channel.
    pub(super) fn process_outcome(&self, subject: &ProcessProperties<'_>) -> ProcessOutcome {
        let fates = || self.0.iter().map(|channel| channel.process_outcome(subject));
        match fates().find(|fate| *fate == ProcessOutcome::Selected) {
            Some(fate) => fate,
            None if fates().any(|fate| fate == ProcessOutcome::Unknown) => ProcessOutcome::Unknown,
            None => ProcessOutcome::Excluded,
        }
    }

    /// Returns the best treatment of an event of this process by any channel.
    pub(super) fn event_outcome(
        &self,
        subject: &ProcessProperties<'_>,
        event: &str,
        levels: &[u8],
    ) -> EventOutcome {
        let takes = |channel: &&ChannelSelection| {
            channel.process_outcome(subject) == ProcessOutcome::Selected
        };
        self.best_outcome(takes, event, levels)
    }

    /// Returns the best treatment of an event by any channel, without regard to process rules.
    pub(super) fn outcome_in_any_process(&self, event: &str, levels: &[u8]) -> EventOutcome {
        self.best_outcome(|_| true, event, levels)
    }

    fn best_outcome(
        &self,
        takes: impl Fn(&&ChannelSelection) -> bool,
        event: &str,
        levels: &[u8],
    ) -> EventOutcome {
        let fates = self.0.iter().filter(takes).map(|channel| channel.event_outcome(event, levels));
        fates.max().unwrap_or(EventOutcome::Unselected)
    }
}

impl ChannelSelection {
    fn of(channel: &ChannelSpec) -> Self {
        let rules = channel.on.iter().flatten().filter(|rule| !rule.excludes());
        Self {
            patterns: rules.map(RuleSpec::full_pattern).collect(),
            // A session's rules were checked when the session was created.
            rules: channel.rules_text().unwrap_or_default(),
            filtered: channel.filters.iter().map(FilterSpec::rules).collect(),
            processes: processes::rules_of_running(channel),
        }
    }

    fn process_outcome(&self, subject: &ProcessProperties<'_>) -> ProcessOutcome {
        let has = |kind: &str| self.processes.lines().any(|line| line.starts_with(kind));
        let is_unknown = subject.id.is_none() && (has("pid=") || has("ns="))
            || subject.executable.is_none() && has("exe=");
        if is_unknown {
            return ProcessOutcome::Unknown;
        }
        let (pid_namespace, pid) = subject.id.unwrap_or_default();
        let executable =
            subject.executable.map_or(&b""[..], |path| path.as_os_str().as_encoded_bytes());
        let facts = ProcessFacts { pid, pid_namespace, executable };
        match ProcessRules::new(self.processes.as_bytes()).selects(&facts) {
            true => ProcessOutcome::Selected,
            false => ProcessOutcome::Excluded,
        }
    }

    fn event_outcome(&self, event: &str, levels: &[u8]) -> EventOutcome {
        if !rules_select(&self.rules, event, levels) {
            EventOutcome::Unselected
        } else if self.filtered.iter().any(|rules| rules_select(rules, event, levels)) {
            EventOutcome::Filtered
        } else {
            EventOutcome::Recorded
        }
    }
}

/// Returns true if event rules select an event with one of these log levels; with any level, if
/// `levels` is empty.
pub(super) fn rules_select(rules: &str, event: &str, levels: &[u8]) -> bool {
    let (provider, name) = event.split_once(':').unwrap_or((event, ""));
    let (provider, name) = (provider.as_bytes(), name.as_bytes());
    let rules = Rules::new(rules.as_bytes());
    match levels {
        [] => rules.may_select(provider, name),
        levels => levels.iter().any(|&level| rules.selects(provider, name, level)),
    }
}

#[cfg(test)]
mod tests {
    use trackway_session::{Level, Levels};

    use super::*;

    const PROCESS: ProcessProperties<'_> = ProcessProperties { id: Some((1, 7)), executable: None };

    fn build_channel(on: &[&str], filters: &[&str]) -> ChannelSpec {
        ChannelSpec {
            on: Some(on.iter().map(|pattern| RuleSpec::new(*pattern)).collect()),
            filters: filters.iter().map(|text| FilterSpec::new(text)).collect(),
            ..ChannelSpec::default()
        }
    }

    fn event_outcomes(channels: &[ChannelSpec], events: &[&str]) -> Vec<EventOutcome> {
        let selection = Selection::of(channels.iter());
        events.iter().map(|event| selection.event_outcome(&PROCESS, event, &[6])).collect()
    }

    #[test]
    fn an_event_is_recorded_where_one_channel_selects_and_does_not_filter_it() {
        let events = ["app:request", "app:noise", "db:query"];
        let filtered = build_channel(&["app:*"], &["app:request: n > 5"]);
        let plain = build_channel(&["*", "!app:noise"], &[]);
        use EventOutcome::{Filtered, Recorded, Unselected};
        assert_eq!(
            event_outcomes(std::slice::from_ref(&filtered), &events),
            [Filtered, Recorded, Unselected]
        );
        assert_eq!(
            event_outcomes(std::slice::from_ref(&plain), &events),
            [Recorded, Unselected, Recorded]
        );
        let both = event_outcomes(&[plain, filtered], &events);
        assert_eq!(both, [Recorded; 3], "what one channel excludes, the other selects");
        assert_eq!(
            event_outcomes(&[build_channel(&["app:*"], &["n > 5"])], &events[..1]),
            [Filtered]
        );
    }

    #[test]
    fn an_event_of_another_level_is_not_selected() {
        let level = Level::parse("warning").expect("a level");
        let rule = RuleSpec { pattern: "app".into(), level: Levels::AtLeast(level) };
        let spec = ChannelSpec { on: Some(vec![rule]), ..ChannelSpec::default() };
        let selection = Selection::of(std::iter::once(&spec));
        for (levels, fate) in [
            (&[6][..], EventOutcome::Unselected),
            (&[4], EventOutcome::Recorded),
            (&[6, 4], EventOutcome::Recorded),
            (&[], EventOutcome::Recorded),
        ] {
            assert_eq!(
                selection.event_outcome(&PROCESS, "app:request", levels),
                fate,
                "{levels:?}"
            );
        }
    }

    #[test]
    fn process_rules_exclude_processes_unless_another_channel_selects_them() {
        let of_nginx =
            ChannelSpec { executables: vec!["nginx".into()], ..build_channel(&["a"], &[]) };
        let of_all = build_channel(&["b"], &[]);
        let nginx = ProcessProperties { id: None, executable: Some(Path::new("/usr/sbin/nginx")) };
        let other = ProcessProperties { executable: Some(Path::new("/bin/nginx-like")), ..nginx };
        let unknown = ProcessProperties { executable: None, ..nginx };
        let one = Selection::of(std::iter::once(&of_nginx));
        let both = Selection::of([&of_nginx, &of_all].into_iter());
        assert_eq!(one.process_outcome(&nginx), ProcessOutcome::Selected);
        assert_eq!(one.process_outcome(&other), ProcessOutcome::Excluded);
        assert_eq!(one.process_outcome(&unknown), ProcessOutcome::Unknown);
        assert_eq!(both.process_outcome(&other), ProcessOutcome::Selected);
        assert_eq!(both.event_outcome(&other, "a:x", &[]), EventOutcome::Unselected);
        assert_eq!(both.event_outcome(&nginx, "a:x", &[]), EventOutcome::Recorded);
        assert_eq!(one.outcome_in_any_process("a:x", &[]), EventOutcome::Recorded);
        let gone = ChannelSpec { pids: vec![u32::MAX >> 1], ..ChannelSpec::default() };
        let gone = Selection::of(std::iter::once(&gone));
        assert_eq!(gone.process_outcome(&PROCESS), ProcessOutcome::Excluded, "it has ended");
    }
}
