//! Events as values: for tests, and for callers that need fields rather than text.

use super::decode::Sink;
use super::error::DecodeError;
use super::stream::{EventSink, Loss, Packet, StreamDecoder, Window};
use super::trace::Trace;
use crate::model::scope::Scope;
use crate::model::types::{Enumeration, Integer, Member, VariantOption};

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer without sign.
    Unsigned(u64),
    /// An integer with sign.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// Text: any bytes but NUL.
    Text(Vec<u8>),
    /// An integer with its labels; the list is empty if no label applies.
    Labelled(Box<Value>, Vec<String>),
    /// Elements of an array or a sequence.
    Array(Vec<Value>),
    /// Members of a structure, by name.
    Struct(Vec<(String, Value)>),
    /// The selected option of a variant, by name.
    Variant(String, Box<Value>),
    /// A truth value.
    Boolean(bool),
    /// An absent optional field.
    Nothing,
}

impl Value {
    /// Returns the value of a structure's member.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let Self::Struct(members) = self else { return None };
        members.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}

/// An event with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Index of the event's stream among the given streams.
    pub stream: usize,
    /// Name of the event.
    pub name: String,
    /// Time in nanoseconds since the clock's origin.
    pub time: Option<i64>,
    /// Clock value of the event.
    pub clock: u64,
    /// Visible members of the packet's context, e.g. `cpu_id`.
    pub packet_context: Option<Value>,
    /// Fields that all events of the stream have, e.g. `vtid`.
    pub stream_context: Option<Value>,
    /// Fields that the event's class adds.
    pub event_context: Option<Value>,
    /// The payload.
    pub fields: Option<Value>,
}

/// All events, packets and losses of a stream, and the damage that stopped reading, if any.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StreamEvents {
    /// Events, in the order of their bytes.
    pub events: Vec<Event>,
    /// Packets, in order.
    pub packets: Vec<Packet>,
    /// Losses of the tracer.
    pub losses: Vec<Loss>,
    /// Start of the damaged packet in bytes, and its error.
    pub damage: Option<(usize, DecodeError)>,
}

/// Reads a whole stream (one file's bytes) into memory.
pub fn read_stream(trace: &Trace, bytes: &[u8]) -> StreamEvents {
    let mut read = StreamEvents::default();
    let mut decoder = StreamDecoder::new(trace);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match read_packet(&mut decoder, rest, &mut read) {
            Ok(size) => at += size,
            Err(error) => {
                read.damage = Some((at, error));
                break;
            }
        }
    }
    read
}

/// Reads the streams of a trace (each one file's bytes) into memory. Returns their events, by time
/// and then by stream, and true if nothing was damaged.
pub fn read_trace(trace: &Trace, streams: &[&[u8]]) -> (Vec<Event>, bool) {
    let mut events = Vec::new();
    let mut whole = true;
    for (index, bytes) in streams.iter().enumerate() {
        let read = read_stream(trace, bytes);
        whole &= read.damage.is_none();
        events.extend(read.events.into_iter().map(|event| Event { stream: index, ..event }));
    }
    events.sort_by_key(|event| (event.time, event.stream));
    (events, whole)
}

/// Reads one packet at the start of `bytes`; returns its size in bytes.
fn read_packet(
    decoder: &mut StreamDecoder<'_>,
    bytes: &[u8],
    read: &mut StreamEvents,
) -> Result<usize, DecodeError> {
    let window = Window::whole(bytes);
    let mut context = ValueSink::default();
    let losses = &mut read.losses;
    let packet =
        decoder.begin_packet(window, bytes.len() as u64, &mut context, |loss| losses.push(loss))?;
    let packet_context = context.done.pop();
    read.packets.push(packet);
    let size = packet.packet_bits.map_or(Some(bytes.len()), |bits| usize::try_from(bits / 8).ok());
    let size = size.filter(|&size| size <= bytes.len());
    while let Some(body) = decoder.begin_event(window)? {
        let (header, mut sink) = (body.header, ValueSink::default());
        body.read(&mut sink)?;
        let mut event = Event {
            stream: 0,
            name: header.class.name().unwrap_or_default().to_owned(),
            time: header.time,
            clock: header.clock,
            packet_context: packet_context.clone(),
            stream_context: None,
            event_context: None,
            fields: None,
        };
        for (scope, value) in sink.scopes.iter().zip(sink.done) {
            *match scope {
                Scope::StreamContext => &mut event.stream_context,
                Scope::EventContext => &mut event.event_context,
                Scope::Fields => &mut event.fields,
            } = Some(value);
        }
        read.events.push(event);
    }
    size.ok_or(DecodeError::Truncated { bit: 8 * bytes.len() as u64 })
}

/// A sink that builds values.
#[derive(Debug, Default)]
pub(crate) struct ValueSink {
    /// Values that are still open: structures, arrays, variants.
    open: Vec<Value>,
    /// Values of whole scopes.
    done: Vec<Value>,
    scopes: Vec<Scope>,
    names: Vec<String>,
}

impl ValueSink {
    fn put(&mut self, value: Value) {
        match self.open.last_mut() {
            None => self.done.push(value),
            Some(Value::Array(elements)) => elements.push(value),
            Some(Value::Variant(_, chosen)) => **chosen = value,
            Some(Value::Struct(members)) => {
                members.push((self.names.pop().unwrap_or_default(), value));
            }
            Some(_) => {}
        }
    }

    fn close(&mut self) {
        if let Some(value) = self.open.pop() {
            self.put(value);
        }
    }
}

fn integer_value(kind: &Integer, value: u64) -> Value {
    match kind.is_signed() {
        _ if kind.is_boolean() => Value::Boolean(value != 0),
        true => Value::Signed(value as i64),
        false => Value::Unsigned(value),
    }
}

impl Sink for ValueSink {
    fn integer(&mut self, kind: &Integer, value: u64) {
        self.put(integer_value(kind, value));
    }

    fn enumeration(&mut self, kind: &Enumeration, value: u64) {
        let labels = kind.labels_of(value).map(str::to_owned).collect();
        self.put(Value::Labelled(Box::new(integer_value(kind.integer(), value)), labels));
    }

    fn float(&mut self, value: f64) {
        self.put(Value::Float(value));
    }

    fn text(&mut self, bytes: &[u8]) {
        self.put(Value::Text(bytes.to_vec()));
    }

    fn begin_struct(&mut self) {
        self.open.push(Value::Struct(Vec::new()));
    }

    fn member(&mut self, member: &Member) {
        self.names.push(member.name().to_owned());
    }

    fn end_struct(&mut self) {
        self.close();
    }

    fn begin_array(&mut self) {
        self.open.push(Value::Array(Vec::new()));
    }

    fn end_array(&mut self) {
        self.close();
    }

    fn begin_variant(&mut self, option: &VariantOption) {
        self.open.push(Value::Variant(option.name().to_owned(), Box::new(Value::Unsigned(0))));
    }

    fn end_variant(&mut self) {
        self.close();
    }

    fn nothing(&mut self) {
        self.put(Value::Nothing);
    }
}

impl EventSink for ValueSink {
    fn begin_scope(&mut self, scope: Scope) {
        self.scopes.push(scope);
    }
}
