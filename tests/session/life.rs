//! The life of a session: created, started, stopped, cleared, saved, loaded, ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use trackway_tests::steps::{RunningProgram, is_running, send_signal, wait_for};

use crate::session_test::{
    CountingProgram, RUN_ONCE_STREAM, SessionTest, StreamNumbers, assert_all_present,
    assert_range_absent, assert_range_present, command_result,
};

/// Returns bounds for a change `act`: the number of events of the first stream that had returned
/// before the call of `act`, and that had begun after its return. The other streams change between
/// the same moments.
fn bounds_around(counting: &CountingProgram, act: impl FnOnce()) -> (u64, u64) {
    let before = counting.steps.counts().returned.get(&0).copied().unwrap_or(0);
    act();
    // One more: a thread that has loaded the enable word may still be in the middle of the event.
    let after = counting.steps.counts().started.get(&0).copied().unwrap_or(0) + 1;
    counting.steps.wait_more(50);
    (before, after)
}

/// RUN create, stop, start, destroy while an earlier program emits. EXPECT exactly the events from
/// the time of recording; a program that starts later is recorded, too.
#[test]
fn a_session_is_created_stopped_started_and_destroyed() {
    let test = SessionTest::new("session-life");
    let counting = CountingProgram::threads(&test, 1);
    counting.steps.wait_more(50);
    let create = "session create web --event life:* --context vpid,vtid -o trace";
    let (not_yet, created) = bounds_around(&counting, || {
        let (text, talk) = test.ok(create);
        let trace = test.fixture.path("trace");
        let expected = format!("trackway: session web records into {}\n", trace.display());
        assert_eq!((text, talk), (String::new(), expected));
    });
    let listed = test.ok("session list").0;
    let words: Vec<&str> = listed.lines().nth(1).expect("a line").split_whitespace().collect();
    assert_eq!(words[..2], ["web", "recording"], "{listed}");
    let (stopping, stopped) = bounds_around(&counting, || drop(test.ok("session stop web")));
    // The trace now contains the events emitted before the stop.
    assert_range_present(&test.numbers("trace"), 0, created..stopping);
    assert!(test.ok("session status").0.contains("session web: stopped"));
    let (starting, started) = bounds_around(&counting, || drop(test.ok("session start web")));
    test.emit("steps", 7);
    let steps = counting.finish();
    let (text, talk) = test.ok("session destroy web");
    assert!(text.is_empty() && talk.contains(" events recorded, 0 lost, 2 processes"), "{talk}");
    let numbers = test.numbers("trace");
    assert_range_absent(&numbers, 0, 0..not_yet);
    assert_range_present(&numbers, 0, created..stopping);
    assert_range_absent(&numbers, 0, stopped..starting);
    assert_range_present(&numbers, 0, started..steps.counts().emitted());
    assert_range_present(&numbers, RUN_ONCE_STREAM, 0..7);
    assert!(test.is_complete("trace"));
    assert!(test.refused("session status web").contains("there is no session 'web'"));
    assert!(test.list().is_empty());
}

/// RUN create --no-start, start. EXPECT no earlier events, all later ones.
#[test]
fn a_session_that_is_not_started_records_nothing() {
    let test = SessionTest::new("session-no-start");
    let (_, talk) = test.ok("session create web -o trace --no-start");
    assert!(talk.contains("session web is stopped: trackway session start web"), "{talk}");
    test.emit("steps", 10);
    assert_eq!(test.status("web")["counts"]["recorded"], 0);
    test.ok("session start");
    test.emit("steps", 20);
    test.ok("session destroy");
    assert_range_present(&test.numbers("trace"), RUN_ONCE_STREAM, 0..20);
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 20);
}

/// RUN clear. EXPECT no earlier events in the trace, all later ones, and counts that agree.
#[test]
fn cleared_events_are_discarded() {
    let test = SessionTest::new("session-clear");
    test.ok("session create web --event life:* -o trace");
    let counting = CountingProgram::threads(&test, 1);
    counting.steps.wait_more(100);
    let (clearing, cleared) = bounds_around(&counting, || drop(test.ok("session clear web")));
    let steps = counting.finish();
    test.ok("session destroy web");
    let numbers = test.numbers("trace");
    assert_range_absent(&numbers, 0, 0..clearing);
    assert_range_present(&numbers, 0, cleared..steps.counts().emitted());
}

/// RUN a clear that fails because a folder is missing. EXPECT an error, and later events in the
/// trace.
#[test]
fn events_after_a_failed_clear_are_recorded() {
    let test = SessionTest::new("session-clear-fails");
    test.ok("session create web --event life:* -o trace");
    test.emit("steps", 20);
    test.ok("session stop");
    test.ok("session start");
    let channel = test.fixture.path("trace/ust/uid").read_dir().expect("users").next();
    let channel = channel.expect("a user").expect("a folder").path().join("64-bit");
    std::fs::rename(channel.join("index"), channel.join("away")).expect("moved");
    let talk = test.refused("session clear");
    assert!(talk.contains("remove what is in"), "{talk}");
    std::fs::remove_dir_all(channel.join("away")).expect("removed");
    std::fs::create_dir(channel.join("index")).expect("a folder");
    test.emit("steps", 30);
    test.ok("session destroy");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 30);
}

/// RUN save, destroy, load (under its name, and another), create --load. EXPECT sessions with the
/// configuration of the first, which record the same events.
#[test]
fn a_session_that_was_saved_can_be_loaded() {
    let test = SessionTest::new("session-save");
    test.ok("session create web --event life:* --event !life:noise --context vpid,procname \
         --buffer-size 256K --sub-buffers 8 -o first");
    test.ok("channel add web grave --event * --level error --flight-recorder --executable emit*");
    test.ok("session save web -o web.toml");
    let text = test.ok("session save").0;
    assert_eq!(fs::read_to_string(test.fixture.path("web.toml")).expect("a file"), text);
    assert!(!text.contains("output"), "another time it goes to another folder: {text}");
    let talk = test.refused("session save web -o web.toml");
    assert!(talk.contains("web.toml is there already\nhint: --force"), "{talk}");
    fs::write(test.fixture.path("web.toml"), "longer than what is saved: ".repeat(100))
        .expect("it");
    test.ok("session save web -o web.toml --force");
    assert_eq!(fs::read_to_string(test.fixture.path("web.toml")).expect("a file"), text);
    test.ok("session destroy web");
    test.ok("session load web.toml");
    test.ok("session load web.toml other");
    test.ok("session create third --load web.toml -o third");
    assert_eq!(test.ok("session save web").0, text);
    for name in ["other", "third"] {
        let theirs = test.ok(&format!("session save {name}")).0;
        assert_eq!(theirs.replace(&format!("name = \"{name}\""), "name = \"web\""), text);
    }
    test.emit("steps", 30);
    test.ok("session destroy --all");
    assert_range_present(&test.numbers("third"), RUN_ONCE_STREAM, 0..30);
    let trace = fs::read_dir(test.fixture.path("")).expect("a folder").flatten();
    let of_web =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("trackway-web");
    let trace = trace.into_iter().find(of_web).expect("a new folder");
    assert_range_present(
        &test.numbers(trace.file_name().to_str().expect("a name")),
        RUN_ONCE_STREAM,
        0..30,
    );
}

/// RUN load of hand-written files, with mistakes and with sizes in bytes. EXPECT the fault, its
/// position, and the right form; correct files are accepted.
#[test]
fn faults_in_a_file_are_reported_with_their_position() {
    let test = SessionTest::new("session-file");
    let write = |text: &str| fs::write(test.fixture.path("web.toml"), text).expect("a file");
    for (text, place_of, why) in [
        ("on = ['a', 7]", "line 2, column 12", "expected a pattern, such as \"web:*\""),
        ("on = [{pattern = 'a', level = 'info'}]", "line 2, column 23", "unknown field `level`"),
        ("on = [{pattern = 'a', exactly = 'loud'}]", "line 2, column 33", "no level 'loud'"),
        ("buffer-size = true", "line 2, column 15", "expected a size, such as \"4M\""),
        ("blocking-timeout = 10", "line 2, column 20", "such as \"10ms\""),
    ] {
        write(&format!("[[channel]]\n{text}\n"));
        let talk = test.refused("session load web.toml");
        assert!(talk.starts_with("trackway: in web.toml: "), "{talk}");
        assert!(talk.contains(place_of) && talk.contains(why), "{talk}");
    }
    write("output = ''\n");
    let talk = test.refused("session load web.toml");
    assert!(talk.contains("leave 'output' out") && !talk.contains("TRACKWAY_RUN_DIR"), "{talk}");
    write("[[channel]]\nbuffer-size = 1048576\ntracefile-size = 8388608\n");
    test.ok("session load web.toml");
    let saved = test.ok("session save web").0;
    assert!(saved.contains("buffer-size = \"1M\""), "{saved}");
    assert!(saved.contains("tracefile-size = \"8M\""), "{saved}");
    test.ok("session destroy web");
}

/// RUN create --foreground, SIGTERM or SIGINT. EXPECT exit status 0, a complete trace.
#[test]
fn a_session_in_the_foreground_ends_by_a_signal() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let test = SessionTest::new("session-foreground");
        let recorder =
            RunningProgram::start(&mut test.command("session create web -o trace --foreground"));
        wait_for("the session", || test.list().len() == 1);
        assert_eq!(test.recorder_of("web"), recorder.pid());
        test.emit("steps", 40);
        recorder.signal(signal);
        let (is_success, text, talk) = command_result(&recorder.finish());
        assert!(is_success && text.is_empty(), "{talk}");
        assert!(talk.contains("session web records into "), "{talk}");
        assert!(talk.contains("trackway: 40 events recorded, 0 lost, 1 process, "), "{talk}");
        assert_range_present(&test.numbers("trace"), RUN_ONCE_STREAM, 0..40);
        assert!(test.is_complete("trace") && test.list().is_empty());
    }
}

/// RUN destroy --all with two sessions and trackway record at the same time, and again with no
/// session. EXPECT the messages of destroy for each, with its name; and a message that there is
/// none.
#[test]
fn all_that_is_destroyed_is_said() {
    let test = SessionTest::new("session-destroy-all");
    let record = RunningProgram::start(&mut test.command("record -o recorded -- sleep 60"));
    test.ok("session create web --event life:* -o web");
    test.ok("session create flight --flight-recorder -o flight");
    test.emit("steps", 12);
    let (text, talk) = test.ok("session destroy --all");
    assert!(text.is_empty());
    let web = "trackway: session web: 12 events recorded, 0 lost, 1 process, ";
    assert!(talk.lines().any(|line| line.starts_with(web) && line.ends_with("/web")), "{talk}");
    assert!(talk.lines().any(|line| line == "trackway: session flight has ended"), "{talk}");
    assert!(!talk.contains("record-"), "{talk}");
    let (_, talk) = test.ok("session destroy --all");
    assert_eq!(talk, "trackway: there is no session in the background\n");
    wait_for("the other one", || test.list().len() == 1);
    record.signal(libc::SIGTERM);
    record.finish();
}

/// RUN create --quiet and load --quiet, also in the foreground. EXPECT only errors as output.
#[test]
fn quiet_commands_print_only_errors() {
    let test = SessionTest::new("session-quiet");
    let silent = (String::new(), String::new());
    assert_eq!(test.ok("session create web -q --event nothing:* -o web"), silent);
    assert!(test.refused("session create web -q -o other").contains("there is a session 'web'"));
    test.ok("session save web -o web.toml");
    assert_eq!(test.ok("session load web.toml other --quiet"), silent);
    test.ok("session destroy --all");
    let create = "session create web --quiet --foreground -o fore";
    let recorder = RunningProgram::start(&mut test.command(create));
    // The session has a name before it records.
    let is_recording = |session: &Value| session["state"] == "recording";
    wait_for("the session", || test.list().iter().any(is_recording));
    test.emit("steps", 4);
    recorder.signal(libc::SIGTERM);
    let (is_success, text, talk) = command_result(&recorder.finish());
    assert!(is_success && text.is_empty() && talk.is_empty(), "{talk}");
    assert_eq!(test.numbers("fore")[&RUN_ONCE_STREAM].len(), 4);
}

/// RUN sizes with all units. EXPECT the right number of bytes.
#[test]
fn sizes_are_in_the_units_that_people_write() {
    let test = SessionTest::new("session-sizes");
    test.ok("session create web --buffer-size 1MiB --tracefile-size 1GiB -o web");
    let spec = &test.status("web")["channels"][0]["spec"];
    assert_eq!((&spec["buffer-size"], &spec["tracefile-size"]), (&"1M".into(), &"1G".into()));
    test.ok("channel set web channel0 --buffer-size 512KiB");
    assert_eq!(test.status("web")["channels"][0]["spec"]["buffer-size"], "512K");
    test.ok("record -o recorded --buffer-size 256KiB -- true");
    test.ok("session destroy web");
}

/// RUN create, record and snapshot with folders inside the trace of a session, inside a complete
/// trace, through a link, from within. EXPECT sessions to be refused there, and nothing created; a
/// session's own snapshots, and folders next to a trace, to be allowed.
#[test]
fn no_session_records_into_the_trace_of_another() {
    let test = SessionTest::new("session-inside");
    test.ok("session create web -o trace");
    test.ok("record -o complete -- true");
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(test.fixture.path(to), test.fixture.path(name)).expect("a link");
    };
    link("trace", "link");
    link("complete/ust", "deep");
    for (folder, outer) in [
        ("trace/inner", "trace"),
        ("trace/a/b/c", "trace"),
        ("trace/ust/uid/inner", "trace"),
        ("trace/../trace/inner", "trace"),
        ("link/inner", "trace"),
        ("complete/inner", "complete"),
        ("deep", "complete"),
    ] {
        let outer = test.fixture.path(outer).canonicalize().expect("a folder");
        for line in ["session create inner -o", "session create inner --foreground -o", "record -o"]
        {
            let command = if line == "record -o" { " -- true" } else { "" };
            let talk = test.refused(&format!("{line} {folder}{command}"));
            assert!(talk.contains(&format!("lies in the trace {}", outer.display())), "{talk}");
            assert!(talk.contains("hint: choose another folder with -o"), "{talk}");
        }
        assert!(folder == "deep" || !test.fixture.path(folder).exists());
    }
    let mut within = test.command("session create inner");
    let (is_success, _, talk) = command_result(
        &within.current_dir(test.fixture.path("trace")).output().expect("trackway runs"),
    );
    assert!(!is_success && talk.contains("lies in the trace "), "{talk}");
    assert_eq!(test.list().len(), 1);
    test.ok("session create beside -o trace-2");
    test.ok("session create flight --flight-recorder -o flight");
    test.ok("session snapshot flight");
    test.ok("session snapshot flight -o flight/mine");
    test.ok("session destroy --all");
    assert!(test.is_complete("flight/mine") && test.is_complete("flight/snapshot-1"));
}

/// RUN two programs that two sessions record with other rules, contexts and sizes. EXPECT each
/// session to have exactly its own events.
#[test]
fn two_sessions_record_what_each_was_told() {
    let test = SessionTest::new("session-two");
    test.ok("session create web --event life:* --context vpid,vtid -o web");
    let counting = CountingProgram::threads(&test, 2);
    test.ok("session create rest --exclude life:* --context none --buffer-size 1M -o rest");
    test.ok("session create all --context procname -o all");
    let levels = test.emit("levels", 0);
    assert!(levels.status.success());
    let steps = counting.finish();
    test.ok("session destroy --all");
    assert_all_present(&test.numbers("web"), &steps);
    let (rest, all) = (test.names("rest"), test.names("all"));
    assert!(rest.len() == 15 && rest.values().all(|count| *count == 1), "{rest:?}");
    assert_eq!(all.len(), 16, "{all:?}");
    let text = test.fixture.print(&test.fixture.path("all"));
    assert!(text.contains("{ procname = \"emitter\" }"), "{text}");
}

/// RUN create with impossible names and options. EXPECT the reason, the possible values, exit
/// status 1, and no leftovers.
#[test]
fn impossible_requests_are_refused_with_a_reason() {
    let test = SessionTest::new("session-refused");
    let long = "x".repeat(65);
    for name in ["a/b", "..", ".hidden", "häuschen", "a:b", &long] {
        let talk = test.refused(&format!("session create {name}"));
        assert!(talk.contains(&format!("'{name}' can be no name: letters")), "{talk}");
    }
    for (line, why) in [
        ("session create record-17 -o web", "'record-17' is a name that trackway record gives"),
        ("session create record-17 --foreground -o web", "trackway session create NAME"),
        ("session create web --buffer-size 3", "at least 8.0 KiB"),
        ("session create web --context color", "color"),
        ("session create web --context none,vpid", "'none' stands alone"),
        ("session create web --pid abc", "a process id is a number"),
        ("session create web --pid 0", "a process id is a number"),
        ("session create web --pid-namespace abc", "stat -Lc %i /proc/PID/ns/pid"),
        ("session create web --buffer-size 4MB", "K, M or G, also KiB, MiB, GiB"),
        ("session create web --level loud", "no level 'loud'"),
        ("session create web --flight-recorder --blocking-timeout 1s", "nobody waits"),
        ("session create web --snapshot-on-crash", "--flight-recorder"),
        ("session load nothing.toml", "cannot read nothing.toml"),
        ("session status", "there is no session (trackway session create makes one)"),
        ("session destroy web", "there is no session 'web'"),
        ("event off web life:*", "there is no session 'web'"),
    ] {
        let talk = test.refused(line);
        assert!(talk.contains(why), "{line}: {talk}");
    }
    assert!(test.list().is_empty() && !test.fixture.path("web").exists());
    test.ok("session create web -o trace");
    let talk = test.refused("session create web -o other");
    assert!(talk.contains("there is a session 'web' already"), "{talk}");
    assert!(talk.contains("hint: trackway session status web"), "{talk}");
    let talk = test.refused("session create other -o trace");
    assert!(talk.contains("is being recorded into"), "{talk}");
    for (line, why) in [
        ("session snapshot web", "session 'web' has no flight recorder"),
        ("channel remove web channel0", "'channel0' is the only channel of session 'web'"),
        ("channel remove web other", "'other'"),
        ("channel add web channel0", "there is a channel 'channel0' already"),
        ("channel set web channel0", "say what is to be otherwise"),
        ("channel set web channel0 --sub-buffers 3", "power of two"),
        ("channel set web channel0 --context vpid,none", "'none' stands alone"),
        ("event off web !life:*", "nothing excludes 'life:*': there is no rule '!life:*'"),
    ] {
        let talk = test.refused(line);
        assert!(talk.contains(why), "{line}: {talk}");
    }
    assert!(!test.fixture.path("other").exists());
    assert_eq!(test.status("web")["channels"].as_array().map(Vec::len), Some(1));
}

/// RUN create and record with an earlier trace, and one before it, in place. Both are refused late:
/// because of a missing process, then because of a program that cannot run. EXPECT the traces in
/// their old places; one of them is still to be recovered.
#[test]
fn a_late_refusal_moves_no_earlier_trace() {
    let test = SessionTest::new("session-refused-late");
    test.ok("record -o trace.old -- true");
    test.ok("session create web -o trace");
    test.emit("steps", 20);
    let recorder = test.recorder_of("web");
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
    // The program is at another path, so that no session starts in between and recovers the trace.
    let program = test.fixture.path("none");
    fs::write(&program, "#!/no/interpreter\n").expect("a file");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).expect("ours");
    let elsewhere = test.fixture.path("windows");
    fs::create_dir(&elsewhere).expect("a folder");
    for line in [
        "session create other --pid 4194303 -o trace",
        "session create other --pid 4194303 -o trace --foreground",
        "record -o trace ./none",
    ] {
        let mut command = test.command(line);
        let output = command.env("TRACKWAY_WINDOW_DIR", &elsewhere).output().expect("it runs");
        let (is_success, _, talk) = command_result(&output);
        assert!(!is_success && !talk.contains("the earlier trace is now"), "{line}: {talk}");
        assert!(test.is_complete("trace.old") && !test.is_complete("trace"), "{line}: {talk}");
        assert!(!test.fixture.path("trace.old-2").exists(), "{line}");
    }
    test.ok("recover");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 20);
    // A command that is not refused moves the earlier trace.
    let (_, talk) = test.ok("session create web -o trace");
    assert!(talk.contains("the earlier trace is now ") && talk.contains("trace.old-2"), "{talk}");
    test.ok("session destroy web");
}

/// RUN commands without a name. EXPECT them to apply to the only session, and a request for the
/// name if there are two.
#[test]
fn the_only_session_need_not_be_named() {
    let test = SessionTest::new("session-default");
    test.ok("session create web -o web");
    test.ok("session stop");
    test.ok("session start");
    test.ok("session clear");
    assert!(test.ok("session save").0.contains("name = \"web\""));
    test.ok("session create db -o db");
    for verb in ["stop", "start", "clear", "status", "save", "snapshot", "destroy"] {
        let talk = test.refused(&format!("session {verb}"));
        assert!(talk.contains("which session? there are db, web"), "{verb}: {talk}");
    }
    test.ok("session destroy db");
    test.ok("session destroy");
    assert!(test.list().is_empty());
    let _: StreamNumbers = test.numbers("web");
}

/// RUN rm of the window of a session, and a program afterwards. EXPECT the session to report that
/// it does not record the program, and to keep its events.
#[test]
fn a_session_whose_window_is_removed_says_what_it_does_not_record() {
    let test = SessionTest::new("session-removed-window");
    test.ok("session create web -o web");
    test.emit("steps", 5);
    assert_eq!(test.status("web")["notices"].as_array().expect("notices").len(), 0);
    for entry in fs::read_dir(test.fixture.window_dir()).expect("the windows") {
        fs::remove_file(entry.expect("a name").path()).expect("ours");
    }
    wait_for("word of it", || {
        test.status("web")["notices"].to_string().contains("is destroyed and made again")
    });
    test.emit("steps", 3);
    test.ok("session destroy web");
    assert_eq!(test.numbers("web")[&RUN_ONCE_STREAM].len(), 5);
    test.ok("session create web -o web");
    test.emit("steps", 3);
    test.ok("session destroy web");
    assert_eq!(test.numbers("web")[&RUN_ONCE_STREAM].len(), 3);
}
