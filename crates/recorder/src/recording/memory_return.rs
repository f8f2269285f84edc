//! Memory that writers have not needed for a while goes back to the window.
//!
//! Memory that is given back must be out of writers' reach: the limit is lowered to the part that
//! is kept, the generation raised, and the region's CPU visited. From then on no writer has a plan
//! that goes beyond the limit (`trackway_ring`'s loom models: `limits`, `claims`), except claimers,
//! which the owner word shows. (A sequence of the region runs on its CPU alone; claims need no
//! visit.)
//!
//! The recorder does not wait for the visit: a CPU may be busy for good with a thread of higher
//! priority. So another thread visits, while the recorder goes on. As soon as a writer comes near
//! the limit, or loses a record, the region has all of its memory as before.
//!
//! A region without any memory behaves as one that was never used: records go to claim regions that
//! have some, and request more. If a sub-buffer was open, all of its records were written to the
//! stream before. Once there is memory again, its header is rewritten, and it continues where it
//! was.

use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use trackway_abi::region::SUB_HEADER_BYTES;
use trackway_ring::Region;
use trackway_ring::claim::Copy;
use trackway_sys::clock::monotonic_ns;
use trackway_window::{MappedMemory, WriterPath};

use crate::recording::channel::Channel;
use crate::recording::region::RegionDrain;
use crate::window::cpus;
use crate::window::handle::WindowHandle;

/// Time for which memory must not have been needed, in ns.
const UNUSED_PERIOD_NS: u64 = 10_000_000_000;
/// Least that is worth to visit CPUs for, in bytes.
const RETURN_BYTES_MIN: u64 = 1 << 20;
/// Longest time of the visit before the former state is restored, in ns.
const VISIT_NS_MAX: u64 = 1_000_000_000;
/// Environment variable by which tests have less patience, in ms; then all is worth it.
const TEST_VARIABLE: &str = "TRACKWAY_TEST_IDLE_MS";

/// The schedule and the state of giving memory back.
#[derive(Debug)]
pub(crate) struct MemoryReturn {
    due_ns: u64,
    period_ns: u64,
    worth_bytes: u64,
    /// Regions whose limit is lowered.
    lowered: Vec<LoweredRegion>,
    /// The thread that visits the CPUs; it may be stuck on one.
    visitor: Option<JoinHandle<bool>>,
    visit_until_ns: u64,
}

/// A region that is to keep less than it has.
#[derive(Debug)]
struct LoweredRegion {
    number: usize,
    /// Sub-buffers that it keeps.
    kept: u64,
    /// Records that it had lost before.
    discarded: u64,
}

impl MemoryReturn {
    /// Returns the initial state of a channel that begins now.
    pub(crate) fn begin() -> Self {
        let tested = std::env::var(TEST_VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
        let (period_ns, worth_bytes) = tested
            .map_or((UNUSED_PERIOD_NS, RETURN_BYTES_MIN), |ms| (ms.saturating_mul(1_000_000), 1));
        Self {
            due_ns: monotonic_ns().saturating_add(period_ns),
            period_ns,
            worth_bytes,
            lowered: Vec::new(),
            visitor: None,
            visit_until_ns: 0,
        }
    }

    fn is_due(&mut self) -> bool {
        let now = monotonic_ns();
        let is_due = now >= self.due_ns;
        if is_due {
            self.due_ns = now.saturating_add(self.period_ns);
        }
        is_due
    }
}

impl Channel {
    /// Returns memory that was not needed since the previous call, if a return is due and
    /// worthwhile. A return takes several calls: the result is true if the next call is due soon.
    pub(crate) fn return_unused_memory(&mut self, handle: &WindowHandle) -> bool {
        let Some(memory_return) = &mut self.memory_return else { return false };
        match &memory_return.visitor {
            Some(visitor) if visitor.is_finished() => self.release_lowered(handle),
            Some(_) if monotonic_ns() >= memory_return.visit_until_ns => {
                self.raise_lowered(|_, _| true)
            }
            Some(_) => {}
            None => {
                let worth = memory_return.worth_bytes;
                if memory_return.is_due() {
                    self.begin_return(handle, worth);
                }
            }
        }
        self.memory_return.as_ref().is_some_and(|memory_return| !memory_return.lowered.is_empty())
    }

    /// Gives memory back at once, however little it is.
    pub(crate) fn return_memory_now(&mut self, handle: &WindowHandle) {
        self.begin_return(handle, 0);
        self.release_lowered(handle);
    }

    fn begin_return(&mut self, handle: &WindowHandle, worth: u64) {
        let (found, bytes) = self.find_excess();
        let Some(memory_return) = &mut self.memory_return else { return };
        if bytes < worth || found.is_empty() {
            // Memory that was taken beforehand, and memory that could not be given back the last
            // time.
            let _ = self.pool.trim(&handle.allocator);
            return;
        }
        let mut visited = Vec::new();
        for LoweredRegion { number, kept, .. } in &found {
            let work = &self.regions[*number];
            work.region.0.lower_limit(work.backing.limit_of(*kept));
            if work.way == WriterPath::Sequence {
                visited.push(work.cpu);
            }
        }
        self.slot.begin_generation();
        memory_return.lowered = found;
        memory_return.visit_until_ns = monotonic_ns().saturating_add(VISIT_NS_MAX);
        let visitor = thread::Builder::new().name("visitor".into());
        memory_return.visitor = visitor.spawn(move || cpus::visit_cpus(&visited)).ok();
        if memory_return.visitor.is_none() {
            self.raise_lowered(|_, _| true);
        }
    }

    /// Restores the memory of regions whose writers need it; `is_needed` decides if no other
    /// condition does.
    pub(crate) fn raise_lowered(&mut self, is_needed: impl Fn(&RegionDrain, u64) -> bool) {
        let Some(memory_return) = &mut self.memory_return else { return };
        memory_return.lowered.retain(|LoweredRegion { number, kept, discarded }| {
            let work = &self.regions[*number];
            let control = work.region.0.control;
            let is_raised = control.wants_memory.load(Ordering::Relaxed) != 0
                || control.discarded.load(Ordering::Relaxed) != *discarded
                || is_needed(work, *kept);
            if is_raised {
                work.region.0.raise_limit(work.backing.limit());
            }
            !is_raised
        });
    }

    /// Returns true if a region's limit is lowered: it is to stay so.
    pub(crate) fn is_lowered(&self, region: usize) -> bool {
        let lowered = self.memory_return.iter().flat_map(|memory_return| &memory_return.lowered);
        lowered.into_iter().any(|lowered| lowered.number == region)
    }

    /// Takes the memory of regions whose CPUs have been visited.
    fn release_lowered(&mut self, handle: &WindowHandle) {
        let Some(memory_return) = &mut self.memory_return else { return };
        let Some(visitor) = memory_return.visitor.take() else { return };
        // Without a visit to every CPU, an earlier sequence may be alive for good.
        let can_give = visitor.join().unwrap_or(false);
        self.raise_lowered(|_, _| !can_give);
        let Some(memory_return) = &mut self.memory_return else { return };
        for LoweredRegion { number, kept, .. } in std::mem::take(&mut memory_return.lowered) {
            let work = &mut self.regions[number];
            for (shift, offset) in release_region_memory(work, kept) {
                self.pool.put(&handle.allocator, shift, offset);
            }
        }
        if !can_give {
            self.memory_return = None;
        }
        // Or the next time, if another process has the window locked.
        let _ = self.pool.trim(&handle.allocator);
    }

    /// Regions that keep less than they have, and how much that comes to, in bytes.
    fn find_excess(&mut self) -> (Vec<LoweredRegion>, u64) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        if self.memory_return.as_ref().is_none_or(|memory_return| memory_return.visitor.is_some()) {
            return (found, bytes);
        }
        for (number, work) in self.regions.iter_mut().enumerate() {
            let Some(snapshot) = work.snapshot.filter(|_| !work.is_foreign()) else { continue };
            let kept = work.backing.keeps(snapshot.head);
            // Without memory there must be nothing left to be read.
            if kept < work.backing.backed() && (kept > 0 || work.drained.position == snapshot.head)
            {
                let shift = work.region.0.geometry.sub_shift();
                bytes += (work.backing.backed() - kept) << shift;
                found.push(LoweredRegion { number, kept, discarded: snapshot.discarded });
            }
        }
        (found, bytes)
    }
}

/// Returns true if a writer has come so near to the lowered limit that it may soon need more.
pub(crate) fn is_near_limit(work: &RegionDrain, kept: u64) -> bool {
    let Some(snapshot) = work.snapshot else { return false };
    let geometry = work.region.0.geometry;
    let end = work.backing.limit_of(kept) >> geometry.sub_shift();
    let is_in_last = geometry.index_of(snapshot.head) + 1 >= end;
    kept > 0 && is_in_last && snapshot.head > work.drained.position
}

/// Takes memory from a region that was lowered: the pieces, by size as a power of two. Or lets
/// writers go on as before, if they are already further.
fn release_region_memory(work: &mut RegionDrain, kept: u64) -> Vec<(u32, u64)> {
    let region = work.region.0;
    // ORDERING: SeqCst: after the generation was raised, this load finds a claim, or its taker
    // finds the new generation (Dekker).
    let is_claimed =
        work.way != WriterPath::Sequence && region.control.owner.load(Ordering::SeqCst) != 0;
    work.poll();
    let is_within = |head: u64| match kept {
        0 => head == work.drained.position,
        _ => head <= work.backing.limit_of(kept),
    };
    let head = work.snapshot.map(|snapshot| snapshot.head).filter(|head| is_within(*head));
    let Some(head) = head.filter(|_| !is_claimed) else {
        region.raise_limit(work.backing.limit());
        return Vec::new();
    };
    let shift = region.geometry.sub_shift();
    let released = work.backing.release(kept, head);
    released.iter().for_each(|(index, _)| region.back(*index, 0));
    released.into_iter().map(|(_, offset)| (shift, offset)).collect()
}

/// Makes memory at `offset` that of sub-buffer `index`, if that is open though it had none: no
/// writer reaches it until the limit is raised. Its header is that of clock epoch `epoch`.
pub(crate) fn reopen_sub_buffer(
    handle: &WindowHandle,
    work: &RegionDrain,
    (index, offset): (u64, u64),
    epoch: u64,
) {
    let geometry = work.region.0.geometry;
    let position = work.drained.position;
    if position == 0 || geometry.index_of(position) != index || geometry.within(position) == 0 {
        return;
    }
    let header = Region::header_again(index, work.drained.last_ts, epoch);
    let memory = MappedMemory(*handle.window());
    // SAFETY: the header is as long; the memory is a whole sub-buffer of the window that belongs to
    // this recorder, and that no writer can reach yet.
    unsafe { memory.copy(offset, header.as_ptr(), SUB_HEADER_BYTES) };
}
