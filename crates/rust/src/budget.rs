//! The bytes of a payload, shared among the fields that can be cut.

/// `TRACKWAY_ABI_PAYLOAD_MAX`.
pub(crate) const PAYLOAD_MAX: usize = 4000;
/// `TRACKWAY_ABI_CUT`.
pub(crate) const CUT: usize = !(usize::MAX >> 1);

/// Bytes that a field which can be cut needs, and bytes that it gets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    pub(crate) wanted: usize,
    pub(crate) granted: usize,
}

impl Span {
    /// Returns the number of bytes of a text to copy: its granted bytes, less the room for "…" if
    /// it is cut.
    #[inline(always)]
    pub(crate) fn copied(self) -> usize {
        if self.is_cut() { self.granted.saturating_sub(ELLIPSIS.len()) } else { self.granted }
    }

    #[inline(always)]
    pub(crate) fn is_cut(self) -> bool {
        self.granted != self.wanted
    }
}

const ELLIPSIS: [u8; 3] = *"…".as_bytes().first_chunk().expect("three bytes");

/// Grants every span what it wants, if there is room; else shares it and sets [`CUT`] in `cut`.
/// Returns the sum of what it grants, at most `room`.
#[inline(always)]
pub(crate) fn grant_bytes(spans: &mut [Span], room: usize, cut: &mut usize) -> usize {
    let mut sum = 0;
    for span in &mut *spans {
        span.granted = span.wanted;
        sum += span.wanted;
    }
    if sum <= room {
        return sum;
    }
    *cut = CUT;
    share_bytes(spans, room);
    room
}

/// Shares `room` among spans that want more than that: none gets more than it wants, and those
/// that are cut all get the same.
#[cold]
#[inline(never)]
fn share_bytes(spans: &mut [Span], room: usize) {
    const OPEN: usize = usize::MAX;
    let (mut left, mut open) = (room, spans.len());
    spans.iter_mut().for_each(|span| span.granted = OPEN);
    // Ends: every round settles one at least, and not all of them fit.
    while open > 0 {
        let share = left / open;
        let before = open;
        for span in spans.iter_mut().filter(|span| span.granted == OPEN && span.wanted <= share) {
            span.granted = span.wanted;
            left -= span.wanted;
            open -= 1;
        }
        if open == before {
            break;
        }
    }
    for span in spans.iter_mut().filter(|span| span.granted == OPEN) {
        span.granted = left / open.max(1);
    }
}

/// Ends `length` bytes at `bytes`, which were cut out of UTF-8, with "…". Steps back over a
/// character that the cut has split. Returns the new length.
///
/// # Safety
/// `length` bytes are there, and room for three more.
#[cold]
#[inline(never)]
pub(crate) unsafe fn end_cut(bytes: *mut u8, mut length: usize) -> usize {
    for back in 1..=length.min(3) {
        // SAFETY: within the caller's bytes.
        let byte = unsafe { bytes.add(length - back).read() };
        if byte >= 0xc0 {
            let needed = match byte {
                0xf0.. => 4,
                0xe0.. => 3,
                _ => 2,
            };
            if back < needed {
                length -= back;
            }
            break;
        }
        if byte < 0x80 {
            break;
        }
    }
    // SAFETY: there is the caller's room.
    unsafe { bytes.add(length).cast::<[u8; 3]>().write_unaligned(ELLIPSIS) };
    length + ELLIPSIS.len()
}
