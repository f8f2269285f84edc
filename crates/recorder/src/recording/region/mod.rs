//! Draining one region: copies each record from the ring to the stream exactly once.
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

/// Longest distance of a record's time into the future, in ns; a later record counts as damaged.
/// Writers' clock lines may be that much ahead.
pub(crate) const FUTURE_NS_MAX: u64 = 1_000_000_000;
/// Most attempts of a snapshot to copy a buffer that writers overwrite before any part is copied.
const SNAPSHOT_TRIES_MAX: usize = 100;
/// Smallest record, in bytes.
pub(crate) const RECORD_BYTES_MIN: u64 = 4;

/// A region and the recorder's state for it. The recorder keeps its progress here and does not
/// trust the window.
#[derive(Debug)]
pub(crate) struct RegionDrain {
    pub(crate) region: RegionRef,
    names: Arc<StreamNames>,
    pub(crate) cpu: u32,
    pub(crate) way: WriterPath,
    pub(crate) backing: Backing,
    pub(crate) drained: Drained,
    pub(crate) stream: Option<Stream>,
    /// Limits of the stream's trace files.
    tracefiles: Tracefiles,
    /// State of the region at the latest poll; `None` if the region was damaged.
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) overwrite: bool,
    /// Records written to the stream.
    pub(crate) written: u64,
    /// Records that were overwritten before they could be written.
    pub(crate) overwritten: u64,
    /// Number of damaged sub-buffers.
    pub(crate) damaged: u64,
    /// True if the region is not drained: damaged, or of another session.
    pub(crate) given_up: bool,
    /// Number of sub-buffers missing before the next packet.
    missing: u64,
    /// Owner word at the latest check for dead claimers.
    pub(crate) owner_seen: u64,
    /// Lockless buffer that replaces the region in a session with lockless buffers.
    pub(crate) lockless: Option<Lockless>,
    /// Record counts at the latest clear; the region's numbers exclude them.
    pub(crate) forgotten: ClearedCounts,
    /// Number of losses that no control line counts; the stream includes them.
    pub(crate) lost_uncounted: u64,
    /// Number of committed records in `lost_uncounted` that will not be written.
    unwritten: u64,
    /// Losses over time: those in the control line, and `lost_uncounted`.
    losses: Losses<(u64, u64)>,
    /// True if the progress is not published: for a snapshot, which does not affect the recording,
    /// and for a recovery into another trace, which counts only when complete.
    is_unpublished: bool,
    /// Time before which ended packets are skipped, in ns.
    since_ts: u64,
    /// True if writers overwrote the latest part before it could be copied.
    is_overtaken: bool,
    /// Estimate of the buffer size that would have prevented all losses.
    shortage: Shortage,
    /// Unavoidable losses up to the latest clear.
    forgotten_hopeless: UnavoidableLosses,
    /// Position of the region at the latest clear.
    forgotten_position: u64,
}

/// Losses that a larger region would not have prevented.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnavoidableLosses {
    /// Number of records that a larger region would not have kept.
    pub(crate) events: u64,
    /// Number of records from processes that have not mapped the whole window.
    pub(crate) unmapped: u64,
}

/// Record counts at the time when a session was cleared.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClearedCounts {
    pub(crate) events: u64,
    pub(crate) discarded: u64,
}

/// Use of a region after its stream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseKind {
    /// No further record follows.
    ForGood,
    /// The next record may belong to the open sub-buffer: its packet begins where the last packet
    /// ended.
    ForNow,
}

/// Names of a channel's streams.
#[derive(Debug)]
pub(crate) struct StreamNames {
    /// Class of the streams in the metadata.
    pub(crate) class: u32,
    /// Prefix of the stream files' names.
    pub(crate) files: String,
    /// Number of streams of this class with other names, numbered before these streams.
    pub(crate) instances_before: u64,
}

impl StreamNames {
    /// Returns the stream names of `channel` in this class. The class changes when the channel gets
    /// other contexts or sizes. Names omit the first class, unless the channel's name ends like a
    /// name with a class.
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

/// A region; its `Debug` output omits the contents, which other processes write.
#[derive(Clone, Copy)]
pub(crate) struct RegionRef(pub(crate) Region<'static>);

impl core::fmt::Debug for RegionRef {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Region")
    }
}

/// Inputs and options of a drain, in addition to the region.
pub(crate) struct DrainContext<'a, M> {
    pub(crate) memory: &'a M,
    pub(crate) trace: &'a Trace,
    /// Time at which the session began, ns.
    pub(crate) begin_ts: u64,
    /// True to drain open sub-buffers, too.
    pub(crate) partial: bool,
    /// True if no writer is left, so that unreadable records stay unreadable.
    pub(crate) is_last: bool,
    /// Temporary space for one packet.
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

    /// Returns a view of the region for a snapshot: records from the current position on that are
    /// newer than `since_ts` (ns).
    pub(crate) fn snapshot_view(&self, since_ts: u64) -> Self {
        let Self { region: RegionRef(region), cpu, way, overwrite, .. } = *self;
        let beside = Self::new(region, Arc::clone(&self.names), cpu, way, overwrite);
        let drained = Drained { file_bytes: 0, packets: 0, file: 0, ..self.drained };
        let (given_up, forgotten) = (self.given_up, self.forgotten);
        let lost_uncounted = self.lost_uncounted;
        // A sub-buffer's packet thus has the same number in all snapshots.
        let missing = region.geometry.index_of(drained.position);
        let of_ours = Self { drained, given_up, forgotten, missing, lost_uncounted, ..beside };
        Self { is_unpublished: true, since_ts, ..of_ours }
    }

    /// Cuts the stream into files with these limits, and records the limits for recovery.
    pub(crate) fn cut_into_files(&mut self, tracefiles: Tracefiles) {
        let control = self.region.0.control;
        control.tracefile_bytes.store(tracefiles.size_bytes, Ordering::Relaxed);
        control.tracefile_count.store(tracefiles.count, Ordering::Relaxed);
        self.tracefiles = tracefiles;
    }

    /// Reopens the region's stream at the progress of a dead recorder.
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

    /// Continues at the progress of a dead recorder, in a stream of a new trace. The progress in
    /// the window still describes the stream of the old trace.
    pub(crate) fn begin_new_trace(&mut self) {
        self.drained = self.region.0.control.drained();
        self.stream = None;
        // A new stream can begin even if the old stream cannot continue.
        (self.given_up, self.damaged) = (false, 0);
        self.is_unpublished = true;
    }

    /// Makes all records readable for the next recovery if the new trace could not be written.
    pub(crate) fn leave_to_recovery(&self) {
        if let Some(lockless) = self.lockless.as_ref().filter(|_| self.is_unpublished) {
            lockless.restore_taken();
        }
    }

    /// Discards all buffered records and closes the stream, after writers were excluded.
    pub(crate) fn discard_recorded(&mut self) {
        self.poll();
        self.shortage = Shortage::after_losses(self.discarded_for_space_ever());
        self.forgotten_hopeless = self.unavoidable_losses_ever();
        self.region.0.control.oversized_bytes.store(0, Ordering::Relaxed);
        if !self.given_up {
            // This includes a region of an earlier claimer: it counts losses of other writers.
            self.forgotten.discarded = self.forgotten.discarded.saturating_add(self.discarded());
            // Recovery needs this count.
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

    /// Returns true if the ring has all of its memory, so that writers do not need the recorder.
    pub(crate) fn is_whole(&self) -> bool {
        self.lockless.is_some() || self.backing.limit() == u64::MAX
    }

    /// Returns the used share of the region's memory, in 1/256.
    pub(crate) fn fill(&self) -> u64 {
        match (&self.lockless, self.snapshot) {
            (Some(lockless), _) => lockless.fill(),
            (None, Some(snapshot)) => self.backing.fill(snapshot.head),
            (None, None) => 0,
        }
    }

    /// Returns true if a claimer of an earlier session still holds the region. Such a region counts
    /// losses, but gets no packets.
    pub(crate) fn is_foreign(&self) -> bool {
        self.drained.position == NOT_OF_SESSION
    }

    /// Adds the region to the session if its earlier claimer has released it. Returns true if it
    /// was added. No writer has used the region, because its limit is zero.
    pub(crate) fn adopt(&mut self, claimer: u64) -> bool {
        let Some(claim) = Claim::take(self.region.0, claimer) else { return false };
        reset_region(self.region.0);
        drop(claim);
        self.drained = Drained::default();
        self.publish();
        true
    }

    /// Returns the name of the region's stream file, in LTTng's form: channel and CPU.
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

    /// Copies the region's state. Gives the region up if no writer can have reached its head.
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

    /// Moves complete sub-buffers, or all if `partial` is set, from the ring to the stream.
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

    /// Returns the buffer size that would have prevented all losses, in bytes; `None` without
    /// losses, or for a lockless buffer.
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
        // Each step takes or skips a sub-buffer, and two rings are more than one drain can meet.
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
                        // Times of later records in the open sub-buffer are relative to this time.
                        self.drained.last_ts = snapshot.last_ts.unwrap_or(self.drained.last_ts);
                        self.drained.events = snapshot.events.unwrap_or(self.drained.events);
                    }
                    self.publish();
                }
            }
        }
        Ok(())
    }

    /// Returns true if the snapshot has no part of this region, because writers overwrote it.
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
            // The piece counts as overwritten, but the snapshot does not miss it.
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

    /// Returns the number of records known to be lost before the last record of `piece`.
    fn lost_before_end_of(&mut self, piece: &Piece) -> u64 {
        let (discarded, besides) = if self.overwrite {
            // A flight recorder always has space; a snapshot reads it only once.
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

    /// Publishes the drain progress for recovery.
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
        // For a lockless buffer, this counter has the records that were too large for any buffer.
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

    /// Returns the unavoidable losses since the latest clear.
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

    /// Returns the size of the largest record too large for any sub-buffer, in bytes, if any.
    pub(crate) fn oversized_bytes(&self) -> Option<u64> {
        let bytes = self.region.0.control.oversized_bytes.load(Ordering::Relaxed);
        (bytes > 0).then_some(bytes)
    }

    /// Counts committed records that are not in the stream as lost, because no recovery will read
    /// them. Returns the number of such records.
    pub(crate) fn count_unwritten_as_lost(&mut self) -> u64 {
        let gone = self.written.saturating_add(self.overwritten);
        let rest = self.committed().saturating_sub(gone);
        let more = rest.saturating_sub(self.unwritten);
        self.lost_uncounted = self.lost_uncounted.saturating_add(more);
        self.unwritten = self.unwritten.max(rest);
        self.unwritten
    }

    /// Removes the last packet of the stream, which frees disk space. The caller counts its records
    /// as lost. Returns true if the stream had a packet.
    pub(crate) fn drop_last_packet(&mut self) -> bool {
        let events = self.stream.as_mut().and_then(Stream::cut_last_packet);
        self.written = self.written.saturating_sub(events.unwrap_or(0));
        events.is_some()
    }

    /// Extends the stream, if any, to time `end_ts` ([`Stream::extend`]). Skips a region that was
    /// given up: its later losses are unknown.
    pub(crate) fn extend(&mut self, end_ts: u64) {
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.given_up) {
            stream.extend(end_ts);
            self.publish();
        }
    }

    /// Adds an empty packet to the stream if records were lost after its last packet.
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
