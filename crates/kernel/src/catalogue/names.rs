//! Names of values that programs pass to the kernel: `O_CLOEXEC`, `PROT_READ`, `SIGTERM`.
//!
//! Values come from crate `libc`, or else from the kernel's uapi headers. Each set serves arguments
//! that refer to it in `calls.txt`.
//!
//! Longer than 600 lines: it is one table.

use std::sync::{Arc, LazyLock};

use super::model::{Symbol, Symbols};

type NameValues = &'static [(&'static str, u64)];

/// Defines names for constants of the C library's headers.
macro_rules! libc {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name as u32 as u64)),*] };
}

/// Defines names for constants that depend on another argument, whose value is in the upper half.
macro_rules! dependent {
    ($first:expr; $($name:ident)*) => {
        &[$((stringify!($name), ($first as u64) << 32 | libc::$name as u32 as u64)),*]
    };
}

/// Names of values: the bits of `mask` contain one of `choices`; other bits are `flags`.
struct NameSet {
    name: &'static str,
    mask: u64,
    choices: &'static [NameValues],
    flags: &'static [NameValues],
}

const fn choice_set(name: &'static str, choices: &'static [NameValues]) -> NameSet {
    NameSet { name, mask: u32::MAX as u64, choices, flags: &[] }
}

const fn flag_set(name: &'static str, flags: &'static [NameValues]) -> NameSet {
    NameSet { name, mask: 0, choices: &[], flags }
}

const fn mixed_set(
    name: &'static str,
    mask: u64,
    choices: &'static [NameValues],
    flags: &'static [NameValues],
) -> NameSet {
    NameSet { name, mask, choices, flags }
}

/// Returns the set with this name.
pub(crate) fn find_set(name: &str) -> Option<Arc<Symbols>> {
    static MADE: LazyLock<Vec<(&'static str, Arc<Symbols>)>> = LazyLock::new(|| {
        let made = |pairs: &[NameValues]| -> Vec<Symbol> {
            let pairs = pairs.iter().copied().flatten();
            pairs.map(|&(name, value)| Symbol { value, name: name.into() }).collect()
        };
        let one = |set: &NameSet| {
            let choice_mask = set.mask;
            let (choices, flags) = (made(set.choices), made(set.flags));
            (set.name, Arc::new(Symbols { choice_mask, choices, flags, hidden: 0 }))
        };
        SETS.iter().map(one).collect()
    });
    let found = MADE.iter().find(|(of, _)| *of == name);
    found.map(|(_, symbols)| Arc::clone(symbols))
}

/// Returns the names of errors by number, including errors that only tracers observe.
pub fn error_names() -> impl Iterator<Item = (&'static str, u64)> {
    ERRORS.iter().chain(RESTARTS).copied()
}

/// Returns the name of an error number.
pub fn error_name(errno: i32) -> Option<&'static str> {
    let number = u64::try_from(errno).ok()?;
    error_names().find(|&(_, value)| value == number).map(|(name, _)| name)
}

const OPEN: NameValues = libc!(
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT
    O_TMPFILE O_DIRECTORY O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH
);
const LARGE_FILE: NameValues = &[("O_LARGEFILE", 0o100000)];
const CLOCKS: NameValues = libc!(
    CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_PROCESS_CPUTIME_ID CLOCK_THREAD_CPUTIME_ID
    CLOCK_MONOTONIC_RAW CLOCK_REALTIME_COARSE CLOCK_MONOTONIC_COARSE CLOCK_BOOTTIME
    CLOCK_REALTIME_ALARM CLOCK_BOOTTIME_ALARM CLOCK_TAI
);
const SIGNALS: NameValues = libc!(
    SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2
    SIGPIPE SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG
    SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
);
/// Signals from 32 on, by the kernel's numbers, as in strace: the C library reserves the first two
/// signals, so its SIGRTMIN is SIGRT_2 here.
#[rustfmt::skip]
const REAL_TIME_SIGNALS: NameValues = &[
    ("SIGRTMIN", 32), ("SIGRT_1", 33), ("SIGRT_2", 34), ("SIGRT_3", 35), ("SIGRT_4", 36),
    ("SIGRT_5", 37), ("SIGRT_6", 38), ("SIGRT_7", 39), ("SIGRT_8", 40), ("SIGRT_9", 41),
    ("SIGRT_10", 42), ("SIGRT_11", 43), ("SIGRT_12", 44), ("SIGRT_13", 45), ("SIGRT_14", 46),
    ("SIGRT_15", 47), ("SIGRT_16", 48), ("SIGRT_17", 49), ("SIGRT_18", 50), ("SIGRT_19", 51),
    ("SIGRT_20", 52), ("SIGRT_21", 53), ("SIGRT_22", 54), ("SIGRT_23", 55), ("SIGRT_24", 56),
    ("SIGRT_25", 57), ("SIGRT_26", 58), ("SIGRT_27", 59), ("SIGRT_28", 60), ("SIGRT_29", 61),
    ("SIGRT_30", 62), ("SIGRT_31", 63), ("SIGRT_32", 64),
];
const CLONE: NameValues = libc!(
    CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK CLONE_PARENT
    CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
    CLONE_DETACHED CLONE_UNTRACED CLONE_CHILD_SETTID CLONE_NEWCGROUP CLONE_NEWUTS CLONE_NEWIPC
    CLONE_NEWUSER CLONE_NEWPID CLONE_NEWNET CLONE_IO
);
/// Flags for clone3(2) only (linux/sched.h).
const CLONE_BEYOND: NameValues = &[
    ("CLONE_NEWTIME", 0x80),
    ("CLONE_CLEAR_SIGHAND", 0x1_0000_0000),
    ("CLONE_INTO_CGROUP", 0x2_0000_0000),
];
const SOCKET_FLAGS: NameValues = libc!(SOCK_NONBLOCK SOCK_CLOEXEC);
const RESOURCES: NameValues = &[
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
/// Commands of bpf(2) (linux/bpf.h, `enum bpf_cmd`).
const BPF: NameValues = &[
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
/// Operations of futex(2) (linux/futex.h).
const FUTEX: NameValues = libc!(
    FUTEX_WAIT FUTEX_WAKE FUTEX_FD FUTEX_REQUEUE FUTEX_CMP_REQUEUE FUTEX_WAKE_OP FUTEX_LOCK_PI
    FUTEX_UNLOCK_PI FUTEX_TRYLOCK_PI FUTEX_WAIT_BITSET FUTEX_WAKE_BITSET FUTEX_WAIT_REQUEUE_PI
    FUTEX_CMP_REQUEUE_PI
);
const MADVISE: NameValues = libc!(
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE
    MADV_DONTFORK MADV_DOFORK MADV_HWPOISON MADV_SOFT_OFFLINE MADV_MERGEABLE MADV_UNMERGEABLE
    MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP MADV_WIPEONFORK MADV_KEEPONFORK
    MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
);
const FILE_COMMANDS: NameValues = libc!(
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN
    F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW F_SETLEASE F_GETLEASE F_NOTIFY F_CANCELLK
    F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
);
/// Commands of fcntl(2) that the C library lacks (linux/fcntl.h).
const FILE_COMMANDS_MORE: NameValues = &[
    ("F_SETSIG", 10),
    ("F_GETSIG", 11),
    ("F_SETOWN_EX", 15),
    ("F_GETOWN_EX", 16),
    ("F_DUPFD_QUERY", 1027),
    ("F_GET_RW_HINT", 1035),
    ("F_SET_RW_HINT", 1036),
];
/// Common ioctl(2) requests (asm-generic/ioctls.h and linux/sockios.h).
const REQUESTS: NameValues = libc!(
    TCGETS TCSETS TCSETSW TCSETSF TCSBRK TCXONC TCFLSH TIOCEXCL TIOCNXCL TIOCSCTTY TIOCGPGRP
    TIOCSPGRP TIOCOUTQ TIOCSTI TIOCGWINSZ TIOCSWINSZ TIOCMGET TIOCMSET FIONREAD FIONBIO FIOCLEX
    FIONCLEX FIOASYNC TIOCNOTTY TIOCGSID TIOCGPTN TIOCSPTLCK
);
/// Device requests of ioctl(2), from linux/: sockios.h, fs.h, if_tun.h, perf_event.h, rtc.h.
const REQUESTS_OF_DEVICES: NameValues = &[
    ("SIOCGIFNAME", 0x8910),
    ("SIOCGIFCONF", 0x8912),
    ("SIOCGIFFLAGS", 0x8913),
    ("SIOCSIFFLAGS", 0x8914),
    ("SIOCGIFADDR", 0x8915),
    ("SIOCSIFADDR", 0x8916),
    ("SIOCGIFNETMASK", 0x891b),
    ("SIOCGIFMTU", 0x8921),
    ("SIOCSIFMTU", 0x8922),
    ("SIOCGIFHWADDR", 0x8927),
    ("SIOCGIFINDEX", 0x8933),
    ("SIOCETHTOOL", 0x8946),
    ("BLKROGET", 0x125e),
    ("BLKGETSIZE", 0x1260),
    ("BLKSSZGET", 0x1268),
    ("BLKDISCARD", 0x1277),
    ("BLKPBSZGET", 0x127b),
    ("BLKGETSIZE64", 0x8008_1272),
    ("FICLONE", 0x4004_9409),
    ("FICLONERANGE", 0x4020_940d),
    ("FS_IOC_GETFLAGS", 0x8008_6601),
    ("FS_IOC_SETFLAGS", 0x4008_6602),
    ("FS_IOC_FIEMAP", 0xc020_660b),
    ("FITRIM", 0xc018_5879),
    ("TUNSETIFF", 0x4004_54ca),
    ("TCGETS2", 0x802c_542a),
    ("TCSETS2", 0x402c_542b),
    ("TCSETSW2", 0x402c_542c),
    ("TCSETSF2", 0x402c_542d),
    ("PERF_EVENT_IOC_ENABLE", 0x2400),
    ("PERF_EVENT_IOC_DISABLE", 0x2401),
    ("PERF_EVENT_IOC_RESET", 0x2403),
    ("PERF_EVENT_IOC_ID", 0x8008_2407),
    ("PERF_EVENT_IOC_SET_BPF", 0x4004_2408),
    ("RTC_RD_TIME", 0x8024_7009),
];
const FAMILIES: NameValues = libc!(
    AF_UNSPEC AF_UNIX AF_INET AF_AX25 AF_IPX AF_APPLETALK AF_NETROM AF_BRIDGE AF_ATMPVC AF_X25
    AF_INET6 AF_ROSE AF_NETBEUI AF_SECURITY AF_KEY AF_NETLINK AF_PACKET AF_RDS AF_PPPOX AF_IB
    AF_MPLS AF_CAN AF_TIPC AF_BLUETOOTH AF_ALG AF_NFC AF_VSOCK AF_XDP
);
const PROTOCOLS: NameValues = libc!(
    IPPROTO_IP IPPROTO_ICMP IPPROTO_IGMP IPPROTO_TCP IPPROTO_EGP IPPROTO_UDP IPPROTO_DCCP
    IPPROTO_IPV6 IPPROTO_GRE IPPROTO_ESP IPPROTO_AH IPPROTO_ICMPV6 IPPROTO_SCTP IPPROTO_UDPLITE
    IPPROTO_RAW IPPROTO_MPTCP
);
/// Socket options, after their level, which is the previous argument.
const SOCKET_OPTIONS: NameValues = dependent!(libc::SOL_SOCKET;
    SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_SNDBUF SO_RCVBUF
    SO_KEEPALIVE SO_OOBINLINE SO_NO_CHECK SO_PRIORITY SO_LINGER SO_BSDCOMPAT SO_REUSEPORT
    SO_PASSCRED SO_PEERCRED SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO SO_SNDTIMEO SO_BINDTODEVICE
    SO_ATTACH_FILTER SO_DETACH_FILTER SO_PEERNAME SO_ACCEPTCONN SO_PEERSEC SO_PASSSEC SO_MARK
    SO_PROTOCOL SO_DOMAIN SO_RXQ_OVFL SO_PEEK_OFF SO_LOCK_FILTER SO_BUSY_POLL SO_ATTACH_BPF
    SO_INCOMING_CPU SO_COOKIE SO_ZEROCOPY
);
const IP_OPTIONS: NameValues = dependent!(libc::SOL_IP;
    IP_TOS IP_TTL IP_HDRINCL IP_OPTIONS IP_RECVOPTS IP_RETOPTS IP_PKTINFO IP_MTU_DISCOVER IP_RECVERR
    IP_RECVTTL IP_RECVTOS IP_MTU IP_FREEBIND IP_TRANSPARENT IP_ORIGDSTADDR IP_MINTTL
    IP_BIND_ADDRESS_NO_PORT IP_MULTICAST_IF IP_MULTICAST_TTL IP_MULTICAST_LOOP IP_ADD_MEMBERSHIP
    IP_DROP_MEMBERSHIP
);
const IPV6_OPTIONS: NameValues = dependent!(libc::SOL_IPV6;
    IPV6_UNICAST_HOPS IPV6_MULTICAST_IF IPV6_MULTICAST_HOPS IPV6_MULTICAST_LOOP
    IPV6_ADD_MEMBERSHIP IPV6_DROP_MEMBERSHIP IPV6_MTU_DISCOVER IPV6_MTU IPV6_RECVERR IPV6_V6ONLY
    IPV6_RECVPKTINFO IPV6_PKTINFO IPV6_RECVHOPLIMIT IPV6_HOPLIMIT IPV6_RECVTCLASS IPV6_TCLASS
    IPV6_FREEBIND
);
const TCP_OPTIONS: NameValues = dependent!(libc::SOL_TCP;
    TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2
    TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP TCP_INFO TCP_QUICKACK TCP_CONGESTION TCP_MD5SIG
    TCP_USER_TIMEOUT TCP_FASTOPEN TCP_TIMESTAMP TCP_REPAIR TCP_ULP TCP_FASTOPEN_CONNECT
    TCP_ZEROCOPY_RECEIVE TCP_INQ TCP_NOTSENT_LOWAT
);
/// Socket options of other protocols (linux/udp.h, linux/netlink.h, linux/if_packet.h).
const OTHER_OPTIONS: NameValues = &[
    ("UDP_CORK", 17 << 32 | 1),
    ("UDP_SEGMENT", 17 << 32 | 103),
    ("UDP_GRO", 17 << 32 | 104),
    ("NETLINK_ADD_MEMBERSHIP", 270 << 32 | 1),
    ("NETLINK_DROP_MEMBERSHIP", 270 << 32 | 2),
    ("NETLINK_PKTINFO", 270 << 32 | 3),
    ("NETLINK_EXT_ACK", 270 << 32 | 11),
    ("NETLINK_GET_STRICT_CHK", 270 << 32 | 12),
    ("PACKET_ADD_MEMBERSHIP", 263 << 32 | 1),
    ("PACKET_RX_RING", 263 << 32 | 5),
    ("PACKET_STATISTICS", 263 << 32 | 6),
    ("PACKET_VERSION", 263 << 32 | 10),
    ("PACKET_TX_RING", 263 << 32 | 13),
    ("PACKET_FANOUT", 263 << 32 | 18),
];
/// Flags of fcntl(2), after its command; `O_RDONLY` means no flags.
const FILE_FLAGS: NameValues = dependent!(libc::F_SETFL;
    O_RDONLY O_WRONLY O_RDWR O_APPEND O_NONBLOCK O_SYNC O_DSYNC O_ASYNC O_DIRECT O_NOATIME
);
const FILE_COMMANDS_TAKE: &[NameValues] = &[
    FILE_FLAGS,
    dependent!(libc::F_SETFD; FD_CLOEXEC),
    dependent!(libc::F_ADD_SEALS;
        F_SEAL_SEAL F_SEAL_SHRINK F_SEAL_GROW F_SEAL_WRITE F_SEAL_FUTURE_WRITE
    ),
];
/// Arguments of prctl(2), after its option.
const PRCTL_TAKES: &[NameValues] = &[
    dependent!(libc::PR_SET_PDEATHSIG;
        SIGHUP SIGINT SIGQUIT SIGABRT SIGKILL SIGUSR1 SIGUSR2 SIGPIPE SIGALRM SIGTERM SIGCHLD
        SIGCONT SIGSTOP
    ),
    dependent!(libc::PR_SET_SECCOMP; SECCOMP_MODE_STRICT SECCOMP_MODE_FILTER),
    dependent!(libc::PR_CAP_AMBIENT;
        PR_CAP_AMBIENT_IS_SET PR_CAP_AMBIENT_RAISE PR_CAP_AMBIENT_LOWER PR_CAP_AMBIENT_CLEAR_ALL
    ),
];
const MESSAGE: NameValues = libc!(
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL
    MSG_CONFIRM MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_WAITFORONE MSG_FASTOPEN MSG_CMSG_CLOEXEC
);
const PRCTL: NameValues = libc!(
    PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_GET_KEEPCAPS
    PR_SET_KEEPCAPS PR_GET_TIMING PR_SET_TIMING PR_SET_NAME PR_GET_NAME PR_GET_SECCOMP
    PR_SET_SECCOMP PR_CAPBSET_READ PR_CAPBSET_DROP PR_GET_TSC PR_SET_TSC PR_SET_TIMERSLACK
    PR_GET_TIMERSLACK PR_SET_MM PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER PR_SET_NO_NEW_PRIVS
    PR_GET_NO_NEW_PRIVS PR_GET_TID_ADDRESS PR_SET_THP_DISABLE PR_GET_THP_DISABLE PR_CAP_AMBIENT
    PR_SET_VMA PR_SET_PTRACER
);
const PTRACE: NameValues = libc!(
    PTRACE_TRACEME PTRACE_PEEKTEXT PTRACE_PEEKDATA PTRACE_PEEKUSER PTRACE_POKETEXT
    PTRACE_POKEDATA PTRACE_POKEUSER PTRACE_CONT PTRACE_KILL PTRACE_SINGLESTEP
    PTRACE_ATTACH PTRACE_DETACH PTRACE_SYSCALL
    PTRACE_SETOPTIONS PTRACE_GETEVENTMSG PTRACE_GETSIGINFO PTRACE_SETSIGINFO PTRACE_GETREGSET
    PTRACE_SETREGSET PTRACE_SEIZE PTRACE_INTERRUPT PTRACE_LISTEN PTRACE_PEEKSIGINFO
);
/// Values for x86; elsewhere the C library lacks them (asm/ptrace-abi.h, asm/mman.h).
const PTRACE_X86: NameValues = &[
    ("PTRACE_GETREGS", 12),
    ("PTRACE_SETREGS", 13),
    ("PTRACE_GETFPREGS", 14),
    ("PTRACE_SETFPREGS", 15),
];
const MAP_X86: NameValues = &[("MAP_32BIT", 0x40)];
const MOUNT: NameValues = libc!(
    MS_RDONLY MS_NOSUID MS_NODEV MS_NOEXEC MS_SYNCHRONOUS MS_REMOUNT MS_MANDLOCK MS_DIRSYNC
    MS_NOATIME MS_NODIRATIME MS_BIND MS_MOVE MS_REC MS_SILENT MS_POSIXACL MS_UNBINDABLE MS_PRIVATE
    MS_SLAVE MS_SHARED MS_RELATIME MS_KERNMOUNT MS_I_VERSION MS_STRICTATIME MS_LAZYTIME
);
const INOTIFY: NameValues = libc!(
    IN_ACCESS IN_MODIFY IN_ATTRIB IN_CLOSE_WRITE IN_CLOSE_NOWRITE IN_OPEN IN_MOVED_FROM
    IN_MOVED_TO IN_CREATE IN_DELETE IN_DELETE_SELF IN_MOVE_SELF IN_ONLYDIR IN_DONT_FOLLOW
    IN_EXCL_UNLINK IN_MASK_CREATE IN_MASK_ADD IN_ISDIR IN_ONESHOT
);
const AT: NameValues = libc!(
    AT_SYMLINK_NOFOLLOW AT_REMOVEDIR AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH
    AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC AT_RECURSIVE
);
const STATX: NameValues = libc!(
    STATX_TYPE STATX_MODE STATX_NLINK STATX_UID STATX_GID STATX_ATIME STATX_MTIME STATX_CTIME
    STATX_INO STATX_SIZE STATX_BLOCKS STATX_BTIME STATX_MNT_ID
);
/// Operations of keyctl(2) (linux/keyctl.h).
const KEYCTL: NameValues = &[
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
/// Magic numbers of file systems (linux/magic.h).
const FILE_SYSTEMS: NameValues = &[
    ("EXT4_SUPER_MAGIC", 0xef53),
    ("XFS_SUPER_MAGIC", 0x5846_5342),
    ("BTRFS_SUPER_MAGIC", 0x9123_683e),
    ("TMPFS_MAGIC", 0x0102_1994),
    ("PROC_SUPER_MAGIC", 0x9fa0),
    ("SYSFS_MAGIC", 0x6265_6572),
    ("CGROUP_SUPER_MAGIC", 0x0027_e0eb),
    ("CGROUP2_SUPER_MAGIC", 0x6367_7270),
    ("OVERLAYFS_SUPER_MAGIC", 0x794c_7630),
    ("NFS_SUPER_MAGIC", 0x6969),
    ("MSDOS_SUPER_MAGIC", 0x4d44),
    ("SQUASHFS_MAGIC", 0x7371_7368),
    ("DEVPTS_SUPER_MAGIC", 0x1cd1),
    ("PIPEFS_MAGIC", 0x5049_5045),
    ("SOCKFS_MAGIC", 0x534f_434b),
    ("NSFS_MAGIC", 0x6e73_6673),
    ("BPF_FS_MAGIC", 0xcafe_4a11),
    ("TRACEFS_MAGIC", 0x7472_6163),
    ("DEBUGFS_MAGIC", 0x6462_6720),
    ("HUGETLBFS_MAGIC", 0x9584_58f6),
    ("FUSE_SUPER_MAGIC", 0x6573_5546),
];
/// Commands of membarrier(2) (linux/membarrier.h).
const MEMBARRIER: NameValues = &[
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
/// First operations of io_uring_register(2) (linux/io_uring.h, `enum io_uring_register_op`).
const URING_REGISTER: NameValues = &[
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

/// All sets of names.
static SETS: &[NameSet] = &[
    flag_set("access", &[libc!(F_OK X_OK W_OK R_OK)]),
    choice_set(
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
    flag_set("at", &[AT]),
    flag_set("at_access", &[libc!(AT_SYMLINK_NOFOLLOW AT_EACCESS AT_EMPTY_PATH)]),
    choice_set("bpf", &[BPF]),
    choice_set("clock", &[CLOCKS]),
    mixed_set("clone", 0xff, &[SIGNALS, REAL_TIME_SIGNALS], &[CLONE]),
    flag_set("clone3", &[CLONE, CLONE_BEYOND]),
    flag_set("namespaces", &[CLONE, &[("CLONE_NEWTIME", 0x80)]]),
    flag_set("close_range", &[libc!(CLOSE_RANGE_UNSHARE CLOSE_RANGE_CLOEXEC)]),
    flag_set("epoll_create", &[libc!(EPOLL_CLOEXEC)]),
    flag_set(
        "epoll",
        &[libc!(
            EPOLLIN EPOLLPRI EPOLLOUT EPOLLERR EPOLLHUP EPOLLRDNORM EPOLLRDBAND EPOLLWRNORM
            EPOLLWRBAND EPOLLMSG EPOLLRDHUP EPOLLEXCLUSIVE EPOLLWAKEUP EPOLLONESHOT EPOLLET
        )],
    ),
    choice_set("epoll_op", &[libc!(EPOLL_CTL_ADD EPOLL_CTL_DEL EPOLL_CTL_MOD)]),
    flag_set("eventfd", &[libc!(EFD_SEMAPHORE EFD_NONBLOCK EFD_CLOEXEC)]),
    choice_set(
        "fadvise",
        &[libc!(
            POSIX_FADV_NORMAL POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL POSIX_FADV_WILLNEED
            POSIX_FADV_DONTNEED POSIX_FADV_NOREUSE
        )],
    ),
    flag_set(
        "fallocate",
        &[libc!(
            FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_COLLAPSE_RANGE FALLOC_FL_ZERO_RANGE
            FALLOC_FL_INSERT_RANGE FALLOC_FL_UNSHARE_RANGE
        )],
    ),
    choice_set("family", &[FAMILIES]),
    choice_set("fcntl", &[FILE_COMMANDS, FILE_COMMANDS_MORE]),
    flag_set("fcntl_arg", FILE_COMMANDS_TAKE),
    mixed_set("flock", 0xb, &[libc!(LOCK_SH LOCK_EX LOCK_UN)], &[libc!(LOCK_NB)]),
    mixed_set(
        "file_type",
        0o170_000,
        &[libc!(S_IFSOCK S_IFLNK S_IFREG S_IFBLK S_IFDIR S_IFCHR S_IFIFO)],
        &[],
    ),
    choice_set("file_system", &[FILE_SYSTEMS]),
    choice_set(
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
    mixed_set(
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
    mixed_set("futex_op", 0x7f, &[FUTEX], &[libc!(FUTEX_PRIVATE_FLAG FUTEX_CLOCK_REALTIME)]),
    flag_set("getrandom", &[libc!(GRND_NONBLOCK GRND_RANDOM GRND_INSECURE)]),
    flag_set("inotify", &[INOTIFY]),
    choice_set("ioctl", &[REQUESTS, REQUESTS_OF_DEVICES]),
    choice_set(
        "ioprio_who",
        &[&[("IOPRIO_WHO_PROCESS", 1), ("IOPRIO_WHO_PGRP", 2), ("IOPRIO_WHO_USER", 3)]],
    ),
    mixed_set("ipc", 0, &[], &[libc!(IPC_CREAT IPC_EXCL IPC_NOWAIT)]),
    choice_set("ipc_cmd", &[libc!(IPC_RMID IPC_SET IPC_STAT IPC_INFO SHM_LOCK SHM_UNLOCK)]),
    choice_set("itimer", &[libc!(ITIMER_REAL ITIMER_VIRTUAL ITIMER_PROF)]),
    choice_set(
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
    choice_set("keyctl", &[KEYCTL]),
    choice_set(
        "landlock_rule",
        &[&[("LANDLOCK_RULE_PATH_BENEATH", 1), ("LANDLOCK_RULE_NET_PORT", 2)]],
    ),
    choice_set("madvise", &[MADVISE, &[("MADV_COLLAPSE", 25)]]),
    choice_set("membarrier", &[MEMBARRIER]),
    flag_set("memfd", &[libc!(MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB MFD_NOEXEC_SEAL MFD_EXEC)]),
    flag_set("memfd_secret", &[libc!(O_CLOEXEC)]),
    mixed_set(
        "mempolicy",
        0xfff,
        &[libc!(
            MPOL_DEFAULT MPOL_PREFERRED MPOL_BIND MPOL_INTERLEAVE MPOL_LOCAL
        )],
        &[libc!(MPOL_F_NUMA_BALANCING MPOL_F_RELATIVE_NODES MPOL_F_STATIC_NODES)],
    ),
    flag_set("mlock2", &[libc!(MLOCK_ONFAULT)]),
    flag_set("mlockall", &[libc!(MCL_CURRENT MCL_FUTURE MCL_ONFAULT)]),
    mixed_set(
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
    flag_set("mount", &[MOUNT]),
    flag_set(
        "mount_attr",
        &[libc!(
            MOUNT_ATTR_RDONLY MOUNT_ATTR_NOSUID MOUNT_ATTR_NODEV MOUNT_ATTR_NOEXEC
            MOUNT_ATTR_NOATIME MOUNT_ATTR_STRICTATIME MOUNT_ATTR_NODIRATIME MOUNT_ATTR_IDMAP
            MOUNT_ATTR_NOSYMFOLLOW
        )],
    ),
    flag_set(
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
    flag_set("mremap", &[libc!(MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP)]),
    flag_set("msg", &[MESSAGE]),
    flag_set("msgrcv", &[libc!(IPC_NOWAIT MSG_NOERROR MSG_EXCEPT MSG_COPY)]),
    flag_set("msync", &[libc!(MS_ASYNC MS_INVALIDATE MS_SYNC)]),
    mixed_set("open", 3, &[libc!(O_RDONLY O_WRONLY O_RDWR)], &[OPEN, LARGE_FILE]),
    flag_set("open_flags", &[OPEN]),
    flag_set("open_tree", &[&[("OPEN_TREE_CLONE", 1)], libc!(O_CLOEXEC), AT]),
    flag_set(
        "perf_open",
        &[&[
            ("PERF_FLAG_FD_NO_GROUP", 1),
            ("PERF_FLAG_FD_OUTPUT", 2),
            ("PERF_FLAG_PID_CGROUP", 4),
            ("PERF_FLAG_FD_CLOEXEC", 8),
        ]],
    ),
    mixed_set(
        "personality",
        0xff,
        &[&[("PER_LINUX", 0), ("PER_LINUX32", 8)]],
        &[libc!(
            ADDR_COMPAT_LAYOUT ADDR_NO_RANDOMIZE ADDR_LIMIT_32BIT MMAP_PAGE_ZERO READ_IMPLIES_EXEC
            SHORT_INODE STICKY_TIMEOUTS UNAME26 WHOLE_SECONDS ADDR_LIMIT_3GB
        )],
    ),
    flag_set("pidfd", &[libc!(PIDFD_NONBLOCK), &[("PIDFD_THREAD", 0o200)]]),
    choice_set("prctl", &[PRCTL]),
    mixed_set("prctl_arg", u64::MAX, PRCTL_TAKES, &[]),
    choice_set("priority", &[libc!(PRIO_PROCESS PRIO_PGRP PRIO_USER)]),
    flag_set(
        "poll",
        &[libc!(
            POLLIN POLLPRI POLLOUT POLLERR POLLHUP POLLNVAL POLLRDNORM POLLRDBAND POLLWRNORM
            POLLWRBAND POLLRDHUP
        )],
    ),
    mixed_set("null", u64::MAX, &[&[("NULL", 0)]], &[]),
    flag_set(
        "prot",
        &[libc!(PROT_NONE PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP)],
    ),
    choice_set("protocol", &[PROTOCOLS]),
    choice_set("ptrace", &[PTRACE, PTRACE_X86]),
    choice_set(
        "reboot",
        &[libc!(
            RB_AUTOBOOT RB_HALT_SYSTEM RB_ENABLE_CAD RB_DISABLE_CAD RB_POWER_OFF RB_SW_SUSPEND
            RB_KEXEC
        )],
    ),
    flag_set(
        "resolve",
        &[&[
            ("RESOLVE_NO_XDEV", 1),
            ("RESOLVE_NO_MAGICLINKS", 2),
            ("RESOLVE_NO_SYMLINKS", 4),
            ("RESOLVE_BENEATH", 8),
            ("RESOLVE_IN_ROOT", 0x10),
            ("RESOLVE_CACHED", 0x20),
        ]],
    ),
    flag_set("rename", &[libc!(RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT)]),
    choice_set("rlimit", &[RESOURCES]),
    mixed_set("rlimit_value", u64::MAX, &[&[("RLIM_INFINITY", u64::MAX)]], &[]),
    flag_set("rseq", &[&[("RSEQ_FLAG_UNREGISTER", 1)]]),
    choice_set("rusage", &[libc!(RUSAGE_SELF RUSAGE_CHILDREN RUSAGE_THREAD)]),
    flag_set("rwf", &[libc!(RWF_HIPRI RWF_DSYNC RWF_SYNC RWF_NOWAIT RWF_APPEND)]),
    mixed_set(
        "sched",
        0x3fff_ffff,
        &[
            libc!(SCHED_OTHER SCHED_FIFO SCHED_RR SCHED_BATCH SCHED_IDLE SCHED_DEADLINE),
            &[("SCHED_EXT", 7)],
        ],
        &[libc!(SCHED_RESET_ON_FORK)],
    ),
    choice_set(
        "seccomp",
        &[libc!(
            SECCOMP_SET_MODE_STRICT SECCOMP_SET_MODE_FILTER SECCOMP_GET_ACTION_AVAIL
            SECCOMP_GET_NOTIF_SIZES
        )],
    ),
    flag_set(
        "seccomp_flags",
        &[libc!(
            SECCOMP_FILTER_FLAG_TSYNC SECCOMP_FILTER_FLAG_LOG SECCOMP_FILTER_FLAG_SPEC_ALLOW
            SECCOMP_FILTER_FLAG_NEW_LISTENER SECCOMP_FILTER_FLAG_TSYNC_ESRCH
        )],
    ),
    choice_set(
        "sem_cmd",
        &[libc!(
            IPC_RMID IPC_SET IPC_STAT IPC_INFO GETPID GETVAL GETALL GETNCNT GETZCNT SETVAL SETALL
        )],
    ),
    flag_set("shmat", &[libc!(SHM_RDONLY SHM_RND SHM_REMAP SHM_EXEC)]),
    choice_set("shutdown", &[libc!(SHUT_RD SHUT_WR SHUT_RDWR)]),
    choice_set("signal", &[SIGNALS, REAL_TIME_SIGNALS]),
    mixed_set("handler", u64::MAX, &[&[("SIG_DFL", 0), ("SIG_IGN", 1)]], &[]),
    flag_set(
        "signal_flags",
        &[
            libc!(SA_NOCLDSTOP SA_NOCLDWAIT SA_SIGINFO SA_ONSTACK SA_RESTART SA_NODEFER),
            &[("SA_RESETHAND", 0x8000_0000), ("SA_RESTORER", 0x0400_0000)],
        ],
    ),
    choice_set("sigprocmask", &[libc!(SIG_BLOCK SIG_UNBLOCK SIG_SETMASK)]),
    flag_set("socket_flags", &[SOCKET_FLAGS]),
    choice_set(
        "socket_level",
        &[
            libc!(
                SOL_SOCKET SOL_IP SOL_TCP SOL_UDP SOL_IPV6 SOL_ICMPV6 SOL_RAW SOL_PACKET
                SOL_NETLINK SOL_TIPC SOL_BLUETOOTH SOL_ALG SOL_XDP
            ),
            &[
                ("SOL_SCTP", 132),
                ("SOL_UDPLITE", 136),
                ("SOL_CAN_RAW", 101),
                ("SOL_TLS", 282),
                ("SOL_VSOCK", 287),
            ],
        ],
    ),
    mixed_set(
        "socket_option",
        u64::MAX,
        &[SOCKET_OPTIONS, IP_OPTIONS, IPV6_OPTIONS, TCP_OPTIONS, OTHER_OPTIONS],
        &[],
    ),
    mixed_set(
        "socket_type",
        0xf,
        &[
            libc!(SOCK_STREAM SOCK_DGRAM SOCK_RAW SOCK_RDM SOCK_SEQPACKET SOCK_DCCP),
            &[("SOCK_PACKET", 10)],
        ],
        &[SOCKET_FLAGS],
    ),
    flag_set("splice", &[libc!(SPLICE_F_MOVE SPLICE_F_NONBLOCK SPLICE_F_MORE SPLICE_F_GIFT)]),
    flag_set("statx", &[STATX]),
    flag_set("swapon", &[&[("SWAP_FLAG_PREFER", 0x8000), ("SWAP_FLAG_DISCARD", 0x10000)]]),
    flag_set(
        "sync_range",
        &[libc!(
            SYNC_FILE_RANGE_WAIT_BEFORE SYNC_FILE_RANGE_WRITE SYNC_FILE_RANGE_WAIT_AFTER
        )],
    ),
    choice_set(
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
    flag_set("timer", &[libc!(TIMER_ABSTIME)]),
    flag_set("timerfd", &[libc!(TFD_TIMER_ABSTIME TFD_TIMER_CANCEL_ON_SET)]),
    flag_set("umount", &[libc!(MNT_FORCE MNT_DETACH MNT_EXPIRE UMOUNT_NOFOLLOW)]),
    flag_set(
        "uring_enter",
        &[&[
            ("IORING_ENTER_GETEVENTS", 1),
            ("IORING_ENTER_SQ_WAKEUP", 2),
            ("IORING_ENTER_SQ_WAIT", 4),
            ("IORING_ENTER_EXT_ARG", 8),
            ("IORING_ENTER_REGISTERED_RING", 16),
        ]],
    ),
    choice_set("uring_register", &[URING_REGISTER]),
    flag_set(
        "wait",
        &[libc!(WNOHANG WUNTRACED WEXITED WCONTINUED WNOWAIT __WNOTHREAD __WALL __WCLONE)],
    ),
    choice_set("waitid", &[libc!(P_ALL P_PID P_PGID P_PIDFD)]),
    choice_set("whence", &[libc!(SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE)]),
    flag_set("xattr", &[libc!(XATTR_CREATE XATTR_REPLACE)]),
];

/// Results of calls that the kernel restarts, or ends with EINTR, after a signal (linux/errno.h).
const RESTARTS: NameValues = &[
    ("ERESTARTSYS", 512),
    ("ERESTARTNOINTR", 513),
    ("ERESTARTNOHAND", 514),
    ("ENOIOCTLCMD", 515),
    ("ERESTART_RESTARTBLOCK", 516),
];
/// Error numbers (errno(3)).
const ERRORS: NameValues = libc!(
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
