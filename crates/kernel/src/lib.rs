//! Kernel events: their catalogue, their recording, and filters that run in the kernel.
//!
//! Filters use the bytecode that traced programs run, instruction by instruction, with the frame
//! and the helper functions that the kernel requires.
//!
//! ```text
//! catalogue    the events of the running kernel and their fields
//! bpf_program  recording with BPF programs, into Trackway's buffers
//! bpf_filter   filters as functions of BPF programs
//! bpf_sys      bpf(2), mapped arrays, and an assembler
//! tracefs      recording through an instance of tracefs, whose records are converted
//! ```
#![deny(unsafe_code)]

pub mod bpf_filter;
pub mod bpf_program;
pub mod bpf_sys;
pub mod catalogue;
pub mod tracefs;
