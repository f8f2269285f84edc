//! Environments of traced programs: full, small and missing file systems, limits, damaged windows,
//! suspended recorders. The program runs on, and losses are reported.
//!
//! Mounts are made in private namespaces of child processes and end with them. No signal that
//! Trackway causes may end a program, so every exit status is checked.
//!
//! Longer than 600 lines: each test is an environment, for the same program.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use trackway_tests::steps::{RunningProgram, Steps, parse_steps, send_signal, wait_for};
use trackway_tests::{Fixture, Recording, is_root, report_skipped, skip_if_lockless};

/// Environment in which a program of steps runs.
struct EnvironmentTest {
    fixture: Fixture,
    steps: Steps,
    program: PathBuf,
    trace: PathBuf,
}

impl EnvironmentTest {
    fn new(name: &str) -> Self {
        let fixture = Fixture::new(name);
        let steps = Steps::new(&fixture, "steps");
        let program = fixture.compile_file("lives/processes.c", true, &[]);
        let trace = fixture.path("trace");
        Self { fixture, steps, program, trace }
    }

    /// Prepares another recording.
    fn again(self) -> Self {
        let steps = Steps::new(&self.fixture, "steps");
        let trace = self.fixture.path("trace-again");
        Self { steps, trace, ..self }
    }

    /// Moves the trace to another folder.
    fn with_trace(self, trace: PathBuf) -> Self {
        Self { trace, ..self }
    }

    /// Returns `trackway record OPTIONS -- PROGRAM ARGUMENTS`, through the wrapper if one is given.
    fn recorder(&self, wrapper: &[&str], options: &[&str], arguments: &[&str]) -> Command {
        let mut command = vec![self.program.to_str().expect("a path of text")];
        command.extend(arguments);
        let recorder = self.fixture.recorder(&self.steps, &self.trace, options, &command);
        wrap_command(wrapper, recorder)
    }

    fn record(&self, wrapper: &[&str], options: &[&str], arguments: &[&str]) -> Recording {
        let output =
            RunningProgram::start(&mut self.recorder(wrapper, options, arguments)).finish();
        self.recording(output)
    }

    fn recording(&self, output: Output) -> Recording {
        let recording = Recording::new(self.trace.clone(), output);
        println!("{}", describe_recording(&recording)); // shown where the test fails
        recording
    }

    /// Runs the program without a recorder; the program must behave in the same way.
    fn runs_alone(&self, wrapper: &[&str]) {
        let steps = Steps::new(&self.fixture, "steps-alone");
        let mut alone = self.fixture.command(&self.program);
        alone.args(["steps", "10", "7"]).env("STEPS", steps.path());
        let output = RunningProgram::start(&mut wrap_command(wrapper, alone)).finish();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(7), "{}: {messages}", output.status);
        assert_eq!(messages, "");
        assert_eq!(steps.counts().completed(), 10);
    }

    /// Checks that a recording is refused: status 125, a reason, and no command.
    fn is_refused(&self, wrapper: &[&str], options: &[&str], reason: &str) {
        let recording = self.record(wrapper, options, &["steps", "10"]);
        assert_eq!(recording.output.status.code(), Some(125), "{}", describe_recording(&recording));
        assert!(
            recording.messages().contains(reason),
            "{reason}: {}",
            describe_recording(&recording)
        );
        assert_eq!(
            self.steps.counts().emitted(),
            0,
            "the command ran: {}",
            describe_recording(&recording)
        );
    }

    /// Makes a recording with the program's own exit status, whose counts must add up.
    fn is_recorded(&self, wrapper: &[&str], options: &[&str], count: &str) -> Recording {
        let recording = self.record(wrapper, options, &["steps", count, "7"]);
        assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
        self.steps.check(&self.fixture, &recording);
        recording
    }

    /// Returns the path of the window.
    fn window(&self) -> PathBuf {
        let mut found = fs::read_dir(self.fixture.window_dir()).expect("the window's folder");
        found.next().expect("a window").expect("its entry").path()
    }
}

fn describe_recording(recording: &Recording) -> String {
    format!("{}: {}", recording.output.status, recording.messages())
}

/// Returns `command` run by a wrapper, with the same environment and folder.
fn wrap_command(wrapper: &[&str], command: Command) -> Command {
    let Some((first, rest)) = wrapper.split_first() else { return command };
    let mut all = Command::new(first);
    all.args(rest).arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        all.current_dir(dir);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => all.env(key, value),
            None => all.env_remove(key),
        };
    }
    all
}

/// Returns the wrapper that runs a command in a private mount namespace, after the shell commands
/// `setup`; or `None`, after printing the reason, if that is impossible.
fn namespace_wrapper(setup: &str) -> Option<Vec<String>> {
    let options: &[&str] = if is_root() { &["-m"] } else { &["-r", "-m"] };
    let probe = Command::new("unshare").args(options).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        report_skipped("mount namespaces cannot be made here");
        return None;
    }
    let mut wrapper = vec!["unshare".to_owned()];
    wrapper.extend(options.iter().map(|&option| option.to_owned()));
    let script = format!("{setup}\nexec \"$@\"");
    wrapper.extend(["sh", "-ec", &script, "sh"].map(str::to_owned));
    Some(wrapper)
}

/// Returns such a wrapper with a tmpfs with these options as the window folder.
fn tmpfs_wrapper(options: &str) -> Option<Vec<String>> {
    namespace_wrapper(&format!(
        "mount -t tmpfs -o {options} trackway-test-window \"$TRACKWAY_WINDOW_DIR\""
    ))
}

fn wrapper_words(wrapper: &[String]) -> Vec<&str> {
    wrapper.iter().map(String::as_str).collect()
}

#[test]
fn a_file_system_without_room_for_a_window_is_said() {
    let test = EnvironmentTest::new("no-room");
    let Some(wrapper) = tmpfs_wrapper("size=1M") else { return };
    test.runs_alone(&wrapper_words(&wrapper));
    test.is_refused(&wrapper_words(&wrapper), &[], "No space");
}

#[test]
fn a_size_that_does_not_fit_is_refused_before_the_command_starts() {
    let test = EnvironmentTest::new("no-size");
    let Some(wrapper) = tmpfs_wrapper("size=8M") else { return };
    test.is_refused(&wrapper_words(&wrapper), &["--buffer-size", "16M"], "pace");
}

/// Starts a busy program with its window on `wrapper`'s file system, and calls `meddle` with the
/// program's root folder. Then keeps the recorder from draining until events must be lost.
fn check_lost_events(name: &str, wrapper: &[String], options: &[&str], meddle: impl Fn(&Path)) {
    /// Number of events that exceeds the buffers of all these tests.
    const EVENTS: u64 = 100_000;
    let test = EnvironmentTest::new(name);
    let mut recorder = test.recorder(&wrapper_words(wrapper), options, &["busy", "0"]);
    let recorder = RunningProgram::start(&mut recorder);
    test.steps.wait_ready(1);
    let root = PathBuf::from(format!("/proc/{}/root", test.steps.pid()));
    let folder = test.fixture.window_dir().strip_prefix("/").expect("an absolute path");
    meddle(&root.join(folder));
    // The recorder is suspended for much less than its lease.
    recorder.signal(libc::SIGSTOP);
    test.steps.wait_more(EVENTS);
    recorder.signal(libc::SIGCONT);
    test.steps.wait_more(EVENTS);
    test.steps.stop();
    let recording = test.recording(recorder.finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    test.steps.check(&test.fixture, &recording);
    assert!(
        recording.summary.lost > 0,
        "the test lost nothing: {}",
        describe_recording(&recording)
    );
}

#[test]
fn a_small_file_system_loses_events_and_says_how_many() {
    if skip_if_lockless("all memory must be there from the start") {
        return;
    }
    let Some(wrapper) = tmpfs_wrapper("size=4M") else { return };
    check_lost_events("small", &wrapper, &[], |_| {});
}

#[test]
fn a_file_system_that_fills_up_meanwhile_costs_events_not_the_program() {
    let Some(wrapper) = tmpfs_wrapper("size=12M") else { return };
    check_lost_events("fills", &wrapper, &["--buffer-size", "1M"], |folder| {
        let mut filler = fs::File::create(folder.join("filler")).expect("a file in there");
        let blocks = 0..100_000;
        let filled = blocks
            .take_while(|_| std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok())
            .count();
        assert!(filled > 0 && filled < 100_000, "the file system did not fill up: {filled}");
    });
}

#[test]
fn the_real_dev_shm_may_be_64_mib_and_noexec() {
    let test = EnvironmentTest::new("dev-shm");
    let setup = "mount -t tmpfs -o size=64M,noexec,nosuid,nodev trackway-test-shm /dev/shm\n\
                 unset TRACKWAY_WINDOW_DIR";
    let Some(wrapper) = namespace_wrapper(setup) else { return };
    let recording = test.is_recorded(&wrapper_words(&wrapper), &[], "20000");
    assert_eq!(recording.summary.lost, 0, "{}", describe_recording(&recording));
}

#[test]
fn without_dev_shm_the_program_runs_and_the_recorder_says_why_it_does_not() {
    let test = EnvironmentTest::new("absent");
    let gone = ["env", "TRACKWAY_WINDOW_DIR=/nonexistent/trackway-test-none"];
    test.runs_alone(&gone);
    test.is_refused(&gone, &[], "No such file");
    let Some(wrapper) = tmpfs_wrapper("size=16M,ro") else { return };
    test.runs_alone(&wrapper_words(&wrapper));
    test.is_refused(&wrapper_words(&wrapper), &[], "Read-only");
}

#[test]
fn a_truncated_window_is_replaced() {
    for bytes in [0, 4096, 2 << 20] {
        let test = EnvironmentTest::new("truncated");
        // An earlier recording made the window, larger than the next one needs: a window is not
        // compacted while a process has it open.
        test.is_recorded(&[], &[], "1000");
        let file = fs::OpenOptions::new().write(true).open(test.window()).expect("the window");
        let test = test.again();
        test.is_recorded(&[], &[], "1000");
        let before = fs::metadata(test.window()).expect("the window").len();
        assert!(before > 2 << 20, "{before}");
        file.set_len(bytes).expect("it is ours");
        test.runs_alone(&[]);
        let test = test.again();
        let recording = test.is_recorded(&[], &[], "1000");
        assert!(recording.messages().contains("truncated"), "{}", describe_recording(&recording));
    }
}

/// Puts an invalid file in the place of the window.
type ObstructWindow = fn(&Path);

#[test]
fn files_that_cannot_be_windows_are_refused_with_a_message() {
    let spoils: [(&str, ObstructWindow); 3] = [
        ("Is a directory", |path| fs::create_dir(path).expect("a folder")),
        ("symbolic links", |path| {
            let target = path.with_file_name("target");
            write_private_file(&target, &vec![0; 4 << 20]);
            std::os::unix::fs::symlink(target, path).expect("a link");
        }),
        ("others may open it", |path| {
            write_private_file(path, &vec![0; 4 << 20]);
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("it is ours");
        }),
    ];
    for (reason, spoil) in spoils {
        let test = EnvironmentTest::new("no-window");
        let path = window_path(&test.fixture);
        spoil(&path);
        test.runs_alone(&[]);
        test.is_refused(&[], &[], reason);
        assert!(path.symlink_metadata().is_ok(), "{reason}: it was removed");
    }
}

#[test]
fn a_damaged_window_is_put_aside_and_said() {
    let spoils: [ObstructWindow; 2] = [
        |path| write_private_file(path, &vec![0x5a; 4 << 20]),
        |path| {
            let mut bytes = vec![0; 4 << 20];
            bytes[..8].copy_from_slice(b"trackway");
            bytes[8] = 99; // a version that is not of this file's name
            write_private_file(path, &bytes);
        },
    ];
    for spoil in spoils {
        let test = EnvironmentTest::new("damaged");
        spoil(&window_path(&test.fixture));
        test.runs_alone(&[]);
        let recording = test.is_recorded(&[], &[], "1000");
        assert!(recording.messages().contains("damaged"), "{}", describe_recording(&recording));
        let files = fs::read_dir(test.fixture.window_dir()).expect("the folder").count();
        assert_eq!(files, 2, "the damaged one was kept");
    }
}

#[test]
fn the_window_of_another_user_is_refused() {
    if !is_root() {
        return report_skipped("only root can give files away");
    }
    let test = EnvironmentTest::new("foreign");
    let path = window_path(&test.fixture);
    write_private_file(&path, &vec![0; 4 << 20]);
    std::os::unix::fs::chown(&path, Some(65534), Some(65534)).expect("root may");
    test.runs_alone(&[]);
    test.is_refused(&[], &[], "window");
}

fn write_private_file(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// Returns the path of the future window: a program makes its window when it starts.
fn window_path(fixture: &Fixture) -> PathBuf {
    let mut list = fixture.trackway(&["record", "-q", "-o", "first", "--", "true"]);
    let output = list.output().expect("trackway runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut found = fs::read_dir(fixture.window_dir()).expect("the window's folder");
    let path = found.next().expect("a window").expect("its entry").path();
    fs::remove_file(&path).expect("it is ours");
    path
}

#[test]
fn address_space_may_be_limited() {
    if skip_if_lockless("who cannot map all can write nothing") {
        return;
    }
    for limit in ["--as=67108864", "--as=268435456", "--as=1073741824"] {
        let test = EnvironmentTest::new("address-space");
        let mut recorder = test.fixture.recorder(
            &test.steps,
            &test.trace,
            &[],
            &["prlimit", limit, test.program.to_str().unwrap(), "steps", "20000", "7"],
        );
        let recording = test.recording(RunningProgram::start(&mut recorder).finish());
        assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
        test.steps.check(&test.fixture, &recording);
    }
    // The buffers exceed the program's address space: it records as much as it can map, and counts
    // the other events.
    let test = EnvironmentTest::new("address-space-lost");
    let program = test.program.to_str().unwrap();
    let command = ["prlimit", "--as=41943040", program, "steps", "900000", "7"];
    let options = ["--buffer-size", "32M"];
    let mut recorder = test.fixture.recorder(&test.steps, &test.trace, &options, &command);
    let recording = test.recording(RunningProgram::start(&mut recorder).finish());
    assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
    test.steps.check(&test.fixture, &recording);
    assert!(recording.summary.lost > 0, "{}", describe_recording(&recording));
    // The recorder has the same resource limit as the program.
    let test = EnvironmentTest::new("address-space-all");
    test.runs_alone(&["prlimit", "--as=33554432"]);
    test.is_recorded(&["prlimit", "--as=1073741824"], &[], "20000");
}

#[test]
fn file_sizes_of_the_program_may_be_limited() {
    for limit in ["--fsize=0", "--fsize=1048576"] {
        let test = EnvironmentTest::new("file-size");
        test.runs_alone(&["prlimit", limit]);
        let mut recorder = test.fixture.recorder(
            &test.steps,
            &test.trace,
            &[],
            &["prlimit", limit, test.program.to_str().unwrap(), "fork", "20", "7"],
        );
        let recording = test.recording(RunningProgram::start(&mut recorder).finish());
        assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
        test.steps.check(&test.fixture, &recording);
        assert_eq!(recording.summary.lost, 0, "{}", describe_recording(&recording));
    }
}

#[test]
fn file_sizes_of_the_recorder_may_be_limited() {
    let test = EnvironmentTest::new("file-size-0");
    test.is_refused(&["prlimit", "--fsize=0"], &[], "too large");
    // The limit allows the window, but not a stream.
    let test = EnvironmentTest::new("file-size-16m");
    let limited = ["prlimit", "--fsize=16777216", "taskset", "-c", "0"];
    let recording = test.record(&limited, &[], &["steps", "900000", "7"]);
    assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
    assert_eq!(test.steps.counts().completed(), 900_000, "{}", describe_recording(&recording));
    assert!(recording.messages().contains("too large"), "{}", describe_recording(&recording));
}

#[test]
fn file_sizes_of_commands_that_write_may_be_limited() {
    let test = EnvironmentTest::new("file-size-commands");
    test.is_recorded(&[], &[], "20000");
    let trace = test.trace.to_str().expect("a path of text");
    let output = test.fixture.path("output");
    for command in [&["trim"][..], &["merge"], &["print"]] {
        let mut writer = test.fixture.trackway(command);
        writer.args([trace, "-o"]).arg(&output);
        let written =
            wrap_command(&["prlimit", "--fsize=65536"], writer).output().expect("it runs");
        let messages = String::from_utf8_lossy(&written.stderr);
        assert_eq!(written.status.code(), Some(2), "{command:?}: {}: {messages}", written.status);
        assert!(messages.contains("File too large"), "{command:?}: {messages}");
        assert_eq!(output.exists(), command == ["print"], "{command:?}: {messages}");
    }
}

#[test]
fn the_command_has_the_signals_that_it_would_have_had() {
    let fixture = Fixture::new("signals");
    let grep = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    let alone = fixture.command(grep[0]).args(&grep[1..]).output().expect("grep runs");
    let recording = fixture.record(&["-q"], &grep);
    // Signals 1 to 31: the C library uses signals 32 and 33 itself.
    let sets = |output: &[u8]| -> Vec<u64> {
        let text = String::from_utf8_lossy(output);
        let sets = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        sets.map(|set| u64::from_str_radix(set, 16).expect("a set") & 0x7fff_ffff).collect()
    };
    assert_eq!(sets(&alone.stdout).len(), 3);
    assert_eq!(sets(&recording.output.stdout), sets(&alone.stdout));
}

#[test]
fn descriptors_of_the_recorder_may_be_few() {
    for limit in ["--nofile=8", "--nofile=16"] {
        let test = EnvironmentTest::new("descriptors");
        let recording = test.record(&["prlimit", limit], &[], &["steps", "1000", "7"]);
        if recording.output.status.code() == Some(125) {
            assert!(
                recording.messages().contains("Too many open files"),
                "{}",
                describe_recording(&recording)
            );
            assert_eq!(test.steps.counts().emitted(), 0);
        } else {
            assert_eq!(
                recording.output.status.code(),
                Some(7),
                "{}",
                describe_recording(&recording)
            );
            test.steps.check(&test.fixture, &recording);
        }
    }
}

#[test]
fn a_full_disk_is_said_and_the_program_runs_on() {
    let test = EnvironmentTest::new("disk-full");
    let output = test.fixture.path("output");
    fs::create_dir(&output).expect("a folder");
    let setup = format!("mount -t tmpfs -o size=256k trackway-test-out '{}'", output.display());
    let Some(wrapper) = namespace_wrapper(&setup) else { return };
    let test = test.with_trace(output.join("trace"));
    let recording = test.record(&wrapper_words(&wrapper), &[], &["steps", "200000", "7"]);
    assert!(recording.messages().contains("No space"), "{}", describe_recording(&recording));
    assert!(recording.output.status.code().is_some(), "{}", describe_recording(&recording));
    assert_ne!(recording.output.status.code(), Some(0), "{}", describe_recording(&recording));
    assert_eq!(test.steps.counts().completed(), 200_000, "the program ran to its end");
}

#[test]
fn an_output_folder_that_cannot_be_made_is_refused_before_the_command_starts() {
    let test = EnvironmentTest::new("no-output");
    let file = test.fixture.path("file");
    fs::write(&file, "").expect("a file");
    let test = test.with_trace(file.join("trace"));
    test.is_refused(&[], &[], "file/trace");
    let Some(wrapper) = namespace_wrapper("mount -t tmpfs -o ro trackway-test-out /mnt") else {
        return;
    };
    let test = test.with_trace("/mnt/trace".into());
    test.is_refused(&wrapper_words(&wrapper), &[], "/mnt/trace");
}

/// Random numbers for the writer of garbage: xorshift, equal in every run.
struct GarbageNumbers(u64);

impl GarbageNumbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn a_scribbled_window_ends_neither_the_program_nor_the_recorder() {
    // Garbage everywhere; in the fixed part; in tables and control lines of the first session.
    for (seed, from, to) in
        [(1, 0, u64::MAX), (2, 0, 4096), (3, 4096, 2 << 20), (4, 2 << 20, 5 << 19)]
    {
        let test = EnvironmentTest::new("scribbled");
        let mut recorder = RunningProgram::start(&mut test.recorder(&[], &[], &["busy", "0"]));
        test.steps.wait_ready(1);
        let file = fs::OpenOptions::new().write(true).open(test.window()).expect("the window");
        let to = to.min(file.metadata().expect("its length").len());
        let mut random = GarbageNumbers(seed * 0x9e37_79b9);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(700) && recorder.runs() {
            let at = from + random.next() % (to - from - 8);
            let value = match random.next() % 4 {
                0 => 0,
                1 => u64::MAX,
                2 => 1 << (random.next() % 64),
                _ => random.next(),
            };
            file.write_all_at(&value.to_le_bytes(), at & !7).expect("the window is ours");
        }
        test.steps.stop();
        let output = recorder.finish();
        let recording = test.recording(output);
        assert!(
            recording.output.status.signal().is_none(),
            "seed {seed}: {}",
            describe_recording(&recording)
        );
        let counts = test.steps.counts();
        assert_eq!(counts.started, counts.returned, "seed {seed}: the program ended early");
        assert!(recording.messages().contains("trackway: "), "seed {seed}: it says something");
        assert!(
            !recording.messages().contains("panicked"),
            "seed {seed}: {}",
            describe_recording(&recording)
        );
        // The remaining trace can be read, or a reason is given.
        let mut print = test.fixture.trackway(&["print"]);
        let print = RunningProgram::start(print.arg(&test.trace)).finish();
        assert!(
            print.status.success() || !print.stderr.is_empty(),
            "seed {seed}: {}",
            print.status
        );
        assert!(print.status.signal().is_none(), "seed {seed}: {}", print.status);
    }
}

#[test]
fn a_window_truncated_under_the_recorder_ends_the_recording_with_a_message() {
    let test = EnvironmentTest::new("cut");
    let script = "truncate -s 0 \"$TRACKWAY_WINDOW_DIR\"/trackway-*; sleep 0.3; exit 7";
    let mut recorder = test.fixture.recorder(&test.steps, &test.trace, &[], &["sh", "-c", script]);
    let recording = test.recording(RunningProgram::start(&mut recorder).finish());
    assert!(recording.output.status.signal().is_none(), "{}", describe_recording(&recording));
    assert!(recording.messages().contains("truncated"), "{}", describe_recording(&recording));
}

#[test]
fn a_recorder_that_stood_still_goes_on_recording() {
    let test = EnvironmentTest::new("stopped");
    let recorder = RunningProgram::start(&mut test.recorder(&[], &[], &["busy", "20"]));
    test.steps.wait_ready(1);
    test.steps.wait_more(1000);
    recorder.signal(libc::SIGSTOP);
    let begin = Instant::now();
    // The lease must expire, by the clock; until then the program continues.
    wait_for("the lease to run out", || begin.elapsed() > Duration::from_secs(8));
    test.steps.wait_more(10);
    recorder.signal(libc::SIGCONT);
    let resumed = test.steps.counts().started[&0];
    test.steps.wait_more(30_000);
    test.steps.stop();
    let recording = test.recording(recorder.finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    // Events between the lease's end and the recorder's return belong to no session, and are not
    // counted.
    test.steps.check_order(&test.fixture, &recording);
    let emitted = test.steps.counts().emitted();
    let summary = recording.summary;
    assert!(summary.recorded + summary.lost <= emitted, "{}", describe_recording(&recording));
    let numbers = parse_steps(&test.fixture.print(&recording.trace));
    assert_eq!(numbers.len() as u64, summary.recorded, "{}", describe_recording(&recording));
    let after = numbers.iter().filter(|step| step.number >= resumed).count();
    assert!(
        after > 1000,
        "{after} after {resumed} of {emitted}: {}",
        describe_recording(&recording)
    );
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_command_and_the_trace_is_complete() {
    for (mode, status) in [("interrupted", Some(3)), ("busy", None)] {
        let test = EnvironmentTest::new("interrupt");
        let mut command = test.recorder(&[], &[], &[mode, "100"]);
        command.process_group(0);
        trackway_tests::steps::restore_signal_actions(&mut command);
        let recorder = RunningProgram::start(&mut command);
        test.steps.wait_ready(1);
        test.steps.wait_more(100);
        send_signal(-recorder.pid().cast_signed(), libc::SIGINT);
        let recording = test.recording(recorder.finish());
        assert_eq!(recording.output.status.code(), status, "{}", describe_recording(&recording));
        if status.is_none() {
            assert_eq!(recording.output.status.signal(), Some(libc::SIGINT));
        }
        test.steps.check_killed(&test.fixture, &recording);
        assert_eq!(recording.summary.lost, 0, "{}", describe_recording(&recording));
    }
}

/// RUN a command that ignores SIGTERM, or is suspended, and send the recorder two signals. EXPECT
/// the recording ended, the events so far in its trace, and the command alive.
#[test]
fn a_second_signal_ends_the_recording_of_a_command_that_does_not_end() {
    const IGNORING: [&str; 4] = ["sh", "-c", "trap '' TERM HUP; exec \"$@\"", "sh"];
    // Two of a kind may come as one.
    for (stands_still, second) in [(false, libc::SIGTERM), (true, libc::SIGHUP)] {
        let test = EnvironmentTest::new("second-signal");
        let mut command: Vec<&str> = IGNORING.to_vec();
        command.extend([test.program.to_str().expect("a path of text"), "busy", "100"]);
        let mut command = test.fixture.recorder(&test.steps, &test.trace, &[], &command);
        let mut recorder = RunningProgram::start(&mut command);
        test.steps.wait_ready(1);
        test.steps.wait_more(100);
        let program = test.steps.pid().cast_signed();
        if stands_still {
            send_signal(program, libc::SIGSTOP);
        }
        recorder.signal(libc::SIGTERM);
        if !stands_still {
            test.steps.wait_more(100);
        }
        assert!(recorder.runs(), "one is for the command");
        recorder.signal(second);
        wait_for("the recorder's end", || !recorder.runs());
        let emitted = test.steps.counts();
        send_signal(program, libc::SIGCONT);
        test.steps.wait_more(100); // it lives
        test.steps.stop();
        let recording = test.recording(recorder.finish());
        // The recorder reports one of the two signals.
        let ended_by = [libc::SIGTERM, second].map(|signal| Some(128 + signal));
        assert!(
            ended_by.contains(&recording.output.status.code()),
            "{}",
            describe_recording(&recording)
        );
        let messages = recording.messages();
        assert!(messages.contains(" has ended the recording: the command"), "{messages}");
        assert_eq!(recording.summary.lost, 0, "{messages}");
        let numbers = parse_steps(&test.fixture.print(&recording.trace));
        assert_eq!(numbers.len() as u64, recording.summary.recorded, "{messages}");
        let expected = (0..numbers.len() as u64).eq(numbers.iter().map(|step| step.number));
        assert!(expected, "in their order, without a gap: {messages}");
        assert!(numbers.len() as u64 <= emitted.emitted() && numbers.len() > 100, "{messages}");
        let recovered = test.fixture.trackway(&["recover"]).output().expect("trackway");
        assert!(recovered.status.success(), "it is complete: {recovered:?}");
    }
}

/// RUN a command that survives SIGHUP, like daemons that reload their configuration, and send the
/// recorder several. EXPECT the recording to continue until the command's end.
#[test]
fn hangups_do_not_end_the_recording_of_a_command_that_goes_on() {
    let test = EnvironmentTest::new("hangups");
    let ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let program = test.program.to_str().expect("a path of text");
    let command = [&ignoring[..], &[program, "busy", "100"]].concat();
    let mut command = test.fixture.recorder(&test.steps, &test.trace, &[], &command);
    let mut recorder = RunningProgram::start(&mut command);
    test.steps.wait_ready(1);
    for _ in 0..3 {
        // The signals are sent one by one: of several equal pending signals, only one remains.
        test.steps.wait_more(100);
        recorder.signal(libc::SIGHUP);
    }
    test.steps.wait_more(100);
    assert!(recorder.runs(), "they are for the command");
    test.steps.stop();
    let recording = test.recording(recorder.finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    let messages = recording.messages();
    assert!(!messages.contains("has ended the recording"), "{messages}");
    let numbers = parse_steps(&test.fixture.print(&recording.trace));
    assert_eq!(numbers.len() as u64, recording.summary.recorded, "{messages}");
    assert_eq!(recording.summary.recorded, test.steps.counts().emitted(), "{messages}");
}

/// A memory cgroup of the test, removed when this value is dropped.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    fn new(limit_bytes: u64) -> Option<Self> {
        let name = format!("trackway-test-{}-{limit_bytes}", std::process::id());
        let version_1 = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = if version_1.is_dir() {
            (version_1, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let group = Self(root.join(name));
        let made = fs::create_dir(&group.0).is_ok()
            && fs::write(group.0.join(limit), limit_bytes.to_string()).is_ok();
        if !made {
            report_skipped("memory cgroups cannot be made here");
            return None;
        }
        Some(group)
    }

    fn enter(&self) -> String {
        format!("echo $$ > '{}'\nexec \"$@\"", self.0.join("cgroup.procs").display())
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn memory_of_a_cgroup_may_be_limited() {
    let Some(group) = MemoryCgroup::new(24 << 20) else { return };
    let test = EnvironmentTest::new("cgroup");
    let script = group.enter();
    let program = test.program.to_str().unwrap();
    // The limit applies to the program alone, then also to the recorder.
    let command = ["sh", "-ec", &script, "sh", program, "steps", "200000", "7"];
    let mut recorder = test.fixture.recorder(&test.steps, &test.trace, &[], &command);
    let recording = test.recording(RunningProgram::start(&mut recorder).finish());
    assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
    test.steps.check(&test.fixture, &recording);

    let test = EnvironmentTest::new("cgroup-all");
    let inside = ["sh", "-ec", &script, "sh"];
    test.is_recorded(&inside, &[], "200000");
    // A buffer that exceeds the limit is refused; the kernel would kill a process of the group.
    let test = EnvironmentTest::new("cgroup-refused");
    test.is_refused(&inside, &["--buffer-size", "32M"], "Cannot allocate memory");
    drop(group);
}
