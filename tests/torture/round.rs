//! One round: recorded, ended or killed, recovered if necessary, checked.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use trackway_tests::{Fixture, Summary};

use crate::LONG_ROUND_MS;
use crate::check::{self, RoundTotals};
use crate::plan::{BufferMode, RoundEnd, RoundPlan, WriterPath};
use crate::shared::{self, Lane, ProcessGroup, SharedFile};
use crate::trace::{self, Complaints, Stream};
use crate::window;

/// Time limit of a round's program and recorder.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// Longest time until the resources of dead processes are released.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(5);
/// File that marks a complete trace.
const COMPLETION_FILE: &str = "trackway/complete";
/// A round while it runs.
pub(crate) struct Round<'torture> {
    pub(crate) fixture: &'torture Fixture,
    pub(crate) program: &'torture Path,
    pub(crate) plan: &'torture RoundPlan,
    pub(crate) shared: &'torture SharedFile,
    /// Folder of the trace.
    pub(crate) folder: PathBuf,
}

/// Result of a round.
#[derive(Default)]
pub(crate) struct RoundOutcome {
    pub(crate) totals: RoundTotals,
    pub(crate) overwritten: u64,
    /// True if the session keeps its memory because a killed process cannot be proved dead. The PID
    /// namespace of such a process is unknown, because its parent was gone before its first event;
    /// or it is a vfork child, or a fork child at its first event, that owned a claim region.
    pub(crate) keeps: bool,
    pub(crate) complaint: Option<String>,
}

/// Contents of `trackway/complete`: the way in which the trace was completed.
#[derive(Debug)]
struct CompletionMark {
    by_recorder: bool,
    events: u64,
    lost: u64,
    overwritten: u64,
    damaged: u64,
}

impl Round<'_> {
    pub(crate) fn run(&self) -> RoundOutcome {
        let _ = fs::remove_dir_all(&self.folder);
        let done = self.record().and_then(|messages| Ok((messages, self.recover()?)));
        let lanes = self.shared.lanes();
        let (messages, lease_held) = match done {
            Ok(done) => done,
            Err(complaint) => {
                let totals = check::sum_totals(&[], &lanes);
                let complaint = Some(complaint);
                return RoundOutcome { totals, complaint, ..RoundOutcome::default() };
            }
        };
        let wrong = &mut Complaints::default();
        let mut outcome = self.check(&lanes, &messages, lease_held, wrong);
        outcome.keeps = self.expect_nothing_left(wrong);
        outcome.complaint = wrong.text().map(|text| format!("{text}\nrecorder: {messages}"));
        outcome
    }

    /// Runs the program under `trackway record`, until both have ended; returns the recorder's
    /// messages.
    fn record(&self) -> Result<String, String> {
        let plan = self.plan;
        let mut command = self.fixture.trackway(&["record", "-o"]);
        let log = self.fixture.path("messages");
        let messages = File::create(&log).expect("a file for messages");
        let role = if plan.end == RoundEnd::ProgramKilled { "process" } else { "main" };
        command.arg(&self.folder).args(plan.options()).arg("--");
        command.args(shared::workload_command(
            self.program,
            self.shared,
            role,
            plan.writer_path == WriterPath::Without,
        ));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages);
        let mut group = ProcessGroup::start(&mut command, Some(self.shared));
        let kill_at = Instant::now() + Duration::from_micros(plan.kill_after_us);
        match plan.end {
            RoundEnd::ByItself => self.stand_still(&group),
            RoundEnd::ProgramKilled => self.kill_program(&mut group, kill_at),
            RoundEnd::RecorderKilled => {
                sleep_until(kill_at);
                group.signal(libc::SIGKILL);
                group.wait_for_leader();
                std::thread::sleep(Duration::from_micros(plan.outlives_us));
                group.signal_all(libc::SIGKILL);
            }
            RoundEnd::AllKilled => {
                sleep_until(kill_at);
                group.signal_all(libc::SIGKILL);
            }
        }
        if matches!(plan.end, RoundEnd::RecorderKilled | RoundEnd::AllKilled) {
            group.wait_for_all();
        }
        let status = group.wait(ROUND_LIMIT);
        let messages = fs::read_to_string(log).unwrap_or_default();
        match (status, plan.end) {
            (None, _) => {
                let state = group.describe();
                Err(format!("did not end within {ROUND_LIMIT:?}: {messages}{state}"))
            }
            (Some(status), RoundEnd::ByItself) if !status.success() => {
                Err(format!("{status}: {messages}"))
            }
            _ => Ok(messages),
        }
    }

    fn stand_still(&self, group: &ProcessGroup) {
        let pause = Duration::from_millis(self.plan.pause_ms);
        if pause.is_zero() {
            return;
        }
        std::thread::sleep(Duration::from_millis(LONG_ROUND_MS / 3));
        group.signal_all(libc::SIGSTOP);
        std::thread::sleep(pause);
        // The recorder continues first: it must renew its lease before the program reads it.
        group.signal(libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(500));
        group.signal_all(libc::SIGCONT);
    }

    /// Kills the program, unless it has ended before.
    fn kill_program(&self, group: &mut ProcessGroup, kill_at: Instant) {
        let deadline = Instant::now() + ROUND_LIMIT;
        while Instant::now() < deadline && group.wait(Duration::ZERO).is_none() {
            let pid = self.shared.lanes().get(1).map_or(0, |lane| lane.pid);
            if pid != 0 {
                // It has only just begun, so the id is its own; from here on the descriptor is.
                // SAFETY: the system call takes two numbers.
                let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
                let Ok(fd) = i32::try_from(fd) else { return };
                if fd < 0 {
                    return;
                }
                // SAFETY: the kernel has just made it for us.
                let process = unsafe { OwnedFd::from_raw_fd(fd) };
                sleep_until(kill_at);
                let (fd, none) = (process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
                // SAFETY: the descriptor is open; a null pointer selects the same information as
                // kill(2).
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0) };
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Completes the traces of dead processes. Returns true if writers took the recorder for alive
    /// until then.
    fn recover(&self) -> Result<bool, String> {
        let lease_held = self.plan.end != RoundEnd::RecorderKilled
            || !window::window_exists(self.fixture)
            || window::is_lease_valid(self.fixture);
        let output = self.fixture.trackway(&["recover"]).output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(lease_held)
        } else {
            Err(format!("recover: {}: {messages}", output.status))
        }
    }

    /// Waits until the commands so far, or the next ones, have released all memory, and complains
    /// if memory stays. A hole's memory stays with its session as long as the kernel has threads of
    /// a killed process. Returns true if memory stays because a process cannot be proved dead.
    fn expect_nothing_left(&self, wrong: &mut Complaints) -> bool {
        let deadline = Instant::now() + RELEASE_WAIT_MAX;
        while window::window_exists(self.fixture) {
            let left = &mut Complaints::default();
            window::check_nothing_left(self.fixture, left);
            let Some(text) = left.text() else { return false };
            if Instant::now() > deadline {
                let may_keep = self.plan.kills()
                    && (self.plan.writer_path != WriterPath::Lockless
                        || window::has_process_of_unknown_namespace(self.fixture)
                        || window::has_unnamed_writer(self.fixture));
                wrong.unless(may_keep, || text);
                return may_keep;
            }
            std::thread::sleep(Duration::from_millis(20));
            if let Err(complaint) = self.recover() {
                wrong.add(complaint);
                return false;
            }
        }
        false
    }

    fn check(
        &self,
        lanes: &[Lane],
        messages: &str,
        lease_held: bool,
        wrong: &mut Complaints,
    ) -> RoundOutcome {
        let plan = self.plan;
        let folder = trace::find_trace_folder(&self.folder);
        let is_cut_short = matches!(plan.end, RoundEnd::RecorderKilled | RoundEnd::AllKilled);
        let started = check::sum_totals(&[], lanes).started;
        if is_cut_short && started == 0 && !folder.join(COMPLETION_FILE).exists() {
            // The recorder was killed before it admitted a program: there is nothing to recover.
            return RoundOutcome::default();
        }
        let mut streams = trace::read_streams(&folder, lanes, plan.body_max, wrong);
        let totals = check::sum_totals(&streams, lanes);
        let mark = match self.mark(&folder) {
            Ok(mark) => mark,
            Err(complaint) => {
                wrong.add(complaint);
                return RoundOutcome { totals, ..RoundOutcome::default() };
            }
        };
        wrong.unless(mark.damaged == 0, || format!("damaged: {mark:?}"));
        check::check_order(&streams, wrong);
        let may_have_holes = plan.writer_path == WriterPath::Lockless && plan.kills();
        if !may_have_holes {
            check::check_no_packet_missing(&streams, wrong);
        }
        if lease_held {
            check::check_sums(&totals, mark.overwritten, wrong);
        }
        let events = if mark.by_recorder { totals.recorded } else { mark.events };
        wrong.unless((mark.events, mark.lost) == (events, totals.lost), || {
            format!("the trace is marked {mark:?}, and has {totals:?}")
        });
        if mark.by_recorder && !is_cut_short {
            let said = Summary::parse(messages);
            let marked = (mark.events, mark.lost, mark.overwritten);
            wrong.unless((said.recorded, said.lost, said.overwritten) == marked, || {
                format!("the summary says {said:?}, the trace {mark:?}")
            });
        }
        let overwritten = mark.overwritten;
        if plan.mode != BufferMode::Overwrite {
            wrong.unless(overwritten == 0, || format!("overwritten: {mark:?}"));
        }
        if plan.mode == BufferMode::Overwrite && lease_held {
            self.check_newest(&mut streams, lanes, totals.lost, overwritten, wrong);
        }
        if plan.mode == BufferMode::Roomy && !may_have_holes {
            wrong.unless(totals.lost == 0, || format!("lost with room to spare: {totals:?}"));
            if lease_held {
                check::check_all_present(&streams, lanes, wrong);
            }
        }
        trace::check_with_babeltrace(self.fixture, &self.folder, &totals, wrong);
        RoundOutcome { totals, overwritten, ..RoundOutcome::default() }
    }

    fn check_newest(
        &self,
        streams: &mut [Stream],
        lanes: &[Lane],
        lost: u64,
        overwritten: u64,
        wrong: &mut Complaints,
    ) {
        if self.plan.writer_path == WriterPath::Lockless && overwritten > 0 {
            // The packets of a flight recorder are numbered from the oldest remaining one.
            streams.iter_mut().for_each(|stream| stream.overwritten = true);
        }
        check::check_newest_present(streams, lanes, lost, wrong);
    }

    fn mark(&self, folder: &Path) -> Result<CompletionMark, String> {
        let text = fs::read_to_string(folder.join(COMPLETION_FILE))
            .map_err(|error| format!("no mark: {error}"))?;
        let value = |name: &str| {
            let mut words = text.split_whitespace().filter_map(|word| word.split_once('='));
            words.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let number = |name: &str| {
            let number = value(name).and_then(|value| value.parse::<u64>().ok());
            number.ok_or_else(|| format!("the mark has no {name}: {text}"))
        };
        Ok(CompletionMark {
            by_recorder: value("by").as_deref() == Some("record"),
            events: number("events")?,
            lost: number("lost")?,
            overwritten: number("overwritten")?,
            damaged: number("damaged")?,
        })
    }
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}
