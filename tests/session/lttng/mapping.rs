//! Cases that LTTng can record with the same filter text. Every exception has a listed reason.

use trackway_filter::parse::{self, Binary, Node, Tree, Unary};
use trackway_filter::token::{self, Token};

use super::case::FilterCase;

/// Reasons for which LTTng-UST cannot evaluate a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnsupportedReason {
    /// LTTng has no functions: `contains(…)`, `any(…)`, `changed(…)`.
    Function,
    /// LTTng has no `in`.
    Set,
    /// LTTng has no `+`, `-`, `*`, `/`, `%` of two numbers.
    Arithmetic,
    /// LTTng has no bits by their labels: `flags & "A"`.
    Bits,
    /// LTTng only indexes by constants.
    Index,
    /// LTTng has no binary numbers, separators, sizes, times, characters.
    Literal,
    /// LTTng's strings have only the escapes `\\`, `\"` and `\*`.
    Escape,
    /// In LTTng, `true` is the name of a field.
    Truth,
    /// The case prescribes the value of a context, which LTTng determines itself.
    Context,
    /// LTTng has no structures.
    Structure,
    /// LTTng has no boolean fields, and no fields of several strings, floats or enumerations.
    Field,
}

impl UnsupportedReason {
    /// Returns true if `lttng enable-event` refuses a filter for this reason.
    pub(crate) fn is_refused(self) -> bool {
        use UnsupportedReason::{Arithmetic, Bits, Escape, Function, Index, Literal, Set};
        matches!(self, Bits | Function | Set | Arithmetic | Index | Literal | Escape)
    }
}

/// Checks that LTTng can evaluate a case; otherwise returns the reason.
pub(crate) fn check_case_supported(case: &FilterCase) -> Result<(), UnsupportedReason> {
    if case.has_contexts {
        return Err(UnsupportedReason::Context);
    }
    for field in &case.fields {
        match field.words()[..] {
            _ if field.name.contains('.') => return Err(UnsupportedReason::Structure),
            ["variant" | "bool"]
            | ["array", _, "string" | "bool" | "f32" | "f64" | "enum", ..]
            | ["sequence", "string" | "bool" | "f32" | "f64" | "enum", ..] => {
                return Err(UnsupportedReason::Field);
            }
            _ => {}
        }
    }
    let text = &case.filter;
    let parsed = parse::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
    check_expression_supported(&parsed.tree)?;
    let tokens = token::tokenize(text).expect("it was parsed");
    tokens
        .iter()
        .try_for_each(|(token, span)| check_literal_supported(token, &text[span.from..span.to]))
}

/// Checks that an expression has no construct that LTTng lacks.
fn check_expression_supported(tree: &Tree) -> Result<(), UnsupportedReason> {
    match &tree.node {
        Node::Call(..) => Err(UnsupportedReason::Function),
        Node::In(..) => Err(UnsupportedReason::Set),
        Node::Truth(_) => Err(UnsupportedReason::Truth),
        Node::Member(..) => Err(UnsupportedReason::Structure),
        Node::Index(of, index) => match index.node {
            Node::Number(_) => check_expression_supported(of),
            _ => Err(UnsupportedReason::Index),
        },
        Node::Unary(Unary::Plus | Unary::Negate | Unary::Complement | Unary::Not, of) => {
            check_expression_supported(of)
        }
        Node::Binary(operator, a, b) => {
            use Binary::{Add, Divide, Multiply, Remainder, Subtract};
            if matches!(operator, Add | Subtract | Multiply | Divide | Remainder) {
                return Err(UnsupportedReason::Arithmetic);
            }
            let is_text = |of: &Tree| matches!(of.node, Node::Text(_));
            if matches!(operator, Binary::And) && (is_text(a) || is_text(b)) {
                return Err(UnsupportedReason::Bits);
            }
            check_expression_supported(a)?;
            check_expression_supported(b)
        }
        Node::All(parts) | Node::Either(parts) => {
            parts.iter().try_for_each(check_expression_supported)
        }
        Node::Number(_)
        | Node::Text(_)
        | Node::Name(_)
        | Node::Context(_)
        | Node::Application(_) => Ok(()),
    }
}

/// Checks that a literal is written as LTTng accepts it.
fn check_literal_supported(token: &Token, text: &str) -> Result<(), UnsupportedReason> {
    match token {
        Token::Number(_) => {
            let digits = text.strip_prefix("0x");
            let is_hex = digits.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let is_plain = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+');
            (is_hex || text.bytes().all(is_plain)).then_some(()).ok_or(UnsupportedReason::Literal)
        }
        Token::Text(_) => {
            let mut bytes = text.bytes();
            while let Some(byte) = bytes.next() {
                if byte == b'\\' && !matches!(bytes.next(), Some(b'\\' | b'"' | b'*')) {
                    return Err(UnsupportedReason::Escape);
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Cases with another meaning in LTTng, and the meaning of each.
pub(crate) const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    ("bare_float", FLOAT_ALONE_DIFFERENCE),
    ("bare_nan", FLOAT_ALONE_DIFFERENCE),
    ("element_beyond_end", "an element behind a sequence's end does not make the filter false"),
    ("enum_glob", LABELS_DIFFERENCE),
    ("enum_glob_ranges", LABELS_DIFFERENCE),
    ("enum_label", LABELS_DIFFERENCE),
    ("enum_label_negative", LABELS_DIFFERENCE),
    ("enum_label_not", LABELS_DIFFERENCE),
    ("enum_literal_left", LABELS_DIFFERENCE),
    ("enum_unsigned", LABELS_DIFFERENCE),
    ("float_unsigned_wide", SIGNS_DIFFERENCE),
    ("logic_value_of_and", "what && comes to cannot be compared: no event is recorded"),
    ("precedence_bits_left", "& ^ | bind more strongly than comparisons, not as in C"),
    ("shift_modulo", "a shift by 64 or more records no event; here it is modulo 64"),
    ("shift_right_signed", "what >> shifts has no sign there"),
    ("signs_constant_minus", SIGNS_DIFFERENCE),
    ("signs_minus_one_is_not_most", SIGNS_DIFFERENCE),
    ("signs_minus_one_not_equal", SIGNS_DIFFERENCE),
];

const FLOAT_ALONE_DIFFERENCE: &str =
    "a float alone is neither true nor false: no event is recorded";
const LABELS_DIFFERENCE: &str = "an enumeration is not compared with labels: no event is recorded";
const SIGNS_DIFFERENCE: &str =
    "64 bits with and without a sign are compared as bits, not as numbers";
