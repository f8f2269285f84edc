//! Generates a C header for filters in C on given events: a struct for each event's frame, and the
//! members' names in events (`include/trackway/filter.h` describes the use of both).
//!
//! Event and field names are arbitrary; each becomes a unique C identifier.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use trackway_jit::{Kind, SLOTS_MAX};
use trackway_schema::Label;

use crate::elf;
use crate::layout::{Float, Integer, Layout, Member, Type};
use crate::types::{MemberPath, Root, Step};

/// Words that are reserved in C or C++, or that compilers define as macros.
const RESERVED_WORDS: &str = " alignas alignof and asm auto bool break case catch char class \
    compl const constexpr continue decltype default delete do double else enum explicit export \
    extern false float for friend goto i386 if inline int linux long mutable namespace new \
    noexcept not nullptr operator or private protected public register restrict return short \
    signed sizeof static struct switch template this throw true try typedef typeid typename \
    typeof union unix unsigned using virtual void volatile wchar_t while xor ";

/// Generates the header for these events. Layouts of the same name are variants of one event.
pub fn generate_header(layouts: &[Layout]) -> String {
    let mut text = String::from(
        "/*\n * Frames of events for filters in C, by `trackway filter header`.\n */\n\
         #pragma once\n\n#include <trackway/filter.h>\n",
    );
    let (mut types, mut macros) = (BTreeSet::new(), BTreeSet::new());
    for (index, layout) in layouts.iter().enumerate() {
        if !layouts[..index].contains(layout) {
            let name = unique_name(&mut types, c_identifier(&layout.event));
            push_event(&mut text, layout, &name, &mut macros);
        }
    }
    text
}

/// Returns a C identifier that was not used before.
fn unique_name(used: &mut BTreeSet<String>, name: String) -> String {
    let mut number = 1;
    let mut tried = name.clone();
    // The loop ends: there are fewer used names than numbers.
    while !used.insert(tried.clone()) {
        number += 1;
        tried = format!("{name}_{number}");
    }
    tried
}

/// Replaces the characters of a name that C does not allow.
fn c_identifier(name: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut identifier: String = name.chars().map(part).collect();
    if identifier.is_empty() || identifier.starts_with(|c: char| c.is_ascii_digit()) {
        identifier.insert(0, '_');
    }
    if RESERVED_WORDS.split(' ').any(|word| word == identifier) {
        identifier.push('_');
    }
    identifier
}

/// Escapes text for a comment.
fn escape_comment(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect::<String>().replace("*/", "* /").replace("/*", "/ *")
}

/// Escapes text for a string literal. Question marks may form trigraphs.
fn escape_literal(text: &str) -> String {
    let mut literal = String::new();
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | b'?' => literal.extend(['\\', char::from(byte)]),
            b' '..=b'~' => literal.push(char::from(byte)),
            _ => literal.push_str(&format!("\\{byte:03o}")),
        }
    }
    literal
}

/// A member of an event that has a slot.
struct Slot<'l> {
    place: MemberPath,
    /// Name of the member in the struct.
    name: String,
    kind: Kind,
    /// Labels of an enumeration.
    labels: &'l [Label],
    /// Type of a sequence's elements, and the elements' labels.
    element: Option<(&'static str, &'l [Label])>,
}

/// The slots of an event.
#[derive(Default)]
struct Slots<'l> {
    all: Vec<Slot<'l>>,
    /// Members without a slot, each with the reason.
    without: Vec<String>,
    names: BTreeSet<String>,
}

impl<'l> Slots<'l> {
    fn of(layout: &'l Layout) -> Self {
        let mut slots = Self::default();
        let roots = [
            (Root::Field, "", &layout.fields),
            (Root::Context, "ctx_", &layout.contexts),
            (Root::Application, "app_", &layout.applications),
        ];
        for (root, prefix, members) in roots {
            for (number, Member { name, of }) in members.iter().enumerate() {
                if is_length_of_next(name, members.get(number + 1)) {
                    continue;
                }
                let place = MemberPath { root, name: name.clone(), steps: Vec::new() };
                slots.add(place, format!("{prefix}{name}"), of);
            }
        }
        slots
    }

    fn add(&mut self, place: MemberPath, name: String, of: &'l Type) {
        let (kind, labels, element): (_, &[Label], _) = match of {
            Type::Integer(integer) => (kind_of(integer), &integer.labels, None),
            Type::Float(_) => (Kind::Float, &[], None),
            Type::String => (Kind::String, &[], None),
            Type::Structure(members) => {
                for member in members {
                    let mut place = place.clone();
                    place.steps.push(Step::Member(member.name.clone()));
                    self.add(place, format!("{name}_{}", member.name), &member.of);
                }
                return;
            }
            Type::Array(of, _) | Type::Sequence(of) => match element_type_name(of) {
                Some(element) => (Kind::Sequence, &[], Some(element)),
                None => return self.refuse(&place, "has elements that helpers cannot read"),
            },
            Type::Other(what) => return self.refuse(&place, &format!("is {what}")),
        };
        if !elf::is_path(&place) {
            return self.refuse(&place, "has a name that is no path");
        }
        if self.all.len() == SLOTS_MAX {
            return self.refuse(&place, &format!("is one more than {SLOTS_MAX}"));
        }
        let name = unique_name(&mut self.names, c_identifier(&name));
        self.all.push(Slot { place, name, kind, labels, element });
    }

    fn refuse(&mut self, place: &MemberPath, why: &str) {
        self.without.push(format!("{place} {why}"));
    }
}

/// Returns true if a member holds the length of the next member. Traces contain such members,
/// programs do not; a filter reads the length of the next member instead.
fn is_length_of_next(name: &str, next: Option<&Member>) -> bool {
    next.is_some_and(|next| {
        matches!(next.of, Type::String | Type::Sequence(_))
            && name == format!("_{}_length", next.name)
    })
}

const fn kind_of(integer: &Integer) -> Kind {
    if integer.is_signed { Kind::Signed } else { Kind::Unsigned }
}

/// Returns the name of the element type for helpers.
fn element_type_name(of: &Type) -> Option<(&'static str, &[Label])> {
    let none: &[Label] = &[];
    Some(match of {
        Type::Integer(integer) => {
            let name = match (integer.scalar, integer.is_signed, integer.bits) {
                (Some(trackway_schema::Scalar::Bool), ..) => "BOOL",
                (_, true, 8) => "I8",
                (_, true, 16) => "I16",
                (_, true, 32) => "I32",
                (_, true, 64) => "I64",
                (_, false, 8) => "U8",
                (_, false, 16) => "U16",
                (_, false, 32) => "U32",
                (_, false, 64) => "U64",
                _ => return None,
            };
            (name, &integer.labels)
        }
        Type::Float(Float::F32) => ("F32", none),
        Type::Float(Float::F64) => ("F64", none),
        _ => return None,
    })
}

/// Appends the struct of an event, its needs, and constants for its labels.
fn push_event(text: &mut String, layout: &Layout, name: &str, macros: &mut BTreeSet<String>) {
    let slots = Slots::of(layout);
    let _ = writeln!(text, "\n/* {} */\nstruct {name} {{", escape_comment(&layout.event));
    for slot in &slots.all {
        let of = slot.kind.name();
        let path = slot.place.to_string();
        let element = slot.element.map(|(element, _)| format!(", of {}", element.to_lowercase()));
        let about = match (path == slot.name, element) {
            (true, None) => String::new(),
            (is_same, element) => {
                let path =
                    if is_same { String::new() } else { format!(" {}", escape_comment(&path)) };
                let about = format!("{path}{}", element.unwrap_or_default());
                format!(" /*{} */", about.replacen(", of", " of", usize::from(is_same)))
            }
        };
        let _ = writeln!(text, "    trackway_{of} {};{about}", slot.name);
    }
    if slots.all.is_empty() {
        // C has no struct without members.
        text.push_str("    trackway_unsigned nothing;\n");
    }
    text.push_str("};\n");
    for without in &slots.without {
        let _ = writeln!(text, "/* Not in it: {}. */", escape_comment(without));
    }
    let _ = write!(text, "#define TRACKWAY_NEEDS_{name}");
    for slot in &slots.all {
        let path = escape_literal(&slot.place.to_string());
        let _ = write!(text, " \\\n    \"{} {path}\\n\"", slot.kind.name());
    }
    text.push_str(if slots.all.is_empty() { " \"\"\n" } else { "\n" });
    for slot in &slots.all {
        let prefix = format!("{name}_{}", slot.name).to_ascii_uppercase();
        let mut labels = slot.labels;
        let mut is_signed = slot.kind == Kind::Signed;
        if let Some((element, of_elements)) = slot.element {
            let name = unique_name(macros, format!("{prefix}_ELEMENT"));
            let _ = writeln!(text, "#define {name} TRACKWAY_ELEMENT_{element}");
            (labels, is_signed) = (of_elements, element.starts_with('I'));
        }
        for label in labels {
            push_label(text, &prefix, label, is_signed, macros);
        }
    }
}

/// Appends the constants of a label: its value, or both ends of its range.
fn push_label(
    text: &mut String,
    prefix: &str,
    label: &Label,
    is_signed: bool,
    macros: &mut BTreeSet<String>,
) {
    // After the prefix, any character of an identifier is allowed.
    let part = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name = format!("{prefix}_{}", label.name.chars().map(part).collect::<String>());
    let number = |value: i64| match (is_signed, value) {
        (false, _) => format!("{}ULL", value.cast_unsigned()),
        // The literal would overflow its type before the minus applies.
        (true, i64::MIN) => format!("({}LL - 1)", i64::MIN + 1),
        (true, 0..) => format!("{value}LL"),
        (true, _) => format!("({value}LL)"),
    };
    let mut define = |name: String, value| {
        let name = unique_name(macros, name);
        let _ = writeln!(text, "#define {name} {}", number(value));
    };
    if label.first == label.last {
        define(name, label.first);
    } else {
        define(format!("{name}_FIRST"), label.first);
        define(format!("{name}_LAST"), label.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_c_and_used_once() {
        let mut used = BTreeSet::new();
        let mut name = |name: &str| unique_name(&mut used, c_identifier(name));
        assert_eq!(name("myapp:request"), "myapp_request");
        assert_eq!(name("myapp_request"), "myapp_request_2");
        assert_eq!(name("int"), "int_");
        assert_eq!(name("0x"), "_0x");
        assert_eq!(name("é-ü"), "___");
        assert_eq!(name(""), "_");
    }

    #[test]
    fn text_stays_within_comments_and_literals() {
        assert_eq!(escape_comment("a */ b /* c\n"), "a * / b / * c ");
        assert_eq!(escape_literal("a\"b\\c??/\né"), "a\\\"b\\\\c\\?\\?/\\012\\303\\251");
    }
}
