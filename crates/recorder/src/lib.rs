//! Records sessions: finds or makes the user's window, makes regions in it, drains them into a
//! trace, keeps the clock, starts the traced command, and recovers what dead recorders left.
//!
//! Main invariant: what the stream files hold up to the progress that stands in the window is a
//! valid trace, at any moment, so a recorder may be killed at any instruction; and what other
//! processes write into the window can make records wrong, but neither crash nor hang us.
//!
//! Decisions are [`trackway_session`]'s; here are the files, clocks, signals and processes.

mod cgroup;
mod clock;
mod clock_epoch;
mod command;
mod completion;
mod cpus;
mod descendants;
pub mod elf;
mod error;
mod home;
mod lockless;
mod memory;
mod metadata;
mod place;
mod record;
mod recording;
mod recover;
mod region;
mod report;
mod self_test;
mod slot;
mod stream;
mod totals;
mod trace;
pub mod versions;

pub use error::RecordError;
pub use home::Home;
pub use record::{CommandEnd, RecordOptions, record};
pub use recording::Recording;
pub use recover::{Recovered, recover, recover_in};
pub use report::{Notices, Summary};
pub use slot::SessionSettings;
pub use totals::Totals;
pub use trackway_session::{
    BufferOptions, BuffersError, ByteCount, Line, OptionError, Reserve, parse_contexts,
    parse_preload, parse_size, rules_text,
};
