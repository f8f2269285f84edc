//! The unit of measurement: a payload, a context, a number of threads.

use serde::{Deserialize, Serialize};

/// The fields that an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// One `u32`.
    Number,
    /// A string of 16 bytes (with its terminator), a `u32`, a `u64`.
    Record,
    /// A formatted text: `"%s (%d)"`.
    Printf,
    /// A text of 15 bytes, a sequence of four `u32`, a `u64`: in C++ a view and a vector.
    Views,
    /// A pair of events around an empty scope, with an identity; the first event has a `u32`. In
    /// C++ a scope.
    Scope,
}

impl Payload {
    /// Returns the name of the work in the workload programs.
    pub const fn work(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Record => "record",
            Self::Printf => "printf",
            Self::Views => "views",
            Self::Scope => "scope",
        }
    }

    /// Returns true if the payload has columns in the table, and not a section of its own.
    pub const fn is_in_table(self) -> bool {
        matches!(self, Self::Number | Self::Record)
    }

    /// Returns true if each event of the payload has a number.
    pub const fn is_numbered(self) -> bool {
        !matches!(self, Self::Scope)
    }

    /// Returns the heading of the payload's columns.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Number => "u32",
            Self::Record => "str,u32,u64",
            Self::Printf => "\"%s (%d)\"",
            Self::Views => "text,seq,u64",
            Self::Scope => "scope",
        }
    }
}

/// The context field that the tracer adds to each event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Context {
    /// Nothing.
    None,
    /// The thread's id.
    Vtid,
}

impl Context {
    /// Returns the name of the context on Trackway's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vtid => "vtid",
        }
    }
}

/// One measurement: a column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Threads that emit at once, pinned to one CPU each.
    pub threads: u32,
    /// The payload of each event.
    pub payload: Payload,
    /// The context field that each event gets.
    pub context: Context,
}

impl Case {
    /// The simplest case: one thread, one number.
    pub const SIMPLEST: Self =
        Self { threads: 1, payload: Payload::Number, context: Context::None };

    /// Returns the table's columns, for a number of CPUs.
    pub fn table_columns(cpus: usize) -> Vec<Self> {
        let mut cases = Vec::new();
        for threads in [1, 2] {
            for payload in [Payload::Number, Payload::Record] {
                for context in [Context::None, Context::Vtid] {
                    cases.push(Self { threads, payload, context });
                }
            }
        }
        cases.retain(|case| case.threads as usize <= cpus);
        cases
    }

    /// The formatted message, which has a section of its own in the report.
    pub const PRINTF: Self = Self { threads: 1, payload: Payload::Printf, context: Context::None };

    /// Text and sequence, to compare C++ with C.
    pub const VIEWS: Self = Self { threads: 1, payload: Payload::Views, context: Context::None };
    /// A scope, to compare C++ with C.
    pub const SCOPE: Self = Self { threads: 1, payload: Payload::Scope, context: Context::None };

    /// Cases that have a section of their own and no column in the table.
    pub const OUTSIDE_TABLE: [Self; 3] = [Self::PRINTF, Self::VIEWS, Self::SCOPE];

    /// Returns the case with this number of threads.
    pub const fn with_threads(self, threads: u32) -> Self {
        Self { threads, ..self }
    }

    /// Returns the description of the case in words.
    pub fn words(&self) -> String {
        let context = match self.context {
            Context::None => "",
            Context::Vtid => " + vtid",
        };
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}{context}, {} thread{plural}", self.payload.title(), self.threads)
    }
}

/// The state of a buffer while a program writes to the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferState {
    /// A flight recorder whose ring is full: each event overwrites an old event, and no reader
    /// runs.
    Overwrite,
    /// A buffer that is drained to disk during the run, at a rate of events that the drain can
    /// sustain.
    Steady,
    /// A buffer that takes all events, each in memory that was not written before; no reader runs.
    Producer,
}

impl BufferState {
    /// All buffer states.
    pub const ALL: [Self; 3] = [Self::Overwrite, Self::Steady, Self::Producer];

    /// Returns the description of the buffer state in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Overwrite => "overwrite",
            Self::Steady => "steady",
            Self::Producer => "producer only",
        }
    }
}

/// Number of batches in a run of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlan {
    /// Batches that are not counted: they fill the ring once and warm the caches.
    pub warm_up: u32,
    /// Batches that count.
    pub batches: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_cpus() {
        assert_eq!(Case::table_columns(2).len(), 8);
        assert_eq!(Case::table_columns(1).len(), 4);
        assert_eq!(Case::table_columns(2)[0], Case::SIMPLEST);
        assert!(Case::table_columns(1).iter().all(|case| case.threads == 1));
    }

    #[test]
    fn cases_have_words() {
        let case = Case { threads: 2, payload: Payload::Record, context: Context::Vtid };
        assert_eq!(case.words(), "str,u32,u64 + vtid, 2 threads");
        assert_eq!(Case::SIMPLEST.words(), "u32, 1 thread");
    }
}
