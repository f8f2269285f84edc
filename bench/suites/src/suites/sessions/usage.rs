//! Resource usage of other processes: CPU time, memory, file descriptors.

use std::fs;
use std::io;
use std::time::Duration;

use trackway_bench_engine::error::{Error, Result};

/// Number of bytes of a KiB.
pub(super) const KIB: f64 = 1024.0;

/// Returns the CPU time of all threads of these processes, in ns, in user and kernel mode.
pub(super) fn cpu_ns(pids: &[u32]) -> Result<u64> {
    pids.iter().map(|&pid| cpu_ns_of(pid)).sum()
}

fn cpu_ns_of(pid: u32) -> Result<u64> {
    let mut clock = 0;
    // SAFETY: `clock` is a live variable of the right type.
    let result = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) };
    let fail = || Error::io(format!("cannot read the CPU time of process {pid}"));
    if result != 0 {
        return Err(fail()(io::Error::from_raw_os_error(result)));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live variable of the right type.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(fail()(io::Error::last_os_error()));
    }
    Ok(time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResidentMemory {
    /// Bytes of resident memory, including shared memory.
    pub(super) all_bytes: u64,
    /// Bytes of private memory, without files and shared memory.
    pub(super) own_bytes: u64,
}

/// Returns the sum of the resident memory of these processes.
pub(super) fn resident_memory(pids: &[u32]) -> Result<ResidentMemory> {
    let mut sum = ResidentMemory::default();
    for pid in pids {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).map_err(Error::io(format!("cannot read {path}")))?;
        let one =
            parse_resident_memory(&status).ok_or_else(|| Error::output(path, "it has no RSS"))?;
        sum.all_bytes += one.all_bytes;
        sum.own_bytes += one.own_bytes;
    }
    Ok(sum)
}

/// Parses the resident memory in the format of proc_pid_status(5).
fn parse_resident_memory(status: &str) -> Option<ResidentMemory> {
    let bytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    };
    Some(ResidentMemory { all_bytes: bytes("VmRSS:")?, own_bytes: bytes("RssAnon:")? })
}

/// Returns the number of open file descriptors of a process: the least of several counts, which
/// excludes short-lived descriptors.
pub(super) fn count_descriptors(pid: u32) -> Result<u64> {
    const LOOKS: u32 = 5;
    const INTERVAL: Duration = Duration::from_millis(30);
    let path = format!("/proc/{pid}/fd");
    let mut fewest = u64::MAX;
    for _ in 0..LOOKS {
        let entries = fs::read_dir(&path).map_err(Error::io(format!("cannot read {path}")))?;
        fewest = fewest.min(entries.count() as u64);
        std::thread::sleep(INTERVAL);
    }
    Ok(fewest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_s_own_usage_grows() {
        let me = [std::process::id()];
        let before = cpu_ns(&me).expect("a clock");
        let mut sum = 0_u64;
        while cpu_ns(&me).expect("a clock") <= before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let file = fs::File::open("/proc/self/status").expect("a file");
        assert!(count_descriptors(me[0]).expect("descriptors") >= 1);
        drop(file);
        let resident = resident_memory(&me).expect("memory");
        assert!(resident.all_bytes >= resident.own_bytes && resident.own_bytes > 0);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\ta\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\nRssFile:\t 4 kB\n";
        let expected = ResidentMemory { all_bytes: 2 << 20, own_bytes: 512 << 10 };
        assert_eq!(parse_resident_memory(status), Some(expected));
        assert_eq!(parse_resident_memory("Name:\tkthreadd\n"), None);
    }
}
