//! A trace's folder, as LTTng lays it out, so that its readers feel at home:
//!
//! ```text
//! DIR/ust/uid/UID/64-bit/metadata                           64-bit-2, … of a user's next windows
//!                        channel0_CPU, channel0_CPU_claim0, …   one file per region with data
//!                        index/…idx
//!                        trackway/clock.csv                     calibrations, never events
//!                        trackway/complete                      the mark of `completion`
//! DIR/kernel/metadata, kernel_CPU, kernel1_CPU, …               the kernel's events
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trackway_ctf::write::{Contexts, Domain, TraceDescription};
use trackway_session::Line;

use crate::RecordError;
use crate::channel::Channel;
use crate::completion;
use crate::metadata::Metadata;
use crate::place::Place;

/// Folder of what readers of CTF pass over: facts about the recording.
pub(crate) const FACTS: &str = "trackway";
/// Name of the calibrations there: what only traces have that were recorded here, not those that
/// were made of them. `reader::recording` knows it too.
pub(crate) const CALIBRATIONS: &str = "clock.csv";
/// Folder of the kernel's events in a trace, as LTTng has it.
pub(crate) const KERNEL: &str = "kernel";

/// A trace being written.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The folder that the user named.
    pub(crate) root: PathBuf,
    /// The folder of the streams.
    pub(crate) channel: Arc<Place>,
    pub(crate) metadata: Metadata,
    pub(crate) uuid: [u8; 16],
    /// What it was made with; none of one that was opened again.
    pub(crate) of: Option<Particulars>,
    clock: Option<Calibrations>,
}

/// What is particular to a session's trace.
#[derive(Debug, Clone)]
pub(crate) struct Particulars {
    /// Its identity.
    pub(crate) uuid: [u8; 16],
    /// Where it is below the folder that the user named.
    pub(crate) folder: WindowFolder,
    /// CLOCK_REALTIME − CLOCK_MONOTONIC when the session began, in ns.
    pub(crate) realtime_offset_ns: i64,
    /// Its stream classes, with the contexts of their records.
    pub(crate) classes: Vec<(u32, Contexts)>,
}

impl Particulars {
    /// Of the trace of these channels, of the calling user's window.
    pub(crate) fn of(uuid: [u8; 16], channels: &[Channel]) -> Self {
        let offset = |channel: &Channel| {
            channel.session().realtime_offset_ns.load(Ordering::Relaxed).cast_signed()
        };
        let class = |channel: &Channel| (channel.names.class, channel.contexts.clone());
        Self {
            uuid,
            folder: WindowFolder::own(),
            realtime_offset_ns: channels.first().map_or(0, offset),
            classes: channels.iter().map(class).collect(),
        }
    }
}

/// Which folder of a trace has the streams of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowFolder {
    /// Whose window it is.
    pub(crate) uid: u32,
    /// Which of those that the user had while it was recorded, from 1.
    pub(crate) number: u32,
}

impl WindowFolder {
    /// Of the calling user's window.
    pub(crate) fn own() -> Self {
        Self { uid: crate::home::user(), number: 1 }
    }

    /// Which one a folder of streams is, by its path.
    pub(crate) fn of(channel: &Path) -> Option<Self> {
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        let bits = name(channel)?;
        let number = match bits.strip_prefix("64-bit")? {
            "" => 1,
            rest => rest.strip_prefix('-')?.parse().ok()?,
        };
        Some(Self { uid: name(channel.parent()?)?.parse().ok()?, number })
    }

    /// Where it is in a trace, folder by folder.
    fn names(self) -> [String; 4] {
        let bits = match self.number {
            1 => "64-bit".to_owned(),
            number => format!("64-bit-{number}"),
        };
        ["ust".into(), "uid".into(), self.uid.to_string(), bits]
    }

    /// Where it is in the trace at `root`.
    pub(crate) fn in_trace(self, root: &Path) -> PathBuf {
        self.names().iter().fold(root.to_owned(), |path, name| path.join(name))
    }
}

/// The folder of the streams of the trace at `root`, of the first window of user `uid`.
pub(crate) fn channel_of(root: &Path, uid: u32) -> PathBuf {
    WindowFolder { uid, number: 1 }.in_trace(root)
}

/// The folders of the streams of the trace at `root`, of all users' windows.
pub(crate) fn channels_of(root: &Path) -> Vec<PathBuf> {
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
    /// Makes the folder of a new trace at `root`, which [`prepare`] made room for.
    pub(crate) fn create(root: &Path, of: Particulars) -> Result<Self, RecordError> {
        let channel = of.folder.in_trace(root);
        let first = of.classes.iter().find(|(class, _)| *class == 0);
        let contexts = first.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        let domain = Domain::User(of.folder.uid);
        let description = describe(root, of.uuid, domain, of.realtime_offset_ns, contexts);
        let (place, mut metadata) = make_channel(&channel, &description)?;
        for (class, contexts) in &of.classes {
            metadata.declare_class(*class, contexts);
        }
        metadata.write().map_err(RecordError::io("write", channel.join("metadata")))?;
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
        Ok(Self {
            root: root.to_owned(),
            channel: place,
            metadata,
            uuid: of.uuid,
            of: Some(of),
            clock: Some(Calibrations { file: clock, noted: None }),
        })
    }

    /// Makes the folder of the kernel's events, which have these contexts, in a new trace at
    /// `root`. Its clock is the kernel's own: there is nothing to calibrate. Remarks are lines of
    /// its `env`.
    pub(crate) fn create_kernel(
        root: &Path,
        uuid: [u8; 16],
        realtime_offset_ns: i64,
        contexts: Vec<trackway_schema::Field>,
        remarks: Vec<(&'static str, String)>,
    ) -> Result<Self, RecordError> {
        let channel = root.join(KERNEL);
        let domain = Domain::Kernel { release: read_line("/proc/sys/kernel/osrelease"), remarks };
        let contexts = Contexts { kernel: contexts, ..Contexts::default() };
        let description = describe(root, uuid, domain, realtime_offset_ns, contexts);
        let (place, metadata) = make_channel(&channel, &description)?;
        Ok(Self { root: root.to_owned(), channel: place, metadata, uuid, of: None, clock: None })
    }

    /// Opens the trace that a dead recorder left at `root`, if it is the one with identity `uuid`:
    /// it may have been moved, and another one recorded in its place. `lock` is of that folder.
    pub(crate) fn reopen(
        root: &Path,
        lock: &File,
        of: WindowFolder,
        uuid: [u8; 16],
    ) -> Result<Self, RecordError> {
        let channel = of.in_trace(root);
        let place = open_below(root, lock, of)?;
        let place = Arc::new(Place::of(place, &channel));
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
        Ok(Self { root: root.to_owned(), channel: place, metadata, uuid, of: None, clock: None })
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
        if let Some(clock) = &mut self.clock
            && clock.note(epoch, line).is_err()
        {
            self.clock = None;
        }
    }
}

/// What the metadata of a trace at `root` says before its first event.
fn describe(
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
        creation_datetime: format!("{}+0000", utc(now_ns / 1_000_000_000)),
        boot_uuid: parse_uuid(&read_line("/proc/sys/kernel/random/boot_id")),
        clock_offset_ns,
        contexts,
    }
}

/// Makes a folder of streams, with its metadata.
fn make_channel(
    channel: &Path,
    description: &TraceDescription,
) -> Result<(Arc<Place>, Metadata), RecordError> {
    for folder in [channel.join("index"), channel.join(FACTS)] {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(RecordError::io("make", folder))?;
    }
    let place = Place::open(channel).map_err(RecordError::io("open", channel))?;
    let place = Arc::new(place);
    completion::unmark(&channel.join(FACTS))
        .map_err(RecordError::io("remove what is in", channel.join(FACTS)))?;
    let metadata = Metadata::create(Arc::clone(&place), description)
        .map_err(RecordError::io("write", channel.join("metadata")))?;
    Ok((place, metadata))
}

/// Opens a folder of the trace at `root`, which is open.
///
/// The path may come from the window. Whoever could write there, or where the trace lies, must not
/// lead us elsewhere: every folder from the root down is this user's, and none is a link. Each is
/// looked at once it is open, and the next one opened below it, whatever its name leads to then.
fn open_below(root: &Path, lock: &File, of: WindowFolder) -> Result<File, RecordError> {
    let is_of_another = of.uid != crate::home::user();
    let check = |folder: &File, path: &Path| {
        let status = folder.metadata().map_err(RecordError::io("open", path))?;
        // What is another user's window might be that of who can write there.
        let is_for_others = is_of_another && status.mode() & 0o022 != 0;
        if status.uid() != crate::home::user() || is_for_others {
            let error = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(RecordError::Io("trust another user's folder", path.into(), error));
        }
        Ok(())
    };
    check(lock, root)?;
    let mut folder = lock.try_clone().map_err(RecordError::io("open", root))?;
    let mut path = root.to_owned();
    for name in of.names() {
        path.push(&name);
        let below = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        folder = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(below)
            .map_err(RecordError::io("open", &path))?;
        check(&folder, &path)?;
    }
    Ok(folder)
}

/// Where the clock's lines are noted: the first of each epoch, then one a minute. An idle session
/// must not fill the disk with them.
#[derive(Debug)]
struct Calibrations {
    file: File,
    /// Epoch and time (ns) of the line noted last.
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
        // In one write: whoever reads it finds whole lines.
        let text = format!("{epoch},{base_tsc},{multiplier},{base_ns},{span}\n");
        self.file.write_all(text.as_bytes())
    }
}

/// A trace's folder that is ours alone as long as this lives: its directory is locked (flock(2)).
#[derive(Debug)]
pub(crate) struct Room {
    /// Absolute.
    pub(crate) path: PathBuf,
    /// What was moved for it, until it is certain that it is used.
    moved: Option<Moved>,
    lock: File,
}

/// An earlier trace that was moved.
#[derive(Debug)]
struct Moved {
    to: PathBuf,
    /// Where what was there waits to be removed.
    before: Option<PathBuf>,
}

impl Moved {
    fn settle(self) -> PathBuf {
        if let Some(before) = &self.before {
            // It is all a trace: what cannot be removed can be looked at.
            let _ = fs::remove_dir_all(before);
        }
        self.to
    }
}

impl Room {
    /// Uses it: what was moved stays there, and what went for that is removed. Where an earlier
    /// trace is now, if there was one.
    pub(crate) fn settle(&mut self) -> Option<PathBuf> {
        self.moved.take().map(Moved::settle)
    }

    /// The folder, to be found again wherever it is moved. It stays locked as long as this lives.
    pub(crate) fn place(&self) -> Result<Place, RecordError> {
        let folder = self.lock.try_clone().map_err(RecordError::io("use", &self.path))?;
        Ok(Place::of(folder, &self.path))
    }
}

impl Drop for Room {
    /// Where it is not used after all, everything is as it was.
    fn drop(&mut self) {
        let Some(Moved { to, before }) = self.moved.take() else { return };
        // Over our own folder, which has nothing in it; if it has, both stay as they are.
        if fs::rename(&to, &self.path).is_ok()
            && let Some(before) = before
        {
            let _ = fs::rename(before, to);
        }
    }
}

/// How often a lock is tried, and how long between: readers take it for a moment, to see whether a
/// recorder has it.
const LOCK_TRIES: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(1);
/// Most looks at a folder that others make and move at the same time.
const LOOKS_MAX: usize = 8;
/// Most names that are tried for a folder that the user did not name.
const NAMES_MAX: usize = 1000;

/// What becomes of the trace at `root.old` where the one at `root` takes its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Older {
    /// It goes, as perf(1) has it: somebody has typed a command again.
    Goes,
    /// It stays, and the one at `root` becomes `root.old-2`, and so on: who begins anew may be a
    /// service manager, after one crash and the next.
    Stays,
}

/// Makes room for a session's trace at `root`, as [`prepare`] does.
///
/// # Errors
///
/// If it would lie in another trace, too.
pub(crate) fn prepare_session(root: &Path, older: Older) -> Result<Room, RecordError> {
    check_outside(root)?;
    prepare_with(root, older)
}

/// Makes room for a trace at `root`: an earlier trace there is moved to `root.old`, in place of an
/// even earlier one, once it is [settled](Room::settle). Folders that hold anything else are left
/// alone, and so are those that are being recorded into.
pub(crate) fn prepare(root: &Path) -> Result<Room, RecordError> {
    prepare_with(root, Older::Goes)
}

fn prepare_with(root: &Path, older: Older) -> Result<Room, RecordError> {
    let absolute = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    // Without a slash at the end, which would make `root.old` lie inside.
    let root: PathBuf = absolute.components().collect();
    let mut moved: Option<Moved> = None;
    for _ in 0..LOOKS_MAX {
        make(&root).map_err(RecordError::io("make", &root))?;
        let Some(lock) = lock(&root)? else { continue };
        if is_empty(&root).map_err(RecordError::io("use", &root))? {
            return Ok(Room { path: root, moved, lock });
        }
        // Somebody else's, who was faster, if there is one of before.
        if let Some(before) = moved.replace(move_aside(&root, older)?) {
            before.settle();
        }
    }
    Err(RecordError::FolderBusy(root))
}

/// Whether a new trace at `root` would lie in no other trace. It would be taken for a piece of that
/// one, and be moved away with it.
///
/// # Errors
///
/// If it would, whether or not that one is being recorded into.
pub(crate) fn check_outside(root: &Path) -> Result<(), RecordError> {
    let absolute = std::path::absolute(root).map_err(RecordError::io("use", root))?;
    // Names say nothing: the folder that is there, or the first that is above it, may be a link.
    let there = absolute.ancestors().enumerate();
    let mut found = there.filter_map(|(level, path)| Some((level, path.canonicalize().ok()?)));
    let Some((level, there)) = found.next() else { return Ok(()) };
    let mut outer = there.ancestors().skip(usize::from(level == 0));
    match outer.find(|folder| is_recorded_here(folder)) {
        Some(outer) => Err(RecordError::FolderInside(root.to_owned(), outer.to_owned())),
        None => Ok(()),
    }
}

/// Whether there is a trace at `root` that was recorded here, or is.
fn is_recorded_here(root: &Path) -> bool {
    let has_calibrations = |channel: &PathBuf| channel.join(FACTS).join(CALIBRATIONS).is_file();
    channels_of(root).iter().any(has_calibrations)
}

/// Makes a new folder for a trace: `trackway-DATE-TIME` in the current folder, in UTC, or with the
/// session's name before the date.
pub(crate) fn prepare_new(session: &str) -> Result<(PathBuf, Room), RecordError> {
    let time = utc(trackway_sys::clock::realtime_ns() / 1_000_000_000).replace('T', "-");
    let stamp = if session.is_empty() { time } else { format!("{session}-{time}") };
    let mut name = PathBuf::from(format!("trackway-{stamp}"));
    check_outside(&name)?;
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

/// The folders of all streams of the trace at `root`, those of the kernel's, too.
fn with_kernel(root: &Path) -> Vec<PathBuf> {
    let kernel = Some(root.join(KERNEL)).filter(|kernel| kernel.is_dir());
    channels_of(root).into_iter().chain(kernel).collect()
}

/// Whether the trace at `root` has no stream at all: nothing was ever written.
pub(crate) fn has_no_stream(root: &Path) -> bool {
    // It may not even have begun.
    let has_none = |index: &Path| {
        is_empty(index).unwrap_or_else(|error| error.kind() == io::ErrorKind::NotFound)
    };
    with_kernel(root).iter().all(|channel| has_none(&channel.join("index")))
}

/// Removes what [`Trace::create`] made of a trace without streams, and nothing else: what others
/// put there stays, with the folders that it is in.
pub(crate) fn remove_unwritten(root: &Path) {
    // What cannot be removed is no harm.
    for channel in with_kernel(root) {
        let _ = fs::remove_file(channel.join("metadata"));
        let _ = fs::remove_dir_all(channel.join(FACTS));
        let _ = fs::remove_dir(channel.join("index"));
        let above = channel.ancestors().take_while(|folder| *folder != root);
        above.for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Name of the folder of a session's snapshot.
pub(crate) fn snapshot_name(number: u32) -> String {
    format!("{SNAPSHOT}{number}")
}

const SNAPSHOT: &str = "snapshot-";

/// Whether the folder holds a trace, or a session's snapshots, and nothing else.
fn is_only_a_trace(folder: &Path) -> bool {
    let has_only = |folder: &Path, is_ours: &dyn Fn(&Path) -> bool| {
        fs::read_dir(folder).is_ok_and(|mut entries| {
            entries.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.path())))
        })
    };
    let is_named = |path: &Path, name: &str| path.file_name().is_some_and(|found| *found == *name);
    let is_a_trace = |path: &Path| {
        let is_uid = |path: &Path| is_named(path, "uid");
        is_named(path, "ust") && path.is_dir() && has_only(path, &is_uid)
    };
    // Beside the programs' events; alone, only with our facts: LTTng names it so, too.
    let is_of_the_kernel = |path: &Path| {
        let is_beside = path.parent().is_some_and(|folder| folder.join("ust").is_dir());
        let is_ours = is_beside || path.join(FACTS).is_dir();
        is_named(path, KERNEL) && path.join("metadata").is_file() && is_ours
    };
    let is_a_snapshot = |path: &Path| {
        let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix(SNAPSHOT));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
            && has_only(path, &|path: &Path| is_a_trace(path) || is_of_the_kernel(path))
    };
    let is_ours = |path: &Path| is_a_trace(path) || is_a_snapshot(path) || is_of_the_kernel(path);
    !is_empty(folder).unwrap_or(true) && has_only(folder, &is_ours)
}

/// Moves the earlier trace at `root`, which we have locked, to `root.old`.
fn move_aside(root: &Path, older: Older) -> Result<Moved, RecordError> {
    let is_here = || File::open(".").is_ok_and(|here| is_at(&here, root));
    if !is_only_a_trace(root) || root.file_name().is_none() || is_here() {
        return Err(RecordError::FolderInUse(root.to_owned()));
    }
    let named = |end: &str| {
        let mut old = root.as_os_str().to_owned();
        old.push(end);
        PathBuf::from(old)
    };
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    let old = named(".old");
    let others = || (2..NAMES_MAX).map(|number| named(&format!(".old-{number}")));
    let free = || {
        let free = std::iter::once(old.clone()).chain(others()).find(|path| !is_there(path));
        free.ok_or_else(|| RecordError::FolderInUse(old.clone()))
    };
    let (to, mut before) = match older {
        Older::Goes => (old.clone(), None),
        Older::Stays => (free()?, None),
    };
    if is_there(&to) {
        // Whoever records there keeps it.
        let _lock = lock(&to)?;
        let gone = is_empty(&to).unwrap_or(false) || is_only_a_trace(&to);
        if !gone {
            return Err(RecordError::FolderInUse(to));
        }
        let aside = free()?;
        fs::rename(&to, &aside).map_err(RecordError::io("rename", &to))?;
        before = Some(aside);
    }
    match fs::rename(root, &to) {
        Ok(()) => Ok(Moved { to, before }),
        Err(error) => {
            if let Some(before) = before {
                let _ = fs::rename(before, to);
            }
            Err(RecordError::io("rename", root)(error))
        }
    }
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
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Barrier;

    use trackway_testkit::TemporaryFolder;

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
        let mut room = prepare(&root.join("")).unwrap();
        assert_eq!((room.settle(), &room.path), (None, &root));
        assert!(matches!(prepare(&root), Err(RecordError::FolderBusy(_))));
        put(&root);
        assert!(matches!(prepare(&root), Err(RecordError::FolderBusy(_))));
        drop(room);
        let old = base.join("a").join("trace.old");
        for _ in 0..2 {
            let mut room = prepare(&root).unwrap();
            assert_eq!(room.settle().as_ref(), Some(&old));
            put(&root);
        }
        // Nothing goes that is nobody's to be typed again.
        for number in 2..4 {
            let mut room = prepare_session(&root, Older::Stays).unwrap();
            let other = base.join("a").join(format!("trace.old-{number}"));
            assert_eq!(room.settle().as_ref(), Some(&other));
            put(&root);
        }
        assert!(old.join("ust").exists());
        put(&old.join("snapshot-12"));
        fs::remove_dir_all(old.join("ust")).unwrap();
        assert!(is_only_a_trace(&old));
        let kernel = base.join("kernel-only").join(KERNEL);
        fs::create_dir_all(&kernel).unwrap();
        fs::write(kernel.join("metadata"), "").unwrap();
        assert!(!is_only_a_trace(kernel.parent().unwrap()), "it may be another tracer's");
        fs::create_dir(kernel.join(FACTS)).unwrap();
        assert!(is_only_a_trace(kernel.parent().unwrap()));
        fs::write(old.join("mine"), "").unwrap();
        assert!(matches!(prepare(&root), Err(RecordError::FolderInUse(path)) if path == old));
        fs::write(root.join("mine"), "").unwrap();
        assert!(matches!(prepare(&root), Err(RecordError::FolderInUse(path)) if path == root));
        assert!(root.join("ust").exists() && old.join("snapshot-12").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn what_was_moved_for_nothing_is_moved_back() {
        let base = TemporaryFolder::new();
        let (root, old) = (base.join("trace"), base.join("trace.old"));
        let put = |folder: &Path, uid: &str| {
            fs::create_dir_all(folder.join("ust/uid").join(uid)).expect("a folder");
        };
        put(&root, "1");
        put(&old, "2");
        let names = || {
            let entries = fs::read_dir(base.path()).expect("a folder").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        for older in [Older::Goes, Older::Stays] {
            drop(prepare_session(&root, older).expect("room"));
            assert!(root.join("ust/uid/1").exists() && old.join("ust/uid/2").exists());
            assert_eq!(names(), ["trace", "trace.old"]);
        }
        // What was put there meanwhile stays, and nothing is written over.
        let room = prepare(&root).expect("room");
        put(&root, "3");
        drop(room);
        assert!(root.join("ust/uid/3").exists() && old.join("ust/uid/1").exists());
        assert!(base.join("trace.old-2/ust/uid/2").exists());
    }

    #[test]
    fn a_trace_is_opened_below_its_folder_and_nowhere_else() {
        let base = trackway_testkit::TemporaryFolder::new();
        let root = base.join("trace");
        let of = WindowFolder { uid: 65_531, number: 2 };
        let channel = of.in_trace(&root);
        assert_eq!(channel, root.join("ust/uid/65531/64-bit-2"));
        assert_eq!(WindowFolder::of(&channel), Some(of));
        DirBuilder::new().recursive(true).mode(0o700).create(&channel).expect("a folder");
        assert_eq!(channels_of(&root), std::slice::from_ref(&channel));
        let lock = File::open(&root).expect("a folder");
        let open = || open_below(&root, &lock, of);
        let found = open().expect("it is ours").metadata().expect("there").ino();
        assert_eq!(found, fs::metadata(&channel).expect("there").ino());
        // Whoever moves it, and puts another there, changes nothing: the lock is on this one.
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
        if crate::home::user() == 0 {
            std::os::unix::fs::chown(&uid, Some(65_531), None).expect("root may");
            assert!(open().is_err(), "another's");
        }
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
