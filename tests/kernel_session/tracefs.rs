//! Sessions of the kernel's events where BPF is refused, so that they are recorded by tracefs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use trackway_tests::{build_dir, has, skipped};

use super::ground::{Ground, sizes_of, text};

/// A ground, if sessions can be made there without BPF.
pub(crate) fn ground(name: &str) -> Option<Ground> {
    let ground = Ground::new(name)?;
    if !Path::new("/sys/kernel/tracing/instances").is_dir() {
        skipped("tracefs is not mounted at /sys/kernel/tracing");
        return None;
    }
    if !has("capsh") {
        skipped("capsh is not installed");
        return None;
    }
    Some(ground)
}

/// A process that has calls made when it is told to.
struct Caller {
    shell: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    fn new(ground: &Ground) -> Self {
        const SCRIPT: &str = "while read count first; do \"$0\" $count $(($1 + first)); echo; done";
        let mut shell = ground.world.command("sh");
        shell.args(["-c", SCRIPT]).arg(&ground.program).arg(ground.first().0.to_string());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let (input, output) = (shell.stdin.take(), shell.stdout.take());
        let output = BufReader::new(output.expect("a pipe"));
        Self { shell, input: input.expect("a pipe"), output }
    }

    /// Calls with these numbers, which were made when this returns.
    fn calls(&mut self, numbers: Range<u64>) {
        let count = numbers.end - numbers.start;
        writeln!(self.input, "{count} {}", numbers.start).expect("it reads");
        self.output.read_line(&mut String::new()).expect("it answers");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Makes the session k, as `trackway session create k LINE`, without the right to use BPF.
pub(crate) fn create(ground: &Ground, line: &str) {
    let trackway = build_dir().join("trackway");
    let command = format!("{} session create k {line}", trackway.display());
    let drop = "--drop=cap_bpf,cap_perfmon,cap_sys_admin";
    let output = ground.world.command("capsh").args([drop, "--", "-c", &command]).output();
    let output = output.expect("capsh runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = ground.status("k")["notices"].to_string();
    assert!(said.contains("recorded by tracefs, since BPF is refused"), "{said}");
}

/// RUN a session that does not start at once, of one process; start, stop, clear, status, and calls
/// of that process and of others between them. EXPECT what is to be there, once the answer has
/// come; the counts; and events switched off and on from then on.
#[test]
fn a_session_by_tracefs_stops_starts_clears_changes_and_says_how_it_goes() {
    let Some(ground) = ground("ksession-tracefs") else { return };
    let mut caller = Caller::new(&ground);
    let pid = caller.shell.id();
    create(
        &ground,
        &format!(
            "--kernel syscalls:getpgid --filter 'syscalls:sys_enter_getpgid: count() >= 0' \
             --no-start --pid {pid} --tracefile-size 64K --tracefile-count 2 -o trace"
        ),
    );
    caller.calls(0..100);
    ground.ok("session start k");
    caller.calls(100..200);
    ground.calls(5000..5100);
    ground.ok("session stop k");
    // When the answer comes.
    ground.check("trace", 100..200);
    caller.calls(1000..1100);
    let kernel = ground.status("k")["kernel"].clone();
    let numbers = ["events", "recorded", "lost", "overwritten"].map(|name| kernel[name].as_u64());
    assert_eq!(numbers, [Some(2), Some(200), Some(0), Some(0)], "{kernel}");
    assert!(kernel["bytes"].as_u64() > Some(200 * 16), "{kernel}");
    assert!(kernel["memory-bytes"].as_u64() > Some(1 << 20), "{kernel}");
    ground.ok("session start k");
    ground.ok("session clear k");
    assert!(sizes_of(&ground.world.path("trace/kernel")).is_empty());
    caller.calls(200..20_200);
    ground.ok("event off k --kernel sys_exit_getpgid");
    caller.calls(20_200..20_210);
    ground.ok("event on k --kernel syscalls:openat,sys_exit_getpgid");
    caller.calls(20_210..20_220);
    assert_eq!(ground.status("k")["kernel"]["events"], 4);
    let talk = ground.ok("session destroy k").1;
    assert!(talk.contains("made room for newer ones"), "{talk}");
    let files = sizes_of(&ground.world.path("trace/kernel"));
    assert!(!files.is_empty() && files.iter().all(|(_, size)| *size <= 64 << 10), "{files:?}");
    let lines = ground.lines("trace");
    let numbers = ground.numbers(&lines);
    assert!(numbers.ends_with(&[20_218, 20_219]) && numbers.len() < 20_000, "{}", numbers.len());
    // What was switched off is not there; what was switched on is, and says what it lacks.
    let at = |number: u64| lines.iter().position(|line| ground.number(line) == Some(number));
    let between = |from, to| &lines[at(from).expect("a call")..at(to).expect("a call")];
    assert!(!between(20_200, 20_209).iter().any(|line| line.contains("exit_getpgid")));
    let behind = between(20_210, 20_219);
    assert_eq!(behind.iter().filter(|line| line.contains("exit_getpgid")).count(), 9);
    assert!(lines.iter().any(|line| line.contains("syscall_entry_openat: ")));
    let metadata = fs::read_to_string(ground.world.path("trace/kernel/metadata")).expect("text");
    assert!(metadata.contains("trackway_empty_fields = \"syscall_entry_openat:filename"));
}

/// RUN a flight recorder, snapshots and calls between them. EXPECT in each all that was there, in
/// both together each once, the newest where it came round, and nothing of before it was cleared.
#[test]
fn snapshots_by_tracefs_have_what_is_in_the_buffers() {
    let Some(ground) = ground("ksession-tracefs-flight") else { return };
    create(&ground, "--kernel syscalls:getpgid --flight-recorder --buffer-size 128K -o flight");
    ground.calls(0..200);
    ground.ok("session snapshot k");
    ground.calls(200..500);
    ground.ok("session snapshot k");
    for (trace, until) in [("flight/snapshot-1", 200), ("flight/snapshot-2", 500)] {
        ground.check(trace, 0..until);
    }
    ground.ok("merge flight/snapshot-1 flight/snapshot-2 -o merged");
    ground.check("merged", 0..500);
    ground.calls(500..30_000);
    ground.ok("session snapshot k");
    let newest = ground.numbers(&ground.lines("flight/snapshot-3"));
    assert!(newest.len() < 29_000 && newest.ends_with(&[29_998, 29_999]), "{}", newest.len());
    assert!(newest.windows(2).all(|two| two[0] < two[1]));
    let kernel = ground.status("k")["kernel"].clone();
    assert!(kernel["overwritten"].as_u64() > Some(20_000), "{kernel}");
    ground.ok("session clear k");
    ground.calls(30_000..30_100);
    ground.ok("session snapshot k --last 1h");
    ground.check("flight/snapshot-4", 30_000..30_100);
    ground.ok("session destroy k");
    assert!(!ground.world.path("flight/kernel").exists());
}
