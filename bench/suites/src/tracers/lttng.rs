//! LTTng-UST 2.13, set up as in its own benchmark: a snapshot session, whose rings are overwritten
//! and read only after the run, so that no consumer disturbs the measurement.

use std::cell::{Ref, RefCell};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use trackway_bench_engine::case::{BatchPlan, BufferState, Case, Context, Payload};
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::machine::Machine;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Flow, Starts, Tracer};

use super::baseline::{check_compiler, measure_program_starts};
use super::daemon::{Daemon, LttngHome};
use super::ust_session::{self, SESSION, SUB_BUFFERS, UstSession, ring_options};
use super::{FLOW_BYTES, PRODUCER_BYTES, PRODUCER_SUB_BUFFERS, RING_BYTES};
use super::{batch_arguments, flow, name};
use crate::trace_check::{self, EventSizeKind};

/// Name of the workload.
const PROGRAM: &str = "lttng";
/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "lttng-trace";

/// The daemon that LTTng's adapters share; it ends when the last of them is dropped.
pub(super) type SharedDaemon = Rc<RefCell<Option<Daemon>>>;

/// Makes a shared daemon that is not started yet.
pub(super) fn shared_daemon() -> SharedDaemon {
    Rc::default()
}

/// The measured variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// The daemon runs, without a session.
    Off,
    /// Tracepoints.
    Tracepoint,
    /// `lttng_ust_tracef`.
    Tracef,
}

/// The adapter.
pub(crate) struct Lttng {
    variant: Variant,
    daemon: SharedDaemon,
    mode: BufferState,
    /// Events of the latest run, by thread.
    emitted: Vec<u64>,
}

impl Lttng {
    fn new(variant: Variant, daemon: &SharedDaemon) -> Self {
        Self {
            variant,
            daemon: Rc::clone(daemon),
            mode: BufferState::Overwrite,
            emitted: Vec::new(),
        }
    }

    /// Makes the adapter with a daemon, but without a session.
    pub(super) fn without_session(daemon: &SharedDaemon) -> Self {
        Self::new(Variant::Off, daemon)
    }

    /// Makes the recording variant, with a daemon that no other program uses.
    pub(crate) fn with_own_daemon() -> Self {
        Self::with_tracepoints(&shared_daemon())
    }

    /// Makes the adapter that records tracepoints.
    pub(super) fn with_tracepoints(daemon: &SharedDaemon) -> Self {
        Self::new(Variant::Tracepoint, daemon)
    }

    /// Makes the adapter that records formatted text.
    pub(super) fn with_tracef(daemon: &SharedDaemon) -> Self {
        Self::new(Variant::Tracef, daemon)
    }

    fn is_on(&self) -> bool {
        self.variant != Variant::Off
    }

    fn daemon(&self) -> Result<Ref<'_, Daemon>> {
        Ref::filter_map(self.daemon.borrow(), Option::as_ref)
            .map_err(|_| Error::output("lttng-sessiond", "it is not running"))
    }

    /// Makes and starts a session that writes to a new folder, with buffers of this number of bytes
    /// and sub-buffers for each CPU.
    fn start_session(
        &self,
        workspace: &Workspace,
        mode: BufferState,
        (bytes, count): (u64, u64),
        case: &Case,
    ) -> Result<()> {
        workspace.clear(TRACE_FOLDER);
        let rule = if case.payload == Payload::Printf { "lttng_ust_tracef:*" } else { "lab:*" };
        let session = UstSession {
            name: SESSION,
            is_snapshot: mode == BufferState::Overwrite,
            channel: &ring_options(bytes, count),
            rules: &[rule],
            filter: None,
            contexts: if case.context == Context::Vtid { &["vtid"] } else { &[] },
        };
        let daemon = self.daemon()?;
        session.begin_again(&daemon, &workspace.path(TRACE_FOLDER))
    }

    /// Records at least this number of events to `folder`, numbered and with the thread's id,
    /// without loss: the program waits if it is too fast. Returns the number of events.
    pub(crate) fn record_all(
        &self,
        workspace: &Workspace,
        folder: &Path,
        events: u64,
    ) -> Result<u64> {
        const BATCH_EVENTS: u64 = 10_000;
        let threads = Machine::current().cpus.min(2) as u64;
        let batches = events.div_ceil(threads * BATCH_EVENTS);
        let daemon = self.daemon()?;
        let session = UstSession {
            name: SESSION,
            is_snapshot: false,
            channel: &["--num-subbuf=64", "--blocking-timeout=inf"].map(str::to_owned),
            rules: &["lab:*"],
            filter: None,
            contexts: &["vtid"],
        };
        session.begin_again(&daemon, folder)?;
        let mut command = self.workload(workspace)?;
        // LTTng also requires the program's permission to block.
        command.env("LTTNG_UST_ALLOW_BLOCKING", "1").args(["batches", "number"]);
        command.args([threads, batches, BATCH_EVENTS].map(|number| number.to_string()));
        child::run(&mut command, self.name())?;
        ust_session::end_session(&daemon, SESSION, false)?;
        Ok(threads * batches * BATCH_EVENTS)
    }

    fn workload(&self, workspace: &Workspace) -> Result<Command> {
        Ok(self.daemon()?.command(&workspace.path(PROGRAM)))
    }
}

impl Tracer for Lttng {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Off => name::LTTNG_OFF,
            Variant::Tracepoint => name::LTTNG,
            Variant::Tracef => name::TRACEF,
        }
    }

    fn availability(&self, workspace: &Workspace) -> Availability {
        let missing = check_packages(has, |path| Path::new(path).is_file());
        if missing != Availability::Ready {
            return missing;
        }
        // Checks that the bench's LTTng processes can be isolated from others, and still access the
        // bench's folder.
        let tried = LttngHome::new(workspace).and_then(|home| {
            let mut command = Command::new("sh");
            home.set_environment(
                command.args(["-c", "test -d \"$1\"", "sh"]).arg(workspace.path("")),
            );
            child::run(&mut command, "a mount namespace")
        });
        match tried {
            Ok(_) => Availability::Ready,
            Err(error) => Availability::Missing(format!(
                "its daemon cannot be kept apart from others here ({error})"
            )),
        }
    }

    fn supports(&self, case: &Case) -> bool {
        match self.variant {
            Variant::Off => case.context == Context::None && case.payload.is_in_table(),
            Variant::Tracepoint => case.payload.is_in_table(),
            Variant::Tracef => *case == Case::PRINTF,
        }
    }

    fn batch_events(&self) -> u64 {
        if self.is_on() { 10_000 } else { 400_000 }
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        let provider = workspace.path("lttng-provider.c").display().to_string();
        workspace.compile(PROGRAM, &[&provider, "-llttng-ust", "-ldl"])?;
        let mut daemon = self.daemon.borrow_mut();
        if daemon.is_none() {
            *daemon = Some(Daemon::start(workspace)?);
        }
        Ok(())
    }

    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(case.payload.work(), case, plan, self.batch_events());
        let output = self.emit(workspace, case, BufferState::Overwrite, &arguments)?;
        let batches = workload::parse_batches(&output)?;
        self.emitted = workload::count_events_by_thread(&batches);
        Ok(batches)
    }

    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>> {
        let trace = workspace.path(TRACE_FOLDER);
        let size =
            if self.variant == Variant::Tracef { EventSizeKind::Text } else { EventSizeKind::Same };
        match (self.variant, self.mode) {
            (Variant::Off, _) => Ok(None),
            (_, BufferState::Overwrite) => {
                trace_check::account_with_overwrites(&trace, &self.emitted, size).map(Some)
            }
            _ => trace_check::account_without_overwrites(&trace, &self.emitted).map(Some),
        }
    }

    fn records(&self) -> bool {
        self.is_on()
    }

    fn modes(&self) -> &'static [BufferState] {
        if self.variant == Variant::Tracepoint {
            &BufferState::ALL
        } else {
            &[BufferState::Overwrite]
        }
    }

    fn emit(
        &mut self,
        workspace: &Workspace,
        case: &Case,
        mode: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        self.mode = mode;
        if self.is_on() {
            self.start_session(workspace, mode, buffer_dimensions(mode), case)?;
        }
        let mut command = self.workload(workspace)?;
        let finished = child::run(command.args(arguments), self.name())?;
        if self.is_on() {
            let daemon = self.daemon()?;
            ust_session::end_session(&daemon, SESSION, mode == BufferState::Overwrite)?;
        }
        Ok(finished.stdout)
    }

    fn account(&mut self, workspace: &Workspace, emitted: &[u64]) -> Result<Option<Account>> {
        self.emitted = emitted.to_vec();
        self.read_back(workspace)
    }

    fn output(&self, workspace: &Workspace) -> Option<PathBuf> {
        self.is_on().then(|| workspace.path(TRACE_FOLDER))
    }

    fn streams(&self) -> bool {
        self.variant == Variant::Tracepoint
    }

    fn starts_programs(&self) -> bool {
        !self.is_on()
    }

    fn stream(
        &mut self,
        workspace: &Workspace,
        bytes: u64,
        milliseconds: u32,
    ) -> Result<Option<Flow>> {
        if !self.streams() {
            return Ok(None);
        }
        self.start_session(workspace, BufferState::Steady, (bytes, SUB_BUFFERS), &Case::SIMPLEST)?;
        let mut command = self.workload(workspace)?;
        let finished =
            child::run(command.args(flow::workload_arguments(milliseconds)), self.name())?;
        // The command waits until all events are written.
        self.daemon()?.run_lttng(&["stop", SESSION])?;
        let trace = workspace.path(TRACE_FOLDER);
        let account = |emitted: &[u64]| {
            let daemon = self.daemon()?;
            ust_session::end_session(&daemon, SESSION, false)?;
            trace_check::account_without_overwrites(&trace, emitted)
        };
        flow::compute_flow(&finished.stdout, &trace, account).map(Some)
    }

    fn starts(&mut self, workspace: &Workspace, count: u32) -> Result<Option<Starts>> {
        if self.is_on() {
            return Ok(None);
        }
        let daemon = self.daemon()?;
        measure_program_starts(workspace, PROGRAM, count, |command| daemon.set_environment(command))
            .map(Some)
    }

    fn tear_down(&mut self) {
        self.daemon.borrow_mut().take();
    }
}

/// Returns the size of the per-CPU buffers in a buffer state, in bytes, and their number of
/// sub-buffers.
const fn buffer_dimensions(mode: BufferState) -> (u64, u64) {
    match mode {
        BufferState::Overwrite => (RING_BYTES, SUB_BUFFERS),
        BufferState::Steady => (FLOW_BYTES, SUB_BUFFERS),
        BufferState::Producer => (PRODUCER_BYTES, PRODUCER_SUB_BUFFERS),
    }
}

/// Checks that LTTng's packages are installed.
fn check_packages(has: impl Fn(&str) -> bool, is_file: impl Fn(&str) -> bool) -> Availability {
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let includes = ["/usr/include", "/usr/local/include", multiarch.as_str()];
    let has_header =
        || includes.iter().any(|folder| is_file(&format!("{folder}/lttng/tracepoint.h")));
    if !has("lttng") {
        Availability::Missing("lttng is not installed".to_owned())
    } else if !has("lttng-sessiond") {
        Availability::Missing("lttng-sessiond is not installed".to_owned())
    } else if !has_header() {
        Availability::Missing("liblttng-ust-dev is not installed".to_owned())
    } else {
        check_compiler(has("cc"))
    }
}

/// Returns the memory of the shared-memory files that these processes have open, each file counted
/// once; `None` without the right to inspect the processes.
pub(crate) fn shared_bytes(pids: &[u32]) -> Option<u64> {
    /// Unit of `st_blocks`: stat(2).
    const BLOCK_BYTES: u64 = 512;
    let mut files: HashMap<(u64, u64), u64> = HashMap::new();
    for pid in pids {
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        for link in entries.filter_map(|entry| entry.ok()).map(|entry| entry.path()) {
            let target = std::fs::read_link(&link).unwrap_or_default();
            let is_shared = is_shared_memory(&target);
            if let Some(status) = std::fs::metadata(&link).ok().filter(|_| is_shared) {
                files.insert((status.dev(), status.ino()), status.blocks() * BLOCK_BYTES);
            }
        }
    }
    Some(files.values().sum())
}

fn is_shared_memory(target: &Path) -> bool {
    target.starts_with("/dev/shm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_reason(installed: &[&str], header: bool) -> String {
        match check_packages(|name| installed.contains(&name), |_| header) {
            Availability::Missing(reason) => reason,
            Availability::Ready => "ready".to_owned(),
        }
    }

    #[test]
    fn reasons_name_what_is_missing() {
        assert_eq!(missing_reason(&[], true), "lttng is not installed");
        assert_eq!(missing_reason(&["lttng"], true), "lttng-sessiond is not installed");
        let tools = ["lttng", "lttng-sessiond", "cc"];
        assert_eq!(missing_reason(&tools, false), "liblttng-ust-dev is not installed");
        assert_eq!(missing_reason(&tools, true), "ready");
        assert_eq!(missing_reason(&tools[..2], true), "no C compiler (cc) is installed");
    }

    #[test]
    fn shared_memory_is_told_by_its_path() {
        assert!(is_shared_memory(Path::new("/dev/shm/ust-shm-consumer-1 (deleted)")));
        assert!(!is_shared_memory(Path::new("socket:[1]")));
    }
}
