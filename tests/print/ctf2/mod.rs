//! CTF 2, compared with babeltrace2 2.1, its first version that reads CTF 2.
//!
//! Three traces with babeltrace2's text are stored in `ctf2/` (see its README.md). If babeltrace2
//! 2.1 or later is installed (or named in `TRACKWAY_BABELTRACE2`), it prints these traces and
//! random traces with all features of CTF 2, for comparison.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trackway_tests::{Fixture, has, report_skipped};

use crate::support::{
    command_with_timeout, compare_outputs, first_difference, number_from_env, reported_losses,
    run_print, script_path, stderr_text,
};

/// Names of the stored traces.
const STORED_TRACES: [&str; 3] = ["kinds", "sink", "lttng"];
/// Number of random traces, unless `TRACKWAY_READER_SEEDS` has another number.
const TRACE_COUNT: u64 = 150;
/// Options of both readers with which a current babeltrace2 is compared.
const OPTION_SETS: [&[&str]; 7] = [
    &[],
    &["--names=all", "--fields=all"],
    &["--names=none", "--no-delta"],
    &["--clock-cycles"],
    &["--clock-seconds", "--clock-offset=5"],
    &["--clock-gmt", "--clock-date"],
    &["--fields=trace,trace:hostname,trace:domain,loglevel,emf", "--names=context"],
];

fn stored_trace_path(name: &str) -> PathBuf {
    script_path("ctf2").join(name).canonicalize().expect("a trace that is kept")
}

fn print_trace(fixture: &Fixture, options: &[&str], trace: &Path) -> Output {
    let trace = trace.to_str().expect("text");
    let output = run_print(fixture, &[options, &[trace]].concat());
    assert!(output.status.success(), "{trace}: {}", stderr_text(&output));
    output
}

#[test]
fn kept_traces_print_as_babeltrace2_2_1_printed_them() {
    let fixture = Fixture::new("ctf2");
    let all = ["--clock-gmt", "--names=all", "--fields=all"];
    for (name, options, text) in [
        ("kinds", &all[..1], "kinds.txt"),
        ("kinds", &all, "kinds.all.txt"),
        ("sink", &all[..1], "sink.txt"),
        ("lttng", &all[..1], "lttng.txt"),
    ] {
        let ours = print_trace(&fixture, options, &stored_trace_path(name)).stdout;
        let theirs = std::fs::read(stored_trace_path(text)).expect("babeltrace2's text");
        assert!(!theirs.is_empty(), "{text}");
        assert!(ours == theirs, "{text}: {}", first_difference(&ours, &theirs));
    }
}

#[test]
fn losses_name_the_trace_by_its_unique_id() {
    let fixture = Fixture::new("ctf2-losses");
    for name in ["kinds", "sink"] {
        let output = print_trace(&fixture, &["--clock-gmt"], &stored_trace_path(name));
        let place = format!(
            "in trace \"here\" (UID: the only one) within stream \"{}\" \
             (stream class ID: 3, stream ID: 5).",
            stored_trace_path(name).join("stream").display(),
        );
        let expected = [
            ("4 events", "22:13:25.000000500", "22:13:27.000000500"),
            ("2 packets", "22:13:25.000000500", "22:13:26.000000500"),
        ];
        let expected = expected.map(|(what, from, to)| {
            format!("WARNING: Tracer discarded {what} between [{from}] and [{to}] {place}")
        });
        assert_eq!(reported_losses(&output), expected, "{name}");
    }
}

#[test]
fn pieces_of_one_trace_are_one_and_others_are_not() {
    let fixture = Fixture::new("ctf2-pieces");
    let original = stored_trace_path("kinds");
    let metadata = std::fs::read_to_string(original.join("metadata")).unwrap();
    let copy = |name: &str, metadata: &str| {
        let folder = fixture.path(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("metadata"), metadata).unwrap();
        std::fs::copy(original.join("stream"), folder.join("stream")).unwrap();
        folder
    };
    let piece = copy("piece", &metadata);
    let other = copy("other", &metadata.replace("\"the only one\"", "\"another one\""));
    for (second, lines) in [(&piece, 3), (&other, 6)] {
        let text = run_print(&fixture, &[&original, second]).stdout;
        // Packets that both pieces contain are printed once.
        assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), lines, "{second:?}");
    }
}

/// Makes traces for `count` seeds; returns `None`, after printing the reason, without Python.
fn generate_traces(fixture: &Fixture, first: u64, count: u64) -> Option<Vec<PathBuf>> {
    if !has("python3") {
        report_skipped("python3 is not installed");
        return None;
    }
    let folder = fixture.path("traces");
    let made = command_with_timeout(fixture, "python3")
        .arg(script_path("ctf2_generate.py"))
        .arg(&folder)
        .args([first.to_string(), count.to_string()])
        .output()
        .expect("timeout runs");
    assert!(made.status.success(), "ctf2_generate.py: {}", stderr_text(&made));
    Some((first..first + count).map(|seed| folder.join(seed.to_string())).collect())
}

#[test]
fn traces_of_the_specification_are_read_completely() {
    let fixture = Fixture::new("ctf2-whole");
    let Some(traces) = generate_traces(&fixture, 1, 30) else { return };
    let lines = |trace: &PathBuf| {
        let text = print_trace(&fixture, &[], trace).stdout;
        text.iter().filter(|&&byte| byte == b'\n').count()
    };
    let lines: usize = traces.iter().map(lines).sum();
    assert!(lines > 300, "hardly any events: {lines}");
}

/// Returns babeltrace2, if it reads CTF 2; otherwise prints a message.
fn find_babeltrace2() -> Option<String> {
    let program =
        std::env::var("TRACKWAY_BABELTRACE2").unwrap_or_else(|_| "babeltrace2".to_owned());
    let version = Command::new(&program).arg("--version").output().ok();
    let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let found = text.as_deref().and_then(|text| {
        let (major, rest) = text.split_whitespace().nth(1)?.split_once('.')?;
        let minor = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    if found.is_none_or(|version| version < (2, 1)) {
        report_skipped("babeltrace2 2.1 or later, which reads CTF 2, is not installed");
        return None;
    }
    Some(program)
}

/// Compares both readers' outputs for the same arguments, without the notice that only `trackway
/// print` and babeltrace2 2.0 give: that events may have been lost before a stream's first packet.
fn compare_readers(
    fixture: &Fixture,
    program: &str,
    options: &[&str],
    trace: &Path,
) -> Result<(), String> {
    let mut ours = print_trace(fixture, options, trace);
    let kept = stderr_text(&ours)
        .lines()
        .filter(|line| !line.contains("may have discarded"))
        .fold(String::new(), |text, line| text + line + "\n");
    ours.stderr = kept.into_bytes();
    let theirs = command_with_timeout(fixture, program)
        .args(options)
        .arg(trace)
        .output()
        .expect("timeout runs");
    assert!(theirs.status.success(), "babeltrace2 {options:?} {trace:?}: {}", stderr_text(&theirs));
    compare_outputs(&ours, &theirs)
        .map_err(|difference| format!("{options:?} {trace:?}: {difference}"))
}

#[test]
fn ctf_2_prints_as_babeltrace2_prints_it_now() {
    let Some(program) = find_babeltrace2() else { return };
    let fixture = Fixture::new("ctf2-now");
    for (name, options) in
        STORED_TRACES.iter().flat_map(|name| OPTION_SETS.map(|options| (name, options)))
    {
        compare_readers(&fixture, &program, options, &stored_trace_path(name))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let (first, count) = (
        number_from_env("TRACKWAY_READER_SEED", 1),
        number_from_env("TRACKWAY_READER_SEEDS", TRACE_COUNT),
    );
    let Some(traces) = generate_traces(&fixture, first, count) else { return };
    let options = OPTION_SETS.iter().cycle();
    let failures: Vec<String> = traces
        .iter()
        .zip(options)
        .filter_map(|(trace, options)| compare_readers(&fixture, &program, options, trace).err())
        .collect();
    let few = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {count} traces differ:\n{few}", failures.len());
}
