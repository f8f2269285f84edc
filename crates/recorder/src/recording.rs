//! A session under way: looked at, drained, grown, kept on time, ended.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use trackway_abi::session::{PATH_BYTES_MAX, Session, flag};
use trackway_abi::window::EVENTS_MAX;
use trackway_ring::claim::Claim;
use trackway_schema::EventDescription;
use trackway_session::{Calibrator, Change, Line, Ticker, Use};
use trackway_sys::clock::monotonic_ns;
use trackway_window::{AllocateError, Owner, ProcessSlot, SessionLayout, Way};

use crate::completion::{self, By};
use crate::lockless::Lockless;
use crate::memory::{FileMemory, Pool};
use crate::region::{Drain, RegionWork};
use crate::report::Notices;
use crate::slot::{self, SessionSettings, Slot};
use crate::trace::{FACTS, Particulars, Trace};
use crate::{Home, RecordError, Summary, clock, clock_epoch, cpus};

/// How often the lease is renewed, in ns.
const LEASE_PERIOD_NS: u64 = 500_000_000;
/// How often the clock is calibrated, and slow things are looked at, in ns.
const SLOW_PERIOD_NS: u64 = 100_000_000;
/// How often sub-buffers that are still open are written as far as they are, in ns: who follows the
/// trace sees events that much later at most, however few there are.
const FLUSH_PERIOD_NS: u64 = 500_000_000;
/// How long the end waits for claims of live writers.
const CLAIMS_PATIENCE: Duration = Duration::from_millis(50);
/// Least time between the first two readings of the clock.
const FIRST_BASELINE: Duration = Duration::from_millis(6);

/// A session that this process records.
#[derive(Debug)]
pub struct Recording {
    pub(crate) home: Home,
    pub(crate) slot: Slot,
    pub(crate) layout: SessionLayout,
    pub(crate) regions: Vec<RegionWork>,
    pub(crate) trace: Trace,
    pool: Pool,
    /// Memory could not be had: said once.
    pool_dry: bool,
    calibrator: Option<Calibrator>,
    epoch: u64,
    ticker: Ticker,
    begin_ts: u64,
    /// Whether it completes what another recorder left.
    pub(crate) is_recovery: bool,
    lease_due_ns: u64,
    slow_due_ns: u64,
    flush_due_ns: u64,
    /// Ids of events, as far as they were seen: by event.
    ids_seen: Vec<u32>,
    ids_known: u32,
    buffer: Vec<u8>,
}

impl Recording {
    /// Builds a session as `settings` say, in a free slot; its trace folder is made; writers may
    /// come in as soon as [`Self::activate`] is called.
    pub fn build(home: Home, settings: &SessionSettings) -> Result<Self, RecordError> {
        let mut calibrator = clock::counter_is_invariant().then(Calibrator::default);
        if let Some(calibrator) = &mut calibrator {
            calibrator.update(clock::read());
        }
        let begun = Instant::now();
        if settings.path.as_os_str().len() > PATH_BYTES_MAX {
            let why = format!("its absolute path is longer than {PATH_BYTES_MAX} bytes");
            return Err(RecordError::io("use", &settings.path)(std::io::Error::other(why)));
        }
        let slot = Slot::take(&home)?;
        let built = Self::build_in(home, slot, settings, calibrator, begun);
        match built {
            Ok(recording) => Ok(recording),
            Err((error, home, slot)) => {
                // No writer has ever been let in.
                let _ = slot.free(&home, true);
                Err(error)
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "the parts come back for cleaning up, once")]
    fn build_in(
        home: Home,
        slot: Slot,
        settings: &SessionSettings,
        calibrator: Option<Calibrator>,
        begun: Instant,
    ) -> Result<Self, (RecordError, Home, Slot)> {
        let made = slot.build(&home, settings, cpus::possible()).and_then(|layout| {
            let session = slot.session();
            let particulars = Particulars {
                uuid: settings.uuid,
                uid: crate::home::user(),
                realtime_offset_ns: session.realtime_offset_ns.load(Ordering::Relaxed) as i64,
                contexts: settings.contexts,
            };
            Ok((layout, Trace::create(&settings.path, &particulars)?))
        });
        let (layout, trace) = match made {
            Ok(made) => made,
            Err(error) => return Err((error, home, slot)),
        };
        let modest = !settings.buffers.whole;
        let mut recording = Self::assemble(home, slot, layout, trace, modest);
        recording.calibrator = calibrator;
        match recording.back_initially(settings) {
            Ok(()) => {
                recording.regions.iter_mut().for_each(RegionWork::begin_lockless);
                recording.calibrate_first(begun);
                Ok(recording)
            }
            Err(error) => Err((error, recording.home, recording.slot)),
        }
    }

    /// Puts the parts together, without memory and without a clock.
    pub(crate) fn assemble(
        home: Home,
        slot: Slot,
        layout: SessionLayout,
        trace: Trace,
        modest: bool,
    ) -> Self {
        let overwrite = layout.flags & flag::OVERWRITE != 0;
        let regions = slot::regions(home.window(), &layout)
            .into_iter()
            .map(|(region, cpu, way)| {
                let mut work = RegionWork::new(region, cpu, way, overwrite);
                if way == Way::Sequence {
                    let buffer = layout.lockless(home.window(), cpu);
                    work.lockless = buffer.map(|buffer| Lockless::new(buffer, *home.window()));
                }
                work
            })
            .collect();
        Self {
            pool: Pool::new(slot.index, modest),
            home,
            slot,
            layout,
            regions,
            trace,
            pool_dry: false,
            calibrator: None,
            epoch: 0,
            ticker: Ticker::default(),
            begin_ts: monotonic_ns(),
            is_recovery: false,
            lease_due_ns: 0,
            slow_due_ns: 0,
            flush_due_ns: 0,
            ids_seen: vec![0; EVENTS_MAX],
            ids_known: 0,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn session(&self) -> &'static Session {
        self.slot.session()
    }

    fn back_initially(&mut self, settings: &SessionSettings) -> Result<(), RecordError> {
        let plan = slot::plan(settings, self.layout.flags);
        let online = cpus::online();
        let needed = online.len() as u64 * plan.initial_bytes_per_cpu(online.len() as u64);
        let mut used = Vec::new();
        for (number, work) in self.regions.iter().enumerate() {
            let is_written = !self.is_lockless() || work.lockless.is_some();
            if !work.is_foreign() && is_written && online.contains(&work.cpu) {
                used.push(number);
            }
        }
        // First a little for every region, then what is wanted: where memory is short, no CPU
        // may take it all. By default a little will do.
        for least_only in [true, false] {
            for &number in &used {
                let (least, wanted) = match self.regions[number].way {
                    _ if let Some(lockless) = &self.regions[number].lockless => {
                        (lockless.places(), lockless.places())
                    }
                    Way::Sequence => (2, plan.initial_subs(online.len() as u64)),
                    Way::Claim(_) => (1, plan.initial_claim_subs(online.len() as u64)),
                };
                let least = least.min(wanted);
                let backed = self.back(number, if least_only { least } else { wanted });
                if let Err(error) = backed {
                    if least_only || plan.whole {
                        return Err(slot::memory_error(&self.home, needed, error));
                    }
                    self.pool_dry = true;
                }
            }
        }
        Ok(())
    }

    /// Backs sub-buffers of region `number` until `wanted` of them are, and raises its limit.
    fn back(&mut self, number: usize, wanted: u64) -> Result<(), AllocateError> {
        let work = &mut self.regions[number];
        let region = work.region.0;
        if let Some(lockless) = &work.lockless {
            while lockless.backed() < wanted {
                let missing = wanted - lockless.backed();
                let shift = region.geometry.sub_shift();
                lockless.back(self.pool.take(&self.home.allocator, shift, missing)?);
            }
            return Ok(());
        }
        let mut result = Ok(());
        while work.backing.backed() < wanted {
            let missing = wanted - work.backing.backed();
            let shift = region.geometry.sub_shift();
            match self.pool.take(&self.home.allocator, shift, missing) {
                Ok(offset) => {
                    let Some(index) = work.backing.add(offset) else { break };
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

    fn calibrate_first(&mut self, begun: Instant) {
        if self.calibrator.is_some() {
            // Most of it has passed already, or the calibration is not due yet.
            std::thread::sleep(FIRST_BASELINE.saturating_sub(begun.elapsed()));
        }
        clock::publish(&self.session().clock, None, self.epoch);
        self.calibrate();
        self.begin_ts = monotonic_ns();
    }

    /// Lets writers in.
    pub fn activate(&mut self) {
        self.slot.activate(&self.layout);
        self.pool.patient = false;
        self.lease_due_ns = monotonic_ns() + LEASE_PERIOD_NS;
        self.slow_due_ns = monotonic_ns() + SLOW_PERIOD_NS / 2;
        self.flush_due_ns = monotonic_ns() + FLUSH_PERIOD_NS;
    }

    /// The folder of the trace.
    pub fn folder(&self) -> PathBuf {
        self.trace.root.clone()
    }

    /// One look at everything: drains what is complete (twice a second also what is not), gives
    /// memory back to writers, grows, keeps lease and clock. How long to wait until the next look,
    /// in ns.
    pub fn tick(&mut self, notices: &Notices) -> Result<u64, RecordError> {
        self.check_window()?;
        let now = monotonic_ns();
        if now >= self.lease_due_ns {
            self.lease_due_ns = now + LEASE_PERIOD_NS;
            if slot::renew_lease(self.session()) {
                // Writers took us for dead, and switched their events off.
                slot::enable_selected(self.home.window(), &self.layout);
            }
        }
        let (mut fill, mut data) = (0, false);
        for work in &mut self.regions {
            let before = work.snapshot.map_or(0, |snapshot| snapshot.head);
            work.look();
            if let Some(snapshot) = work.snapshot {
                fill = fill.max(work.fill());
                data |= snapshot.head != before;
            }
        }
        if !self.is_overwriting() {
            let flush = now >= self.flush_due_ns;
            if flush {
                self.flush_due_ns = now + FLUSH_PERIOD_NS;
            }
            self.drain_all(flush)?;
        }
        self.grow(notices);
        if now >= self.slow_due_ns {
            self.slow_due_ns = now + SLOW_PERIOD_NS;
            self.calibrate();
            self.free_claims_of_the_dead();
            self.adopt_regions();
        }
        if self.is_overwriting() {
            // Nothing waits for us.
            let is_whole =
                |work: &RegionWork| work.backing.limit() == u64::MAX || self.is_lockless();
            fill = if self.regions.iter().all(is_whole) { 0 } else { fill };
        }
        Ok(self.ticker.next(fill, data))
    }

    fn check_window(&self) -> Result<(), RecordError> {
        if !self.home.is_whole() {
            return Err(RecordError::Lost("the window was truncated"));
        }
        if !self.slot.is_ours() {
            return Err(RecordError::Lost(
                "another program wrote over the session, or another recorder took it over",
            ));
        }
        Ok(())
    }

    /// Whether the session has lockless buffers in place of regions.
    pub(crate) fn is_lockless(&self) -> bool {
        self.layout.flags & flag::LOCKLESS != 0
    }

    fn is_overwriting(&self) -> bool {
        self.layout.flags & flag::OVERWRITE != 0
    }

    /// Writes what [`RegionWork::look`] saw: first the declarations of events, then the packets.
    fn drain_all(&mut self, partial: bool) -> Result<(), RecordError> {
        self.declare_events()?;
        let memory = FileMemory(self.home.allocator.file());
        let mut with = Drain {
            memory: &memory,
            trace: &self.trace,
            begin_ts: self.begin_ts,
            partial,
            is_last: false,
            buffer: &mut self.buffer,
        };
        for work in &mut self.regions {
            work.drain(&mut with)
                .map_err(RecordError::io("write", self.trace.channel.path().join(work.name())))?;
        }
        Ok(())
    }

    /// Declares events that got an id since the last look. Whoever reads heads first and ids then
    /// finds the id of every record below those heads.
    fn declare_events(&mut self) -> Result<(), RecordError> {
        let window = self.home.window();
        if self.session().next_id.load(Ordering::Relaxed) == self.ids_known {
            return Ok(());
        }
        for event in 0..EVENTS_MAX {
            // ORDERING: Acquire pairs with the Release in `enable_if_selected`.
            let id = self.layout.id(window, event).load(Ordering::Acquire);
            if id == 0 || self.ids_seen[event] == id {
                continue;
            }
            let Some(bytes) = window.description(event) else { continue };
            self.ids_seen[event] = id;
            self.ids_known += 1;
            // What cannot be decoded was never an event: somebody wrote over it.
            if let Ok(description) = EventDescription::decode(bytes.as_slice()) {
                self.trace.metadata.declare(id - 1, &description);
            }
        }
        self.trace
            .metadata
            .write()
            .map_err(RecordError::io("write", self.trace.channel.path().join("metadata")))
    }

    /// Gives the memory of drained sub-buffers to the next ones, and more where writers need it.
    fn grow(&mut self, notices: &Notices) {
        if self.is_lockless() {
            return;
        }
        for number in 0..self.regions.len() {
            let work = &mut self.regions[number];
            let Some(snapshot) = work.snapshot else { continue };
            let region = work.region.0;
            let wanted =
                work.backing.wanted(Use { head: snapshot.head, discarded: snapshot.discarded });
            work.backing.recycle(work.drained.position, |index, offset| region.back(index, offset));
            region.raise_limit(work.backing.limit());
            if wanted > work.backing.backed()
                && let Err(error) = self.back(number, wanted)
                && error != AllocateError::Locked // the next turn will do
                && !self.pool_dry
            {
                self.pool_dry = true;
                notices.say(format_args!(
                    "buffers cannot grow ({error}): events may be lost; {} is nearly full",
                    self.home.folder.display()
                ));
            }
        }
    }

    fn calibrate(&mut self) {
        let Some(calibrator) = &mut self.calibrator else { return };
        match calibrator.update(clock::read()) {
            Change::Keep => {}
            Change::Line(line) => self.publish_line(line),
            Change::Jump(line) => self.begin_epoch(line),
        }
    }

    /// Begins a clock epoch, as after a jump: no packet has times of two.
    pub fn begin_epoch(&mut self, line: Line) {
        self.epoch += 1;
        // Writers ask the system until every region has begun a packet of the new epoch.
        clock::publish(&self.session().clock, None, self.epoch);
        self.lockless().for_each(Lockless::switch);
        clock_epoch::switch_all(&self.home, &self.slot, &self.layout, self.epoch);
        self.publish_line(line);
    }

    fn publish_line(&mut self, line: Line) {
        clock::publish(&self.session().clock, Some(line), self.epoch);
        self.trace.note_calibration(self.epoch, &line);
    }

    /// Takes regions in whose claimers of before have let go.
    fn adopt_regions(&mut self) {
        if self.is_lockless() {
            return;
        }
        for number in 0..self.regions.len() {
            let work = &mut self.regions[number];
            if work.is_foreign() && work.owner_seen == 0 {
                let claimer = ProcessSlot::NONE.owner_word(trackway_sys::thread::tid());
                if work.adopt(claimer) {
                    // If there is none, it grows once it is needed.
                    let _ = self.back(number, 1);
                }
            }
        }
    }

    /// Frees claim regions whose owner is proved dead: looked at when the same owner was there at
    /// the last look. Whether others are held that may write into the session's memory.
    fn free_claims_of_the_dead(&mut self) -> bool {
        let mut held = false;
        for work in self.regions.iter_mut().filter(|work| work.way != Way::Sequence) {
            let region = work.region.0;
            // ORDERING: SeqCst: after the generation was raised, a claim is seen here, or its
            // taker sees the generation (Dekker).
            let owner = region.control.owner.load(Ordering::SeqCst);
            let mut free = owner == 0;
            if !free && owner == work.owner_seen {
                let dead = self.home.window().owner_is_dead(Owner::from_word(owner));
                free = dead && Claim::free_dead(region, owner);
            }
            // Who has it since before the session sees that its own session is over.
            held |= !free && !work.is_foreign();
            work.owner_seen = if free { 0 } else { owner };
        }
        held
    }

    /// Ends the session: keeps writers out, takes what is in the buffers, marks the trace as
    /// complete, frees the slot. When `interrupted` says so, what is left is left to
    /// `trackway recover`.
    pub fn finish(mut self, interrupted: &dyn Fn() -> bool) -> Result<Summary, RecordError> {
        self.check_window()?;
        let no_sequence = self.slot.deactivate();
        let start = Instant::now();
        let (mut claimed, mut reserved) = (true, true);
        while (claimed || reserved) && start.elapsed() < CLAIMS_PATIENCE {
            claimed = self.free_claims_of_the_dead();
            reserved = self.lockless().any(Lockless::has_holes);
            if claimed || reserved {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let drained = self.take_the_rest(interrupted);
        let summary = self.summary();
        let completed = drained.and_then(|is_all| {
            if is_all {
                self.mark(&summary)?;
            }
            Ok(is_all)
        });
        // What is left of a trace that was removed can go nowhere any more.
        let is_over =
            completed.as_ref().map_or_else(|_| self.trace.channel.is_removed(), |is_all| *is_all);
        if !is_over {
            // What is left is for whoever recovers it.
            self.slot.abandon();
        } else if claimed
            || !slot::nobody_has_a_slot(self.home.window(), self.lockless().map(Lockless::buffer))
            || self.slot.free(&self.home, no_sequence).is_err()
        {
            // A live claimer keeps the memory, or who keeps the window locked: whoever comes next
            // frees it.
            self.slot.abandon_complete();
        }
        completed.map(|_| summary)
    }

    fn lockless(&self) -> impl Iterator<Item = &Lockless> {
        self.regions.iter().filter_map(|work| work.lockless.as_ref())
    }

    /// Says in the trace that it is complete.
    fn mark(&self, summary: &Summary) -> Result<(), RecordError> {
        let by = if self.is_recovery { By::Recover(summary) } else { By::Record(summary) };
        let path = self.trace.channel.path().join(FACTS);
        self.trace
            .facts()
            .and_then(|facts| completion::mark(&facts, by))
            .map_err(RecordError::io("write", path))
    }

    /// Drains everything, open sub-buffers too; whether it was not interrupted.
    fn take_the_rest(&mut self, interrupted: &dyn Fn() -> bool) -> Result<bool, RecordError> {
        for work in &mut self.regions {
            work.look();
        }
        self.declare_events()?;
        let memory = FileMemory(self.home.allocator.file());
        for work in &mut self.regions {
            if interrupted() {
                return Ok(false);
            }
            let mut with = Drain {
                memory: &memory,
                trace: &self.trace,
                begin_ts: self.begin_ts,
                partial: true,
                is_last: true,
                buffer: &mut self.buffer,
            };
            work.drain(&mut with)
                .and_then(|()| work.close(&self.trace, self.begin_ts))
                .map_err(RecordError::io("write", self.trace.channel.path().join(work.name())))?;
        }
        Ok(true)
    }
}
