//! Returns memory to the window that writers have not needed for a while.
//!
//! The recorder must put memory out of writers' reach before it gives the memory back. It lowers
//! the limit to the kept part, raises the generation, and visits the region's CPU. From then on no
//! writer has a plan beyond the limit (`trackway_ring`'s loom models: `limits`, `claims`), except
//! claimers, which the owner word shows. (A sequence runs only on its region's CPU; claims need no
//! visit.)
//!
//! The recorder does not wait for the visit, because a thread of higher priority may occupy a CPU
//! forever. Another thread visits while the recorder continues. When a writer comes near the limit
//! or loses a record, the region gets all of its memory again.
//!
//! A region without memory behaves like an unused one: records go to claim regions with memory, and
//! request more. If a sub-buffer was open, all of its records were already written to the stream.
//! When it gets memory again, its header is rewritten, and it continues at the same position.

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

/// Time without need after which memory is returned, in ns.
const UNUSED_PERIOD_NS: u64 = 10_000_000_000;
/// Smallest return for which a visit of CPUs pays, in bytes.
const RETURN_BYTES_MIN: u64 = 1 << 20;
/// Longest visit before the regions get their former limits again, in ns.
const VISIT_NS_MAX: u64 = 1_000_000_000;
/// Environment variable that sets a shorter period for tests, in ms, and returns any amount.
const TEST_VARIABLE: &str = "TRACKWAY_TEST_IDLE_MS";

/// Schedule and state of memory returns.
#[derive(Debug)]
pub(crate) struct MemoryReturn {
    due_ns: u64,
    period_ns: u64,
    worth_bytes: u64,
    /// Regions whose limit is lowered.
    lowered: Vec<LoweredRegion>,
    /// Thread that visits the CPUs; it may wait for a busy CPU.
    visitor: Option<JoinHandle<bool>>,
    visit_until_ns: u64,
}

/// A region that must keep less memory than it has.
#[derive(Debug)]
struct LoweredRegion {
    number: usize,
    /// Number of sub-buffers that the region keeps.
    kept: u64,
    /// Number of discarded records when the limit was lowered.
    discarded: u64,
}

impl MemoryReturn {
    /// Returns the initial state for a channel that begins now.
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

    /// Gives unneeded memory back at once, even a small amount.
    pub(crate) fn return_memory_now(&mut self, handle: &WindowHandle) {
        self.begin_return(handle, 0);
        self.release_lowered(handle);
    }

    fn begin_return(&mut self, handle: &WindowHandle, worth: u64) {
        let (found, bytes) = self.find_excess();
        let Some(memory_return) = &mut self.memory_return else { return };
        if bytes < worth || found.is_empty() {
            // Returns memory that was taken in advance, or that could not be returned last time.
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

    /// Restores the limit of regions whose writers lost a record, requested memory, or meet
    /// `is_needed`.
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

    /// Returns true if a region's limit is lowered and must stay so.
    pub(crate) fn is_lowered(&self, region: usize) -> bool {
        let lowered = self.memory_return.iter().flat_map(|memory_return| &memory_return.lowered);
        lowered.into_iter().any(|lowered| lowered.number == region)
    }

    /// Takes the memory of the lowered regions after the visit of their CPUs.
    fn release_lowered(&mut self, handle: &WindowHandle) {
        let Some(memory_return) = &mut self.memory_return else { return };
        let Some(visitor) = memory_return.visitor.take() else { return };
        // Without a visit to every CPU, an earlier sequence may stay alive forever.
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
        // If another process has locked the window, the next return does this.
        let _ = self.pool.trim(&handle.allocator);
    }

    /// Finds regions that can keep less memory than they have. Returns them and the excess in
    /// bytes.
    fn find_excess(&mut self) -> (Vec<LoweredRegion>, u64) {
        let (mut found, mut bytes) = (Vec::new(), 0);
        if self.memory_return.as_ref().is_none_or(|memory_return| memory_return.visitor.is_some()) {
            return (found, bytes);
        }
        for (number, work) in self.regions.iter_mut().enumerate() {
            let Some(snapshot) = work.snapshot.filter(|_| !work.is_foreign()) else { continue };
            let kept = work.backing.keeps(snapshot.head);
            // A region may lose all memory only if nothing in it is unread.
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

/// Returns true if a writer is so near the lowered limit that it may soon need more memory.
pub(crate) fn is_near_limit(work: &RegionDrain, kept: u64) -> bool {
    let Some(snapshot) = work.snapshot else { return false };
    let geometry = work.region.0.geometry;
    let end = work.backing.limit_of(kept) >> geometry.sub_shift();
    let is_in_last = geometry.index_of(snapshot.head) + 1 >= end;
    kept > 0 && is_in_last && snapshot.head > work.drained.position
}

/// Takes memory from a region with a lowered limit; returns the pieces, each with its size as a
/// power of two. If a writer is already beyond the limit or holds a claim, restores the limit
/// instead.
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

/// Rewrites the header of sub-buffer `index` in new memory at `offset`, with clock epoch `epoch`,
/// if the sub-buffer is open and had no memory. No writer reaches it until the limit is raised.
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
    // SAFETY: the header has exactly this length; the memory is a whole sub-buffer of the window
    // that belongs to this recorder, and no writer can reach it yet.
    unsafe { memory.copy(offset, header.as_ptr(), SUB_HEADER_BYTES) };
}
