//! A session's layout: copied from the window and checked before use.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use trackway_abi::region::{
    CLAIM_REGIONS_PER_CPU, CONTROL_BYTES, LOCKLESS_COUNTERS_BYTES, LOCKLESS_STRIDE,
    LOCKLESS_SUB_BYTES, REGIONS_PER_CPU, SUB_COUNT_MAX, control_stride_bytes,
};
use trackway_abi::session::{Session, flag, state};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX};
use trackway_ring::lockless::{Buffer, Counters, Mode, SubBuffer};
use trackway_ring::{Control, Geometry, Region};

use crate::Window;

/// Writer paths of a session; each has its own region on every CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterPath {
    /// Writers that reserve by restartable sequence.
    Sequence,
    /// Writers that reserve by claim, in the first or second claim region (0 or 1).
    Claim(usize),
}

impl WriterPath {
    /// Writer paths of a CPU, in the order of their regions in memory.
    pub const ALL: [Self; REGIONS_PER_CPU] = [Self::Sequence, Self::Claim(0), Self::Claim(1)];

    /// Returns the index of the path's region among a CPU's regions.
    pub const fn index(self) -> usize {
        match self {
            Self::Sequence => 0,
            Self::Claim(which) => 1 + which % CLAIM_REGIONS_PER_CPU,
        }
    }
}

/// Offsets: tables of ids and discards, then control lines, then the counters of lockless buffers
/// if the session has them. All sessions of a window have the same layout, so that a late writer of
/// an ended session finds the same kind of word at each offset.
const IDS_AT: u64 = 0;
const DISCARDS_AT: u64 = IDS_AT + (EVENTS_MAX * 4) as u64;
const CONTROLS_AT: u64 = DISCARDS_AT + (EVENTS_MAX * 8) as u64;
const STRIDE: u64 = control_stride_bytes(SUB_COUNT_MAX) as u64;

/// Distance between the control lines of two CPUs' sequence regions, in bytes.
pub const CPU_STRIDE: usize = REGIONS_PER_CPU * STRIDE as usize;

/// Returns the region whose control lines are at `control`.
///
/// # Safety
/// `control` is the result of [`SessionLayout::controls`], plus the offset of one of its regions,
/// for a session with this geometry.
#[inline(always)]
pub unsafe fn region_at(control: *mut u8, geometry: Geometry) -> Region<'static> {
    // SAFETY: control lines are in mapped, backed memory that is never used for anything else
    // (`granule::CONTROL`), are 64-byte aligned and consist of atomics; the table follows.
    unsafe {
        Region {
            control: &*control.cast::<Control>(),
            table: core::slice::from_raw_parts(
                control.add(CONTROL_BYTES).cast(),
                geometry.sub_count() as usize,
            ),
            geometry,
        }
    }
}

/// Returns the table of event ids that precedes a session's first control lines at `controls`.
#[inline(always)]
pub fn ids_before(controls: *mut u8) -> *mut AtomicU32 {
    controls.wrapping_sub((CONTROLS_AT - IDS_AT) as usize).cast()
}

/// Position in the recorder's progress that marks a region outside the session: an earlier claimer
/// held it when it was reset. No writer reaches this position.
pub const NOT_OF_SESSION: u64 = u64::MAX;

/// Zeroes a region, except for words that other processes may change at any time. The limit of zero
/// ensures that no process writes in it.
pub fn reset_region(region: Region<'_>) {
    let control = region.control;
    control.commit.store(0, Ordering::Relaxed);
    for slot in &control.slots {
        slot.last_ts.store(0, Ordering::Relaxed);
        slot.events.store(0, Ordering::Relaxed);
    }
    for entry in region.table {
        entry.store(0, Ordering::Relaxed);
    }
}

/// Most CPUs that a machine can have.
const CPUS_MAX: u32 = 8192;

/// The checked values of a session that a writer or reader needs.
#[derive(Debug, Clone, Copy)]
pub struct SessionLayout {
    /// Slot of the session.
    pub index: usize,
    /// Generation for which the layout is valid.
    pub generation: u64,
    /// [`trackway_abi::session::flag`] bits.
    pub flags: u32,
    /// [`trackway_abi::record::context`] bits.
    pub contexts: u32,
    /// Number of CPUs that have regions.
    pub cpus: u32,
    /// Sizes of sequence regions.
    pub geometry: Geometry,
    /// Sizes of claim regions.
    pub claim_geometry: Geometry,
    control_offset: u64,
}

impl SessionLayout {
    /// Returns the size, in bytes, of tables and control lines for `cpus` CPUs of a session with
    /// these [`trackway_abi::session::flag`] bits.
    pub const fn control_bytes(cpus: u32, flags: u32) -> u64 {
        let lockless = if flags & flag::LOCKLESS != 0 { LOCKLESS_STRIDE as u64 } else { 0 };
        Self::lockless_at(cpus) + cpus as u64 * lockless
    }

    /// Returns the offset of the counters of lockless buffers.
    const fn lockless_at(cpus: u32) -> u64 {
        CONTROLS_AT + cpus as u64 * REGIONS_PER_CPU as u64 * STRIDE
    }

    /// Copies and checks the session in slot `index`. `None` if the session must not be used: it is
    /// free, being built, or has values that no recorder writes.
    pub fn read(window: &Window, index: usize) -> Option<Self> {
        Self::read_from_state(window, index, state::ACTIVE)
    }

    /// Reads the layout for the recorder that owns the slot, also while it builds the session.
    pub fn read_as_recorder(window: &Window, index: usize) -> Option<Self> {
        Self::read_from_state(window, index, state::BUILDING)
    }

    fn read_from_state(window: &Window, index: usize, least_state: u32) -> Option<Self> {
        let session: &Session = window.session(index);
        // ORDERING: Acquire pairs with the Release with which the recorder publishes a generation;
        // the values read below belong to it, or the second check finds another generation.
        let generation = session.generation.load(Ordering::Acquire);
        if session.state.load(Ordering::Acquire) < least_state {
            return None;
        }
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let cpus = load(&session.cpus);
        let control_offset = session.control_offset.load(Ordering::Relaxed);
        let geometry = Geometry::new(load(&session.sub_shift), load(&session.count_shift)).ok()?;
        let claim_geometry =
            Geometry::new(load(&session.claim_sub_shift), load(&session.count_shift)).ok()?;
        let layout = Self {
            index,
            generation,
            flags: load(&session.flags),
            contexts: load(&session.contexts),
            cpus,
            geometry,
            claim_geometry,
            control_offset,
        };
        let end = control_offset.checked_add(Self::control_bytes(cpus, layout.flags))?;
        let placed = control_offset >= DATA_OFFSET as u64
            && control_offset.is_multiple_of(64)
            && cpus > 0
            && cpus <= CPUS_MAX
            && end <= window.usable_bytes();
        // ORDERING: Acquire keeps the loads above before the next load, which checks again the
        // generation to which they must belong.
        core::sync::atomic::fence(Ordering::Acquire);
        (placed && session.generation.load(Ordering::Relaxed) == generation).then_some(layout)
    }

    /// Returns a region of `cpu`, if the CPU is below [`Self::cpus`].
    #[inline(always)]
    pub fn region(&self, window: &Window, cpu: u32, way: WriterPath) -> Option<Region<'static>> {
        if cpu >= self.cpus {
            return None;
        }
        let geometry = match way {
            WriterPath::Sequence => self.geometry,
            WriterPath::Claim(_) => self.claim_geometry,
        };
        let offset = cpu as usize * CPU_STRIDE + way.index() * STRIDE as usize;
        // SAFETY: `read` checked that the control lines of all CPUs are mapped and backed, and
        // the CPU was bounded.
        Some(unsafe { region_at(self.controls(window).wrapping_add(offset), geometry) })
    }

    /// Returns the lockless buffer of `cpu`, if the session has lockless buffers.
    pub fn lockless(&self, window: &Window, cpu: u32) -> Option<Buffer<'static>> {
        if cpu >= self.cpus || self.flags & flag::LOCKLESS == 0 {
            return None;
        }
        let offset = self.control_offset
            + Self::lockless_at(self.cpus)
            + u64::from(cpu) * LOCKLESS_STRIDE as u64;
        let at = window.base().wrapping_add(offset as usize);
        let count = self.geometry.sub_count() as usize;
        let overwrite = self.flags & flag::OVERWRITE != 0;
        const PLACES_AT: usize = LOCKLESS_COUNTERS_BYTES + SUB_COUNT_MAX * LOCKLESS_SUB_BYTES;
        // SAFETY: as in `region`: `read` checked that the counters of all CPUs are mapped and
        // backed; they have the alignment of the stride, and are atomics whose memory is never used
        // for anything else.
        unsafe {
            Some(Buffer {
                counters: &*at.cast::<Counters>(),
                sub_buffers: core::slice::from_raw_parts(
                    at.add(LOCKLESS_COUNTERS_BYTES).cast::<SubBuffer>(),
                    count,
                ),
                places: core::slice::from_raw_parts(at.add(PLACES_AT).cast(), count + 1),
                geometry: self.geometry,
                mode: if overwrite { Mode::FlightRecorder } else { Mode::Discard },
            })
        }
    }

    /// Returns the range of the session's tables and control lines, in bytes of the window.
    pub const fn control_area(&self) -> core::ops::Range<u64> {
        let bytes = Self::control_bytes(self.cpus, self.flags);
        self.control_offset..self.control_offset + bytes
    }

    /// Returns the address of the control lines of CPU 0's sequence region.
    pub fn controls(&self, window: &Window) -> *mut u8 {
        window.base().wrapping_add((self.control_offset + CONTROLS_AT) as usize)
    }

    /// Returns the word with the id + 1 of event `event` in this session; 0 means no id.
    #[inline(always)]
    pub fn id(&self, window: &Window, event: usize) -> &'static AtomicU32 {
        let offset = self.control_offset + IDS_AT + (event % EVENTS_MAX * 4) as u64;
        // SAFETY: as in `region`; the index was bounded.
        unsafe { &*window.base().add(offset as usize).cast() }
    }

    /// Returns the counter of discarded records of event `event` in this session.
    pub fn discards(&self, window: &Window, event: usize) -> &'static AtomicU64 {
        let offset = self.control_offset + DISCARDS_AT + (event % EVENTS_MAX * 8) as u64;
        // SAFETY: as in `region`; the index was bounded.
        unsafe { &*window.base().add(offset as usize).cast() }
    }

    /// Resets the counters of discarded records. The recorder calls this when it clears the
    /// session.
    pub fn forget_discards(&self, window: &Window) {
        for event in 0..EVENTS_MAX {
            self.discards(window, event).store(0, Ordering::Relaxed);
        }
    }

    /// Zeroes tables and control lines. The recorder calls this before it publishes a session,
    /// after a grace period. A region whose owner word is not zero stays unusable and is marked
    /// with [`NOT_OF_SESSION`]: its claimer may be asleep, and has not released it.
    pub fn reset(&self, window: &Window) {
        for event in 0..EVENTS_MAX {
            self.id(window, event).store(0, Ordering::Relaxed);
        }
        self.forget_discards(window);
        for cpu in 0..self.cpus {
            for way in WriterPath::ALL {
                let Some(region) = self.region(window, cpu, way) else { continue };
                let control = region.control;
                // The limit comes first, even if an earlier claimer still holds the region: no
                // writer may continue in the former memory.
                control.limit.store(0, Ordering::Relaxed);
                control.forget_discarded();
                control.forgotten.store(0, Ordering::Relaxed);
                let mut drained = trackway_ring::Drained::default();
                // ORDERING: Acquire pairs with the Release with which a claimer releases its claim.
                if control.owner.load(Ordering::Acquire) == 0 {
                    reset_region(region);
                } else {
                    drained.position = NOT_OF_SESSION;
                }
                control.set_drained(drained);
            }
            if let Some(buffer) = self.lockless(window, cpu) {
                buffer.begin_session();
            }
        }
    }
}
