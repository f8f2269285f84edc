//! The configuration of the machine: its clocks, its CPUs, its memory.

use std::collections::BTreeMap;

use super::CheckOutcome;
use super::system_files::SystemFiles;

/// Folder of all CPUs.
const CPU_FOLDER: &str = "sys/devices/system/cpu";

/// Runs all checks.
pub(super) fn run_checks(system: &SystemFiles) -> Vec<CheckOutcome> {
    vec![
        check_hypervisor(system),
        check_frequency_governor(system),
        check_turbo(system),
        check_smt_siblings(system),
        check_cpu_isolation(system),
        check_clock_source(system),
        check_timer_resolution(system),
        check_huge_pages(system),
        check_swap_use(system),
        check_cpu_quota(system),
        check_realtime_throttling(system),
        check_nmi_watchdog(system),
        check_mitigations(system),
    ]
}

fn check_hypervisor(system: &SystemFiles) -> CheckOutcome {
    // Only x86 processors have this line.
    let Some(flags) = system.value("proc/cpuinfo", "flags") else {
        return CheckOutcome::good("hypervisor", "not known: this processor does not tell");
    };
    if !flags.split(' ').any(|flag| flag == "hypervisor") {
        return CheckOutcome::good("hypervisor", "none that is told: a real machine");
    }
    CheckOutcome::disturbance(
        "hypervisor",
        "this is a virtual machine",
        "its host takes CPUs away and moves them; figures wander from minute to minute",
        "compare only within one run, by ratios; use a real machine for nanoseconds",
    )
}

fn check_frequency_governor(system: &SystemFiles) -> CheckOutcome {
    let mut governors: BTreeMap<String, usize> = BTreeMap::new();
    for cpu in system.names(CPU_FOLDER) {
        if let Some(governor) = system.text(&format!("{CPU_FOLDER}/{cpu}/cpufreq/scaling_governor"))
        {
            *governors.entry(governor).or_default() += 1;
        }
    }
    let words: Vec<String> =
        governors.iter().map(|(name, count)| format!("{name} on {count} CPUs")).collect();
    match governors.keys().find(|name| *name != "performance") {
        None if governors.is_empty() => {
            CheckOutcome::good("frequency", "the kernel sets none here: the host or firmware does")
        }
        None => CheckOutcome::good("frequency", words.join(", ")),
        Some(_) => CheckOutcome::disturbance(
            "frequency",
            words.join(", "),
            "CPUs begin slow, and become fast while something is measured",
            "cpupower frequency-set -g performance (Debian: linux-cpupower)",
        ),
    }
}

fn check_turbo(system: &SystemFiles) -> CheckOutcome {
    let no_turbo = format!("{CPU_FOLDER}/intel_pstate/no_turbo");
    let boost = format!("{CPU_FOLDER}/cpufreq/boost");
    let (is_on, hint) = match (system.number(&no_turbo), system.number(&boost)) {
        (Some(off), _) => (off == 0, format!("echo 1 > /{no_turbo}")),
        (None, Some(on)) => (on == 1, format!("echo 0 > /{boost}")),
        (None, None) => return CheckOutcome::good("turbo", "not told here"),
    };
    if !is_on {
        return CheckOutcome::good("turbo", "off");
    }
    let why = "how fast a CPU is depends on how warm it is, and on what the others do";
    CheckOutcome::disturbance("turbo", "on", why, hint)
}

fn check_smt_siblings(system: &SystemFiles) -> CheckOutcome {
    if system.number(&format!("{CPU_FOLDER}/smt/active")) != Some(1) {
        return CheckOutcome::good(
            "siblings",
            "each CPU has a core of its own, or they are not told",
        );
    }
    CheckOutcome::disturbance(
        "siblings",
        "CPUs share cores (SMT)",
        "two threads on one core take execution units and caches from each other",
        format!("echo off > /{CPU_FOLDER}/smt/control, or taskset to one CPU of each core"),
    )
}

fn check_cpu_isolation(system: &SystemFiles) -> CheckOutcome {
    let isolated = system.text(&format!("{CPU_FOLDER}/isolated")).unwrap_or_default();
    let fact = match isolated.as_str() {
        "" => "no CPU is kept free of other work".to_owned(),
        cpus => format!("CPUs {cpus} are kept free of other work"),
    };
    CheckOutcome::good("isolation", fact).with(
        "the scheduler, its clock and interrupts come in between; matters for the suite latency",
        "boot with isolcpus=LIST nohz_full=LIST rcu_nocbs=LIST, and run trackway bench by taskset",
    )
}

fn check_clock_source(system: &SystemFiles) -> CheckOutcome {
    let folder = "sys/devices/system/clocksource/clocksource0";
    let source = system.text(&format!("{folder}/current_clocksource")).unwrap_or_default();
    match source.as_str() {
        // Programs read these clocks without a system call, through the vDSO.
        "tsc"
        | "kvm-clock"
        | "hyperv_clocksource_tsc_page"
        | "arch_sys_counter"
        | "riscv_clocksource" => CheckOutcome::good("clock", source),
        other => CheckOutcome::disturbance(
            "clock",
            if other.is_empty() { "not told" } else { other },
            "a clock that the kernel must be called for costs a microsecond: every tracer's time",
            format!("echo tsc > /{folder}/current_clocksource, if the machine offers it"),
        ),
    }
}

fn check_timer_resolution(system: &SystemFiles) -> CheckOutcome {
    // /proc/timer_list would have a line ".resolution: 1 nsecs" for each clock, but only root can
    // read it. clock_getres(2) returns the same value.
    let _ = system;
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `resolution` is a timespec of ours.
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC, &raw mut resolution) };
    judge_timer_resolution((result == 0).then_some(resolution.tv_nsec))
}

/// Judges the resolution that clock_getres(2) returns, in ns.
fn judge_timer_resolution(resolution_ns: Option<i64>) -> CheckOutcome {
    match resolution_ns {
        Some(1) => CheckOutcome::good("timers", "of high resolution: 1 ns"),
        other => CheckOutcome::disturbance(
            "timers",
            other.map_or_else(|| "not told".to_owned(), |ns| format!("resolution of {ns} ns")),
            "who sleeps is woken at ticks: latencies and rates are those of ticks",
            "boot without highres=off, on a kernel with CONFIG_HIGH_RES_TIMERS",
        ),
    }
}

fn check_huge_pages(system: &SystemFiles) -> CheckOutcome {
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = system.text(path).unwrap_or_default();
    let chosen = text.split(' ').find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("always") => CheckOutcome::disturbance(
            "huge pages",
            "made by the kernel as it likes (always)",
            "a program that gets them is faster than the same one that does not",
            format!("echo madvise > /{path}"),
        ),
        Some(other) => CheckOutcome::good("huge pages", other),
        None => CheckOutcome::good("huge pages", "not told here"),
    }
}

fn check_swap_use(system: &SystemFiles) -> CheckOutcome {
    let kib = |name: &str| -> Option<u64> {
        system.value("proc/meminfo", name)?.split(' ').next()?.parse().ok()
    };
    let (total, free) = (kib("SwapTotal").unwrap_or(0), kib("SwapFree").unwrap_or(0));
    match total.saturating_sub(free) {
        0 => CheckOutcome::good("swap", if total == 0 { "none" } else { "not used" }),
        used => CheckOutcome::disturbance(
            "swap",
            format!("{} MiB are in it", used / 1024),
            "who touches memory that is in it waits for a disk",
            "swapoff -a, if there is memory enough",
        ),
    }
}

/// Checks the CPU limit of the control group: versions 2 and 1.
fn check_cpu_quota(system: &SystemFiles) -> CheckOutcome {
    let groups = system.text("proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let is_cpu = controllers.split(',').any(|one| one == "cpu");
        let mut path = path.trim_start_matches('/').to_owned();
        // Each group is bounded by those above it, up to the root.
        for _ in 0..64 {
            let limit = if controllers.is_empty() {
                let text = system.text(&format!("sys/fs/cgroup/{path}/cpu.max"));
                text.filter(|text| !text.starts_with("max"))
            } else if is_cpu {
                let quota = system.number(&format!("sys/fs/cgroup/cpu/{path}/cpu.cfs_quota_us"));
                quota.filter(|quota| *quota > 0).map(|quota| format!("{quota} µs of each period"))
            } else {
                None
            };
            if let Some(limit) = limit {
                return CheckOutcome::disturbance(
                    "quota",
                    format!("the control group /{path} may have CPUs for {limit}"),
                    "when it has had its share it stands still, up to the end of a period",
                    "run trackway bench in a group without a limit: systemd-run --scope, as root",
                );
            }
            match path.rfind('/') {
                Some(at) => path.truncate(at),
                None if path.is_empty() => break,
                None => path.clear(),
            }
        }
    }
    CheckOutcome::good("quota", "no control group limits CPUs")
}

fn check_realtime_throttling(system: &SystemFiles) -> CheckOutcome {
    match system.number("proc/sys/kernel/sched_rt_runtime_us") {
        Some(-1) => CheckOutcome::good("real time", "never stopped"),
        None => CheckOutcome::good("real time", "not told here"),
        Some(us) => CheckOutcome::good(
            "real time",
            format!("threads of real-time priority have {us} µs of each second at most"),
        )
        .with(
            "the suite latency never needs that much; a test that spins would be stopped",
            "sysctl kernel.sched_rt_runtime_us=-1",
        ),
    }
}

fn check_nmi_watchdog(system: &SystemFiles) -> CheckOutcome {
    match system.number("proc/sys/kernel/nmi_watchdog") {
        Some(1) => CheckOutcome::disturbance(
            "watchdog",
            "the kernel looks for CPUs that hang (nmi_watchdog)",
            "it takes a hardware counter, and interrupts each CPU every few seconds",
            "sysctl kernel.nmi_watchdog=0",
        ),
        _ => CheckOutcome::good("watchdog", "off"),
    }
}

fn check_mitigations(system: &SystemFiles) -> CheckOutcome {
    let folder = format!("{CPU_FOLDER}/vulnerabilities");
    let names = system.names(&folder);
    let mitigated: Vec<String> = names
        .into_iter()
        .filter(|name| {
            let text = system.text(&format!("{folder}/{name}")).unwrap_or_default();
            text.starts_with("Mitigation")
        })
        .collect();
    if mitigated.is_empty() {
        return CheckOutcome::good("mitigations", "none is told");
    }
    CheckOutcome::good("mitigations", format!("of {}", mitigated.join(", "))).with(
        "system calls and traps cost more with them: say it with the figures of kernel tracers",
        "mitigations=off at boot, only on a machine that nobody else uses",
    )
}

#[cfg(test)]
pub(super) fn timer_outcome_for_test(resolution_ns: Option<i64>) -> CheckOutcome {
    judge_timer_resolution(resolution_ns)
}
