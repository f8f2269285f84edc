//! The control of a session: requests, and the state machine that decides about them.

pub mod machine;
pub mod protocol;
