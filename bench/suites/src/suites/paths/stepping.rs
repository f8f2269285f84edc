//! Instructions of one event, counted by single steps in a child process, from the first
//! instruction of the recording function to the instruction after its return. System calls count as
//! one instruction; work in the kernel does not count.

use std::collections::BTreeMap;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::ptrace::{InstructionKind, Tracee};

use super::loops::{Runner, Tally};
use super::staged::RecordOutcome;

/// Most instructions of one child process: a hundred times the usual number.
const STEPS_MAX: u64 = 2_000_000;

/// Instructions of one event, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Steps {
    /// Number of instructions in user space.
    pub(super) instructions: u64,
    /// Number of atomic instructions: with a lock prefix, or an exchange with memory.
    pub(super) locked: u64,
    /// Number of fences.
    pub(super) fences: u64,
    /// Number of reads of the processor's counter.
    pub(super) clock_reads: u64,
    /// Number of system calls.
    pub(super) system_calls: u64,
}

impl Steps {
    fn count(&mut self, kind: InstructionKind) {
        self.instructions += 1;
        match kind {
            InstructionKind::Plain => {}
            InstructionKind::Locked => self.locked += 1,
            InstructionKind::Fence => self.fences += 1,
            InstructionKind::Clock => self.clock_reads += 1,
            InstructionKind::System => self.system_calls += 1,
        }
    }
}

/// Returns the most frequent steps of these events, and the largest number of steps of one event.
pub(super) fn most_frequent_steps(
    events: &[(RecordOutcome, Steps)],
    did: RecordOutcome,
) -> Option<(Steps, u64)> {
    let mut times: BTreeMap<Steps, u64> = BTreeMap::new();
    for (_, steps) in events.iter().filter(|event| event.0 == did) {
        *times.entry(*steps).or_default() += 1;
    }
    let most = times.keys().map(|steps| steps.instructions).max()?;
    Some((*times.iter().max_by_key(|one| one.1)?.0, most))
}

/// Steps through `around` events around each of `switches` switches. Each switch comes after at
/// most `between` events. Returns `None` if ptrace is not allowed.
pub(super) fn step_around_switches(
    runner: &mut Runner,
    (switches, around): (u32, u64),
    between: u64,
) -> Result<Option<Vec<(RecordOutcome, Steps)>>> {
    let mut found = Vec::new();
    for _ in 0..switches {
        runner.emit_until_switch(between);
        let events = runner.emit_until_switch(between);
        runner.skip(events.saturating_sub(around / 2));
        let Some(steps) = step_through(runner, around)? else { return Ok(None) };
        found.extend(steps);
    }
    Ok(Some(found))
}

/// Steps through `events` events; returns the outcome and the instructions of each, or `None` if
/// ptrace is not allowed. The child's events are in the same buffers, which are shared memory, and
/// are included in the account.
fn step_through(runner: &mut Runner, events: u64) -> Result<Option<Vec<(RecordOutcome, Steps)>>> {
    let area = trackway_sys::thread::rseq_area() as u64;
    let ((record, writer), staged, first) = runner.stepping_parts();
    let body = || {
        for number in first..first + events {
            staged.put(number);
            // SAFETY: the parts belong together, and the event is this thread's.
            unsafe { record(writer, staged) };
        }
    };
    // SAFETY: staging and recording neither allocate nor use files; the mutex is one that no
    // other thread can have, since there is none.
    let Some(mut tracee) = (unsafe { Tracee::fork(body)? }) else { return Ok(None) };
    let entry = record as usize as u64;
    let mut found = Vec::new();
    let mut event: Option<(u64, Steps)> = None;
    for _ in 0..STEPS_MAX {
        let at = tracee.at()?;
        let is_back = event.is_some_and(|(stack, _)| at.stack == stack + 8);
        if let Some((_, steps)) = event.take_if(|_| is_back) {
            let did = match at.returned as u32 {
                1 => RecordOutcome::Recorded,
                2 => RecordOutcome::Switched,
                _ => RecordOutcome::Lost,
            };
            found.push((did, steps));
        }
        if event.is_none() && at.instruction == entry {
            event = Some((at.stack, Steps::default()));
        }
        if let Some((_, steps)) = &mut event {
            steps.count(tracee.code_at(at.instruction)?.0);
        }
        if !tracee.step()? {
            break;
        }
        tracee.leave_sequence(area)?;
    }
    drop(tracee);
    let mut tally = Tally { emitted: events, ..Tally::default() };
    for (did, _) in &found {
        tally.recorded += u64::from(*did != RecordOutcome::Lost);
        tally.switches += u64::from(*did == RecordOutcome::Switched);
    }
    runner.account_for(&tally);
    if found.len() as u64 != events {
        return Err(Error::output("stepping", format_args!("found {} events", found.len())));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::protections::{self, Contender, ProtectionKind, Scale};
    use super::super::{BYTES, SIZES, clock::CounterClock, geometry_of_shifts};
    use super::*;

    #[test]
    fn most_steps_stand_for_their_path() {
        let steps = |instructions| Steps { instructions, ..Steps::default() };
        let events = [
            (RecordOutcome::Recorded, steps(90)),
            (RecordOutcome::Switched, steps(250)),
            (RecordOutcome::Recorded, steps(95)),
            (RecordOutcome::Recorded, steps(90)),
            (RecordOutcome::Lost, steps(1)),
        ];
        assert_eq!(most_frequent_steps(&events, RecordOutcome::Recorded), Some((steps(90), 95)));
        assert_eq!(most_frequent_steps(&events, RecordOutcome::Switched), Some((steps(250), 250)));
        assert_eq!(most_frequent_steps(&events[..1], RecordOutcome::Switched), None);
    }

    #[test]
    fn instructions_of_ways_are_counted() {
        // The numbers are small: code that is not optimised has twenty times as many instructions.
        const FEW: (u32, u64) = (1, 4);
        let cpu = trackway_bench_engine::host::machine::allowed_cpus().expect("CPUs")[0];
        for protection in ProtectionKind::ALL
            .into_iter()
            .filter(|protection| protections::protection_absence(*protection).is_none())
        {
            let stepped = trackway_bench_engine::host::affinity::run_on_cpu(cpu, || {
                let geometry = geometry_of_shifts(SIZES[0])?;
                let scale = Scale { geometry, cpus: cpu + 1, threads: 1 };
                let mut runner =
                    Runner::new(Contender::new(protection, scale, CounterClock::slow())?, BYTES);
                let events = step_around_switches(&mut runner, FEW, geometry.sub_bytes())?;
                runner.check()?;
                Ok(events)
            });
            let Some(events) = stepped.expect("stepping") else {
                eprintln!("skipped, because ptrace is not allowed here");
                return;
            };
            let (fast, _) = most_frequent_steps(&events, RecordOutcome::Recorded).expect("events");
            let (switch, _) =
                most_frequent_steps(&events, RecordOutcome::Switched).expect("a switch");
            assert!(fast.instructions > 30, "{fast:?}");
            assert!(
                switch.instructions > fast.instructions,
                "{protection:?}: {fast:?}, {switch:?}"
            );
            let is_locked = !matches!(
                protection,
                ProtectionKind::Nothing | ProtectionKind::Rseq | ProtectionKind::Signals
            );
            assert_eq!(fast.locked > 0, is_locked, "{protection:?}: {fast:?}");
            let system_calls = if protection == ProtectionKind::Signals { 2 } else { 0 };
            assert_eq!(fast.system_calls, system_calls, "{protection:?}: {fast:?}");
            let is_fenced =
                matches!(protection, ProtectionKind::Lockless | ProtectionKind::LocklessUnfenced);
            assert_eq!(fast.fences, u64::from(is_fenced), "{protection:?}: {fast:?}");
            assert_eq!(fast.clock_reads, 1, "{protection:?}: {fast:?}");
        }
    }
}
