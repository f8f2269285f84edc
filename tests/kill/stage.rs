//! The stage of the tests: a window that a real recorder prepared, and copies of this window.
//!
//! `trackway record` makes a session and starts a command. Then it is stopped, its window is
//! copied, and it is killed. The copy is the template of every stage. Its lease never expires, and
//! its clock line stays valid and advances slowly, so that nothing depends on the duration of
//! stepping. No recorder drains, so only writers change the window.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use trackway_abi::region::PAGE_SHIFT;
use trackway_abi::session::{flag, state};
use trackway_abi::window::DATA_OFFSET;
use trackway_ring::lockless::Buffer;
use trackway_tests::Fixture;
use trackway_tests::steps::{RunningProgram, send_signal, wait_for};
use trackway_window::{NAME_BYTES, SessionLayout, Window, WriterPath, window_name};

use crate::reading::{EventId, EventIds, EventKind, FoundRecord, WindowState};
use crate::tracee::Tracee;

/// Length of the pattern from which texts are cut, as in writer.c.
const PATTERN_BYTES: usize = 8192;
/// Range of the text that writer.c's signal handler emits.
const SIGNAL_HANDLER_NUMBERS: std::ops::Range<usize> = 77..83;
/// Factor by which the session's clock is slowed down, as a power of two.
const CLOCK_SLOWDOWN_SHIFT: u32 = 12;
/// First event id in a stage with wide ids, which need 16 bits.
const WIDE_ID_FIRST: u32 = 40;
const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// Number of CPUs whose regions a writer may use: its own CPU and, by claim, three neighbours.
const WRITER_CPUS_MAX: u32 = 4;

/// Writer path of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageWriterPath {
    /// By restartable sequence.
    Sequence,
    /// By claim: the writers have no restartable sequences.
    Claim,
    /// By the 2012 paper's reserve and commit.
    Lockless,
}

/// Configuration of a stage's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StageSettings {
    /// True for a flight recorder.
    pub(crate) overwrite: bool,
    /// True if every record has process id, thread id and name as contexts.
    pub(crate) contexts: bool,
    /// True if event ids need 16 bits.
    pub(crate) wide_ids: bool,
    /// Writer path.
    pub(crate) by: StageWriterPath,
}

/// A prepared window with its copies, and the programs that write to it.
pub(crate) struct Stage {
    fixture: Fixture,
    settings: StageSettings,
    program: PathBuf,
    token: String,
    cpu: usize,
    /// Trace folder as the recorder left it.
    trace_template: PathBuf,
    /// The window in which writers write.
    live: Window,
    /// The window that readers read.
    copy: Window,
    layout: SessionLayout,
    ids: Option<EventIds>,
    /// Ranges that may change, as offset and length.
    extents: Vec<(usize, usize)>,
    beginning: ChangeableBytes,
}

/// The contents of the changeable ranges of a window.
pub(crate) type ChangeableBytes = Vec<u8>;

/// Returns one of the CPUs that this process may use, the next one at each call.
fn next_cpu() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the set is ours; the macro bounds its index.
    let allowed: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE.cast_unsigned() as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    };
    allowed[NEXT.fetch_add(1, Ordering::Relaxed) % allowed.len()]
}

fn effective_uid() -> u32 {
    // SAFETY: geteuid has no preconditions.
    unsafe { libc::geteuid() }
}

fn window_path_in(folder: &Path) -> PathBuf {
    let mut name = [0; NAME_BYTES];
    let name = window_name(folder.as_os_str().as_bytes(), effective_uid(), &mut name)
        .expect("a short path");
    PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

fn open_window(folder: &Path) -> Window {
    let path = CString::new(window_path_in(folder).as_os_str().as_bytes()).expect("a path");
    let folder = CString::new(folder.as_os_str().as_bytes()).expect("a path");
    Window::open(&folder, &path, effective_uid(), false).expect("the window").0
}

/// Writes a window with these bytes to `folder`.
fn write_window(folder: &Path, bytes: &[u8]) {
    fs::create_dir_all(folder).expect("a folder");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(window_path_in(folder)).expect("a window's file");
    std::io::Write::write_all(&mut file, bytes).expect("a window's bytes");
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_tree(&from, &to);
        } else {
            fs::copy(&from, &to).expect("a file is copied");
        }
    }
}

impl Stage {
    /// Makes a stage from the window that a recorder prepares. Returns `None`, after printing the
    /// reason, if writers of this kind cannot be stepped through.
    pub(crate) fn new(settings: StageSettings) -> Option<Self> {
        if let Some(reason) = crate::tracee::ptrace_obstacle() {
            trackway_tests::report_skipped(&reason);
            return None;
        }
        let fixture = Fixture::new("kill");
        let program = fixture.compile_file("kill/writer.c", true, &[]);
        let (bytes, token) = record_until_killed(&fixture, settings);
        let trace_template = fixture.path("trace-template");
        copy_tree(&fixture.path("trace"), &trace_template);
        let (live, copy) = (fixture.window_dir().join("live"), fixture.window_dir().join("copy"));
        write_window(&live, &bytes);
        let live = open_window(&live);
        let layout = detach_from_recorder(&live, settings);
        write_window(&copy, &bytes);
        let copy = open_window(&copy);
        if layout.flags & flag::CLAIM_ONLY != 0 && settings.by == StageWriterPath::Sequence {
            trackway_tests::report_skipped("restartable sequences do not abort here as they must");
            return None;
        }
        let cpu = next_cpu();
        let mut stage = Self {
            fixture,
            settings,
            program,
            token,
            cpu,
            trace_template,
            live,
            copy,
            layout,
            ids: None,
            extents: Vec::new(),
            beginning: Vec::new(),
        };
        // The first writer registers the events.
        let has_sequences = stage.writer().area != 0;
        if !has_sequences && settings.by == StageWriterPath::Sequence {
            trackway_tests::report_skipped("the C library registered no rseq area");
            return None;
        }
        stage.ids = Some(stage.find_ids());
        stage.find_extents();
        stage.beginning = stage.save();
        let whole = stage.whole(&stage.live);
        write_window(&stage.fixture.window_dir().join("copy"), &whole);
        Some(stage)
    }

    /// Restores the changeable ranges to their state when the stage was built.
    pub(crate) fn begin_again(&self) {
        self.restore(&self.beginning);
    }

    /// Returns the configuration of the session.
    pub(crate) fn settings(&self) -> StageSettings {
        self.settings
    }

    /// Returns the session.
    pub(crate) fn layout(&self) -> &SessionLayout {
        &self.layout
    }

    /// Returns the window in which writers write.
    pub(crate) fn live(&self) -> &Window {
        &self.live
    }

    /// Returns the region of a writer's next record, which depends on its writer path.
    pub(crate) fn region(&self, window: &Window) -> trackway_ring::Region<'static> {
        let way = if self.settings.by == StageWriterPath::Claim {
            WriterPath::Claim(0)
        } else {
            WriterPath::Sequence
        };
        self.layout.region(window, self.cpu as u32, way).expect("the CPU has regions")
    }

    /// Returns the lockless buffer of the writers' CPU, if the session has one.
    pub(crate) fn lockless(&self, window: &Window) -> Option<Buffer<'static>> {
        self.layout.lockless(window, self.cpu as u32)
    }

    /// Returns the position of the next record, in bytes since the beginning.
    pub(crate) fn head(&self) -> u64 {
        match self.lockless(&self.live) {
            Some(buffer) => buffer.counters.write_count.load(Ordering::Relaxed),
            None => self.region(&self.live).expected() >> 1,
        }
    }

    /// Starts a writer, which stops at its first breakpoint.
    pub(crate) fn writer(&self) -> Tracee {
        let mut command = self.fixture.command(&self.program);
        command.env("TRACKWAY_WINDOW_DIR", self.fixture.window_dir().join("live"));
        command.env("TRACKWAY_TOKEN", &self.token);
        command.stdin(Stdio::null());
        if self.settings.by == StageWriterPath::Claim {
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        } else {
            command.env_remove("GLIBC_TUNABLES");
        }
        let mut writer = Tracee::spawn(&mut command, self.cpu).expect("the writer starts");
        writer.run(0).expect("the writer's first breakpoint");
        writer.area = writer.registers().rdx;
        writer
    }

    /// Returns the record that an order to a writer must leave.
    pub(crate) fn found(
        &self,
        kind: EventKind,
        text: std::ops::Range<usize>,
        writer: &Tracee,
    ) -> FoundRecord {
        let letter = |i: usize| b'!' + ((i * i * 7 + i * 13 + (i >> 3) + (i >> 7)) % 90) as u8;
        assert!(text.end <= PATTERN_BYTES);
        let mut contexts = Vec::new();
        if self.settings.contexts {
            // The writer has one thread, which has the program's name.
            contexts.extend(writer.pid().to_le_bytes());
            contexts.extend(writer.pid().to_le_bytes());
            let mut name = [0; 17];
            name[..6].copy_from_slice(b"writer");
            contexts.extend(name);
        }
        let text = if kind == EventKind::Empty { 0..0 } else { text };
        FoundRecord { kind, contexts, text: text.map(letter).collect() }
    }

    /// Returns the record that a writer's signal handler must leave.
    pub(crate) fn inner(&self, writer: &Tracee) -> FoundRecord {
        self.found(EventKind::Inner, SIGNAL_HANDLER_NUMBERS, writer)
    }

    /// Gives an order to a writer at its breakpoint; the writer executes nothing yet.
    pub(crate) fn order(&self, writer: &Tracee, kind: EventKind, text: &std::ops::Range<usize>) {
        let mut registers = writer.registers();
        registers.rax = kind as u64;
        registers.rbx = text.start as u64;
        registers.rcx = text.len() as u64;
        writer.set_registers(&registers);
    }

    /// Makes a writer emit one event.
    pub(crate) fn emit(
        &self,
        writer: &mut Tracee,
        kind: EventKind,
        text: &std::ops::Range<usize>,
    ) -> Result<(), String> {
        self.order(writer, kind, text);
        writer.run(0)
    }

    /// Copies the changeable ranges of the live window.
    pub(crate) fn save(&self) -> ChangeableBytes {
        let mut bytes = Vec::with_capacity(self.extents.iter().map(|extent| extent.1).sum());
        for &(at, length) in &self.extents {
            // SAFETY: extents lie in the part of the window that is backed; all writers stand
            // still while their tracer, this thread, copies.
            unsafe {
                let place = self.live.base().add(at);
                bytes.extend_from_slice(std::slice::from_raw_parts(place, length));
            }
        }
        bytes
    }

    fn put(&self, window: &Window, bytes: &[u8]) {
        let mut from = 0;
        for &(at, length) in &self.extents {
            // SAFETY: as in `save`; the bytes have the extents' lengths together.
            unsafe {
                let place = window.base().add(at);
                std::ptr::copy_nonoverlapping(bytes[from..from + length].as_ptr(), place, length);
            }
            from += length;
        }
    }

    /// Restores a saved state.
    pub(crate) fn restore(&self, bytes: &[u8]) {
        self.put(&self.live, bytes);
    }

    /// Makes a fork: puts a saved state into the copy of the window, which the checks read.
    pub(crate) fn fork(&self, bytes: &[u8]) -> &Window {
        self.put(&self.copy, bytes);
        &self.copy
    }

    /// Reads the state of the live window in a fork.
    pub(crate) fn read(&self) -> Result<WindowState, String> {
        self.read_fork(&self.save())
    }

    /// Reads the state of a fork.
    pub(crate) fn read_fork(&self, bytes: &[u8]) -> Result<WindowState, String> {
        self.read_window(self.fork(bytes))
    }

    /// Reads the state of a window of this stage.
    pub(crate) fn read_window(&self, window: &Window) -> Result<WindowState, String> {
        WindowState::read(window, &self.layout, self.ids.as_ref().expect("the stage is built"))
    }

    /// Returns the number of records that did not fit so far.
    pub(crate) fn discarded(&self) -> u64 {
        let of = |cpu, way| self.layout.region(&self.live, cpu, way).expect("it has regions");
        let count = |cpu, way| of(cpu, way).control.discarded.load(Ordering::Relaxed);
        let cpus = 0..self.layout.cpus;
        cpus.map(|cpu| WriterPath::ALL.map(|way| count(cpu, way)).iter().sum::<u64>()).sum()
    }

    fn whole(&self, window: &Window) -> Vec<u8> {
        let bytes = usize::try_from(window.usable_bytes()).expect("a length");
        // SAFETY: that much is backed; writers stand still.
        unsafe { std::slice::from_raw_parts(window.base(), bytes).to_vec() }
    }

    /// Returns the bytes of the live window outside the ranges that may change, for comparison.
    pub(crate) fn rest(&self) -> Vec<u8> {
        let mut bytes = self.whole(&self.live);
        for &(at, length) in &self.extents {
            bytes[at..at + length].fill(0);
        }
        bytes
    }

    /// Recovers a copy of the live window by `trackway recover` and prints the trace by `trackway
    /// print`. Returns the printed lines, and the number of lost events in the summary.
    pub(crate) fn recover(&self) -> Result<(Vec<String>, u64), String> {
        let folder = self.fixture.window_dir().join("recover");
        write_window(&folder, &self.whole(&self.live));
        let trace = self.fixture.path("trace");
        fs::remove_dir_all(&trace).map_err(|error| error.to_string())?;
        copy_tree(&self.trace_template, &trace);
        let mut command = self.fixture.trackway(&["recover"]);
        let output = command.env("TRACKWAY_WINDOW_DIR", &folder).output().expect("trackway runs");
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(messages);
        }
        let lines = self.fixture.print(&trace).lines().map(str::to_owned).collect();
        // "trackway: recovered FOLDER: N more events, M lost in all"
        let lost = messages.rsplit(" more events, ").next().and_then(|rest| rest.split(' ').next());
        let lost = lost.and_then(|number| number.replace(',', "").parse().ok());
        Ok((lines, lost.ok_or(messages)?))
    }

    fn find_ids(&self) -> EventIds {
        EventKind::ALL.map(|kind| {
            let events = trackway_abi::window::EVENTS_MAX;
            let index = (0..events).find(|index| {
                let description = self.live.description(*index);
                description.is_some_and(|bytes| {
                    let name = kind.name().as_bytes();
                    bytes.as_slice().windows(name.len()).any(|part| part == name)
                })
            });
            let index = index.expect("the writer described its events");
            let id = self.layout.id(&self.live, index).load(Ordering::Relaxed);
            EventId { index, id: id.checked_sub(1).expect("the session has the event") }
        })
    }

    /// Finds the changeable ranges: used pages of the fixed part, tables, control lines, and
    /// sub-buffers.
    fn find_extents(&mut self) {
        let fixed = &self.whole(&self.live)[..DATA_OFFSET];
        let used =
            fixed.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| page.iter().any(|&b| b != 0));
        let mut extents: Vec<_> =
            used.map(|(number, _)| (number * PAGE_BYTES, PAGE_BYTES)).collect();
        let session = self.live.session(self.layout.index);
        let controls = session.control_offset.load(Ordering::Relaxed) as usize;
        extents.push((
            controls,
            SessionLayout::control_bytes(self.layout.cpus, self.layout.flags) as usize,
        ));
        for number in 0..self.layout.cpus.min(WRITER_CPUS_MAX) {
            let cpu = (self.cpu as u32 + number) % self.layout.cpus;
            for way in WriterPath::ALL {
                let region = self.layout.region(&self.live, cpu, way).expect("it has regions");
                let length = region.geometry.sub_bytes() as usize;
                for index in 0..region.geometry.sub_count() {
                    let Some(at) = region.sub_buffer_offset(index) else { continue };
                    extents.push((at as usize, length));
                }
            }
        }
        if let Some(buffer) = self.lockless(&self.live) {
            let length = buffer.geometry.sub_bytes() as usize;
            let pages = buffer.places.iter().map(|place| place.load(Ordering::Relaxed) as usize);
            extents.extend(pages.filter(|page| *page != 0).map(|page| (page * PAGE_BYTES, length)));
        }
        self.extents = extents;
    }
}

/// Runs `trackway record` as far as its command, stops it, and kills it. Returns the window's
/// bytes, and the token of the session.
fn record_until_killed(fixture: &Fixture, settings: StageSettings) -> (Vec<u8>, String) {
    let mut recorder = fixture.trackway(&["record", "--event=kill:*", "--buffer-size=16K"]);
    recorder.args(["--sub-buffers=4", "-o"]).arg(fixture.path("trace"));
    recorder.arg(if settings.contexts { "--context=vpid,vtid,procname" } else { "--context=none" });
    if settings.overwrite {
        recorder.arg("--overwrite");
    }
    if settings.by == StageWriterPath::Lockless {
        recorder.arg("--reserve=lockless");
    }
    let script = "echo $$ $TRACKWAY_TOKEN > told.new; mv told.new told; exec sleep 100";
    recorder.args(["--", "sh", "-c", script]);
    let recorder = RunningProgram::start(&mut recorder);
    let told = fixture.path("told");
    wait_for("the recorder's command", || told.exists());
    let told = fs::read_to_string(told).expect("what the command says");
    let (command, token) = told.trim().split_once(' ').expect("two words");
    let pid = recorder.pid();
    recorder.signal(libc::SIGSTOP);
    wait_for("the recorder to stand still", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    let bytes = fs::read(window_path_in(fixture.window_dir())).expect("the window");
    send_signal(command.parse().expect("a process id"), libc::SIGKILL);
    drop(recorder);
    (bytes, token.to_owned())
}

/// Makes a window independent of its dead recorder, and returns the layout of its session.
fn detach_from_recorder(window: &Window, settings: StageSettings) -> SessionLayout {
    let is_active =
        |index: &usize| window.session(*index).state.load(Ordering::Relaxed) == state::ACTIVE;
    let index = (0..trackway_abi::session::SESSIONS_MAX).find(is_active).expect("a session");
    let session = window.session(index);
    session.lease_until_ns.store(u64::MAX, Ordering::Relaxed);
    let clock = &session.clock;
    clock.sequence.store(2, Ordering::Relaxed);
    clock.span.store(u64::MAX, Ordering::Relaxed);
    let slower = (clock.multiplier.load(Ordering::Relaxed) >> CLOCK_SLOWDOWN_SHIFT).max(1);
    clock.multiplier.store(slower, Ordering::Relaxed);
    if settings.wide_ids {
        session.next_id.store(WIDE_ID_FIRST, Ordering::Relaxed);
    }
    SessionLayout::read(window, index).expect("the session's layout")
}
