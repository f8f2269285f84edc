//! The window in tools that walk a program's memory (leak checkers, dumpers, debuggers), and under
//! limits on address space. A program maps the used part readable, with a reserve, and maps the
//! other part when a session needs it.

use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use trackway_abi::window::granule;
use trackway_tests::{Fixture, Recording, has, report_skipped, skip_if_lockless};
use trackway_window::{Allocator, READABLE_BYTES, Window};

/// Number of events that the program emits.
const EVENT_COUNT: u64 = 100_000;
/// Size of memory that a test may use beyond the readable part, even on systems with lower limits.
const USED_UP_BYTES: u64 = READABLE_BYTES + (16 << 20);

/// Returns the bytes of the window by access, from the program's first report.
fn mapped_window_bytes(output: &str, access: &str) -> u64 {
    let parts = output.lines().filter_map(|line| line.strip_prefix("window: "));
    let sizes = parts.filter_map(|part| {
        let (range, found) = part.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(if found == access { number(to)? - number(from)? } else { 0 })
    });
    sizes.sum()
}

fn recorded_stdout(recording: &Recording) -> String {
    String::from_utf8_lossy(&recording.output.stdout).into_owned()
}

/// Returns the lines that the program printed at its beginning; it prints as many at its end.
fn first_window_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().filter(|line| line.starts_with("window: ")).collect();
    lines[..lines.len() / 2].join("\n")
}

#[test]
fn little_of_the_window_is_readable_in_a_program() {
    let fixture = Fixture::new("walked");
    let program = fixture.compile_file("lives/walked.c", true, &[]);
    let recording = fixture.record(&["--buffer-size", "32M"], &[program]);
    let (messages, output) = (recording.messages(), recorded_stdout(&recording));
    assert!(recording.output.status.success(), "{messages}");
    assert_eq!(recording.summary.recorded, EVENT_COUNT, "{messages}");
    let readable = mapped_window_bytes(&first_window_lines(&output), "rw-s");
    assert!((1..=READABLE_BYTES).contains(&readable), "{readable} bytes: {output}");
}

#[test]
fn memcheck_looks_for_leaks_and_ends() {
    if !has("valgrind") {
        return report_skipped("valgrind is not installed");
    }
    let fixture = Fixture::new("walked-memcheck");
    let program = fixture.compile_file("lives/walked.c", true, &[]);
    let program = program.to_str().expect("a path of text");
    // With 64 GiB of readable memory, this would take a day.
    let command = ["valgrind", "--leak-check=full", "--show-leak-kinds=all", program];
    let recording = fixture.record(&["--buffer-size", "32M"], &command);
    let (messages, output) = (recording.messages(), recorded_stdout(&recording));
    assert!(recording.output.status.success(), "{messages}");
    assert_eq!(recording.summary.recorded + recording.summary.lost, EVENT_COUNT, "{messages}");
    assert!(messages.contains("definitely lost: 50,000 bytes in 500 blocks"), "{messages}");
    assert!(!messages.contains("Invalid "), "{messages}");
    // No page beyond the file's end is readable: each such page costs memcheck a signal.
    let readable = mapped_window_bytes(&first_window_lines(&output), "rw-s");
    assert!((1..READABLE_BYTES).contains(&readable), "{readable} bytes: {output}");
}

#[test]
fn a_core_dump_has_nothing_of_the_window() {
    let fixture = Fixture::new("walked-core");
    let program = WaitingProgram::start(&fixture, "wait");
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", program.child.id())).unwrap();
    // Finds the window by its folder: the process that made the window has mapped the file under
    // its first name.
    let window = fixture.window_dir().to_str().expect("a path of text");
    let mut of_window = false;
    let mut flags = Vec::new();
    for line in maps.lines() {
        if line.split_once(' ').is_some_and(|(range, _)| range.contains('-')) {
            of_window = line.contains(window);
        } else if of_window && let Some(found) = line.strip_prefix("VmFlags:") {
            flags.push(found);
        }
    }
    assert!(!flags.is_empty(), "{window}: {maps}");
    assert!(flags.iter().all(|flags| flags.contains(" dd")), "{flags:?}");
    if !has("gcore") {
        return report_skipped("gdb's gcore is not installed");
    }
    let pid = program.child.id().to_string();
    let core = fixture.path("core");
    let mut gcore = fixture.command("gcore");
    gcore.args(["-o", core.to_str().unwrap(), &pid]);
    let dumped = gcore.output().expect("gcore");
    let size = std::fs::metadata(fixture.path(&format!("core.{pid}"))).map(|file| file.len());
    let size = size.unwrap_or_else(|error| panic!("{error}: {dumped:?}"));
    assert!(size < READABLE_BYTES / 4, "{size} bytes");
}

#[test]
fn a_limit_on_address_space_is_the_programs() {
    if skip_if_lockless("who cannot map all can write nothing") {
        return;
    }
    let fixture = Fixture::new("walked-limit");
    let program = fixture.compile_file("lives/walked.c", true, &[]);
    let limit = 1_u64 << 30;
    let command = ["prlimit", &format!("--as={limit}"), program.to_str().unwrap()];
    let recording = fixture.record(&[], &command);
    let (messages, output) = (recording.messages(), recorded_stdout(&recording));
    assert!(recording.output.status.success(), "{messages}");
    assert_eq!(recording.summary.recorded + recording.summary.lost, EVENT_COUNT, "{messages}");
    let first = first_window_lines(&output);
    let taken = mapped_window_bytes(&first, "rw-s") + mapped_window_bytes(&first, "---s");
    assert!((1..=limit / 8).contains(&taken), "{taken} bytes: {output}");
}

/// A program that waits for a line.
struct WaitingProgram {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl WaitingProgram {
    fn start(fixture: &Fixture, mode: &str) -> Self {
        let program = fixture.compile_file("lives/walked.c", true, &[]);
        let mut command = fixture.command(program);
        command.arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut waiting = Self { child, input, output };
        waiting.line();
        waiting
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("it reads");
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the window that the program has made.
fn window_file(fixture: &Fixture) -> PathBuf {
    let entries = std::fs::read_dir(fixture.window_dir()).expect("the folder").flatten();
    entries.map(|entry| entry.path()).next().expect("a window")
}

/// Uses up the part of the window that a program has mapped readable, so that a session's memory
/// lies beyond it. The memory is released at once, but not its addresses. Returns `None` if there
/// is not enough space.
fn use_up_readable_window(fixture: &Fixture) -> Option<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).expect("a path");
    let path = window_file(fixture);
    let owner = std::fs::metadata(&path).expect("the window").uid();
    let folder = text(fixture.window_dir());
    let (window, file) =
        Window::open(&folder, &text(&path), owner, false).expect("the window opens");
    let allocator = Allocator::new(window, file);
    // The memory belongs to the last session, which no test uses.
    let at = allocator.take(USED_UP_BYTES, granule::DATA + 31).ok()?;
    allocator.file().punch(at, USED_UP_BYTES).expect("memory is given back");
    Some(())
}

/// Runs a session over a running program, with memory beyond the readable part; returns recorded
/// and lost events, and the output.
fn record_beyond_readable(fixture: &Fixture, mode: &str) -> Option<(u64, u64, String)> {
    let mut program = WaitingProgram::start(fixture, mode);
    if program.child.try_wait().expect("its status").is_some_and(|s| s.code() == Some(77)) {
        return None;
    }
    use_up_readable_window(fixture)?;
    let succeed = |arguments: &[&str]| {
        let output = fixture.trackway(arguments).output().expect("trackway");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    let trace = fixture.path("trace");
    let trace = trace.to_str().expect("a path of text");
    succeed(&["session", "create", "beyond", "-o", trace, "--buffer-size", "32M"]);
    program.go_on();
    let said = program.line();
    assert!(said.starts_with("window: "), "it lives: {said:?}");
    program.go_on();
    let status = program.child.wait().expect("its end");
    assert!(status.success(), "{status}");
    let messages = succeed(&["session", "destroy", "beyond"]);
    let recorded = fixture.print(Path::new(trace)).lines().count() as u64;
    Some((recorded, trackway_tests::Summary::parse(&messages).lost, messages))
}

#[test]
fn a_program_maps_more_when_a_session_needs_it() {
    let fixture = Fixture::new("walked-beyond");
    let Some((recorded, lost, messages)) = record_beyond_readable(&fixture, "wait") else {
        return report_skipped("there is no room in /dev/shm");
    };
    assert_eq!((recorded, lost), (EVENT_COUNT, 0), "{messages}");
}

#[test]
fn a_program_in_a_sandbox_is_not_made_to_map_more() {
    let fixture = Fixture::new("walked-sandbox");
    let Some((recorded, lost, messages)) = record_beyond_readable(&fixture, "sandbox") else {
        return report_skipped("there are no seccomp filters, or there is no room in /dev/shm");
    };
    assert_eq!(recorded + lost, EVENT_COUNT, "{messages}");
    assert_eq!(recorded, 0, "{messages}");
}
