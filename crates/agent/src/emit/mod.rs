//! The recording path: from a staged payload to a committed record.

pub(crate) mod attempt;
pub(crate) mod blocking;
pub(crate) mod enabled_sessions;
pub(crate) mod fast_path;
pub(crate) mod prefilter;
pub(crate) mod slow_path;
pub(crate) mod timestamp;
