//! Metadata and the bytes of one stream: yields events, or damage with its position.
//!
//! ```text
//! size of the metadata u16, little endian | metadata, in TSDL or in JSON | stream
//! ```

use trackway_ctf::read::{
    DecodeError, Enumeration, EventSink, Integer, Member, Scope, Sink, StreamDecoder, Trace,
    VariantOption, Window,
};

use crate::Bound;

/// Limit of values. Each bit of a packet may be a value, and each packet may have further values in
/// arrays of zero-size elements. All count twice, because an event may be decoded twice.
pub(crate) const VALUES: Bound = Bound { per_byte: 2 * (4 * 8 + 8192), base: 16 << 10 };
/// Maximum number of packets read from one input.
const PACKETS_MAX: usize = 64;

/// Reads the packets of a stream. The work is the number of values that the decoder produced.
pub fn read_packets(bytes: &[u8]) -> u64 {
    let Some((size, rest)) = bytes.split_first_chunk::<2>() else { return 0 };
    let size = usize::from(u16::from_le_bytes(*size)).min(rest.len());
    let (metadata, stream) = rest.split_at(size);
    let Ok(trace) = Trace::parse(metadata) else { return 0 };
    let mut counter = Counter::default();
    let mut decoder = StreamDecoder::new(&trace);
    let mut at = 0;
    for _ in 0..PACKETS_MAX {
        let Some(rest) = stream.get(at..).filter(|rest| !rest.is_empty()) else { break };
        match read_packet(&mut decoder, rest, &mut counter) {
            Ok(size) => at = at.saturating_add(size),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert_eq!(counter.depth, 0, "structures and arrays end");
    counter.values
}

/// Reads a packet; returns its size in bytes.
fn read_packet(
    decoder: &mut StreamDecoder<'_>,
    bytes: &[u8],
    counter: &mut Counter,
) -> Result<usize, DecodeError> {
    let window = Window::whole(bytes);
    let packet = decoder.begin_packet(window, bytes.len() as u64, counter, |_| {})?;
    assert!(decoder.content_bits() <= packet.packet_bits.unwrap_or(u64::MAX));
    let mut position = decoder.position_bits();
    while let Some(event) = decoder.begin_event(window)? {
        let depth = counter.depth;
        if let Err(error) = event.read(counter) {
            counter.depth = depth;
            return Err(error);
        }
        counter.values += 1;
        assert!(decoder.position_bits() > position, "an event takes space");
        position = decoder.position_bits();
        assert!(position <= 8 * bytes.len() as u64, "no event ends beyond the bytes");
    }
    let whole = packet.packet_bits.map_or(bytes.len() as u64, |bits| bits / 8);
    assert!(whole > 0, "a packet takes space");
    Ok(usize::try_from(whole).unwrap_or(usize::MAX))
}

/// Counts the values, and checks that begin and end calls match.
#[derive(Debug, Default)]
struct Counter {
    values: u64,
    depth: u32,
}

impl Sink for Counter {
    fn integer(&mut self, _: &Integer, _: u64) {
        self.values += 1;
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.values += 1;
        // Looks up labels, which a caller does when it displays the value.
        assert!(kind.labels_of(value).all(|label| label.len() <= usize::from(u16::MAX)));
    }

    fn float(&mut self, _: f64) {
        self.values += 1;
    }

    fn text(&mut self, bytes: &[u8]) {
        self.values += 1;
        assert!(!bytes.contains(&0), "text ends at its NUL");
    }

    fn begin_struct(&mut self) {
        self.values += 1;
        self.depth += 1;
    }

    fn member(&mut self, _: &Member) {}

    fn end_struct(&mut self) {
        self.depth -= 1;
    }

    fn begin_array(&mut self) {
        self.values += 1;
        self.depth += 1;
    }

    fn element(&mut self, _: u64) {}

    fn end_array(&mut self) {
        self.depth -= 1;
    }

    fn begin_variant(&mut self, _: &VariantOption) {
        self.depth += 1;
    }

    fn end_variant(&mut self) {
        self.depth -= 1;
    }
}

impl EventSink for Counter {
    fn begin_scope(&mut self, _: Scope) {}
}
