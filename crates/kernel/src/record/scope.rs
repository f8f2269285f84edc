//! Which threads are recorded: those of a command and its descendants, or of control groups.
//!
//! A set of thread numbers, one bit each, in a map that is mapped here. The command's process puts
//! itself there, and from then on each new thread, whoever makes it, gets the bit of the one that
//! makes it, before anything else sees it. Nothing is taken out: a thread is a member until its
//! last switch, long behind its `sched_process_exit`; one that calls exec(2) gets the number of its
//! leader, which may have ended long before; and the bit of a number that nobody has any more is
//! overwritten for the next one who gets it. Numbers are the kernel's own (of its first namespace).
//!
//! Of control groups, the kernel says whether the thread that an event happens in is a member. The
//! set says it of the threads that an event is about, which is asked where the event does not
//! happen in a member: the other side of a switch, who is woken up. It has the threads that are
//! there at first, what members fork, and whoever has moved there, from its first event on.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use trackway_jit::insn::{alu, jump};

use super::cgroup::Cgroups;
use super::program::PASS;
use crate::bpf_sys::asm::{Asm, Label, Register};
use crate::bpf_sys::mapped::MappedArray;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Event, Field, Kind};

/// A bit for each of PID_MAX_LIMIT threads (include/linux/threads.h).
const SCOPE_BYTES: usize = (4 << 20) / 8;
const GET_CURRENT_PID_TGID: i32 = 14;
/// Atomic operations (RFC 9669, 5.3).
const ATOMIC_OR: i32 = 0x40;
const ATOMIC_AND: i32 = 0x50;

/// `long bpf_current_task_under_cgroup(map, u32 index)`
const CURRENT_TASK_UNDER_CGROUP: i32 = 37;

/// The threads that are recorded.
#[derive(Debug)]
pub struct Scope {
    threads: MappedArray,
    cgroups: Option<Cgroups>,
}

/// A scope, as programs ask it: good as long as that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Members {
    /// The set.
    threads_fd: RawFd,
    /// The groups, and how many.
    cgroups: Option<(RawFd, i32)>,
}

impl Members {
    pub(super) const fn is_of_cgroups(self) -> bool {
        self.cgroups.is_some()
    }
}

impl Scope {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// If the kernel has no BPF for us, or no memory.
    pub fn new() -> io::Result<Self> {
        let threads = MappedArray::new(SCOPE_BYTES, 1)?;
        Ok(Self { threads, cgroups: None })
    }

    /// That of the threads in control groups.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn of_cgroups(cgroups: Cgroups) -> io::Result<Self> {
        Ok(Self { cgroups: Some(cgroups), ..Self::new()? })
    }

    /// Whether it is one of control groups, to which nobody else can be added.
    pub const fn is_of_cgroups(&self) -> bool {
        self.cgroups.is_some()
    }

    /// Finds the threads that are in the control groups, once programs know of those that come.
    ///
    /// # Errors
    ///
    /// If not all could be read; those that were are found.
    pub fn find_threads(&self) -> io::Result<()> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let (threads, read) = cgroups.threads();
        threads.into_iter().for_each(|tid| self.set(tid, true));
        read
    }

    /// Looks whether there are other control groups where those were that are recorded, and records
    /// these from now on: which, and what went wrong.
    pub fn renew(&self) -> Vec<(&Path, io::Result<()>)> {
        let renewed = self.cgroups.as_ref().map(Cgroups::renew).unwrap_or_default();
        if !renewed.is_empty() {
            // Whom it does not find is one from his next event on.
            let _ = self.find_threads();
        }
        renewed
    }

    /// What programs ask.
    pub fn members(&self) -> Members {
        let cgroups = self.cgroups.as_ref().map(|cgroups| (cgroups.map_fd(), cgroups.count()));
        Members { threads_fd: self.threads.fd(), cgroups }
    }

    /// Whether a thread is recorded, or was the last one with this number that was there.
    pub fn has(&self, tid: u32) -> bool {
        let word = self.threads.word(tid as usize / 64 * 8 % SCOPE_BYTES);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (tid % 64) & 1 == 1)
    }

    /// Records a thread, and what it forks from now on; or not any more.
    pub fn set(&self, tid: u32, is_recorded: bool) {
        let Some(word) = self.threads.word(tid as usize / 64 * 8 % SCOPE_BYTES) else { return };
        let bit = 1 << (tid % 64);
        if is_recorded {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The program that has each new thread in the scope, or not in it, as who makes it. `None`:
    /// the source does not say who is new.
    pub fn heir(&self, source: Newcomer) -> Option<Vec<u8>> {
        let members = self.members();
        let mut asm = Asm::default();
        let is_in = asm.label();
        match source {
            Newcomer::Argument { .. } => asm.load(6, 1, 0),
            Newcomer::Field { .. } => asm.mov(6, 1),
        }
        let (Newcomer::Argument { pid } | Newcomer::Field { pid }) = source;
        test(&mut asm, members, is_in);
        // The number may be one that a member had.
        asm.load_of(4, 0, 6, pid);
        address(&mut asm, members);
        bit(&mut asm);
        asm.alui(alu::XOR, 1, -1);
        asm.atomic(ATOMIC_AND, 2, 0, 1);
        // Who makes it may have become one meanwhile, and the new one with it (`Scope::take_in`):
        // it is never taken out behind that.
        test(&mut asm, members, is_in);
        asm.answer(PASS);
        asm.place(is_in);
        asm.load_of(4, 0, 6, pid);
        address(&mut asm, members);
        bit(&mut asm);
        asm.atomic(ATOMIC_OR, 2, 0, 1);
        asm.answer(PASS);
        asm.bytes()
    }
}

/// Where `task:task_newtask` has the number of a thread that is new, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newcomer {
    /// In the `task_struct` that is the first argument of its raw tracepoint.
    Argument {
        /// There.
        pid: i16,
    },
    /// In the tracepoint's record.
    Field {
        /// There.
        pid: i16,
    },
}

impl Newcomer {
    /// The first argument, by the kernel's types, and the raw tracepoint's.
    pub fn argument(btf: &Btf) -> Option<(Self, u32)> {
        let task = btf.find(Class::Struct, "task_struct")?;
        let place = btf.place(task.id, "pid")?;
        let raw = btf.find(Class::Typedef, "btf_trace_task_newtask")?.id;
        let pid = i16::try_from(place.bit_offset / 8).ok()?;
        Some((Self::Argument { pid }, raw))
    }

    /// The event's record.
    pub fn field(event: &Event) -> Option<Self> {
        let field = event.fields.iter().find(|field| field.name == "pid" && field.size == 4)?;
        i16::try_from(field.offset).ok().map(|pid| Self::Field { pid })
    }
}

/// Whether a field is the number of a thread that the event is about. What is called a pid
/// elsewhere may be a process's, or anything.
pub(super) fn is_thread(event: &Event, field: &Field) -> bool {
    let is_number = matches!(field.kind, Kind::Integer(_)) && field.size == 4;
    let is_pid = field.name == "pid" || field.name.ends_with("_pid");
    let is_of_tasks = matches!(&*event.subsystem, "sched" | "signal" | "task");
    // That is the thread that a switch happens in.
    let is_said = is_of_tasks || field.type_text == "pid_t";
    is_number && is_pid && is_said && field.name != "prev_pid"
}

/// Jumps there if the current thread is in the scope.
pub(super) fn test(asm: &mut Asm, members: Members, is_in: Label) {
    let Some((cgroups_fd, count)) = members.cgroups else {
        asm.call_kernel(GET_CURRENT_PID_TGID);
        lower_half(asm, 0);
        return test_of(asm, members, is_in);
    };
    let (is_member, is_known, is_out) = (asm.label(), asm.label(), asm.label());
    for index in 0..count {
        asm.map(1, cgroups_fd);
        asm.movi(2, index);
        asm.call_kernel(CURRENT_TASK_UNDER_CGROUP);
        asm.jumpi(jump::JEQ, 0, 1, is_member);
    }
    // It may have been one, and have moved.
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    test_of(asm, members, is_known);
    asm.goto(is_out);
    asm.place(is_known);
    forget(asm, members);
    asm.goto(is_out);
    asm.place(is_member);
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    test_of(asm, members, is_in);
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, members);
    bit(asm);
    asm.atomic(ATOMIC_OR, 2, 0, 1);
    asm.goto(is_in);
    asm.place(is_out);
}

/// Takes the current thread out of the set.
fn forget(asm: &mut Asm, members: Members) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, members);
    bit(asm);
    asm.alui(alu::XOR, 1, -1);
    asm.atomic(ATOMIC_AND, 2, 0, 1);
}

/// Adds the current thread.
pub(super) fn add(asm: &mut Asm, threads: Members) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, threads);
    bit(asm);
    asm.atomic(ATOMIC_OR, 2, 0, 1);
}

/// Takes the current thread away: r1 is not zero if it was there.
pub(super) fn take(asm: &mut Asm, threads: Members) {
    let is_not = asm.label();
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, threads);
    bit(asm);
    asm.load(3, 2, 0);
    asm.mov(4, 1);
    asm.alu(alu::AND, 1, 3);
    asm.jumpi(jump::JEQ, 1, 0, is_not);
    asm.alui(alu::XOR, 4, -1);
    asm.atomic(ATOMIC_AND, 2, 0, 4);
    asm.place(is_not);
}

/// The same of the thread whose number is in r0.
pub(super) fn test_of(asm: &mut Asm, members: Members, is_in: Label) {
    address(asm, members);
    bit(asm);
    asm.load(2, 2, 0);
    asm.jump(jump::JSET, 2, 1, is_in);
}

/// The address of the word that has the bit of the thread in r0, in r2.
fn address(asm: &mut Asm, members: Members) {
    asm.mov(1, 0);
    asm.alui(alu::RSH, 1, 6);
    asm.alui(alu::LSH, 1, 3);
    asm.alui(alu::AND, 1, SCOPE_BYTES as i32 - 8);
    asm.map_value(2, members.threads_fd);
    asm.alu(alu::ADD, 2, 1);
}

/// Its bit, in r1.
fn bit(asm: &mut Asm) {
    asm.alui(alu::AND, 0, 63);
    asm.movi(1, 1);
    asm.alu(alu::LSH, 1, 0);
}

fn lower_half(asm: &mut Asm, register: Register) {
    asm.alui(alu::LSH, register, 32);
    asm.alui(alu::RSH, register, 32);
}
