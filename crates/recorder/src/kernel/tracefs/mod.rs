//! Kernel events by tracefs, on machines without BPF, in the folder `kernel` with the same streams
//! as with BPF: docs/design/0012-kernel-tracefs.md.
//!
//! A thread reads the pages of our own tracefs instance ([`trackway_kernel::tracefs`]), writes them
//! as packets, and counts the losses that the kernel reports ([`drain`], [`packets`]). Work that
//! needs root is done in [`PreparedTracefs::prepare`]; later work uses the open files.

mod cgroup_members;
mod drain;
mod packets;
mod select;
mod summary;

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;

use trackway_console::IoError;
use trackway_kernel::bpf_program::cgroup::CgroupFolders;
use trackway_kernel::catalogue::model::Event;
use trackway_kernel::catalogue::{Catalogue, EventName};
use trackway_kernel::tracefs::contexts::Context;
use trackway_kernel::tracefs::convert::{Converter, plan_event};
use trackway_kernel::tracefs::filter::Filter;
use trackway_kernel::tracefs::instance::{Instance, InstanceError, InstanceOptions};
use trackway_session::protocol::KernelStatus;
use trackway_session::{ByteCount, KernelSpec, Tracefiles};
use trackway_sys::clock::monotonic_ns;

use self::cgroup_members::CgroupFollower;
use self::drain::{CpuContents, TracefsDrain};
use self::packets::PacketOutput;
use self::summary::Counts;
pub(crate) use self::summary::Summary;
use crate::command::launch::PreExecHook;
use crate::common::numbers::Grouped;
use crate::error::RecordError;
use crate::kernel::drain_thread::{DrainResult, DrainThread, unwritten_events_error};
use crate::kernel::error::{kernel_error, kernel_io_error};
use crate::kernel::filters::{AcceptedFilters, KernelFilters};
use crate::kernel::request::KernelRequest;
use crate::kernel::{bpf, clock_check, omitted_fields, processes, selection, value_names};
use crate::notices::Notices;
use crate::trace::completion::{self, CompletedBy};
use crate::trace::folder::TraceFolder;
use crate::trace::layout::{self, Trace};
use crate::trace::metadata;

/// Smallest buffer of a CPU, in bytes: some pages.
const CPU_BYTES_MIN: u64 = 16 << 10;
/// Most bytes of all buffers together, unless the user specifies a size.
const DEFAULT_BUFFERS_BYTES_MAX: u64 = 256 << 20;

/// Prepared tracefs instance that records kernel events.
#[derive(Debug)]
pub(crate) struct PreparedTracefs {
    shared: Arc<SharedState>,
    converter: Converter,
    filters: KernelFilters<Filter>,
    events: Vec<SelectedEvent>,
    /// Control groups whose threads are recorded.
    folders: Option<CgroupFolders>,
}

/// An event that was selected; its index is its position in the order of selection.
#[derive(Debug)]
struct SelectedEvent {
    name: EventName,
    /// Number of the event in the trace, if its records can be converted.
    number: Option<u16>,
    /// True if the event is recorded while it is on: it has the fields that filters use, and
    /// tracefs provides it.
    can_be: bool,
    is_on: bool,
}

/// State that the recorder and its draining thread share.
#[derive(Debug)]
struct SharedState {
    instance: Instance,
    cpu_bytes: u64,
    overwrite: bool,
    /// True if only a command is recorded: the command's process starts the recording itself.
    is_of_command: bool,
    /// True if nothing is recorded until the session is started.
    is_stopped: bool,
}

/// Active recording by tracefs, whose buffers a thread drains.
#[derive(Debug)]
pub(crate) struct TracefsRecording {
    shared: Arc<SharedState>,
    converter: Arc<Converter>,
    filters: KernelFilters<Filter>,
    events: Vec<SelectedEvent>,
    thread: DrainThread<TracefsDrain>,
    /// Follower of control groups, if they select the recorded threads.
    follower: Option<CgroupFollower>,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
    begin_ts: u64,
    is_stopped: bool,
    /// Time of the stop, CLOCK_MONOTONIC in ns; valid only while recording is stopped.
    stopped_ts: u64,
    /// True if filters that were replaced applied to earlier events.
    was_filtered: bool,
    /// True if a flight recorder's contents go into the trace at the end.
    keeps_flight_recorder: bool,
}

/// Contents of a flight recorder at one moment, for [`TracefsRecording::write_snapshot`].
#[derive(Debug)]
pub(crate) struct TracefsContents {
    cpus: Vec<CpuContents>,
    since_ts: u64,
}

/// Returns the contexts of the records.
///
/// # Errors
///
/// If tracefs records lack one of the contexts.
fn resolve_contexts(
    request: &KernelRequest<'_>,
    instance: &Instance,
) -> Result<Vec<Context>, RecordError> {
    // The CPU is no context here, since packets have it.
    let is_there = |context: &Context| *context != Context::Cpu && instance.common.has(*context);
    let mut contexts = vec![Context::Tid];
    for wanted in request.contexts()? {
        let context = Context::find_by_name(wanted.name).filter(is_there).ok_or_else(|| {
            let there: Vec<&str> = Context::ALL
                .iter()
                .filter(|(_, context)| is_there(context))
                .map(|(name, _)| *name)
                .collect();
            let why = format!(
                "cannot record kernel events: by tracefs there is no context '{}', because its \
                 records do not say it",
                wanted.name
            );
            let hint = format!(
                "they say {}; BPF has others (trackway doctor says what is missing)",
                there.join(", ")
            );
            RecordError::Kernel(why, Some(hint))
        })?;
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    Ok(contexts)
}

impl From<InstanceError> for RecordError {
    fn from(error: InstanceError) -> Self {
        let hint = error.hint();
        match error {
            InstanceError::Catalogue(error) => error.into(),
            InstanceError::Io(_, _, ref why)
                if why.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                Self::NoKernelRights(error.to_string(), hint)
            }
            _ => Self::Kernel(error.to_string(), hint),
        }
    }
}

impl PreparedTracefs {
    /// Creates the buffers and enables the events; nothing is recorded yet.
    pub(crate) fn prepare(request: &KernelRequest<'_>) -> Result<Self, RecordError> {
        let KernelRequest { spec, shared_filters, .. } = *request;
        let (is_scoped, overwrite) = (!request.is_system_wide(), request.overwrites());
        if is_scoped && !processes::is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(kernel_error("cannot record kernel events", why));
        }
        clock_check::refuse_other_clock()?;
        let chosen = spec.cpus.as_deref().map(crate::window::cpus::parse_user_cpus).transpose()?;
        let catalogue = Catalogue::open()?;
        let events = selection::select_tracefs_events(&catalogue, &spec.on)?;
        let cpus = crate::window::cpus::online_cpus().len().max(1);
        let filters = (&spec.filters[..], shared_filters);
        let as_staged = |event: &Event| plan_event(event, bpf::PAYLOAD_BYTES_MAX);
        let mut filters = KernelFilters::<Filter>::new(filters, &events, as_staged, (cpus, None))?;
        let cpu_bytes = match request.size_bytes() {
            0 => bpf::CPU_BYTES.min(DEFAULT_BUFFERS_BYTES_MAX / cpus as u64),
            size_bytes => size_bytes,
        };
        let cpu_bytes = cpu_bytes.max(CPU_BYTES_MIN);
        let instance =
            Instance::new(&InstanceOptions { cpu_bytes, overwrite, is_scoped, cpus: chosen })?;
        let contexts = resolve_contexts(request, &instance)?;
        // An event that lacks a filter's fields is not recorded.
        let (common, payload_max) = (instance.common, bpf::PAYLOAD_BYTES_MAX);
        let mut converter = Converter::with_filters(iter::empty(), common, payload_max, contexts);
        let asked = events.iter().enumerate();
        let asked =
            asked.map(|(at, event)| add_event(&mut converter, event, filters.take_filters(at)));
        let mut events: Vec<SelectedEvent> = asked.collect();
        for known in events.iter_mut().filter(|known| known.can_be) {
            instance.set_event_enabled(&known.name, true)?;
            known.is_on = true;
        }
        add_process_threads(&instance, &spec.pids)?;
        let shared = Arc::new(SharedState {
            instance,
            cpu_bytes,
            overwrite,
            is_of_command: is_scoped && spec.pids.is_empty() && spec.cgroups.is_empty(),
            is_stopped: request.is_stopped,
        });
        let groups = (!spec.cgroups.is_empty()).then_some(&spec.cgroups[..]);
        let folders = groups
            .map(|groups| cgroup_members::restrict_to_cgroups(&shared, groups))
            .transpose()?;
        Ok(Self { shared, converter, filters, events, folders })
    }

    /// Returns the filters on the recorded kernel events.
    pub(crate) const fn filters(&self) -> &AcceptedFilters {
        self.filters.accepted()
    }

    /// Returns the bytes of a CPU's buffer.
    pub(crate) fn cpu_bytes(&self) -> u64 {
        self.shared.cpu_bytes
    }

    /// Returns the possible buffer sizes, as text.
    pub(crate) fn format_possible_sizes() -> String {
        format!(
            "{} or more; and no more than {} for all CPUs together, if none is asked for",
            ByteCount(CPU_BYTES_MIN),
            ByteCount(DEFAULT_BUFFERS_BYTES_MAX)
        )
    }

    /// Reports the events and fields that will be missing in the trace.
    pub(crate) fn report_missing_data(&self, notices: &Notices) {
        report_missing_data(&self.converter.missing_events, &self.converter.empty_fields, notices);
        omitted_fields::report_omitted_fields(
            as_str_pairs(&self.converter.omitted_fields),
            notices,
        );
    }

    /// Starts writing recorded events to the trace at `root`, in files limited by `tracefiles`.
    /// `realtime_offset_ns` is the offset of the trace's clock from the time of day.
    pub(crate) fn begin(
        self,
        root: &TraceFolder,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<TracefsRecording, RecordError> {
        let Self { shared, converter, filters, events, folders } = self;
        let uuid = crate::random::random_uuid()?;
        let trace = make_trace(&converter, root, uuid, realtime_offset_ns)?;
        let (converter, begin_ts) = (Arc::new(converter), monotonic_ns());
        let cpus = shared.instance.cpus().iter().map(|cpu| cpu.number);
        let of = (begin_ts, shared.overwrite.then_some(shared.cpu_bytes));
        let output = PacketOutput::new(trace, Arc::clone(&converter), of, tracefiles, cpus);
        let thread = DrainThread::start(TracefsDrain::new(Arc::clone(&shared), output))?;
        let is_stopped = shared.is_stopped;
        let follower =
            folders.map(|folders| CgroupFollower::start(&shared, folders)).transpose()?;
        if !shared.is_of_command && !is_stopped {
            let error = |error| kernel_io_error("cannot record kernel events", error);
            shared.instance.set_recording(true).map_err(error)?;
        }
        Ok(TracefsRecording {
            shared,
            converter,
            filters,
            events,
            thread,
            follower,
            uuid,
            realtime_offset_ns,
            begin_ts,
            is_stopped,
            stopped_ts: begin_ts,
            was_filtered: false,
            keeps_flight_recorder: true,
        })
    }
}

/// Adds an event; `filters` is `None` if it lacks fields of a filter, and so is not recorded.
fn add_event(
    converter: &mut Converter,
    event: &Event,
    filters: Option<Vec<Filter>>,
) -> SelectedEvent {
    let number = filters.and_then(|filters| converter.add(event, filters));
    SelectedEvent {
        name: selection::name_of(event),
        number,
        can_be: number.is_some(),
        is_on: false,
    }
}

/// Reports events that tracefs does not have, and empty fields of other events.
fn report_missing_data(left_out: &[String], empty: &[(String, String)], notices: &Notices) {
    if let [first, ..] = left_out {
        let count = Grouped(left_out.len() as u64);
        notices.report(format_args!(
            "tracefs does not have {count} of the kernel's events, such as {first}"
        ));
    }
    match empty {
        [] => {}
        [(event, field)] => notices.report(format_args!(
            "tracefs does not give all that is known by BPF: {field} of {event} is empty"
        )),
        [(event, field), ..] => notices.report(format_args!(
            "tracefs does not give all that is known by BPF: {} fields are empty, such as \
             {field} of {event}",
            Grouped(empty.len() as u64)
        )),
    }
}

/// Adds all threads of these processes to the recording; their later children are recorded, too.
fn add_process_threads(instance: &Instance, pids: &[u32]) -> Result<(), RecordError> {
    for &pid in pids {
        let (mut taken, mut known) = (Ok(()), HashSet::new());
        processes::each_thread(pid, |tid| {
            let is_news = known.insert(tid) && taken.is_ok();
            if is_news {
                taken = instance.add_thread(tid);
            }
            is_news
        })?;
        taken.map_err(|error| kernel_io_error(&format!("cannot record process {pid}"), error))?;
    }
    Ok(())
}

/// Creates the kernel's folder in the trace at `root`, with all events in its metadata.
fn make_trace(
    converter: &Converter,
    root: &TraceFolder,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
) -> Result<Trace, RecordError> {
    let (contexts, remarks) = (converter.contexts(), env_remarks(converter));
    let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts, remarks)?;
    let events = converter.descriptions().iter().zip(converter.meanings());
    for (id, (event, meanings)) in (0..).zip(events) {
        let meanings = value_names::meanings_of_fields(meanings);
        trace.metadata.declare_event_with_meanings(0, id, event, &meanings);
    }
    let path = || root.path().join(layout::KERNEL_FOLDER).join("metadata");
    trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error.into()))?;
    Ok(trace)
}

/// Returns the `env` entries of the trace, which name the backend and the fields without values.
fn env_remarks(converter: &Converter) -> Vec<(&'static str, String)> {
    let mut remarks = vec![("trackway_kernel_via", "tracefs".to_owned())];
    remarks.extend(field_remarks(converter));
    remarks
}

fn field_remarks(converter: &Converter) -> [(&'static str, String); 2] {
    let of = |fields| metadata::format_field_list(as_str_pairs(fields));
    [
        (metadata::EMPTY_FIELDS, of(&converter.empty_fields)),
        (metadata::LEFT_OUT_FIELDS, of(&converter.omitted_fields)),
    ]
}

fn as_str_pairs(fields: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    fields.iter().map(|(event, field)| (&**event, &**field))
}

impl TracefsRecording {
    /// Returns the hook that the traced command's process calls before exec. From the hook on, the
    /// process is recorded.
    pub(crate) fn pre_exec_hook(&self) -> Option<PreExecHook> {
        let shared = Arc::clone(&self.shared);
        shared
            .is_of_command
            .then(|| Box::new(move || shared.instance.add_current_and_start()) as PreExecHook)
    }

    /// Starts recording again.
    pub(crate) fn start(&mut self) -> Result<(), RecordError> {
        let started = self.shared.instance.set_recording(true);
        started.map_err(|error| kernel_io_error("cannot record kernel events again", error))?;
        self.is_stopped = false;
        Ok(())
    }

    /// Stops recording.
    pub(crate) fn stop(&mut self) -> Result<(), RecordError> {
        if self.is_stopped {
            return Ok(());
        }
        let stopped = self.shared.instance.set_recording(false);
        stopped.map_err(|error| kernel_io_error("cannot stop recording kernel events", error))?;
        self.is_stopped = true;
        bpf::wait_for_running_programs();
        self.stopped_ts = monotonic_ns();
        Ok(())
    }

    /// Stops recording, and writes recorded events to the trace, except those of a flight recorder.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        self.stop()?;
        if self.shared.overwrite {
            return Ok(());
        }
        self.thread.run(TracefsDrain::write_all)?.map_err(unwritten_events_error)
    }

    /// Discards recorded events and counts of losses; recording is stopped during that.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        let was_stopped = self.is_stopped;
        self.stop()?;
        let cleared = self.thread.clear();
        let started = if was_stopped { Ok(()) } else { self.start() };
        cleared.and(started)
    }

    /// Enables undelayed writing while a reader follows the trace, and disables it otherwise.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.thread.set_followed(is_followed);
    }

    /// Reports changes in the recording since the previous call.
    pub(crate) fn report_changes(&self, notices: &Notices) {
        self.thread.report_changes(notices);
    }

    /// Returns the status of the recording; `None` if it cannot be determined.
    pub(crate) fn status(&self, spec: KernelSpec) -> Option<KernelStatus> {
        let counts = self.thread.run(TracefsDrain::counts).ok()?;
        Some(KernelStatus {
            spec,
            events: self.events.iter().filter(|known| known.is_on).count(),
            recorded: counts.recorded,
            lost: counts.lost,
            overwritten: counts.overwritten,
            deleted: counts.deleted,
            bytes: counts.bytes,
            memory_bytes: self.memory_bytes().saturating_add(counts.memory_bytes),
            ..KernelStatus::default()
        })
    }

    /// Returns the memory of the buffers, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.shared.cpu_bytes.saturating_mul(crate::window::cpus::online_cpus().len() as u64)
    }

    /// Excludes the flight recorder's contents from the trace, since only snapshots contain them.
    pub(crate) fn drop_flight_recorder(&mut self) {
        self.keeps_flight_recorder = false;
    }

    /// Returns the contents of a flight recorder; `None` if the buffers are no flight recorder.
    pub(crate) fn begin_snapshot(
        &self,
        last_ns: Option<u64>,
    ) -> Result<Option<TracefsContents>, RecordError> {
        if !self.shared.overwrite {
            return Ok(None);
        }
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        let cpus = self.thread.run(TracefsDrain::begin_snapshot)?;
        let cpus = cpus.map_err(|error| kernel_io_error("cannot read kernel events", error))?;
        Ok(Some(TracefsContents { cpus, since_ts }))
    }

    /// Writes the contents from [`Self::begin_snapshot`] to the trace in `folder`. Returns the
    /// number of events and bytes.
    pub(crate) fn write_snapshot(
        &self,
        contents: &TracefsContents,
        folder: &TraceFolder,
    ) -> Result<(u64, u64), RecordError> {
        let trace = make_trace(&self.converter, folder, self.uuid, self.realtime_offset_ns)?;
        let fail = || RecordError::io("write", folder.path().join(layout::KERNEL_FOLDER));
        let of = (self.begin_ts, None);
        let cpus = self.shared.instance.cpus().iter().map(|cpu| cpu.number);
        let (converter, bounds) = (Arc::clone(&self.converter), Tracefiles::default());
        let mut output = PacketOutput::new(trace, converter, of, bounds, cpus);
        drain::write_contents(&mut output, &contents.cpus, contents.since_ts).map_err(fail())?;
        let counts = Counts::of(&output);
        let facts = output.trace.facts_folder().map_err(fail())?;
        completion::mark_complete(&facts, CompletedBy::Record(&counts.as_summary()))
            .map_err(fail())?;
        Ok((counts.recorded, counts.bytes))
    }

    /// Ends the recording, and writes the remaining events. Then the instance is removed.
    pub(crate) fn finish(mut self) -> Summary {
        let stopped = self.stop().map_err(|error| error.to_string());
        let moves = self.follower.take().map(CgroupFollower::finish);
        let keeps = self.keeps_flight_recorder;
        let end_ts = self.stopped_ts;
        let DrainResult { counts, written, closed } =
            self.thread.write_end(move |drainer| drainer.end(keeps, end_ts));
        let tells_all = closed.is_ok();
        let written = stopped.and(written.and(closed).map_err(|error| IoError::text(&error)));
        let is_filtered = self.was_filtered || self.converter.has_filters();
        let summary = Summary { counts, is_filtered, unwritten: written.err(), moves };
        if tells_all && (keeps || !self.shared.overwrite) {
            self.thread.mark(counts.as_summary());
        }
        self.thread.end();
        summary
    }
}

impl SharedState {
    /// Returns an upper bound for the number of pages in a CPU's buffer.
    const fn pages_max(&self, page_bytes: usize) -> u64 {
        2 + 2 * self.cpu_bytes / if page_bytes == 0 { 1 } else { page_bytes as u64 }
    }
}
