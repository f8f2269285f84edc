//! Payloads of values that come one by one, from programs that speak through `tracing` or `log`.

use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use crate::budget::{CUT, PAYLOAD_MAX, end_cut};
use crate::event::Event;
use crate::kind::length_before_nul;
use crate::stage::{HEADROOM, TAILROOM};

/// A payload that is put together value by value, on the stack.
///
/// A value that does not fit is cut so that those that are still to come have the room that they
/// need at least. (The fields of `event!` share the room, but these are not known in advance.)
pub(crate) struct Stage<'buffer> {
    /// The payload begins behind the headroom. Not a part of this: it would be moved with it.
    buffer: &'buffer mut Buffer,
    /// Its length.
    length: usize,
    /// [`CUT`] if a value was cut, else 0.
    cut: usize,
    /// Most values that are still to come.
    more: usize,
}

/// Memory for a payload.
pub(crate) type Buffer = MaybeUninit<[u8; HEADROOM + PAYLOAD_MAX + TAILROOM]>;

/// Room that each value has for certain: a number's.
const RESERVE: usize = 8;

impl<'buffer> Stage<'buffer> {
    /// Creates an empty stage for up to `fields` values; `fields` is at most 32.
    #[inline(always)]
    pub(crate) fn new(buffer: &'buffer mut Buffer, fields: usize) -> Self {
        Self { buffer, length: 0, cut: 0, more: fields }
    }

    /// Takes back all values but the first ones, of `length` bytes; `fields` are still to come.
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
        // SAFETY: there is room for it, as was checked.
        unsafe { to.cast::<[u8; SIZE]>().write_unaligned(bytes) };
        self.length += SIZE;
        self.more = self.more.saturating_sub(1);
    }

    /// Returns true if there are more values than were announced, for which there is no room: they
    /// are left out.
    #[inline(always)]
    fn is_full(&mut self) -> bool {
        let is_full = self.length + RESERVE > PAYLOAD_MAX;
        if is_full {
            self.cut = CUT;
        }
        is_full
    }

    /// Room for the bytes of a value that has `fixed` more, without what others need.
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
        // SAFETY: there is room for that, and it is the string's.
        unsafe { to.copy_from_nonoverlapping(string.as_ptr(), length) };
        self.end_string(length, wanted > room);
    }

    /// Ends a string of `length` bytes, which are in place; there is room for three more if it is
    /// cut, and for the NUL.
    #[inline(always)]
    fn end_string(&mut self, mut length: usize, is_cut: bool) {
        let to = self.at(self.length);
        // SAFETY: there is the room that the caller left.
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

    /// Appends what is formatted, as a string. Nothing else is formatted, and nothing allocated.
    pub(crate) fn formatted(&mut self, arguments: fmt::Arguments<'_>) {
        if let Some(string) = arguments.as_str() {
            return self.string(string);
        }
        if self.is_full() {
            return;
        }
        let (start, room) = (self.at(self.length), self.room(1));
        let mut writer = Writer { start, length: 0, room: room.saturating_sub(3), is_full: false };
        // An error says that the value does not want to be written.
        let _ = writer.write_fmt(arguments);
        let (length, is_full) = (writer.length, writer.is_full);
        // SAFETY: the writer has put `length` bytes there.
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
        // SAFETY: there is room for that, and for the count.
        unsafe {
            to.cast::<u32>().write_unaligned(length as u32);
            to.add(4).copy_from_nonoverlapping(bytes.as_ptr(), length);
        }
        self.length += 4 + length;
        self.more = self.more.saturating_sub(1);
    }

    /// Records it as one of `event`, whose fields it was made for, if that is on.
    #[inline(always)]
    pub(crate) fn record(&mut self, event: &Event) {
        let Some(emit) = event.emitter() else { return };
        // SAFETY: the payload has headroom, `length` bytes, and tailroom; `emit` is the library's.
        unsafe { emit(event, self.at(0), self.length | self.cut) };
    }
}

/// Writes text into a payload, as far as there is room. What comes then goes nowhere, and that is
/// no error: values may trust their writer, as a `String` never fails, and unwrap.
struct Writer {
    start: *mut u8,
    length: usize,
    room: usize,
    /// True if a value was dropped.
    is_full: bool,
}

impl Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.is_full { 0 } else { self.room - self.length };
        let length = text.len().min(room);
        // SAFETY: there is room for that.
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
            // SAFETY: so many bytes were written.
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

    /// Writes more than a record holds, with a writer that it trusts, and ignores what it says.
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
