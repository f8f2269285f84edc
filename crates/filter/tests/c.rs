//! Tests of filters in C that clang compiles with `<trackway/filter.h>`: valid filters give correct
//! results, and invalid ones fail with the error and its location.
//!
//! Longer than 600 lines: the tests share the C sources that they compile.

use std::path::{Path, PathBuf};
use std::process::Command;

use trackway_filter::elf;
use trackway_filter::header::generate_header;
use trackway_filter::layout::{Integer, Layout, Member, Type};
use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::framer::{Contexts, Framer, WantedValue};
use trackway_jit::helper::Word;
use trackway_jit::interpret;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_schema::context::{VPID, VTID};
use trackway_schema::{Encoder, FieldViews, Label, Scalar, Shape};
use trackway_testkit::{TemporaryFolder, report_skipped};

/// The frame of these filters, like the output of `trackway filter header`.
const FRAME: &str = r#"
#include <trackway/filter.h>
struct app_read {
    trackway_string path;
    trackway_signed size;
    trackway_unsigned flags;
    trackway_sequence ids;
    trackway_float ratio;
    trackway_signed ctx_vtid;
};
#define TRACKWAY_NEEDS_app_read                                                                    \
    "string path\n" "signed size\n" "unsigned flags\n" "sequence ids\n" "float ratio\n"            \
    "signed $ctx.vtid\n"
"#;

fn include_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

fn has_program(program: &str) -> bool {
    let has = Command::new(program).arg("--version").output().is_ok();
    if !has {
        report_skipped(format!("{program} is not installed"));
    }
    has
}

/// Compiles a filter with clang, and returns the object file.
fn compile_c(source: &str, flags: &[&str]) -> Vec<u8> {
    let folder = TemporaryFolder::new();
    let (path, output) = (folder.join("filter.c"), folder.join("filter.o"));
    std::fs::write(&path, format!("{source}\n")).expect("written");
    let result = Command::new("clang")
        .args(["-O2", "-target", "bpf", "-fno-jump-tables", "-c"])
        .args(STRICT)
        .args(flags)
        .arg("-I")
        .args([&include_folder(), &path])
        .arg("-o")
        .arg(&output)
        .output()
        .expect("clang runs");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
    std::fs::read(&output).expect("an object")
}

fn compile_filter(body: &str) -> Vec<u8> {
    compile_c(&format!("{FRAME}{body}"), &[])
}

/// An event of `app:read`.
#[derive(Clone)]
struct Event {
    path: &'static str,
    size: i64,
    flags: u64,
    ids: Vec<u32>,
    ratio: f64,
    vtid: i64,
}

const fn new_event(path: &'static str, size: i64, flags: u64) -> Event {
    Event { path, size, flags, ids: Vec::new(), ratio: 0.0, vtid: 7 }
}

impl Event {
    /// Returns the slot value of the event for a need.
    fn slot(&self, path: &str, bytes: &mut Vec<u8>) -> u64 {
        let mut word = |more: &[u8], length: usize| {
            let offset = bytes.len() as u32;
            bytes.extend(more);
            Word { offset, length: length as u32, is_constant: false }.to_bits()
        };
        match path {
            "path" => word(self.path.as_bytes(), self.path.len()),
            "size" => self.size as u64,
            "flags" => self.flags,
            "ids" => {
                let ids: Vec<u8> = self.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                word(&ids, self.ids.len())
            }
            "ratio" => self.ratio.to_bits(),
            "$ctx.vtid" => self.vtid as u64,
            other => panic!("no field {other}"),
        }
    }
}

extern "C" fn unused_callback() -> u64 {
    0
}

fn verify_programs<'p>(alternative: &Alternative<'p>) -> Vec<Verified<'p>> {
    let programs = (0..).zip(alternative.programs()).map(|(number, program)| {
        let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
        verify(program, rules, &mut vec![State::FREE; program.len() + 1]).expect("verified")
    });
    programs.collect()
}

/// Returns the answers of an object's first alternative to these events, in order.
fn run_filter(file: &[u8], events: &[Event]) -> Vec<u64> {
    let bytes = elf::convert_to_object(file).unwrap_or_else(|error| panic!("{error}"));
    let object = Object::decode(&bytes).expect("an object");
    let alternative = object.alternatives().next().expect("an alternative");
    let programs = verify_programs(&alternative);
    let cells: Vec<Cell> = (0..object.cells()).map(|_| Cell::new(0)).collect();
    let environment =
        Environment::new(alternative.constants(), &cells, unused_callback, unused_callback);
    let answer = |event: &Event| {
        let mut bytes = Vec::new();
        let slots: Vec<u64> =
            alternative.needs().map(|need| event.slot(need.path, &mut bytes)).collect();
        let mut frame = Frame::new(&environment, &bytes);
        slots.iter().for_each(|&slot| assert!(frame.push(slot)));
        interpret::run(&programs, &frame).expect("verified").answer
    };
    events.iter().map(answer).collect()
}

/// Returns the error of a filter.
fn conversion_error(body: &str) -> String {
    elf::convert_to_object(&compile_filter(body)).expect_err("refused").to_string()
}

#[test]
fn strings_are_constants_and_patterns() {
    if !has_program("clang") {
        return;
    }
    let file = compile_filter(
        r#"TRACKWAY_FILTER(app_read, frame)
        {
            return trackway_string_matches(frame, frame->path,
                                           TRACKWAY_STRING("/etc/*\\*.conf")) ||
                (trackway_string_ends_with(frame, frame->path, TRACKWAY_STRING("/etc/passwd")) &&
                 TRACKWAY_LENGTH(frame->path) < 20) ||
                !trackway_string_compare(frame, TRACKWAY_STRING(""), frame->path);
        }"#,
    );
    let events = ["/etc/a*.conf", "/etc/a.conf", "/x/etc/passwd", "/0123456789/etc/passwd", ""];
    assert_eq!(run_filter(&file, &events.map(|path| new_event(path, 0, 0))), [1, 0, 1, 0, 1]);
}

#[test]
fn functions_are_called_and_given_to_any() {
    if !has_program("clang") {
        return;
    }
    // The functions are not in call order, and have several callers.
    let file = compile_filter(
        r#"TRACKWAY_FUNCTION trackway_signed third(const struct app_read *frame, int x)
        {
            trackway_unsigned hash = trackway_string_hash(frame, frame->path);
            return frame->size * x + (trackway_signed)(hash & 1);
        }
        TRACKWAY_FUNCTION trackway_signed second(const struct app_read *frame, int x)
        {
            return third(frame, x) - third(frame, x + 1);
        }
        TRACKWAY_FUNCTION trackway_unsigned is_size(const void *frame, trackway_unsigned element)
        {
            const struct app_read *read = frame;
            return (trackway_signed)element == read->size;
        }
        TRACKWAY_FILTER(app_read, frame)
        {
            if (trackway_any(frame, frame->ids, TRACKWAY_ELEMENT_U32, is_size))
                return 100;
            return (trackway_unsigned)(second(frame, 3) + third(frame, 5) + 1000);
        }"#,
    );
    let hash = |path: &str| {
        let fnv = path.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        (fnv & 1) as i64
    };
    let mut events = [new_event("a", 10, 0), new_event("b", 20, 0), new_event("c", 5, 0)];
    events[2].ids = vec![1, 5, 9];
    let plain = |size: i64, path| (size * 3 - size * 4 + size * 5 + hash(path) + 1000) as u64;
    assert_eq!(run_filter(&file, &events), [plain(10, "a"), plain(20, "b"), 100]);
}

#[test]
fn tail_calls_go_to_later_programs() {
    if !has_program("clang") {
        return;
    }
    let file = compile_filter(
        r#"TRACKWAY_FILTER(app_read, frame)
        {
            if (frame->size > 5)
                trackway_tail_call(frame, 2);
            return trackway_tail_call(frame, 1);
        }
        TRACKWAY_PROGRAM(app_read, 1, frame) { return frame->flags + 10; }
        TRACKWAY_PROGRAM(app_read, 2, frame)
        {
            /* Nothing goes back, or to what is not there. */
            return frame->flags + 20 + trackway_tail_call(frame, 1) + trackway_tail_call(frame, 3);
        }"#,
    );
    assert_eq!(run_filter(&file, &[new_event("", 1, 1), new_event("", 9, 2)]), [11, 22]);
}

#[test]
fn many_predicates_and_doubles() {
    if !has_program("clang") {
        return;
    }
    let source = r#"TRACKWAY_FILTER(app_read, frame)
        {
            trackway_signed s = frame->size;
            trackway_unsigned f = frame->flags;
            return s != 1 && s != 5 && s != 9 && s != 14 && s != 22 && s < 100 && s > -100 &&
                   (f & 1) && !(f & 4) && f != 33 && f != 77 && (f >> 8) < 3 &&
                   frame->ctx_vtid == 7 && (frame->flags % 10 != 9) &&
                   trackway_float_compare(frame, frame->ratio, TRACKWAY_FLOAT(0.5)) < 0;
        }"#;
    let expected = |event: &Event| {
        let (s, f) = (event.size, event.flags);
        let numbers = ![1, 5, 9, 14, 22].contains(&s) && s < 100 && s > -100;
        let bits = f & 1 != 0 && f & 4 == 0 && f != 33 && f != 77 && f >> 8 < 3 && f % 10 != 9;
        u64::from(numbers && bits && event.vtid == 7 && event.ratio < 0.5)
    };
    let file = compile_filter(source);
    let mut events = Vec::new();
    for size in [-101, -1, 0, 1, 5, 9, 10, 14, 22, 23, 99, 100] {
        for flags in [0, 1, 3, 5, 33, 19, 77, 0x101, 0x301] {
            events.push(new_event("", size, flags));
            events.push(Event { ratio: 0.5, ..new_event("", size, flags) });
            events.push(Event { vtid: 8, ..new_event("", size, flags) });
        }
    }
    let expected: Vec<u64> = events.iter().map(expected).collect();
    assert!(expected.contains(&0) && expected.contains(&1));
    assert_eq!(run_filter(&file, &events), expected);
}

/// For this filter, clang emits backward jumps although nothing loops.
#[test]
fn paths_that_end_in_the_same_are_no_loops() {
    if !has_program("clang") {
        return;
    }
    let file = compile_filter(
        "TRACKWAY_FUNCTION trackway_unsigned is_odd(const struct app_read *read, trackway_signed s)
        {
            return s != 3 && s != 7 && s != 22 && s != 35 && s != 36 && s != 41 && s != 43 &&
                s != 60 && s != 71 && s != 80 && s != 93 && (s & 1) && read->flags < 40;
        }
        TRACKWAY_FILTER(app_read, frame) { return is_odd(frame, frame->size); }",
    );
    let excluded = [3, 7, 22, 35, 36, 41, 43, 60, 71, 80, 93];
    let events: Vec<Event> =
        (-5..100).flat_map(|size| [39, 40].map(|flags| new_event("", size, flags))).collect();
    let expected = |event: &Event| {
        u64::from(!excluded.contains(&event.size) && event.size & 1 != 0 && event.flags < 40)
    };
    let expected: Vec<u64> = events.iter().map(expected).collect();
    assert_eq!(run_filter(&file, &events), expected);
}

#[test]
fn state_is_in_as_many_cells_as_are_named() {
    if !has_program("clang") {
        return;
    }
    let file = compile_filter(
        "TRACKWAY_FILTER(app_read, frame) {
            return trackway_count(frame, 2) % 2 == 0 &&
                trackway_changed(frame, 0, (trackway_unsigned)frame->size);
        }",
    );
    let object = elf::read_filters(&file).expect("filters").object;
    assert_eq!(object.cells, 3);
    let events = [1, 1, 1, 1, 2, 3, 3].map(|size| new_event("", size, 0));
    assert_eq!(run_filter(&file, &events), [1, 0, 0, 0, 1, 0, 1]);
}

#[test]
fn events_need_what_is_read_and_no_more() {
    if !has_program("clang") {
        return;
    }
    let needs = |body: &str| {
        let object = elf::read_filters(&compile_filter(body)).expect("filters").object;
        let needs = object.alternatives[0].needs.iter();
        needs.map(|need| need.path.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(needs("TRACKWAY_FILTER(app_read, frame) { return 1; }"), "");
    let two = "TRACKWAY_FILTER(app_read, frame) {
        return trackway_string_hash(frame, frame->path) == frame->flags;
    }";
    assert_eq!(needs(two), "path flags flags");
    // Fields that only another program reads are needs, too.
    let tail = "TRACKWAY_FILTER(app_read, frame) { return trackway_tail_call(frame, 1); }
        TRACKWAY_PROGRAM(app_read, 1, frame) { return frame->ctx_vtid > 3; }";
    assert_eq!(needs(tail), "$ctx.vtid $ctx.vtid $ctx.vtid $ctx.vtid $ctx.vtid $ctx.vtid");
}

#[test]
fn filters_of_one_file_are_alternatives() {
    if !has_program("clang") {
        return;
    }
    let file = compile_filter(
        r#"struct other { trackway_unsigned a; trackway_string b; };
        #define TRACKWAY_NEEDS_other "unsigned a\n" "string pos.b\n"
        TRACKWAY_FUNCTION trackway_unsigned shared(const void *frame, trackway_string text)
        {
            return trackway_string_contains(frame, text, TRACKWAY_STRING("x"));
        }
        TRACKWAY_FILTER(app_read, frame) { return shared(frame, frame->path); }
        TRACKWAY_FILTER(other, frame) { return shared(frame, frame->b) && frame->a; }"#,
    );
    let filters = elf::read_filters(&file).expect("filters");
    assert_eq!(filters.names, ["app_read", "other"]);
    let needs: Vec<_> = filters.object.alternatives.iter().map(|a| a.needs.len()).collect();
    assert_eq!(needs, [1, 2]);
    assert_eq!(run_filter(&file, &[new_event("yxz", 0, 0), new_event("yz", 0, 0)]), [1, 0]);
}

// Longer than 70 lines: a table.
#[test]
fn what_is_refused_is_said_with_its_place() {
    if !has_program("clang") {
        return;
    }
    for (body, expected) in [
        (
            "TRACKWAY_FILTER(app_read, frame) {
                trackway_unsigned n = 0;
                for (trackway_signed i = 0; i < frame->size; i++)
                    n += trackway_random(frame) & 1;
                return n;
            }",
            ["the jump does not go forward", "in trackway_filter_app_read: if r", "unroll(full)"],
        ),
        (
            "volatile int seen = 1;
            TRACKWAY_FILTER(app_read, frame) { return (unsigned)seen++; }",
            ["seen is a variable that can be written", "of section trackway/app_read", "cells"],
        ),
        (
            "int other(void);
            TRACKWAY_FILTER(app_read, frame) { return (unsigned)other(); }",
            ["other is not in the file", "instruction 0 of", "trackway_"],
        ),
        (
            "trackway_signed again(const struct app_read *frame, trackway_signed x);
            __attribute__((noinline)) trackway_signed again(
                const struct app_read *frame, trackway_signed x)
            { return x < 3 ? x : again(frame, x / 3) + again(frame, x / 2); }
            TRACKWAY_FILTER(app_read, frame) { return again(frame, frame->size) > 3; }",
            ["again calls itself", "in again: call", "section .text"],
        ),
        (
            "static const unsigned table[] = {3, 1, 4, 1, 5, 9};
            TRACKWAY_FILTER(app_read, frame) {
                return table[frame->flags % 6];
            }",
            ["r", "tables are not to be had", "-fno-jump-tables"],
        ),
        (
            "TRACKWAY_FILTER(app_read, frame) {
                return trackway_count(&frame->size, 0);
            }",
            ["a helper's r1 is the frame", "call count", "hint: a helper's first argument"],
        ),
        (
            "struct longer { trackway_signed a, b, c; };
            #define TRACKWAY_NEEDS_longer \"signed a\\n\" \"signed b\\n\"
            TRACKWAY_FILTER(longer, frame) { return frame->c > 3; }",
            ["it reads from byte 16 of the frame", "which has 2 slots", "trackway/longer"],
        ),
        (
            "struct bad { trackway_signed a; };
            #define TRACKWAY_NEEDS_bad \"int a\\n\"
            TRACKWAY_FILTER(bad, frame) { return frame->a > 3; }",
            ["section trackway_needs/bad", "\"int a\"", "KIND PATH"],
        ),
        (
            "TRACKWAY_FILTER(app_read, frame) { return 1; }
            TRACKWAY_PROGRAM(app_read, 2, frame) { return 1; }",
            ["trackway/app_read/1 is missing", "counted from 1", ""],
        ),
        (
            "TRACKWAY_PROGRAM(app_read, 1, frame) { return 1; }",
            ["there is no filter in it", "trackway/NAME", "TRACKWAY_FILTER(NAME, frame)"],
        ),
        (
            "static const char *const names[] = {\"a\", \"b\"};
            TRACKWAY_FILTER(app_read, frame) {
                return *(const char *const volatile *)&names[frame->flags & 1] != 0;
            }",
            ["section .rodata has addresses in it", "", ""],
        ),
    ] {
        let told = conversion_error(body);
        for part in expected {
            assert!(told.contains(part), "{part:?} is not in: {told}");
        }
    }
}

#[test]
fn lines_of_the_source_are_said_where_the_file_has_them() {
    if !has_program("clang") {
        return;
    }
    let source = format!(
        "{FRAME}TRACKWAY_FILTER(app_read, frame) {{\n    return *(&frame->size + 9);\n}}\n"
    );
    let line = source.lines().position(|line| line.contains("+ 9")).expect("a line") + 1;
    let error = elf::convert_to_object(&compile_c(&source, &["-g"])).expect_err("refused");
    let place = error.place.expect("a place");
    let source = place.source.expect("a line");
    assert_eq!(source, format!("filter.c:{line}: return *(&frame->size + 9);"));
}

#[test]
fn the_header_is_c_for_every_compiler() {
    let source = format!(
        "{FRAME}
        TRACKWAY_FUNCTION trackway_unsigned odd(const void *frame, trackway_unsigned element)
        {{
            return element & 1 && trackway_time_ns(frame);
        }}
        TRACKWAY_FILTER(app_read, frame)
        {{
            return trackway_any(frame, frame->ids, TRACKWAY_ELEMENT_U32, odd) ||
                   trackway_string_contains(frame, frame->path, TRACKWAY_STRING(\"x\")) ||
                   trackway_rate(frame, 0, 10, 1000000000);
        }}
        TRACKWAY_PROGRAM(app_read, 1, frame) {{ return 0; }}"
    );
    let folder = TemporaryFolder::new();
    let path = folder.join("filter.c");
    std::fs::write(&path, format!("{source}\n")).expect("written");
    let ways: [(&str, &[&str]); 4] = [
        ("gcc", &["-O2", "-Wconversion"]),
        ("gcc", &["-O0", "-std=c11"]),
        ("clang", &["-O0"]),
        ("clang", &["-O2", "-target", "bpf"]),
    ];
    for (compiler, flags) in ways {
        if !has_program(compiler) {
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(STRICT).args(flags).arg("-I").arg(include_folder());
        let output = command.arg("-c").arg(&path).arg("-o").arg(folder.join("filter.o")).output();
        let output = output.expect("it runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {flags:?}: {messages}");
    }
}

/// The framer of traced programs fills the frame of a filter in C, even if an unread need was
/// replaced by another one.
#[test]
fn traced_programs_can_fill_its_frames() {
    if !has_program("clang") {
        return;
    }
    let mut buffer = [0; 256];
    let mut encoder = Encoder::new(&mut buffer, b"other", b"event", 6).expect("room");
    for (name, shape, scalar) in [
        ("ids", Shape::Sequence, Some(Scalar::U32)),
        ("path", Shape::Str, None),
        ("flags", Shape::Scalar, Some(Scalar::U16)),
    ] {
        encoder.add_field(name.as_bytes(), shape, scalar, 0, 0).expect("room");
    }
    let fields = FieldViews::new(encoder.finish()).expect("a description");
    let file = compile_filter(
        "TRACKWAY_FUNCTION trackway_unsigned is_nine(const void *frame, trackway_unsigned id)
        {
            (void)frame;
            return id == 9;
        }
        TRACKWAY_FILTER(app_read, frame)
        {
            return frame->flags == 0x1234 &&
                trackway_string_ends_with(frame, frame->path, TRACKWAY_STRING(\"b\")) &&
                trackway_any(frame, frame->ids, TRACKWAY_ELEMENT_U32, is_nine);
        }",
    );
    let bytes = elf::convert_to_object(&file).unwrap_or_else(|error| panic!("{error}"));
    let object = Object::decode(&bytes).expect("an object");
    let alternative = object.alternatives().next().expect("an alternative");
    let needs: Vec<_> = alternative.needs().map(|need| need.path).collect();
    assert_eq!(needs, ["path", "flags", "flags", "ids"], "size is not read");
    let wanted =
        alternative.needs().map(|need| WantedValue { path: need.path.as_bytes(), kind: need.kind });
    let framer = Framer::new(&fields, wanted).expect("it has all that is read");
    let programs = verify_programs(&alternative);
    let environment =
        Environment::new(alternative.constants(), &[], unused_callback, unused_callback);
    let contexts = Contexts::NONE.with(VPID, 1).with(VTID, 1);
    for (ids, path, flags, expected) in [
        (&[1, 9][..], "ab", 0x1234_u16, 1),
        (&[], "ab", 0x1234, 0),
        (&[9], "ba", 0x1234, 0),
        (&[9], "b", 0x1233, 0),
    ] {
        let mut payload = (ids.len() as u32).to_le_bytes().to_vec();
        payload.extend(ids.iter().flat_map(|id: &u32| id.to_le_bytes()));
        payload.extend(path.bytes().chain([0]));
        payload.extend(flags.to_le_bytes());
        let mut frame = Frame::new(&environment, &payload);
        assert!(framer.fill(&mut frame, 0, &contexts));
        let outcome = interpret::run(&programs, &frame).expect("verified");
        assert_eq!(outcome.answer, expected, "{ids:?} {path} {flags:x}");
    }
}

/// Headers are valid C for any names and types of events and fields.
// Longer than 70 lines: a table of strange names.
#[test]
fn headers_of_strange_events_are_c() {
    let member = |name: &str, of: Type| Member { name: name.into(), of };
    let label = |name: &str, first, last| Label { name: name.into(), first, last };
    let labelled = |scalar: Scalar, labels: Vec<Label>| match scalar.into() {
        Type::Integer(integer) => Type::Integer(Integer { labels, ..integer }),
        other => other,
    };
    let most = labelled(
        Scalar::I64,
        vec![label("a", i64::MIN, i64::MIN), label("A", -5, i64::MAX), label("-", 0, 0)],
    );
    let inside = vec![member("x", Scalar::I8.into()), member("for", Type::String)];
    let fields = vec![
        member("int", Scalar::I8.into()),
        member("a b", Scalar::U64.into()),
        member("a-b", Type::String),
        member("\"??/*/ \\ é", Scalar::F32.into()),
        member("a.b", Scalar::U8.into()),
        member("line\nline", Scalar::U8.into()),
        member("state", most),
        member("bits", labelled(Scalar::U64, vec![label("all", -1, -1)])),
        member("p", Type::Structure(inside)),
        member("p_x", Type::Sequence(Box::new(labelled(Scalar::U8, vec![label("one", 1, 1)])))),
        member("xs", Type::Array(Box::new(Type::String), 3)),
        member("bools", Type::Array(Box::new(Scalar::Bool.into()), 3)),
        member("v", Type::Other("a variant")),
    ];
    let many = (0..70).map(|number| member(&format!("f{number}"), Scalar::U8.into())).collect();
    let layout = |event: &str, fields| Layout {
        event: event.into(),
        fields,
        contexts: Layout::program_contexts(),
        applications: vec![member("app:id", Scalar::U32.into())],
    };
    let layouts = [
        layout("my-app:*/read", fields),
        layout("my-app:**read", Vec::new()),
        layout("linux", many),
        Layout { event: "empty".into(), ..Layout::default() },
    ];
    let header = generate_header(&layouts);
    for part in [
        "    trackway_signed int_; /* int */\n",
        "    trackway_string a_b_2; /* a-b */\n",
        "/* Not in it: v is a variant. */\n",
        "/* Not in it: a.b has a name that is no path. */\n",
        "#define TRACKWAY_NEEDS_my_app___read_2 ",
        "_STATE_A (-9223372036854775807LL - 1)\n",
        "_STATE_A_FIRST (-5LL)\n",
        "_BITS_ALL 18446744073709551615ULL\n",
        "_P_X_2_ELEMENT TRACKWAY_ELEMENT_U8\n",
        "struct linux_ {\n",
        "    trackway_unsigned f63;\n};\n/* Not in it: f64 is one more than 64. */\n",
    ] {
        assert!(header.contains(part), "{part:?} is not in\n{header}");
    }
    let names = header.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"));
    let filters: String = names
        .map(|name| {
            format!(
                "TRACKWAY_FILTER({name}, frame)\n\
                 {{ return *(const trackway_unsigned *)frame; }}\n"
            )
        })
        .collect();
    let folder = TemporaryFolder::new();
    std::fs::write(folder.join("events.h"), &header).expect("written");
    let path = folder.join("filter.c");
    std::fs::write(&path, format!("#include \"events.h\"\n{filters}")).expect("written");
    for (compiler, flags) in [("gcc", &["-O2"][..]), ("clang", &["-O2", "-target", "bpf"])] {
        if !has_program(compiler) {
            continue;
        }
        let mut command = Command::new(compiler);
        command.args(STRICT).args(flags).arg("-I").arg(include_folder());
        let output = command.arg("-c").arg(&path).arg("-o").arg(folder.join("filter.o")).output();
        let output = output.expect("it runs");
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {messages}\n{header}");
    }
    if !has_program("clang") {
        return;
    }
    let file = std::fs::read(folder.join("filter.o")).expect("an object");
    let error = elf::convert_to_object(&file).expect_err("the empty event has no slot").to_string();
    assert!(error.contains("trackway/empty") && error.contains("0 slots"), "{error}");
}

#[test]
fn what_is_no_such_file_is_refused() {
    for bytes in [&b""[..], b"\x7fELF", b"int main(void);", &[0xff; 200]] {
        let error = elf::convert_to_object(bytes).expect_err("refused").to_string();
        assert!(error.contains("no object file for BPF"), "{error}");
    }
    let long = vec![0; elf::FILE_BYTES_MAX + 1];
    let error = elf::convert_to_object(&long).expect_err("refused").to_string();
    assert!(error.contains("longer than"), "{error}");
}
