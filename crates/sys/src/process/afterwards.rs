//! A process that does one thing when this one has ended, however it did: it removes a folder, as
//! the user that this one was.
//!
//! It is a fork that runs no program and that no signal but SIGKILL reaches. It has no descriptors
//! but those it needs, so that no process waits for it, and after fork(2) it does what a process
//! with several threads may do then: system calls.

use core::ffi::CStr;

use crate::Errno;
use crate::file::Fd;

/// Number of attempts to remove a busy folder, and the time between two, in ns: the kernel closes
/// the descriptors of a killed process one by one.
const ATTEMPTS_MAX: u32 = 500;
const PAUSE_NS: i64 = 10_000_000;
/// Numbers of its two descriptors, so that all others can be closed.
const FOLDER_FD: i32 = 0;
const PIPE_FD: i32 = 1;
/// Most descriptors that are closed one by one, where close_range(2) is not known.
const DESCRIPTORS_MAX: i32 = 1 << 16;

/// The other process. When this goes, by whatever way, the folder is removed.
#[derive(Debug)]
pub struct FolderRemover {
    /// The end of a pipe that no other process has.
    pipe: Option<Fd>,
    pid: i32,
}

impl FolderRemover {
    /// Will remove the empty folder `name` that is in `folder`, which is open.
    ///
    /// # Errors
    ///
    /// If there is no process to be had.
    pub fn spawn(folder: &Fd, name: &CStr) -> Result<Self, Errno> {
        let mut ends = [0; 2];
        // SAFETY: two descriptors, as pipe2(2) wants them.
        Errno::check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }.into())?;
        let (read, held) = (Fd::adopt(ends[0]), Fd::adopt(ends[1]));
        // All signals wait: none may find a handler of ours there.
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
            // SAFETY: as above.
            unsafe { wait_and_remove(read.raw(), folder.raw(), name) }
        }
        let forked = Errno::check(pid.into());
        // SAFETY: the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
        forked.map(|_| Self { pipe: Some(held), pid })
    }
}

impl Drop for FolderRemover {
    /// Lets it go on, and waits for it: a moment, and at most as long as it tries.
    fn drop(&mut self) {
        drop(self.pipe.take());
        // Our own child; again where a signal came in between, which it may so often.
        for _ in 0..ATTEMPTS_MAX {
            // SAFETY: nothing is written.
            let ended = unsafe { libc::waitpid(self.pid, core::ptr::null_mut(), 0) };
            if Errno::check(ended.into()) != Err(Errno(libc::EINTR)) {
                return;
            }
        }
    }
}

/// Runs in the other process.
///
/// # Safety
/// To be called in a child of fork(2): it closes all descriptors, and does not return.
unsafe fn wait_and_remove(pipe: i32, folder: i32, name: &CStr) -> ! {
    // SAFETY: system calls on descriptors that are this process's alone, and on memory that lives.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"trackway-after".as_ptr(), 0, 0, 0);
        libc::chdir(c"/".as_ptr());
        // Neither may be where the other is to be put.
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
        // Nothing is ever written: it returns at the other end's end. No signal comes in between.
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
        // It has hardly begun.
        assert!(name.is_ok_and(|name| !name.is_empty()) && dir.join("inner").exists());
        drop(afterwards);
        assert!(!dir.join("inner").exists());
        fs::remove_dir(&dir).expect("it is empty");
    }
}
