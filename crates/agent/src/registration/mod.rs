//! Registration of events: events of loaded modules, and events described at run time.

pub mod dynamic;
mod dynamic_payload;
pub(crate) mod register;
