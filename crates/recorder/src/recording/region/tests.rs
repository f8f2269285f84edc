//! Tests that write records to a region in plain memory, like programs, and check the stream.

use std::cell::{Cell, RefCell};

use trackway_abi::region::SUB_HEADER_BYTES;
use trackway_ctf::write::{INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES};
use trackway_ring::{Control, Geometry, Plan, Refusal};
use trackway_sys::clock::monotonic_ns;
use trackway_testkit::TemporaryFolder;

use super::*;

const SUB_SHIFT: u32 = 12;
const PAGE_BYTES: u64 = 4096;
/// Size of a record's payload, in bytes.
const BODY_BYTES: usize = 1000;

/// A region of four sub-buffers, with its memory and the folder of its stream.
struct TestRegion {
    region: Region<'static>,
    bytes: RefCell<Vec<u8>>,
    /// Records written during each read: their number, and the number of reads.
    interfering: Cell<(u64, u64)>,
    folder: TemporaryFolder,
    trace: Trace,
    begin_ts: u64,
}

impl Memory for TestRegion {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        let (records, times) = self.interfering.get();
        if times > 0 {
            self.interfering.set((records, times - 1));
            (0..records).for_each(|_| assert!(self.record(monotonic_ns())));
        }
        let at = at as usize;
        into.copy_from_slice(&self.bytes.borrow()[at..at + into.len()]);
        Ok(())
    }
}

impl TestRegion {
    /// Makes a region that writers fill once, or overwrite endlessly if `overwrite` is set.
    fn new(overwrite: bool) -> Self {
        let geometry = Geometry::new(SUB_SHIFT, 2).expect("sizes");
        // The control line has static lifetime, like a window.
        let control: &'static Control = Box::leak(Box::default());
        let table = (1..=geometry.sub_count() as u32).map(Into::into).collect::<Vec<_>>().leak();
        let region = Region { control, table, geometry };
        region.raise_limit(if overwrite { u64::MAX } else { geometry.ring_bytes() });
        let folder = TemporaryFolder::new();
        let fields = Vec::new();
        let place = crate::trace::folder::TraceFolder::open(folder.path()).expect("a folder");
        let trace = Trace::create_kernel(&place, [7; 16], 0, fields, Vec::new());
        let bytes = vec![0; (PAGE_BYTES + geometry.ring_bytes()) as usize];
        Self {
            region,
            bytes: RefCell::new(bytes),
            interfering: Cell::default(),
            folder,
            trace: trace.expect("a trace"),
            begin_ts: monotonic_ns(),
        }
    }

    fn work(&self) -> RegionDrain {
        let names = Arc::new(StreamNames::new("channel", 0));
        let overwrite = self.region.control.limit.load(Ordering::Relaxed) == u64::MAX;
        RegionDrain::new(self.region, names, 0, WriterPath::Sequence, overwrite)
    }

    /// Writes a record at time `now`, or counts it as lost if there is no space.
    fn record(&self, now: u64) -> bool {
        for _ in 0..2 {
            match self.region.plan_record(self.region.expected(), now, 0, BODY_BYTES) {
                Ok((plan, header_bytes)) => {
                    assert_eq!(header_bytes, 4, "no time passes");
                    let header = ((plan.timestamp as u32) << 5).to_le_bytes();
                    self.commit(&plan, &header);
                    return true;
                }
                Err(Refusal::Switch) => {}
                Err(refusal) => panic!("{refusal:?}"),
            }
            match self.region.plan_switch(self.region.expected(), now, 0) {
                Ok((plan, header)) => self.commit(&plan, &header[..SUB_HEADER_BYTES]),
                Err(Refusal::Full) => break,
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
        self.region.control.count_discarded(trackway_ring::Discard::Full);
        false
    }

    fn commit(&self, plan: &Plan, bytes: &[u8]) {
        let at = plan.at as usize;
        self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        let control = self.region.control;
        let slot = &control.slots[(plan.next & 1) as usize];
        slot.last_ts.store(plan.timestamp, Ordering::Relaxed);
        slot.events.store(plan.events, Ordering::Relaxed);
        // ORDERING: like a claimer's store; the test has one thread.
        control.commit.store(plan.next, Ordering::Release);
    }

    /// Drains the region like the recorder, so that writers can reuse the drained part.
    fn drain(&self, work: &mut RegionDrain, partial: bool) {
        work.poll();
        let drained = work.drain(&mut DrainContext {
            memory: self,
            trace: &self.trace,
            begin_ts: self.begin_ts,
            partial,
            is_last: false,
            buffer: &mut Vec::new(),
        });
        drained.expect("a disk with room");
        if !work.overwrite {
            let geometry = self.region.geometry;
            let drained = geometry.index_of(work.drained.position) << geometry.sub_shift();
            self.region.raise_limit(drained + geometry.ring_bytes());
        }
    }

    /// Returns the end time of each packet and the losses up to it, in stream order.
    fn packets(&self) -> Vec<(u64, u64)> {
        let index = self.folder.join("kernel/index/channel_0.idx");
        let index = std::fs::read(index).expect("an index");
        let entries = index[INDEX_HEADER_BYTES..].chunks_exact(INDEX_ENTRY_BYTES);
        let word = |entry: &[u8], number: usize| {
            let bytes = entry[8 * number..8 * number + 8].try_into().expect("8 bytes");
            u64::from_be_bytes(bytes)
        };
        entries.map(|entry| (word(entry, 4), word(entry, 5))).collect()
    }
}

#[test]
fn what_is_recorded_after_a_stop_is_kept_whatever_was_lost_before_it() {
    let ground = TestRegion::new(false);
    let mut work = ground.work();
    assert!(ground.record(monotonic_ns()));
    ground.drain(&mut work, true);
    // The kernel skipped some events of the program; no region counts them.
    work.lost_uncounted = 3;
    work.close_stream(&ground.trace, ground.begin_ts, CloseKind::ForNow).expect("a disk with room");
    assert_eq!(ground.packets().last().map(|packet| packet.1), Some(3), "it is told at once");
    assert!(ground.record(monotonic_ns()));
    ground.drain(&mut work, true);
    assert_eq!((work.written, work.damaged), (2, 0));
    work.close_stream(&ground.trace, ground.begin_ts, CloseKind::ForGood)
        .expect("a disk with room");
    let ends: Vec<_> = ground.packets().iter().map(|packet| packet.0).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

#[test]
fn what_found_no_room_is_told_behind_the_last_record_before_it() {
    let ground = TestRegion::new(false);
    let mut work = ground.work();
    while ground.record(monotonic_ns()) {}
    let last_ts = work.region.0.snapshot().expect("a snapshot").last_ts.expect("a time");
    assert!(!ground.record(monotonic_ns()));
    // Draining again, also open sub-buffers, reports no loss: all losses are newer.
    for _ in 0..3 {
        ground.drain(&mut work, true);
    }
    let lost_ts = monotonic_ns();
    assert!(ground.record(monotonic_ns()));
    ground.drain(&mut work, true);
    let packets = ground.packets();
    let told = packets.iter().position(|packet| packet.1 == 2).expect("both are told of");
    assert!(packets[..told].iter().all(|packet| packet.1 == 0), "{packets:?}");
    assert_eq!(packets[told - 1].0, last_ts, "{packets:?}");
    assert!(packets[told].0 >= lost_ts, "{packets:?}");
}

#[test]
fn what_no_region_counts_is_told_by_the_first_packet_that_ends_later() {
    let ground = TestRegion::new(false);
    let mut work = ground.work();
    assert!(ground.record(monotonic_ns()));
    work.lost_uncounted = 5;
    ground.drain(&mut work, true);
    // The time of the loss is unknown, so it counts as later than the record.
    assert_eq!(ground.packets().last().map(|packet| packet.1), Some(0));
    for lost in [6, 7, 8] {
        work.lost_uncounted = lost;
        ground.drain(&mut work, true);
    }
    assert!(ground.record(monotonic_ns()));
    ground.drain(&mut work, true);
    assert_eq!(ground.packets().last().map(|packet| packet.1), Some(5));
    assert!(ground.record(monotonic_ns()));
    ground.drain(&mut work, true);
    work.close_stream(&ground.trace, ground.begin_ts, CloseKind::ForGood)
        .expect("a disk with room");
    assert_eq!(ground.packets().iter().map(|packet| packet.1).collect::<Vec<_>>(), [0, 0, 5, 8]);
}

#[test]
fn a_snapshot_that_writers_overtake_is_begun_anew_and_says_if_it_has_nothing() {
    let ground = TestRegion::new(true);
    (0..20).for_each(|_| assert!(ground.record(monotonic_ns())));
    let snapshot = |interfering| {
        let mut work = ground.work().snapshot_view(0);
        work.poll();
        ground.interfering.set(interfering);
        ground.drain(&mut work, true);
        (work.written, work.is_missed(), work.damaged)
    };
    // The ring holds fewer than 20 records.
    let (written, is_missed, damaged) = snapshot((20, 30));
    assert!(written > 0 && !is_missed && damaged == 0, "{written} {is_missed} {damaged}");
    assert_eq!(snapshot((20, u64::MAX)), (0, true, 0));
    let (written, is_missed, damaged) = snapshot((0, 0));
    assert!(written > 0 && !is_missed && damaged == 0, "{written} {is_missed} {damaged}");
}
