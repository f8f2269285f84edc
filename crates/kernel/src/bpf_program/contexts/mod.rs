//! Contexts of kernel events: values that precede the event's fields in a record.
//!
//! Every record has `tid`; the user selects the other contexts. Contexts describe the thread that
//! runs when the event occurs; in an interrupt, the interrupted thread. Names and types are
//! LTTng's. Filters can read all contexts, recorded or not ([`FilterContexts`]): from the same
//! table, with the same instructions.
//!
//! A program reads contexts from kernel structures, at offsets from the kernel's types. A value at
//! an invalid address reads as zero. Numbers in `task_struct` itself are plain loads, which the
//! verifier checks by type. A helper function follows pointers: for each pointer that a program
//! loads itself, the verifier of Linux 6.18 searches a name among all types, several times. A
//! program with all contexts would take 0.1 s to load, and a recording may have two thousand
//! programs.

mod table;

use std::cell::OnceCell;

use trackway_jit::insn::{alu, jump};
use trackway_schema::Field;

use super::codegen::{AT, CPU, STACK, finish_text, helper, insn_offset, stack};
use super::plan::DataSource;
use super::preemption::{
    CounterPath, INTERRUPT_FLAG_BIT, Interrupts, Preemption, TRACEPOINT_PREEMPTION_COUNT,
};
use crate::bpf_sys::asm::{Asm, Register};
use crate::catalogue::btf::{Btf, Class};

pub use table::{ALL, Context};
use table::{Hop, Source, State, TASK};

/// Size of a thread's name, with its NUL (TASK_COMM_LEN).
const NAME_BYTES: u32 = 16;
/// A mask of pid namespace levels (MAX_PID_NS_LEVEL, 32, less one).
const LEVEL_MASK: i32 = 31;
/// Size of `struct upid`: an id and its namespace.
const NUMBER_BYTES: i32 = 16;

/// The increment of the migration counter by programs on tracepoints: the kernel keeps these
/// programs on their CPU (since Linux 5.7: BPF_PROG_RUN_ARRAY). For other programs, a probe
/// measures the increment: [`super::preemption`].
const TRACEPOINT_MIGRATION_COUNT: i32 = 1;

/// A context that this kernel does not reveal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingContext {
    /// The context's name.
    pub name: &'static str,
    /// The reason why the context is missing.
    pub why: &'static str,
}

impl std::fmt::Display for MissingContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the context '{}' is not available in this kernel: {}", self.name, self.why)
    }
}

impl std::error::Error for MissingContext {}

/// Contexts with their locations in this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    all: Vec<(Context, ContextLocation)>,
}

/// The location of a context in this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContextLocation {
    /// The process or thread id, at this shift in the result of bpf_get_current_pid_tgid().
    PidTgid(i32),
    /// The user or group id, at this shift in the result of bpf_get_current_uid_gid().
    UidGid(i32),
    Cpu,
    /// The end of a path: pointers at these offsets, then `bytes` bytes at `offset`, minus a
    /// constant.
    Path {
        pointers: Vec<i16>,
        offset: i16,
        bytes: u32,
        less: i32,
    },
    /// A path to a `struct pid`, with the offsets of its level and ids; for a namespace, also the
    /// offset of the namespace's number.
    OwnNumber {
        pointers: Vec<i16>,
        level: i16,
        numbers: i32,
        inum: Option<i32>,
    },
    /// The offset of the thread's name.
    Name(i32),
    /// The offset of the migration counter.
    MigrationCount(i16),
    /// The offset of a 32-bit word, and a bit in the word.
    Bit(i16, u8),
    /// The path to the CPU's preemption counter.
    PreemptionCount(CounterPath),
    /// The functions that report whether interrupts are enabled.
    InterruptFlag(Interrupts),
}

impl Default for Contexts {
    fn default() -> Self {
        let (tid, place) = (ALL[0], ContextLocation::PidTgid(0));
        Self { all: vec![(tid, place)] }
    }
}

/// Returns the offset of a structure's member, in bytes.
pub(super) fn member_offset(btf: &Btf, structure: &str, member: &str) -> Option<i16> {
    let place = btf.find_member(btf.find(Class::Struct, structure)?.id, member)?;
    let is_whole = place.bits == 0 && place.bit_offset.is_multiple_of(8);
    i16::try_from(place.bit_offset / 8).ok().filter(|_| is_whole)
}

fn pointer_offsets(btf: &Btf, hops: &[Hop]) -> Option<Vec<i16>> {
    hops.iter().map(|(structure, member)| member_offset(btf, structure, member)).collect()
}

impl ContextLocation {
    /// Returns the location of a part of the preemption state.
    fn for_state(state: State, found: &Preemption) -> Result<Self, &'static str> {
        match state {
            State::Preemptible => found.count.clone().map(Self::PreemptionCount),
            State::Interruptible => found.interrupts.map(Self::InterruptFlag),
            State::NeedReschedule => found.resched_bit.map(|(flags, bit)| Self::Bit(flags, bit)),
            State::Migratable => found.migration_count.map(Self::MigrationCount),
        }
    }

    fn for_source(source: Source, btf: Option<&Btf>) -> Option<Self> {
        match source {
            Source::PidTgid { shift } => Some(Self::PidTgid(shift)),
            Source::UidGid { shift } => Some(Self::UidGid(shift)),
            Source::Cpu => Some(Self::Cpu),
            Source::Path { hops, scalar, less } => {
                let mut pointers = pointer_offsets(btf?, hops)?;
                let (offset, bytes) = (pointers.pop()?, scalar.size_bytes() as u32);
                Some(Self::Path { pointers, offset, bytes, less })
            }
            Source::OwnNumber(hops) | Source::OwnNamespace(hops) => {
                let btf = btf?;
                let at = |structure: &str, member: &str| member_offset(btf, structure, member);
                let is_namespace = matches!(source, Source::OwnNamespace(_));
                let inum = at("pid_namespace", "ns.inum").map(i32::from);
                let member = at("upid", if is_namespace { "ns" } else { "nr" })?;
                let upid = btf.find(Class::Struct, "upid")?;
                (upid.size_or_type == NUMBER_BYTES.cast_unsigned()).then_some(())?;
                Some(Self::OwnNumber {
                    pointers: pointer_offsets(btf, hops)?,
                    level: at("pid", "level")?,
                    numbers: i32::from(at("pid", "numbers")?) + i32::from(member),
                    inum: if is_namespace { Some(inum?) } else { None },
                })
            }
            Source::Name => member_offset(btf?, TASK, "comm").map(|at| Self::Name(at.into())),
            Source::State(_) => None,
        }
    }
}

/// Finds the locations of contexts in this kernel.
struct ContextResolver<'btf> {
    btf: Option<&'btf Btf>,
    /// The cached preemption state, because probing takes some milliseconds.
    probed: OnceCell<Preemption>,
}

impl<'btf> ContextResolver<'btf> {
    fn new(btf: Option<&'btf Btf>) -> Self {
        Self { btf, probed: OnceCell::new() }
    }

    fn resolve(&self, context: &Context) -> Result<ContextLocation, &'static str> {
        match (context.source, self.btf) {
            (Source::State(state), Some(btf)) => ContextLocation::for_state(
                state,
                self.probed.get_or_init(|| Preemption::probe(btf)),
            ),
            (source, btf) => {
                ContextLocation::for_source(source, btf).ok_or("its types do not give its location")
            }
        }
    }
}

/// The contexts that filters may read, each with its location or the reason why it has none.
#[derive(Debug)]
pub struct FilterContexts {
    /// The contexts with their locations. `None` is the location of a thread's name, which a helper
    /// function returns.
    all: Vec<(Context, Result<Option<ContextLocation>, &'static str>)>,
}

impl FilterContexts {
    /// Finds all contexts. Probes the preemption state only if a filter may read a part of it.
    pub fn find(btf: Option<&Btf>, may_be_read: impl Fn(&str) -> bool) -> Self {
        let resolver = ContextResolver::new(btf);
        let needs_probe = |context: &Context| matches!(context.source, Source::State(_));
        let probes = Context::filterable().any(|of| needs_probe(&of) && may_be_read(of.name));
        let is_included = |context: &Context| probes || !needs_probe(context);
        let place = |context: Context| match context.source {
            Source::Name => (context, Ok(None)),
            _ => (context, resolver.resolve(&context).map(Some)),
        };
        Self { all: Context::filterable().filter(is_included).map(place).collect() }
    }

    /// Returns the reason why the kernel does not reveal the context with this name.
    pub fn missing(&self, name: &str) -> Option<MissingContext> {
        let (context, place) = self.all.iter().find(|(context, _)| context.name == name)?;
        place.as_ref().err().map(|&why| MissingContext { name: context.name, why })
    }

    /// Returns the context with this name, with its location.
    pub(super) fn named(&self, name: &str) -> Option<(Context, Option<&ContextLocation>)> {
        let (context, place) = self.all.iter().find(|(context, _)| context.name == name)?;
        place.as_ref().ok().map(|place| (*context, place.as_ref()))
    }
}

impl Contexts {
    /// Finds `tid` and the `wanted` contexts, each once. Contexts of variable size come last.
    ///
    /// # Errors
    ///
    /// If the kernel's types do not give the location of a context.
    pub fn new(wanted: &[Context], btf: Option<&Btf>) -> Result<Self, MissingContext> {
        let mut contexts = Self::default();
        let resolver = ContextResolver::new(btf);
        for is_text in [false, true] {
            for context in wanted.iter().filter(|of| (of.source == Source::Name) == is_text) {
                if contexts.all.iter().any(|(known, _)| known == context) {
                    continue;
                }
                let place = resolver.resolve(context);
                let place = place.map_err(|why| MissingContext { name: context.name, why })?;
                contexts.all.push((*context, place));
            }
        }
        Ok(contexts)
    }

    /// Returns the contexts' descriptions, in the order of the record.
    pub fn fields(&self) -> Vec<Field> {
        let field =
            |(of, _): &(Context, ContextLocation)| Field { name: of.name.into(), kind: of.kind() };
        self.all.iter().map(field).collect()
    }

    /// Returns the most bytes of all contexts.
    pub(super) fn bytes_max(&self) -> u32 {
        self.all.iter().map(|(_, place)| place.bytes_max()).sum()
    }

    /// Writes the contexts at [`AT`] and advances [`AT`].
    // Longer than 70 lines: the order of its groups decides which registers survive.
    pub(super) fn write(&self, asm: &mut Asm, data_source: DataSource) {
        let mut at = 0;
        let fixed = |place: &ContextLocation| !matches!(place, ContextLocation::Name(_));
        let places = || self.all.iter().map(|(_, place)| place);
        asm.call_kernel(helper::GET_CURRENT_PID_TGID);
        load_target(asm, 5, 0);
        // Offsets of the contexts of fixed size.
        let mut offsets = Vec::new();
        for place in places().filter(|place| fixed(place)) {
            offsets.push((place, at));
            at += place.bytes_max();
        }
        for (place, at) in &offsets {
            if let ContextLocation::PidTgid(shift) = place {
                asm.mov(1, 0);
                asm.alui(alu::RSH, 1, *shift);
                asm.store_sized(4, 5, insn_offset(*at as usize), 1);
            }
        }
        if places().any(|place| !matches!(place, ContextLocation::PidTgid(_))) {
            asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
            load_target(asm, 5, 0);
            asm.store(STACK, stack::TASK, 0);
        }
        for (place, at) in &offsets {
            if place.load_from_task(asm, data_source) {
                asm.store_sized(place.bytes_max(), 5, insn_offset(*at as usize), 1);
            }
        }
        for (place, at) in &offsets {
            if place.load_from_helper(asm) {
                load_target(asm, 5, *at as i32);
                asm.store_sized(place.bytes_max(), 5, 0, 1);
            }
        }
        // After sorting, contexts behind the same pointers follow these pointers once.
        offsets.sort_by(|(one, _), (other, _)| one.pointers().cmp(other.pointers()));
        let mut before: &[i16] = &[];
        for (place, at) in offsets.iter().filter(|(place, _)| !place.pointers().is_empty()) {
            let pointers = place.pointers();
            if pointers != before {
                follow_pointers(asm, pointers, before);
                before = pointers;
            }
            match place {
                ContextLocation::Path { offset, bytes, .. } => {
                    asm.load(3, STACK, stack::POINTER);
                    asm.alui(alu::ADD, 3, (*offset).into());
                    load_target(asm, 1, *at as i32);
                    asm.movi(2, *bytes as i32);
                    asm.call_kernel(helper::PROBE_READ_KERNEL);
                }
                ContextLocation::OwnNumber { level, numbers, inum, .. } => {
                    load_own_number_address(asm, (*level, *numbers), *inum);
                    load_target(asm, 1, *at as i32);
                    asm.movi(2, 4);
                    // The helper function writes zeros if it cannot read.
                    asm.call_kernel(helper::PROBE_READ_KERNEL);
                }
                ContextLocation::PreemptionCount(way) => {
                    load_preemptible(asm, way);
                    load_target(asm, 5, *at as i32);
                    asm.store_sized(1, 5, 0, 1);
                }
                ContextLocation::PidTgid(_)
                | ContextLocation::UidGid(_)
                | ContextLocation::Cpu
                | ContextLocation::Name(_) => {}
                ContextLocation::MigrationCount(_)
                | ContextLocation::Bit(..)
                | ContextLocation::InterruptFlag(_) => {}
            }
        }
        asm.alui(alu::ADD, AT, at as i32);
        for place in places() {
            if let ContextLocation::Name(offset) = place {
                copy_thread_name(asm, *offset);
            }
        }
    }
}

impl ContextLocation {
    fn pointers(&self) -> &[i16] {
        match self {
            Self::Path { pointers, .. } | Self::OwnNumber { pointers, .. } => pointers,
            Self::PreemptionCount(way) => &way.pointers,
            Self::PidTgid(_) | Self::UidGid(_) | Self::Cpu | Self::Name(_) => &[],
            Self::MigrationCount(_) | Self::Bit(..) | Self::InterruptFlag(_) => &[],
        }
    }

    const fn bytes_max(&self) -> u32 {
        match self {
            Self::PidTgid(_) | Self::UidGid(_) | Self::Cpu | Self::OwnNumber { .. } => 4,
            Self::Path { bytes, .. } => *bytes,
            Self::Name(_) => NAME_BYTES,
            Self::MigrationCount(_)
            | Self::Bit(..)
            | Self::PreemptionCount(_)
            | Self::InterruptFlag(_) => 1,
        }
    }

    /// Loads a numeric context into r1 for a filter, in the context's size. Filters do not run
    /// while a record is written, so the stack slots that contexts use are free.
    pub(super) fn load_for_filter(&self, asm: &mut Asm, data_source: DataSource) {
        if let Self::PidTgid(shift) = self {
            asm.call_kernel(helper::GET_CURRENT_PID_TGID);
            asm.mov(1, 0);
            asm.alui(alu::RSH, 1, *shift);
            return;
        }
        if self.load_from_helper(asm) {
            return;
        }
        asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
        if self.load_from_task(asm, data_source) {
            return;
        }
        asm.store(STACK, stack::TASK, 0);
        follow_pointers(asm, self.pointers(), &[]);
        let bytes = match self {
            Self::Path { offset, bytes, .. } => {
                asm.load(3, STACK, stack::POINTER);
                asm.alui(alu::ADD, 3, (*offset).into());
                *bytes
            }
            Self::OwnNumber { level, numbers, inum, .. } => {
                load_own_number_address(asm, (*level, *numbers), *inum);
                4
            }
            Self::PreemptionCount(way) => return load_preemptible(asm, way),
            _ => return,
        };
        asm.storei(STACK, stack::KEY_WIDE, 0);
        read_to_stack(asm, stack::KEY_WIDE, bytes as i32);
        asm.load(1, STACK, stack::KEY_WIDE);
    }

    /// Loads the result of a helper function into r1; returns false if no function gives the
    /// context.
    fn load_from_helper(&self, asm: &mut Asm) -> bool {
        match self {
            Self::UidGid(shift) => {
                asm.call_kernel(helper::GET_CURRENT_UID_GID);
                asm.mov(1, 0);
                asm.alui(alu::RSH, 1, *shift);
            }
            Self::Cpu => {
                asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
                asm.mov(1, 0);
            }
            Self::InterruptFlag(interrupts) => {
                interrupts.load(asm, 1);
                asm.alui(alu::RSH, 1, INTERRUPT_FLAG_BIT);
                asm.alui(alu::AND, 1, 1);
            }
            _ => return false,
        }
        true
    }

    /// Loads a value of `task_struct` (r0) into r1; returns false if the context is not in
    /// `task_struct`.
    fn load_from_task(&self, asm: &mut Asm, data_source: DataSource) -> bool {
        match self {
            Self::Path { pointers, offset, bytes, less } if pointers.is_empty() => {
                asm.load_sized(*bytes, 1, 0, *offset);
                asm.alui(alu::SUB, 1, *less);
            }
            Self::MigrationCount(offset) => {
                asm.load_sized(2, 2, 0, *offset);
                compare_equal(
                    asm,
                    2,
                    if data_source == DataSource::Tracepoint {
                        TRACEPOINT_MIGRATION_COUNT
                    } else {
                        0
                    },
                );
            }
            Self::Bit(offset, bit) => {
                asm.load_sized(4, 1, 0, *offset);
                asm.alui(alu::RSH, 1, i32::from(*bit));
                asm.alui(alu::AND, 1, 1);
            }
            _ => return false,
        }
        true
    }
}

/// Sets r1 to 1 if a register has the value `number`, else to 0.
fn compare_equal(asm: &mut Asm, register: Register, number: i32) {
    let is_so = asm.new_label();
    asm.movi(1, 1);
    asm.jumpi(jump::JEQ, register, number, is_so);
    asm.movi(1, 0);
    asm.place_label(is_so);
}

/// Loads the address `at` bytes after [`AT`] into a register.
fn load_target(asm: &mut Asm, register: Register, at: i32) {
    asm.mov(register, CPU);
    asm.alu(alu::ADD, register, AT);
    if at != 0 {
        asm.alui(alu::ADD, register, at);
    }
}

/// Reads `bytes` bytes at the address in r3 to the stack.
pub(super) fn read_to_stack(asm: &mut Asm, to: i16, bytes: i32) {
    asm.mov(1, STACK);
    asm.alui(alu::ADD, 1, to.into());
    asm.movi(2, bytes);
    asm.call_kernel(helper::PROBE_READ_KERNEL);
}

/// Follows pointers from the thread, or from the end of `before` if `pointers` begins with
/// `before`.
pub(super) fn follow_pointers(asm: &mut Asm, pointers: &[i16], before: &[i16]) {
    let rest = match pointers.strip_prefix(before) {
        Some(rest) if !before.is_empty() => {
            asm.load(3, STACK, stack::POINTER);
            rest
        }
        _ => {
            asm.load(3, STACK, stack::TASK);
            pointers
        }
    };
    for (number, pointer) in rest.iter().enumerate() {
        if number > 0 {
            asm.load(3, STACK, stack::POINTER);
        }
        asm.alui(alu::ADD, 3, (*pointer).into());
        read_to_stack(asm, stack::POINTER, 8);
    }
}

/// Sets r1 to 1 if the counter of the CPU whose run queue was found permits preemption, else to 0.
fn load_preemptible(asm: &mut Asm, way: &CounterPath) {
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, way.count);
    asm.storei(STACK, stack::KEY_WIDE, 0);
    read_to_stack(asm, stack::KEY_WIDE, 4);
    asm.load(2, STACK, stack::KEY_WIDE);
    // The counter's highest bit is a flag.
    asm.alui(alu::AND, 2, i32::MAX);
    compare_equal(asm, 2, TRACEPOINT_PREEMPTION_COUNT);
}

/// Loads into r3 the address of a `struct pid`'s id in its own namespace, the deepest one, or the
/// address of that namespace's number.
fn load_own_number_address(asm: &mut Asm, (level, numbers): (i16, i32), inum: Option<i32>) {
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, level.into());
    asm.storei(STACK, stack::KEY_WIDE, 0);
    read_to_stack(asm, stack::KEY_WIDE, 4);
    asm.load(2, STACK, stack::KEY_WIDE);
    asm.alui(alu::AND, 2, LEVEL_MASK);
    asm.alui(alu::MUL, 2, NUMBER_BYTES);
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, numbers);
    asm.alu(alu::ADD, 3, 2);
    if let Some(inum) = inum {
        read_to_stack(asm, stack::KEY_WIDE, 8);
        asm.load(3, STACK, stack::KEY_WIDE);
        asm.alui(alu::ADD, 3, inum);
    }
}

fn copy_thread_name(asm: &mut Asm, offset: i32) {
    asm.load(3, STACK, stack::TASK);
    asm.alui(alu::ADD, 3, offset);
    load_target(asm, 1, 0);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
    finish_text(asm, NAME_BYTES, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_contexts_are_refused_by_name() {
        for name in ["prio", "preemptible", "interruptible", "need_reschedule", "migratable"] {
            let wanted = Context::find_by_name(name).expect("there is one");
            let hidden = Contexts::new(&[wanted], None).expect_err("there are no types");
            assert!(
                hidden
                    .to_string()
                    .contains(&format!("context '{name}' is not available in this kernel: its ")),
                "{hidden}"
            );
        }
    }
}
