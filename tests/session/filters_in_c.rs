//! Filters in C on recordings and sessions: the events that they pass, their storage and display,
//! changes, and refusals before anything begins.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use trackway_tests::{Fixture, has, report_skipped, source_dir};

use crate::session_test::{BurstProgram, RUN_ONCE_STREAM, SessionTest, command_result};

/// Runs `trackway WORDS`, which must succeed; returns its output and its messages.
fn run_expecting_success(fixture: &Fixture, words: &[&str]) -> (String, String) {
    let (is_success, text, talk) =
        command_result(&fixture.trackway(words).output().expect("it runs"));
    assert!(is_success, "{words:?}: {talk}");
    (text, talk)
}

/// Runs `trackway WORDS`, which must fail with this status; returns its messages.
fn run_expecting_status(fixture: &Fixture, status: i32, words: &[&str]) -> String {
    let output = fixture.trackway(words).output().expect("it runs");
    let (_, _, talk) = command_result(&output);
    assert_eq!(output.status.code(), Some(status), "{words:?}: {talk}");
    talk
}

/// Compiles a filter with clang; returns its object file.
fn compile_filter(fixture: &Fixture, name: &str, source: &str) -> PathBuf {
    fs::write(fixture.path(&format!("{name}.c")), source).expect("a file");
    let mut clang = fixture.command("clang");
    clang.args(["-O2", "-target", "bpf", "-fno-jump-tables", "-Wall", "-Werror", "-I"]);
    let output = clang.arg(source_dir().join("include")).args(["-c", &format!("{name}.c")]);
    let (is_success, _, talk) = command_result(&output.output().expect("clang runs"));
    assert!(is_success, "{source}: {talk}");
    fixture.path(&format!("{name}.o"))
}

fn path_str(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// Compiles a filter on `life:step` with this body and a hand-written frame.
fn compile_step_filter(test: &SessionTest, name: &str, body: &str) -> PathBuf {
    let source = format!(
        "#include <trackway/filter.h>\n\
         struct step {{ trackway_unsigned number; }};\n\
         #define TRACKWAY_NEEDS_step \"unsigned number\\n\"\n\
         TRACKWAY_FILTER(step, step) {{ return {body}; }}\n"
    );
    compile_filter(&test.fixture, name, &source)
}

/// A program with strings, sequences, and signed and unsigned numbers.
const SHOP_SOURCE: &str = "
#include <trackway/trackway.h>
TRACKWAY_EVENT(shop, order, TRACKWAY_INFO, (str, item), (seq, parts, u16), (u32, number),
    (i32, change), (u8, kind));
TRACKWAY_EVENT(shop, close, TRACKWAY_INFO, (u32, number));
int main(void)
{
    static const char *const items[4] = {\"apple\", \"apricot\", \"pear\", \"\"};
    static const uint16_t parts[3] = {1, 20, 300};
    for (uint32_t i = 0; i < 200; i++) {
        trackway(shop, order, items[i % 4], parts, (size_t)(i % 4), i, (int32_t)i - 100,
            (uint8_t)(i % 7));
        if (i % 10 == 0)
            trackway(shop, close, i);
    }
    return 0;
}
";

/// Filters on the orders of the program.
const SHOP_FILTERS: [&str; 5] = [
    // A dozen comparisons.
    "TRACKWAY_FILTER(shop_order, o) {
         return o->number > 3 && o->number < 190 && o->number != 17 && o->number % 3 != 1
             && o->change > -90 && o->change < 80 && o->change != 5 && o->kind != 3 && o->kind < 6
             && TRACKWAY_LENGTH(o->item) > 0 && TRACKWAY_LENGTH(o->parts) != 1
             && (o->number & 8) == 0;
     }",
    "TRACKWAY_FILTER(shop_order, o) {
         return trackway_string_compare(o, o->item, TRACKWAY_STRING(\"apricot\")) == 0;
     }",
    "TRACKWAY_FUNCTION trackway_unsigned is_large(const void *o, trackway_unsigned part) {
         (void)o;
         return part > 20;
     }
     TRACKWAY_FILTER(shop_order, o) {
         return trackway_any(o, o->parts, SHOP_ORDER_PARTS_ELEMENT, is_large);
     }",
    "TRACKWAY_FILTER(shop_order, o) {
         return o->kind < 2 ? trackway_tail_call(o, 1) : o->number < 20;
     }
     TRACKWAY_PROGRAM(shop_order, 1, o) { return o->change > 50; }",
    "TRACKWAY_FILTER(shop_order, o) {
         return trackway_count(o, 0) % 3 == 0 && trackway_changed(o, 1, o->kind / 4);
     }",
];

/// RUN a program with filters of many comparisons, of strings, elements, several programs, and
/// memory, as compiled by clang and by `trackway filter compile`. EXPECT the events that `trackway
/// print` selects with them from an unfiltered trace.
#[test]
fn filters_in_c_record_what_the_reader_takes_of_all() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let fixture = Fixture::new("session-filters-in-c");
    let program = fixture.compile("shop", SHOP_SOURCE, true, &[]);
    let all = fixture.path("all");
    fs::rename(fixture.record(&[], &[&program]).trace, &all).expect("a trace");
    let (header, _) = run_expecting_success(
        &fixture,
        &["filter", "header", "shop:order", "--trace", path_str(&all)],
    );
    fs::write(fixture.path("shop.h"), header).expect("a file");
    // Times and process ids differ from run to run.
    let events = |text: &str| -> Vec<String> {
        let event = |line: &str| {
            let (head, fields) = line.rsplit_once("{ _item_length").or(line.rsplit_once('{'))?;
            Some(format!("{} {fields}", head.contains("shop:order")))
        };
        text.lines().filter_map(event).collect()
    };
    let orders = |events: &[String]| events.iter().filter(|it| it.starts_with("true")).count();
    for (number, filter) in SHOP_FILTERS.into_iter().enumerate() {
        let name = format!("filter{number}");
        let object = compile_filter(&fixture, &name, &format!("#include \"shop.h\"\n{filter}\n"));
        let made = fixture.path(&format!("{name}.twf"));
        run_expecting_success(
            &fixture,
            &["filter", "compile", path_str(&object), "-o", path_str(&made)],
        );
        let about_all = path_str(&object).to_owned();
        for of in [about_all, format!("shop:order: {}", made.display())] {
            let (printed, _) =
                run_expecting_success(&fixture, &["print", "--filter-object", &of, path_str(&all)]);
            let recording = fixture.record(&["--filter-object", &of], &[&program]);
            assert!(recording.output.status.success(), "{of}: {}", recording.messages());
            let found = events(&fixture.print(&recording.trace));
            assert_eq!(found, events(&printed), "{filter}");
            let orders = orders(&found);
            assert!(orders > 0 && orders < 200, "{filter}: it decides nothing");
            fs::remove_dir_all(&recording.trace).expect("a trace");
        }
    }
}

/// RUN a session with a filter in C and an expression; save it, and load it without the object
/// file. EXPECT both filters in all outputs: shown by name and size, saved completely.
#[test]
fn filters_in_c_are_shown_by_name_and_saved_whole() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let test = SessionTest::new("session-filters-in-c-saved");
    let fixture = &test.fixture;
    let even = compile_step_filter(&test, "even", "step->number % 2 == 0");
    let made = fixture.path("even.twf");
    run_expecting_success(fixture, &["filter", "compile", path_str(&even), "-o", path_str(&made)]);
    let size = fs::metadata(&made).expect("an object").len();
    let given = format!("life: {}", even.display());
    let few = ["--filter", "number < 10"];
    let words = ["session", "create", "web", "-o", "t", "--filter-object", &given];
    run_expecting_success(fixture, &[&words[..], &few].concat());
    let words = ["channel", "add", "web", "more", "--event", "life", "--filter-object"];
    run_expecting_success(fixture, &[&words[..], &[path_str(&made)]].concat());
    let (text, _) = run_expecting_success(fixture, &["session", "status", "web"]);
    for line in [format!("life: even.o ({size} bytes)"), format!("even.twf ({size} bytes)")] {
        assert!(text.contains(&format!("\n  if        {line}\n")), "{line}: {text}");
    }
    let filters = json!(["number < 10", { "pattern": "life", "file": "even.o", "bytes": size }]);
    assert_eq!(test.status("web")["channels"][0]["spec"]["filters"], filters);
    assert_eq!(test.list()[0]["channels"][0]["spec"]["filters"], filters);
    test.ok("session save web -o web.toml");
    test.ok("session destroy web");
    fs::remove_file(&even).expect("the file");
    test.ok("session load web.toml again");
    assert_eq!(test.status("again")["channels"][0]["spec"]["filters"], filters);
    test.emit("steps", 100);
    test.ok("session destroy again");
    let saved = fs::read_to_string(fixture.path("web.toml")).expect("a file");
    let emitter = path_str(&test.emitter);
    let steps = test.steps_of_one();
    let mut record = fixture.trackway(&["record", "--config", "web.toml", "-o", "r", "--"]);
    let record = record.args([emitter, "steps", "100"]).env("STEPS", steps.path()).output();
    let (is_success, _, talk) = command_result(&record.expect("it runs"));
    assert!(is_success, "{saved}: {talk}");
    // Five events of one channel, and fifty of the other.
    let mut found = test.numbers("r").remove(&RUN_ONCE_STREAM).unwrap_or_default();
    found.sort_unstable();
    let mut meant: Vec<u64> = (0..10).step_by(2).chain((0..100).step_by(2)).collect();
    meant.sort_unstable();
    assert_eq!(found, meant, "{saved}");
}

/// RUN objects that change while a program counts. EXPECT for each burst the events that its filter
/// passes; an object with the same bytes keeps its state, under any file name.
#[test]
fn objects_change_between_two_numbers_and_the_same_one_goes_on() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let test = SessionTest::new("session-filters-in-c-change");
    let fixture = &test.fixture;
    let tenth = compile_step_filter(&test, "tenth", "trackway_count(step, 0) % 10 == 0");
    let renamed = fixture.path("renamed.o");
    fs::copy(&tenth, &renamed).expect("a copy");
    let odd = compile_step_filter(&test, "odd", "step->number % 2 == 1");
    let given = format!("life: {}", tenth.display());
    let words = ["session", "create", "web", "--event", "life", "-o", "trace", "--filter-object"];
    run_expecting_success(fixture, &[&words[..], &[&given]].concat());
    // Bursts of 15 events; the first burst has the filter `tenth`.
    let mut bursts = BurstProgram::of(&test, 15);
    let on = |words: &[&str]| {
        let (_, talk) =
            run_expecting_success(fixture, &[&["event", "on", "web", "life"], words].concat());
        assert!(!talk.contains("nothing has changed"), "{talk}");
    };
    on(&["--filter-object", path_str(&renamed)]);
    let (text, _) = run_expecting_success(fixture, &["session", "status", "web"]);
    assert!(text.contains("  if        life: renamed.o ("), "{text}");
    bursts.next();
    test.ok("channel set web channel0 --context vpid");
    bursts.next();
    on(&["--filter-object", path_str(&odd)]);
    bursts.next();
    on(&["--filter-object", path_str(&tenth)]);
    bursts.next();
    on(&["--filter", ""]);
    bursts.next();
    test.ok("session destroy web");
    // Three bursts with one state, the even numbers, a burst with new state, and all numbers.
    let meant = (0..45).step_by(10).chain((45..60).step_by(2)).chain([60, 70]).chain(75..90);
    let found = test.numbers("trace").remove(&0).unwrap_or_default();
    assert_eq!(found, meant.collect::<Vec<u64>>());
}

/// RUN invalid filters, refused ones, and filters that fit no event. EXPECT status 125, the reason,
/// and neither command nor session to begin.
// Longer than 70 lines: a table.
#[test]
fn invalid_objects_are_refused_before_anything_begins() {
    if !has("clang") {
        return report_skipped("clang is not installed");
    }
    let test = SessionTest::new("session-filters-in-c-refused");
    let fixture = &test.fixture;
    let looping = "#include <trackway/filter.h>\n\
         struct step { trackway_unsigned number; };\n\
         #define TRACKWAY_NEEDS_step \"unsigned number\\n\"\n\
         TRACKWAY_FILTER(step, step) {\n    trackway_unsigned n = 0;\n    \
         for (unsigned i = 0; i < step->number; i++)\n        \
         n += trackway_random(step) & 1;\n    return n;\n}\n";
    let looping = compile_filter(fixture, "loop", looping);
    let frame = |need: &str| {
        format!(
            "#include <trackway/filter.h>\nstruct step {{ trackway_unsigned field; }};\n\
             #define TRACKWAY_NEEDS_step \"{need}\\n\"\n\
             TRACKWAY_FILTER(step, step) {{ return step->field > 5; }}\n"
        )
    };
    let near = compile_filter(fixture, "near", &frame("unsigned numbr"));
    let kind = compile_filter(fixture, "kind", &frame("signed number"));
    let far = compile_filter(fixture, "far", &frame("unsigned elsewhere"));
    let good = compile_filter(fixture, "good", &frame("unsigned number"));
    let made = fixture.path("good.twf");
    run_expecting_success(fixture, &["filter", "compile", path_str(&good), "-o", path_str(&made)]);
    let mut broken = fs::read(&made).expect("an object");
    let exit = broken.len() - 8;
    broken[exit] = 0xff;
    fs::write(fixture.path("broken.twf"), &broken).expect("a file");
    fs::write(fixture.path("cut.twf"), &broken[..exit]).expect("a file");
    let broken = fixture.path("broken.twf").display().to_string();
    let cut = fixture.path("cut.twf").display().to_string();
    let emitter = path_str(&test.emitter);
    let about_steps = |file: &Path| format!("life:step: {}", file.display());
    let refusals = [
        (path_str(&looping).to_owned(), "loop.o: the jump does not go forward\n  at instruction "),
        (emitter.to_owned(), "emitter: it is no object file for BPF"),
        ("nothing.o".to_owned(), "cannot read nothing.o"),
        (broken, "filter:\nbroken.twf: program 0, instruction "),
        (cut, "filter:\ncut.twf: "),
        (
            about_steps(&near),
            "near.o: unknown field 'numbr' of life:step; did you mean 'number'?\n\
             hint: trackway filter header life:step says what it has\n",
        ),
        (
            path_str(&near).to_owned(),
            "did you mean 'number'?\nhint: if it is about events that come later, name them: \
             PATTERN: FILE\n",
        ),
        (
            about_steps(&kind),
            "kind.o: the filter reads 'number' as a number with a sign; in life:step it is a \
             number without a sign\n",
        ),
        (about_steps(&far), "far.o: unknown field 'elsewhere' of life:step"),
        (format!("!life: {}", good.display()), "'!life' is not a pattern"),
    ];
    for (object, why) in &refusals {
        let words = ["record", "-o", "t", "--filter-object", object, "--", emitter, "crash", "1"];
        let talk = run_expecting_status(fixture, 125, &words);
        assert!(talk.contains(why), "{object}: {talk}");
        assert!(!fixture.path("t").exists(), "{object}");
    }
    // Once the events are registered, sessions know their fields; the running session goes on
    // unchanged.
    run_expecting_success(fixture, &["session", "create", "web", "-o", "web", "--event", "life:*"]);
    test.emit("steps", 1);
    for (object, why) in &refusals {
        let words = ["session", "create", "other", "-o", "other", "--event", "life:*"];
        let output = fixture.trackway(&words).args(["--filter-object", object]).output();
        let (is_success, _, talk) = command_result(&output.expect("it runs"));
        // With rules that name events, an object need not name them.
        let why = why.split("\nhint: if it is").next().unwrap_or(why);
        assert!(!is_success && talk.contains(why), "{object}: {talk}");
    }
    for file in [&looping, &near, &kind] {
        let words = ["event", "on", "web", "life:step", "--filter-object", path_str(file)];
        assert!(
            !command_result(&fixture.trackway(&words).output().expect("it runs")).0,
            "{file:?}"
        );
    }
    assert_eq!(test.status("web")["channels"][0]["spec"].get("filters"), None);
    assert_eq!(test.list().len(), 1);
    let talk = run_expecting_status(
        fixture,
        2,
        &["event", "on", "web", "life", "--filter", "x > 5", "--filter-object", path_str(&good)],
    );
    assert!(talk.contains("cannot be used with"), "{talk}");
}
