//! The layout of a trace's folder, like LTTng's, so that LTTng's readers can read it:
//!
//! ```text
//! DIR/ust/uid/UID/64-bit/metadata                           64-bit-2, … of a user's next windows
//!                        channel0_CPU, channel0_CPU_claim0, …   one file per region with data
//!                        index/…idx
//!                        trackway/clock.csv                     calibrations, never events
//!                        trackway/complete                      the mark of `completion`
//! DIR/kernel/metadata, kernel_CPU, kernel1_CPU, …               the kernel's events
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trackway_ctf::write::{Contexts, Domain, TraceDescription};
use trackway_session::Line;

use crate::error::RecordError;
use crate::trace::completion;
use crate::trace::folder::TraceFolder;
use crate::trace::metadata::Metadata;

/// Name of the folder with facts about the recording, which CTF readers ignore.
pub(crate) const FACTS_FOLDER: &str = "trackway";
/// Name of the calibrations file in the facts folder. Only traces recorded by Trackway have the
/// file, not converted traces. `reader::recording` reads it.
pub(crate) const CALIBRATIONS_FILE: &str = "clock.csv";
/// Folder of kernel events in a trace, as in LTTng's traces.
pub(crate) const KERNEL_FOLDER: &str = "kernel";

/// A trace being written.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Trace folder as the user named it.
    pub(crate) root: PathBuf,
    /// Folder of the streams.
    pub(crate) channel: Arc<TraceFolder>,
    pub(crate) metadata: Metadata,
    pub(crate) uuid: [u8; 16],
    /// Properties of a trace that this process created; `None` for a reopened trace.
    pub(crate) of: Option<TraceProperties>,
    clock: Option<Calibrations>,
}

/// Properties of the trace of one session in one window.
#[derive(Debug, Clone)]
pub(crate) struct TraceProperties {
    /// Identity of the trace.
    pub(crate) uuid: [u8; 16],
    /// Folder of the window's streams in the trace folder.
    pub(crate) folder: WindowFolder,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC when the session began, in ns.
    pub(crate) realtime_offset_ns: i64,
    /// Stream classes of the trace, with the contexts of their records.
    pub(crate) classes: Vec<(u32, Contexts)>,
}

/// The folder in a trace that holds the streams of one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowFolder {
    /// The user of the window.
    pub(crate) uid: u32,
    /// Number of the window among the user's windows during the recording, from 1.
    pub(crate) number: u32,
}

impl WindowFolder {
    /// Returns the folder of the calling user's window.
    pub(crate) fn own() -> Self {
        Self { uid: crate::common::user::effective_uid(), number: 1 }
    }

    /// Parses the path of a streams folder into a window folder; `None` if it is not one.
    pub(crate) fn of(channel: &Path) -> Option<Self> {
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let bits = name(channel)?;
        let number = match bits.strip_prefix("64-bit")? {
            "" => 1,
            rest => rest.strip_prefix('-')?.parse().ok()?,
        };
        Some(Self { uid: name(channel.parent()?)?.parse().ok()?, number })
    }

    /// Returns the folder's path in a trace, as path components.
    pub(crate) fn names(self) -> [String; 4] {
        let bits = match self.number {
            1 => "64-bit".to_owned(),
            number => format!("64-bit-{number}"),
        };
        ["ust".into(), "uid".into(), self.uid.to_string(), bits]
    }

    /// Opens the window folder in the trace at `root`, whose folder is open.
    pub(crate) fn open(self, root: &Path, folder: &File) -> Result<TraceFolder, RecordError> {
        // A process that can write to the trace folder might forge the folder of another user's
        // window.
        open_below(root, folder, &self.names(), self.uid != crate::common::user::effective_uid())
    }

    /// Returns the path of the window folder in the trace at `root`.
    pub(crate) fn in_trace(self, root: &Path) -> PathBuf {
        self.names().iter().fold(root.to_owned(), |path, name| path.join(name))
    }
}

/// Returns the streams folder of user `uid`'s first window in the trace at `root`.
pub(crate) fn streams_folder(root: &Path, uid: u32) -> PathBuf {
    WindowFolder { uid, number: 1 }.in_trace(root)
}

/// Returns the streams folders of all users' windows in the trace at `root`.
pub(crate) fn user_streams_folders(root: &Path) -> Vec<PathBuf> {
    let folders = |path: PathBuf| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        paths.sort();
        paths
    };
    folders(root.join("ust").join("uid")).into_iter().flat_map(folders).collect()
}

impl Trace {
    /// Makes the streams folder and files of a new trace in `place`, the folder of a
    /// [`PreparedFolder`](crate::trace::prepare::PreparedFolder).
    pub(crate) fn create(place: &TraceFolder, of: TraceProperties) -> Result<Self, RecordError> {
        let root = place.path();
        let channel = of.folder.in_trace(root);
        let first = of.classes.iter().find(|(class, _)| *class == 0);
        let contexts = first.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        let domain = Domain::User(of.folder.uid);
        let description = describe_trace(root, of.uuid, domain, of.realtime_offset_ns, contexts);
        let (place, mut metadata) = make_streams_folder(place, &of.folder.names(), &description)?;
        for (class, contexts) in &of.classes {
            metadata.declare_class(*class, contexts);
        }
        metadata.write().map_err(RecordError::io("write", channel.join("metadata")))?;
        let clock = place
            .current_path()
            .and_then(|now| {
                let mut options = fs::OpenOptions::new();
                options.create(true).append(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
                let mut file = options.open(now.join(FACTS_FOLDER).join(CALIBRATIONS_FILE))?;
                writeln!(file, "epoch,base_tsc,multiplier_32,base_ns,span_ticks")?;
                Ok(file)
            })
            .map_err(RecordError::io("write", channel.join(FACTS_FOLDER)))?;
        Ok(Self {
            root: root.to_owned(),
            channel: place,
            metadata,
            uuid: of.uuid,
            of: Some(of),
            clock: Some(Calibrations { file: clock, noted: None }),
        })
    }

    /// Makes the folder of kernel events, with these contexts, in a new trace at `place`. Its clock
    /// is the kernel's own and needs no calibration. Each of `remarks` becomes a line of its `env`.
    pub(crate) fn create_kernel(
        place: &TraceFolder,
        uuid: [u8; 16],
        realtime_offset_ns: i64,
        contexts: Vec<trackway_schema::Field>,
        remarks: Vec<(&'static str, String)>,
    ) -> Result<Self, RecordError> {
        let root = place.path();
        let domain = Domain::Kernel { release: read_line("/proc/sys/kernel/osrelease"), remarks };
        let contexts = Contexts { kernel: contexts, ..Contexts::default() };
        let description = describe_trace(root, uuid, domain, realtime_offset_ns, contexts);
        let (place, metadata) = make_streams_folder(place, &[KERNEL_FOLDER], &description)?;
        Ok(Self { root: root.to_owned(), channel: place, metadata, uuid, of: None, clock: None })
    }

    /// Opens the trace that a dead recorder left at `root` if its identity is `uuid`: the trace may
    /// have been moved, and another one recorded in its place. `lock` is a handle of the folder
    /// `root`.
    pub(crate) fn reopen(
        root: &Path,
        lock: &File,
        of: WindowFolder,
        uuid: [u8; 16],
    ) -> Result<Self, RecordError> {
        let channel = of.in_trace(root);
        let place = Arc::new(of.open(root, lock)?);
        let metadata = Metadata::reopen(Arc::clone(&place))
            .map_err(RecordError::io("read", channel.join("metadata")))?;
        match metadata.uuid() {
            Some(found) if found == uuid => {}
            Some(_) => return Err(RecordError::OtherTrace(root.to_owned())),
            None => {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it makes no sense");
                return Err(RecordError::Io("read", channel.join("metadata"), error.into()));
            }
        }
        Ok(Self { root: root.to_owned(), channel: place, metadata, uuid, of: None, clock: None })
    }

    /// Returns the current path of the facts folder.
    ///
    /// # Errors
    ///
    /// If the trace was removed.
    pub(crate) fn facts_folder(&self) -> io::Result<PathBuf> {
        Ok(self.channel.current_path()?.join(FACTS_FOLDER))
    }

    /// Writes a calibration to the facts folder; a trace without it is still valid.
    pub(crate) fn note_calibration(&mut self, epoch: u64, line: &Line) {
        if let Some(clock) = &mut self.clock
            && clock.note(epoch, line).is_err()
        {
            self.clock = None;
        }
    }
}

/// Returns the description of a trace at `root`, from which its first metadata is written.
fn describe_trace(
    root: &Path,
    uuid: [u8; 16],
    domain: Domain,
    clock_offset_ns: i64,
    contexts: Contexts,
) -> TraceDescription {
    let now_ns = trackway_sys::clock::realtime_ns();
    let name = root.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy());
    TraceDescription {
        uuid,
        hostname: read_line("/proc/sys/kernel/hostname"),
        domain,
        trace_name: name.into_owned(),
        creation_datetime: format!(
            "{}+0000",
            crate::common::date::format_utc(now_ns / 1_000_000_000)
        ),
        boot_uuid: parse_uuid(&read_line("/proc/sys/kernel/random/boot_id")),
        clock_offset_ns,
        contexts,
    }
}

/// Makes a streams folder with its metadata, at the path of these names below `root`.
fn make_streams_folder<N: AsRef<str>>(
    root: &TraceFolder,
    names: &[N],
    description: &TraceDescription,
) -> Result<(Arc<TraceFolder>, Metadata), RecordError> {
    let channel = names.iter().fold(root.path().to_owned(), |path, name| path.join(name.as_ref()));
    let place = root.make_below(names).map_err(RecordError::io("make", &channel))?;
    let made =
        |name: &str| place.make_below(&[name]).map_err(RecordError::io("make", channel.join(name)));
    made("index")?;
    made(FACTS_FOLDER)?
        .current_path()
        .and_then(|facts| completion::remove_mark(&facts))
        .map_err(RecordError::io("remove what is in", channel.join(FACTS_FOLDER)))?;
    let place = Arc::new(place);
    let metadata = Metadata::create(Arc::clone(&place), description)
        .map_err(RecordError::io("write", channel.join("metadata")))?;
    Ok((place, metadata))
}

/// Opens the folder at the path of these names below the open folder `root`. With `is_for_us`, also
/// checks that no other user may write to the folders.
///
/// The path may come from the window. A user who can write there, or into the trace's parent, must
/// not redirect the recorder: every folder from the root down must belong to this user, and none
/// may be a link. Each folder is checked once it is open, and the next one is opened below it,
/// wherever its path leads by then.
fn open_below<N: AsRef<str>>(
    root: &Path,
    lock: &File,
    names: &[N],
    is_for_us: bool,
) -> Result<TraceFolder, RecordError> {
    let check = |folder: &TraceFolder| {
        let path = folder.path();
        let status = folder.metadata().map_err(RecordError::io("open", path))?;
        let is_for_others = is_for_us && status.mode() & 0o022 != 0;
        if status.uid() != crate::common::user::effective_uid() || is_for_others {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(RecordError::Io("trust another user's folder", path.into(), error.into()));
        }
        Ok(())
    };
    let lock = lock.try_clone().map_err(RecordError::io("open", root))?;
    let mut folder = TraceFolder::of(lock, root);
    check(&folder)?;
    for name in names {
        let path = folder.path().join(name.as_ref());
        folder = folder.open_folder(name.as_ref()).map_err(RecordError::io("open", path))?;
        check(&folder)?;
    }
    Ok(folder)
}

/// The file of clock lines: it gets the first line of each epoch, then one a minute, so that an
/// idle session does not fill the disk.
#[derive(Debug)]
struct Calibrations {
    file: File,
    /// Epoch and time (ns) of the latest line in the file.
    noted: Option<(u64, u64)>,
}

impl Calibrations {
    fn note(&mut self, epoch: u64, line: &Line) -> io::Result<()> {
        const PERIOD_NS: u64 = 60_000_000_000;
        let Line { base_tsc, multiplier, base_ns, span } = *line;
        let is_new = self.noted.is_none_or(|(noted, at_ns)| {
            epoch != noted || base_ns.saturating_sub(at_ns) >= PERIOD_NS
        });
        if !is_new {
            return Ok(());
        }
        self.noted = Some((epoch, base_ns));
        // One write adds the line, so that readers find whole lines.
        let text = format!("{epoch},{base_tsc},{multiplier},{base_ns},{span}\n");
        self.file.write_all(text.as_bytes())
    }
}

pub(crate) fn is_empty_folder(folder: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

/// Returns all streams folders of the trace at `root`, including the kernel folder.
fn all_streams_folders(root: &Path) -> Vec<PathBuf> {
    let kernel = Some(root.join(KERNEL_FOLDER)).filter(|kernel| kernel.is_dir());
    user_streams_folders(root).into_iter().chain(kernel).collect()
}

/// Returns true if the trace at `root` has no stream: no packet was ever written.
pub(crate) fn has_no_stream(root: &Path) -> bool {
    // The trace may lack even its index folder.
    let has_none = |index: &Path| {
        is_empty_folder(index).unwrap_or_else(|error| error.kind() == io::ErrorKind::NotFound)
    };
    all_streams_folders(root).iter().all(|channel| has_none(&channel.join("index")))
}

/// Removes the files that [`Trace::create`] made in a trace without streams. Files of other origin
/// stay, with their folders.
pub(crate) fn remove_unwritten(root: &TraceFolder) {
    let Ok(now) = root.current_path() else { return };
    // A file that cannot be removed is harmless.
    for channel in all_streams_folders(&now) {
        let below = channel.strip_prefix(&now).unwrap_or(&channel);
        let names: Vec<&str> = below.iter().filter_map(|name| name.to_str()).collect();
        let Ok(channel) = root.open_below(&names) else { continue };
        let _ = channel.current_path().and_then(|now| fs::remove_file(now.join("metadata")));
        let _ = channel.remove_below(&[FACTS_FOLDER]);
        let _ = channel.open_below(&["index"]).and_then(|index| index.remove_if_empty());
        for count in (1..=names.len()).rev() {
            let _ = root.open_below(&names[..count]).and_then(|folder| folder.remove_if_empty());
        }
    }
}

/// Returns the folder name of a session's snapshot with this number.
pub(crate) fn snapshot_name(number: u32) -> String {
    format!("{SNAPSHOT_PREFIX}{number}")
}

pub(crate) const SNAPSHOT_PREFIX: &str = "snapshot-";

fn read_line(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Parses a UUID in its usual form; returns zeros if the text is not a UUID.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

    use trackway_testkit::TemporaryFolder;

    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(crate::common::date::format_utc(0), "19700101T000000");
        assert_eq!(crate::common::date::format_utc(951_782_399), "20000228T235959");
        assert_eq!(crate::common::date::format_utc(951_782_400), "20000229T000000");
        assert_eq!(crate::common::date::format_utc(1_795_230_981), "20261121T031621");
    }

    #[test]
    fn a_trace_is_opened_below_its_folder_and_nowhere_else() {
        let base = trackway_testkit::TemporaryFolder::new();
        let root = base.join("trace");
        let of = WindowFolder { uid: 65_531, number: 2 };
        let channel = of.in_trace(&root);
        assert_eq!(channel, root.join("ust/uid/65531/64-bit-2"));
        assert_eq!(WindowFolder::of(&channel), Some(of));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&channel).expect("a folder");
        assert_eq!(user_streams_folders(&root), std::slice::from_ref(&channel));
        let lock = File::open(&root).expect("a folder");
        let open = || of.open(&root, &lock);
        let found = open().expect("it is ours").metadata().expect("there").ino();
        assert_eq!(found, fs::metadata(&channel).expect("there").ino());
        // A process that moves the folder and puts another one in its place does not affect the
        // lock on the moved folder.
        fs::rename(&root, base.join("moved")).expect("ours");
        assert_eq!(open().expect("ours").metadata().expect("there").ino(), found);
        fs::rename(base.join("moved"), &root).expect("ours");
        let uid = root.join("ust/uid");
        let mode = |mode| fs::set_permissions(&uid, fs::Permissions::from_mode(mode));
        mode(0o770).expect("ours");
        assert!(open().is_err(), "others may write there");
        mode(0o700).expect("ours");
        assert!(open().is_ok());
        fs::rename(&uid, base.join("elsewhere")).expect("ours");
        std::os::unix::fs::symlink(base.join("elsewhere"), &uid).expect("a link");
        assert!(open().is_err(), "a link");
        fs::remove_file(&uid).expect("ours");
        fs::rename(base.join("elsewhere"), &uid).expect("ours");
        if crate::common::user::effective_uid() == 0 {
            std::os::unix::fs::chown(&uid, Some(65_531), None).expect("root may");
            assert!(open().is_err(), "another's");
        }
    }

    #[test]
    fn identities_are_read() {
        let uuid = parse_uuid("01234567-89ab-cdef-0123-456789abcdef\n");
        assert_eq!(uuid[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(uuid[15], 0xef);
        assert_eq!(parse_uuid("no"), [0; 16]);
    }

    #[test]
    fn an_idle_session_notes_its_clock_once_a_minute() {
        let folder = TemporaryFolder::new();
        let file = File::create(folder.join("clock")).expect("a file");
        let mut clock = Calibrations { file, noted: None };
        let line = |base_ns| Line { base_tsc: 1, base_ns, multiplier: 1 << 31, span: 1 << 33 };
        for tenth in 0..1205 {
            clock.note(0, &line(7 + tenth * 100_000_000)).expect("room");
        }
        clock.note(1, &line(8)).expect("room");
        let text = fs::read_to_string(folder.join("clock")).expect("text");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert_eq!(text.lines().last(), Some("1,1,2147483648,8,8589934592"));
    }
}
