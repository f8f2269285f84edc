//! What programs live through while they are traced: forks, execs, signals, sudden death, modules
//! that come and go. Events are recorded or counted, never corrupted.
//!
//! The programs are in `tests/lives/`; `trackway_tests::steps` says what is checked of each.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use trackway_tests::steps::{Running, Steps, is_running, send, steps_of, wait_for};
use trackway_tests::{Recording, World, build_dir, has, is_root, skipped};

/// A recording of one mode of one of the programs.
struct Life {
    world: World,
    steps: Steps,
    program: PathBuf,
}

impl Life {
    fn new(name: &str, file: &str) -> Self {
        Self::of(name, file, true)
    }

    fn of(name: &str, file: &str, linked: bool) -> Self {
        let world = World::new(name);
        let steps = Steps::new(&world, "steps");
        let program = world.compile_file(file, linked, &["-ldl"]);
        Self { world, steps, program }
    }

    /// The program with these arguments.
    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let program = self.program.to_str().expect("a path of text").to_owned();
        std::iter::once(program).chain(arguments.iter().map(|&word| word.to_owned())).collect()
    }

    /// Behind another program.
    fn behind(&self, wrapper: &[&str], arguments: &[&str]) -> Vec<String> {
        let wrapper = wrapper.iter().map(|&word| word.to_owned());
        wrapper.chain(self.command(arguments)).collect()
    }

    /// Records it to its good end and checks everything.
    fn record(&self, options: &[&str], arguments: &[&str]) -> Recording {
        self.record_command(options, &self.command(arguments))
    }

    fn record_command(&self, options: &[&str], command: &[String]) -> Recording {
        let recording = self.world.record_steps(&self.steps, options, command);
        assert!(recording.output.status.success(), "{}", about(&recording));
        self.steps.check(&self.world, &recording);
        recording
    }
}

fn about(recording: &Recording) -> String {
    format!("{}: {}", recording.output.status, recording.messages())
}

/// How often the trace's metadata declare the event.
fn declarations(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("a trace folder").flatten() {
        if entry.path().is_dir() {
            count += declarations(&entry.path());
        } else if entry.file_name() == "metadata" {
            let bytes = fs::read(entry.path()).expect("metadata");
            count += String::from_utf8_lossy(&bytes).matches("\"life:step\"").count();
        }
    }
    count
}

#[test]
fn fork_children_trace_under_their_own_ids() {
    let life = Life::new("fork", "lives/processes.c");
    let recording = life.record(&[], &["fork", "50"]);
    assert_eq!(recording.summary.processes, 51, "{}", about(&recording));
    assert_eq!(recording.summary.lost, 0);
}

#[test]
fn fork_children_of_a_header_only_program_trace_too() {
    let life = Life::of("fork-header", "lives/processes.c", false);
    let recording = life.record(&[], &["fork", "20"]);
    assert_eq!(recording.summary.processes, 21, "{}", about(&recording));
}

#[test]
fn losses_of_fork_children_are_counted() {
    let life = Life::new("fork-lost", "lives/processes.c");
    // More at once than two small sub-buffers take, between two visits of the recorder.
    let recording = life.record(&["--buffer-size", "16K", "--sub-buffers", "2"], &["fork", "800"]);
    assert!(recording.summary.lost > 0, "the test lost nothing: {}", about(&recording));
}

#[test]
fn a_tree_of_forks_is_recorded() {
    let life = Life::new("tree", "lives/processes.c");
    let recording = life.record(&[], &["tree", "3"]);
    assert_eq!(recording.summary.processes, 1 + 3 + 9 + 27, "{}", about(&recording));
}

#[test]
fn forks_while_other_threads_trace_are_recorded() {
    let life = Life::new("fork-threads", "lives/threads.c");
    life.record(&[], &["fork", "50"]);
}

#[test]
fn every_image_of_a_chain_of_execs_is_recorded() {
    let life = Life::new("exec", "lives/processes.c");
    let recording = life.record(&[], &["exec", "20"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 21 * 100);
    let mut pids: Vec<_> =
        steps_of(&life.world.print(&recording.trace)).iter().map(|step| step.pid).collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "exec keeps the process id");
}

#[test]
fn short_threads_are_recorded() {
    let life = Life::new("threads", "lives/threads.c");
    let recording = life.record(&[], &["short", "400"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 400 * 20 + 100 * 20);
}

#[test]
fn a_storm_of_signals_is_recorded() {
    let life = Life::new("storm", "lives/threads.c");
    life.record(&[], &["storm", "4000"]);
}

#[test]
fn what_was_emitted_before_a_kill_is_in_the_trace() {
    let life = Life::new("flight", "lives/threads.c");
    let command = life.command(&["flight", "0"]);
    let trace = life.world.path("trace");
    let mut recorder = life.world.recorder(&life.steps, &trace, &[], &command);
    let recorder = Running::start(&mut recorder);
    life.steps.wait_ready(1);
    life.steps.wait_more(20_000);
    send(life.steps.pid().cast_signed(), libc::SIGKILL);
    let recording = Recording::new(trace, recorder.finish());
    assert_eq!(recording.output.status.signal(), Some(libc::SIGKILL), "{}", about(&recording));
    life.steps.check_killed(&life.world, &recording);
}

#[test]
fn children_killed_at_any_moment_leave_whole_records() {
    let life = Life::new("killed", "lives/processes.c");
    let command = life.command(&["killed", "30"]);
    let recording = life.world.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", about(&recording));
    life.steps.check_killed(&life.world, &recording);
    // A kill in the fallback leaves a claim behind, which must not cost the next ones.
    let life = Life::new("killed-claims", "lives/processes.c");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    let command = life.behind(&without, &["killed", "15"]);
    let recording = life.world.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", about(&recording));
    life.steps.check_killed(&life.world, &recording);
}

fn plugin(life: &Life, name: &str) -> String {
    let plugin = life.world.compile_file("lives/plugin.c", false, &["-shared", "-fPIC"]);
    let path = life.world.path(name);
    fs::copy(plugin, &path).expect("a copy of the plugin");
    path.to_str().expect("a path of text").to_owned()
}

#[test]
fn modules_that_come_and_go_are_recorded_as_one_event() {
    let life = Life::new("modules", "lives/modules.c");
    let plugin = plugin(&life, "one.so");
    let recording = life.record(&[], &["turns", "200", &plugin]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 200 * 7);
    assert_eq!(declarations(&recording.trace), 1, "one event, however often it was loaded");
}

#[test]
fn modules_that_come_and_go_in_many_threads_are_recorded() {
    let life = Life::of("modules-threads", "lives/modules.c", false);
    let (first, second) = (plugin(&life, "first.so"), plugin(&life, "second.so"));
    let modules = ["threads", "100", &first, &second, &first, &second];
    let recording = life.record(&[], &modules);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 4 * 100 * 7);
    assert_eq!(declarations(&recording.trace), 1, "one event, in three modules");
}

#[test]
fn vfork_children_are_recorded() {
    let life = Life::new("vfork", "lives/processes.c");
    let recording = life.record(&[], &["vfork", "200"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 200 * (1 + 3 + 1) + 100 + 250);
}

#[test]
fn vfork_children_of_many_threads_are_recorded() {
    let life = Life::new("vfork-threads", "lives/threads.c");
    life.record(&[], &["vfork", "100"]);
    let life = Life::of("vfork-preload", "lives/threads.c", false);
    life.record(&[], &["vfork", "50"]);
}

#[test]
fn spawned_programs_are_recorded() {
    let life = Life::new("spawn", "lives/processes.c");
    let recording = life.record(&[], &["spawn", "50"]);
    assert_eq!(recording.summary.processes, 51, "{}", about(&recording));
    let life = Life::new("system", "lives/processes.c");
    let recording = life.record(&[], &["system", "10"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 10 * 21 + 1);
}

#[test]
fn closing_every_descriptor_changes_nothing() {
    let life = Life::new("close", "lives/processes.c");
    let recording = life.record(&[], &["close", "1000"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 2010);
}

#[test]
fn few_descriptors_are_enough() {
    let life = Life::new("descriptors", "lives/processes.c");
    life.record_command(&[], &life.behind(&["prlimit", "--nofile=4"], &["fork", "5"]));
    let life = Life::of("descriptors-header", "lives/processes.c", false);
    life.record(&[], &["few-descriptors", "100"]);
}

#[test]
fn a_daemon_that_outlives_the_recording_runs_on() {
    let life = Life::new("daemon", "lives/processes.c");
    let command = life.command(&["daemon", "100000"]);
    let recording = life.world.record_steps(&life.steps, &[], &command);
    assert!(recording.output.status.success(), "{}", about(&recording));
    let daemon = life.steps.pid();
    assert!(is_running(daemon), "the daemon outlives the recording");
    life.steps.wait_more(20);
    life.steps.stop();
    life.steps.wait_ready(2);
    wait_for("the daemon's end", || !is_running(daemon));
    // Both steps of the parent, and the daemon's from the first one on, up to a moment.
    let found = life.steps.check_order(&life.world, &recording);
    assert_eq!(found[&0], 2);
    let of_daemon: Vec<_> = steps_of(&life.world.print(&recording.trace))
        .into_iter()
        .filter(|step| step.who == 1)
        .map(|step| step.number)
        .collect();
    assert_eq!(of_daemon, (0..found[&1]).collect::<Vec<_>>(), "without a gap");
    assert_eq!(recording.summary.processes, 2, "{}", about(&recording));
}

#[test]
fn programs_of_before_are_neither_recorded_nor_disturbed() {
    let life = Life::new("before", "lives/processes.c");
    let theirs = Steps::new(&life.world, "theirs");
    let mut bystander = life.world.command(&life.program);
    bystander.args(["busy", "100"]).env("STEPS", theirs.path());
    let bystander = Running::start(&mut bystander);
    theirs.wait_ready(1);
    let recording = life.record(&[], &["steps", "5000"]);
    assert_eq!(recording.summary.recorded + recording.summary.lost, 5000);
    assert_eq!(recording.summary.processes, 1, "{}", about(&recording));
    theirs.wait_more(10);
    theirs.stop();
    let output = bystander.finish();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(output.stderr, b"");
}

#[test]
fn recordings_at_the_same_time_see_their_own() {
    let life = Life::new("beside", "lives/processes.c");
    let theirs = Steps::new(&life.world, "theirs");
    let start = |steps: &Steps, trace: &str| {
        let command = life.command(&["busy", "200"]);
        Running::start(&mut life.world.recorder(steps, &life.world.path(trace), &[], &command))
    };
    let (ours, other) = (start(&life.steps, "ours"), start(&theirs, "other"));
    life.steps.wait_ready(1);
    theirs.wait_ready(1);
    life.steps.wait_more(100);
    theirs.stop();
    let other = Recording::new(life.world.path("other"), other.finish());
    life.steps.wait_more(100);
    life.steps.stop();
    let ours = Recording::new(life.world.path("ours"), ours.finish());
    for (recording, steps) in [(&ours, &life.steps), (&other, &theirs)] {
        assert!(recording.output.status.success(), "{}", about(recording));
        steps.check(&life.world, recording);
        assert_eq!(recording.summary.processes, 1, "{}", about(recording));
    }
}

#[test]
fn a_recording_in_a_recording_sees_the_same() {
    let life = Life::new("nested", "lives/processes.c");
    let inner = life.world.path("inner");
    let trackway = build_dir().join("trackway");
    let (trackway, inner_text) = (trackway.to_str().unwrap(), inner.to_str().unwrap());
    let wrapper =
        [trackway, "record", "--on", "life:*", "--context", "vpid,vtid", "-o", inner_text, "--"];
    let outer = life.world.record_steps(&life.steps, &[], &life.behind(&wrapper, &["fork", "10"]));
    assert!(outer.output.status.success(), "{}", about(&outer));
    life.steps.check(&life.world, &outer);
    let emitted = life.steps.counts().emitted();
    assert_eq!(life.world.print(&inner).lines().count() as u64, emitted, "{}", about(&outer));
}

#[test]
fn a_static_program_is_named_and_runs() {
    let world = World::new("static");
    let steps = Steps::new(&world, "steps");
    let program = world.compile_file("lives/processes.c", false, &["-static"]);
    let command = [program.to_str().unwrap(), "steps", "10", "7"];
    let recording = world.record_steps(&steps, &[], &command);
    assert_eq!(recording.output.status.code(), Some(7), "{}", about(&recording));
    assert_eq!(steps.counts().completed(), 10, "it ran");
    assert_eq!(recording.summary.recorded, 0);
    assert!(recording.messages().contains("static"), "{}", about(&recording));
}

#[test]
fn a_program_of_another_user_is_said_to_be_untraceable() {
    if !is_root() || !has("setpriv") {
        return skipped("only root can become another user");
    }
    let life = Life::new("user", "lives/processes.c");
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    fs::set_permissions(life.steps.path(), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("the counters are for all");
    let command = life.behind(&nobody, &["steps", "10", "7"]);
    let recording = life.world.record_steps(&life.steps, &[], &command);
    if life.steps.counts().emitted() == 0 {
        return skipped("the built library is not readable by other users");
    }
    assert_eq!(recording.output.status.code(), Some(7), "{}", about(&recording));
    assert_eq!(recording.summary.recorded, 0, "{}", about(&recording));
    assert!(recording.messages().contains("user"), "{}", about(&recording));
}

#[test]
fn a_preloaded_library_of_the_program_stays() {
    let life = Life::of("own-preload", "lives/processes.c", false);
    let text = "#include <fcntl.h>\n__attribute__((constructor)) static void mark(void)\n\
                { open(\"own-library-was-loaded\", O_CREAT | O_WRONLY, 0600); }\n";
    let own = life.world.compile("own.so", text, false, &["-shared", "-fPIC", "-w"]);
    let trace = life.world.path("trace");
    let mut recorder =
        life.world.recorder(&life.steps, &trace, &[], &life.command(&["spawn", "2"]));
    recorder.env("LD_PRELOAD", &own);
    let recording = Recording::new(trace, Running::start(&mut recorder).finish());
    assert!(recording.output.status.success(), "{}", about(&recording));
    life.steps.check(&life.world, &recording);
    assert!(life.world.path("own-library-was-loaded").exists(), "{}", about(&recording));
}

#[test]
fn without_restartable_sequences_events_are_recorded() {
    let life = Life::new("tunable", "lives/threads.c");
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    life.record_command(&[], &life.behind(&without, &["short", "100"]));
    let life = Life::new("tunable-storm", "lives/threads.c");
    life.record_command(&[], &life.behind(&without, &["storm", "1000"]));
    let life = Life::new("tunable-vfork", "lives/threads.c");
    life.record_command(&[], &life.behind(&without, &["vfork", "50"]));
}

#[test]
fn a_program_in_valgrind_is_recorded() {
    if !has("valgrind") {
        return skipped("valgrind is not installed");
    }
    let life = Life::new("valgrind", "lives/processes.c");
    let wrapper = ["valgrind", "-q", "--error-exitcode=66"];
    life.record_command(&[], &life.behind(&wrapper, &["fork", "3"]));
}

#[test]
fn a_program_in_strace_is_recorded() {
    if !has("strace") {
        return skipped("strace is not installed");
    }
    let life = Life::new("strace", "lives/processes.c");
    let wrapper = ["strace", "-f", "-o", "strace-output"];
    life.record_command(&[], &life.behind(&wrapper, &["fork", "5"]));
}

#[test]
fn a_program_stepped_by_a_debugger_is_recorded() {
    if !has("gdb") {
        return skipped("gdb is not installed");
    }
    let life = Life::new("gdb", "lives/processes.c");
    // From the fifth event on, 2000 instructions one by one: through several events, each of which
    // finds its sequence interrupted at every instruction.
    let script = life.world.path("script");
    let text = "set pagination off\nset debuginfod enabled off\nset breakpoint pending on\n\
                set confirm off\nbreak trackway_emit_life_DOT_step\nrun\nignore 1 3\ncontinue\n\
                delete\nstepi 4000\ncontinue\nquit\n";
    fs::write(&script, text).expect("gdb's commands");
    let script = script.to_str().unwrap();
    let wrapper = ["gdb", "-q", "-batch", "-nx", "-x", script, "--args"];
    let recording = life.record_command(&[], &life.behind(&wrapper, &["steps", "50"]));
    assert_eq!(recording.summary.lost, 0, "{}", about(&recording));
    assert_eq!(recording.summary.recorded, 50, "{}", about(&recording));
    let output = String::from_utf8_lossy(&recording.output.stdout);
    assert!(output.contains("Breakpoint 1, "), "{output}");
}
