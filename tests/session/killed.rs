//! Leftovers of killed recorders and programs.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use trackway_testkit::Random;
use trackway_tests::steps::{RunningProgram, is_running, send_signal, wait_for};

use crate::session_test::{
    CountingProgram, RUN_ONCE_STREAM, SessionTest, command_result, parse_numbers,
};

fn kill_recorder(test: &SessionTest) {
    let recorder = test.recorder_of("web");
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
}

/// RUN kill -9 of the recorder. EXPECT list and status to report it, with the path of its trace and
/// a hint; recover to complete the trace and to remove the session from the list.
#[test]
fn a_dead_session_is_said_to_be_dead_and_what_to_do() {
    let test = SessionTest::new("session-dead");
    test.ok("session create web -o trace");
    test.ok("session create db -o db");
    test.emit("steps", 100);
    kill_recorder(&test);
    let (is_success, text, talk) = command_result(&test.run("session list"));
    let dead = text.lines().find(|line| line.starts_with("web   dead")).expect("a line");
    let folder = test.fixture.path("trace");
    assert!(is_success && dead.ends_with(&*folder.to_string_lossy()), "{text}");
    assert!(talk.contains("hint: trackway recover completes its trace"), "{talk}");
    let [db, web] = &test.list()[..] else { panic!("two sessions") };
    let keys = |one: &Value| one.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(db), keys(web), "one shape, of the living and the dead");
    assert_eq!((&db["state"], &db["error"]), (&"recording".into(), &Value::Null));
    assert_eq!((&web["name"], &web["state"]), (&"web".into(), &"dead".into()));
    assert_eq!(web["folder"].as_str(), folder.to_str());
    assert!(web["error"].as_str().is_some_and(|error| error.contains("is gone")), "{web}");
    for line in ["session status web", "session stop web", "event off web life:*"] {
        let talk = test.refused(line);
        assert!(talk.contains("the recorder of session 'web' is gone"), "{line}: {talk}");
        assert!(talk.contains("hint: trackway recover completes its trace"), "{line}: {talk}");
    }
    let (_, talk) = test.ok("recover");
    assert!(talk.contains("recovered ") && talk.contains("100 more events"), "{talk}");
    assert!(test.is_complete("trace"));
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 100);
    assert_eq!(test.list().len(), 1, "the dead one has gone with its last events");
    assert_eq!(test.status("db")["state"], "recording");
    test.ok("session destroy db");
    test.ok("session create web -o again");
    test.emit("steps", 5);
    test.ok("session destroy");
    assert_eq!(test.numbers("again")[&RUN_ONCE_STREAM].len(), 5);
    assert!(test.list().is_empty());
}

/// RUN create and record by the name of a living session whose lock file was removed. EXPECT the
/// name to be in use, the session to lose nothing, and the file to exist again.
#[test]
fn a_living_session_keeps_its_name_without_its_lock_file() {
    let test = SessionTest::new("session-no-lock");
    test.ok("session create web -o trace");
    let lock = test.fixture.run_dir().join("web.lock");
    fs::remove_file(&lock).expect("it is there");
    let talk = test.refused("session create web -o other");
    assert!(talk.contains("there is a session 'web' already"), "{talk}");
    assert!(!test.fixture.path("other").exists());
    test.ok("recover");
    test.emit("steps", 30);
    assert_eq!(test.status("web")["state"], "recording");
    fs::remove_file(test.fixture.run_dir().join("web.sock")).expect("it is there");
    wait_for("its socket", || test.list().len() == 1);
    wait_for("its lock file", || fs::metadata(&lock).is_ok_and(|status| status.len() > 0));
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 30);
    assert_eq!(fs::read_dir(test.fixture.run_dir()).expect("a folder").count(), 0);
}

/// RUN kill -9 of the recorder while it clears a trace of many files; recover. EXPECT one message
/// about the trace, which can be read, and no report of damage.
#[test]
fn a_trace_that_was_being_cleared_is_said_to_be() {
    let test = SessionTest::new("session-killed-clearing");
    test.ok("session create web -o trace");
    test.emit("steps", 5000);
    test.ok("session stop web");
    test.ok("session start web");
    test.emit("steps", 10);
    let user = fs::read_dir(test.fixture.path("trace/ust/uid")).expect("users").next();
    let channel = user.expect("a user").expect("a folder").path().join("64-bit");
    let clearing = channel.join("trackway/clearing");
    // The number of files makes clearing slow.
    for number in 0..50_000 {
        fs::write(channel.join(format!("other_{number}")), "").expect("a file");
    }
    let recorder = test.recorder_of("web");
    let clear = RunningProgram::start(&mut test.command("session clear web"));
    wait_for("its begin", || clearing.exists());
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
    let (is_success, _, talk) = command_result(&clear.finish());
    assert!(!is_success && talk.contains("is gone") && clearing.exists(), "{talk}");
    let entries = fs::read_dir(&channel).expect("a folder").flatten();
    let others = entries.filter(|it| it.file_name().to_string_lossy().starts_with("other_"));
    others.for_each(|other| fs::remove_file(other.path()).expect("ours"));
    let (_, talk) = test.ok("recover");
    assert!(talk.contains("was being cleared when its recorder was killed"), "{talk}");
    assert!(!talk.contains("could not be read"), "{talk}");
    assert!(test.is_complete("trace") && !clearing.exists());
    let there = test.numbers("trace").get(&RUN_ONCE_STREAM).map_or(0, Vec::len);
    assert!([0, 5000, 5010].contains(&there), "{there}: of one CPU or two");
}

/// RUN destroy of a dead session; destroy --all with a dead session. EXPECT exit status 0, a
/// complete trace with the events from memory, and an empty list.
#[test]
fn a_dead_session_is_destroyed_as_a_living_one_is() {
    let test = SessionTest::new("session-destroy-dead");
    for (number, line) in ["session destroy web", "session destroy --all"].iter().enumerate() {
        let trace = format!("trace-{number}");
        test.ok(&format!("session create web -o {trace}"));
        test.emit("steps", 70);
        kill_recorder(&test);
        let (_, talk) = test.ok(line);
        assert!(talk.contains(&format!("{trace}: 70 more events, 0 lost in all")), "{talk}");
        assert!(test.is_complete(&trace) && test.list().is_empty());
        assert_eq!(test.numbers(&trace)[&RUN_ONCE_STREAM].len(), 70);
    }
}

/// RUN recover without access to the run folder; list, destroy. EXPECT the session to be listed as
/// recovered until it is destroyed without a message.
#[test]
fn a_session_that_others_recovered_is_listed_as_such_until_it_is_destroyed() {
    let test = SessionTest::new("session-recovered");
    test.ok("session create web -o trace");
    test.emit("steps", 30);
    kill_recorder(&test);
    let mut recover = test.command("recover");
    recover.env("TRACKWAY_RUN_DIR", test.fixture.path("elsewhere"));
    assert!(recover.status().expect("trackway runs").success() && test.is_complete("trace"));
    let (text, talk) = test.ok("session list");
    assert!(text.contains("web   recovered"), "{text}");
    assert!(talk.contains("hint: trackway session destroy web takes it from the list"), "{talk}");
    assert_eq!(test.list()[0]["state"], "recovered");
    assert_eq!(test.ok("session destroy web"), (String::new(), String::new()));
    assert!(test.list().is_empty());
}

/// RUN destroy of a dead session whose trace cannot be written. EXPECT the reason, the name to
/// remain in use, and nothing lost once the trace can be written.
#[test]
fn a_dead_session_that_cannot_be_recovered_keeps_its_name() {
    let test = SessionTest::new("session-destroy-busy");
    test.ok("session create web -o trace");
    test.emit("steps", 40);
    kill_recorder(&test);
    let folder = std::fs::File::open(test.fixture.path("trace")).expect("a folder");
    folder.lock().expect("a lock");
    let talk = test.refused("session destroy web");
    assert!(talk.contains("is being recorded into, or recovered"), "{talk}");
    assert_eq!(test.list()[0]["state"], "dead");
    drop(folder);
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 40);
}

/// RUN destroy of a dead session while another process recovers it, which is then killed. EXPECT
/// the reason, the name to remain in use, and nothing lost.
#[test]
fn a_dead_session_that_is_being_recovered_keeps_its_name() {
    let test = SessionTest::new("session-destroy-beside");
    test.ok("session create web -o trace");
    test.emit("steps", 40);
    kill_recorder(&test);
    let user = fs::metadata(test.fixture.path("trace")).expect("a folder").uid();
    let metadata = test.fixture.path(&format!("trace/ust/uid/{user}/64-bit/metadata"));
    let (kept, pipe) = (metadata.with_extension("kept"), metadata.with_extension("pipe"));
    fs::rename(&metadata, &kept).expect("ours");
    let made = test.fixture.command("mkfifo").arg(&metadata).status();
    assert!(made.expect("mkfifo runs").success());
    // The recovering command waits at the pipe, which is never written.
    let recover = RunningProgram::start(&mut test.command("recover"));
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&metadata);
    let mut writer = None;
    wait_for("a reader", || {
        writer = open().ok();
        writer.is_some()
    });
    fs::rename(&metadata, &pipe).and_then(|()| fs::rename(&kept, &metadata)).expect("ours");
    let talk = test.refused("session destroy web");
    assert!(talk.contains("being recovered by another process"), "{talk}");
    assert_eq!(test.list()[0]["state"], "dead");
    recover.signal(libc::SIGKILL);
    recover.finish();
    fs::remove_file(&pipe).expect("ours");
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 40);
    assert!(test.list().is_empty());
}

/// RUN create with the name of a dead session, refused because its trace cannot be written. EXPECT
/// the dead session to be listed as before, and to be recovered once it can be.
#[test]
fn a_create_that_is_refused_leaves_the_dead_session_as_it_was() {
    let test = SessionTest::new("session-dead-refused");
    test.ok("session create web -o trace");
    test.emit("steps", 40);
    kill_recorder(&test);
    let folder = std::fs::File::open(test.fixture.path("trace")).expect("a folder");
    folder.lock().expect("a lock");
    test.refused("session create web -o trace");
    wait_for("its end", || test.list().iter().all(|one| one["state"] == "dead"));
    let [web] = &test.list()[..] else { panic!("one session") };
    assert_eq!(web["folder"].as_str(), test.fixture.path("trace").to_str());
    drop(folder);
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 40);
    assert!(test.list().is_empty());
}

/// RUN kill -9 of recorder and program together at random moments, 12 times, also during changes.
/// EXPECT the next session of the name to recover first, and every number whose event had returned
/// to be present once.
#[test]
fn events_before_a_kill_are_recovered() {
    let test = SessionTest::new("session-killed");
    let mut random = Random::new(7);
    for round in 0..12 {
        let trace = format!("trace-{round}");
        let create = "session create web --event life:* --context vpid,vtid --buffer-size 4M";
        test.ok(&format!("{create} -o {trace}"));
        let counting = CountingProgram::threads(&test, 3);
        counting.steps.wait_more(20);
        let pids = [test.recorder_of("web"), counting.running.pid()];
        let mut change = (round % 2 == 0)
            .then(|| test.command("channel set web channel0 --context none"))
            .map(|mut command| command.stderr(Stdio::null()).spawn().expect("trackway runs"));
        std::thread::sleep(Duration::from_micros(random.next_below(30_000)));
        for pid in pids {
            send_signal(pid.cast_signed(), libc::SIGKILL);
        }
        wait_for("their ends", || !pids.into_iter().any(is_running));
        if let Some(change) = &mut change {
            change.wait().expect("it ends when its recorder does");
        }
        let (_, talk) = test.ok("recover");
        assert!(test.is_complete(&trace), "{talk}");
        let counts = counting.steps.counts();
        let numbers = test.numbers(&trace);
        for (stream, &returned) in &counts.returned {
            let there = numbers.get(stream).map_or(&[][..], Vec::as_slice);
            let expected = 0..there.len() as u64;
            assert!(there.iter().copied().eq(expected), "stream {stream} of {trace}: {talk}");
            let range = returned..=counts.started[stream];
            assert!(range.contains(&(there.len() as u64)), "stream {stream} of {trace}: {talk}");
        }
    }
}

/// RUN kill -9 of a flight recorder's recorder; create the next session. EXPECT the events from
/// memory in the session's folder.
#[test]
fn a_flight_recorder_is_recovered_by_the_next_session() {
    let test = SessionTest::new("session-killed-flight");
    test.ok("session create web --flight-recorder -o flight");
    test.emit("steps", 200);
    kill_recorder(&test);
    let (_, talk) = test.ok("session create web -o trace");
    assert!(talk.contains("recovered ") && talk.contains("flight"), "{talk}");
    assert_eq!(parse_numbers(&test.ok("print flight").0)[&RUN_ONCE_STREAM].len(), 200);
    test.ok("session destroy web");
}

/// RUN a session that starts again in the same folder after each kill, as under a service manager.
/// EXPECT no earlier trace to be removed.
#[test]
fn repeated_restarts_keep_earlier_traces() {
    let test = SessionTest::new("session-restarts");
    for events in [5, 6, 7] {
        test.ok("session create web --event life:* -o trace");
        test.emit("steps", events);
        let recorder = test.recorder_of("web");
        send_signal(recorder.cast_signed(), libc::SIGKILL);
        wait_for("its end", || !std::path::Path::new(&format!("/proc/{recorder}")).exists());
    }
    test.run("recover");
    for (trace, events) in [("trace.old", 5), ("trace.old-2", 6), ("trace", 7)] {
        assert_eq!(test.numbers(trace)[&RUN_ONCE_STREAM].len(), events, "{trace}");
    }
}
