//! A few instructions of x86-64, as bytes: encodings as in Intel's manual, volume 2.
//!
//! ```text
//! prefix 66 | REX 0100wrxb | operation, 1 or 2 bytes | mod reg rm | displacement | immediate
//! ```

/// Most bytes of code that an instruction of eBPF becomes, with its function's prologue apart.
pub(super) const BYTES_MAX: usize = 96;

/// A register of x86, by its number in encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reg(u8);

impl Reg {
    /// Opcode extension `/7`, in a register's place where an operation has one operand.
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

/// The register of x86 that stands for one of eBPF; those of a verified program are 0 to 10.
pub(super) fn map_register(register: u8) -> Reg {
    const MAP: [Reg; 11] = [RAX, RDI, RSI, RDX, RCX, R8, RBX, R13, R14, R15, RBP];
    MAP.get(usize::from(register)).copied().unwrap_or(R11)
}

/// Width of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// 32 bits; the upper half of what is written becomes zero.
    Narrow,
    Wide,
}

/// Operations that have a form of each kind of operands: bits 3 to 5 of the operation, or `reg`.
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

/// A jump whose distance is filled in when its target is reached.
#[derive(Debug)]
#[must_use]
pub(super) struct ForwardJump(usize);

/// Code that is made from its beginning.
pub(super) struct Chunk {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Chunk {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; BYTES_MAX], len: 0 }
    }

    /// The bytes; `None` if they were too many.
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

    /// The prefix that makes registers wide or reaches those from 8 on, if one is needed. A byte in
    /// rsp, rbp, rsi or rdi needs one without bits (`is_byte`).
    fn rex(&mut self, width: Width, reg: Reg, rm: Reg, is_byte: bool) {
        let wide = if width == Width::Wide { 8 } else { 0 };
        let rex = wide | (reg.0 >> 3) << 2 | rm.0 >> 3;
        if rex != 0 || is_byte {
            self.byte(0x40 | rex);
        }
    }

    /// An operation with two registers.
    pub(super) fn registers(&mut self, width: Width, operation: &[u8], reg: Reg, rm: Reg) {
        self.rex(width, reg, rm, false);
        self.raw(operation);
        self.byte(0xc0 | (reg.0 & 7) << 3 | rm.0 & 7);
    }

    /// The same, where `rm` is a byte.
    pub(super) fn registers_byte(&mut self, width: Width, operation: &[u8], reg: Reg, rm: Reg) {
        self.rex(width, reg, rm, (4..8).contains(&rm.0));
        self.raw(operation);
        self.byte(0xc0 | (reg.0 & 7) << 3 | rm.0 & 7);
    }

    /// An operation with a register and what is in memory at `base + offset`. The base is one of
    /// the mapped registers: rsp and r12, which would need another byte, are none of them.
    pub(super) fn memory(
        &mut self,
        width: Width,
        operation: &[u8],
        reg: Reg,
        (base, offset): (Reg, i32),
    ) {
        self.memory_rex(width, operation, reg, (base, offset), false);
    }

    /// The same, where `reg` is a byte.
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
            // rbp and r13 without an offset would mean something else.
            Ok(0) if base.0 & 7 != RBP.0 => self.byte(registers),
            Ok(short) => self.raw(&[0x40 | registers, short as u8]),
            Err(_) => {
                self.byte(0x80 | registers);
                self.i32(offset);
            }
        }
    }

    /// `rm = rm OPERATION reg`.
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

    /// An operation with one register; `extension` stands where the other would.
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

    /// Loads a number, in the shortest way.
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

    /// `bswap`.
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

    /// The address of what is `distance` behind the end of this.
    pub(super) fn address(&mut self, reg: Reg, distance: i32) {
        self.rex(Width::Wide, reg, RAX, false);
        self.raw(&[0x8d, (reg.0 & 7) << 3 | 5]);
        self.i32(distance);
    }

    /// A jump within this chunk, forward.
    pub(super) fn jump_forward(&mut self, condition: Option<Condition>) -> ForwardJump {
        self.byte(condition.map_or(0xeb, |condition| 0x70 | condition as u8));
        self.byte(0);
        ForwardJump(self.len)
    }

    /// Here is where the jump leads to.
    pub(super) fn land(&mut self, jump: ForwardJump) {
        // A chunk is shorter than the longest such jump.
        if let Some(there) = self.bytes.get_mut(jump.0 - 1) {
            *there = (self.len - jump.0) as u8;
        }
    }

    /// A jump out of this chunk, `distance` behind its end.
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
