//! Tests helpers in interpreter and machine code: the results that 0008-filters.md describes, also
//! for invalid arguments.

mod common;

use common::asm::{
    EXIT_INSN, alu_immediate, call_function, call_helper, jump_if, load_function_address,
    load_immediate_64, load_memory, mov_immediate, mov_register, store_register,
};
use common::{Input, encode_insns, run_both, verify_and_run, verify_program};
use trackway_jit::ELEMENTS_MAX;
use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{Insn, alu, jump, size};
use trackway_jit::verify::{Rules, Verified};

/// Returns a helper's result for these arguments.
#[track_caller]
fn answer_of(helper: Helper, arguments: &[u64], input: &Input) -> u64 {
    assert_eq!(arguments.len() + 1, helper.arguments());
    let mut insns = Vec::new();
    for (register, &argument) in (2..).zip(arguments) {
        insns.extend(load_immediate_64(register, argument));
    }
    insns.extend([call_helper(helper), EXIT_INSN]);
    verify_and_run(&insns, input)
}

/// Creates an input with a text in the bytes and a pattern in the constants; returns both words,
/// too.
fn input_with_texts(text: &str, pattern: &str) -> (Input, [u64; 2]) {
    let input = Input {
        bytes: [b"xx", text.as_bytes()].concat(),
        constants: [b"yyy", pattern.as_bytes()].concat(),
        ..Input::default()
    };
    let word = |offset, text: &str, is_constant| {
        Word { offset, length: text.len() as u32, is_constant }.to_bits()
    };
    (input, [word(2, text, false), word(3, pattern, true)])
}

#[track_caller]
fn call_text_helper(helper: Helper, text: &str, pattern: &str) -> i64 {
    let (input, words) = input_with_texts(text, pattern);
    answer_of(helper, &words, &input) as i64
}

#[test]
fn strings_are_compared() {
    assert_eq!(call_text_helper(Helper::StringCompare, "a", "b"), -1);
    assert_eq!(call_text_helper(Helper::StringCompare, "é", "e"), 1);
    assert_eq!(call_text_helper(Helper::StringCompare, "same", "same"), 0);
    assert_eq!(call_text_helper(Helper::StringCompare, "", ""), 0);
    assert_eq!(call_text_helper(Helper::StringStartsWith, "/api/users", "/api"), 1);
    assert_eq!(call_text_helper(Helper::StringStartsWith, "/api", "/api/users"), 0);
    assert_eq!(call_text_helper(Helper::StringEndsWith, "index.html", ".html"), 1);
    assert_eq!(call_text_helper(Helper::StringEndsWith, "index.htm", ".html"), 0);
    assert_eq!(call_text_helper(Helper::StringContains, "index.html", "x.h"), 1);
    assert_eq!(call_text_helper(Helper::StringContains, "index.html", "xh"), 0);
    assert_eq!(call_text_helper(Helper::StringContains, "", ""), 1);
}

#[test]
fn strings_match_patterns() {
    for (string, pattern, matches) in [
        ("/api/users/1", "/api/*", 1),
        ("/api", "/api/*", 0),
        ("abc", "a*c", 1),
        ("abcd", "a*c", 0),
        ("abcbc", "a*bc", 1),
        ("", "*", 1),
        ("", "", 1),
        ("a", "", 0),
        ("a*c", r"a\*c", 1),
        ("abc", r"a\*c", 0),
        ("aXbXc", "a*b*c", 1),
        ("ab", "a*ab", 0),
    ] {
        assert_eq!(
            call_text_helper(Helper::StringMatches, string, pattern),
            matches,
            "{string} {pattern}"
        );
    }
    // A pattern that is slow in backtracking matchers takes negligible time here.
    let pattern = "*a".repeat(60) + "*b";
    assert_eq!(call_text_helper(Helper::StringMatches, &"a".repeat(4000), &pattern), 0);
}

#[test]
fn strings_have_a_hash() {
    let (input, [word, _]) = input_with_texts("foobar", "");
    assert_eq!(answer_of(Helper::StringHash, &[word], &input), 0x8594_4171_f739_67e8);
}

/// Words outside their bytes are empty strings, and nothing beyond is read: the bytes end at a
/// guard page.
#[test]
fn words_without_sense_are_empty() {
    let empty = 0xcbf2_9ce4_8422_2325;
    for is_constant in [false, true] {
        let (input, _) = input_with_texts("foo", "bar");
        let input = Input { constants: input.bytes.clone(), ..input };
        let hash = |offset, length| {
            let word = Word { offset, length, is_constant }.to_bits();
            answer_of(Helper::StringHash, &[word], &input)
        };
        let all = hash(0, 5);
        assert_ne!(all, empty);
        assert_ne!(hash(4, 1), empty);
        for (offset, length) in [
            (0, 6),
            (5, 1),
            (6, 0),
            (5, 0),
            (1, 5),
            (0, u32::MAX),
            (0x7fff_ffff, u32::MAX),
            (0x7fff_ffff, 0),
        ] {
            assert_eq!(hash(offset, length), empty, "{offset} {length}");
        }
    }
}

/// Comparisons of string ends, which machine code inlines: all sizes, lengths around the minimum, a
/// difference in each byte, and invalid words.
#[test]
fn edges_are_compared_where_the_string_is() {
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    for (helper, size) in [
        (Helper::StringEdges8, 8),
        (Helper::StringEdges4, 4),
        (Helper::StringEdges2, 2),
        (Helper::StringEdges1, 1),
    ] {
        assert_eq!(helper.edge_bytes(), Some(size as u8));
        for length in [0_usize, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 40] {
            let text: Vec<u8> = (0..length).map(|at| 0x80 + 3 * at as u8).collect();
            let input = Input { bytes: [b"xx", &text[..]].concat(), ..Input::default() };
            let word = Word { offset: 2, length: length as u32, is_constant: false }.to_bits();
            let (Some(first), Some(last)) =
                (text.get(..size), text.get(length.wrapping_sub(size)..))
            else {
                assert_eq!(answer_of(helper, &[word, 0, 0], &input), 0);
                continue;
            };
            let (first, last) = (number(first), number(last));
            assert_eq!(answer_of(helper, &[word, first, last], &input), 1, "{size} of {length}");
            for bit in (0..8 * size).step_by(5) {
                assert_eq!(answer_of(helper, &[word, first ^ 1 << bit, last], &input), 0);
                assert_eq!(answer_of(helper, &[word, first, last ^ 1 << bit], &input), 0);
            }
            if size < 8 {
                // The comparison ignores bits above the compared bytes.
                let above = u64::MAX << (8 * size);
                assert_eq!(answer_of(helper, &[word, first | above, last | above], &input), 1);
            }
        }
    }
}

#[test]
fn edges_of_words_without_sense_are_no_edges() {
    for helper in Helper::ALL.iter().copied().filter(|helper| helper.edge_bytes().is_some()) {
        let input = Input { bytes: vec![0; 16], constants: vec![0; 16], ..Input::default() };
        let answer_of = |offset, length, is_constant| {
            let word = Word { offset, length, is_constant }.to_bits();
            answer_of(helper, &[word, 0, 0], &input)
        };
        assert_eq!(answer_of(0, 16, false), 1);
        assert_eq!(answer_of(8, 8, false), 1);
        for (offset, length, is_constant) in [
            (0, 17, false),
            (9, 8, false),
            (16, 1, false),
            (17, 0, false),
            (0, u32::MAX, false),
            (0x7fff_ffff, u32::MAX, false),
            // Words of constants never match.
            (0, 16, true),
            (0, 8, true),
            (0x7fff_ffff, u32::MAX, true),
        ] {
            assert_eq!(
                answer_of(offset, length, is_constant),
                0,
                "{offset} {length} {is_constant}"
            );
        }
    }
}

/// Comparisons of bytes with numbers, which machine code inlines: all lengths, and a difference in
/// each byte. The result is the differing bits.
#[test]
fn bytes_are_compared_where_they_are() {
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
    let compare: Vec<Helper> =
        Helper::ALL.iter().copied().filter(|helper| helper.compared_bytes().is_some()).collect();
    assert_eq!(compare.len(), 16);
    for (helper, count) in compare.into_iter().zip(1_usize..) {
        assert_eq!(helper.compared_bytes(), Some(count as u8));
        let (begin, end) = Helper::number_bytes(count as u8);
        let (begin, end) = (usize::from(begin), usize::from(end));
        assert!(begin + end >= count && begin <= count && end <= count, "{count}");
        let text: Vec<u8> = (0..count).map(|at| 0x80 + 3 * at as u8).collect();
        let numbers = |text: &[u8]| (number(&text[..begin]), number(&text[count - end..]));
        let (first, last) = numbers(&text);
        for before in [0, 2] {
            let bytes = [&[b'x'; 2][..before], &text, &b"yy"[..2 - before]].concat();
            let input = Input { bytes, ..Input::default() };
            // Some of these helpers take no second number.
            let ask_at = |offset, first, last| {
                answer_of(helper, &[offset, first, last][..helper.arguments() - 1], &input)
            };
            let ask = |first, last| ask_at(before as u64, first, last);
            assert_eq!(ask(first, last), 0, "{count}");
            for bit in 0..8 * count {
                let mut other = text.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                let (other_first, other_last) = numbers(&other);
                let expected = (first ^ other_first) | (last ^ other_last);
                assert_ne!(expected, 0);
                assert_eq!(ask(other_first, other_last), expected, "{count}, bit {bit}");
            }
            // The comparison ignores bits above the numbers' bytes, and above an offset's 32 bits.
            let above = |size: usize| u64::MAX.checked_shl(8 * size as u32).unwrap_or(0);
            assert_eq!(ask(first | above(begin), last | above(end)), 0, "{count}");
            assert_eq!(ask_at(before as u64 | 7 << 32, first, last), 0, "{count}");
        }
    }
}

#[test]
fn bytes_that_are_not_there_differ() {
    for count in 1..=16_u64 {
        let helper = Helper::from_number(25 + count as i32).expect("a helper");
        let ask = |offset, input: &Input| {
            answer_of(helper, &[offset, 0, 0][..helper.arguments() - 1], input)
        };
        let input = Input { bytes: vec![0; 16], constants: vec![0; 16], ..Input::default() };
        assert_eq!(ask(16 - count, &input), 0);
        // Offsets beyond the end, around zero, and of constants.
        for offset in [17 - count, 16, u64::from(u32::MAX), u64::MAX, 1 << 31, -16_i64 as u64] {
            let end = u64::from(offset as u32) + count;
            assert_eq!(ask(offset, &input), end, "{count} at {offset:#x}");
        }
        assert_eq!(ask(0, &Input::default()), count, "of no bytes");
    }
}

fn word_of_length(length: u32) -> u64 {
    Word { offset: 0, length, is_constant: false }.to_bits()
}

#[test]
fn elements_are_read_by_index() {
    let bytes: Vec<u8> = [1_i16, -2, 300].iter().flat_map(|number| number.to_le_bytes()).collect();
    let input = Input { bytes, ..Input::default() };
    let element = |scalar, length, index| {
        answer_of(Helper::Element, &[word_of_length(length), scalar, index], &input)
    };
    assert_eq!(element(2, 3, 0), 1);
    assert_eq!(element(2, 3, 1), -2_i64 as u64);
    assert_eq!(element(6, 3, 1), 0xfffe);
    assert_eq!(element(2, 3, 2), 300);
    assert_eq!(element(1, 6, 2), -2_i64 as u64);
    // Indices beyond the end; incomplete sequences; invalid scalars.
    for (scalar, length, index) in
        [(2, 3, 3), (2, 2, 2), (2, 4, 0), (4, 3, 0), (0, 3, 0), (16, 3, 0), (2, 3, u64::MAX)]
    {
        assert_eq!(element(scalar, length, index), 0, "{scalar} {length} {index}");
    }
}

#[test]
fn all_elements_are_added_and_compared() {
    let of = |helper, scalar, bytes: &[u8], length| {
        let input = Input { bytes: bytes.to_vec(), ..Input::default() };
        answer_of(helper, &[word_of_length(length), scalar], &input)
    };
    let bytes = [3, 0xff, 5];
    let negative = |number: i64| number.cast_unsigned();
    for (scalar, sum, least, greatest) in [(1, 7, negative(-1), 5), (5, 263, 3, 255), (15, 3, 1, 1)]
    {
        assert_eq!(of(Helper::Sum, scalar, &bytes, 3), sum, "{scalar}");
        assert_eq!(of(Helper::Least, scalar, &bytes, 3), least, "{scalar}");
        assert_eq!(of(Helper::Greatest, scalar, &bytes, 3), greatest, "{scalar}");
    }
    let wide: Vec<u8> = [1, u64::MAX, 2].iter().flat_map(|one| one.to_le_bytes()).collect();
    for (scalar, least, greatest) in [(4, u64::MAX, 2), (8, 1, u64::MAX), (12, 1, u64::MAX)] {
        assert_eq!(of(Helper::Sum, scalar, &wide, 3), 2, "{scalar}");
        assert_eq!(of(Helper::Least, scalar, &wide, 3), least, "{scalar}");
        assert_eq!(of(Helper::Greatest, scalar, &wide, 3), greatest, "{scalar}");
    }
    let many = vec![1; ELEMENTS_MAX + 10];
    assert_eq!(of(Helper::Sum, 5, &many, many.len() as u32), ELEMENTS_MAX as u64);
    // Empty and incomplete sequences; floats; invalid scalars.
    for (scalar, length) in [(5, 0), (5, 4), (13, 1), (14, 1), (0, 3), (16, 3)] {
        for helper in [Helper::Sum, Helper::Least, Helper::Greatest] {
            assert_eq!(of(helper, scalar, &wide[..3], length), 0, "{helper:?} {scalar} {length}");
        }
    }
}

/// Returns a program that counts elements below 10 in cell 0 until an element is at least 10.
fn any_at_least_10() -> Vec<Insn> {
    let mut insns = vec![load_memory(size::DW, 2, 1, 0), mov_immediate(3, 5)];
    insns.extend(load_function_address(4, 3));
    insns.extend([call_helper(Helper::Any), EXIT_INSN]);
    insns.extend([
        mov_immediate(0, 1),
        jump_if(jump::JGE, 2, 10, 3),
        mov_immediate(2, 0),
        call_helper(Helper::Count),
        mov_immediate(0, 0),
        EXIT_INSN,
    ]);
    insns
}

#[test]
fn any_goes_through_elements_until_one_is_it() {
    let program = encode_insns(&any_at_least_10());
    let verified = verify_program(&program, Rules::new(1)).expect("accepted");
    let run = |bytes: Vec<u8>, length: u32| {
        let input = Input {
            slots: vec![word_of_length(length)],
            bytes,
            cells: vec![0],
            ..Input::default()
        };
        let effect = run_both(&[verified], &input);
        (effect.answer, effect.cells[0])
    };
    assert_eq!(run(vec![1, 2, 3], 3), (0, 3));
    assert_eq!(run(vec![1, 20, 3], 3), (1, 1));
    assert_eq!(run(vec![1, 2, 20], 2), (0, 2));
    assert_eq!(run(vec![], 0), (0, 0));
    assert_eq!(run(vec![1, 2, 3], 4), (0, 0), "a sequence that is not all there");
    let most = ELEMENTS_MAX as u64;
    assert_eq!(run(vec![1; ELEMENTS_MAX + 10], most as u32 + 10), (0, most), "no more than that");
}

/// Functions called by a helper, with and without a stack, preserve the helper's registers, and run
/// with an aligned stack.
#[test]
fn calls_keep_what_belongs_to_callers() {
    let mut insns =
        vec![mov_immediate(6, 1), mov_immediate(7, 2), mov_register(8, 1), mov_immediate(9, 4)];
    insns.push(store_register(size::DW, 10, -8, 9));
    insns.extend([load_memory(size::DW, 2, 1, 0), mov_immediate(3, 5)]);
    insns.extend(load_function_address(4, 11));
    insns.push(call_helper(Helper::Any));
    let sum =
        [(7, 0), (9, 0)].map(|(register, _)| common::asm::alu_register(alu::ADD, 6, register));
    insns.extend(sum);
    insns.extend([
        load_memory(size::DW, 0, 10, -8),
        load_memory(size::DW, 8, 8, 0),
        mov_register(1, 0),
    ]);
    insns.extend([
        common::asm::alu_register(alu::ADD, 0, 6),
        alu_immediate(alu::ADD, 0, 100),
        mov_immediate(1, 0),
        EXIT_INSN,
    ]);
    let start = insns.len();
    // The callback changes all registers, and calls another function that does so, too.
    insns.extend([
        mov_immediate(6, 60),
        mov_immediate(7, 70),
        mov_immediate(8, 80),
        mov_immediate(9, 90),
        mov_register(2, 1),
        mov_immediate(3, 0),
    ]);
    insns.extend([call_function(2), mov_immediate(0, 0), EXIT_INSN]);
    insns.extend([
        mov_immediate(6, 0),
        store_register(size::DW, 10, -24, 6),
        mov_immediate(7, 0),
        mov_immediate(0, 0),
        EXIT_INSN,
    ]);
    let at = insns.iter().position(|insn| insn.op == 0x18).expect("a load of a function");
    insns[at].immediate = (start - at - 1) as i32;
    let input = Input { slots: vec![word_of_length(3)], bytes: vec![1, 2, 3], ..Input::default() };
    assert_eq!(verify_and_run(&insns, &input), 4 + 7 + 100);
}

#[test]
fn floats_are_numbers_of_64_bits() {
    let input = Input::default();
    let f = f64::to_bits;
    let ask = |helper, a: f64, b: f64| answer_of(helper, &[f(a), f(b)], &input);
    assert_eq!(ask(Helper::FloatCompare, 1.0, 2.0) as i64, -1);
    assert_eq!(ask(Helper::FloatCompare, 2.0, 1.0), 1);
    assert_eq!(ask(Helper::FloatCompare, 0.0, -0.0), 0);
    assert_eq!(ask(Helper::FloatCompare, f64::NAN, 1.0), 2);
    assert_eq!(ask(Helper::FloatAdd, 1.5, 2.0), f(3.5));
    assert_eq!(ask(Helper::FloatSubtract, 1.5, 2.0), f(-0.5));
    assert_eq!(ask(Helper::FloatMultiply, 1.5, 2.0), f(3.0));
    assert_eq!(ask(Helper::FloatDivide, 1.0, 0.0), f(f64::INFINITY));
    let minus = -3_i64 as u64;
    assert_eq!(answer_of(Helper::FloatFromSigned, &[minus], &input), f(-3.0));
    assert_eq!(answer_of(Helper::FloatFromUnsigned, &[u64::MAX], &input), f(u64::MAX as f64));
}

#[test]
fn time_and_dice_are_asked_for() {
    let input = Input::default();
    assert_eq!(answer_of(Helper::TimeNs, &[], &input), 1_000_007);
    let twice = [
        mov_register(6, 1),
        call_helper(Helper::Random),
        mov_register(7, 0),
        mov_register(1, 6),
        call_helper(Helper::Random),
    ];
    let differ = [common::asm::alu_register(alu::XOR, 0, 7), EXIT_INSN];
    assert_ne!(verify_and_run(&[&twice[..], &differ].concat(), &input), 0);
}

/// Calls a stateful helper three times; the answers are hex digits, the last one lowest.
fn call_three_times(helper: Helper, arguments: [&[i32]; 3], cells: usize) -> u64 {
    let mut insns = vec![mov_register(6, 1), mov_immediate(7, 0)];
    for arguments in arguments {
        insns.push(mov_register(1, 6));
        insns.extend(
            (2..).zip(arguments).map(|(register, &argument)| mov_immediate(register, argument)),
        );
        insns.extend([call_helper(helper), alu_immediate(alu::LSH, 7, 4)]);
        insns.push(common::asm::alu_register(alu::OR, 7, 0));
    }
    insns.extend([mov_register(0, 7), EXIT_INSN]);
    verify_and_run(&insns, &Input { cells: vec![0; cells], ..Input::default() })
}

#[test]
fn state_is_kept_in_cells() {
    assert_eq!(call_three_times(Helper::Count, [&[0], &[1], &[0]], 2), 0x001);
    assert_eq!(
        call_three_times(Helper::Count, [&[2], &[-1], &[64]], 2),
        0,
        "cells that there are not"
    );
    assert_eq!(call_three_times(Helper::Changed, [&[0, 0], &[0, 0], &[0, 5]], 1), 0x101);
    assert_eq!(call_three_times(Helper::Changed, [&[1, 0], &[1, 1], &[1, 2]], 1), 0);
    // The clock advances by 7 ns at each call, from 1,000,007.
    assert_eq!(call_three_times(Helper::Rate, [&[0, 2, 1000]; 3], 1), 0x110);
    assert_eq!(call_three_times(Helper::Rate, [&[0, 1, 7]; 3], 1), 0x111);
    assert_eq!(call_three_times(Helper::Rate, [&[0, 0, 7]; 3], 1), 0);
    assert_eq!(call_three_times(Helper::Rate, [&[1, 9, 7]; 3], 1), 0);
}

/// Runs an alternative's first program; the programs are in order of their numbers.
fn run_alternative(programs: &[Vec<u8>], slots: &[u64]) -> u64 {
    let verified: Vec<Verified<'_>> = programs
        .iter()
        .zip(0..)
        .map(|(bytes, number)| {
            verify_program(bytes, Rules { number, ..Rules::new(slots.len()) }).expect("accepted")
        })
        .collect();
    run_both(&verified, &Input::of_slots(slots)).answer
}

#[test]
fn tail_calls_go_to_later_programs_and_do_not_come_back() {
    // Returns 100 plus the helper's result if the tail call fails.
    let calls = encode_insns(&[
        mov_immediate(6, 1),
        mov_immediate(7, 2),
        store_register(size::DW, 10, -8, 7),
        load_memory(size::DW, 2, 1, 0),
        call_helper(Helper::TailCall),
        alu_immediate(alu::ADD, 0, 100),
        EXIT_INSN,
    ]);
    let fifty = encode_insns(&[
        mov_immediate(8, 7),
        load_memory(size::DW, 0, 1, 0),
        alu_immediate(alu::ADD, 0, 50),
        EXIT_INSN,
    ]);
    let programs = [calls.clone(), calls, fifty];
    assert_eq!(run_alternative(&programs, &[2]), 52, "to the last");
    assert_eq!(run_alternative(&programs, &[1]), 100, "to the second, which cannot go to itself");
    for nowhere in [0, 3, 255, 256, 1 << 32, u64::MAX] {
        assert_eq!(run_alternative(&programs, &[nowhere]), 100, "{nowhere}");
    }
    assert_eq!(run_alternative(&programs[..1], &[1]), 100, "there is no other");
}
