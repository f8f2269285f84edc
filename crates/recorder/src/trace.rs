//! A trace's folder, as LTTng lays it out, so that its readers feel at home:
//!
//! ```text
//! DIR/ust/uid/UID/64-bit/metadata
//!                        channel0_CPU, channel0_CPU_claim0, …   one file per region with data
//!                        index/…idx
//!                        trackway/clock.csv                     calibrations, never events
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use trackway_abi::record::context;
use trackway_ctf::write::{Contexts, TraceDescription};
use trackway_session::Line;

use crate::RecordError;
use crate::metadata::Metadata;

/// A trace being written.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The folder that the user named.
    pub(crate) root: PathBuf,
    /// The folder of the streams.
    pub(crate) channel: PathBuf,
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

fn channel_of(root: &Path, uid: u32) -> PathBuf {
    root.join("ust").join("uid").join(uid.to_string()).join("64-bit")
}

impl Trace {
    /// Makes the folder of a new trace at `root`, which [`prepare`] made room for.
    pub(crate) fn create(root: &Path, of: &Particulars) -> Result<Self, RecordError> {
        let channel = channel_of(root, of.uid);
        for folder in [channel.join("index"), channel.join("trackway")] {
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
        let metadata = Metadata::create(&channel, &description)
            .map_err(RecordError::io("write", channel.join("metadata")))?;
        let clock = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(channel.join("trackway").join("clock.csv"))
            .and_then(|mut file| {
                writeln!(file, "epoch,base_tsc,multiplier_32,base_ns,span_ticks")?;
                Ok(file)
            })
            .map_err(RecordError::io("write", channel.join("trackway")))?;
        let root = root.to_owned();
        Ok(Self { root, channel, metadata, uuid: of.uuid, clock: Some(clock) })
    }

    /// Opens the trace that a dead recorder left at `root`.
    pub(crate) fn reopen(root: &Path, uid: u32, uuid: [u8; 16]) -> Result<Self, RecordError> {
        let channel = channel_of(root, uid);
        let metadata = Metadata::reopen(&channel)
            .map_err(RecordError::io("read", channel.join("metadata")))?;
        Ok(Self { root: root.to_owned(), channel, metadata, uuid, clock: None })
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

/// Makes room for a trace at `root`: an earlier trace there is moved to `root.old`, as perf(1)
/// does, in place of an even earlier one. Returns the absolute path, and where it was moved.
pub(crate) fn prepare(root: &Path) -> Result<(PathBuf, Option<PathBuf>), RecordError> {
    let root = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    let is_trace = |folder: &Path| folder.join("ust").is_dir();
    let mut moved = None;
    if is_trace(&root) {
        let mut old = root.as_os_str().to_owned();
        old.push(".old");
        let old = PathBuf::from(old);
        if is_trace(&old) {
            fs::remove_dir_all(&old).map_err(RecordError::io("remove", &old))?;
        }
        fs::rename(&root, &old).map_err(RecordError::io("rename", &root))?;
        moved = Some(old);
    }
    match fs::read_dir(&root) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(RecordError::FolderInUse(root));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&root)
                .map_err(RecordError::io("make", &root))?;
        }
        Err(error) => return Err(RecordError::io("use", &root)(error)),
    }
    Ok((root, moved))
}

/// A new folder's name: `trackway-DATE-TIME` in the current folder, in UTC.
pub(crate) fn default_root() -> PathBuf {
    let stamp = utc(trackway_sys::clock::realtime_ns() / 1_000_000_000).replace('T', "-");
    let name = format!("trackway-{stamp}");
    (2..1000)
        .map(|number| PathBuf::from(format!("{name}-{number}")))
        .fold(None, |found: Option<PathBuf>, next| {
            found.or_else(|| (!next.exists()).then_some(next))
        })
        .filter(|_| Path::new(&name).exists())
        .unwrap_or_else(|| PathBuf::from(name))
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
fn utc(seconds: u64) -> String {
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
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(utc(0), "19700101T000000");
        assert_eq!(utc(951_782_399), "20000228T235959");
        assert_eq!(utc(951_782_400), "20000229T000000");
        assert_eq!(utc(1_795_230_981), "20261121T031621");
    }

    #[test]
    fn identities_are_read() {
        let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef\n");
        assert_eq!(uuid[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(uuid[15], 0xef);
        assert_eq!(parse_uuid("no"), [0; 16]);
    }
}
