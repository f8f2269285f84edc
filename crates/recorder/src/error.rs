//! Why recording is not possible.

use std::io;
use std::path::PathBuf;

use trackway_session::{BuffersError, ByteCount, OptionError};
use trackway_window::{AllocateError, OpenError};

/// Why a session cannot be recorded or recovered.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// The window cannot be opened or made.
    Window(PathBuf, OpenError),
    /// As many sessions as a window can hold are active.
    NoSlot,
    /// So many bytes of memory for buffers cannot be had in the window's folder.
    Memory(u64, PathBuf, AllocateError),
    /// The file system of the window's folder has too little free: needed, free.
    TooSmall(u64, u64, PathBuf),
    /// Sizes that no session can have.
    Buffers(BuffersError),
    /// Words that mean nothing.
    Option(OptionError),
    /// Something that the system refused: what was done, to what.
    Io(&'static str, PathBuf, io::Error),
    /// The trace folder exists and is not only an earlier trace.
    FolderInUse(PathBuf),
    /// Another recorder writes to the trace folder.
    FolderBusy(PathBuf),
    /// A trace that is to be recovered is being recorded into, or recovered by somebody else.
    TraceBusy(PathBuf),
    /// Where a trace was recorded is another one.
    OtherTrace(PathBuf),
    /// A trace that is to be recovered (the first) is a copy of one that is where it was recorded
    /// (the second).
    Copy(PathBuf, PathBuf),
    /// The command cannot be found.
    CommandNotFound(PathBuf),
    /// The command cannot be executed.
    CommandNotExecutable(PathBuf, io::Error),
    /// A library that goes into the traced program is not installed beside this program.
    LibraryMissing(&'static str),
    /// A library's path has a space or a colon, which LD_PRELOAD cannot carry.
    LibraryPath(PathBuf),
    /// The invoking user, whom sudo(8) names, cannot be become.
    User(trackway_sys::Errno),
    /// The window was truncated, or the session was taken over, while recording.
    Lost(&'static str),
}

impl RecordError {
    /// Turns an I/O error into one of ours.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::Io(what, path, error)
    }

    /// What the user can do about it, if we know.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSlot => "end some of the user's recordings, or run trackway recover".into(),
            Self::Memory(_, _, AllocateError::System(trackway_sys::Errno(libc::EFBIG))) => {
                "raise the limit on the size of files (ulimit -f)".into()
            }
            Self::Memory(_, folder, _) | Self::TooSmall(_, _, folder) => format!(
                "use a smaller --buffer-size, or make {} larger (mount -o remount,size=…)",
                folder.display()
            ),
            Self::FolderInUse(_) | Self::FolderBusy(_) => "choose another folder with -o".into(),
            Self::OtherTrace(path) => format!(
                "if the trace was moved, trackway recover DIR completes it where it is; if it was \
                 removed, move what is in {} aside, and trackway recover gives it up",
                path.display()
            ),
            Self::Copy(_, original) => {
                format!("trackway recover {} completes that one", original.display())
            }
            Self::LibraryMissing(_) => {
                "install it beside the trackway command, or in ../lib of it".into()
            }
            Self::LibraryPath(_) => "install Trackway in a folder without them".into(),
            _ => return None,
        })
    }

    /// Exit status of `record` for it, as env(1) has them.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::CommandNotFound(_) => 127,
            Self::CommandNotExecutable(..) => 126,
            _ => 125,
        }
    }
}

impl core::fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Window(path, error) => {
                write!(formatter, "cannot use the window {}: {error}", path.display())
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
            Self::Option(error) => write!(formatter, "{error}"),
            Self::Io(what, path, error) => {
                write!(formatter, "cannot {what} {}: {}", path.display(), plain(error))
            }
            Self::FolderInUse(path) => {
                write!(formatter, "{} exists and is not only an earlier trace", path.display())
            }
            Self::FolderBusy(path) => {
                write!(formatter, "{} is being recorded into", path.display())
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
                write!(formatter, "cannot run {}: {}", path.display(), plain(error))
            }
            Self::LibraryMissing(name) => write!(formatter, "cannot find {name}"),
            Self::LibraryPath(path) => write!(
                formatter,
                "cannot preload {}: there is a space or a colon in its path",
                path.display()
            ),
            Self::User(errno) => {
                write!(formatter, "cannot become the user who called sudo: {errno}")
            }
            Self::Lost(why) => write!(formatter, "recording ended: {why}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl From<BuffersError> for RecordError {
    fn from(error: BuffersError) -> Self {
        Self::Buffers(error)
    }
}

impl From<OptionError> for RecordError {
    fn from(error: OptionError) -> Self {
        Self::Option(error)
    }
}

/// The error as strerror(3) words it, without the number that std adds.
fn plain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => trackway_sys::Errno(errno).to_string(),
        None => error.to_string(),
    }
}

/// A system call's error as std's.
pub(crate) fn io_error(errno: trackway_sys::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}
