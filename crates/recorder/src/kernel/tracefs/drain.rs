//! The pages of an instance read, by a thread of the recorder's ([`crate::kernel::drain_thread`]).

use std::io;
use std::sync::Arc;

use trackway_kernel::tracefs::convert::Converter;
use trackway_kernel::tracefs::instance::BufferStats;
use trackway_sys::clock::monotonic_ns;

use super::packets::{Held, Output};
use super::{Counts, Shared};
use crate::kernel::drain_thread::{Drains, Ended};
use crate::recording::changes;
use crate::trace::layout::Trace;
use crate::trace::progress_file::Live;

/// How much later than its time a record may get into the kernel's buffer.
const LATE_NS_MAX: u64 = 5_000_000;

/// The thread's.
#[derive(Debug)]
pub(super) struct Drainer {
    pub(super) shared: Arc<Shared>,
    pub(super) output: Output,
    /// What was lost when it was cleared last, for each of the instance's CPUs.
    forgotten: Vec<BufferStats>,
    /// Room for a page.
    page: Vec<u8>,
    /// While somebody follows.
    live: Option<Live>,
}

/// What a flight recorder has of a CPU at some moment.
#[derive(Debug)]
pub(super) struct SeenCpu {
    pub(super) held: Held,
    pub(super) stats: BufferStats,
}

impl Drains for Drainer {
    fn regular_turn(&mut self) -> io::Result<()> {
        // What a flight recorder has is left to the kernel.
        if self.shared.overwrite {
            return Ok(());
        }
        let until_ns = self.turn(false)?;
        self.live.as_mut().map_or(Ok(()), |live| live.note(until_ns))
    }

    /// Passes over all that is there.
    fn clear(&mut self) -> io::Result<()> {
        for (place, cpu) in self.shared.instance.cpus().iter().enumerate() {
            for _ in 0..self.shared.pages_max(self.page.len()) {
                if cpu.read(&mut self.page)?.is_none() {
                    break;
                }
            }
            self.forgotten[place] = cpu.stats()?;
        }
        self.output.forget();
        changes::remove_streams(&self.output.trace.channel)
    }

    fn close(&mut self) -> io::Result<()> {
        let mut closed = Ok(());
        for place in 0..self.output.streams.len() {
            closed = closed.and(self.output.close(place));
        }
        closed
    }

    fn give_largest_up(&mut self) -> bool {
        self.output.give_largest_up()
    }

    fn live(&mut self) -> (&Trace, &mut Option<Live>) {
        (&self.output.trace, &mut self.live)
    }
}

impl Drainer {
    pub(super) fn new(shared: Arc<Shared>, output: Output) -> Self {
        let cpus = shared.instance.cpus().len();
        Self {
            forgotten: vec![BufferStats::default(); cpus],
            page: vec![0; shared.instance.pages.page_bytes()],
            shared,
            output,
            live: None,
        }
    }

    /// Moves what there is to the trace: up to which time that is all.
    fn turn(&mut self, is_last: bool) -> io::Result<u64> {
        // What could not be written comes before what is read now.
        (0..self.output.streams.len()).try_for_each(|place| self.output.packet(place))?;
        let mut until_ts = monotonic_ns().saturating_sub(LATE_NS_MAX);
        for place in 0..self.output.streams.len() {
            if !self.read(place)? {
                until_ts = until_ts.min(self.output.last_ts(place));
            }
        }
        self.output.settle(if is_last { u64::MAX } else { until_ts })?;
        self.output.has_all_until(until_ts);
        for place in 0..self.output.streams.len() {
            self.look(place);
            self.output.packet(place)?;
        }
        Ok(until_ts)
    }

    /// Has records from now on asked what this asks of them.
    pub(super) fn ask_anew(&mut self, converter: Arc<Converter>) {
        // As few as can be are left that are asked what was asked before: also of a flight
        // recorder's. What cannot be written now is tried again.
        let _ = self.turn(false);
        self.output.ask_anew(converter);
    }

    /// Reads what a CPU has, and whether that was all.
    fn read(&mut self, place: usize) -> io::Result<bool> {
        let Self { shared, output, page, .. } = self;
        let Some(cpu) = shared.instance.cpus().get(place) else { return Ok(true) };
        let pages = &shared.instance.pages;
        for _ in 0..shared.pages_max(page.len()) {
            if !output.has_room(place) {
                return Ok(false);
            }
            let Some(bytes) = cpu.read(page)? else { return Ok(true) };
            output.page(place, bytes, pages)?;
        }
        Ok(false)
    }

    /// Asks the kernel what was lost on a CPU.
    fn look(&mut self, place: usize) {
        let Some(cpu) = self.shared.instance.cpus().get(place) else { return };
        if let Ok(stats) = cpu.stats() {
            self.output.streams[place].stats = stats.since(&self.forgotten[place]);
        }
    }

    /// Writes all that there is: it is stopped.
    pub(super) fn write_all(&mut self) -> io::Result<()> {
        self.turn(true)?;
        (0..self.output.streams.len()).try_for_each(|place| self.output.close(place))
    }

    /// What a flight recorder has now.
    pub(super) fn look_beside(&mut self) -> io::Result<Vec<SeenCpu>> {
        let (seen, read) = self.take_over();
        read.map(|()| seen)
    }

    /// Takes what the kernel has of a flight recorder: all that is held then, and whether that is
    /// all there was.
    fn take_over(&mut self) -> (Vec<SeenCpu>, io::Result<()>) {
        let places = 0..self.output.streams.len();
        // What was overwritten was so before what is read.
        places.clone().for_each(|place| self.look(place));
        let read = self.turn(true).map(drop);
        if read.is_err() {
            // What was read until then is held, too.
            let _ = self.output.settle(u64::MAX);
            places.clone().for_each(|place| drop(self.output.packet(place)));
        }
        let seen = |place| SeenCpu {
            held: self.output.held(place).clone(),
            stats: self.output.streams[place].stats,
        };
        (places.map(seen).collect(), read)
    }

    /// Ends it: what is left is written, of a flight recorder if it is to be, and what cannot be is
    /// told to be lost. Nothing was recorded after `end_ts`.
    pub(super) fn end(&mut self, keeps_flight_recorder: bool, end_ts: u64) -> Ended<Counts> {
        self.live = None;
        let places = 0..self.output.streams.len();
        let written = match self.shared.overwrite {
            true if !keeps_flight_recorder => {
                places.for_each(|place| self.look(place));
                return Ended { counts: Counts::of(&self.output), written: Ok(()), closed: Ok(()) };
            }
            // What is held is written, or counted as lost, whether or not there is more.
            true => {
                let (seen, read) = self.take_over();
                read.and(write_seen(&mut self.output, &seen, 0))
            }
            false => self.write_all(),
        };
        let mut closed = Ok(());
        if written.is_err() {
            for place in places {
                self.look(place);
                self.output.lose_the_rest(place);
            }
            // Where there is no room for a packet there may be some for empty ones.
            closed = self.close_at_end();
        }
        // Of what little room is left on a full disk, the mark of the trace needs some.
        if written.is_ok() && closed.is_ok() {
            self.output.extend_streams(end_ts);
        }
        Ended { counts: Counts::of(&self.output), written, closed }
    }

    /// Numbers so far; what cannot be written now is no reason to say nothing.
    pub(super) fn counts(&mut self) -> Counts {
        if !self.shared.overwrite {
            let _ = self.turn(false);
        }
        (0..self.output.streams.len()).for_each(|place| self.look(place));
        let mut counts = Counts::of(&self.output);
        if self.shared.overwrite {
            let places = 0..self.output.streams.len();
            let held = places.map(|place| self.output.held(place));
            counts.memory_bytes = held.clone().map(|held| held.bytes).sum();
            let left = self.output.streams.iter().map(|stream| stream.stats.entries);
            let all = held.map(|held| held.events).chain(left);
            counts.recorded = all.fold(counts.recorded, u64::saturating_add);
        }
        counts
    }
}

/// Writes what a flight recorder has, since then, to a trace. What one stream finds no room for
/// another one may.
pub(super) fn write_seen(output: &mut Output, seen: &[SeenCpu], since_ts: u64) -> io::Result<()> {
    let mut written = Ok(());
    for (place, cpu) in seen.iter().enumerate() {
        output.streams[place].stats = cpu.stats;
        let of_cpu = output.write_held(place, &cpu.held, since_ts);
        written = written.and(of_cpu).and(output.close(place));
    }
    written
}
