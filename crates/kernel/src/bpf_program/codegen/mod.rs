//! Generates the BPF program that records an event. Separate files contain the steps of fields and
//! the dispatcher.
//!
//! Longer than 600 lines: the builder and the ring protocol belong together.
//!
//! The program does the work of a `trackway_ring` writer. It reads the commit word of its level's
//! region, opens a sub-buffer if the record does not fit, writes header and fields after the head,
//! and commits by one store. The same store publishes the opened sub-buffer. A ring is contiguous,
//! so the program needs no table.
//!
//! ```text
//! r6 the event's data source    r7 the CPU area    r8 the write offset in it    r9 control lines
//! ```

mod dispatcher;
mod steps;

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, MEDIUM_BYTES, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM,
    TAILROOM_BYTES, TIME_BITS,
};
use trackway_abi::region::{SUB_HEADER_BYTES, sub_header};
use trackway_jit::insn::{alu, jump};

use super::arguments;
use super::attach::{EVENT_SHIFT, EVENTS_MAX};
use super::filter::{self, Filter};
use super::kernel_version::PreemptionGuard;
use super::layout::{BufferLayout, DEPTH, LEVELS, STOPPED, TOO_DEEP, UNFILTERED};
use super::plan::{DataSource, EventPlan};
use super::scope::{self, ScopeMaps};
use crate::bpf_sys::asm::{Asm, Label, Register};
use crate::bpf_sys::btf::Btf;

pub use dispatcher::{DispatchTables, generate_dispatcher};

/// Numbers of kernel helpers (include/uapi/linux/bpf.h).
pub(super) mod helper {
    pub(crate) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(crate) const KTIME_GET_NS: i32 = 5;
    pub(crate) const GET_SMP_PROCESSOR_ID: i32 = 8;
    pub(crate) const TAIL_CALL: i32 = 12;
    pub(crate) const GET_CURRENT_PID_TGID: i32 = 14;
    pub(crate) const GET_CURRENT_UID_GID: i32 = 15;
    pub(crate) const GET_CURRENT_COMM: i32 = 16;
    pub(crate) const PROBE_READ_KERNEL: i32 = 113;
    pub(crate) const PROBE_READ_USER: i32 = 112;
    pub(crate) const PROBE_READ_USER_STR: i32 = 114;
    pub(crate) const PROBE_READ_KERNEL_STR: i32 = 115;
    pub(crate) const JIFFIES64: i32 = 118;
    pub(crate) const GET_CURRENT_TASK_BTF: i32 = 158;
}

/// An atomic operation (RFC 9669, 5.3).
const ATOMIC_ADD: i32 = 0;

/// The return value of every program. Other programs on a tracepoint, such as perf's counters,
/// receive only events that each program passes (kernel/trace/bpf_trace.c, trace_call_bpf()).
pub(super) const PASS: i32 = 1;

pub(super) const CONTEXT: Register = 6;
pub(super) const CPU: Register = 7;
pub(super) const AT: Register = 8;
const CONTROL: Register = 9;
pub(super) const STACK: Register = 10;

/// Offsets of the program's stack slots.
pub(super) mod stack {
    pub(crate) const KEY: i16 = -4;
    pub(crate) const DEPTH: i16 = -16;
    pub(crate) const COMMIT: i16 = -40;
    pub(crate) const NOW: i16 = -48;
    pub(crate) const EVENTS: i16 = -56;
    pub(crate) const LAST: i16 = -64;
    pub(crate) const HEAD: i16 = -72;
    pub(crate) const BEGIN: i16 = -80;
    pub(crate) const TASK: i16 = -88;
    pub(crate) const POINTER: i16 = -96;
    pub(crate) const KEY_WIDE: i16 = -104;
    pub(crate) const INCOMPLETE: i16 = -112;
    pub(crate) const UNREAD: i16 = -120;
    pub(crate) const ADDRESS: i16 = -128;
    pub(crate) const COUNT: i16 = -136;
    pub(crate) const ASIDE: i16 = -144;
    pub(crate) const USED: i16 = -152;
    pub(crate) const WORD: i16 = -160;
    pub(crate) const MESSAGE: i16 = -176;
    pub(crate) const PART: i16 = -184;
    pub(crate) const MISSING: i16 = -192;
    /// The event number, in programs that record several events. Such programs have no filters,
    /// which use the slot otherwise.
    pub(crate) const EVENT: i16 = MISSING;
    /// A slot for programs that do not read user memory; it shares the slot of `INCOMPLETE`.
    pub(crate) const SCRATCH: i16 = INCOMPLETE;
}

/// Offsets of the words in a control line (`trackway_abi::region`).
mod control {
    pub(super) const COMMIT: i16 = 0;
    pub(super) const LIMIT: i16 = 8;
    pub(super) const SLOTS: i16 = 16;
    pub(super) const DISCARDED: i16 = 64;
    pub(super) use crate::bpf_program::layout::{CONTROL_MASK as MASK, CONTROL_RING as RING};
    /// A word for [`super::ProgramBuilder::forget_register`].
    pub(super) const PLACE: i16 = 88;
}

/// The error that a record does not fit a sub-buffer, or a program is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramTooLarge;

/// The maps that a program uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramMaps {
    /// The map of the buffers.
    pub buffers_fd: i32,
    /// The scope of the recording; `None`: all threads.
    pub scope: Option<ScopeMaps>,
}

/// The numbers that identify an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventNumber {
    /// The event's id in the trace.
    pub id: u16,
    /// The event's index in the counters of the buffers.
    pub index: usize,
}

/// A program in the form that bpf(2) accepts.
#[derive(Debug)]
pub struct ProgramCode {
    pub(crate) bytes: Vec<u8>,
    /// BTF of the program's functions; `None`: the program consists of one function.
    pub(crate) types: Option<Btf>,
}

impl ProgramCode {
    /// Returns bytes that are equal for programs with equal effect. `None`: the program has
    /// functions and cannot be compared.
    pub fn comparable_bytes(&self) -> Option<&[u8]> {
        self.types.is_none().then_some(&self.bytes[..])
    }
}

/// Generates a program that records an event in the buffers' map. With a scope, the program records
/// only events that occur in threads of the scope or concern such a thread ([`super::scope`]).
///
/// # Errors
///
/// If the record does not fit a sub-buffer, or the program is too long.
pub fn generate_program(
    plan: &EventPlan,
    layout: &BufferLayout,
    maps: ProgramMaps,
    event: EventNumber,
) -> Result<Vec<u8>, ProgramTooLarge> {
    generate_filtered_program(plan, layout, maps, event, &[]).map(|code| code.bytes)
}

/// Generates a program like [`generate_program`] that records only events that pass all filters.
///
/// # Errors
///
/// See [`generate_program`].
pub fn generate_filtered_program(
    plan: &EventPlan,
    layout: &BufferLayout,
    maps: ProgramMaps,
    event: EventNumber,
    filters: &[Filter],
) -> Result<ProgramCode, ProgramTooLarge> {
    if event.index >= layout.events() {
        return Err(ProgramTooLarge);
    }
    build_program(plan, layout, maps, EventSelection::Fixed(event), filters)
}

/// Generates one program for all system calls that are recorded alike: a map gives the event of
/// each call ([`super::attach::ProgramTable::set_event`]). So the kernel verifies one program for
/// these calls.
///
/// # Errors
///
/// See [`generate_program`].
pub fn generate_shared_program(
    plan: &EventPlan,
    layout: &BufferLayout,
    maps: ProgramMaps,
    events_fd: i32,
) -> Result<ProgramCode, ProgramTooLarge> {
    build_program(plan, layout, maps, EventSelection::FromMap(events_fd), &[])
}

/// Builds a program.
// Longer than 70 lines: it shows the order of the program's parts.
fn build_program(
    plan: &EventPlan,
    layout: &BufferLayout,
    maps: ProgramMaps,
    event: EventSelection,
    filters: &[Filter],
) -> Result<ProgramCode, ProgramTooLarge> {
    // As in crate `ring`, the head never reaches a sub-buffer's end.
    let record_bytes_max = (EXTENDED_BYTES + TAILROOM_BYTES) as u32 + plan.bytes_max();
    let limit = layout.geometry(0).record_bytes_max() as u32;
    if record_bytes_max > limit {
        return Err(ProgramTooLarge);
    }
    let mut asm = Asm::default();
    let out = asm.new_label();
    let position_max = layout.ring_offset(LEVELS);
    let mut builder =
        ProgramBuilder { asm, layout, plan, event, record_bytes_max, out, position_max };
    match plan.data_source {
        DataSource::Tracepoint | DataSource::Arguments => builder.asm.mov(CONTEXT, 1),
        // The registers are the tracepoint's first argument.
        DataSource::Registers => builder.asm.load(CONTEXT, 1, 0),
    }
    if let Some(scope) = maps.scope {
        let is_in = builder.asm.new_label();
        scope::jump_if_current_member(&mut builder.asm, scope, is_in);
        for thread in &plan.threads {
            if builder.load_thread(thread) {
                scope::jump_if_member(&mut builder.asm, scope, is_in);
            }
        }
        builder.asm.exit_with(PASS);
        builder.asm.place_label(is_in);
    }
    builder.load_event();
    // The filters' verdict is still unknown, so events with filters have a separate counter.
    builder.enter_level(maps.buffers_fd, if filters.is_empty() { TOO_DEEP } else { UNFILTERED });
    let labels = Labels {
        out: builder.out,
        full: builder.asm.new_label(),
        write: builder.asm.new_label(),
        switch: builder.asm.new_label(),
    };
    let (functions, prefetched) = filter::run_filters(&mut builder, filters, labels.out);
    builder.place_record(&labels);
    builder.asm.place_label(labels.write);
    builder.write_header();
    plan.contexts.write(&mut builder.asm, plan.data_source);
    match plan.data_source {
        DataSource::Arguments => {
            let count_cut = |asm: &mut Asm| count_cut(asm, event, layout);
            arguments::write_arguments(&mut builder.asm, &plan.steps, &count_cut);
        }
        _ => {
            if filters.is_empty() {
                builder.init_user_steps();
            }
            for (number, step) in plan.steps.iter().enumerate() {
                match prefetched.get(&number) {
                    Some(&map_fd) => builder.copy_prefetched(number, map_fd, labels.out),
                    None => builder.write_step(step),
                }
            }
        }
    }
    builder.commit();
    builder.asm.place_label(labels.out);
    builder.leave_level();
    builder.asm.place_label(labels.full);
    builder.count_lost();
    builder.asm.goto(labels.out);
    // The code of rare cases comes last.
    builder.open_sub_buffer(&labels);
    filter::finish_program(builder.asm, filters, &functions).ok_or(ProgramTooLarge)
}

/// Loads the address of this CPU's area of the buffers into r0; 0: the CPU has no area.
fn load_cpu_area(asm: &mut Asm, map_fd: i32) {
    asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
    asm.store_sized(4, STACK, stack::KEY, 0);
    asm.load_map(1, map_fd);
    asm.mov(2, STACK);
    asm.alui(alu::ADD, 2, stack::KEY.into());
    asm.call_kernel(helper::MAP_LOOKUP_ELEM);
}

struct Labels {
    out: Label,
    full: Label,
    write: Label,
    switch: Label,
}

/// The event that a program records.
#[derive(Debug, Clone, Copy)]
enum EventSelection {
    /// One event.
    Fixed(EventNumber),
    /// The event that the map with this descriptor gives for the call's number.
    FromMap(i32),
}

/// A program under construction.
pub(super) struct ProgramBuilder<'l> {
    pub(super) asm: Asm,
    layout: &'l BufferLayout,
    pub(super) plan: &'l EventPlan,
    event: EventSelection,
    /// Most bytes of a record.
    record_bytes_max: u32,
    /// The label of the code that leaves the level.
    out: Label,
    /// The upper bound of [`AT`]. The bytes after the bound have room for one step.
    pub(super) position_max: usize,
}

/// Converts an offset in control lines, a record or a CPU area to an instruction's offset. All such
/// offsets are small.
pub(super) const fn insn_offset(offset: usize) -> i16 {
    offset as i16
}

/// Advances [`AT`] past text that a helper function has copied; r0 is the function's result. The
/// text has at most `bytes_max` bytes with its NUL. Unreadable text becomes empty. With
/// `count_cut`, the function may copy one more byte; longer text is cut and counted.
pub(super) fn finish_text(asm: &mut Asm, bytes_max: u32, count_cut: Option<&dyn Fn(&mut Asm)>) {
    let (is_read, is_short) = (asm.new_label(), asm.new_label());
    asm.jumpi(jump::JSGT, 0, 0, is_read);
    asm.mov(1, CPU);
    asm.alu(alu::ADD, 1, AT);
    asm.storei_sized(1, 1, 0, 0);
    asm.movi(0, 1);
    asm.place_label(is_read);
    // The verifier of some kernels does not derive this bound.
    asm.jumpi(jump::JLE, 0, bytes_max as i32, is_short);
    if let Some(count) = count_cut {
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.storei_sized(1, 1, insn_offset(bytes_max as usize - 1), 0);
        count(asm);
    }
    asm.movi(0, bytes_max as i32);
    asm.place_label(is_short);
    asm.alu(alu::ADD, AT, 0);
}

/// Ends a program and enables preemption again.
fn end_program(asm: &mut Asm, guard: Option<PreemptionGuard>) {
    if let Some(guard) = guard {
        guard.end(asm);
    }
    asm.exit_with(PASS);
}

impl EventSelection {
    /// Loads into r2 the address of the event's word in the CPU area. `offset` maps an event's
    /// index to the word's offset; each event has a word of eight bytes.
    fn load_word(self, asm: &mut Asm, events: usize, offset: impl Fn(usize) -> usize) {
        match self {
            Self::Fixed(EventNumber { index, .. }) => {
                asm.mov(2, CPU);
                asm.alui(alu::ADD, 2, offset(index) as i32);
            }
            Self::FromMap(_) => {
                asm.load(2, STACK, stack::EVENT);
                asm.alui(alu::RSH, 2, EVENT_SHIFT as i32);
                // The mask is a bound for the verifier: rings follow these words.
                asm.alui(alu::AND, 2, events.next_power_of_two() as i32 - 1);
                asm.alui(alu::LSH, 2, 3);
                asm.alui(alu::ADD, 2, offset(0) as i32);
                asm.alu(alu::ADD, 2, CPU);
            }
        }
    }

    /// Stores the event's id in `bytes` bytes at offset `at` from r5.
    fn store_id(self, asm: &mut Asm, bytes: u32, at: i16) {
        match self {
            Self::Fixed(EventNumber { id, .. }) => {
                let id = if bytes == 2 { i32::from(id.cast_signed()) } else { id.into() };
                asm.storei_sized(bytes, 5, at, id);
            }
            Self::FromMap(_) => {
                asm.load(2, STACK, stack::EVENT);
                asm.alui(alu::AND, 2, u16::MAX.into());
                asm.store_sized(bytes, 5, at, 2);
            }
        }
    }
}

impl ProgramBuilder<'_> {
    /// Loads the event of a shared program from the map.
    fn load_event(&mut self) {
        let (EventSelection::FromMap(events_fd), Some(call)) = (self.event, self.plan.call) else {
            return;
        };
        let asm = &mut self.asm;
        asm.load(1, CONTEXT, insn_offset(call.number as usize));
        asm.alui(alu::AND, 1, EVENTS_MAX as i32 - 1);
        asm.alui(alu::LSH, 1, 3);
        asm.load_map_value(2, events_fd);
        asm.alu(alu::ADD, 2, 1);
        asm.load(1, 2, 0);
        asm.store(STACK, stack::EVENT, 1);
    }

    /// Finds the CPU area and the level's region. Ends the program if all levels are in use, and
    /// counts the event at offset `too_deep` of the CPU area.
    fn enter_level(&mut self, map_fd: i32, too_deep: usize) {
        let (layout, guard, event) = (self.layout, self.plan.guard, self.event);
        let asm = &mut self.asm;
        if let Some(guard) = guard {
            guard.begin(asm);
        }
        let (is_there, has_level) = (asm.new_label(), asm.new_label());
        load_cpu_area(asm, map_fd);
        asm.jumpi(jump::JNE, 0, 0, is_there);
        end_program(asm, guard); // a CPU that came online later
        asm.place_label(is_there);
        asm.mov(CPU, 0);
        let goes_on = asm.new_label();
        asm.load(1, CPU, insn_offset(STOPPED));
        asm.jumpi(jump::JEQ, 1, 0, goes_on);
        end_program(asm, guard);
        asm.place_label(goes_on);
        let is_on = asm.new_label();
        event.load_word(asm, layout.events(), |event| layout.version_offset(event));
        asm.load(1, 2, 0);
        asm.jumpi(jump::JEQ, 1, self.plan.version.cast_signed(), is_on);
        end_program(asm, guard);
        asm.place_label(is_on);
        asm.load(1, CPU, insn_offset(DEPTH));
        asm.jumpi(jump::JLT, 1, LEVELS as i32, has_level);
        // Programs that interrupt this program increment the same counter.
        asm.movi(1, 1);
        asm.atomic(ATOMIC_ADD, CPU, insn_offset(too_deep), 1);
        end_program(asm, guard);
        asm.place_label(has_level);
        asm.store(STACK, stack::DEPTH, 1);
        asm.mov(CONTROL, 1);
        asm.mov(2, 1);
        asm.alui(alu::ADD, 2, 1);
        asm.store(CPU, insn_offset(DEPTH), 2);
        asm.alui(alu::MUL, CONTROL, layout.control_stride() as i32);
        asm.alui(alu::ADD, CONTROL, layout.control_offset(0) as i32);
        asm.alu(alu::ADD, CONTROL, CPU);
    }

    /// Reads the region's state and decides where the record goes. Continues at `write` with the
    /// head in r2, or at `switch` with the commit word in r1, the head in r2, the time in r0 and
    /// the previous record's time in r4.
    fn place_record(&mut self, labels: &Labels) {
        let sub_bytes = self.layout.geometry(0).sub_bytes();
        let asm = &mut self.asm;
        asm.call_kernel(helper::KTIME_GET_NS);
        asm.load(1, CONTROL, control::COMMIT);
        asm.mov(3, 1);
        asm.alui(alu::AND, 3, 1);
        asm.alui(alu::LSH, 3, 4);
        asm.alu(alu::ADD, 3, CONTROL);
        asm.load(4, 3, control::SLOTS);
        asm.load(5, 3, control::SLOTS + 8);
        let is_later = asm.new_label();
        asm.jump(jump::JGE, 0, 4, is_later);
        asm.mov(0, 4);
        asm.place_label(is_later);
        asm.store(STACK, stack::COMMIT, 1);
        asm.store(STACK, stack::NOW, 0);
        asm.store(STACK, stack::EVENTS, 5);
        asm.store(STACK, stack::LAST, 4);
        asm.mov(2, 1);
        asm.alui(alu::RSH, 2, 1);
        asm.mov(3, 2);
        asm.alui(alu::AND, 3, (sub_bytes - 1) as i32);
        asm.jumpi(jump::JEQ, 3, 0, labels.switch); // no sub-buffer is open
        let room = sub_bytes as i32 - self.record_bytes_max as i32;
        asm.jumpi(jump::JGT, 3, room, labels.switch);
    }

    /// Opens the next sub-buffer and continues at `write` with the head in r2.
    fn open_sub_buffer(&mut self, labels: &Labels) {
        let geometry = self.layout.geometry(0);
        let (end, out, asm) = (self.layout.ring_offset(LEVELS) as i32, self.out, &mut self.asm);
        asm.place_label(labels.switch);
        asm.mov(3, 2);
        let is_first = asm.new_label();
        asm.jumpi(jump::JEQ, 3, 0, is_first);
        asm.alui(alu::RSH, 3, geometry.sub_shift() as i32);
        asm.alui(alu::ADD, 3, 1);
        asm.place_label(is_first);
        // r3: the sub-buffer's number; r5: its beginning.
        asm.mov(5, 3);
        asm.alui(alu::LSH, 5, geometry.sub_shift() as i32);
        asm.mov(1, 5);
        asm.alui(alu::ADD, 1, geometry.sub_bytes() as i32);
        asm.load(AT, CONTROL, control::LIMIT);
        asm.jump(jump::JGT, 1, AT, labels.full);
        asm.mov(AT, 5);
        asm.load(1, CONTROL, control::MASK);
        asm.alu(alu::AND, AT, 1);
        asm.load(1, CONTROL, control::RING);
        asm.alu(alu::ADD, AT, 1);
        asm.jumpi(jump::JGT, AT, end, out);
        asm.alu(alu::ADD, AT, CPU);
        asm.store(AT, insn_offset(sub_header::INDEX), 3);
        asm.store(AT, insn_offset(sub_header::BEGIN), 0);
        asm.store(AT, insn_offset(sub_header::PREV_END), 4);
        asm.store(AT, insn_offset(sub_header::PREV_CONTENT), 2);
        asm.load(1, STACK, stack::EVENTS);
        asm.store(AT, insn_offset(sub_header::PREV_EVENTS), 1);
        asm.load(1, CONTROL, control::DISCARDED);
        asm.store(AT, insn_offset(sub_header::DISCARDED), 1);
        asm.storei(AT, insn_offset(sub_header::EPOCH), 0);
        for zero in (sub_header::END..SUB_HEADER_BYTES).step_by(4) {
            asm.storei_sized(4, AT, insn_offset(zero), 0);
        }
        // Records of the sub-buffer count their time from the sub-buffer's beginning.
        asm.store(STACK, stack::LAST, 0);
        asm.mov(2, 5);
        asm.alui(alu::ADD, 2, SUB_HEADER_BYTES as i32);
        asm.goto(labels.write);
    }

    /// Writes the record's header at the head (r2), then points [`AT`] after the header.
    ///
    /// The verifier walks the following code once for each path with different register contents.
    /// So all paths get the same bound of [`AT`], and the path with the least known contents comes
    /// first: the other paths are special cases. The bound is valid because records end within
    /// their sub-buffer.
    fn write_header(&mut self) {
        let (event, end) = (self.event, self.layout.ring_offset(LEVELS) as i32);
        let (out, asm) = (self.out, &mut self.asm);
        let (is_long, is_done) = (asm.new_label(), asm.new_label());
        asm.store(STACK, stack::HEAD, 2);
        asm.mov(AT, 2);
        asm.load(1, CONTROL, control::MASK);
        asm.alu(alu::AND, AT, 1);
        asm.load(1, CONTROL, control::RING);
        asm.alu(alu::ADD, AT, 1);
        asm.jumpi(jump::JGT, AT, end, out);
        asm.store(STACK, stack::BEGIN, AT);
        asm.mov(5, CPU);
        asm.alu(alu::ADD, 5, AT);
        asm.load(1, STACK, stack::NOW);
        asm.load(3, STACK, stack::LAST);
        asm.mov(4, 1);
        asm.alu(alu::SUB, 4, 3);
        asm.alui(alu::RSH, 4, TIME_BITS as i32);
        asm.jumpi(jump::JNE, 4, 0, is_long);
        asm.alui(alu::LSH, 1, TAG_BITS as i32);
        match event {
            EventSelection::Fixed(EventNumber { id, .. }) if u32::from(id) < TAG_MEDIUM => {
                asm.alui(alu::OR, 1, id.into());
                asm.store_sized(4, 5, 0, 1);
                asm.alui(alu::ADD, AT, COMPACT_BYTES as i32);
            }
            _ => {
                asm.alui(alu::OR, 1, TAG_MEDIUM as i32);
                asm.store_sized(4, 5, 0, 1);
                event.store_id(asm, 2, 4);
                asm.alui(alu::ADD, AT, MEDIUM_BYTES as i32);
            }
        }
        asm.goto(is_done);
        asm.place_label(is_long);
        asm.storei_sized(1, 5, 0, TAG_EXTENDED as i32);
        event.store_id(asm, 4, 1);
        asm.store_sized(8, 5, 5, 1);
        asm.alui(alu::ADD, AT, EXTENDED_BYTES as i32);
        asm.place_label(is_done);
        asm.jumpi(jump::JGT, AT, end, out);
    }

    /// Makes the verifier discard its knowledge of [`AT`] except the bound. Otherwise it would walk
    /// the remaining code once for each length that a step can add, for every combination of steps.
    pub(super) fn forget_position(&mut self) {
        self.forget_register(AT, self.position_max as i32, self.out);
    }

    /// Makes the verifier discard its knowledge of a register, like [`Self::forget_position`]. The
    /// program jumps to `otherwise` if the register exceeds `most`.
    pub(super) fn forget_register(&mut self, register: Register, most: i32, otherwise: Label) {
        self.asm.store(CONTROL, control::PLACE, register);
        self.asm.load(register, CONTROL, control::PLACE);
        self.asm.jumpi(jump::JGT, register, most, otherwise);
    }

    /// Commits the record that ends at [`AT`].
    fn commit(&mut self) {
        let asm = &mut self.asm;
        asm.load(1, STACK, stack::BEGIN);
        asm.alu(alu::SUB, AT, 1);
        asm.load(1, STACK, stack::HEAD);
        asm.alu(alu::ADD, AT, 1);
        asm.alui(alu::LSH, AT, 1);
        // The next commit word has the other parity, which selects the other slot.
        asm.load(1, STACK, stack::COMMIT);
        asm.alui(alu::AND, 1, 1);
        asm.alui(alu::XOR, 1, 1);
        asm.alu(alu::OR, AT, 1);
        asm.alui(alu::LSH, 1, 4);
        asm.alu(alu::ADD, 1, CONTROL);
        asm.load(2, STACK, stack::NOW);
        asm.store(1, control::SLOTS, 2);
        asm.load(2, STACK, stack::EVENTS);
        asm.alui(alu::ADD, 2, 1);
        asm.store(1, control::SLOTS + 8, 2);
        asm.store(CONTROL, control::COMMIT, AT);
    }

    /// Leaves the level and ends the program.
    fn leave_level(&mut self) {
        self.asm.load(1, STACK, stack::DEPTH);
        self.asm.store(CPU, insn_offset(DEPTH), 1);
        end_program(&mut self.asm, self.plan.guard);
    }

    /// Counts a record that did not fit the buffers.
    fn count_lost(&mut self) {
        let asm = &mut self.asm;
        asm.load(1, CONTROL, control::DISCARDED);
        asm.alui(alu::ADD, 1, 1);
        asm.store(CONTROL, control::DISCARDED, 1);
        let layout = self.layout;
        self.count_event(|event| layout.lost_offset(event));
    }

    /// Counts an event with a filtered field that was not in memory.
    pub(super) fn count_unread(&mut self) {
        let layout = self.layout;
        self.count_event(|event| layout.unread_offset(event));
    }

    fn count_event(&mut self, offset: impl Fn(usize) -> usize) {
        count_event(&mut self.asm, self.event, self.layout.events(), offset);
    }
}

/// Counts a text or a sequence that was cut; uses r1 and r2.
fn count_cut(asm: &mut Asm, event: EventSelection, layout: &BufferLayout) {
    count_event(asm, event, layout.events(), |event| layout.cut_offset(event));
}

/// Increments an event's counter in the CPU area. A plain store is enough: a program does not
/// interrupt itself.
fn count_event(
    asm: &mut Asm,
    event: EventSelection,
    events: usize,
    offset: impl Fn(usize) -> usize,
) {
    event.load_word(asm, events, offset);
    asm.load(1, 2, 0);
    asm.alui(alu::ADD, 1, 1);
    asm.store(2, 0, 1);
}
