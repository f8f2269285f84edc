//! The kernel's events, recorded beside a session's, into the trace's folder `kernel`.
//!
//! BPF programs fill buffers that are mapped here ([`trackway_kernel::bpf_program`]); a thread
//! of the recorder's drains them as it drains the regions of traced programs. What begins before
//! the recorder becomes the invoking user ([`Kernel::prepare`]) needs root; what comes then
//! ([`Kernel::begin`]) does not.

mod arguments;
mod changes;
mod detach;
mod drain;
pub(crate) mod left;
mod load;
mod newcomers;
mod summary;

use detach::Attachments;
pub(crate) use drain::{Draining, KernelSnapshot, wait_for_those_under_way};
use load::{Made, Program};
pub(crate) use summary::KernelSummary;

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use trackway_abi::region::SUB_COUNT_MAX;
use trackway_console::IoError;
use trackway_ctf::write::Meaning;
use trackway_kernel::bpf_program::attach::{
    AttachedProgram, CodeView, LoadedProgram, ProgramTable,
};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::cgroup::{CgroupError, Cgroups};
use trackway_kernel::bpf_program::codegen::{
    DispatchTables, EventNumber, ProgramCode, ProgramMaps, generate_dispatcher,
    generate_filtered_program, generate_shared_program,
};
use trackway_kernel::bpf_program::contexts::{Context, Contexts};
use trackway_kernel::bpf_program::layout::{BUFFERS_BYTES_MAX, BufferLayout};
use trackway_kernel::bpf_program::plan::{DataSource, EventPlan, RegisterLayout};
use trackway_kernel::bpf_program::scope::{NewThreadSource, Scope};
use trackway_kernel::bpf_sys::bpf::LoadError;
use trackway_kernel::catalogue::btf::{Btf, Class};
use trackway_kernel::catalogue::error::CatalogueError;
use trackway_kernel::catalogue::model::{Event, Phase, Source};
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_schema::EventDescription;
use trackway_session::FilterSpec;

use crate::command::Entrance;
use crate::kernel_filters::{KernelFilters, Whose};
use crate::notices::Notices;
use crate::{KernelVia, RecordError, contexts, cpus, kernel_left_out, kernel_meanings};
use trackway_session::{ByteCount, KernelSpec};
use trackway_sys::leaving::Leaving;

/// Size of a sub-buffer, as a power of two, in bytes.
const SUB_SHIFT: u32 = 16;
/// Most bytes of a CPU's buffers, unless it is asked for others.
pub(crate) const CPU_BYTES: u64 = 8 << 20;
/// Events that may be switched on later: of each, losses are counted in a place of its own.
const EVENTS_SPARE: usize = 1024;
/// Most bytes of an event's fields.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 3500;

/// Which of the kernel's events are recorded, and of whom.
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Patterns, as `trackway list --kernel` takes them.
    pub patterns: Vec<String>,
    /// And nothing of programs.
    pub only: bool,
    /// Of everything that runs, not of the command and what it starts alone.
    pub system: bool,
    /// What records say besides their fields, and `tid`.
    pub contexts: Vec<Context>,
    /// What must be true of events: those about others are left alone.
    pub filters: Vec<FilterSpec>,
    /// Those are about the kernel's events alone: of what is switched on later, too.
    pub has_own_filters: bool,
    /// But that these are asked of programs' events, too.
    pub shared_filters: Vec<FilterSpec>,
    /// By which way; `None`: by BPF where the kernel lets us, else by tracefs.
    pub via: Option<KernelVia>,
    /// Of the processes in these control groups, and below, instead.
    pub cgroups: Vec<PathBuf>,
    /// Of these CPUs alone, as the kernel lists them (`0,2-3`); `None`: of all.
    pub cpus: Option<String>,
    /// Of these processes instead, and of what they start from now on.
    pub pids: Vec<u32>,
    /// Nothing is recorded until it is started.
    pub is_stopped: bool,
}

impl KernelOptions {
    /// Whose its filters are.
    pub(crate) fn whose(&self) -> Whose<'_> {
        match self.has_own_filters {
            true => Whose::Kernels(&self.shared_filters),
            false => Whose::Anybodys,
        }
    }

    /// Of a command, as a session's file says it.
    ///
    /// # Errors
    ///
    /// If a context has no meaning, or the file names processes instead.
    pub fn of_command(spec: &KernelSpec) -> Result<Self, RecordError> {
        if !spec.pids.is_empty() {
            let why = "the file has processes whose kernel events are recorded (pids), not CMD's";
            let hint = "trackway session load records them, in the background".to_owned();
            return Err(RecordError::Kernel(why.into(), Some(hint)));
        }
        Ok(Self { system: false, ..Self::of(spec, false)? })
    }

    /// Of a session in the background.
    ///
    /// # Errors
    ///
    /// If a context has no meaning.
    pub(crate) fn of(spec: &KernelSpec, is_stopped: bool) -> Result<Self, RecordError> {
        Ok(Self {
            patterns: spec.on.clone(),
            only: spec.only,
            system: spec.pids.is_empty() && spec.cgroups.is_empty(),
            contexts: contexts::of_kernel(&spec.contexts)?,
            filters: spec.filters.clone(),
            has_own_filters: true,
            shared_filters: Vec::new(),
            via: spec.via,
            cgroups: spec.cgroups.clone(),
            cpus: spec.cpus.clone(),
            pids: spec.pids.clone(),
            is_stopped,
        })
    }
}

/// The kernel's events, being recorded into buffers.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Never given back: regions are lent for as long as the process runs.
    buffers: &'static Buffers,
    attached: Attachments,
    calls: Option<Calls>,
    /// Whether all system calls have been recorded from the beginning on: those that are not have
    /// numbers that no call has, and are counted.
    has_all_calls: bool,
    scope: Option<Arc<Scope>>,
    /// Whether CPUs are left out.
    is_of_cpus: bool,
    contexts: Contexts,
    filters: KernelFilters,
    /// By number, which is their id in the trace; those that were switched off, too.
    events: Vec<Known>,
    overwrite: bool,
    /// Whether it is recorded as soon as somebody drains.
    starts: bool,
    /// The limit on open files as it was: the command's.
    files_limit: Option<u64>,
    /// How often the kernel passed over programs that serve several events.
    missed_of_none: u64,
    /// What a signal does until it is begun.
    leaving: Option<Leaving>,
    /// Programs of calls by the numbers of 32 bits, by their code, while others are made.
    made: Mutex<HashMap<Vec<u8>, Arc<LoadedProgram>>>,
}

/// An event that is recorded, or was.
#[derive(Debug)]
struct Known {
    name: EventName,
    description: EventDescription,
    /// What its fields stand for.
    meanings: Vec<Option<Meaning>>,
    /// Those of its fields that are zero, whatever they are; of some of its programs, at least.
    empty: Vec<String>,
    /// Those that are not recorded.
    left_out: Vec<String>,
    /// Whether it is asked for anything: nobody knows how many were wanted of those that the kernel
    /// passed over.
    is_filtered: bool,
    /// If it is one of the programs of system calls: which.
    call: Option<Slot>,
    is_on: bool,
    /// The latest of its programs.
    version: u32,
    /// Which of them records it while it is on.
    recording: u32,
    /// How often the kernel passed over its program.
    missed: u64,
    /// How many of those are lost: all were wanted at that time.
    missed_lost: u64,
}

impl Known {
    /// Takes note that these of its fields may be zero, whatever they are: of what one of its
    /// programs records.
    fn lack<'a>(&mut self, fields: impl Iterator<Item = &'a str>) {
        for field in fields {
            if !self.empty.iter().any(|empty| empty == field) {
                self.empty.push(field.to_owned());
            }
        }
    }
}

/// A program on a tracepoint.
#[derive(Debug)]
struct Attachment {
    attached: AttachedProgram,
    /// Which of the events it records; `None`: it serves all.
    event: Option<usize>,
    /// Which of its programs.
    version: u32,
    /// How often the kernel has passed over it, at the latest look.
    missed: u64,
}

/// System calls, by their raw tracepoints: two programs see all, and go on with the one of the
/// call, if that is recorded. No record is made of a call that nobody wants.
#[derive(Debug)]
struct Calls {
    registers: RegisterLayout,
    /// Threads whose call has texts that could not be read when it was entered.
    unread: Scope,
    enter: Side,
    exit: Side,
}

/// Calls before, or behind.
#[derive(Debug)]
struct Side {
    /// The raw tracepoint's type in BTF.
    btf_id: u32,
    programs: ProgramTable,
    /// Those of calls by the numbers of 32 bits.
    compat: ProgramTable,
    is_used: bool,
    is_attached: bool,
}

/// Which of the programs of system calls one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    number: u32,
    phase: Phase,
    /// Whether the number is one of 32 bits.
    is_compat: bool,
}

impl Side {
    const fn programs_of(&self, slot: Slot) -> &ProgramTable {
        if slot.is_compat { &self.compat } else { &self.programs }
    }
}

impl Calls {
    /// More than there are numbers of calls.
    const NUMBERS: u32 = 1024;

    /// `None`: this kernel, or machine, has them as events only.
    fn new(catalogue: &Catalogue) -> Option<Self> {
        let btf = catalogue.btf()?;
        let registers = RegisterLayout::find(btf)?;
        let side = |phase: Phase, name: &str| {
            let btf_id = btf.find(Class::Typedef, name)?.id;
            let programs = ProgramTable::new(Self::NUMBERS).ok()?;
            // Whether the kernel takes such programs.
            let compat = ProgramTable::new(Self::NUMBERS).ok()?;
            let code = generate_dispatcher(
                phase,
                &registers,
                DispatchTables { programs: &programs, compat: &compat },
                None,
                None,
            )?;
            LoadedProgram::load_raw(&code, btf_id).ok()?;
            Some(Side { btf_id, programs, compat, is_used: false, is_attached: false })
        };
        let enter = side(Phase::Enter, "btf_trace_sys_enter")?;
        let exit = side(Phase::Exit, "btf_trace_sys_exit")?;
        Some(Self { registers, unread: Scope::new().ok()?, enter, exit })
    }

    /// Puts the program of a call where it is looked for, which records the event of this number.
    fn set(&mut self, slot: Slot, loaded: &LoadedProgram, event: usize) -> std::io::Result<()> {
        let side = self.side(slot.phase);
        let id = u16::try_from(event).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        side.programs_of(slot).set_event(slot.number, EventNumber { id, index: event });
        side.programs_of(slot).set(slot.number, loaded)?;
        side.is_used = true;
        Ok(())
    }

    /// Takes it away.
    fn remove(&self, slot: Slot) {
        self.of(slot.phase).programs_of(slot).remove(slot.number);
    }

    fn of(&self, phase: Phase) -> &Side {
        match phase {
            Phase::Enter => &self.enter,
            Phase::Exit => &self.exit,
        }
    }

    fn side(&mut self, phase: Phase) -> &mut Side {
        match phase {
            Phase::Enter => &mut self.enter,
            Phase::Exit => &mut self.exit,
        }
    }
}

pub(crate) fn failed(what: &str, error: impl std::fmt::Display) -> RecordError {
    RecordError::Kernel(format!("{what}: {error}"), None)
}

/// As [`failed`], for an error of the system.
pub(crate) fn io_failure(what: &str, error: std::io::Error) -> RecordError {
    failed(what, IoError::from(error))
}

impl From<CatalogueError> for RecordError {
    fn from(error: CatalogueError) -> Self {
        let hint = error.hint();
        match error {
            CatalogueError::PermissionDenied => Self::NoKernelRights(error.to_string(), hint),
            _ => Self::Kernel(error.to_string(), hint),
        }
    }
}

impl From<CgroupError> for RecordError {
    fn from(error: CgroupError) -> Self {
        let hint = match &error {
            CgroupError::Io(_, why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
                let hint = "root may (sudo trackway record …)".to_owned();
                return Self::NoKernelRights(error.to_string(), Some(hint));
            }
            CgroupError::Missing(_) | CgroupError::NotCgroup2(_) => {
                Some("findmnt -t cgroup2 says where they are".to_owned())
            }
            CgroupError::Io(..) | CgroupError::TooMany => None,
        };
        Self::Kernel(error.to_string(), hint)
    }
}

/// What to do about an error of bpf(2) or perf_event_open(2).
pub(crate) fn unavailable(error: impl Into<IoError>) -> RecordError {
    let error = error.into();
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
    let hint = hint.map(str::to_owned);
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RecordError::NoKernelRights(why, hint),
        _ => RecordError::Kernel(why, hint),
    }
}

impl Kernel {
    /// Makes buffers and programs, which record nothing before [`Self::begin`]. The size is of a
    /// CPU's buffers, in bytes; 0: as is usual.
    pub(crate) fn prepare(
        options: &KernelOptions,
        size_bytes: u64,
        overwrite: bool,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        // What a program writes is seen in this order by those who read it there alone.
        if !cfg!(target_arch = "x86_64") {
            return Err(failed("cannot record kernel events", "not on this processor, so far"));
        }
        if !options.system && !is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(failed("cannot record kernel events", why));
        }
        refuse_other_clock()?;
        let leaving = Leaving::at_once(notices.are_printed());
        // Two are open for each event, as long as it is recorded.
        let files_limit = trackway_sys::process::raise_descriptor_limit().ok();
        let catalogue = Catalogue::open()?;
        let contexts = Contexts::new(&options.contexts, catalogue.btf());
        let contexts = contexts.map_err(|error| failed("cannot record kernel events", error))?;
        let events = selected(&catalogue, &options.patterns)?;
        if events.is_empty() {
            let patterns = options.patterns.join(",");
            notices.say(format_args!("no event of the kernel is recorded: '{patterns}' is none"));
        }
        let calls = Calls::new(&catalogue);
        load::check_limit(events.iter().filter(|event| has_tracepoint(calls.as_ref(), event)))?;
        let (cpus, layout) = layout_of_all(size_bytes, events.len().saturating_add(EVENTS_SPARE))?;
        let buffers = Buffers::new(layout, cpus, BufferMode::from_overwrite(overwrite))
            .map_err(unavailable)?;
        if let Some(list) = &options.cpus {
            let chosen = cpus::chosen(list)?;
            let others = (0..cpus).filter(|&cpu| !chosen.contains(&(cpu as u32)));
            others.for_each(|cpu| buffers.exclude_cpu(cpu));
        }
        // To load and attach programs does much of what they record, and nobody drains yet.
        buffers.stop();
        let begun = Instant::now();
        let mut kernel = Self {
            buffers: Box::leak(Box::new(buffers)),
            attached: Attachments::default(),
            calls,
            has_all_calls: false,
            scope: None,
            is_of_cpus: options.cpus.is_some(),
            contexts,
            filters: KernelFilters::default(),
            events: Vec::new(),
            overwrite,
            starts: !options.is_stopped,
            files_limit,
            missed_of_none: 0,
            leaving: Some(leaving),
            made: Mutex::default(),
        };
        let staged = |event: &Event| kernel.staged(event, catalogue.btf(), true);
        let filters = (&options.filters[..], options.whose());
        kernel.filters = KernelFilters::new(filters, &events, staged, (cpus, catalogue.btf()))?;
        if !options.system {
            kernel.follow(&options.cgroups, &catalogue)?;
        }
        kernel.record_all(&events, catalogue.btf(), notices)?;
        kernel_left_out::say(kernel.left_out(0), notices);
        kernel.has_all_calls = kernel.records_all_calls(&catalogue);
        kernel.attach_calls()?;
        kernel.take_in(&options.pids)?;
        detach::say_why_long(begun, notices);
        // Megabytes that go back to the kernel, which says so of each page.
        drop((events, catalogue));
        Ok(kernel)
    }

    /// Makes the scope, of these control groups if there are any, and attaches what keeps it,
    /// before all others: so that a member is one from its first event.
    fn follow(&mut self, cgroups: &[PathBuf], catalogue: &Catalogue) -> Result<(), RecordError> {
        let scope = match cgroups {
            [] => Scope::new(),
            cgroups => Scope::new_for_cgroups(Cgroups::open(cgroups)?),
        };
        let scope = scope.map_err(unavailable)?;
        self.attach_heir(&scope, catalogue)?;
        let found = scope.add_cgroup_threads();
        found.map_err(|error| io_failure("cannot record control groups", error))?;
        self.scope = Some(Arc::new(scope));
        Ok(())
    }

    /// Attaches what says of each new thread whether it is in the scope. To the raw tracepoint:
    /// on others, the kernel passes over programs now and then, and everything that such a thread
    /// makes would be missing.
    fn attach_heir(&mut self, scope: &Scope, catalogue: &Catalogue) -> Result<(), RecordError> {
        if let Some((source, btf_id)) = catalogue.btf().and_then(NewThreadSource::find_argument)
            && let Some(code) = scope.generate_inheritance(source)
            && let Ok(loaded) = LoadedProgram::load_raw(&code, btf_id)
        {
            let attached = loaded.attach_raw().map_err(unavailable)?;
            self.hold(attached, None, false);
            return Ok(());
        }
        let name = EventName { subsystem: "task".into(), name: "task_newtask".into() };
        let new = catalogue.events([&name]).events.into_iter().next();
        let new =
            new.ok_or_else(|| failed("cannot follow what the command starts", "no such event"))?;
        let code =
            NewThreadSource::find_field(&new).and_then(|source| scope.generate_inheritance(source));
        self.attach(&code.ok_or_else(|| unknown(&new))?, &new, None)
    }

    /// Takes a process's threads into the scope: those that are there, and with them what they
    /// start.
    fn take_in(&self, pids: &[u32]) -> Result<(), RecordError> {
        let Some(scope) = &self.scope else { return Ok(()) };
        let take_in = |tid| {
            let is_news = !scope.contains(tid);
            if is_news {
                scope.set_recorded(tid, true);
            }
            is_news
        };
        pids.iter().try_for_each(|&pid| each_thread(pid, take_in))
    }

    /// How an event is recorded: a call from its registers, others from their arguments, where
    /// that is known, and the kernel takes it, as far as that is tried.
    fn staged(&self, event: &Event, btf: Option<&Btf>, is_tried: bool) -> EventPlan {
        let registers = self.calls.as_ref().map(|calls| calls.registers);
        let call =
            registers.and_then(|of| EventPlan::from_registers(event, &of, PAYLOAD_BYTES_MAX));
        let mut staged = call
            .or_else(|| self.staged_arguments(event, btf, is_tried))
            .unwrap_or_else(|| EventPlan::from_record_with_unknown(event, PAYLOAD_BYTES_MAX));
        staged.contexts = self.contexts.clone();
        staged.unread_threads = self.calls.as_ref().map(|calls| calls.unread.maps());
        staged
    }

    /// The program of an event, the next one; `None`: filters let none of it pass.
    fn code(
        &self,
        number: usize,
        event: &Event,
        staged: &EventPlan,
    ) -> Result<Option<ProgramCode>, RecordError> {
        let Some(filters) = self.filters.of(number) else { return Ok(None) };
        let id = u16::try_from(number).map_err(|_| unknown(event))?;
        // Whose call it is was asked before it came there.
        let is_call = staged.data_source == DataSource::Registers;
        if let (Some(call), Some(calls), []) = (staged.call, &self.calls, filters)
            && call.is_compat
            && staged.version == 0
        {
            // Most take as many numbers, and say one.
            let events_fd = calls.of(call.phase).compat.events_fd();
            let code = generate_shared_program(
                staged,
                self.buffers.layout(),
                ProgramMaps { buffers_fd: self.buffers.map_fd(), scope: None },
                events_fd,
            );
            return code.map(Some).map_err(|_| unknown(event));
        }
        let scope = self.scope.as_deref().filter(|_| !is_call).map(Scope::maps);
        let maps = ProgramMaps { buffers_fd: self.buffers.map_fd(), scope };
        let code = generate_filtered_program(
            staged,
            self.buffers.layout(),
            maps,
            EventNumber { id, index: number },
            filters,
        );
        code.map(Some).map_err(|_| unknown(event))
    }

    /// Attaches an event's program: of the next event, which is on then, or of one that is known.
    fn record(&mut self, number: usize, event: &Event, made: Made) -> Result<(), RecordError> {
        let Made { staged, program } = made;
        let mut of_call = None;
        match (program, &mut self.calls) {
            (Program::Call(loaded, slot), Some(calls)) => {
                calls.set(slot, &loaded, number).map_err(unavailable)?;
                of_call = Some(slot);
            }
            (Program::Raw(loaded), _) => {
                let attached = loaded.attach_raw().map_err(unavailable)?;
                self.hold(attached, Some(number), false);
            }
            (Program::Tracepoint(loaded, id), _) => {
                let attached = loaded.attach(id).map_err(unavailable)?;
                self.hold(attached, Some(number), true);
            }
            (Program::None | Program::Call(..), _) => {}
        }
        match self.events.get_mut(number) {
            Some(known) => {
                known.call = of_call.or(known.call);
                known.lack(staged.unknown_fields());
            }
            None => self.events.push(Known {
                name: name_of(event),
                empty: staged.unknown_fields().map(str::to_owned).collect(),
                meanings: kernel_meanings::of(&staged),
                left_out: staged.omitted_fields,
                description: staged.description,
                is_filtered: self.filters.has(number),
                call: of_call,
                is_on: true,
                version: 0,
                recording: 0,
                missed: 0,
                missed_lost: 0,
            }),
        }
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
        let loaded = LoadedProgram::load(code).map_err(|error| refused(event, error))?;
        let attached = loaded.attach(id).map_err(unavailable)?;
        self.hold(attached, number, true);
        Ok(())
    }

    /// What the kernel passed over before does not count. Whether it takes long to let go of.
    fn hold(&mut self, attached: AttachedProgram, event: Option<usize>, is_slow: bool) {
        if let Some(leaving) = self.leaving.as_ref().filter(|_| is_slow) {
            leaving.expect_slow(attached.descriptor());
        }
        let missed = attached.missed_runs().unwrap_or(0);
        let version = event.map_or(0, |number| self.version(number));
        self.attached.push(Attachment { attached, event, version, missed });
    }

    /// Attaches what sees all system calls, where some are recorded. What returns first: so that no
    /// call is there without its end.
    fn attach_calls(&mut self) -> Result<(), RecordError> {
        self.made = Mutex::default();
        let scope = self.scope.as_deref().map(Scope::maps);
        for phase in [Phase::Exit, Phase::Enter] {
            let Some(calls) = &self.calls else { return Ok(()) };
            let side = calls.of(phase);
            if !side.is_used || side.is_attached {
                continue;
            }
            let programs = DispatchTables { programs: &side.programs, compat: &side.compat };
            let buffers_fd = self.has_all_calls.then(|| self.buffers.map_fd());
            let code = generate_dispatcher(phase, &calls.registers, programs, scope, buffers_fd);
            let code = code.ok_or_else(|| failed("cannot record", "system calls"))?;
            let loaded = LoadedProgram::load_raw(&code, side.btf_id)
                .map_err(|error| failed("cannot record system calls", error))?;
            let attached = loaded.attach_raw().map_err(unavailable)?;
            self.hold(attached, None, false);
            if let Some(calls) = &mut self.calls {
                calls.side(phase).is_attached = true;
            }
        }
        Ok(())
    }

    /// Which program of an event's is made next.
    fn version(&self, number: usize) -> u32 {
        self.events.get(number).map_or(0, |known| known.version)
    }

    /// Fields of its events that are not recorded, each with its event's name: of the one with this
    /// number, and those behind it.
    fn left_out(&self, first: usize) -> impl Iterator<Item = (&str, &str)> {
        self.events.iter().skip(first).flat_map(|known| {
            known.left_out.iter().map(|field| (&*known.description.name, &**field))
        })
    }

    /// What its events are asked.
    pub(crate) const fn filters(&self) -> &KernelFilters {
        &self.filters
    }

    /// The limit on open files as it was before, if it was raised: the command is to have that.
    pub(crate) fn files_limit(&self) -> Option<u64> {
        self.files_limit
    }

    /// Bytes of a CPU's buffers for events that interrupt no others.
    pub(crate) fn cpu_bytes(&self) -> u64 {
        self.buffers.layout().geometry(0).ring_bytes()
    }

    /// Which sizes there can be.
    pub(crate) fn sizes() -> String {
        format!(
            "a power of two from {} to {}, and no more than {} for all CPUs together",
            ByteCount(1 << (SUB_SHIFT + 1)),
            ByteCount((SUB_COUNT_MAX as u64) << SUB_SHIFT),
            ByteCount(BUFFERS_BYTES_MAX as u64)
        )
    }

    /// What the command's process does before it runs the command: from there on it, and what it
    /// starts, is recorded.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        let scope = self.scope.clone().filter(|scope| !scope.is_of_cgroups())?;
        Some(Box::new(move || {
            scope.set_recorded(trackway_sys::thread::tid(), true);
            Ok(())
        }))
    }

    /// Whether whatever begins a system call is recorded.
    fn records_all_calls(&self, catalogue: &Catalogue) -> bool {
        let numbered = self.events.iter().enumerate();
        let on = numbered.filter(|(number, of)| of.is_on && self.filters.of(*number).is_some());
        let on: BTreeSet<&EventName> = on.map(|(_, known)| &known.name).collect();
        catalogue.call_entries().all(|name| on.contains(&name))
    }

    /// How many system calls had numbers that are not known, of 64 bits and of 32, where that is
    /// counted: none of them is recorded.
    fn unknown_calls(&self) -> [u64; 2] {
        let calls = self.calls.as_ref().filter(|_| self.has_all_calls);
        calls.map_or([0; 2], |of| {
            [of.enter.programs.unknown_calls(), of.enter.compat.unknown_calls()]
        })
    }

    /// Whether some of those are recorded all the same, by tracepoints of their own: our table
    /// lacks their numbers.
    fn has_calls_without_number(&self) -> bool {
        let is_entry = |name: &EventName| matches!(name.call(), Some((_, Phase::Enter)));
        self.events.iter().any(|known| known.call.is_none() && is_entry(&known.name))
    }

    /// Whether an event is recorded at a tracepoint of its own.
    fn has_tracepoint(&self, event: &Event) -> bool {
        has_tracepoint(self.calls.as_ref(), event)
    }
}

/// Whether an event is recorded at a tracepoint of its own; calls are not, where they are seen all
/// together.
fn has_tracepoint(calls: Option<&Calls>, event: &Event) -> bool {
    calls.is_none() || !matches!(event.source, Source::Syscall { number: Some(_), .. })
}

/// Takes each of a process's threads in, by `take_in`, which says whether that was news. Whoever is
/// made by one that was no member at that moment may be listed, and be taken out again: so until
/// all that are there were members before.
pub(crate) fn each_thread(
    pid: u32,
    mut take_in: impl FnMut(u32) -> bool,
) -> Result<(), RecordError> {
    /// Most looks at threads that make others all the time, who are in it as they are made.
    const LOOKS_MAX: usize = 100;
    for look in 0..LOOKS_MAX {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let threads = tasks.into_iter().flatten().flatten();
        let threads = threads.filter_map(|one| one.file_name().to_str()?.parse().ok());
        let threads: Vec<u32> = threads.collect();
        if look == 0 && threads.is_empty() {
            return Err(failed("cannot record", format_args!("there is no process {pid}")));
        }
        if threads.into_iter().filter(|&tid| take_in(tid)).count() == 0 {
            break;
        }
    }
    Ok(())
}

/// Whether this process is in the first pid namespace, whose numbers the kernel's programs see.
pub(crate) fn is_first_namespace() -> bool {
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xeffffffc;
    trackway_sys::process::pid_namespace() == FIRST
}

/// Refuses to record by another clock than programs and the recorder have.
pub(crate) fn refuse_other_clock() -> Result<(), RecordError> {
    if has_own_clock() {
        let why = "this time namespace has a clock of its own, and the kernel's events another";
        return Err(failed("cannot record kernel events", why));
    }
    Ok(())
}

/// Whether CLOCK_MONOTONIC is another one here than the kernel's programs have.
fn has_own_clock() -> bool {
    /// PROC_TIME_INIT_INO (include/linux/proc_ns.h).
    const FIRST: u64 = 0xeffffffa;
    // Kernels without such namespaces have none of these files.
    let Ok(namespace) = std::fs::metadata("/proc/self/ns/time") else { return false };
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    namespace.ino() != FIRST && is_set_off(&offsets)
}

/// Whether offsets, as /proc/PID/timens_offsets has them, are others than zero for CLOCK_MONOTONIC.
fn is_set_off(offsets: &str) -> bool {
    let mut lines = offsets.lines().map(str::split_whitespace);
    lines.any(|mut words| words.next() == Some("monotonic") && words.any(|word| word != "0"))
}

/// The events that these patterns select; none may be in vain, whether it includes or excludes.
pub(crate) fn selected(
    catalogue: &Catalogue,
    patterns: &[String],
) -> Result<Vec<Event>, RecordError> {
    let selection = selection(catalogue, patterns)?;
    Ok(catalogue.events(&catalogue.selected_names(&selection)?).events)
}

/// The same of those that tracefs has: of calls, those by the numbers of 64 bits.
pub(crate) fn selected_of_tracefs(
    catalogue: &Catalogue,
    patterns: &[String],
) -> Result<Vec<Event>, RecordError> {
    Ok(catalogue.select(&selection(catalogue, patterns)?)?.events)
}

/// What these patterns select: each that excludes something has to be for some event.
fn selection(catalogue: &Catalogue, patterns: &[String]) -> Result<Selection, RecordError> {
    let all = patterns.iter().flat_map(|list| list.split(',')).map(str::trim);
    for excluded in all.filter_map(|pattern| pattern.strip_prefix('!')) {
        catalogue.selected_names(&Selection::new(&[excluded])?)?;
    }
    Ok(Selection::new(patterns)?)
}

pub(crate) fn name_of(event: &Event) -> EventName {
    EventName { subsystem: event.subsystem.clone(), name: event.name.clone() }
}

/// How many CPUs have buffers, and their layout: those up to the last that is there, also such as
/// are not online, which may come, as long as the others' are no smaller for that. The memory of
/// all is taken at once, so there is none for those that may be plugged in: machines claim many
/// that never are.
fn layout_of_all(size_bytes: u64, events: usize) -> Result<(usize, BufferLayout), RecordError> {
    let until = |cpus: Vec<u32>| cpus.into_iter().max().map_or(1, |last| last as usize + 1);
    let (online, present) = (until(cpus::online()), until(cpus::present()));
    let of_online = layout(size_bytes, online, events)?;
    let of_present = layout(size_bytes, present.max(online), events);
    match of_present.is_ok_and(|layout| layout == of_online) {
        true => Ok((present.max(online), of_online)),
        false => Ok((online, of_online)),
    }
}

/// A layout for so many bytes a CPU, as far as they can be had.
fn layout(size_bytes: u64, cpus: usize, events: usize) -> Result<BufferLayout, RecordError> {
    let wanted = if size_bytes == 0 { CPU_BYTES } else { size_bytes };
    let most = (BUFFERS_BYTES_MAX / cpus) as u64;
    let shift = wanted.min(most).max(1 << (SUB_SHIFT + 1)).ilog2();
    let fits = |shift: &u32| {
        let layout = BufferLayout::new(SUB_SHIFT, shift - SUB_SHIFT, events)?;
        (layout.cpu_bytes() * cpus <= BUFFERS_BYTES_MAX).then_some(layout)
    };
    (SUB_SHIFT + 1..=shift)
        .rev()
        .find_map(|shift| fits(&shift))
        .ok_or_else(|| failed("no buffers", "this machine has too many CPUs"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_set_off_where_its_own_line_says_so() {
        assert!(is_set_off("monotonic        -100         0\nboottime            0         0\n"));
        assert!(is_set_off("monotonic           0         5\nboottime            0         0\n"));
        assert!(!is_set_off("monotonic           0         0\nboottime           7         0\n"));
    }

    #[test]
    fn buffers_are_a_power_of_two_and_no_more_than_there_can_be() {
        let bytes = |size_bytes, cpus| {
            let layout = layout(size_bytes, cpus, EVENTS_SPARE).expect("there are such");
            assert!(layout.cpu_bytes() * cpus <= BUFFERS_BYTES_MAX);
            layout.geometry(0).ring_bytes()
        };
        assert_eq!((bytes(300 << 10, 2), bytes(1, 2)), (256 << 10, 128 << 10));
        assert_eq!(bytes(0, 2), CPU_BYTES);
        assert!(bytes(1 << 30, 64) < 4 << 20);
        assert!(layout(0, 1 << 20, EVENTS_SPARE).is_err());
    }
}
