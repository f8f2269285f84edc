//! Processes: who am I, who is alive.

use core::ffi::CStr;

use crate::file::{self, Fd};

/// A process as others can recognise it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Process id in its own namespace.
    pub pid: u32,
    /// Inode number of its process-id namespace; 0 where /proc does not tell.
    pub pid_namespace: u64,
    /// CLOCK_BOOTTIME ns at which it was certainly running.
    pub since_ns: u64,
}

/// What is known of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs (or cannot be proved not to).
    Alive,
    /// It is proved to have ended.
    Dead,
    /// It lives in another namespace: nothing can be said from here.
    Unknown,
}

/// The calling process.
pub fn identity() -> Identity {
    Identity {
        // SAFETY: getpid has no preconditions.
        pid: unsafe { libc::getpid() }.cast_unsigned(),
        pid_namespace: pid_namespace(),
        since_ns: crate::clock::boottime_ns(),
    }
}

/// Inode number of the calling process's process-id namespace; 0 where /proc does not tell.
pub fn pid_namespace() -> u64 {
    file::status_of(c"/proc/self/ns/pid").map_or(0, |status| status.inode)
}

/// Whether the process `who` still runs, or the thread `tid` of it (0: any).
///
/// A process is dead if its id is not there, or belongs to one that started later. Zombies count
/// as dead: they execute nothing.
pub fn life_of(who: &Identity, tid: u32) -> Life {
    if who.pid_namespace == 0 || who.pid_namespace != pid_namespace() {
        return Life::Unknown;
    }
    match start_and_state(who.pid, if tid == 0 { who.pid } else { tid }) {
        None => Life::Dead,
        Some((_, b'Z' | b'X')) => Life::Dead,
        // Start times count in ticks of 10 ms, rounded down: a later one is a later process.
        Some((start_ns, _)) if tid == 0 && start_ns > who.since_ns => Life::Dead,
        Some(_) => Life::Alive,
    }
}

/// Start time (ns, CLOCK_BOOTTIME, rounded down to a tick) and state letter of thread `tid` of
/// process `pid`, from proc_pid_stat(5).
fn start_and_state(pid: u32, tid: u32) -> Option<(u64, u8)> {
    let mut path = [0_u8; 64];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        path[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let mut digits = [0_u8; 10];
    put(b"/proc/");
    put(decimal(pid, &mut digits));
    put(b"/task/");
    put(decimal(tid, &mut digits));
    put(b"/stat\0");
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let fd = Fd::open(path, libc::O_RDONLY, 0).ok()?;
    let mut text = [0_u8; 1024];
    // SAFETY: `text` is ours, with its length.
    let read = unsafe { libc::read(fd.raw(), text.as_mut_ptr().cast(), text.len()) };
    let text = text.get(..usize::try_from(read).ok()?)?;
    // The name may hold anything, also spaces and parentheses: fields count from the last one.
    let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
    let mut fields = text.get(after_name..)?.split(|&byte| byte == b' ');
    let state = *fields.next()?.first()?;
    let ticks = core::str::from_utf8(fields.nth(18)?).ok()?.parse::<u64>().ok()?;
    // SAFETY: sysconf has no preconditions.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
    Some((ticks * (1_000_000_000 / ticks_per_second), state))
}

/// `value` in decimal, in the end of `digits`.
fn decimal(value: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &digits[at..];
        }
    }
}
