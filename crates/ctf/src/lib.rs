//! Writing of CTF metadata, packets and indexes; reading of traces.
//!
//! This crate does no input or output: bytes and descriptions go in, bytes and events come out.
//! Bytes from a trace are hostile until checked. On any bytes, the reader returns events or an
//! error with its place, and never panics.
#![forbid(unsafe_code)]

pub(crate) mod model;
pub mod read;
pub mod write;

pub use model::{Literal, Uuid};
