//! Traces that are read back: the number of their events, their size, and missing events.
//!
//! Trackway and LTTng-UST write the same format, so one reader counts the events of both. The
//! workloads number the events of each thread from 0, and each thread stays on its CPU, hence in
//! one stream. So the events of a stream without losses are numbered without a gap, and the number
//! of the first event is the number of overwritten events. If several threads share a CPU, their
//! numbers begin far enough apart to identify the thread.

pub(crate) mod marks;
pub(crate) mod numbers;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use trackway_ctf::read::{
    DecodeError, Enumeration, EventSink, Integer, Packet, Scope, Sink, Skip, StreamDecoder, Trace,
    Window,
};

use trackway_bench_engine::error::{Error, Result};
use trackway_bench_engine::results::Account;
use trackway_bench_engine::signals;

/// Bits of an event's number within its thread: `LAB_THREAD_BITS` of harness.h.
const THREAD_BITS: u32 = 22;
/// Most events of a thread whose numbers are tracked, with one bit each.
const EVENTS_MAX: u64 = 1 << 30;

/// The counts of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TraceCounts {
    /// Number of events.
    pub(crate) events: u64,
    /// Bytes of the events' records: packet contents without packet headers.
    pub(crate) record_bytes: u64,
    /// Events that the tracer reports as discarded.
    pub(crate) discarded: u64,
    /// Number of missing events between the first and the last event of each stream.
    pub(crate) gaps: u64,
    /// Sum of the streams' first numbers: the number of overwritten events, if nothing was
    /// discarded.
    pub(crate) before_first: u64,
    /// Number of packets before the first packet of each stream, by packet numbers, over all
    /// streams.
    packets_before: u64,
    /// Fewest and most events of a packet that is not the last of its stream.
    full: Option<(u64, u64)>,
}

impl TraceCounts {
    /// Checks that `events` events may have been overwritten, by the numbers of the remaining
    /// packets.
    fn check_overwritten(&self, events: u64, size: EventSizeKind) -> Result<()> {
        let room = self.overwritten_range(size);
        let is_shown = |(fewest, most): (u64, u64)| {
            (fewest.saturating_sub(self.discarded)..=most + self.discarded).contains(&events)
        };
        if room.is_some_and(is_shown) {
            return Ok(());
        }
        let (fewest, most) = room.unwrap_or_default();
        let message = format!(
            "{events} events are missing at the begin, and in the {} packets that were \
             overwritten were between {fewest} and {most}",
            self.packets_before
        );
        Err(Error::output("trace", message))
    }

    /// Estimates the least and the largest number of events in all overwritten packets, from the
    /// remaining full packets; `None` if no full packet remains.
    fn overwritten_range(&self, size: EventSizeKind) -> Option<(u64, u64)> {
        if self.packets_before == 0 {
            return Some((0, 0));
        }
        let (fewest, most) = self.full?;
        // Some headers are larger, and a packet has unused bytes at its end.
        let (less, more) = match size {
            EventSizeKind::Same => (2, 2),
            EventSizeKind::Text => (fewest / 4, most / 4),
        };
        let times = |events: u64| self.packets_before.saturating_mul(events);
        Some((times(fewest.saturating_sub(less)), times(most + more)))
    }
}

/// The variation of event sizes in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSizeKind {
    /// All events take the same number of bytes.
    Same,
    /// Events are text that contains their number, which has more digits in later events.
    Text,
}

/// Counts the trace in `folder` or below it; `None` if there is no trace.
pub(crate) fn count_trace(folder: &Path) -> Result<Option<TraceCounts>> {
    count_with_numbers(folder, |_, _| ())
}

/// Returns times (by the stream's clock) and numbers of all events in the trace in `folder` or
/// below it, stream by stream.
pub(crate) fn read_event_numbers(folder: &Path) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    count_with_numbers(folder, |clock, number| found.push((clock, number)))?;
    Ok(found)
}

/// Computes the account of the events of threads, given the number of events of each, in a trace
/// without overwritten events. Events of a single thread are identified by their numbers; several
/// threads have the same numbers.
pub(crate) fn account_without_overwrites(folder: &Path, emitted: &[u64]) -> Result<Account> {
    if let [_] = emitted {
        let (counted, threads) = count_by_thread(folder, emitted)?;
        return threads.complete(&counted);
    }
    account_by_count(folder, emitted.iter().sum())
}

/// Computes the account by counting, for events without unique numbers.
pub(crate) fn account_by_count(folder: &Path, emitted: u64) -> Result<Account> {
    let counted = count_trace(folder)?.unwrap_or_default();
    Ok(Account {
        emitted,
        recorded: counted.events,
        lost: counted.discarded,
        overwritten: 0,
        record_bytes: counted.record_bytes,
    })
}

/// Computes the account in a trace that has the newest events of each CPU. Events that are missing
/// before a thread's first event were overwritten, if the numbers of the remaining packets fit that
/// count; otherwise the tracer was not on when they were emitted. Events that are missing after the
/// first event were lost, and the tracer must report them.
pub(crate) fn account_with_overwrites(
    folder: &Path,
    emitted: &[u64],
    size: EventSizeKind,
) -> Result<Account> {
    let (counted, threads) = count_by_thread(folder, emitted)?;
    threads.overwritten_in_packets(&counted, size)
}

/// Computes the account of a thread in a trace of Trackway. The recorder reports the number of lost
/// events, some of which may belong to no stream, and the number of overwritten events. The latter
/// must equal the number of events missing before the first.
pub(crate) fn account_by_summary(
    folder: &Path,
    emitted: u64,
    reported: &RecorderSummary,
) -> Result<Account> {
    let emitted = [emitted];
    let (mut counted, threads) = count_by_thread(folder, &emitted)?;
    counted.discarded = reported.lost;
    threads.summarized(&counted, reported)
}

/// Counts the events of each thread by their numbers.
fn count_by_thread<'a>(folder: &Path, emitted: &'a [u64]) -> Result<(TraceCounts, Threads<'a>)> {
    let most = emitted.iter().copied().max().unwrap_or_default();
    if most > EVENTS_MAX || emitted.len() > 1 && most > 1 << THREAD_BITS {
        return Err(Error::output("workload", format_args!("{most} events of a thread")));
    }
    let mut threads = Threads::new(emitted);
    let counted = count_with_numbers(folder, |_, number| threads.add(number))?.unwrap_or_default();
    Ok((counted, threads))
}

/// Computes the account of events of several sizes and without numbers, which may be somewhat more
/// than `emitted`.
pub(crate) fn account_of_unnumbered_overwrites(folder: &Path, emitted: u64) -> Result<Account> {
    let counted = count_trace(folder)?.unwrap_or_default();
    let overwritten = emitted.saturating_sub(counted.events);
    counted.check_overwritten(overwritten, EventSizeKind::Text)?;
    Ok(Account {
        emitted: counted.events + overwritten,
        recorded: counted.events,
        lost: counted.discarded,
        overwritten,
        record_bytes: counted.record_bytes,
    })
}

/// Events found for each thread.
struct Threads<'a> {
    emitted: &'a [u64],
    found: Vec<Thread>,
    /// Number of events that belong to no thread, or occur twice.
    strangers: u64,
}

/// Events found for one thread.
struct Thread {
    events: u64,
    /// Number of the first event. If no event remains, all emitted events come before the first.
    first: u64,
    /// One bit for each number.
    found_numbers: Vec<u64>,
}

impl<'a> Threads<'a> {
    fn new(emitted: &'a [u64]) -> Self {
        let none = |&events: &u64| {
            let words = usize::try_from(events.div_ceil(u64::from(u64::BITS)));
            Thread { events: 0, first: events, found_numbers: vec![0; words.unwrap_or_default()] }
        };
        Self { emitted, found: emitted.iter().map(none).collect(), strangers: 0 }
    }

    fn add(&mut self, number: u64) {
        // A single thread needs no thread number.
        let thread = if self.found.len() == 1 { 0 } else { number >> THREAD_BITS };
        let number = number - (thread << THREAD_BITS);
        let found = usize::try_from(thread).ok().and_then(|thread| self.found.get_mut(thread));
        if !found.is_some_and(|found| found.add(number)) {
            self.strangers += 1;
        }
    }

    /// Returns the number of found events, and the number of events missing before the threads'
    /// first ones.
    fn check(&self, counted: &TraceCounts) -> Result<(u64, u64)> {
        let emitted: u64 = self.emitted.iter().sum();
        let found: u64 = self.found.iter().map(|one| one.events).sum();
        let before: u64 = self.found.iter().map(|one| one.first).sum();
        if self.strangers > 0 || found != counted.events || found + before > emitted {
            let message =
                format!("{} events, {found} with numbers of threads and once each", counted.events);
            return Err(Error::output("trace", message));
        }
        Ok((found, before))
    }

    /// Computes the account of a trace without overwritten events.
    fn complete(&self, counted: &TraceCounts) -> Result<Account> {
        let (recorded, _) = self.check(counted)?;
        Ok(Account {
            emitted: self.emitted.iter().sum(),
            recorded,
            lost: counted.discarded,
            overwritten: 0,
            record_bytes: counted.record_bytes,
        })
    }

    /// Computes the account of a trace whose oldest events are overwritten, and whose packets have
    /// numbers.
    fn overwritten_in_packets(
        &self,
        counted: &TraceCounts,
        size: EventSizeKind,
    ) -> Result<Account> {
        counted.check_overwritten(self.check(counted)?.1, size)?;
        self.overwritten(counted)
    }

    /// Computes the account of a trace for which the tracer has counted the overwritten events.
    fn summarized(&self, counted: &TraceCounts, reported: &RecorderSummary) -> Result<Account> {
        let found = self.overwritten(counted)?;
        reported.check_count("recorded", reported.recorded, found.recorded)?;
        // If the account does not add up, the caller reports it.
        if found.is_complete() {
            reported.check_count("overwrote", reported.overwritten, found.overwritten)?;
        }
        Ok(found)
    }

    fn overwritten(&self, counted: &TraceCounts) -> Result<Account> {
        let (recorded, before) = self.check(counted)?;
        let emitted: u64 = self.emitted.iter().sum();
        // The tracer counts all losses, including losses before the first remaining event.
        let lost_after = emitted - before - recorded;
        let lost = counted.discarded;
        Ok(Account {
            emitted,
            recorded,
            lost,
            // The account does not add up if more events are missing than the tracer reports.
            overwritten: (before + lost_after).saturating_sub(lost.max(lost_after)),
            record_bytes: counted.record_bytes,
        })
    }
}

impl Thread {
    /// Adds a number; returns false if it is out of range or was added before.
    fn add(&mut self, number: u64) -> bool {
        let (word, bit) = (number / u64::from(u64::BITS), 1 << (number % u64::from(u64::BITS)));
        let word = usize::try_from(word).ok().and_then(|word| self.found_numbers.get_mut(word));
        let Some(word) = word.filter(|word| **word & bit == 0) else { return false };
        *word |= bit;
        self.events += 1;
        self.first = self.first.min(number);
        true
    }
}

/// Counts a trace, and calls `each` with the time and the number of every event that has a number.
fn count_with_numbers(
    folder: &Path,
    mut each: impl FnMut(u64, u64),
) -> Result<Option<TraceCounts>> {
    let Some(folder) = find_trace_folder(folder, 0) else { return Ok(None) };
    let trace = read_metadata(&folder)?;
    let mut counted = TraceCounts::default();
    for stream in list_stream_files(&folder)? {
        let what = stream.display().to_string();
        count_stream((&trace, &what), &read_file(&stream)?, &mut counted, &mut each)?;
    }
    Ok(Some(counted))
}

/// Parses the metadata in `folder`.
pub(crate) fn read_metadata(folder: &Path) -> Result<Trace> {
    let metadata = read_file(&folder.join("metadata"))?;
    let what = folder.display().to_string();
    Trace::parse(&metadata).map_err(|error| Error::output(what, error))
}

/// Returns the bytes of the data streams of the trace in `folder` or below it.
pub(crate) fn stream_bytes(folder: &Path) -> Result<u64> {
    let sizes = list_stream_files(folder)?.into_iter().map(|path| {
        let metadata = fs::metadata(&path);
        metadata.map(|it| it.len()).map_err(Error::io(format!("cannot look at {path:?}")))
    });
    sizes.sum()
}

/// Returns the paths of the data streams of the trace in `folder` or below it.
pub(crate) fn list_stream_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let Some(folder) = find_trace_folder(folder, 0) else { return Ok(Vec::new()) };
    let entries = fs::read_dir(&folder).map_err(Error::io(format!("cannot read {folder:?}")))?;
    let paths = entries.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file() && !path.ends_with("metadata")).collect())
}

/// Returns the first folder at or below `folder` that has metadata.
pub(crate) fn find_trace_folder(folder: &Path, depth: u32) -> Option<PathBuf> {
    const DEPTH_MAX: u32 = 8;
    if folder.join("metadata").is_file() {
        return Some(folder.to_owned());
    }
    let mut below: Vec<_> = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()).collect();
    below.sort_by_key(fs::DirEntry::file_name);
    let mut folders = below.iter().map(fs::DirEntry::path).filter(|path| path.is_dir());
    folders
        .find_map(|path| (depth < DEPTH_MAX).then(|| find_trace_folder(&path, depth + 1)).flatten())
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io(format!("cannot read {path:?}")))
}

/// Reads the packets of a stream and calls `each` for the events of each packet; `what` names the
/// stream in errors. Reading can take seconds: Ctrl-C ends it.
pub(crate) fn for_each_packet<'t>(
    (trace, what): (&'t Trace, &str),
    bytes: &[u8],
    mut each: impl FnMut(
        &Packet,
        &mut StreamDecoder<'t>,
        Window<'_>,
    ) -> std::result::Result<(), DecodeError>,
) -> Result<()> {
    let bad = |error: DecodeError| Error::output(what, error);
    let mut decoder = StreamDecoder::new(trace);
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if signals::is_stopped() {
            return Err(Error::Interrupted);
        }
        let window = Window::whole(rest);
        let begun = decoder.begin_packet(window, rest.len() as u64, &mut Skip, |_| ());
        let packet = begun.map_err(bad)?;
        each(&packet, &mut decoder, window).map_err(bad)?;
        let size = packet.packet_bits.map_or(rest.len() as u64, |bits| bits / 8);
        at = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
    }
    Ok(())
}

/// Adds the counts of one stream's events.
fn count_stream(
    of: (&Trace, &str),
    bytes: &[u8],
    counted: &mut TraceCounts,
    each: &mut impl FnMut(u64, u64),
) -> Result<()> {
    let mut numbers = NumberSink::default();
    let mut discarded = 0;
    let mut latest = None;
    for_each_packet(of, bytes, |packet, decoder, window| {
        match latest {
            None => counted.packets_before += packet.sequence.unwrap_or(0),
            Some(events) => {
                let (fewest, most) = counted.full.unwrap_or((events, events));
                counted.full = Some((fewest.min(events), most.max(events)));
            }
        }
        let before = numbers.events;
        discarded = packet.events_discarded.unwrap_or(discarded);
        counted.record_bytes += (decoder.content_bits() - decoder.position_bits()) / 8;
        while let Some(event) = decoder.begin_event(window)? {
            let clock = event.header.clock;
            event.read(&mut numbers)?;
            if let Some(number) = numbers.event_ends() {
                each(clock, number);
            }
        }
        latest = Some(numbers.events - before);
        Ok(())
    })?;
    counted.events += numbers.events;
    counted.discarded += discarded;
    if let (Some(first), Some(last)) = (numbers.first, numbers.last) {
        counted.before_first += first;
        counted.gaps += (last + 1).saturating_sub(first).saturating_sub(numbers.events);
    }
    Ok(())
}

/// Finds each event's number: the last integer of the payload, or the number at the end of a
/// message, as in `… (17)`.
#[derive(Default)]
struct NumberSink {
    in_fields: bool,
    current: Option<u64>,
    events: u64,
    first: Option<u64>,
    last: Option<u64>,
}

impl NumberSink {
    /// Ends an event; returns the number of the event, if it has one.
    fn event_ends(&mut self) -> Option<u64> {
        self.events += 1;
        self.last = self.current.or(self.last);
        self.first = self.first.or(self.current);
        self.current
    }
}

impl EventSink for NumberSink {
    fn begin_scope(&mut self, scope: Scope) {
        self.in_fields = scope == Scope::Fields;
    }
}

impl Sink for NumberSink {
    fn integer(&mut self, _: &Integer, value: u64) {
        if self.in_fields {
            self.current = Some(value);
        }
    }
    fn text(&mut self, bytes: &[u8]) {
        if let Some(number) = parse_number_at_end(bytes).filter(|_| self.in_fields) {
            self.current = Some(number);
        }
    }
    fn enumeration(&mut self, _: &Enumeration, _: u64) {}
    fn float(&mut self, _: f64) {}
}

/// Parses the number at the end of `… (17)`.
fn parse_number_at_end(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b")")?;
    let start = text.iter().rposition(|&byte| byte == b'(')?;
    std::str::from_utf8(&text[start + 1..]).ok()?.parse().ok()
}

/// A recorder's summary of its events (`trackway record --summary-json`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct RecorderSummary {
    /// Events in the trace.
    pub(crate) recorded: u64,
    /// Events that were discarded.
    pub(crate) lost: u64,
    /// Events overwritten by newer ones.
    pub(crate) overwritten: u64,
}

impl RecorderSummary {
    /// Reads the summary of a part of the recording, `programs` or `kernel`, from `file`.
    ///
    /// # Errors
    ///
    /// If the file has no summary of this part.
    pub(crate) fn read(file: &Path, part: &str) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(Error::io(format!("cannot read {file:?}")))?;
        Self::parse(&text, part)
            .ok_or_else(|| Error::output("trackway record", format!("no {part} in '{text}'")))
    }

    fn parse(text: &str, part: &str) -> Option<Self> {
        let mut summary: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value(summary.get_mut(part)?.take()).ok()
    }

    /// Checks that the trace has as many events as the tracer reports.
    pub(crate) fn check_count(&self, did: &str, reported: u64, found: u64) -> Result<()> {
        if reported == found {
            return Ok(());
        }
        let message =
            format!("it says that it {did} {reported} events; by the trace, they are {found}");
        Err(Error::output("trackway record", message))
    }
}

#[cfg(test)]
mod tests;
