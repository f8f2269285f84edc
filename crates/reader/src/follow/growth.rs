//! Detection of new data in growing traces, and of the part that may be written.
//!
//! A packet reaches its file some time after its events, and a stream without events has no file
//! yet. So the newest event of one stream may be later than the next event of another. Events are
//! written up to the *horizon*. It is the time that recorders publish, up to which all events are
//! in the files. Without such a time, it is [`LAG_NS`] before the newest time in any stream,
//! advanced by the reader's clock. If the horizon lies within a packet, the earlier events of the
//! packet are written.
//!
//! Tracers that keep only the newest files of a stream may overtake the reader. The state after a
//! deleted file is kept for the stream's next file. So packets that were deleted before they were
//! written are reported as missing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use trackway_ctf::read::{
    ByteSource, Damage, DecodeError, Packet, ResumeState, Skip, SourceStream, StreamDecoder,
    StreamError, Trace, packets_stand_alone,
};

use super::diagnostic_log::CONFIRMATION_TIME;
use super::open::OpenPacket;
use crate::folder::TraceFile;
use crate::input::HEADER_WINDOW_BYTES;
use crate::input::{FilePart, Input};

/// Maximum delay, in ns, after which an event may reach its file and still be written in order.
/// `trackway record` writes twice a second.
pub(crate) const LAG_NS: i64 = 1_000_000_000;

/// The state of growing traces.
#[derive(Default)]
pub(crate) struct Growth {
    /// Progress by device and inode, because files may be moved, as in a rotation.
    files: HashMap<(u64, u64), FileProgress>,
    /// Newest known time, and the instant at which it was first seen.
    newest: Option<(i64, Duration)>,
    /// Time up to which all events are in the files, if known.
    flushed: Option<i64>,
    /// State after the written part of each stream whose file is gone.
    departed: HashMap<StreamKey, ResumeState>,
}

/// The identity of a trace, and a stream's class and instance in it.
type StreamKey = (Option<String>, usize, Option<u64>);

/// Maximum number of streams in [`Growth::departed`].
const DEPARTED_MAX: usize = 1 << 16;

/// The progress in one file. Its size does not depend on the number of packets: packets that wait
/// to be written are skipped again later.
#[derive(Default)]
struct FileProgress {
    /// First packet that is not completely written.
    from: ResumePoint,
    /// Number of written events of the packet at `from`.
    written: u64,
    /// First packet that is not known to be complete. Packets that wait to be written precede it.
    next: ResumePoint,
    /// First packet of the file, and its stream.
    first: Option<Packet>,
    stream: Option<StreamKey>,
    /// Start of an unreadable packet, and the instant of its discovery.
    unreadable: Option<(u64, Duration)>,
    /// The packet at `next`, if it has no size: it grows with the file.
    open: Option<OpenPacket>,
}

/// A place between two packets, from which decoding can resume.
#[derive(Debug, Clone, Copy, Default)]
struct ResumePoint {
    /// Offset and number of the next packet.
    at: (u64, u64),
    /// State after all packets before.
    before: ResumeState,
}

/// Begin and end of a complete packet.
#[derive(Debug, Clone, Copy, Default)]
struct PacketTimes {
    /// Begin and end; `None` if the packet has no such time.
    begin: Option<i64>,
    end: Option<i64>,
}

impl Growth {
    /// Sets the time up to which all events are in the files that are read next, if known.
    pub(crate) const fn set_flushed(&mut self, until: Option<i64>) {
        self.flushed = until;
    }

    /// Finds the new packets of `inputs` at the instant `now` (since any fixed one), and sets each
    /// file's part to be written. Returns true if there is any. If the traces have `ended`, that
    /// part is all remaining data, complete or not.
    pub(crate) fn update(
        &mut self,
        inputs: &mut [Input<TraceFile>],
        now: Duration,
        ended: bool,
    ) -> bool {
        let there: HashSet<_> =
            inputs.iter().flat_map(|input| &input.files).map(|file| file.bytes.id()).collect();
        let departed = &mut self.departed;
        self.files.retain(|id, progress| {
            let is_there = there.contains(id);
            if !is_there {
                progress.store_departed(departed);
            }
            is_there
        });
        for Input { trace, files, .. } in &*inputs {
            for file in files {
                let progress = self.files.entry(file.bytes.id()).or_default();
                progress.reset_if_replaced(trace, &file.bytes, departed);
                if let Some(end) = progress.find_packets(trace, &file.bytes, now)
                    && self.newest.is_none_or(|(newest, _)| newest < end)
                {
                    self.newest = Some((end, now));
                }
            }
        }
        let horizon = if ended { i64::MAX } else { self.horizon(now) };
        let mut any = false;
        for Input { trace, files, .. } in inputs {
            for file in files {
                let Some(progress) = self.files.get_mut(&file.bytes.id()) else { continue };
                if ended {
                    any |= progress.from.at.0 < file.bytes.length();
                    file.part = progress.part();
                } else {
                    let part = progress.take(trace, &file.bytes, horizon);
                    any |= part.is_some();
                    let (part, end) = part.unwrap_or((progress.part(), progress.part().from.0));
                    file.part = part;
                    file.bytes.limit(end);
                }
                file.part.carry = progress.state_after_departed(file.part.carry, &self.departed);
            }
        }
        any
    }

    /// Returns true if some data must not be written yet.
    pub(crate) fn is_waiting(&self) -> bool {
        let waits = |file: &FileProgress| {
            file.has_pending()
                || file.unreadable.is_some()
                || file.open.as_ref().is_some_and(OpenPacket::is_waiting)
        };
        self.files.values().any(waits)
    }

    /// Returns true if there is unreadable data that may be half written.
    pub(crate) fn is_doubtful(&self) -> bool {
        let doubts = |file: &FileProgress| {
            file.unreadable.is_some() || file.open.as_ref().is_some_and(OpenPacket::is_doubtful)
        };
        self.files.values().any(doubts)
    }

    /// Returns true if any time in the traces is known.
    pub(crate) const fn is_begun(&self) -> bool {
        self.newest.is_some() || self.flushed.is_some()
    }

    /// Returns true if at the instant `now` no further event up to `time` is expected, as far as
    /// known.
    pub(crate) fn is_past(&self, time: i64, now: Duration) -> bool {
        let mut open = self.files.values().filter_map(|file| file.open.as_ref());
        self.horizon(now) >= time && open.all(|packet| packet.is_past(time))
    }

    /// Returns the time up to which no further events are expected.
    fn horizon(&self, now: Duration) -> i64 {
        if let Some(flushed) = self.flushed {
            return flushed;
        }
        let Some((newest, seen)) = self.newest else { return i64::MIN };
        let since = i64::try_from(now.saturating_sub(seen).as_nanos()).unwrap_or(i64::MAX);
        newest.saturating_add(since).saturating_sub(LAG_NS)
    }
}

impl FileProgress {
    /// Discards the progress in a file that was overwritten, as by tracers that reuse a fixed
    /// number of files.
    fn reset_if_replaced(
        &mut self,
        trace: &Trace,
        file: &TraceFile,
        departed: &mut HashMap<StreamKey, ResumeState>,
    ) {
        let mut source = SourceStream::new(file).with_window(HEADER_WINDOW_BYTES, Vec::new());
        let first = if source.is_at_end() { None } else { source.peek(trace) };
        let begin = |packet: Packet| (packet.timestamp_begin, packet.sequence);
        let is_other = self.first.is_some() && first.map(begin) != self.first.map(begin);
        let is_cut = self.open.as_ref().is_some_and(|open| file.length() < open.length);
        if is_other || is_cut || file.length() < self.next.at.0 {
            self.store_departed(departed);
            *self = Self::default();
        }
        self.first = first.or(self.first);
        if let (None, Some(packet)) = (&self.stream, self.first) {
            self.stream = Some((trace.identity().uid(), packet.stream, packet.stream_instance));
        }
    }

    /// Stores the state after the written part, for later files of the same stream.
    fn store_departed(&self, departed: &mut HashMap<StreamKey, ResumeState>) {
        let Some(stream) = self.stream.as_ref().filter(|(.., instance)| instance.is_some()) else {
            return;
        };
        let carry = self.from.before;
        if departed.get(stream).is_none_or(|other| other.clock() < carry.clock()) {
            if departed.len() == DEPARTED_MAX {
                departed.clear();
            }
            departed.insert(stream.clone(), carry);
        }
    }

    /// Returns the state before the file's packets: its own, or that of a deleted file of the
    /// stream, if that is later. Ignores deleted files if packet numbers restart.
    fn state_after_departed(
        &self,
        own: ResumeState,
        departed: &HashMap<StreamKey, ResumeState>,
    ) -> ResumeState {
        let gone = self.stream.as_ref().and_then(|stream| departed.get(stream));
        let sequence = self.first.and_then(|packet| packet.sequence);
        let is_before = |gone: &&ResumeState| sequence.is_some() && gone.sequence() < sequence;
        match gone.filter(is_before) {
            Some(gone) if gone.clock() > own.clock() => *gone,
            _ => own,
        }
    }

    /// Finds new packets; returns the end time of the newest.
    fn find_packets(&mut self, trace: &Trace, file: &TraceFile, now: Duration) -> Option<i64> {
        let mut newest = None;
        let (mut source, mut decoder) = self.next.open_headers(trace, file);
        while !source.is_at_end() {
            let at = source.next();
            match read_packet(&mut source, &mut decoder, file.length()) {
                Ok(packet) => {
                    newest = packet.end.max(newest);
                    self.next = ResumePoint { at: source.next(), before: decoder.resume_state() };
                    self.unreadable = None;
                }
                Err(NotReady::Incomplete) => break,
                Err(NotReady::Sizeless) => {
                    let before = self.next.before;
                    let open = self.open.get_or_insert_with(|| OpenPacket::new(before));
                    open.update(trace, file, at, now);
                    newest = open.end.max(newest);
                    break;
                }
                Err(NotReady::Nonsense) => {
                    let since = self.unreadable.filter(|&(place, _)| place == at.0);
                    let (_, since) = *self.unreadable.insert(since.unwrap_or((at.0, now)));
                    if now.saturating_sub(since) >= CONFIRMATION_TIME {
                        // No later packet can be found. The packet counts as complete, so that its
                        // damage is reported.
                        self.next.at = (file.length(), at.1 + 1);
                    }
                    break;
                }
            }
        }
        newest
    }

    /// Returns true if there are complete packets that are not completely written.
    const fn has_pending(&self) -> bool {
        self.from.at.0 < self.next.at.0
    }

    /// Returns the whole remaining part.
    fn part(&self) -> FilePart {
        let skip = match &self.open {
            Some(open) if !self.has_pending() => open.written,
            _ => self.written,
        };
        FilePart { from: self.from.at, carry: self.from.before, skip, last: None }
    }

    /// Returns the part to be written up to the horizon, and its end, if there is any. The part
    /// then counts as written.
    fn take(&mut self, trace: &Trace, file: &TraceFile, horizon: i64) -> Option<(FilePart, u64)> {
        let mut part = self.part();
        let mut end = None;
        let (mut source, mut decoder) = self.from.open_headers(trace, file);
        while self.has_pending() {
            // An unreadable packet extends to the place where `find_packets` gave up.
            let found = read_packet(&mut source, &mut decoder, file.length());
            let after = match &found {
                Ok(_) => ResumePoint { at: source.next(), before: decoder.resume_state() },
                Err(_) => self.next,
            };
            let packet = found.unwrap_or_default();
            if packet.begin.is_some_and(|begin| begin > horizon) {
                break;
            }
            if packet.end.is_some_and(|end| end > horizon) {
                let events = count_events_until(trace, file, &self.from, horizon);
                if events > self.written {
                    self.written = events;
                    part.last = Some((self.from.at.0, events));
                    end = Some(after.at.0);
                }
                break;
            }
            end = Some(after.at.0);
            self.from = after;
            self.written = 0;
        }
        if !self.has_pending()
            && let Some(open) = &mut self.open
            && open.take(horizon)
        {
            part.last = Some((self.next.at.0, open.events));
            end = Some(file.length());
        }
        end.map(|end| (part, end))
    }
}

impl ResumePoint {
    /// Opens the file at this place, to decode packet headers.
    fn open_headers<'a>(
        &self,
        trace: &'a Trace,
        file: &'a TraceFile,
    ) -> (SourceStream<&'a TraceFile>, StreamDecoder<'a>) {
        let mut source = SourceStream::new(file).with_window(HEADER_WINDOW_BYTES, Vec::new());
        source.go_to(self.at.0, self.at.1);
        (source, StreamDecoder::resume(trace, self.before))
    }
}

/// Reason why a packet is not taken yet.
enum NotReady {
    /// The packet is incomplete.
    Incomplete,
    /// The packet ends at the file's end, which is not known yet.
    Sizeless,
    /// The packet's header is unreadable.
    Nonsense,
}

/// Reads the next packet, if it is complete.
fn read_packet(
    source: &mut SourceStream<&TraceFile>,
    decoder: &mut StreamDecoder<'_>,
    length: u64,
) -> Result<PacketTimes, NotReady> {
    let at = source.next();
    let packet =
        source.begin_packet(decoder, &mut Skip, |_| {}).map_err(|error| match error.damage {
            Damage::Packet(DecodeError::Truncated { .. }) | Damage::Missing(_) => {
                NotReady::Incomplete
            }
            _ => NotReady::Nonsense,
        })?;
    let bits = packet.packet_bits.ok_or(NotReady::Sizeless)?;
    if at.0.saturating_add(bits / 8) > length {
        return Err(NotReady::Incomplete);
    }
    let class = decoder.class();
    if !class.is_none_or(packets_stand_alone) {
        // The times of the next packet depend on the events of this one.
        while let Ok(Some(_)) = skip_event(source, decoder) {}
    }
    let time = |clock: Option<u64>| class?.clock()?.ns_from_origin(clock?).ok();
    let (begin, end) = (time(packet.timestamp_begin), time(packet.timestamp_end));
    Ok(PacketTimes { begin, end })
}

/// Skips an event; returns its time, or `None` at the packet's end.
pub(super) fn skip_event(
    source: &mut SourceStream<&TraceFile>,
    decoder: &mut StreamDecoder<'_>,
) -> Result<Option<Option<i64>>, StreamError> {
    source.read_event(decoder, |event| {
        let time = event.header.time;
        event.skip().map(|()| time)
    })
}

/// Returns the number of a packet's events up to the horizon; `u64::MAX` if it is damaged.
fn count_events_until(trace: &Trace, file: &TraceFile, packet: &ResumePoint, horizon: i64) -> u64 {
    let mut source = SourceStream::new(file);
    source.go_to(packet.at.0, packet.at.1);
    let mut decoder = StreamDecoder::resume(trace, packet.before);
    if source.begin_packet(&mut decoder, &mut Skip, |_| {}).is_err() {
        return u64::MAX;
    }
    let mut events = 0;
    loop {
        match skip_event(&mut source, &mut decoder) {
            Ok(Some(time)) if time.is_none_or(|time| time <= horizon) => events += 1,
            Ok(_) => return events,
            Err(_) => return u64::MAX,
        }
    }
}
