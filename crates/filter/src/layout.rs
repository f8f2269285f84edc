//! The members of an event: typed fields and contexts. Filters are checked against a layout.
//!
//! The types also describe the content of traces. So they include types that traced programs do not
//! record (structures, 12-bit integers).

use trackway_schema::context::{Context, ContextType, TABLE};
use trackway_schema::{EventDescription, FieldKind, Label, Scalar};

use crate::member_path::{MemberPath, Root, Step};

/// The fields, contexts and application contexts of an event that a filter can name.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layout {
    /// Name of the event in messages: `provider:name`.
    pub event: String,
    /// Fields of the event's payload.
    pub fields: Vec<Member>,
    /// Contexts, named without `$ctx.`.
    pub contexts: Vec<Member>,
    /// Application contexts, named `provider:type`, without `$app.`.
    pub applications: Vec<Member>,
}

/// A named and typed member of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Type of the member.
    pub of: Type,
}

/// Type of a member.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// An integer, a boolean or an enumeration.
    Integer(Integer),
    /// A floating-point number of 32 or 64 bits.
    Float(Float),
    /// A string of bytes, with or without a terminator.
    String,
    /// A structure with named members.
    Structure(Vec<Member>),
    /// An array with a fixed number of elements.
    Array(Box<Type>, u64),
    /// A sequence with any number of elements.
    Sequence(Box<Type>),
    /// A type that no filter can read, with its description for messages: `a variant`.
    Other(&'static str),
}

/// An integer.
#[derive(Debug, Clone, PartialEq)]
pub struct Integer {
    /// True if the integer is signed.
    pub is_signed: bool,
    /// Width in bits, 1 to 64.
    pub bits: u32,
    /// Scalar type in a record of a traced program, if there is one.
    pub scalar: Option<Scalar>,
    /// Labels of an enumeration; empty for other integers.
    pub labels: Vec<Label>,
}

/// Width of a floating-point number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Float {
    F32,
    F64,
}

impl Integer {
    /// Returns true for unsigned 64-bit integers: arithmetic on them is unsigned, too.
    pub fn is_wide(&self) -> bool {
        !self.is_signed && self.bits == 64
    }
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::F32 => Self::Float(Float::F32),
            Scalar::F64 => Self::Float(Float::F64),
            _ => Self::Integer(Integer {
                is_signed: scalar.is_signed(),
                bits: 8 * scalar.size_bytes() as u32,
                scalar: Some(scalar),
                labels: Vec::new(),
            }),
        }
    }
}

impl From<&FieldKind> for Type {
    fn from(kind: &FieldKind) -> Self {
        match kind {
            FieldKind::Scalar(scalar) => (*scalar).into(),
            FieldKind::Str | FieldKind::Text => Self::String,
            FieldKind::Array(scalar, length) => {
                Self::Array(Box::new((*scalar).into()), (*length).into())
            }
            FieldKind::Sequence(scalar) => Self::Sequence(Box::new((*scalar).into())),
            FieldKind::Strings => Self::Sequence(Box::new(Self::String)),
            FieldKind::Enumeration(scalar, labels) => match (*scalar).into() {
                Self::Integer(integer) => {
                    Self::Integer(Integer { labels: labels.clone(), ..integer })
                }
                other => other,
            },
        }
    }
}

impl Layout {
    /// Returns the members of a traced program's event, with the contexts that such programs have.
    pub fn of_event(description: &EventDescription) -> Self {
        let field = |field: &trackway_schema::Field| Member {
            name: field.name.clone(),
            of: (&field.kind).into(),
        };
        Self {
            event: format!("{}:{}", description.provider, description.name),
            fields: description.fields.iter().map(field).collect(),
            contexts: Self::program_contexts(),
            applications: Vec::new(),
        }
    }

    /// Returns the type of the member at a path, if the member exists.
    pub fn find(&self, place: &MemberPath) -> Option<&Type> {
        let members = match place.root {
            Root::Field => &self.fields,
            Root::Context => &self.contexts,
            Root::Application => &self.applications,
        };
        let named = |members: &'_ [Member], name: &str| {
            members.iter().position(|member| member.name == name)
        };
        let mut of = &members.get(named(members, &place.name)?)?.of;
        for step in &place.steps {
            of = match (step, of) {
                (Step::Member(name), Type::Structure(members)) => {
                    &members.get(named(members, name)?)?.of
                }
                (Step::Element(index), Type::Array(element, count)) if index < count => element,
                (Step::Element(_), Type::Sequence(element)) => element,
                _ => return None,
            };
        }
        Some(of)
    }

    /// Returns the contexts of every traced program.
    pub fn program_contexts() -> Vec<Member> {
        let member = |context: Context| Member {
            name: context.name.into(),
            of: match context.of {
                ContextType::Scalar(scalar) => scalar.into(),
                ContextType::Text(_) => Type::String,
            },
        };
        TABLE.map(member).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_layouts() {
        let field = |name: &str, kind| trackway_schema::Field { name: name.into(), kind };
        let label = Label { name: "OK".into(), first: 0, last: 0 };
        let description = EventDescription {
            provider: "app".into(),
            name: "read".into(),
            level: 0,
            fields: vec![
                field("size", FieldKind::Scalar(Scalar::X64)),
                field("name", FieldKind::Text),
                field("xs", FieldKind::Array(Scalar::F32, 3)),
                field("status", FieldKind::Enumeration(Scalar::I8, vec![label.clone()])),
            ],
        };
        let layout = Layout::of_event(&description);
        assert_eq!(layout.event, "app:read");
        let Type::Integer(size) = &layout.fields[0].of else { panic!("no integer") };
        assert!(size.is_wide());
        assert_eq!(layout.fields[1].of, Type::String);
        assert_eq!(layout.fields[2].of, Type::Array(Box::new(Type::Float(Float::F32)), 3));
        let Type::Integer(status) = &layout.fields[3].of else { panic!("no integer") };
        assert_eq!((status.is_signed, status.bits, &status.labels), (true, 8, &vec![label]));
    }
}
