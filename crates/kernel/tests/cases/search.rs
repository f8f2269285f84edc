//! Compares search and comparison in the kernel with the interpreter, in hard cases, with patterns
//! known at generation and unknown patterns.

use std::iter::{once, repeat_n};

use trackway_jit::frame::{Cell, Environment, Frame};
use trackway_jit::helper::{Helper, Word};
use trackway_jit::insn::{CALL, EXIT, Insn, LDDW, class, mode, size};
use trackway_jit::interpret;
use trackway_jit::program::Program;
use trackway_jit::verify::{Rules, State, Verified, verify};
use trackway_kernel::bpf_filter::loaded_filter::LoadedFilter;
use trackway_kernel::bpf_filter::scratch::{REGION_BYTES, ScratchArea};
use trackway_kernel::bpf_filter::translate::translate_filter;
use trackway_testkit::Random;

use super::load_filter;

const SLOTS: usize = 2;
const HELPERS: [Helper; 2] = [Helper::StringContains, Helper::StringMatches];

const fn load_slot(dst: u8, slot: i16) -> Insn {
    let op = class::LDX | size::DW | mode::MEM;
    Insn { op, dst, src: 1, offset: 8 * slot, immediate: 0 }
}

/// Returns a program that calls a helper with slot 0, and with a constant word or slot 1.
fn build_helper_program(helper: Helper, pattern: Option<Word>) -> Vec<u8> {
    let mut insns = vec![load_slot(2, 0)];
    match pattern.map(Word::to_bits) {
        Some(bits) => {
            insns.push(Insn { op: LDDW, dst: 3, immediate: bits as i32, ..Insn::default() });
            insns.push(Insn { immediate: (bits >> 32) as i32, ..Insn::default() });
        }
        None => insns.push(load_slot(3, 1)),
    }
    insns.push(Insn { op: CALL, immediate: helper as i32, ..Insn::default() });
    insns.push(Insn { op: EXIT, ..Insn::default() });
    insns.iter().flat_map(|insn| insn.encode()).collect()
}

fn verify_program(bytes: &[u8]) -> Verified<'_> {
    let program = Program::new(bytes).expect("a program");
    let mut states = vec![State::FREE; program.len() + 1];
    verify(program, Rules::new(SLOTS), &mut states).expect("verified")
}

extern "C" fn return_zero() -> u64 {
    0
}

/// Returns the result of the interpreter.
fn run_interpreter(
    verified: &Verified<'_>,
    slots: [u64; SLOTS],
    bytes: &[u8],
    constants: &[u8],
) -> u64 {
    let cells: [Cell; 0] = [];
    let environment = Environment::new(constants, &cells, return_zero, return_zero);
    let mut frame = Frame::new(&environment, bytes);
    slots.iter().for_each(|&slot| assert!(frame.push(slot)));
    interpret::run(std::slice::from_ref(verified), &frame).expect("verified").answer
}

/// The numbers of false and true results.
type ResultCounts = [usize; 2];

/// RUN a helper with a constant pattern on all these texts. EXPECT results equal to the
/// interpreter's. `None`: BPF is not available.
fn check_constant_pattern(
    helper: Helper,
    pattern: &[u8],
    texts: &[Vec<u8>],
) -> Option<ResultCounts> {
    let word = Word { offset: 1, length: pattern.len() as u32, is_constant: true };
    let constants = [b"*", pattern, b"a*"].concat();
    let bytes = build_helper_program(helper, Some(word));
    let verified = verify_program(&bytes);
    let translated = translate_filter(&verified, 0, &constants).expect("the kernel can do it");
    let loaded: LoadedFilter =
        load_filter(&translated)?.unwrap_or_else(|refused| panic!("{refused}"));
    let mut area = ScratchArea::new(&constants).expect("few constants");
    let mut answers = [0; 2];
    for text in texts {
        // Bytes that would match, too, follow the text.
        let bytes = [b"b", &text[..], b"abaababaab"].concat();
        let bytes = &bytes[..bytes.len().min(REGION_BYTES)];
        let length = text.len().min(bytes.len() - 1) as u32;
        let slots = [Word { offset: 1, length, is_constant: false }.to_bits(), 0];
        let expected = run_interpreter(&verified, slots, bytes, &constants);
        area.fill(&slots, bytes).expect("few bytes");
        let found = loaded.passes(&mut area).expect("the kernel runs it");
        assert_eq!(area.result(), expected, "{}: {}", helper.name(), format_search(text, pattern));
        answers[usize::from(found)] += 1;
    }
    Some(answers)
}

/// A loaded helper whose pattern is in the event, not a constant.
struct LoadedHelper {
    helper: Helper,
    program: Vec<u8>,
    loaded: LoadedFilter,
    area: ScratchArea,
    answers: ResultCounts,
}

impl LoadedHelper {
    fn new(helper: Helper) -> Option<Self> {
        let program = build_helper_program(helper, None);
        let translated =
            translate_filter(&verify_program(&program), 0, b"").expect("the kernel can do it");
        let loaded = load_filter(&translated)?.unwrap_or_else(|refused| panic!("{refused}"));
        let area = ScratchArea::new(b"").expect("few constants");
        Some(Self { helper, program, loaded, area, answers: [0; 2] })
    }

    /// RUN the helper with a pattern and a text in the event. EXPECT the interpreter's result.
    fn check(&mut self, text: &[u8], pattern: &[u8]) {
        let word = |offset: usize, length: usize| {
            let (offset, length) = (offset as u32, length as u32);
            Word { offset, length, is_constant: false }.to_bits()
        };
        let slots = [word(pattern.len(), text.len()), word(0, pattern.len())];
        let bytes = [pattern, text].concat();
        let expected = run_interpreter(&verify_program(&self.program), slots, &bytes, b"");
        self.area.fill(&slots, &bytes).expect("few bytes");
        let found = self.loaded.passes(&mut self.area).expect("the kernel runs it");
        let answer = self.area.result();
        assert_eq!(answer, expected, "{}: {}", self.helper.name(), format_search(text, pattern));
        self.answers[usize::from(found)] += 1;
    }
}

fn format_search(text: &[u8], pattern: &[u8]) -> String {
    format!("'{}' in '{}'", pattern.escape_ascii(), text.escape_ascii())
}

/// Returns the beginning of the Fibonacci string, whose prefixes are the worst case of Knuth,
/// Morris and Pratt's search.
fn fibonacci_string(length: usize) -> Vec<u8> {
    let (mut before, mut now) = (b"a".to_vec(), b"ab".to_vec());
    while now.len() < length {
        let next = [&now[..], &before].concat();
        before = std::mem::replace(&mut now, next);
    }
    now.truncate(length);
    now
}

/// Returns texts and patterns that almost match everywhere.
fn worst_case_inputs() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let same = |length: usize| repeat_n(b'a', length).collect::<Vec<u8>>();
    let mut texts: Vec<Vec<u8>> = Vec::new();
    for length in [0, 1, 15, 16, 17, 63, 64, 65, 255, 1022, 1023] {
        texts.extend([same(length), fibonacci_string(length), b"ab".repeat(length.div_ceil(2))]);
        texts.push(same(length.saturating_sub(1)).into_iter().chain(once(b'b')).collect());
        texts.push(once(b'b').chain(same(length)).collect());
    }
    let mut patterns: Vec<Vec<u8>> = Vec::new();
    for length in [0, 1, 2, 15, 16, 30, 61, 62, 63, 64, 65, 200, 500] {
        let end = |byte: u8| same(length).into_iter().chain(once(byte)).collect::<Vec<u8>>();
        patterns.extend([same(length), end(b'b'), fibonacci_string(length), end(b'*')]);
        patterns.push([&fibonacci_string(length)[..], b"b"].concat());
        patterns.push([b"*", &end(b'b')[..], b"*"].concat());
        patterns.push([b"*", &fibonacci_string(length)[..]].concat());
    }
    let stars: [&[u8]; 12] = [
        b"*",
        b"**",
        b"*a*a*a*a*a*b",
        b"*a*b*aab*",
        b"a*b",
        b"b*a",
        b"*ab*ab*ab",
        b"\\*",
        b"*\\**",
        b"a\\",
        b"*\\a\\b*",
        b"\\",
    ];
    patterns.extend(stars.map(<[u8]>::to_vec));
    let half = [same(30), b"*".to_vec(), same(33), b"*".to_vec()].concat();
    patterns.extend([half.repeat(8), [&half[..], b"b"].concat(), b"\\a".repeat(63)]);
    (texts, patterns)
}

#[test]
fn the_worst_texts_are_searched_as_the_interpreter_does() {
    let (texts, patterns) = worst_case_inputs();
    for helper in HELPERS {
        let Some(mut asked) = LoadedHelper::new(helper) else { return };
        let mut known = [0; 2];
        for pattern in &patterns {
            let Some(answers) = check_constant_pattern(helper, pattern, &texts) else { return };
            known = [known[0] + answers[0], known[1] + answers[1]];
            texts.iter().for_each(|text| asked.check(text, pattern));
        }
        println!("{}: {known:?}, {:?}", helper.name(), asked.answers);
        assert!(known.iter().chain(&asked.answers).all(|&count| count > 500), "{known:?}");
    }
}

/// Returns random bytes of a small alphabet, which may include stars and escapes.
fn random_bytes(random: &mut Random, most: u64, of: &[u8]) -> Vec<u8> {
    let length = random.next_below(most + 1);
    (0..length).map(|_| *random.pick(of)).collect()
}

/// The alphabets of patterns and texts.
const PATTERN_LETTERS: [&[u8]; 3] = [b"ab", b"aaab*", b"aab**\\"];
const TEXT_LETTERS: [&[u8]; 3] = [b"ab", b"ab", b"ab*\\"];

/// Returns a random pattern, and texts of which some may match.
fn random_pattern_and_texts(random: &mut Random, texts: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let most = *random.pick(&[3, 6, 12, 70]);
    let of = *random.pick(&PATTERN_LETTERS);
    let pattern = random_bytes(random, most, of);
    let text = |random: &mut Random| {
        let mut text = Vec::new();
        for &byte in &pattern {
            match byte {
                b'*' => text.extend(random_bytes(random, 5, b"ab")),
                _ => text.push(byte),
            }
        }
        match random.next_below(3) {
            0 => text,
            1 => {
                let (before, behind) =
                    (random_bytes(random, 40, b"ab"), random_bytes(random, 40, b"ab"));
                [before, text, behind].concat()
            }
            _ => {
                let of = *random.pick(&TEXT_LETTERS);
                random_bytes(random, 200, of)
            }
        }
    };
    let texts = (0..texts).map(|_| text(random)).collect();
    (pattern, texts)
}

#[test]
fn random_patterns_of_two_letters_are_found_as_the_interpreter_does() {
    let mut random = Random::new(0x7e87);
    for helper in HELPERS {
        let Some(mut asked) = LoadedHelper::new(helper) else { return };
        let mut known = [0; 2];
        for _ in 0..200 {
            let (pattern, texts) = random_pattern_and_texts(&mut random, 40);
            let Some(answers) = check_constant_pattern(helper, &pattern, &texts) else { return };
            known = [known[0] + answers[0], known[1] + answers[1]];
        }
        for _ in 0..4000 {
            let (pattern, texts) = random_pattern_and_texts(&mut random, 3);
            texts.iter().for_each(|text| asked.check(text, &pattern));
        }
        println!("{}: {known:?}, {:?}", helper.name(), asked.answers);
        assert!(known.iter().chain(&asked.answers).all(|&count| count > 500), "{known:?}");
    }
}

/// RUN searches in texts of the greatest length, which fill the table. EXPECT correct results.
#[test]
fn the_longest_texts_are_searched() {
    let halves = [b'a'; REGION_BYTES / 2];
    let quarter = &fibonacci_string(REGION_BYTES)[..REGION_BYTES / 4];
    for helper in HELPERS {
        let Some(mut asked) = LoadedHelper::new(helper) else { return };
        asked.check(&halves, &halves);
        asked.check(&[], &[b'*'; REGION_BYTES]);
        asked.check(&[], &[b'a'; REGION_BYTES]);
        asked.check(&[b'a'; REGION_BYTES], &[]);
        asked.check(&[quarter, quarter, b"b"].concat(), quarter);
        asked.check(&[quarter, quarter].concat(), &[b"*", quarter].concat());
        assert!(asked.answers.iter().all(|&count| count > 1), "{:?}", asked.answers);
        // A single string takes all constants and all letters.
        let constants = fibonacci_string(REGION_BYTES);
        let word = Word { offset: 0, length: REGION_BYTES as u32, is_constant: true };
        let bytes = build_helper_program(helper, Some(word));
        let translated =
            translate_filter(&verify_program(&bytes), 0, &constants).expect("the kernel can do it");
        let Some(loaded) = load_filter(&translated) else { return };
        let loaded = loaded.unwrap_or_else(|refused| panic!("{refused}"));
        let mut area = ScratchArea::new(&constants).expect("just as many");
        for (bytes, is_there) in [(&constants[..], true), (&constants[1..], false)] {
            let length = bytes.len() as u32;
            let text = Word { offset: 0, length, is_constant: false };
            area.fill(&[text.to_bits(), 0], bytes).expect("just as many");
            assert_eq!(loaded.passes(&mut area).expect("the kernel runs it"), is_there);
        }
        // The search runs to the end of a constant, after which there are no bytes.
        area.fill(&[word.to_bits(), 0], &[]).expect("nothing");
        assert!(loaded.passes(&mut area).expect("the kernel runs it"));
    }
}

/// RUN comparisons of strings that differ at each position, with lengths around the chunk size.
/// EXPECT the interpreter's results.
#[test]
fn strings_are_compared_wherever_they_differ() {
    for helper in [Helper::StringCompare, Helper::StringStartsWith, Helper::StringEndsWith] {
        let Some(mut asked) = LoadedHelper::new(helper) else { return };
        let letters = fibonacci_string(40);
        for length in 0..letters.len() {
            let text = &letters[..length];
            for other in (0..length + 2).filter_map(|other| letters.get(..other)) {
                asked.check(text, other);
            }
            for at in 0..length {
                asked.check(text, &text[at..]);
                for byte in [0, b'a', b'b', 0xff] {
                    let mut other = text.to_vec();
                    other[at] = byte;
                    asked.check(text, &other);
                }
            }
        }
        assert!(asked.answers.iter().all(|&count| count > 20), "{:?}", asked.answers);
    }
}
