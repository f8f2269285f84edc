//! LTTng's session daemon, private to the bench: the bench starts and ends it, and other daemons do
//! not find it.
//!
//! A user other than root has LTTNG_HOME, whose name must be short: it is the prefix of the
//! sockets' names, and lttng-sessiond aborts if a name exceeds the size of a socket address
//! (unix(7)). Root's daemon has its sockets in /var/run/lttng, which cannot be configured, and
//! there may be only one. So each LTTng process of the bench gets a separate mount namespace, in
//! which a scratch folder is mounted over /var/run. The mount point is not /var/run/lttng: another
//! bench or daemon that removes that folder removes the mounts over it in all namespaces. A daemon
//! that begins then fails an assertion (lttng-tools 2.13,
//! `notification_thread_command_list_triggers`).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::cleanup_shell::CleanupShell;
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir};
use trackway_bench_engine::signals;

/// Mount point above the folder of root's sockets.
const RUN: &CStr = c"/var/run";
/// Most bytes of LTTNG_HOME: the longest name of a socket in this folder is about
/// `/.lttng/ustconsumerd64/health`, and `sockaddr_un` has 107 bytes.
const HOME_BYTES_MAX: usize = 64;
/// Time limit of the daemon's start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of checks during the daemon's start.
const INTERVAL: Duration = Duration::from_millis(10);

/// The folder in which the LTTng processes of the bench find each other.
#[derive(Debug, Clone)]
pub(crate) struct LttngHome {
    home: PathBuf,
    /// Descriptor of the folder, if `home` is a path through this descriptor.
    _opened: Option<Arc<File>>,
    /// For root: the folder that is mounted over [`RUN`].
    run: Option<CString>,
}

impl LttngHome {
    /// Creates the folders in the scratch folder.
    pub(crate) fn new(workspace: &Workspace) -> Result<Self> {
        let home = workspace.path("lttng-home");
        create_private_dir(&home)?;
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            let (home, _opened) = shorten_path(home)?;
            return Ok(Self { home, _opened, run: None });
        }
        let run = workspace.path("lttng-run");
        create_private_dir(&run)?;
        create_private_dir(&run.join("lttng"))?;
        let run = CString::new(run.as_os_str().as_bytes());
        let run = run.map_err(|error| Error::output("scratch folder", error))?;
        Ok(Self { home, _opened: None, run: Some(run) })
    }

    /// Restricts `command` to the bench's daemon.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        command.env("LTTNG_HOME", &self.home).env_remove("LTTNG_RUNDIR").env_remove("LD_PRELOAD");
        if let Some(run) = self.run.clone() {
            // SAFETY: between fork and exec it only makes system calls, on memory made before.
            unsafe { command.pre_exec(move || mount_over(&run, RUN)) };
        }
    }
}

/// Returns a path of a folder that is short enough for sockets. A long path is replaced by a path
/// through the returned descriptor, which is valid while the descriptor is open, and leaves nothing
/// in the file system.
fn shorten_path(folder: PathBuf) -> Result<(PathBuf, Option<Arc<File>>)> {
    if folder.as_os_str().len() <= HOME_BYTES_MAX {
        return Ok((folder, None));
    }
    let opened = File::open(&folder).map_err(Error::io(format!("cannot open {folder:?}")))?;
    let name = format!("/proc/{}/fd/{}", std::process::id(), opened.as_raw_fd());
    Ok((name.into(), Some(Arc::new(opened))))
}

/// Moves the calling process to a mount namespace in which `folder` is mounted at `at`.
fn mount_over(folder: &CStr, at: &CStr) -> io::Result<()> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let (none, root) = (c"none".as_ptr(), c"/".as_ptr());
    // SAFETY: all strings are NUL-terminated; the kernel ignores the type and data of these mounts.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, none, private, std::ptr::null()) == 0
            && libc::mount(folder.as_ptr(), at.as_ptr(), none, libc::MS_BIND, std::ptr::null()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The running daemon. It ends with this process, for any reason: no user could find a daemon in a
/// separate namespace.
#[derive(Debug)]
pub(crate) struct Daemon {
    home: LttngHome,
    log: PathBuf,
    pid: u32,
    cleanup_shell: CleanupShell,
}

impl Daemon {
    /// Starts the daemon, and waits until it answers.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let home = LttngHome::new(workspace)?;
        let log = workspace.path("lttng-sessiond.log");
        let file = File::create(&log).map_err(Error::io(format!("cannot write {log:?}")))?;
        let words = ["lttng-sessiond", "--no-kernel"];
        let (cleanup_shell, pid) =
            CleanupShell::of_daemon(&words, file, |command| home.set_environment(command))?;
        let mut daemon = Self { home, log, pid, cleanup_shell };
        daemon.wait_until_ready()?;
        Ok(daemon)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            match self.run_lttng(&["list"]) {
                Ok(()) => return Ok(()),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) if begin.elapsed() > START_TIMEOUT => return Err(error),
                Err(_) => {}
            }
            if self.cleanup_shell.has_ended() {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(Error::output("lttng-sessiond", said.trim_end()));
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Runs `lttng ARGUMENTS`.
    pub(crate) fn run_lttng(&self, arguments: &[&str]) -> Result<()> {
        let mut command = self.command(Path::new("lttng"));
        command.args(["--no-sessiond", "--quiet"]).args(arguments);
        child::run(&mut command, &format!("lttng {}", arguments.join(" "))).map(|_| ())
    }

    /// Makes a command that finds the daemon.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.set_environment(&mut command);
        command
    }

    /// Sets the environment of `command` so that it finds the daemon.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        self.home.set_environment(command);
    }

    /// Returns the ids of the daemon and its descendants.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut known = vec![self.pid];
        let parents = list_process_parents();
        let mut at = 0;
        while let Some(&parent) = known.get(at) {
            known.extend(parents.iter().filter(|pair| pair.1 == parent).map(|pair| pair.0));
            at += 1;
        }
        known
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if signals::is_stopped() {
            self.cleanup_shell.hurry();
        }
    }
}

/// Returns all processes with their parents, from the fields of proc_pid_stat(5).
fn list_process_parents() -> Vec<(u32, u32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain spaces and parentheses: fields are counted after the last
        // parenthesis.
        let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
        Some((pid, fields.nth(1)?.parse().ok()?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_parent_is_among_all() {
        let me = std::process::id();
        assert!(list_process_parents().iter().any(|&(pid, parent)| pid == me && parent != 0));
    }
}
