//! Flags of a block request from the letters that the kernel writes: LTTng's `rwbs`, which analyses
//! use.
//!
//! The kernel's `blk_fill_rwbs()` (kernel/trace/blktrace.c) writes, in this order: `F` for a flush
//! before the request; the operation, `R`, `W`, `D`, `DE`, `F`, since Linux 6.17 the operations on
//! zones (`ZA`, `ZR`, `ZRA`, `ZF`, `ZO`, `ZC`), since a later version `WZ`, or `N`; then `F` (unit
//! access), `A`, `S`, `M`, `U` as they apply. LTTng has no flags for operations on zones, `WZ`, `N`
//! and `U`.

use trackway_jit::insn::{alu, jump};

use super::filter::load_from_record;
use crate::bpf_sys::asm::{Asm, Label};
use crate::catalogue::lttng::request_flag as flag;

/// Most letters that are converted. (There may be one more, `U`.)
const LETTERS: usize = 8;
/// First letters of operations.
const OPERATIONS: &[u8] = b"RWDFNZ";
/// Letters after the operation, with their flags.
const MODIFIERS: [(u8, u32); 4] =
    [(b'F', flag::FUA), (b'A', flag::RAHEAD), (b'S', flag::SYNC), (b'M', flag::META)];

/// Converts a request's letters, which end at a NUL or with the slice, to flags.
pub fn flags_of_letters(letters: &[u8]) -> u32 {
    let end = letters.iter().position(|&letter| letter == 0).unwrap_or(letters.len());
    let mut rest = &letters[..end.min(LETTERS)];
    let mut flags = 0;
    if let [b'F', next, ..] = rest
        && OPERATIONS.contains(next)
    {
        flags |= flag::PREFLUSH;
        rest = &rest[1..];
    }
    let (operation, length) = match rest {
        [b'W', b'Z', ..] | [b'Z', b'A' | b'F' | b'O' | b'C', ..] => (0, 2),
        [b'Z', b'R', b'A', ..] => (0, 3),
        [b'Z', b'R', ..] => (0, 2),
        [b'D', b'E', ..] => (flag::DISCARD | flag::SECURE, 2),
        [b'D', ..] => (flag::DISCARD, 1),
        [b'W', ..] => (flag::WRITE, 1),
        [b'R', ..] => (flag::READ, 1),
        [b'F', ..] => (flag::FLUSH, 1),
        _ => (0, rest.len().min(1)),
    };
    let modifiers = rest[length..].iter().flat_map(|letter| {
        MODIFIERS.iter().filter(move |(of, _)| of == letter).map(|(_, flag)| flag)
    });
    modifiers.fold(flags | operation, |flags, flag| flags | flag)
}

/// Converts the letters at `offset` of the tracepoint's record to flags in r1. Uses r0 and r2.
pub(super) fn load_flags(asm: &mut Asm, offset: u32, size: u32) {
    load_from_record(asm, offset, size.min(LETTERS as u32));
    convert_letters(asm);
}

/// Converts the letters in r1, the first in the lowest byte, to flags in r1.
fn convert_letters(asm: &mut Asm) {
    let (done, modifiers, operation) = (asm.new_label(), asm.new_label(), asm.new_label());
    asm.movi(0, 0);
    load_letter(asm, 0);
    asm.jumpi(jump::JNE, 2, b'F'.into(), operation);
    let is_before = asm.new_label();
    load_letter(asm, 1);
    for &next in OPERATIONS {
        asm.jumpi(jump::JEQ, 2, next.into(), is_before);
    }
    asm.goto(operation);
    asm.place_label(is_before);
    asm.movi(0, flag::PREFLUSH as i32);
    asm.alui(alu::RSH, 1, 8);
    asm.place_label(operation);
    load_letter(asm, 0);
    asm.alui(alu::RSH, 1, 8);
    asm.jumpi(jump::JEQ, 2, 0, done);
    for (of, flag) in [(b'R', flag::READ), (b'F', flag::FLUSH)] {
        let is_other = asm.new_label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::OR, 0, flag as i32);
        asm.goto(modifiers);
        asm.place_label(is_other);
    }
    // Operations with an optional second letter, and the flags that the second letter toggles.
    let second =
        [(b'W', flag::WRITE, b'Z', flag::WRITE), (b'D', flag::DISCARD, b'E', flag::SECURE)];
    for (of, flag, next, changed) in second {
        let is_other = asm.new_label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::OR, 0, flag as i32);
        load_letter(asm, 0);
        asm.jumpi(jump::JNE, 2, next.into(), modifiers);
        asm.alui(alu::XOR, 0, changed as i32);
        asm.alui(alu::RSH, 1, 8);
        asm.goto(modifiers);
        asm.place_label(is_other);
    }
    asm.jumpi(jump::JNE, 2, b'Z'.into(), modifiers);
    load_letter(asm, 0);
    let is_reset = asm.new_label();
    asm.jumpi(jump::JEQ, 2, b'R'.into(), is_reset);
    for of in *b"AFOC" {
        let is_other = asm.new_label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::RSH, 1, 8);
        asm.goto(modifiers);
        asm.place_label(is_other);
    }
    asm.goto(modifiers);
    asm.place_label(is_reset);
    asm.alui(alu::RSH, 1, 8);
    load_letter(asm, 0);
    asm.jumpi(jump::JNE, 2, b'A'.into(), modifiers);
    asm.alui(alu::RSH, 1, 8);
    asm.place_label(modifiers);
    add_modifiers(asm, done);
    asm.place_label(done);
    asm.mov(1, 0);
}

/// Adds the flags of the letters that follow the operation in r1.
fn add_modifiers(asm: &mut Asm, done: Label) {
    for _ in 1..LETTERS {
        load_letter(asm, 0);
        asm.jumpi(jump::JEQ, 2, 0, done);
        for (of, flag) in MODIFIERS {
            let is_other = asm.new_label();
            asm.jumpi(jump::JNE, 2, of.into(), is_other);
            asm.alui(alu::OR, 0, flag as i32);
            asm.place_label(is_other);
        }
        asm.alui(alu::RSH, 1, 8);
    }
}

/// Loads the letter with index `number` into r2.
fn load_letter(asm: &mut Asm, number: i32) {
    asm.mov(2, 1);
    if number > 0 {
        asm.alui(alu::RSH, 2, 8 * number);
    }
    asm.alui(alu::AND, 2, 0xff);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_program::arguments::tests::{MEMORY_BYTES, run};

    #[test]
    fn letters_are_the_kernels() {
        for (letters, expected) in [
            ("R", flag::READ),
            ("RA", flag::READ | flag::RAHEAD),
            ("W", flag::WRITE),
            ("WS", flag::WRITE | flag::SYNC),
            ("WFSM", flag::WRITE | flag::FUA | flag::SYNC | flag::META),
            ("FWFS", flag::PREFLUSH | flag::WRITE | flag::FUA | flag::SYNC),
            ("FF", flag::PREFLUSH | flag::FLUSH),
            ("F", flag::FLUSH),
            ("D", flag::DISCARD),
            ("DE", flag::DISCARD | flag::SECURE),
            ("DS", flag::DISCARD | flag::SYNC),
            ("N", 0),
            ("NS", flag::SYNC),
            ("WZS", flag::SYNC),
            ("ZAS", flag::SYNC),
            ("ZRA", 0),
            ("ZRS", flag::SYNC),
            ("ZF", 0),
            ("WSU", flag::WRITE | flag::SYNC),
            ("", 0),
        ] {
            assert_eq!(flags_of_letters(letters.as_bytes()), expected, "{letters}");
            assert_eq!(
                flags_of_letters(format!("{letters}\0WSM").as_bytes()),
                expected,
                "{letters}"
            );
        }
    }

    /// RUN all letters in texts of up to four letters, with old bytes after the texts. EXPECT equal
    /// flags from the program and from [`flags_of_letters`].
    #[test]
    fn programs_make_the_same_of_letters() {
        const LETTERS: &[u8] = b"\0RWDEFNZASMUOC?";
        let count = LETTERS.len();
        for number in 0..count.pow(4) {
            let mut text = *b"....SMSFAW";
            for (at, letter) in text.iter_mut().take(4).enumerate() {
                *letter = LETTERS[number / count.pow(at as u32) % count];
            }
            if number % 2 == 0 {
                text[4] = 0;
            }
            let mut memory = [0xee; MEMORY_BYTES];
            memory[34..44].copy_from_slice(&text);
            let mut asm = Asm::default();
            load_flags(&mut asm, 34, 10);
            let registers = run(asm, &mut memory);
            assert_eq!(
                registers[1],
                flags_of_letters(&text).into(),
                "{:?}",
                text.escape_ascii().to_string()
            );
        }
    }
}
