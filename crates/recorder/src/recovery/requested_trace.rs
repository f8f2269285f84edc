//! Trace that a user named for recovery, even if it was moved since it was recorded.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use trackway_abi::session::Session;

use super::lock_trace;
use crate::error::RecordError;
use crate::notices::Notices;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{self, CALIBRATIONS_FILE, FACTS_FOLDER, WindowFolder, streams_folder};
use crate::trace::metadata::Metadata;
use crate::window::shared_text::{self, uuid_of};

/// Trace that a user named.
pub(super) struct RequestedTrace {
    /// Absolute path of the trace.
    pub(super) path: PathBuf,
    /// Identity of the trace's part for the calling user's own window, if it can be read.
    pub(super) uuid: Option<[u8; 16]>,
    /// Window folders in the trace with their identities, if the calling user may write them.
    pub(super) parts: Vec<(WindowFolder, [u8; 16])>,
}

impl RequestedTrace {
    pub(super) fn new(path: &Path) -> Self {
        let uuid = Metadata::uuid_in(&streams_folder(path, crate::common::user::effective_uid()));
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // Remove a slash at the end, like `prepare::prepare_trace_folder` does.
        let path: PathBuf = absolute.components().collect();
        let part = |channel: PathBuf| {
            let is_ours = fs::metadata(&channel)
                .is_ok_and(|it| it.uid() == crate::common::user::effective_uid());
            let folder = WindowFolder::of(&channel).filter(|_| is_ours)?;
            Some((folder, Metadata::uuid_in(&channel)?))
        };
        let parts = layout::user_streams_folders(&path).into_iter().filter_map(part).collect();
        Self { path, uuid, parts }
    }

    /// Returns the window folder in the trace that has this identity.
    pub(super) fn folder_of(&self, uuid: &[u8; 16]) -> Option<WindowFolder> {
        self.parts.iter().find(|(_, part)| part == uuid).map(|(folder, _)| *folder)
    }

    /// Returns true if this is the trace of `session`, even if it was moved. Another trace may have
    /// its former path by now, so paths count only if the identity cannot be read.
    ///
    /// # Errors
    ///
    /// If this is a copy: a copy's streams may end before the position where the session continues,
    /// and records in memory can be written only once.
    pub(super) fn is_of(&self, session: &Session) -> Result<bool, RecordError> {
        let place = shared_text::trace_path_of(session);
        let is_there = place == self.path || is_same_folder(&place, &self.path);
        let Some(uuid) = self.uuid else { return Ok(is_there) };
        if uuid != uuid_of(session) {
            return Ok(false);
        }
        self.check_no_copy(&place, WindowFolder::own(), uuid)?;
        Ok(true)
    }

    /// Checks that no trace with this identity is at `place` any more.
    ///
    /// # Errors
    ///
    /// If there is such a trace, so that the named trace is a copy.
    pub(super) fn check_no_copy(
        &self,
        place: &Path,
        folder: WindowFolder,
        uuid: [u8; 16],
    ) -> Result<(), RecordError> {
        let is_here = place == self.path || is_same_folder(place, &self.path);
        if !is_here && Metadata::uuid_in(&folder.in_trace(place)) == Some(uuid) {
            return Err(RecordError::Copy(self.path.clone(), place.to_owned()));
        }
        Ok(())
    }

    /// Marks window folders without records in memory as complete, if they were recorded here, are
    /// not marked, and are not being recorded. Returns true if any was marked.
    ///
    /// # Errors
    ///
    /// If the state cannot be determined: the trace is busy, cannot be opened or does not exist.
    pub(super) fn mark_complete(
        &self,
        in_memory: &[[u8; 16]],
        notices: &Notices,
    ) -> Result<bool, RecordError> {
        let mut is_news = false;
        for (folder, uuid) in &self.parts {
            if !in_memory.contains(uuid) {
                is_news |= self.mark_window(*folder, true)?;
            }
        }
        if self.parts.is_empty() && in_memory.is_empty() {
            is_news = self.mark_window(WindowFolder::own(), self.uuid.is_some())?;
        }
        if is_news {
            notices.report(format_args!(
                "nothing of {} is in memory any more: what is written is all there is",
                self.path.display()
            ));
        }
        Ok(is_news)
    }

    /// Marks one window folder; returns true if it was marked.
    fn mark_window(&self, of: WindowFolder, is_known: bool) -> Result<bool, RecordError> {
        let channel = of.in_trace(&self.path);
        let facts = channel.join(FACTS_FOLDER);
        if let Err(error) = fs::metadata(facts.join(CALIBRATIONS_FILE)) {
            // Traces of other tracers, and traces made from other traces, have nothing to recover.
            let is_other = error.kind() == ErrorKind::NotFound && !is_gone(&self.path);
            let fail = || RecordError::io("open", &self.path);
            return if is_other { Ok(false) } else { Err(fail()(error)) };
        }
        if completion::is_marked(&facts) {
            return Ok(false);
        }
        if !is_known {
            // Without the identity, the trace's records in memory are unknown.
            let error = std::io::Error::new(ErrorKind::InvalidData, "it makes no sense");
            return Err(RecordError::Io("read", channel.join("metadata"), error.into()));
        }
        let lock = lock_trace(&self.path)?;
        // From here on the path may lead to another folder.
        let fail = || RecordError::io("write", &facts);
        let open = TraceFolder::of(lock, &self.path).open_below(&of.names()).map_err(fail())?;
        let now = open.current_path().map_err(fail())?.join(FACTS_FOLDER);
        if completion::is_marked(&now) {
            // The trace's recorder has just completed it.
            return Ok(false);
        }
        completion::mark_complete(&now, CompletedBy::Assumption).map_err(fail())?;
        Ok(true)
    }
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let identity = |folder| fs::metadata(folder).map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Returns true if there is no file at the path of a trace.
fn is_gone(folder: &Path) -> bool {
    let found = fs::symlink_metadata(folder);
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
