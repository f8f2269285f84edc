//! The protocol of a session's control socket: one JSON object a line, each way.
//!
//! ```text
//! → {"version":1,"ask":"events-off","patterns":["app:noise"]}
//! ← {"answer":"done","warnings":[]}
//! ```
//!
//! A request of another version is refused with the version that is spoken here. Requests are at
//! most [`LINE_BYTES_MAX`] long, answers [`ANSWER_BYTES_MAX`].

use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::CHANNELS_MAX;
use crate::{
    ChannelSpec, FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FilterSource, KernelSpec, Mode,
    RuleSpec, SessionSpec,
};

/// Version of the protocol: raised when an old client could misunderstand a recorder.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest request, in bytes, without the line's end.
pub const LINE_BYTES_MAX: usize = 256 << 10;
/// Longest answer, in bytes: all channels that a user can have, with the longest rules and filters.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Bytes of a channel's filters in a line, where those of objects are two digits each.
const FILTERS_LINE_BYTES: usize = 2 * (FILTER_OBJECTS_BYTES_MAX + FILTERS_BYTES_MAX);
const _: () = assert!(FILTERS_LINE_BYTES < LINE_BYTES_MAX);
const _: () = assert!(CHANNELS_MAX * FILTERS_LINE_BYTES < ANSWER_BYTES_MAX);

/// A line from a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// [`PROTOCOL_VERSION`].
    pub version: u32,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// Report the session's status.
    Status,
    /// Report the session's specification, as a file would have it.
    Spec,
    /// To record.
    Start,
    /// Not to record, until it is started again. What was emitted before is in the trace when the
    /// answer comes; a refusal says that it is not all there, and the session is stopped.
    Stop,
    /// To end.
    Destroy,
    /// To forget what was recorded.
    Clear,
    /// To write what is in flight recorders.
    Snapshot {
        /// Folder; none: the next of the session's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<PathBuf>,
        /// Only what is newer than so many nanoseconds; none: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_ns: Option<u64>,
    },
    /// To write events to the trace at once, as long as the connection lasts.
    Follow,
    /// A channel more.
    AddChannel {
        /// It.
        channel: ChannelSpec,
    },
    /// A channel otherwise.
    SetChannel {
        /// Its name.
        channel: String,
        /// The change.
        #[serde(flatten)]
        change: ChannelChange,
    },
    /// A channel less.
    RemoveChannel {
        /// Its name.
        channel: String,
    },
    /// More events.
    EventsOn {
        /// In which channel; none: the only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// The rules.
        rules: Vec<RuleSpec>,
        /// These instead of those that were on.
        #[serde(default)]
        only: bool,
        /// The condition for these events; an empty expression: none any more; none: unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<FilterSource>,
    },
    /// Fewer events.
    EventsOff {
        /// In which channel; none: the only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        channel: Option<String>,
        /// The patterns.
        patterns: Vec<String>,
    },
    /// More events of the kernel.
    KernelOn {
        /// Patterns, as [`KernelSpec`] has them.
        patterns: Vec<String>,
        /// The condition, as in [`Self::EventsOn`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter: Option<FilterSource>,
    },
    /// Fewer of them.
    KernelOff {
        /// The patterns.
        patterns: Vec<String>,
    },
}

/// A change of a channel: parts that are not given stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ChannelChange {
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Zero: programs do not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocking_timeout_ns: Option<u64>,
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_size: Option<u64>,
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_buffers: Option<u64>,
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_size: Option<u64>,
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u64>,
    /// See [`ChannelSpec`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contexts: Option<Vec<String>>,
    /// See [`ChannelSpec`]; an empty list: of any process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<u32>>,
    /// The executables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executables: Option<Vec<String>>,
    /// The process-id namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid_namespaces: Option<Vec<u64>>,
}

impl ChannelChange {
    /// The channel with this change.
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

/// A recorder's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done {
        /// Warnings.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// It is not done, and nothing has changed.
    Refused(Refusal),
    /// The status.
    Status(Box<Status>),
    /// The specification.
    Spec(Box<SessionSpec>),
    /// A snapshot was written.
    Snapshot(SnapshotFacts),
    /// The session has ended.
    Ended(Box<Counts>),
    /// Events are written to the traces in these folders at once.
    Following {
        /// The folders.
        folders: Vec<PathBuf>,
    },
}

/// Why something was not done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub why: String,
    /// Advice, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// True if root may do what this user may not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_root: bool,
}

impl Refusal {
    /// A refusal without advice.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None, needs_root: false }
    }

    /// The same for a user where root would not be refused.
    #[must_use]
    pub fn with_root_needed(self) -> Self {
        Self { needs_root: true, ..self }
    }

    /// The same with advice.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotFacts {
    /// The folder.
    pub folder: PathBuf,
    /// Events in it.
    pub events: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The users whose events could not be written to it, of a session over several users, with the
    /// reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Numbers of events, and what they come to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counts {
    /// Recorded: in the trace, or in the buffers still.
    pub recorded: u64,
    /// Lost for want of room.
    pub lost: u64,
    /// Overwritten by newer ones, as far as that is known.
    pub overwritten: u64,
    /// Recorded events in files that were deleted for newer ones.
    #[serde(default)]
    pub deleted: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Processes that took part.
    pub processes: u64,
    /// Notices of the end, as `trackway record` says them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A notice of a recorder: a text, or `{"hint": …}` for what to do about the text before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Notice {
    /// A fact.
    Info(String),
    /// Advice.
    Hint {
        /// The advice.
        hint: String,
    },
}

impl Notice {
    /// Advice.
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
    /// Its name.
    pub name: String,
    /// Its recorder's process id.
    pub pid: u32,
    /// True if it records.
    pub is_recording: bool,
    /// True if it follows a command, which ends it (`trackway record`).
    pub is_foreground: bool,
    /// Folder of its trace, or of its snapshots.
    pub folder: PathBuf,
    /// For how many seconds it has been there.
    pub seconds: u64,
    /// Events so far.
    pub counts: Counts,
    /// Bytes of shared memory that its buffers take.
    pub memory_bytes: u64,
    /// Snapshots so far.
    pub snapshots: u32,
    /// The users whose programs it records, as the session specifies them; none: its own user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users_wanted: Vec<String>,
    /// The status of each present user, of a session over several users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<UserStatus>,
    /// Users who are not recorded because there are too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub users_beyond: usize,
    /// Kernel events, if it records some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelStatus>,
    /// Its channels.
    pub channels: Vec<ChannelStatus>,
    /// Its notices, the newest last.
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
    /// The user's number.
    pub uid: u32,
    /// Events so far.
    pub recorded: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Processes that took part.
    pub processes: u64,
}

/// The status of kernel events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct KernelStatus {
    /// The specification.
    pub spec: KernelSpec,
    /// True if only a command, and what it starts, is recorded.
    #[serde(default)]
    pub is_of_command: bool,
    /// True if tracefs records, the kernel's own buffers, not BPF.
    #[serde(default)]
    pub is_by_tracefs: bool,
    /// The number of different events.
    pub events: usize,
    /// Recorded so far: in the trace, or in the buffers still.
    pub recorded: u64,
    /// Lost so far.
    pub lost: u64,
    /// Overwritten by newer ones, as far as that is known.
    pub overwritten: u64,
    /// Recorded events in files that were deleted for newer ones.
    pub deleted: u64,
    /// Events that the kernel skipped while another event was recorded on the same CPU: a part of
    /// the lost ones, where everything is recorded; of all events, where some processes are.
    pub passed_over: u64,
    /// Events with the most losses, most first, five at most; by BPF.
    #[serde(default)]
    pub lost_by_event: Vec<(String, u64)>,
    /// The lost events that interrupted so many others that there was no buffer for them.
    #[serde(default)]
    pub too_deep: u64,
    /// Events that interrupted so many others that their filters could not run: some of them
    /// may have been wanted.
    #[serde(default)]
    pub unasked: u64,
    /// Events whose filters needed something that was not in memory.
    #[serde(default)]
    pub unread: u64,
    /// System calls by unknown numbers, of 64 bits and of 32, which are not recorded.
    #[serde(default)]
    pub unknown_calls: [u64; 2],
    /// True if some of the former are recorded all the same.
    #[serde(default)]
    pub has_calls_without_number: bool,
    /// Bytes of its trace.
    pub bytes: u64,
    /// Bytes of memory of its buffers.
    pub memory_bytes: u64,
}

/// The status of a channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChannelStatus {
    /// The specification.
    pub spec: ChannelSpec,
    /// Events so far.
    pub recorded: u64,
    /// Events lost so far.
    pub lost: u64,
    /// Bytes of shared memory that its buffers take.
    pub memory_bytes: u64,
    /// Processes that interpret its filters: where they run, no memory that is executed was to be
    /// had.
    #[serde(default)]
    pub interpreters: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FilterObject;

    #[test]
    fn a_line_is_what_the_documentation_says() {
        // serde_json is the recorder's; here its form is enough.
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
