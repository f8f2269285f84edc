//! Growth in simulated time: whatever comes in whatever pieces, what is written is the trace.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use trackway_ctf::text::{Calendar, Pretty, PrettyOptions, Shown, utc};
use trackway_testkit::{Random, TemporaryFolder};

use super::growth::{Growth, LAG_NS};
use crate::{Before, Selection, Settings, folder, print, print_on};

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

/// How often there is a look, in ns.
const PERIOD_NS: u64 = 100_000_000;

/// A packet: when it ends, and its bytes.
type Packet = (u64, Vec<u8>);

/// A stream's packets. Its events have times of their own and in common with other streams.
fn stream(random: &mut Random, instance: u64) -> Vec<Packet> {
    let mut time = 1_000_000_000_u64;
    let mut discarded = 0;
    (0..random.below(12) + 1)
        .map(|_| {
            let begin = time;
            let mut events = Vec::new();
            for n in 0..random.below(30) as u32 {
                time += random.below(3) * 7_000_000;
                events.extend(time.to_le_bytes());
                events.extend(n.to_le_bytes());
                events.extend(&b"text that is long\0"[random.below(17) as usize..]);
            }
            discarded += u64::from(random.once_in(3));
            let content = 8 * (56 + events.len() as u64);
            let padding = random.below(40);
            let mut packet = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
            packet.extend(0_u32.to_le_bytes());
            for word in [instance, begin, time, content, content + 8 * padding, discarded] {
                packet.extend(word.to_le_bytes());
            }
            packet.extend(events);
            packet.resize(packet.len() + padding as usize, 0);
            (time, packet)
        })
        .collect()
}

fn format() -> Pretty<impl Calendar> {
    Pretty::new(PrettyOptions::default(), utc)
}

/// All that is printed of the traces in `folder`: events, and messages.
fn whole(folder: &TemporaryFolder) -> [String; 2] {
    let (mut out, mut said) = (Vec::new(), Vec::new());
    let inputs = folder::open(&[folder.path().to_owned()], &mut said).expect("a trace").inputs;
    let settings = Settings::default();
    print(inputs, &Selection::default(), &format(), &settings, &mut out, &mut said)
        .expect("memory");
    [out, said].map(|bytes| String::from_utf8(bytes).expect("text"))
}

/// Traces that are followed in simulated time.
#[derive(Default)]
struct Simulation {
    growth: Growth,
    told: super::Told,
    shown: Shown,
    events: u64,
    out: Vec<u8>,
    said: Vec<u8>,
}

impl Simulation {
    /// A look at the traces in `folder`, at an instant in ns; the last one if they have `ended`.
    fn look(&mut self, folder: &TemporaryFolder, now_ns: u64, ended: bool) {
        let mut inputs =
            folder::open(&[folder.path().to_owned()], &mut Vec::new()).expect("a trace").inputs;
        if !self.growth.look(&mut inputs, Duration::from_nanos(now_ns), ended) {
            return;
        }
        let settings = Settings::default();
        let mut messages = Vec::new();
        let before = Before { shown: std::mem::take(&mut self.shown), preamble: Vec::new() };
        let streams: (&mut dyn Write, &mut dyn Write) = (&mut self.out, &mut messages);
        let selection = Selection::default();
        let printed = print_on(inputs, &selection, &format(), &settings, before, streams);
        let (summary, shown) = printed.expect("memory");
        self.events += summary.events;
        self.shown = shown;
        self.told.say(&messages, &mut self.said).expect("memory");
    }

    /// Looks until the instant `to_ns`.
    fn look_until(&mut self, folder: &TemporaryFolder, now_ns: &mut u64, to_ns: u64) {
        while *now_ns + PERIOD_NS < to_ns {
            *now_ns += PERIOD_NS;
            self.look(folder, *now_ns, false);
        }
        *now_ns = to_ns;
    }

    fn text(&self) -> String {
        String::from_utf8(self.out.clone()).expect("text")
    }

    fn messages(&self) -> Vec<String> {
        let said = String::from_utf8(self.said.clone()).expect("text");
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }
}

/// Writes a piece of a file, at a place in it.
fn write_piece(folder: &TemporaryFolder, name: &str, piece: &[u8], at: u64) {
    let mut options = File::options();
    let file = options.create(true).write(true).truncate(false).open(folder.join(name));
    file.expect("a stream").write_all_at(piece, at).expect("a piece");
}

/// Streams grow in random pieces, none later than [`LAG_NS`]; each look sees what is there.
fn grows(seed: u64) {
    let mut random = Random::new(seed);
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let streams: Vec<Vec<Packet>> =
        (0..random.below(4) + 1).map(|instance| stream(&mut random, instance)).collect();
    // When each piece comes: packets in two pieces, so that some are seen torn.
    let mut pieces: Vec<(u64, usize, u64, Vec<u8>)> = Vec::new();
    for (number, packets) in streams.iter().enumerate() {
        let (mut at, mut before) = (0, 0);
        for (end, packet) in packets {
            let cut = random.below(packet.len() as u64) as usize;
            for piece in [&packet[..cut], &packet[cut..]] {
                before = before.max(end + random.below(LAG_NS as u64 / 2));
                pieces.push((before, number, at, piece.to_vec()));
                at += piece.len() as u64;
            }
        }
    }
    pieces.sort();
    let mut simulation = Simulation::default();
    let mut now = 0;
    for (time, number, at, piece) in pieces {
        simulation.look_until(&folder, &mut now, time);
        write_piece(&folder, &format!("stream{number}"), &piece, at);
        simulation.look(&folder, now, false);
    }
    let end = now + 2 * LAG_NS as u64;
    simulation.look_until(&folder, &mut now, end);
    simulation.look(&folder, now, true);
    let [lines, messages] = whole(&folder);
    assert_eq!(simulation.text(), lines, "seed {seed}");
    let mut expected: Vec<&str> = messages.lines().collect();
    expected.sort_unstable();
    assert_eq!(simulation.messages(), expected, "seed {seed}");
}

#[test]
fn what_is_followed_is_the_whole_trace_in_order() {
    (0..40).for_each(grows);
}

/// As LTTng does with `--tracefile-count`.
#[test]
fn a_file_that_is_written_over_is_read_again() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut random = Random::new(3);
    let packets: Vec<Packet> = std::iter::repeat_with(|| stream(&mut random, 0))
        .find(|packets| packets.len() > 2)
        .expect("a stream of several packets");
    let mut simulation = Simulation::default();
    let count = |packets: &[Packet]| {
        fs::write(
            folder.join("s"),
            packets.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>(),
        )
        .expect("a stream");
        whole(&folder)[0].lines().count() as u64
    };
    let first = count(&packets[..2]);
    simulation.look(&folder, 0, false);
    simulation.look(&folder, 5_000_000_000, false);
    let second = count(&packets[2..]);
    simulation.look(&folder, 6_000_000_000, false);
    simulation.look(&folder, 12_000_000_000, true);
    assert_eq!(simulation.events, first + second);
}

/// Others may have earlier ones; but not much earlier.
#[test]
fn the_newest_events_wait_but_not_for_ever() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut random = Random::new(7);
    for (name, instance) in [("a", 0), ("b", 1)] {
        let packet = stream(&mut random, instance).swap_remove(0).1;
        File::create(folder.join(name)).expect("a file").write_all(&packet).expect("a packet");
    }
    let mut growth = Growth::default();
    let mut look = |now_ms| {
        let mut inputs =
            folder::open(&[folder.path().to_owned()], &mut Vec::new()).expect("a trace").inputs;
        growth.look(&mut inputs, Duration::from_millis(now_ms), false);
        growth.is_waiting()
    };
    assert!(look(0) && look(990));
    assert!(!look(1010));
}

/// The packet of a stream that does not say its size, in pieces: when each of them comes at the
/// latest, which is when its last event was, and its bytes.
fn open_packet(random: &mut Random, instance: u64) -> Vec<(u64, Vec<u8>)> {
    let mut time = 1_000_000_000_u64;
    let mut piece = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    piece.extend(0_u32.to_le_bytes());
    for word in [instance, time, 0] {
        piece.extend(word.to_le_bytes());
    }
    let mut pieces = Vec::new();
    for n in 0..random.below(200) as u32 {
        time += random.below(5) * 7_000_000;
        piece.extend(time.to_le_bytes());
        piece.extend(n.to_le_bytes());
        piece.extend(&b"text that is long\0"[random.below(17) as usize..]);
        if random.once_in(3) {
            // In the middle of an event, mostly.
            let rest = piece.split_off(random.below(piece.len() as u64 + 1) as usize);
            pieces.push((time, std::mem::replace(&mut piece, rest)));
        }
    }
    pieces.push((time, piece));
    pieces
}

/// The trace's metadata, where packets have no sizes.
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
        for number in 0..random.below(3) + 1 {
            let mut at = 0;
            for (time, piece) in open_packet(&mut random, number) {
                pieces.push((time, number, at, piece.clone()));
                at += piece.len() as u64;
            }
        }
        pieces.sort();
        let mut simulation = Simulation::default();
        let mut now = 0;
        for (time, number, at, piece) in pieces {
            simulation.look_until(&folder, &mut now, time);
            write_piece(&folder, &format!("stream{number}"), &piece, at);
        }
        let end = now + 4 * LAG_NS as u64;
        simulation.look_until(&folder, &mut now, end);
        let [lines, _] = whole(&folder);
        let shown = simulation.text();
        assert_eq!(shown.lines().count(), lines.lines().count(), "seed {seed}");
        assert!(!simulation.growth.is_waiting(), "seed {seed}");
        simulation.look(&folder, now, true);
        assert_eq!(simulation.text(), shown, "seed {seed}: nothing is left for the end");
        assert!(simulation.said.is_empty() && !simulation.told.damage(), "seed {seed}");
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
        simulation.look(&folder, n * PERIOD_NS, false);
        // The lag, how long it may wait to be decoded, and for what was decoded before.
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
    simulation.look(&folder, now, false);
    simulation.look_until(&folder, &mut now, 1_900_000_000);
    assert_eq!((simulation.events, simulation.told.damage()), (2, false));
    assert!(simulation.growth.is_doubtful());
    simulation.look_until(&folder, &mut now, 2_300_000_000);
    assert!(simulation.told.damage() && !simulation.growth.is_doubtful());
    let messages = simulation.messages();
    simulation.look_until(&folder, &mut now, 5_000_000_000);
    simulation.look(&folder, now, true);
    assert_eq!((simulation.events, messages.len()), (2, 1), "{messages:?}");
    assert_eq!(simulation.messages(), messages);
}

#[test]
fn a_time_is_past_once_nothing_before_it_is_to_come() {
    let folder = TemporaryFolder::new();
    fs::write(folder.join("metadata"), METADATA).expect("metadata");
    let mut simulation = Simulation::default();
    simulation.look(&folder, 0, false);
    let is_past = |simulation: &Simulation, time: u64, now_ns| {
        simulation.growth.is_past(time.cast_signed(), Duration::from_nanos(now_ns))
    };
    assert!(!simulation.growth.is_begun() && !is_past(&simulation, 0, u64::MAX));
    let (end, packet) = stream(&mut Random::new(7), 0).swap_remove(0);
    write_piece(&folder, "stream", &packet, 0);
    simulation.look(&folder, 0, false);
    let lag = LAG_NS as u64;
    assert!(simulation.growth.is_begun());
    assert!(is_past(&simulation, end - lag, 0) && !is_past(&simulation, end - lag + 1, 0));
    // Time goes on where nothing happens.
    assert!(!is_past(&simulation, end, lag - 1) && is_past(&simulation, end, lag));
}
