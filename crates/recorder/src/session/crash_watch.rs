//! Detection of traced processes that die of a crash signal.
//!
//! The window's process table lists the processes that loaded the library. The recorder holds a
//! descriptor of each, which becomes readable when the process has ended; then the kernel reports
//! the signal (Linux 6.15; [`exit_status_of`]). A process that crashes before the first check after
//! its start is missed. Processes of other pid namespaces are missed, too, since their ids have no
//! meaning here.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use trackway_abi::window::{PROCESS_ENTERING, PROCESSES_MAX};
use trackway_schema::{ProcessFacts, ProcessRules};
use trackway_sys::file::Fd;
use trackway_sys::process::{ExitStatus, Identity, Life, exit_status_of, life_of, pid_namespace};
use trackway_sys::wait::{self, PollEntry};
use trackway_window::Window;

/// Crash signals: those whose default action in signal(7) is to dump core. Excludes SIGQUIT, which
/// users send, and SIGXCPU and SIGXFSZ, which limits cause.
const SIGNALS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// A process that crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crash {
    /// Process id of the crashed process.
    pub(crate) pid: u32,
    /// Number of the signal.
    pub(crate) signal: i32,
}

/// Most processes of another user that are watched at a time. Each needs a descriptor, and the
/// windows of other users need some, too.
const OTHERS_MAX: usize = 256;

/// Most new entries of another user's process table that are examined in one check.
const OTHERS_NEWS_MAX: usize = 64;

/// Watched processes, by their index in the window's process table.
#[derive(Debug, Default)]
pub(crate) struct CrashWatch {
    known: HashMap<usize, WatchedProcess>,
    /// Restricts the watch to this user's processes. The user can write the window, so the window
    /// may name any process.
    only: Option<u32>,
}

/// A process that was in the process table.
#[derive(Debug)]
struct WatchedProcess {
    incarnation: u32,
    pid: u32,
    pid_namespace: u64,
    executable: PathBuf,
    /// Process descriptor; `None` once the end of the process was handled.
    fd: Option<Fd>,
    /// True if the process has ended; its signal is known only once its parent is notified.
    has_ended: bool,
}

impl CrashWatch {
    /// Creates the watch for the window of user `uid`.
    pub(crate) fn of(uid: u32) -> Self {
        Self {
            known: HashMap::new(),
            only: (uid != crate::common::user::effective_uid()).then_some(uid),
        }
    }

    /// Returns true if the process with id `pid` may be watched.
    fn may_watch(&self, pid: u32) -> bool {
        let Some(uid) = self.only else { return true };
        let watched = self.known.values().filter(|known| known.fd.is_some()).count();
        // The folder in /proc belongs to the effective user of the process.
        let is_his = |status: fs::Metadata| status.uid() == uid;
        watched < OTHERS_MAX && fs::metadata(format!("/proc/{pid}")).is_ok_and(is_his)
    }

    /// Watches the processes that are new in the process table.
    pub(crate) fn poll(&mut self, window: &Window) {
        let here = pid_namespace();
        let mut news = 0;
        for place in 0..PROCESSES_MAX {
            let incarnation = window.process(place).incarnation.load(Ordering::Relaxed);
            let is_known = |known: &WatchedProcess| known.incarnation == incarnation;
            if incarnation == 0 || self.known.get(&place).is_some_and(is_known) {
                continue;
            }
            news += 1;
            if self.only.is_some() && news > OTHERS_NEWS_MAX {
                // The next check examines the remaining entries.
                return;
            }
            let identity = window.identity_at(place);
            if identity.pid != 0 && identity.pid & PROCESS_ENTERING == 0 {
                let mut known = WatchedProcess::of(&identity, incarnation);
                // Another process may have this id by now. Open the descriptor before other facts
                // are read, so that they belong to the same process.
                if identity.pid_namespace == here
                    && self.may_watch(identity.pid)
                    && life_of(&identity, 0) == Life::Alive
                {
                    known.executable =
                        fs::read_link(format!("/proc/{}/exe", identity.pid)).unwrap_or_default();
                    known.fd = wait::open_process_fd(identity.pid).ok();
                    known.fd = known.fd.filter(|_| life_of(&identity, 0) != Life::Dead);
                }
                self.known.insert(place, known);
            }
        }
    }

    /// Returns the process descriptors to wait for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = PollEntry> {
        // The descriptor of an ended process stays ready until its parent reaps it.
        let alive = self.known.values().filter(|known| !known.has_ended);
        alive.filter_map(|known| Some(PollEntry::readable(known.fd.as_ref()?.raw())))
    }

    /// Returns processes that crashed since the previous call and that the process rules of at
    /// least one channel select.
    pub(crate) fn take(&mut self, rules: &[String]) -> Vec<Crash> {
        let mut crashes = Vec::new();
        for known in self.known.values_mut() {
            if let Some(signal) = known.signal()
                && SIGNALS.contains(&signal)
                && rules.iter().any(|rules| known.is_selected(rules))
            {
                crashes.push(Crash { pid: known.pid, signal });
            }
        }
        crashes
    }
}

impl WatchedProcess {
    fn of(identity: &Identity, incarnation: u32) -> Self {
        Self {
            incarnation,
            pid: identity.pid,
            pid_namespace: identity.pid_namespace,
            executable: PathBuf::new(),
            fd: None,
            has_ended: false,
        }
    }

    /// Returns the signal that killed the process, once.
    fn signal(&mut self) -> Option<i32> {
        let fd = self.fd.as_ref()?;
        let [has_ended, _] = wait::wait_readable([Some(fd), None], 0).ok()?;
        if !has_ended {
            return None;
        }
        let status = exit_status_of(fd);
        self.has_ended = true;
        if let Ok(None) = status {
            return None;
        }
        self.fd = None;
        match status {
            Ok(Some(ExitStatus::Killed { signal, .. })) => Some(signal),
            _ => None,
        }
    }

    fn is_selected(&self, rules: &str) -> bool {
        let (pid, pid_namespace) = (self.pid, self.pid_namespace);
        let executable = self.executable.as_os_str().as_bytes();
        ProcessRules::new(rules.as_bytes()).selects(&ProcessFacts {
            pid,
            pid_namespace,
            executable,
        })
    }
}
