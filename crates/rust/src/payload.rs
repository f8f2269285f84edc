//! Payloads of values that arrive one by one, from programs that use `tracing` or `log`.

use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use crate::budget::{CUT, PAYLOAD_MAX, end_cut};
use crate::event::Event;
use crate::kind::length_before_nul;
use crate::stage::{HEADROOM, TAILROOM};

/// A payload that is assembled on the stack, value by value.
///
/// A value that does not fit is cut, so that all following values have their minimum room. (Fields
/// of `event!` share the room; here, the following values are not known in advance.)
pub(crate) struct Stage<'buffer> {
    /// The payload's buffer, by reference, so that it is not moved with the stage. The payload
    /// begins after the headroom.
    buffer: &'buffer mut Buffer,
    /// The payload's length.
    length: usize,
    /// [`CUT`] if a value was cut, else 0.
    cut: usize,
    /// Most values that can still follow.
    more: usize,
}

/// Memory for a payload.
pub(crate) type Buffer = MaybeUninit<[u8; HEADROOM + PAYLOAD_MAX + TAILROOM]>;

/// Room that each value has in any case: the size of a number.
const RESERVE: usize = 8;

impl<'buffer> Stage<'buffer> {
    /// Creates an empty stage for up to `fields` values; `fields` is at most 32.
    #[inline(always)]
    pub(crate) fn new(buffer: &'buffer mut Buffer, fields: usize) -> Self {
        Self { buffer, length: 0, cut: 0, more: fields }
    }

    /// Removes all values after the first `length` bytes; `fields` values can follow.
    #[cfg(feature = "tracing")]
    pub(crate) fn rewind(&mut self, length: usize, fields: usize) {
        debug_assert!(length <= self.length, "within what was written");
        (self.length, self.more, self.cut) = (length, fields, 0);
    }

    fn at(&mut self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= PAYLOAD_MAX, "within the payload");
        self.buffer.as_mut_ptr().cast::<u8>().wrapping_add(HEADROOM + offset)
    }

    /// Appends a number.
    #[inline(always)]
    pub(crate) fn number<const SIZE: usize>(&mut self, bytes: [u8; SIZE]) {
        const { assert!(SIZE <= RESERVE) };
        if self.is_full() {
            return;
        }
        let to = self.at(self.length);
        // SAFETY: the check above guarantees room for the number.
        unsafe { to.cast::<[u8; SIZE]>().write_unaligned(bytes) };
        self.length += SIZE;
        self.more = self.more.saturating_sub(1);
    }

    /// Returns true if no room is left because there are more values than announced; the caller
    /// then omits the value.
    #[inline(always)]
    fn is_full(&mut self) -> bool {
        let is_full = self.length + RESERVE > PAYLOAD_MAX;
        if is_full {
            self.cut = CUT;
        }
        is_full
    }

    /// Returns the room for the bytes of a value with `fixed` other bytes, without the minimum room
    /// of following values.
    #[inline(always)]
    fn room(&self, fixed: usize) -> usize {
        let others = self.more.saturating_sub(1) * RESERVE;
        PAYLOAD_MAX.saturating_sub(self.length + others + fixed)
    }

    /// Appends a string, up to its first NUL.
    #[inline(always)]
    pub(crate) fn string(&mut self, string: &str) {
        if self.is_full() {
            return;
        }
        let room = self.room(1);
        let wanted = length_before_nul(&string.as_bytes()[..string.len().min(room + 1)]);
        let length = if wanted > room { room.saturating_sub(3) } else { wanted };
        let to = self.at(self.length);
        // SAFETY: the payload has room for `length` bytes, and the string has that many.
        unsafe { to.copy_from_nonoverlapping(string.as_ptr(), length) };
        self.end_string(length, wanted > room);
    }

    /// Ends a string whose `length` bytes are in place; there must be room for the NUL, and for
    /// three more bytes if the string is cut.
    #[inline(always)]
    fn end_string(&mut self, mut length: usize, is_cut: bool) {
        let to = self.at(self.length);
        // SAFETY: the caller guarantees the room.
        unsafe {
            if is_cut {
                self.cut = CUT;
                length = end_cut(to, length);
            }
            to.add(length).write(0);
        }
        self.length += length + 1;
        self.more = self.more.saturating_sub(1);
    }

    /// Appends formatted text as a string, without allocating memory.
    pub(crate) fn formatted(&mut self, arguments: fmt::Arguments<'_>) {
        if let Some(string) = arguments.as_str() {
            return self.string(string);
        }
        if self.is_full() {
            return;
        }
        let (start, room) = (self.at(self.length), self.room(1));
        let mut writer = Writer { start, length: 0, room: room.saturating_sub(3), is_full: false };
        // An error means that the value's formatter failed; the text before it is recorded.
        let _ = writer.write_fmt(arguments);
        let (length, is_full) = (writer.length, writer.is_full);
        // SAFETY: the writer has written `length` bytes at `start`.
        let written = unsafe { core::slice::from_raw_parts(start, length) };
        let before_nul = length_before_nul(written);
        self.end_string(before_nul, is_full && before_nul == length);
    }

    /// Appends bytes as a sequence.
    #[cfg(feature = "tracing")]
    pub(crate) fn sequence(&mut self, bytes: &[u8]) {
        if self.is_full() {
            return;
        }
        let length = bytes.len().min(self.room(4));
        if length < bytes.len() {
            self.cut = CUT;
        }
        let to = self.at(self.length);
        // SAFETY: the payload has room for the count and `length` bytes.
        unsafe {
            to.cast::<u32>().write_unaligned(length as u32);
            to.add(4).copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        self.length += 4 + length;
        self.more = self.more.saturating_sub(1);
    }

    /// Records the payload as a record of `event`, which has these fields, if the event is on.
    #[inline(always)]
    pub(crate) fn record(&mut self, event: &Event) {
        let Some(emit) = event.emitter() else { return };
        // SAFETY: the payload has headroom, `length` bytes, and tailroom; `emit` is the library's.
        unsafe { emit(event, self.at(0), self.length | self.cut) };
    }
}

/// Writes text into a payload, as far as there is room, and ignores the rest without an error:
/// formatters may rely on their writer, because a `String` never fails, and unwrap.
struct Writer {
    start: *mut u8,
    length: usize,
    room: usize,
    /// True if text was dropped.
    is_full: bool,
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.is_full { 0 } else { self.room - self.length };
        let length = text.len().min(room);
        // SAFETY: the payload has room for `length` more bytes.
        unsafe {
            self.start.add(self.length).copy_from_nonoverlapping(text.as_ptr(), length);
        }
        self.length += length;
        self.is_full |= length < text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Stage<'_> {
        fn payload(&mut self) -> Vec<u8> {
            let start = self.at(0);
            // SAFETY: the stage has written `length` bytes.
            unsafe { core::slice::from_raw_parts(start, self.length) }.to_vec()
        }
    }

    #[test]
    fn values_are_packed() {
        let mut buffer = Buffer::uninit();
        let mut stage = Stage::new(&mut buffer, 4);
        stage.number(7_u64.to_le_bytes());
        stage.string("ab\0c");
        stage.formatted(format_args!("{}-{}", 1, 2));
        assert_eq!(stage.payload(), b"\x07\0\0\0\0\0\0\0ab\x001-2\0");
        #[cfg(feature = "tracing")]
        {
            stage.sequence(&[1, 2]);
            assert!(stage.payload().ends_with(b"1-2\0\x02\0\0\0\x01\x02"));
        }
        assert_eq!(stage.cut, 0);
    }

    #[test]
    fn what_does_not_fit_is_cut_and_the_rest_has_room() {
        let long = "ä".repeat(3000);
        for formatted in [false, true] {
            let mut buffer = Buffer::uninit();
            let mut stage = Stage::new(&mut buffer, 32);
            if formatted {
                stage.formatted(format_args!("{long}{}", 1));
            } else {
                stage.string(&long);
            }
            assert_eq!(stage.cut, CUT);
            for _ in 0..31 {
                stage.number(u64::MAX.to_le_bytes());
            }
            let payload = stage.payload();
            assert!(payload.len() <= PAYLOAD_MAX && payload.len() > PAYLOAD_MAX - 4);
            let text = payload.split(|&byte| byte == 0).next().expect("a string");
            assert!(str::from_utf8(text).expect("whole characters").ends_with("ä…"));
            assert!(payload.ends_with(&[0xff; 31 * 8]));
        }
    }

    /// Writes more text than a record holds; its formatter unwraps results.
    struct Trusting;

    impl fmt::Display for Trusting {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            for number in 0..2000 {
                write!(formatter, "{number} ").expect("a write to memory");
            }
            formatter.write_str("").expect("a write to memory");
            formatter.write_str(".")
        }
    }

    #[test]
    fn a_value_that_is_too_long_may_trust_its_writer_and_is_cut() {
        let mut buffer = Buffer::uninit();
        let mut stage = Stage::new(&mut buffer, 1);
        stage.formatted(format_args!("{Trusting}{}", 1));
        assert_eq!(stage.cut, CUT);
        let payload = stage.payload();
        assert!(payload.len() > PAYLOAD_MAX - 4 && payload.starts_with(b"0 1 2 3 "));
        assert!(payload.ends_with("…\0".as_bytes()));
    }

    #[test]
    fn no_number_of_values_overruns_the_buffer() {
        let mut buffer = Buffer::uninit();
        let mut stage = Stage::new(&mut buffer, 1);
        for _ in 0..100 {
            stage.string("a string of some length, again and again and again");
            #[cfg(feature = "tracing")]
            stage.sequence(&[1; 100]);
            stage.formatted(format_args!("{}", 1.5));
            stage.number([1]);
        }
        assert!(stage.payload().len() <= PAYLOAD_MAX);
    }
}
