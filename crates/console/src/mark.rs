//! Marks: the beginning and the end of a style within a text.
//!
//! ```text
//! ESC  16 hexadecimal digits  letter of the style, or '.' for its end
//! ```
//!
//! The digits are a random number that this process has drawn. A trace, a file name or another
//! process's name cannot contain the number, so a text may combine marks with parts of any origin.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::OnceLock;

/// Size of a mark in bytes.
pub(crate) const MARK_BYTES: usize = 1 + DIGITS + 1;
/// Number of digits of the random number.
const DIGITS: usize = 16;
/// Letter of the mark that ends a style.
const END_LETTER: u8 = b'.';

/// The style of a part of a text. Terminals show it in the colours of ECMA-48.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The name of an event, a process or a session.
    Name,
    /// A failure.
    Error,
    /// Lost events, and other damage.
    Loss,
    /// Advice.
    Hint,
    /// A state without problems.
    Good,
    /// The heading of a group.
    Heading,
}

/// The beginning of a style, or the end of the current style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StyleChange {
    Begin(Style),
    End,
}

/// The result of looking for a mark at the beginning of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MarkMatch {
    /// A complete mark and its length in bytes.
    Complete(StyleChange, usize),
    /// The text ends before it is certain that it begins with a mark.
    Part,
    None,
}

impl Style {
    const ALL: [Self; 6] =
        [Self::Name, Self::Error, Self::Loss, Self::Hint, Self::Good, Self::Heading];

    const fn letter(self) -> u8 {
        match self {
            Self::Name => b'n',
            Self::Error => b'e',
            Self::Loss => b'l',
            Self::Hint => b'h',
            Self::Good => b'g',
            Self::Heading => b't',
        }
    }
}

impl StyleChange {
    /// Returns the terminal's control sequence (ECMA-48, select graphic rendition).
    pub(crate) const fn sequence(self) -> &'static str {
        match self {
            Self::Begin(Style::Name) => "\x1b[1m",
            Self::Begin(Style::Error) => "\x1b[31m",
            Self::Begin(Style::Loss) => "\x1b[33m",
            Self::Begin(Style::Hint) => "\x1b[36m",
            Self::Begin(Style::Good) => "\x1b[32m",
            Self::Begin(Style::Heading) => "\x1b[1;4m",
            Self::End => "\x1b[0m",
        }
    }

    fn of_letter(letter: u8) -> Option<Self> {
        let style = Style::ALL.into_iter().find(|style| style.letter() == letter);
        style.map(Self::Begin).or((letter == END_LETTER).then_some(Self::End))
    }
}

/// Returns the common beginning of all marks of this process.
fn mark_prefix() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        // The standard library draws a hasher's keys from the system's random numbers.
        format!("\x1b{:0DIGITS$x}", RandomState::new().build_hasher().finish())
    })
}

/// Returns the marks at the beginning and the end of a style.
pub(crate) fn style_marks(style: Style) -> (String, String) {
    let mark = |letter: u8| format!("{}{}", mark_prefix(), char::from(letter));
    (mark(style.letter()), mark(END_LETTER))
}

/// Returns `text` between the marks of `style`.
pub(crate) fn wrap_in_marks(style: Style, text: &str) -> String {
    let (begin, end) = style_marks(style);
    format!("{begin}{text}{end}")
}

/// Reads a mark at the beginning of `bytes`.
pub(crate) fn read_mark(bytes: &[u8]) -> MarkMatch {
    let prefix = mark_prefix().as_bytes();
    if !bytes.starts_with(prefix) {
        return if prefix.starts_with(bytes) { MarkMatch::Part } else { MarkMatch::None };
    }
    match bytes.get(prefix.len()) {
        None => MarkMatch::Part,
        Some(&letter) => StyleChange::of_letter(letter)
            .map_or(MarkMatch::None, |change| MarkMatch::Complete(change, MARK_BYTES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_were_written() {
        for style in Style::ALL {
            let (begin, end) = style_marks(style);
            assert_eq!(begin.len(), MARK_BYTES);
            assert_eq!(
                read_mark(begin.as_bytes()),
                MarkMatch::Complete(StyleChange::Begin(style), MARK_BYTES)
            );
            assert_eq!(
                read_mark(end.as_bytes()),
                MarkMatch::Complete(StyleChange::End, MARK_BYTES)
            );
            assert_eq!(read_mark(&begin.as_bytes()[..MARK_BYTES - 1]), MarkMatch::Part);
        }
        assert_eq!(read_mark(b"\x1b0123456789abcdefn"), MarkMatch::None);
        assert_eq!(read_mark(b"\x1b[31m"), MarkMatch::None);
    }
}
