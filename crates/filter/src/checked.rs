//! Checks objects from outside, such as a file or a session's socket: whether the programs that run
//! filters accept them, and whether they can apply to the known events.

use trackway_jit::Kind;
use trackway_jit::object::{Alternative, Object};
use trackway_jit::verify::{Rules, State, verify};

use crate::error::Topic;
use crate::layout::{Layout, Type};
use crate::parse::parse;
use crate::types::{MemberPath, check_part, describe_layout_type};

/// An object that was decoded, and whose programs were verified.
#[derive(Debug, Clone)]
pub struct CheckedObject {
    /// The needs of each alternative.
    alternatives: Vec<Vec<(MemberPath, Kind)>>,
}

/// A need of an object that no event has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingField {
    /// Message that names the need, and an event without it.
    pub message: String,
    /// Advice for the user.
    pub hint: String,
    /// True if the need is probably a mistake: the event has a member with a similar name, or with
    /// the same name and another kind.
    pub is_near: bool,
}

impl CheckedObject {
    /// Decodes an object and verifies its programs.
    ///
    /// # Errors
    ///
    /// Returns why the bytes are no object, or the rejected instruction and the reason.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let object = Object::decode(bytes).map_err(|error| error.to_string())?;
        let count = object.alternatives().count();
        let needs = object.alternatives().enumerate().map(|(number, alternative)| {
            verify_programs(alternative).map_err(|why| match count {
                1 => why,
                _ => format!("filter {number} of {count}, {why}"),
            })?;
            needs_of(alternative)
        });
        Ok(Self { alternatives: needs.collect::<Result<_, _>>()? })
    }

    /// Checks that the object can apply to at least one of these events. `layouts` must not be
    /// empty.
    ///
    /// # Errors
    ///
    /// Returns a need that the events lack, preferably one with a likely correction.
    pub fn check_for(&self, layouts: &[Layout]) -> Result<(), MissingField> {
        let mut worst: Option<MissingField> = None;
        for layout in layouts {
            for needs in &self.alternatives {
                match needs
                    .iter()
                    .find_map(|(place, kind)| find_missing_field(place, *kind, layout))
                {
                    None => return Ok(()),
                    Some(lack) => {
                        if worst.as_ref().is_none_or(|worst| lack.is_near && !worst.is_near) {
                            worst = Some(lack);
                        }
                    }
                }
            }
        }
        worst.map_or(Ok(()), Err)
    }
}

fn verify_programs(alternative: Alternative<'_>) -> Result<(), String> {
    for (number, program) in (0..).zip(alternative.programs()) {
        let rules = Rules { number, ..Rules::new(alternative.needs_count()) };
        let mut states = vec![State::FREE; program.len() + 1];
        verify(program, rules, &mut states)
            .map_err(|rejection| format!("program {number}, {rejection}"))?;
    }
    Ok(())
}

fn needs_of(alternative: Alternative<'_>) -> Result<Vec<(MemberPath, Kind)>, String> {
    let need = |need: trackway_jit::object::Need<'_>| {
        let place = MemberPath::parse(need.path);
        Ok((place.ok_or_else(|| format!("{:?} is no path", need.path))?, need.kind))
    };
    alternative.needs().map(need).collect()
}

/// Returns the kind of slot that a member of this type can fill.
fn kind_of(of: &Type) -> Option<Kind> {
    match of {
        Type::Integer(integer) if integer.is_signed => Some(Kind::Signed),
        Type::Integer(_) => Some(Kind::Unsigned),
        Type::Float(_) => Some(Kind::Float),
        Type::String => Some(Kind::String),
        Type::Array(of, _) | Type::Sequence(of) => match &**of {
            Type::Integer(integer) => integer.scalar.map(|_| Kind::Sequence),
            Type::Float(_) => Some(Kind::Sequence),
            _ => None,
        },
        Type::Structure(_) | Type::Other(_) => None,
    }
}

/// Returns the error if the event lacks this need.
fn find_missing_field(place: &MemberPath, kind: Kind, layout: &Layout) -> Option<MissingField> {
    let event = &layout.event;
    let hint = format!("trackway filter header {event} says what it has");
    let Some(of) = layout.find(place) else {
        let (message, is_near) = unknown_member_message(place, layout);
        return Some(MissingField { message, hint, is_near });
    };
    let is = kind_of(of);
    if is == Some(kind) {
        return None;
    }
    let has = match is {
        Some(Kind::Signed) => "a number with a sign",
        Some(Kind::Unsigned) => "a number without a sign",
        _ => describe_layout_type(of),
    };
    let wanted = match kind {
        Kind::Signed => "a number with a sign",
        Kind::Unsigned => "a number without a sign",
        Kind::Float => "a floating-point number",
        Kind::String => "a string",
        Kind::Sequence => "a sequence",
    };
    let message = format!("the filter reads '{place}' as {wanted}; in {event} it is {has}");
    Some(MissingField { message, hint, is_near: true })
}

/// Returns the message for a missing member, worded as for expressions, and true if the event has a
/// member with a similar name.
fn unknown_member_message(place: &MemberPath, layout: &Layout) -> (String, bool) {
    let path = place.to_string();
    let error = parse(&path).and_then(|parsed| check_part(&parsed.tree, layout)).err();
    match error.filter(|error| error.topic == Topic::Unknown) {
        Some(error) => {
            let is_near = error.suggestion.is_some();
            (error.message, is_near)
        }
        None => (format!("'{path}' is not in {}", layout.event), false),
    }
}

#[cfg(test)]
mod tests {
    use trackway_schema::Scalar;

    use super::*;
    use crate::compile::compile;
    use crate::layout::Member;

    fn layout_with(fields: &[(&str, Type)]) -> Layout {
        let member = |(name, of): &(&str, Type)| Member { name: (*name).into(), of: of.clone() };
        let fields = fields.iter().map(member).collect();
        let contexts = Layout::program_contexts();
        Layout { event: "web:request".into(), fields, contexts, ..Layout::default() }
    }

    fn compile_object(text: &str, fields: &[(&str, Type)]) -> Vec<u8> {
        let compiled = compile(text, &layout_with(fields)).expect("a filter");
        compiled.into_object().encode().expect("an object")
    }

    #[test]
    fn what_events_lack_is_said_with_what_was_perhaps_meant() {
        let (u32, text) = (Type::from(Scalar::U32), Type::String);
        let bytes = compile_object("status > 5 && $ctx.vpid > 0", &[("status", u32.clone())]);
        let checked = CheckedObject::new(&bytes).expect("an object");
        let good = layout_with(&[("path", text.clone()), ("status", u32.clone())]);
        let near = layout_with(&[("statis", u32)]);
        let far = layout_with(&[("path", text.clone())]);
        let other = layout_with(&[("status", text)]);
        let signed = layout_with(&[("status", Scalar::I16.into())]);
        assert_eq!(checked.check_for(&[far.clone(), good]), Ok(()));
        let said = |layouts: &[Layout]| {
            let lack = checked.check_for(layouts).expect_err("something is missing");
            (lack.message, lack.is_near)
        };
        let unknown = "unknown field 'status' of web:request";
        assert_eq!(said(std::slice::from_ref(&far)), (unknown.into(), false));
        let meant = format!("{unknown}; did you mean 'statis'?");
        assert_eq!(said(&[far, near]), (meant, true));
        let reads = "the filter reads 'status' as a number without a sign; in web:request it is";
        assert_eq!(said(&[other]), (format!("{reads} a string"), true));
        assert_eq!(said(&[signed]), (format!("{reads} a number with a sign"), true));
    }

    #[test]
    fn what_would_not_be_run_is_refused() {
        let mut bytes = compile_object("size > 5", &[("size", Scalar::U32.into())]);
        assert!(CheckedObject::new(&bytes).is_ok());
        assert!(CheckedObject::new(&bytes[..20]).expect_err("cut off").contains("at byte"));
        // Overwrites the last instruction, exit, with an invalid one.
        let last = bytes.len() - 8;
        bytes[last] = 0xff;
        let why = CheckedObject::new(&bytes).expect_err("no instruction");
        assert!(why.starts_with("program 0, instruction "), "{why}");
    }
}
