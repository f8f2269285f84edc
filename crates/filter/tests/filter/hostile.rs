//! Any text either compiles or fails with an error position: without a panic, a stack overflow, or
//! excessive work.

use proptest::prelude::*;
use trackway_filter::compile::compile;
use trackway_filter::error::{Error, Topic};
use trackway_filter::parse::parse;
use trackway_filter::token::EXPRESSION_BYTES_MAX;

use super::event::Event;
use super::runner::check_program;

fn sample_event() -> Event {
    let mut event = Event::default();
    event.add("field", "a i32 = 1");
    event.add("field", "g u64 = 1");
    event.add("field", "f f64 = 1");
    event.add("field", "s string = \"x\"");
    event.add("field", "e enum i32 OK=0 BAD=1 = 0");
    event.add("field", "xs sequence u32 = 1 2");
    event.add("field", "arr array 2 i16 = 1 2");
    event.add("field", "p.q u8 = 1");
    event.add("context", "vpid i32 = 1");
    event
}

/// Compiles a text, and checks that its error can be rendered.
fn compile_and_check_error(text: &str) -> Option<Error> {
    match compile(text, &sample_event().layout) {
        Ok(compiled) => {
            check_program(&compiled.alternative.programs[0]);
            for warning in &compiled.filter.warnings {
                warning.render(text);
            }
            None
        }
        Err(error) => {
            assert!(error.span.from <= error.span.to && error.span.to <= text.len() + 1);
            assert!(error.render(text).contains('^'));
            assert!(error.column(text) <= text.chars().count() + 1);
            Some(error)
        }
    }
}

/// Fragments of expressions, which find more errors than random letters.
const PIECES: [&str; 67] = [
    "a",
    "g",
    "f",
    "s",
    "e",
    "xs",
    "arr",
    "p",
    ".",
    "q",
    "$ctx.vpid",
    "$app.a:b",
    "nothing",
    "0",
    "1",
    "-",
    "+",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "!",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "<<",
    ">>",
    "(",
    ")",
    "(",
    ")",
    "[",
    "]",
    ",",
    "..",
    "in",
    "in (",
    "any(",
    "all(",
    "none(",
    "sum(",
    "min(",
    "max(",
    "length(",
    "count()",
    "changed(",
    "sample(",
    "rate(",
    "starts_with(",
    "contains(",
    "\"x*\"",
    "\"OK\"",
    "\"\"",
    "'a'",
    "2.5",
    "1/1000",
    "100/s",
    "5ms",
    "18446744073709551615",
];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_characters_are_no_danger(text in "\\PC{0,200}") {
        compile_and_check_error(&text);
    }

    #[test]
    fn random_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        compile_and_check_error(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_pieces_are_no_danger(
        pieces in prop::collection::vec(prop::sample::select(PIECES.as_slice()), 0..40),
    ) {
        compile_and_check_error(&pieces.join(" "));
    }
}

/// Compiles a text on a stack as small as those of threads.
fn compile_on_small_stack(text: String) -> Option<Error> {
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let thread = thread.spawn(move || compile_and_check_error(&text)).expect("a thread");
    thread.join().expect("no panic")
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = EXPRESSION_BYTES_MAX / 16;
    for text in [
        "(".repeat(EXPRESSION_BYTES_MAX),
        format!("{}a{}", "(".repeat(deep), ")".repeat(deep)),
        "!".repeat(EXPRESSION_BYTES_MAX),
        format!("{}a", "- ".repeat(deep)),
        format!("{}a", "a[".repeat(deep)),
        format!("a{}", ".b".repeat(deep)),
        format!("a{}", " + 1".repeat(deep)),
        format!("a{}", " == 1".repeat(deep)),
        format!("a{}", " in (1)".repeat(deep)),
        format!("{}a", "a in (".repeat(deep)),
        format!("{}a", "length(".repeat(deep)),
        format!("{}a", "a && (b || ".repeat(deep / 2)),
    ] {
        let shown = text[..20].to_owned();
        let error = compile_on_small_stack(text);
        let topic = error.map(|error| error.topic);
        assert_eq!(topic, Some(Topic::Limit), "{shown}");
    }
    let flat = format!("a > 1{}", " && a > 1 || a > 2".repeat(deep / 2));
    assert_eq!(compile_on_small_stack(flat), None);
    let text = "1".repeat(EXPRESSION_BYTES_MAX + 1);
    assert_eq!(compile_on_small_stack(text).map(|error| error.topic), Some(Topic::Limit));
}

#[test]
fn as_deep_as_allowed_is_compiled() {
    let text = format!("{}a{} == 1", "(".repeat(60), ")".repeat(60));
    assert_eq!(compile_on_small_stack(text), None);
    let text = format!("a{} == 1", " + g * a".repeat(60));
    assert_eq!(compile_on_small_stack(text), None);
}

#[test]
fn what_is_too_long_for_bytecode_says_so() {
    let text: Vec<String> = (0..5000).map(|n| format!("a=={n}")).collect();
    let error = compile_on_small_stack(text.join("||")).expect("an error");
    assert_eq!(error.topic, Topic::Limit);
    assert!(error.message.contains("4096 instructions"), "{error}");
    let fields: Vec<String> = (0..65).map(|n| format!("xs[{n}] == f")).collect();
    // As elements of one sequence, all fields together are one need.
    assert_eq!(compile_on_small_stack(fields.join(" || ")), None);
}

#[test]
fn what_takes_too_long_says_so() {
    let names: Vec<String> = (0..90).map(|n| format!("xs != {n} + a")).collect();
    let error = compile_on_small_stack(format!("any({})", names.join(" && "))).expect("an error");
    assert_eq!(error.topic, Topic::Limit);
    assert!(error.message.contains("steps"), "{error}");
    let any: Vec<String> = (0..70).map(|n| format!("any(xs == {n})")).collect();
    let error = compile_on_small_stack(any.join(" || ")).expect("an error");
    assert!(error.message.contains("32 functions"), "{error}");
}

#[test]
fn sixty_four_fields_and_cells_are_the_most() {
    let mut event = Event::default();
    for n in 0..65 {
        event.add("field", &format!("a{n} i32 = 1"));
    }
    let names = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("a{n} == 1")).collect();
        names.join(" && ")
    };
    assert!(compile(&names(64), &event.layout).is_ok());
    let error = compile(&names(65), &event.layout).expect_err("too many fields");
    assert_eq!(error.topic, Topic::Limit);
    let counts = |count: usize| vec!["count() == 1"; count].join(" && ");
    assert!(compile(&counts(64), &event.layout).is_ok());
    let error = compile(&counts(65), &event.layout).expect_err("too many cells");
    assert_eq!(error.topic, Topic::Limit);
}

#[test]
fn trees_remember_where_things_stand() {
    let text = "  a == ( 1 + 2 )  ";
    let parsed = parse(text).expect("a tree");
    assert_eq!(&text[parsed.tree.span.from..parsed.tree.span.to], "a == ( 1 + 2 )");
}
