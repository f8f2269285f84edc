//! Kernels other than the running one, on emulated machines (`make test-kernels`; a part of `make
//! test` if such a kernel is installed). Events in NMIs, which a test cannot cause on this machine,
//! are recorded by BPF and by tracefs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::machine::{self, Console};
use trackway_tests::{Fixture, Summary, build_dir, has, report_skipped, source_dir};

/// Number of NMIs that `machine/interrupts.c` causes.
const NMI_COUNT: u64 = 20;
/// The first number of the program's calls: no process has this id.
const CALL_NUMBER_FIRST: u64 = 100_000_000;
/// Pairs of events; in each pair, the second follows the first on the same processor.
const EVENT_PAIRS: [[&str; 2]; 2] = [
    ["irq_softirq_entry", "irq_softirq_exit"],
    ["x86_irq_vectors_local_timer_entry", "x86_irq_vectors_local_timer_exit"],
];

/// Returns a kernel that `scripts/kernel` has fetched, or that the environment variable names.
fn find_kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("TRACKWAY_TEST_KERNEL") {
        return Some(named.into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let boot = source_dir().join(target).join("kernels/amd64/boot");
    let mut entries = fs::read_dir(boot).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().contains("vmlinuz"))
}

fn compile_static(name: &str, to: &Path) {
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]).arg(to);
    compiler.arg(source_dir().join("tests/machine").join(name));
    let output = compiler.output().expect("the compiler runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the libraries of a program, and its dynamic loader.
fn shared_libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(|word| word.trim_end_matches(':').into()).collect()
}

fn build_file_system(fixture: &Fixture, plan: &str) -> PathBuf {
    let root = fixture.path("root");
    fs::create_dir_all(root.join("bin")).expect("a folder");
    compile_static("init.c", &root.join("init"));
    compile_static("interrupts.c", &root.join("bin/interrupts"));
    for name in ["trackway", "libtrackway.so"] {
        let (from, to) = (build_dir().join(name), root.join("bin").join(name));
        let status = Command::new("strip").arg("-o").arg(&to).arg(&from).status();
        assert!(status.expect("strip runs").success(), "{name}");
        for library in shared_libraries(&from) {
            let to = root.join(library.strip_prefix("/").expect("it is absolute"));
            fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
            fs::copy(&library, &to).expect("a library");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("its mode");
        }
    }
    fs::write(root.join("plan"), plan).expect("the plan");
    machine::pack_file_system(fixture, &root)
}

/// Returns the lines of the events with this name.
fn lines_of_event<'a>(lines: &'a [&str], name: &str) -> Vec<&'a str> {
    let named = format!(" {name}: ");
    lines.iter().copied().filter(|line| line.contains(&named)).collect()
}

/// Checks that, on each processor, every end follows a begin. A pair that was incomplete when
/// recording began or ended lacks one of its events.
fn check_event_pairs(lines: &[&str], [begin, end]: [&str; 2]) {
    let mut seen = 0;
    for cpu in ["{ cpu_id = 0 }", "{ cpu_id = 1 }"] {
        let mut is_open = None;
        for line in lines.iter().filter(|line| line.contains(cpu)) {
            let is_begin = line.contains(&format!(" {begin}: "));
            if is_begin || line.contains(&format!(" {end}: ")) {
                assert_ne!(is_open, Some(is_begin), "{begin}, {end}: {line}");
                is_open = Some(is_begin);
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "{begin}: {seen}");
}

fn check_recording(fixture: &Fixture, console: &Console, via: &str) {
    let at = format!(" /tmp/{via} ");
    let command = console.commands.iter().find(|(command, ..)| command.contains(&at));
    let (_, said, status) = command.expect("it was run");
    assert_eq!(*status, 0, "{via}: {said}");
    let line = said.lines().find_map(|line| line.strip_prefix("nmi ")).expect("a count");
    let nmis: usize = line.trim().parse().expect("a number");
    assert!(nmis as u64 >= NMI_COUNT, "{nmis} NMIs");
    let summary = Summary::parse(said);
    assert_eq!((summary.lost, summary.overwritten), (0, 0), "{via}: {said}");
    let trace = fixture.path(via);
    console.save(&format!("/tmp/{via}/"), &trace);
    let text = fixture.print(&trace);
    assert_eq!(text.lines().count() as u64, summary.recorded, "{via}: {said}");
    if let Some(theirs) = fixture.babeltrace(&trace) {
        assert!(text.as_bytes() == theirs.stdout, "{via}: not as babeltrace2 prints it");
    }
    let lines: Vec<&str> = text.lines().collect();
    // The kernel calls several handlers for each NMI; one of them handles it.
    let handled = lines_of_event(&lines, "nmi_handler");
    let handled = handled.iter().filter(|line| line.contains("handled = 1 ")).count();
    assert_eq!(handled, nmis, "{via}");
    EVENT_PAIRS.into_iter().for_each(|pair| check_event_pairs(&lines, pair));
    for number in CALL_NUMBER_FIRST..CALL_NUMBER_FIRST + 2 * NMI_COUNT {
        let field = format!("pid = {number} ");
        let calls = lines_of_event(&lines, "syscall_entry_getpgid");
        assert_eq!(calls.iter().filter(|line| line.contains(&field)).count(), 1, "{number}");
    }
    println!("{via}: {nmis} NMIs, {} events", summary.recorded);
}

#[test]
fn nmis_are_recorded_by_another_kernel() {
    for program in ["qemu-system-x86_64", "cpio", "gcc", "ldd", "strip"] {
        if !has(program) {
            return report_skipped(format!("{program} is not installed"));
        }
    }
    if !cfg!(target_arch = "x86_64") {
        return report_skipped("the kernel is for x86-64");
    }
    let Some(kernel) = find_kernel() else {
        return report_skipped("no other kernel was fetched (scripts/kernel amd64)");
    };
    let mut plan = String::new();
    for via in ["bpf", "tracefs"] {
        plan.push_str(&format!(
            "/bin/trackway record --system-wide --kernel-backend {via} --buffer-size 4M --kernel \
             nmi:*,irq_vectors:local_timer*,irq:softirq_*,syscalls:getpgid -o /tmp/{via} -- \
             /bin/interrupts {NMI_COUNT} {CALL_NUMBER_FIRST}\ntake /tmp/{via}\n"
        ));
    }
    let fixture = Fixture::new("kernels");
    let image = build_file_system(&fixture, &plan);
    let emulator = fixture.command("qemu-system-x86_64");
    let console = machine::run_machine(&fixture, emulator, &kernel, &image, "ttyS0");
    for via in ["bpf", "tracefs"] {
        check_recording(&fixture, &console, via);
    }
}
