//! Files and folders in a particular state: regular files, removed folders.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a regular file; any other file, such as a pipe, could block.
///
/// # Errors
///
/// If the file cannot be opened, is a link, or is not regular.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Error of a write to a folder that was removed.
#[derive(Debug)]
pub(crate) struct Removed;

impl core::fmt::Display for Removed {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("its folder was removed")
    }
}

impl std::error::Error for Removed {}

/// Returns true if the error reports a removed folder, whose contents are lost permanently.
pub(crate) fn reports_removal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Removed>())
}
