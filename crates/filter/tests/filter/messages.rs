//! Tests messages for users (line, markers, message, hint), and the alternatives of filters for
//! several events.

use trackway_filter::compile::{CompiledFor, compile, compile_for};
use trackway_filter::explain;
use trackway_filter::layout::{Integer, Layout, Member, Type};
use trackway_filter::parse::split_pattern;
use trackway_filter::types::check_text;
use trackway_jit::Kind;
use trackway_jit::meaning::Meanings;
use trackway_jit::object::VERSION_OF_MEANINGS;
use trackway_schema::Scalar;

use super::event::Event;

/// Declares an event whose fields have arbitrary values.
fn declare_event(name: &str, fields: &[(&str, &str)]) -> Event {
    let mut event = Event::default();
    event.layout.event = name.into();
    for (field, value) in fields {
        event.add("field", &format!("{field} = {value}"));
    }
    event
}

fn render_error(text: &str) -> String {
    let event = declare_event(
        "myapp:read",
        &[
            ("length u32", "1"),
            ("name string", "\"\""),
            ("status enum i32 OK=0 FAILED=1", "0"),
            ("xs sequence u32", "1"),
        ],
    );
    compile(text, &event.layout).expect_err(text).render(text)
}

#[test]
fn errors_point_at_what_they_mean() {
    for (text, expected) in [
        (
            "length > 5 && lenght == 3",
            "length > 5 && lenght == 3\n\
             \x20             ^^^^^^\n\
             unknown field 'lenght' of myapp:read; did you mean 'length'?",
        ),
        (
            "name",
            "name\n\
             ^^^^\n\
             a string is neither true nor false\n\
             hint: compare it (name == \"…\"), or ask for its length: length(name) > 0",
        ),
        (
            "status == \"FAILD\"",
            "status == \"FAILD\"\n\
             \x20         ^^^^^^^\n\
             unknown label \"FAILD\"; did you mean 'FAILED'?",
        ),
        (
            "length > 1 &&\n  (xs > 3)",
            "  (xs > 3)\n\
             \x20  ^^\n\
             a sequence as a whole has no value\n\
             hint: ask for elements: any(xs > 3), all(…), none(…), xs[0], sum(xs), max(xs), or \
             for length(xs)",
        ),
        (
            "length >",
            "length >\n\
             \x20       ^\n\
             the expression ends where a value is expected",
        ),
        ("", "\n^\nthere is no expression"),
        (
            "length and name == \"x\"",
            "length and name == \"x\"\n\
             \x20      ^^^\n\
             expected an operator, found 'and'\n\
             hint: 'and' is written &&",
        ),
        (
            "length << 70",
            "length << 70\n\
             \x20         ^^\n\
             a shift is by 0 to 63 bits",
        ),
    ] {
        assert_eq!(render_error(text), expected, "{text}");
    }
}

#[test]
fn patterns_end_at_a_colon_and_a_space() {
    for (text, pattern, expression) in [
        ("myapp:request: latency_us > 500", Some("myapp:request"), "latency_us > 500"),
        ("my*:  a == 1", Some("my*"), "a == 1"),
        ("latency_us > 500", None, "latency_us > 500"),
        ("name == \"a: b\"", None, "name == \"a: b\""),
        ("name == \"\\\": b\"", None, "name == \"\\\": b\""),
        ("$app.a:b == 1", None, "$app.a:b == 1"),
        ("a:b: name == \"c: d\"", Some("a:b"), "name == \"c: d\""),
        ("sched_*, !sched_stat_*: pid > 1", Some("sched_*, !sched_stat_*"), "pid > 1"),
        ("my-app.v2:größe: a == 1", Some("my-app.v2:größe"), "a == 1"),
    ] {
        assert_eq!(split_pattern(text), (pattern, expression), "{text}");
    }
}

#[test]
fn what_is_no_pattern_is_part_of_an_expression_that_makes_no_sense() {
    for (text, marked, hint) in [
        ("status == 400 ? 1 : 0", "?", "&& and || choose"),
        ("filename == \"x\" ? 1 : 0", "?", "&& and || choose"),
        ("a b c: 1", ":", "which events it is about"),
        ("\"x\": 3", ":", "which events it is about"),
        ("$ctx.vpid: 3", ":", "which events it is about"),
        (": a > 3", ":", "which events it is about"),
        ("sched_switch:prev_prio>3", ":", "pattern: sched_switch: prev_prio>3"),
        ("sched:sched_switch:prev_prio>3", ":", "pattern: sched:sched_switch: prev_prio>3"),
        ("sched:sched_switch:", ":", "pattern: sched:sched_switch: EXPR"),
        ("sched_switch:", ":", "pattern: sched_switch: EXPR"),
    ] {
        let (pattern, expression) = split_pattern(text);
        assert_eq!((pattern, expression), (None, text));
        let error = check_text(expression, &Layout::default()).expect_err(text);
        assert_eq!(&text[error.span.from..error.span.to], marked, "{text}");
        let rendered = error.render(text);
        assert!(rendered.contains(hint), "{rendered}");
    }
}

/// Messages for commands with a separate pattern
/// (`trackway event on SESSION PATTERN --filter EXPR`).
#[test]
fn a_pattern_is_not_asked_for_where_it_does_not_belong() {
    let text = "myapp:request: status > 3";
    let error = check_text(text, &Layout::default()).expect_err(text).render(text);
    assert!(error.contains("only the expression belongs, 'status > 3'"), "{error}");
    assert!(!error.contains("missing"), "{error}");
}

fn compile_for_all(text: &str, events: &[Event]) -> CompiledFor {
    let layouts: Vec<_> = events.iter().map(|event| event.layout.clone()).collect();
    compile_for(text, &layouts).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

#[test]
fn each_combination_of_kinds_has_an_alternative() {
    let events = [
        declare_event("app:a", &[("x i32", "1"), ("other string", "\"\"")]),
        declare_event("app:b", &[("x u8", "1")]),
        declare_event("app:c", &[("y u8", "1")]),
        declare_event("app:d", &[("more i8", "1"), ("x i64", "1")]),
        declare_event("app:e", &[("x string", "\"\"")]),
    ];
    let compiled = compile_for_all("x > 3", &events);
    assert_eq!(compiled.alternatives, [Some(0), Some(1), None, Some(0), None]);
    let kinds: Vec<_> =
        compiled.object.alternatives.iter().map(|alternative| alternative.needs[0].kind).collect();
    assert_eq!(kinds, [Kind::Signed, Kind::Unsigned]);
    // A missing name is normal in other events; a name with another type causes a warning.
    let warnings: Vec<_> = compiled.warnings.iter().map(|warning| &warning.message[..]).collect();
    assert_eq!(warnings, ["app:e is not recorded: a string is not compared with an integer"]);
}

#[test]
fn one_alternative_serves_all_widths() {
    let events =
        [declare_event("app:a", &[("x u8", "1")]), declare_event("app:b", &[("x u64", "1")])];
    let together = compile_for_all("x + 5 > 7", &events);
    assert_eq!(together.alternatives, [Some(0), Some(0)]);
    // The object equals the one for the widest field alone.
    let alone = compile_for_all("x + 5 > 7", &events[1..]);
    assert_eq!(together.object, alone.object);
    assert!(together.meanings.is_empty());
}

#[test]
fn widths_that_make_a_difference_have_alternatives_of_their_own() {
    let fields = |x: &str, y: &str| [(format!("x {x}"), "1"), (format!("y {y}"), "1")];
    let events = [("u8", "u8"), ("u64", "u16"), ("u32", "u64"), ("u64", "u64")].map(|(x, y)| {
        let fields = fields(x, y);
        declare_event("app:a", &fields.each_ref().map(|(field, value)| (field.as_str(), *value)))
    });
    // The width of y does not matter.
    let together = compile_for_all("x - 5 > 0 && y < 7", &events);
    assert_eq!(together.alternatives, [0, 1, 0, 1].map(Some));
    assert!(together.needs_meanings);
    let meanings = Meanings::decode(&together.meanings).expect("meanings");
    let of = |alternative: usize, need: usize| -> Vec<(bool, bool)> {
        let all = meanings.of(alternative, need);
        all.map(|meaning| (meaning.is_narrow, meaning.is_wide)).collect()
    };
    assert_eq!([of(0, 0), of(1, 0)], [vec![(true, false)], vec![(false, true)]]);
    assert_eq!([of(0, 1), of(1, 1)], [vec![], vec![]]);
}

#[test]
fn what_means_something_else_has_an_alternative_of_its_own() {
    let labels = |labels: &str| declare_event("app:l", &[(&format!("s enum u8 {labels}"), "0")]);
    for (events, text) in [
        ([labels("OK=0 BAD=1"), labels("OK=1 BAD=0")], "s == \"OK\""),
        (
            [
                declare_event("app:a", &[("xs sequence u8", "1")]),
                declare_event("app:b", &[("xs sequence u32", "1")]),
            ],
            "any(xs > 3)",
        ),
    ] {
        let layouts = events.map(|event| event.layout);
        let compiled = compile_for(text, &layouts).expect(text);
        assert_eq!(compiled.alternatives, [Some(0), Some(1)], "{text}");
        assert!(compiled.needs_meanings, "{text}");
        // A reader without meanings must not use the first alternative for both events.
        let bytes = compiled.encode().expect(text);
        assert_eq!(bytes[3], VERSION_OF_MEANINGS, "{text}");
        assert!(Meanings::decode(&compiled.meanings).is_some(), "{text}");
    }
    let sequences = ["u8", "u32"]
        .map(|of| declare_event("app:s", &[(format!("xs sequence {of}").as_str(), "1")]));
    assert!(compile_for_all("length(xs) > 3", &sequences).meanings.is_empty());
    // Labels of fields that the filter does not compare with labels do not matter.
    let number = compile_for_all("s > 0", &[labels("OK=0 BAD=1"), labels("OK=1 BAD=0")]);
    assert_eq!(number.alternatives, [Some(0), Some(0)]);
    assert!(!number.needs_meanings);
    // Labels that the filter does not name do not matter either.
    let more =
        compile_for_all("s == \"BAD\"", &[labels("OK=0 BAD=1"), labels("OK=0 BAD=1 LATE=2")]);
    assert_eq!(more.alternatives, [Some(0), Some(0)]);
    assert!(!more.needs_meanings && more.encode().expect("an object")[3] == 1);
}

#[test]
fn arrays_that_are_long_enough_come_first() {
    let events = [
        declare_event("app:a", &[("xs array 2 u8", "1 2")]),
        declare_event("app:b", &[("xs array 9 u8", "1")]),
    ];
    let compiled = compile_for_all("xs[5] == 1", &events);
    // Both events have the array; only the longer array has the element.
    assert_eq!(compiled.alternatives, [Some(1), Some(0)]);
    assert_eq!(compiled.object.alternatives[0].needs[0].path, "xs[5]");
    assert_eq!(compiled.object.alternatives[1].needs[0].path, "xs");
}

#[test]
fn an_error_of_all_events_is_an_error() {
    let events =
        [declare_event("app:a", &[("x u8", "1")]), declare_event("app:b", &[("length u8", "1")])];
    let layouts = events.map(|event| event.layout);
    let message = |text: &str| compile_for(text, &layouts).expect_err(text).message;
    assert_eq!(message("lenght > 1"), "unknown field 'lenght' of app:b; did you mean 'length'?");
    assert_eq!(
        message("x > 1 && length > 1"),
        "no event has all that this names: unknown field 'length' of app:a"
    );
    assert_eq!(message("x == \"a\""), "an integer is not compared with a string");
    assert_eq!(message("x >"), "the expression ends where a value is expected");
    let error = compile_for("x > 1", &[]).expect_err("no events");
    assert_eq!(error.message, "there is no event that this is for");
}

#[test]
fn needs_are_what_is_named_in_the_order_of_naming() {
    let event = declare_event(
        "app:a",
        &[("a u8", "1"), ("b u8", "1"), ("c string", "\"\""), ("d u8", "1"), ("p.q f64", "1")],
    );
    let compiled = compile("d > 1 && (c == \"x\" || a > d) && p.q < 1", &event.layout);
    let needs = compiled.expect("a filter").alternative.needs;
    let needs: Vec<_> = needs.iter().map(|need| (&need.path[..], need.kind)).collect();
    let expected =
        [("d", Kind::Unsigned), ("c", Kind::String), ("a", Kind::Unsigned), ("p.q", Kind::Float)];
    assert_eq!(needs, expected);
}

#[test]
fn trees_and_listings_are_for_reading() {
    let event = declare_event("app:a", &[("size u32", "1"), ("name string", "\"\"")]);
    let compiled = compile("size in (5..9) && name == \"a*\"", &event.layout).expect("a filter");
    assert_eq!(
        explain::format_tree(&compiled.filter),
        "&&: signed\n  in (5..9): signed\n    size: signed\n  like \"a*\": signed\n    \
         name: string\n"
    );
    let listing = explain::format_listing(&compiled.alternative);
    assert_eq!(
        listing,
        "   0  79 12 00 00 00 00 00 00  r2 = *(u64 *)(r1 +0)              size\n   \
            1  c5 02 09 00 05 00 00 00  if r2 s< 5 goto 11\n   \
            2  65 02 08 00 09 00 00 00  if r2 s> 9 goto 11\n   \
            3  61 12 0c 00 00 00 00 00  r2 = *(u32 *)(r1 +12)             length: name\n   \
            4  a5 02 06 00 01 00 00 00  if r2 < 1 goto 11\n   \
            5  61 12 08 00 00 00 00 00  r2 = *(u32 *)(r1 +8)              where it is: name\n   \
            6  b7 03 00 00 61 00 00 00  r3 = 97\n   \
            7  85 00 00 00 1a 00 00 00  call bytes_differ_1#26            \"a\"\n   \
            8  55 00 02 00 00 00 00 00  if r0 != 0 goto 11\n   \
            9  b7 00 00 00 01 00 00 00  r0 = 1\n  \
            10  05 00 01 00 00 00 00 00  goto 12\n  \
            11  b7 00 00 00 00 00 00 00  r0 = 0\n  \
            12  95 00 00 00 00 00 00 00  exit\n"
    );
}

#[test]
fn traces_have_more_types_than_programs() {
    let member = |name: &str, of: Type| Member { name: name.into(), of };
    let narrow =
        Type::Integer(Integer { is_signed: false, bits: 12, scalar: None, labels: Vec::new() });
    let point = Type::Structure(vec![member("x", Scalar::I32.into())]);
    let row = Type::Array(Box::new(Scalar::U8.into()), 2);
    let layout = Layout {
        event: "trace:event".into(),
        fields: vec![
            member("points", Type::Sequence(Box::new(point))),
            member("matrix", Type::Array(Box::new(row), 3)),
            member("narrow", narrow.clone()),
            member("many", Type::Sequence(Box::new(narrow))),
        ],
        ..Layout::default()
    };
    let compiled = compile("points[1].x == 2 && matrix[2][1] > narrow", &layout);
    let needs = compiled.expect("a filter").filter.needs;
    let paths: Vec<_> = needs.iter().map(|need| &need.path[..]).collect();
    assert_eq!(paths, ["points[1].x", "matrix[2][1]", "narrow"]);
    // The evaluator can iterate over elements that bytecode cannot read.
    assert!(check_text("any(many > 3)", &layout).is_ok());
    for (text, message) in [
        ("any(many > 3)", "elements of 'many' have a width that only a trace's reader knows"),
        ("any(points == 3)", "points has elements that are structures"),
        ("matrix[3][0] == 1", "matrix has 3 elements, from 0"),
        ("points[narrow].x == 1", "here an element's number must be a constant"),
        ("points[0] == 1", "points[0] is a structure"),
    ] {
        assert_eq!(compile(text, &layout).expect_err(text).message, message, "{text}");
    }
}
