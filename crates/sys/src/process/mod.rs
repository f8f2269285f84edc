//! Processes: the identity of this one, the life and the exit status of others.

mod afterwards;
mod exit;

pub use afterwards::FolderRemover;
pub use exit::{ExitStatus, can_query_exits, exit_status_of};

use core::ffi::CStr;

use crate::Errno;
use crate::file::{self, Fd};

/// The identity by which others can recognise a process later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Process id in the process's own namespace.
    pub pid: u32,
    /// Inode number of the process-id namespace; 0 if /proc does not show it.
    pub pid_namespace: u64,
    /// CLOCK_BOOTTIME at which the process was certainly running, in ns.
    pub since_ns: u64,
    /// The [`image_id`] of the program that the process runs.
    pub image: u64,
}

/// Returns the identity of the calling process, a fork child that knows its parent's identity, by
/// system calls that no sandbox forbids (getpid, getppid). The namespace is the parent's if that
/// process is still the parent; else unknown (0), so that no code draws conclusions.
pub fn identity_after_fork(parent_pid: u32, parent_pid_namespace: u64) -> Identity {
    // SAFETY: getppid has no preconditions.
    let same_namespace = unsafe { libc::getppid() }.cast_unsigned() == parent_pid;
    Identity {
        // SAFETY: getpid has no preconditions.
        pid: unsafe { libc::getpid() }.cast_unsigned(),
        pid_namespace: if same_namespace { parent_pid_namespace } else { 0 },
        since_ns: crate::clock::boottime_ns(),
        image: image_id(),
    }
}

/// The state of another process, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The process runs (or cannot be proved not to).
    Alive,
    /// The process is proved to have ended.
    Dead,
    /// The process lives in another namespace, or the system refused to tell (no descriptor, no
    /// memory, no right): its life is unknown here.
    Unknown,
}

/// Returns the identity of the calling process.
pub fn current_identity() -> Identity {
    Identity {
        // SAFETY: getpid has no preconditions.
        pid: unsafe { libc::getpid() }.cast_unsigned(),
        pid_namespace: pid_namespace(),
        since_ns: crate::clock::boottime_ns(),
        image: image_id(),
    }
}

/// The real, effective and saved user of the calling thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Users {
    real: u32,
    effective: u32,
    saved: u32,
}

impl Users {
    /// Returns the users of the calling thread: getresuid(2). Async-signal-safe.
    pub fn current() -> Self {
        let mut users = Self { real: 0, effective: 0, saved: 0 };
        // SAFETY: the three words are ours; the call cannot fail otherwise (getresuid(2)).
        unsafe { libc::getresuid(&mut users.real, &mut users.effective, &mut users.saved) };
        users
    }

    /// Returns true if `uid` is one of the three: the process can act as this user.
    pub const fn contain(&self, uid: u32) -> bool {
        self.real == uid || self.effective == uid || self.saved == uid
    }

    /// Returns the effective user.
    pub const fn effective(&self) -> u32 {
        self.effective
    }

    /// Returns the user that the process is for good, if all three users are equal.
    pub fn only(&self) -> Option<u32> {
        (self.real == self.effective && self.effective == self.saved).then_some(self.real)
    }
}

/// Returns the number of user `uid` in the namespace around the calling process's user namespace:
/// `uid` if there is only one. `None`: that namespace does not know the user (yet).
pub fn outer_user(uid: u32) -> Option<u32> {
    let Ok(fd) = Fd::open(c"/proc/self/uid_map", libc::O_RDONLY, 0) else { return Some(uid) };
    let mut text = [0_u8; 1024];
    // SAFETY: `text` is ours, with its length.
    let read = unsafe { libc::read(fd.raw(), text.as_mut_ptr().cast(), text.len()) };
    map_user(&text[..usize::try_from(read).ok()?], uid)
}

/// Looks `uid` up in a map as user_namespaces(7) describes it: lines of first inside, first
/// outside, count.
fn map_user(map: &[u8], uid: u32) -> Option<u32> {
    map.split(|&byte| byte == b'\n').find_map(|line| {
        let mut numbers = line
            .split(|&byte| byte == b' ')
            .filter_map(|word| core::str::from_utf8(word).ok()?.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let place = uid.checked_sub(inside).filter(|&place| place < count)?;
        outside.checked_add(place)
    })
}

/// Writes the path of the calling process's executable into `into`: from the kernel, or, without
/// /proc, as it was given to execve(2) (AT_EXECFN). Returns its length in bytes; 0 if it does not
/// fit.
pub fn write_executable_path(into: &mut [u8]) -> usize {
    const REMOVED: &[u8] = b" (deleted)";
    // SAFETY: the path is a C string, and `into` is ours, with its length.
    let read =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), into.as_mut_ptr().cast(), into.len()) };
    if let Ok(length) = usize::try_from(read) {
        // A path that fills the buffer may have been cut.
        let path = if length < into.len() { &into[..length] } else { &[] };
        return path.strip_suffix(REMOVED).unwrap_or(path).len();
    }
    // SAFETY: AT_EXECFN is the address of a C string that stays for the process's life, or 0.
    let given = unsafe {
        let address = libc::getauxval(libc::AT_EXECFN) as *const core::ffi::c_char;
        if address.is_null() { c"" } else { CStr::from_ptr(address) }
    };
    let path = given.to_bytes();
    into.get_mut(..path.len()).map_or(0, |room| {
        room.copy_from_slice(path);
        path.len()
    })
}

/// Returns the random number of this program's start (AT_RANDOM, getauxval(3)).
pub fn image_id() -> u64 {
    // SAFETY: AT_RANDOM is the address of 16 bytes that stay for the process's life.
    unsafe {
        let bytes = libc::getauxval(libc::AT_RANDOM) as *const u64;
        if bytes.is_null() { 0 } else { bytes.read_unaligned() }
    }
}

/// Returns true if the program was started with more rights than its user has (AT_SECURE,
/// getauxval(3)): then neither its environment nor its user's files can be trusted.
pub fn has_elevated_rights() -> bool {
    // SAFETY: getauxval has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A resource that is limited for each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Address space, in bytes (RLIMIT_AS).
    AddressSpace,
    /// The length of each file, in bytes (RLIMIT_FSIZE).
    FileLength,
}

/// Returns the calling process's limit on a resource; `None`: unlimited (getrlimit(2)).
pub fn limit_of(resource: Resource) -> Option<u64> {
    let number = match resource {
        Resource::AddressSpace => libc::RLIMIT_AS,
        Resource::FileLength => libc::RLIMIT_FSIZE,
    };
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: `limit` is ours; where the call fails, it stays as it is.
    unsafe { libc::getrlimit(number, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the version of the C library, such as "2.36"; `None` if it is not glibc.
pub fn glibc_version() -> Option<&'static str> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it returns a NUL-terminated string that stays.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        version.to_str().ok()
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Restarts all restartable sequences that are under way in this process's threads, with a full
/// memory barrier in each thread (membarrier(2), Linux 5.10).
pub fn restart_sequences() -> Result<(), Errno> {
    let call = |command: libc::c_int| {
        // SAFETY: no memory of ours is involved.
        Errno::check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(|_| ())
    };
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
    call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// Waits until all RCU read-side sections of the kernel that are under way have ended, such as
/// running BPF programs (membarrier(2), Linux 4.16). Refused if CPUs have no ticks (`nohz_full`).
pub fn wait_for_readers_in_kernel() -> Result<(), Errno> {
    let command = libc::MEMBARRIER_CMD_GLOBAL;
    // SAFETY: no memory of ours is involved.
    Errno::check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(|_| ())
}

/// Gives up root's rights for good and continues as user `uid` in group `gid`, with the groups of
/// the user named `name`. Must be called while there is one thread.
///
/// Other processes of that user cannot inspect this one, trace it, or take its descriptors
/// (PR_SET_DUMPABLE(2const), ptrace(2), pidfd_getfd(2)), some of which only root can open:
/// [`make_dumpable`] ends that.
pub fn become_user(uid: u32, gid: u32, name: &CStr) -> Result<(), Errno> {
    // SAFETY: `name` is NUL-terminated; the calls touch no memory of ours.
    unsafe {
        Errno::check(libc::initgroups(name.as_ptr(), gid).into())?;
        Errno::check(libc::setresgid(gid, gid, gid).into())?;
        Errno::check(libc::setresuid(uid, uid, uid).into())?;
        // The kernel does so by itself, unless fs.suid_dumpable changes that.
        Errno::check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).into())?;
    }
    Ok(())
}

/// Allows other processes of the same user to inspect this one again.
pub fn make_dumpable() -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { Errno::check(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into())? };
    Ok(())
}

/// Raises the limit on this process's descriptors (RLIMIT_NOFILE): the soft limit becomes the hard
/// limit. Returns the old soft limit.
pub fn raise_descriptor_limit() -> Result<u64, Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    unsafe {
        Errno::check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit).into())?;
    }
    let before = limit.rlim_cur;
    set_descriptor_limit(limit.rlim_max).map(|()| before)
}

/// Closes descriptors in another process after they are closed here: for descriptors whose last
/// close takes seconds. That process has nothing else open, and no process waits for it.
/// `descriptors` are in ascending order, and none is 0. The caller must still close them, and then
/// the returned descriptor.
///
/// # Errors
///
/// Fails if no such process can be made.
pub fn close_in_child(descriptors: &[i32]) -> Result<Fd, Errno> {
    let mut pipe = [0; 2];
    // SAFETY: there is room for both ends.
    unsafe { Errno::check(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC).into())? };
    let [theirs, ours] = pipe.map(Fd::adopt);
    // SAFETY: the child calls only async-signal-safe functions (signal-safety(7)), and reads no
    // memory of ours but the list.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: this is the child of fork(2).
        unsafe { close_as_child(descriptors, theirs.raw()) }
    }
    let child = Errno::check(child.into())? as i32;
    // SAFETY: our child ends at once: then it has closed everything else that was open.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    Ok(ours)
}

/// Runs in the child: makes a child of its own, for which no process waits. That process closes
/// `descriptors` once the other end of `ended` is closed.
///
/// # Safety
///
/// Must be called in a child of fork(2).
unsafe fn close_as_child(descriptors: &[i32], ended: i32) -> ! {
    let close = |first: i32, last: i32| {
        if first <= last {
            // SAFETY: descriptors of the child's own; no memory.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    // SAFETY: no memory of ours is touched but a local byte.
    unsafe {
        libc::dup2(ended, 0);
        let mut first = 1;
        for &descriptor in descriptors {
            close(first, descriptor - 1);
            first = descriptor + 1;
        }
        close(first, i32::MAX);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"trackway-detach".as_ptr(), 0, 0, 0);
        if libc::fork() == 0 {
            let mut byte = 0_u8;
            // A signal that ends this process only closes the descriptors earlier.
            libc::read(0, (&raw mut byte).cast(), 1);
        }
        libc::_exit(0)
    }
}

/// Returns the soft limit on open descriptors of this process.
pub fn descriptor_limit() -> Result<u64, Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    Errno::check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }.into())?;
    Ok(limit.rlim_cur)
}

/// Sets the soft limit on descriptors, at most to the hard limit. Open descriptors stay open.
pub fn set_descriptor_limit(soft: u64) -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    unsafe {
        Errno::check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit).into())?;
        limit.rlim_cur = soft;
        Errno::check(libc::setrlimit(libc::RLIMIT_NOFILE, &limit).into()).map(|_| ())
    }
}

/// Returns the inode number of the calling process's process-id namespace; 0: unknown.
pub fn pid_namespace() -> u64 {
    file::status_of(c"/proc/self/ns/pid").map_or(0, |status| status.inode)
}

/// Returns the life of the process `identity`, or of its thread `tid` (0: any thread).
///
/// A process is dead if its id does not exist, or belongs to a process that started later. Zombies
/// count as dead: they execute nothing.
pub fn life_of(identity: &Identity, tid: u32) -> Life {
    if identity.pid_namespace == 0 || identity.pid_namespace != pid_namespace() {
        return Life::Unknown;
    }
    let thread = if tid == 0 { identity.pid } else { tid };
    let stat = match Stat::of(identity.pid, thread) {
        Ok(stat) => stat,
        Err(Errno(libc::ENOENT | libc::ESRCH)) => return Life::Dead,
        Err(_) => return Life::Unknown,
    };
    // A first thread that ended (pthread_exit) is a zombie as long as the others live.
    let others_live = tid == 0 && stat.threads > 1;
    // Start times count in ticks of 10 ms, rounded down: a later one is a later process.
    let is_another = tid == 0 && stat.start_ns > identity.since_ns;
    if (stat.exiting || matches!(stat.state, b'Z' | b'X')) && !others_live || is_another {
        Life::Dead
    } else {
        Life::Alive
    }
}

/// Flag of a thread that is exiting (PF_EXITING, linux/sched.h).
const PF_EXITING: u64 = 4;

/// The fields of proc_pid_stat(5) of a thread that are used here.
struct Stat {
    /// Letter of the thread's state.
    state: u8,
    /// True if the thread is exiting in the kernel: none of its own code runs any more.
    exiting: bool,
    /// Number of the process's threads that the kernel still has, this one included.
    threads: u32,
    /// Start time, ns, CLOCK_BOOTTIME, rounded down to a tick.
    start_ns: u64,
    /// Exit status of a thread that has ended, as wait(2) gives it; 0 also if this process may not
    /// read it.
    exit_code: i32,
}

impl Stat {
    /// Reads thread `tid` of process `pid`; ENOENT or ESRCH: /proc shows no such thread.
    fn of(pid: u32, tid: u32) -> Result<Self, Errno> {
        let mut text = [0_u8; 1024];
        Self::parse(read_stat(pid, tid, &mut text)?).ok_or(Errno(libc::EBADMSG))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let number = |field: &[u8]| core::str::from_utf8(field).ok()?.parse::<u64>().ok();
        // The name may hold anything, also spaces and parentheses: fields count from the last one.
        let after_name = text.iter().rposition(|&byte| byte == b')')? + 2;
        let mut fields = text.get(after_name..)?.split(|&byte| byte == b' ');
        let state = *fields.next()?.first()?; // field 3
        let exiting = number(fields.nth(5)?)? & PF_EXITING != 0; // field 9
        let threads = u32::try_from(number(fields.nth(10)?)?).ok()?; // field 20
        let ticks = number(fields.nth(1)?)?; // field 22
        // Field 52. The other fields are valid without it.
        let exit_code = fields.nth(29).and_then(|field| number(field.trim_ascii_end()));
        let exit_code = exit_code.unwrap_or_default() as i32;
        // SAFETY: sysconf has no preconditions.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
        let start_ns = ticks * (1_000_000_000 / ticks_per_second);
        Some(Self { state, exiting, threads, start_ns, exit_code })
    }
}

/// Reads the text of /proc/PID/task/TID/stat.
fn read_stat(pid: u32, tid: u32, text: &mut [u8; 1024]) -> Result<&[u8], Errno> {
    let mut path = [0_u8; 64];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        path[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    let mut digits = [0_u8; 10];
    put(b"/proc/");
    put(format_decimal(pid, &mut digits));
    put(b"/task/");
    put(format_decimal(tid, &mut digits));
    put(b"/stat\0");
    let path = CStr::from_bytes_until_nul(&path).map_err(|_| Errno(libc::ENAMETOOLONG))?;
    read_text(path, text)
}

/// Reads the first bytes of a file of /proc.
fn read_text<'text>(path: &CStr, text: &'text mut [u8; 1024]) -> Result<&'text [u8], Errno> {
    let fd = Fd::open(path, libc::O_RDONLY, 0)?;
    // SAFETY: `text` is ours, with its length.
    let read = unsafe { libc::read(fd.raw(), text.as_mut_ptr().cast(), text.len()) };
    let bytes = Errno::check(read as i64)? as usize;
    Ok(&text[..bytes.min(text.len())])
}

/// Formats `value` in decimal, at the end of `digits`.
fn format_decimal(value: u32, digits: &mut [u8; 10]) -> &[u8] {
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

/// The process at the other end of a Unix socket: SO_PEERCRED of unix(7), as it was when it
/// connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Process id; 0: the process is not visible here.
    pub pid: u32,
    /// Effective user.
    pub user: u32,
}

/// Returns the process at the other end of the Unix socket `fd`.
pub fn socket_peer(fd: i32) -> Result<Peer, Errno> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, of which `found` has the size.
    let result = unsafe {
        let into = (&raw mut found).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, into, &mut bytes)
    };
    Errno::check(result.into())?;
    Ok(Peer { pid: found.pid.cast_unsigned(), user: found.uid })
}

/// Leaves the terminal and its signals: setsid(2). Refused if the process leads a group.
pub fn leave_terminal() -> Result<(), Errno> {
    // SAFETY: setsid has no preconditions.
    Errno::check(unsafe { libc::setsid() }.into()).map(|_| ())
}

/// Keeps all descriptors of this process but its standard ones from the programs that it starts:
/// close_range(2) with CLOSE_RANGE_CLOEXEC, which Linux has since 5.11.
pub fn close_descriptors_on_exec() -> Result<(), Errno> {
    let (first, last, flags) = (3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    // SAFETY: no memory of ours is involved, and no descriptor is closed in this process.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    Errno::check(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closed_elsewhere_is_closed_once_it_is_closed_here() {
        let mut pipe = [0; 2];
        // SAFETY: there is room for both ends.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        let [reader, writer] = pipe.map(Fd::adopt);
        let until_closed = close_in_child(&[writer.raw()]).expect("a process");
        drop(writer);
        let mut ready = libc::pollfd { fd: reader.raw(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, ours.
        let mut has_ended = |ms| unsafe { libc::poll(&mut ready, 1, ms) } == 1;
        assert!(!has_ended(0), "somebody has it");
        drop(until_closed);
        assert!(has_ended(60_000), "nobody has it");
    }

    #[test]
    fn users_are_looked_up_in_maps() {
        let initial = b"         0          0 4294967295\n";
        assert_eq!((map_user(initial, 0), map_user(initial, 1000)), (Some(0), Some(1000)));
        let rootless = b"         0       1000          1\n         1     100000      65536\n";
        assert_eq!(map_user(rootless, 0), Some(1000));
        assert_eq!(
            (map_user(rootless, 1), map_user(rootless, 65536)),
            (Some(100_000), Some(165_535))
        );
        assert_eq!((map_user(rootless, 65537), map_user(b"", 0)), (None, None));
        assert_eq!(map_user(b"0 4294967295 2\n", 1), None, "no such number");
    }

    #[test]
    fn the_executable_is_known_if_there_is_room() {
        extern crate std;
        use std::os::unix::ffi::OsStrExt;
        let mut path = [0; 4096];
        let length = write_executable_path(&mut path);
        let expected = std::env::current_exe().expect("it");
        assert_eq!(&path[..length], expected.as_os_str().as_bytes());
        assert_eq!(write_executable_path(&mut path[..length]), 0, "it may have been cut");
    }

    #[test]
    fn nobody_is_dead_because_we_may_not_look() {
        let me = current_identity();
        let gone = Identity { pid: 0x3f_fff1, ..me };
        assert_eq!((life_of(&me, 0), life_of(&gone, 0)), (Life::Alive, Life::Dead));
        // SAFETY: the child lowers its own limit, looks, and ends; it allocates nothing.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                // Reading the namespace needs no descriptor; reading the thread's state needs one.
                let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                libc::_exit(i32::from(life_of(&me, 0) == Life::Dead));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0, "the parent is alive, and no descriptor is left to see it");
    }

    extern "C" fn sleep_for_good(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: pause has no preconditions.
            unsafe { libc::pause() };
        }
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_alive_until_the_others_end() {
        // SAFETY: the child makes a thread and ends its own; it runs no code of the test's
        // harness. The parent kills and reaps it.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let mut thread = core::mem::zeroed();
                let null = core::ptr::null_mut();
                libc::pthread_create(&raw mut thread, core::ptr::null(), sleep_for_good, null);
                libc::syscall(libc::SYS_exit, 0);
            }
            child.cast_unsigned()
        };
        let who = Identity {
            pid: child,
            pid_namespace: pid_namespace(),
            since_ns: crate::clock::boottime_ns(),
            image: 0,
        };
        let state = || Stat::of(child, child).map(|stat| stat.state);
        while state() != Ok(b'Z') {
            assert!(state().is_ok());
            crate::clock::sleep_ns(1_000_000);
        }
        let (process, thread) = (life_of(&who, 0), life_of(&who, child));
        // SAFETY: the child is ours and not reaped yet.
        unsafe {
            libc::kill(child.cast_signed(), libc::SIGKILL);
            libc::waitpid(child.cast_signed(), core::ptr::null_mut(), 0);
        }
        assert_eq!((process, thread), (Life::Alive, Life::Dead));
        assert_eq!(life_of(&who, 0), Life::Dead);
    }
}
