//! The machine's CPUs, and visits that run a thread once on each CPU.
//!
//! The kernel aborts restartable sequences when it switches threads. So a sequence that ran when a
//! session's generation changed has ended once another thread has run on its CPU. A visit to every
//! CPU is thus a grace period for all processes, without their help.

use crate::error::RecordError;
use trackway_sys::Errno;
use trackway_sys::thread::CpuSet;

/// Most CPUs that a machine can have.
const CPUS_MAX: u32 = 8192;

/// Environment variable with which tests simulate a larger number of possible CPUs.
const TEST_VARIABLE: &str = "TRACKWAY_TEST_CPUS";

/// Returns the number of possible CPUs of the machine; every CPU id is lower.
pub(crate) fn possible_cpu_count() -> u32 {
    let found = read_cpu_list("/sys/devices/system/cpu/possible")
        .last()
        .map_or_else(available_cpu_count, |last| last + 1);
    let claimed = std::env::var(TEST_VARIABLE).ok().and_then(|text| text.parse().ok());
    claimed.unwrap_or(0).clamp(found, CPUS_MAX)
}

/// Returns the CPUs that are online.
pub(crate) fn online_cpus() -> Vec<u32> {
    let online = read_cpu_list("/sys/devices/system/cpu/online");
    if online.is_empty() { (0..available_cpu_count()).collect() } else { online }
}

/// Returns the CPUs that are present, whether online or offline.
pub(crate) fn present_cpus() -> Vec<u32> {
    let present = read_cpu_list("/sys/devices/system/cpu/present");
    if present.is_empty() { online_cpus() } else { present }
}

fn available_cpu_count() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}

/// Reads CPU ids from a file in the kernel's list format: `0-3,8,10-11`.
fn read_cpu_list(path: &str) -> Vec<u32> {
    std::fs::read_to_string(path).map(|text| parse_cpu_list(&text)).unwrap_or_default()
}

/// Parses a user's list of CPUs, all of which must be online.
pub(crate) fn parse_user_cpus(list: &str) -> Result<Vec<u32>, RecordError> {
    let failed = |why: String| RecordError::Kernel(format!("--cpu {list}: {why}"), None);
    let is_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse::<u32>(), last.parse()), (Ok(first), Ok(last)) if first <= last)
    };
    if !list.split(',').all(is_range) {
        let (why, hint) = ("it is no list of CPUs", "as in --cpu 0,2-3".to_owned());
        return Err(RecordError::Kernel(format!("--cpu {list}: {why}"), Some(hint)));
    }
    let (chosen, online) = (parse_cpu_list(list), online_cpus());
    match chosen.iter().find(|cpu| !online.contains(cpu)) {
        Some(cpu) => Err(failed(format!("there is no CPU {cpu}"))),
        None => Ok(chosen),
    }
}

fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            ids.extend(first..=last.min(CPUS_MAX - 1));
        }
    }
    ids
}

/// Runs the thread once on every online CPU and restores its CPU set. Returns false if a cpuset(7)
/// withholds a CPU, where old sequences may still be alive.
pub(crate) fn visit_all() -> bool {
    visit_all_with(|_| ())
}

/// Calls `visitor` on every online CPU. Returns true if all CPUs could be visited.
pub(crate) fn visit_all_with(visitor: impl FnMut(u32)) -> bool {
    visit_each(&online_cpus(), visitor)
}

/// Runs the thread once on each of these CPUs that is online and restores its CPU set. Returns true
/// if all of them could be visited.
pub(crate) fn visit_cpus(cpus: &[u32]) -> bool {
    let online = online_cpus();
    let cpus: Vec<u32> = cpus.iter().copied().filter(|cpu| online.contains(cpu)).collect();
    visit_each(&cpus, |_| ())
}

fn visit_each(cpus: &[u32], mut visitor: impl FnMut(u32)) -> bool {
    let Ok(before) = CpuSet::current() else { return false };
    let mut complete = true;
    for &cpu in cpus {
        match CpuSet::only(cpu).apply() {
            Ok(()) => visitor(cpu),
            // The CPU went offline meanwhile: no thread runs on it.
            Err(Errno(libc::EINVAL)) if !online_cpus().contains(&cpu) => {}
            Err(_) => complete = false,
        }
    }
    // If the former CPU set cannot be restored, the thread may run on any CPU, which is harmless.
    let _ = before.apply();
    complete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_cpu_list("0\n"), [0]);
        assert_eq!(parse_cpu_list("x,3-"), Vec::<u32>::new());
        assert_eq!(parse_user_cpus("0").expect("it is there"), [0]);
        for wrong in ["", "0,", "1-0", "a", "0-4000000000", "8191"] {
            assert!(parse_user_cpus(wrong).is_err(), "{wrong}");
        }
        assert!(parse_cpu_list("0-4000000000").len() <= CPUS_MAX as usize);
    }

    #[test]
    fn every_cpu_is_visited() {
        let mut visited = Vec::new();
        if visit_all_with(|cpu| visited.push((cpu, trackway_sys::thread::current_cpu()))) {
            assert_eq!(visited.len(), online_cpus().len());
            assert!(visited.iter().all(|(wanted, got)| wanted == got));
        }
    }
}
