//! Recovery: the recorder, the program, or both are killed at random moments, and no committed
//! event may be missing afterwards. The program counts its own events for comparison
//! (tests/torture/shared.rs).

#[path = "torture/check.rs"]
mod check;
#[path = "torture/seeded.rs"]
mod seeded;
#[path = "torture/shared.rs"]
#[allow(dead_code, reason = "shared with tests/torture; each needs a part")]
mod shared;
#[path = "torture/trace.rs"]
mod trace;
#[path = "torture/window.rs"]
#[allow(dead_code, reason = "shared with tests/torture; each needs a part")]
mod window;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use shared::{Lane, ProcessGroup, SharedFile, SharedWord, WorkloadOrders};
use trace::{Complaints, Stream};
use trackway_testkit::Random;
use trackway_tests::{Fixture, Summary, report_skipped};

/// Duration that exceeds all tests; the program ends by itself after this time.
const PROGRAM_LIFETIME_MS: u64 = 60_000;
/// Longest time that a test waits for the slowest condition.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Options with enough memory for all events that a scene records before it is cut short.
const ROOMY_BUFFERS: [&str; 2] = ["--buffer-size=64M", "--sub-buffers=64"];
/// Options with so little memory that sub-buffers are drained and reused all the time.
const TINY_BUFFERS: [&str; 2] = ["--buffer-size=64K", "--sub-buffers=16"];
const BODY_BYTES_MAX: u64 = 512;

/// A program that is being recorded.
struct RecordedWorkload {
    fixture: Fixture,
    shared: SharedFile,
    group: ProcessGroup,
    trace: PathBuf,
    random: Random,
}

impl RecordedWorkload {
    /// Starts recording the workload in `role` with `orders`, and waits until it records.
    fn new(
        seed: u64,
        role: &str,
        claiming: bool,
        options: &[&str],
        orders: WorkloadOrders,
    ) -> Self {
        let scene = Self::start(seed, role, claiming, options, orders);
        scene.wait_until("the program records", || scene.returned() > 100);
        scene
    }

    fn start(
        seed: u64,
        role: &str,
        claiming: bool,
        options: &[&str],
        orders: WorkloadOrders,
    ) -> Self {
        let fixture = Fixture::new("recover");
        let program = shared::compile_workload(&fixture);
        let shared = SharedFile::new(&fixture, &orders);
        shared.set(SharedWord::Seed, seed);
        shared.set(SharedWord::BodyMax, BODY_BYTES_MAX);
        shared.set(SharedWord::DurationMs, PROGRAM_LIFETIME_MS);
        shared.set(SharedWord::EndNs, u64::MAX);
        let trace = fixture.path("trace");
        let messages = std::fs::File::create(fixture.path("messages")).expect("a file");
        let mut command = fixture.trackway(&["record", "--event=torture:*", "-o"]);
        command.arg(&trace).args(options).arg("--");
        command.args(shared::workload_command(&program, &shared, role, claiming));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages);
        let group = ProcessGroup::start(&mut command, Some(&shared));
        Self { fixture, shared, group, trace, random: Random::new(seed) }
    }

    /// Waits until `done` returns true, long enough for a busy machine.
    fn wait_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + WAIT_MAX;
        while !done() {
            assert!(Instant::now() < deadline, "{what}: not after {WAIT_MAX:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.fixture.path("messages")).unwrap_or_default()
    }

    fn returned(&self) -> u64 {
        self.shared.lanes().iter().map(|lane| lane.returned).sum()
    }

    /// Kills the recorder, and waits until it is dead, which takes a moment if it is in a write(2).
    fn kill_recorder(&self) {
        self.group.signal(libc::SIGKILL);
        self.group.wait_for_leader();
    }

    /// Waits for a random time up to `most_ms`, so that a kill happens at a random moment.
    fn let_run(&mut self, most_ms: u64) {
        let us = self.random.next_below(most_ms * 1000);
        std::thread::sleep(Duration::from_micros(us));
    }

    fn recover(&self) -> Output {
        let output = self.fixture.trackway(&["recover"]).output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {messages}", output.status);
        output
    }

    /// Reads the trace and makes the checks that do not depend on the time and kind of the kills.
    fn read(&self, lanes: &[Lane], wrong: &mut Complaints) -> Vec<Stream> {
        let streams = trace::read_streams(
            &trace::find_trace_folder(&self.trace),
            lanes,
            BODY_BYTES_MAX,
            wrong,
        );
        check::check_order(&streams, wrong);
        check::check_no_packet_missing(&streams, wrong);
        let totals = check::sum_totals(&streams, lanes);
        trace::check_with_babeltrace(&self.fixture, &self.trace, &totals, wrong);
        streams
    }

    /// Checks the recovered trace after all processes were killed: every committed event is present
    /// or counted.
    fn check(&self, roomy: bool) {
        let lanes = self.shared.lanes();
        let wrong = &mut Complaints::default();
        let streams = self.read(&lanes, wrong);
        let totals = check::sum_totals(&streams, &lanes);
        check::check_sums(&totals, 0, wrong);
        if roomy {
            wrong.unless(totals.lost == 0, || format!("lost with room to spare: {totals:?}"));
            check::check_all_present(&streams, &lanes, wrong);
        }
        let mark = trace::find_trace_folder(&self.trace).join("trackway/complete");
        wrong.unless(mark.is_file(), || "the trace is not marked as complete".to_owned());
        self.expect_nothing(wrong);
        self.expect_nothing_left(wrong);
        self.expect_nothing(wrong);
    }

    fn expect_nothing(&self, wrong: &Complaints) {
        if let Some(complaints) = wrong.text() {
            panic!("{complaints}\nrecorder: {}", self.log());
        }
    }

    /// Checks that no session is in use, no memory held, and no event enabled.
    fn expect_nothing_left(&self, wrong: &mut Complaints) {
        window::check_nothing_left(&self.fixture, wrong);
    }

    /// Returns the number of events that a session has enabled.
    fn events_enabled(&self) -> usize {
        window::count_enabled_events(&window::read_fixed_part(&self.fixture))
    }
}

/// Returns every file below `folder` with its bytes.
fn read_folder_tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(read_folder_tree(&path));
        } else {
            files.insert(path.clone(), std::fs::read(&path).expect("a file"));
        }
    }
    files
}

/// Returns the orders of a busy program: processes that come and go, threads, signals.
fn busy_orders(pace: u64) -> WorkloadOrders {
    vec![
        (SharedWord::Processes, 2),
        (SharedWord::Threads, 3),
        (SharedWord::AlarmUs, 150),
        (SharedWord::DirectedUs, 150),
        (SharedWord::Forks, 1),
        (SharedWord::Kills, 1),
        (SharedWord::Restarts, 1),
        (SharedWord::Pace, pace),
    ]
}

#[test]
fn nothing_is_missing_when_everything_is_killed_at_once() {
    for (seed, options) in [(1, TINY_BUFFERS), (2, ROOMY_BUFFERS), (3, TINY_BUFFERS)] {
        let mut scene = RecordedWorkload::new(seed, "main", false, &options, busy_orders(20));
        scene.let_run(300);
        scene.group.signal_all(libc::SIGKILL);
        scene.group.wait_for_all();
        scene.recover();
        scene.check(options == ROOMY_BUFFERS);
    }
}

#[test]
fn nothing_is_missing_when_the_recorder_is_killed_first() {
    for (seed, options, claiming) in
        [(11, TINY_BUFFERS, false), (12, ROOMY_BUFFERS, false), (13, TINY_BUFFERS, true)]
    {
        let mut scene = RecordedWorkload::new(seed, "main", claiming, &options, busy_orders(20));
        scene.let_run(300);
        scene.kill_recorder();
        scene.let_run(200);
        scene.group.signal_all(libc::SIGKILL);
        scene.group.wait_for_all();
        if !window::is_lease_valid(&scene.fixture) {
            // The lease ran out, so missing and uncounted events are correct.
            return report_skipped("the machine is so busy that the dead recorder's lease ran out");
        }
        scene.recover();
        scene.check(options == ROOMY_BUFFERS);
    }
}

#[test]
fn a_recorder_killed_while_it_starts_leaves_nothing_behind() {
    let mut random = Random::new(15);
    for _ in 0..15 {
        let mut scene = RecordedWorkload::start(15, "main", false, &TINY_BUFFERS, busy_orders(20));
        std::thread::sleep(Duration::from_micros(random.next_below(40_000)));
        scene.group.signal_all(libc::SIGKILL);
        scene.group.wait_for_all();
        scene.recover();
        let wrong = &mut Complaints::default();
        if trace::find_trace_folder(&scene.trace).join("metadata").exists() {
            scene.read(&scene.shared.lanes(), wrong);
        }
        if window::window_exists(&scene.fixture) {
            scene.expect_nothing_left(wrong);
        }
        scene.expect_nothing(wrong);
    }
}

#[test]
fn nothing_is_missing_when_the_program_is_killed() {
    for (seed, options) in [(21, TINY_BUFFERS), (22, ROOMY_BUFFERS), (23, TINY_BUFFERS)] {
        let orders =
            vec![(SharedWord::Threads, 4), (SharedWord::AlarmUs, 100), (SharedWord::Pace, 20)];
        let mut scene = RecordedWorkload::new(seed, "process", false, &options, orders);
        scene.let_run(300);
        let pid = scene.shared.lanes()[1].pid.cast_signed();
        // SAFETY: kill has no preconditions; the process is the recorder's child and runs until it
        // is killed here, so its id is still its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        let status = scene.group.wait(WAIT_MAX).expect("the recorder ends with its command");
        assert!(!status.success(), "it passes on how its command ended");
        scene.check(options == ROOMY_BUFFERS);
        let lanes = scene.shared.lanes();
        let wrong = &mut Complaints::default();
        let totals = check::sum_totals(&scene.read(&lanes, wrong), &lanes);
        let summary = Summary::parse(&scene.log());
        assert_eq!((summary.recorded, summary.lost), (totals.recorded, totals.lost));
    }
}

#[test]
fn a_flight_recorder_can_be_recovered() {
    let options = [&TINY_BUFFERS[..], &["--overwrite"]].concat();
    for seed in 31..34 {
        let mut scene = RecordedWorkload::new(seed, "main", false, &options, busy_orders(100));
        scene.let_run(300);
        scene.group.signal_all(libc::SIGKILL);
        scene.group.wait_for_all();
        scene.recover();
        let lanes = scene.shared.lanes();
        let wrong = &mut Complaints::default();
        let streams = scene.read(&lanes, wrong);
        let totals = check::sum_totals(&streams, &lanes);
        wrong.unless(totals.recorded > 0, || "nothing was recovered".to_owned());
        check::check_newest_present(&streams, &lanes, totals.lost, wrong);
        scene.expect_nothing_left(wrong);
        scene.expect_nothing(wrong);
    }
}

#[test]
fn recovering_again_changes_nothing() {
    let mut scene = RecordedWorkload::new(41, "main", false, &TINY_BUFFERS, busy_orders(20));
    scene.let_run(300);
    scene.group.signal_all(libc::SIGKILL);
    scene.group.wait_for_all();
    scene.recover();
    let before = read_folder_tree(&scene.trace);
    let window = window::read_fixed_part(&scene.fixture);
    scene.recover();
    assert!(read_folder_tree(&scene.trace) == before, "the trace changed");
    assert!(window::read_fixed_part(&scene.fixture) == window, "the window changed");
    scene.check(false);
}

#[test]
fn the_next_recording_recovers_too() {
    let mut scene = RecordedWorkload::new(51, "main", false, &TINY_BUFFERS, busy_orders(20));
    scene.let_run(300);
    scene.group.signal_all(libc::SIGKILL);
    scene.group.wait_for_all();
    let next = scene.fixture.path("next");
    let mut record = scene.fixture.trackway(&["record", "-o"]);
    let output = record.arg(&next).args(["--", "true"]).output().expect("trackway runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    scene.check(false);
}

#[test]
fn a_trace_that_was_moved_is_recovered_though_another_took_its_place() {
    let mut scene = RecordedWorkload::new(52, "main", false, &ROOMY_BUFFERS, busy_orders(20));
    scene.let_run(300);
    scene.group.signal_all(libc::SIGKILL);
    scene.group.wait_for_all();
    let moved = scene.fixture.path("moved");
    std::fs::rename(&scene.trace, &moved).expect("a folder");
    let mut record = scene.fixture.trackway(&["record", "-o"]);
    let output = record.arg(&scene.trace).args(["--", "true"]).output().expect("trackway runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = read_folder_tree(&scene.trace);
    let recover = |of: &[&Path]| {
        let output = scene.fixture.trackway(&["recover"]).args(of).output().expect("trackway runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // A command that recovers in passing does not touch a trace that was moved.
    let mut record = scene.fixture.trackway(&["record", "-o"]);
    let output = record.arg(scene.fixture.path("third")).args(["--", "true"]).output().expect("it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1 unfinished recording: trackway recover\n"), "{said}");
    let (whole, said) = recover(&[&scene.trace]);
    assert!(whole && said.contains("nothing to recover"), "{said}");
    let (whole, said) = recover(&[&moved]);
    assert!(whole && said.contains("recovered "), "{said}");
    assert!(read_folder_tree(&scene.trace) == theirs, "the other trace changed");
    scene.trace = moved;
    scene.check(true);
}

#[test]
fn a_running_program_can_be_recovered_from() {
    let mut scene = RecordedWorkload::new(61, "main", false, &ROOMY_BUFFERS, busy_orders(20));
    scene.let_run(300);
    scene.kill_recorder();
    let before = scene.shared.lanes();
    scene.recover();
    let after = scene.shared.lanes();
    let wrong = &mut Complaints::default();
    let streams = scene.read(&after, wrong);
    let lanes: Vec<Lane> = after
        .iter()
        .enumerate()
        .map(|(number, lane)| Lane {
            returned: before.get(number).map_or(0, |before| before.returned),
            ..lane.clone()
        })
        .collect();
    check::check_all_present(&streams, &lanes, wrong);
    scene.expect_nothing_left(wrong);
    scene.expect_nothing(wrong);
    let returned = scene.returned();
    scene.wait_until("the program lives on", || scene.returned() > returned + 1000);
}

#[test]
fn a_program_stops_paying_for_a_dead_recorder() {
    for (seed, overwrite) in [(71, false), (72, true)] {
        let mode: &[&str] = if overwrite { &["--overwrite"] } else { &[] };
        let options = [&TINY_BUFFERS[..], mode].concat();
        let scene = RecordedWorkload::new(seed, "main", false, &options, busy_orders(1000));
        scene.wait_until("events are enabled", || scene.events_enabled() > 30);
        scene.kill_recorder();
        scene.wait_until("no event is enabled", || scene.events_enabled() == 0);
        let returned = scene.returned();
        scene.wait_until("the program lives on", || scene.returned() > returned + 1000);
        scene.recover();
        let wrong = &mut Complaints::default();
        scene.read(&scene.shared.lanes(), wrong);
        scene.expect_nothing_left(wrong);
        scene.expect_nothing(wrong);
    }
}

#[test]
fn a_recorder_that_was_stopped_goes_on() {
    let mut scene = RecordedWorkload::new(91, "main", false, &TINY_BUFFERS, busy_orders(1000));
    scene.group.signal(libc::SIGSTOP);
    scene.wait_until("no event is enabled", || scene.events_enabled() == 0);
    scene.group.signal(libc::SIGCONT);
    scene.wait_until("events are enabled", || scene.events_enabled() > 30);
    let since = scene.shared.lanes();
    scene.let_run(300);
    scene.shared.set(SharedWord::Stop, 1);
    let status = scene.group.wait(WAIT_MAX).expect("the program ends");
    assert!(status.success(), "{status}: {}", scene.log());
    let wrong = &mut Complaints::default();
    let streams = scene.read(&scene.shared.lanes(), wrong);
    let started = |record: &trace::Record| since.get(record.lane as usize).map(|lane| lane.started);
    let later = |record: &&trace::Record| started(record).is_none_or(|seq| record.seq > seq);
    let found = streams.iter().flat_map(|stream| &stream.records).filter(later).count();
    wrong.unless(found > 0, || "nothing was recorded afterwards".to_owned());
    scene.expect_nothing_left(wrong);
    scene.expect_nothing(wrong);
}

#[test]
fn a_damaged_byte_is_noticed() {
    let mut scene = RecordedWorkload::new(95, "main", false, &ROOMY_BUFFERS, busy_orders(20));
    scene.shared.set(SharedWord::Stop, 1);
    let status = scene.group.wait(WAIT_MAX).expect("the program ends");
    assert!(status.success(), "{status}: {}", scene.log());
    scene.check(true);
    let lanes = scene.shared.lanes();
    let folder = trace::find_trace_folder(&scene.trace);
    let streams = trace::read_streams(&folder, &lanes, BODY_BYTES_MAX, &mut Complaints::default());
    let fullest = streams.iter().max_by_key(|stream| stream.records.len()).expect("a stream");
    let path = folder.join(&fullest.name);
    let good = std::fs::read(&path).expect("a stream file");
    let is_text = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_lowercase);
    let text = good.windows(20).position(is_text).expect("a long text");
    for at in text..text + 20 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).expect("the damage is written");
        let wrong = &mut Complaints::default();
        trace::read_streams(&folder, &lanes, BODY_BYTES_MAX, wrong);
        assert!(wrong.text().is_some(), "the damage at byte {at} of {} shows", fullest.name);
    }
}

#[test]
fn regions_of_claimers_that_were_killed_are_used_again() {
    const KILLS: u64 = 1000;
    let orders = vec![(SharedWord::Kills, KILLS), (SharedWord::Pace, 500)];
    let options = ["--buffer-size=1M", "--sub-buffers=64"];
    let mut scene = RecordedWorkload::new(81, "dying", true, &options, orders);
    let status = scene.group.wait(2 * WAIT_MAX).expect("the program ends");
    assert!(status.success(), "{status}: {}", scene.log());
    assert_eq!(scene.shared.get(SharedWord::Killed), KILLS);
    scene.check(false);
    let lanes = scene.shared.lanes();
    let streams = scene.read(&lanes, &mut Complaints::default());
    let last = lanes.len() as u32 - 1;
    let records = streams.iter().flat_map(|stream| &stream.records);
    let recorded = records.filter(|record| record.lane == last).count();
    assert_eq!(recorded, 1000, "events after the last kill");
}
