//! Snapshots of flight recorders.

use std::path::PathBuf;
use std::time::Duration;

use trackway_tests::steps::wait_for;

use crate::session_test::{
    BurstProgram, CountingProgram, RUN_ONCE_STREAM, SessionTest, StreamNumbers,
    assert_range_present, parse_numbers,
};

/// Asserts that all streams have numbers without gaps and repetitions; returns their count.
fn assert_gapless(numbers: &StreamNumbers) -> usize {
    for (stream, numbers) in numbers {
        let expected = numbers[0]..numbers[0] + numbers.len() as u64;
        assert!(numbers.iter().copied().eq(expected), "stream {stream} has gaps");
    }
    numbers.values().map(Vec::len).sum()
}

/// RUN snapshot, again, and to a folder, of a program that is suspended between them. EXPECT all
/// earlier events, each time.
#[test]
fn a_snapshot_has_what_the_flight_recorder_has() {
    let test = SessionTest::new("session-snapshot");
    let (_, talk) = test.ok("session create flight --flight-recorder -o flight");
    assert!(talk.contains("keeps the newest events; snapshots go to "), "{talk}");
    let mut bursts = BurstProgram::of(&test, 100);
    let (text, talk) = test.ok("session snapshot flight");
    assert_eq!(PathBuf::from(text.trim_end()), test.fixture.path("flight/snapshot-1"));
    assert!(talk.starts_with("trackway: 100 events, "), "{talk}");
    bursts.next();
    test.ok("session snapshot -o elsewhere");
    bursts.next();
    // The number only counts snapshots in the session's folder.
    let (text, _) = test.ok("session snapshot");
    assert_eq!(PathBuf::from(text.trim_end()), test.fixture.path("flight/snapshot-2"));
    assert_eq!(test.status("flight")["snapshots"], 3);
    for (trace, count) in
        [("flight/snapshot-1", 100), ("elsewhere", 200), ("flight/snapshot-2", 300)]
    {
        let numbers = test.numbers(trace);
        assert_range_present(&numbers, 0, 0..count);
        assert_eq!(numbers[&0].len() as u64, count);
    }
    let talk = test.refused("session snapshot -o elsewhere/ust");
    assert!(!talk.is_empty());
    test.ok("session destroy");
    // Snapshots remain, and the session has written no other files.
    let left = std::fs::read_dir(test.fixture.path("flight")).expect("its folder").flatten();
    let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    left.sort();
    assert_eq!(left, ["snapshot-1", "snapshot-2"]);
}

/// RUN snapshot --last. EXPECT the newer events, complete, and no much older ones.
#[test]
fn a_snapshot_of_the_last_seconds_leaves_out_what_is_older() {
    let test = SessionTest::new("session-last");
    test.ok("session create flight --flight-recorder --buffer-size 256K -o flight");
    let mut bursts = BurstProgram::of(&test, 3000);
    // The option depends on elapsed time.
    std::thread::sleep(Duration::from_millis(1500));
    // The burst fills enough sub-buffers that those of the older events are not among the newest.
    bursts.next();
    test.ok("session snapshot --last 1s -o last");
    test.ok("session snapshot -o whole");
    test.ok("session destroy");
    let (last, whole) = (test.numbers("last"), test.numbers("whole"));
    assert_range_present(&last, 0, 3000..6000);
    let older = last[&0].iter().filter(|number| **number < 3000).count();
    assert!(older < 2000, "{older} older ones");
    assert_range_present(&whole, 0, 3000..6000);
    assert!(whole[&0].len() > last[&0].len());
}

/// RUN snapshots while four threads count, in buffers that wrap. EXPECT no gaps in each, equal
/// bytes in common packets, and each event once in all snapshots together.
#[test]
fn snapshots_while_it_records_have_no_gaps_and_merge() {
    let test = SessionTest::new("session-merge");
    test.ok("session create flight --event life:* --flight-recorder --buffer-size 16M -o flight");
    let counting = CountingProgram::threads(&test, 4);
    for _ in 0..5 {
        counting.steps.wait_more(500);
        test.ok("session snapshot");
    }
    counting.finish();
    test.ok("session destroy");
    let mut merged = "merge -o merged".to_owned();
    for number in 1..=5 {
        assert!(assert_gapless(&test.numbers(&format!("flight/snapshot-{number}"))) > 0);
        merged += &format!(" flight/snapshot-{number}");
    }
    test.ok(&merged);
    let all = test.numbers("merged");
    assert_gapless(&all);
    let last = test.numbers("flight/snapshot-5");
    assert_eq!(all, last, "the last has all, since nothing was overwritten");
    // The folder with all snapshots is read as one trace.
    assert_eq!(parse_numbers(&test.ok("print flight").0), all);
}

/// RUN a program that calls trackway_snapshot(). EXPECT a snapshot with the events that it emitted
/// before.
#[test]
fn programs_ask_for_snapshots() {
    let test = SessionTest::new("session-program-snapshot");
    test.ok("session create flight --flight-recorder -o flight");
    let output = test.emit("snapshot", 50);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n");
    wait_for("the snapshot", || test.status("flight")["snapshots"] == 1);
    let numbers = test.numbers("flight/snapshot-1");
    assert_range_present(&numbers, RUN_ONCE_STREAM, 0..50);
    let notices = test.status("flight")["notices"].to_string();
    assert!(notices.contains("50 events in "), "{notices}");
}

/// RUN a second such program as soon as the first snapshot exists. EXPECT a second snapshot, later,
/// with the events of both.
#[test]
fn snapshots_requested_too_soon_are_written_later() {
    let test = SessionTest::new("session-program-snapshots");
    test.ok("session create flight --flight-recorder -o flight");
    for snapshots in 1..=2 {
        test.emit("snapshot", 50);
        wait_for("a snapshot", || test.status("flight")["snapshots"] == snapshots);
    }
    let numbers = test.numbers("flight/snapshot-2");
    assert_eq!(numbers.values().map(Vec::len).sum::<usize>(), 100, "{numbers:?}");
}

/// RUN snapshots of a session before and after channels are replaced and added; print the folder,
/// and merge the snapshots. EXPECT every event of any snapshot, once; by babeltrace2 in each
/// snapshot and in the merged trace. (babeltrace2 does not read the folder with all snapshots, of
/// which several contain the unfinished sub-buffer.)
#[test]
fn pieces_of_a_session_whose_channels_changed_are_read_together() {
    let test = SessionTest::new("session-pieces");
    test.ok("session create web --event life:* -o web");
    test.emit("steps", 5);
    test.ok("channel set web channel0 --overwrite");
    test.emit("steps", 6);
    test.ok("session snapshot web");
    test.ok("channel add web late --event many:* --context vpid --overwrite");
    test.emit("many", 1);
    test.ok("session snapshot web");
    test.ok("channel set web channel0 --context procname");
    test.emit("steps", 7);
    test.ok("session snapshot web");
    let many: usize = (1..=32).sum::<usize>() + 1;
    let whole = || parse_numbers(&test.ok("print web").0)[&RUN_ONCE_STREAM].len();
    assert_eq!(whole(), 5 + 6 + 7);
    for (number, events) in [(1, 6), (2, 6), (3, 7)] {
        assert_eq!(test.numbers(&format!("web/snapshot-{number}"))[&RUN_ONCE_STREAM].len(), events);
    }
    assert_eq!(test.names("web").values().sum::<usize>(), 5 + 6 + 7 + many);
    test.ok("merge -o both web/snapshot-1 web/snapshot-2 web/snapshot-3");
    assert_eq!(test.numbers("both")[&RUN_ONCE_STREAM].len(), 6 + 7);
    test.ok("session destroy web");
    assert_eq!(whole(), 5 + 6 + 7);
}

/// RUN flight recorders whose folders are moved, and others that record into the old places. EXPECT
/// snapshots in the moved folder. EXPECT the end of one recorder to remove no files of the other,
/// and none that the user put into the old place.
#[test]
fn a_flight_recorder_that_was_moved_leaves_its_old_place_alone() {
    let test = SessionTest::new("session-moved-flight");
    let path = |name: &str| test.fixture.path(name);
    test.ok("session create flight --event life:* --flight-recorder -o trace");
    test.emit("steps", 3);
    std::fs::rename(path("trace"), path("moved")).expect("moved");
    test.ok("session create web --event life:* -o trace");
    test.ok("session snapshot flight");
    assert_eq!(test.numbers("moved/snapshot-1")[&RUN_ONCE_STREAM].len(), 3);
    assert!(!path("trace/snapshot-1").exists());
    let talk = test.refused("session snapshot flight -o trace/ust/mine");
    assert!(talk.contains("lies in the trace"), "{talk}");
    test.ok("session destroy flight");
    test.emit("steps", 5);
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 5);

    test.ok("session create flight --event life:* --flight-recorder -o other");
    std::fs::rename(path("other"), path("away")).expect("moved");
    std::fs::create_dir_all(path("other/ust/src")).expect("a folder");
    std::fs::write(path("other/ust/src/file.c"), "precious").expect("a file");
    test.ok("session destroy flight");
    assert!(path("other/ust/src/file.c").exists() && !path("away").exists());
}
