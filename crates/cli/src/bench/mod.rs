//! `trackway bench`: what tracing and reading cost on this machine, beside other programs.
//!
//! The measuring is `trackway_lab`'s; here is only what the command line says and where the
//! results go.

mod compare;
mod doctor;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_console::message;
use trackway_lab::{Order, Report, Settings};

use crate::local_time;

/// Exit status of a program that Ctrl-C ended, as shells have it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Arguments of `trackway bench`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "COMMAND",
    subcommand_help_heading = "Other commands",
    after_help = "Examples:\n  trackway bench --list\n  \
                  trackway bench --quick\n  \
                  trackway bench tracepoint scaling --out here\n  \
                  trackway bench tracepoint --tracers trackway,lttng\n  \
                  trackway bench doctor\n  \
                  trackway bench compare before/results.json after/results.json\n\n\
                  Figures of different machines do not compare; ratios do. Ctrl-C ends it: what \
                  was measured until then is kept. The exit status is 0, 1 if something failed \
                  that \
                  should have worked, 130 after Ctrl-C, 2 for anything else."
)]
pub(crate) struct Arguments {
    /// Suites to measure [default: all; see --list]
    #[arg(value_name = "SUITE", value_parser = suite_names(), hide_possible_values = true)]
    suites: Vec<String>,
    /// Only these tracers, and what they are measured against
    ///
    /// What names begin with before a '-' stands for all of those (lttng: lttng-ust, lttng-tracef).
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tracers: Vec<String>,
    /// Folder for the results [default: trackway-bench-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One short round: to see that all works, not for figures
    #[arg(long)]
    quick: bool,
    /// Measure N rounds [default: until the ratios are sure]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Draw the order of turns from N [default: a new N each time]
    ///
    /// The same N repeats the order.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// List the suites and how long they take
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    other: Option<Other>,
}

/// What else there is.
#[derive(Debug, clap::Subcommand)]
enum Other {
    Compare(compare::Arguments),
    Doctor(doctor::Arguments),
    Page(Page),
}

/// Draw the page of a results.json again, of this version or of one that was interrupted
///
/// report.html is written beside the file, or in another folder.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trackway bench page here/results.json --out there")]
struct Page {
    /// What trackway bench has written
    #[arg(value_name = "FILE")]
    results: PathBuf,
    /// Folder for the page [default: that of the file]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Names of suites, so that what is misspelt is refused, and shells complete them.
fn suite_names() -> clap::builder::PossibleValuesParser {
    let offers = trackway_lab::offers(&Settings::default());
    let name = |offer: trackway_lab::Offer| clap::builder::PossibleValue::new(offer.name);
    offers.into_iter().map(name).collect::<Vec<_>>().into()
}

/// Runs it, with the tables on `output`. 1 if something failed that should have worked.
///
/// # Errors
///
/// If nothing can be measured, or the results cannot be written.
pub(crate) fn run(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &arguments.other {
        Some(Other::Compare(arguments)) => compare::run(arguments, output),
        Some(Other::Doctor(arguments)) => doctor::run(arguments, output),
        Some(Other::Page(page)) => draw(page, output).map(|()| ExitCode::SUCCESS),
        None if arguments.list => list(arguments, output).map(|()| ExitCode::SUCCESS),
        None => suites(arguments, output),
    }
}

fn status(has_failures: bool) -> ExitCode {
    if has_failures { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            quick: self.quick,
            rounds: self.rounds,
            tracers: self.tracers.clone(),
            seed: self.seed.unwrap_or_else(trackway_lab::drawn_seed),
        }
    }

    /// Suites that are asked for, by names and times.
    fn chosen(&self) -> Vec<trackway_lab::Offer> {
        let offers = trackway_lab::offers(&self.settings()).into_iter();
        let is_chosen =
            |name: &str| self.suites.is_empty() || self.suites.iter().any(|one| one == name);
        offers.filter(|offer| is_chosen(offer.name)).collect()
    }
}

/// Draws a page again.
fn draw(page: &Page, output: &mut dyn Write) -> anyhow::Result<()> {
    let report = trackway_lab::read_report(&page.results)?;
    let beside = page.results.parent().unwrap_or(Path::new("")).to_owned();
    let folder = folder(Some(&page.out.clone().unwrap_or(beside)))?;
    let written = trackway_lab::write_page(&report, &folder);
    written.with_context(|| format!("cannot write in {}", folder.display()))?;
    writeln!(output, "{}", folder.join("report.html").display())?;
    Ok(())
}

fn list(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<()> {
    for offer in arguments.chosen() {
        let time = time(offer.seconds);
        let when = if offer.is_only_by_name { "; only if it is named" } else { "" };
        let (name, title, repeats) = (offer.name, offer.title, offer.repeats);
        writeln!(output, "{name:<12}  {time:>6}  {title} ({repeats}{when})")?;
    }
    let all: f64 = measured(arguments).map(|offer| offer.seconds).sum();
    writeln!(output, "{:<12}  {:>6}", "in all", time(all))?;
    Ok(())
}

/// The suites that a run measures.
fn measured(arguments: &Arguments) -> impl Iterator<Item = trackway_lab::Offer> {
    let are_all = arguments.suites.is_empty();
    arguments.chosen().into_iter().filter(move |offer| !(are_all && offer.is_only_by_name))
}

/// A time as people plan with it.
fn time(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

fn suites(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let order = Order {
        suites: arguments.suites.clone(),
        settings: arguments.settings(),
        command: std::env::args().collect(),
    };
    // Before minutes of measuring: what is misspelt, and what cannot be written.
    trackway_lab::check(&order)?;
    let folder = folder(arguments.out.as_deref())?;
    let seconds: f64 = measured(arguments).map(|offer| offer.seconds).sum();
    let how = if arguments.rounds.is_some() { "at most about" } else { "about" };
    message!("{how} {}, with results in {}", time(seconds), folder.display());
    let report = trackway_lab::run_suites(&order, &mut |so_far: &Report| {
        // Whoever is killed has this. If there is no room now, there may be at the end.
        let _ = trackway_lab::write_report(so_far, &folder);
    })?;
    let written = trackway_lab::write_report(&report, &folder);
    // What was measured is shown, also where there is no room for it.
    trackway_lab::print_report(&report, output).context("cannot write the tables")?;
    written.with_context(|| format!("cannot write in {}", folder.display()))?;
    writeln!(output, "\n{}", folder.join("report.html").display())?;
    if report.is_partial {
        message!("trackway: interrupted: what was measured until then is kept");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(status(report.has_failures()))
}

/// The folder for results, made if it is not there. What it has of an earlier run stays until there
/// are new results.
fn folder(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    let folder = wanted.map_or_else(default_folder, Path::to_owned);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let trial = folder.join(".results.json.new");
    std::fs::write(&trial, "")
        .and_then(|()| std::fs::remove_file(&trial))
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(folder)
}

fn default_folder() -> PathBuf {
    let seconds = trackway_lab::seconds_now();
    let when = local_time::local(seconds).map_or_else(
        || seconds.to_string(),
        |at| {
            let (year, month, day) = (at.year, at.month, at.day);
            let (hour, minute, second) = (at.hour, at.minute, at.second);
            format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
        },
    );
    format!("trackway-bench-{when}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_and_what_cannot_be_written_is_refused() {
        let root = std::env::temp_dir().join(format!("trackway-bench-out-{}", std::process::id()));
        let made = folder(Some(&root.join("a/b"))).expect("a folder");
        assert!(made.is_dir() && std::fs::read_dir(&made).expect("it").next().is_none());
        std::fs::write(root.join("file"), "").expect("a file");
        let error = folder(Some(&root.join("file"))).unwrap_err().to_string();
        assert!(error.starts_with("cannot make "), "{error}");
        std::fs::remove_dir_all(&root).expect("ours");
        let name = default_folder().display().to_string();
        assert!(name.starts_with("trackway-bench-2"), "{name}");
    }

    #[test]
    fn times_are_in_words() {
        assert_eq!((time(15.0), time(600.0)), ("15 s".to_owned(), "10 min".to_owned()));
    }
}
