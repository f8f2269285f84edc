//! A session's slot in the window: taken, filled in, activated, ended, freed.
//!
//! The order of the steps carries the proof of correctness. A session is FREE → BUILDING (writers
//! ignore it) → ACTIVE → ENDING → FREE. Each step that invalidates writers' cached decisions raises
//! the generation afterwards. Memory is reused only after a visit to every CPU.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use trackway_abi::session::{SESSIONS_MAX, Session, flag, state};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, GRANULE_BYTES, granule};
use trackway_ring::claim::Claim;
use trackway_ring::lockless::Buffer;
use trackway_schema::EventDescription;
use trackway_session::{BufferPlan, Reserve};
use trackway_window::{AllocateError, NOT_OF_SESSION, Owner, SessionLayout, Window, WriterPath};

use crate::error::RecordError;
use crate::window::handle::WindowHandle;
use crate::window::lease::{recorder_is_dead, register_recorder, renew_lease};
use crate::window::settings::{ChannelSettings, SessionSettings};
use crate::window::shared_text::write_text;
use crate::window::{cpus, rseq_self_test, sandboxes};

/// Time before a freed slot is reused, in ns, if another slot is free. Longer than a running thread
/// takes from finding the slot's bit at a site to reaching the slot.
const REST_NS: u64 = 1_000_000_000;
/// Most resting slots; with that many, a resting slot is reused instead of a slot that was never
/// used.
const RESTING_MAX: usize = 4;

/// A slot that this process owns.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: usize,
    window: Window,
    since_ns: u64,
    /// True if the slot was taken over with nothing left to write: see [`Self::abandon_complete`].
    pub(crate) is_complete: bool,
}

/// Value in place of the recorder's start time for a session without recorder whose trace is
/// complete, but whose memory could not be freed yet.
const COMPLETE_MARKER: u64 = u64::MAX;

impl Slot {
    /// Returns the session in the slot.
    pub(crate) fn session(&self) -> &'static Session {
        self.window.session(self.index)
    }

    /// Takes a free slot: see [`find_longest_free`].
    pub(crate) fn take(handle: &WindowHandle) -> Result<Self, RecordError> {
        let window = *handle.window();
        let taken = handle.allocator.exclusively(|| {
            let index = find_longest_free(&window, trackway_sys::clock::monotonic_ns())?;
            let session = window.session(index);
            let since_ns = register_recorder(session);
            session.state.store(state::BUILDING, Ordering::SeqCst);
            raise_generation(session);
            Some(Self { index, window, since_ns, is_complete: false })
        });
        taken.map_err(|error| memory_error(handle, 0, error))?.ok_or(RecordError::NoSlot)
    }

    /// Takes over the session of a dead recorder; `None` if the slot has no such session.
    pub(crate) fn take_over(
        handle: &WindowHandle,
        index: usize,
    ) -> Result<Option<Self>, RecordError> {
        let window = *handle.window();
        let session = window.session(index);
        let of_the_dead =
            || session.state.load(Ordering::Relaxed) != state::FREE && recorder_is_dead(session);
        // With a live recorder, the lock is not worth a wait.
        if !of_the_dead() {
            return Ok(None);
        }
        let taken = handle.allocator.exclusively(|| {
            of_the_dead().then(|| {
                let is_complete = is_complete(session);
                Self { index, window, since_ns: register_recorder(session), is_complete }
            })
        });
        taken.map_err(|error| memory_error(handle, 0, error))
    }

    /// Returns true if this process still owns the slot: another process may have taken a recorder
    /// that was stopped for long for dead.
    pub(crate) fn is_ours(&self) -> bool {
        let session = self.session();
        session.recorder_pid.load(Ordering::Relaxed) == std::process::id()
            && session.recorder_since_ns.load(Ordering::Relaxed) == self.since_ns
    }

    /// Fills in the slot's session. Writers ignore the session until it is activated.
    pub(crate) fn fill_session(
        &self,
        handle: &WindowHandle,
        of: &SessionSettings,
        settings: &ChannelSettings,
        class: u32,
        cpus: u32,
    ) -> Result<SessionLayout, RecordError> {
        let session = self.session();
        let fail = |bytes| move |error| memory_error(handle, bytes, error);
        rseq_self_test::run(&self.window);
        clear_bits(&self.window, self.index);
        let no_writer_of_before = cpus::visit_all();
        if no_writer_of_before {
            // This is memory that an earlier recorder could not give back.
            let owner = granule::DATA + self.index as u8;
            handle.allocator.give_back(owner).map_err(fail(0))?;
        }
        let flags = self.flags(of, settings);
        let bytes = SessionLayout::control_bytes(cpus, flags);
        let old = session.control_offset.load(Ordering::Relaxed);
        let old_area = old..old.saturating_add(bytes);
        let control = if no_writer_of_before && is_control_area(handle, self.index, &old_area) {
            old
        } else {
            let owner = granule::CONTROL + self.index as u8;
            handle.allocator.take(bytes, owner).map_err(fail(bytes))?
        };
        session.control_offset.store(control, Ordering::Relaxed);
        self.fill_in(settings, cpus, flags);
        self.window.set_rules(self.index, settings.rules.as_bytes());
        self.set_processes(&settings.processes);
        self.write_identity(of, &settings.name, class);
        // If the layout were not as written, clearing it could clear another session's memory.
        let plan = buffer_plan_for(settings, flags);
        let is_as_written = |layout: &SessionLayout| {
            layout.control_area() == (control..control + bytes)
                && (layout.cpus, layout.flags) == (cpus, flags)
                && layout.geometry.sub_shift() == plan.sub_shift
                && layout.claim_geometry.sub_shift() == plan.claim_sub_shift
                && layout.geometry.sub_count() == 1 << plan.count_shift
        };
        let layout = SessionLayout::read_as_recorder(&self.window, self.index)
            .filter(is_as_written)
            .ok_or(RecordError::Lost("another program writes over the window"))?;
        layout.reset(&self.window);
        Ok(layout)
    }

    fn flags(&self, of: &SessionSettings, settings: &ChannelSettings) -> u32 {
        let mut flags = match settings.reserve {
            Reserve::Rseq => 0,
            Reserve::Claim => flag::CLAIM_ONLY,
            Reserve::Lockless => flag::LOCKLESS,
        };
        if settings.overwrite {
            flags |= flag::OVERWRITE;
        }
        if settings.paused {
            flags |= flag::PAUSED;
        }
        if of.token.is_some() {
            flags |= flag::TOKEN;
        }
        let is_broken =
            self.window.header().rseq_works.load(Ordering::Relaxed) == rseq_self_test::BROKEN;
        if is_broken && settings.reserve == Reserve::Rseq {
            flags |= flag::CLAIM_ONLY;
        }
        flags
    }

    /// Writes the configuration of the channel.
    fn fill_in(&self, settings: &ChannelSettings, cpus: u32, flags: u32) {
        let session = self.session();
        let plan = buffer_plan_for(settings, flags);
        for (word, value) in [
            (&session.flags, flags),
            (&session.contexts, settings.contexts.bits),
            (&session.cpus, cpus),
            (&session.sub_shift, plan.sub_shift),
            (&session.count_shift, plan.count_shift),
            (&session.claim_sub_shift, plan.claim_sub_shift),
            (&session.next_id, 0),
            (&session.processes, 0),
            (&session.departed, 0),
            (&session.cut_event, 0),
            (&session.successor, 0),
            (&session.snapshot_requests, 0),
            (&session.spare_cpus, 0),
            (&session.interpreters, 0),
            (&session.uid, crate::common::user::effective_uid()),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        let applications = settings.contexts.applications.join("\n");
        write_text(&session.applications, &session.applications_bytes, applications.as_bytes());
        session.records_cut.store(0, Ordering::Relaxed);
        session.filters.store(0, Ordering::Relaxed);
        session.blocking_ns.store(settings.blocking_ns, Ordering::Relaxed);
        let realtime = trackway_sys::clock::realtime_ns();
        let offset = realtime.wrapping_sub(trackway_sys::clock::monotonic_ns());
        session.realtime_offset_ns.store(offset, Ordering::Relaxed);
    }

    /// Sets the process rules; all processes decide again whether they take part.
    pub(crate) fn set_processes(&self, rules: &str) {
        let session = self.session();
        write_text(&session.process_rules, &session.process_rules_bytes, rules.as_bytes());
        raise_generation(session);
    }

    /// Begins a generation: all writers decide again. After a visit to every CPU, no writer commits
    /// by an older plan.
    pub(crate) fn begin_generation(&self) {
        raise_generation(self.session());
    }

    /// Sets the longest wait of programs that allow blocking, in ns.
    pub(crate) fn set_blocking(&self, time_ns: u64) {
        self.session().blocking_ns.store(time_ns, Ordering::Relaxed);
    }

    /// Sets the rules of recorded events: first the rules, then the enable bit of each registered
    /// event.
    pub(crate) fn set_rules(&self, layout: &SessionLayout, rules: &str) {
        self.window.set_rules(self.index, rules.as_bytes());
        enable_selected(&self.window, layout);
    }

    /// Hands all later records over to the slot of `heir`, which is active and has no rules yet.
    /// `trackway_window`'s `rules` explains the order.
    pub(crate) fn hand_over_to(&self, heir: &SessionLayout) {
        // ORDERING: SeqCst: from here on no process sets this slot's bit; only then are events
        // moved.
        self.session().successor.store(heir.index as u32 + 1, Ordering::SeqCst);
        for event in 0..EVENTS_MAX {
            self.window.move_event(event, self.index, heir);
        }
    }

    /// Writes the session's identity and the path of its trace.
    fn write_identity(&self, of: &SessionSettings, channel: &str, class: u32) {
        let session = self.session();
        session.token.store(of.token.unwrap_or(0), Ordering::Relaxed);
        for (word, half) in session.trace_uuid.iter().zip(of.uuid.chunks_exact(8)) {
            word.store(u64::from_le_bytes(half.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        write_text(&session.path, &session.path_bytes, of.path.as_os_str().as_bytes());
        write_text(&session.name, &session.name_bytes, of.name.as_bytes());
        write_text(&session.channel, &session.channel_bytes, channel.as_bytes());
        session.stream_class.store(class, Ordering::Relaxed);
    }

    /// Admits writers, and enables the registered events.
    pub(crate) fn activate(&self, layout: &SessionLayout) {
        let session = self.session();
        sandboxes::mark_sandboxed_processes(&self.window);
        renew_lease(session);
        // ORDERING: SeqCst, the recorder's half of the Dekker pair that
        // `trackway_window::events::fill_event` explains: first ACTIVE, then the search for events.
        session.state.store(state::ACTIVE, Ordering::SeqCst);
        // The generation follows the state: writers that decided earlier decided not to take part.
        raise_generation(session);
        fence(Ordering::SeqCst);
        enable_selected(&self.window, layout);
    }

    /// Excludes writers permanently: clears the enable bits and raises the generation. After a
    /// visit to every CPU, no earlier sequence is alive.
    pub(crate) fn close(&self) {
        let session = self.session();
        // ORDERING: SeqCst: the state before the generation, so that no process decides again to
        // take part.
        session.state.store(state::ENDING, Ordering::SeqCst);
        raise_generation(session);
        clear_bits(&self.window, self.index);
    }

    /// Closes the slot like [`Self::close`], and visits the CPUs. Returns true if no earlier
    /// sequence can be alive.
    pub(crate) fn deactivate(&self) -> bool {
        self.close();
        let complete = cpus::visit_all();
        clear_bits(&self.window, self.index);
        complete
    }

    /// Clears the enable bits of a slot that is being built and has never admitted writers, and
    /// visits the CPUs. Returns true if no earlier sequence can be alive.
    ///
    /// Keeps the session's state. The session must not appear as if it had admitted writers: its
    /// progress is still that of the slot's earlier session, and recovery would drain those records
    /// again.
    pub(crate) fn deactivate_unbuilt(&self) -> bool {
        let complete = cpus::visit_all();
        clear_bits(&self.window, self.index);
        complete
    }

    /// Excludes writers until [`Self::resume`].
    pub(crate) fn pause(&self) {
        let session = self.session();
        // ORDERING: SeqCst: the flag before the generation, so that no process decides again to
        // take part.
        session.flags.fetch_or(flag::PAUSED, Ordering::SeqCst);
        raise_generation(session);
        clear_bits(&self.window, self.index);
    }

    /// Admits writers again.
    pub(crate) fn resume(&self, layout: &SessionLayout) {
        let session = self.session();
        sandboxes::mark_sandboxed_processes(&self.window);
        // ORDERING: SeqCst, as in `activate`.
        session.flags.fetch_and(!flag::PAUSED, Ordering::SeqCst);
        raise_generation(session);
        fence(Ordering::SeqCst);
        enable_selected(&self.window, layout);
    }

    /// Frees the slot. Gives its memory back if no earlier writer can access it.
    pub(crate) fn free(
        &self,
        handle: &WindowHandle,
        no_writer_of_before: bool,
    ) -> Result<(), RecordError> {
        if no_writer_of_before {
            handle
                .allocator
                .give_back(granule::DATA + self.index as u8)
                .map_err(|error| memory_error(handle, 0, error))?;
        }
        let session = self.session();
        // A writer may have used the slot until now.
        let now = trackway_sys::clock::monotonic_ns();
        session.lease_until_ns.store(now, Ordering::Relaxed);
        // ORDERING: Release: the next owner of the slot finds its memory given back.
        session.state.store(state::FREE, Ordering::Release);
        Ok(())
    }

    /// Leaves the session to recovery.
    pub(crate) fn abandon(&self) {
        self.session().recorder_pid.store(0, Ordering::Relaxed);
        self.session().lease_until_ns.store(0, Ordering::Relaxed);
    }

    /// Leaves the session to recovery, which must only free the memory once no process can write
    /// there any more.
    pub(crate) fn abandon_complete(&self) {
        self.session().recorder_since_ns.store(COMPLETE_MARKER, Ordering::Relaxed);
        self.abandon();
    }

    /// Frees the slot of a session without draining it, after writers were excluded. Keeps the slot
    /// if a claimer that may be alive may write into its memory.
    pub(crate) fn free_undrained(
        &self,
        handle: &WindowHandle,
        layout: &SessionLayout,
        no_sequence: bool,
    ) -> Result<(), RecordError> {
        let is_free = |region: &trackway_ring::Region<'static>| {
            // ORDERING: SeqCst, as in `Channel::free_claims_of_the_dead`.
            let owner = region.control.owner.load(Ordering::SeqCst);
            owner == 0
                || region.control.drained().position == NOT_OF_SESSION
                || self.window.owner_is_dead(Owner::from_word(owner))
                    && Claim::free_dead(*region, owner)
        };
        let regions = list_regions(&self.window, layout);
        let buffers = (0..layout.cpus).filter_map(|cpu| layout.lockless(&self.window, cpu));
        let freed = if regions.iter().all(|(region, ..)| is_free(region))
            && has_no_reservation(&self.window, buffers)
        {
            self.free(handle, no_sequence)
        } else {
            self.abandon_complete();
            return Ok(());
        };
        freed.inspect_err(|_| self.abandon_complete())
    }
}

/// Returns the slot to take next: among used slots, the one that has been free longest.
///
/// A thread that found a slot's bit may sleep before it reaches the slot. While the slot is free,
/// the thread finds its way to the successor. If another session has the slot by then, the thread
/// cannot detect that, and its record is lost or in the wrong session. So a recently freed slot
/// rests, and an unused slot is taken instead. But each slot that was ever used keeps its control
/// lines while the window exists (256 KiB up to 55 CPUs, 1.3 MiB for 256). So successive sessions
/// use one slot if a second lies in between, and otherwise take turns in a few slots.
fn find_longest_free(window: &Window, now: u64) -> Option<usize> {
    let is_free =
        |&index: &usize| window.session(index).state.load(Ordering::Relaxed) == state::FREE;
    let freed_at = |index: usize| window.session(index).lease_until_ns.load(Ordering::Relaxed);
    let (used, fresh): (Vec<usize>, Vec<usize>) = (0..SESSIONS_MAX)
        .filter(is_free)
        .partition(|&index| window.session(index).control_offset.load(Ordering::Relaxed) != 0);
    let oldest = used.iter().copied().min_by_key(|&index| freed_at(index));
    let may_be_taken = |&index: &usize| {
        used.len() >= RESTING_MAX || now.saturating_sub(freed_at(index)) >= REST_NS
    };
    oldest.filter(may_be_taken).or_else(|| fresh.first().copied()).or(oldest)
}

/// Returns true if no writer has reserved a slot in these lockless buffers of an ended session, nor
/// ever will.
pub(crate) fn has_no_reservation(
    window: &Window,
    buffers: impl Iterator<Item = Buffer<'static>>,
) -> bool {
    let held: Vec<_> = buffers.filter(|buffer| !buffer.retire()).collect();
    // A reservation does not name its writer: all of the user's processes must be known and dead.
    held.is_empty() || held.iter().all(Buffer::all_are_named) && window.sweep_processes() == 0
}

/// Returns the buffer sizes of a session with these flags, which may restrict the settings.
pub(crate) fn buffer_plan_for(settings: &ChannelSettings, flags: u32) -> BufferPlan {
    match flags & flag::CLAIM_ONLY {
        0 => settings.buffers,
        _ => settings.buffers.reserved_by(Reserve::Claim),
    }
}

/// Returns the error for memory that cannot be allocated or given back.
pub(crate) fn memory_error(handle: &WindowHandle, bytes: u64, error: AllocateError) -> RecordError {
    match error {
        AllocateError::Locked => RecordError::io("lock the window", &handle.path)(
            std::io::Error::other(error.to_string()),
        ),
        other => RecordError::Memory(bytes, handle.folder.clone(), other),
    }
}

/// Returns true if a session has nothing left to write: see [`Slot::abandon_complete`].
pub(crate) fn is_complete(session: &Session) -> bool {
    session.state.load(Ordering::Relaxed) == state::ENDING
        && session.recorder_pid.load(Ordering::Relaxed) == 0
        && session.recorder_since_ns.load(Ordering::Relaxed) == COMPLETE_MARKER
}

pub(crate) fn raise_generation(session: &Session) {
    let generation: &AtomicU64 = &session.generation;
    // ORDERING: SeqCst: pairs with writers' second check after they took a claim (Dekker), and
    // publishes the earlier stores.
    generation.fetch_add(1, Ordering::SeqCst);
    // ORDERING: later accesses follow the addition. Some processors do not order them by the
    // addition alone: an owner word or a lockless buffer's write count could be loaded before it
    // (the other side is the fence in the agent's `session_changed`), and later stores could be
    // visible before it (to `SessionLayout::copy`, whose Acquire fence is the other side).
    fence(Ordering::SeqCst);
}

/// Clears the slot's bit in the enable word of every event.
pub(crate) fn clear_bits(window: &Window, slot: usize) {
    for index in 0..EVENTS_MAX {
        let enabled = &window.event(index).enabled;
        if enabled.load(Ordering::Relaxed) >> slot & 1 != 0 {
            enabled.fetch_and(!(1 << slot), Ordering::Relaxed);
        }
    }
}

/// Enables every event in the window that the session's rules select.
pub(crate) fn enable_selected(window: &Window, layout: &SessionLayout) {
    for index in 0..EVENTS_MAX {
        let Some(bytes) = window.description(index) else { continue };
        // An event whose description cannot be decoded is not recorded.
        if EventDescription::decode(bytes.as_slice()).is_ok() {
            window.apply_rules(layout, index);
        }
    }
}

/// Returns true if this area belongs to the slot's control lines, of its present or an earlier
/// session.
pub(crate) fn is_control_area(handle: &WindowHandle, slot: usize, area: &Range<u64>) -> bool {
    area.start >= DATA_OFFSET as u64
        && area.start.is_multiple_of(GRANULE_BYTES)
        && area.end <= handle.window().usable_bytes()
        && area
            .clone()
            .step_by(GRANULE_BYTES as usize)
            .all(|at| handle.allocator.owner_at(at) == granule::CONTROL + slot as u8)
}

/// Returns every region of the session, with its CPU and writer path.
pub(crate) fn list_regions(
    window: &Window,
    layout: &SessionLayout,
) -> Vec<(trackway_ring::Region<'static>, u32, WriterPath)> {
    (0..layout.cpus)
        .flat_map(|cpu| WriterPath::ALL.map(|way| (layout.region(window, cpu, way), cpu, way)))
        .filter_map(|(region, cpu, way)| region.map(|region| (region, cpu, way)))
        .collect()
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn the_slot_that_has_been_free_longest_is_taken_and_others_rest() {
        let folder = TemporaryFolder::new_in(std::path::Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let window = handle.window();
        let session = |index: usize| window.session(index);
        let take = |now| find_longest_free(window, now);
        assert_eq!(take(0), Some(0), "of those that nobody has used the first");
        for (index, freed_at) in [(0, 30), (1, 10), (2, 20)] {
            session(index).control_offset.store(GRANULE_BYTES, Ordering::Relaxed);
            session(index).lease_until_ns.store(freed_at, Ordering::Relaxed);
        }
        assert_eq!(take(REST_NS + 5), Some(3), "all of them rest");
        assert_eq!(take(REST_NS + 10), Some(1));
        session(1).state.store(state::ACTIVE, Ordering::Relaxed);
        assert_eq!(take(REST_NS + 10), Some(3));
        assert_eq!(take(REST_NS + 20), Some(2));
        // A slot does not rest if no unused slot is left, or if too many slots rest.
        for index in 3..SESSIONS_MAX {
            session(index).state.store(state::ACTIVE, Ordering::Relaxed);
        }
        assert_eq!(take(40), Some(2));
        session(1).state.store(state::FREE, Ordering::Relaxed);
        for index in 3..SESSIONS_MAX {
            session(index).state.store(state::FREE, Ordering::Relaxed);
        }
        session(3).control_offset.store(GRANULE_BYTES, Ordering::Relaxed);
        session(3).lease_until_ns.store(40, Ordering::Relaxed);
        assert_eq!(take(50), Some(1));
        session(1).state.store(state::ACTIVE, Ordering::Relaxed);
        assert_eq!(take(50), Some(4));
        for index in 0..SESSIONS_MAX {
            session(index).state.store(state::ACTIVE, Ordering::Relaxed);
        }
        assert_eq!(take(u64::MAX), None);
    }

    #[test]
    fn a_slot_that_was_freed_rests_from_then_on() {
        let folder = TemporaryFolder::new_in(std::path::Path::new("/dev/shm"));
        let handle = WindowHandle::open_in(folder.path(), true).expect("a window");
        let first = Slot::take(&handle).expect("a slot");
        let session = first.session();
        session.control_offset.store(GRANULE_BYTES, Ordering::Relaxed);
        // One lease was renewed just now; the other is of a recorder that died long ago.
        for lease in [u64::MAX, 0] {
            session.lease_until_ns.store(lease, Ordering::Relaxed);
            let before = trackway_sys::clock::monotonic_ns();
            first.free(&handle, false).expect("free");
            let after = trackway_sys::clock::monotonic_ns();
            let freed_at = session.lease_until_ns.load(Ordering::Relaxed);
            assert!((before..=after).contains(&freed_at));
        }
    }
}
