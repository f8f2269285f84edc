//! Small handmade traces, for tests that modify them.

use std::fs;
use std::path::Path;

/// Metadata of one event class, `tick: { n = … }`, in packets with all standard packet fields.
pub(crate) const TICK_METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 32; } := u32;
typealias integer { size = 64; } := u64;
trace {
    major = 1; minor = 8; byte_order = le;
    packet.header := struct { u32 magic; u32 stream_id; };
};
env { hostname = "here"; };
clock { name = mono; freq = 1000000000; };
typealias integer { size = 64; map = clock.mono.value; } := time;
stream {
    id = 0;
    packet.context := struct {
        u64 packet_size; u64 content_size; time timestamp_begin; time timestamp_end;
    };
    event.header := struct { u32 id; time timestamp; };
};
event { name = "tick"; id = 0; stream_id = 0; fields := struct { u32 n; }; };
"#;

/// Magic number of every packet.
const PACKET_MAGIC: u32 = 0xC1FC_1FC1;
/// Size of a packet's header and context.
pub(crate) const PACKET_HEADER_BYTES: usize = 8 + 32;
/// Size of an event.
pub(crate) const EVENT_BYTES: usize = 16;
/// Offset of a packet's sizes, in bits: packet, then content.
pub(crate) const SIZES_OFFSET: usize = 8;

/// Makes a packet with an event `tick` for each of `numbers`, at that time in nanoseconds.
pub(crate) fn make_packet(numbers: &[u32]) -> Vec<u8> {
    let events: Vec<u8> = numbers.iter().flat_map(|&number| make_event(number)).collect();
    let bits = 8 * (PACKET_HEADER_BYTES + events.len()) as u64;
    let first = u64::from(numbers.first().copied().unwrap_or(0));
    let last = u64::from(numbers.last().copied().unwrap_or(0));
    let mut bytes = [PACKET_MAGIC.to_le_bytes(), [0; 4]].concat();
    bytes.extend([bits, bits, first, last].into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(events);
    bytes
}

fn make_event(number: u32) -> Vec<u8> {
    let time = u64::from(number).to_le_bytes();
    [&0_u32.to_le_bytes()[..], &time, &number.to_le_bytes()].concat()
}

/// Puts a number in place of a packet's size (`SIZES_OFFSET`) or its content's (8 bytes further).
pub(crate) fn set_packet_size(packet: &mut [u8], at: usize, bits: u64) {
    packet[at..at + 8].copy_from_slice(&bits.to_le_bytes());
}

/// Writes a trace with this metadata and these streams.
pub(crate) fn write_trace(folder: &Path, metadata: &str, streams: &[(&str, &[u8])]) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("metadata"), metadata).unwrap();
    for (name, bytes) in streams {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// Returns the numbers of the ticks in printed text, in order.
pub(crate) fn tick_numbers(text: &[u8]) -> Vec<u32> {
    let text = String::from_utf8_lossy(text);
    let number = |line: &str| {
        let (_, rest) = line.split_once("tick: { n = ")?;
        rest.strip_suffix(" }")?.parse().ok()
    };
    text.lines().map(|line| number(line).unwrap_or_else(|| panic!("no tick: {line}"))).collect()
}
