//! Counts of a recording up to now, for the status line and the summary.

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use trackway_abi::window::EVENTS_MAX;
use trackway_ring::Geometry;
use trackway_schema::EventDescription;
use trackway_session::BufferOptions;
use trackway_sys::file::free_bytes;
use trackway_window::Window;

use crate::recording::Recording;
use crate::recording::channel::Channel;
use crate::recording::region::RegionDrain;
use crate::summary::shortfall::Shortfall;
use crate::summary::{LOST_SHOWN_MAX, Summary};
use crate::trace::stream::Stream;
use crate::window::handle::WindowHandle;
use crate::window::{cpus, shared_text};

/// Most processes that a session can have had: the number of Linux process ids (PID_MAX_LIMIT, 64
/// bits). Only a hostile process writes a larger number.
const PROCESSES_BELIEVED: u64 = 1 << 22;

/// Divisor of the lost bytes for the margin of the estimate, so that the estimate suffices next
/// time.
const MARGIN_PART: u64 = 8;

/// Counts of a recording up to now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events recorded: in the trace, or still in the buffers.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Processes that took part in the session.
    pub processes: u64,
}

impl Recording {
    /// Returns the counts up to now.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            events: self.ended.recorded,
            lost: self.ended.lost,
            bytes: self.ended.bytes + self.trace.metadata.bytes(),
            processes: self.ended.processes,
        };
        for channel in &self.channels {
            let processes = channel.session().processes.load(Ordering::Relaxed);
            totals.processes = totals.processes.max(processes.into());
            for work in &channel.regions {
                totals.events = totals.events.saturating_add(work.committed());
                totals.lost = totals.lost.saturating_add(work.discarded());
                totals.bytes += work.stream.as_ref().map_or(0, Stream::bytes);
            }
        }
        totals
    }

    /// Returns the full names of the events that have an id in this session.
    pub fn event_names(&self) -> Vec<String> {
        let window = self.handle.window();
        let has_id = |&event: &usize| {
            self.channels
                .iter()
                .any(|channel| channel.layout.id(window, event).load(Ordering::Relaxed) != 0)
        };
        (0..EVENTS_MAX).filter(has_id).filter_map(|event| event_name(window, event)).collect()
    }

    /// Returns the results of the session's present and ended channels.
    pub(crate) fn summary(&self) -> Summary {
        let mut summary = self.ended.clone();
        for channel in &self.channels {
            summary.add(channel.summary(&self.handle));
        }
        summary.bytes += self.trace.metadata.bytes();
        summary
    }
}

impl Channel {
    /// Returns the results of the channel.
    pub(crate) fn summary(&self, handle: &WindowHandle) -> Summary {
        let (session, window) = (self.session(), handle.window());
        // Any process that can open the window may write this counter.
        let most = PROCESSES_BELIEVED;
        let processes = u64::from(session.processes.load(Ordering::Relaxed)).min(most);
        let departed = u64::from(session.departed.load(Ordering::Relaxed));
        let mut summary = Summary {
            processes,
            // A process that changed its user took part before.
            departed: departed.min(processes),
            cut: session.records_cut.load(Ordering::Relaxed),
            cut_last: event_name(window, session.cut_event.load(Ordering::Relaxed) as usize),
            ..Summary::default()
        };
        self.regions.iter().for_each(|work| work.add_to(&mut summary));
        if summary.lost > 0 {
            summary.lost_by_event = self.lost_by_event(window);
            let shortfall = self.shortfall(handle);
            summary.shortfalls.extend((!shortfall.is_empty()).then_some(shortfall));
        }
        summary
    }

    /// Returns the settings that would have kept the lost events.
    fn shortfall(&self, handle: &WindowHandle) -> Shortfall {
        let oversized_bytes = self.regions.iter().filter_map(RegionDrain::oversized_bytes).max();
        let sum = |count: fn(&RegionDrain) -> u64| {
            self.regions.iter().map(count).fold(0, u64::saturating_add)
        };
        Shortfall {
            channel: shared_text::channel_name(self.session()).unwrap_or_default(),
            roomless: sum(RegionDrain::discarded_for_space),
            enough_bytes: self.enough_bytes(handle),
            is_memory_short: self.is_memory_short(),
            oversized_bytes,
            holding_bytes: oversized_bytes.and_then(|bytes| self.holding_bytes(bytes)),
            unmapped: sum(|work| work.unavoidable_losses().unmapped),
        }
    }

    /// Returns the SIZE of `--buffer-size` that would have held all records that the channel lost
    /// for lack of space. `None` if the size is unknown or impossible.
    fn enough_bytes(&self, handle: &WindowHandle) -> Option<u64> {
        let of_size = self.layout.geometry.sub_shift();
        let mut most = None;
        for work in self.regions.iter().filter(|work| work.discarded_for_space() > 0) {
            let part = of_size.saturating_sub(work.region.0.geometry.sub_shift());
            most = most.max(Some(work.needed_bytes()?.checked_mul(1 << part)?));
        }
        // Lost records may be larger than the written records.
        let needed = most?.saturating_add(most? / MARGIN_PART);
        let bytes = needed.checked_next_power_of_two()?;
        let options = BufferOptions { size_bytes: Some(bytes), ..BufferOptions::default() };
        let for_all = bytes.checked_mul(cpus::online_cpus().len() as u64)?;
        let free = free_bytes(handle.allocator.file()).ok()?;
        let can_be_had = for_all <= free.saturating_add(self.memory_bytes(handle));
        (options.plan().is_ok() && can_be_had).then_some(bytes)
    }

    /// Returns the SIZE of `--buffer-size` whose sub-buffers can hold a record of `record_bytes`,
    /// with the present and with the default number of sub-buffers.
    fn holding_bytes(&self, record_bytes: u64) -> Option<u64> {
        let sub_count = self.layout.geometry.sub_count();
        let holds = |size_bytes: u64, sub_buffers| {
            let options =
                BufferOptions { size_bytes: Some(size_bytes), sub_buffers, overwrite: false };
            let geometry = options
                .plan()
                .ok()
                .and_then(|plan| Geometry::new(plan.sub_shift, plan.count_shift).ok());
            geometry.is_some_and(|geometry| geometry.record_bytes_max() as u64 >= record_bytes)
        };
        let mut sizes = (0..u64::BITS).map(|shift| 1 << shift);
        sizes.find(|&bytes| holds(bytes, None) && holds(bytes, Some(sub_count)))
    }

    /// Resets the counts of recorded, lost and cut events, after writers were excluded.
    pub(crate) fn forget(&mut self, window: &Window) {
        self.regions.iter_mut().for_each(RegionDrain::discard_recorded);
        self.layout.forget_discards(window);
        self.session().records_cut.store(0, Ordering::Relaxed);
    }

    fn lost_by_event(&self, window: &Window) -> Vec<(String, u64)> {
        let mut lost: Vec<(usize, u64)> = (0..EVENTS_MAX)
            .map(|event| (event, self.layout.discards(window, event).load(Ordering::Relaxed)))
            .filter(|&(_, lost)| lost > 0)
            .collect();
        lost.sort_by_key(|&(_, lost)| Reverse(lost));
        lost.truncate(LOST_SHOWN_MAX);
        lost.into_iter()
            .filter_map(|(event, lost)| Some((event_name(window, event)?, lost)))
            .collect()
    }
}

impl RegionDrain {
    /// Adds the region's counts to `summary`.
    pub(crate) fn add_to(&self, summary: &mut Summary) {
        summary.recorded = summary.recorded.saturating_add(self.written);
        summary.lost = summary.lost.saturating_add(self.discarded());
        summary.overwritten = summary.overwritten.saturating_add(self.overwritten);
        summary.damaged = summary.damaged.saturating_add(self.damaged);
        summary.holes += self.lockless.as_ref().map_or(0, |lockless| lockless.holes);
        summary.bytes += self.stream.as_ref().map_or(0, Stream::bytes);
        let deleted = self.stream.as_ref().map_or(0, Stream::deleted);
        summary.deleted = summary.deleted.saturating_add(deleted);
    }
}

impl Summary {
    /// Resets the counts of a session that is cleared; keeps the counts of processes.
    pub(crate) fn forget_counts(&mut self) {
        *self = Self { processes: self.processes, departed: self.departed, ..Self::default() };
    }

    /// Adds the results of another channel of the same session.
    pub(crate) fn add(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.recorded, other.recorded),
            (&mut self.lost, other.lost),
            (&mut self.overwritten, other.overwritten),
            (&mut self.deleted, other.deleted),
            (&mut self.cut, other.cut),
            (&mut self.damaged, other.damaged),
            (&mut self.holes, other.holes),
            (&mut self.bytes, other.bytes),
        ] {
            *sum = sum.saturating_add(more);
        }
        // The same processes usually take part in several channels.
        self.processes = self.processes.max(other.processes);
        self.departed = self.departed.max(other.departed);
        for part in other.shortfalls {
            match self.shortfalls.iter_mut().find(|one| one.channel == part.channel) {
                Some(sum) => sum.add(&part),
                None => self.shortfalls.push(part),
            }
        }
        self.cut_last = other.cut_last.or(self.cut_last.take());
        for (event, lost) in other.lost_by_event {
            match self.lost_by_event.iter_mut().find(|(name, _)| *name == event) {
                Some((_, sum)) => *sum = sum.saturating_add(lost),
                None => self.lost_by_event.push((event, lost)),
            }
        }
        self.lost_by_event.sort_by_key(|&(_, lost)| Reverse(lost));
        self.lost_by_event.truncate(LOST_SHOWN_MAX);
    }
}

fn event_name(window: &Window, event: usize) -> Option<String> {
    let bytes = window.description(event)?;
    Some(EventDescription::decode(bytes.as_slice()).ok()?.full_name())
}
