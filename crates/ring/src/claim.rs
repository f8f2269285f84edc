//! Exclusive access by claim: the fallback where restartable sequences cannot be used.
//!
//! A claimer takes the owner word by compare-and-swap, commits as many plans as it needs with
//! plain stores, and lets go. Killed while it owns the region, it has committed everything or
//! nothing, as always; the region waits until the recorder has proved it dead and frees it.

use crate::Region;
use crate::primitive::{Ordering, fence};
use crate::writer::Plan;

/// Exclusive access to a claim region, until dropped.
pub struct Claim<'window> {
    region: Region<'window>,
}

/// How claimed bytes are written; the counterpart of the copy inside a sequence.
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
    pub fn take(region: Region<'window>, owner: u64) -> Option<Self> {
        // ORDERING: Acquire pairs with the Release in `drop` of the claimer before, whose commit
        // word, slots and bytes must be seen.
        region
            .control
            .owner
            .compare_exchange(0, owner, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self { region })
    }

    /// The region.
    pub fn region(&self) -> Region<'window> {
        self.region
    }

    /// Move 3. Always succeeds: `plan` rests on a commit word read since the claim was taken.
    ///
    /// # Safety
    /// `source` has `bytes` readable bytes, rounded up to eight.
    pub unsafe fn commit(&self, plan: &Plan, memory: &impl Copy, source: *const u8, bytes: usize) {
        let control = self.region.control;
        debug_assert_eq!(control.commit.load(Ordering::Relaxed), plan.expected);
        // ORDERING: this fence pairs with the one in `Region::still_valid`: a reader that saw any
        // of the bytes below sees at least the commit word that made this place writable.
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
