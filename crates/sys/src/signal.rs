//! Signals: blocked, read as values, sent, and SIGBUS of a truncated mapping.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Errno;
use crate::file::Fd;

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// Makes a set of these signals, without invalid numbers.
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

    /// Makes the set of all signals, except those that the C library needs itself.
    pub fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigfillset fills the set in.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Self(set.assume_init())
        }
    }

    /// Blocks these signals for the calling thread as well; returns the set blocked before.
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

/// Reader of blocked signals, one by one (signalfd(2)).
#[derive(Debug)]
pub struct SignalReader(Fd);

impl SignalReader {
    /// Makes a reader of these signals, which the caller has blocked.
    pub fn new(set: &SignalSet) -> Result<Self, Errno> {
        // SAFETY: the set is ours.
        let fd = unsafe { libc::signalfd(-1, &set.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        Errno::check(fd.into()).map(|_| Self(Fd::adopt(fd)))
    }

    /// Returns the descriptor, which is readable when a signal is pending.
    pub const fn fd(&self) -> &Fd {
        &self.0
    }

    /// Returns the next pending signal, if there is one, and true if the kernel sent it: for a
    /// terminal's keys, not for kill(2).
    pub fn next(&self) -> Option<(i32, bool)> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has that size; the kernel writes a whole one or nothing.
        let read = unsafe { libc::read(self.0.raw(), info.as_mut_ptr().cast(), size) };
        if read != size as isize {
            return None;
        }
        // SAFETY: the read filled in `info`.
        let info = unsafe { info.assume_init() };
        // sigaction(2): SI_USER, SI_QUEUE and SI_TKILL are not positive, SI_KERNEL is.
        Some((info.ssi_signo.cast_signed(), info.ssi_code > 0))
    }
}

/// Ignores SIGXFSZ, so that a write beyond RLIMIT_FSIZE is an error and does not end this process.
/// Returns true if the signal was ignored before.
pub fn ignore_size_limit() -> bool {
    // SAFETY: no handler of ours is involved.
    (unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) }) == libc::SIG_IGN
}

/// Reverts [`ignore_size_limit`], before a program is started. Async-signal-safe.
pub fn restore_size_limit() {
    // SAFETY: no handler of ours is involved.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Returns true if this process ignores the signal.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null action changes nothing; `action` is read only if it was filled in.
    unsafe {
        libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Returns true if one of these signals, which are blocked, waits to be delivered.
pub fn is_pending(signals: &[i32]) -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: the set is ours, and read only if it was filled in.
    unsafe {
        libc::sigpending(pending.as_mut_ptr()) == 0
            && signals.iter().any(|&signal| libc::sigismember(pending.as_ptr(), signal) == 1)
    }
}

/// Sends a signal to a process: kill(2).
pub fn send(pid: u32, signal: i32) -> Result<(), Errno> {
    // SAFETY: no memory of ours is involved.
    Errno::check(unsafe { libc::kill(pid.cast_signed(), signal) }.into()).map(|_| ())
}

/// Ends the calling process by `signal`, so that its parent finds the signal that ended its child;
/// without a core file, because this process has not failed.
pub fn end_by_signal(signal: i32) -> ! {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls on values of ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        SignalSet::of(&[]).make_current();
        // Reached for signals that do not end a process, or that we may not raise.
        libc::_exit(128 + signal)
    }
}

/// Maximum number of mappings that are guarded in a process's life: the number of windows for which
/// its address space has room.
pub const GUARDS_MAX: usize = 2048;

/// A guarded mapping. The entry is never reused, because the mapping stays for good.
struct GuardedMapping {
    /// Address of the mapping; zero: the entry is free.
    base: AtomicUsize,
    bytes: AtomicUsize,
    hit: AtomicBool,
}

static GUARDED: [GuardedMapping; GUARDS_MAX] = [const {
    GuardedMapping {
        base: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        hit: AtomicBool::new(false),
    }
}; GUARDS_MAX];
/// Number of requested entries; larger than the table after one request too many.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// The guard of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard(usize);

impl Guard {
    /// Returns true if the mapping has lost its file: it shows zeros now.
    pub fn was_hit(self) -> bool {
        GUARDED[self.0 % GUARDS_MAX].hit.load(Ordering::Relaxed)
    }

    /// Releases a mapping that is unmapped next.
    pub fn release(self) {
        GUARDED[self.0 % GUARDS_MAX].base.store(0, Ordering::Relaxed);
    }
}

/// Makes this process survive the truncation of the file behind a mapping, which is never unmapped:
/// the first SIGBUS inside `[base, base + bytes)` puts zero pages in place of all of it.
///
/// # Errors
///
/// ENOSPC if [`GUARDS_MAX`] mappings are guarded already; errors of sigaction(2).
pub fn guard_mapping(base: *mut u8, bytes: u64) -> Result<Guard, Errno> {
    let place = GUARDS.fetch_add(1, Ordering::Relaxed);
    let Some(guarded) = GUARDED.get(place) else {
        GUARDS.store(GUARDS_MAX, Ordering::Relaxed);
        return Err(Errno(libc::ENOSPC));
    };
    guarded.bytes.store(bytes as usize, Ordering::Relaxed);
    // ORDERING: Release pairs with the Acquire in `on_bus_error`.
    guarded.base.store(base as usize, Ordering::Release);
    // SAFETY: an all-zero sigaction is valid; the handler only makes system calls.
    let result = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, core::ptr::null_mut())
    };
    Errno::check(result.into()).map(|_| Guard(place))
}

extern "C" fn on_bus_error(
    signal: i32,
    info: *mut libc::siginfo_t,
    _context: *mut core::ffi::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo_t, of a fault, which has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for guarded in &GUARDED {
        // ORDERING: Acquire pairs with the Release in `guard_mapping`: the length is there.
        let base = guarded.base.load(Ordering::Acquire);
        let bytes = guarded.bytes.load(Ordering::Relaxed);
        if base == 0 || address < base || address - base >= bytes {
            continue;
        }
        if map_zeros(base, bytes, address) {
            guarded.hit.store(true, Ordering::Relaxed);
            return;
        }
    }
    // The fault is not in a guarded mapping: it happens again on return, and ends the process as it
    // should. SAFETY: a plain call.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Replaces `[base, base + bytes)` by zero pages; or only the part around `address`, if the system
/// promises no more memory than it has (overcommit_memory 2).
fn map_zeros(base: usize, bytes: usize, address: usize) -> bool {
    const PIECE: usize = 1 << 20;
    let piece = (address & !(PIECE - 1)).max(base);
    let piece_bytes = PIECE.min(base + bytes - piece);
    [(base, bytes), (piece, piece_bytes)].into_iter().any(|(at, length)| {
        // SAFETY: the range is part of a mapping whose users read atomics or raw bytes only; zeros
        // are as good as any bytes to them. mmap is a plain system call here.
        let result = unsafe {
            libc::mmap(
                at as *mut _,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        result != libc::MAP_FAILED
    })
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt as _;

    use trackway_testkit::TemporaryFolder;

    use super::*;
    use crate::memory::Mapping;

    #[test]
    fn a_mapping_that_loses_its_file_is_zeros_and_the_others_are_what_they_were() {
        const BYTES: u64 = 3 << 20;
        let folder = TemporaryFolder::new();
        let open = |name: &str| {
            let path = CString::new(folder.join(name).as_os_str().as_bytes()).expect("a path");
            let fd = Fd::open(&path, libc::O_RDWR | libc::O_CREAT, 0o600).expect("a file");
            fd.allocate(0, BYTES).expect("memory");
            let mapping = Mapping::new(&fd, BYTES, BYTES).expect("a mapping");
            let guard = guard_mapping(mapping.base(), BYTES).expect("a guard");
            (fd, mapping, guard)
        };
        // SAFETY: inside the mapping; the test accesses bytes after the file's end on purpose.
        let write = |mapping: &Mapping, at: u64, byte| unsafe {
            mapping.base().add(at as usize).write_volatile(byte);
        };
        // SAFETY: inside the mapping; the test accesses bytes after the file's end on purpose.
        let read =
            |mapping: &Mapping, at: u64| unsafe { mapping.base().add(at as usize).read_volatile() };
        let (lost, kept) = (open("lost"), open("kept"));
        for at in [5, BYTES - 1] {
            write(&lost.1, at, 7);
            write(&kept.1, at, 7);
        }
        assert!(!lost.2.was_hit() && !kept.2.was_hit());
        lost.0.shorten(4096).expect("ours");
        assert_eq!(read(&lost.1, BYTES - 1), 0);
        assert!(lost.2.was_hit() && !kept.2.was_hit());
        write(&lost.1, BYTES - 1, 9);
        assert_eq!((read(&lost.1, 5), read(&lost.1, BYTES - 1)), (0, 9), "memory of its own");
        assert_eq!((read(&kept.1, 5), read(&kept.1, BYTES - 1)), (7, 7));
        kept.0.shorten(0).expect("ours");
        assert_eq!(read(&kept.1, 5), 0);
        assert!(kept.2.was_hit());
    }
}
