//! Helpers for tests: temporary folders, a seeded generator, allocations counted, memory that
//! traps or executes, a second opinion on record bytes.
//!
//! Imports no crate of ours: [`record`] states the header's format in its own words, so that it
//! can catch a mistake in the constants that writers and readers share.
#![deny(unsafe_code)]

pub mod allocations;
pub mod folder;
pub mod pages;
pub mod random;
pub mod record;

pub use allocations::{Allocated, CountingAllocator, measured};
pub use folder::TemporaryFolder;
pub use pages::{AtTheEnd, Executable, Guarded};
pub use random::Random;
pub use record::{Header, Record, Records};

/// Says why the rest of a test is left out: what the machine lacks, or the user may not do.
///
/// Tests are never `#[ignore]`d; one that cannot run says so and returns.
pub fn skipped(reason: impl core::fmt::Display) {
    // Not by a macro: what those write is kept back of tests that pass. On a line of its own, among
    // the dots of quiet runs.
    let line = format!("\nskipped, because {reason}\n");
    // An error here has no reader any more.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
