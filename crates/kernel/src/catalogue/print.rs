//! Meanings of fields from the kernel's print format: names of values (`__print_symbolic`,
//! `__print_flags`) and conversions (`%x`, `%pS`, `%pI4`).
//!
//! The text is C: a format string with arguments, after macro expansion. This module uses only
//! expressions of one field (in brackets, cast, or masked), not computed values.

use std::borrow::Cow;
use std::sync::Arc;

use super::expression::{Token, cast_length, evaluate, tokenize};
use super::format::NameLookup;
use super::model::{Field, FieldShape, Meaning, Symbol, Symbols};

/// Most tables of names in one text.
const TABLES_MAX: usize = 64;
/// Most names in one table.
const SYMBOLS_MAX: usize = 1024;
/// Longest name of a value, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Most brackets and casts around a field.
const WRAPS_MAX: usize = 16;

/// Adds the meanings in the print format `text` to `fields`.
pub(crate) fn apply_print_format(text: &str, fields: &mut [Field], names: &dyn NameLookup) {
    let Some(all) = tokenize(text) else { return };
    let mut arguments = split_at_sign(&all, ",");
    let Some(format) = arguments.next() else { return };
    let pieces = format.iter().filter_map(|token| match token {
        Token::Quoted(piece) => Some(*piece),
        _ => None,
    });
    let format: String = pieces.collect();
    for (conversion, argument) in argument_conversions(&format).zip(arguments) {
        let Some(name) = conversion.and_then(|_| field_of(argument)) else { continue };
        let Some(field) = fields.iter_mut().find(|field| field.name == name) else { continue };
        apply_conversion(field, conversion.unwrap_or_default());
    }
    let mut tables: Vec<(usize, Symbols)> = Vec::new();
    for call in print_calls(&all).take(TABLES_MAX) {
        if let Some((index, mut symbols)) = symbol_table(&call, fields, names) {
            add_zero_name(&mut symbols, &call, &all, &fields[index].name, names);
            tables.push((index, symbols));
        }
    }
    for (index, symbols) in &tables {
        // A field with several name tables for different purposes gets no names.
        let is_sole = tables.iter().all(|(other, of)| other != index || of == symbols);
        if is_sole {
            fields[*index].meaning = Meaning::Symbols(Arc::new(symbols.clone()));
        }
    }
    for field in fields {
        mark_bitmask(field, &all);
    }
}

/// Marks a field as a set of bits if its print function is one for sets; its declaration has only
/// words.
fn mark_bitmask(field: &mut Field, all: &[Token<'_>]) {
    let FieldShape::Dynamic(_, location) = field.kind else { return };
    let is_bits = all.windows(3).any(|window| {
        matches!(window, [Token::Word("__get_bitmask" | "__get_cpumask"), _, Token::Word(name)]
            if *name == field.name)
    });
    if is_bits {
        field.kind = FieldShape::Bitmask(location);
    }
}

/// Splits tokens at each `sign` outside brackets.
fn split_at_sign<'a, 'text>(
    tokens: &'a [Token<'text>],
    sign: &'static str,
) -> impl Iterator<Item = &'a [Token<'text>]> {
    let mut depth = 0_usize;
    tokens.split(move |token| {
        match token {
            Token::Sign("(" | "{" | "[") => depth += 1,
            Token::Sign(")" | "}" | "]") => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && *token == Token::Sign(sign)
    })
}

/// Returns the conversion of each argument of a format string; `None` for an argument that is a
/// width (`*`).
fn argument_conversions(format: &str) -> impl Iterator<Item = Option<&str>> {
    let mut rest = format;
    let mut open: Option<usize> = None;
    std::iter::from_fn(move || {
        loop {
            let Some(at) = open else {
                let percent = rest.find('%')?;
                rest = &rest[percent + 1..];
                if let Some(behind) = rest.strip_prefix('%') {
                    rest = behind;
                } else {
                    open = Some(0);
                }
                continue;
            };
            let byte = *rest.as_bytes().get(at)?;
            match byte {
                b'*' => {
                    open = Some(at + 1);
                    return Some(None);
                }
                b'-'
                | b'+'
                | b' '
                | b'#'
                | b'.'
                | b'0'..=b'9'
                | b'l'
                | b'h'
                | b'z'
                | b't'
                | b'j'
                | b'L'
                | b'q' => open = Some(at + 1),
                _ if byte.is_ascii() => {
                    let tail = &rest[at..];
                    let is_pointer = byte == b'p';
                    let more = tail.bytes().skip(1).take_while(u8::is_ascii_alphanumeric);
                    let length = 1 + if is_pointer { more.count() } else { 0 };
                    rest = &tail[length..];
                    open = None;
                    return Some(Some(&tail[..length]));
                }
                _ => return None,
            }
        }
    })
}

fn apply_conversion(field: &mut Field, conversion: &str) {
    let is_integer = matches!(field.kind, FieldShape::Integer(_));
    let is_address = field.meaning == Meaning::Address;
    let meaning = match conversion.as_bytes() {
        [b'x' | b'X'] if field.meaning == Meaning::Plain => Meaning::Hexadecimal,
        [b'o'] if is_integer && field.meaning == Meaning::Plain => Meaning::Octal,
        [b's'] if is_address => Meaning::KernelText,
        [b'p', b'S' | b's' | b'F' | b'f' | b'B', ..] if is_integer => Meaning::Code,
        [b'p', b'U', ..] if field.size == 16 => Meaning::Uuid,
        [b'p', b'M' | b'm', ..] if field.size == 6 => Meaning::Mac,
        [b'p', b'I' | b'i', ..] if matches!(field.size, 4 | 16 | 28) && !is_integer => {
            Meaning::Internet
        }
        [b'p'] | [b'p', b'K' | b'x'] if is_integer => Meaning::Address,
        _ => return,
    };
    field.meaning = meaning;
}

/// Returns the field that an expression consists of, without brackets and casts.
fn field_of<'text>(tokens: &[Token<'text>]) -> Option<&'text str> {
    match strip_wrapping(tokens) {
        [Token::Word("REC"), Token::Sign("->"), Token::Word(name)] => Some(name),
        _ => None,
    }
}

/// Removes brackets and casts around an expression.
fn strip_wrapping<'a, 'text>(mut tokens: &'a [Token<'text>]) -> &'a [Token<'text>] {
    for _ in 0..WRAPS_MAX {
        let Some((Token::Sign("(" | "&"), rest)) = tokens.split_first() else { break };
        tokens = match (tokens[0], cast_length(tokens)) {
            (Token::Sign("&"), _) => rest,
            (_, Some(length)) => &tokens[length..],
            _ if closing_bracket(tokens) == Some(tokens.len() - 1) => &rest[..rest.len() - 1],
            _ => break,
        };
    }
    tokens
}

/// Returns the position of the bracket that closes the first one.
fn closing_bracket(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        match token {
            Token::Sign("(" | "{" | "[") => depth += 1,
            Token::Sign(")" | "}" | "]") => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    })
}

/// A call of a print function that has value names.
struct PrintCall<'a, 'text> {
    /// True for `__print_flags`.
    is_flags: bool,
    /// The tokens in the brackets of the call.
    inside: &'a [Token<'text>],
    /// The text that is printed for zero.
    none: Option<&'text str>,
}

fn print_calls<'a, 'text>(all: &'a [Token<'text>]) -> impl Iterator<Item = PrintCall<'a, 'text>> {
    all.iter().enumerate().filter_map(|(at, token)| {
        let is_flags = match token {
            Token::Word("__print_flags" | "__print_flags_u64") => true,
            Token::Word("__print_symbolic" | "__print_symbolic_u64") => false,
            _ => return None,
        };
        let call = &all[at + 1..];
        let is_open = call.first() == Some(&Token::Sign("("));
        let end = closing_bracket(call).filter(|_| is_open)?;
        let none = match call.get(end + 1..end + 3) {
            Some([Token::Sign(":"), Token::Quoted(name)]) => Some(*name),
            _ => None,
        };
        Some(PrintCall { is_flags, inside: &call[1..end], none })
    })
}

/// Returns the index of the field in the call, and the names of its values.
fn symbol_table(
    call: &PrintCall<'_, '_>,
    fields: &[Field],
    names: &dyn NameLookup,
) -> Option<(usize, Symbols)> {
    let is_flags = call.is_flags;
    let mut parts = split_at_sign(call.inside, ",");
    let lookup = |name: &str| names.enumerator(name);
    let BitField { name, mask, shift } = parse_bits(parts.next()?, &lookup)?;
    let index = fields.iter().position(|field| field.name == name)?;
    let FieldShape::Integer(scalar) = fields[index].kind else { return None };
    let all_bits = mask & super::ctype::value_mask(scalar);
    if is_flags {
        // Skips the delimiter between names.
        parts.next();
    }
    let symbols = parts.take(SYMBOLS_MAX).filter_map(|entry| {
        let (first, rest) = entry.split_first()?;
        let (last, inside) = rest.split_last()?;
        let is_entry = (first, last) == (&Token::Sign("{"), &Token::Sign("}"));
        let mut parts = split_at_sign(inside, ",").filter(|_| is_entry);
        let value = evaluate(parts.next()?, &lookup)?;
        let Some([Token::Quoted(name)]) = parts.next() else { return None };
        let name = name.get(..NAME_BYTES_MAX).unwrap_or(name);
        Some(Symbol { value: value << shift & all_bits, name: Cow::Owned(name.to_owned()) })
    });
    let symbols: Vec<Symbol> = symbols.collect();
    let symbols = match is_flags {
        _ if symbols.is_empty() => return None,
        true => Symbols { flags: symbols, hidden: !mask, ..Symbols::default() },
        false => Symbols { choice_mask: all_bits, choices: symbols, ..Symbols::default() },
    };
    Some((index, symbols))
}

/// Adds the name of zero, and an optional suffix: `R` and `R+` in `state ? __print_flags(state, …)
/// : "R", state & 0x100 ? "+" : ""`.
fn add_zero_name(
    symbols: &mut Symbols,
    call: &PrintCall<'_, '_>,
    all: &[Token<'_>],
    field: &str,
    names: &dyn NameLookup,
) {
    let Some(none) = call.none.filter(|none| call.is_flags && none.len() <= NAME_BYTES_MAX) else {
        return;
    };
    let lookup = |name: &str| names.enumerator(name);
    let behind = split_at_sign(all, ",").filter_map(|argument| {
        let mut parts = split_at_sign(argument, "?");
        let of = parse_bits(parts.next()?, &lookup)?;
        let (Some(choice), None) = (parts.next(), parts.next()) else { return None };
        let [Token::Quoted(suffix), Token::Sign(":"), Token::Quoted("")] = choice else {
            return None;
        };
        let is_flag = of.name == field && of.shift == 0 && of.mask.is_power_of_two();
        is_flag.then(|| (of.mask, format!("{none}{suffix}")))
    });
    let mut add = |value: u64, name: String| {
        if symbols.flags.iter().all(|symbol| symbol.value != value) {
            symbols.hidden &= !value;
            symbols.flags.push(Symbol { value, name: Cow::Owned(name) });
        }
    };
    // The kernel uses no other form than one suffix.
    behind.take(1).for_each(|(value, name)| add(value, name));
    add(0, none.to_owned());
}

/// The bits of a field that a print format selects.
struct BitField<'text> {
    name: &'text str,
    /// The mask of the bits in the field.
    mask: u64,
    /// The number of bits by which the value is shifted right.
    shift: u32,
}

/// Parses `field`, `field & mask`, `field >> shift` or `field >> shift & mask`, with brackets.
fn parse_bits<'text>(
    tokens: &[Token<'text>],
    lookup: &dyn Fn(&str) -> Option<u64>,
) -> Option<BitField<'text>> {
    let mut parts = split_at_sign(strip_wrapping(tokens), "&");
    let (left, right) = (strip_wrapping(parts.next()?), parts.next());
    let mask = right.map_or(Some(u64::MAX), |right| evaluate(right, lookup))?;
    let is_whole = parts.next().is_none();
    let mut parts = split_at_sign(left, ">>");
    let (of, by) = (parts.next()?, parts.next());
    let shift = by.map_or(Some(0), |by| evaluate(by, lookup))?;
    let shift = u32::try_from(shift).ok().filter(|&shift| shift < 64)?;
    let is_whole = is_whole && parts.next().is_none();
    let name = field_of(of).filter(|_| is_whole)?;
    Some(BitField { name, mask: mask << shift, shift })
}
