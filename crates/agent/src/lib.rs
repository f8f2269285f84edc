//! The library inside the traced process: its events, its decisions, the recording path.
//!
//! What is linked into somebody else's program is a guest. Invariants: nothing here allocates,
//! blocks, starts a thread, installs a handler or changes errno; every loop has a bound; a record
//! that cannot be written is counted. (In a program that has asked for it, it waits for room first:
//! [`blocking`].) All state is static: the window ([`home`]), one cached decision a session
//! ([`decision`]), one line of thread-local memory ([`thread`]), the program's name ([`program`]).
//!
//! The life of an event: [`register`] finds a module's events at load time and points each at its
//! enable word in the window; [`record::emit`] is called by an enabled site, puts contexts and
//! header in front of the staged payload, and commits it (crate `trackway-ring`), if the session's
//! [`filters`] do not say that it is not to be; whatever is not
//! ordinary (first event of a process, sub-buffer full, stale clock, no rseq) goes to [`slow`]. A
//! process that becomes another user moves to that user's window ([`privileges`]), where what it
//! has described is described again ([`known`]).
#![no_std]

pub mod abi;
pub mod application;
mod ask;
mod blocking;
mod claims;
mod clone;
mod context;
mod decision;
pub mod dynamic;
mod environment;
mod filters;
mod fork_child;
mod holder;
mod home;
mod known;
mod links;
mod now;
pub mod privileges;
mod program;
pub mod record;
pub mod register;
mod slow;
pub mod snapshot;
mod start;
mod thread;
mod tls;

pub use clone::{CloneArguments, clone};
pub use start::{abort, is_first_copy, start};
pub use thread::{THREAD_STAMP_OFFSET, THREAD_VFORK_OFFSET};
pub use trackway_sys::Errno;
