//! Fields that programs compute from the arguments of raw tracepoints, without the record that the
//! kernel writes for a tracepoint program.
//!
//! Raw tracepoints are cheaper, and the kernel does not skip their programs while another program
//! runs on the CPU. The kernel computes fields from arguments in code, which the recorder cannot
//! read at run time. So a table (`arguments.txt`) has the expressions of events whose sources were
//! inspected, with names of kernel types. An event uses its arguments only if its fields are
//! exactly those of the table and all names and types exist in the running kernel; otherwise the
//! event uses its record. A test attaches both kinds of program and compares their output
//! (`tests/bpf_program`).

mod paths;

use trackway_jit::insn::{alu, jump};

use super::codegen::{AT, CONTEXT, CPU, STACK, finish_text, helper, stack};
use super::kernel_version::KernelVersion;
use super::plan::Step;
use crate::bpf_sys::asm::Asm;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Event, Field, Source};

use paths::PathResolver;

const TABLE: &str = include_str!("arguments.txt");
/// Most pointers on a path.
const HOPS_MAX: usize = 4;
/// Most member names in a path.
const NAMES_MAX: usize = 12;
/// Size of arrays with a thread's or a device's name (TASK_COMM_LEN, IFNAMSIZ).
const NAME_BYTES: u32 = 16;
/// The kernel's text for a null pointer (EVENT_NULL_STR).
pub(super) const NULL_TEXT: &[u8; 8] = b"(null)\0\0";

/// The source of a field in the arguments, and its representation in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentRead {
    root: Root,
    /// The offset of the next pointer in each pointee.
    hops: [i16; HOPS_MAX],
    hop_count: u8,
    /// The offset after the last pointer; `None`: the field is the root itself.
    at: Option<i16>,
    representation: Representation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Argument(u8),
    Current,
    Jiffies,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Representation {
    /// An integer of this size and sign, recorded in `into` bytes.
    Integer { bytes: u32, is_signed: bool, into: u32 },
    /// An integer of this size that an argument points to.
    PointedInteger(u32),
    /// Text in an array of this size.
    Array(u32),
    /// Text that a pointer leads to, of at most this size with its NUL.
    Text(u32),
    /// The state in `sched_switch`; `exit_state` is its offset in `task_struct`.
    State { preempt: u8, prev_state: u8, exit_state: i16 },
}

impl ArgumentRead {
    /// Returns the most bytes that the field adds to a record.
    pub(super) const fn bytes_max(&self) -> u32 {
        match self.representation {
            Representation::Integer { into: bytes, .. }
            | Representation::PointedInteger(bytes)
            | Representation::Array(bytes) => bytes,
            // One more byte than recorded shows whether the text is longer.
            Representation::Text(bytes) => bytes + 1,
            Representation::State { .. } => 8,
        }
    }

    /// Loads the integer that this value describes into r1.
    pub(super) fn load(&self, asm: &mut Asm) {
        let mut writer = ArgumentWriter { asm, base: None, count_cut: &|_| {} };
        match self.representation {
            Representation::Integer { bytes, is_signed, .. } => {
                writer.load_integer(self, bytes, is_signed)
            }
            Representation::State { preempt, prev_state, exit_state } => {
                load_thread_state(asm, self, preempt, prev_state, exit_state);
            }
            Representation::PointedInteger(bytes) => {
                writer.load_pointer(self);
                asm.mov(3, 1);
                asm.mov(1, STACK);
                asm.alui(alu::ADD, 1, stack::SCRATCH.into());
                asm.movi(2, bytes as i32);
                asm.call_kernel(helper::PROBE_READ_KERNEL);
                asm.load_sized(bytes, 1, STACK, stack::SCRATCH);
            }
            Representation::Array(_) | Representation::Text(_) => {}
        }
    }

    /// Loads the address of the text that this value describes into r3.
    pub(super) fn load_text(&self, asm: &mut Asm) {
        ArgumentWriter { asm, base: None, count_cut: &|_| {} }.load_text_address(self);
    }
}

/// Finds the sources of an event's fields, in order. `None`: the table does not have the event, or
/// this kernel's event differs from the table.
pub(super) fn find_reads(event: &Event, btf: &Btf) -> Option<Vec<ArgumentRead>> {
    let Source::RawTracepoint { arguments } = &event.source else { return None };
    let resolver = PathResolver { btf, arguments, release: KernelVersion::running()? };
    table_lines(event).find_map(|line| {
        let known: Vec<(&str, &str)> =
            line.map(|field| field.split_once('=').unwrap_or((field, field))).collect();
        let from = |field: &Field| {
            let (_, from) = known.iter().find(|(name, _)| *name == field.name)?;
            resolver.resolve_field(from, field)
        };
        let is_same = known.len() == event.fields.len();
        is_same
            .then(|| event.fields.iter().map(from).collect::<Option<Vec<ArgumentRead>>>())
            .flatten()
    })
}

/// Returns the BTF type of an event's raw tracepoint, for
/// [`super::attach::LoadedProgram::load_raw`].
pub fn raw_tracepoint_type(event: &Event, btf: &Btf) -> Option<u32> {
    Some(btf.find(Class::Typedef, &format!("btf_trace_{}", event.name))?.id)
}

/// Returns the table's lines for an event, each split into fields.
fn table_lines(event: &Event) -> impl Iterator<Item = impl Iterator<Item = &'static str>> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (subsystem, name) = words.next()?.split_once(':')?;
        (subsystem == event.subsystem && name == event.name).then_some(words)
    })
}

/// Writes fields at [`AT`] and advances [`AT`]. `count_cut` emits code that counts a cut text.
pub(super) fn write_arguments(asm: &mut Asm, steps: &[Step], count_cut: &dyn Fn(&mut Asm)) {
    let mut writer = ArgumentWriter { asm, base: None, count_cut };
    for step in steps {
        if let Step::Argument(read) = step {
            writer.write_field(read);
        }
    }
    writer.flush_offset();
}

struct ArgumentWriter<'a> {
    asm: &'a mut Asm,
    /// The offset of the next field from r5, which has the address at [`AT`]; `None`: r5 has
    /// another value.
    base: Option<i16>,
    /// Emits code that counts a cut text.
    count_cut: &'a dyn Fn(&mut Asm),
}

impl ArgumentWriter<'_> {
    fn write_field(&mut self, read: &ArgumentRead) {
        match read.representation {
            Representation::Integer { bytes, is_signed, into } => {
                self.load_integer(read, bytes, is_signed);
                self.store_field(into);
            }
            Representation::State { preempt, prev_state, exit_state } => {
                load_thread_state(self.asm, read, preempt, prev_state, exit_state);
                self.store_field(8);
            }
            Representation::Array(NAME_BYTES) => self.copy_name(read),
            Representation::Array(bytes) => {
                self.load_text_address(read);
                self.copy_array_text(bytes);
            }
            Representation::Text(bytes) => self.copy_text(read, bytes),
            Representation::PointedInteger(bytes) => {
                self.load_pointer(read);
                self.asm.mov(3, 1);
                self.flush_offset();
                self.load_destination();
                self.asm.movi(2, bytes as i32);
                // The helper function writes zeros if it cannot read.
                self.asm.call_kernel(helper::PROBE_READ_KERNEL);
                self.asm.alui(alu::ADD, AT, bytes as i32);
            }
        }
    }

    /// Stores r1 as a field of `bytes` bytes.
    fn store_field(&mut self, bytes: u32) {
        let at = self.field_base();
        self.asm.store_sized(bytes, 5, at, 1);
        self.base = Some(at + bytes as i16);
    }

    /// Returns the distance from r5 to the next field; loads r5 if necessary.
    fn field_base(&mut self) -> i16 {
        if let Some(at) = self.base {
            return at;
        }
        self.asm.mov(5, CPU);
        self.asm.alu(alu::ADD, 5, AT);
        self.base = Some(0);
        0
    }

    /// Advances [`AT`] past all written fields; r5 is free afterwards.
    fn flush_offset(&mut self) {
        if let Some(at @ 1..) = self.base.take() {
            self.asm.alui(alu::ADD, AT, at.into());
        }
    }

    /// Loads the address of the next field into r1, after [`Self::flush_offset`].
    fn load_destination(&mut self) {
        self.asm.mov(1, CPU);
        self.asm.alu(alu::ADD, 1, AT);
    }

    /// Loads the last pointer of a path, or the argument, into r1.
    fn load_pointer(&mut self, read: &ArgumentRead) {
        match read.root {
            Root::Argument(index) => self.asm.load(1, CONTEXT, 8 * i16::from(index)),
            Root::Current => {
                self.flush_offset();
                self.asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
                self.asm.mov(1, 0);
            }
            Root::Jiffies => {
                self.flush_offset();
                self.asm.call_kernel(helper::JIFFIES64);
                self.asm.mov(1, 0);
            }
        }
        for hop in &read.hops[..usize::from(read.hop_count)] {
            self.asm.load(1, 1, *hop);
        }
    }

    /// Loads an integer of `bytes` bytes, extended to 64 bits, into r1.
    fn load_integer(&mut self, read: &ArgumentRead, bytes: u32, is_signed: bool) {
        self.load_pointer(read);
        if let Some(at) = read.at {
            self.asm.load_sized(bytes, 1, 1, at);
        }
        // The kernel extends arguments with zeros, as loads do.
        if is_signed && bytes < 8 {
            let unused = 64 - 8 * bytes as i32;
            self.asm.alui(alu::LSH, 1, unused);
            self.asm.alui(alu::ARSH, 1, unused);
        }
    }

    /// Copies the text of a 16-byte array as two words, up to the first NUL. A kernel helper
    /// function, which tests each byte, takes several times as long.
    fn copy_name(&mut self, read: &ArgumentRead) {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = ONES << 7;
        let from = read.at.unwrap_or(0);
        self.load_pointer(read);
        let at = self.field_base();
        let asm = &mut *self.asm;
        let is_found = asm.new_label();
        asm.load_wide(4, ONES);
        asm.load(2, 1, from);
        asm.load(1, 1, from + 8);
        asm.store(5, at, 2);
        find_nul(asm, 2, HIGHS);
        asm.alui(alu::ADD, AT, at.into());
        asm.jumpi(jump::JNE, 3, 0, is_found);
        // The last byte becomes a NUL, even if the kernel changes the name meanwhile.
        asm.alui(alu::LSH, 1, 8);
        asm.alui(alu::RSH, 1, 8);
        asm.store(5, at + 8, 1);
        find_nul(asm, 1, HIGHS);
        asm.alui(alu::ADD, AT, 8);
        asm.place_label(is_found);
        // r2 gets one bit for each byte before the NUL; the multiplication adds them up in the
        // highest byte.
        asm.mov(2, 3);
        asm.alui(alu::SUB, 2, 1);
        asm.alui(alu::XOR, 3, -1);
        asm.alu(alu::AND, 2, 3);
        asm.alu(alu::AND, 2, 4);
        asm.alu(alu::MUL, 2, 4);
        asm.alui(alu::RSH, 2, 56);
        // The count is at most eight, which the verifier does not derive.
        asm.alui(alu::AND, 2, 15);
        asm.alu(alu::ADD, AT, 2);
        self.base = None;
    }

    /// Loads the address of text into r3.
    fn load_text_address(&mut self, read: &ArgumentRead) {
        self.load_pointer(read);
        match (read.representation, read.at) {
            (Representation::Array(_), Some(at)) => self.asm.alui(alu::ADD, 1, at.into()),
            (_, Some(at)) => self.asm.load(1, 1, at),
            (_, None) => {}
        }
        self.asm.mov(3, 1);
    }

    /// Copies text that a pointer leads to.
    fn copy_text(&mut self, read: &ArgumentRead, bytes: u32) {
        self.load_text_address(read);
        self.flush_offset();
        let (is_there, is_done) = (self.asm.new_label(), self.asm.new_label());
        self.asm.jumpi(jump::JNE, 3, 0, is_there);
        self.load_destination();
        self.asm.load_wide(2, u64::from_le_bytes(*NULL_TEXT));
        self.asm.store(1, 0, 2);
        self.asm.alui(alu::ADD, AT, 7);
        self.asm.goto(is_done);
        self.asm.place_label(is_there);
        self.flush_offset();
        self.load_destination();
        // One byte more than recorded shows whether the text is longer.
        self.asm.movi(2, bytes as i32 + 1);
        self.asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        finish_text(self.asm, bytes, Some(self.count_cut));
        self.asm.place_label(is_done);
    }

    /// Copies text from the address in r3, of at most `bytes` bytes with its NUL.
    fn copy_array_text(&mut self, bytes: u32) {
        self.flush_offset();
        self.load_destination();
        self.asm.movi(2, bytes as i32);
        self.asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        finish_text(self.asm, bytes, None);
    }
}

/// Sets in r3 the highest bit of each zero byte of `word`; only the lowest set bit is exact. r4 has
/// a one in each byte.
fn find_nul(asm: &mut Asm, word: u8, highs: u64) {
    asm.mov(3, word);
    asm.alu(alu::SUB, 3, 4);
    asm.mov(0, word);
    asm.alui(alu::XOR, 0, -1);
    asm.alu(alu::AND, 3, 0);
    asm.load_wide(0, highs);
    asm.alu(alu::AND, 3, 0);
}

/// Computes a thread's state into r1, like `__trace_sched_switch_state()` and
/// `__task_state_index()` (include/trace/events/sched.h, include/linux/sched.h).
fn load_thread_state(
    asm: &mut Asm,
    read: &ArgumentRead,
    preempt: u8,
    prev_state: u8,
    exit_state: i16,
) {
    const TASK_UNINTERRUPTIBLE: i32 = 2;
    const TASK_REPORT: i32 = 0x7f;
    const TASK_REPORT_IDLE: i32 = TASK_REPORT + 1;
    const TASK_REPORT_MAX: i32 = TASK_REPORT_IDLE << 1;
    const TASK_IDLE: i32 = TASK_UNINTERRUPTIBLE | 0x400;
    const TASK_RTLOCK_WAIT_OR_FROZEN: i32 = 0x1000 | 0x8000;
    let Root::Argument(prev) = read.root else { return };
    let (is_other, is_done) = (asm.new_label(), asm.new_label());
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
    asm.place_label(is_other);
    asm.load(1, CONTEXT, 8 * i16::from(prev));
    asm.load_sized(4, 1, 1, exit_state);
    asm.alu(alu::OR, 1, 2);
    asm.alui(alu::AND, 1, TASK_REPORT);
    // Keeps only the highest bit of the state.
    for shift in [1, 2, 4] {
        asm.mov(2, 1);
        asm.alui(alu::RSH, 2, shift);
        asm.alu(alu::OR, 1, 2);
    }
    asm.mov(2, 1);
    asm.alui(alu::RSH, 2, 1);
    asm.alu(alu::SUB, 1, 2);
    asm.place_label(is_done);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bpf_sys::asm::Register;
    use trackway_jit::insn::{LDDW, class, source};

    /// Bytes of memory for programs in these tests, from address 0 on.
    pub(in super::super) const MEMORY_BYTES: usize = 1024;
    /// Addresses of the context, the first thread and the record.
    const CONTEXT_AT: u64 = 0;
    const THREAD_AT: u64 = 256;
    const RECORD_AT: u64 = 512;

    /// Runs a program without calls; memory and registers have its results.
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

    fn build_read(representation: Representation, at: i16) -> ArgumentRead {
        ArgumentRead {
            root: Root::Argument(1),
            hops: [0; HOPS_MAX],
            hop_count: 0,
            at: Some(at),
            representation,
        }
    }

    /// RUN names of all lengths, with old bytes after them. EXPECT each name up to its NUL, and the
    /// next field directly after the NUL.
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
                    let number = Representation::Integer { bytes: 2, is_signed: true, into: 4 };
                    let steps = [build_read(Representation::Array(16), 8), build_read(number, 8)]
                        .map(Step::Argument);
                    write_arguments(&mut asm, &steps, &|_| {});
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

    /// RUN all states that threads can have, and some impossible states. EXPECT the states that the
    /// kernel's sources give.
    #[test]
    fn the_state_of_a_thread_is_the_kernels() {
        /// Follows include/linux/sched.h and include/trace/events/sched.h of Linux 6.14.
        fn kernel_thread_state(preempt: bool, state: u32, exit_state: u32) -> u64 {
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
        let representation = Representation::State { preempt: 0, prev_state: 3, exit_state: 8 };
        let read = ArgumentRead { at: None, ..build_read(representation, 0) };
        for preempt in [false, true] {
            for state in 0..0x2_0000_u32 {
                // The exit state has bits 0x10 and 0x20.
                let exit_state = state.wrapping_mul(0x9e37_79b9) >> 28 << 4 & 0x30;
                let mut memory = [0; MEMORY_BYTES];
                memory[0] = preempt.into();
                memory[8..16].copy_from_slice(&THREAD_AT.to_le_bytes());
                memory[24..28].copy_from_slice(&state.to_le_bytes());
                memory[264..268].copy_from_slice(&exit_state.to_le_bytes());
                let mut asm = Asm::default();
                write_arguments(&mut asm, &[Step::Argument(read)], &|_| {});
                run(asm, &mut memory);
                let recorded = u64::from_le_bytes(*memory[512..].first_chunk().expect("eight"));
                assert_eq!(
                    recorded,
                    kernel_thread_state(preempt, state, exit_state),
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
