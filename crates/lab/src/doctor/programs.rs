//! What adapters need: programs, and what we may do.

use std::path::Path;

use super::Disturbance;
use super::seen::Seen;
use crate::place::has;

/// Programs, what of Debian's has them, and who needs them.
const PROGRAMS: [(&str, &str, &str); 17] = [
    ("cc", "gcc", "nearly all rows"),
    ("c++", "g++", "rows of C++"),
    ("clang", "clang", "filters beside C"),
    ("cargo", "rustup or cargo", "rows of Rust, Tracy, fastrace"),
    ("lttng", "lttng-tools", "LTTng-UST"),
    ("babeltrace2", "babeltrace2", "LTTng-UST's traces, reading"),
    ("perf", "linux-perf", "perf"),
    ("bpftrace", "bpftrace", "bpftrace"),
    ("strace", "strace", "strace"),
    ("uftrace", "uftrace", "uftrace"),
    ("stap", "systemtap", "SystemTap, which needs kernel modules"),
    ("hackbench", "rt-tests", "workload"),
    ("cyclictest", "rt-tests", "latency"),
    ("stress-ng", "stress-ng", "workload"),
    ("dbench", "dbench", "workload"),
    ("sqlite3", "sqlite3", "workload"),
    ("valgrind", "valgrind", "instructions, where the kernel steps none"),
];
/// Headers likewise.
const HEADERS: [(&str, &str, &str); 2] = [
    ("lttng/tracepoint.h", "liblttng-ust-dev", "LTTng-UST"),
    ("sys/sdt.h", "systemtap-sdt-dev", "USDT: uprobes of ftrace, perf and bpftrace"),
];
/// Where headers are.
const INCLUDE: [&str; 3] = ["usr/include", "usr/local/include", "usr/include/x86_64-linux-gnu"];

/// All checks.
pub(super) fn all(seen: &Seen) -> Vec<Disturbance> {
    let lacking = PROGRAMS.iter().filter(|one| !has(one.0));
    let is_there =
        |header: &str| INCLUDE.iter().any(|dir| Path::new("/").join(dir).join(header).is_file());
    let headers = HEADERS.iter().filter(|one| !is_there(one.0));
    let lacking: Vec<(&str, &str, &str)> = lacking.chain(headers).copied().collect();
    vec![programs(&lacking), user(seen)]
}

pub(super) fn programs(lacking: &[(&str, &str, &str)]) -> Disturbance {
    if lacking.is_empty() {
        return Disturbance::good("programs", "all that adapters need");
    }
    let words: Vec<String> =
        lacking.iter().map(|(name, _, who)| format!("{name} ({who})")).collect();
    let mut packages: Vec<&str> = lacking.iter().map(|one| one.1).collect();
    packages.sort_unstable();
    packages.dedup();
    Disturbance::missing(
        "programs",
        format!("not installed: {}", words.join(", ")),
        "rows that need them will be absent, or need something else",
        format!("apt install {}", packages.join(" ")),
    )
}

/// What we may do to the kernel.
pub(super) fn user(seen: &Seen) -> Disturbance {
    let capabilities = seen.value("proc/self/status", "CapEff").unwrap_or_default();
    let capabilities = u64::from_str_radix(&capabilities, 16).unwrap_or(0);
    // Numbers of include/uapi/linux/capability.h.
    let has_one = |number: u32| capabilities & (1 << number) != 0;
    let lacking: Vec<&str> = [("CAP_SYS_ADMIN", 21), ("CAP_PERFMON", 38), ("CAP_BPF", 39)]
        .iter()
        .filter(|one| !has_one(one.1))
        .map(|one| one.0)
        .collect();
    let paranoid = seen.number("proc/sys/kernel/perf_event_paranoid");
    let level = paranoid.map_or_else(|| "not told".to_owned(), |level| level.to_string());
    if lacking.is_empty() {
        let fact = format!("may trace the kernel (perf_event_paranoid is {level})");
        return Disturbance::good("permissions", fact);
    }
    Disturbance::missing(
        "permissions",
        format!("without {} (perf_event_paranoid is {level})", lacking.join(", ")),
        "tracers of the kernel will be absent: ftrace, perf, bpftrace, trackway record --kernel",
        "run trackway bench as root",
    )
}
