//! The measured loops: batches, single events, and simultaneous threads.

use std::hint::black_box;
use std::sync::Barrier;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::affinity::{pin_thread_to_cpu, thread_cpu_ns};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::stats::Spread;
use trackway_sys::clock::{monotonic_ns, read_tsc};

use super::clock::load_fence;
use super::memory::FoundRecords;
use super::protections::{Contender, Record};
use super::staged::{RecordOutcome, Staged};

/// Events between two readings of the clock.
const BATCH_EVENTS: u64 = 5_000;

/// The count of a run's events by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Number of events emitted.
    pub(super) emitted: u64,
    /// Number of events recorded, including events that were overwritten later.
    pub(super) recorded: u64,
    /// Number of events that opened a sub-buffer.
    pub(super) switches: u64,
    /// Number of aborted restartable sequences, and of claim regions that were found in use.
    pub(super) restarts: u64,
}

impl Tally {
    /// Returns the number of lost events, which found no place and were counted as lost.
    pub(super) const fn lost(&self) -> u64 {
        self.emitted - self.recorded
    }

    /// Adds the tally of another run.
    const fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.recorded += other.recorded;
        self.switches += other.switches;
        self.restarts += other.restarts;
    }
}

/// Stages and records events, and counts their outcomes.
#[inline(always)]
fn emit_events(parts: (Record, *const ()), staged: &mut Staged, first: u64, count: u64) -> Tally {
    let (record, writer) = parts;
    // The call goes through a pointer that the compiler cannot resolve, as the library's does.
    let record = black_box(record);
    let (mut recorded, mut switches) = (0, 0);
    for number in first..first + count {
        staged.put(number);
        // SAFETY: the parts belong together, and the event is this thread's.
        let did = unsafe { record(writer, staged) };
        recorded += u64::from(did != RecordOutcome::Lost);
        switches += u64::from(did == RecordOutcome::Switched);
    }
    Tally { emitted: count, recorded, switches, restarts: 0 }
}

/// A thread that emits into a contender's buffers, and its count of events.
pub(super) struct Runner {
    /// The protection with its buffers.
    pub(super) contender: Contender,
    staged: Staged,
    tally: Tally,
}

impl Runner {
    /// Makes a runner for events with `body_bytes` of body.
    pub(super) fn new(contender: Contender, body_bytes: usize) -> Self {
        Self { contender, staged: Staged::new(0, body_bytes), tally: Tally::default() }
    }

    fn emit(&mut self, count: u64) -> Tally {
        let tally =
            emit_events(self.contender.parts(), &mut self.staged, self.tally.emitted, count);
        self.tally.add(&tally);
        self.tally.restarts = self.staged.restarts;
        tally
    }

    /// Emits `warm_up` events, which are not counted, then `batches` batches. Returns the median of
    /// the batches in ns per event, in CPU time of the thread.
    pub(super) fn median_ns(&mut self, warm_up: u64, batches: u32) -> Result<f64> {
        self.emit(warm_up);
        let mut figures = Vec::with_capacity(batches as usize);
        for _ in 0..batches {
            let begin = thread_cpu_ns();
            self.emit(BATCH_EVENTS);
            figures.push((thread_cpu_ns() - begin) as f64 / BATCH_EVENTS as f64);
        }
        median_of(&figures).ok_or_else(|| Error::output("the loop", "no batch"))
    }

    /// Emits `events` events and measures each. Returns two averages in ticks, each of the middle
    /// half: of the events that stayed in their sub-buffer, and of the events that opened one.
    /// (Counters of some machines advance in steps, and a median would be one of these steps.) The
    /// cost of timing is subtracted.
    pub(super) fn ticks_of_paths(&mut self, events: u64) -> Result<Option<(f64, f64)>> {
        let empty: Vec<f64> = (0..events.min(2_000)).map(|_| measure_ticks(|| ()).0).collect();
        let Some(empty) = mean_of_middle_half(empty) else { return Ok(None) };
        let (record, writer) = self.contender.parts();
        let record = black_box(record);
        let (mut fast, mut switches) = (Vec::with_capacity(events as usize), Vec::new());
        for number in self.tally.emitted..self.tally.emitted + events {
            self.staged.put(number);
            let staged = &raw mut self.staged;
            // SAFETY: the parts belong together, and the event is this thread's.
            let (ticks, did) = measure_ticks(|| unsafe { record(writer, staged) });
            self.tally.recorded += u64::from(did != RecordOutcome::Lost);
            self.tally.switches += u64::from(did == RecordOutcome::Switched);
            match did {
                RecordOutcome::Lost => {}
                RecordOutcome::Recorded => fast.push(ticks - empty),
                RecordOutcome::Switched => switches.push(ticks - empty),
            }
        }
        self.tally.emitted += events;
        Ok(mean_of_middle_half(fast).zip(mean_of_middle_half(switches)))
    }

    /// Returns the part of events that opened a sub-buffer.
    pub(super) fn switches_per_event(&self) -> f64 {
        self.tally.switches as f64 / self.tally.emitted as f64
    }

    /// Returns the account of all events, if the buffers contain all recorded events. One thread on
    /// one CPU leaves no gaps.
    pub(super) fn check(&self) -> Result<Account> {
        let found = self.contender.find(self.staged.body_bytes)?;
        let gaps: u64 = found.iter().map(|found| found.gaps).sum();
        let account = check_tally(&self.contender, &found, &self.tally)?;
        if gaps > self.tally.lost() {
            let message = format!("{gaps} events are missing in between: {:?}", self.tally);
            return Err(Error::output(self.contender.protection.name(), message));
        }
        Ok(account)
    }
}

impl Runner {
    /// Emits events that are not measured.
    pub(super) fn skip(&mut self, events: u64) {
        self.emit(events);
    }
}

/// Methods for stepping through events.
#[cfg(target_arch = "x86_64")]
impl Runner {
    /// Emits at most `most` events, until one opens a sub-buffer; returns the number of events.
    pub(super) fn emit_until_switch(&mut self, most: u64) -> u64 {
        (1..=most).find(|_| self.emit(1).switches > 0).unwrap_or(most)
    }

    /// Adds the events that a child process has emitted for this process.
    pub(super) fn account_for(&mut self, tally: &Tally) {
        self.tally.add(tally);
    }

    /// Returns the code, the writer and the event, for a child process that is stepped through.
    pub(super) fn stepping_parts(&mut self) -> ((Record, *const ()), &mut Staged, u64) {
        (self.contender.parts(), &mut self.staged, self.tally.emitted)
    }
}

/// Computes the account of the events. The buffers must contain, by their own count, exactly the
/// recorded events.
fn check_tally(contender: &Contender, found: &[FoundRecords], tally: &Tally) -> Result<Account> {
    let mut all = FoundRecords::default();
    found.iter().for_each(|found| all.add(found));
    let is_there = all.records > 0 && all.records <= tally.recorded;
    if all.counted == tally.recorded && is_there {
        return Ok(Account {
            emitted: tally.emitted,
            recorded: all.records,
            lost: tally.lost(),
            overwritten: all.counted - all.records,
            record_bytes: 0,
        });
    }
    let message = format!("events do not add up: {tally:?}, in the buffers: {all:?}");
    Err(Error::output(contender.protection.name(), message))
}

/// Measures `work` alone, in ticks of the counter. When it begins, no earlier instruction is in
/// flight; when it ends, only its stores may be in flight.
#[inline(always)]
fn measure_ticks<T>(work: impl FnOnce() -> T) -> (f64, T) {
    load_fence();
    let begin = read_tsc();
    load_fence();
    let done = work();
    load_fence();
    let end = read_tsc();
    load_fence();
    (end.wrapping_sub(begin) as f64, done)
}

/// Returns the average of the middle half of the figures.
fn mean_of_middle_half(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let quarter = figures.len() / 4;
    let half = figures.get(quarter..figures.len() - quarter).filter(|half| !half.is_empty())?;
    Some(half.iter().sum::<f64>() / half.len() as f64)
}

fn median_of(figures: &[f64]) -> Option<f64> {
    Spread::of(figures).map(|spread| spread.median)
}

/// The result of simultaneous threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct ThreadsResult {
    /// The count of all threads' events.
    pub(super) tally: Tally,
    /// The account of the events by the buffers.
    pub(super) account: Account,
    /// Time from the begin of the first thread to the end of the last, in ns.
    pub(super) ns: u64,
    /// CPU time of all threads, in ns.
    pub(super) cpu_ns: u64,
}

/// Runs `threads` threads that emit events for a fixed time. Each runs on a separate CPU if `cpus`
/// has enough, otherwise as the scheduler decides.
pub(super) fn emit_from_threads(
    contender: &Contender,
    (threads, cpus): (usize, &[usize]),
    body_bytes: usize,
    duration_ns: u64,
) -> Result<ThreadsResult> {
    let barrier = Barrier::new(threads);
    let run = |thread: usize| -> Result<(Tally, [u64; 3])> {
        let mut staged = Staged::new(thread, body_bytes);
        let pinned = if threads <= cpus.len() { pin_thread_to_cpu(cpus[thread]) } else { Ok(()) };
        // All threads must reach the barrier; otherwise the others wait for ever.
        barrier.wait();
        pinned?;
        let parts = contender.parts();
        let mut tally = Tally::default();
        let cpu_begin = thread_cpu_ns();
        let begin = monotonic_ns();
        let mut end = begin;
        while end < begin + duration_ns {
            tally.add(&emit_events(parts, &mut staged, tally.emitted, BATCH_EVENTS / 10));
            end = monotonic_ns();
        }
        tally.restarts = staged.restarts;
        Ok((tally, [begin, end, thread_cpu_ns() - cpu_begin]))
    };
    let done: Vec<Result<(Tally, [u64; 3])>> = std::thread::scope(|scope| {
        let run = &run;
        let handles: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
        let panicked = |_| Err(Error::output("a thread", "it panicked"));
        handles.into_iter().map(|handle| handle.join().unwrap_or_else(panicked)).collect()
    });
    let (mut tally, mut begin, mut end, mut cpu_ns) = (Tally::default(), u64::MAX, 0, 0);
    for one in done {
        let (of_one, [from, to, on_cpu]) = one?;
        tally.add(&of_one);
        (begin, end, cpu_ns) = (begin.min(from), end.max(to), cpu_ns + on_cpu);
    }
    let account = check_tally(contender, &contender.find(body_bytes)?, &tally)?;
    Ok(ThreadsResult { tally, account, ns: end - begin, cpu_ns })
}

#[cfg(test)]
mod tests {
    use trackway_ring::Geometry;

    use super::super::clock::ConstantClock;
    use super::super::protections::{ProtectionKind, Scale};
    use super::*;

    fn make_runner(protection: ProtectionKind, cpu: usize) -> Runner {
        let geometry = Geometry::new(12, 3).expect("a geometry");
        let scale = Scale { geometry, cpus: cpu + 1, threads: 1 };
        Runner::new(Contender::new(protection, scale, ConstantClock::new()).expect("buffers"), 32)
    }

    #[test]
    fn the_middle_is_between_the_steps_of_a_counter() {
        assert_eq!(
            mean_of_middle_half(vec![30.0, 20.0, 9e9, 20.0, 30.0, 20.0, 20.0, 0.0]),
            Some(22.5)
        );
        assert_eq!(
            (mean_of_middle_half(vec![7.0]), mean_of_middle_half(Vec::new())),
            (Some(7.0), None)
        );
    }

    #[test]
    fn records_that_are_not_there_are_noticed() {
        let cpu = trackway_bench_engine::host::machine::allowed_cpus().expect("CPUs")[0];
        let checked = trackway_bench_engine::host::affinity::run_on_cpu(cpu, || {
            for protection in
                [ProtectionKind::Nothing, ProtectionKind::Claim, ProtectionKind::Lockless]
            {
                let mut runner = make_runner(protection, cpu);
                assert!(runner.check().is_err(), "{protection:?}: nothing was recorded");
                runner.median_ns(100, 3)?;
                runner.tally.recorded += 1;
                assert!(runner.check().is_err(), "{protection:?}: one too few");
                runner.tally.recorded -= 2;
                assert!(runner.check().is_err(), "{protection:?}: one too many");
                runner.tally.recorded += 1;
                // The runner skips a number without a count of lost events.
                runner.emit(1);
                runner.tally.emitted += 1;
                runner.emit(1);
                runner.tally.emitted -= 1;
                assert!(runner.check().is_err(), "{protection:?}: a gap");
            }
            Ok(())
        });
        checked.expect("a CPU");
    }

    #[test]
    fn switches_are_told_apart_from_other_events() {
        let cpu = trackway_bench_engine::host::machine::allowed_cpus().expect("CPUs")[0];
        let done = trackway_bench_engine::host::affinity::run_on_cpu(cpu, || {
            let mut runner = make_runner(ProtectionKind::Nothing, cpu);
            runner.ticks_of_paths(1_000)?;
            runner.check()?;
            Ok(runner.tally)
        });
        let tally = done.expect("events");
        // A sub-buffer of 4 KiB holds a hundred and eleven records of 36 bytes.
        assert_eq!((tally.emitted, tally.recorded), (1_000, 1_000));
        assert!((9..=10).contains(&tally.switches), "{tally:?}");
    }
}
