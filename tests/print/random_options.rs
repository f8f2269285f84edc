//! The options that `trackway print` shares with babeltrace2, in random combinations on random
//! traces: both readers must print the same text.

use std::path::{Path, PathBuf};

use trackway_testkit::Random;
use trackway_tests::Fixture;

use crate::bt2::{generate_traces, has_bt2_bindings};
use crate::support::{
    command_with_timeout, compare_outputs, has_babeltrace, print_command_with_timeout,
    run_babeltrace,
};

/// Number of traces that are printed.
const TRACE_COUNT: u64 = 24;
/// Number of combinations tried on each trace.
const COMBINATIONS_PER_TRACE: u64 = 10;
/// Time zones in POSIX form: east and west of Greenwich, with half an hour.
const TIME_ZONES: [&str; 3] = ["UTC", "EAST-5:30", "WEST+9"];

const CLOCK_OPTIONS: [&[&str]; 8] = [
    &[],
    &[],
    &["--clock-seconds"],
    &["--clock-gmt"],
    &["--clock-date"],
    &["--clock-date", "--clock-gmt"],
    &["--clock-cycles"],
    &["--clock-seconds", "--clock-date"],
];
const NAMES_VALUES: [&str; 4] = ["payload", "context", "header", "scope"];
const FIELDS_VALUES: [&str; 8] = [
    "trace",
    "trace:hostname",
    "trace:domain",
    "trace:procname",
    "trace:vpid",
    "loglevel",
    "emf",
    "callsite",
];

/// Returns some of `words` as a list, or `all`.
fn random_list(random: &mut Random, words: &[&str]) -> String {
    match random.next_below(6) {
        0 => "all".to_owned(),
        _ => {
            let count = 1 + random.next_below(3);
            let some: Vec<_> = (0..count).map(|_| *random.pick(words)).collect();
            some.join(",")
        }
    }
}

/// Returns the times of events in each form of `--begin`: seconds, times of the day, dates.
fn times_in_all_forms(fixture: &Fixture, trace: &Path) -> Vec<Vec<String>> {
    let of_form = |options: &&[&str]| {
        let mut arguments: Vec<_> = options.iter().map(PathBuf::from).collect();
        arguments.push(trace.to_owned());
        let text = run_babeltrace(fixture, &arguments).stdout;
        let text = String::from_utf8_lossy(&text).into_owned();
        let stamps = text.lines().filter_map(|line| line.strip_prefix('[')?.split(']').next());
        stamps.map(str::to_owned).collect()
    };
    let forms = [&["--clock-seconds"][..], &["--clock-gmt"], &["--clock-gmt", "--clock-date"]];
    forms.iter().map(of_form).filter(|times: &Vec<String>| !times.is_empty()).collect()
}

fn random_options(random: &mut Random, times: &[Vec<String>]) -> Vec<String> {
    let mut options: Vec<_> =
        random.pick(&CLOCK_OPTIONS).iter().map(|&word| word.to_owned()).collect();
    if random.once_in(3) {
        options.push("--no-delta".to_owned());
    }
    if random.once_in(2) {
        // (`--fields none` is unknown to babeltrace2 2.0.4.)
        let names =
            if random.once_in(6) { "none".to_owned() } else { random_list(random, &NAMES_VALUES) };
        options.extend(["--names".to_owned(), names]);
    }
    if random.once_in(2) {
        options.extend(["--fields".to_owned(), random_list(random, &FIELDS_VALUES)]);
    }
    if random.once_in(4) {
        options.push(format!("--clock-offset={}", random.next_below(100_000) as i64 - 50_000));
    }
    if random.once_in(4) {
        options
            .push(format!("--clock-offset-ns={}", random.next_below(1 << 40) as i64 - (1 << 39)));
    }
    if !times.is_empty() && random.once_in(2) {
        let times = random.pick(times);
        let (one, other) = (random.pick(times), random.pick(times));
        let (begin, end) = (one.min(other), one.max(other));
        match random.next_below(4) {
            0 => options.push(format!("--begin={begin}")),
            1 => options.push(format!("--end={end}")),
            2 => options.extend([format!("--begin={begin}"), format!("--end={end}")]),
            _ => options.push(format!("--timerange={begin},{end}")),
        }
    }
    options
}

#[test]
fn options_of_babeltrace2_do_what_they_do_there() {
    if !has_babeltrace() || !has_bt2_bindings() {
        return;
    }
    let fixture = Fixture::new("options");
    let traces = generate_traces(&fixture, 5000, TRACE_COUNT);
    let (mut refused, mut failures) = (0, Vec::new());
    for (number, trace) in traces.iter().enumerate() {
        let mut random = Random::new(number as u64);
        let times = times_in_all_forms(&fixture, trace);
        for _ in 0..COMBINATIONS_PER_TRACE {
            let mut arguments: Vec<PathBuf> =
                random_options(&mut random, &times).into_iter().map(PathBuf::from).collect();
            arguments.push(trace.clone());
            if random.once_in(4) {
                // Several inputs, in any order. (An input does not repeat: without a clock,
                // babeltrace2's order of its packets is unspecified.)
                let other = random.pick(&traces).clone();
                arguments.extend((other != *trace).then_some(other));
            }
            let zone = *random.pick(&TIME_ZONES);
            let theirs = command_with_timeout(&fixture, "babeltrace2")
                .args(&arguments)
                .env("TZ", zone)
                .output()
                .expect("timeout runs");
            if !theirs.status.success() {
                // Both readers may refuse a combination, for example traces with unrelated clocks.
                refused += 1;
                continue;
            }
            let ours =
                print_command_with_timeout(&fixture).args(&arguments).env("TZ", zone).output();
            if let Err(difference) = compare_outputs(&ours.expect("timeout runs"), &theirs) {
                failures.push(format!("TZ={zone} {arguments:?}: {difference}"));
            }
        }
    }
    let few = failures.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    let all = TRACE_COUNT * COMBINATIONS_PER_TRACE;
    assert!(failures.is_empty(), "{} of {all} differ:\n{few}", failures.len());
    assert!(refused * 2 <= all, "babeltrace2 refuses {refused} of {all}");
}
