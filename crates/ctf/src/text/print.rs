//! Traces printed: all their streams in the order of time, as babeltrace2 orders them.
//!
//! At equal times the order is that of the traces' identities and names, then of the stream
//! classes' and the streams' ids. Streams whose class and instance are equal are one stream in
//! several files (a rotated or snapshotted trace), whose packets are ordered by their beginning.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use super::fields::FieldWriter;
use super::line::{LineWriter, TraceNames};
use crate::read::{
    Bytes, EventHeader, Loss, Next, Packet, SourceStream, StreamClass, StreamDecoder, StreamError,
    Trace,
};

/// A trace to print: its metadata, and its streams, each with its name.
pub struct Input<B> {
    /// The metadata.
    pub trace: Trace,
    /// The trace's folder, relative to where the search began; empty if it was there.
    pub folder: String,
    /// Data streams; their names are for messages, and order those that have no ids.
    pub streams: Vec<(String, B)>,
}

/// How much text is gathered before it is written.
const OUTPUT_BYTES: usize = 256 << 10;

/// Prints the events of `inputs` to `output`, and what the tracer lost and what is damaged to
/// `warnings`. `local` is as in [`LineWriter`]. Whether nothing was damaged.
pub fn print<B: Bytes>(
    inputs: Vec<Input<B>>,
    local: impl FnMut(i64) -> Option<[u8; 3]>,
    output: &mut dyn Write,
    warnings: &mut dyn Write,
) -> io::Result<bool> {
    let (mut traces, mut files) = (Vec::new(), Vec::new());
    for Input { trace, folder, streams } in joined(inputs) {
        traces.push((TraceNames::new(&trace, &folder), trace));
        files.push(streams);
    }
    let mut streams = Vec::new();
    for ((names, trace), files) in traces.iter().zip(files) {
        streams.extend(opened(trace, names, files));
    }
    streams.sort_by(|a: &Stream<'_, B>, b| a.order().cmp(&b.order()));
    let mut printer = Printer { lines: LineWriter::new(local), warnings, whole: true };
    let mut out = Vec::with_capacity(OUTPUT_BYTES + (64 << 10));
    printer.merge(&mut streams, &mut out, output)?;
    output.write_all(&out)?;
    output.flush()?;
    Ok(printer.whole)
}

/// Traces of one identity made one: the metadata that declares most, and all the streams.
fn joined<B>(inputs: Vec<Input<B>>) -> Vec<Input<B>> {
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
        same.streams.append(&mut input.streams);
        // babeltrace2 names what it found in several folders by the host alone.
        same.folder.clear();
    }
    traces
}

/// One stream: its files, and what comes next in it.
struct Stream<'trace, B> {
    trace: &'trace Trace,
    names: &'trace TraceNames,
    name: String,
    class_id: u64,
    id: u64,
    files: Vec<SourceStream<B>>,
    file_names: Vec<String>,
    /// The file that the current packet is in.
    file: usize,
    decoder: StreamDecoder<'trace>,
    /// The packet context's text.
    context: Vec<u8>,
    /// Losses that are to be told before the next event.
    losses: Vec<Loss>,
    event: Option<EventHeader<'trace>>,
    in_packet: bool,
}

type Order<'stream> = (bool, Option<&'stream [u8; 16]>, &'stream str, u64, u64);

impl<B> Stream<'_, B> {
    fn order(&self) -> Order<'_> {
        let uuid = self.trace.uuid();
        (uuid.is_none(), uuid, self.names.name(), self.class_id, self.id)
    }
}

/// The streams in a trace's files.
fn opened<'trace, B: Bytes>(
    trace: &'trace Trace,
    names: &'trace TraceNames,
    mut files: Vec<(String, B)>,
) -> Vec<Stream<'trace, B>> {
    files.sort_by(|a, b| a.0.cmp(&b.0));
    let mut streams: Vec<Stream<'trace, B>> = Vec::new();
    let mut ids: Vec<Option<u64>> = Vec::new();
    let mut next_id = 0;
    for (name, bytes) in files {
        let mut source = SourceStream::new(bytes);
        if source.is_at_end() {
            continue;
        }
        let first = source.peek(trace);
        let class_id = first.and_then(|packet| trace.streams().get(packet.stream));
        let class_id = class_id.map_or(0, StreamClass::id);
        let instance = first.and_then(|packet| packet.stream_instance.zip(packet.timestamp_begin));
        let instance = instance.map(|(instance, _)| instance);
        let same = streams.iter().zip(&ids).position(|(stream, id)| {
            instance.is_some() && *id == instance && stream.class_id == class_id
        });
        if let Some(stream) = same.and_then(|index| streams.get_mut(index)) {
            stream.files.push(source);
            stream.file_names.push(name);
            continue;
        }
        let id = instance.unwrap_or_else(|| {
            next_id += 1;
            next_id - 1
        });
        ids.push(instance);
        streams.push(Stream {
            trace,
            names,
            name: name.clone(),
            class_id,
            id,
            files: vec![source],
            file_names: vec![name],
            file: 0,
            decoder: StreamDecoder::new(trace),
            context: Vec::new(),
            losses: Vec::new(),
            event: None,
            in_packet: false,
        });
    }
    streams
}

impl<'trace, B: Bytes> Stream<'trace, B> {
    /// Goes on until something is to be told: a loss or an event. Whether there is anything.
    fn advance(
        &mut self,
        mut damage: impl FnMut(&str, &StreamError) -> io::Result<()>,
    ) -> io::Result<bool> {
        loop {
            if !self.losses.is_empty() || self.event.is_some() {
                return Ok(true);
            }
            if self.in_packet {
                let Some(source) = self.files.get_mut(self.file) else { return Ok(false) };
                match source.header(&mut self.decoder) {
                    Ok(Next::Event(header)) => self.event = Some(header),
                    Ok(Next::PacketEnd) => self.in_packet = false,
                    Err(error) => {
                        self.in_packet = false;
                        damage(self.file_name(), &error)?;
                    }
                }
            } else if !self.begin_packet(&mut damage)? {
                return Ok(false);
            }
        }
    }

    fn file_name(&self) -> &str {
        self.file_names.get(self.file).unwrap_or(&self.name)
    }

    /// Begins the next packet. Whether there is one.
    fn begin_packet(
        &mut self,
        damage: &mut impl FnMut(&str, &StreamError) -> io::Result<()>,
    ) -> io::Result<bool> {
        if self.files.len() > 1 {
            self.choose_file();
        }
        let Some(source) = self.files.get_mut(self.file).filter(|source| !source.is_at_end())
        else {
            return Ok(false);
        };
        let mut context = std::mem::take(&mut self.context);
        context.clear();
        let losses = &mut self.losses;
        let mut sink = FieldWriter::new(&mut context, false);
        let begun = source.begin(&mut self.decoder, &mut sink, |loss| losses.push(loss));
        // Told in order, each is taken from the end.
        self.losses.reverse();
        self.context = context;
        self.in_packet = begun.is_ok();
        if let Err(error) = begun {
            damage(self.file_name(), &error)?;
        }
        Ok(true)
    }

    /// Chooses the file whose next packet is the earliest; packets that two files both have
    /// (snapshots overlap) are passed over in one of them.
    fn choose_file(&mut self) {
        let mut best: Option<(usize, Packet)> = None;
        for (index, source) in self.files.iter_mut().enumerate() {
            if source.is_at_end() {
                continue;
            }
            // One that cannot be read comes first, for its damage to be told.
            let Some(packet) = source.peek(self.trace) else {
                self.file = index;
                return;
            };
            match best {
                Some((_, earliest)) if earliest == packet => source.skip(&packet),
                Some((_, earliest)) if earliest.timestamp_begin <= packet.timestamp_begin => {}
                _ => best = Some((index, packet)),
            }
        }
        if let Some((index, _)) = best {
            self.file = index;
        }
    }

    /// The time of what comes next; `before`, if it has none.
    fn time(&self, before: i64) -> i64 {
        let clock = self.decoder.class().and_then(StreamClass::clock);
        let time = match (self.losses.last(), &self.event) {
            (Some(loss), _) => loss
                .between
                .zip(clock)
                .and_then(|((begin, _), clock)| clock.ns_from_origin(begin).ok()),
            (None, Some(event)) => event.time,
            (None, None) => None,
        };
        time.unwrap_or(before)
    }
}

struct Printer<'output, Local> {
    lines: LineWriter<Local>,
    warnings: &'output mut dyn Write,
    whole: bool,
}

impl<Local: FnMut(i64) -> Option<[u8; 3]>> Printer<'_, Local> {
    fn merge<B: Bytes>(
        &mut self,
        streams: &mut [Stream<'_, B>],
        out: &mut Vec<u8>,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let mut now = i64::MIN;
        let mut heap = BinaryHeap::with_capacity(streams.len());
        for (index, stream) in streams.iter_mut().enumerate() {
            if self.advance(stream)? {
                heap.push(Reverse((stream.time(now), index)));
            }
        }
        while let Some(Reverse((time, index))) = heap.pop() {
            let Some(stream) = streams.get_mut(index) else { continue };
            let limit = heap.peek().map(|Reverse(next)| *next);
            now = time;
            loop {
                self.tell(stream, out)?;
                if out.len() >= OUTPUT_BYTES {
                    output.write_all(out)?;
                    out.clear();
                }
                if !self.advance(stream)? {
                    break;
                }
                let next = (stream.time(now), index);
                if limit.is_some_and(|limit| next > limit) {
                    heap.push(Reverse(next));
                    break;
                }
                now = next.0;
            }
        }
        Ok(())
    }

    fn advance<B: Bytes>(&mut self, stream: &mut Stream<'_, B>) -> io::Result<bool> {
        let (whole, warnings) = (&mut self.whole, &mut *self.warnings);
        stream.advance(|name, error| {
            *whole = false;
            writeln!(warnings, "trackway: {name}: {error}")
        })
    }

    /// Prints what comes next in `stream`.
    fn tell<B: Bytes>(&mut self, stream: &mut Stream<'_, B>, out: &mut Vec<u8>) -> io::Result<()> {
        if let Some(loss) = stream.losses.pop() {
            let mut text = Vec::new();
            let clock = stream.decoder.class().and_then(StreamClass::clock);
            let id = (stream.name.as_str(), stream.class_id, stream.id);
            self.lines.loss(&mut text, stream.names, clock, &loss, id);
            return self.warnings.write_all(&text);
        }
        let Some(header) = stream.event.take() else { return Ok(()) };
        let Some(source) = stream.files.get_mut(stream.file) else { return Ok(()) };
        let (lines, names, context) = (&mut self.lines, stream.names, &stream.context);
        let told = source.body(&mut stream.decoder, |decoder, window| {
            lines.event(out, names, context, &header, decoder, window)
        });
        if let Err(error) = told {
            stream.in_packet = false;
            self.whole = false;
            writeln!(self.warnings, "trackway: {}: {error}", stream.file_name())?;
        }
        Ok(())
    }
}
