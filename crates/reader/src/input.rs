//! What is read: traces, each with its metadata and its data files.

use trackway_ctf::read::Trace;

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
    /// What is in it.
    pub bytes: B,
}

/// A trace and what messages call it.
pub(crate) struct NamedTrace {
    pub(crate) trace: Trace,
    /// Its name in warnings and its place among others: its host and its folder.
    pub(crate) name: String,
}

impl NamedTrace {
    pub(crate) fn new(trace: Trace, folder: &str) -> Self {
        let host = trace.environment_text("hostname").unwrap_or_default();
        let parts: Vec<&str> = [host, folder].into_iter().filter(|part| !part.is_empty()).collect();
        let name = parts.join("/");
        Self { trace, name }
    }
}

/// Traces of one identity made one: the metadata that declares most, and all the files.
pub(crate) fn joined<B>(inputs: Vec<Input<B>>) -> Vec<Input<B>> {
    let mut traces: Vec<Input<B>> = Vec::new();
    let declared = |trace: &Trace| {
        trace.streams().iter().map(|stream| 1 + stream.events().len()).sum::<usize>()
    };
    for mut input in inputs {
        let uuid = input.trace.uuid();
        let same = traces.iter_mut().find(|other| uuid.is_some() && other.trace.uuid() == uuid);
        let Some(same) = same else {
            traces.push(input);
            continue;
        };
        if declared(&input.trace) > declared(&same.trace) {
            std::mem::swap(same, &mut input);
        }
        same.files.append(&mut input.files);
        // babeltrace2 names what it found in several folders by the host alone.
        same.folder.clear();
    }
    traces
}
