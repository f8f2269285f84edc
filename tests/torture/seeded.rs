//! Seeded faults that the checks of a trace must detect.

use crate::check::{
    check_all_present, check_newest_present, check_no_packet_missing, check_order, check_sums,
    sum_totals,
};
use crate::shared::Lane;
use crate::trace::{Complaints, Record, Stream};

fn make_lane(started: u64, returned: u64) -> Lane {
    let name = String::new();
    let (pid, tid, process, thread, in_signal, seed) = (1, 1, 0, 0, false, 0);
    Lane { started, returned, pid, tid, process, thread, in_signal, seed, name }
}

/// Returns a correct trace and its lanes: two lanes of 20 events, which alternate between two
/// streams every three events, and the unused lane 0.
fn correct_trace() -> (Vec<Stream>, Vec<Lane>) {
    let mut streams = vec![Stream::default(), Stream::default()];
    for seq in 0..20 {
        for lane in [1, 2] {
            let record = Record { lane, seq, time: 100 + 2 * seq };
            streams[(seq / 3 % 2) as usize].records.push(record);
        }
    }
    (streams, vec![make_lane(0, 0), make_lane(20, 20), make_lane(20, 20)])
}

/// Returns true if the checks complain after `spoil` has changed a correct trace.
fn checks_detect(spoil: impl Fn(&mut Vec<Stream>, &mut Vec<Lane>)) -> bool {
    let (mut streams, mut lanes) = correct_trace();
    spoil(&mut streams, &mut lanes);
    let wrong = &mut Complaints::default();
    check_order(&streams, wrong);
    check_no_packet_missing(&streams, wrong);
    check_all_present(&streams, &lanes, wrong);
    check_sums(&sum_totals(&streams, &lanes), 0, wrong);
    check_newest_present(&streams, &lanes, 0, wrong);
    wrong.text().is_some()
}

#[test]
fn a_good_trace_is_good() {
    assert!(!checks_detect(|_, _| {}));
    // The lane was killed in the middle of an event, which was committed or not.
    assert!(!checks_detect(|_, lanes| lanes[1].returned = 19));
    assert!(!checks_detect(|_, lanes| lanes[1].started = 21));
}

#[test]
fn faults_are_found() {
    assert!(checks_detect(|streams, _| streams[0].records.retain(|record| record.seq != 7)));
    assert!(checks_detect(|streams, _| streams[1].records.truncate(15)), "missing at the end");
    assert!(checks_detect(|streams, _| streams[0].records.swap(2, 4)), "out of order");
    assert!(checks_detect(|streams, _| {
        let twice = streams[0].records[3];
        streams[0].records[1] = twice;
    }));
    assert!(checks_detect(|streams, _| streams[1].records[5].time -= 60), "time goes backward");
    assert!(checks_detect(|streams, _| streams[1].discarded = 1), "counted twice");
    assert!(checks_detect(|streams, _| streams[0].missing = 1), "a packet is missing");
    assert!(checks_detect(|_, lanes| {
        lanes[2].returned = 21;
        lanes[2].started = 21;
    }));
    assert!(checks_detect(|_, lanes| lanes[1].started = 19), "never emitted");
}

#[test]
fn a_hole_among_the_newest_is_noticed() {
    let overwritten = |streams: &mut Vec<Stream>| {
        for stream in streams {
            stream.overwritten = true;
            stream.records.retain(|record| record.seq > 8);
        }
    };
    let check = |spoil: fn(&mut Vec<Stream>)| {
        let (mut streams, lanes) = correct_trace();
        overwritten(&mut streams);
        spoil(&mut streams);
        let wrong = &mut Complaints::default();
        check_newest_present(&streams, &lanes, 0, wrong);
        wrong.text().is_some()
    };
    assert!(!check(|_| {}));
    assert!(check(|streams| streams[0].records.retain(|record| record.seq != 14)));
    assert!(check(|streams| streams[1].records.truncate(5)));
}
