//! A window in a vector, writers and a recorder as plain steps, and the model with which they must
//! agree: a list of committed records and a few numbers.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use trackway_testkit::Records;

use crate::claim::{self, Claim};
use crate::{
    Control, Damage, Drained, Geometry, Memory, Piece, Plan, Refusal, Region, Snapshot, SubHeader,
    write_header,
};

/// Longest header, and free bytes after a record: stated again, because this is an oracle.
const LONGEST_HEADER: usize = 13;
const FREE_BEHIND: usize = 8;
/// Bytes of a sub-buffer's header.
const SUB_HEADER: u64 = 84;
/// The byte that fills freed memory.
const FREED_BYTE: u8 = 0xee;
/// Shortest body: its length (u16) and number (u32).
pub(super) const BODY_BYTES_MIN: usize = 6;

/// The window's memory, in small pieces, because Miri's cost of an access grows with the size of
/// the allocation.
pub(super) struct Pages(Vec<Box<[AtomicU8]>>);

const PIECE: usize = 64;

impl Pages {
    pub(super) fn new(bytes: u64) -> Self {
        let piece = |_| (0..PIECE).map(|_| AtomicU8::new(0)).collect();
        Self((0..bytes / PIECE as u64).map(piece).collect())
    }

    pub(super) fn byte(&self, at: usize) -> &AtomicU8 {
        &self.0[at / PIECE][at % PIECE]
    }

    pub(super) fn store(&self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at as usize..).zip(bytes) {
            self.byte(at).store(*byte, Ordering::Relaxed);
        }
    }
}

impl Memory for Pages {
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), Damage> {
        let end = usize::try_from(at).ok().and_then(|at| at.checked_add(into.len()));
        if end.is_none_or(|end| end > self.0.len() * PIECE) {
            return Err(Damage::Table(at));
        }
        for (at, byte) in (at as usize..).zip(into) {
            *byte = self.byte(at).load(Ordering::Relaxed);
        }
        Ok(())
    }
}

impl claim::Copy for Pages {
    unsafe fn copy(&self, at: u64, source: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for `bytes` readable bytes, rounded up to eight.
        let source = unsafe { std::slice::from_raw_parts(source, bytes.next_multiple_of(8)) };
        self.store(at, source);
    }
}

/// The fate of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Plain steps commit the record.
    Committed,
    /// The claim's own code commits the record.
    Claimed,
    /// The writer dies after copying so many bytes, and after half of the slot if all were copied.
    Killed(u16),
    /// A signal handler records between plan and commit: the plan must fail, and is made again.
    Overtaken,
}

/// One step of a history.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A writer emits a record, `gap` ns after the step before.
    Record { id: u32, body_bytes: usize, gap: i64, fate: Fate },
    /// A writer opens the next sub-buffer; a new clock epoch, perhaps.
    Switch { gap: i64, new_epoch: bool },
    /// A switch is planned, a record is discarded, then the switch is committed.
    LateSwitch,
    /// The writer of a switch dies after copying the header.
    KilledSwitch,
    /// A record is given up without a plan.
    Discard,
    /// The recorder adds memory.
    Grow,
    /// The recorder takes up to `pieces` pieces, the open sub-buffer too if `partial`.
    Drain { pieces: u8, partial: bool },
    /// The recorder gives drained memory to later places.
    Recycle,
}

/// A committed record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    id: u32,
    timestamp: u64,
    body: Vec<u8>,
}

/// A sub-buffer that was opened, and the state at that moment.
#[derive(Debug, Clone, Copy)]
struct Opened {
    begin: u64,
    prev_end: u64,
    content: u64,
    events: u64,
    discarded: u64,
    epoch: u64,
}

/// The expected state, computed without the code under test.
#[derive(Debug, Default)]
struct Model {
    head: u64,
    last_ts: u64,
    limit: u64,
    epoch: u64,
    discarded: u64,
    emitted: u64,
    committed: Vec<Event>,
    opened: Vec<Opened>,
}

/// The simulated machine.
pub(super) struct Simulator {
    pub(super) control: Control,
    pub(super) table: Vec<AtomicU32>,
    pub(super) geometry: Geometry,
    pub(super) pages: Pages,
    overwrite: bool,
    now: u64,
    /// Places of sub-buffers that are not in use, and the number of all places.
    free: Vec<u64>,
    places: u64,
    /// First sub-buffer whose memory was not given back yet.
    first_held: u64,
    drained: Drained,
    discarded_reported: u64,
    model: Model,
}

impl Simulator {
    /// Makes a region with memory for `backed` of its sub-buffers.
    pub(super) fn new(sub_shift: u32, count_shift: u32, backed: u64, overwrite: bool) -> Self {
        let geometry = Geometry::new(sub_shift, count_shift).unwrap();
        let mut simulator = Self {
            control: Control::new(),
            table: (0..geometry.sub_count()).map(|_| AtomicU32::new(0)).collect(),
            geometry,
            // The first place stays unused: 0 means "nowhere".
            pages: Pages::new(geometry.sub_bytes() * (geometry.sub_count() + 1)),
            overwrite,
            now: 1_000_000_000_000,
            free: Vec::new(),
            places: 0,
            first_held: 0,
            drained: Drained::default(),
            discarded_reported: 0,
            model: Model::default(),
        };
        for _ in 0..backed {
            simulator.run(&Step::Grow);
        }
        simulator
    }

    pub(super) fn region(&self) -> Region<'_> {
        Region { control: &self.control, table: &self.table, geometry: self.geometry }
    }

    /// Makes one step.
    pub(super) fn run(&mut self, step: &Step) {
        match *step {
            Step::Record { id, body_bytes, gap, fate } => {
                self.pass(gap);
                self.emit(id, body_bytes, fate);
            }
            Step::Switch { gap, new_epoch } => {
                self.pass(gap);
                self.model.epoch += u64::from(new_epoch);
                self.switch(false);
            }
            Step::LateSwitch => {
                self.switch(true);
            }
            Step::KilledSwitch => {
                let expected = self.region().expected();
                if let Ok((plan, header)) = self.region().plan_switch(expected, self.now, 0) {
                    self.copy_part(&plan, &header, header.len());
                }
            }
            Step::Discard => self.discard(),
            Step::Grow => self.grow(),
            Step::Drain { pieces, partial } => {
                if !self.overwrite {
                    self.drain(pieces, partial);
                }
            }
            Step::Recycle => self.recycle(),
        }
        assert_eq!(self.control.commit.load(Ordering::Relaxed) >> 1, self.model.head);
    }

    /// Reads the remaining records and compares all counts.
    pub(super) fn finish(&mut self) {
        let read = if self.overwrite {
            self.read_newest()
        } else {
            self.drain(u8::MAX, true);
            // After an open sub-buffer is drained, no piece is left.
            assert_eq!(self.next_piece(true), None);
            self.drained.events
        };
        let model = &self.model;
        let overwritten = model.committed.len() as u64 - read;
        assert!(self.overwrite || overwritten == 0);
        assert_eq!(self.control.discarded.load(Ordering::Relaxed), model.discarded);
        assert_eq!(read + overwritten + model.discarded, model.emitted);
    }

    fn pass(&mut self, gap: i64) {
        self.now = self.now.saturating_add_signed(gap);
    }

    fn discard(&mut self) {
        self.control.count_discarded(crate::Discard::Full);
        self.model.discarded += 1;
        self.model.emitted += 1;
    }
}

/// Writers.
impl Simulator {
    fn emit(&mut self, id: u32, body_bytes: usize, fate: Fate) {
        let body = make_body(self.model.emitted as u32, body_bytes);
        // A record is tried once in the open sub-buffer and once in a new one.
        for _ in 0..2 {
            let expected = self.region().expected();
            match self.region().plan_record(expected, self.now, id, body.len()) {
                Ok((plan, header_bytes)) => {
                    assert!(self.fits_open(body.len()) && self.below_limit(body.len()));
                    self.finish_record(id, &body, &plan, header_bytes, fate);
                    return;
                }
                Err(Refusal::Switch) => {
                    assert!(!self.fits_open(body.len()), "there was room");
                    if !self.switch(false) {
                        break;
                    }
                }
                Err(Refusal::Full) => {
                    assert!(!self.below_limit(body.len()), "the limit was not reached");
                    break;
                }
                Err(Refusal::NotBacked) => panic!("memory was there below the limit"),
            }
        }
        self.discard();
    }

    fn fits_open(&self, body_bytes: usize) -> bool {
        let used = self.model.head % self.geometry.sub_bytes();
        let needed = (LONGEST_HEADER + body_bytes + FREE_BEHIND) as u64;
        self.model.head != 0 && used + needed <= self.geometry.sub_bytes()
    }

    fn below_limit(&self, body_bytes: usize) -> bool {
        self.model.head + (LONGEST_HEADER + body_bytes + FREE_BEHIND) as u64 <= self.model.limit
    }

    fn finish_record(
        &mut self,
        id: u32,
        body: &[u8],
        plan: &Plan,
        header_bytes: usize,
        fate: Fate,
    ) {
        let staged = stage_record(id, body, plan.timestamp, header_bytes);
        let bytes = header_bytes + body.len();
        assert_eq!(plan.next >> 1, self.model.head + bytes as u64);
        match fate {
            Fate::Killed(copied) => {
                self.copy_part(plan, &staged[..bytes], usize::from(copied));
                return;
            }
            Fate::Overtaken => {
                let before = self.model.head;
                self.emit(29, BODY_BYTES_MIN, Fate::Committed);
                let overtaken = self.model.head != before;
                assert_eq!(self.commit(plan, &staged, bytes), !overtaken);
                if overtaken {
                    self.emit(id, body.len(), Fate::Committed);
                    return;
                }
            }
            Fate::Claimed => self.commit_claimed(plan, &staged, bytes),
            Fate::Committed => assert!(self.commit(plan, &staged, bytes)),
        }
        let timestamp = self.now.max(self.model.last_ts);
        assert_eq!(plan.timestamp, timestamp);
        self.model.last_ts = timestamp;
        self.model.head += bytes as u64;
        self.model.emitted += 1;
        self.model.committed.push(Event { id, timestamp, body: body.to_vec() });
        assert_eq!(plan.events, self.model.committed.len() as u64);
    }

    /// Commits (move 3) like a restartable sequence.
    fn commit(&self, plan: &Plan, staged: &[u8], bytes: usize) -> bool {
        if self.control.commit.load(Ordering::Relaxed) != plan.expected {
            return false;
        }
        self.pages.store(plan.at, &staged[..bytes.next_multiple_of(8)]);
        let slot = &self.control.slots[(plan.next & 1) as usize];
        slot.last_ts.store(plan.timestamp, Ordering::Relaxed);
        slot.events.store(plan.events, Ordering::Relaxed);
        self.control.commit.store(plan.next, Ordering::Relaxed);
        true
    }

    fn commit_claimed(&self, plan: &Plan, staged: &[u8], bytes: usize) {
        let claim = Claim::take(self.region(), 7).expect("nobody else claims");
        assert!(Claim::take(self.region(), 8).is_none());
        // SAFETY: `staged` has whole words behind `bytes`.
        unsafe { claim.commit(plan, &self.pages, staged.as_ptr(), bytes) };
        drop(claim);
        assert_eq!(self.control.owner.load(Ordering::Relaxed), 0);
    }

    /// Leaves the traces of a writer that died or was aborted: bytes beyond `head`, half a slot.
    fn copy_part(&self, plan: &Plan, bytes: &[u8], copied: usize) {
        self.pages.store(plan.at, &bytes[..copied.min(bytes.len())]);
        if copied >= bytes.len() {
            let slot = &self.control.slots[(plan.next & 1) as usize];
            slot.last_ts.store(u64::MAX, Ordering::Relaxed);
        }
    }

    fn switch(&mut self, late: bool) -> bool {
        let expected = self.region().expected();
        let sub_bytes = self.geometry.sub_bytes();
        let index = self.model.opened.len() as u64;
        let allowed = (index + 1) * sub_bytes <= self.model.limit;
        let planned = self.region().plan_switch(expected, self.now, self.model.epoch);
        let (plan, header): (Plan, SubHeader) = match planned {
            Ok(planned) => planned,
            Err(refusal) => {
                assert!(refusal == Refusal::Full && !allowed);
                return false;
            }
        };
        assert!(allowed, "the limit was passed");
        let begin = self.now.max(self.model.last_ts);
        let model = &mut self.model;
        model.opened.push(Opened {
            begin,
            prev_end: model.last_ts,
            content: model.head,
            events: model.committed.len() as u64,
            discarded: model.discarded,
            epoch: model.epoch,
        });
        model.last_ts = begin;
        model.head = index * sub_bytes + SUB_HEADER;
        if late {
            self.discard();
        }
        assert!(self.commit(&plan, &header, SUB_HEADER as usize));
        true
    }
}

/// The recorder.
impl Simulator {
    fn grow(&mut self) {
        if self.places < self.geometry.sub_count() {
            self.places += 1;
            self.free.push(self.places * self.geometry.sub_bytes());
            self.raise();
        }
    }

    /// Gives free memory to the next places, as far as the ring reaches.
    fn raise(&mut self) {
        let count = self.geometry.sub_count();
        let mut next = self.model.limit / self.geometry.sub_bytes();
        while next < self.first_held + count {
            let Some(place) = self.free.pop() else { break };
            self.region().back(next, place);
            next += 1;
        }
        let whole = self.overwrite && next == count;
        self.model.limit = if whole { u64::MAX } else { next * self.geometry.sub_bytes() };
        self.region().raise_limit(self.model.limit);
    }

    fn recycle(&mut self) {
        if self.overwrite {
            return;
        }
        while self.first_held < self.geometry.index_of(self.drained.position) {
            let place = self.region().sub_buffer_offset(self.first_held).unwrap();
            self.region().back(self.first_held, 0);
            let filler = vec![FREED_BYTE; self.geometry.sub_bytes() as usize];
            self.pages.store(place, &filler);
            // Reuses another place than the one freed last, so that memory moves.
            self.free.insert(0, place);
            self.first_held += 1;
        }
        self.raise();
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.region().snapshot().unwrap();
        assert_eq!(snapshot.head, self.model.head);
        assert_eq!(snapshot.last_ts, Some(self.model.last_ts));
        assert_eq!(snapshot.events, Some(self.model.committed.len() as u64));
        assert_eq!(snapshot.discarded, self.model.discarded);
        snapshot
    }

    fn next_piece(&self, partial: bool) -> Option<Piece> {
        self.region().next_piece(&self.pages, &self.drained, &self.snapshot(), partial).unwrap()
    }

    fn drain(&mut self, pieces: u8, partial: bool) {
        for _ in 0..pieces {
            let Some(piece) = self.next_piece(partial) else { return };
            self.check_piece(&piece, &self.drained.clone());
            let reported = self.discarded_reported.max(piece.discarded);
            assert!(reported <= self.model.discarded);
            self.discarded_reported = reported;
            self.drained = Drained {
                position: piece.resume,
                file_bytes: self.drained.file_bytes + (piece.end - piece.start),
                packets: self.drained.packets + 1,
                file: self.drained.packets % 7,
                last_ts: piece.end_ts,
                events: piece.events,
            };
            self.control.set_drained(self.drained);
            assert_eq!(self.control.drained(), self.drained);
        }
    }

    /// Compares a piece and its bytes with the model.
    fn check_piece(&self, piece: &Piece, from: &Drained) {
        let geometry = self.geometry;
        let index = geometry.index_of(piece.start);
        let opened = self.model.opened[index as usize];
        let next = self.model.opened.get(index as usize + 1);
        let fresh = geometry.within(from.position) == 0;
        assert_eq!(piece.begin_ts, if fresh { opened.begin } else { from.last_ts });
        assert_eq!(piece.epoch, opened.epoch);
        assert!(piece.resume > from.position);
        let model = &self.model;
        let (end, end_ts, events, discarded) = match next {
            Some(next) => (next.content, next.prev_end, next.events, next.discarded),
            None => (model.head, model.last_ts, model.committed.len() as u64, model.discarded),
        };
        let expected = (end, end_ts, events, discarded);
        assert_eq!((piece.end, piece.end_ts, piece.events, piece.discarded), expected);

        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        self.region().copy(&self.pages, piece, &mut bytes).unwrap();
        let mut records = Records::new(&bytes, piece.begin_ts, |_, body| {
            Some(usize::from(u16::from_le_bytes(body.get(..2)?.try_into().ok()?)))
        });
        let decoded: Vec<_> = records
            .by_ref()
            .map(|record| Event {
                id: record.header.id,
                timestamp: record.header.timestamp_ns,
                body: record.body.to_vec(),
            })
            .collect();
        assert!(records.is_whole());
        let range = piece.events_before as usize..piece.events as usize;
        assert_eq!(decoded, self.model.committed[range]);
    }

    /// Reads the present records of a flight recorder. Returns their number.
    fn read_newest(&self) -> u64 {
        let region = self.region();
        let snapshot = self.snapshot();
        let oldest = region.oldest_index(snapshot.head);
        assert!(oldest == 0 || !region.still_valid(oldest - 1));
        let mut from =
            Drained { position: oldest * self.geometry.sub_bytes(), ..Drained::default() };
        let mut first = None;
        while let Some(piece) = region.next_piece(&self.pages, &from, &snapshot, true).unwrap() {
            self.check_piece(&piece, &from);
            assert!(region.still_valid(self.geometry.index_of(piece.start)));
            first.get_or_insert(piece.events_before);
            from.position = piece.resume;
        }
        self.model.committed.len() as u64 - first.unwrap_or(0)
    }
}

/// Makes a body: its length, its number, then bytes that follow from these.
fn make_body(number: u32, bytes: usize) -> Vec<u8> {
    let length = bytes.max(BODY_BYTES_MIN);
    let mut body = vec![0; length];
    trackway_testkit::Random::new(u64::from(number)).fill(&mut body);
    body[..2].copy_from_slice(&(length as u16).to_le_bytes());
    body[2..6].copy_from_slice(&number.to_le_bytes());
    body
}

/// Stages header and body like a writer, with readable bytes after them.
fn stage_record(id: u32, body: &[u8], timestamp: u64, header_bytes: usize) -> Vec<u8> {
    let mut staged = vec![0; LONGEST_HEADER];
    staged.extend_from_slice(body);
    staged.extend_from_slice(&[0xff; FREE_BEHIND]);
    // SAFETY: the bytes before the body are ours, and as many as the longest header has.
    unsafe { write_header(staged.as_mut_ptr().add(LONGEST_HEADER), id, timestamp, header_bytes) };
    staged.split_off(LONGEST_HEADER - header_bytes)
}
