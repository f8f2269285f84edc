//! The edges: sizes, ids, times.

use std::sync::atomic::{AtomicU32, Ordering};

use trackway_abi::region::{SUB_HEADER_BYTES, sub_header};
use trackway_testkit::Header;

use crate::{Control, Geometry, GeometryError, Plan, Refusal, Region, write_header};

/// A ring of two sub-buffers of 4 KiB at 4 KiB and 8 KiB, of which `head` bytes are written.
struct Fixture {
    control: Control,
    table: [AtomicU32; 2],
}

impl Fixture {
    fn new(head: u64) -> Self {
        let fixture =
            Self { control: Control::new(), table: [AtomicU32::new(1), AtomicU32::new(2)] };
        fixture.control.commit.store(head << 1, Ordering::Relaxed);
        fixture.control.limit.store(u64::MAX, Ordering::Relaxed);
        fixture
    }

    fn at_time(self, last_ts: u64) -> Self {
        self.control.slots[0].last_ts.store(last_ts, Ordering::Relaxed);
        self
    }

    fn region(&self) -> Region<'_> {
        let geometry = Geometry::new(12, 1).unwrap();
        Region { control: &self.control, table: &self.table, geometry }
    }

    fn plan(&self, now: u64, id: u32, body_bytes: usize) -> Result<(Plan, usize), Refusal> {
        let region = self.region();
        region.plan_record(region.expected(), now, id, body_bytes)
    }
}

#[test]
fn geometry_has_limits() {
    for (sub_shift, count_shift) in [(11, 1), (31, 1), (12, 0), (12, 9), (u32::MAX, u32::MAX)] {
        assert_eq!(Geometry::new(sub_shift, count_shift), Err(GeometryError));
    }
    let largest = Geometry::new(30, 8).unwrap();
    assert_eq!(largest.ring_bytes(), 1 << 38);
    assert_eq!(largest.record_bytes_max(), 4096);
    let smallest = Geometry::new(12, 1).unwrap();
    assert_eq!((smallest.sub_bytes(), smallest.sub_count()), (4096, 2));
    assert_eq!(smallest.record_bytes_max(), 4096 - 84 - 8);
    assert_eq!((smallest.index_of(8191), smallest.within(8191)), (1, 4095));
    assert_eq!((smallest.slot_of(2), smallest.slot_of(u64::MAX)), (0, 1));
}

#[test]
fn the_oldest_trusted_is_not_the_next_to_be_overwritten() {
    let fixture = Fixture::new(100);
    let four = Region { geometry: Geometry::new(12, 2).unwrap(), ..fixture.region() };
    let oldest = |region: Region<'_>, open: u64| region.oldest_index(open * 4096 + 100);
    let of_two: Vec<_> = (0..4).map(|open| oldest(fixture.region(), open)).collect();
    let of_four: Vec<_> = (0..6).map(|open| oldest(four, open)).collect();
    assert_eq!(of_two, [0, 1, 2, 3]);
    assert_eq!(of_four, [0, 0, 0, 1, 2, 3]);
}

#[test]
fn nothing_is_open_at_first() {
    assert_eq!(Fixture::new(0).plan(1, 0, 4), Err(Refusal::Switch));
    assert_eq!(Fixture::new(0).plan(1, 0, 0), Err(Refusal::Switch));
}

#[test]
fn the_longest_record_fits_a_fresh_sub_buffer() {
    let fixture = Fixture::new(SUB_HEADER_BYTES as u64);
    let longest = fixture.region().geometry.record_bytes_max() - 13;
    let (plan, header_bytes) = fixture.plan(1 << 27, 70_000, longest).unwrap();
    assert_eq!((header_bytes, plan.at), (13, 4096 + 84));
    assert_eq!(plan.next >> 1, 4096 - 8);
}

#[test]
fn a_record_fits_by_one_byte_or_does_not() {
    for body_bytes in [0, 1, 4, 500, 3000] {
        let last = 4096 - (13 + 8 + body_bytes) as u64;
        assert!(Fixture::new(last).plan(1, 0, body_bytes).is_ok());
        assert_eq!(Fixture::new(last + 1).plan(1, 0, body_bytes), Err(Refusal::Switch));
        assert!(Fixture::new(4096 + last).plan(1, 0, body_bytes).is_ok());
        assert_eq!(Fixture::new(4096 + last + 1).plan(1, 0, body_bytes), Err(Refusal::Switch));
    }
}

#[test]
fn a_record_stays_below_the_limit() {
    let fixture = Fixture::new(100);
    fixture.region().raise_limit(100 + 13 + 8 + 4);
    assert!(fixture.plan(1, 0, 4).is_ok());
    assert_eq!(fixture.plan(1, 0, 5), Err(Refusal::Full));
    fixture.region().raise_limit(0);
    assert_eq!(fixture.plan(1, 0, 4), Err(Refusal::Full));
}

#[test]
fn a_place_without_memory_is_refused() {
    let fixture = Fixture::new(4000);
    fixture.region().back(1, 0);
    assert_eq!(fixture.region().plan_switch(8000, 1, 0).unwrap_err(), Refusal::NotBacked);
    fixture.region().back(0, 0);
    assert_eq!(fixture.plan(1, 0, 4), Err(Refusal::NotBacked));
    // A place beyond the table's range is no place, not a wrong one.
    fixture.region().back(0, 1 << 44);
    assert_eq!(fixture.region().sub_buffer_offset(0), None);
    fixture.region().back(0, (1 << 44) - 4096);
    assert_eq!(fixture.region().sub_buffer_offset(0), Some((1 << 44) - 4096));
}

#[test]
fn ids_and_gaps_choose_the_header() {
    const WRAP: u64 = 1 << 27;
    let last = 5 * WRAP + 17;
    let cases = [
        (0, last, 4),
        (29, last + WRAP - 1, 4),
        (29, last + WRAP, 13),
        (30, last, 6),
        (31, last, 6),
        (65_535, last + WRAP - 1, 6),
        (65_535, last + WRAP, 13),
        (65_536, last, 13),
        (u32::MAX, u64::MAX, 13),
        // Time goes backward: the time of the last record counts.
        (3, last - 1, 4),
        (3, 0, 4),
    ];
    for (id, now, expected_bytes) in cases {
        let fixture = Fixture::new(200).at_time(last);
        let (plan, header_bytes) = fixture.plan(now, id, 4).unwrap();
        assert_eq!(header_bytes, expected_bytes, "id {id} at {now}");
        assert_eq!(plan.timestamp, now.max(last));
        let mut staged = [0xa5_u8; 16];
        // SAFETY: sixteen bytes end where the header ends.
        unsafe {
            write_header(staged.as_mut_ptr_range().end, id, plan.timestamp, header_bytes);
        }
        assert!(staged[..16 - header_bytes].iter().all(|&byte| byte == 0xa5));
        let header = Header::decode(&staged[16 - header_bytes..], last).unwrap();
        let expected = Header { id, timestamp_ns: now.max(last), bytes: header_bytes };
        assert_eq!(header, expected);
    }
}

#[test]
fn each_commit_changes_parity() {
    let fixture = Fixture::new(200);
    let (plan, _) = fixture.plan(1, 0, 4).unwrap();
    assert_eq!((plan.expected & 1, plan.next & 1), (0, 1));
    fixture.control.commit.store(plan.next, Ordering::Relaxed);
    let (plan, _) = fixture.plan(1, 0, 4).unwrap();
    assert_eq!((plan.expected & 1, plan.next & 1), (1, 0));
    let (plan, header) = fixture.region().plan_switch(plan.expected, 9, 3).unwrap();
    assert_eq!((plan.next, plan.at), ((4096 + 84) << 1, 8192));
    let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    assert_eq!((field(sub_header::INDEX), field(sub_header::EPOCH)), (1, 3));
    assert_eq!(field(sub_header::PREV_CONTENT), 208);
}
