//! The kernel's side: what events it has ([`catalogue`]), and filters as it takes them.
//!
//! Filters are the bytecode that traced programs run, instruction by instruction, with what the
//! kernel wants around it.
//!
//! The kernel's verifier knows no frames and none of our helpers. So a program for it is put
//! together of three parts ([`adapt`]): a prologue that finds the frame and calls the filter as a
//! function of the program; the filter itself, in which calls of helpers have become calls of
//! functions; and those functions, written in BPF (`text`, `search`, `value`, `state`). A frame is
//! a piece of memory with the layout of [`area`], which here is the only value of a map.
//!
//! What of a filter the kernel cannot do, [`adapt::Unfit`] names: arithmetic on floats first of
//! all. docs/design/0008-filters.md, "In the kernel", has the reasons.
#![deny(unsafe_code)]

pub mod adapt;
pub mod area;
mod asm;
#[expect(unsafe_code, reason = "bpf(2) takes addresses")]
pub mod bpf;
mod btf;
pub mod catalogue;
pub mod ftrace;
#[expect(unsafe_code, reason = "a map is memory that the kernel writes")]
mod mapped;
mod pattern;
pub mod record;
mod search;
mod state;
mod text;
mod value;
mod words;
