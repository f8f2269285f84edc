//! Server of a recorder's control socket: serves many clients and waits for none of them.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trackway_session::SessionSpec;
use trackway_session::machine::{CREATOR, Client};
use trackway_session::protocol::{
    ANSWER_BYTES_MAX, Answer, Refusal, Request, SnapshotFacts, Status,
};
use trackway_sys::process::socket_peer;
use trackway_sys::wait::{self, PollEntry};

use super::{ClaimedName, RequestParser, SessionIdentity};
use crate::error::RecordError;

/// Most clients at a time; the server refuses further clients.
pub(super) const CLIENTS_MAX: usize = 64;
/// Most unread answer bytes of a client; a client that exceeds them is disconnected.
const UNSENT_BYTES_MAX: usize = ANSWER_BYTES_MAX;
/// Most bytes that are read from a client in one turn.
const TURN_READ_BYTES: usize = 64 << 10;
/// Pause after accept(2) failed, for example without free descriptors. Waiting clients stay in the
/// queue, and would otherwise wake the recorder again and again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Period between two checks of a name's files, which also bounds the age of the files. Tools that
/// remove old files wait for days.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);
/// Most requests of one client that are refused at the end.
const REFUSED_REQUESTS_MAX: usize = 1000;
/// Total time for all clients to read their answers at the end.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Control socket of a session.
#[derive(Debug)]
pub(crate) struct Server {
    /// First field, so that it is dropped first: a client whose connection is closed may claim the
    /// name.
    name: ClaimedName,
    pub(super) listener: UnixListener,
    /// Reserve descriptor, closed to refuse a waiting client when no other descriptor is left.
    pub(super) reserve: Option<File>,
    /// End of the pause after accept(2) failed.
    pub(super) pause: Option<Instant>,
    pub(super) clients: Vec<Connection>,
    next: Client,
    /// Time of the next check of the name's files.
    refresh: Instant,
}

#[derive(Debug)]
pub(super) struct Connection {
    client: Client,
    stream: UnixStream,
    /// Parser of the client's requests.
    requests: RequestParser,
    /// Answer bytes that the client has not read.
    pub(super) waiting: Vec<u8>,
    is_following: bool,
    /// True if the client sends nothing more; it is removed once it has read all answers.
    is_ending: bool,
    is_gone: bool,
}

impl Server {
    /// Opens the control socket of a session.
    pub(crate) fn open(name: ClaimedName) -> Result<Self, RecordError> {
        let path = name.folder.socket(&name.name);
        // A dead recorder may have left its socket; this process owns the name now.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(RecordError::io("make", &path)(error));
            }
            _ => {}
        }
        let listener = bind_listener(&path).map_err(RecordError::io("make", path))?;
        let (clients, refresh) = (Vec::new(), Instant::now() + REFRESH_PERIOD);
        let (reserve, next) = (open_reserve_descriptor(), CREATOR + 1);
        Ok(Self { name, listener, reserve, pause: None, clients, next, refresh })
    }

    /// Restores the files of the session's name, which tools may remove. Without the files, clients
    /// do not find the session.
    fn refresh(&mut self) {
        if Instant::now() < self.refresh {
            return;
        }
        self.refresh = Instant::now() + REFRESH_PERIOD;
        self.name.refresh();
        let socket = self.name.folder.socket(&self.name.name);
        if matches!(socket.try_exists(), Ok(false))
            && let Ok(listener) = bind_listener(&socket)
        {
            self.listener = listener;
        }
    }

    /// Writes the identity of the recorded trace with [`ClaimedName::write_identity`].
    pub(crate) fn write_identity(&mut self, identity: SessionIdentity) -> Result<(), RecordError> {
        self.name.write_identity(identity)
    }

    /// Returns the file descriptors to wait for.
    pub(crate) fn awaited(&self) -> Vec<PollEntry> {
        let of = |connection: &Connection| {
            let fd = connection.stream.as_raw_fd();
            match (connection.waiting.is_empty(), connection.is_ending) {
                (true, _) => PollEntry::readable(fd),
                (false, false) => PollEntry::readable_or_writable(fd),
                // After the client's end of data, its socket is always readable.
                (false, true) => PollEntry::writable(fd),
            }
        };
        let listener = PollEntry::readable(self.listener.as_raw_fd());
        let lets_in = (!self.pauses()).then_some(listener);
        lets_in.into_iter().chain(self.clients.iter().map(of)).collect()
    }

    /// Accepts clients, writes answers, and returns complete requests with their clients: at most
    /// one of each client in a turn. Between a client's requests the recorder serves its buffers
    /// and other clients. Requests of disconnected clients are dropped, since such a client expects
    /// no later service.
    pub(crate) fn turn(&mut self) -> Vec<(Client, Request)> {
        self.refresh();
        self.accept_clients();
        let mut asked = Vec::new();
        for connection in &mut self.clients {
            connection.write();
            match connection.read() {
                None => {}
                Some(_) if connection.has_hung_up() => connection.is_gone = true,
                Some(Ok(request)) => asked.push((connection.client, request)),
                Some(Err(refusal)) => {
                    connection.answer(&Answer::Refused(refusal));
                    if connection.requests.is_over() {
                        connection.end();
                    }
                }
            }
        }
        self.clients.retain(|connection| !connection.is_gone);
        asked
    }

    /// Returns true if the next turn has requests to return without waiting.
    pub(crate) fn has_requests(&mut self) -> bool {
        self.clients.iter_mut().any(Connection::has_request)
    }

    fn pauses(&self) -> bool {
        self.pause.is_some_and(|end| Instant::now() < end)
    }

    fn accept_clients(&mut self) {
        if self.pauses() {
            return;
        }
        self.pause = None;
        if self.reserve.is_none() {
            self.reserve = open_reserve_descriptor();
        }
        for _ in 0..CLIENTS_MAX {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                // No client waits to be accepted.
                Err(error) if is_retryable(&error) => return,
                Err(error) if is_without_descriptor(&error) && self.refuse_client() => continue,
                Err(_) => {
                    self.pause = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            let Some(mut connection) = Connection::of(self.next, stream) else { continue };
            if !self.has_room() {
                let why = format!("{CLIENTS_MAX} others are connected to this session");
                let refusal = Refusal::new(why).with_hint("try again when one of them has gone");
                connection.answer(&Answer::Refused(refusal));
                continue;
            }
            self.clients.push(connection);
            self.next += 1;
        }
    }

    /// Closes the reserve descriptor to accept and refuse a waiting client, since no other is left.
    /// Returns true if a client was accepted.
    fn refuse_client(&mut self) -> bool {
        if self.reserve.take().is_none() {
            return false;
        }
        let accepted = self.listener.accept();
        let is_told = accepted.is_ok();
        if let Ok((stream, _)) = accepted
            && let Some(mut connection) = Connection::of(self.next, stream)
        {
            let why = "the session's recorder has too many open files to let anybody in";
            let hint = "raise its limit: prlimit --nofile=SOFT:HARD --pid PID";
            connection.answer(&Answer::Refused(Refusal::new(why).with_hint(hint)));
        }
        // Reopen it only after the connection is closed, whose descriptor it reuses.
        self.reserve = open_reserve_descriptor();
        is_told
    }

    /// Returns true if another client can be accepted, after disconnected clients are removed.
    fn has_room(&mut self) -> bool {
        if self.clients.len() == CLIENTS_MAX {
            self.clients.retain(|connection| !connection.has_hung_up());
        }
        self.clients.len() < CLIENTS_MAX
    }

    /// Answers a client, if it is still connected.
    pub(crate) fn answer(&mut self, client: Client, answer: &Answer) {
        if let Some(connection) = self.clients.iter_mut().find(|one| one.client == client) {
            connection.answer(answer);
        }
    }

    /// Notes that a client follows the trace, as long as the client is connected.
    pub(crate) fn follow(&mut self, client: Client) {
        if let Some(connection) = self.clients.iter_mut().find(|one| one.client == client) {
            connection.is_following = true;
        }
    }

    /// Returns true if a client follows the trace, and so needs events without delay.
    pub(crate) fn is_followed(&self) -> bool {
        self.clients.iter().any(|connection| connection.is_following)
    }

    /// At the end, refuses the requests that were not served, including those of clients that wait
    /// to be accepted.
    pub(crate) fn refuse_pending(&mut self, why: &Refusal) {
        self.accept_clients();
        for connection in &mut self.clients {
            connection.refuse_pending(why);
        }
    }

    /// At the end, sends clients their answers, for [`END_TIMEOUT`] at most.
    pub(crate) fn flush(&mut self) {
        let end = Instant::now() + END_TIMEOUT;
        loop {
            self.clients.iter_mut().for_each(Connection::write);
            // A client that has read all answers stays connected: the closed connection signals
            // that the name is free.
            self.clients.retain(|connection| !connection.is_gone);
            let slow = self.clients.iter().filter(|connection| !connection.waiting.is_empty());
            let of = |connection: &Connection| PollEntry::writable(connection.stream.as_raw_fd());
            let mut awaited: Vec<PollEntry> = slow.map(of).collect();
            let left = end.saturating_duration_since(Instant::now());
            if awaited.is_empty() || left.is_zero() {
                return;
            }
            if wait::wait_for_any(&mut awaited, left.as_nanos() as u64).is_err() {
                return;
            }
        }
    }
}

/// Opens a reserve descriptor.
fn open_reserve_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Creates a listening socket.
fn bind_listener(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    // Until then, the permissions of the folder exclude other users.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Connection {
    /// Creates the connection of a client, if the client's user may send requests.
    fn of(client: Client, stream: UnixStream) -> Option<Self> {
        let user = socket_peer(stream.as_raw_fd()).map(|peer| peer.user);
        let may_ask =
            user.is_ok_and(|user| user == 0 || user == crate::common::user::effective_uid());
        let is_usable = may_ask && stream.set_nonblocking(true).is_ok();
        is_usable.then(|| Self::new(client, stream))
    }

    fn new(client: Client, stream: UnixStream) -> Self {
        Self {
            client,
            stream,
            requests: RequestParser::default(),
            waiting: Vec::new(),
            is_following: false,
            is_ending: false,
            is_gone: false,
        }
    }

    /// Returns the next request or a refusal, if a line is complete.
    fn read(&mut self) -> Option<Result<Request, Refusal>> {
        // Requests from before the client's end of data are served, unless it has disconnected.
        if !self.has_request() && !self.is_ending && !self.is_gone {
            self.receive();
        }
        if self.is_gone { None } else { self.requests.next_request() }
    }

    /// Returns true if the peer has closed the connection in both directions.
    fn has_hung_up(&self) -> bool {
        wait::is_without_reader(self.stream.as_raw_fd()).unwrap_or(true)
    }

    fn has_request(&mut self) -> bool {
        !self.is_gone && self.requests.has_request()
    }

    fn refuse_pending(&mut self, why: &Refusal) {
        for _ in 0..REFUSED_REQUESTS_MAX {
            match self.read() {
                None => return,
                Some(request) => {
                    let refusal = request.map_or_else(|refusal| refusal, |_| why.clone());
                    self.answer(&Answer::Refused(refusal));
                }
            }
        }
    }

    fn receive(&mut self) {
        let mut bytes = vec![0; TURN_READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.end(),
            Ok(count) => self.requests.push(&bytes[..count]),
            Err(error) if is_retryable(&error) => {}
            Err(_) => self.is_gone = true,
        }
    }

    /// Notes that the client sends no more bytes; its requests are still answered.
    fn end(&mut self) {
        self.is_ending = true;
        self.is_gone |= self.waiting.is_empty();
    }

    fn answer(&mut self, answer: &Answer) {
        if self.is_gone {
            return;
        }
        self.waiting.extend_from_slice(&line_of(answer));
        self.write();
    }

    fn write(&mut self) {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if is_retryable(&error) => break,
                Err(_) => {
                    self.is_gone = true;
                    return;
                }
            }
        }
        self.is_gone |=
            self.waiting.len() > UNSENT_BYTES_MAX || self.is_ending && self.waiting.is_empty();
    }
}

/// Formats an answer as one line.
fn line_of(answer: &Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(answer)
        .or_else(|error| serde_json::to_vec(&with_lossy_paths(answer, &error)))
        // A refusal consists of strings, which JSON can always represent.
        .unwrap_or_default();
    line.push(b'\n');
    line
}

/// Returns a form of an answer with a path that is not UTF-8 (`trackway record` may have one),
/// which JSON cannot represent: the path is shown lossily. If the client would open the path,
/// returns a refusal, since the client waits for a line.
fn with_lossy_paths(answer: &Answer, error: &serde_json::Error) -> Answer {
    let shown = |path: &Path| PathBuf::from(path.to_string_lossy().into_owned());
    match answer {
        Answer::Status(status) => {
            let folder = shown(&status.folder);
            Answer::Status(Box::new(Status { folder, ..Status::clone(status) }))
        }
        Answer::Snapshot(facts) => {
            Answer::Snapshot(SnapshotFacts { folder: shown(&facts.folder), ..facts.clone() })
        }
        // Clients do not need the output folder: it is specified again at each use.
        Answer::Spec(spec) => {
            Answer::Spec(Box::new(SessionSpec { output: None, ..SessionSpec::clone(spec) }))
        }
        Answer::Following { folders } => {
            let folder = folders.first().map(|folder| shown(folder)).unwrap_or_default();
            let why = format!("the path {} is not UTF-8", folder.display());
            let hint = "trackway print --follow DIR follows it, by the path of its folder";
            Answer::Refused(Refusal::new(why).with_hint(hint))
        }
        _ => {
            Answer::Refused(Refusal::new(format!("the answer cannot be written as JSON: {error}")))
        }
    }
}

/// Returns true if this process or the system has no free descriptor.
fn is_without_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
