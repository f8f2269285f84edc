//! The parser's result: types as written. Names of types are resolved, names of fields are not yet.
//!
//! Nodes are shared, so that a short text cannot cause large allocations. Each node knows its
//! depth, so that no walk over nodes (not even their drop) can exhaust the stack.

use std::sync::Arc;

use crate::model::meaning::Meaning;
use crate::model::types::{Base, Encoding, Mapping, Role};
use crate::read::error::{MetadataError, MetadataProblem};
use crate::read::trace::{ClockClass, TraceName};

/// Maximum nesting of types.
pub(crate) const DEPTH_MAX: u32 = 48;

/// Line and column in the metadata's text, both from 1.
pub(crate) type SourcePosition = (u32, u32);

/// A type as written in the metadata.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) depth: u32,
    /// Place of the declaration, or of the closest enclosing one.
    pub(crate) place: SourcePosition,
    pub(crate) kind: NodeKind,
}

impl Node {
    /// Creates a node declared at `place`; returns an error if it is nested too deeply.
    pub(crate) fn new_shared(
        place: SourcePosition,
        kind: NodeKind,
    ) -> Result<Arc<Self>, MetadataError> {
        let depth = kind.depth();
        if depth > DEPTH_MAX {
            return Err(MetadataError::at(place, MetadataProblem::TooComplex));
        }
        Ok(Arc::new(Self { depth, place, kind }))
    }
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Integer(IntegerNode),
    Enumeration { integer: IntegerNode, labels: Arc<[Mapping]>, flags: bool },
    Float { bits: u32, alignment: u64, big_endian: Option<bool>, reversed: bool },
    Text,
    WideText { encoding: Encoding, end: TextEndNode },
    Struct { members: Vec<NamedNode>, alignment: u64 },
    Variant { tag: Option<Reference>, options: Arc<[NamedNode]>, optional: bool },
    Array { element: Arc<Node>, length: u64, alignment: u64 },
    Sequence { element: Arc<Node>, length: Reference, alignment: u64 },
}

/// See [`crate::model::types::TextEnd`].
#[derive(Debug)]
pub(crate) enum TextEndNode {
    Nul,
    Bytes(u64),
    Field(Reference),
}

#[derive(Debug, Clone)]
pub(crate) struct IntegerNode {
    pub(crate) bits: u32,
    pub(crate) alignment: u64,
    pub(crate) signed: bool,
    /// Byte order; `None` stands for the trace's byte order.
    pub(crate) big_endian: Option<bool>,
    pub(crate) base: Base,
    pub(crate) character: bool,
    pub(crate) blob: bool,
    /// Name of the clock that the integer sets.
    pub(crate) clock: Option<Arc<str>>,
    /// True if the field sets its stream's default clock (CTF 2).
    pub(crate) default_clock: bool,
    /// Use of the field by the reader, if its name does not determine it (CTF 2).
    pub(crate) role: Role,
    pub(crate) boolean: bool,
    pub(crate) reversed: bool,
    pub(crate) variable: bool,
    pub(crate) meaning: Option<Arc<Meaning>>,
}

impl IntegerNode {
    /// Creates an unsigned integer of `bits` in the trace's byte order.
    pub(crate) const fn new(bits: u32) -> Self {
        Self {
            bits,
            alignment: 1,
            signed: false,
            big_endian: None,
            base: Base::Decimal,
            character: false,
            blob: false,
            clock: None,
            default_clock: false,
            role: Role::None,
            boolean: false,
            reversed: false,
            variable: false,
            meaning: None,
        }
    }
}

/// A member of a structure or an option of a variant.
#[derive(Debug, Clone)]
pub(crate) struct NamedNode {
    pub(crate) name: String,
    pub(crate) node: Arc<Node>,
    /// Tags that select the option, if the tag's labels do not select it (CTF 2).
    pub(crate) ranges: Option<Vec<(u64, u64)>>,
}

/// The start of a reference's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceStart {
    /// Not yet known (CTF 1.8): a scope's name, or the enclosing structures.
    Anywhere,
    /// A scope, by its index in `resolve.rs`.
    Scope(usize),
    /// An enclosing structure: this number of levels above the dependent field's structure.
    Enclosing(usize),
}

/// The path of a field that another field depends on, and the place of the reference.
#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) path: Vec<String>,
    pub(crate) start: ReferenceStart,
    pub(crate) place: SourcePosition,
}

impl NodeKind {
    /// Returns one more than the depth of the deepest child node.
    pub(crate) fn depth(&self) -> u32 {
        let parts = match self {
            Self::Struct { members, .. } => max_depth(members),
            Self::Variant { options, .. } => max_depth(options),
            Self::Array { element, .. } | Self::Sequence { element, .. } => element.depth,
            _ => 0,
        };
        parts + 1
    }
}

fn max_depth(parts: &[NamedNode]) -> u32 {
    parts.iter().map(|part| part.node.depth).max().unwrap_or(0)
}

/// A value of the trace's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentValue {
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// The content of a metadata text.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// Size of the text in bytes.
    pub(crate) text_bytes: usize,
    /// True for CTF 2: then names have no special meaning, and only roles mark times.
    pub(crate) is_version_2: bool,
    pub(crate) uuid: Option<[u8; 16]>,
    pub(crate) name: TraceName,
    pub(crate) big_endian: Option<bool>,
    pub(crate) packet_header: Option<Arc<Node>>,
    pub(crate) environment: Vec<(String, EnvironmentValue)>,
    pub(crate) clocks: Vec<ClockNode>,
    pub(crate) streams: Vec<StreamNode>,
    pub(crate) events: Vec<EventNode>,
}

#[derive(Debug)]
pub(crate) struct ClockNode {
    pub(crate) clock: ClockClass,
    pub(crate) place: SourcePosition,
}

#[derive(Debug, Default)]
pub(crate) struct StreamNode {
    pub(crate) id: Option<u64>,
    pub(crate) packet_context: Option<Arc<Node>>,
    pub(crate) event_header: Option<Arc<Node>>,
    pub(crate) event_context: Option<Arc<Node>>,
    /// Name of the stream's default clock (CTF 2).
    pub(crate) clock: Option<Arc<str>>,
    pub(crate) place: SourcePosition,
}

#[derive(Debug, Default)]
pub(crate) struct EventNode {
    pub(crate) id: Option<u64>,
    pub(crate) stream_id: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) level: Option<i64>,
    pub(crate) emf_uri: Option<String>,
    pub(crate) context: Option<Arc<Node>>,
    pub(crate) fields: Option<Arc<Node>>,
    pub(crate) place: SourcePosition,
}
