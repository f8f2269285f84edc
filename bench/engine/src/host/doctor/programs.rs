//! Needs of adapters: programs and privileges.

use std::collections::BTreeMap;

use super::CheckOutcome;
use super::system_files::SystemFiles;
use crate::host::requirements::{Need, Requirements};

/// Runs all checks.
pub(super) fn run_checks(requirements: &Requirements, system: &SystemFiles) -> Vec<CheckOutcome> {
    let mut found = check_programs(&requirements.lacking());
    found.push(check_privileges(system));
    found
}

/// Returns a line for each missing package.
pub(super) fn check_programs(lacking: &[Need]) -> Vec<CheckOutcome> {
    if lacking.is_empty() {
        return vec![CheckOutcome::good("programs", "all that suites need")];
    }
    let mut packages: BTreeMap<&str, Vec<&Need>> = BTreeMap::new();
    for need in lacking {
        packages.entry(need.package).or_default().push(need);
    }
    let missing = |(package, needs): (&str, Vec<&Need>)| {
        let names: Vec<&str> = needs.iter().map(|need| need.name).collect();
        let mut rows: Vec<&str> = needs.iter().map(|need| need.rows).collect();
        rows.dedup();
        CheckOutcome::missing(
            "programs",
            format!("not found: {}", names.join(", ")),
            &format!("these rows will be absent: {}", rows.join("; ")),
            format!("apt install {package} (Debian)"),
        )
    };
    packages.into_iter().map(missing).collect()
}

/// Checks the privileges of the user.
pub(super) fn check_privileges(system: &SystemFiles) -> CheckOutcome {
    let capabilities = system.value("proc/self/status", "CapEff").unwrap_or_default();
    let capabilities = u64::from_str_radix(&capabilities, 16).unwrap_or(0);
    // Numbers of include/uapi/linux/capability.h.
    let has_one = |number: u32| capabilities & (1 << number) != 0;
    let lacking: Vec<&str> = [("CAP_SYS_ADMIN", 21), ("CAP_PERFMON", 38), ("CAP_BPF", 39)]
        .iter()
        .filter(|one| !has_one(one.1))
        .map(|one| one.0)
        .collect();
    let paranoid = system.number("proc/sys/kernel/perf_event_paranoid");
    let level = paranoid.map_or_else(|| "not told".to_owned(), |level| level.to_string());
    if lacking.is_empty() {
        let fact = format!("may trace the kernel (perf_event_paranoid is {level})");
        return CheckOutcome::good("permissions", fact);
    }
    CheckOutcome::missing(
        "permissions",
        format!("without {} (perf_event_paranoid is {level})", lacking.join(", ")),
        "tracers of the kernel will be absent: ftrace, perf, bpftrace, trackway record --kernel",
        "run trackway bench as root",
    )
}
