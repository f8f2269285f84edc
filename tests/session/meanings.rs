//! Later events whose fields have the same kinds, but other meanings, than the event for which a
//! filter was compiled. They are counted as lost until the filter is compiled for them, and never
//! confused with the first event.

use trackway_tests::steps::wait_for;

use crate::session_test::{SessionTest, command_result};

/// An event, and the values of each emission.
struct EventSource {
    name: &'static str,
    declared: &'static str,
    emitted: &'static str,
}

/// RUN a program with `first`, then programs with `later`, which is new to the recorder, until the
/// first event of one is recorded. EXPECT only events for which the filter is true, so that all
/// recorded events end with `suffix`.
fn check_filtered_events(name: &str, filter: &str, [first, later]: [EventSource; 2], suffix: &str) {
    let test = SessionTest::new(name);
    let program = |event: &EventSource| {
        let EventSource { name, declared, emitted } = event;
        let text = format!(
            "#include <trackway/trackway.h>\n{declared}\n\
             int main(void)\n{{\n{emitted}\nreturn 0;\n}}\n"
        );
        test.fixture.compile(name, &text, true, &[])
    };
    let programs = [program(&first), program(&later)];
    let words = ["session", "create", "web", "--event", "m:*", "--filter", filter, "-o", "trace"];
    let (is_success, _, talk) =
        command_result(&test.fixture.trackway(&words).output().expect("it runs"));
    assert!(is_success, "{talk}");
    let run = |which: usize| {
        let status = test.fixture.command(&programs[which]).status().expect("it runs");
        assert!(status.success());
    };
    let count = |what: &str| test.status("web")["counts"][what].as_u64().unwrap_or(0);
    wait_for("that the first one is recorded", || {
        run(0);
        count("recorded") > 0
    });
    let before = count("recorded");
    wait_for("that later ones are", || {
        run(1);
        count("recorded") > before
    });
    test.ok("session destroy web");
    let text = test.fixture.print(&test.fixture.path("trace"));
    let of_later = format!("m:{}: ", later.name);
    let all: Vec<&str> = text.lines().filter(|line| line.contains(&of_later)).collect();
    assert!(!all.is_empty() && all.iter().all(|line| line.ends_with(suffix)), "{text}");
}

#[test]
fn labels_are_those_of_each_event() {
    let first = EventSource {
        name: "a",
        declared: "TRACKWAY_ENUM(m, e1, (OK, 0), (BAD, 1));\n\
                   TRACKWAY_EVENT(m, a, TRACKWAY_INFO, (enum, st, m, e1, u8));",
        emitted: "for (int i = 0; i < 4; i++) trackway(m, a, i);",
    };
    let later = EventSource {
        name: "b",
        declared: "TRACKWAY_ENUM(m, e2, (OK, 0), (BAD, 2));\n\
                   TRACKWAY_EVENT(m, b, TRACKWAY_INFO, (enum, st, m, e2, u8), (u32, n));",
        emitted: "for (int i = 0; i < 4; i++) trackway(m, b, i, 100 + i);",
    };
    check_filtered_events(
        "session-meanings-labels",
        "m:*: st == \"BAD\"",
        [first, later],
        "n = 102 }",
    );
}

#[test]
fn elements_are_those_of_each_event() {
    let first = EventSource {
        name: "a",
        declared: "TRACKWAY_EVENT(m, a, TRACKWAY_INFO, (seq, xs, u32));",
        emitted: "uint32_t x[] = {1, 9}; trackway(m, a, x, 2);",
    };
    // Two elements of the first event occupy eight elements here, of which none is 9.
    let later = EventSource {
        name: "b",
        declared: "TRACKWAY_EVENT(m, b, TRACKWAY_INFO, (seq, xs, i8), (u32, n));",
        emitted: "int8_t x[] = {9, 9, 0, 0, 0, 0, 0, 0}, y[] = {9, 0, 0, 0, 1};\n\
                  trackway(m, b, x, 8, 7); trackway(m, b, y + 1, 4, 8);",
    };
    check_filtered_events(
        "session-meanings-elements",
        "m:*: any(xs == 9)",
        [first, later],
        "n = 7 }",
    );
}

#[test]
fn widths_that_make_a_difference_are_those_of_each_event() {
    let first = EventSource {
        name: "a",
        declared: "TRACKWAY_EVENT(m, a, TRACKWAY_INFO, (u64, size));",
        emitted: "trackway(m, a, 3); trackway(m, a, 77);",
    };
    // An unsigned value of 64 bits is never less than zero.
    let later = EventSource {
        name: "b",
        declared: "TRACKWAY_EVENT(m, b, TRACKWAY_INFO, (u32, size));",
        emitted: "trackway(m, b, 7); trackway(m, b, 3);",
    };
    let filter = "m:*: size - 5 < 0 || size == 77";
    check_filtered_events("session-meanings-difference", filter, [first, later], "size = 3 }");
}

/// RUN record with a filter that is invalid for one of a program's events, given as an option or in
/// a file; and a session with it. EXPECT advice about the filter, and none about buffers.
#[test]
fn losses_by_a_filter_that_makes_no_sense_are_said_to_be_that() {
    let test = SessionTest::new("session-meanings-senseless");
    let text = "#include <trackway/trackway.h>\n\
                TRACKWAY_EVENT(m, a, TRACKWAY_INFO, (u32, status));\n\
                TRACKWAY_EVENT(m, b, TRACKWAY_INFO, (str, status));\n\
                int main(void)\n{\n\
                for (int i = 0; i < 10; i++) { trackway(m, a, i); trackway(m, b, \"x\"); }\n\
                return 0;\n}\n";
    let program = test.fixture.compile("senseless", text, true, &[]);
    let program = program.to_str().expect("a path");
    let file = test.fixture.path("rules.toml");
    std::fs::write(&file, "[[channel]]\nfilters = ['status > 3']\n").expect("a file");
    let file = file.to_str().expect("a path");
    let check = |talk: &str| {
        assert!(talk.contains("lost 10 × m:b"), "{talk}");
        assert!(talk.contains("hint: the filter 'status > 3' makes no sense for m:b"), "{talk}");
        assert!(!talk.contains("--buffer-size"), "{talk}");
    };
    for options in [["--filter", "status > 3"], ["--config", file]] {
        let words = [&["record", "-o", "trace"][..], &options, &["--", program]].concat();
        let (is_success, _, talk) =
            command_result(&test.fixture.trackway(&words).output().expect("it runs"));
        assert!(is_success, "{talk}");
        check(&talk);
    }
    test.ok(&format!("session create web --load {file} -o of-session"));
    assert!(test.fixture.command(program).status().expect("it runs").success());
    check(&test.ok("session destroy web").1);
}

/// A filter compiled for all possible types evaluates wide values, from the first event on.
#[test]
fn widths_are_those_of_each_event() {
    let test = SessionTest::new("session-meanings-widths");
    let program = |name: &str, of: &str, value: &str| {
        let text = format!(
            "#include <trackway/trackway.h>\n\
             TRACKWAY_EVENT(m, {name}, TRACKWAY_INFO, ({of}, size));\n\
             int main(void)\n{{\n\
             for (int i = 0; i < 10; i++) trackway(m, {name}, {value});\nreturn 0;\n}}\n"
        );
        test.fixture.compile(name, &text, true, &[])
    };
    let programs = [program("a", "u32", "500"), program("b", "u64", "1ull << 63")];
    let filter = "m:*: size >= 400";
    let words = ["session", "create", "web", "--event", "m:*", "--filter", filter, "-o", "trace"];
    let (is_success, _, talk) =
        command_result(&test.fixture.trackway(&words).output().expect("it runs"));
    assert!(is_success, "{talk}");
    let count = |what: &str| test.status("web")["counts"][what].as_u64().unwrap_or(0);
    for (program, so_far) in programs.iter().zip([10, 20]) {
        assert!(test.fixture.command(program).status().expect("it runs").success());
        wait_for("that it is counted", || count("recorded") + count("lost") >= so_far);
        assert_eq!((count("recorded"), count("lost")), (so_far, 0));
        // The filter compiled for the first event is in effect when the recorder is idle.
        test.ok("event on web m:*");
    }
    test.ok("session destroy web");
}

/// RECORD a program that another command starts, so that its events are unknown, with filters that
/// are wrong if its fields are confused; and again, when its events are known. EXPECT equal events
/// both times, or that all events of the first time are counted as lost; and no refused filter.
#[test]
fn first_events_are_judged_as_later_ones_or_counted() {
    let test = SessionTest::new("session-meanings-first");
    let declared = "(u32, length), (i32, a), (seq, z, i64), (array, y, u8, 4), (str, path)";
    let emitted = "int64_t z[] = {1, 2, 3, 4}; uint8_t y[] = {9, 8, 7, 6};\n\
                   for (int i = 0; i < 40; i++)\n\
                   trackway(PROVIDER, req, i % 10, i % 10, z, i % 5, y, \"/api\");";
    for (number, (filter, expected, is_judged)) in [
        ("length - 5 < 0", 20, true),
        ("-length > 1000", 0, true),
        ("length - 5 > 1000 || a == 3", 4, true),
        // The event with four elements in five emissions has no z[3] in one.
        ("a == 3 || z[3] > 0", 12, false),
        ("a >= 0 || z[3] > 0 || z[2] == 1", 40, false),
        ("a < 5 && z[3] > 0", 4, true),
        ("a == 3 || y[3] == 6", 40, true),
        ("length(path) + length(z) + length(y) + a > length + 9", 24, true),
    ]
    .into_iter()
    .enumerate()
    {
        let provider = format!("m{number}");
        let text = format!(
            "#include <trackway/trackway.h>\n\
             TRACKWAY_EVENT({provider}, req, TRACKWAY_INFO, {declared});\n\
             int main(void)\n{{\n{}\nreturn 0;\n}}\n",
            emitted.replace("PROVIDER", &provider)
        );
        let program = test.fixture.compile(&provider, &text, true, &[]);
        let program = program.to_str().expect("a path");
        let record = |time: &str| {
            let trace = format!("trace-{number}-{time}");
            let filter = format!("{provider}:req: {filter}");
            let words = ["record", "-o", &trace, "--filter", &filter, "--", "env", program];
            let (is_success, _, talk) =
                command_result(&test.fixture.trackway(&words).output().expect("it runs"));
            assert!(is_success, "{talk}");
            let text = test.fixture.print(&test.fixture.path(&trace));
            (text.lines().count(), talk.contains(&format!("lost 40 × {provider}:req")), talk)
        };
        let (first, is_lost, talk) = record("first");
        assert_eq!(
            (first, is_lost),
            if is_judged { (expected, false) } else { (0, true) },
            "{talk}"
        );
        let (later, is_lost, talk) = record("later");
        assert_eq!((later, is_lost), (expected, false), "{filter}: {talk}");
    }
    let many = "web:request: length(path) + length(query) + length(body) > limit + extra";
    let words = ["session", "create", "web", "--filter", many, "-o", "trace"];
    let (is_success, _, talk) =
        command_result(&test.fixture.trackway(&words).output().expect("it runs"));
    assert!(is_success, "{talk}");
    test.ok("session destroy web");
}
