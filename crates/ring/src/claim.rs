//! Exclusive access by claim: the fallback where restartable sequences cannot be used.
//!
//! A claimer takes the owner word by compare-and-swap, commits as many plans as it needs with plain
//! stores, and releases the word. A claimer that is killed while it owns the region has committed
//! everything or nothing; the region waits until the recorder has proved the death and frees it.

use crate::primitive::{Ordering, fence};
use crate::writer::Plan;
use crate::{Control, Region};

/// Exclusive access to a claim region, until dropped.
pub struct Claim<'window> {
    region: Region<'window>,
}

/// Writer of claimed bytes; the counterpart of the copy inside a sequence.
pub trait Copy {
    /// Copies `bytes` bytes from `source`, rounded up to words of eight, to `at` in the window.
    ///
    /// # Safety
    /// `source` has as many readable bytes, and `at` as many writable bytes in a sub-buffer to
    /// which the caller has exclusive access.
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize);
}

impl<'window> Claim<'window> {
    /// Takes the region for `owner` (not zero), if it is free.
    ///
    /// The claimer reads the session's generation *again* before it plans, and releases the claim
    /// if it changed: a recorder that ends a session raises the generation, visits every CPU, and
    /// then reads the owner word. The visit is the full barrier of both sides, so either the
    /// recorder finds the claimer, and the memory stays, or the claimer finds the new generation.
    pub fn take(region: Region<'window>, owner: u64) -> Option<Self> {
        // ORDERING: Acquire pairs with the Release in `drop` of the claimer before, whose commit
        // word, slots and bytes must be visible. Release: the claimer's entry in the table of
        // processes is there for readers of the owner word, which check whether the claimer is
        // alive.
        region
            .control
            .owner
            .compare_exchange(0, owner, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| Self { region })
    }

    /// Returns the claimed region.
    pub fn region(&self) -> Region<'window> {
        self.region
    }

    /// Frees a region whose owner is proved dead; returns false if `owner` does not own it any
    /// more. Only the recorder calls this.
    ///
    /// The dead claimer left a commit word and its slot, or stores that no reader uses. The process
    /// that proved the death has synchronised with the dead thread (the kernel ended the thread,
    /// then reported it); the exchange hands that on to the next claimer.
    pub fn free_dead(region: Region<'_>, owner: u64) -> bool {
        // ORDERING: Release pairs with the Acquire in `take`; Acquire, in case another recorder
        // frees the region, and a claimer takes it and dies meanwhile.
        region.control.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees a region that its owner has abandoned, as a living thread can by jumping out of a
    /// signal handler; returns false if `owner` does not own it any more. Only the owner's process
    /// calls this, which can tell that the owner does not come back. Argument and orderings are
    /// those for a dead owner: this thread, or one whose end it has waited for, made the owner's
    /// stores.
    pub fn free_left(control: &Control, owner: u64) -> bool {
        // ORDERING: Release pairs with the Acquire in `take`; Acquire, in case the recorder has
        // proved the thread's end, and another thread has taken and abandoned the region.
        control.owner.compare_exchange(owner, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Commits `plan` (move 3). Always succeeds: it rests on a commit word read since the claim was
    /// taken.
    ///
    /// # Safety
    /// `source` has `bytes` readable bytes, rounded up to eight.
    pub unsafe fn commit(&self, plan: &Plan, memory: &impl Copy, source: *const u8, bytes: usize) {
        let control = self.region.control;
        debug_assert_eq!(control.commit.load(Ordering::Relaxed), plan.expected);
        // ORDERING: this fence pairs with the fences in `Region::still_valid` and
        // `Region::snapshot`: a reader that observes any of the bytes or the slot below observes at
        // least the commit word `plan.expected`, which made both of them writable.
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
