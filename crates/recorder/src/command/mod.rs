//! The traced command and its processes: launched, watched, and the library that they load.

pub(crate) mod descendants;
pub(crate) mod launch;
pub(crate) mod library_versions;
