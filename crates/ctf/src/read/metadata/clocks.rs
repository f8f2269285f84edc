//! Resolution of the clocks that fields set, by clock name.

use std::sync::Arc;

use crate::model::types::{Enumeration, Type};
use crate::read::error::MetadataProblem;
use crate::read::trace::ClockClass;

/// Finds the clock that the integers in `kind` set; returns an error if they set several.
pub(super) fn one_clock<'kind>(
    kind: &'kind Type,
    name: &mut Option<&'kind Arc<str>>,
) -> Result<(), MetadataProblem> {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            match (&integer.clock, &name) {
                (Some(clock), Some(before)) if clock != *before => {
                    return Err(MetadataProblem::SecondClock(clock.to_string()));
                }
                (Some(clock), None) => *name = Some(clock),
                _ => {}
            }
            Ok(())
        }
        Type::Struct(structure) => {
            structure.members.iter().try_for_each(|member| one_clock(&member.kind, name))
        }
        Type::Variant(variant) => {
            variant.options.iter().try_for_each(|option| one_clock(&option.kind, name))
        }
        Type::Array(array) => one_clock(&array.element, name),
        Type::Sequence(sequence) => one_clock(&sequence.element, name),
        Type::Float(_) | Type::Text | Type::WideText(_) => Ok(()),
    }
}

/// Makes the members and options named `name` set the only clock; returns an error if there are
/// several clocks.
pub(super) fn map_time(
    kind: &mut Type,
    name: &str,
    clocks: &mut Vec<ClockClass>,
) -> Result<(), MetadataProblem> {
    match kind {
        Type::Struct(structure) => structure.members.iter_mut().try_for_each(|member| {
            if member.name() == name {
                set_clock(&mut member.kind, clocks)?;
            }
            map_time(&mut member.kind, name, clocks)
        }),
        Type::Variant(variant) => variant.options.iter_mut().try_for_each(|option| {
            if option.name() == name {
                set_clock(&mut option.kind, clocks)?;
            }
            map_time(&mut option.kind, name, clocks)
        }),
        _ => Ok(()),
    }
}

fn set_clock(kind: &mut Type, clocks: &mut Vec<ClockClass>) -> Result<(), MetadataProblem> {
    let Some(integer) = kind.integer_mut().filter(|integer| integer.clock.is_none()) else {
        return Ok(());
    };
    if clocks.is_empty() {
        let (id, name) = ("default".to_owned(), "default".to_owned());
        clocks.push(ClockClass { id, name, ..ClockClass::new() });
    }
    match &clocks[..] {
        [only] => integer.clock = Some(Arc::from(only.id.as_str())),
        _ => return Err(MetadataProblem::Unsupported("time that sets none of several clocks")),
    }
    Ok(())
}
