//! Trackway's sessions, through its own commands and, if the command itself is not measured,
//! through the recorder's socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child::{self, ProgramOutput};
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::signals;

use super::host::{
    SESSION, SessionBuffers, SessionHost, SessionKind, SessionProperties, path_argument,
};
use crate::trace_check;
use crate::tracers::RING_BYTES;
use crate::tracers::trackway::{allocated_bytes, link_flags, make_idle_window_dir, set_window};

/// Names of the workload and of its launcher.
const PROGRAM: &str = "sessions";
const LAUNCHER: &str = "crowd";
/// Folder of the recorders' sockets, in the scratch folder.
const RUN_DIR: &str = "run";
/// The rule that enables the workload's events.
const RULE: &str = "lab:*";
/// Name of the session's only channel.
const CHANNEL: &str = "channel0";
/// Time limit of a recorder's answer, and its largest length in bytes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Interval of checks for an interruption while waiting for an answer.
const INTERRUPT_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time limit until a recorder's account must be right; the recorder polls ten times a second.
const ACCOUNT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of status requests within this time.
const STATUS_INTERVAL: Duration = Duration::from_millis(10);

/// The method of sending requests to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestMethod {
    /// Through the command that users run.
    Command,
    /// Through the recorder's socket, like the command.
    Socket,
}

/// Trackway's sessions, in a window and a run folder that only the bench uses.
#[derive(Debug)]
pub(super) struct TrackwaySessions<'workspace> {
    workspace: &'workspace Workspace,
    request_method: RequestMethod,
}

/// The state of a session: the part of `trackway session status --format json` that the bench
/// needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Status {
    /// Process id of the recorder.
    pub(super) pid: u32,
    pub(super) counts: Counts,
}

/// Counts of events and processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) struct Counts {
    pub(super) recorded: u64,
    pub(super) lost: u64,
    /// Number of processes that took part in the session.
    pub(super) processes: u64,
}

impl<'workspace> TrackwaySessions<'workspace> {
    /// Compiles the workload's programs.
    pub(super) fn set_up(workspace: &Workspace) -> Result<()> {
        create_private_dir(&workspace.path(RUN_DIR))?;
        let flags = link_flags(workspace)?;
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        workspace.compile(PROGRAM, &flags)?;
        workspace.compile(LAUNCHER, &[]).map(drop)
    }

    /// Makes the sessions of a prepared workspace, with one method of requests.
    pub(super) const fn new(
        workspace: &'workspace Workspace,
        request_method: RequestMethod,
    ) -> Self {
        Self { workspace, request_method }
    }

    /// Returns the command that starts the workload repeatedly, as a program.
    pub(super) fn launcher_of_programs(&self) -> Command {
        let mut command = Command::new(self.workspace.path(LAUNCHER));
        command.arg(self.workspace.path(PROGRAM));
        self.set_environment(&mut command);
        command
    }

    /// Returns the command with which the workload forks its own children.
    pub(super) fn launcher_of_children(&self) -> Command {
        let mut command = self.program();
        command.arg("children");
        command
    }

    /// Restricts `command` to the bench's sessions.
    fn set_environment(&self, command: &mut Command) {
        set_window(command, self.workspace.window_dir());
        command.env("TRACKWAY_RUN_DIR", self.workspace.path(RUN_DIR));
    }

    /// Makes the command `trackway`, restricted to the bench's sessions.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.workspace.tools.trackway);
        self.set_environment(&mut command);
        command
    }

    /// Runs `trackway ARGUMENTS`.
    fn trackway(&self, arguments: &[&str]) -> Result<ProgramOutput> {
        let mut command = self.command();
        let what = format!("trackway {}", arguments.join(" "));
        child::run(command.args(arguments), &what)
    }

    /// Requests a change of a session by the selected method.
    fn request_change(&self, session: &str, arguments: &[&str], request: Value) -> Result<()> {
        match self.request_method {
            RequestMethod::Command => self.trackway(arguments).map(drop),
            RequestMethod::Socket => self.send_request(session, request).map(drop),
        }
    }

    /// Sets the channel's context, or removes it for `none`; either replaces the channel's buffers.
    pub(super) fn set_context(&self, context: &str) -> Result<()> {
        let contexts = if context == "none" { json!([]) } else { json!([context]) };
        let request = json!({ "ask": "set-channel", "channel": CHANNEL, "contexts": contexts });
        self.request_change(
            SESSION,
            &["channel", "set", SESSION, CHANNEL, "--context", context],
            request,
        )
    }

    /// Returns the state of a session.
    pub(super) fn status(&self, session: &str) -> Result<Status> {
        let answer = self.send_request(session, json!({ "ask": "status" }))?;
        serde_json::from_value(answer).map_err(|error| Error::output(session, error))
    }

    /// Returns the state of a session when `is_good` accepts it, or after the time limit.
    fn wait_for_status(&self, session: &str, is_good: impl Fn(&Status) -> bool) -> Result<Status> {
        let begin = Instant::now();
        loop {
            let status = self.status(session)?;
            if is_good(&status) || begin.elapsed() > ACCOUNT_TIMEOUT {
                return Ok(status);
            }
            std::thread::sleep(STATUS_INTERVAL);
        }
    }

    /// Sends a request to a session's recorder through its socket, and waits for the answer.
    fn send_request(&self, session: &str, mut request: Value) -> Result<Value> {
        let fail = || Error::io(format!("cannot ask the recorder of {session}"));
        request["version"] = json!(1);
        let path = self.workspace.path(RUN_DIR).join(format!("{session}.sock"));
        let mut stream = UnixStream::connect(path).map_err(fail())?;
        stream.set_read_timeout(Some(INTERRUPT_CHECK_INTERVAL)).map_err(fail())?;
        stream.write_all(format!("{request}\n").as_bytes()).map_err(fail())?;
        let line = read_answer(stream).map_err(fail())?.ok_or(Error::Interrupted)?;
        let answer: Value =
            serde_json::from_slice(&line).map_err(|error| Error::output(session, error))?;
        if answer["answer"] == "refused" {
            return Err(Error::output(session, format_args!("refused: {}", answer["why"])));
        }
        Ok(answer)
    }

    /// Returns the number of processes in the window's table.
    pub(super) fn listed_processes(&self) -> Result<u64> {
        let listed = self.trackway(&["list", "--format", "json"])?.stdout;
        let listed: Value =
            serde_json::from_str(&listed).map_err(|error| Error::output("trackway list", error))?;
        let processes = listed["processes"].as_array();
        let processes =
            processes.ok_or_else(|| Error::output("trackway list", "it lists no processes"))?;
        Ok(processes.len() as u64)
    }

    /// Computes the account of a flight recorder from its snapshot.
    fn flight_account(&self, session: &str, status: &Status, emitted: u64) -> Result<Account> {
        let folder = self.trace(session).join("snapshot-lab");
        self.trackway(&["session", "snapshot", session, "-o", &path_argument(&folder)])?;
        let counted = trace_check::count_trace(&folder)?.unwrap_or_default();
        if counted.gaps > 0 {
            let message = format!("{} numbers are missing within its snapshot", counted.gaps);
            return Err(Error::output(session, message));
        }
        Ok(Account {
            emitted,
            recorded: counted.events,
            lost: status.counts.lost,
            overwritten: status.counts.recorded.saturating_sub(counted.events),
            record_bytes: counted.record_bytes,
        })
    }
}

impl SessionHost for TrackwaySessions<'_> {
    fn create(&self, session: &str, wanted: SessionProperties) -> Result<()> {
        let folder = self.trace(session);
        // A trace of the previous round may remain.
        let _ = std::fs::remove_dir_all(&folder);
        let mut command = self.command();
        command.args(["session", "create", session, "--context", "none", "-o"]).arg(folder);
        command.args(["--event", if wanted.is_on { RULE } else { "!lab:*" }]);
        if wanted.kind == SessionKind::Flight {
            command.arg("--flight-recorder");
        }
        if wanted.buffers == SessionBuffers::Ring {
            command.args(["--buffer-size", &RING_BYTES.to_string()]);
        }
        if let Some(cpus) = wanted.possible_cpus {
            command.env("TRACKWAY_TEST_CPUS", cpus.to_string());
        }
        child::run(&mut command, &format!("trackway session create {session}")).map(drop)
    }

    fn event_on(&self) -> Result<()> {
        let request = json!({ "ask": "events-on", "rules": [RULE] });
        self.request_change(SESSION, &["event", "on", SESSION, RULE], request)
    }

    fn event_off(&self) -> Result<()> {
        let request = json!({ "ask": "events-off", "patterns": [RULE] });
        self.request_change(SESSION, &["event", "off", SESSION, RULE], request)
    }

    fn stop(&self, session: &str) -> Result<()> {
        self.request_change(session, &["session", "stop", session], json!({ "ask": "stop" }))
    }

    fn start(&self) -> Result<()> {
        self.request_change(SESSION, &["session", "start", SESSION], json!({ "ask": "start" }))
    }

    fn recorded(&self) -> Result<Option<u64>> {
        Ok(Some(self.status(SESSION)?.counts.recorded))
    }

    fn end(&self, session: &str, kind: SessionKind, emitted: u64) -> Result<Account> {
        let all = |status: &Status| status.counts.recorded + status.counts.lost == emitted;
        if kind == SessionKind::Flight {
            let status = self.wait_for_status(session, all)?;
            let account = self.flight_account(session, &status, emitted)?;
            self.trackway(&["session", "destroy", session])?;
            return Ok(account);
        }
        self.stop(session)?;
        let status = self.wait_for_status(session, all)?;
        self.trackway(&["session", "destroy", session])?;
        let counted = trace_check::count_trace(&self.trace(session))?.unwrap_or_default();
        if counted.events != status.counts.recorded {
            let said = status.counts.recorded;
            let message = format!("its recorder said {said} events, its trace has {counted:?}");
            return Err(Error::output(session, message));
        }
        Ok(Account {
            emitted,
            recorded: counted.events,
            lost: status.counts.lost,
            overwritten: 0,
            record_bytes: counted.record_bytes,
        })
    }

    fn trace(&self, session: &str) -> PathBuf {
        self.workspace.path(&format!("trackway-{session}"))
    }

    fn recorders(&self) -> Result<Vec<u32>> {
        Ok(vec![self.status(SESSION)?.pid])
    }

    fn shared_bytes(&self) -> Result<u64> {
        allocated_bytes(self.workspace.window_dir())
    }

    fn program(&self) -> Command {
        let mut command = Command::new(self.workspace.path(PROGRAM));
        self.set_environment(&mut command);
        command
    }

    fn program_off(&self) -> Result<Command> {
        let mut command = Command::new(self.workspace.path(PROGRAM));
        // This window never had a session, as in other suites.
        set_window(&mut command, &make_idle_window_dir(self.workspace)?);
        Ok(command)
    }

    fn clear(&self) {
        // `child::run` does nothing after Ctrl-C, so the command is run directly.
        let mut command = self.command();
        command.args(["session", "destroy", "--all"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // In `clear`, an error cannot be reported.
        let _ = command.status();
    }
}

/// Reads a recorder's answer, which is a line; `None` if the user interrupts the run before.
fn read_answer(stream: UnixStream) -> io::Result<Option<Vec<u8>>> {
    let begin = Instant::now();
    let mut line = Vec::new();
    let mut input = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    loop {
        match input.read_until(b'\n', &mut line) {
            Ok(_) => return Ok(Some(line)),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if signals::is_stopped() => return Ok(None),
            Err(error) if begin.elapsed() > ANSWER_TIMEOUT => return Err(error),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_of_a_status_is_read() {
        let text = r#"{"answer":"status","name":"lab","pid":7,"memory-bytes":9,"channels":[],
            "counts":{"recorded":5,"lost":1,"overwritten":0,"bytes":3,"processes":2}}"#;
        let status: Status = serde_json::from_str(text).expect("a status");
        assert_eq!(status.pid, 7);
        assert_eq!(status.counts, Counts { recorded: 5, lost: 1, processes: 2 });
    }
}
