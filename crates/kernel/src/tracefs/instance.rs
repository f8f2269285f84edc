//! An instance of tracefs, which has its own buffers and enabled events, independent of other
//! tracers.
//!
//! An instance is a folder, and the folder remains when its creator ends. A helper process that
//! outlives the recorder removes the folder ([`FolderRemover`]). If the helper is killed, too, the
//! kernel ends the recording and frees the memory when the recorder's descriptors are closed
//! (`disable_on_free`). Then the next recording removes the folder. The folder's name identifies
//! the owner: process, start time, pid namespace. The kernel refuses to remove an instance that a
//! process has open.

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use trackway_console::IoError;
use trackway_sys::file::Fd;
use trackway_sys::process::{FolderRemover, Identity, Life, current_identity, life_of};

use super::contexts::CommonLayout;
use super::page::PageFormat;
use crate::catalogue::EventName;
use crate::catalogue::error::CatalogueError;
use crate::catalogue::format::{self, EmptyLookup, FORMAT_BYTES_MAX};
use crate::catalogue::tracefs::Tracefs;

/// The folder of instances in tracefs.
const INSTANCES_FOLDER: &str = "instances";
/// The prefix of Trackway's instances.
const NAME_PREFIX: &str = "trackway";
/// The file with ids of threads that the instance does not record.
const EXCLUDED_THREADS: &str = "set_event_notrace_pid";
/// An id that no thread can have: PID_MAX_LIMIT (include/linux/threads.h).
const NO_THREAD: u32 = 4 << 20;
/// Most thread ids in one write: at each write, the kernel copies its list of ids.
const THREADS_MAX: usize = 512;
/// Longest thread list that the recorder reads, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Most CPUs of the system.
const CPUS_MAX: u32 = 8192;
/// Longest page description or CPU statistics, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// The reason why no instance exists.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstanceError {
    /// tracefs is not available.
    Catalogue(CatalogueError),
    /// An operation on a file failed: operation, file, error.
    Io(&'static str, PathBuf, IoError),
    /// The layout of tracefs data is unknown.
    Unknown(String),
}

impl InstanceError {
    /// Returns advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Catalogue(error) => error.hint(),
            Self::Io(_, _, error) => match error.kind() {
                ErrorKind::PermissionDenied => Some(
                    "run it as root (sudo trackway ...); a kernel that is locked down \
                     (/sys/kernel/security/lockdown) lets nobody"
                        .into(),
                ),
                ErrorKind::OutOfMemory => Some("use a smaller --buffer-size".into()),
                _ => None,
            },
            Self::Unknown(_) => None,
        }
    }
}

impl fmt::Display for InstanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalogue(error) => error.fmt(f),
            Self::Io(what, path, error) => {
                write!(f, "cannot {what} {}: {error}", path.display())
            }
            Self::Unknown(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for InstanceError {}

/// Options of an instance.
#[derive(Debug, Clone)]
pub struct InstanceOptions {
    /// The size of each CPU's buffer, in bytes.
    pub cpu_bytes: u64,
    /// True to overwrite the oldest events, false to discard new ones.
    pub overwrite: bool,
    /// The CPUs to record; `None`: all.
    pub cpus: Option<Vec<u32>>,
    /// True to record only added threads ([`Instance::add_current_and_start`]).
    pub is_scoped: bool,
}

/// An instance of Trackway.
#[derive(Debug)]
pub struct Instance {
    // Rust drops fields in this order, so the folder is removed last.
    cpus: Vec<Cpu>,
    tracing_on: File,
    /// The files with included and excluded thread ids.
    threads: Option<File>,
    excluded: Option<File>,
    _free_buffer: Option<File>,
    folder: InstanceFolder,
    /// The layout of the instance's pages.
    pub pages: PageFormat,
    /// The layout of the common fields in the instance's records.
    pub common: CommonLayout,
}

/// The buffer of one CPU.
#[derive(Debug)]
pub struct Cpu {
    /// The number of the CPU.
    pub number: u32,
    pipe: File,
    stats: File,
}

/// Statistics of a CPU's buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Events in the buffer.
    pub entries: u64,
    /// Events that the kernel discarded because the buffer was full.
    pub dropped: u64,
    /// Events that newer events have overwritten.
    pub overwritten: u64,
}

/// The folder of an instance; dropping this value removes the folder.
#[derive(Debug)]
struct InstanceFolder {
    path: PathBuf,
    cleanup: Option<FolderRemover>,
    /// The mount of tracefs, if this process made the mount.
    _tracefs: Tracefs,
}

impl Drop for InstanceFolder {
    fn drop(&mut self) {
        // If this process is no longer root, the helper process removes the folder.
        let _ = fs::remove_dir(&self.path);
        drop(self.cleanup.take());
    }
}

impl Instance {
    /// Creates an instance that does not record yet, and removes leftover instances.
    ///
    /// # Errors
    ///
    /// If tracefs is not available, or memory is short.
    pub fn new(options: &InstanceOptions) -> Result<Self, InstanceError> {
        let tracefs = Tracefs::open().map_err(InstanceError::Catalogue)?;
        let instances = tracefs.root().join(INSTANCES_FOLDER);
        remove_leftovers(&instances);
        let name = unique_name();
        let path = instances.join(&name);
        fs::create_dir(&path).map_err(file_error("make", &path))?;
        let cleanup = start_cleanup(&instances, &name);
        let folder = InstanceFolder { path: path.clone(), cleanup, _tracefs: tracefs };
        let tracing_on = write_file(&path, "tracing_on", "0")?;
        write_file(&path, "trace_clock", "mono")?;
        write_file(&path, "options/overwrite", if options.overwrite { "1" } else { "0" })?;
        if let Some(cpus) = &options.cpus {
            write_file(&path, "tracing_cpumask", &cpu_mask(cpus))?;
        }
        let kib = options.cpu_bytes.div_ceil(1024).max(1);
        write_file(&path, "buffer_size_kb", &kib.to_string())?;
        // If no process is left to remove the folder, the kernel frees the buffers when this
        // descriptor is closed.
        let free_buffer = write_file(&path, "options/disable_on_free", "1")
            .and_then(|_| open_file(&path, "free_buffer", fs::OpenOptions::new().write(true)));
        let threads = options.is_scoped.then(|| open_thread_list(&path)).transpose()?;
        // `set_event_notrace_pid` exists since Linux 5.7.
        let mut open_options = fs::OpenOptions::new();
        let open_options = open_options.read(true).write(true);
        let excluded =
            open_file(&path, EXCLUDED_THREADS, open_options).ok().filter(|_| options.is_scoped);
        let page = read_file(&path, "events/header_page", TEXT_BYTES_MAX)?;
        let event = read_file(&path, "events/header_event", TEXT_BYTES_MAX)?;
        let unknown = |why: String| InstanceError::Unknown(format!("cannot read tracefs: {why}"));
        let pages = PageFormat::parse(&page, &event).map_err(|error| unknown(error.to_string()))?;
        let common =
            find_common_layout(&path)?.ok_or_else(|| unknown("no event is as expected".into()))?;
        let cpus = open_cpus(&path)?;
        let _free_buffer = free_buffer.ok();
        Ok(Self { cpus, tracing_on, threads, excluded, _free_buffer, folder, pages, common })
    }

    /// Enables or disables an event.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_event_enabled(&self, event: &EventName, is_on: bool) -> Result<(), InstanceError> {
        let file = format!("events/{}/{}/enable", event.subsystem, event.name);
        write_file(&self.folder.path, &file, if is_on { "1" } else { "0" }).map(drop)
    }

    /// Starts or stops recording.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn set_recording(&self, is_recorded: bool) -> io::Result<()> {
        (&self.tracing_on).write_all(if is_recorded { b"1" } else { b"0" })
    }

    /// Adds the calling thread and its future descendants if the instance is scoped, and starts
    /// recording. A child of fork(2) may call this function: it does not allocate.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn add_current_and_start(&self) -> io::Result<()> {
        let Some(mut threads) = self.threads.as_ref() else { return Ok(()) };
        let (mut digits, mut length) = ([0; 10], 0);
        let mut rest = trackway_sys::thread::current_tid();
        while rest > 0 {
            length += 1;
            digits[digits.len() - length] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        threads.write_all(&digits[digits.len() - length..])?;
        // Recording starts last, because an empty list would record all threads.
        self.set_recording(true)
    }

    /// Adds a thread and its future descendants.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn add_thread(&self, tid: u32) -> io::Result<()> {
        let Some(mut threads) = self.threads.as_ref() else { return Ok(()) };
        threads.write_all(tid.to_string().as_bytes())
    }

    /// Records no thread until [`Self::add_thread`] adds one; an empty list would record all
    /// threads.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, as before Linux 5.16.
    pub fn add_no_thread(&self) -> io::Result<()> {
        self.add_thread(NO_THREAD)
    }

    /// Adds threads and their future descendants.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn add_threads(&self, tids: &[u32]) -> io::Result<()> {
        let Some(threads) = self.threads.as_ref() else { return Ok(()) };
        write_list(threads, tids)
    }

    /// Returns the added threads that have not ended.
    ///
    /// # Errors
    ///
    /// If the list cannot be read.
    pub fn added_threads(&self) -> io::Result<Vec<u32>> {
        self.threads.as_ref().map_or(Ok(Vec::new()), read_list)
    }

    /// Excludes threads and their future descendants, even if they were added. Returns false if the
    /// kernel cannot exclude threads.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub fn exclude_threads(&self, tids: &[u32]) -> io::Result<bool> {
        let Some(excluded) = self.excluded.as_ref() else { return Ok(false) };
        write_list(excluded, tids).map(|()| true)
    }

    /// Returns the excluded threads that have not ended.
    ///
    /// # Errors
    ///
    /// If the list cannot be read.
    pub fn excluded_threads(&self) -> io::Result<Vec<u32>> {
        self.excluded.as_ref().map_or(Ok(Vec::new()), read_list)
    }

    /// Replaces the list of excluded threads; for a moment it is empty.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, for example because this process is no longer root.
    pub fn replace_excluded_threads(&self, tids: &[u32]) -> io::Result<()> {
        let path = self.folder.path.join(EXCLUDED_THREADS);
        // Opening with truncation empties the list.
        let emptied = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        write_list(&emptied, tids)
    }

    /// Returns the buffers of all possible CPUs.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }
}

impl Cpu {
    /// Reads the next page into `into`, which has room for one page. `None`: no page is available
    /// now.
    ///
    /// # Errors
    ///
    /// If reading fails.
    pub fn read<'page>(&self, into: &'page mut [u8]) -> io::Result<Option<&'page [u8]>> {
        match (&self.pipe).read(into) {
            Ok(0) => Ok(None),
            Ok(bytes) => Ok(into.get(..bytes)),
            Err(error) => match error.raw_os_error() {
                // No data; an offline CPU; a signal.
                Some(libc::EAGAIN | libc::ENODEV | libc::EINTR) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Reads the statistics of the CPU's buffer.
    ///
    /// # Errors
    ///
    /// If reading fails.
    pub fn stats(&self) -> io::Result<BufferStats> {
        let mut text = [0; TEXT_BYTES_MAX];
        let bytes = self.stats.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..bytes).unwrap_or_default());
        Ok(BufferStats::parse(&text))
    }
}

impl BufferStats {
    /// Returns the change of the statistics since `before`.
    #[must_use]
    pub const fn since(self, before: &Self) -> Self {
        Self {
            entries: self.entries,
            dropped: self.dropped.saturating_sub(before.dropped),
            overwritten: self.overwritten.saturating_sub(before.overwritten),
        }
    }

    fn parse(text: &str) -> Self {
        let number = |name: &str| -> u64 {
            let of = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.trim().parse().ok();
            text.lines().find_map(of).unwrap_or(0)
        };
        // `dropped events` counts discarded events; `commit overrun` counts events of an interrupt
        // that found a page half written.
        let dropped = number("dropped events").saturating_add(number("commit overrun"));
        Self { entries: number("entries"), dropped, overwritten: number("overrun") }
    }
}

/// Checks that this process could create instances; returns the root of tracefs.
///
/// # Errors
///
/// The reason why this process cannot create instances.
pub fn check_support() -> Result<PathBuf, InstanceError> {
    let tracefs = Tracefs::open().map_err(InstanceError::Catalogue)?;
    let instances = tracefs.root().join(INSTANCES_FOLDER);
    match trackway_sys::file::check_writable(&c_path(&instances)) {
        Ok(()) => Ok(tracefs.root().to_owned()),
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno.0);
            Err(InstanceError::Io("write to", instances, error.into()))
        }
    }
}

fn file_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstanceError {
    let path = path.to_owned();
    move |error| InstanceError::Io(operation, path, error.into())
}

fn open_file(path: &Path, file: &str, options: &fs::OpenOptions) -> Result<File, InstanceError> {
    let path = path.join(file);
    options.open(&path).map_err(file_error("open", &path))
}

/// Writes text to a file of the instance; returns the open file.
fn write_file(path: &Path, file: &str, text: &str) -> Result<File, InstanceError> {
    let opened = open_file(path, file, fs::OpenOptions::new().write(true))?;
    (&opened).write_all(text.as_bytes()).map_err(file_error("write to", &path.join(file)))?;
    Ok(opened)
}

fn read_file(path: &Path, file: &str, bytes_max: usize) -> Result<String, InstanceError> {
    let opened = open_file(path, file, fs::OpenOptions::new().read(true))?;
    let mut text = vec![0; bytes_max];
    let mut length = 0;
    // Reads until the end of the file: some of these files return nothing to later reads.
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match opened.read_at(rest, length as u64).map_err(file_error("read", &path.join(file)))? {
            0 => break,
            bytes => length += bytes,
        }
    }
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Opens the list of included threads, and makes descendants of included threads inherit.
fn open_thread_list(path: &Path) -> Result<File, InstanceError> {
    write_file(path, "options/event-fork", "1")?;
    open_file(path, "set_event_pid", fs::OpenOptions::new().read(true).write(true))
}

/// Appends threads to a list.
fn write_list(mut file: &File, tids: &[u32]) -> io::Result<()> {
    for tids in tids.chunks(THREADS_MAX) {
        let words: Vec<String> = tids.iter().map(u32::to_string).collect();
        file.write_all(words.join(" ").as_bytes())?;
    }
    Ok(())
}

/// Reads the threads of a list.
fn read_list(mut file: &File) -> io::Result<Vec<u32>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(LIST_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// Finds the common fields in the format of an event that every kernel has.
fn find_common_layout(path: &Path) -> Result<Option<CommonLayout>, InstanceError> {
    let text = read_file(path, "events/sched/sched_switch/format", FORMAT_BYTES_MAX)?;
    let format = format::parse(&text, &EmptyLookup);
    Ok(format.ok().and_then(|format| CommonLayout::find(&format.common)))
}

fn open_cpus(path: &Path) -> Result<Vec<Cpu>, InstanceError> {
    let folder = path.join("per_cpu");
    let entries = fs::read_dir(&folder).map_err(file_error("read", &folder))?;
    let number = |entry: fs::DirEntry| -> Option<u32> {
        entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()
    };
    let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
    numbers.retain(|&number| number < CPUS_MAX);
    numbers.sort_unstable();
    let open_cpu = |number: u32| {
        let file = |name: &str| format!("per_cpu/cpu{number}/{name}");
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        let pipe = open_file(path, &file("trace_pipe_raw"), options)?;
        Ok(Cpu { number, pipe, stats: open_file(path, &file("stats"), options)? })
    };
    numbers.into_iter().map(open_cpu).collect()
}

/// Returns a CPU mask: hexadecimal words of 32 bits, the highest first.
fn cpu_mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let word = |number: u32| {
        let of_word = cpus.iter().filter(|&&cpu| cpu / 32 == number);
        of_word.fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let words: Vec<String> = (0..words).rev().map(|at| format!("{:08x}", word(at))).collect();
    words.join(",")
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Starts the helper process that removes the folder when this process ends. `None`: it failed;
/// then the next recording removes the folder.
fn start_cleanup(instances: &Path, name: &str) -> Option<FolderRemover> {
    let folder = Fd::open(&c_path(instances), libc::O_RDONLY | libc::O_DIRECTORY, 0).ok()?;
    FolderRemover::spawn(&folder, &CString::new(name).ok()?).ok()
}

/// Returns a unique name for an instance: `trackway-PID-SINCE-NAMESPACE-NUMBER`.
fn unique_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let Identity { pid, pid_namespace, since_ns, .. } = current_identity();
    format!("{NAME_PREFIX}-{pid}-{since_ns}-{pid_namespace}-{number}")
}

/// Returns the owner of the instance with this name, if Trackway created the instance.
fn owner_of(name: &str) -> Option<Identity> {
    let mut parts = name.strip_prefix(NAME_PREFIX)?.strip_prefix('-')?.split('-');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (pid, since_ns, pid_namespace) = (number()?, number()?, number()?);
    number()?;
    let is_it = parts.next().is_none();
    let pid = u32::try_from(pid).ok().filter(|_| is_it)?;
    Some(Identity { pid, pid_namespace, since_ns, image: 0 })
}

/// Removes the instances whose recorders have certainly ended.
fn remove_leftovers(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner_of);
        if owner.is_some_and(|owner| life_of(&owner, 0) == Life::Dead) {
            // The kernel refuses to remove an instance that a process has open.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_owners() {
        let owner = owner_of(&unique_name()).expect("one of ours");
        assert_eq!(owner.pid, std::process::id());
        assert_eq!(life_of(&owner, 0), Life::Alive);
        assert_eq!(owner_of("trackway-1-2-3-4").map(|owner| owner.since_ns), Some(2));
        for other in ["trackway", "trackway-1-2-3", "trackway-1-2-3-4-5", "trackway-a-2-3-4", "x"] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn leftovers_of_the_dead_are_removed_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("trackway-instances-{}", std::process::id()));
        let mut child = std::process::Command::new("true").spawn().expect("true runs");
        let _ = child.wait();
        let namespace = current_identity().pid_namespace;
        let dead = format!("trackway-{}-1-{namespace}-0", child.id());
        let elsewhere = format!("trackway-{}-1-{}-0", child.id(), namespace + 1);
        let (ours, excluded) = (unique_name(), "somebody".to_owned());
        for name in [&dead, &elsewhere, &ours, &excluded] {
            fs::create_dir_all(dir.join(name)).expect("a folder");
        }
        remove_leftovers(&dir);
        let is_there = |name: &str| dir.join(name).exists();
        assert!(!is_there(&dead));
        assert!(is_there(&elsewhere) && is_there(&ours) && is_there(&excluded));
        fs::remove_dir_all(&dir).expect("a folder");
    }

    #[test]
    fn cpus_are_a_mask_with_the_highest_first() {
        assert_eq!(cpu_mask(&[]), "00000000");
        assert_eq!(cpu_mask(&[0, 3]), "00000009");
        assert_eq!(cpu_mask(&[1, 31, 32, 70]), "00000040,00000001,80000002");
    }

    #[test]
    fn losses_are_read() {
        let text = "entries: 2\noverrun: 5\ncommit overrun: 1\nbytes: 104\n\
            oldest event ts: 15189.069571\nnow ts: 15189.079056\ndropped events: 7\n\
            read events: 0\n";
        assert_eq!(
            BufferStats::parse(text),
            BufferStats { entries: 2, dropped: 8, overwritten: 5 }
        );
        assert_eq!(BufferStats::parse("dropped events: x\n"), BufferStats::default());
    }
}
