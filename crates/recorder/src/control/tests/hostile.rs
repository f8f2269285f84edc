//! Tests of both ends of a control socket with a hostile peer. The peer sends any bytes in any
//! pieces, reads late or never, and disconnects at any moment.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use trackway_session::protocol::{
    ANSWER_BYTES_MAX, Answer, LINE_BYTES_MAX, Message, Notice, PROTOCOL_VERSION, Refusal, Request,
    Status,
};
use trackway_sys::wait::{self, PollEntry};
use trackway_testkit::{Random, TemporaryFolder};

use super::super::client::Session;
use super::super::server::{CLIENTS_MAX, Connection, Server};
use super::super::{ClaimedName, RunFolder};
use crate::error::RecordError;

const NAME: &str = "web";
/// Timeout of the server's wait, in ns: no descriptor ends the wait early.
const PERIOD_NS: u64 = 5_000_000;

/// Folder of control sockets, with a session in it.
struct TestServer {
    _temporary: TemporaryFolder,
    folder: RunFolder,
}

impl TestServer {
    fn new() -> Self {
        let temporary = TemporaryFolder::new();
        let folder = RunFolder { path: temporary.join("run") };
        Self { _temporary: temporary, folder }
    }

    fn claim(&self) -> ClaimedName {
        self.folder.claim(NAME).expect("the name")
    }

    fn server(&self) -> Server {
        Server::open(self.claim()).expect("a socket")
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.socket(NAME)).expect("a connection")
    }
}

/// Serves requests once, like a recorder.
fn serve_once(server: &mut Server, answer: &Answer) {
    let period_ns = if server.has_requests() { 0 } else { PERIOD_NS };
    wait::wait_for_any(&mut server.awaited(), period_ns).expect("a wait");
    let asked = server.turn();
    let clients: HashSet<_> = asked.iter().map(|(client, _)| client).collect();
    assert_eq!(clients.len(), asked.len(), "one request of a client in a turn");
    for (client, _) in asked {
        server.answer(client, answer);
    }
}

fn line_of(request: Request) -> Vec<u8> {
    let message = Message { version: PROTOCOL_VERSION, request };
    let mut line = serde_json::to_vec(&message).expect("a request");
    line.push(b'\n');
    line
}

/// Returns lines that a client may send: requests, and bytes that resemble requests.
fn random_lines(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.next_below(40) {
        let patterns = vec!["app:x".into(); random.next_below(50) as usize];
        let line = match random.next_below(6) {
            0 => b"\n".to_vec(),
            1 => b"{\"version\":9,\"ask\":\"fly\"}\n".to_vec(),
            2 => line_of(Request::EventsOff { channel: None, patterns }),
            3 => [vec![b'['; random.next_below(300) as usize], b"\n".to_vec()].concat(),
            _ => line_of(Request::Status),
        };
        bytes.extend(line);
    }
    for _ in 0..random.next_below(8).min(bytes.len() as u64) {
        let at = random.next_below(bytes.len() as u64) as usize;
        match random.next_below(3) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] = b'\n',
            _ => drop(bytes.drain(at..bytes.len().min(at + 9))),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// Sends bytes in pieces; fails if the peer no longer reads them.
fn send_in_pieces(
    stream: &mut UnixStream,
    mut bytes: &[u8],
    random: &mut Random,
) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(bytes.len().min(1 + random.next_below(400) as usize));
        stream.write_all(piece)?;
        bytes = rest;
    }
    Ok(())
}

/// Reads answers until the connection ends.
fn read_answers(stream: &UnixStream) -> Vec<Answer> {
    let lines = BufReader::new(stream).lines();
    lines.map(|line| serde_json::from_str(&line.expect("a line")).expect("an answer")).collect()
}

/// Runs one client with random behavior.
fn run_random_client(world: &TestServer, seed: u64) {
    let mut random = Random::new(seed);
    let sent = random_lines(&mut random);
    let mut stream = world.connect();
    match random.next_below(6) {
        // The client does not read, and disconnects.
        0 => drop(send_in_pieces(&mut stream, &sent, &mut random)),
        // The client disconnects in the middle of a line.
        1 => drop(send_in_pieces(&mut stream, &sent[..sent.len() / 2], &mut random)),
        // The client reads nothing, and shuts down one direction.
        2 => {
            let _ = send_in_pieces(&mut stream, &sent, &mut random);
            let _ = stream.shutdown(Shutdown::Read);
        }
        // The client sends a line without end.
        3 => {
            let before = sent.iter().filter(|&&byte| byte == b'\n').count();
            let endless = vec![b'x'; LINE_BYTES_MAX + 1];
            // The client may be disconnected before it has sent the last bytes.
            let _ = stream.write_all(&sent).and_then(|()| stream.write_all(&endless));
            let found = read_answers(&stream);
            assert_eq!(found.len(), before + 1, "seed {seed}");
            assert!(matches!(found.last(), Some(Answer::Refused(_))));
        }
        _ => {
            send_in_pieces(&mut stream, &sent, &mut random).expect("taken");
            stream.shutdown(Shutdown::Write).expect("half closed");
            let expected = sent.iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(read_answers(&stream).len(), expected, "seed {seed}");
        }
    }
}

#[test]
fn each_line_has_one_answer_whoever_else_is_there() {
    let world = TestServer::new();
    let mut server = world.server();
    // A silent client, and one that sends requests and never reads.
    let _silent = world.connect();
    let mut deaf = world.connect();
    deaf.write_all(&line_of(Request::Status).repeat(500)).expect("sent");
    let answer = Answer::Status(Box::new(Status {
        notices: vec![Notice::Info("a notice".repeat(1000))],
        ..Status::default()
    }));
    let visited = |seed: u64| {
        let world = &world;
        move || (0..20_u64).for_each(|number| run_random_client(world, seed + number))
    };
    std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..4).map(|seed| scope.spawn(visited(seed * 1000))).collect();
        while !visitors.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            serve_once(&mut server, &answer);
        }
    });
}

#[test]
fn who_never_reads_is_let_go() {
    let world = TestServer::new();
    let mut server = world.server();
    let answer = Answer::Status(Box::new(Status {
        notices: vec![Notice::Info("x".repeat(ANSWER_BYTES_MAX / 8))],
        ..Status::default()
    }));
    let mut deaf = world.connect();
    deaf.write_all(&line_of(Request::Status).repeat(200)).expect("sent");
    server.turn();
    assert_eq!(server.clients.len(), 1);
    while let Some(connection) = server.clients.first() {
        // The answer that exceeds the limit is the last one.
        assert!(connection.waiting.len() < 2 * ANSWER_BYTES_MAX);
        serve_once(&mut server, &answer);
    }
    // Later answers are not buffered either.
    server.answer(1, &answer);
    let (mut read, mut rest) = (0, vec![0; 1 << 16]);
    while let Ok(count @ 1..) = deaf.read(&mut rest) {
        read += count;
    }
    assert!(read < 2 * ANSWER_BYTES_MAX);
}

#[test]
fn whose_end_has_come_wakes_nobody() {
    let world = TestServer::new();
    let mut server = world.server();
    let mut client = world.connect();
    client.write_all(&line_of(Request::Status)).expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let large = Answer::Status(Box::new(Status {
        notices: vec![Notice::Info("x".repeat(ANSWER_BYTES_MAX / 2))],
        ..Status::default()
    }));
    for _ in 0..3 {
        serve_once(&mut server, &large);
    }
    assert!(!server.clients[0].waiting.is_empty(), "it has not read");
    let mut awaited = server.awaited();
    wait::wait_for_any(&mut awaited, 0).expect("a look");
    assert!(awaited.iter().all(|one| !one.is_ready()), "{awaited:?}");
    // The client still receives the whole answer.
    let reader = std::thread::spawn(move || read_answers(&client));
    while !server.clients.is_empty() {
        serve_once(&mut server, &large);
    }
    assert_eq!(reader.join().expect("answers"), [large]);
}

#[test]
fn who_finds_no_room_is_told_so_and_let_in_when_somebody_goes() {
    let world = TestServer::new();
    let mut server = world.server();
    let mut silent: Vec<_> = (0..CLIENTS_MAX).map(|_| world.connect()).collect();
    let done = Answer::Done { warnings: Vec::new() };
    (0..2).for_each(|_| serve_once(&mut server, &done));
    assert_eq!(server.clients.len(), CLIENTS_MAX);
    let mut late = world.connect();
    late.write_all(&line_of(Request::Status)).expect("sent");
    serve_once(&mut server, &done);
    let mut line = String::new();
    BufReader::new(&late).read_line(&mut line).expect("a line");
    let Ok(Answer::Refused(refusal)) = serde_json::from_str(&line) else { panic!("{line}") };
    assert!(refusal.why.contains("64 others"), "{}", refusal.why);
    assert_eq!(server.clients.len(), CLIENTS_MAX);
    // The command is refused, too; it may be disconnected before it sends its request.
    let mut session = Session::connect(&world.folder, NAME).expect("a connection");
    serve_once(&mut server, &done);
    match session.request(Request::Status) {
        Err(RecordError::Refused(refusal)) => assert!(refusal.why.contains("64 others")),
        other => panic!("{other:?}"),
    }
    silent.pop();
    let mut late = world.connect();
    late.write_all(&line_of(Request::Status)).expect("sent");
    late.shutdown(Shutdown::Write).expect("half closed");
    (0..2).for_each(|_| serve_once(&mut server, &done));
    assert_eq!(read_answers(&late), [done]);
}

#[test]
fn what_somebody_asked_who_has_gone_is_not_done() {
    let world = TestServer::new();
    let mut server = world.server();
    let mut gone = world.connect();
    gone.write_all(&line_of(Request::Stop).repeat(3)).expect("sent");
    drop(gone);
    // The client waits for its answer, and sends nothing more.
    let mut waiting = world.connect();
    waiting.write_all(&line_of(Request::Status)).expect("sent");
    waiting.shutdown(Shutdown::Write).expect("half closed");
    let [(client, Request::Status)] = server.turn()[..] else { panic!("one request") };
    let done = Answer::Done { warnings: Vec::new() };
    server.answer(client, &done);
    assert!(server.turn().is_empty() && server.clients.is_empty());
    assert_eq!(read_answers(&waiting), [done]);
}

/// Replaces the listener by a socket on which accept(2) fails although it is readable, like a
/// socket with a waiting client when no descriptor is left.
#[test]
fn who_cannot_be_let_in_wakes_nobody_for_a_while() {
    let world = TestServer::new();
    let mut server = world.server();
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    theirs.write_all(b"x").expect("sent");
    let listener = std::mem::replace(&mut server.listener, OwnedFd::from(ours).into());
    let is_awake = |server: &Server| {
        let mut awaited = server.awaited();
        wait::wait_for_any(&mut awaited, 0).expect("a look");
        awaited.iter().any(PollEntry::is_ready)
    };
    assert!(is_awake(&server));
    assert!(server.turn().is_empty());
    // Extend the pause, so that the machine's speed does not matter.
    server.pause = server.pause.map(|end| end + Duration::from_secs(3600));
    assert!(!is_awake(&server) && server.turn().is_empty());
    // The pause is over, and descriptors are free again.
    server.pause = Some(Instant::now());
    server.listener = listener;
    let mut client = world.connect();
    client.write_all(&line_of(Request::Status)).expect("sent");
    assert!(is_awake(&server));
    assert_eq!(server.turn().len(), 1);
}

#[test]
fn the_end_waits_for_nobody_who_does_not_read() {
    let world = TestServer::new();
    let mut server = world.server();
    let large = Answer::Status(Box::new(Status {
        notices: vec![Notice::Info("x".repeat(ANSWER_BYTES_MAX / 2))],
        ..Status::default()
    }));
    let mut deaf: Vec<_> = (0..8).map(|_| world.connect()).collect();
    for client in &mut deaf {
        client.write_all(&line_of(Request::Status)).expect("sent");
    }
    serve_once(&mut server, &large);
    let reader = deaf.pop().expect("one");
    assert!(server.clients.iter().all(|connection| !connection.waiting.is_empty()));
    let reader = std::thread::spawn(move || read_answers(&reader));
    server.flush();
    let has_not_read = |connection: &&Connection| !connection.waiting.is_empty();
    let left = server.clients.iter().filter(has_not_read).count();
    drop(server);
    assert_eq!(reader.join().expect("answers"), [large]);
    assert_eq!(left, deaf.len(), "those who did not read, and nobody else");
}

#[test]
fn what_json_cannot_say_is_refused_and_not_kept_back() {
    let world = TestServer::new();
    let mut server = world.server();
    let mut client = world.connect();
    client.write_all(&line_of(Request::Status).repeat(2)).expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let folder = PathBuf::from(std::ffi::OsStr::from_bytes(b"/odd \xff"));
    let status = Status { folder: folder.clone(), pid: 7, ..Status::default() };
    serve_once(&mut server, &Answer::Status(Box::new(status)));
    serve_once(&mut server, &Answer::Following { folders: vec![folder] });
    server.flush();
    drop(server);
    let [Answer::Status(status), Answer::Refused(refusal)] = &read_answers(&client)[..] else {
        panic!("a status and a refusal")
    };
    assert_eq!((status.pid, &status.folder), (7, &PathBuf::from("/odd \u{fffd}")));
    assert!(refusal.why.contains("is not UTF-8") && refusal.hint.is_some(), "{}", refusal.why);
}

#[test]
fn what_is_asked_behind_the_end_is_refused() {
    let world = TestServer::new();
    let mut server = world.server();
    let mut client = world.connect();
    client.write_all(&line_of(Request::Status).repeat(3)).expect("sent");
    let asked = server.turn();
    assert_eq!(asked.len(), 1, "one in a turn");
    server.answer(asked[0].0, &Answer::Status(Box::default()));
    // A client that connects late is refused, too.
    let mut late = world.connect();
    late.write_all(&line_of(Request::Stop)).expect("sent");
    server.refuse_pending(&Refusal::new("it has ended"));
    server.flush();
    drop(server);
    let refused = Answer::Refused(Refusal::new("it has ended"));
    let is_refused = |answer: &Answer| *answer == refused;
    let [Answer::Status(_), rest @ ..] = &read_answers(&client)[..] else { panic!("a status") };
    assert!(rest.len() == 2 && rest.iter().all(is_refused), "{rest:?}");
    assert!(matches!(&read_answers(&late)[..], [answer] if is_refused(answer)));
}

#[test]
fn a_recorder_that_never_answers_is_not_waited_for_without_end() {
    let world = TestServer::new();
    let claimed = world.claim();
    let _silent = UnixListener::bind(world.folder.socket(NAME)).expect("a socket");
    let mut session = Session::connect(&world.folder, NAME).expect("a connection");
    session.patience = Duration::ZERO;
    match session.request(Request::Status) {
        Err(RecordError::Refused(refusal)) => assert!(refusal.why.contains("has not answered")),
        other => panic!("{other:?}"),
    }
    drop(claimed);
}

#[test]
fn it_is_known_whether_the_other_end_has_read_all() {
    let (mut ours, mut theirs) = UnixStream::pair().expect("sockets");
    let is_unread = |ours: &UnixStream| wait::is_unread(ours.as_raw_fd()).expect("a socket");
    assert!(!is_unread(&ours));
    ours.write_all(b"xy").expect("sent");
    assert!(is_unread(&ours));
    theirs.read_exact(&mut [0; 2]).expect("it is there");
    assert!(!is_unread(&ours));
}

/// Behaves like a recorder that has no descriptor for the connection.
#[test]
fn what_may_take_long_is_not_waited_for_without_end_where_nobody_reads_it() {
    let world = TestServer::new();
    let claimed = world.claim();
    let _silent = UnixListener::bind(world.folder.socket(NAME)).expect("a socket");
    let mut session = Session::connect(&world.folder, NAME).expect("a connection");
    session.read_patience = Duration::ZERO;
    match session.request(Request::Stop) {
        Err(RecordError::Refused(refusal)) => assert!(refusal.why.contains("has not answered")),
        other => panic!("{other:?}"),
    }
    drop(claimed);
}

/// Returns the result of one request to a hostile recorder.
fn request_from(
    world: &TestServer,
    behavior: &(dyn Fn(&mut UnixStream) + Sync),
) -> Result<Answer, RecordError> {
    let claimed = world.claim();
    let listener = UnixListener::bind(world.folder.socket(NAME)).expect("a socket");
    let is_over = AtomicBool::new(false);
    let answer = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a request");
            behavior(&mut stream);
            is_over.store(true, Ordering::Relaxed);
        });
        // The connection ends here, so that the sender of an endless line gets an error.
        let mut session = Session::connect(&world.folder, NAME).expect("a connection");
        session.request(Request::Status)
    });
    assert!(is_over.load(Ordering::Relaxed));
    drop(claimed);
    answer
}

#[test]
fn a_hostile_recorder_s_answer_is_an_error() {
    let world = TestServer::new();
    let endless = |stream: &mut UnixStream| {
        let piece = vec![b' '; 1 << 16];
        while stream.write_all(&piece).is_ok() {}
    };
    assert!(matches!(request_from(&world, &endless), Err(RecordError::Refused(_))));
    assert!(matches!(request_from(&world, &|_| ()), Err(RecordError::SessionDead(..))));
    let cut = |stream: &mut UnixStream| {
        let _ = stream.write_all(b"{\"answer\":\"done\"}");
    };
    assert!(matches!(request_from(&world, &cut), Err(RecordError::SessionDead(..))));
    let spec = Answer::Spec(Box::default());
    let good = serde_json::to_vec(&spec).expect("an answer");
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut line = match seed % 4 {
            0 => vec![b'['; 200],
            _ => good.clone(),
        };
        for _ in 0..1 + random.next_below(3) {
            let at = random.next_below(line.len() as u64) as usize;
            line[at] = random.next() as u8;
        }
        line.push(b'\n');
        let answer = request_from(&world, &|stream: &mut UnixStream| {
            let _ = send_in_pieces(stream, &line, &mut Random::new(seed));
        });
        match answer {
            Ok(_) | Err(RecordError::Refused(_)) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    let answer = request_from(&world, &|stream: &mut UnixStream| {
        stream.write_all(&[&good[..], b"\n"].concat()).expect("sent");
    });
    assert_eq!(answer.expect("an answer"), spec);
}
