//! The results of suites, as stored in `results.json`.
//!
//! ```text
//! report     the file: suites with their rows, goals, and what disturbed the run
//! outcome    what became of events, goals and notes
//! names      the rows that reports treat in a way of their own
//! fixtures   made-up rows, for tests
//! ```

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod names;
mod outcome;
mod report;

pub use names::{EMPTY_LOOP, NO_PROTECTION, SUITES, TRACKWAY, WHOLE_EVENT};
pub use outcome::{Account, Bar, Note, Verdict};
pub use report::{BUILDS, Ended, FORMAT, Report, Row, RowStatus, SuiteRows, Unit};
