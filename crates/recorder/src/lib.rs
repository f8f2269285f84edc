//! Records sessions: finds or makes the user's window, makes regions in it, drains them into a
//! trace, keeps the clock, starts the traced command, and recovers sessions of dead recorders.
//!
//! Main invariant: the stream files up to the progress in the window are a valid trace, at any
//! moment, so a recorder may be killed at any instruction. Bytes that other processes write into
//! the window can make records wrong, but neither crash nor hang the recorder.
//!
//! [`trackway_session`] makes the decisions; this crate handles the files, clocks, signals and
//! processes.
//!
//! Each folder and file in this list imports only those above it; `tests/tidy/rings.rs` checks
//! this. This file re-exports items for other crates; nothing in this crate imports through it.
//!
//! ```text
//! common/         dates, files, numbers in words, the user
//! error.rs        RecordError
//! random.rs       random bytes and identities
//! elf/            contents of ELF files: libraries, instrumentation points, events
//! notices.rs      notices that a recorder prints while it runs
//! summary/        totals of a recording in words, and advice against losses
//! window/         a user's window: its slots, memory, CPUs, clock, processes
//! filters/        filters on programs' events: checked, published in the window
//! trace/          the files of a trace: folder, streams, index, metadata, marks
//! recording/      a session in one window: channels and regions, drained into the trace
//! command/        the traced command: launched, its descendants, the library's versions
//! host_checks.rs  checks of this machine, for `trackway doctor`
//! kernel/         the kernel's events: bpf/, tracefs/, and code for both
//! control/        the folder of control sockets: server, client, names of dead sessions
//! recovery/       traces of dead recorders, completed
//! diagnosis/      reasons why a recording has no event
//! session/        one session from start to end, in the foreground or background
//! ```

mod command;
mod common;
pub mod control;
pub mod diagnosis;
pub mod elf;
mod error;
mod filters;
mod host_checks;
mod kernel;
mod notices;
mod random;
mod recording;
mod recovery;
mod session;
mod summary;
mod trace;
mod window;

/// Checks of this machine, for commands that explain their results to the user.
pub mod checkup {
    pub use crate::host_checks::*;
}

/// Processes in /proc and in the window.
pub mod processes {
    pub use crate::window::processes::*;
}

/// Processes whose libtrackway.so has another version than this recorder.
pub mod versions {
    pub use crate::command::library_versions::*;
}

pub use command::launch::CommandEnd;
pub use common::numbers::{Counted, Grouped};
pub use common::user::is_root;
pub use error::RecordError;
pub use filters::unmatched::{nearest_pattern, suggest_pattern};
pub use kernel::backend::{KernelBackend, KernelBackends};
pub use kernel::contexts::{ContextLists, ContextsError, parse_context_lists};
pub use kernel::filters::routing::check_kernel_only;
pub use notices::Notices;
pub use recording::Recording;
pub use recording::abandoned_channel::Stranded;
pub use recording::totals::Totals;
pub use recovery::{RecoveredSession, Recovery, RecoveryEnd, recover, recover_in, recover_in_as};
pub use session::background::{NoticeTarget, StartOutcome, check_folder, serve_session};
pub use session::foreground::{is_name_of_record, record};
pub use session::run_options::RunOptions;
pub use summary::Summary;
pub use trackway_session::{
    BufferOptions, BuffersError, ByteCount, ChannelSpec, ContextList, FilterObject, FilterSource,
    FilterSpec, KernelSpec, Level, LevelError, Levels, Line, Mode, OptionError, Reserve, RuleSpec,
    SessionSpec, SpecError, Time, Tracefiles, TracefilesError, USERS_MAX, is_valid_name,
    parse_contexts, parse_duration, parse_preload, parse_size, protocol, rules_text,
};
pub use window::handle::WindowHandle;
pub use window::settings::{ChannelSettings, SessionSettings};
