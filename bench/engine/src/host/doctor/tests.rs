//! Checks of invented machines.

use std::path::PathBuf;

use super::*;
use crate::host::requirements::{Need, Requirements};

/// A folder with test files, removed when this value is dropped.
struct Root(PathBuf);

impl Root {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("trackway-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        Self(root)
    }

    fn system(&self) -> SystemFiles {
        SystemFiles::at(&self.0)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // An error is ignored: a failed test has already reported its failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn disturbing_names(found: &[CheckOutcome]) -> Vec<&str> {
    let disturbs = found.iter().filter(|one| one.result == CheckResult::Disturbs);
    disturbs.map(|one| one.name.as_str()).collect()
}

#[test]
fn a_noisy_machine_is_told_all_that_disturbs() {
    let cpu = "sys/devices/system/cpu";
    let files = [
        ("proc/cpuinfo", "flags\t\t: fpu hypervisor"),
        (&*format!("{cpu}/cpu0/cpufreq/scaling_governor"), "powersave\n"),
        (&*format!("{cpu}/cpu1/cpufreq/scaling_governor"), "performance\n"),
        (&*format!("{cpu}/intel_pstate/no_turbo"), "0"),
        (&*format!("{cpu}/smt/active"), "1"),
        (&*format!("{cpu}/vulnerabilities/retbleed"), "Mitigation: Enhanced IBRS"),
        (&*format!("{cpu}/vulnerabilities/mds"), "Not affected"),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
        ("proc/meminfo", "SwapTotal: 4096 kB\nSwapFree:  1024 kB"),
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("proc/sys/kernel/nmi_watchdog", "1"),
        ("proc/pressure/cpu", "some avg10=12.50 avg60=0.00 avg300=0.00 total=1"),
        ("sys/kernel/tracing/current_tracer", "function"),
        ("sys/kernel/tracing/events/enable", "X"),
        ("sys/kernel/tracing/instances/left/trace", ""),
        ("proc/sys/kernel/bpf_stats_enabled", "1"),
    ];
    let root = Root::new("noisy", &files);
    let system = root.system();
    let found = settings::run_checks(&system);
    assert_eq!(
        disturbing_names(&found),
        [
            "hypervisor",
            "frequency",
            "turbo",
            "siblings",
            "clock",
            "huge pages",
            "swap",
            "quota",
            "watchdog"
        ]
    );
    let fact = |name: &str| {
        found.iter().find(|one| one.name == name).map(|one| one.fact.clone()).unwrap_or_default()
    };
    assert_eq!(fact("frequency"), "performance on 1 CPUs, powersave on 1 CPUs");
    assert!(fact("quota").contains("/a may have CPUs for 50000 100000"), "{}", fact("quota"));
    assert_eq!(
        (fact("swap"), fact("mitigations")),
        ("3 MiB are in it".into(), "of retbleed".into())
    );
    assert!(found.iter().all(|one| one.result == CheckResult::Good || one.hint.is_some()));
    let others = [
        other_processes::check_pressure(&system),
        other_processes::check_tracefs(&system),
        other_processes::check_bpf_programs(&system, Some(3)),
        settings::timer_outcome_for_test(Some(4_000_000)),
    ];
    assert_eq!(disturbing_names(&others), ["pressure", "tracefs", "bpf", "timers"]);
    assert_eq!(others[1].fact, "tracer function; events are enabled; 1 instances: left");
}

#[test]
fn what_a_machine_is_set_up_for_is_not_said_to_be_wrong_and_not_guessed() {
    let source = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let told = |files: &[(&str, &str)], name: &str| {
        let root = Root::new("set-up", files);
        let found = settings::run_checks(&root.system());
        found.into_iter().find(|one| one.name == name).map(|one| (one.result, one.fact))
    };
    for clock in ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"] {
        assert_eq!(told(&[(source, clock)], "clock"), Some((CheckResult::Good, clock.to_owned())));
    }
    for clock in ["hyperv_clocksource_msr", "hpet", "acpi_pm"] {
        assert_eq!(told(&[(source, clock)], "clock").map(|it| it.0), Some(CheckResult::Disturbs));
    }
    let kind = |info: &str| told(&[("proc/cpuinfo", info)], "hypervisor").expect("it").1;
    assert_eq!(kind("flags\t\t: fpu tsc"), "none that is told: a real machine");
    assert!(kind("Features\t: fp asimd").starts_with("not known"));
}

#[test]
fn a_machine_that_tells_nothing_is_not_said_to_be_noisy_for_it() {
    let root = Root::new("silent", &[]);
    let system = root.system();
    assert_eq!(disturbing_names(&settings::run_checks(&system)), ["clock"]);
    let others = [
        other_processes::check_pressure(&system),
        other_processes::check_tracefs(&system),
        other_processes::check_bpf_programs(&system, None),
    ];
    assert_eq!(disturbing_names(&others), [""; 0]);
    assert_eq!(programs::check_privileges(&system).result, CheckResult::Missing);
    let lacking: Vec<Need> = [
        ("perf", "linux-perf", "perf, all of breakdown"),
        ("hackbench", "rt-tests", "hackbench of workload"),
        ("cyclictest", "rt-tests", "cyclictest of latency"),
    ]
    .map(|(name, package, rows)| Need { name, package, rows, version: "" })
    .into();
    let found = programs::check_programs(&lacking);
    let [perf, rt_tests] = &found[..] else { panic!("{found:?}") };
    assert_eq!(perf.hint.as_deref(), Some("apt install linux-perf (Debian)"));
    assert_eq!(rt_tests.fact, "not found: hackbench, cyclictest");
    let why = "these rows will be absent: hackbench of workload; cyclictest of latency";
    assert_eq!(rt_tests.why.as_deref(), Some(why));
    assert_eq!(programs::check_programs(&[])[0].result, CheckResult::Good);
}

#[test]
fn limits_of_the_first_kind_of_groups_are_found() {
    let files = [
        ("proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/box\n"),
        ("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "20000"),
    ];
    let root = Root::new("groups", &files);
    assert!(disturbing_names(&settings::run_checks(&root.system())).contains(&"quota"));
}

#[test]
fn what_was_found_is_aligned_and_no_terminal_obeys_it() {
    let found = [
        CheckOutcome::good("a", "all well"),
        CheckOutcome::disturbance("bcd", "slow\x1b[2J", "it matters", "do this"),
    ];
    let mut text = Vec::new();
    print_findings(&found, &mut text).expect("a string takes all");
    assert_eq!(
        String::from_utf8(text).expect("UTF-8"),
        "a    good      all well\n\
         bcd  disturbs  slow\\u001b[2J\n               why: it matters\n\
         \x20              hint: do this\n\
         \n1 thing disturbs measurements here\n"
    );
}

#[test]
fn this_machine_can_be_looked_at() {
    let found = run_all_checks(&Requirements { programs: &[], headers: &[] });
    // The check `programs` has one line for each missing package.
    let all = found.iter().map(|one| one.name.as_str()).filter(|name| *name != "programs");
    let names: std::collections::BTreeSet<&str> = all.clone().collect();
    assert_eq!(names.len(), all.count());
    assert!(names.contains("noise") && names.contains("others") && names.contains("permissions"));
}
