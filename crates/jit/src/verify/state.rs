//! Facts about one place of a program: about each register, and each byte of the stack.

use super::Reason;
use crate::STACK_BYTES;
use crate::insn::{FRAME, REGISTERS, STACK_END};

/// Slots of eight bytes that the stack has.
const SLOTS: usize = STACK_BYTES / 8;
/// Longest distance of a pointer from its target, in bytes: none needs to go farther.
const DISTANCE_MAX: i64 = 4096;

/// Facts about a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Not written on all paths, or lost in a call.
    Unwritten,
    /// A pointer on one path, something else on another.
    Mixed,
    /// A number.
    Number,
    /// The frame, and so many bytes.
    Frame(i16),
    /// The end of the function's stack, and so many bytes.
    Stack(i16),
    /// A function, by its place in the program's list.
    Function(u8),
}

impl Value {
    /// Returns the facts that hold on both of two paths.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Unwritten, _) | (_, Self::Unwritten) => Self::Unwritten,
            _ => Self::Mixed,
        }
    }

    /// The pointer, moved by so many bytes; `None` if it is none that can be.
    pub(super) fn moved(self, by: i64) -> Option<Result<Self, Reason>> {
        let (offset, pointer): (_, fn(i16) -> Self) = match self {
            Self::Frame(offset) => (offset, Self::Frame),
            Self::Stack(offset) => (offset, Self::Stack),
            _ => return None,
        };
        let offset = i64::from(offset) + by;
        let near = offset.abs() <= DISTANCE_MAX;
        let moved = i16::try_from(offset).ok().filter(|_| near).map(pointer);
        Some(moved.ok_or(Reason::PointerDistance(offset)))
    }
}

/// Facts about eight bytes of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Bit n: byte n is written, and part of a number.
    Bytes(u8),
    /// A pointer, as a register had it.
    Spilled(Value),
}

impl Slot {
    /// Returns the facts that hold on both of two paths.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => Self::Bytes(a & b),
            _ if self == other => self,
            _ => Self::Bytes(0),
        }
    }
}

/// Facts about a place of a program. The verifier's memory is made of these: [`State::FREE`].
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// The instruction that the facts are about; [`Self::NOWHERE`] if the state is free.
    pub(super) target: u16,
    registers: [Value; REGISTERS],
    stack: [Slot; SLOTS],
}

/// A load from, or a store to the stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// From where, in bytes from the stack's end.
    pub(super) offset: i64,
    /// 1, 2, 4 or 8.
    pub(super) size: u8,
}

impl Access {
    /// The slot that it is in and its bytes there: what is aligned is never in two.
    fn place(self) -> Result<(usize, u8), Reason> {
        let Self { offset, size } = self;
        let from_start = offset + STACK_BYTES as i64;
        let (Ok(start), true) = (usize::try_from(from_start), offset + i64::from(size) <= 0) else {
            return Err(Reason::OutsideStack(offset));
        };
        if !start.is_multiple_of(size.into()) {
            return Err(Reason::Unaligned(offset));
        }
        Ok((start / 8, (0xff >> (8 - size)) << (start % 8)))
    }
}

impl State {
    pub(super) const NOWHERE: u16 = u16::MAX;
    /// Memory that nothing is kept in.
    pub const FREE: Self = Self {
        target: Self::NOWHERE,
        registers: [Value::Unwritten; REGISTERS],
        stack: [Slot::Bytes(0); SLOTS],
    };

    /// At the beginning of a function that is given these in registers 1 to 5.
    pub(super) fn at_function_entry(arguments: [Value; 5]) -> Self {
        let mut state = Self::FREE;
        state.registers[1..=5].copy_from_slice(&arguments);
        state.registers[usize::from(STACK_END)] = Value::Stack(0);
        state
    }

    /// At the beginning of a program.
    pub(super) fn at_program_start() -> Self {
        let mut arguments = [Value::Unwritten; 5];
        arguments[usize::from(FRAME) - 1] = Value::Frame(0);
        Self::at_function_entry(arguments)
    }

    /// Keeps what the other path knows, too.
    pub(super) fn join(&mut self, other: &Self) {
        for (here, there) in self.registers.iter_mut().zip(&other.registers) {
            *here = here.joined(*there);
        }
        for (here, there) in self.stack.iter_mut().zip(&other.stack) {
            *here = here.joined(*there);
        }
    }

    /// Returns the facts about a register, whether it can be read or not.
    pub(super) fn known(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or(Value::Unwritten)
    }

    /// A register that is read.
    pub(super) fn read(&self, register: u8) -> Result<Value, Reason> {
        match self.known(register) {
            Value::Unwritten => Err(Reason::Unwritten(register)),
            Value::Mixed => Err(Reason::Mixed(register)),
            value => Ok(value),
        }
    }

    /// A register is read that must be a number.
    pub(super) fn number(&self, register: u8) -> Result<(), Reason> {
        match self.read(register)? {
            Value::Number => Ok(()),
            _ => Err(Reason::Pointer(register)),
        }
    }

    pub(super) fn write(&mut self, register: u8, value: Value) {
        if let Some(known) = self.registers.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// After a call: register 0 is its answer, and registers 1 to 5 are lost, but for the frame in
    /// the first where the call leaves that.
    pub(super) fn called(&mut self, keeps_frame: bool) {
        self.registers[0] = Value::Number;
        let lost = if keeps_frame { 2..=5 } else { 1..=5 };
        self.registers[lost].fill(Value::Unwritten);
    }

    /// Returns the result of a load from the stack.
    pub(super) fn load(&self, access: Access) -> Result<Value, Reason> {
        let (slot, bytes) = access.place()?;
        match self.stack[slot] {
            Slot::Spilled(value) if access.size == 8 => Ok(value),
            Slot::Spilled(_) => Err(Reason::PartOfPointer),
            Slot::Bytes(written) if written & bytes == bytes => Ok(Value::Number),
            Slot::Bytes(_) => Err(Reason::StackUnwritten(access.offset)),
        }
    }

    /// Stores to the stack.
    pub(super) fn store(&mut self, access: Access, value: Value) -> Result<(), Reason> {
        let (slot, bytes) = access.place()?;
        self.stack[slot] = match (value, self.stack[slot]) {
            (Value::Number, Slot::Bytes(written)) => Slot::Bytes(written | bytes),
            (Value::Number, Slot::Spilled(_)) => Slot::Bytes(bytes),
            _ if access.size == 8 => Slot::Spilled(value),
            _ => return Err(Reason::PartOfPointer),
        };
        Ok(())
    }
}
