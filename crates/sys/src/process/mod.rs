//! Processes: who am I, who is alive, how others ended.

mod afterwards;
mod exit;

pub use afterwards::FolderRemover;
pub use exit::{ExitStatus, can_query_exits, exit_status_of};

use core::ffi::CStr;

use crate::Errno;
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
    /// The [`image_id`] of the program that it runs.
    pub image: u64,
}

/// Returns the identity of the calling process, a fork child that knows its parent's identity, by
/// system calls that no sandbox forbids (getpid, getppid). Its namespace is its parent's if that is
/// still its parent; else unknown (0), so that no code draws conclusions.
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
    /// It runs (or cannot be proved not to).
    Alive,
    /// It is proved to have ended.
    Dead,
    /// It lives in another namespace, or the system refused to tell (no descriptor, no memory,
    /// no right): nothing can be said from here.
    Unknown,
}

/// The calling process.
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
    /// getresuid(2). Async-signal-safe.
    pub fn current() -> Self {
        let mut users = Self { real: 0, effective: 0, saved: 0 };
        // SAFETY: the three words are ours; the call cannot fail otherwise (getresuid(2)).
        unsafe { libc::getresuid(&mut users.real, &mut users.effective, &mut users.saved) };
        users
    }

    /// Returns true if `uid` is one of them: the process can act as this user.
    pub const fn contain(&self, uid: u32) -> bool {
        self.real == uid || self.effective == uid || self.saved == uid
    }

    /// The effective one.
    pub const fn effective(&self) -> u32 {
        self.effective
    }

    /// The one user that the process is for good, if it is.
    pub fn only(&self) -> Option<u32> {
        (self.real == self.effective && self.effective == self.saved).then_some(self.real)
    }
}

/// The number that user `uid` of the calling process's user namespace has in the namespace around
/// it: the same where there is only one. `None`: the namespace does not know the user (yet).
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

/// Writes the path of the calling process's executable into `into`: as the kernel knows it, or,
/// where there is no /proc, as it was given to execve(2) (AT_EXECFN). How long it is, in bytes; 0
/// where it has no room.
pub fn write_executable_path(into: &mut [u8]) -> usize {
    const REMOVED: &[u8] = b" (deleted)";
    // SAFETY: the path is a C string, and `into` is ours, with its length.
    let read =
        unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), into.as_mut_ptr().cast(), into.len()) };
    if let Ok(length) = usize::try_from(read) {
        // What fills the room may have been cut.
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

/// Random number that the kernel gave this program when it was started (AT_RANDOM, getauxval(3)).
pub fn image_id() -> u64 {
    // SAFETY: AT_RANDOM is the address of 16 bytes that stay for the process's life.
    unsafe {
        let bytes = libc::getauxval(libc::AT_RANDOM) as *const u64;
        if bytes.is_null() { 0 } else { bytes.read_unaligned() }
    }
}

/// Returns true if the program was started with more rights than its user has (AT_SECURE,
/// getauxval(3)): then neither its environment nor its user's files are to be believed.
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

/// Version of the C library in this process, as "2.36"; `None` if it is not glibc.
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

/// Restarts all restartable sequences of this process's threads that are under way, and orders what
/// its threads did before against what they do afterwards (membarrier(2), Linux 5.10).
pub fn restart_sequences() -> Result<(), Errno> {
    let call = |command: libc::c_int| {
        // SAFETY: no memory of ours is involved.
        Errno::check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(|_| ())
    };
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
    call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// Waits until whatever of the kernel was in a read-side section of RCU's is out of it, as BPF
/// programs are while they run (membarrier(2), Linux 4.16). Refused where CPUs have no ticks
/// (`nohz_full`).
pub fn wait_for_readers_in_kernel() -> Result<(), Errno> {
    let command = libc::MEMBARRIER_CMD_GLOBAL;
    // SAFETY: no memory of ours is involved.
    Errno::check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(|_| ())
}

/// Gives root's rights up for good and goes on as user `uid` in group `gid`, with the groups of
/// the user named `name`. To be called while there is one thread.
///
/// Other processes of that user cannot look into this one, trace it, or take its descriptors
/// (PR_SET_DUMPABLE(2const), ptrace(2), pidfd_getfd(2)), which may be such as only root opens:
/// [`make_dumpable`] ends that.
pub fn become_user(uid: u32, gid: u32, name: &CStr) -> Result<(), Errno> {
    // SAFETY: `name` is NUL-terminated; the calls touch no memory of ours.
    unsafe {
        Errno::check(libc::initgroups(name.as_ptr(), gid).into())?;
        Errno::check(libc::setresgid(gid, gid, gid).into())?;
        Errno::check(libc::setresuid(uid, uid, uid).into())?;
        // So the kernel does by itself, unless it is told otherwise (fs.suid_dumpable).
        Errno::check(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0).into())?;
    }
    Ok(())
}

/// Lets other processes of its user look into this one again.
pub fn make_dumpable() -> Result<(), Errno> {
    // SAFETY: no memory is involved.
    unsafe { Errno::check(libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0).into())? };
    Ok(())
}

/// Lets this process have as many descriptors as it may (RLIMIT_NOFILE): the soft limit becomes the
/// hard one. What it was.
pub fn raise_descriptor_limit() -> Result<u64, Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    unsafe {
        Errno::check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit).into())?;
    }
    let before = limit.rlim_cur;
    set_descriptor_limit(limit.rlim_max).map(|()| before)
}

/// Closes descriptors in another process, once they are closed here: for such as take seconds to
/// close, the last time. That process has nothing else open, and no process waits for it.
/// `descriptors` are in ascending order, and none is 0. The caller still has to close them, and
/// then the returned descriptor.
///
/// # Errors
///
/// If there can be no such process.
pub fn close_in_child(descriptors: &[i32]) -> Result<Fd, Errno> {
    let mut pipe = [0; 2];
    // SAFETY: there is room for both ends.
    unsafe { Errno::check(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC).into())? };
    let [theirs, ours] = pipe.map(Fd::adopt);
    // SAFETY: the child calls what may be called there (signal-safety(7)), and looks at nothing of
    // ours but the list.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { close_as_child(descriptors, theirs.raw()) }
    }
    let child = Errno::check(child.into())? as i32;
    // SAFETY: it is our child, which ends at once: then it has let go of all else that was open.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    Ok(ours)
}

/// Runs in the child: leaves it to a child of its own, which no process waits for, to close
/// `descriptors` once the other end of `ended` is closed.
///
/// # Safety
///
/// For a child of fork(2).
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
            // A signal that ends it makes it close them: a moment sooner.
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

/// Inode number of the calling process's process-id namespace; 0 where /proc does not tell.
pub fn pid_namespace() -> u64 {
    file::status_of(c"/proc/self/ns/pid").map_or(0, |status| status.inode)
}

/// Returns whether the process `identity`, or its thread `tid` (0: any), still runs.
///
/// A process is dead if its id is not there, or belongs to one that started later. Zombies count
/// as dead: they execute nothing.
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
    /// Its state's letter.
    state: u8,
    /// It is on its way out, in the kernel: nothing of its own runs any more.
    exiting: bool,
    /// Threads of its process that the kernel still has, this one included.
    threads: u32,
    /// Start time, ns, CLOCK_BOOTTIME, rounded down to a tick.
    start_ns: u64,
    /// Its exit status, as wait(2) gives it, if it has ended; 0 also where this process may not
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
        // Field 52. Without it everything else holds.
        let exit_code = fields.nth(29).and_then(|field| number(field.trim_ascii_end()));
        let exit_code = exit_code.unwrap_or_default() as i32;
        // SAFETY: sysconf has no preconditions.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1).cast_unsigned();
        let start_ns = ticks * (1_000_000_000 / ticks_per_second);
        Some(Self { state, exiting, threads, start_ns, exit_code })
    }
}

/// The text of /proc/PID/task/TID/stat.
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

/// The first bytes of a file of /proc.
fn read_text<'text>(path: &CStr, text: &'text mut [u8; 1024]) -> Result<&'text [u8], Errno> {
    let fd = Fd::open(path, libc::O_RDONLY, 0)?;
    // SAFETY: `text` is ours, with its length.
    let read = unsafe { libc::read(fd.raw(), text.as_mut_ptr().cast(), text.len()) };
    let bytes = Errno::check(read as i64)? as usize;
    Ok(&text[..bytes.min(text.len())])
}

/// `value` in decimal, in the end of `digits`.
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
    /// Process id; 0: of a process that we cannot see.
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

/// setsid(2): leaves the terminal and its signals. Refused where the process leads a group.
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
                // The namespace may be asked for without a descriptor, the thread may not.
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
