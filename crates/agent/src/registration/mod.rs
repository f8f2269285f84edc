//! Events become known: those of loaded modules, and those described at run time.

pub mod dynamic;
pub(crate) mod register;
