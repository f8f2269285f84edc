//! Errors of recording kernel events, with hints.

use trackway_console::IoError;
use trackway_kernel::bpf_program::cgroup::CgroupError;
use trackway_kernel::catalogue::error::CatalogueError;

use crate::error::RecordError;

/// Returns the error of a failed operation on kernel events.
pub(crate) fn kernel_error(what: &str, error: impl std::fmt::Display) -> RecordError {
    RecordError::Kernel(format!("{what}: {error}"), None)
}

/// Returns the error of [`kernel_error`] for an I/O error.
pub(crate) fn kernel_io_error(what: &str, error: std::io::Error) -> RecordError {
    kernel_error(what, IoError::from(error))
}

impl From<CatalogueError> for RecordError {
    fn from(error: CatalogueError) -> Self {
        let hint = error.hint();
        match error {
            CatalogueError::PermissionDenied => Self::NoKernelRights(error.to_string(), hint),
            _ => Self::Kernel(error.to_string(), hint),
        }
    }
}

impl From<CgroupError> for RecordError {
    fn from(error: CgroupError) -> Self {
        let hint = match &error {
            CgroupError::Io(_, why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
                let hint = "root may (sudo trackway record …)".to_owned();
                return Self::NoKernelRights(error.to_string(), Some(hint));
            }
            CgroupError::Missing(_) | CgroupError::NotCgroup2(_) => {
                Some("findmnt -t cgroup2 says where they are".to_owned())
            }
            CgroupError::Io(..) | CgroupError::TooMany => None,
        };
        Self::Kernel(error.to_string(), hint)
    }
}

/// Returns the error of bpf(2) or perf_event_open(2), with a hint.
pub(crate) fn bpf_unavailable_error(error: impl Into<IoError>) -> RecordError {
    let error = error.into();
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Some(
            "root may (sudo trackway record …); in a container, root needs CAP_BPF and CAP_PERFMON",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            Some("record fewer events, or raise the limit on open files (ulimit -n)")
        }
        Some(libc::ENOMEM) => Some("use a smaller --buffer-size"),
        Some(libc::ENOSYS | libc::EINVAL | libc::E2BIG) => {
            Some("Linux 5.12 or later, with BPF, records them")
        }
        _ => None,
    };
    let why = format!("the kernel does not let its events be recorded: {error}");
    let hint = hint.map(str::to_owned);
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RecordError::NoKernelRights(why, hint),
        _ => RecordError::Kernel(why, hint),
    }
}
