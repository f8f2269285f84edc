//! The eBPF instructions that filters use (RFC 9669, "BPF Instruction Set Architecture").

/// Size of an instruction in bytes; [`LDDW`] occupies two instructions.
pub const INSN_BYTES: usize = 8;

/// Classes: bits 0 to 2 of the operation.
pub mod class {
    /// Wide loads ([`super::LDDW`]) only.
    pub const LD: u8 = 0;
    /// Loads.
    pub const LDX: u8 = 1;
    /// Stores of an immediate.
    pub const ST: u8 = 2;
    /// Stores of a register.
    pub const STX: u8 = 3;
    /// 32-bit arithmetic.
    pub const ALU: u8 = 4;
    /// Jumps with 64-bit comparisons; calls; exit.
    pub const JMP: u8 = 5;
    /// Jumps with 32-bit comparisons.
    pub const JMP32: u8 = 6;
    /// 64-bit arithmetic.
    pub const ALU64: u8 = 7;
}

/// The second operand of arithmetic and jumps: bit 3 of the operation.
pub mod source {
    /// The immediate is the operand.
    pub const K: u8 = 0;
    /// The source register is the operand.
    pub const X: u8 = 8;
}

/// Arithmetic: bits 4 to 7 of the operation.
pub mod alu {
    /// `dst += src`.
    pub const ADD: u8 = 0x00;
    /// `dst -= src`.
    pub const SUB: u8 = 0x10;
    /// `dst *= src`.
    pub const MUL: u8 = 0x20;
    /// `dst = src ? dst / src : 0`; signed if the offset is 1.
    pub const DIV: u8 = 0x30;
    /// `dst |= src`.
    pub const OR: u8 = 0x40;
    /// `dst &= src`.
    pub const AND: u8 = 0x50;
    /// `dst <<= src`, modulo the width.
    pub const LSH: u8 = 0x60;
    /// `dst >>= src`, modulo the width, logical.
    pub const RSH: u8 = 0x70;
    /// `dst = -dst`.
    pub const NEG: u8 = 0x80;
    /// `dst = src ? dst % src : dst`; signed if the offset is 1.
    pub const MOD: u8 = 0x90;
    /// `dst ^= src`.
    pub const XOR: u8 = 0xa0;
    /// `dst = src`; sign-extended from 8, 16 or 32 bits, by the offset.
    pub const MOV: u8 = 0xb0;
    /// `dst >>= src`, modulo the width, with sign extension.
    pub const ARSH: u8 = 0xc0;
    /// Byte order conversion. Class ALU converts to little endian (source K) or big endian (X);
    /// ALU64 always swaps. The immediate is the width in bits.
    pub const END: u8 = 0xd0;
}

/// Jumps: bits 4 to 7 of the operation.
pub mod jump {
    /// Unconditional; in class JMP32, the immediate is the distance.
    pub const JA: u8 = 0x00;
    /// `dst == src`.
    pub const JEQ: u8 = 0x10;
    /// `dst > src`, unsigned.
    pub const JGT: u8 = 0x20;
    /// `dst >= src`, unsigned.
    pub const JGE: u8 = 0x30;
    /// `dst & src != 0`.
    pub const JSET: u8 = 0x40;
    /// `dst != src`.
    pub const JNE: u8 = 0x50;
    /// `dst > src`, signed.
    pub const JSGT: u8 = 0x60;
    /// `dst >= src`, signed.
    pub const JSGE: u8 = 0x70;
    /// Calls a helper (source register 0), or a function of the program (1), by the immediate.
    pub const CALL: u8 = 0x80;
    /// Ends the function.
    pub const EXIT: u8 = 0x90;
    /// `dst < src`, unsigned.
    pub const JLT: u8 = 0xa0;
    /// `dst <= src`, unsigned.
    pub const JLE: u8 = 0xb0;
    /// `dst < src`, signed.
    pub const JSLT: u8 = 0xc0;
    /// `dst <= src`, signed.
    pub const JSLE: u8 = 0xd0;
}

/// Sizes of loads and stores: bits 3 and 4 of the operation.
pub mod size {
    /// 4 bytes.
    pub const W: u8 = 0x00;
    /// 2 bytes.
    pub const H: u8 = 0x08;
    /// 1 byte.
    pub const B: u8 = 0x10;
    /// 8 bytes.
    pub const DW: u8 = 0x18;
}

/// Modes of loads and stores: bits 5 to 7 of the operation.
pub mod mode {
    /// Wide load ([`super::LDDW`]).
    pub const IMM: u8 = 0x00;
    /// Address in a register, plus offset.
    pub const MEM: u8 = 0x60;
    /// Address in a register, plus offset; loads are sign-extended.
    pub const MEMSX: u8 = 0x80;
}

/// The source register of a call: the meaning of the immediate.
pub mod call {
    /// Number of a helper.
    pub const HELPER: u8 = 0;
    /// Distance to a function, from the next instruction.
    pub const FUNCTION: u8 = 1;
}

/// Source register of an [`LDDW`] that loads the address of a function of the program. The
/// immediate is the distance from the next instruction (the kernel's `BPF_PSEUDO_FUNC`).
pub const LDDW_FUNCTION: u8 = 4;

/// Loads 64 bits: the lower half is the immediate; the upper half is the immediate of the second
/// part, whose operation is 0.
pub const LDDW: u8 = class::LD | size::DW | mode::IMM;
/// Operation that ends a function.
pub const EXIT: u8 = class::JMP | jump::EXIT;
/// Operation that calls a function or a helper.
pub const CALL: u8 = class::JMP | jump::CALL;

/// Register 1: holds the frame at entry.
pub const FRAME: u8 = 1;
/// Register 10: holds the end of the stack.
pub const STACK_END: u8 = 10;
/// Number of registers.
pub const REGISTERS: usize = 11;

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Insn {
    /// Operation of the instruction.
    pub op: u8,
    /// Register that the instruction changes or compares, 0 to 15 (those above 10 do not exist).
    pub dst: u8,
    /// Register that the instruction reads, 0 to 15.
    pub src: u8,
    /// Distance of jumps, in instructions from the next; offset of loads and stores, in bytes.
    pub offset: i16,
    /// Immediate operand.
    pub immediate: i32,
}

impl Insn {
    /// Decodes an instruction.
    pub const fn decode(bytes: [u8; INSN_BYTES]) -> Self {
        let [op, registers, low, high, a, b, c, d] = bytes;
        Self {
            op,
            dst: registers & 15,
            src: registers >> 4,
            offset: i16::from_le_bytes([low, high]),
            immediate: i32::from_le_bytes([a, b, c, d]),
        }
    }

    /// Encodes the instruction.
    pub const fn encode(self) -> [u8; INSN_BYTES] {
        let [low, high] = self.offset.to_le_bytes();
        let [a, b, c, d] = self.immediate.to_le_bytes();
        [self.op, self.dst & 15 | self.src << 4, low, high, a, b, c, d]
    }

    /// Returns the instruction's class.
    pub const fn class(self) -> u8 {
        self.op & 7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_standard() {
        // Example of RFC 9669, 3: a jump by 5 if r1 > r2 (unsigned).
        let jump = Insn {
            op: class::JMP | source::X | jump::JGT,
            dst: 1,
            src: 2,
            offset: 5,
            immediate: 0,
        };
        assert_eq!(jump.encode(), [0x2d, 0x21, 5, 0, 0, 0, 0, 0]);
        let store = Insn { op: 0x7b, dst: 10, src: 6, offset: -8, immediate: 0 };
        assert_eq!(store.encode(), [0x7b, 0x6a, 0xf8, 0xff, 0, 0, 0, 0]);
        for insn in [jump, store] {
            assert_eq!(Insn::decode(insn.encode()), insn);
        }
    }
}
