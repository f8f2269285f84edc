//! A session as its user describes it: on the command line, in a file, over the control socket.
//!
//! The file is TOML that a person can write:
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

/// Most channels of a session: one bit each in enable words, for all of a user's sessions.
pub(crate) const CHANNELS_MAX: usize = trackway_abi::session::SESSIONS_MAX;

/// Most users whose programs one session records.
pub const USERS_MAX: usize = 64;
/// Stands for all users.
pub const ALL_USERS: &str = "all";

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SessionSpec {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Folder of its trace, or of its snapshots; none: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// The users whose programs it records, by name or number, or [`ALL_USERS`]; none: its own
    /// user. Root alone records those of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// True if it records from the beginning.
    #[serde(default = "starts_at_once", skip_serializing_if = "is_true")]
    pub start: bool,
    /// True if a traced process that dies of a crash signal leaves a snapshot.
    #[serde(default, skip_serializing_if = "is_no")]
    pub snapshot_on_crash: bool,
    /// Kernel events in addition; only root records them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelSpec>,
    /// Its channels; none: one, as [`ChannelSpec::default`] has it, unless only the kernel's
    /// events are recorded.
    #[serde(default, rename = "channel", skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelSpec>,
}

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ChannelSpec {
    /// Its name.
    pub name: String,
    /// The fate of records that find no room.
    pub mode: Mode,
    /// Longest time that programs which allow it wait for room.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::time")]
    pub blocking_timeout: Option<Duration>,
    /// Bytes for each CPU.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub buffer_size: Option<u64>,
    /// Sub-buffers for each CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_buffers: Option<u64>,
    /// Most bytes of each file of a stream; 0 is as none: it is one file, which grows.
    #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::toml::size")]
    pub tracefile_size: Option<u64>,
    /// Most files of a stream, the newest; 0 is as none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
    /// The contexts of every record.
    pub contexts: Vec<String>,
    /// The rules for events: not given, all; rules that only exclude, all but those; no rules,
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<RuleSpec>>,
    /// Conditions: an event is recorded if all filters that apply to it are true.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterSpec>,
    /// The processes, by process id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u32>,
    /// By executable: a glob, for its file name, or with a `/` for its path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub executables: Vec<String>,
    /// By process-id namespace: its inode number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pid_namespaces: Vec<u64>,
}

/// Why there can be no such session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// No session or channel can be called so.
    Name(String),
    /// Two channels are called so.
    TwoChannels(String),
    /// More channels than a user's sessions can have.
    TooManyChannels,
    /// Sizes that no channel can have: of which, and why.
    Buffers(String, BuffersError),
    /// Words that mean nothing: in which channel.
    Option(String, OptionError),
    /// A flight recorder never has to wait.
    BlockingOverwrite(String),
    /// A folder without a name.
    Output,
    /// No user can have this name.
    User(String),
    /// More users than one session records.
    TooManyUsers,
    /// Files that no channel's streams can be cut into: of which, and why.
    Tracefiles(String, TracefilesError),
    /// Rules for processes that are longer than a channel can hold.
    TooManyProcesses,
    /// The reason why kernel events cannot be recorded so.
    Kernel(String),
    /// A file that cannot be understood: why.
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
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be understood, or no session can be so.
    pub fn from_toml(text: &str) -> Result<Self, SpecError> {
        let mut spec: Self =
            toml::from_str(text).map_err(|error| SpecError::File(error.to_string()))?;
        if spec.channels.is_empty() && !spec.is_kernel_only() {
            spec.channels.push(ChannelSpec::default());
        }
        spec.check()?;
        Ok(spec)
    }

    /// The file that says the same.
    ///
    /// # Errors
    ///
    /// If there is a path that is no text.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|error| SpecError::File(error.to_string()))
    }

    /// Checks the session.
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
        // As setpriv(1) and login.defs(5) let users be called, and longer ones.
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

    /// Returns true if it records kernel events only.
    pub fn is_kernel_only(&self) -> bool {
        self.kernel.as_ref().is_some_and(|kernel| kernel.only)
    }

    /// The channel of this name.
    pub fn channel(&self, name: &str) -> Option<&ChannelSpec> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// Returns true if it has a flight recorder, of which there can be snapshots.
    pub fn has_flight_recorder(&self) -> bool {
        let of_kernel = self.kernel.as_ref().is_some_and(|kernel| kernel.mode == Mode::Overwrite);
        of_kernel || self.channels.iter().any(|channel| channel.mode == Mode::Overwrite)
    }

    /// Returns true if all that it records is in flight recorders.
    pub fn is_flight_recorder(&self) -> bool {
        let is_flight = |kernel: &KernelSpec| kernel.mode == Mode::Overwrite;
        self.kernel.as_ref().is_none_or(is_flight)
            && self.channels.iter().all(|channel| channel.mode == Mode::Overwrite)
    }
}

impl ChannelSpec {
    /// Name of the channel of a session without any: LTTng's.
    pub const DEFAULT_NAME: &str = "channel0";

    /// Checks the channel.
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
        // Each is a line among others in the window.
        let is_none = |glob: &&String| glob.is_empty() || glob.contains(char::is_control);
        if let Some(glob) = self.executables.iter().find(is_none) {
            return Err(option(OptionError::Executable(glob.clone())));
        }
        if self.process_rules_bytes() > PROCESS_RULES_BYTES_MAX {
            return Err(SpecError::TooManyProcesses);
        }
        Ok(())
    }

    /// Sizes of its buffers.
    pub fn plan(&self) -> Result<BufferPlan, BuffersError> {
        let overwrite = self.mode == Mode::Overwrite;
        let (size_bytes, sub_buffers) = (self.buffer_size, self.sub_buffers);
        BufferOptions { size_bytes, sub_buffers, overwrite }.plan()
    }

    /// Returns the bounds of the files of its streams.
    pub fn tracefiles(&self) -> Tracefiles {
        Tracefiles::new(self.tracefile_size, self.tracefile_count)
    }

    /// Its contexts.
    pub fn context_list(&self) -> Result<ContextList, OptionError> {
        let bytes = |name: &String| name.len() + 1;
        if self.contexts.iter().map(bytes).sum::<usize>() > CONTEXTS_BYTES_MAX {
            return Err(OptionError::TooManyContexts);
        }
        parse_contexts(&self.contexts.join(","))
    }

    /// Its rules, as `trackway_schema::Rules` reads them.
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
        // Before each is verified, which takes its time.
        let objects = self.filters.iter().map(|filter| filter.source.object_bytes());
        if objects.sum::<usize>() > FILTER_OBJECTS_BYTES_MAX {
            return Err(OptionError::TooLargeObjects);
        }
        self.filters.iter().try_for_each(FilterSpec::check)
    }

    /// Filters the events of this pattern by `source` instead of what it was; an empty expression
    /// takes the filter away.
    pub fn set_filter(&mut self, pattern: &str, source: &FilterSource) {
        let new = FilterSpec { pattern: Some(pattern.to_owned()), source: source.clone() };
        let rules = new.rules();
        let place = self.filters.iter().position(|filter| filter.rules() == rules);
        self.filters.retain(|filter| filter.rules() != rules);
        if !source.is_empty() {
            self.filters.insert(place.unwrap_or(self.filters.len()), new);
        }
    }

    /// Drops the filters that are about no other events than those of this pattern.
    fn drop_filters(&mut self, name: &str) {
        let covers_all = |rules: &str| {
            rules
                .lines()
                .filter(|line| !line.starts_with('!'))
                .all(|line| pattern_covers(name, line))
        };
        self.filters.retain(|filter| !covers_all(&filter.rules()));
    }

    /// Returns true if it records all events, or all but some.
    fn records_all(&self) -> bool {
        let rules = self.on.as_deref();
        rules.is_none_or(|rules| !rules.is_empty() && rules.iter().all(RuleSpec::excludes))
    }

    /// Switches events on that these rules select. Whether it changed: where all are on, nothing
    /// does. What wider rules exclude stays off ([`Self::excluded_of`]). Where none are on, only
    /// rules that include switch some on.
    pub fn switch_on(&mut self, rules: Vec<RuleSpec>) -> bool {
        let before = self.on.clone();
        let mut records_none = self.on.as_ref().is_some_and(Vec::is_empty);
        for rule in rules {
            let pattern = rule.full_pattern();
            let records_all = !records_none && self.records_all();
            records_none &= rule.excludes();
            let on = self.on.get_or_insert_default();
            // What it means is not excluded any more; and each name has one rule.
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
            // Exclusions alone would mean all but those.
            self.on = Some(Vec::new());
        }
        self.on != before
    }

    /// Rules that keep some of what these select from being recorded: an exclusion wins, and what
    /// it excludes besides cannot be told from it.
    pub fn excluded_of(&self, rules: &[RuleSpec]) -> Vec<String> {
        let selects = |excluded: &str| {
            let mut selecting = rules.iter().filter(|rule| !rule.excludes());
            selecting.any(|rule| patterns_overlap(&rule.full_pattern(), excluded))
        };
        let patterns = self.on.iter().flatten().map(RuleSpec::full_pattern);
        patterns.filter(|it| it.strip_prefix('!').is_some_and(selects)).collect()
    }

    /// Switches events off that these patterns match: rules that mean no others go, from what is
    /// left their events are excluded. A pattern with `!` takes that exclusion back, if there is
    /// one ([`Self::not_excluded`]). Filters that are about no others go, too. Whether it changed.
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

    /// The same of one pattern; `name` is the full one.
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
            // Else what is left would mean all but those.
            on.clear();
        }
    }

    /// Takes an exclusion back: what the other rules say is so.
    fn remove_exclusion(&mut self, excluding: &str) {
        let Some(on) = &mut self.on else { return };
        let had_some = !on.is_empty();
        on.retain(|rule| rule.full_pattern() != excluding);
        if had_some && on.is_empty() {
            // All but those were on.
            self.on = None;
        }
    }

    /// The first of these patterns that would take back an exclusion that there is not.
    pub fn not_excluded<'patterns>(&self, patterns: &'patterns [String]) -> Option<&'patterns str> {
        let is_rule = |pattern: &str| {
            let name = RuleSpec::new(pattern).full_pattern();
            self.on.iter().flatten().any(|rule| rule.full_pattern() == name)
        };
        let mut excluding = patterns.iter().filter(|pattern| pattern.starts_with('!'));
        excluding.find(|pattern| !is_rule(pattern)).map(String::as_str)
    }

    /// Most bytes that its rules for processes can come to, whatever the namespaces' numbers are.
    fn process_rules_bytes(&self) -> usize {
        // `pid=`, a namespace's number, `:`, a process id, the line's end.
        const PID_BYTES: usize = "pid=18446744073709551615:4294967295\n".len();
        const NAMESPACE_BYTES: usize = "ns=18446744073709551615\n".len();
        self.pids.len() * PID_BYTES
            + self.pid_namespaces.len() * NAMESPACE_BYTES
            + self.executables.iter().map(|glob| "exe=\n".len() + glob.len()).sum::<usize>()
    }

    /// Returns true if the other can take its place while it records, without buffers and streams
    /// of its own.
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
        step(on, &["app:*"], "*"); // all are on
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
        step(off, "app:noise", "app:*\n!app:noise"); // a wider rule means it, too
        step(on, "app:n*", "app:*\napp:n*"); // a wider one lifts what is excluded
        step(on, "db:slow", "app:*\napp:n*\ndb:slow");
        step(off, "*:n*", "app:*\ndb:slow\n!*:n*");
        step(off, "app:no", "app:*\ndb:slow\n!*:n*"); // it is off already
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
        step(off, "!db", "*"); // what is left means all, as before
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
