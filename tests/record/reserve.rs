//! `--reserve`: the same programs with each of the three writer paths.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use trackway_tests::steps::{RunningProgram, send_signal, wait_for};
use trackway_tests::{Fixture, Recording, Summary};

/// Threads that number their events; with a third argument, they run for ever.
const TICKS_SOURCE: &str = r#"
#include <trackway/trackway.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
TRACKWAY_EVENT(app, tick, TRACKWAY_INFO, (u32, thread), (u32, number), (str, text));
static unsigned count;
static int for_ever;
static char text[200];
static void *run(void *thread) {
    for (unsigned i = 0; i < count || for_ever; i++)
        trackway(app, tick, (unsigned)(size_t)thread, i, text + i % 199);
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t threads[16];
    size_t i, n = (size_t)atoi(argv[2]);
    count = (unsigned)atoi(argv[1]);
    for_ever = argc > 3;
    memset(text, 'x', sizeof(text) - 1);
    for (i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
"#;

const WRITER_PATHS: [&str; 3] = ["rseq", "claim", "lockless"];

fn compile_ticks(fixture: &Fixture) -> String {
    let program = fixture.compile("ticks", TICKS_SOURCE, true, &["-pthread"]);
    program.to_str().expect("a path").to_owned()
}

/// Returns the numbers of each thread's events, in the order of the trace. Texts must be unchanged.
fn numbers_by_thread(text: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut numbers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in text.lines() {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name} = ")).expect("a field");
            rest.split([',', ' ']).next().expect("a value").to_owned()
        };
        let [thread, number] = ["thread", "number"].map(|name| field(name).parse().expect(name));
        assert_eq!(field("text").len() as u32, 2 + 199 - number % 199, "a torn record: {line}");
        numbers.entry(thread).or_default().push(number);
    }
    numbers
}

fn check_trace(fixture: &Fixture, recording: &Recording, way: &str) -> BTreeMap<u32, Vec<u32>> {
    let text = fixture.print(&recording.trace);
    assert_eq!(text.lines().count() as u64, recording.summary.recorded, "{way}");
    if let Some(theirs) = fixture.babeltrace(&recording.trace) {
        let same = text.as_bytes() == theirs.stdout;
        assert!(same, "{way}: not as babeltrace2 prints {}", recording.trace.display());
    }
    let numbers = numbers_by_thread(&text);
    for numbers in numbers.values() {
        assert!(numbers.is_sorted_by(|a, b| a < b), "{way}: each thread's in order, none twice");
    }
    numbers
}

#[test]
fn every_way_records_all_events_where_there_is_room() {
    for way in WRITER_PATHS {
        let fixture = Fixture::new("reserve");
        let program = compile_ticks(&fixture);
        let options = ["--event=app:*", "--reserve", way, "--buffer-size=32M", "--sub-buffers=4"];
        let recording = fixture.record(&options, &[&program, "20000", "2"]);
        assert_eq!(recording.summary.recorded, 40_000, "{way}: {}", recording.messages());
        assert_eq!((recording.summary.lost, recording.summary.overwritten), (0, 0), "{way}");
        let numbers = check_trace(&fixture, &recording, way);
        assert!(numbers.values().all(|numbers| numbers.len() == 20_000), "{way}");
    }
}

#[test]
fn every_way_counts_what_finds_no_room_and_what_is_overwritten() {
    for way in WRITER_PATHS {
        for more in [&["--overwrite"][..], &[]] {
            let fixture = Fixture::new("reserve-full");
            let program = compile_ticks(&fixture);
            let small = ["--event=app:*", "--reserve", way, "--buffer-size=32K", "--sub-buffers=4"];
            let options = [&small, more].concat();
            let recording = fixture.record(&options, &[&program, "20000", "4"]);
            let Summary { recorded, lost, overwritten, .. } = recording.summary;
            let messages = recording.messages();
            assert_eq!(recorded + lost + overwritten, 80_000, "{way}: {messages}");
            assert!(recorded > 0 && lost + overwritten > 0, "{way}: {messages}");
            assert_eq!(overwritten > 0, !more.is_empty(), "{way}: {messages}");
            check_trace(&fixture, &recording, way);
        }
    }
}

#[test]
fn every_way_counts_what_is_too_large_for_a_sub_buffer() {
    const LARGE: &str = r#"
#include <trackway/trackway.h>
#include <string.h>
TRACKWAY_EVENT(app, large, TRACKWAY_INFO, (str, text));
int main(void) {
    static char text[3999];
    int i;
    memset(text, 'x', sizeof(text) - 1);
    for (i = 0; i < 100; i++)
        trackway(app, large, i % 2 ? "small" : text);
    return 0;
}
"#;
    for way in WRITER_PATHS {
        let fixture = Fixture::new("reserve-large");
        let program = fixture.compile("large", LARGE, true, &[]);
        let options = ["--event=app:*", "--reserve", way, "--buffer-size=32K", "--sub-buffers=8"];
        let recording = fixture.record(&options, &[program.to_str().expect("a path")]);
        let Summary { recorded, lost, .. } = recording.summary;
        assert_eq!((recorded, lost), (50, 50), "{way}: {}", recording.messages());
    }
}

#[test]
fn another_word_is_refused_with_the_ways_there_are() {
    let fixture = Fixture::new("reserve-word");
    let output = fixture.trackway(&["record", "--reserve=lock", "--", "true"]).output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(WRITER_PATHS.iter().all(|way| messages.contains(way)), "{messages}");
}

/// The lockless writer path has no remedy for a writer that is killed between reserve and commit:
/// the events around the hole are lost. The loss is detected, reported and counted; the recorded
/// events are complete. The other two writer paths have no such state.
#[test]
fn a_killed_writer_leaves_a_hole_where_there_can_be_one() {
    /// About every second kill hits a writer between reserve and commit, so this number of kills in
    /// a row always hits one.
    const KILLS_MAX: usize = 60;
    for way in WRITER_PATHS {
        let kills = if way == "lockless" { KILLS_MAX } else { 5 };
        let has_hole = |messages: &str| messages.contains(" a hole, where a writer ended");
        let found = (0..kills).any(|_| {
            let fixture = Fixture::new("reserve-killed");
            let program = compile_ticks(&fixture);
            let script = format!("{program} 0 2 for-ever & sleep 0.05; kill -9 $!; wait");
            // The buffer is small, so that there is little to scan.
            let small = ["--overwrite", "--buffer-size=128K", "--sub-buffers=4"];
            let options = [&["--event=app:*", "--reserve", way][..], &small].concat();
            let recording = fixture.record(&options, &["sh", "-c", &script]);
            check_trace(&fixture, &recording, way);
            let messages = recording.messages();
            // A writer that is killed in the first record of a sub-buffer loses no other record: on
            // a busy machine that may be the first record of all.
            let has_lost = recording.summary.lost > 0;
            assert!(has_lost || way == "lockless" || !has_hole(&messages), "{messages}");
            has_hole(&messages) && has_lost
        });
        assert_eq!(found, way == "lockless", "{way}");
    }
}

/// A program that outlives its recorder, and is killed when this value is dropped.
struct OrphanedProgram(i32);

impl Drop for OrphanedProgram {
    fn drop(&mut self) {
        send_signal(self.0, libc::SIGKILL);
    }
}

/// Returns the bytes of all files in a folder, or 0 if it does not exist.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => folder_bytes(&entry.path()),
            _ => entry.metadata().map_or(0, |found| found.len()),
        })
        .sum()
}

#[test]
fn every_way_is_recovered_after_the_recorder_was_killed() {
    for way in WRITER_PATHS {
        let fixture = Fixture::new("reserve-recover");
        let program = compile_ticks(&fixture);
        let trace = fixture.path("trace");
        let mut command = fixture.trackway(&["record", "--event=app:*", "--reserve", way, "-o"]);
        command.arg(&trace).args(["--", &program, "0", "2", "for-ever"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let recorder = RunningProgram::start(&mut command);
        let recorder_pid = i32::try_from(recorder.pid()).expect("a pid");
        let mut child = None;
        wait_for("the program runs", || {
            let children = format!("/proc/{recorder_pid}/task/{recorder_pid}/children");
            let found = std::fs::read_to_string(children).expect("/proc");
            child = found.trim().parse().ok().map(OrphanedProgram);
            child.is_some()
        });
        wait_for("events are written", || folder_bytes(&trace) > 1 << 20);
        send_signal(recorder_pid, libc::SIGKILL);
        std::thread::sleep(Duration::from_millis(20));
        drop((child, recorder));
        let output = fixture.trackway(&["recover"]).arg(&trace).output().expect("recover");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && messages.contains("more events"), "{way}: {messages}");
        let numbers = numbers_by_thread(&fixture.print(&trace));
        assert!(!numbers.is_empty(), "{way}");
        for numbers in numbers.values() {
            assert!(numbers.is_sorted_by(|a, b| a < b), "{way}: none twice");
        }
    }
}
