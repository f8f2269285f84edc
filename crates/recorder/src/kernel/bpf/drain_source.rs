//! State of the thread that drains the kernel's buffers ([`crate::kernel::drain_thread`]).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use trackway_console::IoError;
use trackway_kernel::bpf_program::buffers::Buffers;
use trackway_kernel::bpf_program::layout::LEVELS;
use trackway_kernel::bpf_program::scope::Scope;
use trackway_sys::clock::monotonic_ns;
use trackway_window::WriterPath;

use crate::kernel::drain_thread::{DrainResult, DrainSource};
use crate::recording::changes;
use crate::recording::region::{CloseKind, DrainContext, RegionDrain, StreamNames};
use crate::summary::Summary;
use crate::trace::layout::{self, Trace};
use crate::trace::progress_file::ProgressFile;

/// Period at which the filled part of open sub-buffers is written. It bounds the delay for readers
/// that follow the trace, and the loss if the recorder is killed.
const FLUSH_PERIOD: Duration = Duration::from_millis(500);
/// Longest delay of a commit after its record's time, in ns, up to which the order of events still
/// holds.
const LATE_NS_MAX: u64 = 5_000_000;

/// Counts of events and bytes so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KernelCounts {
    /// Committed events; at the end, events written to the trace.
    pub(super) recorded: u64,
    pub(super) overwritten: u64,
    pub(super) deleted: u64,
    pub(super) damaged: u64,
    /// Committed events that cannot be written any more: part of the losses.
    pub(super) unwritten: u64,
    pub(super) bytes: u64,
}

/// State of the draining thread.
#[derive(Debug)]
pub(super) struct BpfDrain {
    pub(super) buffers: &'static Buffers,
    pub(super) trace: Trace,
    pub(super) begin_ts: u64,
    pub(super) works: Vec<RegionDrain>,
    pub(super) buffer: Vec<u8>,
    /// Progress file, present while a reader follows the trace.
    pub(super) live: Option<ProgressFile>,
    /// Time of the latest write of open sub-buffers.
    pub(super) flushed: Instant,
    /// Events lost because the kernel passed over programs.
    pub(super) missed_lost: u64,
    pub(super) scope: Option<Arc<Scope>>,
}

/// Returns the notice about a control group that replaced another one.
fn replaced_cgroup_notice((folder, renewed): (&Path, io::Result<()>)) -> String {
    let what = format!("the cgroup {} was made anew: what is in the new one is", folder.display());
    match renewed {
        Ok(()) => format!("{what} recorded, too"),
        Err(error) => format!("{what} not recorded: {}", IoError::text(&error)),
    }
}

impl DrainSource for BpfDrain {
    fn take_change_notices(&mut self) -> Vec<String> {
        self.scope
            .iter()
            .flat_map(|scope| scope.refresh_cgroups())
            .map(replaced_cgroup_notice)
            .collect()
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
        self.works.iter_mut().for_each(RegionDrain::discard_recorded);
        changes::remove_streams(&self.trace.channel)
    }

    fn close(&mut self) -> io::Result<()> {
        self.close_streams(CloseKind::ForGood)
    }

    fn drop_largest_packet(&mut self) -> bool {
        let largest = |work: &&mut RegionDrain| work.stream.as_ref()?.last_packet_bytes();
        let work = self.works.iter_mut().max_by_key(largest);
        let is_given_up = work.is_some_and(RegionDrain::drop_last_packet);
        if is_given_up {
            self.count_unwritten_as_lost();
        }
        is_given_up
    }

    fn trace_and_progress(&mut self) -> (&Trace, &mut Option<ProgressFile>) {
        (&self.trace, &mut self.live)
    }
}

impl BpfDrain {
    /// Moves complete sub-buffers (or all, if `partial`) to the trace, and frees them for BPF
    /// programs. Flight recorders are drained only if `is_last`.
    pub(super) fn turn(&mut self, partial: bool, is_last: bool) -> io::Result<()> {
        self.note_uncounted_losses();
        let mut written = Ok(());
        for work in &mut self.works {
            work.poll();
            let is_left_to_the_end = work.overwrite && !is_last;
            if is_left_to_the_end {
                continue;
            }
            // One stream may lack space where another one has some.
            let drained = work.drain(&mut DrainContext {
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

    /// Adds losses that no region counts to the first stream of each CPU: events that interrupted
    /// too many others. The kernel counts skipped programs without their CPU, so these losses go to
    /// CPU 0.
    pub(super) fn note_uncounted_losses(&mut self) {
        for work in self.works.iter_mut().step_by(LEVELS) {
            let missed = if work.cpu == 0 { self.missed_lost } else { 0 };
            let too_deep = self.buffers.too_deep_on(work.cpu as usize);
            work.lost_uncounted = work.lost_uncounted.max(too_deep.saturating_add(missed));
        }
    }

    /// Counts committed records that are in no stream as lost; returns the number of such records.
    pub(super) fn count_unwritten_as_lost(&mut self) -> u64 {
        self.works.iter_mut().map(RegionDrain::count_unwritten_as_lost).sum()
    }

    /// Writes the remaining loss counts at the end of the streams.
    pub(super) fn close_streams(&mut self, kind: CloseKind) -> io::Result<()> {
        let Self { works, trace, begin_ts, .. } = self;
        let mut closed = Ok(());
        for work in works {
            closed = closed.and(work.close_stream(trace, *begin_ts, kind));
        }
        closed
    }

    /// Writes the remaining events; nothing was recorded after `end_ts`. A flight recorder that is
    /// not kept leaves nothing in the trace.
    pub(super) fn end(
        &mut self,
        keeps_flight_recorder: bool,
        end_ts: u64,
    ) -> DrainResult<KernelCounts> {
        let is_flight = self.works.iter().any(|work| work.overwrite);
        let (written, closed, unwritten) = if is_flight && !keeps_flight_recorder {
            self.works.iter_mut().for_each(RegionDrain::poll);
            (Ok(()), Ok(()), 0)
        } else {
            let written = self.turn(true, true);
            self.count_unwritten_as_lost();
            // A disk without space for a sub-buffer may have some for empty packets.
            let closed = self.close_at_end();
            (written, closed, self.count_unwritten_as_lost())
        };
        // On a full disk, the little space is left for the trace's completion mark.
        if written.is_ok() && closed.is_ok() {
            self.works.iter_mut().for_each(|work| work.extend(end_ts));
        }
        self.live = None;
        let recorded = self.works.iter().map(|work| work.written).sum();
        DrainResult {
            counts: KernelCounts { recorded, unwritten, ..self.counts() },
            written,
            closed,
        }
    }

    pub(super) fn counts(&self) -> KernelCounts {
        let mut summary = Summary::default();
        self.works.iter().for_each(|work| work.add_to(&mut summary));
        KernelCounts {
            recorded: self.works.iter().map(RegionDrain::committed).sum(),
            overwritten: summary.overwritten,
            deleted: summary.deleted,
            damaged: summary.damaged,
            unwritten: 0,
            bytes: summary.bytes + self.trace.metadata.bytes(),
        }
    }
}

/// Creates the drain states of all CPUs' and levels' regions.
pub(super) fn create_region_drains(buffers: &'static Buffers, overwrite: bool) -> Vec<RegionDrain> {
    let cpus = buffers.cpus();
    let streams_of_a_level = (cpus * WriterPath::ALL.len()) as u64;
    let names = |level: usize| {
        let files =
            if level == 0 { layout::KERNEL_FOLDER.into() } else { format!("kernel{level}") };
        let instances_before = level as u64 * streams_of_a_level;
        Arc::new(StreamNames { class: 0, files, instances_before })
    };
    let names: Vec<_> = (0..LEVELS).map(names).collect();
    let all = (0..cpus).flat_map(|cpu| (0..LEVELS).map(move |level| (cpu, level)));
    all.filter_map(|(cpu, level)| {
        let region = buffers.region(cpu, level)?;
        let names = Arc::clone(&names[level]);
        Some(RegionDrain::new(region, names, cpu as u32, WriterPath::Sequence, overwrite))
    })
    .collect()
}
