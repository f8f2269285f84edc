//! Tokens of TSDL (CTF 1.8, §C.1): words, numbers, strings and symbols, each with its place.

use crate::read::error::{MetadataError, MetadataProblem};

/// One token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A keyword or an identifier.
    Word(String),
    /// An integer or a character.
    Number(u64),
    /// A string with its escapes resolved.
    Text(String),
    /// Punctuation.
    Symbol(&'static str),
    /// The end of the text.
    End,
}

impl Token {
    /// Returns the token as error messages show it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Word(word) => format!("'{word}'"),
            Self::Number(number) => format!("number {number}"),
            Self::Text(_) => "a string".to_owned(),
            Self::Symbol(symbol) => format!("'{symbol}'"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longest symbols first, so that `...` is not read as three dots.
const SYMBOLS: [&str; 19] = [
    "...", ":=", "->", "[", "]", "(", ")", "{", "}", "*", "+", "-", "<", ">", ":", ";", ".", "=",
    ",",
];

/// Reads text, token by token.
#[derive(Clone)]
pub(crate) struct Lexer<'text> {
    text: &'text [u8],
    at: usize,
    line: u32,
    line_start: usize,
}

impl<'text> Lexer<'text> {
    pub(crate) fn new(text: &'text [u8]) -> Self {
        Self { text, at: 0, line: 1, line_start: 0 }
    }

    /// Returns line and column of the next character.
    pub(crate) fn place(&self) -> (u32, u32) {
        let column = u32::try_from(self.at - self.line_start).unwrap_or(u32::MAX);
        (self.line, column.saturating_add(1))
    }

    /// Creates an error at the next character.
    pub(crate) fn error(&self, problem: MetadataProblem) -> MetadataError {
        let (line, column) = self.place();
        MetadataError { line, column, problem }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn step(&mut self) -> Option<u8> {
        let byte = self.peek(0)?;
        self.at += 1;
        if byte == b'\n' {
            self.line = self.line.saturating_add(1);
            self.line_start = self.at;
        }
        Some(byte)
    }

    /// Skips blanks and comments.
    pub(crate) fn skip_blanks(&mut self) -> Result<(), MetadataError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t' | b'\r' | b'\n'), _) => {
                    self.step();
                }
                // A backslash at the end of a line continues the line.
                (Some(b'\\'), Some(b'\n')) => {
                    self.step();
                    self.step();
                }
                (Some(b'/'), Some(b'/')) => while self.step().is_some_and(|byte| byte != b'\n') {},
                (Some(b'/'), Some(b'*')) => {
                    let open = self.error(MetadataProblem::Unexpected {
                        found: "an open comment".to_owned(),
                        expected: "'*/'",
                    });
                    self.step();
                    self.step();
                    while (self.peek(0), self.peek(1)) != (Some(b'*'), Some(b'/')) {
                        self.step().ok_or_else(|| open.clone())?;
                    }
                    self.step();
                    self.step();
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads the token at the current place; the caller has skipped the blanks before it.
    pub(crate) fn token(&mut self) -> Result<Token, MetadataError> {
        let Some(first) = self.peek(0) else { return Ok(Token::End) };
        // The prefix `L`, which marks wide strings and characters in C, has no effect.
        if first == b'L' && matches!(self.peek(1), Some(b'"' | b'\'')) {
            self.step();
            return self.token();
        }
        match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(Token::Word(self.word())),
            b'0'..=b'9' => self.number(),
            b'"' => self
                .quoted(b'"')
                .map(|bytes| Token::Text(String::from_utf8_lossy(&bytes).into_owned())),
            b'\'' => {
                let place = self.error(MetadataProblem::Value("character"));
                match self.quoted(b'\'')?[..] {
                    [byte] => Ok(Token::Number(u64::from(byte))),
                    _ => Err(place),
                }
            }
            _ => self.symbol(),
        }
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(byte) = self.peek(0).filter(|&b| b.is_ascii_alphanumeric() || b == b'_') {
            word.push(char::from(byte));
            self.at += 1;
        }
        word
    }

    fn number(&mut self) -> Result<Token, MetadataError> {
        let place = self.error(MetadataProblem::Value("number"));
        let word = self.word();
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        let (digits, radix) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (digits.get(2..).unwrap_or_default(), 16),
            [b'0', _, ..] => (digits, 8),
            _ => (digits, 10),
        };
        u64::from_str_radix(digits, radix).map(Token::Number).map_err(|_| place)
    }

    fn symbol(&mut self) -> Result<Token, MetadataError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        for symbol in SYMBOLS {
            if rest.starts_with(symbol.as_bytes()) {
                self.at += symbol.len();
                return Ok(Token::Symbol(symbol));
            }
        }
        let found = rest.first().map_or(String::new(), |byte| format!("byte {byte:#04x}"));
        Err(self.error(MetadataProblem::Unexpected { found, expected: "a token" }))
    }

    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, MetadataError> {
        let open = self.error(MetadataProblem::Unexpected {
            found: "an open quote".to_owned(),
            expected: "its end",
        });
        self.step();
        let mut bytes = Vec::new();
        loop {
            match self.step().ok_or_else(|| open.clone())? {
                byte if byte == quote => return Ok(bytes),
                b'\\' => {
                    let place = self.error(MetadataProblem::Value("escape"));
                    bytes.push(self.escape().ok_or(place)?);
                }
                byte => bytes.push(byte),
            }
        }
    }

    /// Returns the character of a C escape sequence, after its backslash.
    fn escape(&mut self) -> Option<u8> {
        Some(match self.step()? {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            byte @ (b'\\' | b'\'' | b'"' | b'?') => byte,
            byte @ b'0'..=b'7' => self.digits(u32::from(byte - b'0'), 8, 2),
            b'x' => self.digits(0, 16, 2),
            _ => return None,
        })
    }

    fn digits(&mut self, mut value: u32, radix: u32, most: usize) -> u8 {
        for _ in 0..most {
            let digit = self.peek(0).and_then(|byte| char::from(byte).to_digit(radix));
            let Some(digit) = digit else { break };
            value = value * radix + digit;
            self.at += 1;
        }
        // Like in C, bits above the lowest eight are cut off.
        value as u8
    }
}
