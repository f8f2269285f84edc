//! Declarations of metadata, compiled: types of fields, the places of numbers, meanings of values,
//! and texts that are the same in many events. Nothing here reads or writes a trace.

mod literal;
pub(crate) mod meaning;
pub(crate) mod runs;
pub(crate) mod scope;
pub(crate) mod types;
mod uuid;

pub use literal::Literal;
pub use uuid::Uuid;
