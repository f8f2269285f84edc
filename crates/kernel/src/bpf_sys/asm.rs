//! An assembler of BPF instructions, with labels for jumps and calls.

use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, size, source,
};

/// A position in the program, which may be assigned later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label(usize);

/// The part of an instruction that depends on a label's position.
#[derive(Debug, Clone, Copy)]
enum Fixup {
    /// The offset of a jump.
    Jump,
    /// The immediate of a call, or of a load of a function's address.
    Call,
}

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    pub(crate) insns: Vec<Insn>,
    places: Vec<Option<usize>>,
    fixups: Vec<(usize, Label, Fixup)>,
    /// The first instruction and the name of each function, in order.
    pub(crate) functions: Vec<(usize, String)>,
}

/// The source register of an [`LDDW`] that loads the address of a map's value.
pub(crate) const MAP_VALUE: u8 = 2;
/// Placeholders for descriptors of maps not created yet: the scratch area map and the mask map.
pub(crate) const AREA_PLACEHOLDER: i32 = 0;
pub(crate) const MASKS_PLACEHOLDER: i32 = -1;

/// The number of a BPF register.
pub(crate) type Register = u8;

impl Asm {
    pub(crate) fn new_label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Assigns the current position to a label.
    pub(crate) fn place_label(&mut self, label: Label) {
        self.places[label.0] = Some(self.insns.len());
    }

    /// Begins a function at the current position.
    pub(crate) fn begin_function(&mut self, label: Label, name: impl Into<String>) {
        self.place_label(label);
        self.functions.push((self.insns.len(), name.into()));
    }

    /// Assigns the position of another label to a label.
    pub(crate) fn alias_label(&mut self, label: Label, other: Label) {
        self.places[label.0] = self.places[other.0];
    }

    pub(crate) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    fn push_op(&mut self, op: u8, dst: Register, src: Register, offset: i16, immediate: i32) {
        self.push(Insn { op, dst, src, offset, immediate });
    }

    /// Adds 64-bit arithmetic with a register.
    pub(crate) fn alu(&mut self, code: u8, dst: Register, src: Register) {
        self.push_op(class::ALU64 | source::X | code, dst, src, 0, 0);
    }

    /// Adds 64-bit arithmetic with a sign-extended constant.
    pub(crate) fn alui(&mut self, code: u8, dst: Register, immediate: i32) {
        self.push_op(class::ALU64 | code, dst, 0, 0, immediate);
    }

    pub(crate) fn mov(&mut self, dst: Register, src: Register) {
        self.alu(alu::MOV, dst, src);
    }

    pub(crate) fn movi(&mut self, dst: Register, immediate: i32) {
        self.alui(alu::MOV, dst, immediate);
    }

    /// Converts 64 bits to big-endian.
    pub(crate) fn swap_to_big_endian(&mut self, dst: Register) {
        self.push_op(class::ALU | source::X | alu::END, dst, 0, 0, 64);
    }

    /// Loads 64 bits.
    pub(crate) fn load_wide(&mut self, dst: Register, number: u64) {
        self.push_op(LDDW, dst, 0, 0, number as u32 as i32);
        self.push_op(0, 0, 0, 0, (number >> 32) as u32 as i32);
    }

    pub(crate) fn load(&mut self, dst: Register, base: Register, offset: i16) {
        self.push_op(class::LDX | size::DW | mode::MEM, dst, base, offset, 0);
    }

    pub(crate) fn load_byte(&mut self, dst: Register, base: Register, offset: i16) {
        self.push_op(class::LDX | size::B | mode::MEM, dst, base, offset, 0);
    }

    pub(crate) fn store(&mut self, base: Register, offset: i16, src: Register) {
        self.push_op(class::STX | size::DW | mode::MEM, base, src, offset, 0);
    }

    pub(crate) fn storei(&mut self, base: Register, offset: i16, immediate: i32) {
        self.push_op(class::ST | size::DW | mode::MEM, base, 0, offset, immediate);
    }

    /// Loads 1, 2, 4 or 8 bytes, zero-extended.
    pub(crate) fn load_sized(&mut self, bytes: u32, dst: Register, base: Register, offset: i16) {
        self.push_op(class::LDX | size_of_bytes(bytes) | mode::MEM, dst, base, offset, 0);
    }

    /// Stores the lowest 1, 2, 4 or 8 bytes.
    pub(crate) fn store_sized(&mut self, bytes: u32, base: Register, offset: i16, src: Register) {
        self.push_op(class::STX | size_of_bytes(bytes) | mode::MEM, base, src, offset, 0);
    }

    /// Stores a constant of 1, 2, 4 or 8 bytes.
    pub(crate) fn storei_sized(&mut self, bytes: u32, base: Register, offset: i16, immediate: i32) {
        self.push_op(class::ST | size_of_bytes(bytes) | mode::MEM, base, 0, offset, immediate);
    }

    /// Loads a map by its descriptor.
    pub(crate) fn load_map(&mut self, dst: Register, fd: i32) {
        const MAP_FD: u8 = 1;
        self.push_op(LDDW, dst, MAP_FD, 0, fd);
        self.push_op(0, 0, 0, 0, 0);
    }

    /// Loads the address of a map's only value.
    pub(crate) fn load_map_value(&mut self, dst: Register, fd: i32) {
        self.load_map_value_at(dst, fd, 0);
    }

    /// Loads an address in a map's only value.
    pub(crate) fn load_map_value_at(&mut self, dst: Register, fd: i32, offset: i32) {
        self.push_op(LDDW, dst, MAP_VALUE, 0, fd);
        self.push_op(0, 0, 0, 0, offset);
    }

    /// Changes eight bytes atomically (RFC 9669, 5.3); `src` gets the previous value.
    pub(crate) fn atomic(&mut self, operation: i32, base: Register, offset: i16, src: Register) {
        const ATOMIC: u8 = 0xc0;
        self.push_op(class::STX | size::DW | ATOMIC, base, src, offset, operation);
    }

    /// Jumps if a comparison with a register holds.
    pub(crate) fn jump(&mut self, code: u8, dst: Register, src: Register, to: Label) {
        self.fixups.push((self.insns.len(), to, Fixup::Jump));
        self.push_op(class::JMP | source::X | code, dst, src, 0, 0);
    }

    /// Jumps if a comparison with a constant holds.
    pub(crate) fn jumpi(&mut self, code: u8, dst: Register, immediate: i32, to: Label) {
        self.fixups.push((self.insns.len(), to, Fixup::Jump));
        self.push_op(class::JMP | code, dst, 0, 0, immediate);
    }

    /// Adds a jump that was copied from another program, with a new target.
    pub(crate) fn push_jump(&mut self, insn: Insn, to: Label) {
        if insn.op & 0xf0 == jump::JA {
            return self.goto(to);
        }
        self.fixups.push((self.insns.len(), to, Fixup::Jump));
        self.push(insn);
    }

    pub(crate) fn goto(&mut self, to: Label) {
        self.fixups.push((self.insns.len(), to, Fixup::Jump));
        self.push_op(class::JMP | jump::JA, 0, 0, 0, 0);
    }

    /// Calls a function of the program.
    pub(crate) fn call(&mut self, function: Label) {
        self.fixups.push((self.insns.len(), function, Fixup::Call));
        self.push_op(CALL, 0, call::FUNCTION, 0, 0);
    }

    /// Calls a kernel helper.
    pub(crate) fn call_kernel(&mut self, number: i32) {
        self.push_op(CALL, 0, call::HELPER, 0, number);
    }

    /// Calls a kernel function by its BTF id.
    pub(crate) fn call_kernel_function(&mut self, type_id: i32) {
        const KERNEL_FUNCTION: u8 = 2;
        self.push_op(CALL, 0, KERNEL_FUNCTION, 0, type_id);
    }

    /// Loads the address of a function of the program.
    pub(crate) fn load_function_address(&mut self, dst: Register, function: Label) {
        self.fixups.push((self.insns.len(), function, Fixup::Call));
        self.push_op(LDDW, dst, LDDW_FUNCTION, 0, 0);
        self.push_op(0, 0, 0, 0, 0);
    }

    pub(crate) fn exit(&mut self) {
        self.push_op(EXIT, 0, 0, 0, 0);
    }

    /// Ends the program with this return value.
    pub(crate) fn exit_with(&mut self, number: i32) {
        self.movi(0, number);
        self.exit();
    }

    /// Resolves labels. Returns false if a label has no position, or a jump's target is too far
    /// away.
    pub(crate) fn finish(&mut self) -> bool {
        let fixups = std::mem::take(&mut self.fixups);
        fixups.into_iter().all(|(at, label, fix)| {
            let Some(place) = self.places[label.0] else { return false };
            let distance = place as i64 - at as i64 - 1;
            match (fix, i16::try_from(distance)) {
                (Fixup::Call, _) => self.insns[at].immediate = distance as i32,
                (Fixup::Jump, Ok(distance)) => self.insns[at].offset = distance,
                (Fixup::Jump, Err(_)) => return false,
            }
            true
        })
    }
}

const fn size_of_bytes(bytes: u32) -> u8 {
    match bytes {
        1 => size::B,
        2 => size::H,
        4 => size::W,
        _ => size::DW,
    }
}

impl Asm {
    /// Encodes all instructions; `None`: [`Self::finish`] failed.
    pub(crate) fn bytes(mut self) -> Option<Vec<u8>> {
        let is_finished = self.finish();
        is_finished.then(|| self.insns.iter().flat_map(|insn| insn.encode()).collect())
    }
}
