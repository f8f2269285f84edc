//! A session's recorder as a process of its own: this program again, without a terminal.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow};
use trackway_console::{message, stdout};
use trackway_recorder::protocol::{Answer, Refusal, Status};
use trackway_recorder::{Mode, NoticeTarget, RecordError, SessionSpec, StartOutcome};

use super::notify;

/// Begins a session in the background; returns once it records, or cannot. Reports notices unless
/// it is to be `quiet`.
pub(super) fn start_background_recorder(
    spec: &SessionSpec,
    quiet: bool,
) -> anyhow::Result<Box<Status>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    // The recorder stays when we and our caller are gone: a pipe or a lock of the caller's must not
    // stay with it. A kernel that cannot do that starts it as it starts any program.
    let _ = trackway_sys::process::close_descriptors_on_exec();
    // What it is to be goes by a pipe: of a command line, others could read it, and it is bounded.
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
    // If it is dead already, it has said why.
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
            // The name is free again once it has ended.
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

/// Runs in the background process: reads its session from standard input, and writes to standard
/// output how it began.
pub(super) fn run_background_recorder() -> anyhow::Result<ExitCode> {
    // This fails only for the leader of a process group, which a process that was just started is
    // not.
    let _ = trackway_sys::process::leave_terminal();
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).context("cannot read the session")?;
    let spec: SessionSpec = serde_json::from_slice(&text).context("this is no session")?;
    let served = trackway_recorder::serve_session(spec, NoticeTarget::Log, &mut |begun| {
        let answer = match begun {
            StartOutcome::Running(status) => Answer::Status(status.clone()),
            StartOutcome::Refused(refusal) => Answer::Refused(refusal.clone()),
        };
        // The process that waited may have ended.
        let _ = write_answer(&answer);
        // No folder is to be kept from being unmounted.
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

/// Records a session in this process, until it is ended. One that cannot begin is an error; one
/// that ends without a request has another exit status: to begin it again may help.
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
