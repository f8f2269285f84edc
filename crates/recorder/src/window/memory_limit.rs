//! Memory that this process's control group may still allocate.
//!
//! The kernel charges buffers to the process that allocates them, the recorder. In a group at its
//! limit, fallocate(2) does not fail: the kernel kills a process of the group. So the recorder
//! checks the limit first. Supports both versions of cgroups
//! (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux); unreadable files
//! count as no limit.

use std::fs;
use std::path::Path;

/// Mount point of cgroups.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// Most levels of the group hierarchy that are checked.
const LEVELS_MAX: usize = 32;
/// Divisor of the limit that gives the share reserved for the group's other processes.
const RESERVED_SHARE: u64 = 8;

/// Names of the limit files of one cgroup version.
struct LimitFiles {
    limit: &'static str,
    usage: &'static str,
    /// Lines of memory.stat that count page cache, which the kernel reclaims when it needs memory.
    reclaimable: [&'static str; 2],
}

const VERSION_1: LimitFiles = LimitFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: LimitFiles = LimitFiles {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// Returns the number of bytes that may be allocated without coming near a limit: of any group of
/// this process, or of the machine, whose memory may be smaller than a tmpfs in it.
pub(crate) fn headroom_bytes() -> u64 {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_headroom(&text));
    headroom_below(Path::new(CGROUP_ROOT), &membership).min(of_machine.unwrap_or(u64::MAX))
}

/// Returns the bytes that a machine with this /proc/meminfo (proc_meminfo(5)) may still allocate.
fn machine_headroom(meminfo: &str) -> Option<u64> {
    let bytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(bytes("MemAvailable")?.saturating_sub(bytes("MemTotal")? / RESERVED_SHARE))
}

/// Returns the headroom in bytes of the groups in `membership` (format of /proc/PID/cgroup),
/// mounted at `root`.
fn headroom_below(root: &Path, membership: &str) -> u64 {
    let mut least = u64::MAX;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let (mount, files) = if controllers.is_empty() {
            (root.to_owned(), VERSION_2)
        } else if controllers.split(',').any(|name| name == "memory") {
            (root.join("memory"), VERSION_1)
        } else {
            continue;
        };
        // In a container the group may be mounted as the root itself: the walk ends there.
        for level in Path::new(group.trim_start_matches('/')).ancestors().take(LEVELS_MAX) {
            least = least.min(group_headroom(&mount.join(level), &files).unwrap_or(u64::MAX));
        }
    }
    least
}

fn group_headroom(group: &Path, files: &LimitFiles) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // The text "max" is not a number and means no limit.
    let limit = number(files.limit)?;
    let usage = number(files.usage)?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable: u64 = statistics
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| files.reclaimable.contains(name))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add);
    Some((limit - limit / RESERVED_SHARE).saturating_sub(usage.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_group_files(group: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(group).unwrap();
        for (name, text) in files {
            fs::write(group.join(name), text).unwrap();
        }
    }

    #[test]
    fn a_machine_keeps_an_eighth_of_its_memory() {
        let text = "MemTotal:       800 kB\nMemFree:   1 kB\nMemAvailable:    300 kB\n";
        assert_eq!(machine_headroom(text), Some(200 << 10));
        assert_eq!(machine_headroom("MemTotal: 800 kB\nMemAvailable: 5 kB"), Some(0));
        assert_eq!(machine_headroom("MemTotal: 800 kB\nMemAvailable: many"), None);
        assert!(headroom_bytes() > 0);
    }

    #[test]
    fn the_tightest_group_counts() {
        let name = format!("trackway-test-cgroup-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let statistics = ("memory.stat", "inactive_file 100\nactive_file 50\nanon 3\n");
        write_group_files(
            &root.join("a"),
            &[("memory.max", "8000"), ("memory.current", "650"), statistics],
        );
        write_group_files(&root.join("a/b"), &[("memory.max", "max"), ("memory.current", "600")]);
        assert_eq!(headroom_below(&root, "0::/a/b\n"), 7000 - 500);
        let statistics = ("memory.stat", "inactive_file 7\ntotal_inactive_file 100\n");
        write_group_files(
            &root.join("memory/c"),
            &[("memory.limit_in_bytes", "800"), ("memory.usage_in_bytes", "800"), statistics],
        );
        assert_eq!(headroom_below(&root, "3:cpu:/c\n2:memory,hugetlb:/c\n0::/\n"), 0);
        assert_eq!(headroom_below(&root, "3:cpu:/c\nnonsense\n"), u64::MAX);
        fs::remove_dir_all(&root).unwrap();
    }
}
