//! Tests bytecode in the kernel: loads the cases of `crates/filter/cases` and runs them on their
//! events. The kernel's verdicts must equal those of the cases, and its helpers must return the
//! results of `jit`'s helpers.

mod c_filters;
#[path = "../../../filter/tests/filter/case.rs"]
#[allow(dead_code, reason = "the cases' own test uses more of it")]
mod case;
#[path = "../../../jit/tests/common/mod.rs"]
mod common;
#[path = "../../../filter/tests/filter/event.rs"]
#[allow(dead_code, reason = "as above")]
mod event;
#[path = "../../../filter/tests/filter/frame.rs"]
mod frame;
mod helpers;
mod random;
mod search;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use trackway_filter::compile::compile;
use trackway_filter::object::{Alternative, Object};
use trackway_jit::object::Object as ArgumentRead;
use trackway_jit::verify::{Rules, State, verify};
use trackway_kernel::bpf_filter::loaded_filter::LoadedFilter;
use trackway_kernel::bpf_filter::scratch::ScratchArea;
use trackway_kernel::bpf_filter::translate::{TranslatedFilter, Unsupported, translate_filter};
use trackway_kernel::bpf_sys::bpf::LoadError;
use trackway_testkit::report_skipped;

use case::{Case, parse_case};
use frame::Frame;

fn read_cases() -> BTreeMap<String, Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filter/cases");
    let entries = fs::read_dir(folder).expect("the cases").flatten();
    let paths = entries.map(|entry| entry.path());
    let texts = paths.filter(|path| path.extension().is_some_and(|extension| extension == "txt"));
    let case = |path: std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        (name, parse_case(&fs::read_to_string(path).expect("a case")))
    };
    texts.map(case).filter(|(_, case)| case.error.is_none()).collect()
}

/// Translates a case's filter.
fn translate_case(case: &Case) -> (Alternative, usize, Result<TranslatedFilter, Unsupported>) {
    let compiled = compile(&case.filter, &case.event.layout).expect("a filter");
    let cells = compiled.filter.cells;
    let alternative = compiled.alternative;
    let constants = alternative.constants.clone();
    let bytes = Object { cells, alternatives: vec![alternative.clone()] }.encode();
    let bytes = bytes.expect("an object");
    let object = ArgumentRead::decode(&bytes).expect("an object");
    let read = object.alternatives().next().expect("an alternative");
    let program = read.programs().next().expect("a program");
    let mut states = vec![State::FREE; program.len() + 1];
    let verified = verify(program, Rules::new(read.needs_count()), &mut states).expect("verified");
    (alternative, cells, translate_filter(&verified, cells, &constants))
}

/// Returns the kernel's verdicts on a case's events; `None` for an event that lacks a field.
fn run_case(case: &Case, alternative: &Alternative, loaded: &LoadedFilter) -> Vec<Option<bool>> {
    let mut area = ScratchArea::new(&alternative.constants).expect("few constants");
    let answer = |time| {
        let frame = Frame::of(alternative, |path| case.event.find(path, time))?;
        area.fill(frame.slots(), frame.bytes()).expect("a small event");
        Some(loaded.passes(&mut area).expect("the kernel runs it"))
    };
    (0..case.answers.len()).map(answer).collect()
}

/// Cases that the kernel does not support, with the reason.
const UNSUPPORTED_CASES: [(&str, &str); 5] = [
    ("float_arithmetic", "float_add: a program in the kernel has no floating point"),
    ("float_divide_zero", "float_from_signed, as above"),
    ("float_integer", "float_from_signed, as above"),
    ("float_negative_integer", "float_from_signed, as above"),
    ("float_unsigned_wide", "float_from_unsigned, as above"),
];

/// Cases with a simulated clock and random numbers, which the kernel cannot use.
const SIMULATED_CLOCK_CASES: [&str; 7] = [
    "rate",
    "rate_minute",
    "rate_plain",
    "rate_short_circuit",
    "rate_time",
    "sample",
    "sample_short_circuit",
];

/// Loads a program; `None`: BPF is not available or too old, which the test reports.
fn load_filter(translated: &TranslatedFilter) -> Option<Result<LoadedFilter, String>> {
    match LoadedFilter::new(translated) {
        Ok(loaded) => Some(Ok(loaded)),
        Err(LoadError::Refused(_, log)) if log.contains("unknown#181") => {
            report_skipped("the kernel has no bpf_loop: it is older than 5.17");
            None
        }
        Err(error @ LoadError::Refused(..)) => Some(Err(error.to_string())),
        Err(LoadError::Unavailable(error)) => {
            report_skipped(format!("BPF is not available: {error}"));
            None
        }
    }
}

/// LOAD and run every case that is not excluded. EXPECT the verdicts in the case.
#[test]
fn the_kernel_answers_as_the_cases_say() {
    let mut failures = Vec::new();
    let mut right = 0;
    for (name, case) in read_cases() {
        let (alternative, _, translated) = translate_case(&case);
        let translated = match translated {
            Ok(translated) => translated,
            Err(_) if UNSUPPORTED_CASES.iter().any(|(excluded, _)| *excluded == name) => continue,
            Err(unfit) => {
                failures.push(format!("{name}: {unfit}"));
                continue;
            }
        };
        let loaded = match load_filter(&translated) {
            None => return,
            Some(Ok(loaded)) => loaded,
            Some(Err(refused)) => {
                failures.push(format!("{name}: {}: {refused}", case.filter));
                continue;
            }
        };
        let answers = run_case(&case, &alternative, &loaded);
        let answers: Vec<bool> = answers.into_iter().map(|answer| answer == Some(true)).collect();
        if SIMULATED_CLOCK_CASES.contains(&name.as_str()) {
            continue;
        }
        if answers == case.answers {
            right += 1;
        } else {
            failures.push(format!("{name}: {}: {answers:?} for {:?}", case.filter, case.answers));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(right >= 150, "{right} cases were run");
}

/// CHECK that the lists of excluded cases are exact, even if BPF is not available.
#[test]
fn excluded_cases_are_exactly_the_unsupported_ones() {
    let cases = read_cases();
    let unfit: Vec<&str> = cases
        .iter()
        .filter(|(_, case)| translate_case(case).2.is_err())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(unfit, UNSUPPORTED_CASES.map(|(name, _)| name));
    for name in SIMULATED_CLOCK_CASES {
        let script = &cases.get(name).unwrap_or_else(|| panic!("no case {name}")).script;
        assert!(!script.times.is_empty() || !script.randoms.is_empty(), "{name}");
    }
}
