//! Terminals for tests: a program that runs on a pseudo-terminal (pty(7)), and all output of the
//! program.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

/// Output of a program that ran on a terminal, and its exit status.
#[derive(Debug)]
pub struct TerminalOutput {
    /// Exit status of the program.
    pub status: ExitStatus,
    /// Standard output and standard error, as received by the terminal.
    pub bytes: Vec<u8>,
}

impl TerminalOutput {
    /// Returns the bytes as text; invalid UTF-8 becomes U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The outputs of a program that lead to the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TerminalStreams {
    /// Standard output and standard error.
    StdoutAndStderr,
    /// Standard error only; standard output is `/dev/null`.
    Errors,
}

/// Runs `command` on a terminal, to its end. The environment has a `TERM`, and no `NO_COLOR`,
/// unless the command has set them.
pub fn run_on_terminal(command: &mut Command, outputs: TerminalStreams) -> TerminalOutput {
    let (master, slave) = open_terminal();
    let slave_again = || Stdio::from(slave.try_clone().expect("a descriptor"));
    let is_set = |name: &str| command.get_envs().any(|(variable, _)| variable == name);
    let (has_term, has_no_color) = (is_set("TERM"), is_set("NO_COLOR"));
    if !has_term {
        command.env("TERM", "xterm");
    }
    if !has_no_color {
        command.env_remove("NO_COLOR");
    }
    command.stdin(Stdio::null()).stderr(slave_again());
    command.stdout(if outputs == TerminalStreams::StdoutAndStderr {
        slave_again()
    } else {
        Stdio::null()
    });
    let mut child = command.spawn().expect("it starts");
    // The terminal ends for its reader when no process has it open for writing.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    drop(slave);
    let reader = thread::spawn(move || {
        let (mut master, mut bytes) = (File::from(master), Vec::new());
        // Reading ends with an error (EIO) when the last writer has closed the terminal.
        let _ = master.read_to_end(&mut bytes);
        bytes
    });
    let status = child.wait().expect("it ends");
    TerminalOutput { status, bytes: reader.join().expect("a reader") }
}

/// Opens a terminal in raw mode; returns its two ends.
fn open_terminal() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: all-zero bytes are a valid termios, whose members are integers.
    let mut mode = unsafe { std::mem::zeroed::<libc::termios>() };
    // SAFETY: `mode` is a live termios.
    unsafe { libc::cfmakeraw(&raw mut mode) };
    // SAFETY: both descriptors are live variables; a null pointer for the name requests no name,
    // and one for the size sets no size; `mode` is initialised.
    let result = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            std::ptr::null_mut(),
            &raw const mode,
            std::ptr::null(),
        )
    };
    assert_eq!(result, 0, "openpty: {}", std::io::Error::last_os_error());
    for fd in [master, slave] {
        // SAFETY: the descriptor is open; no program that is started meanwhile is to keep it.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: openpty has just opened both descriptors, and no other code owns them.
    unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}
