//! Recording of kernel events without BPF: the recorder reads ring buffers of tracefs and converts
//! their records to those of [`crate::bpf_program`]. docs/design/0012-kernel-tracefs.md.
//!
//! ```text
//! instance (one for each recording) → page (records of a buffer) → convert
//!                       contexts (thread, CPU, preemption) ↗         ↖ filter
//! ```
//!
//! Invariant: the recorder checks all lengths in pages and records, though the kernel wrote them.
//! It counts invalid data and skips the rest of the page.

pub mod contexts;
pub mod convert;
pub mod filter;
pub mod instance;
pub mod page;
