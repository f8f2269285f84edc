//! Kernel events: listing, recording, filtering, sessions, and comparison with independent
//! observers.

mod agree;
mod analyses;
mod catalogue;
mod filter;
mod killed;
mod kinds;
mod record;
mod scope;
mod session;
mod support;
mod symbols;
mod tracefs;
