//! Random traces with all features of babeltrace2's own CTF sink, made through its Python bindings
//! by `bt2_generate.py`.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{Fixture, report_skipped};

use crate::support::{
    command_with_timeout, compare_outputs, has_babeltrace, number_from_env, run_babeltrace,
    run_print, script_path, stderr_text,
};

/// Debian's Python, for which the bindings are installed.
const PYTHON: &str = "/usr/bin/python3";
/// Number of traces to compare, unless `TRACKWAY_READER_SEEDS` has another number.
const TRACE_COUNT: u64 = 200;

/// Returns true if the bindings are installed; prints a message if they are not.
pub(crate) fn has_bt2_bindings() -> bool {
    let imported = Command::new(PYTHON).args(["-c", "import bt2"]).output();
    let there = imported.is_ok_and(|output| output.status.success());
    if !there {
        report_skipped("babeltrace2's Python bindings (python3-bt2) are not installed");
    }
    there
}

/// Makes traces for `count` seeds from `first` on.
pub(crate) fn generate_traces(fixture: &Fixture, first: u64, count: u64) -> Vec<PathBuf> {
    let folder = fixture.path("traces");
    std::fs::create_dir(&folder).unwrap();
    let made = command_with_timeout(fixture, PYTHON)
        .arg(script_path("bt2_generate.py"))
        .arg(&folder)
        .args([first.to_string(), count.to_string()])
        .output()
        .expect("timeout runs");
    assert!(made.status.success(), "bt2_generate.py: {}", stderr_text(&made));
    (first..first + count).map(|seed| folder.join(seed.to_string())).collect()
}

#[test]
fn traces_of_babeltrace2_read_as_it_reads_them() {
    if !has_babeltrace() || !has_bt2_bindings() {
        return;
    }
    let (first, count) = (
        number_from_env("TRACKWAY_READER_SEED", 1),
        number_from_env("TRACKWAY_READER_SEEDS", TRACE_COUNT),
    );
    let fixture = Fixture::new("bt2");
    let traces = generate_traces(&fixture, first, count);
    let (mut refused, mut failures, mut lines) = (0, Vec::new(), 0);
    for (seed, trace) in (first..).zip(&traces) {
        match compare_readers(&fixture, trace) {
            Some(Ok(printed)) => lines += printed,
            Some(Err(difference)) => failures.push(format!("seed {seed}: {difference}")),
            None => refused += 1,
        }
    }
    let few = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} traces differ:\n{few}", failures.len());
    assert!(refused * 50 <= count, "babeltrace2 refuses {refused} of {count} traces");
    assert!(lines as u64 >= count, "hardly any events: {lines}");
}

/// Returns the number of printed lines if both readers agree; `None` if babeltrace2 fails on the
/// output of its own sink. Version 2.0.4 sometimes fails: it aborts
/// (ctf-meta-update-value-storing-indexes.c:65: Assertion `tgt_fc` failed), or the sink did not
/// align as its metadata declares.
fn compare_readers(fixture: &Fixture, trace: &Path) -> Option<Result<usize, String>> {
    let theirs = run_babeltrace(fixture, &[trace]);
    if !theirs.status.success() {
        return None;
    }
    let ours = run_print(fixture, &[trace]);
    let lines = ours.stdout.iter().filter(|&&byte| byte == b'\n').count();
    Some(compare_outputs(&ours, &theirs).map(|()| lines))
}
