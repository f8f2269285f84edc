//! Distributes the bytes of a payload among the fields that can be cut.

/// `TRACKWAY_ABI_PAYLOAD_MAX`: most bytes of a payload.
pub(crate) const PAYLOAD_MAX: usize = 4000;
/// `TRACKWAY_ABI_CUT`: the flag of a payload with cut fields.
pub(crate) const CUT: usize = !(usize::MAX >> 1);

/// The number of bytes that a field which can be cut needs, and the number that it gets.
#[derive(Debug, Clone, Copy, Default)]
pub struct Span {
    pub(crate) wanted: usize,
    pub(crate) granted: usize,
}

impl Span {
    /// Returns the number of text bytes to copy: the granted bytes, minus the room for "…" if the
    /// text is cut.
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

/// Grants every span the bytes that it needs, if there is room; otherwise distributes the room and
/// sets [`CUT`] in `cut`. Returns the sum of granted bytes, at most `room`.
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

/// Distributes `room` among spans that need more in total: no span gets more than it needs, and all
/// cut spans get equal numbers of bytes.
#[cold]
#[inline(never)]
fn share_bytes(spans: &mut [Span], room: usize) {
    const OPEN: usize = usize::MAX;
    let (mut left, mut open) = (room, spans.len());
    spans.iter_mut().for_each(|span| span.granted = OPEN);
    // The loop ends: every round settles at least one span, and not all spans fit.
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

/// Ends `length` bytes of truncated UTF-8 at `bytes` with "…". Removes a character that the
/// truncation has split. Returns the new length.
///
/// # Safety
/// `bytes` must point to `length` bytes, followed by room for three more.
#[cold]
#[inline(never)]
pub(crate) unsafe fn end_cut(bytes: *mut u8, mut length: usize) -> usize {
    for back in 1..=length.min(3) {
        // SAFETY: the address is within the caller's bytes.
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
    // SAFETY: the caller guarantees room for three more bytes.
    unsafe { bytes.add(length).cast::<[u8; 3]>().write_unaligned(ELLIPSIS) };
    length + ELLIPSIS.len()
}
