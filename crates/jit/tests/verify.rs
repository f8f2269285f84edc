//! Programs that the verifier accepts and rejects, rule by rule: for each rule, a program that
//! barely follows it, and one that barely breaks it.
//!
//! Longer than 600 lines: a table of programs that the verifier accepts or rejects.

mod common;

use common::asm::{
    EXIT_INSN, alu_immediate, alu_register, call_function, call_helper, jump_always, jump_if,
    jump_if_register, load_function_address, load_immediate_64, load_memory, mov_immediate,
    mov_register, store_immediate, store_register,
};
use common::{Input, encode_insns, verify_and_run, verify_program};
use trackway_jit::helper::Helper;
use trackway_jit::insn::{CALL, Insn, LDDW, alu, call, class, jump, mode, size, source};
use trackway_jit::program::Program;
use trackway_jit::verify::{Reason, Rules, State, verify};
use trackway_jit::{ELEMENTS_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX, STEPS_MAX};

const SLOTS: usize = 3;

/// Returns the instruction and the reason of a rejection.
#[track_caller]
fn expect_rejected(insns: &[Insn]) -> (usize, Reason) {
    let bytes = encode_insns(insns);
    match verify_program(&bytes, Rules::new(SLOTS)) {
        Ok(_) => panic!("accepted:\n{}", common::format_listing(&bytes)),
        Err(rejection) => (rejection.insn, rejection.reason),
    }
}

/// Checks that a program is accepted; returns the common answer of interpreter and machine code.
#[track_caller]
fn expect_accepted(insns: &[Insn]) -> u64 {
    verify_and_run(insns, &Input::of_slots(&[1, 2, 3]))
}

fn join_insns(parts: &[&[Insn]]) -> Vec<Insn> {
    parts.concat()
}

const RETURN_0: [Insn; 2] = [mov_immediate(0, 0), EXIT_INSN];

#[test]
fn the_frame_is_read_within_its_slots_and_aligned() {
    for (size, bytes) in [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)] {
        let read = |offset: i16| [load_memory(size, 0, 1, offset), EXIT_INSN];
        expect_accepted(&read(0));
        expect_accepted(&read(24 - bytes));
        let slots = SLOTS;
        assert_eq!(expect_rejected(&read(24)), (0, Reason::OutsideFrame { offset: 24, slots }));
        let before = i64::from(-bytes);
        assert_eq!(
            expect_rejected(&read(-bytes)),
            (0, Reason::OutsideFrame { offset: before, slots })
        );
        if bytes > 1 {
            assert_eq!(
                expect_rejected(&read(bytes / 2)),
                (0, Reason::Unaligned((bytes / 2).into()))
            );
        }
        // Loads through a moved copy of the pointer follow the same rule.
        let moved = |by: i32| {
            [
                mov_register(3, 1),
                alu_immediate(alu::ADD, 3, by),
                load_memory(size, 0, 3, -8),
                EXIT_INSN,
            ]
        };
        expect_accepted(&moved(8));
        assert_eq!(expect_rejected(&moved(32)), (2, Reason::OutsideFrame { offset: 24, slots }));
        assert_eq!(expect_rejected(&moved(0)), (2, Reason::OutsideFrame { offset: -8, slots }));
    }
    let end = [alu_immediate(alu::ADD, 1, 4096), load_memory(size::B, 0, 1, i16::MAX), EXIT_INSN];
    let offset = 4096 + i64::from(i16::MAX);
    assert_eq!(expect_rejected(&end), (1, Reason::OutsideFrame { offset, slots: SLOTS }));
}

#[test]
fn slots_that_are_read_are_known() {
    let insns = [load_memory(size::B, 0, 1, 23), load_memory(size::W, 2, 1, 0), EXIT_INSN];
    let bytes = encode_insns(&insns);
    let summary = verify_program(&bytes, Rules::new(SLOTS)).expect("accepted").summary();
    assert_eq!((summary.slots_read, summary.stack_bytes, summary.steps), (0b101, 0, 3));
    // The verifier does not rely on a slot count above the maximum.
    let rules = Rules { slots: 1000, ..Rules::new(0) };
    let program = join_insns(&[&[load_memory(size::DW, 0, 1, 512)], &[EXIT_INSN]]);
    assert!(verify_program(&common::encode_insns(&program), rules).is_err());
}

#[test]
fn the_frame_is_not_written() {
    let store = [store_immediate(size::B, 1, 0, 0), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&store), (0, Reason::FrameStore));
}

#[test]
fn the_stack_is_used_within_its_bounds() {
    for (size, bytes) in [(size::B, 1), (size::H, 2), (size::W, 4), (size::DW, 8)] {
        let both = |offset: i16| {
            [store_immediate(size, 10, offset, 7), load_memory(size, 0, 10, offset), EXIT_INSN]
        };
        assert_eq!(expect_accepted(&both(-bytes)), 7);
        assert_eq!(expect_accepted(&both(-512)), 7);
        assert_eq!(expect_rejected(&both(0)), (0, Reason::OutsideStack(0)));
        assert_eq!(
            expect_rejected(&both(-512 - bytes)),
            (0, Reason::OutsideStack(-512 - i64::from(bytes)))
        );
        if bytes > 1 {
            assert_eq!(
                expect_rejected(&both(-bytes - 1)),
                (0, Reason::Unaligned(i64::from(-bytes - 1)))
            );
        }
    }
}

#[test]
fn the_stack_is_read_where_it_was_written() {
    let read = |stored: i16| {
        [store_immediate(size::W, 10, stored, 7), load_memory(size::W, 0, 10, -8), EXIT_INSN]
    };
    assert_eq!(expect_accepted(&read(-8)), 7);
    assert_eq!(expect_rejected(&read(-4)), (1, Reason::StackUnwritten(-8)));
    let half = [store_immediate(size::W, 10, -8, 7), load_memory(size::DW, 0, 10, -8), EXIT_INSN];
    assert_eq!(expect_rejected(&half), (1, Reason::StackUnwritten(-8)));
    // A store on one of two paths does not count; different stores on both paths do.
    let paths = |on_the_other: Insn| {
        [
            load_memory(size::DW, 0, 1, 0),
            jump_if(jump::JEQ, 0, 0, 2),
            store_immediate(size::DW, 10, -8, 7),
            jump_always(1),
            on_the_other,
            load_memory(size::DW, 0, 10, -8),
            EXIT_INSN,
        ]
    };
    assert_eq!(expect_accepted(&paths(store_register(size::DW, 10, -8, 0))), 7);
    let elsewhere = store_register(size::DW, 10, -16, 0);
    assert_eq!(expect_rejected(&paths(elsewhere)), (5, Reason::StackUnwritten(-8)));
}

#[test]
fn registers_are_read_where_they_were_written() {
    assert_eq!(expect_rejected(&[EXIT_INSN]), (0, Reason::Unwritten(0)));
    for register in [0, 2, 3, 4, 5, 6, 7, 8, 9] {
        let insns = [mov_register(0, register), EXIT_INSN];
        assert_eq!(expect_rejected(&insns), (0, Reason::Unwritten(register)));
    }
    let path = |writes: u8| {
        [
            load_memory(size::DW, 0, 1, 0),
            jump_if(jump::JEQ, 0, 9, 1),
            mov_immediate(writes, 5),
            alu_register(alu::ADD, 0, 2),
            EXIT_INSN,
        ]
    };
    assert_eq!(expect_rejected(&path(2)), (3, Reason::Unwritten(2)));
    let both = join_insns(&[&[mov_immediate(2, 1)], &path(2)]);
    assert_eq!(expect_accepted(&both), 6);
    // The register is a pointer on one path, and a number on the other.
    let mixed = join_insns(&[&[mov_register(2, 1)], &path(2)]);
    assert_eq!(expect_rejected(&mixed), (4, Reason::Mixed(2)));
    // The register is a different pointer on each path.
    let differ = [
        load_memory(size::DW, 0, 1, 0),
        mov_register(2, 1),
        jump_if(jump::JEQ, 0, 9, 1),
        alu_immediate(alu::ADD, 2, 8),
        load_memory(size::DW, 0, 2, 0),
        EXIT_INSN,
    ];
    assert_eq!(expect_rejected(&differ), (4, Reason::Mixed(2)));
}

#[test]
fn calls_lose_registers_1_to_5_and_no_others() {
    let reads = |register: u8| {
        let kept = [
            mov_immediate(register, 3),
            mov_register(6, 1),
            mov_register(1, 6),
            call_helper(Helper::TimeNs),
        ];
        join_insns(&[
            &kept[..if register == 6 { 0 } else { 4 }],
            &[mov_register(0, register), EXIT_INSN],
        ])
    };
    for register in [2, 3, 4, 5] {
        assert_eq!(expect_rejected(&reads(register)), (4, Reason::Unwritten(register)));
    }
    for register in [7, 8, 9] {
        assert_eq!(expect_accepted(&reads(register)), 3);
    }
    assert_eq!(expect_rejected(&reads(1)), (3, Reason::NotFrame));
}

#[test]
fn pointers_go_to_the_stack_and_come_back_whole() {
    let spill = |load: Insn| {
        [store_register(size::DW, 10, -8, 1), load, self::load_memory(size::DW, 0, 2, 8), EXIT_INSN]
    };
    assert_eq!(expect_accepted(&spill(load_memory(size::DW, 2, 10, -8))), 2);
    assert_eq!(
        expect_rejected(&spill(load_memory(size::W, 2, 10, -8))),
        (1, Reason::PartOfPointer)
    );
    let part = [store_register(size::W, 10, -8, 1), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&part), (0, Reason::PartOfPointer));
    // After one byte of a spilled pointer is overwritten, only this byte is readable.
    let overwritten = |read: Insn| {
        [store_register(size::DW, 10, -8, 1), store_immediate(size::B, 10, -6, 9), read, EXIT_INSN]
    };
    assert_eq!(expect_accepted(&overwritten(load_memory(size::B, 0, 10, -6))), 9);
    let whole = overwritten(load_memory(size::DW, 0, 10, -8));
    assert_eq!(expect_rejected(&whole), (2, Reason::StackUnwritten(-8)));
    // The stack's end is spilled to the stack as a pointer.
    let stack = [
        store_register(size::DW, 10, -8, 10),
        load_memory(size::DW, 3, 10, -8),
        store_immediate(size::DW, 3, -16, 5),
        load_memory(size::DW, 0, 10, -16),
        EXIT_INSN,
    ];
    assert_eq!(expect_accepted(&stack), 5);
}

#[test]
fn pointers_are_moved_by_constants_and_nothing_else() {
    let with = |insn: Insn| [mov_immediate(2, 8), insn, mov_immediate(0, 0), EXIT_INSN];
    expect_accepted(&with(alu_immediate(alu::ADD, 1, 8)));
    expect_accepted(&with(alu_immediate(alu::SUB, 1, -8)));
    let narrow =
        |operation, dst| Insn { op: class::ALU | operation, ..alu_immediate(operation, dst, 8) };
    for (insn, register) in [
        (alu_register(alu::ADD, 1, 2), 1),
        (alu_register(alu::ADD, 2, 1), 1),
        (alu_register(alu::SUB, 1, 10), 1),
        (alu_immediate(alu::MUL, 1, 1), 1),
        (alu_immediate(alu::AND, 1, -8), 1),
        (alu_immediate(alu::NEG, 1, 0), 1),
        (narrow(alu::ADD, 1), 1),
        (Insn { op: class::ALU64 | alu::END, ..alu_immediate(0, 1, 64) }, 1),
    ] {
        assert_eq!(
            expect_rejected(&with(insn)),
            (1, Reason::PointerArithmetic(register)),
            "{insn:?}"
        );
    }
    for op in [class::ALU | source::X | alu::MOV, class::ALU64 | source::X | alu::MOV] {
        let offset = if op & 7 == class::ALU { 0 } else { 32 };
        let part = Insn { op, offset, ..mov_register(2, 1) };
        assert_eq!(expect_rejected(&with(part)), (1, Reason::Pointer(1)));
    }
    expect_accepted(&with(alu_immediate(alu::ADD, 1, 4096)));
    assert_eq!(
        expect_rejected(&with(alu_immediate(alu::ADD, 1, 4097))),
        (1, Reason::PointerDistance(4097))
    );
    let min = i64::from(i32::MIN);
    assert_eq!(
        expect_rejected(&with(alu_immediate(alu::ADD, 1, i32::MIN))),
        (1, Reason::PointerDistance(min))
    );
}

#[test]
fn pointers_are_not_told() {
    assert_eq!(expect_rejected(&[mov_register(0, 1), EXIT_INSN]), (1, Reason::Pointer(0)));
    assert_eq!(expect_rejected(&[mov_register(0, 10), EXIT_INSN]), (1, Reason::Pointer(0)));
    let compared = [mov_immediate(0, 0), jump_if(jump::JEQ, 1, 0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&compared), (1, Reason::Pointer(1)));
    let compared = [mov_immediate(0, 0), jump_if_register(jump::JGT, 0, 10, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&compared), (1, Reason::Pointer(10)));
    let hashed = [mov_register(2, 1), call_helper(Helper::StringHash), EXIT_INSN];
    assert_eq!(expect_rejected(&hashed), (1, Reason::Pointer(2)));
    let number = [mov_immediate(1, 0), load_memory(size::DW, 0, 1, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&number), (1, Reason::NoMemory(1)));
    let number =
        [mov_immediate(1, 0), store_immediate(size::DW, 1, 0, 0), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&number), (1, Reason::NoMemory(1)));
}

#[test]
fn jumps_go_forward_within_their_function() {
    let jumps = |offset| [mov_immediate(0, 0), jump_if(jump::JEQ, 0, 0, offset), EXIT_INSN];
    expect_accepted(&jumps(0));
    assert_eq!(expect_rejected(&jumps(-1)), (1, Reason::Backward));
    assert_eq!(expect_rejected(&jumps(-2)), (1, Reason::Backward));
    assert_eq!(expect_rejected(&jumps(1)), (1, Reason::Outside));
    assert_eq!(expect_rejected(&jumps(i16::MAX)), (1, Reason::Outside));
    let long = |immediate| Insn { op: class::JMP32 | jump::JA, immediate, ..jump_always(0) };
    let jumps = |immediate| [mov_immediate(0, 0), long(immediate), EXIT_INSN];
    expect_accepted(&jumps(0));
    assert_eq!(expect_rejected(&jumps(i32::MAX)), (1, Reason::Outside));
    assert_eq!(expect_rejected(&jumps(i32::MIN)), (1, Reason::Backward));
    // A jump into the second half of a wide load.
    let half = join_insns(&[
        &[mov_immediate(0, 0), jump_if(jump::JEQ, 0, 0, 1)],
        &load_immediate_64(2, 0),
        &[EXIT_INSN],
    ]);
    assert_eq!(expect_rejected(&half), (1, Reason::Outside));
    // Jumps into another function, and to its beginning.
    for distance in [2, 3] {
        let other = [
            mov_immediate(0, 0),
            jump_if(jump::JEQ, 0, 0, distance),
            call_function(1),
            EXIT_INSN,
            mov_immediate(0, 1),
            EXIT_INSN,
        ];
        assert_eq!(expect_rejected(&other), (1, Reason::Outside));
    }
}

#[test]
fn every_instruction_is_reached_and_functions_end() {
    assert_eq!(
        expect_rejected(&[mov_immediate(0, 0), EXIT_INSN, mov_immediate(0, 1), EXIT_INSN]),
        (2, Reason::Unreachable)
    );
    assert_eq!(
        expect_rejected(&[mov_immediate(0, 0), jump_always(1), mov_immediate(0, 1), EXIT_INSN]),
        (2, Reason::Unreachable)
    );
    assert_eq!(expect_rejected(&[mov_immediate(0, 0)]), (0, Reason::NoEnd));
    assert_eq!(
        expect_rejected(&[mov_immediate(0, 0), jump_if(jump::JEQ, 0, 0, -1)]),
        (1, Reason::Backward)
    );
    let falls = [mov_immediate(0, 0), jump_if(jump::JEQ, 0, 1, 1), EXIT_INSN, mov_immediate(0, 1)];
    assert_eq!(expect_rejected(&falls), (3, Reason::NoEnd));
    let into_function = [call_function(1), mov_immediate(0, 0), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&into_function), (1, Reason::NoEnd));
}

#[test]
fn functions_stand_behind_who_calls_them() {
    let calls = |distance| join_insns(&[&[call_function(distance), EXIT_INSN], &RETURN_0]);
    assert_eq!(expect_accepted(&calls(1)), 0);
    for distance in [-1, -2, 3, i32::MAX, i32::MIN] {
        assert_eq!(expect_rejected(&calls(distance)), (0, Reason::NoFunction));
    }
    // A call of the second half of a wide load.
    let half =
        join_insns(&[&[call_function(2), EXIT_INSN], &load_immediate_64(0, 1), &[EXIT_INSN]]);
    assert_eq!(expect_rejected(&half), (2, Reason::NoFunction));
    // The start of a called function ends the function before it.
    let inside = [call_function(0), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&inside), (0, Reason::NoEnd));
}

#[test]
fn functions_know_what_all_callers_give() {
    let twice = |second: Insn| {
        [
            mov_register(6, 1),
            mov_immediate(2, 40),
            call_function(5),
            mov_register(7, 0),
            mov_register(1, 6),
            second,
            call_function(1),
            EXIT_INSN,
            load_memory(size::DW, 0, 1, 8),
            alu_register(alu::ADD, 0, 2),
            EXIT_INSN,
        ]
    };
    assert_eq!(expect_accepted(&twice(mov_immediate(2, 50))), 52);
    assert_eq!(expect_rejected(&twice(mov_immediate(3, 50))), (9, Reason::Unwritten(2)));
    assert_eq!(expect_rejected(&twice(mov_register(2, 1))), (9, Reason::Mixed(2)));
    // A pointer to the caller's stack is not usable in a function.
    let stack = [
        store_immediate(size::DW, 10, -8, 1),
        mov_register(2, 10),
        call_function(1),
        EXIT_INSN,
        load_memory(size::DW, 0, 2, -8),
        EXIT_INSN,
    ];
    assert_eq!(expect_rejected(&stack), (4, Reason::Mixed(2)));
    // Each function has its own stack and registers 6 to 9.
    let own = [
        store_immediate(size::DW, 10, -8, 1),
        mov_immediate(9, 5),
        call_function(3),
        load_memory(size::DW, 0, 10, -8),
        alu_register(alu::ADD, 0, 9),
        EXIT_INSN,
        mov_immediate(0, 7),
        mov_immediate(9, 8),
        store_register(size::DW, 10, -8, 0),
        EXIT_INSN,
    ];
    assert_eq!(expect_accepted(&own), 6);
    let not_own = [&own[..8], &[load_memory(size::DW, 0, 10, -8), EXIT_INSN]].concat();
    assert_eq!(expect_rejected(&not_own), (8, Reason::StackUnwritten(-8)));
}

/// Returns a chain of functions, each with `stack` bytes of stack.
fn chain_of_functions(count: usize, stack: i16) -> Vec<Insn> {
    let mut insns = Vec::new();
    for index in 0..count {
        if stack > 0 {
            insns.push(store_immediate(size::B, 10, -stack, 1));
        }
        insns.push(if index + 1 < count { call_function(1) } else { mov_immediate(0, 9) });
        insns.push(EXIT_INSN);
    }
    insns
}

#[test]
fn depth_and_stack_have_limits() {
    assert_eq!(expect_accepted(&chain_of_functions(8, 0)), 9);
    assert_eq!(expect_rejected(&chain_of_functions(9, 0)), (16, Reason::Depth));
    assert_eq!(expect_accepted(&chain_of_functions(8, 64)), 9);
    // At 72 bytes each, the eighth function exceeds the stack.
    assert_eq!(expect_rejected(&chain_of_functions(8, 65)), (21, Reason::StackSize(576)));
    assert_eq!(expect_accepted(&chain_of_functions(1, 512)), 9);
    assert_eq!(expect_rejected(&chain_of_functions(2, 264)), (3, Reason::StackSize(528)));
}

#[test]
fn there_is_a_limit_of_functions() {
    let program = |count: usize| {
        let mut insns: Vec<Insn> = Vec::new();
        for index in 1..count {
            // After the calls and the exit, each function has two instructions.
            let start = count + 2 * (index - 1);
            insns.push(call_function((start - insns.len() - 1) as i32));
        }
        insns.push(EXIT_INSN);
        (1..count).for_each(|_| insns.extend(RETURN_0));
        insns
    };
    assert_eq!(expect_accepted(&program(FUNCTIONS_MAX)), 0);
    let (insn, reason) = expect_rejected(&program(FUNCTIONS_MAX + 1));
    assert_eq!((insn, reason), (3 * FUNCTIONS_MAX - 1, Reason::Functions));
}

/// Returns a program that calls `any` `times` times, with a function of `len` instructions.
fn program_calling_any(times: usize, len: usize) -> Vec<Insn> {
    let mut insns = vec![mov_register(6, 1)];
    for index in 0..times {
        let left = 6 * (times - index) - 6 + 1;
        insns.extend([mov_register(1, 6), mov_immediate(2, 0), mov_immediate(3, 5)]);
        insns.extend(load_function_address(4, left as i32 + 2));
        insns.push(call_helper(Helper::Any));
    }
    insns.push(EXIT_INSN);
    insns.extend((0..len - 1).map(|_| mov_immediate(0, 0)));
    insns.push(EXIT_INSN);
    insns
}

#[test]
fn steps_are_counted_with_elements() {
    let program = encode_insns(&program_calling_any(2, 100));
    let steps = 14 + 2 * 100 * ELEMENTS_MAX as u64;
    let summary = verify_program(&program, Rules::new(0)).expect("accepted").summary();
    assert_eq!(summary.steps, steps);
    let limited = |steps_max| verify_program(&program, Rules { steps_max, ..Rules::new(0) });
    assert!(limited(steps).is_ok());
    let rejection = limited(steps - 1).expect_err("too many steps");
    assert_eq!(rejection.reason, Reason::Steps { steps, max: steps - 1 });
    let long = encode_insns(&program_calling_any(3, 100));
    assert!(matches!(
        verify_program(&long, Rules::new(0)).expect_err("too many steps").reason,
        Reason::Steps { max: STEPS_MAX, .. }
    ));
}

/// A helper on all elements counts the maximum number of elements as steps, once for each call of
/// its function. Inside `any`, this exceeds the step limit.
#[test]
fn steps_of_helpers_on_all_elements_are_counted() {
    for &helper in Helper::ALL.iter().filter(|helper| helper.is_of_elements()) {
        let sum = [mov_immediate(2, 0), mov_immediate(3, 5), call_helper(helper), EXIT_INSN];
        let steps = |insns: &[Insn]| {
            verify_program(&encode_insns(insns), Rules::new(0)).expect("accepted").summary().steps
        };
        assert_eq!(steps(&sum), 4 + ELEMENTS_MAX as u64);
        // The entry calls the function twice.
        let twice =
            [mov_register(6, 1), call_function(3), mov_register(1, 6), call_function(1), EXIT_INSN];
        assert_eq!(steps(&join_insns(&[&twice, &sum])), 5 + 2 * (4 + ELEMENTS_MAX as u64));
        let mut in_any = program_calling_any(1, 1);
        in_any.pop();
        in_any.extend(sum);
        let program = encode_insns(&in_any);
        let rejection = verify_program(&program, Rules::new(0)).expect_err("too many steps");
        assert!(matches!(rejection.reason, Reason::Steps { .. }), "{rejection}");
    }
}

#[test]
fn any_is_not_inside_any() {
    // The callback of `any` calls a function that calls `any`.
    let inner = program_calling_any(1, 2);
    let outer =
        join_insns(&[&program_calling_any(1, 2)[..8], &[call_function(1), EXIT_INSN], &inner]);
    assert_eq!(expect_rejected(&outer), (16, Reason::AnyInsideAny));
    // Without the outer `any`, the program is accepted.
    let called = join_insns(&[&[call_function(1), EXIT_INSN], &inner]);
    assert_eq!(expect_accepted(&called), 0);
}

#[test]
fn what_is_compared_in_place_leaves_the_frame_where_it_is() {
    let arguments = [mov_immediate(2, 0), mov_immediate(3, 0), mov_immediate(4, 0)];
    for &helper in Helper::ALL.iter().filter(|helper| helper.is_inline()) {
        let asked = join_insns(&[
            &arguments,
            &[call_helper(helper)],
            &arguments,
            &[call_helper(helper), EXIT_INSN],
        ]);
        // Without bytes, ends do not match, and a comparison returns the end offset of the bytes.
        assert_eq!(expect_accepted(&asked), helper.compared_bytes().unwrap_or(0).into());
        let lost = join_insns(&[&arguments, &[call_helper(helper), mov_register(0, 2), EXIT_INSN]]);
        assert_eq!(expect_rejected(&lost), (4, Reason::Unwritten(2)));
    }
    let compared = [
        call_helper(Helper::StringCompare),
        mov_immediate(2, 0),
        call_helper(Helper::StringHash),
        EXIT_INSN,
    ];
    let lost = join_insns(&[&arguments, &compared]);
    assert_eq!(expect_rejected(&lost), (5, Reason::Unwritten(1)));
}

#[test]
fn helpers_get_what_they_ask_for() {
    assert_eq!(
        expect_rejected(&[call_helper(Helper::StringHash), EXIT_INSN]),
        (0, Reason::Unwritten(2))
    );
    let moved = [
        alu_immediate(alu::ADD, 1, 8),
        mov_immediate(2, 0),
        call_helper(Helper::StringHash),
        EXIT_INSN,
    ];
    assert_eq!(expect_rejected(&moved), (2, Reason::NotFrame));
    let beyond = Helper::ALL.len() as i32 + 1;
    for number in [0, beyond, -1, i32::MAX] {
        let unknown = Insn { op: CALL, immediate: number, ..Insn::default() };
        assert_eq!(expect_rejected(&[unknown, EXIT_INSN]), (0, Reason::NoHelper(number)));
    }
    let no_function = [
        mov_immediate(2, 0),
        mov_immediate(3, 5),
        mov_immediate(4, 0),
        call_helper(Helper::Any),
        EXIT_INSN,
    ];
    assert_eq!(expect_rejected(&no_function), (3, Reason::NotFunction(4)));
    let tail = [
        call_function(1),
        EXIT_INSN,
        mov_immediate(2, 1),
        call_helper(Helper::TailCall),
        EXIT_INSN,
    ];
    assert_eq!(expect_rejected(&tail), (3, Reason::TailCallInFunction));
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
        let program = [mov_immediate(0, 0), insn, EXIT_INSN];
        if !known {
            assert_eq!(expect_rejected(&program), (1, Reason::Operation), "{op:#x}");
            refused += 1;
        } else if let Err(rejection) = verify_program(&encode_insns(&program), Rules::new(SLOTS)) {
            assert_ne!(rejection.reason, Reason::Operation, "{op:#x}");
        }
    }
    assert!(refused > 90, "{refused}");
    let field = |insn: Insn| {
        assert_eq!(
            expect_rejected(&[mov_immediate(0, 0), mov_immediate(3, 0), insn, EXIT_INSN]),
            (2, Reason::Field),
            "{insn:?}"
        );
    };
    field(Insn { src: 3, ..mov_immediate(0, 0) });
    field(Insn { immediate: 3, ..mov_register(0, 3) });
    field(Insn { offset: 1, ..mov_immediate(0, 0) });
    field(Insn { offset: 8, ..mov_immediate(0, 0) });
    field(Insn { offset: 24, ..mov_register(0, 3) });
    field(Insn { op: class::ALU | source::X | alu::MOV, offset: 32, ..mov_register(0, 3) });
    field(Insn { offset: 2, ..alu_immediate(alu::DIV, 0, 3) });
    field(Insn { offset: 1, ..alu_immediate(alu::ADD, 0, 3) });
    field(alu_immediate(alu::NEG, 0, 1));
    field(Insn { op: class::ALU | alu::END, ..alu_immediate(0, 0, 8) });
    field(Insn { immediate: 1, ..load_memory(size::B, 0, 1, 0) });
    field(Insn { immediate: 1, ..store_register(size::B, 10, -1, 0) });
    field(Insn { src: 1, ..store_immediate(size::B, 10, -1, 0) });
    field(Insn { dst: 1, ..jump_always(0) });
    field(Insn { immediate: 1, ..jump_always(0) });
    field(Insn { op: class::JMP32 | jump::JA, offset: 1, ..jump_always(0) });
    field(Insn { immediate: 1, ..EXIT_INSN });
    field(Insn { src: 2, ..call_helper(Helper::TimeNs) });
    field(Insn { src: call::FUNCTION, offset: 1, ..call_helper(Helper::TimeNs) });
    let [first, second] = load_immediate_64(0, 0);
    let other = [mov_immediate(0, 0), Insn { src: 1, ..first }, second, EXIT_INSN];
    assert_eq!(expect_rejected(&other), (1, Reason::Field));
}

#[test]
fn there_are_eleven_registers_and_the_last_is_not_written() {
    for insn in [mov_immediate(11, 0), Insn { op: LDDW, dst: 15, ..mov_immediate(0, 0) }] {
        assert_eq!(
            expect_rejected(&[insn, mov_immediate(0, 0), EXIT_INSN]),
            (0, Reason::Register(insn.dst))
        );
    }
    assert_eq!(expect_rejected(&[mov_register(0, 12), EXIT_INSN]), (0, Reason::Register(12)));
    let end = [mov_immediate(10, 0), mov_immediate(0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&end), (0, Reason::StackEnd));
    assert_eq!(
        expect_rejected(&[alu_immediate(alu::ADD, 10, 8), mov_immediate(0, 0), EXIT_INSN]),
        (0, Reason::StackEnd)
    );
    let compared = [mov_immediate(0, 0), jump_if(jump::JEQ, 13, 0, 0), EXIT_INSN];
    assert_eq!(expect_rejected(&compared), (1, Reason::Register(13)));
}

#[test]
fn loads_of_64_bits_have_two_halves() {
    let [first, second] = load_immediate_64(0, 5);
    assert_eq!(expect_accepted(&[first, second, EXIT_INSN]), 5);
    assert_eq!(expect_rejected(&[first]), (0, Reason::Half));
    assert_eq!(expect_rejected(&[first, EXIT_INSN]), (0, Reason::Half));
    assert_eq!(expect_rejected(&[first, Insn { dst: 1, ..second }, EXIT_INSN]), (0, Reason::Field));
    assert_eq!(expect_rejected(&[second, mov_immediate(0, 0), EXIT_INSN]), (0, Reason::Operation));
}

#[test]
fn memory_for_open_jumps_is_what_the_caller_gives() {
    // 40 jumps are open at once, each with its own target.
    let mut insns = vec![load_memory(size::DW, 0, 1, 0)];
    insns.extend((0..40).map(|index| jump_if(jump::JEQ, 0, index, 40)));
    insns.push(jump_always(40));
    insns.extend((0..39).map(|_| mov_immediate(2, 0)));
    insns.extend([mov_immediate(2, 0), EXIT_INSN]);
    let bytes = encode_insns(&insns);
    let program = Program::new(&bytes).expect("a program");
    let with = |states: usize| verify(program, Rules::new(1), &mut vec![State::FREE; states]);
    assert!(with(41).is_ok(), "{:?}", with(41).map(|_| ()));
    let rejection = with(39).expect_err("too few states");
    assert_eq!((rejection.insn, rejection.reason), (40, Reason::Memory));
    // States left over from earlier verifications have no effect.
    let mut memory = vec![State::FREE; 41];
    for _ in 0..2 {
        assert!(verify(program, Rules::new(1), &mut memory).is_ok());
        assert!(verify(program, Rules::new(0), &mut memory).is_err());
    }
}

#[test]
fn the_longest_program_is_verified() {
    let mut insns = vec![load_memory(size::DW, 0, 1, 0)];
    let jumps = INSTRUCTIONS_MAX - 2;
    insns.extend((0..jumps).map(|i| jump_if(jump::JEQ, 0, 77, (jumps - i - 1) as i16)));
    insns.push(EXIT_INSN);
    assert_eq!(expect_accepted(&insns), 1);
}

#[test]
fn a_rejection_is_told_to_people() {
    let told = |insns: &[Insn]| {
        verify_program(&encode_insns(insns), Rules::new(SLOTS)).expect_err("rejected").to_string()
    };
    assert_eq!(
        told(&[mov_immediate(0, 0), load_memory(size::DW, 0, 1, 24), EXIT_INSN]),
        "instruction 1 (r0 = *(u64 *)(r1 + 24)): it reads from byte 24 of the frame, which has 3 \
         slots of 8 bytes"
    );
    assert_eq!(
        told(&[alu_register(alu::ADD, 1, 2), EXIT_INSN]),
        "instruction 0 (r1 += r2): r1 is a pointer: only a constant can be added to it"
    );
    assert_eq!(
        told(&[call_helper(Helper::StringHash), EXIT_INSN]),
        "instruction 0 (call string_hash): r2 is not written on every path (calls lose r1 to r5)"
    );
    assert_eq!(
        told(&[mov_immediate(0, 0), jump_always(-2)]),
        "instruction 1 (goto -2): the jump does not go forward"
    );
}
