//! Instructions put down one after the other, with names for places that jumps and calls go to.

use trackway_jit::insn::{
    CALL, EXIT, Insn, LDDW, LDDW_FUNCTION, alu, call, class, jump, mode, size, source,
};

/// A place that may not be known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label(usize);

/// What is to be done when a label's place is known.
#[derive(Debug, Clone, Copy)]
enum Fix {
    /// The offset of a jump.
    Jump,
    /// The immediate of a call, or of a load of a function's address.
    Call,
}

/// Instructions so far.
#[derive(Debug, Default)]
pub(crate) struct Asm {
    pub(crate) insns: Vec<Insn>,
    places: Vec<Option<usize>>,
    fixes: Vec<(usize, Label, Fix)>,
    /// Where functions begin, and their names, in order.
    pub(crate) functions: Vec<(usize, String)>,
}

/// Source register of [`LDDW`] that makes of a map's file descriptor the address of its value.
pub(crate) const MAP_VALUE: u8 = 2;
/// In place of descriptors of maps that are not made yet: of the area's, and of that of masks.
pub(crate) const OF_AREA: i32 = 0;
pub(crate) const OF_MASKS: i32 = -1;

/// Registers by their numbers.
pub(crate) type Register = u8;

impl Asm {
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// The label is here.
    pub(crate) fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.insns.len());
    }

    /// A function begins here.
    pub(crate) fn function(&mut self, label: Label, name: impl Into<String>) {
        self.place(label);
        self.functions.push((self.insns.len(), name.into()));
    }

    /// A label is where another one is, which has its place.
    pub(crate) fn alias(&mut self, label: Label, other: Label) {
        self.places[label.0] = self.places[other.0];
    }

    pub(crate) fn push(&mut self, insn: Insn) {
        self.insns.push(insn);
    }

    fn op(&mut self, op: u8, dst: Register, src: Register, offset: i16, immediate: i32) {
        self.push(Insn { op, dst, src, offset, immediate });
    }

    /// Arithmetic on 64 bits with a register.
    pub(crate) fn alu(&mut self, code: u8, dst: Register, src: Register) {
        self.op(class::ALU64 | source::X | code, dst, src, 0, 0);
    }

    /// Arithmetic on 64 bits with a number, extended by its sign.
    pub(crate) fn alui(&mut self, code: u8, dst: Register, immediate: i32) {
        self.op(class::ALU64 | code, dst, 0, 0, immediate);
    }

    pub(crate) fn mov(&mut self, dst: Register, src: Register) {
        self.alu(alu::MOV, dst, src);
    }

    pub(crate) fn movi(&mut self, dst: Register, immediate: i32) {
        self.alui(alu::MOV, dst, immediate);
    }

    /// 64 bits, as a number whose highest byte is in front in memory.
    pub(crate) fn swap_to_big_endian(&mut self, dst: Register) {
        self.op(class::ALU | source::X | alu::END, dst, 0, 0, 64);
    }

    /// Loads 64 bits.
    pub(crate) fn wide(&mut self, dst: Register, number: u64) {
        self.op(LDDW, dst, 0, 0, number as u32 as i32);
        self.op(0, 0, 0, 0, (number >> 32) as u32 as i32);
    }

    pub(crate) fn load(&mut self, dst: Register, base: Register, offset: i16) {
        self.op(class::LDX | size::DW | mode::MEM, dst, base, offset, 0);
    }

    pub(crate) fn load_byte(&mut self, dst: Register, base: Register, offset: i16) {
        self.op(class::LDX | size::B | mode::MEM, dst, base, offset, 0);
    }

    pub(crate) fn store(&mut self, base: Register, offset: i16, src: Register) {
        self.op(class::STX | size::DW | mode::MEM, base, src, offset, 0);
    }

    pub(crate) fn storei(&mut self, base: Register, offset: i16, immediate: i32) {
        self.op(class::ST | size::DW | mode::MEM, base, 0, offset, immediate);
    }

    /// Loads 1, 2, 4 or 8 bytes, extended with zeros.
    pub(crate) fn load_of(&mut self, bytes: u32, dst: Register, base: Register, offset: i16) {
        self.op(class::LDX | size_of_bytes(bytes) | mode::MEM, dst, base, offset, 0);
    }

    /// Stores the lowest 1, 2, 4 or 8 bytes.
    pub(crate) fn store_of(&mut self, bytes: u32, base: Register, offset: i16, src: Register) {
        self.op(class::STX | size_of_bytes(bytes) | mode::MEM, base, src, offset, 0);
    }

    /// Stores a number of 1, 2, 4 or 8 bytes.
    pub(crate) fn storei_of(&mut self, bytes: u32, base: Register, offset: i16, immediate: i32) {
        self.op(class::ST | size_of_bytes(bytes) | mode::MEM, base, 0, offset, immediate);
    }

    /// Loads a map, by its file descriptor.
    pub(crate) fn map(&mut self, dst: Register, fd: i32) {
        const MAP_FD: u8 = 1;
        self.op(LDDW, dst, MAP_FD, 0, fd);
        self.op(0, 0, 0, 0, 0);
    }

    /// Loads the address of the value of a map that has one, by the map's file descriptor.
    pub(crate) fn map_value(&mut self, dst: Register, fd: i32) {
        self.map_value_at(dst, fd, 0);
    }

    /// The same of what is so many bytes behind its beginning.
    pub(crate) fn map_value_at(&mut self, dst: Register, fd: i32, offset: i32) {
        self.op(LDDW, dst, MAP_VALUE, 0, fd);
        self.op(0, 0, 0, 0, offset);
    }

    /// Changes eight bytes at once (RFC 9669, 5.3); `src` gets what was there before.
    pub(crate) fn atomic(&mut self, operation: i32, base: Register, offset: i16, src: Register) {
        const ATOMIC: u8 = 0xc0;
        self.op(class::STX | size::DW | ATOMIC, base, src, offset, operation);
    }

    /// Jumps if it is so of a register and another.
    pub(crate) fn jump(&mut self, code: u8, dst: Register, src: Register, to: Label) {
        self.fixes.push((self.insns.len(), to, Fix::Jump));
        self.op(class::JMP | source::X | code, dst, src, 0, 0);
    }

    /// Jumps if it is so of a register and a number.
    pub(crate) fn jumpi(&mut self, code: u8, dst: Register, immediate: i32, to: Label) {
        self.fixes.push((self.insns.len(), to, Fix::Jump));
        self.op(class::JMP | code, dst, 0, 0, immediate);
    }

    /// A jump from elsewhere, to here.
    pub(crate) fn push_jump(&mut self, insn: Insn, to: Label) {
        if insn.op & 0xf0 == jump::JA {
            return self.goto(to);
        }
        self.fixes.push((self.insns.len(), to, Fix::Jump));
        self.push(insn);
    }

    pub(crate) fn goto(&mut self, to: Label) {
        self.fixes.push((self.insns.len(), to, Fix::Jump));
        self.op(class::JMP | jump::JA, 0, 0, 0, 0);
    }

    /// Calls a function of the program.
    pub(crate) fn call(&mut self, function: Label) {
        self.fixes.push((self.insns.len(), function, Fix::Call));
        self.op(CALL, 0, call::FUNCTION, 0, 0);
    }

    /// Calls one of the kernel's helpers.
    pub(crate) fn call_kernel(&mut self, number: i32) {
        self.op(CALL, 0, call::HELPER, 0, number);
    }

    /// Calls one of the kernel's functions, by its number in the kernel's types.
    pub(crate) fn call_kernel_function(&mut self, type_id: i32) {
        const KERNEL_FUNCTION: u8 = 2;
        self.op(CALL, 0, KERNEL_FUNCTION, 0, type_id);
    }

    /// Loads the address of a function of the program.
    pub(crate) fn address(&mut self, dst: Register, function: Label) {
        self.fixes.push((self.insns.len(), function, Fix::Call));
        self.op(LDDW, dst, LDDW_FUNCTION, 0, 0);
        self.op(0, 0, 0, 0, 0);
    }

    pub(crate) fn exit(&mut self) {
        self.op(EXIT, 0, 0, 0, 0);
    }

    /// Answers a number.
    pub(crate) fn answer(&mut self, number: i32) {
        self.movi(0, number);
        self.exit();
    }

    /// Fills in where labels are. False if one has no place, or is too far away.
    pub(crate) fn finish(&mut self) -> bool {
        let fixes = std::mem::take(&mut self.fixes);
        fixes.into_iter().all(|(at, label, fix)| {
            let Some(place) = self.places[label.0] else { return false };
            let distance = place as i64 - at as i64 - 1;
            match (fix, i16::try_from(distance)) {
                (Fix::Call, _) => self.insns[at].immediate = distance as i32,
                (Fix::Jump, Ok(distance)) => self.insns[at].offset = distance,
                (Fix::Jump, Err(_)) => return false,
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
    /// The bytes of all instructions; `None`: see [`Self::finish`].
    pub(crate) fn bytes(mut self) -> Option<Vec<u8>> {
        let is_finished = self.finish();
        is_finished.then(|| self.insns.iter().flat_map(|insn| insn.encode()).collect())
    }
}
