//! Which threads are recorded: those of a command and its descendants.
//!
//! A set of thread numbers, one bit each, in a map that is mapped here. Whoever starts the command
//! is in it for that moment, and the kernel's own programs add what a member forks, before anything
//! else sees it, and take away what ends. Numbers are the kernel's own (of its first namespace).

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use trackway_jit::insn::{alu, jump};

use super::program::PASS;
use crate::asm::{Asm, Label, Register};
use crate::catalogue::model::Event;
use crate::mapped::MappedArray;

/// A bit for each of PID_MAX_LIMIT threads (include/linux/threads.h).
const SCOPE_BYTES: usize = (4 << 20) / 8;
const GET_CURRENT_PID_TGID: i32 = 14;
/// Atomic operations (RFC 9669, 5.3).
const ATOMIC_OR: i32 = 0x40;
const ATOMIC_AND: i32 = 0x50;

/// The threads that are recorded.
#[derive(Debug)]
pub struct Scope(MappedArray);

impl Scope {
    /// An empty one.
    ///
    /// # Errors
    ///
    /// If the kernel has no BPF for us, or no memory.
    pub fn new() -> io::Result<Self> {
        MappedArray::new(SCOPE_BYTES, 1).map(Self)
    }

    /// The map, for programs.
    pub fn map_fd(&self) -> RawFd {
        self.0.fd()
    }

    /// Records a thread, and what it forks from now on; or not any more.
    pub fn set(&self, tid: u32, is_recorded: bool) {
        let Some(word) = self.0.word(tid as usize / 64 * 8 % SCOPE_BYTES) else { return };
        let bit = 1 << (tid % 64);
        if is_recorded {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The program, for `sched:sched_process_fork`, that adds what members fork. `None`: the event
    /// does not say who.
    pub fn adder(&self, fork: &Event) -> Option<Vec<u8>> {
        let (parent, child) = (offset(fork, "parent_pid")?, offset(fork, "child_pid")?);
        let mut asm = Asm::default();
        let is_in = asm.label();
        asm.mov(6, 1);
        asm.load_of(4, 0, 6, parent);
        test_of(&mut asm, self.map_fd(), is_in);
        asm.answer(PASS);
        asm.place(is_in);
        asm.load_of(4, 0, 6, child);
        address(&mut asm, self.map_fd());
        bit(&mut asm);
        asm.atomic(ATOMIC_OR, 2, 0, 1);
        asm.answer(PASS);
        asm.bytes()
    }

    /// The program, for `sched:sched_process_exec`, that goes with a thread which takes over its
    /// leader's number: whoever calls exec(2) does, and the leader has ended. `None`: the event
    /// does not say who.
    pub fn mover(&self, exec: &Event) -> Option<Vec<u8>> {
        let (new, old) = (offset(exec, "pid")?, offset(exec, "old_pid")?);
        let mut asm = Asm::default();
        let (is_other, is_in) = (asm.label(), asm.label());
        asm.mov(6, 1);
        asm.load_of(4, 0, 6, old);
        asm.load_of(4, 1, 6, new);
        asm.jump(jump::JNE, 0, 1, is_other);
        asm.answer(PASS);
        asm.place(is_other);
        test_of(&mut asm, self.map_fd(), is_in);
        asm.answer(PASS);
        asm.place(is_in);
        asm.load_of(4, 0, 6, old);
        address(&mut asm, self.map_fd());
        bit(&mut asm);
        asm.alui(alu::XOR, 1, -1);
        asm.atomic(ATOMIC_AND, 2, 0, 1);
        asm.load_of(4, 0, 6, new);
        address(&mut asm, self.map_fd());
        bit(&mut asm);
        asm.atomic(ATOMIC_OR, 2, 0, 1);
        asm.answer(PASS);
        asm.bytes()
    }

    /// The program, for `sched:sched_process_exit`, that takes away what ends.
    pub fn remover(&self) -> Option<Vec<u8>> {
        let mut asm = Asm::default();
        asm.call_kernel(GET_CURRENT_PID_TGID);
        lower_half(&mut asm, 0);
        address(&mut asm, self.map_fd());
        bit(&mut asm);
        asm.alui(alu::XOR, 1, -1);
        asm.atomic(ATOMIC_AND, 2, 0, 1);
        asm.answer(PASS);
        asm.bytes()
    }
}

/// Where a thread's number is in the record of one of the scheduler's events.
fn offset(event: &Event, name: &str) -> Option<i16> {
    let field = event.fields.iter().find(|field| field.name == name && field.size == 4)?;
    i16::try_from(field.offset).ok()
}

/// Jumps there if the current thread is in the scope.
pub(super) fn test(asm: &mut Asm, map_fd: i32, is_in: Label) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    test_of(asm, map_fd, is_in);
}

/// Adds the current thread.
pub(super) fn add(asm: &mut Asm, map_fd: i32) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, map_fd);
    bit(asm);
    asm.atomic(ATOMIC_OR, 2, 0, 1);
}

/// Takes the current thread away: r1 is not zero if it was there.
pub(super) fn take(asm: &mut Asm, map_fd: i32) {
    let is_not = asm.label();
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    address(asm, map_fd);
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
fn test_of(asm: &mut Asm, map_fd: i32, is_in: Label) {
    address(asm, map_fd);
    bit(asm);
    asm.load(2, 2, 0);
    asm.jump(jump::JSET, 2, 1, is_in);
}

/// The address of the word that has the bit of the thread in r0, in r2.
fn address(asm: &mut Asm, map_fd: i32) {
    asm.mov(1, 0);
    asm.alui(alu::RSH, 1, 6);
    asm.alui(alu::LSH, 1, 3);
    asm.alui(alu::AND, 1, SCOPE_BYTES as i32 - 8);
    asm.map_value(2, map_fd);
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
