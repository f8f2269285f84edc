//! Sources and output of the workload programs.

use crate::error::{Error, Result};
use crate::stats::Spread;

/// Most threads of a workload: harness.h.
const THREADS_MAX: u32 = 1024;

/// A source file of the workloads.
#[derive(Debug)]
pub struct Source {
    /// File name of the source, by which other sources include it.
    pub name: &'static str,
    /// Text of the source.
    pub text: &'static str,
}

/// One batch of events in one thread: a line `batch THREAD NUMBER EVENTS NS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Number of the thread.
    pub thread: u32,
    /// Number of the batch in the thread.
    pub number: u32,
    /// Number of events emitted.
    pub events: u64,
    /// Duration of the batch, in ns.
    pub ns: u64,
}

impl Batch {
    /// Returns the duration of one event in ns.
    pub fn event_ns(&self) -> f64 {
        self.ns as f64 / self.events as f64
    }
}

/// The events of one thread in a fixed time: a line `emitted THREAD EVENTS NS CPU_NS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmittedEvents {
    /// Number of events emitted.
    pub events: u64,
    /// Time during which the thread emitted events, in ns.
    pub ns: u64,
    /// CPU time of the thread during that time, in ns.
    pub cpu_ns: u64,
}

/// Parses the batches in a workload's output; an output without batches is an error.
pub fn parse_batches(output: &str) -> Result<Vec<Batch>> {
    let mut found = Vec::new();
    for line in output.lines() {
        let [thread, number, events, ns] = parse_numbers(line, "batch")?;
        let number = u32::try_from(number).map_err(|error| malformed_line_error(line, error))?;
        let thread = u32::try_from(thread).map_err(|error| malformed_line_error(line, error))?;
        if events == 0 || thread >= THREADS_MAX {
            return Err(malformed_line_error(line, "no events, or too many threads"));
        }
        found.push(Batch { thread, number, events, ns });
    }
    require_nonempty(found)
}

/// Returns the duration of an event in ns: the median of the batches after the warm-up.
pub fn median_event_ns(batches: &[Batch], warm_up: u32) -> Result<f64> {
    let counted = batches.iter().filter(|batch| batch.number >= warm_up);
    let figures: Vec<f64> = counted.map(Batch::event_ns).collect();
    let spread = Spread::of(&figures);
    spread.map(|spread| spread.median).ok_or_else(|| Error::output("workload", "no batches"))
}

/// Returns the number of events that each thread emitted, from its batches.
pub fn count_events_by_thread(batches: &[Batch]) -> Vec<u64> {
    let threads = batches.iter().map(|batch| batch.thread + 1).max().unwrap_or_default();
    let mut emitted = vec![0; threads as usize];
    for batch in batches {
        emitted[batch.thread as usize] += batch.events;
    }
    emitted
}

/// Returns the instructions per event, from a run with some events and a run with twice as many.
pub fn parse_instructions_per_event(output: &str) -> Result<f64> {
    let mut lines = output.lines();
    let mut next = || parse_numbers(lines.next().unwrap_or_default(), "steps");
    let ([events, steps], [more_events, more_steps]) = (next()?, next()?);
    let (added_events, added_steps) =
        (more_events.checked_sub(events), more_steps.checked_sub(steps));
    match (added_events, added_steps, lines.next()) {
        (Some(events @ 1..), Some(steps), None) => Ok(steps as f64 / events as f64),
        _ => Err(malformed_line_error(output.trim_end(), "more events must take more steps")),
    }
}

/// Parses the lines of all threads in a workload's output; an output without lines is an error.
pub fn parse_emitted(output: &str) -> Result<Vec<EmittedEvents>> {
    let mut found = Vec::new();
    for line in output.lines() {
        let [_, events, ns, cpu_ns] = parse_numbers(line, "emitted")?;
        found.push(EmittedEvents { events, ns, cpu_ns });
    }
    require_nonempty(found)
}

/// Parses the start times in the launcher's output, in µs; an output without times is an error.
pub fn parse_starts_us(output: &str) -> Result<Vec<f64>> {
    let mut found = Vec::new();
    for line in output.lines() {
        let [ns] = parse_numbers(line, "start")?;
        found.push(ns as f64 / 1000.0);
    }
    require_nonempty(found)
}

/// Returns the number of threads that a workload reports.
pub fn parse_thread_count(output: &str) -> Result<u64> {
    let [threads] = parse_numbers(output.trim_end(), "threads")?;
    Ok(threads)
}

/// Parses the numbers of a line that begins with `word`.
pub fn parse_numbers<const COUNT: usize>(line: &str, word: &str) -> Result<[u64; COUNT]> {
    let mut words = line.split(' ');
    if words.next() != Some(word) {
        return Err(malformed_line_error(line, format_args!("not '{word}'")));
    }
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        let text = words.next().ok_or_else(|| malformed_line_error(line, "too short"))?;
        *number = text.parse().map_err(|error| malformed_line_error(line, error))?;
    }
    match words.next() {
        Some(_) => Err(malformed_line_error(line, "too long")),
        None => Ok(numbers),
    }
}

fn require_nonempty<T>(found: Vec<T>) -> Result<Vec<T>> {
    if found.is_empty() { Err(Error::output("workload", "it printed nothing")) } else { Ok(found) }
}

fn malformed_line_error(line: &str, message: impl std::fmt::Display) -> Error {
    Error::output("workload", format_args!("'{line}': {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_read() {
        let found =
            parse_batches("batch 0 0 1000 21500\nbatch 1 0 1000 22000\n").expect("two batches");
        assert_eq!(found[0], Batch { thread: 0, number: 0, events: 1000, ns: 21_500 });
        assert_eq!(found[1].event_ns(), 22.0);
        let more = parse_batches("batch 2 0 5 1\nbatch 0 0 7 1\nbatch 2 1 5 1\n").expect("three");
        assert_eq!(count_events_by_thread(&more), [7, 0, 10]);
    }

    #[test]
    fn batches_that_warm_up_do_not_count() {
        let batch = |number, ns| Batch { thread: 0, number, events: 10, ns };
        let batches = [batch(0, 9000), batch(2, 9000), batch(3, 10), batch(4, 30), batch(5, 20)];
        assert_eq!(median_event_ns(&batches, 3).expect("three"), 2.0);
        assert!(median_event_ns(&batches[..2], 3).is_err());
    }

    #[test]
    fn instructions_are_what_more_events_take() {
        assert_eq!(
            parse_instructions_per_event("steps 32 107\nsteps 64 203\n").expect("both"),
            3.0
        );
        for output in ["", "steps 32 1", "steps 32 9\nsteps 32 9", "steps 1 9\nsteps 2 8", "x"] {
            assert!(parse_instructions_per_event(output).is_err(), "{output}");
        }
    }

    #[test]
    fn other_lines_are_read() {
        let found = parse_emitted("emitted 0 50 7 6\n").expect("one");
        assert_eq!(found, [EmittedEvents { events: 50, ns: 7, cpu_ns: 6 }]);
        assert_eq!(parse_starts_us("start 1500\nstart 500\n").expect("two"), [1.5, 0.5]);
        assert_eq!(parse_thread_count("threads 3\n").expect("three"), 3);
    }

    #[test]
    fn anything_else_is_an_error() {
        for output in [
            "",
            "batch 0 0 1000",
            "batch 0 0 1000 1 1",
            "start 1",
            "batch 0 0 0 1",
            "batch 1024 0 1 1",
        ] {
            assert!(parse_batches(output).is_err(), "{output}");
        }
        let message = parse_batches("batch 0 0 x 1").unwrap_err().to_string();
        assert_eq!(message, "workload: 'batch 0 0 x 1': invalid digit found in string");
    }
}
