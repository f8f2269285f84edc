//! CTF bytes and events: metadata, packets and indexes written; traces read and printed.
//!
//! Everything here is free of input and output: bytes and descriptions go in, bytes and events
//! come out. Bytes that are read are hostile until checked: whatever they are, the reader answers
//! with events or with an error that says where, and never panics.
#![forbid(unsafe_code)]

mod literal;
pub mod read;
pub mod text;
mod uuid;
pub mod write;
