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
    let (mut growth, mut shown) = (Growth::default(), Shown::default());
    let (mut out, mut told, mut said) = (Vec::new(), super::Told::default(), Vec::new());
    let mut look = |now: u64, ended| {
        let mut inputs =
            folder::open(&[folder.path().to_owned()], &mut Vec::new()).expect("a trace").inputs;
        if growth.look(&mut inputs, Duration::from_nanos(now), ended) {
            let settings = Settings::default();
            let mut messages = Vec::new();
            let before = Before { shown, preamble: Vec::new() };
            let streams: (&mut dyn Write, &mut dyn Write) = (&mut out, &mut messages);
            let selection = Selection::default();
            let printed = print_on(inputs, &selection, &format(), &settings, before, streams);
            (_, shown) = printed.expect("memory");
            told.say(&messages, &mut said).expect("memory");
        }
    };
    let mut now = 0;
    for (time, number, at, piece) in pieces {
        while now + 100_000_000 < time {
            now += 100_000_000;
            look(now, false);
        }
        now = time;
        let mut options = File::options();
        let file = options.create(true).write(true).truncate(false);
        let file = file.open(folder.join(format!("stream{number}"))).expect("a stream");
        file.write_all_at(&piece, at).expect("a piece");
        look(now, false);
    }
    let before_end = look_is_quiet(&mut look, now);
    look(before_end, true);
    let [lines, messages] = whole(&folder);
    assert_eq!(String::from_utf8(out).expect("text"), lines, "seed {seed}");
    let mut expected: Vec<&str> = messages.lines().collect();
    let said = String::from_utf8(said).expect("text");
    let mut found: Vec<&str> = said.lines().collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "seed {seed}");
}

/// Looks for two more seconds.
fn look_is_quiet(look: &mut impl FnMut(u64, bool), mut now: u64) -> u64 {
    for _ in 0..20 {
        now += 100_000_000;
        look(now, false);
    }
    now
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
    let mut growth = Growth::default();
    let mut events = 0;
    let mut look = |now_s, ended| {
        let mut inputs =
            folder::open(&[folder.path().to_owned()], &mut Vec::new()).expect("a trace").inputs;
        if growth.look(&mut inputs, Duration::from_secs(now_s), ended) {
            let before = Before { shown: Shown::default(), preamble: Vec::new() };
            let (mut out, mut said) = (Vec::new(), Vec::new());
            let streams: (&mut dyn Write, &mut dyn Write) = (&mut out, &mut said);
            let selection = Selection::default();
            let settings = Settings::default();
            let printed = print_on(inputs, &selection, &format(), &settings, before, streams);
            events += printed.expect("memory").0.events;
        }
    };
    let count = |packets: &[Packet]| {
        fs::write(
            folder.join("s"),
            packets.iter().flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<u8>>(),
        )
        .expect("a stream");
        whole(&folder)[0].lines().count() as u64
    };
    let first = count(&packets[..2]);
    look(0, false);
    look(5, false);
    let second = count(&packets[2..]);
    look(6, false);
    look(12, true);
    assert_eq!(events, first + second);
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
