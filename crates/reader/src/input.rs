//! The inputs of a reader: traces, each with its metadata and its data files.

use std::path::Path;

use trackway_ctf::read::{ResumeState, Trace};
use trackway_render::TraceName;

use crate::index::Index;

/// Bytes of a packet that are read at first for its header.
pub(crate) const HEADER_WINDOW_BYTES: usize = 4 << 10;

/// A trace: its metadata, and its data files.
pub struct Input<B> {
    /// The metadata.
    pub trace: Trace,
    /// The trace's folder, relative to where the search began; empty if it was there.
    pub folder: String,
    /// Its data files.
    pub files: Vec<DataFile<B>>,
}

/// A file of packets: a stream, or a part of one.
pub struct DataFile<B> {
    /// The file's path, for messages; it orders streams that have no ids.
    pub name: String,
    /// Its content.
    pub bytes: B,
    /// The index of its packets, if there is one.
    pub index: Option<Index<B>>,
    /// The part of it that is read.
    pub(crate) part: FilePart,
}

impl<B> DataFile<B> {
    /// A file without an index, all of which is read.
    pub fn new(name: String, bytes: B) -> Self {
        Self { name, bytes, index: None, part: FilePart::default() }
    }
}

/// A part of a data file: from a packet to the file's end, or less.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilePart {
    /// Start of its first packet, in bytes, and that packet's number.
    pub(crate) from: (u64, u64),
    /// The state that the packets before leave.
    pub(crate) carry: ResumeState,
    /// Number of events of the first packet that are left out.
    pub(crate) skip: u64,
    /// The packet, by where it begins, that is read only up to so many events.
    pub(crate) last: Option<(u64, u64)>,
}

/// A trace and what messages call it.
pub(crate) struct NamedTrace {
    pub(crate) trace: Trace,
    /// Its name in warnings and its place among others: its host and its folder.
    pub(crate) name: String,
    /// The folder of its first file.
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

    /// An input's, and its files.
    pub(crate) fn of<B>(input: Input<B>) -> (Self, Vec<DataFile<B>>) {
        (Self::new(input.trace, &input.folder, &input.files), input.files)
    }

    /// Returns its name.
    pub(crate) fn names(&self) -> TraceName<'_> {
        TraceName { name: &self.name, folder: &self.folder }
    }
}

/// Pieces of a trace that are one.
pub(crate) struct JoinedTrace<B, With> {
    /// The metadata that declares most, and all the files.
    pub(crate) input: Input<B>,
    /// The inputs that belong to the piece with this metadata.
    pub(crate) with: With,
    /// The index of the input that was the first piece.
    pub(crate) first: usize,
}

/// Traces of one identity made one.
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
        // babeltrace2 names what it found in several folders by the host alone.
        same.input.folder.clear();
    }
    traces
}
