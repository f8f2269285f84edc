//! Kernel events, recorded beside a session's user events, into the trace's folder `kernel`.
//!
//! BPF programs fill buffers that are mapped here ([`trackway_kernel::bpf_program`]); a thread of
//! the recorder drains them as it drains the regions of traced programs. Work before the recorder
//! becomes the invoking user ([`PreparedBpf::prepare`]) needs root; later work
//! ([`PreparedBpf::begin`]) does not.

mod calls;
mod cpu_hotplug;
mod detach;
mod drain;
mod drain_source;
mod load;
mod raw_tracepoint;
mod select;
mod summary;

use detach::Attachments;
pub(crate) use drain::{BpfRecording, KernelSnapshot, wait_for_running_programs};
use load::{LoadedEvent, LoadedEventProgram};
pub(crate) use summary::KernelSummary;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use trackway_abi::region::SUB_COUNT_MAX;
use trackway_ctf::write::Meaning;
use trackway_kernel::bpf_program::attach::{AttachedProgram, CodeView, LoadedProgram};
use trackway_kernel::bpf_program::buffers::{BufferMode, Buffers};
use trackway_kernel::bpf_program::cgroup::Cgroups;
use trackway_kernel::bpf_program::codegen::{
    DispatchTables, EventNumber, ProgramCode, ProgramMaps, generate_dispatcher,
    generate_filtered_program, generate_shared_program,
};
use trackway_kernel::bpf_program::contexts::Contexts;
use trackway_kernel::bpf_program::layout::{BUFFERS_BYTES_MAX, BufferLayout};
use trackway_kernel::bpf_program::plan::{DataSource, EventPlan};
use trackway_kernel::bpf_program::scope::{NewThreadSource, Scope};
use trackway_kernel::bpf_sys::bpf::LoadError;
use trackway_kernel::catalogue::btf::Btf;
use trackway_kernel::catalogue::model::{Event, Phase, Source};
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_schema::EventDescription;
use trackway_session::ByteCount;
use trackway_sys::leaving::FastExitGuard;

use self::calls::{CallSlot, Calls};
use crate::command::launch::PreExecHook;
use crate::error::RecordError;
use crate::kernel::clock_check::refuse_other_clock;
use crate::kernel::error::{bpf_unavailable_error, kernel_error, kernel_io_error};
use crate::kernel::filters::KernelFilters;
use crate::kernel::processes::{each_thread, is_first_namespace};
use crate::kernel::request::KernelRequest;
use crate::kernel::selection::{name_of, select_events};
use crate::kernel::{omitted_fields, value_names};
use crate::notices::Notices;
use crate::window::cpus;

/// Binary logarithm of a sub-buffer's size in bytes.
const SUB_SHIFT: u32 = 16;
/// Most bytes of a CPU's buffers, unless the user specifies a size.
pub(crate) const CPU_BYTES: u64 = 8 << 20;
/// Number of loss counters for events that may be switched on later, one for each event.
const EVENTS_SPARE: usize = 1024;
/// Highest size of an event's fields, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 3500;

/// Prepared BPF buffers and programs that record kernel events.
#[derive(Debug)]
pub(crate) struct PreparedBpf {
    /// Buffers, never freed: regions are borrowed as long as the process runs.
    buffers: &'static Buffers,
    attached: Attachments,
    calls: Option<Calls>,
    /// True if all system calls have been recorded from the beginning on: then calls by unknown
    /// numbers are counted.
    has_all_calls: bool,
    scope: Option<Arc<Scope>>,
    /// True if some CPUs are excluded from recording.
    is_of_cpus: bool,
    contexts: Contexts,
    filters: KernelFilters,
    /// Events by number, which is their id in the trace; includes events that were switched off.
    events: Vec<RecordedEvent>,
    overwrite: bool,
    /// True if recording begins when the thread starts draining.
    starts: bool,
    /// Limit on open files from before it was raised, for the traced command.
    files_limit: Option<u64>,
    /// Number of runs that the kernel skipped of programs that serve several events.
    missed_of_none: u64,
    /// Guard that makes a signal end the recorder at once until recording begins.
    leaving: Option<FastExitGuard>,
    /// Programs of system calls by 32-bit numbers, by their code, while programs are loaded.
    made: Mutex<HashMap<Vec<u8>, Arc<LoadedProgram>>>,
}

/// An event that is or was recorded.
#[derive(Debug)]
struct RecordedEvent {
    name: EventName,
    description: EventDescription,
    /// Meanings of the event's fields, in the order of the fields.
    meanings: Vec<Option<Meaning>>,
    /// Names of fields that are always zero in the records of at least one of the event's programs.
    empty: Vec<String>,
    /// Names of the event's fields that are not recorded.
    left_out: Vec<String>,
    /// True if the event has filters: how many missed events would have passed is unknown.
    is_filtered: bool,
    /// Slot of the event's program, if the event is a system call that a dispatcher handles.
    call: Option<CallSlot>,
    is_on: bool,
    /// Version of the event's latest program.
    version: u32,
    /// Version of the program that records the event while the event is on.
    recording: u32,
    /// Number of times that the kernel skipped the event's program.
    missed: u64,
    /// Part of `missed` that counts as lost: from times when all events were to be recorded.
    missed_lost: u64,
}

impl RecordedEvent {
    /// Notes fields that may always be zero in the records of one of the event's programs.
    fn add_unknown_fields<'a>(&mut self, fields: impl Iterator<Item = &'a str>) {
        for field in fields {
            if !self.empty.iter().any(|empty| empty == field) {
                self.empty.push(field.to_owned());
            }
        }
    }
}

/// A program on a tracepoint.
#[derive(Debug)]
struct AttachedEventProgram {
    attached: AttachedProgram,
    /// Number of the event that the program records; `None` if it serves all events.
    event: Option<usize>,
    /// Version of the event's program that this program is.
    version: u32,
    /// Number of times that the kernel had skipped the program at the latest check.
    missed: u64,
}

impl PreparedBpf {
    /// Creates buffers and programs, which record nothing before [`Self::begin`].
    // Longer than 70 lines: the steps must come in this order, before anything is recorded.
    pub(crate) fn prepare(
        request: &KernelRequest<'_>,
        notices: &Notices,
    ) -> Result<Self, RecordError> {
        let KernelRequest { spec, shared_filters, .. } = *request;
        let (is_scoped, overwrite) = (!request.is_system_wide(), request.overwrites());
        // Only x86-64 keeps BPF programs' stores in the order that the recorder needs.
        if !cfg!(target_arch = "x86_64") {
            return Err(kernel_error(
                "cannot record kernel events",
                "not on this processor, so far",
            ));
        }
        if is_scoped && !is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(kernel_error("cannot record kernel events", why));
        }
        refuse_other_clock()?;
        let leaving = FastExitGuard::at_once(notices.are_printed());
        // Each recorded event needs two open files.
        let files_limit = trackway_sys::process::raise_descriptor_limit().ok();
        let catalogue = Catalogue::open()?;
        let contexts = Contexts::new(&request.contexts()?, catalogue.btf());
        let contexts =
            contexts.map_err(|error| kernel_error("cannot record kernel events", error))?;
        let events = select_events(&catalogue, &spec.on)?;
        if events.is_empty() {
            let patterns = spec.on.join(",");
            notices
                .report(format_args!("no event of the kernel is recorded: '{patterns}' is none"));
        }
        let calls = Calls::new(&catalogue);
        load::check_open_files_limit(
            events.iter().filter(|event| has_tracepoint(calls.as_ref(), event)),
        )?;
        let events_max = events.len().saturating_add(EVENTS_SPARE);
        let (cpus, layout) = choose_cpus_and_layout(request.size_bytes(), events_max)?;
        let buffers = Buffers::new(layout, cpus, BufferMode::from_overwrite(overwrite))
            .map_err(bpf_unavailable_error)?;
        if let Some(list) = &spec.cpus {
            let chosen = cpus::parse_user_cpus(list)?;
            let others = (0..cpus).filter(|&cpu| !chosen.contains(&(cpu as u32)));
            others.for_each(|cpu| buffers.exclude_cpu(cpu));
        }
        // Loading and attaching programs causes many of the recorded events, while no thread drains
        // the buffers yet.
        buffers.stop();
        let begun = Instant::now();
        let mut kernel = Self {
            buffers: Box::leak(Box::new(buffers)),
            attached: Attachments::default(),
            calls,
            has_all_calls: false,
            scope: None,
            is_of_cpus: spec.cpus.is_some(),
            contexts,
            filters: KernelFilters::default(),
            events: Vec::new(),
            overwrite,
            starts: !request.is_stopped,
            files_limit,
            missed_of_none: 0,
            leaving: Some(leaving),
            made: Mutex::default(),
        };
        let staged = |event: &Event| kernel.plan_event(event, catalogue.btf(), true);
        let filters = (&spec.filters[..], shared_filters);
        kernel.filters = KernelFilters::new(filters, &events, staged, (cpus, catalogue.btf()))?;
        if is_scoped {
            kernel.create_scope(&spec.cgroups, &catalogue)?;
        }
        kernel.record_all(&events, catalogue.btf(), notices)?;
        omitted_fields::report_omitted_fields(kernel.omitted_fields(0), notices);
        kernel.has_all_calls = kernel.records_all_calls(&catalogue);
        kernel.attach_calls()?;
        kernel.add_processes(&spec.pids)?;
        detach::report_slow_start(begun, notices);
        // Return megabytes to the kernel now, which records an event for each page.
        drop((events, catalogue));
        Ok(kernel)
    }

    /// Creates the scope, limited to `cgroups` if there are any. Attaches the programs that
    /// maintain the scope before all others, so that a member is recorded from its first event.
    fn create_scope(
        &mut self,
        cgroups: &[PathBuf],
        catalogue: &Catalogue,
    ) -> Result<(), RecordError> {
        let scope = match cgroups {
            [] => Scope::new(),
            cgroups => Scope::new_for_cgroups(Cgroups::open(cgroups)?),
        };
        let scope = scope.map_err(bpf_unavailable_error)?;
        self.attach_inheritance(&scope, catalogue)?;
        let found = scope.add_cgroup_threads();
        found.map_err(|error| kernel_io_error("cannot record control groups", error))?;
        self.scope = Some(Arc::new(scope));
        Ok(())
    }

    /// Attaches the program that adds new threads to the scope. It uses the raw tracepoint. At
    /// other tracepoints the kernel skips programs now and then, and all events of a skipped thread
    /// would be missing.
    fn attach_inheritance(
        &mut self,
        scope: &Scope,
        catalogue: &Catalogue,
    ) -> Result<(), RecordError> {
        if let Some((source, btf_id)) = catalogue.btf().and_then(NewThreadSource::find_argument)
            && let Some(code) = scope.generate_inheritance(source)
            && let Ok(loaded) = LoadedProgram::load_raw(&code, btf_id)
        {
            let attached = loaded.attach_raw().map_err(bpf_unavailable_error)?;
            self.add_attachment(attached, None, false);
            return Ok(());
        }
        let name = EventName { subsystem: "task".into(), name: "task_newtask".into() };
        let new = catalogue.events([&name]).events.into_iter().next();
        let new = new.ok_or_else(|| {
            kernel_error("cannot follow what the command starts", "no such event")
        })?;
        let code =
            NewThreadSource::find_field(&new).and_then(|source| scope.generate_inheritance(source));
        self.attach_tracepoint(&code.ok_or_else(|| unexpected_event_error(&new))?, &new, None)
    }

    /// Adds the existing threads of processes to the scope; the kernel adds their later children.
    fn add_processes(&self, pids: &[u32]) -> Result<(), RecordError> {
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

    /// Returns the plan of an event's record: from a system call's registers, or from arguments if
    /// they are known and, with `is_tried`, the kernel accepts the program, or from the record.
    fn plan_event(&self, event: &Event, btf: Option<&Btf>, is_tried: bool) -> EventPlan {
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

    /// Generates the next program of an event; `None` if the filters pass none of its records.
    fn generate_code(
        &self,
        number: usize,
        event: &Event,
        staged: &EventPlan,
    ) -> Result<Option<ProgramCode>, RecordError> {
        let Some(filters) = self.filters.of(number) else { return Ok(None) };
        let id = u16::try_from(number).map_err(|_| unexpected_event_error(event))?;
        // The dispatcher has already checked the scope of a system call.
        let is_call = staged.data_source == DataSource::Registers;
        if let (Some(call), Some(calls), []) = (staged.call, &self.calls, filters)
            && call.is_compat
            && staged.version == 0
        {
            // Calls that are recorded alike share this program; a map gives each call's event.
            let events_fd = calls.of(call.phase).compat.events_fd();
            let code = generate_shared_program(
                staged,
                self.buffers.layout(),
                ProgramMaps { buffers_fd: self.buffers.map_fd(), scope: None },
                events_fd,
            );
            return code.map(Some).map_err(|_| unexpected_event_error(event));
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
        code.map(Some).map_err(|_| unexpected_event_error(event))
    }

    /// Attaches an event's program; `number` is a known event, or the next one, which is on then.
    fn attach_event(
        &mut self,
        number: usize,
        event: &Event,
        made: LoadedEvent,
    ) -> Result<(), RecordError> {
        let LoadedEvent { staged, program } = made;
        let mut of_call = None;
        match (program, &mut self.calls) {
            (LoadedEventProgram::Call(loaded, slot), Some(calls)) => {
                calls.set(slot, &loaded, number).map_err(bpf_unavailable_error)?;
                of_call = Some(slot);
            }
            (LoadedEventProgram::Raw(loaded), _) => {
                let attached = loaded.attach_raw().map_err(bpf_unavailable_error)?;
                self.add_attachment(attached, Some(number), false);
            }
            (LoadedEventProgram::Tracepoint(loaded, id), _) => {
                let attached = loaded.attach(id).map_err(bpf_unavailable_error)?;
                self.add_attachment(attached, Some(number), true);
            }
            (LoadedEventProgram::None | LoadedEventProgram::Call(..), _) => {}
        }
        match self.events.get_mut(number) {
            Some(known) => {
                known.call = of_call.or(known.call);
                known.add_unknown_fields(staged.unknown_fields());
            }
            None => self.events.push(RecordedEvent {
                name: name_of(event),
                empty: staged.unknown_fields().map(str::to_owned).collect(),
                meanings: value_names::meanings_of_event(&staged),
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
    fn attach_tracepoint<'a>(
        &mut self,
        code: impl Into<CodeView<'a>>,
        event: &Event,
        number: Option<usize>,
    ) -> Result<(), RecordError> {
        let id = event.id.ok_or_else(|| unexpected_event_error(event))?;
        let loaded = LoadedProgram::load(code).map_err(|error| load_failure(event, error))?;
        let attached = loaded.attach(id).map_err(bpf_unavailable_error)?;
        self.add_attachment(attached, number, true);
        Ok(())
    }

    /// Adds an attached program; runs missed before do not count. `is_slow`: detaching the program
    /// takes long.
    fn add_attachment(&mut self, attached: AttachedProgram, event: Option<usize>, is_slow: bool) {
        if let Some(leaving) = self.leaving.as_ref().filter(|_| is_slow) {
            leaving.expect_slow(attached.descriptor());
        }
        let missed = attached.missed_runs().unwrap_or(0);
        let version = event.map_or(0, |number| self.version(number));
        self.attached.push(AttachedEventProgram { attached, event, version, missed });
    }

    /// Attaches the dispatchers of system calls if any call is recorded. Attaches the exit
    /// dispatcher first, so that no recorded entry lacks its exit.
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
            let code = code.ok_or_else(|| kernel_error("cannot record", "system calls"))?;
            let loaded = LoadedProgram::load_raw(&code, side.btf_id)
                .map_err(|error| kernel_error("cannot record system calls", error))?;
            let attached = loaded.attach_raw().map_err(bpf_unavailable_error)?;
            self.add_attachment(attached, None, false);
            if let Some(calls) = &mut self.calls {
                calls.side(phase).is_attached = true;
            }
        }
        Ok(())
    }

    /// Returns the version of an event's next program.
    fn version(&self, number: usize) -> u32 {
        self.events.get(number).map_or(0, |known| known.version)
    }

    /// Returns the fields that are not recorded, each with its event's name, for the event number
    /// `first` and all later events.
    fn omitted_fields(&self, first: usize) -> impl Iterator<Item = (&str, &str)> {
        self.events.iter().skip(first).flat_map(|known| {
            known.left_out.iter().map(|field| (&*known.description.name, &**field))
        })
    }

    /// Returns the filters on the recorded kernel events.
    pub(crate) const fn filters(&self) -> &KernelFilters {
        &self.filters
    }

    /// Returns the limit on open files from before it was raised, for the traced command.
    pub(crate) fn files_limit(&self) -> Option<u64> {
        self.files_limit
    }

    /// Returns the buffer size of a CPU in bytes, for events that interrupt no other event.
    pub(crate) fn cpu_bytes(&self) -> u64 {
        self.buffers.layout().geometry(0).ring_bytes()
    }

    /// Returns the possible buffer sizes, as text.
    pub(crate) fn format_possible_sizes() -> String {
        format!(
            "a power of two from {} to {}, and no more than {} for all CPUs together",
            ByteCount(1 << (SUB_SHIFT + 1)),
            ByteCount((SUB_COUNT_MAX as u64) << SUB_SHIFT),
            ByteCount(BUFFERS_BYTES_MAX as u64)
        )
    }

    /// Returns the hook that the traced command's process calls before exec. From the hook on, the
    /// process and its children are recorded.
    pub(crate) fn pre_exec_hook(&self) -> Option<PreExecHook> {
        let scope = self.scope.clone().filter(|scope| !scope.is_of_cgroups())?;
        Some(Box::new(move || {
            scope.set_recorded(trackway_sys::thread::current_tid(), true);
            Ok(())
        }))
    }

    /// Returns true if the entries of all system calls are recorded.
    fn records_all_calls(&self, catalogue: &Catalogue) -> bool {
        let numbered = self.events.iter().enumerate();
        let on = numbered.filter(|(number, of)| of.is_on && self.filters.of(*number).is_some());
        let on: BTreeSet<&EventName> = on.map(|(_, known)| &known.name).collect();
        catalogue.call_entries().all(|name| on.contains(&name))
    }

    /// Returns the number of system calls by unknown 64-bit numbers and by unknown 32-bit numbers,
    /// if they are counted. None of these calls is recorded.
    fn unknown_calls(&self) -> [u64; 2] {
        let calls = self.calls.as_ref().filter(|_| self.has_all_calls);
        calls.map_or([0; 2], |of| {
            [of.enter.programs.unknown_calls(), of.enter.compat.unknown_calls()]
        })
    }

    /// Returns true if some system calls by unknown numbers are recorded at their own tracepoints:
    /// our table lacks their numbers.
    fn has_calls_without_number(&self) -> bool {
        let is_entry = |name: &EventName| matches!(name.call(), Some((_, Phase::Enter)));
        self.events.iter().any(|known| known.call.is_none() && is_entry(&known.name))
    }

    /// Returns true if an event is recorded at its own tracepoint.
    fn has_tracepoint(&self, event: &Event) -> bool {
        has_tracepoint(self.calls.as_ref(), event)
    }
}

/// Returns true if an event is recorded at its own tracepoint. A system call that a dispatcher
/// handles is not.
fn has_tracepoint(calls: Option<&Calls>, event: &Event) -> bool {
    calls.is_none() || !matches!(event.source, Source::Syscall { number: Some(_), .. })
}

/// Returns the number of CPUs with buffers, and the layout of the buffers. All CPUs up to the last
/// present one have buffers, including offline ones, unless that makes each buffer smaller. CPUs
/// that may be plugged in get none: the memory is allocated at once, and machines declare many CPUs
/// that never come.
fn choose_cpus_and_layout(
    size_bytes: u64,
    events: usize,
) -> Result<(usize, BufferLayout), RecordError> {
    let until = |cpus: Vec<u32>| cpus.into_iter().max().map_or(1, |last| last as usize + 1);
    let (online, present) = (until(cpus::online_cpus()), until(cpus::present_cpus()));
    let of_online = choose_layout(size_bytes, online, events)?;
    let of_present = choose_layout(size_bytes, present.max(online), events);
    match of_present.is_ok_and(|layout| layout == of_online) {
        true => Ok((present.max(online), of_online)),
        false => Ok((online, of_online)),
    }
}

/// Returns a layout with `size_bytes` per CPU, or as close to that as possible.
fn choose_layout(size_bytes: u64, cpus: usize, events: usize) -> Result<BufferLayout, RecordError> {
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
        .ok_or_else(|| kernel_error("no buffers", "this machine has too many CPUs"))
}

fn load_failure(event: &Event, error: LoadError) -> RecordError {
    match error {
        LoadError::Unavailable(error) => bpf_unavailable_error(error),
        // The log of older kernels has `unknown#181` for bpf_loop().
        LoadError::Refused(_, log) if log.contains("unknown#181") => {
            let what = format!("cannot filter {}", event.full_name());
            kernel_error(&what, "filters that compare or search texts and arrays need Linux 5.17")
        }
        // The last line is the reason, except for the lines at the end of every log.
        LoadError::Refused(error, log) => {
            let is_said = |line: &&str| !line.is_empty() && !line.starts_with("processed ");
            let line = log.lines().rev().find(is_said).unwrap_or_default();
            let what = format!("the kernel refuses to record {}", event.full_name());
            kernel_error(&what, format_args!("{error} ({line})"))
        }
    }
}

fn unexpected_event_error(event: &Event) -> RecordError {
    kernel_error("cannot record", format_args!("{} is not as expected", event.full_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_a_power_of_two_and_no_more_than_there_can_be() {
        let bytes = |size_bytes, cpus| {
            let layout = choose_layout(size_bytes, cpus, EVENTS_SPARE).expect("there are such");
            assert!(layout.cpu_bytes() * cpus <= BUFFERS_BYTES_MAX);
            layout.geometry(0).ring_bytes()
        };
        assert_eq!((bytes(300 << 10, 2), bytes(1, 2)), (256 << 10, 128 << 10));
        assert_eq!(bytes(0, 2), CPU_BYTES);
        assert!(bytes(1 << 30, 64) < 4 << 20);
        assert!(choose_layout(0, 1 << 20, EVENTS_SPARE).is_err());
    }
}
