//! The verifier's pass: visits each instruction once, in order, with the facts before it.

use super::functions::{Functions, InsnSet, referenced_function};
use super::state::{Access, State, Value};
use super::{Function, Reason, Rules, Summary};
use crate::helper::Helper;
use crate::insn::{
    CALL, EXIT, FRAME, Insn, LDDW_FUNCTION, STACK_END, alu, call, class, jump, size, source,
};
use crate::program::Program;
use crate::{DEPTH_MAX, ELEMENTS_MAX, STACK_BYTES};

/// First of the callee-saved registers, 6 to 9.
const SAVED_FIRST: u8 = 6;

/// The flow of control after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    /// Control continues only elsewhere, or ends.
    Away,
}

/// Facts at jump targets ahead of the pass.
struct Open<'m> {
    memory: &'m mut [State],
    targets: InsnSet,
}

impl Open<'_> {
    /// Adds the facts of a path that leads to `target`.
    fn add(&mut self, target: usize, state: &State) -> Result<(), Reason> {
        let wanted = if self.targets.has(target) { target as u16 } else { State::NOWHERE };
        let found = self.memory.iter_mut().find(|kept| kept.target == wanted);
        let kept = found.ok_or(Reason::Memory)?;
        if wanted == State::NOWHERE {
            *kept = *state;
            kept.target = target as u16;
            self.targets.set(target);
        } else {
            kept.join(state);
        }
        Ok(())
    }

    /// Removes and returns the facts of all jumps to `target`, which the pass has reached.
    fn take(&mut self, target: usize) -> Option<State> {
        if !self.targets.has(target) {
            return None;
        }
        let kept = self.memory.iter_mut().find(|kept| usize::from(kept.target) == target)?;
        let state = *kept;
        kept.target = State::NOWHERE;
        Some(state)
    }
}

/// The verifier's pass over one program.
pub(super) struct Walk<'p, 'm> {
    program: Program<'p>,
    rules: Rules,
    pub(super) functions: Functions,
    pub(super) summary: Summary,
    open: Open<'m>,
    now: State,
    /// Index of the current function.
    current: usize,
}

impl<'p, 'm> Walk<'p, 'm> {
    pub(super) fn new(
        program: Program<'p>,
        rules: Rules,
        functions: Functions,
        memory: &'m mut [State],
    ) -> Self {
        memory.fill(State::FREE);
        Self {
            program,
            rules,
            functions,
            summary: Summary { stack_bytes: 0, slots_read: 0, helpers: 0, steps: 0 },
            open: Open { memory, targets: InsnSet::NONE },
            now: State::at_program_start(),
            current: 0,
        }
    }

    /// Verifies all functions.
    pub(super) fn run(&mut self) -> Result<(), (usize, Reason)> {
        let first = &mut self.functions.all_mut()[0];
        (first.times, first.depth) = (1, 1);
        for index in 0..self.functions.all().len() {
            self.current = index;
            self.body()?;
            let start = self.function().start;
            self.close().map_err(|reason| (start.into(), reason))?;
        }
        let (steps, max) = (self.summary.steps, self.rules.steps_max);
        if steps > max {
            return Err((0, Reason::Steps { steps, max }));
        }
        Ok(())
    }

    fn function(&mut self) -> &mut Function {
        &mut self.functions.all_mut()[self.current]
    }

    /// Verifies the instructions of the current function.
    fn body(&mut self) -> Result<(), (usize, Reason)> {
        let range = self.function().range();
        let mut index = range.start;
        let mut flow = if index == 0 { Flow::Next } else { Flow::Away };
        while index < range.end {
            let at = |reason| (index, reason);
            match (self.open.take(index), flow) {
                (Some(state), Flow::Away) => self.now = state,
                (Some(state), Flow::Next) => self.now.join(&state),
                (None, Flow::Away) => return Err(at(Reason::Unreachable)),
                (None, Flow::Next) => {}
            }
            let insn = self.program.insn(index);
            self.note_registers(insn);
            flow = self.step(index, insn).map_err(at)?;
            let next = index + insn.width();
            if next >= range.end && flow == Flow::Next {
                return Err(at(Reason::NoEnd));
            }
            index = next;
        }
        Ok(())
    }

    /// Finishes the current function: accounts for its stack and steps, and updates its callees.
    fn close(&mut self) -> Result<(), Reason> {
        let Function { stack_bytes, stack_above, depth, times, callees, in_any, .. } =
            *self.function();
        let len = self.function().range().len() as u64;
        self.summary.steps = self.summary.steps.saturating_add(len.saturating_mul(times));
        if usize::from(depth) > DEPTH_MAX {
            return Err(Reason::Depth);
        }
        let stack = stack_above + stack_bytes;
        if usize::from(stack) > STACK_BYTES {
            return Err(Reason::StackSize(stack.into()));
        }
        self.summary.stack_bytes = self.summary.stack_bytes.max(stack.into());
        for (index, callee) in self.functions.all_mut().iter_mut().enumerate() {
            if callees >> index & 1 != 0 {
                callee.stack_above = callee.stack_above.max(stack);
                callee.depth = callee.depth.max(depth + 1);
                callee.in_any |= in_any;
            }
        }
        Ok(())
    }

    /// Records the properties of the function that machine code needs: the changed registers, and
    /// the use of the stack.
    fn note_registers(&mut self, insn: Insn) {
        let writes = matches!(insn.class(), class::LD | class::LDX | class::ALU | class::ALU64);
        let reads_src = matches!(insn.class(), class::LDX | class::STX)
            || insn.class() >= class::ALU && insn.op & source::X != 0 && insn.op != CALL;
        let stack = reads_src && insn.src == STACK_END
            || matches!(insn.class(), class::ST | class::STX) && insn.dst == STACK_END;
        let function = self.function();
        function.has_stack |= stack;
        if writes && (SAVED_FIRST..STACK_END).contains(&insn.dst) {
            function.saved |= 1 << (insn.dst - SAVED_FIRST);
        }
    }

    fn step(&mut self, index: usize, insn: Insn) -> Result<Flow, Reason> {
        match insn.class() {
            class::LD => self.wide(index, insn)?,
            class::LDX => self.load(insn)?,
            class::ST | class::STX => self.store(insn)?,
            class::ALU | class::ALU64 => self.arithmetic(insn)?,
            _ => return self.jump(index, insn),
        }
        Ok(Flow::Next)
    }

    fn wide(&mut self, index: usize, insn: Insn) -> Result<(), Reason> {
        let mut value = Value::Number;
        if insn.src == LDDW_FUNCTION {
            let function = self.callee(index, insn)?;
            value = Value::Function(function as u8);
            let callee = &mut self.functions.all_mut()[function];
            callee.is_callback = true;
            let start = callee.start.into();
            // The callback gets the frame and an element.
            let mut arguments = [Value::Unwritten; 5];
            [arguments[0], arguments[1]] = [Value::Frame(0), Value::Number];
            self.open.add(start, &State::at_function_entry(arguments))?;
        }
        self.now.write(insn.dst, value);
        Ok(())
    }

    /// Returns the index of the function that is called, or whose address is taken.
    fn callee(&mut self, index: usize, insn: Insn) -> Result<usize, Reason> {
        let start = referenced_function(index, insn).and_then(|start| usize::try_from(start).ok());
        let found = start.and_then(|start| self.functions.at(start));
        found.filter(|&function| function > self.current).ok_or(Reason::NoFunction)
    }

    fn load(&mut self, insn: Insn) -> Result<(), Reason> {
        let size = size_bytes(insn);
        let value = match self.now.read(insn.src)?.moved(insn.offset.into()) {
            Some(Ok(Value::Frame(offset))) => self.frame_load(offset.into(), size)?,
            Some(Ok(Value::Stack(offset))) => {
                let access = self.stack_access(offset.into(), size);
                self.now.load(access)?
            }
            Some(Err(_)) => return Err(self.reach_error(insn.src, insn.offset)),
            _ => return Err(Reason::NoMemory(insn.src)),
        };
        self.now.write(insn.dst, value);
        Ok(())
    }

    /// Returns the error for an access beyond the maximum distance of the pointer.
    fn reach_error(&self, base: u8, by: i16) -> Reason {
        let slots = self.rules.slots;
        match self.now.known(base) {
            Value::Frame(offset) => {
                Reason::OutsideFrame { offset: i64::from(offset) + i64::from(by), slots }
            }
            Value::Stack(offset) => Reason::OutsideStack(i64::from(offset) + i64::from(by)),
            _ => Reason::NoMemory(base),
        }
    }

    fn frame_load(&mut self, offset: i64, size: u8) -> Result<Value, Reason> {
        let slots = self.rules.slots;
        let end = offset + i64::from(size);
        let (Ok(start), true) = (u32::try_from(offset), end <= 8 * slots as i64) else {
            return Err(Reason::OutsideFrame { offset, slots });
        };
        if !start.is_multiple_of(size.into()) {
            return Err(Reason::Unaligned(offset));
        }
        self.summary.slots_read |= 1 << (start / 8);
        Ok(Value::Number)
    }

    /// Returns the stack access, and extends the function's stack to it.
    fn stack_access(&mut self, offset: i64, size: u8) -> Access {
        let depth = u16::try_from(-offset).unwrap_or(0).next_multiple_of(8);
        let function = self.function();
        function.stack_bytes = function.stack_bytes.max(depth);
        Access { offset, size }
    }

    fn store(&mut self, insn: Insn) -> Result<(), Reason> {
        let is_register = insn.class() == class::STX;
        let value = if is_register { self.now.read(insn.src)? } else { Value::Number };
        match self.now.read(insn.dst)?.moved(insn.offset.into()) {
            Some(Ok(Value::Stack(offset))) => {
                let access = self.stack_access(offset.into(), size_bytes(insn));
                self.now.store(access, value)
            }
            Some(Ok(Value::Frame(_))) => Err(Reason::FrameStore),
            Some(Err(_)) => Err(self.reach_error(insn.dst, insn.offset)),
            _ => Err(Reason::NoMemory(insn.dst)),
        }
    }

    fn arithmetic(&mut self, insn: Insn) -> Result<(), Reason> {
        let operation = insn.op & 0xf0;
        let is_register = insn.op & source::X != 0 && operation != alu::END;
        let is_64 = insn.class() == class::ALU64;
        let mut value = Value::Number;
        if operation == alu::MOV {
            match (is_register, is_64 && insn.offset == 0) {
                (true, true) => value = self.now.read(insn.src)?,
                (true, false) => self.now.number(insn.src)?,
                (false, _) => {}
            }
        } else {
            let by = i64::from(insn.immediate);
            let by = match operation {
                alu::ADD if is_64 && !is_register => Some(by),
                alu::SUB if is_64 && !is_register => Some(-by),
                _ => None,
            };
            match self.now.read(insn.dst)? {
                Value::Number if is_register => match self.now.read(insn.src)? {
                    Value::Number => {}
                    _ => return Err(Reason::PointerArithmetic(insn.src)),
                },
                Value::Number => {}
                pointer => {
                    let moved = by.and_then(|by| pointer.moved(by));
                    value = moved.ok_or(Reason::PointerArithmetic(insn.dst))??;
                }
            }
        }
        self.now.write(insn.dst, value);
        Ok(())
    }

    fn jump(&mut self, index: usize, insn: Insn) -> Result<Flow, Reason> {
        match insn.op {
            EXIT => {
                self.now.number(0)?;
                return Ok(Flow::Away);
            }
            CALL => {
                match insn.src {
                    call::FUNCTION => {
                        self.function().has_calls = true;
                        self.call_function(index, insn)?;
                    }
                    _ => self.call_helper(insn.immediate)?,
                }
                let helper = Helper::from_number(insn.immediate);
                let keeps_frame =
                    insn.src == call::HELPER && helper.is_some_and(Helper::keeps_frame);
                self.now.called(keeps_frame);
                return Ok(Flow::Next);
            }
            _ => {}
        }
        let is_always = insn.op & 0xf0 == jump::JA;
        if !is_always {
            self.now.number(insn.dst)?;
            if insn.op & source::X != 0 {
                self.now.number(insn.src)?;
            }
        }
        let target = jump_target(index, insn);
        if target <= index as i64 {
            return Err(Reason::Backward);
        }
        let range = self.function().range();
        let inside = usize::try_from(target).ok().filter(|target| range.contains(target));
        // Only the second half of a wide load has operation 0.
        let whole = inside.filter(|&target| self.program.insn(target).op != 0);
        let target = whole.ok_or(Reason::Outside)?;
        self.open.add(target, &self.now)?;
        Ok(if is_always { Flow::Away } else { Flow::Next })
    }

    fn call_function(&mut self, index: usize, insn: Insn) -> Result<(), Reason> {
        let callee = self.callee(index, insn)?;
        let mut arguments = [1, 2, 3, 4, 5].map(|register| self.now.known(register));
        for argument in &mut arguments {
            // Stack pointers and functions are not usable across a call.
            if matches!(argument, Value::Stack(_) | Value::Function(_)) {
                *argument = Value::Mixed;
            }
        }
        let start = self.functions.all()[callee].start.into();
        self.open.add(start, &State::at_function_entry(arguments))?;
        self.count_call(callee, 1);
        Ok(())
    }

    /// Counts `times` calls of `callee` for each call of the current function.
    fn count_call(&mut self, callee: usize, times: u64) {
        let caller = self.function();
        caller.callees |= 1 << callee;
        let times = caller.times.saturating_mul(times);
        let callee = &mut self.functions.all_mut()[callee];
        callee.times = callee.times.saturating_add(times);
    }

    fn call_helper(&mut self, number: i32) -> Result<(), Reason> {
        let helper = Helper::from_number(number).ok_or(Reason::NoHelper(number))?;
        self.function().has_calls |= !helper.is_inline();
        if self.now.read(FRAME)? != Value::Frame(0) {
            return Err(Reason::NotFrame);
        }
        for register in 2..=helper.arguments() as u8 {
            if (helper, register) != (Helper::Any, ANY_FUNCTION) {
                self.now.number(register)?;
            }
        }
        match helper {
            Helper::Any => self.call_any()?,
            Helper::TailCall if self.current != 0 => return Err(Reason::TailCallInFunction),
            _ if helper.is_of_elements() => {
                // All callers of this function precede it, so its call count is final.
                let elements = self.function().times.saturating_mul(ELEMENTS_MAX as u64);
                self.summary.steps = self.summary.steps.saturating_add(elements);
            }
            _ => {}
        }
        self.summary.helpers |= 1 << helper as u64;
        Ok(())
    }

    fn call_any(&mut self) -> Result<(), Reason> {
        let Value::Function(function) = self.now.read(ANY_FUNCTION)? else {
            return Err(Reason::NotFunction(ANY_FUNCTION));
        };
        if self.function().in_any {
            return Err(Reason::AnyInsideAny);
        }
        self.functions.all_mut()[usize::from(function)].in_any = true;
        self.count_call(function.into(), ELEMENTS_MAX as u64);
        Ok(())
    }
}

/// Register of the function argument of `any`.
const ANY_FUNCTION: u8 = 4;

/// Returns the number of bytes that a load or a store moves.
pub(crate) fn size_bytes(insn: Insn) -> u8 {
    match insn.op & size::DW {
        size::B => 1,
        size::H => 2,
        size::W => 4,
        _ => 8,
    }
}

/// Returns the distance of a jump from the next instruction.
#[inline(always)]
pub(crate) fn jump_distance(insn: Insn) -> i32 {
    let is_long = insn.class() == class::JMP32 && insn.op & 0xf0 == jump::JA;
    if is_long { insn.immediate } else { insn.offset.into() }
}

/// Returns the index of a jump's target.
pub(crate) fn jump_target(index: usize, insn: Insn) -> i64 {
    index as i64 + 1 + i64::from(jump_distance(insn))
}
