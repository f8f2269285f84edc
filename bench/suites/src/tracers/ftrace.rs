//! ftrace in a private instance: a uprobe event on a probe of <sys/sdt.h>, and the marker. The
//! instance's buffers are overwritten, and read only after the run.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_bench_engine::case::{BufferState, Case};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::tracefs::{Instance, Tracefs, Uprobe, read_pages};
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Tracer};

use super::baseline::check_compiler;
use super::probe::Probe;
use super::{PRODUCER_BYTES, RING_BYTES, name};
use crate::trace_check::numbers::{Numbers, number_after};

/// The program with the probe.
pub(super) const PROBE_PROGRAM: &str = "usdt";
/// The program that writes to the marker.
const MARKER_PROGRAM: &str = "marker";
/// File of the pages of ftrace's buffers, in the scratch folder.
const PAGES: &str = "ftrace.pages";
/// Name of the probe.
const PROBE: &str = "number";

/// The source of ftrace's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventSource {
    /// A breakpoint of the kernel on the probe.
    Uprobe,
    /// A write(2) to the marker file.
    Marker,
}

/// The adapter.
#[derive(Debug)]
pub(crate) struct Ftrace {
    source: EventSource,
    emitted: u64,
    /// Dropped first: an event cannot be removed while an instance has it enabled.
    instance: Option<Instance>,
    uprobe: Option<Uprobe>,
    tracefs: Option<Tracefs>,
}

impl Ftrace {
    const fn new(source: EventSource) -> Self {
        Self { source, emitted: 0, instance: None, uprobe: None, tracefs: None }
    }

    /// Makes the adapter of a uprobe event on a probe.
    pub(crate) const fn uprobe() -> Self {
        Self::new(EventSource::Uprobe)
    }

    /// Makes the adapter of the marker.
    pub(crate) const fn marker() -> Self {
        Self::new(EventSource::Marker)
    }

    fn instance(&self) -> Result<&Instance> {
        self.instance.as_ref().ok_or_else(|| Error::output(self.name(), "it is not set up"))
    }

    /// Enables or disables the probe's event; the marker is always enabled.
    fn switch(&self, is_on: bool) -> Result<()> {
        let Some(uprobe) = &self.uprobe else { return Ok(()) };
        self.instance()?.write(&uprobe.enable(), if is_on { "1" } else { "0" })
    }

    /// Records the workload's events.
    fn record(
        &self,
        workspace: &Workspace,
        mode: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        let bytes = if mode == BufferState::Overwrite { RING_BYTES } else { PRODUCER_BYTES };
        self.instance()?.write("buffer_size_kb", &(bytes >> 10).to_string())?;
        self.instance()?.clear()?;
        let mut command = match self.source {
            EventSource::Uprobe => Command::new(workspace.path(PROBE_PROGRAM)),
            EventSource::Marker => {
                let mut command = Command::new(workspace.path(MARKER_PROGRAM));
                command.env("LAB_MARKER", self.instance()?.path("trace_marker"));
                command
            }
        };
        self.instance()?.write("tracing_on", "1")?;
        self.switch(true)?;
        let finished = child::run(command.args(arguments), self.name());
        self.switch(false)?;
        self.instance()?.write("tracing_on", "0")?;
        Ok(finished?.stdout)
    }

    /// Computes the account of the events.
    fn read_account(&self) -> Result<Account> {
        let instance = self.instance()?;
        let stats = instance.stats()?;
        let mut numbers = Numbers::default();
        // The thread stays on one CPU, so that all events are in one buffer. The merged trace of
        // all CPUs takes far longer to read.
        for cpu in instance.cpus() {
            read_numbers(&cpu.join("trace"), &mut numbers)?;
        }
        if numbers.events() != stats.entries {
            let (there, said) = (numbers.events(), stats.entries);
            let message = format!("its buffers have {there} events, and it says {said}");
            return Err(Error::output(self.name(), message));
        }
        let absent = stats.dropped + stats.overrun;
        let account = numbers.account(self.name(), self.emitted, absent, 0)?;
        Ok(Account {
            lost: stats.dropped,
            overwritten: stats.overrun,
            record_bytes: stats.bytes,
            ..account
        })
    }

    /// Moves the buffers' pages to files, unchanged, like trace-cmd.
    fn save(&self, workspace: &Workspace) -> Result<()> {
        workspace.clear(PAGES);
        create_private_dir(&workspace.path(PAGES))?;
        for (cpu, folder) in self.instance()?.cpus().iter().enumerate() {
            save_pages(
                &folder.join("trace_pipe_raw"),
                &workspace.path(PAGES).join(cpu.to_string()),
            )?;
        }
        Ok(())
    }
}

impl Tracer for Ftrace {
    fn name(&self) -> &'static str {
        match self.source {
            EventSource::Uprobe => name::FTRACE_UPROBE,
            EventSource::Marker => name::FTRACE_MARKER,
        }
    }

    fn availability(&self, _place: &Workspace) -> Availability {
        match self.source {
            EventSource::Uprobe => check_uprobe_support(),
            EventSource::Marker => match Tracefs::find() {
                Ok(_) => check_compiler(has("cc")),
                Err(reason) => Availability::Missing(reason),
            },
        }
    }

    fn supports(&self, case: &Case) -> bool {
        *case == Case::SIMPLEST
    }

    fn batch_events(&self) -> u64 {
        2_000
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        let tracefs = Tracefs::find().map_err(|reason| Error::output(self.name(), reason))?;
        match self.source {
            EventSource::Uprobe => {
                self.uprobe = Some(create_uprobe(workspace, &tracefs, "ftrace")?)
            }
            EventSource::Marker => workspace.compile(MARKER_PROGRAM, &[]).map(|_| ())?,
        }
        self.instance = Some(Instance::new(&tracefs, self.name(), RING_BYTES >> 10)?);
        self.tracefs = Some(tracefs);
        Ok(())
    }

    fn remember(&mut self, emitted: &[u64]) {
        self.emitted = emitted.iter().sum();
    }

    fn read_back(&mut self, _place: &Workspace) -> Result<Option<Account>> {
        self.read_account().map(Some)
    }

    fn modes(&self) -> &'static [BufferState] {
        &[BufferState::Overwrite]
    }

    fn emit(
        &mut self,
        workspace: &Workspace,
        _case: &Case,
        mode: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        self.record(workspace, mode, arguments)
    }

    fn account(&mut self, workspace: &Workspace, emitted: &[u64]) -> Result<Option<Account>> {
        self.remember(emitted);
        let account = self.read_account()?;
        self.save(workspace)?;
        Ok(Some(account))
    }

    fn output(&self, workspace: &Workspace) -> Option<PathBuf> {
        Some(workspace.path(PAGES))
    }

    fn tear_down(&mut self) {
        self.instance = None;
        self.uprobe = None;
        self.tracefs = None;
    }
}

/// Adds the numbers of the events in a buffer, which is text: `… number: (0x55…) value=17`.
pub(super) fn read_numbers(path: &Path, numbers: &mut Numbers) -> Result<()> {
    let what = || format!("cannot read {}", path.display());
    let file = File::open(path).map_err(Error::io(what()))?;
    for line in BufReader::new(file).lines() {
        let line = line.map_err(Error::io(what()))?;
        if let Some(number) = number_after(&line, " value=").filter(|_| !line.starts_with('#')) {
            numbers.add(number);
        }
    }
    Ok(())
}

/// Moves the pages of a buffer to a file, without waiting for more pages.
fn save_pages(from: &Path, to: &Path) -> Result<()> {
    let mut pages = Vec::new();
    read_pages(from, PRODUCER_BYTES, |page| pages.extend(page))?;
    std::fs::write(to, pages).map_err(Error::io(format!("cannot write {}", to.display())))
}

/// Checks the requirements of uprobe events on probes.
pub(super) fn check_uprobe_support() -> Availability {
    match Tracefs::find() {
        Err(reason) => Availability::Missing(reason),
        Ok(tracefs) if !tracefs.has("uprobe_events") => {
            Availability::Missing("this kernel has no uprobe events".to_owned())
        }
        Ok(_) => check_probe_support(),
    }
}

/// Checks the requirements of programs with probes.
pub(super) fn check_probe_support() -> Availability {
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let includes = ["/usr/include", "/usr/local/include", multiarch.as_str()];
    if includes.iter().any(|folder| Path::new(folder).join("sys/sdt.h").is_file()) {
        check_compiler(has("cc"))
    } else {
        Availability::Missing("systemtap-sdt-dev is not installed".to_owned())
    }
}

/// Makes a uprobe event with this name on the workload's probe.
pub(super) fn create_uprobe(
    workspace: &Workspace,
    tracefs: &Tracefs,
    event: &str,
) -> Result<Uprobe> {
    create_uprobe_of(&workspace.compile(PROBE_PROGRAM, &[])?, tracefs, event)
}

/// Makes a uprobe event with this name on another program's probe.
pub(super) fn create_uprobe_of(program: &Path, tracefs: &Tracefs, event: &str) -> Result<Uprobe> {
    let probe = Probe::find(program, PROBE)?;
    Uprobe::new(tracefs, event, program, probe.offset, &probe.fetch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_was_silently_off_is_found_out() {
        let tracefs = match Tracefs::find() {
            Ok(tracefs) => tracefs,
            Err(reason) => return eprintln!("skipped, because {reason}"),
        };
        let instance = Instance::new(&tracefs, "off", 64).expect("an instance");
        let ftrace = Ftrace { emitted: 1000, instance: Some(instance), ..Ftrace::uprobe() };
        let error = ftrace.read_account().unwrap_err().to_string();
        let expected = "ftrace-uprobe: 1000 events are not there, and it says that 0 are lost";
        assert_eq!(error, expected);
    }

    #[test]
    fn lines_of_events_have_numbers_and_others_do_not() {
        let path = std::env::temp_dir().join(format!("trackway-ftrace-{}", std::process::id()));
        let text = "# tracer: nop\n# no value=3\n  usdt-1 [000] D 5.1: number: (0x1720) value=8\n\
                    CPU:0 [LOST 4 EVENTS]\n  marker-1 [000] . 5.2: tracing_mark_write: value=9\n";
        std::fs::write(&path, text).expect("a file");
        let mut numbers = Numbers::default();
        read_numbers(&path, &mut numbers).expect("two events");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!((numbers.events(), numbers.missing(10)), (2, 0));
    }
}
