//! A session's channel as it stands in the window: everything that a writer must know of it.
//!
//! A session has one channel or several, each with buffers, rules and contexts of its own; to
//! writers each is a session by itself, with a slot here and a bit in enable words
//! (docs/design/0007-sessions.md).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Most sessions at a time: one bit each in an event's enable word.
pub const SESSIONS_MAX: usize = 32;
/// Longest event rules, in bytes.
pub const RULES_BYTES_MAX: usize = 2048;
/// Longest path of a trace folder, in bytes.
pub const PATH_BYTES_MAX: usize = 2048;
/// Longest name of a session or of a channel, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest rules for processes, in bytes.
pub const PROCESS_RULES_BYTES_MAX: usize = 512;
/// Longest name of an application's context, `provider:name`, in bytes.
pub const APPLICATION_BYTES_MAX: usize = 63;
/// Longest names of a session's contexts of applications, in bytes.
pub const APPLICATIONS_BYTES_MAX: usize =
    crate::record::context::APPLICATIONS_MAX * (APPLICATION_BYTES_MAX + 1);
/// Size of a session's block, in bytes.
pub const SESSION_BYTES: usize = 8192;

/// States of a session's slot.
pub mod state {
    /// The slot is free.
    pub const FREE: u32 = 0;
    /// A recorder is filling it in; writers look away.
    pub const BUILDING: u32 = 1;
    /// Recording.
    pub const ACTIVE: u32 = 2;
    /// Stopping: no new records; the recorder (or `recover`) drains what is there.
    pub const ENDING: u32 = 3;
}

/// Flags of a session.
pub mod flag {
    /// Flight recorder: the newest records overwrite the oldest.
    pub const OVERWRITE: u32 = 1;
    /// Only processes that hold the session's token take part (`record -- CMD`).
    pub const TOKEN: u32 = 2;
    /// This kernel does not abort sequences as it must: write by claim only.
    pub const CLAIM_ONLY: u32 = 4;
    /// Written by reserve and commit (the 2012 paper's way): one lockless buffer for each CPU, and
    /// none of the other regions.
    pub const LOCKLESS: u32 = 8;
    /// No process takes part for now: the session is stopped, or was not started yet.
    pub const PAUSED: u32 = 16;
    /// It has filters: what they are about is recorded only if they say so. See
    /// [`super::Session::filters`].
    pub const FILTERED: u32 = 32;
}

/// Conversion of the processor's clock to CLOCK_MONOTONIC ns, under a sequence count: `ns = base_ns
/// + ((tsc − base_tsc) × multiplier >> 32)`, valid while `tsc − base_tsc ≤ span`.
///
/// Written by the recorder: `sequence` odd, the four values, `sequence` even. A `span` of zero
/// sends writers to clock_gettime(2), as does a calibration that was not renewed for 2 s.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Clock {
    /// Odd while the recorder writes.
    pub sequence: AtomicU64,
    /// Time-stamp counter at the base.
    pub base_tsc: AtomicU64,
    /// ns per tick, as a fixed-point number with 32 fractional bits.
    pub multiplier: AtomicU64,
    /// CLOCK_MONOTONIC at the base, in ns.
    pub base_ns: AtomicU64,
    /// Ticks for which this calibration holds.
    pub span: AtomicU64,
    /// Raised when the clock jumped (suspend, unstable counter).
    pub epoch: AtomicU64,
}

/// A session's block.
#[repr(C, align(64))]
pub struct Session {
    /// Raised whenever something that writers cache changes; checked inside every commit.
    pub generation: AtomicU64,
    /// One of [`state`].
    pub state: AtomicU32,
    /// [`flag`] bits.
    pub flags: AtomicU32,
    /// CLOCK_MONOTONIC ns until which the recorder is taken to be alive; of a slot that is free,
    /// when it was freed.
    pub lease_until_ns: AtomicU64,
    /// Contexts: bits of [`crate::record::context`].
    pub contexts: AtomicU32,
    /// CPUs that have regions.
    pub cpus: AtomicU32,
    /// Sub-buffer size of sequence regions, as a power of two.
    pub sub_shift: AtomicU32,
    /// Sub-buffers of every region, as a power of two.
    pub count_shift: AtomicU32,
    /// Sub-buffer size of claim regions, as a power of two.
    pub claim_sub_shift: AtomicU32,
    /// Next event id; ids below it are taken (or lost to a race, which leaves a gap).
    pub next_id: AtomicU32,
    /// Start of the regions' control lines, in bytes of the window.
    pub control_offset: AtomicU64,
    /// Start of the table of ids: `EVENTS_MAX` × u32, id + 1 by event index.
    pub ids_offset: AtomicU64,
    /// Start of the table of discards: `EVENTS_MAX` × u64 by event index.
    pub discards_offset: AtomicU64,
    /// Processes that took part.
    pub processes: AtomicU32,
    /// Index of the event whose record was cut last.
    pub cut_event: AtomicU32,
    /// Records with a field that was cut to fit, those overwritten since included.
    pub records_cut: AtomicU64,
    /// Random number that a process must hold to take part, when [`flag::TOKEN`] is set.
    pub token: AtomicU64,
    /// The recorder: its process id in its own namespace.
    pub recorder_pid: AtomicU32,
    /// User whose trace it is.
    pub uid: AtomicU32,
    /// Inode number of the recorder's process-id namespace.
    pub recorder_pid_namespace: AtomicU64,
    /// CLOCK_BOOTTIME ns when the recorder took the session.
    pub recorder_since_ns: AtomicU64,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC at the start, in ns.
    pub realtime_offset_ns: AtomicU64,
    /// Identity of the trace, its UUID, in two halves.
    pub trace_uuid: [AtomicU64; 2],
    /// Bytes in use of `rules`.
    pub rules_bytes: AtomicU32,
    /// Bytes in use of `path`.
    pub path_bytes: AtomicU32,
    /// The clock, on a line of its own.
    pub clock: Clock,
    /// Event rules, as `trackway_schema::Rules` reads them.
    pub rules: [AtomicU8; RULES_BYTES_MAX],
    /// Trace folder, absolute.
    pub path: [AtomicU8; PATH_BYTES_MAX],
    /// Processes that took part and are another user's now.
    pub departed: AtomicU32,
    /// Odd while `rules` changes. A reader that finds the same even value before and after has read
    /// all of the rules.
    pub rules_revision: AtomicU32,
    /// Longest time that a program which allows it waits for room, for one record, in ns; 0: no
    /// program waits.
    pub blocking_ns: AtomicU64,
    /// The slot, plus one, that takes what was on its way to this one: this channel was given
    /// other contexts or sizes while it recorded. 0: none.
    pub successor: AtomicU32,
    /// Raised by programs that ask for a snapshot of their flight recorder.
    pub snapshot_requests: AtomicU32,
    /// Claim regions of CPUs below this have memory from the start, for writers on CPUs that have
    /// none yet; 0: every CPU that is online has some of its own.
    pub spare_cpus: AtomicU32,
    /// Number of the channel's stream class in the trace.
    pub stream_class: AtomicU32,
    /// Bytes in use of `process_rules`.
    pub process_rules_bytes: AtomicU32,
    /// Bytes in use of `name`.
    pub name_bytes: AtomicU32,
    /// Bytes in use of `channel`.
    pub channel_bytes: AtomicU32,
    /// Processes that take part, as `trackway_schema::ProcessRules` reads it; empty: all.
    pub process_rules: [AtomicU8; PROCESS_RULES_BYTES_MAX],
    /// The session's name.
    pub name: [AtomicU8; NAME_BYTES_MAX],
    /// The channel's name.
    pub channel: [AtomicU8; NAME_BYTES_MAX],
    /// The place of the block of filters (crate `jit`), as one word, [`filters_place`]; 0: none.
    /// Another block is at another place, and the generation is raised after it.
    pub filters: AtomicU64,
    /// Processes that have to interpret filters: no memory that is executed is to be had there.
    pub interpreters: AtomicU32,
    /// Bytes in use of `applications`.
    pub applications_bytes: AtomicU32,
    /// Names of the contexts of applications that its records have, `provider:name`, a line each.
    pub applications: [AtomicU8; APPLICATIONS_BYTES_MAX],
}

/// The word that says where a block of filters is: its beginning in the window, a multiple of
/// [`FILTERS_ALIGNMENT`], and its size, both in bytes.
pub const fn filters_word(offset: u64, bytes: u32) -> u64 {
    (offset / FILTERS_ALIGNMENT) << 32 | bytes as u64
}

/// Offset and size of the block that a word speaks of, in bytes; `None`: there is none. Not yet
/// bounded by anything.
pub const fn filters_place(word: u64) -> Option<(u64, usize)> {
    if word == 0 {
        return None;
    }
    Some(((word >> 32) * FILTERS_ALIGNMENT, (word & 0xffff_ffff) as usize))
}

/// Blocks of filters begin at multiples of this, in bytes of the window.
pub const FILTERS_ALIGNMENT: u64 = 64;

const _: () = assert!(size_of::<Clock>() == 64);
const _: () = assert!(size_of::<Session>() <= SESSION_BYTES);
const _: () = assert!(core::mem::offset_of!(Session, clock).is_multiple_of(64));
