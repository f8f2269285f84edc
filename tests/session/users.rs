//! Sessions of root over several users: `trackway session create --user NAME|UID|all`.
//!
//! Longer than 600 lines: the tests share users, their windows and their programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use trackway_testkit::Random;
use trackway_tests::steps::{RunningProgram, is_running, send_signal, wait_for};

use crate::live::SessionFollower;
use crate::session_test::{BurstProgram, StreamNumbers, assert_range_absent, command_result};
use crate::users_fixture::{
    ANN_UID, BOB_UID, BURST_EVENTS, EVE_UID, UsersTest, assert_bursts_present, first_stream_of,
};

/// RUN create --user all; a program of one user before, of another after, and root's. EXPECT all of
/// their events in one trace, in order of time, and no path of the trace in the users' windows.
#[test]
fn all_users_are_recorded_whenever_they_come() {
    let Some(users) = UsersTest::new("users-all") else { return };
    let mut ann = users.bursts(ANN_UID);
    users.test.ok("session create watch --user all -o trace");
    assert_eq!(users.users_of("watch").into_keys().collect::<Vec<_>>(), [0, ANN_UID]);
    ann.next();
    let mut bob = users.bursts(BOB_UID);
    users.wait_for("watch", BOB_UID);
    for _ in 0..3 {
        ann.next();
        users.test.emit("steps", 10);
        bob.next();
    }
    let (text, _) = users.test.ok("session list");
    assert!(text.lines().any(|line| line.contains(" all ")), "{text}");
    wait_for("its next look", || users.users_of("watch")[&0] == 30);
    let (text, _) = users.test.ok("session status watch");
    for line in ["  users     all", "  user      root (0): 30 events", "  user      65532: "] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for uid in [ANN_UID, BOB_UID] {
        let window = fs::read(users.window(uid)).expect("root reads all");
        let trace = users.test.fixture.path("trace");
        let trace = trace.to_str().expect("text").as_bytes();
        assert!(!window.windows(trace.len()).any(|bytes| bytes == trace), "{uid} knows where");
    }
    let (_, talk) = users.test.ok("session destroy watch");
    assert!(talk.contains("events recorded, 0 lost, 5 processes"), "{talk}");
    let numbers = users.numbers("trace");
    assert_bursts_present(&numbers, ANN_UID, 1..5);
    assert_range_absent(&numbers, first_stream_of(ANN_UID), 0..BURST_EVENTS);
    assert_bursts_present(&numbers, BOB_UID, 1..4);
    assert_eq!(numbers[&crate::session_test::RUN_ONCE_STREAM].len(), 30);
    assert_eq!(users.parts("trace"), ["0/64-bit", "65531/64-bit", "65532/64-bit"]);
    assert_eq!(users.unfinished_parts(), 0);
    drop((ann, bob));
}

/// RUN create with two users by number, who have run nothing yet. EXPECT all of their events from
/// the first on, windows that belong to them, and no events of a third user.
#[test]
fn named_users_are_recorded_from_their_first_event() {
    let Some(users) = UsersTest::new("users-named") else { return };
    users.test.ok(&format!("session create two --user {ANN_UID},{BOB_UID} -o trace"));
    for uid in [ANN_UID, BOB_UID] {
        let status = fs::metadata(users.window(uid)).expect("it was made");
        assert_eq!((status.uid(), status.permissions().mode() & 0o777), (uid, 0o600));
    }
    for uid in [ANN_UID, BOB_UID, EVE_UID] {
        users.emit(uid);
    }
    users.test.emit("steps", 10);
    let expected = BTreeMap::from([(ANN_UID, BURST_EVENTS), (BOB_UID, BURST_EVENTS)]);
    wait_for("its next look", || users.users_of("two") == expected);
    users.test.ok("session destroy two");
    let numbers = users.numbers("trace");
    assert_eq!(
        numbers.keys().copied().collect::<Vec<_>>(),
        [ANN_UID, BOB_UID].map(first_stream_of)
    );
    for uid in [ANN_UID, BOB_UID] {
        assert_bursts_present(&numbers, uid, 0..1);
    }
    // A session's user may be root itself, by name.
    users.test.ok("session create own --user root -o own");
    users.emit(ANN_UID);
    users.test.emit("steps", 10);
    users.test.ok("session destroy own");
    assert_eq!(users.parts("own"), ["0/64-bit"]);
    assert_eq!(users.numbers("own")[&crate::session_test::RUN_ONCE_STREAM].len(), 10);
}

/// RUN create as an ordinary user: for another user, for all, for a user that does not exist, and
/// for the same user. EXPECT a refusal with the reason and no remains, except for the same user.
#[test]
fn only_root_records_others() {
    let Some(users) = UsersTest::new("users-refused") else { return };
    let line = |user: &str| format!("session create mine --user {user} -o mine");
    for (user, why) in [
        ("all", "only root may record the programs of all users"),
        ("root", "only root may record the programs of 'root'"),
        ("65532", "only root may record the programs of '65532'"),
        ("nobody-of-this-name", "there is no user 'nobody-of-this-name'"),
    ] {
        let (is_success, text, talk) = command_result(&users.trackway_as(ANN_UID, &line(user)));
        assert!(!is_success && text.is_empty() && talk.contains(why), "{user}: {talk}");
        assert!(why.starts_with("there") || talk.contains("\n  sudo "), "{talk}");
        assert!(!users.test.fixture.path("mine").exists(), "{user}");
    }
    let talk = users.test.refused("session create mine --user nobody-of-this-name -o mine");
    assert!(talk.contains("there is no user"), "{talk}");
    let (is_success, _, talk) =
        command_result(&users.trackway_as(ANN_UID, &line(&ANN_UID.to_string())));
    assert!(is_success, "{talk}");
    users.emit(ANN_UID);
    let (is_success, _, talk) = command_result(&users.trackway_as(ANN_UID, "session destroy mine"));
    assert!(is_success && talk.contains(&format!("{BURST_EVENTS} events recorded")), "{talk}");
}

/// RUN event off and on, channel set and add, stop, start, clear, snapshot; and a new user after
/// each. EXPECT the change to apply to all users, present and later.
#[test]
fn changes_apply_to_present_and_later_users() {
    let Some(users) = UsersTest::new("users-changes") else { return };
    let test = &users.test;
    test.ok(&format!("session create all --user {ANN_UID},{BOB_UID} -o trace"));
    test.ok("event off all life:*");
    users.emit(ANN_UID);
    test.ok("session create late --user all --no-start -o late");
    test.ok("event off late life:*");
    test.ok("session start late");
    test.ok("event on all life:*");
    test.ok("channel set all channel0 --context vpid,procname");
    test.ok("channel add all more --event life:*");
    let mut bob = users.bursts(BOB_UID);
    test.ok("session stop all");
    bob.next();
    test.ok("session start all");
    bob.next();
    test.ok("channel remove all more");
    bob.next();
    let eve = users.bursts(EVE_UID);
    users.wait_for("late", EVE_UID);
    let mut eve = eve;
    eve.next();
    test.ok("event on late life:*");
    eve.next();
    test.ok("channel set late channel0 --context procname");
    eve.next();
    test.ok("session destroy all");
    test.ok("session destroy late");
    let numbers = users.numbers("trace");
    let of_bob = &numbers[&first_stream_of(BOB_UID)];
    assert!(!numbers.contains_key(&first_stream_of(ANN_UID)), "its events were off");
    let times = |burst: u64| {
        let range = burst * BURST_EVENTS..(burst + 1) * BURST_EVENTS;
        of_bob.iter().filter(|number| range.contains(number)).count() as u64 / BURST_EVENTS
    };
    assert_eq!([0, 1, 2, 3].map(times), [2, 0, 2, 1], "by one channel, or two");
    let text = test.fixture.print(&test.fixture.path("trace"));
    assert!(
        text.lines().all(|line| !line.contains(&first_stream_of(BOB_UID).to_string())
            || line.contains("procname = \"emitter\"")
            || !line.contains("vpid")),
        "{text}"
    );
    let late = users.numbers("late");
    assert_range_absent(&late, first_stream_of(EVE_UID), 0..2 * BURST_EVENTS);
    assert_bursts_present(&late, EVE_UID, 2..4);
    drop((bob, eve));
}

/// RUN snapshot and clear of a flight recorder over two users. EXPECT both users' events in the
/// snapshot.
#[test]
fn a_snapshot_has_all_users() {
    let Some(users) = UsersTest::new("users-snapshot") else { return };
    users
        .test
        .ok(&format!("session create all --user {ANN_UID},{BOB_UID} --flight-recorder -o flight"));
    users.emit(ANN_UID);
    users.emit(BOB_UID);
    let (folder, talk) = users.test.ok("session snapshot all");
    assert!(talk.contains(&format!("{} events", 2 * BURST_EVENTS)), "{talk}");
    assert!(folder.trim().ends_with("flight/snapshot-1"), "{folder}");
    let numbers = users.numbers("flight/snapshot-1");
    assert_bursts_present(&numbers, ANN_UID, 0..1);
    assert_bursts_present(&numbers, BOB_UID, 0..1);
    users.test.ok("session clear all");
    users.emit(BOB_UID);
    let (_, talk) = users.test.ok("session snapshot all");
    assert!(talk.contains(&format!("{BURST_EVENTS} events")), "{talk}");
    users.test.ok("session destroy all");
    assert_eq!(users.parts("flight/snapshot-2"), ["65531/64-bit", "65532/64-bit"]);
    assert_eq!(users.unfinished_parts(), 0);
}

/// RUN a session over two users while the trace of one cannot be written, because one of its
/// folders is missing, and until it can. EXPECT the other, whose buffers are filled several times
/// as often as the recorder retries, to lose little or nothing; and messages that name the user
/// whose events are lost, and report the end of the losses.
#[test]
fn a_trace_that_cannot_be_written_delays_no_other_user() {
    let Some(users) = UsersTest::new("users-stalled") else { return };
    let sizes = "--buffer-size 16K --sub-buffers 2";
    users.test.ok(&format!("session create all --user {ANN_UID},{EVE_UID} {sizes} -o trace"));
    let index = users.test.fixture.path(&format!("trace/ust/uid/{EVE_UID}/64-bit/index"));
    let away = index.with_file_name("away");
    fs::rename(&index, &away).expect("ours");
    users.emit(EVE_UID);
    let stalled = "user 65533: cannot";
    wait_for("that it is seen", || users.notices("all").contains(stalled));
    let (steps, mut program) = users.program_of(ANN_UID, "threads", 1);
    let mut ann = RunningProgram::start(&mut program);
    steps.wait_more(8000);
    steps.stop();
    wait_for("its end", || !ann.runs());
    assert!(!users.notices("all").contains("user 65533: events are written again"));
    fs::rename(&away, &index).expect("ours");
    wait_for("what was kept", || {
        users.notices("all").contains("user 65533: events are written again")
    });
    assert_eq!(users.notices("all").matches(stalled).count(), 1, "said once");
    users.test.ok("session destroy all");
    let (there, emitted) =
        (users.numbers("trace")[&first_stream_of(ANN_UID)].len() as u64, steps.counts().emitted());
    assert!(there > emitted / 10 * 9, "{there} of {emitted}");
    assert_bursts_present(&users.numbers("trace"), EVE_UID, 0..1);
}

/// RUN snapshot of a session over two users, after the trace of one was removed, and of both.
/// EXPECT the other user in a snapshot that names the missing user, and can be read; a refusal if
/// no trace is left.
#[test]
fn a_snapshot_has_all_users_that_can_be_in_it() {
    let Some(users) = UsersTest::new("users-snapshot-some") else { return };
    users
        .test
        .ok(&format!("session create all --user {ANN_UID},{EVE_UID} --flight-recorder -o flight"));
    let part = |uid: u32| users.test.fixture.path(&format!("flight/ust/uid/{uid}/64-bit"));
    fs::remove_dir_all(part(EVE_UID)).expect("ours");
    users.emit(ANN_UID);
    users.emit(EVE_UID);
    let (_, talk) = users.test.ok("session snapshot all");
    assert!(talk.contains("trackway: user 65533 is not in it: cannot "), "{talk}");
    assert!(talk.contains(&format!("{BURST_EVENTS} events")), "{talk}");
    assert_bursts_present(&users.numbers("flight/snapshot-1"), ANN_UID, 0..1);
    assert_eq!(users.parts("flight/snapshot-1"), ["65531/64-bit"]);
    let talk = users.test.refused("session destroy all");
    assert!(talk.contains("its folder was removed"), "{talk}");
    users.test.ok(&format!("session create one --user {EVE_UID} --flight-recorder -o one"));
    fs::remove_dir_all(users.test.fixture.path("one/ust")).expect("ours");
    users.emit(EVE_UID);
    let talk = users.test.refused("session snapshot one");
    assert!(talk.contains("its folder was removed"), "{talk}");
}

/// RUN programs of two users that request snapshots, one of them twice at once. EXPECT one for
/// each, the other user's without a wait, and the second request's later.
#[test]
fn users_ask_for_snapshots_beside_each_other() {
    let Some(users) = UsersTest::new("users-snapshots") else { return };
    users
        .test
        .ok(&format!("session create all --user {ANN_UID},{BOB_UID} --flight-recorder -o flight"));
    let snapshots = || users.test.status("all")["snapshots"].as_u64().expect("a number");
    let ask = |uid: u32| {
        let (_, mut program) = users.program(uid, "snapshot");
        let output = program.output().expect("setpriv runs");
        assert!(output.status.success(), "{output:?}");
    };
    ask(ANN_UID);
    wait_for("the first", || snapshots() == 1);
    ask(ANN_UID);
    ask(BOB_UID);
    wait_for("the other user's", || snapshots() == 2);
    assert_bursts_present(&users.numbers("flight/snapshot-2"), BOB_UID, 0..1);
    wait_for("the one that came too soon", || snapshots() == 3);
    users.test.ok("session destroy all");
    assert!(!users.test.fixture.path("flight/snapshot-4").exists());
}

/// RUN --user all while a user truncates their window, removes it, and runs another program. EXPECT
/// a message that the recorder released the window, no effect on other users, and the new window to
/// be recorded.
#[test]
fn a_truncated_window_is_released_and_others_are_not() {
    let Some(users) = UsersTest::new("users-truncated") else { return };
    let mut bob = users.bursts(BOB_UID);
    users.emit(EVE_UID);
    users.test.ok("session create all --user all -o trace");
    users.emit(EVE_UID);
    wait_for("the user's events", || users.users_of("all")[&EVE_UID] == BURST_EVENTS);
    let window = users.window(EVE_UID);
    let cut = users.as_user(EVE_UID, "truncate").args(["-s", "4096"]).arg(&window).status();
    assert!(cut.expect("truncate runs").success());
    wait_for("that it is seen", || !users.users_of("all").contains_key(&EVE_UID));
    let notices = users.notices("all");
    assert!(notices.contains("user 65533 is not recorded any more"), "{notices}");
    bob.next();
    fs::remove_file(&window).expect("root may");
    let (steps, mut program) = users.program(EVE_UID, "bursts");
    let mut eve = BurstProgram::begin(steps, &mut program);
    users.wait_for("all", EVE_UID);
    eve.next();
    bob.next();
    users.test.ok("session destroy all");
    let numbers = users.numbers("trace");
    assert_bursts_present(&numbers, BOB_UID, 1..3);
    assert_bursts_present(&numbers, EVE_UID, 1..2);
    assert!(users.parts("trace").contains(&"65533/64-bit-2".to_owned()));
    drop((bob, eve));
}

/// RUN --user all where a user's window is garbage, another's file, a link, a FIFO, a folder, or
/// open to all, from the beginning and made later. EXPECT that these are skipped, that the link's
/// target does not change, and that the others are recorded.
#[test]
fn files_that_are_no_windows_are_skipped() {
    let Some(users) = UsersTest::new("users-garbage") else { return };
    users.test.ok("session create first --user root -o first"); // so that the name is known
    users.test.ok("session destroy first");
    let secret = users.test.fixture.path("secret");
    fs::write(&secret, vec![7; 4 << 20]).expect("ours");
    let random = |length: usize| {
        let mut random = Random::new(5);
        (0..length).map(|_| random.next_below(256) as u8).collect::<Vec<_>>()
    };
    let folder = users.test.fixture.window_dir();
    // The files appear complete, like windows.
    let window = |uid: u32| folder.join(format!("made-{uid}"));
    let put = |uid: u32, bytes: &[u8], owner: u32, mode: u32| {
        fs::write(window(uid), bytes).expect("ours");
        fs::set_permissions(window(uid), PermissionsExt::from_mode(mode)).expect("ours");
        chown(window(uid), Some(owner), None).expect("root may");
    };
    let make = |first: u32| {
        put(first, &random(3 << 20), first, 0o600);
        put(first + 1, &random(100), first + 1, 0o600);
        put(first + 2, &random(3 << 20), EVE_UID, 0o600);
        put(first + 3, &random(3 << 20), first + 3, 0o666);
        symlink(&secret, window(first + 4)).expect("a link");
        let fifo = Command::new("mkfifo").arg(window(first + 5)).status();
        assert!(fifo.expect("mkfifo runs").success());
        chown(window(first + 5), Some(first + 5), None).expect("root may");
        fs::create_dir(window(first + 6)).expect("a folder");
        // The file has the magic number of a window, and garbage after it.
        fs::copy(users.window(0), window(first + 7)).expect("a copy");
        let file = fs::OpenOptions::new().write(true).open(window(first + 7)).expect("ours");
        file.write_all_at(&random(1 << 20), 4096).expect("written");
        chown(window(first + 7), Some(first + 7), None).expect("root may");
        for uid in first..first + 8 {
            fs::rename(window(uid), folder.join(users.window_name(uid))).expect("ours");
        }
    };
    make(60_000);
    users.test.ok("session create all --user all -o trace");
    make(60_100);
    users.test.ok(&format!("channel add all more --event {}", "nothing:*"));
    users.emit(ANN_UID);
    users.wait_for("all", ANN_UID);
    users.emit(ANN_UID);
    let notices = users.notices("all");
    for uid in [60_000, 60_100] {
        assert!(notices.contains(&format!("user {uid} is not recorded")), "{notices}");
        let opened = format!("user {} is not recorded: cannot use the window", uid + 3);
        assert!(notices.contains(&opened), "{notices}");
    }
    users.test.ok("session destroy all");
    let there = users.numbers("trace")[&first_stream_of(ANN_UID)].len() as u64;
    assert!(there >= BURST_EVENTS, "{there}");
    assert_eq!(fs::read(&secret).expect("ours"), vec![7; 4 << 20]);
}

/// RUN --user all while one user overwrites their window endlessly, and another keeps theirs
/// locked. EXPECT the recorder to continue, to answer, and to have all events of the third user.
#[test]
fn an_overwritten_or_locked_window_harms_only_its_user() {
    let Some(users) = UsersTest::new("users-scribble") else { return };
    let mut ann = users.bursts(ANN_UID);
    users.emit(BOB_UID);
    users.emit(EVE_UID);
    users.test.ok("session create all --user all -o trace");
    let lock =
        users.as_user(EVE_UID, "flock").arg(users.window(EVE_UID)).args(["sleep", "40"]).spawn();
    let mut lock = lock.expect("flock runs");
    let script = "while :; do dd if=/dev/urandom of=\"$0\" bs=64k count=40 conv=notrunc; done";
    let mut scribble = users.as_user(BOB_UID, "sh");
    scribble.args(["-c", script]).arg(users.window(BOB_UID)).stderr(Stdio::null());
    let mut scribble = RunningProgram::start(&mut scribble);
    for round in 0..8 {
        ann.next();
        match round % 4 {
            0 => users.test.ok("channel set all channel0 --context vpid"),
            1 => users.test.ok("event off all other:*"),
            2 => users.test.ok("channel set all channel0 --context vtid"),
            _ => users.test.ok("event on all other:*"),
        };
    }
    assert!(scribble.runs());
    scribble.signal(libc::SIGKILL);
    let (_, talk) = users.test.ok("session destroy all");
    lock.kill().expect("it sleeps");
    lock.wait().expect("it ends");
    let numbers = {
        // The overwritten data is the user's own; readers report it.
        let mut print = users.test.command("print trace");
        let (_, text, _) = command_result(&print.output().expect("trackway runs"));
        crate::session_test::parse_numbers(&text)
    };
    assert_bursts_present(&numbers, ANN_UID, 1..9);
    assert!(talk.contains("events recorded"), "{talk}");
    drop(ann);
}

/// RUN channel add and set while a user's window has no slot left, because of the user's other
/// sessions; and set once these have ended. EXPECT the change for the other user, and a message
/// about the first, who keeps the old configuration without a loss and gets the next change.
#[test]
fn a_user_without_room_for_a_change_goes_on_unchanged() {
    let Some(users) = UsersTest::new("users-no-slot") else { return };
    let test = &users.test;
    test.ok(&format!("session create all --user {ANN_UID},{EVE_UID} --context none -o trace"));
    let (mut ann, mut eve) = (users.bursts(ANN_UID), users.bursts(EVE_UID));
    let theirs = |line: &str| command_result(&users.trackway_as(EVE_UID, line));
    assert!(theirs("session create mine --event nothing:* -o mine").0);
    let mut channels = 1;
    while theirs(&format!("channel add mine more{channels} --event nothing:*")).0 {
        channels += 1;
    }
    assert_eq!(channels, 31);
    test.ok("channel add all more --event nothing:*");
    assert!(users.notices("all").contains("not done for user 65533: the window has no place"));
    ann.next();
    eve.next();
    test.ok("channel set all channel0 --context vpid");
    ann.next();
    eve.next();
    test.ok("event off all nothing:* --channel more");
    assert!(theirs("session destroy mine").0);
    test.ok("channel set all channel0 --context procname");
    ann.next();
    eve.next();
    test.ok("channel remove all more");
    let (_, talk) = test.ok("session destroy all");
    assert!(talk.contains(" 0 lost"), "{talk}");
    let numbers = users.numbers("trace");
    for uid in [ANN_UID, EVE_UID] {
        assert_bursts_present(&numbers, uid, 0..4);
        assert_eq!(numbers[&first_stream_of(uid)].len() as u64, 4 * BURST_EVENTS, "each once");
        let part = format!("trace/ust/uid/{uid}");
        let text = test.fixture.print(&test.fixture.path(&part));
        let with = |context: &str| text.lines().filter(|line| line.contains(context)).count();
        let of_vpid = if uid == ANN_UID { BURST_EVENTS } else { 0 };
        assert_eq!(with("{ vpid = ") as u64, of_vpid, "{uid}");
        assert_eq!(with("procname = \"emitter\"") as u64, BURST_EVENTS, "{uid}");
    }
    assert_eq!(users.unfinished_parts(), 0);
    drop((ann, eve));
}

/// RUN kill -9 of the recorder; recover as one of the users, then as root, twice. EXPECT no effect
/// by the user, root to complete the parts of all users, and no work for the second recovery.
#[test]
fn only_root_completes_the_remains_of_a_killed_recorder() {
    let Some(users) = UsersTest::new("users-killed") else { return };
    let test = &users.test;
    test.ok(&format!("session create all --user root,{ANN_UID},{BOB_UID} -o trace"));
    for uid in [ANN_UID, BOB_UID] {
        users.emit(uid);
    }
    test.emit("steps", 10);
    let recorder = test.recorder_of("all");
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
    let mut ann = users.bursts(ANN_UID);
    assert_eq!(users.unfinished_parts(), 3);
    assert_eq!(test.list()[0]["state"], "dead");
    let (is_success, _, talk) = command_result(&users.trackway_as(ANN_UID, "recover"));
    assert!(is_success && talk.contains("of another user's session"), "{talk}");
    let mine = "session create mine -o mine --event nothing:*";
    let (is_success, _, talk) = command_result(&users.trackway_as(ANN_UID, mine));
    assert!(is_success && !talk.contains("recover"), "{talk}");
    ann.next();
    let (_, talk) = test.ok("recover");
    assert_eq!(talk.matches("recovered ").count(), 3, "{talk}");
    assert!(users.unfinished_parts() == 0 && test.list().is_empty());
    let numbers = users.numbers("trace");
    for uid in [ANN_UID, BOB_UID] {
        assert_eq!(
            &numbers[&first_stream_of(uid)][..BURST_EVENTS as usize],
            (0..BURST_EVENTS).collect::<Vec<_>>()
        );
    }
    assert_eq!(numbers[&crate::session_test::RUN_ONCE_STREAM].len(), 10);
    let (_, talk) = test.ok("recover");
    assert!(talk.contains("nothing to recover"), "{talk}");
    drop(ann);
    command_result(&users.trackway_as(ANN_UID, "session destroy mine"));
}

/// RUN kill -9 of the recorder; root's next session; and, for another, `recover DIR` of a moved
/// trace, without the recorder's own data. EXPECT both traces complete.
#[test]
fn a_trace_of_several_users_is_recovered_in_passing_and_where_it_was_moved() {
    let Some(users) = UsersTest::new("users-moved") else { return };
    let test = &users.test;
    for (trace, next) in [("first", "session create more -o more"), ("second", "recover moved")] {
        test.ok(&format!("session create all --user {ANN_UID},{BOB_UID} -o {trace}"));
        users.emit(ANN_UID);
        users.emit(BOB_UID);
        let recorder = test.recorder_of("all");
        send_signal(recorder.cast_signed(), libc::SIGKILL);
        wait_for("the recorder's end", || !is_running(recorder));
        let trace = match next.ends_with("moved") {
            true => {
                let moved = test.fixture.path("moved");
                fs::rename(test.fixture.path(trace), moved).expect("ours");
                fs::remove_dir_all(test.fixture.run_dir()).expect("ours");
                "moved"
            }
            false => trace,
        };
        let (_, talk) = test.ok(next);
        assert_eq!(talk.matches("recovered ").count(), 2, "{talk}");
        let numbers = users.numbers(trace);
        for uid in [ANN_UID, BOB_UID] {
            assert_bursts_present(&numbers, uid, 0..1);
        }
        command_result(&test.run("session destroy more"));
    }
}

/// RUN a session of an ordinary user whose path leads to a file of root; kill -9; recover as root.
/// EXPECT root to follow no path from that window, and the user to be able to recover the session.
#[test]
fn root_follows_no_path_from_another_user_s_window() {
    let Some(users) = UsersTest::new("users-path") else { return };
    let (is_success, _, talk) =
        command_result(&users.trackway_as(EVE_UID, "session create mine -o eve/trace"));
    assert!(is_success, "{talk}");
    users.emit(EVE_UID);
    let (_, text, _) =
        command_result(&users.trackway_as(EVE_UID, "session status mine --format json"));
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let recorder = i32::try_from(status["pid"].as_u64().expect("a process")).expect("a process");
    send_signal(recorder, libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder.cast_unsigned()));
    // A session of root in the same place.
    users.test.ok("session create root -o root");
    users.test.emit("steps", 10);
    let fixture = |name: &str| users.test.fixture.path(name);
    fs::rename(fixture("eve/trace"), fixture("eve/kept")).expect("root may");
    symlink(fixture("root"), fixture("eve/trace")).expect("a link");
    let (_, talk) = users.test.ok("recover");
    assert!(talk.contains("nothing to recover"), "{talk}");
    users.test.ok("session destroy root");
    assert_eq!(users.numbers("root")[&crate::session_test::RUN_ONCE_STREAM].len(), 10);
    fs::remove_file(fixture("eve/trace")).expect("ours");
    fs::rename(fixture("eve/kept"), fixture("eve/trace")).expect("root may");
    let (is_success, _, talk) = command_result(&users.trackway_as(EVE_UID, "recover"));
    assert!(is_success && talk.contains(&format!("{BURST_EVENTS} more events")), "{talk}");
}

/// RUN a user whose window claims that less was written than was; kill -9; recover as root. EXPECT
/// the written data to remain.
#[test]
fn written_data_cannot_be_taken_back() {
    let Some(users) = UsersTest::new("users-rewind") else { return };
    let test = &users.test;
    test.ok(&format!("session create all --user {EVE_UID} -o trace"));
    for _ in 0..3 {
        users.emit(EVE_UID);
        test.ok("session stop all"); // so that it is in the trace
        test.ok("session start all");
    }
    let recorder = test.recorder_of("all");
    send_signal(recorder.cast_signed(), libc::SIGKILL);
    wait_for("the recorder's end", || !is_running(recorder));
    // Control lines begin after the fixed part; their counters are zero in a new session.
    let window = fs::OpenOptions::new().read(true).write(true).open(users.window(EVE_UID));
    let window = window.expect("root may");
    let mut bytes = vec![0; window.metadata().expect("its length").len() as usize];
    window.read_exact_at(&mut bytes, 0).expect("read");
    let mut rewound = 0;
    for at in ((2 << 20)..bytes.len() - 24).step_by(8) {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8"));
        // Progress words: the length of a stream's file, and its number of packets.
        let (file_bytes, packets) = (word(at), word(at + 8));
        let is_stream = file_bytes > 4096 && file_bytes < 1 << 20 && (3..20).contains(&packets);
        if is_stream && has_file_of_length(&test.fixture.path("trace"), file_bytes) {
            window.write_all_at(&[0; 16], at as u64).expect("written");
            rewound += 1;
        }
    }
    assert!(rewound > 0, "the window's layout is another");
    test.ok("recover");
    let numbers = users.numbers("trace");
    assert!(numbers[&first_stream_of(EVE_UID)].len() as u64 >= 3 * BURST_EVENTS, "{numbers:?}");
}

/// Returns true if a file below a folder has this length.
fn has_file_of_length(folder: &Path, bytes: u64) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => has_file_of_length(&path, bytes),
            false => entry.metadata().is_ok_and(|status| status.len() == bytes),
        }
    })
}

/// RUN a program that root starts, and that becomes another user (docs/design/0004-privileges.md).
/// EXPECT all its events, before and after, in the two users' parts.
#[test]
fn a_program_that_gives_up_root_is_recorded_before_and_after() {
    let Some(users) = UsersTest::new("users-drop") else { return };
    let program = users.test.fixture.compile_file("lives/users.c", true, &[]);
    let steps = users.test.steps_from(0);
    fs::set_permissions(steps.path(), PermissionsExt::from_mode(0o666)).expect("ours");
    users.test.ok("session create both --user root,65534 -o trace");
    let mut command = users.test.fixture.command(&program);
    command.args(["drop", "500"]).env("STEPS", steps.path());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let (_, talk) = users.test.ok("session destroy both");
    assert!(talk.contains("became another user"), "{talk}");
    let numbers = users.numbers("trace");
    crate::session_test::assert_all_present(&numbers, &steps);
    let of = |part: &str| {
        let part = users.test.fixture.path("trace/ust/uid").join(part);
        crate::session_test::parse_numbers(&users.test.fixture.print(&part))
    };
    assert_eq!(of("0").into_keys().collect::<Vec<_>>(), [0]);
    assert!(!of("65534").contains_key(&0));
}

/// RUN print --follow of a session over all users, one of whom comes later. EXPECT each burst of
/// both users while they continue, and the follower to end.
#[test]
fn all_users_are_followed() {
    let Some(users) = UsersTest::new("users-live") else { return };
    let mut ann = users.bursts(ANN_UID);
    users.test.ok("session create all --user all -o trace");
    let mut follower = SessionFollower::start(&mut users.test.command("print --follow all"));
    let count =
        |numbers: &StreamNumbers, uid: u32| numbers.get(&first_stream_of(uid)).map_or(0, Vec::len);
    ann.next();
    follower.wait_until(|numbers| count(numbers, ANN_UID) as u64 == BURST_EVENTS);
    let mut bob = users.bursts(BOB_UID);
    users.wait_for("all", BOB_UID);
    bob.next();
    ann.next();
    follower.wait_until(|numbers| {
        let of_bob = numbers.get(&first_stream_of(BOB_UID)).and_then(|numbers| numbers.last());
        count(numbers, ANN_UID) as u64 == 2 * BURST_EVENTS
            && of_bob == Some(&(2 * BURST_EVENTS - 1))
    });
    users.test.ok("session destroy all");
    let (status, shown, talk) = follower.finish();
    assert_eq!((status, talk.as_str()), (Some(0), ""));
    assert_eq!(crate::session_test::parse_numbers(&shown), users.numbers("trace"));
    drop((ann, bob));
}

/// RUN --user all; a user's window is removed while a program of the user runs, which then ends, as
/// at a logout; the user comes back. EXPECT both programs' events, and only one part for the user
/// at a time.
#[test]
fn a_user_who_logs_out_and_comes_back_is_recorded_again() {
    let Some(users) = UsersTest::new("users-logout") else { return };
    let mut ann = users.bursts(ANN_UID);
    users.test.ok("session create all --user all -o trace");
    ann.next();
    let window = users.window(ANN_UID);
    fs::remove_file(&window).expect("root may");
    ann.next();
    drop(ann);
    // The events of the first window are written while the session continues.
    let first = users.test.fixture.path("trace/ust/uid/65531/64-bit");
    wait_for("its end", || first.join("trackway/complete").exists());
    let (steps, mut program) = users.program(ANN_UID, "bursts");
    let mut again = BurstProgram::begin(steps, &mut program);
    let second = users.test.fixture.path("trace/ust/uid/65531/64-bit-2");
    wait_for("his next window", || second.join("metadata").exists());
    users.wait_for("all", ANN_UID);
    again.next();
    users.test.ok("session destroy all");
    let of = |part: &Path| crate::session_test::parse_numbers(&users.test.fixture.print(part));
    assert_bursts_present(&of(&first), ANN_UID, 1..3);
    assert_bursts_present(&of(&second), ANN_UID, 1..2);
    assert_eq!(users.unfinished_parts(), 0);
}

/// RUN --user all with 10,000 names of windows on files of other users. EXPECT the recorder to skip
/// them, and to record real windows after them.
#[test]
fn many_names_delay_nobody_for_long() {
    let Some(users) = UsersTest::new("users-many") else { return };
    users.test.ok("session create first --user root -o first"); // so that the name is known
    users.test.ok("session destroy first");
    users.test.ok("session create all --user all -o trace");
    let folder = users.test.fixture.window_dir();
    let name = users.window_name(12_345);
    let squat = |first: u32| {
        for uid in first..first + 5000 {
            fs::write(folder.join(name.replace("12345", &uid.to_string())), "").expect("ours");
        }
    };
    squat(10_000);
    users.emit(ANN_UID);
    users.wait_for("all", ANN_UID);
    users.emit(ANN_UID);
    squat(20_000);
    users.emit(BOB_UID);
    users.wait_for("all", BOB_UID);
    users.test.ok("session destroy all");
    assert!(users.numbers("trace")[&first_stream_of(ANN_UID)].len() as u64 >= BURST_EVENTS);
}

/// RUN save and load of a session over several users. EXPECT the same users, and `record --config`
/// to refuse the file.
#[test]
fn users_are_saved_and_loaded() {
    let Some(users) = UsersTest::new("users-saved") else { return };
    users.test.ok(&format!("session create all --user {ANN_UID} --user {BOB_UID} -o trace"));
    users.test.ok("session save all -o all.toml");
    users.test.ok("session destroy all");
    let text = fs::read_to_string(users.test.fixture.path("all.toml")).expect("a file");
    assert!(text.contains("users = [\"65531\", \"65532\"]"), "{text}");
    users.test.ok("session load all.toml again");
    users.emit(BOB_UID);
    let expected = BTreeMap::from([(ANN_UID, 0), (BOB_UID, BURST_EVENTS)]);
    wait_for("its next look", || users.users_of("again") == expected);
    users.test.ok("session destroy again");
    let talk = users.test.refused("record --config all.toml -- true");
    assert!(talk.contains("has users"), "{talk}");
}
