//! Errors of recording and recovery.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use trackway_console::IoError;
use trackway_session::protocol::Refusal;
use trackway_session::{BuffersError, ByteCount, OptionError, SpecError, TracefilesError};
use trackway_window::{AllocateError, OpenError};

use crate::common::files::{open_regular, reports_removal};

/// Reason why a session cannot be recorded or recovered.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The window cannot be opened or made.
    Window(PathBuf, OpenError),
    /// The window has no free slot: as many sessions as it can hold are active.
    NoSlot,
    /// The window's folder has no space for this many bytes of buffers.
    Memory(u64, PathBuf, AllocateError),
    /// The file system of the window's folder has too little free memory: bytes needed, bytes free.
    TooSmall(u64, u64, PathBuf),
    /// The buffer sizes are impossible.
    Buffers(BuffersError),
    /// The limits of trace files are impossible.
    Tracefiles(TracefilesError),
    /// A command-line option has an invalid value.
    Option(OptionError),
    /// The system reports an error: the operation, and its object.
    Io(&'static str, PathBuf, IoError),
    /// The trace folder exists and contains more than an earlier trace.
    FolderInUse(PathBuf),
    /// Another recorder writes to the trace folder.
    FolderBusy(PathBuf),
    /// The trace folder (first path) is inside another trace (second path).
    FolderInside(PathBuf, PathBuf),
    /// Buffers of ended channels hold events that could not be written to this trace.
    LeftBehind(PathBuf),
    /// Another recorder records into the trace to be recovered, or another process recovers it.
    TraceBusy(PathBuf),
    /// The trace in the folder of the recording is a different trace.
    OtherTrace(PathBuf),
    /// The trace to recover (first path) is a copy of the trace in the folder of the recording
    /// (second path).
    Copy(PathBuf, PathBuf),
    /// The command cannot be found.
    CommandNotFound(PathBuf),
    /// The command cannot be executed.
    CommandNotExecutable(PathBuf, IoError),
    /// A library for the traced program is not installed beside this program.
    LibraryMissing(&'static str),
    /// The path of a library has a space or a colon, which LD_PRELOAD does not allow.
    LibraryPath(PathBuf),
    /// The process cannot become the invoking user, whom sudo(8) names, or another named user.
    User(trackway_sys::Errno),
    /// The window was truncated, or the session was taken over, while recording.
    Lost(&'static str),
    /// Other users have access to the folder of control sockets.
    RunFolder(PathBuf),
    /// A session with this name exists.
    SessionExists(String),
    /// No session has this name.
    NoSession(String),
    /// The recorder of the session is dead; the path is that of its log.
    SessionDead(String, PathBuf),
    /// The recorder of the session, with this process id, is stopped.
    SessionStopped(String, u32),
    /// The specification of a session is invalid.
    Spec(SpecError),
    /// A filter is invalid: lines of text with the reason and the position in the filter.
    Filter(String),
    /// A recorder refused a request.
    Refused(Refusal),
    /// Kernel events cannot be recorded: the reason and the remedy.
    Kernel(String, Option<String>),
    /// This process lacks the rights to record kernel events: the error and the advice.
    NoKernelRights(String, Option<String>),
}

impl RecordError {
    /// Returns a function that converts an I/O error into a [`RecordError`].
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io(what, path, error.into())
    }

    /// Returns the user's remedy, if one is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Kernel(_, hint) | Self::NoKernelRights(_, hint) => return hint.clone(),
            Self::Window(path, OpenError::NotOurs) => describe_foreign_file(path).1,
            Self::NoSlot => "end some of the user's recordings, or run trackway recover".into(),
            Self::Memory(_, _, AllocateError::System(trackway_sys::Errno(libc::EFBIG))) => {
                "raise the limit on the size of files (ulimit -f)".into()
            }
            Self::Memory(_, folder, _) | Self::TooSmall(_, _, folder) => format!(
                "use a smaller --buffer-size, or make {} larger (mount -o remount,size=…)",
                folder.display()
            ),
            Self::FolderInUse(_) | Self::FolderBusy(_) | Self::FolderInside(..) => {
                "choose another folder with -o".into()
            }
            Self::OtherTrace(path) => format!(
                "if the trace was moved, trackway recover DIR completes it where it is; if it was \
                 removed, move what is in {} aside, and trackway recover gives it up",
                path.display()
            ),
            Self::Copy(_, original) => {
                format!("trackway recover {} completes that one", original.display())
            }
            Self::TraceBusy(_) => {
                "run trackway recover again once the process that has its folder locked has ended"
                    .into()
            }
            Self::LibraryMissing(_) => {
                "install it beside the trackway command, or in ../lib of it".into()
            }
            Self::LibraryPath(_) => "install Trackway in a folder without them".into(),
            Self::Io(_, _, error) if reports_removal(error) => {
                "what was recorded there is gone, and trackway recover finds nothing of it: end \
                 the session (trackway session destroy), and begin another"
                    .into()
            }
            // The path of a socket may have at most 108 bytes: unix(7).
            Self::Io(_, socket, error)
                if error.kind() == io::ErrorKind::InvalidInput
                    && socket.extension().is_some_and(|extension| extension == "sock") =>
            {
                let folder = socket.parent().unwrap_or(socket);
                format!("name a folder with a shorter path than {}", folder.display())
                    + " in TRACKWAY_RUN_DIR"
            }
            Self::RunFolder(path) => {
                format!("remove {}, or name another folder in TRACKWAY_RUN_DIR", path.display())
            }
            Self::SessionExists(name) => format!(
                "trackway session status {name} says how it goes, trackway session destroy {name} \
                 ends it"
            ),
            Self::NoSession(_) => "trackway session list shows those that there are".into(),
            Self::SessionDead(..) => "trackway recover completes its trace".into(),
            Self::SessionStopped(_, pid) => format!("kill -CONT {pid} lets it go on"),
            Self::Refused(refusal) => return refusal.hint.clone(),
            _ => return None,
        })
    }

    /// Returns true if root could do what this user cannot; also for an error that a session's
    /// recorder reported.
    pub fn needs_root(&self) -> bool {
        match self {
            Self::NoKernelRights(..) => true,
            Self::Refused(refusal) => refusal.needs_root,
            _ => false,
        }
    }

    /// Returns true if recorded events are lost permanently because their folder was removed.
    pub(crate) fn reports_removal(&self) -> bool {
        matches!(self, Self::Io(_, _, error) if reports_removal(error))
    }

    /// Returns the exit status of `record` for the error, like env(1).
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::CommandNotFound(_) => 127,
            Self::CommandNotExecutable(..) => 126,
            _ => 125,
        }
    }
}

impl core::fmt::Display for RecordError {
    // Longer than 70 lines: a message for each error.
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Window(path, error) => {
                write!(formatter, "cannot use the window {}: ", path.display())?;
                match error {
                    OpenError::NotOurs => formatter.write_str(&describe_foreign_file(path).0),
                    error => error.fmt(formatter),
                }
            }
            Self::NoSlot => formatter.write_str("the window has no place for another session"),
            Self::Memory(bytes, folder, error) => write!(
                formatter,
                "cannot have {} for buffers in {}: {error}",
                ByteCount(*bytes),
                folder.display()
            ),
            Self::TooSmall(needed, free, folder) => write!(
                formatter,
                "buffers need {} in {}, of which half of what is free, {}, may be taken",
                ByteCount(*needed),
                folder.display(),
                ByteCount(*free / 2)
            ),
            Self::Buffers(error) => write!(formatter, "{error}"),
            Self::Tracefiles(error) => write!(formatter, "{error}"),
            Self::Option(error) => write!(formatter, "{error}"),
            Self::Io(what, path, error) => {
                write!(formatter, "cannot {what} {}: {}", path.display(), error)
            }
            Self::FolderInUse(path) => {
                write!(formatter, "{} exists and is not only an earlier trace", path.display())
            }
            Self::FolderBusy(path) => {
                write!(formatter, "{} is being recorded into", path.display())
            }
            Self::LeftBehind(trace) => write!(
                formatter,
                "events of a channel that has ended could not be written to {}",
                trace.display()
            ),
            Self::FolderInside(path, outer) => {
                write!(formatter, "{} lies in the trace {}", path.display(), outer.display())
            }
            Self::TraceBusy(path) => {
                write!(formatter, "{} is being recorded into, or recovered", path.display())
            }
            Self::OtherTrace(path) => write!(
                formatter,
                "another trace is in {} now; what was recorded stays in memory",
                path.display()
            ),
            Self::Copy(copy, original) => write!(
                formatter,
                "{} is a copy of {}, of which events are still in memory",
                copy.display(),
                original.display()
            ),
            Self::CommandNotFound(path) => {
                write!(formatter, "cannot run {}: no such command", path.display())
            }
            Self::CommandNotExecutable(path, error) => {
                write!(formatter, "cannot run {}: {}", path.display(), error)
            }
            Self::LibraryMissing(name) => write!(formatter, "cannot find {name}"),
            Self::LibraryPath(path) => write!(
                formatter,
                "cannot preload {}: there is a space or a colon in its path",
                path.display()
            ),
            Self::User(errno) => {
                write!(formatter, "cannot become the user who is to run the command: {errno}")
            }
            Self::Lost(why) => write!(formatter, "recording ended: {why}"),
            Self::RunFolder(path) => {
                write!(formatter, "{} is not yours alone", path.display())
            }
            Self::SessionExists(name) => write!(formatter, "there is a session '{name}' already"),
            Self::NoSession(name) => write!(formatter, "there is no session '{name}'"),
            Self::SessionDead(name, log) => {
                write!(formatter, "the recorder of session '{name}' is gone")?;
                match last_log_line(log) {
                    Some(line) => write!(formatter, "; the last that it said: {line}"),
                    None => Ok(()),
                }
            }
            Self::SessionStopped(name, pid) => {
                write!(formatter, "the recorder of session '{name}' (process {pid}) is stopped")
            }
            Self::Spec(error) => write!(formatter, "{error}"),
            Self::Filter(lines) => write!(formatter, "filter:\n{lines}"),
            Self::Kernel(why, _) | Self::NoKernelRights(why, _) => formatter.write_str(why),
            Self::Refused(refusal) => formatter.write_str(&refusal.why),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<BuffersError> for RecordError {
    fn from(error: BuffersError) -> Self {
        Self::Buffers(error)
    }
}

impl From<TracefilesError> for RecordError {
    fn from(error: TracefilesError) -> Self {
        Self::Tracefiles(error)
    }
}

impl From<OptionError> for RecordError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

impl From<SpecError> for RecordError {
    fn from(error: SpecError) -> Self {
        Self::Spec(error)
    }
}

impl From<&RecordError> for Refusal {
    fn from(error: &RecordError) -> Self {
        Self { why: error.to_string(), hint: error.hint(), needs_root: error.needs_root() }
    }
}

fn last_log_line(log: &Path) -> Option<String> {
    const BYTES_MAX: u64 = 64 << 10;
    let mut text = String::new();
    let file = open_regular(log, std::fs::OpenOptions::new().read(true)).ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    text.lines().last().map(str::to_owned)
}

/// Converts a system call's error to an I/O error.
pub(crate) fn io_error(errno: trackway_sys::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

/// Describes the owner of a foreign file at the window's path, and the remedy.
fn describe_foreign_file(path: &Path) -> (String, String) {
    let user = crate::common::user::effective_uid();
    let elsewhere =
        "or let TRACKWAY_WINDOW_DIR name a folder of your own, for trackway and programs";
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(file) if file.is_file() && file.uid() == user => (
            format!("others may open it (mode {:o})", file.mode() & 0o7777),
            format!("if nobody else could have changed it: chmod 600 {shown}; else remove it"),
        ),
        Ok(file) => (
            format!("user {} has made it, who is not you", file.uid()),
            format!("have that user or root remove it (rm {shown}), {elsewhere}"),
        ),
        Err(_) => (OpenError::NotOurs.to_string(), "try again: it comes and goes".into()),
    }
}
