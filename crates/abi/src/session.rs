//! The data of a session's channel in the window: everything that a writer needs.
//!
//! A session has one channel or several, each with its own buffers, rules and contexts. Writers
//! treat each channel as a session, with its own slot here and its own bit in enable words
//! (docs/design/0007-sessions.md).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Most sessions at a time: each has one bit in an event's enable word.
pub const SESSIONS_MAX: usize = 32;
/// Largest size of event rules, in bytes.
pub const RULES_BYTES_MAX: usize = 2048;
/// Longest path of a trace folder, in bytes.
pub const PATH_BYTES_MAX: usize = 2048;
/// Longest name of a session or of a channel, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Largest size of process rules, in bytes.
pub const PROCESS_RULES_BYTES_MAX: usize = 512;
/// Longest name of an application's context, `provider:name`, in bytes.
pub const APPLICATION_BYTES_MAX: usize = 63;
/// Largest size of the names of a session's application contexts, in bytes.
pub const APPLICATIONS_BYTES_MAX: usize =
    crate::record::context::APPLICATIONS_MAX * (APPLICATION_BYTES_MAX + 1);
/// Size of a session's block, in bytes.
pub const SESSION_BYTES: usize = 8192;

/// States of a session's slot.
pub mod state {
    /// The slot is free.
    pub const FREE: u32 = 0;
    /// A recorder fills the slot in; writers ignore it.
    pub const BUILDING: u32 = 1;
    /// The session records.
    pub const ACTIVE: u32 = 2;
    /// The session ends: no new records; the recorder (or `recover`) drains the remaining ones.
    pub const ENDING: u32 = 3;
}

/// Flags of a session.
pub mod flag {
    /// Flight recorder: the newest records overwrite the oldest.
    pub const OVERWRITE: u32 = 1;
    /// Only processes that hold the session's token take part (`record -- CMD`).
    pub const TOKEN: u32 = 2;
    /// Writers reserve only by claim, because this kernel does not abort sequences correctly.
    pub const CLAIM_ONLY: u32 = 4;
    /// Writers reserve and commit in lockless buffers (the method of the 2012 paper): one buffer
    /// for each CPU replaces the other regions.
    pub const LOCKLESS: u32 = 8;
    /// No process takes part now: the session is stopped, or not started yet.
    pub const PAUSED: u32 = 16;
    /// The session has filters: events in their scope are recorded only if a filter accepts them.
    /// See [`super::Session::filters`].
    pub const FILTERED: u32 = 32;
}

/// Conversion of the processor's clock to CLOCK_MONOTONIC ns, under a sequence count: `ns = base_ns
/// + ((tsc − base_tsc) × multiplier >> 32)`, valid while `tsc − base_tsc ≤ span`.
///
/// The recorder writes an odd `sequence`, the four values, then an even `sequence`. If `span` is
/// zero, or the calibration is older than 2 s, writers use clock_gettime(2).
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Clock {
    /// Sequence count: odd while the recorder writes.
    pub sequence: AtomicU64,
    /// Time-stamp counter at the base.
    pub base_tsc: AtomicU64,
    /// ns per tick, as a fixed-point number with 32 fractional bits.
    pub multiplier: AtomicU64,
    /// CLOCK_MONOTONIC at the base, in ns.
    pub base_ns: AtomicU64,
    /// Number of ticks for which the calibration is valid.
    pub span: AtomicU64,
    /// Clock epoch, raised when the clock jumped (suspend, unstable counter).
    pub epoch: AtomicU64,
}

/// A session's block in the window.
#[repr(C, align(64))]
pub struct Session {
    /// Generation: raised when anything that writers cache changes; checked inside every commit.
    pub generation: AtomicU64,
    /// State of the slot: a constant of [`state`].
    pub state: AtomicU32,
    /// [`flag`] bits.
    pub flags: AtomicU32,
    /// CLOCK_MONOTONIC time in ns until which the recorder counts as alive; in a free slot, the
    /// time when the slot was freed.
    pub lease_until_ns: AtomicU64,
    /// Contexts: bits of [`crate::record::context`].
    pub contexts: AtomicU32,
    /// Number of CPUs that have regions.
    pub cpus: AtomicU32,
    /// Sub-buffer size of sequence regions, as a power of two.
    pub sub_shift: AtomicU32,
    /// Number of sub-buffers of every region, as a power of two.
    pub count_shift: AtomicU32,
    /// Sub-buffer size of claim regions, as a power of two.
    pub claim_sub_shift: AtomicU32,
    /// Next event id. Lower ids are assigned; a race can leave a gap.
    pub next_id: AtomicU32,
    /// Start of the regions' control lines, in bytes of the window.
    pub control_offset: AtomicU64,
    /// Start of the table of ids, in bytes of the window: `EVENTS_MAX` × u32, id + 1 by event
    /// index.
    pub ids_offset: AtomicU64,
    /// Start of the table of discard counts, in bytes of the window: `EVENTS_MAX` × u64 by event
    /// index.
    pub discards_offset: AtomicU64,
    /// Number of processes that took part.
    pub processes: AtomicU32,
    /// Index of the event of the latest record with a cut field.
    pub cut_event: AtomicU32,
    /// Number of records with a field that was cut to fit, including overwritten records.
    pub records_cut: AtomicU64,
    /// Random number that a process must hold to take part, when [`flag::TOKEN`] is set.
    pub token: AtomicU64,
    /// Process id of the recorder in its own pid namespace.
    pub recorder_pid: AtomicU32,
    /// User who owns the trace.
    pub uid: AtomicU32,
    /// Inode number of the recorder's process-id namespace.
    pub recorder_pid_namespace: AtomicU64,
    /// CLOCK_BOOTTIME in ns when the recorder took the session.
    pub recorder_since_ns: AtomicU64,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC at the start of the session, in ns.
    pub realtime_offset_ns: AtomicU64,
    /// UUID of the trace, in two halves.
    pub trace_uuid: [AtomicU64; 2],
    /// Number of used bytes of `rules`.
    pub rules_bytes: AtomicU32,
    /// Number of used bytes of `path`.
    pub path_bytes: AtomicU32,
    /// Clock line, in a cache line of its own.
    pub clock: Clock,
    /// Event rules, as `trackway_schema::Rules` reads them.
    pub rules: [AtomicU8; RULES_BYTES_MAX],
    /// Absolute path of the trace folder.
    pub path: [AtomicU8; PATH_BYTES_MAX],
    /// Number of processes that took part and have since changed their user.
    pub departed: AtomicU32,
    /// Sequence count of `rules`, odd while they change. A reader that finds the same even value
    /// before and after a copy has a consistent copy of the rules.
    pub rules_revision: AtomicU32,
    /// Longest wait for space for one record, in ns, of programs that allow blocking; 0: no program
    /// waits.
    pub blocking_ns: AtomicU64,
    /// Slot, plus one, that takes over later records of this slot: the channel got other contexts
    /// or sizes while it recorded. 0: none.
    pub successor: AtomicU32,
    /// Number of requests by programs for a snapshot of their flight recorder.
    pub snapshot_requests: AtomicU32,
    /// Number of CPUs, from 0, whose claim regions have memory from the start, for writers on CPUs
    /// without memory; 0: every online CPU has its own memory.
    pub spare_cpus: AtomicU32,
    /// Number of the channel's stream class in the trace.
    pub stream_class: AtomicU32,
    /// Number of used bytes of `process_rules`.
    pub process_rules_bytes: AtomicU32,
    /// Number of used bytes of `name`.
    pub name_bytes: AtomicU32,
    /// Number of used bytes of `channel`.
    pub channel_bytes: AtomicU32,
    /// Process rules, as `trackway_schema::ProcessRules` reads them; empty: all processes.
    pub process_rules: [AtomicU8; PROCESS_RULES_BYTES_MAX],
    /// The session's name.
    pub name: [AtomicU8; NAME_BYTES_MAX],
    /// The channel's name.
    pub channel: [AtomicU8; NAME_BYTES_MAX],
    /// Location of the block of filters (crate `jit`), as one word, see [`filters_place`]; 0: no
    /// filters. Each new block has a new location, and the generation is raised after the change.
    pub filters: AtomicU64,
    /// Number of processes that must interpret filters because they cannot get executable memory.
    pub interpreters: AtomicU32,
    /// Number of used bytes of `applications`.
    pub applications_bytes: AtomicU32,
    /// Names of the application contexts in the session's records, `provider:name`, one a line.
    pub applications: [AtomicU8; APPLICATIONS_BYTES_MAX],
}

/// Returns the word for a block of filters at `offset` in the window, a multiple of
/// [`FILTERS_ALIGNMENT`], with `bytes` bytes.
pub const fn filters_word(offset: u64, bytes: u32) -> u64 {
    (offset / FILTERS_ALIGNMENT) << 32 | bytes as u64
}

/// Returns the offset and size in bytes of the block that a word describes; `None` for no block.
/// The result is not checked against any bound.
pub const fn filters_place(word: u64) -> Option<(u64, usize)> {
    if word == 0 {
        return None;
    }
    Some(((word >> 32) * FILTERS_ALIGNMENT, (word & 0xffff_ffff) as usize))
}

/// Alignment of blocks of filters, in bytes of the window.
pub const FILTERS_ALIGNMENT: u64 = 64;

const _: () = assert!(size_of::<Clock>() == 64);
const _: () = assert!(size_of::<Session>() <= SESSION_BYTES);
const _: () = assert!(core::mem::offset_of!(Session, clock).is_multiple_of(64));
