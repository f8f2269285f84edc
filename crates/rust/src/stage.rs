//! Staging: assembles a record's payload on the stack.
//!
//! Layout and distribution of room are those of include/trackway/trackway.h.

use core::mem::MaybeUninit;

use crate::budget::{PAYLOAD_MAX, Span, grant_bytes};
use crate::event::Event;
use crate::kind::Kind;

/// `TRACKWAY_ABI_HEADROOM`: bytes before a payload that the library may write.
pub(crate) const HEADROOM: usize = 128;
/// `TRACKWAY_ABI_TAILROOM`: bytes after a payload that the library may read.
pub(crate) const TAILROOM: usize = 8;
/// Longest payload that is staged in a small buffer. Most payloads fit it, so few pages of the
/// stack are touched.
const SMALL_MAX: usize = 256;
/// Most fields of an event: `FIELDS_MAX` of crates/schema.
pub(crate) const FIELDS_MAX: usize = 32;

/// Values of an event's fields, a list `(first, (second, … ()))`.
///
/// # Safety
/// `put` writes `FIXED` bytes and the granted bytes of its spans, no more.
pub unsafe trait Fields: Copy {
    /// Number of fields.
    const COUNT: usize;
    /// Number of fields that can be cut.
    const SPANS: usize;
    /// Bytes that the fields take independently of their values.
    const FIXED: usize;

    /// Sets the number of bytes that each field that can be cut needs.
    ///
    /// # Safety
    /// The data to which the values point must still exist.
    unsafe fn measure(&self, spans: &mut [Span]);

    /// Appends the values, and returns the payload's new end.
    ///
    /// # Safety
    /// There must be room at `to`; `spans` must be the granted spans of `measure`.
    unsafe fn put(self, to: *mut u8, spans: &[Span]) -> *mut u8;
}

// SAFETY: `put` writes nothing.
unsafe impl Fields for () {
    const COUNT: usize = 0;
    const SPANS: usize = 0;
    const FIXED: usize = 0;

    #[inline(always)]
    unsafe fn measure(&self, _: &mut [Span]) {}

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, _: &[Span]) -> *mut u8 {
        to
    }
}

// SAFETY: both parts fulfil the trait's contract.
unsafe impl<K: Kind, F: Fields> Fields for (K, F) {
    const COUNT: usize = 1 + F::COUNT;
    const SPANS: usize = K::IS_SPAN as usize + F::SPANS;
    const FIXED: usize = K::FIXED + F::FIXED;

    #[inline(always)]
    unsafe fn measure(&self, spans: &mut [Span]) {
        // SAFETY: the caller's promise holds for both parts.
        unsafe {
            if K::IS_SPAN {
                spans[0].wanted = self.0.wanted();
                self.1.measure(&mut spans[1..]);
            } else {
                self.1.measure(spans);
            }
        }
    }

    #[inline(always)]
    unsafe fn put(self, to: *mut u8, spans: &[Span]) -> *mut u8 {
        // SAFETY: the caller's promise holds for both parts.
        unsafe {
            if K::IS_SPAN {
                let to = self.0.put(to, spans[0]);
                self.1.put(to, &spans[1..])
            } else {
                let to = self.0.put(to, Span::default());
                self.1.put(to, spans)
            }
        }
    }
}

/// Records one event, if it is on.
///
/// # Safety
/// The data to which the values point must still exist.
#[inline(always)]
pub(crate) unsafe fn record_event<F: Fields>(event: &Event, values: F) {
    const { assert!(F::FIXED <= PAYLOAD_MAX, "the event is too large") };
    const { assert!(F::COUNT <= FIELDS_MAX, "an event has up to 32 fields") };
    let mut cut = 0;
    let mut spans = [Span::default(); FIELDS_MAX];
    let spans = &mut spans[..F::SPANS];
    // SAFETY: the caller promises that the data exists.
    unsafe { values.measure(spans) };
    let size = F::FIXED + grant_bytes(spans, PAYLOAD_MAX - F::FIXED, &mut cut);
    if F::FIXED <= SMALL_MAX && size <= SMALL_MAX {
        // SAFETY: `put` writes at most `size` bytes, and the buffer has room for them.
        unsafe {
            stage_and_emit::<F, { HEADROOM + SMALL_MAX + TAILROOM }>(event, values, spans, cut)
        };
    } else {
        // SAFETY: `put` writes at most PAYLOAD_MAX bytes, for which the buffer has room.
        unsafe { stage_and_emit_large(event, values, spans, cut) };
    }
}

/// # Safety
/// The requirements of [`stage_and_emit`] apply.
#[inline(never)]
unsafe fn stage_and_emit_large<F: Fields>(event: &Event, values: F, spans: &[Span], cut: usize) {
    // SAFETY: the caller promises the requirements of `stage_and_emit`.
    unsafe {
        stage_and_emit::<F, { HEADROOM + PAYLOAD_MAX + TAILROOM }>(event, values, spans, cut)
    };
}

/// # Safety
/// With these spans, `values` must put at most `ROOM - HEADROOM - TAILROOM` bytes.
#[inline(always)]
unsafe fn stage_and_emit<F: Fields, const ROOM: usize>(
    event: &Event,
    values: F,
    spans: &[Span],
    cut: usize,
) {
    let Some(emit) = event.emitter() else { return };
    let mut staged = MaybeUninit::<[u8; ROOM]>::uninit();
    // SAFETY: the buffer has headroom, the caller's payload, and tailroom; `emit` is the library's.
    unsafe {
        let payload = staged.as_mut_ptr().cast::<u8>().add(HEADROOM);
        let end = values.put(payload, spans);
        emit(event, payload, end.offset_from_unsigned(payload) | cut);
    }
}
