//! A process that is stepped through by ptrace(2), and whose state is saved and restored.
//!
//! A step is a trap, and a trap makes the kernel abort a restartable sequence. So the tracer clears
//! the thread's `rseq_cs` word whenever it is set ([`Tracee::sequence`] keeps its value): the
//! sequence continues as if it were not traced. To abort a sequence, the tracer acts like the
//! kernel: it moves the instruction pointer to the sequence's abort handler.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Offset of `rseq_cs` in `struct rseq`.
const RSEQ_CS_OFFSET: u64 = 8;
/// Size of `struct rseq_cs`: version and flags, start, length, abort handler.
const DESCRIPTOR_BYTES: usize = 32;
const PAGE_BYTES: u64 = 4096;
/// Processor time that a process may take, including steps.
const CPU_SECONDS_MAX: u64 = 600;
/// The breakpoint instruction.
const INT3: u8 = 0xcc;
/// Size that is enough for the vector registers of any processor.
const VECTOR_REGISTERS_BYTES: usize = 16 << 10;
/// Value of `NT_X86_XSTATE` in elf.h.
const NT_X86_XSTATE: usize = 0x202;

/// The reason for a stop of a process.
pub(crate) enum StopReason {
    /// The process stopped at a breakpoint, or after a step.
    Trap,
    /// The process stopped by another signal.
    Signal(i32),
    /// The process has ended with this wait status.
    Ended(i32),
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trap => formatter.write_str("a trap"),
            Self::Signal(signal) => write!(formatter, "signal {signal}"),
            Self::Ended(status) => write!(formatter, "its end, with wait status {status:#x}"),
        }
    }
}

/// A restartable sequence that a thread has entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActiveSequence {
    /// Address of the sequence's descriptor.
    pub(crate) descriptor: u64,
    /// Address of the sequence's first instruction.
    pub(crate) start: u64,
    /// Address after the sequence's last instruction.
    pub(crate) end: u64,
    /// Address of the sequence's abort handler.
    pub(crate) abort: u64,
}

impl ActiveSequence {
    /// Returns true if the kernel would abort a thread that is preempted before the instruction at
    /// `at`.
    pub(crate) fn is_live_at(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }
}

/// A traced process with one thread, which is traced by the thread that started it.
pub(crate) struct Tracee {
    pid: libc::pid_t,
    /// The process of a program; `None` for a fork child.
    child: Option<Child>,
    memory: File,
    /// The process's pagemap, which shows the present pages.
    pages: File,
    /// Addresses of the vDSO in the process.
    vdso: Range<u64>,
    /// Address of the thread's rseq area; 0 if there is none.
    pub(crate) area: u64,
    has_ended: bool,
}

/// A process's private state: its registers and its private memory.
pub(crate) struct ProcessCheckpoint {
    registers: libc::user_regs_struct,
    vectors: Vec<u8>,
    memory: Vec<(u64, Vec<u8>)>,
    /// Pages that were not present yet, and contain only zeros.
    absent: Vec<Range<u64>>,
}

fn check_syscall(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the parent trace the calling process, and limits its CPU time.
fn request_tracing() -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: CPU_SECONDS_MAX, rlim_max: CPU_SECONDS_MAX };
    // SAFETY: the limit is ours; a plain system call.
    check_syscall(unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) }.into())?;
    // SAFETY: PTRACE_TRACEME takes no memory of ours; it is a plain system call, good after fork.
    check_syscall(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) })
}

/// Returns the reason if processes cannot be traced on this machine.
pub(crate) fn ptrace_obstacle() -> Option<String> {
    let mut command = Command::new("true");
    match Tracee::spawn(&mut command, 0) {
        Ok(_) => None,
        Err(error) => Some(format!("ptrace is not allowed here: {error}")),
    }
}

impl Tracee {
    /// Starts `command` on CPU `cpu`, stopped before its first instruction.
    ///
    /// # Errors
    /// If processes may not be traced on this machine.
    pub(crate) fn spawn(command: &mut Command, cpu: usize) -> io::Result<Self> {
        // SAFETY: the calls between fork and exec are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                pin_to_cpu(cpu)?;
                request_tracing()
            });
        }
        let child = command.spawn()?;
        let pid = child.id().cast_signed();
        Self::begin(pid, Some(child))
    }

    /// Forks a child process that runs `body` on CPU `cpu` and ends; the child stops before `body`.
    ///
    /// # Safety
    /// The process may have other threads: `body` allocates nothing and takes no lock.
    pub(crate) unsafe fn fork(cpu: usize, body: impl FnOnce()) -> io::Result<Self> {
        // SAFETY: the child calls only async-signal-safe functions (the caller's promise), then
        // ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: plain system calls.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if pin_to_cpu(cpu).is_err() || request_tracing().is_err() {
                    libc::_exit(1);
                }
                libc::raise(libc::SIGTRAP);
            }
            body();
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(0) };
        }
        check_syscall(pid.into())?;
        Self::begin(pid, None)
    }

    fn begin(pid: libc::pid_t, child: Option<Child>) -> io::Result<Self> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let pages = File::open(format!("/proc/{pid}/pagemap"))?;
        let vdso = 0..0;
        let mut tracee = Self { pid, child, memory, pages, vdso, area: 0, has_ended: false };
        match tracee.wait() {
            StopReason::Trap => {}
            other => return Err(io::Error::other(format!("it did not stop: {other}"))),
        }
        // SAFETY: options are a number.
        check_syscall(unsafe {
            libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL as usize)
        })?;
        let vdso = tracee.mappings().into_iter().find(|(_, line)| line.ends_with("[vdso]"));
        tracee.vdso = vdso.map_or(0..0, |(range, _)| range);
        Ok(tracee)
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.cast_unsigned()
    }

    fn wait(&mut self) -> StopReason {
        let mut status = 0;
        // SAFETY: `status` is ours.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        assert_eq!(pid, self.pid, "waitpid: {}", io::Error::last_os_error());
        if !libc::WIFSTOPPED(status) {
            self.has_ended = true;
            return StopReason::Ended(status);
        }
        match libc::WSTOPSIG(status) {
            libc::SIGTRAP => StopReason::Trap,
            signal => StopReason::Signal(signal),
        }
    }

    fn go_on(&mut self, request: libc::c_uint, signal: i32) -> StopReason {
        // SAFETY: the signal is a number.
        let result = check_syscall(unsafe { libc::ptrace(request, self.pid, 0, signal as usize) });
        result.unwrap_or_else(|error| panic!("cannot go on: {error}"));
        self.wait()
    }

    /// Executes one instruction, or in the vDSO (the clock) the whole function: the function starts
    /// again whenever the kernel's clock has ticked, and stepping is slow.
    pub(crate) fn step(&mut self) {
        let stopped = self.go_on(libc::PTRACE_SINGLESTEP, 0);
        assert!(matches!(stopped, StopReason::Trap), "a step ended with {stopped}");
        let mut registers = self.registers();
        if !self.vdso.contains(&registers.rip) {
            return;
        }
        let back = self.load_word(registers.rsp);
        let mut instruction = [0];
        self.load(back, &mut instruction);
        self.store(back, &[INT3]);
        self.run(0).expect("the vDSO comes back");
        self.store(back, &instruction);
        registers = self.registers();
        assert_eq!(registers.rip, back + 1, "the vDSO comes back to its caller");
        registers.rip = back;
        self.set_registers(&registers);
    }

    /// Runs the process to its next breakpoint, with `signal` at once if not zero.
    pub(crate) fn run(&mut self, signal: i32) -> Result<(), String> {
        match self.go_on(libc::PTRACE_CONT, signal) {
            StopReason::Trap => Ok(()),
            other => {
                let at = if self.has_ended { 0 } else { self.registers().rip };
                Err(format!("the writer stopped at {at:#x}: {other}"))
            }
        }
    }

    /// Kills the process, and waits until it is dead.
    pub(crate) fn kill(&mut self) {
        if self.has_ended {
            return;
        }
        // SAFETY: kill has no memory of ours; the process is ours and was not waited for yet.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        while !self.has_ended {
            self.wait();
        }
    }

    /// Returns the registers of the process.
    pub(crate) fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: the structure consists of integers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in the structure, which is ours.
        let result = check_syscall(unsafe {
            libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers)
        });
        result.expect("the registers of a stopped process");
        registers
    }

    /// Sets the registers of the process.
    pub(crate) fn set_registers(&self, registers: &libc::user_regs_struct) {
        // SAFETY: the kernel reads the structure.
        let result = check_syscall(unsafe {
            libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, &raw const *registers)
        });
        result.expect("the registers of a stopped process are set");
    }

    /// Returns the vector registers, in the processor's form.
    fn vectors(&self) -> Vec<u8> {
        let mut bytes = vec![0; VECTOR_REGISTERS_BYTES];
        let mut place = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the buffer has the length in the iovec.
        let result = check_syscall(unsafe {
            libc::ptrace(libc::PTRACE_GETREGSET, self.pid, NT_X86_XSTATE, &raw mut place)
        });
        result.expect("the vector registers of a stopped process");
        bytes.truncate(place.iov_len);
        bytes
    }

    fn set_vectors(&self, bytes: &[u8]) {
        let mut place =
            libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the kernel reads the buffer, which has the length in the iovec.
        let result = check_syscall(unsafe {
            libc::ptrace(libc::PTRACE_SETREGSET, self.pid, NT_X86_XSTATE, &raw mut place)
        });
        result.expect("the vector registers of a stopped process are set");
    }

    /// Copies memory of the process.
    pub(crate) fn load(&self, at: u64, into: &mut [u8]) {
        self.memory.read_exact_at(into, at).expect("the memory of a stopped process");
    }

    fn load_word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.load(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("the memory of a stopped process");
    }

    /// Returns the restartable sequence that the thread has entered, if its `rseq_cs` word is set.
    pub(crate) fn sequence(&self) -> Option<ActiveSequence> {
        if self.area == 0 {
            return None;
        }
        let descriptor = self.load_word(self.area + RSEQ_CS_OFFSET);
        if descriptor == 0 {
            return None;
        }
        let mut bytes = [0; DESCRIPTOR_BYTES];
        self.load(descriptor, &mut bytes);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("a word"));
        let (start, length, abort) = (word(8), word(16), word(24));
        Some(ActiveSequence { descriptor, start, end: start + length, abort })
    }

    /// Sets the word that refers to a sequence's descriptor; 0 for none.
    pub(crate) fn set_sequence(&self, descriptor: u64) {
        self.store(self.area + RSEQ_CS_OFFSET, &descriptor.to_le_bytes());
    }

    /// Moves the thread to the abort handler of `sequence`, like the kernel.
    pub(crate) fn abort(&self, sequence: &ActiveSequence) {
        let mut registers = self.registers();
        registers.rip = sequence.abort;
        self.set_registers(&registers);
        self.set_sequence(0);
    }

    /// Returns true if the next instruction is a breakpoint.
    pub(crate) fn is_at_breakpoint(&self) -> bool {
        let mut byte = [0];
        self.load(self.registers().rip, &mut byte);
        byte == [INT3]
    }

    /// Returns the memory mappings, each with its line of proc(5)'s `maps`.
    fn mappings(&self) -> Vec<(Range<u64>, String)> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("its maps");
        let parse = |line: &str| {
            let (from, to) = line.split_ascii_whitespace().next()?.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(from)?..number(to)?, line.to_owned()))
        };
        maps.lines().filter_map(parse).collect()
    }

    /// Returns the ranges of private memory, and for each range true if it has no file.
    fn private_memory(&self) -> Vec<(Range<u64>, bool)> {
        let mut mappings = self.mappings();
        mappings.retain(|(_, line)| line.contains(" rw-p "));
        mappings.into_iter().map(|(range, line)| (range, !line.contains(" /"))).collect()
    }

    /// Splits the range where present pages meet absent ones; returns the pieces, with true for
    /// present ones.
    fn cut(&self, range: &Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut entries = vec![0; (range.end - range.start) as usize / PAGE_BYTES as usize * 8];
        self.pages.read_exact_at(&mut entries, range.start / PAGE_BYTES * 8).expect("its page map");
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        for (page, entry) in (0..).zip(entries.chunks(8)) {
            // Bits 63 and 62: present, swapped.
            let (at, is_there) = (range.start + page * PAGE_BYTES, entry[7] & 0xc0 != 0);
            match parts.last_mut() {
                Some((part, same)) if *same == is_there => part.end = at + PAGE_BYTES,
                _ => parts.push((at..at + PAGE_BYTES, is_there)),
            }
        }
        parts
    }

    /// Returns the private state of the process.
    pub(crate) fn checkpoint(&self) -> ProcessCheckpoint {
        let (mut memory, mut absent) = (Vec::new(), Vec::new());
        for (range, is_anonymous) in self.private_memory() {
            let parts = if is_anonymous { self.cut(&range) } else { vec![(range, true)] };
            for (part, is_there) in parts {
                if is_there {
                    let mut bytes = vec![0; (part.end - part.start) as usize];
                    self.load(part.start, &mut bytes);
                    memory.push((part.start, bytes));
                } else {
                    absent.push(part);
                }
            }
        }
        ProcessCheckpoint { registers: self.registers(), vectors: self.vectors(), memory, absent }
    }

    /// Restores the private state of the process.
    pub(crate) fn restore(&self, checkpoint: &ProcessCheckpoint) {
        for (at, bytes) in &checkpoint.memory {
            self.store(*at, bytes);
        }
        for range in &checkpoint.absent {
            for (part, _) in self.cut(range).iter().filter(|(_, is_there)| *is_there) {
                self.store(part.start, &vec![0; (part.end - part.start) as usize]);
            }
        }
        self.set_vectors(&checkpoint.vectors);
        self.set_registers(&checkpoint.registers);
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.kill();
        // The process was waited for; std would wait again.
        drop(self.child.take());
    }
}

/// Keeps the calling thread on one CPU.
fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    // SAFETY: the set is ours, and the number is bounded by the macro's own check.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    check_syscall(result.into())
}
