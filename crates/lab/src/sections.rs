//! The further measurements: starts of processes, recording at full speed, memory when idle.

use crate::bench::{Contestant, keep};
use crate::error::Result;
use crate::place::Place;
use crate::progress::Progress;
use crate::results::{Flow, Memory, Note, Startup};
use crate::stats::Spread;
use crate::tracers::FLOW_BYTES;
use crate::tracers::name::EMPTY;

/// What they found.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    /// Starts of linked processes.
    pub(crate) startup: Vec<Startup>,
    /// Recording at full speed.
    pub(crate) flows: Vec<Flow>,
    /// Memory of idle sessions.
    pub(crate) memory: Vec<Memory>,
}

/// Measures all of them.
pub(crate) fn measure(
    quick: bool,
    place: &Place,
    progress: &Progress,
    contestants: &mut [Contestant],
    notes: &mut Vec<Note>,
) -> Result<Sections> {
    let mut sections = Sections {
        startup: startup(quick, place, progress, contestants, notes)?,
        ..Sections::default()
    };
    let milliseconds = if quick { 300 } else { 2000 };
    for contestant in contestants.iter_mut().filter(|contestant| contestant.is_in) {
        let name = contestant.tracer.name();
        progress.say(&format!("full speed: {name}"));
        let done = contestant.tracer.stream(place, milliseconds);
        sections.flows.extend(keep(done, contestant, notes)?.flatten());
        if !contestant.is_in {
            continue;
        }
        let done = contestant.tracer.idle_bytes(place);
        if let Some(bytes) = keep(done, contestant, notes)?.flatten() {
            let tracer = name.to_owned();
            sections.memory.push(Memory { tracer, bytes, buffer_bytes: FLOW_BYTES });
        }
    }
    Ok(sections)
}

/// Starts of programs, in turns.
fn startup(
    quick: bool,
    place: &Place,
    progress: &Progress,
    contestants: &mut [Contestant],
    notes: &mut Vec<Note>,
) -> Result<Vec<Startup>> {
    let (turns, count) = if quick { (4, 5) } else { (20, 25) };
    let mut found: Vec<Turns> = contestants.iter().map(|_| Turns::default()).collect();
    for _ in 0..turns {
        let mut plain_us = None;
        for (contestant, found) in contestants.iter_mut().zip(&mut found) {
            if !contestant.is_in {
                continue;
            }
            progress.say(&format!("starts of processes: {}", contestant.tracer.name()));
            let done = contestant.tracer.starts(place, count);
            let Some(starts) = keep(done, contestant, notes)?.flatten() else { continue };
            // The fastest: a start that the machine interrupts takes several times as long.
            let fastest_us = Spread::of(&starts.us).map(|spread| spread.min);
            match plain_us {
                None if contestant.tracer.name() == EMPTY => plain_us = fastest_us,
                None => {}
                Some(plain_us) => found.added_us.extend(fastest_us.map(|us| us - plain_us)),
            }
            found.us.extend(starts.us);
            found.threads = starts.threads;
        }
    }
    let found = contestants.iter().zip(found);
    let startup = found.filter_map(|(contestant, found)| {
        Some(Startup {
            tracer: contestant.tracer.name().to_owned(),
            us: Spread::of(&found.us)?,
            added_us: Spread::of(&found.added_us),
            threads: found.threads,
        })
    });
    Ok(startup.collect())
}

/// The starts of one tracer's program, over all turns.
#[derive(Default)]
struct Turns {
    us: Vec<f64>,
    added_us: Vec<f64>,
    threads: u64,
}
