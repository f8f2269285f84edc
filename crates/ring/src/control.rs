//! The control lines of a region, as `trackway_abi::region` draws them.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Maximum number of attempts to read the recorder's progress while a live recorder changes it.
const DRAINED_TRIES: usize = 100;

/// The data that belongs to a commit word: time of the last record and number of records.
#[repr(C)]
#[derive(Debug)]
pub struct Slot {
    /// Time of the last record (or of the switch, if later), ns. Stored by the writer.
    pub last_ts: AtomicU64,
    /// Number of records committed since the region began. Stored by the writer.
    pub events: AtomicU64,
}

/// The recorder's progress: only the recorder writes it, and recovery of the trace reads it.
#[repr(C)]
#[derive(Debug)]
struct Drain {
    position: AtomicU64,
    file_bytes: AtomicU64,
    packets: AtomicU64,
    last_ts: AtomicU64,
    events: AtomicU64,
}

/// A copy of the recorder's progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drained {
    /// Position in the ring below which all bytes are in the stream's files.
    pub position: u64,
    /// Length of the present file of the stream, in bytes.
    pub file_bytes: u64,
    /// Number of packets in the present file.
    pub packets: u64,
    /// Number of the present file, plus one, if the stream is cut into files; 0: it has only one.
    pub file: u64,
    /// Time of the last drained record, ns.
    pub last_ts: u64,
    /// Number of drained records.
    pub events: u64,
}

/// The reason why a record is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// The buffer is full: a larger ring would have kept the record.
    Full,
    /// The buffer is full, and the process has not mapped all memory of the window.
    Unmapped,
    /// Another reason, which a larger ring does not change.
    Other,
}

/// The control lines of a region.
///
/// `commit` and the slots share a cache line with `limit`, so that a record touches one line
/// in addition to its own bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Control {
    /// Commit word: `head << 1 | parity`; the parity is the number of its slot.
    pub commit: AtomicU64,
    /// Position at or below which records end. Multiple of the sub-buffer size, or `u64::MAX`.
    pub limit: AtomicU64,
    /// Slots by parity. The writer fills the slot of the other parity, then commits.
    pub slots: [Slot; 2],
    /// Owner word of a claim region's writer; 0: there is none.
    pub owner: AtomicU64,
    /// Not zero: a record found no memory here, and the recorder must give some. Written by any
    /// writer and by the recorder.
    pub wants_memory: AtomicU64,
    /// Number of discarded records.
    pub discarded: AtomicU64,
    /// Number of discarded records that a larger ring would not have kept. Older libraries do not
    /// count them, nor the next two fields.
    pub hopeless: AtomicU64,
    /// Number of records in `hopeless` from processes that have not mapped all memory of the
    /// window.
    pub unmapped: AtomicU64,
    /// Size of the largest record that no sub-buffer can hold, in bytes; 0: there was none.
    pub oversized_bytes: AtomicU64,
    padding: [AtomicU64; 4],
    drain: AtomicU64,
    drained: [Drain; 2],
    /// File numbers of the two sides of `drained`.
    drained_file: [AtomicU64; 2],
    /// Maximum bytes of each file of the stream; 0: the stream is one file. Written by the
    /// recorder, read by recovery.
    pub tracefile_bytes: AtomicU64,
    /// Maximum number of files of the stream; 0: all are kept. Read by recovery, too.
    pub tracefile_count: AtomicU64,
    /// Number of records lost before the session was last cleared, which do not count as its
    /// losses. Written by the recorder, read by recovery.
    pub forgotten: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Control, commit) == 0);
    assert!(offset_of!(Control, limit) == 8);
    assert!(offset_of!(Control, slots) == 16);
    assert!(offset_of!(Control, owner) == 48);
    assert!(offset_of!(Control, wants_memory) == 56);
    assert!(offset_of!(Control, discarded) == 64);
    assert!(offset_of!(Control, hopeless) == 72);
    assert!(offset_of!(Control, unmapped) == 80);
    assert!(offset_of!(Control, oversized_bytes) == 88);
    assert!(offset_of!(Control, drain) == 128);
    assert!(offset_of!(Control, drained) == 136);
    assert!(offset_of!(Control, drained_file) == 216);
    assert!(offset_of!(Control, tracefile_bytes) == 232);
    assert!(offset_of!(Control, tracefile_count) == 240);
    assert!(offset_of!(Control, forgotten) == 248);
    assert!(size_of::<Control>() == trackway_abi::region::CONTROL_BYTES);
};

impl Control {
    /// Creates the control lines of a region that was never written: all zero, like fresh memory.
    pub fn new() -> Self {
        let word = || AtomicU64::new(0);
        let slot = || Slot { last_ts: word(), events: word() };
        let drain = || Drain {
            position: word(),
            file_bytes: word(),
            packets: word(),
            last_ts: word(),
            events: word(),
        };
        Self {
            commit: word(),
            limit: word(),
            slots: [slot(), slot()],
            owner: word(),
            wants_memory: word(),
            discarded: word(),
            hopeless: word(),
            unmapped: word(),
            oversized_bytes: word(),
            padding: core::array::from_fn(|_| word()),
            drain: word(),
            drained: [drain(), drain()],
            drained_file: [word(), word()],
            tracefile_bytes: word(),
            tracefile_count: word(),
            forgotten: word(),
        }
    }

    /// Counts a discarded record. Any thread or process may call this, also in a signal handler.
    pub fn count_discarded(&self, why: Discard) {
        self.discarded.fetch_add(1, Ordering::Relaxed);
        if why == Discard::Full {
            return;
        }
        self.hopeless.fetch_add(1, Ordering::Relaxed);
        if why == Discard::Unmapped {
            self.unmapped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that no sub-buffer can hold a record of this size. Any thread, any signal handler.
    pub fn note_oversized(&self, bytes: usize) {
        self.oversized_bytes.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    /// Resets the count of discarded events.
    pub fn forget_discarded(&self) {
        for count in [&self.discarded, &self.hopeless, &self.unmapped, &self.oversized_bytes] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the recorder's progress, while the recorder works or after its death.
    pub fn drained(&self) -> Drained {
        let mut drained = Drained::default();
        for _ in 0..DRAINED_TRIES {
            // ORDERING: Acquire pairs with the Release in `set_drained`: the six values of the
            // named side were stored before `drain` named it.
            let named = self.drain.load(Ordering::Acquire);
            let side = (named & 1) as usize;
            let drain = &self.drained[side];
            drained = Drained {
                position: drain.position.load(Ordering::Relaxed),
                file_bytes: drain.file_bytes.load(Ordering::Relaxed),
                packets: drain.packets.load(Ordering::Relaxed),
                file: self.drained_file[side].load(Ordering::Relaxed),
                last_ts: drain.last_ts.load(Ordering::Relaxed),
                events: drain.events.load(Ordering::Relaxed),
            };
            // ORDERING: Acquire pairs with the Release fence in `set_drained`: if any of these
            // values belongs to a later change, the load below finds that the change before it was
            // named.
            fence(Ordering::Acquire);
            if self.drain.load(Ordering::Relaxed) == named {
                break;
            }
        }
        drained
    }

    /// Publishes the recorder's progress with one store, so that a recorder killed between any two
    /// instructions leaves either the old progress or the new. Only the recorder calls this.
    pub fn set_drained(&self, drained: Drained) {
        let next = self.drain.load(Ordering::Relaxed).wrapping_add(1);
        let side = (next & 1) as usize;
        let drain = &self.drained[side];
        // ORDERING: Release keeps the stores below behind the store that named the other side: a
        // Release store alone lets later stores pass it, and a kill would find the named side
        // half changed. Pairs with the Acquire fence in `drained`.
        fence(Ordering::Release);
        drain.position.store(drained.position, Ordering::Relaxed);
        drain.file_bytes.store(drained.file_bytes, Ordering::Relaxed);
        drain.packets.store(drained.packets, Ordering::Relaxed);
        self.drained_file[side].store(drained.file, Ordering::Relaxed);
        drain.last_ts.store(drained.last_ts, Ordering::Relaxed);
        drain.events.store(drained.events, Ordering::Relaxed);
        // ORDERING: Release pairs with the Acquire in `drained`.
        self.drain.store(next, Ordering::Release);
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}
