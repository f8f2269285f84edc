//! Compares helpers in the kernel with helpers of `jit`, on valid and invalid frames; also tests
//! helpers that use the kernel's clock and random numbers.

use trackway_filter::compile::compile;
use trackway_filter::layout::{Layout, Member};
use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, class, jump, mode, size, source,
};
use trackway_jit::interpret;
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_kernel::bpf_filter::loaded_filter::LoadedFilter;
use trackway_kernel::bpf_filter::scratch::ScratchArea;
use trackway_kernel::bpf_filter::translate::{Unsupported, translate_filter};
use trackway_schema::Scalar;
use trackway_testkit::Random;

use super::load_filter;

const SLOTS: usize = 3;
const CONSTANTS: &[u8] = b"abba*b\\*a";

fn load_slot(dst: u8, slot: i16) -> Insn {
    let op = class::LDX | size::DW | mode::MEM;
    Insn { op, dst, src: 6, offset: 8 * slot, immediate: 0 }
}

fn move_register(dst: u8, src: u8) -> Insn {
    let op = class::ALU64 | alu::MOV | source::X;
    Insn { op, dst, src, ..Insn::default() }
}

fn move_immediate(dst: u8, immediate: i32) -> Insn {
    Insn { op: class::ALU64 | alu::MOV, dst, immediate, ..Insn::default() }
}

fn call_helper(helper: Helper) -> Insn {
    Insn { op: CALL, immediate: helper as i32, ..Insn::default() }
}

const EXIT_INSN: Insn = Insn { op: EXIT, dst: 0, src: 0, offset: 0, immediate: 0 };

/// Returns the call of a helper with slots 0 and 1.
fn call_helper_on_slots(helper: Helper, scalar: u8) -> Vec<Insn> {
    let mut insns = vec![move_register(6, 1), load_slot(2, 0)];
    match helper {
        Helper::Element => insns.extend([move_immediate(3, scalar.into()), load_slot(4, 1)]),
        _ if helper.is_of_elements() => insns.push(move_immediate(3, scalar.into())),
        Helper::Any => {
            insns.push(move_immediate(3, scalar.into()));
            // Skips the second half of this load, the call, and the code that `program` adds.
            let immediate = 1 + 1 + 6;
            let address = Insn { op: LDDW, dst: 4, src: LDDW_FUNCTION, immediate, ..EXIT_INSN };
            insns.extend([address, Insn::default()]);
        }
        // Some helpers that compare bytes take two numbers.
        _ if helper.arguments() > 3 => insns.extend([load_slot(3, 1), load_slot(4, 1)]),
        _ => insns.push(load_slot(3, 1)),
    }
    insns.push(call_helper(helper));
    insns
}

/// Returns a program that returns a helper's result, or compares the result with slot 2.
fn build_helper_program(helper: Helper, scalar: u8, is_compared: bool) -> Vec<u8> {
    let mut insns = call_helper_on_slots(helper, scalar);
    if is_compared {
        let equal = Insn { op: class::JMP | source::X | jump::JEQ, src: 1, offset: 2, ..EXIT_INSN };
        insns.extend([
            load_slot(1, 2),
            equal,
            move_immediate(0, 0),
            EXIT_INSN,
            move_immediate(0, 1),
            EXIT_INSN,
        ]);
    } else {
        insns.extend([
            move_register(1, 0),
            move_register(2, 0),
            move_register(3, 0),
            move_register(4, 0),
            move_register(5, 0),
            EXIT_INSN,
        ]);
    }
    if helper == Helper::Any {
        // The function of `any`: it compares a string's length, modulo 16, with the element, so it
        // calls string helpers.
        let alu =
            |code, dst, immediate| Insn { op: class::ALU64 | code, dst, immediate, ..EXIT_INSN };
        insns.extend([
            move_register(6, 1),
            move_register(7, 2),
            load_slot(2, 1),
            move_register(3, 2),
            call_helper(Helper::StringCompare),
        ]);
        insns.extend([
            load_slot(2, 1),
            alu(alu::RSH, 2, 32),
            alu(alu::AND, 2, 15),
            alu(alu::AND, 7, 15),
        ]);
        let equal = class::JMP | source::X | jump::JEQ;
        insns.push(Insn { op: equal, dst: 7, src: 2, offset: 1, immediate: 0 });
        insns.extend([EXIT_INSN, move_immediate(0, 1), EXIT_INSN]);
    }
    insns.iter().flat_map(|insn| insn.encode()).collect()
}

fn verify_program(bytes: &[u8]) -> Verified<'_> {
    let program = Program::new(bytes).expect("a program");
    let mut states = vec![State::FREE; program.len() + 1];
    let verified = verify(program, Rules::new(SLOTS), &mut states);
    verified.unwrap_or_else(|rejection| panic!("{rejection}"))
}

extern "C" fn return_zero() -> u64 {
    0
}

/// Returns the result of the interpreter.
fn run_interpreter(verified: &Verified<'_>, slots: [u64; SLOTS], bytes: &[u8]) -> u64 {
    let cells: [Cell; 0] = [];
    let environment = Environment::new(CONSTANTS, &cells, return_zero, return_zero);
    let mut frame = Frame::new(&environment, bytes);
    slots.iter().for_each(|&slot| assert!(frame.push(slot)));
    interpret::run(std::slice::from_ref(verified), &frame).expect("verified").answer
}

/// Returns slots and bytes with many repetitions, and words, some of which are invalid.
fn generate_frame(random: &mut Random, helper: Helper, scalar: u8) -> ([u64; SLOTS], Vec<u8>) {
    let length = random.next_below(64) as usize;
    let bytes: Vec<u8> = (0..length).map(|_| *random.pick(b"aaab*\\\xff")).collect();
    let mut word = || {
        let is_constant = random.next_below(4) == 0;
        let all = if is_constant { CONSTANTS.len() } else { bytes.len() } as u64;
        let offset = random.next_below(all + 1);
        let fits = random.next_below(all - offset + 1);
        let length = if random.next_below(8) == 0 { random.next() >> 40 } else { fits };
        Word { offset: offset as u32, length: length as u32, is_constant }.to_bits()
    };
    let mut slots = [word(), word(), 0];
    match helper {
        Helper::FloatCompare => {
            let special = [0.0, -0.0, 1.5, -1.5, f64::NAN, f64::INFINITY, -f64::INFINITY, 5e-324];
            let mut float = || match random.next_below(3) {
                0 => random.next(),
                _ => random.pick(&special).to_bits(),
            };
            slots = [float(), float(), 0];
        }
        Helper::Element => {
            slots[1] =
                if random.next_below(8) == 0 { random.next() } else { random.next_below(20) };
        }
        _ if helper.compared_bytes().is_some() => {
            // Often, the searched bytes are a part of the text.
            let offset = slots[0] as u32 as usize;
            let there = bytes.iter().skip(offset).take(8).rev();
            slots[1] = there
                .fold(random.next_below(2) << 7, |number, &byte| number << 8 | u64::from(byte));
        }
        _ => {}
    }
    // Most sequences have whole elements.
    let is_sequence = matches!(helper, Helper::Element | Helper::Any) || helper.is_of_elements();
    if let Some(scalar) = Scalar::from_code(scalar).filter(|_| is_sequence) {
        let shrunk = (slots[0] >> 32) / scalar.size_bytes() as u64;
        slots[0] = slots[0] & 0xffff_ffff | shrunk << 32;
    }
    (slots, bytes)
}

/// RUN a helper in the kernel on many inputs. EXPECT results equal to the interpreter's.
fn check_helper(helper: Helper, scalar: u8) -> Option<()> {
    let [asked, compared] = [false, true].map(|is| build_helper_program(helper, scalar, is));
    let (asked, compared) = (verify_program(&asked), verify_program(&compared));
    let translated = translate_filter(&compared, 0, CONSTANTS).expect("the kernel can do it");
    let loaded: LoadedFilter =
        load_filter(&translated)?.unwrap_or_else(|refused| panic!("{refused}"));
    let mut random = Random::new(u64::from(scalar) << 8 | helper as u64);
    let mut answers = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let (mut slots, bytes) = generate_frame(&mut random, helper, scalar);
        slots[2] = run_interpreter(&asked, slots, &bytes);
        answers.insert(slots[2]);
        let mut area = ScratchArea::new(CONSTANTS).expect("few constants");
        area.fill(&slots, &bytes).expect("few bytes");
        let agrees = loaded.passes(&mut area).expect("the kernel runs it");
        let word = |slot: usize| Word::from_bits(slots[slot]);
        assert!(
            agrees,
            "{} ({scalar}) of {:?} and {:?}, {:x?}, in {} is not {:#x}",
            helper.name(),
            word(0),
            word(1),
            slots,
            bytes.escape_ascii(),
            slots[2]
        );
    }
    assert!(answers.len() > 1, "{} ({scalar}) always says the same", helper.name());
    // The comparison must also find a wrong result.
    let (mut slots, bytes) = generate_frame(&mut random, helper, scalar);
    slots[2] = run_interpreter(&asked, slots, &bytes) ^ 1;
    let mut area = ScratchArea::new(CONSTANTS).expect("few constants");
    area.fill(&slots, &bytes).expect("few bytes");
    assert!(!loaded.passes(&mut area).expect("the kernel runs it"), "{}", helper.name());
    Some(())
}

#[test]
fn helpers_in_the_kernel_answer_as_the_interpreters() {
    let is_plain = |helper: &&Helper| {
        (**helper as i32) <= 9 || helper.compared_bytes().is_some() || helper.is_of_elements()
    };
    let plain = Helper::ALL.iter().filter(is_plain);
    for &helper in plain {
        let scalars: &[u8] = match helper {
            Helper::Element | Helper::Any => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 15],
            _ if helper.is_of_elements() => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15],
            _ => &[0],
        };
        for &scalar in scalars {
            if check_helper(helper, scalar).is_none() {
                return;
            }
        }
    }
}

/// RUN the translation of helpers on 32-bit float elements, which the kernel cannot widen. EXPECT
/// an error.
#[test]
fn unsupported_element_types_are_refused() {
    let bytes = build_helper_program(Helper::Element, 13, true);
    let refused = translate_filter(&verify_program(&bytes), 0, CONSTANTS).expect_err("refused");
    assert_eq!(refused, Unsupported::Argument(4, Helper::Element));
    let bytes = build_helper_program(Helper::Sum, 14, true);
    let refused = translate_filter(&verify_program(&bytes), 0, &[]).expect_err("no integers");
    assert_eq!(refused, Unsupported::Argument(3, Helper::Sum));
    let bytes = build_helper_program(Helper::FloatAdd, 0, true);
    let refused = translate_filter(&verify_program(&bytes), 0, CONSTANTS).expect_err("refused");
    assert_eq!(refused.to_string(), "instruction 3: the kernel cannot do float_add");
}

/// Returns the verdicts of a filter on repetitions of one event; `None`: BPF is not available.
fn run_filter_repeatedly(filter: &str, times: usize) -> Option<Vec<bool>> {
    let member = Member { name: "a".into(), of: Scalar::I32.into() };
    let layout = Layout { fields: vec![member], ..Layout::default() };
    let compiled = compile(filter, &layout).expect("a filter");
    let cells = compiled.filter.cells;
    let insns = &compiled.alternative.programs[0];
    let bytes: Vec<u8> = insns.iter().flat_map(|insn| insn.encode()).collect();
    let translated =
        translate_filter(&verify_program(&bytes), cells, &compiled.alternative.constants)
            .expect("the kernel can do it");
    let loaded = load_filter(&translated)?.unwrap_or_else(|refused| panic!("{refused}"));
    let mut area = ScratchArea::new(&compiled.alternative.constants).expect("few constants");
    area.fill(&[1], b"").expect("one slot");
    let take = |_| loaded.passes(&mut area).expect("the kernel runs it");
    Some((0..times).map(take).collect())
}

#[test]
fn rates_and_samples_are_by_the_kernels_clock_and_chance() {
    // An interval may end during one series of events, but not during all series.
    let expected = [true, true, false, false, false];
    let mut tries = 0;
    loop {
        let Some(taken) = run_filter_repeatedly("a == 1 && rate(2/min)", 5) else { return };
        tries += 1;
        if taken == expected {
            break;
        }
        assert!(tries < 3, "{taken:?}");
    }
    let Some(taken) = run_filter_repeatedly("sample(1/2)", 1000) else { return };
    let count = taken.iter().filter(|taken| **taken).count();
    assert!((300..700).contains(&count), "{count} of 1000");
}
