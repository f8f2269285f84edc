//! Sessions of LTTng-UST, created and ended in the same way by all measurements.

use std::path::Path;

use trackway_bench_engine::error::Result;

use super::daemon::Daemon;

/// Name of the session, if there is one at a time.
pub(crate) const SESSION: &str = "lab";
/// Number of sub-buffers of each ring: LTTng's default.
pub(crate) const SUB_BUFFERS: u64 = 4;

/// Name of the sessions' only channel.
const CHANNEL: &str = "channel";

/// A session, and the events that it records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UstSession<'a> {
    pub(crate) name: &'a str,
    /// True if the session keeps the newest events for a snapshot at its end; otherwise all events
    /// are written to disk.
    pub(crate) is_snapshot: bool,
    /// Options of the session's channel ([`ring_options`]); LTTng's defaults if empty.
    pub(crate) channel: &'a [String],
    /// Names of the recorded events; if empty, events are set later ([`run_event_command`]).
    pub(crate) rules: &'a [&'a str],
    /// Filter of the recorded events; `None` accepts all events.
    pub(crate) filter: Option<&'a str>,
    /// Contexts of the events.
    pub(crate) contexts: &'a [&'a str],
}

/// Returns the options of a channel whose rings have this number of bytes and of sub-buffers.
pub(crate) fn ring_options(bytes: u64, sub_buffers: u64) -> [String; 2] {
    let size = format!("--subbuf-size={}", bytes / sub_buffers);
    [size, format!("--num-subbuf={sub_buffers}")]
}

impl UstSession<'_> {
    /// Creates and starts the session, with its trace in the folder `trace`.
    pub(crate) fn begin(&self, daemon: &Daemon, trace: &Path) -> Result<()> {
        let Self { name, is_snapshot, channel, rules, filter, contexts } = *self;
        let (output, of) = (format!("--output={}", trace.display()), session_option(name));
        let mut create = vec!["create", name, &output];
        create.extend(is_snapshot.then_some("--snapshot"));
        daemon.run_lttng(&create)?;
        let mut enable = vec!["enable-channel", "--userspace", &of];
        enable.extend(channel.iter().map(String::as_str));
        enable.push(CHANNEL);
        daemon.run_lttng(&enable)?;
        for rule in rules {
            run_event_command(daemon, "enable-event", name, rule, filter)?;
        }
        for context in contexts {
            let (channel, kind) = (format!("--channel={CHANNEL}"), format!("--type={context}"));
            daemon.run_lttng(&["add-context", "--userspace", &of, &channel, &kind])?;
        }
        daemon.run_lttng(&["start", name])
    }

    /// Creates and starts the session, after removing one that a failed run may have left.
    pub(crate) fn begin_again(&self, daemon: &Daemon, trace: &Path) -> Result<()> {
        // An error is ignored: there may be no session.
        let _ = daemon.run_lttng(&["destroy", self.name]);
        self.begin(daemon, trace)
    }
}

/// Runs `lttng VERB` for the events of a session that match a rule, and a filter if there is one.
pub(crate) fn run_event_command(
    daemon: &Daemon,
    verb: &str,
    session: &str,
    rule: &str,
    filter: Option<&str>,
) -> Result<()> {
    let (of, channel) = (session_option(session), format!("--channel={CHANNEL}"));
    let mut words = vec![verb, "--userspace", &of, &channel, rule];
    words.extend(filter.iter().flat_map(|filter| ["--filter", *filter]));
    daemon.run_lttng(&words)
}

/// Ends a session, which completes its trace.
pub(crate) fn end_session(daemon: &Daemon, session: &str, is_snapshot: bool) -> Result<()> {
    if is_snapshot {
        daemon.run_lttng(&["stop", session])?;
        daemon.run_lttng(&["snapshot", "record", &session_option(session)])?;
    }
    daemon.run_lttng(&["destroy", session])
}

fn session_option(session: &str) -> String {
    format!("--session={session}")
}
