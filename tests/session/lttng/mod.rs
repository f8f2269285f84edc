//! LTTng-UST as an oracle for filters. Each case of `crates/filter/cases` that LTTng's language can
//! express is one event of a generated provider and one rule with the case's filter, unchanged. The
//! events that LTTng records are compared with the case's answers.
//!
//! Cases that LTTng cannot express are excluded for a reason that [`mapping`] lists; if the reason
//! is the language, LTTng must refuse the filter. Cases with another meaning in LTTng are listed,
//! too, and must differ.

mod case;
mod mapping;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use trackway_tests::lttng::{LttngDaemon, NEEDED_PROGRAMS};
use trackway_tests::{Fixture, has, report_skipped, source_dir};

use case::{FilterCase, TIME_FIELD};
use mapping::{KNOWN_DIFFERENCES, check_case_supported};

/// Cases with their emissions that LTTng recorded.
type RecordedCases = BTreeSet<(String, usize)>;

/// Fewest cases that LTTng must be able to evaluate: fewer show a fault of the test.
const SUPPORTED_CASES_MIN: usize = 80;

fn read_filter_cases() -> Vec<FilterCase> {
    case::read_cases(&source_dir().join("crates/filter/cases"))
}

/// RUN each case as an event of LTTng-UST with the same filter. EXPECT the case's answers, except
/// for the listed differences, each of which must occur.
#[test]
fn lttng_records_what_cases_say() {
    if let Some(missing) = NEEDED_PROGRAMS.iter().find(|program| !has(program)) {
        return report_skipped(format!("{missing} is not installed"));
    }
    if !has("babeltrace2") {
        return report_skipped("babeltrace2 is not installed");
    }
    let fixture = Fixture::new("filter-lttng");
    let cases = read_filter_cases();
    let supported: Vec<&FilterCase> =
        cases.iter().filter(|case| check_case_supported(case).is_ok()).collect();
    let Some(application) = compile_application(&fixture, &supported) else {
        return report_skipped("LTTng-UST's headers are not installed");
    };
    let daemon = LttngDaemon::start(&fixture);
    check_refusals(&daemon, &cases);
    let recorded = record_cases(&daemon, &application, &supported);
    let differing: Vec<String> = differing_cases(&supported, &recorded);
    let listed: Vec<&str> = KNOWN_DIFFERENCES.iter().map(|(name, _)| *name).collect();
    assert_eq!(differing, listed, "cases that LTTng answers otherwise, and those that are listed");
    println!("{} of {} cases judged", supported.len(), cases.len());
}

/// Checks that LTTng evaluates enough cases, and that a wrong answer to any of them is detected.
#[test]
fn a_wrong_answer_is_found() {
    let mut cases = read_filter_cases();
    cases.retain(|case| check_case_supported(case).is_ok());
    assert!(cases.len() >= SUPPORTED_CASES_MIN, "{} cases", cases.len());
    let supported: Vec<&FilterCase> = cases.iter().collect();
    let mut recorded = RecordedCases::new();
    for case in &supported {
        let times = (0..case.answers.len()).filter(|&time| case.answers[time]);
        recorded.extend(times.map(|time| (case.name.clone(), time)));
    }
    assert_eq!(differing_cases(&supported, &recorded), Vec::<String>::new());
    for case in &supported {
        for time in 0..case.answers.len() {
            let mut wrong = recorded.clone();
            let event = (case.name.clone(), time);
            if !wrong.remove(&event) {
                wrong.insert(event);
            }
            assert_eq!(differing_cases(&supported, &wrong), [case.name.as_str()]);
        }
    }
}

/// Returns the names of cases whose answers differ from the recording, in order.
fn differing_cases(supported: &[&FilterCase], recorded: &RecordedCases) -> Vec<String> {
    let is_recorded = |case: &FilterCase, time| recorded.contains(&(case.name.clone(), time));
    let differs = |case: &&&FilterCase| {
        case.answers.iter().enumerate().any(|(time, &answer)| is_recorded(case, time) != answer)
    };
    supported.iter().filter(differs).map(|case| case.name.clone()).collect()
}

/// Compiles the program that emits all cases' events; returns `None` without LTTng-UST's headers.
fn compile_application(fixture: &Fixture, supported: &[&FilterCase]) -> Option<PathBuf> {
    let (header, source) = (fixture.path("cases.h"), fixture.path("cases.c"));
    std::fs::write(header, case::provider_source(supported)).expect("a file");
    std::fs::write(&source, case::program_source(supported)).expect("a file");
    let application = fixture.path("cases");
    let mut gcc = fixture.command("gcc");
    gcc.arg("-I").arg(fixture.path("")).arg(&source).arg("-o").arg(&application);
    let output = gcc.args(["-llttng-ust", "-ldl"]).output().expect("gcc runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("lttng/tracepoint.h: No such file") {
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(application)
}

/// Checks that LTTng refuses each construct that is listed as missing in its language.
fn check_refusals(daemon: &LttngDaemon<'_>, cases: &[FilterCase]) {
    daemon.lttng(&["create", "refused", "--snapshot"]);
    daemon.lttng(&["enable-channel", "-u", "c"]);
    for case in cases {
        let reason = check_case_supported(case).err().filter(|reason| reason.is_refused());
        if let Some(reason) = reason {
            let rule = ["enable-event", "-u", "-c", "c", "none:such", "--filter", &case.filter];
            let output = daemon.lttng_output(&rule);
            assert!(!output.status.success(), "{}: {reason:?}: {}", case.name, case.filter);
        }
    }
    daemon.lttng(&["destroy", "refused"]);
}

/// Records the events of all cases in one session, with a rule for each.
fn record_cases(
    daemon: &LttngDaemon<'_>,
    application: &Path,
    supported: &[&FilterCase],
) -> RecordedCases {
    let trace = daemon.fixture.path("trace");
    daemon.lttng(&["create", "cases", "--output", trace.to_str().expect("text")]);
    daemon.lttng(&["enable-channel", "-u", "c"]);
    for case in supported {
        let event = format!("cases:{}", case.name);
        daemon.lttng(&["enable-event", "-u", "-c", "c", &event, "--filter", &case.filter]);
    }
    daemon.lttng(&["start"]);
    let output = daemon.command(application).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    daemon.lttng(&["stop"]);
    daemon.lttng(&["destroy"]);
    let output = daemon.fixture.command("babeltrace2").arg(trace).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("discarded"), "{text}");
    text.lines().filter_map(parse_event).collect()
}

/// Returns the case and the time of a line of babeltrace2.
fn parse_event(line: &str) -> Option<(String, usize)> {
    let (name, fields) = line.split_once(" cases:")?.1.split_once(':')?;
    let (_, time) = fields.rsplit_once(&format!("{TIME_FIELD} = "))?;
    Some((name.to_owned(), time.trim_end_matches(" }").parse().expect("a number")))
}
