//! Errors of the catalogue.

use std::fmt;
use std::path::PathBuf;

use trackway_console::IoError;
use trackway_sys::Errno;

/// The reason why kernel events cannot be listed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The process lacks privileges for tracefs.
    PermissionDenied,
    /// The kernel has no tracefs.
    NoTracefs(Errno),
    /// The process cannot read this file.
    Io(PathBuf, IoError),
    /// A text is not a valid pattern.
    Pattern(String),
    /// No event matches this pattern; with a suggestion, if any.
    NoEvent(String, Option<String>),
}

impl CatalogueError {
    /// Returns advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PermissionDenied => Some(
                "run it as root (sudo trackway ...); in a container, root needs CAP_SYS_ADMIN, or \
                 the host's /sys/kernel/tracing"
                    .into(),
            ),
            Self::NoTracefs(Errno(libc::ENOSYS)) => {
                Some("mount it: mount -t tracefs nodev /sys/kernel/tracing".into())
            }
            Self::NoTracefs(_) => Some("this kernel is built without CONFIG_TRACING".into()),
            Self::NoEvent(..) => Some("trackway list --kernel shows them all".into()),
            Self::Pattern(_) => Some(
                "patterns are names of events or subsystems, or subsystem:name; * stands for \
                 anything, ! in front excludes"
                    .into(),
            ),
            Self::Io(..) => None,
        }
    }
}

impl fmt::Display for CatalogueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PermissionDenied => f.write_str("cannot list kernel events: only root may"),
            Self::NoTracefs(errno) => write!(f, "tracefs is not available: {errno}"),
            Self::Io(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Pattern(pattern) => write!(f, "'{pattern}' is no pattern of kernel events"),
            Self::NoEvent(pattern, suggestion) => {
                write!(f, "no kernel event matches '{pattern}'")?;
                match suggestion {
                    Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
                    None => Ok(()),
                }
            }
        }
    }
}

// The error has no source: its text already contains the system's error.
impl std::error::Error for CatalogueError {}
