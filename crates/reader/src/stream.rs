//! Streams: which files are one stream, and in which order streams come at equal times.
//!
//! Files whose packets name the same class and instance are one stream in several pieces (a
//! rotated or snapshotted trace). At equal times the order is babeltrace2's: that of the traces'
//! identities and names, then of the stream classes' and the streams' ids.

use std::collections::HashMap;

use trackway_ctf::read::{Bytes, SourceStream, StreamClass};
use trackway_ctf::text::{LineFormat, LossPlace};

use crate::input::{DataFile, NamedTrace};
use crate::plan::HEADER_WINDOW_BYTES;
use crate::select::{Range, Selection};

/// One stream.
pub(crate) struct Stream<'t, B> {
    pub(crate) trace: &'t NamedTrace,
    /// What lines of each of the trace's stream classes have in common.
    pub(crate) texts: &'t [ClassTexts],
    pub(crate) class_id: u64,
    pub(crate) id: u64,
    /// Which of its times are asked for.
    pub(crate) range: Range,
    /// Its files, in the order of their names.
    pub(crate) files: Vec<&'t DataFile<B>>,
}

impl<'t, B> Stream<'t, B> {
    /// Its class.
    pub(crate) fn class(&self) -> Option<&'t StreamClass> {
        self.trace.trace.streams().iter().find(|class| class.id() == self.class_id)
    }

    /// Where and when a loss in this stream was, for messages.
    pub(crate) fn loss_place(&self, between: Option<(i64, i64)>) -> LossPlace<'_> {
        LossPlace {
            trace_name: &self.trace.name,
            uuid: self.trace.trace.uuid(),
            between,
            stream_name: self.files.first().map_or("", |file| &file.name),
            class_id: self.class_id,
            stream_id: self.id,
        }
    }
}

/// What lines of a stream class's events have in common.
pub(crate) struct ClassTexts {
    pub(crate) stream: Vec<u8>,
    /// By the event's index in its class; `None` for events that are not asked for.
    pub(crate) events: Vec<Option<Vec<u8>>>,
}

impl ClassTexts {
    /// The texts of all of a trace's stream classes.
    pub(crate) fn of(
        trace: &NamedTrace,
        format: &impl LineFormat,
        selection: &Selection<'_>,
    ) -> Vec<Self> {
        let (trace, name) = (&trace.trace, trace.names());
        let texts = |stream: &StreamClass| Self {
            stream: format.stream_text(trace, name, stream),
            events: stream
                .events()
                .iter()
                .map(|event| {
                    selection.wants(event).then(|| format.class_text(trace, stream, event))
                })
                .collect(),
        };
        trace.streams().iter().map(texts).collect()
    }
}

/// The streams of all traces, in the order in which they come at equal times.
pub(crate) fn streams<'t, B: Bytes>(
    traces: &'t [(NamedTrace, Vec<DataFile<B>>)],
    texts: &'t [Vec<ClassTexts>],
    range: Range,
) -> Vec<Stream<'t, B>> {
    let mut streams = Vec::new();
    for ((trace, files), texts) in traces.iter().zip(texts) {
        streams.extend(streams_of(trace, files, texts, range));
    }
    streams.sort_by(|a, b| {
        let order = |stream: &Stream<'t, B>| {
            let uuid = stream.trace.trace.uuid();
            (uuid.is_none(), uuid, stream.trace.name.as_str(), stream.class_id, stream.id)
        };
        order(a).cmp(&order(b))
    });
    streams
}

/// The streams in a trace's files.
pub(crate) fn streams_of<'t, B: Bytes>(
    trace: &'t NamedTrace,
    files: &'t [DataFile<B>],
    texts: &'t [ClassTexts],
    range: Range,
) -> Vec<Stream<'t, B>> {
    let mut files: Vec<&DataFile<B>> = files.iter().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut streams: Vec<Stream<'t, B>> = Vec::new();
    let mut known: HashMap<(u64, u64), usize> = HashMap::new();
    let mut next_id = 0;
    let mut memory = Vec::new();
    for file in files {
        let mut source = SourceStream::new(&file.bytes).with_window(HEADER_WINDOW_BYTES, memory);
        if source.is_at_end() {
            memory = source.into_memory();
            continue;
        }
        let first = source.peek(&trace.trace);
        memory = source.into_memory();
        let class = first.and_then(|packet| trace.trace.streams().get(packet.stream));
        let class_id = class.map_or(0, StreamClass::id);
        let instance = first
            .filter(|packet| packet.timestamp_begin.is_some())
            .and_then(|packet| packet.stream_instance);
        let same = instance.and_then(|instance| known.get(&(class_id, instance)));
        if let Some(stream) = same.and_then(|&index| streams.get_mut(index)) {
            stream.files.push(file);
            continue;
        }
        if let Some(instance) = instance {
            known.insert((class_id, instance), streams.len());
        }
        let id = instance.unwrap_or_else(|| {
            next_id += 1;
            next_id - 1
        });
        streams.push(Stream { trace, texts, class_id, id, range, files: vec![file] });
    }
    streams
}
