//! Builds the payload of an event described at run time from the program's values.
//!
//! Values are measured first, then copied. Another thread may change a string in between, so the
//! copy never reads more than was measured.

use core::ffi::c_int;

use trackway_abi::record::{HEADROOM_BYTES, PAYLOAD_BYTES_MAX, TAILROOM_BYTES};
use trackway_schema::{FIELDS_MAX, Scalar, Shape};

use super::dynamic::{FieldPlan, FieldPlans};
use crate::abi::Value;

/// The recorded form of null strings.
const NULL: &[u8] = b"(null)";
/// The end of a string that was cut: "…".
const ELLIPSIS: &[u8] = "\u{2026}".as_bytes();

/// Variable bytes of a str, text or sequence: the requested bytes and the granted bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) wanted: u16,
    pub(super) granted: u16,
}

/// The sizes of a record's values.
pub(super) struct Sizes {
    /// Spans of strs, texts and sequences, in the order of their fields.
    pub(super) spans: [Span; FIELDS_MAX],
    /// Maximum bytes of the payload: a str may turn out to be shorter.
    pub(super) bytes: usize,
    /// True if a value is cut to fit.
    pub(super) is_cut: bool,
}

/// Divides `room` among spans that need more. No span gets more than it needs, and all cut spans
/// get the same size, as `trackway_i_share` of the header defines it.
fn share_room(spans: &mut [Span], room: usize) {
    const OPEN: u16 = u16::MAX;
    let mut left = room;
    let mut open = spans.len();
    for span in &mut *spans {
        span.granted = OPEN;
    }
    // Each turn but the last closes at least one span.
    for _ in 0..=spans.len() {
        let part = left / open.max(1);
        let before = open;
        for span in spans.iter_mut().filter(|span| span.granted == OPEN) {
            if usize::from(span.wanted) <= part {
                span.granted = span.wanted;
                left -= usize::from(span.wanted);
                open -= 1;
            }
        }
        if open == before {
            break;
        }
    }
    for span in spans.iter_mut().filter(|span| span.granted == OPEN) {
        span.granted = (left / open) as u16;
    }
}

/// Bytes around a payload that the contract requires.
pub(super) const MARGIN_BYTES: usize = HEADROOM_BYTES + TAILROOM_BYTES;

/// A payload under construction, in a zeroed buffer.
pub(super) struct PayloadBuilder<'room> {
    pub(super) bytes: &'room mut [u8],
    pub(super) end: usize,
}

impl PayloadBuilder<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Copies `count` bytes from the program's memory.
    ///
    /// # Safety
    /// `from` has `count` readable bytes.
    unsafe fn copy(&mut self, from: *const u8, count: usize) {
        let room = &mut self.bytes[self.end..self.end + count];
        // SAFETY: the caller's bytes; the slice bounds the copy. Another thread may be writing to
        // the source, so its bytes are copied and not interpreted.
        unsafe { core::ptr::copy_nonoverlapping(from, room.as_mut_ptr(), count) };
        self.end += count;
    }

    /// Copies the granted bytes of a string, ending with "…" if the string is cut. Removes a
    /// character that the cut has split.
    ///
    /// # Safety
    /// `from` has `span.wanted` readable bytes.
    unsafe fn copy_string(&mut self, from: *const u8, span: Span) {
        let start = self.end;
        let granted = usize::from(span.granted);
        if span.granted == span.wanted || granted < ELLIPSIS.len() {
            let count = if span.granted == span.wanted { granted } else { 0 };
            // SAFETY: the caller upholds the contract.
            unsafe { self.copy(from, count) };
            return;
        }
        // SAFETY: the caller's bytes: this copy is shorter than `wanted`.
        unsafe { self.copy(from, granted - ELLIPSIS.len()) };
        for back in 1..=3.min(self.end - start) {
            let needed = match self.bytes[self.end - back] {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                0x80.. => continue,
                _ => break,
            };
            if back < needed {
                self.end -= back;
            }
            break;
        }
        self.put(ELLIPSIS);
    }
}

/// Returns the address and length of a string value, or of "(null)" for null.
fn string_of(value: &Value) -> (*const u8, usize) {
    let data: *const u8 = value.data();
    if data.is_null() {
        return (NULL.as_ptr(), NULL.len());
    }
    (data, usize::try_from(value.length).unwrap_or(usize::MAX).min(PAYLOAD_BYTES_MAX))
}

/// Returns the variable bytes of a field; `None` if it has a fixed size. The error is a negative
/// errno.
///
/// # Safety
/// The value's data meets the contract of include/trackway/dynamic.h.
unsafe fn measure_field(plan: FieldPlan, value: &Value) -> Result<Option<usize>, c_int> {
    match plan.shape {
        Shape::Scalar | Shape::Enumeration if is_in_range(plan.scalar, value.bits) => Ok(None),
        Shape::Scalar | Shape::Enumeration => Err(-libc::ERANGE),
        Shape::Array if value.data::<u8>().is_null() => Ok(None),
        Shape::Array if value.length == u64::from(plan.length) => Ok(None),
        Shape::Array => Err(-libc::EINVAL),
        Shape::Text => Ok(Some(string_of(value).1)),
        Shape::Str => {
            let (data, length) = string_of(value);
            // SAFETY: the caller upholds the contract; strnlen reads at most `length` bytes.
            Ok(Some(unsafe { libc::strnlen(data.cast(), length) }))
        }
        Shape::Sequence if value.data::<u8>().is_null() => Ok(Some(0)),
        Shape::Sequence => {
            let size = plan.scalar.size_bytes();
            let most = (PAYLOAD_BYTES_MAX / size + 1) as u64;
            Ok(Some(value.length.min(most) as usize * size))
        }
    }
}

/// Returns true if an integer is within its type's range. Returns true for all other scalars.
const fn is_in_range(scalar: Scalar, bits: u64) -> bool {
    let unused = 64 - 8 * scalar.size_bytes() as u32;
    if scalar.is_float() || matches!(scalar, Scalar::Bool) {
        true
    } else if scalar.is_signed() {
        let value = bits.cast_signed();
        value << unused >> unused == value
    } else {
        bits << unused >> unused == bits
    }
}

/// Measures the values. Writes the result to the empty `sizes`, so that the result is on the stack
/// once, not twice. The error is a negative errno.
///
/// # Safety
/// The values' data meets the header's contract.
#[inline(never)] // keeps its frame off its callers' stack
pub(super) unsafe fn measure_values(
    plans: &FieldPlans,
    values: &[Value],
    sizes: &mut Sizes,
) -> Result<(), c_int> {
    let spans = &mut sizes.spans;
    let (mut span_count, mut wanted_bytes) = (0, 0);
    for (&plan, value) in plans.as_slice().iter().zip(values) {
        // SAFETY: the caller upholds the same contract.
        if let Some(wanted) = unsafe { measure_field(plan, value)? } {
            // `wanted` is at most one element larger than a payload.
            spans[span_count] = Span { wanted: wanted as u16, granted: wanted as u16 };
            span_count += 1;
            wanted_bytes += wanted;
        }
    }
    let room = PAYLOAD_BYTES_MAX.saturating_sub(plans.fixed_bytes);
    let is_cut = wanted_bytes > room;
    if is_cut {
        share_room(&mut spans[..span_count], room);
    }
    (sizes.bytes, sizes.is_cut) = (plans.fixed_bytes + wanted_bytes.min(room), is_cut);
    Ok(())
}

/// Appends a field to the payload.
///
/// # Safety
/// The value's data meets the header's contract, and the span was made from it.
pub(super) unsafe fn append_field(
    staged: &mut PayloadBuilder<'_>,
    plan: FieldPlan,
    value: &Value,
    span: Span,
) {
    let size = plan.scalar.size_bytes();
    let start = staged.end;
    // SAFETY: the caller upholds the contract in all cases: the data has as many bytes.
    unsafe {
        match plan.shape {
            Shape::Scalar if plan.scalar == Scalar::Bool => staged.put(&[(value.bits != 0).into()]),
            Shape::Scalar | Shape::Enumeration => staged.put(&value.bits.to_le_bytes()[..size]),
            Shape::Array if value.data::<u8>().is_null() => {
                // The buffer is already zeroed.
                staged.end += plan.fixed_bytes();
            }
            Shape::Array => staged.copy(value.data(), plan.fixed_bytes()),
            Shape::Sequence => {
                let count = usize::from(span.granted) / size;
                staged.put(&(count as u32).to_le_bytes());
                if count > 0 {
                    staged.copy(value.data(), count * size);
                }
            }
            Shape::Text => {
                staged.put(&[0; size_of::<u32>()]);
                staged.copy_string(string_of(value).0, span);
                let length = staged.end - start - size_of::<u32>();
                let prefix = &mut staged.bytes[start..start + size_of::<u32>()];
                prefix.copy_from_slice(&(length as u32).to_le_bytes());
            }
            Shape::Str => {
                staged.copy_string(string_of(value).0, span);
                // Another thread may have shortened the string meanwhile: the copy decides.
                let copied = &staged.bytes[start..staged.end];
                if let Some(end) = copied.iter().position(|&byte| byte == 0) {
                    staged.end = start + end;
                }
                staged.put(&[0]);
            }
        }
    }
}
