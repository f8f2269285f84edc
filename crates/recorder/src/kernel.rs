//! The kernel's events, recorded beside a session's, into the trace's folder `kernel`.
//!
//! The kernel's programs fill buffers that are mapped here ([`trackway_kernel::record`]); a thread
//! of the recorder's drains them as it drains the regions of traced programs. What begins before
//! the recorder becomes the invoking user ([`Kernel::prepare`]) needs root; what comes then
//! ([`Kernel::begin`]) does not.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use trackway_kernel::bpf::LoadError;
use trackway_kernel::catalogue::btf::Class;
use trackway_kernel::catalogue::error::CatalogueError;
use trackway_kernel::catalogue::model::{Event, Phase, Source};
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_kernel::record::attach::{Attached, CodeView, Loaded, Programs};
use trackway_kernel::record::buffers::Buffers;
use trackway_kernel::record::layout::{BUFFERS_BYTES_MAX, LEVELS, Layout};
use trackway_kernel::record::program::{dispatcher, filtered};
use trackway_kernel::record::scope::Scope;
use trackway_kernel::record::staging::{Registers, Staged};
use trackway_schema::EventDescription;
use trackway_session::FilterSpec;
use trackway_window::Way;

use crate::kernel_filters::KernelFilters;
use crate::region::{Drain, RegionWork, StreamNames};
use crate::report::{Grouped, Notices};
use crate::trace::{self, Trace};
use crate::{RecordError, cpus};

/// Size of a sub-buffer, as a power of two, in bytes.
const SUB_SHIFT: u32 = 16;
/// Most bytes of a CPU's buffers, unless it is asked for others.
const CPU_BYTES: u64 = 8 << 20;
/// Most bytes of an event's fields.
const PAYLOAD_BYTES_MAX: u32 = 3500;
/// How often buffers are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// Which of the kernel's events are recorded, and of whom.
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Patterns, as `trackway list --kernel` takes them.
    pub patterns: Vec<String>,
    /// Of everything that runs, not of the command and what it starts alone.
    pub system: bool,
    /// What must be true of events: those about others are left alone.
    pub filters: Vec<FilterSpec>,
}

/// The kernel's events, being recorded into buffers.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Never given back: regions are lent for as long as the process runs.
    buffers: &'static Buffers,
    attached: Vec<Attachment>,
    calls: Option<Calls>,
    scope: Option<Scope>,
    filters: KernelFilters,
    events: Vec<EventDescription>,
    overwrite: bool,
}

/// A program on a tracepoint.
#[derive(Debug)]
struct Attachment {
    attached: Attached,
    /// Which of the events it records; `None`: it serves all.
    event: Option<usize>,
    /// How often the kernel had passed over it when recording began.
    missed_before: u64,
}

/// System calls, by their raw tracepoints: two programs see all, and go on with the one of the
/// call, if that is recorded. No record is made of a call that nobody wants.
#[derive(Debug)]
struct Calls {
    registers: Registers,
    enter: Side,
    exit: Side,
}

/// Calls before, or behind.
#[derive(Debug)]
struct Side {
    phase: Phase,
    /// The raw tracepoint's type in BTF.
    btf_id: u32,
    programs: Programs,
    is_used: bool,
}

impl Calls {
    /// More than there are numbers of calls.
    const NUMBERS: u32 = 1024;

    /// `None`: this kernel, or machine, has them as events only.
    fn of(catalogue: &Catalogue) -> Option<Self> {
        let btf = catalogue.btf()?;
        let registers = Registers::of(btf)?;
        let side = |phase: Phase, name: &str| {
            let btf_id = btf.find(Class::Typedef, name)?.id;
            let programs = Programs::new(Self::NUMBERS).ok()?;
            // Whether the kernel takes such programs.
            let code = dispatcher(phase, &registers, programs.map_fd(), None)?;
            Loaded::raw(&code, btf_id).ok()?;
            Some(Side { phase, btf_id, programs, is_used: false })
        };
        let enter = side(Phase::Enter, "btf_trace_sys_enter")?;
        let exit = side(Phase::Exit, "btf_trace_sys_exit")?;
        Some(Self { registers, enter, exit })
    }

    fn side(&mut self, phase: Phase) -> &mut Side {
        match phase {
            Phase::Enter => &mut self.enter,
            Phase::Exit => &mut self.exit,
        }
    }
}

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelSummary {
    recorded: u64,
    lost: u64,
    overwritten: u64,
    /// Programs that the kernel did not run because another one was under way: of all processes,
    /// where a command alone is recorded.
    missed: u64,
    /// Whether those are some of `lost`.
    is_missed_lost: bool,
    /// The event that lost most, and how many.
    worst: Option<(String, u64)>,
    /// Whether some found no room.
    had_no_room: bool,
    /// Sub-buffers that made no sense.
    damaged: u64,
}

/// Buffers that a thread drains.
pub(crate) struct Draining {
    kernel: Kernel,
    stop: Sender<()>,
    thread: JoinHandle<std::io::Result<Vec<RegionWork>>>,
}

fn failed(what: &str, error: impl std::fmt::Display) -> RecordError {
    RecordError::Kernel(format!("{what}: {error}"), None)
}

impl From<CatalogueError> for RecordError {
    fn from(error: CatalogueError) -> Self {
        let hint = error.hint();
        Self::Kernel(error.to_string(), hint)
    }
}

/// What to do about an error of bpf(2) or perf_event_open(2).
pub(crate) fn unavailable(error: std::io::Error) -> RecordError {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Some(
            "root may (sudo trackway record …); in a container, root needs CAP_BPF and CAP_PERFMON",
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            Some("record fewer events, or raise the limit on open files (ulimit -n)")
        }
        Some(libc::ENOMEM) => Some("use a smaller --buffer-size"),
        Some(libc::ENOSYS | libc::EINVAL | libc::E2BIG) => {
            Some("Linux 5.12 or later, with BPF, records them")
        }
        _ => None,
    };
    let why = format!("the kernel does not let its events be recorded: {error}");
    RecordError::Kernel(why, hint.map(str::to_owned))
}

impl Kernel {
    /// Makes buffers and programs; from here on it is recorded, but for a command's, which begins
    /// with [`Self::scope`]. The size is of a CPU's buffers, in bytes; 0: as is usual.
    pub(crate) fn prepare(
        options: &KernelOptions,
        size_bytes: u64,
        overwrite: bool,
    ) -> Result<Self, RecordError> {
        // What a program writes is seen in this order by those who read it there alone.
        if !cfg!(target_arch = "x86_64") {
            return Err(failed("cannot record kernel events", "not on this processor, so far"));
        }
        if !options.system && !is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(failed("cannot record kernel events", why));
        }
        let _files = FilesLimit::raise();
        let catalogue = Catalogue::open()?;
        let selection = Selection::new(&options.patterns)?;
        let events = catalogue.select(&selection)?.events;
        let cpus = cpus();
        let layout = layout(size_bytes, cpus, events.len())?;
        let buffers = Buffers::new(layout, cpus, overwrite).map_err(unavailable)?;
        let mut kernel = Self {
            buffers: Box::leak(Box::new(buffers)),
            attached: Vec::new(),
            calls: Calls::of(&catalogue),
            scope: None,
            filters: KernelFilters::default(),
            events: Vec::new(),
            overwrite,
        };
        let staged = |event: &Event| kernel.staged(event).0;
        kernel.filters = KernelFilters::new(&options.filters, &events, staged, cpus)?;
        let mut remover = None;
        if !options.system {
            let scope = Scope::new().map_err(unavailable)?;
            let fork = scheduler(&catalogue, "sched_process_fork")?;
            let exec = scheduler(&catalogue, "sched_process_exec")?;
            let exit = scheduler(&catalogue, "sched_process_exit")?;
            // First and last, so that a member is one from its first event to its end.
            kernel.attach(&scope.adder(&fork).ok_or_else(|| unknown(&fork))?, &fork, None)?;
            kernel.attach(&scope.mover(&exec).ok_or_else(|| unknown(&exec))?, &exec, None)?;
            remover = Some((scope.remover().ok_or_else(|| unknown(&exit))?, exit));
            kernel.scope = Some(scope);
        }
        for (number, event) in events.iter().enumerate() {
            kernel.record(number, event)?;
        }
        kernel.attach_calls()?;
        if let Some((code, exit)) = remover {
            kernel.attach(&code, &exit, None)?;
        }
        Ok(kernel)
    }

    /// How an event is recorded, and whether as a call, from its registers.
    fn staged(&self, event: &Event) -> (Staged, bool) {
        let registers = self.calls.as_ref().map(|calls| calls.registers);
        match registers.and_then(|of| Staged::of_call(event, &of, PAYLOAD_BYTES_MAX)) {
            Some(call) => (call, true),
            None => (Staged::new(event, PAYLOAD_BYTES_MAX), false),
        }
    }

    /// Records an event, the next one.
    fn record(&mut self, number: usize, event: &Event) -> Result<(), RecordError> {
        let fds = (self.buffers.map_fd(), self.scope.as_ref().map(Scope::map_fd));
        let id = u16::try_from(number).map_err(|_| unknown(event))?;
        let (staged, is_call) = self.staged(event);
        let Some(filters) = self.filters.of(number) else {
            self.events.push(staged.description);
            return Ok(());
        };
        // Whose call it is was asked before it came there.
        let fds = if is_call { (fds.0, None) } else { fds };
        let code = filtered(&staged, self.buffers.layout(), fds, (id, number), filters);
        let code = code.map_err(|_| unknown(event))?;
        match (&mut self.calls, &event.source) {
            (Some(calls), Source::Syscall { number: Some(call), phase }) if is_call => {
                let side = calls.side(*phase);
                let loaded =
                    Loaded::raw(&code, side.btf_id).map_err(|error| refused(event, error))?;
                side.programs.set(*call, &loaded).map_err(unavailable)?;
                side.is_used = true;
            }
            _ => self.attach(&code, event, Some(number))?,
        }
        self.events.push(staged.description);
        Ok(())
    }

    /// Attaches a program to an event's tracepoint.
    fn attach<'a>(
        &mut self,
        code: impl Into<CodeView<'a>>,
        event: &Event,
        number: Option<usize>,
    ) -> Result<(), RecordError> {
        let id = event.id.ok_or_else(|| unknown(event))?;
        let loaded = Loaded::new(code).map_err(|error| refused(event, error))?;
        let attached = loaded.attach(id).map_err(unavailable)?;
        self.attached.push(Attachment { attached, event: number, missed_before: 0 });
        Ok(())
    }

    /// Attaches what sees all system calls, where some are recorded. What returns first: so that no
    /// call is there without its end.
    fn attach_calls(&mut self) -> Result<(), RecordError> {
        let scope = self.scope.as_ref().map(Scope::map_fd);
        let Some(calls) = &self.calls else { return Ok(()) };
        for side in [&calls.exit, &calls.enter].into_iter().filter(|side| side.is_used) {
            let code = dispatcher(side.phase, &calls.registers, side.programs.map_fd(), scope);
            let code = code.ok_or_else(|| failed("cannot record", "system calls"))?;
            let loaded = Loaded::raw(&code, side.btf_id)
                .map_err(|error| failed("cannot record system calls", error))?;
            let attached = loaded.attach_raw().map_err(unavailable)?;
            self.attached.push(Attachment { attached, event: None, missed_before: 0 });
        }
        Ok(())
    }

    /// What its events are asked.
    pub(crate) const fn filters(&self) -> &KernelFilters {
        &self.filters
    }

    /// Whether the calling thread, and what it starts from now on, is recorded.
    pub(crate) fn scope(&self, is_recorded: bool) {
        if let Some(scope) = &self.scope {
            scope.set(trackway_sys::thread::tid(), is_recorded);
        }
    }

    /// Writes what is recorded to the trace at `root`, on the clock whose offset from the time of
    /// day is this.
    pub(crate) fn begin(
        mut self,
        root: &std::path::Path,
        realtime_offset_ns: i64,
    ) -> Result<Draining, RecordError> {
        let uuid = trace::random_uuid()?;
        let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns)?;
        for (id, event) in (0..).zip(&self.events) {
            trace.metadata.declare(0, id, event);
        }
        let path = || root.join(trace::KERNEL).join("metadata");
        trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error))?;
        for Attachment { attached, missed_before, .. } in &mut self.attached {
            *missed_before = attached.missed().unwrap_or(0);
        }
        let works = works(self.buffers, self.overwrite);
        let (stop, stopped) = mpsc::channel();
        let buffers = self.buffers;
        let begin_ts = trackway_sys::clock::monotonic_ns();
        let drain = move || {
            let mut drainer = Drainer { buffers, trace, begin_ts, works, buffer: Vec::new() };
            // Until somebody says so, or nobody is left who could.
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PERIOD) {
                drainer.turn(false)?;
            }
            drainer.turn(true)?;
            drainer.close()?;
            Ok(drainer.works)
        };
        let thread = std::thread::Builder::new().name("trackway-kernel".into()).spawn(drain);
        let thread = thread.map_err(|error| failed("cannot start a thread", error))?;
        Ok(Draining { kernel: self, stop, thread })
    }
}

impl Draining {
    /// See [`Kernel::scope`].
    pub(crate) fn scope(&self, is_recorded: bool) {
        self.kernel.scope(is_recorded);
    }

    /// Records nothing any more.
    pub(crate) fn stop(&self) {
        self.kernel.buffers.stop();
    }

    /// Ends it, and writes what is left.
    pub(crate) fn finish(self, notices: &Notices) -> Result<KernelSummary, RecordError> {
        /// From how many tracepoints on it is said why it takes so long.
        const MANY: usize = 10;
        self.stop();
        // What is under way takes a fraction of a microsecond.
        std::thread::sleep(Duration::from_millis(1));
        let _ = self.stop.send(());
        let works = match self.thread.join() {
            Ok(written) => written.map_err(|error| failed("cannot write kernel events", error))?,
            Err(_) => return Err(failed("cannot write kernel events", "the thread has ended")),
        };
        let Kernel { buffers, attached, scope, filters, events, .. } = self.kernel;
        if attached.len() >= MANY {
            notices.say(format_args!(
                "detaching from {} tracepoints of the kernel, which takes a moment for each",
                attached.len()
            ));
        }
        let mut lost: Vec<u64> = (0..events.len()).map(|event| buffers.lost(event)).collect();
        let had_no_room = lost.iter().any(|&lost| lost > 0);
        let mut summary = KernelSummary {
            recorded: works.iter().map(|work| work.written).sum(),
            overwritten: works.iter().map(|work| work.overwritten).sum(),
            damaged: works.iter().map(|work| work.damaged).sum(),
            // Of no event: what found all levels taken, and programs that serve several.
            lost: buffers.too_deep(),
            is_missed_lost: scope.is_none() && !filters.any(),
            had_no_room,
            ..KernelSummary::default()
        };
        for Attachment { attached, event, missed_before } in attached {
            let count = attached.detach().missed().unwrap_or(0).saturating_sub(missed_before);
            summary.missed += count;
            // Where a command alone is recorded, most of these are not its; and of a filtered event
            // nobody knows which were wanted.
            if scope.is_none() && !event.is_some_and(|event| filters.has(event)) {
                *event.and_then(|event| lost.get_mut(event)).unwrap_or(&mut summary.lost) += count;
            }
        }
        summary.lost += lost.iter().sum::<u64>();
        let worst = lost.iter().zip(&events).max_by_key(|(lost, _)| **lost);
        summary.worst =
            worst.filter(|(lost, _)| **lost > 0).map(|(lost, event)| (event.name.clone(), *lost));
        Ok(summary)
    }
}

impl KernelSummary {
    /// Says what was recorded.
    pub(crate) fn say(&self, notices: &Notices) {
        notices.say(format_args!(
            "kernel: {} events recorded, {} lost, {} overwritten",
            Grouped(self.recorded),
            Grouped(self.lost),
            Grouped(self.overwritten)
        ));
        if self.missed > 0 {
            let whose = if self.is_missed_lost { "of those" } else { "up to, in all processes," };
            notices.say(format_args!(
                "{whose} {} that the kernel passed over while another of its events was recorded",
                Grouped(self.missed)
            ));
        }
        if self.damaged > 0 {
            notices.say(format_args!(
                "{} sub-buffers of the kernel's could not be read",
                Grouped(self.damaged)
            ));
        }
        if let Some((event, lost)) = &self.worst {
            notices.say(format_args!("{event} lost most: {}", Grouped(*lost)));
        }
        if self.had_no_room {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }
}

/// What a turn of draining needs.
struct Drainer {
    buffers: &'static Buffers,
    trace: Trace,
    begin_ts: u64,
    works: Vec<RegionWork>,
    buffer: Vec<u8>,
}

impl Drainer {
    /// Moves what is complete (or all, the last time) to the trace, and gives programs the room.
    fn turn(&mut self, is_last: bool) -> std::io::Result<()> {
        for work in &mut self.works {
            work.look();
            let is_left_to_the_end = work.overwrite && !is_last;
            if is_left_to_the_end {
                continue;
            }
            work.drain(&mut Drain {
                memory: self.buffers,
                trace: &self.trace,
                begin_ts: self.begin_ts,
                partial: is_last,
                is_last,
                buffer: &mut self.buffer,
            })?;
            if !work.overwrite {
                let region = work.region.0;
                let geometry = region.geometry;
                let drained = geometry.index_of(work.drained.position) << geometry.sub_shift();
                region.raise_limit(drained + geometry.ring_bytes());
            }
        }
        Ok(())
    }

    /// Says in the trace what was lost at its end.
    fn close(&mut self) -> std::io::Result<()> {
        let Self { works, trace, begin_ts, .. } = self;
        works.iter_mut().try_for_each(|work| work.close(trace, *begin_ts))
    }
}

/// Whether this process is in the first pid namespace, whose numbers the kernel's programs see.
fn is_first_namespace() -> bool {
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xeffffffc;
    trackway_sys::process::pid_namespace() == FIRST
}

/// The limit on open files, as high as it may be while this lives: two are open for each event, and
/// the command is to have the limit that it would have had.
struct FilesLimit(Option<u64>);

impl FilesLimit {
    fn raise() -> Self {
        Self(trackway_sys::process::raise_descriptor_limit().ok())
    }
}

impl Drop for FilesLimit {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = trackway_sys::process::set_descriptor_limit(before);
        }
    }
}

/// The regions of all CPUs and levels.
fn works(buffers: &'static Buffers, overwrite: bool) -> Vec<RegionWork> {
    let cpus = buffers.cpus();
    let streams_of_a_level = (cpus * Way::ALL.len()) as u64;
    let names = |level: usize| {
        let files = if level == 0 { trace::KERNEL.into() } else { format!("kernel{level}") };
        let instances_before = level as u64 * streams_of_a_level;
        Arc::new(StreamNames { class: 0, files, instances_before })
    };
    let names: Vec<_> = (0..LEVELS).map(names).collect();
    let all = (0..cpus).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)));
    all.filter_map(|(cpu, level)| {
        let region = buffers.region(cpu, level)?;
        let names = Arc::clone(&names[level]);
        Some(RegionWork::new(region, names, cpu as u32, Way::Sequence, overwrite))
    })
    .collect()
}

/// CPUs that have buffers: those up to the last that is there. The memory of all is taken at once,
/// and machines claim many more that never come.
fn cpus() -> usize {
    cpus::online().into_iter().max().map_or(1, |last| last as usize + 1)
}

/// A layout for so many bytes a CPU, as far as they can be had.
fn layout(size_bytes: u64, cpus: usize, events: usize) -> Result<Layout, RecordError> {
    let wanted = if size_bytes == 0 { CPU_BYTES } else { size_bytes };
    let most = (BUFFERS_BYTES_MAX / cpus) as u64;
    let shift = wanted.min(most).max(1 << (SUB_SHIFT + 1)).ilog2();
    let fits = |shift: &u32| {
        let layout = Layout::new(SUB_SHIFT, shift - SUB_SHIFT, events)?;
        (layout.cpu_bytes() * cpus <= BUFFERS_BYTES_MAX).then_some(layout)
    };
    (SUB_SHIFT + 1..=shift)
        .rev()
        .find_map(|shift| fits(&shift))
        .ok_or_else(|| failed("no buffers", "this machine has too many CPUs"))
}

/// An event of the scheduler's, which scopes need.
fn scheduler(catalogue: &Catalogue, name: &str) -> Result<Event, RecordError> {
    let name = EventName { subsystem: "sched".into(), name: name.into() };
    let found = catalogue.events([&name]).events.into_iter().next();
    found.ok_or_else(|| failed("cannot follow what the command starts", "no sched events"))
}

fn refused(event: &Event, error: LoadError) -> RecordError {
    match error {
        LoadError::Unavailable(error) => unavailable(error),
        // bpf_loop()
        LoadError::Refused(_, log) if log.contains("unknown#181") => {
            let what = format!("cannot filter {}", event.full_name());
            failed(&what, "filters that compare or search texts and arrays need Linux 5.17")
        }
        // The last line says what is wrong, but for what all logs end in.
        LoadError::Refused(error, log) => {
            let is_said = |line: &&str| !line.is_empty() && !line.starts_with("processed ");
            let line = log.lines().rev().find(is_said).unwrap_or_default();
            let what = format!("the kernel refuses to record {}", event.full_name());
            failed(&what, format_args!("{error} ({line})"))
        }
    }
}

fn unknown(event: &Event) -> RecordError {
    failed("cannot record", format_args!("{} is not as expected", event.full_name()))
}
