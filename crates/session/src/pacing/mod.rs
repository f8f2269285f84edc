//! Pacing: buffer sizes and their growth, the limit for writers, the polling period, and the clock
//! line.

mod backing;
mod buffers;
mod clock;
mod mode;
mod shortage;
mod tick;
mod tracefiles;

pub use backing::{Backing, Use};
pub use buffers::{BufferOptions, BufferPlan, BuffersError, InitialMemory, Reserve};
pub use clock::{Calibrator, Change, Line, Reading};
pub use mode::Mode;
pub use shortage::{BufferUsage, Shortage};
pub use tick::Ticker;
pub use tracefiles::{TRACEFILES_MAX, Tracefiles, TracefilesError};
