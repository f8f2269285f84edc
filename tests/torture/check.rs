//! Comparison of a trace with the events that the program counted as emitted.

use std::collections::HashMap;

use crate::shared::Lane;
use crate::trace::{Complaints, Record, Stream};

/// Sums over all lanes and streams of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTotals {
    /// Number of events begun.
    pub(crate) started: u64,
    /// Number of events whose call returned.
    pub(crate) returned: u64,
    /// Number of events in the trace.
    pub(crate) recorded: u64,
    /// Number of lost events, from the trace.
    pub(crate) lost: u64,
}

/// Computes the sums over lanes and streams.
pub(crate) fn sum_totals(streams: &[Stream], lanes: &[Lane]) -> RoundTotals {
    RoundTotals {
        started: lanes.iter().map(|lane| lane.started).sum(),
        returned: lanes.iter().map(|lane| lane.returned).sum(),
        recorded: streams.iter().map(|stream| stream.records.len() as u64).sum(),
        lost: streams.iter().map(|stream| stream.discarded).sum(),
    }
}

/// Checks that recorded + lost + overwritten = emitted: exactly, except for the incomplete events
/// of killed threads.
pub(crate) fn check_sums(totals: &RoundTotals, overwritten: u64, wrong: &mut Complaints) {
    let accounted = totals.recorded + totals.lost + overwritten;
    wrong.unless((totals.returned..=totals.started).contains(&accounted), || {
        format!("{totals:?}, {overwritten} overwritten: {accounted} accounted for")
    });
}

/// Checks that no packet is missing after the first record of its stream. (A lockless buffer's hole
/// is such a packet.)
pub(crate) fn check_no_packet_missing(streams: &[Stream], wrong: &mut Complaints) {
    for stream in streams {
        wrong.unless(stream.missing == 0, || {
            format!("{}: {} packets are missing", stream.name, stream.missing)
        });
    }
}

/// Checks that every event occurs at most once, in order for each lane: in each region as stored,
/// and over all regions by their times.
pub(crate) fn check_order(streams: &[Stream], wrong: &mut Complaints) {
    for stream in streams {
        let mut last: HashMap<u32, u64> = HashMap::new();
        for record in &stream.records {
            let before = last.insert(record.lane, record.seq);
            wrong.unless(before.is_none_or(|before| before < record.seq), || {
                format!("{}: {record:?} after number {before:?}", stream.name)
            });
        }
    }
    for (lane, records) in records_by_lane(streams) {
        for pair in records.windows(2) {
            wrong.unless(pair[0].seq != pair[1].seq, || format!("lane {lane}: {pair:?} twice"));
            wrong.unless(pair[0].time <= pair[1].time, || {
                format!("lane {lane}: time goes backward: {pair:?}")
            });
        }
    }
}

/// Checks that every event whose call returned is present.
pub(crate) fn check_all_present(streams: &[Stream], lanes: &[Lane], wrong: &mut Complaints) {
    let all = records_by_lane(streams);
    for (number, lane) in lanes.iter().enumerate().skip(1) {
        let found = all.get(&(number as u32)).map_or(0, Vec::len) as u64;
        // Numbers are unique and below `started`, so counting is enough.
        wrong.unless((lane.returned..=lane.started).contains(&found), || {
            format!("lane {number}: {found} events of {}", lane.returned)
        });
    }
}

/// Checks the trace of a flight recorder: after the time from which on every region is complete,
/// only lost events are missing.
pub(crate) fn check_newest_present(
    streams: &[Stream],
    lanes: &[Lane],
    lost: u64,
    wrong: &mut Complaints,
) {
    let whole_since = streams
        .iter()
        .filter(|stream| stream.overwritten)
        .filter_map(|stream| stream.records.first())
        .map(|record| record.time)
        .max()
        .unwrap_or(0);
    let all = records_by_lane(streams);
    let mut missing = 0;
    for (number, lane) in lanes.iter().enumerate() {
        let kept = all.get(&(number as u32)).map_or(&[][..], Vec::as_slice);
        let newest: Vec<_> = kept.iter().filter(|record| record.time > whole_since).collect();
        if let Some(first) = newest.first() {
            let expected = lane.returned.saturating_sub(first.seq);
            missing += expected.saturating_sub(newest.len() as u64);
        }
    }
    wrong.unless(missing <= lost, || {
        format!("{missing} of the newest events are missing, {lost} were lost")
    });
}

/// Returns the records by lane, in the order of their numbers.
fn records_by_lane(streams: &[Stream]) -> HashMap<u32, Vec<Record>> {
    let mut lanes: HashMap<u32, Vec<Record>> = HashMap::new();
    for record in streams.iter().flat_map(|stream| &stream.records) {
        lanes.entry(record.lane).or_default().push(*record);
    }
    for records in lanes.values_mut() {
        records.sort_by_key(|record| (record.seq, record.time));
    }
    lanes
}
