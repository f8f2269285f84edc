//! Checks machine code with an independent decoder: every byte belongs to an instruction, every
//! jump leads to an instruction of the code, and simple programs have short code.
#![cfg(target_arch = "x86_64")]

mod common;

use std::collections::BTreeSet;

use common::asm::{
    EXIT_INSN, alu_immediate, call_function, call_helper, jump_always, jump_if,
    load_function_address, load_memory, mov_immediate, mov_register, store_immediate,
};
use common::generate::{Dice, SLOTS, random_program};
use common::{Machine, encode_insns, format_listing, verify_program};
use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, Instruction, Mnemonic, NasmFormatter, OpKind,
    Register,
};
use trackway_jit::frame::{Environment, Frame};
use trackway_jit::helper::Helper;
use trackway_jit::insn::{Insn, alu, jump, size};
use trackway_jit::verify::Rules;
use trackway_jit::x86::{EmitError, emit_program};

fn compile_insns(insns: &[Insn]) -> Machine {
    let bytes = encode_insns(insns);
    let rules = Rules { steps_max: u64::MAX, ..Rules::new(SLOTS as usize) };
    let rejected = |rejection| panic!("{rejection}\n{}", format_listing(&bytes));
    Machine::new(&verify_program(&bytes, rules).unwrap_or_else(rejected))
}

fn disassemble_code(code: &[u8]) -> Vec<Instruction> {
    Decoder::with_ip(64, code, 0, DecoderOptions::NONE).iter().collect()
}

/// Formats code as text, one instruction per line.
fn format_disassembly(code: &[u8]) -> String {
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_branch_leading_zeros(false);
    let mut lines = String::new();
    for instruction in disassemble_code(code) {
        formatter.format(&instruction, &mut lines);
        lines.push('\n');
    }
    lines
}

#[test]
fn code_is_whole_instructions_and_jumps_lead_to_their_beginnings() {
    for seed in 0..400 {
        let insns = random_program(&mut Dice::new(seed + 5_000_000));
        let Machine { code, places, .. } = &compile_insns(&insns);
        let instructions = disassemble_code(code);
        let starts: BTreeSet<u64> =
            instructions.iter().map(|instruction| instruction.ip()).collect();
        assert_eq!(instructions.last().map(|last| last.next_ip()), Some(code.len() as u64));
        for instruction in &instructions {
            assert_ne!(instruction.code(), Code::INVALID, "seed {seed}");
            let is_near = instruction.is_jcc_short_or_near()
                || instruction.is_jmp_short_or_near()
                || instruction.is_call_near();
            if is_near {
                let target = instruction.near_branch_target();
                assert!(starts.contains(&target), "seed {seed}: {instruction} goes to {target}");
                assert!(target > instruction.ip(), "forward only");
            }
            if instruction.memory_base() == Register::RIP {
                let target = instruction.memory_displacement64();
                let landing = &code[target as usize..][..4];
                assert_eq!(landing, [0xf3, 0x0f, 0x1e, 0xfa], "a callback begins with endbr64");
            }
        }
        // Each offset is the start of an instruction, in order, up to the end.
        assert!(places.is_sorted());
        assert_eq!((places[0], places[insns.len()]), (0, code.len() as u32));
        let inside = &places[..insns.len()];
        assert!(
            inside
                .iter()
                .all(|&place| starts.contains(&place.into()) || place as usize == code.len())
        );
    }
}

/// Machine code restores the stack on every exit path.
#[test]
fn pushes_and_pops_are_even() {
    for seed in 0..200 {
        let insns = random_program(&mut Dice::new(seed + 6_000_000));
        let mut pushed: Vec<Register> = Vec::new();
        let mut popped = 0;
        for instruction in disassemble_code(&compile_insns(&insns).code) {
            match instruction.mnemonic() {
                Mnemonic::Endbr64 => {}
                Mnemonic::Push if popped == 0 => pushed.push(instruction.op0_register()),
                Mnemonic::Push => {
                    pushed = vec![instruction.op0_register()];
                    popped = 0;
                }
                Mnemonic::Pop => {
                    popped += 1;
                    let expected = pushed[pushed.len() - popped];
                    assert_eq!(instruction.op0_register(), expected, "seed {seed}");
                }
                Mnemonic::Leave => {
                    popped += 1;
                    assert_eq!(pushed[pushed.len() - popped], Register::RBP);
                }
                Mnemonic::Ret => assert_eq!(popped, pushed.len(), "seed {seed}"),
                _ => {}
            }
        }
    }
}

/// Comparisons of string ends: no call, only argument registers, one end for all branches.
#[test]
fn edges_are_compared_in_the_place_of_a_call() {
    let code = compile_insns(&[
        mov_immediate(2, 0),
        mov_immediate(3, 1),
        mov_immediate(4, 2),
        call_helper(Helper::StringEdges2),
        EXIT_INSN,
    ]);
    let expected = "\
endbr64
xor esi,esi
mov edx,1
mov ecx,2
mov eax,esi
shr rsi,20h
cmp esi,2
jb short 36h
mov r9,[rdi-18h]
add rsi,rax
cmp rsi,[rdi-10h]
ja short 36h
xor dx,[r9+rax]
xor cx,[r9+rsi-2]
or dx,cx
sete al
movzx eax,al
ret
";
    assert_eq!(format_disassembly(&code.code), expected);
}

/// The reference filter for code size: predicates on integers, one after another.
#[test]
fn a_predicate_is_a_load_a_comparison_and_a_short_jump() {
    let code = compile_insns(&[
        load_memory(size::DW, 2, 1, 0),
        jump_if(jump::JLE, 2, 500, 4),
        load_memory(size::DW, 2, 1, 8),
        jump_if(jump::JNE, 2, 0, 2),
        mov_immediate(0, 1),
        EXIT_INSN,
        mov_immediate(0, 0),
        EXIT_INSN,
    ]);
    let expected = "\
        endbr64\n\
        mov rsi,[rdi]\n\
        cmp rsi,1F4h\n\
        jbe short 1Fh\n\
        mov rsi,[rdi+8]\n\
        test rsi,rsi\n\
        jne short 1Fh\n\
        mov eax,1\n\
        ret\n\
        xor eax,eax\n\
        ret\n";
    assert_eq!(format_disassembly(&code.code), expected);
}

#[test]
fn only_what_is_used_is_saved() {
    let code = compile_insns(&[
        mov_register(6, 1),
        call_helper(Helper::Random),
        load_memory(size::W, 1, 6, 4),
        mov_immediate(9, -1),
        store_immediate(size::DW, 10, -24, 7),
        EXIT_INSN,
    ]);
    let text = format_disassembly(&code.code);
    let lines: Vec<&str> = text.lines().collect();
    // 24 bytes, and 8 bytes of padding: with the return address and three registers there would be
    // 7 words, and calls need an even number.
    let begins = ["endbr64", "push rbp", "mov rbp,rsp", "sub rsp,20h", "push rbx", "push r15"];
    assert_eq!(lines[..6], begins);
    assert!(text.ends_with("pop r15\npop rbx\nleave\nret\n"), "{text}");
    // Functions without a stack have none, except to align calls.
    let plain = compile_insns(&[call_helper(Helper::Random), EXIT_INSN]);
    let text = self::format_disassembly(&plain.code);
    assert!(text.starts_with("endbr64\npush rax\nmov "), "{text}");
    assert!(text.ends_with("call rax\npop rcx\nret\n"), "{text}");
}

/// Jumps use the shortest encoding, on both sides of the limit for short jumps.
#[test]
fn short_jumps_reach_127_bytes() {
    for (count, is_short) in [(31, true), (32, false)] {
        // Each addition takes four bytes; a return follows.
        let mut insns = vec![mov_immediate(0, 0), jump_if(jump::JEQ, 0, 0, count)];
        insns.extend((0..count).map(|_| alu_immediate(alu::ADD, 0, 1)));
        insns.push(EXIT_INSN);
        let code = compile_insns(&insns).code;
        let jump = disassemble_code(&code).into_iter().find(|i| i.mnemonic() == Mnemonic::Je);
        let is = jump.map(|jump| jump.op0_kind() == OpKind::NearBranch64 && jump.len() == 2);
        assert_eq!(is, Some(is_short), "{count}");
    }
}

/// The stack is aligned to 16 bytes at every call, as signals and helpers require.
#[test]
fn the_stack_is_aligned_at_calls() {
    /// Returns the stack pointer modulo 16: 8 if aligned, because of the return address.
    #[unsafe(naked)]
    extern "C" fn stack_misalignment() -> u64 {
        core::arch::naked_asm!("mov rax, rsp", "and rax, 15", "ret")
    }
    let environment = Environment::new(&[], &[], stack_misalignment, stack_misalignment);
    for saved in 0..16 {
        for stack in [0, 8, 16] {
            let body = |last: &[Insn]| {
                let mut insns: Vec<Insn> = (6..10)
                    .filter(|r| saved >> (r - 6) & 1 != 0)
                    .map(|r| mov_immediate(r, 1))
                    .collect();
                if stack > 0 {
                    insns.push(store_immediate(size::DW, 10, -stack, 1));
                }
                [&insns[..], last].concat()
            };
            // Calls from the program, from its function, and from that function called by `any`.
            let inner = body(&[call_helper(Helper::TimeNs), EXIT_INSN]);
            let mut outer = vec![load_memory(size::DW, 2, 1, 0), mov_immediate(3, 5)];
            outer.extend(load_function_address(4, 3));
            outer.extend([call_helper(Helper::Any), EXIT_INSN]);
            let function = body(&[call_function(1), EXIT_INSN]);
            let direct = compile_insns(&inner);
            let within = compile_insns(&[&function[..], &inner].concat());
            // `any` returns true for nonzero answers: for an aligned stack, 8 − 8 is 0.
            let mut element = inner.clone();
            element.pop();
            element.extend([alu_immediate(alu::SUB, 0, 8), EXIT_INSN]);
            let any = compile_insns(&[&outer[..], &element].concat());
            let bytes = [1, 2];
            let mut frame = Frame::new(&environment, &bytes);
            for _ in 0..SLOTS {
                frame.push(2 << 32);
            }
            // SAFETY: the machine code belongs to verified programs, and is in executable pages.
            let run = |machine: &Machine| unsafe { frame.run(machine.entry(), 1) };
            assert_eq!((run(&direct), run(&within), run(&any)), (8, 8, 0), "{saved:b} {stack}");
        }
    }
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    let bytes = encode_insns(&[mov_immediate(0, 1), jump_always(0), EXIT_INSN]);
    let verified = verify_program(&bytes, Rules::new(0)).expect("accepted");
    let mut places = [0; 4];
    let size = emit_program(&verified, &mut [0; 100], &mut places).expect("room").size_bytes;
    assert_eq!(size, 4 + 5 + 1);
    for room in 0..size {
        let result = emit_program(&verified, &mut vec![0; room], &mut places);
        assert_eq!(result.err(), Some(EmitError::NoRoom));
    }
    let code = emit_program(&verified, &mut vec![0; size], &mut places).expect("just enough");
    assert_eq!((code.range(0), code.range(1)), (Some(0..9), Some(9..9)));
    assert_eq!((code.range(2), code.range(3)), (Some(9..10), None));
    let mut few = [0; 3];
    let result = emit_program(&verified, &mut [0; 100], &mut few);
    assert_eq!(result.err(), Some(EmitError::NoRoom));
}

/// The code has the same bytes at different addresses.
#[test]
fn code_does_not_depend_on_its_place() {
    let insns = random_program(&mut Dice::new(77));
    let (one, other) = (compile_insns(&insns), compile_insns(&insns));
    assert_ne!(one.entry() as usize, other.entry() as usize);
    assert_eq!(one.code, other.code);
}

/// Comparisons of bytes with numbers: no call, only argument registers.
#[test]
fn bytes_are_compared_in_the_place_of_a_call() {
    let code = |helper| {
        let code = compile_insns(&[
            mov_immediate(2, 0),
            mov_immediate(3, 1),
            mov_immediate(4, 2),
            call_helper(helper),
            EXIT_INSN,
        ])
        .code;
        let code = format_disassembly(&code);
        let behind = code.split_once("mov ecx,2\n").expect("arguments").1;
        behind.strip_suffix("ret\n").expect("an end").to_owned()
    };
    let before = |count: u8, out: u8| {
        format!("mov esi,esi\nlea rax,[rsi+{count}]\ncmp rax,[rdi-10h]\nja short {out:X}h\n")
    };
    let expected = [
        (Helper::BytesDiffer1, "xor dl,[rsi]\nmovzx eax,dl\n"),
        (Helper::BytesDiffer3, "xor dx,[rsi]\nxor cx,[rsi+1]\nor edx,ecx\nmovzx eax,dx\n"),
        (Helper::BytesDiffer4, "xor edx,[rsi]\nmov eax,edx\n"),
        (Helper::BytesDiffer8, "xor rdx,[rsi]\nmov rax,rdx\n"),
    ];
    let add = "add rsi,[rdi-18h]\n";
    for ((helper, then), out) in expected.into_iter().zip([0x25, 0x2c, 0x24, 0x26]) {
        let count = helper.compared_bytes().expect("some");
        assert_eq!(code(helper), before(count, out) + add + then);
    }
    let long = "xor rdx,[rsi]\nxor ecx,[rsi+5]\nor rdx,rcx\nmov rax,rdx\n";
    assert_eq!(code(Helper::BytesDiffer9), before(9, 0x2c) + add + long);
    let longest = "xor rdx,[rsi]\nxor rcx,[rsi+8]\nor rdx,rcx\nmov rax,rdx\n";
    let start = format!("mov esi,esi\nlea rax,[rsi+10h]\ncmp rax,[rdi-10h]\nja short 2Dh\n{add}");
    assert_eq!(code(Helper::BytesDiffer16), start + longest);
}
