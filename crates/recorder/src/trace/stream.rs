//! A stream: the packets of one region in one file with an index. If the file size is bounded, the
//! stream has several files, of which the oldest are removed.
//!
//! A packet is written at the position in the region's progress; then one store advances the
//! progress. So a recorder that is killed in between leaves bytes after the stream's end, which
//! recovery overwrites, and no packet is duplicated. If a packet does not fit into the file, the
//! oldest files are removed first, so that their number never exceeds the limit. Then the next file
//! is made; it belongs to the stream once it has a packet. [`rotation::repair_stream`] removes the
//! remains of a recorder killed in between.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use trackway_ctf::write::{
    INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, PACKET_HEADER_BYTES, PacketFields, index_entry,
    index_header, packet_header,
};
use trackway_ring::Drained;
use trackway_session::Tracefiles;

use crate::trace::folder::TraceFolder;
use crate::trace::rotation;

/// A stream with at least one file.
#[derive(Debug)]
pub(crate) struct Stream {
    /// File that is being written.
    current: DataFile,
    /// State of a stream in several files; `None` for a stream in one file.
    ring: Option<FileRing>,
    id: StreamId,
    /// Number of lost events, as reported by the latest packet.
    pub(crate) discarded: u64,
    /// Begin of the latest packet, ns.
    begin_ts: u64,
    /// End of the latest packet, ns.
    pub(crate) end_ts: u64,
    /// Number of the next packet.
    next_sequence: u64,
}

/// A file of a stream, and its index.
#[derive(Debug)]
struct DataFile {
    file: File,
    index: File,
    /// Length of the file, in bytes.
    bytes: u64,
    /// Number of packets in the file.
    packets: u64,
    /// Number of events in the file that this process wrote.
    events: u64,
    /// Last packet with events, if this process wrote it.
    last: Option<LastPacket>,
}

/// The last packet with events in a file: its position, and the packets before it.
#[derive(Debug, Clone, Copy)]
struct LastPacket {
    bytes: u64,
    packets: u64,
    /// Number of events in the packet.
    events: u64,
}

/// State of a stream in several files, without the current file.
#[derive(Debug)]
struct FileRing {
    place: Arc<TraceFolder>,
    /// Prefix of the files' names.
    stem: String,
    bounds: Tracefiles,
    /// Number of the current file.
    number: u64,
    /// Files before the current one, the oldest first.
    earlier: VecDeque<EarlierFile>,
    /// Number of events in deleted files, if this process wrote them.
    deleted: u64,
}

/// A full file of a stream.
#[derive(Debug, Clone, Copy)]
struct EarlierFile {
    number: u64,
    bytes: u64,
    events: u64,
}

/// Properties that all packets of a stream share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamId {
    /// Identity of the trace.
    pub(crate) uuid: [u8; 16],
    /// Stream class in the metadata.
    pub(crate) class: u32,
    /// Number of the stream in its stream class.
    pub(crate) instance: u64,
    /// CPU whose region the stream contains.
    pub(crate) cpu: u32,
}

/// A packet to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) begin_ts: u64,
    pub(crate) end_ts: u64,
    pub(crate) discarded: u64,
    /// Number of sub-buffers that were overwritten before the packet.
    pub(crate) missing: u64,
    /// Number of events in the packet.
    pub(crate) events: u64,
}

/// Returns file bounds that the existing files satisfy, so that a new packet does not remove files
/// at once. Any process of the user may have changed the bounds in the window.
fn widen_bounds(bounds: Tracefiles, earlier: &[(u64, u64)], current_bytes: u64) -> Tracefiles {
    let Tracefiles { size_bytes, count } = bounds;
    let all = earlier.iter().map(|&(_, bytes)| bytes).chain([current_bytes]);
    let largest = all.max().unwrap_or(0);
    Tracefiles {
        size_bytes: size_bytes.max(largest),
        count: if count == 0 { 0 } else { count.max(earlier.len() as u64 + 1) },
    }
}

/// The size of a packet is a multiple of this number of bytes.
const ALIGNMENT_BYTES: usize = 8;

impl Stream {
    /// Makes the files of stream `name` in a folder, with an empty packet at `begin_ts`. Losses
    /// before the first record count from that time.
    pub(crate) fn create(
        place: &Arc<TraceFolder>,
        name: &str,
        bounds: Tracefiles,
        id: StreamId,
        begin_ts: u64,
    ) -> io::Result<Self> {
        let ring = bounds.is_bounded().then(|| FileRing::new(place, name, bounds));
        let name = ring.as_ref().map_or_else(|| name.to_owned(), |ring| ring.name(ring.number));
        let mut stream = Self {
            current: DataFile::create(&place.current_path()?, &name)?,
            ring,
            id,
            discarded: 0,
            begin_ts: 0,
            end_ts: 0,
            next_sequence: 0,
        };
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let packet = Packet { begin_ts, end_ts: begin_ts, discarded: 0, missing: 0, events: 0 };
        if let Err(error) = stream.append(&mut empty, &packet) {
            // A stream without packets is invalid.
            let _ = rotation::remove_file_and_index(&place.current_path()?, &name);
            return Err(error);
        }
        Ok(stream)
    }

    /// Opens the stream files of a dead recorder, and cuts off bytes beyond its progress. `None` if
    /// no file is left: only one was allowed, and it was removed for the next one.
    pub(crate) fn reopen(
        place: &Arc<TraceFolder>,
        name: &str,
        bounds: Tracefiles,
        id: StreamId,
        drained: &Drained,
    ) -> io::Result<Option<Self>> {
        let folder = place.current_path()?;
        let Some(number) = drained.file.checked_sub(1) else {
            let (current, last) = DataFile::reopen(&folder, name, drained)?;
            return Ok(Some(Self::continue_from(current, None, id, &last)));
        };
        let (is_there, earlier) = rotation::repair_stream(&folder, name, number)?;
        if !is_there && bounds.count == 1 && earlier.is_empty() {
            return Ok(None);
        }
        let mut ring =
            FileRing::new(place, name, widen_bounds(bounds, &earlier, drained.file_bytes));
        ring.number = number;
        let earlier = earlier.into_iter();
        ring.earlier =
            earlier.map(|(number, bytes)| EarlierFile { number, bytes, events: 0 }).collect();
        let (current, last) = DataFile::reopen(&folder, &ring.name(number), drained)?;
        Ok(Some(Self::continue_from(current, Some(ring), id, &last)))
    }

    /// Makes a stream that continues after the packet with the index entry `last`.
    fn continue_from(
        current: DataFile,
        ring: Option<FileRing>,
        id: StreamId,
        last: &[u8; INDEX_ENTRY_BYTES],
    ) -> Self {
        // The entry has the layout of `index_entry`: big-endian words.
        let word = |number: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&last[8 * number..8 * number + 8]);
            u64::from_be_bytes(bytes)
        };
        Self {
            current,
            ring,
            id,
            begin_ts: word(3),
            end_ts: word(4),
            discarded: word(5),
            next_sequence: word(8).wrapping_add(1),
        }
    }

    /// Writes the stream's position into `drained`.
    pub(crate) fn note(&self, drained: &mut Drained) {
        drained.file_bytes = self.current.bytes;
        drained.packets = self.current.packets;
        drained.file = self.ring.as_ref().map_or(0, |ring| ring.number.saturating_add(1));
    }

    /// Returns the size of all files of the stream, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let earlier = self.ring.iter().flat_map(|ring| &ring.earlier);
        earlier.map(|file| file.bytes).sum::<u64>() + self.current.bytes
    }

    /// Returns the number of events in deleted files of the stream, if this process wrote them.
    pub(crate) fn deleted(&self) -> u64 {
        self.ring.as_ref().map_or(0, |ring| ring.deleted)
    }

    /// Writes a packet: `bytes` has space for its header, followed by its records. The caller
    /// publishes the progress afterwards.
    pub(crate) fn append(&mut self, bytes: &mut Vec<u8>, packet: &Packet) -> io::Result<()> {
        let content = bytes.len();
        bytes.resize(content.next_multiple_of(ALIGNMENT_BYTES), 0);
        let sequence = self.next_sequence.wrapping_add(packet.missing);
        let fields = PacketFields {
            stream_id: self.id.class,
            stream_instance_id: self.id.instance,
            timestamp_begin: self.packet_begin_ts(packet),
            timestamp_end: packet.end_ts,
            content_bytes: content as u64,
            packet_bytes: bytes.len() as u64,
            sequence,
            // A partial packet may have counted more losses than the switch after it.
            events_discarded: packet.discarded.max(self.discarded),
            cpu_id: self.id.cpu,
        };
        bytes[..PACKET_HEADER_BYTES].copy_from_slice(&packet_header(&self.id.uuid, &fields));
        let full = self
            .ring
            .as_mut()
            .filter(|ring| ring.bounds.is_full(self.current.bytes, bytes.len() as u64));
        match full {
            Some(ring) => ring.rotate(&mut self.current, bytes, &fields)?,
            None => self.current.append(bytes, &fields)?,
        }
        self.current.events = self.current.events.saturating_add(packet.events);
        if packet.events > 0 {
            let DataFile { bytes, packets, .. } = self.current;
            let (bytes, packets) = (bytes - fields.packet_bytes, packets - 1);
            self.current.last = Some(LastPacket { bytes, packets, events: packet.events });
        }
        self.next_sequence = sequence.wrapping_add(1);
        self.discarded = fields.events_discarded;
        (self.begin_ts, self.end_ts) = (fields.timestamp_begin, packet.end_ts);
        Ok(())
    }

    /// Extends the stream to `end_ts` by an empty packet. Some readers (babeltrace 1, and so
    /// lttng-analyses) read only the time in which all streams exist, and thus read all events. If
    /// disk space is missing or the packet needs another file, the stream stays as it is.
    pub(crate) fn extend(&mut self, end_ts: u64) {
        const EMPTY_BYTES: usize = PACKET_HEADER_BYTES.next_multiple_of(ALIGNMENT_BYTES);
        let is_full = |ring: &FileRing| ring.bounds.is_full(self.current.bytes, EMPTY_BYTES as u64);
        if end_ts <= self.end_ts || self.ring.as_ref().is_some_and(is_full) {
            return;
        }
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let discarded = self.discarded;
        let packet = Packet { begin_ts: end_ts, end_ts, discarded, missing: 0, events: 0 };
        let _ = self.append(&mut empty, &packet);
    }

    /// Returns the size from the last packet with events to the end, in bytes, if known.
    pub(crate) fn last_packet_bytes(&self) -> Option<u64> {
        Some(self.current.bytes - self.current.last?.bytes)
    }

    /// Cuts off the packets that [`Self::last_packet_bytes`] measures. Returns the number of events
    /// in them.
    pub(crate) fn cut_last_packet(&mut self) -> Option<u64> {
        let Self { current, next_sequence, .. } = self;
        let LastPacket { bytes, packets, events } = current.last.take()?;
        let index_bytes = INDEX_HEADER_BYTES as u64 + packets * INDEX_ENTRY_BYTES as u64;
        current.index.set_len(index_bytes).and_then(|()| current.file.set_len(bytes)).ok()?;
        *next_sequence = next_sequence.wrapping_sub(current.packets - packets);
        (current.bytes, current.packets) = (bytes, packets);
        current.events = current.events.saturating_sub(events);
        // The cut may remove the packet that reported the most losses.
        self.discarded = 0;
        Some(events)
    }

    /// Returns the begin time of a packet. babeltrace2 sorts packets of several files by their
    /// begin, and misorders packets with the same begin. The next packet begins when this one ends.
    /// So a packet without duration begins a nanosecond earlier if possible.
    fn packet_begin_ts(&self, packet: &Packet) -> u64 {
        let earlier = packet.begin_ts.saturating_sub(1);
        let is_point = packet.begin_ts == packet.end_ts;
        let is_free = earlier >= self.end_ts && earlier > self.begin_ts;
        if self.ring.is_some() && is_point && is_free { earlier } else { packet.begin_ts }
    }
}

impl DataFile {
    fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let open = |path: &Path| {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path)
        };
        // The index comes first, so that a reader that finds the file also finds a valid index.
        let index = open(&rotation::index_path(folder, name))?;
        index.write_all_at(&index_header(), 0)?;
        let file = open(&rotation::data_path(folder, name))?;
        Ok(Self { file, index, bytes: 0, packets: 0, events: 0, last: None })
    }

    /// Opens a file up to the recorded progress. Returns the file and the last entry of its index.
    fn reopen(
        folder: &Path,
        name: &str,
        drained: &Drained,
    ) -> io::Result<(Self, [u8; INDEX_ENTRY_BYTES])> {
        let open = |path: &Path| {
            let flags = libc::O_NOFOLLOW;
            fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
        };
        let file = open(&rotation::data_path(folder, name))?;
        let index = open(&rotation::index_path(folder, name))?;
        let index_bytes = drained
            .packets
            .checked_mul(INDEX_ENTRY_BYTES as u64)
            .and_then(|bytes| bytes.checked_add(INDEX_HEADER_BYTES as u64))
            .ok_or(io::ErrorKind::InvalidData)?;
        let complete = file.metadata()?.len() >= drained.file_bytes
            && index.metadata()?.len() >= index_bytes
            && drained.packets > 0;
        if !complete {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.set_len(drained.file_bytes)?;
        index.set_len(index_bytes)?;
        let mut last = [0; INDEX_ENTRY_BYTES];
        index.read_exact_at(&mut last, index_bytes - INDEX_ENTRY_BYTES as u64)?;
        let (bytes, packets) = (drained.file_bytes, drained.packets);
        Ok((Self { file, index, bytes, packets, events: 0, last: None }, last))
    }

    fn append(&mut self, bytes: &[u8], fields: &PacketFields) -> io::Result<()> {
        let at = INDEX_HEADER_BYTES as u64 + self.packets * INDEX_ENTRY_BYTES as u64;
        let written = self
            .file
            .write_all_at(bytes, self.bytes)
            .and_then(|()| self.index.write_all_at(&index_entry(self.bytes, fields), at));
        if let Err(error) = written {
            // Readers must find whole packets, and a partial packet would occupy scarce disk space.
            // Bytes that cannot be cut off lie after the progress.
            let _ = self.index.set_len(at);
            let _ = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += bytes.len() as u64;
        self.packets += 1;
        Ok(())
    }
}

impl FileRing {
    fn new(place: &Arc<TraceFolder>, stem: &str, bounds: Tracefiles) -> Self {
        let (place, stem) = (Arc::clone(place), stem.to_owned());
        Self { place, stem, bounds, number: 0, earlier: VecDeque::new(), deleted: 0 }
    }

    fn name(&self, number: u64) -> String {
        rotation::numbered_file_name(&self.stem, number)
    }

    /// Writes a packet to a new file, which becomes the current one. If the write fails, the
    /// previous file stays current; some of the oldest files may have been removed.
    fn rotate(
        &mut self,
        current: &mut DataFile,
        bytes: &[u8],
        fields: &PacketFields,
    ) -> io::Result<()> {
        let folder = self.place.current_path()?;
        let mut surplus = self.bounds.surplus(self.earlier.len() as u64 + 1);
        while surplus > 0
            && let Some(&oldest) = self.earlier.front()
        {
            rotation::remove_file_and_index(&folder, &self.name(oldest.number))?;
            self.deleted = self.deleted.saturating_add(oldest.events);
            self.earlier.pop_front();
            surplus -= 1;
        }
        let before = self.number;
        if surplus > 0 {
            // The stream may have only one file.
            rotation::remove_file_and_index(&folder, &self.name(before))?;
            // The removed file is still open; truncating it frees its disk space.
            current.file.set_len(0)?;
        }
        let next = self.name(before.saturating_add(1));
        let begun = DataFile::create(&folder, &next).and_then(|mut file| {
            file.append(bytes, fields)?;
            Ok(file)
        });
        let full = match begun {
            Ok(file) => std::mem::replace(current, file),
            Err(error) => {
                // A partial file would occupy scarce disk space.
                let _ = rotation::remove_file_and_index(&folder, &next);
                return Err(error);
            }
        };
        self.number = before.saturating_add(1);
        match surplus {
            0 => {
                let DataFile { bytes, events, .. } = full;
                self.earlier.push_back(EarlierFile { number: before, bytes, events });
            }
            _ => self.deleted = self.deleted.saturating_add(full.events),
        }
        Ok(())
    }
}

/// Returns true if a killed recorder can have made this progress in stream `stem`: up to the last
/// entry of its index, or one packet less, if it had not published the last packet yet.
///
/// In a stream of several files, considers the last existing file: an interrupted rotation loses
/// the events in memory.
pub(crate) fn is_progress_in(folder: &Path, stem: &str, drained: &Drained) -> bool {
    let name = match (rotation::last_file_number(folder, stem), drained.file) {
        (Ok(None), 0) => stem.to_owned(),
        (Ok(None), _) if drained.packets == 0 && drained.file_bytes == 0 => stem.to_owned(),
        (Ok(Some(last)), file) if file.checked_sub(1) == Some(last) => {
            rotation::numbered_file_name(stem, last)
        }
        _ => return false,
    };
    let open =
        |path: &Path| fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let header = INDEX_HEADER_BYTES as u64;
    let entry = INDEX_ENTRY_BYTES as u64;
    let index = match open(&rotation::index_path(folder, &name)) {
        Ok(index) => index,
        Err(error) => return error.kind() == io::ErrorKind::NotFound && drained.packets == 0,
    };
    let Ok(bytes) = index.metadata().map(|status| status.len()) else { return false };
    let there = bytes.saturating_sub(header) / entry;
    if drained.packets > there || drained.packets.saturating_add(1) < there {
        return false;
    }
    let Some(last) = drained.packets.checked_sub(1) else { return drained.file_bytes == 0 };
    // This reads the position and the bit length of the last packet, in the layout of
    // `index_entry`.
    let mut words = [0; 16];
    if index.read_exact_at(&mut words, header + last * entry).is_err() {
        return false;
    }
    let [begin, bits] = [0, 8].map(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&words[at..at + 8]);
        u64::from_be_bytes(word)
    });
    begin.checked_add(bits / 8) == Some(drained.file_bytes)
}

#[cfg(test)]
mod tests {
    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn packets_of_a_stream_in_several_files_begin_one_after_the_other() {
        let folder = TemporaryFolder::new();
        fs::create_dir(folder.join("index")).expect("a folder");
        let place = Arc::new(TraceFolder::open(folder.path()).expect("a folder"));
        let id = StreamId { uuid: [1; 16], class: 0, instance: 0, cpu: 0 };
        let begins = |bounds: Tracefiles, name: &str| {
            let mut stream = Stream::create(&place, name, bounds, id, 100).expect("a stream");
            // These are pieces of one sub-buffer: each begins where the previous one ended.
            for (begin_ts, end_ts) in [(100, 100), (120, 120), (120, 150), (150, 150), (151, 151)] {
                let mut bytes = vec![0; PACKET_HEADER_BYTES + 4];
                let packet = Packet { begin_ts, end_ts, discarded: 0, missing: 0, events: 1 };
                stream.append(&mut bytes, &packet).expect("a packet");
            }
            let name = if bounds.is_bounded() { format!("{name}.0") } else { name.to_owned() };
            let packets = fs::read(folder.join(&name)).expect("a file");
            let begin = |packet: &[u8]| u64::from_le_bytes(packet[32..40].try_into().expect("8"));
            packets.chunks(PACKET_HEADER_BYTES + 4).map(begin).collect::<Vec<_>>()
        };
        let bounds = Tracefiles { size_bytes: 4096, count: 0 };
        assert_eq!(begins(bounds, "several"), [99, 100, 119, 120, 150, 151]);
        assert_eq!(begins(Tracefiles::default(), "one"), [100, 100, 120, 120, 150, 151]);
    }

    #[test]
    fn a_stream_lasts_longer_where_its_file_has_room() {
        let folder = TemporaryFolder::new();
        fs::create_dir(folder.join("index")).expect("a folder");
        let place = Arc::new(TraceFolder::open(folder.path()).expect("a folder"));
        let id = StreamId { uuid: [1; 16], class: 0, instance: 0, cpu: 0 };
        let lasts = |size_bytes: u64, name: &str| {
            let bounds = Tracefiles { size_bytes, count: 1 };
            let mut stream = Stream::create(&place, name, bounds, id, 100).expect("a stream");
            let mut bytes = vec![0; 4000];
            let packet = Packet { begin_ts: 100, end_ts: 120, discarded: 3, missing: 0, events: 1 };
            stream.append(&mut bytes, &packet).expect("a packet");
            stream.extend(110);
            // The packet follows the stream's empty first packet.
            assert_eq!((stream.end_ts, stream.bytes()), (120, 88 + 4000));
            stream.extend(200);
            assert_eq!((stream.discarded, stream.deleted()), (3, 0));
            (stream.end_ts, stream.bytes())
        };
        assert_eq!(lasts(4176, "room"), (200, 4176));
        assert_eq!(lasts(4175, "full"), (120, 4088));
        assert_eq!(lasts(0, "one"), (200, 4176));
    }
}
