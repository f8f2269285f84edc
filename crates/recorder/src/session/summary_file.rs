//! Results of a recording as JSON: `trackway record --summary-json FILE`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::command::launch::CommandEnd;
use crate::error::RecordError;
use crate::kernel::backend;
use crate::notices::Notices;
use crate::summary::Summary;

/// Summary file, created before the recording begins: without the file, nothing is recorded.
#[derive(Debug)]
pub(crate) struct SummaryFile {
    path: PathBuf,
    file: File,
}

/// Results of a recording.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// Folder of the trace.
    pub(crate) folder: PathBuf,
    /// Summary of user events; `None` if the trace is not complete.
    pub(crate) programs: Option<Summary>,
    /// Summary of kernel events, if they were recorded.
    kernel: Option<Summary>,
    /// True if some kernel events could not be written.
    lacks_kernel: bool,
    /// End of the command; `None` without a command, or if it has not ended.
    pub(crate) command: Option<CommandEnd>,
}

impl SummaryFile {
    /// Creates or truncates the file.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub(crate) fn create(path: &Path) -> Result<Self, RecordError> {
        let file = File::create(path).map_err(RecordError::io("write", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the results. An error is only reported, since the recording is over.
    pub(crate) fn write(mut self, result: &RunResult, notices: &Notices) {
        let written = serde_json::to_writer_pretty(&self.file, &result.to_json(notices))
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"));
        if let Err(error) = written {
            notices.report(format_args!("{}", RecordError::io("write", self.path)(error)));
        }
    }
}

impl RunResult {
    /// Creates empty results of a recording into `folder`.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, programs: None, kernel: None, lacks_kernel: false, command: None }
    }

    /// Notes the results for kernel events.
    pub(crate) fn note_kernel(&mut self, summary: &backend::Summary) {
        self.kernel = Some(summary.counts());
        self.lacks_kernel = !summary.is_whole();
    }

    fn to_json(&self, notices: &Notices) -> Value {
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let command = self.command.map(|end| match end {
            CommandEnd::Exited(status) => json!({ "exit-status": status }),
            CommandEnd::Killed(signal) => json!({ "signal": signal }),
        });
        json!({
            "trace": folder.to_string_lossy(),
            "is-complete": self.programs.is_some() && !self.lacks_kernel,
            "programs": self.programs.as_ref().map(summary_to_json),
            "kernel": self.kernel.as_ref().map(kernel_summary_to_json),
            "command": command,
            "notices": notices.all(),
        })
    }
}

fn summary_to_json(summary: &Summary) -> Value {
    let mut object = counts_to_json(summary);
    object.extend([
        ("cut".to_owned(), summary.cut.into()),
        ("holes".to_owned(), summary.holes.into()),
        ("processes".to_owned(), summary.processes.into()),
        ("departed".to_owned(), summary.departed.into()),
        ("enough-buffer-bytes".to_owned(), sufficient_sizes_to_json(summary).into()),
    ]);
    object.into()
}

/// Returns estimated buffer sizes that would have avoided the losses, by channel, as far as they
/// are known.
fn sufficient_sizes_to_json(summary: &Summary) -> Map<String, Value> {
    let known = summary.shortfalls.iter().filter(|one| one.roomless > 0);
    let sizes = known.filter_map(|one| Some((one.channel.clone(), one.enough_bytes?.into())));
    sizes.collect()
}

fn kernel_summary_to_json(summary: &Summary) -> Value {
    counts_to_json(summary).into()
}

/// Returns the counts that summaries of user events and of kernel events share.
fn counts_to_json(summary: &Summary) -> Map<String, Value> {
    let lost = summary.lost_by_event.iter().map(|(name, lost)| (name.clone(), (*lost).into()));
    let lost: Map<String, Value> = lost.collect();
    let counted = [
        ("recorded", summary.recorded),
        ("lost", summary.lost),
        ("overwritten", summary.overwritten),
        ("deleted", summary.deleted),
        ("damaged", summary.damaged),
        ("bytes", summary.bytes),
    ];
    let counted = counted.into_iter().map(|(name, count)| (name.to_owned(), count.into()));
    counted.chain([("lost-by-event".to_owned(), lost.into())]).collect()
}
