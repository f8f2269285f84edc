//! An instance of tracefs: buffers and enabled events of our own, beside whatever others trace.
//!
//! It is a folder, and a folder outlives who made it. So a process that outlives the recorder
//! removes it ([`Afterwards`]); should that be killed, too, the kernel at least ends the recording
//! and gives the memory back when the recorder's descriptors are closed (`disable_on_free`), and
//! the next recording removes the folder. Whose it is, its name says: process, since when, in which
//! pid namespace. The kernel itself removes none that somebody has open.

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
use trackway_sys::process::{Afterwards, Identity, Life, identity, life_of};

use super::context::Common;
use super::page::PageFormat;
use crate::catalogue::EventName;
use crate::catalogue::error::CatalogueError;
use crate::catalogue::format::{self, FORMAT_BYTES_MAX, NoNames};
use crate::catalogue::tracefs::Tracefs;

/// Folder of the instances in tracefs.
const INSTANCES: &str = "instances";
/// What the names of ours begin with.
const PREFIX: &str = "trackway";
/// Threads that are not recorded, by number.
const OTHERS: &str = "set_event_notrace_pid";
/// A number that no thread ever has: PID_MAX_LIMIT (include/linux/threads.h).
const NOBODY: u32 = 4 << 20;
/// Most numbers of threads that are written at once: the kernel copies its list for each write.
const THREADS_MAX: usize = 512;
/// Longest list of threads that is read, in bytes.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Most CPUs.
const CPUS_MAX: u32 = 8192;
/// Longest text of what describes pages, or of a CPU's numbers, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Why there is no instance.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstanceError {
    /// No tracefs.
    Catalogue(CatalogueError),
    /// Something in it cannot be done: what, on what file, why.
    Io(&'static str, PathBuf, IoError),
    /// What it says of itself is not known here.
    Unknown(String),
}

impl InstanceError {
    /// What to do about it.
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
            Self::Io(what, path, error) => write!(f, "cannot {what} {}: {error}", path.display()),
            Self::Unknown(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for InstanceError {}

/// What an instance is to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Buffer of each CPU, in bytes.
    pub cpu_bytes: u64,
    /// The newest events are kept, not the oldest.
    pub overwrite: bool,
    /// Of these CPUs alone; `None`: of all.
    pub cpus: Option<Vec<u32>>,
    /// Of some threads only ([`Instance::enter`]).
    pub is_scoped: bool,
}

/// An instance of ours.
#[derive(Debug)]
pub struct Instance {
    // In the order in which they are to be let go: the folder last.
    cpus: Vec<Cpu>,
    tracing_on: File,
    /// Threads that are recorded, and those that are not, whatever else says so.
    threads: Option<File>,
    others: Option<File>,
    _free_buffer: Option<File>,
    folder: Folder,
    /// How its pages are laid out.
    pub pages: PageFormat,
    /// What all of its records have.
    pub common: Common,
}

/// A CPU's buffer.
#[derive(Debug)]
pub struct Cpu {
    /// Which.
    pub number: u32,
    pipe: File,
    stats: File,
}

/// What a CPU's buffer says of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that are in it.
    pub entries: u64,
    /// Events that found no room.
    pub dropped: u64,
    /// Events that newer ones have overwritten.
    pub overwritten: u64,
}

/// The folder, removed with this.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    afterwards: Option<Afterwards>,
    /// Its mount, if it is ours.
    _tracefs: Tracefs,
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Where we are no longer root, the other process does it.
        let _ = fs::remove_dir(&self.path);
        drop(self.afterwards.take());
    }
}

impl Instance {
    /// Makes one, which records nothing yet. Those that were left over are removed.
    ///
    /// # Errors
    ///
    /// If there is no tracefs for us, or no memory.
    pub fn new(wanted: &Wanted) -> Result<Self, InstanceError> {
        let tracefs = Tracefs::open().map_err(InstanceError::Catalogue)?;
        let instances = tracefs.root().join(INSTANCES);
        remove_leftovers(&instances);
        let name = name_of_ours();
        let path = instances.join(&name);
        fs::create_dir(&path).map_err(io("make", &path))?;
        let afterwards = afterwards(&instances, &name);
        let folder = Folder { path: path.clone(), afterwards, _tracefs: tracefs };
        let tracing_on = write(&path, "tracing_on", "0")?;
        write(&path, "trace_clock", "mono")?;
        write(&path, "options/overwrite", if wanted.overwrite { "1" } else { "0" })?;
        if let Some(cpus) = &wanted.cpus {
            write(&path, "tracing_cpumask", &mask_of(cpus))?;
        }
        let kib = wanted.cpu_bytes.div_ceil(1024).max(1);
        write(&path, "buffer_size_kb", &kib.to_string())?;
        // Should nobody be left to remove it: the kernel frees it when this is closed.
        let free_buffer = write(&path, "options/disable_on_free", "1")
            .and_then(|_| open(&path, "free_buffer", fs::OpenOptions::new().write(true)));
        let threads = wanted.is_scoped.then(|| threads(&path)).transpose()?;
        // Since Linux 5.7.
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true);
        let others = open(&path, OTHERS, options).ok().filter(|_| wanted.is_scoped);
        let page = read(&path, "events/header_page", TEXT_BYTES_MAX)?;
        let event = read(&path, "events/header_event", TEXT_BYTES_MAX)?;
        let unknown = |why: String| InstanceError::Unknown(format!("cannot read tracefs: {why}"));
        let pages = PageFormat::parse(&page, &event).map_err(|error| unknown(error.to_string()))?;
        let common = common(&path)?.ok_or_else(|| unknown("no event is as expected".into()))?;
        let cpus = cpus(&path)?;
        let _free_buffer = free_buffer.ok();
        Ok(Self { cpus, tracing_on, threads, others, _free_buffer, folder, pages, common })
    }

    /// Switches an event on or off.
    ///
    /// # Errors
    ///
    /// If it cannot be.
    pub fn switch(&self, event: &EventName, is_on: bool) -> Result<(), InstanceError> {
        let file = format!("events/{}/{}/enable", event.subsystem, event.name);
        write(&self.folder.path, &file, if is_on { "1" } else { "0" }).map(drop)
    }

    /// Records from here on, or not any more.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn record(&self, is_recorded: bool) -> io::Result<()> {
        (&self.tracing_on).write_all(if is_recorded { b"1" } else { b"0" })
    }

    /// Records from here on, of the calling thread and what it starts from now on, if it is of some
    /// threads. For a child of fork(2): it allocates nothing.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn enter(&self) -> io::Result<()> {
        let Some(mut threads) = self.threads.as_ref() else { return Ok(()) };
        let (mut digits, mut length) = ([0; 10], 0);
        let mut rest = trackway_sys::thread::tid();
        while rest > 0 {
            length += 1;
            digits[digits.len() - length] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        threads.write_all(&digits[digits.len() - length..])?;
        // Only then: without threads to record, all would be.
        self.record(true)
    }

    /// A thread, and what it starts from now on, is among those that are recorded.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn take_in(&self, tid: u32) -> io::Result<()> {
        let Some(mut threads) = self.threads.as_ref() else { return Ok(()) };
        threads.write_all(tid.to_string().as_bytes())
    }

    /// Records nobody, until somebody is taken in: a list without anybody would be of everybody.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it, as those before Linux 5.16 do.
    pub fn take_in_nobody(&self) -> io::Result<()> {
        self.take_in(NOBODY)
    }

    /// The same as [`Self::take_in`], of these.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it.
    pub fn take_in_all(&self, tids: &[u32]) -> io::Result<()> {
        let Some(threads) = self.threads.as_ref() else { return Ok(()) };
        write_list(threads, tids)
    }

    /// Those that were taken in, and have not ended.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn taken_in(&self) -> io::Result<Vec<u32>> {
        self.threads.as_ref().map_or(Ok(Vec::new()), read_list)
    }

    /// These, and what they start from now on, are not recorded any more, though they were taken
    /// in: whether the kernel can do that.
    ///
    /// # Errors
    ///
    /// If it refuses it.
    pub fn leave_out(&self, tids: &[u32]) -> io::Result<bool> {
        let Some(others) = self.others.as_ref() else { return Ok(false) };
        write_list(others, tids).map(|()| true)
    }

    /// Those that are left out, and have not ended.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn left_out(&self) -> io::Result<Vec<u32>> {
        self.others.as_ref().map_or(Ok(Vec::new()), read_list)
    }

    /// Leaves these out, and no others: for a moment, nobody.
    ///
    /// # Errors
    ///
    /// If the kernel refuses it, as it does where we are no longer root.
    pub fn leave_out_only(&self, tids: &[u32]) -> io::Result<()> {
        let path = self.folder.path.join(OTHERS);
        // To open it so takes all out.
        let emptied = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
        write_list(&emptied, tids)
    }

    /// The buffers of all CPUs that there could be.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }
}

impl Cpu {
    /// Reads the next page into `into`, which has room for one. `None`: there is nothing to read,
    /// now.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub fn read<'page>(&self, into: &'page mut [u8]) -> io::Result<Option<&'page [u8]>> {
        match (&self.pipe).read(into) {
            Ok(0) => Ok(None),
            Ok(bytes) => Ok(into.get(..bytes)),
            Err(error) => match error.raw_os_error() {
                // Nothing there; a CPU that has never been; a signal.
                Some(libc::EAGAIN | libc::ENODEV | libc::EINTR) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// What is lost so far.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn stats(&self) -> io::Result<Stats> {
        let mut text = [0; TEXT_BYTES_MAX];
        let bytes = self.stats.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(text.get(..bytes).unwrap_or_default());
        Ok(Stats::parse(&text))
    }
}

impl Stats {
    /// What came since.
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
        // The first: of no room; the second: of an interrupt that found a page half written.
        let dropped = number("dropped events").saturating_add(number("commit overrun"));
        Self { entries: number("entries"), dropped, overwritten: number("overrun") }
    }
}

/// Whether instances could be made: what stands against it.
///
/// # Errors
///
/// If they could not.
pub fn check() -> Result<PathBuf, InstanceError> {
    let tracefs = Tracefs::open().map_err(InstanceError::Catalogue)?;
    let instances = tracefs.root().join(INSTANCES);
    match trackway_sys::file::may_write(&c_path(&instances)) {
        Ok(()) => Ok(tracefs.root().to_owned()),
        Err(errno) => {
            let error = io::Error::from_raw_os_error(errno.0);
            Err(InstanceError::Io("write to", instances, error.into()))
        }
    }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstanceError {
    let path = path.to_owned();
    move |error| InstanceError::Io(what, path, error.into())
}

fn open(path: &Path, file: &str, options: &fs::OpenOptions) -> Result<File, InstanceError> {
    let path = path.join(file);
    options.open(&path).map_err(io("open", &path))
}

/// Writes to one of its files, which stays open.
fn write(path: &Path, file: &str, text: &str) -> Result<File, InstanceError> {
    let opened = open(path, file, fs::OpenOptions::new().write(true))?;
    (&opened).write_all(text.as_bytes()).map_err(io("write to", &path.join(file)))?;
    Ok(opened)
}

fn read(path: &Path, file: &str, bytes_max: usize) -> Result<String, InstanceError> {
    let opened = open(path, file, fs::OpenOptions::new().read(true))?;
    let mut text = vec![0; bytes_max];
    let mut length = 0;
    // As much as there is at once: some of these files give nothing to who reads on.
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match opened.read_at(rest, length as u64).map_err(io("read", &path.join(file)))? {
            0 => break,
            bytes => length += bytes,
        }
    }
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The file that says which threads are recorded; what they fork is, too.
fn threads(path: &Path) -> Result<File, InstanceError> {
    write(path, "options/event-fork", "1")?;
    open(path, "set_event_pid", fs::OpenOptions::new().read(true).write(true))
}

/// Adds threads to a list of the kernel's.
fn write_list(mut file: &File, tids: &[u32]) -> io::Result<()> {
    for tids in tids.chunks(THREADS_MAX) {
        let words: Vec<String> = tids.iter().map(u32::to_string).collect();
        file.write_all(words.join(" ").as_bytes())?;
    }
    Ok(())
}

/// The threads in a list of the kernel's.
fn read_list(mut file: &File) -> io::Result<Vec<u32>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(LIST_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}

/// What all events have, by the format of one that every kernel has.
fn common(path: &Path) -> Result<Option<Common>, InstanceError> {
    let text = read(path, "events/sched/sched_switch/format", FORMAT_BYTES_MAX)?;
    let format = format::parse(&text, &NoNames);
    Ok(format.ok().and_then(|format| Common::of(&format.common)))
}

fn cpus(path: &Path) -> Result<Vec<Cpu>, InstanceError> {
    let folder = path.join("per_cpu");
    let entries = fs::read_dir(&folder).map_err(io("read", &folder))?;
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
        let pipe = open(path, &file("trace_pipe_raw"), options)?;
        Ok(Cpu { number, pipe, stats: open(path, &file("stats"), options)? })
    };
    numbers.into_iter().map(open_cpu).collect()
}

/// CPUs as the kernel has masks: hexadecimal words of 32, the highest first.
fn mask_of(cpus: &[u32]) -> String {
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

/// Sees to it that the folder goes when this process does. `None`: it cannot be had; then the next
/// recording does.
fn afterwards(instances: &Path, name: &str) -> Option<Afterwards> {
    let folder = Fd::open(&c_path(instances), libc::O_RDONLY | libc::O_DIRECTORY, 0).ok()?;
    Afterwards::remove(&folder, &CString::new(name).ok()?).ok()
}

/// A name that nobody else has: `trackway-PID-SINCE-NAMESPACE-NUMBER`.
fn name_of_ours() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let Identity { pid, pid_namespace, since_ns, .. } = identity();
    format!("{PREFIX}-{pid}-{since_ns}-{pid_namespace}-{number}")
}

/// Who made the instance of this name, if one of us did.
fn owner_of(name: &str) -> Option<Identity> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.split('-');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (pid, since_ns, pid_namespace) = (number()?, number()?, number()?);
    number()?;
    let is_it = parts.next().is_none();
    let pid = u32::try_from(pid).ok().filter(|_| is_it)?;
    Some(Identity { pid, pid_namespace, since_ns, image: 0 })
}

/// Removes the instances of recorders that are proved to have ended.
fn remove_leftovers(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner_of);
        if owner.is_some_and(|owner| life_of(&owner, 0) == Life::Dead) {
            // What is open the kernel keeps.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_instances_are() {
        let owner = owner_of(&name_of_ours()).expect("one of ours");
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
        let namespace = identity().pid_namespace;
        let dead = format!("trackway-{}-1-{namespace}-0", child.id());
        let elsewhere = format!("trackway-{}-1-{}-0", child.id(), namespace + 1);
        let (ours, others) = (name_of_ours(), "somebody".to_owned());
        for name in [&dead, &elsewhere, &ours, &others] {
            fs::create_dir_all(dir.join(name)).expect("a folder");
        }
        remove_leftovers(&dir);
        let is_there = |name: &str| dir.join(name).exists();
        assert!(!is_there(&dead));
        assert!(is_there(&elsewhere) && is_there(&ours) && is_there(&others));
        fs::remove_dir_all(&dir).expect("a folder");
    }

    #[test]
    fn cpus_are_a_mask_with_the_highest_first() {
        assert_eq!(mask_of(&[]), "00000000");
        assert_eq!(mask_of(&[0, 3]), "00000009");
        assert_eq!(mask_of(&[1, 31, 32, 70]), "00000040,00000001,80000002");
    }

    #[test]
    fn losses_are_read() {
        let text = "entries: 2\noverrun: 5\ncommit overrun: 1\nbytes: 104\n\
            oldest event ts: 15189.069571\nnow ts: 15189.079056\ndropped events: 7\n\
            read events: 0\n";
        assert_eq!(Stats::parse(text), Stats { entries: 2, dropped: 8, overwritten: 5 });
        assert_eq!(Stats::parse("dropped events: x\n"), Stats::default());
    }
}
