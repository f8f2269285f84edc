//! Preemption state of the running thread: whether the kernel may preempt, interrupt or migrate the
//! thread, and whether the thread must leave its CPU.
//!
//! The kernel's types reveal only a part of this state, and not the changes that tracepoints make
//! before a program runs. So the recorder probes the state once, when the user requests such a
//! context: programs observe a thread of the recorder in a known state. A context whose probe fails
//! is not available.
//!
//! * *The CPU's preemption counter* (`preempt_count()`) is a per-CPU variable. The address of its
//!   symbol is mostly unavailable (CONFIG_KALLSYMS_ALL). The kernel's types give its distance from
//!   the CPU's run queue, to which the running thread points. The probe checks two neighbouring
//!   variables, the CPU and the thread, and disables preemption once more.
//! * *The bit that makes a thread leave its CPU* has another number since Linux 6.18 (4, before 3),
//!   which no type reveals. A thread that moves to another CPU wakes a stopper thread, and must
//!   leave its CPU for the stopper: between these two events the bit is set.
//! * *The interrupt flag* is in the processor's flags, which the kernel returns when a program
//!   disables interrupts for a moment (since Linux 6.14).

use std::sync::atomic::Ordering;

use trackway_jit::insn::{alu, jump};
use trackway_sys::thread::{CpuSet, current_tid};

use super::attach::{AttachedProgram, LoadedProgram};
use super::codegen::{PASS, STACK, helper, stack};
use super::contexts::{follow_pointers, member_offset, read_to_stack};
use super::kernel_version::PreemptionGuard;
use crate::bpf_sys::asm::{Asm, Register};
use crate::bpf_sys::mapped::MappedArray;
use crate::catalogue::btf::{Btf, Class, SectionVariable};

/// The section of per-CPU variables.
const SECTION: &str = ".data..percpu";
/// The counter's bit for a thread that need not leave its CPU (PREEMPT_NEED_RESCHED, inverted).
const NEED_NOT_RESCHED: u64 = 1 << 31;
/// The increment of the counter by a tracepoint, which disables preemption while its programs run.
pub(super) const TRACEPOINT_PREEMPTION_COUNT: i32 = 1;
/// RFLAGS.IF.
pub(super) const INTERRUPT_FLAG_BIT: i32 = 9;
/// Most CPUs to which the probe moves, and most rounds over all CPUs.
const CPUS_MAX: u32 = 1024;
const TRIES_MAX: usize = 8;
/// The beginning of the names of stopper threads (`migration/N`).
const STOPPER_NAME: u64 = u64::from_le_bytes(*b"migratio");

/// BTF ids of the kernel functions that disable interrupts and return the previous flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interrupts {
    save: i32,
    restore: i32,
}

impl Interrupts {
    pub(super) fn find(btf: &Btf) -> Option<Self> {
        let of = |name: &str| i32::try_from(btf.find(Class::Func, name)?.id).ok();
        Some(Self { save: of("bpf_local_irq_save")?, restore: of("bpf_local_irq_restore")? })
    }

    /// Loads the processor's flags into a register. (Since Linux 6.3, programs may read stack slots
    /// that they have written, even slots that the verifier considers invalid.)
    pub(super) fn load(self, asm: &mut Asm, into: Register) {
        for function in [self.save, self.restore] {
            asm.mov(1, STACK);
            asm.alui(alu::ADD, 1, stack::KEY_WIDE.into());
            asm.call_kernel_function(function);
        }
        asm.load(into, STACK, stack::KEY_WIDE);
    }
}

/// The path to a CPU's preemption counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CounterPath {
    /// Pointers from the thread to the CPU's run queue.
    pub(super) pointers: Vec<i16>,
    /// The counter's offset from the run queue.
    pub(super) count: i32,
    /// Offsets of the CPU's number and of the CPU's current thread.
    cpu: i32,
    task: i32,
}

impl CounterPath {
    fn find(btf: &Btf) -> Option<Self> {
        let section = btf.find(Class::Datasec, SECTION)?;
        let place = |name: &str| {
            let is_it =
                |of: &SectionVariable| btf.get(of.type_id).is_some_and(|of| of.name == name);
            i32::try_from(btf.section_variables(&section).find(is_it)?.offset).ok()
        };
        let queue = place("runqueues")?;
        // From Linux 6.2 to 6.14, one structure contains all these variables.
        let hot = |name: &str| {
            place("pcpu_hot")?.checked_add(member_offset(btf, "pcpu_hot", name)?.into())
        };
        let of = |name: &str, of_hot: &str| Some(place(name).or_else(|| hot(of_hot))? - queue);
        Some(Self {
            pointers: vec![
                member_offset(btf, "task_struct", "se.cfs_rq")?,
                member_offset(btf, "cfs_rq", "rq")?,
            ],
            count: of("__preempt_count", "preempt_count")?,
            cpu: of("cpu_number", "cpu_number")?,
            task: of("current_task", "current_task")?,
        })
    }
}

/// The locations of the preemption state, or the reasons why they are unknown.
#[derive(Debug, Clone)]
pub(super) struct Preemption {
    pub(super) count: Result<CounterPath, &'static str>,
    pub(super) interrupts: Result<Interrupts, &'static str>,
    /// The offset of a thread's flags, and the bit that makes the thread leave its CPU.
    pub(super) resched_bit: Result<(i16, u8), &'static str>,
    /// The offset of a thread's migration counter.
    pub(super) migration_count: Result<i16, &'static str>,
}

/// Words of the map that a probe writes.
mod word {
    pub(super) const IS_WRITTEN: i32 = 0;
    pub(super) const FLAGS: i32 = 1;
    pub(super) const MIGRATION_COUNT: i32 = 2;
    pub(super) const TASK: i32 = 3;
    pub(super) const CPU: i32 = 4;
    pub(super) const NEIGHBOUR_TASK: i32 = 5;
    pub(super) const NEIGHBOUR_CPU: i32 = 6;
    pub(super) const COUNT: i32 = 7;
    pub(super) const COUNT_NESTED: i32 = 8;
    pub(super) const PROCESSOR_FLAGS: i32 = 9;
    pub(super) const ALL: usize = 16;
}

/// The observed events: a thread starts another thread, and makes a system call, both in a known
/// state; and the thread wakes its stopper.
const EVENTS: [&str; 4] = ["sched_process_fork", "sys_enter", "sched_waking", "sched_wakeup"];
const FORK: usize = 0;
const SYSTEM_CALL: usize = 1;
const WAKING: usize = 2;
const WAKEUP: usize = 3;

/// The locations that probes read.
#[derive(Debug, Clone)]
struct PreemptionProbe {
    events: [Option<u32>; EVENTS.len()],
    name: Option<i16>,
    flags: Option<i16>,
    migration_count: Option<i16>,
    path: Option<CounterPath>,
    interrupts: Option<Interrupts>,
    /// The guard that each probe needs.
    guard: Option<PreemptionGuard>,
    /// The guard that disables preemption once more.
    nested_guard: Option<PreemptionGuard>,
}

/// The map with the observations.
struct Observations(MappedArray);

impl Observations {
    fn word(&self, event: usize, word: i32) -> u64 {
        let at = self.0.word(word_offset(event, word) as usize);
        // The probes have run in this thread's own system calls, which have ended.
        at.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn is_written(&self, event: usize) -> bool {
        self.word(event, word::IS_WRITTEN) != 0
    }

    /// Checks that interrupts were enabled, as expected, and disabled during a wake-up.
    fn check_interrupts(&self, event: usize) -> Result<(), &'static str> {
        let are_on = |event| self.word(event, word::PROCESSOR_FLAGS) >> INTERRUPT_FLAG_BIT & 1 == 1;
        let is_right = are_on(event) && !(self.is_written(WAKEUP) && are_on(WAKEUP));
        is_right.then_some(()).ok_or("its interrupt flag is not as expected")
    }

    /// Checks that the observed thread could migrate, as expected.
    fn check_movable(&self, event: usize) -> Result<(), &'static str> {
        let is_free = self.word(event, word::MIGRATION_COUNT) == 0;
        is_free.then_some(()).ok_or("its tracepoints forbid migration")
    }

    fn clear(&self, event: usize) {
        if let Some(word) = self.0.word(word_offset(event, word::IS_WRITTEN) as usize) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

const fn word_offset(event: usize, word: i32) -> i32 {
    (event * word::ALL) as i32 * 8 + word * 8
}

impl Preemption {
    /// Probes the running kernel.
    pub(super) fn probe(btf: &Btf) -> Self {
        let task = |member: &str| member_offset(btf, "task_struct", member);
        let of = |event: &str| Some(btf.find(Class::Typedef, &format!("btf_trace_{event}"))?.id);
        let Ok(guard) = PreemptionGuard::find_if_needed(btf) else {
            return Self::unknown("it preempts programs and has no bpf_preempt_disable");
        };
        let probe = PreemptionProbe {
            events: EVENTS.map(of),
            name: task("comm"),
            flags: task("thread_info.flags"),
            migration_count: task("migration_disabled"),
            path: CounterPath::find(btf),
            interrupts: Interrupts::find(btf),
            guard,
            nested_guard: PreemptionGuard::find(btf),
        };
        // A dedicated thread may move to any CPU.
        let probed = std::thread::Builder::new().spawn(move || probe.run());
        let probed = probed.ok().and_then(|thread| thread.join().ok());
        let probed = probed.unwrap_or(Err("a thread for the probe cannot be started"));
        probed.unwrap_or_else(Self::unknown)
    }

    fn unknown(why: &'static str) -> Self {
        Self {
            count: Err(why),
            interrupts: Err(why),
            resched_bit: Err(why),
            migration_count: Err(why),
        }
    }
}

/// An observation of the preemption counter.
struct CountObservation {
    /// The CPU and the thread, as helper functions report them.
    expected: [u64; 2],
    /// The CPU and the thread, from the counter's neighbouring variables.
    neighbours: [u64; 2],
    count: u64,
    /// The counter while preemption was disabled once more, if possible.
    nested: Option<u64>,
}

/// Checks that the counter has the expected CPU, thread and increment.
fn check_count(of: &CountObservation) -> Result<(), &'static str> {
    if of.expected != of.neighbours {
        return Err("the CPU's preemption counter is not at the location in its types");
    }
    let count = of.count & !NEED_NOT_RESCHED;
    let counts = of.nested.is_none_or(|nested| nested & !NEED_NOT_RESCHED == count + 1);
    match i32::try_from(count) {
        Ok(TRACEPOINT_PREEMPTION_COUNT) if counts => Ok(()),
        Ok(0 | TRACEPOINT_PREEMPTION_COUNT) => Err("it does not count (CONFIG_PREEMPT_COUNT)"),
        _ => Err("the increment by its tracepoints is unknown"),
    }
}

/// Returns the one bit that was set between two observations of a thread's flags. `None`: the bit
/// was already set, or not exactly one bit was set.
fn bit_between(before: Option<u64>, after: Option<u64>) -> Option<u8> {
    let set = after? & !before?;
    set.is_power_of_two().then_some(set.trailing_zeros() as u8)
}

impl PreemptionProbe {
    /// Attaches the probes, runs the thread and evaluates the observations.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the probes.
    fn run(&self) -> Result<Preemption, &'static str> {
        let refused = "it rejects the program that would find it";
        let bytes = EVENTS.len() * word::ALL * 8;
        let observations = Observations(MappedArray::new(bytes, 1).map_err(|_| refused)?);
        let attach = |event: usize| -> Option<AttachedProgram> {
            let code = self.generate(event, observations.0.fd()).bytes()?;
            LoadedProgram::load_raw(&code, self.events[event]?).ok()?.attach_raw().ok()
        };
        let programs: Option<Vec<_>> = (0..EVENTS.len()).map(attach).collect();
        let programs = programs.ok_or(refused)?;
        // Starting a thread is a system call, too.
        let other = std::thread::Builder::new().spawn(|| ());
        let _ = other.map(std::thread::JoinHandle::join);
        if !observations.is_written(FORK) || !observations.is_written(SYSTEM_CALL) {
            return Err("no probe observed its own thread (in a pid namespace, ids differ)");
        }
        let resched_bit = self.find_resched_bit(&observations);
        drop(programs);
        let check_both = |check: &dyn Fn(usize) -> Result<(), &'static str>| {
            check(FORK).and_then(|()| check(SYSTEM_CALL))
        };
        let path = self
            .path
            .clone()
            .ok_or("its types do not give the location of the CPU's preemption counter");
        let interrupts = self.interrupts.ok_or("it has no bpf_local_irq_save (Linux 6.14 has)");
        let migration_count = self
            .migration_count
            .ok_or("its types do not give the location of a thread's migration counter");
        Ok(Preemption {
            count: path.and_then(|path| {
                check_both(&|event| self.check_counter(&observations, event)).map(|()| path)
            }),
            interrupts: interrupts.and_then(|of| {
                check_both(&|event| observations.check_interrupts(event)).map(|()| of)
            }),
            resched_bit,
            migration_count: migration_count
                .and_then(|at| check_both(&|event| observations.check_movable(event)).map(|()| at)),
        })
    }

    /// Checks the observations of the preemption counter.
    fn check_counter(&self, observations: &Observations, event: usize) -> Result<(), &'static str> {
        let of = |word| observations.word(event, word);
        check_count(&CountObservation {
            expected: [of(word::CPU), of(word::TASK)],
            neighbours: [of(word::NEIGHBOUR_CPU), of(word::NEIGHBOUR_TASK)],
            count: of(word::COUNT),
            nested: self.nested_guard.map(|_| of(word::COUNT_NESTED)),
        })
    }

    /// Finds the bit that makes a thread leave its CPU, by moving to other CPUs.
    fn find_resched_bit(&self, observations: &Observations) -> Result<(i16, u8), &'static str> {
        let flags = self.flags.ok_or("its types do not give the location of a thread's flags")?;
        for _ in 0..TRIES_MAX {
            for cpu in 0..CPUS_MAX {
                [WAKING, WAKEUP].into_iter().for_each(|event| observations.clear(event));
                if trackway_sys::thread::current_cpu() == cpu || CpuSet::only(cpu).apply().is_err()
                {
                    continue;
                }
                let [before, after] = [WAKING, WAKEUP].map(|event| {
                    observations.is_written(event).then(|| observations.word(event, word::FLAGS))
                });
                if let Some(bit) = bit_between(before, after) {
                    return Ok((flags, bit));
                }
            }
        }
        Err("no bit was observed (the probe needs two CPUs)")
    }

    /// Generates the probe of an event.
    fn generate(&self, event: usize, map_fd: i32) -> Asm {
        /// Registers of the thread and of the map's words.
        const TASK: Register = 8;
        const INTO: Register = 7;
        let mut asm = Asm::default();
        let out = asm.new_label();
        // The event's first argument: for wake-ups, the woken thread.
        asm.load(6, 1, 0);
        if let Some(guard) = self.guard {
            guard.begin(&mut asm);
        }
        asm.call_kernel(helper::GET_CURRENT_PID_TGID);
        asm.alui(alu::LSH, 0, 32);
        asm.alui(alu::RSH, 0, 32);
        asm.jumpi(jump::JNE, 0, current_tid().cast_signed(), out);
        if let (WAKING | WAKEUP, Some(name)) = (event, self.name) {
            asm.load(1, 6, name);
            asm.load_wide(2, STOPPER_NAME);
            asm.jump(jump::JNE, 1, 2, out);
        }
        asm.load_map_value_at(INTO, map_fd, word_offset(event, 0));
        let to = |word: i32| (word * 8) as i16;
        asm.load(1, INTO, to(word::IS_WRITTEN));
        asm.jumpi(jump::JNE, 1, 0, out);
        asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
        asm.mov(TASK, 0);
        asm.store(STACK, stack::TASK, TASK);
        asm.store(INTO, to(word::TASK), TASK);
        for (place, bytes, word) in
            [(self.flags, 4, word::FLAGS), (self.migration_count, 2, word::MIGRATION_COUNT)]
        {
            if let Some(place) = place {
                asm.load_sized(bytes, 1, TASK, place);
                asm.store(INTO, to(word), 1);
            }
        }
        asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
        asm.store(INTO, to(word::CPU), 0);
        if let Some(path) = &self.path {
            self.read_counter(&mut asm, path, INTO);
        }
        if let Some(interrupts) = self.interrupts {
            interrupts.load(&mut asm, 1);
            asm.store(INTO, to(word::PROCESSOR_FLAGS), 1);
        }
        asm.storei(INTO, to(word::IS_WRITTEN), 1);
        asm.place_label(out);
        if let Some(guard) = self.guard {
            guard.end(&mut asm);
        }
        asm.exit_with(PASS);
        asm
    }

    /// Reads the preemption counter and its neighbouring variables.
    fn read_counter(&self, asm: &mut Asm, path: &CounterPath, into: Register) {
        let word_of = |asm: &mut Asm, after: i32, bytes: i32, word: i32| {
            asm.load(3, STACK, stack::POINTER);
            asm.alui(alu::ADD, 3, after);
            asm.storei(STACK, stack::KEY_WIDE, 0);
            read_to_stack(asm, stack::KEY_WIDE, bytes);
            asm.load(1, STACK, stack::KEY_WIDE);
            asm.store(into, (word * 8) as i16, 1);
        };
        follow_pointers(asm, &path.pointers, &[]);
        word_of(asm, path.cpu, 4, word::NEIGHBOUR_CPU);
        word_of(asm, path.task, 8, word::NEIGHBOUR_TASK);
        word_of(asm, path.count, 4, word::COUNT);
        if let Some(nested_guard) = self.nested_guard {
            nested_guard.begin(asm);
            word_of(asm, path.count, 4, word::COUNT_NESTED);
            nested_guard.end(asm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_accepted_if_all_checks_hold() {
        let good = || CountObservation {
            expected: [1, 7],
            neighbours: [1, 7],
            count: NEED_NOT_RESCHED | 1,
            nested: Some(2),
        };
        assert_eq!(check_count(&good()), Ok(()));
        assert_eq!(check_count(&CountObservation { nested: None, ..good() }), Ok(()));
        let why = |of: CountObservation| check_count(&of).expect_err("it is wrong");
        assert!(
            why(CountObservation { neighbours: [1, 8], ..good() }).contains("not at the location")
        );
        assert!(
            why(CountObservation { neighbours: [0, 7], ..good() }).contains("not at the location")
        );
        assert!(why(CountObservation { nested: Some(1), ..good() }).contains("does not count"));
        assert!(
            why(CountObservation { count: 0, nested: None, ..good() }).contains("does not count")
        );
        assert!(
            why(CountObservation { count: 2, nested: Some(3), ..good() }).contains("is unknown")
        );
        assert!(why(CountObservation { count: u64::MAX, ..good() }).contains("is unknown"));
    }

    #[test]
    fn the_resched_bit_is_unique() {
        assert_eq!(bit_between(Some(0x100), Some(0x110)), Some(4));
        assert_eq!(bit_between(Some(0x110), Some(0x110)), None);
        assert_eq!(bit_between(Some(0), Some(0x18)), None);
        assert_eq!(bit_between(None, Some(8)), None);
        assert_eq!(bit_between(Some(0), None), None);
    }
}
