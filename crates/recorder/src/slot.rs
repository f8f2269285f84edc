//! A session's slot in the window: taken, filled in, activated, ended, freed.
//!
//! The order of the steps is the argument. A session is FREE → BUILDING (writers look away) →
//! ACTIVE → ENDING → FREE; its generation is raised after each step that makes what writers
//! remember void; memory is used anew only after a visit to every CPU.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use trackway_abi::session::{PATH_BYTES_MAX, SESSIONS_MAX, Session, flag, state};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, GRANULE_BYTES, granule};
use trackway_ring::claim::Claim;
use trackway_ring::lockless::Buffer;
use trackway_schema::EventDescription;
use trackway_session::{BufferPlan, Reserve};
use trackway_sys::process::{Identity, Life, identity, life_of, pid_namespace};
use trackway_window::{AllocateError, NOT_OF_SESSION, Owner, SessionLayout, Way, Window};

use crate::{Home, RecordError, cpus, self_test};

/// How long a lease lasts, in ns.
pub(crate) const LEASE_NS: u64 = 5_000_000_000;

/// What a session is to be.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Sizes of its buffers.
    pub buffers: BufferPlan,
    /// Flight recorder.
    pub overwrite: bool,
    /// How writers get exclusive access.
    pub reserve: Reserve,
    /// Contexts of every record: bits of `trackway_abi::record::context`.
    pub contexts: u32,
    /// Event rules, as `trackway_schema::Rules` reads them.
    pub rules: String,
    /// Only for processes that hold this token.
    pub token: Option<u64>,
    /// Identity of the trace.
    pub uuid: [u8; 16],
    /// Trace folder, absolute.
    pub path: PathBuf,
}

/// A slot that is ours.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) index: usize,
    window: Window,
    since_ns: u64,
    /// It was taken over with nothing left to write, see [`Self::abandon_complete`].
    pub(crate) is_complete: bool,
}

/// Stands for the recorder's start in a session without recorder whose trace is complete, but
/// whose memory could not be freed yet.
const COMPLETE: u64 = u64::MAX;

impl Slot {
    /// The session.
    pub(crate) fn session(&self) -> &'static Session {
        self.window.session(self.index)
    }

    /// Takes a free slot.
    pub(crate) fn take(home: &Home) -> Result<Self, RecordError> {
        let window = *home.window();
        let taken = home.allocator.exclusively(|| {
            let index = (0..SESSIONS_MAX).find(|&index| {
                window.session(index).state.load(Ordering::Relaxed) == state::FREE
            })?;
            let session = window.session(index);
            let since_ns = sign(session);
            session.state.store(state::BUILDING, Ordering::SeqCst);
            raise_generation(session);
            Some(Self { index, window, since_ns, is_complete: false })
        });
        taken.map_err(|error| memory_error(home, 0, error))?.ok_or(RecordError::NoSlot)
    }

    /// Takes over the session of a recorder that is dead; `None` if there is none in the slot.
    pub(crate) fn take_over(home: &Home, index: usize) -> Result<Option<Self>, RecordError> {
        let window = *home.window();
        let session = window.session(index);
        let of_the_dead =
            || session.state.load(Ordering::Relaxed) != state::FREE && recorder_is_dead(session);
        // Nobody waits for the lock because of the living.
        if !of_the_dead() {
            return Ok(None);
        }
        let taken = home.allocator.exclusively(|| {
            of_the_dead().then(|| {
                let is_complete = session.state.load(Ordering::Relaxed) == state::ENDING
                    && session.recorder_pid.load(Ordering::Relaxed) == 0
                    && session.recorder_since_ns.load(Ordering::Relaxed) == COMPLETE;
                Self { index, window, since_ns: sign(session), is_complete }
            })
        });
        taken.map_err(|error| memory_error(home, 0, error))
    }

    /// Whether the slot is still ours: a recorder that was stopped for long may have been taken
    /// for dead.
    pub(crate) fn is_ours(&self) -> bool {
        let session = self.session();
        session.recorder_pid.load(Ordering::Relaxed) == std::process::id()
            && session.recorder_since_ns.load(Ordering::Relaxed) == self.since_ns
    }

    /// Fills the session in. Writers look away until it is activated.
    pub(crate) fn build(
        &self,
        home: &Home,
        settings: &SessionSettings,
        cpus: u32,
    ) -> Result<SessionLayout, RecordError> {
        let session = self.session();
        let fail = |bytes| move |error| memory_error(home, bytes, error);
        self_test::run(&self.window);
        clear_bits(&self.window, self.index);
        let no_writer_of_before = cpus::visit_all();
        if no_writer_of_before {
            // What a recorder before us could not give back.
            let owner = granule::DATA + self.index as u8;
            home.allocator.give_back(owner).map_err(fail(0))?;
        }
        let flags = self.flags(settings);
        let bytes = SessionLayout::control_bytes(cpus, flags);
        let old = session.control_offset.load(Ordering::Relaxed);
        let control = if no_writer_of_before && is_control_area(home, self.index, old, bytes) {
            old
        } else {
            let owner = granule::CONTROL + self.index as u8;
            home.allocator.take(bytes, owner).map_err(fail(bytes))?
        };
        session.control_offset.store(control, Ordering::Relaxed);
        self.fill_in(settings, cpus, flags);
        let layout = SessionLayout::read_as_recorder(&self.window, self.index)
            .ok_or(RecordError::Lost("another program writes over the window"))?;
        layout.reset(&self.window);
        Ok(layout)
    }

    fn flags(&self, settings: &SessionSettings) -> u32 {
        let mut flags = match settings.reserve {
            Reserve::Rseq => 0,
            Reserve::Claim => flag::CLAIM_ONLY,
            Reserve::Lockless => flag::LOCKLESS,
        };
        if settings.overwrite {
            flags |= flag::OVERWRITE;
        }
        if settings.token.is_some() {
            flags |= flag::TOKEN;
        }
        let is_broken =
            self.window.header().rseq_works.load(Ordering::Relaxed) == self_test::BROKEN;
        if is_broken && settings.reserve == Reserve::Rseq {
            flags |= flag::CLAIM_ONLY;
        }
        flags
    }

    fn fill_in(&self, settings: &SessionSettings, cpus: u32, flags: u32) {
        let session = self.session();
        let plan = plan(settings, flags);
        for (word, value) in [
            (&session.flags, flags),
            (&session.contexts, settings.contexts),
            (&session.cpus, cpus),
            (&session.sub_shift, plan.sub_shift),
            (&session.count_shift, plan.count_shift),
            (&session.claim_sub_shift, plan.claim_sub_shift),
            (&session.next_id, 0),
            (&session.processes, 0),
            (&session.departed, 0),
            (&session.cut_event, 0),
            (&session.uid, crate::home::user()),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        session.records_cut.store(0, Ordering::Relaxed);
        let realtime = trackway_sys::clock::realtime_ns();
        let offset = realtime.wrapping_sub(trackway_sys::clock::monotonic_ns());
        session.realtime_offset_ns.store(offset, Ordering::Relaxed);
        session.token.store(settings.token.unwrap_or(0), Ordering::Relaxed);
        for (word, half) in session.trace_uuid.iter().zip(settings.uuid.chunks_exact(8)) {
            word.store(u64::from_le_bytes(half.try_into().unwrap_or_default()), Ordering::Relaxed);
        }
        let put = |into: &[AtomicU8], bytes: &[u8]| {
            let length = bytes.len().min(into.len());
            for (place, byte) in into.iter().zip(bytes) {
                place.store(*byte, Ordering::Relaxed);
            }
            length as u32
        };
        let rules_bytes = put(&session.rules, settings.rules.as_bytes());
        session.rules_bytes.store(rules_bytes, Ordering::Relaxed);
        let path_bytes = put(&session.path, settings.path.as_os_str().as_bytes());
        session.path_bytes.store(path_bytes, Ordering::Relaxed);
    }

    /// Lets writers in, and enables what is known already.
    pub(crate) fn activate(&self, layout: &SessionLayout) {
        let session = self.session();
        renew_lease(session);
        // ORDERING: SeqCst, the recorder's half of the Dekker pair that
        // `trackway_window::events::fill_event` explains: first ACTIVE, then look for events.
        session.state.store(state::ACTIVE, Ordering::SeqCst);
        // After the state: who decided before it, decided not to take part.
        raise_generation(session);
        fence(Ordering::SeqCst);
        enable_selected(&self.window, layout);
    }

    /// Keeps writers out: clears the bits, raises the generation, visits every CPU, and waits a
    /// moment for claims. Whether no sequence of before can be alive.
    pub(crate) fn deactivate(&self) -> bool {
        let session = self.session();
        // ORDERING: SeqCst: the state before the generation, so that nobody decides anew to take
        // part.
        session.state.store(state::ENDING, Ordering::SeqCst);
        raise_generation(session);
        clear_bits(&self.window, self.index);
        let complete = cpus::visit_all();
        clear_bits(&self.window, self.index);
        complete
    }

    /// Frees the slot. Its memory is given back if no writer can be at it.
    pub(crate) fn free(&self, home: &Home, no_writer_of_before: bool) -> Result<(), RecordError> {
        if no_writer_of_before {
            home.allocator
                .give_back(granule::DATA + self.index as u8)
                .map_err(|error| memory_error(home, 0, error))?;
        }
        // ORDERING: Release: whoever takes the slot sees its memory given back.
        self.session().state.store(state::FREE, Ordering::Release);
        Ok(())
    }

    /// Leaves the session to whoever recovers it.
    pub(crate) fn abandon(&self) {
        self.session().recorder_pid.store(0, Ordering::Relaxed);
        self.session().lease_until_ns.store(0, Ordering::Relaxed);
    }

    /// As [`Self::abandon`], where nothing is left to do but to free the memory, once nobody can
    /// write there any more.
    pub(crate) fn abandon_complete(&self) {
        self.session().recorder_since_ns.store(COMPLETE, Ordering::Relaxed);
        self.abandon();
    }

    /// Frees the slot of a session that nobody drains any more, unless a claimer that is not
    /// proved dead may write into its memory. Writers were kept out before.
    pub(crate) fn discard(
        &self,
        home: &Home,
        layout: &SessionLayout,
        no_sequence: bool,
    ) -> Result<(), RecordError> {
        let is_free = |region: &trackway_ring::Region<'static>| {
            // ORDERING: SeqCst, as in `Recording::free_claims_of_the_dead`.
            let owner = region.control.owner.load(Ordering::SeqCst);
            owner == 0
                || region.control.drained().position == NOT_OF_SESSION
                || self.window.owner_is_dead(Owner::from_word(owner))
                    && Claim::free_dead(*region, owner)
        };
        let regions = regions(&self.window, layout);
        let buffers = (0..layout.cpus).filter_map(|cpu| layout.lockless(&self.window, cpu));
        let freed = if regions.iter().all(|(region, ..)| is_free(region))
            && nobody_has_a_slot(&self.window, buffers)
        {
            self.free(home, no_sequence)
        } else {
            self.abandon_complete();
            return Ok(());
        };
        freed.inspect_err(|_| self.abandon_complete())
    }
}

/// Whether nobody has a slot in these lockless buffers of a session that ended, nor ever will.
pub(crate) fn nobody_has_a_slot(
    window: &Window,
    buffers: impl Iterator<Item = Buffer<'static>>,
) -> bool {
    let held: Vec<_> = buffers.filter(|buffer| !buffer.retire()).collect();
    // A slot does not say whose it is: the user's processes must be known, and dead, all of them.
    held.is_empty() || held.iter().all(Buffer::all_are_named) && window.sweep_processes() == 0
}

/// The sizes of a session with these flags: they may say less than the settings asked for.
pub(crate) fn plan(settings: &SessionSettings, flags: u32) -> BufferPlan {
    match flags & flag::CLAIM_ONLY {
        0 => settings.buffers,
        _ => settings.buffers.reserved_by(Reserve::Claim),
    }
}

/// What to say when memory cannot be had or given back.
pub(crate) fn memory_error(home: &Home, bytes: u64, error: AllocateError) -> RecordError {
    match error {
        AllocateError::Locked => {
            RecordError::io("lock the window", &home.path)(std::io::Error::other(error.to_string()))
        }
        other => RecordError::Memory(bytes, home.folder.clone(), other),
    }
}

/// Enters this process as the session's recorder; the moment at which it did.
fn sign(session: &Session) -> u64 {
    let who = identity();
    session.recorder_pid.store(who.pid, Ordering::Relaxed);
    session.recorder_pid_namespace.store(who.pid_namespace, Ordering::Relaxed);
    session.recorder_since_ns.store(who.since_ns, Ordering::Relaxed);
    renew_lease(session);
    who.since_ns
}

/// Says that the recorder is alive; whether the lease had run out meanwhile.
pub(crate) fn renew_lease(session: &Session) -> bool {
    let now = trackway_sys::clock::monotonic_ns();
    // ORDERING: SeqCst: first the lease, then (by whoever asked) the bits; a writer that clears a
    // bit looks at the lease afterwards.
    session.lease_until_ns.swap(now + LEASE_NS, Ordering::SeqCst) < now
}

/// Whether the recorder of a session that is not free is dead. A recorder that is merely stopped
/// is not; of one in another pid namespace only the lease can tell.
fn recorder_is_dead(session: &Session) -> bool {
    let who = Identity {
        image: 0,
        pid: session.recorder_pid.load(Ordering::Relaxed),
        pid_namespace: session.recorder_pid_namespace.load(Ordering::Relaxed),
        since_ns: session.recorder_since_ns.load(Ordering::Relaxed),
    };
    let lease = session.lease_until_ns.load(Ordering::Relaxed);
    match life_of(&who, 0) {
        _ if who.pid == 0 => true,
        Life::Dead => true,
        Life::Alive => false,
        // It may live where we cannot look: then its lease is all there is. If the system merely
        // refuses to tell (no descriptor is left), it is not dead.
        Life::Unknown => {
            let here = pid_namespace();
            let elsewhere = who.pid_namespace == 0 || here != 0 && here != who.pid_namespace;
            elsewhere && lease < trackway_sys::clock::monotonic_ns()
        }
    }
}

fn raise_generation(session: &Session) {
    let generation: &AtomicU64 = &session.generation;
    // ORDERING: SeqCst: pairs with writers' second look after they took a claim (Dekker), and
    // publishes what was stored before.
    generation.fetch_add(1, Ordering::SeqCst);
    // ORDERING: what follows comes after it. On processors where an addition does not order that
    // by itself, an owner word or a lockless buffer's write count could else be looked at before it
    // (the other side is the fence in the agent's `session_changed`), and what is filled in could
    // be seen before it (by `SessionLayout::copy`, whose Acquire fence is the other side).
    fence(Ordering::SeqCst);
}

fn clear_bits(window: &Window, slot: usize) {
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
        let Ok(event) = EventDescription::decode(bytes.as_slice()) else { continue };
        let (provider, name) = (event.provider.as_bytes(), event.name.as_bytes());
        window.enable_if_selected(layout, index, provider, name);
    }
}

/// Whether `bytes` bytes at `offset` are control lines of the slot, from an earlier life.
fn is_control_area(home: &Home, slot: usize, offset: u64, bytes: u64) -> bool {
    let Some(end) = offset.checked_add(bytes) else { return false };
    offset >= DATA_OFFSET as u64
        && offset.is_multiple_of(GRANULE_BYTES)
        && end <= home.window().usable_bytes()
        && (offset..end)
            .step_by(GRANULE_BYTES as usize)
            .all(|at| home.allocator.owner_at(at) == granule::CONTROL + slot as u8)
}

/// Every region of the session, with its CPU and way.
pub(crate) fn regions(
    window: &Window,
    layout: &SessionLayout,
) -> Vec<(trackway_ring::Region<'static>, u32, Way)> {
    (0..layout.cpus)
        .flat_map(|cpu| Way::ALL.map(|way| (layout.region(window, cpu, way), cpu, way)))
        .filter_map(|(region, cpu, way)| region.map(|region| (region, cpu, way)))
        .collect()
}

/// The session's trace folder, as it stands in the window.
pub(crate) fn path_of(session: &Session) -> PathBuf {
    let bytes = copy(&session.path, session.path_bytes.load(Ordering::Relaxed), PATH_BYTES_MAX);
    PathBuf::from(OsString::from_vec(bytes))
}

fn copy(from: &[AtomicU8], length: u32, most: usize) -> Vec<u8> {
    let length = (length as usize).min(most).min(from.len());
    from[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}
