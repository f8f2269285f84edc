//! A shell that waits until this process has ended, for any reason, and removes the leftovers of
//! this process: no process can catch SIGKILL. The shell's input is a pipe whose other end only
//! this process holds.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};

/// Removes `$1` by rmdir(2), which removes an instance of tracefs with its contents. An instance
/// stays if a process has one of its files open.
const REMOVE_INSTANCE_SCRIPT: &str = "cd \"$1/..\" && { read -r _; name=${1##*/}; i=0; \
     while [ -d \"$name\" ] && [ $i -lt 100 ] && ! rmdir \"$name\" 2>/dev/null; do \
     sleep 0.1; i=$((i+1)); done; }";
/// Removes the uprobe event `$2` of the tracefs `$1`; an event stays while a process records it.
const REMOVE_UPROBE_SCRIPT: &str = "cd \"$1\" && { read -r _; i=0; \
     while grep -q \"^p:$2 \" uprobe_events && [ $i -lt 100 ] && \
     ! echo \"-:$2\" >>uprobe_events; do sleep 0.1; i=$((i+1)); done; }";
/// Ends the processes whose environment names one of two folders: recorders and daemons outlive
/// their parents. Then removes the folders and their content; a process that has not ended yet may
/// still be writing to them.
const REMOVE_FOLDERS_SCRIPT: &str = "read -r _; \
     grep -lszF -e \"TRACKWAY_WINDOW_DIR=$2\" -e \"TRACKWAY_RUN_DIR=$1/\" \
     -e \"LTTNG_HOME=$1/\" /proc/[0-9]*/environ | \
     while IFS=/ read -r _ _ pid _; do kill \"$pid\" 2>/dev/null; done; i=0; \
     while { [ -d \"$1\" ] || [ -d \"$2\" ]; } && [ $i -lt 100 ]; do \
     rm -rf \"$1\" \"$2\" 2>/dev/null; sleep 0.1; i=$((i+1)); done";
/// Runs the daemon `$@` and prints its process id; ends the daemon by SIGTERM, and after a grace
/// period (in seconds, from standard input) by SIGKILL. Its children are in the process group,
/// which is killed at the end. A child's id is not used again until its parent waits for it. A
/// separate shell prints the id, so that only that shell ends if the reader is gone. SIGTERM is
/// ignored: [`REMOVE_FOLDERS_SCRIPT`] sends it to other processes.
const RUN_DAEMON_SCRIPT: &str = "exec 3<&0; \"$@\" 3<&- </dev/null >/dev/null & daemon=$!; \
     trap '' TERM; (echo $daemon); \
     { read -r patience <&3; kill -TERM $daemon; sleep ${patience:-10}; kill -KILL $daemon; } \
     >/dev/null 2>&1 & \
     wait $daemon; echo \"it ended: $?\" >&2; kill -KILL 0";

/// A cleanup shell that runs while this value exists.
#[derive(Debug)]
pub struct CleanupShell(Child);

impl CleanupShell {
    /// Starts the shell for an instance of tracefs.
    pub fn of_instance(folder: &Path) -> Result<Self> {
        Self::start(REMOVE_INSTANCE_SCRIPT, &[folder])
    }

    /// Starts the shell for two folders, whose names no other process uses.
    pub fn of_folders(folders: [&Path; 2]) -> Result<Self> {
        Self::start(REMOVE_FOLDERS_SCRIPT, &folders)
    }

    /// Starts the shell for an event, `GROUP/EVENT`, in the list of uprobe events of the tracefs at
    /// `root`.
    pub fn of_uprobe(root: &Path, event: &str) -> Result<Self> {
        Self::start(REMOVE_UPROBE_SCRIPT, &[root, Path::new(event)])
    }

    /// Starts a daemon under the shell; `enter` prepares the daemon's command. The daemon's
    /// messages go to `log`. Returns the shell and the daemon's process id.
    pub fn of_daemon(
        words: &[&str],
        log: File,
        enter: impl FnOnce(&mut Command),
    ) -> Result<(Self, u32)> {
        let mut shell = shell_command(RUN_DAEMON_SCRIPT);
        shell.args(words).stdout(Stdio::piped()).stderr(log);
        enter(&mut shell);
        let mut cleanup_shell = Self(shell.spawn().map_err(Error::io("cannot run sh"))?);
        let mut line = String::new();
        if let Some(stdout) = cleanup_shell.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(Error::io("cannot hear sh"))?;
        }
        let pid = line.trim_end().parse().map_err(|error| Error::output("sh", error))?;
        Ok((cleanup_shell, pid))
    }

    /// Sets the grace period of the daemon to one second, because the user waits for its end on
    /// drop.
    pub fn hurry(&mut self) {
        // If the daemon has ended already, nothing reads the pipe.
        let _ = self.0.stdin.as_mut().map(|stdin| stdin.write_all(b"1\n"));
    }

    /// Returns true if the shell has ended, which happens only after its daemon.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    fn start(script: &str, arguments: &[&Path]) -> Result<Self> {
        let spawned = shell_command(script).args(arguments).spawn();
        spawned.map(Self).map_err(Error::io("cannot run sh"))
    }
}

/// Starts a shell for a script; the caller adds the arguments.
fn shell_command(script: &str) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut shell = Command::new("sh");
    // The shell has its own process group, so that Ctrl-C in a terminal does not reach it.
    shell.args(["-c", script, "sh"]).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell
}

impl Drop for CleanupShell {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guarded_goes_with_who_made_it() {
        let dir =
            std::env::temp_dir().join(format!("trackway-cleanup-shell-{}", std::process::id()));
        let [instance, one, two] = ["instances/one", "one", "two"].map(|name| dir.join(name));
        for folder in [&instance, &one, &two] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(one.join("file"), "x").expect("a file");
        let mut sleep = Command::new("sleep");
        let mut sleep =
            sleep.arg("600").env("TRACKWAY_RUN_DIR", one.join("run")).spawn().expect("sleep");
        let cleanup_shells =
            [CleanupShell::of_instance(&instance), CleanupShell::of_folders([&one, &two])];
        assert!(instance.is_dir() && one.is_dir());
        // Closes the pipes, like the end of this process.
        drop(cleanup_shells);
        assert!(!instance.exists() && !one.exists() && !two.exists());
        assert!(!sleep.wait().expect("ours").success(), "by a signal");
        std::fs::remove_dir_all(dir).expect("removed");
    }

    /// Returns true if a process is alive, and not a zombie.
    fn is_alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }

    #[test]
    fn a_daemon_goes_with_who_made_it_and_so_does_what_it_has_started() {
        let log = std::env::temp_dir().join(format!("trackway-daemon-{}", std::process::id()));
        let start = |script: &str| {
            let file = File::create(&log).expect("a file");
            let daemon = CleanupShell::of_daemon(&["sh", "-c", script], file, |command| {
                command.env("WHERE", "here");
            });
            daemon.expect("a daemon")
        };
        let said = |what: &str| std::fs::read_to_string(&log).is_ok_and(|text| text.contains(what));
        // A daemon that ends on a signal leaves another process, whose id it prints.
        let (mut cleanup_shell, pid) = start("sleep 600 & echo $WHERE $! >&2; wait");
        while !said("\n") {
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(&log).expect("messages");
        let other = text.trim_end().strip_prefix("here ").expect("it was entered");
        let other = other.parse().expect("a number");
        assert!(is_alive(pid) && is_alive(other) && !cleanup_shell.has_ended());
        drop(cleanup_shell);
        // The processes are killed; their end may take a moment.
        while is_alive(pid) || is_alive(other) {
            std::thread::yield_now();
        }
        // The shell reports the exit status of a daemon that ends by itself.
        let (mut cleanup_shell, _) = start("exit 3");
        while !cleanup_shell.has_ended() {
            std::thread::yield_now();
        }
        assert!(said("it ended: 3"));
        std::fs::remove_file(&log).expect("removed");
    }
}
