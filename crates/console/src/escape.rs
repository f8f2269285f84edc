//! Escapes for characters that control a terminal, or mislead a reader.
//!
//! The crate escapes the C0 and C1 control characters (ECMA-48) except line end and tab; characters
//! that change the direction of text (Unicode UAX #9, "Trojan Source"); line and paragraph
//! separators; and bytes that are not UTF-8, because a terminal may read them as 8-bit control
//! characters.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::mark;

/// Bytes of the longest UTF-8 sequence.
const CHAR_BYTES_MAX: usize = 4;

/// Returns `text` on one line, without control characters. Escapes the same characters as
/// [`Stream`](crate::Stream), and line ends and tabs.
pub fn escape_unprintable(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| c.is_control() || is_misleading_char(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() || is_misleading_char(c) {
            push_char_escape(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Appends the escape sequence of a control or misleading character. The form is that of JSON (RFC
/// 8259, section 7), so that escaped JSON remains valid JSON.
fn push_char_escape(text: &mut String, c: char) {
    match c {
        '\r' => text.push_str("\\r"),
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        // No escaped character is beyond U+FFFF.
        c => _ = write!(text, "\\u{:04x}", u32::from(c)),
    }
}

/// Returns true if `c` is no control character, but changes how a terminal shows other characters.
const fn is_misleading_char(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Appends `bytes`, escaped, to `out`. With `has_colours`, marks become the control sequences of
/// their colours; otherwise they are dropped. Returns the number of bytes used: an incomplete
/// character or mark at the end is left unused unless `is_last`.
pub(crate) fn push_escaped(
    out: &mut Vec<u8>,
    bytes: &[u8],
    has_colours: bool,
    is_last: bool,
) -> usize {
    let mut used = 0;
    while let Some(rest) = bytes.get(used..).filter(|rest| !rest.is_empty()) {
        let plain = rest.iter().position(|&byte| !is_plain(byte)).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        used += plain;
        let rest = &rest[plain..];
        match SpecialSequence::parse(rest, is_last) {
            None => break,
            Some(SpecialSequence::Incomplete) => return used,
            Some(SpecialSequence::Mark(style, length)) => {
                if has_colours {
                    out.extend_from_slice(style.sequence().as_bytes());
                }
                used += length;
            }
            Some(SpecialSequence::Char(c)) => {
                used += c.len_utf8();
                if c.is_control() || is_misleading_char(c) {
                    let mut text = String::new();
                    // Writing to a string cannot fail.
                    push_char_escape(&mut text, c);
                    out.extend_from_slice(text.as_bytes());
                } else {
                    out.extend_from_slice(c.encode_utf8(&mut [0; CHAR_BYTES_MAX]).as_bytes());
                }
            }
            Some(SpecialSequence::Invalid(byte)) => {
                out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
                used += 1;
            }
        }
    }
    used
}

/// Returns true if the byte is never escaped, whatever bytes surround it.
const fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

/// A sequence that begins with a byte that is not plain.
enum SpecialSequence {
    Char(char),
    Mark(mark::StyleChange, usize),
    /// A byte that is not UTF-8.
    Invalid(u8),
    /// The beginning of a character or mark whose end may be in the next bytes.
    Incomplete,
}

impl SpecialSequence {
    fn parse(rest: &[u8], is_last: bool) -> Option<Self> {
        let first = *rest.first()?;
        match mark::read_mark(rest) {
            mark::MarkMatch::Complete(change, length) => return Some(Self::Mark(change, length)),
            mark::MarkMatch::Part if !is_last => return Some(Self::Incomplete),
            mark::MarkMatch::Part | mark::MarkMatch::None => {}
        }
        let head = &rest[..rest.len().min(CHAR_BYTES_MAX)];
        let valid = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) if error.valid_up_to() > 0 => {
                std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
            }
            // The bytes end within a character.
            Err(error) if error.error_len().is_none() && !is_last => return Some(Self::Incomplete),
            Err(_) => "",
        };
        Some(valid.chars().next().map_or(Self::Invalid(first), Self::Char))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;

    fn escape_to_string(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        assert_eq!(push_escaped(&mut out, bytes, false, true), bytes.len());
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn what_controls_a_terminal_is_escaped_and_the_rest_is_not() {
        for (bytes, shown) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n"),
            ("é漢🦀".as_bytes(), "é漢🦀"),
            (b"\x1b[2Ja", "\\u001b[2Ja"),
            (b"\x07\r\x08\x7f\0", "\\u0007\\r\\u0008\\u007f\\u0000"),
            ("\u{9b}31m\u{85}".as_bytes(), "\\u009b31m\\u0085"),
            (b"\x9b31m\xff\xc3", "\\x9b31m\\xff\\xc3"),
            (b"\xc3\x1b[m", "\\xc3\\u001b[m"),
            (b"\xf0\x9f\xa6", "\\xf0\\x9f\\xa6"),
            ("\u{202e}a\u{2066}\u{200f}\u{2028}".as_bytes(), "\\u202ea\\u2066\\u200f\\u2028"),
        ] {
            assert_eq!(escape_to_string(bytes), shown, "{bytes:?}");
        }
        assert_eq!(escape_unprintable("a\n\tb\u{202e}"), "a\\n\\tb\\u202e");
        assert!(matches!(escape_unprintable("é plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_division_of_the_bytes_gives_the_same_text() {
        let marked = mark::wrap_in_marks(Style::Name, "näme\x1b[2J");
        let whole = format!("a\u{9b}{marked}é\u{202e}\n");
        let whole = [whole.as_bytes(), b"\xf0\x9f\xa6x"].concat();
        let mut expected = Vec::new();
        push_escaped(&mut expected, &whole, true, true);
        for end in 0..=whole.len() {
            let mut out = Vec::new();
            let used = push_escaped(&mut out, &whole[..end], true, false);
            assert!(end - used < mark::MARK_BYTES, "{used} of {end} are used");
            push_escaped(&mut out, &whole[used..], true, true);
            assert_eq!(out, expected, "divided at {end}");
        }
        let text = String::from_utf8(expected).expect("UTF-8");
        assert_eq!(text, "a\\u009b\x1b[1mnäme\\u001b[2J\x1b[0mé\\u202e\n\\xf0\\x9f\\xa6x");
    }
}
