//! The cost of the preload helper `libc` for a program that allocates memory: with and without a
//! session, next to LTTng's wrapper library; and the cost of the helper for programs in common use.
//!
//! ```text
//! setups    the program alone, interposed, with a helper, recorded
//! programs  installed programs, and their work
//! ```
//!
//! Main invariant: the account of a recorded row has as many events as the program made calls.

mod programs;
mod setups;

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::host::machine::allowed_cpus;
use trackway_bench_engine::host::process_run;
use trackway_bench_engine::host::workload;
use trackway_bench_engine::ratios::{
    Estimate, FigureFormat, FiguresByRound, bar_all_at_most, bar_at_most,
};
use trackway_bench_engine::results::{Bar, Row, RowStatus, SuiteRows, Unit};
use trackway_bench_engine::settings::Settings;
use trackway_bench_engine::suite::{About, Entry, Sample, Suite, SuiteContext};

use programs::InstalledProgram;
use setups::{Program, Setup, Setups};

/// The suite's name.
const SUITE_NAME: &str = "preload";
/// Batches that are not counted, in which the allocator gets its memory.
const WARM_UP: u32 = 3;
/// Largest cost of an idle helper for a program that allocates a lot, in percent.
const IDLE_PERCENT: f64 = 2.0;
/// Ways in which installed programs are run.
const REAL_SETUPS: [Setup; 3] = [Setup::Plain, Setup::Interposed, Setup::Idle];

/// The program of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowProgram {
    /// A program of the bench (`workloads/allocate.c`).
    Made(Program),
    /// An installed program, by its index.
    Installed(usize),
}

/// A row of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PreloadRow {
    row_program: RowProgram,
    setup: Setup,
    /// Number of measurements of the row so far.
    times: usize,
}

/// The built and installed programs.
struct PreparedPrograms {
    setups: Setups,
    /// Installed programs, and the number of allocator calls of each.
    installed: Vec<(InstalledProgram, u64)>,
    /// CPUs that this process may use.
    cpus: Vec<usize>,
}

/// The suite `preload`.
#[derive(Default)]
pub(crate) struct Preload {
    made: Option<PreparedPrograms>,
    rows: Vec<PreloadRow>,
}

impl Suite for Preload {
    fn about(&self) -> About {
        About {
            name: SUITE_NAME,
            title: "What the preload helper libc costs programs that allocate",
            repeats: "LTTng's libc-wrapper, and installed programs",
            unit: Unit::NsPerCall,
            x_axis: "",
        }
    }

    fn is_only_by_name(&self) -> bool {
        true
    }

    fn seconds(&self, settings: &Settings) -> f64 {
        if settings.quick { 30.0 } else { 360.0 }
    }

    fn tracers(&self) -> Vec<&'static str> {
        Setup::ALL.map(Setup::tracer).into()
    }

    fn enter(&mut self, context: &SuiteContext<'_>) -> Result<Vec<Entry>> {
        let wants = |setup: Setup| setup == Setup::Plain || context.settings.wants(setup.tracer());
        let setups = Setups::set_up(context)?;
        let mut entries = Vec::new();
        for program in Program::ALL {
            for setup in Setup::ALL.into_iter().filter(|setup| wants(*setup)) {
                entries.push(self.entry(RowProgram::Made(program), program.name(), setup));
                setups.set_absence(setup, entries.last_mut());
            }
        }
        let (programs, absent) = programs::prepare_installed_programs(context.workspace)?;
        let mut installed = Vec::new();
        for program in programs {
            context.progress.show_step(&format!("{}: counting", program.name));
            let counted = match setups.count_calls(context.workspace, &program) {
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                counted => counted,
            };
            for setup in REAL_SETUPS.into_iter().filter(|setup| wants(*setup)) {
                entries.push(self.entry(
                    RowProgram::Installed(installed.len()),
                    program.name,
                    setup,
                ));
                setups.set_absence(setup, entries.last_mut());
                if let (Some(entry), Err(error)) = (entries.last_mut(), &counted) {
                    entry.failed = Some(error.to_string());
                }
            }
            installed.push((program, counted.unwrap_or_default()));
        }
        for one in absent {
            let entry = self.entry(RowProgram::Installed(installed.len()), one.name, Setup::Plain);
            entries.push(Entry { absent: Some(one.reason), ..entry });
        }
        self.made = Some(PreparedPrograms { setups, installed, cpus: allowed_cpus()? });
        self.add_control(&mut entries);
        Ok(entries)
    }

    fn sample(&mut self, context: &SuiteContext<'_>, row: usize) -> Result<Sample> {
        let made =
            self.made.as_ref().ok_or_else(|| Error::output(SUITE_NAME, "it has not begun"))?;
        let turn = &mut self.rows[row];
        turn.times += 1;
        match turn.row_program {
            RowProgram::Made(program) => {
                let batches = WARM_UP + if context.settings.quick { 3 } else { 6 };
                let run = made.setups.run(context.workspace, turn.setup, program, batches)?;
                let figure = workload::median_event_ns(&run.batches, WARM_UP)?;
                Ok(Sample { figure, account: run.account, ..Sample::default() })
            }
            RowProgram::Installed(at) => {
                let (program, calls) = &made.installed[at];
                // All measurements of one round run on one CPU, the next round on another.
                let cpu = &made.cpus[turn.times % made.cpus.len()..][..1];
                let command =
                    made.setups.installed_command(context.workspace, program, turn.setup)?;
                let cpu_ms = process_run::run(command, program.name, cpu)?.cpu_seconds * 1e3;
                let extra = vec![("allocator calls a ms", *calls as f64 / cpu_ms)];
                Ok(Sample { figure: cpu_ms, extra, ..Sample::default() })
            }
        }
    }

    fn leave(&mut self) {
        self.made = None;
        self.rows.clear();
    }
}

impl Preload {
    /// Makes a row. Its baseline is the row of the same program alone, which comes first.
    fn entry(&mut self, row_program: RowProgram, case: &str, setup: Setup) -> Entry {
        let alone =
            |turn: &PreloadRow| turn.row_program == row_program && turn.setup == Setup::Plain;
        let baseline = self.rows.iter().position(alone);
        self.rows.push(PreloadRow { row_program, setup, times: 0 });
        Entry {
            tracer: setup.tracer().to_owned(),
            case: case.to_owned(),
            unit: matches!(row_program, RowProgram::Installed(_)).then_some(Unit::Ms),
            records: matches!(setup, Setup::Recorded | Setup::LttngRecorded),
            baseline,
            command: format!("trackway bench {SUITE_NAME} --tracers {}", setup.tracer()),
            ..Entry::default()
        }
    }

    /// Adds the control, which repeats the first row.
    fn add_control(&mut self, entries: &mut Vec<Entry>) {
        let Some(first) = entries.first().filter(|first| first.can_be_measured()) else { return };
        let tracer = format!("{} again", first.tracer);
        entries.push(Entry { tracer, is_control: true, baseline: Some(0), ..first.clone() });
        self.rows.push(PreloadRow { times: 0, ..self.rows[0] });
    }
}

/// Returns the goals for the helper's cost.
pub(crate) fn judge_goals(suite: &SuiteRows) -> Vec<Bar> {
    let row = |setup: Setup, program: Program| suite.row(setup.tracer(), program.name());
    let percent = |row: Option<&Row>| {
        Estimate::ratio_to_baseline(suite, row).map(|told| told.map(|times| (times - 1.0) * 100.0))
    };
    let beyond = |setup| FiguresByRound::above_baseline(suite, row(setup, Program::Words));
    let pairs = |setup| FiguresByRound::of(row(setup, Program::Pairs));
    // A program that is not installed has no row that can miss the goal.
    let is_installed = |row: &&Row| {
        row.tracer == Setup::Idle.tracer()
            && row.unit == Unit::Ms
            && row.status != RowStatus::Absent
    };
    let installed = suite.rows.iter().filter(is_installed);
    let figures =
        installed.clone().filter_map(|row| Some((percent(Some(row))?.at_most(), &row.case)));
    let worst = figures.max_by(|one, other| one.0.total_cmp(&other.0));
    let name = worst.map_or_else(String::new, |(_, case)| format!(", {case}"));
    vec![
        bar_at_most(
            "words: an idle helper costs at most 2 %",
            percent(row(Setup::Idle, Program::Words)),
            IDLE_PERCENT,
            FigureFormat::signed(1, "%"),
        ),
        bar_all_at_most(
            &format!("installed programs: at most 2 % in the worst case{name}"),
            installed.map(|row| percent(Some(row))),
            IDLE_PERCENT,
            FigureFormat::signed(1, "%"),
        ),
        bar_at_most(
            "pairs: idle, 0.5 ns more than a bare function between",
            pairs(Setup::Idle).less(&pairs(Setup::Interposed)).estimate(),
            0.5,
            FigureFormat::signed(2, "ns"),
        ),
        bar_at_most(
            "words: recording costs less than LTTng's",
            beyond(Setup::Recorded).over(&beyond(Setup::LttngRecorded)).estimate(),
            1.0,
            FigureFormat::PART,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use trackway_bench_engine::results::Verdict;
    use trackway_bench_engine::results::fixtures::{steady_row, suite_of_rows};
    use trackway_bench_engine::stats::Ratio;

    use super::*;

    #[test]
    fn bars_follow_the_figures() {
        let row = |setup: Setup, case: &str, ns: f64, times: f64| Row {
            times: Ratio::of(&[times; 8]),
            ..steady_row(setup.tracer(), case, ns)
        };
        let installed = |case: &str, times: f64| Row {
            unit: Unit::Ms,
            ..row(Setup::Idle, case, 200.0 * times, times)
        };
        let found = suite_of_rows([
            row(Setup::Idle, "words", 40.5, 1.0125),
            row(Setup::Recorded, "words", 60.0, 1.5),
            row(Setup::Interposed, "pairs", 5.5, 1.1),
            row(Setup::Idle, "pairs", 6.5, 1.3),
            installed("perl", 1.01),
            installed("git", 1.002),
        ]);
        let told: Vec<(String, Verdict)> =
            judge_goals(&found).into_iter().map(|bar| (bar.measured, bar.verdict)).collect();
        let expected = [
            ("+1.2 % (+1.2 to +1.2)".to_owned(), Verdict::Holds),
            ("+1.0 % (+1.0 to +1.0)".to_owned(), Verdict::Holds),
            ("+1.00 ns (+1.00 to +1.00)".to_owned(), Verdict::Misses),
            ("not measured".to_owned(), Verdict::Unknown),
        ];
        assert_eq!(told, expected);
        assert!(judge_goals(&found)[1].what.ends_with(", perl"));
    }

    #[test]
    fn rows_are_beside_the_same_program_alone() {
        let mut suite = Preload::default();
        let mut entries = vec![
            suite.entry(RowProgram::Made(Program::Words), "words", Setup::Plain),
            suite.entry(RowProgram::Made(Program::Words), "words", Setup::Recorded),
            suite.entry(RowProgram::Installed(0), "git", Setup::Plain),
            suite.entry(RowProgram::Installed(0), "git", Setup::Idle),
        ];
        suite.add_control(&mut entries);
        let baseline: Vec<Option<usize>> = entries.iter().map(|entry| entry.baseline).collect();
        assert_eq!(baseline, [None, Some(0), None, Some(2), Some(0)]);
        assert!(entries[1].records && !entries[3].records && entries[4].is_control);
        assert_eq!((entries[0].unit, entries[3].unit), (None, Some(Unit::Ms)));
    }
}
