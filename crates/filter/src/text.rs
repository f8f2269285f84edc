//! Strings in an expression: bytes, and stars that match anything.

/// Maximum size of a string, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;

/// A string literal: the parts between the stars. Without a star there is one part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text {
    parts: Vec<Vec<u8>>,
}

impl Default for Text {
    fn default() -> Self {
        Self { parts: vec![Vec::new()] }
    }
}

/// The shape of a pattern, to select a test that is simpler than full matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape<'text> {
    /// Exactly these bytes.
    Exact(&'text [u8]),
    /// Any string.
    Anything,
    /// Strings with this prefix: `"a*"`.
    Prefix(&'text [u8]),
    /// Strings with this suffix: `"*a"`.
    Suffix(&'text [u8]),
    /// Strings that contain these bytes: `"*a*"`.
    Infix(&'text [u8]),
    /// Any other pattern.
    Pattern,
}

impl Text {
    /// Creates a string that matches exactly these bytes.
    pub fn exact(bytes: &[u8]) -> Self {
        Self { parts: vec![bytes.to_vec()] }
    }

    pub(crate) fn push(&mut self, byte: u8) {
        if let Some(last) = self.parts.last_mut() {
            last.push(byte);
        }
    }

    /// Adds a star, which matches anything; two successive stars count as one.
    pub(crate) fn push_star(&mut self) {
        if self.parts.len() == 1 || self.parts.last().is_some_and(|last| !last.is_empty()) {
            self.parts.push(Vec::new());
        }
    }

    /// Returns the total number of bytes in the parts.
    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    /// Returns the bytes, if the string has no star.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self.shape() {
            Shape::Exact(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the shape of the pattern.
    pub fn shape(&self) -> Shape<'_> {
        match self.parts.as_slice() {
            [only] => Shape::Exact(only),
            [first, last] if first.is_empty() && last.is_empty() => Shape::Anything,
            [first, last] if last.is_empty() => Shape::Prefix(first),
            [first, last] if first.is_empty() => Shape::Suffix(last),
            [first, middle, last] if first.is_empty() && last.is_empty() => Shape::Infix(middle),
            _ => Shape::Pattern,
        }
    }

    /// Returns the pattern in the syntax of `string_matches`: `*` matches anything, `\` escapes the
    /// next character.
    pub fn to_pattern(&self) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(self.size_bytes() + self.parts.len());
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                pattern.push(b'*');
            }
            for &byte in part {
                if matches!(byte, b'*' | b'\\') {
                    pattern.push(b'\\');
                }
                pattern.push(byte);
            }
        }
        pattern
    }

    /// Returns true if a string of these bytes matches. Searches each part from the left, at its
    /// earliest position, so each byte of a part is compared at most once with each byte of
    /// `bytes`.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let [first, middle @ .., last] = self.parts.as_slice() else {
            return self.as_bytes() == Some(bytes);
        };
        let Some(mut rest) = bytes.strip_prefix(first.as_slice()) else { return false };
        for part in middle {
            let Some(at) = find_bytes(rest, part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last)
    }

    /// Returns the string in quotes, for messages.
    pub fn quoted(&self) -> String {
        let mut quoted = String::from("\"");
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                quoted.push('*');
            }
            for chunk in part.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '*' => quoted.push_str("\\*"),
                        '"' | '\\' => quoted.extend(['\\', c]),
                        c if c.is_control() => {
                            let mut bytes = [0; 4];
                            push_bytes(&mut quoted, c.encode_utf8(&mut bytes).as_bytes());
                        }
                        c => quoted.push(c),
                    }
                }
                push_bytes(&mut quoted, chunk.invalid());
            }
        }
        quoted.push('"');
        quoted
    }
}

fn push_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\{byte:03o}"));
    }
}

/// Returns the first position of `part` in `bytes`.
pub(crate) fn find_bytes(bytes: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(literal: &str) -> Text {
        let mut text = Text::default();
        let mut bytes = literal.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' => text.push_star(),
                b'\\' => text.push(bytes.next().expect("a byte")),
                byte => text.push(byte),
            }
        }
        text
    }

    #[test]
    fn stars_match_anything() {
        for (pattern, yes, no) in [
            ("a*", "abc", "bac"),
            ("*c", "abc", "acb"),
            ("*b*", "abc", "ac"),
            ("a*a", "aba", "a"),
            ("a*b*c", "a-b-b-c", "a-c-b"),
            ("**", "", "-"),
            (r"a\*", "a*", "ab"),
            ("", "", "a"),
        ] {
            assert!(parse_text(pattern).matches(yes.as_bytes()), "{pattern} {yes}");
            let is_all = parse_text(pattern).shape() == Shape::Anything;
            assert_eq!(parse_text(pattern).matches(no.as_bytes()), is_all, "{pattern} {no}");
        }
    }

    #[test]
    fn shapes_are_the_least_that_will_do() {
        assert_eq!(parse_text("a**").shape(), Shape::Prefix(b"a"));
        assert_eq!(parse_text("*a").shape(), Shape::Suffix(b"a"));
        assert_eq!(parse_text("*a*").shape(), Shape::Infix(b"a"));
        assert_eq!(parse_text("a*b").shape(), Shape::Pattern);
        assert_eq!(parse_text(r"\*").shape(), Shape::Exact(b"*"));
        assert_eq!(parse_text("***").shape(), Shape::Anything);
    }

    #[test]
    fn patterns_and_quotes_keep_what_is_meant() {
        assert_eq!(parse_text(r"a\*b*\\").to_pattern(), br"a\*b*\\");
        assert_eq!(parse_text("a\"\\**\n\x01").quoted(), r#""a\"\**\012\001""#);
        assert_eq!(Text::exact(b"\xff\xc3\xa4").quoted(), "\"\\377ä\"");
    }
}
