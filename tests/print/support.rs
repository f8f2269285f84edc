//! Support of the reader's end-to-end tests: `trackway print` and babeltrace2 run with the same
//! arguments, and their outputs are compared to the byte.
#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// Seconds after which a running reader counts as hanging. A working reader never takes that long:
/// the time is not a measurement.
const TIMEOUT_SECONDS: &str = "120";

/// Returns a command that `timeout` kills when it hangs, with exit status 124.
pub(crate) fn command_with_timeout(fixture: &Fixture, program: impl AsRef<OsStr>) -> Command {
    let mut command = fixture.command("timeout");
    command.args(["-k", "5", TIMEOUT_SECONDS]).arg(program);
    command
}

/// Returns `trackway print` without further arguments.
pub(crate) fn print_command_with_timeout(fixture: &Fixture) -> Command {
    let mut command = command_with_timeout(fixture, build_dir().join("trackway"));
    command.arg("print");
    command
}

/// Runs `trackway print` with these arguments.
pub(crate) fn run_print<S: AsRef<OsStr>>(fixture: &Fixture, arguments: &[S]) -> Output {
    print_command_with_timeout(fixture).args(arguments).output().expect("timeout runs")
}

/// Runs babeltrace2 with these arguments.
pub(crate) fn run_babeltrace<S: AsRef<OsStr>>(fixture: &Fixture, arguments: &[S]) -> Output {
    command_with_timeout(fixture, "babeltrace2").args(arguments).output().expect("timeout runs")
}

/// Returns true if babeltrace2 is installed; prints a message if it is not.
pub(crate) fn has_babeltrace() -> bool {
    let there = has("babeltrace2");
    if !there {
        report_skipped("babeltrace2 is not installed");
    }
    there
}

/// Returns the number in an environment variable, if it is set.
pub(crate) fn number_from_env(variable: &str, otherwise: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Returns the path of a file in this folder, for example a script.
pub(crate) fn script_path(name: &str) -> PathBuf {
    source_dir().join("tests/print").join(name)
}

/// Returns the standard error as text.
pub(crate) fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the losses that a reader reports: the lines on standard error about discarded events and
/// packets. Other lines differ on purpose: babeltrace2 also writes its log to standard error.
pub(crate) fn reported_losses(output: &Output) -> Vec<String> {
    stderr_text(output)
        .lines()
        .filter(|line| line.contains("discarded"))
        .map(str::to_owned)
        .collect()
}

/// Returns the first difference between two texts, with its surroundings in each.
pub(crate) fn first_difference(trackway: &[u8], babeltrace2: &[u8]) -> String {
    let same = trackway.iter().zip(babeltrace2).take_while(|(a, b)| a == b).count();
    let line = 1 + trackway.iter().take(same).filter(|&&byte| byte == b'\n').count();
    let around = |text: &[u8]| {
        let from = same.saturating_sub(80);
        let to = text.len().min(same + 80);
        String::from_utf8_lossy(text.get(from..to).unwrap_or_default()).into_owned()
    };
    format!(
        "line {line}, byte {same}:\n  ours: …{}…\ntheirs: …{}…",
        around(trackway),
        around(babeltrace2)
    )
}

/// Compares both readers' output for the same arguments: standard output to the byte, and the
/// reported losses. `Err` describes the difference.
pub(crate) fn compare_outputs(trackway: &Output, babeltrace2: &Output) -> Result<(), String> {
    if trackway.stdout != babeltrace2.stdout {
        let difference = first_difference(&trackway.stdout, &babeltrace2.stdout);
        return Err(format!("{difference}\nour errors: {}", stderr_text(trackway)));
    }
    let (our_losses, their_losses) = (reported_losses(trackway), reported_losses(babeltrace2));
    if our_losses != their_losses {
        return Err(format!("losses\n  ours: {our_losses:#?}\ntheirs: {their_losses:#?}"));
    }
    if trackway.status.success() != babeltrace2.status.success() {
        return Err(format!("ours: {}, theirs: {}", trackway.status, babeltrace2.status));
    }
    Ok(())
}

/// Runs both readers with these arguments and expects that they agree, and succeed.
///
/// # Panics
/// If the readers disagree or fail.
pub(crate) fn assert_readers_agree<S: AsRef<OsStr>>(fixture: &Fixture, arguments: &[S]) -> Output {
    let trackway = run_print(fixture, arguments);
    let babeltrace2 = run_babeltrace(fixture, arguments);
    let shown: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(babeltrace2.status.success(), "babeltrace2 {shown:?}: {}", stderr_text(&babeltrace2));
    if let Err(difference) = compare_outputs(&trackway, &babeltrace2) {
        panic!("trackway print and babeltrace2 differ on {shown:?}: {difference}");
    }
    trackway
}

/// Returns the folders at or below `root` that contain a trace, in the order of their names.
pub(crate) fn find_traces_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        if folder.join("metadata").is_file() {
            found.push(folder.clone());
        }
        let entries = std::fs::read_dir(&folder).expect("a folder");
        open.extend(entries.map(|entry| entry.expect("an entry").path()).filter(|at| at.is_dir()));
    }
    found.sort();
    found
}
