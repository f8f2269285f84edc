//! Programs that the verifier accepts and refuses, rule by rule: for each rule a program that just
//! keeps it, and one that just breaks it.
//!
//! Longer than 600 lines: a table of programs that the verifier accepts or rejects.

mod common;

use common::asm::{
    EXITS, alu, alu_register, call_function, copy, function, goto, help, jump_if, jump_if_register,
    load, mov, store, store_number, wide,
};
use common::{Input, answer, bytes, verified};
use trackway_jit::helper::Helper;
use trackway_jit::insn::{CALL, Insn, LDDW, alu, call, class, jump, mode, size, source};
use trackway_jit::program::Program;
use trackway_jit::verify::{Reason, Rules, State, verify};
use trackway_jit::{ELEMENTS_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX, STEPS_MAX};

const SLOTS: usize = 3;

/// Returns the place and the reason of a rejection.
#[track_caller]
fn rejected(insns: &[Insn]) -> (usize, Reason) {
    let bytes = bytes(insns);
    match verified(&bytes, Rules::new(SLOTS)) {
        Ok(_) => panic!("accepted:\n{}", common::listing(&bytes)),
        Err(rejection) => (rejection.insn, rejection.reason),
    }
}

/// A program is accepted, and gives the same answer in both ways.
#[track_caller]
fn accepted(insns: &[Insn]) -> u64 {
    answer(insns, &Input::of_slots(&[1, 2, 3]))
}

fn joined(parts: &[&[Insn]]) -> Vec<Insn> {
    parts.concat()
}

const RETURN_0: [Insn; 2] = [mov(0, 0), EXITS];

#[test]
fn the_frame_is_read_within_its_slots_and_aligned() {
    for (size, bytes) in [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)] {
        let read = |offset: i16| [load(size, 0, 1, offset), EXITS];
        accepted(&read(0));
        accepted(&read(24 - bytes));
        let slots = SLOTS;
        assert_eq!(rejected(&read(24)), (0, Reason::OutsideFrame { offset: 24, slots }));
        let before = i64::from(-bytes);
        assert_eq!(rejected(&read(-bytes)), (0, Reason::OutsideFrame { offset: before, slots }));
        if bytes > 1 {
            assert_eq!(rejected(&read(bytes / 2)), (0, Reason::Unaligned((bytes / 2).into())));
        }
        // The same by a copy that was moved.
        let moved = |by: i32| [copy(3, 1), alu(alu::ADD, 3, by), load(size, 0, 3, -8), EXITS];
        accepted(&moved(8));
        assert_eq!(rejected(&moved(32)), (2, Reason::OutsideFrame { offset: 24, slots }));
        assert_eq!(rejected(&moved(0)), (2, Reason::OutsideFrame { offset: -8, slots }));
    }
    let end = [alu(alu::ADD, 1, 4096), load(size::B, 0, 1, i16::MAX), EXITS];
    let offset = 4096 + i64::from(i16::MAX);
    assert_eq!(rejected(&end), (1, Reason::OutsideFrame { offset, slots: SLOTS }));
}

#[test]
fn slots_that_are_read_are_known() {
    let insns = [load(size::B, 0, 1, 23), load(size::W, 2, 1, 0), EXITS];
    let bytes = bytes(&insns);
    let summary = verified(&bytes, Rules::new(SLOTS)).expect("accepted").summary();
    assert_eq!((summary.slots_read, summary.stack_bytes, summary.steps), (0b101, 0, 3));
    // More slots than there can be are not taken at their word.
    let rules = Rules { slots: 1000, ..Rules::new(0) };
    let program = joined(&[&[load(size::DW, 0, 1, 512)], &[EXITS]]);
    assert!(verified(&common::bytes(&program), rules).is_err());
}

#[test]
fn the_frame_is_not_written() {
    let store = [store_number(size::B, 1, 0, 0), mov(0, 0), EXITS];
    assert_eq!(rejected(&store), (0, Reason::FrameStore));
}

#[test]
fn the_stack_is_used_within_its_bounds() {
    for (size, bytes) in [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)] {
        let both =
            |offset: i16| [store_number(size, 10, offset, 7), load(size, 0, 10, offset), EXITS];
        assert_eq!(accepted(&both(-bytes)), 7);
        assert_eq!(accepted(&both(-512)), 7);
        assert_eq!(rejected(&both(0)), (0, Reason::OutsideStack(0)));
        assert_eq!(
            rejected(&both(-512 - bytes)),
            (0, Reason::OutsideStack(-512 - i64::from(bytes)))
        );
        if bytes > 1 {
            assert_eq!(rejected(&both(-bytes - 1)), (0, Reason::Unaligned(i64::from(-bytes - 1))));
        }
    }
}

#[test]
fn the_stack_is_read_where_it_was_written() {
    let read =
        |stored: i16| [store_number(size::W, 10, stored, 7), load(size::W, 0, 10, -8), EXITS];
    assert_eq!(accepted(&read(-8)), 7);
    assert_eq!(rejected(&read(-4)), (1, Reason::StackUnwritten(-8)));
    let half = [store_number(size::W, 10, -8, 7), load(size::DW, 0, 10, -8), EXITS];
    assert_eq!(rejected(&half), (1, Reason::StackUnwritten(-8)));
    // Written on one of two paths: not at all. On both, in two ways: it is.
    let paths = |on_the_other: Insn| {
        [
            load(size::DW, 0, 1, 0),
            jump_if(jump::JEQ, 0, 0, 2),
            store_number(size::DW, 10, -8, 7),
            goto(1),
            on_the_other,
            load(size::DW, 0, 10, -8),
            EXITS,
        ]
    };
    assert_eq!(accepted(&paths(store(size::DW, 10, -8, 0))), 7);
    let elsewhere = store(size::DW, 10, -16, 0);
    assert_eq!(rejected(&paths(elsewhere)), (5, Reason::StackUnwritten(-8)));
}

#[test]
fn registers_are_read_where_they_were_written() {
    assert_eq!(rejected(&[EXITS]), (0, Reason::Unwritten(0)));
    for register in [0, 2, 3, 4, 5, 6, 7, 8, 9] {
        let insns = [copy(0, register), EXITS];
        assert_eq!(rejected(&insns), (0, Reason::Unwritten(register)));
    }
    let path = |writes: u8| {
        [
            load(size::DW, 0, 1, 0),
            jump_if(jump::JEQ, 0, 9, 1),
            mov(writes, 5),
            alu_register(alu::ADD, 0, 2),
            EXITS,
        ]
    };
    assert_eq!(rejected(&path(2)), (3, Reason::Unwritten(2)));
    let both = joined(&[&[mov(2, 1)], &path(2)]);
    assert_eq!(accepted(&both), 6);
    // A pointer there, a number here.
    let mixed = joined(&[&[copy(2, 1)], &path(2)]);
    assert_eq!(rejected(&mixed), (4, Reason::Mixed(2)));
    // Two pointers that differ.
    let differ = [
        load(size::DW, 0, 1, 0),
        copy(2, 1),
        jump_if(jump::JEQ, 0, 9, 1),
        alu(alu::ADD, 2, 8),
        load(size::DW, 0, 2, 0),
        EXITS,
    ];
    assert_eq!(rejected(&differ), (4, Reason::Mixed(2)));
}

#[test]
fn calls_lose_registers_1_to_5_and_no_others() {
    let reads = |register: u8| {
        let kept = [mov(register, 3), copy(6, 1), copy(1, 6), help(Helper::TimeNs)];
        joined(&[&kept[..if register == 6 { 0 } else { 4 }], &[copy(0, register), EXITS]])
    };
    for register in [2, 3, 4, 5] {
        assert_eq!(rejected(&reads(register)), (4, Reason::Unwritten(register)));
    }
    for register in [7, 8, 9] {
        assert_eq!(accepted(&reads(register)), 3);
    }
    assert_eq!(rejected(&reads(1)), (3, Reason::NotFrame));
}

#[test]
fn pointers_go_to_the_stack_and_come_back_whole() {
    let spill =
        |load: Insn| [store(size::DW, 10, -8, 1), load, self::load(size::DW, 0, 2, 8), EXITS];
    assert_eq!(accepted(&spill(load(size::DW, 2, 10, -8))), 2);
    assert_eq!(rejected(&spill(load(size::W, 2, 10, -8))), (1, Reason::PartOfPointer));
    let part = [store(size::W, 10, -8, 1), mov(0, 0), EXITS];
    assert_eq!(rejected(&part), (0, Reason::PartOfPointer));
    // A byte of it overwritten: that byte is a number, and nothing else is anything.
    let overwritten =
        |read: Insn| [store(size::DW, 10, -8, 1), store_number(size::B, 10, -6, 9), read, EXITS];
    assert_eq!(accepted(&overwritten(load(size::B, 0, 10, -6))), 9);
    let whole = overwritten(load(size::DW, 0, 10, -8));
    assert_eq!(rejected(&whole), (2, Reason::StackUnwritten(-8)));
    // The stack's end as a pointer, on the stack.
    let stack = [
        store(size::DW, 10, -8, 10),
        load(size::DW, 3, 10, -8),
        store_number(size::DW, 3, -16, 5),
        load(size::DW, 0, 10, -16),
        EXITS,
    ];
    assert_eq!(accepted(&stack), 5);
}

#[test]
fn pointers_are_moved_by_constants_and_nothing_else() {
    let with = |insn: Insn| [mov(2, 8), insn, mov(0, 0), EXITS];
    accepted(&with(alu(alu::ADD, 1, 8)));
    accepted(&with(alu(alu::SUB, 1, -8)));
    let narrow = |operation, dst| Insn { op: class::ALU | operation, ..alu(operation, dst, 8) };
    for (insn, register) in [
        (alu_register(alu::ADD, 1, 2), 1),
        (alu_register(alu::ADD, 2, 1), 1),
        (alu_register(alu::SUB, 1, 10), 1),
        (alu(alu::MUL, 1, 1), 1),
        (alu(alu::AND, 1, -8), 1),
        (alu(alu::NEG, 1, 0), 1),
        (narrow(alu::ADD, 1), 1),
        (Insn { op: class::ALU64 | alu::END, ..alu(0, 1, 64) }, 1),
    ] {
        assert_eq!(rejected(&with(insn)), (1, Reason::PointerArithmetic(register)), "{insn:?}");
    }
    for op in [class::ALU | source::X | alu::MOV, class::ALU64 | source::X | alu::MOV] {
        let offset = if op & 7 == class::ALU { 0 } else { 32 };
        let part = Insn { op, offset, ..copy(2, 1) };
        assert_eq!(rejected(&with(part)), (1, Reason::Pointer(1)));
    }
    accepted(&with(alu(alu::ADD, 1, 4096)));
    assert_eq!(rejected(&with(alu(alu::ADD, 1, 4097))), (1, Reason::PointerDistance(4097)));
    let min = i64::from(i32::MIN);
    assert_eq!(rejected(&with(alu(alu::ADD, 1, i32::MIN))), (1, Reason::PointerDistance(min)));
}

#[test]
fn pointers_are_not_told() {
    assert_eq!(rejected(&[copy(0, 1), EXITS]), (1, Reason::Pointer(0)));
    assert_eq!(rejected(&[copy(0, 10), EXITS]), (1, Reason::Pointer(0)));
    let compared = [mov(0, 0), jump_if(jump::JEQ, 1, 0, 0), EXITS];
    assert_eq!(rejected(&compared), (1, Reason::Pointer(1)));
    let compared = [mov(0, 0), jump_if_register(jump::JGT, 0, 10, 0), EXITS];
    assert_eq!(rejected(&compared), (1, Reason::Pointer(10)));
    let hashed = [copy(2, 1), help(Helper::StringHash), EXITS];
    assert_eq!(rejected(&hashed), (1, Reason::Pointer(2)));
    let number = [mov(1, 0), load(size::DW, 0, 1, 0), EXITS];
    assert_eq!(rejected(&number), (1, Reason::NoMemory(1)));
    let number = [mov(1, 0), store_number(size::DW, 1, 0, 0), mov(0, 0), EXITS];
    assert_eq!(rejected(&number), (1, Reason::NoMemory(1)));
}

#[test]
fn jumps_go_forward_within_their_function() {
    let jumps = |offset| [mov(0, 0), jump_if(jump::JEQ, 0, 0, offset), EXITS];
    accepted(&jumps(0));
    assert_eq!(rejected(&jumps(-1)), (1, Reason::Backward));
    assert_eq!(rejected(&jumps(-2)), (1, Reason::Backward));
    assert_eq!(rejected(&jumps(1)), (1, Reason::Outside));
    assert_eq!(rejected(&jumps(i16::MAX)), (1, Reason::Outside));
    let long = |immediate| Insn { op: class::JMP32 | jump::JA, immediate, ..goto(0) };
    let jumps = |immediate| [mov(0, 0), long(immediate), EXITS];
    accepted(&jumps(0));
    assert_eq!(rejected(&jumps(i32::MAX)), (1, Reason::Outside));
    assert_eq!(rejected(&jumps(i32::MIN)), (1, Reason::Backward));
    // Into the second half of a load.
    let half = joined(&[&[mov(0, 0), jump_if(jump::JEQ, 0, 0, 1)], &wide(2, 0), &[EXITS]]);
    assert_eq!(rejected(&half), (1, Reason::Outside));
    // Into another function, and to its beginning.
    for distance in [2, 3] {
        let other = [
            mov(0, 0),
            jump_if(jump::JEQ, 0, 0, distance),
            call_function(1),
            EXITS,
            mov(0, 1),
            EXITS,
        ];
        assert_eq!(rejected(&other), (1, Reason::Outside));
    }
}

#[test]
fn every_instruction_is_reached_and_functions_end() {
    assert_eq!(rejected(&[mov(0, 0), EXITS, mov(0, 1), EXITS]), (2, Reason::Unreachable));
    assert_eq!(rejected(&[mov(0, 0), goto(1), mov(0, 1), EXITS]), (2, Reason::Unreachable));
    assert_eq!(rejected(&[mov(0, 0)]), (0, Reason::NoEnd));
    assert_eq!(rejected(&[mov(0, 0), jump_if(jump::JEQ, 0, 0, -1)]), (1, Reason::Backward));
    let falls = [mov(0, 0), jump_if(jump::JEQ, 0, 1, 1), EXITS, mov(0, 1)];
    assert_eq!(rejected(&falls), (3, Reason::NoEnd));
    let into_function = [call_function(1), mov(0, 0), mov(0, 0), EXITS];
    assert_eq!(rejected(&into_function), (1, Reason::NoEnd));
}

#[test]
fn functions_stand_behind_who_calls_them() {
    let calls = |distance| joined(&[&[call_function(distance), EXITS], &RETURN_0]);
    assert_eq!(accepted(&calls(1)), 0);
    for distance in [-1, -2, 3, i32::MAX, i32::MIN] {
        assert_eq!(rejected(&calls(distance)), (0, Reason::NoFunction));
    }
    // To the second half of a load.
    let half = joined(&[&[call_function(2), EXITS], &wide(0, 1), &[EXITS]]);
    assert_eq!(rejected(&half), (2, Reason::NoFunction));
    // A function of one's own is one's end.
    let inside = [call_function(0), mov(0, 0), EXITS];
    assert_eq!(rejected(&inside), (0, Reason::NoEnd));
}

#[test]
fn functions_know_what_all_callers_give() {
    let twice = |second: Insn| {
        [
            copy(6, 1),
            mov(2, 40),
            call_function(5),
            copy(7, 0),
            copy(1, 6),
            second,
            call_function(1),
            EXITS,
            load(size::DW, 0, 1, 8),
            alu_register(alu::ADD, 0, 2),
            EXITS,
        ]
    };
    assert_eq!(accepted(&twice(mov(2, 50))), 52);
    assert_eq!(rejected(&twice(mov(3, 50))), (9, Reason::Unwritten(2)));
    assert_eq!(rejected(&twice(copy(2, 1))), (9, Reason::Mixed(2)));
    // A pointer to who calls means nothing to a function.
    let stack = [
        store_number(size::DW, 10, -8, 1),
        copy(2, 10),
        call_function(1),
        EXITS,
        load(size::DW, 0, 2, -8),
        EXITS,
    ];
    assert_eq!(rejected(&stack), (4, Reason::Mixed(2)));
    // Its stack is its own, as are registers 6 to 9.
    let own = [
        store_number(size::DW, 10, -8, 1),
        mov(9, 5),
        call_function(3),
        load(size::DW, 0, 10, -8),
        alu_register(alu::ADD, 0, 9),
        EXITS,
        mov(0, 7),
        mov(9, 8),
        store(size::DW, 10, -8, 0),
        EXITS,
    ];
    assert_eq!(accepted(&own), 6);
    let not_own = [&own[..8], &[load(size::DW, 0, 10, -8), EXITS]].concat();
    assert_eq!(rejected(&not_own), (8, Reason::StackUnwritten(-8)));
}

/// A chain of functions, each of which has so many bytes of stack.
fn chain(count: usize, stack: i16) -> Vec<Insn> {
    let mut insns = Vec::new();
    for index in 0..count {
        if stack > 0 {
            insns.push(store_number(size::B, 10, -stack, 1));
        }
        insns.push(if index + 1 < count { call_function(1) } else { mov(0, 9) });
        insns.push(EXITS);
    }
    insns
}

#[test]
fn depth_and_stack_have_limits() {
    assert_eq!(accepted(&chain(8, 0)), 9);
    assert_eq!(rejected(&chain(9, 0)), (16, Reason::Depth));
    assert_eq!(accepted(&chain(8, 64)), 9);
    // 72 bytes each: with the eighth it is too much.
    assert_eq!(rejected(&chain(8, 65)), (21, Reason::StackSize(576)));
    assert_eq!(accepted(&chain(1, 512)), 9);
    assert_eq!(rejected(&chain(2, 264)), (3, Reason::StackSize(528)));
}

#[test]
fn there_is_a_limit_of_functions() {
    let program = |count: usize| {
        let mut insns: Vec<Insn> = Vec::new();
        for index in 1..count {
            // Behind the calls and the exit, two instructions a function.
            let start = count + 2 * (index - 1);
            insns.push(call_function((start - insns.len() - 1) as i32));
        }
        insns.push(EXITS);
        (1..count).for_each(|_| insns.extend(RETURN_0));
        insns
    };
    assert_eq!(accepted(&program(FUNCTIONS_MAX)), 0);
    let (insn, reason) = rejected(&program(FUNCTIONS_MAX + 1));
    assert_eq!((insn, reason), (3 * FUNCTIONS_MAX - 1, Reason::Functions));
}

/// A program that calls `any` so many times, with a function of so many instructions.
fn any(times: usize, len: usize) -> Vec<Insn> {
    let mut insns = vec![copy(6, 1)];
    for index in 0..times {
        let left = 6 * (times - index) - 6 + 1;
        insns.extend([copy(1, 6), mov(2, 0), mov(3, 5)]);
        insns.extend(function(4, left as i32 + 2));
        insns.push(help(Helper::Any));
    }
    insns.push(EXITS);
    insns.extend((0..len - 1).map(|_| mov(0, 0)));
    insns.push(EXITS);
    insns
}

#[test]
fn steps_are_counted_with_elements() {
    let program = bytes(&any(2, 100));
    let steps = 14 + 2 * 100 * ELEMENTS_MAX as u64;
    let summary = verified(&program, Rules::new(0)).expect("accepted").summary();
    assert_eq!(summary.steps, steps);
    let limited = |steps_max| verified(&program, Rules { steps_max, ..Rules::new(0) });
    assert!(limited(steps).is_ok());
    let rejection = limited(steps - 1).expect_err("too many steps");
    assert_eq!(rejection.reason, Reason::Steps { steps, max: steps - 1 });
    let long = bytes(&any(3, 100));
    assert!(matches!(
        verified(&long, Rules::new(0)).expect_err("too many steps").reason,
        Reason::Steps { max: STEPS_MAX, .. }
    ));
}

/// A helper that goes through all elements takes a step for each of the most, in a function as
/// often as that may be called; for each of `any`'s elements it takes too many.
#[test]
fn steps_of_helpers_on_all_elements_are_counted() {
    for &helper in Helper::ALL.iter().filter(|helper| helper.is_of_elements()) {
        let sum = [mov(2, 0), mov(3, 5), help(helper), EXITS];
        let steps = |insns: &[Insn]| {
            verified(&bytes(insns), Rules::new(0)).expect("accepted").summary().steps
        };
        assert_eq!(steps(&sum), 4 + ELEMENTS_MAX as u64);
        // Called twice from the entry.
        let twice = [copy(6, 1), call_function(3), copy(1, 6), call_function(1), EXITS];
        assert_eq!(steps(&joined(&[&twice, &sum])), 5 + 2 * (4 + ELEMENTS_MAX as u64));
        let mut in_any = any(1, 1);
        in_any.pop();
        in_any.extend(sum);
        let program = bytes(&in_any);
        let rejection = verified(&program, Rules::new(0)).expect_err("too many steps");
        assert!(matches!(rejection.reason, Reason::Steps { .. }), "{rejection}");
    }
}

#[test]
fn any_is_not_inside_any() {
    // What any calls, calls a function that calls any.
    let inner = any(1, 2);
    let outer = joined(&[&any(1, 2)[..8], &[call_function(1), EXITS], &inner]);
    assert_eq!(rejected(&outer), (16, Reason::AnyInsideAny));
    // Without the any outside, it may.
    let called = joined(&[&[call_function(1), EXITS], &inner]);
    assert_eq!(accepted(&called), 0);
}

#[test]
fn what_is_compared_in_place_leaves_the_frame_where_it_is() {
    let arguments = [mov(2, 0), mov(3, 0), mov(4, 0)];
    for &helper in Helper::ALL.iter().filter(|helper| helper.is_inline()) {
        let asked = joined(&[&arguments, &[help(helper)], &arguments, &[help(helper), EXITS]]);
        // Of no bytes: no edges; where those that are compared would end.
        assert_eq!(accepted(&asked), helper.compared_bytes().unwrap_or(0).into());
        let lost = joined(&[&arguments, &[help(helper), copy(0, 2), EXITS]]);
        assert_eq!(rejected(&lost), (4, Reason::Unwritten(2)));
    }
    let compared = [help(Helper::StringCompare), mov(2, 0), help(Helper::StringHash), EXITS];
    let lost = joined(&[&arguments, &compared]);
    assert_eq!(rejected(&lost), (5, Reason::Unwritten(1)));
}

#[test]
fn helpers_get_what_they_ask_for() {
    assert_eq!(rejected(&[help(Helper::StringHash), EXITS]), (0, Reason::Unwritten(2)));
    let moved = [alu(alu::ADD, 1, 8), mov(2, 0), help(Helper::StringHash), EXITS];
    assert_eq!(rejected(&moved), (2, Reason::NotFrame));
    let beyond = Helper::ALL.len() as i32 + 1;
    for number in [0, beyond, -1, i32::MAX] {
        let unknown = Insn { op: CALL, immediate: number, ..Insn::default() };
        assert_eq!(rejected(&[unknown, EXITS]), (0, Reason::NoHelper(number)));
    }
    let no_function = [mov(2, 0), mov(3, 5), mov(4, 0), help(Helper::Any), EXITS];
    assert_eq!(rejected(&no_function), (3, Reason::NotFunction(4)));
    let tail = [call_function(1), EXITS, mov(2, 1), help(Helper::TailCall), EXITS];
    assert_eq!(rejected(&tail), (3, Reason::TailCallInFunction));
}

#[test]
fn what_has_no_meaning_is_refused() {
    let mut refused = 0;
    for op in 0..=255 {
        let insn = Insn { op, ..Insn::default() };
        let known = matches!(op & 7, 2 | 3 if op & 0xe0 == mode::MEM)
            || op & 7 == class::LDX && matches!(op & 0xe0, mode::MEM)
            || op & 7 == class::LDX && op & 0xe0 == mode::MEMSX && op & size::DW != size::DW
            || op == LDDW
            || matches!(op & 7, 4 | 7) && op & 0xf0 <= 0xc0 && op != 0x8c && op != 0x8f
            || op & 7 == 4 && op & 0xf0 == alu::END
            || op == class::ALU64 | alu::END
            || op & 7 == 5 && matches!(op & 0xf0, 0x10..=0x70 | 0xa0..=0xd0)
            || op & 7 == 6 && matches!(op & 0xf0, 0x10..=0x70 | 0xa0..=0xd0)
            || matches!(op, 0x05 | 0x06 | 0x85 | 0x95);
        let program = [mov(0, 0), insn, EXITS];
        if !known {
            assert_eq!(rejected(&program), (1, Reason::Operation), "{op:#x}");
            refused += 1;
        } else if let Err(rejection) = verified(&bytes(&program), Rules::new(SLOTS)) {
            assert_ne!(rejection.reason, Reason::Operation, "{op:#x}");
        }
    }
    assert!(refused > 90, "{refused}");
    let field = |insn: Insn| {
        assert_eq!(rejected(&[mov(0, 0), mov(3, 0), insn, EXITS]), (2, Reason::Field), "{insn:?}");
    };
    field(Insn { src: 3, ..mov(0, 0) });
    field(Insn { immediate: 3, ..copy(0, 3) });
    field(Insn { offset: 1, ..mov(0, 0) });
    field(Insn { offset: 8, ..mov(0, 0) });
    field(Insn { offset: 24, ..copy(0, 3) });
    field(Insn { op: class::ALU | source::X | alu::MOV, offset: 32, ..copy(0, 3) });
    field(Insn { offset: 2, ..alu(alu::DIV, 0, 3) });
    field(Insn { offset: 1, ..alu(alu::ADD, 0, 3) });
    field(alu(alu::NEG, 0, 1));
    field(Insn { op: class::ALU | alu::END, ..alu(0, 0, 8) });
    field(Insn { immediate: 1, ..load(size::B, 0, 1, 0) });
    field(Insn { immediate: 1, ..store(size::B, 10, -1, 0) });
    field(Insn { src: 1, ..store_number(size::B, 10, -1, 0) });
    field(Insn { dst: 1, ..goto(0) });
    field(Insn { immediate: 1, ..goto(0) });
    field(Insn { op: class::JMP32 | jump::JA, offset: 1, ..goto(0) });
    field(Insn { immediate: 1, ..EXITS });
    field(Insn { src: 2, ..help(Helper::TimeNs) });
    field(Insn { src: call::FUNCTION, offset: 1, ..help(Helper::TimeNs) });
    let [first, second] = wide(0, 0);
    let other = [mov(0, 0), Insn { src: 1, ..first }, second, EXITS];
    assert_eq!(rejected(&other), (1, Reason::Field));
}

#[test]
fn there_are_eleven_registers_and_the_last_is_not_written() {
    for insn in [mov(11, 0), Insn { op: LDDW, dst: 15, ..mov(0, 0) }] {
        assert_eq!(rejected(&[insn, mov(0, 0), EXITS]), (0, Reason::Register(insn.dst)));
    }
    assert_eq!(rejected(&[copy(0, 12), EXITS]), (0, Reason::Register(12)));
    let end = [mov(10, 0), mov(0, 0), EXITS];
    assert_eq!(rejected(&end), (0, Reason::StackEnd));
    assert_eq!(rejected(&[alu(alu::ADD, 10, 8), mov(0, 0), EXITS]), (0, Reason::StackEnd));
    let compared = [mov(0, 0), jump_if(jump::JEQ, 13, 0, 0), EXITS];
    assert_eq!(rejected(&compared), (1, Reason::Register(13)));
}

#[test]
fn loads_of_64_bits_have_two_halves() {
    let [first, second] = wide(0, 5);
    assert_eq!(accepted(&[first, second, EXITS]), 5);
    assert_eq!(rejected(&[first]), (0, Reason::Half));
    assert_eq!(rejected(&[first, EXITS]), (0, Reason::Half));
    assert_eq!(rejected(&[first, Insn { dst: 1, ..second }, EXITS]), (0, Reason::Field));
    assert_eq!(rejected(&[second, mov(0, 0), EXITS]), (0, Reason::Operation));
}

#[test]
fn memory_for_open_jumps_is_what_the_caller_gives() {
    // 40 jumps that are open at once, each to a place of its own.
    let mut insns = vec![load(size::DW, 0, 1, 0)];
    insns.extend((0..40).map(|index| jump_if(jump::JEQ, 0, index, 40)));
    insns.push(goto(40));
    insns.extend((0..39).map(|_| mov(2, 0)));
    insns.extend([mov(2, 0), EXITS]);
    let bytes = bytes(&insns);
    let program = Program::new(&bytes).expect("a program");
    let with = |states: usize| verify(program, Rules::new(1), &mut vec![State::FREE; states]);
    assert!(with(41).is_ok(), "{:?}", with(41).map(|_| ()));
    let rejection = with(39).expect_err("too few states");
    assert_eq!((rejection.insn, rejection.reason), (40, Reason::Memory));
    // What others have left in the memory is nothing.
    let mut memory = vec![State::FREE; 41];
    for _ in 0..2 {
        assert!(verify(program, Rules::new(1), &mut memory).is_ok());
        assert!(verify(program, Rules::new(0), &mut memory).is_err());
    }
}

#[test]
fn the_longest_program_is_verified() {
    let mut insns = vec![load(size::DW, 0, 1, 0)];
    let jumps = INSTRUCTIONS_MAX - 2;
    insns.extend((0..jumps).map(|i| jump_if(jump::JEQ, 0, 77, (jumps - i - 1) as i16)));
    insns.push(EXITS);
    assert_eq!(accepted(&insns), 1);
}

#[test]
fn a_rejection_is_told_to_people() {
    let told = |insns: &[Insn]| {
        verified(&bytes(insns), Rules::new(SLOTS)).expect_err("rejected").to_string()
    };
    assert_eq!(
        told(&[mov(0, 0), load(size::DW, 0, 1, 24), EXITS]),
        "instruction 1 (r0 = *(u64 *)(r1 + 24)): it reads from byte 24 of the frame, which has 3 \
         slots of 8 bytes"
    );
    assert_eq!(
        told(&[alu_register(alu::ADD, 1, 2), EXITS]),
        "instruction 0 (r1 += r2): r1 is a pointer: only a constant can be added to it"
    );
    assert_eq!(
        told(&[help(Helper::StringHash), EXITS]),
        "instruction 0 (call string_hash): r2 is not written on every path (calls lose r1 to r5)"
    );
    assert_eq!(
        told(&[mov(0, 0), goto(-2)]),
        "instruction 1 (goto -2): the jump does not go forward"
    );
}
