//! Symbolic forms of values: names, octal modes, devices, sets of signals.

use trackway_ctf::read::{Integer, Meaning};

use crate::fields::{push_integer, push_quoted};
use crate::number::{push_decimal, push_hexadecimal, push_signed};

/// Bits of a device number that hold its minor number.
const MINOR_BITS: u32 = 20;

/// Appends the symbolic form of `value`, which follows the number `before`. Parts without a name
/// are numbers.
pub(crate) fn push_meaning(
    out: &mut Vec<u8>,
    meaning: &Meaning,
    kind: &Integer,
    (before, value): (u64, u64),
) {
    match meaning {
        Meaning::Result { is_address, .. } => {
            let mut error = None;
            meaning.for_each_label(kind, (0, value), &mut |name| error = Some(name));
            match (error, is_address) {
                (None, true) => push_bits(out, value),
                _ => push_signed(out, value.cast_signed()),
            }
            if let Some(name) = error {
                out.extend_from_slice(b" (");
                push_name(out, true, name);
                out.push(b')');
            }
        }
        Meaning::Octal => push_octal(out, value),
        Meaning::Status(_) => {
            push_integer(out, kind, value);
            let fate = meaning.exit_description(value).unwrap_or_default();
            out.extend_from_slice(format!(" ({fate})").as_bytes());
        }
        Meaning::Signals(_) => push_signals(out, meaning, kind, value),
        Meaning::Device => {
            push_decimal(out, value >> MINOR_BITS);
            out.push(b':');
            push_decimal(out, value & ((1 << MINOR_BITS) - 1));
        }
        // Single bytes of an address; whole arrays are handled elsewhere.
        Meaning::Internet | Meaning::Hardware | Meaning::Uuid => push_integer(out, kind, value),
        Meaning::Names(_)
        | Meaning::NamesBehind(_)
        | Meaning::Folder
        | Meaning::Mode(_)
        | Meaning::Address(_) => {
            let mut is_first = true;
            let rest = meaning.for_each_label(kind, (before, value), &mut |name| {
                push_name(out, is_first, name);
                is_first = false;
            });
            match (is_first, rest) {
                (true, _) if matches!(meaning, Meaning::Address(_)) => push_bits(out, rest),
                (true, _) if matches!(meaning, Meaning::Mode(_)) => push_octal(out, rest),
                (false, _) if matches!(meaning, Meaning::Mode(_)) => {
                    out.push(b'|');
                    push_octal(out, rest);
                }
                (true, 0) => out.push(b'0'),
                (true, rest) => push_integer(out, kind, rest_of(meaning, value, rest)),
                (false, 0) => {}
                (false, rest) => {
                    out.push(b'|');
                    push_bits(out, rest);
                }
            }
        }
    }
}

/// Returns the number to show for a value without names: all its bits except those that belong to
/// another field.
fn rest_of(meaning: &Meaning, value: u64, rest: u64) -> u64 {
    // `rest` lacks the extended bits of a negative number.
    if meaning.has_hidden_bits() { rest } else { value }
}

fn push_octal(out: &mut Vec<u8>, value: u64) {
    if value == 0 {
        out.push(b'0');
    } else {
        out.extend_from_slice(format!("0{value:o}").as_bytes());
    }
}

/// Appends a set of signals in strace's form: `[INT TERM]`; for large sets the complement:
/// `~[KILL STOP]`.
fn push_signals(out: &mut Vec<u8>, meaning: &Meaning, kind: &Integer, value: u64) {
    let are_most = value.count_ones() > u64::BITS / 2;
    let shown = if are_most { !value } else { value };
    out.extend_from_slice(if are_most { b"~[" } else { b"[" });
    let mut is_first = true;
    meaning.for_each_label(kind, (0, shown), &mut |name| {
        if !std::mem::take(&mut is_first) {
            out.push(b' ');
        }
        out.extend_from_slice(name.strip_prefix("SIG").unwrap_or(name).as_bytes());
    });
    out.push(b']');
}

fn push_bits(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"0x");
    push_hexadecimal(out, value);
}

/// Appends a name, with a separator if it is not the first; in quotes if it is no plausible
/// identifier.
pub(crate) fn push_name(out: &mut Vec<u8>, is_first: bool, name: &str) {
    if !is_first {
        out.push(b'|');
    }
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'-' | b'|');
    if !name.is_empty() && name.bytes().all(is_plain) {
        out.extend_from_slice(name.as_bytes());
    } else {
        push_quoted(out, name.as_bytes());
    }
}
