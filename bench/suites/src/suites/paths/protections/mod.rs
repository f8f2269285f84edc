//! Protections of writers, each around the same record, header and switch.
//!
//! All but the paper's write into regions: the same plan, the same bytes, the same committing
//! store. They differ in the way in which a writer gets exclusive use of the region:
//!
//! ```text
//! nothing    it has one of its own, and no signal handler may write        the floor
//! rseq       the region of its CPU, by restartable sequence
//! claim      one of two regions of its CPU, by compare-and-swap of its owner word
//! lockless   the buffer of its CPU, by the paper's reserve and commit
//! mutex      the region of its CPU, under a pthread mutex that processes could share
//! signals    one of its own, all signals blocked meanwhile
//! ```
//!
//! The paper's kernel disables interrupts, and with them other writers on that CPU. A program can
//! only exclude its own signal handlers: another thread may run at any time. So blocking signals
//! needs a region for each thread; and a mutex must not be taken in a signal handler at all.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::record::TAILROOM_BYTES;
use trackway_abi::region::{CLAIM_REGIONS_PER_CPU, SUB_HEADER_BYTES};
use trackway_bench_engine::error::{Error, Result};
use trackway_ring::claim::Claim;
use trackway_ring::lockless::Store;
use trackway_ring::rseq::{AVAILABLE, Area, Bytes, Gate, commit};
use trackway_ring::{Geometry, Plan, Refusal, Region, claim::Copy, write_header};

use super::clock::Clock;
use super::memory::{FoundRecords, LocklessRing, RegionRing, Ring};
use super::staged::{ID, RecordOutcome, Staged};

/// A protection: the method that gives a writer exclusive use of its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProtectionKind {
    /// No protection: the floor.
    Nothing,
    /// By restartable sequence.
    Rseq,
    /// By an owner word, acquired by compare-and-swap.
    Claim,
    /// By the 2012 paper's reserve and commit.
    Lockless,
    /// By reserve and commit, with a clock that may be read too early: not fit for use.
    LocklessUnfenced,
    /// By a mutex for each CPU.
    Mutex,
    /// By blocking signals, with a region for each thread.
    Signals,
}

impl ProtectionKind {
    /// All protections, in the order of the rows.
    pub(super) const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Rseq,
        Self::Claim,
        Self::Lockless,
        Self::LocklessUnfenced,
        Self::Mutex,
        Self::Signals,
    ];

    /// Returns the name of the protection's rows: all protections write to Trackway's buffers.
    /// Three names are values of `--reserve`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "trackway-no-protection",
            Self::Rseq => "trackway-rseq",
            Self::Claim => "trackway-claim",
            Self::Lockless => "trackway-lockless",
            Self::LocklessUnfenced => "trackway-lockless-unfenced",
            Self::Mutex => "trackway-mutex",
            Self::Signals => "trackway-signals-blocked",
        }
    }
}

/// Number of restarts after which an event is lost. (The agent then claims a region.)
const RESTARTS_MAX: usize = 16;
/// Number of claim regions that a writer tries, equal to the agent's.
const CLAIMS_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// The session's generation. Every protection checks that the generation has not changed.
const GENERATION: u64 = 7;

/// Records a staged event: the function that is measured and stepped through.
pub(super) type Record = unsafe extern "C" fn(*const (), *mut Staged) -> RecordOutcome;

/// A writer with its buffers.
pub(super) trait Writer: Sync {
    /// Records a staged event.
    fn record(&self, staged: &mut Staged) -> RecordOutcome;

    /// Searches the writer's buffers for records, one buffer after another.
    fn find(&self, body_bytes: usize) -> Result<Vec<FoundRecords>>;
}

/// A protection with its buffers.
pub(super) struct Contender {
    /// The protection.
    pub(super) protection: ProtectionKind,
    /// The recording function of the protection.
    record: Record,
    writer: Box<dyn Writer>,
}

/// The dimensions of buffers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// The geometry of each region.
    pub(super) geometry: Geometry,
    /// One more than the highest number of a CPU that threads may run on.
    pub(super) cpus: usize,
    /// Number of threads.
    pub(super) threads: usize,
}

impl Contender {
    /// Makes a contender with separate, empty buffers.
    pub(super) fn new<C: Clock + 'static>(
        protection: ProtectionKind,
        scale: Scale,
        clock: C,
    ) -> Result<Self> {
        let (cpus, threads) = (scale.cpus, scale.threads);
        Ok(match protection {
            ProtectionKind::Nothing => {
                Self::of(protection, Regions::new(Nothing, threads, scale, clock)?)
            }
            ProtectionKind::Rseq => Self::of(protection, Regions::new(Rseq, cpus, scale, clock)?),
            ProtectionKind::Claim => Self::of(
                protection,
                Regions::new(Claims, cpus * CLAIM_REGIONS_PER_CPU, scale, clock)?,
            ),
            ProtectionKind::Lockless | ProtectionKind::LocklessUnfenced => {
                let buffers = make_rings(cpus, scale)?;
                Self::of(
                    protection,
                    LocklessWriter { buffers, clock, generation: GENERATION.into() },
                )
            }
            ProtectionKind::Mutex => {
                let locks = (0..cpus).map(|_| Mutex::new()).collect::<Result<Vec<_>>>()?;
                Self::of(protection, Regions::new(Mutexes(locks), cpus, scale, clock)?)
            }
            ProtectionKind::Signals => {
                Self::of(protection, Regions::new(Signals, threads, scale, clock)?)
            }
        })
    }

    fn of<W: Writer + 'static>(protection: ProtectionKind, writer: W) -> Self {
        Self { protection, record: record_event::<W>, writer: Box::new(writer) }
    }

    /// Returns the recording function and the writer, for a loop that records.
    pub(super) fn parts(&self) -> (Record, *const ()) {
        (self.record, (&raw const *self.writer).cast())
    }

    /// Searches the contender's buffers for records.
    pub(super) fn find(&self, body_bytes: usize) -> Result<Vec<FoundRecords>> {
        self.writer.find(body_bytes)
    }
}

/// Records an event. Callers call this function through a pointer for each event, as programs call
/// the library.
///
/// # Safety
/// `writer` is a `W`, and `staged` the calling thread's.
#[inline(never)]
unsafe extern "C" fn record_event<W: Writer>(
    writer: *const (),
    staged: *mut Staged,
) -> RecordOutcome {
    // SAFETY: the caller's promise.
    unsafe { (*writer.cast::<W>()).record(&mut *staged) }
}

/// Returns the reason if a protection cannot be measured on this machine.
pub(super) fn protection_absence(protection: ProtectionKind) -> Option<&'static str> {
    let needs_rseq = protection == ProtectionKind::Rseq;
    if needs_rseq && !AVAILABLE {
        Some("there is no restartable sequence for this processor")
    } else if needs_rseq && trackway_sys::thread::rseq_area().is_null() {
        Some("the C library offers no restartable sequences")
    } else {
        None
    }
}

fn make_rings<R: Ring>(count: usize, scale: Scale) -> Result<Vec<R>> {
    (0..count).map(|_| R::new(scale.geometry)).collect()
}

/// Returns the CPU of the thread, from memory if the kernel keeps the CPU number there.
#[inline(always)]
fn current_cpu() -> usize {
    let pointer = trackway_sys::thread::rseq_area();
    if !pointer.is_null() {
        // SAFETY: the C library registered this thread's area.
        if let Some(cpu) = unsafe { Area::new(pointer) }.cpu() {
            return cpu as usize;
        }
    }
    trackway_sys::thread::current_cpu() as usize
}

/// The outcome of one step.
enum Step {
    Recorded,
    Switched,
    /// Nothing was recorded: another writer committed first, or the sequence was aborted.
    Aborted,
    /// The region is full.
    Refused,
}

/// Writers into regions with the protection `P`.
struct Regions<P, C> {
    protection: P,
    rings: Vec<RegionRing>,
    clock: C,
    generation: AtomicU64,
}

/// An implementation of a protection.
trait Protection: Sync + Sized {
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome;
}

impl<P: Protection, C: Clock> Regions<P, C> {
    fn new(protection: P, count: usize, scale: Scale, clock: C) -> Result<Self> {
        let rings = make_rings(count, scale)?;
        Ok(Self { protection, rings, clock, generation: GENERATION.into() })
    }

    /// Makes one plan and one commit: of the record if the open sub-buffer has room, otherwise of a
    /// switch.
    #[inline(always)]
    fn plan_and_commit(
        &self,
        ring: &RegionRing,
        staged: &mut Staged,
        commit: impl Fn(Region<'_>, &Plan, *const u8, usize) -> bool,
    ) -> Step {
        let region = ring.region();
        let expected = region.expected();
        let now = self.clock.now();
        match region.plan_record(expected, now, ID, staged.body_bytes) {
            Ok((plan, header_bytes)) => {
                let count = header_bytes + staged.body_bytes;
                if !ring.map().holds(plan.at, count + TAILROOM_BYTES) {
                    return Step::Refused;
                }
                let body = staged.body();
                // SAFETY: the header goes into the headroom before the payload.
                unsafe { write_header(body, ID, plan.timestamp, header_bytes) };
                let committed = commit(region, &plan, body.wrapping_sub(header_bytes), count);
                if committed { Step::Recorded } else { Step::Aborted }
            }
            Err(Refusal::Switch) => switch_sub_buffer(ring, now, expected, commit),
            Err(Refusal::Full | Refusal::NotBacked) => count_discard(region),
        }
    }

    /// Writes the record, after a switch if necessary; the caller has exclusive use of the region.
    #[inline(always)]
    fn record_exclusively(
        &self,
        ring: &RegionRing,
        staged: &mut Staged,
        commit: impl Fn(Region<'_>, &Plan, *const u8, usize) -> bool,
    ) -> RecordOutcome {
        match self.plan_and_commit(ring, staged, &commit) {
            Step::Recorded => RecordOutcome::Recorded,
            Step::Switched => self.record_after_switch(ring, staged, commit),
            Step::Aborted | Step::Refused => RecordOutcome::Lost,
        }
    }

    #[cold]
    #[inline(never)]
    fn record_after_switch(
        &self,
        ring: &RegionRing,
        staged: &mut Staged,
        commit: impl Fn(Region<'_>, &Plan, *const u8, usize) -> bool,
    ) -> RecordOutcome {
        match self.plan_and_commit(ring, staged, commit) {
            Step::Recorded => RecordOutcome::Switched,
            Step::Switched | Step::Aborted | Step::Refused => RecordOutcome::Lost,
        }
    }

    /// Records with plain stores.
    #[inline(always)]
    fn record_plainly(&self, ring: &RegionRing, staged: &mut Staged) -> RecordOutcome {
        if self.generation.load(Ordering::Relaxed) != GENERATION {
            return RecordOutcome::Lost;
        }
        self.record_exclusively(ring, staged, |region, plan, source, bytes| {
            // SAFETY: `step` bounded the plan's place, and the sources have words to spare; the
            // caller has the region for itself.
            unsafe { commit_plainly(ring, region, plan, source, bytes) };
            true
        })
    }
}

/// Opens the next sub-buffer.
#[cold]
#[inline(never)]
fn switch_sub_buffer(
    ring: &RegionRing,
    now: u64,
    expected: u64,
    commit: impl Fn(Region<'_>, &Plan, *const u8, usize) -> bool,
) -> Step {
    let region = ring.region();
    let Ok((plan, header)) = region.plan_switch(expected, now, 0) else {
        return count_discard(region);
    };
    if !ring.map().holds(plan.at, SUB_HEADER_BYTES + TAILROOM_BYTES) {
        return count_discard(region);
    }
    let committed = commit(region, &plan, header.as_ptr(), SUB_HEADER_BYTES);
    if committed { Step::Switched } else { Step::Aborted }
}

#[cold]
fn count_discard(region: Region<'_>) -> Step {
    region.control.count_discarded(trackway_ring::Discard::Full);
    Step::Refused
}

/// Does the work of [`Claim::commit`] with plain accesses.
///
/// # Safety
/// As there; no other writer uses the region meanwhile.
#[inline(always)]
unsafe fn commit_plainly(
    ring: &RegionRing,
    region: Region<'_>,
    plan: &Plan,
    source: *const u8,
    bytes: usize,
) {
    fence(Ordering::Release);
    // SAFETY: the caller's promise.
    unsafe { ring.map().copy(plan.at, source, bytes) };
    let slot = &region.control.slots[(plan.next & 1) as usize];
    slot.last_ts.store(plan.timestamp, Ordering::Relaxed);
    slot.events.store(plan.events, Ordering::Relaxed);
    region.control.commit.store(plan.next, Ordering::Release);
}

impl<P: Protection, C: Clock> Writer for Regions<P, C> {
    #[inline(always)]
    fn record(&self, staged: &mut Staged) -> RecordOutcome {
        P::record(self, staged)
    }

    fn find(&self, body_bytes: usize) -> Result<Vec<FoundRecords>> {
        self.rings.iter().map(|ring| ring.find(body_bytes)).collect()
    }
}

/// No protection: each thread has a region, and no other code writes into that region.
struct Nothing;

impl Protection for Nothing {
    #[inline(always)]
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome {
        match regions.rings.get(staged.thread) {
            Some(ring) => regions.record_plainly(ring, staged),
            None => RecordOutcome::Lost,
        }
    }
}

/// Each CPU has a region; a writer that is preempted, moved or interrupted starts again.
struct Rseq;

impl Protection for Rseq {
    #[inline(always)]
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome {
        let pointer = trackway_sys::thread::rseq_area();
        if pointer.is_null() {
            return RecordOutcome::Lost;
        }
        // SAFETY: the C library registered this thread's area.
        let area = unsafe { Area::new(pointer) };
        match regions.try_sequence(area, staged) {
            Step::Recorded => RecordOutcome::Recorded,
            first => regions.retry_sequence(area, staged, first),
        }
    }
}

impl<C: Clock> Regions<Rseq, C> {
    /// Makes one attempt by restartable sequence.
    #[inline(always)]
    fn try_sequence(&self, area: Area, staged: &mut Staged) -> Step {
        let Some(cpu) = area.cpu() else { return Step::Refused };
        let Some(ring) = self.rings.get(cpu as usize) else { return Step::Refused };
        let gate = Gate { generation: self.generation.as_ptr(), expected: GENERATION };
        self.plan_and_commit(ring, staged, |region, plan, source, count| {
            let target = ring.map().at(plan.at);
            // SAFETY: `step` bounded the plan's place; sources have words to spare.
            unsafe { commit(area, cpu, &gate, region, plan, Bytes { target, source, count }) }
        })
    }

    /// Makes further attempts after an attempt with the result `step`.
    #[cold]
    #[inline(never)]
    fn retry_sequence(&self, area: Area, staged: &mut Staged, mut step: Step) -> RecordOutcome {
        let mut did = RecordOutcome::Recorded;
        for _ in 0..RESTARTS_MAX {
            match step {
                Step::Recorded => return did,
                Step::Switched => did = RecordOutcome::Switched,
                Step::Aborted => staged.restarts += 1,
                Step::Refused => break,
            }
            step = self.try_sequence(area, staged);
        }
        RecordOutcome::Lost
    }
}

/// Each CPU has two regions, with owner words.
struct Claims;

impl Protection for Claims {
    #[inline(always)]
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome {
        let first = current_cpu() * CLAIM_REGIONS_PER_CPU;
        let owner = staged.thread as u64 + 1;
        for attempt in 0..CLAIMS_MAX.min(regions.rings.len()) {
            let Some(ring) = regions.rings.get((first + attempt) % regions.rings.len()) else {
                break;
            };
            let Some(claim) = Claim::take(ring.region(), owner) else {
                staged.restarts += 1;
                continue;
            };
            // ORDERING: after the compare-and-swap. The agent puts a fence in between for machines
            // on which that is none.
            if regions.generation.load(Ordering::SeqCst) != GENERATION {
                return RecordOutcome::Lost;
            }
            return regions.record_exclusively(ring, staged, |_, plan, source, bytes| {
                // SAFETY: `step` bounded the plan's place, and the sources have words to spare.
                unsafe { claim.commit(plan, ring.map(), source, bytes) };
                true
            });
        }
        RecordOutcome::Lost
    }
}

/// Each CPU has a region with a mutex.
struct Mutexes(Vec<Mutex>);

impl Protection for Mutexes {
    #[inline(always)]
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome {
        let cpu = current_cpu();
        let (Some(ring), Some(mutex)) = (regions.rings.get(cpu), regions.protection.0.get(cpu))
        else {
            return RecordOutcome::Lost;
        };
        mutex.lock();
        let did = regions.record_plainly(ring, staged);
        mutex.unlock();
        did
    }
}

/// A mutex of pthread_mutex_lock(3) that processes can share.
struct Mutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

// SAFETY: a mutex may be used by several threads.
unsafe impl Send for Mutex {}
// SAFETY: as above.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn new() -> Result<Self> {
        let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: both are ours; attributes are initialised first, and destroyed last.
        let failed = unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr()) != 0
                || libc::pthread_mutexattr_setpshared(
                    attributes.as_mut_ptr(),
                    libc::PTHREAD_PROCESS_SHARED,
                ) != 0
                || libc::pthread_mutex_init(mutex.get(), attributes.as_ptr()) != 0
                || libc::pthread_mutexattr_destroy(attributes.as_mut_ptr()) != 0
        };
        if failed {
            return Err(Error::output("pthread_mutex_init", "it failed"));
        }
        Ok(Self(mutex))
    }

    #[inline(always)]
    fn lock(&self) {
        // SAFETY: the mutex was initialised, and has an address of its own.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    #[inline(always)]
    fn unlock(&self) {
        // SAFETY: the thread has it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Each thread has a region, and blocks its signals while it records.
struct Signals;

impl Protection for Signals {
    #[inline(always)]
    fn record<C: Clock>(regions: &Regions<Self, C>, staged: &mut Staged) -> RecordOutcome {
        let Some(ring) = regions.rings.get(staged.thread) else { return RecordOutcome::Lost };
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are ours; the first is filled in before it is read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        }
        let did = regions.record_plainly(ring, staged);
        // SAFETY: the call above filled it in.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        did
    }
}

/// Writers into the paper's buffers.
struct LocklessWriter<C> {
    buffers: Vec<LocklessRing>,
    clock: C,
    generation: AtomicU64,
}

impl<C: Clock> Writer for LocklessWriter<C> {
    #[inline(always)]
    fn record(&self, staged: &mut Staged) -> RecordOutcome {
        let Some(ring) = self.buffers.get(current_cpu()) else { return RecordOutcome::Lost };
        let buffer = ring.buffer();
        // The check follows the compare-and-swap, as for claims.
        let goes_on = || self.generation.load(Ordering::SeqCst) == GENERATION;
        let now = || self.clock.now_in_order();
        let reserved = buffer.reserve(ring.map(), now, goes_on, (ID, staged.body_bytes, 0));
        let Ok(slot) = reserved else { return RecordOutcome::Lost };
        let body = staged.body();
        // SAFETY: the header goes into the headroom before the payload; the slot has as many bytes
        // as both, and is ours.
        unsafe {
            write_header(body, ID, slot.timestamp, slot.header_bytes);
            let source = body.wrapping_sub(slot.header_bytes).cast_const();
            ring.map().store(slot.at, std::slice::from_raw_parts(source, slot.bytes as usize));
        }
        buffer.commit(ring.map(), &slot);
        let within = buffer.geometry.within(slot.position);
        if within == SUB_HEADER_BYTES as u64 {
            RecordOutcome::Switched
        } else {
            RecordOutcome::Recorded
        }
    }

    fn find(&self, body_bytes: usize) -> Result<Vec<FoundRecords>> {
        self.buffers.iter().map(|ring| ring.find(body_bytes)).collect()
    }
}

#[cfg(test)]
mod tests;
