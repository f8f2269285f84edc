//! A run: suites one after another, what they found, and what is left of a run that was killed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use crate::bars;
use crate::error::{Error, Result};
use crate::guardian::Guardian;
use crate::machine::{self, Machine};
use crate::needs::PROGRAMS;
use crate::page::page;
use crate::place::{Kit, Place};
use crate::progress::Progress;
use crate::results::Note;
use crate::rounds;
use crate::rows::{Ended, FORMAT, Report, SuiteRows};
use crate::signals;
use crate::suite::{About, Hall, Settings, Suite};
use crate::suites;
use crate::tracer_names;

/// Load average for each CPU from which on the machine is said to be busy.
const BUSY_LOAD: f64 = 0.25;

/// What is to be measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Names of suites; all but those that are only measured by name, if there is none.
    pub suites: Vec<String>,
    /// How.
    pub settings: Settings,
    /// The command, word by word, for the report.
    pub command: Vec<String>,
}

/// A suite, for who chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Its name.
    pub name: &'static str,
    /// What it measures.
    pub title: &'static str,
    /// What of which paper it repeats.
    pub repeats: &'static str,
    /// Seconds that it takes about.
    pub seconds: f64,
    /// Whether it is left out where no suite is named.
    pub is_only_by_name: bool,
}

/// All suites, with the time that they take by these settings.
pub fn offers(settings: &Settings) -> Vec<Offer> {
    let offer = |suite: Box<dyn Suite>| {
        let About { name, title, repeats, .. } = suite.about();
        let seconds = rounds::seconds(suite.as_ref(), settings);
        let is_only_by_name = suite.is_only_by_name();
        Offer { name, title, repeats, seconds, is_only_by_name }
    };
    suites::all().into_iter().map(offer).collect()
}

/// Whether an order can be carried out.
///
/// # Errors
///
/// If a suite is not known, or no tracer has a name that is asked for.
pub fn check(order: &Order) -> std::result::Result<(), Error> {
    choose(&order.suites)?;
    tracer_names::check(&order.settings.tracers)
}

/// Seconds since 1970.
pub fn seconds_now() -> i64 {
    (trackway_sys::clock::realtime_ns() / 1_000_000_000).cast_signed()
}

/// Measures, and tells `keep` after each round what there is so far.
///
/// Tracers that cannot be had are absent, with their reason; those that fail cost their own rows.
/// Catches SIGINT, SIGTERM and SIGHUP: what was measured until then is in the report, which is
/// partial. All that was started is ended and all that was made is removed before it returns, and
/// soon after if we are killed.
///
/// # Errors
///
/// If a suite is not known, or nothing can be measured at all.
pub fn run_suites(
    order: &Order,
    keep: &mut dyn FnMut(&Report),
) -> std::result::Result<Report, Error> {
    let mut chosen = choose(&order.suites)?;
    signals::catch();
    let executable =
        std::env::current_exe().map_err(Error::io("cannot find our own executable"))?;
    crate::place::sweep();
    crate::tracefs::sweep();
    let place = Place::new(Kit::of(executable))?;
    let _guardian = Guardian::of_folders([&place.path(""), place.window_dir()])?;
    let progress = Progress::new();
    let mut report = begin(order);
    for word in tracer_names::idle(&order.settings.tracers, &chosen) {
        report.notes.push(Note::skipped(word, "no suite that was asked for has such a tracer"));
    }
    let (settings, cpus) = (&order.settings, report.machine.cpus);
    let hall = Hall { place: &place, progress: &progress, settings, cpus };
    let began = Instant::now();
    for at in 0..chosen.len() {
        // What suites before took longer or shorter than they said is in the past.
        let left: f64 =
            chosen[at..].iter().map(|suite| rounds::seconds(suite.as_ref(), settings)).sum();
        progress.expect(left);
        let suite = &mut chosen[at];
        let name = suite.about().name;
        let mut so_far = report.clone();
        let found = rounds::measure(suite.as_mut(), &hall, &mut |rows| {
            so_far.suites.insert(name.to_owned(), rows.clone());
            so_far.seconds = began.elapsed().as_secs_f64();
            so_far.bars = bars::all(&so_far);
            keep(&so_far);
        });
        report.seconds = began.elapsed().as_secs_f64();
        debug_assert!(are_listed(suite.as_ref(), &found), "{name} has a row that no word chooses");
        let is_over = add(&mut report, name, found);
        report.bars = bars::all(&report);
        if is_over {
            return Ok(report);
        }
        keep(&report);
    }
    report.is_partial = false;
    Ok(report)
}

/// Whether each row is of one of the tracers that its suite tells.
fn are_listed(suite: &dyn Suite, found: &Result<SuiteRows>) -> bool {
    let rows = found.iter().flat_map(|found| &found.rows);
    rows.into_iter().all(|row| tracer_names::is_listed(suite, &row.tracer))
}

/// Adds what a suite found. Whether the user has had enough.
fn add(report: &mut Report, name: &str, found: Result<SuiteRows>) -> bool {
    match found {
        Ok(rows) => {
            let is_over = rows.ended == Ended::Interrupted;
            report.suites.insert(name.to_owned(), rows);
            is_over
        }
        Err(Error::Interrupted) => true,
        Err(error) => {
            report.notes.push(Note::failed(name, &error));
            false
        }
    }
}

/// The suites of these names, each once, in their own order.
fn choose(names: &[String]) -> Result<Vec<Box<dyn Suite>>> {
    let all = suites::all();
    let known: Vec<&str> = all.iter().map(|suite| suite.about().name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let message = format!("there is no such suite; there are {}", known.join(", "));
        return Err(Error::output(unknown, message));
    }
    let is_wanted = |suite: &dyn Suite| match names {
        [] => !suite.is_only_by_name(),
        _ => names.iter().any(|name| name == suite.about().name),
    };
    Ok(all.into_iter().filter(|suite| is_wanted(suite.as_ref())).collect())
}

fn begin(order: &Order) -> Report {
    let machine = Machine::here();
    let mut report = Report {
        format: FORMAT,
        begun_ns: trackway_sys::clock::realtime_ns(),
        seconds: 0.0,
        is_partial: true,
        command: order.command.clone(),
        settings: order.settings.clone(),
        machine,
        versions: versions(),
        suites: BTreeMap::new(),
        bars: Vec::new(),
        notes: Vec::new(),
    };
    report.notes.extend(busy(&report.machine));
    report
}

/// Figures of a machine that does other things are no figures; that is said, not forbidden.
fn busy(machine: &Machine) -> Option<Note> {
    let load: f64 = machine.load.parse().unwrap_or(0.0);
    let text = format!(
        "a load of {load} on {} CPUs when this began: what others did is in the figures",
        machine.cpus
    );
    let about = "the machine is busy".to_owned();
    let is_busy = load > BUSY_LOAD * machine.cpus as f64;
    is_busy.then_some(Note { about, text, is_failure: false })
}

/// Programs that may take part, as they say themselves.
fn versions() -> BTreeMap<String, String> {
    let found = PROGRAMS.iter().filter(|need| !need.version.is_empty()).filter_map(|need| {
        let line = machine::first_line(need.name, &[need.version])?;
        Some((need.name.to_owned(), line))
    });
    found.collect()
}

/// Writes a report's page alone to `folder`, as `report.html`.
///
/// # Errors
///
/// Those of the file system.
pub fn write_page(report: &Report, folder: &Path) -> std::io::Result<()> {
    write_whole(folder, "report.html", &page(report))
}

/// A file that is there whole or not at all.
fn write_whole(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let new = folder.join(format!(".{name}.new"));
    let written =
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, folder.join(name)));
    // Half of it is of no use.
    written.inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// Writes a report to `folder`, as `results.json` and `report.html`, each whole or not at all.
///
/// # Errors
///
/// Those of the file system.
pub fn write_report(report: &Report, folder: &Path) -> std::io::Result<()> {
    let json = report.to_json().map_err(std::io::Error::other)?;
    write_whole(folder, "results.json", &json)?;
    write_page(report, folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            choose(&wanted)
                .map(|chosen| chosen.iter().map(|suite| suite.about().name).collect::<Vec<&str>>())
        };
        assert_eq!(names(&["scaling", "tracepoint"]).expect("two"), ["tracepoint", "scaling"]);
        let unnamed = names(&[]).expect("most");
        assert!(unnamed.contains(&"drain") && !unnamed.contains(&"spans"));
        assert_eq!(names(&["spans"]).expect("one"), ["spans"]);
        let error = names(&["speed"]).unwrap_err().to_string();
        assert!(error.starts_with("speed: there is no such suite; there are tracepoint, "));
    }

    #[test]
    fn suites_have_names_of_their_own() {
        let offers = offers(&Settings::default());
        let names: std::collections::BTreeSet<&str> =
            offers.iter().map(|offer| offer.name).collect();
        assert_eq!(names.len(), offers.len());
        assert!(offers.iter().all(|offer| offer.seconds > 0.0 && !offer.repeats.is_empty()));
    }

    #[test]
    fn reports_go_round_and_others_are_refused() {
        let report = begin(&Order::default());
        let text = report.to_json().expect("text");
        assert_eq!(Report::from_json(&text).expect("a report"), report);
        let other = text.replacen("\"format\": 2", "\"format\": 1", 1);
        let error = Report::from_json(&other).unwrap_err().to_string();
        assert!(error.starts_with("it is of version 1, not 2"), "{error}");
    }
}
