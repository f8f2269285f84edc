//! Recording the kernel's events: programs that put them into buffers like those of traced
//! programs, which the same reader drains. docs/design/0011-kernel-recording.md.
//!
//! ```text
//! catalogue::Event → staging (what is recorded, from where) → program → attach
//!                                                                ↓
//!                                             buffers: one map, mapped here, too
//! ```
//!
//! Invariant: a record is committed by one store, the last one, of a program that nothing else on
//! its CPU can interrupt *on the same level*: programs that interrupt one another write regions of
//! their own ([`layout`]).

mod ahead;
pub mod arguments;
#[expect(unsafe_code, reason = "bpf(2), perf_event_open(2) and ioctl(2) take addresses")]
pub mod attach;
pub mod behind;
pub mod buffers;
pub mod cgroup;
pub mod context;
pub mod filter;
pub mod layout;
mod memory;
pub mod operation;
mod preemption;
pub mod probe;
pub mod program;
pub mod release;
pub mod scope;
pub mod staging;
