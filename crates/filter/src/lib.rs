//! Filters as people write them: from text to tree, to types, to a graph, to bytecode.
//!
//! What a filter is to those who run it: docs/design/0008-filters.md.
#![forbid(unsafe_code)]

pub mod compile;
mod emit;
pub mod error;
pub mod evaluate;
pub mod explain;
mod graph;
pub mod layout;
pub mod number;
pub mod object;
pub mod parse;
pub mod span;
pub mod text;
pub mod token;
pub mod types;
