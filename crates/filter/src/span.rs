//! Positions in an expression.

/// A part of an expression's text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Start of the part.
    pub from: usize,
    /// End of the part, exclusive.
    pub to: usize,
}
