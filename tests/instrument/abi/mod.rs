//! The C API in other languages and versions: events described at run time, exported symbols,
//! layouts, and library, header and recorder of different versions.
//!
//! The sources are in `tests/instrument/abi/`.

mod dynamic;
mod pins;
mod snapshot;
mod stack;
mod versions;
