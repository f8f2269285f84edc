//! Counts the threads inside of the parts that plans and their code lie in
//! (`trackway_ring::inside`).

use core::sync::atomic::{AtomicU64, Ordering};

use trackway_ring::inside::{Line, is_part_empty};
use trackway_ring::rseq::{Area, add_one};

/// Number of lines: threads on further CPUs count by atomic instructions.
const CPUS: usize = 1024;
/// Maximum number of restarts of a sequence.
const RESTARTS_MAX: usize = 16;

static LINES: [Line; CPUS] = [const { Line::new() }; CPUS];
/// The line of threads that cannot use sequences.
static WITHOUT_SEQUENCES: Line = Line::new();
/// A word that always has the expected value.
static ALWAYS_ZERO: AtomicU64 = AtomicU64::new(0);

/// A visit to a part.
#[must_use = "who has entered must leave"]
pub(super) struct Visit {
    part: usize,
    /// The rseq area by which the thread counts; `None`: the thread counts by atomic instructions.
    area: Option<Area>,
}

/// Enters a part by one sequence, if `place` still holds `link`. Returns `None` also if the thread
/// was interrupted.
#[inline(always)]
pub(super) fn enter_by_sequence(
    part: usize,
    place: &AtomicU64,
    link: u64,
    area: Area,
) -> Option<Visit> {
    let cpu = area.cpu()?;
    let counter = LINES.get(cpu as usize)?.entered(part);
    // SAFETY: both words are static; only such sequences change this counter.
    let entered = unsafe { add_one(area, cpu, place.as_ptr(), link, counter.as_ptr()) };
    entered.then_some(Visit { part, area: Some(area) })
}

/// Enters a part by a sequence, or else by atomic instructions. Returns `None` if `place` does not
/// hold `link` any more.
pub(super) fn enter_part(
    part: usize,
    place: &AtomicU64,
    link: u64,
    in_vfork_child: bool,
) -> Option<Visit> {
    // ORDERING: SeqCst, for `Line::enter`, which counts before this load.
    let is_linked = || place.load(Ordering::SeqCst) == link;
    let pointer = trackway_sys::thread::rseq_area();
    if !pointer.is_null() && !in_vfork_child {
        // SAFETY: glibc registered this thread's area, and this is no vfork child.
        let area = unsafe { Area::new(pointer) };
        for _ in 0..RESTARTS_MAX {
            let visit = enter_by_sequence(part, place, link, area);
            if visit.is_some() || !is_linked() {
                return visit;
            }
        }
    }
    WITHOUT_SEQUENCES.enter(part, is_linked).then_some(Visit { part, area: None })
}

impl Visit {
    /// Ends the visit.
    #[inline(always)]
    pub(super) fn leave(self) {
        let by_sequence = self.area.is_some_and(|area| leave_by_sequence(self.part, area));
        if !by_sequence {
            self.leave_slowly();
        }
    }

    #[cold]
    fn leave_slowly(self) {
        let sequence = |area| (0..RESTARTS_MAX).any(|_| leave_by_sequence(self.part, area));
        if !self.area.is_some_and(sequence) {
            WITHOUT_SEQUENCES.leave(self.part);
        }
    }
}

#[inline(always)]
fn leave_by_sequence(part: usize, area: Area) -> bool {
    let Some(cpu) = area.cpu() else { return false };
    let Some(line) = LINES.get(cpu as usize) else { return false };
    // SAFETY: both words are static; only such sequences change this counter.
    unsafe { add_one(area, cpu, ALWAYS_ZERO.as_ptr(), 0, line.left(part).as_ptr()) }
}

/// Returns true if no thread is inside a part that was unlinked before a visit to every CPU.
pub(super) fn is_empty(part: usize) -> bool {
    is_part_empty(part, LINES.iter().chain(core::iter::once(&WITHOUT_SEQUENCES)))
}
