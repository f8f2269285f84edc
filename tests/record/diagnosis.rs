//! A recording without an event reports the reason: the commands name the processes that have
//! events and cannot be recorded, and rules that match nothing.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use trackway_tests::{Fixture, copy_program, has, report_skipped};

/// Prints a line when it runs, and executes its event when its input ends.
const WAITING_SOURCE: &str = "#include <stdio.h>\n#include <trackway/trackway.h>\n\
    TRACKWAY_EVENT(mute, event, TRACKWAY_INFO);\n\
    int main(void) { puts(\"ready\"); fflush(stdout); while (getchar() != EOF) {}\n\
    trackway(mute, event); return 0; }\n";

/// Prints a line when it runs; for each line of its input, it executes its event and prints the
/// line.
const EXECUTING_SOURCE: &str = "#include <stdio.h>\n#include <trackway/trackway.h>\n\
    TRACKWAY_EVENT(loud, event, TRACKWAY_DEBUG, (u32, n));\n\
    int main(void) { char line[80]; setvbuf(stdout, NULL, _IOLBF, 0); puts(\"ready\");\n\
    while (fgets(line, sizeof line, stdin)) { trackway(loud, event, 1); fputs(line, stdout); }\n\
    return 0; }\n";

/// A running program, which is killed when this value is dropped.
struct StartedProgram(Child, BufReader<ChildStdout>);

impl StartedProgram {
    /// Starts a program; returns when the program has printed its line.
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut running = Self(child, output);
        running.expect("ready\n");
        running
    }

    /// Waits until the program has printed this line.
    fn expect(&mut self, expected: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("a line");
        assert_eq!(line, expected);
    }

    /// Lets the program of [`EXECUTING_SOURCE`] execute its event.
    fn execute(&mut self) {
        let input = self.0.stdin.as_mut().expect("its input");
        input.write_all(b"once\n").expect("a line");
        self.expect("once\n");
    }

    /// Returns the description of the process in reasons.
    fn named(&self, program: &Path) -> String {
        let name = program.file_name().expect("a name").to_string_lossy().into_owned();
        format!("{} {name}", self.0.id())
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compile_waiting(fixture: &Fixture, name: &str, flags: &[&str]) -> PathBuf {
    fixture.compile(name, WAITING_SOURCE, false, flags)
}

/// Returns the reasons in this member of a command's JSON, each with its processes.
fn read_reasons(fixture: &Fixture, words: &[&str], member: &str) -> Vec<(String, Vec<u64>)> {
    let output = fixture.trackway(&[words, &["--format", "json"]].concat()).output();
    let value: Value = serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON");
    let pid = |process: &Value| process["pid"].as_u64().expect("a process id");
    let of = |reason: &Value| {
        let code = reason["reason"].as_str().expect("a word").to_owned();
        (code, reason["processes"].as_array().expect("a list").iter().map(pid).collect())
    };
    value[member].as_array().expect("reasons").iter().map(of).collect()
}

/// Returns the reasons that `trackway session status s` reports for `processes`, without those for
/// other processes.
fn status_reasons(fixture: &Fixture, processes: &[&StartedProgram]) -> Vec<(String, Vec<u64>)> {
    let ours: Vec<u64> = processes.iter().map(|process| process.0.id().into()).collect();
    let mut found = read_reasons(fixture, &["session", "status", "s"], "no-events-because");
    found.iter_mut().for_each(|(_, pids)| pids.retain(|pid| ours.contains(pid)));
    found.retain(|(_, pids)| !pids.is_empty());
    found
}

/// Runs a command; returns both its output streams.
fn run_for_output(fixture: &Fixture, words: &[&str]) -> String {
    let output = fixture.trackway(words).output().expect("trackway runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).expect("text")
}

#[test]
fn every_command_names_processes_that_have_the_events_but_not_the_library() {
    let fixture = Fixture::new("diagnosis");
    let dynamic = compile_waiting(&fixture, "mute-dynamic", &[]);
    let fixed = compile_waiting(&fixture, "mute-static", &["-static"]);
    let without = StartedProgram::start(fixture.command(&dynamic));
    let static_one = StartedProgram::start(fixture.command(&fixed));
    let names = [without.named(&dynamic), static_one.named(&fixed)];
    let create = ["session", "create", "s", "-o", "trace", "--event", "mute:*"];
    run_for_output(&fixture, &create);
    for (words, member) in
        [(&["session", "status", "s"][..], "no-events-because"), (&["list"], "unlisted")]
    {
        let output = fixture.trackway(&[words, &["--format", "json"]].concat()).output();
        let value: serde_json::Value =
            serde_json::from_slice(&output.expect("it runs").stdout).expect("JSON");
        let reasons = value[member].as_array().expect("reasons");
        for (code, pid) in [("without-library", without.0.id()), ("static", static_one.0.id())] {
            let is_it = |reason: &serde_json::Value| {
                let mut processes = reason["processes"].as_array().expect("a list").iter();
                reason["reason"] == code && processes.any(|process| process["pid"] == pid)
            };
            assert!(reasons.iter().any(is_it), "{words:?} lacks {code} of {pid}: {value:#}");
        }
    }
    let commands: [&[&str]; 4] = [
        &["session", "status", "s"],
        &["session", "destroy", "s"],
        &["list"],
        &["doctor", "--format", "json"],
    ];
    for words in commands {
        let messages = run_for_output(&fixture, words);
        let reasons =
            ["such events, but not the library: ", "such events, but are static programs: "];
        for (reason, name) in reasons.iter().zip(&names) {
            let is_named = |text: &str| text.contains(reason) && text.contains(name.as_str());
            assert!(is_named(&messages), "{words:?} lacks '{reason}{name}': {messages}");
        }
        assert!(messages.contains("-ltrackway"), "{words:?}: {messages}");
    }
}

#[test]
fn a_misspelt_rule_is_reported_with_the_pattern_that_was_meant() {
    let fixture = Fixture::new("diagnosis-rule");
    let program = compile_waiting(&fixture, "mute-rule", &[]);
    let _running = StartedProgram::start(fixture.command(&program));
    run_for_output(&fixture, &["session", "create", "s", "-o", "trace", "--event", "mute:evnt"]);
    let messages = run_for_output(&fixture, &["session", "destroy", "s"]);
    assert!(messages.contains("did you mean 'mute:event'?"), "{messages}");
}

#[test]
fn a_command_that_runs_on_without_an_event_is_explained_once() {
    let fixture = Fixture::new("diagnosis-silence");
    let program = compile_waiting(&fixture, "mute-command", &["-static"]);
    let mut record = fixture.trackway(&["record", "-o", "trace", "--"]);
    record.arg(&program).stderr(Stdio::piped());
    let mut running = StartedProgram::start(record);
    let errors = BufReader::new(running.0.stderr.take().expect("its messages"));
    let mut messages = Vec::new();
    for line in errors.lines() {
        let line = line.expect("text");
        // The command runs until the reason is printed.
        if line.contains("no event for ") {
            drop(running.0.stdin.take());
        }
        messages.push(line);
    }
    let count = |text: &str| messages.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("no event for "), 1, "{messages:?}");
    assert_eq!(count("but are static programs: "), 1, "{messages:?}");
    assert!(fs::metadata(fixture.path("trace")).is_ok());
}

#[test]
fn a_process_whose_events_pass_no_filter_is_not_said_to_execute_none() {
    let fixture = Fixture::new("diagnosis-filter");
    let program = fixture.compile("loud-filter", EXECUTING_SOURCE, true, &[]);
    let mut running = StartedProgram::start(fixture.command(&program));
    let create = ["session", "create", "s", "-o", "trace", "--event", "loud:*", "--filter"];
    run_for_output(&fixture, &[&create[..], &["loud:event: n > 1000000"]].concat());
    running.execute();
    let pid = u64::from(running.0.id());
    let expected = vec![("nothing-passed-filters".to_owned(), vec![pid])];
    assert_eq!(status_reasons(&fixture, &[&running]), expected);
    let messages = run_for_output(&fixture, &["session", "destroy", "s"]);
    let sentence = format!("no event of these processes has passed the filters: {pid} loud");
    assert!(messages.contains(&sentence) && !messages.contains("executed"), "{messages}");
}

#[test]
fn a_process_whose_events_are_of_another_level_has_no_selected_event() {
    let fixture = Fixture::new("diagnosis-level");
    let program = fixture.compile("loud-level", EXECUTING_SOURCE, true, &[]);
    let mut running = StartedProgram::start(fixture.command(&program));
    fs::write(fixture.path("s.toml"), LEVELS_CONFIG).expect("a file");
    run_for_output(&fixture, &["session", "load", "s.toml"]);
    running.execute();
    let found = read_reasons(&fixture, &["session", "status", "s"], "no-events-because");
    assert_eq!(found, [("no-such-event".to_owned(), vec![])]);
}

/// A session without the level of [`EXECUTING_SOURCE`].
const LEVELS_CONFIG: &str = "name = \"s\"\noutput = \"trace\"\n[[channel]]\n\
    on = [{ pattern = \"loud:event\", at-least = \"warning\" }]\n";

#[test]
fn a_process_that_the_process_rules_exclude_is_not_said_to_execute_none() {
    let fixture = Fixture::new("diagnosis-pid");
    let [program, silent] = ["loud-pid", "silent-pid"].map(|name| {
        let text = if name == "loud-pid" { EXECUTING_SOURCE } else { SILENT_SOURCE };
        fixture.compile(name, text, true, &[])
    });
    let mut a = StartedProgram::start(fixture.command(&program));
    let b = StartedProgram::start(fixture.command(&program));
    let c = StartedProgram::start(fixture.command(&silent));
    let [pid_of_a, pid_of_b, pid_of_c] = [&a, &b, &c].map(|one| one.0.id().to_string());
    let mut diagnosis = |words: &[&str]| {
        let create = ["session", "create", "s", "-o", "trace", "--event", "loud:*"];
        run_for_output(&fixture, &[&create[..], words].concat());
        a.execute();
        let found = status_reasons(&fixture, &[&a, &b, &c]);
        run_for_output(&fixture, &["session", "destroy", "s"]);
        found
    };
    let [a_id, b_id] = [&pid_of_a, &pid_of_b].map(|pid| pid.parse::<u64>().expect("a number"));
    let not_executed = |pid| vec![("not-executed".to_owned(), vec![pid])];
    assert_eq!(diagnosis(&["--pid", &pid_of_b]), not_executed(b_id));
    let mut both = vec![a_id, b_id];
    both.sort_unstable();
    let excluded = vec![("excluded".to_owned(), both)];
    assert_eq!(diagnosis(&["--pid", &pid_of_c]), excluded);
    assert_eq!(diagnosis(&["--executable", "nobody-runs-this"]), excluded);
}

/// Prints a line, has no event, and ends at the end of its input.
const SILENT_SOURCE: &str = "#include <stdio.h>\n\
    int main(void) { puts(\"ready\"); fflush(stdout); while (getchar() != EOF) {} return 0; }\n";

#[test]
fn a_stopped_session_without_an_event_reports_the_stop_and_processes_without_the_library() {
    let fixture = Fixture::new("diagnosis-stopped");
    let without = compile_waiting(&fixture, "mute-without", &[]);
    let with = fixture.compile("mute-with", WAITING_SOURCE, true, &[]);
    let without = StartedProgram::start(fixture.command(&without));
    let with = StartedProgram::start(fixture.command(&with));
    run_for_output(
        &fixture,
        &["session", "create", "s", "--no-start", "-o", "trace", "--event", "mute:*"],
    );
    let ours = [u64::from(without.0.id()), u64::from(with.0.id())];
    // Programs of other tests also run, and have other reasons.
    let codes = || -> Vec<String> {
        let found =
            read_reasons(&fixture, &["session", "status", "s"], "no-events-because").into_iter();
        let is_ours = |(code, pids): &(String, Vec<u64>)| {
            code == "stopped" || pids.iter().any(|pid| ours.contains(pid))
        };
        found.filter(is_ours).map(|(code, _)| code).collect()
    };
    assert_eq!(codes(), ["stopped", "without-library"]);
    run_for_output(&fixture, &["session", "start", "s"]);
    assert_eq!(codes(), ["without-library", "not-executed"]);
    run_for_output(&fixture, &["session", "stop", "s"]);
    let ended = run_for_output(&fixture, &["session", "destroy", "s"]);
    assert!(ended.contains("the session 's' was stopped"), "{ended}");
    assert!(ended.contains(&format!("{} mute-without", without.0.id())), "{ended}");
}

#[test]
fn a_process_in_another_window_is_named_as_such() {
    let fixture = Fixture::new("diagnosis-window");
    let other = Fixture::new("diagnosis-other-window");
    let program = fixture.compile("loud-window", EXECUTING_SOURCE, true, &[]);
    let mut outside = StartedProgram::start(other.command(&program));
    let inside = StartedProgram::start(fixture.command(&program));
    run_for_output(&fixture, &["session", "create", "s", "-o", "trace", "--event", "loud:*"]);
    outside.execute();
    let found = status_reasons(&fixture, &[&outside, &inside]);
    let [outside, inside] = [&outside, &inside].map(|one| vec![u64::from(one.0.id())]);
    let expected = [("other-window", outside), ("not-executed", inside.clone())];
    assert_eq!(found, expected.map(|(code, pids)| (code.to_owned(), pids)));
    // A command with another window than the session's gives no reasons.
    let mut status = fixture.trackway(&["session", "status", "s"]);
    let output = status.env("TRACKWAY_WINDOW_DIR", other.window_dir()).output();
    let text = String::from_utf8(output.expect("it runs").stdout).expect("text");
    assert!(text.contains("session s") && !text.contains("no events"), "{text}");
    let messages = run_for_output(&fixture, &["session", "destroy", "s"]);
    let hint = "give session and programs the same TRACKWAY_WINDOW_DIR";
    assert!(messages.contains("use another window") && messages.contains(hint), "{messages}");
}

#[test]
fn a_command_whose_events_pass_no_filter_is_explained_so() {
    let fixture = Fixture::new("diagnosis-record");
    let program = fixture.compile("loud-record", EXECUTING_SOURCE, true, &[]);
    let mut record = fixture.trackway(&["record", "-o", "trace", "--filter", "n > 1000000", "--"]);
    record.arg(&program).stderr(Stdio::piped());
    let mut running = StartedProgram::start(record);
    running.execute();
    let errors = BufReader::new(running.0.stderr.take().expect("its messages"));
    let mut messages = String::new();
    for line in errors.lines().map_while(Result::ok) {
        if line.contains("no event for ") {
            drop(running.0.stdin.take());
        }
        messages += &line;
    }
    let count = |text: &str| messages.matches(text).count();
    assert_eq!(count("no event of these processes has passed the filters: "), 1, "{messages}");
    assert_eq!(count("executed none"), 0, "{messages}");
}

#[test]
fn a_process_inside_valgrind_is_not_called_static() {
    if !has("valgrind") {
        return report_skipped("valgrind is not installed");
    }
    let fixture = Fixture::new("diagnosis-valgrind");
    let program = fixture.compile("loud-valgrind", EXECUTING_SOURCE, true, &[]);
    let mut valgrind = fixture.command("valgrind");
    valgrind.args(["--tool=none", "-q"]).arg(&program);
    let running = StartedProgram::start(valgrind);
    run_for_output(&fixture, &["session", "create", "s", "-o", "trace", "--event", "loud:*"]);
    let pid = u64::from(running.0.id());
    assert_eq!(status_reasons(&fixture, &[&running]), [("not-executed".to_owned(), vec![pid])]);
    let unlisted = read_reasons(&fixture, &["list"], "unlisted");
    assert!(unlisted.iter().all(|(_, pids)| !pids.contains(&pid)), "{unlisted:?}");
    let listed = run_for_output(&fixture, &["list"]);
    assert_eq!(listed.matches(&pid.to_string()).count(), 1, "{listed}");
    let doctor = run_for_output(&fixture, &["doctor", "--format", "json"]);
    assert!(!doctor.contains(&format!("{pid} ")), "{doctor}");
}

#[test]
fn a_process_that_has_a_file_mapped_whose_name_is_not_text_is_named() {
    let fixture = Fixture::new("diagnosis-name");
    let program = compile_waiting(&fixture, "mute-name", &[]);
    let other = fixture.path("").join(OsStr::from_bytes(b"mute-\xff"));
    copy_program(&program, &other);
    let running = StartedProgram::start(fixture.command(&other));
    run_for_output(&fixture, &["session", "create", "s", "-o", "trace", "--event", "mute:*"]);
    let pid = u64::from(running.0.id());
    assert_eq!(status_reasons(&fixture, &[&running]), [("without-library".to_owned(), vec![pid])]);
    let messages = run_for_output(&fixture, &["session", "destroy", "s"]);
    assert!(messages.contains(&format!("{pid} mute-\u{fffd}")), "{messages}");
}
