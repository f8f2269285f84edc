//! Foreground sessions, and their reports to a service manager: by sd_notify(3)'s socket, and by
//! their exit status. `tests/machines/systemd` tests them with systemd itself.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use trackway_tests::steps::RunningProgram;

use crate::session_test::{RUN_ONCE_STREAM, SessionTest, command_result};

/// Makes the service manager's end: a named socket, and the value of NOTIFY_SOCKET for the
/// recorder.
fn bind_notify_socket(test: &SessionTest, is_abstract: bool) -> (UnixDatagram, String) {
    let path = test.fixture.path("notify");
    let path = path.to_str().expect("a path of text");
    let (address, name) = match is_abstract {
        true => (SocketAddr::from_abstract_name(path), format!("@{path}")),
        false => (SocketAddr::from_pathname(path), path.to_owned()),
    };
    let socket = UnixDatagram::bind_addr(&address.expect("a name")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(40))).expect("a socket");
    (socket, name)
}

/// Returns the next message. Signals, for example from ended children, interrupt a wait with a time
/// limit: signal(7).
fn receive_message(socket: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let length = loop {
        match socket.recv(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => break received.expect("a message"),
        }
    };
    String::from_utf8(bytes[..length].to_vec()).expect("text")
}

/// RUN create --foreground with NOTIFY_SOCKET, by path and abstract; a program as soon as the
/// session reports that it is ready. EXPECT the program to be recorded, and no other notification.
#[test]
fn a_service_manager_hears_when_the_session_is_there() {
    for is_abstract in [false, true] {
        let test = SessionTest::new("session-manager");
        let (socket, name) = bind_notify_socket(&test, is_abstract);
        let mut create = test.command("session create web --foreground -q -o trace");
        let recorder = RunningProgram::start(create.env("NOTIFY_SOCKET", name));
        let said = receive_message(&socket);
        let folder = test.fixture.path("trace");
        let status = format!("STATUS=session web records into {}\n", folder.display());
        assert_eq!(said, format!("READY=1\n{status}"));
        test.emit("steps", 7);
        test.ok("session destroy web");
        assert!(command_result(&recorder.finish()).0);
        assert_eq!(test.numbers("trace")[&RUN_ONCE_STREAM].len(), 7);
        socket.set_nonblocking(true).expect("a socket");
        assert!(socket.recv(&mut [0; 16]).is_err(), "it was ready once");
    }
}

/// RUN create --foreground of a session that cannot begin, early and late. EXPECT exit status 2,
/// and a notification of the reason, without a report of readiness.
#[test]
fn a_service_manager_hears_why_a_session_cannot_begin() {
    let test = SessionTest::new("session-manager-refused");
    let (socket, name) = bind_notify_socket(&test, false);
    std::fs::write(test.fixture.path("web.toml"), "[[chanel]]\n").expect("a file");
    std::fs::write(test.fixture.path("file"), "").expect("a file");
    for (options, why) in [
        ("--load missing.toml", "cannot read missing.toml"),
        ("--load web.toml", "unknown field `chanel`"),
        ("web -o file", "file"),
    ] {
        let mut create = test.command(&format!("session create --foreground {options}"));
        let output = create.env("NOTIFY_SOCKET", &name).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{options}");
        let said = receive_message(&socket);
        assert!(said.starts_with("STATUS=") && said.contains(why), "{said}");
        assert!(said.lines().count() == 1 && command_result(&output).2.contains(why), "{said}");
    }
}

/// RUN create --foreground, whose window is truncated. EXPECT exit status 1: the session had begun,
/// and another session can begin.
#[test]
fn a_session_that_ends_by_itself_has_another_exit_status() {
    let test = SessionTest::new("session-manager-lost");
    let (socket, name) = bind_notify_socket(&test, false);
    let mut create = test.command("session create web --foreground -o trace");
    let recorder = RunningProgram::start(create.env("NOTIFY_SOCKET", name));
    assert!(receive_message(&socket).starts_with("READY=1\n"));
    for entry in std::fs::read_dir(test.fixture.window_dir()).expect("the windows") {
        let window = std::fs::OpenOptions::new().write(true).open(entry.expect("a name").path());
        window.and_then(|window| window.set_len(4096)).expect("ours");
    }
    let output = recorder.finish();
    assert_eq!(output.status.code(), Some(1), "{}", command_result(&output).2);
}
