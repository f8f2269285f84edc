//! Reasons why a recording has no event, and their sentences.

use std::borrow::Cow;
use std::fmt::{Display, Formatter};

use trackway_kernel::catalogue::{Catalogue, select as kernel};

use crate::command::library_versions;
use crate::notices::Notices;
use crate::window::processes;

/// Highest number of processes that a sentence names.
const NAMED_MAX: usize = 8;

/// Id and name of a running process in a reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessName {
    /// Id of the process.
    pub pid: u32,
    /// Command name of the process (proc_pid_comm(5)).
    pub name: String,
}

/// Reason why a recording has no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No running process of a recorded user has an event that the rules select.
    NoProcessHasEvent,
    /// The session is stopped.
    Stopped {
        /// Name of the session.
        session: String,
    },
    /// The recorded command ended without an event.
    CommandWithoutEvents,
    /// No event of these processes passed the filters; an empty list: of the recorded command.
    NothingPassedFilters(Vec<ProcessName>),
    /// The processes have selected, unfiltered events and are in the window, but executed none.
    NotExecuted(Vec<ProcessName>),
    /// The processes have selected events and the library, but are not in their user's window.
    OtherWindow(Vec<ProcessName>),
    /// The process rules exclude all of these processes, which have selected events.
    Excluded(Vec<ProcessName>),
    /// The processes have selected events, but run without the library.
    WithoutLibrary(Vec<ProcessName>),
    /// The processes have selected events, but are static programs: they cannot load the library.
    Static(Vec<ProcessName>),
    /// The processes have selected events, but belong to a user that this recording does not cover.
    OtherUser {
        /// Id of the user.
        uid: u32,
        /// Processes of the user.
        processes: Vec<ProcessName>,
    },
    /// The processes use the window of another version of the library.
    OtherVersion {
        /// Version of the other window.
        version: u32,
        /// Processes that use the other window.
        processes: Vec<ProcessName>,
    },
    /// A rule selects none of the known events.
    UnmatchedRule {
        /// Pattern of the rule, `provider:name`.
        pattern: String,
        /// Similar pattern that selects a known event.
        near: Option<String>,
        /// Pattern that selects kernel events of the same name (`--kernel`), if no user event is
        /// similar.
        kernel: Option<String>,
    },
}

impl ProcessName {
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, name: processes::command_name_of(pid) }
    }
}

/// Returns the pattern for `--kernel` that matches kernel events of this name, as far as this user
/// may read their names.
fn kernel_pattern(pattern: &str) -> Option<&str> {
    let name = pattern.strip_suffix(":*").unwrap_or(pattern);
    let catalogue = Catalogue::open().ok()?;
    kernel::Selection::new(&[name]).ok()?.select_from(catalogue.names()).ok().map(|_| name)
}

/// Displays processes: `12 app, 13 worker`.
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
            Self::NoProcessHasEvent => {
                write!(
                    formatter,
                    "no running process of a recorded user has an event that is selected"
                )
            }
            Self::Stopped { session } => {
                write!(formatter, "the session '{}' was stopped", session.escape_debug())
            }
            Self::CommandWithoutEvents => {
                write!(formatter, "nothing was recorded: does the program have events?")
            }
            Self::NothingPassedFilters(processes) if processes.is_empty() => {
                write!(formatter, "nothing was recorded: do the filters let anything pass?")
            }
            Self::NothingPassedFilters(processes) => write!(
                formatter,
                "no event of these processes has passed the filters: {}",
                Listed(processes)
            ),
            Self::NotExecuted(processes) => write!(
                formatter,
                "these processes have such events and have executed none while the session \
                 recorded: {}",
                Listed(processes)
            ),
            Self::OtherWindow(processes) => write!(
                formatter,
                "these processes have such events, but use another window than this session, or \
                 none: {}",
                Listed(processes)
            ),
            Self::Excluded(processes) => write!(
                formatter,
                "these processes have such events, but the process rules exclude them: {}",
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
                library_versions::describe_age(*version),
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
    /// Returns the reason's name in JSON, which stays fixed when sentences change.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoProcessHasEvent => "no-such-event",
            Self::Stopped { .. } => "stopped",
            Self::CommandWithoutEvents => "command-without-events",
            Self::NothingPassedFilters(_) => "nothing-passed-filters",
            Self::NotExecuted(_) => "not-executed",
            Self::OtherWindow(_) => "other-window",
            Self::Excluded(_) => "excluded",
            Self::WithoutLibrary(_) => "without-library",
            Self::Static(_) => "static",
            Self::OtherUser { .. } => "other-user",
            Self::OtherVersion { .. } => "other-version",
            Self::UnmatchedRule { .. } => "unmatched-rule",
        }
    }

    /// Returns the processes in the reason.
    pub fn processes(&self) -> &[ProcessName] {
        match self {
            Self::NothingPassedFilters(processes)
            | Self::NotExecuted(processes)
            | Self::OtherWindow(processes)
            | Self::Excluded(processes)
            | Self::WithoutLibrary(processes)
            | Self::Static(processes)
            | Self::OtherUser { processes, .. }
            | Self::OtherVersion { processes, .. } => processes,
            Self::NoProcessHasEvent
            | Self::Stopped { .. }
            | Self::CommandWithoutEvents
            | Self::UnmatchedRule { .. } => &[],
        }
    }

    /// Adds the pattern that selects kernel events of that name to a rule that is similar to no
    /// known event. Reads the kernel's catalogue.
    pub(super) fn with_kernel_pattern(mut self) -> Self {
        if let Self::UnmatchedRule { pattern, near: None, kernel } = &mut self {
            *kernel = kernel_pattern(pattern).map(str::to_owned);
        }
        self
    }

    /// Returns the remedy for the reason, if there is one.
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
            Self::NothingPassedFilters(_) => Some("trackway print --filter tries them on a trace"),
            Self::NoProcessHasEvent | Self::CommandWithoutEvents => Some(
                "trackway list shows the events of running programs; --preload libc,pthread \
                 traces any program",
            ),
            Self::WithoutLibrary(_) => Some(
                "link the program with -ltrackway, or start it with libtrackway.so.1 in LD_PRELOAD",
            ),
            Self::Static(_) => Some("link the program dynamically"),
            Self::OtherWindow(_) => Some(
                "give session and programs the same TRACKWAY_WINDOW_DIR; a container needs the \
                 /dev/shm of the recorder, or a recorder inside",
            ),
            Self::Excluded(_) => {
                Some("--pid, --executable and --pid-namespace choose a channel's processes")
            }
            Self::OtherUser { .. } => {
                Some("record as that user, or as root with trackway session create --user")
            }
            Self::OtherVersion { version, .. } => {
                Some(library_versions::remedy_for_version(*version))
            }
            Self::NotExecuted(_) | Self::Stopped { .. } | Self::UnmatchedRule { .. } => None,
        }
    }

    /// Reports the reason with its remedy.
    pub(crate) fn report(&self, notices: &Notices) {
        match (self, self.hint()) {
            // The summary before reports the lack of events; these lines are hints for it.
            (Self::CommandWithoutEvents, Some(hint)) => {
                notices.hint(format_args!("{self} {hint}"));
            }
            (Self::NothingPassedFilters(processes), Some(hint)) if processes.is_empty() => {
                notices.hint(format_args!("{self} {hint}"));
            }
            (_, hint) => {
                notices.report(format_args!("{self}"));
                hint.iter().for_each(|hint| notices.hint(format_args!("{hint}")));
            }
        }
    }

    /// Returns true if the reason applies only to a session that is recording.
    pub(super) const fn needs_recording(&self) -> bool {
        matches!(self, Self::NotExecuted(_) | Self::NothingPassedFilters(_))
    }

    /// Returns true if the reason's processes can never be recorded in their present run.
    pub const fn excludes_processes(&self) -> bool {
        matches!(self, Self::WithoutLibrary(_) | Self::Static(_))
    }
}
