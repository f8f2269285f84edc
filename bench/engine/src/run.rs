//! A run: measures suites one after another, keeps their results, and removes leftovers of killed
//! runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::host::cleanup_shell::CleanupShell;
use crate::host::machine::{self, Machine};
use crate::host::requirements::Requirements;
use crate::host::workload::Source;
use crate::host::workspace::{BuildTools, Workspace};
use crate::progress::Progress;
use crate::report::page::render_page;
use crate::results::{BUILD_KEYS, Bar, EndReason, Note, REPORT_FORMAT, Report, SuiteRows};
use crate::rounds;
use crate::settings::Settings;
use crate::signals;
use crate::suite::{About, Suite, SuiteContext};
use crate::tracer_names;

/// Load average for each CPU from which on the machine counts as busy.
const BUSY_LOAD_PER_CPU: f64 = 0.25;

/// The choice of suites, settings and output of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// Names of suites; if empty, all suites except those that run only by name.
    pub suites: Vec<String>,
    /// Settings of the measurement.
    pub settings: Settings,
    /// The command, word by word, for the report.
    pub command: Vec<String>,
}

/// The description of a suite, for lists and selection.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteInfo {
    /// Name of the suite.
    pub name: &'static str,
    /// Heading of the suite.
    pub title: &'static str,
    /// The paper, and its figure or table, that the suite repeats.
    pub repeats: &'static str,
    /// Approximate duration of the suite, in seconds.
    pub seconds: f64,
    /// True if the suite runs only if the user names it.
    pub is_only_by_name: bool,
}

/// The suites and their requirements: the interface between the engine and the suites' crate.
#[derive(Debug, Clone, Copy)]
pub struct Catalogue {
    /// Makes all suites, in the order of [`crate::results::SUITES`].
    pub suites: fn() -> Vec<Box<dyn Suite>>,
    /// Judges a report by Trackway's goals.
    pub goals: fn(&Report) -> Vec<Bar>,
    /// Requirements of the suites on the machine.
    pub requirements: Requirements,
    /// Sources of the workloads, which are written to the scratch folder.
    pub sources: &'static [Source],
}

/// Returns the seconds since 1970.
pub fn seconds_now() -> i64 {
    (trackway_sys::clock::realtime_ns() / 1_000_000_000).cast_signed()
}

impl Catalogue {
    /// Returns all suites, with their durations under these settings.
    pub fn suites(&self, settings: &Settings) -> Vec<SuiteInfo> {
        let info = |suite: Box<dyn Suite>| {
            let About { name, title, repeats, .. } = suite.about();
            let seconds = rounds::estimate_seconds(suite.as_ref(), settings);
            let is_only_by_name = suite.is_only_by_name();
            SuiteInfo { name, title, repeats, seconds, is_only_by_name }
        };
        (self.suites)().into_iter().map(info).collect()
    }

    /// Returns the names of all tracers of the suites, each once, in alphabetical order.
    pub fn tracer_names(&self) -> Vec<&'static str> {
        let names: BTreeSet<&str> = list_tracers(&(self.suites)()).into_iter().collect();
        names.into_iter().collect()
    }

    /// Checks that a run with these options is possible.
    ///
    /// # Errors
    ///
    /// If a suite is unknown, or no tracer has one of the selected names.
    pub fn check(&self, options: &RunOptions) -> Result<()> {
        self.choose(&options.suites)?;
        tracer_names::check_words(&options.settings.tracers, &self.tracer_names())
    }

    /// Measures the suites, and passes the results so far to `keep` after each round.
    ///
    /// Tracers that are not available are absent, with their reason; a tracer that fails costs its
    /// own rows. Catches SIGINT, SIGTERM and SIGHUP: then the report contains the results so far,
    /// and is partial. All processes are ended and all files removed before this function returns,
    /// or soon after this process is killed.
    ///
    /// # Errors
    ///
    /// If a suite is unknown, or no row can be measured.
    pub fn run(
        &self,
        options: &RunOptions,
        keep: &mut dyn FnMut(&Report),
    ) -> std::result::Result<Report, Error> {
        let mut chosen = self.choose(&options.suites)?;
        signals::install_handlers();
        let tools = BuildTools::find()?;
        crate::host::workspace::remove_leftovers();
        crate::host::tracefs::remove_leftovers();
        let workspace = Workspace::new(tools, self.sources)?;
        let _cleanup_shell =
            CleanupShell::of_folders([&workspace.path(""), workspace.window_dir()])?;
        let progress = Progress::new();
        let mut report = begin_report(options, self.requirements, &workspace.tools);
        for word in tracer_names::unused_words(&options.settings.tracers, &list_tracers(&chosen)) {
            report.notes.push(Note::skipped(word, "no suite that was asked for has such a tracer"));
        }
        let (settings, cpus) = (&options.settings, report.machine.cpus);
        let context = SuiteContext { workspace: &workspace, progress: &progress, settings, cpus };
        let began = Instant::now();
        for at in 0..chosen.len() {
            // The estimate only includes the remaining suites, not deviations of earlier ones.
            let left: f64 = chosen[at..]
                .iter()
                .map(|suite| rounds::estimate_seconds(suite.as_ref(), settings))
                .sum();
            progress.expect(left);
            let suite = &mut chosen[at];
            let name = suite.about().name;
            let mut so_far = report.clone();
            let found = rounds::measure_suite(suite.as_mut(), &context, &mut |rows| {
                so_far.suites.insert(name.to_owned(), rows.clone());
                so_far.seconds = began.elapsed().as_secs_f64();
                so_far.bars = (self.goals)(&so_far);
                keep(&so_far);
            });
            report.seconds = began.elapsed().as_secs_f64();
            debug_assert!(
                has_only_listed_tracers(suite.as_ref(), &found),
                "{name} has a row that no word chooses"
            );
            let is_over = add_suite_result(&mut report, name, found);
            report.bars = (self.goals)(&report);
            if is_over {
                return Ok(report);
            }
            keep(&report);
        }
        report.is_partial = false;
        Ok(report)
    }

    /// Returns the suites with these names, each once, in the order of measurement.
    fn choose(&self, names: &[String]) -> Result<Vec<Box<dyn Suite>>> {
        let all = (self.suites)();
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
}

/// Returns the names of the tracers of these suites; a name may repeat.
fn list_tracers(suites: &[Box<dyn Suite>]) -> Vec<&'static str> {
    suites.iter().flat_map(|suite| suite.tracers()).collect()
}

/// Returns true if each row belongs to one of the tracers that its suite lists.
fn has_only_listed_tracers(suite: &dyn Suite, found: &Result<SuiteRows>) -> bool {
    let rows = found.iter().flat_map(|found| &found.rows);
    rows.into_iter().all(|row| tracer_names::is_listed(&suite.tracers(), &row.tracer))
}

/// Adds a suite's result. Returns true if the user has interrupted the run.
fn add_suite_result(report: &mut Report, name: &str, found: Result<SuiteRows>) -> bool {
    match found {
        Ok(rows) => {
            let is_over = rows.ended == EndReason::Interrupted;
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

fn begin_report(options: &RunOptions, requirements: Requirements, tools: &BuildTools) -> Report {
    let machine = Machine::current();
    let mut report = Report {
        format: REPORT_FORMAT,
        begun_ns: trackway_sys::clock::realtime_ns(),
        seconds: 0.0,
        is_partial: true,
        command: options.command.clone(),
        settings: options.settings.clone(),
        machine,
        versions: collect_versions(requirements, tools),
        suites: BTreeMap::new(),
        bars: Vec::new(),
        notes: Vec::new(),
    };
    report.notes.extend(note_if_busy(&report.machine));
    report
}

/// Returns a note if the machine is busy, which makes figures unreliable; the run continues.
fn note_if_busy(machine: &Machine) -> Option<Note> {
    let load: f64 = machine.load.parse().unwrap_or(0.0);
    let text = format!(
        "a load of {load} on {} CPUs when this began: what others did is in the figures",
        machine.cpus
    );
    let about = "the machine is busy".to_owned();
    let is_busy = load > BUSY_LOAD_PER_CPU * machine.cpus as f64;
    is_busy.then_some(Note { about, text, is_failure: false })
}

/// Returns the versions of installed programs, from their own output, and the measured builds of
/// Trackway.
fn collect_versions(requirements: Requirements, tools: &BuildTools) -> BTreeMap<String, String> {
    let ours = [(BUILD_KEYS[0], Some(&tools.trackway)), (BUILD_KEYS[1], tools.library.as_ref())];
    let ours = ours.into_iter().filter_map(|(name, file)| {
        let build = machine::read_build_id(file?)?;
        Some((name.to_owned(), build))
    });
    let found =
        requirements.programs.iter().filter(|need| !need.version.is_empty()).filter_map(|need| {
            let line = machine::first_output_line(need.name, &[need.version])?;
            Some((need.name.to_owned(), line))
        });
    found.chain(ours).collect()
}

/// Writes only the page of a report to `folder`, as `report.html`.
///
/// # Errors
///
/// Errors of the file system.
pub fn write_page(report: &Report, folder: &Path) -> std::io::Result<()> {
    write_atomically(folder, "report.html", &render_page(report))
}

/// Writes a file as a whole or not at all, even if the machine stops: the new file is on the disk
/// before it replaces the old one. This takes some 20 ms, between rounds.
fn write_atomically(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let new = folder.join(format!(".{name}.new"));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, folder.join(name))
    });
    // A half-written file is removed.
    written.inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// Writes a report to `folder`, as `results.json` and `report.html`, each as a whole or not at all.
///
/// # Errors
///
/// Errors of the file system.
pub fn write_report(report: &Report, folder: &Path) -> std::io::Result<()> {
    let json = report.to_json().map_err(std::io::Error::other)?;
    write_atomically(folder, "results.json", &json)?;
    write_page(report, folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_REQUIREMENTS: Requirements = Requirements { programs: &[], headers: &[] };

    /// A suite that only has a name.
    struct NamedSuite(&'static str);

    impl Suite for NamedSuite {
        fn about(&self) -> About {
            let (unit, x_axis) = (crate::results::Unit::Ns, "");
            About { name: self.0, title: "Named", repeats: "nothing", unit, x_axis }
        }

        fn is_only_by_name(&self) -> bool {
            self.0 == "spans"
        }

        fn seconds(&self, _: &Settings) -> f64 {
            1.0
        }

        fn tracers(&self) -> Vec<&'static str> {
            Vec::new()
        }

        fn enter(&mut self, _: &SuiteContext<'_>) -> Result<Vec<crate::suite::Entry>> {
            Ok(Vec::new())
        }

        fn sample(&mut self, _: &SuiteContext<'_>, _: usize) -> Result<crate::suite::Sample> {
            Err(Error::Interrupted)
        }

        fn leave(&mut self) {}
    }

    fn named_suites() -> Vec<Box<dyn Suite>> {
        let suite = |name| Box::new(NamedSuite(name)) as Box<dyn Suite>;
        ["tracepoint", "scaling", "spans"].map(suite).into()
    }

    #[test]
    fn suites_are_chosen_by_name() {
        let catalogue = Catalogue {
            suites: named_suites,
            goals: |_| Vec::new(),
            requirements: NO_REQUIREMENTS,
            sources: &[],
        };
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            let chosen = catalogue.choose(&wanted);
            chosen.map(|all| all.iter().map(|suite| suite.about().name).collect::<Vec<&str>>())
        };
        assert_eq!(names(&["scaling", "tracepoint"]).expect("two"), ["tracepoint", "scaling"]);
        assert_eq!(names(&[]).expect("most"), ["tracepoint", "scaling"]);
        assert_eq!(names(&["spans"]).expect("one"), ["spans"]);
        let error = names(&["speed"]).unwrap_err().to_string();
        assert!(error.starts_with("speed: there is no such suite; there are tracepoint, "));
    }

    #[test]
    fn files_take_the_place_of_those_before_or_leave_them() {
        let folder =
            std::env::temp_dir().join(format!("trackway-lab-whole-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        for text in ["one", "two"] {
            write_atomically(&folder, "file", text).expect("written");
            assert_eq!(std::fs::read_to_string(folder.join("file")).expect("a file"), text);
        }
        // A failed replacement leaves no temporary file.
        std::fs::create_dir(folder.join("taken")).expect("a folder");
        write_atomically(&folder, "taken", "three").expect_err("a folder is there");
        let names = std::fs::read_dir(&folder).expect("a folder").count();
        std::fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(names, 2);
    }

    #[test]
    fn reports_go_round_and_others_are_refused() {
        let report = begin_report(
            &RunOptions::default(),
            NO_REQUIREMENTS,
            &BuildTools::without_parts("trackway".into()),
        );
        let text = report.to_json().expect("text");
        assert_eq!(Report::from_json(&text).expect("a report"), report);
        let other = text.replacen("\"format\": 2", "\"format\": 1", 1);
        let error = Report::from_json(&other).unwrap_err().to_string();
        assert!(error.starts_with("it is of version 1, not 2"), "{error}");
    }
}
