//! A process that is stepped through with ptrace(2), instruction by instruction: a child of this
//! process, or another program.
//!
//! A trap makes the kernel abort a restartable sequence. So the thread's `rseq_cs` is cleared after
//! each step, as in `tests/kill`. Kernel instructions are not visible. Written for x86-64.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

/// Longest instruction, in bytes.
const INSTRUCTION_BYTES_MAX: usize = 15;
/// Offset of `rseq_cs` in `struct rseq` of linux/rseq.h.
const RSEQ_CS_OFFSET: u64 = 8;

/// A traced process. When this value is dropped, a child of this process is ended, and any other is
/// released.
#[derive(Debug)]
pub struct Tracee {
    pid: libc::pid_t,
    memory: File,
    is_child: bool,
    has_ended: bool,
}

/// The registers of a stopped process that stepping needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Address of the next instruction.
    pub instruction: u64,
    /// Stack pointer.
    pub stack: u64,
    /// The register that holds the result of calls.
    pub returned: u64,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if self.is_child {
            crate::signals::kill_child(self.pid);
            // SAFETY: the child is ours, and no other code waits for it.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
        } else {
            // SAFETY: no memory of ours is involved. Fails if the process has ended.
            unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, 0) };
        }
    }
}

fn last_error(what: &str) -> Error {
    Error::io(what)(io::Error::last_os_error())
}

fn open_memory(pid: libc::pid_t) -> Result<File> {
    let opened = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    opened.map_err(Error::io("cannot open a process's memory"))
}

impl Tracee {
    /// Makes a child that stops before it runs `body`; `None` if ptrace is not allowed.
    ///
    /// # Safety
    /// `body` calls nothing that a child of a process with threads must not: it does not
    /// allocate, lock, or use files.
    #[cfg(target_arch = "x86_64")] // its callers are for x86-64 only
    pub unsafe fn fork(body: impl FnOnce()) -> Result<Option<Self>> {
        // SAFETY: the child runs only system calls and `body`, for which the caller vouches.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: plain system calls; a child that no process traces ends at once.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                    libc::_exit(1);
                }
                libc::raise(libc::SIGSTOP);
            }
            body();
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(0) };
        }
        if pid < 0 {
            return Err(last_error("cannot fork"));
        }
        let mut tracee = Self { pid, memory: open_memory(pid)?, is_child: true, has_ended: false };
        if !tracee.wait(libc::SIGSTOP)? {
            return Ok(None);
        }
        // SAFETY: options are a number.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) };
        Ok(Some(tracee))
    }

    /// Attaches to the first thread of a running program, which stops; `None` if ptrace is not
    /// allowed.
    pub fn attach(pid: u32) -> Result<Option<Self>> {
        let pid = pid.cast_signed();
        // SAFETY: no memory of ours is involved in any of these.
        unsafe {
            if libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) != 0 {
                let error = io::Error::last_os_error();
                let is_refused = error.raw_os_error() == Some(libc::EPERM);
                return if is_refused { Ok(None) } else { Err(Error::io("ptrace")(error)) };
            }
            if libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) != 0 {
                return Err(last_error("ptrace"));
            }
        }
        let mut tracee = Self { pid, memory: open_memory(pid)?, is_child: false, has_ended: false };
        if tracee.wait(libc::SIGTRAP)? {
            return Ok(Some(tracee));
        }
        Err(Error::output("a program", "it ended before it was stepped through"))
    }

    /// Waits until the process stops with `signal`; returns false if the process has ended.
    fn wait(&mut self, signal: i32) -> Result<bool> {
        let mut status = 0;
        // SAFETY: `status` is ours, and we trace the process.
        if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } != self.pid {
            return Err(last_error("waitpid"));
        }
        if !libc::WIFSTOPPED(status) {
            self.has_ended = true;
            return Ok(false);
        }
        match libc::WSTOPSIG(status) {
            stopped if stopped == signal => Ok(true),
            _ if crate::signals::is_stopped() => Err(Error::Interrupted),
            other => Err(Error::output("a process", format_args!("stopped by signal {other}"))),
        }
    }

    /// Executes one instruction of the process; returns false if the process has ended.
    pub fn step(&mut self) -> Result<bool> {
        if crate::signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        // SAFETY: no memory of ours is involved.
        if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) } != 0 {
            return Err(last_error("ptrace"));
        }
        self.wait(libc::SIGTRAP)
    }

    /// Returns the position of the process.
    ///
    /// # Errors
    ///
    /// On processors other than x86-64, whose instructions [`Self::code_at`] cannot decode either.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn at(&self) -> Result<Position> {
        Err(Error::output("ptrace", "instructions are told apart on x86-64 only"))
    }

    /// Returns the position of the process.
    #[cfg(target_arch = "x86_64")]
    pub fn at(&self) -> Result<Position> {
        // SAFETY: the structure consists of integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in the structure, which is ours.
        let failed =
            unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) != 0 };
        if failed {
            return Err(last_error("ptrace"));
        }
        Ok(Position { instruction: registers.rip, stack: registers.rsp, returned: registers.rax })
    }

    /// Returns the kind of the instruction at an address, and its first two bytes.
    pub fn code_at(&self, address: u64) -> Result<(InstructionKind, [u8; 2])> {
        let mut code = [0; INSTRUCTION_BYTES_MAX];
        // The read is short at the end of a mapping.
        let read = self.memory.read_at(&mut code, address);
        let count = read.map_err(Error::io("cannot read a process's code"))?;
        Ok((classify_instruction(&code[..count]), [code[0], code[1]]))
    }

    /// Writes to the memory of the process.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = self.memory.write_all_at(bytes, address);
        written.map_err(Error::io("cannot write a process's memory"))
    }

    /// Clears `rseq_cs` of the thread: the kernel aborts a restartable sequence that is stepped
    /// through. `area` is the address of the thread's `struct rseq`, or 0.
    pub fn leave_sequence(&self, area: u64) -> Result<()> {
        if area == 0 { Ok(()) } else { self.write(area + RSEQ_CS_OFFSET, &[0; 8]) }
    }
}

/// The kind of an instruction that stepping distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionKind {
    /// An instruction of no other kind.
    Plain,
    /// An instruction with a lock prefix, or an exchange with memory: atomic for all processors.
    Locked,
    /// The instruction lfence, mfence or sfence.
    Fence,
    /// The instruction rdtsc or rdtscp.
    Clock,
    /// The instruction syscall.
    System,
}

/// Classifies the instruction in `code`.
pub fn classify_instruction(code: &[u8]) -> InstructionKind {
    // Prefixes that precede an opcode: lock, repetition, segments, sizes, REX.
    const SEGMENTS: [u8; 4] = [0x26, 0x2e, 0x36, 0x3e];
    let is_prefix = |byte: &u8| {
        SEGMENTS.contains(byte) || matches!(byte, 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
    };
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    if code[..prefixes].contains(&0xf0) {
        return InstructionKind::Locked;
    }
    match code[prefixes..] {
        // xchg accesses memory, unless its second byte names two registers.
        [0x86 | 0x87, second, ..] if second < 0xc0 => InstructionKind::Locked,
        [0x0f, 0xae, second, ..] if second >= 0xe8 => InstructionKind::Fence,
        [0x0f, 0x31, ..] | [0x0f, 0x01, 0xf9, ..] => InstructionKind::Clock,
        [0x0f, 0x05, ..] => InstructionKind::System,
        _ => InstructionKind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_apart() {
        let expected: [(&[u8], InstructionKind); 13] = [
            (&[0x90], InstructionKind::Plain),
            (&[0x48, 0x89, 0x07], InstructionKind::Plain),
            // lock cmpxchg [rdx], rcx; lock xadd; gs: lock or.
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x0a], InstructionKind::Locked),
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x02], InstructionKind::Locked),
            (&[0x65, 0xf0, 0x83, 0x0c, 0x24, 0x00], InstructionKind::Locked),
            // xchg with memory; xchg of two registers.
            (&[0x48, 0x87, 0x07], InstructionKind::Locked),
            (&[0x48, 0x87, 0xd8], InstructionKind::Plain),
            // lfence and mfence are fences; xsave is not.
            (&[0x0f, 0xae, 0xe8], InstructionKind::Fence),
            (&[0x0f, 0xae, 0xf0], InstructionKind::Fence),
            (&[0x0f, 0xae, 0x27], InstructionKind::Plain),
            (&[0x0f, 0x31], InstructionKind::Clock),
            (&[0x0f, 0x05], InstructionKind::System),
            (&[], InstructionKind::Plain),
        ];
        for (code, told) in expected {
            assert_eq!(classify_instruction(code), told, "{code:x?}");
        }
    }
}
