//! Attempts to commit one record, by whatever way works: a restartable sequence, a claim, a slot of
//! a lockless buffer. A record that no way takes is counted.

use core::sync::atomic::{AtomicU64, Ordering};

use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_abi::region::{CLAIM_REGIONS_PER_CPU, SUB_HEADER_BYTES};
use trackway_abi::session::flag;
use trackway_ring::lockless::{Lost, Store};
use trackway_ring::rseq::{AVAILABLE, Area, Bytes, Gate, commit};
use trackway_ring::{Discard, Geometry, Plan, Refusal, Region, write_header};
use trackway_window::{
    MappedMemory, Owner, ProcessSlot, SessionLayout, SlotMemory, Way, Window, lease_is_over,
};

use super::blocking::WaitBudget;
use super::timestamp;
use crate::state::process::PROCESS;
use crate::state::thread::Identity;
use crate::state::window_map::{MappedWindow, generation_of};
use crate::sync::claims;
use crate::sync::recoverable_lock::{StackMarker, StackOwner};

/// How often a sequence may be restarted before the record goes another way (a debugger that
/// steps through it, a storm of signals).
const RESTARTS_MAX: usize = 16;
/// How many claim regions a writer tries before it counts the record as discarded: its own CPU's
/// and three neighbours'.
const CLAIMS_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// How many claim regions of CPUs that have memory from the start it tries after them.
const SPARES_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// One record on its way.
pub(super) struct RecordAttempt<'a> {
    pub(super) mapped: &'a MappedWindow,
    pub(super) window: &'a Window,
    pub(super) layout: &'a SessionLayout,
    pub(super) event: usize,
    pub(super) id: u32,
    pub(super) thread: &'a Identity,
    /// The process stamp under which it is recorded.
    pub(super) stamp: u64,
    /// Contexts and payload; header room lies before.
    pub(super) body: *mut u8,
    pub(super) body_bytes: usize,
    /// Whether a field was cut to fit.
    pub(super) is_cut: bool,
}

/// What became of an attempt.
enum Outcome {
    /// Committed.
    Committed,
    /// There is no room, now.
    Full,
    /// Likewise, and counted where the buffer is.
    Lost,
    /// No sub-buffer can hold it.
    Oversized,
    /// It cannot be recorded, however long it waits.
    Impossible,
    /// Try another way.
    Unavailable,
    /// The session changed under it: decide anew.
    Stale,
}

/// Counts a record that could not be recorded.
pub(super) fn discard(
    window: &Window,
    layout: &SessionLayout,
    event: usize,
    cpu: u32,
    why: Discard,
) {
    if let Some(region) = region_of_losses(window, layout, cpu) {
        region.control.count_discarded(why);
    }
    layout.discards(window, event).fetch_add(1, Ordering::Relaxed);
}

/// Where losses on this CPU are counted.
fn region_of_losses(window: &Window, layout: &SessionLayout, cpu: u32) -> Option<Region<'static>> {
    let cpu = if cpu < layout.cpus { cpu } else { 0 };
    // Where more memory would help: in the region that this thread goes to first.
    let has_sequences = AVAILABLE && !trackway_sys::thread::rseq_area().is_null();
    let is_claimed = layout.flags & flag::CLAIM_ONLY != 0 || !has_sequences;
    let way = if is_claimed { Way::Claim(0) } else { Way::Sequence };
    layout.region(window, cpu, way)
}

impl RecordAttempt<'_> {
    /// Commits or discards; false if the session changed meanwhile.
    pub(super) fn commit_or_count(&self, budget: &mut Option<WaitBudget>) -> bool {
        let session = self.window.session(self.layout.index);
        loop {
            let cpu = trackway_sys::thread::cpu();
            let outcome = self.attempt(cpu);
            // Lockless buffers count what they refuse, so there nobody asks twice.
            let waits = matches!(outcome, Outcome::Full)
                && budget.get_or_insert_with(|| WaitBudget::for_session(session)).wait(session);
            if !waits {
                return self.finish(cpu, outcome);
            }
            if self.session_changed() {
                return false;
            }
        }
    }

    /// Whether sub-buffers of that size have room for it.
    fn fits(&self, geometry: Geometry) -> bool {
        self.body_bytes + EXTENDED_BYTES <= geometry.record_bytes_max()
    }

    fn attempt(&self, cpu: u32) -> Outcome {
        let (fits, fits_claim) =
            (self.fits(self.layout.geometry), self.fits(self.layout.claim_geometry));
        if !fits {
            return Outcome::Oversized;
        }
        if self.layout.flags & flag::LOCKLESS != 0 {
            return self.commit_lockless(cpu);
        }
        match self.commit_by_sequence() {
            Outcome::Unavailable if fits_claim => self.commit_by_claim(cpu),
            Outcome::Unavailable => Outcome::Impossible,
            outcome => outcome,
        }
    }

    /// Counts what came of it; false if the session changed meanwhile.
    #[inline(never)]
    fn finish(&self, cpu: u32, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Committed => {
                if self.is_cut {
                    self.count_cut();
                }
                true
            }
            Outcome::Stale => false,
            Outcome::Lost => {
                self.layout.discards(self.window, self.event).fetch_add(1, Ordering::Relaxed);
                self.disable_if_lease_expired(trackway_sys::clock::monotonic_ns());
                true
            }
            Outcome::Full | Outcome::Oversized | Outcome::Impossible | Outcome::Unavailable => {
                // What is counted in a session that has ended meanwhile perhaps nobody sees, and
                // its successor may have room. (Who sleeps behind this look counts in vain, or in
                // the next session of that slot.)
                if self.session_changed() {
                    return false;
                }
                let why = match outcome {
                    Outcome::Full | Outcome::Impossible if self.lacks_memory() => Discard::Unmapped,
                    Outcome::Full => Discard::Full,
                    _ => Discard::Other,
                };
                discard(self.window, self.layout, self.event, cpu, why);
                if let Outcome::Oversized = outcome {
                    self.note_oversized(cpu);
                }
                self.disable_if_lease_expired(trackway_sys::clock::monotonic_ns());
                true
            }
        }
    }

    /// Whether the process has not mapped all memory of the window, and cannot.
    fn lacks_memory(&self) -> bool {
        // In this order: what is backed meanwhile is mapped by the second look.
        let backed = self.window.backed_bytes();
        backed.is_some_and(|backed| backed > self.mapped.usable_bytes())
    }

    #[inline(never)] // as the others, for the stack of those that do not come here
    fn note_oversized(&self, cpu: u32) {
        if let Some(region) = region_of_losses(self.window, self.layout, cpu) {
            region.control.note_oversized(self.body_bytes + EXTENDED_BYTES);
        }
    }

    #[inline(never)]
    fn commit_by_sequence(&self) -> Outcome {
        let pointer = trackway_sys::thread::rseq_area();
        let unusable = !AVAILABLE
            || pointer.is_null()
            || self.thread.in_vfork_child
            || self.layout.flags & flag::CLAIM_ONLY != 0;
        if unusable {
            return Outcome::Unavailable;
        }
        // SAFETY: glibc registered this thread's area, and this is no vfork child.
        let area = unsafe { Area::new(pointer) };
        let gate = Gate {
            generation: generation_of(self.window.base(), self.layout.index),
            expected: self.layout.generation,
        };
        for _ in 0..RESTARTS_MAX {
            let Some(cpu) = area.cpu() else { return Outcome::Unavailable };
            let Some(region) = self.layout.region(self.window, cpu, Way::Sequence) else {
                return Outcome::Unavailable;
            };
            // The recorder has given it nothing yet, or has taken it back.
            if region.has_no_memory() {
                request_memory(region);
                return Outcome::Unavailable;
            }
            let commit = |plan: &Plan, source: *const u8, count: usize| {
                let target = self.window.base().wrapping_add(plan.at as usize);
                // SAFETY: `step` bounded the plan's place; sources have words to spare.
                unsafe { commit(area, cpu, &gate, region, plan, Bytes { target, source, count }) }
            };
            match self.step(region, commit) {
                Step::Recorded => return Outcome::Committed,
                Step::Refused => return Outcome::Full,
                Step::Switched | Step::Aborted => {}
            }
            if self.session_changed() {
                return Outcome::Stale;
            }
        }
        Outcome::Unavailable
    }

    /// By the paper's reserve and commit: see `trackway_ring::lockless`.
    #[inline(never)]
    fn commit_lockless(&self, cpu: u32) -> Outcome {
        let cpu = if cpu < self.layout.cpus { cpu } else { 0 };
        let Some(buffer) = self.layout.lockless(self.window, cpu) else {
            return Outcome::Impossible;
        };
        // A process with a limit on its address space may not have mapped all: which sub-buffer a
        // slot will be in is known only when it is too late.
        let usable = self.mapped.usable_bytes();
        // SAFETY: so much is mapped and backed.
        let memory = unsafe { SlotMemory::new(self.window.base(), usable) };
        if buffer.memory_end() > memory.end() {
            return Outcome::Impossible;
        }
        let clock = &self.window.session(self.layout.index).clock;
        let epoch = clock.epoch.load(Ordering::Relaxed);
        if !PROCESS.has_process_slot(self.mapped, self.thread) {
            buffer.note_unnamed();
        }
        let now = || timestamp::in_order(clock);
        let generation = &self.window.session(self.layout.index).generation;
        // Behind write count, which is loaded by Acquire; see `Buffer::retire`.
        let goes_on = || generation.load(Ordering::Relaxed) == self.layout.generation;
        let slot = match buffer.reserve(&memory, now, goes_on, (self.id, self.body_bytes, epoch)) {
            Ok(slot) => slot,
            Err(Lost::Ended) => return Outcome::Stale,
            Err(Lost::Full | Lost::Nested | Lost::NotBacked) => return Outcome::Lost,
        };
        // A signal handler that interrupted us here may have forked: then there are two of us, and
        // the slot is the parent's.
        if self.stamp != 0 && PROCESS.stamp() != self.stamp {
            return Outcome::Impossible;
        }
        // SAFETY: the header goes into the headroom before the contexts; the slot has as many
        // bytes as both, and is ours.
        unsafe {
            write_header(self.body, self.id, slot.timestamp, slot.header_bytes);
            let source = self.body.wrapping_sub(slot.header_bytes).cast_const();
            memory.store(slot.at, core::slice::from_raw_parts(source, slot.bytes as usize));
        }
        // Or in there. (Between here and the addition, and within the other half of a switch, a
        // handler can still do it; 0005 says what comes of that.)
        if self.stamp != 0 && PROCESS.stamp() != self.stamp {
            return Outcome::Impossible;
        }
        buffer.commit(&memory, &slot);
        if slot.switched {
            self.disable_if_lease_expired(trackway_sys::clock::monotonic_ns());
        }
        Outcome::Committed
    }

    fn commit_by_claim(&self, cpu: u32) -> Outcome {
        let cpus = self.layout.cpus;
        let spare = self.window.session(self.layout.index).spare_cpus.load(Ordering::Relaxed);
        let mut outcome = Outcome::Unavailable;
        for attempt in 0..CLAIMS_MAX + SPARES_MAX {
            let (other, among) = match attempt.checked_sub(CLAIMS_MAX) {
                None => (attempt, cpus),
                // Where none of them had memory: those that have some from the start.
                Some(attempt) => (attempt, spare.min(cpus)),
            };
            let near = cpu.wrapping_add((other / CLAIM_REGIONS_PER_CPU) as u32);
            let Some(near) = near.checked_rem(among) else { break };
            let way = Way::Claim(attempt % CLAIM_REGIONS_PER_CPU);
            let Some(region) = self.layout.region(self.window, near, way) else { continue };
            if region.has_no_memory() {
                if near == cpu {
                    request_memory(region);
                }
                outcome = Outcome::Full;
                continue;
            }
            match self.commit_in_region(region) {
                Outcome::Unavailable => {}
                Outcome::Full => outcome = Outcome::Full, // another one may have room
                end => return end,
            }
        }
        outcome
    }

    /// In a claim region, if nobody else is in it.
    #[inline(never)] // for the stack of those that do not come here
    fn commit_in_region(&self, region: Region<'static>) -> Outcome {
        let marker = StackMarker::new();
        let outcome = self.commit_as(region, marker.owner());
        marker.end();
        outcome
    }

    fn commit_as(&self, region: Region<'static>, me: StackOwner) -> Outcome {
        let owner = PROCESS.owner_word(self.mapped, self.thread);
        let has_process_slot = Owner::from_word(owner).slot() != ProcessSlot::NONE;
        let Some(noted) = claims::claim(region, owner, me, has_process_slot) else {
            return Outcome::Unavailable;
        };
        let Some(claim) = noted.claim() else { return Outcome::Unavailable };
        // The recorder waits for claims that it can see: ours is visible now, so if the
        // generation is still the same, it will wait for this one.
        if self.session_changed() {
            return Outcome::Stale;
        }
        let memory = MappedMemory(*self.window);
        let commit = |plan: &Plan, source: *const u8, count: usize| {
            // A signal handler that interrupted us here may have forked: then there are two
            // of us, and the claim is the parent's.
            if self.stamp != 0 && PROCESS.stamp() != self.stamp {
                return false;
            }
            // SAFETY: `step` bounded the plan's place; sources have words to spare.
            unsafe { claim.commit(plan, &memory, source, count) };
            true
        };
        // A switch, then the record: nobody else is at it.
        let mut has_switched = false;
        loop {
            match self.step(region, commit) {
                Step::Recorded => return Outcome::Committed,
                Step::Switched if !has_switched => has_switched = true,
                Step::Refused | Step::Switched => return Outcome::Full,
                Step::Aborted => {
                    noted.abandon();
                    return Outcome::Impossible;
                }
            }
        }
    }

    /// One plan and one commit: the record if the open sub-buffer has room, else a switch.
    fn step(&self, region: Region<'_>, commit: impl Fn(&Plan, *const u8, usize) -> bool) -> Step {
        let clock = &self.window.session(self.layout.index).clock;
        let expected = region.expected();
        let now = timestamp::from_line_or_system(clock);
        match region.plan_record(expected, now, self.id, self.body_bytes) {
            Ok((plan, header_bytes)) => {
                let count = header_bytes + self.body_bytes;
                if !self.in_bounds(&plan, count) {
                    return Step::Refused;
                }
                // SAFETY: the header goes into the headroom before the contexts.
                unsafe { write_header(self.body, self.id, plan.timestamp, header_bytes) };
                let source = self.body.wrapping_sub(header_bytes);
                let committed = commit(&plan, source, count);
                if committed { Step::Recorded } else { Step::Aborted }
            }
            Err(Refusal::Switch) => self.switch(region, (expected, now), commit),
            Err(Refusal::Full | Refusal::NotBacked) => Step::Refused,
        }
    }

    /// The plan and commit of a switch, at a commit word and a time.
    #[inline(never)] // once, and not on the stack of most
    fn switch(
        &self,
        region: Region<'_>,
        (expected, now): (u64, u64),
        commit: impl Fn(&Plan, *const u8, usize) -> bool,
    ) -> Step {
        let clock = &self.window.session(self.layout.index).clock;
        let epoch = clock.epoch.load(Ordering::Relaxed);
        let Ok((plan, header)) = region.plan_switch(expected, now, epoch) else {
            return Step::Refused;
        };
        if !self.in_bounds(&plan, SUB_HEADER_BYTES) {
            return Step::Refused;
        }
        let committed = commit(&plan, header.as_ptr(), SUB_HEADER_BYTES);
        self.disable_if_lease_expired(now);
        if committed { Step::Switched } else { Step::Aborted }
    }

    /// Whether `count` bytes, rounded up to words, may be written where the plan says: the table
    /// that it came from is in shared memory.
    fn in_bounds(&self, plan: &Plan, count: usize) -> bool {
        let usable = self.mapped.usable_bytes();
        let end = plan.at.checked_add((count + TAILROOM_BYTES) as u64);
        end.is_some_and(|end| end <= usable)
    }

    fn session_changed(&self) -> bool {
        // ORDERING: SeqCst: a claim taken before this look is seen by a recorder that raised the
        // generation before looking for claims (Dekker), or we see the new generation here.
        core::sync::atomic::fence(Ordering::SeqCst);
        let generation: &AtomicU64 = &self.window.session(self.layout.index).generation;
        generation.load(Ordering::SeqCst) != self.layout.generation
    }

    /// After the commit: whoever is killed in between leaves one cut record uncounted. (Who sleeps
    /// in between while the session ends counts it in the next one of that slot.)
    fn count_cut(&self) {
        let session = self.window.session(self.layout.index);
        session.cut_event.store(self.event as u32, Ordering::Relaxed);
        session.records_cut.fetch_add(1, Ordering::Relaxed);
    }

    /// A recorder that is dead, or stopped for long, has let its lease run out: then the event is
    /// switched off for its session, so that the program does not pay for nobody. A recorder that
    /// comes back switches it on again.
    fn disable_if_lease_expired(&self, now: u64) {
        let session = self.window.session(self.layout.index);
        let is_over = |lease| lease_is_over(lease, now, &session.clock);
        if !is_over(session.lease_until_ns.load(Ordering::Relaxed)) {
            return;
        }
        // In a window that the process has left meanwhile there is no lease, and the words tell
        // sites to follow: see `privileges`.
        if self.session_changed() {
            return;
        }
        self.window.clear_bit_unless(self.layout.index, self.event, || {
            // ORDERING: SeqCst, a Dekker pair with a recorder that comes back: it renews the lease,
            // then sets the bits; we clear the bit, then look at the lease again.
            let has_come_back = !is_over(session.lease_until_ns.load(Ordering::SeqCst));
            // And not where the process has left a window: what stands there means something else.
            has_come_back || !PROCESS.is_in(self.mapped)
        });
    }
}

/// Tells the recorder that a record came there. Read first: many may come.
fn request_memory(region: Region<'_>) {
    let is_requested = &region.control.asked;
    if is_requested.load(Ordering::Relaxed) == 0 {
        is_requested.store(1, Ordering::Relaxed);
    }
}

/// What one step did.
enum Step {
    Recorded,
    Switched,
    /// Nothing: somebody else committed first, or the sequence was aborted.
    Aborted,
    /// There is no room.
    Refused,
}
