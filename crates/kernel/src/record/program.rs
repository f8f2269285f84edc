//! The program that records an event.
//!
//! It does what a writer of `trackway_ring` does, without its table, since a ring lies in one
//! piece: looks at the commit word of its level's region, opens a sub-buffer if the record does not
//! fit, writes header and fields beyond the head, and commits by one store. Opening is published by
//! the same store.
//!
//! ```text
//! r6 the event's ground        r7 the CPU's part   r8 where in it to write   r9 control lines
//! ```

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, MEDIUM_BYTES, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM,
    TAILROOM_BYTES, TIME_BITS,
};
use trackway_abi::region::{SUB_HEADER_BYTES, sub_header};
use trackway_jit::insn::{alu, jump};

use super::arguments;
use super::attach::{EVENT_SHIFT, EVENTS, Programs};
use super::filter::{self, Filter};
use super::layout::{DEPTH, LEVELS, Layout, STOPPED, TOO_DEEP, UNASKED};
use super::operation;
use super::release::Guard;
use super::scope::{self, Members};
use super::staging::{Ground, Registers, Staged, Step, VARIABLE_BYTES_MAX};
use crate::bpf_sys::asm::{Asm, Label, Register};
use crate::bpf_sys::btf::Btf;
use crate::catalogue::model::{Location, Phase};

/// Helpers of the kernel's, by number (include/uapi/linux/bpf.h).
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

/// What all programs answer: others on the same tracepoint, perf's own counters among them, see
/// only what each program lets pass (kernel/trace/bpf_trace.c, trace_call_bpf()).
pub(super) const PASS: i32 = 1;

pub(super) const CONTEXT: Register = 6;
pub(super) const CPU: Register = 7;
pub(super) const AT: Register = 8;
const CONTROL: Register = 9;
pub(super) const STACK: Register = 10;

/// Where things are on the stack.
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
    /// Which event it is, where a program has several. (It has no filters, which need the room.)
    pub(crate) const EVENT: i16 = MISSING;
    /// Where no program memory is read, which has what stands there.
    pub(crate) const SCRATCH: i16 = INCOMPLETE;
}

/// Where things are in control lines (`trackway_abi::region`).
mod control {
    pub(super) const COMMIT: i16 = 0;
    pub(super) const LIMIT: i16 = 8;
    pub(super) const SLOTS: i16 = 16;
    pub(super) const DISCARDED: i16 = 64;
    pub(super) use crate::record::layout::{CONTROL_MASK as MASK, CONTROL_RING as RING};
    /// Of the program's own, for a moment ([`super::Maker::renew`]).
    pub(super) const PLACE: i16 = 88;
}

/// Largest chunk that is copied word by word, in bytes.
const UNROLLED_BYTES_MAX: u32 = 64;

/// The record would not fit a sub-buffer, or the program is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

/// A program as bpf(2) takes it.
#[derive(Debug)]
pub struct Code {
    pub(crate) bytes: Vec<u8>,
    /// Of its functions, if it has others than the first.
    pub(crate) types: Option<Btf>,
}

impl Code {
    /// What is the same of programs that do the same; `None`: it has functions, which nobody
    /// looks at.
    pub fn key(&self) -> Option<&[u8]> {
        self.types.is_none().then_some(&self.bytes[..])
    }
}

/// The bytes of a program that records the event with this id in its trace, and this number among
/// those that losses are counted of, into the map; of the threads in a scope alone, if there is one
/// ([`super::scope`]): those that it happens in, and those that it is about.
///
/// # Errors
///
/// If it cannot be.
pub fn program(
    staged: &Staged,
    layout: &Layout,
    fds: (i32, Option<Members>),
    which: (u16, usize),
) -> Result<Vec<u8>, TooLarge> {
    filtered(staged, layout, fds, which, &[]).map(|code| code.bytes)
}

/// The same, of what these filters let pass.
///
/// # Errors
///
/// As [`program`].
pub fn filtered(
    staged: &Staged,
    layout: &Layout,
    fds: (i32, Option<Members>),
    (id, number): (u16, usize),
    filters: &[Filter],
) -> Result<Code, TooLarge> {
    if number >= layout.events() {
        return Err(TooLarge);
    }
    make(staged, layout, fds, Which::This(id, number), filters)
}

/// The same of any call that is recorded like this one: the map says which event it is
/// ([`Programs::name_event`]), so that the kernel has to look at one program for all of them.
///
/// # Errors
///
/// As [`program`].
pub fn shared(
    staged: &Staged,
    layout: &Layout,
    fds: (i32, Option<Members>),
    events_fd: i32,
) -> Result<Code, TooLarge> {
    make(staged, layout, fds, Which::Said(events_fd), &[])
}

fn make(
    staged: &Staged,
    layout: &Layout,
    (map_fd, members): (i32, Option<Members>),
    which: Which,
    filters: &[Filter],
) -> Result<Code, TooLarge> {
    // As in `ring`: the head never comes to a sub-buffer's end.
    let needed = (EXTENDED_BYTES + TAILROOM_BYTES) as u32 + staged.bytes_max();
    let most = layout.geometry(0).record_bytes_max() as u32;
    if needed > most {
        return Err(TooLarge);
    }
    let mut asm = Asm::default();
    let out = asm.label();
    let reach = layout.ring(LEVELS);
    let mut maker = Maker { asm, layout, staged, which, needed, out, reach };
    match staged.ground {
        Ground::Tracepoint | Ground::Arguments => maker.asm.mov(CONTEXT, 1),
        // The first of the tracepoint's arguments.
        Ground::Registers => maker.asm.load(CONTEXT, 1, 0),
    }
    if let Some(members) = members {
        let is_in = maker.asm.label();
        scope::test(&mut maker.asm, members, is_in);
        for thread in &staged.threads {
            if maker.thread(thread) {
                scope::test_of(&mut maker.asm, members, is_in);
            }
        }
        maker.asm.answer(PASS);
        maker.asm.place(is_in);
    }
    maker.find_event();
    // Of what a filter is not asked nobody knows whether it was wanted.
    maker.enter(map_fd, if filters.is_empty() { TOO_DEEP } else { UNASKED });
    let labels = Labels {
        out: maker.out,
        full: maker.asm.label(),
        write: maker.asm.label(),
        switch: maker.asm.label(),
    };
    let (asked, homes) = filter::ask(&mut maker, filters, labels.out);
    maker.plan(&labels);
    maker.asm.place(labels.write);
    maker.header();
    staged.contexts.write(&mut maker.asm, staged.ground);
    match staged.ground {
        Ground::Arguments => {
            let count_cut = |asm: &mut Asm| count_cut(asm, which, layout);
            arguments::write(&mut maker.asm, &staged.steps, &count_cut);
        }
        _ => {
            if filters.is_empty() {
                maker.prepare();
            }
            for (number, step) in staged.steps.iter().enumerate() {
                match homes.get(&number) {
                    Some(&home) => maker.add_read(number, home, labels.out),
                    None => maker.step(step),
                }
            }
        }
    }
    maker.commit();
    maker.asm.place(labels.out);
    maker.leave();
    maker.asm.place(labels.full);
    maker.count_lost();
    maker.asm.goto(labels.out);
    // Behind all others, as is what happens seldom.
    maker.open(&labels);
    filter::finish(maker.asm, filters, &asked).ok_or(TooLarge)
}

/// The bytes of the program on the raw tracepoint of system calls, before or behind each: it goes
/// on with the one of `programs` that has the call's number, if the thread is in the scope.
///
/// Calls by the numbers of 32 bits mean something else: of whole programs, and by `int $0x80` in
/// any (which the code segment would not tell). They have programs of their own, the second ones.
/// Those that have none there are counted as they begin, if the buffers' map is given: unless
/// nothing is recorded of the CPU.
pub fn dispatcher(
    phase: Phase,
    registers: &Registers,
    (programs, compat): (&Programs, &Programs),
    members: Option<Members>,
    buffers_fd: Option<i32>,
) -> Option<Vec<u8>> {
    /// Such a call is under way: in `status` (arch/x86/include/asm/thread_info.h).
    const TS_COMPAT: i32 = 2;
    const TASK: Register = 7;
    let at = |offset: u32| i16::try_from(offset).ok();
    let (tid, status) = (at(registers.task.0)?, at(registers.task.1)?);
    let mut asm = Asm::default();
    asm.mov(CONTEXT, 1);
    asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
    asm.mov(TASK, 0);
    if let Some(members) = members {
        let is_in = asm.label();
        match members.is_of_cgroups() {
            true => scope::test(&mut asm, members, is_in),
            false => {
                asm.load_of(4, 0, TASK, tid);
                scope::test_of(&mut asm, members, is_in);
            }
        }
        asm.answer(PASS);
        asm.place(is_in);
    }
    let is_narrow = asm.label();
    asm.load_of(4, 1, TASK, status);
    asm.alui(alu::AND, 1, TS_COMPAT);
    asm.jumpi(jump::JNE, 1, 0, is_narrow);
    let number = at(registers.number)?;
    let counted_fd = buffers_fd.filter(|_| phase == Phase::Enter);
    go_on(&mut asm, phase, number, programs);
    counted_fd.into_iter().for_each(|map_fd| count_unknown(&mut asm, programs, map_fd));
    asm.answer(PASS);
    asm.place(is_narrow);
    go_on(&mut asm, phase, number, compat);
    counted_fd.into_iter().for_each(|map_fd| count_unknown(&mut asm, compat, map_fd));
    asm.answer(PASS);
    asm.bytes()
}

/// Counts a call that none of these programs is for, if anything is recorded of the CPU.
fn count_unknown(asm: &mut Asm, programs: &Programs, map_fd: i32) {
    let is_done = asm.label();
    part_of_this_cpu(asm, map_fd);
    asm.jumpi(jump::JEQ, 0, 0, is_done);
    asm.load(1, 0, short(STOPPED));
    asm.jumpi(jump::JNE, 1, 0, is_done);
    asm.map_value(2, programs.unknown_fd());
    asm.movi(1, 1);
    asm.atomic(ATOMIC_ADD, 2, 0, 1);
    asm.place(is_done);
}

/// The address of this CPU's part of the buffers in r0; 0: there is none.
fn part_of_this_cpu(asm: &mut Asm, map_fd: i32) {
    asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
    asm.store_of(4, STACK, stack::KEY, 0);
    asm.map(1, map_fd);
    asm.mov(2, STACK);
    asm.alui(alu::ADD, 2, stack::KEY.into());
    asm.call_kernel(helper::MAP_LOOKUP_ELEM);
}

/// Goes on with the program that has the call's number; behind this, if there is none. Where its
/// number is in registers is `number`.
fn go_on(asm: &mut Asm, phase: Phase, number: i16, programs: &Programs) {
    match phase {
        Phase::Enter => asm.load(3, CONTEXT, 8),
        Phase::Exit => {
            asm.load(2, CONTEXT, 0);
            asm.load(3, 2, number);
        }
    }
    asm.mov(1, CONTEXT);
    asm.map(2, programs.map_fd());
    asm.call_kernel(helper::TAIL_CALL);
}

struct Labels {
    out: Label,
    full: Label,
    write: Label,
    switch: Label,
}

/// Which event a program records.
#[derive(Debug, Clone, Copy)]
enum Which {
    /// That with this id in its trace, and this number among those that losses are counted of.
    This(u16, usize),
    /// That which the map says of the call's number.
    Said(i32),
}

/// A program as it is made.
pub(super) struct Maker<'l> {
    pub(super) asm: Asm,
    layout: &'l Layout,
    pub(super) staged: &'l Staged,
    which: Which,
    /// Most bytes of a record.
    needed: u32,
    /// Where it gives back its level.
    out: Label,
    /// What [`AT`] is at most: what is behind it is room for what one step adds.
    pub(super) reach: usize,
}

/// An offset in control lines, a record, or a CPU's part, as instructions have it: all that are
/// asked for are small.
pub(super) const fn short(offset: usize) -> i16 {
    offset as i16
}

/// Moves [`AT`] behind text that one of the kernel's helpers has copied there, of at most so many
/// bytes with its NUL: r0 is what it answered. What could not be read is empty. With `count_cut`,
/// the helper was given a byte more, and what needs that one is cut, and counted.
pub(super) fn text_read(asm: &mut Asm, bytes_max: u32, count_cut: Option<&dyn Fn(&mut Asm)>) {
    let (is_read, is_short) = (asm.label(), asm.label());
    asm.jumpi(jump::JSGT, 0, 0, is_read);
    asm.mov(1, CPU);
    asm.alu(alu::ADD, 1, AT);
    asm.storei_of(1, 1, 0, 0);
    asm.movi(0, 1);
    asm.place(is_read);
    // (The verifier knows this, but not of all kernels.)
    asm.jumpi(jump::JLE, 0, bytes_max as i32, is_short);
    if let Some(count) = count_cut {
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.storei_of(1, 1, short(bytes_max as usize - 1), 0);
        count(asm);
    }
    asm.movi(0, bytes_max as i32);
    asm.place(is_short);
    asm.alu(alu::ADD, AT, 0);
}

/// Adds zeros at [`AT`] for a number of so many bytes that is not known.
fn unknown(asm: &mut Asm, size: u32) {
    asm.mov(5, CPU);
    asm.alu(alu::ADD, 5, AT);
    asm.storei_of(size, 5, 0, 0);
    asm.alui(alu::ADD, AT, size as i32);
}

/// Ends a program that may be preempted again.
fn pass(asm: &mut Asm, guard: Option<Guard>) {
    if let Some(guard) = guard {
        guard.end(asm);
    }
    asm.answer(PASS);
}

impl Which {
    /// The address, in r2, of what the CPU's part has of the event; of each it has eight bytes, of
    /// that with this number at `place`.
    fn find(self, asm: &mut Asm, events: usize, place: impl Fn(usize) -> usize) {
        match self {
            Self::This(_, number) => {
                asm.mov(2, CPU);
                asm.alui(alu::ADD, 2, place(number) as i32);
            }
            Self::Said(_) => {
                asm.load(2, STACK, stack::EVENT);
                asm.alui(alu::RSH, 2, EVENT_SHIFT as i32);
                // (A bound, for the verifier: rings are behind all of it.)
                asm.alui(alu::AND, 2, events.next_power_of_two() as i32 - 1);
                asm.alui(alu::LSH, 2, 3);
                asm.alui(alu::ADD, 2, place(0) as i32);
                asm.alu(alu::ADD, 2, CPU);
            }
        }
    }

    /// Stores its id in so many bytes, so far behind r5.
    fn store_id(self, asm: &mut Asm, bytes: u32, at: i16) {
        match self {
            Self::This(id, _) => {
                let id = if bytes == 2 { i32::from(id.cast_signed()) } else { id.into() };
                asm.storei_of(bytes, 5, at, id);
            }
            Self::Said(_) => {
                asm.load(2, STACK, stack::EVENT);
                asm.alui(alu::AND, 2, u16::MAX.into());
                asm.store_of(bytes, 5, at, 2);
            }
        }
    }
}

impl Maker<'_> {
    /// Finds out which event it is, where that is said elsewhere.
    fn find_event(&mut self) {
        let (Which::Said(events_fd), Some(call)) = (self.which, self.staged.call) else { return };
        let asm = &mut self.asm;
        asm.load(1, CONTEXT, short(call.number as usize));
        asm.alui(alu::AND, 1, EVENTS as i32 - 1);
        asm.alui(alu::LSH, 1, 3);
        asm.map_value(2, events_fd);
        asm.alu(alu::ADD, 2, 1);
        asm.load(1, 2, 0);
        asm.store(STACK, stack::EVENT, 1);
    }

    /// Finds the CPU's part and the level's region. Ends the program if all levels are taken, which
    /// is counted there in the CPU's part.
    fn enter(&mut self, map_fd: i32, too_deep: usize) {
        let (layout, guard, which) = (self.layout, self.staged.guard, self.which);
        let asm = &mut self.asm;
        if let Some(guard) = guard {
            guard.begin(asm);
        }
        let (is_there, has_level) = (asm.label(), asm.label());
        part_of_this_cpu(asm, map_fd);
        asm.jumpi(jump::JNE, 0, 0, is_there);
        pass(asm, guard); // a CPU that came later
        asm.place(is_there);
        asm.mov(CPU, 0);
        let goes_on = asm.label();
        asm.load(1, CPU, short(STOPPED));
        asm.jumpi(jump::JEQ, 1, 0, goes_on);
        pass(asm, guard);
        asm.place(goes_on);
        let is_on = asm.label();
        which.find(asm, layout.events(), |event| layout.version(event));
        asm.load(1, 2, 0);
        asm.jumpi(jump::JEQ, 1, self.staged.version.cast_signed(), is_on);
        pass(asm, guard);
        asm.place(is_on);
        asm.load(1, CPU, short(DEPTH));
        asm.jumpi(jump::JLT, 1, LEVELS as i32, has_level);
        // Whoever interrupts us here counts in the same place.
        asm.movi(1, 1);
        asm.atomic(ATOMIC_ADD, CPU, short(too_deep), 1);
        pass(asm, guard);
        asm.place(has_level);
        asm.store(STACK, stack::DEPTH, 1);
        asm.mov(CONTROL, 1);
        asm.mov(2, 1);
        asm.alui(alu::ADD, 2, 1);
        asm.store(CPU, short(DEPTH), 2);
        asm.alui(alu::MUL, CONTROL, layout.control_stride() as i32);
        asm.alui(alu::ADD, CONTROL, layout.control(0) as i32);
        asm.alu(alu::ADD, CONTROL, CPU);
    }

    /// Looks at the region, and decides. Falls through to `write` with the head in r2, or goes on
    /// at `switch`, with the commit word in r1, the head in r2, the time in r0 and that of the
    /// record before in r4.
    fn plan(&mut self, labels: &Labels) {
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
        let is_later = asm.label();
        asm.jump(jump::JGE, 0, 4, is_later);
        asm.mov(0, 4);
        asm.place(is_later);
        asm.store(STACK, stack::COMMIT, 1);
        asm.store(STACK, stack::NOW, 0);
        asm.store(STACK, stack::EVENTS, 5);
        asm.store(STACK, stack::LAST, 4);
        asm.mov(2, 1);
        asm.alui(alu::RSH, 2, 1);
        asm.mov(3, 2);
        asm.alui(alu::AND, 3, (sub_bytes - 1) as i32);
        asm.jumpi(jump::JEQ, 3, 0, labels.switch); // nothing is open
        let room = sub_bytes as i32 - self.needed as i32;
        asm.jumpi(jump::JGT, 3, room, labels.switch);
    }

    /// Opens the next sub-buffer, and goes on at `write` with the head in r2.
    fn open(&mut self, labels: &Labels) {
        let geometry = self.layout.geometry(0);
        let (end, out, asm) = (self.layout.ring(LEVELS) as i32, self.out, &mut self.asm);
        asm.place(labels.switch);
        asm.mov(3, 2);
        let is_first = asm.label();
        asm.jumpi(jump::JEQ, 3, 0, is_first);
        asm.alui(alu::RSH, 3, geometry.sub_shift() as i32);
        asm.alui(alu::ADD, 3, 1);
        asm.place(is_first);
        // r3: its number; r5: where it begins.
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
        asm.store(AT, short(sub_header::INDEX), 3);
        asm.store(AT, short(sub_header::BEGIN), 0);
        asm.store(AT, short(sub_header::PREV_END), 4);
        asm.store(AT, short(sub_header::PREV_CONTENT), 2);
        asm.load(1, STACK, stack::EVENTS);
        asm.store(AT, short(sub_header::PREV_EVENTS), 1);
        asm.load(1, CONTROL, control::DISCARDED);
        asm.store(AT, short(sub_header::DISCARDED), 1);
        asm.storei(AT, short(sub_header::EPOCH), 0);
        for zero in (sub_header::END..SUB_HEADER_BYTES).step_by(4) {
            asm.storei_of(4, AT, short(zero), 0);
        }
        // Records in it count their time from its beginning.
        asm.store(STACK, stack::LAST, 0);
        asm.mov(2, 5);
        asm.alui(alu::ADD, 2, SUB_HEADER_BYTES as i32);
        asm.goto(labels.write);
    }

    /// Writes the record's header at the head, which is in r2; what comes next goes to [`AT`].
    ///
    /// The kernel's verifier goes through what comes behind once for each way that leads there with
    /// something else in a register. So it is told a bound of [`AT`] that all ways have, and what
    /// it knows least of comes first, which the others are cases of. The bound holds: records end
    /// within their sub-buffer.
    fn header(&mut self) {
        let (which, end) = (self.which, self.layout.ring(LEVELS) as i32);
        let (out, asm) = (self.out, &mut self.asm);
        let (is_long, is_done) = (asm.label(), asm.label());
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
        match which {
            Which::This(id, _) if u32::from(id) < TAG_MEDIUM => {
                asm.alui(alu::OR, 1, id.into());
                asm.store_of(4, 5, 0, 1);
                asm.alui(alu::ADD, AT, COMPACT_BYTES as i32);
            }
            _ => {
                asm.alui(alu::OR, 1, TAG_MEDIUM as i32);
                asm.store_of(4, 5, 0, 1);
                which.store_id(asm, 2, 4);
                asm.alui(alu::ADD, AT, MEDIUM_BYTES as i32);
            }
        }
        asm.goto(is_done);
        asm.place(is_long);
        asm.storei_of(1, 5, 0, TAG_EXTENDED as i32);
        which.store_id(asm, 4, 1);
        asm.store_of(8, 5, 5, 1);
        asm.alui(alu::ADD, AT, EXTENDED_BYTES as i32);
        asm.place(is_done);
        asm.jumpi(jump::JGT, AT, end, out);
    }

    /// Has the kernel's verifier forget what it knows of [`AT`], but for its bound, behind what
    /// adds more or less to it: else it would go through the rest once for each choice, and of
    /// those for each of the next one.
    pub(super) fn renew(&mut self) {
        self.forget(AT, self.reach as i32, self.out);
    }

    /// The same of another number that is at most so large, which holds; or goes there.
    pub(super) fn forget(&mut self, register: Register, most: i32, otherwise: Label) {
        self.asm.store(CONTROL, control::PLACE, register);
        self.asm.load(register, CONTROL, control::PLACE);
        self.asm.jumpi(jump::JGT, register, most, otherwise);
    }

    /// Loads the number of a thread into r0. False: this is none.
    fn thread(&mut self, step: &Step) -> bool {
        let asm = &mut self.asm;
        match step {
            Step::Copy { offset, .. } => asm.load_of(4, 0, CONTEXT, short(*offset as usize)),
            Step::Argument(read) => {
                read.load(asm);
                asm.mov(0, 1);
            }
            _ => return false,
        }
        true
    }

    /// Adds a field at [`AT`], and moves that on.
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Copy { offset, size } => self.copy(offset, size),
            Step::Register { offset, size } => {
                let asm = &mut self.asm;
                asm.mov(5, CPU);
                asm.alu(alu::ADD, 5, AT);
                asm.load(1, CONTEXT, short(offset as usize));
                asm.store_of(size, 5, 0, 1);
                asm.alui(alu::ADD, AT, size as i32);
            }
            Step::Text { offset, size } => {
                self.asm.mov(3, CONTEXT);
                self.asm.alui(alu::ADD, 3, offset as i32);
                self.text(helper::PROBE_READ_KERNEL_STR, size);
            }
            Step::DynamicText(offset, location) => {
                self.locate(offset, location);
                self.dynamic_text();
            }
            Step::Dynamic(offset, location, size) => self.dynamic(offset, location, size),
            Step::Operation { offset, size } => {
                let asm = &mut self.asm;
                operation::load(asm, offset, size);
                asm.mov(5, CPU);
                asm.alu(alu::ADD, 5, AT);
                asm.store_of(4, 5, 0, 1);
                asm.alui(alu::ADD, AT, 4);
            }
            // All at once ([`arguments::write`]).
            Step::Argument(_) => {}
            Step::Unknown(size) => unknown(&mut self.asm, size),
            _ => self.user_step(step),
        }
    }

    /// Copies bytes of the tracepoint's record. The verifier has each load at a multiple of its
    /// size.
    fn copy(&mut self, offset: u32, size: u32) {
        let asm = &mut self.asm;
        asm.mov(5, CPU);
        asm.alu(alu::ADD, 5, AT);
        if size <= UNROLLED_BYTES_MAX {
            let mut done = 0;
            while done < size {
                let from = offset + done;
                let fits = |bytes: &u32| from.is_multiple_of(*bytes) && size - done >= *bytes;
                let bytes = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
                asm.load_of(bytes, 1, CONTEXT, short(from as usize));
                asm.store_of(bytes, 5, short(done as usize), 1);
                done += bytes;
            }
        } else {
            asm.mov(1, 5);
            asm.movi(2, size as i32);
            asm.mov(3, CONTEXT);
            asm.alui(alu::ADD, 3, offset as i32);
            // What cannot be read is zero then.
            asm.call_kernel(helper::PROBE_READ_KERNEL);
        }
        asm.alui(alu::ADD, AT, size as i32);
    }

    /// The address of what the word at `offset` speaks of, in r3; the word, in r4.
    fn locate(&mut self, offset: u32, location: Location) {
        let asm = &mut self.asm;
        asm.load_of(4, 4, CONTEXT, short(offset as usize));
        asm.mov(3, 4);
        asm.alui(alu::AND, 3, 0xffff);
        if location == Location::Relative {
            asm.alui(alu::ADD, 3, offset as i32 + 4);
        }
        asm.alu(alu::ADD, 3, CONTEXT);
    }

    /// Copies text from the address in r3, of at most so many bytes with its NUL.
    pub(super) fn text(&mut self, helper: i32, bytes_max: u32) {
        self.asm.movi(2, bytes_max as i32);
        self.text_of(helper, bytes_max);
    }

    /// The same, of at most as many as r2 says.
    pub(super) fn text_of(&mut self, helper: i32, bytes_max: u32) {
        let asm = &mut self.asm;
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.call_kernel(helper);
        text_read(asm, bytes_max, None);
        self.renew();
    }

    /// Copies text from the address in r3, of any length.
    fn dynamic_text(&mut self) {
        let (which, layout, asm) = (self.which, self.layout, &mut self.asm);
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        // One byte more than is kept tells whether there is more.
        asm.movi(2, VARIABLE_BYTES_MAX as i32 + 1);
        asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        text_read(asm, VARIABLE_BYTES_MAX, Some(&|asm| count_cut(asm, which, layout)));
        self.renew();
    }

    /// Copies elements of `size` bytes, behind their number.
    fn dynamic(&mut self, offset: u32, location: Location, size: u32) {
        self.locate(offset, location);
        let (which, layout, asm) = (self.which, self.layout, &mut self.asm);
        let is_short = asm.label();
        asm.alui(alu::RSH, 4, 16);
        asm.jumpi(jump::JLE, 4, VARIABLE_BYTES_MAX as i32, is_short);
        count_cut(asm, which, layout);
        asm.movi(4, VARIABLE_BYTES_MAX as i32);
        asm.place(is_short);
        // Whole elements.
        asm.mov(2, 4);
        asm.alui(alu::AND, 2, -(size as i32));
        asm.mov(4, 2);
        asm.alui(alu::RSH, 4, size.trailing_zeros() as i32);
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.store_of(4, 1, 0, 4);
        asm.alui(alu::ADD, 1, 4);
        asm.alui(alu::ADD, AT, 4);
        asm.alu(alu::ADD, AT, 2);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
        self.renew();
    }

    /// Commits what is between where the record began and [`AT`].
    fn commit(&mut self) {
        let asm = &mut self.asm;
        asm.load(1, STACK, stack::BEGIN);
        asm.alu(alu::SUB, AT, 1);
        asm.load(1, STACK, stack::HEAD);
        asm.alu(alu::ADD, AT, 1);
        asm.alui(alu::LSH, AT, 1);
        // The other parity, and its slot.
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

    /// Gives the level back, and ends the program.
    fn leave(&mut self) {
        self.asm.load(1, STACK, stack::DEPTH);
        self.asm.store(CPU, short(DEPTH), 1);
        pass(&mut self.asm, self.staged.guard);
    }

    /// Counts a record that did not fit.
    fn count_lost(&mut self) {
        let asm = &mut self.asm;
        asm.load(1, CONTROL, control::DISCARDED);
        asm.alui(alu::ADD, 1, 1);
        asm.store(CONTROL, control::DISCARDED, 1);
        let layout = self.layout;
        self.count_at(|event| layout.lost(event));
    }

    /// Counts an event whose filters ask for what is not in memory.
    pub(super) fn count_unread(&mut self) {
        let layout = self.layout;
        self.count_at(|event| layout.unread(event));
    }

    fn count_at(&mut self, place: impl Fn(usize) -> usize) {
        count_at(&mut self.asm, self.which, self.layout.events(), place);
    }
}

/// Counts a text or a sequence that was cut; r1 and r2 are used.
fn count_cut(asm: &mut Asm, which: Which, layout: &Layout) {
    count_at(asm, which, layout.events(), |event| layout.cut(event));
}

/// Counts in the CPU's part. Nobody else counts there: a program does not interrupt itself.
fn count_at(asm: &mut Asm, which: Which, events: usize, place: impl Fn(usize) -> usize) {
    which.find(asm, events, place);
    asm.load(1, 2, 0);
    asm.alui(alu::ADD, 1, 1);
    asm.store(2, 0, 1);
}
