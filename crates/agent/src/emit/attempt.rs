//! Attempts to commit one record by each possible writer path: a restartable sequence, a claim, a
//! slot of a lockless buffer. A record that no path can commit is counted as discarded.

use core::sync::atomic::{AtomicU64, Ordering};

use trackway_abi::record::{EXTENDED_BYTES, TAILROOM_BYTES};
use trackway_abi::region::{CLAIM_REGIONS_PER_CPU, SUB_HEADER_BYTES};
use trackway_abi::session::flag;
use trackway_ring::lockless::{LossReason, Store};
use trackway_ring::rseq::{AVAILABLE, Area, Bytes, Gate, commit};
use trackway_ring::{Discard, Geometry, Plan, Refusal, Region, write_header};
use trackway_window::{
    MappedMemory, Owner, ProcessSlot, SessionLayout, SlotMemory, Window, WriterPath, lease_is_over,
};

use super::blocking::WaitBudget;
use super::timestamp;
use crate::state::process::PROCESS;
use crate::state::thread::Identity;
use crate::state::window_map::{MappedWindow, generation_of};
use crate::sync::claims;
use crate::sync::recoverable_lock::{StackMarker, StackOwner};

/// Maximum number of restarts of a sequence (by a debugger's steps, by a storm of signals) before
/// the record uses another writer path.
const RESTARTS_MAX: usize = 16;
/// Maximum number of claim regions that a writer tries before it discards the record: those of its
/// own CPU and of three neighbours.
const CLAIMS_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// Maximum number of further claim regions, of CPUs that have memory from the start.
const SPARES_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// One record, ready to be committed.
pub(super) struct RecordAttempt<'a> {
    pub(super) mapped: &'a MappedWindow,
    pub(super) window: &'a Window,
    pub(super) layout: &'a SessionLayout,
    pub(super) event: usize,
    pub(super) id: u32,
    pub(super) thread: &'a Identity,
    /// The process stamp under which the record is written.
    pub(super) stamp: u64,
    /// Contexts and payload, with headroom for the header before them.
    pub(super) body: *mut u8,
    pub(super) body_bytes: usize,
    /// True if a field was cut to fit.
    pub(super) is_cut: bool,
}

/// The outcome of an attempt.
enum Outcome {
    /// The record is committed.
    Committed,
    /// There is no memory now.
    Full,
    /// There is no memory, and the buffer has counted the loss.
    Lost,
    /// No sub-buffer can hold the record.
    Oversized,
    /// The record cannot be committed, however long it waits.
    Impossible,
    /// This writer path is not possible; another path may be.
    Unavailable,
    /// The session has changed: the process must decide again.
    Stale,
}

/// Counts a record as discarded.
pub(super) fn count_discarded_record(
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

/// Returns the region that counts losses on this CPU.
fn region_of_losses(window: &Window, layout: &SessionLayout, cpu: u32) -> Option<Region<'static>> {
    let cpu = if cpu < layout.cpus { cpu } else { 0 };
    // Counts in the region that this thread tries first, where more memory would help.
    let has_sequences = AVAILABLE && !trackway_sys::thread::rseq_area().is_null();
    let is_claimed = layout.flags & flag::CLAIM_ONLY != 0 || !has_sequences;
    let way = if is_claimed { WriterPath::Claim(0) } else { WriterPath::Sequence };
    layout.region(window, cpu, way)
}

impl RecordAttempt<'_> {
    /// Commits the record or counts it as discarded. Returns false if the session has changed.
    pub(super) fn commit_or_count(&self, budget: &mut Option<WaitBudget>) -> bool {
        let session = self.window.session(self.layout.index);
        loop {
            let cpu = trackway_sys::thread::current_cpu();
            let outcome = self.attempt(cpu);
            // Lockless buffers count refused records, so such an attempt is not repeated.
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

    /// Returns true if a sub-buffer of this geometry can hold the record.
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

    /// Counts the outcome. Returns false if the session has changed.
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
                // A recorder may no longer read the counters of a session that has ended, and the
                // session's successor may have memory. (A thread that sleeps after this check
                // counts in vain, or in the slot's next session.)
                if self.session_changed() {
                    return false;
                }
                let why = match outcome {
                    Outcome::Full | Outcome::Impossible if self.lacks_memory() => Discard::Unmapped,
                    Outcome::Full => Discard::Full,
                    _ => Discard::Other,
                };
                count_discarded_record(self.window, self.layout, self.event, cpu, why);
                if let Outcome::Oversized = outcome {
                    self.note_oversized(cpu);
                }
                self.disable_if_lease_expired(trackway_sys::clock::monotonic_ns());
                true
            }
        }
    }

    /// Returns true if the process has not mapped all backed memory of the window, and cannot map
    /// it.
    fn lacks_memory(&self) -> bool {
        // The order matters: `usable_bytes` maps memory that is backed meanwhile.
        let backed = self.window.backed_bytes();
        backed.is_some_and(|backed| backed > self.mapped.usable_bytes())
    }

    #[inline(never)] // keeps its frame off its callers' stack
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
            let Some(region) = self.layout.region(self.window, cpu, WriterPath::Sequence) else {
                return Outcome::Unavailable;
            };
            // The recorder has not given the region memory yet, or has taken it back.
            if region.has_no_memory() {
                request_memory(region);
                return Outcome::Unavailable;
            }
            let commit = |plan: &Plan, source: *const u8, count: usize| {
                let target = self.window.base().wrapping_add(plan.at as usize);
                // SAFETY: `commit_step` bounded the plan's place; sources have words to spare.
                unsafe { commit(area, cpu, &gate, region, plan, Bytes { target, source, count }) }
            };
            match self.commit_step(region, commit) {
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

    /// Commits by the 2012 paper's reserve and commit (`trackway_ring::lockless`).
    #[inline(never)]
    fn commit_lockless(&self, cpu: u32) -> Outcome {
        let cpu = if cpu < self.layout.cpus { cpu } else { 0 };
        let Some(buffer) = self.layout.lockless(self.window, cpu) else {
            return Outcome::Impossible;
        };
        // A process with a limit on its address space may not have mapped everything. The
        // sub-buffer of a slot becomes known only when it is too late to refuse.
        let usable = self.mapped.usable_bytes();
        // SAFETY: `usable` bytes are mapped and backed.
        let memory = unsafe { SlotMemory::new(self.window.base(), usable) };
        if buffer.memory_end() > memory.end() {
            return Outcome::Impossible;
        }
        let clock = &self.window.session(self.layout.index).clock;
        let epoch = clock.epoch.load(Ordering::Relaxed);
        if !PROCESS.has_process_slot(self.mapped, self.thread) {
            buffer.note_unnamed();
        }
        let now = || timestamp::read_after_loads(clock);
        let generation = &self.window.session(self.layout.index).generation;
        // Loaded after the write count, whose load is an Acquire; see `Buffer::retire`.
        let goes_on = || generation.load(Ordering::Relaxed) == self.layout.generation;
        let slot = match buffer.reserve(&memory, now, goes_on, (self.id, self.body_bytes, epoch)) {
            Ok(slot) => slot,
            Err(LossReason::Ended) => return Outcome::Stale,
            Err(LossReason::Full | LossReason::Nested | LossReason::NotBacked) => {
                return Outcome::Lost;
            }
        };
        // A signal handler that interrupted this code may have forked. Then two processes run this
        // code, and the slot belongs to the parent.
        if self.stamp != 0 && PROCESS.stamp() != self.stamp {
            return Outcome::Impossible;
        }
        // SAFETY: the header goes into the headroom before the contexts; the slot has as many bytes
        // as both, and belongs to this thread.
        unsafe {
            write_header(self.body, self.id, slot.timestamp, slot.header_bytes);
            let source = self.body.wrapping_sub(slot.header_bytes).cast_const();
            memory.store(slot.at, core::slice::from_raw_parts(source, slot.bytes as usize));
        }
        // Checks again for a fork during the copy. (A handler can still fork between this check and
        // the commit, and within the other half of a switch; docs/design/0005-the-papers-buffer.md
        // describes the result.)
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
                // If no region near this CPU has memory: regions with memory from the start.
                Some(attempt) => (attempt, spare.min(cpus)),
            };
            let near = cpu.wrapping_add((other / CLAIM_REGIONS_PER_CPU) as u32);
            let Some(near) = near.checked_rem(among) else { break };
            let way = WriterPath::Claim(attempt % CLAIM_REGIONS_PER_CPU);
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
                Outcome::Full => outcome = Outcome::Full, // another region may have memory
                end => return end,
            }
        }
        outcome
    }

    /// Commits in a claim region, if it is free.
    #[inline(never)] // keeps its frame off its callers' stack
    fn commit_in_region(&self, region: Region<'static>) -> Outcome {
        let marker = StackMarker::new();
        let outcome = self.commit_as_owner(region, marker.owner());
        marker.end();
        outcome
    }

    fn commit_as_owner(&self, region: Region<'static>, me: StackOwner) -> Outcome {
        let owner = PROCESS.owner_word(self.mapped, self.thread);
        let has_process_slot = Owner::from_word(owner).slot() != ProcessSlot::NONE;
        let Some(noted) = claims::claim_region(region, owner, me, has_process_slot) else {
            return Outcome::Unavailable;
        };
        let Some(claim) = noted.claim() else { return Outcome::Unavailable };
        // The recorder waits for visible claims. This claim is visible now, so the recorder waits
        // for it if the generation is still the same.
        if self.session_changed() {
            return Outcome::Stale;
        }
        let memory = MappedMemory(*self.window);
        let commit = |plan: &Plan, source: *const u8, count: usize| {
            // A signal handler that interrupted this code may have forked. Then two processes run
            // this code, and the claim belongs to the parent.
            if self.stamp != 0 && PROCESS.stamp() != self.stamp {
                return false;
            }
            // SAFETY: `commit_step` bounded the plan's place; sources have words to spare.
            unsafe { claim.commit(plan, &memory, source, count) };
            true
        };
        // A switch, then the record: no other writer is in the region.
        let mut has_switched = false;
        loop {
            match self.commit_step(region, commit) {
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

    /// Plans and commits once: the record if it fits the open sub-buffer, else a switch.
    fn commit_step(
        &self,
        region: Region<'_>,
        commit: impl Fn(&Plan, *const u8, usize) -> bool,
    ) -> Step {
        let clock = &self.window.session(self.layout.index).clock;
        let expected = region.expected();
        let now = timestamp::from_line_or_system(clock);
        match region.plan_record(expected, now, self.id, self.body_bytes) {
            Ok((plan, header_bytes)) => {
                let count = header_bytes + self.body_bytes;
                if !self.is_in_bounds(&plan, count) {
                    return Step::Refused;
                }
                // SAFETY: the header goes into the headroom before the contexts.
                unsafe { write_header(self.body, self.id, plan.timestamp, header_bytes) };
                let source = self.body.wrapping_sub(header_bytes);
                let committed = commit(&plan, source, count);
                if committed { Step::Recorded } else { Step::Aborted }
            }
            Err(Refusal::Switch) => self.commit_switch(region, (expected, now), commit),
            Err(Refusal::Full | Refusal::NotBacked) => Step::Refused,
        }
    }

    /// Plans and commits a switch, for the given commit word and time.
    #[inline(never)] // one copy, off the stack of most records
    fn commit_switch(
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
        if !self.is_in_bounds(&plan, SUB_HEADER_BYTES) {
            return Step::Refused;
        }
        let committed = commit(&plan, header.as_ptr(), SUB_HEADER_BYTES);
        self.disable_if_lease_expired(now);
        if committed { Step::Switched } else { Step::Aborted }
    }

    /// Returns true if `count` bytes, rounded up to words, may be written where the plan begins.
    /// The plan comes from a table in shared memory, so this checks it.
    fn is_in_bounds(&self, plan: &Plan, count: usize) -> bool {
        let usable = self.mapped.usable_bytes();
        let end = plan.at.checked_add((count + TAILROOM_BYTES) as u64);
        end.is_some_and(|end| end <= usable)
    }

    fn session_changed(&self) -> bool {
        // ORDERING: SeqCst: a recorder that raised the generation before it read the claims finds a
        // claim taken before this check (Dekker), or this check finds the new generation.
        core::sync::atomic::fence(Ordering::SeqCst);
        let generation: &AtomicU64 = &self.window.session(self.layout.index).generation;
        generation.load(Ordering::SeqCst) != self.layout.generation
    }

    /// Counts a cut record, after its commit: a kill in between leaves one record uncounted. (A
    /// thread that sleeps in between while the session ends counts the record in the slot's next
    /// session.)
    fn count_cut(&self) {
        let session = self.window.session(self.layout.index);
        session.cut_event.store(self.event as u32, Ordering::Relaxed);
        session.records_cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Disables the event in this session if the recorder's lease has run out, because the recorder
    /// is dead or was stopped for long. So the program does not pay for records that are never
    /// read. A recorder that comes back enables the event again.
    fn disable_if_lease_expired(&self, now: u64) {
        let session = self.window.session(self.layout.index);
        let is_over = |lease| lease_is_over(lease, now, &session.clock);
        if !is_over(session.lease_until_ns.load(Ordering::Relaxed)) {
            return;
        }
        // A window that the process has left has no lease, and its words retarget sites
        // ([`crate::setuid`]).
        if self.session_changed() {
            return;
        }
        self.window.clear_bit_unless(self.layout.index, self.event, || {
            // ORDERING: SeqCst, a Dekker pair with a recorder that comes back: it renews the lease,
            // then sets the bits; this code clears the bit, then reads the lease again.
            let has_come_back = !is_over(session.lease_until_ns.load(Ordering::SeqCst));
            // Not in a window that the process has left, where enable words have another meaning.
            has_come_back || !PROCESS.is_in(self.mapped)
        });
    }
}

/// Requests memory for a region. Reads the flag first, because many records may request memory.
fn request_memory(region: Region<'_>) {
    let is_requested = &region.control.wants_memory;
    if is_requested.load(Ordering::Relaxed) == 0 {
        is_requested.store(1, Ordering::Relaxed);
    }
}

/// The outcome of one step.
enum Step {
    Recorded,
    Switched,
    /// Nothing is committed: another writer committed first, or the sequence was aborted.
    Aborted,
    /// There is no memory.
    Refused,
}
