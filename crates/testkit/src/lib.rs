//! Helpers for tests: temporary folders, a seeded generator, counted allocations, memory that traps
//! or executes, an independent decoder of records.
//!
//! Imports no crate of ours: [`record`] states the header's format in its own words, so that it
//! can catch a mistake in the constants that writers and readers share.
#![deny(unsafe_code)]

pub mod allocations;
pub mod folder;
pub mod pages;
pub mod random;
pub mod record;
pub mod user;

pub use allocations::{AllocationStats, CountingAllocator, measure_allocations};
pub use folder::TemporaryFolder;
pub use pages::{Executable, GuardedBytes, GuardedValue};
pub use random::Random;
pub use record::{Header, Record, Records};
pub use user::{is_root, report_skipped};

/// Returns a program's output as text; bytes that are not UTF-8 become U+FFFD.
pub fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
