//! A window, a recording and a writer of ours, all in this process.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use trackway_recorder::{BufferOptions, Home, Notices, Recording, SessionSettings};
use trackway_ring::claim::Claim;
use trackway_ring::{Memory, Refusal, write_header};
use trackway_schema::{Encoder, Scalar, Shape};
use trackway_sys::clock::monotonic_ns;
use trackway_testkit::{Records, TemporaryFolder};
use trackway_window::{MappedMemory, SessionLayout, Way, Window};

/// Size of the fake event's payload.
const BODY_BYTES: usize = 8;

pub(crate) struct World {
    pub(crate) folder: TemporaryFolder,
    pub(crate) notices: Notices,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            folder: TemporaryFolder::below(std::path::Path::new("/dev/shm")),
            notices: Notices::kept(),
        }
    }

    pub(crate) fn trace(&self) -> PathBuf {
        self.folder.join("trace")
    }

    pub(crate) fn home(&self) -> Home {
        Home::open_in(self.folder.path(), true).expect("a window")
    }

    pub(crate) fn settings(&self, buffers: BufferOptions) -> SessionSettings {
        SessionSettings {
            buffers: buffers.plan().expect("sizes"),
            overwrite: buffers.overwrite,
            reserve: trackway_recorder::Reserve::Rseq,
            contexts: 0,
            rules: "app:*".into(),
            token: None,
            uuid: [7; 16],
            path: self.trace(),
        }
    }

    pub(crate) fn record(&self, buffers: BufferOptions) -> Recording {
        let mut recording =
            Recording::build(self.home(), &self.settings(buffers)).expect("a recording");
        recording.activate();
        recording
    }

    /// What a killed recorder leaves, seen by whoever comes next.
    pub(crate) fn kill(&self, recording: Recording) {
        drop(recording);
        let home = self.home();
        let index = home.window().active_sessions().next().expect("its session");
        home.window().session(index).recorder_pid.store(0, Ordering::Relaxed);
    }

    fn streams(&self) -> PathBuf {
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
        let bytes = std::fs::read(self.stream(name)).unwrap_or_default();
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
            assert!(word(72) >= contents.discarded, "losses only grow");
            contents.discarded = word(72);
            contents.end_ts = end;
            rest = &rest[packet..];
        }
        contents
    }
}

/// What a stream holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) values: Vec<u64>,
    pub(crate) sequences: Vec<u64>,
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
    id: u32,
    next: u64,
}

impl Writer {
    /// A writer of `app:value`, in the one session that is active.
    pub(crate) fn new(home: &Home) -> Self {
        let window = *home.window();
        let index = window.active_sessions().next().expect("an active session");
        let layout = SessionLayout::read(&window, index).expect("its layout");
        let mut buffer = [0; 256];
        let mut encoder = Encoder::new(&mut buffer, b"app", b"value", 6).expect("a name");
        encoder.field(b"n", Shape::Scalar, Some(Scalar::U64), 0, 0).expect("a field");
        let event = window.intern_event(encoder.finish()).expect("room") as usize;
        assert!(window.enable_if_selected(&layout, event, b"app", b"value"));
        let id = layout.id(&window, event).load(Ordering::Acquire) - 1;
        Self { window, layout, id, next: 0 }
    }

    /// Number and clock epoch of the open sub-buffer of one of CPU 0's regions.
    pub(crate) fn open_sub_buffer(&self, way: Way) -> (u64, u64) {
        let region = self.layout.region(&self.window, 0, way).expect("CPU 0");
        let index = region.geometry.index_of(region.expected() >> 1);
        let at = region.sub_buffer_offset(index).expect("it is backed");
        let mut epoch = [0; 8];
        let from = at + trackway_abi::region::sub_header::EPOCH as u64;
        MappedMemory(self.window).load(from, &mut epoch).expect("it is mapped");
        (index, u64::from_le_bytes(epoch))
    }

    /// Emits the next value; whether it found room. Counted if not.
    pub(crate) fn emit(&mut self, way: Way) -> bool {
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
        region.control.count_discarded();
        false
    }
}
