//! Signals: blocked and read as values, sent, and the one that a truncated mapping raises.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Errno;
use crate::file::Fd;

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// These signals; numbers that are none are left out.
    pub fn of(signals: &[i32]) -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset fills the set in; sigaddset checks the numbers.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for &signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Self(set.assume_init())
        }
    }

    /// All signals, except those that the C library needs itself.
    pub fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset fills the set in.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Blocks these signals for the calling thread as well; returns what was blocked before.
    pub fn block(&self) -> Self {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are ours; SIG_BLOCK is valid, so `before` is filled in.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &self.0, before.as_mut_ptr());
            Self(before.assume_init())
        }
    }

    /// Blocks these signals and no others, for the calling thread. Async-signal-safe.
    pub fn make_current(&self) {
        // SAFETY: the set is ours.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

/// Blocked signals, to be read one by one (signalfd(2)).
#[derive(Debug)]
pub struct SignalReader(Fd);

impl SignalReader {
    /// A reader of these signals, which the caller has blocked.
    pub fn new(set: &SignalSet) -> Result<Self, Errno> {
        // SAFETY: the set is ours.
        let fd = unsafe { libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        Errno::check(fd.into()).map(|_| Self(Fd::adopt(fd)))
    }

    /// Its descriptor: readable when a signal is pending.
    pub const fn fd(&self) -> &Fd {
        &self.0
    }

    /// The next pending signal, if there is one, and whether the kernel sent it: a terminal's keys,
    /// not kill(2).
    pub fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has that size; the kernel writes a whole one or nothing.
        let read = unsafe { libc::read(self.0.raw(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: it was filled in.
        let info = unsafe { info.assume_init() };
        // sigaction(2): SI_USER, SI_QUEUE and SI_TKILL are not positive, SI_KERNEL is.
        Some((info.ssi_signo.cast_signed(), info.ssi_code > 0))
    }
}

/// Makes a write beyond RLIMIT_FSIZE an error, not the end of this process: ignores SIGXFSZ.
/// Whether it was ignored before.
pub fn ignore_size_limit() -> bool {
    // SAFETY: no handler of ours is involved.
    (unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) }) == libc::SIG_IGN
}

/// Undoes [`ignore_size_limit`], for a program that is to be started. Async-signal-safe.
pub fn heed_size_limit() {
    // SAFETY: no handler of ours is involved.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// kill(2).
pub fn send(pid: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory of ours is involved.
    Errno::check(unsafe { libc::kill(pid.cast_signed(), signal) }.into()).map(|_| ())
}

/// Ends the calling process by `signal`, as a program that was started does for the one that it
/// started; without a core file, since the failure is not ours.
pub fn die_of(signal: i32) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on values of ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        SignalSet::of(&[]).make_current();
        // Signals that do not end a process, or that we may not raise.
        libc::_exit(128 + signal)
    }
}

static GUARDED_BASE: AtomicUsize = AtomicUsize::new(0);
static GUARDED_BYTES: AtomicUsize = AtomicUsize::new(0);
static GUARD_HIT: AtomicBool = AtomicBool::new(false);

/// Makes this process survive that somebody truncates the file behind a mapping: the first
/// SIGBUS inside `[base, base + bytes)` puts zero pages in place of all of it. One mapping at a
/// time; the mapping stays for good.
pub fn guard_mapping(base: *mut u8, bytes: u64) -> Result<(), Errno> {
    GUARDED_BYTES.store(bytes as usize, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire in `on_bus_error`.
    GUARDED_BASE.store(base as usize, Ordering::Release);
    // SAFETY: an all-zero sigaction is valid; the handler only makes system calls.
    let result = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut())
    };
    Errno::check(result.into()).map(|_| ())
}

/// Whether a guarded mapping has lost its file: what it shows now is zeros.
pub fn guard_was_hit() -> bool {
    GUARD_HIT.load(Ordering::Relaxed)
}

extern "C" fn on_bus_error(
    signal: i32,
    info: *mut libc::siginfo_t,
    _context: *mut core::ffi::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t, of a fault, which has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    // ORDERING: Acquire pairs with the Release in `guard_mapping`: the length is there.
    let base = GUARDED_BASE.load(Ordering::Acquire);
    let bytes = GUARDED_BYTES.load(Ordering::Relaxed);
    if base != 0 && address >= base && address - base < bytes {
        // SAFETY: the range is a mapping whose users read atomics or raw bytes only; zeros are as
        // good as any bytes to them. mmap is a plain system call here.
        let result = unsafe {
            libc::mmap(
                base as *mut _,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if result != libc::MAP_FAILED {
            GUARD_HIT.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Somebody else's fault: it happens again on return, and ends the process as it should.
    // SAFETY: a plain call.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}
