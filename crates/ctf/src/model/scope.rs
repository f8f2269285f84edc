//! The parts of an event.

/// Part of an event (CTF's dynamic scopes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// What all events of a stream have: e.g. the thread.
    StreamContext,
    /// What this event's class adds.
    EventContext,
    /// The payload.
    #[default]
    Fields,
}

/// How many parts an event may have.
pub(crate) const SCOPES: usize = 3;
