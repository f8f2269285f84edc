//! ftrace, in a private instance: its events enabled, its buffers moved to files as trace-cmd does.
//!
//! An instance stays when whoever made it is killed: so it has a guardian, and who comes next
//! removes instances of processes that are no more.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{
    BUFFER_KIB, Found, Job, Keep, KernelEvents, KernelTracer, LIMIT_S, PROGRAM, Ran, SUBSYSTEMS,
};
use crate::child::{self, Running};
use crate::error::{Error, Result};
use crate::guardian::Guardian;
use crate::place::Place;

/// What instances are called, before the process's number.
const PREFIX: &str = "trackway-lab-";
/// Where tracefs is mounted, if it is.
const MOUNTED: &str = "/sys/kernel/tracing";
/// How long the kernel may take to let an instance go.
const PATIENCE: Duration = Duration::from_secs(5);

/// tracefs, wherever it can be had.
#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
    /// What keeps it, where no folder shows it.
    _mount: Option<trackway_sys::file::Fd>,
}

impl Tracefs {
    /// Finds it, or mounts it for us alone.
    pub(super) fn find() -> std::result::Result<Self, String> {
        let mounted = PathBuf::from(MOUNTED);
        let tracefs = if mounted.join("instances").is_dir() {
            Self { root: mounted, _mount: None }
        } else {
            let mount = trackway_sys::mount::detached(c"tracefs")
                .map_err(|_| "tracefs can be neither found nor mounted".to_owned())?;
            let root = format!("/proc/{}/fd/{}", std::process::id(), mount.raw()).into();
            Self { root, _mount: Some(mount) }
        };
        tracefs.remove_leftovers();
        Ok(tracefs)
    }

    /// Removes instances of laboratories that are no more.
    fn remove_leftovers(&self) {
        let entries = fs::read_dir(self.root.join("instances")).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // Another one may be doing the same.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }

    /// Runs a job with ftrace's events of that kind on.
    pub(super) fn run(&self, tracer: KernelTracer, job: &Job<'_>) -> Result<Ran> {
        let instance = Instance::new(self)?;
        instance.write("buffer_size_kb", &BUFFER_KIB.to_string())?;
        // The clock that other tracers have, so that traces could be compared.
        instance.write("trace_clock", "mono")?;
        let drains = match job.keep {
            Keep::Disk => instance.drain(job.place)?,
            Keep::Flight => Drains(Vec::new()),
        };
        for folder in folders(tracer, job.events) {
            instance.write(&format!("events/{folder}/enable"), "1")?;
        }
        let command = job.command(&drains.pids());
        let mut program = Command::new(&command[0]);
        let finished = child::run_for(program.args(&command[1..]), tracer.name(), LIMIT_S);
        instance.write("tracing_on", "0")?;
        drop(drains);
        let finished = finished?;
        let mut found = instance.found(job.place)?;
        if job.keep == Keep::Flight {
            // What did not fit was to go.
            (found.lost, found.overwritten) = (found.lost - found.overwritten, found.overwritten);
        } else {
            found.overwritten = 0;
        }
        Ok(Ran { stdout: finished.stdout, found: Some(found) })
    }
}

/// Folders of the events.
fn folders(tracer: KernelTracer, events: KernelEvents) -> Vec<String> {
    let calls = if tracer == KernelTracer::FtraceSyscalls { "syscalls" } else { "raw_syscalls" };
    let folders = match events {
        KernelEvents::Calls => vec![calls],
        KernelEvents::OneCall(call) => {
            return ["enter", "exit"].map(|side| format!("syscalls/sys_{side}_{call}")).into();
        }
        KernelEvents::Sched => vec!["sched"],
        KernelEvents::Everything => SUBSYSTEMS.into_iter().chain([calls]).collect(),
    };
    folders.into_iter().map(str::to_owned).collect()
}

/// An instance of our own.
struct Instance {
    folder: PathBuf,
    cpus: Vec<String>,
    /// Last, after what is done on drop.
    _guardian: Guardian,
}

impl Instance {
    fn new(tracefs: &Tracefs) -> Result<Self> {
        let folder = tracefs.root.join(format!("instances/{PREFIX}{}", std::process::id()));
        let what = || format!("cannot make {}", folder.display());
        fs::create_dir(&folder).map_err(Error::io(what()))?;
        let guardian = Guardian::of_instance(&folder).inspect_err(|_| {
            let _ = fs::remove_dir(&folder);
        })?;
        let mut instance = Self { folder, cpus: Vec::new(), _guardian: guardian };
        let entries = fs::read_dir(instance.folder.join("per_cpu"));
        let entries = entries.map_err(Error::io("cannot read per_cpu"))?.flatten();
        instance.cpus = entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
        Ok(instance)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let mut file = OpenOptions::new().write(true).open(&path).map_err(Error::io(name))?;
        file.write_all(text.as_bytes()).map_err(Error::io(format!("cannot write {name}")))
    }

    fn raw(&self, cpu: &str) -> PathBuf {
        self.folder.join("per_cpu").join(cpu).join("trace_pipe_raw")
    }

    /// Starts what moves each CPU's buffer to a file.
    fn drain(&self, place: &Place) -> Result<Drains> {
        let mut drains = Drains(Vec::new());
        for cpu in &self.cpus {
            let mut command = Command::new(place.path(PROGRAM));
            command.arg("drain").arg(self.raw(cpu)).arg(place.path(cpu));
            let mut drain = Running::start_for(&mut command, "a drain", 2 * LIMIT_S)?;
            let line = drain.line();
            drains.0.push(drain);
            if line? != "ready" {
                return Err(Error::output("a drain", "it is not ready"));
            }
        }
        Ok(drains)
    }

    /// What was recorded: by the kernel's own counts, and with bytes as they came.
    fn found(&self, place: &Place) -> Result<Found> {
        let mut found = Found::default();
        for cpu in &self.cpus {
            // What was written, and pages that are not full.
            let path = place.path(cpu);
            let file = fs::metadata(&path).map_or(0, |file| file.len());
            let _ = fs::remove_file(path);
            found.bytes += file + rest(&self.raw(cpu))?;
            let path = self.folder.join("per_cpu").join(cpu).join("stats");
            let stats = fs::read_to_string(&path).map_err(Error::io("cannot read stats"))?;
            let stat = |name: &str| {
                let is_it = |line: &&str| line.split(':').next() == Some(name);
                let line = stats.lines().find(is_it)?;
                line.split(':').nth(1)?.trim().parse::<u64>().ok()
            };
            let all = ["entries", "read events", "overrun", "dropped events"].map(stat);
            let [Some(entries), Some(read), Some(overrun), Some(dropped)] = all else {
                return Err(Error::output("ftrace", "stats has other lines than expected"));
            };
            found.events += entries + read;
            found.lost += overrun + dropped;
            found.overwritten += overrun;
        }
        Ok(found)
    }
}

/// What moves buffers to files, as long as this is.
struct Drains(Vec<Running>);

impl Drains {
    fn pids(&self) -> String {
        let pids: Vec<String> = self.0.iter().map(|drain| drain.pid().to_string()).collect();
        pids.join(",")
    }
}

impl Drop for Drains {
    fn drop(&mut self) {
        self.0.iter().for_each(Running::terminate);
        for drain in self.0.drain(..) {
            // By that signal, as it should. What it has not moved is read afterwards.
            let _ = drain.finish();
        }
    }
}

/// Reads what is left, without waiting for more; how many bytes it was.
fn rest(path: &Path) -> Result<u64> {
    const PAGE_BYTES: usize = 4096;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut file: File = options.open(path).map_err(Error::io("cannot open trace_pipe_raw"))?;
    let mut page = vec![0; PAGE_BYTES];
    let mut sum = 0;
    // At most what buffers hold.
    for _ in 0..(BUFFER_KIB << 10) / PAGE_BYTES as u64 + 1 {
        match file.read(&mut page) {
            Ok(0) => break,
            Ok(bytes) => sum += bytes as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(Error::io("cannot read trace_pipe_raw")(error)),
        }
    }
    Ok(sum)
}

impl Drop for Instance {
    fn drop(&mut self) {
        let begin = Instant::now();
        // While somebody has a file of it open, it stays.
        while fs::remove_dir(&self.folder).is_err_and(|error| error.kind() != ErrorKind::NotFound)
            && begin.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_the_schedulers_events_and_calls() {
        let folders = folders(KernelTracer::FtraceRaw, KernelEvents::Everything);
        assert!(folders.contains(&"sched".to_owned()));
        assert!(folders.contains(&"raw_syscalls".to_owned()));
        let one = super::folders(KernelTracer::FtraceRaw, KernelEvents::OneCall("getppid"));
        assert_eq!(one, ["syscalls/sys_enter_getppid", "syscalls/sys_exit_getppid"]);
    }
}
