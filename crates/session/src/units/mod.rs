//! Sizes and durations, as users write them.

mod duration;
mod size;
pub(crate) mod toml;

pub use duration::{DurationError, Time, parse_duration};
pub use size::{ByteCount, SizeError, parse_size};
