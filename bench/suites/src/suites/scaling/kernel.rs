//! The duration of a traced system call in several threads, each on a separate CPU. If a kernel
//! tracer has a lock or a counter for all CPUs, the duration grows with the number of threads.
//!
//! Main invariant: a run's events fit in the buffers, so that no recorder drains the buffers during
//! the run on a thread's CPU; the trace must contain all events.

use trackway_bench_engine::case::BatchPlan;
use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::workload::{self, Batch};
use trackway_bench_engine::ratios::FiguresByRound;
use trackway_bench_engine::results::{Row, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{Entry, Sample, SuiteContext};

use crate::suites::events::sample_of_batches;
use crate::tracers::kernel::{
    EventStorage, Job, KernelEvents, KernelTracer, KernelTracers, TracedRun, Work,
};

/// Name of the traced system call.
const CALL: &str = "getppid";
/// Batches of a thread, and calls of each batch. Each call has two events, which fill less than
/// half of a CPU's buffer of any tracer. perf's events are the largest, with 88 bytes each, and
/// perf wakes when half of the buffer is full.
const PLAN: BatchPlan = BatchPlan { warm_up: 10, batches: 40 };
const CALLS: u32 = 400;

/// Key of the extra figure: the added cost of a call, relative to the added cost with one thread.
const OF_ONE: &str = "added, in terms of one thread";

/// All tracers; the untraced calls come first, because they are the baseline.
const TRACERS: [KernelTracer; 11] = [
    KernelTracer::Untraced,
    KernelTracer::Trackway,
    KernelTracer::TrackwayTracefs,
    KernelTracer::FtraceRaw,
    KernelTracer::FtraceLocal,
    KernelTracer::FtraceGlobal,
    KernelTracer::FtraceCounter,
    KernelTracer::Perf,
    KernelTracer::Bpftrace,
    KernelTracer::Sysdig,
    KernelTracer::Systemtap,
];

/// Returns the approximate duration of the kernel rows, in seconds.
pub(super) const fn estimate_seconds(settings: &Settings) -> f64 {
    if settings.quick { 8.0 } else { 60.0 }
}

/// Returns the names of the tracers.
pub(super) fn tracer_names() -> impl Iterator<Item = &'static str> {
    TRACERS.into_iter().map(KernelTracer::name)
}

/// The rows of system calls.
#[derive(Debug, Default)]
pub(super) struct KernelRows {
    tracers: Option<KernelTracers>,
    rows: Vec<(KernelTracer, u32)>,
}

impl KernelRows {
    /// Returns the kernel rows, if any of their tracers is selected; `first` is the number of rows
    /// before them.
    pub(super) fn enter(&mut self, context: &SuiteContext<'_>, first: usize) -> Result<Vec<Entry>> {
        if !tracer_names().any(|name| context.settings.wants(name)) {
            return Ok(Vec::new());
        }
        let tracers = KernelTracers::set_up(context.workspace)?;
        let is_in = |tracer: &KernelTracer| {
            *tracer == KernelTracer::Untraced || context.settings.wants(tracer.name())
        };
        let mut entries = Vec::new();
        for tracer in TRACERS.into_iter().filter(is_in) {
            context.progress.show_step(&format!("setting up {}", tracer.name()));
            let absent = tracers.absence(context.workspace, tracer);
            // The untraced rows come first, in the same order.
            for (at, threads) in thread_counts(context.cpus).enumerate() {
                let baseline = (tracer != KernelTracer::Untraced).then_some(first + at);
                entries.push(Entry {
                    absent: absent.clone(),
                    baseline,
                    ..build_entry(tracer, threads)
                });
                self.rows.push((tracer, threads));
            }
        }
        let (tracer, threads) = self.rows[0];
        let again = format!("{} again", tracer.name());
        let baseline = Some(first);
        let again =
            Entry { tracer: again, baseline, is_control: true, ..build_entry(tracer, threads) };
        entries.push(again);
        self.rows.push((tracer, threads));
        self.tracers = Some(tracers);
        Ok(entries)
    }

    pub(super) fn sample(&self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let (tracer, threads) = self.rows[row];
        let tracers = self.tracers.as_ref();
        let tracers = tracers.ok_or_else(|| Error::output(tracer.name(), "it is not set up"))?;
        let numbers = [threads, PLAN.warm_up + PLAN.batches, CALLS].map(|it| it.to_string());
        let arguments = [vec!["batches".to_owned()], numbers.into()].concat();
        let job = Job {
            workspace: context.workspace,
            events: KernelEvents::OneCall(CALL),
            keep: EventStorage::Flight,
            call: CALL,
            work: Work::Workload(&arguments),
        };
        sample_of_run(&tracers.run(tracer, &job)?, threads)
    }
}

/// Returns numbers of calling threads, up to one for each CPU.
fn thread_counts(cpus: usize) -> impl Iterator<Item = u32> {
    let doubled = std::iter::successors(Some(1_u32), |threads| threads.checked_mul(2));
    doubled.take_while(move |&threads| threads as usize <= cpus.max(1))
}

fn build_entry(tracer: KernelTracer, threads: u32) -> Entry {
    let name = tracer.name();
    Entry {
        tracer: name.to_owned(),
        case: case_name(threads),
        x: Some(threads.into()),
        unit: Some(Unit::NsPerCall),
        records: tracer != KernelTracer::Untraced,
        command: format!("trackway bench scaling --tracers {name}"),
        ..Entry::default()
    }
}

fn case_name(threads: u32) -> String {
    let plural = if threads == 1 { "" } else { "s" };
    format!("{CALL}, {threads} thread{plural}")
}

/// Parses the result of a run of `threads` threads.
fn sample_of_run(ran: &TracedRun, threads: u32) -> Result<Sample> {
    // bpftrace prints other lines between the batches.
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("batch ")).collect();
    let batches = workload::parse_batches(&lines.join("\n"))?;
    let calls = u64::from((PLAN.warm_up + PLAN.batches) * CALLS);
    let called = workload::count_events_by_thread(&batches);
    if called != vec![calls; threads as usize] {
        let message = format!("{threads} threads are to make {calls} calls each, not {called:?}");
        return Err(Error::output("workload", message));
    }
    // The figure is a mean over the threads, as in the survey: CPUs may differ, and a median over
    // all batches would mix them.
    let of_thread = |thread| {
        let its: Vec<Batch> = batches.iter().filter(|one| one.thread == thread).copied().collect();
        workload::median_event_ns(&its, PLAN.warm_up)
    };
    let medians = (0..threads).map(of_thread).collect::<Result<Vec<f64>>>()?;
    let figure = medians.iter().sum::<f64>() / f64::from(threads);
    let emitted = 2 * calls * u64::from(threads);
    let account = ran.found.map(|found| found.account_of_call(emitted));
    Ok(Sample { figure, account, ..sample_of_batches(&batches, &PLAN)? })
}

/// Adds to each row the ratio of the added cost with several threads to the added cost with one.
pub(super) fn add_thread_ratios(rows: &mut SuiteRows) {
    let ratio = |row: &Row| {
        let is_its = row.unit == Unit::NsPerCall && row.x.is_some_and(|threads| threads > 1.0);
        let one = rows.row(&row.tracer, &case_name(1)).filter(|_| is_its)?;
        let added = |row| FiguresByRound::above_baseline(rows, Some(row));
        Some(added(row).over(&added(one)).estimate()?.ratio.median)
    };
    let ratios: Vec<Option<f64>> = rows.rows.iter().map(ratio).collect();
    for (row, ratio) in rows.rows.iter_mut().zip(ratios) {
        row.extra.extend(ratio.map(|ratio| (OF_ONE.to_owned(), ratio)));
    }
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::fixtures::{measured_row, suite_of_rows};

    use super::*;
    use crate::tracers::kernel::FoundEvents;

    #[test]
    fn threads_double_up_to_one_for_each_cpu() {
        let of = |cpus| thread_counts(cpus).collect::<Vec<u32>>();
        assert_eq!([of(1), of(2), of(6)], [vec![1], vec![1, 2], vec![1, 2, 4]]);
    }

    /// Returns a run in the format of the workload's report, with the tracer's events.
    fn make_run(threads: u32, batches: u32, events: u64) -> TracedRun {
        let line = |thread: u32, number: u32| {
            // Warm-up batches take longer, and so do interrupted batches.
            let ns = match number {
                ..10 => 9000,
                20 => 70_000,
                _ => 100 + 60 * thread,
            } * CALLS;
            format!("batch {thread} {number} {CALLS} {ns}\n")
        };
        let lines = |thread| (0..batches).map(move |number| line(thread, number));
        let stdout = (0..threads).flat_map(lines).collect::<String>();
        let found = FoundEvents {
            events,
            of_call: Some(events),
            bytes: 8 * events,
            ..FoundEvents::default()
        };
        let stdout = format!("Attaching 2 probes...\n{stdout}");
        TracedRun { stdout, found: Some(found), ..TracedRun::default() }
    }

    #[test]
    fn all_threads_calls_have_a_figure_and_two_events_each() {
        let batches = PLAN.warm_up + PLAN.batches;
        let emitted = 2 * 3 * u64::from(batches * CALLS);
        let found = sample_of_run(&make_run(3, batches, emitted), 3).expect("all are there");
        // The figure is the mean of the threads' medians.
        assert_eq!(found.figure, 160.0);
        let account = found.account.expect("an account");
        assert!(account.is_complete() && account.recorded == emitted, "{account:?}");
        // One event is missing, and not reported as lost.
        let less = sample_of_run(&make_run(3, batches, emitted - 1), 3).expect("figures");
        assert!(!less.account.expect("an account").is_complete());
        // An untraced run has no account.
        let untraced = TracedRun { found: None, ..make_run(1, batches, 0) };
        assert_eq!(sample_of_run(&untraced, 1).expect("figures").account, None);
    }

    #[test]
    fn threads_that_have_not_made_their_calls_have_no_figure() {
        let batches = PLAN.warm_up + PLAN.batches;
        for (ran, threads) in [(make_run(2, batches, 9), 3), (make_run(2, batches - 1, 9), 2)] {
            let error = sample_of_run(&ran, threads).expect_err("too few").to_string();
            assert!(error.contains("calls each"), "{error}");
        }
    }

    #[test]
    fn what_is_added_is_told_in_terms_of_one_thread() {
        let ns = |tracer: KernelTracer, threads: u32, figure, baseline| Row {
            unit: Unit::NsPerCall,
            x: Some(threads.into()),
            baseline,
            ..measured_row(tracer.name(), &case_name(threads), figure)
        };
        let mut rows = suite_of_rows([
            ns(KernelTracer::Untraced, 1, 100.0, None),
            ns(KernelTracer::Untraced, 2, 110.0, None),
            ns(KernelTracer::FtraceGlobal, 1, 150.0, Some(0)),
            ns(KernelTracer::FtraceGlobal, 2, 310.0, Some(1)),
        ]);
        add_thread_ratios(&mut rows);
        let found = rows.rows.iter().map(|row| row.extra.get(OF_ONE).copied());
        assert_eq!(found.collect::<Vec<_>>(), [None, None, None, Some(4.0)]);
    }
}
