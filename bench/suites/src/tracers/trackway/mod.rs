//! Trackway through its own command, as a user runs it: `trackway record -- WORKLOAD`.

mod parts;

use std::path::PathBuf;
use std::process::Command;

use trackway_bench_engine::case::{BatchPlan, BufferState, Case, Context, Payload};
use trackway_bench_engine::error::Result;
use trackway_bench_engine::host::cargo_workload;
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::host::workspace::{Workspace, create_private_dir, has};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::tracer::{Availability, Flow, Starts, Tracer};

use super::baseline::measure_program_starts;
use super::{FLOW_BYTES, PRODUCER_BYTES, PRODUCER_SUB_BUFFERS, RING_BYTES};
use super::{batch_arguments, flow, name};
use crate::workloads;

pub(crate) use parts::{
    account_of_streams, account_of_thread, account_of_trace, allocated_bytes, check_availability,
    link_flags, make_idle_window_dir, read_kernel_summary, read_summary, set_trace_output,
    set_window,
};

/// The workload in C.
const PROGRAM: &str = "trackway";
/// The workload with one event among many.
const MANY_PROGRAM: &str = "trackway-many";
/// The workload in Rust, within the same harness.
const RUST_PROGRAM: &str = "rust-events";
/// The workload in C++, within the same harness.
const CXX_PROGRAM: &str = "trackway-cxx";
/// Folder of traces, in the scratch folder.
const TRACE_FOLDER: &str = "trackway-trace";

/// The writer path of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// No events: the program has the library, but there is no session.
    Off,
    /// By restartable sequences.
    Sequence,
    /// By claims, the writer path without restartable sequences.
    Claim,
    /// By the 2012 paper's reserve and commit.
    Lockless,
}

impl Variant {
    /// Returns the name of the writer path on Trackway's command line.
    const fn reserve(self) -> &'static str {
        match self {
            Self::Off | Self::Sequence => "rseq",
            Self::Claim => "claim",
            Self::Lockless => "lockless",
        }
    }
}

/// The latest run.
#[derive(Debug)]
struct LatestRun {
    /// Number of events of each thread.
    emitted: Vec<u64>,
    payload: Payload,
}

impl LatestRun {
    fn account(&self, workspace: &Workspace) -> Result<Account> {
        let trace = workspace.path(TRACE_FOLDER);
        match self.emitted.as_slice() {
            &[emitted] if self.payload.is_numbered() => account_of_thread(&trace, emitted),
            emitted => account_of_trace(&trace, emitted.iter().sum()),
        }
    }
}

/// The adapter.
#[derive(Debug)]
pub(crate) struct Trackway {
    variant: Variant,
    /// Name of the workload's program.
    program: &'static str,
    /// True if the adapter is only measured with formatted text.
    is_printf: bool,
    latest: Option<LatestRun>,
}

impl Trackway {
    const fn new(variant: Variant, program: &'static str) -> Self {
        Self { variant, program, is_printf: false, latest: None }
    }

    /// Makes the adapter with the library, without a session.
    pub(crate) const fn without_session() -> Self {
        Self::new(Variant::Off, PROGRAM)
    }

    /// Makes the adapter of the default protection.
    pub(crate) const fn by_sequence() -> Self {
        Self::new(Variant::Sequence, PROGRAM)
    }

    /// Makes the adapter without restartable sequences.
    pub(crate) const fn by_claim() -> Self {
        Self::new(Variant::Claim, PROGRAM)
    }

    /// Makes the adapter with the 2012 paper's buffers.
    pub(crate) const fn by_lockless() -> Self {
        Self::new(Variant::Lockless, PROGRAM)
    }

    /// Makes the adapter of `trackway_printf`.
    pub(crate) const fn printf() -> Self {
        let (variant, program) = (Variant::Sequence, PROGRAM);
        Self { variant, program, is_printf: true, latest: None }
    }

    /// Makes the adapter for the only case of an event after more than thirty others.
    pub(crate) const fn among_many() -> Self {
        Self::new(Variant::Sequence, MANY_PROGRAM)
    }

    fn is_among_many(&self) -> bool {
        self.program == MANY_PROGRAM
    }

    /// Makes the adapter from Rust, without a session.
    pub(crate) const fn rust_without_session() -> Self {
        Self::new(Variant::Off, RUST_PROGRAM)
    }

    /// Makes the adapter from Rust, with the default writer path.
    pub(crate) const fn rust() -> Self {
        Self::new(Variant::Sequence, RUST_PROGRAM)
    }

    fn is_rust(&self) -> bool {
        self.program == RUST_PROGRAM
    }

    /// Makes the adapter from C++, without a session.
    pub(crate) const fn cxx_without_session() -> Self {
        Self::new(Variant::Off, CXX_PROGRAM)
    }

    /// Makes the adapter from C++, with the default writer path.
    pub(crate) const fn cxx() -> Self {
        Self::new(Variant::Sequence, CXX_PROGRAM)
    }

    fn is_cxx(&self) -> bool {
        self.program == CXX_PROGRAM
    }

    /// Stores the number of events of each thread of the latest run.
    fn set_emitted(&mut self, emitted: Vec<u64>) {
        if let Some(latest) = &mut self.latest {
            latest.emitted = emitted;
        }
    }

    /// Returns the folder of the adapter's window. Events that a window has registered stay there,
    /// and have ids before the program begins. So cases with many events use a new window each
    /// time, in which the events get ids in their own order.
    fn window_dir(&self, workspace: &Workspace) -> Result<PathBuf> {
        if !self.is_among_many() {
            return Ok(workspace.window_dir().to_owned());
        }
        let folder = workspace.window_dir().join("many");
        // A missing folder needs no removal.
        let _ = std::fs::remove_dir_all(&folder);
        create_private_dir(&folder)?;
        Ok(folder)
    }

    /// Makes the command of the workload, recorded to a new folder.
    fn record(&self, workspace: &Workspace, options: &[&str], bytes: u64) -> Result<Command> {
        workspace.clear(TRACE_FOLDER);
        let mut command = Command::new(&workspace.tools.trackway);
        command.arg("record").args(options).arg("--buffer-size").arg(bytes.to_string());
        command.args(["--reserve", self.variant.reserve()]);
        set_trace_output(&mut command, &workspace.path(TRACE_FOLDER));
        command.arg("--").arg(workspace.path(self.program));
        set_window(&mut command, &self.window_dir(workspace)?);
        Ok(command)
    }
}

impl Tracer for Trackway {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Off if self.is_rust() => name::RUST_OFF,
            Variant::Off if self.is_cxx() => name::CXX_OFF,
            Variant::Off => name::TRACKWAY_OFF,
            Variant::Sequence if self.is_rust() => name::RUST,
            Variant::Sequence if self.is_cxx() => name::CXX,
            Variant::Sequence if self.is_printf => name::TRACKWAY_PRINTF,
            Variant::Sequence => name::TRACKWAY,
            Variant::Claim => name::TRACKWAY_CLAIM,
            Variant::Lockless => name::TRACKWAY_LOCKLESS,
        }
    }

    fn availability(&self, workspace: &Workspace) -> Availability {
        match check_availability(&workspace.tools, has("cc")) {
            Availability::Ready if self.is_rust() => {
                cargo_workload::check_availability(&workspace.tools)
            }
            Availability::Ready if self.is_cxx() && !has("c++") => {
                Availability::Missing("no C++ compiler (c++) is installed".to_owned())
            }
            found => found,
        }
    }

    fn supports(&self, case: &Case) -> bool {
        if self.is_printf {
            return *case == Case::PRINTF;
        }
        if self.is_among_many() {
            return *case == Case::SIMPLEST;
        }
        match self.variant {
            // Rust has no formatted events: the result of `format!` is an ordinary value.
            Variant::Off if self.is_rust() => {
                case.context == Context::None && case.payload.is_in_table()
            }
            Variant::Off => case.context == Context::None && case.payload != Payload::Printf,
            Variant::Sequence if self.is_rust() => case.payload.is_in_table(),
            // The additional work of the C++ header depends only on arguments, not on threads and
            // contexts.
            Variant::Sequence if self.is_cxx() => {
                case.threads == 1
                    && case.context == Context::None
                    && case.payload != Payload::Printf
            }
            Variant::Sequence => case.payload != Payload::Printf,
            Variant::Claim | Variant::Lockless => case.payload.is_in_table(),
        }
    }

    fn batch_events(&self) -> u64 {
        if self.variant == Variant::Off { 400_000 } else { 10_000 }
    }

    fn set_up(&mut self, workspace: &Workspace) -> Result<()> {
        let mut flags = link_flags(workspace)?;
        if self.is_rust() {
            let library = workloads::EVENTS.build(workspace, "")?;
            flags.extend([library.display().to_string(), "-ldl".to_owned(), "-lm".to_owned()]);
        }
        if self.is_cxx() {
            let include =
                workspace.tools.include.as_ref().map(|path| format!("-I{}", path.display()));
            let object = workspace.compile_cxx(self.program, &include.unwrap_or_default())?;
            flags.push(object.display().to_string());
            // The C++ library is linked statically, so that its loading does not count as the
            // program's start.
            flags.extend(["-Wl,-Bstatic", "-lstdc++", "-Wl,-Bdynamic"].map(str::to_owned));
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        workspace.compile(self.program, &flags).map(|_| ())
    }

    fn run(&mut self, workspace: &Workspace, case: &Case, plan: &BatchPlan) -> Result<Vec<Batch>> {
        let arguments = batch_arguments(case.payload.work(), case, plan, self.batch_events());
        let output = self.emit(workspace, case, BufferState::Overwrite, &arguments)?;
        let batches = workload::parse_batches(&output)?;
        self.set_emitted(workload::count_events_by_thread(&batches));
        Ok(batches)
    }

    fn read_back(&mut self, workspace: &Workspace) -> Result<Option<Account>> {
        match &self.latest {
            Some(latest) if self.variant != Variant::Off => latest.account(workspace).map(Some),
            _ => Ok(None),
        }
    }

    fn records(&self) -> bool {
        self.variant != Variant::Off
    }

    fn modes(&self) -> &'static [BufferState] {
        let is_plain = self.program == PROGRAM && !self.is_printf && self.variant != Variant::Off;
        if is_plain { &BufferState::ALL } else { &[BufferState::Overwrite] }
    }

    fn emit(
        &mut self,
        workspace: &Workspace,
        case: &Case,
        mode: BufferState,
        arguments: &[String],
    ) -> Result<String> {
        let context = ["--context", case.context.name()];
        let sub_buffers = PRODUCER_SUB_BUFFERS.to_string();
        let (options, bytes) = match mode {
            BufferState::Overwrite => (vec!["--flight-recorder"], RING_BYTES),
            BufferState::Steady => (Vec::new(), FLOW_BYTES),
            BufferState::Producer => (vec!["--sub-buffers", &sub_buffers], PRODUCER_BYTES),
        };
        let mut command = if self.variant == Variant::Off {
            let mut command = Command::new(workspace.path(self.program));
            set_window(&mut command, &make_idle_window_dir(workspace)?);
            command
        } else {
            self.record(workspace, &[&context[..], &options].concat(), bytes)?
        };
        let finished = child::run(command.args(arguments), self.name())?;
        self.latest = Some(LatestRun { emitted: Vec::new(), payload: case.payload });
        Ok(finished.stdout)
    }

    fn account(&mut self, workspace: &Workspace, emitted: &[u64]) -> Result<Option<Account>> {
        self.set_emitted(emitted.to_vec());
        self.read_back(workspace)
    }

    fn output(&self, workspace: &Workspace) -> Option<PathBuf> {
        (self.variant != Variant::Off).then(|| workspace.path(TRACE_FOLDER))
    }

    fn streams(&self) -> bool {
        self.variant != Variant::Off && self.program == PROGRAM && !self.is_printf
    }

    fn starts_programs(&self) -> bool {
        self.variant == Variant::Off
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
        let mut command = self.record(workspace, &["--context", "none"], bytes)?;
        let finished =
            child::run(command.args(flow::workload_arguments(milliseconds)), self.name())?;
        let trace = workspace.path(TRACE_FOLDER);
        let account = |emitted: &[u64]| account_of_trace(&trace, emitted.iter().sum::<u64>());
        flow::compute_flow(&finished.stdout, &trace, account).map(Some)
    }

    fn starts(&mut self, workspace: &Workspace, count: u32) -> Result<Option<Starts>> {
        if !self.starts_programs() {
            return Ok(None);
        }
        let window_dir = make_idle_window_dir(workspace)?;
        measure_program_starts(workspace, self.program, count, |command| {
            set_window(command, &window_dir)
        })
        .map(Some)
    }

    fn tear_down(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::SOURCES;

    #[test]
    fn every_way_but_off_records_everything() {
        assert!(Trackway::printf().supports(&Case::PRINTF));
        assert!(!Trackway::printf().supports(&Case::SIMPLEST));
        assert!(!Trackway::by_sequence().supports(&Case::PRINTF));
        assert!(!Trackway::without_session().supports(&Case::PRINTF));
        assert!(!Trackway::rust().supports(&Case::PRINTF));
        assert!(Trackway::without_session().supports(&Case::SIMPLEST));
        for case in [Case::SIMPLEST, Case::VIEWS, Case::SCOPE] {
            assert!(Trackway::cxx().supports(&case) && Trackway::by_sequence().supports(&case));
        }
        assert!(!Trackway::cxx().supports(&Case::PRINTF));
    }

    #[test]
    fn programs_are_asked_for_what_they_can_do() {
        let all = [
            Trackway::without_session(),
            Trackway::cxx_without_session(),
            Trackway::rust_without_session(),
            Trackway::by_sequence(),
            Trackway::by_claim(),
            Trackway::by_lockless(),
            Trackway::printf(),
            Trackway::cxx(),
            Trackway::rust(),
        ];
        for tracer in all {
            let name = format!("{}.c", tracer.program);
            let source = SOURCES.iter().find(|source| source.name == name).expect("a source");
            for case in Case::table_columns(2).into_iter().chain(Case::OUTSIDE_TABLE) {
                let can = source.text.contains(&format!("{{\"{}\",", case.payload.work()));
                assert!(can || !tracer.supports(&case), "{}: {}", tracer.name(), case.words());
            }
        }
    }
}
