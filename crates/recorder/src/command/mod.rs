//! The traced command and its processes: start, observation, and the versions of their library.

pub(crate) mod descendants;
pub(crate) mod launch;
pub(crate) mod library_versions;
