//! Traces with a bounded size on disk: `--tracefile-size` and `--tracefile-count`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use trackway_testkit::Random;
use trackway_tests::Summary;
use trackway_tests::steps::{is_running, send_signal, wait_for};

use crate::session_test::{
    BurstProgram, CountingProgram, RUN_ONCE_STREAM, SessionTest, StreamNumbers, command_result,
};

/// Returns the sizes of each stream's files in a trace, by file number.
pub(crate) fn trace_file_sizes(
    test: &SessionTest,
    trace: &str,
) -> BTreeMap<String, BTreeMap<u64, u64>> {
    let mut streams: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    let uid = std::fs::read_dir(test.fixture.path(trace).join("ust/uid")).expect("a folder");
    let uid = uid.flatten().next().expect("a user");
    for entry in std::fs::read_dir(uid.path().join("64-bit")).expect("a folder").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        // The file may have been deleted meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let Some((stem, number)) = name.rsplit_once('.') else { continue };
        let Ok(number) = number.parse() else { continue };
        streams.entry(stem.into()).or_default().insert(number, metadata.len());
    }
    streams
}

/// Asserts that each stream has at most `count` files of at most `size` bytes; returns the trace's
/// bytes.
fn assert_files_bounded(test: &SessionTest, trace: &str, size: u64, count: usize) -> u64 {
    let streams = trace_file_sizes(test, trace);
    for (name, files) in &streams {
        assert!(files.len() <= count, "{name}: {files:?}");
        assert!(files.values().all(|bytes| *bytes <= size), "{name}: {files:?}");
    }
    streams.values().flat_map(BTreeMap::values).sum()
}

/// Asserts that the numbers are in order, and the newest present; returns their count. The numbers
/// of a thread on several CPUs may have gaps: each stream only has the events of its remaining
/// files.
fn assert_newest_present(numbers: &StreamNumbers, stream: u32, emitted: u64) -> u64 {
    let there = numbers.get(&stream).map_or(&[][..], Vec::as_slice);
    assert!(there.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
    assert_eq!(there.last(), Some(&(emitted - 1)), "the newest");
    there.len() as u64
}

fn number_before(text: &str, name: &str) -> u64 {
    let (before, _) = text.split_once(name).unwrap_or_else(|| panic!("{name} in {text}"));
    let word = before.trim_end().rsplit(' ').next().expect("a number");
    word.replace(',', "").parse().expect("a number")
}

/// RUN a session with three files of 16 KiB for each stream, while a program emits megabytes.
/// EXPECT the trace never to be larger; both readers to read the newest events; status, save and
/// the summary to show the bounds; and the numbers to agree.
#[test]
fn a_trace_is_bounded_at_any_time() {
    let test = SessionTest::new("session-ring");
    let ring = "--buffer-size 64K --sub-buffers 8 --tracefile-size 16K --tracefile-count 3";
    test.ok(&format!("session create web --event life:* {ring} -o trace"));
    let mut bursts = BurstProgram::of(&test, 400);
    for _ in 0..100 {
        bursts.next();
        assert_files_bounded(&test, "trace", 16 << 10, 3);
    }
    let (text, _) = test.ok("session status web");
    assert!(
        text.contains("  files     the newest 3 of 16.0 KiB at most, of each stream"),
        "{text}"
    );
    assert!(text.contains(" of the events, with their trace files"), "{text}");
    let status = test.status("web");
    assert!(status["counts"]["deleted"].as_u64() > Some(0), "{status}");
    let (saved, _) = test.ok("session save web");
    assert!(saved.contains("tracefile-size = \"16K\"\ntracefile-count = 3\n"), "{saved}");
    test.ok("session stop web");
    let (_, talk) = test.ok("session destroy web");
    let summary = Summary::parse(&talk);
    let deleted = number_before(&talk, " of the events made room for newer ones");
    let bytes = assert_files_bounded(&test, "trace", 16 << 10, 3);
    let emitted = bursts.steps.counts().emitted();
    assert_eq!(summary.recorded + summary.lost, emitted, "{talk}");
    let kept = test.numbers("trace")[&0].len() as u64;
    assert_eq!((kept + deleted, kept > 200), (summary.recorded, true), "{talk}");
    assert!(bytes > 16 << 10 && test.is_complete("trace"));
    if summary.lost == 0 {
        assert_newest_present(&test.numbers("trace"), 0, emitted);
    }
    test.ok("trim trace --event life:* -o cut");
    assert!(test.numbers("cut") == test.numbers("trace"), "streams are put together");
}

/// RUN record with the same options, also with claims and with lockless buffers. EXPECT the same
/// bounds.
#[test]
fn a_command_is_recorded_within_bounds() {
    let test = SessionTest::new("session-ring-record");
    for way in ["rseq", "claim", "lockless"] {
        let steps = test.steps_of_one();
        let ring = "--buffer-size 1M --sub-buffers 128 --tracefile-size 16K --tracefile-count 2";
        let line = format!("record -o {way} --reserve {way} {ring} -- {}", test.emitter.display());
        let mut command = test.command(&line);
        let output = command.args(["steps", "20000"]).env("STEPS", steps.path()).output();
        let (is_success, _, talk) = command_result(&output.expect("trackway runs"));
        assert!(is_success, "{talk}");
        assert_files_bounded(&test, way, 16 << 10, 2);
        let summary = Summary::parse(&talk);
        let deleted = number_before(&talk, " of the events made room for newer ones");
        let kept = test.numbers(way)[&RUN_ONCE_STREAM].len() as u64;
        assert_eq!((kept + deleted, summary.recorded + summary.lost), (summary.recorded, 20_000));
    }
}

/// RUN impossible bounds: a number without a size, less than a sub-buffer, a flight recorder.
/// EXPECT refusals with the reason, and no leftovers.
#[test]
fn bounds_that_cannot_be_are_refused() {
    let test = SessionTest::new("session-ring-refused");
    for (options, why) in [
        ("--tracefile-count 3", "bounds nothing without their size"),
        ("--tracefile-size 4K", "at least 64.0 KiB"),
        ("--tracefile-size 1M --overwrite", "a flight recorder is written as a whole"),
    ] {
        let talk = test.refused(&format!("session create web {options} -o trace"));
        assert!(talk.contains(why), "{talk}");
        let talk = test.refused(&format!("record {options} -o trace -- true"));
        assert!(talk.contains(why), "{talk}");
    }
    assert!(test.list().is_empty() && !test.fixture.path("trace").exists());
}

/// RUN a session whose channels have different bounds, one of them bounded while it records, and
/// later unbounded. EXPECT each stream to have the bounds of its time, and no lost event.
#[test]
fn each_channel_has_its_own_bounds_and_other_ones_when_told() {
    let test = SessionTest::new("session-ring-channels");
    test.ok("session create web --event life:* -o trace");
    let sizes = "--buffer-size 1M --sub-buffers 128";
    test.ok(&format!(
        "channel add web ring --event life:* {sizes} --tracefile-size 16K \
         --tracefile-count 2"
    ));
    test.emit("steps", 3000);
    test.ok("channel set web channel0 --tracefile-size 64K --tracefile-count 2");
    test.ok("channel set web ring --tracefile-count 0");
    test.emit("steps", 3000);
    test.ok("channel set web channel0 --tracefile-size 0 --tracefile-count 0");
    test.emit("steps", 3000);
    let saved = test.ok("session save web").0;
    assert_eq!(saved.matches("tracefile").count(), 1, "{saved}");
    let (_, talk) = test.ok("session destroy web");
    assert!(talk.contains(" events recorded, 0 lost, "), "{talk}");
    let streams = trace_file_sizes(&test, "trace");
    let most = |stem: &str| {
        let of_it = streams.iter().filter(|(name, _)| name.starts_with(stem));
        of_it.map(|(_, files)| files.len()).max().unwrap_or(0)
    };
    let (bounded, set, split) = (most("ring-1_"), most("channel0-2_"), most("ring-3_"));
    assert!(bounded == 2 && (1..=2).contains(&set) && split > 2, "{streams:?}");
    assert_eq!(most("channel0_") + most("channel0-4_"), 0, "{streams:?}");
    // The recording of channel0 is complete except for the files that were removed; both readers
    // agree.
    let numbers = test.numbers("trace");
    assert!(numbers[&RUN_ONCE_STREAM].len() > 9000);
}

/// RUN clear. EXPECT the trace to start again, within the same bounds.
#[test]
fn a_bounded_trace_can_be_cleared() {
    let test = SessionTest::new("session-ring-clear");
    let ring = "--buffer-size 1M --sub-buffers 128 --tracefile-size 16K --tracefile-count 2";
    test.ok(&format!("session create web --event life:* {ring} -o trace"));
    test.emit("steps", 5000);
    test.ok("session clear web");
    test.emit("steps", 20);
    let (_, talk) = test.ok("session destroy web");
    assert!(talk.contains("trackway: 20 events recorded, 0 lost, "), "{talk}");
    assert!(!talk.contains("made room"), "{talk}");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM], (0..20).collect::<Vec<u64>>());
}

/// RUN kill -9 of the recorder of a bounded trace at random moments, 10 times; print the trace
/// before it is recovered, and afterwards. EXPECT the newest numbers of each thread, and the bounds
/// kept.
#[test]
fn a_bounded_trace_is_recovered_within_its_bounds() {
    let test = SessionTest::new("session-ring-killed");
    let mut random = Random::new(11);
    for round in 0..10 {
        let (trace, count) = (format!("trace-{round}"), 1 + round % 3);
        let ring = format!(
            "--buffer-size 256K --sub-buffers 64 --tracefile-size 4K \
             --tracefile-count {count}"
        );
        test.ok(&format!("session create web --event life:* {ring} -o {trace}"));
        let mut bursts = BurstProgram::of(&test, 500);
        (0..random.next_below(6)).for_each(|_| bursts.next());
        let recorder = test.recorder_of("web");
        std::thread::sleep(Duration::from_micros(random.next_below(20_000)));
        send_signal(recorder.cast_signed(), libc::SIGKILL);
        wait_for("its end", || !is_running(recorder));
        let (is_success, _, talk) = command_result(&test.run(&format!("print {trace}")));
        assert!(is_success && !talk.contains("discarded") && !talk.contains("lost"), "{talk}");
        let (_, talk) = test.ok("recover");
        assert!(test.is_complete(&trace) && !talk.contains("could not be read"), "{talk}");
        assert_files_bounded(&test, &trace, 4 << 10, count);
        let emitted = bursts.steps.counts().emitted();
        assert!(assert_newest_present(&test.numbers(&trace), 0, emitted) > 0, "{talk}");
    }
}

/// RUN print of a bounded trace repeatedly while it is written. EXPECT it to succeed each time,
/// without a message about files that are removed meanwhile.
#[test]
fn a_bounded_trace_can_be_printed_while_it_is_written() {
    let test = SessionTest::new("session-ring-print");
    let ring = "--buffer-size 256K --sub-buffers 64 --tracefile-size 4K --tracefile-count 40";
    test.ok(&format!("session create web --event life:* {ring} -o trace"));
    let counting = CountingProgram::threads(&test, 4);
    counting.steps.wait_more(2000);
    for _ in 0..40 {
        let (is_success, _, talk) = command_result(&test.run("print trace"));
        assert!(is_success && talk.is_empty(), "{talk}");
    }
    counting.finish();
    test.ok("session destroy web");
    assert_files_bounded(&test, "trace", 4 << 10, 40);
}

/// RUN print --follow of a bounded trace, by one follower that keeps up and one that is suspended
/// for a while. EXPECT all events, in order, without a message; and the overtaken follower to
/// report the number of missing events, and to show the later events.
#[test]
fn an_overtaken_follower_of_a_bounded_trace_gets_a_message() {
    use std::process::Stdio;
    let test = SessionTest::new("session-ring-live");
    let ring = "--buffer-size 64K --sub-buffers 16 --tracefile-size 4K --tracefile-count 8";
    test.ok(&format!("session create web --event life:* {ring} -o trace"));
    let follow = |name: &str| {
        let mut command = test.command("print --follow web");
        let file = std::fs::File::create(test.fixture.path(name)).expect("a file");
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::piped());
        trackway_tests::steps::restore_signal_actions(&mut command);
        command.spawn().expect("trackway runs")
    };
    let shown = |name: &str| {
        let text = std::fs::read_to_string(test.fixture.path(name)).expect("a file");
        crate::session_test::parse_numbers(text.rsplit_once('\n').map_or("", |(lines, _)| lines))
    };
    let (quick, slow) = (follow("quick"), follow("slow"));
    let count = |name: &str| shown(name).values().map(Vec::len).sum::<usize>();
    let mut bursts = BurstProgram::of(&test, 200);
    let mut step = |names: &[&str]| {
        bursts.next();
        let emitted = bursts.steps.counts().emitted();
        for name in names {
            let newest = || shown(name).get(&0).and_then(|numbers| numbers.last().copied());
            wait_for("what was emitted", || newest() == Some(emitted - 1));
        }
        emitted
    };
    let mut emitted = 0;
    (0..10).for_each(|_| emitted = step(&["quick", "slow"]));
    assert_eq!(count("slow"), 2200);
    send_signal(slow.id().cast_signed(), libc::SIGSTOP);
    (0..60).for_each(|_| emitted = step(&["quick"]));
    send_signal(slow.id().cast_signed(), libc::SIGCONT);
    (0..3).for_each(|_| emitted = step(&["quick", "slow"]));
    test.ok("session destroy web");
    let end = |mut child: std::process::Child| {
        let mut talk = String::new();
        let mut messages = child.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut messages, &mut talk).expect("text");
        (child.wait().expect("its end").code(), talk)
    };
    assert_eq!(end(quick), (Some(0), String::new()));
    assert_eq!(shown("quick")[&0], (0..emitted).collect::<Vec<_>>());
    let (status, talk) = end(slow);
    assert!(status == Some(0) && talk.contains(" packets "), "{talk}");
    let numbers = &shown("slow")[&0];
    assert!(numbers.len() > 2200 && (numbers.len() as u64) < emitted, "{}", numbers.len());
    assert_newest_present(&shown("slow"), 0, emitted);
    assert!(Path::new(&test.fixture.path("trace")).exists());
}
