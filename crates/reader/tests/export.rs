//! Export of traces: the new traces contain the selected events, and any reader can read them.
//!
//! Longer than 600 lines: the tests share one generator of traces and one comparison.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use support::{
    Random, START_NS, StreamWriter, TestTrace, event_description, random_trace, run_babeltrace,
    trace_description,
};
use trackway_ctf::read::{Event, Trace, read_stream, read_trace};
use trackway_ctf::write::{Contexts, PACKET_HEADER_BYTES, event_declaration, metadata_preamble};
use trackway_reader::{
    ExportError, ExportSettings, ExportSummary, Input, Range, Selection, Settings, TraceFile,
    collect_statistics, merge_traces, open_traces, print_events, trim_traces,
};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_schema::{FieldKind, Scalar};
use trackway_testkit::TemporaryFolder;

const JOBS: NonZero<usize> = NonZero::new(2).unwrap();

fn save_trace(made: &TestTrace, folder: &Path) {
    fs::create_dir_all(folder.join("index")).expect("a folder");
    fs::write(folder.join("metadata"), &made.metadata).expect("a file");
    for (number, stream) in made.streams.iter().enumerate() {
        fs::write(folder.join(format!("channel_{number}")), &stream.bytes).expect("a file");
    }
}

fn open_inputs(paths: &[PathBuf]) -> Vec<(Input<TraceFile>, PathBuf)> {
    let mut messages = Vec::new();
    let found = open_traces(paths, &mut messages).expect("traces");
    assert!(found.is_whole, "{}", String::from_utf8_lossy(&messages));
    found.inputs.into_iter().zip(found.folders).collect()
}

type ExportResult = Result<(ExportSummary, String), ExportError>;

fn run_export(
    to: &Path,
    write: impl FnOnce(&ExportSettings<'_>, &mut Vec<u8>) -> Result<ExportSummary, ExportError>,
) -> ExportResult {
    let mut messages = Vec::new();
    let (folder, stop) = (to.to_owned(), AtomicBool::new(false));
    let done = write(&ExportSettings { folder, stop: &stop, progress: &|_, _| {} }, &mut messages)?;
    Ok((done, String::from_utf8(messages).expect("UTF-8")))
}

fn try_trim(from: &[PathBuf], to: &Path, selection: &Selection<'_>) -> ExportResult {
    run_export(to, |export, messages| {
        trim_traces(open_inputs(from), selection, export, JOBS, messages)
    })
}

fn trim_folder(from: &Path, to: &Path, selection: &Selection<'_>) -> (ExportSummary, String) {
    try_trim(&[from.to_owned()], to, selection).expect("a trace")
}

fn try_merge(from: &[PathBuf], to: &Path) -> ExportResult {
    run_export(to, |export, messages| merge_traces(open_inputs(from), export, JOBS, messages))
}

fn merge_folders(from: &[PathBuf], to: &Path) -> (ExportSummary, String) {
    try_merge(from, to).expect("a trace")
}

/// Returns the files of a trace's streams, by name.
fn read_stream_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        if name != "metadata" && entry.path().is_file() {
            files.insert(name, fs::read(entry.path()).expect("a file"));
        }
    }
    files
}

/// Returns all events of a trace, in order, without the number of their stream.
fn read_events(folder: &Path) -> Vec<Event> {
    let metadata = fs::read(folder.join("metadata")).expect("metadata");
    let trace = Trace::parse(&metadata).expect("metadata");
    let files = read_stream_files(folder);
    let streams: Vec<&[u8]> = files.values().map(Vec::as_slice).collect();
    let (events, is_whole) = read_trace(&trace, &streams);
    assert!(is_whole, "{folder:?} is damaged");
    events.into_iter().map(|event| Event { stream: 0, ..event }).collect()
}

/// Returns the events as text, because NaN is not equal to itself.
fn format_events(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{event:?}")).collect()
}

/// Checks that babeltrace2 reads the trace, and finds `events` events in it.
fn check_by_babeltrace(folder: &Path, events: usize) {
    if let Some((text, _)) = run_babeltrace(folder) {
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, events, "{folder:?}");
    }
}

#[test]
fn a_range_has_the_events_of_that_range() {
    let (mut kept, mut rewritten) = (0, 0);
    for seed in 0..40 {
        let place = TemporaryFolder::new();
        let (from, to) = (place.join("from"), place.join("to"));
        save_trace(&random_trace(seed), &from);
        let all = read_events(&from);
        let mut random = Random(seed);
        let mut time = || {
            let event = all.get(random.next_below(all.len().max(1) as u64) as usize);
            event.and_then(|event| event.time).map(|time| time + random.next_below(3) as i64 - 1)
        };
        let (mut begin, mut end) = (time(), time());
        if begin > end {
            std::mem::swap(&mut begin, &mut end);
        }
        match seed % 5 {
            0 => begin = None,
            1 => end = None,
            _ => {}
        }
        let expected: Vec<Event> = all
            .into_iter()
            .filter(|event| {
                begin.is_none_or(|begin| event.time >= Some(begin))
                    && end.is_none_or(|end| event.time <= Some(end))
            })
            .collect();
        let selection = Selection { range: Range { begin, end }, ..Selection::default() };
        let (done, messages) = match try_trim(std::slice::from_ref(&from), &to, &selection) {
            Err(ExportError::Nothing) => {
                assert!(expected.is_empty() && !to.exists(), "seed {seed}");
                continue;
            }
            written => written.expect("a trace"),
        };
        assert_eq!((done.is_whole, messages.as_str()), (true, ""), "seed {seed}");
        assert_eq!(format_events(&read_events(&to)), format_events(&expected), "seed {seed}");
        check_by_babeltrace(&to, expected.len());
        kept += expected.len();
        rewritten += done.rewritten;
    }
    assert!(kept > 100 && rewritten > 20, "{kept} events, {rewritten} packets");
}

#[test]
fn some_events_can_be_chosen_by_name() {
    let mut kept = 0;
    for seed in 0..40 {
        let place = TemporaryFolder::new();
        let (from, to) = (place.join("from"), place.join("to"));
        save_trace(&random_trace(seed), &from);
        let all = read_events(&from);
        let is_wanted = |name: &str| name.ends_with(['0', '2', '4']) == (seed % 2 == 0);
        let selection = Selection { events: &is_wanted, ..Selection::default() };
        let expected: Vec<Event> = all.into_iter().filter(|event| is_wanted(&event.name)).collect();
        if expected.is_empty() {
            let written = try_trim(std::slice::from_ref(&from), &to, &selection);
            assert!(matches!(written, Err(ExportError::Nothing)), "seed {seed}");
            continue;
        }
        let (done, messages) = trim_folder(&from, &to, &selection);
        assert_eq!((done.is_whole, messages.as_str()), (true, ""), "seed {seed}");
        assert_eq!(format_events(&read_events(&to)), format_events(&expected), "seed {seed}");
        check_by_babeltrace(&to, expected.len());
        kept += expected.len();
    }
    assert!(kept > 100, "{kept} events");
}

#[test]
fn everything_is_the_same_bytes() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    for seed in 0..5 {
        save_trace(&random_trace(seed), &from.join(format!("sub/{seed}")));
    }
    let (done, _) = trim_folder(&from, &to, &Selection::default());
    assert_eq!((done.traces, done.rewritten, done.is_whole), (5, 0, true));
    for seed in 0..5 {
        let sub = format!("sub/{seed}");
        assert_eq!(read_stream_files(&from.join(&sub)), read_stream_files(&to.join(&sub)));
        let metadata = |folder: &Path| fs::read(folder.join("metadata")).expect("metadata");
        assert_eq!(metadata(&from.join(&sub)), metadata(&to.join(&sub)));
    }
    assert!(!to.join("sub/0/index").exists());
}

/// Returns a trace in which more than 2^27 ns and other events separate two events of a class:
/// compact headers cannot represent such a distance.
fn trace_of_distant_events() -> TestTrace {
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    for (id, name) in ["rare", "often"].into_iter().enumerate() {
        let class = event_description(name, vec![("n", FieldKind::Scalar(Scalar::U8))]);
        metadata += &event_declaration(0, id as u32, &class);
    }
    let mut stream = StreamWriter::new(0);
    stream.fields.events_discarded = 3;
    let mut time = START_NS;
    let mut events = 0;
    for packet in 0..3_u8 {
        stream.begin(time);
        for _ in 0..3 {
            stream.record(0, time, &[packet]);
            for _ in 0..5 {
                time += 100_000_000;
                stream.record(1, time, &[packet]);
            }
            events += 6;
        }
        stream.end(time, 7);
        // One packet is lost after each packet.
        stream.fields.sequence += 1;
    }
    TestTrace { metadata, streams: vec![stream], events }
}

#[test]
fn times_survive_what_was_between() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    save_trace(&trace_of_distant_events(), &from);
    let is_wanted = |name: &str| name == "app:rare";
    let selection = Selection { events: &is_wanted, ..Selection::default() };
    let (done, _) = trim_folder(&from, &to, &selection);
    let expected: Vec<Event> =
        read_events(&from).into_iter().filter(|event| event.name == "app:rare").collect();
    assert_eq!(format_events(&read_events(&to)), format_events(&expected));
    // Each event has its own packet, and packet numbers have gaps only for lost packets.
    assert_eq!((done.packets, done.rewritten), (9, 9));
    let metadata = fs::read(to.join("metadata")).expect("metadata");
    let trace = Trace::parse(&metadata).expect("metadata");
    let read = read_stream(&trace, &read_stream_files(&to)["channel_0"]);
    let numbers: Vec<u64> = read.packets.iter().filter_map(|packet| packet.sequence).collect();
    assert_eq!(numbers, [0, 1, 2, 4, 5, 6, 8, 9, 10]);
    assert!(read.packets.iter().all(|packet| packet.events_discarded == Some(3)));
    check_by_babeltrace(&to, 9);
}

/// Returns the ranges of the packets of a stream.
fn packet_ranges(trace: &Trace, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 0;
    let sizes = read_stream(trace, bytes).packets;
    let range = |size: u64| {
        at += size as usize;
        at - size as usize..at
    };
    sizes.iter().map(|packet| packet.packet_bits.expect("a size") / 8).map(range).collect()
}

#[test]
fn chunks_become_the_trace_that_they_were_cut_from() {
    let mut compared = 0;
    for seed in 0..20 {
        let place = TemporaryFolder::new();
        let made = random_trace(seed);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        let mut random = Random(seed);
        let chunks: Vec<PathBuf> = (0..3).map(|chunk| place.join(format!("c{chunk}"))).collect();
        for chunk in &chunks {
            fs::create_dir_all(chunk).expect("a folder");
            fs::write(chunk.join("metadata"), &made.metadata).expect("a file");
        }
        for (number, stream) in made.streams.iter().enumerate() {
            let packets = packet_ranges(&trace, &stream.bytes);
            let mut cut = [0; 2].map(|_| random.next_below(packets.len() as u64 + 1) as usize);
            cut.sort_unstable();
            // The pieces overlap, like snapshots.
            let back = |at: usize, by: usize| at.saturating_sub(by);
            let pieces = [0..cut[0], back(cut[0], 1)..cut[1], back(cut[1], 2)..packets.len()];
            for (chunk, piece) in chunks.iter().zip(pieces) {
                let bytes: Vec<u8> = packets[piece]
                    .iter()
                    .flat_map(|range| stream.bytes[range.clone()].iter().copied())
                    .collect();
                fs::write(chunk.join(format!("channel_{number}")), bytes).expect("a file");
            }
        }
        let to = place.join("to");
        let (done, messages) = merge_folders(&chunks, &to);
        assert_eq!((done.traces, done.is_whole, messages.as_str()), (1, true, ""), "seed {seed}");
        // Packets with equal headers count as one: streams with such packets lose some.
        let unique = made.streams.iter().all(|stream| {
            let mut said = read_stream(&trace, &stream.bytes).packets;
            let count = said.len();
            said.sort_by_key(|packet| (packet.timestamp_begin, packet.sequence));
            said.dedup_by_key(|packet| packet.timestamp_begin);
            said.len() == count
        });
        if unique {
            let expected: BTreeMap<String, Vec<u8>> = made
                .streams
                .iter()
                .enumerate()
                .map(|(number, stream)| (format!("channel_{number}"), stream.bytes.clone()))
                .collect();
            assert!(read_stream_files(&to) == expected, "seed {seed}");
            compared += 1;
        }
        check_by_babeltrace(&to, read_events(&to).len());
    }
    assert!(compared > 5, "{compared} traces");
}

/// Returns a stream of three packets, which contain the first `counts` of their five events;
/// packets with `None` are missing.
fn snapshot_stream(counts: [Option<u8>; 3]) -> StreamWriter {
    let mut stream = StreamWriter::new(7);
    for (packet, count) in (0..).zip(counts) {
        let begin = START_NS + 1000 * packet;
        let Some(count) = count else {
            stream.fields.sequence += 1;
            continue;
        };
        stream.begin(begin);
        for n in 0..count {
            stream.record(0, begin + u64::from(n), &[n]);
        }
        stream.end(begin + u64::from(count), 8 - usize::from(count));
    }
    stream
}

/// Each snapshot contains the unfinished packet at a different length.
#[test]
fn of_a_packet_that_several_snapshots_have_the_longest_is_read() {
    let class = event_description("tick", vec![("n", FieldKind::Scalar(Scalar::U8))]);
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    metadata += &event_declaration(0, 0, &class);
    let pieces = [
        [Some(5), Some(2), None],
        [Some(5), Some(4), None],
        [None, Some(5), Some(1)],
        // The longest copy of the last packet has three events.
        [None, Some(3), None],
        [None, None, Some(3)],
    ];
    let whole = snapshot_stream([Some(5), Some(5), Some(3)]);
    for turn in 0..pieces.len() {
        let place = TemporaryFolder::new();
        // The order of the pieces is the order of their names.
        for number in 0..pieces.len() {
            let stream = snapshot_stream(pieces[(number + turn) % pieces.len()]);
            let made = TestTrace { metadata: metadata.clone(), streams: vec![stream], events: 0 };
            save_trace(&made, &place.join(format!("snapshot-{number}/ust/uid/0/64-bit")));
        }
        let from = [place.path().to_owned()];
        let inputs = || open_inputs(&from).into_iter().map(|(input, _)| input).collect();
        let (mut lines, mut messages) = (Vec::new(), Vec::new());
        let (all, settings) = (Selection::default(), Settings::default());
        let format = Pretty::new(PrettyOptions::default(), utc_date_time);
        let printed = print_events(
            inputs(),
            &all,
            &mut LineOutput::new(format, &mut lines),
            &settings,
            &mut messages,
        );
        assert_eq!(printed.expect("memory").events, 13, "turn {turn}");
        assert_eq!(lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count(), 13);
        let counted = collect_statistics(inputs(), &all, JOBS, &mut messages).expect("memory");
        assert_eq!((counted.count(), counted.traces), (13, 1), "turn {turn}");
        assert_eq!((counted.streams[0].packets, counted.streams[0].lost_packets), (3, 0));
        assert_eq!(String::from_utf8_lossy(&messages), "", "turn {turn}");
        let to = place.join("to");
        let (done, messages) = merge_folders(&from, &to);
        assert_eq!((done.traces, done.packets, messages.as_str()), (1, 3, ""), "turn {turn}");
        let to = to.join("snapshot-0/ust/uid/0/64-bit");
        assert!(read_stream_files(&to)["channel_0"] == whole.bytes, "turn {turn}");
        check_by_babeltrace(&to, 13);
    }
}

/// A packet without events precedes the packet that begins at its end time, whichever files they
/// are in.
#[test]
fn packets_that_begin_at_the_same_time_come_in_the_order_of_their_numbers() {
    let class = event_description("tick", vec![("n", FieldKind::Scalar(Scalar::U8))]);
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    metadata += &event_declaration(0, 0, &class);
    let stream = |numbers: &[u64], count: u8| {
        let mut stream = StreamWriter::new(7);
        for &number in numbers {
            stream.fields.sequence = number;
            stream.begin(START_NS);
            (0..count * u8::from(number == 1)).for_each(|n| stream.record(0, START_NS, &[n]));
            stream.end(START_NS, 0);
        }
        stream
    };
    let place = TemporaryFolder::new();
    let pieces = [("a", stream(&[1], 2)), ("b", stream(&[0, 1], 5)), ("c", stream(&[0, 1], 3))];
    let expected = pieces[1].1.bytes.clone();
    let folders = pieces.map(|(name, stream)| {
        save_trace(
            &TestTrace { metadata: metadata.clone(), streams: vec![stream], events: 0 },
            &place.join(name),
        );
        place.join(name)
    });
    let (done, messages) = merge_folders(&folders, &place.join("to"));
    assert_eq!((done.packets, messages.as_str()), (2, ""));
    assert!(read_stream_files(&place.join("to"))["channel_0"] == expected);
}

/// Two parts of a packet have equal begin times and numbers, but different events.
#[test]
fn parts_of_a_packet_that_have_different_events_are_all_read() {
    let mut metadata = metadata_preamble(&trace_description(Contexts::default()));
    for (id, name) in ["one", "other"].into_iter().enumerate() {
        let class = event_description(name, vec![("n", FieldKind::Scalar(Scalar::U8))]);
        metadata += &event_declaration(0, id as u32, &class);
    }
    let mut stream = StreamWriter::new(0);
    stream.begin(START_NS);
    for n in 0..5 {
        stream.record(u32::from(n % 2), START_NS, &[n]);
    }
    stream.end(START_NS, 0);
    let place = TemporaryFolder::new();
    let from = place.join("from");
    save_trace(&TestTrace { metadata, streams: vec![stream], events: 5 }, &from);
    let parts = ["app:one", "app:other"].map(|wanted| {
        let to = place.join(wanted);
        let is_wanted = |name: &str| name == wanted;
        trim_folder(&from, &to, &Selection { events: &is_wanted, ..Selection::default() });
        to
    });
    let numbers = |part: &Path| {
        let trace = Trace::parse(&fs::read(part.join("metadata")).expect("metadata"));
        let read = read_stream(&trace.expect("metadata"), &read_stream_files(part)["channel_0"]);
        read.packets.iter().map(|packet| (packet.timestamp_begin, packet.sequence)).next()
    };
    assert_eq!(numbers(&parts[0]), numbers(&parts[1]));
    let (done, messages) = merge_folders(&parts, &place.join("to"));
    assert_eq!((done.packets, messages.as_str()), (2, ""));
    assert_eq!(read_events(&place.join("to")).len(), 5);
    // A part of the whole packet is a duplicate only if it is a prefix; this part is none.
    let (done, _) = merge_folders(&[from, parts[0].clone()], &place.join("all"));
    assert_eq!(done.packets, 2);
}

#[test]
fn different_traces_lie_side_by_side() {
    let place = TemporaryFolder::new();
    let mut made = random_trace(1);
    save_trace(&made, &place.join("a/run"));
    made.metadata = made.metadata.replacen("30313233-3435", "30313233-9999", 1);
    for stream in &mut made.streams {
        // Readers ignore the trace's UUID in packets.
        assert_eq!(&stream.bytes[4..8], b"0123");
    }
    save_trace(&made, &place.join("b/run"));
    let to = place.join("to");
    let from = [place.join("a/run"), place.join("b/run")];
    let (done, _) = merge_folders(&from, &to);
    assert_eq!((done.traces, done.is_whole), (2, true));
    assert_eq!(read_stream_files(&to.join("run")), read_stream_files(&from[0]));
    assert_eq!(read_stream_files(&to.join("run-2")), read_stream_files(&from[1]));
}

#[test]
fn damage_is_told_and_what_is_readable_stays() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    let made = trace_of_distant_events();
    save_trace(&made, &from);
    let path = from.join("channel_0");
    let whole = fs::read(&path).expect("a file");
    // The file ends within the last event of the last packet.
    fs::write(&path, &whole[..whole.len() - 8]).expect("a file");
    for to in [to.join("trimmed"), to.join("merged")] {
        let (done, messages) = match to.ends_with("merged") {
            true => merge_folders(std::slice::from_ref(&from), &to),
            false => trim_folder(&from, &to, &Selection::default()),
        };
        assert!(!done.is_whole);
        assert!(messages.contains("channel_0: packet 2 at byte"), "{messages}");
        assert_eq!(read_events(&to).len(), made.events - 1);
        check_by_babeltrace(&to, made.events - 1);
    }
}

/// Damages the second packet's third event, and, in a second run, the packet's magic number.
#[test]
fn damage_in_packets_that_are_copied_is_told() {
    let place = TemporaryFolder::new();
    let from = place.join("from");
    let made = trace_of_distant_events();
    save_trace(&made, &from);
    let path = from.join("channel_0");
    let whole = fs::read(&path).expect("a file");
    let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
    let [first, second, third] = packet_ranges(&trace, &whole).try_into().expect("three packets");
    let at = PACKET_HEADER_BYTES + 2 * 5;
    for verb in ["trim", "merge"] {
        let write = |to: &str| match verb {
            "trim" => trim_folder(&from, &place.join(to), &Selection::default()),
            _ => merge_folders(std::slice::from_ref(&from), &place.join(to)),
        };
        // An undeclared event id, after two events.
        let mut bytes = whole.clone();
        bytes[second.start + at] = 0x1e;
        fs::write(&path, &bytes).expect("a file");
        let (done, messages) = write(&format!("{verb}-event"));
        let expected = format!("channel_0: packet 1 at byte {}: undeclared event", second.start);
        assert!(messages.contains(&expected) && messages.lines().count() == 1, "{messages}");
        assert_eq!((done.packets, done.is_whole), (3, false));
        assert_eq!(read_stream_files(&place.join(format!("{verb}-event")))["channel_0"], bytes);
        // The packet after the damaged header is found.
        let mut bytes = whole.clone();
        bytes[second.start] ^= 1;
        fs::write(&path, &bytes).expect("a file");
        let (done, messages) = write(&format!("{verb}-header"));
        let expected = format!("channel_0: packet 1 at byte {}: not a packet", second.start);
        assert!(messages.contains(&expected) && messages.lines().count() == 1, "{messages}");
        assert_eq!((done.packets, done.is_whole), (2, false));
        let kept = [&whole[first.clone()], &whole[third.clone()]].concat();
        assert_eq!(read_stream_files(&place.join(format!("{verb}-header")))["channel_0"], kept);
    }
}

#[test]
fn a_folder_that_is_named_twice_is_written_once() {
    let place = TemporaryFolder::new();
    let (from, link) = (place.join("from"), place.join("link"));
    save_trace(&random_trace(3), &from.join("sub"));
    std::os::unix::fs::symlink(&from, &link).expect("a link");
    let named = [from.clone(), link.join("sub"), from.clone(), link];
    let (done, _) = try_trim(&named, &place.join("trimmed"), &Selection::default()).expect("it");
    assert_eq!(done.traces, 1);
    assert_eq!(read_stream_files(&place.join("trimmed/sub")), read_stream_files(&from.join("sub")));
    // Also if a trace has no identity by which its parts are found.
    let metadata = fs::read_to_string(from.join("sub/metadata")).expect("metadata");
    let line = metadata.lines().find(|line| line.contains("uuid = ")).expect("an identity");
    fs::write(from.join("sub/metadata"), metadata.replacen(line, "", 1)).expect("a file");
    let (done, _) = try_merge(&named, &place.join("merged")).expect("it is written");
    assert_eq!(done.traces, 1);
    assert_eq!(read_stream_files(&place.join("merged/sub")), read_stream_files(&from.join("sub")));
}

/// Parts of two traces, below two folders; the second part has more metadata.
#[test]
fn merged_traces_are_where_trimmed_ones_are() {
    let place = TemporaryFolder::new();
    let mut made = random_trace(1);
    let chunks = ["chunk-1", "chunk-2"].map(|name| place.join(name));
    for trace in ["ust/64-bit", "kernel"] {
        for chunk in &chunks {
            save_trace(&made, &chunk.join(trace));
            made.metadata += "/* more */ event { name = \"app:more\"; id = 1234; stream_id = 0; };";
        }
        made = random_trace(1);
        made.metadata = made.metadata.replacen("30313233-3435", "30313233-9999", 1);
    }
    let (done, _) = merge_folders(&chunks, &place.join("merged"));
    assert_eq!(done.traces, 2);
    for trace in ["ust/64-bit", "kernel"] {
        let metadata = fs::read_to_string(place.join("merged").join(trace).join("metadata"));
        assert!(metadata.expect("it is there").contains("/* more */"), "{trace}");
    }
    assert_eq!(fs::read_dir(place.join("merged")).expect("a folder").count(), 2);
    let (done, _) = try_trim(&chunks, &place.join("trimmed"), &Selection::default()).expect("it");
    assert_eq!(done.traces, 4);
    assert!(place.join("trimmed/chunk-2/ust/64-bit/metadata").exists());
}

#[test]
fn without_a_packet_nothing_is_written() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    save_trace(&random_trace(3), &from);
    let selection = Selection { events: &|_| false, ..Selection::default() };
    let nothing = |written: &ExportResult| matches!(written, Err(ExportError::Nothing));
    assert!(nothing(&try_trim(std::slice::from_ref(&from), &to, &selection)) && !to.exists());
    for name in read_stream_files(&from).into_keys() {
        fs::write(from.join(name), "").expect("a file");
    }
    assert!(nothing(&try_merge(std::slice::from_ref(&from), &to)) && !to.exists());
}

#[test]
fn errors_name_what_was_tried() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    save_trace(&random_trace(3), &from);
    let found = open_inputs(std::slice::from_ref(&from));
    fs::remove_file(from.join("metadata")).expect("it was there");
    let written = run_export(&to, |export, messages| merge_traces(found, export, JOBS, messages));
    let error = written.expect_err("there is no metadata");
    assert_eq!(error.to_string(), format!("cannot read {}", from.join("metadata").display()));
    assert!(std::error::Error::source(&error).is_some() && !to.exists());
}

#[test]
fn what_is_stopped_leaves_nothing() {
    let place = TemporaryFolder::new();
    let (from, to) = (place.join("from"), place.join("to"));
    save_trace(&random_trace(3), &from);
    let stop = AtomicBool::new(false);
    let export = ExportSettings {
        folder: to.clone(),
        stop: &stop,
        progress: &|_, _| stop.store(true, Ordering::Relaxed),
    };
    let trimmed = |export: &ExportSettings<'_>| {
        let inputs = open_inputs(std::slice::from_ref(&from));
        trim_traces(inputs, &Selection::default(), export, JOBS, &mut Vec::new())
    };
    assert!(matches!(trimmed(&export), Err(ExportError::Stopped)));
    assert!(!to.exists());
    // An existing trace is not overwritten.
    let export = ExportSettings { folder: from.clone(), ..export };
    assert!(matches!(trimmed(&export), Err(ExportError::NotEmpty(_))));
    assert!(from.join("metadata").exists());
}

/// Saves a CTF 2 trace of one event of the class `name`, with a UUID in its preamble and this uid.
fn save_ctf2(folder: &Path, name: &str, uid: Option<&str>) {
    fs::create_dir_all(folder).expect("a folder");
    let uuid: Vec<u8> = (0..16).collect();
    let uid =
        uid.map_or(String::new(), |uid| format!(r#","namespace":"n","name":"t","uid":"{uid}""#));
    let fragments = [
        format!(r#"{{"type":"preamble","version":2,"uuid":{uuid:?}}}"#),
        format!(r#"{{"type":"trace-class"{uid}}}"#),
        r#"{"type":"data-stream-class"}"#.to_owned(),
        format!(
            r#"{{"type":"event-record-class","name":"{name}","payload-field-class":
            {{"type":"structure","member-classes":[{{"name":"x","field-class":
            {{"type":"fixed-length-unsigned-integer","length":8,
            "byte-order":"little-endian"}}}}]}}}}"#
        ),
    ];
    let text: String = fragments.iter().map(|fragment| format!("\u{1e}{fragment}\n")).collect();
    fs::write(folder.join("metadata"), text).expect("a file");
    fs::write(folder.join("stream"), [7]).expect("a file");
}

#[test]
fn traces_of_ctf_2_are_one_if_they_have_one_name_and_uid() {
    for (uids, traces) in [([None, None], 2), ([Some("1"), Some("2")], 2), ([Some("1"); 2], 1)] {
        let place = TemporaryFolder::new();
        let (a, b, to) = (place.join("a"), place.join("b"), place.join("to"));
        save_ctf2(&a, "one", uids[0]);
        save_ctf2(&b, if traces == 1 { "one" } else { "two" }, uids[1]);
        let (done, messages) = merge_folders(&[a.clone(), b.clone()], &to);
        assert_eq!((done.traces, messages.as_str()), (traces, ""), "{uids:?}");
        let mut names: Vec<String> = match traces {
            1 => read_events(&to).into_iter().map(|event| event.name).collect(),
            _ => ["a", "b"]
                .into_iter()
                .flat_map(|at| read_events(&to.join(at)))
                .map(|event| event.name)
                .collect(),
        };
        names.sort();
        let expected = if traces == 1 { ["one", "one"] } else { ["one", "two"] };
        assert_eq!(names, expected, "{uids:?}");
    }
}
