//! `trackway print` on folders that are damaged, hostile, or still being written: it prints all
//! readable events, reports each damage with its file, packet and position, and always ends.
//!
//! Longer than 600 lines: a table of damages with their messages.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output};

use crate::made::{
    EVENT_BYTES, PACKET_HEADER_BYTES, SIZES_OFFSET, TICK_METADATA, make_packet, set_packet_size,
    tick_numbers, write_trace,
};
use crate::support::{command_with_timeout, run_print, stderr_text};
use trackway_tests::{Fixture, build_dir, is_root, report_skipped};

/// Exit status if the trace is undamaged.
const STATUS_WHOLE: Option<i32> = Some(0);
/// Exit status if a part is damaged, and all other events were printed.
const STATUS_DAMAGED: Option<i32> = Some(1);
/// Exit status if there is no trace.
const STATUS_NO_TRACE: Option<i32> = Some(2);

/// Asserts the exit status, and that one line of the messages contains all of `words`.
fn assert_result(output: &Output, status: Option<i32>, words: &[&str]) {
    let said = stderr_text(output);
    assert_eq!(output.status.code(), status, "{said}");
    let has_all = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(words.is_empty() || said.lines().any(has_all), "{words:?} not in: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// Makes a FIFO.
fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Writes a trace with one stream to the fixture's folder `trace`, and prints it.
fn print_stream(fixture: &Fixture, metadata: &str, stream: &[u8]) -> Output {
    let trace = fixture.path("trace");
    let _ = fs::remove_dir_all(&trace);
    write_trace(&trace, metadata, &[("stream", stream)]);
    run_print(fixture, &[trace])
}

#[test]
fn a_folder_without_a_trace_is_status_2() {
    let fixture = Fixture::new("none");
    let folder = fixture.path("empty");
    fs::create_dir_all(folder.join("also/empty")).unwrap();
    assert_result(&run_print(&fixture, &[&folder]), STATUS_NO_TRACE, &["is not a trace", "empty"]);
    assert_result(&run_print(&fixture, &[fixture.path("missing")]), STATUS_NO_TRACE, &["missing"]);
    fs::write(folder.join("stream"), make_packet(&[1])).unwrap();
    assert_result(&run_print(&fixture, &[&folder]), STATUS_NO_TRACE, &["is not a trace"]);
    // A file is not a folder.
    assert_result(&run_print(&fixture, &[folder.join("stream")]), STATUS_NO_TRACE, &["stream"]);
}

#[test]
fn fifos_are_not_waited_for() {
    let fixture = Fixture::new("fifo");
    let trace = fixture.path("trace");
    write_trace(&trace, TICK_METADATA, &[("stream", &make_packet(&[1, 2]))]);
    make_fifo(&trace.join("stream2"));
    let output = run_print(&fixture, &[&trace]);
    assert_result(&output, STATUS_WHOLE, &[]);
    assert_eq!(tick_numbers(&output.stdout), [1, 2]);
    let other = fixture.path("other");
    fs::create_dir_all(&other).unwrap();
    make_fifo(&other.join("metadata"));
    assert_result(&run_print(&fixture, &[&other]), STATUS_NO_TRACE, &["is not a trace", "other"]);
}

#[test]
fn links_that_lead_in_circles_end() {
    let fixture = Fixture::new("links");
    let trace = fixture.path("root/trace");
    write_trace(&trace, TICK_METADATA, &[("stream", &make_packet(&[1, 2]))]);
    symlink("..", trace.join("up")).unwrap();
    symlink("self", trace.join("self")).unwrap();
    symlink("/nowhere/at/all", trace.join("gone")).unwrap();
    symlink(&trace, fixture.path("root/again")).unwrap();
    let output = run_print(&fixture, &[fixture.path("root")]);
    assert_result(&output, STATUS_WHOLE, &[]);
    assert_eq!(tick_numbers(&output.stdout), [1, 2]);
    let looped = fixture.path("looped");
    fs::create_dir(&looped).unwrap();
    symlink("metadata", looped.join("metadata")).unwrap();
    assert_result(&run_print(&fixture, &[&looped]), STATUS_NO_TRACE, &["is not a trace"]);
    // A link that is given as an argument is followed.
    let output = run_print(&fixture, &[fixture.path("root/again")]);
    assert_eq!(tick_numbers(&output.stdout), [1, 2]);
}

#[test]
fn files_that_may_not_be_read_are_named() {
    if is_root() {
        return report_skipped("root may read everything");
    }
    let fixture = Fixture::new("unreadable");
    let trace = fixture.path("trace");
    let streams: [(&str, &[u8]); 2] = [("a", &make_packet(&[1])), ("b", &make_packet(&[2]))];
    write_trace(&trace, TICK_METADATA, &streams);
    let forbid = |name: &str, mode| {
        fs::set_permissions(trace.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    forbid("a", 0);
    let output = run_print(&fixture, &[&trace]);
    assert_result(&output, STATUS_DAMAGED, &["trace/a", "ermission denied"]);
    assert_eq!(tick_numbers(&output.stdout), [2]);
    forbid("metadata", 0);
    assert_result(
        &run_print(&fixture, &[&trace]),
        STATUS_DAMAGED,
        &["metadata", "ermission denied"],
    );
}

#[test]
fn other_versions_are_refused() {
    let fixture = Fixture::new("versions");
    for (from, to, word) in [
        ("minor = 8", "minor = 9", "1.9"),
        ("major = 1", "major = 2", "2.8"),
        ("major = 1", "major = 3", "3.8"),
    ] {
        let output = print_stream(&fixture, &TICK_METADATA.replace(from, to), &make_packet(&[1]));
        assert_result(&output, STATUS_DAMAGED, &["metadata", "line 4, column"]);
        assert!(stderr_text(&output).contains(&format!("CTF {word}")), "{}", stderr_text(&output));
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
        let output = print_stream(&fixture, &TICK_METADATA.replace(from, to), &make_packet(&[1]));
        assert_result(&output, STATUS_DAMAGED, &["trace/metadata", place]);
        assert!(stderr_text(&output).contains("column"), "{}", stderr_text(&output));
        assert!(output.stdout.is_empty());
    }
    // A fault in JSON is described in words, too.
    let preamble = "\x1e{\"type\":\"preamble\",\"version\":2}\n\x1e{\"type\":";
    for (rest, told) in [
        ("", "line 2, column 9: not JSON: it ends while parsing"),
        ("\"event\",}", "line 2, column 18: not JSON: trailing comma"),
        ("event}", "line 2, column 10: not JSON: expected value"),
    ] {
        let output = print_stream(&fixture, &format!("{preamble}{rest}"), &make_packet(&[1]));
        assert_result(&output, STATUS_DAMAGED, &["trace/metadata: metadata ", told]);
    }
    let output = print_stream(&fixture, "", &make_packet(&[1]));
    assert_result(&output, STATUS_DAMAGED, &["trace/metadata: empty"]);
    // A readable trace in the same folder as an unreadable one is read.
    write_trace(&fixture.path("traces/bad"), "/* CTF 1.8 */ trace {", &[]);
    write_trace(&fixture.path("traces/good"), TICK_METADATA, &[("stream", &make_packet(&[7]))]);
    let output = run_print(&fixture, &[fixture.path("traces")]);
    assert_result(&output, STATUS_DAMAGED, &["bad/metadata", "line 1, column"]);
    assert_eq!(tick_numbers(&output.stdout), [7]);
}

#[test]
fn recursion_ends() {
    let fixture = Fixture::new("recursion");
    let nested =
        |count: usize| format!("{}u32 n;{}", "struct { ".repeat(count), " } a;".repeat(count));
    let deep = TICK_METADATA.replace("u32 n;", &nested(100_000));
    assert_result(
        &print_stream(&fixture, &deep, &make_packet(&[1])),
        STATUS_DAMAGED,
        &["metadata", "line 18"],
    );
    let braces = TICK_METADATA.replace("u32 n;", &"{".repeat(1_000_000));
    assert_result(
        &print_stream(&fixture, &braces, &make_packet(&[1])),
        STATUS_DAMAGED,
        &["metadata", "line 18"],
    );
    let variants = "enum : u32 { a } t; ".to_owned() + &"variant <t> { ".repeat(100_000);
    let variants = TICK_METADATA.replace("u32 n;", &variants);
    assert_result(
        &print_stream(&fixture, &variants, &make_packet(&[1])),
        STATUS_DAMAGED,
        &["metadata", "line 18"],
    );
    let folders = (0..200).fold(fixture.path("deep"), |path, _| path.join("d"));
    fs::create_dir_all(&folders).unwrap();
    assert_result(&run_print(&fixture, &[fixture.path("deep")]), STATUS_NO_TRACE, &[]);
}

#[test]
fn a_stream_cut_short_is_read_up_to_there() {
    let fixture = Fixture::new("short");
    let (first, second) = (make_packet(&[1, 2]), make_packet(&[3, 4, 5]));
    for missing in 1..second.len() {
        let mut stream = [&first[..], &second].concat();
        stream.truncate(stream.len() - missing);
        let output = print_stream(&fixture, TICK_METADATA, &stream);
        let at = format!("byte {}", first.len());
        assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 1", &at]);
        let whole = (second.len() - missing).saturating_sub(PACKET_HEADER_BYTES) / EVENT_BYTES;
        let all = [1, 2, 3, 4, 5];
        assert_eq!(tick_numbers(&output.stdout), all[..2 + whole], "{missing} bytes are missing");
    }
}

/// The content is complete, but the size of the file differs from the size in its last packet.
#[test]
fn a_stream_cut_in_its_padding_is_read_whole_and_reported() {
    const PADDING_BYTES: usize = 24;
    let fixture = Fixture::new("padding");
    let trace = fixture.path("trace");
    let first = make_packet(&[1, 2]);
    // A packet with events, and one without.
    for numbers in [&[3, 4, 5][..], &[]] {
        let mut second = make_packet(numbers);
        second.resize(second.len() + PADDING_BYTES, 0);
        let bits = 8 * second.len() as u64;
        set_packet_size(&mut second, SIZES_OFFSET, bits);
        let expected = [&[1, 2], numbers].concat();
        let stream = [&first[..], &second].concat();
        let output = print_stream(&fixture, TICK_METADATA, &stream);
        assert_result(&output, STATUS_WHOLE, &[]);
        assert_eq!(
            (tick_numbers(&output.stdout), stderr_text(&output).as_str()),
            (expected.clone(), "")
        );
        for missing in [1, PADDING_BYTES - 1, PADDING_BYTES] {
            write_trace(&trace, TICK_METADATA, &[("stream", &stream[..stream.len() - missing])]);
            let place = format!("packet 1 at byte {}: its last {missing} bytes", first.len());
            let run = |arguments: &[&str]| {
                let mut command = command_with_timeout(&fixture, build_dir().join("trackway"));
                let output = command.args(arguments).output().expect("timeout runs");
                assert_result(&output, STATUS_DAMAGED, &["trace/stream: ", &place, "padding"]);
                let reports = stderr_text(&output).matches("bytes are missing").count();
                assert_eq!(reports, 1, "{arguments:?}: {}", stderr_text(&output));
                output.stdout
            };
            for jobs in ["1", "4"] {
                assert_eq!(tick_numbers(&run(&["print", "--jobs", jobs, "trace"])), expected);
                run(&["print", "--format", "none", "--jobs", jobs, "trace"]);
                run(&["print", "--format", "json", "--jobs", jobs, "trace"]);
                let text = run(&["print", "--stats", "--jobs", jobs, "trace"]);
                let count = format!("{} events", expected.len());
                assert!(String::from_utf8_lossy(&text).contains(&count));
            }
            // The written traces have right sizes.
            for command in ["merge", "trim"] {
                run(&[command, "-o", command, "trace"]);
                let output = run_print(&fixture, &[fixture.path(command)]);
                assert_result(&output, STATUS_WHOLE, &[]);
                assert_eq!(tick_numbers(&output.stdout), expected);
                fs::remove_dir_all(fixture.path(command)).expect("a trace");
            }
        }
    }
}

/// Bytes after the last packet are no packet, even if they are few.
#[test]
fn bytes_behind_the_last_packet_are_reported() {
    let fixture = Fixture::new("behind");
    let stream = make_packet(&[1, 2]);
    for behind in
        [&[0][..], &[0; 7], &[0; 4096], b"x", &stream[..4], &stream[..PACKET_HEADER_BYTES - 1]]
    {
        let output = print_stream(&fixture, TICK_METADATA, &[&stream[..], behind].concat());
        let place = format!("packet 1 at byte {}", stream.len());
        assert_result(&output, STATUS_DAMAGED, &["trace/stream: ", &place]);
        assert_eq!(tick_numbers(&output.stdout), [1, 2]);
    }
}

#[test]
fn a_packet_damaged_in_the_middle_costs_no_other() {
    let fixture = Fixture::new("middle");
    let mut damaged = make_packet(&[3, 4, 5]);
    // Damages the id of the second event.
    damaged[PACKET_HEADER_BYTES + EVENT_BYTES] = 0x77;
    let (before, after) = (make_packet(&[1, 2]), make_packet(&[6, 7]));
    let output = print_stream(&fixture, TICK_METADATA, &[&before[..], &damaged, &after].concat());
    let (at, bit) = (
        format!("byte {}", before.len()),
        format!("bit {}", 8 * (PACKET_HEADER_BYTES + EVENT_BYTES)),
    );
    assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 1", &at, &bit]);
    assert_eq!(tick_numbers(&output.stdout), [1, 2, 3, 6, 7]);
}

/// Every command that reads events prints, counts or copies all of them, and reports the position.
#[test]
fn time_that_goes_backward_is_reported_by_every_reader() {
    let fixture = Fixture::new("backward");
    let trace = fixture.path("trace");
    let first = make_packet(&[1, 2]);
    let stream = [&first[..], &make_packet(&[7, 5, 4]), &make_packet(&[3, 8])].concat();
    write_trace(&trace, TICK_METADATA, &[("a", &stream), ("b", &make_packet(&[1, 6, 9]))]);
    let place = format!("packet 1 at byte {}", first.len());
    let bit = format!("at the event at bit {}", 8 * (PACKET_HEADER_BYTES + EVENT_BYTES));
    let words = ["trace/a: ", &place, "time goes backward by 0.000000002 s", &bit];
    let run = |arguments: &[&str]| {
        let mut command = command_with_timeout(&fixture, build_dir().join("trackway"));
        let output = command.args(arguments).output().expect("timeout runs");
        assert_result(&output, STATUS_DAMAGED, &words);
        assert_eq!(stderr_text(&output).matches("goes backward").count(), 1, "{arguments:?}");
        output.stdout
    };
    let merged = [1, 1, 2, 6, 7, 5, 4, 3, 8, 9];
    for jobs in ["1", "4"] {
        let text = run(&["print", "--clock-seconds", "--jobs", jobs, "trace"]);
        assert_eq!(tick_numbers(&text), merged);
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
        // The check of times includes all events, not only the printed ones.
        assert_eq!(
            tick_numbers(&run(&["print", "--filter", "n > 7", "--jobs", jobs, "trace"])),
            [8, 9]
        );
        assert_eq!(run(&["print", "--event", "nosuch", "--jobs", jobs, "trace"]), b"");
    }
    let ranged = run(&["print", "--begin", "0.000000004", "--end", "0.000000006", "trace"]);
    assert_eq!(tick_numbers(&ranged), [5, 4, 6]);
    run(&["merge", "-o", "merged", "trace"]);
    run(&["trim", "--begin", "0.000000005", "-o", "trimmed", "trace"]);
    // Written traces keep the order of the streams, too.
    for (folder, numbers) in [("merged", &merged[..]), ("trimmed", &[6, 7, 5, 8, 9])] {
        let output = run_print(&fixture, &[fixture.path(folder)]);
        assert_result(&output, STATUS_DAMAGED, &["backward by 0.000000002 s"]);
        assert_eq!(tick_numbers(&output.stdout), numbers, "{folder}");
    }
}

/// A 64-bit clock in nanoseconds, scaled from a counter of 32 bits that wraps.
#[test]
fn a_clock_that_wraps_far_back_is_shown_as_it_is() {
    let fixture = Fixture::new("wraps");
    let [before, after] = [4_294_967_290, 7];
    let output = print_stream(&fixture, TICK_METADATA, &make_packet(&[before, after]));
    let bit = format!("at the event at bit {}", 8 * (PACKET_HEADER_BYTES + EVENT_BYTES));
    assert_result(
        &output,
        STATUS_DAMAGED,
        &["trace/stream: packet 0 at byte 0: ", "4.294967283 s", &bit],
    );
    assert_eq!(tick_numbers(&output.stdout), [before, after]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("] (-4.294967283) here tick"), "{text}");
    // The output is equal with clock cycles and with the names of headers' parts.
    let shown = |option: &str| {
        let output = run_print(&fixture, &["--clock-cycles", option, "trace"]);
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
    let (before, after) = (make_packet(&[1, 2]), make_packet(&[6, 7]));
    for (at, bytes) in [(0, &[0; 40][..]), (0, b"x"), (4, &[0x77])] {
        let mut damaged = make_packet(&[3, 4, 5]);
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        let stream = [&before[..], &damaged, &after, &after].concat();
        let output = print_stream(&fixture, TICK_METADATA, &stream);
        let place = format!("byte {}", before.len());
        assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 1", &place]);
        assert_eq!(tick_numbers(&output.stdout), [1, 2, 6, 7, 6, 7], "{}", stderr_text(&output));
        // Unread events were not lost by the tracer.
        assert!(!stderr_text(&output).contains("discarded"), "{}", stderr_text(&output));
    }
    // A stream full of packet beginnings: reading ends.
    let magic = make_packet(&[1])[..4].repeat(1 << 20);
    assert_result(
        &print_stream(&fixture, TICK_METADATA, &magic),
        STATUS_DAMAGED,
        &["trace/stream", "packet 0"],
    );
}

#[test]
fn an_output_in_a_trace_is_refused() {
    let fixture = Fixture::new("inside");
    let trace = fixture.path("trace");
    write_trace(&trace, TICK_METADATA, &[("stream", &make_packet(&[1, 2]))]);
    let before = fs::read(trace.join("stream")).unwrap();
    let status = |arguments: &[&str]| {
        let output = fixture.trackway(arguments).output().expect("trackway runs");
        (output.status.code(), stderr_text(&output))
    };
    for arguments in [
        &["print", "-o", "trace/stream", "trace"][..],
        &["print", "-o", "trace/new", "trace"],
        &["trim", "-o", "trace/part", "trace"],
        &["merge", "-o", "trace", "trace"],
    ] {
        let (code, said) = status(arguments);
        assert_eq!(code, STATUS_NO_TRACE, "{said}");
        assert!(said.contains("is in"), "{said}");
    }
    assert_eq!(fs::read(trace.join("stream")).unwrap(), before);
    assert_eq!(fs::read_dir(&trace).unwrap().count(), 2);
    let (code, said) = status(&["print", "-o", "text", "--event", "nosuch", "trace"]);
    assert!(code == STATUS_WHOLE && said.contains("no kind of event matches --event"), "{said}");
}

#[test]
fn packets_that_lie_about_their_size_are_found_out() {
    let fixture = Fixture::new("sizes");
    let whole = make_packet(&[3, 4]);
    let true_bits = 8 * whole.len() as u64;
    for (packet_bits, content_bits) in [
        (0, 0),
        (0, true_bits),
        (1, 1),
        (7, 7),
        (8, 8),
        (true_bits, true_bits + 8),
        (8 * PACKET_HEADER_BYTES as u64 - 8, 8 * PACKET_HEADER_BYTES as u64 - 8),
        (true_bits + 1, true_bits),
        (1 << 63, 1 << 63),
        (u64::MAX - 7, 64),
        (u64::MAX, u64::MAX),
    ] {
        let mut lying = whole.clone();
        set_packet_size(&mut lying, SIZES_OFFSET, packet_bits);
        set_packet_size(&mut lying, SIZES_OFFSET + 8, content_bits);
        let before = make_packet(&[1, 2]);
        let output = print_stream(&fixture, TICK_METADATA, &[&before[..], &lying].concat());
        let at = format!("byte {}", before.len());
        assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 1", &at]);
        let read = tick_numbers(&output.stdout);
        assert!(read.starts_with(&[1, 2]), "{packet_bits}, {content_bits}: {read:?}");
        assert!(read.len() <= 4, "{packet_bits}, {content_bits}: {read:?}");
    }
}

#[test]
fn sequences_that_cannot_be_are_not_waited_for() {
    let fixture = Fixture::new("sequence");
    let sequence = TICK_METADATA.replace("u32 n;", "u64 length; u32 n[length];");
    let long = |length: u64| {
        let mut bytes = make_packet(&[1]);
        let at = PACKET_HEADER_BYTES + EVENT_BYTES - 4;
        bytes.truncate(at);
        bytes.extend(length.to_le_bytes());
        bytes.extend([0; 16]);
        let bits = 8 * bytes.len() as u64;
        set_packet_size(&mut bytes, SIZES_OFFSET, bits);
        set_packet_size(&mut bytes, SIZES_OFFSET + 8, bits);
        bytes
    };
    for length in [1_u64 << 60, u64::MAX, 1 << 32, 5] {
        let output = print_stream(&fixture, &sequence, &long(length));
        assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 0", "byte 0", "bit"]);
        assert!(output.stdout.is_empty());
    }
    let output = print_stream(&fixture, &sequence, &long(4));
    assert_result(&output, STATUS_WHOLE, &[]);
    // Elements without size do not end with the packet.
    let nothing = TICK_METADATA.replace("u32 n;", "u64 length; struct { } n[length];");
    assert_result(
        &print_stream(&fixture, &nothing, &long(1 << 60)),
        STATUS_DAMAGED,
        &["packet 0", "byte 0"],
    );
}

#[test]
fn clocks_beyond_all_bounds_are_damage() {
    let fixture = Fixture::new("clock");
    let zero = TICK_METADATA.replace("freq = 1000000000", "freq = 0");
    assert_result(
        &print_stream(&fixture, &zero, &make_packet(&[1])),
        STATUS_DAMAGED,
        &["metadata", "line 9"],
    );
    let far =
        TICK_METADATA.replace("freq = 1000000000", "freq = 1; offset_s = 9223372036854775807");
    assert_result(&print_stream(&fixture, &far, &make_packet(&[1])), STATUS_DAMAGED, &["trace/"]);
    let slow = TICK_METADATA.replace("freq = 1000000000", "freq = 1");
    let mut late = make_packet(&[1, 2]);
    late[PACKET_HEADER_BYTES + EVENT_BYTES + 4..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    let output = print_stream(&fixture, &slow, &late);
    let bit = format!("at bit {}", 8 * (PACKET_HEADER_BYTES + EVENT_BYTES));
    assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 0", "byte 0", &bit]);
    assert_eq!(tick_numbers(&output.stdout), [1]);
}

/// A gigabyte of text from an event of an eighth of a megabyte: bits, each with a long label.
#[test]
fn an_event_whose_text_fills_the_memory_is_damage() {
    const BITS: u64 = 1 << 20;
    const MEMORY_BYTES: u64 = 900 << 20;
    let fixture = Fixture::new("line");
    let trace = fixture.path("trace");
    let labels = format!("{0}a = 0, {0}b = 1", "long_".repeat(200));
    let bits = format!("enum : integer {{ size = 1; align = 1; }} {{ {labels} }} bits[length];");
    let bits = format!("u64 length; {bits}");
    let metadata = TICK_METADATA.replace("u32 n; }; };", &format!("{bits} }}; }};"));
    let tick = "event { name = \"tick\"; id = 1; stream_id = 0; fields := struct { u32 n; }; };";
    let metadata = format!("{}{tick}", metadata.replacen("\"tick\"", "\"bits\"", 1));
    let [mut stream, mut after] = [make_packet(&[1]), make_packet(&[2])];
    after[PACKET_HEADER_BYTES] = 1;
    stream.truncate(PACKET_HEADER_BYTES + EVENT_BYTES - 4);
    stream.extend(BITS.to_le_bytes());
    stream.resize(stream.len() + BITS as usize / 8, 0x55);
    // A small record after the large one in its packet, and another packet.
    stream.extend(&after[PACKET_HEADER_BYTES..]);
    let size = 8 * stream.len() as u64;
    set_packet_size(&mut stream, SIZES_OFFSET, size);
    set_packet_size(&mut stream, SIZES_OFFSET + 8, size);
    write_trace(&trace, &metadata, &[("stream", &[&stream[..], &after].concat())]);
    for format in ["text", "json"] {
        let mut command = command_with_timeout(&fixture, "prlimit");
        command.arg(format!("--data={MEMORY_BYTES}")).arg(build_dir().join("trackway"));
        command.args(["print", "--jobs", "1", "--format", format]).arg(&trace);
        let output = command.output().expect("prlimit runs");
        let bit =
            format!("event at bit {} is too large", 8 * (PACKET_HEADER_BYTES + EVENT_BYTES - 4));
        assert_result(&output, STATUS_DAMAGED, &["trace/stream", "packet 0 at byte 0", &bit]);
        let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
        assert_eq!(lines, 2, "{format}");
    }
}

/// Returns an index file with these entries: a packet's offset, its size in bytes, its begin and
/// its end.
fn encode_index(entries: &[[u64; 4]]) -> Vec<u8> {
    let mut bytes = [0xC1F1_DCC1_u32, 1, 1, 64].map(u32::to_be_bytes).concat();
    for &[at, size, begin, end] in entries {
        let bits = size.wrapping_mul(8);
        let words = [at, bits, bits, begin, end, 0, 0, 0];
        bytes.extend(words.into_iter().flat_map(u64::to_be_bytes));
    }
    bytes
}

/// The index has arbitrary contents, for complete and damaged packets, for all events and for a
/// range of times.
#[test]
fn indexes_that_lie_change_nothing() {
    let fixture = Fixture::new("index");
    let trace = fixture.path("trace");
    let packets =
        [make_packet(&[1, 2]), make_packet(&[3]), make_packet(&[4, 5, 6]), make_packet(&[7])];
    let stream = packets.concat();
    write_trace(&trace, TICK_METADATA, &[("stream", &stream)]);
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
        encode_index(&truth)[..20].to_vec(),
        encode_index(&[[u64::MAX; 4], [0; 4], [1 << 60; 4]]),
        // Some entries are missing, out of order, or have other positions, sizes and times.
        encode_index(&[last]),
        encode_index(&[first, last]),
        encode_index(&[last, third, second, first]),
        encode_index(&truth.map(|[at, size, begin, end]| [at + 1, size, begin, end])),
        encode_index(&truth.map(|[at, size, begin, end]| [at, size + 1, begin, end])),
        encode_index(&truth.map(|[at, size, begin, _]| [at, size, begin, 0])),
        encode_index(&truth.map(|[at, size, _, _]| [at, size, 0, 0])),
        // All entries refer to the same packet.
        encode_index(&[[third[0], third[1], 4, 6]; 4]),
    ];
    lies.push(encode_index(&truth));
    // Damages the second packet's magic number, its size, or a byte within the number.
    for (at, bytes, lost) in
        [(0, &[][..], 0), (0, b"x", 1), (SIZES_OFFSET, &[0xff; 8], 1), (1, b"x", 1)]
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
                let output = run_print(&fixture, &arguments);
                let said = stderr_text(&output);
                assert_eq!(
                    tick_numbers(&output.stdout),
                    expected,
                    "{range:?} {at} {lie:?}: {said}"
                );
                assert_ne!(output.status.code(), STATUS_NO_TRACE);
                // Unread events were not lost by the tracer.
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
    write_trace(&trace, TICK_METADATA, &[]);
    for number in 0..STREAMS {
        let bytes = make_packet(&[number, STREAMS + number]);
        fs::write(trace.join(format!("stream{number}")), bytes).unwrap();
    }
    let mut command = command_with_timeout(&fixture, "prlimit");
    command.arg("--nofile=1024").arg(build_dir().join("trackway")).arg("print").arg(&trace);
    let output = command.output().expect("prlimit runs");
    assert_result(&output, STATUS_WHOLE, &[]);
    assert_eq!(tick_numbers(&output.stdout), (0..2 * STREAMS).collect::<Vec<_>>());
}

#[test]
fn a_trace_being_written_prints_what_is_there() {
    let fixture = Fixture::new("written");
    let trace = fixture.path("trace");
    // An empty stream, a packet that has its size but not all of its bytes, and metadata that still
    // lacks its last event.
    let begun = make_packet(&[4, 5, 6]);
    let begun = &begun[..PACKET_HEADER_BYTES + EVENT_BYTES + 3];
    let streams: [(&str, &[u8]); 3] = [("a", b""), ("b", begun), ("c", &make_packet(&[1, 9]))];
    write_trace(&trace, TICK_METADATA, &streams);
    let output = run_print(&fixture, &[&trace]);
    assert_result(&output, STATUS_DAMAGED, &["trace/b", "packet 0", "missing"]);
    assert_eq!(tick_numbers(&output.stdout), [1, 4, 9]);
    let (known, unknown) = TICK_METADATA.split_at(TICK_METADATA.len() - 20);
    fs::write(trace.join("metadata"), known).unwrap();
    assert_result(
        &run_print(&fixture, &[&trace]),
        STATUS_DAMAGED,
        &["trace/metadata", "line 18, column"],
    );
    assert!(!unknown.is_empty());
}
