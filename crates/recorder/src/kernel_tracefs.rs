//! The kernel's events by tracefs, where BPF is not to be had, into the same folder `kernel` with
//! the same streams: docs/design/0012-kernel-tracefs.md.
//!
//! A thread reads the pages of an instance of ours ([`trackway_kernel::ftrace`]), makes packets of
//! them, and counts what the kernel says it lost. As by BPF, what needs root is done in
//! [`ByTracefs::prepare`]: later the open files do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, mem};

use trackway_abi::record::{
    COMPACT_BYTES, EXTENDED_BYTES, RECORD_BYTES_MAX, TAG_BITS, TAG_EXTENDED, TAG_MEDIUM, TIME_BITS,
};
use trackway_ctf::write::PACKET_HEADER_BYTES;
use trackway_kernel::catalogue::Catalogue;
use trackway_kernel::catalogue::select::Selection;
use trackway_kernel::ftrace::convert::{Converted, Converter};
use trackway_kernel::ftrace::instance::{Cpu, Instance, InstanceError, Stats, Wanted};
use trackway_kernel::ftrace::page::{Missed, Page};
use trackway_kernel::record::context::Contexts;
use trackway_session::Tracefiles;

use crate::command::Entrance;
use crate::completion::{self, By};
use crate::kernel::{self, KernelOptions, failed};
use crate::report::{Grouped, Notices};
use crate::stream::{Packet, Stream, StreamId};
use crate::trace::{self, Trace};
use crate::{RecordError, kernel_meanings};

/// Most bytes of a packet.
const PACKET_BYTES_MAX: usize = 1 << 16;
/// Smallest buffer of a CPU: some pages.
const CPU_BYTES_MIN: u64 = 16 << 10;
/// Most bytes of all buffers, unless others are asked for.
const BUFFERS_BYTES: u64 = 256 << 20;

/// The kernel's events, ready to be recorded.
#[derive(Debug)]
pub(crate) struct ByTracefs {
    shared: Arc<Shared>,
    converter: Converter,
}

/// What the recorder and its thread have of it.
#[derive(Debug)]
struct Shared {
    instance: Instance,
    cpu_bytes: u64,
    overwrite: bool,
    is_scoped: bool,
    /// Nothing is recorded until it is started.
    is_stopped: bool,
}

/// Buffers that a thread drains.
#[derive(Debug)]
pub(crate) struct Draining {
    shared: Arc<Shared>,
    stop: Sender<()>,
    thread: JoinHandle<io::Result<(Vec<CpuStream>, Trace)>>,
}

/// What was recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    recorded: u64,
    lost: u64,
    overwritten: u64,
    /// Pages that made no sense, and records of events that nobody asked for.
    damaged: u64,
}

/// Refuses what BPF alone does: options that do nothing would let others' events in.
fn refuse_what_is_not_there(options: &KernelOptions) -> Result<(), RecordError> {
    let asked = [
        (options.filters.is_empty(), "--filter (trackway print has one)"),
        (options.contexts.is_empty(), "--context"),
        (options.cgroups.is_empty(), "--cgroup"),
        (options.pids.is_empty(), "--pid"),
    ];
    match asked.into_iter().find(|(is_not, _)| !is_not) {
        Some((_, what)) => {
            let why = format!("cannot record kernel events: by tracefs there is no {what}");
            let hint = "a command and what it starts are recorded, or everything (--system)";
            Err(RecordError::Kernel(why, Some(hint.into())))
        }
        None => Ok(()),
    }
}

impl From<InstanceError> for RecordError {
    fn from(error: InstanceError) -> Self {
        let hint = error.hint();
        Self::Kernel(error.to_string(), hint)
    }
}

impl ByTracefs {
    /// Makes the buffers and enables the events; nothing is recorded yet. The size is of a CPU's
    /// buffer, in bytes; 0: as is usual.
    pub(crate) fn prepare(
        options: &KernelOptions,
        size_bytes: u64,
        overwrite: bool,
    ) -> Result<Self, RecordError> {
        if !options.system && !kernel::is_first_namespace() {
            let why = "in a pid namespace, what the command does cannot be told from the rest";
            return Err(failed("cannot record kernel events", why));
        }
        refuse_what_is_not_there(options)?;
        let chosen = options.cpus.as_deref().map(crate::cpus::chosen).transpose()?;
        let catalogue = Catalogue::open()?;
        let selection = Selection::new(&options.patterns)?;
        let events = catalogue.select(&selection)?.events;
        let cpus = crate::cpus::online().len().max(1) as u64;
        let cpu_bytes = match size_bytes {
            0 => kernel::CPU_BYTES.min(BUFFERS_BYTES / cpus),
            size_bytes => size_bytes,
        };
        let cpu_bytes = cpu_bytes.max(CPU_BYTES_MIN);
        let is_scoped = !options.system;
        let instance = Instance::new(&Wanted { cpu_bytes, overwrite, is_scoped, cpus: chosen })?;
        let converter = Converter::new(&events, instance.common, kernel::PAYLOAD_BYTES_MAX);
        for event in events.iter().filter(|event| event.id.is_some()) {
            instance.enable(event)?;
        }
        let shared = Arc::new(Shared {
            instance,
            cpu_bytes,
            overwrite,
            is_scoped,
            is_stopped: options.is_stopped,
        });
        Ok(Self { shared, converter })
    }

    /// Says what of the events will not be in the trace.
    pub(crate) fn say_what_is_missing(&self, notices: &Notices) {
        let Converter { left_out, empty, .. } = &self.converter;
        if let [first, ..] = &left_out[..] {
            let count = Grouped(left_out.len() as u64);
            notices.say(format_args!(
                "tracefs does not have {count} of the kernel's events, such as {first}"
            ));
        }
        match &empty[..] {
            [] => {}
            [(event, field)] => notices.say(format_args!(
                "tracefs does not give what programs point to: {field} of {event} is empty"
            )),
            [(event, field), ..] => notices.say(format_args!(
                "tracefs does not give what programs point to: {} fields are empty, such as \
                 {field} of {event}",
                Grouped(empty.len() as u64)
            )),
        }
    }

    /// Writes what is recorded to the trace at `root`, on the clock whose offset from the time of
    /// day is this.
    pub(crate) fn begin(
        self,
        root: &Path,
        realtime_offset_ns: i64,
    ) -> Result<Draining, RecordError> {
        let Self { shared, converter } = self;
        let remarks = remarks(&converter);
        let contexts = Contexts::default().fields();
        let uuid = trace::random_uuid()?;
        let mut trace = Trace::create_kernel(root, uuid, realtime_offset_ns, contexts, remarks)?;
        let events = converter.descriptions().iter().zip(converter.meanings());
        for (id, (event, meanings)) in (0..).zip(events) {
            let meanings = kernel_meanings::of_fields(meanings);
            trace.metadata.declare_meaning(0, id, event, &meanings);
        }
        let path = || root.join(trace::KERNEL).join("metadata");
        trace.metadata.write().map_err(|error| RecordError::Io("write", path(), error))?;
        let (stop, stopped) = mpsc::channel();
        let mut drainer = Drainer {
            begin_ts: trackway_sys::clock::monotonic_ns(),
            streams: shared.instance.cpus().iter().map(|_| CpuStream::default()).collect(),
            page: vec![0; shared.instance.pages.page_bytes()],
            record: Vec::new(),
            shared: Arc::clone(&shared),
            converter,
            trace,
        };
        let drain = move || {
            // Until somebody says so, or nobody is left who could.
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(kernel::PERIOD) {
                drainer.turn(false)?;
            }
            drainer.turn(true)?;
            Ok((drainer.streams, drainer.trace))
        };
        let thread = std::thread::Builder::new().name("trackway-kernel".into()).spawn(drain);
        let thread = thread.map_err(|error| failed("cannot start a thread", error))?;
        if !shared.is_scoped && !shared.is_stopped {
            let error = |error| failed("cannot record kernel events", error);
            shared.instance.record(true).map_err(error)?;
        }
        Ok(Draining { shared, stop, thread })
    }
}

/// What the trace says of itself in its `env`: which fields are empty whatever the program said.
fn remarks(converter: &Converter) -> Vec<(&'static str, String)> {
    let names = converter.empty.iter().map(|(event, field)| format!("{event}:{field}"));
    let names: Vec<String> = names.collect();
    vec![("trackway_kernel_via", "tracefs".to_owned()), ("trackway_empty_fields", names.join(" "))]
}

impl Draining {
    /// What the command's process does before it runs the command: from there on it is recorded.
    pub(crate) fn entrance(&self) -> Option<Entrance> {
        let shared = Arc::clone(&self.shared);
        shared.is_scoped.then(|| Box::new(move || shared.instance.enter()) as Entrance)
    }

    /// Records again.
    pub(crate) fn start(&self) {
        let _ = self.shared.instance.record(true);
    }

    /// Records nothing any more.
    pub(crate) fn stop(&self) {
        let _ = self.shared.instance.record(false);
    }

    /// Ends it, and writes what is left. The instance is gone then.
    pub(crate) fn finish(self) -> Result<Summary, RecordError> {
        self.stop();
        // What is under way takes a fraction of a microsecond.
        std::thread::sleep(Duration::from_millis(1));
        let Self { stop, thread, .. } = self;
        let _ = stop.send(());
        let (streams, trace) = match thread.join() {
            Ok(written) => written.map_err(|error| failed("cannot write kernel events", error))?,
            Err(_) => return Err(failed("cannot write kernel events", "the thread has ended")),
        };
        let sum = |of: fn(&CpuStream) -> u64| streams.iter().map(of).fold(0, u64::saturating_add);
        let summary = Summary {
            recorded: sum(|stream| stream.written),
            lost: sum(|stream| stream.stats.dropped),
            overwritten: sum(|stream| stream.stats.overwritten.max(stream.missed)),
            damaged: sum(|stream| stream.damaged),
        };
        // Without it, who reads the trace is told that it may not be whole.
        let mark = |facts: PathBuf| completion::mark(&facts, By::Record(&summary.as_summary()));
        let _ = trace.facts().and_then(mark);
        Ok(summary)
    }
}

impl Summary {
    /// As the mark of the trace has it.
    fn as_summary(&self) -> crate::Summary {
        crate::Summary {
            recorded: self.recorded,
            lost: self.lost,
            overwritten: self.overwritten,
            damaged: self.damaged,
            ..crate::Summary::default()
        }
    }

    /// Says what was recorded.
    pub(crate) fn say(&self, folder: Option<&Path>, notices: &Notices) {
        let place = folder.map(|folder| format!(", in {}", folder.display()));
        notices.say(format_args!(
            "kernel: {} events recorded, {} lost, {} overwritten{}",
            Grouped(self.recorded),
            Grouped(self.lost),
            Grouped(self.overwritten),
            place.unwrap_or_default()
        ));
        if self.damaged > 0 {
            notices.say(format_args!(
                "{} pages or records of the kernel's made no sense",
                Grouped(self.damaged)
            ));
        }
        if self.lost > 0 {
            notices.hint(format_args!("fewer events, or a larger --buffer-size, lose fewer"));
        }
    }
}

/// What a turn of draining needs.
struct Drainer {
    shared: Arc<Shared>,
    converter: Converter,
    trace: Trace,
    begin_ts: u64,
    /// As many as the instance has CPUs.
    streams: Vec<CpuStream>,
    /// Room for a page, and for what a record becomes.
    page: Vec<u8>,
    record: Vec<u8>,
}

/// A CPU's stream, and the packet that is next in it.
#[derive(Debug, Default)]
struct CpuStream {
    stream: Option<Stream>,
    packet: PacketBuffer,
    stats: Stats,
    /// Events that pages say were lost before them.
    missed: u64,
    written: u64,
    damaged: u64,
}

impl Drainer {
    /// Moves what there is to the trace. A flight recorder's is left in the buffers to the end.
    fn turn(&mut self, is_last: bool) -> io::Result<()> {
        let Self { shared, converter, trace, begin_ts, streams, page, record } = self;
        if shared.overwrite && !is_last {
            return Ok(());
        }
        let pages_max = 2 + 2 * shared.cpu_bytes / page.len().max(1) as u64;
        for (cpu, stream) in shared.instance.cpus().iter().zip(streams) {
            let mut write = Write { cpu, trace, begin_ts: *begin_ts, stream };
            let mut is_any = false;
            for _ in 0..pages_max {
                let Some(bytes) = cpu.read(page)? else { break };
                is_any = true;
                let Ok(found) = Page::new(&shared.instance.pages, bytes) else {
                    write.stream.damaged += 1;
                    continue;
                };
                if let Missed::Some(count) = found.missed {
                    write.stream.missed = write.stream.missed.saturating_add(count);
                }
                for entry in found {
                    record.clear();
                    let converted = entry.ok().and_then(|entry| {
                        let Converted(id) = converter.convert(entry.bytes, record)?;
                        Some((entry.timestamp, id))
                    });
                    match converted {
                        Some((timestamp, id)) => write.record(timestamp, id, record)?,
                        None => write.stream.damaged += 1,
                    }
                }
            }
            if is_any || is_last {
                write.stream.stats = cpu.stats().unwrap_or(write.stream.stats);
                write.packet()?;
            }
            if is_last {
                write.close()?;
            }
        }
        Ok(())
    }
}

/// Writing a CPU's packets.
struct Write<'a> {
    cpu: &'a Cpu,
    trace: &'a Trace,
    begin_ts: u64,
    stream: &'a mut CpuStream,
}

impl Write<'_> {
    fn record(&mut self, timestamp: u64, id: u16, record: &[u8]) -> io::Result<()> {
        if !self.stream.packet.has_room(record.len()) {
            self.packet()?;
        }
        self.stream.packet.add(timestamp, id, record);
        Ok(())
    }

    fn open(&mut self, first_ts: u64) -> io::Result<&mut Stream> {
        if self.stream.stream.is_none() {
            let (place, cpu) = (&self.trace.channel, self.cpu.number);
            let name = format!("{}_{cpu}", trace::KERNEL);
            let id = StreamId { uuid: self.trace.uuid, class: 0, instance: cpu.into(), cpu };
            let begin_ts = self.begin_ts.min(first_ts);
            let made = Stream::create(place, &name, Tracefiles::default(), id, begin_ts)?;
            self.stream.stream = Some(made);
        }
        self.stream.stream.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Writes the packet, if there is anything in it.
    fn packet(&mut self) -> io::Result<()> {
        let mut packet = self.stream.packet.take();
        if packet.events == 0 {
            return Ok(());
        }
        let is_first = self.stream.stream.is_none();
        let Stats { dropped, overwritten } = self.stream.stats;
        let fields = Packet {
            begin_ts: packet.begin_ts,
            end_ts: packet.last_ts,
            discarded: dropped,
            // How many packets they would have been nobody knows.
            missing: u64::from(is_first && overwritten.max(self.stream.missed) > 0),
            events: packet.events,
        };
        self.open(packet.begin_ts)?.append(&mut packet.bytes, &fields)?;
        self.stream.written += packet.events;
        Ok(())
    }

    /// Says in the trace what was lost at its end.
    fn close(&mut self) -> io::Result<()> {
        let discarded = self.stream.stats.dropped;
        let told = self.stream.stream.as_ref().map_or(0, |stream| stream.discarded);
        if discarded <= told {
            return Ok(());
        }
        let stream = self.open(self.begin_ts)?;
        let end_ts = trackway_sys::clock::monotonic_ns().max(stream.end_ts);
        let mut empty = vec![0; PACKET_HEADER_BYTES];
        let packet = Packet { begin_ts: end_ts, end_ts, discarded, missing: 0, events: 0 };
        stream.append(&mut empty, &packet)
    }
}

/// Records that will be a packet, behind room for its header.
#[derive(Debug, Default)]
struct PacketBuffer {
    bytes: Vec<u8>,
    begin_ts: u64,
    /// Of the latest record, also of packets before.
    last_ts: u64,
    events: u64,
}

impl PacketBuffer {
    fn has_room(&self, payload_bytes: usize) -> bool {
        self.events == 0 || self.bytes.len() + EXTENDED_BYTES + payload_bytes <= PACKET_BYTES_MAX
    }

    /// Adds a record. The kernel's clock may step back a little between an event and one that
    /// interrupts it; times here do not.
    fn add(&mut self, timestamp: u64, id: u16, payload: &[u8]) {
        debug_assert!(payload.len() + EXTENDED_BYTES <= RECORD_BYTES_MAX, "as plans bound it");
        let timestamp = timestamp.max(self.last_ts);
        if self.events == 0 {
            self.bytes.clear();
            self.bytes.resize(PACKET_HEADER_BYTES, 0);
            (self.begin_ts, self.last_ts) = (timestamp, timestamp);
        }
        let time = (timestamp as u32) << TAG_BITS;
        let id = u32::from(id);
        if (timestamp - self.last_ts) >> TIME_BITS != 0 {
            self.bytes.push(TAG_EXTENDED as u8);
            self.bytes.extend(id.to_le_bytes());
            self.bytes.extend(timestamp.to_le_bytes());
        } else if id < TAG_MEDIUM {
            const _: () = assert!(COMPACT_BYTES == size_of::<u32>());
            self.bytes.extend((time | id).to_le_bytes());
        } else {
            self.bytes.extend((time | TAG_MEDIUM).to_le_bytes());
            self.bytes.extend((id as u16).to_le_bytes());
        }
        self.bytes.extend_from_slice(payload);
        self.last_ts = timestamp;
        self.events += 1;
    }

    /// What is there, and goes on with nothing behind it.
    fn take(&mut self) -> Self {
        let next = Self { last_ts: self.last_ts, ..Self::default() };
        mem::replace(self, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_bounded_and_their_times_do_not_go_back() {
        let mut packet = PacketBuffer::default();
        let mut packets = 0;
        let mut before = 0;
        for number in 0..200_u64 {
            if !packet.has_room(1000) {
                let full = packet.take();
                assert!(full.bytes.len() <= PACKET_BYTES_MAX && full.begin_ts >= before);
                assert!(full.begin_ts <= full.last_ts);
                (before, packets) = (full.last_ts, packets + 1);
            }
            // Every other one claims to be earlier.
            packet.add(5000 + number - 100 * (number & 1), 7, &[0; 1000]);
        }
        assert_eq!((packets, packet.events), (3, 200 - 3 * 65));
    }

    #[test]
    fn headers_are_as_long_as_numbers_and_times_want() {
        let mut packet = PacketBuffer::default();
        let mut length = PACKET_HEADER_BYTES;
        let begin = 77 << 27;
        for (timestamp, id, header) in [
            (begin, 3, 4),
            (begin + 1, 29, 4),
            (begin + 2, 30, 6),
            (begin + (1 << 27) + 1, 40_000, 6),
            (begin + (1 << 28) + 1, 3, 13),
            (begin + (1 << 28) + 2, 3, 4),
        ] {
            packet.add(timestamp, id, b"payload");
            assert_eq!(packet.bytes.len(), length + header + 7, "{timestamp} {id}");
            length = packet.bytes.len();
        }
    }
}
