//! The cost of tracing whole programs: processes that communicate, computing, a compiler, a web
//! server and databases under load. The tracer is off, records into flight recorders, or writes to
//! disk.
//!
//! Which programs there are, and what they do, is in [`programs`].

mod programs;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workspace::Place;
use trackway_bench_engine::results::{Account, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use crate::tracers::command_tracer::{self, CommandTracer, Known, LTTNG_LIBC, Ust};
use crate::tracers::kernel::{
    BUFFER_KIB, Job, Keep, KernelEvents, KernelTracer, KernelTracers, PROGRAM, Ran, Work,
};
use programs::Program;

/// Keys of a run's extra figures: the recorder's share of a CPU in percent, and events per second.
const RECORDER: &str = "recorder, % of a CPU";
const EVENTS: &str = "events/s, kept or not";

/// A way to trace the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// No tracer.
    Untraced,
    /// The kernel's events.
    Kernel(KernelTracer, KernelEvents, Keep),
    /// The program's calls of the allocator, by the preload helper.
    Libc(Keep),
    /// The same by LTTng's.
    LttngLibc,
}

/// Programs for which a way means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// All.
    All,
    /// The slides': much scheduling, and much computing.
    Slides,
    /// One, where tracers are told apart best.
    Hackbench,
    /// Programs that allocate a lot with the C library.
    Allocating,
}

impl For {
    fn has(self, program: &str) -> bool {
        match self {
            Self::All => true,
            Self::Slides => matches!(program, "hackbench" | "stress-ng"),
            Self::Hackbench => program == "hackbench",
            Self::Allocating => matches!(program, "compiler" | "sqlite3"),
        }
    }
}

/// The ways, their names, the programs that they are for, and whether a quick run has them.
const WAYS: [(&str, Way, For, bool); 17] = {
    use KernelEvents::{Everything, Sched};
    use KernelTracer::{Bpftrace, FtraceRaw, Perf, Trackway, TrackwayTracefs, TrackwayUser};
    const fn kernel(tracer: KernelTracer, events: KernelEvents, keep: Keep) -> Way {
        Way::Kernel(tracer, events, keep)
    }
    [
        ("untraced", Way::Untraced, For::All, true),
        ("trackway-sched-flight", kernel(Trackway, Sched, Keep::Flight), For::All, true),
        ("trackway-flight", kernel(Trackway, Everything, Keep::Flight), For::All, false),
        ("trackway", kernel(Trackway, Everything, Keep::Disk), For::All, true),
        ("ftrace", kernel(FtraceRaw, Everything, Keep::Disk), For::All, true),
        ("ftrace-flight", kernel(FtraceRaw, Everything, Keep::Flight), For::Slides, false),
        ("perf", kernel(Perf, Everything, Keep::Disk), For::Slides, false),
        ("bpftrace", kernel(Bpftrace, Everything, Keep::Disk), For::Hackbench, false),
        ("trackway-tracefs", kernel(TrackwayTracefs, Everything, Keep::Disk), For::Slides, false),
        ("trackway-sched", kernel(Trackway, Sched, Keep::Disk), For::Slides, false),
        ("ftrace-sched", kernel(FtraceRaw, Sched, Keep::Disk), For::Slides, false),
        ("perf-sched", kernel(Perf, Sched, Keep::Disk), For::Slides, false),
        ("trackway-libc-flight", Way::Libc(Keep::Flight), For::Allocating, false),
        ("trackway-libc", Way::Libc(Keep::Disk), For::Allocating, true),
        ("lttng-ust-libc", Way::LttngLibc, For::Allocating, false),
        (
            "trackway-user-kernel-flight",
            kernel(TrackwayUser, Everything, Keep::Flight),
            For::Allocating,
            false,
        ),
        (
            "trackway-user-kernel",
            kernel(TrackwayUser, Everything, Keep::Disk),
            For::Allocating,
            false,
        ),
    ]
};
/// Programs of a quick run.
const QUICK: [&str; 4] = ["hackbench", "compiler", "apache2", "redis"];

/// A row: which program, in which way.
#[derive(Debug, Clone, Copy)]
struct Row {
    program: usize,
    way: Way,
}

/// The suite.
#[derive(Debug, Default)]
pub(crate) struct Workload {
    kernel: Option<KernelTracers>,
    ust: Option<Ust>,
    programs: Vec<Program>,
    rows: Vec<Row>,
}

impl Workload {
    /// Why a way cannot be gone here, if it cannot.
    fn absence(&self, place: &Place, way: Way) -> Option<String> {
        match way {
            Way::Untraced => None,
            Way::Kernel(tracer, _, _) => {
                self.kernel.as_ref().and_then(|all| all.absence(place, tracer))
            }
            Way::Libc(_) => {
                let missing = command_tracer::helper(&place.tools).is_none();
                missing.then(|| command_tracer::NO_HELPER.to_owned())
            }
            Way::LttngLibc => Ust::absence_of_libc(place),
        }
    }

    /// Makes a way ready.
    fn set_up(&mut self, place: &Place, way: Way) -> Result<Entry> {
        let absent = self.absence(place, way);
        if absent.is_none() && way == Way::LttngLibc {
            match Ust::start(place) {
                Ok(ust) => self.ust = Some(ust),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    return Ok(Entry { failed: Some(error.to_string()), ..Entry::default() });
                }
            }
        }
        Ok(Entry { absent, ..Entry::default() })
    }

    fn run(&self, context: &SuiteContext<'_>, program: &Program, way: Way) -> Result<Ended> {
        let place = context.place;
        let (before, behind) = program.words(place, PROGRAM);
        let with = |pids: &str| [&before, &[pids.to_owned()][..], &behind].concat();
        let buffer = BUFFER_KIB << 10;
        match way {
            Way::Untraced => self.kernel(context, KernelTracer::Untraced, &before, &behind, None),
            Way::Kernel(tracer, events, keep) => {
                self.kernel(context, tracer, &before, &behind, Some((events, keep)))
            }
            Way::Libc(keep) => {
                let options: &[&str] = match keep {
                    Keep::Disk => &["--preload", "libc"],
                    Keep::Flight => &["--preload", "libc", "--flight-recorder"],
                };
                let known = Known::Marks(keep);
                command_tracer::trackway(place, options, buffer, &with("0"), known).map(Ended::of)
            }
            Way::LttngLibc => {
                let ust = self.ust.as_ref();
                let ust = ust.ok_or_else(|| Error::output("lttng-sessiond", "is not running"))?;
                let words = with(&ust.processes());
                let session = ("lttng_ust_libc:*", Some(LTTNG_LIBC), buffer);
                let known = Known::Marks(Keep::Disk);
                ust.record(place, session, &words, known).map(Ended::of)
            }
        }
    }

    fn kernel(
        &self,
        context: &SuiteContext<'_>,
        tracer: KernelTracer,
        before: &[String],
        behind: &[String],
        what: Option<(KernelEvents, Keep)>,
    ) -> Result<Ended> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.ok_or_else(|| Error::output(tracer.name(), "it is not set up"))?;
        let (events, keep) = what.unwrap_or((KernelEvents::Sched, Keep::Disk));
        let work = Work::Whole(before, behind);
        let job = Job { place: context.place, events, keep, call: "", work };
        let ran = kernel.run(tracer, &job)?;
        let account = ran.account_of_marks(tracer, events, keep)?;
        let events = ran.events();
        Ok(Ended { stdout: ran.stdout, account, events })
    }
}

/// The result of a run.
struct Ended {
    stdout: String,
    /// The account of the marks.
    account: Option<Account>,
    /// Events that there were by what the tracer says.
    events: u64,
}

impl Ended {
    fn of(whole: CommandTracer) -> Self {
        let CommandTracer { finished, account, events } = whole;
        Self { stdout: finished.stdout, account: Some(account), events }
    }

    fn sample(self, program: &Program) -> Result<Sample> {
        let ran = Ran { stdout: self.stdout, ..Ran::default() };
        let [ns, _, tracers_ns] = ran.numbers("load")?;
        let ns = ns.max(1);
        let figure = programs::figure(program.says, &ran.stdout, ns)?;
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
        WAYS.map(|way| way.0).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        context.progress.say("workload: setting up");
        let (place, quick) = (context.place, context.settings.quick);
        self.kernel = Some(KernelTracers::set_up(place)?);
        self.programs = programs::all(place, quick)?;
        if quick {
            self.programs.retain(|program| QUICK.contains(&program.name));
        }
        let mut ways = Vec::new();
        for (name, way, for_whom, is_in_quick) in WAYS {
            let is_wanted = way == Way::Untraced || context.settings.wants(name);
            if is_wanted && (is_in_quick || !quick) {
                context.progress.say(&format!("workload: setting up {name}"));
                ways.push((name, way, for_whom, self.set_up(place, way)?));
            }
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (program, it) in self.programs.iter().enumerate() {
            let untraced = entries.len();
            for (name, way, _, ready) in ways.iter().filter(|one| one.2.has(it.name)) {
                entries.push(Entry {
                    tracer: (*name).to_owned(),
                    case: it.name.to_owned(),
                    absent: it.absent.clone().or_else(|| ready.absent.clone()),
                    unit: Some(it.unit),
                    records: *way != Way::Untraced,
                    beside: (*way != Way::Untraced).then_some(untraced),
                    command: format!("trackway bench workload --tracers {name}"),
                    ..ready.clone()
                });
                self.rows.push(Row { program, way: *way });
            }
        }
        let first = entries.iter().position(Entry::can_be_measured);
        if let Some(first) = first.filter(|&first| self.rows[first].way == Way::Untraced) {
            let tracer = format!("{} again", entries[first].tracer);
            let again = Entry { is_control: true, beside: Some(first), ..entries[first].clone() };
            entries.push(Entry { tracer, ..again });
            self.rows.push(self.rows[first]);
        }
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let Row { program, way } = self.rows[row];
        let program = &self.programs[program];
        self.run(context, program, way)?.sample(program)
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
        let names: std::collections::BTreeSet<&str> = WAYS.iter().map(|way| way.0).collect();
        assert_eq!(names.len(), WAYS.len());
        for (name, way, _, _) in WAYS {
            let is_ours = match way {
                Way::Libc(_) => true,
                Way::Kernel(tracer, _, _) => tracer.name().starts_with("trackway"),
                Way::Untraced | Way::LttngLibc => false,
            };
            assert_eq!(name.starts_with("trackway"), is_ours, "{name}");
        }
    }

    #[test]
    fn a_runs_events_and_its_recorders_time_are_told_each_second() {
        let program = programs::tests::plain();
        let account = Account { emitted: 8, recorded: 8, ..Account::default() };
        let stdout = "noise\nload 500000000 1 250000000\n".to_owned();
        let ended = Ended { stdout, account: Some(account), events: 3000 };
        let sample = ended.sample(&program).expect("a sample");
        assert_eq!(sample.figure, 500.0);
        assert_eq!(sample.extra, [(RECORDER, 50.0), (EVENTS, 6000.0)]);
        let silent = Ended { stdout: "nothing".to_owned(), account: None, events: 0 };
        assert!(silent.sample(&program).is_err());
    }
}
