//! Compilation of parsed metadata for the decoder: names of fields become slots, names of clocks
//! become clocks, and members get their role and their display text.
//!
//! Each use of a type gets its own copy, because a slot belongs to one place. The metadata's size
//! bounds the number of nodes.

use std::collections::HashMap;
use std::sync::Arc;

use super::clocks::{map_time, one_clock};
use super::finish::{finish_type, fixed_part_layouts};
use super::node::{
    Document, EventNode, IntegerNode, NamedNode, Node, NodeKind, Reference, ReferenceStart,
    SourcePosition, StreamNode, TextEndNode,
};
use super::roles::{CONTEXT_ROLES, HEADER_ROLES, give_id_role, has_role};
use crate::model::Literal;
use crate::model::runs::FlatLayout;
use crate::model::types::{
    Array, Enumeration, Float, Integer, Member, Role, Sequence, Struct, TextEnd, Type, Variant,
    VariantOption, WideText,
};
use crate::read::error::{MetadataError, MetadataProblem};
use crate::read::header::HeaderPlan;
use crate::read::trace::{ClockClass, EventClass, StreamClass, Trace};

/// Maximum number of types in one trace, counting each use, in addition to one for each byte of the
/// metadata. Otherwise a few lines of types made of types would expand to any number of types.
const NODES_SPARE: usize = 1 << 16;

type Resolved<T> = Result<T, MetadataError>;

/// Indexes of CTF's dynamic scopes, outermost first.
const PACKET_HEADER: usize = 0;
const PACKET_CONTEXT: usize = 1;
const EVENT_HEADER: usize = 2;
const STREAM_EVENT_CONTEXT: usize = 3;
const EVENT_CONTEXT: usize = 4;
const EVENT_FIELDS: usize = 5;

/// Absolute paths of the scopes.
const SCOPE_PATHS: [&[&str]; 6] = [
    &["trace", "packet", "header"],
    &["stream", "packet", "context"],
    &["stream", "event", "header"],
    &["stream", "event", "context"],
    &["event", "context"],
    &["event", "fields"],
];

/// A structure that is being compiled.
#[derive(Default)]
struct StructFrame {
    /// Members before the current field.
    members: Vec<Member>,
    /// Name of the member that is or contains the current field.
    current: String,
}

struct Resolver<'document> {
    document: &'document Document,
    clocks: Vec<ClockClass>,
    /// Compiled scopes before the current field.
    scopes: [Option<Type>; 6],
    /// Structures around the current field, innermost last.
    frames: Vec<StructFrame>,
    /// Default clock of the current stream (CTF 2).
    default_clock: Option<Arc<str>>,
    slots: usize,
    nodes: usize,
}

/// Compiles a document to a trace.
pub(crate) fn resolve_document(document: &Document) -> Resolved<Trace> {
    let mut resolver = Resolver {
        document,
        clocks: document.clocks.iter().map(|node| node.clock.clone()).collect(),
        scopes: Default::default(),
        frames: Vec::new(),
        default_clock: None,
        slots: 0,
        nodes: 0,
    };
    for node in &document.clocks {
        let problem = MetadataProblem::Value("clock offset");
        node.clock.clock().ok_or_else(|| MetadataError::at(node.place, problem))?;
    }
    resolver.compile_scope(PACKET_HEADER, document.packet_header.as_ref())?;
    resolver.give_roles(PACKET_HEADER, &HEADER_ROLES);
    let mut clock = None;
    if let (Some(header), Some(node)) = (&resolver.scopes[PACKET_HEADER], &document.packet_header)
        && one_clock(header, &mut clock).is_err() | clock.is_some()
    {
        let name = clock.map(|name| name.to_string()).unwrap_or_default();
        return Err(MetadataError::at(node.place, MetadataProblem::SecondClock(name)));
    }
    let mut events: HashMap<u64, Vec<&EventNode>> = HashMap::new();
    for event in &document.events {
        let only = document.streams.first().and_then(|stream| stream.id).unwrap_or(0);
        events.entry(event.stream_id.unwrap_or(only)).or_default().push(event);
    }
    let mut streams = Vec::with_capacity(document.streams.len());
    let implied = [StreamNode::default()];
    let declared = if document.streams.is_empty() { &implied[..] } else { &document.streams };
    for stream in declared {
        let id = stream.id.unwrap_or(0);
        if streams.iter().any(|other: &StreamClass| other.id == id) {
            return Err(MetadataError::at(stream.place, MetadataProblem::Duplicate("stream")));
        }
        streams.push(resolver.resolve_stream(
            id,
            stream,
            &events.remove(&id).unwrap_or_default(),
        )?);
    }
    if let Some(event) = events.values().flatten().next() {
        return Err(MetadataError::at(event.place, MetadataProblem::Value("stream_id")));
    }
    let mut packet_header = resolver.scopes[PACKET_HEADER].take();
    packet_header.iter_mut().for_each(|header| finish_type(header, document.is_version_2));
    Ok(Trace {
        uuid: document.uuid,
        name: document.name.clone(),
        environment: document.environment.clone(),
        packet_header,
        clocks: resolver.clocks,
        streams,
        slots: resolver.slots,
        big_endian: document.big_endian.unwrap_or(false),
        major: if document.is_version_2 { 2 } else { 1 },
    })
}

impl Resolver<'_> {
    fn resolve_stream(
        &mut self,
        id: u64,
        stream: &StreamNode,
        nodes: &[&EventNode],
    ) -> Resolved<StreamClass> {
        self.scopes[PACKET_CONTEXT..].fill_with(|| None);
        self.default_clock = stream.clock.clone();
        self.compile_scope(PACKET_CONTEXT, stream.packet_context.as_ref())?;
        self.give_roles(PACKET_CONTEXT, &CONTEXT_ROLES);
        self.map_times(PACKET_CONTEXT, &["timestamp_begin", "timestamp_end"], stream.place)?;
        self.compile_scope(EVENT_HEADER, stream.event_header.as_ref())?;
        self.map_times(EVENT_HEADER, &["timestamp"], stream.place)?;
        if let Some(header) = &mut self.scopes[EVENT_HEADER]
            && !self.document.is_version_2
        {
            give_id_role(header);
        }
        self.compile_scope(STREAM_EVENT_CONTEXT, stream.event_context.as_ref())?;
        let mut events = Vec::with_capacity(nodes.len());
        let mut events_by_id = HashMap::with_capacity(nodes.len());
        for node in nodes {
            let event = self.resolve_event(node, events.len())?;
            if events_by_id.insert(event.id, events.len()).is_some() {
                return Err(MetadataError::at(node.place, MetadataProblem::Duplicate("event")));
            }
            events.push(event);
        }
        let clock = self.find_stream_clock(&events, stream.place)?.cloned();
        let has_packet_times = [Role::TimestampBegin, Role::TimestampEnd].iter().all(|role| {
            self.scopes[PACKET_CONTEXT].as_ref().is_some_and(|context| has_role(context, *role))
        });
        let is_version_2 = self.document.is_version_2;
        let mut take = |scope: usize| {
            let mut kind = self.scopes[scope].take();
            kind.iter_mut().for_each(|kind| finish_type(kind, is_version_2));
            if let (PACKET_CONTEXT, true, Some(Type::Struct(context))) =
                (scope, is_version_2, &mut kind)
            {
                context.shown = context.members.iter().any(|member| !member.hidden);
            }
            kind
        };
        let event_header = take(EVENT_HEADER);
        let event_context = take(STREAM_EVENT_CONTEXT);
        let flat = FlatLayout::of_stream(event_context.as_ref());
        for event in &mut events {
            let [context, fields] = [event.context.as_ref(), event.fields.as_ref()];
            event.fixed = fixed_part_layouts([event_context.as_ref(), context, fields]);
            event.flat = flat.as_ref().and_then(|flat| flat.of_class(context, fields));
        }
        Ok(StreamClass {
            id,
            header_plan: event_header.as_ref().and_then(HeaderPlan::new),
            packet_context: take(PACKET_CONTEXT),
            event_header,
            event_context,
            events,
            events_by_id,
            clock: clock.as_ref().and_then(ClockClass::clock),
            clock_id: clock.as_ref().map(|clock| clock.id.clone()),
            clock_name: clock.map(|clock| clock.name),
            has_packet_times,
        })
    }

    fn resolve_event(&mut self, node: &EventNode, index: usize) -> Resolved<EventClass> {
        self.scopes[EVENT_CONTEXT..].fill_with(|| None);
        self.compile_scope(EVENT_CONTEXT, node.context.as_ref())?;
        self.compile_scope(EVENT_FIELDS, node.fields.as_ref())?;
        let [.., context, fields] = &mut self.scopes;
        let (mut context, mut fields) = (context.take(), fields.take());
        for part in context.iter_mut().chain(&mut fields) {
            finish_type(part, self.document.is_version_2);
        }
        Ok(EventClass {
            id: node.id.unwrap_or(0),
            index,
            name: node.name.clone(),
            level: node.level,
            emf_uri: node.emf_uri.clone(),
            context,
            fields,
            fixed: None,
            flat: None,
        })
    }

    /// Finds the stream's clock: its default clock (CTF 2), or the only clock that its fields set.
    fn find_stream_clock(
        &self,
        events: &[EventClass],
        place: SourcePosition,
    ) -> Resolved<Option<&ClockClass>> {
        let mut name = self.default_clock.as_ref();
        let scopes = self.scopes[PACKET_CONTEXT..].iter().flatten();
        let payloads = events.iter().flat_map(|event| [&event.context, &event.fields]).flatten();
        for kind in scopes.chain(payloads) {
            one_clock(kind, &mut name).map_err(|problem| MetadataError::at(place, problem))?;
        }
        Ok(name.and_then(|name| self.clocks.iter().find(|clock| clock.id == **name)))
    }

    /// Makes integers with these names, at any depth, set the trace's only clock if they set none.
    /// Like babeltrace2, creates a clock if the trace has none.
    fn map_times(&mut self, scope: usize, names: &[&str], place: SourcePosition) -> Resolved<()> {
        let clocks = &mut self.clocks;
        let kind = self.scopes[scope].as_mut().filter(|_| !self.document.is_version_2);
        let Some(kind) = kind else { return Ok(()) };
        for name in names {
            map_time(kind, name, clocks).map_err(|problem| MetadataError::at(place, problem))?;
        }
        Ok(())
    }

    fn compile_scope(&mut self, scope: usize, node: Option<&Arc<Node>>) -> Resolved<()> {
        self.frames.clear();
        self.scopes[scope] = match node {
            Some(node) if !matches!(node.kind, NodeKind::Struct { .. }) => {
                let problem = MetadataProblem::Unsupported("scope that is no structure");
                return Err(MetadataError::at(node.place, problem));
            }
            Some(node) => Some(self.compile(node)?),
            None => None,
        };
        Ok(())
    }

    fn give_roles(&mut self, scope: usize, roles: &[(&str, Role)]) {
        if self.document.is_version_2 {
            return;
        }
        let Some(Type::Struct(structure)) = &mut self.scopes[scope] else { return };
        for member in &mut structure.members {
            let role = roles.iter().find(|(name, _)| *name == member.name());
            let integer = member.kind.integer_mut().filter(|integer| !integer.signed);
            if let (Some(integer), Some((_, role))) = (integer, role) {
                integer.role = *role;
            }
        }
    }

    // Longer than 70 lines: one match arm for each type.
    fn compile(&mut self, node: &Node) -> Resolved<Type> {
        self.nodes += 1;
        if self.nodes > self.document.text_bytes.saturating_add(NODES_SPARE) {
            return Err(MetadataError::at(node.place, MetadataProblem::TooComplex));
        }
        let big_endian = |order: Option<bool>| order.or(self.document.big_endian).unwrap_or(false);
        if let NodeKind::Integer(integer) | NodeKind::Enumeration { integer, .. } = &node.kind
            && let Some(name) = &integer.clock
            && !self.clocks.iter().any(|clock| clock.id == **name)
        {
            let problem = MetadataProblem::UnknownClock(name.to_string());
            return Err(MetadataError::at(node.place, problem));
        }
        if let NodeKind::Integer(integer) | NodeKind::Enumeration { integer, .. } = &node.kind
            && integer.default_clock
            && self.default_clock.is_none()
        {
            let problem = MetadataProblem::UnknownClock("default-clock-class-id".to_owned());
            return Err(MetadataError::at(node.place, problem));
        }
        let integer = |node: &IntegerNode| {
            let mut integer = integer_type(node, big_endian(node.big_endian));
            if node.default_clock {
                integer.clock = self.default_clock.clone();
            }
            integer
        };
        Ok(match &node.kind {
            NodeKind::Integer(node) => Type::Integer(integer(node)),
            NodeKind::Enumeration { integer: node, labels, flags } => {
                let (integer, labels) = (integer(node), Arc::clone(labels));
                let (flags, is_version_2) = (*flags, self.document.is_version_2);
                Type::Enumeration(Enumeration { integer, labels, flags, is_version_2 })
            }
            NodeKind::Float { bits, alignment, big_endian: order, reversed } => {
                Type::Float(Float {
                    bits: *bits,
                    alignment: *alignment,
                    big_endian: big_endian(*order),
                    reversed: *reversed,
                })
            }
            NodeKind::Text => Type::Text,
            NodeKind::WideText { encoding, end } => {
                let end = match end {
                    TextEndNode::Nul => TextEnd::Nul,
                    TextEndNode::Bytes(length) => TextEnd::Bytes(*length),
                    TextEndNode::Field(length) => TextEnd::Slot(self.length_slot(length)?),
                };
                Type::WideText(WideText { encoding: *encoding, end })
            }
            NodeKind::Struct { members, alignment } => {
                self.compile_structure(members, *alignment)?
            }
            NodeKind::Array { element, length, alignment } => {
                let element = Box::new(self.compile(element)?);
                let (within, text) = (element.alignment(), is_character(&element));
                let (length, alignment) = (*length, within.max(*alignment));
                let blob = is_blob_byte(&element);
                Type::Array(Array { element, length, alignment, text, blob, elements: None })
            }
            NodeKind::Sequence { element, length, alignment } => {
                let slot = self.length_slot(length)?;
                let element = Box::new(self.compile(element)?);
                let (within, text) = (element.alignment(), is_character(&element));
                let (alignment, blob) = (within.max(*alignment), is_blob_byte(&element));
                Type::Sequence(Sequence { element, slot, alignment, text, blob, elements: None })
            }
            NodeKind::Variant { tag, options, optional } => {
                let untagged = MetadataProblem::Unsupported("variant without tag");
                let tag = tag.as_ref();
                let tag = tag.ok_or_else(|| MetadataError::at(node.place, untagged))?;
                self.compile_variant(tag, options, *optional)?
            }
        })
    }

    /// Returns the slot of a length, which must be an unsigned integer.
    fn length_slot(&mut self, length: &Reference) -> Resolved<usize> {
        let found = self.resolve_slot(length)?;
        if found.signed { Err(unknown_field_error(length)) } else { Ok(found.slot) }
    }

    fn compile_structure(&mut self, members: &[NamedNode], alignment: u64) -> Resolved<Type> {
        let members_before = Vec::with_capacity(members.len());
        self.frames.push(StructFrame { members: members_before, current: String::new() });
        for named in members {
            if let Some(frame) = self.frames.last_mut() {
                frame.current.clone_from(&named.name);
            }
            let kind = self.compile(&named.node)?;
            let raw_name = named.name.clone();
            let lead = Literal::default();
            let member = Member { raw_name, kind, hidden: false, lead, is_ambiguous: false };
            if let Some(frame) = self.frames.last_mut() {
                frame.members.push(member);
            }
        }
        let members = self.frames.pop().unwrap_or_default().members;
        let widest = members.iter().map(|member| member.kind.alignment()).max().unwrap_or(1);
        let alignment = widest.max(alignment);
        Ok(Type::Struct(Struct { members, alignment, shown: true, runs: Vec::new() }))
    }

    fn compile_variant(
        &mut self,
        tag: &Reference,
        options: &[NamedNode],
        optional: bool,
    ) -> Resolved<Type> {
        let found = self.resolve_slot(tag)?;
        let labels = found.labels.unwrap_or_else(|| Arc::from([]));
        let mut resolved = Vec::with_capacity(options.len());
        for named in options {
            let mapping = labels.iter().find(|mapping| mapping.label == named.name);
            let by_label = || mapping.map(|mapping| mapping.ranges.clone()).unwrap_or_default();
            resolved.push(VariantOption {
                raw_name: named.name.clone(),
                kind: self.compile(&named.node)?,
                ranges: named.ranges.clone().unwrap_or_else(by_label),
            });
        }
        // In CTF 1.8, a tag must be an enumeration.
        if labels.is_empty() && !self.document.is_version_2 {
            return Err(unknown_field_error(tag));
        }
        let (slot, signed) = (found.slot, found.signed);
        Ok(Type::Variant(Variant { slot, signed, options: resolved, optional }))
    }

    /// Finds the integer that `reference` names, and returns its slot. A reference without a start
    /// is searched in the enclosing structures, innermost first, and then in the earlier scopes,
    /// latest first.
    fn resolve_slot(&mut self, reference: &Reference) -> Resolved<FoundSlot> {
        let path: Vec<&str> = reference.path.iter().map(String::as_str).collect();
        let (frames, slots) = (&mut self.frames[..], &mut self.slots);
        let from = match reference.start {
            ReferenceStart::Enclosing(count) => {
                let frame = frames.len().checked_sub(count + 1);
                return match frame.and_then(|frame| frames.get_mut(frame..)) {
                    Some(around) => find_slot_in_frames(around, &path, slots),
                    None => None,
                }
                .ok_or_else(|| unknown_field_error(reference));
            }
            ReferenceStart::Scope(scope) => Some((scope, &path[..])),
            ReferenceStart::Anywhere => {
                SCOPE_PATHS.iter().enumerate().find_map(|(scope, prefix)| {
                    let rest = path.strip_prefix(*prefix).filter(|rest| !rest.is_empty())?;
                    Some((scope, rest))
                })
            }
        };
        if let Some((scope, rest)) = from {
            let finished = match &mut self.scopes[scope] {
                Some(Type::Struct(structure)) => find_slot(&mut structure.members, rest, slots),
                _ => None,
            };
            let own = || find_slot_in_frames(frames, rest, slots);
            return finished.or_else(own).ok_or_else(|| unknown_field_error(reference));
        }
        for frame in (0..frames.len()).rev() {
            if let Some(found) = find_slot_in_frames(&mut frames[frame..], &path, slots) {
                return Ok(found);
            }
        }
        for scope in self.scopes.iter_mut().rev() {
            if let Some(Type::Struct(structure)) = scope
                && let Some(found) = find_slot(&mut structure.members, &path, slots)
            {
                return Ok(found);
            }
        }
        Err(unknown_field_error(reference))
    }
}

/// An integer on which other fields depend.
struct FoundSlot {
    slot: usize,
    signed: bool,
    labels: Option<Arc<[crate::model::types::Mapping]>>,
}

fn unknown_field_error(reference: &Reference) -> MetadataError {
    MetadataError::at(reference.place, MetadataProblem::UnknownField(reference.path.join(".")))
}

/// Finds a field in the first of `frames`: among its members, or, if the path enters the member
/// being compiled, in the next frame.
fn find_slot_in_frames(
    frames: &mut [StructFrame],
    path: &[&str],
    slots: &mut usize,
) -> Option<FoundSlot> {
    let (frame, inner) = frames.split_first_mut()?;
    match path {
        [first, rest @ ..] if *first == frame.current && !rest.is_empty() => {
            find_slot_in_frames(inner, rest, slots)
        }
        _ => find_slot(&mut frame.members, path, slots),
    }
}

fn find_slot(members: &mut [Member], path: &[&str], slots: &mut usize) -> Option<FoundSlot> {
    let mut integers = Vec::new();
    let mut found = None;
    let (first, rest) = path.split_first()?;
    let member = members.iter_mut().find(|member| member.raw_name == *first)?;
    collect_integers(&mut member.kind, rest, &mut integers, &mut found);
    // If the options of a variant contain the field several times, all its integers share a slot.
    let before = integers.iter().find_map(|integer| integer.slot);
    let is_one = |slot: Option<usize>| slot.is_none() || slot == before;
    if integers.is_empty() || !integers.iter().all(|integer| is_one(integer.slot)) {
        return None;
    }
    let slot = before.unwrap_or(*slots);
    *slots = (*slots).max(slot + 1);
    integers.iter_mut().for_each(|integer| integer.slot = Some(slot));
    let (signed, labels) = found?;
    Some(FoundSlot { slot, signed, labels })
}

type Labels = Option<Arc<[crate::model::types::Mapping]>>;

/// Collects the integers at `path` below `kind`, and the sign and labels of the first one.
fn collect_integers<'kind>(
    kind: &'kind mut Type,
    path: &[&str],
    integers: &mut Vec<&'kind mut Integer>,
    found: &mut Option<(bool, Labels)>,
) {
    match (kind, path) {
        (Type::Integer(integer), []) => {
            found.get_or_insert((integer.signed, None));
            integers.push(integer);
        }
        (Type::Enumeration(Enumeration { integer, labels, .. }), []) => {
            found.get_or_insert_with(|| (integer.signed, Some(Arc::clone(labels))));
            integers.push(integer);
        }
        (Type::Struct(structure), [first, rest @ ..]) => {
            let member = structure.members.iter_mut().find(|member| member.raw_name == *first);
            if let Some(member) = member {
                collect_integers(&mut member.kind, rest, integers, found);
            }
        }
        (Type::Variant(variant), path) => {
            for option in &mut variant.options {
                collect_integers(&mut option.kind, path, integers, found);
            }
        }
        _ => {}
    }
}

fn integer_type(node: &IntegerNode, big_endian: bool) -> Integer {
    Integer {
        bits: node.bits,
        alignment: node.alignment,
        signed: node.signed,
        big_endian,
        base: node.base,
        character: node.character,
        blob: node.blob,
        clock: node.clock.clone(),
        role: node.role,
        concealed: node.role != Role::None,
        slot: None,
        plain: false,
        boolean: node.boolean,
        reversed: node.reversed,
        variable: node.variable,
        meaning: node.meaning.clone(),
    }
}

/// Returns true if an array of this type is text: 8-bit integers at byte boundaries with an
/// encoding.
fn is_character(kind: &Type) -> bool {
    match kind {
        Type::Integer(integer) | Type::Enumeration(Enumeration { integer, .. }) => {
            integer.character && integer.bits == 8 && integer.alignment == 8
        }
        _ => false,
    }
}

/// Returns true if an array of this type is a BLOB.
const fn is_blob_byte(kind: &Type) -> bool {
    matches!(kind, Type::Integer(Integer { blob: true, .. }))
}
