//! Tests that the output does not depend on threads, on the size of batches, or on the distribution
//! of streams over files.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::io::{self, Write};
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use support::{
    Header, Random, START_NS, StreamWriter, TestTrace, event_description, random_trace,
    trace_description,
};
use trackway_ctf::read::{ByteSource, SourceStream, Trace};
use trackway_ctf::write::{Contexts, event_declaration, metadata_preamble};
use trackway_reader::{DataFile, Input, Range, Selection, Settings, Summary, print_events};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_schema::{FieldKind, Scalar};

/// Files of a trace: names and bytes.
type Files = Vec<(String, Vec<u8>)>;

fn stream_files(made: &TestTrace) -> Files {
    let streams = made.streams.iter().enumerate();
    streams.map(|(number, stream)| (format!("stream_{number}"), stream.bytes.clone())).collect()
}

fn settings_with(jobs: usize, batch_bytes: usize) -> Settings {
    Settings { jobs: NonZero::new(jobs).expect("threads"), batch_bytes, progress: None }
}

/// Prints a trace; returns its text and messages.
fn print_trace(
    metadata: &str,
    files: &Files,
    range: Range,
    settings: Settings,
) -> (String, String, Summary) {
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let file = |(name, bytes)| DataFile::new(String::clone(name), Vec::as_slice(bytes));
    let files = files.iter().map(|(name, bytes)| file((name, bytes))).collect();
    let input = Input { trace, folder: String::new(), files };
    let (mut output, mut messages) = (Vec::new(), Vec::new());
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let selection = Selection { range, ..Selection::default() };
    let summary = print_events(
        vec![input],
        &selection,
        &mut LineOutput::new(format, &mut output),
        &settings,
        &mut messages,
    );
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output), text(&messages), summary.expect("memory can be written"))
}

/// Prints a trace with many settings, whose results must agree; returns text and messages.
fn print_with_all_settings(
    what: &str,
    metadata: &str,
    files: &Files,
    range: Range,
) -> (String, String) {
    let (text, messages, _) = print_trace(metadata, files, range, settings_with(1, 1 << 20));
    for jobs in [1, 2, 8] {
        for batch_bytes in [1, 300, 128 << 10] {
            let other = print_trace(metadata, files, range, settings_with(jobs, batch_bytes));
            assert_eq!(other.0, text, "{what}: {jobs} threads, batches of {batch_bytes}");
            assert_eq!(other.1, messages, "{what}: {jobs} threads, batches of {batch_bytes}");
        }
    }
    (text, messages)
}

#[test]
fn threads_and_batches_change_nothing() {
    for seed in 0..60 {
        let made = random_trace(seed);
        let what = format!("seed {seed}");
        let (text, _) =
            print_with_all_settings(&what, &made.metadata, &stream_files(&made), Range::default());
        assert_eq!(text.lines().count(), made.events, "{what}");
    }
}

#[test]
fn threads_and_batches_change_nothing_about_damage() {
    let mut random = Random(7);
    let mut damaged = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let mut files = stream_files(&made);
        for (_, bytes) in &mut files {
            let at = random.next_below(bytes.len() as u64) as usize;
            match random.next_below(3) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random.next_below(8),
                _ => bytes[at] = random.next() as u8,
            }
        }
        let (_, messages) = print_with_all_settings(
            &format!("seed {seed}"),
            &made.metadata,
            &files,
            Range::default(),
        );
        damaged += usize::from(messages.contains("trackway: stream_"));
    }
    assert!(damaged > 20, "only {damaged} traces were damaged");
}

/// Returns the packets of a stream.
fn split_packets(metadata: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let mut source = SourceStream::new(bytes);
    let mut packets = Vec::new();
    while !source.is_at_end() {
        let start = source.next().0 as usize;
        let packet = source.peek(&trace).expect("a packet");
        source.skip(&packet);
        packets.push(bytes[start..source.next().0 as usize].to_vec());
    }
    packets
}

/// A stream's packets may be in several files, some packets twice, as in rotated traces and
/// snapshots.
#[test]
fn a_stream_may_lie_in_several_files() {
    let mut random = Random(11);
    for seed in 0..60 {
        let made = random_trace(seed);
        let whole = stream_files(&made);
        let mut pieces = Files::new();
        for (name, bytes) in &whole {
            let mut parts = vec![Vec::new(); 3];
            let mut part = 0;
            for packet in split_packets(&made.metadata, bytes) {
                part = (part + random.next_below(2) as usize).min(2);
                parts[part].extend(&packet);
                if random.next_below(4) == 0 && part < 2 {
                    parts[part + 1].extend(packet);
                }
            }
            let named = parts.into_iter().enumerate();
            pieces.extend(named.map(|(number, part)| (format!("{name}-{number}"), part)));
        }
        let what = format!("seed {seed}");
        let one = print_with_all_settings(&what, &made.metadata, &whole, Range::default());
        let several = print_with_all_settings(&what, &made.metadata, &pieces, Range::default());
        assert_eq!(one.0, several.0, "{what}");
    }
}

/// A range yields the lines within it, whichever packets are skipped for it.
#[test]
fn a_range_is_cut_out() {
    let line_ns = |line: &str| {
        // All random traces span only a few minutes.
        let part = |at: usize| line.get(at..at + 2).and_then(|text| text.parse::<i64>().ok());
        let seconds = part(1)? * 3600 + part(4)? * 60 + part(7)?;
        let ns: i64 = line.get(10..19)?.parse().ok()?;
        Some(seconds * 1_000_000_000 + ns)
    };
    let without_difference = |line: &str| {
        let (time, rest) = line.split_once("(+").expect("a difference");
        time.to_owned() + rest.split_once(')').expect("its end").1
    };
    let mut compared = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let files = stream_files(&made);
        let (all, _) = print_with_all_settings("all", &made.metadata, &files, Range::default());
        let times: Vec<i64> = all.lines().filter_map(line_ns).collect();
        let (Some(first), true) = (times.first(), times.is_sorted()) else { continue };
        // Times are in UTC, so that a day begins at a multiple of its length.
        let day = 1_795_228_670_847_582_868 / 86_400_000_000_000 * 86_400_000_000_000;
        let (begin, end) = (times[times.len() / 3], times[2 * times.len() / 3]);
        assert!(begin >= *first);
        let range = Range { begin: Some(day + begin), end: Some(day + end) };
        let (some, _) = print_with_all_settings("some", &made.metadata, &files, range);
        let expected: Vec<String> = all
            .lines()
            .zip(&times)
            .filter(|&(_, &time)| begin <= time && time <= end)
            .map(|(line, _)| without_difference(line))
            .collect();
        let lines: Vec<String> = some.lines().map(without_difference).collect();
        assert_eq!(lines, expected, "seed {seed}");
        compared += 1;
    }
    assert!(compared > 30, "only {compared} traces were compared");
}

/// Builds a trace of many streams, or of large packets.
fn build_large_trace(streams: u64, packets: u64, events: u64) -> TestTrace {
    let class = event_description("e", vec![("n", FieldKind::Scalar(Scalar::U64))]);
    let metadata = metadata_preamble(&trace_description(Contexts::default()))
        + &event_declaration(0, 0, &class);
    let mut made = TestTrace { metadata, streams: Vec::new(), events: 0 };
    for instance in 0..streams {
        let mut stream = StreamWriter::new(instance);
        let mut time = START_NS;
        for _ in 0..packets {
            stream.begin(time);
            for number in 0..events {
                time += 1 + instance % 3;
                stream.record_with(Header::Compact, 0, time, &number.to_le_bytes());
                made.events += 1;
            }
            stream.end(time, 0);
        }
        made.streams.push(stream);
    }
    made
}

/// The settings bound the memory for any trace.
#[test]
fn memory_does_not_grow_with_the_trace() {
    const BATCH_BYTES: usize = 16 << 10;
    // A batch may exceed its size by one line and its mark.
    const SPARE_BYTES: usize = 1 << 10;
    for (streams, packets, events) in
        [(1, 1, 50_000), (1, 500, 100), (3, 40, 400), (300, 2, 80), (3, 1, 20_000)]
    {
        let made = build_large_trace(streams, packets, events);
        let files = stream_files(&made);
        for jobs in [1, 4] {
            let settings = settings_with(jobs, BATCH_BYTES);
            let (text, _, summary) =
                print_trace(&made.metadata, &files, Range::default(), settings);
            assert_eq!(text.lines().count(), made.events);
            assert_eq!(summary.events, made.events as u64);
            // Batches decoded ahead, and one needed batch for each stream and each thread.
            let batches = 16 * jobs + streams as usize + jobs;
            let bound = batches * (BATCH_BYTES + SPARE_BYTES);
            assert!(summary.most_bytes <= bound, "{streams} streams, {jobs} threads: {summary:?}");
        }
    }
}

/// A writer that fails after some bytes, like a pipe whose reader is gone.
struct ClosingOutput(usize);

impl Write for ClosingOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = self.0.min(bytes.len());
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A byte source that counts the bytes read.
struct CountingBytes<'b> {
    bytes: &'b [u8],
    read: &'b AtomicU64,
}

impl ByteSource for CountingBytes<'_> {
    fn length(&self) -> u64 {
        self.bytes.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.bytes.read_at(buffer, offset)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[test]
fn an_output_that_closes_ends_all_threads_and_their_work() {
    let made = build_large_trace(3, 500, 300);
    let files = stream_files(&made);
    let total: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    for jobs in [1, 2, 8] {
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        let read = AtomicU64::new(0);
        let files = files.iter().map(|(name, bytes)| {
            DataFile::new(name.clone(), CountingBytes { bytes: bytes.as_slice(), read: &read })
        });
        let input = Input { trace, folder: String::new(), files: files.collect() };
        let format = Pretty::new(PrettyOptions::default(), utc_date_time);
        let (selection, settings) = (Selection::default(), settings_with(jobs, 4 << 10));
        let printed = print_events(
            vec![input],
            &selection,
            &mut LineOutput::new(format, &mut ClosingOutput(1000)),
            &settings,
            &mut io::sink(),
        );
        assert_eq!(printed.expect_err("closed").kind(), io::ErrorKind::BrokenPipe);
        // Upper bound: the bytes that may have been decoded ahead.
        let read = read.into_inner();
        assert!(read < total / 2, "{jobs} threads read {read} of {total} bytes");
    }
}
