//! Parses C in format files: tokens and constant expressions.
//!
//! Texts come from the kernel but are not trusted: nesting and lengths are bounded, numbers wrap
//! around like unsigned numbers in C, and an unknown construct has no value.

/// Most tokens of one text. (In Linux 6.18, the longest text has under 2000 tokens.)
const TOKENS_MAX: usize = 1 << 16;
/// Deepest nesting of an expression.
const DEPTH_MAX: u32 = 64;

/// A token of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'text> {
    /// A name or keyword.
    Word(&'text str),
    /// An integer.
    Number(u64),
    /// A quoted text with its escapes.
    Quoted(&'text str),
    /// An operator, a bracket, or a comma.
    Sign(&'text str),
}

/// Splits a text into tokens; `None`: the text is not C.
pub(crate) fn tokenize(text: &str) -> Option<Vec<Token<'_>>> {
    let mut all = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(first) = rest.bytes().next() {
        if all.len() == TOKENS_MAX {
            return None;
        }
        let (token, length) = match first {
            b'"' => read_quoted(rest)?,
            b'0'..=b'9' => read_number(rest)?,
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                let length = rest.bytes().take_while(|&byte| is_word(byte)).count();
                (Token::Word(&rest[..length]), length)
            }
            b'\'' => read_character(rest)?,
            _ => {
                const LONG: [&str; 9] = ["->", "<<", ">>", "&&", "||", "==", "!=", "<=", ">="];
                let sign = LONG.into_iter().find(|sign| rest.starts_with(sign));
                let length = sign.map_or(1, str::len);
                (Token::Sign(rest.get(..length)?), length)
            }
        };
        all.push(token);
        rest = rest[length..].trim_ascii_start();
    }
    Some(all)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn read_quoted(text: &str) -> Option<(Token<'_>, usize)> {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !is_escaped => return Some((Token::Quoted(&text[1..at]), at + 1)),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// Reads a character literal, ASCII without escapes.
fn read_character(text: &str) -> Option<(Token<'_>, usize)> {
    match text.as_bytes() {
        [_, c @ 0x20..=0x7e, b'\'', ..] => Some((Token::Number(u64::from(*c)), 3)),
        _ => None,
    }
}

fn read_number(text: &str) -> Option<(Token<'_>, usize)> {
    let length = text.bytes().take_while(|&byte| is_word(byte)).count();
    let digits = text[..length].trim_end_matches(['u', 'U', 'l', 'L']);
    let value = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => u64::from_str_radix(&digits[2..], 16),
        [b'0', _, ..] => u64::from_str_radix(&digits[1..], 8),
        _ => digits.parse(),
    };
    Some((Token::Number(value.ok()?), length))
}

/// A function that returns the values of names in expressions.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// Evaluates a constant expression to 64 bits; `None`: it is not constant, or has unknown names.
pub(crate) fn evaluate(tokens: &[Token<'_>], lookup: Lookup<'_>) -> Option<u64> {
    let mut parser = Parser { tokens, lookup, depth: 0 };
    let value = parser.binary(0)?;
    parser.tokens.is_empty().then_some(value)
}

struct Parser<'a, 'text> {
    tokens: &'a [Token<'text>],
    lookup: Lookup<'a>,
    depth: u32,
}

impl Parser<'_, '_> {
    fn eat(&mut self, sign: &str) -> bool {
        let is_next = self.tokens.first() == Some(&Token::Sign(sign));
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }

    /// Evaluates operators whose precedence is at least `least`.
    fn binary(&mut self, least: u8) -> Option<u64> {
        let mut left = self.unary()?;
        while let Some(&Token::Sign(sign)) = self.tokens.first() {
            let Some(strength) = operator_precedence(sign).filter(|&strength| strength >= least)
            else {
                break;
            };
            self.tokens = &self.tokens[1..];
            let right = self.deeper(|parser| parser.binary(strength + 1))?;
            left = apply_operator(sign, left, right)?;
        }
        Some(left)
    }

    fn deeper(&mut self, inner: impl FnOnce(&mut Self) -> Option<u64>) -> Option<u64> {
        self.depth += 1;
        let value = if self.depth > DEPTH_MAX { None } else { inner(self) };
        self.depth -= 1;
        value
    }

    fn unary(&mut self) -> Option<u64> {
        let (&first, rest) = self.tokens.split_first()?;
        match first {
            Token::Number(number) => {
                self.tokens = rest;
                Some(number)
            }
            Token::Word("sizeof") => {
                let (bytes, rest) = parse_type_size(rest)?;
                self.tokens = rest;
                Some(bytes)
            }
            Token::Word(word) => {
                self.tokens = rest;
                (self.lookup)(word)
            }
            Token::Quoted(_) => None,
            Token::Sign(sign @ ("-" | "+" | "~" | "!")) => {
                self.tokens = rest;
                let value = self.deeper(Self::unary)?;
                Some(match sign {
                    "-" => value.wrapping_neg(),
                    "~" => !value,
                    "!" => u64::from(value == 0),
                    _ => value,
                })
            }
            Token::Sign("(") => {
                if let Some(length) = cast_length(self.tokens) {
                    let bytes = cast_bytes(&self.tokens[..length]);
                    self.tokens = &self.tokens[length..];
                    let value = self.deeper(Self::unary)?;
                    return Some(truncate_to_bytes(value, bytes));
                }
                self.tokens = rest;
                let value = self.deeper(|parser| parser.binary(0))?;
                self.eat(")").then_some(value)
            }
            Token::Sign(_) => None,
        }
    }
}

/// Returns the precedence of an operator.
fn operator_precedence(sign: &str) -> Option<u8> {
    Some(match sign {
        "|" => 1,
        "^" => 2,
        "&" => 3,
        "<<" | ">>" => 4,
        "+" | "-" => 5,
        "*" | "/" | "%" => 6,
        _ => return None,
    })
}

fn apply_operator(sign: &str, left: u64, right: u64) -> Option<u64> {
    let shift = || u32::try_from(right).ok().filter(|&bits| bits < 64);
    Some(match sign {
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "<<" => left << shift()?,
        ">>" => left >> shift()?,
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        _ => return None,
    })
}

/// Returns the number of tokens of a cast at the beginning, if there is one: words and asterisks in
/// brackets before a value. `(NAME) - 1` is a cast only if NAME is certainly a type.
pub(crate) fn cast_length(tokens: &[Token<'_>]) -> Option<usize> {
    let end = tokens.iter().position(|token| *token == Token::Sign(")"))?;
    let inside = tokens.get(1..end)?;
    let is_type = !inside.is_empty()
        && inside.iter().all(|token| matches!(token, Token::Word(_) | Token::Sign("*")))
        && matches!(inside[0], Token::Word(word) if word != "sizeof" && word != "REC");
    let is_sure = inside.len() > 1
        || matches!(inside, [Token::Word(word)]
            if word.ends_with("_t") || super::ctype::scalar_of_type(word).is_some());
    let is_followed = match tokens.get(end + 1)? {
        Token::Word(_) | Token::Number(_) | Token::Sign("(") => true,
        Token::Sign("-" | "~" | "!" | "+") => is_sure,
        _ => false,
    };
    (is_type && is_followed).then_some(end + 1)
}

/// Returns the size of a cast's type in bytes; 8 if the type is unknown.
fn cast_bytes(cast: &[Token<'_>]) -> usize {
    let words: Vec<&str> = cast
        .iter()
        .filter_map(|token| if let Token::Word(word) = token { Some(*word) } else { None })
        .filter(|word| *word != "__force")
        .collect();
    let is_pointer = cast.contains(&Token::Sign("*"));
    let scalar = if is_pointer { None } else { super::ctype::scalar_of_type(&words.join(" ")) };
    scalar.map_or(8, |scalar| scalar.size_bytes())
}

fn truncate_to_bytes(value: u64, bytes: usize) -> u64 {
    match bytes {
        1 => value & 0xff,
        2 => value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}

/// Returns the size of a type in brackets, and the tokens after the brackets.
fn parse_type_size<'a, 'text>(tokens: &'a [Token<'text>]) -> Option<(u64, &'a [Token<'text>])> {
    let end = tokens.iter().position(|token| *token == Token::Sign(")"))?;
    let is_open = tokens.first() == Some(&Token::Sign("("));
    let inside = tokens.get(1..end).filter(|_| is_open)?;
    let known = inside.iter().all(|token| matches!(token, Token::Word(_)));
    known.then(|| (cast_bytes(&tokens[..=end]) as u64, &tokens[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate_text(text: &str) -> Option<u64> {
        let lookup = |name: &str| (name == "SEVEN").then_some(7);
        evaluate(&tokenize(text)?, &lookup)
    }

    #[test]
    fn constant_expressions_have_the_value_that_c_gives_them() {
        for (text, expected) in [
            ("0x10", 16),
            ("010", 8),
            ("1ULL << 40", 1 << 40),
            ("(1u << 31)", 1 << 31),
            ("2 + 3 * 4 - 1", 13),
            ("1 | 6 & 3 ^ 1 << 2", 1 | (6 & 3) ^ (1 << 2)),
            ("-1", u64::MAX),
            ("-9ULL", 9_u64.wrapping_neg()),
            ("~0", u64::MAX),
            ("(unsigned int)-1", 0xffff_ffff),
            ("(__force u16) ~0", 0xffff),
            ("( gfp_t)((((1UL))) << (10))", 1 << 10),
            ("(SEVEN) - 1", 6),
            ("(((SEVEN)))", 7),
            ("sizeof(u64) * 8", 64),
            ("20 / 6 % 2", 1),
            ("'a'", 97),
            ("!0", 1),
        ] {
            assert_eq!(evaluate_text(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn non_constants_have_no_value() {
        let deep = format!("{}1{}", "(".repeat(100), ")".repeat(100));
        let long = "-".repeat(1_000) + "1";
        for text in
            ["", "SIX", "1 +", "(1", "1 / 0", "1 << 64", "1 2", "\"a\"", "REC->a", &deep, &long]
        {
            assert_eq!(evaluate_text(text), None, "{text}");
        }
        assert!(
            tokenize("\"open").is_none() && tokenize("'ab'").is_none() && tokenize("0xg").is_none()
        );
        assert!(tokenize("é").is_none());
    }
}
