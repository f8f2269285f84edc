//! Questions: chains of predicates that no compiler can shorten, as text for a filter, as C, and as
//! values of an event that make each predicate true or false.
//!
//! Main invariant: predicate n reads only slot n and a separate constant; the C function tests the
//! same slots in the same order.

use std::fmt::Write as _;

use trackway_filter::layout::{Layout, Member, Type};
use trackway_jit::helper::Word;
use trackway_schema::Scalar;

use super::chains::{Chain, Operands};

/// Types of integer fields; field n has type n modulo their number.
const SCALARS: [Scalar; 4] = [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
/// Operators; predicate n has operator n modulo their number. There are five, so that each operator
/// occurs with each type.
const OPERATORS: [&str; 5] = ["==", "<", ">=", "!=", ">"];
/// Length of the shortest string, in bytes, and number of different lengths.
const STRING_BYTES: (usize, usize) = (8, 5);

/// A filter, as a chain of predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    /// The operands of the predicates.
    pub(super) operands: Operands,
    /// True if one true predicate is enough.
    pub(super) is_or: bool,
    /// Number of predicates; 64 at most.
    pub(super) predicates: usize,
}

/// The values of an event that a filter reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// A slot for each predicate.
    pub(super) slots: Vec<u64>,
    /// Bytes of the strings to which words in the slots refer.
    pub(super) bytes: Vec<u8>,
}

impl Question {
    /// Returns the question of a chain.
    pub(super) const fn of(operands: Operands, chain: Chain, predicates: usize) -> Self {
        Self { operands, is_or: chain.is_or(), predicates }
    }

    /// Returns the filter as text.
    pub(super) fn text(self) -> String {
        let one = |number| match self.operands {
            Operands::Integers => {
                format!("f{number} {} {}", operator_of_field(number), constant_of_field(number))
            }
            Operands::Strings => format!("f{number} == \"{}\"", string_of_field(number)),
        };
        let all: Vec<String> = (0..self.predicates).map(one).collect();
        all.join(if self.is_or { " || " } else { " && " })
    }

    /// Returns the layout of the filter's events.
    pub(super) fn layout(self) -> Layout {
        let field = |number| Member {
            name: format!("f{number}"),
            of: match self.operands {
                Operands::Integers => scalar_of_field(number).into(),
                Operands::Strings => Type::String,
            },
        };
        let fields = (0..self.predicates).map(field).collect();
        Layout { event: "lab:asked".into(), fields, ..Layout::default() }
    }

    /// Returns the name of the question's C function.
    pub(super) fn c_name(self) -> String {
        let (all, of) = (if self.is_or { "any" } else { "all" }, self.operands.name());
        format!("{all}_{}_{of}", self.predicates)
    }

    /// Returns the C code of the question.
    pub(super) fn c_function(self) -> String {
        let one = |number| match self.operands {
            Operands::Integers if scalar_of_field(number).is_signed() => {
                format!(
                    "(int64_t)s[{number}] {} {}ll",
                    operator_of_field(number),
                    constant_of_field(number)
                )
            }
            Operands::Integers => {
                format!(
                    "s[{number}] {} {}ull",
                    operator_of_field(number),
                    constant_of_field(number)
                )
            }
            Operands::Strings => {
                let (text, bytes) = (string_of_field(number), string_of_field(number).len());
                format!(
                    "(s[{number}] >> 32 == {bytes} && \
                     memcmp(b + (uint32_t)s[{number}], \"{text}\", {bytes}) == 0)"
                )
            }
        };
        let all: Vec<String> = (0..self.predicates).map(one).collect();
        let joint = if self.is_or { "\n\t\t|| " } else { "\n\t\t&& " };
        format!(
            "uint64_t {}(const uint64_t *s, const char *b)\n{{\n\t(void)b;\n\treturn {};\n}}\n",
            self.c_name(),
            all.join(joint)
        )
    }

    /// Makes an event for which the predicates have these truths.
    pub(super) fn event(self, truths: &[bool]) -> Event {
        let mut event = Event { slots: Vec::new(), bytes: Vec::new() };
        for (number, &is_true) in truths.iter().enumerate() {
            match self.operands {
                Operands::Integers => event.slots.push(integer_for_truth(number, is_true)),
                Operands::Strings => event.push_string(&string_of_field(number), is_true),
            }
        }
        event
    }

    /// Returns the filter's expected answer to an event with these truths.
    pub(super) fn answer(self, truths: &[bool]) -> bool {
        match self.is_or {
            true => truths.contains(&true),
            false => !truths.contains(&false),
        }
    }
}

impl Event {
    /// Returns the string of a slot.
    pub(super) fn string(&self, slot: usize) -> String {
        let word = Word::from_bits(self.slots[slot]);
        let from = word.offset as usize;
        String::from_utf8_lossy(&self.bytes[from..from + word.length as usize]).into_owned()
    }

    /// Adds a string in the next slot. An unequal string differs only in the last byte, so that the
    /// comparison takes as long as possible.
    fn push_string(&mut self, text: &str, is_same: bool) {
        let (offset, length) = (self.bytes.len() as u32, text.len() as u32);
        self.bytes.extend_from_slice(text.as_bytes());
        if let (false, Some(last)) = (is_same, self.bytes.last_mut()) {
            *last = b'x';
        }
        self.slots.push(Word { offset, length, is_constant: false }.to_bits());
    }
}

/// Returns a C file with the functions of these questions.
pub(super) fn c_source(questions: &[Question]) -> String {
    let mut text = "#include <stdint.h>\n#include <string.h>\n".to_owned();
    for question in questions {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}", question.c_function());
    }
    text
}

/// Returns the type of an integer field.
pub(super) const fn scalar_of_field(number: usize) -> Scalar {
    SCALARS[number % SCALARS.len()]
}

const fn operator_of_field(number: usize) -> &'static str {
    OPERATORS[number % OPERATORS.len()]
}

/// Returns the constant that field `number` is compared with; every second constant needs more than
/// 16 bits.
const fn constant_of_field(number: usize) -> u64 {
    404 + 7919 * number as u64 + if number % 2 == 1 { 1_000_000 } else { 0 }
}

/// Returns the string of a field. The number comes first: strings that begin alike would share a
/// constant in C.
fn string_of_field(number: usize) -> String {
    let bytes = STRING_BYTES.0 + number % STRING_BYTES.1;
    format!("{number:0width$}name", width = bytes - 4)
}

/// Returns a value for which predicate `number` is true or false, as near as possible to the
/// constant of the predicate.
fn integer_for_truth(number: usize, is_true: bool) -> u64 {
    let constant = constant_of_field(number);
    match (operator_of_field(number), is_true) {
        ("==" | ">=", true) | ("!=" | "<" | ">", false) => constant,
        ("<", true) | (">=", false) => constant - 1,
        _ => constant + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_the_same_as_text_and_in_c() {
        let question = Question { operands: Operands::Integers, is_or: false, predicates: 2 };
        assert_eq!(question.text(), "f0 == 404 && f1 < 1008323");
        let function = "uint64_t all_2_integers(const uint64_t *s, const char *b)\n{\n\t(void)b;\n\
                        \treturn (int64_t)s[0] == 404ll\n\t\t&& s[1] < 1008323ull;\n}\n";
        assert_eq!(question.c_function(), function);
        let question = Question { operands: Operands::Strings, is_or: true, predicates: 2 };
        assert_eq!(question.text(), "f0 == \"0000name\" || f1 == \"00001name\"");
        assert!(question.c_function().contains("b + (uint32_t)s[1], \"00001name\", 9) == 0)"));
    }

    #[test]
    fn strings_have_eight_to_twelve_bytes_and_differ() {
        let strings: std::collections::BTreeSet<String> = (0..50).map(string_of_field).collect();
        assert_eq!(strings.len(), 50);
        let first: std::collections::BTreeSet<&str> =
            strings.iter().map(|text| &text[..8]).collect();
        assert_eq!(first.len(), 50, "also in their first eight bytes");
        assert!(strings.iter().all(|text| (8..=12).contains(&text.len())));
        let question = Question { operands: Operands::Strings, is_or: false, predicates: 2 };
        let event = question.event(&[true, false]);
        assert_eq!(event.bytes, b"0000name00001namx");
        assert_eq!(event.slots, [8 << 32, 9 << 32 | 8]);
    }
}
