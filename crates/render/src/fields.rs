//! Text of field values.

use trackway_ctf::read::{
    Base, Enumeration, EventSink, Integer, Member, Scope, Sink, VariantOption,
};

use crate::format::{LINE_BYTES_MAX, truncate_line};
use crate::number::{
    push_decimal, push_general_float, push_hexadecimal, push_short_text, push_signed,
};
use crate::options::ShownNames;

/// Appends values to a buffer, as they are decoded.
pub struct FieldWriter<'buffer> {
    pub(crate) out: &'buffer mut Vec<u8>,
    names: ShownNames,
    /// True if field names are shown in the current scope.
    has_names: bool,
    /// True if another part precedes, so that `, ` separates the next scope from it.
    follows: bool,
    /// Text to be written before the packet context.
    lead: &'static [u8],
    /// Maximum length of `out` in bytes.
    limit: usize,
}

impl<'buffer> FieldWriter<'buffer> {
    /// Creates a writer of an event's scopes to the end of `out`; if `follows`, `, ` precedes the
    /// first.
    pub const fn new(out: &'buffer mut Vec<u8>, names: ShownNames, follows: bool) -> Self {
        let limit = out.len().saturating_add(LINE_BYTES_MAX);
        Self { out, names, has_names: names.payload, follows, lead: b"", limit }
    }

    /// Creates a writer of a packet context.
    pub const fn for_packet(out: &'buffer mut Vec<u8>, names: ShownNames) -> Self {
        let lead: &[u8] = if names.scope { b"stream.packet.context = " } else { b"" };
        let limit = out.len().saturating_add(LINE_BYTES_MAX);
        Self { out, names, has_names: names.context, follows: false, lead, limit }
    }
}

impl EventSink for FieldWriter<'_> {
    #[inline]
    fn begin_scope(&mut self, scope: Scope) {
        if self.follows {
            self.out.extend_from_slice(b", ");
        }
        self.follows = true;
        self.has_names =
            if scope == Scope::Fields { self.names.payload } else { self.names.context };
        if self.names.scope {
            self.push_scope_name(scope);
        }
    }
}

impl FieldWriter<'_> {
    /// Cuts the line to its maximum length.
    pub(crate) fn truncate_line(&mut self) {
        truncate_line(self.out, self.limit);
    }

    #[cold]
    fn push_scope_name(&mut self, scope: Scope) {
        self.out.extend_from_slice(match scope {
            Scope::StreamContext => b"stream.event.context = ",
            Scope::EventContext => b"event.context = ",
            Scope::Fields => b"event.fields = ",
        });
    }
}

impl Sink for FieldWriter<'_> {
    #[inline]
    fn integer(&mut self, kind: &Integer, value: u64) {
        push_integer(self.out, kind, value);
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        if kind.is_flags() {
            push_flags(self.out, kind, value);
            return;
        }
        self.out.extend_from_slice(b"( ");
        // babeltrace2 2.1, the first version for CTF 2, puts several labels in braces.
        let in_braces = kind.is_version_2() && kind.labels_of(value).nth(1).is_some();
        if in_braces {
            self.out.extend_from_slice(b"{ ");
        }
        let mut labels = kind.labels_of(value);
        match labels.next() {
            None => self.out.extend_from_slice(b"<unknown>"),
            Some(first) => push_quoted(self.out, first.as_bytes()),
        }
        for label in labels {
            self.out.extend_from_slice(b", ");
            push_quoted(self.out, label.as_bytes());
        }
        if in_braces {
            self.out.extend_from_slice(b" }");
        }
        self.out.extend_from_slice(b" : container = ");
        push_integer(self.out, kind.integer(), value);
        self.out.extend_from_slice(b" )");
    }

    fn blob(&mut self, _: &Integer, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.out.extend_from_slice(b"{ ");
        for byte in bytes {
            let digit = |nibble: u8| DIGITS[usize::from(nibble & 15)];
            self.out.extend_from_slice(&[digit(byte >> 4), digit(*byte), b' ']);
        }
        self.out.push(b'}');
    }

    fn float(&mut self, value: f64) {
        push_general_float(self.out, value);
    }

    fn text(&mut self, bytes: &[u8]) {
        push_quoted(self.out, bytes);
    }

    #[inline]
    fn begin_struct(&mut self) {
        if !self.lead.is_empty() {
            self.out.extend_from_slice(self.lead);
            self.lead = b"";
        }
        self.out.push(b'{');
    }

    #[inline]
    fn member(&mut self, member: &Member) {
        if self.has_names {
            member.lead().push(self.out);
        } else {
            // Only the part of the lead before the name.
            let is_first = member.lead().as_bytes().first() == Some(&b' ');
            self.out.extend_from_slice(if is_first { b" " } else { b", " });
        }
    }

    #[inline]
    fn end_struct(&mut self) {
        self.out.extend_from_slice(b" }");
    }

    fn begin_array(&mut self) {
        self.out.push(b'[');
    }

    fn element(&mut self, index: u64) {
        truncate_line(self.out, self.limit);
        self.out.extend_from_slice(if index == 0 { b" " } else { b", " });
        if self.has_names {
            self.out.push(b'[');
            push_decimal(self.out, index);
            self.out.extend_from_slice(b"] = ");
        }
    }

    fn end_array(&mut self) {
        self.out.extend_from_slice(b" ]");
    }

    fn begin_variant(&mut self, _: &VariantOption) {
        self.out.extend_from_slice(b"{ ");
    }

    fn end_variant(&mut self) {
        self.out.extend_from_slice(b" }");
    }

    fn nothing(&mut self) {
        self.out.extend_from_slice(b"<none>");
    }
}

/// Appends a bit map: its value, and the labels of its set bits, if any.
fn push_flags(out: &mut Vec<u8>, kind: &Enumeration, value: u64) {
    push_integer(out, kind.integer(), value);
    let mut has_labels = false;
    // babeltrace2 sorts the labels; `ctf::read` has sorted them already.
    for label in kind.labels_of(value) {
        out.extend_from_slice(if has_labels { b", " } else { b" { " });
        push_quoted(out, label.as_bytes());
        has_labels = true;
    }
    if has_labels {
        out.extend_from_slice(b" }");
    }
}

pub(crate) fn push_integer(out: &mut Vec<u8>, kind: &Integer, value: u64) {
    // Bits of the value, rounded up to whole digits of the base.
    let low = |per_digit: u32| {
        let bits = kind.bits().div_ceil(per_digit) * per_digit;
        if bits >= 64 { value } else { value & ((1 << bits) - 1) }
    };
    match kind.base() {
        _ if kind.is_boolean() => {
            out.extend_from_slice(if value == 0 { b"false" } else { b"true" });
        }
        Base::Decimal if kind.is_signed() => push_signed(out, value as i64),
        Base::Decimal => push_decimal(out, value),
        Base::Hexadecimal => {
            out.extend_from_slice(b"0x");
            push_hexadecimal(out, low(4));
        }
        Base::Octal => {
            let value = if kind.is_signed() { low(3) } else { value };
            out.extend_from_slice(format!("0{value:o}").as_bytes());
        }
        Base::Binary => {
            out.extend_from_slice(b"0b");
            let bits = (0..kind.bits()).rev();
            out.extend(bits.map(|bit| b'0' + (value >> bit & 1) as u8));
        }
    }
}

/// Appends a string in quotes, with C's escapes for invisible and misleading characters.
pub(crate) fn push_quoted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let mut rest = bytes;
    loop {
        let (plain, from) = rest.split_at(unescaped_length(rest));
        push_short_text(out, plain);
        let Some((&byte, after)) = from.split_first() else { break };
        push_escape(out, byte);
        rest = after;
    }
    out.push(b'"');
}

/// Returns the number of bytes before the first one that must be escaped.
#[inline]
fn unescaped_length(bytes: &[u8]) -> usize {
    let (pieces, rest) = bytes.as_chunks::<16>();
    let looked_at = pieces.iter().take_while(|piece| !has_escaped(piece)).count();
    let is_rest_plain = if looked_at < pieces.len() {
        false
    } else if let Some(last) = bytes.last_chunk::<16>() {
        // Compares the last 16 bytes at once, some of them for the second time.
        !has_escaped(last)
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<8>(), rest.last_chunk::<8>()) {
        !(has_escaped(first) | has_escaped(last))
    } else {
        rest.is_empty()
    };
    if is_rest_plain {
        return bytes.len();
    }
    let from = 16 * looked_at;
    let mut rest = bytes.iter().skip(from);
    rest.position(|&byte| is_escaped(byte)).map_or(bytes.len(), |index| from + index)
}

/// Returns true if a byte of `piece` must be escaped. No early exit, so that all bytes are compared
/// at once.
#[inline]
fn has_escaped<const BYTES: usize>(piece: &[u8; BYTES]) -> bool {
    piece.iter().fold(false, |any, &byte| any | is_escaped(byte))
}

/// Returns true if the byte must be escaped. Bytes above ASCII remain: they are UTF-8, or unknown.
const fn is_escaped(byte: u8) -> bool {
    // `|` instead of `||`: without branches, many bytes are compared at once.
    (byte < 0x20)
        | (byte == b'\\')
        | (byte == b'\'')
        | (byte == b'"')
        | (byte == b'?')
        | (byte == 0x7f)
}

fn push_escape(out: &mut Vec<u8>, byte: u8) {
    let letter = match byte {
        b'\\' | b'\'' | b'"' | b'?' => byte,
        0x07 => b'a',
        0x08 => b'b',
        0x1b => b'e',
        0x0c => b'f',
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x0b => b'v',
        _ => {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::push_quoted;

    #[test]
    fn strings_are_escaped() {
        let mut out = Vec::new();
        push_quoted(&mut out, b"a\"b\\c'?\n\x1b\x01\x7f\xc3\xa9\xff");
        assert_eq!(out, b"\"a\\\"b\\\\c\\'\\?\\n\\e\\x01\\x7f\xc3\xa9\xff\"");
    }
}
