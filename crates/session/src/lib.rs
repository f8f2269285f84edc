//! The recorder's decisions, as plain values in and out: how large buffers are, when they grow,
//! how far writers may go, when to look next, what the clock line is, what options mean, and what
//! a session does about what it is asked ([`machine`]).
//!
//! No input, no output, no clock of its own: a driver brings readings and positions and carries out
//! the results. So every decision can be tested without a window.
#![forbid(unsafe_code)]

mod control;
mod pacing;
mod spec;
mod units;

pub use control::{machine, protocol};
pub use pacing::{
    Backing, BufferOptions, BufferPlan, BufferUsage, BuffersError, Calibrator, Change,
    InitialMemory, Line, Mode, Reading, Reserve, Shortage, TRACEFILES_MAX, Ticker, Tracefiles,
    TracefilesError, Use,
};
pub use spec::{
    ALL_USERS, ChannelSpec, ContextList, FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FILTERS_MAX,
    FilterObject, FilterSource, FilterSpec, KernelBackend, KernelSpec, Level, LevelError, Levels,
    OptionError, RuleSpec, SessionSpec, SpecError, USERS_MAX, is_valid_name, parse_contexts,
    parse_preload, rules_text,
};
pub use units::{ByteCount, DurationError, SizeError, Time, parse_duration, parse_size};
