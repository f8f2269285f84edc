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
//! Per stream (one data file), in the order of the file, when it reads a packet's context:
//!
//! * `events_discarded` is taken as a running total of the stream. A packet that follows another
//!   reports the difference; no difference, no warning.
//! * Whether the very first packet's own value is reported is decided by `first packet` rules
//!   that are described at [`PacketFields::events_discarded`].
//! * `packet_seq_num` must grow by one; a greater step is reported as discarded packets.

mod metadata;
mod packet;

pub(crate) use metadata::Uuid;
pub use metadata::{Contexts, TraceDescription, event_declaration, metadata_preamble};
pub use packet::{
    INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, PACKET_HEADER_BYTES, PacketFields, index_entry,
    index_header, packet_header,
};
