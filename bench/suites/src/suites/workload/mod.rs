//! The cost of tracing whole programs: communicating processes, a computation, a compiler, a web
//! server and databases under load. The tracer is off, records into flight recorders, or writes to
//! disk.
//!
//! [`programs`] contains the programs and their work.

mod programs;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::Workspace;
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use crate::tracers::command_tracer::{self, CommandOutcome, KnownEvents, LTTNG_LIBC, Ust};
use crate::tracers::kernel::{
    BUFFER_KIB, EventStorage, Job, KernelEvents, KernelTracer, KernelTracers, PROGRAM, TracedRun,
    Work,
};
use programs::Program;

/// Keys of a run's extra figures: the recorder's share of a CPU in percent, and events per second.
const RECORDER: &str = "recorder, % of a CPU";
const EVENTS: &str = "events/s, kept or not";

/// A tracer with its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TracerVariant {
    /// No tracer.
    Untraced,
    /// Kernel events.
    Kernel(KernelTracer, KernelEvents, EventStorage),
    /// The program's calls to the allocator, by the preload helper.
    Libc(EventStorage),
    /// The program's calls to the allocator, by LTTng's wrapper.
    LttngLibc,
}

/// Programs that a variant traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppliesTo {
    /// All programs.
    All,
    /// The programs of the slides: one with much scheduling, and one with much computing.
    Slides,
    /// The program with the largest differences between tracers.
    Hackbench,
    /// Programs that allocate a lot with the C library.
    Allocating,
}

impl AppliesTo {
    fn has(self, program: &str) -> bool {
        match self {
            Self::All => true,
            Self::Slides => matches!(program, "hackbench" | "stress-ng"),
            Self::Hackbench => program == "hackbench",
            Self::Allocating => matches!(program, "compiler" | "sqlite3"),
        }
    }
}

/// The variants: name, configuration, traced programs, and whether a quick run includes the
/// variant.
const VARIANTS: [(&str, TracerVariant, AppliesTo, bool); 17] = {
    use KernelEvents::{Everything, Sched};
    use KernelTracer::{Bpftrace, FtraceRaw, Perf, Trackway, TrackwayTracefs, TrackwayUser};
    const fn kernel_variant(
        tracer: KernelTracer,
        events: KernelEvents,
        keep: EventStorage,
    ) -> TracerVariant {
        TracerVariant::Kernel(tracer, events, keep)
    }
    [
        ("untraced", TracerVariant::Untraced, AppliesTo::All, true),
        (
            "trackway-sched-flight",
            kernel_variant(Trackway, Sched, EventStorage::Flight),
            AppliesTo::All,
            true,
        ),
        (
            "trackway-flight",
            kernel_variant(Trackway, Everything, EventStorage::Flight),
            AppliesTo::All,
            false,
        ),
        (
            "trackway",
            kernel_variant(Trackway, Everything, EventStorage::Disk),
            AppliesTo::All,
            true,
        ),
        ("ftrace", kernel_variant(FtraceRaw, Everything, EventStorage::Disk), AppliesTo::All, true),
        (
            "ftrace-flight",
            kernel_variant(FtraceRaw, Everything, EventStorage::Flight),
            AppliesTo::Slides,
            false,
        ),
        ("perf", kernel_variant(Perf, Everything, EventStorage::Disk), AppliesTo::Slides, false),
        (
            "bpftrace",
            kernel_variant(Bpftrace, Everything, EventStorage::Disk),
            AppliesTo::Hackbench,
            false,
        ),
        (
            "trackway-tracefs",
            kernel_variant(TrackwayTracefs, Everything, EventStorage::Disk),
            AppliesTo::Slides,
            false,
        ),
        (
            "trackway-sched",
            kernel_variant(Trackway, Sched, EventStorage::Disk),
            AppliesTo::Slides,
            false,
        ),
        (
            "ftrace-sched",
            kernel_variant(FtraceRaw, Sched, EventStorage::Disk),
            AppliesTo::Slides,
            false,
        ),
        ("perf-sched", kernel_variant(Perf, Sched, EventStorage::Disk), AppliesTo::Slides, false),
        (
            "trackway-libc-flight",
            TracerVariant::Libc(EventStorage::Flight),
            AppliesTo::Allocating,
            false,
        ),
        ("trackway-libc", TracerVariant::Libc(EventStorage::Disk), AppliesTo::Allocating, true),
        ("lttng-ust-libc", TracerVariant::LttngLibc, AppliesTo::Allocating, false),
        (
            "trackway-user-kernel-flight",
            kernel_variant(TrackwayUser, Everything, EventStorage::Flight),
            AppliesTo::Allocating,
            false,
        ),
        (
            "trackway-user-kernel",
            kernel_variant(TrackwayUser, Everything, EventStorage::Disk),
            AppliesTo::Allocating,
            false,
        ),
    ]
};
/// Programs of a quick run.
const QUICK: [&str; 4] = ["hackbench", "compiler", "apache2", "redis"];

/// A row: the program and its tracer.
#[derive(Debug, Clone, Copy)]
struct Row {
    program: usize,
    variant: TracerVariant,
}

/// The suite `workload`.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    kernel: Option<KernelTracers>,
    ust: Option<Ust>,
    programs: Vec<Program>,
    rows: Vec<Row>,
}

impl Workload {
    /// Returns the reason if a variant is not possible on this machine.
    fn absence(&self, workspace: &Workspace, variant: TracerVariant) -> Option<String> {
        match variant {
            TracerVariant::Untraced => None,
            TracerVariant::Kernel(tracer, _, _) => {
                self.kernel.as_ref().and_then(|all| all.absence(workspace, tracer))
            }
            TracerVariant::Libc(_) => {
                let missing = command_tracer::find_preload_helper(&workspace.tools).is_none();
                missing.then(|| command_tracer::NO_HELPER.to_owned())
            }
            TracerVariant::LttngLibc => Ust::absence_of_libc(workspace),
        }
    }

    /// Prepares a variant.
    fn set_up(&mut self, workspace: &Workspace, variant: TracerVariant) -> Result<Entry> {
        let absent = self.absence(workspace, variant);
        if absent.is_none() && variant == TracerVariant::LttngLibc {
            match Ust::start(workspace) {
                Ok(ust) => self.ust = Some(ust),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    return Ok(Entry { failed: Some(error.to_string()), ..Entry::default() });
                }
            }
        }
        Ok(Entry { absent, ..Entry::default() })
    }

    fn run(
        &self,
        context: &SuiteContext<'_>,
        program: &Program,
        variant: TracerVariant,
    ) -> Result<RunOutcome> {
        let workspace = context.workspace;
        let (before, behind) = program.words(workspace, PROGRAM);
        let with = |pids: &str| [&before, &[pids.to_owned()][..], &behind].concat();
        let buffer = BUFFER_KIB << 10;
        match variant {
            TracerVariant::Untraced => {
                self.run_kernel_tracer(context, KernelTracer::Untraced, &before, &behind, None)
            }
            TracerVariant::Kernel(tracer, events, keep) => {
                self.run_kernel_tracer(context, tracer, &before, &behind, Some((events, keep)))
            }
            TracerVariant::Libc(keep) => {
                let options: &[&str] = match keep {
                    EventStorage::Disk => &["--preload", "libc"],
                    EventStorage::Flight => &["--preload", "libc", "--flight-recorder"],
                };
                let known = KnownEvents::Marks(keep);
                command_tracer::record_with_trackway(workspace, options, buffer, &with("0"), known)
                    .map(RunOutcome::of)
            }
            TracerVariant::LttngLibc => {
                let ust = self.ust.as_ref();
                let ust = ust.ok_or_else(|| Error::output("lttng-sessiond", "is not running"))?;
                let words = with(&ust.processes());
                let session = ("lttng_ust_libc:*", Some(LTTNG_LIBC), buffer);
                let known = KnownEvents::Marks(EventStorage::Disk);
                ust.record(workspace, session, &words, known).map(RunOutcome::of)
            }
        }
    }

    fn run_kernel_tracer(
        &self,
        context: &SuiteContext<'_>,
        tracer: KernelTracer,
        before: &[String],
        behind: &[String],
        what: Option<(KernelEvents, EventStorage)>,
    ) -> Result<RunOutcome> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.ok_or_else(|| Error::output(tracer.name(), "it is not set up"))?;
        let (events, keep) = what.unwrap_or((KernelEvents::Sched, EventStorage::Disk));
        let work = Work::WholeCommand(before, behind);
        let job = Job { workspace: context.workspace, events, keep, call: "", work };
        let ran = kernel.run(tracer, &job)?;
        let account = ran.account_of_marks(tracer, events, keep)?;
        let events = ran.events();
        Ok(RunOutcome { stdout: ran.stdout, account, events })
    }
}

/// The result of a run.
struct RunOutcome {
    stdout: String,
    /// The account of the marks.
    account: Option<Account>,
    /// Number of events that the tracer reports.
    events: u64,
}

impl RunOutcome {
    fn of(whole: CommandOutcome) -> Self {
        let CommandOutcome { finished, account, events } = whole;
        Self { stdout: finished.stdout, account: Some(account), events }
    }

    fn sample(self, program: &Program) -> Result<Sample> {
        let ran = TracedRun { stdout: self.stdout, ..TracedRun::default() };
        let [ns, _, tracers_ns] = ran.numbers("load")?;
        let ns = ns.max(1);
        let figure = programs::parse_figure(program.figure_source, &ran.stdout, ns)?;
        let extra = self.account.iter().flat_map(|_| {
            let seconds = ns as f64 / 1e9;
            [
                (RECORDER, tracers_ns as f64 / ns as f64 * 100.0),
                (EVENTS, self.events as f64 / seconds),
            ]
        });
        let extra = extra.collect();
        Ok(Sample { figure, account: self.account, extra, ..Sample::default() })
    }
}

impl Suite for Workload {
    fn about(&self) -> About {
        About {
            name: "workload",
            title: "What whole programs lose by being traced",
            repeats: "2012 paper, Tables 2 to 5; the slides' table",
            unit: Unit::Ms,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 30.0 } else { 700.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        VARIANTS.map(|variant| variant.0).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        context.progress.show_step("workload: setting up");
        let (workspace, quick) = (context.workspace, context.settings.quick);
        self.kernel = Some(KernelTracers::set_up(workspace)?);
        self.programs = programs::make_programs(workspace, quick)?;
        if quick {
            self.programs.retain(|program| QUICK.contains(&program.name));
        }
        let mut variants = Vec::new();
        for (name, variant, applies_to, is_in_quick) in VARIANTS {
            let is_wanted = variant == TracerVariant::Untraced || context.settings.wants(name);
            if is_wanted && (is_in_quick || !quick) {
                context.progress.show_step(&format!("workload: setting up {name}"));
                variants.push((name, variant, applies_to, self.set_up(workspace, variant)?));
            }
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (program, it) in self.programs.iter().enumerate() {
            let untraced = entries.len();
            for (name, variant, _, ready) in variants.iter().filter(|one| one.2.has(it.name)) {
                entries.push(Entry {
                    tracer: (*name).to_owned(),
                    case: it.name.to_owned(),
                    absent: it.absent.clone().or_else(|| ready.absent.clone()),
                    unit: Some(it.unit),
                    records: *variant != TracerVariant::Untraced,
                    baseline: (*variant != TracerVariant::Untraced).then_some(untraced),
                    command: format!("trackway bench workload --tracers {name}"),
                    ..ready.clone()
                });
                self.rows.push(Row { program, variant: *variant });
            }
        }
        let first = entries.iter().position(Entry::can_be_measured);
        if let Some(first) =
            first.filter(|&first| self.rows[first].variant == TracerVariant::Untraced)
        {
            let tracer = format!("{} again", entries[first].tracer);
            let again = Entry { is_control: true, baseline: Some(first), ..entries[first].clone() };
            entries.push(Entry { tracer, ..again });
            self.rows.push(self.rows[first]);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let Row { program, variant } = self.rows[row];
        let program = &self.programs[program];
        self.run(context, program, variant)?.sample(program)
    }

    fn leave(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_of_its_own_and_ours_begin_with_trackway() {
        let names: std::collections::BTreeSet<&str> =
            VARIANTS.iter().map(|variant| variant.0).collect();
        assert_eq!(names.len(), VARIANTS.len());
        for (name, variant, _, _) in VARIANTS {
            let is_ours = match variant {
                TracerVariant::Libc(_) => true,
                TracerVariant::Kernel(tracer, _, _) => tracer.name().starts_with("trackway"),
                TracerVariant::Untraced | TracerVariant::LttngLibc => false,
            };
            assert_eq!(name.starts_with("trackway"), is_ours, "{name}");
        }
    }

    #[test]
    fn a_runs_events_and_its_recorders_time_are_told_each_second() {
        let program = programs::tests::make_plain_program();
        let account = Account { emitted: 8, recorded: 8, ..Account::default() };
        let stdout = "noise\nload 500000000 1 250000000\n".to_owned();
        let ended = RunOutcome { stdout, account: Some(account), events: 3000 };
        let sample = ended.sample(&program).expect("a sample");
        assert_eq!(sample.figure, 500.0);
        assert_eq!(sample.extra, [(RECORDER, 50.0), (EVENTS, 6000.0)]);
        let silent = RunOutcome { stdout: "nothing".to_owned(), account: None, events: 0 };
        assert!(silent.sample(&program).is_err());
    }
}
