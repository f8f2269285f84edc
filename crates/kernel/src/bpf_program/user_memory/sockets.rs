//! Records socket addresses.

use trackway_jit::insn::{alu, jump};

use super::SOCKET_READ_BYTES_MAX;
use crate::bpf_program::codegen::{AT, CPU, ProgramBuilder, STACK, helper, insn_offset, stack};
use crate::bpf_program::pointer_fields::{
    SOCKET_BYTES_MAX, SOCKET_FIELDS_BYTES_MAX, SOCKET_OTHER_BYTES_MAX, UserPointer,
};

/// Address families (linux/socket.h), and the least address sizes of families with fields.
const UNIX: i32 = 1;
const INTERNET: i32 = 2;
const INTERNET_6: i32 = 10;
const NETLINK: i32 = 16;
const PACKET: i32 = 17;
const VSOCK: i32 = 40;
const INTERNET_BYTES: i32 = 8;
const INTERNET_6_BYTES: i32 = 24;
impl ProgramBuilder<'_> {
    /// Copies the socket address of a `struct user_msghdr` or `struct compat_msghdr`: both begin
    /// with an address and a length of 32 bits.
    pub(super) fn copy_message_address(&mut self, pointer: UserPointer) {
        let (number, bytes) = (self.argument_index(pointer.at), self.address_bytes());
        let is_read = self.asm.new_label();
        self.load_pointer(pointer);
        self.read_to_stack(stack::MESSAGE, bytes as i32 + 4);
        self.asm.jumpi(jump::JEQ, 0, 0, is_read);
        self.mark_unless_null(number);
        self.asm.storei(STACK, stack::MESSAGE, 0);
        self.asm.storei(STACK, stack::MESSAGE + 8, 0);
        self.asm.place_label(is_read);
        let (fits, is_there) = (self.asm.new_label(), self.asm.new_label());
        self.asm.load_sized(bytes, 1, STACK, stack::MESSAGE);
        self.asm.store(STACK, stack::ADDRESS, 1);
        self.asm.load_sized(4, 4, STACK, stack::MESSAGE + bytes as i16);
        self.asm.jumpi(jump::JLE, 4, SOCKET_READ_BYTES_MAX as i32, fits);
        self.asm.movi(4, SOCKET_READ_BYTES_MAX as i32);
        self.asm.place_label(fits);
        // A null pointer leads to no address, even with a nonzero length.
        self.asm.jumpi(jump::JNE, 1, 0, is_there);
        self.asm.movi(4, 0);
        self.asm.place_label(is_there);
        self.asm.store(STACK, stack::COUNT, 4);
        self.copy_socket_address(number);
    }

    /// Copies the parts of a socket address; the element count is the length of the address.
    pub(super) fn copy_socket_address(&mut self, number: usize) {
        let aside = SOCKET_FIELDS_BYTES_MAX;
        let (is_none, is_other, is_end) =
            (self.asm.new_label(), self.asm.new_label(), self.asm.new_label());
        let (is_internet, is_internet_6) = (self.asm.new_label(), self.asm.new_label());
        self.store_scratch(aside);
        self.read_elements(number, aside, 1);
        // An address needs at least the bytes of its family.
        self.asm.load(2, STACK, stack::COUNT);
        self.asm.jumpi(jump::JLT, 2, 2, is_none);
        self.asm.load(4, STACK, stack::ASIDE);
        self.asm.alu(alu::ADD, 4, CPU);
        self.load_target(5, 0);
        self.asm.load_sized(2, 1, 4, 0);
        self.asm.store_sized(2, 5, 0, 1);
        self.asm.jumpi(jump::JEQ, 1, INTERNET, is_internet);
        self.asm.jumpi(jump::JEQ, 1, INTERNET_6, is_internet_6);
        self.asm.jumpi(jump::JNE, 1, UNIX, is_other);
        self.copy_unix_path(number);
        self.asm.goto(is_end);
        self.asm.place_label(is_internet);
        self.asm.jumpi(jump::JLT, 2, INTERNET_BYTES, is_other);
        self.copy_port();
        self.asm.storei_sized(4, 5, 4, 4);
        self.asm.load_sized(4, 1, 4, 4);
        self.asm.store_sized(4, 5, 8, 1);
        self.asm.storei_sized(4, 5, 12, 0);
        self.asm.storei_sized(4, 5, 16, 0);
        self.asm.storei_sized(4, 5, 20, 0);
        self.asm.alui(alu::ADD, AT, 24);
        self.asm.goto(is_end);
        self.asm.place_label(is_internet_6);
        self.asm.jumpi(jump::JLT, 2, INTERNET_6_BYTES, is_other);
        self.copy_port();
        self.asm.storei_sized(4, 5, 4, 0);
        self.asm.storei_sized(4, 5, 8, 16);
        for half in [0, 8] {
            self.asm.load_sized(8, 1, 4, 8 + half);
            self.asm.store_sized(8, 5, 12 + half, 1);
        }
        self.asm.storei_sized(4, 5, 28, 0);
        self.asm.storei_sized(4, 5, 32, 0);
        self.asm.alui(alu::ADD, AT, 36);
        self.asm.goto(is_end);
        self.asm.place_label(is_other);
        let is_taken = self.asm.new_label();
        for family in [NETLINK, PACKET, VSOCK] {
            self.asm.jumpi(jump::JEQ, 1, family, is_taken);
        }
        let is_bare = self.asm.new_label();
        self.asm.goto(is_bare);
        self.asm.place_label(is_taken);
        self.copy_other_address(number);
        self.asm.goto(is_end);
        self.asm.place_label(is_none);
        self.load_target(5, 0);
        self.asm.storei_sized(2, 5, 0, 0);
        self.asm.place_label(is_bare);
        self.write_no_address(0);
        self.asm.place_label(is_end);
        self.forget_position();
    }

    /// Writes an empty port and empty addresses, then the number of paths.
    fn write_no_address(&mut self, paths: i32) {
        self.write_no_internet_address();
        self.asm.storei_sized(4, 5, 12, 0);
        self.asm.storei_sized(4, 5, 16, paths);
        self.asm.alui(alu::ADD, AT, 20);
    }

    fn write_no_internet_address(&mut self) {
        self.asm.storei_sized(2, 5, 2, 0);
        self.asm.storei_sized(4, 5, 4, 0);
        self.asm.storei_sized(4, 5, 8, 0);
    }

    /// Copies the data after the family, of an address of another family. r2 has the length, r4 the
    /// address, r5 the destination.
    fn copy_other_address(&mut self, number: usize) {
        const FAMILY_BYTES: u32 = 2;
        let fits = self.asm.new_label();
        self.asm.jumpi(jump::JLE, 2, SOCKET_OTHER_BYTES_MAX as i32, fits);
        self.asm.movi(2, SOCKET_OTHER_BYTES_MAX as i32);
        self.mark_incomplete(number);
        self.asm.place_label(fits);
        self.asm.alui(alu::SUB, 2, FAMILY_BYTES as i32);
        self.write_no_internet_address();
        self.asm.store_sized(4, 5, 12, 2);
        // Copies the maximum; the next field overwrites the excess.
        let (mut done, bytes) = (0, SOCKET_OTHER_BYTES_MAX - FAMILY_BYTES);
        while done < bytes {
            let unit = if bytes - done >= 8 { 8 } else { FAMILY_BYTES };
            self.asm.load_sized(unit, 1, 4, insn_offset((FAMILY_BYTES + done) as usize));
            self.asm.store_sized(unit, 5, insn_offset((16 + done) as usize), 1);
            done += unit;
        }
        self.asm.alui(alu::ADD, AT, 16);
        self.asm.alu(alu::ADD, AT, 2);
        self.forget_position();
        self.load_target(5, 0);
        self.asm.storei_sized(4, 5, 0, 0);
        self.asm.alui(alu::ADD, AT, 4);
    }

    /// Copies the port and converts it from big-endian.
    fn copy_port(&mut self) {
        self.asm.load_sized(1, 1, 4, 2);
        self.asm.load_sized(1, 3, 4, 3);
        self.asm.alui(alu::LSH, 1, 8);
        self.asm.alu(alu::OR, 1, 3);
        self.asm.store_sized(2, 5, 2, 1);
    }

    /// Copies a Unix socket's path, or `@` and the name of an abstract socket. r2 has the length,
    /// r4 the address, r5 the destination.
    fn copy_unix_path(&mut self, number: usize) {
        let (has_path, is_file, is_done) =
            (self.asm.new_label(), self.asm.new_label(), self.asm.new_label());
        let fits = self.asm.new_label();
        self.asm.jumpi(jump::JGT, 2, 2, has_path);
        self.write_no_address(0);
        self.asm.goto(is_done);
        self.asm.place_label(has_path);
        self.write_no_address(1);
        self.asm.jumpi(jump::JLE, 2, SOCKET_BYTES_MAX as i32, fits);
        self.asm.movi(2, SOCKET_BYTES_MAX as i32);
        self.mark_incomplete(number);
        self.asm.place_label(fits);
        // Leaves room for a NUL, which the address may lack.
        self.asm.alui(alu::SUB, 2, 1);
        self.asm.mov(3, 4);
        self.asm.alui(alu::ADD, 3, 2);
        self.asm.load_sized(1, 1, 4, 2);
        self.asm.jumpi(jump::JNE, 1, 0, is_file);
        self.asm.storei_sized(1, 5, 20, i32::from(b'@'));
        self.asm.alui(alu::ADD, 3, 1);
        self.asm.alui(alu::ADD, AT, 1);
        self.asm.alui(alu::SUB, 2, 1);
        self.asm.store(STACK, stack::WORD, 2);
        self.copy_text_up_to(helper::PROBE_READ_KERNEL_STR, SOCKET_BYTES_MAX);
        // An abstract socket's name may continue after a NUL.
        self.asm.load(1, STACK, stack::WORD);
        self.asm.jump(jump::JGE, 0, 1, is_done);
        self.mark_incomplete(number);
        self.asm.goto(is_done);
        self.asm.place_label(is_file);
        self.copy_text_up_to(helper::PROBE_READ_KERNEL_STR, SOCKET_BYTES_MAX);
        self.asm.place_label(is_done);
    }
}
