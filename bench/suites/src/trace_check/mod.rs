//! Traces read back: how many events are in them, how large, and whether one is missing.
//!
//! Trackway and LTTng-UST write the same format, so one reader counts both. The workloads number
//! the events of each thread from 0, and each thread stays on its CPU, hence in one stream. So the
//! events of a stream without losses are numbered without a gap, and the number of its first event
//! is the number of overwritten ones. Where several threads share a CPU, their numbers begin far
//! enough apart to identify the thread.

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

/// From the numbers of one thread to those of the next: `LAB_THREAD_BITS` of harness.h.
const THREAD_BITS: u32 = 22;
/// Most events of a thread whose numbers are tracked: a bit each.
const EVENTS_MAX: u64 = 1 << 30;

/// The counts of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Events.
    pub(crate) events: u64,
    /// Bytes of their records: packets' contents without the packets' headers.
    pub(crate) record_bytes: u64,
    /// Events that the tracer reports as discarded.
    pub(crate) discarded: u64,
    /// Numbers missing between a stream's first and last event.
    pub(crate) gaps: u64,
    /// Sum of the streams' first numbers: the number of overwritten events, if nothing was
    /// discarded.
    pub(crate) before_first: u64,
    /// Packets that were there before each stream's first, by their own numbers: of all streams.
    packets_before: u64,
    /// Fewest and most events of a packet that another one follows.
    full: Option<(u64, u64)>,
}

impl Counted {
    /// Checks that `events` events were overwritten, by the numbers of the remaining packets.
    fn check_overwritten(&self, events: u64, size: Size) -> Result<()> {
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

    /// Estimates the least and the largest total of events in all overwritten packets, from the
    /// full packets that are left. `None`: none is left.
    fn overwritten_range(&self, size: Size) -> Option<(u64, u64)> {
        if self.packets_before == 0 {
            return Some((0, 0));
        }
        let (fewest, most) = self.full?;
        // Some headers are larger, and a packet has unused bytes at its end.
        let (less, more) = match size {
            Size::Same => (2, 2),
            Size::Text => (fewest / 4, most / 4),
        };
        let times = |events: u64| self.packets_before.saturating_mul(events);
        Some((times(fewest.saturating_sub(less)), times(most + more)))
    }
}

/// The variation of event sizes in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// All events take the same number of bytes.
    Same,
    /// Events are text with their number in it, which has more digits in the end.
    Text,
}

/// Counts the trace in `folder` or somewhere below; `None` if there is none.
pub(crate) fn count(folder: &Path) -> Result<Option<Counted>> {
    count_each(folder, |_, _| ())
}

/// Times (by the stream's clock) and numbers of all events in the trace in `folder` or somewhere
/// below, stream by stream.
pub(crate) fn numbers(folder: &Path) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    count_each(folder, |clock, number| found.push((clock, number)))?;
    Ok(found)
}

/// Computes the account of the events of threads, given the number of events of each, in a trace in
/// which nothing is overwritten. Events of a single thread are identified by their numbers; several
/// threads have the same numbers.
pub(crate) fn complete(folder: &Path, emitted: &[u64]) -> Result<Account> {
    if let [_] = emitted {
        let (counted, threads) = by_thread(folder, emitted)?;
        return threads.complete(&counted);
    }
    counted(folder, emitted.iter().sum())
}

/// Computes the account without numbers, for events that have none of their own.
pub(crate) fn counted(folder: &Path, emitted: u64) -> Result<Account> {
    let counted = count(folder)?.unwrap_or_default();
    Ok(Account {
        emitted,
        recorded: counted.events,
        lost: counted.discarded,
        overwritten: 0,
        record_bytes: counted.record_bytes,
    })
}

/// Computes the account in a trace that has the newest events of each CPU. Events that are missing
/// before a thread's first one were overwritten, if the numbers of the remaining packets fit that
/// count: else the tracer was not on when they were emitted. Events that are missing after it were
/// lost, and the tracer must report them.
pub(crate) fn overwritten(folder: &Path, emitted: &[u64], size: Size) -> Result<Account> {
    let (counted, threads) = by_thread(folder, emitted)?;
    threads.overwritten_in_packets(&counted, size)
}

/// Computes the account of a thread in a trace of Trackway. The recorder reports how many events it
/// has lost, some of which may belong to no stream, and how many were overwritten: as many as are
/// missing before the first.
pub(crate) fn summarized(
    folder: &Path,
    emitted: u64,
    reported: &RecorderSummary,
) -> Result<Account> {
    let emitted = [emitted];
    let (mut counted, threads) = by_thread(folder, &emitted)?;
    counted.discarded = reported.lost;
    threads.summarized(&counted, reported)
}

/// Counts the events of each thread by their numbers.
fn by_thread<'a>(folder: &Path, emitted: &'a [u64]) -> Result<(Counted, Threads<'a>)> {
    let most = emitted.iter().copied().max().unwrap_or_default();
    if most > EVENTS_MAX || emitted.len() > 1 && most > 1 << THREAD_BITS {
        return Err(Error::output("workload", format_args!("{most} events of a thread")));
    }
    let mut threads = Threads::new(emitted);
    let counted = count_each(folder, |_, number| threads.add(number))?.unwrap_or_default();
    Ok((counted, threads))
}

/// Computes the account of events of several sizes and without numbers, where there may be some
/// more than `emitted`.
pub(crate) fn newest(folder: &Path, emitted: u64) -> Result<Account> {
    let counted = count(folder)?.unwrap_or_default();
    let overwritten = emitted.saturating_sub(counted.events);
    counted.check_overwritten(overwritten, Size::Text)?;
    Ok(Account {
        emitted: counted.events + overwritten,
        recorded: counted.events,
        lost: counted.discarded,
        overwritten,
        record_bytes: counted.record_bytes,
    })
}

/// Events found of each thread.
struct Threads<'a> {
    emitted: &'a [u64],
    found: Vec<Thread>,
    /// Events of no thread, or that are there twice.
    strangers: u64,
}

/// Events found of a thread.
struct Thread {
    events: u64,
    /// The first one's number. Of a thread that has none left, all that it emitted come before it.
    first: u64,
    /// A bit for each number.
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

    /// Returns the number of events, and the number of missing events before the threads' first.
    fn check(&self, counted: &Counted) -> Result<(u64, u64)> {
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

    /// Computes the account where nothing is overwritten.
    fn complete(&self, counted: &Counted) -> Result<Account> {
        let (recorded, _) = self.check(counted)?;
        Ok(Account {
            emitted: self.emitted.iter().sum(),
            recorded,
            lost: counted.discarded,
            overwritten: 0,
            record_bytes: counted.record_bytes,
        })
    }

    /// Computes the account where the oldest are overwritten, and packets have numbers.
    fn overwritten_in_packets(&self, counted: &Counted, size: Size) -> Result<Account> {
        counted.check_overwritten(self.check(counted)?.1, size)?;
        self.overwritten(counted)
    }

    /// Computes the account where the tracer has counted the overwritten events.
    fn summarized(&self, counted: &Counted, reported: &RecorderSummary) -> Result<Account> {
        let found = self.overwritten(counted)?;
        reported.agrees("recorded", reported.recorded, found.recorded)?;
        // The caller reports an account that does not add up.
        if found.is_complete() {
            reported.agrees("overwrote", reported.overwritten, found.overwritten)?;
        }
        Ok(found)
    }

    fn overwritten(&self, counted: &Counted) -> Result<Account> {
        let (recorded, before) = self.check(counted)?;
        let emitted: u64 = self.emitted.iter().sum();
        // The tracer counts all of its losses, also those before the first remaining event.
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
    /// Adds a number; returns false if it is out of range or there already.
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

/// Counts, and calls `each` with the time and the number of every event that has one.
fn count_each(folder: &Path, mut each: impl FnMut(u64, u64)) -> Result<Option<Counted>> {
    let Some(folder) = trace_folder(folder, 0) else { return Ok(None) };
    let trace = trace(&folder)?;
    let mut counted = Counted::default();
    for stream in streams(&folder)? {
        let what = stream.display().to_string();
        count_stream((&trace, &what), &read(&stream)?, &mut counted, &mut each)?;
    }
    Ok(Some(counted))
}

/// Parses the metadata in `folder`.
pub(crate) fn trace(folder: &Path) -> Result<Trace> {
    let metadata = read(&folder.join("metadata"))?;
    let what = folder.display().to_string();
    Trace::parse(&metadata).map_err(|error| Error::output(what, error))
}

/// Bytes of the data streams of the trace in `folder` or somewhere below.
pub(crate) fn stream_bytes(folder: &Path) -> Result<u64> {
    let sizes = streams(folder)?.into_iter().map(|path| {
        let metadata = fs::metadata(&path);
        metadata.map(|it| it.len()).map_err(Error::io(format!("cannot look at {path:?}")))
    });
    sizes.sum()
}

/// Returns the data streams of the trace in `folder` or somewhere below.
pub(crate) fn streams(folder: &Path) -> Result<Vec<PathBuf>> {
    let Some(folder) = trace_folder(folder, 0) else { return Ok(Vec::new()) };
    let entries = fs::read_dir(&folder).map_err(Error::io(format!("cannot read {folder:?}")))?;
    let paths = entries.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file() && !path.ends_with("metadata")).collect())
}

/// Returns the first folder at or below `folder` that has metadata.
pub(crate) fn trace_folder(folder: &Path, depth: u32) -> Option<PathBuf> {
    const DEPTH_MAX: u32 = 8;
    if folder.join("metadata").is_file() {
        return Some(folder.to_owned());
    }
    let mut below: Vec<_> = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()).collect();
    below.sort_by_key(fs::DirEntry::file_name);
    let mut folders = below.iter().map(fs::DirEntry::path).filter(|path| path.is_dir());
    folders.find_map(|path| (depth < DEPTH_MAX).then(|| trace_folder(&path, depth + 1)).flatten())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::io(format!("cannot read {path:?}")))
}

/// Reads the packets of a stream, named `what` in errors, and calls `each` at the events of each
/// packet. This can take seconds: Ctrl-C ends it.
pub(crate) fn each_packet<'t>(
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
        if signals::stopped() {
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

/// Adds one stream's events.
fn count_stream(
    of: (&Trace, &str),
    bytes: &[u8],
    counted: &mut Counted,
    each: &mut impl FnMut(u64, u64),
) -> Result<()> {
    let mut numbers = Numbers::default();
    let mut discarded = 0;
    let mut latest = None;
    each_packet(of, bytes, |packet, decoder, window| {
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
        while let Some(event) = decoder.event(window)? {
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

/// Finds each event's number: the last integer of its payload, or the one that ends a message, as
/// in `… (17)`.
#[derive(Default)]
struct Numbers {
    in_fields: bool,
    current: Option<u64>,
    events: u64,
    first: Option<u64>,
    last: Option<u64>,
}

impl Numbers {
    /// Ends an event; returns its number, if it has one.
    fn event_ends(&mut self) -> Option<u64> {
        self.events += 1;
        self.last = self.current.or(self.last);
        self.first = self.first.or(self.current);
        self.current
    }
}

impl EventSink for Numbers {
    fn begin_scope(&mut self, scope: Scope) {
        self.in_fields = scope == Scope::Fields;
    }
}

impl Sink for Numbers {
    fn integer(&mut self, _: &Integer, value: u64) {
        if self.in_fields {
            self.current = Some(value);
        }
    }
    fn text(&mut self, bytes: &[u8]) {
        if let Some(number) = number_at_end(bytes).filter(|_| self.in_fields) {
            self.current = Some(number);
        }
    }
    fn enumeration(&mut self, _: &Enumeration, _: u64) {}
    fn float(&mut self, _: f64) {}
}

/// Parses the number of `… (17)`.
fn number_at_end(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b")")?;
    let start = text.iter().rposition(|&byte| byte == b'(')?;
    std::str::from_utf8(&text[start + 1..]).ok()?.parse().ok()
}

/// A recorder's summary of its events at the end (`trackway record --summary-json`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct RecorderSummary {
    /// Events in the trace.
    pub(crate) recorded: u64,
    /// Events discarded.
    pub(crate) lost: u64,
    /// Events overwritten by newer ones.
    pub(crate) overwritten: u64,
}

impl RecorderSummary {
    /// Reads the part of the file for `programs`, or for the `kernel`.
    ///
    /// # Errors
    ///
    /// If it has no summary of this part.
    pub(crate) fn read(file: &Path, part: &str) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(Error::io(format!("cannot read {file:?}")))?;
        Self::parse(&text, part)
            .ok_or_else(|| Error::output("trackway record", format!("no {part} in '{text}'")))
    }

    fn parse(text: &str, part: &str) -> Option<Self> {
        let mut summary: serde_json::Value = serde_json::from_str(text).ok()?;
        serde_json::from_value(summary.get_mut(part)?.take()).ok()
    }

    /// Checks that the trace has as many events as reported.
    pub(crate) fn agrees(&self, did: &str, reported: u64, found: u64) -> Result<()> {
        if reported == found {
            return Ok(());
        }
        let message =
            format!("it says that it {did} {reported} events; by the trace, they are {found}");
        Err(Error::output("trackway record", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let text = r#"{"programs": {"recorded": 1234567, "lost": 3, "overwritten": 4000, "cut": 1},
            "kernel": null}"#;
        let expected = RecorderSummary { recorded: 1_234_567, lost: 3, overwritten: 4000 };
        assert_eq!(RecorderSummary::parse(text, "programs"), Some(expected));
        assert_eq!(RecorderSummary::parse(text, "kernel"), None);
        assert_eq!(RecorderSummary::parse("", "programs"), None);
    }

    #[test]
    fn what_is_missing_at_the_begin_must_have_been_in_packets() {
        let counted = |packets_before, events| Counted {
            events,
            packets_before,
            full: Some((100, 101)),
            ..Counted::default()
        };
        let account = |first: u64, packets, size| {
            let emitted = [1000];
            let mut threads = Threads::new(&emitted);
            (first..1000).for_each(|number| threads.add(number));
            threads.overwritten_in_packets(&counted(packets, 1000 - first), size)
        };
        for first in [392, 400, 412] {
            let found = account(first, 4, Size::Same).expect("four packets");
            assert_eq!((found.overwritten, found.is_complete()), (first, true));
        }
        // On from the 20th event on, or from the begin: packets are as many.
        for (first, packets) in [(420, 4), (380, 4), (20, 0), (400, 3), (0, 1)] {
            let error = account(first, packets, Size::Same).unwrap_err().to_string();
            assert!(error.contains("missing at the begin"), "{error}");
        }
        account(420, 4, Size::Text).expect("numbers had fewer digits");
        account(520, 4, Size::Text).expect_err("not so much fewer");
        account(0, 0, Size::Same).expect("nothing was overwritten");
        let none = Counted { packets_before: 1, ..Counted::default() };
        assert_eq!(none.overwritten_range(Size::Same), None);
    }

    #[test]
    fn each_number_is_there_once_or_lost() {
        let kept = |numbers: &[u64], discarded| {
            let mut threads = Threads::new(&[4]);
            numbers.iter().for_each(|number| threads.add(*number));
            let events = numbers.len() as u64;
            threads.complete(&Counted { events, discarded, ..Counted::default() })
        };
        assert!(kept(&[0, 1, 2, 3], 0).expect("all").is_complete());
        assert!(kept(&[0, 3], 2).expect("some").is_complete());
        assert!(!kept(&[0, 3], 1).expect("fewer than are missing").is_complete());
        // The right count with wrong numbers.
        for numbers in [[0, 1, 1, 3], [0, 1, 2, 64]] {
            let error = kept(&numbers, 0).unwrap_err().to_string();
            assert!(error.contains("4 events, 3 with numbers of threads and once each"), "{error}");
        }
    }

    #[test]
    fn our_recorder_must_say_what_is_overwritten_as_others_packets_do() {
        let found = |numbers: std::ops::Range<u64>, (lost, overwritten)| {
            let mut threads = Threads::new(&[100]);
            let recorded = numbers.end - numbers.start;
            numbers.for_each(|number| threads.add(number));
            let counted = Counted { events: recorded, discarded: lost, ..Counted::default() };
            threads.summarized(&counted, &RecorderSummary { recorded, lost, overwritten })
        };
        assert!(found(40..100, (0, 40)).expect("the newest").is_complete());
        assert!(found(0..100, (0, 0)).expect("all").is_complete());
        assert!(found(40..100, (40, 0)).expect("the first are lost").is_complete());
        assert!(found(40..90, (10, 40)).expect("the last are lost").is_complete());
        assert!(!found(40..90, (0, 50)).expect("the last, and it says nothing").is_complete());
        // On from the 40th event on: more are missing than were overwritten.
        for reported in [0, 20, 60] {
            let error = found(40..100, (0, reported)).unwrap_err().to_string();
            assert!(error.contains(&format!("overwrote {reported} events")), "{error}");
        }
    }

    #[test]
    fn numbers_end_messages() {
        assert_eq!(number_at_end(b"a name of 16 by (17)"), Some(17));
        for text in [&b"none"[..], b"()", b"(x)", b"17)"] {
            assert_eq!(number_at_end(text), None);
        }
    }

    #[test]
    fn where_there_is_no_trace_there_is_nothing() {
        assert_eq!(count(Path::new("/nonexistent")).expect("no trace"), None);
    }
}
