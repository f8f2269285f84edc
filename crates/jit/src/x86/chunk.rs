//! Encodes some x86-64 instructions as bytes, after Intel's manual, volume 2.
//!
//! ```text
//! prefix 66 | REX 0100wrxb | operation, 1 or 2 bytes | mod reg rm | displacement | immediate
//! ```

/// Maximum code size of an eBPF instruction, in bytes, without the function's prologue.
pub(super) const BYTES_MAX: usize = 96;

/// An x86 register, by its number in encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reg(u8);

impl Reg {
    /// Opcode extension `/7`, in the register field of operations with one operand.
    pub(super) const EXTENSION_7: Self = Self(7);
}

pub(super) const RAX: Reg = Reg(0);
pub(super) const RCX: Reg = Reg(1);
pub(super) const RDX: Reg = Reg(2);
pub(super) const RBX: Reg = Reg(3);
pub(super) const RSP: Reg = Reg(4);
pub(super) const RBP: Reg = Reg(5);
pub(super) const RSI: Reg = Reg(6);
pub(super) const RDI: Reg = Reg(7);
pub(super) const R8: Reg = Reg(8);
pub(super) const R9: Reg = Reg(9);
pub(super) const R10: Reg = Reg(10);
pub(super) const R11: Reg = Reg(11);
pub(super) const R13: Reg = Reg(13);
pub(super) const R14: Reg = Reg(14);
pub(super) const R15: Reg = Reg(15);

/// Maps an eBPF register to an x86 register; verified programs use registers 0 to 10.
pub(super) fn map_register(register: u8) -> Reg {
    const MAP: [Reg; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];
    MAP.get(usize::from(register)).copied().unwrap_or(R11)
}

/// Width of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// 32 bits; writes clear the upper half of the register.
    Narrow,
    Wide,
}

/// Operations with a form for each kind of operands: bits 3 to 5 of the operation, or `reg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Group {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Conditions of jumps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Condition {
    UnsignedLess = 2,
    UnsignedGreaterEqual = 3,
    Equal = 4,
    NotEqual = 5,
    UnsignedLessEqual = 6,
    UnsignedGreater = 7,
    Less = 0xc,
    GreaterEqual = 0xd,
    LessEqual = 0xe,
    Greater = 0xf,
}

/// A short jump whose distance is filled in at its target.
#[derive(Debug)]
#[must_use]
pub(super) struct ForwardJump(usize);

/// A buffer for code that grows forward.
pub(super) struct Chunk {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Chunk {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; BYTES_MAX], len: 0 }
    }

    /// Returns the code; `None` if it did not fit.
    pub(super) fn code(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len)
    }

    pub(super) fn byte(&mut self, byte: u8) {
        if let Some(there) = self.bytes.get_mut(self.len) {
            *there = byte;
        }
        self.len += 1;
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.byte(byte));
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.raw(&value.to_le_bytes());
    }

    /// Appends the REX prefix if the operands need one: for 64 bits, for registers from 8 on, or
    /// (`is_byte`) for the low byte of rsp, rbp, rsi or rdi.
    fn rex(&mut self, width: Width, reg: Reg, rm: Reg, is_byte: bool) {
        let wide = if width == Width::Wide { 8 } else { 0 };
        let rex = wide | (reg.0 >> 3) << 2 | rm.0 >> 3;
        if rex != 0 || is_byte {
            self.byte(0x40 | rex);
        }
    }

    /// Appends an operation on two registers.
    pub(super) fn registers(&mut self, width: Width, operation: &[u8], reg: Reg, rm: Reg) {
        self.rex(width, reg, rm, false);
        self.raw(operation);
        self.byte(0xc0 | (reg.0 & 7) << 3 | rm.0 & 7);
    }

    /// Appends an operation on two registers, where `rm` is a byte.
    pub(super) fn registers_byte(&mut self, width: Width, operation: &[u8], reg: Reg, rm: Reg) {
        self.rex(width, reg, rm, (4..8).contains(&rm.0));
        self.raw(operation);
        self.byte(0xc0 | (reg.0 & 7) << 3 | rm.0 & 7);
    }

    /// Appends an operation on a register and the memory at `base + offset`. The base must be a
    /// mapped register; rsp and r12, which need an additional byte, are not mapped.
    pub(super) fn memory(
        &mut self,
        width: Width,
        operation: &[u8],
        reg: Reg,
        (base, offset): (Reg, i32),
    ) {
        self.memory_rex(width, operation, reg, (base, offset), false);
    }

    /// Appends an operation on memory, where `reg` is a byte.
    pub(super) fn memory_byte(&mut self, operation: u8, reg: Reg, at: (Reg, i32)) {
        self.memory_rex(Width::Narrow, &[operation], reg, at, (4..8).contains(&reg.0));
    }

    fn memory_rex(
        &mut self,
        width: Width,
        operation: &[u8],
        reg: Reg,
        (base, offset): (Reg, i32),
        is_byte: bool,
    ) {
        self.rex(width, reg, base, is_byte);
        self.raw(operation);
        let registers = (reg.0 & 7) << 3 | base.0 & 7;
        match i8::try_from(offset) {
            // For rbp and r13, the encoding without an offset has another meaning.
            Ok(0) if base.0 & 7 != RBP.0 => self.byte(registers),
            Ok(short) => self.raw(&[0x40 | registers, short as u8]),
            Err(_) => {
                self.byte(0x80 | registers);
                self.i32(offset);
            }
        }
    }

    /// Appends `rm = rm OPERATION reg`.
    pub(super) fn group(&mut self, group: Group, width: Width, rm: Reg, reg: Reg) {
        self.registers(width, &[(group as u8) << 3 | 1], reg, rm);
    }

    /// Appends `rm = rm OPERATION immediate`; the immediate is sign-extended.
    pub(super) fn group_immediate(&mut self, group: Group, width: Width, rm: Reg, immediate: i32) {
        let operation = Reg(group as u8);
        match i8::try_from(immediate) {
            Ok(short) => {
                self.registers(width, &[0x83], operation, rm);
                self.byte(short as u8);
            }
            Err(_) => {
                if rm == RAX {
                    self.rex(width, RAX, RAX, false);
                    self.byte(operation.0 << 3 | 5);
                } else {
                    self.registers(width, &[0x81], operation, rm);
                }
                self.i32(immediate);
            }
        }
    }

    /// Appends an operation on one register; `extension` occupies the other register's field.
    pub(super) fn single(&mut self, width: Width, operation: u8, extension: u8, rm: Reg) {
        self.registers(width, &[operation], Reg(extension), rm);
    }

    pub(super) fn mov(&mut self, width: Width, to: Reg, from: Reg) {
        if to != from || width == Width::Narrow {
            self.registers(width, &[0x89], from, to);
        }
    }

    pub(super) fn clear(&mut self, reg: Reg) {
        self.group(Group::Xor, Width::Narrow, reg, reg);
    }

    pub(super) fn test(&mut self, width: Width, a: Reg, b: Reg) {
        self.registers(width, &[0x85], b, a);
    }

    /// Appends the shortest load of a number.
    pub(super) fn number(&mut self, reg: Reg, number: u64) {
        if number == 0 {
            self.clear(reg);
        } else if let Ok(short) = u32::try_from(number) {
            self.rex(Width::Narrow, RAX, reg, false);
            self.byte(0xb8 | reg.0 & 7);
            self.i32(short as i32);
        } else if let Ok(short) = i32::try_from(number as i64) {
            self.single(Width::Wide, 0xc7, 0, reg);
            self.i32(short);
        } else {
            self.rex(Width::Wide, RAX, reg, false);
            self.byte(0xb8 | reg.0 & 7);
            self.raw(&number.to_le_bytes());
        }
    }

    /// Appends `bswap`.
    pub(super) fn swap_bytes(&mut self, width: Width, reg: Reg) {
        self.rex(width, RAX, reg, false);
        self.raw(&[0x0f, 0xc8 | reg.0 & 7]);
    }

    pub(super) fn push(&mut self, reg: Reg) {
        self.rex(Width::Narrow, RAX, reg, false);
        self.byte(0x50 | reg.0 & 7);
    }

    pub(super) fn pop(&mut self, reg: Reg) {
        self.rex(Width::Narrow, RAX, reg, false);
        self.byte(0x58 | reg.0 & 7);
    }

    /// Appends a load of the address `distance` bytes after the end of this instruction.
    pub(super) fn address(&mut self, reg: Reg, distance: i32) {
        self.rex(Width::Wide, reg, RAX, false);
        self.raw(&[0x8d, (reg.0 & 7) << 3 | 5]);
        self.i32(distance);
    }

    /// Appends a forward jump within this chunk.
    pub(super) fn jump_forward(&mut self, condition: Option<Condition>) -> ForwardJump {
        self.byte(condition.map_or(0xeb, |condition| 0x70 | condition as u8));
        self.byte(0);
        ForwardJump(self.len)
    }

    /// Sets the target of a jump to the current position.
    pub(super) fn land(&mut self, jump: ForwardJump) {
        // The distance fits a byte: a chunk is shorter.
        if let Some(there) = self.bytes.get_mut(jump.0 - 1) {
            *there = (self.len - jump.0) as u8;
        }
    }

    /// Appends a jump out of this chunk, to `distance` bytes after the jump's end.
    pub(super) fn out(&mut self, condition: Option<Condition>, distance: i32) {
        match (i8::try_from(distance), condition) {
            (Ok(short), None) => self.raw(&[0xeb, short as u8]),
            (Ok(short), Some(condition)) => self.raw(&[0x70 | condition as u8, short as u8]),
            (Err(_), None) => {
                self.byte(0xe9);
                self.i32(distance);
            }
            (Err(_), Some(condition)) => {
                self.raw(&[0x0f, 0x80 | condition as u8]);
                self.i32(distance);
            }
        }
    }
}
