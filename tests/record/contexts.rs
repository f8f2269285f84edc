//! Contexts that programs set (`<trackway/context.h>`, the crate's `context!`), in the programs'
//! events and in filters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// All application contexts of these programs.
const ALL_CONTEXTS: &str = "$app.myapp:request_id,$app.myapp:user,$app.myapp:load,$app.myapp:delta";

/// Values of the contexts of `ALL`, in order, as they are printed; `None` if a context is not set.
type ContextValues<'v> = [Option<&'v str>; 4];

/// Formats values like babeltrace2.
fn format_values(values: ContextValues<'_>) -> String {
    let kinds = [("request_id", "_uint64", 2), ("user", "_string", 4), ("load", "_double", 3)];
    let kinds = kinds.into_iter().chain([("delta", "_int64", 1)]);
    let one = |((name, kind, code), value): ((&str, &str, u8), Option<&str>)| {
        let (kind, code, value) = match value {
            Some(value) => (kind, code, format!("{{ {value} }}")),
            None => ("_none", 0, "{ { } }".to_owned()),
        };
        format!(
            "_app_myapp_{name}_tag = ( \"{kind}\" : container = {code} ), \
             _app_myapp_{name} = {value}"
        )
    };
    kinds.zip(values).map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the contexts of events in a listing, by the events' numbers.
fn contexts_by_number(listing: &str) -> BTreeMap<u32, String> {
    let event = |line: &str| {
        let (_, rest) = line.split_once("{ cpu_id = ").expect("an event");
        let (_, rest) = rest.split_once(" }, { ").expect("a context");
        let (contexts, fields) = rest.split_once(" }, { number = ").expect("a number");
        let digits = fields.split(|c: char| !c.is_ascii_digit()).next().expect("digits");
        (digits.parse().expect("a number"), contexts.to_owned())
    };
    let lines = listing.lines().filter(|line| !line.is_empty());
    lines.map(event).collect()
}

const LONG_USER: &str = "\"0123456789012345678901234567…\"";
/// Values that `program.c` must have recorded.
const PROGRAM_VALUES: [(u32, ContextValues<'static>); 12] = [
    (0, [None; 4]),
    (1, [Some("18446744073709551615"), None, None, None]),
    (2, [Some("18446744073709551615"), Some("\"alice\""), Some("-2.5"), Some("-7")]),
    (3, [Some("3"), Some(LONG_USER), Some("-2.5"), Some("-7")]),
    (4, [Some("18446744073709551615"), None, Some("-2.5"), Some("-7")]),
    (5, [Some("5"), Some("\"\""), Some("-2.5"), Some("-7")]),
    // The longest payload leaves no room for values.
    (6, [None; 4]),
    (7, [Some("5"), Some("\"0123456789012345678901234567890\""), None, Some("-7")]),
    // Events of a fork child.
    (10, [Some("5"), Some("\"\""), Some("-2.5"), Some("-7")]),
    (11, [Some("11"), Some("\"\""), Some("-2.5"), Some("-7")]),
    // Events of another thread.
    (20, [None; 4]),
    (21, [Some("20"), None, None, None]),
];

fn expected_contexts(of: &[(u32, ContextValues<'_>)]) -> BTreeMap<u32, String> {
    of.iter().map(|&(number, values)| (number, format_values(values))).collect()
}

/// RUN a program that sets contexts of all kinds, in threads and fork children. EXPECT each event
/// with the values of its thread, also in babeltrace2's output, and from a preloaded program.
#[test]
fn events_have_the_contexts_of_their_threads() {
    let fixture = Fixture::new("contexts");
    for linked in [true, false] {
        let program = fixture.compile_file("contexts/program.c", linked, &[]);
        let recording = fixture.record(&["--context", ALL_CONTEXTS], &[program.to_str().unwrap()]);
        assert!(recording.output.status.success(), "{}", recording.messages());
        let messages = recording.messages();
        assert_eq!((recording.summary.recorded, recording.summary.lost), (12, 0), "{messages}");
        let trace = fixture.path("trace");
        assert_eq!(
            contexts_by_number(&fixture.print(&trace)),
            expected_contexts(&PROGRAM_VALUES),
            "linked: {linked}"
        );
        if let Some(output) = fixture.babeltrace(&trace) {
            let listing = String::from_utf8(output.stdout).expect("text");
            assert_eq!(contexts_by_number(&listing), expected_contexts(&PROGRAM_VALUES));
        }
        fs::remove_dir_all(&trace).expect("its trace");
    }
}

/// RUN the program with other contexts before its own, and with additional filters. EXPECT the
/// right value of each context.
#[test]
fn contexts_of_programs_stand_beside_others() {
    let fixture = Fixture::new("contexts-beside");
    let program = fixture.compile_file("contexts/program.c", true, &[]);
    let list = "vpid,$app.myapp:delta,procname,vtid,$app.else:where";
    for (filter, count) in [("number < 100", 12), ("number in (2..5)", 4)] {
        let options = ["--context", list, "--filter", filter];
        let recording = fixture.record(&options, &[program.to_str().unwrap()]);
        assert_eq!(recording.summary.lost, 0, "{}", recording.messages());
        let trace = fixture.path("trace");
        let found = contexts_by_number(&fixture.print(&trace));
        assert_eq!(found.len(), count, "{filter}");
        for number in [2, 3, 4, 5] {
            let context = &found[&number];
            let rest = context.split_once("vpid = ").expect("a vpid").1;
            let end = "procname = \"program\", _app_myapp_delta_tag = ( \"_int64\" : container = 1 \
                       ), _app_myapp_delta = { -7 }, _app_else_where_tag = ( \"_none\" : container \
                       = 0 ), _app_else_where = { { } }";
            assert!(rest.contains("vtid = ") && rest.ends_with(end), "{context}");
        }
        fs::remove_dir_all(&trace).expect("its trace");
    }
}

/// Returns the numbers of the events in a trace.
fn event_numbers(fixture: &Fixture, trace: &Path, options: &[&str]) -> Vec<u32> {
    let mut print = fixture.trackway(&["print"]);
    let output = print.args(options).arg(trace).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).expect("text");
    let mut numbers: Vec<u32> = contexts_by_number(&listing).into_keys().collect();
    numbers.sort_unstable();
    numbers
}

/// RUN filters on contexts of the program, by `record` and by `print`. EXPECT the same events from
/// both, and none without a value.
#[test]
fn filters_ask_for_contexts_of_programs() {
    let fixture = Fixture::new("contexts-filters");
    let program = fixture.compile_file("contexts/program.c", true, &[]);
    let program = program.to_str().unwrap();
    let whole = fixture.path("whole");
    let recording = fixture.record(&["--context", &format!("{ALL_CONTEXTS},procname")], &[program]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    fs::rename(fixture.path("trace"), &whole).expect("it is moved");
    let all = "$app.myapp:request_id > 0 && $app.myapp:user != \"x\" && $app.myapp:load < 0";
    let cases: [(&str, &[u32]); 10] = [
        ("$app.myapp:request_id == 5", &[5, 6, 7, 10]),
        ("$app.myapp:request_id == 18446744073709551615", &[1, 2, 4]),
        ("$app.myapp:user == \"ali*\"", &[2]),
        ("$app.myapp:user == \"0123456789012345678901234567890\"", &[6, 7]),
        ("length($app.myapp:user) > 29", &[3, 6, 7]),
        ("$app.myapp:load < -2 && number < 100", &[2, 3, 4, 5, 6, 10, 11]),
        ("$app.myapp:delta == -7 && $ctx.procname == \"prog*\" && number == 2", &[2]),
        ("!($app.myapp:request_id == 5)", &[1, 2, 3, 4, 11, 21]),
        (all, &[2, 3, 5, 6, 10, 11]),
        ("$app.myapp:request_id in (3, 20) || $app.myapp:request_id == 11", &[3, 11, 21]),
    ];
    for (filter, meant) in cases {
        let recording = fixture.record(&["--filter", filter], &[program]);
        assert_eq!(recording.summary.lost, 0, "{filter}: {}", recording.messages());
        assert_eq!(event_numbers(&fixture, &recording.trace, &[]), meant, "{filter}, recorded");
        fs::remove_dir_all(&recording.trace).expect("its trace");
        // The trace has no values for the longest record.
        let meant: Vec<u32> = meant.iter().copied().filter(|number| *number != 6).collect();
        assert_eq!(
            event_numbers(&fixture, &whole, &["--filter", filter]),
            meant,
            "{filter}, printed"
        );
    }
    check_filters_in_c(&fixture, &whole);
    // No program sets the context.
    let recording = fixture.record(&["--filter", "$app.my:other > 0"], &[program]);
    assert_eq!((recording.summary.recorded, recording.summary.lost), (0, 0));
}

/// RUN a filter in C with two alternatives, for records whose context is a number, and for records
/// whose context is a text. EXPECT the first alternative that fits to decide for each record.
fn check_filters_in_c(fixture: &Fixture, trace: &Path) {
    const FILTER: &str = "#include <trackway/filter.h>\n\
        struct by_user { trackway_string user; };\n\
        #define TRACKWAY_NEEDS_by_user \"string $app.myapp:user\\n\"\n\
        struct by_id { trackway_unsigned id; trackway_unsigned number; };\n\
        #define TRACKWAY_NEEDS_by_id \"unsigned $app.myapp:request_id\\n\" \\\n\
        \"unsigned number\\n\"\n\
        TRACKWAY_FILTER(by_user, frame) {\n\
        return trackway_string_starts_with(frame, frame->user, TRACKWAY_STRING(\"ali\")); }\n\
        TRACKWAY_FILTER(by_id, frame) { return frame->id == 5 || frame->number == 1; }\n";
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    fs::write(fixture.path("some.c"), FILTER).expect("a file");
    let include = format!("-I{}", source_dir().join("include").display());
    let mut clang = fixture.command("clang");
    clang.args(["-O2", "-target", "bpf", "-fno-jump-tables", &include, "-c", "some.c"]);
    let built = clang.output().expect("it runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let object = fixture.path("some.o");
    let object = object.to_str().expect("a path that is text");
    let in_c = event_numbers(fixture, trace, &["--filter-object", object]);
    let [users, ids] = [
        "$app.myapp:user == \"ali*\"",
        "$app.myapp:request_id == 5 || $app.myapp:request_id > 0 && number == 1",
    ]
    .map(|filter| event_numbers(fixture, trace, &["--filter", filter]));
    let with_user = event_numbers(fixture, trace, &["--filter", "length($app.myapp:user) >= 0"]);
    let of_others = ids.iter().filter(|number| !with_user.contains(number));
    let mut meant: Vec<u32> = users.iter().chain(of_others).copied().collect();
    meant.sort_unstable();
    assert!(!users.is_empty() && meant.len() > users.len(), "{meant:?}");
    assert_eq!(in_c, meant);
}

/// RUN a session with contexts of programs; change, save and load them. EXPECT the contexts.
#[test]
fn sessions_keep_contexts_of_programs() {
    let fixture = Fixture::new("contexts-session");
    let program = fixture.compile_file("contexts/program.c", true, &[]);
    let trackway = |words: &[&str]| {
        let output = fixture.trackway(words).output().expect("it runs");
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {talk}");
        String::from_utf8(output.stdout).expect("text")
    };
    let run = || assert!(fixture.command(&program).status().expect("it runs").success());
    let one = "vtid,$app.myapp:request_id";
    trackway(&["session", "create", "web", "-o", "web-trace", "--context", one]);
    run();
    trackway(&["channel", "set", "web", "channel0", "--context", "$app.myapp:user"]);
    run();
    assert!(trackway(&["session", "status", "web"]).contains("contexts  $app.myapp:user"));
    trackway(&["session", "save", "web", "-o", "web.toml"]);
    trackway(&["session", "destroy", "web"]);
    let listing = fixture.print(&fixture.path("web-trace"));
    let counts = |what: &str| listing.lines().filter(|line| line.contains(what)).count();
    assert_eq!((counts("_app_myapp_request_id_tag"), counts("_app_myapp_user_tag")), (12, 12));
    // With one number as the only context, even the longest record has room for it.
    assert_eq!(counts("_app_myapp_request_id = { 5 }"), 4);
    assert_eq!(counts("_app_myapp_user = { \"alice\" }"), 1);
    let saved = fs::read_to_string(fixture.path("web.toml")).expect("a file");
    assert!(saved.contains("\"$app.myapp:user\""), "{saved}");
    let file = format!("output = '{}'\n{saved}", fixture.path("again").display());
    fs::write(fixture.path("web.toml"), file).expect("a file");
    trackway(&["session", "load", "web.toml"]);
    run();
    trackway(&["session", "destroy", "web"]);
    assert!(fixture.print(&fixture.path("again")).contains("_app_myapp_user = { \"alice\" }"));
}

/// RUN invalid lists of contexts. EXPECT the fault, before anything begins.
#[test]
fn unknown_contexts_are_refused() {
    let fixture = Fixture::new("contexts-refused");
    for (list, says) in [
        ("$app.myapp", "'$app.myapp' is no context of a program"),
        ("$app.a:b,$app.a:c,$app.a:d,$app.a:e,$app.a:f", "more than 4 contexts of programs"),
        ("$ctx.vpid", "no context '$ctx.vpid'"),
    ] {
        let recording = fixture.record(&["--context", list], &["true"]);
        assert_eq!(recording.output.status.code(), Some(125), "{list}");
        assert!(recording.messages().contains(says), "{list}: {}", recording.messages());
    }
}

/// RUN a program whose signal handlers interrupt the setting of contexts, set contexts, and restore
/// them, two levels deep. EXPECT a complete value at every read, and in all records.
#[test]
fn no_handler_finds_a_value_that_is_torn() {
    let fixture = Fixture::new("contexts-handlers");
    let program = fixture.compile_file("contexts/handlers.c", true, &[]);
    let options = ["--context", "$app.torn:text,$app.torn:number", "--overwrite"];
    let recording = fixture.record(&options, &[program.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&recording.output.stdout).into_owned();
    assert_eq!(said, "wrong 0, rounds many\n", "{}", recording.messages());
    let listing = fixture.print(&recording.trace);
    let mut in_handlers = 0;
    for line in listing.lines() {
        let text = line.split("_app_torn_text = { ").nth(1).expect("a text");
        if let Some(text) = text.strip_prefix('"') {
            let letter = text.chars().next().expect("a letter");
            let whole = format!("{}\"", String::from(letter).repeat(31));
            assert!(('a'..='d').contains(&letter) && text.starts_with(&whole), "{line}");
        }
        let number = line.split("_app_torn_number = { ").nth(1).expect("a number");
        let number: u64 = number.split(' ').next().expect("digits").parse().expect("a number");
        assert_eq!(number >> 32, number & 0xffff_ffff, "{line}");
        in_handlers += usize::from(!line.contains("depth = 0"));
    }
    assert!(in_handlers > 1000, "{in_handlers} events of handlers");
}

/// Values that the programs in C++ and in Rust must have recorded, for the scopes that both have.
const SCOPE_VALUES: [(u32, ContextValues<'static>); 8] = [
    (0, [None; 4]),
    (1, [Some("7"), None, None, None]),
    (2, [Some("8"), Some("\"alice\""), None, None]),
    (3, [Some("7"), None, None, None]),
    (5, [None; 4]),
    // Only the Rust program has these events.
    (4, [None; 4]),
    (6, [None, Some(LONG_USER), Some("0.5"), Some("-1")]),
    (7, [None, Some("\"ends here\""), None, Some("-1")]),
];

#[test]
fn scopes_in_cxx_put_back_what_there_was() {
    let fixture = Fixture::new("contexts-cxx");
    if !has("g++") {
        return report_skipped("g++ is not installed");
    }
    let source = source_dir().join("tests/contexts/scopes.cc");
    let text = fs::read_to_string(source).expect("a source");
    let program = fixture.compile_with("g++", "scopes.cc", &text, false, &["-std=c++11"]);
    let recording = fixture.record(&["--context", ALL_CONTEXTS], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(
        contexts_by_number(&fixture.print(&recording.trace)),
        expected_contexts(&SCOPE_VALUES[..5])
    );
}

#[test]
fn contexts_in_rust_are_those_of_c() {
    let fixture = Fixture::new("contexts-rust");
    if !has("cargo") {
        return report_skipped("cargo is not installed");
    }
    let target = build_dir().parent().expect("a parent").to_owned();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--offline", "--locked", "--quiet", "-p", "trackway", "--example"]);
    cargo.arg("contexts").arg("--target-dir").arg(&target).current_dir(source_dir());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = target.join("debug/examples/contexts");
    let recording = fixture.record(&["--context", ALL_CONTEXTS], &[program.to_str().unwrap()]);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(
        contexts_by_number(&fixture.print(&recording.trace)),
        expected_contexts(&SCOPE_VALUES)
    );
    // Without the library, the program runs without effects.
    assert!(fixture.command(&program).status().expect("it runs").success());
}

/// RUN compilers of all kinds, with strict warnings, on programs with contexts, with tracing and
/// without. EXPECT no messages.
#[test]
fn the_header_compiles_everywhere_without_a_warning() {
    let fixture = Fixture::new("contexts-header");
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion"];
    let c = "contexts/program.c";
    let cases = [
        ("gcc", "-std=c11", c),
        ("clang", "-std=c11", c),
        ("g++", "-std=c++11", "contexts/scopes.cc"),
        ("clang++", "-std=c++11", "contexts/scopes.cc"),
        ("g++", "-std=c++20", "contexts/scopes.cc"),
    ];
    let mut count = 0;
    for (compiler, standard, source) in cases {
        if !has(compiler) {
            report_skipped(format!("{compiler} is not installed"));
            continue;
        }
        for mode in [&["-O2"][..], &["-O0"], &["-O2", "-DTRACKWAY_DISABLE"]] {
            let mut cc = fixture.command(compiler);
            cc.args([standard, "-D_POSIX_C_SOURCE=200809L", "-fsyntax-only"]).args(strict);
            cc.args(mode).arg("-I").arg(source_dir().join("include"));
            cc.arg(source_dir().join("tests").join(source));
            let output = cc.output().expect("it runs");
            let messages = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && messages.is_empty(), "{compiler}: {messages}");
            count += 1;
        }
    }
    assert!(count > 0, "no compiler");
}

#[test]
fn the_guides_program_compiles_and_its_commands_show_what_it_says() {
    let fixture = Fixture::new("contexts-guide");
    let guide = fs::read_to_string(source_dir().join("docs/guides/contexts.md")).expect("a guide");
    let block = |language: &str| {
        let rest = guide.split(language).nth(1).expect("a block");
        rest.split("```").next().expect("an end").to_owned()
    };
    fs::write(fixture.path("shop.c"), block("```c\n")).expect("a source");
    let include = format!("-I {}", source_dir().join("include").display());
    let commands = block("```sh\n").replace("-I include", &include);
    let path = format!("{}:{}", build_dir().display(), std::env::var("PATH").expect("a path"));
    let output =
        fixture.command("sh").args(["-e", "-c", &commands]).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let counts = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    // Events with all three contexts, with one, and without contexts.
    assert_eq!((text.lines().count(), counts("table = \"accounts\"")), (5, 4), "{text}");
    assert_eq!((counts("_app_myapp_request_id = { 42 }"), counts("{ \"bob\" }")), (2, 1), "{text}");
    for example in ["trackway_context_scope(myapp, request_id, 42u);", "REQUEST_ID.enter(42)"] {
        assert!(guide.contains(example));
    }
}
