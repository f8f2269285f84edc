//! Availability of a part of the bench on this machine.

/// Availability of a tracer on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// The tracer is available.
    Ready,
    /// The tracer is not available, with the reason: "skipped, because …".
    Missing(String),
}
