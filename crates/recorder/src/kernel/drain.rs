//! The kernel's buffers drained, by a thread of the recorder's; [`Draining`] is what the recorder
//! has of it, [`Drainer`] what the thread has ([`crate::kernel_thread`]).

use std::cmp::Reverse;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trackway_console::IoError;
use trackway_kernel::bpf_program::buffers::Buffers;
use trackway_kernel::bpf_program::layout::LEVELS;
use trackway_kernel::bpf_program::scope::Scope;
use trackway_session::protocol::KernelStatus;
use trackway_session::{KernelSpec, Tracefiles};
use trackway_sys::clock::monotonic_ns;
use trackway_window::Way;

use super::Kernel;
use super::newcomers::Newcomers;
use super::summary::KernelSummary;
use crate::command::Entrance;
use crate::completion::{self, By};
use crate::kernel_thread::{DrainThread, Drains, Ended, unwritten};
use crate::live::Live;
use crate::metadata::{EMPTY_FIELDS, LEFT_OUT_FIELDS, fields};
use crate::notices::Notices;
use crate::place::Place;
use crate::region::{Closed, Drain, RegionWork, StreamNames};
use crate::summary::LOST_SHOWN_MAX;
use crate::trace::{self, Trace};
use crate::{RecordError, Summary, changes, cpus, snapshot};

/// How often sub-buffers that are still open are written as far as they are: who follows the trace
/// sees events that much later at most, and a recorder that is killed loses no more.
const FLUSH_PERIOD: Duration = Duration::from_millis(500);
/// How much later than its time a record may be committed and still be shown in order.
const LATE_NS_MAX: u64 = 5_000_000;

/// How long something may be under way, where the kernel does not say when they have ended.
const UNDER_WAY_MAX: Duration = Duration::from_millis(20);

/// Buffers that a thread drains.
#[derive(Debug)]
pub(crate) struct Draining {
    pub(super) kernel: Kernel,
    pub(super) thread: DrainThread<Drainer>,
    newcomers: Newcomers,
    uuid: [u8; 16],
    realtime_offset_ns: i64,
    pub(super) is_stopped: bool,
    /// Since when, CLOCK_MONOTONIC in ns; of no meaning while it is not.
    stopped_ts: u64,
    /// Whether what is in a flight recorder goes into the trace at the end.
    keeps_flight_recorder: bool,
    /// What was lost when it was cleared last.
    forgotten: Lost,
}

/// What was lost.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost {
    /// For want of room, of each event.
    by_event: Vec<u64>,
    /// Because the kernel passed over its program, of each event; and of none.
    missed: Vec<u64>,
    missed_of_none: u64,
    /// Those of the former that are lost.
    missed_lost: Vec<u64>,
    /// Because programs interrupted each other.
    too_deep: u64,
    unasked: u64,
    /// Not lost: of each event, those whose filters asked for what was not in memory.
    unread: Vec<u64>,
    /// Nor: of each event, texts and sequences of the kernel's that were cut.
    cut: Vec<u64>,
    /// System calls by unknown numbers, of 64 bits and of 32.
    unknown_calls: [u64; 2],
}

impl Lost {
    /// What came since.
    fn since(mut self, before: &Self) -> Self {
        let take = |now: &mut [u64], before: &[u64]| {
            for (now, before) in now.iter_mut().zip(before) {
                *now = now.saturating_sub(*before);
            }
        };
        take(&mut self.by_event, &before.by_event);
        take(&mut self.missed, &before.missed);
        take(&mut self.missed_lost, &before.missed_lost);
        take(&mut self.unread, &before.unread);
        take(&mut self.cut, &before.cut);
        take(&mut self.unknown_calls, &before.unknown_calls);
        self.missed_of_none = self.missed_of_none.saturating_sub(before.missed_of_none);
        self.too_deep = self.too_deep.saturating_sub(before.too_deep);
        self.unasked = self.unasked.saturating_sub(before.unasked);
        self
    }

    fn missed(&self) -> u64 {
        self.missed.iter().sum::<u64>().saturating_add(self.missed_of_none)
    }
}

/// What a snapshot has of the kernel's events.
#[derive(Debug)]
pub(crate) struct KernelSnapshot {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// What it lacks.
    pub(crate) missing: Option<String>,
}

/// How many there are, so far.
#[derive(Debug, Clone, Copy, Default)]
struct KernelCounts {
    /// Committed; at the end, written to the trace.
    recorded: u64,
    overwritten: u64,
    deleted: u64,
    damaged: u64,
    /// Committed, and not to be written any more: among what is lost.
    unwritten: u64,
    bytes: u64,
}

impl Kernel {
    /// Makes the kernel's folder in the trace at `root`, with all events in its metadata.
    fn make_trace(
        &self,
        root: &Place,
        uuid: [u8; 16],
        realtime_offset_ns: i64,
    ) -> Result<Trace, RecordError> {
        let contexts = self.contexts.fields();
        let remarks = self.remarks().into();
        let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts, remarks)?;
        for (id, event) in (0..).zip(&self.events) {
            trace.metadata.declare_meaning(0, id, &event.description, &event.meanings);
        }
        let path = || root.path().join(trace::KERNEL).join("metadata");
        trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error.into()))?;
        Ok(trace)
    }

    /// What the trace says of itself in its `env`: which fields are empty whatever happened, and
    /// which are not recorded, of the events that are known so far.
    pub(super) fn remarks(&self) -> [(&'static str, String); 2] {
        let empty = self.events.iter().flat_map(|known| {
            let event = known.description.name.as_str();
            known.empty.iter().map(move |field| (event, field.as_str()))
        });
        [(EMPTY_FIELDS, fields(empty)), (LEFT_OUT_FIELDS, fields(self.left_out(0)))]
    }

    /// Writes what is recorded to the trace at `root`, on the clock whose offset from the time of
    /// day is this.
    pub(crate) fn begin(
        mut self,
        root: &Place,
        realtime_offset_ns: i64,
        tracefiles: Tracefiles,
    ) -> Result<Draining, RecordError> {
        // From here on signals are read.
        self.leaving = None;
        let uuid = crate::random::random_uuid()?;
        let trace = self.make_trace(root, uuid, realtime_offset_ns)?;
        let mut works = works(self.buffers, self.overwrite);
        if tracefiles.is_bounded() {
            works.iter_mut().for_each(|work| work.cut(tracefiles));
        }
        let thread = DrainThread::start(Drainer {
            buffers: self.buffers,
            trace,
            begin_ts: monotonic_ns(),
            works,
            buffer: Vec::new(),
            live: None,
            flushed: Instant::now(),
            missed_lost: 0,
            scope: self.scope.clone(),
        })?;
        let starts = self.starts;
        let mut draining = Draining {
            newcomers: Newcomers::new(self.buffers.cpus(), self.is_of_cpus),
            kernel: self,
            thread,
            uuid,
            realtime_offset_ns,
            is_stopped: true,
            stopped_ts: monotonic_ns(),
            keeps_flight_recorder: true,
            forgotten: Lost::default(),
        };
        // Not before somebody drains; what the kernel passed over until now was not to be recorded.
        if starts {
            draining.start();
        }
        Ok(draining)
    }
}

impl Draining {
    /// See [`Kernel::entrance`].
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        self.kernel.entrance()
    }

    /// See [`Kernel::files_limit`].
    pub(crate) fn files_limit(&self) -> Option<u64> {
        self.kernel.files_limit()
    }

    /// Leaves what is in a flight recorder out of the trace: snapshots have it.
    pub(crate) fn drop_flight_recorder(&mut self) {
        self.keeps_flight_recorder = false;
    }

    /// Whether it is a flight recorder.
    pub(crate) fn is_overwriting(&self) -> bool {
        self.kernel.overwrite
    }

    /// Bytes of memory of its buffers.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.kernel.buffers.layout().cpu_bytes() * self.kernel.buffers.cpus()) as u64
    }

    /// Records nothing any more, until it is started.
    pub(crate) fn stop(&mut self) {
        if self.is_stopped {
            return;
        }
        self.kernel.buffers.stop();
        self.is_stopped = true;
        wait_for_those_under_way();
        self.stopped_ts = monotonic_ns();
        self.kernel.count_missed();
    }

    /// Records again.
    pub(crate) fn start(&mut self) {
        if self.is_stopped {
            self.kernel.pass_missed();
            self.kernel.buffers.start();
            self.is_stopped = false;
        }
    }

    /// The same as [`Self::stop`]; and what was recorded is in the trace then, but for a flight
    /// recorder's.
    pub(crate) fn stop_and_write(&mut self) -> Result<(), RecordError> {
        self.stop();
        self.tell_missed()?;
        let written = self.thread.ask(|drainer| {
            drainer.turn(true, false)?;
            let is_flight = drainer.works.iter().any(|work| work.overwrite);
            if is_flight { Ok(()) } else { drainer.close_streams(Closed::ForNow) }
        })?;
        written.map_err(unwritten)
    }

    /// Forgets what was recorded and lost; it is stopped while that is done.
    pub(crate) fn clear(&mut self) -> Result<(), RecordError> {
        let was_stopped = self.is_stopped;
        self.stop();
        self.tell_missed()?;
        let cleared = self.thread.clear();
        self.forgotten = self.lost();
        if !was_stopped {
            self.start();
        }
        cleared
    }

    /// Writes events at once, because somebody follows, or not any more.
    pub(crate) fn set_followed(&self, is_followed: bool) {
        self.thread.set_followed(is_followed);
    }

    /// Says what happened since it was looked at last.
    pub(crate) fn say_news(&self, notices: &Notices) {
        self.thread.say_news(notices);
        self.newcomers.say(notices);
    }

    /// Numbers so far, and what was lost.
    fn counts(&mut self) -> Result<(KernelCounts, Lost), RecordError> {
        if !self.is_stopped {
            self.kernel.count_missed();
        }
        let counts = self.thread.ask(|drainer| {
            drainer.works.iter_mut().for_each(RegionWork::look);
            drainer.counts()
        })?;
        Ok((counts, self.lost().since(&self.forgotten)))
    }

    /// How it goes; nothing if nobody can say.
    pub(crate) fn status(&mut self, spec: KernelSpec) -> Option<KernelStatus> {
        let (counts, lost) = self.counts().ok()?;
        Some(KernelStatus {
            spec,
            events: self.events_on(),
            recorded: counts.recorded,
            lost: self.total(&lost),
            overwritten: counts.overwritten,
            deleted: counts.deleted,
            passed_over: lost.missed(),
            lost_by_event: self.lost_by_event(&lost),
            too_deep: lost.too_deep,
            unasked: lost.unasked,
            unread: lost.unread.iter().sum(),
            unknown_calls: lost.unknown_calls,
            has_calls_without_number: self.kernel.has_calls_without_number(),
            bytes: counts.bytes,
            memory_bytes: self.memory_bytes(),
            ..KernelStatus::default()
        })
    }

    /// From where on a flight recorder has something, to be written by [`Self::write_snapshot`].
    pub(crate) fn look_beside(&self, last_ns: Option<u64>) -> Result<Vec<RegionWork>, RecordError> {
        let since_ts = last_ns.map_or(0, |last| monotonic_ns().saturating_sub(last));
        self.thread
            .ask(move |drainer| drainer.works.iter().map(|work| work.beside(since_ts)).collect())
    }

    /// Writes what is there beside the recording to the trace in `folder`. `meanwhile` is called
    /// every now and then. Streams end with their last packets, and do not last to its moment
    /// ([`RegionWork::extend`]): the packet that was being written goes on in the next snapshot,
    /// and in both together an empty one that tells the moment would lie within it.
    pub(crate) fn write_snapshot(
        &self,
        mut works: Vec<RegionWork>,
        folder: &Place,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<KernelSnapshot, RecordError> {
        let trace = self.kernel.make_trace(folder, self.uuid, self.realtime_offset_ns)?;
        let fail = || RecordError::io("write", folder.path().join(trace::KERNEL));
        let begin_ts = self.thread.ask(|drainer| drainer.begin_ts)?;
        let mut summary = Summary::default();
        // Just now: writers do not wait. But all before any: threads go from CPU to CPU meanwhile.
        works.iter_mut().for_each(RegionWork::look);
        for work in &mut works {
            let drained = work.drain(&mut Drain {
                memory: self.kernel.buffers,
                trace: &trace,
                begin_ts,
                partial: true,
                is_last: false,
                buffer: &mut Vec::new(),
            });
            drained.map_err(fail())?;
            work.add_to(&mut summary);
            meanwhile();
        }
        summary.bytes += trace.metadata.bytes();
        let facts = trace.facts().map_err(fail())?;
        completion::mark(&facts, By::Record(&summary)).map_err(fail())?;
        let missing = snapshot::missing_of(&works);
        Ok(KernelSnapshot { events: summary.recorded, bytes: summary.bytes, missing })
    }

    /// Ends it, and writes what is left.
    pub(crate) fn finish(mut self) -> KernelSummary {
        self.stop();
        let keeps = self.keeps_flight_recorder;
        let told = self.tell_missed().map_err(|error| error.to_string());
        let end_ts = self.stopped_ts;
        let Ended { counts, written, closed } =
            self.thread.write_end(move |drainer| drainer.end(keeps, end_ts));
        let tells_all = told.is_ok() && closed.is_ok();
        let written = written.and(closed).map_err(|error| IoError::text(&error));
        let lost = self.lost().since(&self.forgotten);
        let events = &self.kernel.events;
        let mut summary = KernelSummary {
            recorded: counts.recorded,
            overwritten: counts.overwritten,
            deleted: counts.deleted,
            damaged: counts.damaged,
            bytes: counts.bytes,
            lost: self.total(&lost).saturating_add(counts.unwritten),
            lost_at_end: counts.unwritten,
            lost_by_event: self.lost_by_event(&lost),
            too_deep: lost.too_deep,
            missed: lost.missed(),
            missed_lost: self.missed_lost(&lost),
            unasked: lost.unasked,
            had_no_room: lost.by_event.iter().any(|&lost| lost > 0),
            unknown_calls: lost.unknown_calls,
            has_calls_without_number: self.kernel.has_calls_without_number(),
            cpus_later: self.newcomers.count(&cpus::online()),
            unwritten: told.and(written).err(),
            ..KernelSummary::default()
        };
        let of_each = |counts: &[u64]| {
            let some = events.iter().zip(counts).filter(|(_, count)| **count > 0);
            some.map(|(event, count)| (event.description.name.clone(), *count)).collect()
        };
        (summary.unread, summary.cut) = (of_each(&lost.unread), of_each(&lost.cut));
        if tells_all && (keeps || !self.is_overwriting()) {
            self.thread.mark(summary.as_summary());
        }
        let Self { kernel, thread, .. } = self;
        thread.end();
        drop(kernel);
        summary
    }

    /// How many of those that the kernel passed over are lost.
    fn missed_lost(&self, lost: &Lost) -> u64 {
        let of_none = if self.kernel.is_of_some() { 0 } else { lost.missed_of_none };
        lost.missed_lost.iter().fold(of_none, |sum, missed| sum.saturating_add(*missed))
    }

    /// Tells the streams what the kernel passed over, as far as that is a loss.
    fn tell_missed(&self) -> Result<(), RecordError> {
        let missed = self.missed_lost(&self.lost());
        self.thread.ask(move |drainer| {
            drainer.missed_lost = missed;
            drainer.tell_besides();
        })
    }

    /// What was lost since the beginning.
    fn lost(&self) -> Lost {
        let Kernel { buffers, events, .. } = &self.kernel;
        Lost {
            by_event: (0..events.len()).map(|event| buffers.lost(event)).collect(),
            missed: events.iter().map(|event| event.missed).collect(),
            missed_of_none: self.kernel.missed_of_none,
            missed_lost: events.iter().map(|event| event.missed_lost).collect(),
            too_deep: buffers.too_deep(),
            unasked: buffers.unfiltered_too_deep(),
            unread: (0..events.len()).map(|event| buffers.unread(event)).collect(),
            cut: (0..events.len()).map(|event| buffers.cut(event)).collect(),
            unknown_calls: self.kernel.unknown_calls(),
        }
    }

    /// Events with the most losses, most first.
    fn lost_by_event(&self, lost: &Lost) -> Vec<(String, u64)> {
        let of_event = |number: usize| {
            let name = &self.kernel.events[number].description.name;
            (name.clone(), lost.by_event[number].saturating_add(lost.missed_lost[number]))
        };
        let numbers = 0..self.kernel.events.len();
        let mut all: Vec<_> = numbers.map(of_event).filter(|(_, lost)| *lost > 0).collect();
        all.sort_by_key(|&(_, lost)| Reverse(lost));
        all.truncate(LOST_SHOWN_MAX);
        all
    }

    /// How many events that is.
    fn total(&self, lost: &Lost) -> u64 {
        let of_events = lost.by_event.iter().sum::<u64>();
        of_events.saturating_add(lost.too_deep).saturating_add(self.missed_lost(lost))
    }
}

/// Waits until whatever the kernel was recording is recorded. As a rule that takes a fraction of a
/// microsecond, but a virtual CPU may stand still for long.
pub(crate) fn wait_for_those_under_way() {
    if trackway_sys::process::wait_for_readers_in_kernel().is_err() {
        std::thread::sleep(UNDER_WAY_MAX);
    }
}

/// The thread's.
#[derive(Debug)]
pub(super) struct Drainer {
    buffers: &'static Buffers,
    pub(super) trace: Trace,
    begin_ts: u64,
    works: Vec<RegionWork>,
    buffer: Vec<u8>,
    /// While somebody follows.
    live: Option<Live>,
    /// When open sub-buffers were written last.
    flushed: Instant,
    /// What was lost because the kernel passed over programs.
    missed_lost: u64,
    scope: Option<Arc<Scope>>,
}

/// What is said of a control group that took the place of another one.
fn anew((folder, renewed): (&Path, io::Result<()>)) -> String {
    let what = format!("the cgroup {} was made anew: what is in the new one is", folder.display());
    match renewed {
        Ok(()) => format!("{what} recorded, too"),
        Err(error) => format!("{what} not recorded: {}", IoError::text(&error)),
    }
}

impl Drains for Drainer {
    fn news(&mut self) -> Vec<String> {
        self.scope.iter().flat_map(|scope| scope.refresh_cgroups()).map(anew).collect()
    }

    fn regular_turn(&mut self) -> io::Result<()> {
        let is_flushed = self.live.is_some() || self.flushed.elapsed() >= FLUSH_PERIOD;
        if is_flushed {
            self.flushed = Instant::now();
        }
        let until_ns = monotonic_ns().saturating_sub(LATE_NS_MAX);
        self.turn(is_flushed, false)?;
        match &mut self.live {
            Some(live) => live.note(until_ns),
            None => Ok(()),
        }
    }

    fn clear(&mut self) -> io::Result<()> {
        self.works.iter_mut().for_each(RegionWork::forget);
        changes::remove_streams(&self.trace.channel)
    }

    fn close(&mut self) -> io::Result<()> {
        self.close_streams(Closed::ForGood)
    }

    fn give_largest_up(&mut self) -> bool {
        let largest = |work: &&mut RegionWork| work.stream.as_ref()?.last_bytes();
        let work = self.works.iter_mut().max_by_key(largest);
        let is_given_up = work.is_some_and(RegionWork::give_last_up);
        if is_given_up {
            self.lose_the_rest();
        }
        is_given_up
    }

    fn live(&mut self) -> (&Trace, &mut Option<Live>) {
        (&self.trace, &mut self.live)
    }
}

impl Drainer {
    /// Moves what is complete (or all, if `partial`) to the trace, and gives programs the room; of
    /// flight recorders if it `is_last`.
    fn turn(&mut self, partial: bool, is_last: bool) -> io::Result<()> {
        self.tell_besides();
        let mut written = Ok(());
        for work in &mut self.works {
            work.look();
            let is_left_to_the_end = work.overwrite && !is_last;
            if is_left_to_the_end {
                continue;
            }
            // What one stream finds no room for another one may.
            let drained = work.drain(&mut Drain {
                memory: self.buffers,
                trace: &self.trace,
                begin_ts: self.begin_ts,
                partial,
                is_last,
                buffer: &mut self.buffer,
            });
            written = written.and(drained);
            if !work.overwrite {
                let region = work.region.0;
                let geometry = region.geometry;
                let drained = geometry.index_of(work.drained.position) << geometry.sub_shift();
                region.raise_limit(drained + geometry.ring_bytes());
            }
        }
        written
    }

    /// Has the first stream of each CPU tell what was lost in no region: what interrupted too many
    /// others; and what the kernel passed over, which it does not say of each CPU, in CPU 0's.
    fn tell_besides(&mut self) {
        for work in self.works.iter_mut().step_by(LEVELS) {
            let missed = if work.cpu == 0 { self.missed_lost } else { 0 };
            let too_deep = self.buffers.too_deep_on(work.cpu as usize);
            work.lost_besides = work.lost_besides.max(too_deep.saturating_add(missed));
        }
    }

    /// Counts as lost what was committed and is in no stream; how much that is.
    fn lose_the_rest(&mut self) -> u64 {
        self.works.iter_mut().map(RegionWork::lose_the_rest).sum()
    }

    /// Says in the trace what was lost at its end.
    fn close_streams(&mut self, how: Closed) -> io::Result<()> {
        let Self { works, trace, begin_ts, .. } = self;
        let mut closed = Ok(());
        for work in works {
            closed = closed.and(work.close(trace, *begin_ts, how));
        }
        closed
    }

    /// Writes what is left: nothing was recorded after `end_ts`. A flight recorder that is not kept
    /// leaves no trace.
    fn end(&mut self, keeps_flight_recorder: bool, end_ts: u64) -> Ended<KernelCounts> {
        let is_flight = self.works.iter().any(|work| work.overwrite);
        let (written, closed, unwritten) = if is_flight && !keeps_flight_recorder {
            self.works.iter_mut().for_each(RegionWork::look);
            (Ok(()), Ok(()), 0)
        } else {
            let written = self.turn(true, true);
            self.lose_the_rest();
            // Where there is no room for a sub-buffer there may be some for empty packets.
            let closed = self.close_at_end();
            (written, closed, self.lose_the_rest())
        };
        // Of what little room is left on a full disk, the mark of the trace needs some.
        if written.is_ok() && closed.is_ok() {
            self.works.iter_mut().for_each(|work| work.extend(end_ts));
        }
        self.live = None;
        let recorded = self.works.iter().map(|work| work.written).sum();
        Ended { counts: KernelCounts { recorded, unwritten, ..self.counts() }, written, closed }
    }

    fn counts(&self) -> KernelCounts {
        let mut summary = Summary::default();
        self.works.iter().for_each(|work| work.add_to(&mut summary));
        KernelCounts {
            recorded: self.works.iter().map(RegionWork::committed).sum(),
            overwritten: summary.overwritten,
            deleted: summary.deleted,
            damaged: summary.damaged,
            unwritten: 0,
            bytes: summary.bytes + self.trace.metadata.bytes(),
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
