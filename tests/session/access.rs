//! Sessions, traces and the window are closed to other users.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use trackway_tests::steps::{RunningProgram, send_signal, wait_for};
use trackway_tests::{is_root, report_skipped, source_dir};

use crate::session_test::{SessionTest, command_result};

const AS_NOBODY: [&str; 5] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];

/// Runs a command as another user.
fn run_as_nobody(test: &SessionTest, command: &[&str]) -> Output {
    let mut all = AS_NOBODY.into_iter().chain(command.iter().copied());
    let mut setpriv = test.fixture.command(all.next().expect("a program"));
    setpriv.args(all).current_dir("/").output().expect("setpriv runs")
}

/// RUN list, status, destroy, print, cat and a connection as another user. EXPECT all to be
/// refused.
#[test]
fn another_user_gets_to_nothing() {
    if !is_root() || !trackway_tests::has("setpriv") {
        return report_skipped("not root: other users");
    }
    let test = SessionTest::new("session-others");
    test.ok("session create web -o trace");
    test.emit("steps", 10);
    let modes = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let run = test.fixture.run_dir();
    let window = fs::read_dir(test.fixture.window_dir()).expect("a folder").flatten().next();
    let window = window.expect("a window").path();
    assert_eq!(modes(&run), 0o700);
    assert_eq!(modes(&run.join("web.sock")), 0o600);
    assert_eq!(modes(&test.fixture.path("trace")), 0o700);
    assert_eq!(modes(&window), 0o600);
    // The folders above are open, like /tmp and /dev/shm: only these folders protect the files.
    fs::set_permissions(test.fixture.path(""), fs::Permissions::from_mode(0o755)).expect("ours");
    // Another user can run a copy of the command that is readable for that user.
    let trackway = test.fixture.path("trackway");
    trackway_tests::copy_program(&trackway_tests::build_dir().join("trackway"), &trackway);
    let trackway = trackway.to_str().expect("text");
    let (_, text, talk) = command_result(&run_as_nobody(&test, &[trackway, "--version"]));
    assert!(text.starts_with("trackway "), "{talk}");
    for line in ["session list", "session status web", "session destroy web", "event off web *"] {
        let words: Vec<&str> = std::iter::once(trackway).chain(line.split(' ')).collect();
        let (is_success, text, talk) = command_result(&run_as_nobody(&test, &words));
        assert!(!is_success && text.is_empty(), "{line}: {text}");
        assert!(talk.contains("is not yours alone") && talk.contains("hint: "), "{line}: {talk}");
    }
    let trace = test.fixture.path("trace");
    let trace = trace.to_str().expect("text");
    let (is_success, text, _) = command_result(&run_as_nobody(&test, &[trackway, "print", trace]));
    assert!(!is_success && text.is_empty(), "{text}");
    for (command, path) in [("ls", &run), ("cat", &run.join("web.log")), ("cat", &window)] {
        let read = run_as_nobody(&test, &[command, path.to_str().expect("text")]);
        let (is_success, text, talk) = command_result(&read);
        assert!(!is_success && text.is_empty() && talk.contains("Permission denied"), "{talk}");
    }
    // The other user's own sessions are elsewhere, and there are none.
    let (is_success, text, talk) = command_result(&run_as_nobody(
        &test,
        &["env", "-u", "TRACKWAY_RUN_DIR", trackway, "session", "list"],
    ));
    assert!(is_success && text.is_empty() && talk.contains("there is no session"), "{talk}");
    assert_eq!(test.status("web")["counts"]["recorded"], 10, "{}", source_dir().display());
    test.ok("session destroy");
}

/// RUN create with a run folder whose path is too long for a socket. EXPECT a hint, and no
/// leftovers.
#[test]
fn a_folder_of_sockets_with_too_long_a_path_is_refused() {
    let test = SessionTest::new("session-long-path");
    let folder = test.fixture.path(&"long".repeat(30));
    let mut create = test.command("session create web -o trace");
    let create = create.env("TRACKWAY_RUN_DIR", &folder).output().expect("trackway runs");
    let (is_success, _, talk) = command_result(&create);
    assert!(!is_success && talk.contains("hint: name a folder with a shorter path"), "{talk}");
    assert!(!test.fixture.path("trace").exists(), "nothing is left of what was refused");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 0);
}

/// RUN create in a folder, and into a folder, whose path is not UTF-8; record into one. EXPECT the
/// reason, and nothing created; the recording to be listed, and to be ended on request.
#[test]
fn a_folder_that_is_not_utf_8_is_refused_in_words() {
    let test = SessionTest::new("session-not-utf-8");
    let odd = test.fixture.path("").join(OsStr::from_bytes(b"x\xffy"));
    fs::create_dir(&odd).expect("a folder");
    let refuse = |create: &mut Command| {
        let (is_success, _, talk) = command_result(&create.output().expect("trackway runs"));
        assert!(!is_success && talk.contains("is not UTF-8"), "{talk}");
        assert!(talk.contains("the path /") && talk.contains("hint: "), "{talk}");
    };
    for line in ["session create web", "session create web -o t", "session create --foreground w"] {
        refuse(test.command(line).current_dir(&odd));
    }
    refuse(test.command("session create web -o").arg(&odd));
    assert_eq!(fs::read_dir(&odd).expect("a folder").count(), 0);
    assert!(test.list().is_empty());
    let mut record = test.command("record -o");
    record.arg(odd.join("trace")).args(["sleep", "60"]);
    let record = RunningProgram::start(&mut record);
    wait_for("the session", || !test.list().is_empty());
    let [one] = &test.list()[..] else { panic!("one session") };
    assert_eq!((&one["state"], &one["error"]), (&"recording".into(), &Value::Null));
    assert!(one["folder"].as_str().is_some_and(|it| it.ends_with("x\u{fffd}y/trace")), "{one}");
    let name = one["name"].as_str().expect("a name");
    for line in ["session status", "session stop", "session start", "session save"] {
        test.ok(&format!("{line} {name}"));
    }
    let talk = test.refused(&format!("print --follow {name}"));
    assert!(talk.contains("is not UTF-8") && talk.contains("hint: trackway print"), "{talk}");
    let (is_success, _, talk) = command_result(
        &test.command("session snapshot -o").arg(&odd).output().expect("trackway runs"),
    );
    assert!(!is_success && talk.contains("is not UTF-8"), "{talk}");
    send_signal(record.pid().cast_signed(), libc::SIGKILL);
    wait_for("its end", || test.list()[0]["state"] == "dead");
    let folder = test.list()[0]["folder"].clone();
    assert!(folder.as_str().is_some_and(|it| it.ends_with("x\u{fffd}y/trace")), "{folder}");
    test.ok(&format!("session destroy {name}"));
    assert!(test.list().is_empty());
    drop(record);
}

/// RUN create from a shell that has a file open. EXPECT the recorder not to have the file open.
#[test]
fn the_recorder_keeps_nothing_of_its_caller_open() {
    let test = SessionTest::new("session-descriptors");
    let trackway = trackway_tests::build_dir().join("trackway");
    let mut shell = test.fixture.command("sh");
    shell.args(["-c", "exec 7>kept; \"$0\" session create web -o trace"]).arg(trackway);
    let said = shell.output().expect("a shell");
    assert!(said.status.success(), "{said:?}");
    let folder = format!("/proc/{}/fd", test.recorder_of("web"));
    let links = fs::read_dir(folder).expect("/proc").flatten();
    let open: Vec<_> = links.filter_map(|link| fs::read_link(link.path()).ok()).collect();
    assert!(open.iter().any(|path| path.starts_with(test.fixture.path("trace"))), "{open:?}");
    assert!(!open.contains(&test.fixture.path("kept")), "{open:?}");
    test.ok("session destroy");
}

/// RUN status while the recorder has as many open files as it may. EXPECT a message at once,
/// because the wait may be long, and an answer as soon as file descriptors are free.
#[test]
fn clients_beyond_the_descriptor_limit_get_a_message() {
    if !trackway_tests::has("prlimit") {
        return report_skipped("there is no prlimit(1)");
    }
    let test = SessionTest::new("session-without-descriptors");
    test.ok("session create web --event nothing:* -o web");
    let pid = test.recorder_of("web");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("/proc").flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let last = open.filter_map(number).max().expect("some");
    let limit = format!("--nofile={}:", last + 3);
    let limited = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
    assert!(limited.expect("it runs").success());
    // Uses the remaining descriptors, and holes below the last one.
    let socket = test.fixture.run_dir().join("web.sock");
    let mut held = Vec::new();
    let why = "the session's recorder has too many open files";
    for _ in 0..60 {
        held.push(UnixStream::connect(&socket).expect("a connection"));
        if command_result(&test.run("session status web")).2.contains(why) {
            break;
        }
    }
    for line in ["status web", "stop web", "status web", "snapshot web"] {
        let talk = test.refused(&format!("session {line}"));
        assert!(talk.contains(why) && talk.contains("hint: raise its limit"), "{line}: {talk}");
    }
    drop(held);
    wait_for("descriptors", || command_result(&test.run("session status web")).0);
    test.ok("session destroy web");
}

/// RUN as root, in the run folder of another user: all queries; commands that make or remove
/// something; and a query that root's own socket answers. EXPECT an answer to queries only from
/// that user's recorder, and no other effect.
#[test]
fn root_asks_another_user_s_sessions() {
    if !is_root() || !trackway_tests::has("setpriv") {
        return report_skipped("not root: other users");
    }
    let test = SessionTest::new("session-root-asks");
    for path in [test.fixture.path(""), test.fixture.window_dir().to_owned()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).expect("ours");
    }
    let trackway = trackway_tests::build_dir().join("trackway");
    let (trackway, run) = (trackway.to_str().expect("text"), test.fixture.run_dir());
    let theirs = |line: &str| {
        let words: Vec<&str> = std::iter::once(trackway).chain(line.split(' ')).collect();
        command_result(&run_as_nobody(&test, &words))
    };
    let (trace, own) = (test.fixture.path("trace"), test.fixture.path("own"));
    let (is_success, _, talk) = theirs(&format!("session create web -o {}", trace.display()));
    if !is_success && talk.contains("Permission denied") {
        return report_skipped("what was built is not readable by other users");
    }
    assert!(is_success, "{talk}");
    assert_eq!(test.list()[0]["name"], "web");
    assert_eq!(test.status("web")["state"], "recording");
    test.ok("event off web nothing:*");
    test.ok("session stop web");
    for line in [&format!("session create mine -o {}", own.display()), "recover"] {
        let (_, _, talk) = command_result(&test.run(line));
        assert!(talk.contains("is not yours alone"), "{line}: {talk}");
    }
    assert!(!own.exists() && run.join("mine.lock").symlink_metadata().is_err());
    test.ok("session destroy web");
    // A path that leads root's commands to root's own session is refused.
    let mut ours = test.command("session create web -o own");
    let elsewhere = test.fixture.path("elsewhere");
    assert!(ours.env("TRACKWAY_RUN_DIR", &elsewhere).status().expect("it runs").success());
    std::os::unix::fs::symlink(elsewhere.join("web.sock"), run.join("web.sock")).expect("a link");
    let talk = test.refused("session destroy web");
    assert!(talk.contains("is not yours alone"), "{talk}");
    let mut ours = test.command("session destroy web");
    assert!(ours.env("TRACKWAY_RUN_DIR", &elsewhere).status().expect("it runs").success());
}

/// RUN trackway record under sudo(8); list, status and destroy under sudo. EXPECT them to find the
/// recording, which belongs to the invoking user.
#[test]
fn recordings_under_sudo_are_found_under_sudo() {
    if !is_root() {
        return report_skipped("not root: sudo");
    }
    let test = SessionTest::new("session-sudo");
    for path in [test.fixture.path(""), test.fixture.window_dir().to_owned()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("ours");
    }
    let (user, folder) = ("65531", Path::new("/tmp/trackway-65531"));
    let sudo = |line: &str| {
        let mut command = test.command(line);
        command.env("SUDO_UID", user).env("SUDO_GID", user).env("SUDO_USER", user);
        command.env_remove("TRACKWAY_RUN_DIR").env_remove("XDG_RUNTIME_DIR");
        command
    };
    let record = RunningProgram::start(&mut sudo("record -o trace -- sleep 60"));
    let name = format!("record-{}", record.pid());
    let list = || command_result(&sudo("session list").output().expect("trackway runs")).1;
    wait_for("the session", || list().contains(&name));
    let status =
        command_result(&sudo(&format!("session status {name}")).output().expect("it runs"));
    assert!(status.0 && status.1.contains(&name), "{status:?}");
    let (is_success, _, talk) =
        command_result(&sudo(&format!("session destroy {name}")).output().expect("it runs"));
    assert!(is_success, "{talk}");
    assert!(!list().contains(&name));
    record.signal(libc::SIGTERM);
    record.finish();
    // Only this test creates the folder.
    let _ = fs::remove_dir(folder);
}

/// RUN commands with a run folder that has another mode, is a link, or belongs to another user.
/// EXPECT them not to use it, and to report the reason.
#[test]
fn a_folder_of_sockets_that_others_get_to_is_not_used() {
    let test = SessionTest::new("session-folder");
    let run = test.fixture.run_dir();
    fs::create_dir(&run).expect("a folder");
    let refuse = |why: &str| {
        for line in ["session list", "session create web -o trace", "session status web"] {
            let talk = test.refused(line);
            assert!(talk.contains("is not yours alone"), "{why}: {line}: {talk}");
            assert!(talk.contains("TRACKWAY_RUN_DIR"), "{why}: {line}: {talk}");
        }
    };
    fs::set_permissions(&run, fs::Permissions::from_mode(0o770)).expect("ours");
    refuse("another mode");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).expect("ours");
    if is_root() {
        std::os::unix::fs::chown(&run, Some(65534), None).expect("root may");
        let talk = test.refused("session create web -o trace");
        assert!(talk.contains("is not yours alone"), "root makes nothing there: {talk}");
        assert!(test.list().is_empty(), "root may ask");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o720)).expect("root may");
        refuse("another owner, and others");
    }
    fs::remove_dir(&run).expect("empty");
    let elsewhere = test.fixture.path("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    std::os::unix::fs::symlink(&elsewhere, &run).expect("a link");
    refuse("a link");
    assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
    assert!(!test.fixture.path("trace").exists());
}
