//! Code that several commands share. No module here depends on a command.

pub(crate) mod counted;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod format;
pub(crate) mod jobs;
pub(crate) mod json;
pub(crate) mod recovered;
pub(crate) mod selection;
