//! Indexes help to find packets, but are not trusted.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use support::{Random, START_NS, TestTrace, random_trace};
use trackway_ctf::read::Trace;
use trackway_ctf::write::INDEX_HEADER_BYTES;
use trackway_reader::{DataFile, Index, Input, Range, Selection, Settings, print_events};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};

/// Clock of the random traces at its zero, in nanoseconds since 1970.
const ZERO_NS: i64 = 1_795_228_670_847_582_868;

/// Prints a trace whose streams have these bytes and indexes; returns its text and messages.
fn print_trace(
    made: &TestTrace,
    streams: &[(Vec<u8>, Option<Vec<u8>>)],
    range: Range,
) -> (String, String) {
    let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
    let files = streams.iter().enumerate().map(|(number, (bytes, index))| {
        let mut file = DataFile::new(format!("stream_{number}"), &bytes[..]);
        file.index = index.as_ref().and_then(|index| Index::open(&index[..]).ok());
        file
    });
    let input = Input { trace, folder: String::new(), files: files.collect() };
    let (mut output, mut messages) = (Vec::new(), Vec::new());
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let (selection, settings) = (Selection { range, ..Selection::default() }, Settings::default());
    print_events(
        vec![input],
        &selection,
        &mut LineOutput::new(format, &mut output),
        &settings,
        &mut messages,
    )
    .expect("memory");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output), text(&messages))
}

fn streams_with_indexes(made: &TestTrace) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let streams = made.streams.iter();
    streams.map(|stream| (stream.bytes.clone(), Some(stream.index.clone()))).collect()
}

/// Returns the starts of packets according to their index.
fn packet_offsets(index: &[u8]) -> Vec<usize> {
    let entries = index[INDEX_HEADER_BYTES..].chunks(72);
    entries
        .map(|entry| u64::from_be_bytes(entry[..8].try_into().expect("8 bytes")) as usize)
        .collect()
}

#[test]
fn packets_behind_a_damaged_one_are_read() {
    let mut damaged = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let mut streams = streams_with_indexes(&made);
        let Some((bytes, Some(index))) = streams.first_mut() else { continue };
        let offsets = packet_offsets(index);
        if offsets.len() < 3 {
            continue;
        }
        let at = offsets[1];
        // The magic number of the second packet.
        bytes[at] ^= 1;
        // The streams without the damaged packet.
        let mut without = streams_with_indexes(&made);
        without[0] = ([&bytes[..at], &bytes[offsets[2]..]].concat(), None);
        let expected = print_trace(&made, &without, Range::default());
        let (text, messages) = print_trace(&made, &streams, Range::default());
        assert_eq!(text, expected.0, "seed {seed}");
        let start = format!("trackway: stream_0: packet 1 at byte {at}: not a packet");
        let told: Vec<&str> = messages.lines().filter(|line| !line.starts_with("WARN")).collect();
        assert!(matches!(told[..], [line] if line.starts_with(&start)), "{messages}");
        damaged += 1;
    }
    assert!(damaged > 20, "only {damaged} traces were damaged");
}

/// A range has the same events with any index.
#[test]
fn a_range_does_not_depend_on_the_index() {
    let mut random = Random(3);
    for seed in 0..60 {
        let made = random_trace(seed);
        let mut streams = streams_with_indexes(&made);
        let begin = ZERO_NS + START_NS as i64 + random.next_below(5_000_000_000) as i64;
        let end = begin + random.next_below(2_000_000_000) as i64;
        for range in [
            Range { begin: Some(begin), end: None },
            Range { begin: Some(begin), end: Some(end) },
            Range { begin: None, end: Some(end) },
        ] {
            let with = print_trace(&made, &streams, range);
            for (_, index) in &mut streams {
                if let Some(index) = index {
                    let at = random.next_below(index.len() as u64) as usize;
                    index[at] = random.next() as u8;
                }
            }
            let with_damaged = print_trace(&made, &streams, range);
            let bytes = streams.iter().map(|(bytes, _)| (bytes.clone(), None));
            let without = print_trace(&made, &bytes.collect::<Vec<_>>(), range);
            assert_eq!(with, without, "seed {seed}, {range:?}");
            assert_eq!(with_damaged, without, "seed {seed}, {range:?}, damaged index");
            streams = streams_with_indexes(&made);
        }
    }
}
