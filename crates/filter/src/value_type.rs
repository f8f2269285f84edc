//! Types of the values of expressions.

/// Type of an expression's value, 64 bits of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// An integer that is compared and divided with its sign. What has no sign but less than 64
    /// bits is one as well.
    Signed,
    /// An integer without a sign.
    Unsigned,
    /// Bits of an `f64`.
    Float,
    /// A string.
    Text,
    /// A sequence or an array of numbers.
    Sequence,
}
