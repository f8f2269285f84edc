//! The scope of a recording: a command's threads and their descendants, or the threads of control
//! groups.
//!
//! A scope is a set of thread ids, one bit for each id, in a map that the recorder maps, too. The
//! command's process adds itself; from then on each new thread inherits the bit of its creator,
//! before any other event. Ended threads stay in the set: a thread is a member until its last
//! switch, long after its `sched_process_exit`; a thread that calls exec(2) gets its leader's id,
//! and the leader may have ended long before. A new thread overwrites the bit of its id. Ids are
//! those of the kernel's first pid namespace.
//!
//! For control groups, the kernel reports whether the current thread is a member. Some events
//! concern another thread: the other thread of a switch, or a woken thread. For these events the
//! set contains the threads that exist at the beginning, threads that members create, and threads
//! that move to a group, from their first event on.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use trackway_jit::insn::{alu, jump};

use super::cgroup::Cgroups;
use super::codegen::PASS;
use crate::bpf_sys::asm::{Asm, Label, Register};
use crate::bpf_sys::mapped::MappedArray;
use crate::catalogue::btf::{Btf, Class};
use crate::catalogue::model::{Event, Field, FieldShape};

/// Bytes of the set: a bit for each of PID_MAX_LIMIT threads (include/linux/threads.h).
const SCOPE_BYTES: usize = (4 << 20) / 8;
const GET_CURRENT_PID_TGID: i32 = 14;
/// Operations of atomic instructions (RFC 9669, 5.3).
const ATOMIC_OR: i32 = 0x40;
const ATOMIC_AND: i32 = 0x50;

/// `long bpf_current_task_under_cgroup(map, u32 index)`
const CURRENT_TASK_UNDER_CGROUP: i32 = 37;

/// The set of recorded threads.
#[derive(Debug)]
pub struct Scope {
    threads: MappedArray,
    cgroups: Option<Cgroups>,
}

/// The maps of a scope for programs; valid while the scope exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScopeMaps {
    /// The map with the set of threads.
    threads_fd: RawFd,
    /// The map of control groups, with the number of groups.
    cgroups: Option<(RawFd, i32)>,
}

impl ScopeMaps {
    pub(super) const fn is_of_cgroups(self) -> bool {
        self.cgroups.is_some()
    }
}

impl Scope {
    /// Creates an empty scope.
    ///
    /// # Errors
    ///
    /// If BPF is not available to this process, or the kernel has too little memory.
    pub fn new() -> io::Result<Self> {
        let threads = MappedArray::new(SCOPE_BYTES, 1)?;
        Ok(Self { threads, cgroups: None })
    }

    /// Creates the scope of control groups.
    ///
    /// # Errors
    ///
    /// See [`Self::new`].
    pub fn new_for_cgroups(cgroups: Cgroups) -> io::Result<Self> {
        Ok(Self { cgroups: Some(cgroups), ..Self::new()? })
    }

    /// Returns true for a scope of control groups; such a scope accepts no single threads.
    pub const fn is_of_cgroups(&self) -> bool {
        self.cgroups.is_some()
    }

    /// Adds the threads of the control groups. Call this after the program for new threads is
    /// attached.
    ///
    /// # Errors
    ///
    /// If some thread lists could not be read; the threads of other lists are added.
    pub fn add_cgroup_threads(&self) -> io::Result<()> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let (threads, read) = cgroups.threads();
        threads.into_iter().for_each(|tid| self.set_recorded(tid, true));
        read
    }

    /// Replaces control groups that were removed and created again. Returns the paths of these
    /// groups with the outcomes.
    pub fn refresh_cgroups(&self) -> Vec<(&Path, io::Result<()>)> {
        let refreshed = self.cgroups.as_ref().map(Cgroups::refresh).unwrap_or_default();
        if !refreshed.is_empty() {
            // A thread that this function misses becomes a member at its next event.
            let _ = self.add_cgroup_threads();
        }
        refreshed
    }

    /// Returns the maps for programs.
    pub fn maps(&self) -> ScopeMaps {
        let cgroups = self.cgroups.as_ref().map(|cgroups| (cgroups.map_fd(), cgroups.count()));
        ScopeMaps { threads_fd: self.threads.fd(), cgroups }
    }

    /// Returns true if a thread is recorded. An ended thread is a member until its id is reused.
    pub fn contains(&self, tid: u32) -> bool {
        let word = self.threads.word(tid as usize / 64 * 8 % SCOPE_BYTES);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (tid % 64) & 1 == 1)
    }

    /// Adds or removes a thread. Threads that the thread creates from now on inherit its
    /// membership.
    pub fn set_recorded(&self, tid: u32, is_recorded: bool) {
        let Some(word) = self.threads.word(tid as usize / 64 * 8 % SCOPE_BYTES) else { return };
        let bit = 1 << (tid % 64);
        if is_recorded {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Generates the program that gives each new thread its creator's membership. `None`: the
    /// program is too long.
    pub fn generate_inheritance(&self, source: NewThreadSource) -> Option<Vec<u8>> {
        let maps = self.maps();
        let mut asm = Asm::default();
        let is_in = asm.new_label();
        match source {
            NewThreadSource::Argument { .. } => asm.load(6, 1, 0),
            NewThreadSource::Field { .. } => asm.mov(6, 1),
        }
        let (NewThreadSource::Argument { pid } | NewThreadSource::Field { pid }) = source;
        jump_if_current_member(&mut asm, maps, is_in);
        // The new thread's id may have belonged to a member.
        asm.load_sized(4, 0, 6, pid);
        load_word_address(&mut asm, maps);
        load_bit(&mut asm);
        asm.alui(alu::XOR, 1, -1);
        asm.atomic(ATOMIC_AND, 2, 0, 1);
        // Meanwhile, [`Self::add_cgroup_threads`] may have added the creator and its new thread; so
        // the program tests the creator again after it has cleared the bit.
        jump_if_current_member(&mut asm, maps, is_in);
        asm.exit_with(PASS);
        asm.place_label(is_in);
        asm.load_sized(4, 0, 6, pid);
        load_word_address(&mut asm, maps);
        load_bit(&mut asm);
        asm.atomic(ATOMIC_OR, 2, 0, 1);
        asm.exit_with(PASS);
        asm.bytes()
    }
}

/// The source, in `task:task_newtask`, of a new thread's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewThreadSource {
    /// The `task_struct` that is the first argument of the raw tracepoint.
    Argument {
        /// The offset of the id in `task_struct`.
        pid: i16,
    },
    /// The tracepoint's record.
    Field {
        /// The offset of the id in the record.
        pid: i16,
    },
}

impl NewThreadSource {
    /// Finds the id's offset in the argument; also returns the raw tracepoint's BTF type.
    pub fn find_argument(btf: &Btf) -> Option<(Self, u32)> {
        let task = btf.find(Class::Struct, "task_struct")?;
        let place = btf.find_member(task.id, "pid")?;
        let raw = btf.find(Class::Typedef, "btf_trace_task_newtask")?.id;
        let pid = i16::try_from(place.bit_offset / 8).ok()?;
        Some((Self::Argument { pid }, raw))
    }

    /// Finds the id's offset in the record.
    pub fn find_field(event: &Event) -> Option<Self> {
        let field = event.fields.iter().find(|field| field.name == "pid" && field.size == 4)?;
        i16::try_from(field.offset).ok().map(|pid| Self::Field { pid })
    }
}

/// Returns true if a field is the id of a thread that the event concerns. In other subsystems, a
/// pid may be a process id or another number.
pub(super) fn is_thread_id(event: &Event, field: &Field) -> bool {
    let is_number = matches!(field.kind, FieldShape::Integer(_)) && field.size == 4;
    let is_pid = field.name == "pid" || field.name.ends_with("_pid");
    let is_of_tasks = matches!(&*event.subsystem, "sched" | "signal" | "task");
    // `prev_pid` is the current thread of a switch.
    let is_said = is_of_tasks || field.type_text == "pid_t";
    is_number && is_pid && is_said && field.name != "prev_pid"
}

/// Jumps to `is_in` if the current thread is in the scope.
pub(super) fn jump_if_current_member(asm: &mut Asm, maps: ScopeMaps, is_in: Label) {
    let Some((cgroups_fd, count)) = maps.cgroups else {
        asm.call_kernel(GET_CURRENT_PID_TGID);
        lower_half(asm, 0);
        return jump_if_member(asm, maps, is_in);
    };
    let (is_member, is_known, is_out) = (asm.new_label(), asm.new_label(), asm.new_label());
    for index in 0..count {
        asm.load_map(1, cgroups_fd);
        asm.movi(2, index);
        asm.call_kernel(CURRENT_TASK_UNDER_CGROUP);
        asm.jumpi(jump::JEQ, 0, 1, is_member);
    }
    // The thread may have been a member and left the control group.
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    jump_if_member(asm, maps, is_known);
    asm.goto(is_out);
    asm.place_label(is_known);
    remove_current(asm, maps);
    asm.goto(is_out);
    asm.place_label(is_member);
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    jump_if_member(asm, maps, is_in);
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    load_word_address(asm, maps);
    load_bit(asm);
    asm.atomic(ATOMIC_OR, 2, 0, 1);
    asm.goto(is_in);
    asm.place_label(is_out);
}

/// Removes the current thread from the set.
fn remove_current(asm: &mut Asm, maps: ScopeMaps) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    load_word_address(asm, maps);
    load_bit(asm);
    asm.alui(alu::XOR, 1, -1);
    asm.atomic(ATOMIC_AND, 2, 0, 1);
}

/// Adds the current thread to the set.
pub(super) fn add_current(asm: &mut Asm, threads: ScopeMaps) {
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    load_word_address(asm, threads);
    load_bit(asm);
    asm.atomic(ATOMIC_OR, 2, 0, 1);
}

/// Removes the current thread from the set; r1 is nonzero if the thread was a member.
pub(super) fn take_current(asm: &mut Asm, threads: ScopeMaps) {
    let is_not = asm.new_label();
    asm.call_kernel(GET_CURRENT_PID_TGID);
    lower_half(asm, 0);
    load_word_address(asm, threads);
    load_bit(asm);
    asm.load(3, 2, 0);
    asm.mov(4, 1);
    asm.alu(alu::AND, 1, 3);
    asm.jumpi(jump::JEQ, 1, 0, is_not);
    asm.alui(alu::XOR, 4, -1);
    asm.atomic(ATOMIC_AND, 2, 0, 4);
    asm.place_label(is_not);
}

/// Jumps to `is_in` if the thread whose id is in r0 is in the set.
pub(super) fn jump_if_member(asm: &mut Asm, maps: ScopeMaps, is_in: Label) {
    load_word_address(asm, maps);
    load_bit(asm);
    asm.load(2, 2, 0);
    asm.jump(jump::JSET, 2, 1, is_in);
}

/// Loads into r2 the address of the word that has the bit of the thread in r0.
fn load_word_address(asm: &mut Asm, maps: ScopeMaps) {
    asm.mov(1, 0);
    asm.alui(alu::RSH, 1, 6);
    asm.alui(alu::LSH, 1, 3);
    asm.alui(alu::AND, 1, SCOPE_BYTES as i32 - 8);
    asm.load_map_value(2, maps.threads_fd);
    asm.alu(alu::ADD, 2, 1);
}

/// Loads the bit of the thread in r0 into r1, as a mask.
fn load_bit(asm: &mut Asm) {
    asm.alui(alu::AND, 0, 63);
    asm.movi(1, 1);
    asm.alu(alu::LSH, 1, 0);
}

fn lower_half(asm: &mut Asm, register: Register) {
    asm.alui(alu::LSH, register, 32);
    asm.alui(alu::RSH, register, 32);
}
