//! CTF bytes and events: metadata, packets and indexes written; traces read.
//!
//! Everything here is free of input and output: bytes and descriptions go in, bytes and events
//! come out. Bytes that are read are hostile until checked: whatever they are, the reader answers
//! with events or with an error that says where, and never panics.
#![forbid(unsafe_code)]

pub(crate) mod model;
pub mod read;
pub mod write;

pub use model::{Literal, Uuid};
