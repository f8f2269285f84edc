//! Damaged bytes are told of; they never end the program, nor take it long.

mod support;

use proptest::prelude::*;
use support::{Made, Random, random_trace};
use trackway_ctf::read::{DecodeError, MetadataProblem, Trace, read_stream};
use trackway_ctf::text::{Pretty, PrettyOptions, utc};
use trackway_reader::{DataFile, Input, Selection, Settings, print};

/// Reads and prints whatever this is.
fn exercise<'s>(metadata: &[u8], streams: &[&'s [u8]]) {
    let Ok(trace) = Trace::parse(metadata) else { return };
    for stream in streams {
        let _ = read_stream(&trace, stream);
    }
    let file = |bytes: &&'s [u8]| DataFile { name: "stream".to_owned(), bytes: *bytes };
    let files = streams.iter().map(file).collect();
    let (mut output, mut warnings) = (Vec::new(), Vec::new());
    let inputs = vec![Input { trace, folder: String::new(), files }];
    let format = Pretty::new(PrettyOptions::default(), utc);
    let settings = Settings { jobs: std::num::NonZero::<usize>::MIN, ..Settings::default() };
    print(inputs, &Selection::default(), &format, &settings, &mut output, &mut warnings)
        .expect("memory");
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let at = random.below(last as u64 + 1) as usize;
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + 1 + random.below(9) as usize).min(last + 1))),
            4 => {
                let piece: Vec<u8> = bytes[at..(at + 40).min(last + 1)].to_vec();
                let to = random.below(last as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + 8).min(last + 1);
                bytes[at..end].fill(if random.below(2) == 0 { 0xff } else { 0 });
            }
        }
    }
}

#[test]
fn mutated_streams_do_no_harm() {
    let mut random = Random(1);
    for seed in 0..60 {
        let Made { metadata, streams, .. } = random_trace(seed);
        for _ in 0..40 {
            let mut bytes: Vec<Vec<u8>> =
                streams.iter().map(|stream| stream.bytes.clone()).collect();
            bytes.iter_mut().for_each(|bytes| mutate(&mut random, bytes));
            let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
            exercise(metadata.as_bytes(), &slices);
        }
    }
}

#[test]
fn mutated_metadata_does_no_harm() {
    let mut random = Random(2);
    for seed in 0..60 {
        let Made { metadata, streams, .. } = random_trace(seed);
        let streams: Vec<&[u8]> = streams.iter().map(|stream| &stream.bytes[..]).collect();
        for _ in 0..40 {
            let mut bytes = metadata.clone().into_bytes();
            mutate(&mut random, &mut bytes);
            exercise(&bytes, &streams);
        }
    }
}

#[test]
fn a_cut_stream_gives_its_whole_packets_and_says_what_is_missing() {
    let Made { metadata, streams, .. } = random_trace(3);
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    for stream in &streams {
        let whole = read_stream(&trace, &stream.bytes).events;
        for length in 0..stream.bytes.len() {
            let read = read_stream(&trace, &stream.bytes[..length]);
            assert!(whole.starts_with(&read.events), "cut at {length}");
        }
    }
}

/// Metadata that is small but asks for much.
#[test]
fn greedy_metadata_is_refused() {
    let deep = "struct { ".repeat(100_000);
    let deep = format!("typealias {deep} := x;");
    let brackets = format!("struct {{ string x{}; }};", "[1]".repeat(100_000));
    let mut chain = "typealias struct { string a; } := t0;\n".to_owned();
    let mut bomb = chain.clone();
    for number in 1..2000 {
        let before = number - 1;
        chain += &format!("typealias struct {{ t{before} a; }} := t{number};\n");
        if number < 40 {
            bomb += &format!("typealias struct {{ t{before} a; t{before} b; }} := t{number};\n");
        }
    }
    bomb += "event { name = x; fields := struct { t39 a; }; };";
    for (name, metadata) in
        [("deep", deep), ("brackets", brackets), ("chain", chain), ("bomb", bomb)]
    {
        let error = Trace::parse(metadata.as_bytes()).expect_err(name);
        assert_eq!(error.problem, MetadataProblem::TooComplex, "{name}");
    }
}

/// Arrays whose elements take no space must not take time either.
#[test]
fn empty_elements_do_not_hang() {
    let metadata = b"
        typealias integer { size = 64; } := u64;
        typealias struct { } := nothing;
        event { name = e; fields := struct { u64 n; nothing a[n]; nothing b[n][n]; }; };";
    let trace = Trace::parse(metadata).expect("metadata");
    let read = read_stream(&trace, &u64::MAX.to_le_bytes());
    assert!(matches!(read.damage, Some((0, DecodeError::Length { bit: 64, .. }))), "{read:?}");
    let empty = Trace::parse(b"event { name = e; fields := struct { }; };").expect("metadata");
    let read = read_stream(&empty, b"x");
    assert!(matches!(read.damage, Some((0, DecodeError::Empty { bit: 0 }))), "{read:?}");
}

#[test]
fn errors_say_where() {
    for (metadata, line, column) in [
        ("trace {\n  major = 1\n};", 3, 1),
        ("event {\n  fields := struct { what x; };\n};", 2, 22),
        ("/* open", 1, 1),
        ("env { a = \"open; };", 1, 11),
        ("event { fields := struct { string a[n]; }; };", 1, 37),
        ("typealias integer { size = 65; } := big;", 1, 34),
        ("typealias integer { size = 8; } := x; $", 1, 39),
    ] {
        let error = Trace::parse(metadata.as_bytes()).expect_err(metadata);
        assert_eq!((error.line, error.column), (line, column), "{metadata}: {error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_no_metadata_but_no_harm(bytes: Vec<u8>) {
        exercise(&bytes, &[]);
    }

    #[test]
    fn any_tokens_are_no_harm(words in prop::collection::vec(prop::sample::select(vec![
        "struct", "{", "}", ";", "variant", "<", ">", "enum", ":", "integer", "size", "=", "8",
        "a", "[", "]", ":=", "typealias", "event", "fields", "string", ",", "...", "-", "1",
        "trace", "stream", ".", "typedef", "clock", "align", "(", ")", "id", "\"x\"",
    ]), 0..60)) {
        exercise(words.join(" ").as_bytes(), &[b"some bytes of a stream, enough of them"]);
    }

    #[test]
    fn any_bytes_are_no_stream_but_no_harm(bytes: Vec<u8>, seed in 0_u64..20) {
        let Made { metadata, .. } = random_trace(seed);
        exercise(metadata.as_bytes(), &[&bytes]);
    }
}
