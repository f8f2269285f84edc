//! A test's own window, recording and writer, all in this process.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, Session, state};
use trackway_recorder::{
    BufferOptions, ChannelSettings, Notices, RecordError, Recording, SessionSettings, WindowHandle,
};
use trackway_ring::claim::Claim;
use trackway_ring::{Memory, Refusal, write_header};
use trackway_schema::{Encoder, Heading, Scalar, Shape};
use trackway_sys::clock::monotonic_ns;
use trackway_testkit::{Records, TemporaryFolder};
use trackway_window::{MappedMemory, SessionLayout, Window, WriterPath};

/// Size of the test event's payload, in bytes.
const PAYLOAD_BYTES: usize = 8;

pub(crate) struct TestWindow {
    pub(crate) folder: TemporaryFolder,
    pub(crate) notices: Notices,
}

impl TestWindow {
    pub(crate) fn new() -> Self {
        Self {
            folder: TemporaryFolder::new_in(std::path::Path::new("/dev/shm")),
            notices: Notices::in_memory(),
        }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.join("trace")
    }

    pub(crate) fn handle(&self) -> WindowHandle {
        WindowHandle::open_in(self.folder.path(), true).expect("a window")
    }

    pub(crate) fn session(&self) -> SessionSettings {
        SessionSettings { name: String::new(), token: None, uuid: [7; 16], path: self.trace() }
    }

    /// Builds a session with one channel.
    pub(crate) fn build_recording(
        &self,
        handle: WindowHandle,
        buffers: BufferOptions,
    ) -> Result<Recording, RecordError> {
        Recording::build(handle, &self.session(), &[channel_settings("channel0", buffers)])
    }

    pub(crate) fn begin_recording(&self, buffers: BufferOptions) -> Recording {
        let mut recording = self.build_recording(self.handle(), buffers).expect("a recording");
        recording.activate();
        recording
    }

    /// Makes the first slot available again, however recently it was freed.
    pub(crate) fn let_slots_rest(&self) {
        let handle = self.handle();
        let sessions = (0..SESSIONS_MAX).map(|index| handle.window().session(index));
        let is_free = |session: &&Session| session.state.load(Ordering::Relaxed) == state::FREE;
        for session in sessions.filter(is_free) {
            session.lease_until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Leaves the recording in the state of a killed recorder.
    pub(crate) fn kill(&self, recording: Recording) {
        drop(recording);
        let handle = self.handle();
        for index in handle.window().active_sessions() {
            handle.window().session(index).recorder_pid.store(0, Ordering::Relaxed);
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

    /// Reads a stream file; returns empty contents if the file does not exist.
    pub(crate) fn read(&self, name: &str) -> StreamContents {
        StreamContents::of(&self.stream(name))
    }

    /// Reads a stream file of a snapshot.
    pub(crate) fn read_snapshot(&self, snapshot: &Path, name: &str) -> StreamContents {
        let streams = self.streams();
        let place = streams.strip_prefix(self.trace()).expect("below the trace");
        StreamContents::of(&snapshot.join(place).join(name))
    }
}

impl StreamContents {
    fn of(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap_or_default();
        let mut contents = StreamContents::default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let word =
                |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().expect("8 bytes"));
            assert_eq!(rest[..4], 0xC1FC_1FC1_u32.to_le_bytes(), "a packet's magic");
            let (begin, end) = (word(32), word(40));
            let (content, packet) = (word(48) as usize / 8, word(56) as usize / 8);
            assert!(begin <= end && begin >= contents.end_ts, "packets in the order of time");
            let mut records = Records::new(&rest[84..content], begin, |_, _| Some(PAYLOAD_BYTES));
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

/// Returns the settings of a channel for the events of provider `app`.
pub(crate) fn channel_settings(name: &str, buffers: BufferOptions) -> ChannelSettings {
    ChannelSettings {
        name: name.into(),
        buffers: buffers.plan().expect("sizes"),
        overwrite: buffers.overwrite,
        rules: "app:*".into(),
        ..ChannelSettings::default()
    }
}

/// The contents of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamContents {
    pub(crate) values: Vec<u64>,
    pub(crate) sequences: Vec<u64>,
    /// Begin times of the packets, in ns.
    pub(crate) begins: Vec<u64>,
    pub(crate) discarded: u64,
    end_ts: u64,
}

impl StreamContents {
    pub(crate) fn packets(&self) -> usize {
        self.sequences.len()
    }
}

/// A writer that reserves by claim, in any region.
pub(crate) struct Writer {
    window: Window,
    layout: SessionLayout,
    event: usize,
    id: u32,
    next: u64,
}

impl Writer {
    /// Makes a writer of `app:value` in the first active session.
    pub(crate) fn new(handle: &WindowHandle) -> Self {
        Self::in_channel(handle, 0)
    }

    /// Makes a writer of `app:value` in the active slot number `place`, counted from 0.
    pub(crate) fn in_channel(handle: &WindowHandle, place: usize) -> Self {
        let window = *handle.window();
        let index = window.active_sessions().nth(place).expect("an active session");
        let layout = SessionLayout::read(&window, index).expect("its layout");
        let mut buffer = [0; 256];
        let mut encoder = Encoder::new(&mut buffer, b"app", b"value", 6).expect("a name");
        encoder.add_field(b"n", Shape::Scalar, Some(Scalar::U64), 0, 0).expect("a field");
        let encoded = encoder.finish();
        let event = window.intern_event(encoded).expect("room") as usize;
        let heading = Heading::read(encoded).expect("what was encoded");
        assert!(window.enable_if_selected(&layout, event, &heading));
        let id = layout.id(&window, event).load(Ordering::Acquire) - 1;
        Self { window, layout, event, id, next: 0 }
    }

    /// Returns true if the writer's event is enabled in its channel.
    pub(crate) fn is_on(&self) -> bool {
        self.enabled() >> self.layout.index & 1 != 0
    }

    /// Returns the slot of the writer's channel.
    pub(crate) fn index(&self) -> usize {
        self.layout.index
    }

    /// Returns the enable word of the writer's event.
    pub(crate) fn enabled(&self) -> u32 {
        self.window.event(self.event).enabled.load(Ordering::Relaxed)
    }

    /// Returns the number and clock epoch of the open sub-buffer of one of CPU 0's regions.
    pub(crate) fn open_sub_buffer(&self, way: WriterPath) -> (u64, u64) {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        let index = region.geometry.index_of(region.expected() >> 1);
        let at = region.sub_buffer_offset(index).expect("it is backed");
        let mut epoch = [0; 8];
        let from = at + trackway_abi::region::sub_header::EPOCH as u64;
        MappedMemory(self.window).load(from, &mut epoch).expect("it is mapped");
        (index, u64::from_le_bytes(epoch))
    }

    /// Returns the generation of the writer's session.
    pub(crate) fn generation(&self) -> u64 {
        self.window.session(self.layout.index).generation.load(Ordering::Relaxed)
    }

    /// Returns the value that the writer emits next.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Requests memory like a writer that finds none. Returns the value that is emitted next.
    pub(crate) fn request_memory(&self) -> u64 {
        let region = self.layout.region(&self.window, 0, WriterPath::Sequence).expect("CPU 0");
        assert!(region.has_no_memory());
        region.control.wants_memory.store(1, Ordering::Relaxed);
        self.next
    }

    /// Takes the region's claim until the result is dropped.
    pub(crate) fn hold_claim(&self, way: WriterPath) -> Claim<'static> {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        Claim::take(region, 1).expect("nobody else")
    }

    /// Emits the next value. Returns true if it found space; otherwise counts it as lost.
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
            match region.plan_record(expected, monotonic_ns(), self.id, PAYLOAD_BYTES) {
                Ok((plan, header)) => {
                    // SAFETY: 32 bytes precede the body, and whole words follow it.
                    unsafe {
                        write_header(bytes.as_mut_ptr().add(32), self.id, plan.timestamp, header);
                        let source = bytes.as_ptr().add(32 - header);
                        claim.commit(&plan, &memory, source, header + PAYLOAD_BYTES);
                    }
                    return true;
                }
                Err(Refusal::Switch) => {
                    let Ok((plan, header)) = region.plan_switch(expected, monotonic_ns(), 0) else {
                        break;
                    };
                    // SAFETY: the header has space for whole words.
                    unsafe { claim.commit(&plan, &memory, header.as_ptr(), 84) };
                }
                Err(_) => break,
            }
        }
        self.count_lost(way);
        false
    }

    /// Counts a record that found no space.
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
