//! Request to record kernel events: the session's specification and additions of the recorder.

use trackway_kernel::bpf_program::contexts::Context;
use trackway_session::{FilterSpec, KernelSpec, Mode};

use crate::error::RecordError;
use crate::kernel::contexts;

/// Kernel events of a session, as a backend prepares them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelRequest<'a> {
    /// Events, filters, contexts, scope and buffers.
    pub(crate) spec: &'a KernelSpec,
    /// Filters of `spec` that apply to user events, too.
    pub(crate) shared_filters: &'a [FilterSpec],
    /// True if the scope is the traced command with its children.
    pub(crate) follows_command: bool,
    /// True if recording begins only when the session is started.
    pub(crate) is_stopped: bool,
}

impl KernelRequest<'_> {
    /// Returns true if the events of all processes are recorded.
    pub(crate) fn is_system_wide(&self) -> bool {
        !self.follows_command && self.spec.pids.is_empty() && self.spec.cgroups.is_empty()
    }

    /// Returns true if new records overwrite the oldest ones (flight recorder).
    pub(crate) fn overwrites(&self) -> bool {
        self.spec.mode == Mode::Overwrite
    }

    /// Returns the size of each CPU's buffers in bytes; 0 selects the backend's default.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.spec.buffer_size.unwrap_or(0)
    }

    /// Resolves the contexts of the records by their names.
    ///
    /// # Errors
    ///
    /// If a name is no kernel context.
    pub(crate) fn contexts(&self) -> Result<Vec<Context>, RecordError> {
        contexts::parse_kernel_contexts(&self.spec.contexts)
    }
}
