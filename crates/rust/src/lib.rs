//! Trackway's events for Rust programs: instrument code once, and keep the events in it.
//!
//! [Trackway](https://docs.rs/trackway) records the events of programs, at a cost per event close
//! to reading the clock.
//!
//! ```
//! fn serve(path: &str) -> u16 {
//!     let status = 200;
//!     trackway::event!(myapp, request, INFO, path = path, status = status, kept = true);
//!     status
//! }
//! # serve("/index.html");
//! ```
//!
//! ```text
//! $ trackway record -o trace -- target/release/myapp
//! $ trackway print trace
//! … myapp:request: { cpu_id = 0 }, { vtid = 4242 }, { path = "/index.html", status = 200, …
//! ```
//!
//! - [`event!`] records an event. Its fields have the types of their [values](Value).
//! - [`span!`] records the beginning and the end of a scope.
//! - [`snapshot()`] requests a snapshot from the flight recorders that record the program.
//! - [`context!`] defines values that all events of a thread have, such as the current request.
//! - [`enumeration!`] defines enumerations whose values have names in a trace.
//! - [`layer()`] and [`subscriber()`] record spans and events of `tracing` (feature `tracing`), and
//!   [`log::init`] records messages of `log` (feature `log`).
//!
//! # Library and platforms
//!
//! Like the C header `<trackway/trackway.h>`, the crate contains no tracer. The tracer is
//! `libtrackway.so`, which `trackway record` preloads, or with which a program is linked. The
//! library finds the events in the program's data. Without it, every event is off permanently, and
//! the crate creates no file and no thread and uses no memory.
//!
//! The crate supports Linux on x86-64, AArch64 and RISC-V (64 bits). On other machines it compiles,
//! but events are always off. Events are also off in statically linked programs.
//!
//! # Cost
//!
//! While an event is off, its call costs two loads and a branch that is not taken, and its values
//! are not evaluated. While it is on, it costs as much as in C: its values are assembled on the
//! stack, and libtrackway.so appends them to a buffer in shared memory. `trackway bench tracepoint`
//! and `trackway bench spans` measure both on your machine.
//!
//! # Features
//!
//! - `std` (default): `String`, `Vec`, `Path` and other types of the standard library are values.
//!   Without this feature, the crate needs only `core`.
//! - `tracing`: [`layer()`] and [`subscriber()`].
//! - `log`: [`log::init`].
#![cfg_attr(not(feature = "std"), no_std)]

mod budget;
#[cfg(feature = "tracing")]
mod callsite;
mod context;
mod event;
mod kind;
#[cfg(feature = "tracing")]
pub mod layer;
pub mod level;
#[cfg(feature = "log")]
pub mod log;
mod macros;
#[cfg(any(feature = "tracing", feature = "log"))]
mod payload;
#[cfg(feature = "tracing")]
mod runtime;
mod site;
mod snapshot;
mod span;
mod stage;
#[cfg(feature = "tracing")]
pub mod subscriber;
mod weak;

pub use context::{Context, ContextValue, Entered};
pub use kind::{Bytes, Hex, Unsigned, Value, bytes, hex};
#[cfg(feature = "tracing")]
pub use layer::layer;
pub use snapshot::{snapshot, snapshot_of};
pub use span::Span;
#[cfg(feature = "tracing")]
pub use subscriber::subscriber;

/// Items that the macros use.
#[doc(hidden)]
pub mod __private {
    pub use crate::event::{Event, NEVER, check_name};
    pub use crate::kind::{Enumerated, Enumeration, Kind, Value, hash_labels};
    pub use crate::site::Site;
    pub use crate::stage::Fields;
}
