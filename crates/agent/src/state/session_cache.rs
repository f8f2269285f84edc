//! The cache of decisions: whether and how this process records for each session.
//!
//! A decision holds for one generation of a session. A sequence count protects it, because threads
//! and signal handlers read it while another thread replaces it. A reader that meets a replacement
//! makes the decision itself, on its stack, so no reader waits. The replacing thread owns a lock
//! ([`PUBLISHERS`]), so that another thread completes the replacement if the owner is gone.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use trackway_abi::record::context::APPLICATIONS;
use trackway_abi::session::{SESSIONS_MAX, flag};
use trackway_abi::window::EVENTS_MAX;
use trackway_ring::Geometry;
use trackway_window::{SessionLayout, Window};

use crate::sync::recoverable_lock::{LockResult, RecoverableLock, StackMarker};

/// A decision, in the form that the fast path reads.
#[repr(C, align(64))]
pub(crate) struct Decision {
    /// Odd during a replacement; even otherwise.
    pub(crate) sequence: AtomicU64,
    /// The generation that the decision holds for.
    pub(crate) generation: AtomicU64,
    /// Number of CPUs whose sequence regions the fast path may write; 0: only
    /// [`crate::emit::slow_path`] may.
    pub(crate) cpus: AtomicU32,
    /// Bits of the session's contexts. With application contexts, `cpus` and `filtered_cpus` are 0,
    /// and the bits from [`CPUS_AT`] on hold the number of CPUs.
    pub(crate) contexts: AtomicU32,
    /// Result of `Geometry::to_word` for sequence regions.
    pub(crate) geometry: AtomicU64,
    /// Control lines of CPU 0; the table of ids lies before them (`ids_before`).
    pub(crate) controls: AtomicPtr<u8>,
    /// The address at which the session's window is mapped.
    pub(crate) base: AtomicPtr<u8>,
    /// Backed bytes of that window: the fast path touches nothing beyond.
    pub(crate) usable: AtomicU64,
    /// The value of `cpus` for a session with filters, where `cpus` is 0.
    pub(crate) filtered_cpus: AtomicU16,
    /// True if the process takes part; meaningful for `generation`.
    participates: AtomicBool,
    /// Tag of the links that are made for this decision alone ([`crate::filters`]). 0: the session
    /// has no filters.
    pub(crate) link_tag: AtomicU32,
}

/// The tag of the links that belong to a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkTag {
    /// Links of the decision have this tag.
    Current(u32),
    /// The decision holds for another generation or window, or for a session without filters.
    Stale,
    /// Another thread, which was preempted, or the code that this signal handler interrupted, is
    /// replacing the decision.
    InReplacement,
}

/// First bit of the number of CPUs in [`Decision::contexts`].
pub(crate) const CPUS_AT: u32 = 16;

/// Locks of the threads that replace the decision about each session.
static PUBLISHERS: [RecoverableLock; SESSIONS_MAX] =
    [const { RecoverableLock::new() }; SESSIONS_MAX];

/// Tag for the next decision about a session with filters.
static NEXT_LINK_TAG: AtomicU32 = AtomicU32::new(1);

const _: () = assert!(size_of::<Decision>() == 64);

impl Decision {
    pub(super) const fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            // No session has this generation.
            generation: AtomicU64::new(u64::MAX),
            cpus: AtomicU32::new(0),
            contexts: AtomicU32::new(0),
            geometry: AtomicU64::new(0),
            controls: AtomicPtr::new(core::ptr::null_mut()),
            base: AtomicPtr::new(core::ptr::null_mut()),
            usable: AtomicU64::new(0),
            filtered_cpus: AtomicU16::new(0),
            participates: AtomicBool::new(false),
            link_tag: AtomicU32::new(0),
        }
    }

    /// Returns true if no replacement has changed the decision since the reader loaded `sequence`.
    #[inline(always)]
    pub(crate) fn unchanged_since(&self, sequence: u64) -> bool {
        // ORDERING: Acquire keeps the loads of the decision before this second load; it pairs with
        // the Release fence in `replace`.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence && sequence & 1 == 0
    }

    /// Returns true if the process takes part in `generation` of the session in `window`, false if
    /// it does not. `None`: there is no decision for this generation and window.
    pub(crate) fn participation(&self, window: &Window, generation: u64) -> Option<bool> {
        // ORDERING: Acquire pairs with the Release in `replace`.
        let sequence = self.sequence.load(Ordering::Acquire);
        let same = self.generation.load(Ordering::Relaxed) == generation
            && self.base.load(Ordering::Relaxed) == window.base();
        let participates = self.participates.load(Ordering::Relaxed);
        (same && self.unchanged_since(sequence)).then_some(participates)
    }

    /// Returns the tag of the links that are made for `generation` of the session in `window`.
    pub(crate) fn current_link_tag(&self, window: &Window, generation: u64) -> LinkTag {
        /// Number of polls: some microseconds at most.
        const POLLS_MAX: usize = 100;
        for _ in 0..POLLS_MAX {
            // ORDERING: Acquire pairs with the Release in `replace`.
            let sequence = self.sequence.load(Ordering::Acquire);
            let same = self.generation.load(Ordering::Relaxed) == generation
                && self.base.load(Ordering::Relaxed) == window.base();
            let link_tag = self.link_tag.load(Ordering::Relaxed);
            if self.unchanged_since(sequence) {
                return if same && link_tag != 0 {
                    LinkTag::Current(link_tag)
                } else {
                    LinkTag::Stale
                };
            }
            core::hint::spin_loop();
        }
        LinkTag::InReplacement
    }

    /// Returns the generation of the decision, if the decision has this tag and the event with this
    /// enable word belongs to its window.
    #[inline(always)]
    pub(crate) fn generation_of(&self, number: u32, enabled: *const AtomicU32) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release in `replace`.
        let sequence = self.sequence.load(Ordering::Acquire);
        let is_it = self.link_tag.load(Ordering::Relaxed) == number
            && Window::event_at(self.base.load(Ordering::Relaxed), enabled) < EVENTS_MAX;
        let generation = self.generation.load(Ordering::Relaxed);
        (is_it && self.unchanged_since(sequence)).then_some(generation)
    }

    /// Replaces the decision, which is about session `index`, unless another thread is replacing
    /// it.
    #[cold]
    #[inline(never)] // keeps its frame off its callers' stack
    pub(super) fn publish(
        &self,
        index: usize,
        window: &Window,
        generation: u64,
        usable: u64,
        layout: Option<&SessionLayout>,
    ) {
        let publisher = &PUBLISHERS[index % SESSIONS_MAX];
        let marker = StackMarker::new();
        // After a gone owner, all stores run again.
        if !matches!(publisher.acquire(marker.owner()), LockResult::HeldBy(_)) {
            self.replace(window, generation, usable, layout);
            publisher.release();
        }
        marker.end();
    }

    /// Replaces the decision. Only the owner of the lock calls this.
    fn replace(
        &self,
        window: &Window,
        generation: u64,
        usable: u64,
        layout: Option<&SessionLayout>,
    ) {
        // The count is odd already if a gone owner left a replacement unfinished.
        let odd = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(odd, Ordering::Relaxed);
        // ORDERING: Release keeps the odd count before the stores below, for readers that find any
        // of them; pairs with the fence in `unchanged_since`.
        fence(Ordering::Release);
        let is_same = self.generation.load(Ordering::Relaxed) == generation
            && self.base.load(Ordering::Relaxed) == window.base();
        let filtered = layout.is_some_and(|layout| layout.flags & flag::FILTERED != 0);
        let link_tag = match self.link_tag.load(Ordering::Relaxed) {
            _ if !filtered => 0,
            link_tag if link_tag != 0 && is_same => link_tag,
            _ => NEXT_LINK_TAG.fetch_add(1, Ordering::Relaxed).max(1),
        };
        self.link_tag.store(link_tag, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Relaxed);
        self.base.store(window.base(), Ordering::Relaxed);
        self.usable.store(usable, Ordering::Relaxed);
        self.participates.store(layout.is_some(), Ordering::Relaxed);
        let slow = flag::CLAIM_ONLY | flag::LOCKLESS;
        let hot = layout.filter(|layout| layout.flags & slow == 0);
        let has_applications = layout.is_some_and(|layout| layout.contexts & APPLICATIONS != 0);
        let all_cpus = hot.map_or(0, |layout| layout.cpus);
        let cpus = if has_applications { 0 } else { all_cpus };
        self.cpus.store(if filtered { 0 } else { cpus }, Ordering::Relaxed);
        let filtered_cpus = if filtered { cpus } else { 0 };
        self.filtered_cpus.store(filtered_cpus as u16, Ordering::Relaxed);
        if let Some(layout) = layout {
            let low = layout.contexts & ((1 << CPUS_AT) - 1);
            let high = if has_applications { all_cpus << CPUS_AT } else { 0 };
            self.contexts.store(low | high, Ordering::Relaxed);
            self.geometry.store(Geometry::to_word(layout.geometry), Ordering::Relaxed);
            self.controls.store(layout.controls(window), Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire of readers.
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }
}

/// Voids all decisions, which a fork child inherits: a namespace rule or a token may decide
/// differently in the child, and a thread that was replacing a decision at the fork does not exist
/// there.
pub(super) fn void_decisions(decisions: &[Decision; SESSIONS_MAX]) {
    for (decision, publisher) in decisions.iter().zip(&PUBLISHERS) {
        publisher.release_in_fork_child();
        decision.generation.store(u64::MAX, Ordering::Relaxed);
        decision.cpus.store(0, Ordering::Relaxed);
        decision.filtered_cpus.store(0, Ordering::Relaxed);
        decision.link_tag.store(0, Ordering::Relaxed);
        let sequence = decision.sequence.load(Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire of readers, as in `replace`.
        decision.sequence.store((sequence | 1) + 1, Ordering::Release);
    }
}
