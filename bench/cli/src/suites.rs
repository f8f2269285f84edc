//! Commands that measure suites, list suites, and draw the page of a report again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_bench_engine::host::local_time;
use trackway_bench_engine::order::drawn_seed;
use trackway_bench_engine::report::compare::read_report;
use trackway_bench_engine::report::text::print_report;
use trackway_bench_engine::results::Report;
use trackway_bench_engine::run::{RunOptions, SuiteInfo, seconds_now, write_page, write_report};
use trackway_bench_engine::settings::Settings;
use trackway_bench_suites::CATALOGUE;
use trackway_console::message;

use crate::arguments::{Arguments, Page};
use crate::exit_code_for_failures;

/// Exit status of a program that Ctrl-C ended, as shells have it: 128 + SIGINT.
const INTERRUPTED_STATUS: u8 = 130;

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            quick: self.quick,
            rounds: self.rounds,
            tracers: self.tracers.clone(),
            seed: self.seed.unwrap_or_else(drawn_seed),
        }
    }

    /// Returns the selected suites, by names and times.
    fn chosen(&self) -> Vec<SuiteInfo> {
        let suites = CATALOGUE.suites(&self.settings()).into_iter();
        let is_chosen =
            |name: &str| self.suites.is_empty() || self.suites.iter().any(|one| one == name);
        suites.filter(|suite| is_chosen(suite.name)).collect()
    }
}

/// Draws the page of a report again.
///
/// # Errors
///
/// If the file is not a report, or the page cannot be written.
pub(crate) fn redraw_page(page: &Page, output: &mut dyn Write) -> anyhow::Result<()> {
    let report = read_report(&page.results)?;
    let parent = page.results.parent().unwrap_or(Path::new("")).to_owned();
    let folder = create_results_folder(Some(&page.out.clone().unwrap_or(parent)))?;
    let written = write_page(&report, &folder);
    written.with_context(|| format!("cannot write in {}", folder.display()))?;
    writeln!(output, "{}", folder.join("report.html").display())?;
    Ok(())
}

/// Lists the suites that the arguments choose.
///
/// # Errors
///
/// Errors of `output`.
pub(crate) fn list_suites(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<()> {
    for suite in arguments.chosen() {
        let time = format_planned_time(suite.seconds);
        let when = if suite.is_only_by_name { "; only if it is named" } else { "" };
        let (name, title, repeats) = (suite.name, suite.title, suite.repeats);
        writeln!(output, "{name:<12}  {time:>6}  {title} ({repeats}{when})")?;
    }
    let all: f64 = suites_to_measure(arguments).map(|suite| suite.seconds).sum();
    writeln!(output, "{:<12}  {:>6}", "in all", format_planned_time(all))?;
    Ok(())
}

/// Returns the suites that a run measures.
fn suites_to_measure(arguments: &Arguments) -> impl Iterator<Item = SuiteInfo> {
    let are_all = arguments.suites.is_empty();
    arguments.chosen().into_iter().filter(move |suite| !(are_all && suite.is_only_by_name))
}

/// Formats a duration for planning.
fn format_planned_time(seconds: f64) -> String {
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

/// Measures the suites and writes the tables to `output`. The status is 1 if a row failed that
/// should have worked.
///
/// # Errors
///
/// If nothing can be measured, or the results cannot be written.
pub(crate) fn measure_suites(
    arguments: &Arguments,
    output: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let options = RunOptions {
        suites: arguments.suites.clone(),
        settings: arguments.settings(),
        command: typed_command(),
    };
    // Check before minutes of measuring: misspelt names, and a folder that cannot be written.
    CATALOGUE.check(&options)?;
    let folder = create_results_folder(arguments.out.as_deref())?;
    let seconds: f64 = suites_to_measure(arguments).map(|suite| suite.seconds).sum();
    let how = if arguments.rounds.is_some() { "at most about" } else { "about" };
    message!("{how} {}, with results in {}", format_planned_time(seconds), folder.display());
    let report = CATALOGUE.run(&options, &mut |so_far: &Report| {
        // These files remain if the process is killed. An error is ignored: a full disk may have
        // room again at the end.
        let _ = write_report(so_far, &folder);
    })?;
    let written = write_report(&report, &folder);
    // The results are shown even if the disk has no room for the files.
    print_report(&report, output).context("cannot write the tables")?;
    written.with_context(|| format!("cannot write in {}", folder.display()))?;
    writeln!(output, "\n{}", folder.join("report.html").display())?;
    if report.is_partial {
        message!("trackway: interrupted: what was measured until then is kept");
        return Ok(ExitCode::from(INTERRUPTED_STATUS));
    }
    Ok(exit_code_for_failures(report.has_failures()))
}

/// Returns the folder for results, and creates it if it is missing. Files of an earlier run stay
/// until new results exist.
fn create_results_folder(wanted: Option<&Path>) -> anyhow::Result<PathBuf> {
    let folder = wanted.map_or_else(default_results_folder, Path::to_owned);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let trial = folder.join(".results.json.new");
    std::fs::write(&trial, "")
        .and_then(|()| std::fs::remove_file(&trial))
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(folder)
}

fn default_results_folder() -> PathBuf {
    let seconds = seconds_now();
    let when = local_time::format_timestamp(seconds).unwrap_or_else(|| seconds.to_string());
    format!("trackway-bench-{when}").into()
}

/// Returns the command for the report, word by word, as the user typed it after `trackway bench`.
fn typed_command() -> Vec<String> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    ["trackway", "bench"].map(str::to_owned).into_iter().chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_made_and_what_cannot_be_written_is_refused() {
        let root = std::env::temp_dir().join(format!("trackway-bench-out-{}", std::process::id()));
        let made = create_results_folder(Some(&root.join("a/b"))).expect("a folder");
        assert!(made.is_dir() && std::fs::read_dir(&made).expect("it").next().is_none());
        std::fs::write(root.join("file"), "").expect("a file");
        let error = create_results_folder(Some(&root.join("file"))).unwrap_err().to_string();
        assert!(error.starts_with("cannot make "), "{error}");
        std::fs::remove_dir_all(&root).expect("ours");
        let name = default_results_folder().display().to_string();
        assert!(name.starts_with("trackway-bench-2"), "{name}");
    }

    #[test]
    fn times_are_in_words() {
        assert_eq!(
            (format_planned_time(15.0), format_planned_time(600.0)),
            ("15 s".to_owned(), "10 min".to_owned())
        );
    }
}
