//! The layout of a CPU area: the part of the buffers that belongs to one CPU.
//!
//! ```text
//!      0  depth      u64   programs that run on this CPU
//!      8  too_deep   u64   events that found all levels in use
//!     16  stopped    u64   not 0: nothing is recorded: from now on, or on this CPU
//!     24  unfiltered u64   like `too_deep`, of events whose filters had not run
//!     64  control lines, one for each level
//!         lost       u64 × events: records that did not fit
//!         unread     u64 × events: events with a filtered field that was not in memory
//!         cut        u64 × events: kernel texts and sequences that were cut
//!         version    u64 × events: the version of the event's program that records; [`OFF`]: none
//!         (page)     ring of level 0, then those of the other levels
//!         tail       the longest record, as the verifier bounds it
//! ```
//!
//! A program that interrupts another one, in an interrupt or an NMI, finds the depth raised and
//! writes the next level's region. So each region has one writer at a time, without a lock. Most
//! events occur at depth 0, even events of interrupts: only an event that interrupts a program, in
//! its 50 ns, occurs deeper. So the regions of other levels are small. At these depths the kernel
//! skips programs on tracepoints and counts them as missed; it runs programs on raw tracepoints.

use trackway_abi::record::RECORD_BYTES_MAX;
use trackway_abi::region::control_stride_bytes;
use trackway_ring::Geometry;

/// Levels: task, soft interrupt, interrupt, NMI.
pub const LEVELS: usize = 4;
/// Sub-buffers of the inner levels, as a power of two.
const INNER_COUNT_SHIFT: u32 = 2;
/// Offset of the depth.
pub(crate) const DEPTH: usize = 0;
/// Offset of the counter of events for which all levels were in use.
pub(crate) const TOO_DEEP: usize = 8;
/// Offset of the counter of events whose filters could not run because all levels were in use.
pub(crate) const UNFILTERED: usize = 24;
/// Offset of the word that stops recording; constants of its bits follow.
pub(crate) const STOPPED: usize = 16;
/// The bit that stops recording for now.
pub(crate) const RECORDING_STOPPED: u64 = 1;
/// The bit that excludes this CPU from recording.
pub(crate) const EXCLUDED: u64 = 2;
/// A version that no program of an event has.
pub(crate) const OFF: u64 = u64::MAX;
/// Offset of the control lines.
const CONTROL_LINES: usize = 64;
/// Offsets of the ring's mask and the ring's offset in a control line. The program also uses the
/// word after them. `trackway_abi::region` has none of these three words.
pub(crate) const CONTROL_MASK: i16 = 72;
pub(crate) const CONTROL_RING: i16 = 80;
const PAGE_BYTES: usize = 4096;
/// Most bytes of the buffers of all CPUs: the kernel maps no larger array.
pub const BUFFERS_BYTES_MAX: usize = 256 << 20;

/// The layout of a CPU area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLayout {
    outer: Geometry,
    inner: Geometry,
    events: usize,
}

impl BufferLayout {
    /// Returns the layout for `events` events and rings of `1 << count_shift` sub-buffers of `1 <<
    /// sub_shift` bytes. `None`: such rings are impossible.
    pub fn new(sub_shift: u32, count_shift: u32, events: usize) -> Option<Self> {
        let outer = Geometry::new(sub_shift, count_shift).ok()?;
        let inner = Geometry::new(sub_shift, INNER_COUNT_SHIFT.min(count_shift)).ok()?;
        let layout = Self { outer, inner, events };
        (layout.cpu_bytes() <= BUFFERS_BYTES_MAX).then_some(layout)
    }

    /// Returns the geometry of a level's ring.
    pub const fn geometry(&self, level: usize) -> Geometry {
        if level == 0 { self.outer } else { self.inner }
    }

    /// Returns the number of events with counters.
    pub const fn events(&self) -> usize {
        self.events
    }

    /// Returns the distance between the control lines of two levels, in bytes.
    pub const fn control_stride(&self) -> usize {
        control_stride_bytes(self.outer.sub_count() as usize)
    }

    /// Returns the offset of a level's control lines.
    pub const fn control_offset(&self, level: usize) -> usize {
        CONTROL_LINES + level * self.control_stride()
    }

    /// Returns the offset of an event's counter of records that did not fit.
    pub const fn lost_offset(&self, event: usize) -> usize {
        self.control_offset(LEVELS) + 8 * event
    }

    /// Returns the offset of an event's counter of filtered fields that were not in memory.
    pub const fn unread_offset(&self, event: usize) -> usize {
        self.lost_offset(self.events) + 8 * event
    }

    /// Returns the offset of an event's counter of kernel texts and sequences that were cut.
    pub const fn cut_offset(&self, event: usize) -> usize {
        self.unread_offset(self.events) + 8 * event
    }

    /// Returns the offset of the version of an event's program that records.
    pub const fn version_offset(&self, event: usize) -> usize {
        self.cut_offset(self.events) + 8 * event
    }

    /// Returns the offset of a level's ring.
    pub const fn ring_offset(&self, level: usize) -> usize {
        let first = self.version_offset(self.events).next_multiple_of(PAGE_BYTES);
        match level {
            0 => first,
            _ => {
                let (outer, inner) = (self.outer.ring_bytes(), self.inner.ring_bytes());
                first + outer as usize + (level - 1) * inner as usize
            }
        }
    }

    /// Returns the size of a CPU area in bytes, a multiple of the page size.
    pub const fn cpu_bytes(&self) -> usize {
        (self.ring_offset(LEVELS) + RECORD_BYTES_MAX).next_multiple_of(PAGE_BYTES)
    }
}
