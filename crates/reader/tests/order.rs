//! Time that goes backward within a stream: every reader keeps the stream's order, and reports the
//! first such place of each stream, for any number of threads.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::fs;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;

use support::Random;
use trackway_reader::{
    ExportSettings, FoundTraces, Range, Selection, Settings, collect_statistics, merge_traces,
    open_traces, print_events, trim_traces,
};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_testkit::TemporaryFolder;

const METADATA: &str = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { integer { size = 32; align = 8; } magic;
        integer { size = 32; align = 8; } stream_id; }; };
clock { name = c; };
stream { id = 0;
    packet.context := struct {
        integer { size = 64; align = 8; map = clock.c.value; } timestamp_begin;
        integer { size = 64; align = 8; map = clock.c.value; } timestamp_end;
        integer { size = 64; align = 8; } content_size;
        integer { size = 64; align = 8; } packet_size; };
    event.header := struct { integer { size = 64; align = 8; map = clock.c.value; } timestamp; }; };
event { name = tick; stream_id = 0; id = 0; fields := struct { integer { size = 64; } n; }; };
";
const HEADER_BYTES: usize = 40;
const EVENT_BYTES: usize = 16;

/// Returns the bytes of a packet with an event at each of `times`.
fn build_packet(times: &[u64]) -> Vec<u8> {
    let bits = 8 * (HEADER_BYTES + EVENT_BYTES * times.len()) as u64;
    let (begin, end) = (times.iter().min().copied(), times.iter().max().copied());
    build_packet_with_header(times, begin.unwrap_or_default(), end.unwrap_or_default(), bits)
}

fn build_packet_with_header(times: &[u64], begin: u64, end: u64, bits: u64) -> Vec<u8> {
    let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    packet.extend(0_u32.to_le_bytes());
    for word in [begin, end, bits, bits] {
        packet.extend(word.to_le_bytes());
    }
    for (number, time) in times.iter().enumerate() {
        packet.extend(time.to_le_bytes());
        packet.extend((number as u64).to_le_bytes());
    }
    packet
}

/// Times of the events in each packet of a stream.
type Packets = Vec<Vec<u64>>;

/// Returns a stream whose time goes backward at `backward` random events.
fn random_packets(random: &mut Random, backward: usize) -> Packets {
    let mut packets: Packets = Vec::new();
    let mut time = 1_000_000;
    for _ in 0..random.next_below(6) + 1 {
        let events = if random.next_below(4) == 0 { 0 } else { random.next_below(3000) };
        let next = |_| {
            time += random.next_below(3);
            time
        };
        packets.push((0..events).map(next).collect());
    }
    for _ in 0..backward {
        let packet = random.next_below(packets.len() as u64) as usize;
        let events = packets[packet].len() as u64;
        if events > 0 {
            packets[packet][random.next_below(events) as usize] -= random.next_below(900_000);
        }
    }
    packets
}

/// Returns the expected reports of a stream, computed from the times alone.
fn expected_report(name: &str, packets: &Packets) -> Option<String> {
    let (mut before, mut at) = (0, 0);
    for (number, times) in packets.iter().enumerate() {
        for (event, &time) in times.iter().enumerate() {
            if time < before {
                let bit = 8 * (HEADER_BYTES + EVENT_BYTES * event);
                let by = format!("0.{:09} s", before - time);
                return Some(format!(
                    "trackway: {name}: packet {number} at byte {at}: time goes backward by {by} \
                     at the event at bit {bit}"
                ));
            }
            before = time;
        }
        at += HEADER_BYTES + EVENT_BYTES * times.len();
    }
    None
}

/// Returns the bytes of a stream.
fn build_stream(packets: &Packets) -> Vec<u8> {
    packets.iter().flat_map(|times| build_packet(times)).collect()
}

/// Writes a trace of these streams.
fn save_trace(folder: &TemporaryFolder, streams: &[Vec<u8>]) {
    fs::write(folder.join("metadata"), METADATA).expect("a file");
    for (number, bytes) in streams.iter().enumerate() {
        fs::write(folder.join(format!("s{number}")), bytes).expect("a file");
    }
}

fn open_trace(folder: &TemporaryFolder) -> FoundTraces {
    open_traces(&[folder.path().to_owned()], &mut Vec::new()).expect("a trace")
}

/// Returns messages as sorted lines: threads report different streams in any order.
fn sorted_lines(messages: &[u8], is_whole: bool) -> Vec<String> {
    let text = String::from_utf8_lossy(messages);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(is_whole, lines.is_empty(), "{lines:?}");
    lines.sort();
    lines
}

/// Returns the numbers and times of the printed events, and the reports.
fn print_trace(folder: &TemporaryFolder, settings: &Settings) -> (String, Vec<String>) {
    let (mut text, mut messages) = (Vec::new(), Vec::new());
    let options = PrettyOptions { clock_seconds: true, ..PrettyOptions::default() };
    let (format, selection) = (Pretty::new(options, utc_date_time), Selection::default());
    let inputs = open_trace(folder).inputs;
    let summary = print_events(
        inputs,
        &selection,
        &mut LineOutput::new(format, &mut text),
        settings,
        &mut messages,
    );
    let is_whole = summary.expect("memory").is_whole;
    (String::from_utf8(text).expect("text"), sorted_lines(&messages, is_whole))
}

fn settings_with(jobs: usize, batch_bytes: usize) -> Settings {
    Settings { jobs: NonZero::new(jobs).expect("a thread"), batch_bytes, progress: None }
}

/// Returns the reports of the counting reader with `jobs` threads.
fn statistics_reports(folder: &TemporaryFolder, jobs: usize) -> Vec<String> {
    let jobs = NonZero::new(jobs).expect("a thread");
    let mut messages = Vec::new();
    let inputs = open_trace(folder).inputs;
    let all =
        collect_statistics(inputs, &Selection::default(), jobs, &mut messages).expect("memory");
    sorted_lines(&messages, all.is_whole)
}

/// Returns the reports of both exports: a merge, and a trim that rewrites packets.
fn export_reports(folder: &TemporaryFolder, begin: i64) -> [Vec<String>; 2] {
    let to = TemporaryFolder::new();
    let stop = AtomicBool::new(false);
    let export = |name| ExportSettings { folder: to.join(name), stop: &stop, progress: &|_, _| {} };
    let jobs = NonZero::new(2).expect("a thread");
    let inputs = || -> Vec<_> {
        let FoundTraces { inputs, folders, .. } = open_trace(folder);
        inputs.into_iter().zip(folders).collect()
    };
    let mut messages = [Vec::new(), Vec::new()];
    let [of_merge, of_trim] = &mut messages;
    let merged = merge_traces(inputs(), &export("merged"), jobs, of_merge).expect("a trace");
    // A time within each stream's first packet.
    let range = Range { begin: Some(begin), end: None };
    let selection = Selection { range, ..Selection::default() };
    let trimmed =
        trim_traces(inputs(), &selection, &export("trimmed"), jobs, of_trim).expect("a trace");
    [(merged, &messages[0]), (trimmed, &messages[1])]
        .map(|(done, messages)| sorted_lines(messages, done.is_whole))
}

#[test]
fn all_readers_report_the_first_place_of_each_stream() {
    let mut damaged = 0;
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut packets = || {
            let backward = random.next_below(4) as usize;
            random_packets(&mut random, backward)
        };
        let streams = [packets(), packets(), vec![vec![1_000_000, 9_000_000]]];
        let folder = TemporaryFolder::new();
        let bytes = streams.each_ref().map(build_stream);
        save_trace(&folder, &bytes);
        let name = |number| folder.join(format!("s{number}")).display().to_string();
        let expected = streams.iter().enumerate();
        let expected: Vec<String> = expected
            .filter_map(|(number, packets)| expected_report(&name(number), packets))
            .collect();
        damaged += expected.len();
        let (text, messages) = print_trace(&folder, &settings_with(1, 1 << 20));
        assert_eq!(messages, expected, "seed {seed}");
        for (jobs, batch_bytes) in [(1, 300), (3, 1), (4, 4000), (8, 128 << 10)] {
            let other = print_trace(&folder, &settings_with(jobs, batch_bytes));
            assert!(other.0 == text, "seed {seed}: {jobs} threads, batches of {batch_bytes}");
            assert_eq!(other.1, expected, "seed {seed}: {jobs} threads");
        }
        for jobs in [1, 2, 5] {
            assert_eq!(statistics_reports(&folder, jobs), expected, "seed {seed}: {jobs} threads");
        }
        for messages in export_reports(&folder, 1_000_001) {
            assert_eq!(messages, expected, "seed {seed}");
        }
    }
    assert!(damaged > 8, "{damaged} streams");
}

#[test]
fn a_packet_that_ends_before_it_begins_is_reported() {
    let bits = 8 * (HEADER_BYTES + 2 * EVENT_BYTES) as u64;
    let good = build_packet(&[10, 11]);
    for (times, begin, end, report) in [
        (&[20, 21], 25, 22, Some("the packet ends 0.000000003 s before it begins".to_owned())),
        // A report about an event takes precedence over one about a packet.
        (
            &[25, 21],
            25,
            21,
            Some(format!(
                "time goes backward by 0.000000004 s at the event at bit {}",
                8 * (HEADER_BYTES + EVENT_BYTES)
            )),
        ),
        // A packet that was not closed.
        (&[20, 21], 20, 0, None),
        (&[20, 21], 20, 21, None),
    ] {
        let folder = TemporaryFolder::new();
        let bad = build_packet_with_header(times, begin, end, bits);
        save_trace(&folder, &[[&good[..], &bad, &build_packet(&[30])].concat()]);
        let name = folder.join("s0").display().to_string();
        let at = good.len();
        let expected: Vec<String> = report
            .iter()
            .map(|report| format!("trackway: {name}: packet 1 at byte {at}: {report}"))
            .collect();
        let (text, messages) = print_trace(&folder, &settings_with(2, 1000));
        assert_eq!((text.lines().count(), messages), (5, expected.clone()));
        assert_eq!(statistics_reports(&folder, 2), expected);
        assert_eq!(export_reports(&folder, 11), [expected.clone(), expected]);
    }
}

/// RUN the readers on a packet that ends before it begins and whose padding is cut off. EXPECT
/// every reader to report both.
#[test]
fn a_packet_that_ends_before_it_begins_and_is_cut_in_its_padding_has_two_reports() {
    let bits = 8 * (HEADER_BYTES + 2 * EVENT_BYTES) as u64;
    let mut bad = build_packet_with_header(&[20, 21], 25, 22, bits);
    bad[32..40].copy_from_slice(&(bits + 64).to_le_bytes());
    let folder = TemporaryFolder::new();
    save_trace(&folder, &[[&build_packet(&[10, 11])[..], &bad].concat()]);
    let (_, printed) = print_trace(&folder, &settings_with(2, 1000));
    let [merged, trimmed] = export_reports(&folder, 11);
    for mut messages in [printed, statistics_reports(&folder, 2), merged, trimmed] {
        messages.sort();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("they are padding"), "{messages:?}");
        assert!(messages[1].ends_with("0.000000003 s before it begins"), "{messages:?}");
    }
}
