//! The files of a trace: its folder, streams, metadata, and the mark that it is complete.

pub(crate) mod completion;
pub(crate) mod folder;
pub(crate) mod fuse_owner;
pub(crate) mod layout;
pub(crate) mod loss_history;
pub(crate) mod metadata;
pub(crate) mod prepare;
pub(crate) mod progress_file;
pub(crate) mod rotation;
pub(crate) mod stream;
