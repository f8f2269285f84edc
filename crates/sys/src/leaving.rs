//! Immediate end by a signal, although the kernel takes long to close the process's descriptors.
//!
//! A parent waits for a process until all its files are closed, and no second signal changes that:
//! for hundreds of tracepoints, half a minute. So the signal's handler leaves such files to a copy
//! of the process, which has nothing else open. The parent then waits only for the process itself.

use core::fmt::{self, Write as _};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Signals that end a process by default.
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Limit of descriptors that can be left to the copy; the process itself closes higher ones.
const DESCRIPTORS_MAX: usize = 1 << 16;
/// Period in which the copy polls for the process's end, and the maximum number of polls.
const POLL_NS: libc::c_long = 5_000_000;
const POLLS_MAX: u32 = 60_000;

/// A bit for each descriptor that takes long to close.
static SLOW_DESCRIPTORS: [AtomicU64; DESCRIPTORS_MAX / 64] =
    [const { AtomicU64::new(0) }; DESCRIPTORS_MAX / 64];
/// True if the handler writes a message.
static REPORTS: AtomicBool = AtomicBool::new(false);

/// A guard: while it exists, signals end the process at once.
#[derive(Debug)]
pub struct FastExitGuard {
    /// True for each signal whose default action the guard replaced.
    replaced: [bool; SIGNALS.len()],
}

impl FastExitGuard {
    /// Makes the guard. With `says`, the handler reports on stderr what it leaves to the copy.
    /// Signals that are ignored stay ignored. Only one guard may exist at a time.
    pub fn at_once(says: bool) -> Self {
        REPORTS.store(says, Ordering::Relaxed);
        let mut replaced = [false; SIGNALS.len()];
        for (signal, replaced) in SIGNALS.into_iter().zip(&mut replaced) {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: the action is filled in, or stays all zero, which is valid; the handler calls
            // only async-signal-safe functions (signal-safety(7)).
            unsafe {
                let null = core::ptr::null_mut();
                libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr());
                let mut action = action.assume_init();
                if action.sa_sigaction != libc::SIG_DFL {
                    continue;
                }
                action.sa_sigaction =
                    exit_on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigfillset(&mut action.sa_mask);
                *replaced = libc::sigaction(signal, &action, null) == 0;
            }
        }
        Self { replaced }
    }

    /// Marks a descriptor that takes long to close.
    pub fn expect_slow(&self, descriptor: i32) {
        let number = usize::try_from(descriptor).unwrap_or(usize::MAX);
        if let Some(word) = SLOW_DESCRIPTORS.get(number / 64) {
            word.fetch_or(1 << (number % 64), Ordering::Relaxed);
        }
    }
}

impl Drop for FastExitGuard {
    fn drop(&mut self) {
        for (signal, _) in SIGNALS.into_iter().zip(self.replaced).filter(|(_, was)| *was) {
            // SAFETY: no handler of ours is involved.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        SLOW_DESCRIPTORS.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Handles a signal, while all signals are blocked.
extern "C" fn exit_on_signal(signal: libc::c_int) {
    let slow: u32 =
        SLOW_DESCRIPTORS.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
    // SAFETY: plain system calls; the child touches no memory of the process's but atomics. (Not
    // fork(3), which takes the C library's locks.)
    unsafe {
        if slow > 0 {
            let process = libc::getpid();
            if libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) == 0 {
                hold_until_gone(process);
            }
            report_slow_descriptors(slow);
        }
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), core::ptr::null_mut());
        libc::_exit(128 + signal)
    }
}

/// Runs in the copy: keeps slow descriptors open until the process is gone, and closes them.
///
/// # Safety
///
/// The calling process is a child that no other code knows.
unsafe fn hold_until_gone(process: libc::pid_t) -> ! {
    // SAFETY: the calls affect only this process's descriptors, signals and name.
    unsafe {
        for (number, word) in (0..).zip(&SLOW_DESCRIPTORS) {
            let word = word.load(Ordering::Relaxed);
            let others = (0..64).filter(|bit| word >> bit & 1 == 0);
            others.for_each(|bit| {
                libc::close(number * 64 + bit);
            });
        }
        libc::syscall(libc::SYS_close_range, DESCRIPTORS_MAX, u32::MAX, 0);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"trackway-detach".as_ptr(), 0, 0, 0);
        let look = libc::timespec { tv_sec: 0, tv_nsec: POLL_NS };
        for _ in 0..POLLS_MAX {
            if libc::getppid() != process {
                break;
            }
            libc::nanosleep(&look, core::ptr::null_mut());
        }
        libc::_exit(0)
    }
}

/// Text on the stack, cut to fit.
struct Line {
    bytes: [u8; 200],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(text.bytes()) {
            *to = from;
            self.length += 1;
        }
        Ok(())
    }
}

/// Reports the descriptors that are left to the copy.
fn report_slow_descriptors(slow: u32) {
    if !REPORTS.load(Ordering::Relaxed) {
        return;
    }
    let mut line = Line { bytes: [0; 200], length: 0 };
    // SAFETY: no memory is involved.
    if unsafe { libc::isatty(2) } == 1 {
        let _ = line.write_str("\n");
    }
    let _ = writeln!(
        line,
        "trackway: ended before anything was recorded; a process 'trackway-detach' waits until the \
         kernel has let go of {slow} tracepoint{}",
        if slow == 1 { "" } else { "s" }
    );
    // SAFETY: the line has as many bytes. A closed standard error is no reason to fail.
    let _ = unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
}
