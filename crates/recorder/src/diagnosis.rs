//! Why a recording has no event: one function finds the reasons, one place turns them into
//! sentences.
//!
//! The reasons come from the user's window and from /proc, so they describe this moment: a process
//! that has ended gives none. Files and /proc are read with bounds; what cannot be read gives no
//! reason. Callers decide on the variant of a [`Reason`], never on its wording.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{Display, Formatter};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use trackway_kernel::catalogue::{Catalogue, select as kernel};
use trackway_schema::{EventDescription, Rules};
use trackway_session::{ChannelSpec, RuleSpec};
use trackway_window::Window;

use crate::report::Notices;
use crate::unmatched::near_pattern;
use crate::{Home, elf, processes, versions};

/// Most processes that are examined.
const PROCESSES_MAX: usize = 4096;
/// Most files that are read for all processes together.
const FILES_MAX: usize = 4096;
/// Most mapped files of one process that are examined.
const FILES_OF_PROCESS_MAX: usize = 256;
/// Most processes that a sentence names.
const NAMED_MAX: usize = 8;
/// How the names of the library's files begin.
const LIBRARY_PREFIX: &str = "libtrackway.so";

/// A running process, as a reason names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessName {
    /// Its id.
    pub pid: u32,
    /// Its command name (proc_pid_comm(5)).
    pub name: String,
}

/// Why a recording has no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No running process of this user has an event that the rules select.
    NoSuchEvent,
    /// The recorded command ended without an event.
    CommandWithoutEvents,
    /// The recorded command ended, and no event passed the filters.
    NothingPassedFilters,
    /// Processes have such an event and the library: none of them has executed it so far.
    NotExecuted(Vec<ProcessName>),
    /// Processes have such an event, and run without the library.
    WithoutLibrary(Vec<ProcessName>),
    /// Processes have such an event, and are static: they cannot load the library.
    Static(Vec<ProcessName>),
    /// Processes have such an event, and belong to a user whom this recording does not cover.
    OtherUser {
        /// The user's id.
        uid: u32,
        /// The processes.
        processes: Vec<ProcessName>,
    },
    /// Processes use the window of another version of the library.
    OtherVersion {
        /// That window's version.
        version: u32,
        /// The processes.
        processes: Vec<ProcessName>,
    },
    /// A rule selects none of the known events.
    UnmatchedRule {
        /// Its pattern, `provider:name`.
        pattern: String,
        /// A pattern like it that selects a known event.
        near: Option<String>,
        /// What selects kernel events of that name (`--kernel`), where there is none like it.
        kernel: Option<String>,
    },
}

/// What a recording selects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    patterns: Vec<String>,
    rules: String,
}

impl Selection {
    /// Of the rules of these channels together.
    pub fn of<'spec>(channels: impl Iterator<Item = &'spec ChannelSpec>) -> Self {
        let mut selection = Self::default();
        let mut lines: Vec<String> = Vec::new();
        for channel in channels {
            // A session's rules were checked when it was created.
            lines.extend(channel.rules_text());
            let rules = channel.on.iter().flatten().filter(|rule| !rule.excludes());
            selection.patterns.extend(rules.map(RuleSpec::full_pattern));
        }
        selection.rules = lines.join("\n");
        selection
    }

    /// Of patterns as `--on` has them, and the rules that they stand for.
    pub(crate) fn of_patterns(patterns: &[String], rules: &str) -> Self {
        let specs = patterns.iter().filter(|pattern| !pattern.starts_with('!'));
        let patterns = specs.map(|pattern| RuleSpec::new(pattern).full_pattern()).collect();
        Self { patterns, rules: rules.to_owned() }
    }

    /// Of every event.
    pub fn all() -> Self {
        Self { patterns: Vec::new(), rules: "*".to_owned() }
    }

    fn selects(&self, name: &str) -> bool {
        let (provider, event) = name.split_once(':').unwrap_or((name, ""));
        Rules::new(self.rules.as_bytes()).may_select(provider.as_bytes(), event.as_bytes())
    }
}

/// A process with events that a recording selects.
#[derive(Debug, Clone)]
struct Candidate {
    process: ProcessName,
    uid: u32,
    has_library: bool,
    is_static: bool,
}

/// Which running processes a diagnosis examines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All that /proc shows.
    All,
    /// These alone: a command and its descendants.
    Only(BTreeSet<u32>),
}

/// What is known at this moment.
#[derive(Debug, Default)]
struct Facts {
    candidates: Vec<Candidate>,
    /// Full names of the events of the window and of the processes' files.
    names: BTreeSet<String>,
    other_versions: BTreeMap<u32, Vec<ProcessName>>,
}

/// Finds out why a recording of this user with this selection has no event.
pub fn diagnose(selection: &Selection) -> Vec<Reason> {
    // Where the window cannot be opened, /proc alone gives reasons.
    let seen = Home::look(|window| diagnose_in(selection, Some(window), &Scope::All));
    seen.ok().flatten().unwrap_or_else(|| diagnose_in(selection, None, &Scope::All))
}

/// The same with a window that is open already.
pub(crate) fn diagnose_in(
    selection: &Selection,
    window: Option<&Window>,
    scope: &Scope,
) -> Vec<Reason> {
    let mut facts = Facts::collect(selection, scope);
    facts.names.extend(window.into_iter().flat_map(registered_names));
    let reasons = facts.reasons(selection, &[crate::home::user()]).into_iter();
    reasons.map(Reason::with_kernel_pattern).collect()
}

/// Finds those of the rules that select no event which programs of this user have registered.
/// Programs that start later may have what is meant.
pub fn unmatched_rules<'rules>(rules: impl Iterator<Item = &'rules RuleSpec>) -> Vec<Reason> {
    // Where the window cannot be opened, there is nothing to compare with.
    let Ok(names) = Home::look(registered_names) else { return Vec::new() };
    let names = names.unwrap_or_default().into_iter().collect();
    let patterns = rules.filter(|rule| !rule.excludes()).map(RuleSpec::full_pattern);
    unmatched_patterns(patterns, &names).map(Reason::with_kernel_pattern).collect()
}

/// Finds those of the patterns that select none of these names. A pattern for every event is
/// never reported.
pub(crate) fn unmatched_patterns(
    patterns: impl Iterator<Item = String>,
    names: &BTreeSet<String>,
) -> impl Iterator<Item = Reason> {
    let is_for_some = |pattern: &String| !matches!(pattern.as_str(), "*" | "*:*");
    let matches_none = |pattern: &String| {
        let only = Selection { patterns: Vec::new(), rules: pattern.clone() };
        !names.iter().any(|name| only.selects(name))
    };
    patterns.filter(is_for_some).filter(matches_none).map(|pattern| Reason::UnmatchedRule {
        near: near_pattern(&pattern, names),
        pattern,
        kernel: None,
    })
}

fn registered_names(window: &Window) -> Vec<String> {
    let events = (0..trackway_abi::window::EVENTS_MAX).filter_map(|index| {
        let bytes = window.description(index)?;
        EventDescription::decode(bytes.as_slice()).ok()
    });
    events.map(|event| event.full_name()).collect()
}

impl Facts {
    fn collect(selection: &Selection, scope: &Scope) -> Self {
        let mut facts = Self::default();
        let mut files = Files::default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_in_scope = |pid: &u32| match scope {
            Scope::All => *pid != std::process::id(),
            Scope::Only(pids) => pids.contains(pid),
        };
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(is_in_scope).take(PROCESSES_MAX) {
            facts.examine(pid, selection, &mut files);
        }
        for (version, pids) in versions::other_versions() {
            let pids = pids.into_iter().filter(is_in_scope);
            let processes: Vec<_> = pids.map(ProcessName::of).collect();
            if processes.is_empty() {
                continue;
            }
            facts.other_versions.insert(version, processes);
        }
        facts
    }

    fn examine(&mut self, pid: u32, selection: &Selection, files: &mut Files) {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let Ok(status) = fs::metadata(&folder) else { return };
        let Some(mapped) = processes::mapped_files(pid) else { return };
        let is_library = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(LIBRARY_PREFIX))
        };
        let has_library = mapped.iter().any(|path| is_library(path));
        let mut is_selected = false;
        for path in mapped.iter().filter(|path| !is_library(path)).take(FILES_OF_PROCESS_MAX) {
            let points = files.points(&folder.join("root"), path);
            is_selected |= points.iter().any(|name| selection.selects(name));
            self.names.extend(points.iter().cloned());
        }
        if is_selected {
            let program = elf::read(&folder.join("exe"));
            self.candidates.push(Candidate {
                process: ProcessName::of(pid),
                uid: status.uid(),
                has_library,
                is_static: program.is_some_and(|module| module.is_static),
            });
        }
    }

    /// Reasons in the order in which they help: what to correct first, then who is not covered.
    fn reasons(&self, selection: &Selection, covered: &[u32]) -> Vec<Reason> {
        let patterns = selection.patterns.iter().cloned();
        let mut reasons: Vec<Reason> = unmatched_patterns(patterns, &self.names).collect();
        let of = |is_meant: &dyn Fn(&Candidate) -> bool| -> Vec<ProcessName> {
            let own = self.candidates.iter().filter(|one| covered.contains(&one.uid));
            let meant = own.filter(|one| is_meant(one));
            let mut processes: Vec<_> = meant.map(|one| one.process.clone()).collect();
            processes.sort();
            processes
        };
        let mut push = |processes: Vec<ProcessName>, reason: fn(Vec<ProcessName>) -> Reason| {
            if !processes.is_empty() {
                reasons.push(reason(processes));
            }
        };
        // Some static programs load and run others (valgrind's tools, emulators).
        push(of(&|one| one.is_static && !one.has_library), Reason::Static);
        push(of(&|one| !one.is_static && !one.has_library), Reason::WithoutLibrary);
        push(of(&|one| one.has_library), Reason::NotExecuted);
        let mut others: BTreeMap<u32, Vec<ProcessName>> = BTreeMap::new();
        for one in self.candidates.iter().filter(|one| !covered.contains(&one.uid)) {
            others.entry(one.uid).or_default().push(one.process.clone());
        }
        reasons.extend(
            others.into_iter().map(|(uid, processes)| Reason::OtherUser { uid, processes }),
        );
        let versions = self.other_versions.iter();
        reasons.extend(versions.map(|(&version, processes)| Reason::OtherVersion {
            version,
            processes: processes.clone(),
        }));
        if reasons.is_empty() {
            reasons.push(Reason::NoSuchEvent);
        }
        reasons
    }
}

impl ProcessName {
    fn of(pid: u32) -> Self {
        Self { pid, name: processes::name_of(pid) }
    }
}

/// Instrumentation points of files, each read once.
#[derive(Debug, Default)]
struct Files(HashMap<(u64, u64), Rc<BTreeSet<String>>>);

impl Files {
    /// Points of the file at `path` below `root`, which reaches other mount namespaces.
    fn points(&mut self, root: &Path, path: &Path) -> Rc<BTreeSet<String>> {
        let inside = root.join(path.strip_prefix("/").unwrap_or(path));
        let Ok(status) = fs::metadata(&inside) else { return Rc::default() };
        let key = (status.dev(), status.ino());
        if let Some(points) = self.0.get(&key) {
            return Rc::clone(points);
        }
        if self.0.len() >= FILES_MAX {
            return Rc::default();
        }
        let module = elf::read(&inside).filter(elf::Module::has_events);
        let points = Rc::new(module.map(|module| module.points).unwrap_or_default());
        self.0.insert(key, Rc::clone(&points));
        points
    }
}

/// What `--kernel` takes for a pattern that kernel events match, as far as this user may read them.
fn kernel_pattern(pattern: &str) -> Option<&str> {
    let name = pattern.strip_suffix(":*").unwrap_or(pattern);
    let catalogue = Catalogue::open().ok()?;
    kernel::Selection::new(&[name]).ok()?.of(catalogue.names()).ok().map(|_| name)
}

/// `12 app, 13 worker`.
struct Listed<'a>(&'a [ProcessName]);

impl Display for Listed<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        for (at, ProcessName { pid, name }) in self.0.iter().take(NAMED_MAX).enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(formatter, "{separator}{pid} {}", name.escape_debug())?;
        }
        match self.0.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchEvent => {
                write!(formatter, "no running process of this user has an event that is selected")
            }
            Self::CommandWithoutEvents => {
                write!(formatter, "nothing was recorded: does the program have events?")
            }
            Self::NothingPassedFilters => {
                write!(formatter, "nothing was recorded: do the filters let anything pass?")
            }
            Self::NotExecuted(processes) => write!(
                formatter,
                "these processes have such events and have not executed one: {}",
                Listed(processes)
            ),
            Self::WithoutLibrary(processes) => write!(
                formatter,
                "these processes have such events, but not the library: {}",
                Listed(processes)
            ),
            Self::Static(processes) => write!(
                formatter,
                "these processes have such events, but are static programs: {}",
                Listed(processes)
            ),
            Self::OtherUser { uid, processes } => write!(
                formatter,
                "these processes have such events, but belong to user {uid}: {}",
                Listed(processes)
            ),
            Self::OtherVersion { version, processes } => write!(
                formatter,
                "these processes use a libtrackway.so {} than this trackway: {}",
                versions::age(*version),
                Listed(processes)
            ),
            Self::UnmatchedRule { pattern, near, .. } => {
                write!(formatter, "'{pattern}' matches no known event")?;
                near.iter().try_for_each(|near| write!(formatter, "; did you mean '{near}'?"))
            }
        }
    }
}

impl Reason {
    /// Its name in JSON, which stays the same when sentences change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchEvent => "no-such-event",
            Self::CommandWithoutEvents => "command-without-events",
            Self::NothingPassedFilters => "nothing-passed-filters",
            Self::NotExecuted(_) => "not-executed",
            Self::WithoutLibrary(_) => "without-library",
            Self::Static(_) => "static",
            Self::OtherUser { .. } => "other-user",
            Self::OtherVersion { .. } => "other-version",
            Self::UnmatchedRule { .. } => "unmatched-rule",
        }
    }

    /// The processes that it is about.
    pub fn processes(&self) -> &[ProcessName] {
        match self {
            Self::NotExecuted(processes)
            | Self::WithoutLibrary(processes)
            | Self::Static(processes)
            | Self::OtherUser { processes, .. }
            | Self::OtherVersion { processes, .. } => processes,
            Self::NoSuchEvent
            | Self::CommandWithoutEvents
            | Self::NothingPassedFilters
            | Self::UnmatchedRule { .. } => &[],
        }
    }

    /// Of a rule that is like no known event: with what selects kernel events of that name.
    /// Reads the kernel's catalogue.
    fn with_kernel_pattern(mut self) -> Self {
        if let Self::UnmatchedRule { pattern, near: None, kernel } = &mut self {
            *kernel = kernel_pattern(pattern).map(str::to_owned);
        }
        self
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        if let Self::UnmatchedRule { kernel: Some(kernel), .. } = self {
            return Some(Cow::Owned(format!(
                "kernel events of that name exist: --kernel '{kernel}' records them"
            )));
        }
        self.fixed_hint().map(Cow::Borrowed)
    }

    fn fixed_hint(&self) -> Option<&'static str> {
        match self {
            Self::NothingPassedFilters => Some("trackway print --filter tries them on a trace"),
            Self::NoSuchEvent | Self::CommandWithoutEvents => Some(
                "trackway list shows the events of running programs; --preload libc,pthread \
                 traces any program",
            ),
            Self::WithoutLibrary(_) => Some(
                "link the program with -ltrackway, or start it with libtrackway.so.1 in LD_PRELOAD",
            ),
            Self::Static(_) => Some("link the program dynamically"),
            Self::OtherUser { .. } => {
                Some("record as that user, or as root with trackway session create --user")
            }
            Self::OtherVersion { version, .. } => Some(versions::advice(*version)),
            Self::NotExecuted(_) | Self::UnmatchedRule { .. } => None,
        }
    }

    /// Reports it with what to do about it.
    pub(crate) fn report(&self, notices: &Notices) {
        match (self, self.hint()) {
            // The summary before says what happened: the whole of these is advice.
            (Self::CommandWithoutEvents | Self::NothingPassedFilters, Some(hint)) => {
                notices.hint(format_args!("{self} {hint}"));
            }
            (_, hint) => {
                notices.say(format_args!("{self}"));
                hint.iter().for_each(|hint| notices.hint(format_args!("{hint}")));
            }
        }
    }

    /// Whether the processes of the reason can never be recorded as they run now.
    pub const fn excludes_processes(&self) -> bool {
        matches!(self, Self::WithoutLibrary(_) | Self::Static(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> ProcessName {
        ProcessName { pid, name: format!("app{pid}") }
    }

    fn facts() -> Facts {
        let candidate = |pid, uid, has_library, is_static| Candidate {
            process: process(pid),
            uid,
            has_library,
            is_static,
        };
        Facts {
            candidates: vec![
                candidate(1, 7, true, false),
                candidate(2, 7, false, false),
                candidate(3, 7, false, true),
                candidate(4, 8, false, false),
            ],
            names: BTreeSet::from(["myapp:request".to_owned()]),
            other_versions: BTreeMap::from([(0, vec![process(5)])]),
        }
    }

    #[test]
    fn every_process_has_the_reason_that_applies_to_it() {
        assert_eq!(
            facts().reasons(&Selection::all(), &[7]),
            [
                Reason::Static(vec![process(3)]),
                Reason::WithoutLibrary(vec![process(2)]),
                Reason::NotExecuted(vec![process(1)]),
                Reason::OtherUser { uid: 8, processes: vec![process(4)] },
                Reason::OtherVersion { version: 0, processes: vec![process(5)] },
            ]
        );
        assert_eq!(Facts::default().reasons(&Selection::all(), &[7]), [Reason::NoSuchEvent]);
    }

    #[test]
    fn patterns_without_an_event_are_found_with_what_is_like_them() {
        let names = ["myapp:request", "myapp:noise", "db:query", "db:slow_query"];
        let names: BTreeSet<String> = names.map(str::to_owned).into();
        let found = |pattern: &str| {
            let pattern = RuleSpec::new(pattern).full_pattern();
            match unmatched_patterns(std::iter::once(pattern), &names).next() {
                Some(Reason::UnmatchedRule { pattern, near, .. }) => Some((pattern, near)),
                _ => None,
            }
        };
        for (pattern, near) in [
            ("myap:*", Some("myapp:*")),
            ("myap", Some("myapp:*")),
            ("MyApp:req*", Some("myapp:req*")),
            ("myapp:reqest", Some("myapp:request")),
            ("mapp:reqest", Some("myapp:request")),
            ("*:reqest", Some("*:request")),
            ("dv:query", Some("db:query")),
            ("web:*", None),
            ("myapp:*quest_*", None),
            ("db:insert", None),
        ] {
            let (full, found) = found(pattern).unwrap_or_else(|| panic!("{pattern} matches"));
            assert_eq!(found.as_deref(), near, "{pattern}");
            assert!(full.contains(':'), "{full}");
        }
        for pattern in ["*", "*:*", "db", "myapp:req*"] {
            assert_eq!(found(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn a_rule_without_an_event_names_the_pattern_that_is_like_it() {
        let patterns = ["myapp:reqest", "web", "myapp:*", "*", "!other:*"].map(str::to_owned);
        let selection = Selection::of_patterns(&patterns, "myapp:reqest\nweb:*\nmyapp:*\n*");
        let facts = Facts { candidates: Vec::new(), other_versions: BTreeMap::new(), ..facts() };
        let unmatched = |pattern: &str, near: Option<&str>| Reason::UnmatchedRule {
            pattern: pattern.to_owned(),
            near: near.map(str::to_owned),
            kernel: None,
        };
        assert_eq!(
            facts.reasons(&selection, &[7]),
            [unmatched("myapp:reqest", Some("myapp:request")), unmatched("web:*", None)]
        );
    }

    #[test]
    fn sentences_name_a_bounded_number_of_processes_and_escape_names() {
        let mut processes: Vec<ProcessName> = (1..=10).map(process).collect();
        processes[0].name = "a\x1b[1m".to_owned();
        let text = Reason::WithoutLibrary(processes).to_string();
        assert!(
            text.contains(": 1 a\\u{1b}[1m, 2 app2, ") && text.ends_with("and 2 more"),
            "{text}"
        );
    }
}
