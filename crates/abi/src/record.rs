//! The record header: CTF's compact event header with one addition.
//!
//! ```text
//! tag 0–29   | time:27 tag:5 |                      4 bytes; the tag is the id
//! tag 30     | time:27 tag:5 | id u16 |             6 bytes
//! tag 31     | tag u8 | id u32 | time u64 |        13 bytes, unaligned
//! ```
//!
//! All little endian, without gaps. `time` is the low 27 bits of the record's time in ns; the
//! long form is used when 2^27 ns (134 ms) or more passed since the record before it in the same
//! region, so that a reader can always rebuild the full time.

/// Bits of the tag.
pub const TAG_BITS: u32 = 5;
/// Tag of a header with a 16-bit id.
pub const TAG_MEDIUM: u32 = 30;
/// Tag of a header with a 32-bit id and the full time.
pub const TAG_EXTENDED: u32 = 31;
/// Bits of the time in the short headers.
pub const TIME_BITS: u32 = 27;

/// Size of a header with its id in the tag, in bytes.
pub const COMPACT_BYTES: usize = 4;
/// Size of a header with a 16-bit id, in bytes.
pub const MEDIUM_BYTES: usize = 6;
/// Size of the longest header, in bytes.
pub const EXTENDED_BYTES: usize = 13;

/// Longest record, header and contexts included, in bytes.
pub const RECORD_BYTES_MAX: usize = 4096;
/// Free bytes that a staged payload has in front of it, for contexts and header.
pub const HEADROOM_BYTES: usize = 128;
/// Readable bytes behind a staged payload, so that it can be copied by words.
pub const TAILROOM_BYTES: usize = 8;
/// Longest payload, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 4000;
/// `TRACKWAY_ABI_CUT`: set in a payload's size if a field was cut to fit. No record has room for a
/// payload of such a size, so it costs the recording path nothing to see it.
pub const CUT: usize = !(usize::MAX >> 1);

/// Context bits of a session, in the order in which contexts stand in a record.
pub mod context {
    pub use trackway_schema::context::{PROCNAME, PROCNAME_BYTES, VPID, VTID};

    /// Contexts of applications: those that [`crate::session::Session::applications`] names, in
    /// that order. Of each a byte that says what follows, by the codes of `trackway_jit::Kind`:
    /// [`NOTHING`], an i64, a u64, an f64, or a string that ends with a NUL.
    pub const APPLICATIONS: u32 = trackway_schema::context::APPLICATIONS;
    /// Most contexts of applications.
    pub const APPLICATIONS_MAX: usize = 4;
    /// Most bytes of one: a string of 31, its NUL, and what says that it is one.
    pub const APPLICATION_BYTES_MAX: usize = 33;
    /// Most bytes of all of them: what finds no room is as if it were not set.
    pub const APPLICATIONS_ROOM: usize = super::HEADROOM_BYTES - super::ORDINARY_BYTES_MAX;
    /// First byte of an application context that the thread has not set.
    pub const NOTHING: u8 = 0;
}

/// Most bytes of a record's header and contexts, but those of applications.
pub const ORDINARY_BYTES_MAX: usize =
    EXTENDED_BYTES + trackway_schema::context::record_bytes_of(u32::MAX);

const _: () = assert!(
    // Two strings, and two numbers.
    context::APPLICATIONS_ROOM >= 2 * context::APPLICATION_BYTES_MAX + 2 * 9
        && ORDINARY_BYTES_MAX + context::APPLICATIONS_MAX + PAYLOAD_BYTES_MAX <= RECORD_BYTES_MAX
);
