//! The inputs of a reader: traces, each with its metadata and its data files.

use std::path::Path;

use trackway_ctf::read::{ResumeState, Trace};
use trackway_render::TraceName;

use crate::index::Index;

/// Number of bytes of a packet that are read first, for its header.
pub(crate) const HEADER_WINDOW_BYTES: usize = 4 << 10;

/// A trace: its metadata, and its data files.
pub struct Input<B> {
    /// Metadata of the trace.
    pub trace: Trace,
    /// Folder of the trace, relative to the searched folder; empty if they are equal.
    pub folder: String,
    /// Data files of the trace.
    pub files: Vec<DataFile<B>>,
}

/// A file of packets: a stream, or a part of one.
pub struct DataFile<B> {
    /// Path of the file, for messages; it orders streams that have no ids.
    pub name: String,
    /// Content of the file.
    pub bytes: B,
    /// Index of the file's packets, if there is one.
    pub index: Option<Index<B>>,
    /// Part of the file that is read.
    pub(crate) part: FilePart,
}

impl<B> DataFile<B> {
    /// Creates a data file without an index, to be read completely.
    pub fn new(name: String, bytes: B) -> Self {
        Self { name, bytes, index: None, part: FilePart::default() }
    }
}

/// A part of a data file: from a packet to the file's end, or less.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilePart {
    /// Offset and number of the first packet.
    pub(crate) from: (u64, u64),
    /// State after all packets before the part.
    pub(crate) carry: ResumeState,
    /// Number of events of the first packet that are skipped.
    pub(crate) skip: u64,
    /// Start of a packet that is read only in part, and the number of its events that are read.
    pub(crate) last: Option<(u64, u64)>,
}

/// A trace, and its names in messages.
pub(crate) struct NamedTrace {
    pub(crate) trace: Trace,
    /// Name of the trace in warnings and for its order: its host and its folder.
    pub(crate) name: String,
    /// Folder of the trace's first file.
    folder: String,
}

impl NamedTrace {
    fn new<B>(trace: Trace, folder: &str, files: &[DataFile<B>]) -> Self {
        let host = trace.environment_text("hostname").unwrap_or_default();
        let parts: Vec<&str> = [host, folder].into_iter().filter(|part| !part.is_empty()).collect();
        let name = parts.join("/");
        let place = files.first().and_then(|file| Path::new(&file.name).parent());
        let folder = place.map_or(String::new(), |place| place.display().to_string());
        Self { trace, name, folder }
    }

    /// Splits an input into its named trace and its files.
    pub(crate) fn of<B>(input: Input<B>) -> (Self, Vec<DataFile<B>>) {
        (Self::new(input.trace, &input.folder, &input.files), input.files)
    }

    /// Returns the names of the trace.
    pub(crate) fn names(&self) -> TraceName<'_> {
        TraceName { name: &self.name, folder: &self.folder }
    }
}

/// The parts of a trace, joined to one input.
pub(crate) struct JoinedTrace<B, With> {
    /// Input with the most complete metadata and the files of all parts.
    pub(crate) input: Input<B>,
    /// Caller's data of the part whose metadata is used.
    pub(crate) with: With,
    /// Index of the input that was the first part.
    pub(crate) first: usize,
}

/// Joins traces of the same identity.
pub(crate) fn join_trace_pieces<B, With>(
    inputs: Vec<(Input<B>, With)>,
) -> Vec<JoinedTrace<B, With>> {
    let mut traces: Vec<JoinedTrace<B, With>> = Vec::new();
    let declared = |trace: &Trace| {
        trace.streams().iter().map(|stream| 1 + stream.events().len()).sum::<usize>()
    };
    for (first, (mut input, mut with)) in inputs.into_iter().enumerate() {
        let identity = input.trace.identity();
        let mut known = traces.iter_mut().filter(|_| identity.is_unique());
        let Some(same) = known.find(|other| other.input.trace.identity() == identity) else {
            traces.push(JoinedTrace { input, with, first });
            continue;
        };
        if declared(&input.trace) > declared(&same.input.trace) {
            std::mem::swap(&mut same.input, &mut input);
            std::mem::swap(&mut same.with, &mut with);
        }
        same.input.files.append(&mut input.files);
        // babeltrace2 names a trace in several folders by its host alone.
        same.input.folder.clear();
    }
    traces
}
