//! Automata for patterns that are known when the program is generated: each byte of a text takes
//! one step, for any pattern.
//!
//! The automaton is the one of Baeza-Yates and Gonnet ("A new approach to text searching", 1992),
//! with `*` as in Wu and Manber ("Fast text searching allowing errors", 1992): bit *i* of the state
//! means that the first *i* letters of the pattern match the text so far (the last letter has the
//! highest bit). A byte shifts each bit by one if the byte is the next letter
//! ([`Automaton::masks`]); bits before a star also stay. So matching a pattern takes one pass,
//! without backtracking.

use std::collections::BTreeMap;

use trackway_jit::helper::{Helper, Word};

use crate::bpf_filter::helper_cost::{KnownValue, StringCall};

/// Most letters of an automaton's pattern: one bit for each letter, and one bit for no letter.
pub(crate) const LETTERS_MAX: usize = 63;
/// Size of the masks of an automaton.
pub(crate) const MASKS_BYTES: usize = 8 * MASKS;
const MASKS: usize = 256;

/// An automaton that matches a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Automaton {
    /// The initial bits of the state. The last bit means that the pattern matches.
    begin: u64,
    /// The state bits before a star, which stay set at any byte.
    stay: u64,
    /// For each byte, the state bits that the byte can set.
    masks: [u64; MASKS],
}

/// The automaton of one helper call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallAutomaton {
    /// The offset of the automaton's masks.
    pub(crate) offset: i32,
    pub(crate) begin: u64,
    pub(crate) stay: u64,
}

/// The automata of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Automata {
    /// Automata by the instruction index of the call.
    pub(crate) by_call: BTreeMap<usize, CallAutomaton>,
    /// Size of all masks in bytes.
    pub(crate) masks_bytes: usize,
}

/// A pattern's letters, and flags for stars before each letter and after the last letter.
struct Letters {
    letters: Vec<u8>,
    stars: Vec<bool>,
}

impl Letters {
    /// Parses a literal part that may occur anywhere in a text.
    fn parse_part(part: &[u8]) -> Self {
        let mut stars = vec![false; part.len() + 1];
        (stars[0], stars[part.len()]) = (true, true);
        Self { letters: part.to_vec(), stars }
    }

    /// Parses a pattern: `*` is a star, `\` quotes the next byte; at the end, `\` is a literal.
    fn parse_pattern(pattern: &[u8]) -> Self {
        let (mut letters, mut stars) = (Vec::new(), vec![false]);
        let mut bytes = pattern.iter();
        while let Some(&byte) = bytes.next() {
            if byte == b'*' {
                stars[letters.len()] = true;
                continue;
            }
            let is_escape = byte == b'\\';
            letters.push(if is_escape { bytes.next().copied().unwrap_or(byte) } else { byte });
            stars.push(false);
        }
        Self { letters, stars }
    }

    /// Builds the automaton; `None`: the pattern has too many letters.
    fn build_automaton(&self) -> Option<Automaton> {
        let first = LETTERS_MAX.checked_sub(self.letters.len())?;
        let stars = (first..).zip(&self.stars).filter(|(_, is_there)| **is_there);
        let stay = stars.fold(0, |bits, (at, _)| bits | 1 << at);
        let mut masks = [0; MASKS];
        for (at, &letter) in (first + 1..).zip(&self.letters) {
            masks[usize::from(letter)] |= 1 << at;
        }
        Some(Automaton { begin: 1 << first, stay, masks })
    }
}

/// Returns the automaton of a call with a known pattern.
fn automaton_of_call(call: &StringCall, constants: &[u8]) -> Option<Automaton> {
    let KnownValue::Constant(bits) = call.other else { return None };
    let word = Word::from_bits(bits);
    if !word.is_constant {
        return None;
    }
    // An invalid word counts as an empty pattern.
    let (offset, length) = (word.offset as usize, word.length as usize);
    let pattern = constants.get(offset..).and_then(|rest| rest.get(..length)).unwrap_or(&[]);
    match call.helper {
        Helper::StringContains => Letters::parse_part(pattern).build_automaton(),
        Helper::StringMatches => Letters::parse_pattern(pattern).build_automaton(),
        _ => None,
    }
}

impl Automata {
    /// Builds the automata of these calls and their masks, [`MASKS_BYTES`] bytes for each
    /// automaton. The number of mask tables is a power of two, or zero.
    pub(crate) fn build(calls: &[StringCall], constants: &[u8]) -> (Self, Vec<u8>) {
        let mut known: Vec<Automaton> = Vec::new();
        let mut by_call = BTreeMap::new();
        for call in calls {
            let Some(automaton) = automaton_of_call(call, constants) else { continue };
            let number = known.iter().position(|other| *other == automaton).unwrap_or(known.len());
            let offset = (number * MASKS_BYTES) as i32;
            by_call.insert(
                call.at,
                CallAutomaton { offset, begin: automaton.begin, stay: automaton.stay },
            );
            if number == known.len() {
                known.push(automaton);
            }
        }
        let bytes = |automaton: &Automaton| automaton.masks.map(u64::to_le_bytes).concat();
        let mut masks: Vec<u8> = known.iter().flat_map(bytes).collect();
        if !known.is_empty() {
            masks.resize(known.len().next_power_of_two() * MASKS_BYTES, 0);
        }
        (Self { by_call, masks_bytes: masks.len() }, masks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Automaton {
        fn passes(&self, text: &[u8]) -> bool {
            let step = |bits: u64, &byte: &u8| {
                bits << 1 & self.masks[usize::from(byte)] | bits & self.stay
            };
            text.iter().fold(self.begin, step) >> 63 != 0
        }
    }

    /// Returns all texts of at most `length` bytes from the set `of`.
    fn all_texts_of(of: &[u8], length: usize) -> Vec<Vec<u8>> {
        let mut all = vec![Vec::new()];
        let mut last = 0;
        for _ in 0..length {
            let end = all.len();
            for at in last..end {
                let text = all[at].clone();
                all.extend(of.iter().map(|&byte| [&text[..], &[byte]].concat()));
            }
            last = end;
        }
        all
    }

    /// Returns true if a text matches a pattern, by plain recursion.
    fn matches_by_recursion(text: &[u8], pattern: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => {
                (0..=text.len()).any(|start| matches_by_recursion(&text[start..], rest))
            }
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                text.first() == Some(byte) && matches_by_recursion(&text[1..], rest)
            }
        }
    }

    #[test]
    fn all_short_patterns_take_what_they_say() {
        let (texts, patterns) = (all_texts_of(b"ab*\\", 4), all_texts_of(b"a*b\\", 5));
        for pattern in &patterns {
            let automaton = Letters::parse_pattern(pattern).build_automaton().expect("few letters");
            let part = Letters::parse_part(pattern).build_automaton().expect("few letters");
            for text in &texts {
                assert_eq!(
                    automaton.passes(text),
                    matches_by_recursion(text, pattern),
                    "{} in {}",
                    pattern.escape_ascii(),
                    text.escape_ascii()
                );
                let is_there = text.windows(pattern.len().max(1)).any(|part| part == pattern);
                assert_eq!(part.passes(text), pattern.is_empty() || is_there);
            }
        }
    }

    #[test]
    fn a_pattern_has_so_many_letters_and_no_more() {
        let most = [b'a'; LETTERS_MAX];
        let automaton = Letters::parse_pattern(&most).build_automaton().expect("just as many");
        assert!(automaton.passes(&most) && !automaton.passes(&most[1..]));
        assert_eq!(Letters::parse_pattern(&[b'a'; LETTERS_MAX + 1]).build_automaton(), None);
        let escaped = [b"\\*".repeat(LETTERS_MAX), b"***".to_vec()].concat();
        let automaton = Letters::parse_pattern(&escaped).build_automaton().expect("few letters");
        assert!(automaton.passes(&[b'*'; 100]) && !automaton.passes(&[b'*'; 62]));
    }

    #[test]
    fn equal_automata_are_shared() {
        let call = |at, helper, offset, length| {
            let word = Word { offset, length, is_constant: true };
            let other = KnownValue::Constant(word.to_bits());
            StringCall { at, helper, text: KnownValue::Unknown, other, times: 1 }
        };
        let calls = [
            call(3, Helper::StringContains, 1, 2),
            call(5, Helper::StringMatches, 0, 4),
            call(7, Helper::StringMatches, 1, 2),
            call(9, Helper::StringCompare, 1, 2),
            call(11, Helper::StringMatches, 3, 2),
        ];
        let (automata, masks) = Automata::build(&calls, b"*ab*");
        let offsets: Vec<_> =
            automata.by_call.iter().map(|(at, place)| (*at, place.offset)).collect();
        let bytes = MASKS_BYTES as i32;
        assert_eq!(offsets, [(3, 0), (5, 0), (7, bytes), (11, 2 * bytes)]);
        assert_eq!((automata.masks_bytes, masks.len()), (4 * MASKS_BYTES, 4 * MASKS_BYTES));
        assert!(Automata::build(&calls[3..4], b"*ab*").1.is_empty());
    }
}
