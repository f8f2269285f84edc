//! Names of values that programs hand to the kernel: `O_CLOEXEC`, `PROT_READ`, `SIGTERM`.
//!
//! Values are those of the C library's headers (crate `libc`); what it lacks is from the kernel's
//! uapi headers, and stands here as a number. Each set is for an argument that `calls.txt` says it
//! of.

use std::sync::{Arc, LazyLock};

use super::model::{Symbol, Symbols};

type Pairs = &'static [(&'static str, u32)];

/// Constants of the C library's headers.
macro_rules! libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u32)),*] };
}

/// Names of values of one kind: bits of `mask` say one of `choices`, others are `flags`.
struct Set {
    name: &'static str,
    mask: u32,
    choices: &'static [Pairs],
    flags: &'static [Pairs],
}

const fn choices(name: &'static str, choices: &'static [Pairs]) -> Set {
    Set { name, mask: u32::MAX, choices, flags: &[] }
}

const fn flags(name: &'static str, flags: &'static [Pairs]) -> Set {
    Set { name, mask: 0, choices: &[], flags }
}

const fn both(
    name: &'static str,
    mask: u32,
    choices: &'static [Pairs],
    flags: &'static [Pairs],
) -> Set {
    Set { name, mask, choices, flags }
}

/// The set of this name.
pub(crate) fn set(name: &str) -> Option<Arc<Symbols>> {
    static MADE: LazyLock<Vec<(&'static str, Arc<Symbols>)>> = LazyLock::new(|| {
        let made = |pairs: &[Pairs]| -> Vec<Symbol> {
            let pairs = pairs.iter().copied().flatten();
            pairs.map(|&(name, value)| Symbol { value: value.into(), name: name.into() }).collect()
        };
        let one = |set: &Set| {
            let choice_mask = set.mask.into();
            let (choices, flags) = (made(set.choices), made(set.flags));
            (set.name, Arc::new(Symbols { choice_mask, choices, flags }))
        };
        SETS.iter().map(one).collect()
    });
    let found = MADE.iter().find(|(of, _)| *of == name);
    found.map(|(_, symbols)| Arc::clone(symbols))
}

/// Names of errors, by their numbers: those of programs, and those that only who watches calls
/// sees.
pub fn errors() -> impl Iterator<Item = (&'static str, u32)> {
    ERRORS.iter().chain(RESTARTS).copied()
}

/// The name of an error's number.
pub fn error_name(errno: i32) -> Option<&'static str> {
    let number = u32::try_from(errno).ok()?;
    errors().find(|&(_, value)| value == number).map(|(name, _)| name)
}

const OPEN: Pairs = libc!(
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT
    O_TMPFILE O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH
);
const CLOCKS: Pairs = libc!(
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
    CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
    CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
);
const SIGNALS: Pairs = libc!(
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
    SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG
    SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
);
const CLONE: Pairs = libc!(
    CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT
    CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
    CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC
    CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO
);
const SOCKET_FLAGS: Pairs = libc!(SOCK_NONBLOCK SOCK_CLOEXEC);
const RESOURCES: Pairs = &[
    ("RLIMIT_CPU", 0),
    ("RLIMIT_FSIZE", 1),
    ("RLIMIT_DATA", 2),
    ("RLIMIT_STACK", 3),
    ("RLIMIT_CORE", 4),
    ("RLIMIT_RSS", 5),
    ("RLIMIT_NPROC", 6),
    ("RLIMIT_NOFILE", 7),
    ("RLIMIT_MEMLOCK", 8),
    ("RLIMIT_AS", 9),
    ("RLIMIT_LOCKS", 10),
    ("RLIMIT_SIGPENDING", 11),
    ("RLIMIT_MSGQUEUE", 12),
    ("RLIMIT_NICE", 13),
    ("RLIMIT_RTPRIO", 14),
    ("RLIMIT_RTTIME", 15),
];
/// linux/bpf.h, `enum bpf_cmd`.
const BPF: Pairs = &[
    ("BPF_MAP_CREATE", 0),
    ("BPF_MAP_LOOKUP_ELEM", 1),
    ("BPF_MAP_UPDATE_ELEM", 2),
    ("BPF_MAP_DELETE_ELEM", 3),
    ("BPF_MAP_GET_NEXT_KEY", 4),
    ("BPF_PROG_LOAD", 5),
    ("BPF_OBJ_PIN", 6),
    ("BPF_OBJ_GET", 7),
    ("BPF_PROG_ATTACH", 8),
    ("BPF_PROG_DETACH", 9),
    ("BPF_PROG_TEST_RUN", 10),
    ("BPF_PROG_GET_NEXT_ID", 11),
    ("BPF_MAP_GET_NEXT_ID", 12),
    ("BPF_PROG_GET_FD_BY_ID", 13),
    ("BPF_MAP_GET_FD_BY_ID", 14),
    ("BPF_OBJ_GET_INFO_BY_FD", 15),
    ("BPF_PROG_QUERY", 16),
    ("BPF_RAW_TRACEPOINT_OPEN", 17),
    ("BPF_BTF_LOAD", 18),
    ("BPF_BTF_GET_FD_BY_ID", 19),
    ("BPF_TASK_FD_QUERY", 20),
    ("BPF_MAP_LOOKUP_AND_DELETE_ELEM", 21),
    ("BPF_MAP_FREEZE", 22),
    ("BPF_BTF_GET_NEXT_ID", 23),
    ("BPF_MAP_LOOKUP_BATCH", 24),
    ("BPF_MAP_LOOKUP_AND_DELETE_BATCH", 25),
    ("BPF_MAP_UPDATE_BATCH", 26),
    ("BPF_MAP_DELETE_BATCH", 27),
    ("BPF_LINK_CREATE", 28),
    ("BPF_LINK_UPDATE", 29),
    ("BPF_LINK_GET_FD_BY_ID", 30),
    ("BPF_LINK_GET_NEXT_ID", 31),
    ("BPF_ENABLE_STATS", 32),
    ("BPF_ITER_CREATE", 33),
    ("BPF_LINK_DETACH", 34),
    ("BPF_PROG_BIND_MAP", 35),
    ("BPF_TOKEN_CREATE", 36),
];
/// linux/futex.h.
const FUTEX: Pairs = libc!(
    FUTEX_WAIT FUTEX_WAKE FUTEX_FD FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI
    FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_WAIT_REQUEUE_PI
    FUTEX_CMP_REQUEUE_PI
);
const MADVISE: Pairs = libc!(
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE
    MADV_DONTFORK MADV_DOFORK MADV_HWPOISON MADV_SOFT_OFFLINE MADV_MERGEABLE MADV_UNMERGEABLE
    MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK
    MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
);
const FILE_COMMANDS: Pairs = libc!(
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN
    F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETLEASE F_GETLEASE F_NOTIFY F_CANCELLK
    F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
);
/// asm-generic/ioctls.h and linux/sockios.h: those that are met every day.
const REQUESTS: Pairs = libc!(
    TCGETS TCSETS TCSETSW TCSETSF TCSBRK TCXONC TCFLSH TIOCEXCL TIOCNXCL TIOCSCTTY TIOCGPGRP
    TIOCSPGRP TIOCOUTQ TIOCSTI TIOCGWINSZ TIOCSWINSZ TIOCMGET TIOCMSET FIONREAD FIONBIO FIOCLEX
    FIONCLEX FIOASYNC TIOCNOTTY TIOCGSID TIOCGPTN TIOCSPTLCK
);
const FAMILIES: Pairs = libc!(
    AF_UNSPEC AF_UNIX AF_INET AF_AX25 AF_IPX AF_APPLETALK AF_NETROM AF_BRIDGE AF_ATMPVC AF_X25
    AF_INET6 AF_ROSE AF_NETBEUI AF_SECURITY AF_KEY AF_NETLINK AF_PACKET AF_RDS AF_PPPOX AF_IB
    AF_MPLS AF_CAN AF_TIPC AF_BLUETOOTH AF_ALG AF_NFC AF_VSOCK AF_XDP
);
const PROTOCOLS: Pairs = libc!(
    IPPROTO_IP IPPROTO_ICMP IPPROTO_IGMP IPPROTO_TCP IPPROTO_EGP IPPROTO_UDP IPPROTO_DCCP
    IPPROTO_IPV6 IPPROTO_GRE IPPROTO_ESP IPPROTO_AH IPPROTO_ICMPV6 IPPROTO_SCTP IPPROTO_UDPLITE
    IPPROTO_RAW IPPROTO_MPTCP
);
const SOCKET_OPTIONS: Pairs = libc!(
    SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF
    SO_KEEPALIVE SO_OOBINLINE SO_NO_CHECK SO_PRIORITY SO_LINGER SO_BSDCOMPAT SO_REUSEPORT
    SO_PASSCRED SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO SO_SNDTIMEO SO_BINDTODEVICE
    SO_ATTACH_FILTER SO_DETACH_FILTER SO_PEERNAME SO_ACCEPTCONN SO_PEERSEC SO_PASSSEC SO_MARK
    SO_PROTOCOL SO_DOMAIN SO_RXQ_OVFL SO_PEEK_OFF SO_LOCK_FILTER SO_BUSY_POLL SO_ATTACH_BPF
    SO_INCOMING_CPU SO_COOKIE SO_ZEROCOPY
);
const MESSAGE: Pairs = libc!(
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL
    MSG_CONFIRM MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_FASTOPEN MSG_CMSG_CLOEXEC
);
const PRCTL: Pairs = libc!(
    PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_GET_KEEPCAPS
    PR_SET_KEEPCAPS PR_GET_TIMING PR_SET_TIMING PR_SET_NAME PR_GET_NAME PR_GET_SECCOMP
    PR_SET_SECCOMP PR_CAPBSET_READ PR_CAPBSET_DROP PR_GET_TSC PR_SET_TSC PR_SET_TIMERSLACK
    PR_GET_TIMERSLACK PR_SET_MM PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER PR_SET_NO_NEW_PRIVS
    PR_GET_NO_NEW_PRIVS PR_GET_TID_ADDRESS PR_SET_THP_DISABLE PR_GET_THP_DISABLE PR_CAP_AMBIENT
    PR_SET_VMA PR_SET_PTRACER
);
const PTRACE: Pairs = libc!(
    PTRACE_TRACEME PTRACE_PEEKTEXT PTRACE_PEEKDATA PTRACE_PEEKUSER PTRACE_POKETEXT
    PTRACE_POKEDATA PTRACE_POKEUSER PTRACE_CONT PTRACE_KILL PTRACE_SINGLESTEP
    PTRACE_ATTACH PTRACE_DETACH PTRACE_SYSCALL
    PTRACE_SETOPTIONS PTRACE_GETEVENTMSG PTRACE_GETSIGINFO PTRACE_SETSIGINFO PTRACE_GETREGSET
    PTRACE_SETREGSET PTRACE_SEIZE PTRACE_INTERRUPT PTRACE_LISTEN PTRACE_PEEKSIGINFO
);
/// Those of x86 alone, which the C library does not have elsewhere (asm/ptrace-abi.h, asm/mman.h).
const PTRACE_X86: Pairs = &[
    ("PTRACE_GETREGS", 12),
    ("PTRACE_SETREGS", 13),
    ("PTRACE_GETFPREGS", 14),
    ("PTRACE_SETFPREGS", 15),
];
const MAP_X86: Pairs = &[("MAP_32BIT", 0x40)];
const MOUNT: Pairs = libc!(
    MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_SYNCHRONOUS MS_REMOUNT MS_MANDLOCK MS_DIRSYNC
    MS_NOATIME MS_NODIRATIME MS_BIND MS_MOVE MS_REC MS_SILENT MS_POSIXACL MS_UNBINDABLE MS_PRIVATE
    MS_SLAVE MS_SHARED MS_RELATIME MS_KERNMOUNT MS_I_VERSION MS_STRICTATIME MS_LAZYTIME
);
const INOTIFY: Pairs = libc!(
    IN_ACCESS IN_MODIFY IN_ATTRIB IN_CLOSE_WRITE IN_CLOSE_NOWRITE IN_OPEN IN_MOVED_FROM
    IN_MOVED_TO IN_CREATE IN_DELETE IN_DELETE_SELF IN_MOVE_SELF IN_ONLYDIR IN_DONT_FOLLOW
    IN_EXCL_UNLINK IN_MASK_CREATE IN_MASK_ADD IN_ISDIR IN_ONESHOT
);
const AT: Pairs = libc!(
    AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH
    AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC AT_RECURSIVE
);
const STATX: Pairs = libc!(
    STATX_TYPE STATX_MODE STATX_NLINK STATX_UID STATX_GID STATX_ATIME STATX_MTIME STATX_CTIME
    STATX_INO STATX_SIZE STATX_BLOCKS STATX_BTIME STATX_MNT_ID
);
/// linux/keyctl.h.
const KEYCTL: Pairs = &[
    ("KEYCTL_GET_KEYRING_ID", 0),
    ("KEYCTL_JOIN_SESSION_KEYRING", 1),
    ("KEYCTL_UPDATE", 2),
    ("KEYCTL_REVOKE", 3),
    ("KEYCTL_CHOWN", 4),
    ("KEYCTL_SETPERM", 5),
    ("KEYCTL_DESCRIBE", 6),
    ("KEYCTL_CLEAR", 7),
    ("KEYCTL_LINK", 8),
    ("KEYCTL_UNLINK", 9),
    ("KEYCTL_SEARCH", 10),
    ("KEYCTL_READ", 11),
    ("KEYCTL_INSTANTIATE", 12),
    ("KEYCTL_NEGATE", 13),
    ("KEYCTL_SET_REQKEY_KEYRING", 14),
    ("KEYCTL_SET_TIMEOUT", 15),
    ("KEYCTL_ASSUME_AUTHORITY", 16),
    ("KEYCTL_GET_SECURITY", 17),
    ("KEYCTL_SESSION_TO_PARENT", 18),
    ("KEYCTL_REJECT", 19),
    ("KEYCTL_INSTANTIATE_IOV", 20),
    ("KEYCTL_INVALIDATE", 21),
    ("KEYCTL_GET_PERSISTENT", 22),
];
/// linux/membarrier.h.
const MEMBARRIER: Pairs = &[
    ("MEMBARRIER_CMD_QUERY", 0),
    ("MEMBARRIER_CMD_GLOBAL", 1),
    ("MEMBARRIER_CMD_GLOBAL_EXPEDITED", 2),
    ("MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED", 4),
    ("MEMBARRIER_CMD_PRIVATE_EXPEDITED", 8),
    ("MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED", 16),
    ("MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE", 32),
    ("MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE", 64),
    ("MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ", 128),
    ("MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ", 256),
];
/// linux/io_uring.h, `enum io_uring_register_op`: the first ones.
const URING_REGISTER: Pairs = &[
    ("IORING_REGISTER_BUFFERS", 0),
    ("IORING_UNREGISTER_BUFFERS", 1),
    ("IORING_REGISTER_FILES", 2),
    ("IORING_UNREGISTER_FILES", 3),
    ("IORING_REGISTER_EVENTFD", 4),
    ("IORING_UNREGISTER_EVENTFD", 5),
    ("IORING_REGISTER_FILES_UPDATE", 6),
    ("IORING_REGISTER_EVENTFD_ASYNC", 7),
    ("IORING_REGISTER_PROBE", 8),
    ("IORING_REGISTER_PERSONALITY", 9),
    ("IORING_UNREGISTER_PERSONALITY", 10),
    ("IORING_REGISTER_RESTRICTIONS", 11),
    ("IORING_REGISTER_ENABLE_RINGS", 12),
    ("IORING_REGISTER_FILES2", 13),
    ("IORING_REGISTER_FILES_UPDATE2", 14),
    ("IORING_REGISTER_BUFFERS2", 15),
    ("IORING_REGISTER_BUFFERS_UPDATE", 16),
    ("IORING_REGISTER_IOWQ_AFF", 17),
    ("IORING_UNREGISTER_IOWQ_AFF", 18),
    ("IORING_REGISTER_IOWQ_MAX_WORKERS", 19),
    ("IORING_REGISTER_RING_FDS", 20),
    ("IORING_UNREGISTER_RING_FDS", 21),
    ("IORING_REGISTER_PBUF_RING", 22),
    ("IORING_UNREGISTER_PBUF_RING", 23),
    ("IORING_REGISTER_SYNC_CANCEL", 24),
];

/// All sets.
static SETS: &[Set] = &[
    flags("access", &[libc!(F_OK X_OK W_OK R_OK)]),
    choices(
        "arch_prctl",
        &[&[
            ("ARCH_SET_GS", 0x1001),
            ("ARCH_SET_FS", 0x1002),
            ("ARCH_GET_FS", 0x1003),
            ("ARCH_GET_GS", 0x1004),
            ("ARCH_GET_CPUID", 0x1011),
            ("ARCH_SET_CPUID", 0x1012),
            ("ARCH_SHSTK_ENABLE", 0x5001),
            ("ARCH_SHSTK_DISABLE", 0x5002),
            ("ARCH_SHSTK_STATUS", 0x5005),
        ]],
    ),
    flags("at", &[AT, &[("AT_EACCESS", 0x200)]]),
    choices("bpf", &[BPF]),
    choices("clock", &[CLOCKS]),
    both("clone", 0xff, &[SIGNALS], &[CLONE]),
    flags("close_range", &[libc!(CLOSE_RANGE_UNSHARE CLOSE_RANGE_CLOEXEC)]),
    flags("epoll_create", &[libc!(EPOLL_CLOEXEC)]),
    choices("epoll_op", &[libc!(EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD)]),
    flags("eventfd", &[libc!(EFD_SEMAPHORE EFD_NONBLOCK EFD_CLOEXEC)]),
    choices(
        "fadvise",
        &[libc!(
            POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED
            POSIX_FADV_DONTNEED POSIX_FADV_NOREUSE
        )],
    ),
    flags(
        "fallocate",
        &[libc!(
            FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_COLLAPSE_RANGE FALLOC_FL_ZERO_RANGE
            FALLOC_FL_INSERT_RANGE FALLOC_FL_UNSHARE_RANGE
        )],
    ),
    choices("family", &[FAMILIES]),
    choices("fcntl", &[FILE_COMMANDS]),
    both("flock", 0xb, &[libc!(LOCK_SH LOCK_EX LOCK_UN)], &[libc!(LOCK_NB)]),
    choices(
        "fsconfig",
        &[&[
            ("FSCONFIG_SET_FLAG", 0),
            ("FSCONFIG_SET_STRING", 1),
            ("FSCONFIG_SET_BINARY", 2),
            ("FSCONFIG_SET_PATH", 3),
            ("FSCONFIG_SET_PATH_EMPTY", 4),
            ("FSCONFIG_SET_FD", 5),
            ("FSCONFIG_CMD_CREATE", 6),
            ("FSCONFIG_CMD_RECONFIGURE", 7),
            ("FSCONFIG_CMD_CREATE_EXCL", 8),
        ]],
    ),
    both(
        "futex2",
        3,
        &[&[
            ("FUTEX2_SIZE_U8", 0),
            ("FUTEX2_SIZE_U16", 1),
            ("FUTEX2_SIZE_U32", 2),
            ("FUTEX2_SIZE_U64", 3),
        ]],
        &[&[("FUTEX2_NUMA", 4), ("FUTEX2_MPOL", 8), ("FUTEX2_PRIVATE", 128)]],
    ),
    both("futex_op", 0x7f, &[FUTEX], &[libc!(FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME)]),
    flags("getrandom", &[libc!(GRND_NONBLOCK GRND_RANDOM GRND_INSECURE)]),
    flags("inotify", &[INOTIFY]),
    choices("ioctl", &[REQUESTS]),
    choices(
        "ioprio_who",
        &[&[("IOPRIO_WHO_PROCESS", 1), ("IOPRIO_WHO_PGRP", 2), ("IOPRIO_WHO_USER", 3)]],
    ),
    both("ipc", 0, &[], &[libc!(IPC_CREAT IPC_EXCL IPC_NOWAIT)]),
    choices("ipc_cmd", &[libc!(IPC_RMID IPC_SET IPC_STAT IPC_INFO SHM_LOCK SHM_UNLOCK)]),
    choices("itimer", &[libc!(ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF)]),
    choices(
        "kcmp",
        &[&[
            ("KCMP_FILE", 0),
            ("KCMP_VM", 1),
            ("KCMP_FILES", 2),
            ("KCMP_FS", 3),
            ("KCMP_SIGHAND", 4),
            ("KCMP_IO", 5),
            ("KCMP_SYSVSEM", 6),
            ("KCMP_EPOLL_TFD", 7),
        ]],
    ),
    choices("keyctl", &[KEYCTL]),
    choices(
        "landlock_rule",
        &[&[("LANDLOCK_RULE_PATH_BENEATH", 1), ("LANDLOCK_RULE_NET_PORT", 2)]],
    ),
    choices("madvise", &[MADVISE, &[("MADV_COLLAPSE", 25)]]),
    choices("membarrier", &[MEMBARRIER]),
    flags("memfd", &[libc!(MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB MFD_NOEXEC_SEAL MFD_EXEC)]),
    flags("memfd_secret", &[libc!(O_CLOEXEC)]),
    both(
        "mempolicy",
        0xfff,
        &[libc!(
            MPOL_DEFAULT MPOL_PREFERRED MPOL_BIND MPOL_INTERLEAVE MPOL_LOCAL
        )],
        &[libc!(MPOL_F_NUMA_BALANCING MPOL_F_RELATIVE_NODES MPOL_F_STATIC_NODES)],
    ),
    flags("mlock2", &[libc!(MLOCK_ONFAULT)]),
    flags("mlockall", &[libc!(MCL_CURRENT MCL_FUTURE MCL_ONFAULT)]),
    both(
        "mmap",
        0xf,
        &[libc!(MAP_SHARED MAP_PRIVATE MAP_SHARED_VALIDATE)],
        &[
            libc!(
                MAP_FIXED MAP_ANONYMOUS MAP_GROWSDOWN MAP_DENYWRITE MAP_EXECUTABLE MAP_LOCKED
                MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB MAP_SYNC
                MAP_FIXED_NOREPLACE
            ),
            MAP_X86,
        ],
    ),
    flags("mount", &[MOUNT]),
    flags(
        "mount_attr",
        &[libc!(
            MOUNT_ATTR_RDONLY MOUNT_ATTR_NOSUID MOUNT_ATTR_NODEV MOUNT_ATTR_NOEXEC
            MOUNT_ATTR_NOATIME MOUNT_ATTR_STRICTATIME MOUNT_ATTR_NODIRATIME MOUNT_ATTR_IDMAP
            MOUNT_ATTR_NOSYMFOLLOW
        )],
    ),
    flags(
        "move_mount",
        &[&[
            ("MOVE_MOUNT_F_SYMLINKS", 1),
            ("MOVE_MOUNT_F_AUTOMOUNTS", 2),
            ("MOVE_MOUNT_F_EMPTY_PATH", 4),
            ("MOVE_MOUNT_T_SYMLINKS", 0x10),
            ("MOVE_MOUNT_T_AUTOMOUNTS", 0x20),
            ("MOVE_MOUNT_T_EMPTY_PATH", 0x40),
            ("MOVE_MOUNT_SET_GROUP", 0x100),
            ("MOVE_MOUNT_BENEATH", 0x200),
        ]],
    ),
    flags("mremap", &[libc!(MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP)]),
    flags("msg", &[MESSAGE]),
    flags("msgrcv", &[libc!(IPC_NOWAIT MSG_NOERROR MSG_EXCEPT MSG_COPY)]),
    flags("msync", &[libc!(MS_ASYNC MS_INVALIDATE MS_SYNC)]),
    both("open", 3, &[libc!(O_RDONLY O_WRONLY O_RDWR)], &[OPEN, &[("O_LARGEFILE", 0o100000)]]),
    flags("open_tree", &[&[("OPEN_TREE_CLONE", 1)], libc!(O_CLOEXEC), AT]),
    flags(
        "perf_open",
        &[&[
            ("PERF_FLAG_FD_NO_GROUP", 1),
            ("PERF_FLAG_FD_OUTPUT", 2),
            ("PERF_FLAG_PID_CGROUP", 4),
            ("PERF_FLAG_FD_CLOEXEC", 8),
        ]],
    ),
    both(
        "personality",
        0xff,
        &[&[("PER_LINUX", 0), ("PER_LINUX32", 8)]],
        &[libc!(
            ADDR_COMPAT_LAYOUT ADDR_NO_RANDOMIZE ADDR_LIMIT_32BIT MMAP_PAGE_ZERO READ_IMPLIES_EXEC
            SHORT_INODE STICKY_TIMEOUTS UNAME26 WHOLE_SECONDS ADDR_LIMIT_3GB
        )],
    ),
    flags("pidfd", &[libc!(PIDFD_NONBLOCK), &[("PIDFD_THREAD", 0o200)]]),
    choices("prctl", &[PRCTL]),
    choices("priority", &[libc!(PRIO_PROCESS PRIO_PGRP PRIO_USER)]),
    flags("prot", &[libc!(PROT_NONE PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP)]),
    choices("protocol", &[PROTOCOLS]),
    choices("ptrace", &[PTRACE, PTRACE_X86]),
    choices(
        "reboot",
        &[libc!(
            RB_AUTOBOOT RB_HALT_SYSTEM RB_ENABLE_CAD RB_DISABLE_CAD RB_POWER_OFF RB_SW_SUSPEND
            RB_KEXEC
        )],
    ),
    flags("rename", &[libc!(RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT)]),
    choices("rlimit", &[RESOURCES]),
    flags("rseq", &[&[("RSEQ_FLAG_UNREGISTER", 1)]]),
    choices("rusage", &[libc!(RUSAGE_SELF RUSAGE_CHILDREN RUSAGE_THREAD)]),
    flags("rwf", &[libc!(RWF_HIPRI RWF_DSYNC RWF_SYNC RWF_NOWAIT RWF_APPEND)]),
    both(
        "sched",
        0x3fff_ffff,
        &[
            libc!(SCHED_OTHER SCHED_FIFO SCHED_RR SCHED_BATCH SCHED_IDLE SCHED_DEADLINE),
            &[("SCHED_EXT", 7)],
        ],
        &[libc!(SCHED_RESET_ON_FORK)],
    ),
    choices(
        "seccomp",
        &[libc!(
            SECCOMP_SET_MODE_STRICT SECCOMP_SET_MODE_FILTER SECCOMP_GET_ACTION_AVAIL
            SECCOMP_GET_NOTIF_SIZES
        )],
    ),
    flags(
        "seccomp_flags",
        &[libc!(
            SECCOMP_FILTER_FLAG_TSYNC SECCOMP_FILTER_FLAG_LOG SECCOMP_FILTER_FLAG_SPEC_ALLOW
            SECCOMP_FILTER_FLAG_NEW_LISTENER SECCOMP_FILTER_FLAG_TSYNC_ESRCH
        )],
    ),
    choices(
        "sem_cmd",
        &[libc!(
            IPC_RMID IPC_SET IPC_STAT IPC_INFO GETPID GETVAL GETALL GETNCNT GETZCNT SETVAL SETALL
        )],
    ),
    flags("shmat", &[libc!(SHM_RDONLY SHM_RND SHM_REMAP SHM_EXEC)]),
    choices("shutdown", &[libc!(SHUT_RD SHUT_WR SHUT_RDWR)]),
    choices("signal", &[SIGNALS]),
    choices("sigprocmask", &[libc!(SIG_BLOCK SIG_UNBLOCK SIG_SETMASK)]),
    flags("socket_flags", &[SOCKET_FLAGS]),
    choices(
        "socket_level",
        &[
            libc!(SOL_SOCKET),
            PROTOCOLS,
            libc!(SOL_PACKET SOL_NETLINK SOL_ALG SOL_XDP),
            &[("SOL_VSOCK", 287)],
        ],
    ),
    choices("socket_option", &[SOCKET_OPTIONS]),
    both(
        "socket_type",
        0xf,
        &[
            libc!(SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_DCCP),
            &[("SOCK_PACKET", 10)],
        ],
        &[SOCKET_FLAGS],
    ),
    flags("splice", &[libc!(SPLICE_F_MOVE SPLICE_F_NONBLOCK SPLICE_F_MORE SPLICE_F_GIFT)]),
    flags("statx", &[STATX]),
    flags("swapon", &[&[("SWAP_FLAG_PREFER", 0x8000), ("SWAP_FLAG_DISCARD", 0x10000)]]),
    flags(
        "sync_range",
        &[libc!(
            SYNC_FILE_RANGE_WAIT_BEFORE SYNC_FILE_RANGE_WRITE SYNC_FILE_RANGE_WAIT_AFTER
        )],
    ),
    choices(
        "syslog",
        &[&[
            ("SYSLOG_ACTION_CLOSE", 0),
            ("SYSLOG_ACTION_OPEN", 1),
            ("SYSLOG_ACTION_READ", 2),
            ("SYSLOG_ACTION_READ_ALL", 3),
            ("SYSLOG_ACTION_READ_CLEAR", 4),
            ("SYSLOG_ACTION_CLEAR", 5),
            ("SYSLOG_ACTION_CONSOLE_OFF", 6),
            ("SYSLOG_ACTION_CONSOLE_ON", 7),
            ("SYSLOG_ACTION_CONSOLE_LEVEL", 8),
            ("SYSLOG_ACTION_SIZE_UNREAD", 9),
            ("SYSLOG_ACTION_SIZE_BUFFER", 10),
        ]],
    ),
    flags("timer", &[libc!(TIMER_ABSTIME)]),
    flags("timerfd", &[libc!(TFD_TIMER_ABSTIME TFD_TIMER_CANCEL_ON_SET)]),
    flags("umount", &[libc!(MNT_FORCE MNT_DETACH MNT_EXPIRE UMOUNT_NOFOLLOW)]),
    flags(
        "uring_enter",
        &[&[
            ("IORING_ENTER_GETEVENTS", 1),
            ("IORING_ENTER_SQ_WAKEUP", 2),
            ("IORING_ENTER_SQ_WAIT", 4),
            ("IORING_ENTER_EXT_ARG", 8),
            ("IORING_ENTER_REGISTERED_RING", 16),
        ]],
    ),
    choices("uring_register", &[URING_REGISTER]),
    flags(
        "wait",
        &[libc!(WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT __WNOTHREAD __WALL __WCLONE)],
    ),
    choices("waitid", &[libc!(P_ALL P_PID P_PGID P_PIDFD)]),
    choices("whence", &[libc!(SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE)]),
    flags("xattr", &[libc!(XATTR_CREATE XATTR_REPLACE)]),
];

/// linux/errno.h: calls that begin anew, or end with EINTR, when a signal was taken care of.
const RESTARTS: Pairs = &[
    ("ERESTARTSYS", 512),
    ("ERESTARTNOINTR", 513),
    ("ERESTARTNOHAND", 514),
    ("ENOIOCTLCMD", 515),
    ("ERESTART_RESTARTBLOCK", 516),
];
/// errno(3).
const ERRORS: Pairs = libc!(
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR
    EXFULL ENOANO EBADRQC EBADSLT EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK
    EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC
    ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ
    EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET
    ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM
    EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE
    ERFKILL EHWPOISON
);
