//! CTF 1.8 written as LTTng-UST writes it: metadata text, packet headers and packet indexes.
//!
//! The invariant: what is written here, put around records as they lie in memory, is a trace
//! that babeltrace2 and Trace Compass read without a word of warning, whatever the names in an
//! event's description are.
//!
//! ```text
//! packet := header (84 bytes) | record* | padding up to packet_bytes
//! record := tag 5 bits + time 27 bits            tags 0 to 29 are the event's id (4 bytes)
//!         | tag 30 + time 27 bits | id u16       (6 bytes)
//!         | tag 31 in one byte | id u32 | time u64                            (13 bytes)
//!           then the contexts (see [`Contexts`]), then the payload, all byte packed, little endian
//! ```
//!
//! # How babeltrace2 2.0.4 counts what was lost
//!
//! Found in its source (`check_emit_msg_discarded_events` and `…_packets` in `msg-iter.c`) and
//! held against it by the tests. Per stream, when it has read a packet's context, in the order of
//! packets (the file's; by `timestamp_begin` where several files make up one stream):
//!
//! * `events_discarded` is a running total. A packet that follows another reports the
//!   difference, if it is not 0, as lost between the former's end and its own end.
//! * A *first* packet whose total is not 0 is reported without a number ("Tracer may have
//!   discarded events"), between its own begin and end, because the loss may have been before
//!   it. So that a loss in the very first packet is counted, begin the stream with an empty one:
//!   content and packet 672 bits (the 84 bytes of the header alone), total 0.
//! * `packet_seq_num` must grow by one from packet to packet; a greater step (or one backwards,
//!   which wraps) is reported as that many packets less one, between the former's end and the
//!   latter's begin. The first packet may have any number.
//! * The times play no part in counting, but a message that is earlier than the one before it
//!   ends babeltrace2 with an error: packets' times, and events' times, must not go backwards.
//! * Two files with equal `stream_id` and `stream_instance_id` are one stream: their packets are
//!   read as one sequence and the rules above go across both, so instance ids must differ.

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
