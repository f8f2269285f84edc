//! Counts of a trace's content: events by name and by stream, bytes, losses, times.
//!
//! Streams are divided into tasks like for printing. Several threads count the tasks in any order,
//! without merging events or decoding fields. Memory holds only the counts: one for each event
//! class and stream, for each thread.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};

use trackway_ctf::read::{
    ByteSource, CpuId, EventClass, Loss, LossKind, SourceStream, StreamClass, StreamDecoder,
    StreamError,
};

use crate::decode::DecodeTask;
use crate::input::{DataFile, Input, NamedTrace, join_trace_pieces};
use crate::order::{EventPlace, Span, SpanQueue, check_packet_times};
use crate::plan::Planner;
use crate::select::Selection;
use crate::stream::{Stream, collect_streams};
use crate::workers::{self, MessageSink};

/// The counts of the traces' contents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Counts of events by name, the most frequent first.
    pub events: Vec<EventCount>,
    /// Streams, in their order at equal times.
    pub streams: Vec<StreamCount>,
    /// Number of traces.
    pub traces: usize,
    /// Time of the first counted event that has one, in nanoseconds since the clock's origin.
    pub first: Option<i64>,
    /// Time of the last counted event that has one.
    pub last: Option<i64>,
    /// True if nothing is damaged.
    pub is_whole: bool,
}

/// The count of events of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    /// The name.
    pub name: String,
    /// Number of the events.
    pub count: u64,
    /// Size of the events in the streams, in bits: header, contexts and payload.
    pub bits: u64,
}

/// The counts of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamCount {
    /// Path of the stream's first file.
    pub name: String,
    /// CPU of the stream, if its packets have just one.
    pub cpu: Option<u64>,
    /// Number of packets that may have events in the requested range.
    pub packets: u64,
    /// Size of the stream's files in bytes.
    pub bytes: u64,
    /// Number of counted events.
    pub events: u64,
    /// Number of events that the tracer lost.
    pub lost_events: u64,
    /// Number of packets that the tracer lost.
    pub lost_packets: u64,
    /// True if more may be lost, before the stream's first packet or across an end of the requested
    /// range.
    pub is_loss_uncertain: bool,
    /// Time of the first counted event.
    pub first: Option<i64>,
    /// Time of the last counted event.
    pub last: Option<i64>,
}

impl Statistics {
    /// Returns the number of all events.
    pub fn count(&self) -> u64 {
        self.events.iter().map(|event| event.count).sum()
    }

    /// Returns the size of all events, in bits.
    pub fn bits(&self) -> u64 {
        self.events.iter().map(|event| event.bits).sum()
    }

    /// Returns the time from the first event to the last, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| last.abs_diff(first))
    }
}

/// Counts the selected events of `inputs`, by `jobs` threads. Damage is reported to `messages` as
/// it is found.
///
/// # Errors
///
/// Returns an error if `messages` cannot be written.
pub fn collect_statistics<B: ByteSource + Sync>(
    inputs: Vec<Input<B>>,
    selection: &Selection<'_>,
    jobs: NonZero<usize>,
    messages: &mut dyn Write,
) -> io::Result<Statistics> {
    let alone = inputs.into_iter().map(|input| (input, ())).collect();
    let traces: Vec<(NamedTrace, Vec<DataFile<B>>)> =
        join_trace_pieces(alone).into_iter().map(|one| NamedTrace::of(one.input)).collect();
    let texts: Vec<_> = traces.iter().map(|_| Vec::new()).collect();
    let streams = collect_streams(&traces, &texts, selection.range);
    let lanes: Vec<_> = streams.iter().map(Lane::new).collect();
    let counts = workers::run(jobs, messages, |number, sink| {
        count_tasks(&streams, &lanes, number, selection, sink)
    })?;
    let mut all = Counts::new(&streams);
    counts.iter().for_each(|counts| all.add(counts));
    Ok(all.into_statistics(&streams, traces.len()))
}

/// The counts of one thread.
struct Counts {
    /// Counts of each stream, with the counts of its event classes by index.
    streams: Vec<(StreamCount, Vec<ClassCount>)>,
    is_whole: bool,
}

/// The counts of one event class in one stream.
#[derive(Debug, Clone, Copy)]
struct ClassCount {
    is_wanted: bool,
    count: u64,
    bits: u64,
}

/// The state of a stream that threads share.
struct Lane<'t, B> {
    /// Planner of the tasks, and number of the next task.
    planner: Mutex<(Planner<'t, B>, u64)>,
    /// Queue that compares the order of the tasks' events.
    spans: Mutex<SpanQueue<'t>>,
}

impl<'t, B: ByteSource> Lane<'t, B> {
    fn new(stream: &'t Stream<'t, B>) -> Self {
        Self { planner: Mutex::new((Planner::new(stream), 0)), spans: Mutex::default() }
    }
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts tasks of all streams until none is left; thread `number` begins with stream `number`.
fn count_tasks<'t, B: ByteSource>(
    streams: &[Stream<'t, B>],
    lanes: &[Lane<'t, B>],
    number: usize,
    selection: &Selection<'_>,
    sink: &dyn MessageSink,
) -> Counts {
    let mut counts = Counts::new(streams);
    let mut memory = Vec::new();
    for turn in 0..lanes.len() {
        let index = (number + turn) % lanes.len();
        let Some((lane, counted)) = lanes.get(index).zip(counts.streams.get_mut(index)) else {
            continue;
        };
        let is_whole = &mut counts.is_whole;
        let mut work = StreamWork { counted, is_whole, selection, sink, span: Span::default() };
        loop {
            let mut planner = lock_ignoring_poison(&lane.planner);
            let (tasks, next) = &mut *planner;
            let Some(planned) = tasks.plan(&mut memory) else { break };
            let task = *next;
            *next += 1;
            let file = if planned.stands_alone {
                drop(planner);
                work.count_task(planned.task).0
            } else {
                // The next task must wait for the state after this one.
                let (file, decoder) = work.count_task(planned.task);
                tasks.resume(decoder);
                file
            };
            let span = std::mem::take(&mut work.span);
            if let Some((file, error)) = lock_ignoring_poison(&lane.spans).add(task, file, span) {
                work.report_damage(file, &error);
            }
        }
    }
    counts
}

impl Counts {
    fn new<B>(streams: &[Stream<'_, B>]) -> Self {
        let none = |_: &Stream<'_, B>| (StreamCount::default(), Vec::new());
        Self { streams: streams.iter().map(none).collect(), is_whole: true }
    }

    fn add(&mut self, other: &Self) {
        for ((stream, classes), (more, more_classes)) in self.streams.iter_mut().zip(&other.streams)
        {
            stream.add(more);
            if classes.is_empty() {
                classes.clone_from(more_classes);
                continue;
            }
            for (class, more) in classes.iter_mut().zip(more_classes) {
                class.count += more.count;
                class.bits += more.bits;
            }
        }
        self.is_whole &= other.is_whole;
    }

    fn into_statistics<B: ByteSource>(
        self,
        streams: &[Stream<'_, B>],
        traces: usize,
    ) -> Statistics {
        let mut all = Statistics { traces, is_whole: self.is_whole, ..Default::default() };
        let mut names: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (stream, (mut counted, classes)) in streams.iter().zip(self.streams) {
            let class = stream.class().map_or(&[][..], StreamClass::events);
            for (event, ClassCount { count, bits, .. }) in class.iter().zip(classes) {
                if count > 0 {
                    let sum = names.entry(event.name().unwrap_or("<unknown>")).or_default();
                    *sum = (sum.0 + count, sum.1 + bits);
                }
            }
            stream.name.clone_into(&mut counted.name);
            counted.bytes = stream.files.iter().map(|file| file.bytes.length()).sum();
            all.first = earlier_time(all.first, counted.first);
            all.last = all.last.max(counted.last);
            all.streams.push(counted);
        }
        let counts = names.into_iter();
        all.events = counts
            .map(|(name, (count, bits))| EventCount { name: name.to_owned(), count, bits })
            .collect();
        // The sort is stable: equal counts stay ordered by name.
        all.events.sort_by_key(|event| std::cmp::Reverse(event.count));
        all
    }
}

fn earlier_time(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    a.into_iter().chain(b).min()
}

impl StreamCount {
    fn add(&mut self, other: &Self) {
        self.cpu = if self.packets == 0 || other.packets == 0 || self.cpu == other.cpu {
            self.cpu.or(other.cpu)
        } else {
            None
        };
        self.packets += other.packets;
        self.events += other.events;
        self.lost_events = self.lost_events.saturating_add(other.lost_events);
        self.lost_packets = self.lost_packets.saturating_add(other.lost_packets);
        self.is_loss_uncertain |= other.is_loss_uncertain;
        self.first = earlier_time(self.first, other.first);
        self.last = self.last.max(other.last);
    }

    fn add_loss(&mut self, loss: Loss) {
        let sum = match loss.what {
            LossKind::Events => &mut self.lost_events,
            LossKind::Packets => &mut self.lost_packets,
        };
        match loss.count {
            // Saturates, because hostile traces may contain any count.
            Some(count) => *sum = sum.saturating_add(count),
            None => self.is_loss_uncertain = true,
        }
    }
}

/// A thread's work on one stream.
struct StreamWork<'w, 'k> {
    counted: &'w mut (StreamCount, Vec<ClassCount>),
    is_whole: &'w mut bool,
    selection: &'w Selection<'k>,
    sink: &'w dyn MessageSink,
    /// Order of the current task's events.
    span: Span,
}

impl StreamWork<'_, '_> {
    /// Counts a task; returns its file's name, and the decoder after it.
    fn count_task<'t, B: ByteSource>(
        &mut self,
        task: DecodeTask<'t, B>,
    ) -> (&'t str, StreamDecoder<'t>) {
        let (file, mut source, end, mut decoder) = task.into_parts();
        while source.next().0 < end {
            if let Err(error) = self.count_packet(&mut source, &mut decoder) {
                self.report_damage(&file.name, &error);
            }
        }
        (&file.name, decoder)
    }

    fn report_damage(&mut self, file: &str, error: &StreamError) {
        *self.is_whole = false;
        // The thread that writes messages reports a failed write.
        let _ = self.sink.send_message(format!("{file}: {error}"));
    }

    fn count_packet<B: ByteSource>(
        &mut self,
        source: &mut SourceStream<&B>,
        decoder: &mut StreamDecoder<'_>,
    ) -> Result<(), StreamError> {
        let mut cpu = None;
        let mut losses = Vec::new();
        let mut sink = CpuId::new(|_, id| cpu = Some(id));
        let begun = source.begin_packet(decoder, &mut sink, |loss| losses.push(loss))?;
        let ends_first = decoder.class().and_then(|class| check_packet_times(&begun, class));
        let mut packet = StreamCount { cpu, packets: 1, ..StreamCount::default() };
        let clock = decoder.class().and_then(StreamClass::clock);
        let range = self.selection.range;
        for (loss, _) in losses.into_iter().filter_map(|loss| range.clip_clocked(loss, clock)) {
            packet.add_loss(loss);
        }
        self.counted.0.add(&packet);
        let events = decoder.class().map_or(&[][..], StreamClass::events);
        if self.counted.1.is_empty() {
            // Checks the selection once for each class instead of each event.
            self.counted.1 = events.iter().map(|event| self.new_class_count(event)).collect();
        }
        let (packet, at) = source.current();
        loop {
            let before = decoder.position_bits();
            let read = source.read_event(decoder, |event| {
                let header = event.header;
                event.skip().map(|()| header)
            });
            let header = match read {
                Ok(Some(header)) => header,
                Err(error) if !error.is_padding() => return Err(error),
                // All events of the packet are read.
                end => {
                    self.span.add_damage(ends_first.map(|damage| source.damaged(damage)));
                    return end.map(|_| ());
                }
            };
            self.span.add(header.time, EventPlace { packet, at, bit: before });
            let bits = decoder.position_bits() - before;
            self.count_event(header.time, header.class.index(), bits);
        }
    }

    fn new_class_count(&self, event: &EventClass) -> ClassCount {
        ClassCount { is_wanted: self.selection.wants(event), count: 0, bits: 0 }
    }

    fn count_event(&mut self, time: Option<i64>, index: usize, bits: u64) {
        let (stream, classes) = &mut *self.counted;
        let Some(class) = classes.get_mut(index) else { return };
        if !class.is_wanted || !self.selection.range.has(time) {
            return;
        }
        class.count += 1;
        class.bits += bits;
        stream.events += 1;
        if let Some(time) = time {
            stream.first = Some(stream.first.map_or(time, |first| first.min(time)));
            stream.last = stream.last.max(Some(time));
        }
    }
}
