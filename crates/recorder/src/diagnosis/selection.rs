//! The selection of a recording: events of processes, channel by channel.
//!
//! Channels are never mixed: an event that one channel excludes may be another channel's.

use std::path::Path;

use trackway_schema::{ProcessFacts, ProcessRules, Rules};
use trackway_session::{ChannelSpec, FilterSpec, RuleSpec};

use crate::window::processes;

/// The events and processes that a recording selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection(Vec<ChannelSelection>);

/// The events and processes that one channel of a recording selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ChannelSelection {
    /// Patterns of the rules that include events.
    patterns: Vec<String>,
    /// Event rules, as [`Rules`] reads them.
    rules: String,
    /// Rules that select the events of each filter, in the same form.
    filtered: Vec<String>,
    /// Process rules, as [`ProcessRules`] reads them.
    processes: String,
}

/// The treatment of an event that a process executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// No channel selects it.
    Unselected,
    /// It is recorded if it passes filters.
    Filtered,
    /// It is recorded.
    Recorded,
}

/// The treatment of a process by a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessFate {
    /// A channel does.
    Selected,
    /// The process rules of every channel exclude it.
    Excluded,
    /// It depends on something that is not known.
    Unknown,
}

/// The properties of a process that process rules use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    /// Its process-id namespace and its id in there; `None`: not known.
    pub(super) id: Option<(u64, u32)>,
    /// Path of its program; `None`: not known.
    pub(super) executable: Option<&'a Path>,
}

impl Selection {
    /// Returns the selection of these channels.
    pub fn of<'spec>(channels: impl Iterator<Item = &'spec ChannelSpec>) -> Self {
        Self(channels.map(ChannelSelection::of).collect())
    }

    /// Selects every event of every process.
    pub fn all() -> Self {
        Self(vec![ChannelSelection { rules: "*".to_owned(), ..ChannelSelection::default() }])
    }

    /// Patterns of the rules that include events.
    pub(super) fn patterns(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|channel| channel.patterns.iter().cloned())
    }

    /// Returns the best treatment of a process by a channel.
    pub(super) fn process_fate(&self, subject: &Subject<'_>) -> ProcessFate {
        let fates = || self.0.iter().map(|channel| channel.process_fate(subject));
        match fates().find(|fate| *fate == ProcessFate::Selected) {
            Some(fate) => fate,
            None if fates().any(|fate| fate == ProcessFate::Unknown) => ProcessFate::Unknown,
            None => ProcessFate::Excluded,
        }
    }

    /// Returns the treatment of an event of this process: the best that a channel has for it.
    pub(super) fn fate(&self, subject: &Subject<'_>, event: &str, levels: &[u8]) -> Fate {
        let takes =
            |channel: &&ChannelSelection| channel.process_fate(subject) == ProcessFate::Selected;
        self.best(takes, event, levels)
    }

    /// Returns the treatment of an event, whatever the process rules are.
    pub(super) fn fate_in_any_process(&self, event: &str, levels: &[u8]) -> Fate {
        self.best(|_| true, event, levels)
    }

    fn best(&self, takes: impl Fn(&&ChannelSelection) -> bool, event: &str, levels: &[u8]) -> Fate {
        let fates = self.0.iter().filter(takes).map(|channel| channel.fate(event, levels));
        fates.max().unwrap_or(Fate::Unselected)
    }
}

impl ChannelSelection {
    fn of(channel: &ChannelSpec) -> Self {
        let rules = channel.on.iter().flatten().filter(|rule| !rule.excludes());
        Self {
            patterns: rules.map(RuleSpec::full_pattern).collect(),
            // A session's rules were checked when it was created.
            rules: channel.rules_text().unwrap_or_default(),
            filtered: channel.filters.iter().map(FilterSpec::rules).collect(),
            processes: processes::rules_of_running(channel),
        }
    }

    fn process_fate(&self, subject: &Subject<'_>) -> ProcessFate {
        let has = |kind: &str| self.processes.lines().any(|line| line.starts_with(kind));
        let is_unknown = subject.id.is_none() && (has("pid=") || has("ns="))
            || subject.executable.is_none() && has("exe=");
        if is_unknown {
            return ProcessFate::Unknown;
        }
        let (pid_namespace, pid) = subject.id.unwrap_or_default();
        let executable =
            subject.executable.map_or(&b""[..], |path| path.as_os_str().as_encoded_bytes());
        let facts = ProcessFacts { pid, pid_namespace, executable };
        match ProcessRules::new(self.processes.as_bytes()).selects(&facts) {
            true => ProcessFate::Selected,
            false => ProcessFate::Excluded,
        }
    }

    fn fate(&self, event: &str, levels: &[u8]) -> Fate {
        if !selects(&self.rules, event, levels) {
            Fate::Unselected
        } else if self.filtered.iter().any(|rules| selects(rules, event, levels)) {
            Fate::Filtered
        } else {
            Fate::Recorded
        }
    }
}

/// Returns true if event rules select an event of one of these levels; of any level, if none is
/// known.
pub(super) fn selects(rules: &str, event: &str, levels: &[u8]) -> bool {
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

    const PROCESS: Subject<'_> = Subject { id: Some((1, 7)), executable: None };

    fn channel(on: &[&str], filters: &[&str]) -> ChannelSpec {
        ChannelSpec {
            on: Some(on.iter().map(|pattern| RuleSpec::new(*pattern)).collect()),
            filters: filters.iter().map(|text| FilterSpec::new(text)).collect(),
            ..ChannelSpec::default()
        }
    }

    fn fates(channels: &[ChannelSpec], events: &[&str]) -> Vec<Fate> {
        let selection = Selection::of(channels.iter());
        events.iter().map(|event| selection.fate(&PROCESS, event, &[6])).collect()
    }

    #[test]
    fn an_event_is_recorded_where_one_channel_selects_and_does_not_filter_it() {
        let events = ["app:request", "app:noise", "db:query"];
        let filtered = channel(&["app:*"], &["app:request: n > 5"]);
        let plain = channel(&["*", "!app:noise"], &[]);
        use Fate::{Filtered, Recorded, Unselected};
        assert_eq!(
            fates(std::slice::from_ref(&filtered), &events),
            [Filtered, Recorded, Unselected]
        );
        assert_eq!(fates(std::slice::from_ref(&plain), &events), [Recorded, Unselected, Recorded]);
        let both = fates(&[plain, filtered], &events);
        assert_eq!(both, [Recorded; 3], "what one channel excludes, the other selects");
        assert_eq!(fates(&[channel(&["app:*"], &["n > 5"])], &events[..1]), [Filtered]);
    }

    #[test]
    fn an_event_of_another_level_is_not_selected() {
        let level = Level::parse("warning").expect("a level");
        let rule = RuleSpec { pattern: "app".into(), level: Levels::AtLeast(level) };
        let spec = ChannelSpec { on: Some(vec![rule]), ..ChannelSpec::default() };
        let selection = Selection::of(std::iter::once(&spec));
        for (levels, fate) in [
            (&[6][..], Fate::Unselected),
            (&[4], Fate::Recorded),
            (&[6, 4], Fate::Recorded),
            (&[], Fate::Recorded),
        ] {
            assert_eq!(selection.fate(&PROCESS, "app:request", levels), fate, "{levels:?}");
        }
    }

    #[test]
    fn process_rules_exclude_processes_unless_another_channel_selects_them() {
        let of_nginx = ChannelSpec { executables: vec!["nginx".into()], ..channel(&["a"], &[]) };
        let of_all = channel(&["b"], &[]);
        let nginx = Subject { id: None, executable: Some(Path::new("/usr/sbin/nginx")) };
        let other = Subject { executable: Some(Path::new("/bin/nginx-like")), ..nginx };
        let unknown = Subject { executable: None, ..nginx };
        let one = Selection::of(std::iter::once(&of_nginx));
        let both = Selection::of([&of_nginx, &of_all].into_iter());
        assert_eq!(one.process_fate(&nginx), ProcessFate::Selected);
        assert_eq!(one.process_fate(&other), ProcessFate::Excluded);
        assert_eq!(one.process_fate(&unknown), ProcessFate::Unknown);
        assert_eq!(both.process_fate(&other), ProcessFate::Selected);
        assert_eq!(both.fate(&other, "a:x", &[]), Fate::Unselected);
        assert_eq!(both.fate(&nginx, "a:x", &[]), Fate::Recorded);
        assert_eq!(one.fate_in_any_process("a:x", &[]), Fate::Recorded);
        let gone = ChannelSpec { pids: vec![u32::MAX >> 1], ..ChannelSpec::default() };
        let gone = Selection::of(std::iter::once(&gone));
        assert_eq!(gone.process_fate(&PROCESS), ProcessFate::Excluded, "it has ended");
    }
}
