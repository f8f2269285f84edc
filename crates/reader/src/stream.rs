//! Streams: the assignment of files to streams, and the order of streams at equal times.
//!
//! Files whose packets have the same class and instance are one stream in several parts (a rotated
//! or snapshotted trace). At equal times the order is babeltrace2's: by the identities and names of
//! traces, then by the ids of stream classes and streams.

use std::collections::{HashMap, HashSet};

use trackway_ctf::read::{ByteSource, SourceStream, StreamClass, TraceIdentity};
use trackway_render::{EventEncoder, LossPlace};

use crate::call::CallSide;
use crate::filter::ClassFilters;
use crate::input::{DataFile, HEADER_WINDOW_BYTES, NamedTrace};
use crate::order::StreamKey;
use crate::select::{Range, Selection};

/// A stream of a trace, with its files.
pub(crate) struct Stream<'t, B> {
    pub(crate) trace: &'t NamedTrace,
    /// Common line parts of each of the trace's stream classes.
    pub(crate) texts: &'t [StreamClassPlan],
    pub(crate) class_id: u64,
    pub(crate) id: u64,
    /// Requested range of time.
    pub(crate) range: Range,
    /// Name of the stream in messages: the name of the file that begins first.
    pub(crate) name: &'t str,
    /// Files of the stream, in the order of their names.
    pub(crate) files: Vec<&'t DataFile<B>>,
}

impl<'t, B> Stream<'t, B> {
    /// Returns the stream's class.
    pub(crate) fn class(&self) -> Option<&'t StreamClass> {
        self.trace.trace.streams().iter().find(|class| class.id() == self.class_id)
    }

    /// Returns the stream's key while its trace grows.
    pub(crate) fn key(&self) -> StreamKey {
        let name = self.trace.trace.identity().uid().unwrap_or_else(|| self.trace.name.clone());
        (name, self.class_id, self.id)
    }

    /// Returns the place and time of a loss in this stream, for messages.
    pub(crate) fn loss_place(&self, between: Option<(i64, i64)>) -> LossPlace<'_> {
        LossPlace {
            trace_name: &self.trace.name,
            identity: self.trace.trace.identity(),
            between,
            stream_name: self.name,
            class_id: self.class_id,
            stream_id: self.id,
        }
    }
}

/// The common line parts of a stream class's events.
pub(crate) struct StreamClassPlan {
    pub(crate) stream: Vec<u8>,
    /// Plans by the event's index in its class; `None` for events that are not selected.
    pub(crate) events: Vec<Option<EventClassPlan>>,
    /// Call sides by the event's index in its class: calls whose entries are selected and may lack
    /// texts.
    pub(crate) calls: Vec<Option<CallSide>>,
}

/// The common line part and the filters of a selected event class.
pub(crate) struct EventClassPlan {
    pub(crate) text: Vec<u8>,
    /// Filters; `None` accepts all events.
    pub(crate) filters: Option<ClassFilters>,
}

impl StreamClassPlan {
    /// Returns the plans of all stream classes of a trace.
    pub(crate) fn of(
        trace: &NamedTrace,
        format: &impl EventEncoder,
        selection: &Selection<'_>,
    ) -> Vec<Self> {
        let (trace, name) = (&trace.trace, trace.names());
        let texts = |(stream, calls): (&StreamClass, Vec<Option<CallSide>>)| Self {
            calls,
            stream: format.stream_prefix(trace, name, stream),
            events: stream
                .events()
                .iter()
                .map(|event| {
                    let filters = match selection.filters {
                        _ if !selection.wants(event) => return None,
                        Some(filters) => Some(filters.of_class(stream, event)?),
                        None => None,
                    };
                    Some(EventClassPlan {
                        text: format.class_prefix(trace, stream, event),
                        filters,
                    })
                })
                .collect(),
        };
        let mut texts: Vec<Self> =
            trace.streams().iter().zip(CallSide::all_of(trace)).map(texts).collect();
        Self::remove_unselected_calls(&mut texts);
        texts
    }
}

impl StreamClassPlan {
    /// Removes the calls of a trace whose entries are not selected.
    fn remove_unselected_calls(all: &mut [Self]) {
        let wanted = |texts: &Self| {
            let wanted = texts.events.iter().map(Option::is_some);
            let calls = texts.calls.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted);
            let entries =
                calls.filter_map(|(call, _)| call.as_ref()).filter(|call| call.is_entry());
            entries.map(CallSide::number).collect::<Vec<_>>()
        };
        let wanted: HashSet<usize> = all.iter().flat_map(wanted).collect();
        let is_wanted = |call: &CallSide| wanted.contains(&call.number());
        for texts in all {
            texts.calls.iter_mut().for_each(|call| *call = call.take().filter(is_wanted));
            if texts.calls.iter().all(Option::is_none) {
                texts.calls.clear();
            }
        }
    }
}

/// Returns the streams of all traces, in their order at equal times.
pub(crate) fn collect_streams<'t, B: ByteSource>(
    traces: &'t [(NamedTrace, Vec<DataFile<B>>)],
    texts: &'t [Vec<StreamClassPlan>],
    range: Range,
) -> Vec<Stream<'t, B>> {
    let mut streams = Vec::new();
    for ((trace, files), texts) in traces.iter().zip(texts) {
        streams.extend(collect_trace_streams(trace, files, texts, range));
    }
    let has_version_2 = traces.iter().any(|(trace, _)| trace.trace.major_version() >= 2);
    streams.sort_by_cached_key(|stream| {
        (trace_sort_key(stream.trace, has_version_2), stream.class_id, stream.id)
    });
    streams
}

/// Returns the sort key of a trace among others at equal times. If all traces are CTF 1.8, the key
/// follows babeltrace2 2.0: UUIDs, then names. Otherwise it follows 2.1, the first version for CTF
/// 2: namespaces, names, unique ids. A trace without one of these comes after those with it.
fn trace_sort_key(trace: &NamedTrace, has_version_2: bool) -> [(bool, String); 3] {
    let last = |text: Option<String>| (text.is_none(), text.unwrap_or_default());
    let identity = trace.trace.identity();
    let (name, uid) = (last(Some(trace.name.clone())), last(identity.uid()));
    if !has_version_2 {
        return [uid, name, last(None)];
    }
    let namespace = match identity {
        TraceIdentity::Uuid(_) => {
            let tracer = trace.trace.environment_text("tracer_name");
            tracer.filter(|tracer| tracer.starts_with("lttng")).map(|_| LTTNG_NAMESPACE)
        }
        TraceIdentity::Name { namespace, .. } => namespace,
    };
    [last(namespace.map(str::to_owned)), name, uid]
}

/// Namespace that babeltrace2 gives to LTTng's CTF 1.8 traces, which have none.
const LTTNG_NAMESPACE: &str = "lttng.org,2009";

/// Returns the streams in a trace's files.
pub(crate) fn collect_trace_streams<'t, B: ByteSource>(
    trace: &'t NamedTrace,
    files: &'t [DataFile<B>],
    texts: &'t [StreamClassPlan],
    range: Range,
) -> Vec<Stream<'t, B>> {
    let mut files: Vec<&DataFile<B>> = files.iter().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let mut streams: Vec<Stream<'t, B>> = Vec::new();
    let mut known: HashMap<(u64, u64), usize> = HashMap::new();
    // For each stream, the clock value at which its first file begins.
    let mut begins: Vec<Option<u64>> = Vec::new();
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
        let begin = first.and_then(|packet| packet.timestamp_begin);
        if let Some(&index) = same
            && let (Some(stream), Some(earliest)) = (streams.get_mut(index), begins.get_mut(index))
        {
            stream.files.push(file);
            if begin < *earliest {
                (stream.name, *earliest) = (&file.name, begin);
            }
            continue;
        }
        begins.push(begin);
        if let Some(instance) = instance {
            known.insert((class_id, instance), streams.len());
        }
        // A file without a begin time is a stream of its own. In CTF 2 it keeps its id
        // nevertheless.
        let is_version_2 = trace.trace.major_version() >= 2;
        let named = first.and_then(|packet| packet.stream_instance).filter(|_| is_version_2);
        let id = instance.or(named).unwrap_or_else(|| {
            next_id += 1;
            next_id - 1
        });
        let (name, files) = (file.name.as_str(), vec![file]);
        streams.push(Stream { trace, texts, class_id, id, range, name, files });
    }
    streams
}
