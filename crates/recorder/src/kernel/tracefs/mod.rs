//! The kernel's events by tracefs, where BPF is not to be had, into the same folder `kernel` with
//! the same streams: docs/design/0012-kernel-tracefs.md.
//!
//! A thread reads the pages of an instance of ours ([`trackway_kernel::tracefs`]), makes packets of
//! them, and counts what the kernel says it lost ([`drain`], [`packets`]). As by BPF, what needs
//! root is done in [`ByTracefs::prepare`]: later the open files do.

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

use self::cgroup_members::Follower;
use self::drain::{Drainer, SeenCpu};
use self::packets::Output;
use self::summary::Counts;
pub(crate) use self::summary::Summary;
use crate::command::launch::Entrance;
use crate::common::numbers::Grouped;
use crate::error::RecordError;
use crate::kernel::drain_thread::{DrainThread, Ended, unwritten};
use crate::kernel::error::{failed, io_failure};
use crate::kernel::filters::{KernelFilters, TakenFilters};
use crate::kernel::request::KernelRequest;
use crate::kernel::{bpf, clock_check, omitted_fields, processes, selection, value_names};
use crate::notices::Notices;
use crate::trace::completion::{self, By};
use crate::trace::folder::Place;
use crate::trace::layout::{self, Trace};
use crate::trace::metadata;

/// Smallest buffer of a CPU: some pages.
const CPU_BYTES_MIN: u64 = 16 << 10;
/// Most bytes of all buffers, unless others are asked for.
const BUFFERS_BYTES: u64 = 256 << 20;

/// The kernel's events, ready to be recorded.
#[derive(Debug)]
pub(crate) struct ByTracefs {
    shared: Arc<Shared>,
    converter: Converter,
    filters: KernelFilters<Filter>,
    events: Vec<Known>,
    /// Control groups whose threads are recorded.
    folders: Option<CgroupFolders>,
}

/// An event that was selected, by number in the order in which they were.
#[derive(Debug)]
struct Known {
    name: EventName,
    /// Its number in the trace, if its records can be turned.
    number: Option<u16>,
    /// Whether it is recorded where it is on: it has what filters ask for, and tracefs has it.
    can_be: bool,
    is_on: bool,
}

/// What the recorder and its thread have of it.
#[derive(Debug)]
struct Shared {
    instance: Instance,
    cpu_bytes: u64,
    overwrite: bool,
    /// Of a command alone, which says itself when it begins.
    is_of_command: bool,
    /// Nothing is recorded until it is started.
    is_stopped: bool,
}

/// Buffers that a thread drains.
#[derive(Debug)]
pub(crate) struct Draining {
    shared: Arc<Shared>,
    converter: Arc<Converter>,
    filters: KernelFilters<Filter>,
    events: Vec<Known>,
    thread: DrainThread<Drainer>,
    /// What follows who is in control groups, if that says whose events are recorded.
    follower: Option<Follower>,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
    begin_ts: u64,
    is_stopped: bool,
    /// Since when, CLOCK_MONOTONIC in ns; of no meaning while it is not.
    stopped_ts: u64,
    /// Whether something was asked of events that is not asked any more.
    was_filtered: bool,
    /// Whether what is in a flight recorder goes into the trace at the end.
    keeps_flight_recorder: bool,
}

/// What a flight recorder has at some moment, to be written by [`Draining::write_snapshot`].
#[derive(Debug)]
pub(crate) struct Seen {
    cpus: Vec<SeenCpu>,
    since_ts: u64,
}

/// What records are to say besides their fields.
///
/// # Errors
///
/// If records of tracefs do not say it.
fn contexts(request: &KernelRequest<'_>, instance: &Instance) -> Result<Vec<Context>, RecordError> {
    // Packets say the CPU.
    let is_there = |context: &Context| *context != Context::Cpu && instance.common.has(*context);
    let mut contexts = vec![Context::Tid];
    for wanted in request.contexts()? {
        let context = Context::named(wanted.name).filter(is_there).ok_or_else(|| {
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

impl ByTracefs {
    /// Makes the buffers and enables the events; nothing is recorded yet.
    pub(crate) fn prepare(request: &KernelRequest<'_>) -> Result<Self, RecordError> {
        let KernelRequest { spec, shared_filters, .. } = *request;
        let (is_scoped, overwrite) = (!request.is_system_wide(), request.overwrites());
        if is_scoped && !processes::is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(failed("cannot record kernel events", why));
        }
        clock_check::refuse_other_clock()?;
        let chosen = spec.cpus.as_deref().map(crate::window::cpus::chosen).transpose()?;
        let catalogue = Catalogue::open()?;
        let events = selection::selected_of_tracefs(&catalogue, &spec.on)?;
        let cpus = crate::window::cpus::online().len().max(1);
        let filters = (&spec.filters[..], shared_filters);
        let as_staged = |event: &Event| plan_event(event, bpf::PAYLOAD_BYTES_MAX);
        let mut filters = KernelFilters::<Filter>::new(filters, &events, as_staged, (cpus, None))?;
        let cpu_bytes = match request.size_bytes() {
            0 => bpf::CPU_BYTES.min(BUFFERS_BYTES / cpus as u64),
            size_bytes => size_bytes,
        };
        let cpu_bytes = cpu_bytes.max(CPU_BYTES_MIN);
        let instance =
            Instance::new(&InstanceOptions { cpu_bytes, overwrite, is_scoped, cpus: chosen })?;
        let contexts = contexts(request, &instance)?;
        // One that lacks what it is asked for is not recorded.
        let (common, payload_max) = (instance.common, bpf::PAYLOAD_BYTES_MAX);
        let mut converter = Converter::with_filters(iter::empty(), common, payload_max, contexts);
        let asked = events.iter().enumerate();
        let asked = asked.map(|(at, event)| add(&mut converter, event, filters.take(at)));
        let mut events: Vec<Known> = asked.collect();
        for known in events.iter_mut().filter(|known| known.can_be) {
            instance.set_event_enabled(&known.name, true)?;
            known.is_on = true;
        }
        take_in(&instance, &spec.pids)?;
        let shared = Arc::new(Shared {
            instance,
            cpu_bytes,
            overwrite,
            is_of_command: is_scoped && spec.pids.is_empty() && spec.cgroups.is_empty(),
            is_stopped: request.is_stopped,
        });
        let groups = (!spec.cgroups.is_empty()).then_some(&spec.cgroups[..]);
        let folders = groups.map(|groups| cgroup_members::find(&shared, groups)).transpose()?;
        Ok(Self { shared, converter, filters, events, folders })
    }

    /// What its events are asked.
    pub(crate) const fn filters(&self) -> &TakenFilters {
        self.filters.taken()
    }

    /// Bytes of a CPU's buffer.
    pub(crate) fn cpu_bytes(&self) -> u64 {
        self.shared.cpu_bytes
    }

    /// Which sizes there can be.
    pub(crate) fn sizes() -> String {
        format!(
            "{} or more; and no more than {} for all CPUs together, if none is asked for",
            ByteCount(CPU_BYTES_MIN),
            ByteCount(BUFFERS_BYTES)
        )
    }

    /// Says what of the events will not be in the trace.
    pub(crate) fn say_what_is_missing(&self, notices: &Notices) {
        say_what_is_missing(&self.converter.missing_events, &self.converter.empty_fields, notices);
        omitted_fields::say(names(&self.converter.omitted_fields), notices);
    }

    /// Writes what is recorded to the trace at `root`, on the clock whose offset from the time of
    /// day is this, in such files.
    pub(crate) fn begin(
        self,
        root: &Place,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<Draining, RecordError> {
        let Self { shared, converter, filters, events, folders } = self;
        let uuid = crate::random::random_uuid()?;
        let trace = make_trace(&converter, root, uuid, realtime_offset_ns)?;
        let (converter, begin_ts) = (Arc::new(converter), monotonic_ns());
        let cpus = shared.instance.cpus().iter().map(|cpu| cpu.number);
        let of = (begin_ts, shared.overwrite.then_some(shared.cpu_bytes));
        let output = Output::new(trace, Arc::clone(&converter), of, tracefiles, cpus);
        let thread = DrainThread::start(Drainer::new(Arc::clone(&shared), output))?;
        let is_stopped = shared.is_stopped;
        let follower = folders.map(|folders| Follower::start(&shared, folders)).transpose()?;
        if !shared.is_of_command && !is_stopped {
            let error = |error| io_failure("cannot record kernel events", error);
            shared.instance.set_recording(true).map_err(error)?;
        }
        Ok(Draining {
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

/// Adds an event with what is asked of it; `None`: it lacks that, and is not recorded.
fn add(converter: &mut Converter, event: &Event, filters: Option<Vec<Filter>>) -> Known {
    let number = filters.and_then(|filters| converter.add(event, filters));
    Known { name: selection::name_of(event), number, can_be: number.is_some(), is_on: false }
}

/// Says which events tracefs does not have, and which fields of others are empty.
fn say_what_is_missing(left_out: &[String], empty: &[(String, String)], notices: &Notices) {
    if let [first, ..] = left_out {
        let count = Grouped(left_out.len() as u64);
        notices.say(format_args!(
            "tracefs does not have {count} of the kernel's events, such as {first}"
        ));
    }
    match empty {
        [] => {}
        [(event, field)] => notices.say(format_args!(
            "tracefs does not give all that is known by BPF: {field} of {event} is empty"
        )),
        [(event, field), ..] => notices.say(format_args!(
            "tracefs does not give all that is known by BPF: {} fields are empty, such as \
             {field} of {event}",
            Grouped(empty.len() as u64)
        )),
    }
}

/// Has these processes recorded, all of their threads: what those start is, too.
fn take_in(instance: &Instance, pids: &[u32]) -> Result<(), RecordError> {
    for &pid in pids {
        let (mut taken, mut known) = (Ok(()), HashSet::new());
        processes::each_thread(pid, |tid| {
            let is_news = known.insert(tid) && taken.is_ok();
            if is_news {
                taken = instance.add_thread(tid);
            }
            is_news
        })?;
        taken.map_err(|error| io_failure(&format!("cannot record process {pid}"), error))?;
    }
    Ok(())
}

/// Makes the kernel's folder in the trace at `root`, with all events in its metadata.
fn make_trace(
    converter: &Converter,
    root: &Place,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
) -> Result<Trace, RecordError> {
    let (contexts, remarks) = (converter.contexts(), remarks(converter));
    let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts, remarks)?;
    let events = converter.descriptions().iter().zip(converter.meanings());
    for (id, (event, meanings)) in (0..).zip(events) {
        let meanings = value_names::of_fields(meanings);
        trace.metadata.declare_meaning(0, id, event, &meanings);
    }
    let path = || root.path().join(layout::KERNEL).join("metadata");
    trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error.into()))?;
    Ok(trace)
}

/// What the trace says of itself in its `env`: which fields are empty whatever the program said.
fn remarks(converter: &Converter) -> Vec<(&'static str, String)> {
    let mut remarks = vec![("trackway_kernel_via", "tracefs".to_owned())];
    remarks.extend(remarks_of_fields(converter));
    remarks
}

fn remarks_of_fields(converter: &Converter) -> [(&'static str, String); 2] {
    let of = |fields| metadata::fields(names(fields));
    [
        (metadata::EMPTY_FIELDS, of(&converter.empty_fields)),
        (metadata::LEFT_OUT_FIELDS, of(&converter.omitted_fields)),
    ]
}

fn names(fields: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    fields.iter().map(|(event, field)| (&**event, &**field))
}

impl Draining {
    /// What the command's process does before it runs the command: from there on it is recorded.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        let shared = Arc::clone(&self.shared);
        shared
            .is_of_command
            .then(|| Box::new(move || shared.instance.add_current_and_start()) as Entrance)
    }

    /// Records again.
    pub(crate) fn start(&mut self) -> Result<(), RecordError> {
        let started = self.shared.instance.set_recording(true);
        started.map_err(|error| io_failure("cannot record kernel events again", error))?;
        self.is_stopped = false;
        Ok(())
    }

    /// Records nothing any more.
    pub(crate) fn stop(&mut self) -> Result<(), RecordError> {
        if self.is_stopped {
            return Ok(());
        }
        let stopped = self.shared.instance.set_recording(false);
        stopped.map_err(|error| io_failure("cannot stop recording kernel events", error))?;
        self.is_stopped = true;
        bpf::wait_for_those_under_way();
        self.stopped_ts = monotonic_ns();
        Ok(())
    }

    /// The same; and what was recorded is in the trace then, but for a flight recorder's.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        self.stop()?;
        if self.shared.overwrite {
            return Ok(());
        }
        self.thread.ask(Drainer::write_all)?.map_err(unwritten)
    }

    /// Forgets what was recorded and lost; it is stopped while that is done.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        let was_stopped = self.is_stopped;
        self.stop()?;
        let cleared = self.thread.clear();
        let started = if was_stopped { Ok(()) } else { self.start() };
        cleared.and(started)
    }

    /// Writes events at once, because somebody follows, or not any more.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.thread.set_followed(is_followed);
    }

    /// Says what happened since it was looked at last.
    pub(crate) fn say_news(&self, notices: &Notices) {
        self.thread.say_news(notices);
    }

    /// How it goes; nothing if nobody can say.
    pub(crate) fn status(&self, spec: KernelSpec) -> Option<KernelStatus> {
        let counts = self.thread.ask(Drainer::counts).ok()?;
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

    /// Bytes of memory of its buffers.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.shared.cpu_bytes.saturating_mul(crate::window::cpus::online().len() as u64)
    }

    /// Leaves what is in a flight recorder out of the trace: snapshots have it.
    pub(crate) fn drop_flight_recorder(&mut self) {
        self.keeps_flight_recorder = false;
    }

    /// What a flight recorder has now; none if it is no such.
    pub(crate) fn look_beside(&self, last_ns: Option<u64>) -> Result<Option<Seen>, RecordError> {
        if !self.shared.overwrite {
            return Ok(None);
        }
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        let cpus = self.thread.ask(Drainer::look_beside)?;
        let cpus = cpus.map_err(|error| io_failure("cannot read kernel events", error))?;
        Ok(Some(Seen { cpus, since_ts }))
    }

    /// Writes what [`Self::look_beside`] saw to the trace in `folder`: how many events and bytes
    /// that is.
    pub(crate) fn write_snapshot(
        &self,
        seen: &Seen,
        folder: &Place,
    ) -> Result<(u64, u64), RecordError> {
        let trace = make_trace(&self.converter, folder, self.uuid, self.realtime_offset_ns)?;
        let fail = || RecordError::io("write", folder.path().join(layout::KERNEL));
        let of = (self.begin_ts, None);
        let cpus = self.shared.instance.cpus().iter().map(|cpu| cpu.number);
        let (converter, bounds) = (Arc::clone(&self.converter), Tracefiles::default());
        let mut output = Output::new(trace, converter, of, bounds, cpus);
        drain::write_seen(&mut output, &seen.cpus, seen.since_ts).map_err(fail())?;
        let counts = Counts::of(&output);
        let facts = output.trace.facts().map_err(fail())?;
        completion::mark(&facts, By::Record(&counts.as_summary())).map_err(fail())?;
        Ok((counts.recorded, counts.bytes))
    }

    /// Ends it, and writes what is left. The instance is gone then.
    pub(crate) fn finish(mut self) -> Summary {
        let stopped = self.stop().map_err(|error| error.to_string());
        let moves = self.follower.take().map(Follower::finish);
        let keeps = self.keeps_flight_recorder;
        let end_ts = self.stopped_ts;
        let Ended { counts, written, closed } =
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

/// Says what is missing since control groups were looked at now and then.
impl Shared {
    /// More pages than a CPU's buffer has.
    const fn pages_max(&self, page_bytes: usize) -> u64 {
        2 + 2 * self.cpu_bytes / if page_bytes == 0 { 1 } else { page_bytes as u64 }
    }
}
