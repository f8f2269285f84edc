//! Growth in simulated time: the output equals the whole trace, whatever pieces its files grow by.
//!
//! Longer than 600 lines: the tests share one simulated recorder and its traces.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use trackway_render::{DateTime, LineOutput, Pretty, PrettyOptions, utc_date_time};
use trackway_testkit::{Random, TemporaryFolder};

use super::diagnostic_log::CONFIRMATION_TIME;
use super::growth::{Growth, LAG_NS};
use super::live::LiveRecorders;
use crate::folder::MetadataCache;
use crate::{PrintState, Selection, Settings, folder, print_events, print_events_after};

const METADATA: &str = "/* CTF 1.8 */
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { integer { size = 32; align = 8; } magic;
        integer { size = 32; align = 8; } stream_id;
        integer { size = 64; align = 8; } stream_instance_id; }; };
clock { name = c; };
stream { id = 0;
    packet.context := struct {
        integer { size = 64; align = 8; map = clock.c.value; } timestamp_begin;
        integer { size = 64; align = 8; map = clock.c.value; } timestamp_end;
        integer { size = 64; align = 8; } content_size;
        integer { size = 64; align = 8; } packet_size;
        integer { size = 64; align = 8; } events_discarded; };
    event.header := struct { integer { size = 64; align = 8; map = clock.c.value; } timestamp; }; };
event { name = tick; stream_id = 0; id = 0;
    fields := struct { integer { size = 32; align = 8; } n; string s; }; };
";

/// Time between two polls, in ns.
const PERIOD_NS: u64 = 100_000_000;

/// A packet: its end time, and its bytes.
type Packet = (u64, Vec<u8>);

/// Returns a stream's packets. Some event times are shared with other streams.
fn random_stream(random: &mut Random, instance: u64) -> Vec<Packet> {
    let mut time = 1_000_000_000_u64;
    let mut discarded = 0;
    (0..random.next_below(12) + 1)
        .map(|_| {
            let begin = time;
            let mut events = Vec::new();
            for n in 0..random.next_below(30) as u32 {
                time += random.next_below(3) * 7_000_000;
                events.extend(time.to_le_bytes());
                events.extend(n.to_le_bytes());
                events.extend(&b"text that is long\0"[random.next_below(17) as usize..]);
            }
            discarded += u64::from(random.once_in(3));
            (time, build_packet(instance, (begin, time), discarded, &events, random.next_below(40)))
        })
        .collect()
}

/// Returns the bytes of a packet of `events`.
fn build_packet(
    instance: u64,
    (begin, end): (u64, u64),
    discarded: u64,
    events: &[u8],
    padding: u64,
) -> Vec<u8> {
    let content = 8 * (56 + events.len() as u64);
    let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    packet.extend(0_u32.to_le_bytes());
    for word in [instance, begin, end, content, content + 8 * padding, discarded] {
        packet.extend(word.to_le_bytes());
    }
    packet.extend(events);
    packet.resize(packet.len() + padding as usize, 0);
    packet
}

type Format = Pretty<fn(i64) -> Option<DateTime>>;

fn pretty_format() -> Format {
    Pretty::new(PrettyOptions::default(), utc_date_time)
}

/// Prints the traces in `folder`; returns the events and the messages.
fn print_whole_trace(folder: &TemporaryFolder) -> [String; 2] {
    let (mut out, mut published) = (Vec::new(), Vec::new());
    let inputs =
        folder::open_traces(&[folder.path().to_owned()], &mut published).expect("a trace").inputs;
    let settings = Settings::default();
    print_events(
        inputs,
        &Selection::default(),
        &mut LineOutput::new(pretty_format(), &mut out),
        &settings,
        &mut published,
    )
    .expect("memory");
    [out, published].map(|bytes| String::from_utf8(bytes).expect("text"))
}

/// A follower of traces in simulated time.
struct Simulation {
    known: MetadataCache,
    live: LiveRecorders,
    growth: Growth,
    diagnostics: super::DiagnosticLog,
    before: PrintState,
    events: u64,
    output: LineOutput<Format, Vec<u8>>,
    reported: Vec<u8>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self {
            known: MetadataCache::default(),
            live: LiveRecorders::default(),
            growth: Growth::default(),
            diagnostics: super::DiagnosticLog::default(),
            before: PrintState::default(),
            events: 0,
            output: LineOutput::new(pretty_format(), Vec::new()),
            reported: Vec::new(),
        }
    }
}

impl Simulation {
    /// Polls the traces in `folder` at the instant `now_ns`; the last time if they have `ended`.
    fn step(&mut self, folder: &TemporaryFolder, now_ns: u64, ended: bool) {
        let now = Duration::from_nanos(now_ns);
        self.live.read_progress(now);
        let paths = [folder.path().to_owned()];
        let found =
            folder::reopen_traces(&paths, &mut self.known, &mut Vec::new()).expect("a trace");
        self.live.update_traces(&found);
        self.growth.set_flushed(self.live.horizon(now));
        let mut inputs = found.inputs;
        if !self.growth.update(&mut inputs, now, ended) {
            return;
        }
        let settings = Settings::default();
        let mut messages = Vec::new();
        let before = std::mem::take(&mut self.before);
        let selection = Selection::default();
        let printed = print_events_after(
            inputs,
            &selection,
            &mut self.output,
            &settings,
            before,
            &mut messages,
        );
        let (summary, before) = printed.expect("memory");
        self.events += summary.events;
        self.before = before;
        self.diagnostics.report(&messages, &mut self.reported).expect("memory");
    }

    /// Polls periodically until the instant `to_ns`.
    fn step_until(&mut self, folder: &TemporaryFolder, now_ns: &mut u64, to_ns: u64) {
        while *now_ns + PERIOD_NS < to_ns {
            *now_ns += PERIOD_NS;
            self.step(folder, *now_ns, false);
        }
        *now_ns = to_ns;
    }

    fn text(&self) -> String {
        String::from_utf8(self.output.writer().clone()).expect("text")
    }

    fn messages(&self) -> Vec<String> {
        let published = String::from_utf8(self.reported.clone()).expect("text");
        let mut lines: Vec<String> = published.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }
}

/// Writes a piece at offset `at` of a file.
fn write_piece(folder: &TemporaryFolder, name: &str, piece: &[u8], at: u64) {
    let mut options = File::options();
    let file = options.create(true).write(true).truncate(false).open(folder.join(name));
    file.expect("a stream").write_all_at(piece, at).expect("a piece");
}

/// Grows streams in random pieces, none later than [`LAG_NS`], and polls in between.
fn check_random_growth(seed: u64) {
    let mut random = Random::new(seed);
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let streams: Vec<Vec<Packet>> = (0..random.next_below(4) + 1)
        .map(|instance| random_stream(&mut random, instance))
        .collect();
    // Times of the pieces: packets come in two pieces, so that some polls find incomplete ones.
    let mut pieces: Vec<(u64, usize, u64, Vec<u8>)> = Vec::new();
    for (number, packets) in streams.iter().enumerate() {
        let (mut at, mut before) = (0, 0);
        for (end, packet) in packets {
            let cut = random.next_below(packet.len() as u64) as usize;
            for piece in [&packet[..cut], &packet[cut..]] {
                before = before.max(end + random.next_below(LAG_NS as u64 / 2));
                pieces.push((before, number, at, piece.to_vec()));
                at += piece.len() as u64;
            }
        }
    }
    pieces.sort();
    let mut simulation = Simulation::default();
    let mut now = 0;
    for (time, number, at, piece) in pieces {
        simulation.step_until(&folder, &mut now, time);
        write_piece(&folder, &format!("stream{number}"), &piece, at);
        simulation.step(&folder, now, false);
    }
    let end = now + 2 * LAG_NS as u64;
    simulation.step_until(&folder, &mut now, end);
    simulation.step(&folder, now, true);
    let [lines, messages] = print_whole_trace(&folder);
    assert_eq!(simulation.text(), lines, "seed {seed}");
    let mut expected: Vec<&str> = messages.lines().collect();
    expected.sort_unstable();
    assert_eq!(simulation.messages(), expected, "seed {seed}");
}

#[test]
fn what_is_followed_is_the_whole_trace_in_order() {
    (0..40).for_each(check_random_growth);
}

/// Overwrites a file, as LTTng does with `--tracefile-count`.
#[test]
fn a_file_that_is_written_over_is_read_again() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut random = Random::new(3);
    let packets: Vec<Packet> = std::iter::repeat_with(|| random_stream(&mut random, 0))
        .find(|packets| packets.len() > 2)
        .expect("a stream of several packets");
    let mut simulation = Simulation::default();
    let count = |packets: &[Packet]| {
        fs::write(
            folder.join("s"),
            packets.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>(),
        )
        .expect("a stream");
        print_whole_trace(&folder)[0].lines().count() as u64
    };
    let first = count(&packets[..2]);
    simulation.step(&folder, 0, false);
    simulation.step(&folder, 5_000_000_000, false);
    let second = count(&packets[2..]);
    simulation.step(&folder, 6_000_000_000, false);
    simulation.step(&folder, 12_000_000_000, true);
    assert_eq!(simulation.events, first + second);
}

/// The newest events wait for earlier events of other streams, but only for the lag.
#[test]
fn the_newest_events_wait_but_not_for_ever() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut random = Random::new(7);
    for (name, instance) in [("a", 0), ("b", 1)] {
        let packet = random_stream(&mut random, instance).swap_remove(0).1;
        File::create(folder.join(name)).expect("a file").write_all(&packet).expect("a packet");
    }
    let mut growth = Growth::default();
    let mut look = |now_ms| {
        let mut inputs = folder::open_traces(&[folder.path().to_owned()], &mut Vec::new())
            .expect("a trace")
            .inputs;
        growth.update(&mut inputs, Duration::from_millis(now_ms), false);
        growth.is_waiting()
    };
    assert!(look(0) && look(990));
    assert!(!look(1010));
}

/// Returns the packet of a stream without sizes, in pieces: the latest time at which each piece
/// comes, i.e. the time of its last event, and its bytes.
fn random_open_packet(random: &mut Random, instance: u64) -> Vec<(u64, Vec<u8>)> {
    let mut time = 1_000_000_000_u64;
    let mut piece = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    piece.extend(0_u32.to_le_bytes());
    for word in [instance, time, 0] {
        piece.extend(word.to_le_bytes());
    }
    let mut pieces = Vec::new();
    for n in 0..random.next_below(200) as u32 {
        time += random.next_below(5) * 7_000_000;
        piece.extend(time.to_le_bytes());
        piece.extend(n.to_le_bytes());
        piece.extend(&b"text that is long\0"[random.next_below(17) as usize..]);
        if random.once_in(3) {
            // The cut is mostly in the middle of an event.
            let rest = piece.split_off(random.next_below(piece.len() as u64 + 1) as usize);
            pieces.push((time, std::mem::replace(&mut piece, rest)));
        }
    }
    pieces.push((time, piece));
    pieces
}

/// Returns the trace's metadata without packet sizes.
fn metadata_without_sizes() -> String {
    let has_size = |line: &&str| ["_size;", "timestamp_end;"].iter().any(|end| line.ends_with(end));
    METADATA.lines().filter(|line| !has_size(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn packets_that_do_not_say_their_size_are_shown_as_they_grow() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let folder = TemporaryFolder::new();
        fs::write(folder.join("metadata"), metadata_without_sizes()).expect("metadata");
        let mut pieces: Vec<(u64, u64, u64, Vec<u8>)> = Vec::new();
        for number in 0..random.next_below(3) + 1 {
            let mut at = 0;
            for (time, piece) in random_open_packet(&mut random, number) {
                pieces.push((time, number, at, piece.clone()));
                at += piece.len() as u64;
            }
        }
        pieces.sort();
        let mut simulation = Simulation::default();
        let mut now = 0;
        for (time, number, at, piece) in pieces {
            simulation.step_until(&folder, &mut now, time);
            write_piece(&folder, &format!("stream{number}"), &piece, at);
        }
        let end = now + 4 * LAG_NS as u64;
        simulation.step_until(&folder, &mut now, end);
        let [lines, _] = print_whole_trace(&folder);
        let shown = simulation.text();
        assert_eq!(shown.lines().count(), lines.lines().count(), "seed {seed}");
        assert!(!simulation.growth.is_waiting(), "seed {seed}");
        simulation.step(&folder, now, true);
        assert_eq!(simulation.text(), shown, "seed {seed}: nothing is left for the end");
        assert!(
            simulation.reported.is_empty() && !simulation.diagnostics.has_damage(),
            "seed {seed}"
        );
    }
}

#[test]
fn a_packet_that_grows_all_the_time_is_shown_all_the_same() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), metadata_without_sizes()).expect("metadata");
    let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    bytes.extend(0_u32.to_le_bytes());
    for word in [0_u64, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    let mut simulation = Simulation::default();
    for n in 0..100_u64 {
        bytes.extend((n * PERIOD_NS).to_le_bytes());
        bytes.extend(u32::try_from(n).expect("a number").to_le_bytes());
        bytes.push(0);
        write_piece(&folder, "stream", &bytes, 0);
        simulation.step(&folder, n * PERIOD_NS, false);
        // Covers the lag, the wait for a decoding, and the wait for earlier decoded events.
        let due = n.saturating_sub(26);
        assert!(simulation.events >= due, "{} of {n}, {due} are due", simulation.events);
    }
}

#[test]
fn damage_in_a_packet_that_does_not_say_its_size_is_told_once_it_lasts() {
    let folder = TemporaryFolder::new();
    let metadata = metadata_without_sizes().replace(
        "event.header := struct {",
        "event.header := struct { enum : integer { size = 8; align = 8; } { ok = 0 } id;",
    );
    fs::write(folder.join("metadata"), metadata).expect("metadata");
    let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    bytes.extend(0_u32.to_le_bytes());
    for word in [0_u64, 1_000_000_000, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for (id, n) in [(0_u8, 1_u32), (0, 2), (7, 3)] {
        bytes.push(id);
        bytes.extend(1_000_000_000_u64.to_le_bytes());
        bytes.extend(n.to_le_bytes());
        bytes.extend(b"s\0");
    }
    write_piece(&folder, "stream", &bytes, 0);
    let (mut simulation, mut now) = (Simulation::default(), 0);
    simulation.step(&folder, now, false);
    simulation.step_until(&folder, &mut now, 1_900_000_000);
    assert_eq!((simulation.events, simulation.diagnostics.has_damage()), (2, false));
    assert!(simulation.growth.is_doubtful());
    simulation.step_until(&folder, &mut now, 2_300_000_000);
    assert!(simulation.diagnostics.has_damage() && !simulation.growth.is_doubtful());
    let messages = simulation.messages();
    simulation.step_until(&folder, &mut now, 5_000_000_000);
    simulation.step(&folder, now, true);
    assert_eq!((simulation.events, messages.len()), (2, 1), "{messages:?}");
    assert_eq!(simulation.messages(), messages);
}

#[test]
fn a_time_is_past_once_nothing_before_it_is_to_come() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut simulation = Simulation::default();
    simulation.step(&folder, 0, false);
    let is_past = |simulation: &Simulation, time: u64, now_ns| {
        simulation.growth.is_past(time.cast_signed(), Duration::from_nanos(now_ns))
    };
    assert!(!simulation.growth.is_begun() && !is_past(&simulation, 0, u64::MAX));
    let (end, packet) = random_stream(&mut Random::new(7), 0).swap_remove(0);
    write_piece(&folder, "stream", &packet, 0);
    simulation.step(&folder, 0, false);
    let lag = LAG_NS as u64;
    assert!(simulation.growth.is_begun());
    assert!(is_past(&simulation, end - lag, 0) && !is_past(&simulation, end - lag + 1, 0));
    // Time advances even if there are no events.
    assert!(!is_past(&simulation, end, lag - 1) && is_past(&simulation, end, lag));
}

/// A simulated recorder that publishes its progress.
struct Recorder {
    /// Folder of the trace, relative to the followed folder.
    folder: &'static str,
    sequence: u64,
    /// End offset of each stream's file, and end time of its latest packet.
    streams: Vec<(u64, u64)>,
}

impl Recorder {
    fn new(root: &TemporaryFolder, folder: &'static str, streams: usize) -> Self {
        fs::create_dir_all(root.join(folder).join("trackway")).expect("a folder");
        fs::write(root.join(folder).join("metadata"), METADATA).expect("metadata");
        Self { folder, sequence: 0, streams: vec![(0, 0); streams] }
    }

    /// Appends a packet of events at these times to a stream.
    fn append(&mut self, root: &TemporaryFolder, stream: usize, times: &[u64]) {
        let (at, before) = &mut self.streams[stream];
        let mut events = Vec::new();
        for &time in times {
            events.extend(time.to_le_bytes());
            events.extend((stream as u32).to_le_bytes());
            events.push(0);
        }
        let end = times.last().copied().unwrap_or(*before);
        let bytes = build_packet(stream as u64, (*before, end), 0, &events, 0);
        write_piece(root, &format!("{}/stream{stream}", self.folder), &bytes, *at);
        (*at, *before) = (*at + bytes.len() as u64, end);
    }

    /// Publishes that all events up to `time` are written.
    fn publish(&mut self, root: &TemporaryFolder, time: u64) {
        self.sequence += 1;
        self.write(root, [self.sequence, time, !(self.sequence ^ time)]);
    }

    fn write(&self, root: &TemporaryFolder, words: [u64; 3]) {
        write_piece(
            root,
            &format!("{}/trackway/live", self.folder),
            &words.map(u64::to_le_bytes).concat(),
            0,
        );
    }

    /// Publishes progress up to `time` repeatedly, so that the follower trusts it from then on.
    fn begin(&mut self, root: &TemporaryFolder, simulation: &mut Simulation, time: u64) {
        // The polls find the trace, read its progress first, and then see the progress change.
        for before in [3, 2, 1] {
            self.publish(root, time - before);
            simulation.step(root, time - before, false);
        }
    }
}

/// Start of the simulated traces and of the reader's clock, in ns.
const BEGIN_NS: u64 = 1_000_000_000;
/// Time between two writes of simulated recorders, in ns.
const FLUSH_NS: u64 = 20_000_000;

#[test]
fn what_the_recorder_says_is_written_is_shown_at_once() {
    let root = TemporaryFolder::new();
    let mut recorder = Recorder::new(&root, "a", 1);
    let mut simulation = Simulation::default();
    recorder.append(&root, 0, &[BEGIN_NS + 10, BEGIN_NS + 20, BEGIN_NS + 30]);
    recorder.begin(&root, &mut simulation, BEGIN_NS);
    assert_eq!(simulation.events, 0);
    // The horizon is within a packet, at an event.
    recorder.publish(&root, BEGIN_NS + 20);
    simulation.step(&root, BEGIN_NS + 20, false);
    assert_eq!(simulation.events, 2);
    let is_past = |simulation: &Simulation, time: u64| {
        simulation.growth.is_past(time.cast_signed(), Duration::from_nanos(BEGIN_NS + 50))
    };
    assert!(is_past(&simulation, BEGIN_NS + 20) && !is_past(&simulation, BEGIN_NS + 21));
    // Only the published progress has changed.
    recorder.publish(&root, BEGIN_NS + 40);
    simulation.step(&root, BEGIN_NS + 40, false);
    assert_eq!(simulation.events, 3);
    assert!(is_past(&simulation, BEGIN_NS + 40) && !simulation.growth.is_waiting());
}

/// Another stream gets events that are earlier than written ones.
#[test]
fn a_stream_that_comes_later_is_waited_for() {
    let root = TemporaryFolder::new();
    let mut recorder = Recorder::new(&root, "a", 2);
    let mut simulation = Simulation::default();
    recorder.begin(&root, &mut simulation, BEGIN_NS);
    recorder.append(&root, 0, &[BEGIN_NS + 10, BEGIN_NS + 30]);
    simulation.step(&root, BEGIN_NS + 40, false);
    assert_eq!(simulation.events, 0, "the recorder is still writing");
    recorder.append(&root, 1, &[BEGIN_NS + 20, BEGIN_NS + 35]);
    recorder.publish(&root, BEGIN_NS + 30);
    simulation.step(&root, BEGIN_NS + 50, false);
    assert_eq!(simulation.events, 3);
    let order: Vec<_> = ["n = 0", "n = 1", "n = 0"].into();
    let shown = simulation.text();
    let is_of = |(line, of): (&str, &str)| line.contains(of);
    assert!(shown.lines().zip(order).all(is_of), "{shown}");
    recorder.publish(&root, BEGIN_NS + 50);
    simulation.step(&root, BEGIN_NS + 70, false);
    assert_eq!(simulation.text(), print_whole_trace(&root)[0]);
}

#[test]
fn what_is_half_written_says_nothing() {
    let root = TemporaryFolder::new();
    let mut recorder = Recorder::new(&root, "a", 1);
    let mut simulation = Simulation::default();
    recorder.append(&root, 0, &[BEGIN_NS + 10, BEGIN_NS + 20]);
    recorder.begin(&root, &mut simulation, BEGIN_NS + 15);
    recorder.publish(&root, BEGIN_NS + 15);
    simulation.step(&root, BEGIN_NS + 15, false);
    assert_eq!(simulation.events, 1);
    let (next, time) = (recorder.sequence + 1, BEGIN_NS + 30);
    recorder.write(&root, [next, time, !(recorder.sequence ^ (BEGIN_NS + 15))]);
    simulation.step(&root, BEGIN_NS + 30, false);
    assert_eq!(simulation.events, 1, "what it said before holds");
    recorder.write(&root, [next, time, !(next ^ time)]);
    simulation.step(&root, BEGIN_NS + 30, false);
    assert_eq!(simulation.events, 2);
}

#[test]
fn a_recorder_that_says_nothing_new_is_not_waited_for() {
    let root = TemporaryFolder::new();
    let mut recorder = Recorder::new(&root, "a", 1);
    let mut simulation = Simulation::default();
    // Left by a recorder that is gone.
    recorder.append(&root, 0, &[BEGIN_NS + 10]);
    recorder.publish(&root, BEGIN_NS);
    simulation.step(&root, BEGIN_NS, false);
    simulation.step(&root, BEGIN_NS + 1, false);
    assert!(simulation.live.is_publishing(Duration::from_nanos(BEGIN_NS + 1)));
    simulation.step(&root, BEGIN_NS + 20 + LAG_NS as u64, false);
    assert_eq!(simulation.events, 1, "it was never seen to change");
    // Trusted progress is waited for, but not forever.
    let begin = BEGIN_NS + 3 * LAG_NS as u64;
    recorder.begin(&root, &mut simulation, begin);
    recorder.append(&root, 0, &[begin + 10]);
    let patience = CONFIRMATION_TIME.as_nanos() as u64;
    simulation.step(&root, begin - 1 + patience - 1, false);
    assert_eq!(simulation.events, 1);
    simulation.step(&root, begin - 1 + patience, false);
    assert!(!simulation.live.is_publishing(Duration::from_nanos(begin - 1 + patience)));
    assert_eq!(simulation.events, 1, "it lags from then on");
    simulation.step(&root, begin + 10 + patience + LAG_NS as u64, false);
    assert_eq!(simulation.events, 2);
}

#[test]
fn of_several_traces_the_one_that_is_least_far_counts() {
    let root = TemporaryFolder::new();
    let mut one = Recorder::new(&root, "a", 1);
    let mut other = Recorder::new(&root, "b", 1);
    let mut simulation = Simulation::default();
    other.publish(&root, BEGIN_NS - 9);
    simulation.step(&root, BEGIN_NS - 9, false);
    one.begin(&root, &mut simulation, BEGIN_NS);
    other.publish(&root, BEGIN_NS + 15);
    one.append(&root, 0, &[BEGIN_NS + 10, BEGIN_NS + 20]);
    one.publish(&root, BEGIN_NS + 30);
    simulation.step(&root, BEGIN_NS + 30, false);
    assert_eq!(simulation.events, 1);
    other.append(&root, 0, &[BEGIN_NS + 16]);
    other.publish(&root, BEGIN_NS + 30);
    simulation.step(&root, BEGIN_NS + 40, false);
    assert_eq!(simulation.text(), print_whole_trace(&root)[0]);
    // A trace without progress.
    let mut third = Recorder::new(&root, "c", 1);
    one.append(&root, 0, &[BEGIN_NS + 50]);
    one.publish(&root, BEGIN_NS + 60);
    other.publish(&root, BEGIN_NS + 60);
    simulation.step(&root, BEGIN_NS + 60, false);
    assert_eq!(simulation.events, 3);
    third.append(&root, 0, &[BEGIN_NS + 45]);
    simulation.step(&root, BEGIN_NS + 70, false);
    assert_eq!(simulation.events, 3);
    // A complete trace does not delay the others.
    fs::write(root.join("c/trackway/complete"), "").expect("a file");
    simulation.step(&root, BEGIN_NS + 80, false);
    assert_eq!(simulation.text(), print_whole_trace(&root)[0]);
}

/// Writes each stream up to the published time and a little further, at random.
fn check_random_flushes(seed: u64) {
    let mut random = Random::new(seed);
    let root = TemporaryFolder::new();
    // Times of each stream's events, and number of events in its file.
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); random.next_below(4) as usize + 1];
    for stream in &mut times {
        let mut time = BEGIN_NS;
        stream.resize_with(random.next_below(200) as usize, || {
            time += random.next_below(12) * 1_000_000;
            time
        });
    }
    let mut written = vec![0; times.len()];
    let mut recorder = Recorder::new(&root, "a", times.len());
    let mut simulation = Simulation::default();
    recorder.begin(&root, &mut simulation, BEGIN_NS);
    let mut published = BEGIN_NS - 1;
    for now in (1..60).map(|flush| BEGIN_NS + flush * FLUSH_NS) {
        let mut look = |random: &mut Random, published: u64| {
            if random.once_in(3) {
                simulation.step(&root, now, false);
                let due = times.iter().flatten().filter(|&&time| time <= published).count() as u64;
                assert_eq!(
                    simulation.events, due,
                    "seed {seed}, as all is written up to {published}"
                );
            }
        };
        for (stream, written) in written.iter_mut().enumerate() {
            let times = &times[stream];
            let end = times.partition_point(|&time| time <= now) + random.next_below(3) as usize;
            let end = end.clamp(*written, times.len());
            recorder.append(&root, stream, &times[*written..end]);
            *written = end;
            look(&mut random, published);
        }
        published = now;
        recorder.publish(&root, published);
        look(&mut random, published);
    }
    simulation.step(&root, BEGIN_NS + 60 * FLUSH_NS, true);
    assert_eq!(simulation.text(), print_whole_trace(&root)[0], "seed {seed}");
}

#[test]
fn what_is_flushed_is_shown_in_order_and_nothing_else() {
    (0..40).for_each(check_random_flushes);
}

/// Returns metadata in which packets have sequence numbers.
fn numbered_metadata() -> String {
    let number = "events_discarded;\n        integer { size = 64; align = 8; } packet_seq_num; };";
    METADATA.replace("events_discarded; };", number)
}

/// Returns a packet of one event, with this sequence number.
fn numbered_packet(sequence: u64, (begin, end): (u64, u64)) -> Vec<u8> {
    let mut event = end.to_le_bytes().to_vec();
    event.extend((sequence as u32).to_le_bytes());
    event.push(0);
    let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    packet.extend(0_u32.to_le_bytes());
    let bits = 8 * (64 + event.len() as u64);
    for word in [5, begin, end, bits, bits, 0, sequence] {
        packet.extend(u64::to_le_bytes(word));
    }
    packet.extend(event);
    packet
}

/// A followed tracer that keeps two files of a stream, of two packets each.
struct Ring<'a> {
    root: &'a TemporaryFolder,
    simulation: Simulation,
    packets: u64,
}

impl<'a> Ring<'a> {
    fn new(root: &'a TemporaryFolder) -> Self {
        fs::write(root.join("metadata"), numbered_metadata()).expect("metadata");
        Self { root, simulation: Simulation::default(), packets: 0 }
    }

    fn packet_time(packets: u64) -> u64 {
        BEGIN_NS + packets * PERIOD_NS
    }

    /// Writes `packets` packets.
    fn write(&mut self, packets: u64) {
        for _ in 0..packets {
            let (file, number) = (self.packets / 2, self.packets);
            if number.is_multiple_of(2) && file >= 2 {
                fs::remove_file(self.root.join(format!("stream.{}", file - 2))).expect("it");
            }
            let packet =
                numbered_packet(number, (Self::packet_time(number), Self::packet_time(number + 1)));
            let path = self.root.join(format!("stream.{file}"));
            let file = File::options().append(true).create(true).open(path);
            file.expect("a file").write_all(&packet).expect("a file");
            self.packets += 1;
        }
    }

    /// Polls at an instant at which all written events are old enough to be shown.
    fn step(&mut self, ended: bool) {
        let now = Self::packet_time(self.packets) + LAG_NS.cast_unsigned();
        self.simulation.step(self.root, now, false);
        self.simulation.step(self.root, now + LAG_NS.cast_unsigned(), ended);
    }

    fn follower_messages(&self) -> String {
        String::from_utf8_lossy(&self.simulation.reported).into_owned()
    }
}

/// RUN a ring of files that is followed closely, then overtakes the follower, then is cleared.
/// EXPECT no missing packets; then the overwritten ones; then none.
#[test]
fn what_was_deleted_before_it_was_shown_is_told_as_missing() {
    let root = TemporaryFolder::new();
    let mut ring = Ring::new(&root);
    for _ in 0..20 {
        ring.write(1);
        ring.step(false);
    }
    assert_eq!((ring.simulation.events, ring.follower_messages().as_str()), (20, ""));
    // Of packets 20 to 30, only the files with 28 to 30 remain.
    ring.write(11);
    ring.step(false);
    assert_eq!(ring.simulation.events, 23);
    let published = ring.follower_messages();
    assert!(published.lines().count() == 1 && published.contains("8 packets"), "{published}");
    ring.simulation.reported.clear();
    for _ in 0..5 {
        ring.write(1);
        ring.step(false);
    }
    for file in [16, 17] {
        fs::remove_file(root.join(format!("stream.{file}"))).expect("a file");
    }
    // New packets are numbered from 0.
    let (begin, end) = (Ring::packet_time(ring.packets), Ring::packet_time(ring.packets + 1));
    fs::write(root.join("stream.0"), numbered_packet(0, (begin, end))).expect("a file");
    ring.packets += 1;
    ring.step(true);
    assert_eq!((ring.simulation.events, ring.follower_messages().as_str()), (29, ""));
}

/// Returns a packet of events at these times.
fn timed_packet(times: &[u64]) -> Vec<u8> {
    let event = |time: &u64| [&time.to_le_bytes()[..], &[0; 4], b"text\0"].concat();
    let events: Vec<u8> = times.iter().flat_map(event).collect();
    let ends = (times[0], times.iter().max().copied().unwrap_or_default());
    build_packet(7, ends, 0, &events, 0)
}

#[test]
fn time_that_goes_backward_is_reported_once_however_a_stream_grows() {
    let folder = TemporaryFolder::new();
    write_piece(&folder, "metadata", METADATA.as_bytes(), 0);
    let second = 1_000_000_000;
    let packets = [
        timed_packet(&[second, second + 5]),
        // Earlier than the previous packet, and out of order in itself.
        timed_packet(&[second + 2, second + 4, second + 3]),
        timed_packet(&[second + 9, second + 8]),
    ];
    let mut simulation = Simulation::default();
    let (mut now, mut at) = (0, 0);
    let mut reports = Vec::new();
    for packet in &packets {
        write_piece(&folder, "s", packet, at);
        at += packet.len() as u64;
        let until = now + 3 * second;
        simulation.step_until(&folder, &mut now, until);
        reports.push(simulation.messages());
    }
    let bit = 8 * (packets[0].len() as u64 - 34);
    let report = format!(
        "trackway: {}: packet 1 at byte {}: time goes backward by 0.000000003 s at the event at \
         bit {bit}",
        folder.join("s").display(),
        packets[0].len()
    );
    assert_eq!(reports, [vec![], vec![report.clone()], vec![report.clone()]]);
    let text = simulation.text();
    let differences: Vec<&str> = text.lines().map(|line| &line[21..35]).collect();
    let expected = ["?.?????????", "0.000000005", "0.000000003", "0.000000002", "0.000000001"];
    let signs = "++-+-+-".chars();
    let expected = expected.into_iter().chain(["0.000000006", "0.000000001"]).zip(signs);
    let expected: Vec<String> =
        expected.map(|(number, sign)| format!("({sign}{number})")).collect();
    assert_eq!(differences, expected);
    // Equal to the output for a trace that does not grow.
    let [whole_text, whole_messages] = print_whole_trace(&folder);
    assert_eq!((text, report + "\n"), (whole_text, whole_messages));
    assert!(simulation.diagnostics.has_damage());
}
