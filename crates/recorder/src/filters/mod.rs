//! Filters of user events: checked before a recording begins, and published in the window.

pub(crate) mod check;
pub(crate) mod publish;
pub(crate) mod scope;
pub(crate) mod unmatched;
