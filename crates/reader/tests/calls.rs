//! File names that were not in memory at the entry of a call: entries get them from the exit
//! events, in every format, and filters use them.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::num::NonZero;

use support::Random;
use trackway_ctf::read::Trace;
use trackway_reader::{DataFile, Filters, Input, Range, Selection, Settings, print_events};
use trackway_render::{
    Csv, Json, LineFormat, LineOutput, OneLine, Pretty, PrettyOptions, Symbolic, utc_date_time,
};

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 32; align = 8; } := u32;
typealias integer { size = 64; align = 8; } := u64;
typealias integer { size = 64; align = 8; map = clock.c.value; } := stamp;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { u32 magic; u32 stream_id; }; };
clock { name = c; };
stream { id = 0;
    packet.context := struct { stamp timestamp_begin; stamp timestamp_end; u64 content_size;
        u64 packet_size; u64 events_discarded; };
    event.header := struct { u8 id; stamp timestamp; };
    event.context := struct { u32 tid; }; };
event { name = syscall_entry_open; stream_id = 0; id = 0;
    fields := struct { string filename; u32 flags; u8 incomplete; }; };
event { name = syscall_exit_open; stream_id = 0; id = 1;
    fields := struct { u64 ret; u8 count; string filename[count]; u8 incomplete; }; };
event { name = syscall_entry_rename; stream_id = 0; id = 2;
    fields := struct { string oldname; string newname; u8 incomplete; }; };
event { name = syscall_exit_rename; stream_id = 0; id = 3;
    fields := struct { u64 ret; u8 one; string oldname[one]; u8 two; string newname[two];
        u8 incomplete; }; };
event { name = other; stream_id = 0; id = 4; fields := struct { u64 n; }; };
";

const NAMES: [&str; 7] = ["/a", "", "/with \"quotes\",", "/\u{e9}\n\t", "/x/y", "m", "\u{1b}[0m"];
const STREAMS: u64 = 3;
const EVENTS: u64 = 1200;

/// The intended text of a call's argument; true if it was in memory at the entry, and at the exit.
#[derive(Clone, Copy)]
struct Text {
    name: &'static str,
    was_there: bool,
    is_there: bool,
}

impl Text {
    fn random(random: &mut Random) -> Self {
        let name = NAMES[random.next_below(NAMES.len() as u64) as usize];
        let was_there = random.next_below(3) > 0;
        Self { name, was_there, is_there: random.next_below(8) > 0 }
    }

    /// Returns the text that a reader can know.
    fn known(&self) -> &'static str {
        if self.was_there || self.is_there { self.name } else { "" }
    }

    fn at_entry(&self) -> &'static str {
        if self.was_there { self.name } else { "" }
    }
}

/// A call in the trace: `open` has one text, `rename` has two.
#[derive(Clone)]
struct Call {
    texts: Vec<Text>,
    thread: u32,
}

impl Call {
    fn id(&self) -> u8 {
        if self.texts.len() == 1 { 0 } else { 2 }
    }

    /// Returns the entry's payload with these texts.
    fn entry(&self, texts: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut incomplete = 0;
        for (number, (text, meant)) in texts.iter().zip(&self.texts).enumerate() {
            bytes.extend(text.bytes().chain([0]));
            incomplete |= u8::from(*text != meant.name) << number;
        }
        if self.texts.len() == 1 {
            bytes.extend(7_u32.to_le_bytes());
        }
        bytes.push(incomplete);
        bytes
    }

    fn exit(&self) -> Vec<u8> {
        let mut bytes = 3_u64.to_le_bytes().to_vec();
        for text in &self.texts {
            bytes.push(u8::from(!text.was_there));
            if !text.was_there {
                bytes.extend(if text.is_there { text.name } else { "" }.bytes().chain([0]));
            }
        }
        bytes.push(0);
        bytes
    }
}

/// The events of each stream as bytes, the number of events per packet, and the number of lost
/// events after each stream's first packet.
struct Streams(Vec<Vec<(u64, Vec<u8>)>>, usize, u64);

impl Streams {
    fn new() -> Self {
        Self((0..STREAMS).map(|_| Vec::new()).collect(), 50, 0)
    }

    fn push(&mut self, stream: u64, time: u64, id: u8, thread: u32, payload: &[u8]) {
        let mut bytes = vec![id];
        bytes.extend(time.to_le_bytes());
        bytes.extend(thread.to_le_bytes());
        bytes.extend(payload);
        self.0[stream as usize].push((time, bytes));
    }

    /// Returns the bytes of the stream files.
    fn files(&self) -> Vec<Vec<u8>> {
        let packet = |(number, events): (usize, &[(u64, Vec<u8>)])| {
            let lost = if number == 0 { 0 } else { self.2 };
            let bits = 8 * (48 + events.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
            let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
            packet.extend(0_u32.to_le_bytes());
            for word in [events[0].0, events[events.len() - 1].0, bits, bits, lost] {
                packet.extend(word.to_le_bytes());
            }
            events.iter().for_each(|(_, bytes)| packet.extend(bytes));
            packet
        };
        let packets =
            |events: &Vec<_>| events.chunks(self.1).enumerate().flat_map(packet).collect();
        self.0.iter().map(packets).collect()
    }
}

/// Returns a trace of random calls of a few threads that change CPUs, and the expected trace, in
/// which all texts that a reader can know were in memory at the entry.
fn random_traces(seed: u64) -> [Vec<Vec<u8>>; 2] {
    const THREADS: usize = 5;
    let mut random = Random(seed);
    let mut made = [Streams::new(), Streams::new()];
    let mut inside: [Option<Call>; THREADS] = [const { None }; THREADS];
    for time in 0..EVENTS {
        let stream = random.next_below(STREAMS);
        let thread = random.next_below(THREADS as u64) as u32;
        let call = &mut inside[thread as usize];
        if random.next_below(4) == 0 {
            let n = time.to_le_bytes();
            made.iter_mut().for_each(|one| one.push(stream, time, 4, thread, &n));
        } else if let Some(call) = call.take() {
            for one in &mut made {
                one.push(stream, time, call.id() + 1, call.thread, &call.exit());
            }
        } else {
            let count = 1 + random.next_below(2);
            let texts = (0..count).map(|_| Text::random(&mut random)).collect();
            let entered = Call { texts, thread };
            let recorded: Vec<_> = entered.texts.iter().map(Text::at_entry).collect();
            // An entry gets either all of its texts, or none.
            let is_known = entered.texts.iter().all(|text| text.known() == text.name);
            let known: Vec<_> = entered.texts.iter().map(Text::known).collect();
            let expected = if is_known { known } else { recorded.clone() };
            for (one, texts) in made.iter_mut().zip([recorded, expected]) {
                one.push(stream, time, entered.id(), thread, &entered.entry(&texts));
            }
            *call = Some(entered);
        }
    }
    // At the end, all threads exit their calls, so that their texts are known.
    for (at, call) in inside.into_iter().flatten().enumerate() {
        for one in &mut made {
            one.push(0, EVENTS + at as u64, call.id() + 1, call.thread, &call.exit());
        }
    }
    made.map(|one| one.files())
}

/// Prints a trace, which must be undamaged.
fn print_whole_trace<F: LineFormat + Sync>(
    files: &[Vec<u8>],
    format: &F,
    filters: Option<&Filters>,
    limits: (usize, usize),
) -> String {
    let (text, is_whole) = print_range(files, format, (filters, Range::default()), limits);
    assert!(is_whole, "{text}");
    text
}

/// Prints a range of a trace, messages last; returns the text, and true if nothing was damaged.
fn print_range<F: LineFormat + Sync>(
    files: &[Vec<u8>],
    format: &F,
    (filters, range): (Option<&Filters>, Range),
    (jobs, batch_bytes): (usize, usize),
) -> (String, bool) {
    let trace = Trace::parse(METADATA.as_bytes()).expect("metadata");
    let file = |(number, bytes)| DataFile::new(format!("s{number}"), bytes);
    let files = files.iter().map(Vec::as_slice).enumerate().map(file).collect();
    let inputs = vec![Input { trace, folder: String::new(), files }];
    let selection = Selection { filters, range, ..Selection::default() };
    let settings =
        Settings { jobs: NonZero::new(jobs).expect("a thread"), batch_bytes, progress: None };
    let (mut text, mut messages) = (Vec::new(), Vec::new());
    let done = print_events(
        inputs,
        &selection,
        &mut LineOutput::new(format.clone(), &mut text),
        &settings,
        &mut messages,
    );
    text.extend(messages);
    (String::from_utf8(text).expect("UTF-8"), done.expect("memory").is_whole)
}

/// Compares the output for a recorded and an expected trace, in one format.
fn assert_same<F: LineFormat + Sync>(seed: u64, format: &F) {
    let [recorded, expected] = random_traces(seed);
    let matches = |pattern: &str, name: &str| pattern == name;
    let filters = [
        "syscall_entry_open: filename == \"/a\" || filename == \"/with*\"",
        "syscall_entry_rename: oldname == newname || incomplete == 0 && count() % 3 == 0",
    ];
    for texts in [None, Some(&filters[..1]), Some(&filters[..])] {
        let filters = texts.map(|texts| Filters::new(texts.iter().copied(), matches).expect("one"));
        for way in [(1, 1 << 20), (1, 300), (3, 300), (3, 1 << 16)] {
            let found = print_whole_trace(&recorded, format, filters.as_ref(), way);
            let meant = print_whole_trace(&expected, format, filters.as_ref(), way);
            assert!(!found.is_empty());
            for (found, meant) in found.lines().zip(meant.lines()) {
                assert_eq!(found, meant, "seed {seed}, {texts:?}, {way:?}");
            }
            assert_eq!(found.len(), meant.len(), "seed {seed}, {texts:?}, {way:?}");
        }
    }
}

fn pretty_format() -> Pretty<impl trackway_render::Calendar> {
    Pretty::new(PrettyOptions { clock_seconds: true, ..PrettyOptions::default() }, utc_date_time)
}

/// RUN calls of several threads on several CPUs, some with texts that were not in memory at the
/// entry, through every format, with and without filters, in large and small batches. EXPECT the
/// lines of a trace in which all known texts were in memory at the entry.
#[test]
fn entries_have_the_texts_of_their_returns() {
    for seed in 0..3 {
        assert_same(seed, &pretty_format());
        assert_same(seed, &OneLine::new(pretty_format(), true));
        assert_same(seed, &Symbolic::new(pretty_format()));
        assert_same(seed, &Json::new(pretty_format()));
        assert_same(seed, &Csv::new(pretty_format()));
    }
}

/// RUN a call whose exit is not in the trace, and a call of another thread. EXPECT its entry as
/// recorded.
#[test]
fn entries_without_returns_stay_as_they_were_recorded() {
    let text = |is_there| Text { name: "/late", was_there: false, is_there };
    let call = |thread, is_there| Call { texts: vec![text(is_there)], thread };
    let mut one = Streams::new();
    one.push(0, 1, 0, 1, &call(1, true).entry(&[""]));
    one.push(1, 2, 0, 2, &call(2, true).entry(&[""]));
    one.push(2, 3, 1, 2, &call(2, true).exit());
    one.0.retain(|events| !events.is_empty());
    let lines = print_whole_trace(&one.files(), &pretty_format(), None, (2, 1 << 16));
    let entries: Vec<_> = lines.lines().take(2).collect();
    assert!(entries[0].contains("{ filename = \"\", flags = 7, incomplete = 1 }"), "{lines}");
    assert!(entries[1].contains("{ filename = \"/late\", flags = 7, incomplete = 0 }"), "{lines}");
}

/// RUN a call whose exit is missing, and then the same call of the same thread with a late text.
/// EXPECT that the first call does not get the text.
#[test]
fn a_return_is_not_that_of_a_call_before() {
    let late = Text { name: "/late", was_there: false, is_there: true };
    let call = Call { texts: vec![late], thread: 1 };
    let mut one = Streams::new();
    one.push(0, 1, 0, 1, &call.entry(&[""]));
    one.push(1, 2, 0, 1, &call.entry(&[""]));
    one.push(0, 3, 1, 1, &call.exit());
    one.0.truncate(2);
    for batch_bytes in [1, 1 << 16] {
        let lines = print_whole_trace(&one.files(), &pretty_format(), None, (1, batch_bytes));
        let entries: Vec<_> = lines.lines().filter(|line| line.contains("entry")).collect();
        assert!(entries[0].contains("filename = \"\", flags = 7, incomplete = 1"), "{lines}");
        assert!(entries[1].contains("filename = \"/late\", flags = 7, incomplete = 0"), "{lines}");
    }
}

/// RUN an exit after a loss of events. EXPECT that an earlier call does not get its text.
#[test]
fn what_was_lost_may_have_been_the_return() {
    let late = Text { name: "/late", was_there: false, is_there: true };
    let call = Call { texts: vec![late], thread: 1 };
    for (lost, expected) in [(0, "\"/late\", flags = 7, incomplete = 0"), (2, "\"\", flags = 7, ")]
    {
        let mut one = Streams::new();
        (one.1, one.2) = (1, lost);
        one.push(0, 1, 0, 1, &call.entry(&[""]));
        one.push(0, 9, 1, 1, &call.exit());
        one.0.truncate(1);
        let lines = print_whole_trace(&one.files(), &pretty_format(), None, (1, 1 << 16));
        assert!(lines.lines().next().is_some_and(|entry| entry.contains(expected)), "{lines}");
        assert_eq!(lines.contains("discarded 2 events"), lost > 0, "{lines}");
    }
}

/// RUN a call whose text is missing at its exit, too, and then the same call of the same thread
/// with another, late text. EXPECT that the first call does not get the text.
#[test]
fn a_text_is_that_of_its_own_call() {
    let call =
        |name, is_there| Call { texts: vec![Text { name, was_there: false, is_there }], thread: 1 };
    let mut one = Streams::new();
    for (time, call) in [(1, call("/never", false)), (3, call("/late", true))] {
        one.push(0, time, 0, 1, &call.entry(&[""]));
        one.push(0, time + 1, 1, 1, &call.exit());
    }
    one.0.truncate(1);
    let lines = print_whole_trace(&one.files(), &pretty_format(), None, (1, 1 << 16));
    let entries: Vec<_> = lines.lines().filter(|line| line.contains("entry")).collect();
    assert!(entries[0].contains("filename = \"\", flags = 7, incomplete = 1"), "{lines}");
    assert!(entries[1].contains("filename = \"/late\", flags = 7, incomplete = 0"), "{lines}");
}

/// Returns a call of thread 1 whose text was not in memory at its entry.
fn late_call() -> Call {
    Call { texts: vec![Text { name: "/late", was_there: false, is_there: true }], thread: 1 }
}

/// Returns streams with events of another thread at these streams and times.
fn streams_with_other_thread(events: &[(u64, u64)]) -> Streams {
    let mut one = Streams::new();
    for &(stream, time) in events {
        one.push(stream, time, 4, 9, &[0; 8]);
    }
    one
}

/// Returns the line of the first entry, which must be the same with batches of any size.
fn first_entry(files: &[Vec<u8>], range: Range) -> String {
    let mut entries = [(1, 1), (1, 1 << 16), (2, 200)].map(|limits| {
        let (lines, _) = print_range(files, &pretty_format(), (None, range), limits);
        lines.lines().find(|line| line.contains("entry")).expect("an entry").to_owned()
    });
    entries.sort();
    assert_eq!(entries[0], entries[2], "with batches of other sizes");
    entries[0].clone()
}

/// RUN losses around a call: in its own packet, and in another stream, whose packets begin earlier.
/// EXPECT no text for the call if its exit may be among the losses.
#[test]
fn losses_around_a_call_keep_it_as_it_was_recorded() {
    for (events, lost, is_found) in [
        (&[(0, 1), (0, 5)][..], 2, false),
        (&[(0, 1), (0, 5)], 0, true),
        // Losses between 5 and 41; between 5 and 9; between 25 and 41.
        (&[(1, 1), (1, 5), (1, 40), (1, 41)], 2, false),
        (&[(1, 1), (1, 5), (1, 6), (1, 9)], 2, true),
        (&[(1, 1), (1, 25), (1, 40), (1, 41)], 2, true),
    ] {
        let mut one = streams_with_other_thread(events);
        (one.1, one.2) = (2, lost);
        one.push(0, 10, 0, 1, &late_call().entry(&[""]));
        one.push(0, 20, 1, 1, &late_call().exit());
        one.0.retain(|events| !events.is_empty());
        let entry = first_entry(&one.files(), Range::default());
        assert_eq!(entry.contains("\"/late\""), is_found, "{events:?}, {lost}: {entry}");
    }
}

/// RUN a call whose exit is in a damaged packet, and then another call of its thread. EXPECT that
/// the first call does not get the text of the second.
#[test]
fn what_is_damaged_may_have_been_the_return() {
    for is_damaged in [false, true] {
        let mut one = Streams::new();
        one.1 = 2;
        one.push(0, 1, 0, 1, &late_call().entry(&[""]));
        one.push(0, 2, 4, 9, &[0; 8]);
        for time in [3, 4] {
            one.push(0, time, 4, 9, &[0; 8]);
        }
        one.push(0, 5, 1, 1, &late_call().exit());
        one.0.truncate(1);
        let mut files = one.files();
        let second = files[0].windows(4).rposition(|bytes| bytes == [0xc1, 0x1f, 0xfc, 0xc1]);
        let packets = files[0].len();
        let second = second.map(|last| last - 48 - 2 * (13 + 8)).expect("three packets");
        assert!(second < packets);
        if is_damaged {
            files[0][second + 48] = 99;
        }
        let entry = first_entry(&files, Range::default());
        assert_eq!(entry.contains("\"/late\""), !is_damaged, "{entry}");
    }
}

/// RUN a call whose exit is after the end of the requested range. EXPECT its entry as recorded,
/// because packets after the end are not read, and may contain an earlier exit.
#[test]
fn returns_behind_the_end_are_not_looked_for() {
    let mut one = streams_with_other_thread(&[]);
    one.push(0, 10, 0, 1, &late_call().entry(&[""]));
    one.push(0, 20, 1, 1, &late_call().exit());
    one.0.truncate(1);
    for (end, is_found) in [(19, false), (20, true)] {
        let entry = first_entry(&one.files(), Range { begin: None, end: Some(end) });
        assert_eq!(entry.contains("\"/late\""), is_found, "{end}: {entry}");
    }
}

/// RUN many late calls of one thread while events of other threads fill the streams. EXPECT the
/// text in every entry, however many other events there are.
#[test]
fn every_entry_of_a_long_trace_has_its_text() {
    const CALLS: u64 = 3000;
    let mut one = Streams::new();
    let other = Call { thread: 2, ..late_call() };
    for time in 0..CALLS {
        let time = 10 * time;
        one.push(0, time, 0, 1, &late_call().entry(&[""]));
        one.push(0, time + 1, 1, 1, &late_call().exit());
        for (stream, after) in [(1, 2), (2, 3), (1, 4), (2, 5)] {
            let id = u8::from(after > 3);
            let payload = if id == 0 { other.entry(&["/x"]) } else { other.exit() };
            one.push(stream, time + after, id, 2 + stream as u32, &payload);
        }
    }
    let lines = print_whole_trace(&one.files(), &pretty_format(), None, (2, 1 << 16));
    let entries = lines.lines().filter(|line| line.contains("entry") && line.contains("tid = 1 "));
    let found = entries.filter(|line| line.contains("\"/late\"")).count();
    assert_eq!(found as u64, CALLS);
}
