//! The crate `trackway`: its examples, built by cargo with several profiles, recorded, and read
//! back.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_tests::{Fixture, build_dir, has, report_skipped, source_dir};

/// A build profile.
#[derive(Debug, Clone, Copy)]
struct BuildProfile {
    name: &'static str,
    /// Options of cargo for the profile; its programs have a separate target folder.
    options: &'static [&'static str],
}

const DEBUG_PROFILE: BuildProfile = BuildProfile { name: "debug", options: &[] };
const RELEASE_PROFILE: BuildProfile = BuildProfile { name: "release", options: &["--release"] };
/// Many codegen units, which are optimised separately and then together.
const THIN_LTO_PROFILE: BuildProfile = BuildProfile {
    name: "thin",
    options: &[
        "--config=profile.thin.inherits='release'",
        "--config=profile.thin.lto='thin'",
        "--config=profile.thin.codegen-units=16",
        "--profile=thin",
    ],
};
/// Without link-time optimisation; the linker drops unreferenced sections.
const NO_LTO_PROFILE: BuildProfile = BuildProfile {
    name: "pieces",
    options: &[
        "--config=profile.pieces.inherits='release'",
        "--config=profile.pieces.lto='off'",
        "--config=profile.pieces.opt-level=1",
        "--config=profile.pieces.codegen-units=256",
        "--profile=pieces",
    ],
};

/// Returns the example `name`, built with this profile; `None`, after printing the reason, without
/// cargo.
fn build_example(name: &str, profile: BuildProfile) -> Option<PathBuf> {
    build_example_with_flags(name, profile, &[])
}

/// Builds an example like [`example`], with additional flags for the compiler.
fn build_example_with_flags(name: &str, profile: BuildProfile, flags: &[&str]) -> Option<PathBuf> {
    if !has("cargo") {
        report_skipped("cargo is not installed");
        return None;
    }
    let target = build_dir().parent().expect("target/release has a parent").to_owned();
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--offline", "--locked", "--quiet", "-p", "trackway"]);
    cargo.args(["--features", "tracing,log", "--example", name]).args(profile.options);
    cargo.arg("--target-dir").arg(&target).current_dir(source_dir());
    cargo.arg("--").args(flags);
    let output = cargo.output().expect("cargo runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{profile:?}: {messages}");
    let folder = target.join(profile.name).join("examples");
    let library = folder.join(format!("lib{name}.so"));
    Some(if library.exists() { library } else { folder.join(name) })
}

/// Records a program, which must succeed; returns its events as "name: { fields }", without
/// contexts.
fn record_events<S: AsRef<OsStr>>(fixture: &Fixture, command: &[S]) -> Vec<String> {
    record_events_with_options(fixture, &[], command)
}

fn record_events_with_options<S: AsRef<OsStr>>(
    fixture: &Fixture,
    options: &[&str],
    command: &[S],
) -> Vec<String> {
    let trace = fixture.path("trace");
    let _ = fs::remove_dir_all(&trace);
    let mut all = vec!["--context", "none"];
    all.extend(options);
    let recording = fixture.record(&all, command);
    assert!(recording.output.status.success(), "{}", recording.messages());
    assert_eq!(recording.summary.lost, 0, "{}", recording.messages());
    // The output is not all UTF-8: `values` records some other bytes.
    let output =
        fixture.trackway(&[OsStr::new("print"), trace.as_os_str()]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let event = |line: &str| {
        // [time] (+delta) host name: { cpu_id = N }, { fields }
        let (head, rest) = line.split_once(": { cpu_id = ").expect("an event");
        let name = head.rsplit(' ').next().expect("a name");
        let (_, fields) = rest.split_once("}, ").expect("fields");
        format!("{name}: {fields}")
    };
    text.lines().map(event).collect()
}

/// Output of the example `values`, where `ä…` stands for a long string and `7…` for many numbers.
const VALUES_EVENTS: &str = "\
values:integers: { a = -1, b = -2, c = -3, d = -9223372036854775808, e = 255, f = 65535, \
g = 4294967295, h = 18446744073709551615, i = -5, j = 6 }
values:others: { yes = 1, no = 0, single = 1.5, double = -0.25, letter = \"ü\", flags = 0x81, \
word = 0xDEAD, null = 0x0 }
values:enumerations: { to = ( \"Loading\" : container = 3 ), from = ( \"Idle\" : container = 0 ), \
far = ( \"Far\" : container = -9223372036854775808 ), near = ( \"Here\" : container = 0 ), \
named = ( \"number\" : container = 0 ) }
values:strings: { plain = \"plain\", owned = \"owned\", boxed = \"boxed\", shared = \"shared\", \
cow = \"cow\", empty = \"\", c = \"c\", made = \"owned 1\", ends = \"here\", path = \"/etc\", \
_raw_length = 8, raw = \"not\u{fffd}utf8\" }
values:sequences: { _slice_length = 2, slice = [ [0] = 2, [1] = 3 ], _vector_length = 3, \
vector = [ [0] = 1, [1] = 2, [2] = 3 ], _none_length = 0, none = [ ], \
array = [ [0] = 1, [1] = -2 ], floats = [ [0] = 0.5 ] }
values:generic: { value = 1, n = 3 }
values:generic: { value = \"text\", n = 4 }
values:inlined: { place = \"here\" }
values:inlined: { place = \"there\" }
values:fallible: { number = 5 }
values:waits: { what = \"all\", number = 9 }
values:closure: { number = 9 }
values:outer_begin: { depth = 0 }
values:inner_begin: { }
values:inner_end: { }
values:outer_end: { }
values:names: { event = 1, values = 2, u8 = 1, record = 3 }
";

fn check_values_recorded(profile: BuildProfile) {
    let fixture = Fixture::new(&format!("rust-values-{}", profile.name));
    let Some(program) = build_example("values", profile) else { return };
    let mut events = record_events(&fixture, &[&program]);
    let cut = events.iter().position(|event| event.starts_with("values:cut")).expect("it is there");
    let cut = events.remove(cut);
    let expected: Vec<&str> = VALUES_EVENTS.lines().collect();
    assert_eq!(events, expected, "{profile:?}");
    // Both long strings were cut to equal length: half of 4000 less 9 for the lengths and 6 bytes.
    let text = cut.split('"').nth(1).expect("a text");
    assert!(text.ends_with("ä…") && (1985..=1993).contains(&text.len()), "{}", text.len());
    assert!(cut.contains("short = \"short\"") && cut.contains("_second_length = 498,"), "{cut}");
}

/// The compiler removes the labels with the code of a value that can never exist. The event's
/// description remains, and is refused.
#[test]
fn an_enumeration_that_never_has_a_value_links_and_stays_off() {
    let fixture = Fixture::new("rust-never");
    for profile in [DEBUG_PROFILE, RELEASE_PROFILE, THIN_LTO_PROFILE, NO_LTO_PROFILE] {
        let Some(program) = build_example("never", profile) else { return };
        let expected = ["never:before: { number = 1 }", "never:after: { number = 2 }"];
        assert_eq!(record_events(&fixture, &[&program]), expected, "{profile:?}");
    }
}

#[test]
fn values_keep_their_types_without_optimisation() {
    check_values_recorded(DEBUG_PROFILE);
}

#[test]
fn values_keep_their_types_in_a_release() {
    check_values_recorded(RELEASE_PROFILE);
}

#[test]
fn values_keep_their_types_with_thin_link_time_optimisation() {
    check_values_recorded(THIN_LTO_PROFILE);
}

#[test]
fn values_keep_their_types_when_the_linker_drops_what_is_unused() {
    check_values_recorded(NO_LTO_PROFILE);
}

/// Without a recorder and without the library, the program has no effect: it makes no window.
#[test]
fn programs_run_where_nothing_is_installed() {
    let fixture = Fixture::new("rust-alone");
    for name in ["hello", "values", "tracing", "log"] {
        let Some(program) = build_example(name, DEBUG_PROFILE) else { return };
        let output = fixture.command(&program).output().expect("it runs");
        assert!(output.status.success(), "{name}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{name}");
        let left = fs::read_dir(fixture.window_dir()).expect("the window's folder").count();
        assert_eq!(left, 0, "{name}");
    }
}

#[test]
fn static_programs_run_with_everything_off_and_carry_the_note() {
    let fixture = Fixture::new("rust-static");
    let profile = BuildProfile {
        name: "static",
        options: &["--config=profile.static.inherits='dev'", "--profile=static"],
    };
    let Some(program) =
        build_example_with_flags("values", profile, &["-Ctarget-feature=+crt-static"])
    else {
        return;
    };
    assert!(fixture.command(&program).status().expect("it runs").success());
    if !has("readelf") {
        return report_skipped("readelf is not installed");
    }
    let read = |what: &str| {
        let output = Command::new("readelf").arg(what).arg(&program).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(!read("-d").contains("NEEDED"), "it is static: {}", read("-d"));
    assert_eq!(read("-n").matches("Trackway").count(), 1, "{}", read("-n"));
}

/// A program that is linked with the library is traceable although `record` did not start it.
#[test]
fn a_program_can_be_linked_with_the_library() {
    let fixture = Fixture::new("rust-linked");
    let profile = BuildProfile {
        name: "linked",
        options: &["--config=profile.linked.inherits='dev'", "--profile=linked"],
    };
    let build = build_dir();
    let arguments = format!(
        "-Clink-args=-Wl,--no-as-needed -L{} -ltrackway -Wl,-rpath,{}",
        build.display(),
        build.display()
    );
    let Some(program) = build_example_with_flags("hello", profile, &[&arguments]) else { return };
    let clear = [Path::new("env"), Path::new("-u"), Path::new("LD_PRELOAD"), &program];
    assert_eq!(record_events(&fixture, &clear).len(), 4);
}

#[test]
fn libraries_that_are_loaded_later_announce_their_events() {
    let fixture = Fixture::new("rust-plugin");
    for profile in [DEBUG_PROFILE, RELEASE_PROFILE] {
        let (Some(host), Some(plugin)) =
            (build_example("host", profile), build_example("plugin", profile))
        else {
            return;
        };
        let events = record_events(&fixture, &[&host, &plugin]);
        let expected: Vec<String> = (0..3)
            .flat_map(|number| ["host:loading", "plugin:run"].map(|name| (name, number)))
            .map(|(name, number)| format!("{name}: {{ number = {number} }}"))
            .collect();
        assert_eq!(events, expected, "{profile:?}");
    }
}

/// One note in the module finds both kinds of events, of C and of Rust.
#[test]
fn modules_of_c_and_rust_have_one_note() {
    let fixture = Fixture::new("rust-mixed");
    for profile in [DEBUG_PROFILE, RELEASE_PROFILE] {
        let Some(library) = build_example("mixed", profile) else { return };
        let library = library.with_file_name("libmixed.a");
        let text = "#include <trackway/trackway.h>\n\
                    TRACKWAY_EVENT(mixed, both, TRACKWAY_INFO, (str, from), (u32, number));\n\
                    TRACKWAY_EVENT(mixed, c, TRACKWAY_INFO);\n\
                    void mixed_rust(void);\n\
                    int main(void) {\n\
                    trackway(mixed, both, \"C\", 1); trackway(mixed, c); mixed_rust();\n\
                    return 0; }\n";
        let library = library.to_str().expect("a path that is text");
        let flags = [library, "-ldl", "-lm", "-Wl,--gc-sections"];
        let program = fixture.compile(&format!("mixed-{}", profile.name), text, false, &flags);
        let events = record_events(&fixture, &[&program]);
        let expected = [
            "mixed:both: { from = \"C\", number = 1 }",
            "mixed:c: { }",
            "mixed:both: { from = \"Rust\", number = 2 }",
            "mixed:rust: { }",
        ];
        assert_eq!(events, expected, "{profile:?}");
        if has("readelf") {
            let output = Command::new("readelf").arg("-n").arg(&program).output().expect("it runs");
            let notes = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(notes.matches("Trackway").count(), 1, "{notes}");
        }
    }
}

/// Replaces the span ids of the registry by #1, #2, … in the order of their occurrence.
fn renumber_span_ids(events: &[String]) -> Vec<String> {
    let mut ids: Vec<String> = vec!["0".to_owned()];
    let id = |name: &str| format!("{name} = ");
    let mut shown = Vec::new();
    for event in events {
        let mut event = event.clone();
        for name in ["span_id", "parent_id"] {
            let Some((before, rest)) = event.split_once(&id(name)) else { continue };
            let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..end].to_owned();
            let place = ids.iter().position(|id| *id == number).unwrap_or_else(|| {
                ids.push(number);
                ids.len() - 1
            });
            event = format!("{before}{}#{place}{}", id(name), &rest[end..]);
        }
        shown.push(event);
    }
    shown
}

const SPANS_EVENTS: &str = "\
tracing:handle_begin: { span_id = #1, parent_id = #0, path = \"/index.html\", tries = 1 }
tracing:LINE: { span_id = #1, message = \"served /index.html\", bytes = 512, ratio = 0.5, \
cached = 1, delta = -3 }
tracing:handle_end: { span_id = #1 }
tracing:handle_begin: { span_id = #2, parent_id = #0, path = \"/logo.png\", tries = 2 }
tracing:LINE: { span_id = #2, message = \"served /logo.png\", bytes = 512, ratio = 0.5, \
cached = 1, delta = -3 }
tracing:handle_end: { span_id = #2 }
tracing:load_begin: { span_id = #3, parent_id = #0, file = \"myapp.conf\" }
tracing:parse_begin: { span_id = #4, parent_id = #3 }
tracing:LINE: { span_id = #4, message = \"loaded\", config = \"Config { threads: 4 }\" }
tracing:parse_end: { span_id = #4 }
tracing:load_record: { span_id = #3, status = 7 }
tracing:load_end: { span_id = #3 }
tracing:varies: { span_id = #0, number = 0 }
tracing:varies: { span_id = #0, number = \"odd\" }
tracing:varies: { span_id = #0, number = 2 }
tracing:varies: { span_id = #0, number = \"odd\" }
tracing:request_begin: { span_id = #5, parent_id = #0, id = 9 }
tracing:LINE: { span_id = #5, error = \"no luck\", code = 5 }
tracing:forgotten_begin: { span_id = #6, parent_id = #0 }
tracing:forgotten_end: { span_id = #6 }
tracing:other_begin: { span_id = #7, parent_id = #0 }
tracing:afterwards: { span_id = #0, number = 1 }
tracing:other_end: { span_id = #7 }
tracing:request_end: { span_id = #5 }
";

/// Removes the line numbers in names of events that are named after their place in the source.
fn replace_source_lines(events: &[String]) -> Vec<String> {
    let place = "tracing:crates/rust/examples/tracing.rs:";
    let named = |event: &String| match event.strip_prefix(place) {
        Some(rest) => {
            let (line, rest) = rest.split_once(": ").expect("a line and fields");
            assert!(line.parse::<u32>().is_ok(), "{event}");
            format!("tracing:LINE: {rest}")
        }
        None => event.clone(),
    };
    events.iter().map(named).collect()
}

#[test]
fn a_program_that_speaks_through_tracing_is_traced_by_one_line() {
    let fixture = Fixture::new("rust-tracing");
    for profile in [DEBUG_PROFILE, RELEASE_PROFILE] {
        let Some(program) = build_example("tracing", profile) else { return };
        let events =
            replace_source_lines(&renumber_span_ids(&record_events(&fixture, &[&program])));
        assert_eq!(events, SPANS_EVENTS.lines().collect::<Vec<_>>(), "{profile:?}");
    }
    // Only some events are enabled: the callsites of the others are off, and so are the enclosing
    // spans.
    let Some(program) = build_example("tracing", DEBUG_PROFILE) else { return };
    let events = record_events_with_options(&fixture, &["--event", "tracing:varies"], &[&program]);
    assert_eq!(events, SPANS_VARIES_EVENTS.lines().collect::<Vec<_>>());
    let events =
        record_events_with_options(&fixture, &["--event", "tracing:handle_end"], &[&program]);
    assert_eq!(events.len(), 2, "{events:?}");
}

const SPANS_VARIES_EVENTS: &str = "\
tracing:varies: { span_id = 0, number = 0 }
tracing:varies: { span_id = 0, number = \"odd\" }
tracing:varies: { span_id = 0, number = 2 }
tracing:varies: { span_id = 0, number = \"odd\" }
";

#[test]
fn a_subscriber_of_its_own_records_the_same() {
    let fixture = Fixture::new("rust-subscriber");
    for profile in [DEBUG_PROFILE, RELEASE_PROFILE] {
        let Some(program) = build_example("tracing", profile) else { return };
        let command = [program.as_os_str(), OsStr::new("subscriber")];
        let events = replace_source_lines(&renumber_span_ids(&record_events(&fixture, &command)));
        assert_eq!(events, SPANS_EVENTS.lines().collect::<Vec<_>>(), "{profile:?}");
    }
}

/// Every span begins once and ends once, under an id that is unique at the time, and lies within
/// its thread's span.
#[test]
fn spans_that_end_in_other_threads_add_up() {
    let fixture = Fixture::new("rust-threads");
    let Some(program) = build_example("threads", RELEASE_PROFILE) else { return };
    for arguments in [&[][..], &["subscriber"]] {
        let mut command = vec![program.as_os_str()];
        command.extend(arguments.iter().map(OsStr::new));
        let events = record_events(&fixture, &command);
        let mut open: HashMap<u64, u64> = HashMap::new();
        let mut of_thread: HashMap<u64, u64> = HashMap::new();
        let mut numbers = HashSet::new();
        for event in &events {
            let field = |name: &str| -> u64 {
                let (_, rest) = event.split_once(&format!(" {name} = ")).expect("a field");
                rest.split([',', ' ']).next().and_then(|text| text.parse().ok()).expect("a number")
            };
            let id = field("span_id");
            if event.starts_with("threads:thread_begin") {
                assert_eq!(of_thread.insert(field("thread"), id), None);
            } else if event.starts_with("threads:work_begin") {
                let number = field("number");
                assert!(numbers.insert(number), "{number} is there twice");
                assert_eq!(open.insert(id, number), None, "{event}: the id is in use");
                assert_eq!(of_thread.get(&(number / 2000)), Some(&field("parent_id")), "{event}");
            } else if event.starts_with("threads:work_end") {
                assert!(open.remove(&id).is_some(), "{event}: it did not begin");
            }
        }
        assert!(open.is_empty() && numbers.len() == 8000, "{open:?}, {}", numbers.len());
        assert_eq!(events.len(), 2 * (8000 + 4));
    }
}

/// No process waits for ever, whatever the program's threads do when it forks, and whichever code
/// allocates. (Some of the many simultaneous events may be lost; this test accepts that.)
#[test]
fn spans_go_on_in_forked_children_and_in_allocators() {
    let fixture = Fixture::new("rust-forks");
    let Some(program) = build_example("forks", RELEASE_PROFILE) else { return };
    let command = [OsStr::new("timeout"), OsStr::new("60"), program.as_os_str()];
    let on = ["--event", "forks:work_begin", "--event", "forks:allocation_begin"];
    for _ in 0..3 {
        let recording = fixture.record(&on, &command);
        assert!(recording.output.status.success(), "{}", recording.messages());
        assert!(recording.summary.recorded > 1000, "{}", recording.messages());
        fs::remove_dir_all(fixture.path("trace")).expect("a trace");
    }
}

#[test]
fn rare_uses_of_spans_are_recorded() {
    let fixture = Fixture::new("rust-corners");
    let Some(program) = build_example("corners", RELEASE_PROFILE) else { return };
    let events = record_events(&fixture, &[&program]);
    let count = |name: &str| {
        let name = format!("corners:{name}: ");
        events.iter().filter(|event| event.starts_with(&name)).count()
    };
    let spans = ["load", "held", "late"]
        .map(|name| ["_begin", "_end"].map(|suffix| count(&format!("{name}{suffix}"))));
    assert_eq!(spans, [[10; 2]; 3], "{events:#?}");
    // Events in spans that begin and end in a destructor have these spans.
    let told = events.iter().filter(|event| event.starts_with("corners:told: "));
    assert_eq!(told.filter(|event| !event.contains("span_id = 0,")).count(), 10, "{events:#?}");
    let long =
        events.iter().find(|event| event.starts_with("corners:long: ")).expect("it is there");
    assert!(long.contains("value = \"0 1 2 3 ") && long.ends_with("…\" }"), "{long}");
    // Values that are recorded later give only their own events, without their spans.
    let events =
        record_events_with_options(&fixture, &["--event", "corners:load_record"], &[&program]);
    assert_eq!(events.len(), 10, "{events:#?}");
    for (number, event) in events.iter().enumerate() {
        let values = format!("first = \"a value\", second = {number} }}");
        assert!(event.ends_with(&values), "{event}");
    }
}

#[test]
fn enters_and_exits_are_recorded_if_wanted() {
    let fixture = Fixture::new("rust-enters");
    let Some(program) = build_example("tracing", DEBUG_PROFILE) else { return };
    let events = record_events(&fixture, &[program.as_os_str(), OsStr::new("enters")]);
    let of_load: Vec<&str> = events
        .iter()
        .filter_map(|event| event.strip_prefix("tracing:load_"))
        .filter_map(|event| event.split(':').next())
        .collect();
    assert_eq!(of_load, ["begin", "enter", "record", "exit", "end"]);
}

#[test]
fn a_program_that_speaks_through_log_is_traced_by_one_line() {
    let fixture = Fixture::new("rust-log");
    let Some(program) = build_example("log", RELEASE_PROFILE) else { return };
    let events = record_events(&fixture, &[&program]);
    let without_lines: Vec<&str> =
        events.iter().map(|event| event.split(", line = ").next().expect("fields")).collect();
    let file = "file = \"crates/rust/examples/log.rs\"";
    let expected = [
        format!(
            "log:error: {{ message = \"cannot open \\\"myapp.conf\\\"\", target = \"log\", {file}"
        ),
        format!("log:warn: {{ message = \"using defaults\", target = \"log\", {file}"),
        format!(
            "log:info: {{ message = \"listening on port 8080\", target = \"myapp::net\", {file}"
        ),
        format!("log:debug: {{ message = \"12 modules\", target = \"log\", {file}"),
        format!("log:trace: {{ message = \"idle\", target = \"log\", {file}"),
    ];
    assert_eq!(without_lines, expected);
}

/// Checks the cost of a disabled call, as far as the machine code shows it.
#[test]
fn a_call_that_is_off_is_two_loads_and_a_branch() {
    if !cfg!(target_arch = "x86_64") || !has("objdump") {
        return report_skipped("the check reads x86-64 machine code, with objdump");
    }
    let Some(library) = build_example("mixed", RELEASE_PROFILE) else { return };
    let library = library.with_file_name("libmixed.a");
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn", "--disassemble=mixed_site"]).arg(library);
    let output = objdump.output().expect("objdump runs");
    let listing = String::from_utf8_lossy(&output.stdout);
    let (_, code) = listing.split_once("<mixed_site>:\n").expect("the function");
    let code: Vec<&str> = code
        .lines()
        .map_while(|line| line.split_once('\t'))
        .map(|(_, instruction)| instruction.trim())
        .collect();
    let branch = code.iter().position(|one| one.starts_with('j')).expect("a branch");
    let before = &code[..branch];
    let is_load = |one: &&&str| one.contains('(') && !one.starts_with("lea");
    assert_eq!(before.iter().filter(is_load).count(), 2, "{code:#?}");
    assert!(before.len() <= 4 && !before.iter().any(|one| one.starts_with("call")), "{code:#?}");
    assert!(code[branch].starts_with("jne") && code[branch + 1].starts_with("ret"), "{code:#?}");
}
