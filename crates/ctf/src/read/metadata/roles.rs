//! Roles of integers: the integers that describe packets and events.

use crate::model::types::{Enumeration, Role, Type};

/// Members that describe packets, by their names in LTTng's metadata.
pub(super) const HEADER_ROLES: [(&str, Role); 3] = [
    ("magic", Role::Magic),
    ("stream_id", Role::StreamClass),
    ("stream_instance_id", Role::StreamInstance),
];
pub(super) const CONTEXT_ROLES: [(&str, Role); 6] = [
    ("timestamp_begin", Role::TimestampBegin),
    ("timestamp_end", Role::TimestampEnd),
    ("events_discarded", Role::EventsDiscarded),
    ("packet_seq_num", Role::Sequence),
    ("packet_size", Role::PacketSize),
    ("content_size", Role::ContentSize),
];

/// Gives the role of the event's class id to every integer named `id` in the event header, at any
/// depth.
pub(super) fn give_id_role(kind: &mut Type) {
    match kind {
        Type::Struct(structure) => {
            for member in &mut structure.members {
                let is_id = member.name() == "id";
                match member.kind.integer_mut() {
                    Some(integer) if is_id => integer.role = Role::EventClass,
                    Some(_) => {}
                    None => give_id_role(&mut member.kind),
                }
            }
        }
        Type::Variant(variant) => {
            variant.options.iter_mut().for_each(|option| give_id_role(&mut option.kind));
        }
        Type::Array(array) => give_id_role(&mut array.element),
        Type::Sequence(sequence) => give_id_role(&mut sequence.element),
        Type::Integer(_)
        | Type::Enumeration(_)
        | Type::Float(_)
        | Type::Text
        | Type::WideText(_) => {}
    }
}

pub(super) fn has_role(context: &Type, role: Role) -> bool {
    let Type::Struct(structure) = context else { return false };
    structure.members.iter().any(|member| match &member.kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            integer.role == role
        }
        _ => false,
    })
}
