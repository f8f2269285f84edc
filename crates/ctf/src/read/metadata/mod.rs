//! Parsing of metadata: from its text to the classes of a [`Trace`](super::Trace).

mod clocks;
mod finish;
pub(crate) mod json;
mod lexer;
pub(crate) mod node;
pub(crate) mod packetized;
pub(crate) mod parser;
pub(crate) mod resolve;
mod roles;
mod type_parser;
