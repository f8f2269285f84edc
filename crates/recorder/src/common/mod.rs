//! Small helpers: dates, files, numbers in words, the user.

pub(crate) mod date;
pub(crate) mod files;
pub(crate) mod numbers;
pub(crate) mod user;
