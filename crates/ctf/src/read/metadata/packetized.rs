//! Extraction of the metadata text from packets (CTF 1.8, §7.1).

use std::borrow::Cow;

use crate::read::error::{MetadataError, MetadataProblem};

const METADATA_MAGIC: u32 = 0x75D1_1D57;
/// Size of a packet header: magic u32, uuid 16, checksum u32, content and packet size in bits u32
/// each, compression, encryption and checksum scheme u8 each, version u8 twice.
const HEADER_BYTES: usize = 37;

/// Returns the text of a metadata file: the whole file, or the contents of its packets.
pub(crate) fn extract_text(bytes: &[u8]) -> Result<Cow<'_, [u8]>, MetadataError> {
    let Some(first) = bytes.first_chunk::<4>() else { return Ok(Cow::Borrowed(bytes)) };
    let read: fn([u8; 4]) -> u32 = if u32::from_le_bytes(*first) == METADATA_MAGIC {
        u32::from_le_bytes
    } else if u32::from_be_bytes(*first) == METADATA_MAGIC {
        u32::from_be_bytes
    } else {
        return Ok(Cow::Borrowed(bytes));
    };
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let packet = bytes.get(at..).unwrap_or_default();
        let (content, packet_bytes) = parse_packet(packet, read).map_err(|problem| {
            let problem = problem(at);
            MetadataError { line: 0, column: 0, problem }
        })?;
        text.extend_from_slice(content);
        at += packet_bytes;
    }
    Ok(Cow::Owned(text))
}

type ProblemAtOffset = fn(usize) -> MetadataProblem;

fn parse_packet(
    packet: &[u8],
    read: fn([u8; 4]) -> u32,
) -> Result<(&[u8], usize), ProblemAtOffset> {
    let bad: ProblemAtOffset = MetadataProblem::Packet;
    let word = |at: usize| {
        packet.get(at..).and_then(|rest| rest.first_chunk::<4>()).map(|&bytes| read(bytes))
    };
    if word(0) != Some(METADATA_MAGIC) {
        return Err(bad);
    }
    let content_bits = word(24).ok_or(bad)?;
    let packet_bits = word(28).ok_or(bad)?;
    let schemes = packet.get(32..HEADER_BYTES).ok_or(bad)?;
    if schemes[0] != 0 || schemes[1] != 0 || (schemes[3], schemes[4]) != (1, 8) {
        return Err(MetadataProblem::Scheme);
    }
    let (content_bytes, packet_bytes) = ((content_bits / 8) as usize, (packet_bits / 8) as usize);
    if content_bytes > packet_bytes || packet_bytes > packet.len() {
        return Err(bad);
    }
    Ok((packet.get(HEADER_BYTES..content_bytes).ok_or(bad)?, packet_bytes))
}
