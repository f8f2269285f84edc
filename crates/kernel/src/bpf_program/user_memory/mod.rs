//! Records the user memory that a system call's pointers lead to.
//!
//! Reads never fault: data that is not in memory at that moment is missing. Loops are bounded and
//! unrolled, so that the verifier can follow them. The program reads a structure to a scratch place
//! after the record, in the same sub-buffer, and copies the structure's members from there.

mod sockets;

use trackway_jit::insn::{alu, jump};

use super::codegen::{AT, CONTEXT, CPU, ProgramBuilder, STACK, helper, insn_offset, stack};
use super::plan::{Step, VARIABLE_BYTES_MAX};
use super::pointer_fields::{
    ElementCount, ReadCondition, RecordedMember, RecordedStructure, SOCKET_BYTES_MAX,
    TEXTS_BYTES_MAX, TEXTS_EACH_BYTES_MAX, TEXTS_MAX, USER_TEXT_BYTES_MAX, UserPointer,
};
use super::scope;
use crate::bpf_sys::asm::{Label, Register};

/// ERESTART_RESTARTBLOCK (include/linux/errno.h): the kernel-internal result of an interrupted
/// sleep that has written its remaining time. (A sleep until a point in time has another result.)
const RESTART_BLOCK: i32 = 516;
/// Most bytes that a program reads of a socket address: one more than recorded shows longer
/// addresses.
const SOCKET_READ_BYTES_MAX: u32 = SOCKET_BYTES_MAX + 1;

impl ProgramBuilder<'_> {
    /// Initialises the stack slots of steps that read user memory.
    pub(super) fn init_user_steps(&mut self) {
        let plan = self.plan;
        let asm = &mut self.asm;
        if plan.steps.contains(&Step::Incomplete) {
            asm.storei(STACK, stack::INCOMPLETE, 0);
        }
        let has = |is_it: fn(&Step) -> bool| plan.steps.iter().any(is_it);
        let is_again = has(|step| matches!(step, Step::UserTextRetry(_)));
        // A previous call may have returned without a record, and left its thread's bit set.
        if let Some(threads) = plan.unread_threads
            && (is_again || has(|step| matches!(step, Step::UserText(_))))
        {
            scope::take_current(asm, threads);
            if is_again {
                asm.store(STACK, stack::UNREAD, 1);
            }
        }
    }

    /// Runs a step that reads user memory.
    pub(super) fn write_user_step(&mut self, step: &Step) {
        match *step {
            Step::UserText(at) => {
                self.load_argument(3, at);
                self.copy_user_text(at, true);
            }
            Step::UserTextRetry(at) => self.retry_user_text(at),
            Step::UserTexts(pointer) => self.copy_user_texts(pointer),
            Step::UserBytes(pointer, bytes) => self.copy_user_bytes(pointer, bytes),
            Step::UserElements(pointer, count, bytes) => self.copy_elements(pointer, count, bytes),
            Step::Structure(pointer, index) => self.copy_structure(pointer, index),
            Step::Structures(pointer, count, index) => self.copy_structures(pointer, count, index),
            Step::SocketAddress(pointer, count) => {
                self.load_pointer(pointer);
                let number = self.argument_index(pointer.at);
                self.load_count(count, SOCKET_READ_BYTES_MAX, false, number);
                self.copy_socket_address(number);
            }
            Step::Message(pointer) => self.copy_message_address(pointer),
            Step::Incomplete => {
                self.asm.load(1, STACK, stack::INCOMPLETE);
                self.load_target(2, 0);
                self.asm.store_sized(1, 2, 0, 1);
                self.asm.alui(alu::ADD, AT, 1);
            }
            _ => {}
        }
    }

    /// Loads the address `more` bytes after [`AT`].
    fn load_target(&mut self, register: Register, more: u32) {
        let asm = &mut self.asm;
        asm.mov(register, CPU);
        asm.alu(alu::ADD, register, AT);
        if more > 0 {
            asm.alui(alu::ADD, register, more as i32);
        }
    }

    /// Returns the index of the argument in the register at this offset.
    pub(super) fn argument_index(&self, at: u32) -> usize {
        let arguments = self.plan.call.map_or([None; 6], |call| call.arguments);
        arguments.iter().position(|of| *of == Some(at)).unwrap_or(7)
    }

    /// Returns the size of the call's addresses, in bytes.
    fn address_bytes(&self) -> u32 {
        if self.plan.call.is_some_and(|call| call.is_compat) { 4 } else { 8 }
    }

    /// Loads an argument in the call's register size.
    fn load_argument(&mut self, to: Register, at: u32) {
        self.asm.load_sized(self.address_bytes(), to, CONTEXT, insn_offset(at as usize));
    }

    /// Marks an argument as incomplete.
    fn mark_incomplete(&mut self, number: usize) {
        let asm = &mut self.asm;
        asm.load(1, STACK, stack::INCOMPLETE);
        asm.alui(alu::OR, 1, 1 << number);
        asm.store(STACK, stack::INCOMPLETE, 1);
    }

    /// Loads a pointer into r3 and the stack; loads zero if the pointer's condition is false.
    fn load_pointer(&mut self, pointer: UserPointer) {
        let result = insn_offset(self.plan.call.map_or(0, |call| call.result) as usize);
        let asm = &mut self.asm;
        let is_not = asm.new_label();
        asm.movi(3, 0);
        match pointer.condition {
            ReadCondition::OnEntry => {}
            ReadCondition::OnSuccess => {
                asm.load(1, CONTEXT, result);
                asm.jumpi(jump::JSLT, 1, 0, is_not);
            }
            ReadCondition::OnInterrupt => {
                let is_it = asm.new_label();
                asm.load(1, CONTEXT, result);
                asm.jumpi(jump::JEQ, 1, -libc::EINTR, is_it);
                asm.jumpi(jump::JNE, 1, -RESTART_BLOCK, is_not);
                asm.place_label(is_it);
            }
        }
        self.load_argument(3, pointer.at);
        self.asm.place_label(is_not);
        self.asm.store(STACK, stack::ADDRESS, 3);
    }

    /// Loads the number of elements, at most `most`, into r4 and the stack.
    fn load_count(&mut self, count: ElementCount, most: u32, is_cut_noted: bool, number: usize) {
        let result = insn_offset(self.plan.call.map_or(0, |call| call.result) as usize);
        let asm = &mut self.asm;
        let low = |asm: &mut crate::bpf_sys::asm::Asm| {
            asm.alui(alu::LSH, 4, 32);
            asm.alui(alu::RSH, 4, 32);
        };
        match count {
            ElementCount::Fixed(count) => asm.movi(4, count as i32),
            ElementCount::Register(at, bytes) => {
                asm.load(4, CONTEXT, insn_offset(at as usize));
                if bytes <= 4 {
                    low(asm);
                }
            }
            ElementCount::Pointed(at) => {
                asm.storei(STACK, stack::WORD, 0);
                self.load_argument(3, at);
                self.read_to_stack(stack::WORD, 4);
                let is_read = self.asm.new_label();
                self.asm.jumpi(jump::JEQ, 0, 0, is_read);
                self.mark_unless_null(number);
                self.asm.place_label(is_read);
                self.asm.load(4, STACK, stack::WORD);
            }
            ElementCount::Result(limit) => {
                asm.load(4, CONTEXT, result);
                if let Some(at) = limit {
                    let is_less = asm.new_label();
                    self.load_argument(1, at);
                    self.asm.jump(jump::JLE, 4, 1, is_less);
                    self.asm.mov(4, 1);
                    self.asm.place_label(is_less);
                }
            }
        }
        // A null pointer has no elements.
        let (is_there, fits) = (self.asm.new_label(), self.asm.new_label());
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JNE, 1, 0, is_there);
        self.asm.movi(4, 0);
        self.asm.place_label(is_there);
        self.asm.jumpi(jump::JLE, 4, most as i32, fits);
        self.asm.movi(4, most as i32);
        if is_cut_noted {
            self.mark_incomplete(number);
        }
        self.asm.place_label(fits);
        self.asm.store(STACK, stack::COUNT, 4);
    }

    /// Reads `bytes` bytes at the address in r3 to the stack.
    fn read_to_stack(&mut self, to: i16, bytes: i32) {
        let asm = &mut self.asm;
        asm.mov(1, STACK);
        asm.alui(alu::ADD, 1, to.into());
        asm.movi(2, bytes);
        asm.call_kernel(helper::PROBE_READ_USER);
    }

    /// Marks an argument as incomplete after a failed read, unless the pointer is null.
    fn mark_unless_null(&mut self, number: usize) {
        let is_none = self.asm.new_label();
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JEQ, 1, 0, is_none);
        self.mark_incomplete(number);
        self.asm.place_label(is_none);
    }

    /// Copies the user text at the address in r3; cuts a long text.
    fn copy_user_text(&mut self, at: u32, is_first: bool) {
        let (number, most) = (self.argument_index(at), USER_TEXT_BYTES_MAX as i32);
        let (is_read, is_whole, is_none) =
            (self.asm.new_label(), self.asm.new_label(), self.asm.new_label());
        self.asm.store(STACK, stack::ADDRESS, 3);
        self.load_target(1, 0);
        // One byte more than recorded shows whether the text is longer.
        self.asm.movi(2, most + 1);
        self.asm.call_kernel(helper::PROBE_READ_USER_STR);
        self.asm.jumpi(jump::JSGT, 0, 0, is_read);
        self.load_target(1, 0);
        self.asm.storei_sized(1, 1, 0, 0);
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JEQ, 1, 0, is_none);
        self.mark_incomplete(number);
        if let Some(threads) = self.plan.unread_threads.filter(|_| is_first) {
            scope::add_current(&mut self.asm, threads);
        }
        self.asm.place_label(is_none);
        self.asm.movi(0, 1);
        self.asm.goto(is_whole);
        self.asm.place_label(is_read);
        self.asm.jumpi(jump::JLE, 0, most, is_whole);
        self.load_target(1, USER_TEXT_BYTES_MAX - 1);
        self.asm.storei_sized(1, 1, 0, 0);
        self.mark_incomplete(number);
        self.asm.movi(0, most);
        self.asm.place_label(is_whole);
        self.asm.alu(alu::ADD, AT, 0);
        self.forget_position();
    }

    /// Copies a text at the exit of the call if it was unreadable at the entry: meanwhile the
    /// kernel has read the text, so the text is in memory.
    fn retry_user_text(&mut self, at: u32) {
        let (is_unread, is_done) = (self.asm.new_label(), self.asm.new_label());
        if self.plan.unread_threads.is_some() {
            self.asm.load(1, STACK, stack::UNREAD);
            self.asm.jumpi(jump::JNE, 1, 0, is_unread);
        }
        self.write_count(0);
        if self.plan.unread_threads.is_some() {
            self.asm.goto(is_done);
            self.asm.place_label(is_unread);
            self.write_count(1);
            self.load_argument(3, at);
            self.copy_user_text(at, false);
            self.asm.place_label(is_done);
            self.forget_position();
        }
    }

    /// Writes the number of elements in the next sequence.
    fn write_count(&mut self, count: i32) {
        self.load_target(1, 0);
        self.asm.storei_sized(4, 1, 0, count);
        self.asm.alui(alu::ADD, AT, 4);
    }

    /// Writes the number of texts and copies the texts.
    fn copy_user_texts(&mut self, pointer: UserPointer) {
        let (number, bytes) = (self.argument_index(pointer.at), self.address_bytes());
        let (is_missing, is_end) = (self.asm.new_label(), self.asm.new_label());
        self.load_pointer(pointer);
        self.asm.storei(STACK, stack::COUNT, 0);
        self.asm.storei(STACK, stack::USED, 4);
        // A null pointer leads to no texts.
        self.asm.jumpi(jump::JEQ, 3, 0, is_end);
        for text in 0..=TEXTS_MAX {
            self.asm.load(3, STACK, stack::ADDRESS);
            self.asm.alui(alu::ADD, 3, (bytes * text) as i32);
            self.read_to_stack(stack::WORD, bytes as i32);
            self.asm.jumpi(jump::JNE, 0, 0, is_missing);
            self.asm.load_sized(bytes, 3, STACK, stack::WORD);
            self.asm.jumpi(jump::JEQ, 3, 0, is_end);
            if text < TEXTS_MAX {
                self.copy_one_user_text(number, is_missing);
            }
        }
        self.asm.place_label(is_missing);
        self.mark_incomplete(number);
        self.asm.place_label(is_end);
        self.load_target(1, 0);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.store_sized(4, 1, 0, 2);
        self.asm.load(2, STACK, stack::USED);
        self.asm.alu(alu::ADD, AT, 2);
        self.forget_position();
    }

    /// Copies one text of several, from the address in r3.
    fn copy_one_user_text(&mut self, number: usize, is_missing: Label) {
        let most = TEXTS_EACH_BYTES_MAX as i32;
        let is_whole = self.asm.new_label();
        self.load_text_target(is_missing);
        // One byte more than recorded shows whether the text is longer.
        self.asm.movi(2, most + 1);
        self.asm.call_kernel(helper::PROBE_READ_USER_STR);
        self.asm.jumpi(jump::JSLE, 0, 0, is_missing);
        self.asm.jumpi(jump::JLE, 0, most, is_whole);
        self.load_text_target(is_missing);
        self.asm.storei_sized(1, 1, insn_offset(TEXTS_EACH_BYTES_MAX as usize - 1), 0);
        self.mark_incomplete(number);
        self.asm.movi(0, most);
        self.asm.place_label(is_whole);
        self.asm.load(4, STACK, stack::USED);
        self.asm.alu(alu::ADD, 4, 0);
        self.forget_register(4, 4 + TEXTS_BYTES_MAX as i32, is_missing);
        self.asm.store(STACK, stack::USED, 4);
        self.asm.load(1, STACK, stack::COUNT);
        self.asm.alui(alu::ADD, 1, 1);
        self.asm.store(STACK, stack::COUNT, 1);
    }

    /// Loads the destination of the next text into r1; jumps to `is_missing` if the longest text
    /// would not fit.
    fn load_text_target(&mut self, is_missing: Label) {
        let last = 4 + (TEXTS_BYTES_MAX - TEXTS_EACH_BYTES_MAX) as i32;
        self.asm.load(4, STACK, stack::USED);
        self.asm.jumpi(jump::JGT, 4, last, is_missing);
        self.load_target(1, 0);
        self.asm.alu(alu::ADD, 1, 4);
    }

    /// Reads `bytes` bytes of user memory to `more` bytes after [`AT`]; writes zeros if they are
    /// unreadable.
    fn read_user(&mut self, number: usize, more: u32, bytes: u32) {
        let is_read = self.asm.new_label();
        self.load_target(1, more);
        self.asm.movi(2, bytes as i32);
        self.asm.load(3, STACK, stack::ADDRESS);
        self.asm.call_kernel(helper::PROBE_READ_USER);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.mark_unless_null(number);
        self.asm.place_label(is_read);
    }

    /// Reads a structure of which `size` bytes exist; the remaining bytes become zero, instead of
    /// copies of the user memory after the structure.
    fn read_sized(&mut self, number: usize, more: u32, bytes: u32, size: Option<ElementCount>) {
        let Some(size) = size else { return self.read_user(number, more, bytes) };
        self.load_target(5, more);
        let mut done = 0;
        while done < bytes {
            let unit = [8, 4, 2, 1].into_iter().find(|unit| bytes - done >= *unit).unwrap_or(1);
            self.asm.storei_sized(unit, 5, insn_offset(done as usize), 0);
            done += unit;
        }
        self.load_count(size, bytes, false, number);
        self.read_elements(number, more, 1);
    }

    fn copy_user_bytes(&mut self, pointer: UserPointer, bytes: u32) {
        let number = self.argument_index(pointer.at);
        self.load_pointer(pointer);
        self.read_user(number, 0, bytes);
        self.asm.alui(alu::ADD, AT, bytes as i32);
    }

    /// Reads the counted elements to `more` bytes after [`AT`]; unreadable elements reduce the
    /// count to zero.
    fn read_elements(&mut self, number: usize, more: u32, bytes: u32) {
        let is_read = self.asm.new_label();
        self.load_target(1, more);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.jumpi(jump::JEQ, 2, 0, is_read);
        self.asm.alui(alu::MUL, 2, bytes as i32);
        self.asm.load(3, STACK, stack::ADDRESS);
        self.asm.call_kernel(helper::PROBE_READ_USER);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.asm.storei(STACK, stack::COUNT, 0);
        self.mark_incomplete(number);
        self.asm.place_label(is_read);
    }

    fn copy_elements(&mut self, pointer: UserPointer, count: ElementCount, bytes: u32) {
        let number = self.argument_index(pointer.at);
        self.load_pointer(pointer);
        self.load_count(count, VARIABLE_BYTES_MAX / bytes, true, number);
        self.read_elements(number, 4, bytes);
        self.load_target(1, 0);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.store_sized(4, 1, 0, 2);
        self.asm.alui(alu::MUL, 2, bytes as i32);
        self.asm.alu(alu::ADD, AT, 2);
        self.asm.alui(alu::ADD, AT, 4);
        self.forget_position();
    }

    fn recorded_structure(&self, index: u8) -> RecordedStructure {
        let none = RecordedStructure { bytes: 1, members: Vec::new(), size: None };
        self.plan.structures.get(usize::from(index)).cloned().unwrap_or(none)
    }

    fn copy_structure(&mut self, pointer: UserPointer, index: u8) {
        let (number, of) = (self.argument_index(pointer.at), self.recorded_structure(index));
        self.load_pointer(pointer);
        if of.is_packed() {
            self.read_sized(number, 0, of.members_bytes(), of.size);
            self.asm.alui(alu::ADD, AT, of.members_bytes() as i32);
            return;
        }
        let aside = of.members_bytes();
        self.read_sized(number, aside, of.bytes, of.size);
        self.store_scratch(aside);
        for RecordedMember { offset, bytes, is_text } in of.members {
            if is_text {
                self.copy_scratch_text(offset, bytes);
                continue;
            }
            self.asm.load(4, STACK, stack::ASIDE);
            self.asm.alu(alu::ADD, 4, CPU);
            self.load_target(5, 0);
            let mut done = 0;
            while done < bytes {
                let unit = [8, 4, 2, 1].into_iter().find(|unit| bytes - done >= *unit);
                let unit = unit.unwrap_or(1);
                self.asm.load_sized(unit, 1, 4, insn_offset((offset + done) as usize));
                self.asm.store_sized(unit, 5, insn_offset(done as usize), 1);
                done += unit;
            }
            self.asm.alui(alu::ADD, AT, bytes as i32);
        }
    }

    /// Stores the address `more` bytes after [`AT`] as the scratch place.
    fn store_scratch(&mut self, more: u32) {
        self.asm.mov(1, AT);
        self.asm.alui(alu::ADD, 1, more as i32);
        self.asm.store(STACK, stack::ASIDE, 1);
    }

    /// Copies text of at most `bytes` bytes from the scratch place.
    fn copy_scratch_text(&mut self, offset: u32, bytes: u32) {
        self.asm.load(3, STACK, stack::ASIDE);
        self.asm.alu(alu::ADD, 3, CPU);
        self.asm.alui(alu::ADD, 3, offset as i32);
        self.copy_text(helper::PROBE_READ_KERNEL_STR, bytes);
    }

    fn copy_structures(&mut self, pointer: UserPointer, count: ElementCount, index: u8) {
        let (number, of) = (self.argument_index(pointer.at), self.recorded_structure(index));
        let most = of.count_max();
        let aside = 4 * of.members.len() as u32 + most * of.members_bytes();
        self.load_pointer(pointer);
        self.load_count(count, most, true, number);
        self.read_elements(number, aside, of.bytes);
        self.store_scratch(aside);
        for RecordedMember { offset, bytes, .. } in of.members {
            let is_done = self.asm.new_label();
            self.asm.load(2, STACK, stack::COUNT);
            // The operation gives r2 a new identity. Otherwise the verifier would derive the stack
            // slot's value from r2, and walk the next member once for each value.
            self.asm.alui(alu::OR, 2, 0);
            self.load_target(5, 0);
            self.asm.store_sized(4, 5, 0, 2);
            self.asm.load(4, STACK, stack::ASIDE);
            self.asm.alu(alu::ADD, 4, CPU);
            for element in 0..most {
                self.asm.jumpi(jump::JLE, 2, element as i32, is_done);
                self.asm.load_sized(
                    bytes,
                    1,
                    4,
                    insn_offset((element * of.bytes + offset) as usize),
                );
                self.asm.store_sized(bytes, 5, insn_offset((4 + element * bytes) as usize), 1);
            }
            self.asm.place_label(is_done);
            self.asm.alui(alu::MUL, 2, bytes as i32);
            self.asm.alu(alu::ADD, AT, 2);
            self.asm.alui(alu::ADD, AT, 4);
            self.forget_position();
        }
    }
}
