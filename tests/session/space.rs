//! Little or no space: full disks, small shared memory, read-only places.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use trackway_tests::steps::{RunningProgram, wait_for};
use trackway_tests::{build_dir, is_root, report_skipped};

use crate::session_test::{
    BurstProgram, RUN_ONCE_STREAM, SessionTest, StreamNumbers, command_result, parse_numbers,
};

/// A fixture with a mount in a private mount namespace, which lives as long as its first process.
struct MountedTest {
    test: SessionTest,
    holder: RunningProgram,
}

impl MountedTest {
    /// Mounts a tmpfs with these options on this folder; returns `None`, after printing the reason,
    /// if that is impossible.
    fn new(name: &str, folder: impl Fn(&SessionTest) -> PathBuf, options: &str) -> Option<Self> {
        if !is_root() {
            report_skipped("not root: mounts");
            return None;
        }
        let test = SessionTest::new(name);
        let folder = folder(&test);
        std::fs::create_dir_all(&folder).expect("a folder");
        let ready = test.fixture.path("ready");
        let script = "mount -t tmpfs -o \"$1\" trackway-test \"$2\" && : > \"$3\" && exec sleep 50";
        let mut holder = test.fixture.command("unshare");
        holder.args(["-m", "sh", "-c", script, "sh", options]).arg(folder).arg(&ready);
        let mut holder = RunningProgram::start(&mut holder);
        wait_for("the mount", || ready.exists() || !holder.runs());
        if !holder.runs() {
            report_skipped("a tmpfs cannot be mounted here");
            return None;
        }
        Some(Self { test, holder })
    }

    /// Returns `command`, run in the namespace.
    fn enter(&self, command: &Command) -> Command {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.pid());
        let mut inside = self.test.fixture.command("nsenter");
        inside.args([&namespace, "sh", "-c", "cd \"$0\" && exec \"$@\""]);
        inside.arg(self.test.fixture.path("")).arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    fn run(&self, line: &str) -> Output {
        self.enter(&self.test.command(line)).output().expect("nsenter runs")
    }

    fn ok(&self, line: &str) -> (String, String) {
        let (is_success, text, talk) = command_result(&self.run(line));
        assert!(is_success, "trackway {line}: {talk}");
        (text, talk)
    }

    /// Runs the program in the namespace, in the mode `steps`, to its end.
    fn emit(&self, count: u64) {
        let steps = self.test.steps_of_one();
        let output = self.enter(&self.test.program(&steps, "steps", count)).output();
        let output = output.expect("nsenter runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// Returns a path in the mount, as other processes outside can open it.
    fn path(&self, name: &str) -> PathBuf {
        let path = self.test.fixture.path(name);
        format!("/proc/{}/root{}", self.holder.pid(), path.display()).into()
    }

    fn numbers(&self, trace: &str) -> StreamNumbers {
        parse_numbers(&self.ok(&format!("print {trace}")).0)
    }
}

/// Returns the recorded and lost events from a session's messages at its end.
fn parse_event_counts(talk: &str) -> (u64, u64) {
    let summary = trackway_tests::Summary::parse(talk);
    (summary.recorded, summary.lost)
}

/// RUN a session on a disk of 1 MiB that gets full; then there is space again. EXPECT it to report
/// that, to count the losses, and to continue recording.
#[test]
fn a_full_disk_loses_events_and_no_more_than_that() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("session-disk", small, "size=1m") else { return };
    std::fs::write(inside.path("small/filler"), vec![1; 600 << 10]).expect("there is room for it");
    let test = &inside.test;
    inside.ok("session create web --event life:* --buffer-size 128K -o small/trace");
    let mut bursts = BurstProgram::of(test, 2000);
    let status = || test.status("web");
    let notices = || status()["notices"].to_string();
    wait_for("a full disk", || {
        bursts.next();
        notices().contains("No space left on device: events are lost once buffers are full")
    });
    wait_for("losses", || {
        bursts.next();
        status()["counts"]["lost"].as_u64().is_some_and(|lost| lost > 0)
    });
    std::fs::remove_file(inside.path("small/filler")).expect("it is there");
    wait_for("room", || notices().contains("events are written again"));
    bursts.next();
    let (_, talk) = inside.ok("session destroy web");
    let emitted = bursts.steps.counts().emitted();
    let (recorded, lost) = parse_event_counts(&talk);
    assert!(lost > 0 && recorded + lost == emitted, "{emitted} emitted: {talk}");
    let numbers = &inside.numbers("small/trace")[&0];
    assert_eq!(numbers.len() as u64, recorded, "{talk}");
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
    assert_eq!(numbers.last(), Some(&(emitted - 1)), "the last burst had room");
}

/// RUN a session with a bounded trace on a disk of 1 MiB, while a program emits several times as
/// much. EXPECT the disk never to be full: no lost event, and the newest events in the trace.
#[test]
fn a_bounded_trace_does_not_fill_the_disk() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("session-disk-ring", small, "size=1m") else { return };
    let ring = "--buffer-size 64K --sub-buffers 8 --tracefile-size 32K --tracefile-count 2";
    inside.ok(&format!("session create web --event life:* {ring} -o small/trace"));
    let mut bursts = BurstProgram::of(&inside.test, 500);
    let status = || inside.test.status("web");
    for round in 1..=300 {
        bursts.next();
        let counts = || status()["counts"].clone();
        wait_for("what was emitted", || {
            let counts = counts();
            let sum = counts["recorded"].as_u64().zip(counts["lost"].as_u64());
            sum.is_some_and(|(recorded, lost)| recorded + lost >= 500 * round)
        });
    }
    assert!(!status()["notices"].to_string().contains("No space left"), "{}", status());
    let (_, talk) = inside.ok("session destroy web");
    let (recorded, lost) = parse_event_counts(&talk);
    let emitted = bursts.steps.counts().emitted();
    assert_eq!((recorded + lost, emitted > 100_000), (emitted, true), "{talk}");
    let numbers = &inside.numbers("small/trace")[&0];
    assert_eq!(numbers.last(), Some(&(emitted - 1)));
}

/// RUN destroy while the disk is full; recover when there is space. EXPECT destroy to fail with a
/// hint, and no recorded event to be missing afterwards.
#[test]
fn events_that_did_not_fit_on_the_disk_are_recovered() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("session-disk-end", small, "size=1m") else { return };
    let filler = inside.path("small/filler");
    std::fs::write(&filler, vec![1; 800 << 10]).expect("there is room for it");
    inside.ok("session create web --event life:* --buffer-size 4M -o small/trace");
    // The events exceed the remaining disk space, but fit into the buffers.
    inside.emit(10_000);
    let (is_success, _, talk) = command_result(&inside.run("session destroy web"));
    assert!(!is_success && talk.contains("No space left on device"), "{talk}");
    assert!(talk.contains("hint: trackway recover completes the trace"), "{talk}");
    assert!(inside.test.list().is_empty());
    let (is_success, _, talk) = command_result(&inside.run("recover"));
    assert!(!is_success && talk.contains("No space left on device"), "{talk}");
    assert!(talk.contains("hint: what is missing is in memory still: run trackway"), "{talk}");
    std::fs::remove_file(filler).expect("it is there");
    inside.ok("recover");
    assert_eq!(inside.numbers("small/trace")[&RUN_ONCE_STREAM], (0..10_000).collect::<Vec<u64>>());
}

/// RUN recover of recordings, by each writer path, whose recorder was killed and whose folder was
/// removed, while the disk is full; recover when there is space. EXPECT a failed recovery to leave
/// no folder, and no event from memory to be missing afterwards.
#[test]
fn a_recovery_beside_that_does_not_fit_on_the_disk_leaves_nothing() {
    const SCRIPT: &str = "kill -STOP $PPID; \"$0\" steps 10000; kill -KILL $PPID";
    let small = |test: &SessionTest| test.fixture.path("small");
    for way in ["rseq", "claim", "lockless"] {
        let Some(inside) = MountedTest::new("session-disk-beside", small, "size=1m") else {
            return;
        };
        let test = &inside.test;
        let steps = test.steps_of_one();
        let mut record = test.fixture.command(build_dir().join("trackway"));
        // With these buffers, some sub-buffers fit on the disk.
        let buffers = ["--buffer-size", "4M", "--sub-buffers", "128"];
        record.args(["record", "--reserve", way, "-o", "small/trace"]).args(buffers);
        record.args(["--", "sh", "-c", SCRIPT]);
        record.arg(&test.emitter).env("STEPS", steps.path());
        let (_, _, talk) = command_result(&inside.enter(&record).output().expect("nsenter runs"));
        std::fs::remove_dir_all(inside.path("small/trace")).expect("it was recorded into");
        let filler = inside.path("small/filler");
        std::fs::write(&filler, vec![1; 850 << 10]).expect("there is room for it");
        let names = || {
            let entries = std::fs::read_dir(inside.path("small")).expect("a folder").flatten();
            entries.map(|entry| entry.file_name()).collect::<Vec<_>>()
        };
        for _ in 0..3 {
            let (is_success, _, said) = command_result(&inside.run("recover"));
            assert!(!is_success && said.contains("No space left on device"), "{way}: {talk}{said}");
            assert!(said.contains("small/trace.recovered"), "{way}: {said}");
            assert_eq!(names(), ["filler"], "{way}: {said}");
        }
        std::fs::remove_file(filler).expect("it is there");
        let (_, said) = inside.ok("recover");
        let numbers = inside.numbers("small/trace.recovered");
        assert_eq!(numbers[&RUN_ONCE_STREAM], (0..10_000).collect::<Vec<u64>>(), "{way}: {said}");
        assert_eq!(names(), ["trace.recovered"], "{way}: {said}");
    }
}

/// RUN a channel that gets other contexts while no data can be written, because a folder is
/// missing; destroy when the folder is back; recover. EXPECT the trace to count as complete only
/// when no event is missing.
#[test]
fn unwritten_events_of_a_replaced_channel_are_recovered() {
    let test = SessionTest::new("session-left-behind");
    test.ok("session create web --event life:* -o trace");
    let channel = test.fixture.path("trace/ust/uid").read_dir().expect("users").next();
    let channel = channel.expect("a user").expect("a folder").path().join("64-bit");
    let (index, away) = (channel.join("index"), channel.join("away"));
    std::fs::rename(&index, &away).expect("moved");
    test.emit("steps", 1000);
    test.ok("channel set web channel0 --context vpid");
    std::fs::rename(&away, &index).expect("moved back");
    test.emit("steps", 5);
    let talk = test.refused("session destroy web");
    assert!(talk.contains("of a channel that has ended could not be written"), "{talk}");
    assert!(talk.contains("hint: trackway recover completes the trace"), "{talk}");
    assert!(!test.is_complete("trace"));
    test.ok("recover");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 1005);
    assert!(test.is_complete("trace"));
}

/// RUN stop while the disk is full; stop again when there is space. EXPECT the first to fail with a
/// hint, the session to be stopped, and all events in the trace after the second.
#[test]
fn a_stop_that_cannot_write_fails_and_is_made_good() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("session-disk-stop", small, "size=1m") else { return };
    let filler = inside.path("small/filler");
    std::fs::write(&filler, vec![1; 800 << 10]).expect("there is room for it");
    inside.ok("session create web --event life:* --buffer-size 4M -o small/trace");
    inside.emit(10_000);
    let (is_success, _, talk) = command_result(&inside.run("session stop web"));
    assert!(!is_success && talk.contains("No space left on device"), "{talk}");
    assert!(talk.contains("hint: it is stopped; stop it again"), "{talk}");
    assert!(inside.ok("session status web").0.contains("session web: stopped"));
    // The stopped session must record none of these events.
    inside.emit(100);
    std::fs::remove_file(filler).expect("it is there");
    inside.ok("session stop web");
    assert_eq!(inside.numbers("small/trace")[&RUN_ONCE_STREAM], (0..10_000).collect::<Vec<u64>>());
    let (_, again) = inside.ok("session stop web");
    assert!(again.contains("it is stopped already"), "{again}");
    inside.ok("session destroy web");
}

/// RUN the commands of a session, and of a recording, whose trace was removed meanwhile. EXPECT
/// each to report the removal, and none to report that the trace can be recovered, or written
/// later.
#[test]
fn a_trace_that_was_removed_is_said_to_be_gone() {
    let test = SessionTest::new("session-removed");
    test.ok("session create web -o trace");
    test.emit("steps", 10);
    // The recorder may be making a file in this folder.
    let trace = test.fixture.path("trace");
    wait_for("that it is removed", || std::fs::remove_dir_all(&trace).is_ok());
    test.emit("steps", 10);
    let notices = || test.status("web")["notices"].to_string();
    wait_for("that it is seen", || notices().contains("its folder was removed"));
    assert!(notices().contains(r#"{"hint":"what was recorded there is gone"#), "{}", notices());
    for line in ["session stop web", "session clear web", "session destroy web"] {
        let talk = test.refused(line);
        assert!(talk.contains("its folder was removed"), "{line}: {talk}");
        assert!(talk.contains("hint: what was recorded there is gone"), "{line}: {talk}");
        assert!(!talk.contains("completes") && !talk.contains("once"), "{line}: {talk}");
    }
    let steps = test.steps_of_one();
    let script = "\"$0\" steps 10; rm -r trace || rm -r trace; \"$0\" steps 10";
    let mut record = test.command("record -o trace -- sh -c");
    record.arg(script).arg(&test.emitter).env("STEPS", steps.path());
    let (_, _, talk) = command_result(&record.output().expect("trackway runs"));
    assert!(talk.contains("the trace is not complete: cannot write "), "{talk}");
    assert!(talk.contains("hint: what was recorded there is gone"), "{talk}");
    assert!(test.ok("recover").1.contains("nothing to recover"));
}

/// RUN record onto a disk that is full at its end; recover when there is space. EXPECT a hint, and
/// then no recorded event to be missing.
#[test]
fn unwritten_events_of_record_are_reported_as_recoverable() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("record-disk-end", small, "size=1m") else { return };
    let filler = inside.path("small/filler");
    std::fs::write(&filler, vec![1; 800 << 10]).expect("there is room for it");
    let steps = inside.test.steps_of_one();
    let mut record = inside.test.command("record --buffer-size 4M -o small/trace");
    record.arg(&inside.test.emitter).args(["steps", "10000"]).env("STEPS", steps.path());
    let (_, _, talk) = command_result(&inside.enter(&record).output().expect("nsenter runs"));
    assert!(talk.contains("No space left on device"), "{talk}");
    assert!(talk.contains("hint: trackway recover completes the trace"), "{talk}");
    std::fs::remove_file(filler).expect("it is there");
    inside.ok("recover");
    assert_eq!(inside.numbers("small/trace")[&RUN_ONCE_STREAM], (0..10_000).collect::<Vec<u64>>());
}

/// RUN record on a full disk that gets space before the command ends. EXPECT recording to continue
/// by itself, and no event to be missing.
#[test]
fn a_command_is_recorded_on_once_its_disk_has_space_again() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("record-disk-again", small, "size=1m") else { return };
    let filler = inside.path("small/filler");
    std::fs::write(&filler, vec![1; 800 << 10]).expect("there is room for it");
    let messages = std::fs::File::create(inside.path("messages")).expect("a file");
    let steps = inside.test.steps_of_one();
    let script = "await() { for _ in $(seq 2000); do grep -q \"$1\" messages && return; \
                  sleep 0.01; done; }; \
                  $0 steps 10000; await 'No space left'; rm small/filler; \
                  await 'written again'; $0 steps 100";
    let mut record = inside.test.command("record --buffer-size 4M -o small/trace sh -c");
    record.arg(script).arg(&inside.test.emitter).env("STEPS", steps.path());
    let output = inside.enter(&record).stderr(messages).output().expect("nsenter runs");
    let text = std::fs::read_to_string(inside.path("messages")).expect("messages");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("No space left") && text.contains("written again"), "{text}");
    assert!(text.contains("10,100 events recorded, 0 lost"), "{text}");
    let numbers = inside.numbers("small/trace");
    assert_eq!(numbers[&RUN_ONCE_STREAM], (0..10_000).collect::<Vec<u64>>());
    assert_eq!(numbers[&(RUN_ONCE_STREAM + 1)], (0..100).collect::<Vec<u64>>());
}

/// RUN create in a folder that cannot be written. EXPECT a refusal with the reason, and no
/// leftovers.
#[test]
fn a_folder_that_cannot_be_written_is_refused() {
    let frozen = |test: &SessionTest| test.fixture.path("frozen");
    let Some(inside) = MountedTest::new("session-read-only", frozen, "ro") else { return };
    let (is_success, text, talk) =
        command_result(&inside.run("session create web -o frozen/trace"));
    assert!(!is_success && text.is_empty(), "{talk}");
    assert!(talk.contains("frozen/trace: Read-only file system"), "{talk}");
    assert!(inside.test.list().is_empty());
    inside.ok("session create web --flight-recorder -o flight");
    let (is_success, _, talk) = command_result(&inside.run("session snapshot -o frozen/snapshot"));
    assert!(!is_success && talk.contains("Read-only file system"), "{talk}");
    inside.ok("session snapshot");
    inside.ok("session destroy");
}

/// RUN a session with a tmpfs of 4 MiB as shared memory, and with one without execute permission.
/// EXPECT it to record as much as fits; programs to survive; all events to be counted.
#[test]
fn small_shared_memory_is_enough_to_start() {
    let window = |test: &SessionTest| test.fixture.window_dir().to_owned();
    for options in ["size=4m", "size=16m,noexec"] {
        let Some(inside) = MountedTest::new("session-shm", window, options) else { return };
        let (_, talk) = inside.ok("session create web --event life:* -o trace");
        inside.emit(50_000);
        let (_, ended) = inside.ok("session destroy");
        let (recorded, lost) = parse_event_counts(&ended);
        assert!(recorded > 0 && recorded + lost == 50_000, "{options}: {talk}{ended}");
        let numbers = inside.test.numbers("trace");
        assert_eq!(numbers[&RUN_ONCE_STREAM].len() as u64, recorded, "{options}");
    }
}

/// RUN create with more memory than the machine has. EXPECT a refusal with the amount, and no
/// leftovers.
#[test]
fn more_memory_than_there_is_is_refused() {
    let window = |test: &SessionTest| test.fixture.window_dir().to_owned();
    let Some(inside) = MountedTest::new("session-memory", window, "size=8m") else { return };
    let (is_success, _, talk) =
        command_result(&inside.run("session create web --buffer-size 64M -o trace"));
    assert!(!is_success && talk.contains("hint: use a smaller --buffer-size"), "{talk}");
    assert!(inside.test.list().is_empty() && !inside.test.fixture.path("trace").exists());
    inside.ok("session create web -o trace");
    let (is_success, _, talk) =
        command_result(&inside.run("channel set web channel0 --buffer-size 64M"));
    assert!(!is_success && talk.contains("hint: use a smaller --buffer-size"), "{talk}");
    inside.emit(100);
    inside.ok("session destroy");
    assert_eq!(inside.test.numbers("trace")[&RUN_ONCE_STREAM].len(), 100);
}

/// RUN sessions with a window of an older version, a damaged window, and sockets of dead recorders
/// in the folder. EXPECT these to be left alone, or set aside, and the session to record.
#[test]
fn leftovers_of_others_do_not_matter() {
    let test = SessionTest::new("session-leftovers");
    test.ok("session create probe -o probe");
    test.ok("session destroy");
    let window = std::fs::read_dir(test.fixture.window_dir()).expect("a folder").flatten().next();
    let window = window.expect("a window").path();
    let name = window.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let (stem, version) = name.rsplit_once("-v").expect("a version");
    let older: u32 = version.parse::<u32>().expect("a number") - 1;
    let old = window.with_file_name(format!("{stem}-v{older}"));
    std::fs::copy(&window, &old).expect("a copy");
    let file = std::fs::OpenOptions::new().write(true).open(&window).expect("ours");
    file.write_all_at(&[0xff; 64], 0).expect("ours");
    drop(std::os::unix::net::UnixListener::bind(test.fixture.run_dir().join("dead.sock")));
    std::fs::write(test.fixture.run_dir().join("dead.lock"), "").expect("ours");
    std::fs::write(test.fixture.run_dir().join("dead.log"), "it was late\n").expect("ours");
    test.ok("session create web -o trace");
    test.emit("steps", 10);
    let talk = test.refused("session status dead");
    assert!(talk.contains("is gone; the last that it said: it was late"), "{talk}");
    let (_, talk) = test.ok("session list");
    assert!(talk.contains("'dead' is gone"), "{talk}");
    test.ok("session create dead -o dead");
    test.ok("session destroy dead");
    assert_eq!(test.list().len(), 1);
    test.ok("session destroy web");
    assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 10);
    assert!(old.exists(), "another version's is not ours to remove");
}

/// RUN a snapshot onto a disk that has no space for it, twice. EXPECT a refusal each time, and no
/// files: a part of a trace would be taken for a trace.
#[test]
fn a_snapshot_for_which_there_is_no_room_leaves_nothing() {
    let small = |test: &SessionTest| test.fixture.path("small");
    let Some(inside) = MountedTest::new("session-no-room", small, "size=256k") else { return };
    inside.ok("session create web --flight-recorder --buffer-size 1M -o flight");
    inside.emit(10_000);
    std::fs::create_dir(inside.path("small/empty")).expect("there is room for it");
    for folder in ["new", "new", "empty"] {
        let line = format!("session snapshot web -o small/{folder}");
        let (is_success, _, talk) = command_result(&inside.run(&line));
        assert!(!is_success && talk.contains("No space left on device"), "{talk}");
    }
    assert!(!inside.path("small/new").exists());
    let left = std::fs::read_dir(inside.path("small/empty")).expect("it was there before");
    assert_eq!(left.count(), 0);
    inside.ok("session destroy web");
}

/// RUN merge onto a disk without space for more files, once the temporary folder is made. EXPECT a
/// refusal, and no leftovers.
#[test]
fn an_export_for_which_there_is_no_room_leaves_nothing() {
    // The disk has its own folder, the trace's folder, and the folder in it: another file finds no
    // space.
    for (inodes, is_there) in [(3, false), (3, true), (2, false)] {
        let small = |test: &SessionTest| test.fixture.path("small");
        let options = format!("nr_inodes={inodes}");
        let Some(inside) = MountedTest::new("session-inodes", small, &options) else { return };
        inside.ok("session create web --event life:* -o trace");
        inside.emit(10);
        inside.ok("session destroy web");
        if is_there {
            std::fs::create_dir(inside.path("small/out")).expect("there is room for it");
        }
        let (is_success, _, talk) = command_result(&inside.run("merge trace -o small/out"));
        assert!(!is_success && talk.contains("No space left on device"), "{talk}");
        assert_eq!(inside.path("small/out").exists(), is_there);
        let left = std::fs::read_dir(inside.path("small/out")).into_iter().flatten();
        assert_eq!(left.count(), 0, "{inodes}");
    }
}
