//! A session's life: requests, and the decisions about them.

pub mod machine;
pub mod protocol;
