//! The kernel's events: listed, recorded, filtered, in sessions, and as independent observers count
//! them.

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
