//! Detection of processes in sandboxes, before the library would need a system call in them.
//!
//! The library reads a thread's name by prctl(2), for which a seccomp filter may kill the process.
//! So before a recorder activates a generation that may need names, it marks processes in
//! sandboxes; the library then records the name that it has read before. The recorder also marks
//! them before it uses memory that processes may not have mapped readable yet, for which they call
//! mprotect(2). (A process that enters a sandbox between this check and a thread's first event is
//! not detected: docs/guides/processes.md.)

use std::fs;

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX};
use trackway_window::Window;

use crate::window::processes::inner_namespace_processes;

/// Most threads of a process that are checked.
const THREADS_MAX: usize = 256;

/// Marks the window's processes that are in sandboxes.
pub(crate) fn mark_sandboxed_processes(window: &Window) {
    let own = trackway_sys::process::pid_namespace();
    let mut others = None;
    for index in 0..PROCESSES_MAX {
        let who = window.identity_at(index);
        if who.pid == 0 || who.pid & PROCESS_ENTERING != 0 {
            continue;
        }
        let pid = if who.pid_namespace == own {
            Some(who.pid)
        } else {
            let others = others.get_or_insert_with(inner_namespace_processes);
            others.get(&(who.pid_namespace, who.pid)).copied()
        };
        if pid.is_some_and(is_sandboxed) {
            window.note_sandboxed(index, &who);
        }
    }
}

/// Returns true if a thread of a process is under seccomp(2); false if this is unknown.
fn is_sandboxed(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.take(THREADS_MAX).any(|thread| {
        // A thread's name may contain any bytes.
        let status = fs::read(thread.path().join("status"));
        status.is_ok_and(|status| has_seccomp_mode(&String::from_utf8_lossy(&status)))
    })
}

/// Returns true if this text of proc_pid_status(5) shows a seccomp mode other than 0.
fn has_seccomp_mode(status: &str) -> bool {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    mode.is_some_and(|mode| mode.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_in_a_sandbox_if_its_status_says_so() {
        assert!(has_seccomp_mode("Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(has_seccomp_mode("Seccomp:\t1\n"));
        assert!(!has_seccomp_mode("Seccomp:\t0\nSeccomp_filters:\t0\n"));
        assert!(!has_seccomp_mode("Name:\tSeccomp: 2\n"), "a kernel without it");
    }
}
