//! Commands of the guides about sessions, which must do as documented.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use trackway_tests::steps::{RunningProgram, wait_for};
use trackway_tests::{build_dir, has, is_root, report_skipped, source_dir};

use crate::session_test::{SessionTest, command_result};

/// The program of the guides. `myapp serve` runs until it is ended.
const MYAPP_SOURCE: &str = r#"
#include <string.h>
#include <trackway/trackway.h>
#include <unistd.h>
TRACKWAY_EVENT(myapp, request, TRACKWAY_INFO, (str, path), (u32, status));
TRACKWAY_EVENT(myapp, noise, TRACKWAY_DEBUG, (u32, number));
TRACKWAY_EVENT(myapp, failure, TRACKWAY_ERR, (str, why));
int main(int count, char **arguments)
{
    const int serves = count > 1 && !strcmp(arguments[1], "serve");
    alarm(50);
    for (unsigned i = 0; serves || i < 10; i++) {
        trackway(myapp, request, "/index.html", 200);
        trackway(myapp, noise, i);
        trackway(myapp, failure, "no such file");
        usleep(1000);
    }
    return 0;
}
"#;

/// A guide, and the fixture in which the guide's commands are typed.
struct GuideTest {
    test: SessionTest,
    text: String,
    blocks: Vec<String>,
}

impl GuideTest {
    fn new(name: &str) -> Self {
        let text = fs::read_to_string(source_dir().join("docs/guides").join(name));
        let text = text.expect("a guide");
        let block = |rest: &str| rest.split("```").next().expect("an end").to_owned();
        let blocks = text.split("```sh\n").skip(1).map(block).collect();
        let test = SessionTest::new("session-guide");
        test.fixture.compile("myapp", MYAPP_SOURCE, true, &[]);
        Self { test, text, blocks }
    }

    /// Returns a shell in which the programs and libraries are installed.
    fn shell(&self, script: &str) -> Command {
        let mut shell = self.test.fixture.command("sh");
        let path = std::env::var("PATH").expect("a path");
        let (build, here) = (build_dir(), self.test.fixture.path(""));
        shell.env("PATH", format!("{}:{}:{path}", build.display(), here.display()));
        shell.env("LD_LIBRARY_PATH", build).args(["-e", "-c", script]);
        shell
    }

    /// Types the commands of a block; returns their output.
    fn run(&self, block: usize) -> String {
        self.type_in(&self.blocks[block])
    }

    fn type_in(&self, script: &str) -> String {
        let (is_success, text, talk) =
            command_result(&self.shell(script).output().expect("sh runs"));
        assert!(is_success, "{script}\n{text}{talk}");
        text
    }

    /// Starts the program, and waits until it has been recorded for a while.
    fn serve(&self, session: &str) -> RunningProgram {
        let program = RunningProgram::start(&mut self.shell("exec myapp serve"));
        let recorded = || self.test.status(session)["counts"]["recorded"].as_u64().unwrap_or(0);
        for _ in 0..2 {
            let before = recorded();
            wait_for("events", || recorded() > before);
        }
        program
    }
}

/// The commands of the README's session work with a program that emits.
#[test]
fn the_readmes_sessions_do_what_it_says() {
    let guide = GuideTest::new("sessions.md");
    let readme = fs::read_to_string(source_dir().join("README.md")).expect("README.md");
    let block = readme.split("```").find(|block| block.contains("trackway session create web"));
    let lines: Vec<&str> = block.expect("a block").lines().filter(|it| !it.is_empty()).collect();
    assert_eq!(lines.len(), 7);
    let mut program = None;
    let mut follower = None;
    for line in lines {
        match line.contains("--follow") {
            true => {
                follower = Some(RunningProgram::start(&mut guide.shell(&format!("exec {line}"))))
            }
            false => drop(guide.type_in(line)),
        }
        if program.is_none() {
            program = Some(guide.serve("web"));
        }
    }
    let (is_success, shown, _) = command_result(&follower.expect("a line for it").finish());
    assert!(is_success && shown.contains("myapp:request"), "{shown}");
}

#[test]
fn the_guide_of_sessions_does_what_it_says() {
    let guide = GuideTest::new("sessions.md");
    assert_eq!(guide.blocks.len(), 2);
    let shown = guide.run(0);
    assert!(shown.contains("session web: recording"), "{shown}");
    let shown = guide.run(1);
    assert!(shown.contains("lttng_ust_libc:malloc: "), "{shown}");
}

/// Every command of the right column of the table for LTTng users works.
#[test]
fn commands_that_replace_lttng_work() {
    let guide = GuideTest::new("sessions.md");
    let (_, table) = guide.text.split_once("## Commands for LTTng users").expect("a table");
    let mut follower = None;
    let mut count = 0;
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let typed = line.trim_end_matches('|').rsplit(" | ").next().expect("a column");
        for command in typed.split('`').skip(1).step_by(2).filter(|it| it.starts_with("trackway "))
        {
            let command = command.replace("DIR", "web-trace").replace("-- app", "-- myapp");
            let command = command.replace("PID", &std::process::id().to_string());
            match command.contains("--follow") {
                true => {
                    follower =
                        Some(RunningProgram::start(&mut guide.shell(&format!("exec {command}"))))
                }
                false => drop(guide.type_in(&command)),
            }
            count += 1;
        }
    }
    assert_eq!(count, 32);
    let (is_success, _, talk) = command_result(&follower.expect("a line for it").finish());
    assert!(is_success && talk.is_empty(), "{talk}");
    assert!(guide.test.list().is_empty());
}

#[test]
fn the_guide_of_disk_space_does_what_it_says() {
    let guide = GuideTest::new("disk-space.md");
    let [block] = &guide.blocks[..] else { panic!("one block") };
    let (create, rest) = block.split_once('\n').expect("more lines");
    guide.type_in(create);
    let _program = guide.serve("web");
    let shown = guide.type_in(rest);
    assert!(shown.contains("  files     the newest 8 of 64.0 MiB at most"), "{shown}");
    assert!(shown.contains("myapp:request"), "{shown}");
    let streams = crate::tracefiles::trace_file_sizes(&guide.test, "web-trace");
    assert!(!streams.is_empty() && streams.values().all(|files| files.contains_key(&0)));
}

#[test]
fn the_guide_of_flight_recorders_does_what_it_says() {
    let guide = GuideTest::new("flight-recorder.md");
    assert_eq!(guide.blocks.len(), 6);
    assert!(guide.run(0).contains("flight recorder"));
    let _program = guide.serve("flight");
    assert!(guide.run(1).contains("myapp:request"));
    assert!(guide.run(2).contains("myapp:request"));
    assert!(guide.run(3).contains("myapp:request"));
    guide.run(4);
    let names = guide.test.names("flight/snapshot-3");
    assert!(names.contains_key("myapp:failure"), "{names:?}");
    guide.run(5);
}

#[test]
fn the_guide_of_crashes_does_what_it_says() {
    let guide = GuideTest::new("crashes.md");
    assert_eq!(guide.blocks.len(), 4);
    guide.run(0);
    let notices = guide.test.status("flight")["notices"].to_string();
    if notices.contains("no snapshot on crash") {
        return report_skipped("this kernel does not say how processes end");
    }
    let program = guide.serve("flight");
    program.signal(libc::SIGSEGV);
    let pid = program.pid();
    program.finish();
    wait_for("a snapshot", || guide.test.status("flight")["snapshots"] == 1);
    let shown = guide.run(1);
    assert!(shown.contains(&format!("by=crash pid={pid} signal=11")), "{shown}");
    assert!(shown.contains(&format!("{{ vpid = {pid}, vtid = {pid} }}")), "{shown}");
    guide.run(2);
    guide.run(3);
}

#[test]
fn the_guide_of_changes_does_what_it_says() {
    let guide = GuideTest::new("changes.md");
    assert_eq!(guide.blocks.len(), 7);
    guide.run(0);
    let program = guide.serve("web");
    assert!(guide.run(1).contains("on        myapp:request"));
    let shown = guide.run(2);
    assert!(shown.contains("on        myapp:*\n"), "neither rules nor exclusions: {shown}");
    for block in 3..6 {
        guide.run(block);
    }
    assert_eq!(guide.test.status("web")["channels"][0]["spec"]["contexts"][1], "procname");
    let names = guide.test.names("web-trace");
    assert!(names["myapp:request"] > 0 && names.contains_key("myapp:noise"), "{names:?}");
    guide.run(6);
    drop(program);
}

/// `filters.rs` tests the effect of filters; this test checks that the guide's filters are
/// accepted, kept and shown.
#[test]
fn the_guide_of_filters_does_what_it_says() {
    let guide = GuideTest::new("filters.md");
    assert_eq!(guide.blocks.len(), 3);
    guide.run(0);
    let filters = |test: &SessionTest| {
        let spec = &test.status("web")["channels"][0]["spec"]["filters"];
        let filters = spec.as_array().into_iter().flatten();
        filters.filter_map(|filter| Some(filter.as_str()?.to_owned())).collect::<Vec<_>>()
    };
    let (first, last) = guide.blocks[2].split_once("trackway session save").expect("two parts");
    let shown = guide.run(1);
    assert!(shown.contains("  if        sample(1/1000)\n"), "{shown}");
    let changed =
        ["myapp:request: status >= 400 && rate(100/s)", "myapp:failure: why == \"*file*\""];
    assert_eq!(filters(&guide.test), changed);
    guide.type_in(first);
    assert_eq!(filters(&guide.test), [""; 0]);
    let file = guide.text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let path = guide.test.fixture.path("myapp.toml");
    fs::write(path, file.expect("a file")).expect("a file");
    guide.type_in("trackway session load myapp.toml && trackway session destroy myapp");
    guide.type_in(&format!("trackway session save{last}"));
    // The guide shows the message of this mistake.
    let wrong = "trackway record --filter 'stats >= 400' -- ./myapp";
    let (is_success, _, talk) = command_result(&guide.shell(wrong).output().expect("sh runs"));
    assert!(!is_success && guide.text.contains(&talk), "{talk}");
}

/// The first part uses another `/dev/shm`, of 64 MiB; the second part uses a process in private
/// namespaces as a container.
#[test]
fn the_guide_of_containers_does_what_it_says() {
    if !is_root() {
        return report_skipped("not root: namespaces");
    }
    let guide = GuideTest::new("containers.md");
    assert_eq!(guide.blocks.len(), 3);
    let inside = "mount -t tmpfs -o size=64m trackway-test /dev/shm\nunset TRACKWAY_WINDOW_DIR\n";
    let script = format!("{inside}{}", guide.blocks[0]);
    let mut namespaces = guide.test.fixture.command("unshare");
    namespaces.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let shell = guide.shell(&script);
    namespaces.arg(shell.get_program()).args(shell.get_args());
    namespaces.envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let (is_success, text, talk) = command_result(&namespaces.output().expect("unshare runs"));
    assert!(is_success && text.contains("myapp:request: "), "{text}{talk}");

    let mut container = guide.shell("exec unshare --pid --fork --kill-child sh -c 'myapp serve'");
    let container = RunningProgram::start(&mut container);
    let pid = container.pid();
    let child = || {
        let children = format!("/proc/{pid}/task/{pid}/children");
        fs::read_to_string(children).unwrap_or_default().trim().to_owned()
    };
    wait_for("the container", || !child().is_empty());
    let script = format!("PID={}\n{}", child(), guide.blocks[1]);
    guide.type_in(&script);
    let recorded = || guide.test.status("box")["counts"]["recorded"].as_u64().unwrap_or(0);
    wait_for("events", || recorded() > 0);
    guide.run(2);
    assert!(guide.test.names("box-trace")["myapp:request"] > 0);
}

#[test]
fn the_guide_of_several_users_does_what_it_says() {
    if !is_root() || !has("setpriv") {
        return report_skipped("only root has sessions over several users");
    }
    let guide = GuideTest::new("users.md");
    assert_eq!(guide.blocks.len(), 2);
    for path in [guide.test.fixture.window_dir(), guide.test.fixture.path("").as_path()] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o1777)).expect("ours");
    }
    guide.run(0);
    let user = "setpriv --reuid=65531 --regid=65531 --clear-groups";
    if guide
        .shell(&format!("{user} test -r {}", build_dir().join("libtrackway.so").display()))
        .status()
        .is_ok_and(|status| !status.success())
    {
        return report_skipped("what was built is not readable by other users");
    }
    // The user's window appears the first time; the second time it is recorded.
    guide.type_in(&format!("{user} myapp"));
    let is_there = || guide.test.status("all")["users"].to_string().contains("65531");
    wait_for("the user's window", is_there);
    guide.type_in(&format!("{user} myapp; myapp"));
    let shown = guide.run(1);
    assert!(shown.contains("  user      65531: ") && shown.contains("myapp:request"), "{shown}");
    assert!(guide.test.fixture.path("all-trace/ust/uid/65531/64-bit").exists());
}

#[test]
fn the_guide_of_systemd_does_what_it_says() {
    let guide = GuideTest::new("systemd.md");
    assert_eq!(guide.blocks.len(), 2);
    assert!(guide.run(0).contains("name = \"web\""));
    let by_hand = guide.text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    fs::write(guide.test.fixture.path("by-hand.toml"), by_hand.expect("a file")).expect("a file");
    guide.test.ok("session load by-hand.toml hand");
    let saved = guide.test.ok("session save hand").0;
    assert!(saved.contains("snapshot-on-crash = true") && saved.contains("\"1M\""), "{saved}");
    guide.test.ok("session destroy hand");
    assert!(guide.run(1).contains("session web: recording"));
    // The command of the unit; `tests/machines/systemd` tests the unit under systemd itself.
    let unit = fs::read_to_string(source_dir().join("packaging/systemd/trackway-session@.service"));
    let unit = unit.expect("a unit");
    assert!(unit.contains("trackway session create --foreground --load "), "{unit}");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=@PREFIX@/bin/"));
    let line = line.expect("a command").replace("%E/trackway/%i", "web").replace("%i", "web");
    let folders = || {
        let there = fs::read_dir(guide.test.fixture.path("")).expect("a folder");
        let names = there.map(|entry| entry.expect("a name").file_name());
        names.filter(|name| name.to_string_lossy().starts_with("trackway-web-")).count()
    };
    let before = folders();
    // The second start does not touch the recording of the first.
    for starts in 1..=2 {
        let service = RunningProgram::start(&mut guide.shell(&format!("exec {line}")));
        wait_for("the session", || guide.test.list().len() == 1);
        guide.type_in("myapp");
        service.signal(libc::SIGTERM);
        assert!(service.finish().status.success());
        assert_eq!(folders(), before + starts);
    }
}
