//! Which claim regions this process is writing to, and from where: so that a region whose writer is
//! gone is free again.
//!
//! A region's owner word says which thread has it. That the thread has ended, or its process, the
//! recorder finds out. That it lives and has left the region in the middle, because a signal
//! handler jumped out of there, only this process can know ([`crate::sync::recoverable_lock`]). So
//! who claims a region takes its *note* before, writes there what his owner word will be, and gives
//! it back behind that. Invariant: while somebody of this process has a region by an owner word
//! that others could free, the note says so. Who finds a note whose holder is gone frees what he
//! had. What was written to the region is whole without the last commit, as where a writer has
//! died.
//!
//! A place in the notes is several regions'; then one of two writers goes to another region.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use trackway_ring::claim::Claim;
use trackway_ring::{Control, Region};

use crate::sync::recoverable_lock::{LockResult, RecoverableLock, StackOwner};

/// How many notes there are.
const NOTES_MAX: usize = 512;

static NOTES: [ClaimNote; NOTES_MAX] = [const { ClaimNote::new() }; NOTES_MAX];

/// What somebody claims.
#[repr(align(64))]
struct ClaimNote {
    lock: RecoverableLock,
    /// His owner word; written before `control`.
    owner: AtomicU64,
    /// Control lines of the region that he has, or may have; null: none.
    control: AtomicPtr<Control>,
}

/// A claim and its note: the claim ends first.
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

    fn of(region: &Region<'static>) -> &'static Self {
        // Control lines are 64 bytes apart at least. Multiplied (Fibonacci hashing), because they
        // mostly are multiples of more.
        let line = core::ptr::from_ref(region.control).addr() as u64 >> 6;
        let place = line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NOTES_MAX.ilog2());
        &NOTES[place as usize % NOTES_MAX]
    }

    /// Frees what somebody had who is gone, if he was of the process that `owner` is of: not in its
    /// fork child, where it may be a claim of the parent's.
    fn free_abandoned(&self, owner: u64) {
        /// The part of an owner word that names the process.
        const PROCESS: u64 = 0xffff_ffff;
        // ORDERING: Acquire pairs with the Release in `claim`, for the owner word.
        let control = self.control.load(Ordering::Acquire);
        let left = self.owner.load(Ordering::Relaxed);
        // SAFETY: control lines lie in a window, which is mapped for good; who is gone had found
        // them there, and they are atomics.
        if let Some(control) = unsafe { control.cast_const().as_ref() }
            && left & PROCESS == owner & PROCESS
        {
            Claim::free_left(control, left);
        }
        self.empty();
    }

    fn empty(&self) {
        // ORDERING: Release: not before the claim has ended.
        self.control.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// Claims a region for who has this owner word, and a marker that lives until the claim has
/// ended. Not `noted`: whose word says nothing that could be proved (a vfork child's).
pub(crate) fn claim(
    region: Region<'static>,
    owner: u64,
    me: StackOwner,
    noted: bool,
) -> Option<NotedClaim<'static>> {
    if !noted {
        return Claim::take(region, owner)
            .map(|claim| NotedClaim { claim: Some(claim), note: None });
    }
    let note = ClaimNote::of(&region);
    match note.lock.acquire(me) {
        LockResult::Acquired => {}
        LockResult::Recovered => note.free_abandoned(owner),
        LockResult::Held(_) => return None,
    }
    note.owner.store(owner, Ordering::Relaxed);
    // ORDERING: Release: the owner word before; both before the claim, which is a Release, too.
    note.control.store(core::ptr::from_ref(region.control).cast_mut(), Ordering::Release);
    let claim = Claim::take(region, owner);
    let is_taken = claim.is_some();
    let noted = NotedClaim { claim, note: Some(note) };
    is_taken.then_some(noted)
}

impl<'window> NotedClaim<'window> {
    /// The claim, while it lasts.
    pub(crate) fn claim(&self) -> Option<&Claim<'window>> {
        self.claim.as_ref()
    }

    /// Leaves the claim to whoever else has it: the parent of a fork child.
    pub(crate) fn abandon(mut self) {
        core::mem::forget(self.claim.take());
    }
}

impl Drop for NotedClaim<'_> {
    fn drop(&mut self) {
        drop(self.claim.take());
        if let Some(note) = self.note {
            note.empty();
            note.lock.release();
        }
    }
}

/// Forgets, in a fork child, what threads were at that it does not have.
pub(crate) fn release_in_fork_child() {
    for note in &NOTES {
        if !note.lock.is_owned_by_this_thread() {
            note.empty();
            note.lock.release_in_fork_child();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::recoverable_lock::StackMarker;
    use trackway_ring::Geometry;

    fn region() -> Region<'static> {
        extern crate std;
        use std::boxed::Box;
        let control = Box::leak(Box::new(Control::new()));
        Region { control, table: &[], geometry: Geometry::new(12, 2).expect("a geometry") }
    }

    const OWNER: u64 = 5 << 32 | 7;

    /// Claims it from always the same place, then does this with it.
    #[inline(never)]
    fn there<T>(region: Region<'static>, then: impl FnOnce(Option<NotedClaim<'static>>) -> T) -> T {
        let marker = StackMarker::new();
        let result = then(claim(region, OWNER, marker.owner(), true));
        marker.end();
        result
    }

    /// As siglongjmp(3) does.
    fn leave(noted: Option<NotedClaim<'static>>) -> bool {
        let was_free = noted.is_some();
        core::mem::forget(noted);
        was_free
    }

    #[test]
    fn a_region_that_was_left_in_the_middle_is_free_for_who_comes_the_same_way() {
        let region = region();
        for _ in 0..10 {
            assert!(there(region, leave));
            assert_eq!(region.control.owner.load(Ordering::Relaxed), OWNER);
        }
        // Not for who stands elsewhere, as a handler does that has interrupted it.
        let elsewhere = [const { StackMarker::new() }; 8];
        assert!(claim(region, OWNER, elsewhere[0].owner(), true).is_none());
        elsewhere.iter().for_each(StackMarker::end);
        there(region, drop);
        assert_eq!(region.control.owner.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_fork_child_frees_nothing_of_its_parents() {
        let region = region();
        let marker = StackMarker::new();
        core::mem::forget(claim(region, OWNER, marker.owner(), true));
        let child = 6 << 32 | 8;
        assert!(claim(region, child, marker.owner(), true).is_none());
        assert_eq!(region.control.owner.load(Ordering::Relaxed), OWNER);
        marker.end();
    }

    #[test]
    fn who_cannot_be_proved_gone_is_not() {
        let region = region();
        let marker = StackMarker::new();
        core::mem::forget(claim(region, OWNER, marker.owner(), false));
        assert!(claim(region, OWNER, marker.owner(), true).is_none());
        marker.end();
    }
}
