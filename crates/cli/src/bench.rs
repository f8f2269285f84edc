//! `trackway bench`: what tracing costs on this machine, beside the other tracers.
//!
//! The measuring is `trackway_lab`'s; here is only what the command line says and where the
//! results go.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use trackway_lab::{Error, Options};

/// Exit status of a program that Ctrl-C ended, as shells have it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Arguments of `trackway bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trackway bench tracepoint\n  \
                        trackway bench tracepoint --only lttng --rounds 10 --json lttng.json")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

/// What is to be measured.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// What an event costs: Trackway beside the clock, a lower bound, and LTTng-UST
    ///
    /// Small C programs are compiled here and measured in interleaved rounds; after each run,
    /// every event is looked for in what the tracer itself recorded. Tracers that are not
    /// installed are skipped. Figures of different machines do not compare; ratios do.
    #[command(after_help = "Examples:\n  trackway bench tracepoint --quick\n  \
                            trackway bench tracepoint --json results.json")]
    Tracepoint(Tracepoint),
}

/// Arguments of `trackway bench tracepoint`.
#[derive(Debug, clap::Args)]
struct Tracepoint {
    /// Ten seconds instead of a minute: to see that all works, not for figures
    #[arg(long)]
    quick: bool,
    /// Measure so many rounds, instead of as many as a minute has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Only tracers whose name contains PATTERN
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Write all figures to FILE, too
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "results.json"
    )]
    json: Option<PathBuf>,
}

/// Runs it, with the table on `output`. 1 if something failed that should have worked.
///
/// # Errors
///
/// If nothing can be measured, or the results cannot be written.
pub(crate) fn run(arguments: &Arguments, output: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let What::Tracepoint(arguments) = &arguments.what;
    let options =
        Options { quick: arguments.quick, rounds: arguments.rounds, only: arguments.only.clone() };
    let results = match trackway_lab::run(&options) {
        Ok(results) => results,
        Err(Error::Interrupted) => {
            eprintln!("trackway: interrupted");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    };
    // First to the file: a pipe that was closed early must not cost the figures.
    if let Some(path) = &arguments.json {
        let write = || anyhow::Ok(std::fs::write(path, results.to_json()?)?);
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    trackway_lab::print(&results, output).context("cannot write the table")?;
    Ok(if results.has_failures() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}
