//! `trackway bench compare`: changes between two reports.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use trackway_bench_engine::report::compare::{self, read_report};

/// Compare two results.json, and show how sure each change is
///
/// Rows are compared by ranks of their rounds' figures, relative to a program that is not
/// Trackway's in the same rounds, where both reports have one: so a slower machine makes no tracer
/// slower. Chances are corrected for the number of rows. Sure changes are listed row by row:
/// slower, faster, in one only, failed; the rest is counted, unless --all is given. The exit status
/// is 0; with --fail-on slower it is 1 if a row is surely slower or larger, or was measured before
/// and has failed now; 2 if a file is not a report.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
                  trackway bench compare before/results.json after/results.json\n  \
                  trackway bench compare A.json B.json --tracers trackway --fail-on slower\n  \
                  trackway bench compare A.json B.json --json | \
                  jq '.rows[]|select(.verdict==\"worse\")'")]
pub(crate) struct Arguments {
    /// Results before the change
    #[arg(value_name = "FILE")]
    before: PathBuf,
    /// Results after the change
    #[arg(value_name = "FILE")]
    after: PathBuf,
    /// Only tracers of these names, or with these words before a '-'
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tracers: Vec<String>,
    /// Show also rows that did not change
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print JSON, with all rows
    #[arg(long)]
    json: bool,
    /// Exit with status 1 if something is so, surely
    #[arg(long, value_name = "WHAT", value_enum)]
    fail_on: Option<FailOn>,
}

/// The outcome that counts as a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailOn {
    /// A row is slower or larger, or has failed
    Slower,
}

/// Compares two reports, and writes the tables to `output`.
///
/// # Errors
///
/// If `before` or `after` is not a report, or if writing to `output` fails.
pub(crate) fn run(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let before = read_report(&arguments.before)?;
    let after = read_report(&arguments.after)?;
    let found = compare::compare_reports(&before, &after, &arguments.tracers);
    if arguments.json {
        output.write_all(found.to_json()?.as_bytes())?;
    } else {
        compare::print_comparison(&found, arguments.all, output)?;
    }
    let fails = arguments.fail_on == Some(FailOn::Slower) && found.has_worse();
    Ok(crate::exit_code_for_failures(fails))
}
