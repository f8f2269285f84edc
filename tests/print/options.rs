//! `trackway print` with babeltrace2's options, compared with babeltrace2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use trackway_tests::{Fixture, has, report_skipped, source_dir};

/// Options that both readers support, each with its value in the same word.
const OPTION_SETS: [&[&str]; 40] = [
    &[],
    &["--no-delta"],
    &["--clock-seconds"],
    &["--clock-date"],
    &["--clock-gmt"],
    &["--clock-cycles"],
    &["--clock-date", "--clock-gmt"],
    &["--clock-cycles", "--no-delta"],
    &["--clock-cycles", "--clock-date"],
    &["--clock-seconds", "--clock-date"],
    &["--clock-offset=100"],
    &["--clock-offset-ns=-1500000001"],
    &["--clock-offset=-3", "--clock-offset-ns=7"],
    &["--names=payload"],
    &["--names=context"],
    &["--names=scope"],
    &["--names=header"],
    &["--names=header", "--no-delta"],
    &["--names=header", "--clock-cycles"],
    &["--names=all"],
    &["--names=all", "--no-delta", "--clock-seconds"],
    &["--names=none"],
    &["--names=all,none"],
    &["--names=arg, ctx"],
    &["--names=none,scope"],
    &["--names=scopes"],
    &["--fields=trace"],
    &["--fields=trace", "--names=header"],
    &["--fields=trace:hostname"],
    &["--fields=trace:domain"],
    &["--fields=trace:procname"],
    &["--fields=trace:vpid"],
    &["--fields=loglevel"],
    &["--fields=emf"],
    &["--fields=callsite"],
    &["--fields=all"],
    &["--fields=all", "--names=all"],
    &["--fields=all", "--names=all", "--no-delta"],
    &["--fields=trace,loglevel"],
    &["--fields=hostname"],
];

/// A time zone far from UTC, in which dates differ.
const TIME_ZONE: &str = "AWAY12";

fn run_reader(fixture: &Fixture, babeltrace: bool, options: &[&str], traces: &[PathBuf]) -> Output {
    let mut command =
        if babeltrace { fixture.command("babeltrace2") } else { fixture.trackway(&["print"]) };
    command.args(options).args(traces).env("TZ", TIME_ZONE);
    command.output().expect("it runs")
}

/// Compares standard output, standard error and the refusal of both readers.
fn compare_readers(fixture: &Fixture, options: &[&str], traces: &[PathBuf]) {
    let theirs = run_reader(fixture, true, options, traces);
    let ours = run_reader(fixture, false, options, traces);
    let what = format!("{options:?} {traces:?}");
    let refused = |output: &Output| !output.status.success();
    let talk = String::from_utf8_lossy(&ours.stderr);
    assert_eq!(refused(&ours), refused(&theirs), "{what}: {talk}");
    if refused(&theirs) {
        return;
    }
    let (text, their_text) =
        (String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
    for (number, (line, their_line)) in text.lines().zip(their_text.lines()).enumerate() {
        assert_eq!(line, their_line, "{what}, line {number}");
    }
    assert!(ours.stdout == theirs.stdout, "{what}: one ends before the other");
    assert_eq!(talk, String::from_utf8_lossy(&theirs.stderr), "{what}");
}

/// Returns the times of a trace's events, in the format of these options.
fn event_times(fixture: &Fixture, options: &[&str], trace: &[PathBuf]) -> Vec<String> {
    let options = [options, &["--no-delta"]].concat();
    let text = run_reader(fixture, false, &options, trace).stdout;
    let text = String::from_utf8_lossy(&text);
    let time = |line: &str| Some(line.strip_prefix('[')?.split_once(']')?.0.to_owned());
    text.lines().filter_map(time).collect()
}

/// Compares ranges of times of a trace, in all forms of the options.
fn compare_time_ranges(fixture: &Fixture, trace: &[PathBuf]) {
    for form in [&["--clock-seconds"][..], &["--clock-date"], &["--clock-date", "--clock-gmt"]] {
        let times = event_times(fixture, form, trace);
        let (begin, end) = (&times[times.len() / 3], &times[2 * times.len() / 3]);
        let zone = if form.contains(&"--clock-gmt") { "--clock-gmt" } else { "--clock-date" };
        let mut forms = vec![(begin.as_str(), end.as_str())];
        if let (Some((_, begin_time)), Some((_, end_time))) =
            (begin.split_once(' '), end.split_once(' '))
        {
            forms.push((begin_time, end_time));
            forms.push((&begin_time[..8], &end_time[..11]));
            forms.push((&begin[..10], &end[..16]));
        }
        for (begin, end) in forms {
            let (from, to) = (format!("--begin={begin}"), format!("--end={end}"));
            compare_readers(fixture, &[zone, &from], trace);
            compare_readers(fixture, &[zone, &to], trace);
            compare_readers(fixture, &[zone, &from, &to], trace);
            compare_readers(fixture, &[zone, &format!("--timerange=[{begin},{end}]")], trace);
            compare_readers(fixture, &[zone, &from, &format!("--end={begin}")], trace);
        }
    }
    for wrong in [
        &["--begin=soon"][..],
        &["--begin=2", "--end=1"],
        &["--timerange=1"],
        &["--begin=1.0123456789"],
        &["--begin=1", "--timerange=1,2"],
    ] {
        compare_readers(fixture, wrong, trace);
    }
}

/// Records a trace with all contexts and with losses; the ranges cut through the losses.
fn record_lossy_trace(fixture: &Fixture) -> PathBuf {
    let program = fixture.compile(
        "lossy",
        "#include <trackway/trackway.h>\n\
         TRACKWAY_EVENT(myapp, request, TRACKWAY_WARNING, (str, path), (u32, status));\n\
         int main(void) {\n\
             for (int n = 0; n < 60000; n++) trackway(myapp, request, \"/index.html\", n);\n\
             return 0;\n\
         }\n",
        false,
        &[],
    );
    let options = ["--context", "vpid,vtid,procname", "--buffer-size", "128K"];
    let program = program.display().to_string();
    let recording = fixture.record(&options, &[program.as_str()]);
    assert!(recording.output.status.success(), "{:?}", recording.output);
    recording.trace
}

/// Returns the real traces next to the checkout, if they exist.
fn shared_trace(name: &str) -> Option<PathBuf> {
    let path = source_dir().join("../shared/traces").join(name);
    let path = fs::canonicalize(path).ok().filter(|path| Path::is_dir(path));
    if path.is_none() {
        report_skipped("the real traces are not here");
    }
    path
}

#[test]
fn options_do_what_they_do_in_babeltrace2() {
    if !has("babeltrace2") {
        return report_skipped("babeltrace2 is not installed");
    }
    let fixture = Fixture::new("options");
    let mut traces = vec![record_lossy_trace(&fixture)];
    traces.extend(shared_trace("context-switches"));
    for trace in &traces {
        let trace = [trace.clone()];
        OPTION_SETS.iter().for_each(|options| compare_readers(&fixture, options, &trace));
        compare_time_ranges(&fixture, &trace);
    }
    // Several traces at once, and one trace twice.
    traces.extend(shared_trace("cyg-profile"));
    traces.push(traces[0].clone());
    compare_readers(&fixture, &["--fields=all"], &traces);
}
