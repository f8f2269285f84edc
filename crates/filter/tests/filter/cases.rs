//! Runs the cases of `crates/filter/cases` through the evaluator and all ways to run bytecode.

use std::fs;
use std::path::Path;

use trackway_filter::compile::compile;
use trackway_filter::evaluate::{State, evaluate};

use super::case::{Case, parse_case};
use super::event::ValuesAtTime;
use super::frame::Frame;
use super::machine::Machine;
use super::runner::{Runner, check_program};

fn check_case(case: &Case) -> Result<(), String> {
    let text = &case.filter;
    let shown =
        |error: &trackway_filter::error::Error| format!("{} {}", error.column(text), error.message);
    let compiled = match (compile(text, &case.event.layout), &case.error) {
        (Ok(compiled), None) => compiled,
        (Ok(_), Some(error)) => return Err(format!("no error, but expected {error}")),
        (Err(error), expected) => {
            if Some(shown(&error)) != *expected || error.hint != case.hint {
                return Err(format!("{} (hint {:?})", shown(&error), error.hint));
            }
            return Ok(());
        }
    };
    let warnings: Vec<String> = compiled.filter.warnings.iter().map(shown).collect();
    if warnings != case.warnings {
        return Err(format!("warnings {warnings:?}"));
    }
    let alternative = compiled.alternative;
    check_program(&alternative.programs[0]);
    let mut states = [State::new(&compiled.filter), State::new(&compiled.filter)];
    let mut runtimes = [case.script.clone(), case.script.clone()];
    let mut machine = Machine::new(compiled.filter.cells, &alternative, &case.script);
    for (time, &expected) in case.answers.iter().enumerate() {
        let now = ValuesAtTime::new(&compiled.filter.needs, &case.event, time);
        runtimes[0].now = time;
        let answer = evaluate(&compiled.filter, &now, &mut states[0], &mut runtimes[0]);
        if answer != expected {
            return Err(format!("the evaluator answers {answer} to event {time}"));
        }
        let frame = Frame::of(&alternative, |path| case.event.find(path, time));
        runtimes[1].now = time;
        let answers = frame.map_or([false; 3], |frame| {
            let (state, runtime) = (&mut states[1], &mut runtimes[1]);
            let answer = Runner { alternative: &alternative, frame: &frame, state, runtime }.run();
            let [interpreted, machine] = machine.answers(&frame, time);
            [answer, interpreted, machine]
        });
        if answers != [expected; 3] {
            return Err(format!(
                "bytecode, interpreted and as machine code answer {answers:?} to event {time}"
            ));
        }
    }
    Ok(())
}

#[test]
fn cases_have_the_answers_that_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut failures = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the cases").flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = fs::read_to_string(entry.path()).expect("a case");
        count += 1;
        let case = parse_case(&text);
        if let Err(failure) = check_case(&case) {
            let name = entry.file_name();
            failures.push(format!("{}: {}\n    {failure}", name.display(), case.filter));
        }
    }
    failures.sort();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count >= 150, "{count} cases were found");
}
