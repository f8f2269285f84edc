//! The recorder's decisions as pure functions of values: the size and growth of buffers, the limit
//! for writers, the polling period, the clock line, the meaning of options, and the effects of
//! requests on a session ([`machine`]).
//!
//! This crate has no input, no output and no clock: a driver passes readings and positions and
//! carries out the results. So tests can check every decision without a window.
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
