//! Instrumentation of programs: the library's symbols and versions, its linking, the crate
//! `trackway`, the preload helpers. `tests/header` tests the headers.

mod abi;
mod linking;
mod preload;
mod rust;
