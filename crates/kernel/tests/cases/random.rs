//! Tests random programs that Trackway's verifier accepts: the kernel's verifier must accept them,
//! too, and their results and state must equal the interpreter's.

use trackway_jit::helper::Helper;
use trackway_jit::verify::Rules;
use trackway_kernel::bpf_filter::scratch::ScratchArea;
use trackway_kernel::bpf_filter::translate::translate_filter;

use super::common::generate::{Dice, SLOTS, random_input, random_program};
use super::common::{encode_insns, format_listing, interpret_programs, verify_program};
use super::load_filter;

/// The number of generated programs, and the least number that the kernel must support.
const PROGRAMS: u64 = 600;
const RUN_LEAST: usize = 150;

#[test]
fn random_programs_come_to_the_same_in_the_kernel() {
    let mut run = 0;
    for seed in 0..PROGRAMS {
        let mut dice = Dice::new(seed);
        let rules = Rules { steps_max: u64::MAX, ..Rules::new(SLOTS as usize) };
        let program = encode_insns(&random_program(&mut dice));
        let verified = verify_program(&program, rules).expect("verified");
        let input = random_input(&mut dice);
        // The kernel has its own clock and random numbers.
        let worldly = [Helper::TimeNs, Helper::Random, Helper::Rate];
        if worldly.iter().any(|&helper| verified.summary().calls(helper)) {
            continue;
        }
        let translated = match translate_filter(&verified, input.cells.len(), &input.constants) {
            Ok(translated) => translated,
            // The kernel does not support floats, tail calls and unknown arguments.
            Err(_) => continue,
        };
        let Some(loaded) = load_filter(&translated) else { return };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            // The kernel also counts the functions around the filter, and helper functions.
            Err(refused) if refused.contains("the call stack of ") => continue,
            Err(refused) => panic!("seed {seed}: {refused}\n{}", format_listing(&program)),
        };
        let mut area = ScratchArea::new(&input.constants).expect("few constants");
        area.fill(&input.slots, &input.bytes).expect("few bytes");
        loaded.passes(&mut area).expect("the kernel runs it");
        let (effect, _) = interpret_programs(std::slice::from_ref(&verified), &input);
        assert_eq!(area.result(), effect.answer, "seed {seed}\n{}", format_listing(&program));
        let cells: Vec<_> = (0..effect.cells.len()).filter_map(|cell| area.cell(cell)).collect();
        assert_eq!(cells, effect.cells, "seed {seed}\n{}", format_listing(&program));
        run += 1;
    }
    assert!(run >= RUN_LEAST, "{run} programs were run");
}
