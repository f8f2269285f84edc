//! The recorder's decisions, as plain values in and out: how large buffers are, when they grow,
//! how far writers may go, when to look next, what the clock line is, what options mean.
//!
//! No input, no output, no clock of its own: whoever drives it brings readings and positions and
//! does what comes back. So every decision can be tested without a window.
#![forbid(unsafe_code)]

mod backing;
mod buffers;
mod clock;
mod options;
mod size;
mod tick;

pub use backing::{Backing, Use};
pub use buffers::{BufferOptions, BufferPlan, BuffersError, Reserve};
pub use clock::{Calibrator, Change, Line, Reading};
pub use options::{OptionError, parse_contexts, parse_preload, rules_text};
pub use size::{ByteCount, SizeError, parse_size};
pub use tick::Ticker;
