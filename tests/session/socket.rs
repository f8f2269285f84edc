//! Input of a session's socket that is not a request.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;
use trackway_testkit::Random;
use trackway_tests::steps::send_signal;

use crate::session_test::{BurstProgram, CountingProgram, SessionTest, assert_all_present};

fn connect_to_recorder(test: &SessionTest) -> UnixStream {
    let stream = UnixStream::connect(test.fixture.run_dir().join("web.sock")).expect("a socket");
    // The time limit exceeds that of any answer; a recorder that does not answer fails the test.
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream
}

/// Sends a line; returns the answer.
fn send_request(stream: &mut UnixStream, line: &[u8]) -> Value {
    send_line(stream, line);
    read_response(stream)
}

fn send_line(stream: &mut UnixStream, line: &[u8]) {
    stream.write_all(line).and_then(|()| stream.write_all(b"\n")).expect("it is read");
}

fn read_response(stream: &mut UnixStream) -> Value {
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("JSON")
}

const STATUS_REQUEST: &[u8] = b"{\"version\":1,\"ask\":\"status\"}";

/// RUN random bytes, half lines, lines that never end, other versions, while a program counts.
/// EXPECT a refusal for each line, answers to other clients, and no lost event.
#[test]
fn garbage_is_refused_and_the_session_goes_on() {
    let test = SessionTest::new("session-garbage");
    test.ok("session create web --event life:* -o trace");
    let counting = CountingProgram::threads(&test, 2);
    let mut stream = connect_to_recorder(&test);
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
        let answer = send_request(&mut stream, line);
        assert_eq!(answer["answer"], "refused", "{answer}");
        assert!(answer["why"].as_str().is_some_and(|text| text.contains(why)), "{answer}");
    }
    // Many levels of nesting do not exhaust the recorder's stack.
    let answer = send_request(
        &mut stream,
        &[b"{\"version\":1,\"x\":".to_vec(), vec![b'['; 200_000]].concat(),
    );
    assert_eq!(answer["answer"], "refused");
    assert_eq!(
        send_request(&mut stream, STATUS_REQUEST)["answer"],
        "status",
        "the same client is answered on"
    );

    let mut random = Random::new(3);
    for _ in 0..20 {
        let bytes: Vec<u8> =
            (0..random.next_below(5000)).map(|_| random.next_below(256) as u8).collect();
        // The recorder may refuse the input in the middle of the write.
        let _ = connect_to_recorder(&test).write_all(&bytes);
    }
    let mut half = connect_to_recorder(&test);
    half.write_all(&STATUS_REQUEST[..10]).expect("it is read");
    assert_eq!(test.status("web")["is-recording"], true);
    assert_eq!(send_request(&mut half, &STATUS_REQUEST[10..])["answer"], "status");

    // A line that never ends.
    let mut endless = connect_to_recorder(&test);
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
    test.ok("session destroy");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN several requests in one write; one of them ends the session, and others follow it. EXPECT an
/// answer to each, in order.
#[test]
fn requests_that_come_at_once_are_all_answered() {
    let test = SessionTest::new("session-at-once");
    test.ok("session create web -o trace");
    let mut stream = connect_to_recorder(&test);
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
    assert!(test.is_complete("trace"));
}

/// RUN 100 connections that send nothing, and one that reads nothing. EXPECT them to hinder only
/// each other: the session keeps recording, and answers when some have closed.
#[test]
fn a_hundred_connections_do_not_keep_it_from_recording() {
    let test = SessionTest::new("session-crowd");
    test.ok("session create web --event life:* -o trace");
    let counting = CountingProgram::threads(&test, 2);
    let mut deaf = connect_to_recorder(&test);
    deaf.set_write_timeout(Some(Duration::from_millis(200))).expect("a socket");
    // Answers accumulate until the recorder closes the connection, or accepts no more requests.
    for _ in 0..20_000 {
        if deaf.write_all(b"{\"version\":1,\"ask\":\"status\"}\n").is_err() {
            break;
        }
    }
    let crowd: Vec<UnixStream> = (0..100).map(|_| connect_to_recorder(&test)).collect();
    counting.steps.wait_more(500);
    drop(crowd);
    drop(deaf);
    let status = test.status("web");
    assert!(status["counts"]["recorded"].as_u64().is_some_and(|count| count >= 500), "{status}");
    let mut stream = connect_to_recorder(&test);
    assert_eq!(send_request(&mut stream, STATUS_REQUEST)["answer"], "status");
    let mut rest = Vec::new();
    stream.shutdown(std::net::Shutdown::Write).expect("a socket");
    stream.read_to_end(&mut rest).expect("its end");
    let steps = counting.finish();
    test.ok("session destroy");
    assert_all_present(&test.numbers("trace"), &steps);
}

/// RUN stop while the recorder is suspended, until the command gives up; then continue the
/// recorder. EXPECT it to record still: the stop was abandoned.
#[test]
fn abandoned_requests_are_not_carried_out_later() {
    let test = SessionTest::new("session-given-up");
    test.ok("session create web -o trace");
    let recorder = test.recorder_of("web").cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    let talk = test.refused("session stop web");
    send_signal(recorder, libc::SIGCONT);
    assert!(talk.contains("is stopped"), "{talk}");
    assert_eq!(test.status("web")["is-recording"], true);
    test.ok("session destroy");
}

/// RUN status, requested while the recorder is suspended, for a program that has continued
/// meanwhile. EXPECT all events recorded before the request to be counted, although the recorder
/// has not drained its buffers since.
#[test]
fn events_before_a_status_request_are_counted() {
    let test = SessionTest::new("session-counted");
    test.ok("session create web --event life:* -o trace");
    let mut bursts = BurstProgram::of(&test, 100);
    let recorder = test.recorder_of("web").cast_signed();
    send_signal(recorder, libc::SIGSTOP);
    bursts.next();
    let mut stream = connect_to_recorder(&test);
    send_line(&mut stream, STATUS_REQUEST);
    send_signal(recorder, libc::SIGCONT);
    let status = read_response(&mut stream);
    assert_eq!(status["counts"]["recorded"], 200, "{status}");
    assert!(bursts.finish().status.success());
    test.ok("session destroy");
}
