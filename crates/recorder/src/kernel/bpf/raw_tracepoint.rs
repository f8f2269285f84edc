//! Events that are recorded from the arguments of their raw tracepoints, where the kernel library
//! knows how: that costs less, no program is passed over while another one runs on its CPU, and to
//! take it off takes the kernel less long.

use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::Event;
use trackway_kernel::record::arguments::raw_tracepoint;
use trackway_kernel::record::attach::Loaded;
use trackway_kernel::record::program::program;
use trackway_kernel::record::scope::Scope;
use trackway_kernel::record::staging::Staged;

use super::load::{self, Made, Program};
use super::{Kernel, PAYLOAD_BYTES_MAX, unknown};
use crate::error::RecordError;

impl Kernel {
    /// How an event is recorded from its arguments. `None`: that is not known, or this kernel does
    /// not take the program, as far as that is tried.
    pub(super) fn staged_arguments(
        &self,
        event: &Event,
        btf: Option<&Btf>,
        is_tried: bool,
    ) -> Option<Staged> {
        let btf = btf?;
        let staged = Staged::of_arguments(event, btf, PAYLOAD_BYTES_MAX)?;
        if is_tried {
            let fds = (self.buffers.map_fd(), self.scope.as_deref().map(Scope::members));
            let code = program(&staged, self.buffers.layout(), fds, (0, 0)).ok()?;
            Loaded::raw(&code, raw_tracepoint(event, btf)?).ok()?;
        }
        Some(staged)
    }

    /// What records an event, the next one, from the kernel's record, which says the same, but for
    /// what is not in there: it did not take the program that was to read its arguments.
    pub(super) fn load_otherwise(&self, number: usize, event: &Event) -> Result<Made, RecordError> {
        if self.filters.has(number) {
            // They read arguments, since the kernel took that when it was tried.
            return Err(unknown(event));
        }
        let mut staged = Staged::with_unknown(event, PAYLOAD_BYTES_MAX);
        staged.contexts = self.contexts.clone();
        staged.version = self.version(number);
        let program = match self.code(number, event, &staged)? {
            Some(code) => load::tracepoint(&code, event)?,
            None => Program::None,
        };
        Ok(Made { staged, program })
    }
}
