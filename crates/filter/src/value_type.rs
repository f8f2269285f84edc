//! Types of the values of expressions.

/// Type of an expression's value, which has 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// An integer that is compared and divided as signed. Unsigned integers narrower than 64 bits
    /// have this type, too.
    Signed,
    /// An unsigned integer.
    Unsigned,
    /// A float, as the bits of an `f64`.
    Float,
    /// A string.
    Text,
    /// A sequence or an array of numbers.
    Sequence,
}
