//! Formats instructions like llvm-objdump and bpftool: one line each, registers `r0` to `r10` for
//! 64 bits, `w0` to `w10` for 32 bits, helpers by name.

use core::fmt;

use crate::helper::Helper;
use crate::insn::{
    CALL, EXIT, INSN_BYTES, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, size, source,
};
use crate::program::Program;

/// Formats one instruction, with its second half if it has one.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Instruction to format.
    pub insn: Insn,
    /// Following instruction; used only for [`LDDW`].
    pub next: Insn,
}

/// Formats a program, one instruction per line: `index: bytes  text`.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a>(pub Program<'a>);

impl Line {
    /// Creates the line of an instruction in a program.
    pub fn of(program: Program<'_>, index: usize) -> Self {
        Self { insn: program.insn(index), next: program.insn(index.saturating_add(1)) }
    }
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, insn) in self.0.insns() {
            write!(f, "{index:5}: ")?;
            for byte in insn.encode() {
                write!(f, " {byte:02x}")?;
            }
            writeln!(f, "  {}", Line::of(self.0, index))?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let insn = self.insn;
        match insn.class() {
            class::LD if insn.op == LDDW => self.write_wide_load(f),
            class::LDX => write_load(f, insn),
            class::ST | class::STX => write_store(f, insn),
            class::ALU | class::ALU64 => write_arithmetic(f, insn),
            class::JMP | class::JMP32 => write_jump(f, insn),
            _ => write_unknown(f, insn),
        }
    }
}

impl Line {
    fn write_wide_load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Insn { dst, src, immediate, .. } = self.insn;
        match src {
            0 => {
                let high = u64::from(self.next.immediate as u32) << 32;
                write!(f, "r{dst} = {:#x} ll", high | u64::from(immediate as u32))
            }
            LDDW_FUNCTION => write!(f, "r{dst} = function pc{immediate:+}"),
            _ => write_unknown(f, self.insn),
        }
    }
}

/// A register of a class: `w` for its 32-bit form.
struct Register(u8, bool);

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.1 { 'w' } else { 'r' }, self.0)
    }
}

/// Second operand of arithmetic and jumps.
struct Operand(Insn, bool);

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.op & source::X == 0 {
            write!(f, "{}", self.0.immediate)
        } else {
            write!(f, "{}", Register(self.0.src, self.1))
        }
    }
}

fn write_unknown(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    f.write_str("unknown")?;
    let bytes: [u8; INSN_BYTES] = insn.encode();
    bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
}

/// Writes the memory operand of a load or a store: type, register and offset.
fn write_memory_operand(
    f: &mut fmt::Formatter<'_>,
    insn: Insn,
    sign: char,
    base: u8,
) -> fmt::Result {
    let bits = match insn.op & size::DW {
        size::B => 8,
        size::H => 16,
        size::W => 32,
        _ => 64,
    };
    let (operator, offset) = (if insn.offset < 0 { '-' } else { '+' }, insn.offset.unsigned_abs());
    write!(f, "*({sign}{bits} *)(r{base} {operator} {offset})")
}

fn write_load(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    let sign = match insn.op & 0xe0 {
        mode::MEM => 'u',
        mode::MEMSX => 's',
        _ => return write_unknown(f, insn),
    };
    write!(f, "r{} = ", insn.dst)?;
    write_memory_operand(f, insn, sign, insn.src)
}

fn write_store(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    if insn.op & 0xe0 != mode::MEM {
        return write_unknown(f, insn);
    }
    write_memory_operand(f, insn, 'u', insn.dst)?;
    match insn.class() {
        class::ST => write!(f, " = {}", insn.immediate),
        _ => write!(f, " = r{}", insn.src),
    }
}

fn write_arithmetic(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    let is_32 = insn.class() == class::ALU;
    let is_signed = insn.offset == 1;
    let operator = match insn.op & 0xf0 {
        alu::ADD => "+=",
        alu::SUB => "-=",
        alu::MUL => "*=",
        alu::DIV if is_signed => "s/=",
        alu::DIV => "/=",
        alu::OR => "|=",
        alu::AND => "&=",
        alu::LSH => "<<=",
        alu::RSH => ">>=",
        alu::MOD if is_signed => "s%=",
        alu::MOD => "%=",
        alu::XOR => "^=",
        alu::ARSH => "s>>=",
        alu::MOV => "=",
        alu::NEG => {
            let dst = Register(insn.dst, is_32);
            return write!(f, "{dst} = -{dst}");
        }
        alu::END => {
            let order = match (is_32, insn.op & source::X == 0) {
                (true, true) => "le",
                (true, false) => "be",
                (false, _) => "bswap",
            };
            let dst = insn.dst;
            return write!(f, "r{dst} = {order}{} r{dst}", insn.immediate);
        }
        _ => return write_unknown(f, insn),
    };
    write!(f, "{} {operator} ", Register(insn.dst, is_32))?;
    if insn.op & 0xf0 == alu::MOV && insn.offset != 0 {
        write!(f, "(s{})", insn.offset)?;
    }
    write!(f, "{}", Operand(insn, is_32))
}

fn write_jump(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    let is_32 = insn.class() == class::JMP32;
    let operator = match insn.op & 0xf0 {
        jump::JA if is_32 => return write!(f, "gotol {:+}", insn.immediate),
        jump::JA => return write!(f, "goto {:+}", insn.offset),
        jump::JEQ => "==",
        jump::JGT => ">",
        jump::JGE => ">=",
        jump::JSET => "&",
        jump::JNE => "!=",
        jump::JSGT => "s>",
        jump::JSGE => "s>=",
        jump::JLT => "<",
        jump::JLE => "<=",
        jump::JSLT => "s<",
        jump::JSLE => "s<=",
        _ if insn.op == EXIT => return f.write_str("exit"),
        _ if insn.op == CALL => return write_call(f, insn),
        _ => return write_unknown(f, insn),
    };
    let (dst, operand) = (Register(insn.dst, is_32), Operand(insn, is_32));
    write!(f, "if {dst} {operator} {operand} goto {:+}", insn.offset)
}

fn write_call(f: &mut fmt::Formatter<'_>, insn: Insn) -> fmt::Result {
    match (insn.src, Helper::from_number(insn.immediate)) {
        (call::HELPER, Some(helper)) => write!(f, "call {}", helper.name()),
        (call::HELPER, None) => write!(f, "call {}", insn.immediate),
        (call::FUNCTION, _) => write!(f, "call pc{:+}", insn.immediate),
        _ => write_unknown(f, insn),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    fn format_insn(op: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> std::string::String {
        let insn = Insn { op, dst, src, offset, immediate };
        Line { insn, next: Insn { immediate: 1, ..Insn::default() } }.to_string()
    }

    #[test]
    fn instructions_are_shown_as_llvm_shows_them() {
        for (line, text) in [
            (format_insn(0x79, 1, 6, 8, 0), "r1 = *(u64 *)(r6 + 8)"),
            (format_insn(0x91, 1, 10, -8, 0), "r1 = *(s8 *)(r10 - 8)"),
            (format_insn(0x63, 10, 1, -4, 0), "*(u32 *)(r10 - 4) = r1"),
            (format_insn(0x6a, 10, 0, -2, 7), "*(u16 *)(r10 - 2) = 7"),
            (format_insn(0x67, 1, 0, 0, 32), "r1 <<= 32"),
            (format_insn(0xcc, 1, 2, 0, 0), "w1 s>>= w2"),
            (format_insn(0x3f, 1, 2, 1, 0), "r1 s/= r2"),
            (format_insn(0xbf, 1, 2, 16, 0), "r1 = (s16)r2"),
            (format_insn(0x87, 3, 0, 0, 0), "r3 = -r3"),
            (format_insn(0xdc, 9, 0, 0, 32), "r9 = be32 r9"),
            (format_insn(0xd7, 9, 0, 0, 64), "r9 = bswap64 r9"),
            (format_insn(0x7e, 9, 1, 3, 0), "if w9 s>= w1 goto +3"),
            (format_insn(0x25, 1, 0, 38, 27), "if r1 > 27 goto +38"),
            (format_insn(0x05, 0, 0, 28, 0), "goto +28"),
            (format_insn(0x06, 0, 0, 0, 28), "gotol +28"),
            (format_insn(0x85, 0, 0, 0, 17), "call random"),
            (format_insn(0x85, 0, 0, 0, 99), "call 99"),
            (format_insn(0x85, 0, 1, 0, 3), "call pc+3"),
            (format_insn(0x95, 0, 0, 0, 0), "exit"),
            (format_insn(0x18, 4, 0, 0, 424), "r4 = 0x1000001a8 ll"),
            (format_insn(0x18, 4, 4, 0, 24), "r4 = function pc+24"),
            (format_insn(0xff, 4, 4, 0, 24), "unknown ff 44 00 00 18 00 00 00"),
        ] {
            assert_eq!(line, text);
        }
    }

    #[test]
    fn a_program_is_shown_line_by_line() {
        let bytes = [0xb7, 0, 0, 0, 1, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
        let program = Program::new(&bytes).expect("a program");
        let text = "    0:  b7 00 00 00 01 00 00 00  r0 = 1\n    \
                    1:  95 00 00 00 00 00 00 00  exit\n";
        assert_eq!(Listing(program).to_string(), text);
    }
}
