//! Resolves traces that are named by the sessions that record them.

use std::path::{Path, PathBuf};

use trackway_recorder::control::RunFolder;
use trackway_recorder::control::client::Session;
use trackway_recorder::protocol::{Answer, Request};

/// Replaces session names by the folders of their traces. Existing paths stay unchanged. A name
/// without a session stays, too: opening it reports the error.
pub(crate) fn resolve_session_names(traces: &mut [PathBuf]) {
    for path in traces.iter_mut().filter(|path| !path.exists()) {
        if let Some(folder) = session_name_from_path(path).and_then(query_trace_folder) {
            *path = folder;
        }
    }
}

/// Returns the path as text if it can be a session's name.
pub(crate) fn session_name_from_path(path: &Path) -> Option<&str> {
    path.to_str().filter(|name| !name.is_empty() && !name.contains('/'))
}

fn query_trace_folder(name: &str) -> Option<PathBuf> {
    let mut session = Session::connect(&RunFolder::of(name), name).ok()?;
    match session.request(Request::Status) {
        Ok(Answer::Status(status)) => Some(status.folder),
        _ => None,
    }
}
