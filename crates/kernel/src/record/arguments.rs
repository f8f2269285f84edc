//! Fields of events that are had from the arguments of raw tracepoints, without the record that
//! the kernel would make for a program of the tracepoint type.
//!
//! That is cheaper, and such a program is not passed over while another one runs on its CPU. But
//! what the kernel does with arguments to make fields of them is code, and nowhere to be read:
//! so a table (`arguments.txt`) says it of events whose sources have been looked at, with names
//! of the kernel's types. An event is recorded this way only if it has the fields that the table
//! says, all of them, and if names and types are there in the running kernel; else by its record.
//! A test attaches both kinds of program to what happens here, and compares (`tests/record`).

use trackway_jit::insn::{alu, jump};
use trackway_schema::Scalar;

use super::program::{AT, CONTEXT, CPU, STACK, helper, stack, text_read};
use super::release::Release;
use super::staging::{Step, VARIABLE_BYTES_MAX};
use crate::bpf_sys::asm::Asm;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Argument, ArgumentKind, Event, Field, Kind, Source};

const TABLE: &str = include_str!("arguments.txt");
/// Most pointers that are followed.
const HOPS_MAX: usize = 4;
/// Most names of members in a path.
const NAMES_MAX: usize = 12;
/// What arrays of a thread's and a device's name have (TASK_COMM_LEN, IFNAMSIZ).
const NAME_BYTES: u32 = 16;
/// What the kernel says of text that is not there (EVENT_NULL_STR).
pub(super) const NULL_TEXT: &[u8; 8] = b"(null)\0\0";

/// Where a field is, and how it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    root: Root,
    /// Where the next pointer is, in what one points to.
    hops: [i16; HOPS_MAX],
    hop_count: u8,
    /// Where it is behind the last pointer; `None`: it is the root itself.
    at: Option<i16>,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Argument(u8),
    Current,
    Jiffies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// An integer of this many bytes with this sign, recorded in so many.
    Integer { bytes: u32, is_signed: bool, into: u32 },
    /// An integer of so many bytes that an argument points to.
    Behind(u32),
    /// Text in an array of so many bytes.
    Array(u32),
    /// Text behind a pointer, of at most so many bytes with its NUL.
    Text(u32),
    /// `sched_switch`'s state: where `exit_state` is in a thread.
    State { preempt: u8, prev_state: u8, exit_state: i16 },
}

impl Read {
    /// Most bytes that it adds to a record.
    pub(super) const fn bytes_max(&self) -> u32 {
        match self.what {
            What::Integer { into: bytes, .. } | What::Behind(bytes) | What::Array(bytes) => bytes,
            // One more tells whether there is more.
            What::Text(bytes) => bytes + 1,
            What::State { .. } => 8,
        }
    }

    /// The integer that it is, in r1.
    pub(super) fn load(&self, asm: &mut Asm) {
        let mut writer = Writer { asm, base: None, count_cut: &|_| {} };
        match self.what {
            What::Integer { bytes, is_signed, .. } => writer.integer(self, bytes, is_signed),
            What::State { preempt, prev_state, exit_state } => {
                state(asm, self, preempt, prev_state, exit_state);
            }
            What::Behind(bytes) => {
                writer.pointer(self);
                asm.mov(3, 1);
                asm.mov(1, STACK);
                asm.alui(alu::ADD, 1, stack::SCRATCH.into());
                asm.movi(2, bytes as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.load_of(bytes, 1, STACK, stack::SCRATCH);
            }
            What::Array(_) | What::Text(_) => {}
        }
    }

    /// The address of the text that it is, in r3.
    pub(super) fn load_text(&self, asm: &mut Asm) {
        Writer { asm, base: None, count_cut: &|_| {} }.address(self);
    }
}

/// Where the fields of an event are, in their order. `None`: it is not known here, or this kernel's
/// event is another one.
pub(super) fn of(event: &Event, btf: &Btf) -> Option<Vec<Read>> {
    let Source::RawTracepoint { arguments } = &event.source else { return None };
    let finder = Finder { btf, arguments, release: Release::running()? };
    lines(event).find_map(|line| {
        let known: Vec<(&str, &str)> =
            line.map(|field| field.split_once('=').unwrap_or((field, field))).collect();
        let from = |field: &Field| {
            let (_, from) = known.iter().find(|(name, _)| *name == field.name)?;
            finder.read(from, field)
        };
        let is_same = known.len() == event.fields.len();
        is_same.then(|| event.fields.iter().map(from).collect::<Option<Vec<Read>>>()).flatten()
    })
}

/// The type of an event's raw tracepoint, for [`super::attach::Loaded::raw`].
pub fn raw_tracepoint(event: &Event, btf: &Btf) -> Option<u32> {
    Some(btf.find(Class::Typedef, &format!("btf_trace_{}", event.name))?.id)
}

/// What the table says of an event: fields, as it has them.
fn lines(event: &Event) -> impl Iterator<Item = impl Iterator<Item = &'static str>> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (subsystem, name) = words.next()?.split_once(':')?;
        (subsystem == event.subsystem && name == event.name).then_some(words)
    })
}

/// What is behind a path, by the kernel's types.
struct Finder<'a> {
    btf: &'a Btf,
    arguments: &'a [Argument],
    release: Release,
}

/// A place, as far as a path has been followed.
struct Place {
    read: Read,
    /// What is there.
    type_id: Option<u32>,
    /// Of an argument: what it is.
    kind: Option<ArgumentKind>,
}

impl Finder<'_> {
    fn read(&self, from: &str, field: &Field) -> Option<Read> {
        match from {
            "@state" => return self.state(field),
            "@jiffies" => return jiffies(field),
            _ => {}
        }
        if let Some(name) = from.strip_prefix('*') {
            return self.behind(name, field);
        }
        let (path, is_int) = match from.split_once(':') {
            Some((path, "int")) => (path, true),
            Some(_) => return None,
            None => (from, false),
        };
        let place = self.place(path)?;
        let what = match field.kind {
            Kind::Integer(into) => self.integer(&place, is_int, into, field)?,
            Kind::Text(bytes) => self.text(&place, bytes)?,
            Kind::DynamicText(_) => self.text(&place, VARIABLE_BYTES_MAX)?,
            _ => return None,
        };
        Some(Read { what, ..place.read })
    }

    fn argument(&self, name: &str) -> Option<(u8, &Argument)> {
        let is_it = |(_, argument): &(u8, &Argument)| argument.name.as_deref() == Some(name);
        // The kernel's verifier lets nobody have a function.
        let is_function = |kind| {
            let ArgumentKind::Pointer(target) = kind else { return false };
            self.btf.get(target).is_some_and(|of| of.class == Class::FuncProto)
        };
        (0_u8..).zip(self.arguments).find(is_it).filter(|(_, it)| !is_function(it.kind))
    }

    /// Follows a path. Its last part is not read.
    fn place(&self, path: &str) -> Option<Place> {
        let mut names = path.split('.');
        let root = names.next()?;
        let (root, kind) = match root {
            "current" => {
                let task = self.btf.find(Class::Struct, "task_struct")?.id;
                (Root::Current, ArgumentKind::Pointer(task))
            }
            name => {
                let (index, argument) = self.argument(name)?;
                (Root::Argument(index), argument.kind)
            }
        };
        let what = What::Behind(0);
        let read = Read { root, hops: [0; HOPS_MAX], hop_count: 0, at: None, what };
        let mut place = Place { read, type_id: None, kind: Some(kind) };
        for name in names.take(NAMES_MAX) {
            self.follow(&mut place, name)?;
        }
        Some(place)
    }

    fn follow(&self, place: &mut Place, name: &str) -> Option<()> {
        let Place { read, type_id, kind } = place;
        let (structure, base) = match (*kind, *type_id) {
            (Some(ArgumentKind::Pointer(target)), _) => (target, 0),
            (Some(_), _) | (None, None) => return None,
            (None, Some(id)) => {
                let of = self.btf.resolve(id)?;
                let at = read.at?;
                if of.class == Class::Pointer {
                    *read.hops.get_mut(usize::from(read.hop_count))? = at;
                    read.hop_count += 1;
                    (self.target(of.size_or_type)?, 0)
                } else {
                    (of.id, u32::try_from(at).ok()?)
                }
            }
        };
        let member = self.btf.place(structure, name).filter(|member| member.bits == 0)?;
        let at = base.checked_add(member.bit_offset / 8)?;
        read.at = Some(i16::try_from(at).ok()?);
        *type_id = Some(member.type_id);
        *kind = None;
        Some(())
    }

    /// What a pointer points to, if programs may read it there.
    fn target(&self, id: u32) -> Option<u32> {
        let target = self.btf.get(id)?;
        let is_elsewhere =
            target.class == Class::TypeTag && matches!(target.name, "user" | "percpu");
        (!is_elsewhere).then(|| self.btf.resolve(id).map(|of| of.id))?
    }

    fn integer(&self, place: &Place, is_int: bool, into: Scalar, field: &Field) -> Option<What> {
        let from = match (place.kind, place.type_id) {
            (Some(ArgumentKind::Integer(scalar)), _) => scalar,
            (Some(ArgumentKind::Pointer(_)), _) => Scalar::U64,
            (None, Some(id)) => self.btf.scalar(id)?,
            _ => return None,
        };
        // What is cut off is cut off at the low end, which is in front.
        let from = match (is_int, from.size_bytes()) {
            (false, _) => from,
            (true, 4 | 8) => Scalar::I32,
            (true, _) => return None,
        };
        // To make a bool of something else is not to cut it off.
        let fits = into != Scalar::Bool || from == Scalar::Bool;
        let (bytes, into) = (from.size_bytes() as u32, into.size_bytes() as u32);
        let is_whole = fits && (into == field.size || field.size == 0);
        is_whole.then_some(What::Integer { bytes, is_signed: from.is_signed(), into })
    }

    fn text(&self, place: &Place, bytes_max: u32) -> Option<What> {
        let is_character = |id: u32| self.btf.scalar(id).is_some_and(|of| of.size_bytes() == 1);
        let id = match (place.kind, place.type_id) {
            (Some(ArgumentKind::Pointer(target)), _) => {
                return is_character(target).then_some(What::Text(bytes_max));
            }
            (None, Some(id)) => id,
            _ => return None,
        };
        let of = self.btf.resolve(id)?;
        if of.class == Class::Pointer {
            return is_character(self.target(of.size_or_type)?).then_some(What::Text(bytes_max));
        }
        let (element, bytes) = self.btf.elements(&of)?;
        (is_character(element) && (1..=bytes_max).contains(&bytes)).then_some(What::Array(bytes))
    }

    /// An integer behind a pointer, which has no type that the kernel's verifier follows.
    fn behind(&self, name: &str, field: &Field) -> Option<Read> {
        let (index, argument) = self.argument(name)?;
        let (ArgumentKind::Pointer(target), Kind::Integer(into)) = (argument.kind, field.kind)
        else {
            return None;
        };
        let from = self.btf.scalar(target)?;
        let bytes = from.size_bytes() as u32;
        let is_same = from == into && bytes == field.size;
        let (root, what) = (Root::Argument(index), What::Behind(bytes));
        is_same.then_some(Read { root, hops: [0; HOPS_MAX], hop_count: 0, at: None, what })
    }

    fn state(&self, field: &Field) -> Option<Read> {
        let place = self.place("prev.exit_state")?;
        let is_int = |id| self.btf.scalar(id).is_some_and(|of| of.size_bytes() == 4);
        let exit_state = place.read.at.filter(|_| place.type_id.is_some_and(is_int))?;
        let (preempt, of_preempt) = self.argument("preempt")?;
        let (prev_state, of_state) = self.argument("prev_state")?;
        let is_known = of_preempt.kind == ArgumentKind::Integer(Scalar::Bool)
            && of_state.kind == ArgumentKind::Integer(Scalar::U32)
            && field.kind == Kind::Integer(Scalar::I64)
            && field.size == 8
            && self.release.has_state();
        let what = What::State { preempt, prev_state, exit_state };
        is_known.then_some(Read { what, ..place.read })
    }
}

fn jiffies(field: &Field) -> Option<Read> {
    let what = What::Integer { bytes: 8, is_signed: false, into: 8 };
    let is_long = field.kind == Kind::Integer(Scalar::U64);
    let root = Root::Jiffies;
    is_long.then_some(Read { root, hops: [0; HOPS_MAX], hop_count: 0, at: None, what })
}

/// Adds fields at [`AT`], and moves that on. Where text is cut, `count_cut` counts that.
pub(super) fn write(asm: &mut Asm, steps: &[Step], count_cut: &dyn Fn(&mut Asm)) {
    let mut writer = Writer { asm, base: None, count_cut };
    for step in steps {
        if let Step::Argument(read) = step {
            writer.add(read);
        }
    }
    writer.end();
}

struct Writer<'a> {
    asm: &'a mut Asm,
    /// Where the next field is from r5, which is at [`AT`]; `None`: r5 has something else.
    base: Option<i16>,
    /// Adds what counts that text was cut.
    count_cut: &'a dyn Fn(&mut Asm),
}

impl Writer<'_> {
    fn add(&mut self, read: &Read) {
        match read.what {
            What::Integer { bytes, is_signed, into } => {
                self.integer(read, bytes, is_signed);
                self.store(into);
            }
            What::State { preempt, prev_state, exit_state } => {
                state(self.asm, read, preempt, prev_state, exit_state);
                self.store(8);
            }
            What::Array(NAME_BYTES) => self.name(read),
            What::Array(bytes) => {
                self.address(read);
                self.copy_text(bytes);
            }
            What::Text(bytes) => self.text(read, bytes),
            What::Behind(bytes) => {
                self.pointer(read);
                self.asm.mov(3, 1);
                self.end();
                self.destination();
                self.asm.movi(2, bytes as i32);
                // What cannot be read is zero then.
                self.asm.call_kernel(helper::PROBE_READ_KERNEL);
                self.asm.alui(alu::ADD, AT, bytes as i32);
            }
        }
    }

    /// What is in r1 is a field of so many bytes.
    fn store(&mut self, bytes: u32) {
        let at = self.base();
        self.asm.store_of(bytes, 5, at, 1);
        self.base = Some(at + bytes as i16);
    }

    /// Where the next field is, from r5.
    fn base(&mut self) -> i16 {
        if let Some(at) = self.base {
            return at;
        }
        self.asm.mov(5, CPU);
        self.asm.alu(alu::ADD, 5, AT);
        self.base = Some(0);
        0
    }

    /// [`AT`] is behind all that was added; r5 is free.
    fn end(&mut self) {
        if let Some(at @ 1..) = self.base.take() {
            self.asm.alui(alu::ADD, AT, at.into());
        }
    }

    /// The address of the next field, in r1, behind [`Self::end`].
    fn destination(&mut self) {
        self.asm.mov(1, CPU);
        self.asm.alu(alu::ADD, 1, AT);
    }

    /// The last pointer, or the argument, in r1.
    fn pointer(&mut self, read: &Read) {
        match read.root {
            Root::Argument(index) => self.asm.load(1, CONTEXT, 8 * i16::from(index)),
            Root::Current => {
                self.end();
                self.asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
                self.asm.mov(1, 0);
            }
            Root::Jiffies => {
                self.end();
                self.asm.call_kernel(helper::JIFFIES64);
                self.asm.mov(1, 0);
            }
        }
        for hop in &read.hops[..usize::from(read.hop_count)] {
            self.asm.load(1, 1, *hop);
        }
    }

    /// An integer of so many bytes, in all of r1.
    fn integer(&mut self, read: &Read, bytes: u32, is_signed: bool) {
        self.pointer(read);
        if let Some(at) = read.at {
            self.asm.load_of(bytes, 1, 1, at);
        }
        // The kernel extends arguments with zeros, as loads do.
        if is_signed && bytes < 8 {
            let unused = 64 - 8 * bytes as i32;
            self.asm.alui(alu::LSH, 1, unused);
            self.asm.alui(alu::ARSH, 1, unused);
        }
    }

    /// Text in an array of 16 bytes: two words, of which as many bytes are kept as there are up to
    /// the first NUL. (A helper of the kernel's, which looks at each byte, takes several times as
    /// long.)
    fn name(&mut self, read: &Read) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = ONES << 7;
        let from = read.at.unwrap_or(0);
        self.pointer(read);
        let at = self.base();
        let asm = &mut *self.asm;
        let is_found = asm.label();
        asm.wide(4, ONES);
        asm.load(2, 1, from);
        asm.load(1, 1, from + 8);
        asm.store(5, at, 2);
        nul(asm, 2, HIGHS);
        asm.alui(alu::ADD, AT, at.into());
        asm.jumpi(jump::JNE, 3, 0, is_found);
        // The last byte is a NUL, whatever somebody writes there meanwhile.
        asm.alui(alu::LSH, 1, 8);
        asm.alui(alu::RSH, 1, 8);
        asm.store(5, at + 8, 1);
        nul(asm, 1, HIGHS);
        asm.alui(alu::ADD, AT, 8);
        asm.place(is_found);
        // One bit in each byte up to the NUL, added up in the highest byte.
        asm.mov(2, 3);
        asm.alui(alu::SUB, 2, 1);
        asm.alui(alu::XOR, 3, -1);
        asm.alu(alu::AND, 2, 3);
        asm.alu(alu::AND, 2, 4);
        asm.alu(alu::MUL, 2, 4);
        asm.alui(alu::RSH, 2, 56);
        // (It is at most eight, which the verifier does not know.)
        asm.alui(alu::AND, 2, 15);
        asm.alu(alu::ADD, AT, 2);
        self.base = None;
    }

    /// The address of text, in r3.
    fn address(&mut self, read: &Read) {
        self.pointer(read);
        match (read.what, read.at) {
            (What::Array(_), Some(at)) => self.asm.alui(alu::ADD, 1, at.into()),
            (_, Some(at)) => self.asm.load(1, 1, at),
            (_, None) => {}
        }
        self.asm.mov(3, 1);
    }

    /// Text behind a pointer.
    fn text(&mut self, read: &Read, bytes: u32) {
        self.address(read);
        self.end();
        let (is_there, is_done) = (self.asm.label(), self.asm.label());
        self.asm.jumpi(jump::JNE, 3, 0, is_there);
        self.destination();
        self.asm.wide(2, u64::from_le_bytes(*NULL_TEXT));
        self.asm.store(1, 0, 2);
        self.asm.alui(alu::ADD, AT, 7);
        self.asm.goto(is_done);
        self.asm.place(is_there);
        self.end();
        self.destination();
        // One byte more than is kept tells whether there is more.
        self.asm.movi(2, bytes as i32 + 1);
        self.asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        text_read(self.asm, bytes, Some(self.count_cut));
        self.asm.place(is_done);
    }

    /// Copies text from the address in r3, of at most so many bytes with its NUL.
    fn copy_text(&mut self, bytes: u32) {
        self.end();
        self.destination();
        self.asm.movi(2, bytes as i32);
        self.asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        text_read(self.asm, bytes, None);
    }
}

/// The highest bit of each byte that is zero in `word`, the lowest one right for certain, in r3.
/// r4 has a one in each byte.
fn nul(asm: &mut Asm, word: u8, highs: u64) {
    asm.mov(3, word);
    asm.alu(alu::SUB, 3, 4);
    asm.mov(0, word);
    asm.alui(alu::XOR, 0, -1);
    asm.alu(alu::AND, 3, 0);
    asm.wide(0, highs);
    asm.alu(alu::AND, 3, 0);
}

/// What `__trace_sched_switch_state()` and `__task_state_index()` make of a thread's state, in r1
/// (include/trace/events/sched.h, include/linux/sched.h).
fn state(asm: &mut Asm, read: &Read, preempt: u8, prev_state: u8, exit_state: i16) {
    const TASK_UNINTERRUPTIBLE: i32 = 2;
    const TASK_REPORT: i32 = 0x7f;
    const TASK_REPORT_IDLE: i32 = TASK_REPORT + 1;
    const TASK_REPORT_MAX: i32 = TASK_REPORT_IDLE << 1;
    const TASK_IDLE: i32 = TASK_UNINTERRUPTIBLE | 0x400;
    const TASK_RTLOCK_WAIT_OR_FROZEN: i32 = 0x1000 | 0x8000;
    let Root::Argument(prev) = read.root else { return };
    let (is_other, is_done) = (asm.label(), asm.label());
    asm.load(2, CONTEXT, 8 * i16::from(preempt));
    asm.movi(1, TASK_REPORT_MAX);
    asm.jumpi(jump::JNE, 2, 0, is_done);
    asm.load(2, CONTEXT, 8 * i16::from(prev_state));
    asm.movi(1, TASK_UNINTERRUPTIBLE);
    asm.jumpi(jump::JSET, 2, TASK_RTLOCK_WAIT_OR_FROZEN, is_done);
    asm.mov(3, 2);
    asm.alui(alu::AND, 3, TASK_IDLE);
    asm.jumpi(jump::JNE, 3, TASK_IDLE, is_other);
    asm.movi(1, TASK_REPORT_IDLE);
    asm.goto(is_done);
    asm.place(is_other);
    asm.load(1, CONTEXT, 8 * i16::from(prev));
    asm.load_of(4, 1, 1, exit_state);
    asm.alu(alu::OR, 1, 2);
    asm.alui(alu::AND, 1, TASK_REPORT);
    // The highest bit of it alone.
    for shift in [1, 2, 4] {
        asm.mov(2, 1);
        asm.alui(alu::RSH, 2, shift);
        asm.alu(alu::OR, 1, 2);
    }
    asm.mov(2, 1);
    asm.alui(alu::RSH, 2, 1);
    asm.alu(alu::SUB, 1, 2);
    asm.place(is_done);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bpf_sys::asm::Register;
    use trackway_jit::insn::{LDDW, class, source};

    /// Bytes that programs here see, from address 0 on.
    pub(in super::super) const MEMORY_BYTES: usize = 1024;
    /// Where the context is, and the first thread.
    const CONTEXT_AT: u64 = 0;
    const THREAD_AT: u64 = 256;
    const RECORD_AT: u64 = 512;

    /// Runs a program that calls nothing; memory and registers as it leaves them.
    pub(in super::super) fn run(asm: Asm, memory: &mut [u8; MEMORY_BYTES]) -> [u64; 11] {
        let bytes = asm.bytes().expect("all labels have places");
        let mut registers = [0_u64; 11];
        registers[usize::from(CONTEXT)] = CONTEXT_AT;
        registers[usize::from(CPU)] = RECORD_AT;
        let (insns, _) = bytes.as_chunks::<8>();
        let mut next = 0;
        for _ in 0..10_000 {
            let Some(insn) = insns.get(next).map(|bytes| trackway_jit::insn::Insn::decode(*bytes))
            else {
                return registers;
            };
            next += 1;
            let immediate = i64::from(insn.immediate).cast_unsigned();
            let other =
                if insn.op & source::X != 0 { registers[usize::from(insn.src)] } else { immediate };
            let size = [4, 2, 1, 8][usize::from(insn.op >> 3 & 3)];
            let to = usize::from(insn.dst);
            let at = |base: Register| {
                registers[usize::from(base)].wrapping_add_signed(insn.offset.into()) as usize
            };
            match insn.op & 7 {
                _ if insn.op == LDDW => {
                    let high = trackway_jit::insn::Insn::decode(insns[next]).immediate as u32;
                    registers[to] = u64::from(high) << 32 | u64::from(insn.immediate as u32);
                    next += 1;
                }
                class::LDX => {
                    let mut word = [0; 8];
                    let from = at(insn.src);
                    word[..size].copy_from_slice(&memory[from..from + size]);
                    registers[to] = u64::from_le_bytes(word);
                }
                class::STX => {
                    let word = registers[usize::from(insn.src)].to_le_bytes();
                    let into = at(insn.dst);
                    memory[into..into + size].copy_from_slice(&word[..size]);
                }
                class::ALU64 => {
                    let one = &mut registers[to];
                    *one = match insn.op & 0xf0 {
                        alu::ADD => one.wrapping_add(other),
                        alu::SUB => one.wrapping_sub(other),
                        alu::MUL => one.wrapping_mul(other),
                        alu::OR => *one | other,
                        alu::AND => *one & other,
                        alu::XOR => *one ^ other,
                        alu::LSH => *one << other,
                        alu::RSH => *one >> other,
                        alu::ARSH => (one.cast_signed() >> other).cast_unsigned(),
                        alu::MOV => other,
                        operation => panic!("{operation:#x}"),
                    };
                }
                class::JMP => {
                    let one = registers[to];
                    let is_so = match insn.op & 0xf0 {
                        jump::JA => true,
                        jump::JNE => one != other,
                        jump::JEQ => one == other,
                        jump::JSET => one & other != 0,
                        operation => panic!("{operation:#x}"),
                    };
                    next = if is_so { next.wrapping_add_signed(insn.offset.into()) } else { next };
                }
                class => panic!("{class}"),
            }
        }
        panic!("it does not end");
    }

    fn read(what: What, at: i16) -> Read {
        Read { root: Root::Argument(1), hops: [0; HOPS_MAX], hop_count: 0, at: Some(at), what }
    }

    /// RUN names of all lengths, with leftovers behind them. EXPECT the name up to its NUL, and
    /// what comes next right behind it.
    #[test]
    fn a_name_is_recorded_up_to_its_nul() {
        for length in 0..=16 {
            for rest in [0_u8, 1, 0x7f, 0x80, 0x81, 0xff] {
                for byte in [1_u8, b'a', 0x7f, 0x80, 0x81, 0xff] {
                    let mut memory = [0xee; MEMORY_BYTES];
                    memory[8..16].copy_from_slice(&THREAD_AT.to_le_bytes());
                    let mut name = [rest; 16];
                    name[..length].fill(byte);
                    name.iter_mut().skip(length).take(1).for_each(|byte| *byte = 0);
                    memory[264..280].copy_from_slice(&name);
                    let mut asm = Asm::default();
                    let number = What::Integer { bytes: 2, is_signed: true, into: 4 };
                    let steps = [read(What::Array(16), 8), read(number, 8)].map(Step::Argument);
                    write(&mut asm, &steps, &|_| {});
                    let registers = run(asm, &mut memory);
                    let mut expected = name[..length.min(15)].to_vec();
                    expected.push(0);
                    let number = i16::from_le_bytes([name[0], name[1]]);
                    expected.extend(i32::from(number).to_le_bytes());
                    let end = registers[usize::from(AT)] as usize;
                    assert_eq!(&memory[512..512 + end], &expected[..], "{name:?}");
                }
            }
        }
    }

    /// RUN all states that threads may be in, and some that they are not in. EXPECT what the
    /// kernel's sources say.
    #[test]
    fn the_state_of_a_thread_is_the_kernels() {
        /// As in Linux 6.14: include/linux/sched.h, include/trace/events/sched.h.
        fn kernels(preempt: bool, state: u32, exit_state: u32) -> u64 {
            if preempt {
                return 0x100;
            }
            let mut index = (state | exit_state) & 0x7f;
            if state & 0x402 == 0x402 {
                index = 0x80;
            }
            if state & 0x1000 != 0 || state & 0x8000 != 0 {
                index = 2;
            }
            let index = u32::BITS - index.leading_zeros();
            if index == 0 { 0 } else { 1 << (index - 1) }
        }
        let what = What::State { preempt: 0, prev_state: 3, exit_state: 8 };
        let read = Read { at: None, ..read(what, 0) };
        for preempt in [false, true] {
            for state in 0..0x2_0000_u32 {
                // What a thread leaves is in bits 0x10 and 0x20.
                let exit_state = state.wrapping_mul(0x9e37_79b9) >> 28 << 4 & 0x30;
                let mut memory = [0; MEMORY_BYTES];
                memory[0] = preempt.into();
                memory[8..16].copy_from_slice(&THREAD_AT.to_le_bytes());
                memory[24..28].copy_from_slice(&state.to_le_bytes());
                memory[264..268].copy_from_slice(&exit_state.to_le_bytes());
                let mut asm = Asm::default();
                write(&mut asm, &[Step::Argument(read)], &|_| {});
                run(asm, &mut memory);
                let recorded = u64::from_le_bytes(*memory[512..].first_chunk().expect("eight"));
                assert_eq!(
                    recorded,
                    kernels(preempt, state, exit_state),
                    "{state:#x} {exit_state:#x}"
                );
            }
        }
    }

    #[test]
    fn every_line_of_the_table_names_an_event_and_each_field_once() {
        let mut count = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            assert!(
                name.split_once(':').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()),
                "{line}"
            );
            let fields: Vec<_> = words.map(|word| word.split('=').next()).collect();
            assert!(!fields.is_empty(), "{line}");
            for (at, field) in fields.iter().enumerate() {
                assert!(field.is_some_and(|field| !field.is_empty()), "{line}");
                assert!(!fields[..at].contains(field), "{line}");
            }
            count += 1;
        }
        assert!(count > 300, "{count}");
    }
}
