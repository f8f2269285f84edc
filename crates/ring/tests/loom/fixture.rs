//! The shared parts of the models: a window of few words, writers' steps, and a reader with checks.

use std::collections::BTreeMap;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use trackway_abi::region::{SUB_HEADER_BYTES, sub_header};
use trackway_ring::claim::Claim;
use trackway_ring::{
    Control, Damage, Drained, Geometry, Memory, Plan, Refusal, Region, claim, write_header,
};
use trackway_testkit::Records;

/// Body of a record: a value and its check. With the compact header, two words.
const BODY_BYTES: usize = 12;
/// Size of a record, in bytes.
pub(crate) const RECORD_BYTES: u64 = 16;
/// Start of the first record of a sub-buffer.
pub(crate) const FIRST_RECORD: u64 = SUB_HEADER_BYTES as u64;
/// Place from which on a sub-buffer has space for one record and not for two.
pub(crate) const ROOM_FOR_ONE: u64 = FIRST_RECORD + 8 * 496;
/// Time of the records before a model begins.
pub(crate) const BEGIN_TIME: u64 = 10;
/// Value for a writer that does not die: more steps than a commit has.
pub(crate) const NEVER_DIES: usize = usize::MAX;

/// Mistakes that a writer must not make in move 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// Commits without checking that the commit word is still the expected one.
    Unchecked,
    /// Stores the commit word first, then the bytes.
    CommitFirst,
    /// Stores the commit word last, but without Release.
    CommitRelaxed,
    /// Fills the slot that readers read.
    SameSlot,
    /// Omits the Release fence before the first store.
    Unfenced,
}

/// Shared words of eight bytes, at the few places that a model uses. At other places, loads return
/// zero and stores are lost.
pub(crate) struct Words(BTreeMap<u64, AtomicU64>);

impl Words {
    pub(crate) fn store(&self, at: u64, bytes: &[u8]) {
        for (place, word) in padded_words(bytes).enumerate() {
            if let Some(shared) = self.0.get(&(at + 8 * place as u64)) {
                shared.store(word, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        &self.0[&at]
    }
}

impl Memory for Words {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        for (place, bytes) in into.chunks_mut(8).enumerate() {
            let shared = self.0.get(&(at + 8 * place as u64));
            let word = shared.map_or(0, |shared| shared.load(Ordering::Relaxed));
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }
}

impl claim::Copy for Words {
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for `bytes` readable bytes.
        self.store(at, unsafe { std::slice::from_raw_parts(source, bytes) });
    }
}

fn padded_words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// A region, its memory, and the CPU that its sequences run on.
pub(crate) struct Fixture {
    pub(crate) control: Control,
    table: Vec<AtomicU32>,
    geometry: Geometry,
    pub(crate) memory: Words,
    /// Lock that is held during a sequence: sequences of one CPU are atomic for each other.
    pub(crate) cpu: Mutex<()>,
    /// The session's generation.
    pub(crate) generation: AtomicU64,
}

impl Fixture {
    /// Makes a ring of `2^count_shift` sub-buffers with memory, of which the first is open and has
    /// `within` bytes. `records` records can be distinguished at the start of each sub-buffer and
    /// at `LAST`.
    pub(crate) fn new(count_shift: u32, within: u64, records: u64) -> Self {
        let geometry = Geometry::new(12, count_shift).unwrap();
        let mut places = BTreeMap::new();
        for place in 1..=geometry.sub_count() {
            let base = place << 12;
            // Index, begin, and the fields that close the sub-buffer before.
            let header = (0..sub_header::DISCARDED as u64).step_by(8);
            let first = (FIRST_RECORD..FIRST_RECORD + records * RECORD_BYTES).step_by(8);
            let last = (ROOM_FOR_ONE..ROOM_FOR_ONE + RECORD_BYTES).step_by(8);
            for at in header.chain(first).chain(last) {
                places.insert(base + at, AtomicU64::new(0));
            }
        }
        let table = (0..geometry.sub_count()).map(|slot| AtomicU32::new(slot as u32 + 1)).collect();
        let fixture = Self {
            control: Control::new(),
            table,
            geometry,
            memory: Words(places),
            cpu: Mutex::new(()),
            generation: AtomicU64::new(1),
        };
        fixture.memory.word(4096 + sub_header::BEGIN as u64).store(BEGIN_TIME, Ordering::Relaxed);
        fixture.control.slots[0].last_ts.store(BEGIN_TIME, Ordering::Relaxed);
        fixture.control.limit.store(u64::MAX, Ordering::Relaxed);
        fixture.control.commit.store(within << 1, Ordering::Relaxed);
        fixture
    }

    pub(crate) fn region(&self) -> Region<'_> {
        Region { control: &self.control, table: &self.table, geometry: self.geometry }
    }

    /// Plans a record of `value`, in a new sub-buffer if necessary. Returns the plan and its bytes.
    pub(crate) fn plan(&self, value: u32, now: u64) -> Result<(Plan, Vec<u8>, bool), Refusal> {
        let region = self.region();
        let expected = region.expected();
        match region.plan_record(expected, now, 1, BODY_BYTES) {
            Ok((plan, header_bytes)) => {
                Ok((plan, stage_record(value, plan.timestamp, header_bytes), true))
            }
            Err(Refusal::Switch) => {
                let (plan, header) = region.plan_switch(expected, now, 0)?;
                Ok((plan, header[..SUB_HEADER_BYTES].to_vec(), false))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Plans the opening of the next sub-buffer.
    pub(crate) fn plan_switch(&self, now: u64) -> Result<(Plan, Vec<u8>), Refusal> {
        let (plan, header) = self.region().plan_switch(self.region().expected(), now, 0)?;
        Ok((plan, header[..SUB_HEADER_BYTES].to_vec()))
    }

    /// Commits (move 3) by the claim's own code, or in steps with a `mistake`.
    pub(crate) fn commit_claimed(
        &self,
        claim: &Claim<'_>,
        plan: &Plan,
        bytes: &[u8],
        mistake: Mistake,
    ) {
        if mistake == Mistake::None {
            // SAFETY: `Words::copy` reads these bytes and no more.
            unsafe { claim.commit(plan, &self.memory, bytes.as_ptr(), bytes.len()) };
        } else {
            assert!(self.commit(plan, bytes, mistake, NEVER_DIES));
        }
    }

    /// Commits (move 3) in steps, with one `mistake`, by a writer that dies after `steps` of them.
    pub(crate) fn commit(
        &self,
        plan: &Plan,
        bytes: &[u8],
        mistake: Mistake,
        mut steps: usize,
    ) -> bool {
        let control = &self.control;
        if mistake != Mistake::Unchecked && control.commit.load(Ordering::Relaxed) != plan.expected
        {
            return false;
        }
        if mistake != Mistake::Unfenced {
            // ORDERING: as in `Claim::commit`; in sequences every store is a Release (x86-64), or a
            // barrier stands here (AArch64).
            fence(Ordering::Release);
        }
        if mistake == Mistake::CommitFirst {
            control.commit.store(plan.next, Ordering::Release);
        }
        let mut lives_on = move || {
            steps = steps.saturating_sub(1);
            steps > 0
        };
        for (place, word) in padded_words(bytes).enumerate() {
            if !lives_on() {
                return false;
            }
            self.memory.store(plan.at + 8 * place as u64, &word.to_le_bytes());
        }
        let slot = if mistake == Mistake::SameSlot { plan.expected } else { plan.next };
        let slot = &control.slots[(slot & 1) as usize];
        if !lives_on() {
            return false;
        }
        slot.last_ts.store(plan.timestamp, Ordering::Relaxed);
        if !lives_on() {
            return false;
        }
        slot.events.store(plan.events, Ordering::Relaxed);
        if !lives_on() {
            return false;
        }
        let relaxed = mistake == Mistake::CommitRelaxed;
        let ordering = if relaxed { Ordering::Relaxed } else { Ordering::Release };
        if mistake != Mistake::CommitFirst {
            control.commit.store(plan.next, ordering);
        }
        true
    }
}

fn stage_record(value: u32, timestamp: u64, header_bytes: usize) -> Vec<u8> {
    let mut staged = vec![0; 13];
    staged.extend_from_slice(&value.to_le_bytes());
    staged.extend_from_slice(&checksum_of(value).to_le_bytes());
    // SAFETY: the thirteen bytes before the body are ours.
    unsafe { write_header(staged.as_mut_ptr().add(13), 1, timestamp, header_bytes) };
    staged.split_off(13 - header_bytes)
}

fn checksum_of(value: u32) -> u64 {
    u64::from(value).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The records that came out of a region.
pub(crate) struct Reader {
    pub(crate) drained: Drained,
    /// Values of records, in order.
    pub(crate) values: Vec<u32>,
}

impl Reader {
    /// Begins at the position where [`Fixture::new`] begins to write.
    pub(crate) fn new(within: u64) -> Self {
        let drained = Drained { position: within, last_ts: BEGIN_TIME, ..Drained::default() };
        Self { drained, values: Vec::new() }
    }

    /// Takes all pieces. Any contradiction ends the model.
    pub(crate) fn drain(&mut self, fixture: &Fixture) {
        let snapshot = fixture.region().snapshot().expect("head is where a writer left it");
        while self.take_piece(fixture, &snapshot).expect("headers are what a writer wrote") {}
    }

    /// Takes a piece, if there is one.
    pub(crate) fn take_piece(
        &mut self,
        fixture: &Fixture,
        snapshot: &trackway_ring::Snapshot,
    ) -> Result<bool, Damage> {
        let region = fixture.region();
        let Some(piece) = region.next_piece(&fixture.memory, &self.drained, snapshot, true)? else {
            return Ok(false);
        };
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        region.copy(&fixture.memory, &piece, &mut bytes)?;
        let (mut last_ts, mut count) = (piece.begin_ts, 0);
        for record in Records::new(&bytes, piece.begin_ts, |_, _| Some(BODY_BYTES)) {
            let (value, check) = record.body.split_at(4);
            let value = u32::from_le_bytes(value.try_into().unwrap());
            assert_eq!(check, checksum_of(value).to_le_bytes(), "a torn record");
            assert!(record.header.timestamp_ns >= last_ts, "time went backward");
            last_ts = record.header.timestamp_ns;
            count += 1;
            self.values.push(value);
        }
        assert_eq!(count, piece.events - piece.events_before, "events were miscounted");
        assert_eq!(count * RECORD_BYTES, piece.end - piece.start);
        assert_eq!(last_ts, piece.end_ts, "the packet ends at another time");
        self.drained = Drained {
            position: piece.resume,
            last_ts: piece.end_ts,
            events: piece.events,
            ..self.drained
        };
        Ok(true)
    }

    /// Asserts that exactly these values came out, in any order.
    pub(crate) fn assert_took(&self, expected: impl IntoIterator<Item = u32>) {
        let (mut took, mut expected) = (self.values.clone(), Vec::from_iter(expected));
        took.sort_unstable();
        expected.sort_unstable();
        assert_eq!(took, expected, "records are lost or twice there");
    }
}

/// Checks that `model` holds for every interleaving.
pub(crate) fn assert_model_holds(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // LOOM_MAX_PREEMPTIONS can raise this number; two find every seeded bug in seconds.
    builder.preemption_bound.get_or_insert(2);
    builder.check(model);
}

/// Checks that loom catches `model`, which has a bug, by an assertion about the ring.
pub(crate) fn assert_model_fails(model: impl Fn() + Sync + Send + 'static) {
    let message = failure_message(move || assert_model_holds(model));
    let by_loom = ["deadlock", "branches", "Causality"].iter().any(|word| message.contains(word));
    assert!(!by_loom, "caught for another reason: {message}");
}

/// Returns the message of a check that fails.
pub(crate) fn failure_message(check: impl FnOnce() + Send + 'static) -> String {
    let caught = std::thread::spawn(check).join().expect_err("the bug was missed");
    let text = caught.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| caught.downcast_ref::<String>().cloned()).unwrap_or_default()
}
