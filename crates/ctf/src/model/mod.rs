//! Metadata declarations, compiled: types of fields, places of numbers, meanings of values, and
//! texts that are the same in many events. This module does not read or write traces.

mod literal;
pub(crate) mod meaning;
pub(crate) mod runs;
pub(crate) mod scope;
pub(crate) mod types;
mod uuid;

pub use literal::Literal;
pub use uuid::Uuid;
