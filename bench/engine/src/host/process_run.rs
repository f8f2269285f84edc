//! One run of a program as a whole: its duration, memory and output.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::child::{ChildWatchdog, read_all};
use crate::signals;

/// Longest duration of a run.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// The resource usage of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceUsage {
    /// Time from before the program's start until its end.
    pub seconds: f64,
    /// CPU time of all threads of the program, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Largest resident set of the program, in bytes, including mapped files.
    pub peak_bytes: u64,
}

/// The standard output of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputSummary {
    /// Number of line ends.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// FNV-1a of all output.
    pub hash: u64,
}

/// Runs `command` on the CPUs `cpus`, with its output to /dev/null; `what` names it in errors.
pub fn run(mut command: Command, what: &str, cpus: &[usize]) -> Result<ResourceUsage> {
    command.stdout(Stdio::null());
    restrict_to_cpus(&mut command, cpus);
    release_memory();
    let begin = Instant::now();
    let started = StartedProgram::start(command, what)?;
    signals::wait_for_end(started.pid());
    let seconds = begin.elapsed().as_secs_f64();
    let usage = started.finish(what)?;
    let time = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(ResourceUsage {
        seconds,
        cpu_seconds: time(usage.ru_utime) + time(usage.ru_stime),
        // The kernel reports KiB: getrusage(2).
        peak_bytes: usage.ru_maxrss.unsigned_abs() << 10,
    })
}

/// Measures the time from before the start of `command` until its first line of output, in ms; then
/// kills the program.
pub fn measure_first_line_ms(mut command: Command, what: &str, cpus: &[usize]) -> Result<f64> {
    command.stdout(Stdio::piped());
    restrict_to_cpus(&mut command, cpus);
    let begin = Instant::now();
    let mut started = StartedProgram::start(command, what)?;
    let mut found = false;
    if let Some(mut output) = started.child.stdout.take() {
        let mut piece = [0; 4096];
        while !found {
            match output.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => found = piece[..count].contains(&b'\n'),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
    let elapsed_ms = begin.elapsed().as_secs_f64() * 1e3;
    signals::kill_child(started.pid());
    // The process was killed: its status does not matter.
    let ended = started.finish(what);
    match (found, ended) {
        (_, Err(Error::Interrupted)) => Err(Error::Interrupted),
        (true, _) => Ok(elapsed_ms),
        (false, Err(error)) => Err(error),
        (false, Ok(_)) => Err(Error::output(what, "it printed nothing")),
    }
}

/// Runs `command` and counts its output; passes the whole output to `see` in pieces.
pub fn run_and_hash_output(
    mut command: Command,
    what: &str,
    mut see: impl FnMut(&[u8]),
) -> Result<OutputSummary> {
    command.stdout(Stdio::piped());
    let mut started = StartedProgram::start(command, what)?;
    let mut text = OutputSummary { lines: 0, bytes: 0, hash: FNV_BASIS };
    let mut failed = None;
    if let Some(mut output) = started.child.stdout.take() {
        let mut piece = vec![0; 1 << 16];
        loop {
            match output.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    text.add(&piece[..count]);
                    see(&piece[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
    }
    started.finish(what)?;
    failed.map_or(Ok(text), |error| Err(Error::io(format!("cannot read {what}"))(error)))
}

/// Offset basis and prime of the 64-bit Fowler-Noll-Vo hash.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x100_0000_01b3;

impl OutputSummary {
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        for &byte in piece {
            self.lines += u64::from(byte == b'\n');
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
}

/// A running program; the owner must call `finish`.
struct StartedProgram {
    child: Child,
    watch: ChildWatchdog,
    stderr: std::thread::JoinHandle<String>,
}

impl StartedProgram {
    fn start(mut command: Command, what: &str) -> Result<Self> {
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(Error::io(format!("cannot run {what}")))?;
        let watch = ChildWatchdog::new(child.id().cast_signed(), RUN_LIMIT);
        let stderr = child.stderr.take();
        let stderr = std::thread::spawn(move || stderr.map(read_all).unwrap_or_default());
        Ok(Self { child, watch, stderr })
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits until the program ends; returns its resource usage.
    fn finish(self, what: &str) -> Result<libc::rusage> {
        signals::wait_for_end(self.pid());
        let overdue = self.watch.end();
        let (status, usage) =
            reap_with_usage(self.child).map_err(Error::io(format!("cannot wait for {what}")))?;
        let stderr = self.stderr.join().unwrap_or_default();
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        if overdue {
            return Err(Error::Overdue { what: what.to_owned(), limit_s: RUN_LIMIT.as_secs() });
        }
        if !std::process::ExitStatus::success(&status) {
            let message = format!("{status}\n{}", stderr.trim_end());
            return Err(Error::Program { what: what.to_owned(), message });
        }
        Ok(usage)
    }
}

/// Reaps a child that has ended, and returns its resource usage, which std does not provide.
fn reap_with_usage(child: Child) -> io::Result<(std::process::ExitStatus, libc::rusage)> {
    use std::os::unix::process::ExitStatusExt as _;
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live variables of the right types; zeroed bytes are a valid
    // rusage. `child` is consumed, so that no other code waits for its id again.
    let (result, usage) = unsafe {
        let pid = child.id().cast_signed();
        (libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()), usage.assume_init())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((std::process::ExitStatus::from_raw(status), usage))
}

/// Releases unused memory: a child begins as a copy of this process, and its peak memory includes
/// that copy.
fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Restricts `command` to these CPUs.
///
/// The work between fork and exec also keeps the resource usage correct: std would otherwise use
/// vfork(2), and such a child inherits the peak memory of this process.
fn restrict_to_cpus(command: &mut Command, cpus: &[usize]) {
    // SAFETY: all-zero bytes are a valid, empty set.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    for &cpu in cpus {
        // SAFETY: `set` is a set; CPU_SET ignores numbers above its size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    let pin = move || {
        // SAFETY: `set` is a live set of the stated size.
        let done = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it makes one system call, on memory of its own.
    unsafe { command.pre_exec(pin) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::allowed_cpus;

    fn shell_command(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_run_has_time_memory_and_the_cpus_it_may_use() {
        let cpus = allowed_cpus().expect("CPUs");
        let measured = run(shell_command("exit 0"), "sh", &cpus).expect("it runs");
        assert!(measured.seconds > 0.0 && measured.peak_bytes > 100 << 10);
        let script = "[ \"$(nproc)\" = 1 ]";
        run(shell_command(script), "sh", &cpus[..1]).expect("it has one CPU");
    }

    #[test]
    fn what_a_run_uses_is_its_own_and_not_ours() {
        // More memory than a shell ever has, in pieces that the allocator keeps after they are
        // freed.
        const OURS_BYTES: usize = 64 << 20;
        const PIECE_BYTES: usize = 64 << 10;
        let pieces: Vec<_> =
            (0..OURS_BYTES / PIECE_BYTES).map(|_| vec![1_u8; PIECE_BYTES]).collect();
        drop(std::hint::black_box(pieces));
        let cpus = allowed_cpus().expect("CPUs");
        let measured = run(shell_command("exit 0"), "sh", &cpus).expect("it runs");
        assert!(measured.peak_bytes < OURS_BYTES as u64, "{measured:?}");
    }

    #[test]
    fn the_first_line_ends_the_run() {
        let cpus = allowed_cpus().expect("CPUs");
        // The program prints lines until it is killed.
        measure_first_line_ms(shell_command("while :; do echo line; done"), "sh", &cpus)
            .expect("a line");
        let error = measure_first_line_ms(shell_command("printf word"), "sh", &cpus).unwrap_err();
        assert_eq!(error.to_string(), "sh: it printed nothing");
    }

    #[test]
    fn texts_are_told_apart() {
        let of = |script| run_and_hash_output(shell_command(script), "sh", |_| ()).expect("a text");
        let one = of("printf 'a\\nb\\n'");
        assert_eq!((one.lines, one.bytes), (2, 4));
        assert_eq!(of("echo a; echo b"), one);
        assert_ne!(of("printf 'b\\na\\n'"), one);
    }

    #[test]
    fn failures_carry_what_the_program_said() {
        let error =
            run_and_hash_output(shell_command("echo oh no >&2; exit 3"), "sh", |_| ()).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3\noh no");
    }
}
