//! Periodic scans for the threads of control groups, since ftrace selects threads only.
//!
//! The kernel follows children of members by itself (`event-fork`). A scan adds each thread that
//! has moved into a group. A thread that has left is excluded after two scans have not found it: a
//! thread that moves between groups may be missing in one scan. A member may start a thread
//! directly in another group (clone3(2) with CLONE_INTO_CGROUP), or a thread may be moved there
//! before a scan finds it. The kernel follows such threads, which are in no list of our groups. So
//! every few scans the kernel's own list of threads is read ([`CgroupScan::find_outside_threads`]).
//! The end of recording reports the number of moves and the longest interval between scans: moves
//! within an interval are not observed.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use trackway_console::IoError;
use trackway_kernel::bpf_program::cgroup::CgroupFolders;

use super::SharedState;
use crate::error::RecordError;
use crate::kernel::error::kernel_io_error;
use crate::window::processes::read_proc;

/// Period between two scans of the control groups.
const PERIOD: Duration = Duration::from_millis(5);
/// Number of scans between two reads of the kernel's own list of threads.
const THREAD_LIST_SCANS: u32 = 4;
/// Shortest pause until the next scan, as a multiple of a scan's duration.
const PAUSE_FACTOR: u32 = 20;
/// PF_EXITING (include/linux/sched.h).
const PF_EXITING: u64 = 4;

/// Threads that scans observed to enter and leave the groups.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadMoves {
    /// Number of threads that entered and were not started by a member.
    pub(super) came: u64,
    /// Number of threads that left but stay recorded, since the kernel cannot exclude them.
    pub(super) kept: u64,
    /// Longest interval between two scans.
    pub(super) apart: Duration,
    /// Reason why some threads could not be followed, if that happened.
    pub(super) failed: Option<String>,
}

/// Handle of the scanning thread; dropping the handle ends the thread.
#[derive(Debug)]
pub(super) struct CgroupFollower {
    end: Sender<()>,
    thread: JoinHandle<()>,
    moves: Arc<Mutex<ThreadMoves>>,
}

/// State of the scanning thread.
struct CgroupScan {
    shared: Arc<SharedState>,
    folders: CgroupFolders,
    /// Known members; includes the members in `absent`, which the latest scan did not find.
    known: HashSet<u32>,
    absent: HashSet<u32>,
    /// True if some thread has been excluded.
    has_left_out: bool,
    /// Number of scans until the kernel's own list of threads is read again.
    until_asked: u32,
}

/// Finds control groups, and restricts the recording to their threads from its beginning.
pub(super) fn restrict_to_cgroups(
    shared: &SharedState,
    paths: &[PathBuf],
) -> Result<CgroupFolders, RecordError> {
    let folders = CgroupFolders::find(paths)?;
    let refused = |error| kernel_io_error("cannot record control groups by tracefs", error);
    shared.instance.add_no_thread().map_err(refused)?;
    let (threads, read) = folders.threads();
    read.and_then(|()| shared.instance.add_threads(&threads)).map_err(refused)?;
    Ok(folders)
}

impl CgroupFollower {
    /// Starts the scanning thread.
    pub(super) fn start(
        shared: &Arc<SharedState>,
        folders: CgroupFolders,
    ) -> Result<Self, RecordError> {
        let shared = Arc::clone(shared);
        let (known, absent) = (HashSet::new(), HashSet::new());
        let until_asked = THREAD_LIST_SCANS;
        let mut scan =
            CgroupScan { shared, folders, known, absent, has_left_out: false, until_asked };
        // Threads that enter before recording begins have missed no event.
        let scanned = scan.scan(&mut ThreadMoves::default());
        scanned
            .map_err(|error| kernel_io_error("cannot record control groups by tracefs", error))?;
        let moves = Arc::new(Mutex::new(ThreadMoves::default()));
        let (end, ended) = mpsc::channel();
        let noted = Arc::clone(&moves);
        let run = move || scan.run(&ended, &noted);
        let thread = std::thread::Builder::new().name("trackway-cgroup".into()).spawn(run);
        let thread = thread.map_err(|error| kernel_io_error("cannot start a thread", error))?;
        Ok(Self { end, thread, moves })
    }

    /// Ends the scanning thread; returns the moves that it observed.
    pub(super) fn finish(self) -> ThreadMoves {
        drop(self.end);
        // The thread ends once its channel is closed.
        let _ = self.thread.join();
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CgroupScan {
    /// Scans until the handle of the scanning thread is dropped.
    fn run(&mut self, ended: &Receiver<()>, noted: &Mutex<ThreadMoves>) {
        let mut moves = ThreadMoves::default();
        let (mut before, mut rest) = (Instant::now(), PERIOD);
        while ended.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
            let begun = Instant::now();
            let scanned = self.scan(&mut moves);
            if let Err(error) = scanned {
                moves.failed = Some(IoError::text(&error));
            }
            // Threads that entered since the previous scan may be recorded only from the end of
            // this scan.
            let (now, took) = (Instant::now(), begun.elapsed());
            moves.apart = moves.apart.max(now - before);
            (before, rest) = (begun, PERIOD.max(took * PAUSE_FACTOR));
            noted.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&moves);
        }
    }

    /// Adds threads that entered the groups, and excludes threads that left them.
    fn scan(&mut self, moves: &mut ThreadMoves) -> io::Result<()> {
        let (threads, read) = self.folders.threads();
        read?;
        let now: HashSet<u32> = threads.into_iter().collect();
        let new: Vec<u32> = now.difference(&self.known).copied().collect();
        // A thread that cannot be added must not prevent exclusions.
        let taken =
            if new.is_empty() { Ok(()) } else { self.add_entered_threads(&new, &now, moves) };
        let missing: HashSet<u32> = self.known.difference(&now).copied().collect();
        let (twice, once): (Vec<u32>, Vec<u32>) =
            missing.into_iter().partition(|tid| self.absent.contains(tid));
        let gone: Vec<u32> = twice.into_iter().filter(|&tid| is_not_exiting(tid)).collect();
        if !gone.is_empty() {
            if self.shared.instance.exclude_threads(&gone)? {
                self.has_left_out = true;
            } else {
                moves.kept = moves.kept.saturating_add(gone.len() as u64);
            }
        }
        self.absent = once.into_iter().collect();
        self.known = now;
        self.known.extend(&self.absent);
        taken.and_then(|()| self.find_outside_threads())
    }

    /// Finds, every few scans, threads that a member started and the kernel follows, but that are
    /// in none of our groups. These threads count as members from an earlier scan. So two more
    /// scans must miss them before they are excluded: such a thread may have started since this
    /// scan.
    fn find_outside_threads(&mut self) -> io::Result<()> {
        self.until_asked = self.until_asked.saturating_sub(1);
        if self.until_asked > 0 {
            return Ok(());
        }
        self.until_asked = THREAD_LIST_SCANS;
        let instance = &self.shared.instance;
        let followed = instance.added_threads()?;
        let left_out = if self.has_left_out { instance.excluded_threads()? } else { Vec::new() };
        let left_out: HashSet<u32> = left_out.into_iter().collect();
        self.known.extend(followed.iter().filter(|tid| !left_out.contains(tid)));
        Ok(())
    }

    /// Adds new threads that the kernel does not follow by itself. Also includes again the threads
    /// that the kernel excludes, since they or their creators were outside the groups.
    fn add_entered_threads(
        &self,
        new: &[u32],
        now: &HashSet<u32>,
        moves: &mut ThreadMoves,
    ) -> io::Result<()> {
        let instance = &self.shared.instance;
        let followed: HashSet<u32> = instance.added_threads()?.into_iter().collect();
        let came: HashSet<u32> =
            new.iter().filter(|tid| !followed.contains(tid)).copied().collect();
        instance.add_threads(&came.iter().copied().collect::<Vec<_>>())?;
        moves.came = moves.came.saturating_add(came.len() as u64);
        if self.has_left_out {
            let left_out = instance.excluded_threads()?;
            let (back, others): (Vec<u32>, Vec<u32>) =
                left_out.into_iter().partition(|tid| now.contains(tid));
            if !back.is_empty() {
                instance.replace_excluded_threads(&others)?;
                let back = back.iter().filter(|tid| !came.contains(tid)).count();
                moves.came = moves.came.saturating_add(back as u64);
            }
        }
        Ok(())
    }
}

/// Returns true if the thread `tid` exists and is not exiting. An exiting thread is in no group's
/// list, but must be recorded up to its last context switch.
fn is_not_exiting(tid: u32) -> bool {
    let stat = read_proc(&format!("/proc/{tid}/stat")).unwrap_or_default();
    parse_task_flags(&stat).is_some_and(|flags| flags & PF_EXITING == 0)
}

/// Returns the field `flags` of /proc/PID/stat: the seventh field after the name.
fn parse_task_flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_at_work_until_it_ends() {
        assert!(is_not_exiting(std::process::id()));
        let stat = "7 (a) b) c) Z 1 7 7 0 -1 4227084 0 0";
        assert_eq!(parse_task_flags(stat).map(|flags| flags & PF_EXITING), Some(PF_EXITING));
        assert_eq!(parse_task_flags("7 (sh"), None);
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let pid = child.id();
        let _ = child.wait();
        assert!(!is_not_exiting(pid));
    }
}
