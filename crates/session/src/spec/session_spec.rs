//! The specification of a session: on the command line, in a file, over the control socket.
//!
//! The file is TOML that users can write by hand:
//!
//! ```toml
//! name = "web"
//! output = "/var/log/traces/web"
//!
//! [[channel]]
//! mode = "overwrite"
//! buffer-size = "16M"
//! contexts = ["vtid", "procname"]
//! on = ["web:*", "!web:noise", { pattern = "db:*", at-least = "warning" }]
//! filters = ["web:*: status >= 400", "sample(1/10)"]
//! ```
//!
//! Longer than 600 lines: one specification with its checks, changes and their tests.

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trackway_abi::session::{PROCESS_RULES_BYTES_MAX, RULES_BYTES_MAX};

use crate::spec::options::CONTEXTS_BYTES_MAX;
use crate::spec::rule_spec::{pattern_covers, patterns_overlap};
use crate::{
    BufferOptions, BufferPlan, BuffersError, ContextList, FILTER_OBJECTS_BYTES_MAX,
    FILTERS_BYTES_MAX, FILTERS_MAX, FilterSource, FilterSpec, KernelSpec, Levels, Mode,
    OptionError, RuleSpec, Tracefiles, TracefilesError, is_valid_name, parse_contexts,
};

/// Most channels of a session: all sessions of a user share the bits of enable words.
pub(crate) const CHANNELS_MAX: usize = trackway_abi::session::SESSIONS_MAX;

/// Most users whose programs a session can record.
pub const USERS_MAX: usize = 64;
/// The word that selects all users.
pub const ALL_USERS: &str = "all";

/// The specification of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionSpec {
    /// The session's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Folder of the trace, or of snapshots; `None`: a new folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// The users whose programs the session records, by name or number, or [`ALL_USERS`]; empty:
    /// the session's own user. Only root can record other users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// True if recording starts immediately.
    #[serde(default = "starts_at_once", skip_serializing_if = "is_true")]
    pub start: bool,
    /// True if a traced process that dies of a crash signal triggers a snapshot.
    #[serde(default, skip_serializing_if = "is_no")]
    pub snapshot_on_crash: bool,
    /// Kernel events in addition to programs' events; only root can record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSpec>,
    /// The channels; empty: one channel, [`ChannelSpec::default`], unless the session records only
    /// kernel events.
    #[serde(default, rename = "channel", skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelSpec>,
}

/// The specification of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ChannelSpec {
    /// The channel's name.
    pub name: String,
    /// The fate of records for which the buffer has no room.
    pub mode: Mode,
    /// Longest time for which programs that allow blocking wait for room.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::time")]
    pub blocking_timeout: Option<Duration>,
    /// Buffer bytes for each CPU.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub buffer_size: Option<u64>,
    /// Number of sub-buffers for each CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_buffers: Option<u64>,
    /// Most bytes of each file of a stream; 0 or `None`: a stream is a single file, which grows.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub tracefile_size: Option<u64>,
    /// Most files of a stream, of which the newest are kept; 0 or `None`: all files are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
    /// The contexts of each record.
    pub contexts: Vec<String>,
    /// The rules for events. `None`: all events; only exclusions: all other events; no rules: no
    /// events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<RuleSpec>>,
    /// Filters: an event is recorded if all filters that apply to it are true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterSpec>,
    /// The recorded processes, by process id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// The recorded executables: globs for file names, or, with a `/`, for paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub executables: Vec<String>,
    /// The recorded process-id namespaces, by inode number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pid_namespaces: Vec<u64>,
}

/// The reason why a session cannot have this specification.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// A session or channel cannot have this name.
    Name(String),
    /// Two channels have this name.
    TwoChannels(String),
    /// There are more channels than a user's sessions can have.
    TooManyChannels,
    /// A channel cannot have these buffer sizes: its name, and the reason.
    Buffers(String, BuffersError),
    /// An option of a channel is invalid: the channel's name, and the reason.
    Option(String, OptionError),
    /// This channel has a blocking timeout, but a flight recorder never waits.
    BlockingOverwrite(String),
    /// The name of the output folder is empty.
    Output,
    /// A user cannot have this name.
    User(String),
    /// There are more users than a session can record.
    TooManyUsers,
    /// A channel cannot have these bounds for trace files: its name, and the reason.
    Tracefiles(String, TracefilesError),
    /// The process rules are longer than a channel can hold.
    TooManyProcesses,
    /// The kernel events cannot be recorded, for this reason.
    Kernel(String),
    /// A session file cannot be parsed, for this reason.
    File(String),
}

impl core::fmt::Display for SpecError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Name(name) => write!(
                formatter,
                "'{name}' can be no name: letters, digits, -, _ and . can, up to 64 of them"
            ),
            Self::TwoChannels(name) => write!(formatter, "there is a channel '{name}' already"),
            Self::TooManyChannels => {
                write!(formatter, "a user's sessions have {CHANNELS_MAX} channels together at most")
            }
            Self::Buffers(channel, error) => write!(formatter, "channel '{channel}': {error}"),
            Self::Tracefiles(channel, error) => write!(formatter, "channel '{channel}': {error}"),
            Self::Option(channel, error) => write!(formatter, "channel '{channel}': {error}"),
            Self::BlockingOverwrite(channel) => write!(
                formatter,
                "channel '{channel}': in a flight recorder there is always room, so nobody waits"
            ),
            Self::Output => formatter.write_str(
                "the output folder has no name: leave 'output' out, and there is a new one",
            ),
            Self::User(user) => write!(formatter, "there can be no user '{user}'"),
            Self::TooManyUsers => {
                write!(formatter, "a session records {USERS_MAX} users' programs at most")
            }
            Self::TooManyProcesses => write!(
                formatter,
                "the rules for processes are longer than {PROCESS_RULES_BYTES_MAX} bytes together"
            ),
            Self::Kernel(why) => write!(formatter, "the kernel's events: {why}"),
            Self::File(why) => formatter.write_str(why),
        }
    }
}

impl core::error::Error for SpecError {}

impl Default for SessionSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            output: None,
            users: Vec::new(),
            start: true,
            snapshot_on_crash: false,
            kernel: None,
            channels: vec![ChannelSpec::default()],
        }
    }
}

impl Default for ChannelSpec {
    fn default() -> Self {
        Self {
            name: Self::DEFAULT_NAME.into(),
            mode: Mode::Discard,
            blocking_timeout: None,
            buffer_size: None,
            sub_buffers: None,
            tracefile_size: None,
            tracefile_count: None,
            contexts: vec!["vtid".into()],
            on: None,
            filters: Vec::new(),
            pids: Vec::new(),
            executables: Vec::new(),
            pid_namespaces: Vec::new(),
        }
    }
}

impl SessionSpec {
    /// Parses a session file.
    ///
    /// # Errors
    ///
    /// If the file cannot be parsed, or the specification is invalid.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let mut spec: Self =
            toml::from_str(text).map_err(|error| SpecError::File(error.to_string()))?;
        if spec.channels.is_empty() && !spec.is_kernel_only() {
            spec.channels.push(ChannelSpec::default());
        }
        spec.check()?;
        Ok(spec)
    }

    /// Returns a session file with this specification.
    ///
    /// # Errors
    ///
    /// If a path is not valid UTF-8.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::File(error.to_string()))
    }

    /// Checks the session's specification.
    pub fn check(&self) -> Result<(), SpecError> {
        if !is_valid_name(&self.name) && !self.name.is_empty() {
            return Err(SpecError::Name(self.name.clone()));
        }
        if self.output.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
            return Err(SpecError::Output);
        }
        if self.channels.len() > CHANNELS_MAX {
            return Err(SpecError::TooManyChannels);
        }
        // Allows all names that setpriv(1) and login.defs(5) allow, and longer ones.
        let is_none =
            |user: &&String| user.is_empty() || user.len() > 256 || user.contains(char::is_control);
        if let Some(user) = self.users.iter().find(is_none) {
            return Err(SpecError::User(user.clone()));
        }
        if self.users.len() > USERS_MAX {
            return Err(SpecError::TooManyUsers);
        }
        self.kernel.as_ref().map_or(Ok(()), KernelSpec::check)?;
        if self.is_kernel_only() && !(self.channels.is_empty() && self.users.is_empty()) {
            let why = "only they are recorded (only = true): there are no channels, and no users";
            return Err(SpecError::Kernel(why.into()));
        }
        for (number, channel) in self.channels.iter().enumerate() {
            channel.check()?;
            if self.channels[..number].iter().any(|other| other.name == channel.name) {
                return Err(SpecError::TwoChannels(channel.name.clone()));
            }
        }
        Ok(())
    }

    /// Returns true if the session records only kernel events.
    pub fn is_kernel_only(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.only)
    }

    /// Returns the channel with this name.
    pub fn channel(&self, name: &str) -> Option<&ChannelSpec> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// Returns true if the session has a flight recorder, so that snapshots are possible.
    pub fn has_flight_recorder(&self) -> bool {
        let of_kernel = self.kernel.as_ref().is_some_and(|kernel| kernel.mode == Mode::Overwrite);
        of_kernel || self.channels.iter().any(|channel| channel.mode == Mode::Overwrite)
    }

    /// Returns true if all channels and kernel events of the session are flight recorders.
    pub fn is_flight_recorder(&self) -> bool {
        let is_flight = |kernel: &KernelSpec| kernel.mode == Mode::Overwrite;
        self.kernel.as_ref().is_none_or(is_flight)
            && self.channels.iter().all(|channel| channel.mode == Mode::Overwrite)
    }
}

impl ChannelSpec {
    /// Name of the channel in a session without channels: LTTng's default.
    pub const DEFAULT_NAME: &str = "channel0";

    /// Checks the channel's specification.
    pub fn check(&self) -> Result<(), SpecError> {
        if !is_valid_name(&self.name) {
            return Err(SpecError::Name(self.name.clone()));
        }
        if self.mode == Mode::Overwrite && self.blocking_timeout.is_some() {
            return Err(SpecError::BlockingOverwrite(self.name.clone()));
        }
        let plan = self.plan().map_err(|error| SpecError::Buffers(self.name.clone(), error))?;
        self.tracefiles()
            .check(&plan, self.mode)
            .map_err(|error| SpecError::Tracefiles(self.name.clone(), error))?;
        let option = |error| SpecError::Option(self.name.clone(), error);
        self.context_list().map_err(option)?;
        self.rules_text().map_err(option)?;
        self.check_filters().map_err(option)?;
        // Each glob becomes a line in the window.
        let is_none = |glob: &&String| glob.is_empty() || glob.contains(char::is_control);
        if let Some(glob) = self.executables.iter().find(is_none) {
            return Err(option(OptionError::Executable(glob.clone())));
        }
        if self.process_rules_bytes() > PROCESS_RULES_BYTES_MAX {
            return Err(SpecError::TooManyProcesses);
        }
        Ok(())
    }

    /// Returns the sizes of the channel's buffers.
    pub fn plan(&self) -> Result<BufferPlan, BuffersError> {
        let overwrite = self.mode == Mode::Overwrite;
        let (size_bytes, sub_buffers) = (self.buffer_size, self.sub_buffers);
        BufferOptions { size_bytes, sub_buffers, overwrite }.plan()
    }

    /// Returns the bounds for the files of the channel's streams.
    pub fn tracefiles(&self) -> Tracefiles {
        Tracefiles::new(self.tracefile_size, self.tracefile_count)
    }

    /// Returns the channel's contexts.
    pub fn context_list(&self) -> Result<ContextList, OptionError> {
        let bytes = |name: &String| name.len() + 1;
        if self.contexts.iter().map(bytes).sum::<usize>() > CONTEXTS_BYTES_MAX {
            return Err(OptionError::TooManyContexts);
        }
        parse_contexts(&self.contexts.join(","))
    }

    /// Returns the channel's rules in the form that `trackway_schema::Rules` parses.
    pub fn rules_text(&self) -> Result<String, OptionError> {
        let mut text = String::new();
        if self.records_all() {
            text.push('*');
        }
        for rule in self.on.iter().flatten() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&rule.line()?);
        }
        if text.len() > RULES_BYTES_MAX {
            return Err(OptionError::TooManyPatterns);
        }
        Ok(text)
    }

    /// Checks the filters, as far as that is possible before events are known.
    pub fn check_filters(&self) -> Result<(), OptionError> {
        let bytes = self.filters.iter().map(FilterSpec::size_bytes).sum::<usize>();
        if self.filters.len() > FILTERS_MAX || bytes > FILTERS_BYTES_MAX {
            return Err(OptionError::TooManyFilters);
        }
        // Checks the total size before each object is verified, which takes time.
        let objects = self.filters.iter().map(|filter| filter.source.object_bytes());
        if objects.sum::<usize>() > FILTER_OBJECTS_BYTES_MAX {
            return Err(OptionError::TooLargeObjects);
        }
        self.filters.iter().try_for_each(FilterSpec::check)
    }

    /// Replaces the filter of this pattern by `source`; an empty expression removes the filter.
    pub fn set_filter(&mut self, pattern: &str, source: &FilterSource) {
        let new = FilterSpec { pattern: Some(pattern.to_owned()), source: source.clone() };
        let rules = new.rules();
        let place = self.filters.iter().position(|filter| filter.rules() == rules);
        self.filters.retain(|filter| filter.rules() != rules);
        if !source.is_empty() {
            self.filters.insert(place.unwrap_or(self.filters.len()), new);
        }
    }

    /// Removes the filters that apply only to events of this pattern.
    fn drop_filters(&mut self, name: &str) {
        let covers_all = |rules: &str| {
            rules
                .lines()
                .filter(|line| !line.starts_with('!'))
                .all(|line| pattern_covers(name, line))
        };
        self.filters.retain(|filter| !covers_all(&filter.rules()));
    }

    /// Returns true if the channel records all events, or all except excluded ones.
    fn records_all(&self) -> bool {
        let rules = self.on.as_deref();
        rules.is_none_or(|rules| !rules.is_empty() && rules.iter().all(RuleSpec::excludes))
    }

    /// Enables the events that these rules select; returns true if the channel changed. If all
    /// events are enabled, nothing changes. Events that wider rules exclude stay disabled
    /// ([`Self::excluded_of`]). If no events are enabled, exclusions alone enable nothing.
    pub fn switch_on(&mut self, rules: Vec<RuleSpec>) -> bool {
        let before = self.on.clone();
        let mut records_none = self.on.as_ref().is_some_and(Vec::is_empty);
        for rule in rules {
            let pattern = rule.full_pattern();
            let records_all = !records_none && self.records_all();
            records_none &= rule.excludes();
            let on = self.on.get_or_insert_default();
            // Removes exclusions of this rule's events, and older rules with the same pattern.
            on.retain(|other| {
                let theirs = other.full_pattern();
                let is_lifted =
                    theirs.strip_prefix('!').is_some_and(|it| pattern_covers(&pattern, it));
                theirs != pattern && !is_lifted
            });
            if rule.excludes() || !records_all {
                on.push(rule);
            } else if on.is_empty() {
                self.on = None;
            }
        }
        if records_none {
            // Exclusions alone would select all other events.
            self.on = Some(Vec::new());
        }
        self.on != before
    }

    /// Returns the exclusions that overlap with these rules: an exclusion wins, and cannot be
    /// split.
    pub fn excluded_of(&self, rules: &[RuleSpec]) -> Vec<String> {
        let selects = |excluded: &str| {
            let mut selecting = rules.iter().filter(|rule| !rule.excludes());
            selecting.any(|rule| patterns_overlap(&rule.full_pattern(), excluded))
        };
        let patterns = self.on.iter().flatten().map(RuleSpec::full_pattern);
        patterns.filter(|it| it.strip_prefix('!').is_some_and(selects)).collect()
    }

    /// Disables the events that these patterns match: removes rules for these events only, and
    /// excludes the events from wider rules. A pattern with `!` removes that exclusion, if it
    /// exists ([`Self::not_excluded`]). Also removes filters for these events only. Returns true if
    /// the channel changed.
    pub fn switch_off(&mut self, patterns: &[String]) -> bool {
        let before = (self.on.clone(), self.filters.len());
        for pattern in patterns {
            let name = RuleSpec::new(pattern.clone()).full_pattern();
            match name.as_str() {
                "*" | "*:*" => {
                    self.on = Some(Vec::new());
                    self.filters.clear();
                }
                _ if name.starts_with('!') => self.remove_exclusion(&name),
                _ => {
                    self.switch_off_one(pattern, &name);
                    self.drop_filters(&name);
                }
            }
        }
        (&self.on, self.filters.len()) != (&before.0, before.1)
    }

    /// Disables the events of one pattern; `name` is the full pattern.
    fn switch_off_one(&mut self, pattern: &str, name: &str) {
        let records_all = self.records_all();
        let on = self.on.get_or_insert_default();
        let excludes_all = |other: &RuleSpec| {
            let theirs = other.full_pattern();
            other.level == Levels::All
                && theirs.strip_prefix('!').is_some_and(|it| pattern_covers(it, name))
        };
        let is_off = on.iter().any(excludes_all);
        on.retain(|other| {
            let stays = is_off && other.excludes();
            stays || !pattern_covers(name, other.full_pattern().trim_start_matches('!'))
        });
        let is_meant =
            |other: &RuleSpec| !other.excludes() && patterns_overlap(&other.full_pattern(), name);
        if !is_off && (records_all || on.iter().any(is_meant)) {
            on.push(RuleSpec::new(format!("!{pattern}")));
        } else if !records_all && on.iter().all(RuleSpec::excludes) {
            // The remaining exclusions alone would select all other events.
            on.clear();
        }
    }

    /// Removes an exclusion, so that the other rules decide about its events.
    fn remove_exclusion(&mut self, excluding: &str) {
        let Some(on) = &mut self.on else { return };
        let had_some = !on.is_empty();
        on.retain(|rule| rule.full_pattern() != excluding);
        if had_some && on.is_empty() {
            // All other events were recorded.
            self.on = None;
        }
    }

    /// Returns the first pattern that would remove a nonexistent exclusion.
    pub fn not_excluded<'patterns>(&self, patterns: &'patterns [String]) -> Option<&'patterns str> {
        let is_rule = |pattern: &str| {
            let name = RuleSpec::new(pattern).full_pattern();
            self.on.iter().flatten().any(|rule| rule.full_pattern() == name)
        };
        let mut excluding = patterns.iter().filter(|pattern| pattern.starts_with('!'));
        excluding.find(|pattern| !is_rule(pattern)).map(String::as_str)
    }

    /// Returns the most bytes that the process rules can have, for any namespace numbers.
    fn process_rules_bytes(&self) -> usize {
        // `pid=`, a namespace's number, `:`, a process id, a newline.
        const PID_BYTES: usize = "pid=18446744073709551615:4294967295\n".len();
        const NAMESPACE_BYTES: usize = "ns=18446744073709551615\n".len();
        self.pids.len() * PID_BYTES
            + self.pid_namespaces.len() * NAMESPACE_BYTES
            + self.executables.iter().map(|glob| "exe=\n".len() + glob.len()).sum::<usize>()
    }

    /// Returns true if channel `other` can become this channel while recording, without new buffers
    /// and streams.
    pub fn has_buffers_of(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.buffer_size == other.buffer_size
            && self.sub_buffers == other.sub_buffers
            && self.tracefiles() == other.tracefiles()
            && self.context_list() == other.context_list()
    }
}

fn starts_at_once() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_true(value: &bool) -> bool {
    *value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(crate) fn is_no(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    const WRITTEN_BY_HAND: &str = r#"
name = "web"
output = "/var/log/traces/web"
users = ["www-data", "1000"]
snapshot-on-crash = true

[[channel]]
mode = "overwrite"
buffer-size = "16M"
contexts = ["vtid", "procname"]
on = ["web:*", "!web:noise", { pattern = "db", at-least = "warning" }]

[[channel]]
name = "rare"
blocking-timeout = "10ms"
tracefile-size = "64M"
tracefile-count = 8
executables = ["nginx"]
"#;

    #[test]
    fn a_file_is_read_as_it_is_meant() {
        let spec = SessionSpec::from_toml(WRITTEN_BY_HAND).expect("a session");
        assert_eq!((spec.name.as_str(), spec.start, spec.snapshot_on_crash), ("web", true, true));
        assert_eq!(spec.users, ["www-data", "1000"]);
        let [first, second] = &spec.channels[..] else { panic!("two channels") };
        assert_eq!(first.name, ChannelSpec::DEFAULT_NAME);
        assert_eq!((first.mode, first.buffer_size), (Mode::Overwrite, Some(16 << 20)));
        assert_eq!(first.rules_text().expect("rules"), "web:*\n!web:noise\ndb:*\t<=4");
        assert_eq!(second.rules_text().expect("rules"), "*");
        assert_eq!(second.blocking_timeout, Some(Duration::from_millis(10)));
        assert_eq!(second.tracefiles(), Tracefiles { size_bytes: 64 << 20, count: 8 });
        assert!(!first.tracefiles().is_bounded());
    }

    #[test]
    fn what_is_saved_is_loaded() {
        const KERNEL_ONLY: &str = "[kernel]\non = ['sched']\nonly = true\n";
        for text in [WRITTEN_BY_HAND, "", KERNEL_ONLY, "start = false\n[[channel]]\npids = [7]\n"] {
            let spec = SessionSpec::from_toml(text).expect("a session");
            let saved = spec.to_toml().expect("a text");
            assert_eq!(SessionSpec::from_toml(&saved), Ok(spec), "{saved}");
        }
    }

    #[test]
    fn mistakes_are_said_with_their_place() {
        let refused = |text: &str| SessionSpec::from_toml(text).expect_err(text).to_string();
        let unknown = refused("name = 'a'\n[[channel]]\nbufer-size = '1M'\n");
        assert!(unknown.contains("line 3") && unknown.contains("bufer-size"), "{unknown}");
        assert!(refused("name = 'a b'").contains("can be no name"));
        assert!(refused("[[channel]]\nbuffer-size = 'much'").contains("buffer-size"));
        assert!(refused("[[channel]]\n[[channel]]").contains("already"));
        assert!(refused("[[channel]]\ncontexts = ['color']").contains("no context 'color'"));
        assert!(refused("[[channel]]\ncontexts = ['none', 'vpid']").contains("stands alone"));
        assert!(refused("[[channel]]\non = ['!*']").contains("excludes all"));
        assert!(refused("output = ''").contains("leave 'output' out"));
        let alone = "[kernel]\non = ['sched']\nonly = true\n[[channel]]";
        assert!(refused(alone).contains("there are no channels"));
        let blocking = "[[channel]]\nmode = 'overwrite'\nblocking-timeout = '1s'";
        assert!(refused(blocking).contains("always room"));
        assert!(refused("users = ['']").contains("no user ''"));
        assert!(refused("users = [\"a\\nb\"]").contains("no user"));
        let users = format!("users = {:?}", vec!["all"; USERS_MAX + 1]);
        assert!(refused(&users).contains("64 users"));
        let alone = refused("[[channel]]\ntracefile-count = 3");
        assert!(alone.contains("channel 'channel0': a number of trace files"), "{alone}");
        assert!(refused("[[channel]]\ntracefile-size = '4K'").contains("at least 64.0 KiB"));
        let flight = "[[channel]]\nmode = 'overwrite'\ntracefile-size = '1M'";
        assert!(refused(flight).contains("written as a whole"));
        let many = format!("[[channel]]\npids = {:?}", (0..100).collect::<Vec<_>>());
        assert!(refused(&many).contains("512 bytes"));
    }

    #[test]
    fn mistakes_in_rules_are_said_where_they_are() {
        for (rule, column, why) in [
            ("{pattern = 'a', at-least = 'loud'}", 39, "no level 'loud' (there are emerg"),
            ("{patern = 'a'}", 13, "unknown field `patern`, expected one of `pattern`, `at-least`"),
            ("{at-least = 'info'}", 12, "missing field `pattern`"),
            ("7", 12, "invalid type: integer `7`, expected a pattern, such as \"web:*\", or {"),
            ("['a']", 12, "invalid type: sequence, expected a pattern"),
        ] {
            let text = format!("[[channel]]\non = ['b', {rule}]\n");
            let said = SessionSpec::from_toml(&text).expect_err(rule).to_string();
            assert!(said.contains(&format!("line 2, column {column}")), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn sizes_are_texts_or_bytes() {
        let size = |value: &str| {
            SessionSpec::from_toml(&format!("[[channel]]\nbuffer-size = {value}\n"))
                .map(|spec| spec.channels[0].buffer_size)
                .map_err(|error| error.to_string())
        };
        for value in ["1048576", "'1M'", "'1MiB'", "'1048576'", "0x100000"] {
            assert_eq!(size(value), Ok(Some(1 << 20)), "{value}");
        }
        for (value, why) in [
            ("-1", "no size is less than 0"),
            ("1.5", "expected a size, such as \"4M\", or a number of bytes"),
            ("'much'", "a number of bytes, or of K, M or G"),
        ] {
            let said = size(value).expect_err(value);
            assert!(said.contains("line 2, column 15") && said.contains(why), "{said}");
        }
        let time = SessionSpec::from_toml("[[channel]]\nblocking-timeout = 10\n");
        let said = time.expect_err("no unit").to_string();
        assert!(said.contains("expected a time with its unit, such as \"10ms\""), "{said}");
    }

    #[test]
    fn an_exclusion_of_some_levels_is_no_exclusion_of_all() {
        let debug = Levels::Exactly(Level::parse("debug").expect("a level"));
        let rule = RuleSpec { level: debug, ..RuleSpec::new("!*") };
        let channel = ChannelSpec { on: Some(vec![rule]), ..ChannelSpec::default() };
        assert_eq!(channel.rules_text().expect("rules"), "*\n!*\t=14");
    }

    #[test]
    fn events_are_switched_on_and_off() {
        let mut channel = ChannelSpec::default();
        let mut step = |is_on: bool, patterns: &[&str], rules: &str| {
            let patterns: Vec<String> = patterns.iter().map(|&text| text.into()).collect();
            let before = channel.clone();
            let changed = match is_on {
                true => channel.switch_on(patterns.into_iter().map(RuleSpec::new).collect()),
                false => channel.switch_off(&patterns),
            };
            assert_eq!(channel.rules_text().expect("rules"), rules);
            assert_eq!(changed, channel != before);
        };
        let (on, off) = (true, false);
        step(on, &["app:*"], "*"); // all events are enabled already
        step(off, &["app:noise", "db"], "*\n!app:noise\n!db:*");
        step(on, &["app:noise"], "*\n!db:*");
        step(on, &["db"], "*");
        step(on, &["!app:noise"], "*\n!app:noise");
        step(off, &["*"], "");
        step(off, &["app:noise"], "");
        step(on, &["app", "db:query"], "app:*\ndb:query");
        step(on, &["app:*"], "db:query\napp:*");
        step(off, &["app:noise"], "db:query\napp:*\n!app:noise");
        step(off, &["db:query", "app"], "");
    }

    #[test]
    fn an_exclusion_switches_nothing_on_where_none_are() {
        let switched_on = |patterns: &[&str]| {
            let mut channel = ChannelSpec { on: Some(Vec::new()), ..ChannelSpec::default() };
            let rules = patterns.iter().map(|&pattern| RuleSpec::new(pattern)).collect();
            (channel.switch_on(rules), channel.rules_text().expect("rules"))
        };
        assert_eq!(switched_on(&["!app:noise"]), (false, String::new()));
        assert_eq!(switched_on(&["!app:noise", "!db"]), (false, String::new()));
        assert_eq!(switched_on(&["!*:noise", "app"]), (true, "!*:noise\napp:*".into()));
        assert_eq!(switched_on(&["app", "!app:noise"]), (true, "app:*\n!app:noise".into()));
        assert_eq!(switched_on(&["!app:noise", "app"]), (true, "app:*".into()), "the last counts");
    }

    #[test]
    fn what_is_switched_last_is_so() {
        let mut channel = ChannelSpec { on: Some(Vec::new()), ..ChannelSpec::default() };
        let mut step = |is_on: bool, pattern: &str, rules: &str| {
            let _ = match is_on {
                true => channel.switch_on(vec![RuleSpec::new(pattern)]),
                false => channel.switch_off(&[pattern.into()]),
            };
            assert_eq!(channel.rules_text().expect("rules"), rules);
        };
        let (on, off) = (true, false);
        step(on, "app", "app:*");
        step(off, "app:noise", "app:*\n!app:noise");
        step(on, "app:noise", "app:*\napp:noise");
        step(off, "app:noise", "app:*\n!app:noise"); // the wider rule selects it, too
        step(on, "app:n*", "app:*\napp:n*"); // a wider pattern removes the exclusion
        step(on, "db:slow", "app:*\napp:n*\ndb:slow");
        step(off, "*:n*", "app:*\ndb:slow\n!*:n*");
        step(off, "app:no", "app:*\ndb:slow\n!*:n*"); // the event is disabled already
        step(off, "app", "db:slow\n!*:n*");
        step(off, "d*", "");
    }

    #[test]
    fn rules_are_taken_back() {
        let mut channel = ChannelSpec::default();
        let mut step = |is_on: bool, pattern: &str, rules: &str| {
            let _ = match is_on {
                true => channel.switch_on(vec![RuleSpec::new(pattern)]),
                false => channel.switch_off(&[pattern.into()]),
            };
            assert_eq!(channel.rules_text().expect("rules"), rules);
        };
        let (on, off) = (true, false);
        step(off, "app:noise", "*\n!app:noise");
        step(off, "db", "*\n!app:noise\n!db:*");
        step(off, "!app:noise", "*\n!db:*");
        step(off, "!db", "*"); // without exclusions, all events are selected again
        step(off, "*", "");
        step(on, "app", "app:*");
        step(off, "app:noise", "app:*\n!app:noise");
        step(on, "db:slow", "app:*\n!app:noise\ndb:slow");
        step(off, "!app:noise", "app:*\ndb:slow");
        step(off, "db:slow", "app:*");
        step(off, "app", "");
    }

    #[test]
    fn a_rule_whose_events_are_excluded_is_taken_back_too() {
        let on = ["app:*", "db:slow", "!db:*"].map(RuleSpec::new).to_vec();
        let mut channel = ChannelSpec { on: Some(on), ..ChannelSpec::default() };
        assert!(channel.switch_off(&["db:slow".into()]));
        assert_eq!(channel.rules_text().expect("rules"), "app:*\n!db:*");
        let on = ["db:slow", "!db:*"].map(RuleSpec::new).to_vec();
        let mut channel = ChannelSpec { on: Some(on), ..ChannelSpec::default() };
        assert!(channel.switch_off(&["db:slow".into()]));
        assert_eq!(channel.rules_text().expect("rules"), "", "not all but db");
    }

    #[test]
    fn exclusions_that_are_not_there_cannot_be_taken_back() {
        let patterns = |texts: &[&str]| texts.iter().map(|&it| it.into()).collect::<Vec<String>>();
        let mut channel = ChannelSpec::default();
        assert_eq!(channel.not_excluded(&patterns(&["app", "!db"])), Some("!db"));
        channel.switch_off(&patterns(&["db"]));
        assert_eq!(channel.not_excluded(&patterns(&["!db", "!db:*"])), None);
        assert_eq!(channel.not_excluded(&patterns(&["!db", "!d*"])), Some("!d*"));
    }

    #[test]
    fn exclusions_that_are_wider_than_what_is_switched_on_are_told() {
        let mut channel = ChannelSpec::default();
        channel.switch_off(&["app".into(), "db:slow".into()]);
        let excluded = |pattern: &str| channel.excluded_of(&[RuleSpec::new(pattern)]);
        assert_eq!(excluded("app:request"), ["!app:*"]);
        assert_eq!(excluded("*:s*"), ["!app:*", "!db:slow"]);
        assert_eq!(excluded("!app:request"), [""; 0]);
        assert_eq!(excluded("other"), [""; 0]);
    }
}
