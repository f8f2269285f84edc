//! SIGINT and other signals that end the bench: recorded, and passed on to foreground children.
//!
//! Children are in separate process groups, so that Ctrl-C in a terminal reaches only this process,
//! and the others end in order. First the foreground child ends (in this module); then, as the
//! adapters are torn down, their daemons end. Signals are only sent to ids of own, unreaped
//! children.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Set when the user has interrupted the run.
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Most children that are waited for at once: one drain for each CPU, of which a `cpu_set_t` has
/// 1024, and 64 more.
const CHILDREN_MAX: usize = 1024 + 64;
/// Ids of the children that are waited for; 0 marks a free place.
static FOREGROUND_CHILDREN: [AtomicI32; CHILDREN_MAX] = [const { AtomicI32::new(0) }; CHILDREN_MAX];

/// Seconds that children have to end after an interruption, before they are killed.
const GRACE_PERIOD_S: u32 = 2;

extern "C" fn handle_stop(_signal: i32) {
    STOPPED.store(true, Ordering::SeqCst);
    for pid in &FOREGROUND_CHILDREN {
        terminate_child(pid.load(Ordering::SeqCst));
    }
    // SAFETY: alarm has no preconditions, and is async-signal-safe.
    unsafe { libc::alarm(GRACE_PERIOD_S) };
}

/// Handles SIGALRM: kills the children that have not ended within the grace period.
extern "C" fn handle_alarm(_signal: i32) {
    for pid in &FOREGROUND_CHILDREN {
        let pid = pid.load(Ordering::SeqCst);
        kill_group(pid);
        kill_child(pid);
    }
    // The next alarm kills children that start later, during cleanup. SAFETY: as above.
    unsafe { libc::alarm(GRACE_PERIOD_S) };
}

/// Installs handlers for the signals by which a user ends a program.
pub fn install_handlers() {
    STOPPED.store(false, Ordering::SeqCst);
    let stop = handle_stop as extern "C" fn(i32);
    let handle_alarm = handle_alarm as extern "C" fn(i32);
    for (signal, handler) in [
        (libc::SIGINT, stop),
        (libc::SIGTERM, stop),
        (libc::SIGHUP, stop),
        (libc::SIGALRM, handle_alarm),
    ] {
        // SAFETY: the handlers do nothing but atomic operations, kill(2) and alarm(2), which are
        // async-signal-safe.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Returns true if the user has interrupted the run.
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

/// Sends SIGTERM to an unreaped child; nothing if `pid` is 0.
pub fn terminate_child(pid: i32) {
    send_to_child(pid, libc::SIGTERM);
}

/// Sends SIGKILL to an unreaped child; nothing if `pid` is 0.
pub fn kill_child(pid: i32) {
    send_to_child(pid, libc::SIGKILL);
}

/// Sends SIGKILL to the remaining processes of a process group, whose leader is an unreaped child.
pub fn kill_group(pid: i32) {
    if pid > 1 {
        send_signal(-pid, libc::SIGKILL);
    }
}

fn send_to_child(pid: i32, signal: i32) {
    if pid > 0 {
        send_signal(pid, signal);
    }
}

/// Sends a signal; `to` is a process id, or the negative id of a process group.
fn send_signal(to: i32, signal: i32) {
    // SAFETY: kill has no preconditions; errno is put back for the code that was interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::kill(to, signal);
        *libc::__errno_location() = errno;
    }
}

/// A child that Ctrl-C ends, until this value is dropped. The child must not be reaped before.
pub struct ForegroundChild(Option<&'static AtomicI32>);

impl ForegroundChild {
    /// Makes `pid` a foreground child.
    pub fn new(pid: i32) -> Self {
        let place = FOREGROUND_CHILDREN.iter().find(|place| {
            place.compare_exchange(0, pid, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        });
        // A signal may have arrived between the child's start and this point.
        if is_stopped() {
            terminate_child(pid);
        }
        Self(place)
    }
}

impl Drop for ForegroundChild {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::SeqCst);
        }
    }
}

/// Waits until the child `pid` has ended, without reaping it.
pub fn wait_for_end(pid: i32) {
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` has room for the result of waitid; the child is ours.
        let result = unsafe {
            libc::waitid(
                libc::P_PID,
                pid.cast_unsigned(),
                info.as_mut_ptr(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        if result == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_place_for_the_workload_beside_a_drain_on_each_cpu() {
        // No process has these ids: they are above all ids that the kernel assigns.
        let ids = (1 << 30)..(1 << 30) + 1024;
        let places: Vec<ForegroundChild> = ids.map(ForegroundChild::new).collect();
        assert!(places.iter().all(|place| place.0.is_some()));
        let workload = ForegroundChild::new((1 << 30) + 1024);
        assert!(workload.0.is_some_and(|place| place.load(Ordering::SeqCst) == (1 << 30) + 1024));
        let place = workload.0;
        drop(workload);
        assert!(place.is_some_and(|place| place.load(Ordering::SeqCst) != (1 << 30) + 1024));
    }
}
