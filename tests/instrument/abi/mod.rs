//! The C API as other languages and other versions meet it: events described at run time, exported
//! symbols, layouts, and what happens where library, header and recorder are not of one version.
//!
//! The sources are in `tests/instrument/abi/`.

mod dynamic;
mod pins;
mod snapshot;
mod stack;
mod versions;
