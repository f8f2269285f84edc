//! What several commands have in common. Nothing here knows a command.

pub(crate) mod events;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod recovered;
