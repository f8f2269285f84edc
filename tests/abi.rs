//! The C API as other languages and other versions meet it: events described at run time, exported
//! symbols, layouts, and what happens where library, header and recorder are not of one version.
//!
//! The sources are in `tests/abi/`.

#[path = "abi/dynamic.rs"]
mod dynamic;
#[path = "abi/pins.rs"]
mod pins;
#[path = "abi/snapshot.rs"]
mod snapshot;
#[path = "abi/stack.rs"]
mod stack;
#[path = "abi/versions.rs"]
mod versions;
