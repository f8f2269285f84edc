//! The table of processes: information for users, and the identity that a claim's owner word names.

use core::sync::atomic::Ordering;

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX, Process, SANDBOXED};
use trackway_sys::process::{Identity, Life, life_of};

use crate::Window;

/// Most slots that a process examines to find a free one.
const PROBES_MAX: usize = 32;

/// The entry of a process in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessSlot {
    index: u16,
    incarnation: u16,
}

impl ProcessSlot {
    /// Value for a process without an entry: its claims cannot be proved dead.
    pub const NONE: Self = Self { index: u16::MAX, incarnation: 0 };

    /// Returns the owner word of thread `tid` of this process; never zero.
    pub const fn owner_word(self, tid: u32) -> u64 {
        self.index as u64 | (self.incarnation as u64) << 16 | Self::tid_bits(tid)
    }

    /// Returns the part of an owner word that names the thread.
    pub const fn tid_bits(tid: u32) -> u64 {
        (tid as u64) << 32
    }
}

/// The process and thread that an owner word names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    slot: ProcessSlot,
    tid: u32,
}

impl Owner {
    /// Returns the entry of the process in the table.
    pub const fn slot(self) -> ProcessSlot {
        self.slot
    }

    /// Reads an owner word that is not zero.
    pub const fn from_word(word: u64) -> Self {
        Self {
            slot: ProcessSlot { index: word as u16, incarnation: (word >> 16) as u16 },
            tid: (word >> 32) as u32,
        }
    }
}

impl Window {
    /// Enters this process into the table: in place of its image before exec, of a dead process, or
    /// in a free slot. A process that dies during the entry costs its slot.
    ///
    /// If a process has loaded the library twice (dlmopen(3)), both copies share a slot. Otherwise
    /// the second would take the slot of the first, whose claims would count as claims from before
    /// exec.
    pub fn enter_process(&self, identity: &Identity) -> ProcessSlot {
        for probe in 0..PROBES_MAX {
            let index = (identity.pid as usize + probe) % PROCESSES_MAX;
            let process = self.process(index);
            // ORDERING: Acquire pairs with the Release in `enter_where`: the other fields belong to
            // this id.
            if process.pid.load(Ordering::Acquire) == identity.pid
                && process.pid_namespace.load(Ordering::Relaxed) == identity.pid_namespace
                && process.image.load(Ordering::Relaxed) == identity.image
            {
                let incarnation = process.incarnation.load(Ordering::Relaxed) as u16;
                return ProcessSlot { index: index as u16, incarnation };
            }
        }
        self.enter_where(identity, |index| life_of(&self.identity_at(index), 0) == Life::Dead)
    }

    /// Enters a fork child in a sandbox, without a system call: takes no other process's slot, even
    /// of a dead process.
    pub fn enter_fork_child(&self, identity: &Identity) -> ProcessSlot {
        self.enter_where(identity, |_| false)
    }

    fn enter_where(&self, identity: &Identity, is_dead: impl Fn(usize) -> bool) -> ProcessSlot {
        let first = identity.pid as usize;
        for probe in 0..PROBES_MAX {
            let index = (first + probe) % PROCESSES_MAX;
            let process = self.process(index);
            let is_free = |pid| {
                let same = pid == identity.pid
                    && process.pid_namespace.load(Ordering::Relaxed) == identity.pid_namespace;
                pid == 0 || same || is_dead(index)
            };
            if take_entry(process, identity.pid, is_free).is_err() {
                continue;
            }
            let incarnation = process.incarnation.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            process.pid_namespace.store(identity.pid_namespace, Ordering::Relaxed);
            process.since_ns.store(identity.since_ns, Ordering::Relaxed);
            process.image.store(identity.image, Ordering::Relaxed);
            process.observations.store(0, Ordering::Relaxed);
            // ORDERING: Release pairs with the Acquire in `identity_at` and above: a reader of the
            // id without the mark finds the identity that belongs to it. Otherwise it would find
            // this id with a dead predecessor's start time, and take this process for dead.
            process.pid.store(identity.pid, Ordering::Release);
            return ProcessSlot { index: index as u16, incarnation: incarnation as u16 };
        }
        ProcessSlot::NONE
    }

    /// Returns true if the entry that `owner` names still belongs to process `pid`; ignores the
    /// thread.
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

    /// Records that a recorder has found the process in slot `index` in a sandbox, if the slot
    /// still has this identity.
    pub fn note_sandboxed(&self, index: usize, identity: &Identity) {
        if self.identity_at(index) == *identity {
            self.process(index).observations.fetch_or(SANDBOXED, Ordering::Relaxed);
        }
    }

    /// Returns true if a recorder has found the process of this entry in a sandbox.
    pub fn is_sandboxed(&self, owner: Owner) -> bool {
        let index = usize::from(owner.slot.index);
        index < PROCESSES_MAX
            && self.process(index).observations.load(Ordering::Relaxed) & SANDBOXED != 0
    }

    /// Returns the identity of the process in slot `index`.
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

    /// Returns true if the claimer that an owner word names is proved dead. Only recorders call it,
    /// because it reads /proc.
    pub fn owner_is_dead(&self, owner: Owner) -> bool {
        let index = usize::from(owner.slot.index);
        if index >= PROCESSES_MAX {
            return false;
        }
        let process = self.process(index);
        let identity = self.identity_at(index);
        if identity.pid & PROCESS_ENTERING != 0 {
            return false; // the owner is not known yet
        }
        if process.incarnation.load(Ordering::Relaxed) as u16 != owner.slot.incarnation {
            // Another process has taken the slot. It takes only a slot of a dead process, or its
            // own after exec, and exec ends every thread.
            return true;
        }
        identity.pid == 0
            || life_of(&identity, 0) == Life::Dead
            || life_of(&identity, owner.tid) == Life::Dead
    }

    /// Frees the slots of processes that are proved dead. Returns the number of live processes.
    /// Every trackway command calls it.
    pub fn sweep_processes(&self) -> usize {
        let mut alive = 0;
        for index in 0..PROCESSES_MAX {
            let process = self.process(index);
            let is_dead = |pid| pid != 0 && life_of(&self.identity_at(index), 0) == Life::Dead;
            match take_entry(process, 0, is_dead) {
                // ORDERING: Release pairs with the Acquire of the next process that takes the slot.
                Ok(()) => process.pid.store(0, Ordering::Release),
                Err(EntryRefusal::Lives) => alive += 1,
                // Another process is taking the slot, or the slot is free.
                Err(EntryRefusal::Free | EntryRefusal::Busy) => {}
            }
        }
        alive
    }
}

/// Reason why an entry cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryRefusal {
    /// The entry is free, and `is_free` rejects free entries.
    Free,
    /// The entry's process is alive.
    Lives,
    /// Another process is taking the entry, or has just taken it.
    Busy,
}

/// Takes an entry for process `pid` (0: for none) if `is_free` accepts its present owner. The entry
/// then has the mark of an entry that is being filled in.
///
/// Between the check and the exchange, the entry may have been freed and taken by another, live
/// process with the same id: ids are reused, and exist in several namespaces. So the incarnation
/// must be the same before and after.
fn take_entry(
    process: &Process,
    pid: u32,
    is_free: impl Fn(u32) -> bool,
) -> Result<(), EntryRefusal> {
    let incarnation = process.incarnation.load(Ordering::Relaxed);
    // ORDERING: Acquire pairs with the Release of the entry's owner: its fields are complete, and
    // are read after this. It also keeps the load above before it. (If the incarnation was read
    // before the id changed, the check below finds that it has changed.)
    core::sync::atomic::fence(Ordering::Acquire);
    let found = process.pid.load(Ordering::Acquire);
    if found & PROCESS_ENTERING != 0 {
        return Err(EntryRefusal::Busy);
    }
    if !is_free(found) {
        return Err(if found == 0 { EntryRefusal::Free } else { EntryRefusal::Lives });
    }
    // ORDERING: AcqRel: all processes find the taker's writes after the taking; and the taker finds
    // the writes of the former owner.
    process
        .pid
        .compare_exchange(found, pid | PROCESS_ENTERING, Ordering::AcqRel, Ordering::Relaxed)
        .map_err(|_| EntryRefusal::Busy)?;
    if process.incarnation.load(Ordering::Relaxed) != incarnation {
        // ORDERING: Release: restores the entry as its owner left it.
        process.pid.store(found, Ordering::Release);
        return Err(EntryRefusal::Busy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_not_taken_from_who_came_after_the_look() {
        let process = Process::default();
        process.pid.store(7, Ordering::Relaxed);
        // The process that was found dead leaves, and another one with the same id enters.
        let taken_meanwhile = |_| {
            process.incarnation.fetch_add(1, Ordering::Relaxed);
            true
        };
        assert_eq!(take_entry(&process, 8, taken_meanwhile), Err(EntryRefusal::Busy));
        assert_eq!(process.pid.load(Ordering::Relaxed), 7, "as it was");
        assert_eq!(take_entry(&process, 8, |_| false), Err(EntryRefusal::Lives));
        assert_eq!(take_entry(&process, 8, |found| found == 7), Ok(()));
        assert_eq!(process.pid.load(Ordering::Relaxed), 8 | PROCESS_ENTERING);
        assert_eq!(take_entry(&process, 9, |_| true), Err(EntryRefusal::Busy));
        process.pid.store(0, Ordering::Relaxed);
        assert_eq!(take_entry(&process, 0, |found| found != 0), Err(EntryRefusal::Free));
    }
}
