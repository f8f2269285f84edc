//! The kernel's BPF interface: system calls, mapped arrays, type information, instructions.

pub(crate) mod asm;
#[expect(unsafe_code, reason = "bpf(2) takes addresses")]
pub mod bpf;
pub(crate) mod btf;
#[expect(unsafe_code, reason = "a map is memory that the kernel writes")]
pub(crate) mod mapped;
