//! Tests that write random bytes to the window while a session changes. The recorder must not panic
//! or hang, and must write only inside trace folders. If the damage is limited to one session, the
//! window's other sessions must lose nothing.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_abi::window::{DATA_OFFSET, EVENTS_MAX, GRANULE_BYTES, GRANULE_MAP_OFFSET, granule};
use trackway_recorder::{
    BufferOptions, ChannelSettings, RecordError, Recording, SessionSettings, WindowHandle,
    recover_in,
};
use trackway_schema::Encoder;
use trackway_session::machine::Reason;
use trackway_testkit::Random;
use trackway_window::{SessionLayout, WriterPath};

use crate::test_window::{TestWindow, Writer, channel_settings};

const SMALL: BufferOptions =
    BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };
const FLIGHT_RECORDER: BufferOptions = BufferOptions { overwrite: true, ..SMALL };

const GRANULE: usize = GRANULE_BYTES as usize;
/// Numbers at the limits of ranges and types.
const EDGE_VALUES: [u64; 10] = [0, 1, 2, 31, 32, 33, 0x7fff_ffff, 0xffff_ffff, 1 << 63, u64::MAX];
/// Names that must not become files, and one valid name.
const HOSTILE_NAMES: [&str; 6] =
    ["../../../escaped", "/tmp/trackway-test-escaped", "a/b", "..", "", "some"];

/// The memory that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DamagedMemory {
    /// The slots of the session, except the identity of its recorder.
    Slots,
    /// The tables and control lines of the session.
    Controls,
    /// Slots, tables and control lines of the session, and the identity of its recorder.
    Session,
    /// The window's own tables: granule map, events, processes, all sessions.
    Tables,
    /// Any byte.
    All,
}

impl DamagedMemory {
    /// Returns true if the damage leaves other sessions intact.
    fn spares_others(self) -> bool {
        matches!(self, Self::Slots | Self::Controls | Self::Session)
    }
}

/// Overwrites a session while it exists.
struct Scribbler {
    handle: WindowHandle,
    file: File,
    random: Random,
    place: DamagedMemory,
    /// Slot of the session that must stay intact.
    other: usize,
    /// Offset of the control lines of slot `other`.
    other_controls: u64,
    elsewhere: String,
}

impl Scribbler {
    fn run(mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.scribble_once();
            std::thread::yield_now();
        }
    }

    fn scribble_once(&mut self) {
        match self.place {
            DamagedMemory::Tables => self.scribble(GRANULE_MAP_OFFSET as u64, DATA_OFFSET as u64),
            DamagedMemory::All => self.scribble(64, u64::MAX),
            DamagedMemory::Slots | DamagedMemory::Controls | DamagedMemory::Session => {
                let other = self.other;
                for index in (0..SESSIONS_MAX).filter(|index| *index != other) {
                    let session = self.handle.window().session(index);
                    if session.state.load(Ordering::Relaxed) != state::FREE {
                        self.damage(index);
                    }
                }
            }
        }
    }

    /// Writes random bytes through the file, because mapped memory may be cut off at any moment.
    fn scribble(&mut self, from: u64, to: u64) {
        let length = self.file.metadata().expect("a file").len();
        for _ in 0..64 {
            let at = from + self.random.next_below(to.min(length) - from);
            self.file.write_all_at(&[self.random.next() as u8], at).expect("written");
        }
    }

    fn damage(&mut self, index: usize) {
        let session = self.handle.window().session(index);
        if self.place != DamagedMemory::Slots {
            // The granule map has the real place of the control lines, whatever the slot contains.
            let owner = granule::CONTROL + index as u8;
            let is_its = |at: &u64| self.handle.allocator.owner_at(*at) == owner;
            let all = (DATA_OFFSET as u64..self.handle.window().usable_bytes()).step_by(GRANULE);
            let own: Vec<u64> = all.filter(is_its).collect();
            if !own.is_empty() {
                let at = *self.random.pick(&own);
                self.scribble(at, at + GRANULE_BYTES);
            }
        }
        if self.place != DamagedMemory::Controls {
            self.damage_word(session);
            self.damage_text(session);
            if self.place == DamagedMemory::Session && self.random.once_in(200) {
                session.recorder_pid.store(self.random.next() as u32, Ordering::Relaxed);
            }
        }
    }

    /// Damages one number of a slot.
    fn damage_word(&mut self, session: &Session) {
        let words: [&AtomicU32; 22] = [
            &session.state,
            &session.flags,
            &session.contexts,
            &session.cpus,
            &session.sub_shift,
            &session.count_shift,
            &session.claim_sub_shift,
            &session.next_id,
            &session.processes,
            &session.cut_event,
            &session.uid,
            &session.rules_bytes,
            &session.path_bytes,
            &session.departed,
            &session.rules_revision,
            &session.successor,
            &session.snapshot_requests,
            &session.spare_cpus,
            &session.stream_class,
            &session.process_rules_bytes,
            &session.channel_bytes,
            &session.applications_bytes,
        ];
        let longs: [&AtomicU64; 9] = [
            &session.generation,
            &session.lease_until_ns,
            &session.control_offset,
            &session.control_offset,
            &session.records_cut,
            &session.token,
            &session.realtime_offset_ns,
            &session.trace_uuid[0],
            &session.blocking_ns,
        ];
        let value = match self.random.next_below(4) {
            0 => self.other_controls,
            1 => self.random.next(),
            _ => *self.random.pick(&EDGE_VALUES),
        };
        match self.random.next_below(2) {
            0 => self.random.pick(&words).store(value as u32, Ordering::Relaxed),
            _ => self.random.pick(&longs).store(value, Ordering::Relaxed),
        }
    }

    /// Damages one text of a slot.
    fn damage_text(&mut self, session: &Session) {
        let name = *self.random.pick(&HOSTILE_NAMES);
        match self.random.next_below(5) {
            0 => store_text(&session.channel, &session.channel_bytes, name),
            1 => store_text(&session.name, &session.name_bytes, name),
            2 => store_text(&session.path, &session.path_bytes, &self.elsewhere),
            3 => {
                store_text(&session.rules, &session.rules_bytes, "*\t<=999999999999\n!\n\t\n!*:*:*")
            }
            _ => store_text(
                &session.process_rules,
                &session.process_rules_bytes,
                "pid=:\nexe=\n\nns=x",
            ),
        }
    }
}

fn store_text(into: &[AtomicU8], length: &AtomicU32, text: &str) {
    into.iter().zip(text.bytes()).for_each(|(place, byte)| place.store(byte, Ordering::Relaxed));
    length.store(text.len() as u32, Ordering::Relaxed);
}

/// A session that is changed in every possible way, ignoring failures.
struct ChangingSession<'world> {
    world: &'world TestWindow,
    recording: Recording,
    classes: Vec<u32>,
    next_class: u32,
}

impl ChangingSession<'_> {
    fn step(&mut self, random: &mut Random) -> Result<(), RecordError> {
        let buffers = *random.pick(&[SMALL, FLIGHT_RECORDER]);
        let name = *random.pick(&["some", "more", "flight"]);
        let settings =
            ChannelSettings { paused: random.once_in(4), ..channel_settings(name, buffers) };
        let class = *random.pick(&self.classes);
        let recording = &mut self.recording;
        match random.next_below(13) {
            0 => {
                self.classes.push(self.next_class);
                self.next_class += 1;
                recording.add_channel(&settings, self.next_class - 1)
            }
            1 | 2 => {
                self.classes.push(self.next_class);
                self.next_class += 1;
                recording.replace_channel(class, &settings, self.next_class - 1)?;
                recording.end_channel(class)
            }
            3 => recording.end_channel(class),
            4 => recording.set_rules(class, "app:*\n!app:noise\t<=4"),
            5 => recording.set_processes(class, "exe=nothing"),
            6 => recording.stop(),
            7 => {
                recording.start();
                Ok(())
            }
            8 => recording.clear(!random.once_in(3)),
            9 => {
                let folder = self.world.folder.join(format!("snapshot-{}", random.next_below(3)));
                let last_ns = random.once_in(2).then_some(1_000_000_000);
                recording.snapshot(&folder, last_ns, &Reason::Requested).map(|_| ())
            }
            10 => {
                recording.set_followed(random.once_in(2));
                let _ = (recording.totals(), recording.event_names());
                Ok(())
            }
            _ => recording.tick(&self.world.notices).map(|_| ()),
        }
    }
}

/// The recording that must not be harmed.
struct UnharmedRecording {
    recording: Recording,
    writer: Writer,
    emitted: u64,
}

impl UnharmedRecording {
    const FOLDER: &str = "other";

    fn begin(world: &TestWindow) -> Self {
        let session = SessionSettings {
            uuid: [8; 16],
            path: world.folder.join(Self::FOLDER),
            ..world.session()
        };
        let built =
            Recording::build(world.handle(), &session, &[channel_settings("channel0", SMALL)]);
        let mut recording = built.expect("a recording");
        recording.activate();
        let writer = Writer::in_channel(&world.handle(), 0);
        Self { recording, writer, emitted: 0 }
    }

    fn find_slot(handle: &WindowHandle) -> (usize, u64) {
        let index = handle.window().active_sessions().next().expect("the first session");
        let controls = handle.window().session(index).control_offset.load(Ordering::Relaxed);
        assert!(SessionLayout::read(handle.window(), index).is_some());
        (index, controls)
    }

    fn emit_more(&mut self, world: &TestWindow) {
        for _ in 0..50 {
            assert!(self.writer.emit(WriterPath::Sequence));
        }
        self.emitted += 50;
        self.recording.tick(&world.notices).expect("a look");
    }

    fn end(self, world: &TestWindow) {
        let summary = self.recording.finish(&|| false).expect("a trace");
        assert_eq!((summary.recorded, summary.lost, summary.damaged), (self.emitted, 0, 0));
        let values = world.read_snapshot(&world.folder.join(Self::FOLDER), "channel0_0").values;
        assert!(values.into_iter().eq(0..self.emitted), "in order");
    }
}

/// Checks that only known files are in the test's folder, and no escaped ones outside. Records that
/// cannot be recovered into their trace go to a new folder beside it.
fn assert_nothing_escaped(world: &TestWindow) {
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("one").file_name().to_string_lossy().into()).collect()
    };
    for name in names(world.folder.path()) {
        let known = ["trace", "other", "snapshot-", "trackway-"];
        let is_known = known.iter().any(|known| name.starts_with(known));
        assert!(is_known || name.contains(".recovered"), "{name}");
    }
    for folder in
        [world.trace(), world.folder.join("trace/ust"), world.folder.join("trace/ust/uid")]
    {
        for name in names(&folder) {
            let is_ours = matches!(&*name, "ust" | "uid") || name.parse::<u32>().is_ok();
            assert!(is_ours, "{name} in {folder:?}");
        }
    }
    for above in [Path::new("/tmp/trackway-test-escaped_0"), Path::new("/dev/shm/escaped_0")] {
        assert!(!above.exists(), "{above:?}");
    }
}

fn damage_while_changing(seed: u64, place: DamagedMemory) {
    let _told = SeedReport(seed, place);
    let world = TestWindow::new();
    let mut random = Random::new(seed);
    let mut other = UnharmedRecording::begin(&world);
    let (slot, other_controls) = UnharmedRecording::find_slot(&world.handle());
    let settings = [channel_settings("some", SMALL), channel_settings("flight", FLIGHT_RECORDER)];
    let built = Recording::build(world.handle(), &world.session(), &settings);
    let mut recording = built.expect("a recording");
    recording.activate();
    let mut writers = [1, 2].map(|place| Writer::in_channel(&world.handle(), place));
    writers
        .iter_mut()
        .for_each(|writer| (0..500).for_each(|_| _ = writer.emit(WriterPath::Sequence)));
    let mut changed =
        ChangingSession { world: &world, recording, classes: vec![0, 1], next_class: 2 };
    let handle = world.handle();
    let file = File::options().read(true).write(true).open(&handle.path).expect("the window");
    let scribbler = Scribbler {
        handle,
        file,
        random: Random::new(!seed),
        place,
        other: slot,
        other_controls,
        elsewhere: world.folder.join("elsewhere").display().to_string(),
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The guard also stops the scribbler when this thread panics; otherwise the scope would
        // wait forever.
        let _over = OnDrop(&is_over);
        scope.spawn(|| scribbler.run(&is_over));
        for _ in 0..STEPS {
            // The step may fail with an error, but it must return.
            let _ = changed.step(&mut random);
            if place.spares_others() {
                other.emit_more(&world);
            }
        }
        if random.once_in(2) {
            let _ = changed.recording.finish(&|| false);
        } else {
            drop(changed);
        }
        kill_other_recorders(&world.handle(), slot);
        let _ = recover_in(world.folder.path(), &world.notices, None);
    });
    kill_other_recorders(&world.handle(), slot);
    let _ = recover_in(world.folder.path(), &world.notices, None);
    if place.spares_others() {
        other.emit_more(&world);
        other.end(&world);
    }
    assert_nothing_escaped(&world);
}

/// Number of changes of a session.
const STEPS: usize = 15;

/// Prints the seed when a test fails.
struct SeedReport(u64, DamagedMemory);

impl Drop for SeedReport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, {:?}", self.0, self.1);
        }
    }
}

struct OnDrop<'flag>(&'flag AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes the recorders of all sessions except `slot` appear dead.
fn kill_other_recorders(handle: &WindowHandle, slot: usize) {
    for index in (0..SESSIONS_MAX).filter(|index| *index != slot) {
        let session = handle.window().session(index);
        if session.state.load(Ordering::Relaxed) != state::FREE {
            session.recorder_pid.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the offset of CPU 0's control lines in the active slot number `place`.
fn control_offset(handle: &WindowHandle, place: usize) -> &'static AtomicU64 {
    let index = handle.window().active_sessions().nth(place).expect("a session");
    let window = *handle.window();
    &window.session(index).control_offset
}

#[test]
fn what_is_recovered_is_never_another_session_s() {
    let world = TestWindow::new();
    let handle = world.handle();
    let mut other = UnharmedRecording::begin(&world);
    let recording = world.begin_recording(SMALL);
    other.emit_more(&world);
    // A faulty process may leave this offset.
    let others = control_offset(&handle, 0).load(Ordering::Relaxed);
    control_offset(&handle, 1).store(others, Ordering::Relaxed);
    drop(recording);
    kill_other_recorders(&handle, UnharmedRecording::find_slot(&handle).0);
    let recovered = recover_in(world.folder.path(), &world.notices, None).expect("a window");
    assert!(recovered.iter().all(|one| one.result.is_err()), "{recovered:?}");
    // The progress of the killed recorder is still in the window.
    let UnharmedRecording { recording, emitted, .. } = other;
    world.kill(recording);
    let recovered = recover_in(world.folder.path(), &world.notices, None).expect("a window");
    assert!(recovered.iter().any(|one| one.folder == world.folder.join(UnharmedRecording::FOLDER)));
    let values =
        world.read_snapshot(&world.folder.join(UnharmedRecording::FOLDER), "channel0_0").values;
    assert!(values.into_iter().eq(0..emitted), "in order");
}

#[test]
fn ids_written_over_again_and_again_do_not_grow_the_metadata() {
    const EVENTS: u32 = 1000;
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let handle = world.handle();
    let window = handle.window();
    let slot = window.active_sessions().next().expect("a session");
    let layout = SessionLayout::read(window, slot).expect("its layout");
    let described = |number: u32| {
        let mut buffer = [0; 64];
        let name = format!("event{number}");
        let encoder = Encoder::new(&mut buffer, b"app", name.as_bytes(), 6).expect("a name");
        window.intern_event(encoder.finish()).expect("room") as usize
    };
    let events: Vec<usize> = (0..EVENTS).map(described).collect();
    for id in 0..3 * EVENTS_MAX as u32 {
        let event = events[(id % EVENTS) as usize];
        layout.id(window, event).store(id + 1, Ordering::Relaxed);
        if id % EVENTS == EVENTS - 1 {
            window.session(slot).next_id.store(u32::MAX, Ordering::Relaxed);
            recording.tick(&world.notices).expect("a look");
        }
    }
    recording.finish(&|| false).expect("a trace");
    let metadata = std::fs::read_to_string(world.stream("metadata")).expect("a file");
    assert_eq!(metadata.matches("\nevent {").count(), 2 * EVENTS_MAX);
}

#[test]
fn the_number_of_the_next_event_may_be_anything() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(SMALL);
    let handle = world.handle();
    let slot = handle.window().active_sessions().next().expect("a session");
    handle.window().session(slot).next_id.store(u32::MAX, Ordering::Relaxed);
    let mut buffer = [0; 64];
    let encoder = Encoder::new(&mut buffer, b"app", b"late", 6).expect("a name");
    handle.window().intern_event(encoder.finish()).expect("room");
    recording.set_rules(0, "app:*").expect("rules");
    recording.tick(&world.notices).expect("a look");
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn channels_whose_names_end_like_classes_have_files_of_their_own() {
    let world = TestWindow::new();
    let channels = [channel_settings("a-1", SMALL), channel_settings("a", SMALL)];
    let built = Recording::build(world.handle(), &world.session(), &channels);
    let mut recording = built.expect("a recording");
    recording.activate();
    let mut writers = [0, 1].map(|place| Writer::in_channel(&world.handle(), place));
    for (count, writer) in [(5, 0), (7, 1)] {
        (0..count).for_each(|_| assert!(writers[writer].emit(WriterPath::Sequence)));
    }
    recording.finish(&|| false).expect("a trace");
    assert_eq!(world.read("a-1-0_0").values.len(), 5);
    assert_eq!(world.read("a-1_0").values.len(), 7);
}

#[test]
fn what_a_slot_says_harms_no_other_session() {
    (0..12).for_each(|seed| damage_while_changing(seed, DamagedMemory::Slots));
}

#[test]
fn control_lines_and_tables_harm_no_other_session() {
    (100..112).for_each(|seed| damage_while_changing(seed, DamagedMemory::Controls));
}

#[test]
fn a_session_overwritten_and_taken_away_harms_no_other() {
    (200..212).for_each(|seed| damage_while_changing(seed, DamagedMemory::Session));
}

#[test]
fn no_byte_of_the_window_crashes_a_session_that_changes() {
    (300..312).for_each(|seed| damage_while_changing(seed, DamagedMemory::Tables));
    (400..412).for_each(|seed| damage_while_changing(seed, DamagedMemory::All));
}
