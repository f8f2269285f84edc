//! Writing of CTF 1.8 in LTTng-UST's form: metadata text, packet headers and packet indexes.
//!
//! Main invariant: this module's output, put around records as they lie in memory, is a trace that
//! babeltrace2 and Trace Compass read without a warning, whatever names an event's description has.
//!
//! ```text
//! packet := header (84 bytes) | record* | padding up to packet_bytes
//! record := tag 5 bits + time 27 bits            tags 0 to 29 are the event's id (4 bytes)
//!         | tag 30 + time 27 bits | id u16       (6 bytes)
//!         | tag 31 in one byte | id u32 | time u64                            (13 bytes)
//!           then the contexts (see [`Contexts`]), then the payload, all byte packed, little endian
//! ```
//!
//! # How babeltrace2 2.0.4 counts losses
//!
//! Source: babeltrace2 (`check_emit_msg_discarded_events` and `…_packets` in `msg-iter.c`); the
//! tests compare the results. Babeltrace2 applies these rules per stream when it has read a
//! packet's context. Packets are in the file's order, or by `timestamp_begin` if several files make
//! up one stream:
//!
//! * `events_discarded` is a running total. If it differs between consecutive packets, the
//!   difference is reported as lost between the ends of the two packets.
//! * A *first* packet whose total is not 0 is reported without a number ("Tracer may have discarded
//!   events"), between its own begin and end, because the loss may precede it. So that a loss in
//!   the very first packet is counted, begin the stream with an empty packet: content and packet
//!   672 bits (the 84 bytes of the header alone), total 0.
//! * `packet_seq_num` must grow by one from packet to packet. A greater step (or a step backwards,
//!   which wraps) is reported as that many packets less one, between the previous packet's end and
//!   the next packet's begin. The first packet may have any number.
//! * The times do not affect counting, but a message that is earlier than its predecessor ends
//!   babeltrace2 with an error: times of packets and events must not go backwards.
//! * Two files with equal `stream_id` and `stream_instance_id` are one stream: babeltrace2 reads
//!   their packets as one sequence and applies these rules across both. So instance ids must
//!   differ.

mod meaning;
mod metadata;
mod packet;
mod rewrite;

pub use meaning::{Meaning, TypeDeclaration, ValueNames, parse_declared_type_name};
pub use metadata::{
    Contexts, Domain, TraceDescription, application_member, application_tag, event_declaration,
    event_declaration_meaning, metadata_preamble, stream_declaration,
};
pub use packet::{
    INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, PACKET_HEADER_BYTES, PacketFields, index_entry,
    index_header, packet_header,
};
pub use rewrite::{NewPacket, PacketRewriter};
