//! Events as they happen: `trackway print --follow SESSION`.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use trackway_tests::steps::{is_running, send_signal, wait_for};

use crate::session_test::{
    CountingProgram, RUN_ONCE_STREAM, SessionTest, StreamNumbers, assert_all_present,
    assert_range_present, command_result, parse_numbers,
};

/// Follower of a session, and the lines that it has printed.
pub(crate) struct SessionFollower {
    child: Child,
    pieces: Receiver<Vec<u8>>,
    shown: String,
}

impl SessionFollower {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        trackway_tests::steps::restore_signal_actions(command);
        let mut child = command.spawn().expect("trackway runs");
        let mut output = child.stdout.take().expect("a pipe");
        let (sender, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, pieces, shown: String::new() }
    }

    /// Waits until the shown events satisfy `is_so`.
    pub(crate) fn wait_until(&mut self, is_so: impl Fn(&StreamNumbers) -> bool) {
        while !is_so(&parse_numbers(self.whole_lines())) {
            let patience = std::time::Duration::from_secs(30);
            let piece = self.pieces.recv_timeout(patience).expect("more events");
            self.shown += &String::from_utf8_lossy(&piece);
        }
    }

    fn whole_lines(&self) -> &str {
        self.shown.rsplit_once('\n').map_or("", |(lines, _)| lines)
    }

    /// Waits for the follower's end; returns its exit status, its output, and its messages.
    pub(crate) fn finish(mut self) -> (Option<i32>, String, String) {
        let mut talk = String::new();
        let mut messages = self.child.stderr.take().expect("a pipe");
        messages.read_to_string(&mut talk).expect("text");
        let status = self.child.wait().expect("its end");
        for piece in self.pieces.iter() {
            self.shown += &String::from_utf8_lossy(&piece);
        }
        (status.code(), std::mem::take(&mut self.shown), talk)
    }
}

impl Drop for SessionFollower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn event_times(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.split_once(']').map(|(time, _)| time)).collect()
}

/// RUN print and trim of a session by its name, while it records; also with a folder of that name.
/// EXPECT the part that is written so far; the folder has priority.
#[test]
fn a_session_s_trace_is_found_by_its_name() {
    let test = SessionTest::new("session-named");
    test.ok("session create web --event life:* -o elsewhere/trace");
    test.emit("steps", 10);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let printed = || parse_numbers(&test.ok("print web").0);
    while printed().is_empty() {
        assert!(std::time::Instant::now() < deadline, "it is written twice a second");
    }
    assert_range_present(&printed(), RUN_ONCE_STREAM, 0..10);
    test.ok("trim -o copy web");
    assert_range_present(&test.numbers("copy"), RUN_ONCE_STREAM, 0..10);
    std::fs::rename(test.fixture.path("copy"), test.fixture.path("web")).expect("a folder");
    test.emit("steps", 10);
    test.ok("session destroy web");
    assert_eq!(printed()[&RUN_ONCE_STREAM].len(), 10, "the folder");
    assert_eq!(test.numbers("elsewhere")[&RUN_ONCE_STREAM].len(), 20);
    assert!(test.refused("print nobody").contains("nobody"));
}

/// RUN kill -9 of the recorder while it is followed; recover; and, after the window is removed,
/// recover DIR. EXPECT no mark in the trace that it is still being written.
#[test]
fn the_mark_of_a_followed_trace_goes_with_recovery() {
    let test = SessionTest::new("session-live-killed");
    for (trace, line) in [("first", "recover"), ("second", "recover second")] {
        test.ok(&format!("session create web --event life:* -o {trace}"));
        test.emit("steps", 10);
        let follower = SessionFollower::start(&mut test.command("print --follow web"));
        let user =
            std::fs::read_dir(test.fixture.path(trace).join("ust/uid")).expect("users").next();
        let facts = user.expect("a user").expect("a folder").path().join("64-bit/trackway");
        let live = facts.join("live");
        wait_for("who follows", || live.exists());
        let recorder = test.recorder_of("web");
        send_signal(recorder.cast_signed(), libc::SIGKILL);
        wait_for("the recorder's end", || !is_running(recorder));
        assert!(live.exists());
        drop(follower);
        if trace == "second" {
            for window in std::fs::read_dir(test.fixture.window_dir()).expect("a folder") {
                std::fs::remove_file(window.expect("a window").path()).expect("ours");
            }
        }
        test.ok(line);
        assert!(test.is_complete(trace) && !live.exists(), "{trace}");
        command_result(&test.run("session destroy web"));
    }
}

/// RUN print --follow of a session while four threads count on all CPUs; destroy. EXPECT all events
/// in the order of their times, including the last ones; exit status 0.
#[test]
fn a_session_is_followed_to_its_end() {
    let test = SessionTest::new("session-live");
    test.ok("session create web --event life:* --context vtid -o trace");
    let counting = CountingProgram::threads(&test, 4);
    let mut follower = SessionFollower::start(&mut test.command("print --follow web"));
    follower.wait_until(|numbers| numbers.values().map(Vec::len).sum::<usize>() > 1000);
    // An additional channel, other contexts, and a pause do not change the stream of events.
    test.ok("channel set web channel0 --context vpid,vtid");
    test.ok("session stop web");
    test.ok("session start web");
    let seen: usize = parse_numbers(follower.whole_lines()).values().map(Vec::len).sum();
    follower.wait_until(|numbers| numbers.values().map(Vec::len).sum::<usize>() > seen + 1000);
    counting.finish();
    test.ok("session destroy web");
    let (status, shown, talk) = follower.finish();
    assert_eq!((status, talk.as_str()), (Some(0), ""));
    assert!(event_times(&shown).is_sorted(), "out of order");
    let trace = test.fixture.print(&test.fixture.path("trace"));
    assert!(parse_numbers(&shown) == parse_numbers(&trace), "what was shown is what was recorded");
}

/// RUN Ctrl-C while following, and a reader that closes its pipe. EXPECT the follower to end, and
/// the session to continue.
#[test]
fn a_follower_can_stop_at_any_time() {
    let test = SessionTest::new("session-live-end");
    test.ok("session create web --event life:* -o trace");
    let counting = CountingProgram::threads(&test, 2);
    let mut follower = SessionFollower::start(&mut test.command("print --follow web"));
    follower.wait_until(|numbers| !numbers.is_empty());
    send_signal(follower.child.id().cast_signed(), libc::SIGINT);
    let (status, shown, talk) = follower.finish();
    assert!(talk.is_empty() && matches!(status, None | Some(0 | 130)), "{status:?} {talk}");
    assert!(!shown.is_empty());
    let trackway = trackway_tests::build_dir().join("trackway");
    let line = format!("{} print --follow web | head -n 5", trackway.display());
    let head = test.fixture.command("sh").args(["-c", &line]).output().expect("sh runs");
    assert_eq!(String::from_utf8_lossy(&head.stdout).lines().count(), 5);
    let steps = counting.finish();
    test.ok("session destroy web");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN print --follow of a session that is stopped, then started. EXPECT the events after the
/// start.
#[test]
fn a_session_that_is_stopped_can_be_followed() {
    let test = SessionTest::new("session-live-stopped");
    test.ok("session create web -o trace --no-start");
    let mut follower = SessionFollower::start(&mut test.command("print --follow web"));
    test.ok("session start");
    test.emit("steps", 10);
    follower.wait_until(|numbers| {
        numbers.get(&RUN_ONCE_STREAM).is_some_and(|numbers| numbers.len() == 10)
    });
    test.ok("session destroy");
    let (status, shown, talk) = follower.finish();
    assert_eq!((status, talk.as_str()), (Some(0), ""));
    assert_range_present(&parse_numbers(&shown), RUN_ONCE_STREAM, 0..10);
}
