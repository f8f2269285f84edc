//! Locks whose owner may vanish: a signal handler jumps out, a thread ends in the middle.

pub(crate) mod claims;
pub(crate) mod recoverable_lock;
