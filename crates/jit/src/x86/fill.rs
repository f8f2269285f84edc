//! Machine code that fills a frame: a typed load and a store for each scalar at a fixed offset in
//! the payload. Payload in rdi, slots in rsi (System V); changes rax and xmm0.

use trackway_schema::Scalar;

use super::EmitError;
use crate::framer::FramerView;

/// Maximum code size for a slot, in bytes.
pub const SLOT_CODE_BYTES_MAX: usize = 24;
/// Size of the code outside the slots, in bytes.
const FRAME_CODE_BYTES: usize = 5;

/// Emits machine code at the start of `buffer` that fills the slots of [`FramerView::coded`].
/// Returns the code's size in bytes; `None` if there are no such slots.
///
/// # Errors
/// Returns an error if the buffer is too small, or on other machines than x86-64 with System V
/// calls.
pub fn emit_fill(framer: &FramerView<'_>, buffer: &mut [u8]) -> Result<Option<usize>, EmitError> {
    if cfg!(not(all(target_arch = "x86_64", unix))) {
        return Err(EmitError::Unsupported);
    }
    let slots = framer.coded().count();
    if slots == 0 {
        return Ok(None);
    }
    if buffer.len() < FRAME_CODE_BYTES + slots * SLOT_CODE_BYTES_MAX {
        return Err(EmitError::NoRoom);
    }
    let mut code = Code { buffer, size: 0 };
    code.put(&[0xf3, 0x0f, 0x1e, 0xfa]); // endbr64
    for (slot, scalar, distance) in framer.coded() {
        code.slot(8 * slot as u32, scalar, distance as u32);
    }
    code.put(&[0xc3]); // ret
    Ok(Some(code.size))
}

struct Code<'b> {
    buffer: &'b mut [u8],
    size: usize,
}

impl Code<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let end = self.size + bytes.len();
        if let Some(place) = self.buffer.get_mut(self.size..end) {
            place.copy_from_slice(bytes);
        }
        self.size = end;
    }

    /// Appends an operation on memory at this distance from the base register.
    fn memory(&mut self, operation: &[u8], distance: u32) {
        self.put(operation);
        self.put(&distance.to_le_bytes());
    }

    /// Appends the code for the slot at `place` bytes from the first slot.
    fn slot(&mut self, place: u32, scalar: Scalar, distance: u32) {
        match scalar {
            Scalar::I8 => self.memory(&[0x48, 0x0f, 0xbe, 0x87], distance), // movsx rax, byte
            Scalar::I16 => self.memory(&[0x48, 0x0f, 0xbf, 0x87], distance), // movsx rax, word
            Scalar::I32 => self.memory(&[0x48, 0x63, 0x87], distance),      // movsxd rax, dword
            Scalar::U8 | Scalar::X8 => self.memory(&[0x0f, 0xb6, 0x87], distance), // movzx, byte
            Scalar::U16 | Scalar::X16 => self.memory(&[0x0f, 0xb7, 0x87], distance), // …, word
            Scalar::U32 | Scalar::X32 => self.memory(&[0x8b, 0x87], distance), // mov eax
            Scalar::I64 | Scalar::U64 | Scalar::X64 | Scalar::F64 => {
                self.memory(&[0x48, 0x8b, 0x87], distance); // mov rax
            }
            Scalar::Bool => {
                self.memory(&[0x80, 0xbf], distance); // cmp byte
                self.put(&[0x00, 0x0f, 0x95, 0xc0, 0x0f, 0xb6, 0xc0]); // 0; setne al; movzx eax, al
            }
            Scalar::F32 => {
                self.memory(&[0xf3, 0x0f, 0x5a, 0x87], distance); // cvtss2sd xmm0, dword
                return self.memory(&[0x66, 0x0f, 0xd6, 0x86], place); // movq [rsi + place], xmm0
            }
        }
        self.memory(&[0x48, 0x89, 0x86], place); // mov [rsi + place], rax
    }
}
