//! Verifier facts at one point of a program: about each register, and each byte of the stack.

use super::Reason;
use crate::STACK_BYTES;
use crate::insn::{FRAME, REGISTERS, STACK_END};

/// Number of eight-byte slots in the stack.
const SLOTS: usize = STACK_BYTES / 8;
/// Maximum distance of a pointer from its target, in bytes; larger than any program needs.
const DISTANCE_MAX: i64 = 4096;

/// Facts about a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// Not written on all paths, or lost in a call.
    Unwritten,
    /// Different types or targets on different paths.
    Mixed,
    /// A number.
    Number,
    /// A pointer at this offset in bytes from the frame's beginning.
    Frame(i16),
    /// A pointer at this offset in bytes from the end of the function's stack.
    Stack(i16),
    /// A function, by its index in the program's list.
    Function(u8),
}

impl Value {
    /// Joins the facts of two paths.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Unwritten, _) | (_, Self::Unwritten) => Self::Unwritten,
            _ => Self::Mixed,
        }
    }

    /// Moves a pointer by this many bytes; returns `None` for other values.
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
    /// A pointer that was stored from a register.
    Spilled(Value),
}

impl Slot {
    /// Joins the facts of two paths.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => Self::Bytes(a & b),
            _ if self == other => self,
            _ => Self::Bytes(0),
        }
    }
}

/// Facts at one point of a program. The verifier's memory is an array of [`State::FREE`].
#[derive(Debug, Clone, Copy)]
pub struct State {
    /// Index of the instruction at this point; [`Self::NOWHERE`] for an unused state.
    pub(super) target: u16,
    registers: [Value; REGISTERS],
    stack: [Slot; SLOTS],
}

/// A load from the stack, or a store to the stack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// Offset in bytes from the stack's end.
    pub(super) offset: i64,
    /// Size in bytes: 1, 2, 4 or 8.
    pub(super) size: u8,
}

impl Access {
    /// Returns the slot, and the mask of the accessed bytes; an aligned access is within one slot.
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
    /// An unused state.
    pub const FREE: Self = Self {
        target: Self::NOWHERE,
        registers: [Value::Unwritten; REGISTERS],
        stack: [Slot::Bytes(0); SLOTS],
    };

    /// Returns the facts at the start of a function with these arguments in registers 1 to 5.
    pub(super) fn at_function_entry(arguments: [Value; 5]) -> Self {
        let mut state = Self::FREE;
        state.registers[1..=5].copy_from_slice(&arguments);
        state.registers[usize::from(STACK_END)] = Value::Stack(0);
        state
    }

    /// Returns the facts at the start of a program.
    pub(super) fn at_program_start() -> Self {
        let mut arguments = [Value::Unwritten; 5];
        arguments[usize::from(FRAME) - 1] = Value::Frame(0);
        Self::at_function_entry(arguments)
    }

    /// Joins the facts of another path into this state.
    pub(super) fn join(&mut self, other: &Self) {
        for (here, there) in self.registers.iter_mut().zip(&other.registers) {
            *here = here.joined(*there);
        }
        for (here, there) in self.stack.iter_mut().zip(&other.stack) {
            *here = here.joined(*there);
        }
    }

    /// Returns the facts about a register, even if the register is not readable.
    pub(super) fn known(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or(Value::Unwritten)
    }

    /// Returns the facts about a register that is read, or the error if it is not readable.
    pub(super) fn read(&self, register: u8) -> Result<Value, Reason> {
        match self.known(register) {
            Value::Unwritten => Err(Reason::Unwritten(register)),
            Value::Mixed => Err(Reason::Mixed(register)),
            value => Ok(value),
        }
    }

    /// Checks that a register is readable and holds a number.
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

    /// Updates the registers after a call: register 0 holds the result, and registers 1 to 5 are
    /// lost. `keeps_frame` preserves the frame in register 1.
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
