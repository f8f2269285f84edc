//! The kernel's side: what events it has ([`catalogue`]), and filters as it takes them.
//!
//! Filters are the bytecode that traced programs run, instruction by instruction, with what the
//! kernel wants around it.
//!
//! ```text
//! catalogue   which events the kernel has, and what their fields are
//! bpf_filter  filters as functions of BPF programs
//! bpf_sys     bpf(2), its maps in memory, and an assembler
//! record      events by BPF programs, into buffers of ours
//! ftrace      events by an instance of tracefs, converted
//! ```
#![deny(unsafe_code)]

pub mod bpf_filter;
pub mod bpf_program;
pub mod bpf_sys;
pub mod catalogue;
pub mod tracefs;
