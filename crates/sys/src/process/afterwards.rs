//! A helper process that removes a folder when this process has ended, in any way. It keeps the
//! user that this process was.
//!
//! The helper is a fork that runs no program and that no signal but SIGKILL reaches. It has only
//! the descriptors that it needs, so that no process waits for it. After fork(2) it does only what
//! a process with several threads may do: system calls.

use core::ffi::CStr;

use crate::Errno;
use crate::file::Fd;

/// Number of attempts to remove a busy folder, and the time between two, in ns: the kernel closes
/// the descriptors of a killed process one by one.
const ATTEMPTS_MAX: u32 = 500;
const PAUSE_NS: i64 = 10_000_000;
/// Numbers of the helper's two descriptors, so that all others can be closed.
const FOLDER_FD: i32 = 0;
const PIPE_FD: i32 = 1;
/// Maximum number of descriptors that are closed one by one, if close_range(2) is missing.
const DESCRIPTORS_MAX: i32 = 1 << 16;

/// The helper process. When this value or this process ends, the folder is removed.
#[derive(Debug)]
pub struct FolderRemover {
    /// The end of a pipe that no other process has.
    pipe: Option<Fd>,
    pid: i32,
}

impl FolderRemover {
    /// Starts a helper that will remove the empty folder `name` in `folder`, which is open.
    ///
    /// # Errors
    ///
    /// Fails if no process can be made.
    pub fn spawn(folder: &Fd, name: &CStr) -> Result<Self, Errno> {
        let mut ends = [0; 2];
        // SAFETY: an array of two descriptors, as pipe2(2) requires.
        Errno::check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
        let (read, held) = (Fd::adopt(ends[0]), Fd::adopt(ends[1]));
        // All signals are blocked: none may run a handler of ours in the helper.
        // SAFETY: a set of signals is a plain number, and zero is one.
        let (mut all, mut before) = unsafe { core::mem::zeroed::<(libc::sigset_t, _)>() };
        // SAFETY: both sets are ours.
        unsafe {
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        }
        // SAFETY: the child makes system calls alone, on memory that is there, and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the child makes system calls alone, on memory that is there, and ends.
            unsafe { wait_and_remove(read.raw(), folder.raw(), name) }
        }
        let forked = Errno::check(pid.into());
        // SAFETY: the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
        forked.map(|_| Self { pipe: Some(held), pid })
    }
}

impl Drop for FolderRemover {
    /// Lets the helper go on, and waits for its end: at most as long as it tries.
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Waits for our own child, again after each interrupting signal, up to a limit.
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: nothing is written.
            let ended = unsafe { libc::waitpid(self.pid, core::ptr::null_mut(), 0) };
            if Errno::check(ended.into()) != Err(Errno(libc::EINTR)) {
                return;
            }
        }
    }
}

/// Runs in the helper.
///
/// # Safety
/// Must be called in a child of fork(2): closes all descriptors, and does not return.
unsafe fn wait_and_remove(pipe: i32, folder: i32, name: &CStr) -> ! {
    // SAFETY: system calls on descriptors that are this process's alone, and on memory that lives.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"trackway-after".as_ptr(), 0, 0, 0);
        libc::chdir(c"/".as_ptr());
        // Moves both descriptors above the numbers that they will get.
        let (pipe, folder) =
            (libc::fcntl(pipe, libc::F_DUPFD, 2), libc::fcntl(folder, libc::F_DUPFD, 2));
        if libc::dup2(folder, FOLDER_FD) < 0 || libc::dup2(pipe, PIPE_FD) < 0 {
            libc::_exit(1);
        }
        let first = PIPE_FD + 1;
        if libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) < 0 {
            for fd in first..DESCRIPTORS_MAX {
                libc::close(fd);
            }
        }
        let mut byte = 0_u8;
        // Nothing is ever written: the read returns when the other end is closed. No signal
        // interrupts it.
        libc::read(PIPE_FD, (&raw mut byte).cast(), 1);
        let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE_NS };
        for _ in 0..ATTEMPTS_MAX {
            let is_busy = libc::unlinkat(FOLDER_FD, name.as_ptr(), libc::AT_REMOVEDIR) < 0
                && *libc::__errno_location() == libc::EBUSY;
            if !is_busy {
                libc::_exit(0);
            }
            libc::nanosleep(&pause, core::ptr::null_mut());
        }
        libc::_exit(1)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{format, fs};

    use super::*;

    #[test]
    fn a_folder_is_removed_when_it_is_let_go() {
        let dir = std::env::temp_dir().join(format!("trackway-afterwards-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).expect("a folder");
        let path = std::ffi::CString::new(dir.to_str().expect("a path")).expect("no NUL");
        let open = Fd::open(&path, libc::O_RDONLY | libc::O_DIRECTORY, 0).expect("it is there");
        let afterwards = FolderRemover::spawn(&open, c"inner").expect("a process");
        let name = fs::read_to_string(format!("/proc/{}/comm", afterwards.pid));
        // The helper has hardly begun.
        assert!(name.is_ok_and(|name| !name.is_empty()) && dir.join("inner").exists());
        drop(afterwards);
        assert!(!dir.join("inner").exists());
        fs::remove_dir(&dir).expect("it is empty");
    }
}
