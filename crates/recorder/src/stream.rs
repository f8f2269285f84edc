//! A stream: the packets of one region in one file, and their index.
//!
//! A packet is written at the place that the region's progress names, then the progress moves on
//! by one store. So a recorder killed in between leaves bytes behind the stream's end, which
//! whoever recovers writes over, and no packet is there twice.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use trackway_ctf::write::{
    INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, PACKET_HEADER_BYTES, PacketFields, index_entry,
    index_header, packet_header,
};
use trackway_ring::Drained;

/// A stream that has a file.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    index: File,
    id: StreamId,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// Packets in it.
    pub(crate) packets: u64,
    /// Events lost, as the latest packet says.
    pub(crate) discarded: u64,
    /// End of the latest packet, ns.
    pub(crate) end_ts: u64,
    /// Number of the next packet.
    next_sequence: u64,
}

/// What is the same in all packets of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamId {
    /// Identity of the trace.
    pub(crate) uuid: [u8; 16],
    /// Number of the stream in the trace.
    pub(crate) instance: u64,
    /// CPU.
    pub(crate) cpu: u32,
}

/// A packet to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) begin_ts: u64,
    pub(crate) end_ts: u64,
    pub(crate) discarded: u64,
    /// Sub-buffers that were overwritten before it.
    pub(crate) missing: u64,
}

/// Packets are this many bytes or a multiple.
const ALIGNMENT_BYTES: usize = 8;

impl Stream {
    /// Makes the files of stream `name` in `folder`, with an empty packet at `begin_ts`: what is
    /// lost before the first record is counted from there.
    pub(crate) fn create(
        folder: &Path,
        name: &str,
        id: StreamId,
        begin_ts: u64,
    ) -> io::Result<Self> {
        let open = |path: &Path| {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)
        };
        let mut stream = Self {
            file: open(&folder.join(name))?,
            index: open(&folder.join("index").join(format!("{name}.idx")))?,
            id,
            bytes: 0,
            packets: 0,
            discarded: 0,
            end_ts: begin_ts,
            next_sequence: 0,
        };
        stream.index.write_all_at(&index_header(), 0)?;
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        stream
            .append(&mut empty, &Packet { begin_ts, end_ts: begin_ts, discarded: 0, missing: 0 })?;
        Ok(stream)
    }

    /// Opens the files of a stream as a recorder that died left them, and cuts off what its
    /// progress does not name.
    pub(crate) fn reopen(
        folder: &Path,
        name: &str,
        id: StreamId,
        drained: &Drained,
    ) -> io::Result<Self> {
        let open = |path: &Path| {
            let flags = libc::O_NOFOLLOW;
            fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
        };
        let file = open(&folder.join(name))?;
        let index = open(&folder.join("index").join(format!("{name}.idx")))?;
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
        // The drawing is `index_entry`'s: big-endian words.
        let word = |number: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&last[8 * number..8 * number + 8]);
            u64::from_be_bytes(bytes)
        };
        Ok(Self {
            file,
            index,
            id,
            bytes: drained.file_bytes,
            packets: drained.packets,
            end_ts: word(4),
            discarded: word(5),
            next_sequence: word(8).wrapping_add(1),
        })
    }

    /// Writes a packet: `bytes` has room for its header, then its records. The caller publishes
    /// the progress afterwards.
    pub(crate) fn append(&mut self, bytes: &mut Vec<u8>, packet: &Packet) -> io::Result<()> {
        let content = bytes.len();
        bytes.resize(content.next_multiple_of(ALIGNMENT_BYTES), 0);
        let sequence = self.next_sequence.wrapping_add(packet.missing);
        let fields = PacketFields {
            stream_id: 0,
            stream_instance_id: self.id.instance,
            timestamp_begin: packet.begin_ts,
            timestamp_end: packet.end_ts,
            content_bytes: content as u64,
            packet_bytes: bytes.len() as u64,
            sequence,
            // A partial packet may have counted more than the switch after it.
            events_discarded: packet.discarded.max(self.discarded),
            cpu_id: self.id.cpu,
        };
        bytes[..PACKET_HEADER_BYTES].copy_from_slice(&packet_header(&self.id.uuid, &fields));
        self.file.write_all_at(bytes, self.bytes)?;
        let at = INDEX_HEADER_BYTES as u64 + self.packets * INDEX_ENTRY_BYTES as u64;
        self.index.write_all_at(&index_entry(self.bytes, &fields), at)?;
        self.bytes += bytes.len() as u64;
        self.packets += 1;
        self.next_sequence = sequence.wrapping_add(1);
        self.discarded = fields.events_discarded;
        self.end_ts = packet.end_ts;
        Ok(())
    }
}
