//! Recorders that were killed a moment ago and have not exited yet.
//!
//! After SIGKILL, `trackway recover` may find the recorder alive. Until the kernel has released its
//! memory, its process exists and holds its locks. The kernel shows that a process is about to
//! exit: the signal is pending (proc(5): SigPnd, ShdPnd), or the process is exiting. So recovery
//! waits for such a recorder, within the time that the exit usually takes.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use trackway_sys::wait;

use crate::window::processes::read_proc;

/// Longest total wait for all processes that are about to exit.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Bit of SIGKILL in a signal mask.
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
/// PF_EXITING (include/linux/sched.h).
const EXITING_FLAG: u64 = 4;

/// Waits until those of the processes that are about to exit have exited.
pub(crate) fn wait_for_dying(pids: impl Iterator<Item = u32>) {
    let until = Instant::now() + WAIT_MAX;
    for pid in pids.collect::<BTreeSet<u32>>() {
        // Open the descriptor first: the id may then belong to another process, which is not about
        // to exit.
        let Ok(process) = wait::open_process_fd(pid) else { continue };
        let left = until.saturating_duration_since(Instant::now());
        if is_dying(pid) && !left.is_zero() {
            // A process that does not exit in time is found alive, like without a wait.
            let _ = wait::wait_readable([Some(&process), None], left.as_nanos() as u64);
        }
    }
}

/// Returns the processes that hold flock(2) locks on files with these inode numbers.
pub(crate) fn lock_holders(inodes: &BTreeSet<u64>) -> Vec<u32> {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    parse_lock_holders(&locks, inodes)
}

/// Parses the lines of /proc/locks: `1: FLOCK  ADVISORY  WRITE 77 00:1b:4711 0 EOF`. (A file with
/// the same inode number may be on another file system: then recovery also waits for another
/// process that is about to exit.)
fn parse_lock_holders(locks: &str, inodes: &BTreeSet<u64>) -> Vec<u32> {
    let holder = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words[..] else { return None };
        let inode = file.rsplit(':').next()?.parse().ok()?;
        inodes.contains(&inode).then(|| pid.parse().ok())?
    };
    locks.lines().filter_map(holder).collect()
}

/// Returns true if a process is about to exit: killed, or already exiting.
fn is_dying(pid: u32) -> bool {
    let read = |name: &str| read_proc(&format!("/proc/{pid}/{name}")).unwrap_or_default();
    has_pending_sigkill(&read("status")) || is_exiting(&read("stat"))
}

fn has_pending_sigkill(status: &str) -> bool {
    status.lines().any(|line| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let set = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & SIGKILL_BIT != 0)
    })
}

/// Returns true if the state or the flags in /proc/PID/stat (fields 1 and 7 after the name) report
/// that the process is exiting.
fn is_exiting(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_whitespace();
    let is_gone = matches!(fields.next(), Some("Z" | "X"));
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok());
    is_gone || flags.is_some_and(|flags| flags & EXITING_FLAG != 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_is_about_to_end_is_told_by_the_kernel() {
        assert!(has_pending_sigkill(
            "State:\tR (running)\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"
        ));
        assert!(has_pending_sigkill("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000101\n"));
        assert!(!has_pending_sigkill(
            "SigPnd:\t0000000000000200\nShdPnd:\tnone\nSigBlk:\t0000000000000100\n"
        ));
        assert!(is_exiting("7 (a) b) Z 1 7 7 0 -1 4227084 0 0"));
        assert!(is_exiting("7 (a) b) R 1 7 7 0 -1 4194308 0 0"));
        assert!(!is_exiting("7 (a) b) R 1 7 7 0 -1 4194304 0 0") && !is_exiting(""));
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn who_was_killed_is_gone_once_he_was_waited_for() {
        for _ in 0..20 {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("it starts");
            let pid = child.id();
            child.kill().expect("ours");
            wait_for_dying([pid].into_iter());
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("nobody has waited");
            assert!(
                stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")),
                "{stat}"
            );
            let _ = child.wait();
        }
    }

    #[test]
    fn who_holds_a_lock_is_found_by_the_files_number() {
        let locks = "1: FLOCK  ADVISORY  WRITE 77 00:1b:4711 0 EOF\n\
            2: POSIX  ADVISORY  WRITE 78 00:1b:4711 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 79 00:1b:4712 0 EOF\n\
            3: -> FLOCK  ADVISORY  WRITE 80 00:1b:4711 0 EOF\n";
        assert_eq!(parse_lock_holders(locks, &BTreeSet::from([4711])), [77]);
    }
}
