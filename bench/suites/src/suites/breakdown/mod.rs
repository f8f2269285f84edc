//! The parts of one event's time, for Trackway and LTTng-UST, by the same method.
//!
//! ```text
//! observe    a program's loop, timed, sampled, stepped through
//! parts      the part of each instruction
//! ```
//!
//! Main invariant: the parts add up to the whole event. Each sample counts once, and code outside
//! ordinary events has a separate row.

mod observe;
mod parts;

use std::collections::BTreeMap;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::child;
use trackway_bench_engine::host::workspace::{Workspace, has};
use trackway_bench_engine::results::{Account, Unit, WHOLE_EVENT};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use super::programs::{Conditions, LinkedLibrary, Programs, Storage};
use super::shared_runs::SharedRuns;
use crate::tracers::name;
use observe::{LoopReport, PERIOD_NS, STEPPED_MORE};
use parts::{Part, PartCounts};

/// Name of the suite.
const SUITE_NAME: &str = "breakdown";
/// File of perf's samples, in the scratch folder.
const SAMPLES_FILE: &str = "parts-samples";
/// Events of a batch.
const BATCH_EVENTS: u64 = 10_000;
/// Batches of a timed loop.
const TIMED_BATCHES: u64 = 120;
/// Time for which a loop is sampled, in ns; and most batches of a sampled loop.
const SAMPLED_NS: f64 = 400e6;
const SAMPLED_NS_QUICK: f64 = 150e6;
const SAMPLED_BATCHES_MAX: f64 = 20_000.0;
/// Events before the events that are stepped through.
const WARM_UP_EVENTS: u64 = 20_000;

/// A tracer in one configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TracerVariant {
    tracer: &'static str,
    conditions: Conditions,
}

impl TracerVariant {
    const ALL: [Self; 3] = [
        Self::new(name::TRACKWAY, LinkedLibrary::Trackway, false),
        Self::new(name::TRACKWAY_CLAIM, LinkedLibrary::Trackway, true),
        Self::new(name::LTTNG, LinkedLibrary::Lttng, false),
    ];

    const fn new(tracer: &'static str, linked: LinkedLibrary, is_claim: bool) -> Self {
        Self { tracer, conditions: Conditions { linked, storage: Storage::Ring, is_claim } }
    }

    const fn program(self) -> &'static str {
        match self.conditions.linked {
            LinkedLibrary::Lttng => "parts-lttng",
            LinkedLibrary::Trackway | LinkedLibrary::Nothing => "parts-trackway",
        }
    }
}

/// The measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowKind {
    WholeEvent,
    Part(Part),
    /// The whole event, measured again by a separate run.
    Again,
}

/// The result of a run.
#[derive(Debug, Clone)]
struct RunResult {
    event_ns: f64,
    /// Share of each part in all samples.
    shares: BTreeMap<Part, f64>,
    samples: u64,
    account: Account,
}

/// The suite `breakdown`.
#[derive(Debug)]
pub(crate) struct Breakdown {
    programs: Programs,
    rows: Vec<(TracerVariant, RowKind)>,
    runs: SharedRuns<(&'static str, bool), RunResult>,
    /// Parts of each tracer's event.
    parts: Vec<(&'static str, PartCounts)>,
}

impl Breakdown {
    /// Makes the suite without results.
    pub(crate) fn new() -> Self {
        Self {
            programs: Programs::default(),
            rows: Vec::new(),
            runs: SharedRuns::new(),
            parts: Vec::new(),
        }
    }

    /// Runs a variant's program; returns its report, the recorder's report, and the account of the
    /// events.
    fn run(
        &self,
        workspace: &Workspace,
        variant: TracerVariant,
        words: &[&str],
    ) -> Result<(LoopReport, Account)> {
        let mut command = self.programs.prepare_command(workspace, variant.conditions, words)?;
        let finished = child::run(&mut command, variant.tracer)?;
        let looped = LoopReport::parse(&finished.stdout)?;
        let account = self.account(workspace, variant, looped.emitted)?;
        Ok((looped, account))
    }

    fn account(
        &self,
        workspace: &Workspace,
        variant: TracerVariant,
        emitted: u64,
    ) -> Result<Account> {
        let account = self.programs.finish_run(workspace, variant.conditions, emitted)?;
        account.ok_or_else(|| Error::output(variant.tracer, "it has recorded nothing"))
    }

    /// Times a variant's loop.
    fn time(&self, workspace: &Workspace, variant: TracerVariant) -> Result<RunResult> {
        let program = workspace.path(variant.program()).display().to_string();
        let (timed, batch) = (TIMED_BATCHES.to_string(), BATCH_EVENTS.to_string());
        let words = [program.as_str(), "loop", &timed, &batch];
        let (timed, account) = self.run(workspace, variant, &words)?;
        Ok(RunResult { event_ns: timed.event_ns, shares: BTreeMap::new(), samples: 0, account })
    }

    /// Times a variant's loop, and samples it.
    fn observe(
        &self,
        context: &SuiteContext<'_>,
        variant: TracerVariant,
        parts: &PartCounts,
    ) -> Result<RunResult> {
        let workspace = context.workspace;
        let program = workspace.path(variant.program()).display().to_string();
        let mut observed = self.time(workspace, variant)?;
        let sampled_ns = if context.settings.quick { SAMPLED_NS_QUICK } else { SAMPLED_NS };
        let batches = sampled_ns / (observed.event_ns * BATCH_EVENTS as f64);
        let batches =
            (batches.clamp(2.0 * TIMED_BATCHES as f64, SAMPLED_BATCHES_MAX) as u64).to_string();
        let file = workspace.path(SAMPLES_FILE);
        let (file_name, period) = (file.display().to_string(), PERIOD_NS.to_string());
        let batch = BATCH_EVENTS.to_string();
        let words = [program.as_str(), "loop", &batches, &batch];
        let words = observe::perf_record_command(&file_name, &period, &words);
        let (sampled, became) = self.run(workspace, variant, &words)?;
        observed.account.add(&became);
        let found = sampled.samples(&file)?;
        for (at, times) in &found {
            let mut of_one = BTreeMap::new();
            parts.share(at, &mut of_one);
            for (part, share) in of_one {
                *observed.shares.entry(part).or_default() += share * *times as f64;
            }
        }
        observed.samples = found.values().sum();
        observed.shares.values_mut().for_each(|share| *share /= observed.samples as f64);
        Ok(observed)
    }

    /// Finds the parts of an event by stepping through some events; `None` without debugging
    /// information.
    fn step(&self, workspace: &Workspace, variant: TracerVariant) -> Result<Option<PartCounts>> {
        let program = workspace.path(variant.program());
        let (before, more) = (WARM_UP_EVENTS.to_string(), STEPPED_MORE.to_string());
        let name = program.display().to_string();
        let words = [name.as_str(), "step", &before, &more];
        let mut command = self.programs.prepare_command(workspace, variant.conditions, &words)?;
        let mut event = observe::step_through_usual_event(&mut command, variant.tracer)?;
        let account = self.account(workspace, variant, WARM_UP_EVENTS + STEPPED_MORE)?;
        if !account.is_complete() {
            let message = format!("events do not add up: {}", account.words());
            return Err(Error::output(variant.tracer, message));
        }
        observe::name_functions(&mut event, |module| observe::module_file(module, &program))?;
        let parts_of_event = match variant.conditions.linked {
            LinkedLibrary::Lttng => parts::parts_of_lttng(&event),
            LinkedLibrary::Trackway | LinkedLibrary::Nothing
                if !parts::has_function_names(&event) =>
            {
                return Ok(None);
            }
            LinkedLibrary::Trackway | LinkedLibrary::Nothing => parts::parts_of_trackway(&event),
        };
        Ok(Some(PartCounts::of(&event, &parts_of_event)))
    }

    /// Prepares a variant; the entry has the reason if that is not possible.
    fn set_up(&mut self, context: &SuiteContext<'_>, variant: TracerVariant) -> Result<Entry> {
        context.progress.show_step(&format!("setting up {}", variant.tracer));
        if let Some(reason) = missing_requirement(context.workspace, variant) {
            return Ok(Entry { absent: Some(reason), ..Entry::default() });
        }
        let made = self
            .programs
            .set_up(context.workspace, variant.conditions.linked, variant.program())
            .and_then(|_| self.step(context.workspace, variant));
        match made {
            Ok(Some(parts)) => {
                self.parts.push((variant.tracer, parts));
                Ok(Entry::default())
            }
            Ok(None) => {
                let reason = "libtrackway.so has no debugging information: it was stripped";
                Ok(Entry { absent: Some(reason.to_owned()), ..Entry::default() })
            }
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => Ok(Entry { failed: Some(error.to_string()), ..Entry::default() }),
        }
    }
}

/// Returns the reason if a variant cannot be observed on this machine.
fn missing_requirement(workspace: &Workspace, variant: TracerVariant) -> Option<String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Some("instructions are told apart on x86-64 only".to_owned());
    }
    for program in ["perf", "addr2line"] {
        if !has(program) {
            return Some(format!("{program} is not installed"));
        }
    }
    let reason = Programs::absence(workspace, variant.conditions.linked);
    reason.or_else(|| sampling_obstacle(workspace))
}

/// Returns the reason if perf cannot sample a program on this machine.
fn sampling_obstacle(workspace: &Workspace) -> Option<String> {
    let (file, period) =
        (workspace.path(SAMPLES_FILE).display().to_string(), PERIOD_NS.to_string());
    let nothing = workspace.tools.nothing().map(|word| word.to_string_lossy());
    let words = observe::perf_record_command(&file, &period, &[&nothing[0], &nothing[1]]);
    let mut command = std::process::Command::new(words[0]);
    let tried = child::run(command.args(&words[1..]), "perf record");
    tried.err().map(|error| format!("perf cannot sample here ({error})"))
}

impl Suite for Breakdown {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "Where one event's time goes",
            repeats: "survey, Figure 10",
            unit: Unit::NsPerEvent,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 6.0 } else { 60.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        TracerVariant::ALL.map(|variant| variant.tracer).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        let is_wanted = |variant: &TracerVariant| {
            variant.tracer == name::TRACKWAY || context.settings.wants(variant.tracer)
        };
        for variant in TracerVariant::ALL.into_iter().filter(is_wanted) {
            let ready = self.set_up(context, variant)?;
            let whole = entries.len();
            let questions = [RowKind::WholeEvent].into_iter().chain(Part::ALL.map(RowKind::Part));
            for question in questions {
                let (case, baseline) = match question {
                    RowKind::Part(part) => (part.words(), Some(whole)),
                    RowKind::WholeEvent | RowKind::Again => (WHOLE_EVENT, (whole > 0).then_some(0)),
                };
                entries.push(Entry {
                    tracer: variant.tracer.to_owned(),
                    case: case.to_owned(),
                    records: true,
                    baseline,
                    command: format!("trackway bench {SUITE_NAME} --tracers {}", variant.tracer),
                    ..ready.clone()
                });
                self.rows.push((variant, question));
            }
        }
        if let Some(first) = entries.first().filter(|first| first.can_be_measured()).cloned() {
            let tracer = format!("{} again", first.tracer);
            entries.push(Entry { tracer, baseline: Some(0), is_control: true, ..first });
            self.rows.push((TracerVariant::ALL[0], RowKind::Again));
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (variant, question) = self.rows[row];
        let parts = self.parts.iter().find(|one| one.0 == variant.tracer).map(|one| one.1.clone());
        let parts =
            parts.ok_or_else(|| Error::output(variant.tracer, "its parts are not known"))?;
        let is_again = question == RowKind::Again;
        let mut runs = std::mem::replace(&mut self.runs, SharedRuns::new());
        let run = || {
            if is_again {
                self.time(context.workspace, variant)
            } else {
                self.observe(context, variant, &parts)
            }
        };
        let observed = runs.take_or_run((variant.tracer, is_again), row, run).cloned();
        self.runs = runs;
        let observed = observed?;
        let samples = ("samples", observed.samples as f64);
        let (figure, instructions) = match question {
            RowKind::WholeEvent | RowKind::Again => {
                let all = Part::ALL.iter().map(|part| parts.instructions(*part)).sum();
                (observed.event_ns, all)
            }
            RowKind::Part(part) => {
                let share = observed.shares.get(&part).copied().unwrap_or_default();
                (share * observed.event_ns, parts.instructions(part))
            }
        };
        let extra = vec![("instructions", f64::from(instructions)), samples];
        Ok(Sample { figure, account: Some(observed.account), extra, ..Sample::default() })
    }

    fn leave(&mut self) {
        *self = Self::new();
    }
}
