//! Filters as users write them: on the command line, in files, for existing sessions. An invalid
//! filter is refused before the recording begins. (`filters.rs` tests which events pass.)

use std::fs;

use serde_json::json;

use crate::session_test::{BurstProgram, SessionTest, command_result};

/// Runs `trackway WORDS`; returns whether it succeeded, its output, and its messages.
fn run_trackway(test: &SessionTest, words: &[&str]) -> (bool, String, String) {
    command_result(&test.fixture.trackway(words).output().expect("trackway runs"))
}

/// Runs `trackway WORDS`, which must succeed, and returns its messages.
fn run_expecting_success(test: &SessionTest, words: &[&str]) -> String {
    let (is_success, _, talk) = run_trackway(test, words);
    assert!(is_success, "{words:?}: {talk}");
    talk
}

/// Runs `trackway WORDS`, which must fail, and returns its messages.
fn run_expecting_failure(test: &SessionTest, words: &[&str]) -> String {
    let (is_success, text, talk) = run_trackway(test, words);
    assert!(!is_success && text.is_empty(), "{words:?}: {text}{talk}");
    talk
}

/// Returns the filters of a session's channel in the saved session.
fn saved_filters(test: &SessionTest, session: &str) -> String {
    let (text, _) = test.ok(&format!("session save {session}"));
    let line = text.lines().find_map(|line| line.strip_prefix("filters = "));
    line.unwrap_or("none").to_owned()
}

/// RUN record with invalid filters: as text, for any event, and for the program's known events.
/// EXPECT status 125, the fault with its position, no trace, and the command not to run.
#[test]
fn a_command_is_not_run_with_a_filter_that_makes_no_sense() {
    let test = SessionTest::new("session-filter-refused");
    // The program's events are known after its first run.
    test.ok("session create web -o web");
    test.emit("steps", 1);
    test.ok("session destroy web");
    let emitter = test.emitter.to_str().expect("a path");
    for (filter, lines) in [
        ("number >", "number >\n        ^\n"),
        ("life:*: number > 5 &&", "number > 5 &&\n             ^\n"),
        ("length(number & 1) > 2", "a number has no length"),
        (
            "life:step: numbr > 5",
            "numbr > 5\n^^^^^\nunknown field 'numbr' of life:step; did you mean 'number'?\n",
        ),
        ("numbr > 5", "^^^^^\nunknown field 'numbr' of life:step; did you mean 'number'?\n"),
        ("life: number == \"a*\"", "an integer is not compared with a string"),
        // The program's file lists its events: a later event cannot have the field.
        ("zzz == 1", "^^^\nunknown field 'zzz': no event that this is for has it"),
        ("number > 3 && who > 3 && zzz > 1", "^^^\nno event has all that this names: "),
        ("$ctx.vtd == 7", "did you mean '$ctx.vtid'?"),
        ("$ctx.uid == 7", "hint: it is known of the kernel's events alone (--kernel)"),
        ("!life:*: number > 5", "'!life:*' is not a pattern"),
    ] {
        let output = test
            .fixture
            .trackway(&["record", "-o", "trace", "--filter", filter, "--", emitter, "crash", "1"])
            .output()
            .expect("trackway runs");
        let (_, _, talk) = command_result(&output);
        assert_eq!(output.status.code(), Some(125), "{filter}: {talk}");
        assert!(talk.contains(lines), "{filter}: {talk}");
        assert!(!test.fixture.path("trace").exists(), "{filter}");
    }
}

/// RUN record with filters on unknown events, and on events that only a program of another name
/// has. EXPECT it to record.
#[test]
fn filters_on_unknown_events_are_accepted() {
    let test = SessionTest::new("session-filter-later");
    let emitter = test.emitter.to_str().expect("a path");
    let filters = ["db: status == \"FAILED\"", "web:*: status >= 400", "other: any(sizes > 3)"];
    for filter in filters {
        run_expecting_success(
            &test,
            &["record", "-o", "trace", "--filter", filter, "--", emitter, "levels", "0"],
        );
    }
    // This program's events are known now; events of programs that it may start are not.
    for (filter, hint) in [
        ("web:*: status >= 400", None),
        ("who & 1 == 1", Some("'==' binds more strongly than '&'")),
        ("status >= 400", Some("is one for the filter 'status >= 400': none has 'status'")),
        ("life:stp: number > 5", Some("known; did you mean 'life:step'?")),
        ("step: number > 5", Some("known; did you mean 'life:step'?")),
    ] {
        let talk = run_expecting_success(
            &test,
            &["record", "-o", "trace", "--filter", filter, "--", "true"],
        );
        let is_said = talk.contains("filter:\n") || talk.contains("the filter '");
        assert_eq!(is_said, hint.is_some(), "{filter}: {talk}");
        assert!(talk.contains("hint: nothing was recorded: do the filters let anything pass?"));
        assert!(hint.is_none_or(|hint| talk.contains(hint)), "{filter}: {talk}");
    }
}

/// RUN sessions and channels with filters; save, load, list, status. EXPECT the filters in all
/// outputs, as they were typed.
#[test]
fn filters_are_kept_as_they_were_typed() {
    let test = SessionTest::new("session-filter-saved");
    let filters = ["life:*: number % 2 == 0", "sample(1/10) || who == 3"];
    run_expecting_success(
        &test,
        &["session", "create", "web", "-o", "t", "--filter", filters[0], "--filter", filters[1]],
    );
    run_expecting_success(
        &test,
        &["channel", "add", "web", "rare", "--event", "db:*", "--filter", "db: rows > 9"],
    );
    let (text, _) = test.ok("session status web");
    for filter in ["life:*: number % 2 == 0", "sample(1/10) || who == 3", "db: rows > 9"] {
        assert!(text.contains(&format!("\n  if        {filter}\n")), "{text}");
    }
    assert!(!text.contains("interpreted"), "{text}");
    let channel = &test.status("web")["channels"][0];
    assert_eq!(channel["spec"]["filters"], json!(filters));
    assert_eq!(channel["interpreters"], json!(0));
    assert_eq!(test.list()[0]["channels"][1]["spec"]["filters"], json!(["db: rows > 9"]));
    test.ok("session save web -o web.toml");
    test.ok("session load web.toml again");
    assert_eq!(test.status("again")["channels"][0]["spec"]["filters"], json!(filters));
    // The filters are carried over to a channel that replaces another one.
    test.ok("channel set web channel0 --context vpid");
    assert_eq!(test.status("web")["channels"][0]["spec"]["filters"], json!(filters));
    test.ok("session destroy --all");
}

/// RUN load and record --config of files with valid and invalid filters. EXPECT them to be
/// accepted, or refused with the position of the fault.
#[test]
fn files_have_filters_that_a_person_writes() {
    let test = SessionTest::new("session-filter-file");
    let file = test.fixture.path("web.toml");
    let write = |filters: &str| {
        let text = format!("[[channel]]\non = [\"life:*\"]\nfilters = [{filters}]\n");
        fs::write(&file, text).expect("a file");
    };
    write(r#""web:*: status >= 400", { pattern = "life", expression = "number > 5" }"#);
    test.ok("session load web.toml web");
    assert_eq!(saved_filters(&test, "web"), r#"["web:*: status >= 400", "life: number > 5"]"#);
    test.ok("session destroy web");
    test.ok("record --config web.toml -o trace -- true");
    for (filters, why) in [
        (r#""life: number >""#, "number >\n        ^\n"),
        (r#"{ pattern = "life", expresion = "a" }"#, "line 3, column"),
        ("7", "expected a filter, such as \"web:*: status >= 400\""),
        (r#""!life: number > 5""#, "'!life' is not a pattern"),
    ] {
        write(filters);
        for line in ["session load web.toml web", "record --config web.toml -o other -- true"] {
            let talk = test.refused(line);
            assert!(talk.contains(why), "{filters}: {talk}");
        }
    }
    assert!(!test.fixture.path("other").exists());
    assert!(test.list().is_empty());
}

/// RUN event on and off with filters. EXPECT a rule's filter to change and to be removed with the
/// rule; an invalid filter to change nothing, like with create and channel add.
#[test]
fn a_rules_filter_changes_and_goes_with_it() {
    let test = SessionTest::new("session-filter-event");
    let filter = |session: &str, expression: &str| {
        ["event", "on", session, "life:step", "--filter", expression].map(str::to_owned)
    };
    let words = |all: &[String]| all.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    test.ok("session create web --event life:* -o trace");
    let mut bursts = BurstProgram::of(&test, 10);
    let set = |expression: &str| {
        let line = filter("web", expression);
        run_trackway(&test, &line.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(set("number > 5").0, "{}", words(&filter("web", "number > 5")));
    assert_eq!(saved_filters(&test, "web"), r#"["life:step: number > 5"]"#);
    assert!(set("number > 6 && who < 3").0);
    assert_eq!(saved_filters(&test, "web"), r#"["life:step: number > 6 && who < 3"]"#);
    for (expression, why) in [
        ("number >", "number >\n        ^\n"),
        ("numbr > 5", "unknown field 'numbr' of life:step; did you mean 'number'?"),
    ] {
        let (is_success, _, talk) = set(expression);
        assert!(!is_success && talk.contains(why), "{talk}");
        assert_eq!(saved_filters(&test, "web"), r#"["life:step: number > 6 && who < 3"]"#);
    }
    test.ok("event on web life:step");
    assert_eq!(saved_filters(&test, "web"), r#"["life:step: number > 6 && who < 3"]"#);
    test.ok("event off web life:step");
    assert_eq!(saved_filters(&test, "web"), "none");
    let wrong = ["channel", "add", "web", "more", "--filter", "life: numbr > 5"];
    assert!(run_expecting_failure(&test, &wrong).contains("did you mean 'number'?"));
    let wrong = ["session", "create", "other", "--filter", "life: numbr > 5", "-o", "other"];
    assert!(run_expecting_failure(&test, &wrong).contains("did you mean 'number'?"));
    assert_eq!(test.status("web")["channels"].as_array().map(Vec::len), Some(1));
    bursts.next();
    test.ok("session destroy --all");
}

/// Returns the source of a program with events of all kinds, one of which also has the field
/// `more`.
fn program_source(more: &str) -> String {
    format!(
        "#include <trackway/trackway.h>\n\
         TRACKWAY_ENUM(never, state, (idle, 0), (busy, 1));\n\
         TRACKWAY_EVENT(never, ran, TRACKWAY_INFO, (u32, length), (str, path){more});\n\
         TRACKWAY_EVENT(never, other, TRACKWAY_INFO, (f64, share), (seq, bytes, u8),\n\
             (enum, state, never, state, u8));\n\
         int main(void)\n\
         {{\n\
             return 0;\n\
         }}\n"
    )
}

/// RUN record with filters on a program that has never run, linked in several ways, and rebuilt
/// with another field. EXPECT its file to provide its events.
#[test]
fn events_of_a_program_are_known_before_it_runs() {
    let test = SessionTest::new("session-filter-file-says");
    for (number, flags) in
        [&["-pie", "-fPIE"][..], &["-no-pie"], &["-fPIC", "-Wl,-z,norelro"]].iter().enumerate()
    {
        let name = format!("never{number}");
        let path = test.fixture.compile(&name, &program_source(""), true, flags);
        let path = path.to_str().expect("a path").to_owned();
        let refused = |filter: &str| {
            let words = ["record", "-o", "trace", "--filter", filter, "--", &path];
            run_expecting_failure(&test, &words)
        };
        let taken = |filter: &str, path: &str| {
            run_expecting_success(
                &test,
                &["record", "-q", "-o", "trace", "--filter", filter, "--", path],
            )
        };
        let why = "unknown field 'lenght' of never:ran; did you mean 'length'?";
        assert!(refused("never:ran: lenght > 5").contains(why), "{flags:?}");
        assert!(refused("lenght > 5").contains(why), "{flags:?}");
        let why = refused("never:*: share > 5 && size > 3");
        assert!(why.contains("unknown field 'size' of never:other"), "{flags:?}: {why}");
        let why = refused("never: any(bytes == \"a\")");
        assert!(why.contains("is not compared with a string"), "{flags:?}: {why}");
        let why = refused("never: state == \"bussy\"");
        assert!(why.contains("unknown label \"bussy\"; did you mean 'busy'?"), "{why}");
        taken("never:ran: length > 5 && path == \"/*\"", &path);
        taken("never: state == \"busy\" || any(bytes > 3)", &path);
        // After the rebuild, the program has a field that it lacked before.
        refused("never:ran: size > 5");
        let path = test.fixture.compile(&name, &program_source(", (u64, size)"), true, flags);
        taken("never:ran: size > 5", path.to_str().expect("a path"));
        test.fixture.compile(&name, &program_source(""), true, flags);
    }
}
