//! Draining one region: from its ring to its stream, exactly once.
//!
//! Longer than 600 lines: drained, lost and written records are one state, whose sums must agree.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trackway_ctf::write::PACKET_HEADER_BYTES;
use trackway_ring::claim::Claim;
use trackway_ring::{Damage, Drained, Memory, Piece, Region, Snapshot};
use trackway_session::{Backing, BufferUsage, Shortage, Tracefiles};
use trackway_window::{NOT_OF_SESSION, WriterPath, reset_region};

use crate::recording::lockless::Lockless;
use crate::trace::layout::Trace;
use crate::trace::loss_history::Losses;
use crate::trace::stream::{Packet, Stream, StreamId};

/// Longest distance of a record's time into the future before it counts as damaged, in ns: clock
/// lines of writers may be that much ahead.
pub(crate) const FUTURE_NS_MAX: u64 = 1_000_000_000;
/// Most attempts of a snapshot to copy a buffer whose writers overwrite it before any part is
/// copied.
const SNAPSHOT_TRIES_MAX: usize = 100;
/// Smallest record, in bytes.
pub(crate) const RECORD_BYTES_MIN: u64 = 4;

/// A region, with the recorder's state for it. Progress is kept here, not believed from the window.
#[derive(Debug)]
pub(crate) struct RegionDrain {
    pub(crate) region: RegionRef,
    names: Arc<StreamNames>,
    pub(crate) cpu: u32,
    pub(crate) way: WriterPath,
    pub(crate) backing: Backing,
    pub(crate) drained: Drained,
    pub(crate) stream: Option<Stream>,
    /// Limits of the stream's files.
    tracefiles: Tracefiles,
    /// Its state at the latest poll; `None`: it was damaged.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) overwrite: bool,
    /// Records written to the stream.
    pub(crate) written: u64,
    /// Records that were overwritten before they could be written.
    pub(crate) overwritten: u64,
    /// Sub-buffers that made no sense.
    pub(crate) damaged: u64,
    /// True if it is left alone, because its control lines are damaged, or it is another session's.
    pub(crate) given_up: bool,
    /// Sub-buffers missing before the next packet.
    missing: u64,
    /// Owner word at the latest check for dead claimers.
    pub(crate) owner_seen: u64,
    /// The buffer that is written instead of it, in a session of such.
    pub(crate) lockless: Option<Lockless>,
    /// Counts of records from before the latest clear, which its numbers exclude.
    pub(crate) forgotten: ClearedCounts,
    /// Losses that no control line counts, so far: the stream reports them as its own.
    pub(crate) lost_uncounted: u64,
    /// Number of these losses that were committed, and will not be written.
    unwritten: u64,
    /// Losses over time, by the control line and in addition to it.
    losses: Losses<(u64, u64)>,
    /// True if its progress is not published: for a snapshot, which is read beside the recording,
    /// or for a recovery into another trace, which counts only once it is complete.
    is_unpublished: bool,
    /// Packets that end before this time are passed over, ns.
    since_ts: u64,
    /// True if the part to be copied last was overwritten before it was copied.
    is_overtaken: bool,
    /// The size that would have prevented all losses.
    shortage: Shortage,
    /// Discarded records at the latest clear that no larger region would have kept.
    forgotten_hopeless: UnavoidableLosses,
    /// Its position at the latest clear.
    forgotten_position: u64,
}

/// Records that a larger region would not have kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnavoidableLosses {
    /// All of them.
    pub(crate) events: u64,
    /// Number of records of processes that have not mapped all memory of the window.
    pub(crate) unmapped: u64,
}

/// Counts as they were when a session was cleared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClearedCounts {
    pub(crate) events: u64,
    pub(crate) discarded: u64,
}

/// The state of a region after it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseKind {
    /// Never.
    ForGood,
    /// The next record may be one of the sub-buffer that is open: its packet begins where the one
    /// before ended.
    ForNow,
}

/// Names of a channel's streams.
#[derive(Debug)]
pub(crate) struct StreamNames {
    /// Their class in the metadata.
    pub(crate) class: u32,
    /// Prefix of their files' names.
    pub(crate) files: String,
    /// Streams of the class that are of other names, and count before these.
    pub(crate) instances_before: u64,
}

impl StreamNames {
    /// Returns the names of the streams of `channel` in this class. The class changes each time
    /// that the channel gets other contexts or sizes. The first class is omitted from the names,
    /// unless the channel's name ends like one with a class.
    pub(crate) fn new(channel: &str, class: u32) -> Self {
        let is_number = |end: &str| !end.is_empty() && end.bytes().all(|end| end.is_ascii_digit());
        let is_like_another = channel.rsplit_once('-').is_some_and(|(_, end)| is_number(end));
        let files = match class {
            0 if !is_like_another => channel.to_owned(),
            _ => format!("{channel}-{class}"),
        };
        Self { class, files, instances_before: 0 }
    }
}

/// A region; its `Debug` shows no contents, which other processes write.
#[derive(Clone, Copy)]
pub(crate) struct RegionRef(pub(crate) Region<'static>);

impl core::fmt::Debug for RegionRef {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Region")
    }
}

/// Context of draining, in addition to the region.
pub(crate) struct DrainContext<'a, M> {
    pub(crate) memory: &'a M,
    pub(crate) trace: &'a Trace,
    /// Time at which the session began, ns.
    pub(crate) begin_ts: u64,
    /// Take sub-buffers that are still open, too.
    pub(crate) partial: bool,
    /// No writer is left: records that cannot be read now never can.
    pub(crate) is_last: bool,
    /// Room for a packet.
    pub(crate) buffer: &'a mut Vec<u8>,
}

impl RegionDrain {
    pub(crate) fn new(
        region: Region<'static>,
        names: Arc<StreamNames>,
        cpu: u32,
        way: WriterPath,
        overwrite: bool,
    ) -> Self {
        let geometry = region.geometry;
        let mut drained = Drained::default();
        if region.control.drained().position == NOT_OF_SESSION {
            drained.position = NOT_OF_SESSION;
        }
        Self {
            region: RegionRef(region),
            names,
            cpu,
            way,
            backing: Backing::new(geometry.sub_shift(), geometry.sub_count(), overwrite),
            drained,
            stream: None,
            tracefiles: Tracefiles::default(),
            snapshot: None,
            overwrite,
            written: 0,
            overwritten: 0,
            damaged: 0,
            given_up: false,
            missing: 0,
            owner_seen: 0,
            lockless: None,
            forgotten: ClearedCounts {
                discarded: region.control.forgotten.load(Ordering::Relaxed),
                ..ClearedCounts::default()
            },
            lost_uncounted: 0,
            losses: Losses::default(),
            unwritten: 0,
            is_unpublished: false,
            since_ts: 0,
            is_overtaken: false,
            shortage: Shortage::default(),
            forgotten_hopeless: UnavoidableLosses::default(),
            forgotten_position: 0,
        }
    }

    /// Returns the same region for a snapshot: records from the recording's position on, and newer
    /// than `since_ts` (ns).
    pub(crate) fn snapshot_view(&self, since_ts: u64) -> Self {
        let Self { region: RegionRef(region), cpu, way, overwrite, .. } = *self;
        let beside = Self::new(region, Arc::clone(&self.names), cpu, way, overwrite);
        let drained = Drained { file_bytes: 0, packets: 0, file: 0, ..self.drained };
        let (given_up, forgotten) = (self.given_up, self.forgotten);
        let lost_uncounted = self.lost_uncounted;
        // So a sub-buffer's packet has the same number in all snapshots.
        let missing = region.geometry.index_of(drained.position);
        let of_ours = Self { drained, given_up, forgotten, missing, lost_uncounted, ..beside };
        Self { is_unpublished: true, since_ts, ..of_ours }
    }

    /// Cuts its stream into such files; also recorded for recovery.
    pub(crate) fn cut_into_files(&mut self, tracefiles: Tracefiles) {
        let control = self.region.0.control;
        control.tracefile_bytes.store(tracefiles.size_bytes, Ordering::Relaxed);
        control.tracefile_count.store(tracefiles.count, Ordering::Relaxed);
        self.tracefiles = tracefiles;
    }

    /// Reopens its stream at the progress of a dead recorder.
    pub(crate) fn reopen_stream(&mut self, trace: &Trace) -> io::Result<()> {
        let control = self.region.0.control;
        self.drained = control.drained();
        self.tracefiles = Tracefiles {
            size_bytes: control.tracefile_bytes.load(Ordering::Relaxed),
            count: control.tracefile_count.load(Ordering::Relaxed),
        };
        let Drained { file_bytes, packets, .. } = self.drained;
        if (file_bytes, packets) != (0, 0) {
            let (place, id) = (&trace.channel, self.stream_id(trace.uuid));
            let (bounds, drained) = (self.tracefiles, &self.drained);
            self.stream = Stream::reopen(place, &self.name(), bounds, id, drained)?;
        }
        Ok(())
    }

    /// Continues after the progress of a dead recorder, in a stream of a new trace. The progress in
    /// the window stays that of the other trace's stream.
    pub(crate) fn begin_new_trace(&mut self) {
        self.drained = self.region.0.control.drained();
        self.stream = None;
        // Where the other one's stream cannot be continued, a new one can be begun.
        (self.given_up, self.damaged) = (false, 0);
        self.is_unpublished = true;
    }

    /// Leaves all records to the next recovery into another trace, if this one cannot be written.
    pub(crate) fn leave_to_recovery(&self) {
        if let Some(lockless) = self.lockless.as_ref().filter(|_| self.is_unpublished) {
            lockless.restore_taken();
        }
    }

    /// Passes over all that is there, after writers were kept out, as if it had never been, and
    /// lets go of the stream.
    pub(crate) fn discard_recorded(&mut self) {
        self.poll();
        self.shortage = Shortage::after_losses(self.discarded_for_space_ever());
        self.forgotten_hopeless = self.unavoidable_losses_ever();
        self.region.0.control.oversized_bytes.store(0, Ordering::Relaxed);
        if !self.given_up {
            // Also in a region of an earlier claimer, in which others' losses are counted.
            self.forgotten.discarded = self.forgotten.discarded.saturating_add(self.discarded());
            // For recovery.
            let forgotten = &self.region.0.control.forgotten;
            forgotten.store(self.forgotten.discarded, Ordering::Relaxed);
        }
        let Some(snapshot) = self.snapshot else { return };
        self.forgotten.events = snapshot.events.unwrap_or(self.drained.events);
        (self.stream, self.missing) = (None, 0);
        (self.written, self.overwritten, self.damaged) = (0, 0, 0);
        match self.lockless.take() {
            Some(mut lockless) => {
                self.drained.position = lockless.skip_all();
                self.lockless = Some(lockless);
            }
            None => self.drained.position = snapshot.head,
        }
        self.forgotten_position = self.drained.position;
        self.drained = Drained {
            position: self.drained.position,
            last_ts: snapshot.last_ts.unwrap_or(self.drained.last_ts),
            events: self.forgotten.events,
            ..Drained::default()
        };
        self.publish();
    }

    /// Returns the number of records committed so far, whether or not they are in the stream.
    pub(crate) fn committed(&self) -> u64 {
        let seen = self.snapshot.and_then(|snapshot| snapshot.events);
        seen.map_or(self.written, |events| events.saturating_sub(self.forgotten.events))
    }

    /// Returns true if it is a ring with all of its memory, which writers go round without the
    /// recorder.
    pub(crate) fn is_whole(&self) -> bool {
        self.lockless.is_some() || self.backing.limit() == u64::MAX
    }

    /// Returns the used part of its memory, in 1/256.
    pub(crate) fn fill(&self) -> u64 {
        match (&self.lockless, self.snapshot) {
            (Some(lockless), _) => lockless.fill(),
            (None, Some(snapshot)) => self.backing.fill(snapshot.head),
            (None, None) => 0,
        }
    }

    /// Returns true if it is not part of the session: a claimer of an earlier one still has it.
    /// Losses are counted in it, and no packet is written.
    pub(crate) fn is_foreign(&self) -> bool {
        self.drained.position == NOT_OF_SESSION
    }

    /// Adds a region to the session after all, if its earlier claimer has released it. Returns true
    /// if it has. No writer used it so far, since its limit is zero.
    pub(crate) fn adopt(&mut self, claimer: u64) -> bool {
        let Some(claim) = Claim::take(self.region.0, claimer) else { return false };
        reset_region(self.region.0);
        drop(claim);
        self.drained = Drained::default();
        self.publish();
        true
    }

    /// Returns the name of its stream's file, as LTTng names it: channel and CPU.
    pub(crate) fn name(&self) -> String {
        let Self { cpu, names, .. } = self;
        match self.way {
            WriterPath::Sequence => format!("{}_{cpu}", names.files),
            WriterPath::Claim(which) => format!("{}_{cpu}_claim{which}", names.files),
        }
    }

    pub(crate) fn stream_id(&self, uuid: [u8; 16]) -> StreamId {
        let instance = u64::from(self.cpu) * WriterPath::ALL.len() as u64 + self.way.index() as u64;
        let instance = self.names.instances_before + instance;
        StreamId { uuid, class: self.names.class, instance, cpu: self.cpu }
    }

    /// Copies the region's state. A head that no writer can have reached ends the region, for us.
    pub(crate) fn poll(&mut self) {
        self.snapshot = None;
        if self.given_up || self.is_foreign() {
            return;
        }
        if let Some(lockless) = &self.lockless {
            self.snapshot = Some(lockless.snapshot());
            return;
        }
        let region = self.region.0;
        match region.snapshot() {
            Ok(snapshot) if self.is_plausible(&snapshot) => self.snapshot = Some(snapshot),
            Ok(_) | Err(_) => {
                self.damaged += 1;
                self.given_up = true;
            }
        }
    }

    fn is_plausible(&self, snapshot: &Snapshot) -> bool {
        let ring_bytes = self.region.0.geometry.ring_bytes();
        snapshot.head >= self.drained.position
            && snapshot.head >> 62 == 0
            && (self.overwrite || snapshot.head - self.drained.position <= 2 * ring_bytes)
    }

    /// Moves complete sub-buffers (or all, if partial) from the ring to the stream.
    pub(crate) fn drain<M: Memory>(&mut self, with: &mut DrainContext<'_, M>) -> io::Result<()> {
        if self.lockless.is_some() {
            return self.drain_lockless(with);
        }
        let Some(mut snapshot) = self.snapshot else { return Ok(()) };
        let unread_bytes = snapshot.head.saturating_sub(self.drained.position);
        let mut drained = self.drain_to(&snapshot, with);
        for _ in 0..SNAPSHOT_TRIES_MAX {
            if drained.is_err() || !self.is_missed() {
                break;
            }
            self.poll();
            snapshot = self.snapshot.unwrap_or(snapshot);
            drained = self.drain_to(&snapshot, with);
        }
        self.losses.observe((snapshot.discarded, self.lost_uncounted));
        let geometry = self.region.0.geometry;
        let size_bytes = geometry.sub_count() << geometry.sub_shift();
        self.shortage.update(BufferUsage {
            lost: self.discarded_for_space_ever(),
            size_bytes,
            unread_bytes,
            written: self.written,
            written_bytes: self.drained.position.saturating_sub(self.forgotten_position),
        });
        drained
    }

    /// Returns the size that would have prevented all losses, in bytes; `None` if there was none,
    /// or it is lockless.
    pub(crate) const fn needed_bytes(&self) -> Option<u64> {
        self.shortage.needed_bytes()
    }

    fn drain_to<M: Memory>(
        &mut self,
        snapshot: &Snapshot,
        with: &mut DrainContext<'_, M>,
    ) -> io::Result<()> {
        let region = self.region.0;
        if self.overwrite {
            self.skip_overwritten(region.oldest_index(snapshot.head));
        }
        // Twice a ring is more than there can be; skipping overwritten ones counts, too.
        for _ in 0..2 * region.geometry.sub_count() + 2 {
            let found = region.next_piece(with.memory, &self.drained, snapshot, with.partial);
            let taken = match found {
                Ok(None) => return Ok(()),
                Ok(Some(piece)) => self.write_packet(&piece, with)?,
                Err(damage) => Err(damage),
            };
            let index = region.geometry.index_of(self.drained.position);
            match taken {
                Ok(()) => {}
                Err(_) if self.overwrite && !region.still_valid(index) => {
                    self.is_overtaken = true;
                    let head = region.expected() >> 1;
                    self.skip_overwritten(region.oldest_index(head));
                }
                Err(_) => {
                    self.damaged += 1;
                    let next = (index + 1) << region.geometry.sub_shift();
                    self.drained.position = next.min(snapshot.head);
                    if next > snapshot.head {
                        // Later records of the open sub-buffer count their time from here.
                        self.drained.last_ts = snapshot.last_ts.unwrap_or(self.drained.last_ts);
                        self.drained.events = snapshot.events.unwrap_or(self.drained.events);
                    }
                    self.publish();
                }
            }
        }
        Ok(())
    }

    /// Returns true if no part could be copied for the snapshot, because writers overwrote it.
    pub(crate) fn is_missed(&self) -> bool {
        self.is_unpublished && self.is_overtaken && self.written == 0
    }

    fn skip_overwritten(&mut self, oldest: u64) {
        let geometry = self.region.0.geometry;
        let start = oldest << geometry.sub_shift();
        if start > self.drained.position {
            self.missing += oldest - geometry.index_of(self.drained.position);
            self.drained.position = start;
        }
    }

    /// Writes one piece as a packet and publishes the progress.
    fn write_packet<M: Memory>(
        &mut self,
        piece: &Piece,
        with: &mut DrainContext<'_, M>,
    ) -> io::Result<Result<(), Damage>> {
        let region = self.region.0;
        let index = region.geometry.index_of(piece.start);
        let length = piece.end - piece.start;
        let events = piece.events - piece.events_before;
        let latest = trackway_sys::clock::monotonic_ns().saturating_add(FUTURE_NS_MAX);
        let end_before = self.stream.as_ref().map_or(0, |stream| stream.end_ts);
        let sensible = length <= region.geometry.sub_bytes()
            && events <= length / RECORD_BYTES_MIN
            && piece.begin_ts >= end_before
            && piece.end_ts <= latest;
        if !sensible {
            return Ok(Err(Damage::Header(index)));
        }
        if piece.end_ts < self.since_ts {
            // It is as if it had been overwritten, but nothing is missed.
            self.is_overtaken = false;
            self.missing += u64::from(region.geometry.index_of(piece.resume) > index);
            self.resume_after(piece);
            return Ok(Ok(()));
        }
        if length > 0 {
            with.buffer.clear();
            with.buffer.resize(PACKET_HEADER_BYTES + length as usize, 0);
            let copied = region.copy(with.memory, piece, &mut with.buffer[PACKET_HEADER_BYTES..]);
            if let Err(damage) = copied {
                return Ok(Err(damage));
            }
        }
        if self.overwrite && !region.still_valid(index) {
            return Ok(Err(Damage::Header(index)));
        }
        if length > 0 {
            let packet = Packet {
                begin_ts: piece.begin_ts,
                end_ts: piece.end_ts,
                discarded: self.lost_before_end_of(piece),
                missing: std::mem::take(&mut self.missing),
                events,
            };
            let first_ts = with.begin_ts.min(piece.begin_ts);
            self.open_stream(with.trace, first_ts)?.append(with.buffer, &packet)?;
        }
        let overwritten = piece.events_before.saturating_sub(self.drained.events);
        self.overwritten = self.overwritten.saturating_add(overwritten);
        self.written += events;
        self.resume_after(piece);
        Ok(Ok(()))
    }

    /// Returns the number of records lost before the last record of `piece`, as far as is known.
    fn lost_before_end_of(&mut self, piece: &Piece) -> u64 {
        let (discarded, besides) = if self.overwrite {
            // It always has space; and it is read at one moment, often without a packet after.
            (piece.discarded, self.lost_uncounted)
        } else {
            let (discarded, besides) = self.losses.until(piece.end_ts);
            (piece.discarded_before.max(discarded), besides)
        };
        discarded.saturating_add(besides).saturating_sub(self.forgotten.discarded)
    }

    fn resume_after(&mut self, piece: &Piece) {
        self.drained.position = piece.resume;
        self.drained.last_ts = piece.end_ts;
        self.drained.events = piece.events;
        self.publish();
    }

    pub(crate) fn open_stream(&mut self, trace: &Trace, first_ts: u64) -> io::Result<&mut Stream> {
        if self.stream.is_none() {
            let id = self.stream_id(trace.uuid);
            let (place, name) = (&trace.channel, self.name());
            self.stream = Some(Stream::create(place, &name, self.tracefiles, id, first_ts)?);
            self.publish();
        }
        self.stream.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Publishes the progress, for recovery.
    pub(crate) fn publish(&mut self) {
        if self.is_unpublished {
            return;
        }
        if let Some(stream) = &self.stream {
            stream.note(&mut self.drained);
        }
        self.region.0.control.set_drained(self.drained);
    }

    /// Returns the number of records discarded so far.
    pub(crate) fn discarded(&self) -> u64 {
        // In a lockless buffer, records that were too large for any buffer.
        let discarded = self.region.0.control.discarded.load(Ordering::Relaxed);
        discarded
            .saturating_add(self.lockless.as_ref().map_or(0, Lockless::lost))
            .saturating_add(self.lost_uncounted)
            .saturating_sub(self.forgotten.discarded)
    }

    /// Returns the number of records discarded for lack of space, including those before the latest
    /// clear.
    fn discarded_for_space_ever(&self) -> u64 {
        let discarded = self.region.0.control.discarded.load(Ordering::Relaxed);
        discarded.saturating_sub(self.unavoidable_losses_ever().events)
    }

    fn unavoidable_losses_ever(&self) -> UnavoidableLosses {
        let control = self.region.0.control;
        UnavoidableLosses {
            events: control.hopeless.load(Ordering::Relaxed),
            unmapped: control.unmapped.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of records discarded so far that a larger region would not have kept.
    pub(crate) fn unavoidable_losses(&self) -> UnavoidableLosses {
        let (ever, before) = (self.unavoidable_losses_ever(), self.forgotten_hopeless);
        UnavoidableLosses {
            events: ever.events.saturating_sub(before.events),
            unmapped: ever.unmapped.saturating_sub(before.unmapped),
        }
    }

    /// Returns the number of records discarded so far for lack of space.
    pub(crate) fn discarded_for_space(&self) -> u64 {
        if let Some(lockless) = &self.lockless {
            return lockless.lost_full();
        }
        let lost = self.discarded().saturating_sub(self.lost_uncounted);
        lost.saturating_sub(self.unavoidable_losses().events)
    }

    /// Returns the largest record that no sub-buffer can hold, in bytes; `None`: there was none.
    pub(crate) fn oversized_bytes(&self) -> Option<u64> {
        let bytes = self.region.0.control.oversized_bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes)
    }

    /// Counts committed records that are not in the stream as lost: no recovery will read them.
    /// Returns their number.
    pub(crate) fn count_unwritten_as_lost(&mut self) -> u64 {
        let gone = self.written.saturating_add(self.overwritten);
        let rest = self.committed().saturating_sub(gone);
        let more = rest.saturating_sub(self.unwritten);
        self.lost_uncounted = self.lost_uncounted.saturating_add(more);
        self.unwritten = self.unwritten.max(rest);
        self.unwritten
    }

    /// Removes the last packet of its stream, which frees space; the caller counts its records as
    /// lost. Returns true if it had one.
    pub(crate) fn drop_last_packet(&mut self) -> bool {
        let events = self.stream.as_mut().and_then(Stream::cut_last_packet);
        self.written = self.written.saturating_sub(events.unwrap_or(0));
        events.is_some()
    }

    /// Extends its stream, if it has one, until then ([`Stream::extend`]). For a region that was
    /// given up, later losses are unknown.
    pub(crate) fn extend(&mut self, end_ts: u64) {
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.given_up) {
            stream.extend(end_ts);
            self.publish();
        }
    }

    /// Adds an empty packet if records were lost after the last one.
    pub(crate) fn close_stream(
        &mut self,
        trace: &Trace,
        begin_ts: u64,
        kind: CloseKind,
    ) -> io::Result<()> {
        let discarded = self.discarded();
        let told = self.stream.as_ref().map_or(0, |stream| stream.discarded);
        if discarded <= told || self.given_up {
            return Ok(());
        }
        let Drained { position, last_ts, .. } = self.drained;
        let is_open = self.region.0.geometry.within(position) != 0;
        let stream = self.open_stream(trace, begin_ts)?;
        let end_ts = match kind {
            CloseKind::ForNow if is_open => last_ts,
            CloseKind::ForNow | CloseKind::ForGood => trackway_sys::clock::monotonic_ns(),
        };
        let end_ts = end_ts.max(stream.end_ts);
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let packet = Packet { begin_ts: end_ts, end_ts, discarded, missing: 0, events: 0 };
        stream.append(&mut empty, &packet)?;
        self.publish();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
