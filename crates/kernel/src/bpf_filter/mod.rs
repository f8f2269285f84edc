//! Filters in the form that the kernel accepts.
//!
//! The kernel's verifier has no frames and no Trackway helpers. So a program for the kernel has
//! three parts ([`translate`]): a prologue that finds the frame and calls the filter as a function;
//! the filter, with helper calls replaced by function calls; and these functions, written in BPF
//! (`text`, `search`, `value`, `state`). A frame is memory with the layout of [`scratch`], here the
//! only value of a map.
//!
//! [`translate::Unsupported`] names the unsupported part of a filter, mostly arithmetic on floats.
//! For the reasons see docs/design/0008-filters.md, "In the kernel".

pub(crate) mod helper_cost;
pub mod loaded_filter;
pub(crate) mod pattern;
pub mod scratch;
mod search;
pub(crate) mod state;
mod text;
pub mod translate;
mod value;
