//! Help pages fit a screen, and a failed command prints the next command to type.
//!
//! Main invariant: the commands that Trackway suggests work when they are pasted into a shell.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

use trackway_tests::{Fixture, build_dir, has, has_kernel_events, is_root, report_skipped};

/// A screen of 40 lines, less the prompt.
const SCREEN_LINES_MAX: usize = 39;
const TERMINAL_COLUMNS: usize = 80;
/// The user `nobody` on Debian.
const OTHER_USER: u32 = 65_534;

fn decode_utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Returns the output of `trackway WORDS` in 80 columns.
fn help_output(fixture: &Fixture, words: &[&str]) -> String {
    let output = fixture.trackway(words).env("COLUMNS", "80").output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {}", decode_utf8(&output.stderr));
    assert!(output.stderr.is_empty(), "{words:?}: {}", decode_utf8(&output.stderr));
    decode_utf8(&output.stdout)
}

/// Returns the options that a page names.
fn option_names(page: &str) -> BTreeSet<String> {
    let words = page.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

#[test]
fn all_ways_to_ask_for_help_print_one_page_that_fits_a_screen() {
    let fixture = Fixture::new("help-pages");
    for path in [&[][..], &["record"], &["print"], &["session"], &["session", "create"], &["list"]]
    {
        let short = help_output(&fixture, &[path, &["--help"]].concat());
        assert_eq!(short, help_output(&fixture, &[path, &["-h"]].concat()), "{path:?}");
        assert_eq!(short, help_output(&fixture, &[&["help"], path].concat()), "{path:?}");
        let lines = short.lines().count();
        assert!(lines <= SCREEN_LINES_MAX, "{path:?} has {lines} lines:\n{short}");
        for line in short.lines() {
            assert!(line.chars().count() <= TERMINAL_COLUMNS, "{path:?}: {line}");
        }
        assert!(short.contains("\nExamples:\n  "), "{short}");
        let full = help_output(&fixture, &[path, &["--help-all"]].concat());
        assert_eq!(
            full,
            help_output(&fixture, &[&["help"], path, &["--help-all"]].concat()),
            "{path:?}"
        );
        let (short, all) = (option_names(&short), option_names(&full));
        let missing: Vec<_> = short.difference(&all).collect();
        assert!(missing.is_empty(), "{path:?} --help-all lacks {missing:?}");
    }
    let create = help_output(&fixture, &["session", "help", "create"]);
    assert_eq!(create, help_output(&fixture, &["session", "create", "--help"]));
    let wrong = fixture.trackway(&["help", "recrod"]).output().expect("it runs");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(decode_utf8(&wrong.stderr).contains("recrod"), "{}", decode_utf8(&wrong.stderr));
}

/// Manual pages and completions contain every option of `--help-all`.
#[test]
fn manual_pages_and_completions_keep_every_option() {
    let fixture = Fixture::new("help-manual");
    let folder = fixture.path("man");
    help_output(&fixture, &["man", "--output", folder.to_str().expect("UTF-8")]);
    for (path, file) in [
        (&["record"][..], "trackway-record.1"),
        (&["print"], "trackway-print.1"),
        (&["session", "create"], "trackway-session-create.1"),
    ] {
        let manual = fs::read_to_string(folder.join(file)).expect("a manual page");
        let described = option_names(&manual.replace("\\-", "-").replace("\\fB", " "));
        let completed = option_names(&help_output(&fixture, &["completions", "zsh"]));
        let short = option_names(&help_output(&fixture, &[path, &["--help"]].concat()));
        let full = help_output(&fixture, &[path, &["--help-all"]].concat());
        let declared = full.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let declared: BTreeSet<String> = declared.flat_map(option_names).collect();
        assert!(declared.len() > short.len(), "{path:?}: nothing is hidden");
        for option in &declared {
            assert!(described.contains(option), "{file} lacks {option}");
            assert!(completed.contains(option), "completions lack {option}");
        }
    }
}

/// `trackway bench` is another program, with separate help, manual pages and completions.
#[test]
fn bench_is_the_other_program_in_help_manual_and_completions() {
    let fixture = Fixture::new("help-bench");
    assert!(help_output(&fixture, &["--help"]).contains("starts trackway-bench"));
    let short = help_output(&fixture, &["bench", "--help"]);
    assert!(
        short.contains("Usage: trackway bench") && short.contains("\nExamples:\n  "),
        "{short}"
    );
    assert_eq!(short, help_output(&fixture, &["help", "bench"]));
    let compare = help_output(&fixture, &["help", "bench", "compare"]);
    assert_eq!(compare, help_output(&fixture, &["bench", "compare", "--help"]));
    let folder = fixture.path("man");
    let folder = folder.to_str().expect("UTF-8");
    help_output(&fixture, &["man", "--output", folder]);
    let written = |name: &str| fixture.path("man").join(name).is_file();
    assert!(written("trackway.1") && !written("trackway-bench.1"));
    help_output(&fixture, &["bench", "man", "--output", folder]);
    assert!(written("trackway-bench.1") && written("trackway-bench-compare.1"));
    if !has("bash") {
        return report_skipped("bash is not installed");
    }
    let trackway = build_dir().join("trackway").display().to_string();
    let complete = |words: &str, last: &str| {
        let script = format!(
            "source <('{trackway}' completions bash); COMP_WORDS=('{trackway}' {words} '{last}'); \
             COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _trackway_or_bench '{trackway}' '{last}' \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = fixture.command("bash").args(["-c", &script]).output().expect("it runs");
        assert!(output.stderr.is_empty(), "{}", decode_utf8(&output.stderr));
        decode_utf8(&output.stdout)
    };
    assert_eq!(complete("bench", "tracep"), "tracepoint\n");
    assert_eq!(complete("bench compare", "--trac"), "--tracers\n");
    assert_eq!(complete("", "benc"), "bench\n");
}

#[test]
fn bench_without_its_program_says_where_that_comes_from() {
    let fixture = Fixture::new("help-no-bench");
    let alone = fixture.path("trackway");
    fs::copy(build_dir().join("trackway"), &alone).expect("a copy");
    let bench = |path: &Path| {
        let mut command = fixture.command(&alone);
        command.args(["--color", "never", "bench", "--list"]).env("PATH", path);
        command.output().expect("it runs")
    };
    let output = bench(Path::new("/nonexistent"));
    let messages = decode_utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.starts_with("trackway: cannot find trackway-bench"), "{messages}");
    assert!(messages.contains("\nhint: ") && messages.contains("make install"), "{messages}");
    // The command finds the program in PATH.
    let output = bench(&build_dir());
    assert!(output.status.success(), "{}", decode_utf8(&output.stderr));
    assert!(decode_utf8(&output.stdout).contains("tracepoint"), "{}", decode_utf8(&output.stdout));
}

#[test]
fn trackway_alone_names_the_first_commands() {
    let fixture = Fixture::new("help-alone");
    for words in [&[][..], &["--color", "never"]] {
        let output = fixture.trackway(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let messages = decode_utf8(&output.stderr);
        assert!(messages.starts_with("trackway: no command given"), "{messages}");
        assert!(messages.contains("trackway --help"), "{messages}");
        let commands = suggested_commands(&messages);
        assert_eq!(commands.len(), 3, "{messages}");
        // The suggested commands work one after the other, with a program and a folder instead of
        // the examples.
        std::os::unix::fs::symlink("/bin/true", fixture.path("app")).unwrap_or_default();
        for command in commands {
            let command = command.replace("trackway print DIR", "trackway print trackway-*");
            let output = run_shell_line(&fixture, &command, None);
            assert!(output.status.success(), "{command}: {}", decode_utf8(&output.stderr));
        }
    }
    // A command without its subcommand prints its page.
    let output = fixture.trackway(&["session"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        decode_utf8(&output.stderr).contains("trackway session create"),
        "{}",
        decode_utf8(&output.stderr)
    );
}

/// Returns the commands in a message: indented lines, each with its effect after a `#`.
fn suggested_commands(messages: &str) -> Vec<String> {
    let lines = messages.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter_map(|line| line.split_once("  # "));
    lines.map(|(command, _)| command.trim_end().to_owned()).collect()
}

/// Runs a line of shell in the fixture's folder, as another user if one is given.
fn run_shell_line(fixture: &Fixture, line: &str, user: Option<u32>) -> Output {
    let mut command = match user {
        Some(uid) => {
            let mut command = fixture.command("setpriv");
            command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
            command.args(["--clear-groups", "--inh-caps=-all"]).args(["sh", "-c", line]);
            command.env("TRACKWAY_RUN_DIR", fixture.path("run-of-other"));
            command
        }
        None => {
            let mut command = fixture.command("sh");
            command.args(["-c", line]);
            command
        }
    };
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", build_dir().display()));
    command.current_dir(fixture.path("")).output().expect("it runs")
}

/// Returns the user without rights to kernel events: this one (`Some(None)`), or another one.
/// Returns `None`, after printing the reason, if root cannot become another user.
fn find_unprivileged_user(fixture: &Fixture) -> Option<Option<u32>> {
    if !is_root() {
        return Some(None);
    }
    for path in [fixture.window_dir(), Path::new(&fixture.path(""))] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o1777)).expect("ours");
    }
    let library = build_dir().join("libtrackway.so");
    let reads = format!("test -r '{}'", library.display());
    if !has("setpriv") || !run_shell_line(fixture, &reads, Some(OTHER_USER)).status.success() {
        report_skipped("other users cannot read what was built, or setpriv is missing");
        return None;
    }
    Some(Some(OTHER_USER))
}

#[test]
fn old_spellings_of_options_work_and_are_in_no_help() {
    let fixture = Fixture::new("help-spellings");
    let run = |line: &str| {
        let output = fixture.trackway(&line.split(' ').collect::<Vec<_>>()).output();
        let output = output.expect("trackway runs");
        decode_utf8(&[output.stdout, output.stderr].concat())
    };
    for (line, refusal) in [
        ("print --on a:* missing", "missing"),
        ("record --on", "--event"),
        ("session create s --on", "--event"),
        ("record --kernel-via neither", "--kernel-backend"),
        ("session create s --kernel-via neither", "--kernel-backend"),
        ("record --system=yes", "--system-wide"),
    ] {
        let messages = run(line);
        assert!(messages.contains(refusal), "{line}: {messages}");
        assert!(!messages.contains("unexpected argument"), "{line}: {messages}");
    }
    for line in ["record --help-all", "session create --help-all", "print --help-all"] {
        let help = run(line);
        for spelling in ["--on ", "--on,", "--kernel-via", "--system "] {
            assert!(!help.contains(spelling), "{line} has '{spelling}'");
        }
    }
}

#[test]
fn without_the_rights_of_root_the_suggested_commands_work() {
    let fixture = Fixture::new("help-rights");
    let Some(user) = find_unprivileged_user(&fixture) else { return };
    for (typed, status, effect) in [
        ("trackway record --kernel 'sched_*' -o trace -- true", 125, "trace"),
        (
            "trackway record --kernel sched_switch --system-wide --kernel-only -o only -- true",
            125,
            "",
        ),
        ("trackway record --kernel sched_switch --kernel-backend tracefs -o by -- true", 125, ""),
        ("trackway record --kernel sched_switch", 125, ""),
        ("trackway session create one --kernel sched_switch -o session", 2, "session"),
        ("trackway list --kernel 'sched_*'", 2, ""),
        ("trackway record --user root -o mine -- true", 125, "mine"),
        ("trackway session create mine --user all -o all", 2, "all"),
    ] {
        let refused = run_shell_line(&fixture, typed, user);
        let messages = decode_utf8(&refused.stderr);
        if refused.status.success() {
            return report_skipped("this user may record kernel events");
        }
        assert_eq!(refused.status.code(), Some(status), "{typed}: {messages}");
        let commands = suggested_commands(&messages);
        let [as_root, programs, doctor @ ..] = &commands[..] else { panic!("{typed}: {messages}") };
        assert!(as_root.starts_with("sudo "), "{messages}");
        let (_, arguments) = typed.split_once(' ').expect("arguments");
        assert!(as_root.ends_with(arguments), "{as_root}");
        let output = run_shell_line(&fixture, programs, user);
        assert!(output.status.success(), "{programs}: {}", decode_utf8(&output.stderr));
        assert!(fixture.path(effect).exists(), "{programs} made no {effect}");
        // The exit status of doctor depends on its checks.
        assert_eq!(doctor.len(), usize::from(typed.contains("--kernel ")), "{messages}");
        for doctor in doctor {
            let output = run_shell_line(&fixture, doctor, user);
            assert!(
                decode_utf8(&output.stdout).contains("tracefs"),
                "{}",
                decode_utf8(&output.stdout)
            );
        }
        run_shell_line(&fixture, "trackway session destroy --all", user);
    }
    // Root gets no list of commands: sudo would not help.
    if is_root() && has_kernel_events(&fixture) {
        let line = "trackway record --kernel 'sched_switch' -o as-root -- true";
        let output = run_shell_line(&fixture, line, None);
        assert!(output.status.success(), "{}", decode_utf8(&output.stderr));
        assert!(
            suggested_commands(&decode_utf8(&output.stderr)).is_empty(),
            "{}",
            decode_utf8(&output.stderr)
        );
    }
}

/// docs/guides/kernel.md lists these capabilities for services.
#[test]
fn capabilities_are_enough_to_record_kernel_events() {
    let fixture = Fixture::new("help-capabilities");
    if !has_kernel_events(&fixture) {
        return;
    }
    let Some(Some(user)) = find_unprivileged_user(&fixture) else { return };
    let capabilities = "+bpf,+perfmon,+dac_read_search,+sys_admin";
    let mut command: Command = fixture.command("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg("--clear-groups");
    command.arg(format!("--inh-caps={capabilities}"));
    command.arg(format!("--ambient-caps={capabilities}")).arg(build_dir().join("trackway"));
    command.args(["record", "--kernel", "syscalls:openat", "-o"]).arg(fixture.path("trace"));
    command.env("TRACKWAY_RUN_DIR", fixture.path("run-of-other"));
    let output = command.args(["--", "ls", "/"]).output().expect("it runs");
    assert!(output.status.success(), "{}", decode_utf8(&output.stderr));
    let events = fixture.print(&fixture.path("trace"));
    assert!(events.contains("syscall_entry_openat"), "{events}");
    assert_eq!(fs::metadata(fixture.path("trace")).expect("the trace").uid(), user);
}
