//! Traces in another user's folder. That user may rename the folders above a trace, and replace
//! them by links while root writes, but must not make root write to another place.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use trackway_tests::steps::{send_signal, wait_for};
use trackway_tests::{build_dir, has, lossy_text, report_skipped};

use super::kernel_test::KernelTest;
use super::tracefs;

const OTHER_USER: u32 = 65_534;
/// Numbers of the folders after which the recorder is suspended, among the folders that a snapshot
/// opens or makes. The last number is never reached.
const STOP_FOLDERS: std::ops::RangeInclusive<usize> = 1..=6;

/// Another user's folder with root's traces, and a victim folder of root.
struct SwappedFolder {
    test: KernelTest,
    user_folder: PathBuf,
    victim: PathBuf,
}

/// A process that is terminated when this value is dropped.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // On SIGTERM, strace releases the process that it has stopped.
        if let Ok(pid) = i32::try_from(self.0.id()) {
            send_signal(pid, libc::SIGTERM);
        }
        let _ = self.0.wait();
    }
}

impl SwappedFolder {
    fn of(test: KernelTest) -> Option<Self> {
        if !has("strace") {
            report_skipped("strace is not installed");
            return None;
        }
        let [user_folder, victim] = ["theirs", "victim"].map(|name| test.fixture.path(name));
        fs::create_dir(&user_folder).expect("a folder");
        std::os::unix::fs::chown(&user_folder, Some(OTHER_USER), Some(OTHER_USER))
            .expect("root may");
        fs::create_dir_all(victim.join("kernel")).expect("a folder");
        fs::write(victim.join("kernel/precious"), "root's").expect("a file");
        Some(Self { test, user_folder, victim })
    }

    /// Returns all paths below a folder, sorted.
    fn all_in(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut all: Vec<_> = entries
            .flat_map(|entry| {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let inner = if is_folder { Self::all_in(&entry.path()) } else { Vec::new() };
                std::iter::once(entry.path()).chain(inner)
            })
            .collect();
        all.sort();
        all
    }

    fn check_victim(&self, when: &str) {
        let kernel = self.victim.join("kernel");
        let all = Self::all_in(&self.victim);
        assert_eq!(all, [kernel.clone(), kernel.join("precious")], "{when}");
    }

    /// Acts as the other user: moves `name` to `moved`, and puts a link in its place.
    fn swap(&self, name: &str) {
        let script = "[ ! -e \"$1\" ] || mv -T \"$1\" moved; ln -s \"$2\" \"$1\"";
        let mut shell = self.test.fixture.command("sh");
        shell.args(["-c", script, "sh", name]).arg(&self.victim);
        shell.current_dir(&self.user_folder).uid(OTHER_USER).gid(OTHER_USER);
        let done = shell.output().expect("a shell");
        assert!(done.status.success(), "{}", lossy_text(&done.stderr));
    }

    /// Reverts [`Self::swap`].
    fn swap_back(&self, name: &str) {
        fs::remove_file(self.user_folder.join(name)).expect("a link");
        // The rename fails if `name` did not exist before.
        let _ = fs::rename(self.user_folder.join("moved"), self.user_folder.join(name));
    }

    /// Runs a snapshot by the recorder of session `k`. The recorder is suspended after opening
    /// folder number `stop` while `name` is swapped; the disk is full if `fails`. Returns whether
    /// `name` was swapped, and whether a snapshot exists.
    fn snapshot(&self, line: &str, name: &str, stop: usize, fails: bool) -> (bool, bool) {
        let pid = self.test.status("k")["pid"].as_u64().expect("a process id");
        let pid = i32::try_from(pid).expect("a process id");
        let log = self.test.fixture.path("log");
        let _ = fs::remove_file(&log);
        let mut strace = self.test.fixture.command("strace");
        strace.args(["-f", "-e", "trace=mkdir,mkdirat,pwrite64", "-o"]).arg(&log);
        strace.args(["-e", &format!("inject=mkdir,mkdirat:signal=SIGSTOP:when={stop}")]);
        if fails {
            strace.args(["-e", "inject=pwrite64:error=ENOSPC"]);
        }
        strace.args(["-p", &pid.to_string()]).stderr(Stdio::null());
        let strace = ChildGuard(strace.spawn().expect("strace runs"));
        wait_for("strace", || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            let tracer = format!("TracerPid:\t{}\n", strace.0.id());
            status.contains(&tracer)
        });
        let mut snapshot = self.test.command(line);
        let mut snapshot = snapshot.stderr(Stdio::null()).spawn().expect("trackway runs");
        let has_stopped =
            || fs::read_to_string(&log).is_ok_and(|log| log.contains("--- stopped by SIGSTOP ---"));
        let mut is_done = false;
        wait_for("a stop, or the end", || {
            is_done = snapshot.try_wait().expect("a child").is_some();
            is_done || has_stopped()
        });
        let is_swapped = has_stopped() && !is_done;
        if is_swapped {
            self.swap(name);
        }
        let mut status = None;
        wait_for("a snapshot", || {
            send_signal(pid, libc::SIGCONT);
            status = snapshot.try_wait().expect("a child");
            status.is_some()
        });
        (is_swapped, status.is_some_and(|status| status.success()))
    }

    /// Runs `trackway LINE`, which is suspended after system call number `stop` of this kind while
    /// `name` is swapped. Returns true if `name` was swapped.
    fn run(&self, line: &str, name: &str, (call, stop): (&str, usize)) -> bool {
        let log = self.test.fixture.path("log");
        let _ = fs::remove_file(&log);
        let mut strace = self.test.fixture.command("strace");
        strace.args(["-f", "-e", &format!("trace={call}"), "-o"]).arg(&log);
        strace.args(["-e", &format!("inject={call}:signal=SIGSTOP:when={stop}")]);
        strace.arg(build_dir().join("trackway")).args(line.split_whitespace());
        let mut strace = ChildGuard(strace.stderr(Stdio::null()).spawn().expect("strace runs"));
        let stopped = || -> Option<i32> {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let line = log.lines().find(|line| line.contains("--- stopped by SIGSTOP ---"))?;
            line.split(' ').next()?.parse().ok()
        };
        let mut is_done = false;
        wait_for("a stop, or the end", || {
            is_done = strace.0.try_wait().expect("a child").is_some();
            is_done || stopped().is_some()
        });
        let Some(pid) = stopped().filter(|_| !is_done) else { return false };
        self.swap(name);
        wait_for("its end", || {
            send_signal(pid, libc::SIGCONT);
            strace.0.try_wait().expect("a child").is_some()
        });
        true
    }
}

/// RUN snapshots into another user's folder, where that user meanwhile puts a link to a folder of
/// root; also with a full disk. EXPECT the snapshots in the folder that was opened first or
/// nowhere, and nothing else changed.
#[test]
fn a_snapshot_goes_where_it_was_begun_and_takes_nothing_else_with_it() {
    for via in ["bpf", "tracefs"] {
        let made = if via == "bpf" { KernelTest::new } else { tracefs::tracefs_test };
        let Some(swapped) = made("ksession-swapped").and_then(SwappedFolder::of) else { return };
        let test = &swapped.test;
        let line = "--kernel syscalls:getpgid --kernel-only --flight-recorder -o flight";
        match via {
            "bpf" => drop(test.ok(&format!("session create k {line}"))),
            _ => tracefs::create_without_bpf(test, line),
        }
        test.calls(0..100);
        let (mut swaps, mut snapshots) = (0, 0);
        for (stop, fails) in STOP_FOLDERS.flat_map(|stop| [(stop, false), (stop, true)]) {
            let (is_swapped, is_there) =
                swapped.snapshot("session snapshot k -o theirs/snap", "snap", stop, fails);
            swapped.check_victim(&format!("{via}: stop {stop}, fails: {fails}"));
            let snap = swapped.user_folder.join("snap");
            if is_swapped {
                swaps += 1;
                swapped.swap_back("snap");
            }
            let has_kernel = snap.join("kernel/metadata").is_file();
            assert!(!has_kernel || (is_there && !fails), "half of it: {stop}");
            if has_kernel && is_swapped {
                snapshots += 1;
                test.check("theirs/snap", 0..100);
            }
            let _ = fs::remove_dir_all(&snap);
        }
        assert!(swaps > 0 && snapshots > 0, "{via}: {swaps}, {snapshots}");
        test.ok("session destroy k");
    }
}

/// RUN snapshots without a name of a session whose folder is in another user's folder, where that
/// user meanwhile puts a link. EXPECT the snapshots in the session's folder or nowhere, and nothing
/// else changed.
#[test]
fn a_sessions_snapshots_go_where_its_folder_is_now() {
    let Some(swapped) = KernelTest::new("ksession-swapped-own").and_then(SwappedFolder::of) else {
        return;
    };
    let test = &swapped.test;
    test.ok("session create k --kernel syscalls:getpgid --kernel-only --flight-recorder \
         -o theirs/flight");
    test.calls(0..100);
    for (stop, fails) in STOP_FOLDERS.flat_map(|stop| [(stop, false), (stop, true)]) {
        let (is_swapped, _) = swapped.snapshot("session snapshot k", "flight", stop, fails);
        swapped.check_victim(&format!("stop {stop}, fails: {fails}"));
        if is_swapped {
            swapped.swap_back("flight");
        }
    }
    test.check("theirs/flight/snapshot-1", 0..100);
    // The link's target also contains a file of the name that the recorder removes at its end.
    fs::write(swapped.victim.join("metadata"), "root's").expect("a file");
    swapped.swap("flight");
    test.ok("session destroy k");
    fs::remove_file(swapped.victim.join("metadata")).expect("it is there");
    swapped.check_victim("destroyed");
}

/// RUN recover and merge while another user puts a link in place of the trace. EXPECT the original
/// trace to be completed, or nothing; and no change in the link's target.
#[test]
fn recover_and_merge_touch_no_foreign_folder() {
    let Some(test) = KernelTest::new("ksession-swapped-left") else { return };
    test.ok("session create k --kernel syscalls:getpgid --kernel-only -o left");
    test.calls(0..1000);
    let printed = || test.command("print left").output().expect("it runs");
    wait_for("the events", || lossy_text(&printed().stdout).contains(" syscall_entry_getpgid: "));
    let pid = test.status("k")["pid"].as_u64().expect("a process id");
    send_signal(i32::try_from(pid).expect("a process id"), libc::SIGKILL);
    let status = || test.command("session status k").output().expect("it runs");
    wait_for("its end", || !status().status.success());
    let Some(swapped) = SwappedFolder::of(test) else { return };
    let fixture = &swapped.test.fixture;
    let copy = |to: &Path| {
        let mut copy = fixture.command("cp");
        let done = copy.arg("-rT").arg(fixture.path("left")).arg(to).status().expect("cp runs");
        assert!(done.success());
    };
    let trace = swapped.user_folder.join("trace");
    fs::remove_dir_all(&swapped.victim).expect("ours");
    copy(&swapped.victim);
    let before = read_folder_tree(&swapped.victim);
    let mut swaps = 0;
    for call in ["flock", "ftruncate", "rename"] {
        for stop in 1..=3 {
            copy(&trace);
            if swapped.run("recover theirs/trace", "trace", (call, stop)) {
                swaps += 1;
                swapped.swap_back("trace");
            }
            assert!(read_folder_tree(&swapped.victim) == before, "{call} {stop}");
            fs::remove_dir_all(&trace).expect("a trace");
        }
    }
    assert!(swaps > 0, "recovered");
    swapped.test.ok("recover left");
    for stop in STOP_FOLDERS {
        let is_swapped = swapped.run("merge left -o theirs/out", "out", ("mkdir,mkdirat", stop));
        assert!(read_folder_tree(&swapped.victim) == before, "merged: {stop}");
        if is_swapped {
            swaps += 1;
            swapped.swap_back("out");
        }
        let _ = fs::remove_dir_all(swapped.user_folder.join("out"));
    }
    assert!(swaps > 3, "merged");
}

/// Returns all paths below a folder, with the contents of files.
fn read_folder_tree(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let all = SwappedFolder::all_in(folder).into_iter();
    all.map(|path| (path.clone(), fs::read(path).ok())).collect()
}

/// RUN the start of a recording that has too few open files. EXPECT no leftovers.
#[test]
fn a_recording_without_open_files_leaves_nothing() {
    let Some(test) = KernelTest::new("ksession-descriptors") else { return };
    let mut failed = 0;
    for limit in (40..=130).step_by(6) {
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let mut record = test.fixture.command("sh");
        record.args(["-c", &script, "sh"]).arg(build_dir().join("trackway"));
        let options = "record --kernel sched_*,syscalls:openat,kmem_* --buffer-size 128K -o new";
        record.args(options.split_whitespace()).args(["--", "true"]);
        let output = record.output().expect("sh runs");
        let new = test.fixture.path("new");
        if output.status.success() {
            fs::remove_dir_all(new).expect("a trace");
        } else {
            failed += 1;
            let talk = lossy_text(&output.stderr);
            let left = new.exists().then(|| SwappedFolder::all_in(&new));
            assert_eq!(left, None, "{limit} open files: {talk}");
        }
    }
    assert!(failed > 0, "there are enough");
}
