//! Instructions of one event, counted by stepping through it with ptrace(2): in a child, from the
//! first instruction of what is called for an event to the one behind its return.
//!
//! A trap makes the kernel abort a restartable sequence. So the thread's `rseq_cs` is cleared after
//! each step, as `tests/kill` does it. Instructions of the kernel are not counted, but how often it
//! is called is. Written for x86-64.

use super::clock::{Line, Unfenced};
use super::loops::Runner;
use super::results::{Path, Steps, StepsOnPath, Way};
use super::staged::Did;
use super::ways::{Contender, Scale};
use super::{BYTES, SIZES, geometry};
use crate::error::Result;

/// What an instruction is, if it is anything in particular.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// With a lock prefix, or an exchange with memory: atomic for all processors.
    Locked,
    /// lfence, mfence, sfence.
    Fence,
    /// rdtsc, rdtscp.
    Clock,
    /// syscall.
    System,
}

/// What the instruction in `code` is.
fn kind(code: &[u8]) -> Kind {
    // What may stand in front: lock, repetition, segments, sizes, REX.
    const SEGMENTS: [u8; 4] = [0x26, 0x2e, 0x36, 0x3e];
    let is_prefix = |byte: &u8| {
        SEGMENTS.contains(byte) || matches!(byte, 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
    };
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    if code[..prefixes].contains(&0xf0) {
        return Kind::Locked;
    }
    match code[prefixes..] {
        // xchg: with memory, unless its second byte names two registers.
        [0x86 | 0x87, second, ..] if second < 0xc0 => Kind::Locked,
        [0x0f, 0xae, second, ..] if second >= 0xe8 => Kind::Fence,
        [0x0f, 0x31, ..] | [0x0f, 0x01, 0xf9, ..] => Kind::Clock,
        [0x0f, 0x05, ..] => Kind::System,
        _ => Kind::Plain,
    }
}

impl Steps {
    fn count(&mut self, kind: Kind) {
        self.instructions += 1;
        match kind {
            Kind::Plain => {}
            Kind::Locked => self.locked += 1,
            Kind::Fence => self.fences += 1,
            Kind::Clock => self.clock_reads += 1,
            Kind::System => self.system_calls += 1,
        }
    }
}

/// Steps through so many events around each of so many switches; `None` where that is not allowed.
pub(super) fn step_way(
    cpu: usize,
    way: Way,
    (switches, around): (u32, u64),
) -> Result<Option<Vec<(Did, Steps)>>> {
    let scale = Scale { geometry: geometry(SIZES[0])?, cpus: cpu + 1, threads: 1 };
    // Stepping takes long; what it would make of the time is not asked about.
    let line = Line::slow();
    let contender = match way {
        Way::LocklessUnfenced => Contender::new(way, scale, Unfenced(line))?,
        _ => Contender::new(way, scale, line)?,
    };
    let mut runner = Runner::new(contender, BYTES);
    let mut found = Vec::new();
    for _ in 0..switches {
        let most = scale.geometry.sub_bytes();
        runner.until_switch(most);
        let events = runner.until_switch(most);
        runner.skip(events.saturating_sub(around / 2));
        let Some(steps) = tracee::step_through(&mut runner, around)? else { return Ok(None) };
        found.extend(steps);
    }
    Ok(Some(found))
}

/// What was stepped through, path by path.
pub(super) fn on_paths(way: Way, events: &[(Did, Steps)]) -> Vec<StepsOnPath> {
    let paths = [(Did::Recorded, Path::Fast), (Did::Switched, Path::Switch)];
    let on_path = |(did, path)| {
        let steps: Vec<Steps> =
            events.iter().filter(|event| event.0 == did).map(|event| event.1).collect();
        let times = |one: &&Steps| steps.iter().filter(|other| other == one).count();
        Some(StepsOnPath {
            way,
            path,
            events: steps.len() as u64,
            steps: *steps.iter().max_by_key(times)?,
            least: steps.iter().map(|one| one.instructions).min()?,
            most: steps.iter().map(|one| one.instructions).max()?,
        })
    };
    paths.into_iter().filter_map(on_path).collect()
}

mod tracee {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;

    use super::super::loops::Runner;
    use super::super::staged::Did;
    use super::{Steps, kind};
    use crate::error::{Error, Result};

    /// Most instructions of one child: a hundred times as many as it takes.
    const STEPS_MAX: u64 = 2_000_000;
    /// Longest instruction, in bytes.
    const CODE_BYTES: usize = 15;
    /// Offset of `rseq_cs` in `struct rseq` of linux/rseq.h.
    const RSEQ_CS: u64 = 8;

    /// A child that is traced, and ends with this.
    struct Tracee {
        pid: libc::pid_t,
        memory: File,
        has_ended: bool,
    }

    impl Drop for Tracee {
        fn drop(&mut self) {
            if !self.has_ended {
                crate::signals::kill(self.pid);
                // SAFETY: the child is ours, and nobody else waits for it.
                unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
            }
        }
    }

    fn last_error(what: &str) -> Error {
        Error::io(what)(io::Error::last_os_error())
    }

    impl Tracee {
        /// A child that does `body`, and stops before it; `None` where that is not allowed.
        ///
        /// # Safety
        /// `body` calls nothing that a child of a process with threads must not: it does not
        /// allocate, lock, or use files.
        unsafe fn fork(body: impl FnOnce()) -> Result<Option<Self>> {
            // SAFETY: the child goes on with system calls and `body`, for which the caller vouches.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: plain system calls; a child that nobody traces ends at once.
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
            let opened = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
            let mut tracee = Self {
                pid,
                memory: opened.map_err(Error::io("cannot open a child's memory"))?,
                has_ended: false,
            };
            if !tracee.wait(libc::SIGSTOP)? {
                return Ok(None);
            }
            // SAFETY: options are a number.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) };
            Ok(Some(tracee))
        }

        /// Waits until it stops with `signal`; false: it has ended.
        fn wait(&mut self, signal: i32) -> Result<bool> {
            let mut status = 0;
            // SAFETY: `status` is ours, and so is the child.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } != self.pid {
                return Err(last_error("waitpid"));
            }
            if !libc::WIFSTOPPED(status) {
                self.has_ended = true;
                return Ok(false);
            }
            match libc::WSTOPSIG(status) {
                stopped if stopped == signal => Ok(true),
                _ if crate::signals::stopped() => Err(Error::Interrupted),
                other => Err(Error::output("a child", format_args!("stopped by signal {other}"))),
            }
        }

        /// Executes one instruction; false: it has ended.
        fn step(&mut self) -> Result<bool> {
            if crate::signals::stopped() {
                return Err(Error::Interrupted);
            }
            // SAFETY: no memory of ours is involved.
            if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) } != 0 {
                return Err(last_error("ptrace"));
            }
            self.wait(libc::SIGTRAP)
        }

        fn registers(&self) -> Result<libc::user_regs_struct> {
            // SAFETY: the structure consists of integers.
            let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
            // SAFETY: the kernel fills in the structure, which is ours.
            let failed =
                unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) != 0 };
            if failed { Err(last_error("ptrace")) } else { Ok(registers) }
        }

        fn kind_at(&self, at: u64) -> Result<super::Kind> {
            let mut code = [0; CODE_BYTES];
            // Shorter where a mapping ends.
            let read = self.memory.read_at(&mut code, at);
            let count = read.map_err(Error::io("cannot read a child's code"))?;
            Ok(kind(&code[..count]))
        }

        /// Leaves the sequence that it is in: the kernel aborts one that is stepped through.
        fn leave_sequence(&self, area: u64) -> Result<()> {
            if area != 0 {
                let written = self.memory.write_all_at(&[0; 8], area + RSEQ_CS);
                written.map_err(Error::io("cannot write a child's memory"))?;
            }
            Ok(())
        }
    }

    /// Steps through `events` events: what became of each, and its instructions; `None` where
    /// ptrace is not allowed. The child's events are in the same buffers, which are shared memory,
    /// and are accounted for.
    pub(in crate::reserve) fn step_through(
        runner: &mut Runner,
        events: u64,
    ) -> Result<Option<Vec<(Did, Steps)>>> {
        let area = trackway_sys::thread::rseq_area() as u64;
        let ((record, writer), staged, first) = runner.stepped();
        let body = || {
            for number in first..first + events {
                staged.put(number);
                // SAFETY: the parts belong together, and the event is this thread's.
                unsafe { record(writer, staged) };
            }
        };
        // SAFETY: staging and recording neither allocate nor use files; the mutex is one that no
        // other thread can have, since there is none.
        let Some(mut tracee) = (unsafe { Tracee::fork(body)? }) else { return Ok(None) };
        let entry = record as usize as u64;
        let mut found = Vec::new();
        let mut event: Option<(u64, Steps)> = None;
        for _ in 0..STEPS_MAX {
            let registers = tracee.registers()?;
            let is_back = event.is_some_and(|(stack, _)| registers.rsp == stack + 8);
            if let Some((_, steps)) = event.take_if(|_| is_back) {
                let did = match registers.rax as u32 {
                    1 => Did::Recorded,
                    2 => Did::Switched,
                    _ => Did::Lost,
                };
                found.push((did, steps));
            }
            if event.is_none() && registers.rip == entry {
                event = Some((registers.rsp, Steps::default()));
            }
            if let Some((_, steps)) = &mut event {
                steps.count(tracee.kind_at(registers.rip)?);
            }
            if !tracee.step()? {
                break;
            }
            tracee.leave_sequence(area)?;
        }
        drop(tracee);
        let mut tally = super::super::results::Tally { emitted: events, ..Default::default() };
        for (did, _) in &found {
            tally.recorded += u64::from(*did != Did::Lost);
            tally.switches += u64::from(*did == Did::Switched);
        }
        runner.account_for(&tally);
        runner.check()?;
        if found.len() as u64 != events {
            return Err(Error::output("stepping", format_args!("found {} events", found.len())));
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_apart() {
        let expected: [(&[u8], Kind); 13] = [
            (&[0x90], Kind::Plain),
            (&[0x48, 0x89, 0x07], Kind::Plain),
            // lock cmpxchg [rdx], rcx; lock xadd; gs: lock or.
            (&[0xf0, 0x48, 0x0f, 0xb1, 0x0a], Kind::Locked),
            (&[0xf0, 0x48, 0x0f, 0xc1, 0x02], Kind::Locked),
            (&[0x65, 0xf0, 0x83, 0x0c, 0x24, 0x00], Kind::Locked),
            // xchg with memory; xchg of two registers.
            (&[0x48, 0x87, 0x07], Kind::Locked),
            (&[0x48, 0x87, 0xd8], Kind::Plain),
            // lfence, mfence; xsave is none.
            (&[0x0f, 0xae, 0xe8], Kind::Fence),
            (&[0x0f, 0xae, 0xf0], Kind::Fence),
            (&[0x0f, 0xae, 0x27], Kind::Plain),
            (&[0x0f, 0x31], Kind::Clock),
            (&[0x0f, 0x05], Kind::System),
            (&[], Kind::Plain),
        ];
        for (code, told) in expected {
            assert_eq!(kind(code), told, "{code:x?}");
        }
    }

    #[test]
    fn most_steps_stand_for_their_path() {
        let steps = |instructions| Steps { instructions, ..Steps::default() };
        let events = [
            (Did::Recorded, steps(90)),
            (Did::Switched, steps(250)),
            (Did::Recorded, steps(95)),
            (Did::Recorded, steps(90)),
            (Did::Lost, steps(1)),
        ];
        let found = on_paths(Way::Claim, &events);
        let told = found.iter().map(|one| (one.path, one.events, one.steps.instructions, one.most));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(Path::Fast, 3, 90, 95), (Path::Switch, 1, 250, 250)]
        );
    }

    #[test]
    fn instructions_of_ways_are_counted() {
        // Few: code that is not optimised has twenty times as many instructions.
        const FEW: (u32, u64) = (1, 4);
        let cpu = crate::machine::allowed_cpus().expect("CPUs")[0];
        for way in Way::ALL.into_iter().filter(|way| super::super::ways::missing(*way).is_none()) {
            let stepped = super::super::on(cpu, || step_way(cpu, way, FEW)).expect("stepping");
            let Some(events) = stepped else {
                eprintln!("skipped, because ptrace is not allowed here");
                return;
            };
            let found = on_paths(way, &events);
            let [fast, switch] = found[..] else { panic!("{way:?}: {found:?}") };
            assert!(fast.steps.instructions > 30, "{fast:?}");
            assert!(switch.steps.instructions > fast.steps.instructions, "{found:?}");
            assert_eq!(switch.events, 1, "{found:?}");
            let is_locked = !matches!(way, Way::Nothing | Way::Rseq | Way::Signals);
            assert_eq!(fast.steps.locked > 0, is_locked, "{fast:?}");
            let system_calls = if way == Way::Signals { 2 } else { 0 };
            assert_eq!(fast.steps.system_calls, system_calls, "{fast:?}");
            assert_eq!(fast.steps.fences, u64::from(way == Way::Lockless), "{fast:?}");
            assert_eq!(fast.steps.clock_reads, 1, "{fast:?}");
        }
    }
}
