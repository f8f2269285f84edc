//! Notifies the service manager of a foreground session that the session is ready, and of its
//! status.
//!
//! Main invariant: no recorder waits for the service manager or fails because of it. The protocol
//! is that of sd_notify(3): lines in a datagram to the socket in `NOTIFY_SOCKET`. So a session
//! records a service that is ordered after it from the service's first event (systemd.service(5),
//! `Type=notify`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Environment variable with the path of the service manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// Longest wait for a full socket: the service manager has its own time limit.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Notifies the manager that the session is ready; `status` is a text for users.
pub(super) fn send_ready(status: &str) {
    send_state("READY=1\n", status);
}

/// Notifies the manager of the reason why the session is not ready.
pub(super) fn send_refusal(why: &str) {
    send_state("", why);
}

fn send_state(state: &str, status: &str) {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else { return };
    // Ignores an error: the service manager may have ended.
    let _ = send_datagram(&socket, &format_message(state, status));
}

/// Formats a message. A status is one line, so that a path in it cannot become another message.
fn format_message(state: &str, status: &str) -> String {
    let line = status.replace(|c: char| c.is_control(), " ");
    format!("{state}STATUS={line}\n")
}

fn send_datagram(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(OsString::from(socket))?,
        // An address of a virtual machine's host (vsock), or of an unknown kind.
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(SEND_TIMEOUT))?;
    datagram.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_line_whatever_is_in_it() {
        assert_eq!(
            format_message("READY=1\n", "into /a\nREADY=1"),
            "READY=1\nSTATUS=into /a READY=1\n"
        );
        assert_eq!(format_message("", "no such file"), "STATUS=no such file\n");
    }

    #[test]
    fn sockets_that_are_none_are_an_error_and_no_more() {
        for name in ["", "vsock:2:1234", "run/notify", "/nowhere/notify"] {
            assert!(send_datagram(OsStr::new(name), "READY=1\n").is_err(), "{name}");
        }
    }
}
