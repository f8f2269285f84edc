//! The recorder's decisions, as plain values in and out: how large buffers are, when they grow,
//! how far writers may go, when to look next, what the clock line is, what options mean, and what
//! a session does about what it is asked ([`machine`]).
//!
//! No input, no output, no clock of its own: whoever drives it brings readings and positions and
//! does what comes back. So every decision can be tested without a window.
#![forbid(unsafe_code)]

mod backing;
mod buffers;
mod clock;
mod duration;
mod filter_spec;
mod kernel_spec;
mod level;
pub mod machine;
mod options;
pub mod protocol;
mod rule_spec;
mod shortage;
mod size;
mod spec;
mod texts;
mod tick;
mod tracefiles;

pub use backing::{Backing, Use};
pub use buffers::{BufferOptions, BufferPlan, BuffersError, Initial, Reserve};
pub use clock::{Calibrator, Change, Line, Reading};
pub use duration::{DurationError, Time, parse_duration};
pub use filter_spec::{
    FILTER_OBJECTS_BYTES_MAX, FILTERS_BYTES_MAX, FILTERS_MAX, FilterObject, FilterSource,
    FilterSpec,
};
pub use kernel_spec::{KernelSpec, KernelVia};
pub use level::{Level, LevelError};
pub use options::{ContextList, OptionError, is_name, parse_contexts, parse_preload, rules_text};
pub use rule_spec::{Levels, RuleSpec};
pub use shortage::{BufferLook, Shortage};
pub use size::{ByteCount, SizeError, parse_size};
pub use spec::{ALL_USERS, ChannelSpec, Mode, SessionSpec, SpecError, USERS_MAX};
pub use tick::Ticker;
pub use tracefiles::{TRACEFILES_MAX, Tracefiles, TracefilesError};
