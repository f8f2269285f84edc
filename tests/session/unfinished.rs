//! Recordings whose recorders were killed and that cannot be completed in place: reported in one
//! line, recovered next to the old place, discarded on request, and never an obstacle to a new
//! recording.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

use trackway_abi::session::SESSIONS_MAX;
use trackway_tests::steps::{is_running, send_signal, wait_for};

use crate::session_test::{RUN_ONCE_STREAM, SessionTest, command_result};

/// Number of events of each recording.
const EVENT_COUNT: usize = 30;

/// Makes a session `name` with events in memory, whose recorder is killed and whose folder is
/// removed.
fn leave_unfinished_session(test: &SessionTest, name: &str) {
    test.ok(&format!("session create {name} --event life:* -o {name}"));
    kill_recorder_with_events(test, name, EVENT_COUNT);
    fs::remove_dir_all(test.fixture.path(name)).expect("its folder");
}

/// Kills the recorder of a session, which then has `events` more events in memory.
fn kill_recorder_with_events(test: &SessionTest, name: &str, events: usize) {
    let recorder = test.recorder_of(name);
    // The recorder is suspended, so that it writes nothing before.
    send_signal(recorder.cast_signed(), libc::SIGSTOP);
    test.emit("steps", events as u64);
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
}

/// Returns the folder of a trace's streams.
fn streams_folder(test: &SessionTest, trace: &str) -> PathBuf {
    let users = test.fixture.path(trace).join("ust/uid").read_dir().expect("users");
    users.flatten().next().expect("a user").path().join("64-bit")
}

/// Returns the lines of `trackway LINE` about earlier recordings.
fn lines_about_earlier_recordings(test: &SessionTest, line: &str) -> Vec<String> {
    let (_, talk) = test.ok(line);
    let words = ["recover", "unfinished", "memory", "gave up"];
    let is_of_others = |line: &&str| words.iter().any(|word| line.contains(word));
    talk.lines().filter(is_of_others).map(str::to_owned).collect()
}

#[test]
fn unfinished_recordings_are_said_in_one_line_and_recovered_beside() {
    let test = SessionTest::new("unfinished");
    let names: Vec<String> = (0..8).map(|number| format!("left-{number}")).collect();
    names.iter().for_each(|name| leave_unfinished_session(&test, name));
    // New recordings are made in the places of two of them.
    for name in &names[..2] {
        test.ok(&format!("record -q -o {name} -- true"));
    }
    let one_line = ["trackway: 8 unfinished recordings: trackway recover"];
    assert_eq!(lines_about_earlier_recordings(&test, "record -o new -- true"), one_line);
    let doctor = String::from_utf8_lossy(&test.run("doctor").stdout).into_owned();
    assert!(doctor.contains("/left-0, ") && doctor.contains("/left-3 and 4 more"), "{doctor}");
    let (_, talk) = test.ok("recover");
    for name in &names {
        assert!(
            talk.contains(&format!("{name}.recovered: {EVENT_COUNT} events, 0 lost")),
            "{talk}"
        );
        let beside = format!("{name}.recovered");
        assert!(test.is_complete(&beside), "{beside}");
        assert_eq!(test.numbers(&beside)[&RUN_ONCE_STREAM].len(), EVENT_COUNT, "{beside}");
    }
    assert_eq!(lines_about_earlier_recordings(&test, "record -o newer -- true"), [""; 0]);
    assert!(test.list().is_empty(), "{:?}", test.list());
}

#[test]
fn an_unfinished_recording_is_given_up_for_who_asks() {
    let test = SessionTest::new("unfinished-discard");
    leave_unfinished_session(&test, "left");
    let (_, talk) = test.ok("recover --discard");
    assert!(talk.contains("gave up what was left of "), "{talk}");
    assert!(!test.fixture.path("left.recovered").exists());
    assert_eq!(lines_about_earlier_recordings(&test, "record -o new -- true"), [""; 0]);
}

/// RUN recover --discard with a directory in place of each stream file: a file that was written
/// before the recorder was killed, and one that was not. EXPECT it to discard the events in memory,
/// also if plain recover fails each time.
#[test]
fn a_recording_that_cannot_be_completed_in_place_is_given_up_for_who_asks() {
    for is_written in [false, true] {
        let test = SessionTest::new("unfinished-in-place");
        test.ok("session create left --event life:* -o left");
        let channel = streams_folder(&test, "left");
        if is_written {
            test.emit("steps", EVENT_COUNT as u64);
            wait_for("a stream", || {
                let counts = test.status("left")["counts"].clone();
                counts["recorded"].as_u64() == Some(EVENT_COUNT as u64)
            });
            let streams = || channel.join("index").read_dir().expect("a folder").count();
            wait_for("its file", || streams() > 0);
        }
        kill_recorder_with_events(&test, "left", EVENT_COUNT);
        for cpu in 0..512 {
            let stream = channel.join(format!("channel0_{cpu}"));
            let _ = fs::remove_file(&stream);
            fs::create_dir(&stream).expect("a folder");
        }
        for _ in 0..if is_written { 0 } else { 2 } {
            let talk = test.refused("recover");
            assert!(talk.contains("Is a directory") && talk.contains("--discard"), "{talk}");
        }
        let (_, talk) = test.ok("recover --discard");
        assert!(talk.contains("left cannot be completed: cannot "), "{talk}");
        assert!(talk.contains("gave up what was left of "), "{talk}");
        assert!(!test.fixture.path("left.recovered").exists() && test.is_complete("left"));
        assert!(test.ok("recover").1.contains("nothing to recover"));
        assert_eq!(lines_about_earlier_recordings(&test, "record -o new -- true"), [""; 0]);
    }
}

/// RUN recover, and session destroy, under a limit on the size of files that is too small for the
/// events in memory. EXPECT an error that names the limit, and no missing event once there is no
/// limit.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_of_recovery() {
    const MANY: usize = 10_000;
    let test = SessionTest::new("unfinished-limit");
    test.ok("session create left --event life:* --buffer-size 4M -o left");
    kill_recorder_with_events(&test, "left", MANY);
    for line in ["recover", "session destroy left"] {
        let command = test.command(line);
        let mut limited = test.fixture.command("prlimit");
        limited.arg("--fsize=65536").arg(command.get_program()).args(command.get_args());
        let output = limited.output().expect("prlimit runs");
        let (_, _, talk) = command_result(&output);
        assert_eq!(output.status.signal(), None, "{line}: {talk}");
        assert_eq!(output.status.code(), Some(2), "{line}: {talk}");
        assert!(talk.contains("File too large"), "{line}: {talk}");
    }
    test.ok("recover");
    assert_eq!(test.numbers("left")[&RUN_ONCE_STREAM].len(), MANY);
}

#[test]
fn the_oldest_unfinished_recordings_make_place_for_new_ones() {
    let test = SessionTest::new("unfinished-full");
    // The first recorder is stopped, not dead: its place stays occupied.
    test.ok("session create stopped --event life:* -o stopped");
    let stopped = test.recorder_of("stopped").cast_signed();
    send_signal(stopped, libc::SIGSTOP);
    for number in 1..SESSIONS_MAX {
        leave_unfinished_session(&test, &format!("left-{number}"));
    }
    let said = lines_about_earlier_recordings(&test, "record -o new -- true");
    let count = SESSIONS_MAX - 1;
    assert_eq!(said[0], format!("trackway: {count} unfinished recordings: trackway recover"));
    let gave_up =
        format!("gave up the unfinished recording of {}", test.fixture.path("left-1").display());
    assert!(said[1].contains(&gave_up), "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    // One place is enough for one recording at a time; several at once need other places.
    let at_once = ["a", "b", "c", "d"].map(|name| {
        let mut command = test.command(&format!("record -o {name} -- sleep 1"));
        command.spawn().expect("trackway")
    });
    for mut child in at_once {
        assert!(child.wait().expect("its end").success());
    }
    send_signal(stopped, libc::SIGCONT);
    test.emit("steps", EVENT_COUNT as u64);
    test.ok("session destroy stopped");
    let least = test.numbers("stopped")[&RUN_ONCE_STREAM].len();
    assert!(least >= EVENT_COUNT, "it is alive, and was left alone: {least}");
    test.ok("recover --discard");
}
