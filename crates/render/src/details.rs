//! A trace's metadata as text and as JSON: the origin of the trace, its clocks, and the contents of
//! its packets, contexts and events.
//!
//! ```text
//!   stream class 0, clock monotonic
//!     packet context  { u64 timestamp_begin; u64 timestamp_end; u32 cpu_id; }
//!     event context   { i32 vtid; }
//!     1 event class
//!       0  lab:request  INFO  { u32 status; string path; }
//! ```
//!
//! Types are written in a short form of C's: `u32` and `i32` for integers of 32 bits; a prefix
//! `hex`, `oct` or `bin` for their base, and `be` for big-endian ones; `f64`, `string`, and
//! `char name[16]` for text in an array.

use trackway_ctf::Uuid;
use trackway_ctf::read::{
    Base, ClockClass, Encoding, EnvironmentValue, EventClass, Integer, StreamClass, Struct, Trace,
    Type,
};

use crate::json::{format_seconds, push_environment_value, push_json_key, push_json_text};
use crate::level::level_name;
use crate::number::{format_grouped, push_decimal, push_signed};

/// Indent of each line about a part of the trace.
const INDENT: &[u8] = b"  ";

/// Appends the description of `trace`, which was found in `folder`, for people.
pub fn push_details(out: &mut Vec<u8>, folder: &str, trace: &Trace) {
    push_line(out, 0, &format!("trace {}", to_printable(folder)));
    if let Some(uuid) = trace.uuid() {
        push_line(out, 1, &format!("uuid {}", Uuid(uuid)));
    }
    push_environment(out, trace);
    trace.clocks().iter().for_each(|clock| push_clock(out, clock));
    let slots = SlotNames::of(trace);
    push_scope(out, 1, &slots, "packet header", trace.packet_header());
    for stream in trace.streams() {
        push_stream(out, &slots, stream);
    }
}

fn push_line(out: &mut Vec<u8>, depth: usize, text: &str) {
    out.extend(INDENT.repeat(depth));
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

fn push_environment(out: &mut Vec<u8>, trace: &Trace) {
    let Some(widest) =
        trace.environment_entries().iter().map(|(name, _)| name.chars().count()).max()
    else {
        return;
    };
    push_line(out, 1, "environment");
    for (name, value) in trace.environment_entries() {
        let value = match value {
            EnvironmentValue::Number(number) => number.to_string(),
            EnvironmentValue::Text(text) => to_printable(text),
        };
        push_line(out, 2, &format!("{:<widest$}  {value}", to_printable(name)));
    }
}

/// Returns `text` on one line, without characters that move a terminal's cursor.
pub fn to_printable(text: &str) -> String {
    trackway_console::escape_unprintable(text).into_owned()
}

fn push_clock(out: &mut Vec<u8>, clock: &ClockClass) {
    let mut text = format!("clock {}: {} Hz", clock.name(), format_grouped(clock.frequency()));
    if let Some(zero_ns) = clock.zero_ns() {
        text += &format!(", its zero is at {} s", format_seconds(zero_ns));
    }
    if let Some(uuid) = clock.uuid() {
        text += &format!(", uuid {}", Uuid(uuid));
    }
    if let Some(description) = clock.description() {
        text += &format!(", {description}");
    }
    push_line(out, 1, &to_printable(&text));
}

fn push_stream(out: &mut Vec<u8>, slots: &SlotNames, stream: &StreamClass) {
    let clock = clock_name(stream).map_or(String::new(), |name| format!(", clock {name}"));
    push_line(out, 1, &format!("stream class {}{}", stream.id(), to_printable(&clock)));
    push_scope(out, 2, slots, "packet context", stream.packet_context());
    push_scope(out, 2, slots, "event header", stream.event_header());
    push_scope(out, 2, slots, "event context", stream.event_context());
    let plural = if stream.events().len() == 1 { "" } else { "es" };
    push_line(out, 2, &format!("{} event class{plural}", stream.events().len()));
    let names: Vec<String> = stream.events().iter().map(event_name).collect();
    let name_widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let id_widest =
        stream.events().iter().map(|event| event.id().to_string().len()).max().unwrap_or(0);
    let levels: Vec<String> = stream
        .events()
        .iter()
        .map(|event| event.level().map_or(String::new(), level_name))
        .collect();
    let level_widest = levels.iter().map(String::len).max().unwrap_or(0);
    for ((event, name), level) in stream.events().iter().zip(&names).zip(&levels) {
        let id = event.id();
        let mut text =
            format!("{id:>id_widest$}  {name:<name_widest$}  {level:<level_widest$}").into_bytes();
        for (lead, kind) in [("  context ", event.context_type()), ("  ", event.fields_type())] {
            if let Some(kind) = kind {
                text.extend_from_slice(lead.as_bytes());
                push_type(&mut text, kind, "", slots);
            }
        }
        push_line(out, 3, &String::from_utf8_lossy(&text));
    }
}

fn event_name(event: &EventClass) -> String {
    event.name().map_or_else(|| "<unknown>".to_owned(), to_printable)
}

fn push_scope(out: &mut Vec<u8>, depth: usize, slots: &SlotNames, name: &str, kind: Option<&Type>) {
    let Some(kind) = kind else { return };
    let mut text = format!("{name}  ").into_bytes();
    push_type(&mut text, kind, "", slots);
    push_line(out, depth, &String::from_utf8_lossy(&text));
}

/// Returns the name of the clock that a stream's fields set, from the first field that has one.
fn clock_name(stream: &StreamClass) -> Option<&str> {
    let scopes = [stream.packet_context(), stream.event_header(), stream.event_context()];
    let payloads =
        stream.events().iter().flat_map(|event| [event.context_type(), event.fields_type()]);
    scopes.into_iter().chain(payloads).flatten().find_map(find_clock_name)
}

fn find_clock_name(kind: &Type) -> Option<&str> {
    match kind {
        Type::Integer(integer) => integer.clock_name(),
        Type::Enumeration(enumeration) => enumeration.integer().clock_name(),
        Type::Float(_) | Type::Text | Type::WideText(_) => None,
        Type::Struct(structure) => {
            structure.members().iter().find_map(|member| find_clock_name(member.kind()))
        }
        Type::Array(array) => find_clock_name(array.element()),
        Type::Sequence(sequence) => find_clock_name(sequence.element()),
        Type::Variant(variant) => {
            variant.options().iter().find_map(|option| find_clock_name(option.kind()))
        }
    }
}

/// Names of the fields that determine lengths and variants, by slot.
struct SlotNames(Vec<String>);

impl SlotNames {
    fn of(trace: &Trace) -> Self {
        let mut names = Self(vec![String::new(); trace.slots_count()]);
        names.add(trace.packet_header());
        for stream in trace.streams() {
            let scopes = [stream.packet_context(), stream.event_header(), stream.event_context()];
            scopes.into_iter().for_each(|scope| names.add(scope));
            for event in stream.events() {
                names.add(event.context_type());
                names.add(event.fields_type());
            }
        }
        names
    }

    fn add(&mut self, kind: Option<&Type>) {
        match kind {
            Some(Type::Struct(structure)) => self.add_members(structure),
            Some(Type::Array(array)) => self.add(Some(array.element())),
            Some(Type::Sequence(sequence)) => self.add(Some(sequence.element())),
            Some(Type::Variant(variant)) => {
                variant.options().iter().for_each(|option| self.add(Some(option.kind())));
            }
            _ => {}
        }
    }

    fn add_members(&mut self, structure: &Struct) {
        for member in structure.members() {
            let slot = match member.kind() {
                Type::Integer(integer) => integer.slot(),
                Type::Enumeration(enumeration) => enumeration.integer().slot(),
                _ => None,
            };
            if let Some(name) = slot.and_then(|slot| self.0.get_mut(slot)) {
                member.name().clone_into(name);
            }
            self.add(Some(member.kind()));
        }
    }

    fn name(&self, slot: usize) -> &str {
        self.0.get(slot).map_or("", String::as_str)
    }
}

/// Appends the declaration of `name` (or a type alone, if it is empty), without its semicolon.
fn push_type(out: &mut Vec<u8>, kind: &Type, name: &str, slots: &SlotNames) {
    // Lengths follow the name, the outermost length first.
    let (mut element, mut lengths, mut is_text) = (kind, String::new(), false);
    loop {
        let (inner, length, text) = match element {
            Type::Array(array) => (array.element(), array.length().to_string(), array.is_text()),
            Type::Sequence(sequence) => {
                (sequence.element(), slots.name(sequence.slot()).to_owned(), sequence.is_text())
            }
            _ => break,
        };
        lengths += &format!("[{length}]");
        element = inner;
        is_text = text;
    }
    match element {
        Type::Integer(_) if is_text => out.extend_from_slice(b"char"),
        Type::Integer(integer) => push_integer_type(out, integer),
        Type::Enumeration(enumeration) => {
            out.extend_from_slice(b"enum ");
            push_integer_type(out, enumeration.integer());
            push_labels(out, enumeration);
        }
        Type::Float(float) => {
            let order = if float.is_big_endian() { "be " } else { "" };
            out.extend_from_slice(format!("{order}f{}", float.bits()).as_bytes());
        }
        Type::Text => out.extend_from_slice(b"string"),
        Type::WideText(text) => out.extend_from_slice(match text.encoding() {
            Encoding::Utf16Be | Encoding::Utf16Le => b"string16",
            Encoding::Utf32Be | Encoding::Utf32Le => b"string32",
        }),
        Type::Struct(structure) => {
            // The structure of a scope needs no keyword.
            out.extend_from_slice(if name.is_empty() { b"{ " } else { b"struct { " });
            for member in structure.members() {
                push_type(out, member.kind(), member.name(), slots);
                out.extend_from_slice(b"; ");
            }
            out.push(b'}');
        }
        Type::Variant(variant) => {
            let tag = slots.name(variant.slot());
            let word = if variant.is_optional() { "optional" } else { "variant" };
            out.extend_from_slice(format!("{word} <{tag}> {{ ").as_bytes());
            for option in variant.options() {
                push_type(out, option.kind(), option.name(), slots);
                out.extend_from_slice(b"; ");
            }
            out.push(b'}');
        }
        // The loop above has unwrapped these types.
        Type::Array(_) | Type::Sequence(_) => {}
    }
    if !name.is_empty() {
        out.push(b' ');
        out.extend_from_slice(to_printable(name).as_bytes());
    }
    out.extend_from_slice(lengths.as_bytes());
}

fn push_integer_type(out: &mut Vec<u8>, integer: &Integer) {
    if integer.is_boolean() {
        out.extend_from_slice(b"bool ");
    }
    if integer.is_variable() {
        out.extend_from_slice(b"varying ");
    }
    if integer.is_big_endian() {
        out.extend_from_slice(b"be ");
    }
    out.extend_from_slice(match integer.base() {
        Base::Binary => b"bin ",
        Base::Octal => b"oct ",
        Base::Hexadecimal => b"hex ",
        Base::Decimal => b"",
    });
    out.push(if integer.is_signed() { b'i' } else { b'u' });
    push_decimal(out, integer.bits().into());
}

fn push_labels(out: &mut Vec<u8>, enumeration: &trackway_ctf::read::Enumeration) {
    let value = |value: u64| match enumeration.integer().is_signed() {
        true => (value as i64).to_string(),
        false => value.to_string(),
    };
    out.extend_from_slice(b" { ");
    for (index, (label, first, last)) in enumeration.ranges().enumerate() {
        let lead = if index > 0 { ", " } else { "" };
        let (label, first_text) = (to_printable(label), value(first));
        let text = match first == last {
            true => format!("{lead}{label} = {first_text}"),
            false => format!("{lead}{label} = {first_text} ... {}", value(last)),
        };
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(b" }");
}

/// Appends a trace's metadata as a JSON object, on one line, for programs.
pub fn push_details_json(out: &mut Vec<u8>, folder: &str, trace: &Trace) {
    out.push(b'{');
    push_json_key(out, "folder");
    push_json_text(out, folder.as_bytes());
    push_json_key(out, "uuid");
    push_json_text_or_null(out, trace.uuid().map(|uuid| Uuid(uuid).to_string()).as_deref());
    push_json_key(out, "environment");
    out.push(b'{');
    for (index, (name, value)) in trace.environment_entries().iter().enumerate() {
        // The latest entry with a name applies, and is written once.
        let is_latest =
            !trace.environment_entries().iter().skip(index + 1).any(|(other, _)| other == name);
        if is_latest {
            push_json_key(out, name);
            push_environment_value(out, value);
        }
    }
    out.push(b'}');
    push_json_key(out, "clocks");
    push_json_list(out, trace.clocks(), push_json_clock);
    let slots = SlotNames::of(trace);
    push_json_scope(out, "packet_header", trace.packet_header(), &slots);
    push_json_key(out, "streams");
    push_json_list(out, trace.streams(), |out, stream| push_json_stream(out, stream, &slots));
    out.extend_from_slice(b"}\n");
}

/// Appends a JSON array; `push` writes each of `parts`.
fn push_json_list<T>(out: &mut Vec<u8>, parts: &[T], mut push: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push(out, part);
    }
    out.push(b']');
}

fn push_json_stream(out: &mut Vec<u8>, stream: &StreamClass, slots: &SlotNames) {
    out.push(b'{');
    push_json_key(out, "id");
    push_decimal(out, stream.id());
    push_json_key(out, "clock");
    push_json_text_or_null(out, clock_name(stream));
    push_json_scope(out, "packet_context", stream.packet_context(), slots);
    push_json_scope(out, "event_header", stream.event_header(), slots);
    push_json_scope(out, "event_context", stream.event_context(), slots);
    push_json_key(out, "events");
    push_json_list(out, stream.events(), |out, event| {
        out.push(b'{');
        push_json_key(out, "id");
        push_decimal(out, event.id());
        push_json_key(out, "name");
        push_json_text_or_null(out, event.name());
        push_json_key(out, "level");
        match event.level() {
            Some(level) => push_signed(out, level),
            None => out.extend_from_slice(b"null"),
        }
        push_json_scope(out, "context", event.context_type(), slots);
        push_json_scope(out, "fields", event.fields_type(), slots);
        out.push(b'}');
    });
    out.push(b'}');
}

fn push_json_clock(out: &mut Vec<u8>, clock: &ClockClass) {
    out.push(b'{');
    push_json_key(out, "name");
    push_json_text(out, clock.name().as_bytes());
    push_json_key(out, "uuid");
    push_json_text_or_null(out, clock.uuid().map(|uuid| Uuid(uuid).to_string()).as_deref());
    push_json_key(out, "description");
    push_json_text_or_null(out, clock.description());
    push_json_key(out, "frequency");
    push_decimal(out, clock.frequency());
    push_json_key(out, "precision");
    push_decimal(out, clock.precision());
    push_json_key(out, "zero_ns");
    match clock.zero_ns() {
        Some(zero_ns) => push_signed(out, zero_ns),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

fn push_json_text_or_null(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => push_json_text(out, text.as_bytes()),
        None => out.extend_from_slice(b"null"),
    }
}

fn push_json_scope(out: &mut Vec<u8>, name: &str, kind: Option<&Type>, slots: &SlotNames) {
    let Some(Type::Struct(structure)) = kind else { return };
    push_json_key(out, name);
    push_json_list(out, structure.members(), |out, member| {
        let mut declaration = Vec::new();
        push_type(&mut declaration, member.kind(), member.name(), slots);
        out.push(b'{');
        push_json_key(out, "name");
        push_json_text(out, member.name().as_bytes());
        push_json_key(out, "declaration");
        push_json_text(out, &declaration);
        out.push(b'}');
    });
}
