//! `trackway bench doctor`: disturbances of measurements on this machine.

use std::io::Write;
use std::process::ExitCode;

use trackway_bench_engine::host::doctor::{count_disturbances, print_findings, run_all_checks};
use trackway_bench_suites::CATALOGUE;

/// Find disturbances of measurements, their effects and remedies
///
/// Takes two seconds, in which other processes and a test loop are observed. Nothing is changed.
/// The exit status is 0 without a known disturbance, and 1 with one; programs that are not
/// installed are listed, and are no disturbance.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trackway bench doctor\n  trackway bench doctor --json")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the checks, and writes the findings to `output`.
///
/// # Errors
///
/// Errors of `output`.
pub(crate) fn run(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let found = run_all_checks(&CATALOGUE.requirements);
    let disturbing = count_disturbances(&found);
    if arguments.json {
        let json = serde_json::json!({ "disturbing": disturbing, "checks": found });
        writeln!(output, "{json}")?;
    } else {
        print_findings(&found, output)?;
    }
    Ok(crate::exit_code_for_failures(disturbing > 0))
}
