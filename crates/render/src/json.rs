//! Events as JSON, one object a line, for programs: `jq`, scripts, data bases.
//!
//! ```text
//! {"time":1795228670847582868,"timestamp":"1795228670.847582868","hostname":"host",
//!  "name":"app:request","stream":0,"packet":{"cpu_id":0},"context":{"vtid":7},"fields":{"n":1}}
//! ```
//!
//! Every line is valid JSON (RFC 8259) in UTF-8, whatever the trace holds. Every value is exact:
//! 64-bit integers have all their digits, and floats have enough digits to distinguish them from
//! their neighbours. Numbers without a JSON form are strings: `"NaN"`, `"Infinity"`, `"-Infinity"`.
//! Bytes that are not UTF-8 become U+FFFD, as in other tools. `docs/guides/reading.md` describes
//! the format for users.

use std::io::Write as _;

use trackway_ctf::read::{
    DecodeError, Enumeration, EnvironmentValue, EventBody, EventClass, EventSink, Integer, Loss,
    Meaning, Member, Scope, Sink, StreamClass, Trace, VariantOption,
};

use crate::format::{
    DeltaSlot, EventEncoder, LINE_BYTES_MAX, LastShown, Line, LineFormat, LossPlace, Stamp,
    TraceName, push_without_quotes, truncate_line,
};
use crate::level::level_name;
use crate::number::{nine_digits, push_decimal, push_signed};
use crate::pretty::Pretty;
use crate::time::Calendar;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Writes events as JSON objects, one a line. Reports losses like [`Pretty`].
#[derive(Debug, Clone)]
pub struct Json<C> {
    messages: Pretty<C>,
    /// True if events include the folder of their trace.
    has_traces: bool,
    /// True if numbers with named values are shown with their names.
    is_symbolic: bool,
}

impl<C> Json<C> {
    /// Creates the format; `messages` reports losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages, has_traces: false, is_symbolic: false }
    }

    /// Creates the format for events of several traces: each event includes its trace's folder.
    pub const fn with_traces(messages: Pretty<C>) -> Self {
        Self { messages, has_traces: true, is_symbolic: false }
    }

    /// Sets whether numbers with named values include the names, like enumerations.
    #[must_use]
    pub fn symbolic(self, is_symbolic: bool) -> Self {
        Self { is_symbolic, ..self }
    }
}

impl<C: Calendar> EventEncoder for Json<C> {
    /// Returns the origin of a trace's events, as far as known.
    fn stream_prefix(&self, trace: &Trace, name: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        let mut out = Vec::new();
        if self.has_traces {
            push_json_key(&mut out, "trace");
            push_json_text(&mut out, name.folder.as_bytes());
        }
        for name in ["hostname", "procname", "vpid"] {
            let Some(value) = trace.environment(name) else { continue };
            push_json_key(&mut out, name);
            push_environment_value(&mut out, value);
        }
        push_json_key(&mut out, "stream");
        push_decimal(&mut out, stream.id());
        out
    }

    fn class_prefix(&self, _: &Trace, _: &StreamClass, event: &EventClass) -> Vec<u8> {
        let mut out = Vec::new();
        push_json_key(&mut out, "name");
        match event.name() {
            Some(name) => push_json_text(&mut out, name.as_bytes()),
            None => out.extend_from_slice(b"null"),
        }
        if let Some(level) = event.level() {
            push_json_key(&mut out, "level");
            push_json_text(&mut out, level_name(level).as_bytes());
        }
        out
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        JsonWriter::new(out)
    }

    #[inline]
    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        push_stamp(out, line.stamp);
        out.extend_from_slice(line.class_prefix);
        out.extend_from_slice(line.stream_prefix);
        if !line.packet_prefix.is_empty() {
            out.extend_from_slice(b",\"packet\":");
            out.extend_from_slice(line.packet_prefix);
        }
        let mut sink = JsonWriter { is_symbolic: self.is_symbolic, ..JsonWriter::new(out) };
        body.read(&mut sink)?;
        if !sink.has_fields {
            out.extend_from_slice(b",\"fields\":{}");
        }
        out.extend_from_slice(b"}\n");
        Ok(DeltaSlot::default())
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        push_without_quotes(out, text, push_json_text);
    }
}

impl<C: Calendar> LineFormat for Json<C> {
    fn patch_delta(
        &mut self,
        out: &mut Vec<u8>,
        line: &[u8],
        _: DeltaSlot,
        _: Option<Stamp>,
        _: &mut LastShown,
    ) {
        out.extend_from_slice(line);
    }

    fn push_loss(
        &mut self,
        out: &mut Vec<u8>,
        place: LossPlace<'_>,
        loss: &Loss,
        shown: &mut LastShown,
    ) {
        self.messages.push_loss(out, place, loss, shown);
    }
}

/// Begins an object with the time, as a number and as a text, because some programs have no 64-bit
/// integers. Both are null if the stream has no clock.
fn push_stamp(out: &mut Vec<u8>, stamp: Option<Stamp>) {
    let Some(Stamp { time, .. }) = stamp else {
        out.extend_from_slice(b"{\"time\":null,\"timestamp\":null");
        return;
    };
    out.extend_from_slice(b"{\"time\":");
    push_signed(out, time);
    out.extend_from_slice(b",\"timestamp\":\"");
    push_seconds(out, time);
    out.push(b'"');
}

/// Formats nanoseconds as seconds with nine digits of a fraction.
pub fn format_seconds(time: i64) -> String {
    let mut out = Vec::new();
    push_seconds(&mut out, time);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends nanoseconds as seconds with nine digits of a fraction.
fn push_seconds(out: &mut Vec<u8>, time: i64) {
    if time < 0 {
        out.push(b'-');
    }
    push_decimal(out, time.unsigned_abs() / NS_PER_SECOND);
    out.push(b'.');
    out.extend_from_slice(&nine_digits(time.unsigned_abs() % NS_PER_SECOND));
}

/// Appends `,"name":`; without the comma at the beginning of an object.
pub(crate) fn push_json_key(out: &mut Vec<u8>, name: &str) {
    // A value never ends in an opening brace, because strings end in a quote.
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    push_json_text(out, name.as_bytes());
    out.push(b':');
}

/// Appends a value of the trace's environment.
pub(crate) fn push_environment_value(out: &mut Vec<u8>, value: &EnvironmentValue) {
    match value {
        EnvironmentValue::Number(number) => push_signed(out, *number),
        EnvironmentValue::Text(text) => push_json_text(out, text.as_bytes()),
    }
}

/// Appends values to a buffer as JSON, as they are decoded.
///
/// Structures become objects, arrays become arrays. An enumeration becomes an object of its `value`
/// and all of its `labels`, a variant an object whose only member is named after the option.
pub(crate) struct JsonWriter<'buffer> {
    out: &'buffer mut Vec<u8>,
    /// True once the payload has begun.
    has_fields: bool,
    /// Maximum length of `out` in bytes.
    limit: usize,
    /// True if numbers with named values are shown with their names.
    is_symbolic: bool,
    /// The number that was written last; names may depend on it.
    before: u64,
}

impl<'buffer> JsonWriter<'buffer> {
    /// Creates a writer to the end of `out`.
    pub(crate) const fn new(out: &'buffer mut Vec<u8>) -> Self {
        let limit = out.len().saturating_add(LINE_BYTES_MAX);
        Self { out, has_fields: false, limit, is_symbolic: false, before: 0 }
    }

    /// Creates a writer that shows numbers with their names.
    pub(crate) const fn symbolic(out: &'buffer mut Vec<u8>) -> Self {
        Self { is_symbolic: true, ..Self::new(out) }
    }
}

impl JsonWriter<'_> {
    /// Appends a number with named values in the form of an enumeration.
    #[cold]
    fn meaning(&mut self, meaning: &Meaning, kind: &Integer, value: u64) {
        self.out.extend_from_slice(b"{\"value\":");
        push_integer(self.out, kind, value);
        self.out.extend_from_slice(b",\"labels\":[");
        let out = &mut *self.out;
        let mut is_first = true;
        meaning.for_each_label(kind, (self.before, value), &mut |name| {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            push_json_text(out, name.as_bytes());
        });
        self.out.extend_from_slice(b"]}");
    }
}

impl Sink for JsonWriter<'_> {
    #[inline]
    fn integer(&mut self, kind: &Integer, value: u64) {
        match kind.meaning().filter(|meaning| self.is_symbolic && meaning.has_labels()) {
            None => push_integer(self.out, kind, value),
            Some(meaning) => self.meaning(meaning, kind, value),
        }
        self.before = value;
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.out.extend_from_slice(b"{\"value\":");
        push_integer(self.out, kind.integer(), value);
        self.out.extend_from_slice(b",\"labels\":[");
        for (index, label) in kind.labels_of(value).enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            push_json_text(self.out, label.as_bytes());
        }
        self.out.extend_from_slice(b"]}");
        self.before = value;
    }

    fn float(&mut self, value: f64) {
        push_json_float(self.out, value);
    }

    fn text(&mut self, bytes: &[u8]) {
        push_json_text(self.out, bytes);
    }

    fn begin_struct(&mut self) {
        self.out.push(b'{');
    }

    fn member(&mut self, member: &Member) {
        push_json_key(self.out, member.key());
    }

    fn end_struct(&mut self) {
        self.out.push(b'}');
    }

    fn begin_array(&mut self) {
        self.out.push(b'[');
    }

    fn element(&mut self, index: u64) {
        truncate_line(self.out, self.limit);
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn end_array(&mut self) {
        self.out.push(b']');
    }

    fn begin_variant(&mut self, option: &VariantOption) {
        self.out.push(b'{');
        push_json_key(self.out, option.name());
    }

    fn end_variant(&mut self) {
        self.out.push(b'}');
    }

    fn nothing(&mut self) {
        self.out.extend_from_slice(b"null");
    }
}

impl EventSink for JsonWriter<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        self.has_fields |= scope == Scope::Fields;
        self.out.extend_from_slice(match scope {
            Scope::StreamContext => b",\"context\":",
            Scope::EventContext => b",\"event_context\":",
            Scope::Fields => b",\"fields\":",
        });
    }
}

/// Appends an integer in decimal, whatever its type's base.
#[inline]
pub(crate) fn push_integer(out: &mut Vec<u8>, kind: &Integer, value: u64) {
    if kind.is_boolean() {
        out.extend_from_slice(if value == 0 { b"false" } else { b"true" });
    } else if kind.is_signed() {
        push_signed(out, value as i64);
    } else {
        push_decimal(out, value);
    }
}

/// Appends a number with the fewest digits that identify it, or a string if JSON has no number for
/// the value.
fn push_json_float(out: &mut Vec<u8>, value: f64) {
    // Writing to a vector cannot fail. Rust's debug form is a JSON number: `1.0`, `1e-7`.
    let _ = match non_finite_name(value) {
        Some(word) => write!(out, "\"{word}\""),
        None => write!(out, "{value:?}"),
    };
}

/// Returns the name of an infinite value or NaN, as Python and JavaScript parse it.
pub(crate) const fn non_finite_name(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value.is_sign_negative() { "-Infinity" } else { "Infinity" })
    } else {
        None
    }
}

/// Appends a string in quotes; invalid UTF-8 becomes U+FFFD.
pub(crate) fn push_json_text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    match std::str::from_utf8(bytes) {
        Ok(_) => push_escaped(out, bytes),
        Err(_) => {
            for chunk in bytes.utf8_chunks() {
                push_escaped(out, chunk.valid().as_bytes());
                if !chunk.invalid().is_empty() {
                    out.extend_from_slice("\u{fffd}".as_bytes());
                }
            }
        }
    }
    out.push(b'"');
}

/// Appends text, with JSON's escapes.
fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let is_escaped = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_escaped) {
        let (plain, from) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, after)) = from.split_first() else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = after;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_text(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        push_json_text(&mut out, bytes);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn any_bytes_become_a_valid_string() {
        for (bytes, expected) in [
            (&b"plain"[..], r#""plain""#),
            (b"a\"b\\c/d", r#""a\"b\\c/d""#),
            (b"\n\r\t\x01\x1f\x7f", "\"\\n\\r\\t\\u0001\\u001f\x7f\""),
            ("é\u{2028}".as_bytes(), "\"é\u{2028}\""),
            (b"a\xffb\xc3", "\"a\u{fffd}b\u{fffd}\""),
            (b"\xed\xa0\x80\"", "\"\u{fffd}\u{fffd}\u{fffd}\\\"\""),
        ] {
            assert_eq!(format_text(bytes), expected);
        }
        for byte in 0..=u8::MAX {
            let bytes = [b'a', byte, b'{'];
            let parsed: String = serde_json::from_str(&format_text(&bytes)).expect("JSON");
            assert_eq!(parsed, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn floats_come_back_as_they_were() {
        let float = |value: f64| {
            let mut out = Vec::new();
            push_json_float(&mut out, value);
            String::from_utf8(out).expect("ASCII")
        };
        for value in [0.0, -0.0, 1.0, 0.1, 1e16, 1e300, 5e-324, f64::MAX, -1.85e-7] {
            let parsed: f64 = serde_json::from_str(&float(value)).expect("a number");
            assert_eq!(parsed.to_bits(), value.to_bits(), "{value:?}");
        }
        assert_eq!(float(f64::NAN), r#""NaN""#);
        assert_eq!(float(f64::INFINITY), r#""Infinity""#);
        assert_eq!(float(f64::NEG_INFINITY), r#""-Infinity""#);
    }

    #[test]
    fn times_before_the_clocks_origin_have_a_sign() {
        let stamp = |time| {
            let mut out = Vec::new();
            push_stamp(&mut out, Some(Stamp { time, clock: 0 }));
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(stamp(-1), r#"{"time":-1,"timestamp":"-0.000000001""#);
        assert_eq!(
            stamp(i64::MIN),
            r#"{"time":-9223372036854775808,"timestamp":"-9223372036.854775808""#
        );
        assert_eq!(stamp(1_500_000_000), r#"{"time":1500000000,"timestamp":"1.500000000""#);
    }

    #[test]
    fn names_are_set_apart_by_commas() {
        let mut out = b"{".to_vec();
        push_json_key(&mut out, "a{");
        push_json_text(&mut out, b"{");
        push_json_key(&mut out, "b\"");
        out.extend_from_slice(b"{");
        push_json_key(&mut out, "c");
        assert_eq!(String::from_utf8(out).expect("ASCII"), r#"{"a{":"{","b\"":{"c":"#);
    }
}
