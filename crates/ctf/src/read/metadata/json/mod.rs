//! Metadata of CTF 2 (CTF2-SPEC-2.0, §5): JSON fragments, each after a record separator.
//!
//! The fragments become the same [`Document`] as TSDL, and the same resolver compiles it. Names of
//! members and options get a leading underscore, which the display removes again: CTF 2 shows names
//! unchanged.

mod field;
mod order;
mod property;

use std::collections::HashMap;
use std::sync::Arc;

use property::Object;
use serde_json::Value;

use super::node::{
    ClockNode, Document, EnvironmentValue, EventNode, Node, SourcePosition, StreamNode,
};
use crate::read::error::{MetadataError, MetadataProblem};
use crate::read::trace::{ClockClass, TraceName};

/// Byte before each fragment (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;
/// Namespaces in which babeltrace2 and LTTng put attributes for which CTF 2 has no property. The
/// first namespace with the attribute applies.
const ATTRIBUTE_SPACES: [&str; 2] = ["babeltrace.org,2020", "lttng.org,2009"];
/// Log levels by babeltrace2's names; the index is LTTng's number.
const LOG_LEVEL_NAMES: [&str; 15] = [
    "emergency",
    "alert",
    "critical",
    "error",
    "warning",
    "notice",
    "info",
    "debug:system",
    "debug:program",
    "debug:process",
    "debug:module",
    "debug:unit",
    "debug:function",
    "debug:line",
    "debug",
];

type Parsed<T> = Result<T, MetadataError>;

/// Returns true if the metadata is in CTF 2's format.
pub(crate) fn is_version_2(text: &[u8]) -> bool {
    text.first() == Some(&RECORD_SEPARATOR)
}

/// Reader of JSON fragments.
struct FragmentReader {
    document: Document,
    aliases: HashMap<String, Arc<Node>>,
    /// Start of the current fragment.
    place: SourcePosition,
}

/// Parses all of `text`.
pub(crate) fn parse(text: &[u8]) -> Parsed<Document> {
    let text_bytes = text.len();
    let document = Document { is_version_2: true, text_bytes, ..Document::default() };
    let mut reader = FragmentReader { document, aliases: HashMap::new(), place: (1, 1) };
    let mut line = 1;
    let mut count = 0;
    for fragment in text.split(|&byte| byte == RECORD_SEPARATOR) {
        let blank = fragment.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let lines = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'\n').count() as u32;
        let (before, json) = fragment.split_at(blank);
        reader.place = (line + lines(before), if lines(before) == 0 { 2 } else { 1 });
        if !json.is_empty() {
            reader.fragment(json, count == 0)?;
            count += 1;
        }
        line += lines(fragment);
    }
    let missing = match (count, reader.document.streams.len()) {
        (0, _) => "preamble",
        (_, 0) => "data-stream-class",
        _ => return Ok(reader.document),
    };
    Err(reader.error(MetadataProblem::Missing(missing)))
}

impl FragmentReader {
    fn error(&self, problem: MetadataProblem) -> MetadataError {
        MetadataError::at(self.place, problem)
    }

    fn fragment(&mut self, json: &[u8], is_first: bool) -> Parsed<()> {
        let value: Value = serde_json::from_slice(json).map_err(|error| {
            let (line, column) = self.place;
            let at_line = u32::try_from(error.line()).unwrap_or(u32::MAX).max(1);
            let at_column = u32::try_from(error.column()).unwrap_or(u32::MAX).max(1);
            let column = if at_line == 1 { at_column + column - 1 } else { at_column };
            let problem = MetadataProblem::from_json_error(&error);
            MetadataError::at((line.saturating_add(at_line - 1), column), problem)
        })?;
        let object = Object::new(&value, self.place)?;
        let kind = object.text("type")?;
        if is_first != (kind == "preamble") {
            return Err(object.property_error("type"));
        }
        object.refuse_extensions()?;
        match kind {
            "preamble" => self.preamble(object),
            "field-class-alias" => self.alias(object),
            "trace-class" => self.trace(object),
            "clock-class" => self.clock(object),
            "data-stream-class" => self.stream(object),
            "event-record-class" => self.event(object),
            _ => Err(object.property_error("type")),
        }
    }

    fn preamble(&mut self, object: Object<'_>) -> Parsed<()> {
        let version = object.unsigned("version")?;
        if version != 2 {
            return Err(self.error(MetadataProblem::Version(version.to_string())));
        }
        if let Some(bytes) = object.optional_array("uuid")? {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            let uuid = bytes.and_then(|bytes| bytes.try_into().ok());
            self.document.uuid = Some(uuid.ok_or_else(|| object.property_error("uuid"))?);
        }
        Ok(())
    }

    fn alias(&mut self, object: Object<'_>) -> Parsed<()> {
        let name = object.text("name")?.to_owned();
        let node = self.field_class(object.required("field-class")?)?;
        if self.aliases.insert(name, node).is_some() {
            return Err(self.error(MetadataProblem::Duplicate("field class alias")));
        }
        Ok(())
    }

    fn trace(&mut self, object: Object<'_>) -> Parsed<()> {
        if !self.document.streams.is_empty() || self.document.packet_header.is_some() {
            return Err(self.error(MetadataProblem::Duplicate("trace class")));
        }
        let text = |name| Parsed::Ok(object.optional_text(name)?.map(str::to_owned));
        let (namespace, name, uid) = (text("namespace")?, text("name")?, text("uid")?);
        self.document.name = TraceName { namespace, name, uid };
        if let Some(entries) = object.optional_object("environment")? {
            for (name, value) in entries.properties() {
                let value = match value {
                    Value::String(text) => EnvironmentValue::Text(text.clone()),
                    value => match value.as_i64() {
                        Some(number) => EnvironmentValue::Number(number),
                        // Larger than any reader stores.
                        None if value.is_u64() => continue,
                        None => return Err(object.property_error("environment")),
                    },
                };
                self.document.environment.push((name.clone(), value));
            }
        }
        self.document.packet_header = self.scope(object, "packet-header-field-class")?;
        Ok(())
    }

    fn clock(&mut self, object: Object<'_>) -> Parsed<()> {
        let id = object.text("id")?.to_owned();
        let mut clock = ClockClass::new();
        clock.name = object.optional_text("name")?.unwrap_or_default().to_owned();
        clock.description = object.optional_text("description")?.map(str::to_owned);
        clock.frequency = object.unsigned("frequency")?;
        if clock.frequency == 0 {
            return Err(object.property_error("frequency"));
        }
        clock.precision = object.optional_unsigned("precision")?.unwrap_or(0);
        clock.absolute = object.get("origin").is_some_and(|origin| origin == "unix-epoch");
        if let Some(offset) = object.optional_object("offset-from-origin")? {
            clock.offset_seconds = offset.optional_signed("seconds")?.unwrap_or(0);
            clock.offset_cycles = offset.optional_signed("cycles")?.unwrap_or(0);
        }
        if self.document.clocks.iter().any(|other| other.clock.id == id) {
            return Err(self.error(MetadataProblem::Duplicate("clock class")));
        }
        clock.id = id;
        self.document.clocks.push(ClockNode { clock, place: self.place });
        Ok(())
    }

    fn stream(&mut self, object: Object<'_>) -> Parsed<()> {
        let clock = object.optional_text("default-clock-class-id")?;
        if let Some(id) = clock
            && !self.document.clocks.iter().any(|node| node.clock.id == id)
        {
            return Err(self.error(MetadataProblem::UnknownClock(id.to_owned())));
        }
        let stream = StreamNode {
            id: Some(object.optional_unsigned("id")?.unwrap_or(0)),
            packet_context: self.scope(object, "packet-context-field-class")?,
            event_header: self.scope(object, "event-record-header-field-class")?,
            event_context: self.scope(object, "event-record-common-context-field-class")?,
            clock: clock.map(Arc::from),
            place: self.place,
        };
        self.document.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, object: Object<'_>) -> Parsed<()> {
        let stream_id = Some(object.optional_unsigned("data-stream-class-id")?.unwrap_or(0));
        if !self.document.streams.iter().any(|stream| stream.id == stream_id) {
            return Err(object.property_error("data-stream-class-id"));
        }
        let mut event = EventNode {
            id: Some(object.optional_unsigned("id")?.unwrap_or(0)),
            stream_id,
            name: object.optional_text("name")?.map(str::to_owned),
            context: self.scope(object, "specific-context-field-class")?,
            fields: self.scope(object, "payload-field-class")?,
            place: self.place,
            ..EventNode::default()
        };
        let attributes = object.get("attributes");
        let level = find_attribute(attributes, "log-level");
        let level = level.and_then(|name| LOG_LEVEL_NAMES.iter().position(|level| *level == name));
        event.level = level.map(|level| level as i64);
        event.emf_uri = find_attribute(attributes, "emf-uri").map(str::to_owned);
        self.document.events.push(event);
        Ok(())
    }

    /// Parses the structure of a scope, if the fragment has it.
    fn scope(&self, object: Object<'_>, name: &str) -> Parsed<Option<Arc<Node>>> {
        object.get(name).map(|value| self.field_class(value)).transpose()
    }
}

/// Finds a text among user attributes, which may be any JSON.
fn find_attribute<'json>(attributes: Option<&'json Value>, name: &str) -> Option<&'json str> {
    let text = |space| attributes?.get(space)?.get(name)?.as_str();
    ATTRIBUTE_SPACES.into_iter().find_map(text)
}

#[cfg(test)]
mod tests;
