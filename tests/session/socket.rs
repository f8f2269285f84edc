//! What comes over a session's socket and is no request.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use trackway_testkit::Random;
use trackway_tests::steps::send;

use crate::place::{Bursts, Counting, Place, assert_all_there};

fn connect(place: &Place) -> UnixStream {
    let stream = UnixStream::connect(place.world.run_dir().join("web.sock")).expect("a socket");
    // Longer than any answer takes; a recorder that does not answer fails the test.
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream
}

/// Sends a line; the answer.
fn ask(stream: &mut UnixStream, line: &[u8]) -> Value {
    send_line(stream, line);
    answer(stream)
}

fn send_line(stream: &mut UnixStream, line: &[u8]) {
    stream.write_all(line).and_then(|()| stream.write_all(b"\n")).expect("it is read");
}

fn answer(stream: &mut UnixStream) -> Value {
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

const STATUS: &[u8] = b"{\"version\":1,\"ask\":\"status\"}";

/// RUN random bytes, half lines, lines that never end, other versions, while a program counts.
/// EXPECT a refusal for each line, other clients are answered, and nothing is lost.
#[test]
fn garbage_is_refused_and_the_session_goes_on() {
    let place = Place::new("session-garbage");
    place.ok("session create web --on life:* -o trace");
    let counting = Counting::threads(&place, 2);
    let mut stream = connect(&place);
    for (line, why) in [
        (&b""[..], "this is no request"),
        (b"status", "this is no request"),
        (b"{}", "this is no request"),
        (b"{\"version\":1,\"ask\":\"fly\"}", "fly"),
        (b"{\"version\":7,\"ask\":\"fly\"}", "speaks version 1 of the protocol, this is version 7"),
        (b"{\"version\":7,\"ask\":\"status\"}", "this is version 7"),
        (b"\xff\xfe\x00", "this is no request"),
        (b"{\"version\":1,\"ask\":\"set-channel\",\"channel\":\"\"}", "''"),
    ] {
        let answer = ask(&mut stream, line);
        assert_eq!(answer["answer"], "refused", "{answer}");
        assert!(answer["why"].as_str().is_some_and(|text| text.contains(why)), "{answer}");
    }
    // Many levels of nesting do not exhaust its stack.
    let answer =
        ask(&mut stream, &[b"{\"version\":1,\"x\":".to_vec(), vec![b'['; 200_000]].concat());
    assert_eq!(answer["answer"], "refused");
    assert_eq!(ask(&mut stream, STATUS)["answer"], "status", "the same client is answered on");

    let mut random = Random::new(3);
    for _ in 0..20 {
        let bytes: Vec<u8> =
            (0..random.next_below(5000)).map(|_| random.next_below(256) as u8).collect();
        // It may be told to go in the middle.
        let _ = connect(&place).write_all(&bytes);
    }
    let mut half = connect(&place);
    half.write_all(&STATUS[..10]).expect("it is read");
    assert_eq!(place.status("web")["is-recording"], true);
    assert_eq!(ask(&mut half, &STATUS[10..])["answer"], "status");

    // A line that never ends.
    let mut endless = connect(&place);
    let mut written = 0;
    let end = loop {
        match endless.write(&[b'x'; 4096]) {
            Ok(count) => written += count,
            Err(error) => break error.kind(),
        }
        assert!(written < 16 << 20, "it is read without end");
    };
    assert!(matches!(end, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{end}");
    let mut said = String::new();
    let _ = BufReader::new(endless).read_line(&mut said);
    assert!(said.is_empty() || said.contains("a request has at most"), "{said}");

    let steps = counting.finish();
    place.ok("session destroy");
    assert_all_there(&place.numbers("trace"), &steps);
}

/// RUN several requests in one write, one of which ends the session, with others behind it. EXPECT
/// an answer to each, in order.
#[test]
fn requests_that_come_at_once_are_all_answered() {
    let place = Place::new("session-at-once");
    place.ok("session create web -o trace");
    let mut stream = connect(&place);
    let words = ["status", "spec", "stop", "fly", "start", "destroy", "status", "stop"];
    let line = |word: &&str| format!("{{\"version\":1,\"ask\":\"{word}\"}}\n");
    let lines: String = words.iter().map(line).collect();
    stream.write_all(lines.as_bytes()).expect("it is read");
    let answers = BufReader::new(stream).lines().map(|line| {
        let answer: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        answer["answer"].as_str().expect("a word").to_owned()
    });
    let expected = ["status", "spec", "done", "refused", "done", "ended", "refused", "refused"];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    assert!(place.is_complete("trace"));
}

/// RUN 100 connections that say nothing, and one that reads nothing. EXPECT that they get in each
/// other's way only: the session records on, and answers when some have gone.
#[test]
fn a_hundred_connections_do_not_keep_it_from_recording() {
    let place = Place::new("session-crowd");
    place.ok("session create web --on life:* -o trace");
    let counting = Counting::threads(&place, 2);
    let mut deaf = connect(&place);
    deaf.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    // Answers pile up until it is let go, or nothing more is taken from it.
    for _ in 0..20_000 {
        if deaf.write_all(b"{\"version\":1,\"ask\":\"status\"}\n").is_err() {
            break;
        }
    }
    let crowd: Vec<UnixStream> = (0..100).map(|_| connect(&place)).collect();
    counting.steps.wait_more(500);
    drop(crowd);
    drop(deaf);
    let status = place.status("web");
    assert!(status["counts"]["recorded"].as_u64().is_some_and(|count| count >= 500), "{status}");
    let mut stream = connect(&place);
    assert_eq!(ask(&mut stream, STATUS)["answer"], "status");
    let mut rest = Vec::new();
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    stream.read_to_end(&mut rest).expect("its end");
    let steps = counting.finish();
    place.ok("session destroy");
    assert_all_there(&place.numbers("trace"), &steps);
}

/// RUN stop while the recorder stands still, which is given up; then let it go on. EXPECT that it
/// records on: nobody waits for that stop any more.
#[test]
fn what_was_given_up_is_not_done_later() {
    let place = Place::new("session-given-up");
    place.ok("session create web -o trace");
    let recorder = place.recorder_of("web").cast_signed();
    send(recorder, libc::SIGSTOP);
    let talk = place.refused("session stop web");
    send(recorder, libc::SIGCONT);
    assert!(talk.contains("is stopped"), "{talk}");
    assert_eq!(place.status("web")["is-recording"], true);
    place.ok("session destroy");
}

/// RUN status, asked while the recorder stands still, of a program that has gone on meanwhile.
/// EXPECT that all is counted that was recorded before it was asked, though the recorder has not
/// looked at its buffers since.
#[test]
fn what_was_recorded_before_somebody_asks_is_counted() {
    let place = Place::new("session-counted");
    place.ok("session create web --on life:* -o trace");
    let mut bursts = Bursts::of(&place, 100);
    let recorder = place.recorder_of("web").cast_signed();
    send(recorder, libc::SIGSTOP);
    bursts.next();
    let mut stream = connect(&place);
    send_line(&mut stream, STATUS);
    send(recorder, libc::SIGCONT);
    let status = answer(&mut stream);
    assert_eq!(status["counts"]["recorded"], 200, "{status}");
    assert!(bursts.finish().status.success());
    place.ok("session destroy");
}
