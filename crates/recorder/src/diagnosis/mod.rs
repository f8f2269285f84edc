//! Diagnosis of a recording without events: one function finds the reasons, one place formats them
//! as sentences. A reason claims only facts that were read.
//!
//! The reasons come from the users' windows and from /proc, so they describe the present: a process
//! that has ended gives none. Files and /proc are read with bounds; unreadable data gives no
//! reason. Callers branch on the variant of a [`Reason`], never on its wording.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, state};
use trackway_session::{RuleSpec, USERS_MAX};
use trackway_window::Window;

use crate::command::library_versions::Windows;
use crate::elf;
use crate::filters::unmatched::nearest_pattern;
use crate::window::handle::WindowHandle;
use crate::window::processes;

use coverage::{CoveredUsers, UserWindows};

pub use self::reason::{ProcessName, Reason};
pub use selection::Selection;
use selection::{EventOutcome, ProcessOutcome, ProcessProperties, rules_select};

mod coverage;
mod reason;
mod selection;

/// Highest number of processes that are examined.
const PROCESSES_MAX: usize = 4096;
/// Highest number of files that are read for all processes together.
const FILES_MAX: usize = 4096;
/// Highest number of mapped files that are examined for one process.
const FILES_OF_PROCESS_MAX: usize = 256;
/// Log levels of an event whose description is unknown.
const ANY_LEVEL: &[u8] = &[];
/// Prefix of the file names of Trackway's library.
const LIBRARY_PREFIX: &str = "libtrackway.so";

/// A process with events that a recording selects.
#[derive(Debug, Clone)]
struct Candidate {
    process: ProcessName,
    uid: u32,
    is_static: bool,
    /// True if the process has the library mapped, or is in the window.
    has_library: bool,
    /// True if the process is in a window; `None` if its user has no window to compare with.
    is_in_window: Option<bool>,
    /// True if each channel that selects the process filters some of its events.
    is_filtered: bool,
    /// True if the process rules select the process.
    is_selected: bool,
}

/// Running processes that a diagnosis examines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All processes in /proc.
    All,
    /// Only these processes: a command and its descendants.
    Only(BTreeSet<u32>),
}

/// Facts that are known at this moment.
#[derive(Debug, Default)]
struct Facts {
    candidates: Vec<Candidate>,
    /// Full names of the events in the windows and in the processes' files.
    names: BTreeSet<String>,
    other_versions: BTreeMap<u32, Vec<ProcessName>>,
    /// True if some process may be a candidate, since its events or process rules are unknown.
    has_unknown: bool,
}

/// Session that has no event.
#[derive(Debug)]
pub struct SilentSession<'a> {
    /// Name of the session.
    pub name: &'a str,
    /// Events and processes that the session selects.
    pub selection: &'a Selection,
    /// Users whose programs the session records, as specified; empty for its own user only.
    pub users_wanted: &'a [String],
    /// Users whose windows the session records, if it specifies users.
    pub users_recorded: &'a [u32],
    /// True if the session is recording; false if it is stopped.
    pub is_recording: bool,
}

/// State with which processes are compared.
struct DiagnosisContext<'a> {
    selection: &'a Selection,
    user_windows: &'a UserWindows,
    windows: Windows,
    files: InstrumentationCache,
}

impl DiagnosisContext<'_> {
    fn is_in_window(&self, pid: u32, uid: u32) -> Option<bool> {
        if self.user_windows.has_process(pid) {
            return Some(true);
        }
        // A fork child enters the table with its first event, and has the window mapped before.
        self.user_windows.can_decide_for(uid).then(|| self.windows.is_ours_in(pid))
    }
}

/// Finds the reasons why a recording of this user with this selection has no event.
pub fn diagnose(selection: &Selection) -> Vec<Reason> {
    let own = crate::common::user::effective_uid();
    let windows = UserWindows::open_and_read([own], |_, _| true);
    diagnose_with(selection, &windows, &CoveredUsers::own(), &Scope::All)
}

/// Finds the reasons why a background session has no event. Gives no reasons about windows of users
/// whose window the session does not record, as seen from this process.
pub fn diagnose_session(session: &SilentSession<'_>) -> Vec<Reason> {
    let SilentSession { name, selection, users_wanted, users_recorded, is_recording } = *session;
    let covered = CoveredUsers::of(users_wanted);
    let own = crate::common::user::effective_uid();
    let users: Vec<u32> = match users_wanted {
        [] => vec![own],
        _ => users_recorded.iter().copied().take(USERS_MAX).collect(),
    };
    let windows = UserWindows::open_and_read(users, |window, uid| has_session(window, uid, name));
    let reasons = diagnose_with(selection, &windows, &covered, &Scope::All).into_iter();
    if is_recording {
        return reasons.collect();
    }
    // Processes that may have executed events after the session stopped prove nothing.
    let stopped = Reason::Stopped { session: name.to_owned() };
    std::iter::once(stopped).chain(reasons.filter(|reason| !reason.needs_recording())).collect()
}

/// Returns true if the session records into the window of user `uid`, or is stopped there. Other
/// users' windows contain no names of root's sessions: there any session of this user counts.
fn has_session(window: &Window, uid: u32, name: &str) -> bool {
    let own = crate::common::user::effective_uid();
    let name = if uid == own { name } else { "" };
    (0..SESSIONS_MAX).map(|index| window.session(index)).any(|session| {
        // ORDERING: Acquire pairs with the recorder's store of ACTIVE: name and user were there.
        let is_active = session.state.load(Ordering::Acquire) == state::ACTIVE;
        let bytes = session.name_bytes.load(Ordering::Relaxed) as usize;
        let shared = session.name.iter().take(bytes).map(|byte| byte.load(Ordering::Relaxed));
        let is_ours = session.uid.load(Ordering::Relaxed) == own;
        is_active && is_ours && shared.eq(name.bytes())
    })
}

/// Finds the reasons with an open window of this user; `window` is `None` if there is no window.
pub(crate) fn diagnose_in(
    selection: &Selection,
    window: Option<&Window>,
    scope: &Scope,
) -> Vec<Reason> {
    let mut windows = UserWindows::default();
    if let Some(window) = window {
        windows.read(crate::common::user::effective_uid(), window);
    }
    diagnose_with(selection, &windows, &CoveredUsers::own(), scope)
}

fn diagnose_with(
    selection: &Selection,
    windows: &UserWindows,
    covered: &CoveredUsers,
    scope: &Scope,
) -> Vec<Reason> {
    let mut facts = Facts::collect(selection, windows, scope);
    facts.names.extend(windows.names().cloned());
    let reasons = facts.reasons(selection, covered).into_iter();
    reasons.map(Reason::with_kernel_pattern).collect()
}

/// Returns reasons for rules that select no event that programs of this user have registered.
/// Programs that start later may have matching events.
pub fn unmatched_rules<'rules>(rules: impl Iterator<Item = &'rules RuleSpec>) -> Vec<Reason> {
    // Without a window that can be opened, there is nothing to compare with.
    let Ok(names) = WindowHandle::inspect(coverage::registered_names) else { return Vec::new() };
    let names = names.unwrap_or_default().into_iter().collect();
    let patterns = rules.filter(|rule| !rule.excludes()).map(RuleSpec::full_pattern);
    unmatched_patterns(patterns, &names).map(Reason::with_kernel_pattern).collect()
}

/// Returns a reason for each pattern that selects none of `names`, except for patterns that select
/// every event.
pub(crate) fn unmatched_patterns(
    patterns: impl Iterator<Item = String>,
    names: &BTreeSet<String>,
) -> impl Iterator<Item = Reason> {
    let is_for_some = |pattern: &String| !matches!(pattern.as_str(), "*" | "*:*");
    let matches_none =
        |pattern: &String| !names.iter().any(|name| rules_select(pattern, name, ANY_LEVEL));
    patterns.filter(is_for_some).filter(matches_none).map(|pattern| Reason::UnmatchedRule {
        near: nearest_pattern(&pattern, names),
        pattern,
        kernel: None,
    })
}

impl Facts {
    fn collect(selection: &Selection, user_windows: &UserWindows, scope: &Scope) -> Self {
        let mut facts = Self::default();
        let windows = Windows::scan_users(user_windows.users());
        let mut context = DiagnosisContext {
            selection,
            user_windows,
            windows,
            files: InstrumentationCache::default(),
        };
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let is_in_scope = |pid: &u32| match scope {
            Scope::All => *pid != std::process::id(),
            Scope::Only(pids) => pids.contains(pid),
        };
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids.filter(is_in_scope).take(PROCESSES_MAX) {
            facts.examine(pid, &mut context);
        }
        facts
    }

    fn examine(&mut self, pid: u32, context: &mut DiagnosisContext<'_>) {
        let DiagnosisContext { selection, windows, files, .. } = context;
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let Ok(status) = fs::metadata(&folder) else { return };
        let Some(mapped) = processes::mapped_executables(pid) else { return };
        let programs = mapped.iter().filter(|path| !is_library(path)).take(FILES_OF_PROCESS_MAX);
        let root = folder.join("root");
        let points: Vec<_> = programs.map(|path| files.points(&root, path)).collect();
        let events = || points.iter().flat_map(|points| points.iter());
        self.names.extend(events().map(|(name, _)| name.clone()));
        let outcomes: BTreeSet<EventOutcome> =
            events().map(|(name, levels)| selection.outcome_in_any_process(name, levels)).collect();
        let has_events = outcomes.iter().any(|outcome| *outcome != EventOutcome::Unselected);
        let version = windows.other_version_of(pid);
        if !has_events && version.is_none() {
            return;
        }
        let is_in_window = context.is_in_window(pid, status.uid());
        let has_library = is_in_window == Some(true) || mapped.iter().any(|path| is_library(path));
        let is_static =
            elf::read_module(&folder.join("exe")).is_some_and(|module| module.is_static);
        // A program that runs another one, like valgrind, is not the traced program itself.
        let executable = executable_path(&folder).filter(|_| !is_static || !has_library);
        let subject = ProcessProperties {
            id: processes::innermost_id_of(pid).ok(),
            executable: executable.as_deref(),
        };
        let process_outcome = context.selection.process_outcome(&subject);
        if let Some(version) = version {
            if process_outcome == ProcessOutcome::Selected {
                self.other_versions.entry(version).or_default().push(ProcessName::of(pid));
            }
            return;
        }
        let outcomes = match process_outcome {
            ProcessOutcome::Selected => events()
                .map(|(name, levels)| context.selection.event_outcome(&subject, name, levels))
                .collect(),
            ProcessOutcome::Excluded => outcomes,
            ProcessOutcome::Unknown => {
                self.has_unknown = true;
                return;
            }
        };
        // The events of one channel and the processes of another channel select nothing together.
        if outcomes.iter().all(|outcome| *outcome == EventOutcome::Unselected) {
            return;
        }
        self.candidates.push(Candidate {
            process: ProcessName::of(pid),
            uid: status.uid(),
            is_static,
            has_library,
            is_in_window,
            is_filtered: outcomes.contains(&EventOutcome::Filtered),
            is_selected: process_outcome == ProcessOutcome::Selected,
        });
    }

    /// Returns reasons in order of usefulness: first mistakes to correct, then processes that are
    /// not covered.
    fn reasons(&self, selection: &Selection, covered: &CoveredUsers) -> Vec<Reason> {
        let mut reasons: Vec<Reason> =
            unmatched_patterns(selection.patterns(), &self.names).collect();
        let selected = || self.candidates.iter().filter(|one| one.is_selected);
        let of_user = |uid: u32| covered.has(uid);
        for (reason, is_meant) in Candidate::REASON_RULES {
            let meant = selected().filter(|one| of_user(one.uid) && is_meant(one));
            reasons.extend(sorted_processes(meant).map(reason));
        }
        let mut others: BTreeMap<u32, Vec<ProcessName>> = BTreeMap::new();
        for one in selected().filter(|one| !of_user(one.uid)) {
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
        // A selected process may have no known reason.
        if reasons.is_empty() && selected().next().is_none() {
            let excluded = sorted_processes(self.candidates.iter().filter(|one| of_user(one.uid)));
            let none = (!self.has_unknown).then_some(Reason::NoProcessHasEvent);
            reasons.extend(excluded.map(Reason::Excluded).or(none));
        }
        reasons
    }
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(LIBRARY_PREFIX))
}

/// Returns the path of a process's program at its start (proc_pid_exe(5)).
fn executable_path(folder: &Path) -> Option<PathBuf> {
    let path = fs::read_link(folder.join("exe")).ok()?;
    let bytes = path.as_os_str().as_bytes();
    Some(OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes)).into())
}

/// A reason, with a condition for the covered users' candidates to which the reason applies.
type ReasonRule = (fn(Vec<ProcessName>) -> Reason, fn(&Candidate) -> bool);

impl Candidate {
    /// Rules by which a candidate gets a reason; at most one rule applies to a candidate.
    const REASON_RULES: [ReasonRule; 5] = [
        (Reason::Static, |one| one.is_static && !one.has_library),
        (Reason::WithoutLibrary, |one| !one.is_static && !one.has_library),
        (Reason::OtherWindow, |one| one.has_library && one.is_in_window == Some(false)),
        (Reason::NothingPassedFilters, |one| one.is_in_window == Some(true) && one.is_filtered),
        (Reason::NotExecuted, |one| one.is_in_window == Some(true) && !one.is_filtered),
    ];
}

/// Returns the sorted names of the processes; `None` if there are none.
fn sorted_processes<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Option<Vec<ProcessName>> {
    let mut processes: Vec<_> = candidates.map(|one| one.process.clone()).collect();
    processes.sort();
    (!processes.is_empty()).then_some(processes)
}

/// Full names of events, with the log levels of their descriptions; no levels if unknown.
type EventLevels = BTreeMap<String, Vec<u8>>;

/// Cache of the instrumentation points of files, each of which is read once.
#[derive(Debug, Default)]
struct InstrumentationCache(HashMap<(u64, u64), Rc<EventLevels>>);

impl InstrumentationCache {
    /// Returns the points of the file at `path` below `root`, which reaches other mount namespaces.
    fn points(&mut self, root: &Path, path: &Path) -> Rc<EventLevels> {
        let inside = root.join(path.strip_prefix("/").unwrap_or(path));
        let Ok(status) = fs::metadata(&inside) else { return Rc::default() };
        let key = (status.dev(), status.ino());
        if let Some(points) = self.0.get(&key) {
            return Rc::clone(points);
        }
        if self.0.len() >= FILES_MAX {
            return Rc::default();
        }
        let module = elf::read_module(&inside).filter(elf::Module::has_events);
        let points = Rc::new(module.map(event_levels_of).unwrap_or_default());
        self.0.insert(key, Rc::clone(&points));
        points
    }
}

fn event_levels_of(module: elf::Module) -> EventLevels {
    let mut points: EventLevels =
        module.points.into_iter().map(|name| (name, Vec::new())).collect();
    for event in module.events.into_iter().flatten() {
        if let Some(levels) = points.get_mut(&event.full_name()) {
            levels.push(event.level);
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use trackway_session::ChannelSpec;

    use super::*;

    fn build_process(pid: u32) -> ProcessName {
        ProcessName { pid, name: format!("app{pid}") }
    }

    fn build_candidate(pid: u32) -> Candidate {
        Candidate {
            process: build_process(pid),
            uid: 7,
            is_static: false,
            has_library: true,
            is_in_window: Some(true),
            is_filtered: false,
            is_selected: true,
        }
    }

    fn build_facts(candidates: impl Into<Vec<Candidate>>) -> Facts {
        Facts {
            candidates: candidates.into(),
            names: BTreeSet::from(["myapp:request".to_owned()]),
            ..Facts::default()
        }
    }

    fn find_reasons(facts: &Facts) -> Vec<Reason> {
        facts.reasons(&Selection::all(), &CoveredUsers::These([7].into()))
    }

    #[test]
    fn every_process_has_the_reason_that_applies_to_it() {
        let outside = Some(false);
        let without = Candidate { has_library: false, is_in_window: outside, ..build_candidate(2) };
        let mut facts = build_facts([
            build_candidate(1),
            without.clone(),
            Candidate { process: build_process(3), is_static: true, ..without.clone() },
            Candidate { process: build_process(4), uid: 8, ..without.clone() },
            Candidate { is_filtered: true, ..build_candidate(6) },
            Candidate { is_in_window: outside, ..build_candidate(7) },
            Candidate { is_static: true, ..build_candidate(8) },
            Candidate { is_selected: false, ..build_candidate(9) },
            Candidate { is_selected: false, process: build_process(10), uid: 8, ..without },
        ]);
        facts.other_versions = BTreeMap::from([(0, vec![build_process(5)])]);
        assert_eq!(
            find_reasons(&facts),
            [
                Reason::Static(vec![build_process(3)]),
                Reason::WithoutLibrary(vec![build_process(2)]),
                Reason::OtherWindow(vec![build_process(7)]),
                Reason::NothingPassedFilters(vec![build_process(6)]),
                Reason::NotExecuted(vec![build_process(1), build_process(8)]),
                Reason::OtherUser { uid: 8, processes: vec![build_process(4)] },
                Reason::OtherVersion { version: 0, processes: vec![build_process(5)] },
            ]
        );
        assert_eq!(find_reasons(&Facts::default()), [Reason::NoProcessHasEvent]);
    }

    #[test]
    fn excluded_processes_are_named_where_nobody_else_has_the_events() {
        let excluded = Candidate { is_selected: false, ..build_candidate(1) };
        let others = Candidate { uid: 8, process: build_process(2), ..excluded.clone() };
        assert_eq!(
            find_reasons(&build_facts([excluded, others.clone()])),
            [Reason::Excluded(vec![build_process(1)])]
        );
        assert_eq!(find_reasons(&build_facts([others])), [Reason::NoProcessHasEvent]);
    }

    #[test]
    fn nothing_is_claimed_of_what_is_not_known() {
        let anywhere = Candidate { is_in_window: None, ..build_candidate(1) };
        assert_eq!(find_reasons(&build_facts([anywhere])), []);
        assert_eq!(find_reasons(&Facts { has_unknown: true, ..Facts::default() }), []);
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
        let on = Some(patterns.iter().map(RuleSpec::new).collect());
        let channel = ChannelSpec { on, ..ChannelSpec::default() };
        let selection = Selection::of(std::iter::once(&channel));
        let facts = build_facts([]);
        let unmatched = |pattern: &str, near: Option<&str>| Reason::UnmatchedRule {
            pattern: pattern.to_owned(),
            near: near.map(str::to_owned),
            kernel: None,
        };
        assert_eq!(
            facts.reasons(&selection, &CoveredUsers::These([7].into())),
            [unmatched("myapp:reqest", Some("myapp:request")), unmatched("web:*", None)]
        );
    }

    #[test]
    fn sentences_name_a_bounded_number_of_processes_and_escape_names() {
        let mut processes: Vec<ProcessName> = (1..=10).map(build_process).collect();
        processes[0].name = "a\x1b[1m".to_owned();
        let text = Reason::WithoutLibrary(processes).to_string();
        assert!(
            text.contains(": 1 a\\u{1b}[1m, 2 app2, ") && text.ends_with("and 2 more"),
            "{text}"
        );
    }
}
