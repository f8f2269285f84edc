//! Requirements of suites on the machine.
//!
//! Main invariant: these are exactly the programs that the suites search or start; a test reads the
//! suites' sources.

use trackway_bench_engine::host::requirements::{Need, Requirements};

/// The requirements of all suites.
pub(crate) const REQUIREMENTS: Requirements =
    Requirements { programs: &PROGRAMS, headers: &HEADERS };

const fn build_need(
    name: &'static str,
    package: &'static str,
    rows: &'static str,
    version: &'static str,
) -> Need {
    Need { name, package, rows, version }
}

/// Programs that the suites search or start.
const PROGRAMS: [Need; 28] = [
    build_need("cc", "gcc", "nearly all", "--version"),
    build_need("c++", "g++", "trackway-c++, tracy", "--version"),
    build_need("clang", "clang", "clang of preload; filter's C is compiled by gcc", "--version"),
    build_need("cargo", "cargo", "trackway-rust, tracy, fastrace, all of spans", ""),
    build_need("lttng", "lttng-tools", "LTTng's", "--version"),
    build_need("lttng-sessiond", "lttng-tools", "LTTng's", ""),
    build_need("babeltrace2", "babeltrace2", "babeltrace2 of reading and size", "--version"),
    build_need("perf", "linux-perf", "perf, all of breakdown", "--version"),
    build_need("addr2line", "binutils", "all of breakdown", "--version"),
    build_need("bpftrace", "bpftrace", "bpftrace", "--version"),
    build_need("strace", "strace", "strace of syscall", "--version"),
    build_need("uftrace", "uftrace", "uftrace", "--version"),
    build_need("cyclictest", "rt-tests", "cyclictest of latency", ""),
    build_need("hackbench", "rt-tests", "hackbench of workload", ""),
    build_need("stress-ng", "stress-ng", "stress-ng of workload", "--version"),
    build_need("/usr/sbin/apache2", "apache2-bin", "apache2 of workload", "-v"),
    build_need("ab", "apache2-utils", "apache2 of workload", "-V"),
    build_need("redis-benchmark", "redis-tools", "redis of workload", "--version"),
    build_need("sqlite3", "sqlite3", "sqlite3 of workload and preload", "--version"),
    build_need("tbench", "dbench", "tbench of workload", ""),
    build_need("/usr/bin/tbench_srv", "dbench", "tbench of workload", ""),
    build_need("dbench", "dbench", "dbench of workload", ""),
    build_need("python3", "python3", "python3 of preload", "--version"),
    build_need("perl", "perl", "perl of preload", ""),
    build_need("gcc", "gcc", "cc1 of preload", ""),
    build_need("git", "git", "git of preload", "--version"),
    build_need("jq", "jq", "jq of preload", "--version"),
    build_need("bash", "bash", "bash of preload", ""),
];

/// Headers that the suites include.
const HEADERS: [Need; 2] = [
    build_need("lttng/tracepoint.h", "liblttng-ust-dev", "LTTng's", ""),
    build_need("sys/sdt.h", "systemtap-sdt-dev", "ftrace-uprobe, perf, bpftrace", ""),
];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Programs without a row that needs them: the shell, without which no suite can clean up, and
    /// pkg-config, which only finds headers.
    const NOT_NEEDED: [&str; 2] = ["sh", "pkg-config"];

    /// Code before the name of a program that is searched or started.
    const PREFIXES: [&str; 5] =
        ["Command::new(\"", "has(\"", "found.add(\"", "found.add_as(\"", "needs(\""];

    fn collect_sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect_sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs")
                && !path.ends_with("requirements.rs")
            {
                let text = fs::read_to_string(&path).expect("a source");
                let text = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
                found.push((path, text));
            }
        }
    }

    #[test]
    fn the_table_has_what_the_suites_look_for_and_nothing_else() {
        let mut all = Vec::new();
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for package in ["engine", "suites"] {
            collect_sources(&bench.join(package).join("src"), &mut all);
        }
        all.retain(|(path, _)| !path.ends_with("tests.rs") && !path.ends_with("absent.rs"));
        let is_known = |name: &str| {
            NOT_NEEDED.contains(&name) || PROGRAMS.iter().any(|need| need.name == name)
        };
        let mut looked_for = 0;
        for (path, text) in &all {
            for prefix in PREFIXES {
                for rest in text.split(prefix).skip(1) {
                    let name = rest.split('"').next().unwrap_or_default();
                    // A file of tracefs is no program.
                    if !text.contains(&format!("tracefs.{prefix}{name}")) {
                        assert!(is_known(name), "{}: {name} is not in the table", path.display());
                        looked_for += 1;
                    }
                }
            }
        }
        assert!(looked_for > 30, "{looked_for}: the sources are written in another way now");
        for need in PROGRAMS {
            let quoted = format!("\"{}\"", need.name);
            let started = format!("\"{} ", need.name);
            let is_used = all.iter().any(|one| one.1.contains(&quoted) || one.1.contains(&started));
            assert!(is_used, "no suite uses {}", need.name);
        }
    }
}
