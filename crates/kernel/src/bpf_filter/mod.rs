//! Filters as the kernel takes them.
//!
//! The kernel's verifier knows no frames and none of our helpers. So a program for it is put
//! together of three parts ([`adapt`]): a prologue that finds the frame and calls the filter as a
//! function of the program; the filter itself, in which calls of helpers have become calls of
//! functions; and those functions, written in BPF (`text`, `search`, `value`, `state`). A frame is
//! a piece of memory with the layout of [`area`], which here is the only value of a map.
//!
//! What of a filter the kernel cannot do, [`adapt::Unfit`] names: arithmetic on floats first of
//! all. docs/design/0008-filters.md, "In the kernel", has the reasons.

pub mod adapt;
pub mod area;
pub mod loaded;
pub(crate) mod pattern;
mod search;
pub(crate) mod state;
mod text;
mod value;
pub(crate) mod words;
