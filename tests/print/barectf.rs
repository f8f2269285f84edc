//! Traces written by barectf's tracers, which `barectf_generate.py` makes at random: packed
//! fields, alignments, header fields of any size, clocks that wrap.

use std::path::{Path, PathBuf};

use trackway_tests::{Fixture, build_dir, report_skipped};

use crate::support::{
    assert_readers_agree, command_with_timeout, has_babeltrace, number_from_env, script_path,
    stderr_text,
};

/// Number of tracers to make, unless `TRACKWAY_READER_TRACERS` has another number.
const TRACER_COUNT: u64 = 14;

/// Returns the Python that has barectf: see scripts/packages.
fn find_barectf_python() -> Option<PathBuf> {
    let python = build_dir().join("../barectf/bin/python");
    if !python.exists() {
        report_skipped("barectf is not installed (scripts/packages test)");
        return None;
    }
    Some(python)
}

/// Compiles a tracer and runs it; returns the path of its trace.
fn run_tracer(fixture: &Fixture, folder: &Path) -> PathBuf {
    let mut cc = fixture.command("gcc");
    cc.current_dir(folder).args(["-O0", "-w", "-I.", "-o", "main", "main.c", "barectf.c"]);
    let output = cc.output().expect("gcc runs");
    assert!(output.status.success(), "{folder:?}: {}", stderr_text(&output));
    let output =
        command_with_timeout(fixture, folder.join("main")).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{folder:?}: {}, {}", output.status, stderr_text(&output));
    folder.join("trace")
}

#[test]
fn traces_of_barectf_read_as_babeltrace2_reads_them() {
    let Some(python) = find_barectf_python() else { return };
    if !has_babeltrace() {
        return;
    }
    let (first, count) = (
        number_from_env("TRACKWAY_READER_SEED", 1),
        number_from_env("TRACKWAY_READER_TRACERS", TRACER_COUNT),
    );
    let fixture = Fixture::new("barectf");
    let made = command_with_timeout(&fixture, python)
        .arg(script_path("barectf_generate.py"))
        .arg(fixture.path("tracers"))
        .args([first.to_string(), count.to_string()])
        .output()
        .expect("timeout runs");
    assert!(made.status.success(), "barectf_generate.py: {}", stderr_text(&made));
    let mut lines = 0;
    for seed in first..first + count {
        let trace = run_tracer(&fixture, &fixture.path("tracers").join(seed.to_string()));
        let printed = assert_readers_agree(&fixture, &[&trace]).stdout;
        lines += printed.iter().filter(|&&byte| byte == b'\n').count();
    }
    assert!(lines as u64 > 10 * count, "hardly any events: {lines}");
}
