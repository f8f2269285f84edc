//! Bytes that two processes share: the window, its tables, a region's control lines, the record
//! header.
//!
//! This crate has layouts and constants, no logic. Main invariant: every type here is `repr(C)`,
//! made of atomics only (any process of the user may write at any time), and its size and offsets
//! are asserted below the type. Whoever reads a value copies it, bounds it, then believes it.
//!
//! **Version rule**, from the first release on. Any change of a layout or of a meaning raises
//! [`ABI_VERSION`], and with it the name of the window file: old and new libraries then use
//! different windows side by side, and a recorder serves both.
#![no_std]
#![forbid(unsafe_code)]

pub mod record;
pub mod region;
pub mod session;
pub mod window;

/// Version of everything in this crate; part of the window's file name.
pub const ABI_VERSION: u32 = 1;
