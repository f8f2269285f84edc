//! The library, started in this process, with a window of the test's own and sessions without a
//! recorder.

#![allow(dead_code, reason = "each test has its own copy, and uses a part of it")]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use trackway_abi::record::{HEADROOM_BYTES, TAILROOM_BYTES};
use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_abi::window::{EVENTS_MAX, granule};
use trackway_agent::abi::{AskingEvent, EmitFn, Field, VERSION, Value};
use trackway_agent::dynamic::{self, Dynamic};
use trackway_agent::{emit, register};
use trackway_ring::{Drained, Region};
use trackway_schema::{Heading, Scalar, Shape};
use trackway_testkit::{Records, TemporaryFolder};
use trackway_window::{
    Allocator, MappedMemory, NAME_BYTES, SessionLayout, Way, Window, window_name,
};

/// Size of an event's payload: a number.
const BODY_BYTES: usize = 8;
/// Level of events.
const INFO: u32 = 6;

/// The state that all tests of this process share.
pub(crate) struct World {
    pub(crate) window: Window,
    pub(crate) allocator: Mutex<Allocator>,
    next_slot: AtomicUsize,
}

/// Returns the only world. Its folder is deleted at once: the window stays mapped.
pub(crate) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let folder = TemporaryFolder::below(Path::new("/dev/shm"));
        // SAFETY: tests read the environment only here, before the library does.
        unsafe {
            std::env::set_var("TRACKWAY_WINDOW_DIR", folder.path());
            std::env::set_var("TRACKWAY_ALLOW_BLOCKING", "1");
        }
        trackway_agent::start();
        let below = CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: geteuid has no preconditions.
        let uid = unsafe { libc::geteuid() };
        let mut name = [0; NAME_BYTES];
        let path = window_name(below.to_bytes(), uid, &mut name).unwrap();
        let (window, file) = Window::open(&below, path, uid, false).expect("the library's");
        let allocator = Mutex::new(Allocator::new(window, file));
        World { window, allocator, next_slot: AtomicUsize::new(0) }
    })
}

/// The sizes of a session: 16 sub-buffers of 64 KiB in each region by default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) sub_shift: u32,
    pub(crate) count_shift: u32,
    /// Regions that have memory from the start.
    pub(crate) is_backed: fn(u32, Way) -> bool,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { sub_shift: 16, count_shift: 4, is_backed: |_, _| true }
    }
}

impl World {
    /// Returns a slot that no other test uses.
    pub(crate) fn slot(&self) -> usize {
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed);
        assert!(slot < SESSIONS_MAX, "too many sessions");
        slot
    }

    /// Makes an active session for events of `rules`; `fill_in` sets further fields.
    pub(crate) fn session(
        &'static self,
        rules: &str,
        sizes: Sizes,
        fill_in: impl FnOnce(&Session),
    ) -> Recording {
        self.session_in(self.slot(), rules, sizes, fill_in)
    }

    /// Makes a session in this slot, which is free or has a session that has ended.
    pub(crate) fn session_in(
        &'static self,
        slot: usize,
        rules: &str,
        sizes: Sizes,
        fill_in: impl FnOnce(&Session),
    ) -> Recording {
        // SAFETY: sysconf has no preconditions.
        let cpus = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u32;
        let session = self.window.session(slot);
        session.state.store(state::BUILDING, Ordering::SeqCst);
        session.generation.fetch_add(1, Ordering::SeqCst);
        let bytes = SessionLayout::control_bytes(cpus, 0);
        let owner = granule::CONTROL + slot as u8;
        let control = self.allocator.lock().unwrap().take(bytes, owner).unwrap();
        for (word, value) in [
            (&session.cpus, cpus),
            (&session.sub_shift, sizes.sub_shift),
            (&session.claim_sub_shift, sizes.sub_shift),
            (&session.count_shift, sizes.count_shift),
            (&session.flags, 0),
            (&session.next_id, 0),
            (&session.successor, 0),
            (&session.process_rules_bytes, 0),
            (&session.spare_cpus, 0),
            (&session.interpreters, 0),
            (&session.applications_bytes, 0),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        session.control_offset.store(control, Ordering::Relaxed);
        session.blocking_ns.store(0, Ordering::Relaxed);
        session.filters.store(0, Ordering::Relaxed);
        session.lease_until_ns.store(u64::MAX, Ordering::Relaxed);
        // A line with a wrong pace, which no test here compares: so the fast path is taken, too.
        session.clock.multiplier.store(1 << 31, Ordering::Relaxed);
        session.clock.span.store(u64::MAX / 2, Ordering::Relaxed);
        fill_in(session);
        assert!(self.window.set_rules(slot, rules.as_bytes()));
        let layout = SessionLayout::read_as_recorder(&self.window, slot).expect("good sizes");
        layout.reset(&self.window);
        let recording = Recording { world: self, slot };
        for (cpu, way) in recording.ways(&layout) {
            if (sizes.is_backed)(cpu, way) {
                recording.back(&layout, cpu, way);
            }
        }
        session.state.store(state::ACTIVE, Ordering::SeqCst);
        session.generation.fetch_add(1, Ordering::SeqCst);
        recording.apply_rules();
        recording
    }

    /// Returns the number of the event with this name.
    fn index_of(&self, name: &CStr) -> usize {
        let is_it = |index: &usize| {
            let description = self.window.description(*index);
            description.is_some_and(|bytes| {
                Heading::read(bytes.as_slice()).is_some_and(|it| it.name == name.to_bytes())
            })
        };
        (0..EVENTS_MAX).find(is_it).expect("it is described")
    }

    /// Enables an event in a slot, whatever the rules.
    pub(crate) fn set_bit(&self, name: &CStr, slot: usize) {
        let index = self.index_of(name);
        self.window.event(index).enabled.fetch_or(1 << slot, Ordering::SeqCst);
    }

    /// Returns the event `provider:name`, with a number.
    pub(crate) fn event(&self, provider: &CStr, name: &CStr) -> Event {
        // SAFETY: zeros are valid for every member.
        let mut field: Field = unsafe { std::mem::zeroed() };
        field.name = c"number".as_ptr();
        field.scalar = Scalar::U64 as u8;
        field.shape = Shape::Scalar as u8;
        // SAFETY: names are C strings, and there is one field.
        let described = unsafe {
            dynamic::describe(provider.as_ptr(), name.as_ptr(), INFO, &raw const field, 1)
        };
        let site = Site::new(provider.to_owned(), name.to_owned(), field);
        Event { described: described.expect("room"), site }
    }
}

/// An event that is described at run time, and is a module's, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    described: &'static Dynamic,
    site: &'static Site,
}

/// A module's event.
#[derive(Debug)]
struct Site(*mut AskingEvent);

// SAFETY: the library changes it, as any site's.
unsafe impl Sync for Site {}

impl Site {
    /// Makes a module's event, for ever.
    fn new(provider: CString, name: CString, field: Field) -> &'static Self {
        // SAFETY: zeros are valid for every member.
        let event: &'static mut AskingEvent = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        let begin = &raw mut event.event;
        event.event.enabled = (&raw const event.event.off).cast();
        (event.event.version, event.event.size) = (VERSION, size_of::<AskingEvent>() as u16);
        (event.event.level, event.event.field_count) = (INFO as u8, 1);
        event.event.provider = provider.into_raw();
        event.event.name = name.into_raw();
        event.event.fields = Box::leak(Box::new(field));
        let events = [begin];
        // SAFETY: one event, which lives for ever.
        unsafe { register(events.as_ptr(), events.as_ptr_range().end) };
        Box::leak(Box::new(Self(event)))
    }

    /// Returns the function that it records by now.
    fn function(&self) -> EmitFn {
        // SAFETY: the pointer may change meanwhile; registration has set it.
        unsafe { (&raw const (*self.0).event.emit).read_volatile() }.expect("it is registered")
    }

    /// Emits the event, as the header's macros do.
    fn emit(&self, number: u64) {
        // SAFETY: as in `function`; the word is a window's.
        let enabled = unsafe { (&raw const (*self.0).event.enabled).read_volatile() };
        // SAFETY: as above.
        if unsafe { (*enabled).load(Ordering::Relaxed) } == 0 {
            return;
        }
        let mut staged = [0_u8; HEADROOM_BYTES + BODY_BYTES + TAILROOM_BYTES];
        staged[HEADROOM_BYTES..][..BODY_BYTES].copy_from_slice(&number.to_le_bytes());
        let payload = staged.as_mut_ptr().wrapping_add(HEADROOM_BYTES);
        // SAFETY: a registered event, and a payload with headroom and tailroom.
        unsafe { self.function()(self.0.cast(), payload, BODY_BYTES) };
    }
}

impl Event {
    /// Emits the event, if a session records it: three times out of four as a module's.
    pub(crate) fn emit(&self, number: u64) {
        static TURN: AtomicU32 = AtomicU32::new(0);
        if TURN.fetch_add(1, Ordering::Relaxed) & 3 == 0 {
            self.emit_described(number);
        } else {
            self.site.emit(number);
        }
    }

    /// Returns true if the module's event goes by the function of filtered events.
    pub(crate) fn is_filtered(&self) -> bool {
        !std::ptr::fn_addr_eq(self.site.function(), emit as EmitFn)
    }

    fn emit_described(&self, number: u64) {
        let value = Value { bits: number, length: 0 };
        // SAFETY: one value, for one field.
        assert_eq!(unsafe { dynamic::record(self.described, &raw const value, 1) }, 0);
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.described.is_enabled()
    }
}

/// A session in a slot.
#[derive(Clone, Copy)]
pub(crate) struct Recording {
    pub(crate) world: &'static World,
    pub(crate) slot: usize,
}

impl Recording {
    pub(crate) fn session(&self) -> &'static Session {
        self.world.window.session(self.slot)
    }

    pub(crate) fn layout(&self) -> SessionLayout {
        SessionLayout::read_as_recorder(&self.world.window, self.slot).expect("its layout")
    }

    pub(crate) fn region(&self, cpu: u32, way: Way) -> Region<'static> {
        self.layout().region(&self.world.window, cpu, way).expect("a CPU of the session")
    }

    fn ways(&self, layout: &SessionLayout) -> Vec<(u32, Way)> {
        (0..layout.cpus).flat_map(|cpu| Way::ALL.map(|way| (cpu, way))).collect()
    }

    /// Gives a region all of its memory.
    pub(crate) fn back(&self, layout: &SessionLayout, cpu: u32, way: Way) {
        let region = layout.region(&self.world.window, cpu, way).expect("a CPU of the session");
        let bytes = region.geometry.ring_bytes();
        let owner = granule::DATA + self.slot as u8;
        let memory = self.world.allocator.lock().unwrap().take(bytes, owner).unwrap();
        for index in 0..region.geometry.sub_count() {
            region.back(index, memory + index * region.geometry.sub_bytes());
        }
        region.raise_limit(bytes);
    }

    /// Lets the writers of a flight recorder wrap around; all of its memory is there.
    pub(crate) fn go_round(&self) {
        for (cpu, way) in self.ways(&self.layout()) {
            self.region(cpu, way).raise_limit(u64::MAX);
        }
    }

    /// Raises the generation, as a recorder does after each change that writers cache.
    pub(crate) fn raise_generation(&self) {
        self.session().generation.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn apply_rules(&self) {
        let layout = self.layout();
        for index in 0..EVENTS_MAX {
            self.world.window.apply_rules(&layout, index);
        }
    }

    pub(crate) fn set_process_rules(&self, rules: &str) {
        let session = self.session();
        for (place, byte) in session.process_rules.iter().zip(rules.bytes()) {
            place.store(byte, Ordering::Relaxed);
        }
        session.process_rules_bytes.store(rules.len() as u32, Ordering::Relaxed);
        self.raise_generation();
        self.apply_rules();
    }

    /// Returns the number of discarded records, by event.
    pub(crate) fn discards(&self) -> u64 {
        let layout = self.layout();
        let of = |event| layout.discards(&self.world.window, event).load(Ordering::Relaxed);
        (0..EVENTS_MAX).map(of).sum()
    }

    /// Returns the number of discarded records of one event.
    pub(crate) fn discards_of(&self, name: &CStr) -> u64 {
        let index = self.world.index_of(name);
        self.layout().discards(&self.world.window, index).load(Ordering::Relaxed)
    }

    /// Returns the number of committed records, overwritten ones included.
    pub(crate) fn committed(&self) -> u64 {
        let events = |(cpu, way)| {
            let snapshot = self.region(cpu, way).snapshot().expect("what writers left");
            snapshot.events.expect("how many")
        };
        self.ways(&self.layout()).into_iter().map(events).sum()
    }

    /// Returns the numbers of all records of a region, in their order.
    pub(crate) fn numbers_in(&self, cpu: u32, way: Way) -> Vec<u64> {
        let region = self.region(cpu, way);
        let snapshot = region.snapshot().expect("what writers left");
        let memory = MappedMemory(self.world.window);
        let mut drained = Drained::default();
        let mut numbers = Vec::new();
        while let Some(piece) = region.piece(&memory, &drained, &snapshot, true).expect("a piece") {
            let mut bytes = vec![0; (piece.end - piece.start) as usize];
            region.copy(&memory, &piece, &mut bytes).expect("mapped");
            let mut records = Records::new(&bytes, piece.begin_ts, |_, _| Some(BODY_BYTES));
            let number = |body: &[u8]| u64::from_le_bytes(body.try_into().expect("eight bytes"));
            numbers.extend(records.by_ref().map(|record| number(record.body)));
            assert!(records.is_whole());
            drained = Drained { position: piece.resume, last_ts: piece.end_ts, ..drained };
            drained.events = piece.events;
        }
        numbers
    }

    /// Returns the numbers of all records, sorted.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let ways = self.ways(&self.layout());
        let mut numbers: Vec<u64> =
            ways.into_iter().flat_map(|(cpu, way)| self.numbers_in(cpu, way)).collect();
        numbers.sort_unstable();
        numbers
    }
}
