//! What tracing the kernel costs: system calls one after another, whole programs, and recorders at
//! work; ours beside ftrace, perf, bpftrace and strace.
//!
//! ```text
//! tracer    the interface; ours, ftrace, peers are the adapters
//! count     what is in our traces, and what LTTng's layout would take for it
//! rounds    tracers take turns, in random order, within each round
//! results   what was measured, as JSON; report shows it to people
//! ```
//!
//! Main invariant: a tracer's figure counts only if its own output shows the events of that run, or
//! says that it has lost them. Repeats Table V and Figure 9 of the survey (Gebai and Dagenais,
//! 2018), and the slides' table (Bruno, 2020).
//!
//! Whatever is started ends with us: workloads die with who runs them, tracers end with their
//! workloads, what has a name has a [`crate::guardian`].

mod count;
mod ftrace;
mod ours;
mod peers;
mod report;
mod results;
mod rounds;
mod tracer;

pub use report::print as print_kernel;
pub use results::{
    CallCost, Drain, KernelAccount, KernelResults, LoadCost, Participant, Status, Traced,
};
pub use tracer::{KernelEvents, KernelTracer};

use crate::error::{Error, Result};
use crate::guardian::Guardian;
use crate::machine::Machine;
use crate::place::{Kit, Place, has};
use crate::progress::Progress;
use crate::results::Note;
use crate::signals;
use ftrace::Tracefs;
use results::FORMAT;
use tracer::{Job, PROGRAM, Ran};

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelOptions {
    /// One minute instead of ten: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of ten.
    pub rounds: Option<u32>,
    /// Only tracers whose name contains this, in whatever case; the untraced always.
    pub only: Option<String>,
}

/// Rounds, if nothing else is asked for: enough for an interval of confidence.
const ROUNDS: u32 = 10;
/// Longest that one run of a workload has, in seconds.
const LIMIT_S: u64 = 120;
/// Load average for each CPU from which on the machine is said to be busy.
const BUSY_LOAD: f64 = 0.25;

impl KernelOptions {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    fn wants(&self, tracer: KernelTracer) -> bool {
        let pattern = self.only.as_deref().unwrap_or_default().to_lowercase();
        tracer.is_untraced() || tracer.name().to_lowercase().contains(&pattern)
    }
}

/// What is measured with, and what is said of it.
struct Bench<'place> {
    place: &'place Place,
    progress: Progress,
    tracefs: Option<Tracefs>,
    tracers: Vec<Participant>,
    notes: Vec<Note>,
}

/// Measures what tracing the kernel costs on this machine.
///
/// Tracers that cannot be had are absent, with their reason; those that fail are noted and left out
/// from then on. Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that was
/// made is removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run_kernel(options: &KernelOptions) -> std::result::Result<KernelResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let machine = Machine::here();
    let place = Place::new(Kit::of(executable))?;
    let _guardian = Guardian::of_folders([&place.path(""), place.window_dir()])?;
    let mut bench = Bench::set_up(&place, options)?;
    bench.note_busy(&machine);
    let (calls, accounts) = bench.calls(options)?;
    let loads = bench.loads(options)?;
    let drains = bench.drains(options)?;
    let Bench { tracers, notes, .. } = bench;
    let mut results = KernelResults {
        format: FORMAT,
        machine,
        rounds: options.rounds(),
        tracers,
        calls,
        accounts,
        loads,
        drains,
        bars: Vec::new(),
        notes,
    };
    results.bars = results.all_bars();
    Ok(results)
}

impl<'place> Bench<'place> {
    fn set_up(place: &'place Place, options: &KernelOptions) -> Result<Self> {
        let progress = Progress::new();
        progress.say("setting up");
        place.compile(PROGRAM, &[])?;
        let (tracefs, no_tracefs) = match Tracefs::find() {
            Ok(tracefs) => (Some(tracefs), String::new()),
            Err(reason) => (None, reason),
        };
        let mut bench = Self { place, progress, tracefs, tracers: Vec::new(), notes: Vec::new() };
        for tracer in KernelTracer::ALL.into_iter().filter(|tracer| options.wants(*tracer)) {
            let reason = bench.absence(tracer, &no_tracefs);
            if let Some(reason) = &reason {
                let text = format!("absent, because {reason}");
                let about = tracer.name().to_owned();
                bench.notes.push(Note { about, text, is_failure: false });
            }
            let status = if reason.is_some() { Status::Absent } else { Status::Measured };
            bench.tracers.push(Participant { tracer, status, reason });
        }
        Ok(bench)
    }

    /// Why a tracer cannot be had, if it cannot.
    fn absence(&self, tracer: KernelTracer, no_tracefs: &str) -> Option<String> {
        if tracer.is_untraced() {
            return None;
        }
        if tracer != KernelTracer::Strace && !is_root() {
            return Some("only root traces the kernel".to_owned());
        }
        match tracer {
            KernelTracer::Trackway | KernelTracer::TrackwayTree | KernelTracer::TrackwayTracefs => {
                ours::availability(self.place, tracer).err()
            }
            KernelTracer::FtraceRaw | KernelTracer::FtraceSyscalls => {
                self.tracefs.is_none().then(|| no_tracefs.to_owned())
            }
            _ => {
                let program = peers::program(tracer).filter(|program| !has(program))?;
                Some(format!("{program} is not installed"))
            }
        }
    }

    /// Figures of a machine that does other things are no figures; that is said, not forbidden.
    fn note_busy(&mut self, machine: &Machine) {
        let load: f64 = machine.load.parse().unwrap_or(0.0);
        if load > BUSY_LOAD * machine.cpus as f64 {
            let text = format!(
                "a load of {load} on {} CPUs when this began: what others did is in the figures",
                machine.cpus
            );
            let about = "the machine is busy".to_owned();
            self.notes.push(Note { about, text, is_failure: false });
        }
    }

    /// Tracers that take part, of these.
    fn here(&self, tracers: &[KernelTracer]) -> Vec<KernelTracer> {
        let is_here = |tracer: &KernelTracer| {
            let mut found = self.tracers.iter();
            found.any(|one| one.tracer == *tracer && one.status == Status::Measured)
        };
        tracers.iter().copied().filter(is_here).collect()
    }

    /// Runs a job under a tracer; what fails is noted, and the tracer takes no further part.
    fn attempt(&mut self, tracer: KernelTracer, job: &Job<'_>, call: &str) -> Result<Option<Ran>> {
        let done = self.traced(tracer, job, call);
        match done {
            Ok(ran) => Ok(Some(ran)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => {
                self.fail(tracer, &error);
                Ok(None)
            }
        }
    }

    /// A tracer takes no further part.
    fn fail(&mut self, tracer: KernelTracer, error: &Error) {
        self.notes.push(Note::failed(tracer.name(), error));
        let mut found = self.tracers.iter_mut();
        if let Some(one) = found.find(|one| one.tracer == tracer) {
            one.status = Status::Failed;
            one.reason = Some(error.to_string());
        }
    }

    fn traced(&self, tracer: KernelTracer, job: &Job<'_>, call: &str) -> Result<Ran> {
        match (tracer, &self.tracefs) {
            (KernelTracer::Untraced | KernelTracer::UntracedAgain, _) => untraced(job),
            (KernelTracer::FtraceRaw | KernelTracer::FtraceSyscalls, Some(tracefs)) => {
                tracefs.run(tracer, job)
            }
            (KernelTracer::Perf, _) => peers::perf(job),
            (KernelTracer::Bpftrace, _) => peers::bpftrace(job, call),
            (KernelTracer::Strace, _) => peers::strace(job, call),
            _ => ours::run(tracer, job, call),
        }
    }
}

fn untraced(job: &Job<'_>) -> Result<Ran> {
    let command = job.command("");
    let mut program = std::process::Command::new(&command[0]);
    let finished = crate::child::run_for(program.args(&command[1..]), "untraced", LIMIT_S)?;
    Ok(Ran { stdout: finished.stdout, found: None })
}

fn is_root() -> bool {
    // SAFETY: it has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_one_round_unless_something_else_is_asked_for() {
        let quick = KernelOptions { quick: true, ..KernelOptions::default() };
        assert_eq!((quick.rounds(), KernelOptions::default().rounds()), (1, 10));
        assert_eq!(KernelOptions { rounds: Some(3), ..quick }.rounds(), 3);
    }

    #[test]
    fn patterns_choose_tracers_but_the_untraced_are_there() {
        let options = KernelOptions { only: Some("Trackway".into()), ..KernelOptions::default() };
        assert!(options.wants(KernelTracer::TrackwayTree));
        assert!(options.wants(KernelTracer::Untraced));
        assert!(!options.wants(KernelTracer::Perf));
    }
}
