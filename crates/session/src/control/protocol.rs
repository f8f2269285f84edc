//! The protocol of a session's control socket: one JSON object per line, in each direction.
//!
//! ```text
//! → {"version":1,"ask":"events-off","patterns":["app:noise"]}
//! ← {"answer":"done","warnings":[]}
//! ```
//!
//! The recorder refuses a request of another version, and reports its own version. Requests have at
//! most [`LINE_BYTES_MAX`] bytes, answers [`ANSWER_BYTES_MAX`].

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::CHANNELS_MAX;
use crate::{
    ChannelSpec, FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FilterSource, KernelSpec, Mode,
    RuleSpec, SessionSpec,
};

/// Version of the protocol: it increases when an old client could misunderstand a recorder.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest request, in bytes, without the newline.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// Longest answer, in bytes: all channels of a user, with the longest rules and filters.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Bytes of a channel's filters in a line; each object byte takes two digits.
const FILTERS_LINE_BYTES: usize = 2 * (FILTER_OBJECTS_BYTES_MAX + FILTERS_BYTES_MAX);
const _: () = assert!(FILTERS_LINE_BYTES < LINE_BYTES_MAX);
const _: () = assert!(CHANNELS_MAX * FILTERS_LINE_BYTES < ANSWER_BYTES_MAX);

/// A line that a client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The client's [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The client's request.
    #[serde(flatten)]
    pub request: Request,
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// Report the session's status.
    Status,
    /// Report the session's specification, as a session file would contain it.
    Spec,
    /// Start recording.
    Start,
    /// Stop recording until the next start. Before the answer, all earlier events are written to
    /// the trace. If some could not be written, the request is refused, but the session is stopped.
    Stop,
    /// End the session.
    Destroy,
    /// Discard all recorded events.
    Clear,
    /// Write the contents of flight recorders.
    Snapshot {
        /// The destination folder; `None`: the next numbered folder of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<PathBuf>,
        /// The maximum age of the snapshot's events, in ns; `None`: all events.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_ns: Option<u64>,
    },
    /// Write events to the trace immediately, while the connection lasts.
    Follow,
    /// Add a channel.
    AddChannel {
        /// The channel to add.
        channel: ChannelSpec,
    },
    /// Change a channel.
    SetChannel {
        /// The channel's name.
        channel: String,
        /// The change of the channel.
        #[serde(flatten)]
        change: ChannelChange,
    },
    /// Remove a channel.
    RemoveChannel {
        /// The channel's name.
        channel: String,
    },
    /// Enable events.
    EventsOn {
        /// The channel's name; `None`: the only channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// The rules that select events.
        rules: Vec<RuleSpec>,
        /// True to replace all existing rules.
        #[serde(default)]
        only: bool,
        /// The filter for these events; an empty expression removes it; `None`: unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<FilterSource>,
    },
    /// Disable events.
    EventsOff {
        /// The channel's name; `None`: the only channel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// The patterns of events.
        patterns: Vec<String>,
    },
    /// Enable kernel events.
    KernelOn {
        /// Patterns of kernel events, as in [`KernelSpec`].
        patterns: Vec<String>,
        /// The filter for these events, as in [`Self::EventsOn`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<FilterSource>,
    },
    /// Disable kernel events.
    KernelOff {
        /// The patterns of kernel events.
        patterns: Vec<String>,
    },
}

/// A change of a channel; absent members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ChannelChange {
    /// The new mode: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The new blocking timeout; zero: programs do not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_timeout_ns: Option<u64>,
    /// The new buffer size: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_size: Option<u64>,
    /// The new number of sub-buffers: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_buffers: Option<u64>,
    /// The new size of trace files: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_size: Option<u64>,
    /// The new number of trace files: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
    /// The new contexts: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contexts: Option<Vec<String>>,
    /// The new processes: see [`ChannelSpec`]; an empty list: any process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<u32>>,
    /// The new executables: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executables: Option<Vec<String>>,
    /// The new process-id namespaces: see [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_namespaces: Option<Vec<u64>>,
}

impl ChannelChange {
    /// Returns a channel's specification with this change.
    pub fn apply_to(self, channel: &ChannelSpec) -> ChannelSpec {
        let mut changed = channel.clone();
        if let Some(mode) = self.mode {
            changed.mode = mode;
        }
        if let Some(ns) = self.blocking_timeout_ns {
            changed.blocking_timeout = (ns > 0).then(|| Duration::from_nanos(ns));
        }
        changed.buffer_size = self.buffer_size.or(changed.buffer_size);
        changed.sub_buffers = self.sub_buffers.or(changed.sub_buffers);
        let bound =
            |said: Option<u64>, before| said.map_or(before, |bound| (bound > 0).then_some(bound));
        changed.tracefile_size = bound(self.tracefile_size, changed.tracefile_size);
        changed.tracefile_count = bound(self.tracefile_count, changed.tracefile_count);
        replace_if_some(&mut changed.contexts, self.contexts);
        replace_if_some(&mut changed.pids, self.pids);
        replace_if_some(&mut changed.executables, self.executables);
        replace_if_some(&mut changed.pid_namespaces, self.pid_namespaces);
        changed
    }
}

fn replace_if_some<T>(place: &mut T, with: Option<T>) {
    if let Some(with) = with {
        *place = with;
    }
}

/// A recorder's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The request succeeded.
    Done {
        /// Warnings for the user.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// The request was refused, and has changed nothing.
    Refused(Refusal),
    /// The session's status.
    Status(Box<Status>),
    /// The session's specification.
    Spec(Box<SessionSpec>),
    /// A snapshot was written.
    Snapshot(SnapshotFacts),
    /// The session has ended.
    Ended(Box<Counts>),
    /// Events are immediately written to the traces in these folders.
    Following {
        /// The folders of the traces.
        folders: Vec<PathBuf>,
    },
}

/// The reason why a request was refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    pub why: String,
    /// Advice for the user, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// True if root would not be refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_root: bool,
}

impl Refusal {
    /// Creates a refusal without advice.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None, needs_root: false }
    }

    /// Returns the refusal, marked as one that root would not receive.
    #[must_use]
    pub fn with_root_needed(self) -> Self {
        Self { needs_root: true, ..self }
    }

    /// Returns the refusal with advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A written snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotFacts {
    /// The snapshot's folder.
    pub folder: PathBuf,
    /// Number of events in the snapshot.
    pub events: u64,
    /// The snapshot's size in bytes.
    pub bytes: u64,
    /// The users whose events could not be written, with the reasons, in a session over several
    /// users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Numbers of events, and the size of the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Recorded events, in the trace or still in the buffers.
    pub recorded: u64,
    /// Events lost because a buffer was full.
    pub lost: u64,
    /// Events overwritten by newer ones, as far as the number is known.
    pub overwritten: u64,
    /// Recorded events in files that were deleted for newer files.
    #[serde(default)]
    pub deleted: u64,
    /// Size of the trace in bytes.
    pub bytes: u64,
    /// Number of traced processes.
    pub processes: u64,
    /// Notices at the end, as `trackway record` prints them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A notice of a recorder: a text, or `{"hint": …}` with advice about the previous text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Notice {
    /// A statement of a fact.
    Info(String),
    /// Advice about the previous notice.
    Hint {
        /// The text of the advice.
        hint: String,
    },
}

impl Notice {
    /// Creates a notice with advice.
    pub fn hint(text: impl Into<String>) -> Self {
        Self::Hint { hint: text.into() }
    }
}

impl core::fmt::Display for Notice {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Info(text) => formatter.write_str(text),
            Self::Hint { hint } => write!(formatter, "hint: {hint}"),
        }
    }
}

/// The status of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// The session's name.
    pub name: String,
    /// The process id of the session's recorder.
    pub pid: u32,
    /// True if the session is recording.
    pub is_recording: bool,
    /// True if the session follows a command, which ends it (`trackway record`).
    pub is_foreground: bool,
    /// Folder of the session's trace, or of its snapshots.
    pub folder: PathBuf,
    /// The age of the session in seconds.
    pub seconds: u64,
    /// Numbers of events so far.
    pub counts: Counts,
    /// Bytes of shared memory in the session's buffers.
    pub memory_bytes: u64,
    /// Number of snapshots so far.
    pub snapshots: u32,
    /// The users in the session's specification; empty: the session's own user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users_wanted: Vec<String>,
    /// The status of each present user, in a session over several users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserStatus>,
    /// Number of users that are not recorded because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub users_beyond: usize,
    /// The status of kernel events, if the session records some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelStatus>,
    /// The status of each channel.
    pub channels: Vec<ChannelStatus>,
    /// The session's notices, the newest last.
    pub notices: Vec<Notice>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The status of one of a session's users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UserStatus {
    /// The user's id.
    pub uid: u32,
    /// Number of events so far.
    pub recorded: u64,
    /// Number of lost events so far.
    pub lost: u64,
    /// Number of traced processes.
    pub processes: u64,
}

/// The status of a session's kernel events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct KernelStatus {
    /// The specification of kernel events.
    pub spec: KernelSpec,
    /// True if only a command and its descendants are recorded.
    #[serde(default)]
    pub is_of_command: bool,
    /// True if the kernel backend is tracefs, not BPF.
    #[serde(default)]
    pub is_by_tracefs: bool,
    /// The number of different kernel events.
    pub events: usize,
    /// Recorded events, in the trace or still in the buffers.
    pub recorded: u64,
    /// Number of lost events.
    pub lost: u64,
    /// Events overwritten by newer ones, as far as the number is known.
    pub overwritten: u64,
    /// Recorded events in files that were deleted for newer files.
    pub deleted: u64,
    /// Events that the kernel skipped while another event was recorded on the same CPU. If all
    /// processes are recorded, these are lost events; otherwise, they may concern any process.
    pub passed_over: u64,
    /// At most five events with the most losses, in descending order; with BPF only.
    #[serde(default)]
    pub lost_by_event: Vec<(String, u64)>,
    /// Lost events for which all levels were in use: they interrupted too many other events.
    #[serde(default)]
    pub too_deep: u64,
    /// Events whose filters could not run because all levels were in use; some would have passed.
    #[serde(default)]
    pub unasked: u64,
    /// Events whose filters read a field that was not in memory.
    #[serde(default)]
    pub unread: u64,
    /// System calls with unknown 64-bit and 32-bit numbers, which are not recorded.
    #[serde(default)]
    pub unknown_calls: [u64; 2],
    /// True if some of the unknown calls are recorded at their own tracepoints.
    #[serde(default)]
    pub has_calls_without_number: bool,
    /// Size of the kernel trace in bytes.
    pub bytes: u64,
    /// Bytes of memory in the kernel buffers.
    pub memory_bytes: u64,
}

/// The status of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChannelStatus {
    /// The channel's specification.
    pub spec: ChannelSpec,
    /// Number of events so far.
    pub recorded: u64,
    /// Number of lost events so far.
    pub lost: u64,
    /// Bytes of shared memory in the channel's buffers.
    pub memory_bytes: u64,
    /// Processes that interpret the channel's filters, because they could not get executable
    /// memory.
    #[serde(default)]
    pub interpreters: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterObject;

    #[test]
    fn a_line_is_what_the_documentation_says() {
        // The recorder uses serde_json; this test checks only the form.
        let off = Request::EventsOff { channel: None, patterns: vec!["app:noise".into()] };
        let text = toml::to_string(&Message { version: 1, request: off.clone() }).expect("a text");
        assert_eq!(text, "version = 1\nask = \"events-off\"\npatterns = [\"app:noise\"]\n");
        let read: Message = toml::from_str(&text).expect("the same");
        assert_eq!(read.request, off);
    }

    #[test]
    fn a_filter_is_a_text_or_a_table() {
        let on = |filter| Request::EventsOn {
            channel: None,
            rules: Vec::new(),
            only: false,
            filter: Some(filter),
        };
        let object = FilterObject { file: "slow.o".into(), bytes: [1, 0xab].into() };
        for (filter, line) in [
            (FilterSource::Expression("size > 5".into()), "filter = \"size > 5\"\n"),
            (FilterSource::Object(object), "[filter]\nfile = \"slow.o\"\nobject = \"01ab\"\n"),
        ] {
            let message = Message { version: 1, request: on(filter) };
            let text = toml::to_string(&message).expect("a text");
            assert!(text.ends_with(line), "{text}");
            assert_eq!(toml::from_str(&text), Ok(message));
        }
    }

    #[test]
    fn a_change_leaves_alone_what_it_does_not_say() {
        let channel = ChannelSpec {
            blocking_timeout: Some(Duration::from_millis(5)),
            pids: vec![7],
            tracefile_size: Some(1 << 20),
            tracefile_count: Some(4),
            ..ChannelSpec::default()
        };
        assert_eq!(ChannelChange::default().apply_to(&channel), channel);
        let change = ChannelChange {
            blocking_timeout_ns: Some(0),
            contexts: Some(vec!["vpid".into()]),
            pids: Some(Vec::new()),
            tracefile_count: Some(0),
            ..ChannelChange::default()
        };
        let changed = change.apply_to(&channel);
        assert_eq!((changed.blocking_timeout, changed.pids.len()), (None, 0));
        assert_eq!((changed.tracefile_size, changed.tracefile_count), (Some(1 << 20), None));
        assert_eq!((changed.contexts, changed.mode), (vec!["vpid".into()], Mode::Discard));
    }
}
