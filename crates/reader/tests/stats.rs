//! Tests that counts are right.

#[path = "../../ctf/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::num::NonZero;

use support::{Random, random_trace};
use trackway_ctf::read::{Event, Trace, read_stream};
use trackway_reader::{DataFile, Input, Range, Selection, Statistics, collect_statistics};

fn count_trace(
    metadata: &str,
    streams: &[&[u8]],
    selection: &Selection<'_>,
    jobs: usize,
) -> (Statistics, String) {
    let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
    let file = |(number, bytes)| DataFile::new(format!("s{number}"), bytes);
    let files = streams.iter().copied().enumerate().map(file).collect();
    let input = Input { trace, folder: String::new(), files };
    let mut messages = Vec::new();
    let jobs = NonZero::new(jobs).expect("a thread");
    let all =
        collect_statistics(vec![input], selection, jobs, &mut messages).expect("memory takes it");
    (all, String::from_utf8(messages).expect("UTF-8"))
}

#[test]
fn counts_are_those_of_the_events() {
    let (mut events, mut lost) = (0, 0);
    for seed in 0..60 {
        let made = random_trace(seed);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        let streams: Vec<&[u8]> = made.streams.iter().map(|stream| &stream.bytes[..]).collect();
        let read: Vec<_> = streams.iter().map(|bytes| read_stream(&trace, bytes)).collect();
        let times: Vec<i64> =
            read.iter().flat_map(|read| &read.events).filter_map(|event| event.time).collect();
        let mut random = Random(seed);
        let begin = (seed % 3 == 0 && !times.is_empty())
            .then(|| times[random.next_below(times.len() as u64) as usize]);
        let is_wanted = |name: &str| seed % 2 == 0 || name.ends_with('1');
        let range = Range { begin, end: None };
        let selection = Selection { range, events: &is_wanted, ..Selection::default() };
        let is_kept = |event: &&Event| event.time >= begin && is_wanted(&event.name);
        let (all, messages) =
            count_trace(&made.metadata, &streams, &selection, 1 + seed as usize % 3);
        assert_eq!((all.is_whole, messages.as_str()), (true, ""), "seed {seed}");

        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        let kept: Vec<&Event> = read.iter().flat_map(|read| &read.events).filter(is_kept).collect();
        kept.iter().for_each(|event| *names.entry(&event.name).or_default() += 1);
        let found: BTreeMap<&str, u64> =
            all.events.iter().map(|event| (event.name.as_str(), event.count)).collect();
        assert_eq!(found, names, "seed {seed}");
        assert!(all.events.is_sorted_by_key(|event| std::cmp::Reverse(event.count)));
        assert_eq!(all.first, kept.iter().filter_map(|event| event.time).min());
        assert_eq!(all.last, kept.iter().filter_map(|event| event.time).max());

        assert_eq!(all.streams.len(), streams.len());
        for ((stream, read), made) in all.streams.iter().zip(&read).zip(&made.streams) {
            assert_eq!(stream.bytes, made.bytes.len() as u64);
            assert_eq!(stream.events, read.events.iter().filter(is_kept).count() as u64);
            if begin.is_some() {
                // Packets before the range are skipped, together with earlier losses.
                assert!(stream.packets <= read.packets.len() as u64);
                continue;
            }
            assert_eq!(stream.cpu, Some(u64::from(made.fields.cpu_id)));
            assert_eq!(stream.packets, read.packets.len() as u64);
            let sum: u64 = read.losses.iter().filter_map(|loss| loss.count).sum();
            assert_eq!(stream.lost_events + stream.lost_packets, sum);
            let uncertain = read.losses.iter().any(|loss| loss.count.is_none());
            assert_eq!(stream.is_loss_uncertain, uncertain);
            lost += sum;
        }
        events += kept.len();
    }
    assert!(events > 300 && lost > 50, "{events} events, {lost} lost");
}

#[test]
fn sizes_add_up_to_what_is_in_packets() {
    for seed in 0..20 {
        let made = random_trace(seed);
        let streams: Vec<&[u8]> = made.streams.iter().map(|stream| &stream.bytes[..]).collect();
        let (all, _) = count_trace(&made.metadata, &streams, &Selection::default(), 2);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        let packets = streams.iter().flat_map(|bytes| read_stream(&trace, bytes).packets);
        let head_bits = 8 * trackway_ctf::write::PACKET_HEADER_BYTES as u64;
        let content: u64 =
            packets.map(|packet| packet.content_bits.expect("a size") - head_bits).sum();
        assert_eq!(all.bits(), content);
        assert_eq!(all.count(), made.events as u64);
    }
}

#[test]
fn damage_is_told_and_the_rest_is_counted() {
    let made = random_trace(7);
    let mut streams: Vec<&[u8]> = made.streams.iter().map(|stream| &stream.bytes[..]).collect();
    let (before, _) = count_trace(&made.metadata, &streams, &Selection::default(), 2);
    let last = streams.last_mut().expect("a stream");
    let junk = [&last[..], &[0x5a; 100]].concat();
    *last = &junk;
    let (after, messages) = count_trace(&made.metadata, &streams, &Selection::default(), 2);
    assert!(!after.is_whole && before.is_whole);
    assert_eq!(after.events, before.events);
    assert_eq!(messages.lines().count(), 1);
    assert!(messages.contains(&format!("s{}: packet ", streams.len() - 1)), "{messages}");
}
