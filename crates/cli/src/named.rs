//! Traces that are named by the sessions that record them.

use std::path::{Path, PathBuf};

use trackway_recorder::control::RunFolder;
use trackway_recorder::control::client::Session;
use trackway_recorder::protocol::{Answer, Request};

/// What is no path here, and is a session's name, becomes the folder of its trace. What is neither
/// stays as it is, to be told of by whoever opens it.
pub(crate) fn find(traces: &mut [PathBuf]) {
    for path in traces.iter_mut().filter(|path| !path.exists()) {
        if let Some(folder) = name_of(path).and_then(folder_of) {
            *path = folder;
        }
    }
}

/// What may be the name of a session.
pub(crate) fn name_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|name| !name.is_empty() && !name.contains('/'))
}

fn folder_of(name: &str) -> Option<PathBuf> {
    let mut session = Session::connect(&RunFolder::of(name), name).ok()?;
    match session.request(Request::Status) {
        Ok(Answer::Status(status)) => Some(status.folder),
        _ => None,
    }
}
