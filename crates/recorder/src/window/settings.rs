//! Settings of a session and of its channels.

use std::path::PathBuf;

use trackway_schema::EventDescription;
use trackway_session::{
    BufferOptions, BufferPlan, ChannelSpec, ContextList, FilterSpec, Mode, Reserve, Tracefiles,
};

use crate::error::RecordError;
use crate::window::processes;

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Name of the session; empty for a session without a control socket.
    pub name: String,
    /// Token that a process must hold to take part; `None`: no token is needed.
    pub token: Option<u64>,
    /// Identity of the trace.
    pub uuid: [u8; 16],
    /// Absolute path of the trace folder.
    pub path: PathBuf,
}

/// Settings of a channel of a session.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// Name of the channel, with which its stream files' names begin.
    pub name: String,
    /// Sizes of the channel's buffers.
    pub buffers: BufferPlan,
    /// True for a flight recorder.
    pub overwrite: bool,
    /// Limits of the channel's trace files.
    pub tracefiles: Tracefiles,
    /// Kind of reservation that writers use.
    pub reserve: Reserve,
    /// Contexts of every record.
    pub contexts: ContextList,
    /// Event rules, as `trackway_schema::Rules` reads them.
    pub rules: String,
    /// Filters of the channel's events.
    pub filters: Vec<FilterSpec>,
    /// Events not registered yet for which filters are compiled in advance.
    pub expected: Vec<EventDescription>,
    /// Process rules, as `trackway_schema::ProcessRules` reads them; empty: all processes.
    pub processes: String,
    /// Longest wait of programs that allow blocking, in ns; 0: programs do not wait.
    pub blocking_ns: u64,
    /// True if the channel begins without admitting writers.
    pub paused: bool,
    /// True if the channel begins with little memory, because no buffer size was specified: it may
    /// be idle for long.
    pub starts_small: bool,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        let buffers = BufferOptions::default().plan();
        Self {
            name: Self::DEFAULT_NAME.into(),
            buffers: buffers.expect("the default sizes are good"),
            overwrite: false,
            tracefiles: Tracefiles::default(),
            reserve: Reserve::Rseq,
            contexts: ContextList::default(),
            rules: "*".into(),
            filters: Vec::new(),
            expected: Vec::new(),
            processes: String::new(),
            blocking_ns: 0,
            paused: false,
            starts_small: false,
        }
    }
}

impl ChannelSettings {
    /// Name of a session's only channel if none is specified; LTTng uses the same name.
    pub const DEFAULT_NAME: &str = ChannelSpec::DEFAULT_NAME;

    /// Converts a channel's specification. The channel admits writers at once if `record` is set.
    ///
    /// # Errors
    ///
    /// If the specification is impossible, or one of its processes does not exist.
    pub(crate) fn of(spec: &ChannelSpec, record: bool) -> Result<Self, RecordError> {
        let blocking = spec.blocking_timeout.map_or(0, |time| time.as_nanos());
        spec.check_filters()?;
        Ok(Self {
            name: spec.name.clone(),
            buffers: spec.plan()?,
            overwrite: spec.mode == Mode::Overwrite,
            tracefiles: spec.tracefiles(),
            contexts: spec.context_list()?,
            rules: spec.rules_text()?,
            filters: spec.filters.clone(),
            processes: processes::rules_text(spec)?,
            blocking_ns: u64::try_from(blocking).unwrap_or(u64::MAX),
            paused: !record,
            ..Self::default()
        })
    }
}
