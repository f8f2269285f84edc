//! A shell that waits until we have ended, in whatever way, and removes what is left of us then:
//! nobody can catch SIGKILL. Its input is a pipe that only we have the other end of.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};

/// Removes `$1` by rmdir(2), as instances of tracefs go: nothing in one may be removed. While
/// somebody has a file of it open, it stays.
const INSTANCE: &str = "cd \"$1/..\" && { read -r _; name=${1##*/}; i=0; \
     while [ -d \"$name\" ] && [ $i -lt 100 ] && ! rmdir \"$name\" 2>/dev/null; do \
     sleep 0.1; i=$((i+1)); done; }";
/// Removes the uprobe event `$2` of the tracefs `$1`; while somebody records it, it stays.
const UPROBE: &str = "cd \"$1\" && { read -r _; i=0; \
     while grep -q \"^p:$2 \" uprobe_events && [ $i -lt 100 ] && \
     ! echo \"-:$2\" >>uprobe_events; do sleep 0.1; i=$((i+1)); done; }";
/// Ends what we had started to work in two folders, which has them in its environment (recorders
/// and daemons outlive who starts them), and removes the folders and what is in them; what has not
/// ended yet may be writing there still.
const FOLDERS: &str = "read -r _; grep -lsF -e \"$1\" -e \"$2\" /proc/[0-9]*/environ | \
     while IFS=/ read -r _ _ pid _; do kill \"$pid\" 2>/dev/null; done; i=0; \
     while { [ -d \"$1\" ] || [ -d \"$2\" ]; } && [ $i -lt 100 ]; do \
     rm -rf \"$1\" \"$2\" 2>/dev/null; sleep 0.1; i=$((i+1)); done";

/// The shell, as long as we need it.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Of an instance of tracefs.
    pub(crate) fn of_instance(folder: &Path) -> Result<Self> {
        Self::start(INSTANCE, &[folder])
    }

    /// Of two folders, whose names nobody else has.
    pub(crate) fn of_folders(folders: [&Path; 2]) -> Result<Self> {
        Self::start(FOLDERS, &folders)
    }

    /// Of an event, `GROUP/EVENT`, in the list of uprobe events of the tracefs at `root`.
    pub(crate) fn of_uprobe(root: &Path, event: &str) -> Result<Self> {
        Self::start(UPROBE, &[root, Path::new(event)])
    }

    fn start(script: &str, arguments: &[&Path]) -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh");
        // In a group of its own: a terminal's Ctrl-C is not for it.
        shell.args(["-c", script, "sh"]).args(arguments).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self).map_err(Error::io("cannot run sh"))
    }
}

impl Drop for Guardian {
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
        let dir = std::env::temp_dir().join(format!("trackway-guardian-{}", std::process::id()));
        let [instance, one, two] = ["instances/one", "one", "two"].map(|name| dir.join(name));
        for folder in [&instance, &one, &two] {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(one.join("file"), "x").expect("a file");
        let mut sleep = Command::new("sleep");
        let mut sleep = sleep.arg("600").env("FOLDER", one.join("in it")).spawn().expect("sleep");
        let guardians = [Guardian::of_instance(&instance), Guardian::of_folders([&one, &two])];
        assert!(instance.is_dir() && one.is_dir());
        // As if we were gone.
        drop(guardians);
        assert!(!instance.exists() && !one.exists() && !two.exists());
        assert!(!sleep.wait().expect("ours").success(), "by a signal");
        std::fs::remove_dir_all(dir).expect("removed");
    }
}
