//! The members of an event class, under the names that filters use.

use trackway_ctf::read::{EventClass, Meaning, StreamClass, Struct, Type};
use trackway_filter::layout::{Float, Integer, Layout, Member, Type as Kind};
use trackway_schema::{Label, Scalar};

/// Maximum depth at which structures are described: metadata may nest types at will.
const DEPTH_MAX: usize = 16;
/// Maximum number of named values of a field; each field has its own copy of the names.
const NAMES_MAX: usize = 1024;

/// Returns the layout of an event class: its payload fields, and the contexts of the event class
/// and of its stream.
pub(super) fn layout_of_class(stream: &StreamClass, event: &EventClass) -> Layout {
    let of_stream = match stream.event_context() {
        Some(Type::Struct(context)) => Some(context),
        _ => None,
    };
    let members = |of: Option<&Struct>| of.map_or_else(Vec::new, |of| struct_members(of, 0));
    let mut contexts = members(event.context());
    let own = |name: &str, contexts: &[Member]| contexts.iter().any(|member| member.name == name);
    for member in members(of_stream) {
        if !own(&member.name, &contexts) {
            contexts.push(member);
        }
    }
    Layout {
        event: event.name().unwrap_or_default().to_owned(),
        fields: members(event.fields()),
        contexts,
        applications: Vec::new(),
    }
}

fn struct_members(of: &Struct, depth: usize) -> Vec<Member> {
    let member = |member: &trackway_ctf::read::Member| Member {
        name: member.key().to_owned(),
        of: layout_type(member.kind(), depth),
    };
    of.members().iter().map(member).collect()
}

fn layout_type(of: &Type, depth: usize) -> Kind {
    match of {
        _ if depth >= DEPTH_MAX => Kind::Other("a structure that is too deep"),
        Type::Integer(integer) => {
            let named = integer.meaning().map(Meaning::names).unwrap_or_default();
            let label = |(name, value): (&str, i64)| Label {
                name: name.to_owned(),
                first: value,
                last: value,
            };
            let named = named.into_iter().take(NAMES_MAX).map(label);
            Kind::Integer(layout_integer(integer, named.collect()))
        }
        Type::Enumeration(labels) if labels.is_flags() => {
            Kind::Integer(layout_integer(labels.integer(), Vec::new()))
        }
        Type::Enumeration(labels) => {
            let named = labels.ranges().map(|(name, first, last)| Label {
                name: name.to_owned(),
                first: first.cast_signed(),
                last: last.cast_signed(),
            });
            Kind::Integer(layout_integer(labels.integer(), named.collect()))
        }
        // Values are read as f64; this width is the one of array elements.
        Type::Float(float) if float.bits() == 32 => Kind::Float(Float::F32),
        Type::Float(_) => Kind::Float(Float::F64),
        Type::Text | Type::WideText(_) => Kind::String,
        Type::Array(array) if array.is_text() => Kind::String,
        Type::Sequence(sequence) if sequence.is_text() => Kind::String,
        Type::Array(array) => {
            Kind::Array(Box::new(layout_type(array.element(), depth + 1)), array.length())
        }
        Type::Sequence(sequence) => {
            Kind::Sequence(Box::new(layout_type(sequence.element(), depth + 1)))
        }
        Type::Struct(structure) => Kind::Structure(struct_members(structure, depth + 1)),
        Type::Variant(_) => Kind::Other("a variant"),
    }
}

fn layout_integer(of: &trackway_ctf::read::Integer, labels: Vec<Label>) -> Integer {
    Integer { is_signed: of.is_signed(), bits: of.bits(), scalar: scalar_of_integer(of), labels }
}

/// Returns the scalar type of an integer, if a traced program's records have one of this width.
fn scalar_of_integer(of: &trackway_ctf::read::Integer) -> Option<Scalar> {
    Some(match (of.is_signed(), of.bits()) {
        (true, 8) => Scalar::I8,
        (true, 16) => Scalar::I16,
        (true, 32) => Scalar::I32,
        (true, 64) => Scalar::I64,
        (false, 8) if of.is_boolean() => Scalar::Bool,
        (false, 8) => Scalar::U8,
        (false, 16) => Scalar::U16,
        (false, 32) => Scalar::U32,
        (false, 64) => Scalar::U64,
        _ => return None,
    })
}
