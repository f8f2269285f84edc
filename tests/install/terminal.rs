//! Text on terminals: hostile names are escaped, and colours appear where they are enabled.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use trackway_tests::Fixture;
use trackway_tests::terminal::{TerminalOutput, TerminalStreams, run_on_terminal};

/// Name with the characters that a terminal must not get: ESC and a sequence that would clear the
/// screen, bell, return, an 8-bit control sequence introducer as UTF-8, and a right-to-left
/// override.
const HOSTILE_NAME: &str = "evil\x1b[2J\x07\r\u{9b}31m\u{202e}name";
/// The name `HOSTILE` with its escapes.
const ESCAPED_NAME: &str = "evil\\u001b[2J\\u0007\\r\\u009b31m\\u202ename";

/// Writes a trace of CTF 1.8, as another tracer might write it, in which every name and every
/// string is hostile. The trace has one event, with a field whose value contains another 8-bit
/// control character.
fn write_hostile_trace(fixture: &Fixture, folder: &str, event: &str) -> PathBuf {
    let trace = fixture.path(folder);
    fs::create_dir_all(&trace).expect("a folder");
    let metadata = format!(
        "/* CTF 1.8 */
        typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
        typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
        trace {{ major = 1; minor = 8; byte_order = le; }};
        env {{ hostname = \"{HOSTILE_NAME}\"; domain = \"{HOSTILE_NAME}\";
            procname = \"{HOSTILE_NAME}\";
            tracer_name = \"{HOSTILE_NAME}\"; other = \"{HOSTILE_NAME}\"; }};
        clock {{ name = mono; description = \"{HOSTILE_NAME}\"; freq = 1000000000; }};
        typealias integer {{ size = 64; align = 8; signed = false; map = clock.mono.value; }}
            := time_t;
        stream {{ event.header := struct {{ uint8_t id; time_t timestamp; }}; }};
        event {{ name = \"{event}\"; id = 0; model.emf.uri = \"{HOSTILE_NAME}\";
            fields := struct {{ string text;
                enum : uint8_t {{ \"{HOSTILE_NAME}\" = 0 }} kind; }}; }};"
    );
    fs::write(trace.join("metadata"), metadata).expect("metadata");
    let mut stream = vec![0];
    stream.extend(1_000_000_007_u64.to_le_bytes());
    stream.extend(b"v\x1b[2J\x9b31m\0\0");
    fs::write(trace.join(format!("stream {HOSTILE_NAME}")), stream).expect("a stream");
    trace
}

fn run_on_whole_terminal(command: &mut Command) -> TerminalOutput {
    run_on_terminal(command, TerminalStreams::StdoutAndStderr)
}

/// Checks that the terminal output contains no control sequences except colours, and no line ends
/// except those of lines whose beginnings satisfy `is_line`.
fn assert_harmless(shown: &TerminalOutput, what: &str) {
    let text = std::str::from_utf8(&shown.bytes);
    let text = text.unwrap_or_else(|error| panic!("{what}: {error}: {shown:?}"));
    let plain = strip_colours(text);
    let harmful = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}')
    };
    assert!(!plain.contains(harmful), "{what}: {plain:?}");
}

/// Returns a text without the sequences that Trackway writes to control a terminal.
fn strip_colours(text: &str) -> String {
    // A progress line begins with this sequence.
    let mut plain = text.replace("\r\x1b[K", "");
    for colour in ["0", "1", "31", "32", "33", "36", "1;4", "4"] {
        plain = plain.replace(&format!("\x1b[{colour}m"), "");
    }
    plain
}

/// Returns `trackway` with these arguments.
fn trackway_command(fixture: &Fixture, words: &[&str], paths: &[&OsStr]) -> Command {
    let mut command = fixture.trackway(words);
    command.args(paths);
    command
}

#[test]
fn names_of_a_hostile_trace_control_no_terminal() {
    let fixture = Fixture::new("hostile-trace");
    let trace = write_hostile_trace(&fixture, "trace", HOSTILE_NAME);
    let forms: [&[&str]; 10] = [
        &["print"],
        &["print", "--fields", "all", "--names", "all"],
        &["print", "--symbolic"],
        &["print", "--format", "json"],
        &["print", "--format", "csv"],
        &["print", "--stats"],
        &["print", "--stats", "--format", "csv"],
        &["print", "--stats", "--format", "json"],
        &["print", "--details"],
        &["filter", "explain", "text == \"v\"", "--trace"],
    ];
    for form in forms {
        let shown =
            run_on_whole_terminal(&mut trackway_command(&fixture, form, &[trace.as_os_str()]));
        assert!(shown.status.success(), "{form:?}: {}", shown.text());
        assert_harmless(&shown, &format!("{form:?}"));
        let name = if form.contains(&"json") { "evil" } else { ESCAPED_NAME };
        assert!(shown.text().contains(name), "{form:?}: {}", shown.text());
    }
    // Names are also escaped if a terminal is given as the output file.
    let shown = run_on_whole_terminal(&mut trackway_command(
        &fixture,
        &["print", "-o", "/dev/stdout"],
        &[trace.as_os_str()],
    ));
    assert!(shown.text().contains(ESCAPED_NAME), "{}", shown.text());
    assert_harmless(&shown, "-o");
}

#[test]
fn a_pipe_gets_names_as_babeltrace2_has_them() {
    let fixture = Fixture::new("hostile-pipe");
    let trace = write_hostile_trace(&fixture, "trace", HOSTILE_NAME);
    let output = fixture.trackway(&[OsStr::new("print"), trace.as_os_str()]).output().expect("it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!(" {HOSTILE_NAME}: {{ text = ")), "{text:?}");
    if let Some(theirs) = fixture.babeltrace(&trace) {
        assert_eq!(output.stdout, theirs.stdout);
    }
}

/// RUN commands on files whose names contain line ends; each command writes a message. EXPECT that
/// no line of the output begins inside such a name.
#[test]
fn a_line_end_in_a_files_name_begins_no_line_on_a_terminal() {
    const FORGED_MESSAGE: &str = "one\ntrackway: forged";
    let fixture = Fixture::new("hostile-file-lines");
    let trace = write_hostile_trace(&fixture, FORGED_MESSAGE, "app:request");
    // The stream of this trace is cut off.
    let stream = trace.join(format!("stream {HOSTILE_NAME}"));
    let bytes = fs::read(&stream).expect("the stream");
    fs::write(trace.join(FORGED_MESSAGE), &bytes[..bytes.len() - 1]).expect("a stream");
    fs::write(fixture.path("file\ntrackway: forged"), "text").expect("a file");
    let file = fixture.path("file\ntrackway: forged");
    let folder = trace.as_os_str();
    let cases: [(&[&str], &OsStr); 8] = [
        (&["print"], folder),
        (&["print", "--stats"], folder),
        (&["trim", "-o", "out", "--begin", "0"], folder),
        (&["merge", "-o", "merged"], folder),
        (&["print"], file.as_os_str()),
        (&["filter", "explain", "--object"], file.as_os_str()),
        (&["session", "load"], file.as_os_str()),
        (&["recover"], file.as_os_str()),
    ];
    for (words, path) in cases {
        let shown = run_on_whole_terminal(&mut trackway_command(&fixture, words, &[path]));
        let text = strip_colours(&shown.text());
        assert!(
            !text.lines().any(|line| line.starts_with("trackway: forged")),
            "{words:?}: {text}"
        );
        assert!(text.contains("trackway: forged"), "{words:?}: {text}");
    }
    let mut record = trackway_command(&fixture, &["record", "-o"], &[file.as_os_str()]);
    let text = strip_colours(&run_on_whole_terminal(record.args(["--", "true"])).text());
    assert!(!text.lines().any(|line| line.starts_with("trackway: forged")), "{text}");
}

#[test]
fn a_line_end_in_a_name_begins_no_line_on_a_terminal() {
    let fixture = Fixture::new("hostile-lines");
    let trace = write_hostile_trace(&fixture, "trace", "one\\ntrackway: forged");
    for form in [&["print"][..], &["print", "--stats"], &["print", "--details"]] {
        let shown =
            run_on_whole_terminal(&mut trackway_command(&fixture, form, &[trace.as_os_str()]));
        let text = strip_colours(&shown.text());
        assert!(!text.lines().any(|line| line.starts_with("trackway: forged")), "{form:?}: {text}");
        assert!(text.contains("one\\ntrackway: forged"), "{form:?}: {text}");
    }
}

/// Returns commands with wrong arguments from the user; each fails, with the argument in its
/// message.
fn failing_commands(fixture: &Fixture) -> Vec<Command> {
    let hostile = OsStr::from_bytes(b"evil\x1b[2J\x9b31m\xff\xe2\x80\xae");
    let with = |words: &[&str]| trackway_command(fixture, words, &[hostile]);
    let trace = write_hostile_trace(fixture, "d", "app:request");
    let of_trace = |words: &[&str]| trackway_command(fixture, words, &[trace.as_os_str()]);
    vec![
        with(&["print"]),
        with(&["print", "--follow"]),
        with(&["print", "--stats"]),
        with(&["trim", "-o", "out"]),
        with(&["merge", "-o", "out"]),
        with(&["record", "--"]),
        trackway_command(
            fixture,
            &["record"],
            &[OsStr::new("--config"), hostile, OsStr::new("true")],
        ),
        with(&["recover"]),
        with(&["session", "load"]),
        with(&["filter", "explain", "x == 1", "--trace"]),
        with(&["filter", "explain", "--object"]),
        with(&["filter", "header", "app:request", "--trace"]),
        with(&["bench", "page"]),
        trackway_command(fixture, &["bench", "compare"], &[hostile, hostile]),
        trackway_command(fixture, &["session", "status", HOSTILE_NAME], &[]),
        trackway_command(fixture, &["session", "destroy", HOSTILE_NAME], &[]),
        trackway_command(fixture, &["session", "create", HOSTILE_NAME], &[]),
        trackway_command(fixture, &["event", "on", HOSTILE_NAME, "app:*"], &[]),
        trackway_command(
            fixture,
            &["record", "--event", "app:*", "--context", HOSTILE_NAME, "--", "true"],
            &[],
        ),
        of_trace(&["print", "--names", HOSTILE_NAME]),
        of_trace(&["print", "--begin", HOSTILE_NAME]),
        trackway_command(fixture, &["list", "--kernel", HOSTILE_NAME], &[]),
        trackway_command(fixture, &[HOSTILE_NAME], &[]),
        of_trace(&["print", "--filter", HOSTILE_NAME]),
        of_trace(&["print", "--format", HOSTILE_NAME]),
    ]
}

#[test]
fn names_that_are_arguments_control_no_terminal() {
    let fixture = Fixture::new("hostile-arguments");
    for mut command in failing_commands(&fixture) {
        let what = format!("{command:?}");
        let shown = run_on_whole_terminal(&mut command);
        assert!(!shown.status.success(), "{what}: {}", shown.text());
        assert_harmless(&shown, &what);
        assert!(shown.text().contains("evil"), "{}", shown.text());
    }
}

#[test]
fn a_hostile_process_and_its_recording_control_no_terminal() {
    let fixture = Fixture::new("hostile-process");
    let text = "#include <stdio.h>\n#include <sys/prctl.h>\n#include <trackway/trackway.h>\n\
         TRACKWAY_EVENT(app, request, TRACKWAY_INFO, (u32, n));\n\
         int main(void) {\n\
             prctl(PR_SET_NAME, \"e\\x1b[2J\\r\\n\\x9b\" \"31m\");\n\
             trackway(app, request, 1);\n\
             puts(\"there\"); fflush(stdout); getchar(); return 0; }\n";

    let program = fixture.compile("hostile", text, true, &[]);
    let trace = fixture.path(&format!("trace {HOSTILE_NAME}"));
    // The recording runs on a terminal, into a folder with a hostile name.
    let mut record = trackway_command(&fixture, &["record", "-o"], &[trace.as_os_str()]);
    record.args(["--context", "procname", "--"]).arg(&program);
    let shown = run_on_terminal(&mut record, TerminalStreams::Errors);
    assert!(shown.status.success(), "{}", shown.text());
    assert_harmless(&shown, "record");
    assert!(shown.text().contains(ESCAPED_NAME), "{}", shown.text());
    let shown =
        run_on_whole_terminal(&mut trackway_command(&fixture, &["print"], &[trace.as_os_str()]));
    assert_harmless(&shown, "print");
    assert!(shown.text().contains("app:request"), "{}", shown.text());
    // The program is listed while it runs.
    let mut child = fixture.command(&program);
    child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = child.spawn().expect("the program starts");
    let mut line = [0; 6];
    let output = child.stdout.as_mut().expect("its output");
    std::io::Read::read_exact(output, &mut line).expect("a line");
    let shown = run_on_whole_terminal(&mut trackway_command(&fixture, &["list"], &[]));
    drop(child.stdin.take());
    child.wait().expect("it ends");
    assert_harmless(&shown, "list");
    let text = strip_colours(&shown.text());
    assert!(text.contains("e\\u001b[2J\\r\\n"), "{text}");
}

#[test]
fn a_session_in_a_hostile_folder_controls_no_terminal() {
    let fixture = Fixture::new("hostile-session");
    let folder = fixture.path(HOSTILE_NAME);
    let commands: [&[&str]; 6] = [
        &["session", "list"],
        &["session", "list", "--format", "json"],
        &["session", "status", "s"],
        &["session", "snapshot", "s"],
        &["doctor"],
        &["session", "destroy", "s"],
    ];
    let mut create = trackway_command(
        &fixture,
        &["session", "create", "s", "--flight-recorder", "-o"],
        &[folder.as_os_str()],
    );
    let shown = run_on_whole_terminal(&mut create);
    assert!(shown.status.success(), "{}", shown.text());
    assert_harmless(&shown, "create");
    assert!(shown.text().contains(ESCAPED_NAME), "{}", shown.text());
    for words in commands {
        let shown = run_on_whole_terminal(&mut trackway_command(&fixture, words, &[]));
        assert_harmless(&shown, &format!("{words:?}"));
    }
}

/// The beginning of a control sequence for colours.
const COLOUR_PREFIX: &str = "\x1b[";

#[test]
fn terminals_get_colours_unless_somebody_wants_none() {
    let fixture = Fixture::new("colours");
    let trace = write_hostile_trace(&fixture, "trace", "app:request");
    let print = |words: &[&str]| {
        let mut command = trackway_command(&fixture, &["print"], &[trace.as_os_str()]);
        command.args(words);
        command
    };
    let name = "\x1b[1mapp:request\x1b[0m: { text = ";
    let shown = run_on_whole_terminal(&mut print(&[]));
    assert!(shown.text().contains(name), "{}", shown.text());
    assert_harmless(&shown, "print");
    for (variable, value, has_colours) in [
        ("NO_COLOR", "1", false),
        ("NO_COLOR", "", true),
        ("TERM", "dumb", false),
        ("TERM", "xterm-256color", true),
    ] {
        let shown = run_on_whole_terminal(print(&[]).env(variable, value));
        let text = shown.text();
        assert_eq!(text.contains(COLOUR_PREFIX), has_colours, "{variable}={value}: {text}");
        assert!(strip_colours(&text).contains(ESCAPED_NAME), "{text}");
    }
    let shown = run_on_whole_terminal(print(&["--color", "always"]).env("NO_COLOR", "1"));
    assert!(shown.text().contains(name), "{}", shown.text());
    let shown = run_on_whole_terminal(&mut print(&["--color=never"]));
    assert!(!shown.text().contains(COLOUR_PREFIX), "{}", shown.text());
    let wrong = print(&["--color", "sometimes"]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn pipes_get_colours_only_if_they_are_asked_for() {
    let fixture = Fixture::new("colours-pipe");
    let trace = write_hostile_trace(&fixture, "trace", HOSTILE_NAME);
    let print = |words: &[&str]| -> Output {
        let mut command = trackway_command(&fixture, &["print"], &[trace.as_os_str()]);
        command.args(words).env_remove("NO_COLOR").env("TERM", "xterm").output().expect("it runs")
    };
    let plain = print(&[]).stdout;
    assert_eq!(plain, print(&["--color", "never"]).stdout);
    let coloured = String::from_utf8(print(&["--color", "always"]).stdout).expect("UTF-8");
    // Coloured output is for terminals: names are escaped as on a terminal.
    assert!(coloured.contains(&format!("\x1b[1m{ESCAPED_NAME}\x1b[0m: ")), "{coloured:?}");
    let shown = TerminalOutput { status: print(&[]).status, bytes: coloured.into_bytes() };
    assert_harmless(&shown, "--color always");
    // A file gets the same output as a pipe.
    let file = fixture.path("file");
    print(&["-o", file.to_str().expect("UTF-8")]);
    assert_eq!(fs::read(&file).expect("the file"), plain);
    for words in [&["doctor"][..], &["list"], &["session", "list"], &["--help"], &["record", "-h"]]
    {
        let output = fixture.trackway(words).env("TERM", "xterm").output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.contains(&0x1b), "{words:?}: {}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn errors_losses_and_help_have_colours_of_their_own() {
    let fixture = Fixture::new("colours-kinds");
    let shown = run_on_whole_terminal(&mut trackway_command(&fixture, &["print", "/nowhere"], &[]));
    assert!(shown.text().starts_with("\x1b[31mtrackway:\x1b[0m "), "{}", shown.text());
    let shown = run_on_whole_terminal(&mut trackway_command(
        &fixture,
        &["session", "save", "s", "-o", "/"],
        &[],
    ));
    assert!(shown.text().contains("\x1b[31mtrackway:\x1b[0m "), "{}", shown.text());
    let shown =
        run_on_whole_terminal(&mut trackway_command(&fixture, &["print", "--nothing"], &[]));
    assert!(shown.text().starts_with("\x1b[31merror:\x1b[0m "), "{}", shown.text());
    for words in [&["--help"][..], &["record", "--help"]] {
        let shown = run_on_whole_terminal(&mut trackway_command(&fixture, words, &[]));
        assert!(shown.text().contains(COLOUR_PREFIX), "{}", shown.text());
        assert_harmless(&shown, "help");
        for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let shown =
                run_on_whole_terminal(trackway_command(&fixture, words, &[]).env(plain.0, plain.1));
            assert!(!shown.text().contains(COLOUR_PREFIX), "{}", shown.text());
        }
        let shown = run_on_whole_terminal(&mut trackway_command(
            &fixture,
            &[words, &["--color=never"]].concat(),
            &[],
        ));
        assert!(!shown.text().contains(COLOUR_PREFIX), "{}", shown.text());
        let piped = fixture.trackway(&[&["--color=always"], words].concat()).output().expect("it");
        assert!(String::from_utf8_lossy(&piped.stdout).contains(COLOUR_PREFIX));
    }
    // There are more events than the smallest buffers can hold.
    let text = "#include <trackway/trackway.h>\n\
        TRACKWAY_EVENT(app, many, TRACKWAY_INFO, (u64, n));\n\
        int main(void) { for (unsigned long n = 0; n < 3000000; n++) trackway(app, many, n); }\n";
    let program = fixture.compile("many", text, true, &[]);
    let mut record =
        trackway_command(&fixture, &["record", "--buffer-size", "8K", "-o", "lost", "--"], &[]);
    let shown = run_on_terminal(record.arg(program), TerminalStreams::Errors);
    let text = shown.text();
    assert!(text.contains(" lost\x1b[0m"), "losses are in colour: {text}");
    let shown =
        run_on_whole_terminal(&mut trackway_command(&fixture, &["print", "--stats", "lost"], &[]));
    assert!(shown.text().contains("\x1b[33mlost: "), "{}", shown.text());
    let shown = run_on_terminal(
        &mut trackway_command(&fixture, &["print", "lost"], &[]),
        TerminalStreams::Errors,
    );
    assert!(shown.text().contains("\x1b[33mWARNING: Tracer discarded "), "{}", shown.text());
}

#[test]
fn no_pager_is_started() {
    let fixture = Fixture::new("no-pager");
    let trace = write_hostile_trace(&fixture, "trace", "app:request");
    let marker = fixture.path("paged");
    let pager = format!("touch {}", marker.display());
    let mut print = trackway_command(&fixture, &["print"], &[trace.as_os_str()]);
    let shown = run_on_whole_terminal(print.env("PAGER", &pager).env("TRACKWAY_PAGER", &pager));
    assert!(shown.status.success() && !marker.exists(), "{}", shown.text());
}
