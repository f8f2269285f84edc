//! Contexts: what each record says besides its event's fields, in front of them.
//!
//! `tid` always; of others, those that the user asks for. They are of the thread that runs when the
//! event happens, which is the one that an interrupt interrupts. Names and types are LTTng's.
//! Filters ask for them, too, recorded or not ([`Asked`]): of one table, and read by the same
//! instructions.
//!
//! A program reads them from the kernel's structures, at places that the kernel's types tell. What
//! is at no good address reads as zero. Numbers in `task_struct` itself are plain loads, which the
//! kernel's verifier checks by type. Pointers are followed by a helper: of each that a program
//! loads, the verifier of Linux 6.18 looks for a name among all types, several times, so that a
//! program with all contexts would take 0.1 s to load; and there may be two thousand.

use std::cell::OnceCell;

use trackway_jit::insn::{alu, jump};
use trackway_schema::{Field, FieldKind, Scalar};

use super::preemption::{ADDED, INTERRUPTS, Interrupts, Preemption, Way};
use super::program::{AT, CPU, STACK, helper, short, stack, text_read};
use super::staging::Ground;
use crate::bpf_sys::asm::{Asm, Register};
use crate::catalogue::btf::{Btf, Class};

/// Bytes of a thread's name, with its NUL (TASK_COMM_LEN).
const NAME_BYTES: u32 = 16;
/// MAX_RT_PRIO (include/linux/sched/prio.h): LTTng counts from there, as /proc/PID/stat does.
const FIRST_PRIORITY: i32 = 100;
/// DEFAULT_PRIO: that of nice 0.
const DEFAULT_PRIORITY: i32 = 120;
/// Numbers of a process are in as many namespaces, less one (MAX_PID_NS_LEVEL, 32).
const LEVEL_MASK: i32 = 31;
/// Bytes of `struct upid`: a number, and its namespace.
const NUMBER_BYTES: i32 = 16;

/// Programs on tracepoints stay on their CPU, and the kernel counts that before they run (since
/// Linux 5.7: BPF_PROG_RUN_ARRAY; what it does for others is tried: [`super::preemption`]).
const STAYS_ADDED: i32 = 1;

/// A context of the kernel's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    source: Source,
}

/// A pointer to follow, or what is there: a structure, and a member of it.
type Hop = (&'static str, &'static str);

/// Where a context is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// In one half of what the kernel says of the thread's numbers.
    Numbers { shift: i32 },
    /// In one half of what it says of its users and groups.
    Users { shift: i32 },
    /// The CPU that it runs on.
    Cpu,
    /// At the end of a way from the thread's `task_struct`; so much is taken off.
    Way { hops: &'static [Hop], scalar: Scalar, less: i32 },
    /// A `struct pid` is at the end of the way: its number in its own namespace.
    OwnNumber(&'static [Hop]),
    /// The same, but the number of the namespace.
    OwnNamespace(&'static [Hop]),
    /// The thread's name.
    Name,
    /// Whether it can be preempted; or interrupted; or is to leave its CPU; or can be moved.
    State(State),
}

/// What happens to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preemptible,
    Interruptible,
    NeedReschedule,
    Migratable,
}

const TASK: &str = "task_struct";

const fn way(
    name: &'static str,
    about: &'static str,
    hops: &'static [Hop],
    scalar: Scalar,
) -> Context {
    Context { name, about, source: Source::Way { hops, scalar, less: 0 } }
}

const fn less(context: Context, less: i32) -> Context {
    match context.source {
        Source::Way { hops, scalar, .. } => {
            Context { source: Source::Way { hops, scalar, less }, ..context }
        }
        _ => context,
    }
}

const fn state(name: &'static str, about: &'static str, state: State) -> Context {
    Context { name, about, source: Source::State(state) }
}

const PROCESS: &[Hop] = &[(TASK, "group_leader"), (TASK, "thread_pid")];
const THREAD: &[Hop] = &[(TASK, "thread_pid")];

/// What filters ask for, and records need not say, since packets do.
const CPU_ID: Context = Context { name: "cpu_id", about: "the CPU", source: Source::Cpu };

/// All that there are.
#[rustfmt::skip]
pub const ALL: [Context; 27] = [
    Context { name: "tid", about: "thread", source: Source::Numbers { shift: 0 } },
    Context { name: "pid", about: "process", source: Source::Numbers { shift: 32 } },
    way("ppid", "parent process", &[(TASK, "real_parent"), (TASK, "tgid")], Scalar::I32),
    Context { name: "vpid", about: "process, for itself", source: Source::OwnNumber(PROCESS) },
    Context { name: "vtid", about: "thread, for itself", source: Source::OwnNumber(THREAD) },
    Context { name: "procname", about: "the thread's name", source: Source::Name },
    less(way("prio", "priority, as in /proc/PID/stat", &[(TASK, "prio")], Scalar::I32),
        FIRST_PRIORITY),
    less(way("nice", "niceness", &[(TASK, "static_prio")], Scalar::I32), DEFAULT_PRIORITY),
    Context { name: "uid", about: "user", source: Source::Users { shift: 0 } },
    way("euid", "user, effective", &[(TASK, "cred"), ("cred", "euid.val")], Scalar::U32),
    way("suid", "user, saved", &[(TASK, "cred"), ("cred", "suid.val")], Scalar::U32),
    Context { name: "gid", about: "group", source: Source::Users { shift: 32 } },
    way("egid", "group, effective", &[(TASK, "cred"), ("cred", "egid.val")], Scalar::U32),
    way("sgid", "group, saved", &[(TASK, "cred"), ("cred", "sgid.val")], Scalar::U32),
    way("cgroup_id", "control group (version 2): the inode number of its folder",
        &[(TASK, "cgroups"), ("css_set", "dfl_cgrp"), ("cgroup", "kn"), ("kernfs_node", "id")],
        Scalar::U64),
    way("cgroup_ns", "namespace of control groups",
        &[(TASK, "nsproxy"), ("nsproxy", "cgroup_ns"), ("cgroup_namespace", "ns.inum")],
        Scalar::U32),
    way("ipc_ns", "namespace of System V IPC",
        &[(TASK, "nsproxy"), ("nsproxy", "ipc_ns"), ("ipc_namespace", "ns.inum")], Scalar::U32),
    way("mnt_ns", "namespace of mounts",
        &[(TASK, "nsproxy"), ("nsproxy", "mnt_ns"), ("mnt_namespace", "ns.inum")], Scalar::U32),
    way("net_ns", "namespace of networks",
        &[(TASK, "nsproxy"), ("nsproxy", "net_ns"), ("net", "ns.inum")], Scalar::U32),
    Context { name: "pid_ns", about: "namespace of processes",
        source: Source::OwnNamespace(THREAD) },
    way("time_ns", "namespace of clocks",
        &[(TASK, "nsproxy"), ("nsproxy", "time_ns"), ("time_namespace", "ns.inum")], Scalar::U32),
    way("user_ns", "namespace of users",
        &[(TASK, "cred"), ("cred", "user_ns"), ("user_namespace", "ns.inum")], Scalar::U32),
    way("uts_ns", "namespace of host names",
        &[(TASK, "nsproxy"), ("nsproxy", "uts_ns"), ("uts_namespace", "ns.inum")], Scalar::U32),
    state("preemptible", "whether nothing forbids that it is preempted", State::Preemptible),
    state("interruptible", "whether interrupts come", State::Interruptible),
    state("need_reschedule", "whether it is to leave its CPU", State::NeedReschedule),
    state("migratable", "whether nothing forbids that it goes to another CPU", State::Migratable),
];

impl Context {
    /// The context of this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|context| context.name == name)
    }

    /// All that filters may ask for.
    pub fn asked() -> impl Iterator<Item = Self> {
        ALL.into_iter().chain([CPU_ID])
    }

    /// Of a number, which kind of one; `None`: text.
    pub fn scalar(&self) -> Option<Scalar> {
        Some(match self.source {
            Source::Numbers { .. } | Source::OwnNumber(_) => Scalar::I32,
            Source::Users { .. } | Source::Cpu | Source::OwnNamespace(_) => Scalar::U32,
            Source::Way { scalar, .. } => scalar,
            Source::Name => return None,
            Source::State(State::Interruptible) => Scalar::I8,
            Source::State(_) => Scalar::U8,
        })
    }

    fn kind(&self) -> FieldKind {
        self.scalar().map_or(FieldKind::Str, FieldKind::Scalar)
    }
}

/// A context that this kernel does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// Which.
    pub name: &'static str,
    /// Why not.
    pub why: &'static str,
}

impl std::fmt::Display for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this kernel does not show the context '{}': {}", self.name, self.why)
    }
}

impl std::error::Error for Hidden {}

/// Contexts, and where this kernel has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contexts {
    all: Vec<(Context, Place)>,
}

/// Where a context is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Half of the thread's numbers, by how far down.
    Numbers(i32),
    /// Half of its users' and groups', likewise.
    Users(i32),
    Cpu,
    /// Pointers at these offsets, and at the last one so many bytes; so much is taken off.
    Way {
        pointers: Vec<i16>,
        offset: i16,
        bytes: u32,
        less: i32,
    },
    /// Pointers to a `struct pid`, and in it the level and the numbers; in a namespace, where its
    /// number is, if that is what is wanted.
    Own {
        pointers: Vec<i16>,
        level: i16,
        numbers: i32,
        inum: Option<i32>,
    },
    /// The name, there.
    Name(i32),
    /// Whether what is counted there is what it is where nothing forbids to move.
    Stays(i16),
    /// The bit with this number of four bytes there.
    Bit(i16, u8),
    /// Whether the CPU's count is what it is where nothing forbids preemption.
    Count(Way),
    /// Whether interrupts come, as these functions say.
    Flag(Interrupts),
}

impl Default for Contexts {
    fn default() -> Self {
        let (tid, place) = (ALL[0], Place::Numbers(0));
        Self { all: vec![(tid, place)] }
    }
}

/// Where a member of a structure is, in bytes.
pub(super) fn offset(btf: &Btf, structure: &str, member: &str) -> Option<i16> {
    let place = btf.place(btf.find(Class::Struct, structure)?.id, member)?;
    let is_whole = place.bits == 0 && place.bit_offset.is_multiple_of(8);
    i16::try_from(place.bit_offset / 8).ok().filter(|_| is_whole)
}

fn pointers(btf: &Btf, hops: &[Hop]) -> Option<Vec<i16>> {
    hops.iter().map(|(structure, member)| offset(btf, structure, member)).collect()
}

impl Place {
    /// Where what happens to a thread is.
    fn of_state(state: State, found: &Preemption) -> Result<Self, &'static str> {
        match state {
            State::Preemptible => found.count.clone().map(Self::Count),
            State::Interruptible => found.interrupts.map(Self::Flag),
            State::NeedReschedule => found.leaves.map(|(flags, bit)| Self::Bit(flags, bit)),
            State::Migratable => found.stays.map(Self::Stays),
        }
    }

    fn of(source: Source, btf: Option<&Btf>) -> Option<Self> {
        match source {
            Source::Numbers { shift } => Some(Self::Numbers(shift)),
            Source::Users { shift } => Some(Self::Users(shift)),
            Source::Cpu => Some(Self::Cpu),
            Source::Way { hops, scalar, less } => {
                let mut pointers = pointers(btf?, hops)?;
                let (offset, bytes) = (pointers.pop()?, scalar.size_bytes() as u32);
                Some(Self::Way { pointers, offset, bytes, less })
            }
            Source::OwnNumber(hops) | Source::OwnNamespace(hops) => {
                let btf = btf?;
                let at = |structure: &str, member: &str| offset(btf, structure, member);
                let is_namespace = matches!(source, Source::OwnNamespace(_));
                let inum = at("pid_namespace", "ns.inum").map(i32::from);
                let member = at("upid", if is_namespace { "ns" } else { "nr" })?;
                let upid = btf.find(Class::Struct, "upid")?;
                (upid.size_or_type == NUMBER_BYTES.cast_unsigned()).then_some(())?;
                Some(Self::Own {
                    pointers: pointers(btf, hops)?,
                    level: at("pid", "level")?,
                    numbers: i32::from(at("pid", "numbers")?) + i32::from(member),
                    inum: if is_namespace { Some(inum?) } else { None },
                })
            }
            Source::Name => offset(btf?, TASK, "comm").map(|at| Self::Name(at.into())),
            Source::State(_) => None,
        }
    }
}

/// Finds where contexts are.
struct Finder<'btf> {
    btf: Option<&'btf Btf>,
    /// Trying takes some milliseconds.
    tried: OnceCell<Preemption>,
}

impl<'btf> Finder<'btf> {
    fn new(btf: Option<&'btf Btf>) -> Self {
        Self { btf, tried: OnceCell::new() }
    }

    fn place(&self, context: &Context) -> Result<Place, &'static str> {
        match (context.source, self.btf) {
            (Source::State(state), Some(btf)) => {
                Place::of_state(state, self.tried.get_or_init(|| Preemption::find(btf)))
            }
            (source, btf) => Place::of(source, btf).ok_or("its types do not tell where that is"),
        }
    }
}

/// Contexts as filters ask for them: each with where this kernel has it, or why it has not.
#[derive(Debug)]
pub struct Asked {
    /// A thread's name is where a function of the kernel's says.
    all: Vec<(Context, Result<Option<Place>, &'static str>)>,
}

impl Asked {
    /// All; but what is to be tried first only if somebody may ask for one of those.
    pub fn find(btf: Option<&Btf>, may_be_asked: impl Fn(&str) -> bool) -> Self {
        let finder = Finder::new(btf);
        let is_tried = |context: &Context| matches!(context.source, Source::State(_));
        let tries = Context::asked().any(|of| is_tried(&of) && may_be_asked(of.name));
        let is_meant = |context: &Context| tries || !is_tried(context);
        let place = |context: Context| match context.source {
            Source::Name => (context, Ok(None)),
            _ => (context, finder.place(&context).map(Some)),
        };
        Self { all: Context::asked().filter(is_meant).map(place).collect() }
    }

    /// Why the kernel does not show one.
    pub fn hidden(&self, name: &str) -> Option<Hidden> {
        let (context, place) = self.all.iter().find(|(context, _)| context.name == name)?;
        place.as_ref().err().map(|&why| Hidden { name: context.name, why })
    }

    /// The one of this name, and where it is.
    pub(super) fn named(&self, name: &str) -> Option<(Context, Option<&Place>)> {
        let (context, place) = self.all.iter().find(|(context, _)| context.name == name)?;
        place.as_ref().ok().map(|place| (*context, place.as_ref()))
    }
}

impl Contexts {
    /// `tid`, and these, each once. What is not as long each time comes last.
    ///
    /// # Errors
    ///
    /// If the kernel's types, if there are any, do not say where one is.
    pub fn new(wanted: &[Context], btf: Option<&Btf>) -> Result<Self, Hidden> {
        let mut contexts = Self::default();
        let finder = Finder::new(btf);
        for is_text in [false, true] {
            for context in wanted.iter().filter(|of| (of.source == Source::Name) == is_text) {
                if contexts.all.iter().any(|(known, _)| known == context) {
                    continue;
                }
                let place = finder.place(context);
                let place = place.map_err(|why| Hidden { name: context.name, why })?;
                contexts.all.push((*context, place));
            }
        }
        Ok(contexts)
    }

    /// As traces describe them, in the order of the records.
    pub fn fields(&self) -> Vec<Field> {
        let field = |(of, _): &(Context, Place)| Field { name: of.name.into(), kind: of.kind() };
        self.all.iter().map(field).collect()
    }

    /// Most bytes of them.
    pub(super) fn bytes_max(&self) -> u32 {
        self.all.iter().map(|(_, place)| place.bytes_max()).sum()
    }

    /// Adds them at [`AT`], and moves that on; in a program that the kernel runs like this.
    pub(super) fn write(&self, asm: &mut Asm, ground: Ground) {
        let mut at = 0;
        let fixed = |place: &Place| !matches!(place, Place::Name(_));
        let places = || self.all.iter().map(|(_, place)| place);
        asm.call_kernel(helper::GET_CURRENT_PID_TGID);
        target(asm, 5, 0);
        // The offset of each among those of fixed size.
        let mut offsets = Vec::new();
        for place in places().filter(|place| fixed(place)) {
            offsets.push((place, at));
            at += place.bytes_max();
        }
        for (place, at) in &offsets {
            if let Place::Numbers(shift) = place {
                asm.mov(1, 0);
                asm.alui(alu::RSH, 1, *shift);
                asm.store_of(4, 5, short(*at as usize), 1);
            }
        }
        if places().any(|place| !matches!(place, Place::Numbers(_))) {
            asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
            target(asm, 5, 0);
            asm.store(STACK, stack::TASK, 0);
        }
        for (place, at) in &offsets {
            if place.load(asm, ground) {
                asm.store_of(place.bytes_max(), 5, short(*at as usize), 1);
            }
        }
        for (place, at) in &offsets {
            if place.ask_helper(asm) {
                target(asm, 5, *at as i32);
                asm.store_of(place.bytes_max(), 5, 0, 1);
            }
        }
        // Those behind the same pointers one after the other, so that they are followed once.
        offsets.sort_by(|(one, _), (other, _)| one.pointers().cmp(other.pointers()));
        let mut before: &[i16] = &[];
        for (place, at) in offsets.iter().filter(|(place, _)| !place.pointers().is_empty()) {
            let pointers = place.pointers();
            if pointers != before {
                follow(asm, pointers, before);
                before = pointers;
            }
            match place {
                Place::Way { offset, bytes, .. } => {
                    asm.load(3, STACK, stack::POINTER);
                    asm.alui(alu::ADD, 3, (*offset).into());
                    target(asm, 1, *at as i32);
                    asm.movi(2, *bytes as i32);
                    asm.call_kernel(helper::PROBE_READ_KERNEL);
                }
                Place::Own { level, numbers, inum, .. } => {
                    own(asm, (*level, *numbers), *inum);
                    target(asm, 1, *at as i32);
                    asm.movi(2, 4);
                    // What cannot be read is zero then.
                    asm.call_kernel(helper::PROBE_READ_KERNEL);
                }
                Place::Count(way) => {
                    count(asm, way);
                    target(asm, 5, *at as i32);
                    asm.store_of(1, 5, 0, 1);
                }
                Place::Numbers(_) | Place::Users(_) | Place::Cpu | Place::Name(_) => {}
                Place::Stays(_) | Place::Bit(..) | Place::Flag(_) => {}
            }
        }
        asm.alui(alu::ADD, AT, at as i32);
        for place in places() {
            if let Place::Name(offset) = place {
                name(asm, *offset);
            }
        }
    }
}

impl Place {
    fn pointers(&self) -> &[i16] {
        match self {
            Self::Way { pointers, .. } | Self::Own { pointers, .. } => pointers,
            Self::Count(way) => &way.pointers,
            Self::Numbers(_) | Self::Users(_) | Self::Cpu | Self::Name(_) => &[],
            Self::Stays(_) | Self::Bit(..) | Self::Flag(_) => &[],
        }
    }

    const fn bytes_max(&self) -> u32 {
        match self {
            Self::Numbers(_) | Self::Users(_) | Self::Cpu | Self::Own { .. } => 4,
            Self::Way { bytes, .. } => *bytes,
            Self::Name(_) => NAME_BYTES,
            Self::Stays(_) | Self::Bit(..) | Self::Count(_) | Self::Flag(_) => 1,
        }
    }

    /// Loads a number to r1, as many bytes as the context has, for a filter: that is not asked
    /// while a record is written, so there is nothing else on the stack where contexts use it.
    pub(super) fn ask(&self, asm: &mut Asm, ground: Ground) {
        if let Self::Numbers(shift) = self {
            asm.call_kernel(helper::GET_CURRENT_PID_TGID);
            asm.mov(1, 0);
            asm.alui(alu::RSH, 1, *shift);
            return;
        }
        if self.ask_helper(asm) {
            return;
        }
        asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
        if self.load(asm, ground) {
            return;
        }
        asm.store(STACK, stack::TASK, 0);
        follow(asm, self.pointers(), &[]);
        let bytes = match self {
            Self::Way { offset, bytes, .. } => {
                asm.load(3, STACK, stack::POINTER);
                asm.alui(alu::ADD, 3, (*offset).into());
                *bytes
            }
            Self::Own { level, numbers, inum, .. } => {
                own(asm, (*level, *numbers), *inum);
                4
            }
            Self::Count(way) => return count(asm, way),
            _ => return,
        };
        asm.storei(STACK, stack::KEY_WIDE, 0);
        read(asm, stack::KEY_WIDE, bytes as i32);
        asm.load(1, STACK, stack::KEY_WIDE);
    }

    /// Loads what a function of the kernel's says, to r1; false: none does.
    fn ask_helper(&self, asm: &mut Asm) -> bool {
        match self {
            Self::Users(shift) => {
                asm.call_kernel(helper::GET_CURRENT_UID_GID);
                asm.mov(1, 0);
                asm.alui(alu::RSH, 1, *shift);
            }
            Self::Cpu => {
                asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
                asm.mov(1, 0);
            }
            Self::Flag(interrupts) => {
                interrupts.load(asm, 1);
                asm.alui(alu::RSH, 1, INTERRUPTS);
                asm.alui(alu::AND, 1, 1);
            }
            _ => return false,
        }
        true
    }

    /// Loads what is in the thread's structure, which is in r0, to r1; false: it is not there.
    fn load(&self, asm: &mut Asm, ground: Ground) -> bool {
        match self {
            Self::Way { pointers, offset, bytes, less } if pointers.is_empty() => {
                asm.load_of(*bytes, 1, 0, *offset);
                asm.alui(alu::SUB, 1, *less);
            }
            Self::Stays(offset) => {
                asm.load_of(2, 2, 0, *offset);
                is(asm, 2, if ground == Ground::Tracepoint { STAYS_ADDED } else { 0 });
            }
            Self::Bit(offset, bit) => {
                asm.load_of(4, 1, 0, *offset);
                asm.alui(alu::RSH, 1, i32::from(*bit));
                asm.alui(alu::AND, 1, 1);
            }
            _ => return false,
        }
        true
    }
}

/// Whether a register has this number, in r1.
fn is(asm: &mut Asm, register: Register, number: i32) {
    let is_so = asm.label();
    asm.movi(1, 1);
    asm.jumpi(jump::JEQ, register, number, is_so);
    asm.movi(1, 0);
    asm.place(is_so);
}

/// The address `at` bytes behind [`AT`].
fn target(asm: &mut Asm, register: Register, at: i32) {
    asm.mov(register, CPU);
    asm.alu(alu::ADD, register, AT);
    if at != 0 {
        asm.alui(alu::ADD, register, at);
    }
}

/// Reads so many bytes at the address in r3 to the stack.
pub(super) fn read(asm: &mut Asm, to: i16, bytes: i32) {
    asm.mov(1, STACK);
    asm.alui(alu::ADD, 1, to.into());
    asm.movi(2, bytes);
    asm.call_kernel(helper::PROBE_READ_KERNEL);
}

/// From the thread along pointers; from where others led, as far as these are the same.
pub(super) fn follow(asm: &mut Asm, pointers: &[i16], before: &[i16]) {
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
        read(asm, stack::POINTER, 8);
    }
}

/// Whether nothing forbids preemption, by the count of the CPU whose run queue was found, in r1.
fn count(asm: &mut Asm, way: &Way) {
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, way.count);
    asm.storei(STACK, stack::KEY_WIDE, 0);
    read(asm, stack::KEY_WIDE, 4);
    asm.load(2, STACK, stack::KEY_WIDE);
    // The highest bit is no count.
    asm.alui(alu::AND, 2, i32::MAX);
    is(asm, 2, ADDED);
}

/// The address, in r3, of the number of a `struct pid` in its own namespace, the deepest that it
/// has one in; or of that namespace's.
fn own(asm: &mut Asm, (level, numbers): (i16, i32), inum: Option<i32>) {
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, level.into());
    asm.storei(STACK, stack::KEY_WIDE, 0);
    read(asm, stack::KEY_WIDE, 4);
    asm.load(2, STACK, stack::KEY_WIDE);
    asm.alui(alu::AND, 2, LEVEL_MASK);
    asm.alui(alu::MUL, 2, NUMBER_BYTES);
    asm.load(3, STACK, stack::POINTER);
    asm.alui(alu::ADD, 3, numbers);
    asm.alu(alu::ADD, 3, 2);
    if let Some(inum) = inum {
        read(asm, stack::KEY_WIDE, 8);
        asm.load(3, STACK, stack::KEY_WIDE);
        asm.alui(alu::ADD, 3, inum);
    }
}

fn name(asm: &mut Asm, offset: i32) {
    asm.load(3, STACK, stack::TASK);
    asm.alui(alu::ADD, 3, offset);
    target(asm, 1, 0);
    asm.movi(2, NAME_BYTES as i32);
    asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
    text_read(asm, NAME_BYTES, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_does_not_tell_is_refused_by_its_name() {
        for name in ["prio", "preemptible", "interruptible", "need_reschedule", "migratable"] {
            let wanted = Context::named(name).expect("there is one");
            let hidden = Contexts::new(&[wanted], None).expect_err("there are no types");
            assert!(hidden.to_string().contains(&format!("context '{name}': its ")), "{hidden}");
        }
    }
}
