//! A session's life: what is asked of it, and what it does about that.

pub mod machine;
pub mod protocol;
