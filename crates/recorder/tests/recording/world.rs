//! A window, a recording and a writer of ours, all in this process.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_recorder::{
    BufferOptions, ChannelSettings, Home, Notices, RecordError, Recording, SessionSettings,
};
use trackway_ring::claim::Claim;
use trackway_ring::{Memory, Refusal, write_header};
use trackway_schema::{Encoder, Heading, Scalar, Shape};
use trackway_sys::clock::monotonic_ns;
use trackway_testkit::{Records, TemporaryFolder};
use trackway_window::{MappedMemory, SessionLayout, Window, WriterPath};

/// Size of the fake event's payload.
const BODY_BYTES: usize = 8;

pub(crate) struct World {
    pub(crate) folder: TemporaryFolder,
    pub(crate) notices: Notices,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            folder: TemporaryFolder::new_in(std::path::Path::new("/dev/shm")),
            notices: Notices::kept(),
        }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.join("trace")
    }

    pub(crate) fn home(&self) -> Home {
        Home::open_in(self.folder.path(), true).expect("a window")
    }

    pub(crate) fn session(&self) -> SessionSettings {
        SessionSettings { name: String::new(), token: None, uuid: [7; 16], path: self.trace() }
    }

    /// Builds a session with one channel.
    pub(crate) fn build(
        &self,
        home: Home,
        buffers: BufferOptions,
    ) -> Result<Recording, RecordError> {
        Recording::build(home, &self.session(), &[channel("channel0", buffers)])
    }

    pub(crate) fn record(&self, buffers: BufferOptions) -> Recording {
        let mut recording = self.build(self.home(), buffers).expect("a recording");
        recording.activate();
        recording
    }

    /// Lets the first slot be taken again, however short it has been free.
    pub(crate) fn let_slots_rest(&self) {
        let home = self.home();
        let sessions = (0..SESSIONS_MAX).map(|index| home.window().session(index));
        let is_free = |session: &&Session| session.state.load(Ordering::Relaxed) == state::FREE;
        for session in sessions.filter(is_free) {
            session.lease_until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// What a killed recorder leaves, seen by whoever comes next.
    pub(crate) fn kill(&self, recording: Recording) {
        drop(recording);
        let home = self.home();
        for index in home.window().active_sessions() {
            home.window().session(index).recorder_pid.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn streams(&self) -> PathBuf {
        // SAFETY: geteuid has no preconditions.
        let uid = unsafe { libc::geteuid() };
        self.trace().join(format!("ust/uid/{uid}/64-bit"))
    }

    pub(crate) fn stream(&self, name: &str) -> PathBuf {
        self.streams().join(name)
    }

    pub(crate) fn index(&self, name: &str) -> PathBuf {
        self.streams().join("index").join(format!("{name}.idx"))
    }

    /// Everything in a stream's file; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> Contents {
        Contents::of(&self.stream(name))
    }

    /// The same, of a snapshot's.
    pub(crate) fn read_snapshot(&self, snapshot: &Path, name: &str) -> Contents {
        let streams = self.streams();
        let place = streams.strip_prefix(self.trace()).expect("below the trace");
        Contents::of(&snapshot.join(place).join(name))
    }
}

impl Contents {
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let mut contents = Contents::default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word =
                |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("8 bytes"));
            assert_eq!(rest[..4], 0xC1FC_1FC1_u32.to_le_bytes(), "a packet's magic");
            let (begin, end) = (word(32), word(40));
            let (content, packet) = (word(48) as usize / 8, word(56) as usize / 8);
            assert!(begin <= end && begin >= contents.end_ts, "packets in the order of time");
            let mut records = Records::new(&rest[84..content], begin, |_, _| Some(BODY_BYTES));
            for record in records.by_ref() {
                assert!(record.header.timestamp_ns <= end);
                contents.values.push(u64::from_le_bytes(record.body.try_into().expect("8 bytes")));
            }
            assert!(records.is_whole());
            contents.sequences.push(word(64));
            contents.begins.push(begin);
            assert!(word(72) >= contents.discarded, "losses only grow");
            contents.discarded = word(72);
            contents.end_ts = end;
            rest = &rest[packet..];
        }
        contents
    }
}

/// A channel for the events of `app`.
pub(crate) fn channel(name: &str, buffers: BufferOptions) -> ChannelSettings {
    ChannelSettings {
        name: name.into(),
        buffers: buffers.plan().expect("sizes"),
        overwrite: buffers.overwrite,
        rules: "app:*".into(),
        ..ChannelSettings::default()
    }
}

/// What a stream holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) values: Vec<u64>,
    pub(crate) sequences: Vec<u64>,
    /// When the packets begin, ns.
    pub(crate) begins: Vec<u64>,
    pub(crate) discarded: u64,
    end_ts: u64,
}

impl Contents {
    pub(crate) fn packets(&self) -> usize {
        self.sequences.len()
    }
}

/// Writes as a claimer does, into any region.
pub(crate) struct Writer {
    window: Window,
    layout: SessionLayout,
    event: usize,
    id: u32,
    next: u64,
}

impl Writer {
    /// A writer of `app:value`, in the one session that is active, or the first.
    pub(crate) fn new(home: &Home) -> Self {
        Self::in_channel(home, 0)
    }

    /// A writer of `app:value` in the active slot number `place`, counted from the first.
    pub(crate) fn in_channel(home: &Home, place: usize) -> Self {
        let window = *home.window();
        let index = window.active_sessions().nth(place).expect("an active session");
        let layout = SessionLayout::read(&window, index).expect("its layout");
        let mut buffer = [0; 256];
        let mut encoder = Encoder::new(&mut buffer, b"app", b"value", 6).expect("a name");
        encoder.field(b"n", Shape::Scalar, Some(Scalar::U64), 0, 0).expect("a field");
        let encoded = encoder.finish();
        let event = window.intern_event(encoded).expect("room") as usize;
        let heading = Heading::read(encoded).expect("what was encoded");
        assert!(window.enable_if_selected(&layout, event, &heading));
        let id = layout.id(&window, event).load(Ordering::Acquire) - 1;
        Self { window, layout, event, id, next: 0 }
    }

    /// Whether its event is on in its channel.
    pub(crate) fn is_on(&self) -> bool {
        self.enabled() >> self.layout.index & 1 != 0
    }

    /// The slot of its channel.
    pub(crate) fn index(&self) -> usize {
        self.layout.index
    }

    /// The enable word of its event.
    pub(crate) fn enabled(&self) -> u32 {
        self.window.event(self.event).enabled.load(Ordering::Relaxed)
    }

    /// Number and clock epoch of the open sub-buffer of one of CPU 0's regions.
    pub(crate) fn open_sub_buffer(&self, way: WriterPath) -> (u64, u64) {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        let index = region.geometry.index_of(region.expected() >> 1);
        let at = region.sub_buffer_offset(index).expect("it is backed");
        let mut epoch = [0; 8];
        let from = at + trackway_abi::region::sub_header::EPOCH as u64;
        MappedMemory(self.window).load(from, &mut epoch).expect("it is mapped");
        (index, u64::from_le_bytes(epoch))
    }

    /// The session's generation.
    pub(crate) fn generation(&self) -> u64 {
        self.window.session(self.layout.index).generation.load(Ordering::Relaxed)
    }

    /// The value that is emitted next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Says that memory is needed, as who finds none does; the value that is emitted next.
    pub(crate) fn ask(&self) -> u64 {
        let region = self.layout.region(&self.window, 0, WriterPath::Sequence).expect("CPU 0");
        assert!(region.has_no_memory());
        region.control.wants_memory.store(1, Ordering::Relaxed);
        self.next
    }

    /// Has the region to itself until that is dropped.
    pub(crate) fn hold(&self, way: WriterPath) -> Claim<'static> {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        Claim::take(region, 1).expect("nobody else")
    }

    /// Emits the next value; whether it found room. Counted if not.
    pub(crate) fn emit(&mut self, way: WriterPath) -> bool {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        let value = self.next;
        self.next += 1;
        let claim = Claim::take(region, 1).expect("nobody else");
        let mut bytes = [0_u8; 64];
        bytes[32..40].copy_from_slice(&value.to_le_bytes());
        let memory = MappedMemory(self.window);
        for _ in 0..2 {
            let expected = region.expected();
            match region.plan_record(expected, monotonic_ns(), self.id, BODY_BYTES) {
                Ok((plan, header)) => {
                    // SAFETY: 32 bytes lie before the body, and words behind it.
                    unsafe {
                        write_header(bytes.as_mut_ptr().add(32), self.id, plan.timestamp, header);
                        let source = bytes.as_ptr().add(32 - header);
                        claim.commit(&plan, &memory, source, header + BODY_BYTES);
                    }
                    return true;
                }
                Err(Refusal::Switch) => {
                    let Ok((plan, header)) = region.plan_switch(expected, monotonic_ns(), 0) else {
                        break;
                    };
                    // SAFETY: the header has words to spare.
                    unsafe { claim.commit(&plan, &memory, header.as_ptr(), 84) };
                }
                Err(_) => break,
            }
        }
        self.count_lost(way);
        false
    }

    /// Counts a record that found no room.
    pub(crate) fn count_lost(&self, way: WriterPath) {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        region.control.count_discarded(trackway_ring::Discard::Full);
        self.layout.discards(&self.window, self.event).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that was cut to fit.
    pub(crate) fn count_cut(&self) {
        let session = self.window.session(self.layout.index);
        session.cut_event.store(self.event as u32, Ordering::Relaxed);
        session.records_cut.fetch_add(1, Ordering::Relaxed);
    }
}
