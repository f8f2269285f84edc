//! Trackway's events for Rust programs: declare them where they happen, leave them in.
//!
//! [Trackway](https://docs.rs/trackway) records what programs do, event by event, at a cost close
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
//! - [`event!`] records an event. The types of its fields are those of the [values](Value).
//! - [`span!`] records the beginning and the end of a scope.
//! - [`snapshot()`] asks the flight recorders that record the program for what they have.
//! - [`context!`] makes values that all events of a thread have, such as the request it serves.
//! - [`enumeration!`] makes enumerations whose values have names in a trace.
//! - [`layer()`] and [`subscriber()`] record what a program says through `tracing` (feature
//!   `tracing`), and [`log::init`] what it says through `log` (feature `log`).
//!
//! # What is there, and what is not
//!
//! Like the C header `<trackway/trackway.h>`, the crate has no tracer in it: `libtrackway.so` is
//! that, which `trackway record` preloads, or a program is linked with. It finds the events in the
//! program's data. Without it, every event is off, for good, and nothing else happens: no file, no
//! thread, no memory.
//!
//! Linux on x86-64, AArch64 and RISC-V (64 bits) is what is supported. On other machines all of
//! this compiles, and events are off.
//! The same holds for programs that are linked statically.
//!
//! # Cost
//!
//! While an event is off, its call is two loads and a branch that is not taken, and its values are
//! not evaluated. When it is on, it costs what it costs in C: its values are put together on the
//! stack, and libtrackway.so appends them to a buffer in shared memory. `trackway bench tracepoint`
//! and `trackway bench spans` measure both on your machine.
//!
//! # Features
//!
//! - `std` (default): `String`, `Vec`, `Path` and other types of it are values. Without it, the
//!   crate needs `core` alone.
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

/// For the macros.
#[doc(hidden)]
pub mod __private {
    pub use crate::event::{Event, NEVER, check_name};
    pub use crate::kind::{Enumerated, Enumeration, Kind, Value, hash_labels};
    pub use crate::site::Site;
    pub use crate::stage::Fields;
}
