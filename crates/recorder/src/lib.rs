//! Records sessions: finds or makes the user's window, makes regions in it, drains them into a
//! trace, keeps the clock, starts the traced command, and recovers what dead recorders left.
//!
//! Main invariant: what the stream files hold up to the progress that stands in the window is a
//! valid trace, at any moment, so a recorder may be killed at any instruction; and what other
//! processes write into the window can make records wrong, but neither crash nor hang us.
//!
//! Decisions are [`trackway_session`]'s; here are the files, clocks, signals and processes.

mod abandoned;
mod account;
mod beside;
mod cgroup;
mod changes;
mod channel;
pub mod checkup;
mod clock;
mod clock_epoch;
mod command;
mod completion;
mod contexts;
pub mod control;
mod cpus;
mod crashes;
mod date;
mod descendants;
mod described;
mod desk;
pub mod diagnosis;
mod dying;
pub mod elf;
mod ending;
mod error;
mod files;
mod filter_scope;
mod filters;
mod free_slot;
mod give_back;
mod given_up;
mod home;
mod kernel;
mod kernel_filters;
mod kernel_left_out;
mod kernel_meanings;
mod kernel_thread;
mod kernel_tracefs;
mod kernel_ways;
mod live;
mod lockless;
mod losses;
mod meant;
mod memory;
mod metadata;
mod notices;
mod numbers;
mod origins;
mod parts;
mod pause;
mod place;
pub mod processes;
mod progress;
mod random;
mod record;
mod recording;
mod recover;
mod region;
mod room;
mod sandboxes;
mod self_test;
mod serve;
mod served;
mod shortfall;
mod silence;
mod slot;
mod snapshot;
mod stall;
mod stream;
mod summary;
mod summary_file;
mod totals;
mod trace;
mod tracefiles;
mod unasked;
mod unfinished;
mod unmatched;
mod user;
mod users;
pub mod versions;
mod visits;

pub use abandoned::Stranded;
pub use command::CommandEnd;
pub use contexts::{BothContexts, ContextsError, parse_both};
pub use error::RecordError;
pub use home::Home;
pub use kernel::KernelOptions;
pub use kernel_filters::{as_asked, as_written, split_filters, take_filters};
pub use kernel_ways::{KernelVia, KernelWays};
pub use notices::Notices;
pub use numbers::{Counted, Grouped};
pub use record::{RecordOptions, is_name_of_record, record};
pub use recording::Recording;
pub use recover::{Recovered, Recovery, RecoveryEnd, recover, recover_in, recover_in_as};
pub use serve::{Begun, Talk, check_folder, record_kernel, serve};
pub use slot::{ChannelSettings, SessionSettings};
pub use summary::Summary;
pub use totals::Totals;
pub use trackway_session::{
    BufferOptions, BuffersError, ByteCount, ChannelSpec, ContextList, FilterObject, FilterSource,
    FilterSpec, KernelSpec, Level, LevelError, Levels, Line, Mode, OptionError, Reserve, RuleSpec,
    SessionSpec, SpecError, Time, Tracefiles, TracefilesError, USERS_MAX, is_name, parse_contexts,
    parse_duration, parse_preload, parse_size, protocol, rules_text,
};
pub use unmatched::{meant_pattern, near_pattern};
pub use user::is_root;
