//! The last step of parsing, after all slots are known: hidden fields, texts before values, places.

use std::collections::HashMap;

use crate::model::Literal;
use crate::model::runs::{element_layout, find_runs, fixed_bits};
use crate::model::types::{Enumeration, Member, Role, Type};

/// Marks each member whose name without the underscore equals another member's name, with or
/// without its underscore.
fn mark_ambiguous_members(members: &mut [Member]) {
    let mut bearers: HashMap<&str, u32> = HashMap::new();
    for member in &*members {
        let names = [member.name(), &member.raw_name];
        let count = if names[0] == names[1] { 1 } else { 2 };
        for name in names.into_iter().take(count) {
            *bearers.entry(name).or_default() += 1;
        }
    }
    let ambiguous: Vec<bool> =
        members.iter().map(|member| bearers.get(member.name()).is_some_and(|&n| n > 1)).collect();
    for (member, is_ambiguous) in members.iter_mut().zip(ambiguous) {
        member.is_ambiguous = is_ambiguous;
    }
}

/// Computes properties that depend on all slots: hidden fields, texts before values, and places.
pub(super) fn finish_type(kind: &mut Type, is_version_2: bool) {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            // `plain` is false for a packet's end time too, although it does not set the clock.
            let clocked = integer.clock.is_some() && !integer.signed;
            integer.plain = !clocked && integer.role == Role::None && integer.slot.is_none();
        }
        Type::Struct(structure) => {
            let mut shown = 0;
            for member in &mut structure.members {
                finish_type(&mut member.kind, is_version_2);
                member.hidden = member.kind.is_hidden();
                let lead = if shown == 0 { ' ' } else { ',' };
                let space = if shown == 0 { "" } else { " " };
                let text = format!("{lead}{space}{} = ", member.name());
                member.lead = Literal::new(text.as_bytes());
                shown += usize::from(!member.hidden);
            }
            // In CTF 2, names have no added underscore and are unique in a structure.
            if !is_version_2 {
                mark_ambiguous_members(&mut structure.members);
            }
            structure.shown = shown > 0 || structure.members.is_empty() || is_version_2;
            structure.runs = find_runs(&structure.members, structure.alignment);
        }
        Type::Variant(variant) => {
            let options = variant.options.iter_mut();
            options.for_each(|option| finish_type(&mut option.kind, is_version_2));
        }
        Type::Array(array) => {
            finish_type(&mut array.element, is_version_2);
            array.elements = element_layout(&array.element);
        }
        Type::Sequence(sequence) => {
            finish_type(&mut sequence.element, is_version_2);
            sequence.elements = element_layout(&sequence.element);
        }
        Type::Float(_) | Type::Text | Type::WideText(_) => {}
    }
}

/// Returns alignment and size of each existing part, if none depends on the part's values.
pub(super) fn fixed_part_layouts(parts: [Option<&Type>; 3]) -> Option<Vec<(u64, u64)>> {
    let parts = parts.into_iter().flatten();
    parts.map(|part| fixed_bits(part).map(|bits| (part.alignment(), bits))).collect()
}
