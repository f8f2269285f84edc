//! What is not ordinary: a first event, a new generation, a full sub-buffer, a stale clock, a
//! thread that cannot use restartable sequences.
//!
//! Everything here may also run in a signal handler that interrupted itself here. A record that
//! comes in is either committed or counted, unless the session is not for this process.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use trackway_abi::record::context::{APPLICATIONS, PROCNAME};
use trackway_abi::record::{CUT, EXTENDED_BYTES, ORDINARY_BYTES_MAX, TAILROOM_BYTES};
use trackway_abi::region::{CLAIM_REGIONS_PER_CPU, SUB_HEADER_BYTES};
use trackway_abi::session::{SESSIONS_MAX, flag, state};
use trackway_ring::lockless::{Lost, Store};
use trackway_ring::rseq::{AVAILABLE, Area, Bytes, Gate, commit};
use trackway_ring::{Discard, Geometry, Plan, Refusal, Region, write_header};
use trackway_sys::Errno;
use trackway_window::{
    MappedMemory, Owner, ProcessSlot, SessionLayout, SlotMemory, Way, Window, lease_is_over,
};

use crate::abi::Event;
use crate::ask;
use crate::blocking::Patience;
use crate::decision::PROCESS;
use crate::filters::{self, NOT_JUDGED, Verdict};
use crate::fork_child::settled_stamp;
use crate::holder::{Footprint, Holder};
use crate::home::{Home, generation_of};
use crate::thread::Identity;
use crate::{application, claims, context, known, now, thread};

/// How often a sequence may be restarted before the record goes another way (a debugger that
/// steps through it, a storm of signals).
const RESTARTS_MAX: usize = 16;
/// How many claim regions a writer tries before it counts the record as discarded: its own CPU's
/// and three neighbours'.
const CLAIMS_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// How many claim regions of CPUs that have memory from the start it tries after them.
const SPARES_MAX: usize = 4 * CLAIM_REGIONS_PER_CPU;
/// How far a record follows sessions that were replaced while it was on its way: as far as there
/// are slots, because a thread that is stopped may come back any number of replacements later.
const SUCCESSORS_MAX: usize = SESSIONS_MAX;

/// One record on its way.
struct Record<'a> {
    home: &'a Home,
    window: &'a Window,
    layout: &'a SessionLayout,
    event: usize,
    id: u32,
    thread: &'a Identity,
    /// The process stamp under which it is recorded.
    stamp: u64,
    /// Contexts and payload; header room lies before.
    body: *mut u8,
    body_bytes: usize,
    /// Whether a field was cut to fit.
    cut: bool,
}

/// What became of an attempt.
enum Outcome {
    /// Committed.
    Done,
    /// There is no room, now.
    Full,
    /// Likewise, and counted where the buffer is.
    Lost,
    /// No sub-buffer can hold it.
    Oversized,
    /// It cannot be recorded, however long it waits.
    Hopeless,
    /// Try another way.
    Busy,
    /// The session changed under it: decide anew.
    Stale,
}

/// Records in session `index` by whatever way works, or counts the record as discarded. `named` are
/// all sessions that the site found in the word, which see to themselves. `judged` is the
/// generation in which the session's filters have let the event pass already. False if the word is
/// not one of the window that the process is in: then nothing was done.
///
/// # Safety
/// As [`crate::record::emit`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn record(
    index: usize,
    (named, enabled): (u32, *const AtomicU32),
    payload: *mut u8,
    size: usize,
    judged: u64,
) -> bool {
    // If the process leaves that home from here on, all that is read there is zero, and no session.
    let Some((home, _, event)) = Home::of(enabled) else { return false };
    if !PROCESS.lives_in(home) {
        return false;
    }
    // A fork child's first event may open files in /proc, and fail to.
    let errno = Errno::last();
    let (mut slot, mut judged) = (index, judged);
    for _ in 0..SUCCESSORS_MAX {
        // SAFETY: the caller's promise is the same.
        if unsafe { record_somehow(slot, home, event, (payload, size), judged) } {
            break;
        }
        let heir = home.window().and_then(|window| heir_of(&window, slot, event, named));
        let Some(heir) = heir else { break };
        (slot, judged) = (heir, NOT_JUDGED);
    }
    errno.set();
    true
}

/// The session that takes what was on its way to the one in `slot`, which is over: the next of its
/// successors that has the event enabled now. `None` if it is one of `named`, lest the event be
/// recorded there twice.
fn heir_of(window: &Window, of: usize, event: usize, named: u32) -> Option<usize> {
    let mut slot = of;
    for _ in 0..SUCCESSORS_MAX {
        slot = window.session(slot).successor.load(Ordering::Relaxed).checked_sub(1)? as usize;
        if slot >= SESSIONS_MAX || !is_of_one_trace(window, slot, of) {
            // No recorder wrote that; or it was killed while it replaced the channel, and another
            // session has the slot by now.
            return None;
        }
        let bit = 1 << slot;
        // ORDERING: Acquire pairs with the recorder that moved the bit: the id was there before.
        if window.event(event).enabled.load(Ordering::Acquire) & bit != 0 {
            return (named & bit == 0).then_some(slot);
        }
    }
    None
}

/// Whether two slots are channels of one session.
fn is_of_one_trace(window: &Window, one: usize, other: usize) -> bool {
    let uuid = |slot: usize| {
        window.session(slot).trace_uuid.each_ref().map(|half| half.load(Ordering::Relaxed))
    };
    uuid(one) == uuid(other)
}

/// Records an event whose word is none of the process's window, if it is not on its way there for
/// nothing: aims it at its word there first.
///
/// # Safety
/// As [`crate::record::emit`]; the event's word was `enabled`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn follow(
    session: usize,
    event: *mut Event,
    enabled: *const AtomicU32,
    payload: *mut u8,
    size: usize,
) {
    // Not who has recorded in lower sessions of the window that the process has just left.
    if session != known::FOLLOW.trailing_zeros() as usize {
        return;
    }
    let Some(word) = known::follow(enabled) else { return };
    // SAFETY: the caller's event, as in `emit`.
    let place =
        unsafe { AtomicPtr::from_ptr((&raw mut (*event).enabled).cast::<*mut AtomicU32>()) };
    let aim = core::ptr::from_ref(word).cast_mut();
    // Only in the place of what we looked up: another thread may have been here in a later window.
    // ORDERING: SeqCst, as in `register_event`.
    let _ = place.compare_exchange(enabled.cast_mut(), aim, Ordering::SeqCst, Ordering::Relaxed);
    let named = word.load(Ordering::Relaxed);
    let mut sessions = named;
    while sessions != 0 {
        let session = sessions.trailing_zeros() as usize;
        // If it has moved again: what is emitted while a process moves is nobody's.
        // SAFETY: the caller's payload.
        if !unsafe { record(session, (named, word), payload, size, NOT_JUDGED) } {
            return;
        }
        sessions &= sessions - 1;
    }
}

/// False if the session is over, and nothing was done.
///
/// # Safety
/// As [`crate::record::emit`].
unsafe fn record_somehow(
    index: usize,
    home: &'static Home,
    event: usize,
    (payload, size): (*mut u8, usize),
    mut judged: u64,
) -> bool {
    let Some(window) = &home.window() else { return true };
    let stamp = settled_stamp();
    let session = window.session(index);
    // ORDERING: Acquire pairs with the recorder's Release of a generation.
    let generation = session.generation.load(Ordering::Acquire);
    let is_over = || session.state.load(Ordering::Relaxed) != state::ACTIVE;
    if PROCESS.decisions[index].known(window, generation) == Some(false) {
        return !is_over();
    }
    // A generation may change between decision and commit; more than a few times in a row would
    // be a recorder gone mad.
    const DECISIONS_MAX: usize = 64;
    let mut layout = None;
    let mut patience = None;
    for _ in 0..DECISIONS_MAX {
        let Some(decided) = ask::decide(home, index) else {
            // ORDERING: Acquire, as above.
            let generation = session.generation.load(Ordering::Acquire);
            let known = PROCESS.decisions[index].known(window, generation);
            if known == Some(false) || is_over() {
                return !is_over();
            }
            continue; // the generation was raised in the middle
        };
        let layout: &SessionLayout = layout.insert(decided);
        let thread = thread::identify(stamp, layout.contexts & PROCNAME != 0);
        // ORDERING: Acquire pairs with the Release in `enable_if_selected`.
        let Some(id) = layout.id(window, event).load(Ordering::Acquire).checked_sub(1) else {
            return true;
        };
        if layout.flags & flag::FILTERED != 0 && judged != layout.generation {
            let (which, staged) = ((index, layout.generation), (payload, size & !CUT));
            // SAFETY: the caller's payload.
            match unsafe { filters::judge_slowly(home, which, event, staged, stamp) } {
                // Once for a generation: what filters remember counts events.
                Verdict::Passes => judged = layout.generation,
                Verdict::Fails => return true,
                Verdict::Lost => break,
                Verdict::Stale => continue,
            }
        }
        let mut cut = size & CUT != 0;
        let mut applied_bytes = 0;
        if layout.contexts & APPLICATIONS != 0 {
            // SAFETY: the payload's headroom is ours.
            let Some((bytes, is_cut)) = (unsafe { apply(window, layout, payload, size & !CUT) })
            else {
                continue;
            };
            (applied_bytes, cut) = (bytes, cut || is_cut);
        }
        let pid = PROCESS.pid_for(&thread);
        // SAFETY: the payload's headroom is ours; the name has as many bytes.
        let context_bytes = applied_bytes
            + unsafe {
                let end = payload.wrapping_sub(applied_bytes);
                context::write(end, layout.contexts, pid, thread.tid, thread.name.as_ptr())
            };
        let record = Record {
            home,
            window,
            layout,
            event,
            id,
            thread: &thread,
            stamp,
            body: payload.wrapping_sub(context_bytes),
            body_bytes: context_bytes + (size & !CUT),
            cut,
        };
        if record.record(&mut patience) {
            return true;
        }
    }
    if let Some(layout) = &layout {
        discard(window, layout, event, trackway_sys::thread::cpu(), Discard::Other);
    }
    true
}

/// Writes applications' contexts before a payload of that size: how many bytes, and whether any was
/// cut. `None` if the session has changed.
///
/// # Safety
/// The payload's headroom is the caller's.
#[inline(never)] // as the others, for the stack of who records without
unsafe fn apply(
    window: &Window,
    layout: &SessionLayout,
    payload: *mut u8,
    size: usize,
) -> Option<(usize, bool)> {
    let wanted = application::look_up(window, layout.index, layout.generation)?;
    // SAFETY: the caller's promise.
    let (bytes, is_cut) = unsafe { wanted.write(payload, true) };
    if bytes + ORDINARY_BYTES_MAX + size <= layout.geometry.record_bytes_max() {
        return Some((bytes, is_cut));
    }
    // The longest payloads leave no room for values.
    // SAFETY: likewise.
    let (bytes, is_cut_too) = unsafe { wanted.write(payload, false) };
    Some((bytes, is_cut || is_cut_too))
}

/// Counts a record that could not be recorded.
fn discard(window: &Window, layout: &SessionLayout, event: usize, cpu: u32, why: Discard) {
    if let Some(region) = region_of_losses(window, layout, cpu) {
        region.control.count_discarded(why);
    }
    layout.discards(window, event).fetch_add(1, Ordering::Relaxed);
}

/// Where losses on this CPU are counted.
fn region_of_losses(window: &Window, layout: &SessionLayout, cpu: u32) -> Option<Region<'static>> {
    let cpu = if cpu < layout.cpus { cpu } else { 0 };
    // Where more memory would help: in the region that this thread goes to first.
    let has_sequences = AVAILABLE && !trackway_sys::thread::rseq_area().is_null();
    let is_claimed = layout.flags & flag::CLAIM_ONLY != 0 || !has_sequences;
    let way = if is_claimed { Way::Claim(0) } else { Way::Sequence };
    layout.region(window, cpu, way)
}

impl Record<'_> {
    /// Commits or discards; false if the session changed meanwhile.
    fn record(&self, patience: &mut Option<Patience>) -> bool {
        let session = self.window.session(self.layout.index);
        loop {
            let cpu = trackway_sys::thread::cpu();
            let outcome = self.attempt(cpu);
            // Lockless buffers count what they refuse, so there nobody asks twice.
            let waits = matches!(outcome, Outcome::Full)
                && patience.get_or_insert_with(|| Patience::of(session)).wait(session);
            if !waits {
                return self.end(cpu, outcome);
            }
            if self.session_changed() {
                return false;
            }
        }
    }

    /// Whether sub-buffers of that size have room for it.
    fn fits(&self, geometry: Geometry) -> bool {
        self.body_bytes + EXTENDED_BYTES <= geometry.record_bytes_max()
    }

    fn attempt(&self, cpu: u32) -> Outcome {
        let (fits, fits_claim) =
            (self.fits(self.layout.geometry), self.fits(self.layout.claim_geometry));
        if !fits {
            return Outcome::Oversized;
        }
        if self.layout.flags & flag::LOCKLESS != 0 {
            return self.by_lockless(cpu);
        }
        match self.by_sequence() {
            Outcome::Busy if fits_claim => self.by_claim(cpu),
            Outcome::Busy => Outcome::Hopeless,
            outcome => outcome,
        }
    }

    /// Counts what came of it; false if the session changed meanwhile.
    #[inline(never)]
    fn end(&self, cpu: u32, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Done => {
                if self.cut {
                    self.count_cut();
                }
                true
            }
            Outcome::Stale => false,
            Outcome::Lost => {
                self.layout.discards(self.window, self.event).fetch_add(1, Ordering::Relaxed);
                self.look_at_lease(trackway_sys::clock::monotonic_ns());
                true
            }
            Outcome::Full | Outcome::Oversized | Outcome::Hopeless | Outcome::Busy => {
                // What is counted in a session that has ended meanwhile perhaps nobody sees, and
                // its successor may have room. (Who sleeps behind this look counts in vain, or in
                // the next session of that slot.)
                if self.session_changed() {
                    return false;
                }
                let why = match outcome {
                    Outcome::Full | Outcome::Hopeless if self.lacks_memory() => Discard::Unmapped,
                    Outcome::Full => Discard::Full,
                    _ => Discard::Other,
                };
                discard(self.window, self.layout, self.event, cpu, why);
                if let Outcome::Oversized = outcome {
                    self.note_oversized(cpu);
                }
                self.look_at_lease(trackway_sys::clock::monotonic_ns());
                true
            }
        }
    }

    /// Whether the process has not mapped all memory of the window, and cannot.
    fn lacks_memory(&self) -> bool {
        // In this order: what is backed meanwhile is mapped by the second look.
        let backed = self.window.backed_bytes();
        backed.is_some_and(|backed| backed > self.home.usable_bytes())
    }

    #[inline(never)] // as the others, for the stack of those that do not come here
    fn note_oversized(&self, cpu: u32) {
        if let Some(region) = region_of_losses(self.window, self.layout, cpu) {
            region.control.note_oversized(self.body_bytes + EXTENDED_BYTES);
        }
    }

    #[inline(never)]
    fn by_sequence(&self) -> Outcome {
        let pointer = trackway_sys::thread::rseq_area();
        let unusable = !AVAILABLE
            || pointer.is_null()
            || self.thread.in_vfork_child
            || self.layout.flags & flag::CLAIM_ONLY != 0;
        if unusable {
            return Outcome::Busy;
        }
        // SAFETY: glibc registered this thread's area, and this is no vfork child.
        let area = unsafe { Area::new(pointer) };
        let gate = Gate {
            generation: generation_of(self.window.base(), self.layout.index),
            expected: self.layout.generation,
        };
        for _ in 0..RESTARTS_MAX {
            let Some(cpu) = area.cpu() else { return Outcome::Busy };
            let Some(region) = self.layout.region(self.window, cpu, Way::Sequence) else {
                return Outcome::Busy;
            };
            // The recorder has given it nothing yet, or has taken it back.
            if region.has_no_memory() {
                ask_for_memory(region);
                return Outcome::Busy;
            }
            let commit = |plan: &Plan, source: *const u8, count: usize| {
                let target = self.window.base().wrapping_add(plan.at as usize);
                // SAFETY: `step` bounded the plan's place; sources have words to spare.
                unsafe { commit(area, cpu, &gate, region, plan, Bytes { target, source, count }) }
            };
            match self.step(region, commit) {
                Step::Recorded => return Outcome::Done,
                Step::Refused => return Outcome::Full,
                Step::Switched | Step::Aborted => {}
            }
            if self.session_changed() {
                return Outcome::Stale;
            }
        }
        Outcome::Busy
    }

    /// By the paper's reserve and commit: see `trackway_ring::lockless`.
    #[inline(never)]
    fn by_lockless(&self, cpu: u32) -> Outcome {
        let cpu = if cpu < self.layout.cpus { cpu } else { 0 };
        let Some(buffer) = self.layout.lockless(self.window, cpu) else { return Outcome::Hopeless };
        // A process with a limit on its address space may not have mapped all: which sub-buffer a
        // slot will be in is known only when it is too late.
        let usable = self.home.usable_bytes();
        // SAFETY: so much is mapped and backed.
        let memory = unsafe { SlotMemory::new(self.window.base(), usable) };
        if buffer.memory_end() > memory.end() {
            return Outcome::Hopeless;
        }
        let clock = &self.window.session(self.layout.index).clock;
        let epoch = clock.epoch.load(Ordering::Relaxed);
        if !PROCESS.is_named(self.home, self.thread) {
            buffer.note_unnamed();
        }
        let now = || now::in_order(clock);
        let generation = &self.window.session(self.layout.index).generation;
        // Behind write count, which is loaded by Acquire; see `Buffer::retire`.
        let goes_on = || generation.load(Ordering::Relaxed) == self.layout.generation;
        let slot = match buffer.reserve(&memory, now, goes_on, (self.id, self.body_bytes, epoch)) {
            Ok(slot) => slot,
            Err(Lost::Ended) => return Outcome::Stale,
            Err(Lost::Full | Lost::Nested | Lost::NotBacked) => return Outcome::Lost,
        };
        // A signal handler that interrupted us here may have forked: then there are two of us, and
        // the slot is the parent's.
        if self.stamp != 0 && PROCESS.stamp() != self.stamp {
            return Outcome::Hopeless;
        }
        // SAFETY: the header goes into the headroom before the contexts; the slot has as many
        // bytes as both, and is ours.
        unsafe {
            write_header(self.body, self.id, slot.timestamp, slot.header_bytes);
            let source = self.body.wrapping_sub(slot.header_bytes).cast_const();
            memory.store(slot.at, core::slice::from_raw_parts(source, slot.bytes as usize));
        }
        // Or in there. (Between here and the addition, and within the other half of a switch, a
        // handler can still do it; 0005 says what comes of that.)
        if self.stamp != 0 && PROCESS.stamp() != self.stamp {
            return Outcome::Hopeless;
        }
        buffer.commit(&memory, &slot);
        if slot.switched {
            self.look_at_lease(trackway_sys::clock::monotonic_ns());
        }
        Outcome::Done
    }

    fn by_claim(&self, cpu: u32) -> Outcome {
        let cpus = self.layout.cpus;
        let spare = self.window.session(self.layout.index).spare_cpus.load(Ordering::Relaxed);
        let mut outcome = Outcome::Busy;
        for attempt in 0..CLAIMS_MAX + SPARES_MAX {
            let (other, among) = match attempt.checked_sub(CLAIMS_MAX) {
                None => (attempt, cpus),
                // Where none of them had memory: those that have some from the start.
                Some(attempt) => (attempt, spare.min(cpus)),
            };
            let near = cpu.wrapping_add((other / CLAIM_REGIONS_PER_CPU) as u32);
            let Some(near) = near.checked_rem(among) else { break };
            let way = Way::Claim(attempt % CLAIM_REGIONS_PER_CPU);
            let Some(region) = self.layout.region(self.window, near, way) else { continue };
            if region.has_no_memory() {
                if near == cpu {
                    ask_for_memory(region);
                }
                outcome = Outcome::Full;
                continue;
            }
            match self.in_claimed(region) {
                Outcome::Busy => {}
                Outcome::Full => outcome = Outcome::Full, // another one may have room
                end => return end,
            }
        }
        outcome
    }

    /// In a claim region, if nobody else is in it.
    #[inline(never)] // for the stack of those that do not come here
    fn in_claimed(&self, region: Region<'static>) -> Outcome {
        let footprint = Footprint::new();
        let outcome = self.in_claimed_by(region, footprint.holder());
        footprint.end();
        outcome
    }

    fn in_claimed_by(&self, region: Region<'static>, me: Holder) -> Outcome {
        let owner = PROCESS.owner_word(self.home, self.thread);
        let is_named = Owner::from_word(owner).slot() != ProcessSlot::NONE;
        let Some(noted) = claims::claim(region, owner, me, is_named) else { return Outcome::Busy };
        let Some(claim) = noted.claim() else { return Outcome::Busy };
        // The recorder waits for claims that it can see: ours is visible now, so if the
        // generation is still the same, it will wait for this one.
        if self.session_changed() {
            return Outcome::Stale;
        }
        let memory = MappedMemory(*self.window);
        let commit = |plan: &Plan, source: *const u8, count: usize| {
            // A signal handler that interrupted us here may have forked: then there are two
            // of us, and the claim is the parent's.
            if self.stamp != 0 && PROCESS.stamp() != self.stamp {
                return false;
            }
            // SAFETY: `step` bounded the plan's place; sources have words to spare.
            unsafe { claim.commit(plan, &memory, source, count) };
            true
        };
        // A switch, then the record: nobody else is at it.
        let mut has_switched = false;
        loop {
            match self.step(region, commit) {
                Step::Recorded => return Outcome::Done,
                Step::Switched if !has_switched => has_switched = true,
                Step::Refused | Step::Switched => return Outcome::Full,
                Step::Aborted => {
                    noted.abandon();
                    return Outcome::Hopeless;
                }
            }
        }
    }

    /// One plan and one commit: the record if the open sub-buffer has room, else a switch.
    fn step(&self, region: Region<'_>, commit: impl Fn(&Plan, *const u8, usize) -> bool) -> Step {
        let clock = &self.window.session(self.layout.index).clock;
        let expected = region.expected();
        let now = now::from_line_or_system(clock);
        match region.plan_record(expected, now, self.id, self.body_bytes) {
            Ok((plan, header_bytes)) => {
                let count = header_bytes + self.body_bytes;
                if !self.in_bounds(&plan, count) {
                    return Step::Refused;
                }
                // SAFETY: the header goes into the headroom before the contexts.
                unsafe { write_header(self.body, self.id, plan.timestamp, header_bytes) };
                let source = self.body.wrapping_sub(header_bytes);
                let committed = commit(&plan, source, count);
                if committed { Step::Recorded } else { Step::Aborted }
            }
            Err(Refusal::Switch) => self.switch(region, (expected, now), commit),
            Err(Refusal::Full | Refusal::NotBacked) => Step::Refused,
        }
    }

    /// The plan and commit of a switch, at a commit word and a time.
    #[inline(never)] // once, and not on the stack of most
    fn switch(
        &self,
        region: Region<'_>,
        (expected, now): (u64, u64),
        commit: impl Fn(&Plan, *const u8, usize) -> bool,
    ) -> Step {
        let clock = &self.window.session(self.layout.index).clock;
        let epoch = clock.epoch.load(Ordering::Relaxed);
        let Ok((plan, header)) = region.plan_switch(expected, now, epoch) else {
            return Step::Refused;
        };
        if !self.in_bounds(&plan, SUB_HEADER_BYTES) {
            return Step::Refused;
        }
        let committed = commit(&plan, header.as_ptr(), SUB_HEADER_BYTES);
        self.look_at_lease(now);
        if committed { Step::Switched } else { Step::Aborted }
    }

    /// Whether `count` bytes, rounded up to words, may be written where the plan says: the table
    /// that it came from is in shared memory.
    fn in_bounds(&self, plan: &Plan, count: usize) -> bool {
        let usable = self.home.usable_bytes();
        let end = plan.at.checked_add((count + TAILROOM_BYTES) as u64);
        end.is_some_and(|end| end <= usable)
    }

    fn session_changed(&self) -> bool {
        // ORDERING: SeqCst: a claim taken before this look is seen by a recorder that raised the
        // generation before looking for claims (Dekker), or we see the new generation here.
        core::sync::atomic::fence(Ordering::SeqCst);
        let generation: &AtomicU64 = &self.window.session(self.layout.index).generation;
        generation.load(Ordering::SeqCst) != self.layout.generation
    }

    /// After the commit: whoever is killed in between leaves one cut record uncounted. (Who sleeps
    /// in between while the session ends counts it in the next one of that slot.)
    fn count_cut(&self) {
        let session = self.window.session(self.layout.index);
        session.cut_event.store(self.event as u32, Ordering::Relaxed);
        session.records_cut.fetch_add(1, Ordering::Relaxed);
    }

    /// A recorder that is dead, or stopped for long, has let its lease run out: then the event is
    /// switched off for its session, so that the program does not pay for nobody. A recorder that
    /// comes back switches it on again.
    fn look_at_lease(&self, now: u64) {
        let session = self.window.session(self.layout.index);
        let is_over = |lease| lease_is_over(lease, now, &session.clock);
        if !is_over(session.lease_until_ns.load(Ordering::Relaxed)) {
            return;
        }
        // In a window that the process has left meanwhile there is no lease, and the words tell
        // sites to follow: see `privileges`.
        if self.session_changed() {
            return;
        }
        self.window.clear_bit_unless(self.layout.index, self.event, || {
            // ORDERING: SeqCst, a Dekker pair with a recorder that comes back: it renews the lease,
            // then sets the bits; we clear the bit, then look at the lease again.
            let has_come_back = !is_over(session.lease_until_ns.load(Ordering::SeqCst));
            // And not where the process has left a window: what stands there means something else.
            has_come_back || !PROCESS.lives_in(self.home)
        });
    }
}

/// Tells the recorder that a record came there. Read first: many may come.
fn ask_for_memory(region: Region<'_>) {
    let asked = &region.control.asked;
    if asked.load(Ordering::Relaxed) == 0 {
        asked.store(1, Ordering::Relaxed);
    }
}

/// What one step did.
enum Step {
    Recorded,
    Switched,
    /// Nothing: somebody else committed first, or the sequence was aborted.
    Aborted,
    /// There is no room.
    Refused,
}
