//! System call events, recorded by one BPF program for all entries and one for all exits.

use trackway_kernel::bpf_program::attach::{LoadedProgram, ProgramTable};
use trackway_kernel::bpf_program::codegen::{DispatchTables, EventNumber, generate_dispatcher};
use trackway_kernel::bpf_program::plan::RegisterLayout;
use trackway_kernel::bpf_program::scope::Scope;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::btf::Class;
use trackway_kernel::catalogue::model::Phase;

/// BPF programs for system calls. Two dispatchers at the raw tracepoints run at each system call,
/// and continue with the call's own program. A call without such a program causes no record.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) registers: RegisterLayout,
    /// Threads in a system call whose string arguments could not be read at its entry.
    pub(super) unread: Scope,
    pub(super) enter: Side,
    pub(super) exit: Side,
}

/// Dispatcher for the entries, or for the exits, of system calls.
#[derive(Debug)]
pub(super) struct Side {
    /// BTF id of the raw tracepoint's type.
    pub(super) btf_id: u32,
    pub(super) programs: ProgramTable,
    /// Programs for system calls by 32-bit numbers.
    pub(super) compat: ProgramTable,
    pub(super) is_used: bool,
    pub(super) is_attached: bool,
}

/// Key of one program in the tables of a system call dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallSlot {
    pub(super) number: u32,
    pub(super) phase: Phase,
    /// True if `number` is a 32-bit system call number.
    pub(super) is_compat: bool,
}

impl Side {
    pub(super) const fn programs_of(&self, slot: CallSlot) -> &ProgramTable {
        if slot.is_compat { &self.compat } else { &self.programs }
    }
}

impl Calls {
    /// Size of a program table: more than the number of system calls.
    const NUMBERS: u32 = 1024;

    /// Creates the dispatchers; `None` if this kernel or machine supports none.
    pub(super) fn new(catalogue: &Catalogue) -> Option<Self> {
        let btf = catalogue.btf()?;
        let registers = RegisterLayout::find(btf)?;
        let side = |phase: Phase, name: &str| {
            let btf_id = btf.find(Class::Typedef, name)?.id;
            let programs = ProgramTable::new(Self::NUMBERS).ok()?;
            // Test whether the kernel accepts such programs.
            let compat = ProgramTable::new(Self::NUMBERS).ok()?;
            let code = generate_dispatcher(
                phase,
                &registers,
                DispatchTables { programs: &programs, compat: &compat },
                None,
                None,
            )?;
            LoadedProgram::load_raw(&code, btf_id).ok()?;
            Some(Side { btf_id, programs, compat, is_used: false, is_attached: false })
        };
        let enter = side(Phase::Enter, "btf_trace_sys_enter")?;
        let exit = side(Phase::Exit, "btf_trace_sys_exit")?;
        Some(Self { registers, unread: Scope::new().ok()?, enter, exit })
    }

    /// Installs a system call's program in the dispatcher's table; the program records the event
    /// with the number `event`.
    pub(super) fn set(
        &mut self,
        slot: CallSlot,
        loaded: &LoadedProgram,
        event: usize,
    ) -> std::io::Result<()> {
        let side = self.side(slot.phase);
        let id = u16::try_from(event).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        side.programs_of(slot).set_event(slot.number, EventNumber { id, index: event });
        side.programs_of(slot).set(slot.number, loaded)?;
        side.is_used = true;
        Ok(())
    }

    /// Removes a system call's program from the dispatcher's table.
    pub(super) fn remove(&self, slot: CallSlot) {
        self.of(slot.phase).programs_of(slot).remove(slot.number);
    }

    pub(super) fn of(&self, phase: Phase) -> &Side {
        match phase {
            Phase::Enter => &self.enter,
            Phase::Exit => &self.exit,
        }
    }

    pub(super) fn side(&mut self, phase: Phase) -> &mut Side {
        match phase {
            Phase::Enter => &mut self.enter,
            Phase::Exit => &mut self.exit,
        }
    }
}
