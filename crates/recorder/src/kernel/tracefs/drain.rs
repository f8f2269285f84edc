//! Draining of the pages of a tracefs instance by a thread ([`crate::kernel::drain_thread`]).

use std::io;
use std::sync::Arc;

use trackway_kernel::tracefs::convert::Converter;
use trackway_kernel::tracefs::instance::BufferStats;
use trackway_sys::clock::monotonic_ns;

use super::packets::{HeldPackets, PacketOutput};
use super::{Counts, SharedState};
use crate::kernel::drain_thread::{DrainResult, DrainSource};
use crate::recording::changes;
use crate::trace::layout::Trace;
use crate::trace::progress_file::ProgressFile;

/// Longest delay between an event and its record in the kernel's buffer, in ns.
const LATE_NS_MAX: u64 = 5_000_000;

/// State of the draining thread.
#[derive(Debug)]
pub(super) struct TracefsDrain {
    pub(super) shared: Arc<SharedState>,
    pub(super) output: PacketOutput,
    /// Losses until the latest clear, for each CPU of the instance.
    forgotten: Vec<BufferStats>,
    /// Buffer for one page.
    page: Vec<u8>,
    /// Progress file, present while a reader follows the trace.
    live: Option<ProgressFile>,
}

/// Contents of a flight recorder's buffer of one CPU at one moment.
#[derive(Debug)]
pub(super) struct CpuContents {
    pub(super) held: HeldPackets,
    pub(super) stats: BufferStats,
}

impl DrainSource for TracefsDrain {
    fn regular_turn(&mut self) -> io::Result<()> {
        // A flight recorder's contents stay in the kernel's buffers.
        if self.shared.overwrite {
            return Ok(());
        }
        let until_ns = self.turn(false)?;
        self.live.as_mut().map_or(Ok(()), |live| live.note(until_ns))
    }

    /// Skips all records in the kernel's buffers.
    fn clear(&mut self) -> io::Result<()> {
        for (place, cpu) in self.shared.instance.cpus().iter().enumerate() {
            for _ in 0..self.shared.pages_max(self.page.len()) {
                if cpu.read(&mut self.page)?.is_none() {
                    break;
                }
            }
            self.forgotten[place] = cpu.stats()?;
        }
        self.output.discard_recorded();
        changes::remove_streams(&self.output.trace.channel)
    }

    fn close(&mut self) -> io::Result<()> {
        let mut closed = Ok(());
        for place in 0..self.output.streams.len() {
            closed = closed.and(self.output.close_stream(place));
        }
        closed
    }

    fn drop_largest_packet(&mut self) -> bool {
        self.output.drop_largest_packet()
    }

    fn trace_and_progress(&mut self) -> (&Trace, &mut Option<ProgressFile>) {
        (&self.output.trace, &mut self.live)
    }
}

impl TracefsDrain {
    pub(super) fn new(shared: Arc<SharedState>, output: PacketOutput) -> Self {
        let cpus = shared.instance.cpus().len();
        Self {
            forgotten: vec![BufferStats::default(); cpus],
            page: vec![0; shared.instance.pages.page_bytes()],
            shared,
            output,
            live: None,
        }
    }

    /// Moves buffered events to the trace; returns the time up to which they are complete.
    fn turn(&mut self, is_last: bool) -> io::Result<u64> {
        // First write the packets that could not be written before, then new packets.
        (0..self.output.streams.len()).try_for_each(|place| self.output.flush_packet(place))?;
        let mut until_ts = monotonic_ns().saturating_sub(LATE_NS_MAX);
        for place in 0..self.output.streams.len() {
            if !self.read(place)? {
                until_ts = until_ts.min(self.output.last_ts(place));
            }
        }
        self.output.process_until(if is_last { u64::MAX } else { until_ts })?;
        self.output.mark_read_until(until_ts);
        for place in 0..self.output.streams.len() {
            self.refresh_stats(place);
            self.output.flush_packet(place)?;
        }
        Ok(until_ts)
    }

    /// Replaces the filters for records from now on.
    pub(super) fn replace_filters(&mut self, converter: Arc<Converter>) {
        // First process as many old records as possible with the former filters, also in a flight
        // recorder. Failed writes are retried later.
        let _ = self.turn(false);
        self.output.replace_filters(converter);
    }

    /// Reads a CPU's buffer into the output; returns true if the buffer is empty.
    fn read(&mut self, place: usize) -> io::Result<bool> {
        let Self { shared, output, page, .. } = self;
        let Some(cpu) = shared.instance.cpus().get(place) else { return Ok(true) };
        let pages = &shared.instance.pages;
        for _ in 0..shared.pages_max(page.len()) {
            if !output.has_room(place) {
                return Ok(false);
            }
            let Some(bytes) = cpu.read(page)? else { return Ok(true) };
            output.process_page(place, bytes, pages)?;
        }
        Ok(false)
    }

    /// Reads a CPU's loss counts from the kernel.
    fn refresh_stats(&mut self, place: usize) {
        let Some(cpu) = self.shared.instance.cpus().get(place) else { return };
        if let Ok(stats) = cpu.stats() {
            self.output.streams[place].stats = stats.since(&self.forgotten[place]);
        }
    }

    /// Writes all recorded events, once recording is stopped.
    pub(super) fn write_all(&mut self) -> io::Result<()> {
        self.turn(true)?;
        (0..self.output.streams.len()).try_for_each(|place| self.output.close_stream(place))
    }

    /// Returns the contents of a flight recorder for a snapshot.
    pub(super) fn begin_snapshot(&mut self) -> io::Result<Vec<CpuContents>> {
        let (contents, read) = self.take_over();
        read.map(|()| contents)
    }

    /// Reads the kernel's contents of a flight recorder. Returns all held packets, and `Ok` if the
    /// buffers were read completely.
    fn take_over(&mut self) -> (Vec<CpuContents>, io::Result<()>) {
        let places = 0..self.output.streams.len();
        // Read the counts first: events were overwritten before the events that are read next.
        places.clone().for_each(|place| self.refresh_stats(place));
        let read = self.turn(true).map(drop);
        if read.is_err() {
            // Hold the records that were read before the error, too.
            let _ = self.output.process_until(u64::MAX);
            places.clone().for_each(|place| drop(self.output.flush_packet(place)));
        }
        let contents = |place| CpuContents {
            held: self.output.held_packets(place).clone(),
            stats: self.output.streams[place].stats,
        };
        (places.map(contents).collect(), read)
    }

    /// Ends the recording, and writes the remaining events; a flight recorder's events only if
    /// `keeps_flight_recorder`. Counts events that cannot be written as lost. Nothing was recorded
    /// after `end_ts`.
    pub(super) fn end(&mut self, keeps_flight_recorder: bool, end_ts: u64) -> DrainResult<Counts> {
        self.live = None;
        let places = 0..self.output.streams.len();
        let written = match self.shared.overwrite {
            true if !keeps_flight_recorder => {
                places.for_each(|place| self.refresh_stats(place));
                return DrainResult {
                    counts: Counts::of(&self.output),
                    written: Ok(()),
                    closed: Ok(()),
                };
            }
            // Held packets are written, or counted as lost, in any case.
            true => {
                let (contents, read) = self.take_over();
                read.and(write_contents(&mut self.output, &contents, 0))
            }
            false => self.write_all(),
        };
        let mut closed = Ok(());
        if written.is_err() {
            for place in places {
                self.refresh_stats(place);
                self.output.count_unwritten_as_lost(place);
            }
            // A disk without space for a packet may have some for empty ones.
            closed = self.close_at_end();
        }
        // On a full disk, the little space is left for the trace's completion mark.
        if written.is_ok() && closed.is_ok() {
            self.output.extend_streams(end_ts);
        }
        DrainResult { counts: Counts::of(&self.output), written, closed }
    }

    /// Returns the counts so far, even if writing fails now.
    pub(super) fn counts(&mut self) -> Counts {
        if !self.shared.overwrite {
            let _ = self.turn(false);
        }
        (0..self.output.streams.len()).for_each(|place| self.refresh_stats(place));
        let mut counts = Counts::of(&self.output);
        if self.shared.overwrite {
            let places = 0..self.output.streams.len();
            let held = places.map(|place| self.output.held_packets(place));
            counts.memory_bytes = held.clone().map(|held| held.bytes).sum();
            let left = self.output.streams.iter().map(|stream| stream.stats.entries);
            let all = held.map(|held| held.events).chain(left);
            counts.recorded = all.fold(counts.recorded, u64::saturating_add);
        }
        counts
    }
}

/// Writes a flight recorder's contents, from `since_ts` on, to a trace. If one stream finds no
/// space, the others are still tried.
pub(super) fn write_contents(
    output: &mut PacketOutput,
    contents: &[CpuContents],
    since_ts: u64,
) -> io::Result<()> {
    let mut written = Ok(());
    for (place, cpu) in contents.iter().enumerate() {
        output.streams[place].stats = cpu.stats;
        let of_cpu = output.write_held(place, &cpu.held, since_ts);
        written = written.and(of_cpu).and(output.close_stream(place));
    }
    written
}
