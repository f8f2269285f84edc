//! Processes that become another user (docs/design/0004-privileges.md). Root's recording records
//! them while they belong to root, and the other user's recording records them afterwards. No event
//! is recorded twice, and none in a window of another user.
//!
//! The programs are in `tests/lives/users.c`. Two recordings run at a time, one by root and one by
//! the user `nobody`; the program has the tokens of both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::steps::{RunningProgram, Steps, parse_steps, send_signal, wait_for};
use trackway_tests::{
    Fixture, Recording, Summary, build_dir, has, is_root, report_skipped, source_dir,
};

const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// The recordings of one program by two users.
struct TwoUsersTest {
    fixture: Fixture,
    steps: Steps,
    program: PathBuf,
}

/// The trace of one user's recording.
struct UserTrace {
    recording: Recording,
    /// Numbers of the steps, by stream, in the order of the trace.
    numbers: BTreeMap<u32, Vec<u64>>,
}

impl UserTrace {
    fn of(fixture: &Fixture, recording: Recording) -> Self {
        let mut numbers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for step in parse_steps(&fixture.print(&recording.trace)) {
            assert_eq!((step.vpid, step.vtid), (step.pid, step.tid), "contexts of {step:?}");
            numbers.entry(step.stream).or_default().push(step.number);
        }
        Self { recording, numbers }
    }

    fn stream(&self, stream: u32) -> &[u64] {
        self.numbers.get(&stream).map_or(&[], Vec::as_slice)
    }

    fn summary(&self) -> Summary {
        self.recording.summary
    }

    /// Returns the number of processes that the recorder reports as having become another user.
    fn departed(&self) -> u64 {
        let messages = self.recording.messages();
        let line = messages.lines().find(|line| line.contains("became another user"));
        line.map_or(0, |line| {
            let number = line.trim_start_matches("trackway: ").split(' ').next();
            number.and_then(|number| number.parse().ok()).expect("a number")
        })
    }
}

impl TwoUsersTest {
    /// Makes a fixture of two users; returns `None`, after printing the reason, if that is
    /// impossible.
    fn new(name: &str, linked: bool) -> Option<Self> {
        if !is_root() || !has("setpriv") || !has("unshare") {
            report_skipped("only root can become another user");
            return None;
        }
        let fixture = Fixture::new(name);
        let library = build_dir().join("libtrackway.so");
        let reads = |path: &Path| {
            let mut cat = Command::new(AS_NOBODY[0]);
            cat.args(&AS_NOBODY[1..]).arg("test").arg("-r").arg(path);
            cat.status().is_ok_and(|status| status.success())
        };
        if !reads(&library) || !reads(&fixture.path("")) {
            report_skipped("the built library is not readable by other users");
            return None;
        }
        let steps = Steps::new(&fixture, "steps");
        // Both users make their windows and write the files that the test reads.
        for path in [fixture.window_dir(), fixture.path("").as_path()] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o1777)).expect("for all");
        }
        fs::set_permissions(steps.path(), PermissionsExt::from_mode(0o666)).expect("for all");
        let program = fixture.compile_file("lives/users.c", linked, &[]);
        Some(Self { fixture, steps, program })
    }

    /// Starts the recording of the user `nobody`, which lasts until `finish_theirs`; returns it
    /// with its token.
    fn start_theirs(&self, pattern: &str) -> (RunningProgram, String) {
        let mut recorder = self.fixture.command(AS_NOBODY[0]);
        recorder.args(&AS_NOBODY[1..]).arg(build_dir().join("trackway"));
        recorder.args(["record", "--event", pattern, "--context", "vpid,vtid"]);
        recorder.arg("-o").arg(self.fixture.path("theirs")).args(["--", "sh", "-c"]);
        recorder.arg(
            "echo $TRACKWAY_TOKEN > token.new && mv token.new token && \
             until test -e ended; do sleep 0.02; done",
        );
        let running = RunningProgram::start(&mut recorder);
        let token = self.fixture.path("token");
        wait_for("nobody's recording", || token.exists());
        (running, fs::read_to_string(token).expect("its token").trim().to_owned())
    }

    fn finish_theirs(&self, recorder: RunningProgram) -> Recording {
        fs::write(self.fixture.path("ended"), "").expect("a file");
        let recording = Recording::new(self.fixture.path("theirs"), recorder.finish());
        assert!(recording.output.status.success(), "{}", recording.messages());
        recording
    }

    /// Records the program by the recorders of root and `nobody` at the same time; returns the
    /// events that each of them recorded.
    fn record(&self, wrapper: &[&str], arguments: &[&str]) -> (UserTrace, UserTrace) {
        let (theirs, token) = self.start_theirs("life:*");
        let trace = self.fixture.path("trace");
        let mut command: Vec<&str> = wrapper.to_vec();
        command.push(self.program.to_str().expect("text"));
        command.extend(arguments);
        let mut recorder = self.fixture.recorder(&self.steps, &trace, &[], &command);
        recorder.env("TRACKWAY_TOKEN", token);
        let ours = Recording::new(trace, RunningProgram::start(&mut recorder).finish());
        let theirs = self.finish_theirs(theirs);
        println!("{}\n{}", ours.messages(), theirs.messages()); // shown where the test fails
        assert!(ours.output.status.success(), "{}: {}", ours.output.status, ours.messages());
        (UserTrace::of(&self.fixture, ours), UserTrace::of(&self.fixture, theirs))
    }

    fn emitted(&self, stream: u32) -> u64 {
        self.steps.counts().started.get(&stream).copied().unwrap_or(0)
    }
}

fn numbers_below(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn a_process_that_drops_root_changes_its_recording() {
    for linked in [true, false] {
        let Some(users) = TwoUsersTest::new("drop", linked) else { return };
        let (ours, theirs) = users.record(&[], &["drop", "500"]);
        assert_eq!(ours.numbers.len(), 1);
        assert_eq!(ours.stream(0), numbers_below(500));
        assert_eq!((ours.summary().recorded, ours.summary().lost), (500, 0));
        assert_eq!(ours.departed(), 1);
        for stream in [1, 2, 4] {
            assert_eq!(theirs.stream(stream), numbers_below(500), "stream {stream}");
        }
        assert_eq!(theirs.stream(3), numbers_below(10), "of the program that its child became");
        assert_eq!((theirs.summary().recorded, theirs.summary().lost), (1510, 0));
        assert_eq!(theirs.summary().processes, 3, "the shell, the program, its child");
        assert_eq!(theirs.departed(), 0);
    }
}

#[test]
fn without_a_window_to_go_to_nothing_is_recorded_and_nothing_happens() {
    let Some(users) = TwoUsersTest::new("drop-alone", true) else { return };
    // The user `nobody` records no event, but its window is made.
    let recording = users.fixture.record_steps(
        &users.steps,
        &[],
        &[users.program.to_str().expect("text"), "drop", "50"],
    );
    let status = recording.output.status;
    assert!(status.success(), "{status}: {}", recording.messages());
    assert_eq!(recording.summary.recorded, 50, "{}", recording.messages());
    // The same program without a place for a window.
    let Some(users) = TwoUsersTest::new("drop-chroot", true) else { return };
    let (ours, theirs) = users.record(&[], &["chroot", "50"]);
    assert_eq!((ours.stream(0), ours.stream(1)), (&numbers_below(50)[..], &numbers_below(50)[..]));
    assert_eq!((ours.summary().recorded, ours.departed()), (100, 1));
    assert_eq!(theirs.summary().recorded, 0);
}

#[test]
fn a_process_that_can_regain_root_stays_in_roots_recording() {
    let Some(users) = TwoUsersTest::new("temporary", true) else { return };
    let (ours, theirs) = users.record(&[], &["temporary", "100"]);
    assert_eq!(ours.stream(0), numbers_below(501));
    assert_eq!((ours.summary().recorded, ours.summary().lost), (501, 0));
    assert_eq!(ours.departed(), 0);
    assert_eq!(theirs.summary().recorded, 0);
}

#[test]
fn threads_in_full_flight_are_recorded_without_a_gap_but_the_change() {
    let without = ["env", "GLIBC_TUNABLES=glibc.pthread.rseq=0"];
    for (wrapper, linked) in [(&[][..], true), (&[][..], false), (&without[..], true)] {
        for pause_us in ["0", "4000"] {
            let Some(users) = TwoUsersTest::new("flight", linked) else { return };
            let (ours, theirs) = users.record(wrapper, &["threads", pause_us]);
            assert_eq!(ours.departed(), 1);
            let mut between = 0;
            for stream in 0..3 {
                let (before, after) = (ours.stream(stream), theirs.stream(stream));
                let emitted = users.emitted(stream);
                let rises = |numbers: &[u64]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
                assert!(rises(before) && rises(after), "stream {stream}: nothing twice");
                let (last, first) = (before.last().copied().unwrap(), after.first().copied());
                let first = first.unwrap_or(emitted);
                assert!(last < first, "stream {stream}: first here, then there");
                between += first - last - 1;
                if ours.summary().lost == 0 {
                    let count = last + 1;
                    assert!(count >= users.emitted(100 + stream), "stream {stream}: all of before");
                    assert_eq!(before, numbers_below(count), "stream {stream}: lost silently");
                }
                if theirs.summary().lost == 0 {
                    assert!(first <= users.emitted(200 + stream), "stream {stream}: all of after");
                    assert_eq!(
                        after,
                        (first..emitted).collect::<Vec<_>>(),
                        "stream {stream}: after"
                    );
                }
            }
            let emitted: u64 = (0..3).map(|stream| users.emitted(stream)).sum();
            let counted = |seen: &UserTrace| seen.summary().recorded + seen.summary().lost;
            let sum = counted(&ours) + counted(&theirs);
            assert!(sum <= emitted && emitted <= sum + between, "{emitted} of {sum} + {between}");
        }
    }
}

#[test]
fn a_process_that_regains_root_finds_its_window_again() {
    let Some(users) = TwoUsersTest::new("back", true) else { return };
    let (ours, theirs) = users.record(&[], &["back", "50"]);
    assert_eq!(ours.stream(0), numbers_below(255));
    assert_eq!(theirs.stream(1), numbers_below(250));
    assert_eq!((ours.summary().recorded, ours.summary().lost), (255, 0));
    assert_eq!((theirs.summary().recorded, theirs.summary().lost), (250, 0));
    assert_eq!((ours.summary().processes, ours.departed()), (1, 0), "it is here again");
    assert_eq!(theirs.departed(), 1);
}

#[test]
fn threads_of_a_process_that_comes_and_goes_are_recorded_here_or_there() {
    for without in ["env A=", "env GLIBC_TUNABLES=glibc.pthread.rseq=0"] {
        let Some(users) = TwoUsersTest::new("back-threads", true) else { return };
        let wrapper: Vec<&str> = without.split(' ').collect();
        let (ours, theirs) = users.record(&wrapper, &["back-threads", "200"]);
        let mut all: Vec<u64> = [ours.stream(2), theirs.stream(2)].concat();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "nothing twice");
        let rises = |numbers: &[u64]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rises(ours.stream(2)) && rises(theirs.stream(2)));
        assert!(all.last().is_some_and(|&last| last < users.emitted(2)));
        if ours.summary().lost == 0 {
            assert_eq!(ours.stream(0), numbers_below(1005));
        }
        if theirs.summary().lost == 0 {
            assert_eq!(theirs.stream(1), numbers_below(1000));
        }
    }
}

#[test]
fn a_vfork_child_that_becomes_another_user_does_not_take_its_parent_along() {
    let Some(users) = TwoUsersTest::new("vfork-user", true) else { return };
    let (ours, theirs) = users.record(&[], &["vfork", "20"]);
    assert_eq!(ours.stream(0), numbers_below(41));
    assert_eq!((ours.summary().recorded, ours.departed()), (41, 0));
    assert_eq!(theirs.summary().recorded, 20 * 10);
}

#[test]
fn a_clone_that_shares_memory_does_not_keep_its_parent_from_becoming_another_user() {
    let Some(users) = TwoUsersTest::new("cloned", true) else { return };
    let (ours, theirs) = users.record(&[], &["cloned", "50"]);
    assert_eq!((ours.stream(0), ours.stream(2)), (&numbers_below(100)[..], &numbers_below(50)[..]));
    assert_eq!(
        (theirs.stream(1), theirs.stream(3)),
        (&numbers_below(50)[..], &numbers_below(50)[..])
    );
    assert_eq!((ours.summary().recorded, theirs.summary().recorded), (150, 100));
    assert_eq!((ours.summary().processes, ours.departed()), (2, 2));
}

#[test]
fn the_fork_child_of_a_program_with_threads_is_recorded_by_its_new_user() {
    let Some(users) = TwoUsersTest::new("forked-user", true) else { return };
    let (ours, theirs) = users.record(&[], &["forked", "50"]);
    if ours.summary().lost == 0 {
        assert_eq!(ours.stream(3), numbers_below(50));
    }
    assert_eq!(ours.stream(4), numbers_below(0));
    assert_eq!(ours.departed(), 1);
    assert_eq!(theirs.stream(4), numbers_below(50));
    assert_eq!((theirs.summary().recorded, theirs.summary().lost), (50, 0));
}

#[test]
fn a_thread_that_holds_the_list_of_modules_may_wait_for_the_change() {
    for linked in [true, false] {
        let Some(users) = TwoUsersTest::new("loader", linked) else { return };
        let (ours, theirs) = users.record(&[], &["loader", "50"]);
        assert_eq!(ours.stream(0), numbers_below(50));
        assert_eq!(
            (theirs.stream(1), theirs.stream(2)),
            (&numbers_below(50)[..], &numbers_below(50)[..])
        );
        assert_eq!((ours.summary().recorded, theirs.summary().recorded), (50, 100));
    }
}

#[test]
fn children_forked_in_the_middle_of_a_change_are_where_their_user_is() {
    // In the second case, the parent and all children have process id 1, each in a separate
    // namespace.
    let first = ["unshare", "--pid", "--fork"];
    for (wrapper, mode) in [(&[][..], "midway"), (&first[..], "midway-first")] {
        let Some(users) = TwoUsersTest::new(mode, true) else { return };
        let (ours, theirs) = users.record(wrapper, &[mode, "400"]);
        let (as_root, as_nobody) = (users.emitted(0), users.emitted(1));
        assert!(as_root > 0 && as_nobody > as_root, "{as_root} and {as_nobody}");
        assert_eq!(ours.stream(0), numbers_below(as_root), "{mode}");
        assert_eq!(theirs.stream(1), numbers_below(as_nobody), "{mode}");
        assert_eq!(as_nobody, 400, "{mode}");
    }
}

#[test]
fn events_described_at_run_time_go_along() {
    for linked in [true, false] {
        let Some(users) = TwoUsersTest::new("described", linked) else { return };
        let (ours, theirs) = users.record(&[], &["described", "50"]);
        assert_eq!(
            (ours.stream(0), ours.stream(2)),
            (&numbers_below(50)[..], &numbers_below(50)[..])
        );
        assert_eq!(theirs.stream(1), numbers_below(100));
        assert_eq!((ours.summary().recorded, theirs.summary().recorded), (100, 100));
    }
}

#[test]
fn events_registered_in_no_window_turn_on_with_the_next() {
    let Some(users) = TwoUsersTest::new("nowhere", true) else { return };
    let (ours, theirs) = users.record(&[], &["nowhere", "50"]);
    assert_eq!((ours.stream(0), ours.stream(4)), (&numbers_below(50)[..], &numbers_below(100)[..]));
    assert_eq!(
        (theirs.stream(2), theirs.stream(3)),
        (&numbers_below(50)[..], &numbers_below(50)[..])
    );
    assert_eq!((ours.summary().recorded, theirs.summary().recorded), (150, 100));
}

#[test]
fn programs_with_more_rights_than_their_user_take_no_window_of_his() {
    let Some(users) = TwoUsersTest::new("secure", true) else { return };
    fs::set_permissions(&users.program, PermissionsExt::from_mode(0o4755)).expect("set-user-ID");
    // The environment does not name the window folder, so the usual folder must be a private one.
    let script = "mount -t tmpfs -o mode=1777 trackway-test-shm /dev/shm || exit 77; exec \"$@\"";
    let mut command = users.fixture.command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).args(AS_NOBODY);
    command.arg(&users.program).args(["secure", "50"]).env("STEPS", users.steps.path());
    let output = RunningProgram::start(&mut command).finish();
    if output.status.code() == Some(77) {
        return report_skipped("mount namespaces cannot be made here");
    }
    if output.status.code() == Some(96) && users.steps.counts().completed() == 50 {
        return report_skipped("temporary folders are mounted nosuid");
    }
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(users.steps.counts().completed(), 100);
}

#[test]
fn a_server_whose_workers_give_up_root_is_recorded_by_both() {
    for linked in [true, false] {
        let Some(users) = TwoUsersTest::new("server", linked) else { return };
        let (ours, theirs) = users.record(&[], &["server", "3"]);
        assert_eq!(ours.stream(0), numbers_below(10 + 12 + 10), "the master");
        for worker in 0..6 {
            let (before, after) = (2 + 2 * worker, 3 + 2 * worker);
            assert_eq!(ours.stream(before), numbers_below(10), "worker {worker}");
            assert_eq!(theirs.stream(after), numbers_below(100), "worker {worker}");
        }
        assert_eq!((ours.summary().recorded, ours.summary().lost), (32 + 60, 0));
        assert_eq!((ours.summary().processes, ours.departed()), (7, 6));
        assert_eq!((theirs.summary().recorded, theirs.summary().lost), (600, 0));
    }
}

/// Records the crate's events, macros and `tracing`, in a program that cargo builds.
#[test]
fn callsites_that_were_visited_as_root_are_recorded_by_the_new_user() {
    if !has("cargo") {
        return report_skipped("cargo is not installed");
    }
    let Some(users) = TwoUsersTest::new("callsites", true) else { return };
    let target = build_dir().parent().expect("target/release has a parent").to_owned();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--offline", "--locked", "--quiet", "-p", "trackway", "--features"]);
    cargo.args(["tracing,log", "--example", "users"]).arg("--target-dir").arg(&target);
    let built = cargo.current_dir(source_dir()).status().expect("cargo runs");
    assert!(built.success());
    let program = target.join("debug/examples/users");
    let (theirs, token) = users.start_theirs("life:*");
    let trace = users.fixture.path("trace");
    let mut recorder = users.fixture.trackway(&["record", "--event", "life:*", "-o"]);
    recorder.arg(&trace).arg("--").arg(program).env("TRACKWAY_TOKEN", token);
    let ours = Recording::new(trace, RunningProgram::start(&mut recorder).finish());
    let theirs = users.finish_theirs(theirs);
    assert!(ours.output.status.success(), "{}", ours.messages());
    for (recording, user) in [(&ours, "as_user = 0"), (&theirs, "as_user = 65534")] {
        let text = users.fixture.print(&recording.trace);
        let count = |name: &str| text.lines().filter(|line| line.contains(name)).count();
        for name in ["work_begin: ", "said: ", "counted: "] {
            let lines = text.lines().filter(|line| line.contains(&format!("life:{name}")));
            let its = lines.filter(|line| line.contains(user)).count();
            assert_eq!((its, count(name)), (10, 10), "{name}\n{text}");
        }
        assert_eq!(count("work_end: "), 10, "{text}");
        assert_eq!((recording.summary.recorded, recording.summary.lost), (40, 0));
    }
}

/// Returns the processes that have events in a trace.
fn processes_in_trace(fixture: &Fixture, trace: &Path) -> BTreeSet<u32> {
    let text = fixture.print(trace);
    let vpid = |line: &str| {
        let (_, rest) = line.split_once("vpid = ")?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    };
    text.lines().filter_map(vpid).collect()
}

#[test]
fn nginx_is_recorded_by_root_and_its_workers_by_their_user() {
    const PATTERN: &str = "lttng_ust_libc:*";
    if !has("nginx") {
        return report_skipped("nginx is not installed");
    }
    let Some(users) = TwoUsersTest::new("nginx", false) else { return };
    let fixture = &users.fixture;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = port.expect("a free port");
    let folder = fixture.path("nginx").display().to_string();
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).expect("for all");
    let configuration = format!(
        "user nobody nogroup; worker_processes 2; daemon off; pid {folder}/pid;\n\
         error_log {folder}/errors; events {{}}\n\
         http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder};\n\
         fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};\n\
         server {{ listen {address}; return 200 'served'; }} }}\n"
    );
    let file = fixture.path("nginx.conf");
    fs::write(&file, configuration).expect("its configuration");
    let (theirs, token) = users.start_theirs(PATTERN);
    let trace = fixture.path("trace");
    let mut recorder = fixture.trackway(&["record", "--preload", "libc", "--event", PATTERN]);
    recorder.args(["--context", "vpid,vtid", "-o"]).arg(&trace).arg("--");
    recorder.args(["nginx", "-e", &format!("{folder}/errors"), "-p", &folder, "-c"]).arg(&file);
    recorder.env("TRACKWAY_TOKEN", token);
    let recorder = RunningProgram::start(&mut recorder);
    let pid = |text: String| text.trim().parse::<i32>().ok();
    wait_for("nginx", || fs::read_to_string(format!("{folder}/pid")).ok().and_then(pid).is_some());
    let master = fs::read_to_string(format!("{folder}/pid")).ok().and_then(pid).expect("its pid");
    for _ in 0..50 {
        let mut stream = TcpStream::connect(address).expect("nginx listens");
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("served"), "{answer}");
    }
    let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children"));
    let workers: BTreeSet<u32> =
        children.expect("its workers").split(' ').filter_map(|pid| pid.parse().ok()).collect();
    assert_eq!(workers.len(), 2);
    send_signal(master, libc::SIGQUIT);
    let ours = Recording::new(trace, recorder.finish());
    let theirs = users.finish_theirs(theirs);
    println!("{}\n{}", ours.messages(), theirs.messages());
    assert!(ours.output.status.success(), "{}", ours.messages());
    assert!(ours.messages().contains("2 processes became another user"), "{}", ours.messages());
    let seen = processes_in_trace(fixture, &ours.trace);
    assert!(seen.contains(&master.cast_unsigned()) && workers.is_subset(&seen), "{seen:?}");
    assert_eq!(processes_in_trace(fixture, &theirs.trace), workers);
    for recording in [&ours, &theirs] {
        let text = fixture.print(&recording.trace);
        assert_eq!(text.lines().count() as u64, recording.summary.recorded);
    }
}

/// Emits in a thread, and becomes another user with a resource limit that allows no more data.
const POOR_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <trackway/trackway.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO);
static int stop;
static void *emit(void *unused)
{
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        trackway(myapp, tick);
    return unused;
}
int main(int argc, char **argv)
{
    const struct rlimit limit = {strtoul(argv[argc - 1], 0, 10), RLIM_INFINITY};
    pthread_t thread;
    if (pthread_create(&thread, 0, emit, 0))
        return 2;
    usleep(20000);
    if (setrlimit(RLIMIT_DATA, &limit) || setuid(65534))
        return 3;
    usleep(20000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    return pthread_join(thread, 0);
}
"#;

#[test]
fn a_process_at_its_data_limit_can_leave_root() {
    if !is_root() {
        return report_skipped("only root can become another user");
    }
    let fixture = Fixture::new("privileges-poor");
    let program = fixture.compile("poor", POOR_SOURCE, true, &["-pthread"]);
    for limit in ["0", "1048576", "17179869184"] {
        let recording = fixture.record(&[], &[program.to_str().unwrap(), limit]);
        assert!(recording.output.status.success(), "{limit}: {}", recording.messages());
        assert!(recording.summary.recorded > 0, "{limit}: {}", recording.messages());
        assert!(recording.messages().contains("1 process became another user"), "{limit}");
    }
}

/// Program that locks all of its present and future memory, and becomes another user, who may lock
/// little.
const LOCKED_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <trackway/trackway.h>
TRACKWAY_EVENT(myapp, tick, TRACKWAY_INFO);
static int windows(void)
{
    static char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps))
        found += strstr(line, "/trackway-0-v") != NULL;
    if (maps)
        fclose(maps);
    return found;
}
int main(void)
{
    const struct rlimit limit = {1 << 20, 1 << 20};
    trackway(myapp, tick);
    if (!windows() || setrlimit(RLIMIT_MEMLOCK, &limit))
        return 2;
    if (mlockall(MCL_FUTURE))
        return 77;
    if (setuid(65534))
        return 3;
    trackway(myapp, tick);
    return windows() ? 4 : 0;
}
"#;

#[test]
fn a_process_at_its_lock_limit_can_leave_root() {
    if !is_root() {
        return report_skipped("only root can become another user");
    }
    let fixture = Fixture::new("privileges-locked");
    let program = fixture.compile("locked", LOCKED_SOURCE, true, &[]);
    let recording = fixture.record(&[], &[program.to_str().unwrap()]);
    if recording.output.status.code() == Some(77) {
        return report_skipped("memory cannot be locked here");
    }
    let status = recording.output.status;
    assert!(status.success(), "{status}: {}", recording.messages());
    assert_eq!(recording.summary.recorded, 1, "{}", recording.messages());
    assert!(recording.messages().contains("1 process became another user"));
}
