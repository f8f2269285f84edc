//! A trace as its metadata describes it: classes of streams and events, ready for decoding.

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

/// The identity of a trace. The pieces of one trace (rotated chunks, snapshots) share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceIdentity<'a> {
    /// CTF 1.8: the trace's UUID, if it has one.
    Uuid(Option<&'a [u8; 16]>),
    /// CTF 2: the three fields together. (The UUID of the metadata is no identity.)
    Name {
        /// Issuer of the name.
        namespace: Option<&'a str>,
        /// The name, often empty.
        name: Option<&'a str>,
        /// Identifier that is unique within the other two.
        uid: Option<&'a str>,
    },
}

impl TraceIdentity<'_> {
    /// Returns true if traces of this identity are pieces of one trace. In CTF 2, a trace without a
    /// name or a unique id may be any trace.
    pub const fn is_unique(&self) -> bool {
        match self {
            Self::Uuid(uuid) => uuid.is_some(),
            Self::Name { name, uid, .. } => name.is_some() && uid.is_some(),
        }
    }

    /// The UUID, or the unique id, as text.
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
    /// Reads metadata: plain text, or text in packets; TSDL (CTF 1.8) or JSON (CTF 2).
    pub fn parse(metadata: &[u8]) -> Result<Self, MetadataError> {
        let text = packetized::extract_text(metadata)?;
        let is_json = json::is_version_2(&text);
        let document = if is_json { json::parse(&text)? } else { parser::parse(&text)? };
        resolve::resolve_document(&document)
    }

    /// The version of CTF: 1 (which is 1.8) or 2.
    pub const fn major_version(&self) -> u32 {
        self.major
    }

    /// The trace's identity. Packets repeat it; as in babeltrace2, what they say is not looked at.
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
        // The latest counts.
        self.environment.iter().rev().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// A text of the environment, if `name` is one.
    pub fn environment_text(&self, name: &str) -> Option<&str> {
        match self.environment(name) {
            Some(EnvironmentValue::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// All that the trace's environment says, in the order of its declaration.
    pub fn environment_entries(&self) -> &[(String, EnvironmentValue)] {
        &self.environment
    }

    /// Clocks, in the order of their declaration.
    pub fn clocks(&self) -> &[ClockClass] {
        &self.clocks
    }

    /// Returns true if the trace's numbers are big endian by default.
    pub const fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Returns the type of the header of every packet.
    pub const fn packet_header(&self) -> Option<&Type> {
        self.packet_header.as_ref()
    }

    /// Moves all clocks by `seconds` and `nanoseconds`. Whether their times are still within what
    /// 64 bits of nanoseconds hold; if not, nothing has changed.
    pub fn shift_clocks(&mut self, seconds: i64, nanoseconds: i64) -> bool {
        let (seconds, nanoseconds) = (
            seconds.saturating_add(nanoseconds.div_euclid(NS_PER_SECOND as i64)),
            nanoseconds.rem_euclid(NS_PER_SECOND as i64) as u64,
        );
        let mut clocks = self.clocks.clone();
        for clock in &mut clocks {
            let cycles = match clock.frequency {
                NS_PER_SECOND => nanoseconds as i64,
                // As babeltrace2 rounds.
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

    /// The bytes that each packet begins with, if that is CTF's magic number.
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

    /// Number of slots: values that other fields depend on.
    pub const fn slots_count(&self) -> usize {
        self.slots
    }

    /// Classes of streams, in the order of their declaration.
    pub fn streams(&self) -> &[StreamClass] {
        &self.streams
    }
}

/// Properties that all streams of a class have in common.
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
    /// Plan for reading event headers without walking through them, if there is one.
    pub(crate) header_plan: Option<HeaderPlan>,
}

impl StreamClass {
    /// The id that packets name it by.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its events, in the order of their declaration.
    pub fn events(&self) -> &[EventClass] {
        &self.events
    }

    /// Returns the type of the context after each packet's header.
    pub const fn packet_context(&self) -> Option<&Type> {
        self.packet_context.as_ref()
    }

    /// Returns the type of the header of every event.
    pub const fn event_header(&self) -> Option<&Type> {
        self.event_header.as_ref()
    }

    /// Returns the type of the context after each event's header.
    pub const fn event_context(&self) -> Option<&Type> {
        self.event_context.as_ref()
    }

    /// Name of its clock in [`Trace::clocks`].
    pub fn clock_name(&self) -> Option<&str> {
        self.clock_name.as_deref()
    }

    /// Its clock, if any of its fields sets one.
    pub const fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// The event that headers name by `id`.
    #[inline(always)]
    pub fn event(&self, id: u64) -> Option<&EventClass> {
        // Nearly always, ids count up from 0 in the order of declaration.
        let guess = usize::try_from(id).ok()?;
        match self.events.get(guess) {
            Some(event) if event.id == id => Some(event),
            _ => self.events.get(*self.events_by_id.get(&id)?),
        }
    }
}

/// Properties that all events of a class have in common.
#[derive(Debug, Clone)]
pub struct EventClass {
    pub(crate) id: u64,
    pub(crate) index: usize,
    pub(crate) name: Option<String>,
    pub(crate) level: Option<i64>,
    pub(crate) emf_uri: Option<String>,
    pub(crate) context: Option<Type>,
    pub(crate) fields: Option<Type>,
    /// Alignment and size in bits of each part of its events (contexts and payload), if they are
    /// the same for all of them.
    pub(crate) fixed: Option<Vec<(u64, u64)>>,
    /// The same parts, if all are numbers at known places.
    pub(crate) flat: Option<FlatLayout>,
}

impl EventClass {
    /// Its id in its stream class.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its place in [`StreamClass::events`].
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Its name, for LTTng and Trackway `provider:name`.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its level, 0 the gravest.
    pub const fn level(&self) -> Option<i64> {
        self.level
    }

    /// Returns the address of the event's model (Eclipse Modeling Framework).
    pub fn emf_uri(&self) -> Option<&str> {
        self.emf_uri.as_deref()
    }

    /// Type of its own context.
    pub const fn context_type(&self) -> Option<&Type> {
        self.context.as_ref()
    }

    /// Type of its payload.
    pub const fn fields_type(&self) -> Option<&Type> {
        self.fields.as_ref()
    }

    /// Its own context, between the stream's and the payload.
    pub const fn context(&self) -> Option<&Struct> {
        match &self.context {
            Some(Type::Struct(context)) => Some(context),
            _ => None,
        }
    }

    /// Its payload.
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
    /// A clock of 1 GHz that begins at its origin: what CTF 1.8 says of a clock by default.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity: clocks that have the same are the same.
    pub const fn uuid(&self) -> Option<&[u8; 16]> {
        self.uuid.as_ref()
    }

    /// Returns the clock's description.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// In Hz, never 0.
    pub const fn frequency(&self) -> u64 {
        self.frequency
    }

    /// Uncertainty of its values, in cycles.
    pub const fn precision(&self) -> u64 {
        self.precision
    }

    /// From its origin to its zero: seconds, and cycles to be added.
    pub const fn offset(&self) -> (i64, i64) {
        (self.offset_seconds, self.offset_cycles)
    }

    /// Its zero, in nanoseconds since its origin (mostly 1970); `None` if that is beyond 64 bits.
    pub fn zero_ns(&self) -> Option<i64> {
        self.clock().map(|clock| clock.base_ns)
    }

    /// Returns true if the clock has the same origin as all other absolute clocks.
    pub const fn is_absolute(&self) -> bool {
        self.absolute
    }

    /// Returns the conversion of the clock's values to times; `None` if its zero is beyond what 64
    /// bits of nanoseconds hold.
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
    /// A clock of `frequency` Hz (not 0) that begins `seconds` and `cycles` after its origin.
    /// `None` if that is beyond what 64 bits of nanoseconds hold.
    pub(crate) fn new(frequency: u64, seconds: i64, cycles: i64) -> Option<Self> {
        let total = i128::from(seconds) * i128::from(frequency) + i128::from(cycles);
        let seconds = total.div_euclid(i128::from(frequency));
        let rest = total.rem_euclid(i128::from(frequency)) as u64;
        let base = seconds * i128::from(NS_PER_SECOND) + i128::from(cycles_to_ns(frequency, rest));
        Some(Self { frequency, base_ns: i64::try_from(base).ok()? })
    }

    /// Nanoseconds since the clock's origin at the value `cycles`.
    pub fn ns_from_origin(&self, cycles: u64) -> Result<i64, TimeError> {
        let ns = if self.frequency == NS_PER_SECOND {
            cycles
        } else {
            cycles_to_ns(self.frequency, cycles)
        };
        self.base_ns.checked_add_unsigned(ns).ok_or(TimeError { cycles })
    }
}

/// Cycles as nanoseconds, rounded as babeltrace2 rounds (by a double).
fn cycles_to_ns(frequency: u64, cycles: u64) -> u64 {
    if frequency == NS_PER_SECOND {
        return cycles;
    }
    ((1e9 * cycles as f64) / frequency as f64) as u64
}
