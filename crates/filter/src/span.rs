//! Places in an expression.

/// Part of an expression's text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Its start.
    pub from: usize,
    /// One past its end.
    pub to: usize,
}
