//! Comparison of CTF 2 with CTF 1.8: types of all kinds, described in both languages, must decode
//! the same bytes to the same values.

use serde_json::{Value, json};

use crate::model::types::{Base, Enumeration, Float, Integer, Role, Struct, Type};
use crate::read::testing::{Limits, Random, random_metadata, random_packet};
use crate::read::{
    Event, EventClass, Member, Trace, Value as FieldValue, VariantOption, read_stream,
};

/// Scopes of an event, by the names of their origins.
type Scopes<'trace> = [(&'static str, Option<&'trace Type>); 6];

fn byte_order_name(big_endian: bool) -> &'static str {
    if big_endian { "big-endian" } else { "little-endian" }
}

fn integer_class(integer: &Integer) -> Value {
    let role = match integer.role {
        Role::Magic => Some("packet-magic-number"),
        Role::ContentSize => Some("packet-content-length"),
        Role::PacketSize => Some("packet-total-length"),
        Role::EventClass => Some("event-record-class-id"),
        _ if integer.clock.is_some() => Some("default-clock-timestamp"),
        _ => None,
    };
    let base = match integer.base {
        Base::Binary => 2,
        Base::Octal => 8,
        Base::Decimal => 10,
        Base::Hexadecimal => 16,
    };
    let sign = if integer.signed { "signed" } else { "unsigned" };
    let mut class = json!({
        "type": format!("fixed-length-{sign}-integer"),
        "length": integer.bits,
        "byte-order": byte_order_name(integer.big_endian),
        "alignment": integer.alignment,
        "preferred-display-base": base,
    });
    if let Some(role) = role {
        class["roles"] = json!([role]);
    }
    class
}

fn ranges_to_json(ranges: &[(u64, u64)], signed: bool) -> Value {
    let bound = |bound: u64| if signed { json!(bound as i64) } else { json!(bound) };
    ranges.iter().map(|&(first, last)| json!([bound(first), bound(last)])).collect()
}

/// Returns the path of the integer with slot `slot`.
fn slot_path(kind: &Type, slot: usize) -> Option<Vec<String>> {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            (integer.slot == Some(slot)).then(Vec::new)
        }
        Type::Struct(structure) => structure.members.iter().find_map(|member| {
            let path = slot_path(&member.kind, slot)?;
            Some([vec![member.name().to_owned()], path].concat())
        }),
        Type::Variant(variant) => {
            variant.options.iter().find_map(|option| slot_path(&option.kind, slot))
        }
        Type::Array(array) => slot_path(&array.element, slot),
        Type::Sequence(sequence) => slot_path(&sequence.element, slot),
        _ => None,
    }
}

fn field_location(slot: usize, scopes: &Scopes<'_>) -> Value {
    let found = scopes.iter().find_map(|(origin, kind)| Some((origin, slot_path((*kind)?, slot)?)));
    let (origin, path) = found.expect("a slot that is some integer's");
    json!({ "origin": origin, "path": path })
}

fn field_class(kind: &Type, scopes: &Scopes<'_>) -> Value {
    match kind {
        Type::Integer(kind) => integer_class(kind),
        Type::Enumeration(kind) => {
            let mut class = integer_class(&kind.integer);
            for mapping in kind.labels.iter() {
                let ranges = ranges_to_json(&mapping.ranges, kind.integer.signed);
                class["mappings"][&mapping.label] = ranges;
            }
            class
        }
        Type::Float(Float { bits, alignment, big_endian, .. }) => json!({
            "type": "fixed-length-floating-point-number",
            "length": bits,
            "alignment": alignment,
            "byte-order": byte_order_name(*big_endian),
        }),
        Type::Text => json!({ "type": "null-terminated-string" }),
        Type::Struct(structure) => structure_class(structure, scopes),
        Type::Array(array) if array.text => {
            json!({ "type": "static-length-string", "length": array.length })
        }
        Type::Array(array) => json!({
            "type": "static-length-array",
            "length": array.length,
            "element-field-class": field_class(&array.element, scopes),
        }),
        Type::Sequence(sequence) if sequence.text => json!({
            "type": "dynamic-length-string",
            "length-field-location": field_location(sequence.slot, scopes),
        }),
        Type::Sequence(sequence) => json!({
            "type": "dynamic-length-array",
            "length-field-location": field_location(sequence.slot, scopes),
            "element-field-class": field_class(&sequence.element, scopes),
        }),
        Type::Variant(variant) => {
            let option = |option: &VariantOption| {
                json!({
                    "name": option.name(),
                    "selector-field-ranges": ranges_to_json(&option.ranges, variant.signed),
                    "field-class": field_class(&option.kind, scopes),
                })
            };
            json!({
                "type": "variant",
                "selector-field-location": field_location(variant.slot, scopes),
                "options": variant.options.iter().map(option).collect::<Vec<_>>(),
            })
        }
        Type::WideText(_) => unreachable!("CTF 1.8 has no such text"),
    }
}

fn structure_class(structure: &Struct, scopes: &Scopes<'_>) -> Value {
    let member = |member: &Member| {
        let class = field_class(&member.kind, scopes);
        json!({ "name": member.name(), "field-class": class })
    };
    json!({
        "type": "structure",
        "minimum-alignment": structure.alignment,
        "member-classes": structure.members.iter().map(member).collect::<Vec<_>>(),
    })
}

fn event_scopes<'trace>(trace: &'trace Trace, event: Option<&'trace EventClass>) -> Scopes<'trace> {
    let stream = &trace.streams[0];
    [
        ("packet-header", trace.packet_header.as_ref()),
        ("packet-context", stream.packet_context.as_ref()),
        ("event-record-header", stream.event_header.as_ref()),
        ("event-record-common-context", stream.event_context.as_ref()),
        ("event-record-specific-context", event.and_then(|event| event.context.as_ref())),
        ("event-record-payload", event.and_then(|event| event.fields.as_ref())),
    ]
}

/// Translates the metadata of `trace` to CTF 2.
fn translate_to_ctf2(trace: &Trace) -> String {
    let stream = &trace.streams[0];
    let of = |index: usize, event| {
        let scopes = event_scopes(trace, event);
        scopes[index].1.map_or(json!({ "type": "structure" }), |kind| field_class(kind, &scopes))
    };
    let clock = &trace.clocks[0];
    let mut fragments = vec![
        json!({ "type": "preamble", "version": 2 }),
        json!({ "type": "trace-class", "packet-header-field-class": of(0, None) }),
        json!({
            "type": "clock-class", "id": "the clock", "frequency": clock.frequency,
            "offset-from-origin": {
                "seconds": clock.offset_seconds, "cycles": clock.offset_cycles,
            },
        }),
        json!({
            "type": "data-stream-class",
            "default-clock-class-id": "the clock",
            "packet-context-field-class": of(1, None),
            "event-record-header-field-class": of(2, None),
            "event-record-common-context-field-class": of(3, None),
        }),
    ];
    for event in &stream.events {
        let mut fragment = json!({
            "type": "event-record-class", "id": event.id, "name": event.name,
            "payload-field-class": of(5, Some(event)),
        });
        if event.context.is_some() {
            fragment["specific-context-field-class"] = of(4, Some(event));
        }
        fragments.push(fragment);
    }
    fragments.iter().map(|fragment| format!("\x1e{fragment:#}\n")).collect()
}

/// Sorts labels of a value, which CTF 2 returns in another order: see `order.rs`.
fn sort_labels(event: &mut Event) {
    fn sort_value_labels(value: &mut FieldValue) {
        match value {
            FieldValue::Labelled(_, labels) => labels.sort(),
            FieldValue::Array(elements) => elements.iter_mut().for_each(sort_value_labels),
            FieldValue::Struct(members) => {
                members.iter_mut().for_each(|(_, value)| sort_value_labels(value))
            }
            FieldValue::Variant(_, chosen) => sort_value_labels(chosen),
            _ => {}
        }
    }
    let Event { packet_context, stream_context, event_context, fields, .. } = event;
    for part in [packet_context, stream_context, event_context, fields] {
        part.iter_mut().for_each(sort_value_labels);
    }
}

#[test]
fn the_same_types_in_both_languages_give_the_same_values() {
    let mut events = 0;
    for seed in 0..400 {
        let mut random = Random(seed);
        let tsdl = random_metadata(&mut random, Limits::Format);
        let first = Trace::parse(tsdl.as_bytes()).expect("TSDL");
        let json = translate_to_ctf2(&first);
        let second = Trace::parse(json.as_bytes())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{tsdl}\n{json}"));
        assert_eq!((first.major_version(), second.major_version()), (1, 2));
        let bytes = random_packet(&mut random, &tsdl, 300);
        let read = |trace: &Trace| {
            let mut read = read_stream(trace, &bytes);
            read.events.iter_mut().for_each(sort_labels);
            read
        };
        let (first, second) = (read(&first), read(&second));
        // Compared as text, because NaN is not equal to itself.
        let (first, second) = (format!("{first:?}"), format!("{second:?}"));
        assert_eq!(first, second, "seed {seed}\n{tsdl}\n{json}");
        events += first.matches("Event {").count();
    }
    assert!(events > 1000, "only {events} events");
}
