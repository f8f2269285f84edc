//! Why there is no catalogue, or nothing in it that was asked for.

use std::fmt;
use std::path::PathBuf;

use trackway_console::IoError;
use trackway_sys::Errno;

/// Why events of the kernel cannot be told.
#[derive(Debug)]
#[non_exhaustive]
pub enum CatalogueError {
    /// Only root sees them.
    NoRights,
    /// The kernel gives no tracefs.
    NoTracefs(Errno),
    /// A file cannot be read.
    Io(PathBuf, IoError),
    /// A pattern that is none.
    Pattern(String),
    /// No event matches a pattern; what may have been meant.
    NoEvent(String, Option<String>),
}

impl CatalogueError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRights => Some(
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
            Self::NoRights => f.write_str("only root may see the kernel's events"),
            Self::NoTracefs(errno) => write!(f, "the kernel gives no tracefs: {errno}"),
            Self::Io(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Pattern(pattern) => write!(f, "'{pattern}' is no pattern of kernel events"),
            Self::NoEvent(pattern, meant) => {
                write!(f, "no kernel event matches '{pattern}'")?;
                match meant {
                    Some(meant) => write!(f, "; did you mean '{meant}'?"),
                    None => Ok(()),
                }
            }
        }
    }
}

// It has no source: its text has the system's error already.
impl std::error::Error for CatalogueError {}
