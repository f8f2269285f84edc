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

use super::{Attachment, Kernel, PAYLOAD_BYTES_MAX, unavailable};
use crate::RecordError;

impl Kernel {
    /// Records an event, the next one, from its arguments. False: it is not known how, or this
    /// kernel does not take the program.
    pub(super) fn record_arguments(
        &mut self,
        number: usize,
        event: &Event,
        btf: Option<&Btf>,
    ) -> Result<bool, RecordError> {
        let staged = btf.and_then(|btf| Staged::of_arguments(event, btf, PAYLOAD_BYTES_MAX));
        let (Some(mut staged), Ok(id)) = (staged, u16::try_from(number)) else { return Ok(false) };
        staged.contexts = self.contexts.clone();
        let fds = (self.buffers.map_fd(), self.scope.as_ref().map(Scope::map_fd));
        let Ok(code) = program(&staged, self.buffers.layout(), fds, (id, number)) else {
            return Ok(false);
        };
        let is_taken = self.attach_raw(&code, event, btf, Some(number))?;
        if is_taken {
            self.events.push(staged.description);
        }
        Ok(is_taken)
    }

    /// Attaches a program to an event's raw tracepoint, behind all that are there. False: there is
    /// none that we know of, or the kernel does not take the program.
    pub(super) fn attach_raw(
        &mut self,
        code: &[u8],
        event: &Event,
        btf: Option<&Btf>,
        number: Option<usize>,
    ) -> Result<bool, RecordError> {
        let Some(btf_id) = btf.and_then(|btf| raw_tracepoint(event, btf)) else { return Ok(false) };
        let Ok(loaded) = Loaded::raw(code, btf_id) else { return Ok(false) };
        let attached = loaded.attach_raw().map_err(unavailable)?;
        self.attached.push(Attachment { attached, event: number, missed_before: 0 });
        Ok(true)
    }
}
