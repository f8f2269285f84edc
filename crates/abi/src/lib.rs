//! Memory layouts that two processes share: the window, its tables, a region's control lines, the
//! record header.
//!
//! This crate has layouts and constants, no logic. Main invariant: every type here is `repr(C)` and
//! consists of atomics only, because any process of the user may write at any time. Size and
//! offsets are asserted below each type. A reader copies a value, checks its bounds, then uses it.
//!
//! **Version rule**, from the first release on. Any change of a layout or of a meaning raises
//! [`ABI_VERSION`], and with it the name of the window file: old and new libraries then use
//! different windows side by side. A recorder serves the windows of its own version, and reports
//! processes with another version.
#![no_std]
#![forbid(unsafe_code)]

pub mod record;
pub mod region;
pub mod session;
pub mod window;

/// Version of everything in this crate; part of the window's file name.
///
/// `--cfg trackway_abi="older"` or `"newer"` builds a library or a command of another version, for
/// tests of mixed versions.
pub const ABI_VERSION: u32 = if cfg!(trackway_abi = "older") {
    1
} else if cfg!(trackway_abi = "newer") {
    3
} else {
    2
};
