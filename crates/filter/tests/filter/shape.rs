//! Tests promises about the emitted instructions: about as many as clang emits for the same test in
//! C, and no repeated work.

use trackway_filter::compile::compile;
use trackway_filter::explain::format_listing;
use trackway_jit::helper::Helper;
use trackway_jit::insn::{CALL, EXIT, Insn, LDDW, class, mode, size};

use super::event::Event;
use super::runner::check_program;

const LOAD: u8 = class::LDX | size::DW | mode::MEM;
const LOAD_HALF: u8 = class::LDX | size::W | mode::MEM;

fn sample_event() -> Event {
    let mut event = Event::default();
    for n in 0..9 {
        event.add("field", &format!("a{n} i64 = 1"));
    }
    for n in 0..9 {
        event.add("field", &format!("d{n} u32 = 1"));
    }
    event.add("field", "s string = \"x\"");
    event.add("field", "r string = \"x\"");
    event.add("field", "f f64 = 1");
    event.add("field", "xs sequence u32 = 1");
    event
}

fn compile_program(text: &str) -> Vec<Insn> {
    let compiled =
        compile(text, &sample_event().layout).unwrap_or_else(|e| panic!("{}", e.render(text)));
    let program = compiled.alternative.programs[0].clone();
    check_program(&program);
    program
}

/// Returns the instructions as text, without numbers and bytes.
fn instruction_texts(text: &str) -> Vec<String> {
    let compiled = compile(text, &sample_event().layout).expect(text);
    let listing = format_listing(&compiled.alternative);
    listing.lines().map(|line| line[31..].split("   ").next().unwrap_or("").into()).collect()
}

fn count_op(program: &[Insn], op: u8) -> usize {
    program.iter().filter(|insn| insn.op == op).count()
}

fn count_calls(program: &[Insn], helper: Helper) -> usize {
    program.iter().filter(|insn| insn.op == CALL && insn.immediate == helper as i32).count()
}

#[test]
fn nine_predicates_are_loads_and_jumps() {
    let text: Vec<String> = (0..9).map(|n| format!("a{n} == {n}")).collect();
    let program = compile_program(&text.join(" && "));
    // A load and a jump for each test; the answer "no" before them, "yes" after them, one exit.
    // clang 14 (-O2 -target bpf -mcpu=v3) emits 22 instructions for the same filter, with one `&`.
    assert_eq!(program.len(), 2 * 9 + 3);
    assert_eq!(count_op(&program, LOAD), 9);
    assert_eq!(count_op(&program, EXIT), 1);
    let end = program.len() - 1;
    for at in (2..end - 1).step_by(2) {
        assert_eq!(at + 1 + program[at].offset as usize, end, "each jumps to the end");
    }
}

#[test]
fn either_is_an_edge() {
    assert_eq!(
        instruction_texts("(a0 == 1 || a1 > 2) && a2 < 3"),
        [
            "r0 = 0",
            "r2 = *(u64 *)(r1 +0)",
            "if r2 == 1 goto 5",
            "r2 = *(u64 *)(r1 +8)",
            "if r2 s<= 2 goto 8",
            "r2 = *(u64 *)(r1 +16)",
            "if r2 s>= 3 goto 8",
            "r0 = 1",
            "exit",
        ]
    );
}

#[test]
fn bits_are_asked_without_being_worked_out() {
    let program = instruction_texts("a0 & 4 || a1 == 1");
    assert_eq!(program[2], "if r2 & 4 goto 5");
}

#[test]
fn fields_are_loaded_once_along_a_way() {
    for (text, loads) in [
        ("a0 > 1 && a0 < 9 && a0 != 5", 1),
        ("(a0 == 1 || a1 == 2) && a0 < 5", 2),
        ("a0 in (1, 5..9, 20) && a0 + a1 > 3", 2),
        ("(a0 > 1 && a1 > 1 || a1 > 7 && a0 > 7) && a0 + a1 > 3", 3),
    ] {
        let program = compile_program(text);
        assert_eq!(count_op(&program, LOAD), loads, "{text}");
    }
    // For a string, the filter loads the length and the offset.
    let halves = compile_program("s == \"abc\" && a0 == 1 && s != \"abx\"");
    assert_eq!((count_op(&halves, LOAD), count_op(&halves, LOAD_HALF)), (1, 2));
}

#[test]
fn expressions_are_worked_out_once_along_a_way() {
    let divided = compile_program("a0 / a1 > 3 && a0 / a1 < 9 && (a0 / a1) % 2 == 1");
    let div = class::ALU64 | trackway_jit::insn::alu::DIV | trackway_jit::insn::source::X;
    assert_eq!(count_op(&divided, div), 1);
    let program = compile_program("contains(s, \"x\") && a0 == 1 || contains(s, \"x\") && a1 == 1");
    assert_eq!(count_calls(&program, Helper::StringContains), 1);
}

#[test]
fn questions_are_asked_once_along_a_way() {
    assert_eq!(instruction_texts("a0 == 1 && a0 == 1 && a0 != 2"), instruction_texts("a0 == 1"));
    // Impossible conditions are not tested.
    let expected = ["r0 = 0", "r2 = *(u64 *)(r1 +8)", "if r2 s<= 1 goto 4", "r0 = 1", "exit"];
    assert_eq!(instruction_texts("a0 > 1 && !(a0 > 1) || a1 > 1"), expected);
}

#[test]
fn constants_leave_nothing_behind() {
    assert_eq!(instruction_texts("1 == 1 || a0 == 1"), ["r0 = 1", "exit"]);
    assert_eq!(instruction_texts("a0 * 0 == 1"), ["r0 = 0", "exit"]);
    assert_eq!(instruction_texts("d0 >= 0"), ["r0 = 1", "exit"]);
    assert_eq!(instruction_texts("(a0 + 3) * 1 + 4 == 9"), instruction_texts("a0 == 2"));
    assert_eq!(instruction_texts("d0 / 8 == 1"), instruction_texts("d0 >> 3 == 1"));
    assert_eq!(instruction_texts("any(xs > 3) && false"), ["r0 = 0", "exit"]);
}

#[test]
fn what_remembers_is_neither_folded_nor_joined() {
    let program = compile_program("count() * 0 == 0 && count() + count() > 0 && (count() || true)");
    assert_eq!(count_calls(&program, Helper::Count), 4);
}

#[test]
fn strings_of_other_lengths_are_not_compared() {
    let program = instruction_texts("s == \"abc\"");
    assert_eq!(
        program[..5],
        [
            "r2 = *(u32 *)(r1 +4)",
            "if r2 != 3 goto 9",
            "r2 = *(u32 *)(r1 +0)",
            "r3 = 25185",
            "r4 = 25442",
        ]
    );
    let asked = count_calls(&self::compile_program("s == \"abc\""), Helper::BytesDiffer3);
    assert_eq!(asked, 1, "the first two bytes, and the last two");
    assert_eq!(instruction_texts("s == \"\"").len(), 5, "the length is all that there is to ask");
}

#[test]
fn strings_up_to_sixteen_bytes_are_two_numbers() {
    for (length, helper) in [
        (1, Helper::BytesDiffer1),
        (2, Helper::BytesDiffer2),
        (3, Helper::BytesDiffer3),
        (4, Helper::BytesDiffer4),
        (7, Helper::BytesDiffer7),
        (8, Helper::BytesDiffer8),
        (16, Helper::BytesDiffer16),
    ] {
        let text = "abcdefghijklmnopq".get(..length).expect("ASCII");
        for filter in [
            format!("s == \"{text}\""),
            format!("\"{text}\" != s"),
            format!("starts_with(s, \"{text}\")"),
            format!("s == \"*{text}\""),
        ] {
            let program = compile_program(&filter);
            let all = program.iter().filter(|insn| insn.op == CALL).count();
            assert_eq!((count_calls(&program, helper), all), (1, 1), "{filter}");
        }
    }
    // Up to twice that many bytes, two comparisons cover everything; longer strings need a call.
    for (length, compared) in [(17, 0), (32, 0), (33, 1)] {
        let program = compile_program(&format!("s == \"{}\"", "x".repeat(length)));
        assert_eq!(count_calls(&program, Helper::BytesDiffer16), 2);
        assert_eq!(count_calls(&program, Helper::StringCompare), compared);
    }
}

#[test]
fn patterns_are_the_simplest_questions() {
    for (text, helper) in [
        ("s == \"a*\"", Helper::BytesDiffer1),
        ("s == \"*a\"", Helper::BytesDiffer1),
        ("starts_with(s, r)", Helper::StringStartsWith),
        ("ends_with(s, r) + 1 == 2", Helper::StringEndsWith),
        ("s == \"*a*\"", Helper::StringContains),
        ("s == \"a*b\"", Helper::StringMatches),
    ] {
        assert_eq!(count_calls(&compile_program(text), helper), 1, "{text}");
    }
    assert_eq!(instruction_texts("s == \"*\""), ["r0 = 1", "exit"]);
}

#[test]
fn many_small_numbers_are_a_set_of_bits() {
    let program = compile_program("a0 in (1, 3, 5, 7, 9, 11, 13, 15, 17, 19)");
    assert!(program.len() <= 10, "{}", program.len());
    assert_eq!(count_op(&program, LDDW), 0);
}

#[test]
fn many_values_at_a_time_are_kept_somewhere() {
    // More values than registers live across calls: each value is used twice.
    let sum = |names: &[&str]| names.join(" + ");
    let names = ["a0 / a1", "a1 / a2", "a2 / a3", "a3 / a4", "a4 / a5", "a5 / a6", "a6 / a7"];
    let text =
        format!("{} > f && {} < 100", sum(&names), names.map(|n| format!("({n})")).join(" ^ "));
    let text = format!(
        "({} == f) + ({}) < 3",
        names[0],
        names.map(|n| format!("({n} * (f > 1))")).join(" - ")
    ) + " && "
        + &text;
    let store = class::STX | size::DW | mode::MEM;
    assert!(count_op(&compile_program(&text), store) > 0, "some of them are on the stack");
}
