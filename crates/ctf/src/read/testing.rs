//! Helpers that unit tests share with the integration tests: random traces.

#[path = "../../tests/support/random.rs"]
mod random;
#[path = "../../tests/support/random_types.rs"]
mod random_types;

pub(crate) use random::Random;
pub(crate) use random_types::{Limits, random_metadata, random_packet};
