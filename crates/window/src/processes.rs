//! The table of processes: hints for people, and the identity behind a claim's owner word.

use core::sync::atomic::Ordering;

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX};
use trackway_sys::process::{Identity, Life, life_of};

use crate::Window;

/// How far a process looks for a slot.
const PROBES_MAX: usize = 32;

/// A process's place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSlot {
    index: u16,
    incarnation: u16,
}

impl ProcessSlot {
    /// The place of a process that found none: claims in its name cannot be proved dead.
    pub const NONE: Self = Self { index: u16::MAX, incarnation: 0 };

    /// The owner word of thread `tid` of this process: never zero.
    pub const fn owner_word(self, tid: u32) -> u64 {
        self.index as u64 | (self.incarnation as u64) << 16 | Self::tid_bits(tid)
    }

    /// The part of an owner word that names the thread.
    pub const fn tid_bits(tid: u32) -> u64 {
        (tid as u64) << 32
    }
}

/// Who an owner word names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    slot: ProcessSlot,
    tid: u32,
}

impl Owner {
    /// Reads an owner word that is not zero.
    pub const fn from_word(word: u64) -> Self {
        Self {
            slot: ProcessSlot { index: word as u16, incarnation: (word >> 16) as u16 },
            tid: (word >> 32) as u32,
        }
    }
}

impl Window {
    /// Enters this process into the table, in place of its predecessor (before exec), of a dead
    /// process, or in a free slot. A process that dies in here costs its slot.
    ///
    /// Where the library is in the process twice (dlmopen(3)) both share a slot: the second would
    /// else take the first one's, whose claims would be taken for those of before exec.
    pub fn enter_process(&self, who: &Identity) -> ProcessSlot {
        for probe in 0..PROBES_MAX {
            let index = (who.pid as usize + probe) % PROCESSES_MAX;
            let process = self.process(index);
            // ORDERING: Acquire pairs with the Release in `enter_where`: the rest belongs to it.
            if process.pid.load(Ordering::Acquire) == who.pid
                && process.pid_namespace.load(Ordering::Relaxed) == who.pid_namespace
                && process.image.load(Ordering::Relaxed) == who.image
            {
                let incarnation = process.incarnation.load(Ordering::Relaxed) as u16;
                return ProcessSlot { index: index as u16, incarnation };
            }
        }
        self.enter_where(who, |index| life_of(&self.identity_at(index), 0) == Life::Dead)
    }

    /// The same without a system call, for a fork child in a sandbox: other processes' slots are
    /// left alone, dead or not.
    pub fn enter_fork_child(&self, who: &Identity) -> ProcessSlot {
        self.enter_where(who, |_| false)
    }

    fn enter_where(&self, who: &Identity, is_dead: impl Fn(usize) -> bool) -> ProcessSlot {
        let first = who.pid as usize;
        for probe in 0..PROBES_MAX {
            let index = (first + probe) % PROCESSES_MAX;
            let process = self.process(index);
            // ORDERING: Acquire pairs with the AcqRel below, of whoever took the slot.
            let pid = process.pid.load(Ordering::Acquire);
            if pid & PROCESS_ENTERING != 0 {
                continue;
            }
            let same = pid == who.pid
                && process.pid_namespace.load(Ordering::Relaxed) == who.pid_namespace;
            if pid != 0 && !same && !is_dead(index) {
                continue;
            }
            // ORDERING: AcqRel: what we write below comes after the taking, for all.
            let taken = process.pid.compare_exchange(
                pid,
                who.pid | PROCESS_ENTERING,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if taken.is_err() {
                continue;
            }
            let incarnation = process.incarnation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            process.pid_namespace.store(who.pid_namespace, Ordering::Relaxed);
            process.since_ns.store(who.since_ns, Ordering::Relaxed);
            process.image.store(who.image, Ordering::Relaxed);
            // ORDERING: Release pairs with the Acquire in `identity_at` and above: whoever sees
            // the id without the mark sees the identity that belongs to it. Before, it would see
            // our id with a dead predecessor's start, and take us for dead.
            process.pid.store(who.pid, Ordering::Release);
            return ProcessSlot { index: index as u16, incarnation: incarnation as u16 };
        }
        ProcessSlot::NONE
    }

    /// Whether the place that `owner` (of thread 0) names is still process `pid`'s.
    pub fn holds(&self, owner: Owner, pid: u32) -> bool {
        let index = usize::from(owner.slot.index);
        if index >= PROCESSES_MAX {
            return false;
        }
        let process = self.process(index);
        // ORDERING: Acquire pairs with the Release in `enter_where`.
        process.pid.load(Ordering::Acquire) == pid
            && process.incarnation.load(Ordering::Relaxed) as u16 == owner.slot.incarnation
    }

    /// The process in slot `index`.
    pub fn identity_at(&self, index: usize) -> Identity {
        let process = self.process(index);
        // ORDERING: Acquire pairs with the Release in `enter_process`.
        let pid = process.pid.load(Ordering::Acquire);
        Identity {
            pid,
            pid_namespace: process.pid_namespace.load(Ordering::Relaxed),
            since_ns: process.since_ns.load(Ordering::Relaxed),
            image: process.image.load(Ordering::Relaxed),
        }
    }

    /// Whether the claimer that an owner word names is proved dead. The recorder only (it looks
    /// into /proc).
    pub fn owner_is_dead(&self, owner: Owner) -> bool {
        let index = usize::from(owner.slot.index);
        if index >= PROCESSES_MAX {
            return false;
        }
        let process = self.process(index);
        let identity = self.identity_at(index);
        if identity.pid & PROCESS_ENTERING != 0 {
            return false; // it cannot be told yet
        }
        if process.incarnation.load(Ordering::Relaxed) as u16 != owner.slot.incarnation {
            // The slot was taken over, which takes a dead process or its own exec: and exec ends
            // every thread.
            return true;
        }
        identity.pid == 0
            || life_of(&identity, 0) == Life::Dead
            || life_of(&identity, owner.tid) == Life::Dead
    }

    /// Frees the slots of processes that are proved dead; how many live ones remain. Whoever runs
    /// a trackway command.
    pub fn sweep_processes(&self) -> usize {
        let mut alive = 0;
        for index in 0..PROCESSES_MAX {
            let process = self.process(index);
            // ORDERING: Acquire and AcqRel pair with the taking of a slot in `enter_process`.
            let pid = process.pid.load(Ordering::Acquire);
            if pid == 0 || pid & PROCESS_ENTERING != 0 {
                continue;
            }
            if life_of(&self.identity_at(index), 0) == Life::Dead {
                // Somebody may take the slot at this moment: then this fails, as it should.
                let _ = process.pid.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed);
            } else {
                alive += 1;
            }
        }
        alive
    }
}
