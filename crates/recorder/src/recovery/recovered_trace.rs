//! New traces beside original ones, for records in memory whose trace was removed or is unwritable.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::control::origin_file::Origin;
use crate::error::RecordError;
use crate::recording::channel::{self, Channel};
use crate::trace::layout::{Trace, TraceProperties};
use crate::trace::prepare::{self, PreparedFolder};

/// Most names that are tried for a new trace.
const NAMES_MAX: u32 = 1000;

/// A new trace and its folder.
pub(crate) struct RecoveredTrace {
    pub(crate) prepared_folder: PreparedFolder,
    pub(crate) trace: Trace,
}

/// Creates an empty trace of these channels beside the original `DIR`: `DIR.recovered`, or
/// `DIR.recovered-2`, …. With `may_be_here`, uses the current folder if DIR's parent was removed.
///
/// # Errors
///
/// If the trace cannot be created.
pub(crate) fn create_beside_original(
    origin: &Origin,
    channels: &[Channel],
    may_be_here: bool,
) -> Result<RecoveredTrace, RecordError> {
    let path = create_free_folder(&origin.root, may_be_here)?;
    let prepared_folder =
        prepare::prepare_trace_folder(&path).inspect_err(|_| drop(fs::remove_dir(&path)))?;
    let of = TraceProperties {
        folder: origin.folder,
        ..channel::trace_properties(origin.uuid, channels)
    };
    match Trace::create(&prepared_folder.trace_folder(), of) {
        Ok(trace) => Ok(RecoveredTrace { prepared_folder, trace }),
        Err(error) => {
            // A folder that cannot be removed is harmless.
            let _ = remove_unwritten_trace(&prepared_folder);
            Err(error)
        }
    }
}

/// Removes a new trace that could not be written: all its records are still in memory.
///
/// # Errors
///
/// If some of its files or its folder remain.
pub(crate) fn remove_unwritten_trace(prepared_folder: &PreparedFolder) -> io::Result<()> {
    let place = prepared_folder.trace_folder();
    // If writing has not begun, there is no such folder.
    let _ = place.remove_below(&["ust"]);
    place.remove_if_empty()
}

/// Creates the folder, with a name that is free.
fn create_free_folder(root: &Path, may_be_here: bool) -> Result<PathBuf, RecordError> {
    if !root.is_absolute() {
        // Recorders write absolute paths: a process has overwritten this path.
        return Err(RecordError::io("use", root)(ErrorKind::InvalidInput.into()));
    }
    let is_there = root.parent().is_some_and(Path::is_dir);
    let base = if is_there || !may_be_here {
        root
    } else {
        Path::new(root.file_name().unwrap_or_default())
    };
    let mut name = with_suffix(base, ".recovered");
    for number in 2..NAMES_MAX {
        match DirBuilder::new().mode(0o700).create(&name) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                name = with_suffix(base, &format!(".recovered-{number}"));
            }
            Err(error) => return Err(RecordError::io("make", &name)(error)),
        }
    }
    Err(RecordError::FolderInUse(name))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
