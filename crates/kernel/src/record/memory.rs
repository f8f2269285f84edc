//! What a program does to record what lies in the traced program's memory: behind the pointers that
//! a system call gets.
//!
//! Reading it never faults: what is not in memory at that moment is missing. Each loop has a bound
//! and is written out, so that the kernel's verifier follows it. What is to be taken apart is read
//! to where the record will not reach, in the same sub-buffer, and copied from there.

use trackway_jit::insn::{alu, jump};

use super::behind::{
    Count, Pointer, SOCKET_BYTES_MAX, SOCKET_FIELDS_BYTES_MAX, SOCKET_OTHER_BYTES_MAX,
    TEXTS_BYTES_MAX, TEXTS_EACH_BYTES_MAX, TEXTS_MAX, Taken, USER_TEXT_BYTES_MAX, When,
};
use super::program::{AT, CONTEXT, CPU, Maker, STACK, helper, short, stack};
use super::scope;
use super::staging::{Step, VARIABLE_BYTES_MAX};
use crate::bpf_sys::asm::{Label, Register};

/// Families of addresses (linux/socket.h), and least bytes of what is told of each.
const UNIX: i32 = 1;
const INTERNET: i32 = 2;
const INTERNET_6: i32 = 10;
const NETLINK: i32 = 16;
const PACKET: i32 = 17;
const VSOCK: i32 = 40;
const INTERNET_BYTES: i32 = 8;
const INTERNET_6_BYTES: i32 = 24;
/// ERESTART_RESTARTBLOCK (include/linux/errno.h): what a sleep returns, inside the kernel, that has
/// written how much of it is left. (One until a moment has written nothing, and returns another.)
const RESTART_BLOCK: i32 = 516;
/// Most bytes that are read of one: one byte more than is kept tells whether there is more.
const SOCKET_READ_BYTES_MAX: u32 = SOCKET_BYTES_MAX + 1;

impl Maker<'_> {
    /// What is to be known before the first step.
    pub(super) fn prepare(&mut self) {
        let staged = self.staged;
        let asm = &mut self.asm;
        if staged.steps.contains(&Step::Incomplete) {
            asm.storei(STACK, stack::INCOMPLETE, 0);
        }
        let has = |is_it: fn(&Step) -> bool| staged.steps.iter().any(is_it);
        let is_again = has(|step| matches!(step, Step::UserTextAgain(_)));
        // A call before this one may have returned without being recorded: its bit is still there.
        if let Some(threads) = staged.unread
            && (is_again || has(|step| matches!(step, Step::UserText(_))))
        {
            scope::take(asm, threads);
            if is_again {
                asm.store(STACK, stack::UNREAD, 1);
            }
        }
    }

    /// Adds what one of the steps adds that read a program's memory.
    pub(super) fn user_step(&mut self, step: &Step) {
        match *step {
            Step::UserText(at) => {
                self.register(3, at);
                self.user_text(at, true);
            }
            Step::UserTextAgain(at) => self.user_text_again(at),
            Step::UserTexts(pointer) => self.user_texts(pointer),
            Step::User(pointer, bytes) => self.user(pointer, bytes),
            Step::UserElements(pointer, count, bytes) => self.elements(pointer, count, bytes),
            Step::Structure(pointer, index) => self.structure(pointer, index),
            Step::Structures(pointer, count, index) => self.structures(pointer, count, index),
            Step::SocketAddress(pointer, count) => {
                self.address(pointer);
                let number = self.number(pointer.at);
                self.count(count, SOCKET_READ_BYTES_MAX, false, number);
                self.socket(number);
            }
            Step::Message(pointer) => self.message(pointer),
            Step::Incomplete => {
                self.asm.load(1, STACK, stack::INCOMPLETE);
                self.target(2, 0);
                self.asm.store_of(1, 2, 0, 1);
                self.asm.alui(alu::ADD, AT, 1);
            }
            _ => {}
        }
    }

    /// The address `more` bytes behind [`AT`].
    fn target(&mut self, register: Register, more: u32) {
        let asm = &mut self.asm;
        asm.mov(register, CPU);
        asm.alu(alu::ADD, register, AT);
        if more > 0 {
            asm.alui(alu::ADD, register, more as i32);
        }
    }

    /// Which argument is in the register there.
    pub(super) fn number(&self, at: u32) -> usize {
        let arguments = self.staged.call.map_or([None; 6], |call| call.arguments);
        arguments.iter().position(|of| *of == Some(at)).unwrap_or(7)
    }

    /// How wide an address is for the call, in bytes.
    fn address_bytes(&self) -> u32 {
        if self.staged.call.is_some_and(|call| call.is_compat) { 4 } else { 8 }
    }

    /// Loads an argument, as wide as the call has it.
    fn register(&mut self, to: Register, at: u32) {
        self.asm.load_of(self.address_bytes(), to, CONTEXT, short(at as usize));
    }

    /// Notes that something is missing of an argument.
    fn note(&mut self, number: usize) {
        let asm = &mut self.asm;
        asm.load(1, STACK, stack::INCOMPLETE);
        asm.alui(alu::OR, 1, 1 << number);
        asm.store(STACK, stack::INCOMPLETE, 1);
    }

    /// Loads a pointer to r3 and the stack: zero, if this is not the time for it.
    fn address(&mut self, pointer: Pointer) {
        let result = short(self.staged.call.map_or(0, |call| call.result) as usize);
        let asm = &mut self.asm;
        let is_not = asm.label();
        asm.movi(3, 0);
        match pointer.when {
            When::Entered => {}
            When::Succeeded => {
                asm.load(1, CONTEXT, result);
                asm.jumpi(jump::JSLT, 1, 0, is_not);
            }
            When::Interrupted => {
                let is_it = asm.label();
                asm.load(1, CONTEXT, result);
                asm.jumpi(jump::JEQ, 1, -libc::EINTR, is_it);
                asm.jumpi(jump::JNE, 1, -RESTART_BLOCK, is_not);
                asm.place(is_it);
            }
        }
        self.register(3, pointer.at);
        self.asm.place(is_not);
        self.asm.store(STACK, stack::ADDRESS, 3);
    }

    /// How many elements there are, and no more than so many, in r4 and on the stack.
    fn count(&mut self, count: Count, most: u32, is_cut_noted: bool, number: usize) {
        let result = short(self.staged.call.map_or(0, |call| call.result) as usize);
        let asm = &mut self.asm;
        let low = |asm: &mut crate::bpf_sys::asm::Asm| {
            asm.alui(alu::LSH, 4, 32);
            asm.alui(alu::RSH, 4, 32);
        };
        match count {
            Count::Fixed(count) => asm.movi(4, count as i32),
            Count::Register(at, bytes) => {
                asm.load(4, CONTEXT, short(at as usize));
                if bytes <= 4 {
                    low(asm);
                }
            }
            Count::Pointed(at) => {
                asm.storei(STACK, stack::WORD, 0);
                self.register(3, at);
                self.read_to_stack(stack::WORD, 4);
                let is_read = self.asm.label();
                self.asm.jumpi(jump::JEQ, 0, 0, is_read);
                self.note_if_there(number);
                self.asm.place(is_read);
                self.asm.load(4, STACK, stack::WORD);
            }
            Count::Result(limit) => {
                asm.load(4, CONTEXT, result);
                if let Some(at) = limit {
                    let is_less = asm.label();
                    self.register(1, at);
                    self.asm.jump(jump::JLE, 4, 1, is_less);
                    self.asm.mov(4, 1);
                    self.asm.place(is_less);
                }
            }
        }
        // Nothing is behind no pointer.
        let (is_there, fits) = (self.asm.label(), self.asm.label());
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JNE, 1, 0, is_there);
        self.asm.movi(4, 0);
        self.asm.place(is_there);
        self.asm.jumpi(jump::JLE, 4, most as i32, fits);
        self.asm.movi(4, most as i32);
        if is_cut_noted {
            self.note(number);
        }
        self.asm.place(fits);
        self.asm.store(STACK, stack::COUNT, 4);
    }

    /// Reads so many bytes at the address in r3 to the stack.
    fn read_to_stack(&mut self, to: i16, bytes: i32) {
        let asm = &mut self.asm;
        asm.mov(1, STACK);
        asm.alui(alu::ADD, 1, to.into());
        asm.movi(2, bytes);
        asm.call_kernel(helper::PROBE_READ_USER);
    }

    /// Notes that something is missing if there is a pointer. Behind a failed read.
    fn note_if_there(&mut self, number: usize) {
        let is_none = self.asm.label();
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JEQ, 1, 0, is_none);
        self.note(number);
        self.asm.place(is_none);
    }

    /// Copies the text at the address in r3, whole or cut.
    fn user_text(&mut self, at: u32, is_first: bool) {
        let (number, most) = (self.number(at), USER_TEXT_BYTES_MAX as i32);
        let (is_read, is_whole, is_none) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.store(STACK, stack::ADDRESS, 3);
        self.target(1, 0);
        // One byte more than is kept tells whether there is more.
        self.asm.movi(2, most + 1);
        self.asm.call_kernel(helper::PROBE_READ_USER_STR);
        self.asm.jumpi(jump::JSGT, 0, 0, is_read);
        self.target(1, 0);
        self.asm.storei_of(1, 1, 0, 0);
        self.asm.load(1, STACK, stack::ADDRESS);
        self.asm.jumpi(jump::JEQ, 1, 0, is_none);
        self.note(number);
        if let Some(threads) = self.staged.unread.filter(|_| is_first) {
            scope::add(&mut self.asm, threads);
        }
        self.asm.place(is_none);
        self.asm.movi(0, 1);
        self.asm.goto(is_whole);
        self.asm.place(is_read);
        self.asm.jumpi(jump::JLE, 0, most, is_whole);
        self.target(1, USER_TEXT_BYTES_MAX - 1);
        self.asm.storei_of(1, 1, 0, 0);
        self.note(number);
        self.asm.movi(0, most);
        self.asm.place(is_whole);
        self.asm.alu(alu::ADD, AT, 0);
        self.renew();
    }

    /// The same, when the call returns, if it could not be read when it was entered: by then the
    /// kernel has read it, and it is in memory.
    fn user_text_again(&mut self, at: u32) {
        let (is_unread, is_done) = (self.asm.label(), self.asm.label());
        if self.staged.unread.is_some() {
            self.asm.load(1, STACK, stack::UNREAD);
            self.asm.jumpi(jump::JNE, 1, 0, is_unread);
        }
        self.how_many(0);
        if self.staged.unread.is_some() {
            self.asm.goto(is_done);
            self.asm.place(is_unread);
            self.how_many(1);
            self.register(3, at);
            self.user_text(at, false);
            self.asm.place(is_done);
            self.renew();
        }
    }

    /// Adds a number of elements.
    fn how_many(&mut self, count: i32) {
        self.target(1, 0);
        self.asm.storei_of(4, 1, 0, count);
        self.asm.alui(alu::ADD, AT, 4);
    }

    /// Copies texts behind their number.
    fn user_texts(&mut self, pointer: Pointer) {
        let (number, bytes) = (self.number(pointer.at), self.address_bytes());
        let (is_missing, is_end) = (self.asm.label(), self.asm.label());
        self.address(pointer);
        self.asm.storei(STACK, stack::COUNT, 0);
        self.asm.storei(STACK, stack::USED, 4);
        // Nothing is behind no pointer.
        self.asm.jumpi(jump::JEQ, 3, 0, is_end);
        for text in 0..=TEXTS_MAX {
            self.asm.load(3, STACK, stack::ADDRESS);
            self.asm.alui(alu::ADD, 3, (bytes * text) as i32);
            self.read_to_stack(stack::WORD, bytes as i32);
            self.asm.jumpi(jump::JNE, 0, 0, is_missing);
            self.asm.load_of(bytes, 3, STACK, stack::WORD);
            self.asm.jumpi(jump::JEQ, 3, 0, is_end);
            if text < TEXTS_MAX {
                self.user_text_of_some(number, is_missing);
            }
        }
        self.asm.place(is_missing);
        self.note(number);
        self.asm.place(is_end);
        self.target(1, 0);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.store_of(4, 1, 0, 2);
        self.asm.load(2, STACK, stack::USED);
        self.asm.alu(alu::ADD, AT, 2);
        self.renew();
    }

    /// One of them, at the address in r3.
    fn user_text_of_some(&mut self, number: usize, is_missing: Label) {
        let most = TEXTS_EACH_BYTES_MAX as i32;
        let is_whole = self.asm.label();
        self.text_target(is_missing);
        // One byte more than is kept tells whether there is more.
        self.asm.movi(2, most + 1);
        self.asm.call_kernel(helper::PROBE_READ_USER_STR);
        self.asm.jumpi(jump::JSLE, 0, 0, is_missing);
        self.asm.jumpi(jump::JLE, 0, most, is_whole);
        self.text_target(is_missing);
        self.asm.storei_of(1, 1, short(TEXTS_EACH_BYTES_MAX as usize - 1), 0);
        self.note(number);
        self.asm.movi(0, most);
        self.asm.place(is_whole);
        self.asm.load(4, STACK, stack::USED);
        self.asm.alu(alu::ADD, 4, 0);
        self.forget(4, 4 + TEXTS_BYTES_MAX as i32, is_missing);
        self.asm.store(STACK, stack::USED, 4);
        self.asm.load(1, STACK, stack::COUNT);
        self.asm.alui(alu::ADD, 1, 1);
        self.asm.store(STACK, stack::COUNT, 1);
    }

    /// Where the next of them goes, in r1, if there is room for one that is as long as it may be.
    fn text_target(&mut self, is_missing: Label) {
        let last = 4 + (TEXTS_BYTES_MAX - TEXTS_EACH_BYTES_MAX) as i32;
        self.asm.load(4, STACK, stack::USED);
        self.asm.jumpi(jump::JGT, 4, last, is_missing);
        self.target(1, 0);
        self.asm.alu(alu::ADD, 1, 4);
    }

    /// Reads so many bytes of the program's to `more` behind [`AT`]: zeros, if they cannot be read.
    fn read(&mut self, number: usize, more: u32, bytes: u32) {
        let is_read = self.asm.label();
        self.target(1, more);
        self.asm.movi(2, bytes as i32);
        self.asm.load(3, STACK, stack::ADDRESS);
        self.asm.call_kernel(helper::PROBE_READ_USER);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.note_if_there(number);
        self.asm.place(is_read);
    }

    /// The same of what has as many bytes as a call says: what is behind those is zero, and not
    /// what happens to be there.
    fn read_of(&mut self, number: usize, more: u32, bytes: u32, size: Option<Count>) {
        let Some(size) = size else { return self.read(number, more, bytes) };
        self.target(5, more);
        let mut done = 0;
        while done < bytes {
            let unit = [8, 4, 2, 1].into_iter().find(|unit| bytes - done >= *unit).unwrap_or(1);
            self.asm.storei_of(unit, 5, short(done as usize), 0);
            done += unit;
        }
        self.count(size, bytes, false, number);
        self.read_some(number, more, 1);
    }

    fn user(&mut self, pointer: Pointer, bytes: u32) {
        let number = self.number(pointer.at);
        self.address(pointer);
        self.read(number, 0, bytes);
        self.asm.alui(alu::ADD, AT, bytes as i32);
    }

    /// Reads as many elements as the count says to `more` behind [`AT`]. If they cannot be read,
    /// there are none.
    fn read_some(&mut self, number: usize, more: u32, bytes: u32) {
        let is_read = self.asm.label();
        self.target(1, more);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.jumpi(jump::JEQ, 2, 0, is_read);
        self.asm.alui(alu::MUL, 2, bytes as i32);
        self.asm.load(3, STACK, stack::ADDRESS);
        self.asm.call_kernel(helper::PROBE_READ_USER);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.asm.storei(STACK, stack::COUNT, 0);
        self.note(number);
        self.asm.place(is_read);
    }

    fn elements(&mut self, pointer: Pointer, count: Count, bytes: u32) {
        let number = self.number(pointer.at);
        self.address(pointer);
        self.count(count, VARIABLE_BYTES_MAX / bytes, true, number);
        self.read_some(number, 4, bytes);
        self.target(1, 0);
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.store_of(4, 1, 0, 2);
        self.asm.alui(alu::MUL, 2, bytes as i32);
        self.asm.alu(alu::ADD, AT, 2);
        self.asm.alui(alu::ADD, AT, 4);
        self.renew();
    }

    fn taken(&self, index: u8) -> Taken {
        let none = Taken { bytes: 1, members: Vec::new(), size: None };
        self.staged.taken.get(usize::from(index)).cloned().unwrap_or(none)
    }

    fn structure(&mut self, pointer: Pointer, index: u8) {
        let (number, of) = (self.number(pointer.at), self.taken(index));
        self.address(pointer);
        if of.is_packed() {
            self.read_of(number, 0, of.members_bytes(), of.size);
            self.asm.alui(alu::ADD, AT, of.members_bytes() as i32);
            return;
        }
        let aside = of.members_bytes();
        self.read_of(number, aside, of.bytes, of.size);
        self.set_aside(aside);
        for (offset, bytes, is_text) in of.members {
            if is_text {
                self.text_aside(offset, bytes);
                continue;
            }
            self.asm.load(4, STACK, stack::ASIDE);
            self.asm.alu(alu::ADD, 4, CPU);
            self.target(5, 0);
            let mut done = 0;
            while done < bytes {
                let unit = [8, 4, 2, 1].into_iter().find(|unit| bytes - done >= *unit);
                let unit = unit.unwrap_or(1);
                self.asm.load_of(unit, 1, 4, short((offset + done) as usize));
                self.asm.store_of(unit, 5, short(done as usize), 1);
                done += unit;
            }
            self.asm.alui(alu::ADD, AT, bytes as i32);
        }
    }

    /// Remembers what is `more` behind [`AT`], which goes on from here.
    fn set_aside(&mut self, more: u32) {
        self.asm.mov(1, AT);
        self.asm.alui(alu::ADD, 1, more as i32);
        self.asm.store(STACK, stack::ASIDE, 1);
    }

    /// Copies text of at most so many bytes out of what was set aside.
    fn text_aside(&mut self, offset: u32, bytes: u32) {
        self.asm.load(3, STACK, stack::ASIDE);
        self.asm.alu(alu::ADD, 3, CPU);
        self.asm.alui(alu::ADD, 3, offset as i32);
        self.text(helper::PROBE_READ_KERNEL_STR, bytes);
    }

    fn structures(&mut self, pointer: Pointer, count: Count, index: u8) {
        let (number, of) = (self.number(pointer.at), self.taken(index));
        let most = of.count_max();
        let aside = 4 * of.members.len() as u32 + most * of.members_bytes();
        self.address(pointer);
        self.count(count, most, true, number);
        self.read_some(number, aside, of.bytes);
        self.set_aside(aside);
        for (offset, bytes, _) in of.members {
            let is_done = self.asm.label();
            self.asm.load(2, STACK, stack::COUNT);
            // A number of its own for the verifier: what it finds out below it would else know of
            // the stack's, too, and go through the next member once for each.
            self.asm.alui(alu::OR, 2, 0);
            self.target(5, 0);
            self.asm.store_of(4, 5, 0, 2);
            self.asm.load(4, STACK, stack::ASIDE);
            self.asm.alu(alu::ADD, 4, CPU);
            for element in 0..most {
                self.asm.jumpi(jump::JLE, 2, element as i32, is_done);
                self.asm.load_of(bytes, 1, 4, short((element * of.bytes + offset) as usize));
                self.asm.store_of(bytes, 5, short((4 + element * bytes) as usize), 1);
            }
            self.asm.place(is_done);
            self.asm.alui(alu::MUL, 2, bytes as i32);
            self.asm.alu(alu::ADD, AT, 2);
            self.asm.alui(alu::ADD, AT, 4);
            self.renew();
        }
    }

    /// The address that a `struct user_msghdr` leads to, or a `struct compat_msghdr`: both begin
    /// with an address and its length, of 32 bits.
    fn message(&mut self, pointer: Pointer) {
        let (number, bytes) = (self.number(pointer.at), self.address_bytes());
        let is_read = self.asm.label();
        self.address(pointer);
        self.read_to_stack(stack::MESSAGE, bytes as i32 + 4);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.note_if_there(number);
        self.asm.storei(STACK, stack::MESSAGE, 0);
        self.asm.storei(STACK, stack::MESSAGE + 8, 0);
        self.asm.place(is_read);
        let (fits, is_there) = (self.asm.label(), self.asm.label());
        self.asm.load_of(bytes, 1, STACK, stack::MESSAGE);
        self.asm.store(STACK, stack::ADDRESS, 1);
        self.asm.load_of(4, 4, STACK, stack::MESSAGE + bytes as i16);
        self.asm.jumpi(jump::JLE, 4, SOCKET_READ_BYTES_MAX as i32, fits);
        self.asm.movi(4, SOCKET_READ_BYTES_MAX as i32);
        self.asm.place(fits);
        // Nothing is behind no pointer, whatever the length says.
        self.asm.jumpi(jump::JNE, 1, 0, is_there);
        self.asm.movi(4, 0);
        self.asm.place(is_there);
        self.asm.store(STACK, stack::COUNT, 4);
        self.socket(number);
    }

    /// Takes apart the socket's address of as many bytes as the count says.
    fn socket(&mut self, number: usize) {
        let aside = SOCKET_FIELDS_BYTES_MAX;
        let (is_none, is_other, is_end) = (self.asm.label(), self.asm.label(), self.asm.label());
        let (is_internet, is_internet_6) = (self.asm.label(), self.asm.label());
        self.set_aside(aside);
        self.read_some(number, aside, 1);
        // A family is the least.
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.jumpi(jump::JLT, 2, 2, is_none);
        self.asm.load(4, STACK, stack::ASIDE);
        self.asm.alu(alu::ADD, 4, CPU);
        self.target(5, 0);
        self.asm.load_of(2, 1, 4, 0);
        self.asm.store_of(2, 5, 0, 1);
        self.asm.jumpi(jump::JEQ, 1, INTERNET, is_internet);
        self.asm.jumpi(jump::JEQ, 1, INTERNET_6, is_internet_6);
        self.asm.jumpi(jump::JNE, 1, UNIX, is_other);
        self.unix_path(number);
        self.asm.goto(is_end);
        self.asm.place(is_internet);
        self.asm.jumpi(jump::JLT, 2, INTERNET_BYTES, is_other);
        self.port();
        self.asm.storei_of(4, 5, 4, 4);
        self.asm.load_of(4, 1, 4, 4);
        self.asm.store_of(4, 5, 8, 1);
        self.asm.storei_of(4, 5, 12, 0);
        self.asm.storei_of(4, 5, 16, 0);
        self.asm.storei_of(4, 5, 20, 0);
        self.asm.alui(alu::ADD, AT, 24);
        self.asm.goto(is_end);
        self.asm.place(is_internet_6);
        self.asm.jumpi(jump::JLT, 2, INTERNET_6_BYTES, is_other);
        self.port();
        self.asm.storei_of(4, 5, 4, 0);
        self.asm.storei_of(4, 5, 8, 16);
        for half in [0, 8] {
            self.asm.load_of(8, 1, 4, 8 + half);
            self.asm.store_of(8, 5, 12 + half, 1);
        }
        self.asm.storei_of(4, 5, 28, 0);
        self.asm.storei_of(4, 5, 32, 0);
        self.asm.alui(alu::ADD, AT, 36);
        self.asm.goto(is_end);
        self.asm.place(is_other);
        let is_taken = self.asm.label();
        for family in [NETLINK, PACKET, VSOCK] {
            self.asm.jumpi(jump::JEQ, 1, family, is_taken);
        }
        let is_bare = self.asm.label();
        self.asm.goto(is_bare);
        self.asm.place(is_taken);
        self.other(number);
        self.asm.goto(is_end);
        self.asm.place(is_none);
        self.target(5, 0);
        self.asm.storei_of(2, 5, 0, 0);
        self.asm.place(is_bare);
        self.nowhere(0);
        self.asm.place(is_end);
        self.renew();
    }

    /// No port, no address of the internet or another one, and so many paths behind that.
    fn nowhere(&mut self, paths: i32) {
        self.no_internet();
        self.asm.storei_of(4, 5, 12, 0);
        self.asm.storei_of(4, 5, 16, paths);
        self.asm.alui(alu::ADD, AT, 20);
    }

    fn no_internet(&mut self) {
        self.asm.storei_of(2, 5, 2, 0);
        self.asm.storei_of(4, 5, 4, 0);
        self.asm.storei_of(4, 5, 8, 0);
    }

    /// What is behind the family of one that is of another kind. The length is in r2, the address
    /// in r4, and what is written in r5.
    fn other(&mut self, number: usize) {
        const FAMILY_BYTES: u32 = 2;
        let fits = self.asm.label();
        self.asm.jumpi(jump::JLE, 2, SOCKET_OTHER_BYTES_MAX as i32, fits);
        self.asm.movi(2, SOCKET_OTHER_BYTES_MAX as i32);
        self.note(number);
        self.asm.place(fits);
        self.asm.alui(alu::SUB, 2, FAMILY_BYTES as i32);
        self.no_internet();
        self.asm.store_of(4, 5, 12, 2);
        // All that there may be: what is behind those that there are is written over.
        let (mut done, bytes) = (0, SOCKET_OTHER_BYTES_MAX - FAMILY_BYTES);
        while done < bytes {
            let unit = if bytes - done >= 8 { 8 } else { FAMILY_BYTES };
            self.asm.load_of(unit, 1, 4, short((FAMILY_BYTES + done) as usize));
            self.asm.store_of(unit, 5, short((16 + done) as usize), 1);
            done += unit;
        }
        self.asm.alui(alu::ADD, AT, 16);
        self.asm.alu(alu::ADD, AT, 2);
        self.renew();
        self.target(5, 0);
        self.asm.storei_of(4, 5, 0, 0);
        self.asm.alui(alu::ADD, AT, 4);
    }

    /// The port, which networks have the other way round.
    fn port(&mut self) {
        self.asm.load_of(1, 1, 4, 2);
        self.asm.load_of(1, 3, 4, 3);
        self.asm.alui(alu::LSH, 1, 8);
        self.asm.alu(alu::OR, 1, 3);
        self.asm.store_of(2, 5, 2, 1);
    }

    /// The path of a socket that is a file; of one that is none, its name behind `@`, as other
    /// programs show it. The length is in r2, the address in r4, and what is written in r5.
    fn unix_path(&mut self, number: usize) {
        let (has_path, is_file, is_done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let fits = self.asm.label();
        self.asm.jumpi(jump::JGT, 2, 2, has_path);
        self.nowhere(0);
        self.asm.goto(is_done);
        self.asm.place(has_path);
        self.nowhere(1);
        self.asm.jumpi(jump::JLE, 2, SOCKET_BYTES_MAX as i32, fits);
        self.asm.movi(2, SOCKET_BYTES_MAX as i32);
        self.note(number);
        self.asm.place(fits);
        // With room for a NUL, which need not be there.
        self.asm.alui(alu::SUB, 2, 1);
        self.asm.mov(3, 4);
        self.asm.alui(alu::ADD, 3, 2);
        self.asm.load_of(1, 1, 4, 2);
        self.asm.jumpi(jump::JNE, 1, 0, is_file);
        self.asm.storei_of(1, 5, 20, i32::from(b'@'));
        self.asm.alui(alu::ADD, 3, 1);
        self.asm.alui(alu::ADD, AT, 1);
        self.asm.alui(alu::SUB, 2, 1);
        self.asm.store(STACK, stack::WORD, 2);
        self.text_of(helper::PROBE_READ_KERNEL_STR, SOCKET_BYTES_MAX);
        // Such a name may go on behind a NUL.
        self.asm.load(1, STACK, stack::WORD);
        self.asm.jump(jump::JGE, 0, 1, is_done);
        self.note(number);
        self.asm.goto(is_done);
        self.asm.place(is_file);
        self.text_of(helper::PROBE_READ_KERNEL_STR, SOCKET_BYTES_MAX);
        self.asm.place(is_done);
    }
}
