//! Who holds what one holds at a time: known by a *marker*, an object on his stack.
//!
//! A signal handler may jump out of what it has interrupted (siglongjmp(3)), and a thread may end
//! in the middle (pthread_exit(3) in a handler, asynchronous cancellation): then nobody lets go.
//! Invariant: what is held changes hands without that only if who held it is *gone*, and that is
//! known for certain. It is, when a marker of who comes later shares memory with his: two
//! objects that live at the same time never do. It does not matter whose stack it is, which way it
//! grows, or whether handlers and coroutines have stacks of their own; what is there is not looked
//! at. (It matters to nobody but him who copies stacks away and back again, and does so in a signal
//! handler.) A thread that comes the same way again stands where it stood, so it knows at once.
//!
//! What who is gone has done is seen by who finds that out: it was done on the same stack, and so
//! by the same thread before, or by one whose end whoever gave the stack away has waited for.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::tls;

/// Size of a marker: callers whose depths differ by less are told to be the same place. Of a
/// signal handler's stack, which may be small.
const MARKER_BYTES: usize = 320;

/// Bits of an address that a [`StackOwner`] has room for.
const ADDRESS_BITS: u32 = 48;
/// Footprints begin at multiples of this, as a power of two, in bytes.
const ALIGNMENT_SHIFT: u32 = 4;
/// Bits of a [`StackOwner`] that say where his marker is.
const PLACE_BITS: u32 = ADDRESS_BITS - ALIGNMENT_SHIFT;
/// Bits that say which thread it is, more or less: the top bit is free.
const THREAD_BITS: u32 = 63 - PLACE_BITS;

/// Lives on the stack of who holds something, all the time.
#[repr(C, align(16))]
pub(crate) struct StackMarker(UnsafeCell<MaybeUninit<[u8; MARKER_BYTES]>>);

impl StackMarker {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Who has it. It must not be moved from here on.
    #[inline(always)]
    pub(crate) fn owner(&self) -> StackOwner {
        StackOwner::new(core::hint::black_box(self.0.get()).addr(), tls::line::<u8>().addr())
    }

    /// It lives up to here: to be called when nothing is held any more.
    #[inline(always)]
    pub(crate) fn end(&self) {
        core::hint::black_box(self.0.get());
    }
}

/// Somebody who may hold something, as a word: never zero, and without the top bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackOwner(u64);

impl StackOwner {
    /// Whose marker is there, and whose thread's line there.
    const fn new(marker: usize, thread: usize) -> Self {
        // Of who is farther up (in a larger address space) nothing is known.
        let is_near = marker as u64 >> ADDRESS_BITS == 0;
        let place = if is_near { marker as u64 >> ALIGNMENT_SHIFT } else { 0 };
        // Threads' lines are 64 bytes long. Not 0, which is nobody.
        let thread = (thread as u64 >> 6) % ((1 << THREAD_BITS) - 1) + 1;
        Self(thread << PLACE_BITS | place)
    }

    /// The one that [`Self::word`] was of.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word & ((1 << 63) - 1))
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    const fn place(self) -> u64 {
        self.0 & ((1 << PLACE_BITS) - 1)
    }

    /// Whether `other`, who was here before, is gone for certain.
    pub(crate) const fn proves_gone(self, other: Self) -> bool {
        let distance = self.place().abs_diff(other.place()) << ALIGNMENT_SHIFT;
        self.place() != 0 && other.place() != 0 && distance < MARKER_BYTES as u64
    }

    /// Whether the two are of one thread: then who comes later must not wait for the other. (It may
    /// be said of two threads that are not one: then nobody waits, either.)
    pub(crate) const fn shares_thread_with(self, other: Self) -> bool {
        self.0 >> PLACE_BITS == other.0 >> PLACE_BITS
    }
}

/// How something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockResult {
    /// Nobody had it.
    Acquired,
    /// Who had it is gone: it may be in any state that he could leave it in.
    Recovered,
    /// It was not: he has it.
    Held(StackOwner),
}

/// Who holds something.
pub(crate) struct RecoverableLock(AtomicU64);

impl RecoverableLock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes it for somebody whose marker lives until he lets go.
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
            return LockResult::Held(other);
        }
        // Who has this word now is still the same one: others of that place cannot live beside us.
        let (from, to) = (other.word(), me.word());
        // ORDERING: Acquire, as above, if he has let go of something that he had not noted.
        match self.0.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => LockResult::Recovered,
            Err(word) => LockResult::Held(StackOwner::from_word(word)),
        }
    }

    /// Lets go: who holds it only.
    #[inline]
    pub(crate) fn release(&self) {
        // ORDERING: Release pairs with the Acquire in `take`.
        self.0.store(0, Ordering::Release);
    }

    /// Who holds it, or has left it.
    pub(crate) fn owner(&self) -> Option<StackOwner> {
        let word = self.0.load(Ordering::Relaxed);
        (word != 0).then(|| StackOwner::from_word(word))
    }

    /// Whether a frame of the calling thread holds it, or did when it was left.
    pub(crate) fn is_owned_by_this_thread(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        word != 0
            && StackOwner::from_word(word)
                .shares_thread_with(StackOwner::new(0, tls::line::<u8>().addr()))
    }

    /// Lets go, in a fork child, of what threads hold that it does not have; whether it has done
    /// so.
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

    const BEFORE: usize = 0x7ffd_1234_5670;

    #[test]
    fn who_stands_where_another_stood_has_it_and_nobody_else() {
        let held = RecoverableLock::new();
        let first = StackOwner::new(BEFORE, 0x7000_0040);
        assert_eq!(held.take(first), LockResult::Acquired);
        // A handler on the same stack, a thread of another one, and what is far up.
        for other in [
            StackOwner::new(BEFORE - MARKER_BYTES, 0x7000_0040),
            StackOwner::new(BEFORE + MARKER_BYTES, 0x7000_0040),
            StackOwner::new(0x7fee_0000_0000, 0x7000_0080),
            StackOwner::new(1 << 48 | BEFORE, 0x7000_0040),
        ] {
            assert_eq!(held.take(other), LockResult::Held(first));
        }
        let again = StackOwner::new(BEFORE - MARKER_BYTES + 16, 0x7000_0040);
        assert_eq!(held.take(again), LockResult::Recovered);
        let later = StackOwner::new(BEFORE - 64, 0x7000_0080);
        assert_eq!(held.take(later), LockResult::Recovered, "of another thread, too");
        held.release();
        assert_eq!(held.take(first), LockResult::Acquired);
    }

    #[test]
    fn who_is_too_far_up_to_be_noted_is_never_gone() {
        let held = RecoverableLock::new();
        let far = StackOwner::new(1 << 48 | BEFORE, 0x7000_0040);
        assert_eq!(held.take(far), LockResult::Acquired);
        assert_eq!(held.take(far), LockResult::Held(far));
    }

    #[test]
    fn footprints_that_live_together_are_apart() {
        let (one, other) = (StackMarker::new(), StackMarker::new());
        assert!(!one.owner().proves_gone(other.owner()));
        assert!(one.owner().shares_thread_with(other.owner()));
        assert!(one.owner().proves_gone(one.owner()));
        one.end();
        other.end();
    }
}
