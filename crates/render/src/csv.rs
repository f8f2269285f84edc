//! Events as comma-separated values (RFC 4180), for spreadsheets and pandas.
//!
//! ```text
//! time,name,hostname,procname,vpid,stream,cpu_id,context,event_context,fields
//! 1795228670847582868,app:request,host,,,0,0,"{""vtid"":7}",,"{""n"":1}"
//! ```
//!
//! Events of different classes have different fields, so fields are usually one JSON column. If all
//! events are of one class ([`Csv::with_columns`]), each field has its own column. The first line
//! names the columns. Lines end in a newline without a carriage return, which all readers accept.

use std::io::Write as _;
use std::sync::Arc;

use trackway_ctf::read::{
    CpuId, DecodeError, Enumeration, EnvironmentValue, EventBody, EventClass, EventSink, Integer,
    Loss, Meaning, Member, Scope, Sink, StreamClass, Trace, Type, VariantOption,
};

use crate::format::{
    DeltaSlot, EventEncoder, LINE_BYTES_MAX, LastShown, Line, LineFormat, LossPlace, Stamp,
    TraceName, push_without_quotes, truncate_line,
};
use crate::json::{JsonWriter, non_finite_name, push_integer, push_json_text};
use crate::meaning::push_meaning;
use crate::number::{push_decimal, push_signed};
use crate::pretty::Pretty;
use crate::time::Calendar;

/// Columns of every line.
const COMMON_COLUMNS: &str = "time,name,hostname,procname,vpid,stream,cpu_id";
/// Number of scope columns if each scope is one column.
const SCOPE_COLUMNS: usize = 3;

/// Writes events as lines of comma-separated values. Reports losses like [`Pretty`].
#[derive(Debug, Clone)]
pub struct Csv<C> {
    messages: Pretty<C>,
    /// Names of the additional columns, if each field has its own column.
    columns: Option<Arc<[String]>>,
    /// True if numbers with named values are shown by name.
    is_symbolic: bool,
}

impl<C> Csv<C> {
    /// Creates the format for events of any class; `messages` reports losses.
    pub const fn new(messages: Pretty<C>) -> Self {
        Self { messages, columns: None, is_symbolic: false }
    }

    /// Creates the format for events of one class. `columns` are the result of [`event_columns`],
    /// and all events must have them.
    pub fn with_columns(messages: Pretty<C>, columns: Vec<String>) -> Self {
        Self { messages, columns: Some(columns.into()), is_symbolic: false }
    }

    /// Sets whether numbers with named values are shown by name.
    #[must_use]
    pub fn symbolic(self, is_symbolic: bool) -> Self {
        Self { is_symbolic, ..self }
    }
}

/// Returns one column for each context and payload field of an event, in order: members of the
/// stream's context, of the event's context, of the payload. Returns `None` if one of these scopes
/// is not a structure.
///
/// A name that is already taken gets its scope's name as a prefix.
pub fn event_columns(stream: &StreamClass, event: &EventClass) -> Option<Vec<String>> {
    let mut columns: Vec<String> = Vec::new();
    let scopes = [
        ("context", stream.event_context()),
        ("event_context", event.context_type()),
        ("fields", event.fields_type()),
    ];
    for (scope, kind) in scopes {
        let Some(kind) = kind.filter(|kind| !kind.is_hidden()) else { continue };
        let Type::Struct(structure) = kind else { return None };
        for member in structure.members().iter().filter(|member| !member.is_hidden()) {
            let name = member.key();
            let is_taken = columns.iter().any(|column| column == name)
                || COMMON_COLUMNS.split(',').any(|column| column == name);
            columns.push(if is_taken { format!("{scope}.{name}") } else { name.to_owned() });
        }
    }
    Some(columns)
}

impl<C: Calendar> EventEncoder for Csv<C> {
    fn stream_prefix(&self, trace: &Trace, _: TraceName<'_>, stream: &StreamClass) -> Vec<u8> {
        let mut out = Vec::new();
        for name in ["hostname", "procname", "vpid"] {
            out.push(b',');
            match trace.environment(name) {
                Some(EnvironmentValue::Text(text)) => push_csv_cell(&mut out, text.as_bytes()),
                Some(EnvironmentValue::Number(number)) => push_signed(&mut out, *number),
                None => {}
            }
        }
        out.push(b',');
        push_decimal(&mut out, stream.id());
        out
    }

    fn class_prefix(&self, _: &Trace, _: &StreamClass, event: &EventClass) -> Vec<u8> {
        let mut out = vec![b','];
        push_csv_cell(&mut out, event.name().unwrap_or_default().as_bytes());
        out
    }

    fn packet_sink(&self, out: &mut Vec<u8>) -> impl Sink {
        CpuId::new(|kind, value| push_integer(out, kind, value))
    }

    fn push_event(
        &mut self,
        out: &mut Vec<u8>,
        line: Line<'_>,
        body: EventBody<'_, '_, '_>,
    ) -> Result<DeltaSlot, DecodeError> {
        if let Some(stamp) = line.stamp {
            push_signed(out, stamp.time);
        }
        out.extend_from_slice(line.class_prefix);
        out.extend_from_slice(line.stream_prefix);
        out.push(b',');
        out.extend_from_slice(line.packet_prefix);
        let limit = out.len().saturating_add(LINE_BYTES_MAX);
        let mut sink = CellWriter {
            out,
            limit,
            is_column_each: self.columns.is_some(),
            is_symbolic: self.is_symbolic,
            scopes: 0,
            depth: 0,
            json: Vec::new(),
            before: 0,
        };
        body.read(&mut sink)?;
        sink.finish();
        out.push(b'\n');
        Ok(DeltaSlot::default())
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        if self.columns.is_some() {
            return push_csv_cell(out, text);
        }
        let mut inner = Vec::new();
        push_without_quotes(&mut inner, text, push_json_text);
        push_csv_inner(out, &inner);
    }
}

impl<C: Calendar> LineFormat for Csv<C> {
    fn preamble(&self) -> Vec<u8> {
        let mut out = COMMON_COLUMNS.as_bytes().to_vec();
        match &self.columns {
            None => out.extend_from_slice(b",context,event_context,fields"),
            Some(columns) => {
                for column in columns.iter() {
                    out.push(b',');
                    push_csv_cell(&mut out, column.as_bytes());
                }
            }
        }
        out.push(b'\n');
        out
    }

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

/// Appends a cell as UTF-8, in quotes if its content requires them.
pub fn push_csv_cell(out: &mut Vec<u8>, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        out.extend_from_slice(bytes);
        return;
    }
    out.push(b'"');
    push_csv_inner(out, bytes);
    out.push(b'"');
}

/// Appends the content of a cell between its quotes.
fn push_csv_inner(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
}

/// Writes an event's contexts and fields as cells, each after its comma: one for each scope, or one
/// for each member of a scope. Composite values are JSON.
struct CellWriter<'buffer> {
    out: &'buffer mut Vec<u8>,
    /// Maximum length of `out` in bytes.
    limit: usize,
    is_column_each: bool,
    /// True if numbers with named values are shown by name.
    is_symbolic: bool,
    /// Number of scopes whose cells are begun or skipped.
    scopes: usize,
    /// Number of open structures, arrays and variants.
    depth: u32,
    /// Text of an unfinished composite value.
    json: Vec<u8>,
    /// The number that was written last; names may depend on it.
    before: u64,
}

impl CellWriter<'_> {
    /// Adds empty cells for the scopes that the event does not have.
    fn finish(&mut self) {
        if !self.is_column_each {
            for _ in self.scopes..SCOPE_COLUMNS {
                self.out.push(b',');
            }
        }
    }

    /// Returns the depth of a cell's value.
    const fn cell_depth(&self) -> u32 {
        self.is_column_each as u32
    }

    /// Returns true if the next value is a part of a composite cell.
    const fn is_part(&self) -> bool {
        self.depth > self.cell_depth()
    }

    fn begin(&mut self, to_json: impl FnOnce(&mut JsonWriter<'_>)) {
        if self.depth >= self.cell_depth() {
            to_json(&mut JsonWriter::new(&mut self.json));
        }
        self.depth += 1;
    }

    fn end(&mut self, to_json: impl FnOnce(&mut JsonWriter<'_>)) {
        self.depth -= 1;
        if self.depth >= self.cell_depth() {
            to_json(&mut JsonWriter::new(&mut self.json));
        }
        if self.depth == self.cell_depth() {
            push_csv_cell(self.out, &self.json);
            self.json.clear();
            truncate_line(self.out, self.limit);
        }
    }
}

impl EventSink for CellWriter<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        if self.is_column_each {
            return;
        }
        let index = match scope {
            Scope::StreamContext => 0,
            Scope::EventContext => 1,
            Scope::Fields => 2,
        };
        while self.scopes <= index {
            self.out.push(b',');
            self.scopes += 1;
        }
    }
}

impl CellWriter<'_> {
    /// Writes a number with a meaning: as text in a cell, or as JSON inside JSON.
    #[cold]
    fn meaning(&mut self, meaning: &Meaning, kind: &Integer, value: u64) {
        if self.is_part() {
            return JsonWriter::symbolic(&mut self.json).integer(kind, value);
        }
        let mut text = Vec::new();
        push_meaning(&mut text, meaning, kind, (self.before, value));
        push_csv_cell(self.out, &text);
    }
}

impl Sink for CellWriter<'_> {
    fn integer(&mut self, kind: &Integer, value: u64) {
        match kind.meaning().filter(|_| self.is_symbolic) {
            Some(meaning) => self.meaning(meaning, kind, value),
            None => {
                push_integer(if self.is_part() { &mut self.json } else { self.out }, kind, value)
            }
        }
        self.before = value;
    }

    /// Writes the label if there is exactly one: programs show and group values by label.
    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        self.before = value;
        if self.is_part() {
            return JsonWriter::new(&mut self.json).enumeration(kind, value);
        }
        let mut labels = kind.labels_of(value);
        match (labels.next(), labels.next()) {
            (Some(label), None) => push_csv_cell(self.out, label.as_bytes()),
            _ => push_integer(self.out, kind.integer(), value),
        }
    }

    fn float(&mut self, value: f64) {
        if self.is_part() {
            return JsonWriter::new(&mut self.json).float(value);
        }
        // Writing to a vector cannot fail.
        let _ = match non_finite_name(value) {
            Some(word) => write!(self.out, "{word}"),
            None => write!(self.out, "{value:?}"),
        };
    }

    fn text(&mut self, bytes: &[u8]) {
        if self.is_part() {
            return JsonWriter::new(&mut self.json).text(bytes);
        }
        push_csv_cell(self.out, bytes);
    }

    fn begin_struct(&mut self) {
        self.begin(|json| json.begin_struct());
    }

    fn member(&mut self, member: &Member) {
        if self.is_part() {
            JsonWriter::new(&mut self.json).member(member);
        } else {
            self.out.push(b',');
        }
    }

    fn end_struct(&mut self) {
        self.end(|json| json.end_struct());
    }

    fn begin_array(&mut self) {
        self.begin(|json| json.begin_array());
    }

    fn element(&mut self, index: u64) {
        truncate_line(&mut self.json, LINE_BYTES_MAX);
        JsonWriter::new(&mut self.json).element(index);
    }

    fn end_array(&mut self) {
        self.end(|json| json.end_array());
    }

    fn begin_variant(&mut self, option: &VariantOption) {
        self.begin(|json| json.begin_variant(option));
    }

    fn end_variant(&mut self) {
        self.end(|json| json.end_variant());
    }

    /// Writes nothing into a cell, or JSON's null.
    fn nothing(&mut self) {
        if self.is_part() {
            JsonWriter::new(&mut self.json).nothing();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::push_csv_cell;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let cell = |bytes: &[u8]| {
            let mut out = Vec::new();
            push_csv_cell(&mut out, bytes);
            String::from_utf8(out).expect("UTF-8")
        };
        assert_eq!(cell(b""), "");
        assert_eq!(cell(b"plain text; 'quoted'"), "plain text; 'quoted'");
        assert_eq!(cell(b"a,b"), "\"a,b\"");
        assert_eq!(cell(b"say \"it\""), "\"say \"\"it\"\"\"");
        assert_eq!(cell(b"two\nlines\r"), "\"two\nlines\r\"");
        assert_eq!(cell(b"\xff"), "\u{fffd}");
    }
}
