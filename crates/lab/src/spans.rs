//! What a span costs in a Rust program: Trackway beside fastrace, tracy-client, and `tracing` to a
//! file.
//!
//! As in the table of events, tracers take turns, and every span of Trackway's is accounted for.
//! The others are believed: what they do with a span is in `workloads/rust/spans.rs`.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::bars::{at_most, ratio};
use crate::child;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::{Kit, Place, has};
use crate::progress::Progress;
use crate::readback::{self, RecorderSummary};
use crate::report::bars_text;
use crate::results::{Account, Bar, Note};
use crate::rust;
use crate::signals;
use crate::stats::Spread;
use crate::table::Table;
use crate::tracer::Availability;
use crate::tracers::RING_BYTES;
use crate::tracers::trackway::{availability, in_window, link_flags, off_window_dir};
use crate::workload;

/// Version of the JSON form.
const FORMAT: u32 = 1;
/// The workload's source.
const SOURCE: &str = "rust-spans";
/// Where Trackway's traces go, in the scratch folder.
const TRACE: &str = "spans-trace";
/// Spans of a batch: a millisecond or so.
const BATCH_SPANS: u64 = 5_000;
/// Rounds, if nothing else is asked for.
const ROUNDS: u32 = 5;
/// Starts of a process in each round.
const STARTS: usize = 20;

/// What the user asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpansOptions {
    /// One short round: to see that all works, not for figures.
    pub quick: bool,
    /// So many rounds, instead of five.
    pub rounds: Option<u32>,
}

impl SpansOptions {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS }).max(1)
    }

    /// Batches that do not count, and that do.
    const fn batches(&self) -> (u32, u32) {
        if self.quick { (5, 10) } else { (20, 60) }
    }
}

/// A row: a tracer in a way of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    name: &'static str,
    /// The loop in the workload.
    work: &'static str,
    /// The program that has it.
    program: Program,
    is_recorded: bool,
}

/// A build of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    /// With Trackway and `tracing`.
    Plain,
    /// With fastrace, too.
    Fastrace,
    /// With tracy-client, too.
    Tracy,
}

impl Program {
    /// The executable.
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "rust-spans",
            Self::Fastrace => "rust-spans-fastrace",
            Self::Tracy => "rust-spans-tracy",
        }
    }

    /// The package's feature, and what the C compiler is to be told.
    const fn options(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Plain => ("", &[]),
            Self::Fastrace => ("fastrace", &["-DFASTRACE"]),
            Self::Tracy => ("tracy", &["-DTRACY", "-lstdc++"]),
        }
    }

    fn build(self, place: &Place) -> Result<()> {
        let (feature, more) = self.options();
        let library = rust::SPANS.build(place, feature)?;
        let mut flags = link_flags(place)?;
        flags.extend([library.display().to_string(), "-ldl".to_owned(), "-lm".to_owned()]);
        let flags: Vec<&str> =
            flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        place.compile_as(SOURCE, self.name(), &flags).map(|_| ())
    }
}

const fn row(name: &'static str, work: &'static str) -> Row {
    Row { name, work, program: Program::Plain, is_recorded: false }
}

const SPAN: &str = "trackway::span!";
const SUBSCRIBER: &str = "trackway::subscriber()";
const LAYER: &str = "trackway::layer()";
const FASTRACE: &str = "fastrace";

/// All rows. Each span carries its number, unless it says otherwise.
const ROWS: [Row; 10] = [
    row("tracing's registry alone", "registry"),
    row("trackway::layer(), off", "layer"),
    Row { is_recorded: true, ..row(SPAN, "macro") },
    Row { is_recorded: true, ..row(SUBSCRIBER, "subscriber") },
    Row { is_recorded: true, ..row(LAYER, "layer") },
    Row { program: Program::Fastrace, ..row(FASTRACE, "fastrace") },
    Row { program: Program::Fastrace, ..row("fastrace, no number", "fastrace-bare") },
    Row { program: Program::Tracy, ..row("tracy-client", "tracy") },
    row("tracing to a file", "file"),
    row("trackway::subscriber(), off", "subscriber"),
];

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpansResults {
    /// Version of this form.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// How many rounds there were.
    pub rounds: u32,
    /// The table.
    pub cells: Vec<SpanCell>,
    /// The bars, as they stand with these figures.
    pub bars: Vec<Bar>,
    /// What was skipped or failed, and why.
    pub notes: Vec<Note>,
}

/// One tracer with so many threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpanCell {
    /// The tracer.
    pub tracer: String,
    /// Threads that make spans at once.
    pub threads: u32,
    /// ns per span: the median of each round's batches, over the rounds.
    pub rounds_ns: Spread,
    /// Start, one span, and end of a process, in µs; with one thread.
    pub start_us: Option<Spread>,
    /// What became of the events: two for each span. `None` for other tracers than Trackway.
    pub account: Option<Account>,
}

impl SpansResults {
    /// Whether anything that should have worked did not.
    pub fn has_failures(&self) -> bool {
        self.notes.iter().any(|note| note.is_failure)
    }

    /// As JSON, for programs.
    ///
    /// # Errors
    ///
    /// None that is known: all of it can be written as JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    fn cell(&self, tracer: &str, threads: u32) -> Option<&SpanCell> {
        self.cells.iter().find(|cell| cell.tracer == tracer && cell.threads == threads)
    }

    fn bars(&self) -> Vec<Bar> {
        let ns = |tracer: &str| {
            let cell = self.cell(tracer, 1)?;
            cell.account.is_none_or(|it| it.is_complete()).then_some(cell.rounds_ns.median)
        };
        [LAYER, SUBSCRIBER]
            .map(|tracer| {
                let what = format!("{tracer}: at most what fastrace costs");
                let measured = ratio(ns(tracer), ns(FASTRACE));
                at_most(&what, measured, 1.0, |ratio| format!("{ratio:.2} of it"))
            })
            .into()
    }
}

/// What was measured of one row with so many threads.
struct Series {
    row: Row,
    threads: u32,
    is_in: bool,
    rounds_ns: Vec<f64>,
    starts_us: Vec<f64>,
    account: Option<Account>,
}

/// Measures what spans cost in Rust programs on this machine.
///
/// Tracers whose crates cannot be had are skipped with a note; those that fail are noted and left
/// out from then on. Catches SIGINT, SIGTERM and SIGHUP: all that was started is ended and all
/// that was made is removed before it returns.
///
/// # Errors
///
/// [`Error::Interrupted`] if one of those signals came; others if nothing can be measured at all.
pub fn run_spans(options: &SpansOptions) -> std::result::Result<SpansResults, Error> {
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    let place = Place::new(Kit::of(executable))?;
    let machine = Machine::here();
    let progress = Progress::new();
    for availability in [availability(&place.kit, has("cc")), rust::availability(&place.kit)] {
        if let Availability::Missing(reason) = availability {
            return Err(Error::output("trackway bench spans", reason));
        }
    }
    let mut notes = Vec::new();
    let programs = build(&place, &progress, &mut notes)?;
    let mut series = all_series(machine.cpus, &programs);
    let rounds = options.rounds();
    for round in 1..=rounds {
        for one in series.iter_mut().filter(|one| one.is_in) {
            progress.say(&format!("round {round}: {}, {} threads", one.row.name, one.threads));
            match one.turn(&place, options) {
                Ok(()) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => {
                    one.is_in = false;
                    notes.push(Note::failed(one.row.name, &error));
                }
            }
        }
    }
    let cells = series.iter().filter_map(Series::cell).collect();
    let mut results =
        SpansResults { format: FORMAT, machine, rounds, cells, bars: Vec::new(), notes };
    let missing = results.cells.iter().filter_map(|cell| {
        let account = cell.account.filter(|account| !account.is_complete())?;
        let text = format!("events do not add up: {}", account.words());
        Some(Note { about: cell.tracer.clone(), text, is_failure: true })
    });
    let missing: Vec<Note> = missing.collect();
    results.notes.extend(missing);
    results.bars = results.bars();
    Ok(results)
}

/// Builds what can be built: what is here already, and the others if their crates can be had.
fn build(place: &Place, progress: &Progress, notes: &mut Vec<Note>) -> Result<Vec<Program>> {
    progress.say("building the programs: a minute or two");
    let fetched = rust::SPANS.fetch(place);
    Program::Plain.build(place)?;
    let mut built = vec![Program::Plain];
    if let Err(error) = fetched {
        let reason = format!("cargo cannot get their crates: {error}");
        notes.push(Note::skipped("fastrace, tracy-client", &reason));
        return Ok(built);
    }
    for program in [Program::Fastrace, Program::Tracy] {
        match program.build(place) {
            Ok(()) => built.push(program),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => notes.push(Note::failed(program.name(), &error)),
        }
    }
    Ok(built)
}

fn all_series(cpus: usize, programs: &[Program]) -> Vec<Series> {
    let threads = [1_u32, 2].into_iter().filter(|&threads| threads as usize <= cpus);
    let rows = || ROWS.into_iter().filter(|row| programs.contains(&row.program));
    let series = |row: Row, threads: u32| Series {
        row,
        threads,
        is_in: true,
        rounds_ns: Vec::new(),
        starts_us: Vec::new(),
        account: None,
    };
    threads.flat_map(|threads| rows().map(move |row| series(row, threads))).collect()
}

impl Series {
    fn turn(&mut self, place: &Place, options: &SpansOptions) -> Result<()> {
        let (warm_up, batches) = options.batches();
        let (threads, all) = (self.threads.to_string(), (warm_up + batches).to_string());
        let spans = BATCH_SPANS.to_string();
        let mut command = self.command(place)?;
        command.args(["batches", self.row.work, &threads, &all, &spans]);
        let finished = child::run(&mut command, self.row.name)?;
        let found = workload::batches(&finished.stdout)?;
        let counted = found.iter().filter(|batch| batch.number >= warm_up);
        let ns: Vec<f64> = counted.map(workload::Batch::event_ns).collect();
        self.rounds_ns.extend(Spread::of(&ns).map(|spread| spread.median));
        if self.row.is_recorded {
            let emitted = 2 * found.iter().map(|batch| batch.events).sum::<u64>();
            let account = account(place, &finished.stderr, emitted)?;
            self.account.get_or_insert_default().add(&account);
        } else if self.threads == 1 {
            self.starts_us.extend(starts_us(place, &self.row)?);
        }
        Ok(())
    }

    fn command(&self, place: &Place) -> Result<Command> {
        if !self.row.is_recorded {
            return plain(place, &self.row);
        }
        place.clear(TRACE);
        let mut command = Command::new(&place.kit.trackway);
        command.args(["record", "--flight-recorder", "--context", "none", "--buffer-size"]);
        command.arg(RING_BYTES.to_string()).arg("-o").arg(place.path(TRACE));
        command.arg("--").arg(place.path(self.row.program.name()));
        in_window(&mut command, place.window_dir());
        Ok(command)
    }

    fn cell(&self) -> Option<SpanCell> {
        Some(SpanCell {
            tracer: self.row.name.to_owned(),
            threads: self.threads,
            rounds_ns: Spread::of(&self.rounds_ns)?,
            start_us: Spread::of(&self.starts_us),
            account: self.account,
        })
    }
}

/// The program in the scratch folder, without a recorder.
fn plain(place: &Place, row: &Row) -> Result<Command> {
    let mut command = Command::new(place.path(row.program.name()));
    command.current_dir(place.path("."));
    in_window(&mut command, &off_window_dir(place)?);
    Ok(command)
}

/// A process that makes one span, from its start to its end.
fn starts_us(place: &Place, row: &Row) -> Result<Vec<f64>> {
    let mut all = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let mut command = plain(place, row)?;
        command.args(["batches", row.work, "1", "1", "1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begin = Instant::now();
        let status = command.status().map_err(Error::io(format!("cannot run {}", row.name)))?;
        all.push(begin.elapsed().as_secs_f64() * 1e6);
        if !status.success() {
            return Err(Error::output(row.name, status));
        }
        if signals::stopped() {
            return Err(Error::Interrupted);
        }
    }
    Ok(all)
}

/// What became of `emitted` events, by the recorder's summary and by the trace.
fn account(place: &Place, messages: &str, emitted: u64) -> Result<Account> {
    let what = "trackway record";
    let summary = RecorderSummary::parse(messages)
        .ok_or_else(|| Error::output(what, format_args!("no summary in '{messages}'")))?;
    let counted = readback::count(&place.path(TRACE))?.unwrap_or_default();
    if counted.events != summary.recorded {
        let message = format!(
            "it says that it recorded {} events, and the trace has {}",
            summary.recorded, counted.events
        );
        return Err(Error::output(what, message));
    }
    Ok(Account {
        emitted,
        recorded: summary.recorded,
        lost: summary.lost,
        overwritten: summary.overwritten,
        record_bytes: counted.record_bytes,
    })
}

/// Writes everything that is known to `output`.
///
/// # Errors
///
/// If `output` cannot be written.
pub fn print_spans(results: &SpansResults, output: &mut dyn Write) -> io::Result<()> {
    writeln!(output, "{}", results.machine.words())?;
    for note in &results.notes {
        writeln!(output, "{}: {}", note.about, note.text)?;
    }
    writeln!(
        output,
        "What a span costs, in ns: median of the rounds, of which there were {}\n",
        results.rounds
    )?;
    let mut table = Table::default();
    table.row(["", "1 thread", "2 threads", "of fastrace", "a process with one"]);
    let fastrace = results.cell(FASTRACE, 1).map(|cell| cell.rounds_ns.median);
    for row in ROWS {
        let cells = [1, 2].map(|threads| results.cell(row.name, threads));
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let one = cells[0].map(|cell| cell.rounds_ns.median);
        let start = cells[0].and_then(|cell| cell.start_us);
        let [first, second] = cells.map(|cell| cell.map_or("·".into(), cost));
        table.row([
            row.name.to_owned(),
            first,
            second,
            ratio(one, fastrace).map_or("·".into(), |ratio| format!("{ratio:.2}")),
            start.map_or("·".into(), |start| format!("{:.0} µs", start.median)),
        ]);
    }
    writeln!(output, "{}", table.text())?;
    output.write_all(bars_text(&results.bars).unwrap_or_default().as_bytes())
}

/// A cell of the table; `!` where events are missing.
fn cost(cell: &SpanCell) -> String {
    let mark = if cell.account.is_none_or(|it| it.is_complete()) { "" } else { "!" };
    let ns = &cell.rounds_ns;
    format!("{mark}{:.1} ±{:.1}", ns.median, ns.half_range())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    fn results(costs: &[(&str, f64)]) -> SpansResults {
        let account = Account { emitted: 2, recorded: 2, ..Account::default() };
        let cell = |&(tracer, ns): &(&str, f64)| SpanCell {
            tracer: tracer.to_owned(),
            threads: 1,
            rounds_ns: Spread::of(&[ns]).expect("a figure"),
            start_us: None,
            account: (tracer == LAYER).then_some(account),
        };
        SpansResults {
            format: FORMAT,
            machine: Machine::default(),
            rounds: 1,
            cells: costs.iter().map(cell).collect(),
            bars: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn bars_follow_the_figures() {
        let verdicts = |results: &SpansResults| -> Vec<Verdict> {
            results.bars().iter().map(|bar| bar.verdict).collect()
        };
        let mut found = results(&[(FASTRACE, 200.0), (LAYER, 150.0), (SUBSCRIBER, 210.0)]);
        assert_eq!(verdicts(&found), [Verdict::Holds, Verdict::Misses]);
        // A figure of spans that were not recorded says nothing.
        found.cells[1].account = Some(Account { emitted: 2, ..Account::default() });
        assert_eq!(verdicts(&found), [Verdict::Unknown, Verdict::Misses]);
        assert_eq!(verdicts(&results(&[(LAYER, 1.0)])), [Verdict::Unknown, Verdict::Unknown]);
    }

    #[test]
    fn the_table_shows_what_there_is() {
        let mut text = Vec::new();
        print_spans(&results(&[(FASTRACE, 200.0), (LAYER, 150.0)]), &mut text).expect("text");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("trackway::layer()  150.0 ±0.0          ·         0.75"), "{text}");
        assert!(!text.contains("tracy"), "{text}");
    }

    #[test]
    fn rivals_are_left_out_where_they_cannot_be_had() {
        let every = [Program::Plain, Program::Fastrace, Program::Tracy];
        assert_eq!(all_series(1, &every).len(), ROWS.len());
        assert_eq!(all_series(1, &every[..1]).len(), ROWS.len() - 3);
        assert_eq!(all_series(2, &every).len(), 2 * ROWS.len());
    }
}
