//! Field classes of CTF 2 (§5.3).

use std::sync::Arc;

use serde_json::Value;

use super::order::libstdcxx_table_order;
use super::property::Object;
use super::{FragmentReader, Parsed};
use crate::model::types::{Base, Encoding, Mapping, Role};
use crate::read::error::MetadataProblem;
use crate::read::metadata::node::{
    IntegerNode, NamedNode, Node, NodeKind, Reference, ReferenceStart, TextEndNode,
};

/// Greatest alignment, in bits.
const ALIGNMENT_MAX: u64 = 4096;

/// Names of field location origins, in the order of the resolver's scopes.
const LOCATION_ORIGINS: [&str; 6] = [
    "packet-header",
    "packet-context",
    "event-record-header",
    "event-record-common-context",
    "event-record-specific-context",
    "event-record-payload",
];

impl FragmentReader {
    /// Parses a field class, or the name of one.
    pub(crate) fn field_class(&self, value: &Value) -> Parsed<Arc<Node>> {
        if let Value::String(name) = value {
            let unknown = || self.error(MetadataProblem::UnknownType(name.clone()));
            return self.aliases.get(name).cloned().ok_or_else(unknown);
        }
        let object = Object::new(value, self.place)?;
        object.refuse_extensions()?;
        let kind = match object.text("type")? {
            "fixed-length-bit-array" => {
                let integer = self.bit_array(object)?;
                NodeKind::Integer(IntegerNode { base: Base::Hexadecimal, ..integer })
            }
            "fixed-length-bit-map" => NodeKind::Enumeration {
                integer: IntegerNode { base: Base::Hexadecimal, ..self.bit_array(object)? },
                labels: self.flags(object)?,
                flags: true,
            },
            "fixed-length-boolean" => {
                NodeKind::Integer(IntegerNode { boolean: true, ..self.bit_array(object)? })
            }
            "fixed-length-unsigned-integer" => self.integer(object, self.bit_array(object)?)?,
            "fixed-length-signed-integer" => {
                let integer = IntegerNode { signed: true, ..self.bit_array(object)? };
                self.integer(object, integer)?
            }
            "variable-length-unsigned-integer" => {
                self.integer(object, variable_length_integer(false))?
            }
            "variable-length-signed-integer" => {
                self.integer(object, variable_length_integer(true))?
            }
            "fixed-length-floating-point-number" => self.float(object)?,
            "null-terminated-string" => self.text(object, TextEndNode::Nul)?,
            "static-length-string" => {
                self.text(object, TextEndNode::Bytes(object.unsigned("length")?))?
            }
            "dynamic-length-string" => {
                let length = self.location(object, "length-field-location")?;
                self.text(object, TextEndNode::Field(length))?
            }
            "static-length-blob" => {
                let (element, length) = (self.blob_byte()?, object.unsigned("length")?);
                NodeKind::Array { element, length, alignment: 8 }
            }
            "dynamic-length-blob" => {
                let length = self.location(object, "length-field-location")?;
                NodeKind::Sequence { element: self.blob_byte()?, length, alignment: 8 }
            }
            "structure" => self.structure(object)?,
            "static-length-array" => NodeKind::Array {
                element: self.field_class(object.required("element-field-class")?)?,
                length: object.unsigned("length")?,
                alignment: self.alignment(object, "minimum-alignment")?,
            },
            "dynamic-length-array" => NodeKind::Sequence {
                element: self.field_class(object.required("element-field-class")?)?,
                length: self.location(object, "length-field-location")?,
                alignment: self.alignment(object, "minimum-alignment")?,
            },
            "optional" => self.optional(object)?,
            "variant" => self.variant(object)?,
            _ => return Err(object.property_error("type")),
        };
        Node::new_shared(self.place, kind)
    }

    fn alignment(&self, object: Object<'_>, name: &str) -> Parsed<u64> {
        let alignment = object.optional_unsigned(name)?.unwrap_or(1);
        if alignment.is_power_of_two() && alignment <= ALIGNMENT_MAX {
            Ok(alignment)
        } else {
            Err(object.property_error(name))
        }
    }

    /// Returns true if the number is big-endian, and true if its bits are reversed.
    fn order(&self, object: Object<'_>) -> Parsed<(bool, bool)> {
        let big_endian = match object.text("byte-order")? {
            "big-endian" => true,
            "little-endian" => false,
            _ => return Err(object.property_error("byte-order")),
        };
        // The first bit of a little-endian number is its lowest, of a big-endian one its highest.
        let reversed = match object.optional_text("bit-order")? {
            None => false,
            Some("first-to-last") => big_endian,
            Some("last-to-first") => !big_endian,
            Some(_) => return Err(object.property_error("bit-order")),
        };
        Ok((big_endian, reversed))
    }

    fn bit_array(&self, object: Object<'_>) -> Parsed<IntegerNode> {
        let bits = object.unsigned("length")?;
        if bits > 64 {
            return Err(self.error(MetadataProblem::Unsupported("field of more than 64 bits")));
        }
        if bits == 0 {
            return Err(object.property_error("length"));
        }
        let (big_endian, reversed) = self.order(object)?;
        Ok(IntegerNode {
            alignment: self.alignment(object, "alignment")?,
            big_endian: Some(big_endian),
            reversed,
            ..IntegerNode::new(bits as u32)
        })
    }

    /// Returns an integer, or an enumeration if `object` has mappings.
    fn integer(&self, object: Object<'_>, integer: IntegerNode) -> Parsed<NodeKind> {
        let base = match object.optional_unsigned("preferred-display-base")? {
            None | Some(10) => Base::Decimal,
            Some(2) => Base::Binary,
            Some(8) => Base::Octal,
            Some(16) => Base::Hexadecimal,
            Some(_) => return Err(object.property_error("preferred-display-base")),
        };
        let mut integer = IntegerNode { base, ..integer };
        for role in object.optional_array("roles")?.unwrap_or_default() {
            let role = role.as_str().ok_or_else(|| object.property_error("roles"))?;
            if integer.signed || !set_role(&mut integer, role) {
                return Err(object.property_error("roles"));
            }
        }
        let labels = self.mappings(object)?;
        Ok(match labels.is_empty() {
            true => NodeKind::Integer(integer),
            false => NodeKind::Enumeration { integer, labels, flags: false },
        })
    }

    /// Parses names of values with their ranges, in babeltrace2's display order.
    fn mappings(&self, object: Object<'_>) -> Parsed<Arc<[Mapping]>> {
        let labels = self.labels(object, "mappings")?;
        // Babeltrace2 puts the labels into two tables in turn: the JSON object, and its own labels.
        let tables = (0..2).fold(labels, |labels, _| {
            let names: Vec<&str> = labels.iter().map(|mapping| mapping.label.as_str()).collect();
            libstdcxx_table_order(&names).into_iter().map(|index| labels[index].clone()).collect()
        });
        Ok(Arc::from(tables))
    }

    /// Parses names of bits with their ranges, in the order of the names' bytes, which is also
    /// babeltrace2's display order.
    fn flags(&self, object: Object<'_>) -> Parsed<Arc<[Mapping]>> {
        let mut labels = self.labels(object, "flags")?;
        labels.sort_by(|a, b| a.label.cmp(&b.label));
        Ok(Arc::from(labels))
    }

    /// Parses names with the ranges of their values or bits.
    fn labels(&self, object: Object<'_>, name: &str) -> Parsed<Vec<Mapping>> {
        let Some(mappings) = object.optional_object(name)? else { return Ok(Vec::new()) };
        let mapping = |(label, ranges): (&String, &Value)| {
            Ok(Mapping { label: label.clone(), ranges: self.ranges(object, name, ranges)? })
        };
        mappings.properties().map(mapping).collect()
    }

    /// Parses closed ranges, as two's complement.
    fn ranges(&self, object: Object<'_>, name: &str, value: &Value) -> Parsed<Vec<(u64, u64)>> {
        let bound = |value: &Value| value.as_u64().or(value.as_i64().map(|bound| bound as u64));
        let range = |range: &Value| match range.as_array().map(Vec::as_slice) {
            Some([first, last]) => bound(first).zip(bound(last)),
            _ => None,
        };
        let ranges = value.as_array().filter(|ranges| !ranges.is_empty());
        let ranges = ranges.and_then(|ranges| ranges.iter().map(range).collect());
        ranges.ok_or_else(|| object.property_error(name))
    }

    fn float(&self, object: Object<'_>) -> Parsed<NodeKind> {
        let bits = match object.unsigned("length")? {
            bits @ (16 | 32 | 64) => bits as u32,
            128 => {
                let problem = MetadataProblem::Unsupported("floating-point number of 128 bits");
                return Err(self.error(problem));
            }
            bits if bits > 128 && bits.is_multiple_of(32) => {
                let problem =
                    MetadataProblem::Unsupported("floating-point number of more than 128 bits");
                return Err(self.error(problem));
            }
            _ => return Err(object.property_error("length")),
        };
        let (big_endian, reversed) = self.order(object)?;
        let alignment = self.alignment(object, "alignment")?;
        Ok(NodeKind::Float { bits, alignment, big_endian: Some(big_endian), reversed })
    }

    fn blob_byte(&self) -> Parsed<Arc<Node>> {
        let (alignment, base) = (8, Base::Hexadecimal);
        let integer = IntegerNode { alignment, base, blob: true, ..IntegerNode::new(8) };
        Node::new_shared(self.place, NodeKind::Integer(integer))
    }

    fn character(&self) -> Parsed<Arc<Node>> {
        let integer = IntegerNode { alignment: 8, character: true, ..IntegerNode::new(8) };
        Node::new_shared(self.place, NodeKind::Integer(integer))
    }

    fn text(&self, object: Object<'_>, end: TextEndNode) -> Parsed<NodeKind> {
        let encoding = match object.optional_text("encoding")? {
            None | Some("utf-8") => {
                return Ok(match end {
                    TextEndNode::Nul => NodeKind::Text,
                    TextEndNode::Bytes(length) => {
                        NodeKind::Array { element: self.character()?, length, alignment: 8 }
                    }
                    TextEndNode::Field(length) => {
                        NodeKind::Sequence { element: self.character()?, length, alignment: 8 }
                    }
                });
            }
            Some("utf-16be") => Encoding::Utf16Be,
            Some("utf-16le") => Encoding::Utf16Le,
            Some("utf-32be") => Encoding::Utf32Be,
            Some("utf-32le") => Encoding::Utf32Le,
            Some(_) => return Err(object.property_error("encoding")),
        };
        Ok(NodeKind::WideText { encoding, end })
    }

    fn structure(&self, object: Object<'_>) -> Parsed<NodeKind> {
        let mut members: Vec<NamedNode> = Vec::new();
        let mut names = std::collections::HashSet::new();
        for member in object.optional_array("member-classes")?.unwrap_or_default() {
            let member = Object::new(member, self.place)?;
            member.refuse_extensions()?;
            let name = member.text("name")?;
            if !names.insert(name) {
                return Err(self.error(MetadataProblem::Duplicate("member")));
            }
            let node = self.field_class(member.required("field-class")?)?;
            members.push(NamedNode { name: format!("_{name}"), node, ranges: None });
        }
        let alignment = self.alignment(object, "minimum-alignment")?;
        Ok(NodeKind::Struct { members, alignment })
    }

    fn optional(&self, object: Object<'_>) -> Parsed<NodeKind> {
        let name = "selector-field-ranges";
        // For a boolean selector, every value but 0 is true.
        let ranges = match object.get(name) {
            Some(ranges) => self.ranges(object, name, ranges)?,
            None => vec![(1, u64::MAX)],
        };
        let option = NamedNode {
            name: String::new(),
            node: self.field_class(object.required("field-class")?)?,
            ranges: Some(ranges),
        };
        let tag = Some(self.location(object, "selector-field-location")?);
        Ok(NodeKind::Variant { tag, options: Arc::from([option]), optional: true })
    }

    fn variant(&self, object: Object<'_>) -> Parsed<NodeKind> {
        let mut options = Vec::new();
        for option in object.array("options")? {
            let option = Object::new(option, self.place)?;
            option.refuse_extensions()?;
            let name = "selector-field-ranges";
            let ranges = self.ranges(option, name, option.required(name)?)?;
            let node = self.field_class(option.required("field-class")?)?;
            let name = format!("_{}", option.optional_text("name")?.unwrap_or_default());
            options.push(NamedNode { name, node, ranges: Some(ranges) });
        }
        if options.is_empty() {
            return Err(object.property_error("options"));
        }
        let tag = Some(self.location(object, "selector-field-location")?);
        Ok(NodeKind::Variant { tag, options: Arc::from(options), optional: false })
    }

    /// Parses a field location (§5.3.1).
    fn location(&self, object: Object<'_>, name: &str) -> Parsed<Reference> {
        let location = object.optional_object(name)?.ok_or_else(|| object.property_error(name))?;
        let scope = match location.optional_text("origin")? {
            None => None,
            Some(origin) => {
                let scope = LOCATION_ORIGINS.iter().position(|known| *known == origin);
                Some(scope.ok_or_else(|| location.property_error("origin"))?)
            }
        };
        let (mut path, mut above): (Vec<String>, usize) = (Vec::new(), 0);
        for element in location.array("path")? {
            match element {
                Value::String(member) => path.push(format!("_{member}")),
                // Leads to the parent structure: undoes the last step into a structure, if any.
                Value::Null if path.pop().is_some() => {}
                Value::Null if scope.is_none() => above += 1,
                _ => return Err(location.property_error("path")),
            }
        }
        if path.is_empty() {
            return Err(location.property_error("path"));
        }
        let start = scope.map_or(ReferenceStart::Enclosing(above), ReferenceStart::Scope);
        Ok(Reference { path, start, place: self.place })
    }
}

/// Returns an integer of variable length.
fn variable_length_integer(signed: bool) -> IntegerNode {
    IntegerNode { signed, variable: true, alignment: 8, ..IntegerNode::new(64) }
}

/// Sets the role of an integer (§5.3.3); returns false if the role is unknown.
fn set_role(integer: &mut IntegerNode, role: &str) -> bool {
    integer.role = match role {
        "packet-magic-number" => Role::Magic,
        "data-stream-class-id" => Role::StreamClass,
        "data-stream-id" => Role::StreamInstance,
        "packet-total-length" => Role::PacketSize,
        "packet-content-length" => Role::ContentSize,
        "packet-sequence-number" => Role::Sequence,
        "discarded-event-record-counter-snapshot" => Role::EventsDiscarded,
        "event-record-class-id" => Role::EventClass,
        "default-clock-timestamp" => {
            integer.default_clock = true;
            // In a packet's context this role marks the begin time; elsewhere it has no use.
            Role::TimestampBegin
        }
        "packet-end-default-clock-timestamp" => {
            integer.default_clock = true;
            Role::TimestampEnd
        }
        _ => return false,
    };
    true
}
