//! tracefs for adapters: instances and uprobe events of the bench.
//!
//! Main invariant: nothing in tracefs outlives the bench. The kernel keeps instances and events
//! when the process that made them is killed. So each instance and event has a cleanup shell, and
//! the next run removes leftovers of processes that have ended. Uprobe events belong to the whole
//! kernel, not to an instance: the name of their group contains the process id of the bench.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::host::cleanup_shell::CleanupShell;

/// Prefix of instances' names, before the process id and the instance's own name.
const INSTANCE_PREFIX: &str = "trackway-lab-";
/// Prefix of groups of uprobe events, before the process id.
const GROUP_PREFIX: &str = "trackway_lab_";
/// Mount point of tracefs.
const MOUNT_POINT: &str = "/sys/kernel/tracing";
/// Longest time for which the kernel may take to release a resource in use.
const RETRY_LIMIT: Duration = Duration::from_secs(5);
/// Interval between attempts to release a resource.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// tracefs, at its mount point or in a private mount.
#[derive(Debug)]
pub struct Tracefs {
    root: PathBuf,
    /// File descriptor of a private mount, which exists only while the descriptor is open.
    _mount: Option<trackway_sys::file::Fd>,
}

impl Tracefs {
    /// Finds tracefs, or mounts it for this process only; otherwise returns the reason.
    pub fn find() -> std::result::Result<Self, String> {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err("only root has tracefs".to_owned());
        }
        let mounted = PathBuf::from(MOUNT_POINT);
        if mounted.join("instances").is_dir() {
            return Ok(Self { root: mounted, _mount: None });
        }
        let mount = trackway_sys::mount::mount_detached(c"tracefs")
            .map_err(|_| "tracefs can be neither found nor mounted".to_owned())?;
        let root = format!("/proc/{}/fd/{}", std::process::id(), mount.raw()).into();
        Ok(Self { root, _mount: Some(mount) })
    }

    /// Returns true if tracefs is mounted in a folder, so that other programs find it, too.
    pub fn is_mounted(&self) -> bool {
        self._mount.is_none()
    }

    /// Returns true if tracefs contains this file.
    pub fn has(&self, name: &str) -> bool {
        self.root.join(name).exists()
    }
}

/// Removes instances and uprobe events of bench processes that have ended.
pub fn remove_leftovers() {
    let Ok(tracefs) = Tracefs::find() else { return };
    let entries = fs::read_dir(tracefs.root.join("instances")).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(INSTANCE_PREFIX).is_some_and(is_of_ended_process) {
            // Another bench may be removing the same instance.
            let _ = fs::remove_dir(entry.path());
        }
    }
    let events = fs::read_to_string(tracefs.root.join("uprobe_events")).unwrap_or_default();
    for event in events.lines().filter_map(leftover_event) {
        let _ = append_command(&tracefs.root.join("uprobe_events"), &format!("-:{event}"));
    }
}

/// Returns true if `rest`, the part of a name after the prefix, names a process that has ended.
fn is_of_ended_process(rest: &str) -> bool {
    let digits = rest.find(|one: char| !one.is_ascii_digit()).unwrap_or(rest.len());
    let pid = rest[..digits].parse::<u32>().ok();
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

/// Returns the event of a line of uprobe_events, `p:GROUP/EVENT PATH:OFFSET …`, if it was left by a
/// run that has ended.
fn leftover_event(line: &str) -> Option<&str> {
    let event = line.strip_prefix("p:")?.split(' ').next()?;
    is_of_ended_process(event.strip_prefix(GROUP_PREFIX)?).then_some(event)
}

/// Appends `text` by one write(2): in files of tracefs, each write is a separate command.
fn append_command(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
}

/// The kernel's counts for the buffers of all CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Records in the buffers.
    pub entries: u64,
    /// Records that newer ones overwrote.
    pub overrun: u64,
    /// Records that were discarded because the buffers were full.
    pub dropped: u64,
    /// Bytes of the records in the buffers.
    pub bytes: u64,
}

/// A tracefs instance of the bench: no other process writes to its buffers.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
    cpus: Vec<PathBuf>,
    /// Dropped after `drop` has run.
    _cleanup_shell: CleanupShell,
}

impl Instance {
    /// Makes an instance with a buffer of `kib` KiB for each CPU; full buffers are overwritten.
    pub fn new(tracefs: &Tracefs, name: &str, kib: u64) -> Result<Self> {
        let name = format!("{INSTANCE_PREFIX}{}-{name}", std::process::id());
        let folder = tracefs.root.join("instances").join(name);
        let what = || format!("cannot make {}", folder.display());
        fs::create_dir(&folder).map_err(Error::io(what()))?;
        let cleanup_shell = CleanupShell::of_instance(&folder).inspect_err(|_| {
            let _ = fs::remove_dir(&folder);
        })?;
        let mut instance = Self { folder, cpus: Vec::new(), _cleanup_shell: cleanup_shell };
        let entries = fs::read_dir(instance.folder.join("per_cpu"));
        let entries = entries.map_err(Error::io("cannot read per_cpu"))?.flatten();
        instance.cpus = entries.map(|entry| entry.path()).collect();
        instance.write("buffer_size_kb", &kib.to_string())?;
        // The other tracers use the same clock.
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }

    /// Returns the path of a file or folder of the instance.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the folders of the per-CPU buffers.
    pub fn cpus(&self) -> &[PathBuf] {
        &self.cpus
    }

    /// Writes to a file of the instance.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        append_command(&self.folder.join(name), text)
            .map_err(Error::io(format!("cannot write {name} of a tracefs instance")))
    }

    /// Clears the recorded events and the counts.
    pub fn clear(&self) -> Result<()> {
        // Opening the file with O_TRUNC clears the buffer.
        let cleared = fs::write(self.folder.join("trace"), "");
        cleared.map_err(Error::io("cannot clear a tracefs instance"))
    }

    /// Returns the kernel's counts since the last `clear`.
    pub fn stats(&self) -> Result<BufferStats> {
        let mut sum = BufferStats::default();
        for cpu in &self.cpus {
            let path = cpu.join("stats");
            let text = fs::read_to_string(&path).map_err(Error::io("cannot read stats"))?;
            let found = parse_stats(&text)
                .ok_or_else(|| Error::output("ftrace", "stats has other lines than expected"))?;
            sum.entries += found.entries;
            sum.overrun += found.overrun;
            sum.dropped += found.dropped;
            sum.bytes += found.bytes;
        }
        Ok(sum)
    }
}

/// Returns the size of a buffer page in bytes: the page size of the machine, unless tracefs was
/// configured otherwise.
pub fn page_bytes() -> usize {
    // SAFETY: sysconf only reads its argument.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Reads the remaining pages of a CPU's buffer of this size from its `trace_pipe_raw`, without
/// waiting for more.
pub fn read_pages(path: &Path, buffer_bytes: u64, mut take: impl FnMut(&[u8])) -> Result<()> {
    /// Bytes of a page's header; the size of a buffer does not include the headers.
    const HEADER_BYTES: usize = 16;
    let what = || format!("cannot read {}", path.display());
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file = options.open(path).map_err(Error::io(what()))?;
    let page_bytes = page_bytes();
    let mut page = vec![0; page_bytes];
    // At most the pages of a buffer, and the page that is being written.
    for _ in 0..buffer_bytes.div_ceil((page_bytes - HEADER_BYTES) as u64) + 2 {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(bytes) => take(&page[..bytes]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(Error::io(what())(error)),
        }
    }
    Ok(())
}

/// Parses the numbers of a CPU's `stats`.
fn parse_stats(text: &str) -> Option<BufferStats> {
    let stat = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(1)?.trim().parse::<u64>().ok()
    };
    Some(BufferStats {
        entries: stat("entries")? + stat("read events")?,
        overrun: stat("overrun")?,
        dropped: stat("dropped events")?,
        bytes: stat("bytes")?,
    })
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An instance stays if a process has one of its files open.
        let _ = retry_until_done(|| fs::remove_dir(&self.folder));
    }
}

/// A uprobe event of the bench.
#[derive(Debug)]
pub struct Uprobe {
    events: PathBuf,
    group: String,
    event: String,
    /// Dropped after `drop` has run.
    _cleanup_shell: CleanupShell,
}

impl Uprobe {
    /// Makes the uprobe event `event` at `offset` in the file `program`; `fetch` declares its
    /// content in the kernel's syntax: `value=%di:u32`.
    pub fn new(
        tracefs: &Tracefs,
        event: &str,
        program: &Path,
        offset: u64,
        fetch: &str,
    ) -> Result<Self> {
        let events = tracefs.root.join("uprobe_events");
        let group = format!("{GROUP_PREFIX}{}", std::process::id());
        // The shell starts before the event exists, so that a killed bench leaves no event.
        let cleanup_shell = CleanupShell::of_uprobe(&tracefs.root, &format!("{group}/{event}"))?;
        let line = format!("p:{group}/{event} {}:{offset:#x} {fetch}", program.display());
        append_command(&events, &line)
            .map_err(Error::io(format!("cannot make the event '{line}'")))?;
        Ok(Self { events, group, event: event.to_owned(), _cleanup_shell: cleanup_shell })
    }

    /// Returns the event's name in the format of perf.
    pub fn for_perf(&self) -> String {
        format!("{}:{}", self.group, self.event)
    }

    /// Returns the path of the file that enables the event in an instance.
    pub fn enable(&self) -> String {
        format!("events/{}/{}/enable", self.group, self.event)
    }
}

impl Drop for Uprobe {
    fn drop(&mut self) {
        // The event stays while a process records it.
        let line = format!("-:{}/{}", self.group, self.event);
        let _ = retry_until_done(|| append_command(&self.events, &line));
    }
}

/// Repeats `attempt` until it succeeds, finds nothing to remove, or reaches the time limit.
fn retry_until_done(mut attempt: impl FnMut() -> std::io::Result<()>) -> std::io::Result<()> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) if begin.elapsed() < RETRY_LIMIT => std::thread::sleep(RETRY_INTERVAL),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_have_left_is_removed() {
        // No process id is as large: PID_MAX_LIMIT is 2^22.
        assert!(is_of_ended_process("4200000") && is_of_ended_process("4200000-events"));
        let alive = std::process::id().to_string();
        assert!(
            !is_of_ended_process(&alive)
                && !is_of_ended_process("")
                && !is_of_ended_process("kept")
        );
        let line = "p:trackway_lab_4200000/number /tmp/usdt:0x1720 value=%di:u32";
        assert_eq!(leftover_event(line), Some("trackway_lab_4200000/number"));
        let others = format!("p:{GROUP_PREFIX}{alive}/number /tmp/usdt:0x1720");
        for line in [others.as_str(), "p:uprobes/mine /bin/sh:0x1", "r:trackway_lab_4200000/x", ""]
        {
            assert_eq!(leftover_event(line), None, "{line}");
        }
    }

    #[test]
    fn counts_of_a_cpu_are_read() {
        let text = "entries: 43700\noverrun: 236300\ncommit overrun: 0\nbytes: 1048800\n\
                    oldest event ts: 59361.407989\nnow ts: 59361.524346\ndropped events: 2\n\
                    read events: 10\n";
        let expected =
            BufferStats { entries: 43710, overrun: 236_300, dropped: 2, bytes: 1_048_800 };
        assert_eq!(parse_stats(text), Some(expected));
        assert_eq!(parse_stats("entries: 1\n"), None);
    }

    #[test]
    fn what_is_made_goes_with_who_made_it() {
        let tracefs = match Tracefs::find() {
            Ok(tracefs) if tracefs.has("uprobe_events") => tracefs,
            Ok(_) => return eprintln!("skipped, because this kernel has no uprobes"),
            Err(reason) => return eprintln!("skipped, because {reason}"),
        };
        let listed = || {
            let events = fs::read_to_string(tracefs.root.join("uprobe_events")).expect("a list");
            events.contains(&format!("{GROUP_PREFIX}{}/test ", std::process::id()))
        };
        let program = std::env::current_exe().expect("a program");
        let instance = Instance::new(&tracefs, "test", 64).expect("an instance");
        let folder = instance.path("");
        let uprobe = Uprobe::new(&tracefs, "test", &program, 0x1000, "").expect("an event");
        assert!(listed() && folder.is_dir());
        assert!(instance.path(&uprobe.enable()).is_file());
        assert_eq!(instance.stats().expect("counts"), BufferStats::default());
        drop((instance, uprobe));
        assert!(!listed() && !folder.exists());
    }
}
