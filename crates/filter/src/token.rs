//! Splits text into tokens: numbers, strings, names, symbols, each with its position.
//!
//! Literals are those of C, with additions for tracing: `1_000`, `0b101`, `64Ki`, `1.5ms`.

use crate::error::{Error, Topic};
use crate::span::Span;
use crate::text::{TEXT_BYTES_MAX, Text};

/// Maximum size of an expression, in bytes.
pub const EXPRESSION_BYTES_MAX: usize = 64 << 10;

/// A number in its written form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer: without point and exponent, or with a suffix that makes it integral.
    Integer(u64),
    /// A floating-point number.
    Float(f64),
    /// A time in nanoseconds, from a number with a time suffix.
    Time(u64),
}

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    /// A number or a character.
    Number(Number),
    /// A string.
    Text(Text),
    /// A name.
    Name(String),
    /// `$ctx.NAME`.
    Context(String),
    /// `$app.PROVIDER:TYPE`.
    Application(String),
    /// An operator, a bracket, a comma.
    Symbol(&'static str),
}

/// Symbols; longer ones before their own prefixes.
const SYMBOLS: [&str; 28] = [
    "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "..", "(", ")", "[", "]", ",", ".", "+", "-",
    "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "=",
];

/// Suffixes of numbers: the factor, and true for units of time.
const SUFFIXES: [(&str, u64, bool); 10] = [
    ("k", 1_000, false),
    ("M", 1_000_000, false),
    ("G", 1_000_000_000, false),
    ("Ki", 1 << 10, false),
    ("Mi", 1 << 20, false),
    ("Gi", 1 << 30, false),
    ("ns", 1, true),
    ("us", 1_000, true),
    ("ms", 1_000_000, true),
    ("s", 1_000_000_000, true),
];

/// Splits `text` into tokens.
///
/// # Errors
///
/// Returns an error for characters outside any token, unterminated or oversized literals, and text
/// longer than [`EXPRESSION_BYTES_MAX`].
pub fn tokenize(text: &str) -> Result<Vec<(Token, Span)>, Error> {
    if text.len() > EXPRESSION_BYTES_MAX {
        let span = Span { from: EXPRESSION_BYTES_MAX, to: EXPRESSION_BYTES_MAX };
        let message = format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes");
        return Err(Error::new(Topic::Limit, span, message));
    }
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(first) = lexer.skip_space() {
        let from = lexer.at;
        let token = lexer.token(first)?;
        tokens.push((token, Span { from, to: lexer.at }));
    }
    Ok(tokens)
}

struct Lexer<'text> {
    text: &'text str,
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error<T>(&self, from: usize, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(Topic::Syntax, Span { from, to: self.at.max(from + 1) }, message))
    }

    fn skip_space(&mut self) -> Option<u8> {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
        self.peek()
    }

    /// Takes the following bytes that `is_part` accepts.
    fn take_while(&mut self, is_part: impl Fn(u8) -> bool) -> &str {
        let from = self.at;
        while self.peek().is_some_and(&is_part) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    fn token(&mut self, first: u8) -> Result<Token, Error> {
        match first {
            b'0'..=b'9' => self.number().map(Token::Number),
            b'"' => self.string().map(Token::Text),
            b'\'' => self.character().map(Token::Number),
            b'$' => self.context(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(Token::Name(self.take_while(is_name).into())),
            _ => self.symbol(),
        }
    }

    fn symbol(&mut self) -> Result<Token, Error> {
        let rest = &self.text[self.at..];
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            self.at += symbol.len();
            return Ok(Token::Symbol(symbol));
        }
        let from = self.at;
        let found = rest.chars().next().unwrap_or_default();
        self.at += found.len_utf8();
        let error = self.error(from, format!("'{}' has no meaning here", found.escape_debug()));
        error.map_err(|error: Error| match found {
            ':' => error.with_hint(self.colon(from)),
            '?' => error.with_hint("an expression is true or false: && and || choose"),
            _ => error,
        })
    }

    /// Returns the hint for a colon at `at`, which probably belongs to `PATTERN: EXPR`.
    fn colon(&self, at: usize) -> String {
        let is_part = |c: char| c == ':' || is_pattern(&c.to_string());
        let end = self.text[at..].find(|c| !is_part(c)).map_or(self.text.len(), |more| at + more);
        // In `sched:sched_switch:prev_prio>3` the second colon, in `sched_switch:a` the only one.
        let last = self.text[..end].rfind(':').unwrap_or(at);
        let (pattern, expression) = (self.text[..last].trim(), self.text[last + 1..].trim());
        if !is_pattern(pattern) {
            let of = "a pattern is of letters, digits, '_' and '*'";
            return format!("in front of an expression stands which events it is about: {of}");
        }
        match expression {
            "" => format!("an expression is missing behind the pattern: {pattern}: EXPR"),
            // Callers that accept `PATTERN: EXPR` split it before tokenizing.
            _ if self.text[last + 1..].starts_with(char::is_whitespace) => {
                format!(
                    "here only the expression belongs, '{expression}': patterns stand elsewhere"
                )
            }
            _ => format!("a blank is missing behind the pattern: {pattern}: {expression}"),
        }
    }

    fn context(&mut self) -> Result<Token, Error> {
        let from = self.at;
        self.at += 1;
        let is_application = match self.take_while(is_name) {
            "ctx" => false,
            "app" => true,
            _ => return self.error(from, "after '$' comes 'ctx.NAME' or 'app.PROVIDER:TYPE'"),
        };
        if self.peek() != Some(b'.') {
            return self.error(from, "a context's name is missing: '$ctx.vpid'");
        }
        self.at += 1;
        let mut name = self.take_while(|byte| is_name(byte) || byte == b':').to_owned();
        if name.ends_with(':') {
            name.pop();
            self.at -= 1;
        }
        if name.is_empty() {
            return self.error(from, "a context's name is missing: '$ctx.vpid'");
        }
        if !is_application {
            return Ok(Token::Context(name));
        }
        match name.split_once(':') {
            Some((provider, of_type)) if !provider.is_empty() && !of_type.is_empty() => {
                Ok(Token::Application(name))
            }
            _ => self.error(from, "an application's context is '$app.PROVIDER:TYPE'"),
        }
    }

    fn number(&mut self) -> Result<Number, Error> {
        let from = self.at;
        let rest = &self.text[self.at..];
        let radix = match rest.as_bytes() {
            [b'0', b'x' | b'X', ..] => 16,
            [b'0', b'b' | b'B', ..] => 2,
            _ => return self.decimal(),
        };
        self.at += 2;
        let is_digit = |byte: u8| byte.is_ascii_hexdigit() && radix == 16 || byte.is_ascii_digit();
        let digits = self.digits(from, is_digit)?;
        if digits.is_empty() {
            return self.error(from, "digits are missing");
        }
        self.whole(from, &digits, radix)
    }

    /// Reads digits, and removes the `_` between them.
    fn digits(&mut self, from: usize, is_digit: impl Fn(u8) -> bool) -> Result<String, Error> {
        let digits = self.take_while(|byte| is_digit(byte) || byte == b'_').to_owned();
        if digits.starts_with('_') || digits.ends_with('_') {
            return self.error(from, "'_' stands between digits");
        }
        Ok(digits.replace('_', ""))
    }

    /// Reads the suffix of an integer with these digits.
    fn whole(&mut self, from: usize, digits: &str, radix: u32) -> Result<Number, Error> {
        if let Some(bad) = digits.chars().find(|digit| !digit.is_digit(radix)) {
            let name = if radix == 2 { "binary" } else { "octal" };
            return self.error(from, format!("'{bad}' is no digit of {name} numbers"));
        }
        let suffix = self.suffix()?;
        let value = u64::from_str_radix(digits, radix).ok();
        let (factor, is_time) = suffix.unwrap_or((1, false));
        let Some(value) = value.and_then(|value| value.checked_mul(factor)) else {
            return self.error(from, "this number is more than 64 bits hold");
        };
        Ok(if is_time { Number::Time(value) } else { Number::Integer(value) })
    }

    fn decimal(&mut self) -> Result<Number, Error> {
        let from = self.at;
        let mut digits = self.digits(from, |byte| byte.is_ascii_digit())?;
        let rest = &self.text.as_bytes()[self.at..];
        let mut is_float = false;
        let mut scale = 0_i64;
        if let [b'.', b'0'..=b'9', ..] = rest {
            self.at += 1;
            let fraction = self.digits(from, |byte| byte.is_ascii_digit())?;
            scale -= fraction.len() as i64;
            digits.push_str(&fraction);
            is_float = true;
        }
        let rest = &self.text.as_bytes()[self.at..];
        if let [b'e' | b'E', b'0'..=b'9', ..] | [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] = rest {
            let sign_bytes = usize::from(!rest[1].is_ascii_digit());
            self.at += 1 + sign_bytes;
            let exponent = self.digits(from, |byte| byte.is_ascii_digit())?;
            let exponent = exponent.parse::<i32>().unwrap_or(i32::MAX);
            scale += i64::from(if rest[1] == b'-' { -exponent } else { exponent });
            is_float = true;
        }
        if !is_float {
            let radix = if digits.len() > 1 && digits.starts_with('0') { 8 } else { 10 };
            return self.whole(from, &digits, radix);
        }
        self.scaled(from, &digits, scale)
    }

    /// Reads the suffix of `digits × 10^scale`, which may make the number integral.
    fn scaled(&mut self, from: usize, digits: &str, scale: i64) -> Result<Number, Error> {
        let value: f64 = format!("{digits}e{scale}").parse().unwrap_or(f64::INFINITY);
        let Some((factor, is_time)) = self.suffix()? else {
            if value.is_infinite() {
                return self.error(from, "this number is more than 64 bits hold");
            }
            return Ok(Number::Float(value));
        };
        match (scale_exactly(digits, scale, factor), is_time) {
            (Some(whole), true) => Ok(Number::Time(whole)),
            (Some(whole), false) => Ok(Number::Integer(whole)),
            (None, true) => self.error(from, "a time is a whole number of nanoseconds"),
            (None, false) => Ok(Number::Float(value * factor as f64)),
        }
    }

    /// Reads the suffix after a number.
    fn suffix(&mut self) -> Result<Option<(u64, bool)>, Error> {
        let from = self.at;
        let suffix = self.take_while(is_name).to_owned();
        if suffix.is_empty() {
            return Ok(None);
        }
        match SUFFIXES.into_iter().find(|(name, ..)| *name == suffix) {
            Some((_, factor, is_time)) => Ok(Some((factor, is_time))),
            None => self.error(
                from,
                format!("'{suffix}' is no unit; there are k M G, Ki Mi Gi, ns us ms s"),
            ),
        }
    }

    fn character(&mut self) -> Result<Number, Error> {
        let from = self.at;
        self.at += 1;
        let value = match self.peek() {
            Some(b'\\') => {
                self.at += 1;
                self.escape(from)?
            }
            Some(byte) if byte.is_ascii() && byte != b'\'' => {
                self.at += 1;
                byte
            }
            _ => return self.error(from, "between '' stands one ASCII character"),
        };
        if self.peek() != Some(b'\'') {
            return self.error(from, "between '' stands one ASCII character");
        }
        self.at += 1;
        Ok(Number::Integer(value.into()))
    }

    fn string(&mut self) -> Result<Text, Error> {
        let from = self.at;
        self.at += 1;
        let mut text = Text::default();
        loop {
            let Some(byte) = self.peek() else {
                self.at = from + 1;
                return self.error(from, "this string has no end");
            };
            self.at += 1;
            match byte {
                b'"' => break,
                b'*' => text.push_star(),
                b'\\' if self.peek() == Some(b'*') => {
                    self.at += 1;
                    text.push(b'*');
                }
                b'\\' => {
                    let byte = self.escape(self.at - 1)?;
                    text.push(byte);
                }
                byte => text.push(byte),
            }
        }
        if text.size_bytes() > TEXT_BYTES_MAX {
            return self.error(from, format!("a string has at most {TEXT_BYTES_MAX} bytes"));
        }
        Ok(text)
    }

    /// Reads the escaped character after a backslash at `from`.
    fn escape(&mut self, from: usize) -> Result<u8, Error> {
        let Some(byte) = self.peek() else { return self.error(from, "something is missing here") };
        if let b'0'..=b'7' = byte {
            let mut value = 0_u32;
            for _ in 0..3 {
                let Some(digit @ b'0'..=b'7') = self.peek() else { break };
                value = value * 8 + u32::from(digit - b'0');
                self.at += 1;
            }
            return match u8::try_from(value) {
                Ok(value) => Ok(value),
                Err(_) => self.error(from, "this is more than a byte holds"),
            };
        }
        self.at += self.text[self.at..].chars().next().map_or(1, char::len_utf8);
        Ok(match byte {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            b'\\' | b'"' | b'\'' | b'?' => byte,
            b'x' => {
                let digits = self.text.as_bytes().get(self.at..self.at + 2).unwrap_or_default();
                let value = std::str::from_utf8(digits).ok();
                let value = value.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
                let value = value.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let Some(value) = value else {
                    return self.error(from, "after '\\x' come two digits of base 16");
                };
                self.at += 2;
                value
            }
            _ => return self.error(from, "no such escape; a backslash itself is written '\\\\'"),
        })
    }
}

/// Returns true if `text` consists of characters of event patterns. Text with other characters is
/// part of an expression.
pub(crate) fn is_pattern(text: &str) -> bool {
    let may_be = |c: char| c.is_alphanumeric() || "_*!:.-".contains(c);
    let is_one = |one: &str| !one.is_empty() && one.chars().all(may_be);
    text.split(',').all(|one| is_one(one.trim()))
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns `digits × 10^scale × factor` if it is integral and fits.
fn scale_exactly(digits: &str, scale: i64, factor: u64) -> Option<u64> {
    /// Beyond this exponent, only zero fits, or no number is integral.
    const SCALE_MAX: u32 = 27;
    let value = digits.parse::<u128>().ok()?.checked_mul(factor.into())?;
    let power = u32::try_from(scale.unsigned_abs()).ok().filter(|&power| power <= SCALE_MAX)?;
    let power = 10_u128.pow(power);
    let value = match scale < 0 {
        true if value.is_multiple_of(power) => value / power,
        true => return None,
        false => value.checked_mul(power)?,
    };
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single_token(text: &str) -> Token {
        let found = tokenize(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].1, Span { from: 0, to: text.len() });
        found.into_iter().next().expect("a token").0
    }

    #[test]
    fn numbers_are_those_of_c_and_more() {
        use Number::{Float, Integer, Time};
        for (text, number) in [
            ("0", Integer(0)),
            ("1_000", Integer(1000)),
            ("0x_ff".replace('_', "").as_str(), Integer(255)),
            ("0xff_ff", Integer(65_535)),
            ("0b101", Integer(5)),
            ("0755", Integer(0o755)),
            ("18446744073709551615", Integer(u64::MAX)),
            ("64Ki", Integer(65_536)),
            ("1.5k", Integer(1500)),
            ("0.0005k", Float(0.5)),
            ("3us", Time(3000)),
            ("1.5ms", Time(1_500_000)),
            ("2e3ns", Time(2000)),
            ("1.25", Float(1.25)),
            ("08.5", Float(8.5)),
            ("1e3", Float(1000.0)),
            ("25E-1", Float(2.5)),
            ("'a'", Integer(97)),
            (r"'\n'", Integer(10)),
            (r"'\''", Integer(39)),
        ] {
            assert_eq!(single_token(text), Token::Number(number), "{text}");
        }
    }

    #[test]
    fn ranges_are_not_points() {
        let found = tokenize("5..9").expect("tokens");
        let found: Vec<_> = found.into_iter().map(|(token, _)| token).collect();
        let number = |value| Token::Number(Number::Integer(value));
        assert_eq!(found, [number(5), Token::Symbol(".."), number(9)]);
    }

    #[test]
    fn strings_have_c_escapes_and_stars() {
        let Token::Text(text) = single_token(r#""a\t\x41\101\\*\*""#) else { panic!("no string") };
        assert!(text.matches(b"a\tAA\\...*"));
        assert!(!text.matches(b"a\tAA\\..."));
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (text, column, part) in [
            ("1 + \"abc", 5, "no end"),
            ("a # b", 3, "'#' has no meaning"),
            ("5 + ä", 5, "'ä'"),
            ("089", 1, "'8' is no digit of octal"),
            ("0b12", 1, "'2' is no digit of binary"),
            ("18446744073709551616", 1, "64 bits"),
            ("5m", 2, "'m' is no unit"),
            ("1_", 1, "between digits"),
            ("1.5ns", 1, "whole number of nanoseconds"),
            ("'ab'", 1, "one ASCII character"),
            (r#""a\q""#, 3, "no such escape"),
            (r#""\400""#, 2, "more than a byte"),
            (r#""\x4ä""#, 2, "two digits"),
            ("$foo.a", 1, "'ctx.NAME'"),
            ("$app.a", 1, "PROVIDER:TYPE"),
            ("0x", 1, "digits are missing"),
        ] {
            let error = tokenize(text).expect_err(text);
            assert_eq!(error.column(text), column, "{text}: {error}");
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
