//! Runs a session's recorder as a separate process: this program again, without a terminal.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow};
use trackway_console::{message, stdout};
use trackway_recorder::protocol::{Answer, Refusal, Status};
use trackway_recorder::{Mode, NoticeTarget, RecordError, SessionSpec, StartOutcome};

use super::notify;

/// Starts a session in the background; returns when the session records, or cannot. Reports notices
/// unless `quiet` is true.
pub(super) fn start_background_recorder(
    spec: &SessionSpec,
    quiet: bool,
) -> anyhow::Result<Box<Status>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    // The recorder outlives this process and its caller, so it must not inherit a pipe or lock of
    // the caller. If the kernel cannot close these descriptors, the recorder inherits them.
    let _ = trackway_sys::process::close_descriptors_on_exec();
    // A pipe passes the specification: other processes could read a command line, and its size is
    // limited.
    let mut child = Command::new(program)
        .args(["session", "recorder"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the recorder")?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(anyhow!("cannot speak to the recorder"));
    };
    // A recorder that is already dead has reported the reason.
    let _ = input.write_all(&serde_json::to_vec(spec)?);
    drop(input);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("cannot hear the recorder")?;
    match serde_json::from_str(&line) {
        Ok(Answer::Status(status)) if quiet => Ok(status),
        Ok(Answer::Status(status)) => {
            for notice in &status.notices {
                super::show::print_notice(notice, "");
            }
            report_session_start(&status);
            Ok(status)
        }
        Ok(Answer::Refused(refusal)) => {
            // When the process has ended, the session's name is free again.
            let _ = child.wait();
            Err(RecordError::Refused(refusal).into())
        }
        Ok(_) | Err(_) => {
            let ended = child.wait().map(|status| status.to_string()).unwrap_or_default();
            Err(anyhow!("the recorder ended before it had begun ({ended})"))
        }
    }
}

fn report_session_start(status: &Status) {
    for line in format_start_lines(status) {
        message!("trackway: {line}");
    }
}

/// Returns lines about the state of a session that has begun.
fn format_start_lines(status: &Status) -> Vec<String> {
    let name = &status.name;
    let folder = status.folder.display();
    let mut lines = Vec::new();
    let is_flight = |mode: Mode| mode == Mode::Overwrite;
    if status.channels.iter().all(|channel| is_flight(channel.spec.mode))
        && status.kernel.as_ref().is_none_or(|kernel| is_flight(kernel.spec.mode))
    {
        lines.push(format!("session {name} keeps the newest events; snapshots go to {folder}"));
    } else if status.is_recording {
        lines.push(format!("session {name} records into {folder}"));
    }
    if !status.is_recording {
        lines.push(format!("session {name} is stopped: trackway session start {name} starts it"));
    }
    lines
}

/// Runs the recorder in the background process: reads the session's specification from standard
/// input, and writes the outcome of its beginning to standard output.
pub(super) fn run_background_recorder() -> anyhow::Result<ExitCode> {
    // The call fails only for the leader of a process group, but a new process is never one.
    let _ = trackway_sys::process::leave_terminal();
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).context("cannot read the session")?;
    let spec: SessionSpec = serde_json::from_slice(&text).context("this is no session")?;
    let served = trackway_recorder::serve_session(spec, NoticeTarget::Log, &mut |begun| {
        let answer = match begun {
            StartOutcome::Running(status) => Answer::Status(status.clone()),
            StartOutcome::Refused(refusal) => Answer::Refused(refusal.clone()),
        };
        // The process that waits for the answer may have ended.
        let _ = write_answer(&answer);
        // The recorder must not prevent a folder from being unmounted.
        let _ = std::env::set_current_dir("/");
    });
    Ok(if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_answer(answer: &Answer) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut output = stdout();
    output.write_all(&line)?;
    Ok(output.flush()?)
}

/// Records a session in this process, until the session ends. A session that cannot begin is an
/// error. A session that ends without a request gives another exit status, because restarting it
/// may help.
pub(super) fn record_in_foreground(spec: SessionSpec, quiet: bool) -> anyhow::Result<ExitCode> {
    let mut refused: Option<Refusal> = None;
    let target = if quiet { NoticeTarget::Memory } else { NoticeTarget::Stderr };
    let served = trackway_recorder::serve_session(spec, target, &mut |answer| match answer {
        StartOutcome::Running(status) => {
            if !quiet {
                report_session_start(status);
            }
            notify::send_ready(&format_start_lines(status).join("; "));
        }
        StartOutcome::Refused(refusal) => refused = Some(refusal.clone()),
    });
    match (refused, served) {
        (Some(refusal), _) => Err(RecordError::Refused(refusal).into()),
        (None, Ok(())) => Ok(ExitCode::SUCCESS),
        (None, Err(error)) => {
            crate::report_error(&error.into());
            Ok(ExitCode::from(crate::EXIT_NEGATIVE))
        }
    }
}
