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
    /// Its name; empty for one without a control socket.
    pub name: String,
    /// Only for processes that hold this token.
    pub token: Option<u64>,
    /// Identity of the trace.
    pub uuid: [u8; 16],
    /// Trace folder, absolute.
    pub path: PathBuf,
}

/// Settings of a channel of a session.
#[derive(Debug, Clone)]
pub struct ChannelSettings {
    /// Its name, which its streams' files begin with.
    pub name: String,
    /// Sizes of its buffers.
    pub buffers: BufferPlan,
    /// Flight recorder.
    pub overwrite: bool,
    /// Limits of the files of its streams.
    pub tracefiles: Tracefiles,
    /// The way in which writers get exclusive access.
    pub reserve: Reserve,
    /// Contexts of every record.
    pub contexts: ContextList,
    /// Event rules, as `trackway_schema::Rules` reads them.
    pub rules: String,
    /// Conditions that its events must satisfy.
    pub filters: Vec<FilterSpec>,
    /// Events that are to come, for which filters are compiled before they are there.
    pub expected: Vec<EventDescription>,
    /// Rules for processes, as `trackway_schema::ProcessRules` reads them; none: all.
    pub processes: String,
    /// Longest wait of programs that allow blocking, in ns; 0: they do not wait.
    pub blocking_ns: u64,
    /// True if writers are excluded at first.
    pub paused: bool,
    /// True if it begins with little memory, because its size was not specified: it may be idle for
    /// long.
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
    /// Name of a session's only channel if none is specified: LTTng's.
    pub const DEFAULT_NAME: &str = ChannelSpec::DEFAULT_NAME;

    /// Converts a channel's specification; admits writers at once if it is to `record`.
    ///
    /// # Errors
    ///
    /// If there can be none such, or a process that it names is not there.
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
