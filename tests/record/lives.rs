//! Life of traced programs: forks, execs, signals, sudden death, modules that are loaded and
//! unloaded. Events are recorded or counted, never corrupted.
//!
//! The programs are in `tests/lives/`; `trackway_tests::steps` has the checks.
//!
//! Longer than 600 lines: each test is a different life of a process, with the same programs.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use trackway_tests::steps::{
    RunningProgram, Steps, is_running, parse_steps, send_signal, wait_for,
};
use trackway_tests::{
    Fixture, LONGER_THAN_SHORT_LEASE, Recording, SHORT_LEASE, build_dir, has, is_root,
    report_skipped,
};

/// A recording of one of the programs in one mode.
struct RecordedMode {
    fixture: Fixture,
    steps: Steps,
    program: PathBuf,
}

impl RecordedMode {
    fn new(name: &str, file: &str) -> Self {
        Self::of(name, file, true)
    }

    fn of(name: &str, file: &str, linked: bool) -> Self {
        let fixture = Fixture::new(name);
        let steps = Steps::new(&fixture, "steps");
        let program = fixture.compile_file(file, linked, &["-ldl"]);
        Self { fixture, steps, program }
    }

    /// Returns the program with these arguments.
    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let program = self.program.to_str().expect("a path of text").to_owned();
        std::iter::once(program).chain(arguments.iter().map(|&word| word.to_owned())).collect()
    }

    /// Returns the program with these arguments, run by another program.
    fn wrapped(&self, wrapper: &[&str], arguments: &[&str]) -> Vec<String> {
        let wrapper = wrapper.iter().map(|&word| word.to_owned());
        wrapper.chain(self.command(arguments)).collect()
    }

    /// Records the program to its successful end, and checks all events.
    fn record(&self, options: &[&str], arguments: &[&str]) -> Recording {
        self.record_command(options, &self.command(arguments))
    }

    /// Records like [`Self::record`], but accepts that some emitted events are disabled.
    fn record_any(&self, options: &[&str], arguments: &[&str]) -> Recording {
        let recording = self.fixture.record_steps(&self.steps, options, &self.command(arguments));
        assert!(recording.output.status.success(), "{}", describe_recording(&recording));
        self.steps.check_order(&self.fixture, &recording);
        recording
    }

    fn record_command(&self, options: &[&str], command: &[String]) -> Recording {
        let recording = self.fixture.record_steps(&self.steps, options, command);
        assert!(recording.output.status.success(), "{}", describe_recording(&recording));
        self.steps.check(&self.fixture, &recording);
        recording
    }
}

fn describe_recording(recording: &Recording) -> String {
    format!("{}: {}", recording.output.status, recording.messages())
}

/// Returns the number of declarations of the event in the trace's metadata.
fn count_declarations(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a trace folder").flatten() {
        if entry.path().is_dir() {
            count += count_declarations(&entry.path());
        } else if entry.file_name() == "metadata" {
            let bytes = fs::read(entry.path()).expect("metadata");
            count += String::from_utf8_lossy(&bytes).matches("\"life:step\"").count();
        }
    }
    count
}

#[test]
fn fork_children_trace_under_their_own_ids() {
    let life = RecordedMode::new("fork", "lives/processes.c");
    let recording = life.record(&[], &["fork", "50"]);
    assert_eq!(recording.summary.processes, 51, "{}", describe_recording(&recording));
    assert_eq!(recording.summary.lost, 0);
}

/// A handler that emits while its own thread takes over the process's memory does not wait for
/// that. If the handler ran more often than it waits, the thread would never continue.
#[test]
fn fork_children_come_through_their_first_event_though_a_timer_emits_too() {
    let life = RecordedMode::new("timer", "lives/processes.c");
    let recording = life.record(&[], &["timer", "500"]);
    assert_eq!(recording.summary.processes, 501, "{}", describe_recording(&recording));
}

#[test]
fn fork_children_of_a_header_only_program_trace_too() {
    let life = RecordedMode::of("fork-header", "lives/processes.c", false);
    let recording = life.record(&[], &["fork", "20"]);
    assert_eq!(recording.summary.processes, 21, "{}", describe_recording(&recording));
}

#[test]
fn a_program_at_a_fixed_address_is_recorded() {
    let fixture = Fixture::new("fixed");
    let flags = ["-no-pie", "-fno-pie", "-fno-plt"];
    for (number, flags) in [&flags[..2], &flags[..]].into_iter().enumerate() {
        let steps = Steps::new(&fixture, "steps");
        let program = fixture.compile_file("lives/processes.c", true, flags);
        let command = [program.to_str().expect("a path of text"), "fork", "5"];
        let recording = fixture.record_steps(&steps, &[], &command);
        assert!(recording.output.status.success(), "{number}: {}", describe_recording(&recording));
        steps.check(&fixture, &recording);
        fs::remove_dir_all(&recording.trace).expect("the trace goes");
    }
}

#[test]
fn losses_of_fork_children_are_counted() {
    let life = RecordedMode::new("fork-lost", "lives/processes.c");
    // The burst exceeds two small sub-buffers between two visits of the recorder.
    let recording = life.record(&["--buffer-size", "16K", "--sub-buffers", "2"], &["fork", "800"]);
    assert!(
        recording.summary.lost > 0,
        "the test lost nothing: {}",
        describe_recording(&recording)
    );
}

#[test]
fn a_tree_of_forks_is_recorded() {
    let life = RecordedMode::new("tree", "lives/processes.c");
    let recording = life.record(&[], &["tree", "3"]);
    assert_eq!(recording.summary.processes, 1 + 3 + 9 + 27, "{}", describe_recording(&recording));
}

#[test]
fn a_deep_line_of_descendants_is_recorded() {
    let life = RecordedMode::new("chain", "lives/processes.c");
    let recording = life.record(&[], &["chain", "200"]);
    assert_eq!(recording.summary.processes, 201, "{}", describe_recording(&recording));
    assert_eq!(recording.summary.recorded + recording.summary.lost, 200 * 11 + 5);
}

#[test]
fn clone_children_are_recorded_with_and_without_their_parents_memory() {
    for linked in [true, false] {
        let life = RecordedMode::of("clone", "lives/processes.c", linked);
        let recording = life.record(&[], &["clone", "10"]);
        assert_eq!(recording.summary.recorded + recording.summary.lost, 40 * (50 + 51) + 20);
    }
    let life = RecordedMode::new("clone-claims", "lives/processes.c");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    life.record_command(&[], &life.wrapped(&without, &["clone", "5"]));
}

#[test]
fn forks_while_other_threads_trace_are_recorded() {
    let life = RecordedMode::new("fork-threads", "lives/threads.c");
    life.record(&[], &["fork", "50"]);
}

#[test]
fn every_image_of_a_chain_of_execs_is_recorded() {
    let life = RecordedMode::new("exec", "lives/processes.c");
    let recording = life.record(&[], &["exec", "20"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 21 * 100);
    let mut pids: Vec<_> =
        parse_steps(&life.fixture.print(&recording.trace)).iter().map(|step| step.pid).collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "exec keeps the process id");
}

#[test]
fn short_threads_are_recorded() {
    let life = RecordedMode::new("threads", "lives/threads.c");
    let recording = life.record(&[], &["short", "400"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 400 * 20 + 100 * 20);
}

#[test]
fn a_storm_of_signals_is_recorded() {
    let life = RecordedMode::new("storm", "lives/threads.c");
    life.record(&[], &["storm", "4000"]);
}

#[test]
fn ten_thousand_threads_at_a_time_are_recorded() {
    let life = RecordedMode::new("many", "lives/threads.c");
    let command = life.command(&["many", "10000"]);
    let recording = life.fixture.record_steps(&life.steps, &[], &command);
    if recording.output.status.code() == Some(77) {
        return report_skipped("so many threads are not allowed here");
    }
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check(&life.fixture, &recording);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 10_000 * 4 + 30);
}

#[test]
fn handlers_on_alternate_stacks_are_recorded() {
    for wrapper in [&["env"][..], &["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"]] {
        let life = RecordedMode::new("altstack", "lives/threads.c");
        let recording = life.record_command(&[], &life.wrapped(wrapper, &["altstack", "10"]));
        assert_eq!(recording.summary.recorded + recording.summary.lost, 5 * 100 + 5 * 101);
    }
}

#[test]
fn coroutines_that_move_between_threads_are_recorded() {
    for wrapper in [&["env"][..], &["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"]] {
        let life = RecordedMode::new("coroutines", "lives/coroutines.c");
        let recording = life.record_command(&[], &life.wrapped(wrapper, &["200"]));
        assert_eq!(recording.summary.recorded + recording.summary.lost, 24 * 400);
    }
}

#[test]
fn handlers_trace_before_during_and_after_the_librarys_start() {
    for linked in [true, false] {
        let fixture = Fixture::new("early");
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libearly.so"];
        let early = fixture.compile_file("lives/early.c", false, &flags);
        fs::rename(early, fixture.path("libearly.so")).expect("its name");
        let text = "void early_main(long count);\nint main(void) { early_main(2000); return 0; }\n";
        let build = build_dir();
        let folders = [fixture.path(""), build].map(|folder| folder.display().to_string());
        let [ours, build] = folders.each_ref().map(|folder| format!("-L{folder}"));
        let rpath = format!("-Wl,-rpath,{}", folders.join(":"));
        // The library that is loaded last is initialised first.
        let mut flags = vec!["-Wl,--no-as-needed", &ours, &build, &rpath];
        flags.extend(linked.then_some("-ltrackway"));
        flags.push("-learly");
        let program = fixture.compile("early-program", text, false, &flags);
        let program = program.to_str().expect("a path of text");
        // The first signal interrupts the start at any point.
        let mut in_between = 0;
        for first_us in (1..400).step_by(13) {
            let steps = Steps::new(&fixture, "steps");
            let first = format!("EARLY_US={first_us}");
            let recording = fixture.record_steps(&steps, &[], &["env", &first, program]);
            assert!(recording.output.status.success(), "{}", describe_recording(&recording));
            steps.check_order(&fixture, &recording);
            let mut numbers = [Vec::new(), Vec::new()];
            for step in parse_steps(&fixture.print(&recording.trace)) {
                numbers[step.stream as usize].push(step.number);
            }
            if recording.summary.lost == 0 {
                let [handler, main] = numbers;
                assert_eq!(main.len(), 4000, "{}", describe_recording(&recording));
                let handled = steps.counts().started.get(&0).copied().unwrap_or(0);
                let first = handler.first().copied().unwrap_or(handled);
                in_between += u32::from(first > 0 && first < handled);
                let all: Vec<u64> = (first..handled).collect();
                assert_eq!(handler, all, "once on, all are recorded");
            }
            fs::remove_dir_all(&recording.trace).expect("the trace goes");
        }
        assert!(in_between > 0, "no handler ran before the start and after");
    }
}

/// Records a program in namespaces that it makes: as root, and as a user who can make them only in
/// a user namespace.
fn record_in_namespaces(mode: &str, check: impl Fn(&RecordedMode, &Recording)) {
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let both = is_root() && has("setpriv");
    for wrapper in [&[][..], &nobody[..]].into_iter().take(1 + usize::from(both)) {
        let life = RecordedMode::new("namespaces", "lives/namespaces.c");
        let mode_of = |bits| std::os::unix::fs::PermissionsExt::from_mode(bits);
        for folder in [life.fixture.window_dir(), life.fixture.path("").as_path()] {
            fs::set_permissions(folder, mode_of(0o1777)).expect("for all");
        }
        fs::set_permissions(life.steps.path(), mode_of(0o666)).expect("for all");
        let trace = life.fixture.path("trace");
        let command = life.command(&[mode, "100"]);
        let mut recorder = life.fixture.recorder(&life.steps, &trace, &[], &command);
        if !wrapper.is_empty() {
            recorder = wrap_command(wrapper, &recorder);
        }
        let recording = Recording::new(trace, RunningProgram::start(&mut recorder).finish());
        match recording.output.status.code() {
            Some(77) => report_skipped("namespaces cannot be made here"),
            Some(126 | 127) => report_skipped("the built programs are not readable by other users"),
            code => {
                assert_eq!(code, Some(0), "{}", describe_recording(&recording));
                life.steps.check(&life.fixture, &recording);
                check(&life, &recording);
            }
        }
        // The program made no window that another user would use.
        let windows = fs::read_dir(life.fixture.window_dir()).expect("the windows").count();
        assert_eq!(windows, 1, "one user, one window");
    }
}

/// Returns the command that runs `command` through `wrapper`.
fn wrap_command(wrapper: &[&str], command: &std::process::Command) -> std::process::Command {
    let mut outer = std::process::Command::new(wrapper[0]);
    outer.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        outer.current_dir(folder);
    }
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(key, value),
            None => outer.env_remove(key),
        };
    }
    outer
}

#[test]
fn a_program_in_a_user_namespace_is_recorded_with_what_it_starts() {
    record_in_namespaces("user", |_, recording| {
        assert_eq!(recording.summary.recorded + recording.summary.lost, 100 + 201 + 100 + 10);
        // The processes are the parent, its child, and the program that the child executes.
        assert_eq!(recording.summary.processes, 3, "{}", describe_recording(recording));
    });
}

#[test]
fn a_program_in_a_process_namespace_is_recorded_with_what_it_starts() {
    record_in_namespaces("pid", |_, recording| {
        assert_eq!(recording.summary.recorded + recording.summary.lost, 201 + 201 + 100 + 10);
        assert_eq!(recording.summary.processes, 4, "{}", describe_recording(recording));
    });
}

#[test]
fn a_container_of_all_namespaces_is_recorded_as_far_as_it_is_one_program() {
    record_in_namespaces("container", |_, recording| {
        assert_eq!(recording.summary.recorded + recording.summary.lost, 200 + 300 + 200);
        assert_eq!(recording.summary.processes, 3, "{}", describe_recording(recording));
    });
}

#[test]
fn a_program_that_stood_still_with_its_recorder_loses_nothing() {
    let life = RecordedMode::new("stopped", "lives/threads.c");
    let trace = life.fixture.path("trace");
    let command = life.command(&["busy", "0"]);
    let mut recorder =
        life.fixture.recorder(&life.steps, &trace, &["--buffer-size", "32M"], &command);
    let recorder = RunningProgram::start(recorder.env(SHORT_LEASE.0, SHORT_LEASE.1));
    life.steps.wait_ready(1);
    let program = life.steps.pid().cast_signed();
    // Suspends the program alone, then both, for longer than the recorder's lease.
    send_signal(program, libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_secs(1));
    send_signal(program, libc::SIGCONT);
    life.steps.wait_more(1000);
    send_signal(program, libc::SIGSTOP);
    recorder.signal(libc::SIGSTOP);
    std::thread::sleep(LONGER_THAN_SHORT_LEASE);
    recorder.signal(libc::SIGCONT);
    // The recorder renews its lease before the program reads it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    send_signal(program, libc::SIGCONT);
    life.steps.wait_more(1000);
    life.steps.stop();
    let recording = Recording::new(trace, recorder.finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check(&life.fixture, &recording);
    assert!(
        recording.messages().contains("the recorder was stopped"),
        "{}",
        describe_recording(&recording)
    );
}

#[test]
fn events_before_a_kill_are_in_the_trace() {
    let life = RecordedMode::new("flight", "lives/threads.c");
    let command = life.command(&["flight", "0"]);
    let trace = life.fixture.path("trace");
    let mut recorder = life.fixture.recorder(&life.steps, &trace, &[], &command);
    let recorder = RunningProgram::start(&mut recorder);
    life.steps.wait_ready(1);
    life.steps.wait_more(20_000);
    send_signal(life.steps.pid().cast_signed(), libc::SIGKILL);
    let recording = Recording::new(trace, recorder.finish());
    assert_eq!(
        recording.output.status.signal(),
        Some(libc::SIGKILL),
        "{}",
        describe_recording(&recording)
    );
    life.steps.check_killed(&life.fixture, &recording);
}

#[test]
fn children_killed_at_any_moment_leave_whole_records() {
    let life = RecordedMode::new("killed", "lives/processes.c");
    let command = life.command(&["killed", "30"]);
    let recording = life.fixture.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check_killed(&life.fixture, &recording);
    // A kill of a claiming writer leaves a claim, which must not cost events of later recordings.
    let life = RecordedMode::new("killed-claims", "lives/processes.c");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    let command = life.wrapped(&without, &["killed", "15"]);
    let recording = life.fixture.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check_killed(&life.fixture, &recording);
}

fn build_plugin(life: &RecordedMode, name: &str) -> String {
    let plugin = life.fixture.compile_file("lives/plugin.c", false, &["-shared", "-fPIC"]);
    let path = life.fixture.path(name);
    fs::copy(plugin, &path).expect("a copy of the plugin");
    path.to_str().expect("a path of text").to_owned()
}

#[test]
fn modules_that_come_and_go_are_recorded_as_one_event() {
    let life = RecordedMode::new("modules", "lives/modules.c");
    let plugin = build_plugin(&life, "one.so");
    let recording = life.record(&[], &["turns", "200", &plugin]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 200 * 7);
    assert_eq!(count_declarations(&recording.trace), 1, "one event, however often it was loaded");
}

#[test]
fn modules_that_come_and_go_in_many_threads_are_recorded() {
    let life = RecordedMode::of("modules-threads", "lives/modules.c", false);
    let (first, second) = (build_plugin(&life, "first.so"), build_plugin(&life, "second.so"));
    let modules = ["threads", "100", &first, &second, &first, &second];
    let recording = life.record(&[], &modules);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 4 * 100 * 7);
    assert_eq!(count_declarations(&recording.trace), 1, "one event, in three modules");
}

#[test]
fn modules_in_namespaces_of_their_own_are_off_or_have_a_library_of_their_own() {
    let life = RecordedMode::new("namespaces", "lives/modules.c");
    let bare = build_plugin(&life, "bare.so");
    // The program has no window to register in: it stays off, even if its loader has the library.
    let recording = life.record_any(&[], &["namespaces", "20", &bare]);
    assert_eq!(recording.summary.recorded, 20 * 2, "{}", describe_recording(&recording));
    // With the library, which is loaded twice: the second copy serves all namespaces in turn.
    let life = RecordedMode::new("namespaces-twice", "lives/modules.c");
    let linked = life.fixture.compile_file("lives/plugin.c", true, &["-shared", "-fPIC"]);
    let linked = linked.to_str().expect("a path of text");
    // Two such namespaces: the C library keeps thread-local memory for no more.
    let recording = life.record(&[], &["namespaces", "2", linked]);
    assert_eq!(
        recording.summary.recorded + recording.summary.lost,
        2 * 7,
        "{}",
        describe_recording(&recording)
    );
}

#[test]
fn a_program_with_two_copies_of_the_library_is_recorded_once() {
    let life = RecordedMode::new("twice", "lives/processes.c");
    let copy = life.fixture.path("libtrackway-copy.so");
    fs::copy(build_dir().join("libtrackway.so"), &copy).expect("a copy of the library");
    let preload = format!("LD_PRELOAD={}", copy.display());
    for mode in ["fork", "vfork"] {
        let life = RecordedMode::new("twice", "lives/processes.c");
        let wrapper = ["env", preload.as_str()];
        let recording = life.record_command(&[], &life.wrapped(&wrapper, &[mode, "20"]));
        assert_eq!(recording.summary.lost, 0, "{}", describe_recording(&recording));
    }
    // The program is started by the recorder, and by the program itself under another path.
    let trace = life.fixture.path("trace");
    let mut recorder =
        life.fixture.recorder(&life.steps, &trace, &[], &life.command(&["spawn", "20"]));
    recorder.env("LD_PRELOAD", &copy);
    let recording = Recording::new(trace, RunningProgram::start(&mut recorder).finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check(&life.fixture, &recording);
    assert_eq!(
        recording.summary.processes,
        21,
        "each is counted once: {}",
        describe_recording(&recording)
    );
}

#[test]
fn vfork_children_are_recorded() {
    let life = RecordedMode::new("vfork", "lives/processes.c");
    let recording = life.record(&[], &["vfork", "200"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 200 * (1 + 3 + 1) + 100 + 250);
}

#[test]
fn vfork_children_of_many_threads_are_recorded() {
    let life = RecordedMode::new("vfork-threads", "lives/threads.c");
    life.record(&[], &["vfork", "100"]);
    let life = RecordedMode::of("vfork-preload", "lives/threads.c", false);
    life.record(&[], &["vfork", "50"]);
}

#[test]
fn spawned_programs_are_recorded() {
    let life = RecordedMode::new("spawn", "lives/processes.c");
    let recording = life.record(&[], &["spawn", "50"]);
    assert_eq!(recording.summary.processes, 51, "{}", describe_recording(&recording));
    let life = RecordedMode::new("system", "lives/processes.c");
    let recording = life.record(&[], &["system", "10"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 10 * 21 + 1);
}

#[test]
fn children_of_preload_helpers_programs_are_recorded() {
    for mode in ["vfork", "spawn", "system"] {
        let life = RecordedMode::of("helpers", "lives/processes.c", false);
        let helpers = ["--preload", "libc,pthread", "--buffer-size", "16M"];
        let recording = life.record(&helpers, &[mode, "8"]);
        assert!(recording.output.stderr.is_ascii());
    }
}

#[test]
fn closing_every_descriptor_changes_nothing() {
    let life = RecordedMode::new("close", "lives/processes.c");
    let recording = life.record(&[], &["close", "1000"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 2010);
}

#[test]
fn few_descriptors_are_enough() {
    let life = RecordedMode::new("descriptors", "lives/processes.c");
    life.record_command(&[], &life.wrapped(&["prlimit", "--nofile=4"], &["fork", "5"]));
    let life = RecordedMode::of("descriptors-header", "lives/processes.c", false);
    life.record(&[], &["few-descriptors", "100"]);
}

#[test]
fn a_daemon_that_outlives_the_recording_runs_on() {
    let life = RecordedMode::new("daemon", "lives/processes.c");
    let command = life.command(&["daemon", "100000"]);
    let recording = life.fixture.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    let daemon = life.steps.pid();
    assert!(is_running(daemon), "the daemon outlives the recording");
    life.steps.wait_more(20);
    life.steps.stop();
    life.steps.wait_ready(2);
    wait_for("the daemon's end", || !is_running(daemon));
    // The trace has both steps of the parent, and the daemon's steps from the first one up to a
    // moment.
    let found = life.steps.check_order(&life.fixture, &recording);
    assert_eq!(found[&0], 2);
    let of_daemon: Vec<_> = parse_steps(&life.fixture.print(&recording.trace))
        .into_iter()
        .filter(|step| step.stream == 1)
        .map(|step| step.number)
        .collect();
    assert_eq!(of_daemon, (0..found[&1]).collect::<Vec<_>>(), "without a gap");
    assert_eq!(recording.summary.processes, 2, "{}", describe_recording(&recording));
}

#[test]
fn programs_of_before_are_neither_recorded_nor_disturbed() {
    let life = RecordedMode::new("before", "lives/processes.c");
    let theirs = Steps::new(&life.fixture, "theirs");
    let mut bystander = life.fixture.command(&life.program);
    bystander.args(["busy", "100"]).env("STEPS", theirs.path());
    let bystander = RunningProgram::start(&mut bystander);
    theirs.wait_ready(1);
    let recording = life.record(&[], &["steps", "5000"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 5000);
    assert_eq!(recording.summary.processes, 1, "{}", describe_recording(&recording));
    theirs.wait_more(10);
    theirs.stop();
    let output = bystander.finish();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(output.stderr, b"");
}

#[test]
fn recordings_at_the_same_time_see_their_own() {
    let life = RecordedMode::new("beside", "lives/processes.c");
    let theirs = Steps::new(&life.fixture, "theirs");
    let start = |steps: &Steps, trace: &str| {
        let command = life.command(&["busy", "200"]);
        RunningProgram::start(&mut life.fixture.recorder(
            steps,
            &life.fixture.path(trace),
            &[],
            &command,
        ))
    };
    let (ours, other) = (start(&life.steps, "ours"), start(&theirs, "other"));
    life.steps.wait_ready(1);
    theirs.wait_ready(1);
    life.steps.wait_more(100);
    theirs.stop();
    let other = Recording::new(life.fixture.path("other"), other.finish());
    life.steps.wait_more(100);
    life.steps.stop();
    let ours = Recording::new(life.fixture.path("ours"), ours.finish());
    for (recording, steps) in [(&ours, &life.steps), (&other, &theirs)] {
        assert!(recording.output.status.success(), "{}", describe_recording(recording));
        steps.check(&life.fixture, recording);
        assert_eq!(recording.summary.processes, 1, "{}", describe_recording(recording));
    }
}

#[test]
fn a_recording_in_a_recording_sees_the_same() {
    let life = RecordedMode::new("nested", "lives/processes.c");
    let inner = life.fixture.path("inner");
    let trackway = build_dir().join("trackway");
    let (trackway, inner_text) = (trackway.to_str().unwrap(), inner.to_str().unwrap());
    let wrapper =
        [trackway, "record", "--event", "life:*", "--context", "vpid,vtid", "-o", inner_text, "--"];
    let outer =
        life.fixture.record_steps(&life.steps, &[], &life.wrapped(&wrapper, &["fork", "10"]));
    assert!(outer.output.status.success(), "{}", describe_recording(&outer));
    life.steps.check(&life.fixture, &outer);
    let emitted = life.steps.counts().emitted();
    assert_eq!(
        life.fixture.print(&inner).lines().count() as u64,
        emitted,
        "{}",
        describe_recording(&outer)
    );
}

#[test]
fn a_static_program_is_named_and_runs() {
    let fixture = Fixture::new("static");
    let steps = Steps::new(&fixture, "steps");
    let program = fixture.compile_file("lives/processes.c", false, &["-static"]);
    let command = [program.to_str().unwrap(), "steps", "10", "7"];
    let recording = fixture.record_steps(&steps, &[], &command);
    assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
    assert_eq!(steps.counts().completed(), 10, "it ran");
    assert_eq!(recording.summary.recorded, 0);
    assert!(recording.messages().contains("static"), "{}", describe_recording(&recording));
}

#[test]
fn a_program_of_another_user_is_said_to_be_untraceable() {
    if !is_root() || !has("setpriv") {
        return report_skipped("only root can become another user");
    }
    let life = RecordedMode::new("user", "lives/processes.c");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    fs::set_permissions(life.steps.path(), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("the counters are for all");
    let command = life.wrapped(&nobody, &["steps", "10", "7"]);
    let recording = life.fixture.record_steps(&life.steps, &[], &command);
    if life.steps.counts().emitted() == 0 {
        return report_skipped("the built library is not readable by other users");
    }
    assert_eq!(recording.output.status.code(), Some(7), "{}", describe_recording(&recording));
    assert_eq!(recording.summary.recorded, 0, "{}", describe_recording(&recording));
    assert!(recording.messages().contains("user"), "{}", describe_recording(&recording));
}

#[test]
fn a_preloaded_library_of_the_program_stays() {
    let life = RecordedMode::of("own-preload", "lives/processes.c", false);
    let text = "#include <fcntl.h>\n__attribute__((constructor)) static void mark(void)\n\
                { open(\"own-library-was-loaded\", O_CREAT | O_WRONLY, 0600); }\n";
    let own = life.fixture.compile("own.so", text, false, &["-shared", "-fPIC", "-w"]);
    let trace = life.fixture.path("trace");
    let mut recorder =
        life.fixture.recorder(&life.steps, &trace, &[], &life.command(&["spawn", "2"]));
    recorder.env("LD_PRELOAD", &own);
    let recording = Recording::new(trace, RunningProgram::start(&mut recorder).finish());
    assert!(recording.output.status.success(), "{}", describe_recording(&recording));
    life.steps.check(&life.fixture, &recording);
    assert!(
        life.fixture.path("own-library-was-loaded").exists(),
        "{}",
        describe_recording(&recording)
    );
}

#[test]
fn without_restartable_sequences_events_are_recorded() {
    let life = RecordedMode::new("tunable", "lives/threads.c");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    life.record_command(&[], &life.wrapped(&without, &["short", "100"]));
    let life = RecordedMode::new("tunable-storm", "lives/threads.c");
    life.record_command(&[], &life.wrapped(&without, &["storm", "1000"]));
    let life = RecordedMode::new("tunable-vfork", "lives/threads.c");
    life.record_command(&[], &life.wrapped(&without, &["vfork", "50"]));
}

#[test]
fn a_program_in_valgrind_is_recorded() {
    if !has("valgrind") {
        return report_skipped("valgrind is not installed");
    }
    let life = RecordedMode::new("valgrind", "lives/processes.c");
    let wrapper = ["valgrind", "-q", "--error-exitcode=66"];
    let recording = life.record_command(&[], &life.wrapped(&wrapper, &["fork", "3"]));
    // valgrind's tool is a static program; the traced program runs inside it.
    assert!(
        !recording.messages().contains("could not be traced"),
        "{}",
        describe_recording(&recording)
    );
}

#[test]
fn a_program_in_strace_is_recorded() {
    if !has("strace") {
        return report_skipped("strace is not installed");
    }
    let life = RecordedMode::new("strace", "lives/processes.c");
    let wrapper = ["strace", "-f", "-o", "strace-output"];
    life.record_command(&[], &life.wrapped(&wrapper, &["fork", "5"]));
}

#[test]
fn a_program_stepped_by_a_debugger_is_recorded() {
    if !has("gdb") {
        return report_skipped("gdb is not installed");
    }
    let life = RecordedMode::new("gdb", "lives/processes.c");
    // From the fifth event on, gdb executes 2000 instructions one by one. They span several events,
    // whose sequences are interrupted at every instruction.
    let script = life.fixture.path("script");
    let text = "set pagination off\nset debuginfod enabled off\nset breakpoint pending on\n\
                set confirm off\nbreak trackway_emit_life_DOT_step\nrun\nignore 1 3\ncontinue\n\
                delete\nstepi 4000\ncontinue\nquit\n";
    fs::write(&script, text).expect("gdb's commands");
    let script = script.to_str().unwrap();
    let wrapper = ["gdb", "-q", "-batch", "-nx", "-x", script, "--args"];
    let recording = life.record_command(&[], &life.wrapped(&wrapper, &["steps", "50"]));
    assert_eq!(recording.summary.lost, 0, "{}", describe_recording(&recording));
    assert_eq!(recording.summary.recorded, 50, "{}", describe_recording(&recording));
    let output = String::from_utf8_lossy(&recording.output.stdout);
    assert!(output.contains("Breakpoint 1, "), "{output}");
}
