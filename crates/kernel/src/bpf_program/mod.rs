//! BPF programs that record kernel events into regions like those of traced programs; the recorder
//! drains both kinds with one reader. docs/design/0011-kernel-recording.md.
//!
//! ```text
//! catalogue::Event → plan (fields and their sources) → codegen → attach
//!                                                          ↓
//!                                       buffers: one map, mapped by the recorder, too
//! ```
//!
//! Invariant: a program commits a record by its last store. No other program on its CPU interrupts
//! it on the same level: programs that interrupt one another write separate regions ([`layout`]).

pub mod arguments;
#[expect(unsafe_code, reason = "bpf(2), perf_event_open(2) and ioctl(2) take addresses")]
pub mod attach;
pub mod buffers;
pub mod cgroup;
pub mod codegen;
pub mod contexts;
pub mod filter;
pub mod kernel_version;
pub mod layout;
pub mod plan;
pub mod pointer_fields;
mod pointer_prefetch;
mod preemption;
mod registers;
pub mod request_flags;
pub mod scope;
pub mod support;
mod user_memory;
