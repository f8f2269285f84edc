//! A channel under way: its slot in the window, its regions, their memory.
//!
//! To writers a channel is a session by itself; what several channels share, the trace and the
//! clock, is [`Recording`](crate::recording::Recording)'s.
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
use crate::recording::memory_return::{self, Thrift};
use crate::recording::region::{Closed, Drain, RegionWork, StreamNames};
use crate::trace::layout::{Particulars, Trace, WindowFolder};
use crate::window::handle::Home;
use crate::window::memory_pool::{FileMemory, Pool};
use crate::window::settings::{ChannelSettings, SessionSettings};
use crate::window::slot::{self, Slot};
use crate::window::{clock_epoch, cpus, lease, shared_text};

/// How long the end waits for claims of live writers.
const CLAIMS_PATIENCE: Duration = Duration::from_millis(50);
/// Least sub-buffers that a region gets whose first record found no memory: more will come.
const ASKED_SUBS_MIN: u64 = 4;
/// Most ids that are declared of a channel: an event has one. Others are made by somebody who
/// writes over the table; metadata must not grow with each.
const DECLARATIONS_MAX: u32 = 2 * EVENTS_MAX as u32;

/// A channel that this process records.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) slot: Slot,
    pub(crate) layout: SessionLayout,
    /// What its records have in front of their fields.
    pub(crate) contexts: Contexts,
    pub(crate) regions: Vec<RegionWork>,
    /// What its streams are called.
    pub(crate) names: Arc<StreamNames>,
    pub(crate) pool: Pool,
    /// Memory could not be had: said once.
    pool_dry: bool,
    pub(crate) begin_ts: u64,
    /// When what is not needed is given back; `None`: it is kept.
    pub(crate) thrift: Option<Thrift>,
    pub(crate) filters: Filters,
    /// Why they cannot be made good for events that came later, as it was said last.
    filters_said: Option<String>,
    /// Sub-buffers that a region gets whose first record found no memory.
    asked_subs: u64,
    /// Ids of events, as far as they were seen: by event.
    ids_seen: Vec<u32>,
    ids_known: u32,
}

/// What a channel's look at its regions found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    /// How full the fullest region is, in 1/256.
    pub(crate) fill: u64,
    /// Whether anything was written since the look before.
    pub(crate) data: bool,
}

/// How writers were kept out of a channel that ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptOut {
    /// No sequence of before can be alive.
    no_sequence: bool,
    /// A claimer that may be alive has not let go.
    claimed: bool,
}

/// How the end of a channel went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All that was in its buffers is in the trace.
    Whole,
    /// Not all of it: somebody could not wait.
    Interrupted,
}

/// Returns what is particular to the trace of these channels, of the calling user's window.
pub(crate) fn particulars(uuid: [u8; 16], channels: &[Channel]) -> Particulars {
    let offset = |channel: &Channel| {
        channel.session().realtime_offset_ns.load(Ordering::Relaxed).cast_signed()
    };
    let class = |channel: &Channel| (channel.names.class, channel.contexts.clone());
    Particulars {
        uuid,
        folder: WindowFolder::own(),
        realtime_offset_ns: channels.first().map_or(0, offset),
        classes: channels.iter().map(class).collect(),
    }
}

impl Channel {
    /// Builds a channel in a free slot, with streams of this class; writers may come in as soon as
    /// it is activated. What filters remember it goes on with where it was `before`.
    pub(crate) fn build(
        home: &Home,
        session: &SessionSettings,
        settings: &ChannelSettings,
        class: u32,
        before: Option<&Self>,
    ) -> Result<Self, RecordError> {
        let slot = free_slot::take_slot(home)?;
        let filters_word = slot.session().filters.load(Ordering::Relaxed);
        let layout = match slot.build(home, session, settings, class, cpus::possible()) {
            Ok(layout) => layout,
            Err(error) => {
                // No writer has ever been let in.
                let _ = slot.free(home, true);
                return Err(error);
            }
        };
        let names = StreamNames::new(&settings.name, class);
        let filters = Filters::of_slot(home, &slot, filters_word, &layout.control_area());
        // Also for whoever comes after a recorder that was killed.
        filters.leave(slot.session());
        let mut channel = Self::assemble(home, slot, layout, names, !settings.buffers.whole);
        channel.filters = filters;
        channel.filters.expect(&settings.expected);
        if let Some(before) = before {
            channel.filters.inherit(&before.filters);
        }
        let built = channel.back_initially(home, settings).and_then(|()| {
            // Before anybody is let in.
            channel.filters.set(home, &channel.slot, &settings.filters, &settings.rules)
        });
        if let Err(error) = built {
            channel.undo(home);
            return Err(error);
        }
        channel.regions.iter_mut().for_each(RegionWork::begin_lockless);
        channel.regions.iter_mut().for_each(|work| work.cut(settings.tracefiles));
        Ok(channel)
    }

    /// Frees the slot of a channel that no writer was ever let in to.
    pub(crate) fn undo(&self, home: &Home) {
        self.filters.leave(self.session());
        let _ = self.slot.free(home, true);
    }

    /// Puts the parts together, without memory.
    pub(crate) fn assemble(
        home: &Home,
        slot: Slot,
        layout: SessionLayout,
        names: StreamNames,
        modest: bool,
    ) -> Self {
        let window = home.window();
        let overwrite = layout.flags & flag::OVERWRITE != 0;
        let names = Arc::new(names);
        let regions = slot::regions(window, &layout)
            .into_iter()
            .map(|(region, cpu, way)| {
                let mut work = RegionWork::new(region, Arc::clone(&names), cpu, way, overwrite);
                if way == WriterPath::Sequence {
                    let buffer = layout.lockless(window, cpu);
                    work.lockless = buffer.map(|buffer| Lockless::new(buffer, *window));
                }
                work
            })
            .collect();
        Self {
            pool: Pool::new(slot.index, modest),
            contexts: shared_text::contexts(slot.session(), layout.contexts),
            slot,
            layout,
            regions,
            names,
            pool_dry: false,
            begin_ts: monotonic_ns(),
            thrift: None,
            filters: Filters::default(),
            filters_said: None,
            asked_subs: ASKED_SUBS_MIN,
            ids_seen: vec![0; EVENTS_MAX],
            ids_known: 0,
        }
    }

    pub(crate) fn session(&self) -> &'static Session {
        self.slot.session()
    }

    /// Whether memory for its buffers could not be had.
    pub(crate) const fn is_memory_short(&self) -> bool {
        self.pool_dry
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self, home: &Home) -> u64 {
        let held = home.allocator.bytes_of(self.slot.index);
        held.saturating_sub(self.pool.unbacked_bytes())
    }

    /// Whether it has lockless buffers in place of regions.
    pub(crate) fn is_lockless(&self) -> bool {
        self.layout.flags & flag::LOCKLESS != 0
    }

    /// Whether it is a flight recorder.
    pub(crate) fn is_overwriting(&self) -> bool {
        self.layout.flags & flag::OVERWRITE != 0
    }

    pub(crate) fn lockless(&self) -> impl Iterator<Item = &Lockless> {
        self.regions.iter().filter_map(|work| work.lockless.as_ref())
    }

    fn back_initially(
        &mut self,
        home: &Home,
        settings: &ChannelSettings,
    ) -> Result<(), RecordError> {
        let plan = slot::plan(settings, self.layout.flags);
        let online = cpus::online();
        let count = online.len() as u64;
        // A flight recorder has all of its memory sooner or later.
        let thrifty = settings.thrifty && (!settings.overwrite || plan.is_much(count));
        let initial = plan.initial_of(count, thrifty);
        let needed = count * plan.initial_bytes_per_cpu(count);
        let spare = &online[..online.len().min(initial.spare_cpus as usize)];
        let has_memory = |work: &RegionWork| match initial.spare_cpus {
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
        self.asked_subs = initial.subs.max(ASKED_SUBS_MIN);
        if plan.whole {
            let checked = self.pool.check_all(&home.allocator, needed);
            checked.map_err(|error| slot::memory_error(home, needed, error))?;
        }
        // First a little for every region, then what is wanted: where memory is short, no CPU
        // may take it all. By default a little will do.
        for least_only in [true, false] {
            for &number in &used {
                let (least, wanted) = match self.regions[number].way {
                    _ if let Some(lockless) = &self.regions[number].lockless => {
                        (lockless.places(), lockless.places())
                    }
                    WriterPath::Sequence => (2, initial.subs),
                    WriterPath::Claim(_) => (1, initial.claim_subs),
                };
                let least = least.min(wanted);
                let backed = self.back(home, number, if least_only { least } else { wanted });
                if let Err(error) = backed {
                    if least_only || plan.whole {
                        return Err(slot::memory_error(home, needed, error));
                    }
                    self.pool_dry = true;
                }
            }
        }
        // What they need later is lent; where no region takes others' records, each that was ever
        // used keeps a little.
        let least = if initial.spare_cpus == 0 { 2 } else { 0 };
        self.regions.iter_mut().for_each(|work| work.backing.keep_from_here_on(least));
        if !plan.whole && !self.is_lockless() && !self.is_overwriting() {
            self.thrift = Some(Thrift::begin());
        }
        if let Some(last) = spare.last() {
            self.session().spare_cpus.store(last + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Backs sub-buffers of region `number` until `wanted` of them are, and raises its limit.
    fn back(&mut self, home: &Home, number: usize, wanted: u64) -> Result<(), AllocateError> {
        let epoch = self.session().clock.epoch.load(Ordering::Relaxed);
        let work = &mut self.regions[number];
        let region = work.region.0;
        let shift = region.geometry.sub_shift();
        if let Some(lockless) = &work.lockless {
            while lockless.backed() < wanted {
                let missing = wanted - lockless.backed();
                lockless.back(self.pool.take(&home.allocator, shift, missing)?);
            }
            return Ok(());
        }
        let mut result = Ok(());
        while work.backing.backed() < wanted {
            let missing = wanted - work.backing.backed();
            match self.pool.take(&home.allocator, shift, missing) {
                Ok(offset) => {
                    let is_first = work.backing.backed() == 0;
                    let Some(index) = work.backing.add(offset) else { break };
                    if is_first {
                        memory_return::open_again(home, work, (index, offset), epoch);
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

    /// Says when its streams begin: what is lost before the first record is counted from there.
    pub(crate) fn begin_at(&mut self, time_ns: u64) {
        self.begin_ts = time_ns;
    }

    /// Lets writers in.
    pub(crate) fn activate(&mut self) {
        self.slot.activate(&self.layout);
        self.pool.patient = false;
    }

    /// Lets writers in, in the place of another channel, and gives it these rules.
    pub(crate) fn succeed(&mut self, other: &Self, rules: &str) {
        self.activate();
        other.slot.pass_on(&self.layout);
        self.slot.set_rules(&self.layout, rules);
    }

    /// Puts these filters into force.
    pub(crate) fn set_filters(
        &mut self,
        home: &Home,
        filters: &[FilterSpec],
    ) -> Result<(), RecordError> {
        let rules = self.filters.rules().to_owned();
        self.filters.set(home, &self.slot, filters, &rules)
    }

    /// Makes its filters good for the events that these rules select.
    pub(crate) fn filter_for(&mut self, home: &Home, rules: &str) -> Result<(), RecordError> {
        self.filters.refresh(home, &self.slot, rules)
    }

    /// Makes its filters good for the events that have come since; where they cannot be, that is
    /// said, once.
    pub(crate) fn look_at_new_events(&mut self, home: &Home, notices: &Notices) {
        let rules = self.filters.rules().to_owned();
        let failure = self.filters.refresh(home, &self.slot, &rules).err();
        let said = failure.map(|error| error.to_string());
        if let Some(why) = &said
            && self.filters_said.as_ref() != Some(why)
        {
            notices.say(format_args!("not made good for events that are new: {why}"));
        }
        self.filters_said = said;
    }

    /// Says that the recorder is alive; writers that took it for dead switched their events off.
    pub(crate) fn renew_lease(&self, window: &Window) {
        // Of one that is being replaced, the bits are its successor's by now.
        let is_replaced = self.session().successor.load(Ordering::Relaxed) != 0;
        if lease::renew_lease(self.session()) && !is_replaced {
            slot::enable_selected(window, &self.layout);
        }
    }

    /// Copies the state of every region.
    pub(crate) fn look(&mut self) -> Look {
        let mut found = Look::default();
        for work in &mut self.regions {
            let before = work.snapshot.map_or(0, |snapshot| snapshot.head);
            work.look();
            let Some(snapshot) = work.snapshot else { continue };
            let data = snapshot.head != before;
            found.data |= data;
            // In a flight recorder that has all of its memory nothing waits for us, nor where
            // nobody writes.
            if !work.overwrite || data && !work.is_whole() {
                found.fill = found.fill.max(work.fill());
            }
        }
        found
    }

    /// Writes what [`Self::look`] saw: first the declarations of events, then the packets.
    pub(crate) fn drain(
        &mut self,
        home: &Home,
        trace: &mut Trace,
        partial: bool,
        buffer: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        self.declare_events(home.window(), trace)?;
        let memory = FileMemory(home.allocator.file());
        let begin_ts = self.begin_ts;
        for work in &mut self.regions {
            let mut with =
                Drain { memory: &memory, trace, begin_ts, partial, is_last: false, buffer };
            work.drain(&mut with).map_err(|error| write_error(trace, work, error))?;
        }
        Ok(())
    }

    /// Declares events that got an id since the last look. Whoever reads heads first and ids then
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
        for (event, id) in ids(window, &self.layout) {
            if seen[event] == id || *known >= DECLARATIONS_MAX {
                continue;
            }
            let Some(bytes) = window.description(event) else { continue };
            seen[event] = id;
            *known += 1;
            declare(trace, self.names.class, id, bytes.as_slice());
        }
        trace
            .metadata
            .write()
            .map_err(RecordError::io("write", trace.channel.path().join("metadata")))
    }

    /// Gives the memory of drained sub-buffers to the next ones, and more where writers need it.
    pub(crate) fn grow(&mut self, home: &Home, notices: &Notices) {
        if self.is_lockless() {
            return;
        }
        self.raise_lowered(memory_return::is_near);
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
                && let Err(error) = self.back(home, number, wanted)
                && error != AllocateError::Locked // the next turn will do
                && !self.pool_dry
            {
                self.pool_dry = true;
                notices.say(format_args!(
                    "buffers cannot grow ({error}): events may be lost; {} is nearly full",
                    home.folder.display()
                ));
            }
        }
    }

    /// Begins a clock epoch: no packet has times of two. Writers ask the system meanwhile.
    pub(crate) fn begin_epoch(&self, home: &Home, epoch: u64) {
        self.lockless().for_each(Lockless::switch);
        clock_epoch::switch_all(home, &self.slot, &self.layout, epoch);
    }

    /// Takes regions in whose claimers of before have let go.
    pub(crate) fn adopt_regions(&mut self, home: &Home) {
        if self.is_lockless() {
            return;
        }
        for number in 0..self.regions.len() {
            let work = &mut self.regions[number];
            if work.is_foreign() && work.owner_seen == 0 {
                let claimer = ProcessSlot::NONE.owner_word(trackway_sys::thread::tid());
                if work.adopt(claimer) {
                    // If there is none, it grows once it is needed.
                    let _ = self.back(home, number, 1);
                }
            }
        }
    }

    /// Frees claim regions whose owner is proved dead: looked at when the same owner was there at
    /// the last look. Whether others are held that may write into the channel's memory.
    pub(crate) fn free_claims_of_the_dead(&mut self, window: &Window) -> bool {
        let mut held = false;
        for work in self.regions.iter_mut().filter(|work| work.way != WriterPath::Sequence) {
            let region = work.region.0;
            // ORDERING: SeqCst: after the generation was raised, a claim is seen here, or its
            // taker sees the generation (Dekker).
            let owner = region.control.owner.load(Ordering::SeqCst);
            let mut free = owner == 0;
            if !free && owner == work.owner_seen {
                let dead = window.owner_is_dead(Owner::from_word(owner));
                free = dead && Claim::free_dead(region, owner);
            }
            // Who has it since before the session sees that its own session is over.
            held |= !free && !work.is_foreign();
            work.owner_seen = if free { 0 } else { owner };
        }
        held
    }

    /// Waits, for a moment, until nobody writes who was let in before: whether somebody still has
    /// a claim.
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

    /// Frees the slot and its memory; or leaves that, where a live claimer keeps the memory, or
    /// somebody keeps the window locked, to whoever comes next.
    pub(crate) fn dispose(&self, home: &Home, kept_out: KeptOut) {
        self.filters.leave(self.session());
        let is_freed = !kept_out.claimed
            && slot::nobody_has_a_slot(home.window(), self.lockless().map(Lockless::buffer))
            && self.slot.free(home, kept_out.no_sequence).is_ok();
        if !is_freed {
            self.slot.abandon_complete();
        }
    }

    /// Drains everything, open sub-buffers too, after writers were kept out. When `interrupted`
    /// says so, what is left stays.
    pub(crate) fn take_the_rest(
        &mut self,
        home: &Home,
        trace: &mut Trace,
        buffer: &mut Vec<u8>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<End, RecordError> {
        self.look();
        self.declare_events(home.window(), trace)?;
        let memory = FileMemory(home.allocator.file());
        let begin_ts = self.begin_ts;
        for work in &mut self.regions {
            if interrupted() {
                return Ok(End::Interrupted);
            }
            let mut with =
                Drain { memory: &memory, trace, begin_ts, partial: true, is_last: true, buffer };
            work.drain(&mut with)
                .and_then(|()| work.close(trace, begin_ts, Closed::ForGood))
                .map_err(|error| write_error(trace, work, error))?;
        }
        Ok(End::Whole)
    }
}

/// Keeps writers out of these channels, for good, and waits for those who are in.
pub(crate) fn keep_out(window: &Window, channels: &mut [Channel]) -> Vec<KeptOut> {
    channels.iter().for_each(|channel| channel.slot.close());
    // One visit for all of them.
    let no_sequence = cpus::visit_all();
    let wait = |channel: &mut Channel| {
        // Who had decided before, and set a bit meanwhile.
        slot::clear_bits(window, channel.slot.index);
        KeptOut { no_sequence, claimed: channel.wait_for_writers(window) }
    };
    channels.iter_mut().map(wait).collect()
}

/// Events that have an id (plus one) in a channel.
fn ids(window: &Window, layout: &SessionLayout) -> impl Iterator<Item = (usize, u32)> {
    // ORDERING: Acquire pairs with the Release in `enable_if_selected`.
    let id = |event: usize| (event, layout.id(window, event).load(Ordering::Acquire));
    (0..EVENTS_MAX).map(id).filter(|(_, id)| *id != 0)
}

/// Declares an event. What cannot be decoded was never one: somebody wrote over it.
fn declare(trace: &mut Trace, class: u32, id: u32, description: &[u8]) {
    if let Ok(description) = EventDescription::decode(description) {
        trace.metadata.declare(class, id - 1, &description);
    }
}

fn write_error(trace: &Trace, work: &RegionWork, error: io::Error) -> RecordError {
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
        // Each region's memory is rounded up by itself, at worst.
        let regions = initial.spare_cpus * granules(claims);
        assert!(control + regions < 4 << 20, "{control} and {regions}");
    }
}
