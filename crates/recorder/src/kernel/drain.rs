//! The kernel's buffers drained by a thread of the recorder's, from the beginning of the trace to the
//! summary.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use trackway_kernel::record::buffers::Buffers;
use trackway_kernel::record::layout::LEVELS;
use trackway_window::Way;

use super::summary::KernelSummary;
use super::{Attachment, Kernel, failed};
use crate::RecordError;
use crate::region::{Drain, RegionWork, StreamNames};
use crate::report::Notices;
use crate::trace::{self, Trace};

/// How often buffers are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// Buffers that a thread drains.
pub(crate) struct Draining {
    kernel: Kernel,
    stop: Sender<()>,
    thread: JoinHandle<std::io::Result<Vec<RegionWork>>>,
}

impl Kernel {
    /// Writes what is recorded to the trace at `root`, on the clock whose offset from the time of
    /// day is this.
    pub(crate) fn begin(
        mut self,
        root: &std::path::Path,
        realtime_offset_ns: i64,
    ) -> Result<Draining, RecordError> {
        let uuid = trace::random_uuid()?;
        let contexts = self.contexts.fields();
        let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts)?;
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
