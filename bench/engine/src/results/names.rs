//! Names in results that reports treat specially.

/// Suites in the order in which they are measured and shown.
pub const SUITES: [&str; 18] = [
    "tracepoint",
    "cases",
    "scaling",
    "paths",
    "breakdown",
    "syscall",
    "filter",
    "sharing",
    "payload",
    "size",
    "drain",
    "workload",
    "latency",
    "startup",
    "reading",
    "spans",
    "preload",
    "sessions",
];

/// The tracer that is the baseline of most rows; the names of Trackway's other variants begin with
/// it.
pub const TRACKWAY: &str = "trackway";
/// The tracer name of a loop without a tracer.
pub const EMPTY_LOOP: &str = "empty-loop";
/// A copy into a buffer, with no code that Trackway could make better or worse: the only row of
/// Trackway that is a yardstick.
pub const NO_PROTECTION: &str = "trackway-no-protection";
/// The case of an event as a whole; its parts are other cases of the same tracer.
pub const WHOLE_EVENT: &str = "whole event";
