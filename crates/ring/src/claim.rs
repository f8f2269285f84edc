//! Exclusive access by claim: the fallback where restartable sequences cannot be used.
//!
//! A claimer takes the owner word by compare-and-swap, commits as many plans as it needs with
//! plain stores, and lets go. Killed while it owns the region, it has committed everything or
//! nothing, as always; the region waits until the recorder has proved it dead and frees it.

use crate::primitive::{Ordering, fence};
use crate::writer::Plan;
use crate::{Control, Region};

/// Exclusive access to a claim region, until dropped.
pub struct Claim<'window> {
    region: Region<'window>,
}

/// The way in which claimed bytes are written; the counterpart of the copy inside a sequence.
pub trait Copy {
    /// Copies `bytes` bytes from `source`, rounded up to words of eight, to `at` in the window.
    ///
    /// # Safety
    /// `source` has that many readable bytes, and `at` that many writable ones in a sub-buffer
    /// that the caller has exclusive access to.
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize);
}

impl<'window> Claim<'window> {
    /// Takes the region for `owner` (not zero), if it is free.
    ///
    /// The claimer reads the session's generation *again* before it plans, and lets go if it
    /// changed: a recorder that ends a session raises the generation, visits every CPU, and then
    /// looks at the owner word. The visit is the full barrier of both sides, so either the recorder
    /// sees the claimer, and the memory stays, or the claimer sees the generation.
    pub fn take(region: Region<'window>, owner: u64) -> Option<Self> {
        // ORDERING: Acquire pairs with the Release in `drop` of the claimer before, whose commit
        // word, slots and bytes must be seen. Release: the claimer's entry in the table of
        // processes is there for readers of the owner word, which look whether it is alive.
        region
            .control
            .owner
            .compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| Self { region })
    }

    /// The region.
    pub fn region(&self) -> Region<'window> {
        self.region
    }

    /// Frees a region whose owner is proved dead; `false` if `owner` does not own it any more.
    /// The recorder only.
    ///
    /// The dead claimer left a commit word and the slot that belongs to it, or stores that no
    /// reader looks at. The process that proved the death has synchronised with it (the kernel
    /// ended the thread, then said so); the exchange hands that on to the next claimer.
    pub fn free_dead(region: Region<'_>, owner: u64) -> bool {
        // ORDERING: Release pairs with the Acquire in `take`; Acquire, in case that another
        // recorder frees and a claimer takes and dies while we look.
        region.control.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees a region whose owner has left it in the middle, as a thread that lives can by jumping
    /// out of a signal handler; `false` if `owner` does not own it any more. For its own process
    /// only, which knows that it does not come back: argument and orderings as where it is dead.
    /// What it did was done by this thread, or by one whose end this one has waited for.
    pub fn free_left(control: &Control, owner: u64) -> bool {
        // ORDERING: Release pairs with the Acquire in `take`; Acquire, in case that the recorder
        // has proved the thread's end, and another one has taken the region and left it.
        control.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Move 3. Always succeeds: `plan` rests on a commit word read since the claim was taken.
    ///
    /// # Safety
    /// `source` has `bytes` readable bytes, rounded up to eight.
    pub unsafe fn commit(&self, plan: &Plan, memory: &impl Copy, source: *const u8, bytes: usize) {
        let control = self.region.control;
        debug_assert_eq!(control.commit.load(Ordering::Relaxed), plan.expected);
        // ORDERING: this fence pairs with the ones in `Region::still_valid` and
        // `Region::snapshot`: a reader that saw any of the bytes or the slot below sees at least
        // the commit word `plan.expected`, which made both of them writable.
        fence(Ordering::Release);
        // SAFETY: the caller vouches for the source; the plan left room for whole words behind the
        // record, and the claim gives exclusive access.
        unsafe { memory.copy(plan.at, source, bytes) };
        let slot = &control.slots[(plan.next & 1) as usize];
        slot.last_ts.store(plan.timestamp, Ordering::Relaxed);
        slot.events.store(plan.events, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire of readers and of the next writer.
        control.commit.store(plan.next, Ordering::Release);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire in `take`.
        self.region.control.owner.store(0, Ordering::Release);
    }
}
