//! Results of a recording, as JSON: `trackway record --summary-json FILE`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::command::launch::CommandEnd;
use crate::error::RecordError;
use crate::kernel::backend;
use crate::notices::Notices;
use crate::summary::Summary;

/// The file, which is made before anything is recorded: where it cannot be, nothing is.
#[derive(Debug)]
pub(crate) struct SummaryFile {
    path: PathBuf,
    file: File,
}

/// The results of a recording.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// Its trace.
    pub(crate) folder: PathBuf,
    /// The events of programs; `None`: the trace is not complete.
    pub(crate) programs: Option<Summary>,
    /// The results for kernel events, if they were recorded.
    kernel: Option<Summary>,
    /// True if some of those could not be written.
    lacks_kernel: bool,
    /// The end of the command, if there was one, and it has ended.
    pub(crate) command: Option<CommandEnd>,
}

impl SummaryFile {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    ///
    /// If it cannot be made.
    pub(crate) fn create(path: &Path) -> Result<Self, RecordError> {
        let file = File::create(path).map_err(RecordError::io("write", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes the results. A failure is only reported: the recording is over.
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
    /// Makes the results of a recording into this folder, still empty.
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

/// Returns the estimated sizes of buffers that would have kept the lost events, by channel, as far
/// as they are known.
fn sufficient_sizes_to_json(summary: &Summary) -> Map<String, Value> {
    let known = summary.shortfalls.iter().filter(|one| one.roomless > 0);
    let sizes = known.filter_map(|one| Some((one.channel.clone(), one.enough_bytes?.into())));
    sizes.collect()
}

fn kernel_summary_to_json(summary: &Summary) -> Value {
    counts_to_json(summary).into()
}

/// Returns the counts of both.
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
