//! `trackway print --filter`: the events of a trace that an expression selects.

use std::fs;
use std::path::Path;
use std::process::Output;

use trackway_tests::{Fixture, has, report_skipped, source_dir};

/// Emits twenty events with a value of each kind, and five of another event, which has fewer
/// fields.
const PROGRAM: &str = r#"
#include <trackway/trackway.h>

TRACKWAY_ENUM(shop, state, (idle, 0), (busy, 1), (done, 2, 9));
TRACKWAY_EVENT(shop, sale, TRACKWAY_INFO, (i32, change), (u64, number), (str, item), (f64, price),
               (enum, state, shop, state, u8), (seq, parts, u16), (array, pair, u8, 2));
TRACKWAY_EVENT(shop, close, TRACKWAY_INFO, (u64, number));

int main(void)
{
    const char *items[] = {"apple", "apricot", "banana", "blackberry"};
    for (int i = 0; i < 20; i++) {
        const uint16_t parts[] = {(uint16_t)i, (uint16_t)(i * 2), (uint16_t)(i * 3)};
        const uint8_t pair[] = {(uint8_t)i, 7};
        trackway(shop, sale, i - 10, (uint64_t)i, items[i % 4], i / 2.0, (uint8_t)(i % 10), parts,
                 (size_t)(i % 4), pair);
    }
    for (int i = 0; i < 5; i++)
        trackway(shop, close, (uint64_t)i);
    return 0;
}
"#;

/// Filters, and the number of the 25 events that each accepts.
const FILTER_CASES: [(&str, usize); 24] = [
    ("number < 3", 6),
    ("shop:sale: number < 3", 3 + 5),
    ("shop:*: number < 3 && change < -8", 2),
    ("change < 0", 10),
    ("-change > 8 || number >= 19", 2 + 1),
    ("item == \"ap*\"", 10),
    ("item != \"ap*\"", 10),
    ("starts_with(item, \"b\") && contains(item, \"ana\")", 5),
    ("length(item) > 6", 10),
    ("price > 9", 1),
    ("price * 2 == 7.0", 1),
    ("state == \"busy\"", 2),
    ("state == \"done\"", 16),
    ("state != \"done\"", 4),
    ("parts[2] == 9", 1),
    ("any(parts > 20)", 6),
    ("length(parts) == 0", 5),
    ("all(parts < 3)", 6),
    ("pair[1] == 7 && pair[0] in (1, 4..6)", 4),
    ("number in (0..1, 18..99)", 2 + 2 + 2),
    ("number % 5 == 0 && (number & 1) == 1", 2),
    ("number << 1 == 8", 1 + 1),
    ("$ctx.vtid > 0", 25),
    ("$ctx.vtid < 0", 0),
];

fn print_trace(fixture: &Fixture, trace: &Path, options: &[&str]) -> Output {
    fixture.trackway(&["print"]).arg(trace).args(options).output().expect("trackway runs")
}

fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// RUN print of a trace with each filter, as text and counted. EXPECT the number of events for
/// which the filter is true, both times.
#[test]
fn filters_take_the_events_that_they_are_true_of() {
    let fixture = Fixture::new("print-filter");
    let program = fixture.compile("sales", PROGRAM, true, &[]);
    let trace = fixture.record(&["--event", "shop:*"], &[program]).trace;
    for (filter, events) in FILTER_CASES {
        let output = print_trace(&fixture, &trace, &["--filter", filter]);
        assert!(output.status.success(), "{filter}: {}", stderr_text(&output));
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        assert_eq!(lines, events, "{filter}: {}", stderr_text(&output));
        let counted = print_trace(&fixture, &trace, &["--filter", filter, "--count"]);
        assert_eq!(String::from_utf8_lossy(&counted.stdout), format!("{events}\n"), "{filter}");
    }
    // With several filters, all must be true.
    let both = print_trace(&fixture, &trace, &["--filter", "number > 2", "--filter", "number < 4"]);
    assert_eq!(String::from_utf8_lossy(&both.stdout).lines().count(), 2);
    // The state of a filter follows the order of time, over all streams.
    for (filter, numbers) in [
        ("shop:sale: count() % 7 == 0", &[0, 7, 14][..]),
        ("shop:sale: number > 2 && count() < 2", &[3, 4]),
        ("shop:sale: changed(length(parts) > 1)", &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]),
        ("shop:sale: rate(1/min)", &[0]),
    ] {
        for jobs in ["1", "2"] {
            let options =
                ["--filter", filter, "--event", "shop:sale", "--format", "json", "--jobs", jobs];
            let output = print_trace(&fixture, &trace, &options);
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let found: Vec<u64> = text
                .lines()
                .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
                .map(|event| event["fields"]["number"].as_u64().expect("a number"))
                .collect();
            assert_eq!(found, numbers, "{filter}: {}", stderr_text(&output));
        }
        let counted =
            print_trace(&fixture, &trace, &["--filter", filter, "--event", "shop:sale", "--count"]);
        let lines = numbers.len();
        assert_eq!(String::from_utf8_lossy(&counted.stdout), format!("{lines}\n"), "{filter}");
    }
    // The sampled events are equal in each run, for any number of decoding threads.
    let sampled = |jobs: &str| {
        let options = ["--filter", "sample(1/3)", "--jobs", jobs, "--no-delta"];
        print_trace(&fixture, &trace, &options).stdout
    };
    assert_eq!(sampled("1"), sampled("2"));
    let lines = String::from_utf8_lossy(&sampled("1")).lines().count();
    assert!((1..25).contains(&lines), "{lines} of 25");
}

/// RUN invalid filters. EXPECT only the fault, its position, and a suggestion; and a hint if a
/// later event may fit.
#[test]
fn faults_of_a_filter_are_reported() {
    let fixture = Fixture::new("print-filter-wrong");
    let program = fixture.compile("sales", PROGRAM, true, &[]);
    let trace = fixture.record(&["--event", "shop:*"], &[program]).trace;
    for (filter, message) in [
        ("shop:sale: itm == \"a\"", "unknown field 'itm' of shop:sale; did you mean 'item'?"),
        ("itm == \"a\"", "unknown field 'itm' of shop:sale; did you mean 'item'?"),
        ("vtid == 3", "did you mean '$ctx.vtid'?"),
        ("item > 3", "a string is not compared with an integer"),
        ("number >", "number >\n        ^\n"),
    ] {
        let output = print_trace(&fixture, &trace, &["--filter", filter]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{filter}");
        assert!(stderr_text(&output).contains(message), "{filter}: {}", stderr_text(&output));
    }
    let output = print_trace(&fixture, &trace, &["--filter", "number & 1 == 1"]);
    let hint = "'==' binds more strongly than '&'";
    assert!(
        output.status.success() && stderr_text(&output).contains(hint),
        "{}",
        stderr_text(&output)
    );
    let output = print_trace(&fixture, &trace, &["--filter", "number > 3", "--stats"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
}

/// RUN filters whose patterns match no event of the trace, alone and with a matching one. EXPECT
/// only that message, with a suggestion; no message for a trace without events.
#[test]
fn a_filter_about_nothing_is_refused() {
    let fixture = Fixture::new("print-filter-nothing");
    let program = fixture.compile("sales", PROGRAM, true, &[]);
    let trace = fixture.record(&["--event", "shop:*"], &[&program]).trace;
    for (filter, message) in [
        ("bakery:*: number > 3", "--filter: no kind of event matches 'bakery:*'\nhint: "),
        ("shp:*: number > 3", "matches 'shp:*'; did you mean 'shop:*'?\n"),
        ("shop:sael: number > 3", "matches 'shop:sael'; did you mean 'shop:sale'?\n"),
        ("sale: number > 3", "matches 'sale'; did you mean 'shop:sale'?\n"),
        ("bakery:*,shp:sale: number > 3", "did you mean 'shop:sale'?\n"),
    ] {
        let beside = ["--filter", "shop:sale: change > 0", "--filter", filter];
        for options in [&beside[2..], &beside] {
            let output = print_trace(&fixture, &trace, options);
            assert_eq!(output.status.code(), Some(2), "{filter}: {}", stderr_text(&output));
            assert!(output.stdout.is_empty(), "{filter}");
            assert!(stderr_text(&output).contains(message), "{filter}: {}", stderr_text(&output));
        }
    }
    for (filter, events) in [
        ("shop:sale, shop:close: number < 2", 4),
        ("bakery:*,shop:close: number < 2", 20 + 2),
        ("shop:*,!shop:sale: number < 2", 20 + 2),
    ] {
        let output = print_trace(&fixture, &trace, &["--filter", filter, "--count"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{events}\n"), "{filter}");
    }
    let nothing = fixture.record(&["--event", "bakery:*"], &[&program]).trace;
    let output = print_trace(&fixture, &nothing, &["--filter", "bakery:*: number > 3"]);
    assert!(output.status.success() && stderr_text(&output).is_empty(), "{}", stderr_text(&output));
}

/// RUN trackway filter explain, for a known event and for an event in a trace. EXPECT the tree, the
/// frame's fields, bytecode, and machine code if the processor supports it.
#[test]
fn filters_are_explained() {
    let fixture = Fixture::new("filter-explain");
    let program = fixture.compile("sales", PROGRAM, true, &[]);
    let explain = |options: &[&str]| {
        let filter = "number > 500 && item == \"ap*\"";
        let output = fixture
            .trackway(&["filter", "explain", filter])
            .args(options)
            .output()
            .expect("it runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr_text(&output),
        )
    };
    let (code, text, message) = explain(&[]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(message.contains("no kind of event is known here yet"), "{message}");
    let trace = fixture.record(&["--event", "shop:*"], &[program]).trace;
    let trace = trace.to_str().expect("a path");
    for options in [&["--event", "shop:sale"][..], &["--trace", trace]] {
        let (code, text, message) = explain(options);
        assert_eq!(code, Some(0), "{message}");
        for part in [
            "For shop:sale\n\nTree\n  &&: signed\n    >: signed\n      number: unsigned\n",
            "Frame\n     0  unsigned    number\n     8  string      item\n",
            "if r2 <= 500 goto",
            "call bytes_differ_2#27",
            "0 bytes of stack",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        if cfg!(target_arch = "x86_64") {
            assert!(text.contains("endbr64") && text.contains("cmp rsi,1F4h"), "{text}");
        }
    }
    // The output lists the other conditions for which the code is valid.
    let filter = "shop:sale: state == \"busy\" && any(parts > 20)";
    let output = fixture.trackway(&["filter", "explain", filter]).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "  state, of less than 64 bits and the labels of shop:sale\n",
        "  parts, of elements u16\n",
    ] {
        assert!(text.contains(part), "{part}: {text}{}", stderr_text(&output));
    }
    let (code, text, message) = explain(&["--event", "shop:closing"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(message.contains("no kind of event has such a name"), "{message}");
}

/// Filters in C on `shop:sale`, with the number of its 20 events that they pass, and of all 25:
/// events of the other kind count if they have the fields.
const FILTERS_IN_C: [(&str, usize, usize); 6] = [
    ("return sale->number < 3;", 3, 6),
    ("return sale->state == SHOP_SALE_STATE_BUSY && sale->change < 0;", 1, 1),
    ("return trackway_string_matches(sale, sale->item, TRACKWAY_STRING(\"ap*\"));", 10, 10),
    ("return trackway_any(sale, sale->parts, SHOP_SALE_PARTS_ELEMENT, above);", 6, 6),
    ("return trackway_float_compare(sale, sale->price, TRACKWAY_FLOAT(9.0)) > 0;", 1, 1),
    ("return trackway_count(sale, 0) % 7 == 0;", 3, 4),
];

/// RUN filter header for a trace's events, filters that include it through clang, and a print with
/// each. EXPECT as many events as each filter is true for; a refusal of invalid filters.
// Longer than 70 lines: a table.
#[test]
fn filters_in_c_take_the_events_that_they_are_true_of() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let fixture = Fixture::new("print-filter-object");
    let program = fixture.compile("sales", PROGRAM, true, &[]);
    let trace = fixture.record(&["--event", "shop:*"], &[program]).trace;
    let mut header = fixture.trackway(&["filter", "header", "shop:*", "--trace"]);
    let header = header.arg(&trace).output().expect("trackway runs");
    assert!(header.status.success(), "{}", stderr_text(&header));
    let text = String::from_utf8_lossy(&header.stdout).into_owned();
    // A trace has a length field, which a program's event lacks.
    assert!(!text.contains("_parts_length") && text.contains("trackway_sequence parts;"), "{text}");
    fs::write(fixture.path("shop.h"), header.stdout).expect("a file");
    // The header of a registered event has the contexts that all its programs have.
    let live = fixture.trackway(&["filter", "header", "shop:close"]).output().expect("it runs");
    let live = String::from_utf8_lossy(&live.stdout).into_owned();
    assert!(live.contains("struct shop_close {\n    trackway_unsigned number;\n"), "{live}");
    assert!(live.contains("\"string $ctx.procname\\n\"\n"), "{live}");
    for (body, sales, all) in FILTERS_IN_C {
        let source = format!(
            "#include \"shop.h\"\n\
             TRACKWAY_FUNCTION trackway_unsigned above(const void *frame, trackway_unsigned part)\n\
             {{ (void)frame; return part > 20; }}\n\
             TRACKWAY_FILTER(shop_sale, sale) {{ {body} }}\n"
        );
        fs::write(fixture.path("filter.c"), source).expect("a file");
        let mut clang = fixture.command("clang");
        clang.args(["-O2", "-target", "bpf", "-fno-jump-tables", "-Wall", "-Werror", "-I"]);
        let output = clang.arg(source_dir().join("include")).args(["-c", "filter.c"]).output();
        let output = output.expect("clang runs");
        assert!(output.status.success(), "{body}: {}", stderr_text(&output));
        let object = fixture.path("filter.o");
        let object = object.to_str().expect("a path that is text");
        for (name, events) in
            [(object.to_owned(), all), (format!("shop:sale: {object}"), sales + 5)]
        {
            let output = print_trace(&fixture, &trace, &["--filter-object", &name, "--count"]);
            let counted = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(counted, format!("{events}\n"), "{body}: {}", stderr_text(&output));
        }
        let explained = fixture.trackway(&["filter", "explain", "--object", object]).output();
        let explained = explained.expect("trackway runs");
        let text = String::from_utf8_lossy(&explained.stdout).into_owned();
        for part in ["Filter shop_sale\n", "\nFrame\n", "\nBytecode\n   0  ", "Verified: "] {
            assert!(text.contains(part), "{part:?}: {text}{}", stderr_text(&explained));
        }
        let mut compile = fixture.trackway(&["filter", "compile", object, "-o"]);
        let output = compile.arg(format!("{object}.twf")).output().expect("trackway runs");
        assert!(output.status.success(), "{}", stderr_text(&output));
        let made = print_trace(
            &fixture,
            &trace,
            &["--count", "--filter-object", &format!("{object}.twf")],
        );
        assert_eq!(
            String::from_utf8_lossy(&made.stdout),
            format!("{all}\n"),
            "{}",
            stderr_text(&made)
        );
    }
    // Fields that no event has, an invalid file, and an unknown event are refused.
    let object = fixture.path("filter.o");
    let elsewhere = format!("shop:close: {}", object.display());
    let output = print_trace(&fixture, &trace, &["--filter-object", &elsewhere, "--count"]);
    assert!(
        output.status.success(),
        "it reads nothing but its own memory: {}",
        stderr_text(&output)
    );
    let source = "#include \"shop.h\"\nTRACKWAY_FILTER(shop_sale, s) { return s->change > 1; }\n";
    fs::write(fixture.path("filter.c"), source).expect("a file");
    let mut clang = fixture.command("clang");
    clang.args(["-O2", "-target", "bpf", "-I"]).arg(source_dir().join("include"));
    assert!(clang.args(["-c", "filter.c"]).status().expect("clang runs").success());
    let output = print_trace(&fixture, &trace, &["--filter-object", &elsewhere]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("--filter-object: no kind of event has all that"));
    let output = print_trace(&fixture, &trace, &["--filter-object", "filter.c"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr_text(&output).contains("filter.c: it is no object file for BPF"),
        "{}",
        stderr_text(&output)
    );
    let mut header = fixture.trackway(&["filter", "header", "shop:nothing", "--trace"]);
    let output = header.arg(&trace).output().expect("trackway runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr_text(&output).contains("shop:nothing: no kind of event"),
        "{}",
        stderr_text(&output)
    );
}
