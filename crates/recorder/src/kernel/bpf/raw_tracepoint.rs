//! Events recorded from the arguments of their raw tracepoints, if the kernel library knows the
//! arguments. Raw tracepoints cost less and detach faster, and the kernel skips no program while
//! another one runs on its CPU.

use trackway_kernel::bpf_program::arguments::raw_tracepoint_type;
use trackway_kernel::bpf_program::attach::LoadedProgram;
use trackway_kernel::bpf_program::codegen::{EventNumber, ProgramMaps, generate_program};
use trackway_kernel::bpf_program::plan::EventPlan;
use trackway_kernel::bpf_program::scope::Scope;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::Event;

use super::load::{self, LoadedEvent, LoadedEventProgram};
use super::{PAYLOAD_BYTES_MAX, PreparedBpf, unexpected_event_error};
use crate::error::RecordError;

impl PreparedBpf {
    /// Returns the plan to record an event from its arguments. Returns `None` if the arguments are
    /// unknown or, with `is_tried`, if this kernel does not accept the program.
    pub(super) fn staged_arguments(
        &self,
        event: &Event,
        btf: Option<&Btf>,
        is_tried: bool,
    ) -> Option<EventPlan> {
        let btf = btf?;
        let staged = EventPlan::from_arguments(event, btf, PAYLOAD_BYTES_MAX)?;
        if is_tried {
            let maps = ProgramMaps {
                buffers_fd: self.buffers.map_fd(),
                scope: self.scope.as_deref().map(Scope::maps),
            };
            let event_number = EventNumber { id: 0, index: 0 };
            let code = generate_program(&staged, self.buffers.layout(), maps, event_number).ok()?;
            LoadedProgram::load_raw(&code, raw_tracepoint_type(event, btf)?).ok()?;
        }
        Some(staged)
    }

    /// Loads the next program of an event that reads the kernel's record, for a kernel that
    /// rejected the program that reads the arguments. Both programs record the same contents,
    /// except for arguments that the record lacks.
    pub(super) fn load_otherwise(
        &self,
        number: usize,
        event: &Event,
    ) -> Result<LoadedEvent, RecordError> {
        if self.filters.has(number) {
            // Filters read arguments, since the kernel accepted such a program when it was tried.
            return Err(unexpected_event_error(event));
        }
        let mut staged = EventPlan::from_record_with_unknown(event, PAYLOAD_BYTES_MAX);
        staged.contexts = self.contexts.clone();
        staged.version = self.version(number);
        let program = match self.generate_code(number, event, &staged)? {
            Some(code) => load::load_tracepoint_program(&code, event)?,
            None => LoadedEventProgram::None,
        };
        Ok(LoadedEvent { staged, program })
    }
}
