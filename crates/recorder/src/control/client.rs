//! Client of a session's recorder: sends requests over the control socket.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use trackway_session::protocol::{
    ANSWER_BYTES_MAX, Answer, Message, PROTOCOL_VERSION, Refusal, Request,
};
use trackway_sys::process::socket_peer;
use trackway_sys::wait;

use super::RunFolder;
use crate::error::RecordError;
use crate::window::processes::read_proc;

/// Period after which a missing answer causes a check if the recorder is stopped.
const STOP_CHECK_PERIOD: Duration = Duration::from_secs(2);
/// Longest time until a recorder answers a short request, however busy the machine is.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time until a recorder reads a long request: it may serve another long request first. A
/// recorder without a descriptor for the connection never reads the request.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Most periods of [`STOP_CHECK_PERIOD`] that a recorder may take to exit after its session's end.
const EXIT_CHECKS_MAX: u32 = 10;

/// Limits of the wait for an answer.
#[derive(Debug, Clone, Copy)]
struct AnswerLimits {
    patience: Duration,
    /// True if the wait has no limit once the request has been read.
    until_read: bool,
}

/// Connection to a session's recorder.
#[derive(Debug)]
pub struct Session {
    name: String,
    /// Path of the recorder's log.
    log: PathBuf,
    pid: u32,
    stream: BufReader<UnixStream>,
    /// Longest time until the answer to a short request.
    pub(super) patience: Duration,
    /// Longest time until a long request is read.
    pub(super) read_patience: Duration,
}

impl Session {
    /// Connects to the session with this name.
    ///
    /// # Errors
    ///
    /// If the session does not exist, or its recorder is dead.
    pub fn connect(folder: &RunFolder, name: &str) -> Result<Self, RecordError> {
        let path = folder.socket(name);
        let Some(owner) = folder.owner()? else {
            return Err(RecordError::NoSession(name.to_owned()));
        };
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(RecordError::NoSession(name.to_owned()));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                return Err(RecordError::SessionDead(name.to_owned(), folder.log(name)));
            }
            Err(error) => return Err(RecordError::io("connect to", path)(error)),
        };
        let who = socket_peer(stream.as_raw_fd()).ok();
        // In another user's run folder only a recorder of that user may answer, not one of root.
        let is_his =
            |user: u32| user == owner || user == 0 && owner == crate::common::user::effective_uid();
        if who.is_none_or(|who| !is_his(who.user)) {
            return Err(RecordError::RunFolder(folder.path().to_owned()));
        }
        // Bound the writes, too: a recorder may read nothing.
        stream
            .set_read_timeout(Some(STOP_CHECK_PERIOD))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_TIMEOUT)))
            .map_err(RecordError::io("use", path))?;
        let (name, log) = (name.to_owned(), folder.log(name));
        let pid = who.map_or(0, |who| who.pid);
        Ok(Self {
            name,
            log,
            pid,
            stream: BufReader::new(stream),
            patience: ANSWER_TIMEOUT,
            read_patience: READ_TIMEOUT,
        })
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    ///
    /// If the recorder refuses ([`RecordError::Refused`]), is stopped, or dies. If it has not
    /// answered a short request after a minute, or not read a long request after five.
    pub fn request(&mut self, request: Request) -> Result<Answer, RecordError> {
        let limit = match may_take_long(&request) {
            true => AnswerLimits { patience: self.read_patience, until_read: true },
            false => AnswerLimits { patience: self.patience, until_read: false },
        };
        let message = Message { version: PROTOCOL_VERSION, request };
        let mut line =
            serde_json::to_vec(&message).map_err(|error| self.connection_error(error.into()))?;
        line.push(b'\n');
        let line = match self.stream.get_mut().write_all(&line) {
            Ok(()) => self.read_line(limit)?,
            // A client that was refused at once receives its answer before it could send a request.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.read_line(limit)?,
            Err(error) => return Err(self.connection_error(error)),
        };
        match serde_json::from_str(&line) {
            Ok(Answer::Refused(refusal)) => Err(RecordError::Refused(refusal)),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.unknown_answer_error()),
        }
    }

    /// Waits until the recorder has exited after the session's end, so that the session's name is
    /// free. The wait is bounded.
    pub fn wait_for_end(mut self) {
        let mut byte = [0];
        for _ in 0..EXIT_CHECKS_MAX {
            match self.stream.read(&mut byte) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                        && !is_stopped(self.pid) => {}
                // The stream has ended, or an answer arrived without a request.
                _ => break,
            }
        }
    }

    fn unknown_answer_error(&self) -> RecordError {
        RecordError::Refused(
            Refusal::new(format!("the recorder of '{}' says what is unknown here", self.name))
                .with_hint("use the trackway command that created the session"),
        )
    }

    fn no_answer_error(&self, patience: Duration) -> RecordError {
        RecordError::Refused(Refusal::new(format!(
            "the recorder of '{}' (process {}) has not answered for {} s",
            self.name,
            self.pid,
            patience.as_secs()
        )))
    }

    /// Returns true if the recorder has not read the request.
    fn is_unread(&self) -> bool {
        wait::is_unread(self.stream.get_ref().as_raw_fd()).unwrap_or(false)
    }

    /// Reads an answer, within this limit.
    fn read_line(&mut self, limit: AnswerLimits) -> Result<String, RecordError> {
        let (mut line, end) = (Vec::new(), Instant::now() + limit.patience);
        loop {
            let bytes_left = (ANSWER_BYTES_MAX + 1).saturating_sub(line.len());
            match (&mut self.stream).take(bytes_left as u64).read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => break,
                Ok(_) if line.len() > ANSWER_BYTES_MAX => return Err(self.unknown_answer_error()),
                Ok(_) => return Err(self.connection_error(ErrorKind::UnexpectedEof.into())),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if is_stopped(self.pid) {
                        return Err(RecordError::SessionStopped(self.name.clone(), self.pid));
                    }
                    if Instant::now() >= end && (!limit.until_read || self.is_unread()) {
                        return Err(self.no_answer_error(limit.patience));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.connection_error(error)),
            }
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }

    fn connection_error(&self, error: io::Error) -> RecordError {
        match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                RecordError::SessionDead(self.name.clone(), self.log.clone())
            }
            _ => RecordError::io("speak to the recorder of", &self.name)(error),
        }
    }
}

/// Returns true if the recorder writes buffered events before it answers. The duration depends on
/// the disk, and is unknown.
const fn may_take_long(request: &Request) -> bool {
    match request {
        Request::Stop
        | Request::Destroy
        | Request::Clear
        | Request::Snapshot { .. }
        | Request::KernelOn { .. }
        | Request::KernelOff { .. }
        | Request::AddChannel { .. }
        | Request::SetChannel { .. }
        | Request::RemoveChannel { .. } => true,
        Request::Status
        | Request::Spec
        | Request::Start
        | Request::Follow
        | Request::EventsOn { .. }
        | Request::EventsOff { .. } => false,
    }
}

/// Returns true if a process is stopped by a signal or a debugger: proc_pid_stat(5).
fn is_stopped(pid: u32) -> bool {
    let status = read_proc(&format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain any character.
    let state = status.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}
