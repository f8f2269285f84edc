//! A lock whose owner is identified by a stack address, so that an owner that is gone is detected.
//!
//! A signal handler may jump out of the code that it interrupted (siglongjmp(3)). A thread may end
//! in the middle (pthread_exit(3) in a handler, asynchronous cancellation). In both cases the owner
//! never releases the lock.
//!
//! Invariant: the lock changes its owner without a release only if the old owner is certainly
//! *gone*. Each owner has a *marker*, an object on its stack. An owner is gone when the marker of a
//! later caller overlaps the owner's marker, because two living objects never share memory. This
//! holds for every stack: the direction of growth does not matter, nor do separate stacks of
//! handlers and coroutines. Nothing reads the marker's bytes. (The argument fails for a program
//! that copies stacks away and back in a signal handler.) A thread that takes the same path again
//! has its marker at the same address, so it detects the gone owner at once.
//!
//! The new owner observes everything that the old owner wrote. Both used the same stack: either
//! they are the same thread, or the stack's second thread started after the first thread had ended.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::tls;

/// Bytes of a marker. Callers whose depths differ by less count as the same place. The marker is
/// short, because signal handlers' stacks may be small.
const MARKER_BYTES: usize = 320;

/// Bits of an address that a [`StackOwner`] holds.
const ADDRESS_BITS: u32 = 48;
/// Alignment of markers, as a power of two, in bytes.
const ALIGNMENT_SHIFT: u32 = 4;
/// Bits of a [`StackOwner`] for the marker's address.
const PLACE_BITS: u32 = ADDRESS_BITS - ALIGNMENT_SHIFT;
/// Bits of a [`StackOwner`] for a hash of the thread; the top bit stays free.
const THREAD_BITS: u32 = 63 - PLACE_BITS;

/// An object that lives on an owner's stack for as long as the owner holds a lock.
#[repr(C, align(16))]
pub(crate) struct StackMarker(UnsafeCell<MaybeUninit<[u8; MARKER_BYTES]>>);

impl StackMarker {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Returns the owner that this marker identifies. The marker must not move from here on.
    #[inline(always)]
    pub(crate) fn owner(&self) -> StackOwner {
        StackOwner::new(core::hint::black_box(self.0.get()).addr(), tls::thread_line::<u8>().addr())
    }

    /// Ends the marker's life: called when the owner has released everything.
    #[inline(always)]
    pub(crate) fn end(&self) {
        core::hint::black_box(self.0.get());
    }
}

/// A possible owner of a lock, as a word: never zero, and without the top bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackOwner(u64);

impl StackOwner {
    /// Makes an owner from the addresses of its marker and of its thread's line.
    const fn new(marker: usize, thread: usize) -> Self {
        // An address beyond these bits, in a larger address space, gets no place: it proves
        // nothing.
        let is_near = marker as u64 >> ADDRESS_BITS == 0;
        let place = if is_near { marker as u64 >> ALIGNMENT_SHIFT } else { 0 };
        // Threads' lines are 64 bytes long. Zero would mean no owner.
        let thread = (thread as u64 >> 6) % ((1 << THREAD_BITS) - 1) + 1;
        Self(thread << PLACE_BITS | place)
    }

    /// Restores an owner from its word ([`Self::word`]).
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word & ((1 << 63) - 1))
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    const fn place(self) -> u64 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }

    /// Returns true if this owner's marker proves that `other`, an earlier owner, is gone.
    pub(crate) const fn proves_gone(self, other: Self) -> bool {
        let distance = self.place().abs_diff(other.place()) << ALIGNMENT_SHIFT;
        self.place() != 0 && other.place() != 0 && distance < MARKER_BYTES as u64
    }

    /// Returns true if both owners may belong to one thread. Then the later one must not wait. Two
    /// threads may collide here; then neither waits.
    pub(crate) const fn shares_thread_with(self, other: Self) -> bool {
        self.0 >> PLACE_BITS == other.0 >> PLACE_BITS
    }
}

/// The outcome of [`RecoverableLock::acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockResult {
    /// The lock was free.
    Acquired,
    /// The old owner is gone: the protected state may be half changed.
    Recovered,
    /// The lock belongs to this owner.
    HeldBy(StackOwner),
}

/// The lock: its owner's word, or 0.
pub(crate) struct RecoverableLock(AtomicU64);

impl RecoverableLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Acquires the lock for an owner whose marker lives until the release.
    #[inline]
    pub(crate) fn acquire(&self, me: StackOwner) -> LockResult {
        // ORDERING: Acquire pairs with the Release in `release`.
        match self.0.compare_exchange(0, me.word(), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => LockResult::Acquired,
            Err(word) => self.acquire_from(StackOwner::from_word(word), me),
        }
    }

    #[cold]
    fn acquire_from(&self, other: StackOwner, me: StackOwner) -> LockResult {
        if !me.proves_gone(other) {
            return LockResult::HeldBy(other);
        }
        // An unchanged word still belongs to the same owner: no other owner at that place can live
        // beside this one.
        let (from, to) = (other.word(), me.word());
        // ORDERING: Acquire pairs with the Release in `release`, if the old owner did release the
        // lock.
        match self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => LockResult::Recovered,
            Err(word) => LockResult::HeldBy(StackOwner::from_word(word)),
        }
    }

    /// Releases the lock. Only its owner calls this.
    #[inline]
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `acquire`.
        self.0.store(0, Ordering::Release);
    }

    /// Returns the present owner, which may be gone.
    pub(crate) fn owner(&self) -> Option<StackOwner> {
        let word = self.0.load(Ordering::Relaxed);
        (word != 0).then(|| StackOwner::from_word(word))
    }

    /// Returns true if a frame of the calling thread owns the lock, or has abandoned it.
    pub(crate) fn is_owned_by_this_thread(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word != 0
            && StackOwner::from_word(word)
                .shares_thread_with(StackOwner::new(0, tls::thread_line::<u8>().addr()))
    }

    /// Releases the lock in a fork child if a thread owns it that the child does not have. Returns
    /// true if it released the lock.
    pub(crate) fn release_in_fork_child(&self) -> bool {
        let is_others = !self.is_owned_by_this_thread();
        if is_others {
            self.release();
        }
        is_others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK_ADDRESS: usize = 0x7ffd_1234_5670;

    #[test]
    fn only_a_marker_at_the_same_address_recovers_the_lock() {
        let lock = RecoverableLock::new();
        let first = StackOwner::new(STACK_ADDRESS, 0x7000_0040);
        assert_eq!(lock.acquire(first), LockResult::Acquired);
        // A handler on the same stack, a thread with another stack, and an address beyond the bits.
        for other in [
            StackOwner::new(STACK_ADDRESS - MARKER_BYTES, 0x7000_0040),
            StackOwner::new(STACK_ADDRESS + MARKER_BYTES, 0x7000_0040),
            StackOwner::new(0x7fee_0000_0000, 0x7000_0080),
            StackOwner::new(1 << 48 | STACK_ADDRESS, 0x7000_0040),
        ] {
            assert_eq!(lock.acquire(other), LockResult::HeldBy(first));
        }
        let again = StackOwner::new(STACK_ADDRESS - MARKER_BYTES + 16, 0x7000_0040);
        assert_eq!(lock.acquire(again), LockResult::Recovered);
        let later = StackOwner::new(STACK_ADDRESS - 64, 0x7000_0080);
        assert_eq!(lock.acquire(later), LockResult::Recovered, "of another thread, too");
        lock.release();
        assert_eq!(lock.acquire(first), LockResult::Acquired);
    }

    #[test]
    fn an_owner_beyond_the_address_bits_is_never_gone() {
        let lock = RecoverableLock::new();
        let far = StackOwner::new(1 << 48 | STACK_ADDRESS, 0x7000_0040);
        assert_eq!(lock.acquire(far), LockResult::Acquired);
        assert_eq!(lock.acquire(far), LockResult::HeldBy(far));
    }

    #[test]
    fn markers_that_live_together_are_apart() {
        let (one, other) = (StackMarker::new(), StackMarker::new());
        assert!(!one.owner().proves_gone(other.owner()));
        assert!(one.owner().shares_thread_with(other.owner()));
        assert!(one.owner().proves_gone(one.owner()));
        one.end();
        other.end();
    }
}
