//! Waits for processes by descriptor, for other descriptors, and for a time.

use crate::Errno;
use crate::file::Fd;

/// Opens a descriptor that is readable when the process has ended: pidfd_open(2).
pub fn open_process_fd(pid: u32) -> Result<Fd, Errno> {
    // SAFETY: no memory of ours is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    Errno::check(fd).map(|fd| Fd::adopt(fd as i32))
}

/// Returns true if `fd` has no reader any more: the other end of the pipe, socket or terminal is
/// closed. Never waits; files always have readers.
pub fn is_without_reader(fd: i32) -> Result<bool, Errno> {
    // poll(2) always reports POLLERR and POLLHUP.
    let mut polled = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: the one entry is ours.
    let result = unsafe { libc::poll(&mut polled, 1, 0) };
    match Errno::check(result.into()) {
        Ok(_) | Err(Errno(libc::EINTR)) => {
            Ok(polled.revents & (libc::POLLERR | libc::POLLHUP) != 0)
        }
        Err(errno) => Err(errno),
    }
}

/// Returns true if the other end of the Unix socket `fd` has not read all bytes: SIOCOUTQ of
/// unix(7).
pub fn is_unread(fd: i32) -> Result<bool, Errno> {
    let mut left: libc::c_int = 0;
    // SAFETY: the request writes an int, to `left`.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut left) };
    Errno::check(result.into()).map(|_| left > 0)
}

/// A descriptor to wait for, and its state after the wait.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct PollEntry(libc::pollfd);

impl PollEntry {
    /// Makes an entry that waits for data to read, or for the other end to close.
    pub fn readable(fd: i32) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
    }

    /// Makes an entry that waits for data to read, for space to write, or for the other end to
    /// close.
    pub fn readable_or_writable(fd: i32) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 })
    }

    /// Makes an entry that waits for space to write, or for the other end to close.
    pub fn writable(fd: i32) -> Self {
        Self(libc::pollfd { fd, events: libc::POLLOUT, revents: 0 })
    }

    /// Returns true if the descriptor was ready for anything, after [`wait_for_any`].
    pub const fn is_ready(&self) -> bool {
        self.0.revents != 0
    }
}

impl core::fmt::Debug for PollEntry {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Awaited").field(&self.0.fd).field(&self.0.revents).finish()
    }
}

/// Waits until one of these is ready, or a signal comes, for at most `timeout_ns`.
pub fn wait_for_any(awaited: &mut [PollEntry], timeout_ns: u64) -> Result<(), Errno> {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (timeout_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: the array (of a type that is transparent over ppoll's type) and the time are ours; no
    // signal mask is given.
    let result = unsafe {
        let entries: *mut libc::pollfd = awaited.as_mut_ptr().cast();
        libc::ppoll(entries, awaited.len() as _, &timeout, core::ptr::null())
    };
    match Errno::check(result.into()) {
        Ok(_) | Err(Errno(libc::EINTR)) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Waits until one of two descriptors is readable, for at most `timeout_ns`; returns which are.
pub fn wait_readable(fds: [Option<&Fd>; 2], timeout_ns: u64) -> Result<[bool; 2], Errno> {
    let mut polled = fds.map(|fd| libc::pollfd {
        // poll(2) ignores negative descriptors.
        fd: fd.map_or(-1, Fd::raw),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (timeout_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: array and time are ours; no signal mask is given.
    let result =
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as _, &timeout, core::ptr::null()) };
    match Errno::check(result.into()) {
        Ok(_) | Err(Errno(libc::EINTR)) => Ok(polled.map(|one| one.revents != 0)),
        Err(errno) => Err(errno),
    }
}
