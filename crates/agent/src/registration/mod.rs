//! Events become known: those of loaded modules, and those described at run time.

pub mod dynamic;
mod dynamic_payload;
pub(crate) mod register;
