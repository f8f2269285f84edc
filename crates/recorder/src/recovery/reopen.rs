//! Reopening of the streams of a dead recorder.

use std::io::ErrorKind;

use crate::error::RecordError;
use crate::recording::Recording;
use crate::trace::stream::is_progress_in;

impl Recording {
    /// Reopens the streams at the progress that the dead recorder left in the window.
    pub(super) fn reopen_streams(&mut self) -> Result<(), RecordError> {
        let channel = &self.trace.channel;
        let folder = channel.current_path().map_err(RecordError::io("open", channel.path()))?;
        let is_of_another = self.handle.uid() != crate::common::user::effective_uid();
        for work in self.channels.iter_mut().flat_map(|channel| &mut channel.regions) {
            let drained = work.region.0.control.drained();
            // The window's user must not be able to undo what is already written.
            if is_of_another && !is_progress_in(&folder, &work.name(), &drained) {
                work.drained = drained;
                work.given_up = true;
                work.damaged += 1;
                continue;
            }
            match work.reopen_stream(&self.trace) {
                Ok(()) => {}
                // A process removed or truncated the file, or overwrote the progress.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData
                    ) =>
                {
                    work.given_up = true;
                    work.damaged += 1;
                }
                Err(error) => {
                    let path = channel.path().join(work.name());
                    return Err(RecordError::io("open", path)(error));
                }
            }
        }
        Ok(())
    }
}
