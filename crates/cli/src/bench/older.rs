//! Benches that have rounds and results of their own: what becomes a suite goes from here.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use trackway_lab::SessionsOptions;

/// What is to be measured.
#[derive(Debug, clap::Subcommand)]
pub(super) enum What {
    /// What sessions cost: several on one event, events switched on, recorders, short processes
    ///
    /// An event that 1, 2, 4 and 32 sessions record; the time from trackway event on to the first
    /// event in a running program; what recorders take of the CPUs at a million events a second,
    /// and idle; how long a session's stop and a channel's replacement take; short-lived processes,
    /// up to a thousand a second; memory of idle sessions. Beside LTTng's sessions where that is
    /// installed; every event is looked for in the traces. Figures of different machines do not
    /// compare; ratios do.
    #[command(after_help = "Examples:\n  trackway bench sessions --quick\n  \
                            trackway bench sessions --seconds 600 --json sessions.json")]
    Sessions(Sessions),
}

/// Arguments of `trackway bench sessions`.
#[derive(Debug, clap::Args)]
pub(super) struct Sessions {
    /// One minute instead of eight: to see that all works, not for figures
    #[arg(long)]
    quick: bool,
    /// Measure so many rounds [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Start short-lived processes for so many seconds [default: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_000))]
    seconds: Option<u32>,
    /// Write all figures to FILE, too
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "results-sessions.json"
    )]
    json: Option<PathBuf>,
}

impl What {
    /// Where the figures go.
    fn file(&self) -> Option<&Path> {
        match self {
            Self::Sessions(arguments) => &arguments.json,
        }
        .as_deref()
    }
}

/// Whether there can be such a file: that is to be known before minutes of measuring. What it has
/// stays until then.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let is_new = std::fs::symlink_metadata(path).is_err();
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if is_new {
        // An empty one would be taken for results.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Runs it, with the table on `output`. Whether something failed that should have worked.
///
/// # Errors
///
/// If nothing can be measured, or the results cannot be written.
pub(super) fn run(what: &What, output: &mut dyn Write) -> anyhow::Result<bool> {
    what.file().map_or(Ok(()), check_writable)?;
    match what {
        What::Sessions(arguments) => sessions(arguments, output),
    }
}

/// Whether something failed.
fn sessions(arguments: &Sessions, output: &mut dyn Write) -> anyhow::Result<bool> {
    let options = SessionsOptions {
        quick: arguments.quick,
        rounds: arguments.rounds,
        seconds: arguments.seconds,
    };
    let results = trackway_lab::run_sessions(&options)?;
    save(arguments.json.as_deref(), || results.to_json())?;
    trackway_lab::print_sessions(&results, output).context("cannot write the table")?;
    Ok(results.has_failures())
}

/// Writes what `json` makes to the file `path`, if there is one.
fn save<E>(path: Option<&Path>, json: impl FnOnce() -> Result<String, E>) -> anyhow::Result<()>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let Some(path) = path else { return Ok(()) };
    let write = || anyhow::Ok(std::fs::write(path, json()?)?);
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_written_are_refused_and_others_are_as_they_were() {
        let folder = std::env::temp_dir().join(format!("trackway-bench-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let (new, old) = (folder.join("new"), folder.join("old"));
        std::fs::write(&old, "figures").expect("a file");
        for path in [&new, &old] {
            check_writable(path).expect("it can be");
        }
        assert!(!new.exists());
        assert_eq!(std::fs::read_to_string(&old).expect("a file"), "figures");
        for path in [&folder, &folder.join("none/new")] {
            let error = check_writable(path).expect_err("no file").to_string();
            assert!(error.starts_with("cannot write "), "{error}");
        }
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
