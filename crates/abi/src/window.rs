//! The window: one file per user in /dev/shm. Every recorder and every process that may be traced
//! maps the file.
//!
//! ```text
//!        0  header                                    1 page
//!    4 KiB  32 sessions × 8 KiB
//!  260 KiB  4096 processes × 64 bytes
//!  516 KiB  4096 events × 64 bytes
//!  772 KiB  granule map: 262144 × 1 byte, who holds each 256 KiB of data
//! 1028 KiB  arena of event descriptions
//!    2 MiB  data: control lines, tables, sub-buffers, in granules of 256 KiB
//! ```
//!
//! The file is only as long as the used part, and grows by fallocate(2): a hole below its end could
//! become a SIGBUS in a program when the file system is full, and mlockall(2) fills holes. The only
//! exception is a window that no process has open or mapped: its unneeded memory is given back, and
//! the next process that opens it backs the fixed part again before it touches it.
//!
//! When a session ends, the recorder cuts free granules off the file's end. Control lines, which
//! stay, have the lowest offsets; data begins a few MiB above them, so that the file becomes short
//! when sessions end.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::session::{SESSION_BYTES, SESSIONS_MAX};

/// First eight bytes of a window: "trackway" as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"trackway");
/// Address space of a window, in bytes.
pub const WINDOW_BYTES: u64 = 64 << 30;
/// Size of a granule, the allocation unit of data memory, as a power of two of bytes.
pub const GRANULE_SHIFT: u32 = 18;
/// Size of a granule, in bytes.
pub const GRANULE_BYTES: u64 = 1 << GRANULE_SHIFT;
/// Number of granules in the address space.
pub const GRANULES_MAX: usize = (WINDOW_BYTES >> GRANULE_SHIFT) as usize;
/// Most distinct events of a user.
pub const EVENTS_MAX: usize = 4096;
/// Most processes in the table of processes.
pub const PROCESSES_MAX: usize = 4096;

/// Offset of the sessions, in bytes.
pub const SESSIONS_OFFSET: usize = 4096;
/// Offset of the table of processes, in bytes.
pub const PROCESSES_OFFSET: usize = SESSIONS_OFFSET + SESSIONS_MAX * SESSION_BYTES;
/// Offset of the table of events, in bytes.
pub const EVENTS_OFFSET: usize = PROCESSES_OFFSET + PROCESSES_MAX * size_of::<Process>();
/// Offset of the granule map, in bytes.
pub const GRANULE_MAP_OFFSET: usize = EVENTS_OFFSET + EVENTS_MAX * size_of::<Event>();
/// Offset of the event descriptions, in bytes.
pub const ARENA_OFFSET: usize = GRANULE_MAP_OFFSET + GRANULES_MAX;
/// Offset of the data, in bytes; also the length of a window without sessions.
pub const DATA_OFFSET: usize = 2 << 20;
/// Space for event descriptions, in bytes.
pub const ARENA_BYTES: usize = DATA_OFFSET - ARENA_OFFSET;

/// Values of the granule map.
pub mod granule {
    /// The granule is free.
    pub const FREE: u8 = 0;
    /// Free control lines, usable only for control lines of other sessions: a writer that slept
    /// through the end of its session may still read them.
    pub const CONTROL_FREE: u8 = 1;
    /// Base value, plus a session's index, for the session's control lines and tables.
    pub const CONTROL: u8 = 0x40;
    /// Base value, plus a session's index, for the session's sub-buffers.
    pub const DATA: u8 = 0x80;
}

/// Header of the window, in its first page.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`], stored last when a window is made.
    pub magic: AtomicU64,
    /// Version of the window: its maker's [`crate::ABI_VERSION`].
    pub version: AtomicU32,
    /// Result of the test that restartable sequences abort on this kernel: 0 untested, 1 passed, 2
    /// failed.
    pub rseq_works: AtomicU32,
    /// Number of granules that back the file from its start, in the upper half; its complement in
    /// the lower half. The complement detects a damaged number, which would send writers beyond the
    /// file's end and cause SIGBUS.
    pub backed: AtomicU64,
    /// Number of used bytes of the arena of descriptions.
    pub arena_used: AtomicU32,
    /// Number of events that found no free slot, or no space for their description.
    pub events_refused: AtomicU32,
    /// Revision of events, so that recorders check the event table only after a change. Raised when
    /// an event was added, or when a library left an event's bit to the recorder.
    pub events_revision: AtomicU32,
    /// Index after the highest slot of the event table that was ever used.
    pub events_used: AtomicU32,
    /// Number of requests for a visit to every CPU. A process requests one before it overwrites
    /// code that a thread may still run.
    pub visits_asked: AtomicU32,
    /// Value of `visits_asked` that the latest visit by a recorder covers.
    pub visits_done: AtomicU32,
}

/// Bit of [`Process::pid`] while a process takes the slot. No process id has this bit.
pub const PROCESS_ENTERING: u32 = 1 << 31;

/// A process that has loaded the library: information for `trackway list`, and the identity behind
/// an owner word.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Process {
    /// Process id in its own namespace; 0: the slot is free. With [`PROCESS_ENTERING`], the process
    /// is still filling in the other fields, which describe the former process.
    pub pid: AtomicU32,
    /// Number of processes that have taken the slot, so that old owner words do not match.
    pub incarnation: AtomicU32,
    /// Inode number of the process's pid namespace.
    pub pid_namespace: AtomicU64,
    /// CLOCK_BOOTTIME in ns when the process took the slot, at start or after exec. A process with
    /// the same id that started later is another process.
    pub since_ns: AtomicU64,
    /// Random number that the kernel gave the program at its start; exec changes it.
    pub image: AtomicU64,
    /// Observations of recorders: [`SANDBOXED`]. (Older libraries store zero.)
    pub observations: AtomicU64,
    /// Reserved, unused.
    pub reserved: [AtomicU64; 3],
}

/// Bit of [`Process::observations`]: a thread of the process is under seccomp(2), which may forbid
/// any system call.
pub const SANDBOXED: u64 = 1;

/// States of an event's slot.
pub mod event_state {
    /// The entry is free.
    pub const EMPTY: u32 = 0;
    /// A process is filling the entry in. If the process dies, only this slot is lost.
    pub const FILLING: u32 = 1;
    /// The entry has an event, as long as the window exists.
    pub const READY: u32 = 2;
}

/// An event: its identity and its enable word.
#[repr(C, align(64))]
pub struct Event {
    /// Enable word: one bit for each session. Sites read it; recorders and the library write it.
    pub enabled: AtomicU32,
    /// State of the entry: a constant of [`event_state`].
    pub state: AtomicU32,
    /// Result of `trackway_schema::hash` for the description.
    pub hash: AtomicU64,
    /// Offset of the description in the arena, in bytes.
    pub description_offset: AtomicU32,
    /// Length of the description, in bytes.
    pub description_bytes: AtomicU32,
    /// Reserved, unused.
    pub reserved: [AtomicU64; 5],
}

/// Entry of a granule in the granule map.
pub type GranuleOwner = AtomicU8;

const _: () = assert!(size_of::<Header>() <= SESSIONS_OFFSET);
const _: () = assert!(size_of::<Process>() == 64 && size_of::<Event>() == 64);
const _: () = assert!(ARENA_OFFSET + (512 << 10) <= DATA_OFFSET);
const _: () = assert!((DATA_OFFSET as u64).is_multiple_of(GRANULE_BYTES));
