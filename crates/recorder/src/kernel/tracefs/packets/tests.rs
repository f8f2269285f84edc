//! Tests of packets made from pages of events: sorted by time, bounded, without duplicates.

use std::path::Path;

use trackway_kernel::catalogue::format::{self, EmptyLookup};
use trackway_kernel::catalogue::model::{Event, Source};
use trackway_kernel::tracefs::contexts::{CommonLayout, Context};
use trackway_kernel::tracefs::convert::plan_event;
use trackway_kernel::tracefs::filter::Filter;
use trackway_session::FilterSpec;
use trackway_testkit::TemporaryFolder;

use super::*;
use crate::kernel::filters::KernelFilters;

const PAGE_FORMAT: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const ENTRY_FORMAT: &str = "type_len : 5 bits\ntime_delta : 27 bits\npadding : type == 29\n\
    time_extend : type == 30\n";
const EVENT_FORMAT: &str = "name: made_up\nID: 300\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:int number;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";

/// Returns a page with one event for each pair of time and number.
fn encode_page(events: &[(u64, u32)]) -> Vec<u8> {
    let first = events.first().map_or(0, |&(time, _)| time);
    let mut bytes = first.to_le_bytes().to_vec();
    bytes.extend((16 * events.len() as u64).to_le_bytes());
    let mut before = first;
    for &(time, number) in events {
        bytes.extend((((time - before) as u32) << 5 | 3).to_le_bytes());
        [300, 77, number].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        before = time;
    }
    bytes.resize(4096, 0);
    bytes
}

fn make_output(folder: &Path, filter: &str, held_bytes: Option<u64>) -> (PacketOutput, PageFormat) {
    let format = format::parse(EVENT_FORMAT, &EmptyLookup).expect("a format");
    let common = CommonLayout::find(&format.common).expect("what all have");
    let event = Event {
        subsystem: "made".into(),
        name: "up".into(),
        id: Some(format.id),
        source: Source::Tracepoint,
        fields: format.fields,
    };
    let specs = [FilterSpec::new(filter)];
    let as_staged = |event: &Event| plan_event(event, 3500);
    let events = std::slice::from_ref(&event);
    let mut filters = KernelFilters::<Filter>::new((&specs, &[]), events, as_staged, (2, None))
        .expect("it makes sense");
    let asked = [(&event, filters.take_filters(0).expect("it has all"))];
    let converter = Converter::with_filters(asked.into_iter(), common, 3500, vec![Context::Tid]);
    let place = crate::trace::folder::TraceFolder::open(folder).expect("a folder");
    let trace = Trace::create_kernel(&place, [7; 16], 0, converter.contexts(), Vec::new());
    let (trace, bounds) = (trace.expect("a trace"), Tracefiles::default());
    let output = PacketOutput::new(trace, Arc::new(converter), (0, held_bytes), bounds, 0..2);
    (output, PageFormat::parse(PAGE_FORMAT, ENTRY_FORMAT).expect("known"))
}

/// Returns the numbers in a packet; each record has a header, a thread id and a number.
fn decode_numbers(packet: &PacketBuffer) -> Vec<u32> {
    let records = packet.bytes.get(PACKET_HEADER_BYTES..).unwrap_or_default();
    let number = |of: &[u8; 12]| u32::from_le_bytes([of[8], of[9], of[10], of[11]]);
    records.as_chunks().0.iter().map(number).collect()
}

#[test]
fn filters_that_remember_are_asked_in_the_order_of_time_of_all_cpus() {
    let folder = TemporaryFolder::new();
    let (mut output, format) = make_output(folder.path(), "made:up: count() % 3 == 0", None);
    // The pages are read one after the other. By time: 0, 10, 1, 2, 11, 3, 12, 13, 14.
    let first = [(100, 0), (300, 1), (400, 2), (600, 3)];
    let second = [(200, 10), (500, 11), (700, 12), (800, 13), (900, 14)];
    output.process_page(0, &encode_page(&first), &format).expect("it waits");
    output.process_page(1, &encode_page(&second), &format).expect("it waits");
    assert_eq!((output.last_ts(0), output.last_ts(1)), (600, 900));
    assert!(output.streams.iter().all(|stream| stream.packet.events == 0));
    output.process_until(600).expect("room");
    let taken =
        |output: &PacketOutput| [0, 1].map(|place| decode_numbers(&output.streams[place].packet));
    assert_eq!(taken(&output), [vec![0, 2], vec![]]);
    output.process_until(u64::MAX).expect("room");
    assert_eq!(taken(&output), [vec![0, 2], vec![12]]);
}

#[test]
fn it_is_known_how_far_a_cpu_was_read_whether_records_wait_or_not() {
    for filter in ["made:up: number >= 0", "made:up: number < 0", "made:up: count() > 1"] {
        let folder = TemporaryFolder::new();
        let (mut output, format) = make_output(folder.path(), filter, None);
        assert_eq!(output.last_ts(1), 0);
        output.process_page(1, &encode_page(&[(200, 1), (500, 2)]), &format).expect("room");
        assert_eq!((output.last_ts(0), output.last_ts(1)), (0, 500), "{filter}");
    }
}

#[test]
fn records_are_asked_what_was_asked_when_they_were_made() {
    let folder = TemporaryFolder::new();
    let (mut output, format) = make_output(folder.path(), "made:up: number % 2 == 0", None);
    let before = Arc::clone(&output.converter);
    let anew = |count: &str| {
        let other = TemporaryFolder::new();
        let filter = format!("made:up: count() < {count}");
        Arc::clone(&self::make_output(other.path(), &filter, None).0.converter)
    };
    let page = |output: &mut PacketOutput, times: &[(u64, u32)]| {
        output.process_page(0, &encode_page(times), &format).expect("room");
        output.process_until(u64::MAX).expect("room");
        decode_numbers(&output.streams[0].packet.take())
    };
    output.replace_filters(anew("2"));
    let then = output.former[0].until_ts;
    // Read records later, from before and after the change of filters.
    let both = [(then - 3, 1), (then - 2, 2), (then - 1, 3), (then, 4), (then + 1, 5)];
    assert_eq!(page(&mut output, &both), [2, 4, 5]);
    // The new filter passes no more records; undoing the change restores the former filter.
    assert_eq!(page(&mut output, &[(then + 2, 6)]), [] as [u32; 0]);
    output.restore_filters(Arc::clone(&before));
    assert!(Arc::ptr_eq(&before, &output.converter));
    assert_eq!(page(&mut output, &[(then + 3, 7), (then + 4, 8)]), [8]);
    // Restoring also works when the former filter is no longer kept.
    output.replace_filters(anew("1"));
    output.mark_read_until(u64::MAX);
    output.restore_filters(Arc::clone(&before));
    assert!(Arc::ptr_eq(&before, &output.converter));
    output.mark_read_until(u64::MAX);
    // The former filter is dropped once all earlier records are read; afterwards filters with state
    // need no order.
    output.replace_filters(anew("1"));
    output.replace_filters(Arc::clone(&before));
    assert!(output.is_ordered && output.former.len() == 2);
    output.mark_read_until(u64::MAX);
    assert!(!output.is_ordered && output.former.is_empty());
    for _ in 0..=FORMER_FILTERS_MAX {
        output.replace_filters(Arc::clone(&before));
    }
    assert_eq!(output.former.len(), FORMER_FILTERS_MAX);
}

#[test]
fn a_flight_recorder_holds_the_newest_packets_and_each_once() {
    let folder = TemporaryFolder::new();
    let filter = "made:up: number >= 0";
    let (mut recording, format) = make_output(folder.path(), filter, Some(3 * 12 * 10));
    let times = |from: u32| (from..from + 10).map(|at| (u64::from(at), at)).collect::<Vec<_>>();
    for from in [100, 200, 300, 400] {
        recording.process_page(0, &encode_page(&times(from)), &format).expect("it is held");
        recording.flush_packet(0).expect("it is held");
    }
    let held = recording.held_packets(0);
    assert_eq!((held.events, held.packets.len()), (30, 3));
    assert_eq!(recording.streams[0].overwritten(), 10);
    let last = held.packets.back().expect("packets");
    assert_eq!((last.number, decode_numbers(&last.packet)[0]), (3, 400));
    // Events that the kernel overwrote before the next packet count as a gap before that packet.
    let held = held.clone();
    recording.streams[0].stats.overwritten = 5;
    recording.process_page(0, &encode_page(&times(500)), &format).expect("it is held");
    recording.flush_packet(0).expect("it is held");
    assert_eq!(recording.held_packets(0).packets.back().map(|one| one.number), Some(5));
    let other = TemporaryFolder::new();
    let (mut snapshot, _) = make_output(other.path(), filter, None);
    snapshot.write_held(0, &held, 300).expect("room");
    assert_eq!(snapshot.streams[0].written, 20);
}

#[test]
fn packets_are_bounded_and_their_times_do_not_go_back() {
    let mut packet = PacketBuffer::default();
    let mut packets = 0;
    let mut before = 0;
    for number in 0..200_u64 {
        if !packet.has_room(1000) {
            let full = packet.take();
            assert!(full.bytes.len() <= PACKET_BYTES_MAX && full.begin_ts >= before);
            assert!(full.begin_ts <= full.last_ts);
            (before, packets) = (full.last_ts, packets + 1);
        }
        // Every other record has an earlier time.
        packet.add(5000 + number - 100 * (number & 1), 7, &[0; 1000]);
    }
    assert_eq!((packets, packet.events), (3, 200 - 3 * 65));
}

#[test]
fn headers_are_as_long_as_numbers_and_times_want() {
    let mut packet = PacketBuffer::default();
    let mut length = PACKET_HEADER_BYTES;
    let begin = 77 << 27;
    for (timestamp, id, header) in [
        (begin, 3, 4),
        (begin + 1, 29, 4),
        (begin + 2, 30, 6),
        (begin + (1 << 27) + 1, 40_000, 6),
        (begin + (1 << 28) + 1, 3, 13),
        (begin + (1 << 28) + 2, 3, 4),
    ] {
        packet.add(timestamp, id, b"payload");
        assert_eq!(packet.bytes.len(), length + header + 7, "{timestamp} {id}");
        length = packet.bytes.len();
    }
}
