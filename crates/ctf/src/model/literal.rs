//! Constant text that is appended often.

/// Number of bytes that are copied at once.
const PIECE: usize = 32;

/// Text that is the same in many lines, such as a field's name. Most texts are so short that a call
/// into the C library costs more than the copy. So `Literal` pads the text to pieces of a constant
/// size, copies them inline, and cuts off the padding.
#[derive(Debug, Clone, Default)]
pub struct Literal {
    pieces: Vec<[u8; PIECE]>,
    length: usize,
}

impl Literal {
    /// Creates the literal of `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let mut literal = Self::default();
        literal.set(&[bytes]);
        literal
    }

    /// Sets the text to the concatenation of `parts`.
    pub fn set(&mut self, parts: &[&[u8]]) {
        let parts = parts.iter().copied().flatten();
        self.length = 0;
        self.pieces.clear();
        for (index, &byte) in parts.enumerate() {
            if index.is_multiple_of(PIECE) {
                self.pieces.push([0; PIECE]);
            }
            if let Some(piece) = self.pieces.last_mut() {
                piece[index % PIECE] = byte;
            }
            self.length = index + 1;
        }
    }

    /// Returns the length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the text is empty.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.pieces.as_flattened().get(..self.length).unwrap_or_default()
    }

    /// Appends the text to `out`.
    #[inline]
    pub fn push(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.length;
        for piece in &self.pieces {
            out.extend_from_slice(piece);
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_lengths_are_appended_whole() {
        let text: Vec<u8> = (0..200).collect();
        for length in 0..text.len() {
            let literal = Literal::new(&text[..length]);
            let mut out = b"before".to_vec();
            literal.push(&mut out);
            assert_eq!(out, [b"before", &text[..length]].concat(), "{length}");
            assert_eq!((literal.as_bytes(), literal.len()), (&text[..length], length));
        }
    }
}
