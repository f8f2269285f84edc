//! A program's instructions, as borrowed bytes of any alignment.

use crate::INSTRUCTIONS_MAX;
use crate::insn::{INSN_BYTES, Insn, LDDW};

/// A program of 1 to [`INSTRUCTIONS_MAX`] instructions, unverified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    bytes: &'a [u8],
}

impl<'a> Program<'a> {
    /// Returns the program in these bytes; `None` if the number of bytes is wrong.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        let whole = bytes.len().is_multiple_of(INSN_BYTES);
        if whole && !bytes.is_empty() && bytes.len() / INSN_BYTES <= INSTRUCTIONS_MAX {
            Some(Self { bytes })
        } else {
            None
        }
    }

    /// Returns the number of instructions; [`LDDW`] counts as two.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(self) -> usize {
        self.bytes.len() / INSN_BYTES
    }

    /// Returns the instruction with this index; beyond the end, one with an invalid operation.
    pub fn insn(self, index: usize) -> Insn {
        let bytes = self.bytes.get(index.saturating_mul(INSN_BYTES)..);
        bytes.and_then(|bytes| bytes.first_chunk()).map_or(Insn::default(), |b| Insn::decode(*b))
    }

    /// Returns the 64-bit number that the [`LDDW`] with this index loads.
    pub fn wide(self, index: usize) -> u64 {
        let low = self.insn(index).immediate as u32;
        let high = self.insn(index + 1).immediate as u32;
        u64::from(high) << 32 | u64::from(low)
    }

    /// Returns the encoded instructions, with second halves of [`LDDW`].
    pub const fn code(self) -> &'a [[u8; INSN_BYTES]] {
        self.bytes.as_chunks().0
    }

    /// Returns the program's bytes.
    pub const fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the instructions with their indices, without second halves of [`LDDW`].
    pub fn insns(self) -> impl Iterator<Item = (usize, Insn)> + 'a {
        let mut next = 0;
        core::iter::from_fn(move || {
            let index = next;
            let insn = self.insn(index);
            next += insn.width();
            (index < self.len()).then_some((index, insn))
        })
    }
}

impl Insn {
    /// Returns 2 for [`LDDW`], else 1.
    pub const fn width(self) -> usize {
        if self.op == LDDW { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_no_programs() {
        let bytes = [0; (INSTRUCTIONS_MAX + 1) * INSN_BYTES];
        assert!(Program::new(&bytes[..0]).is_none());
        assert!(Program::new(&bytes[..12]).is_none());
        assert!(Program::new(&bytes).is_none());
        let most = Program::new(&bytes[INSN_BYTES..]).expect("a program");
        assert_eq!(most.len(), INSTRUCTIONS_MAX);
        assert_eq!(most.insn(usize::MAX), Insn::default());
    }

    #[test]
    fn wide_instructions_are_one() {
        let load = Insn { op: LDDW, immediate: -2, ..Insn::default() };
        let high = Insn { immediate: 1, ..Insn::default() };
        let end = Insn { op: crate::insn::EXIT, ..Insn::default() };
        let bytes = [load.encode(), high.encode(), end.encode()].concat();
        let program = Program::new(&bytes).expect("a program");
        assert_eq!(program.wide(0), 0x1_ffff_fffe);
        assert!(program.insns().eq([(0, load), (2, end)]));
    }
}
