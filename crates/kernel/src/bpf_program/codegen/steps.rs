//! Generates the steps of a program that record fields from the tracepoint's data.

use trackway_jit::insn::{alu, jump};

use super::{AT, CONTEXT, CPU, ProgramBuilder, count_cut, finish_text, helper, insn_offset};
use crate::bpf_program::plan::{Step, VARIABLE_BYTES_MAX};
use crate::bpf_program::request_flags;
use crate::bpf_sys::asm::Asm;
use crate::catalogue::model::Location;

/// Size in bytes of the largest block that is copied word by word.
const UNROLLED_BYTES_MAX: u32 = 64;

/// Writes `size` zero bytes at [`AT`] for an unknown number.
fn write_zeros(asm: &mut Asm, size: u32) {
    asm.mov(5, CPU);
    asm.alu(alu::ADD, 5, AT);
    asm.storei_sized(size, 5, 0, 0);
    asm.alui(alu::ADD, AT, size as i32);
}

impl ProgramBuilder<'_> {
    /// Loads a thread id into r0. Returns false if the step does not read a thread id.
    pub(super) fn load_thread(&mut self, step: &Step) -> bool {
        let asm = &mut self.asm;
        match step {
            Step::Copy { offset, .. } => {
                asm.load_sized(4, 0, CONTEXT, insn_offset(*offset as usize))
            }
            Step::Argument(read) => {
                read.load(asm);
                asm.mov(0, 1);
            }
            _ => return false,
        }
        true
    }

    /// Writes a field at [`AT`] and advances [`AT`].
    pub(super) fn write_step(&mut self, step: &Step) {
        match *step {
            Step::Copy { offset, size } => self.copy_record(offset, size),
            Step::Register { offset, size } => {
                let asm = &mut self.asm;
                asm.mov(5, CPU);
                asm.alu(alu::ADD, 5, AT);
                asm.load(1, CONTEXT, insn_offset(offset as usize));
                asm.store_sized(size, 5, 0, 1);
                asm.alui(alu::ADD, AT, size as i32);
            }
            Step::Text { offset, size } => {
                self.asm.mov(3, CONTEXT);
                self.asm.alui(alu::ADD, 3, offset as i32);
                self.copy_text(helper::PROBE_READ_KERNEL_STR, size);
            }
            Step::DynamicText(offset, location) => {
                self.locate_data(offset, location);
                self.copy_dynamic_text();
            }
            Step::DynamicArray(offset, location, size) => {
                self.copy_dynamic_array(offset, location, size)
            }
            Step::RequestFlags { offset, size } => {
                let asm = &mut self.asm;
                request_flags::load_flags(asm, offset, size);
                asm.mov(5, CPU);
                asm.alu(alu::ADD, 5, AT);
                asm.store_sized(4, 5, 0, 1);
                asm.alui(alu::ADD, AT, 4);
            }
            // [`arguments::write_arguments`] writes the fields of all arguments together.
            Step::Argument(_) => {}
            Step::Zeros(size) => write_zeros(&mut self.asm, size),
            _ => self.write_user_step(step),
        }
    }

    /// Copies bytes of the tracepoint's record. The verifier requires each load at a multiple of
    /// its size.
    fn copy_record(&mut self, offset: u32, size: u32) {
        let asm = &mut self.asm;
        asm.mov(5, CPU);
        asm.alu(alu::ADD, 5, AT);
        if size <= UNROLLED_BYTES_MAX {
            let mut done = 0;
            while done < size {
                let from = offset + done;
                let fits = |bytes: &u32| from.is_multiple_of(*bytes) && size - done >= *bytes;
                let bytes = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
                asm.load_sized(bytes, 1, CONTEXT, insn_offset(from as usize));
                asm.store_sized(bytes, 5, insn_offset(done as usize), 1);
                done += bytes;
            }
        } else {
            asm.mov(1, 5);
            asm.movi(2, size as i32);
            asm.mov(3, CONTEXT);
            asm.alui(alu::ADD, 3, offset as i32);
            // The helper function writes zeros if it cannot read.
            asm.call_kernel(helper::PROBE_READ_KERNEL);
        }
        asm.alui(alu::ADD, AT, size as i32);
    }

    /// Loads into r3 the address that the word at `offset` refers to, and the word into r4.
    fn locate_data(&mut self, offset: u32, location: Location) {
        let asm = &mut self.asm;
        asm.load_sized(4, 4, CONTEXT, insn_offset(offset as usize));
        asm.mov(3, 4);
        asm.alui(alu::AND, 3, 0xffff);
        if location == Location::Relative {
            asm.alui(alu::ADD, 3, offset as i32 + 4);
        }
        asm.alu(alu::ADD, 3, CONTEXT);
    }

    /// Copies text from the address in r3: at most `bytes_max` bytes with its NUL.
    pub(in crate::bpf_program) fn copy_text(&mut self, helper: i32, bytes_max: u32) {
        self.asm.movi(2, bytes_max as i32);
        self.copy_text_up_to(helper, bytes_max);
    }

    /// Copies text like [`Self::copy_text`], with the limit in r2, which is at most `bytes_max`.
    pub(in crate::bpf_program) fn copy_text_up_to(&mut self, helper: i32, bytes_max: u32) {
        let asm = &mut self.asm;
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.call_kernel(helper);
        finish_text(asm, bytes_max, None);
        self.forget_position();
    }

    /// Copies text of any length from the address in r3.
    fn copy_dynamic_text(&mut self) {
        let (event, layout, asm) = (self.event, self.layout, &mut self.asm);
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        // One byte more than recorded shows whether the text is longer.
        asm.movi(2, VARIABLE_BYTES_MAX as i32 + 1);
        asm.call_kernel(helper::PROBE_READ_KERNEL_STR);
        finish_text(asm, VARIABLE_BYTES_MAX, Some(&|asm| count_cut(asm, event, layout)));
        self.forget_position();
    }

    /// Writes the number of elements and copies the elements of `size` bytes.
    fn copy_dynamic_array(&mut self, offset: u32, location: Location, size: u32) {
        self.locate_data(offset, location);
        let (event, layout, asm) = (self.event, self.layout, &mut self.asm);
        let is_short = asm.new_label();
        asm.alui(alu::RSH, 4, 16);
        asm.jumpi(jump::JLE, 4, VARIABLE_BYTES_MAX as i32, is_short);
        count_cut(asm, event, layout);
        asm.movi(4, VARIABLE_BYTES_MAX as i32);
        asm.place_label(is_short);
        // Keeps whole elements only.
        asm.mov(2, 4);
        asm.alui(alu::AND, 2, -(size as i32));
        asm.mov(4, 2);
        asm.alui(alu::RSH, 4, size.trailing_zeros() as i32);
        asm.mov(1, CPU);
        asm.alu(alu::ADD, 1, AT);
        asm.store_sized(4, 1, 0, 4);
        asm.alui(alu::ADD, 1, 4);
        asm.alui(alu::ADD, AT, 4);
        asm.alu(alu::ADD, AT, 2);
        asm.call_kernel(helper::PROBE_READ_KERNEL);
        self.forget_position();
    }
}
