//! What reading a trace costs on this machine: `trackway print` beside babeltrace2.
//!
//! ```text
//! traces    our own kinds of trace, written here; lttng records one
//! tools     the two readers, and what each is asked to do
//! measured  one run: time, memory, the first line, all that it wrote
//! results   what was measured, as JSON; bars and report show it to people
//! ```
//!
//! Main invariant: both readers do the same work, and that is shown: their texts of a trace are
//! equal to the byte before their times are compared.

mod bars;
mod lttng;
pub(crate) mod measured;
mod report;
mod results;
mod tools;
mod traces;

pub use report::print as print_reading;
pub use results::{Agreement, ReadingResults, Size, Speed, TraceKind, TraceMeasured};
pub use tools::{Tool, Work};

use crate::error::{Error, Result};
use crate::machine::{Machine, allowed_cpus};
use crate::place::{Kit, Place, has};
use crate::progress::Progress;
use crate::results::Note;
use crate::signals;
use crate::stats::Spread;
use measured::Measured;
use results::FORMAT;

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadingOptions {
    /// Half a minute instead of a quarter of an hour: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of three.
    pub rounds: Option<u32>,
    /// So many events in each trace, instead of twenty million.
    pub events: Option<u64>,
}

/// Rounds, if nothing else is asked for: the fewest that have a spread.
const ROUNDS: u32 = 3;
/// Events of each trace, if nothing else is asked for.
const EVENTS: u64 = 20_000_000;
/// The same for a look that all works.
const QUICK_EVENTS: u64 = 500_000;
/// How much smaller the small traces are, which show what depends on the size.
const SMALLER: u64 = 10;

impl ReadingOptions {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    fn events(&self) -> u64 {
        self.events.unwrap_or(if self.quick { QUICK_EVENTS } else { EVENTS }).max(SMALLER)
    }
}

/// Measures what reading traces costs on this machine.
///
/// A reader that is not installed is skipped with a note; one that fails is noted and left out
/// from then on. Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all that
/// was made is removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at
/// all, for example because there is no space for the traces.
pub fn run_reading(options: &ReadingOptions) -> std::result::Result<ReadingResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let place = Place::new(Kit::of(executable))?;
    let mut bench = Bench {
        place,
        progress: Progress::new(),
        cpu_sets: cpu_sets(&allowed_cpus()?),
        notes: Vec::new(),
        is_out: Vec::new(),
    };
    let traces = bench.make_traces(options.events())?;
    let results = bench.measure(traces, options.rounds())?;
    Ok(results)
}

/// A trace on the disk.
#[derive(Debug, Clone)]
struct TraceFolder {
    kind: TraceKind,
    path: std::path::PathBuf,
    events: u64,
    bytes: u64,
}

/// A kind of trace in two sizes.
#[derive(Debug, Clone)]
struct Pair {
    small: TraceFolder,
    large: TraceFolder,
}

/// The CPUs that a run may use: one, two, and all, as far as there are so many.
fn cpu_sets(allowed: &[usize]) -> Vec<Vec<usize>> {
    let mut counts = vec![1, 2, allowed.len()];
    counts.retain(|&count| count <= allowed.len());
    counts.dedup();
    counts.into_iter().map(|count| allowed[..count].to_vec()).collect()
}

/// The laboratory while it measures readers.
struct Bench {
    place: Place,
    progress: Progress,
    cpu_sets: Vec<Vec<usize>>,
    notes: Vec<Note>,
    /// What failed, and is left out from then on.
    is_out: Vec<(Tool, Work)>,
}

impl Bench {
    fn make_traces(&mut self, events: u64) -> Result<Vec<Pair>> {
        let mut kinds = vec![TraceKind::Numbers, TraceKind::Strings];
        match lttng::availability(&self.place) {
            Ok(()) => kinds.push(TraceKind::Lttng),
            Err(reason) => self.notes.push(Note::skipped(TraceKind::Lttng.words(), &reason)),
        }
        traces::check_space(&self.place, &kinds, events + events / SMALLER)?;
        let mut recorder = None;
        let mut pairs = Vec::new();
        for kind in kinds {
            let mut make = |events: u64| {
                self.progress.say(&format!("making a trace: {}, {events} events", kind.words()));
                let path = self.place.path(&format!("{}-{events}", kind.name()));
                match kind {
                    TraceKind::Lttng => lttng::record(&mut recorder, &self.place, &path, events),
                    _ => traces::write(&path, kind, events),
                }
            };
            match make(events / SMALLER).and_then(|small| Ok((small, make(events)?))) {
                Ok((small, large)) => pairs.push(Pair { small, large }),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => self.notes.push(Note::failed(kind.words(), &error)),
            }
        }
        Ok(pairs)
    }

    fn measure(mut self, pairs: Vec<Pair>, rounds: u32) -> Result<ReadingResults> {
        let tools = self.tools();
        let mut agreements = Vec::new();
        for pair in &pairs {
            agreements.extend(self.agreement(&tools, &pair.small)?);
        }
        let mut speeds = Vec::new();
        let mut sizes = Vec::new();
        for pair in &pairs {
            speeds.extend(speed_series(&tools, &self.cpu_sets, &pair.large));
            sizes.extend(size_series(&tools, [&pair.small, &pair.large]));
        }
        for round in 1..=rounds {
            for series in &mut speeds {
                self.speed_turn(round, series)?;
            }
            for series in &mut sizes {
                self.size_turn(round, series)?;
            }
        }
        let mut results = ReadingResults {
            format: FORMAT,
            machine: Machine::here(),
            babeltrace2: tools::babeltrace2_version(),
            rounds,
            traces: pairs.iter().flat_map(|pair| [&pair.small, &pair.large]).map(told).collect(),
            speeds: speeds.iter().filter_map(SpeedSeries::told).collect(),
            sizes: sizes.iter().filter_map(SizeSeries::told).collect(),
            agreements,
            bars: Vec::new(),
            notes: self.notes,
        };
        results.bars = bars::all(&results);
        Ok(results)
    }

    /// The readers that are here.
    fn tools(&mut self) -> Vec<Tool> {
        if has(tools::BABELTRACE2) {
            return vec![Tool::Trackway, Tool::Babeltrace2];
        }
        self.notes.push(Note::skipped(tools::BABELTRACE2, "babeltrace2 is not installed"));
        vec![Tool::Trackway]
    }

    /// What all tools print of a trace, and whether it is the same.
    fn agreement(&mut self, tools: &[Tool], trace: &TraceFolder) -> Result<Option<Agreement>> {
        let mut texts = Vec::new();
        for &tool in tools {
            self.progress.say(&format!("comparing what is printed: {}", tool.name()));
            let command = tool.command(Work::Text, &self.place, &trace.path);
            if let Some(text) = self.keep(measured::text(command, tool.name()), tool, Work::Text)? {
                texts.push(text);
            }
        }
        let Some(first) = texts.first() else { return Ok(None) };
        let agreement = Agreement {
            trace: trace.kind,
            events: trace.events,
            lines: first.lines,
            bytes: first.bytes,
            compared: texts.len(),
            is_equal: texts.iter().all(|text| text == first),
        };
        if !agreement.is_equal || agreement.lines != agreement.events {
            let text = format!("not the same: {texts:?} of {} events", agreement.events);
            self.notes
                .push(Note::failed(trace.kind.words(), &Error::output("what was printed", text)));
        }
        Ok(Some(agreement))
    }

    fn speed_turn(&mut self, round: u32, series: &mut SpeedSeries) -> Result<()> {
        let SpeedSeries { tool, work, .. } = *series;
        if self.is_out.contains(&(tool, work)) {
            return Ok(());
        }
        self.progress.say(&format!("round {round}: {}", series.words()));
        let command = tool.command(work, &self.place, &series.trace.path);
        let run = measured::run(command, tool.name(), &series.cpus);
        series.runs.extend(self.keep(run, tool, work)?);
        Ok(())
    }

    fn size_turn(&mut self, round: u32, series: &mut SizeSeries) -> Result<()> {
        let SizeSeries { tool, .. } = *series;
        if self.is_out.contains(&(tool, Work::Text)) {
            return Ok(());
        }
        let events = series.trace.events;
        self.progress.say(&format!("round {round}: {}: size, {events} events", tool.name()));
        let all = self.cpu_sets.last().cloned().unwrap_or_default();
        let command = || tool.command(Work::Text, &self.place, &series.trace.path);
        let run = measured::run(command(), tool.name(), &all);
        let first = measured::first_line_ms(command(), tool.name(), &all);
        series
            .peaks_bytes
            .extend(self.keep(run, tool, Work::Text)?.map(|run| run.peak_bytes as f64));
        series.first_lines_ms.extend(self.keep(first, tool, Work::Text)?);
        Ok(())
    }

    /// What was measured, or a note of why not; only an interruption goes on upward.
    fn keep<T>(&mut self, done: Result<T>, tool: Tool, work: Work) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(error) => {
                if !self.is_out.contains(&(tool, work)) {
                    self.is_out.push((tool, work));
                    let about = format!("{}, {}", tool.name(), work.words());
                    self.notes.push(Note::failed(&about, &error));
                }
                Ok(None)
            }
        }
    }
}

fn told(trace: &TraceFolder) -> TraceMeasured {
    TraceMeasured { kind: trace.kind, events: trace.events, bytes: trace.bytes }
}

/// One reader at one work on so many CPUs, over the rounds.
struct SpeedSeries {
    tool: Tool,
    work: Work,
    trace: TraceFolder,
    cpus: Vec<usize>,
    runs: Vec<Measured>,
}

/// The tools of one case run one right after another.
fn speed_series(tools: &[Tool], cpu_sets: &[Vec<usize>], trace: &TraceFolder) -> Vec<SpeedSeries> {
    let mut all = Vec::new();
    for cpus in cpu_sets {
        for work in [Work::Text, Work::Decode] {
            all.extend(tools.iter().map(|&tool| SpeedSeries {
                tool,
                work,
                trace: trace.clone(),
                cpus: cpus.clone(),
                runs: Vec::new(),
            }));
        }
    }
    all
}

impl SpeedSeries {
    fn words(&self) -> String {
        let (tool, trace) = (self.tool.name(), self.trace.kind.words());
        format!("{tool}: {trace}: {}, {} CPUs", self.work.words(), self.cpus.len())
    }

    fn told(&self) -> Option<Speed> {
        let spread = |figure: fn(&Measured) -> f64| {
            Spread::of(&self.runs.iter().map(figure).collect::<Vec<f64>>())
        };
        let events = self.trace.events as f64;
        let rates: Vec<f64> = self.runs.iter().map(|run| events / run.seconds).collect();
        Some(Speed {
            tool: self.tool,
            work: self.work,
            trace: self.trace.kind,
            cpus: self.cpus.len(),
            events_per_s: Spread::of(&rates)?,
            seconds: spread(|run| run.seconds)?,
            cpu_seconds: spread(|run| run.cpu_seconds)?,
            peak_bytes: spread(|run| run.peak_bytes as f64)?,
        })
    }
}

/// One reader on a trace of one size, over the rounds.
struct SizeSeries {
    tool: Tool,
    trace: TraceFolder,
    peaks_bytes: Vec<f64>,
    first_lines_ms: Vec<f64>,
}

fn size_series(tools: &[Tool], traces: [&TraceFolder; 2]) -> Vec<SizeSeries> {
    let series = |tool: Tool, trace: &TraceFolder| SizeSeries {
        tool,
        trace: trace.clone(),
        peaks_bytes: Vec::new(),
        first_lines_ms: Vec::new(),
    };
    tools.iter().flat_map(|&tool| traces.map(|trace| series(tool, trace))).collect()
}

impl SizeSeries {
    fn told(&self) -> Option<Size> {
        Some(Size {
            tool: self.tool,
            trace: self.trace.kind,
            events: self.trace.events,
            peak_bytes: Spread::of(&self.peaks_bytes)?,
            first_line_ms: Spread::of(&self.first_lines_ms)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_one_two_and_all_cpus() {
        assert_eq!(cpu_sets(&[3]), [vec![3]]);
        assert_eq!(cpu_sets(&[0, 5]), [vec![0], vec![0, 5]]);
        assert_eq!(cpu_sets(&[0, 1, 2, 3]), [vec![0], vec![0, 1], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn options_have_the_sizes_that_are_documented() {
        let options = ReadingOptions::default();
        assert_eq!((options.rounds(), options.events()), (3, 20_000_000));
        let quick = ReadingOptions { quick: true, ..ReadingOptions::default() };
        assert_eq!((quick.rounds(), quick.events()), (1, 500_000));
        let wished = ReadingOptions { quick: true, rounds: Some(0), events: Some(0) };
        assert_eq!((wished.rounds(), wished.events()), (1, 10));
    }
}
