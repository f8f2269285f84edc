//! `trackway print` on folders that are damaged, hostile, or still being written: it prints all
//! that can be read, names each damage with its file, its packet and its place, and always ends.
//!
//! Longer than 600 lines: a table of damages with their messages.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::made::{
    EVENT_BYTES, HEADER_BYTES, METADATA, SIZES_AT, packet, set_size, ticks, write_trace,
};
use crate::support::{guarded, print, talk};
use trackway_tests::{Fixture, build_dir, is_root, report_skipped};

/// All is well.
const WHOLE: Option<i32> = Some(0);
/// Something is damaged; all else was printed.
const DAMAGED: Option<i32> = Some(1);
/// There is no trace.
const NO_TRACE: Option<i32> = Some(2);

/// Expects a status, and each of `words` in one line of the messages.
fn expect(output: &Output, status: Option<i32>, words: &[&str]) {
    let said = talk(output);
    assert_eq!(output.status.code(), status, "{said}");
    let has_all = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(words.is_empty() || said.lines().any(has_all), "{words:?} not in: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// Makes a FIFO.
fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Prints a trace of one stream, which it writes to the fixture's folder `trace`.
fn printed(fixture: &Fixture, metadata: &str, stream: &[u8]) -> Output {
    let trace = fixture.path("trace");
    let _ = fs::remove_dir_all(&trace);
    write_trace(&trace, metadata, &[("stream", stream)]);
    print(fixture, &[trace])
}

#[test]
fn a_folder_without_a_trace_is_status_2() {
    let fixture = Fixture::new("none");
    let folder = fixture.path("empty");
    fs::create_dir_all(folder.join("also/empty")).unwrap();
    expect(&print(&fixture, &[&folder]), NO_TRACE, &["is not a trace", "empty"]);
    expect(&print(&fixture, &[fixture.path("missing")]), NO_TRACE, &["missing"]);
    fs::write(folder.join("stream"), packet(&[1])).unwrap();
    expect(&print(&fixture, &[&folder]), NO_TRACE, &["is not a trace"]);
    // A file is not a folder.
    expect(&print(&fixture, &[folder.join("stream")]), NO_TRACE, &["stream"]);
}

#[test]
fn fifos_are_not_waited_for() {
    let fixture = Fixture::new("fifo");
    let trace = fixture.path("trace");
    write_trace(&trace, METADATA, &[("stream", &packet(&[1, 2]))]);
    fifo(&trace.join("stream2"));
    let output = print(&fixture, &[&trace]);
    expect(&output, WHOLE, &[]);
    assert_eq!(ticks(&output.stdout), [1, 2]);
    let other = fixture.path("other");
    fs::create_dir_all(&other).unwrap();
    fifo(&other.join("metadata"));
    expect(&print(&fixture, &[&other]), NO_TRACE, &["is not a trace", "other"]);
}

#[test]
fn links_that_lead_in_circles_end() {
    let fixture = Fixture::new("links");
    let trace = fixture.path("root/trace");
    write_trace(&trace, METADATA, &[("stream", &packet(&[1, 2]))]);
    symlink("..", trace.join("up")).unwrap();
    symlink("self", trace.join("self")).unwrap();
    symlink("/nowhere/at/all", trace.join("gone")).unwrap();
    symlink(&trace, fixture.path("root/again")).unwrap();
    let output = print(&fixture, &[fixture.path("root")]);
    expect(&output, WHOLE, &[]);
    assert_eq!(ticks(&output.stdout), [1, 2]);
    let looped = fixture.path("looped");
    fs::create_dir(&looped).unwrap();
    symlink("metadata", looped.join("metadata")).unwrap();
    expect(&print(&fixture, &[&looped]), NO_TRACE, &["is not a trace"]);
    // A link that is given is followed.
    let output = print(&fixture, &[fixture.path("root/again")]);
    assert_eq!(ticks(&output.stdout), [1, 2]);
}

#[test]
fn files_that_may_not_be_read_are_named() {
    if is_root() {
        return report_skipped("root may read everything");
    }
    let fixture = Fixture::new("unreadable");
    let trace = fixture.path("trace");
    let streams: [(&str, &[u8]); 2] = [("a", &packet(&[1])), ("b", &packet(&[2]))];
    write_trace(&trace, METADATA, &streams);
    let forbid = |name: &str, mode| {
        fs::set_permissions(trace.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    forbid("a", 0);
    let output = print(&fixture, &[&trace]);
    expect(&output, DAMAGED, &["trace/a", "ermission denied"]);
    assert_eq!(ticks(&output.stdout), [2]);
    forbid("metadata", 0);
    expect(&print(&fixture, &[&trace]), DAMAGED, &["metadata", "ermission denied"]);
}

#[test]
fn other_versions_are_refused() {
    let fixture = Fixture::new("versions");
    for (from, to, word) in [
        ("minor = 8", "minor = 9", "1.9"),
        ("major = 1", "major = 2", "2.8"),
        ("major = 1", "major = 3", "3.8"),
    ] {
        let output = printed(&fixture, &METADATA.replace(from, to), &packet(&[1]));
        expect(&output, DAMAGED, &["metadata", "line 4, column"]);
        assert!(talk(&output).contains(&format!("CTF {word}")), "{}", talk(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn metadata_that_cannot_be_read_says_line_and_column() {
    let fixture = Fixture::new("metadata");
    let places = [
        ("u32 n;", "u32 n!", "line 18, column 71:"),
        ("freq = 1000000000", "freq = 0", "line 9"),
        ("clock.mono.value", "clock.other.value", "clock"),
        ("{ u32 n; }", "{ nothing n; }", "line 18, column 66:"),
        ("event { name", "event { {{{{ name", "line 19, column 1:"),
    ];
    for (from, to, place) in places {
        let output = printed(&fixture, &METADATA.replace(from, to), &packet(&[1]));
        expect(&output, DAMAGED, &["trace/metadata", place]);
        assert!(talk(&output).contains("column"), "{}", talk(&output));
        assert!(output.stdout.is_empty());
    }
    // A fault in JSON is described in words, too.
    let preamble = "\x1e{\"type\":\"preamble\",\"version\":2}\n\x1e{\"type\":";
    for (rest, told) in [
        ("", "line 2, column 9: not JSON: it ends while parsing"),
        ("\"event\",}", "line 2, column 18: not JSON: trailing comma"),
        ("event}", "line 2, column 10: not JSON: expected value"),
    ] {
        let output = printed(&fixture, &format!("{preamble}{rest}"), &packet(&[1]));
        expect(&output, DAMAGED, &["trace/metadata: metadata ", told]);
    }
    let output = printed(&fixture, "", &packet(&[1]));
    expect(&output, DAMAGED, &["trace/metadata: empty"]);
    // A readable trace next to an unreadable one is read.
    write_trace(&fixture.path("traces/bad"), "/* CTF 1.8 */ trace {", &[]);
    write_trace(&fixture.path("traces/good"), METADATA, &[("stream", &packet(&[7]))]);
    let output = print(&fixture, &[fixture.path("traces")]);
    expect(&output, DAMAGED, &["bad/metadata", "line 1, column"]);
    assert_eq!(ticks(&output.stdout), [7]);
}

#[test]
fn recursion_ends() {
    let fixture = Fixture::new("recursion");
    let nested =
        |count: usize| format!("{}u32 n;{}", "struct { ".repeat(count), " } a;".repeat(count));
    let deep = METADATA.replace("u32 n;", &nested(100_000));
    expect(&printed(&fixture, &deep, &packet(&[1])), DAMAGED, &["metadata", "line 18"]);
    let braces = METADATA.replace("u32 n;", &"{".repeat(1_000_000));
    expect(&printed(&fixture, &braces, &packet(&[1])), DAMAGED, &["metadata", "line 18"]);
    let variants = "enum : u32 { a } t; ".to_owned() + &"variant <t> { ".repeat(100_000);
    let variants = METADATA.replace("u32 n;", &variants);
    expect(&printed(&fixture, &variants, &packet(&[1])), DAMAGED, &["metadata", "line 18"]);
    let folders = (0..200).fold(fixture.path("deep"), |path, _| path.join("d"));
    fs::create_dir_all(&folders).unwrap();
    expect(&print(&fixture, &[fixture.path("deep")]), NO_TRACE, &[]);
}

#[test]
fn a_stream_cut_short_is_read_up_to_there() {
    let fixture = Fixture::new("short");
    let (first, second) = (packet(&[1, 2]), packet(&[3, 4, 5]));
    for missing in 1..second.len() {
        let mut stream = [&first[..], &second].concat();
        stream.truncate(stream.len() - missing);
        let output = printed(&fixture, METADATA, &stream);
        let at = format!("byte {}", first.len());
        expect(&output, DAMAGED, &["trace/stream", "packet 1", &at]);
        let whole = (second.len() - missing).saturating_sub(HEADER_BYTES) / EVENT_BYTES;
        let all = [1, 2, 3, 4, 5];
        assert_eq!(ticks(&output.stdout), all[..2 + whole], "{missing} bytes are missing");
    }
}

/// The content is complete, but the file has another size than its last packet says.
#[test]
fn a_stream_cut_in_its_padding_is_read_whole_and_reported() {
    const PADDING_BYTES: usize = 24;
    let fixture = Fixture::new("padding");
    let trace = fixture.path("trace");
    let first = packet(&[1, 2]);
    // A packet with events, and one without.
    for numbers in [&[3, 4, 5][..], &[]] {
        let mut second = packet(numbers);
        second.resize(second.len() + PADDING_BYTES, 0);
        let bits = 8 * second.len() as u64;
        set_size(&mut second, SIZES_AT, bits);
        let expected = [&[1, 2], numbers].concat();
        let stream = [&first[..], &second].concat();
        let output = printed(&fixture, METADATA, &stream);
        expect(&output, WHOLE, &[]);
        assert_eq!((ticks(&output.stdout), talk(&output).as_str()), (expected.clone(), ""));
        for missing in [1, PADDING_BYTES - 1, PADDING_BYTES] {
            write_trace(&trace, METADATA, &[("stream", &stream[..stream.len() - missing])]);
            let place = format!("packet 1 at byte {}: its last {missing} bytes", first.len());
            let run = |arguments: &[&str]| {
                let mut command = guarded(&fixture, build_dir().join("trackway"));
                let output = command.args(arguments).output().expect("timeout runs");
                expect(&output, DAMAGED, &["trace/stream: ", &place, "padding"]);
                let reports = talk(&output).matches("bytes are missing").count();
                assert_eq!(reports, 1, "{arguments:?}: {}", talk(&output));
                output.stdout
            };
            for jobs in ["1", "4"] {
                assert_eq!(ticks(&run(&["print", "--jobs", jobs, "trace"])), expected);
                run(&["print", "--format", "none", "--jobs", jobs, "trace"]);
                run(&["print", "--format", "json", "--jobs", jobs, "trace"]);
                let text = run(&["print", "--stats", "--jobs", jobs, "trace"]);
                let count = format!("{} events", expected.len());
                assert!(String::from_utf8_lossy(&text).contains(&count));
            }
            // What is written has right sizes.
            for command in ["merge", "trim"] {
                run(&[command, "-o", command, "trace"]);
                let output = print(&fixture, &[fixture.path(command)]);
                expect(&output, WHOLE, &[]);
                assert_eq!(ticks(&output.stdout), expected);
                fs::remove_dir_all(fixture.path(command)).expect("a trace");
            }
        }
    }
}

/// Bytes after the last packet are no packet, however few they are.
#[test]
fn bytes_behind_the_last_packet_are_reported() {
    let fixture = Fixture::new("behind");
    let stream = packet(&[1, 2]);
    for behind in [&[0][..], &[0; 7], &[0; 4096], b"x", &stream[..4], &stream[..HEADER_BYTES - 1]] {
        let output = printed(&fixture, METADATA, &[&stream[..], behind].concat());
        let place = format!("packet 1 at byte {}", stream.len());
        expect(&output, DAMAGED, &["trace/stream: ", &place]);
        assert_eq!(ticks(&output.stdout), [1, 2]);
    }
}

#[test]
fn a_packet_damaged_in_the_middle_costs_no_other() {
    let fixture = Fixture::new("middle");
    let mut damaged = packet(&[3, 4, 5]);
    // The id of its second event.
    damaged[HEADER_BYTES + EVENT_BYTES] = 0x77;
    let (before, after) = (packet(&[1, 2]), packet(&[6, 7]));
    let output = printed(&fixture, METADATA, &[&before[..], &damaged, &after].concat());
    let (at, bit) =
        (format!("byte {}", before.len()), format!("bit {}", 8 * (HEADER_BYTES + EVENT_BYTES)));
    expect(&output, DAMAGED, &["trace/stream", "packet 1", &at, &bit]);
    assert_eq!(ticks(&output.stdout), [1, 2, 3, 6, 7]);
}

/// Every command that reads events prints, counts or copies all of them, and reports the position.
#[test]
fn time_that_goes_backward_is_reported_by_every_reader() {
    let fixture = Fixture::new("backward");
    let trace = fixture.path("trace");
    let first = packet(&[1, 2]);
    let stream = [&first[..], &packet(&[7, 5, 4]), &packet(&[3, 8])].concat();
    write_trace(&trace, METADATA, &[("a", &stream), ("b", &packet(&[1, 6, 9]))]);
    let place = format!("packet 1 at byte {}", first.len());
    let bit = format!("at the event at bit {}", 8 * (HEADER_BYTES + EVENT_BYTES));
    let words = ["trace/a: ", &place, "time goes backward by 0.000000002 s", &bit];
    let run = |arguments: &[&str]| {
        let mut command = guarded(&fixture, build_dir().join("trackway"));
        let output = command.args(arguments).output().expect("timeout runs");
        expect(&output, DAMAGED, &words);
        assert_eq!(talk(&output).matches("goes backward").count(), 1, "{arguments:?}");
        output.stdout
    };
    let merged = [1, 1, 2, 6, 7, 5, 4, 3, 8, 9];
    for jobs in ["1", "4"] {
        let text = run(&["print", "--clock-seconds", "--jobs", jobs, "trace"]);
        assert_eq!(ticks(&text), merged);
        let text = String::from_utf8(text).expect("text");
        let differences: Vec<&str> = text.lines().map(|line| &line[14..27]).collect();
        let signs = ["?.?????????", "0.000000000", "0.000000001", "0.000000004", "0.000000001"];
        let more = ["-0.000000002", "-0.000000001", "-0.000000001", "+0.000000005", "+0.000000001"];
        let signs = signs.map(|number| format!("+{number}")).into_iter();
        let expected = signs.chain(more.map(str::to_owned)).map(|text| format!("({text})"));
        let expected: Vec<String> = expected.map(|text| text[..13].to_owned()).collect();
        assert_eq!(differences, expected, "{text}");
        assert_eq!(run(&["print", "--count", "--jobs", jobs, "trace"]), b"10\n");
        assert_eq!(run(&["print", "--format", "none", "--jobs", jobs, "trace"]), b"");
        for format in ["json", "csv"] {
            let text = run(&["print", "--format", format, "--jobs", jobs, "trace"]);
            let lines = text.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(lines, 10 + usize::from(format == "csv"));
        }
        let text = run(&["print", "--stats", "--jobs", jobs, "trace"]);
        assert!(String::from_utf8_lossy(&text).contains("10 events"));
        // What is compared are all events, not only those that are printed.
        assert_eq!(ticks(&run(&["print", "--filter", "n > 7", "--jobs", jobs, "trace"])), [8, 9]);
        assert_eq!(run(&["print", "--event", "nosuch", "--jobs", jobs, "trace"]), b"");
    }
    let ranged = run(&["print", "--begin", "0.000000004", "--end", "0.000000006", "trace"]);
    assert_eq!(ticks(&ranged), [5, 4, 6]);
    run(&["merge", "-o", "merged", "trace"]);
    run(&["trim", "--begin", "0.000000005", "-o", "trimmed", "trace"]);
    // What is written is in the streams' order, too.
    for (folder, numbers) in [("merged", &merged[..]), ("trimmed", &[6, 7, 5, 8, 9])] {
        let output = print(&fixture, &[fixture.path(folder)]);
        expect(&output, DAMAGED, &["backward by 0.000000002 s"]);
        assert_eq!(ticks(&output.stdout), numbers, "{folder}");
    }
}

/// A 64-bit clock in nanoseconds, scaled from a counter of 32 bits that wraps.
#[test]
fn a_clock_that_wraps_far_back_is_shown_as_it_is() {
    let fixture = Fixture::new("wraps");
    let [before, after] = [4_294_967_290, 7];
    let output = printed(&fixture, METADATA, &packet(&[before, after]));
    let bit = format!("at the event at bit {}", 8 * (HEADER_BYTES + EVENT_BYTES));
    expect(&output, DAMAGED, &["trace/stream: packet 0 at byte 0: ", "4.294967283 s", &bit]);
    assert_eq!(ticks(&output.stdout), [before, after]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("] (-4.294967283) here tick"), "{text}");
    // So it is in cycles and with names of the headers' parts.
    let shown = |option: &str| {
        let output = print(&fixture, &["--clock-cycles", option, "trace"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let text = shown("--names=none");
    assert!(text.contains("[00000000000000000007] (-004294967283)"), "{text}");
    let text = shown("--names=header");
    assert!(text.contains(", delta = -004294967283"), "{text}");
}

/// Without an index, the next packet is found by its magic number.
#[test]
fn a_packet_whose_header_is_damaged_costs_no_other() {
    let fixture = Fixture::new("header");
    let (before, after) = (packet(&[1, 2]), packet(&[6, 7]));
    for (at, bytes) in [(0, &[0; 40][..]), (0, b"x"), (4, &[0x77])] {
        let mut damaged = packet(&[3, 4, 5]);
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let stream = [&before[..], &damaged, &after, &after].concat();
        let output = printed(&fixture, METADATA, &stream);
        let place = format!("byte {}", before.len());
        expect(&output, DAMAGED, &["trace/stream", "packet 1", &place]);
        assert_eq!(ticks(&output.stdout), [1, 2, 6, 7, 6, 7], "{}", talk(&output));
        // What is not read was not lost by the tracer.
        assert!(!talk(&output).contains("discarded"), "{}", talk(&output));
    }
    // A stream full of beginnings of packets: reading ends.
    let magic = packet(&[1])[..4].repeat(1 << 20);
    expect(&printed(&fixture, METADATA, &magic), DAMAGED, &["trace/stream", "packet 0"]);
}

#[test]
fn an_output_in_a_trace_is_refused() {
    let fixture = Fixture::new("inside");
    let trace = fixture.path("trace");
    write_trace(&trace, METADATA, &[("stream", &packet(&[1, 2]))]);
    let before = fs::read(trace.join("stream")).unwrap();
    let status = |arguments: &[&str]| {
        let output = fixture.trackway(arguments).output().expect("trackway runs");
        (output.status.code(), talk(&output))
    };
    for arguments in [
        &["print", "-o", "trace/stream", "trace"][..],
        &["print", "-o", "trace/new", "trace"],
        &["trim", "-o", "trace/part", "trace"],
        &["merge", "-o", "trace", "trace"],
    ] {
        let (code, said) = status(arguments);
        assert_eq!(code, NO_TRACE, "{said}");
        assert!(said.contains("is in"), "{said}");
    }
    assert_eq!(fs::read(trace.join("stream")).unwrap(), before);
    assert_eq!(fs::read_dir(&trace).unwrap().count(), 2);
    let (code, said) = status(&["print", "-o", "text", "--event", "nosuch", "trace"]);
    assert!(code == WHOLE && said.contains("no kind of event matches --event"), "{said}");
}

#[test]
fn packets_that_lie_about_their_size_are_found_out() {
    let fixture = Fixture::new("sizes");
    let whole = packet(&[3, 4]);
    let true_bits = 8 * whole.len() as u64;
    for (packet_bits, content_bits) in [
        (0, 0),
        (0, true_bits),
        (1, 1),
        (7, 7),
        (8, 8),
        (true_bits, true_bits + 8),
        (8 * HEADER_BYTES as u64 - 8, 8 * HEADER_BYTES as u64 - 8),
        (true_bits + 1, true_bits),
        (1 << 63, 1 << 63),
        (u64::MAX - 7, 64),
        (u64::MAX, u64::MAX),
    ] {
        let mut lying = whole.clone();
        set_size(&mut lying, SIZES_AT, packet_bits);
        set_size(&mut lying, SIZES_AT + 8, content_bits);
        let before = packet(&[1, 2]);
        let output = printed(&fixture, METADATA, &[&before[..], &lying].concat());
        let at = format!("byte {}", before.len());
        expect(&output, DAMAGED, &["trace/stream", "packet 1", &at]);
        let read = ticks(&output.stdout);
        assert!(read.starts_with(&[1, 2]), "{packet_bits}, {content_bits}: {read:?}");
        assert!(read.len() <= 4, "{packet_bits}, {content_bits}: {read:?}");
    }
}

#[test]
fn sequences_that_cannot_be_are_not_waited_for() {
    let fixture = Fixture::new("sequence");
    let sequence = METADATA.replace("u32 n;", "u64 length; u32 n[length];");
    let long = |length: u64| {
        let mut bytes = packet(&[1]);
        let at = HEADER_BYTES + EVENT_BYTES - 4;
        bytes.truncate(at);
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 16]);
        let bits = 8 * bytes.len() as u64;
        set_size(&mut bytes, SIZES_AT, bits);
        set_size(&mut bytes, SIZES_AT + 8, bits);
        bytes
    };
    for length in [1_u64 << 60, u64::MAX, 1 << 32, 5] {
        let output = printed(&fixture, &sequence, &long(length));
        expect(&output, DAMAGED, &["trace/stream", "packet 0", "byte 0", "bit"]);
        assert!(output.stdout.is_empty());
    }
    let output = printed(&fixture, &sequence, &long(4));
    expect(&output, WHOLE, &[]);
    // Elements that take no space do not end with the packet.
    let nothing = METADATA.replace("u32 n;", "u64 length; struct { } n[length];");
    expect(&printed(&fixture, &nothing, &long(1 << 60)), DAMAGED, &["packet 0", "byte 0"]);
}

#[test]
fn clocks_beyond_all_bounds_are_damage() {
    let fixture = Fixture::new("clock");
    let zero = METADATA.replace("freq = 1000000000", "freq = 0");
    expect(&printed(&fixture, &zero, &packet(&[1])), DAMAGED, &["metadata", "line 9"]);
    let far = METADATA.replace("freq = 1000000000", "freq = 1; offset_s = 9223372036854775807");
    expect(&printed(&fixture, &far, &packet(&[1])), DAMAGED, &["trace/"]);
    let slow = METADATA.replace("freq = 1000000000", "freq = 1");
    let mut late = packet(&[1, 2]);
    late[HEADER_BYTES + EVENT_BYTES + 4..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let output = printed(&fixture, &slow, &late);
    let bit = format!("at bit {}", 8 * (HEADER_BYTES + EVENT_BYTES));
    expect(&output, DAMAGED, &["trace/stream", "packet 0", "byte 0", &bit]);
    assert_eq!(ticks(&output.stdout), [1]);
}

/// A gigabyte of text, by an event of an eighth of a megabyte: bits, each with a long label.
#[test]
fn an_event_whose_text_fills_the_memory_is_damage() {
    const BITS: u64 = 1 << 20;
    const MEMORY_BYTES: u64 = 900 << 20;
    let fixture = Fixture::new("line");
    let trace = fixture.path("trace");
    let labels = format!("{0}a = 0, {0}b = 1", "long_".repeat(200));
    let bits = format!("enum : integer {{ size = 1; align = 1; }} {{ {labels} }} bits[length];");
    let bits = format!("u64 length; {bits}");
    let metadata = METADATA.replace("u32 n; }; };", &format!("{bits} }}; }};"));
    let tick = "event { name = \"tick\"; id = 1; stream_id = 0; fields := struct { u32 n; }; };";
    let metadata = format!("{}{tick}", metadata.replacen("\"tick\"", "\"bits\"", 1));
    let [mut stream, mut after] = [packet(&[1]), packet(&[2])];
    after[HEADER_BYTES] = 1;
    stream.truncate(HEADER_BYTES + EVENT_BYTES - 4);
    stream.extend(BITS.to_le_bytes());
    stream.resize(stream.len() + BITS as usize / 8, 0x55);
    // A small record after the large one in its packet, and another packet.
    stream.extend(&after[HEADER_BYTES..]);
    let size = 8 * stream.len() as u64;
    set_size(&mut stream, SIZES_AT, size);
    set_size(&mut stream, SIZES_AT + 8, size);
    write_trace(&trace, &metadata, &[("stream", &[&stream[..], &after].concat())]);
    for format in ["text", "json"] {
        let mut command = guarded(&fixture, "prlimit");
        command.arg(format!("--data={MEMORY_BYTES}")).arg(build_dir().join("trackway"));
        command.args(["print", "--jobs", "1", "--format", format]).arg(&trace);
        let output = command.output().expect("prlimit runs");
        let bit = format!("event at bit {} is too large", 8 * (HEADER_BYTES + EVENT_BYTES - 4));
        expect(&output, DAMAGED, &["trace/stream", "packet 0 at byte 0", &bit]);
        let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, 2, "{format}");
    }
}

/// Returns an index file of these entries: the packet's offset, its size in bytes, its begin and
/// end.
fn index(entries: &[[u64; 4]]) -> Vec<u8> {
    let mut bytes = [0xC1F1_DCC1_u32, 1, 1, 64].map(u32::to_be_bytes).concat();
    for &[at, size, begin, end] in entries {
        let bits = size.wrapping_mul(8);
        let words = [at, bits, bits, begin, end, 0, 0, 0];
        bytes.extend(words.into_iter().flat_map(u64::to_be_bytes));
    }
    bytes
}

/// Any contents of an index, for complete and damaged packets, for all events and for a range of
/// times.
#[test]
fn indexes_that_lie_change_nothing() {
    let fixture = Fixture::new("index");
    let trace = fixture.path("trace");
    let packets = [packet(&[1, 2]), packet(&[3]), packet(&[4, 5, 6]), packet(&[7])];
    let stream = packets.concat();
    write_trace(&trace, METADATA, &[("stream", &stream)]);
    fs::create_dir(trace.join("index")).unwrap();
    let mut ends: Vec<u64> = vec![0];
    packets.iter().for_each(|packet| ends.push(ends[ends.len() - 1] + packet.len() as u64));
    let entry =
        |number: usize, begin, end| [ends[number], packets[number].len() as u64, begin, end];
    let truth = [entry(0, 1, 2), entry(1, 3, 3), entry(2, 4, 6), entry(3, 7, 7)];
    let [first, second, third, last] = truth;
    let mut lies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        vec![0xff; 4096],
        index(&truth)[..20].to_vec(),
        index(&[[u64::MAX; 4], [0; 4], [1 << 60; 4]]),
        // Some entries missing, out of order, with other positions, sizes and times.
        index(&[last]),
        index(&[first, last]),
        index(&[last, third, second, first]),
        index(&truth.map(|[at, size, begin, end]| [at + 1, size, begin, end])),
        index(&truth.map(|[at, size, begin, end]| [at, size + 1, begin, end])),
        index(&truth.map(|[at, size, begin, _]| [at, size, begin, 0])),
        index(&truth.map(|[at, size, _, _]| [at, size, 0, 0])),
        // The same packet, always.
        index(&[[third[0], third[1], 4, 6]; 4]),
    ];
    lies.push(index(&truth));
    // The second packet's magic number; its size; within it.
    for (at, bytes, lost) in
        [(0, &[][..], 0), (0, b"x", 1), (SIZES_AT, &[0xff; 8], 1), (1, b"x", 1)]
    {
        let mut damaged = stream.clone();
        damaged[packets[0].len() + at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(trace.join("stream"), &damaged).unwrap();
        for (range, all) in [
            (&[][..], &[1, 2, 3, 4, 5, 6, 7][..]),
            (&["--begin", "0.000000003"], &[3, 4, 5, 6, 7]),
            (&["--begin", "0.000000005", "--end", "0.000000006"], &[5, 6]),
            (&["--begin", "0.000000007"], &[7]),
            (&["--end", "0.000000002"], &[1, 2]),
        ] {
            let expected: Vec<u32> =
                all.iter().copied().filter(|&tick| lost == 0 || tick != 3).collect();
            for lie in &lies {
                fs::write(trace.join("index/stream.idx"), lie).unwrap();
                let mut arguments: Vec<&str> = range.to_vec();
                arguments.push(trace.to_str().unwrap());
                let output = print(&fixture, &arguments);
                let said = talk(&output);
                assert_eq!(ticks(&output.stdout), expected, "{range:?} {at} {lie:?}: {said}");
                assert_ne!(output.status.code(), NO_TRACE);
                // What is not read was not lost by the tracer.
                assert!(!said.contains("discarded") && !said.contains("panicked"), "{said}");
            }
        }
    }
}

#[test]
fn more_streams_than_files_may_be_open_are_merged() {
    const STREAMS: u32 = 3000;
    let fixture = Fixture::new("streams");
    let trace = fixture.path("trace");
    write_trace(&trace, METADATA, &[]);
    for number in 0..STREAMS {
        let bytes = packet(&[number, STREAMS + number]);
        fs::write(trace.join(format!("stream{number}")), bytes).unwrap();
    }
    let mut command = guarded(&fixture, "prlimit");
    command.arg("--nofile=1024").arg(build_dir().join("trackway")).arg("print").arg(&trace);
    let output = command.output().expect("prlimit runs");
    expect(&output, WHOLE, &[]);
    assert_eq!(ticks(&output.stdout), (0..2 * STREAMS).collect::<Vec<_>>());
}

#[test]
fn a_trace_being_written_prints_what_is_there() {
    let fixture = Fixture::new("written");
    let trace = fixture.path("trace");
    // An empty stream, one whose packet has its size but not its bytes, and metadata whose last
    // event is missing yet.
    let begun = packet(&[4, 5, 6]);
    let begun = &begun[..HEADER_BYTES + EVENT_BYTES + 3];
    let streams: [(&str, &[u8]); 3] = [("a", b""), ("b", begun), ("c", &packet(&[1, 9]))];
    write_trace(&trace, METADATA, &streams);
    let output = print(&fixture, &[&trace]);
    expect(&output, DAMAGED, &["trace/b", "packet 0", "missing"]);
    assert_eq!(ticks(&output.stdout), [1, 4, 9]);
    let (known, unknown) = METADATA.split_at(METADATA.len() - 20);
    fs::write(trace.join("metadata"), known).unwrap();
    expect(&print(&fixture, &[&trace]), DAMAGED, &["trace/metadata", "line 18, column"]);
    assert!(!unknown.is_empty());
}
