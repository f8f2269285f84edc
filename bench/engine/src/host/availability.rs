//! Whether something can be measured on this machine.

/// Whether a tracer can be measured on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Ready,
    /// It cannot; "skipped, because …".
    Missing(String),
}
