//! The exit status of processes that are no children of this one: from the kernel, by pidfd.
//!
//! Since Linux 6.15 a pidfd that was open when its process ended keeps the exit status for as long
//! as it is open (PIDFD_GET_INFO with PIDFD_INFO_EXIT, include/uapi/linux/pidfd.h). The kernel
//! stores the status when the parent collects the process. Until then the process is a zombie,
//! which /proc still shows, exit status included, to processes that could trace it
//! (proc_pid_stat(5)).

use core::ffi::CStr;

use super::{Stat, format_decimal, read_text};
use crate::Errno;
use crate::file::{self, Fd};
use crate::wait;

/// The exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// The process called exit with this status.
    Exited(u8),
    /// A signal ended the process.
    Killed {
        /// The signal's number.
        signal: i32,
        /// True if the memory was written to a core file, or given to a core handler.
        dumped_core: bool,
    },
}

impl ExitStatus {
    /// Decodes a status as wait(2) gives it for a process that has ended.
    pub const fn from_wait(status: i32) -> Self {
        match libc::WTERMSIG(status) {
            0 => Self::Exited(libc::WEXITSTATUS(status) as u8),
            signal => Self::Killed { signal, dumped_core: libc::WCOREDUMP(status) },
        }
    }
}

/// First published form of `struct pidfd_info`: the kernel takes any length from this one on.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    /// The requested fields; then those that were returned.
    mask: u64,
    cgroup_id: u64,
    /// Process id in the caller's namespace; 0 once the process was collected.
    pid: u32,
    /// Group id, parent's id, and eight ids of user and group.
    rest: [u32; 10],
    /// Exit status, as wait(2) gives it.
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

/// Bit of the mask: the exit status.
const PIDFD_INFO_EXIT: u64 = 1 << 3;
/// `_IOWR(0xff, 11, struct pidfd_info)`; the encoding is the same on all processors that we run on
/// (asm-generic/ioctl.h).
const PIDFD_GET_INFO: u32 = 3 << 30 | (size_of::<PidfdInfo>() as u32) << 16 | 0xff << 8 | 11;

fn query_pidfd_info(fd: &Fd) -> Result<PidfdInfo, Errno> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: `info` is ours, and as long as the request's number says.
    let result = unsafe { libc::ioctl(fd.raw(), PIDFD_GET_INFO as _, &raw mut info) };
    Errno::check(result.into()).map(|_| info)
}

/// Returns the exit status of a pidfd's process ([`wait::open_process_fd`]), even if it is not our
/// child. The descriptor must have been opened before the process was collected by its parent.
/// Neither waits nor collects. Async-signal-safe.
///
/// Returns `None` while the process runs. Returns `None` also after its end, when the descriptor is
/// readable, while its parent has not collected it and /proc does not show it: try again later.
///
/// # Errors
///
/// Fails if the kernel cannot tell: ENOTTY before Linux 6.13; ESRCH before 6.15 for a collected
/// process ([`can_query_exits`] detects that beforehand); EREMOTE for a process that is not in our
/// process-id namespace or one below; any error of a sandbox.
pub fn exit_status_of(fd: &Fd) -> Result<Option<ExitStatus>, Errno> {
    let first = query_pidfd_info(fd)?;
    if let Some(status) = first.status() {
        return Ok(Some(status));
    }
    // A first thread that ended is a zombie, too, while other threads live; then the descriptor is
    // not readable.
    if !wait::wait_readable([Some(fd), None], 0)?[0] {
        return Ok(None);
    }
    let shown = zombie_status(first.pid);
    // If the process was collected meanwhile, its id and the status shown may be another process's.
    match query_pidfd_info(fd)?.status() {
        Some(status) => Ok(Some(status)),
        None => Ok(shown),
    }
}

impl PidfdInfo {
    fn status(&self) -> Option<ExitStatus> {
        (self.mask & PIDFD_INFO_EXIT != 0).then(|| ExitStatus::from_wait(self.exit_code))
    }
}

/// Returns the status in /proc of a process that has ended and was not collected yet, if this
/// process may read it.
fn zombie_status(pid: u32) -> Option<ExitStatus> {
    let (mut path, mut text) = ([0; PATH_BYTES], [0; 1024]);
    let text = read_text(path_of(pid, b"/stat\0", &mut path)?, &mut text).ok()?;
    let stat = Stat::parse(text).filter(|stat| stat.state == b'Z')?;
    // /proc shows a zero, and no namespaces, to a process that may not trace this one.
    let namespace = path_of(pid, b"/ns/pid\0", &mut path)?;
    let is_shown = stat.exit_code != 0 || file::status_of(namespace).is_ok();
    is_shown.then(|| ExitStatus::from_wait(stat.exit_code))
}

/// "/proc/", ten digits, "/ns/pid" and a NUL, with some room.
const PATH_BYTES: usize = 32;

/// Writes the path of `name` (with its NUL) in the process's folder of /proc.
fn path_of<'into>(pid: u32, name: &[u8], into: &'into mut [u8; PATH_BYTES]) -> Option<&'into CStr> {
    let mut digits = [0; 10];
    let mut at = 0;
    for part in [b"/proc/", format_decimal(pid, &mut digits), name] {
        into.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    CStr::from_bytes_until_nul(into).ok()
}

/// Returns true if [`exit_status_of`] works for every process (Linux 6.15). Tests that with a child
/// that ends at once and sends no signal. Takes as long as a fork: call it once.
pub fn can_query_exits() -> bool {
    /// Status with which the child ends.
    const STATUS: u8 = 42;
    let mut fd = -1_i32;
    // No SIGCHLD at the child's end: the program may count its own children.
    let flags = libc::CLONE_PIDFD;
    // SAFETY: without CLONE_VM the child has memory of its own and goes on here, on a copy of this
    // stack, as after fork(2). It calls nothing but _exit, which is async-signal-safe. The kernel
    // writes the descriptor to `fd`.
    let child = unsafe {
        let null = core::ptr::null_mut::<libc::c_void>();
        let child = libc::syscall(libc::SYS_clone, flags, null, &raw mut fd, null, null);
        if child == 0 {
            libc::_exit(STATUS.into());
        }
        child
    };
    if child < 0 {
        return false;
    }
    let fd = Fd::adopt(fd);
    // SAFETY: the child is ours. Children that send no signal are waited for by __WALL.
    let collect = || unsafe { libc::waitpid(child as i32, core::ptr::null_mut(), libc::__WALL) };
    while Errno::check(collect().into()) == Err(Errno(libc::EINTR)) {}
    // Without `exit_status_of`: /proc might answer instead of the kernel.
    query_pidfd_info(&fd).is_ok_and(|info| info.status() == Some(ExitStatus::Exited(STATUS)))
}

#[cfg(test)]
mod tests {
    use trackway_testkit::report_skipped;

    use super::*;

    /// Longest wait for something that must happen, ns.
    const PATIENCE_NS: u64 = 20_000_000_000;

    #[test]
    fn statuses_are_those_of_wait() {
        let killed = |signal, dumped_core| ExitStatus::Killed { signal, dumped_core };
        assert_eq!(ExitStatus::from_wait(0), ExitStatus::Exited(0));
        assert_eq!(ExitStatus::from_wait(0xff00), ExitStatus::Exited(255));
        assert_eq!(ExitStatus::from_wait(libc::SIGKILL), killed(libc::SIGKILL, false));
        assert_eq!(ExitStatus::from_wait(libc::SIGSEGV | 0x80), killed(libc::SIGSEGV, true));
    }

    fn make_pipe() -> [Fd; 2] {
        let mut fds = [-1; 2];
        // SAFETY: the array has room for both.
        assert_eq!(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        fds.map(Fd::adopt)
    }

    fn write_word(to: &Fd, word: u32) {
        // SAFETY: the bytes are ours.
        unsafe { libc::write(to.raw(), (&raw const word).cast(), 4) };
    }

    /// Reads the next word; returns 0 if the other end is closed.
    fn read_word(from: &Fd) -> u32 {
        let mut word = 0_u32;
        // SAFETY: the bytes are ours.
        let read = unsafe { libc::read(from.raw(), (&raw mut word).cast(), 4) };
        if read == 4 { word } else { 0 }
    }

    /// A grandchild process: its own parent collects it on request.
    struct Grandchild {
        parent: i32,
        to_parent: Fd,
        to_itself: Fd,
        fd: Fd,
    }

    impl Grandchild {
        /// Starts a grandchild that calls `end` on request.
        fn new(end: fn()) -> Self {
            let ([heard, says], [parent_hears, to_parent], [hears, to_itself]) =
                (make_pipe(), make_pipe(), make_pipe());
            // SAFETY: both children call only what is async-signal-safe, and end with `_exit`, or
            // with the test.
            let parent = unsafe {
                let parent = libc::fork();
                if parent == 0 {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    let child = libc::fork();
                    if child == 0 {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
                        read_word(&hears);
                        end();
                        libc::_exit(77);
                    }
                    write_word(&says, child.cast_unsigned());
                    read_word(&parent_hears);
                    libc::waitpid(child, core::ptr::null_mut(), 0);
                    libc::_exit(0);
                }
                parent
            };
            let fd = wait::open_process_fd(read_word(&heard)).expect("a descriptor");
            Self { parent, to_parent, to_itself, fd }
        }

        /// Ends the grandchild; waits until its descriptor is readable.
        fn end(&self) {
            write_word(&self.to_itself, 1);
            assert_eq!(wait::wait_readable([Some(&self.fd), None], PATIENCE_NS), Ok([true, false]));
        }

        /// Makes the parent collect the grandchild; waits until that is done.
        fn collect(&self) {
            write_word(&self.to_parent, 1);
            let mut status = -1;
            // SAFETY: it is our child.
            unsafe { libc::waitpid(self.parent, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
    }

    impl Drop for Grandchild {
        fn drop(&mut self) {
            // SAFETY: it is our child, or was collected; then it is left alone, since its id may
            // be another's.
            unsafe {
                if libc::waitpid(self.parent, core::ptr::null_mut(), libc::WNOHANG) == 0 {
                    libc::kill(self.parent, libc::SIGKILL);
                    libc::waitpid(self.parent, core::ptr::null_mut(), 0);
                }
            }
        }
    }

    fn exit_3() {
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(3) };
    }

    fn exit_0() {
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(0) };
    }

    fn crash_child() {
        // SAFETY: the signal's action is made the default one again, and it is raised.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::raise(libc::SIGSEGV);
        }
    }

    extern "C" fn crash_in_thread(_: *mut libc::c_void) -> *mut libc::c_void {
        while Stat::of(own_pid(), own_pid()).is_ok_and(|stat| stat.state != b'Z') {
            crate::clock::sleep_ns(1_000_000);
        }
        crash_child();
        core::ptr::null_mut()
    }

    fn own_pid() -> u32 {
        // SAFETY: getpid has no preconditions.
        unsafe { libc::getpid() }.cast_unsigned()
    }

    /// Ends the first thread with status 9; then another thread crashes.
    fn crash_in_other_thread() {
        // SAFETY: the thread runs no code of the test's harness; the calling one ends.
        unsafe {
            let mut thread = core::mem::zeroed();
            let null = core::ptr::null_mut();
            libc::pthread_create(&raw mut thread, core::ptr::null(), crash_in_thread, null);
            libc::syscall(libc::SYS_exit, 9);
        }
    }

    const CRASHED: ExitStatus = ExitStatus::Killed { signal: libc::SIGSEGV, dumped_core: false };

    /// Asserts that the probe's child was collected. Those of other tests send a signal when they
    /// end, and are no such children (__WCLONE).
    fn probe_left_nothing() {
        // SAFETY: nothing is collected (WNOWAIT), no memory of ours is involved.
        let result = unsafe {
            let null = core::ptr::null_mut();
            let flags = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG | libc::__WCLONE;
            libc::waitid(libc::P_ALL, 0, null, flags)
        };
        assert_eq!(Errno::check(result.into()), Err(Errno(libc::ECHILD)));
    }

    #[test]
    fn everybody_who_holds_a_pidfd_learns_how_a_process_ended() {
        let can_tell = can_query_exits();
        probe_left_nothing();
        if !can_tell {
            report_skipped("this kernel does not keep exit statuses in pidfds");
            return;
        }
        let ends = [
            (exit_3 as fn(), ExitStatus::Exited(3)),
            (exit_0, ExitStatus::Exited(0)),
            (crash_child, CRASHED),
            (crash_in_other_thread, CRASHED),
        ];
        for (end, status) in ends {
            let process = Grandchild::new(end);
            assert_eq!(exit_status_of(&process.fd), Ok(None), "it runs");
            process.end();
            assert_eq!(
                exit_status_of(&process.fd),
                Ok(Some(status)),
                "its parent has not asked yet"
            );
            process.collect();
            assert_eq!(exit_status_of(&process.fd), Ok(Some(status)), "its parent has asked");
            assert_eq!(exit_status_of(&process.fd), Ok(Some(status)), "nothing is taken away");
        }
    }

    #[test]
    fn what_is_no_pidfd_is_an_error() {
        let [reads, _writes] = make_pipe();
        assert!(exit_status_of(&reads).is_err());
    }
}
