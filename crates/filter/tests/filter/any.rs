//! Tests which events an object applies to that was compiled before all events are known.

use std::collections::BTreeSet;

use trackway_filter::compile::{CompiledFor, check_for, compile_for_any};
use trackway_filter::error::Topic;
use trackway_filter::layout::{Layout, Member, Type};
use trackway_filter::types::Filter;
use trackway_jit::Kind;
use trackway_jit::object::Object;
use trackway_jit::verify::{Rules, State, verify};
use trackway_schema::{Label, Scalar};

/// Flags of encoded meanings.
const IS_NARROW: u8 = 1;
const IS_WIDE: u8 = 8;
const IS_OF_ARRAY: u8 = 16;
/// A size limit that no object of these tests reaches.
const ROOM_BYTES: usize = 64 << 10;

fn layout_with(event: &str, fields: &[(&str, Type)]) -> Layout {
    let member = |(name, of): &(&str, Type)| Member { name: (*name).into(), of: of.clone() };
    Layout {
        event: event.into(),
        fields: fields.iter().map(member).collect(),
        contexts: Layout::program_contexts(),
        ..Layout::default()
    }
}

fn enumeration_of(labels: &[&str]) -> Type {
    let Type::Integer(mut integer) = Type::from(Scalar::U32) else { panic!("an integer") };
    let label =
        |(value, name): (i64, &&str)| Label { name: (*name).into(), first: value, last: value };
    integer.labels = (0..).zip(labels).map(label).collect();
    Type::Integer(integer)
}

fn compile_and_verify(text: &str, layouts: &[Layout]) -> CompiledFor {
    let compiled = compile_for_any(text, layouts, ROOM_BYTES).expect(text);
    let bytes = compiled.object.encode().expect("an object");
    let object = Object::decode(&bytes).expect("what was encoded");
    for alternative in object.alternatives() {
        let program = alternative.programs().next().expect("an entry");
        let mut states = vec![State::FREE; program.len() + 1];
        verify(program, Rules::new(alternative.needs_count()), &mut states).expect(text);
    }
    compiled
}

/// Returns the kinds of the needs of each alternative.
fn need_kinds(compiled: &CompiledFor) -> Vec<Vec<(String, Kind)>> {
    let needs = compiled.object.alternatives.iter().map(|alternative| &alternative.needs);
    needs.map(|of| of.iter().map(|need| (need.path.clone(), need.kind)).collect()).collect()
}

fn single_need(path: &str, kind: Kind) -> Vec<(String, Kind)> {
    vec![(path.into(), kind)]
}

#[test]
fn events_that_nobody_knows_have_alternatives_for_all_kinds_that_make_sense() {
    let number = [Kind::Signed, Kind::Unsigned, Kind::Float];
    assert_eq!(
        need_kinds(&compile_and_verify("x > 5", &[])),
        number.map(|kind| single_need("x", kind))
    );
    assert_eq!(
        need_kinds(&compile_and_verify("xs[2] > 5", &[])),
        number.map(|kind| single_need("xs[2]", kind))
    );
    assert_eq!(
        need_kinds(&compile_and_verify("name == \"a*\"", &[])),
        [single_need("name", Kind::String)]
    );
    let of_length = need_kinds(&compile_and_verify("length(x) > 5", &[]));
    assert_eq!(of_length, [Kind::String, Kind::Sequence].map(|kind| single_need("x", kind)));
    assert_eq!(need_kinds(&compile_and_verify("x > 5 || x < 2", &[])).len(), 3);
    assert_eq!(
        need_kinds(&compile_and_verify("x > 5 && y < z", &[])).len(),
        3 * (9 + 1),
        "or y and z are strings"
    );
    assert_eq!(
        need_kinds(&compile_and_verify("$ctx.vpid == 7", &[])),
        [single_need("$ctx.vpid", Kind::Signed)]
    );
    assert_eq!(need_kinds(&compile_and_verify("sample(1/10) && rate(100/s)", &[])), [vec![]]);
    assert_eq!(
        need_kinds(&compile_and_verify("x & 1", &[])),
        [Kind::Signed, Kind::Unsigned].map(|k| single_need("x", k))
    );
}

#[test]
fn combinations_are_bounded_and_the_likely_ones_are_there() {
    let text = "a + b > 1 && c > 2 && d > 3 && e > 4 && f > 5 && g > 6";
    let compiled = compile_and_verify(text, &[]);
    let kinds = need_kinds(&compiled);
    let different: BTreeSet<_> = kinds.iter().map(|of| format!("{of:?}")).collect();
    assert_eq!(different.len(), 64);
    let all = |kind| "abcdefg".chars().map(|name| (name.to_string(), kind)).collect::<Vec<_>>();
    assert_eq!(kinds[0], all(Kind::Signed));
    // There are also alternatives in which exactly one field is unsigned.
    let one_differs = |of: &&Vec<(String, Kind)>| {
        of.iter().filter(|(_, kind)| *kind == Kind::Unsigned).count() == 1
            && of.iter().all(|(_, kind)| *kind != Kind::Float)
    };
    let differ: BTreeSet<_> =
        kinds.iter().filter(one_differs).map(|of| format!("{of:?}")).collect();
    assert_eq!(differ.len(), 7);
    let many: Vec<String> = (0..40).map(|number| format!("f{number} > 1")).collect();
    assert_eq!(compile_and_verify(&many.join(" && "), &[]).object.alternatives.len(), 64);
}

#[test]
fn fields_of_different_types_are_found_in_one_part() {
    // Only some of the many combinations are present, including those with equal number types.
    let kinds = need_kinds(&compile_and_verify("length(s) + a + b + c > 5", &[]));
    for s in [Kind::String, Kind::Sequence] {
        for number in [Kind::Signed, Kind::Unsigned] {
            let numbers = ["a", "b", "c"].map(|name| (name.to_owned(), number));
            let alike = [single_need("s", s), numbers.to_vec()].concat();
            assert!(kinds.contains(&alike), "{alike:?}");
        }
    }
    let never = compile_and_verify("any(xs > a + b + c)", &[]);
    assert_eq!(never.filters[0].root.constant(), Some(0), "it is plausible");
    assert!(
        compile_and_verify("starts_with(s, t) == (a + b + c > 3)", &[]).object.alternatives.len()
            > 3
    );
    let labels: Vec<String> = (0..12).map(|number| format!("s{number} == \"a\"")).collect();
    assert_eq!(compile_and_verify(&labels.join(" && "), &[]).object.alternatives.len(), 1);
    assert!(compile_for_any("status == \"a\" && status > 5", &[], ROOM_BYTES).is_ok());
}

#[test]
fn what_many_fields_must_be_is_found_out_one_by_one() {
    let text = "length(path) + length(query) + length(body) + length(agent) > limit + extra";
    let first = &need_kinds(&compile_and_verify(text, &[]))[0];
    let kinds_of_first: Vec<Kind> = first.iter().map(|(_, kind)| *kind).collect();
    assert_eq!(kinds_of_first, [[Kind::String; 4].as_slice(), &[Kind::Signed; 2]].concat());
    let text = "o + z[2] + a + c + h + x + bb[1] > 0";
    let all = need_kinds(&compile_and_verify(text, &[]));
    assert!(all[0].iter().all(|(_, kind)| *kind == Kind::Signed) && all[0][1].0 == "z[2]");
    // Fields in parentheses are found, too; some of them must be enumerations.
    let text =
        "(a) && (length(s) in (5, (b))) && (e == \"BAD\" || e > (c) + y[0] - (a - length(y)))";
    let labelled = compile_and_verify(text, &[]);
    assert!(labelled.filters[0].root.constant() == Some(0) && labelled.filters[0].needs.len() == 6);
    // Expressions with elements or labels are no error either.
    let many: Vec<String> =
        (0..20).map(|number| format!("length(s{number}) > x{number}")).collect();
    assert_eq!(compile_and_verify(&many.join(" && "), &[]).object.alternatives.len(), 64);
    let many: Vec<String> = (0..9).map(|number| format!("any(s{number} > x{number})")).collect();
    assert_eq!(compile_and_verify(&many.join(" + "), &[]).filters[0].root.constant(), Some(0));
    // A field compared with strings is a string in all comparisons.
    let same =
        need_kinds(&compile_and_verify("a == b && b == c && c == d && starts_with(d, \"x\")", &[]));
    assert_eq!(same, [["a", "b", "c", "d"].map(|name| (name.to_owned(), Kind::String)).to_vec()]);
    let error = compile_for_any("a == b && b == c && starts_with(c, a) && a < 5", &[], ROOM_BYTES);
    assert_eq!(error.expect_err("a number").message, "a string is not compared with an integer");
}

#[test]
fn elements_that_may_be_missing_are_those_of_arrays() {
    let of_array = |text: &str| -> Vec<bool> {
        let compiled = compile_and_verify(text, &[]);
        let records = compiled.meanings.get(8..).unwrap_or_default().as_chunks::<8>().0;
        let is_of_array = |alternative: usize| {
            records
                .iter()
                .any(|record| usize::from(record[0]) == alternative && record[2] & IS_OF_ARRAY != 0)
        };
        (0..compiled.object.alternatives.len()).map(is_of_array).collect()
    };
    assert_eq!(of_array("z[3] > 0"), [false; 3]);
    assert_eq!(of_array("a == 3 && z[3] > 0"), [false; 9]);
    assert_eq!(of_array("a == 3 || z[3] > 0"), [true; 9]);
    assert_eq!(of_array("z[3] > 0 && count() > 3"), [true; 3]);
}

#[test]
fn alternatives_take_no_more_room_than_they_may() {
    let text = "a > 1 && b > 2 && c > 3";
    let all = compile_for_any(text, &[], ROOM_BYTES).expect("an object").object;
    assert_eq!(all.alternatives.len(), 27);
    let some = compile_for_any(text, &[], 400).expect("an object").object;
    assert!((1..27).contains(&some.alternatives.len()));
    assert_eq!(some.alternatives[..], all.alternatives[..some.alternatives.len()]);
    let known = [layout_with("app:a", &["a", "b", "c"].map(|name| (name, Scalar::U16.into())))];
    let observed = compile_for_any(text, &known, 0).expect("an object").object;
    assert_eq!(observed.alternatives.len(), 1, "those of events that are known are always there");
}

#[test]
fn events_that_are_known_come_first_and_are_not_there_twice() {
    let known = [layout_with("app:a", &[("x", Scalar::F32.into())]), layout_with("app:b", &[])];
    let compiled = compile_and_verify("x > 5", &known);
    let number = [Kind::Float, Kind::Signed, Kind::Unsigned];
    assert_eq!(need_kinds(&compiled), number.map(|kind| single_need("x", kind)));
    assert_eq!(compiled.alternatives, [Some(0), None]);
    // Unsigned 32-bit integers may become negative, like in `trackway print`.
    let narrow = [layout_with("app:a", &[("x", Scalar::U32.into())])];
    let compiled = compile_and_verify("x - 5 < 0", &narrow);
    let first = &compiled.object.alternatives[0];
    let alone = trackway_filter::compile::compile("x - 5 < 0", &narrow[0]).expect("a filter");
    assert_eq!(*first, alone.alternative);
}

/// Returns the index of the alternative for an unregistered event with these integer fields.
/// Returns `None` if no alternative applies, so that the event is counted.
fn alternative_for(compiled: &CompiledFor, fields: &[(&str, Scalar)]) -> Option<usize> {
    let kind = |of: Scalar| if of.is_signed() { Kind::Signed } else { Kind::Unsigned };
    let of = |path: &str| fields.iter().find(|(name, _)| *name == path).expect("a field").1;
    let is_met = |alternative: usize| {
        let needs = &compiled.object.alternatives[alternative].needs;
        (0..).zip(needs).all(|(number, need)| {
            let records = compiled.meanings.get(8..).unwrap_or_default().as_chunks::<8>().0;
            let own = |record: &&[u8; 8]| record[..2] == [alternative as u8, number];
            let mut own = records.iter().filter(own).peekable();
            let is_narrow = of(&need.path).size_bytes() < 8;
            need.kind == kind(of(&need.path))
                && (own.peek().is_none()
                    || own.any(|record| record[2] == if is_narrow { IS_NARROW } else { IS_WIDE }))
        })
    };
    (0..compiled.object.alternatives.len()).find(|&alternative| is_met(alternative))
}

#[test]
fn first_events_of_a_kind_are_asked_what_they_are_asked_once_they_are_known() {
    let (i, u, n) = (Scalar::I64, Scalar::U64, Scalar::U16);
    for (text, names) in [
        ("a - b < 0", &["a", "b"][..]),
        ("a - b < 0 && c > 5", &["a", "b", "c"]),
        ("-a < 0 || ~b > 7", &["a", "b"]),
        ("(a - b) * c < 0", &["a", "b", "c"]),
    ] {
        let compiled = compile_and_verify(text, &[]);
        for types in [[u, u, u], [n, n, n], [n, u, n], [u, n, n], [n, n, u], [i, n, u], [n, i, i]] {
            let fields: Vec<(&str, Scalar)> = names.iter().copied().zip(types).collect();
            let members: Vec<(&str, Type)> =
                fields.iter().map(|(name, of)| (*name, (*of).into())).collect();
            let alone = trackway_filter::compile::compile(text, &layout_with("app:new", &members));
            let asked = alternative_for(&compiled, &fields).expect("there is one for each");
            let asked = &compiled.object.alternatives[asked];
            // Comparisons without arithmetic may compile differently.
            if !text.contains("c > 5") {
                assert_eq!(*asked, alone.expect(text).alternative, "{text} {types:?}");
            }
        }
    }
    // With too many fields, events in which only some fields are narrow are counted.
    let text = "a - b - c - d < 0";
    let compiled = compile_and_verify(text, &[]);
    let of = |types: [Scalar; 4]| {
        let fields: Vec<(&str, Scalar)> = ["a", "b", "c", "d"].into_iter().zip(types).collect();
        alternative_for(&compiled, &fields)
    };
    assert!(of([n; 4]).is_some() && of([i; 4]).is_some());
    assert!(of([u; 4]).is_some() && of([n, n, n, u]).is_none());
    // If the width does not matter, there are no additional alternatives.
    assert!(compile_and_verify("a > 5 && (b & 7) == c", &[]).meanings.is_empty());
}

#[test]
fn what_depends_on_more_than_kinds_is_for_events_that_are_known() {
    // The field could be a string; the values of labels are unknown.
    let compiled = compile_and_verify("status == \"FAILED\"", &[]);
    assert_eq!(need_kinds(&compiled), [single_need("status", Kind::String)]);
    let known = [layout_with("app:a", &[("status", enumeration_of(&["OK", "FAILED"]))])];
    let compiled = compile_and_verify("status == \"FAILED\"", &known);
    assert_eq!(
        need_kinds(&compiled),
        [Kind::Unsigned, Kind::String].map(|k| single_need("status", k))
    );
    // Reading elements requires the exact element type.
    let text = "any(xs > 3)";
    let never = compile_and_verify(text, &[]);
    // Events with such a field are counted until their type is known.
    assert_eq!(need_kinds(&never), [single_need("xs", Kind::Unsigned)]);
    assert_eq!(never.meanings[8..], [0, 0, 4, 0, 0, 0, 0, 0]);
    assert_eq!(never.filters[0].root.constant(), Some(0));
    assert!(never.warnings[0].message.contains("no event is known yet"));
    let known = [layout_with("app:a", &[("xs", Type::Sequence(Box::new(Scalar::U8.into())))])];
    assert_eq!(need_kinds(&compile_and_verify(text, &known)), [single_need("xs", Kind::Sequence)]);
}

#[test]
fn what_lacks_an_element_comes_behind_what_has_it() {
    let array = Type::Array(Box::new(Scalar::U8.into()), 3);
    let known = [layout_with("app:a", &[("xs", array)])];
    let compiled = compile_and_verify("xs[5] > 1", &known);
    let kinds = need_kinds(&compiled);
    assert_eq!(kinds.last(), Some(&single_need("xs", Kind::Sequence)));
    assert_eq!(compiled.alternatives, [Some(kinds.len() - 1)]);
    assert!(kinds.contains(&single_need("xs[5]", Kind::Unsigned)));
}

#[test]
fn what_no_event_can_have_is_an_error() {
    let error = |text: &str| compile_for_any(text, &[], ROOM_BYTES).expect_err(text);
    assert_eq!(error("x >").topic, Topic::Syntax);
    assert_eq!(error("\"a\" > 5").topic, Topic::Type);
    assert_eq!(error("starts_with(name, \"a\") && name > 5").topic, Topic::Type);
    assert_eq!(error("starts_wth(name, \"a\")").topic, Topic::Unknown);
    assert!(error("$ctx.vpit > 5").message.contains("did you mean '$ctx.vpid'"));
    assert_eq!(error("pos.x > 5").topic, Topic::Type);
    assert_eq!(error("x > 5 && length(x & 1) > 2").topic, Topic::Type);
}

#[test]
fn labels_of_one_value_are_told_apart_where_they_mean_different_things() {
    let known = [
        layout_with("app:a", &[("status", enumeration_of(&["OK", "FAILED"]))]),
        layout_with("app:b", &[("status", enumeration_of(&["FAILED", "OK"]))]),
    ];
    let compiled = compile_and_verify("status == \"OK\"", &known);
    assert_eq!(compiled.alternatives, [Some(0), Some(1)]);
    assert!(compiled.needs_meanings && !compiled.meanings.is_empty());
}

#[test]
fn what_is_narrow_alone_has_all_others_behind_it() {
    let known = [layout_with("app:a", &[("x", Scalar::U32.into())])];
    let compiled = compile_and_verify("x >= 5", &known);
    // First the known narrow type, then signed, and all types of unknown events.
    let number = [Kind::Unsigned, Kind::Signed, Kind::Unsigned, Kind::Float];
    assert_eq!(need_kinds(&compiled), number.map(|kind| single_need("x", kind)));
    assert!(!compiled.needs_meanings);
    let both = [known[0].clone(), layout_with("app:b", &[("x", Scalar::U64.into())])];
    let compiled = compile_and_verify("x >= 5", &both);
    assert_eq!(compiled.alternatives, [Some(0), Some(0)]);
    assert!(compiled.meanings.is_empty(), "all are taken for 64 bits");
}

/// An application context may have any type.
#[test]
fn contexts_of_programs_have_alternatives_for_all_that_they_can_be() {
    let kinds = |text: &str| -> Vec<Vec<Kind>> {
        let compiled = compile_for_any(text, &[], ROOM_BYTES).expect("a filter");
        let needs = |filter: &Filter| filter.needs.iter().map(|need| need.kind).collect();
        compiled.filters.iter().map(needs).collect()
    };
    let numbers = [[Kind::Signed], [Kind::Unsigned], [Kind::Float]];
    assert_eq!(kinds("$app.a:b > 5"), numbers);
    assert_eq!(kinds("$app.a:b == \"x*\""), [[Kind::String]]);
    assert_eq!(kinds("length($app.a:b) > 5"), [[Kind::String]], "no sequence");
    assert_eq!(kinds("$app.a:b > 5 && $app.a:c > 5").len(), 9);
    assert!(compile_for_any("$app.a:b[1] > 5", &[], ROOM_BYTES).is_err());
    assert!(compile_for_any("$app.a:b.c > 5", &[], ROOM_BYTES).is_err());
}

#[test]
fn what_no_known_event_has_is_told() {
    let known = [
        layout_with("app:a", &[("length", Scalar::U32.into())]),
        layout_with("app:b", &[("name", Type::String)]),
    ];
    assert!(check_for("length > 5", &known).is_ok());
    let error = check_for("lenght > 5", &known).expect_err("unknown");
    assert_eq!(error.message, "unknown field 'lenght' of app:a; did you mean 'length'?");
    assert_eq!(check_for("name > 5", &known).expect_err("a string").topic, Topic::Type);
    // The expression may belong to an event that is not known yet.
    assert!(compile_for_any("lenght > 5", &known, ROOM_BYTES).is_ok());
    assert!(compile_for_any("name > 5", &known, ROOM_BYTES).is_ok());
}
