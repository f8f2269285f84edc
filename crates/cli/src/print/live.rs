//! Targets of `--follow`: folders of traces, and sessions that are recording, by name.

use std::path::{Path, PathBuf};

use trackway_recorder::RecordError;
use trackway_recorder::control::RunFolder;
use trackway_recorder::control::client::Session;
use trackway_recorder::protocol::{Answer, Request};

use crate::session_traces;

/// A followed session. While this value exists, the session's recorder writes available events
/// fifty times a second, and updates the end of written data in the traces.
pub(super) struct FollowedSession {
    /// The folders of the session's traces.
    pub(super) folders: Vec<PathBuf>,
    /// The connection to the recorder; while it is open, the recorder serves a follower.
    pub(super) _connection: Option<Session>,
}

/// A target as the user named it.
#[derive(Debug, Clone, Copy)]
pub(super) enum NamedTarget<'a> {
    /// An existing path: a session may record into it.
    Folder(&'a Path),
    /// A nonexistent path that may be the name of a session.
    Name(&'a str),
}

impl<'a> NamedTarget<'a> {
    /// Classifies `path`; returns `None` if it neither exists nor can be a session's name.
    fn of(path: &'a Path) -> Option<Self> {
        if path.exists() {
            return Some(Self::Folder(path));
        }
        session_traces::session_name_from_path(path).map(Self::Name)
    }
}

/// Finds the session and informs its recorder that a reader follows; returns `None` if there is no
/// such session.
///
/// # Errors
///
/// If a session has this name, but its recorder does not answer.
pub(super) fn find_session(named: NamedTarget<'_>) -> anyhow::Result<Option<FollowedSession>> {
    match named {
        NamedTarget::Name(name) => match Session::connect(&RunFolder::of(name), name) {
            Ok(session) => follow_session(session).map(Some),
            Err(RecordError::NoSession(_)) => Ok(None),
            Err(error) => Err(error.into()),
        },
        // Without a connection, the trace is followed, too, but a second later.
        NamedTarget::Folder(path) => {
            Ok(find_recording_session(path).and_then(|session| follow_session(session).ok()))
        }
    }
}

fn follow_session(mut session: Session) -> anyhow::Result<FollowedSession> {
    let Answer::Following { folders } = session.request(Request::Follow)? else {
        anyhow::bail!("the recorder did not say where its trace is");
    };
    Ok(FollowedSession { folders, _connection: Some(session) })
}

/// Returns the session that records into this folder.
fn find_recording_session(path: &Path) -> Option<Session> {
    let path = path.canonicalize().ok()?;
    let folder = RunFolder::new();
    folder.names().ok()?.into_iter().find_map(|name| {
        let mut session = Session::connect(&folder, &name).ok()?;
        let Ok(Answer::Status(status)) = session.request(Request::Status) else { return None };
        (status.folder.canonicalize().ok()? == path).then_some(session)
    })
}

/// The resolved targets.
pub(super) struct Targets {
    /// Folders of traces.
    pub(super) folders: Vec<PathBuf>,
    /// The followed sessions, until this value is dropped.
    _sessions: Vec<FollowedSession>,
}

impl Targets {
    /// Resolves the targets with `find`. An existing folder takes precedence over a session's name.
    ///
    /// # Errors
    ///
    /// If `find` fails. A path that is neither a folder nor a session is kept: opening it reports
    /// the error.
    pub(super) fn resolve(
        named: &[PathBuf],
        find: impl Fn(NamedTarget<'_>) -> anyhow::Result<Option<FollowedSession>>,
    ) -> anyhow::Result<Self> {
        let (mut folders, mut sessions) = (Vec::new(), Vec::new());
        for path in named {
            match NamedTarget::of(path).map(&find).transpose()?.flatten() {
                Some(live) => {
                    folders.extend_from_slice(&live.folders);
                    sessions.push(live);
                }
                None => folders.push(path.clone()),
            }
        }
        Ok(Self { folders, _sessions: sessions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_found_by_names_that_are_no_paths() {
        let asked = std::cell::RefCell::new(Vec::new());
        let find = |named: NamedTarget<'_>| {
            let NamedTarget::Name(name) = named else { return Ok(None) };
            asked.borrow_mut().push(name.to_owned());
            let folders = vec!["/x/ust".into(), "/x/kernel".into()];
            anyhow::ensure!(name != "dead", "its recorder does not answer");
            Ok((name == "known").then_some(FollowedSession { folders, _connection: None }))
        };
        let named = ["src", "known", "not/there", "unknown", ""].map(PathBuf::from);
        let targets = Targets::resolve(&named, find).expect("it answers");
        let expected = ["src", "/x/ust", "/x/kernel", "not/there", "unknown", ""];
        assert_eq!(targets.folders, expected.map(PathBuf::from));
        // The package's folder `src` exists, so no session has been searched for it.
        assert_eq!(*asked.borrow(), ["known", "unknown"]);
        assert!(Targets::resolve(&["dead".into()], find).is_err());
    }
}
