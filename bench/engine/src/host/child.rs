//! Child programs that run to their end: with a time limit, terminated by Ctrl-C, always reaped.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::signals::{self, ForegroundChild};

/// Longest time that a program of the table may run, in seconds.
const LIMIT_S: u64 = 60;
/// Time that a program has to end after a signal.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Interval at which a program's output is checked for completeness after its end.
const OUTPUT_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The output of a program that has ended.
#[derive(Debug)]
pub struct ProgramOutput {
    /// The program's standard output.
    pub stdout: String,
    /// The program's standard error.
    pub stderr: String,
}

/// A program that runs.
pub struct RunningProgram {
    what: String,
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
    watch: ChildWatchdog,
    limit_s: u64,
}

/// Runs `command` and fails if the program fails; `what` names the program in errors.
pub fn run(command: &mut Command, what: &str) -> Result<ProgramOutput> {
    RunningProgram::start(command, what)?.finish()
}

/// Runs a program with a time limit.
pub fn run_for(command: &mut Command, what: &str, limit_s: u64) -> Result<ProgramOutput> {
    RunningProgram::start_for(command, what, limit_s)?.finish()
}

impl RunningProgram {
    /// Starts a program with no input, and keeps its output.
    pub fn start(command: &mut Command, what: &str) -> Result<Self> {
        Self::start_for(command, what, LIMIT_S)
    }

    /// Starts a program with a time limit.
    pub fn start_for(command: &mut Command, what: &str, limit_s: u64) -> Result<Self> {
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command.spawn().map_err(Error::io(format!("cannot run {what}")))?;
        let watch = ChildWatchdog::new(child.id().cast_signed(), Duration::from_secs(limit_s));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(Error::output(what, "its output is not piped"));
        };
        Ok(Self {
            what: what.to_owned(),
            child,
            stdout: BufReader::new(stdout),
            stderr: std::thread::spawn(move || read_all(stderr)),
            watch,
            limit_s,
        })
    }

    /// Reads the next line of output, without the end of line; empty if there is no more line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout
            .read_line(&mut line)
            .map_err(Error::io(format!("cannot read {}", self.what)))?;
        Ok(line.trim_end().to_owned())
    }

    /// Returns the process id of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM; does nothing if the program has ended.
    pub fn terminate(&self) {
        signals::terminate_child(self.child.id().cast_signed());
    }

    /// Waits until the program ends, and returns its output.
    pub fn finish(mut self) -> Result<ProgramOutput> {
        let pid = self.child.id().cast_signed();
        let mut rest = self.stdout;
        let reader = std::thread::spawn(move || {
            let mut stdout = String::new();
            let read = rest.read_to_string(&mut stdout);
            read.map(|_| stdout)
        });
        signals::wait_for_end(pid);
        // Descendants of the program may hold its output open, and outlive the program.
        let ended = Instant::now();
        while !(reader.is_finished() && self.stderr.is_finished()) {
            if ended.elapsed() > GRACE_PERIOD || signals::is_stopped() {
                signals::kill_group(pid);
            }
            std::thread::sleep(OUTPUT_POLL_INTERVAL);
        }
        let overdue = self.watch.end();
        let status =
            self.child.wait().map_err(Error::io(format!("cannot wait for {}", self.what)))?;
        let stderr = self.stderr.join().unwrap_or_default();
        let read = reader.join().unwrap_or_else(|_| Ok(String::new()));
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        if overdue {
            return Err(Error::Overdue { what: self.what, limit_s: self.limit_s });
        }
        let stdout = read.map_err(Error::io(format!("cannot read {}", self.what)))?;
        if !status.success() {
            let message = format!("{status}\n{}", stderr.trim_end());
            return Err(Error::Program { what: self.what, message });
        }
        Ok(ProgramOutput { stdout, stderr })
    }
}

/// Reads all output of a program.
pub fn read_all(mut from: ChildStderr) -> String {
    let mut bytes = Vec::new();
    // An incomplete output is still worth showing.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Ends a child that exceeds its time limit, or whose run the user interrupts.
pub struct ChildWatchdog {
    foreground: ForegroundChild,
    done: Sender<()>,
    thread: JoinHandle<bool>,
}

impl ChildWatchdog {
    /// Watches the child `pid`, which has `limit` to end.
    pub fn new(pid: i32, limit: Duration) -> Self {
        let (done, waiting) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let overdue = waiting.recv_timeout(limit).is_err();
            if overdue {
                signals::terminate_child(pid);
                if waiting.recv_timeout(GRACE_PERIOD).is_err() {
                    signals::kill_child(pid);
                }
            }
            overdue
        });
        Self { foreground: ForegroundChild::new(pid), done, thread }
    }

    /// Ends the watch before the child is reaped; returns true if the child was overdue.
    pub fn end(self) -> bool {
        // Fails only if the thread has ended, because the child was overdue.
        let _ = self.done.send(());
        drop(self.foreground);
        self.thread.join().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_messages_are_kept_apart() {
        let mut command = Command::new("sh");
        let finished = run(command.args(["-c", "echo out; echo err >&2"]), "sh").expect("it runs");
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("out\n", "err\n"));
    }

    #[test]
    fn failures_carry_what_the_program_said() {
        let mut command = Command::new("sh");
        let error = run(command.args(["-c", "echo oh no >&2; exit 3"]), "sh").unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3\noh no");
        let error = run(&mut Command::new("/nonexistent/program"), "it").unwrap_err();
        assert!(error.to_string().starts_with("cannot run it: "), "{error}");
    }

    #[test]
    fn what_a_program_has_started_does_not_keep_it_alive() {
        let begin = Instant::now();
        let mut command = Command::new("sh");
        let finished = run(command.args(["-c", "echo here; sleep 600 & exit 0"]), "sh");
        assert_eq!(finished.expect("it ends").stdout, "here\n");
        assert!(begin.elapsed() < Duration::from_secs(300), "by the end of the sleep");
    }

    #[test]
    fn lines_can_be_read_while_it_runs() {
        let mut command = Command::new("sh");
        let mut running =
            RunningProgram::start(command.args(["-c", "echo ready; echo more"]), "sh")
                .expect("it starts");
        assert_eq!(running.line().expect("a line"), "ready");
        assert_eq!(running.finish().expect("it ends").stdout, "more\n");
    }
}
