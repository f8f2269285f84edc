//! Filters on user events: checked before anything begins, and published in the window.

pub(crate) mod check;
pub(crate) mod publish;
pub(crate) mod scope;
pub(crate) mod unmatched;
