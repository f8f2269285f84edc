//! Helpers for tests: temporary folders, a seeded generator, a second opinion on record bytes.
//!
//! Imports no crate of ours: [`record`] states the header's format in its own words, so that it
//! can catch a mistake in the constants that writers and readers share.
#![forbid(unsafe_code)]

pub mod folder;
pub mod random;
pub mod record;

pub use folder::TemporaryFolder;
pub use random::Random;
pub use record::{Header, Record, Records};

/// Says why the rest of a test is left out: what the machine lacks, or the user may not do.
///
/// Tests are never `#[ignore]`d; one that cannot run says so and returns.
pub fn skipped(reason: impl core::fmt::Display) {
    println!("skipped, because {reason}");
}
