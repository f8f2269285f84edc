//! Packet headers and packet indexes, byte for byte in LTTng 2.13's layout.

/// Size of a packet's header and context together, in bytes.
///
/// ```text
/// 0 magic u32 | 4 uuid [u8; 16] | 20 stream_id u32 | 24 stream_instance_id u64
/// 32 timestamp_begin u64 | 40 timestamp_end u64 | 48 content_size u64 | 56 packet_size u64
/// 64 packet_seq_num u64 | 72 events_discarded u64 | 80 cpu_id u32
/// ```
pub const PACKET_HEADER_BYTES: usize = 84;
/// Size of the header at the start of an index file, in bytes.
pub const INDEX_HEADER_BYTES: usize = 16;
/// Size of one packet's entry in an index file, in bytes.
pub const INDEX_ENTRY_BYTES: usize = 72;

/// First word of every packet (CTF 1.8, §5.1).
const PACKET_MAGIC: u32 = 0xC1FC_1FC1;
/// First word of every LTTng index file.
const INDEX_MAGIC: u32 = 0xC1F1_DCC1;
/// Version of LTTng's index format: entries have an instance id and a sequence number.
const INDEX_VERSION: (u32, u32) = (1, 1);

/// Fields that differ from packet to packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketFields {
    /// Class of the stream in the metadata; 0 for the class in [`super::metadata_preamble`].
    pub stream_id: u32,
    /// Number of the stream in its class (LTTng: the CPU). It is the same in all packets of a file
    /// and different between the files of a class.
    pub stream_instance_id: u64,
    /// Clock when the packet began, in nanoseconds; no record's time is below it.
    pub timestamp_begin: u64,
    /// Clock when the packet ended, in nanoseconds; no record's time is above it.
    pub timestamp_end: u64,
    /// Header and records, in bytes, at least [`PACKET_HEADER_BYTES`].
    pub content_bytes: u64,
    /// Content and padding, in bytes, at least `content_bytes`.
    pub packet_bytes: u64,
    /// Number of the packet in its stream, counted from 0 without gaps.
    pub sequence: u64,
    /// Events that the stream has lost from its start to this packet's end.
    pub events_discarded: u64,
    /// CPU on which the records were made.
    pub cpu_id: u32,
}

impl PacketFields {
    const fn content_bits(&self) -> u64 {
        self.content_bytes.saturating_mul(8)
    }

    const fn packet_bits(&self) -> u64 {
        self.packet_bytes.saturating_mul(8)
    }
}

/// Returns a packet's header and context: the bytes before its first record.
pub fn packet_header(uuid: &[u8; 16], fields: &PacketFields) -> [u8; PACKET_HEADER_BYTES] {
    let mut bytes = [0; PACKET_HEADER_BYTES];
    bytes[..4].copy_from_slice(&PACKET_MAGIC.to_le_bytes());
    bytes[4..20].copy_from_slice(uuid);
    bytes[20..24].copy_from_slice(&fields.stream_id.to_le_bytes());
    let words = [
        fields.stream_instance_id,
        fields.timestamp_begin,
        fields.timestamp_end,
        fields.content_bits(),
        fields.packet_bits(),
        fields.sequence,
        fields.events_discarded,
    ];
    for (place, word) in bytes[24..80].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes[80..].copy_from_slice(&fields.cpu_id.to_le_bytes());
    bytes
}

/// Returns the start of an index file (LTTng's format 1.1, big endian).
pub fn index_header() -> [u8; INDEX_HEADER_BYTES] {
    let mut bytes = [0; INDEX_HEADER_BYTES];
    let words = [INDEX_MAGIC, INDEX_VERSION.0, INDEX_VERSION.1, INDEX_ENTRY_BYTES as u32];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// Returns the index entry of the packet at byte `file_offset` of its stream's file.
pub fn index_entry(file_offset: u64, fields: &PacketFields) -> [u8; INDEX_ENTRY_BYTES] {
    let mut bytes = [0; INDEX_ENTRY_BYTES];
    let words = [
        file_offset,
        fields.packet_bits(),
        fields.content_bits(),
        fields.timestamp_begin,
        fields.timestamp_end,
        fields.events_discarded,
        u64::from(fields.stream_id),
        fields.stream_instance_id,
        fields.sequence,
    ];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    // Bytes 0 to 87 of an index that LTTng 2.13 wrote: its header and the entry of one packet.
    const LTTNG_INDEX: &str = "c1f1dcc1000000010000000100000048\
        0000000000000000000000000002000000000000 0001fdb0000001028d5a9880\
        000001028d952cbb0000000000000000 0000000000000000 0000000000000000 0000000000000000";

    #[test]
    fn index_is_as_lttng_writes_it() {
        let fields = PacketFields {
            timestamp_begin: 0x102_8d5a_9880,
            timestamp_end: 0x102_8d95_2cbb,
            content_bytes: 0x1_fdb0 / 8,
            packet_bytes: 0x2_0000 / 8,
            ..PacketFields::default()
        };
        let written = [&index_header()[..], &index_entry(0, &fields)[..]].concat();
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, LTTNG_INDEX.replace(' ', ""));
    }

    #[test]
    fn header_puts_each_field_in_its_place() {
        let fields = PacketFields {
            stream_id: 1,
            stream_instance_id: 2,
            timestamp_begin: 3,
            timestamp_end: 4,
            content_bytes: 84,
            packet_bytes: 4096,
            sequence: 7,
            events_discarded: 8,
            cpu_id: 9,
        };
        let bytes = packet_header(&[0xaa; 16], &fields);
        assert_eq!(bytes[..4], [0xc1, 0x1f, 0xfc, 0xc1]);
        assert_eq!(bytes[4..20], [0xaa; 16]);
        let words: Vec<u64> = bytes[24..80]
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
            .collect();
        assert_eq!(words, [2, 3, 4, 672, 32768, 7, 8]);
        assert_eq!((bytes[20], bytes[80]), (1, 9));
    }
}
