//! What is left when recorders and programs are killed.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use trackway_testkit::Random;
use trackway_tests::steps::{Running, is_running, send, wait_for};

use crate::place::{Counting, ONE, Place, numbers_of, told};

fn kill_recorder(place: &Place) {
    let recorder = place.recorder_of("web");
    send(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
}

/// RUN kill -9 of the recorder. EXPECT that list and status say so, where its trace is and what to
/// do; recover completes the trace and takes the session from the list.
#[test]
fn a_dead_session_is_said_to_be_dead_and_what_to_do() {
    let place = Place::new("session-dead");
    place.ok("session create web -o trace");
    place.ok("session create db -o db");
    place.emit("steps", 100);
    kill_recorder(&place);
    let (is_success, text, talk) = told(&place.run("session list"));
    let dead = text.lines().find(|line| line.starts_with("web   dead")).expect("a line");
    let folder = place.world.path("trace");
    assert!(is_success && dead.ends_with(&*folder.to_string_lossy()), "{text}");
    assert!(talk.contains("hint: trackway recover completes its trace"), "{talk}");
    let [db, web] = &place.list()[..] else { panic!("two sessions") };
    let keys = |one: &Value| one.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(db), keys(web), "one shape, of the living and the dead");
    assert_eq!((&db["state"], &db["error"]), (&"recording".into(), &Value::Null));
    assert_eq!((&web["name"], &web["state"]), (&"web".into(), &"dead".into()));
    assert_eq!(web["folder"].as_str(), folder.to_str());
    assert!(web["error"].as_str().is_some_and(|error| error.contains("is gone")), "{web}");
    for line in ["session status web", "session stop web", "event off web life:*"] {
        let talk = place.refused(line);
        assert!(talk.contains("the recorder of session 'web' is gone"), "{line}: {talk}");
        assert!(talk.contains("hint: trackway recover completes its trace"), "{line}: {talk}");
    }
    let (_, talk) = place.ok("recover");
    assert!(talk.contains("recovered ") && talk.contains("100 more events"), "{talk}");
    assert!(place.is_complete("trace"));
    assert_eq!(place.numbers("trace")[&ONE].len(), 100);
    assert_eq!(place.list().len(), 1, "the dead one has gone with its last events");
    assert_eq!(place.status("db")["state"], "recording");
    place.ok("session destroy db");
    place.ok("session create web -o again");
    place.emit("steps", 5);
    place.ok("session destroy");
    assert_eq!(place.numbers("again")[&ONE].len(), 5);
    assert!(place.list().is_empty());
}

/// RUN create and record by the name of a living session whose lock file was removed. EXPECT that
/// the name is taken, that nothing of the session's goes, and that the file is there again.
#[test]
fn a_living_session_keeps_its_name_without_its_lock_file() {
    let place = Place::new("session-no-lock");
    place.ok("session create web -o trace");
    let lock = place.world.run_dir().join("web.lock");
    fs::remove_file(&lock).expect("it is there");
    let talk = place.refused("session create web -o other");
    assert!(talk.contains("there is a session 'web' already"), "{talk}");
    assert!(!place.world.path("other").exists());
    place.ok("recover");
    place.emit("steps", 30);
    assert_eq!(place.status("web")["state"], "recording");
    fs::remove_file(place.world.run_dir().join("web.sock")).expect("it is there");
    wait_for("its socket", || place.list().len() == 1);
    wait_for("its lock file", || fs::metadata(&lock).is_ok_and(|status| status.len() > 0));
    place.ok("session destroy web");
    assert_eq!(place.numbers("trace")[&ONE].len(), 30);
    assert_eq!(fs::read_dir(place.world.run_dir()).expect("a folder").count(), 0);
}

/// RUN kill -9 of the recorder while it clears a trace of many files; recover. EXPECT that it is
/// said what became of the trace, which can be read, and nothing of damage; once.
#[test]
fn a_trace_that_was_being_cleared_is_said_to_be() {
    let place = Place::new("session-killed-clearing");
    place.ok("session create web -o trace");
    place.emit("steps", 5000);
    place.ok("session stop web");
    place.ok("session start web");
    place.emit("steps", 10);
    let user = fs::read_dir(place.world.path("trace/ust/uid")).expect("users").next();
    let channel = user.expect("a user").expect("a folder").path().join("64-bit");
    let clearing = channel.join("trackway/clearing");
    // So that it takes a while.
    for number in 0..50_000 {
        fs::write(channel.join(format!("other_{number}")), "").expect("a file");
    }
    let recorder = place.recorder_of("web");
    let clear = Running::start(&mut place.command("session clear web"));
    wait_for("its begin", || clearing.exists());
    send(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
    let (is_success, _, talk) = told(&clear.finish());
    assert!(!is_success && talk.contains("is gone") && clearing.exists(), "{talk}");
    let entries = fs::read_dir(&channel).expect("a folder").flatten();
    let others = entries.filter(|it| it.file_name().to_string_lossy().starts_with("other_"));
    others.for_each(|other| fs::remove_file(other.path()).expect("ours"));
    let (_, talk) = place.ok("recover");
    assert!(talk.contains("was being cleared when its recorder was killed"), "{talk}");
    assert!(!talk.contains("could not be read"), "{talk}");
    assert!(place.is_complete("trace") && !clearing.exists());
    let there = place.numbers("trace").get(&ONE).map_or(0, Vec::len);
    assert!([0, 5000, 5010].contains(&there), "{there}: of one CPU or two");
}

/// RUN destroy of a dead session; destroy --all with one. EXPECT exit status 0, a complete trace
/// with what was in memory, an empty list.
#[test]
fn a_dead_session_is_destroyed_as_a_living_one_is() {
    let place = Place::new("session-destroy-dead");
    for (number, line) in ["session destroy web", "session destroy --all"].iter().enumerate() {
        let trace = format!("trace-{number}");
        place.ok(&format!("session create web -o {trace}"));
        place.emit("steps", 70);
        kill_recorder(&place);
        let (_, talk) = place.ok(line);
        assert!(talk.contains(&format!("{trace}: 70 more events, 0 lost in all")), "{talk}");
        assert!(place.is_complete(&trace) && place.list().is_empty());
        assert_eq!(place.numbers(&trace)[&ONE].len(), 70);
    }
}

/// RUN recover by who does not know where sessions are asked; list, destroy. EXPECT that the
/// session is listed as recovered until it is destroyed, which says nothing.
#[test]
fn a_session_that_others_recovered_is_listed_as_such_until_it_is_destroyed() {
    let place = Place::new("session-recovered");
    place.ok("session create web -o trace");
    place.emit("steps", 30);
    kill_recorder(&place);
    let mut recover = place.command("recover");
    recover.env("TRACKWAY_RUN_DIR", place.world.path("elsewhere"));
    assert!(recover.status().expect("trackway runs").success() && place.is_complete("trace"));
    let (text, talk) = place.ok("session list");
    assert!(text.contains("web   recovered"), "{text}");
    assert!(talk.contains("hint: trackway session destroy web takes it from the list"), "{talk}");
    assert_eq!(place.list()[0]["state"], "recovered");
    assert_eq!(place.ok("session destroy web"), (String::new(), String::new()));
    assert!(place.list().is_empty());
}

/// RUN destroy of a dead session whose trace cannot be written. EXPECT why, a name that stays, and
/// nothing lost once it can be.
#[test]
fn a_dead_session_that_cannot_be_recovered_keeps_its_name() {
    let place = Place::new("session-destroy-busy");
    place.ok("session create web -o trace");
    place.emit("steps", 40);
    kill_recorder(&place);
    let folder = std::fs::File::open(place.world.path("trace")).expect("a folder");
    folder.lock().expect("a lock");
    let talk = place.refused("session destroy web");
    assert!(talk.contains("is being recorded into, or recovered"), "{talk}");
    assert_eq!(place.list()[0]["state"], "dead");
    drop(folder);
    place.ok("session destroy web");
    assert_eq!(place.numbers("trace")[&ONE].len(), 40);
}

/// RUN destroy of a dead session while another process recovers it, which is then killed. EXPECT
/// why, a name that stays, and nothing lost.
#[test]
fn a_dead_session_that_is_being_recovered_keeps_its_name() {
    let place = Place::new("session-destroy-beside");
    place.ok("session create web -o trace");
    place.emit("steps", 40);
    kill_recorder(&place);
    let user = fs::metadata(place.world.path("trace")).expect("a folder").uid();
    let metadata = place.world.path(&format!("trace/ust/uid/{user}/64-bit/metadata"));
    let (kept, pipe) = (metadata.with_extension("kept"), metadata.with_extension("pipe"));
    fs::rename(&metadata, &kept).expect("ours");
    let made = place.world.command("mkfifo").arg(&metadata).status();
    assert!(made.expect("mkfifo runs").success());
    // Who recovers reads what comes of us: nothing.
    let recover = Running::start(&mut place.command("recover"));
    let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&metadata);
    let mut writer = None;
    wait_for("a reader", || {
        writer = open().ok();
        writer.is_some()
    });
    fs::rename(&metadata, &pipe).and_then(|()| fs::rename(&kept, &metadata)).expect("ours");
    let talk = place.refused("session destroy web");
    assert!(talk.contains("being recovered by another process"), "{talk}");
    assert_eq!(place.list()[0]["state"], "dead");
    recover.signal(libc::SIGKILL);
    recover.finish();
    fs::remove_file(&pipe).expect("ours");
    place.ok("session destroy web");
    assert_eq!(place.numbers("trace")[&ONE].len(), 40);
    assert!(place.list().is_empty());
}

/// RUN create of the name of a dead session, refused because its trace cannot be written. EXPECT
/// that it is listed as before, and recovered once it can be.
#[test]
fn a_create_that_is_refused_leaves_the_dead_session_as_it_was() {
    let place = Place::new("session-dead-refused");
    place.ok("session create web -o trace");
    place.emit("steps", 40);
    kill_recorder(&place);
    let folder = std::fs::File::open(place.world.path("trace")).expect("a folder");
    folder.lock().expect("a lock");
    place.refused("session create web -o trace");
    wait_for("its end", || place.list().iter().all(|one| one["state"] == "dead"));
    let [web] = &place.list()[..] else { panic!("one session") };
    assert_eq!(web["folder"].as_str(), place.world.path("trace").to_str());
    drop(folder);
    place.ok("session destroy web");
    assert_eq!(place.numbers("trace")[&ONE].len(), 40);
    assert!(place.list().is_empty());
}

/// RUN kill -9 of recorder and program together at any moment, 12 times, changes included. EXPECT
/// that the next session of the name recovers first, and every number whose event came back is
/// there, once.
#[test]
fn what_was_recorded_before_a_kill_is_recovered() {
    let place = Place::new("session-killed");
    let mut random = Random::new(7);
    for round in 0..12 {
        let trace = format!("trace-{round}");
        let create = "session create web --on life:* --context vpid,vtid --buffer-size 4M";
        place.ok(&format!("{create} -o {trace}"));
        let counting = Counting::threads(&place, 3);
        counting.steps.wait_more(20);
        let pids = [place.recorder_of("web"), counting.running.pid()];
        let mut change = (round % 2 == 0)
            .then(|| place.command("channel set web channel0 --context none"))
            .map(|mut command| command.stderr(Stdio::null()).spawn().expect("trackway runs"));
        std::thread::sleep(Duration::from_micros(random.next_below(30_000)));
        for pid in pids {
            send(pid.cast_signed(), libc::SIGKILL);
        }
        wait_for("their ends", || !pids.into_iter().any(is_running));
        if let Some(change) = &mut change {
            change.wait().expect("it ends when its recorder does");
        }
        let (_, talk) = place.ok("recover");
        assert!(place.is_complete(&trace), "{talk}");
        let counts = counting.steps.counts();
        let numbers = place.numbers(&trace);
        for (who, &returned) in &counts.returned {
            let there = numbers.get(who).map_or(&[][..], Vec::as_slice);
            let expected = 0..there.len() as u64;
            assert!(there.iter().copied().eq(expected), "stream {who} of {trace}: {talk}");
            let range = returned..=counts.started[who];
            assert!(range.contains(&(there.len() as u64)), "stream {who} of {trace}: {talk}");
        }
    }
}

/// RUN kill -9 of a flight recorder's recorder; the next one is created. EXPECT what was in memory
/// in its folder.
#[test]
fn a_flight_recorder_is_recovered_by_the_next_session() {
    let place = Place::new("session-killed-flight");
    place.ok("session create web --flight-recorder -o flight");
    place.emit("steps", 200);
    kill_recorder(&place);
    let (_, talk) = place.ok("session create web -o trace");
    assert!(talk.contains("recovered ") && talk.contains("flight"), "{talk}");
    assert_eq!(numbers_of(&place.ok("print flight").0)[&ONE].len(), 200);
    place.ok("session destroy web");
}

/// RUN a session that begins anew in the same folder after each kill, as a service manager has it.
/// EXPECT that no trace of an earlier one goes.
#[test]
fn who_begins_anew_again_and_again_keeps_what_there_was() {
    let place = Place::new("session-restarts");
    for events in [5, 6, 7] {
        place.ok("session create web --on life:* -o trace");
        place.emit("steps", events);
        let recorder = place.recorder_of("web");
        send(recorder.cast_signed(), libc::SIGKILL);
        wait_for("its end", || !std::path::Path::new(&format!("/proc/{recorder}")).exists());
    }
    place.run("recover");
    for (trace, events) in [("trace.old", 5), ("trace.old-2", 6), ("trace", 7)] {
        assert_eq!(place.numbers(trace)[&ONE].len(), events, "{trace}");
    }
}
