//! Availability of a part of the bench on this machine.

/// Availability of a tracer on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Ready,
    /// It cannot; "skipped, because …".
    Missing(String),
}
