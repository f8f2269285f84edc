//! The results of suites, as stored in `results.json`.
//!
//! ```text
//! report     the file: suites with their rows, goals, and disturbances of the run
//! outcome    accounts of events, goals and notes
//! names      names of rows that reports treat specially
//! fixtures   made-up rows, for tests
//! ```

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod names;
mod outcome;
mod report;

pub use names::{EMPTY_LOOP, NO_PROTECTION, SUITES, TRACKWAY, WHOLE_EVENT};
pub use outcome::{Account, Bar, Note, Verdict};
pub use report::{BUILD_KEYS, EndReason, REPORT_FORMAT, Report, Row, RowStatus, SuiteRows, Unit};
