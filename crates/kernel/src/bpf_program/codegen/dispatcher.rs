//! Generates the program on the raw tracepoint of system calls, which tail-calls a program for each
//! system call.

use trackway_jit::insn::{alu, jump};

use super::{ATOMIC_ADD, CONTEXT, PASS, helper, insn_offset, load_cpu_area};
use crate::bpf_program::attach::ProgramTable;
use crate::bpf_program::layout::STOPPED;
use crate::bpf_program::plan::RegisterLayout;
use crate::bpf_program::scope::{self, ScopeMaps};
use crate::bpf_sys::asm::{Asm, Register};
use crate::catalogue::model::Phase;

/// The tables of programs for system calls.
#[derive(Debug, Clone, Copy)]
pub struct DispatchTables<'a> {
    /// Programs of calls by 64-bit numbers.
    pub programs: &'a ProgramTable,
    /// Programs of calls by 32-bit numbers.
    pub compat: &'a ProgramTable,
}

/// Generates the program on the raw tracepoint for the entry or exit of system calls. If the thread
/// is in the scope, the program tail-calls the program in `tables` for the call's number.
///
/// 32-bit numbers identify other calls: calls of 32-bit processes, and `int $0x80` in any process,
/// which the code segment does not reveal. These calls have a separate table. With a buffers map,
/// the program counts calls without a program at their entry, unless recording is stopped on the
/// CPU.
pub fn generate_dispatcher(
    phase: Phase,
    registers: &RegisterLayout,
    tables: DispatchTables<'_>,
    scope: Option<ScopeMaps>,
    buffers_fd: Option<i32>,
) -> Option<Vec<u8>> {
    /// The flag in `status` of a call by a 32-bit number (arch/x86/include/asm/thread_info.h).
    const TS_COMPAT: i32 = 2;
    const TASK: Register = 7;
    let at = |offset: u32| i16::try_from(offset).ok();
    let (tid, status) = (at(registers.task_tid)?, at(registers.task_status)?);
    let mut asm = Asm::default();
    asm.mov(CONTEXT, 1);
    asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
    asm.mov(TASK, 0);
    if let Some(scope) = scope {
        let is_in = asm.new_label();
        match scope.is_of_cgroups() {
            true => scope::jump_if_current_member(&mut asm, scope, is_in),
            false => {
                asm.load_sized(4, 0, TASK, tid);
                scope::jump_if_member(&mut asm, scope, is_in);
            }
        }
        asm.exit_with(PASS);
        asm.place_label(is_in);
    }
    let is_narrow = asm.new_label();
    asm.load_sized(4, 1, TASK, status);
    asm.alui(alu::AND, 1, TS_COMPAT);
    asm.jumpi(jump::JNE, 1, 0, is_narrow);
    let number = at(registers.number)?;
    let counted_fd = buffers_fd.filter(|_| phase == Phase::Enter);
    tail_call(&mut asm, phase, number, tables.programs);
    counted_fd.into_iter().for_each(|map_fd| count_unknown(&mut asm, tables.programs, map_fd));
    asm.exit_with(PASS);
    asm.place_label(is_narrow);
    tail_call(&mut asm, phase, number, tables.compat);
    counted_fd.into_iter().for_each(|map_fd| count_unknown(&mut asm, tables.compat, map_fd));
    asm.exit_with(PASS);
    asm.bytes()
}

/// Counts a call without a program, if recording is not stopped on the CPU.
fn count_unknown(asm: &mut Asm, programs: &ProgramTable, map_fd: i32) {
    let is_done = asm.new_label();
    load_cpu_area(asm, map_fd);
    asm.jumpi(jump::JEQ, 0, 0, is_done);
    asm.load(1, 0, insn_offset(STOPPED));
    asm.jumpi(jump::JNE, 1, 0, is_done);
    asm.load_map_value(2, programs.unknown_fd());
    asm.movi(1, 1);
    asm.atomic(ATOMIC_ADD, 2, 0, 1);
    asm.place_label(is_done);
}

/// Tail-calls the program for the call's number; continues if there is none. `number_at` is the
/// offset of the number in the registers.
fn tail_call(asm: &mut Asm, phase: Phase, number_at: i16, programs: &ProgramTable) {
    match phase {
        Phase::Enter => asm.load(3, CONTEXT, 8),
        Phase::Exit => {
            asm.load(2, CONTEXT, 0);
            asm.load(3, 2, number_at);
        }
    }
    asm.mov(1, CONTEXT);
    asm.load_map(2, programs.map_fd());
    asm.call_kernel(helper::TAIL_CALL);
}
