//! A channel that records: its slot in the window, its regions and their memory.
//!
//! Writers treat each channel as a session. The state that channels share, the trace and the clock,
//! is in [`Recording`](crate::recording::Recording).
//!
//! Longer than 600 lines: every step of a channel's life changes the same private state.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_abi::session::{Session, flag};
use trackway_abi::window::EVENTS_MAX;
use trackway_ctf::write::Contexts;
use trackway_ring::claim::Claim;
use trackway_schema::EventDescription;
use trackway_session::{FilterSpec, Use};
use trackway_sys::clock::monotonic_ns;
use trackway_window::{AllocateError, Owner, ProcessSlot, SessionLayout, Window, WriterPath};

use crate::error::RecordError;
use crate::filters::publish::Filters;
use crate::notices::Notices;
use crate::recording::free_slot;
use crate::recording::lockless::Lockless;
use crate::recording::memory_return::{self, MemoryReturn};
use crate::recording::region::{CloseKind, DrainContext, RegionDrain, StreamNames};
use crate::trace::layout::{Trace, TraceProperties, WindowFolder};
use crate::window::handle::WindowHandle;
use crate::window::memory_pool::{FileMemory, MemoryPool};
use crate::window::settings::{ChannelSettings, SessionSettings};
use crate::window::slot::{self, Slot};
use crate::window::{clock_epoch, cpus, lease, shared_text};

/// Longest wait, when a channel ends, for live writers to release their claims.
const CLAIMS_PATIENCE: Duration = Duration::from_millis(50);
/// Fewest sub-buffers for a region whose first record found no memory: more records will come.
const REQUESTED_SUBS_MIN: u64 = 4;
/// Most event ids that a channel declares: each event has one. More ids come from a process that
/// overwrites the table; they must not make the metadata grow.
const DECLARATIONS_MAX: u32 = 2 * EVENTS_MAX as u32;

/// A channel that this process records.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) slot: Slot,
    pub(crate) layout: SessionLayout,
    /// Contexts of the channel's records.
    pub(crate) contexts: Contexts,
    pub(crate) regions: Vec<RegionDrain>,
    /// Names of the channel's streams.
    pub(crate) names: Arc<StreamNames>,
    pub(crate) pool: MemoryPool,
    /// True if a lack of memory was reported.
    pool_dry: bool,
    pub(crate) begin_ts: u64,
    /// Schedule for giving unused memory back; `None`: the channel keeps its memory.
    pub(crate) memory_return: Option<MemoryReturn>,
    pub(crate) filters: Filters,
    /// The latest report of filters that could not be compiled for later events.
    filters_said: Option<String>,
    /// Number of sub-buffers for a region whose first record found no memory.
    asked_subs: u64,
    /// Ids that are already declared, by event.
    ids_seen: Vec<u32>,
    ids_known: u32,
}

/// The result of copying the states of a channel's regions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PollResult {
    /// Fill level of the fullest region, in 1/256.
    pub(crate) fill: u64,
    /// True if any record was written since the previous poll.
    pub(crate) data: bool,
}

/// The exclusion of writers from a channel that ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterExclusion {
    /// True if no earlier sequence can be alive.
    no_sequence: bool,
    /// True if a claimer that may be alive has not released its claim.
    claimed: bool,
}

/// The result of draining a channel at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    /// All buffered records are in the trace.
    Complete,
    /// Some buffers were not drained, because the user interrupted.
    Interrupted,
}

/// Returns the trace properties of channels in the calling user's window.
pub(crate) fn trace_properties(uuid: [u8; 16], channels: &[Channel]) -> TraceProperties {
    let offset = |channel: &Channel| {
        channel.session().realtime_offset_ns.load(Ordering::Relaxed).cast_signed()
    };
    let class = |channel: &Channel| (channel.names.class, channel.contexts.clone());
    TraceProperties {
        uuid,
        folder: WindowFolder::own(),
        realtime_offset_ns: channels.first().map_or(0, offset),
        classes: channels.iter().map(class).collect(),
    }
}

impl Channel {
    /// Builds a channel in a free slot, with streams of this class. Writers may enter once it is
    /// activated. Its filters continue the state of the filters of `before`.
    pub(crate) fn build(
        handle: &WindowHandle,
        session: &SessionSettings,
        settings: &ChannelSettings,
        class: u32,
        before: Option<&Self>,
    ) -> Result<Self, RecordError> {
        let slot = free_slot::take_slot(handle)?;
        let filters_word = slot.session().filters.load(Ordering::Relaxed);
        let layout =
            match slot.fill_session(handle, session, settings, class, cpus::possible_cpu_count()) {
                Ok(layout) => layout,
                Err(error) => {
                    // No writer was ever admitted.
                    let _ = slot.free(handle, true);
                    return Err(error);
                }
            };
        let names = StreamNames::new(&settings.name, class);
        let filters = Filters::of_slot(handle, &slot, filters_word, &layout.control_area());
        // Recovery also needs the filter area if the recorder is killed.
        filters.publish_area(slot.session());
        let mut channel = Self::assemble(handle, slot, layout, names, !settings.buffers.whole);
        channel.filters = filters;
        channel.filters.add_expected_events(&settings.expected);
        if let Some(before) = before {
            channel.filters.inherit(&before.filters);
        }
        let built = channel.back_initially(handle, settings).and_then(|()| {
            // Filters are set before any writer is admitted.
            channel.filters.set(handle, &channel.slot, &settings.filters, &settings.rules)
        });
        if let Err(error) = built {
            channel.free_unused_slot(handle);
            return Err(error);
        }
        channel.regions.iter_mut().for_each(RegionDrain::begin_lockless);
        channel.regions.iter_mut().for_each(|work| work.cut_into_files(settings.tracefiles));
        Ok(channel)
    }

    /// Frees the slot of a channel that has never admitted a writer.
    pub(crate) fn free_unused_slot(&self, handle: &WindowHandle) {
        self.filters.publish_area(self.session());
        let _ = self.slot.free(handle, true);
    }

    /// Assembles a channel without memory.
    pub(crate) fn assemble(
        handle: &WindowHandle,
        slot: Slot,
        layout: SessionLayout,
        names: StreamNames,
        modest: bool,
    ) -> Self {
        let window = handle.window();
        let overwrite = layout.flags & flag::OVERWRITE != 0;
        let names = Arc::new(names);
        let regions = slot::list_regions(window, &layout)
            .into_iter()
            .map(|(region, cpu, way)| {
                let mut work = RegionDrain::new(region, Arc::clone(&names), cpu, way, overwrite);
                if way == WriterPath::Sequence {
                    let buffer = layout.lockless(window, cpu);
                    work.lockless = buffer.map(|buffer| Lockless::new(buffer, *window));
                }
                work
            })
            .collect();
        Self {
            pool: MemoryPool::new(slot.index, modest),
            contexts: shared_text::contexts_of(slot.session(), layout.contexts),
            slot,
            layout,
            regions,
            names,
            pool_dry: false,
            begin_ts: monotonic_ns(),
            memory_return: None,
            filters: Filters::default(),
            filters_said: None,
            asked_subs: REQUESTED_SUBS_MIN,
            ids_seen: vec![0; EVENTS_MAX],
            ids_known: 0,
        }
    }

    pub(crate) fn session(&self) -> &'static Session {
        self.slot.session()
    }

    /// Returns true if the channel could not get memory for its buffers.
    pub(crate) const fn is_memory_short(&self) -> bool {
        self.pool_dry
    }

    /// Returns the memory that the channel uses, in bytes.
    pub(crate) fn memory_bytes(&self, handle: &WindowHandle) -> u64 {
        let held = handle.allocator.bytes_of(self.slot.index);
        held.saturating_sub(self.pool.unbacked_bytes())
    }

    /// Returns true if the channel has lockless buffers instead of regions.
    pub(crate) fn is_lockless(&self) -> bool {
        self.layout.flags & flag::LOCKLESS != 0
    }

    /// Returns true if the channel is a flight recorder.
    pub(crate) fn is_overwriting(&self) -> bool {
        self.layout.flags & flag::OVERWRITE != 0
    }

    pub(crate) fn lockless(&self) -> impl Iterator<Item = &Lockless> {
        self.regions.iter().filter_map(|work| work.lockless.as_ref())
    }

    fn back_initially(
        &mut self,
        handle: &WindowHandle,
        settings: &ChannelSettings,
    ) -> Result<(), RecordError> {
        let plan = slot::buffer_plan_for(settings, self.layout.flags);
        let online = cpus::online_cpus();
        let count = online.len() as u64;
        // A flight recorder uses all of its memory sooner or later.
        let starts_small =
            settings.starts_small && (!settings.overwrite || plan.exceeds_idle_memory(count));
        let initial = plan.initial_of(count, starts_small);
        let needed = count * plan.initial_bytes_per_cpu(count);
        let spare = &online[..online.len().min(initial.spare_cpus as usize)];
        let has_memory = |work: &RegionDrain| match initial.spare_cpus {
            0 => online.contains(&work.cpu),
            _ => work.way != WriterPath::Sequence && spare.contains(&work.cpu),
        };
        let mut used = Vec::new();
        for (number, work) in self.regions.iter().enumerate() {
            let is_written = !self.is_lockless() || work.lockless.is_some();
            if !work.is_foreign() && is_written && has_memory(work) {
                used.push(number);
            }
        }
        self.asked_subs = initial.subs.max(REQUESTED_SUBS_MIN);
        if plan.whole {
            let checked = self.pool.check_all(&handle.allocator, needed);
            checked.map_err(|error| slot::memory_error(handle, needed, error))?;
        }
        // First a little memory for every region, then the full amount: if memory is short, one CPU
        // must not take it all. By default the little is enough.
        for least_only in [true, false] {
            for &number in &used {
                let (least, wanted) = match self.regions[number].way {
                    _ if let Some(lockless) = &self.regions[number].lockless => {
                        (lockless.memory_pieces(), lockless.memory_pieces())
                    }
                    WriterPath::Sequence => (2, initial.subs),
                    WriterPath::Claim(_) => (1, initial.claim_subs),
                };
                let least = least.min(wanted);
                let backed =
                    self.back_sub_buffers(handle, number, if least_only { least } else { wanted });
                if let Err(error) = backed {
                    if least_only || plan.whole {
                        return Err(slot::memory_error(handle, needed, error));
                    }
                    self.pool_dry = true;
                }
            }
        }
        // The channel lends further memory later. If no region takes records of other CPUs, each
        // region that was ever used keeps a little.
        let least = if initial.spare_cpus == 0 { 2 } else { 0 };
        self.regions.iter_mut().for_each(|work| work.backing.keep_from_here_on(least));
        if !plan.whole && !self.is_lockless() && !self.is_overwriting() {
            self.memory_return = Some(MemoryReturn::begin());
        }
        if let Some(last) = spare.last() {
            self.session().spare_cpus.store(last + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Backs region `number` until `wanted` sub-buffers have memory, and raises the region's limit.
    fn back_sub_buffers(
        &mut self,
        handle: &WindowHandle,
        number: usize,
        wanted: u64,
    ) -> Result<(), AllocateError> {
        let epoch = self.session().clock.epoch.load(Ordering::Relaxed);
        let work = &mut self.regions[number];
        let region = work.region.0;
        let shift = region.geometry.sub_shift();
        if let Some(lockless) = &work.lockless {
            while lockless.backed_sub_buffers() < wanted {
                let missing = wanted - lockless.backed_sub_buffers();
                lockless.back_next_piece(self.pool.take(&handle.allocator, shift, missing)?);
            }
            return Ok(());
        }
        let mut result = Ok(());
        while work.backing.backed() < wanted {
            let missing = wanted - work.backing.backed();
            match self.pool.take(&handle.allocator, shift, missing) {
                Ok(offset) => {
                    let is_first = work.backing.backed() == 0;
                    let Some(index) = work.backing.add(offset) else { break };
                    if is_first {
                        memory_return::reopen_sub_buffer(handle, work, (index, offset), epoch);
                    }
                    region.back(index, offset);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        region.raise_limit(work.backing.limit());
        result
    }

    /// Sets the begin time of the channel's streams; losses before the first record count from
    /// then.
    pub(crate) fn begin_at(&mut self, time_ns: u64) {
        self.begin_ts = time_ns;
    }

    /// Admits writers.
    pub(crate) fn activate(&mut self) {
        self.slot.activate(&self.layout);
        self.pool.patient = false;
    }

    /// Admits writers in place of the channel `other`, and sets these rules.
    pub(crate) fn activate_in_place_of(&mut self, other: &Self, rules: &str) {
        self.activate();
        other.slot.hand_over_to(&self.layout);
        self.slot.set_rules(&self.layout, rules);
    }

    /// Puts these filters into force.
    pub(crate) fn set_filters(
        &mut self,
        handle: &WindowHandle,
        filters: &[FilterSpec],
    ) -> Result<(), RecordError> {
        let rules = self.filters.rules().to_owned();
        self.filters.set(handle, &self.slot, filters, &rules)
    }

    /// Compiles the channel's filters for the events that these rules select.
    pub(crate) fn compile_filters_for(
        &mut self,
        handle: &WindowHandle,
        rules: &str,
    ) -> Result<(), RecordError> {
        self.filters.refresh(handle, &self.slot, rules)
    }

    /// Compiles the filters for newly registered events; reports a failure once.
    pub(crate) fn compile_for_new_events(&mut self, handle: &WindowHandle, notices: &Notices) {
        let rules = self.filters.rules().to_owned();
        let failure = self.filters.refresh(handle, &self.slot, &rules).err();
        let said = failure.map(|error| error.to_string());
        if let Some(why) = &said
            && self.filters_said.as_ref() != Some(why)
        {
            notices.report(format_args!("not made good for events that are new: {why}"));
        }
        self.filters_said = said;
    }

    /// Renews the lease. Enables events again that writers disabled when the lease had expired.
    pub(crate) fn renew_lease(&self, window: &Window) {
        // A channel that is being replaced has already handed its enable bits to its successor.
        let is_replaced = self.session().successor.load(Ordering::Relaxed) != 0;
        if lease::renew_lease(self.session()) && !is_replaced {
            slot::enable_selected(window, &self.layout);
        }
    }

    /// Copies the state of every region.
    pub(crate) fn poll(&mut self) -> PollResult {
        let mut found = PollResult::default();
        for work in &mut self.regions {
            let before = work.snapshot.map_or(0, |snapshot| snapshot.head);
            work.poll();
            let Some(snapshot) = work.snapshot else { continue };
            let data = snapshot.head != before;
            found.data |= data;
            // A flight recorder with all of its memory does not depend on the recorder, nor does
            // one without writers.
            if !work.overwrite || data && !work.is_whole() {
                found.fill = found.fill.max(work.fill());
            }
        }
        found
    }

    /// Writes the state that [`Self::poll`] copied: first the declarations of events, then the
    /// packets.
    pub(crate) fn drain(
        &mut self,
        handle: &WindowHandle,
        trace: &mut Trace,
        partial: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        self.declare_events(handle.window(), trace)?;
        let memory = FileMemory(handle.allocator.file());
        let begin_ts = self.begin_ts;
        for work in &mut self.regions {
            let mut with =
                DrainContext { memory: &memory, trace, begin_ts, partial, is_last: false, buffer };
            work.drain(&mut with).map_err(|error| write_error(trace, work, error))?;
        }
        Ok(())
    }

    /// Declares events that got an id since the last poll. A reader that loads heads before ids
    /// finds the id of every record below those heads.
    pub(crate) fn declare_events(
        &mut self,
        window: &Window,
        trace: &mut Trace,
    ) -> Result<(), RecordError> {
        if self.session().next_id.load(Ordering::Relaxed) == self.ids_known {
            return Ok(());
        }
        let (seen, known) = (&mut self.ids_seen, &mut self.ids_known);
        for (event, id) in event_ids(window, &self.layout) {
            if seen[event] == id || *known >= DECLARATIONS_MAX {
                continue;
            }
            let Some(bytes) = window.description(event) else { continue };
            seen[event] = id;
            *known += 1;
            declare_event(trace, self.names.class, id, bytes.as_slice());
        }
        trace
            .metadata
            .write()
            .map_err(RecordError::io("write", trace.channel.path().join("metadata")))
    }

    /// Reuses the memory of drained sub-buffers, and adds memory where writers need more.
    pub(crate) fn grow(&mut self, handle: &WindowHandle, notices: &Notices) {
        if self.is_lockless() {
            return;
        }
        self.raise_lowered(memory_return::is_near_limit);
        for number in 0..self.regions.len() {
            if self.is_lowered(number) {
                continue;
            }
            let work = &mut self.regions[number];
            let Some(snapshot) = work.snapshot else { continue };
            let region = work.region.0;
            let mut wanted =
                work.backing.wanted(Use { head: snapshot.head, discarded: snapshot.discarded });
            if region.control.wants_memory.load(Ordering::Relaxed) != 0 {
                region.control.wants_memory.store(0, Ordering::Relaxed);
                wanted = wanted.max(self.asked_subs.min(region.geometry.sub_count()));
            }
            work.backing.recycle(work.drained.position, |index, offset| region.back(index, offset));
            region.raise_limit(work.backing.limit());
            if wanted > work.backing.backed()
                && let Err(error) = self.back_sub_buffers(handle, number, wanted)
                && error != AllocateError::Locked // the next turn tries again
                && !self.pool_dry
            {
                self.pool_dry = true;
                notices.report(format_args!(
                    "buffers cannot grow ({error}): events may be lost; {} is nearly full",
                    handle.folder.display()
                ));
            }
        }
    }

    /// Begins a clock epoch, so that no packet spans two epochs. Until it has begun, writers read
    /// the system clock.
    pub(crate) fn begin_epoch(&self, handle: &WindowHandle, epoch: u64) {
        self.lockless().for_each(Lockless::switch);
        clock_epoch::switch_regions(handle, &self.slot, &self.layout, epoch);
    }

    /// Adds regions whose earlier claimers have released them.
    pub(crate) fn adopt_regions(&mut self, handle: &WindowHandle) {
        if self.is_lockless() {
            return;
        }
        for number in 0..self.regions.len() {
            let work = &mut self.regions[number];
            if work.is_foreign() && work.owner_seen == 0 {
                let claimer = ProcessSlot::NONE.owner_word(trackway_sys::thread::current_tid());
                if work.adopt(claimer) {
                    // Without free memory, the region grows once a writer needs it.
                    let _ = self.back_sub_buffers(handle, number, 1);
                }
            }
        }
    }

    /// Frees claim regions whose owner is dead; checks only owners that the previous check found.
    /// Returns true if a claim remains whose owner may write into the channel's memory.
    pub(crate) fn free_claims_of_the_dead(&mut self, window: &Window) -> bool {
        let mut held = false;
        for work in self.regions.iter_mut().filter(|work| work.way != WriterPath::Sequence) {
            let region = work.region.0;
            // ORDERING: SeqCst: after the generation was raised, this load finds a claim, or its
            // taker finds the new generation (Dekker).
            let owner = region.control.owner.load(Ordering::SeqCst);
            let mut free = owner == 0;
            if !free && owner == work.owner_seen {
                let dead = window.owner_is_dead(Owner::from_word(owner));
                free = dead && Claim::free_dead(region, owner);
            }
            // A claimer from an earlier session finds that its own session has ended.
            held |= !free && !work.is_foreign();
            work.owner_seen = if free { 0 } else { owner };
        }
        held
    }

    /// Waits briefly until no earlier writer is active. Returns true if a claim remains.
    pub(crate) fn wait_for_writers(&mut self, window: &Window) -> bool {
        let start = Instant::now();
        loop {
            let claimed = self.free_claims_of_the_dead(window);
            let reserved = self.lockless().any(Lockless::has_holes);
            if !claimed && !reserved || start.elapsed() >= CLAIMS_PATIENCE {
                return claimed;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Frees the slot and its memory. If a live claimer uses the memory or another process locks
    /// the window, leaves both to the next recorder.
    pub(crate) fn free_slot_and_memory(&self, handle: &WindowHandle, exclusion: WriterExclusion) {
        self.filters.publish_area(self.session());
        let is_freed = !exclusion.claimed
            && slot::has_no_reservation(handle.window(), self.lockless().map(Lockless::buffer))
            && self.slot.free(handle, exclusion.no_sequence).is_ok();
        if !is_freed {
            self.slot.abandon_complete();
        }
    }

    /// Drains all sub-buffers, also open ones, after writers were excluded. Stops when
    /// `interrupted` returns true.
    pub(crate) fn drain_remaining(
        &mut self,
        handle: &WindowHandle,
        trace: &mut Trace,
        buffer: &mut Vec<u8>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<DrainEnd, RecordError> {
        self.poll();
        self.declare_events(handle.window(), trace)?;
        let memory = FileMemory(handle.allocator.file());
        let begin_ts = self.begin_ts;
        for work in &mut self.regions {
            if interrupted() {
                return Ok(DrainEnd::Interrupted);
            }
            let mut with = DrainContext {
                memory: &memory,
                trace,
                begin_ts,
                partial: true,
                is_last: true,
                buffer,
            };
            work.drain(&mut with)
                .and_then(|()| work.close_stream(trace, begin_ts, CloseKind::ForGood))
                .map_err(|error| write_error(trace, work, error))?;
        }
        Ok(DrainEnd::Complete)
    }
}

/// Excludes writers from these channels permanently, and waits for active ones.
pub(crate) fn exclude_writers(window: &Window, channels: &mut [Channel]) -> Vec<WriterExclusion> {
    channels.iter().for_each(|channel| channel.slot.close());
    // One visit of the CPUs serves all channels.
    let no_sequence = cpus::visit_all();
    let wait = |channel: &mut Channel| {
        // Clears bits that writers set if they had decided before the exclusion.
        slot::clear_bits(window, channel.slot.index);
        WriterExclusion { no_sequence, claimed: channel.wait_for_writers(window) }
    };
    channels.iter_mut().map(wait).collect()
}

/// Returns the events that have an id in a channel, each with its id plus one.
fn event_ids(window: &Window, layout: &SessionLayout) -> impl Iterator<Item = (usize, u32)> {
    // ORDERING: Acquire pairs with the Release in `enable_if_selected`.
    let id = |event: usize| (event, layout.id(window, event).load(Ordering::Acquire));
    (0..EVENTS_MAX).map(id).filter(|(_, id)| *id != 0)
}

/// Declares an event. Ignores an undecodable description: a process has overwritten it.
fn declare_event(trace: &mut Trace, class: u32, id: u32, description: &[u8]) {
    if let Ok(description) = EventDescription::decode(description) {
        trace.metadata.declare_event(class, id - 1, &description);
    }
}

fn write_error(trace: &Trace, work: &RegionDrain, error: io::Error) -> RecordError {
    RecordError::io("write", trace.channel.path().join(work.name()))(error)
}

#[cfg(test)]
mod tests {
    use trackway_abi::window::GRANULE_BYTES;
    use trackway_session::BufferOptions;

    use super::*;

    #[test]
    fn an_idle_channel_takes_less_than_four_mebibytes_on_a_machine_of_256_cpus() {
        let plan = BufferOptions::default().plan().expect("sizes");
        let initial = plan.initial_of(256, true);
        let claims = 2 * (initial.claim_subs << plan.claim_sub_shift);
        assert_eq!(initial.subs, 0);
        let granules = |bytes: u64| bytes.next_multiple_of(GRANULE_BYTES);
        let control = granules(SessionLayout::control_bytes(256, 0));
        // In the worst case, the memory of each region is rounded up separately.
        let regions = initial.spare_cpus * granules(claims);
        assert!(control + regions < 4 << 20, "{control} and {regions}");
    }
}
