//! Detection of packets that several files have, one of them possibly in part: overlapping
//! snapshots contain the packet that was being written at different lengths.
//!
//! The packets' headers are not sufficient if the lengths differ: parts from which
//! `trackway trim --event` cut different events may have equal headers. So the contents are
//! compared, as far as the shorter packet goes.

use trackway_ctf::read::{
    ByteSource, Packet, ResumeState, Skip, SourceStream, StreamDecoder, Trace,
};

use crate::input::HEADER_WINDOW_BYTES;

/// Number of bytes of each packet that are compared at a time.
const PIECE_BYTES: usize = 16 << 10;

/// A packet in a file.
pub(crate) struct PacketAt<'b, B> {
    pub(crate) bytes: &'b B,
    /// Offset of the packet in bytes, and its number.
    pub(crate) at: (u64, u64),
    pub(crate) packet: Packet,
}

impl<B: ByteSource> PacketAt<'_, B> {
    /// Returns true if this packet and `other`, of the same stream and begin time, are the same
    /// packet.
    pub(crate) fn is_of_same(&self, other: &Self, trace: &Trace) -> bool {
        let (one, another) = (&self.packet, &other.packet);
        if one == another {
            return true;
        }
        let has_same_number = one.sequence.is_some() && one.sequence == another.sequence;
        let is_of_same_stream =
            (one.stream, one.stream_instance) == (another.stream, another.stream_instance);
        has_same_number && is_of_same_stream && self.begins_as(other, trace).unwrap_or(false)
    }

    /// Returns true if both packets are equal up to the end of the shorter one; `None` if that
    /// cannot be determined.
    fn begins_as(&self, other: &Self, trace: &Trace) -> Option<bool> {
        let from = self.events_at(trace)?;
        let to = self.packet.content_bits?.min(other.packet.content_bits?) / 8;
        if other.events_at(trace)? != from {
            return Some(false);
        }
        let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
        let mut at = from;
        while at < to {
            let length = (to - at).min(PIECE_BYTES as u64) as usize;
            for (piece, packet) in pieces.iter_mut().zip([self, other]) {
                let piece = piece.get_mut(..length)?;
                let filled = packet.bytes.fill_at(piece, packet.at.0.checked_add(at)?).ok()?;
                if filled < length {
                    return None;
                }
            }
            if pieces[0].get(..length) != pieces[1].get(..length) {
                return Some(false);
            }
            at += length as u64;
        }
        Some(true)
    }

    /// Returns the start of the packet's events, in whole bytes from the packet's start, rounded
    /// down.
    fn events_at(&self, trace: &Trace) -> Option<u64> {
        let mut source = SourceStream::new(self.bytes).with_window(HEADER_WINDOW_BYTES, Vec::new());
        source.go_to(self.at.0, self.at.1);
        let mut decoder = StreamDecoder::resume(trace, ResumeState::default());
        source.begin_packet(&mut decoder, &mut Skip, |_| {}).ok()?;
        Some(decoder.position_bits() / 8)
    }
}
