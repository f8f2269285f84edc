//! Where things are in a CPU's part of the buffers.
//!
//! ```text
//!      0  depth     u64   programs under way on this CPU
//!      8  too_deep  u64   events that found all levels taken
//!     16  stopped   u64   not 0: nothing is recorded: now, or of this CPU
//!     24  unasked   u64   the same as `too_deep`, before their filters could be asked
//!     64  control lines, one for each level
//!         lost      u64 × events: records that did not fit, of each event
//!         unread    u64 × events: those whose filters asked for what was not in memory
//!         cut       u64 × events: texts and sequences of the kernel's that were cut
//!         version   u64 × events: which of an event's programs records it; [`OFF`]: none does
//!         (page)    ring of level 0, then those of the others
//!         tail      the longest record: what the kernel's verifier thinks may be written there
//! ```
//!
//! A program that interrupts another one, in an interrupt or in an NMI, finds the depth raised, and
//! writes the next level's region: so each region has one writer at a time, without a lock. Most
//! events come at depth 0, also those of interrupts: only what interrupts a program, in its 50 ns,
//! is deeper. So the other levels are small. (Programs on tracepoints are not run there at all by
//! the kernel, which counts them as missed; those of raw tracepoints are.)

use trackway_abi::record::RECORD_BYTES_MAX;
use trackway_abi::region::control_stride_bytes;
use trackway_ring::Geometry;

/// Levels: task, soft interrupt, interrupt, NMI.
pub const LEVELS: usize = 4;
/// Sub-buffers of the levels above the first, as a power of two.
const INNER_COUNT_SHIFT: u32 = 2;
/// Where the depth is.
pub(crate) const DEPTH: usize = 0;
/// Where it is counted what found no level.
pub(crate) const TOO_DEEP: usize = 8;
/// Where it is counted what found no level to ask filters on.
pub(crate) const UNASKED: usize = 24;
/// Where it is said that nothing is recorded, by these bits.
pub(crate) const STOPPED: usize = 16;
/// Nothing is recorded any more.
pub(crate) const NOW: u64 = 1;
/// Nothing is recorded of this CPU.
pub(crate) const LEFT_OUT: u64 = 2;
/// No version of an event's program has this number.
pub(crate) const OFF: u64 = u64::MAX;
/// Where the control lines are.
const CONTROLS: usize = 64;
/// Where control lines say how the level's ring is found: its size less one, and where it begins;
/// behind them is a word of the programs' own. (None of it is `trackway_abi::region`'s.)
pub(crate) const CONTROL_MASK: i16 = 72;
pub(crate) const CONTROL_RING: i16 = 80;
const PAGE_BYTES: usize = 4096;
/// Most bytes that the buffers of all CPUs may have together: what the kernel maps of an array.
pub const BUFFERS_BYTES_MAX: usize = 256 << 20;

/// The layout of each CPU's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    outer: Geometry,
    inner: Geometry,
    events: usize,
}

impl Layout {
    /// That of rings with `1 << count_shift` sub-buffers of `1 << sub_shift` bytes, for so many
    /// events. `None` if there are no such rings.
    pub fn new(sub_shift: u32, count_shift: u32, events: usize) -> Option<Self> {
        let outer = Geometry::new(sub_shift, count_shift).ok()?;
        let inner = Geometry::new(sub_shift, INNER_COUNT_SHIFT.min(count_shift)).ok()?;
        let layout = Self { outer, inner, events };
        (layout.cpu_bytes() <= BUFFERS_BYTES_MAX).then_some(layout)
    }

    /// Sizes of a level's ring.
    pub const fn geometry(&self, level: usize) -> Geometry {
        if level == 0 { self.outer } else { self.inner }
    }

    /// Events that losses are counted of.
    pub const fn events(&self) -> usize {
        self.events
    }

    /// Distance between the control lines of two levels, in bytes.
    pub const fn control_stride(&self) -> usize {
        control_stride_bytes(self.outer.sub_count() as usize)
    }

    /// Where a level's control lines are.
    pub const fn control(&self, level: usize) -> usize {
        CONTROLS + level * self.control_stride()
    }

    /// Where records of an event are counted that did not fit.
    pub const fn lost(&self, event: usize) -> usize {
        self.control(LEVELS) + 8 * event
    }

    /// Where events are counted whose filters asked for what was not in memory.
    pub const fn unread(&self, event: usize) -> usize {
        self.lost(self.events) + 8 * event
    }

    /// Where texts and sequences of the kernel's are counted that were cut.
    pub const fn cut(&self, event: usize) -> usize {
        self.unread(self.events) + 8 * event
    }

    /// Where it is said which version of an event's program records it.
    pub const fn version(&self, event: usize) -> usize {
        self.cut(self.events) + 8 * event
    }

    /// Where a level's ring is.
    pub const fn ring(&self, level: usize) -> usize {
        let first = self.version(self.events).next_multiple_of(PAGE_BYTES);
        match level {
            0 => first,
            _ => {
                let (outer, inner) = (self.outer.ring_bytes(), self.inner.ring_bytes());
                first + outer as usize + (level - 1) * inner as usize
            }
        }
    }

    /// Bytes of a CPU's part, a multiple of the page's.
    pub const fn cpu_bytes(&self) -> usize {
        (self.ring(LEVELS) + RECORD_BYTES_MAX).next_multiple_of(PAGE_BYTES)
    }
}
