//! What unit tests share with the tests of the whole: traces made at random.

#[path = "../../tests/support/random.rs"]
mod random;
#[path = "../../tests/support/random_types.rs"]
mod random_types;

pub(crate) use random::Random;
pub(crate) use random_types::{Limits, random_metadata, random_packet};
