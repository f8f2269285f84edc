//! The state of this process: its windows, its decisions about sessions, its threads, its events.

pub(crate) mod environment;
pub(crate) mod event_archive;
pub(crate) mod executable;
pub(crate) mod filter_links;
pub(crate) mod process;
pub(crate) mod session_cache;
pub(crate) mod thread;
pub(crate) mod window_map;
