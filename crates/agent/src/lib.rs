//! The library inside the traced process: its events, its decisions, the recording path.
//!
//! The library is a guest in the program. Invariants: nothing here allocates, blocks, starts a
//! thread, installs a signal handler or changes errno; every loop has a bound; a record that cannot
//! be written is counted. One exception: in a program that allows it, a record waits for memory
//! ([`emit::blocking`]). All state is static.
//!
//! An event's life: [`registration`] finds a module's events at load time and points each at its
//! enable word in the window. An enabled site calls [`emit::fast_path`], which writes contexts and
//! header in front of the staged payload and commits the record (crate `trackway-ring`), unless the
//! session's [`filters`] reject it. Everything else (a process's first event, a full sub-buffer, a
//! stale clock, no rseq) goes to [`emit::slow_path`]. A process that becomes another user moves to
//! that user's window ([`setuid`]), where its events are described again.
//!
//! Modules import only modules above them in this table, which `tests/tidy/rings.rs` checks:
//!
//! | module | contents |
//! |---|---|
//! | [`abi`] | the C structures of `include/trackway/abi/abi.h` |
//! | [`tls`] | thread-local memory, in static TLS |
//! | [`payload`] | the staged payload of an event |
//! | [`sync`] | locks whose owner may vanish |
//! | [`state`] | windows, decisions about sessions, threads, descriptions of events |
//! | [`app_contexts`] | contexts that the program sets |
//! | [`contexts`] | contexts of the thread, for records and for filters |
//! | [`filters`] | filters, as links, plans and machine code |
//! | [`fork_child`] | the list of everything that a fork child resets |
//! | [`mod@emit`] | the recording path |
//! | [`registration`] | events of modules, and events described at run time |
//! | [`snapshot`], [`mod@clone`], [`setuid`], [`mod@start`] | calls from outside |
#![no_std]

pub mod abi;
pub mod app_contexts;
mod clone;
mod contexts;
mod emit;
mod filters;
mod fork_child;
mod payload;
mod registration;
pub mod setuid;
pub mod snapshot;
mod start;
mod state;
mod sync;
mod tls;

pub use clone::{CloneArguments, clone};
pub use emit::fast_path::emit;
pub use registration::dynamic;
pub use registration::register::register_events;
pub use start::{abort, is_first_copy, start};
pub use state::thread::{THREAD_STAMP_OFFSET, THREAD_VFORK_OFFSET};
pub use trackway_sys::Errno;
