//! A staged payload: the fields of one event, packed by the site, with free bytes around them.

use trackway_abi::record::CUT;

/// The payload that a site staged on its stack.
///
/// Two words, which travel in two registers. The flag [`CUT`] makes the size so large that the fast
/// path rejects the record without a check of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StagedPayload {
    /// The first byte. Headroom lies before it and tailroom after the last byte, as
    /// `trackway_abi_emit_fn` promises.
    pub(crate) start: *mut u8,
    /// Bytes of the payload, and [`CUT`].
    pub(crate) size_and_flags: usize,
}

impl StagedPayload {
    #[inline(always)]
    pub(crate) const fn new(start: *mut u8, size_and_flags: usize) -> Self {
        Self { start, size_and_flags }
    }

    /// Returns the payload's bytes, without the flag.
    #[inline(always)]
    pub(crate) const fn size(self) -> usize {
        self.size_and_flags & !CUT
    }

    /// Returns true if the site cut a field to fit.
    #[inline(always)]
    pub(crate) const fn is_cut(self) -> bool {
        self.size_and_flags & CUT != 0
    }
}
