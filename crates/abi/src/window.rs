//! The window: one file per user in /dev/shm, mapped by every process that may be traced and by
//! every recorder.
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
//! The file is only as long as what is in use, and grown by fallocate(2): a hole below its end
//! could become a SIGBUS in a program when the file system is full, and mlockall(2) fills holes.
//! The one exception is a window that no process has open or mapped: memory that it does not need
//! is given back, and the next process that opens it backs the fixed part again before it touches
//! it.
//!
//! When a session ends, what is free at the file's end is cut off. Control lines, which stay, lie
//! lowest; data begins a few MiB above them, so that sessions' ends leave a short file.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use crate::session::{SESSION_BYTES, SESSIONS_MAX};

/// First eight bytes of a window: "trackway" as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"trackway");
/// Address space of a window, in bytes.
pub const WINDOW_BYTES: u64 = 64 << 30;
/// Unit in which data memory is handed out, as a power of two, in bytes.
pub const GRANULE_SHIFT: u32 = 18;
/// Unit in which data memory is handed out, in bytes.
pub const GRANULE_BYTES: u64 = 1 << GRANULE_SHIFT;
/// Granules of the address space.
pub const GRANULES_MAX: usize = (WINDOW_BYTES >> GRANULE_SHIFT) as usize;
/// Most distinct events of a user at a time.
pub const EVENTS_MAX: usize = 4096;
/// Most processes in the table of hints.
pub const PROCESSES_MAX: usize = 4096;

/// Start of the sessions, in bytes.
pub const SESSIONS_OFFSET: usize = 4096;
/// Start of the table of processes, in bytes.
pub const PROCESSES_OFFSET: usize = SESSIONS_OFFSET + SESSIONS_MAX * SESSION_BYTES;
/// Start of the table of events, in bytes.
pub const EVENTS_OFFSET: usize = PROCESSES_OFFSET + PROCESSES_MAX * size_of::<Process>();
/// Start of the granule map, in bytes.
pub const GRANULE_MAP_OFFSET: usize = EVENTS_OFFSET + EVENTS_MAX * size_of::<Event>();
/// Start of the event descriptions, in bytes.
pub const ARENA_OFFSET: usize = GRANULE_MAP_OFFSET + GRANULES_MAX;
/// Start of the data, in bytes: the length of a window that records nothing.
pub const DATA_OFFSET: usize = 2 << 20;
/// Room for event descriptions, in bytes.
pub const ARENA_BYTES: usize = DATA_OFFSET - ARENA_OFFSET;

/// Values of the granule map.
pub mod granule {
    /// The granule is free.
    pub const FREE: u8 = 0;
    /// Control lines, free for another session's control lines and for nothing else: a writer
    /// that slept through the end of its session may still look at them.
    pub const CONTROL_FREE: u8 = 1;
    /// Added to a session's index: its control lines and tables.
    pub const CONTROL: u8 = 0x40;
    /// Added to a session's index: its sub-buffers.
    pub const DATA: u8 = 0x80;
}

/// The first page.
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`], stored last when the window is made.
    pub magic: AtomicU64,
    /// [`crate::ABI_VERSION`].
    pub version: AtomicU32,
    /// Result of the test that restartable sequences abort on this kernel: 0 untested, 1 yes, 2 no.
    pub rseq_works: AtomicU32,
    /// Memory that backs the file, from its start: granules in the upper half, their complement in
    /// the lower. Without the check a damaged number would send writers beyond the file's end,
    /// where SIGBUS is.
    pub backed: AtomicU64,
    /// Bytes in use of the arena of descriptions.
    pub arena_used: AtomicU32,
    /// Events that found no slot or no room for their description.
    pub events_refused: AtomicU32,
    /// Raised when an event was added, or a library has left the bit of one to its recorder, so
    /// that recorders need not look at the whole table otherwise.
    pub events_revision: AtomicU32,
    /// One past the highest slot of the event table ever used.
    pub events_used: AtomicU32,
    /// Raised by processes that wait for a visit to every CPU before they write over code that a
    /// thread may still run.
    pub visits_asked: AtomicU32,
    /// Value of `visits_asked` before the last such visit, which a recorder made.
    pub visits_done: AtomicU32,
}

/// Bit of [`Process::pid`] while a process takes the slot. No process id has it.
pub const PROCESS_ENTERING: u32 = 1 << 31;

/// A process that has the library loaded: a hint for `trackway list`, and the identity behind
/// an owner word.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Process {
    /// Process id in its own namespace; 0: the slot is free; with [`PROCESS_ENTERING`]: its
    /// process is filling the rest in, which still describes another.
    pub pid: AtomicU32,
    /// Raised by every process that takes the slot, so that old owner words do not match.
    pub incarnation: AtomicU32,
    /// Inode number of its process-id namespace.
    pub pid_namespace: AtomicU64,
    /// CLOCK_BOOTTIME ns when the process (or its exec) took the slot; a process with the same
    /// id that started later is another one.
    pub since_ns: AtomicU64,
    /// Random number that the kernel gave the program when it was started: another one after exec.
    pub image: AtomicU64,
    /// Observations of recorders: [`SANDBOXED`]. (Zero where older libraries enter.)
    pub observations: AtomicU64,
    /// Unused.
    pub reserved: [AtomicU64; 3],
}

/// In [`Process::observations`]: a thread of it is under seccomp(2), which may forbid any system
/// call.
pub const SANDBOXED: u64 = 1;

/// States of an event's slot.
pub mod event_state {
    /// The entry is free.
    pub const EMPTY: u32 = 0;
    /// Being filled in; if its process died here, the slot is lost, and nothing else.
    pub const FILLING: u32 = 1;
    /// An event, for as long as the window lives.
    pub const READY: u32 = 2;
}

/// An event: its identity and its enable word.
#[repr(C, align(64))]
pub struct Event {
    /// One bit a session. Call sites read it; recorders and the library write it.
    pub enabled: AtomicU32,
    /// One of [`event_state`].
    pub state: AtomicU32,
    /// Result of `trackway_schema::hash` for the description.
    pub hash: AtomicU64,
    /// Start of its description, in bytes of the window.
    pub description_offset: AtomicU32,
    /// Length of its description, in bytes.
    pub description_bytes: AtomicU32,
    /// Unused.
    pub reserved: [AtomicU64; 5],
}

/// A granule's entry in the map.
pub type GranuleOwner = AtomicU8;

const _: () = assert!(size_of::<Header>() <= SESSIONS_OFFSET);
const _: () = assert!(size_of::<Process>() == 64 && size_of::<Event>() == 64);
const _: () = assert!(ARENA_OFFSET + (512 << 10) <= DATA_OFFSET);
const _: () = assert!((DATA_OFFSET as u64).is_multiple_of(GRANULE_BYTES));
