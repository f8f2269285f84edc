//! The parts of an event.

/// Part of an event (CTF's dynamic scopes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Fields that all events of a stream have: e.g. the thread.
    StreamContext,
    /// Fields that the event's class adds.
    EventContext,
    /// The payload.
    #[default]
    Fields,
}

/// Number of scopes of an event.
pub(crate) const SCOPES: usize = 3;
