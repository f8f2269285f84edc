//! Recording the kernel's events without BPF: by tracefs, whose ring buffers are read and turned
//! into records as [`crate::record`]'s programs make them. docs/design/0012-kernel-tracefs.md.
//!
//! ```text
//! instance (made for one recording) → page (what the kernel's buffers hold) → convert (records)
//!                                         context (who, on which CPU) ↗       filter (which) ↗
//! ```
//!
//! Invariant: what a page or a record says of itself is checked before it is believed, though the
//! kernel wrote it; what makes no sense is counted, and costs what is left of its page.

pub mod context;
pub mod convert;
pub mod filter;
pub mod instance;
pub mod page;
