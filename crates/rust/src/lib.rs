//! Trackway's events for Rust programs: declare them where they happen, leave them in.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "tracing")]
mod callsite;
mod event;
mod kind;
#[cfg(feature = "tracing")]
pub mod layer;
pub mod level;
#[cfg(feature = "log")]
pub mod log;
mod macros;
#[cfg(any(feature = "tracing", feature = "log"))]
mod runtime;
mod span;
mod stage;
#[cfg(feature = "tracing")]
pub mod subscriber;

pub use kind::{Bytes, Hex, Unsigned, Value, bytes, hex};
#[cfg(feature = "tracing")]
pub use layer::layer;
pub use span::Span;
#[cfg(feature = "tracing")]
pub use subscriber::subscriber;

/// For the macros.
#[doc(hidden)]
pub mod __private {
    pub use crate::event::{Event, NEVER, Site, check_name};
    pub use crate::kind::{Enumerated, Enumeration, Kind, Value, hash_labels};
    pub use crate::stage::Fields;

    /// What a record has of a value.
    #[inline(always)]
    pub fn kind<V: Value + ?Sized>(value: &V) -> V::Kind {
        value.kind()
    }
}
