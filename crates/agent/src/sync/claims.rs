//! Notes of the claim regions that this process writes to, so that an abandoned region becomes free
//! again.
//!
//! A region's owner word names the writing thread. The recorder detects the end of that thread or
//! of its process. Only this process can detect that a living thread has abandoned a region,
//! because a signal handler jumped out of it ([`crate::sync::recoverable_lock`]). So a writer takes
//! the region's *note* before it claims, stores its owner word there, and releases the note after
//! the claim.
//!
//! Invariant: while a thread of this process owns a region by an owner word that others could free,
//! the note holds that word. A writer that finds a note with a gone owner frees the abandoned
//! region. The region's contents are whole without the last commit, as after a writer's death.
//!
//! Several regions share a note. Two writers that meet there use different regions.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use trackway_ring::claim::Claim;
use trackway_ring::{Control, Region};

use crate::sync::recoverable_lock::{LockResult, RecoverableLock, StackOwner};

/// Number of notes.
const NOTES_MAX: usize = 512;

static NOTES: [ClaimNote; NOTES_MAX] = [const { ClaimNote::new() }; NOTES_MAX];

/// The claim of one writer.
#[repr(align(64))]
struct ClaimNote {
    lock: RecoverableLock,
    /// The writer's owner word; stored before `control`.
    owner: AtomicU64,
    /// Control lines of the region that the writer owns, or is about to own; null: none.
    control: AtomicPtr<Control>,
}

/// A claim and its note. The claim ends before the note.
pub(crate) struct NotedClaim<'window> {
    claim: Option<Claim<'window>>,
    note: Option<&'static ClaimNote>,
}

impl ClaimNote {
    const fn new() -> Self {
        Self {
            lock: RecoverableLock::new(),
            owner: AtomicU64::new(0),
            control: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    fn for_region(region: &Region<'static>) -> &'static Self {
        // Control lines are at least 64 bytes apart. Multiplied (Fibonacci hashing), because most
        // are multiples of more.
        let line = core::ptr::from_ref(region.control).addr() as u64 >> 6;
        let place = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NOTES_MAX.ilog2());
        &NOTES[place as usize % NOTES_MAX]
    }

    /// Frees the region of a gone writer, if that writer belongs to the process of `owner`. A fork
    /// child finds its parent's claims here, which it must leave alone.
    fn free_abandoned(&self, owner: u64) {
        /// The part of an owner word that names the process.
        const PROCESS: u64 = 0xffff_ffff;
        // ORDERING: Acquire pairs with the Release in `claim`, for the owner word.
        let control = self.control.load(Ordering::Acquire);
        let left = self.owner.load(Ordering::Relaxed);
        // SAFETY: control lines lie in a window, which stays mapped; the gone writer found them
        // there, and they are atomics.
        if let Some(control) = unsafe { control.cast_const().as_ref() }
            && left & PROCESS == owner & PROCESS
        {
            Claim::free_left(control, left);
        }
        self.clear();
    }

    fn clear(&self) {
        // ORDERING: Release keeps this store after the end of the claim.
        self.control.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// Claims a region for the thread with this owner word. The marker of `me` lives until the claim
/// has ended. If `noted` is false, the claim has no note: a vfork child's owner word proves
/// nothing.
pub(crate) fn claim_region(
    region: Region<'static>,
    owner: u64,
    me: StackOwner,
    noted: bool,
) -> Option<NotedClaim<'static>> {
    if !noted {
        return Claim::take(region, owner)
            .map(|claim| NotedClaim { claim: Some(claim), note: None });
    }
    let note = ClaimNote::for_region(&region);
    match note.lock.acquire(me) {
        LockResult::Acquired => {}
        LockResult::Recovered => note.free_abandoned(owner),
        LockResult::HeldBy(_) => return None,
    }
    note.owner.store(owner, Ordering::Relaxed);
    // ORDERING: Release: the owner word is stored before this. Both are stored before the claim,
    // which is a Release, too.
    note.control.store(core::ptr::from_ref(region.control).cast_mut(), Ordering::Release);
    let claim = Claim::take(region, owner);
    let is_taken = claim.is_some();
    let noted = NotedClaim { claim, note: Some(note) };
    is_taken.then_some(noted)
}

impl<'window> NotedClaim<'window> {
    /// Returns the claim, while it lasts.
    pub(crate) fn claim(&self) -> Option<&Claim<'window>> {
        self.claim.as_ref()
    }

    /// Gives up the claim in a fork child, because the claim belongs to the parent.
    pub(crate) fn abandon(mut self) {
        core::mem::forget(self.claim.take());
    }
}

impl Drop for NotedClaim<'_> {
    fn drop(&mut self) {
        drop(self.claim.take());
        if let Some(note) = self.note {
            note.clear();
            note.lock.release();
        }
    }
}

/// Releases, in a fork child, the notes of threads that the child does not have.
pub(crate) fn release_in_fork_child() {
    for note in &NOTES {
        if !note.lock.is_owned_by_this_thread() {
            note.clear();
            note.lock.release_in_fork_child();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::recoverable_lock::StackMarker;
    use trackway_ring::Geometry;

    fn new_region() -> Region<'static> {
        extern crate std;
        use std::boxed::Box;
        let control = Box::leak(Box::new(Control::new()));
        Region { control, table: &[], geometry: Geometry::new(12, 2).expect("a geometry") }
    }

    const OWNER: u64 = 5 << 32 | 7;

    /// Claims the region from a fixed stack depth, then runs `then` with the result.
    #[inline(never)]
    fn claim_at_fixed_depth<T>(
        region: Region<'static>,
        then: impl FnOnce(Option<NotedClaim<'static>>) -> T,
    ) -> T {
        let marker = StackMarker::new();
        let result = then(claim_region(region, OWNER, marker.owner(), true));
        marker.end();
        result
    }

    /// Abandons the claim as siglongjmp(3) does.
    fn abandon_by_jump(noted: Option<NotedClaim<'static>>) -> bool {
        let was_free = noted.is_some();
        core::mem::forget(noted);
        was_free
    }

    #[test]
    fn an_abandoned_region_is_free_for_a_caller_at_the_same_depth() {
        let region = new_region();
        for _ in 0..10 {
            assert!(claim_at_fixed_depth(region, abandon_by_jump));
            assert_eq!(region.control.owner.load(Ordering::Relaxed), OWNER);
        }
        // A caller with another stack address, such as an interrupting handler, does not get the
        // region.
        let elsewhere = [const { StackMarker::new() }; 8];
        assert!(claim_region(region, OWNER, elsewhere[0].owner(), true).is_none());
        elsewhere.iter().for_each(StackMarker::end);
        claim_at_fixed_depth(region, drop);
        assert_eq!(region.control.owner.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_fork_child_frees_nothing_of_its_parents() {
        let region = new_region();
        let marker = StackMarker::new();
        core::mem::forget(claim_region(region, OWNER, marker.owner(), true));
        let child = 6 << 32 | 8;
        assert!(claim_region(region, child, marker.owner(), true).is_none());
        assert_eq!(region.control.owner.load(Ordering::Relaxed), OWNER);
        marker.end();
    }

    #[test]
    fn an_owner_without_a_note_is_never_gone() {
        let region = new_region();
        let marker = StackMarker::new();
        core::mem::forget(claim_region(region, OWNER, marker.owner(), false));
        assert!(claim_region(region, OWNER, marker.owner(), true).is_none());
        marker.end();
    }
}
