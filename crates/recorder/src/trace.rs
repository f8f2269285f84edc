//! A trace's folder, as LTTng lays it out, so that its readers feel at home:
//!
//! ```text
//! DIR/ust/uid/UID/64-bit/metadata
//!                        channel0_CPU, channel0_CPU_claim0, …   one file per region with data
//!                        index/…idx
//!                        trackway/clock.csv                     calibrations, never events
//!                        trackway/complete                      the mark of `completion`
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use trackway_abi::record::context;
use trackway_ctf::write::{Contexts, TraceDescription};
use trackway_session::Line;

use crate::RecordError;
use crate::completion;
use crate::metadata::Metadata;
use crate::place::Place;

/// Folder of what readers of CTF pass over: facts about the recording.
pub(crate) const FACTS: &str = "trackway";
/// Name of the calibrations there: what only traces have that were recorded here, not those that
/// were made of them. `reader::recording` knows it too.
pub(crate) const CALIBRATIONS: &str = "clock.csv";

/// A trace being written.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The folder that the user named.
    pub(crate) root: PathBuf,
    /// The folder of the streams.
    pub(crate) channel: Arc<Place>,
    pub(crate) metadata: Metadata,
    pub(crate) uuid: [u8; 16],
    clock: Option<File>,
}

/// What is particular to a session's trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Particulars {
    pub(crate) uuid: [u8; 16],
    pub(crate) uid: u32,
    pub(crate) realtime_offset_ns: i64,
    pub(crate) contexts: u32,
}

/// The folder of the streams of the trace at `root`.
pub(crate) fn channel_of(root: &Path, uid: u32) -> PathBuf {
    root.join("ust").join("uid").join(uid.to_string()).join("64-bit")
}

impl Trace {
    /// Makes the folder of a new trace at `root`, which [`prepare`] made room for.
    pub(crate) fn create(root: &Path, of: &Particulars) -> Result<Self, RecordError> {
        let channel = channel_of(root, of.uid);
        for folder in [channel.join("index"), channel.join(FACTS)] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(RecordError::io("make", folder))?;
        }
        let now_ns = trackway_sys::clock::realtime_ns();
        let name = root.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy());
        let description = TraceDescription {
            uuid: of.uuid,
            hostname: read_line("/proc/sys/kernel/hostname"),
            uid: of.uid,
            trace_name: name.into_owned(),
            creation_datetime: format!("{}+0000", utc(now_ns / 1_000_000_000)),
            boot_uuid: parse_uuid(&read_line("/proc/sys/kernel/random/boot_id")),
            clock_offset_ns: of.realtime_offset_ns,
            contexts: Contexts {
                vpid: of.contexts & context::VPID != 0,
                vtid: of.contexts & context::VTID != 0,
                procname: of.contexts & context::PROCNAME != 0,
            },
        };
        let place = Place::open(&channel).map_err(RecordError::io("open", channel.clone()))?;
        let place = Arc::new(place);
        completion::unmark(&channel.join(FACTS))
            .map_err(RecordError::io("remove what is in", channel.join(FACTS)))?;
        let metadata = Metadata::create(Arc::clone(&place), &description)
            .map_err(RecordError::io("write", channel.join("metadata")))?;
        let clock = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(channel.join(FACTS).join(CALIBRATIONS))
            .and_then(|mut file| {
                writeln!(file, "epoch,base_tsc,multiplier_32,base_ns,span_ticks")?;
                Ok(file)
            })
            .map_err(RecordError::io("write", channel.join(FACTS)))?;
        let root = root.to_owned();
        Ok(Self { root, channel: place, metadata, uuid: of.uuid, clock: Some(clock) })
    }

    /// Opens the trace that a dead recorder left at `root`, if it is the one with identity `uuid`:
    /// it may have been moved, and another one recorded in its place.
    pub(crate) fn reopen(root: &Path, uid: u32, uuid: [u8; 16]) -> Result<Self, RecordError> {
        let channel = channel_of(root, uid);
        // The path comes from the window. Whoever could write there must not lead us elsewhere:
        // every folder from the root down is this user's, so no link in them is anybody else's.
        for folder in channel.ancestors().take_while(|folder| folder.starts_with(root)) {
            let owner = fs::symlink_metadata(folder)
                .map_err(RecordError::io("open", folder.to_owned()))?
                .uid();
            if owner != crate::home::user() {
                let error = io::Error::from(io::ErrorKind::PermissionDenied);
                return Err(RecordError::Io("trust another user's folder", folder.into(), error));
            }
        }
        let place = Place::open(&channel).map_err(RecordError::io("open", channel.clone()))?;
        let place = Arc::new(place);
        let metadata = Metadata::reopen(Arc::clone(&place))
            .map_err(RecordError::io("read", channel.join("metadata")))?;
        match metadata.uuid() {
            Some(found) if found == uuid => {}
            Some(_) => return Err(RecordError::OtherTrace(root.to_owned())),
            None => {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it makes no sense");
                return Err(RecordError::Io("read", channel.join("metadata"), error));
            }
        }
        Ok(Self { root: root.to_owned(), channel: place, metadata, uuid, clock: None })
    }

    /// The folder of facts about the recording, where it is now.
    ///
    /// # Errors
    ///
    /// If the trace was removed.
    pub(crate) fn facts(&self) -> io::Result<PathBuf> {
        Ok(self.channel.now()?.join(FACTS))
    }

    /// Notes a calibration beside the streams; without it the trace is no less valid.
    pub(crate) fn note_calibration(&mut self, epoch: u64, line: &Line) {
        if let Some(file) = &mut self.clock {
            let Line { base_tsc, multiplier, base_ns, span } = line;
            let noted = writeln!(file, "{epoch},{base_tsc},{multiplier},{base_ns},{span}");
            if noted.is_err() {
                self.clock = None;
            }
        }
    }
}

/// A trace's folder that is ours alone as long as this lives: its directory is locked (flock(2)).
#[derive(Debug)]
pub(crate) struct Room {
    /// Absolute.
    pub(crate) path: PathBuf,
    /// Where an earlier trace was moved.
    pub(crate) moved: Option<PathBuf>,
    _lock: File,
}

/// How often a lock is tried, and how long between: readers take it for a moment, to see whether a
/// recorder has it.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Most looks at a folder that others make and move at the same time.
const LOOKS_MAX: usize = 8;
/// Most names that are tried for a folder that the user did not name.
const NAMES_MAX: usize = 1000;

/// Makes room for a trace at `root`: an earlier trace there is moved to `root.old`, as perf(1)
/// does, in place of an even earlier one. Folders that hold anything else are left alone, and so
/// are those that are being recorded into.
pub(crate) fn prepare(root: &Path) -> Result<Room, RecordError> {
    let absolute = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    // Without a slash at the end, which would make `root.old` lie inside.
    let root: PathBuf = absolute.components().collect();
    let mut moved = None;
    for _ in 0..LOOKS_MAX {
        make(&root).map_err(RecordError::io("make", &root))?;
        let Some(lock) = lock(&root)? else { continue };
        if is_empty(&root).map_err(RecordError::io("use", &root))? {
            return Ok(Room { path: root, moved, _lock: lock });
        }
        moved = Some(move_aside(&root)?);
    }
    Err(RecordError::FolderBusy(root))
}

/// Makes a new folder for a trace: `trackway-DATE-TIME` in the current folder, in UTC.
pub(crate) fn prepare_new() -> Result<(PathBuf, Room), RecordError> {
    let stamp = utc(trackway_sys::clock::realtime_ns() / 1_000_000_000).replace('T', "-");
    let mut name = PathBuf::from(format!("trackway-{stamp}"));
    for number in 2..NAMES_MAX {
        match DirBuilder::new().mode(0o700).create(&name) {
            Ok(()) => return prepare(&name).map(|room| (name, room)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                name = PathBuf::from(format!("trackway-{stamp}-{number}"));
            }
            Err(error) => return Err(RecordError::io("make", &name)(error)),
        }
    }
    Err(RecordError::FolderInUse(name))
}

fn make(root: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    if let Some(parent) = root.parent() {
        builder.recursive(true).create(parent)?;
    }
    match builder.recursive(false).create(root) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Locks the folder; `None` if it was moved away meanwhile.
pub(crate) fn lock(folder: &Path) -> Result<Option<File>, RecordError> {
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RecordError::io("use", folder)(error)),
    };
    // File systems that cannot lock folders (NFS) do not keep others away.
    let mut tries = 1;
    while matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        if tries == LOCK_TRIES {
            return Err(RecordError::FolderBusy(folder.to_owned()));
        }
        tries += 1;
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(is_at(&file, folder).then_some(file))
}

/// Whether `path` names this open folder.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn is_empty(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

/// Whether the folder holds a trace and nothing else.
fn is_only_a_trace(folder: &Path) -> bool {
    let holds_only = |folder: &Path, name: &str| {
        fs::read_dir(folder).is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == *name))
        })
    };
    let ust = folder.join("ust");
    ust.is_dir() && holds_only(folder, "ust") && holds_only(&ust, "uid")
}

/// Moves the earlier trace at `root`, which we have locked, to `root.old`.
fn move_aside(root: &Path) -> Result<PathBuf, RecordError> {
    let is_here = || File::open(".").is_ok_and(|here| is_at(&here, root));
    if !is_only_a_trace(root) || root.file_name().is_none() || is_here() {
        return Err(RecordError::FolderInUse(root.to_owned()));
    }
    let mut old = root.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    if fs::symlink_metadata(&old).is_ok() {
        // Whoever records there keeps it.
        let _lock = lock(&old)?;
        let gone = is_empty(&old).unwrap_or(false) || is_only_a_trace(&old);
        if !gone {
            return Err(RecordError::FolderInUse(old));
        }
        fs::remove_dir_all(&old).map_err(RecordError::io("remove", &old))?;
    }
    fs::rename(root, &old).map_err(RecordError::io("rename", root))?;
    Ok(old)
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Random bytes from the kernel.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], RecordError> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes))
        .map_err(RecordError::io("read", "/dev/urandom"))?;
    Ok(bytes)
}

/// A random identity (RFC 9562, version 4).
pub(crate) fn random_uuid() -> Result<[u8; 16], RecordError> {
    let mut bytes = random::<16>()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// An identity in its usual form; zeros where it is none.
fn parse_uuid(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let digits: Vec<u8> = text
        .chars()
        .filter(|&c| c != '-')
        .filter_map(|c| c.to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    bytes
}

/// `20261121T025621`, from seconds since the epoch. After Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", civil_from_days.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "19700101T000000");
        assert_eq!(utc(951_782_399), "20000228T235959");
        assert_eq!(utc(951_782_400), "20000229T000000");
        assert_eq!(utc(1_795_230_981), "20261121T031621");
    }

    #[test]
    fn only_earlier_traces_are_moved_and_only_idle_ones() {
        let base = std::env::temp_dir().join(format!("trackway-room-{}", std::process::id()));
        let root = base.join("a").join("trace");
        let put = |folder: &Path| fs::create_dir_all(folder.join("ust/uid/0")).unwrap();
        let room = prepare(&root.join("")).unwrap();
        assert_eq!((&room.path, &room.moved), (&root, &None));
        assert!(matches!(prepare(&root), Err(RecordError::FolderBusy(_))));
        put(&root);
        assert!(matches!(prepare(&root), Err(RecordError::FolderBusy(_))));
        drop(room);
        let old = base.join("a").join("trace.old");
        for _ in 0..2 {
            let room = prepare(&root).unwrap();
            assert_eq!(room.moved.as_ref(), Some(&old));
            put(&root);
        }
        fs::write(old.join("mine"), "").unwrap();
        assert!(matches!(prepare(&root), Err(RecordError::FolderInUse(path)) if path == old));
        fs::write(root.join("mine"), "").unwrap();
        assert!(matches!(prepare(&root), Err(RecordError::FolderInUse(path)) if path == root));
        assert!(root.join("ust").exists() && old.join("ust").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn who_looks_whether_a_folder_is_recorded_into_keeps_no_recorder_away() {
        let base = std::env::temp_dir().join(format!("trackway-look-{}", std::process::id()));
        let root = base.join("trace");
        make(&root).expect("a folder");
        let looked = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let folder = File::open(&root).expect("a folder");
                folder.try_lock_shared().expect("a lock");
                looked.wait();
                std::thread::sleep(LOCK_PAUSE);
            });
            looked.wait();
            assert!(prepare(&root).is_ok());
        });
        fs::remove_dir_all(&base).expect("a folder");
    }

    #[test]
    fn identities_are_read() {
        let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef\n");
        assert_eq!(uuid[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(uuid[15], 0xef);
        assert_eq!(parse_uuid("no"), [0; 16]);
    }
}
