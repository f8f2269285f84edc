//! Availability of a part of the bench on this machine.

/// Availability of a tracer on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It is available.
    Ready,
    /// It is not available, with the reason: "skipped, because …".
    Missing(String),
}
