//! The record header: CTF's compact event header with one addition.
//!
//! ```text
//! tag 0–29   | time:27 tag:5 |                      4 bytes; the tag is the id
//! tag 30     | time:27 tag:5 | id u16 |             6 bytes
//! tag 31     | tag u8 | id u32 | time u64 |        13 bytes, unaligned
//! ```
//!
//! All fields are little endian, without gaps. `time` is the low 27 bits of the record's time in
//! ns. If 2^27 ns (134 ms) or more passed since the previous record in the region, the long form is
//! used, so that a reader can always rebuild the full time.

/// Number of bits of the tag.
pub const TAG_BITS: u32 = 5;
/// Tag of a header with a 16-bit id.
pub const TAG_MEDIUM: u32 = 30;
/// Tag of a header with a 32-bit id and the full time.
pub const TAG_EXTENDED: u32 = 31;
/// Number of bits of the time in the short headers.
pub const TIME_BITS: u32 = 27;

/// Size of a header with its id in the tag, in bytes.
pub const COMPACT_BYTES: usize = 4;
/// Size of a header with a 16-bit id, in bytes.
pub const MEDIUM_BYTES: usize = 6;
/// Size of the longest header, in bytes.
pub const EXTENDED_BYTES: usize = 13;

/// Longest record, header and contexts included, in bytes.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Free bytes before a staged payload, for contexts and header.
pub const HEADROOM_BYTES: usize = 128;
/// Readable bytes after a staged payload, so that it can be copied in whole words.
pub const TAILROOM_BYTES: usize = 8;
/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 4000;
/// `TRACKWAY_ABI_CUT`: bit in a payload's size that marks a field cut to fit. No record has space
/// for a payload of such a size, so the recording path detects the bit at no cost.
pub const CUT: usize = !(usize::MAX >> 1);

/// Context bits of a session, in the order of contexts in a record.
pub mod context {
    pub use trackway_schema::context::{PROCNAME, PROCNAME_BYTES, VPID, VTID};

    /// Contexts of applications, in the order of [`crate::session::Session::applications`]. Each
    /// begins with a byte for the type of its value, by the codes of `trackway_jit::Kind`:
    /// [`NOTHING`], an i64, a u64, an f64, or a string that ends with a NUL.
    pub const APPLICATIONS: u32 = trackway_schema::context::APPLICATIONS;
    /// Most contexts of applications in a session.
    pub const APPLICATIONS_MAX: usize = 4;
    /// Largest context of an application, in bytes: a type byte, a string of 31 bytes, and a NUL.
    pub const APPLICATION_BYTES_MAX: usize = 33;
    /// Space for all contexts of applications, in bytes; one that does not fit is recorded as
    /// unset.
    pub const APPLICATIONS_ROOM: usize = super::HEADROOM_BYTES - super::ORDINARY_BYTES_MAX;
    /// First byte of an application context that the thread has not set.
    pub const NOTHING: u8 = 0;
}

/// Largest header and contexts of a record, in bytes, without contexts of applications.
pub const ORDINARY_BYTES_MAX: usize =
    EXTENDED_BYTES + trackway_schema::context::record_bytes_of(u32::MAX);

const _: () = assert!(
    // The space fits two strings and two numbers.
    context::APPLICATIONS_ROOM >= 2 * context::APPLICATION_BYTES_MAX + 2 * 9
        && ORDINARY_BYTES_MAX + context::APPLICATIONS_MAX + PAYLOAD_BYTES_MAX <= RECORD_BYTES_MAX
);
