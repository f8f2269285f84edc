//! Staging: a record's payload is put together on the stack.
//!
//! The same layout, and the same sharing of what room there is, as in include/trackway/trackway.h.

use core::mem::MaybeUninit;

use crate::budget::{PAYLOAD_MAX, Span, grant_bytes};
use crate::event::Event;
use crate::kind::Kind;

/// `TRACKWAY_ABI_HEADROOM`: bytes in front of a payload that the library may write.
pub(crate) const HEADROOM: usize = 128;
/// `TRACKWAY_ABI_TAILROOM`: bytes behind a payload that the library may read.
pub(crate) const TAILROOM: usize = 8;
/// Longest payload that is staged in a buffer of its own size class, which most fit: so that few
/// pages of the stack are touched.
const SMALL_MAX: usize = 256;
/// Most fields of an event: `FIELDS_MAX` of crates/schema.
pub(crate) const FIELDS_MAX: usize = 32;

/// Values of an event's fields, a list `(first, (second, … ()))`.
///
/// # Safety
/// `put` writes `FIXED` bytes and what its spans are granted, no more.
pub unsafe trait Fields: Copy {
    /// Number of fields.
    const COUNT: usize;
    /// Number of fields that can be cut.
    const SPANS: usize;
    /// Bytes that the fields take independently of their values.
    const FIXED: usize;

    /// Sets the bytes that each field that can be cut would like to have.
    ///
    /// # Safety
    /// What the values point to is still there.
    unsafe fn measure(&self, spans: &mut [Span]);

    /// Appends them, and returns the payload's new end.
    ///
    /// # Safety
    /// There is room at `to`; `spans` are those of `measure`, granted.
    unsafe fn put(self, to: *mut u8, spans: &[Span]) -> *mut u8;
}

// SAFETY: it writes nothing.
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

// SAFETY: both parts keep the promise.
unsafe impl<K: Kind, F: Fields> Fields for (K, F) {
    const COUNT: usize = 1 + F::COUNT;
    const SPANS: usize = K::IS_SPAN as usize + F::SPANS;
    const FIXED: usize = K::FIXED + F::FIXED;

    #[inline(always)]
    unsafe fn measure(&self, spans: &mut [Span]) {
        // SAFETY: the caller's promise, for both parts.
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
        // SAFETY: the caller's promise, for both parts.
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
/// What the values point to is still there.
#[inline(always)]
pub(crate) unsafe fn record_event<F: Fields>(event: &Event, values: F) {
    const { assert!(F::FIXED <= PAYLOAD_MAX, "the event is too large") };
    const { assert!(F::COUNT <= FIELDS_MAX, "an event has up to 32 fields") };
    let mut cut = 0;
    let mut spans = [Span::default(); FIELDS_MAX];
    let spans = &mut spans[..F::SPANS];
    // SAFETY: the caller's promise.
    unsafe { values.measure(spans) };
    let size = F::FIXED + grant_bytes(spans, PAYLOAD_MAX - F::FIXED, &mut cut);
    if F::FIXED <= SMALL_MAX && size <= SMALL_MAX {
        // SAFETY: `size` is what `put` writes at most, and there is room for it.
        unsafe {
            stage_and_emit::<F, { HEADROOM + SMALL_MAX + TAILROOM }>(event, values, spans, cut)
        };
    } else {
        // SAFETY: likewise; grants end at PAYLOAD_MAX.
        unsafe { stage_and_emit_large(event, values, spans, cut) };
    }
}

/// # Safety
/// As [`stage_and_emit`].
#[inline(never)]
unsafe fn stage_and_emit_large<F: Fields>(event: &Event, values: F, spans: &[Span], cut: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        stage_and_emit::<F, { HEADROOM + PAYLOAD_MAX + TAILROOM }>(event, values, spans, cut)
    };
}

/// # Safety
/// `values` put up to `ROOM - HEADROOM - TAILROOM` bytes with these spans.
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
