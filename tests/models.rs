//! The Promela models in `models/`, in their short form (docs/models.md): every property holds, and
//! every seeded bug is caught.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use trackway_tests::{Fixture, has, report_skipped, source_dir};

/// Checks one model with `scripts/models` of the checkout `at`, if the model checker is installed.
fn run_model_checker(fixture: &Fixture, at: &Path, model: &str) -> Option<Output> {
    if std::env::var_os("TRACKWAY_SOURCE_DIR").is_some() {
        report_skipped("what models show does not depend on who runs them");
        return None;
    }
    for program in ["spin", "gcc"] {
        if !has(program) {
            report_skipped(format!("{program} is not installed"));
            return None;
        }
    }
    let output = Command::new(at.join("scripts/models"))
        .args(["short", model])
        .env("CARGO_TARGET_DIR", fixture.path("target"))
        .output()
        .expect("scripts/models runs");
    Some(output)
}

/// Checks that the model checker reports the expected outcome and has examined some states.
fn check_expected_outcome(model: &str) {
    let fixture = Fixture::new(&format!("models-{model}"));
    let Some(output) = run_model_checker(&fixture, &source_dir(), model) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let results = |kind: &str, result: &str| {
        let has = |line: &&str| line.contains(kind) && line.contains(result);
        text.lines().filter(has).count()
    };
    assert!(results(" holds ", "  holds") > 0, "{text}");
    assert!(results(" mutation ", "  caught") >= 4, "{text}");
    let left = fs::read_dir(fixture.path("target").join("models")).expect("its folder").count();
    assert_eq!(left, 0, "left behind in target/models");
}

#[test]
fn k42_goes_wrong_and_what_replaced_it_does_not() {
    check_expected_outcome("k42");
}

#[test]
fn the_papers_algorithm_is_as_expected() {
    check_expected_outcome("lockless");
}

#[test]
fn ours_by_sequence_is_as_expected() {
    check_expected_outcome("rseq");
}

#[test]
fn ours_by_claim_is_as_expected() {
    check_expected_outcome("claim");
}

/// A model with a wrong outcome, or without its seeded bug, ends the script with an error.
#[test]
fn unexpected_outcomes_are_reported() {
    let fixture = Fixture::new("models-wrong");
    for folder in ["models", "scripts"] {
        fs::create_dir(fixture.path(folder)).unwrap();
    }
    fs::copy(source_dir().join("scripts/models"), fixture.path("scripts/models")).unwrap();
    let good = fs::read_to_string(source_dir().join("models/k42.pml")).expect("the model");
    let wrong = format!("#define MUTATION_TORN_COUNT\n{good}");
    let blind = good.replace("assert(", "skip; (true || ");
    for (text, expected) in [(wrong, "caught  <== not"), (blind, "holds  <== not")] {
        fs::write(fixture.path("models/k42.pml"), text).unwrap();
        let Some(output) = run_model_checker(&fixture, &fixture.path("."), "k42") else { return };
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
