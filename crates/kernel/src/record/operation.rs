//! What a block request is to do, as LTTng's flags (`rwbs` of its events, which analyses reckon
//! with), from the letters that the kernel writes down instead.
//!
//! The kernel's `blk_fill_rwbs()` (kernel/trace/blktrace.c) writes, in this order: `F` of a flush
//! before all else; the operation, `R`, `W`, `D`, `DE`, `F`, since Linux 6.17 those of zones (`ZA`,
//! `ZR`, `ZRA`, `ZF`, `ZO`, `ZC`), since a later one `WZ`, or `N`; and of `F` (unit access), `A`,
//! `S`, `M`, `U` what there is. LTTng has no flag of the operations of zones, `WZ` and `N`, nor of
//! `U`.

use trackway_jit::insn::{alu, jump};

use super::filter::load_from_record;
use crate::bpf_sys::asm::{Asm, Label};
use crate::catalogue::lttng::request_flag as flag;

/// Letters that are looked at. (There may be one more, `U`.)
const LETTERS: usize = 8;
/// What an operation may begin with.
const OPERATIONS: &[u8] = b"RWDFNZ";
/// Letters behind the operation.
const BEHIND: [(u8, u32); 4] =
    [(b'F', flag::FUA), (b'A', flag::RAHEAD), (b'S', flag::SYNC), (b'M', flag::META)];

/// The flags of these letters, which end at a NUL or with the bytes.
pub fn flags(letters: &[u8]) -> u32 {
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
    let behind = rest[length..]
        .iter()
        .flat_map(|letter| BEHIND.iter().filter(move |(of, _)| of == letter).map(|(_, flag)| flag));
    behind.fold(flags | operation, |flags, flag| flags | flag)
}

/// The same of so many bytes of the tracepoint's record, in r1. Takes r0 and r2.
pub(super) fn load(asm: &mut Asm, offset: u32, size: u32) {
    load_from_record(asm, offset, size.min(LETTERS as u32));
    flags_of(asm);
}

/// The flags, in r1, of the letters in r1, of which the first is in the lowest byte.
fn flags_of(asm: &mut Asm) {
    let (done, behind, operation) = (asm.label(), asm.label(), asm.label());
    asm.movi(0, 0);
    letter(asm, 0);
    asm.jumpi(jump::JNE, 2, b'F'.into(), operation);
    let is_before = asm.label();
    letter(asm, 1);
    for &next in OPERATIONS {
        asm.jumpi(jump::JEQ, 2, next.into(), is_before);
    }
    asm.goto(operation);
    asm.place(is_before);
    asm.movi(0, flag::PREFLUSH as i32);
    asm.alui(alu::RSH, 1, 8);
    asm.place(operation);
    letter(asm, 0);
    asm.alui(alu::RSH, 1, 8);
    asm.jumpi(jump::JEQ, 2, 0, done);
    for (of, flag) in [(b'R', flag::READ), (b'F', flag::FLUSH)] {
        let is_other = asm.label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::OR, 0, flag as i32);
        asm.goto(behind);
        asm.place(is_other);
    }
    // Those that may have a second letter, with what that adds and takes.
    let second =
        [(b'W', flag::WRITE, b'Z', flag::WRITE), (b'D', flag::DISCARD, b'E', flag::SECURE)];
    for (of, flag, next, changed) in second {
        let is_other = asm.label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::OR, 0, flag as i32);
        letter(asm, 0);
        asm.jumpi(jump::JNE, 2, next.into(), behind);
        asm.alui(alu::XOR, 0, changed as i32);
        asm.alui(alu::RSH, 1, 8);
        asm.goto(behind);
        asm.place(is_other);
    }
    asm.jumpi(jump::JNE, 2, b'Z'.into(), behind);
    letter(asm, 0);
    let is_reset = asm.label();
    asm.jumpi(jump::JEQ, 2, b'R'.into(), is_reset);
    for of in *b"AFOC" {
        let is_other = asm.label();
        asm.jumpi(jump::JNE, 2, of.into(), is_other);
        asm.alui(alu::RSH, 1, 8);
        asm.goto(behind);
        asm.place(is_other);
    }
    asm.goto(behind);
    asm.place(is_reset);
    asm.alui(alu::RSH, 1, 8);
    letter(asm, 0);
    asm.jumpi(jump::JNE, 2, b'A'.into(), behind);
    asm.alui(alu::RSH, 1, 8);
    asm.place(behind);
    rest(asm, done);
    asm.place(done);
    asm.mov(1, 0);
}

/// Adds the flags of the letters in r1 that are behind the operation.
fn rest(asm: &mut Asm, done: Label) {
    for _ in 1..LETTERS {
        letter(asm, 0);
        asm.jumpi(jump::JEQ, 2, 0, done);
        for (of, flag) in BEHIND {
            let is_other = asm.label();
            asm.jumpi(jump::JNE, 2, of.into(), is_other);
            asm.alui(alu::OR, 0, flag as i32);
            asm.place(is_other);
        }
        asm.alui(alu::RSH, 1, 8);
    }
}

/// The letter of this number, in r2.
fn letter(asm: &mut Asm, number: i32) {
    asm.mov(2, 1);
    if number > 0 {
        asm.alui(alu::RSH, 2, 8 * number);
    }
    asm.alui(alu::AND, 2, 0xff);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::arguments::tests::{MEMORY_BYTES, run};

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
            assert_eq!(flags(letters.as_bytes()), expected, "{letters}");
            assert_eq!(flags(format!("{letters}\0WSM").as_bytes()), expected, "{letters}");
        }
    }

    /// RUN all letters that there are, in texts of up to four, with leftovers behind them. EXPECT a
    /// program to make of them what we make of them.
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
            load(&mut asm, 34, 10);
            let registers = run(asm, &mut memory);
            assert_eq!(registers[1], flags(&text).into(), "{:?}", text.escape_ascii().to_string());
        }
    }
}
