//! Where in an expression something is.

/// Part of an expression's text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it begins.
    pub from: usize,
    /// One past its end.
    pub to: usize,
}
