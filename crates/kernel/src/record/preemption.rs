//! Whether what runs could be preempted, interrupted or moved, and whether it is to leave its CPU:
//! where this kernel has that.
//!
//! Its types name most of it, but not all, and not what tracepoints change before a program runs.
//! So it is tried once, when somebody asks for such a context: programs look at a thread of ours,
//! of which it is known. What is not found to be so is not had.
//!
//! * *The CPU's count* (`preempt_count()`) is a variable of each CPU's. Its name's address is
//!   mostly nowhere to be had (CONFIG_KALLSYMS_ALL), but types tell its distance from that of the
//!   CPU's run queue, which the running thread leads to. That it is the one is tried by two
//!   neighbours, which say the CPU and the thread, and by forbidding preemption once more.
//! * *The bit that asks a thread to leave* has another number since Linux 6.18 (4, 3 before), which
//!   no type tells. A thread that wants to run on another CPU wakes up one that has to stop it, and
//!   is asked to leave for that: between both of these events the bit is set.
//! * *Whether interrupts come* is in the processor's flags, which the kernel hands out where a
//!   program holds interrupts off (since Linux 6.14), for a moment.

use std::sync::atomic::Ordering;

use trackway_jit::insn::{alu, jump};
use trackway_sys::thread::{CpuSet, tid};

use super::attach::{Attached, Loaded};
use super::context::{follow, offset, read};
use super::program::{PASS, STACK, helper, stack};
use super::release::Guard;
use crate::bpf_sys::asm::{Asm, Register};
use crate::bpf_sys::mapped::MappedArray;
use crate::catalogue::btf::{Btf, Class, Placed};

/// Where variables of each CPU's are.
const SECTION: &str = ".data..percpu";
/// In the count, that the thread need not leave (PREEMPT_NEED_RESCHED, upside down).
const STAYS: u64 = 1 << 31;
/// What a tracepoint adds to the count: it forbids preemption while programs run, or they do.
pub(super) const ADDED: i32 = 1;
/// RFLAGS.IF.
pub(super) const INTERRUPTS: i32 = 9;
/// CPUs that are tried for a thread to go to, and how often all of them are.
const CPUS_MAX: u32 = 1024;
const TRIES_MAX: usize = 8;
/// What the names of the threads begin with that stop others.
const STOPPER: u64 = u64::from_le_bytes(*b"migratio");

/// Functions of the kernel's that hold interrupts off, and say whether they came before; by their
/// numbers in its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interrupts {
    save: i32,
    restore: i32,
}

impl Interrupts {
    pub(super) fn of(btf: &Btf) -> Option<Self> {
        let of = |name: &str| i32::try_from(btf.find(Class::Func, name)?.id).ok();
        Some(Self { save: of("bpf_local_irq_save")?, restore: of("bpf_local_irq_restore")? })
    }

    /// The processor's flags, in a register. (What a program has put on its stack it may read,
    /// since Linux 6.3 also where it is nothing any more.)
    pub(super) fn load(self, asm: &mut Asm, into: Register) {
        for function in [self.save, self.restore] {
            asm.mov(1, STACK);
            asm.alui(alu::ADD, 1, stack::KEY_WIDE.into());
            asm.call_kernel_function(function);
        }
        asm.load(into, STACK, stack::KEY_WIDE);
    }
}

/// The way to a CPU's count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// From the thread to the CPU's run queue.
    pub(super) pointers: Vec<i16>,
    /// How far behind that the count is.
    pub(super) count: i32,
    /// And what the CPU says of its number, and of the thread.
    cpu: i32,
    task: i32,
}

impl Way {
    fn of(btf: &Btf) -> Option<Self> {
        let section = btf.find(Class::Datasec, SECTION)?;
        let place = |name: &str| {
            let is_it = |of: &Placed| btf.get(of.type_id).is_some_and(|of| of.name == name);
            i32::try_from(btf.placed(&section).find(is_it)?.offset).ok()
        };
        let queue = place("runqueues")?;
        // From Linux 6.2 to 6.14 in one structure.
        let hot =
            |name: &str| place("pcpu_hot")?.checked_add(offset(btf, "pcpu_hot", name)?.into());
        let of = |name: &str, of_hot: &str| Some(place(name).or_else(|| hot(of_hot))? - queue);
        Some(Self {
            pointers: vec![offset(btf, "task_struct", "se.cfs_rq")?, offset(btf, "cfs_rq", "rq")?],
            count: of("__preempt_count", "preempt_count")?,
            cpu: of("cpu_number", "cpu_number")?,
            task: of("current_task", "current_task")?,
        })
    }
}

/// Where it is.
#[derive(Debug, Clone)]
pub(super) struct Preemption {
    pub(super) count: Result<Way, &'static str>,
    pub(super) interrupts: Result<Interrupts, &'static str>,
    /// Where a thread's flags are, and the bit that asks it to leave.
    pub(super) leaves: Result<(i16, u8), &'static str>,
    /// Where a thread counts who forbids that it goes to another CPU.
    pub(super) stays: Result<i16, &'static str>,
}

/// What a program sees, in words of the map.
mod word {
    pub(super) const IS_THERE: i32 = 0;
    pub(super) const FLAGS: i32 = 1;
    pub(super) const STAYS: i32 = 2;
    pub(super) const TASK: i32 = 3;
    pub(super) const CPU: i32 = 4;
    pub(super) const SAID_TASK: i32 = 5;
    pub(super) const SAID_CPU: i32 = 6;
    pub(super) const COUNT: i32 = 7;
    pub(super) const COUNT_WITHIN: i32 = 8;
    pub(super) const PROCESSOR: i32 = 9;
    pub(super) const ALL: usize = 16;
}

/// Events that are looked at: of a thread that starts another one, and that calls the kernel, of
/// which all is known; and of one that wakes the one up that stops it.
const EVENTS: [&str; 4] = ["sched_process_fork", "sys_enter", "sched_waking", "sched_wakeup"];
const FORK: usize = 0;
const CALL: usize = 1;
const BEFORE: usize = 2;
const BEHIND: usize = 3;

/// Where programs look.
#[derive(Debug, Clone)]
struct Places {
    events: [Option<u32>; EVENTS.len()],
    name: Option<i16>,
    flags: Option<i16>,
    stays: Option<i16>,
    way: Option<Way>,
    interrupts: Option<Interrupts>,
    /// What each program has.
    guard: Option<Guard>,
    /// What forbids preemption once more.
    once_more: Option<Guard>,
}

/// Where what has been seen is.
struct Seen(MappedArray);

impl Seen {
    fn word(&self, event: usize, word: i32) -> u64 {
        let at = self.0.word(at(event, word) as usize);
        // (Programs have run in this thread's own calls of the kernel, and these are over.)
        at.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn is_there(&self, event: usize) -> bool {
        self.word(event, word::IS_THERE) != 0
    }

    /// Whether interrupts were on, as they must have been; and off while somebody was woken up.
    fn interrupts(&self, event: usize) -> Result<(), &'static str> {
        let are_on = |event| self.word(event, word::PROCESSOR) >> INTERRUPTS & 1 == 1;
        let is_right = are_on(event) && !(self.is_there(BEHIND) && are_on(BEHIND));
        is_right.then_some(()).ok_or("what it says of interrupts is not what must be")
    }

    /// Whether the thread was free to go elsewhere, as it was.
    fn moves(&self, event: usize) -> Result<(), &'static str> {
        let is_free = self.word(event, word::STAYS) == 0;
        is_free.then_some(()).ok_or("it keeps whoever is recorded from that")
    }

    fn clear(&self, event: usize) {
        if let Some(word) = self.0.word(at(event, word::IS_THERE) as usize) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

const fn at(event: usize, word: i32) -> i32 {
    (event * word::ALL) as i32 * 8 + word * 8
}

impl Preemption {
    /// As the running kernel has it.
    pub(super) fn find(btf: &Btf) -> Self {
        let task = |member: &str| offset(btf, "task_struct", member);
        let of = |event: &str| Some(btf.find(Class::Typedef, &format!("btf_trace_{event}"))?.id);
        let Ok(guard) = Guard::needed(btf) else {
            return Self::unknown("it preempts programs, and has no bpf_preempt_disable");
        };
        let places = Places {
            events: EVENTS.map(of),
            name: task("comm"),
            flags: task("thread_info.flags"),
            stays: task("migration_disabled"),
            way: Way::of(btf),
            interrupts: Interrupts::of(btf),
            guard,
            once_more: Guard::of(btf),
        };
        // In a thread of its own, which may go to any CPU.
        let looked = std::thread::Builder::new().spawn(move || places.look());
        let looked = looked.ok().and_then(|thread| thread.join().ok());
        let looked = looked.unwrap_or(Err("there is no thread to try it with"));
        looked.unwrap_or_else(Self::unknown)
    }

    fn unknown(why: &'static str) -> Self {
        Self { count: Err(why), interrupts: Err(why), leaves: Err(why), stays: Err(why) }
    }
}

/// What was seen of a CPU's count.
struct Counted {
    /// The CPU and the thread, as the kernel says.
    own: [u64; 2],
    /// The same, as what is beside the count says.
    said: [u64; 2],
    count: u64,
    /// While preemption was forbidden once more, if that can be.
    within: Option<u64>,
}

/// Whether the count is what it is taken for, and tracepoints add to it what is known.
fn check_count(of: &Counted) -> Result<(), &'static str> {
    if of.own != of.said {
        return Err("where its types say that the CPU's count is, there is something else");
    }
    let count = of.count & !STAYS;
    let counts = of.within.is_none_or(|within| within & !STAYS == count + 1);
    match i32::try_from(count) {
        Ok(ADDED) if counts => Ok(()),
        Ok(0 | ADDED) => Err("it does not count who forbids that (CONFIG_PREEMPT_COUNT)"),
        _ => Err("nobody knows what its tracepoints add to the CPU's count"),
    }
}

/// The one bit that has been set between two looks at a thread's flags. None: it has been asked to
/// leave before, or something else has happened to it as well.
fn bit_between(before: Option<u64>, behind: Option<u64>) -> Option<u8> {
    let set = behind? & !before?;
    set.is_power_of_two().then_some(set.trailing_zeros() as u8)
}

impl Places {
    /// Lets it be tried.
    ///
    /// # Errors
    ///
    /// If it cannot be.
    fn look(&self) -> Result<Preemption, &'static str> {
        let refused = "it takes no program that would find out where that is";
        let bytes = EVENTS.len() * word::ALL * 8;
        let seen = Seen(MappedArray::new(bytes, 1).map_err(|_| refused)?);
        let attach = |event: usize| -> Option<Attached> {
            let code = self.program(event, seen.0.fd()).bytes()?;
            Loaded::raw(&code, self.events[event]?).ok()?.attach_raw().ok()
        };
        let programs: Option<Vec<_>> = (0..EVENTS.len()).map(attach).collect();
        let programs = programs.ok_or(refused)?;
        // (Starting a thread calls the kernel, too.)
        let other = std::thread::Builder::new().spawn(|| ());
        let _ = other.map(std::thread::JoinHandle::join);
        if !seen.is_there(FORK) || !seen.is_there(CALL) {
            return Err("no program saw our own thread (in a pid namespace, numbers are others)");
        }
        let leaves = self.leaves(&seen);
        drop(programs);
        let of_both = |check: &dyn Fn(usize) -> Result<(), &'static str>| {
            check(FORK).and_then(|()| check(CALL))
        };
        let way = self.way.clone().ok_or("its types do not tell where the CPU's count is");
        let interrupts = self.interrupts.ok_or("it has no bpf_local_irq_save (Linux 6.14 has)");
        let stays = self.stays.ok_or("its types do not tell where a thread counts that");
        Ok(Preemption {
            count: way.and_then(|way| of_both(&|event| self.count(&seen, event)).map(|()| way)),
            interrupts: interrupts
                .and_then(|of| of_both(&|event| seen.interrupts(event)).map(|()| of)),
            leaves,
            stays: stays.and_then(|at| of_both(&|event| seen.moves(event)).map(|()| at)),
        })
    }

    /// What has been seen of the count.
    fn count(&self, seen: &Seen, event: usize) -> Result<(), &'static str> {
        let of = |word| seen.word(event, word);
        check_count(&Counted {
            own: [of(word::CPU), of(word::TASK)],
            said: [of(word::SAID_CPU), of(word::SAID_TASK)],
            count: of(word::COUNT),
            within: self.once_more.map(|_| of(word::COUNT_WITHIN)),
        })
    }

    /// Finds the bit by being asked to leave.
    fn leaves(&self, seen: &Seen) -> Result<(i16, u8), &'static str> {
        let flags = self.flags.ok_or("its types do not tell where a thread's flags are")?;
        for _ in 0..TRIES_MAX {
            for cpu in 0..CPUS_MAX {
                [BEFORE, BEHIND].into_iter().for_each(|event| seen.clear(event));
                if trackway_sys::thread::cpu() == cpu || CpuSet::only(cpu).apply().is_err() {
                    continue;
                }
                let [before, behind] = [BEFORE, BEHIND]
                    .map(|event| seen.is_there(event).then(|| seen.word(event, word::FLAGS)));
                if let Some(bit) = bit_between(before, behind) {
                    return Ok((flags, bit));
                }
            }
        }
        Err("no bit was seen to say it (it takes two CPUs to find out which)")
    }

    /// The program on an event: what it sees of the thread that has made it.
    fn program(&self, event: usize, map_fd: i32) -> Asm {
        /// The thread, and where in the map to write.
        const TASK: Register = 8;
        const INTO: Register = 7;
        let mut asm = Asm::default();
        let out = asm.label();
        // The first argument: of wake-ups, whom.
        asm.load(6, 1, 0);
        if let Some(guard) = self.guard {
            guard.begin(&mut asm);
        }
        asm.call_kernel(helper::GET_CURRENT_PID_TGID);
        asm.alui(alu::LSH, 0, 32);
        asm.alui(alu::RSH, 0, 32);
        asm.jumpi(jump::JNE, 0, tid().cast_signed(), out);
        if let (BEFORE | BEHIND, Some(name)) = (event, self.name) {
            asm.load(1, 6, name);
            asm.wide(2, STOPPER);
            asm.jump(jump::JNE, 1, 2, out);
        }
        asm.map_value_at(INTO, map_fd, at(event, 0));
        let to = |word: i32| (word * 8) as i16;
        asm.load(1, INTO, to(word::IS_THERE));
        asm.jumpi(jump::JNE, 1, 0, out);
        asm.call_kernel(helper::GET_CURRENT_TASK_BTF);
        asm.mov(TASK, 0);
        asm.store(STACK, stack::TASK, TASK);
        asm.store(INTO, to(word::TASK), TASK);
        for (place, bytes, word) in [(self.flags, 4, word::FLAGS), (self.stays, 2, word::STAYS)] {
            if let Some(place) = place {
                asm.load_of(bytes, 1, TASK, place);
                asm.store(INTO, to(word), 1);
            }
        }
        asm.call_kernel(helper::GET_SMP_PROCESSOR_ID);
        asm.store(INTO, to(word::CPU), 0);
        if let Some(way) = &self.way {
            self.follow(&mut asm, way, INTO);
        }
        if let Some(interrupts) = self.interrupts {
            interrupts.load(&mut asm, 1);
            asm.store(INTO, to(word::PROCESSOR), 1);
        }
        asm.storei(INTO, to(word::IS_THERE), 1);
        asm.place(out);
        if let Some(guard) = self.guard {
            guard.end(&mut asm);
        }
        asm.answer(PASS);
        asm
    }

    /// Reads what is behind the way.
    fn follow(&self, asm: &mut Asm, way: &Way, into: Register) {
        let word_of = |asm: &mut Asm, behind: i32, bytes: i32, word: i32| {
            asm.load(3, STACK, stack::POINTER);
            asm.alui(alu::ADD, 3, behind);
            asm.storei(STACK, stack::KEY_WIDE, 0);
            read(asm, stack::KEY_WIDE, bytes);
            asm.load(1, STACK, stack::KEY_WIDE);
            asm.store(into, (word * 8) as i16, 1);
        };
        follow(asm, &way.pointers, &[]);
        word_of(asm, way.cpu, 4, word::SAID_CPU);
        word_of(asm, way.task, 8, word::SAID_TASK);
        word_of(asm, way.count, 4, word::COUNT);
        if let Some(once_more) = self.once_more {
            once_more.begin(asm);
            word_of(asm, way.count, 4, word::COUNT_WITHIN);
            once_more.end(asm);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_believed_if_all_about_it_is_as_it_must_be() {
        let good = || Counted { own: [1, 7], said: [1, 7], count: STAYS | 1, within: Some(2) };
        assert_eq!(check_count(&good()), Ok(()));
        assert_eq!(check_count(&Counted { within: None, ..good() }), Ok(()));
        let why = |of: Counted| check_count(&of).expect_err("it is wrong");
        assert!(why(Counted { said: [1, 8], ..good() }).contains("something else"));
        assert!(why(Counted { said: [0, 7], ..good() }).contains("something else"));
        assert!(why(Counted { within: Some(1), ..good() }).contains("does not count"));
        assert!(why(Counted { count: 0, within: None, ..good() }).contains("does not count"));
        assert!(why(Counted { count: 2, within: Some(3), ..good() }).contains("nobody knows"));
        assert!(why(Counted { count: u64::MAX, ..good() }).contains("nobody knows"));
    }

    #[test]
    fn a_bit_is_one_that_nothing_else_could_have_set() {
        assert_eq!(bit_between(Some(0x100), Some(0x110)), Some(4));
        assert_eq!(bit_between(Some(0x110), Some(0x110)), None);
        assert_eq!(bit_between(Some(0), Some(0x18)), None);
        assert_eq!(bit_between(None, Some(8)), None);
        assert_eq!(bit_between(Some(0), None), None);
    }
}
