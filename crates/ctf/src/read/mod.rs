//! Reading of CTF 1.8 and 2: metadata is parsed, packets and events are decoded.
//!
//! [`Trace::parse`] reads the metadata; a [`StreamDecoder`] walks through one stream's packets;
//! [`read_stream`] and [`read_trace`] decode bytes in memory. All of them are safe on hostile
//! bytes: the size of the input bounds recursion, memory and work. A problem is returned as an
//! error with its place.
//!
//! ```text
//! metadata/: packetized → lexer → parser, type_parser → node → resolve → model, trace
//!                       → json (CTF 2)               ↗
//!                                                    data stream → stream → decode → Sink
//! ```

mod cpu;
mod cursor;
mod decode;
mod error;
mod header;
mod metadata;
mod replace;
mod source;
mod stream;
#[cfg(test)]
mod testing;
mod trace;
mod value;

pub use cpu::CpuId;
pub(crate) use cursor::Cursor;
pub(crate) use decode::{
    DecodeState, charge_elements, decode_integer, read_wide_bytes, reverse_low_bits, select_option,
};
pub use decode::{Sink, Skip};
pub use error::{DecodeError, MetadataError, MetadataProblem, TimeError};
pub use metadata::node::EnvironmentValue;
pub use replace::{INCOMPLETE, Replacement};
pub use source::{
    ByteSource, Damage, SourceStream, StreamError, has_full_end_timestamp, packets_stand_alone,
};
pub use stream::{
    EventBody, EventHeader, EventSink, Loss, LossKind, Packet, ResumeState, StreamDecoder,
    WholeEvent, Window,
};
pub use trace::{Clock, ClockClass, EventClass, StreamClass, Trace, TraceIdentity};
pub use value::{Event, StreamEvents, Value, read_stream, read_trace};

pub use crate::model::meaning::{Meaning, Names};
pub use crate::model::scope::Scope;
pub use crate::model::types::{
    Array, Base, Encoding, Enumeration, Float, Integer, Member, Sequence, Struct, Type, Variant,
    VariantOption, WideText,
};
pub(crate) use crate::model::types::{Role, TextEnd};
