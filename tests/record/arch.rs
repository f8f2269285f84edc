//! Other processors: programs for AArch64, recorded by a recorder for AArch64, under emulators.
//!
//! Under qemu-user, which has the host's kernel and no restartable sequences, programs record by
//! claim and by lockless buffers (for RISC-V, too, in `make arch`). On a whole emulated machine
//! with its own kernel (`make arch`), they record by sequence. The host's reader reads the traces.
//!
//! An emulator on x86-64 runs with x86-64's memory order; the models check weaker orders
//! (`crates/ring/tests/loom`, docs/design/0006-weak-memory.md).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{Fixture, Recording, Summary, has, machine, report_skipped, source_dir};

/// A processor, and its Debian packages.
struct Processor {
    name: &'static str,
    compiler: &'static str,
    emulator: &'static str,
    /// Folder of the processor's libraries.
    prefix: &'static str,
    /// Folder of Trackway's programs for the processor: an environment variable, and the default
    /// below `target`.
    folder: (&'static str, &'static str),
}

const AARCH64: Processor = Processor {
    name: "AArch64",
    compiler: "aarch64-linux-gnu-gcc",
    emulator: "qemu-aarch64",
    prefix: "/usr/aarch64-linux-gnu",
    folder: ("TRACKWAY_AARCH64_BUILD_DIR", "aarch64-unknown-linux-gnu"),
};

const RISCV64: Processor = Processor {
    name: "RISC-V",
    compiler: "riscv64-linux-gnu-gcc",
    emulator: "qemu-riscv64",
    prefix: "/usr/riscv64-linux-gnu",
    folder: ("TRACKWAY_RISCV64_BUILD_DIR", "riscv64gc-unknown-linux-gnu"),
};

/// Length of the longest text of `arch/storm.c`.
const TEXT_LENGTH_MAX: u32 = 40;

impl Processor {
    /// Returns the folder of Trackway's programs for the processor, which `scripts/arch` builds.
    fn programs(&self) -> Option<PathBuf> {
        for program in [self.compiler, self.emulator] {
            if !has(program) {
                report_skipped(format!("{program} is not installed"));
                return None;
            }
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
        let built = source_dir().join(target).join(self.folder.1).join("debug");
        let folder = std::env::var_os(self.folder.0).map_or(built, PathBuf::from);
        if ["trackway", "libtrackway.so"].iter().all(|name| folder.join(name).is_file()) {
            return folder.canonicalize().ok();
        }
        report_skipped(format!("the programs for {} are not built (scripts/arch)", self.name));
        None
    }

    /// Compiles `tests/NAME.c`.
    fn compile(&self, fixture: &Fixture, name: &str, flags: &[&str]) -> PathBuf {
        let program = fixture.path(name.rsplit('/').next().unwrap_or(name));
        let mut compiler = Command::new(self.compiler);
        compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
        compiler.arg("-I").arg(source_dir().join("include"));
        compiler.arg(source_dir().join("tests").join(format!("{name}.c")));
        let output = compiler.arg("-o").arg(&program).output().expect("the compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Records a program by the recorder in `folder`, both under the emulator.
    fn record(
        &self,
        fixture: &Fixture,
        folder: &Path,
        options: &[&str],
        program: &[&str],
    ) -> Recording {
        let trace = fixture.path("trace");
        let _ = fs::remove_dir_all(&trace);
        let mut command = fixture.command(self.emulator);
        command.env("QEMU_LD_PREFIX", self.prefix).arg(folder.join("trackway"));
        command.args(["record", "-o"]).arg(&trace).args(options);
        // The host's loader refuses the library, with a message; the emulated loader accepts it.
        command.arg("--").arg(self.emulator).args(program);
        let recording = Recording::new(trace, command.output().expect("it runs"));
        assert!(recording.output.status.success(), "{options:?}: {}", recording.messages());
        recording
    }

    /// Checks that programs that emit from threads and handlers are recorded by every available
    /// writer path.
    fn records(&self) {
        let Some(folder) = self.programs() else { return };
        let fixture = Fixture::new("arch");
        let storm = self.compile(&fixture, "arch/storm", &[]);
        let storm = [storm.to_str().expect("a path"), "threads", "3", "3000"];
        // Without restartable sequences, `rseq` records by claim.
        for way in ["claim", "lockless", "rseq"] {
            let options =
                ["--event=storm:*", "--reserve", way, "--buffer-size=8M", "--sub-buffers=4"];
            let recording = self.record(&fixture, &folder, &options, &storm);
            let (started, returned) =
                parse_storm_counts(&String::from_utf8_lossy(&recording.output.stdout));
            assert!(started == returned && started >= 9_000, "{started}, {returned}");
            let Summary { recorded, lost, .. } = recording.summary;
            assert_eq!(recorded + lost, started, "{way}: {}", recording.messages());
            assert!(
                lost <= lost_events_max(way != "lockless", started),
                "{way}: {}",
                recording.messages()
            );
            check_storm_trace(&fixture, &recording.trace, &recording.summary, way);
        }
        for (way, more) in [
            ("claim", &["--overwrite"][..]),
            ("lockless", &["--overwrite"]),
            ("claim", &[]),
            ("lockless", &[]),
        ] {
            let small =
                ["--event=storm:*", "--reserve", way, "--buffer-size=32K", "--sub-buffers=4"];
            let recording = self.record(&fixture, &folder, &[&small, more].concat(), &storm);
            let (started, _) =
                parse_storm_counts(&String::from_utf8_lossy(&recording.output.stdout));
            let Summary { recorded, lost, overwritten, .. } = recording.summary;
            let messages = recording.messages();
            assert_eq!(recorded + lost + overwritten, started, "{way}: {messages}");
            assert!(recorded > 0 && (more.is_empty() || overwritten > 0), "{way}: {messages}");
            check_storm_trace(&fixture, &recording.trace, &recording.summary, way);
        }
    }

    /// Checks that writers by claim may be killed.
    fn survives_kills(&self) {
        let Some(folder) = self.programs() else { return };
        let fixture = Fixture::new("arch-killed");
        let storm = self.compile(&fixture, "arch/storm", &[]);
        let options = ["--event=storm:*", "--reserve=claim", "--buffer-size=32M"];
        let program = [storm.to_str().expect("a path"), "killed", "12"];
        let recording = self.record(&fixture, &folder, &options, &program);
        let (started, returned) =
            parse_storm_counts(&String::from_utf8_lossy(&recording.output.stdout));
        let Summary { recorded, lost, .. } = recording.summary;
        let all = recorded + lost;
        assert!((returned..=started).contains(&all), "{returned} <= {all} <= {started}");
        check_storm_trace(&fixture, &recording.trace, &recording.summary, "killed");
    }

    /// Checks that values of all kinds, from a Rust program, are equal to those on the host.
    fn records_equal_values(&self) {
        let Some(folder) = self.programs() else { return };
        let theirs = folder.join("examples/values");
        let ours = trackway_tests::build_dir().join("examples/values");
        if !theirs.is_file() || !ours.is_file() {
            return report_skipped(
                "the example `values` is not built for both processors (make arch)",
            );
        }
        let fixture = Fixture::new("arch-values");
        let options = ["--reserve=claim"];
        let theirs = self.record(&fixture, &folder, &options, &[theirs.to_str().expect("a path")]);
        let theirs = printed_events(&fixture, &theirs.trace);
        fs::remove_dir_all(fixture.path("trace")).expect("it was there");
        let recording = fixture.record(&options, &[ours]);
        let ours = printed_events(&fixture, &recording.trace);
        assert!(!ours.is_empty());
        assert_eq!(theirs, ours);
    }

    /// Checks that a preload helper wraps the same functions on this processor.
    fn preloads(&self) {
        let Some(folder) = self.programs() else { return };
        if !folder.join("libtrackway-fork.so").is_file() {
            return report_skipped("the preload helpers are not built for it (make arch)");
        }
        let fixture = Fixture::new("arch-preload");
        let program = self.compile(&fixture, "arch/storm", &[]);
        let program = [program.to_str().expect("a path"), "killed", "3"];
        let options = ["--preload=fork,fd,libc", "--reserve=claim", "--buffer-size=16M"];
        let recording = self.record(&fixture, &folder, &options, &program);
        assert_eq!(recording.summary.lost, 0, "{}", recording.messages());
        let text = fixture.print(&recording.trace);
        let forks = text.lines().filter(|line| line.contains("trackway_fork:fork:"));
        assert_eq!(forks.count(), 3, "{text:.2000}");
    }
}

/// Returns the number of events that may be lost although there is room. If threads and handlers
/// are interrupted while they hold claims, other writers may find no region to claim.
fn lost_events_max(by_claim: bool, started: u64) -> u64 {
    if by_claim { started / 10 } else { 0 }
}

/// Returns the counts that `arch/storm.c` reports: events begun, and events returned.
fn parse_storm_counts(text: &str) -> (u64, u64) {
    let line = text.lines().find_map(|line| line.split_once("started ").map(|(_, rest)| rest));
    let mut words = line.unwrap_or_default().split_whitespace();
    let started = words.next().and_then(|word| word.parse().ok());
    let returned = words.nth(1).and_then(|word| word.parse().ok());
    started.zip(returned).unwrap_or_else(|| panic!("no counts: {text}"))
}

/// Returns the numbers of each stream's events in a printed trace, in order. Texts must be
/// unchanged.
fn numbers_by_stream(text: &str) -> BTreeMap<u32, Vec<u32>> {
    let mut numbers: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for line in text.lines() {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name} = ")).expect("a field");
            rest.split([',', ' ']).next().expect("a value").to_owned()
        };
        let [stream, number] = ["who", "number"].map(|name| field(name).parse().expect(name));
        let length = field("text").len() as u32;
        assert_eq!(length, 3 + number % TEXT_LENGTH_MAX, "a torn record: {line}");
        numbers.entry(stream).or_default().push(number);
    }
    numbers
}

/// Checks a trace of `arch/storm.c` against its recorder's summary: an equal number of events, each
/// stream's events in order, and all of them if none was lost.
fn check_storm_trace(fixture: &Fixture, trace: &Path, summary: &Summary, what: &str) {
    let text = fixture.print(trace);
    assert_eq!(text.lines().count() as u64, summary.recorded, "{what}");
    if let Some(theirs) = fixture.babeltrace(trace) {
        assert!(text.as_bytes() == theirs.stdout, "{what}: not as babeltrace2 prints it");
    }
    for (stream, numbers) in numbers_by_stream(&text) {
        assert!(numbers.is_sorted_by(|a, b| a < b), "{what}: stream {stream} in order, none twice");
        if summary.lost + summary.overwritten == 0 {
            let all = (0..numbers.len() as u32).eq(numbers.iter().copied());
            assert!(all, "{what}: all of stream {stream}");
        }
    }
}

#[test]
fn aarch64_programs_are_recorded_under_an_emulator() {
    AARCH64.records();
}

#[test]
fn writers_for_aarch64_may_be_killed() {
    AARCH64.survives_kills();
}

#[test]
fn the_crate_says_the_same_on_aarch64() {
    AARCH64.records_equal_values();
}

#[test]
fn preload_helpers_work_on_aarch64() {
    AARCH64.preloads();
}

#[test]
fn riscv_programs_are_recorded_under_an_emulator() {
    RISCV64.records();
}

#[test]
fn writers_for_riscv_may_be_killed() {
    RISCV64.survives_kills();
}

#[test]
fn the_crate_says_the_same_on_riscv() {
    RISCV64.records_equal_values();
}

#[test]
fn preload_helpers_work_on_riscv() {
    RISCV64.preloads();
}

/// Returns the names and fields of printed events, without times and contexts, which differ from
/// run to run.
fn printed_events(fixture: &Fixture, trace: &Path) -> Vec<String> {
    let output = fixture.trackway(&[OsStr::new("print"), trace.as_os_str()]).output();
    let text = output.expect("trackway runs").stdout;
    // Some values are no UTF-8.
    let text = String::from_utf8_lossy(&text);
    let events = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" values:")?.1.split_once(": ")?;
        Some(format!("{name} {}", rest.splitn(3, "}, ").nth(2)?))
    });
    events.collect()
}

/// Makes the file system of a machine: programs, the libraries that they need, and the plan of
/// runs.
fn make_file_system(fixture: &Fixture, folder: &Path, plan: &str) -> PathBuf {
    let root = fixture.path("root");
    for folder in ["bin", "lib"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    fs::rename(AARCH64.compile(fixture, "machine/init", &["-static"]), root.join("init"))
        .expect("init");
    fs::rename(AARCH64.compile(fixture, "arch/storm", &[]), root.join("bin/storm")).expect("storm");
    for name in ["trackway", "libtrackway.so"] {
        let to = root.join("bin").join(name);
        let mut strip = Command::new("aarch64-linux-gnu-strip");
        let status = strip.arg("-o").arg(&to).arg(folder.join(name)).status();
        assert!(status.expect("strip runs").success(), "{name}");
    }
    if let Some(tests) = std::env::var_os("TRACKWAY_AARCH64_SELF_TEST") {
        fs::copy(tests, root.join("bin/self-test")).expect("the recorder's tests");
    }
    for name in ["ld-linux-aarch64.so.1", "libc.so.6", "libgcc_s.so.1", "libm.so.6"] {
        let from = Path::new(AARCH64.prefix).join("lib").join(name);
        fs::copy(from, root.join("lib").join(name)).expect("a library");
    }
    fs::write(root.join("plan"), plan).expect("the plan");
    machine::pack_file_system(fixture, &root)
}

/// Records on a machine with its own kernel and restartable sequences, with preempted and moved
/// threads, signals and kills.
#[test]
fn an_aarch64_machine_records_by_sequence() {
    let Some(kernel) = std::env::var_os("TRACKWAY_AARCH64_KERNEL").map(PathBuf::from) else {
        return report_skipped("TRACKWAY_AARCH64_KERNEL names no kernel (make arch)");
    };
    let Some(folder) = AARCH64.programs() else { return };
    for program in ["qemu-system-aarch64", "cpio"] {
        if !has(program) {
            return report_skipped(format!("{program} is not installed"));
        }
    }
    // Name, writer path, size of buffers, more options, storm's arguments.
    let runs = [
        ("threads", "rseq", "32M", "", "threads 6 5000"),
        ("full", "rseq", "32K", "", "threads 4 3000"),
        ("newest", "rseq", "32K", "--overwrite", "threads 4 3000"),
        ("killed", "rseq", "16M", "", "killed 8"),
        ("claim", "claim", "16M", "", "threads 4 2000"),
        ("lockless", "lockless", "16M", "", "threads 4 2000"),
    ];
    let mut plan = String::new();
    if std::env::var_os("TRACKWAY_AARCH64_SELF_TEST").is_some() {
        // The machine has no shell.
        plan.push_str("/bin/self-test --nocapture --skip as_the_shell_finds_them\n");
    }
    for (name, way, size, more, storm) in runs {
        plan.push_str(&format!(
            "/bin/trackway record --event=storm:* --reserve={way} --sub-buffers=4 \
             --buffer-size={size} {more} -o /tmp/{name} -- /bin/storm {storm}\ntake /tmp/{name}\n"
        ));
    }
    // One processor with exclusive loads and stores, and one with atomic instructions.
    for processor in ["cortex-a72", "max,pauth-impdef=on"] {
        let fixture = Fixture::new("arch-machine");
        let image = make_file_system(&fixture, &folder, &plan);
        let mut emulator = fixture.command("qemu-system-aarch64");
        emulator.args(["-machine", "virt", "-cpu", processor]);
        let console = machine::run_machine(&fixture, emulator, &kernel, &image, "ttyAMA0");
        for (command, said, status) in &console.commands {
            assert_eq!(*status, 0, "{processor}: {command}\n{said}");
        }
        for (name, way, _, more, storm) in runs {
            let at = format!(" /tmp/{name} ");
            let command = console.commands.iter().find(|(command, ..)| command.contains(&at));
            let (_, said, _) = command.expect("it was run");
            let what = format!("{processor}, {name}: {said}");
            let summary = Summary::parse(said);
            let (started, returned) = parse_storm_counts(said);
            let all = summary.recorded + summary.lost + summary.overwritten;
            assert!((returned..=started).contains(&all), "{what}");
            assert!(storm.starts_with("killed") || started == returned, "{what}");
            // Emulated writers may be no faster than their recorder.
            let is_small = ["full", "newest"].contains(&name);
            let most = lost_events_max(way == "claim", started);
            assert!(is_small || summary.lost <= most && summary.overwritten == 0, "{what}");
            assert_eq!(summary.overwritten > 0, !more.is_empty(), "{what}");
            let trace = fixture.path(name);
            console.save(&format!("/tmp/{name}/"), &trace);
            check_storm_trace(&fixture, &trace, &summary, &what);
            if way == "rseq" {
                check_streams(&trace, storm.starts_with("threads"), is_small, &what);
            }
            println!("{processor}: {name}: {started} begun, {summary:?}");
        }
    }
}

/// Checks that a trace was recorded by sequence, on one or both processors. (If regions are full,
/// writers may have tried claims; and a sequence that restarts too often falls back to claims.)
fn check_streams(trace: &Path, both: bool, is_small: bool, what: &str) {
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    let folder = trace.join("ust/uid/0/64-bit");
    for entry in fs::read_dir(&folder).expect("the trace").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("channel0_") {
            bytes.insert(name, entry.metadata().expect("its size").len());
        }
    }
    let written = ["channel0_0", "channel0_1"].map(|cpu| bytes.get(cpu).is_some_and(|&n| n > 0));
    let is_written = if both { written == [true; 2] } else { written.contains(&true) };
    assert!(is_written, "{what}: {bytes:?}");
    let by_claim = bytes.iter().filter(|(name, _)| name.contains("claim"));
    let by_claim: u64 = by_claim.map(|(_, bytes)| bytes).sum();
    assert!(is_small || by_claim * 100 < bytes.values().sum(), "{what}: {bytes:?}");
}
