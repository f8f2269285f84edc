//! Checks of the kernel, the processor, the C library, and this process's limits.

use std::fs;
use std::path::PathBuf;

use trackway_abi::window::{DATA_OFFSET, GRANULE_BYTES, WINDOW_BYTES};
use trackway_recorder::checkup::{self, Cpus};
use trackway_recorder::{BufferOptions, ByteCount};
use trackway_sys::process::{self, Resource, Users, outer_user};
use trackway_sys::{Errno, thread};
use trackway_window::SessionLayout;

use super::{Finding, window};

/// Inode numbers of the machine's initial namespaces (include/linux/proc_ns.h).
pub(super) const INITIAL_PID_NAMESPACE: u64 = 0xeffffffc;

/// The user who owns recordings.
#[derive(Debug)]
pub(super) struct User {
    uid: u32,
    /// The user's id outside this user namespace; `None`: the id is not mapped.
    outside: Option<u32>,
    /// The user who called sudo(8).
    by_sudo: Option<String>,
}

impl User {
    pub(super) fn inspect() -> Self {
        let uid = Users::current().effective();
        let calls = std::env::var("SUDO_UID").ok().filter(|caller| uid == 0 && caller != "0");
        let by_sudo = calls.map(|caller| std::env::var("SUDO_USER").unwrap_or(caller));
        Self { uid, outside: outer_user(uid), by_sudo }
    }

    pub(super) fn check(&self) -> Finding {
        let Self { uid, .. } = self;
        let who = if *uid == 0 { "root".into() } else { format!("user {uid}") };
        match (self.outside, &self.by_sudo) {
            (None, _) => Finding::missing(
                format!("{who} is nobody outside this user namespace (/proc/self/uid_map)"),
                "map the user: unshare --map-root-user, or newuidmap",
            ),
            (_, Some(caller)) => Finding::limited(
                format!("root by sudo: trackway record works as {caller}"),
                format!("run trackway doctor as {caller}, without sudo"),
            ),
            (Some(outside), None) if outside != *uid => {
                Finding::good(format!("{who}; user {outside} outside this user namespace"))
            }
            _ => Finding::good(who),
        }
    }
}

/// The visibility of processes.
#[derive(Debug)]
pub(super) struct Processes {
    /// True if /proc shows this process its own file descriptors.
    has_proc: bool,
    /// Inode number of this process's process-id namespace.
    namespace: u64,
}

impl Processes {
    pub(super) fn inspect() -> Self {
        let has_proc = fs::metadata("/proc/self/fd").is_ok();
        Self { has_proc, namespace: process::pid_namespace() }
    }

    pub(super) fn check(&self) -> Finding {
        match self {
            Self { has_proc: false, .. } => {
                Finding::missing("/proc is not mounted", "mount -t proc proc /proc")
            }
            Self { namespace: INITIAL_PID_NAMESPACE, .. } => Finding::good("mounted"),
            _ => Finding::good(
                "mounted; in a container (process-id namespace), whose processes can be traced",
            ),
        }
    }
}

/// The memory that buffers need on this machine, in bytes.
#[derive(Debug, Clone, Copy)]
struct BufferNeeds {
    /// The least memory with which a recording can start.
    least: u64,
    /// The memory of a recording with default options.
    usual: u64,
}

impl BufferNeeds {
    fn for_cpus(cpus: &Cpus) -> Option<Self> {
        let online = (cpus.online.len() as u64).max(1);
        let plan = BufferOptions::default().plan().ok()?;
        let control = SessionLayout::control_bytes(cpus.possible, 0);
        // Two sub-buffers of each sequence region and one of each claim region: `Recording::build`.
        let least_data = (2 << plan.sub_shift) + (2 << plan.claim_sub_shift);
        let whole = |bytes: u64| bytes.next_multiple_of(GRANULE_BYTES);
        Some(Self {
            least: whole(control) + whole(online * least_data),
            usual: whole(control) + whole(online * plan.initial_bytes_per_cpu(online)),
        })
    }
}

/// The memory available for buffers, and its limits. `None`: no limit.
#[derive(Debug)]
pub(super) struct Memory {
    need: Option<BufferNeeds>,
    /// Bytes that the window itself needs, without buffers.
    window_bytes: u64,
    /// Length of the window's file, in bytes.
    backed_bytes: u64,
    folder: PathBuf,
    free: Option<u64>,
    group: Option<u64>,
    file_length: Option<u64>,
    address_space: Option<u64>,
}

impl Memory {
    pub(super) fn inspect(window: &window::WindowState) -> Self {
        let backed_bytes = window.backed_bytes();
        Self {
            need: BufferNeeds::for_cpus(&Cpus::detect()),
            window_bytes: if backed_bytes == 0 { DATA_OFFSET as u64 } else { 0 },
            backed_bytes,
            folder: window.folder().to_owned(),
            free: window.free_bytes(),
            group: Some(checkup::headroom_bytes()).filter(|&bytes| bytes != u64::MAX),
            file_length: process::limit_of(Resource::FileLength),
            address_space: process::limit_of(Resource::AddressSpace),
        }
    }

    /// Returns all limits: the bytes that each leaves for buffers, the limiter, and a remedy.
    fn limits(&self) -> impl Iterator<Item = (u64, String, String)> {
        let Self { folder, .. } = self;
        let free = self.free.map(|bytes| {
            let left = bytes.saturating_sub(self.window_bytes);
            (left, format!("in {}", folder.display()), window::format_enlarge_command(folder))
        });
        let group = self.group.map(|bytes| {
            let left = bytes.saturating_sub(self.window_bytes);
            (left, "in the control group".into(), "raise its memory limit (memory.max)".into())
        });
        let length = self.file_length.map(|bytes| {
            let left = bytes.saturating_sub(self.backed_bytes + self.window_bytes);
            (left, "within the limit on files' length".into(), "ulimit -f unlimited".into())
        });
        [free, group, length].into_iter().flatten()
    }

    pub(super) fn check(&self) -> Finding {
        let tightest = self.limits().min_by_key(|(bytes, ..)| *bytes);
        let (Some(need), Some((left, place, remedy))) = (self.need, tightest) else {
            return Finding::good("nothing limits it");
        };
        let room = format!("{} for buffers {place}", ByteCount(left));
        if left < need.least {
            let fact = format!("{room}; a recording needs {}", ByteCount(need.least));
            return Finding::missing(fact, remedy);
        }
        // By default, a recording takes at most half of the available memory.
        if left / 2 < need.usual {
            let fact = format!("{room}; with {} fewer events are lost", ByteCount(2 * need.usual));
            return Finding::limited(fact, remedy);
        }
        // Programs map as much of the window as their address space permits.
        match self.address_space {
            Some(bytes) if bytes < WINDOW_BYTES => Finding::limited(
                format!("{room}; address space is limited to {}", ByteCount(bytes)),
                "ulimit -v unlimited: else programs may not see the whole window",
            ),
            _ => Finding::good(room),
        }
    }
}

/// The support for restartable sequences, beginning with the kernel's.
#[derive(Debug)]
pub(super) struct RestartableSequences {
    has_machine: bool,
    has_kernel: bool,
    /// The version of glibc.
    glibc: Option<&'static str>,
    is_registered: bool,
    tunables: String,
    /// True if sequences abort as they must; `None` if the test was impossible.
    abort: Option<bool>,
    is_refused: bool,
}

impl RestartableSequences {
    pub(super) fn inspect(is_refused: bool) -> Self {
        Self {
            has_machine: cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
            has_kernel: thread::kernel_has_sequences(),
            glibc: process::glibc_version(),
            is_registered: !thread::rseq_area().is_null(),
            tunables: std::env::var("GLIBC_TUNABLES").unwrap_or_default(),
            abort: checkup::sequences_abort(),
            is_refused,
        }
    }

    pub(super) fn check(&self) -> Finding {
        let limited = |why: &str, hint: &str| {
            Finding::limited(format!("{why}: records go by claim, which is slower"), hint)
        };
        if !self.has_machine {
            return limited("not on this processor", "x86-64 and AArch64 have them");
        }
        // If the kernel does not support sequences, none can be registered.
        if !self.has_kernel {
            return limited(
                "the kernel refuses rseq(2)",
                "CONFIG_RSEQ=y; no sandbox that forbids it",
            );
        }
        if !self.is_registered {
            return match self.glibc {
                _ if self.tunables.contains("glibc.pthread.rseq=0") => limited(
                    "switched off by glibc.pthread.rseq=0",
                    "start programs without that in GLIBC_TUNABLES",
                ),
                Some(version) => limited(
                    &format!("glibc {version} registers none"),
                    "glibc 2.35 and later do; under valgrind there are none",
                ),
                None => limited("the C library registers none", "glibc 2.35 and later do"),
            };
        }
        match self.abort {
            Some(false) => limited(
                "they are not aborted as they must be (an emulator, a debugger?)",
                "record where the program runs on a Linux kernel directly",
            ),
            _ if self.is_refused => limited(
                "the window says that they do not work here, as was found out once",
                "if that has changed: remove the window while nothing is recorded",
            ),
            Some(true) => Finding::good(match self.glibc {
                Some(version) => format!("registered by glibc {version}, aborted when preempted"),
                None => "aborted when preempted".into(),
            }),
            None => Finding::good(
                "registered; not tested, since this process may not be moved, or gets no thread",
            ),
        }
    }
}

/// The clock that timestamps use.
#[derive(Debug)]
pub(super) struct Clock {
    is_invariant: bool,
    /// The kernel's current clock source, and its available sources.
    current: String,
    available: String,
    /// True if the kernel reports if it trusts the counter.
    is_judged_by_kernel: bool,
}

/// Clock sources that clock_gettime(2) reads without a system call (CLOCK_MONOTONIC in the vDSO).
const VDSO_CLOCK_SOURCES: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"];

impl Clock {
    pub(super) fn inspect() -> Self {
        let read = |name| {
            let folder = "/sys/devices/system/clocksource/clocksource0";
            let text = fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
            text.trim().to_owned()
        };
        Self {
            is_invariant: checkup::counter_is_invariant(),
            current: read("current_clocksource"),
            available: read("available_clocksource"),
            is_judged_by_kernel: cfg!(target_arch = "x86_64"),
        }
    }

    pub(super) fn check(&self) -> Finding {
        let has = |wanted: &str| self.available.split_whitespace().any(|name| name == wanted);
        let current = if self.current.is_empty() { "unknown" } else { self.current.as_str() };
        let source = format!("the kernel's source is {current}");
        if self.is_invariant {
            return match self.is_judged_by_kernel && !self.available.is_empty() && !has("tsc") {
                true => Finding::limited(
                    format!("the kernel does not trust the processor's counter; {source}"),
                    "dmesg | grep -i tsc says why; where it jumps, traces say that the clock did",
                ),
                false => Finding::good(format!("the processor's counter, at one speed; {source}")),
            };
        }
        if VDSO_CLOCK_SOURCES.contains(&current) {
            return Finding::limited(
                format!("no counter of one speed: each record asks the C library; {source}"),
                "a virtual machine may be given an invariant TSC by its host",
            );
        }
        Finding::limited(
            format!("no counter of one speed: each record is a system call; {source}"),
            match self.available.split_whitespace().find(|name| VDSO_CLOCK_SOURCES.contains(name)) {
                Some(better) => format!("the source {better} needs none, if it is sound"),
                None => "a virtual machine may be given an invariant TSC by its host".into(),
            },
        )
    }
}

/// Checks that this process can run on every CPU.
pub(super) fn check_cpus(cpus: &Cpus) -> Finding {
    let (online, possible) = (cpus.online.len(), cpus.possible);
    let all = match possible as usize == online {
        true => format!("{online} online"),
        false => format!("{online} online of {possible} possible"),
    };
    if cpus.withheld.is_empty() {
        return Finding::good(format!("{all}; this process may run on each"));
    }
    Finding::limited(
        format!("{all}; this process may not run on {}", format_cpu_ranges(&cpus.withheld)),
        "a cpuset with all CPUs: without, memory of ended recordings is not used again",
    )
}

/// Formats ascending numbers like the kernel's CPU lists: `0-3,8`.
fn format_cpu_ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        parts.push(match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(u32::to_string).collect(),
        });
    }
    parts.join(",")
}

/// Features of the kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    release: String,
    /// The result of restarting all sequences of a process at once: membarrier(2).
    restarts: Result<(), Errno>,
}

impl Kernel {
    pub(super) fn inspect() -> Self {
        Self { release: read_kernel_release(), restarts: process::restart_sequences() }
    }

    pub(super) fn check(&self) -> Finding {
        let Self { release, restarts } = self;
        match restarts {
            Ok(()) => Finding::good(format!("Linux {release}")),
            Err(errno) => Finding::limited(
                format!("Linux {release} refuses membarrier(2) for sequences: {errno}"),
                "Linux 5.10; without, a process that becomes another user may lose a record",
            ),
        }
    }
}

pub(super) fn read_kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Access to exit statuses of processes that are not children.
#[derive(Debug)]
pub(super) struct ExitStatusAccess {
    can_tell: bool,
    release: String,
}

impl ExitStatusAccess {
    pub(super) fn inspect() -> Self {
        Self { can_tell: process::can_query_exits(), release: read_kernel_release() }
    }

    pub(super) fn check(&self) -> Finding {
        match self.can_tell {
            true => Finding::good("the kernel says by which signal any process died (pidfd)"),
            false => Finding::limited(
                format!("Linux {} does not say how processes died", self.release),
                "Linux 6.15 does: for snapshots at crashes",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    /// Checks the texts of fact and hint; returns the verdict.
    fn verdict_of(finding: &Finding, fact: &str, hint: &str) -> Verdict {
        assert!(finding.fact.contains(fact), "{finding:?}");
        assert!(finding.hint.as_deref().unwrap_or_default().contains(hint), "{finding:?}");
        finding.verdict
    }

    #[test]
    fn users_are_who_they_are_outside() {
        let judge = |uid, outside, by_sudo: Option<&str>| {
            User { uid, outside, by_sudo: by_sudo.map(str::to_owned) }.check()
        };
        assert_eq!(judge(0, Some(0), None), Finding::good("root"));
        assert_eq!(judge(7, Some(7), None), Finding::good("user 7"));
        let mapped = judge(0, Some(1000), None);
        assert_eq!(verdict_of(&mapped, "user 1000 outside", ""), Verdict::Good);
        assert_eq!(verdict_of(&judge(7, None, None), "is nobody", "unshare"), Verdict::Missing);
        let sudo = judge(0, Some(0), Some("ada"));
        assert_eq!(verdict_of(&sudo, "works as ada", "as ada"), Verdict::Limited);
    }

    #[test]
    fn proc_is_needed() {
        let judge = |has_proc, namespace| Processes { has_proc, namespace }.check();
        assert_eq!(judge(true, INITIAL_PID_NAMESPACE), Finding::good("mounted"));
        assert_eq!(verdict_of(&judge(true, 77), "container", ""), Verdict::Good);
        assert_eq!(verdict_of(&judge(false, 0), "not mounted", "mount -t proc"), Verdict::Missing);
    }

    #[test]
    fn the_tightest_limit_counts() {
        const MIB: u64 = 1 << 20;
        let memory = || Memory {
            need: Some(BufferNeeds { least: MIB, usual: 8 * MIB }),
            window_bytes: 2 * MIB,
            backed_bytes: 0,
            folder: "/dev/shm".into(),
            free: Some(18 * MIB),
            group: None,
            file_length: None,
            address_space: None,
        };
        let good = memory().check();
        assert_eq!(verdict_of(&good, "16.0 MiB for buffers in /dev/shm", ""), Verdict::Good);
        let small = Memory { free: Some(17 * MIB), ..memory() }.check();
        assert_eq!(verdict_of(&small, "with 16.0 MiB", "remount,size="), Verdict::Limited);
        let group = Memory { group: Some(2 * MIB), ..memory() }.check();
        assert_eq!(
            verdict_of(&group, "0 bytes for buffers in the control", "max"),
            Verdict::Missing
        );
        let file = Memory { file_length: Some(9 * MIB), backed_bytes: MIB, ..memory() }.check();
        assert_eq!(verdict_of(&file, "6.0 MiB for buffers within", "ulimit -f"), Verdict::Limited);
        let space = Memory { address_space: Some(MIB), ..memory() }.check();
        assert_eq!(verdict_of(&space, "limited to 1.0 MiB", "ulimit -v"), Verdict::Limited);
        let unknown = Memory { free: None, ..memory() }.check();
        assert_eq!(unknown.verdict, Verdict::Good);
    }

    #[test]
    fn what_a_recording_needs_grows_with_the_machine() {
        let need = |cpus: u32| {
            BufferNeeds::for_cpus(&Cpus {
                possible: cpus,
                online: (0..cpus).collect(),
                withheld: Vec::new(),
            })
            .expect("sizes")
        };
        let (small, large) = (need(2), need(64));
        assert!(small.least < small.usual && small.least < large.least, "{small:?} {large:?}");
        assert!(small.usual > 8 << 20, "two buffers of 4 MiB: {small:?}");
    }

    fn working_sequences() -> RestartableSequences {
        RestartableSequences {
            has_machine: true,
            has_kernel: true,
            glibc: Some("2.36"),
            is_registered: true,
            tunables: String::new(),
            abort: Some(true),
            is_refused: false,
        }
    }

    #[test]
    fn sequences_are_explained_from_the_kernel_up() {
        assert_eq!(verdict_of(&working_sequences().check(), "glibc 2.36", ""), Verdict::Good);
        let untested = RestartableSequences { abort: None, ..working_sequences() };
        assert_eq!(verdict_of(&untested.check(), "not tested", ""), Verdict::Good);
        let none =
            || RestartableSequences { is_registered: false, abort: None, ..working_sequences() };
        let off = || "a=b:glibc.pthread.rseq=0".to_owned();
        let cases = [
            (RestartableSequences { has_machine: false, ..none() }, "processor", "AArch64"),
            (
                RestartableSequences { has_kernel: false, ..none() },
                "refuses rseq(2)",
                "CONFIG_RSEQ",
            ),
            (
                RestartableSequences { tunables: off(), ..none() },
                "glibc.pthread.rseq=0",
                "GLIBC_TUNABLES",
            ),
            (
                RestartableSequences { glibc: Some("2.31"), ..none() },
                "glibc 2.31 registers none",
                "2.35",
            ),
            (
                RestartableSequences { glibc: None, ..none() },
                "the C library registers none",
                "2.35",
            ),
            (
                RestartableSequences { abort: Some(false), ..working_sequences() },
                "not aborted",
                "directly",
            ),
            (
                RestartableSequences { is_refused: true, ..working_sequences() },
                "the window says",
                "remove",
            ),
        ];
        for (seen, fact, hint) in cases {
            assert_eq!(verdict_of(&seen.check(), fact, hint), Verdict::Limited);
        }
        // A later setting enables sequences again.
        let on =
            RestartableSequences { tunables: "glibc.pthread.rseq=1".into(), ..working_sequences() };
        assert_eq!(on.check().verdict, Verdict::Good);
    }

    #[test]
    fn clocks_cost_what_they_cost() {
        let judge = |is_invariant, current: &str, available: &str| {
            let (current, available) = (current.to_owned(), available.to_owned());
            Clock { is_invariant, current, available, is_judged_by_kernel: true }.check()
        };
        let good = judge(true, "tsc", "tsc hpet");
        assert_eq!(
            verdict_of(&good, "at one speed; the kernel's source is tsc", ""),
            Verdict::Good
        );
        assert_eq!(judge(true, "kvm-clock", "kvm-clock tsc").verdict, Verdict::Good);
        assert_eq!(verdict_of(&judge(true, "", ""), "unknown", ""), Verdict::Good);
        let unstable = judge(true, "hpet", "hpet acpi_pm");
        assert_eq!(verdict_of(&unstable, "does not trust", "dmesg"), Verdict::Limited);
        let quick = judge(false, "kvm-clock", "kvm-clock");
        assert_eq!(verdict_of(&quick, "asks the C library", "invariant TSC"), Verdict::Limited);
        let slow = judge(false, "hpet", "hpet kvm-clock");
        assert_eq!(verdict_of(&slow, "system call", "source kvm-clock"), Verdict::Limited);
        let hopeless = judge(false, "hpet", "hpet");
        assert_eq!(verdict_of(&hopeless, "system call", "invariant TSC"), Verdict::Limited);
    }

    #[test]
    fn cpus_that_are_withheld_are_named() {
        let judge = |withheld: &[u32]| {
            let (online, withheld) = ((0..8).collect(), withheld.to_vec());
            check_cpus(&Cpus { possible: 16, online, withheld })
        };
        assert_eq!(
            judge(&[]),
            Finding::good("8 online of 16 possible; this process may run on each")
        );
        let some = judge(&[0, 3, 4, 5, 7]);
        assert_eq!(verdict_of(&some, "may not run on 0,3-5,7", "cpuset"), Verdict::Limited);
        assert_eq!(format_cpu_ranges(&[u32::MAX - 1, u32::MAX]), "4294967294-4294967295");
    }

    #[test]
    fn old_kernels_are_told_what_newer_ones_do() {
        let kernel = |restarts| Kernel { release: "5.4".into(), restarts }.check();
        assert_eq!(kernel(Ok(())), Finding::good("Linux 5.4"));
        let old = kernel(Err(Errno(libc::EINVAL)));
        assert_eq!(verdict_of(&old, "Linux 5.4", "5.10"), Verdict::Limited);
        let crashes = |can_tell| ExitStatusAccess { can_tell, release: "6.1".into() }.check();
        assert_eq!(crashes(true).verdict, Verdict::Good);
        assert_eq!(verdict_of(&crashes(false), "Linux 6.1", "6.15"), Verdict::Limited);
    }
}
