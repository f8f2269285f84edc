//! `trackway record` answers the same requests as background sessions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use trackway_tests::steps::wait_for;

use crate::live::SessionFollower;
use crate::session_test::{BurstProgram, SessionTest, command_result};

/// A command that `trackway record` records.
struct RecordedCommand {
    bursts: BurstProgram,
    /// Name of the command's session.
    name: String,
}

impl RecordedCommand {
    /// Starts the program, which counts a hundred at a time, and waits for its first hundred.
    fn begin(test: &SessionTest, options: &str) -> Self {
        Self::start(test, &mut test.command(&format!("record {options} -o trace --")))
    }

    /// Starts the program by `command`, to which its words are added.
    fn start(test: &SessionTest, command: &mut Command) -> Self {
        let steps = test.steps_from(0);
        command.arg(&test.emitter).args(["bursts", "100"]).env("STEPS", steps.path());
        let bursts = BurstProgram::begin(steps, command);
        let name = format!("record-{}", bursts.running.pid());
        Self { bursts, name }
    }

    /// Runs `trackway VERB NAME REST`, which must succeed; returns its output and its messages.
    fn ok(&self, test: &SessionTest, verb: &str, rest: &str) -> (String, String) {
        test.ok(&format!("{verb} {} {rest}", self.name))
    }

    fn next(&mut self) {
        self.bursts.next();
    }

    /// Ends the program; returns the messages of `record`, which must have succeeded.
    fn finish(self) -> String {
        let (is_success, text, talk) = command_result(&self.bursts.finish());
        assert!(is_success && text.is_empty(), "{talk}");
        talk
    }
}

/// Asserts that the trace has exactly these numbers of the program, in order; each range excludes
/// its end.
fn assert_exact_numbers(test: &SessionTest, trace: &str, ranges: &[(u64, u64)]) {
    let expected: Vec<u64> = ranges.iter().flat_map(|&(first, end)| first..end).collect();
    let numbers = test.numbers(trace).remove(&0).unwrap_or_default();
    assert!(numbers == expected, "{trace} has {numbers:?}");
}

/// RUN list, status and save of the session of `record`, by name and without. EXPECT a foreground
/// session with its channel; the saved file to begin a session; and no session listed after its
/// end.
#[test]
fn a_recording_is_a_session() {
    let test = SessionTest::new("record-status");
    let options = "--event life:* --event !life:no --context vpid,vtid --buffer-size 256K";
    let recorded = RecordedCommand::begin(&test, options);
    let name = &recorded.name;
    let list = test.ok("session list").0;
    let row: Vec<&str> = list.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(row[..4], [name, "foreground", "100", "0"], "{list}");
    assert!(test.ok("session status").0.starts_with(&format!("session {name}: foreground, ")));
    let status = test.status(name);
    assert_eq!(status["is-foreground"], true);
    assert_eq!(status["is-recording"], true);
    assert_eq!(status["pid"], recorded.bursts.running.pid());
    assert_eq!(status["counts"]["recorded"], 100);
    assert_eq!(status["folder"], test.fixture.path("trace").to_str().expect("a text"));
    let channel = &status["channels"][0]["spec"];
    assert_eq!(channel["on"], serde_json::json!(["life:*", "!life:no"]));
    assert_eq!(channel["contexts"], serde_json::json!(["vpid", "vtid"]));
    recorded.ok(&test, "session save", "-o saved.toml");
    let gone = name.clone();
    let talk = recorded.finish();
    assert!(talk.starts_with("trackway: 100 events recorded, 0 lost, 1 process, "), "{talk}");
    assert_exact_numbers(&test, "trace", &[(0, 100)]);
    let talk = test.refused(&format!("session status {gone}"));
    assert!(talk.contains(&format!("there is no session '{gone}'")), "{talk}");
    let left = fs::read_dir(test.fixture.run_dir()).expect("the folder").count();
    assert_eq!(left, 0, "nothing is left");
    test.ok("session load saved.toml again");
    let again = &test.status("again")["channels"][0]["spec"];
    assert_eq!(again["on"], serde_json::json!(["life:*", "!life:no"]));
    assert_eq!(again["buffer-size"], "256K");
}

/// RUN event off, event on, stop, start while `record` records. EXPECT exactly the events of the
/// disabled and stopped times to be missing.
#[test]
fn events_are_switched_off_and_on_again() {
    let test = SessionTest::new("record-events");
    let mut recorded = RecordedCommand::begin(&test, "");
    recorded.ok(&test, "event off", "life:step");
    recorded.next();
    recorded.ok(&test, "event on", "life:step");
    recorded.next();
    recorded.ok(&test, "session stop", "");
    // Events emitted before are in the trace, as in any stopped session.
    assert_exact_numbers(&test, "trace", &[(0, 100), (200, 300)]);
    let list = test.ok("session list").0;
    assert!(list.contains("foreground, stopped"), "{list}");
    recorded.next();
    recorded.ok(&test, "session start", "");
    recorded.next();
    let talk = recorded.finish();
    assert!(talk.starts_with("trackway: 300 events recorded, 0 lost, "), "{talk}");
    assert_exact_numbers(&test, "trace", &[(0, 100), (200, 300), (400, 500)]);
    assert!(test.is_complete("trace"));
}

/// RUN channel add, set and remove, and clear, while `record` records. EXPECT the events of each
/// channel, once; no events from before the clear.
#[test]
fn channels_come_change_and_go() {
    let test = SessionTest::new("record-channels");
    let mut recorded = RecordedCommand::begin(&test, "--event other:*");
    recorded.ok(&test, "channel add", "more --event life:* --context procname");
    recorded.next();
    recorded.ok(&test, "session clear", "");
    recorded.next();
    recorded.ok(&test, "channel set", "more --context vpid");
    recorded.next();
    recorded.ok(&test, "channel remove", "more");
    recorded.next();
    recorded.ok(&test, "event on", "life:* --channel channel0");
    recorded.next();
    let talk = recorded.finish();
    assert!(talk.contains("trackway: 300 events recorded, 0 lost, "), "{talk}");
    assert_exact_numbers(&test, "trace", &[(200, 400), (500, 600)]);
    let text = test.fixture.print(&test.fixture.path("trace"));
    for (context, count) in [("procname = ", 100), ("vpid = ", 100), ("vtid = ", 100)] {
        assert_eq!(text.matches(context).count(), count, "{context}");
    }
}

/// RUN snapshot of `record --overwrite`, twice. EXPECT the events in memory, each time; and all
/// events in the trace at the end. Without a flight recorder, the command reports that.
#[test]
fn a_flight_recorder_in_the_foreground_has_snapshots() {
    let test = SessionTest::new("record-snapshot");
    if trackway_tests::skip_if_lockless("there are no snapshots") {
        return;
    }
    let mut recorded = RecordedCommand::begin(&test, "--overwrite");
    recorded.ok(&test, "session snapshot", "-o first");
    recorded.next();
    let (text, _) = recorded.ok(&test, "session snapshot", "");
    assert_eq!(text.trim_end(), test.fixture.path("trace.snapshot-1").to_str().expect("a text"));
    recorded.next();
    assert_eq!(test.status(&recorded.name)["snapshots"], 2);
    let talk = recorded.finish();
    assert!(talk.contains("trackway: 300 events recorded, 0 lost, 0 overwritten, "), "{talk}");
    assert_exact_numbers(&test, "first", &[(0, 100)]);
    assert_exact_numbers(&test, "trace.snapshot-1", &[(0, 200)]);
    assert_exact_numbers(&test, "trace", &[(0, 300)]);
    let recorded = RecordedCommand::begin(&test, "");
    let talk = test.refused(&format!("session snapshot {}", recorded.name));
    assert!(talk.contains("has no flight recorder"), "{talk}");
    recorded.finish();
}

/// RUN destroy while the command runs. EXPECT a complete trace at once, with its counts in the
/// answer and on the terminal; the command to continue, unrecorded, and to get signals; and its
/// status as the status of `record`.
#[test]
fn destroy_ends_the_recording_and_not_the_command() {
    let test = SessionTest::new("record-destroy");
    let script = "trap 'exit 7' TERM; \"$0\" \"$@\" & wait $!; wait $!; exit 3";
    let mut command = test.command("record -o trace --");
    let mut recorded = RecordedCommand::start(&test, command.args(["sh", "-c", script]));
    recorded.next();
    let (_, talk) = recorded.ok(&test, "session destroy", "");
    let counts = "trackway: 200 events recorded, 0 lost, 1 process, ";
    assert!(talk.starts_with(counts), "{talk}");
    assert!(test.list().is_empty() && test.is_complete("trace"));
    recorded.next();
    assert!(recorded.bursts.running.runs(), "a tracer does not end what it traces");
    recorded.bursts.running.signal(libc::SIGTERM);
    wait_for("the command's end", || !recorded.bursts.running.runs());
    let name = recorded.name.clone();
    let output: Output = recorded.bursts.finish();
    let (_, _, talk) = command_result(&output);
    assert_eq!(output.status.code(), Some(7), "{talk}");
    assert_eq!(talk.matches(counts).count(), 1, "{talk}");
    let end = format!(
        "trackway: session {name} was destroyed: the command goes on, and is not recorded\n"
    );
    assert!(talk.ends_with(&end), "{talk}");
    assert_exact_numbers(&test, "trace", &[(0, 200)]);
}

/// RUN record when sockets are impossible: no folder, or a folder that is open to others. EXPECT it
/// to record without a message about that (but with messages about traces to recover, which it
/// searches in that folder).
#[test]
fn record_needs_no_socket() {
    let test = SessionTest::new("record-no-socket");
    let shared = test.fixture.path("shared");
    fs::create_dir(&shared).expect("a folder");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).expect("ours");
    for run in [test.fixture.path("none/run"), shared.clone()] {
        let mut command = test.command("record -o trace --");
        let mut recorded = RecordedCommand::start(&test, command.env("TRACKWAY_RUN_DIR", &run));
        recorded.next();
        let talk = recorded.finish();
        let is_other = |line: &&str| line.contains(" earlier ") && run == shared;
        let said: Vec<&str> = talk.lines().filter(|line| !is_other(line)).collect();
        assert!(said.len() == 1 && said[0].contains(" 200 events recorded, 0 lost, "), "{talk}");
        assert_exact_numbers(&test, "trace", &[(0, 200)]);
        assert_eq!(fs::read_dir(&shared).expect("a folder").count(), 0);
        assert!(!test.fixture.path("none").exists());
    }
}

/// RUN print --follow of a recording. EXPECT all events while it records, and the follower to end
/// with the command.
#[test]
fn a_recording_can_be_followed() {
    let test = SessionTest::new("record-follow");
    let mut recorded = RecordedCommand::begin(&test, "");
    let line = format!("print --follow {}", recorded.name);
    let mut follower = SessionFollower::start(&mut test.command(&line));
    let has = |count| {
        move |numbers: &crate::session_test::StreamNumbers| {
            numbers.get(&0).is_some_and(|numbers| numbers.len() == count)
        }
    };
    follower.wait_until(has(100));
    recorded.next();
    follower.wait_until(has(200));
    recorded.next();
    recorded.finish();
    let (status, shown, talk) = follower.finish();
    assert_eq!((status, talk.as_str()), (Some(0), ""));
    let numbers = crate::session_test::parse_numbers(&shown).remove(&0).unwrap_or_default();
    assert!(numbers.into_iter().eq(0..300));
}

/// RUN commands that name no session, and destroy --all, at the same time as `record`. EXPECT them
/// to apply to the background session, as without `record`.
#[test]
fn sessions_in_the_background_come_first() {
    let test = SessionTest::new("record-beside");
    let mut recorded = RecordedCommand::begin(&test, "");
    test.ok("session create web --event other:* -o web");
    test.ok("session stop");
    assert_eq!(test.status("web")["is-recording"], false);
    assert_eq!(test.status(&recorded.name)["is-recording"], true);
    test.ok("session destroy --all");
    let left = test.list();
    assert!(left.len() == 1 && left[0]["name"] == recorded.name.as_str(), "{left:?}");
    test.ok("session stop");
    recorded.next();
    recorded.finish();
    assert_exact_numbers(&test, "trace", &[(0, 100)]);
}

/// RUN record, killed. EXPECT it to be listed as dead, and not to be listed after the next
/// recording, which recovers its trace.
#[test]
fn the_name_of_one_that_was_killed_goes() {
    let test = SessionTest::new("record-killed");
    let recorded = RecordedCommand::begin(&test, "");
    recorded.bursts.running.signal(libc::SIGKILL);
    wait_for("its end", || test.ok("session list").0.contains(" dead"));
    let mut command = test.command("record -o other -- true");
    let (is_success, _, talk) = command_result(&command.output().expect("trackway runs"));
    assert!(is_success && talk.contains("recovered "), "{talk}");
    assert!(test.list().is_empty());
    assert_exact_numbers(&test, "trace", &[(0, 100)]);
}
