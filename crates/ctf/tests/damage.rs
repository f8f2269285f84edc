//! Damaged bytes cause reports; they never end the program or take long.

mod support;

use proptest::prelude::*;
use support::{Random, TestTrace, random_trace};
use trackway_ctf::read::{DecodeError, MetadataProblem, Trace, read_stream};
use trackway_reader::{DataFile, Input, Selection, Settings, print_events};
use trackway_render::{LineOutput, Pretty, PrettyOptions, utc_date_time};

/// Reads and prints a trace of any bytes.
fn read_and_print<'s>(metadata: &[u8], streams: &[&'s [u8]]) {
    let Ok(trace) = Trace::parse(metadata) else { return };
    for stream in streams {
        let _ = read_stream(&trace, stream);
    }
    let file = |bytes: &&'s [u8]| DataFile::new("stream".to_owned(), *bytes);
    let files = streams.iter().map(file).collect();
    let (mut output, mut warnings) = (Vec::new(), Vec::new());
    let inputs = vec![Input { trace, folder: String::new(), files }];
    let format = Pretty::new(PrettyOptions::default(), utc_date_time);
    let settings = Settings { jobs: std::num::NonZero::<usize>::MIN, ..Settings::default() };
    print_events(
        inputs,
        &Selection::default(),
        &mut LineOutput::new(format, &mut output),
        &settings,
        &mut warnings,
    )
    .expect("memory");
}

fn mutate_bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.next_below(4) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let at = random.next_below(last as u64 + 1) as usize;
        match random.next_below(6) {
            0 => bytes[at] ^= 1 << random.next_below(8),
            1 => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + 1 + random.next_below(9) as usize).min(last + 1))),
            4 => {
                let piece: Vec<u8> = bytes[at..(at + 40).min(last + 1)].to_vec();
                let to = random.next_below(last as u64 + 1) as usize;
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + 8).min(last + 1);
                bytes[at..end].fill(if random.next_below(2) == 0 { 0xff } else { 0 });
            }
        }
    }
}

#[test]
fn mutated_streams_do_no_harm() {
    let mut random = Random(1);
    for seed in 0..60 {
        let TestTrace { metadata, streams, .. } = random_trace(seed);
        for _ in 0..40 {
            let mut bytes: Vec<Vec<u8>> =
                streams.iter().map(|stream| stream.bytes.clone()).collect();
            bytes.iter_mut().for_each(|bytes| mutate_bytes(&mut random, bytes));
            let slices: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
            read_and_print(metadata.as_bytes(), &slices);
        }
    }
}

#[test]
fn mutated_metadata_does_no_harm() {
    let mut random = Random(2);
    for seed in 0..60 {
        let TestTrace { metadata, streams, .. } = random_trace(seed);
        let streams: Vec<&[u8]> = streams.iter().map(|stream| &stream.bytes[..]).collect();
        for _ in 0..40 {
            let mut bytes = metadata.clone().into_bytes();
            mutate_bytes(&mut random, &mut bytes);
            read_and_print(&bytes, &streams);
        }
    }
}

#[test]
fn a_cut_stream_gives_its_whole_packets_and_says_what_is_missing() {
    let TestTrace { metadata, streams, .. } = random_trace(3);
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    for stream in &streams {
        let whole = read_stream(&trace, &stream.bytes).events;
        for length in 0..stream.bytes.len() {
            let read = read_stream(&trace, &stream.bytes[..length]);
            assert!(whole.starts_with(&read.events), "cut at {length}");
        }
    }
}

/// Refuses metadata that is small but would need much memory or time.
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

/// Metadata of CTF 2 with a field of each class.
const CTF2: &str = r#"^{ "type": "preamble", "version": 2,
    "uuid": [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6] }
^{ "type": "field-class-alias", "name": "u8", "field-class": {
    "type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian" } }
^{ "type": "trace-class", "environment": { "a": 1 } }
^{ "type": "clock-class", "id": "c", "frequency": 1000, "offset-from-origin": { "seconds": -1 } }
^{ "type": "data-stream-class", "default-clock-class-id": "c",
    "event-record-header-field-class": { "type": "structure", "member-classes": [
        { "name": "t", "field-class": { "type": "variable-length-unsigned-integer",
            "roles": ["default-clock-timestamp"] } },
        { "name": "i", "field-class": { "type": "fixed-length-unsigned-integer", "length": 1,
            "byte-order": "big-endian", "roles": ["event-record-class-id"] } }] } }
^{ "type": "event-record-class", "payload-field-class": { "type": "structure",
    "member-classes": [
        { "name": "n", "field-class": "u8" },
        { "name": "s", "field-class": { "type": "dynamic-length-string", "encoding": "utf-16le",
            "length-field-location": { "origin": "event-record-payload", "path": ["n"] } } },
        { "name": "b", "field-class": { "type": "fixed-length-boolean", "length": 3,
            "byte-order": "little-endian", "bit-order": "last-to-first" } },
        { "name": "v", "field-class": { "type": "variant",
            "selector-field-location": { "path": ["n"] }, "options": [
            { "selector-field-ranges": [[0, 3]], "field-class": "u8" },
            { "selector-field-ranges": [[4, 255]],
              "field-class": { "type": "null-terminated-string", "encoding": "utf-32be" } }] } },
        { "name": "o", "field-class": { "type": "optional",
            "selector-field-location": { "path": ["b"] },
            "field-class": { "type": "variable-length-signed-integer" } } },
        { "name": "h", "field-class": { "type": "fixed-length-floating-point-number",
            "length": 16, "byte-order": "big-endian", "alignment": 16 } }] } }
^{ "type": "event-record-class", "id": 1, "payload-field-class": { "type": "structure",
    "member-classes": [
        { "name": "m", "field-class": { "type": "fixed-length-bit-map", "length": 7,
            "byte-order": "big-endian", "flags": { "x": [[0, 3]], "y": [[2, 70]] } } },
        { "name": "a", "field-class": { "type": "static-length-array", "length": 2,
            "minimum-alignment": 32, "element-field-class": "u8" } },
        { "name": "z", "field-class": { "type": "dynamic-length-blob",
            "length-field-location": { "path": ["m"] } } }] } }
"#;

#[test]
fn mutated_metadata_of_ctf2_does_no_harm() {
    let metadata = CTF2.replace('^', "\x1e");
    let whole = Trace::parse(metadata.as_bytes()).expect("metadata");
    assert_eq!(whole.streams()[0].events().len(), 2);
    let mut random = Random(3);
    for seed in 0..2000 {
        let mut bytes = metadata.clone().into_bytes();
        if seed > 0 {
            mutate_bytes(&mut random, &mut bytes);
        }
        let stream: Vec<u8> = (0..60)
            .map(|_| if random.next_below(3) == 0 { 0 } else { random.next() as u8 })
            .collect();
        read_and_print(&bytes, &[&stream]);
    }
}

/// Refuses CTF 2 metadata that is small but would need much memory or time.
#[test]
fn greedy_metadata_of_ctf2_is_refused() {
    let preamble = "\x1e{ \"type\": \"preamble\", \"version\": 2 }\n";
    let structure = |members: &[String]| {
        format!("{{ \"type\": \"structure\", \"member-classes\": [{}] }}", members.join(","))
    };
    let member =
        |name: &str, class: &str| format!("{{ \"name\": \"{name}\", \"field-class\": {class} }}");
    let alias = |name: usize, class: &str| {
        format!(
            "\x1e{{ \"type\": \"field-class-alias\", \"name\": \"t{name}\",
            \"field-class\": {class} }}\n"
        )
    };
    let text = "{ \"type\": \"null-terminated-string\" }";
    let mut chain = preamble.to_owned() + &alias(0, &structure(&[member("a", text)]));
    let mut bomb = chain.clone();
    for number in 1..60 {
        let before = format!("\"t{}\"", number - 1);
        chain += &alias(number, &structure(&[member("a", &before)]));
        if number < 40 {
            bomb += &alias(number, &structure(&[member("a", &before), member("b", &before)]));
        }
    }
    bomb += "\x1e{ \"type\": \"data-stream-class\", \"packet-context-field-class\": \"t39\" }";
    for (name, metadata) in [("chain", chain), ("bomb", bomb)] {
        let error = Trace::parse(metadata.as_bytes()).expect_err(name);
        assert_eq!(error.problem, MetadataProblem::TooComplex, "{name}");
        assert!(error.line > 1 && error.column > 0, "{name}: {error}");
    }
    // Deeply nested JSON.
    for piece in ["[", "{ \"a\": ", "{ \"type\": \"structure\", \"member-classes\": [ "] {
        let deep = format!("{preamble}\x1e{}", piece.repeat(200_000));
        let error = Trace::parse(deep.as_bytes()).expect_err(piece);
        assert!(matches!(error.problem, MetadataProblem::Json(_)), "{error}");
    }
    // An array of 2^60 elements that take no space.
    let array = "{ \"type\": \"static-length-array\", \"length\": 1152921504606846976,
        \"element-field-class\": { \"type\": \"structure\" } }";
    let metadata = format!(
        "{preamble}\x1e{{ \"type\": \"data-stream-class\" }}
        \x1e{{ \"type\": \"event-record-class\", \"payload-field-class\": {} }}",
        structure(&[member("a", array)])
    );
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let read = read_stream(&trace, b"x");
    let length = 1 << 60;
    assert_eq!(read.damage, Some((0, DecodeError::Length { bit: 0, length })));
}

proptest! {
    #[test]
    fn any_bytes_are_no_metadata_but_no_harm(bytes: Vec<u8>) {
        read_and_print(&bytes, &[]);
    }

    #[test]
    fn any_tokens_are_no_harm(words in prop::collection::vec(prop::sample::select(vec![
        "struct", "{", "}", ";", "variant", "<", ">", "enum", ":", "integer", "size", "=", "8",
        "a", "[", "]", ":=", "typealias", "event", "fields", "string", ",", "...", "-", "1",
        "trace", "stream", ".", "typedef", "clock", "align", "(", ")", "id", "\"x\"",
    ]), 0..60)) {
        read_and_print(words.join(" ").as_bytes(), &[b"some bytes of a stream, enough of them"]);
    }

    #[test]
    fn any_bytes_are_no_stream_but_no_harm(bytes: Vec<u8>, seed in 0_u64..20) {
        let TestTrace { metadata, .. } = random_trace(seed);
        read_and_print(metadata.as_bytes(), &[&bytes]);
    }
}
