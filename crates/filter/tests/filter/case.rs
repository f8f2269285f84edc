//! Parses the cases of `crates/filter/cases`, one per file; the README there describes the format.

use super::event::{Event, Script};

#[derive(Default)]
pub(crate) struct Case {
    pub(crate) event: Event,
    pub(crate) filter: String,
    pub(crate) answers: Vec<bool>,
    pub(crate) error: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) script: Script,
}

/// Parses a case file.
pub(crate) fn parse_case(text: &str) -> Case {
    let mut case = Case::default();
    case.event.layout.event = "app:event".into();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').expect("a word and more");
        let numbers = || rest.split(' ').map(|n| n.parse().expect("a number")).collect();
        match word {
            "event" => case.event.layout.event = rest.into(),
            "filter" => case.filter = rest.into(),
            "answer" => case.answers = rest.split(' ').map(|answer| answer == "true").collect(),
            "error" => case.error = Some(rest.into()),
            "hint" => case.hint = Some(rest.into()),
            "warning" => case.warnings.push(rest.into()),
            "time" => case.script.times = numbers(),
            "random" => case.script.randoms = numbers(),
            root => case.event.add(root, rest),
        }
    }
    assert!(case.answers.is_empty() != case.error.is_none(), "an answer or an error");
    case
}
