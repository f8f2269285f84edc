//! Bytes on disk for the same events in every tracer that writes files.
//!
//! Each writes two traces, one with four times as many events as the other: what the larger one has
//! more, for each event that it has more, is what an event takes, with its part of what packets,
//! pages and indexes take; what is left of a trace without its events is there once.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::bars::{at_most, ratio};
use crate::case::{Case, Mode, Plan};
use crate::child;
use crate::error::{Error, Result};
use crate::place::has;
use crate::results::{Account, Bar};
use crate::rows::{Report, Row as Figures, Unit};
use crate::suite::{About, Entry, Hall, Sample, Settings, Suite};
use crate::tracer::{Availability, Tracer};
use crate::tracers::{self, name, paced_arguments};
use crate::workload;

/// Its name.
const NAME: &str = "size";
/// Events of a batch, and the rest after it in µs, so that no recorder loses any.
const BATCH_EVENTS: u64 = 2500;
const REST_US: u64 = 1000;
/// Batches of the smaller trace, and how many times as many the larger one has.
const BATCHES: u32 = 10;
const TIMES: u32 = 4;
/// Deepest folder of a trace.
const DEPTH_MAX: u32 = 8;

/// Text of a trace of ours, as babeltrace2 writes it: what anything binary is for.
const TEXT: &str = "babeltrace2-text";
/// What a trace has besides its events, in bytes.
const ONCE: &str = "bytes once";
/// Its bytes for each event, all in all, of the larger one.
const ALL: &str = "bytes/event of 100,000, all in all";

/// Tracers that write files, and how they are told to keep everything.
const WRITERS: [(&str, Mode); 9] = [
    (name::TRACKWAY, Mode::Steady),
    (name::TRACKWAY_PRINTF, Mode::Steady),
    (name::TRACKWAY_LOCKLESS, Mode::Steady),
    (name::LTTNG, Mode::Steady),
    (name::TRACEF, Mode::Steady),
    (name::UFTRACE, Mode::Steady),
    (name::FTRACE_MARKER, Mode::Producer),
    (name::FTRACE_UPROBE, Mode::Producer),
    (name::PERF, Mode::Steady),
];

/// What is written.
fn cases() -> [Case; 3] {
    let record = Case { payload: crate::case::Payload::Record, ..Case::SIMPLEST };
    [Case::SIMPLEST, record, Case::PRINTF]
}

/// A row: which tracer writes what, and whether it is turned into text.
#[derive(Debug, Clone, Copy)]
struct Row {
    tracer: usize,
    mode: Mode,
    case: Case,
    is_text: bool,
    /// Whether numbers are digits: later ones have more of them, so that nothing can be said of what
    /// is there once.
    has_digits: bool,
}

/// The suite.
#[derive(Default)]
pub(crate) struct Size {
    tracers: Vec<Box<dyn Tracer>>,
    rows: Vec<Row>,
}

impl Suite for Size {
    fn about(&self) -> About {
        About {
            name: NAME,
            title: "Bytes on disk of an event",
            repeats: "design, bars",
            unit: Unit::BytesPerEvent,
            x_axis: "",
        }
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 8.0 } else { 60.0 }
    }

    fn enter(&mut self, hall: &Hall<'_>) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for tracer in tracers::all() {
            let writer = WRITERS.iter().find(|writer| writer.0 == tracer.name());
            let Some(&(name, mode)) = writer else { continue };
            let is_ours = name == name::TRACKWAY || name == name::TRACKWAY_PRINTF;
            let is_read = is_ours && hall.settings.wants(TEXT);
            if hall.settings.wants(name) || is_ours || is_read {
                self.add(hall, tracer, mode, &mut entries)?;
            }
        }
        // Text stands below what it is text of.
        let (rows, mut entries) = last_text(std::mem::take(&mut self.rows), entries);
        self.rows = rows;
        self.add_control(&mut entries);
        tell_beside(&mut entries);
        Ok(entries)
    }

    fn sample(&mut self, hall: &Hall<'_>, row: usize) -> Result<Sample> {
        let row = self.rows[row];
        let tracer = self.tracers[row.tracer].as_mut();
        let few = row.write(tracer, hall, BATCHES)?;
        let many = row.write(tracer, hall, BATCHES * TIMES)?;
        let mut found = sample(tracer.name(), &few, &many)?;
        if row.has_digits {
            found.extra.retain(|extra| extra.0 != ONCE);
        }
        Ok(found)
    }

    fn leave(&mut self) {
        for tracer in &mut self.tracers {
            tracer.tear_down();
        }
        self.tracers.clear();
        self.rows.clear();
    }
}

impl Size {
    /// Rows of a tracer.
    fn add(
        &mut self,
        hall: &Hall<'_>,
        mut tracer: Box<dyn Tracer>,
        mode: Mode,
        entries: &mut Vec<Entry>,
    ) -> Result<()> {
        let name = tracer.name();
        hall.progress.say(&format!("setting up {name}"));
        let mut ready = Entry { records: true, tracer: name.to_owned(), ..Entry::default() };
        match tracer.availability(hall.place) {
            Availability::Missing(reason) => ready.absent = Some(reason),
            Availability::Ready => match tracer.set_up(hall.place) {
                Ok(()) => {}
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => ready.failed = Some(error.to_string()),
            },
        }
        let at = self.tracers.len();
        let is_ours = [name::TRACKWAY, name::TRACKWAY_PRINTF].contains(&name);
        for case in cases().into_iter().filter(|case| tracer.supports(case)) {
            let texts: &[bool] = if is_ours { &[false, true] } else { &[false] };
            for &is_text in texts {
                let tracer = if is_text { TEXT } else { name };
                if is_text && !hall.settings.wants(TEXT) {
                    continue;
                }
                let mut entry = Entry {
                    tracer: tracer.to_owned(),
                    case: case.payload.title().to_owned(),
                    command: format!("trackway bench {NAME} --tracers {tracer}"),
                    ..ready.clone()
                };
                if is_text && !has("babeltrace2") {
                    entry.absent = Some("babeltrace2 is not installed".to_owned());
                }
                let is_formatted = case == Case::PRINTF || name == name::FTRACE_MARKER;
                let has_digits = is_text || is_formatted;
                entries.push(entry);
                self.rows.push(Row { tracer: at, mode, case, is_text, has_digits });
            }
        }
        self.tracers.push(tracer);
        Ok(())
    }

    /// The first row a second time.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let Some(first) = entries.first().filter(|first| first.can_be_measured()) else { return };
        let tracer = format!("{} again", first.tracer);
        entries.push(Entry { is_control: true, beside: Some(0), tracer, ..first.clone() });
        self.rows.push(self.rows[0]);
    }
}

/// Rows and entries with those of text at the end.
fn last_text(rows: Vec<Row>, entries: Vec<Entry>) -> (Vec<Row>, Vec<Entry>) {
    let both = rows.into_iter().zip(entries);
    let (text, others): (Vec<_>, Vec<_>) = both.partition(|one| one.0.is_text);
    others.into_iter().chain(text).unzip()
}

/// Each row beside ours of the same case: of text, that of `trackway_printf`.
fn tell_beside(entries: &mut [Entry]) {
    let is_ours =
        |entry: &Entry| [name::TRACKWAY, name::TRACKWAY_PRINTF].contains(&entry.tracer.as_str());
    for at in 0..entries.len() {
        let case = entries[at].case.clone();
        let ours = entries
            .iter()
            .position(|one| is_ours(one) && one.case == case && one.can_be_measured());
        let beside = ours.filter(|_| !is_ours(&entries[at]));
        entries[at].beside = entries[at].beside.or(beside);
    }
}

/// A trace that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Written {
    bytes: u64,
    account: Account,
}

impl Row {
    /// Writes a trace of so many batches.
    fn write(self, tracer: &mut dyn Tracer, hall: &Hall<'_>, batches: u32) -> Result<Written> {
        let place = hall.place;
        let plan = Plan { warm_up: 0, batches };
        let pace = (BATCH_EVENTS, REST_US);
        let arguments = paced_arguments(self.case.payload.work(), &self.case, &plan, pace);
        let output = tracer.emit(place, &self.case, self.mode, &arguments)?;
        let emitted = workload::emitted_by_thread(&workload::batches(&output)?);
        let account = tracer.account(place, &emitted)?;
        let account = account.ok_or_else(|| Error::output(tracer.name(), "it says nothing"))?;
        let output = tracer.output(place);
        let output = output.ok_or_else(|| Error::output(tracer.name(), "it writes no files"))?;
        if !self.is_text {
            return Ok(Written { bytes: bytes_of(&output, 0)?, account });
        }
        let mut command = Command::new("babeltrace2");
        let text = child::run(command.arg(&output), TEXT)?.stdout;
        let (bytes, lines) = (text.len() as u64, text.lines().count() as u64);
        Ok(Written { bytes, account: Account { recorded: lines, record_bytes: 0, ..account } })
    }
}

/// Bytes of a file, or of all files in a folder and below.
fn bytes_of(path: &Path, depth: u32) -> Result<u64> {
    let what = || format!("cannot look at {path:?}");
    let metadata = fs::symlink_metadata(path).map_err(Error::io(what()))?;
    if !metadata.is_dir() {
        return Ok(if metadata.is_file() { metadata.len() } else { 0 });
    }
    if depth == DEPTH_MAX {
        return Err(Error::output(path.display().to_string(), "it is too deep for a trace"));
    }
    let mut sum = 0;
    for entry in fs::read_dir(path).map_err(Error::io(what()))? {
        sum += bytes_of(&entry.map_err(Error::io(what()))?.path(), depth + 1)?;
    }
    Ok(sum)
}

/// The straight line through two traces: its slope is the figure.
fn sample(tracer: &str, few: &Written, many: &Written) -> Result<Sample> {
    let more = many.account.recorded.saturating_sub(few.account.recorded);
    if more == 0 || many.bytes <= few.bytes {
        let message = format!(
            "{} events take {} bytes, {} take {}",
            few.account.recorded, few.bytes, many.account.recorded, many.bytes
        );
        return Err(Error::output(tracer, message));
    }
    let slope = (many.bytes - few.bytes) as f64 / more as f64;
    let once = few.bytes as f64 - slope * few.account.recorded as f64;
    let mut account = few.account;
    account.add(&many.account);
    let all = many.bytes as f64 / many.account.recorded as f64;
    let extra = vec![(ONCE, once), (ALL, all)];
    Ok(Sample { figure: slope, account: Some(account), extra, ..Sample::default() })
}

/// Most bytes that the record of an event with one `u32` may take.
const RECORD_BYTES: f64 = 8.0;

/// What Trackway set out to reach that this suite shows.
pub(crate) fn bars(report: &Report) -> Vec<Bar> {
    let Some(suite) = report.suites.get(NAME) else { return Vec::new() };
    let row = |tracer: &str| suite.row(tracer, Case::SIMPLEST.payload.title());
    // The long header, once in so many records, is not what is asked about.
    let round = |bytes: f64| (bytes * 100.0).round() / 100.0;
    let record = row(name::TRACKWAY).and_then(|row| row.bytes_per_event).map(round);
    let on_disk = |tracer: &str| row(tracer).and_then(Figures::median);
    vec![
        at_most(
            &format!("on disk, record of an event with one u32: at most {RECORD_BYTES} bytes"),
            record,
            RECORD_BYTES,
            |bytes| format!("{bytes:.2}"),
        ),
        at_most(
            "on disk, with packets and all: less than LTTng-UST's",
            ratio(on_disk(name::TRACKWAY), on_disk(name::LTTNG)),
            1.0,
            |ratio| format!("{ratio:.2} of it"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::rows::tests::{report, row};

    fn written(bytes: u64, recorded: u64) -> Written {
        Written { bytes, account: Account { emitted: recorded, recorded, ..Account::default() } }
    }

    #[test]
    fn what_is_there_once_is_told_from_what_each_event_takes() {
        let found = sample("it", &written(1800, 100), &written(4200, 400)).expect("a line");
        assert_eq!(found.figure, 8.0);
        assert_eq!(found.extra, [(ONCE, 1000.0), (ALL, 10.5)]);
        assert_eq!(found.account.map(|account| account.recorded), Some(500));
        for (few, many) in [((10, 1), (10, 2)), ((10, 2), (20, 2)), ((0, 0), (0, 0))] {
            assert!(sample("it", &written(few.0, few.1), &written(many.0, many.1)).is_err());
        }
    }

    #[test]
    fn all_files_of_a_trace_count() {
        let dir = std::env::temp_dir().join(format!("trackway-size-{}", std::process::id()));
        fs::create_dir_all(dir.join("trace/index")).expect("folders");
        for (file, bytes) in [("trace/stream", 100), ("trace/index/stream", 10), ("metadata", 1)] {
            fs::write(dir.join(file), vec![0; bytes]).expect("a file");
        }
        std::os::unix::fs::symlink("/etc/passwd", dir.join("link")).expect("a link");
        assert_eq!(bytes_of(&dir, 0).expect("bytes"), 111);
        assert_eq!(bytes_of(&dir.join("trace/stream"), 0).expect("bytes"), 100);
        assert!(bytes_of(&dir.join("none"), 0).is_err() && bytes_of(&dir, DEPTH_MAX).is_err());
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn text_stands_beside_ours_of_the_same_case() {
        let entry = |tracer: &str, case: &str| Entry {
            tracer: tracer.to_owned(),
            case: case.to_owned(),
            ..Entry::default()
        };
        let mut entries = [
            entry(name::TRACKWAY, "u32"),
            entry(name::TRACKWAY_PRINTF, "text"),
            entry(TEXT, "u32"),
            entry(name::TRACEF, "text"),
            entry(name::PERF, "other"),
        ];
        tell_beside(&mut entries);
        let beside: Vec<Option<usize>> = entries.iter().map(|entry| entry.beside).collect();
        assert_eq!(beside, [None, None, Some(0), Some(1), None]);
    }

    #[test]
    fn bars_are_of_records_and_of_files() {
        let ours = Figures { bytes_per_event: Some(8.004), ..row(name::TRACKWAY, "u32", 8.02) };
        let bars = bars(&report(NAME, [ours, row(name::LTTNG, "u32", 10.03)]));
        let found: Vec<(&str, Verdict)> =
            bars.iter().map(|bar| (bar.measured.as_str(), bar.verdict)).collect();
        assert_eq!(found, [("8.00", Verdict::Holds), ("0.80 of it", Verdict::Holds)]);
        assert!(super::bars(&report("tracepoint", [])).is_empty());
    }
}
