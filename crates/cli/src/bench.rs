//! `trackway bench`: starts the program `trackway-bench`, as git starts its commands.
//!
//! Main invariant: the benchmark laboratory, which measures other programs beside Trackway, is not
//! a part of the installed command. All words after `bench` are arguments of `trackway-bench`; only
//! that program defines their meaning and their help.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::anyhow;

/// The name of the program.
const BENCH_PROGRAM: &str = "trackway-bench";
/// The name of the subcommand.
const BENCH_COMMAND: &str = "bench";

/// Measure what tracing costs on this machine: starts trackway-bench.
///
/// Examples:
///
///   trackway bench --list
///   trackway bench --help
///   trackway bench tracepoint --tracers trackway,lttng
///
/// Starts the program trackway-bench with the same arguments. It is looked for beside trackway,
/// then in PATH. trackway-bench(1) describes the arguments.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// Arguments of trackway-bench
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

impl Arguments {
    /// Returns the arguments as they were typed.
    pub(crate) fn words(self) -> Vec<OsString> {
        self.words
    }
}

/// Returns the arguments of `trackway-bench` from a command line of `trackway bench`, or of a
/// request for its help; otherwise `None`. Common options may precede `bench`.
pub(crate) fn extract_bench_arguments(words: &[OsString]) -> Option<Vec<OsString>> {
    let mut rest = words.iter().skip(1);
    let (mut common, mut is_help) = (Vec::new(), false);
    loop {
        let word = rest.next()?;
        match word.to_str()? {
            "--color" => common.extend([word.clone(), rest.next()?.clone()]),
            other if other.starts_with("--color=") => common.push(word.clone()),
            "help" if !is_help => is_help = true,
            BENCH_COMMAND => break,
            _ => return None,
        }
    }
    let mut found: Vec<OsString> = rest.cloned().collect();
    let end = found.iter().position(|word| word == "--").unwrap_or(found.len());
    let help = is_help.then(|| OsString::from("--help"));
    found.splice(end..end, help.into_iter().chain(common));
    Some(found)
}

/// Replaces this process by `trackway-bench` with these arguments; returns only if that fails.
pub(crate) fn exec_program(words: &[OsString]) -> anyhow::Error {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(BENCH_PROGRAM));
    for program in beside.into_iter().chain(candidates_in_path(std::env::var_os("PATH").as_deref()))
    {
        let error = Command::new(&program).args(words).exec();
        if error.kind() != io::ErrorKind::NotFound {
            let what = format!("cannot start {}", program.display());
            return anyhow::Error::new(trackway_console::IoError::from(error)).context(what);
        }
    }
    anyhow!(BenchNotInstalled)
}

/// Returns the program's possible paths in the folders of `PATH`, in order.
fn candidates_in_path(path: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    let folders: Vec<PathBuf> = path.map(std::env::split_paths).into_iter().flatten().collect();
    folders
        .into_iter()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(BENCH_PROGRAM))
}

/// The error that `trackway-bench` is not installed.
#[derive(Debug)]
pub(crate) struct BenchNotInstalled;

impl BenchNotInstalled {
    /// Returns advice for the user.
    pub(crate) const fn hint(&self) -> &'static str {
        "make build and make install of Trackway's sources build and install trackway-bench beside \
         trackway"
    }
}

impl std::fmt::Display for BenchNotInstalled {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "cannot find {BENCH_PROGRAM}, neither beside trackway nor in PATH")
    }
}

impl std::error::Error for BenchNotInstalled {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_after_bench_are_the_other_programs() {
        let found = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let found = extract_bench_arguments(&words)?;
            let found: Vec<_> = found.iter().map(|word| word.to_string_lossy()).collect();
            Some(found.join(" "))
        };
        for (typed, passed) in [
            ("trackway bench", ""),
            ("trackway bench --help", "--help"),
            ("trackway bench doctor --json", "doctor --json"),
            ("trackway help bench", "--help"),
            ("trackway help bench compare", "compare --help"),
            ("trackway --color never bench doctor", "doctor --color never"),
            ("trackway --color=never help bench --help-all", "--help-all --help --color=never"),
            ("trackway bench tracepoint -- x", "tracepoint -- x"),
            ("trackway --color always bench size -- x", "size --color always -- x"),
        ] {
            assert_eq!(found(typed).as_deref(), Some(passed), "{typed}");
        }
        for other in ["trackway", "trackway --help bench", "trackway record bench", "trackway help"]
        {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn folders_of_the_path_are_searched_in_order_and_the_working_folder_is_not() {
        let found: Vec<PathBuf> = candidates_in_path(Some(OsStr::new("/a:b::/c"))).collect();
        assert_eq!(found, ["/a/trackway-bench", "/c/trackway-bench"].map(PathBuf::from));
        assert_eq!(candidates_in_path(None).count(), 0);
    }
}
