//! Other processes that use the machine during the check, and other tracers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::CheckOutcome;
use super::system_files::SystemFiles;

/// Part of a CPU from which on a process is listed by name.
const BUSY_MIN: f64 = 0.02;
/// Largest accepted part of all CPUs that other processes use.
const LOAD_MAX: f64 = 0.05;
/// Largest accepted part of a CPU that the host of a virtual machine takes away.
const STOLEN_MAX: f64 = 0.005;
/// Largest part of the last ten seconds, in percent, that processes may have waited for a resource.
const PRESSURE_MAX: f64 = 1.0;
/// Names of programs that trace, as in the kernel: at most fifteen characters.
const TRACER_PROGRAMS: [&str; 12] = [
    "lttng-sessiond",
    "lttng-consumerd",
    "lttng-relayd",
    "perf",
    "bpftrace",
    "strace",
    "uftrace",
    "stapio",
    "sysdig",
    "trace-cmd",
    "trackway",
    "gdb",
];

/// CPU time of processes and of CPUs, in ticks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CpuTicks {
    /// Name and ticks of processes, by process id.
    processes: BTreeMap<u32, (String, u64)>,
    /// Ticks of all CPUs: total, idle, stolen.
    all: u64,
    idle: u64,
    stolen: u64,
}

impl CpuTicks {
    pub(super) fn read(system: &SystemFiles) -> Self {
        let mut times = Self::default();
        let stat = system.text("proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        // cpu user nice system idle iowait irq softirq steal guest guest_nice; guests are in user.
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        times.all = ticks.iter().sum();
        times.idle = ticks.iter().skip(3).take(2).sum();
        times.stolen = ticks.get(7).copied().unwrap_or_default();
        for name in system.names("proc") {
            let Ok(pid) = name.parse() else { continue };
            let text = system.text(&format!("proc/{name}/stat")).unwrap_or_default();
            times.processes.extend(parse_process_stat(&text).map(|found| (pid, found)));
        }
        times
    }
}

/// Parses the name and the ticks of a process in its line of /proc/PID/stat. The name is in
/// parentheses, and may contain parentheses.
fn parse_process_stat(line: &str) -> Option<(String, u64)> {
    let (before, after) = line.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let words: Vec<&str> = after.split_whitespace().collect();
    let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    Some((name.to_owned(), ticks(11)? + ticks(12)?))
}

/// Runs all checks; observes other processes for the time `watched`.
pub(super) fn run_checks(system: &SystemFiles, watched: Duration) -> Vec<CheckOutcome> {
    let before = CpuTicks::read(system);
    let begin = Instant::now();
    std::thread::sleep(watched);
    let after = CpuTicks::read(system);
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    let seconds = begin.elapsed().as_secs_f64().max(1e-3);
    let per_tick = 1.0 / ticks / seconds;
    vec![
        check_cpu_use(&before, &after, per_tick),
        check_stolen_time(&before, &after),
        check_pressure(system),
        check_running_tracers(&after),
        check_tracefs(system),
        check_bpf_programs(system, count_bpf_programs()),
    ]
}

pub(super) fn check_cpu_use(before: &CpuTicks, after: &CpuTicks, per_tick: f64) -> CheckOutcome {
    let own = std::process::id();
    let mut users: Vec<(f64, &str, u32)> = Vec::new();
    for (pid, (name, ticks)) in &after.processes {
        let was = before.processes.get(pid).map_or(0, |one| one.1);
        let part = ticks.saturating_sub(was) as f64 * per_tick;
        if *pid != own && part >= BUSY_MIN {
            users.push((part, name, *pid));
        }
    }
    users.sort_by(|one, other| other.0.total_cmp(&one.0));
    let all = after.all.saturating_sub(before.all);
    let idle = after.idle.saturating_sub(before.idle);
    let part = if all == 0 { 0.0 } else { all.saturating_sub(idle) as f64 / all as f64 };
    let words: Vec<String> = users
        .iter()
        .take(4)
        .map(|(part, name, pid)| format!("{name} ({pid}) {:.0} %", part * 100.0))
        .collect();
    let mut fact = format!("{:.0} % of all CPUs were in use for a second", part * 100.0);
    if !words.is_empty() {
        fact += &format!("; of one CPU: {}", words.join(", "));
    }
    if part <= LOAD_MAX && users.is_empty() {
        return CheckOutcome::good("others", fact);
    }
    let why = "they take CPUs and caches from what is measured";
    CheckOutcome::disturbance("others", fact, why, "wait until they have ended, or stop them")
}

pub(super) fn check_stolen_time(before: &CpuTicks, after: &CpuTicks) -> CheckOutcome {
    let all = after.all.saturating_sub(before.all).max(1) as f64;
    let part = after.stolen.saturating_sub(before.stolen) as f64 / all;
    let since = after.stolen as f64 / after.all.max(1) as f64;
    let fact = format!(
        "{:.1} % of a second, {:.2} % since the machine began",
        part * 100.0,
        since * 100.0
    );
    if part <= STOLEN_MAX && since <= STOLEN_MAX {
        return CheckOutcome::good("stolen time", fact);
    }
    let why = "the host gave our CPUs to others meanwhile: outliers of milliseconds";
    let hint = "take a machine whose CPUs are its own, or more --rounds";
    CheckOutcome::disturbance("stolen time", fact, why, hint)
}

/// Checks the time that processes wait for resources, by the kernel's pressure stall information.
pub(super) fn check_pressure(system: &SystemFiles) -> CheckOutcome {
    let mut waits = Vec::new();
    let mut is_supported = false;
    for what in ["cpu", "memory", "io"] {
        let text = system.text(&format!("proc/pressure/{what}")).unwrap_or_default();
        let average = text.split_whitespace().find_map(|word| word.strip_prefix("avg10="));
        let Some(average) = average.and_then(|word| word.parse::<f64>().ok()) else { continue };
        is_supported = true;
        if average > PRESSURE_MAX {
            waits.push(format!("{what} {average} %"));
        }
    }
    if !is_supported {
        return CheckOutcome::good("pressure", "not told here (PSI)");
    }
    if waits.is_empty() {
        return CheckOutcome::good("pressure", "nobody waited in the last ten seconds");
    }
    let fact = format!("somebody waited in the last ten seconds for {}", waits.join(", "));
    let why = "what is measured would wait, too";
    CheckOutcome::disturbance("pressure", fact, why, "end what uses it: top, iotop, free")
}

pub(super) fn check_running_tracers(times: &CpuTicks) -> CheckOutcome {
    let own = std::process::id();
    let found: Vec<String> = times
        .processes
        .iter()
        .filter(|(pid, (name, _))| **pid != own && TRACER_PROGRAMS.contains(&name.as_str()))
        .map(|(pid, (name, _))| format!("{name} ({pid})"))
        .collect();
    if found.is_empty() {
        return CheckOutcome::good("tracers", "none runs");
    }
    CheckOutcome::disturbance(
        "tracers",
        found.join(", "),
        "what others trace costs what is measured, and is not ours to see",
        "end their sessions first (lttng destroy --all, trackway session destroy --all)",
    )
}

pub(super) fn check_tracefs(system: &SystemFiles) -> CheckOutcome {
    let folders = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
    let tracer = |folder: &&&str| system.text(&format!("{folder}/current_tracer")).is_some();
    let Some(folder) = folders.iter().find(tracer) else {
        return CheckOutcome::good("tracefs", "not mounted, or not for us to read");
    };
    let mut active = Vec::new();
    let text = |path: &str| system.text(&format!("{folder}/{path}")).unwrap_or_default();
    if text("current_tracer") != "nop" {
        active.push(format!("tracer {}", text("current_tracer")));
    }
    if matches!(text("events/enable").as_str(), "1" | "X") {
        active.push("events are enabled".to_owned());
    }
    let instances = system.names(&format!("{folder}/instances"));
    if !instances.is_empty() {
        let few: Vec<&str> = instances.iter().take(4).map(String::as_str).collect();
        active.push(format!("{} instances: {}", instances.len(), few.join(", ")));
    }
    if active.is_empty() {
        return CheckOutcome::good("tracefs", "nothing is traced by it");
    }
    CheckOutcome::disturbance(
        "tracefs",
        active.join("; "),
        "each event that the kernel records for others is in our figures",
        format!(
            "echo nop > /{folder}/current_tracer; echo 0 > /{folder}/events/enable; \
             rmdir /{folder}/instances/NAME"
        ),
    )
}

pub(super) fn check_bpf_programs(system: &SystemFiles, loaded: Option<usize>) -> CheckOutcome {
    if system.number("proc/sys/kernel/bpf_stats_enabled") == Some(1) {
        return CheckOutcome::disturbance(
            "bpf",
            "the kernel measures each BPF program (bpf_stats_enabled)",
            "each run of each program reads the clock twice",
            "sysctl kernel.bpf_stats_enabled=0",
        );
    }
    match loaded {
        None => CheckOutcome::good("bpf", "which programs are loaded, only root is told"),
        Some(0) => CheckOutcome::good("bpf", "no program is loaded"),
        Some(count) => CheckOutcome::good("bpf", format!("{count} programs are loaded")).with(
            "those on system calls and tracepoints run with what is measured",
            "bpftool prog, and end who has loaded what traces",
        ),
    }
}

/// Returns the number of BPF programs in the kernel; `None` without the right to list them.
fn count_bpf_programs() -> Option<usize> {
    /// BPF_PROG_GET_NEXT_ID (include/uapi/linux/bpf.h).
    const NEXT_PROGRAM: libc::c_int = 11;
    const PROGRAMS_MAX: usize = 100_000;
    // start_id, next_id, open_flags.
    let mut attributes = [0_u32; 3];
    for count in 0..PROGRAMS_MAX {
        let (pointer, size) = (attributes.as_mut_ptr(), size_of_val(&attributes));
        // SAFETY: the kernel reads and writes `size` bytes of attributes, which are ours.
        let result = unsafe { libc::syscall(libc::SYS_bpf, NEXT_PROGRAM, pointer, size) };
        if result != 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            return (error == Some(libc::ENOENT)).then_some(count);
        }
        attributes[0] = attributes[1];
    }
    Some(PROGRAMS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_read_whatever_their_names_are() {
        let line = "42 (a) (b) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0";
        assert_eq!(parse_process_stat(line), Some(("a) (b".to_owned(), 333)));
        assert_eq!(parse_process_stat("42 (short) S 1"), None);
        assert_eq!(parse_process_stat(""), None);
    }

    #[test]
    fn who_uses_cpus_is_named() {
        let times = |ticks: u64, all, idle, stolen| CpuTicks {
            processes: [(7, ("hog".to_owned(), ticks)), (8, ("perf".to_owned(), 0))].into(),
            all,
            idle,
            stolen,
        };
        let (before, after) = (times(10, 1000, 900, 0), times(60, 1200, 1000, 20));
        let found = check_cpu_use(&before, &after, 0.01);
        assert!(found.fact.contains("50 % of all CPUs") && found.fact.contains("hog (7) 50 %"));
        assert_eq!(found.result, super::super::CheckResult::Disturbs);
        assert_eq!(check_cpu_use(&before, &before, 0.01).result, super::super::CheckResult::Good);
        assert!(check_stolen_time(&before, &after).fact.starts_with("10.0 % of a second"));
        assert_eq!(check_stolen_time(&before, &after).result, super::super::CheckResult::Disturbs);
        assert_eq!(check_running_tracers(&after).fact, "perf (8)");
    }
}
