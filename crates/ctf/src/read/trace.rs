//! The classes of a trace's streams and events, compiled from its metadata for decoding.

use std::collections::HashMap;

use super::error::{MetadataError, TimeError};
use super::header::HeaderPlan;
use super::metadata::node::EnvironmentValue;
use super::metadata::{json, packetized, parser, resolve};
use super::stream::PACKET_MAGIC;
use crate::model::Uuid;
use crate::model::runs::FlatLayout;
use crate::model::types::{Role, Struct, Type};

/// The identity of a trace in CTF 2.
#[derive(Debug, Default, Clone)]
pub(crate) struct TraceName {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) uid: Option<String>,
}

/// The identity of a trace. All parts of a trace (rotated chunks, snapshots) share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceIdentity<'a> {
    /// CTF 1.8: the trace's UUID, if it has one.
    Uuid(Option<&'a [u8; 16]>),
    /// CTF 2: the three fields together. (The UUID in the metadata is no identity.)
    Name {
        /// Issuer of the name.
        namespace: Option<&'a str>,
        /// The name, often empty.
        name: Option<&'a str>,
        /// Identifier that is unique within its namespace and name.
        uid: Option<&'a str>,
    },
}

impl TraceIdentity<'_> {
    /// Returns true if all traces with this identity are parts of one trace. In CTF 2, a trace
    /// without a name or a unique id has no unique identity.
    pub const fn is_unique(&self) -> bool {
        match self {
            Self::Uuid(uuid) => uuid.is_some(),
            Self::Name { name, uid, .. } => name.is_some() && uid.is_some(),
        }
    }

    /// Returns the UUID, or the unique id, as text.
    pub fn uid(&self) -> Option<String> {
        match self {
            Self::Uuid(uuid) => uuid.map(|uuid| Uuid(uuid).to_string()),
            Self::Name { uid, .. } => uid.map(str::to_owned),
        }
    }
}

/// Content of a trace's metadata.
#[derive(Debug, Clone)]
pub struct Trace {
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) name: TraceName,
    pub(crate) environment: Vec<(String, EnvironmentValue)>,
    pub(crate) packet_header: Option<Type>,
    pub(crate) clocks: Vec<ClockClass>,
    pub(crate) streams: Vec<StreamClass>,
    pub(crate) slots: usize,
    pub(crate) big_endian: bool,
    pub(crate) major: u32,
}

impl Trace {
    /// Parses metadata: plain text, or text in packets; TSDL (CTF 1.8) or JSON (CTF 2).
    pub fn parse(metadata: &[u8]) -> Result<Self, MetadataError> {
        let text = packetized::extract_text(metadata)?;
        let is_json = json::is_version_2(&text);
        let document = if is_json { json::parse(&text)? } else { parser::parse(&text)? };
        resolve::resolve_document(&document)
    }

    /// Returns the major version of CTF: 1 (for 1.8) or 2.
    pub const fn major_version(&self) -> u32 {
        self.major
    }

    /// Returns the trace's UUID. Packets repeat it; like babeltrace2, the reader ignores those
    /// copies.
    pub const fn uuid(&self) -> Option<&[u8; 16]> {
        self.uuid.as_ref()
    }

    /// Returns the trace's identity.
    pub fn identity(&self) -> TraceIdentity<'_> {
        if self.major < 2 {
            return TraceIdentity::Uuid(self.uuid());
        }
        let TraceName { namespace, name, uid } = &self.name;
        TraceIdentity::Name {
            namespace: namespace.as_deref(),
            name: name.as_deref(),
            uid: uid.as_deref(),
        }
    }

    /// Returns the value of `name` in the trace's environment, e.g. `hostname`.
    pub fn environment(&self, name: &str) -> Option<&EnvironmentValue> {
        // The latest entry with the name applies.
        self.environment.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Returns the text of an environment entry, if the entry is a text.
    pub fn environment_text(&self, name: &str) -> Option<&str> {
        match self.environment(name) {
            Some(EnvironmentValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns all entries of the trace's environment, in the order of their declaration.
    pub fn environment_entries(&self) -> &[(String, EnvironmentValue)] {
        &self.environment
    }

    /// Returns the clocks, in the order of their declaration.
    pub fn clocks(&self) -> &[ClockClass] {
        &self.clocks
    }

    /// Returns true if the trace's numbers are big-endian by default.
    pub const fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Returns the type of the packet header.
    pub const fn packet_header(&self) -> Option<&Type> {
        self.packet_header.as_ref()
    }

    /// Moves all clocks by `seconds` and `nanoseconds`. Returns false, with nothing changed, if a
    /// clock's times would no longer fit 64 bits of nanoseconds.
    pub fn shift_clocks(&mut self, seconds: i64, nanoseconds: i64) -> bool {
        let (seconds, nanoseconds) = (
            seconds.saturating_add(nanoseconds.div_euclid(NS_PER_SECOND as i64)),
            nanoseconds.rem_euclid(NS_PER_SECOND as i64) as u64,
        );
        let mut clocks = self.clocks.clone();
        for clock in &mut clocks {
            let cycles = match clock.frequency {
                NS_PER_SECOND => nanoseconds as i64,
                // Rounds like babeltrace2.
                hz => (nanoseconds as f64 * hz as f64 / 1e9) as i64,
            };
            clock.offset_seconds = clock.offset_seconds.saturating_add(seconds);
            clock.offset_cycles = clock.offset_cycles.saturating_add(cycles);
        }
        let of = |class: &StreamClass| {
            let id = class.clock_id.as_deref();
            clocks.iter().find(|clock| Some(clock.id.as_str()) == id)?.clock()
        };
        let moved: Vec<Option<Clock>> = self.streams.iter().map(of).collect();
        let mut pairs = self.streams.iter().zip(&moved);
        if pairs.any(|(class, moved)| class.clock.is_some() && moved.is_none()) {
            return false;
        }
        for (class, moved) in self.streams.iter_mut().zip(moved) {
            class.clock = moved;
        }
        self.clocks = clocks;
        true
    }

    /// Returns the first bytes of each packet, if they are CTF's magic number.
    pub fn packet_magic(&self) -> Option<[u8; 4]> {
        let Some(Type::Struct(header)) = &self.packet_header else { return None };
        match &header.members.first()?.kind {
            Type::Integer(magic) if magic.role == Role::Magic && magic.bits == 32 => {
                let bytes = PACKET_MAGIC as u32;
                Some(if magic.big_endian { bytes.to_be_bytes() } else { bytes.to_le_bytes() })
            }
            _ => None,
        }
    }

    /// Returns the number of slots, which hold values that other fields depend on.
    pub const fn slots_count(&self) -> usize {
        self.slots
    }

    /// Returns the stream classes, in the order of their declaration.
    pub fn streams(&self) -> &[StreamClass] {
        &self.streams
    }
}

/// Properties shared by all streams of a class.
#[derive(Debug, Clone)]
pub struct StreamClass {
    pub(crate) id: u64,
    pub(crate) packet_context: Option<Type>,
    pub(crate) event_header: Option<Type>,
    pub(crate) event_context: Option<Type>,
    pub(crate) events: Vec<EventClass>,
    pub(crate) events_by_id: HashMap<u64, usize>,
    pub(crate) clock: Option<Clock>,
    pub(crate) clock_name: Option<String>,
    /// Identity of the stream's clock, because names of clocks are not unique in CTF 2.
    pub(crate) clock_id: Option<String>,
    pub(crate) has_packet_times: bool,
    /// Plan for reading event headers without a walk, if there is one.
    pub(crate) header_plan: Option<HeaderPlan>,
}

impl StreamClass {
    /// Returns the id by which packets refer to the class.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the event classes, in the order of their declaration.
    pub fn events(&self) -> &[EventClass] {
        &self.events
    }

    /// Returns the type of the packet context, which follows each packet's header.
    pub const fn packet_context(&self) -> Option<&Type> {
        self.packet_context.as_ref()
    }

    /// Returns the type of the event header.
    pub const fn event_header(&self) -> Option<&Type> {
        self.event_header.as_ref()
    }

    /// Returns the type of the stream's event context, which follows each event's header.
    pub const fn event_context(&self) -> Option<&Type> {
        self.event_context.as_ref()
    }

    /// Returns the name of the stream's clock in [`Trace::clocks`].
    pub fn clock_name(&self) -> Option<&str> {
        self.clock_name.as_deref()
    }

    /// Returns the stream's clock, if a field sets one.
    pub const fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Returns the event class with id `id`.
    #[inline(always)]
    pub fn event(&self, id: u64) -> Option<&EventClass> {
        // In most traces, ids count up from 0 in the order of declaration.
        let guess = usize::try_from(id).ok()?;
        match self.events.get(guess) {
            Some(event) if event.id == id => Some(event),
            _ => self.events.get(*self.events_by_id.get(&id)?),
        }
    }
}

/// Properties shared by all events of a class.
#[derive(Debug, Clone)]
pub struct EventClass {
    pub(crate) id: u64,
    pub(crate) index: usize,
    pub(crate) name: Option<String>,
    pub(crate) level: Option<i64>,
    pub(crate) emf_uri: Option<String>,
    pub(crate) context: Option<Type>,
    pub(crate) fields: Option<Type>,
    /// Alignment and size in bits of each part (contexts and payload), if they are the same for all
    /// events of the class.
    pub(crate) fixed: Option<Vec<(u64, u64)>>,
    /// Layout of the parts, if they begin with numbers at known places.
    pub(crate) flat: Option<FlatLayout>,
}

impl EventClass {
    /// Returns the id of the event in its stream class.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the index of the event in [`StreamClass::events`].
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns the name of the event; in LTTng and Trackway `provider:name`.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the log level; 0 is the gravest.
    pub const fn level(&self) -> Option<i64> {
        self.level
    }

    /// Returns the address of the event's model (Eclipse Modeling Framework).
    pub fn emf_uri(&self) -> Option<&str> {
        self.emf_uri.as_deref()
    }

    /// Returns the type of the event's own context.
    pub const fn context_type(&self) -> Option<&Type> {
        self.context.as_ref()
    }

    /// Returns the type of the payload.
    pub const fn fields_type(&self) -> Option<&Type> {
        self.fields.as_ref()
    }

    /// Returns the event's own context, which is between the stream's context and the payload.
    pub const fn context(&self) -> Option<&Struct> {
        match &self.context {
            Some(Type::Struct(context)) => Some(context),
            _ => None,
        }
    }

    /// Returns the payload.
    pub const fn fields(&self) -> Option<&Struct> {
        match &self.fields {
            Some(Type::Struct(fields)) => Some(fields),
            _ => None,
        }
    }
}

/// A clock as the metadata describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockClass {
    /// Identifier by which fields and streams refer to the clock: in CTF 1.8, its name.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) description: Option<String>,
    pub(crate) frequency: u64,
    pub(crate) precision: u64,
    pub(crate) offset_seconds: i64,
    pub(crate) offset_cycles: i64,
    pub(crate) absolute: bool,
}

impl ClockClass {
    /// Creates a clock of 1 GHz that begins at its origin: the default of CTF 1.8.
    pub(crate) const fn new() -> Self {
        Self {
            id: String::new(),
            name: String::new(),
            uuid: None,
            description: None,
            frequency: NS_PER_SECOND,
            precision: 1,
            offset_seconds: 0,
            offset_cycles: 0,
            absolute: false,
        }
    }

    /// Returns the name of the clock.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the clock's UUID: clocks with the same UUID are the same clock.
    pub const fn uuid(&self) -> Option<&[u8; 16]> {
        self.uuid.as_ref()
    }

    /// Returns the clock's description.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Returns the frequency in Hz, never 0.
    pub const fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Returns the uncertainty of the clock's values, in cycles.
    pub const fn precision(&self) -> u64 {
        self.precision
    }

    /// Returns the offset of the clock's zero from its origin: seconds, and additional cycles.
    pub const fn offset(&self) -> (i64, i64) {
        (self.offset_seconds, self.offset_cycles)
    }

    /// Returns the clock's zero in nanoseconds since its origin (mostly 1970); `None` if it does
    /// not fit 64 bits.
    pub fn zero_ns(&self) -> Option<i64> {
        self.clock().map(|clock| clock.base_ns)
    }

    /// Returns true if the clock has the same origin as all other absolute clocks.
    pub const fn is_absolute(&self) -> bool {
        self.absolute
    }

    /// Returns the conversion of the clock's values to times; `None` if its zero does not fit 64
    /// bits of nanoseconds.
    pub(crate) fn clock(&self) -> Option<Clock> {
        Clock::new(self.frequency, self.offset_seconds, self.offset_cycles)
    }
}

/// The conversion of a clock's values to times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    pub(crate) frequency: u64,
    /// Time of the clock's zero, in nanoseconds since its origin (mostly 1970).
    pub(crate) base_ns: i64,
}

const NS_PER_SECOND: u64 = 1_000_000_000;

impl Clock {
    /// Creates a clock of `frequency` Hz (not 0) that begins `seconds` and `cycles` after its
    /// origin. Returns `None` if that does not fit 64 bits of nanoseconds.
    pub(crate) fn new(frequency: u64, seconds: i64, cycles: i64) -> Option<Self> {
        let total = i128::from(seconds) * i128::from(frequency) + i128::from(cycles);
        let seconds = total.div_euclid(i128::from(frequency));
        let rest = total.rem_euclid(i128::from(frequency)) as u64;
        let base = seconds * i128::from(NS_PER_SECOND) + i128::from(cycles_to_ns(frequency, rest));
        Some(Self { frequency, base_ns: i64::try_from(base).ok()? })
    }

    /// Returns the time of the value `cycles`, in nanoseconds since the clock's origin.
    pub fn ns_from_origin(&self, cycles: u64) -> Result<i64, TimeError> {
        let ns = if self.frequency == NS_PER_SECOND {
            cycles
        } else {
            cycles_to_ns(self.frequency, cycles)
        };
        self.base_ns.checked_add_unsigned(ns).ok_or(TimeError { cycles })
    }
}

/// Converts cycles to nanoseconds, rounded like babeltrace2 (by a double).
fn cycles_to_ns(frequency: u64, cycles: u64) -> u64 {
    if frequency == NS_PER_SECOND {
        return cycles;
    }
    ((1e9 * cycles as f64) / frequency as f64) as u64
}
