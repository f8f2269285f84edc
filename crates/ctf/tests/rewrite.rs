//! Packets with events cut out: the kept events decode unchanged, and nothing else is there.

mod support;

use support::random_types::{Limits, random_metadata, random_packet};
use support::{Random, random_trace};
use trackway_ctf::read::{Event, Packet, Skip, StreamDecoder, Trace, Window, read_stream};
use trackway_ctf::write::{NewPacket, PACKET_HEADER_BYTES, PacketRewriter};

/// Rewrites the first packet of `bytes` with the events whose numbers `keep` selects. Returns the
/// packet and the number of events read; `None` if the packet cannot be rewritten.
fn rewrite_first_packet(
    trace: &Trace,
    bytes: &[u8],
    mut keep: impl FnMut(usize) -> bool,
    drain: bool,
) -> Option<(Vec<u8>, usize)> {
    let window = Window::whole(bytes);
    let mut decoder = StreamDecoder::new(trace);
    decoder.begin_packet(window, bytes.len() as u64, &mut Skip, |_| {}).ok()?;
    let mut rewriter = PacketRewriter::new(trace, &decoder, window)?;
    let mut behind = Vec::new();
    let mut new = NewPacket { sequence: Some(77), ..NewPacket::default() };
    let mut number = 0;
    // Damage ends the packet.
    while let Ok(Some(event)) = decoder.begin_event(window) {
        let header = event.header;
        let Ok(event) = event.whole() else { break };
        if keep(number) {
            rewriter.event(event).expect("it was decoded before");
            new.timestamp_begin.get_or_insert(header.clock);
            new.timestamp_end = Some(header.clock);
            if drain {
                rewriter.drain(&mut behind);
                assert!(rewriter.waiting_bytes() <= 1);
            }
        }
        number += 1;
    }
    let head_bytes = rewriter.head_bytes();
    let mut packet = rewriter.finish(&new, &mut behind);
    assert_eq!(packet.len(), head_bytes);
    packet.append(&mut behind);
    Some((packet, number))
}

/// Formats an event as text, because NaN is not equal to itself.
fn format_event(event: &Event, with_time: bool) -> String {
    let Event { name, packet_context, stream_context, event_context, fields, .. } = event;
    let time = with_time.then_some((event.time, event.clock));
    format!("{name} {time:?} {packet_context:?} {stream_context:?} {event_context:?} {fields:?}")
}

#[test]
fn our_own_packets_can_be_cut_anywhere() {
    let mut checked = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let mut random = Random(seed);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        for stream in &made.streams {
            let whole = read_stream(&trace, &stream.bytes);
            let size = (whole.packets[0].packet_bits.expect("a size") / 8) as usize;
            let first = read_stream(&trace, &stream.bytes[..size]);
            let count = first.events.len() as u64;
            let from = random.next_below(count + 1);
            let to = from + random.next_below(count + 1 - from);
            let range = from as usize..to as usize;
            let keep = |number| range.contains(&number);
            let (packet, number) =
                rewrite_first_packet(&trace, &stream.bytes, keep, seed % 2 == 0).expect("a packet");
            assert_eq!(number as u64, count);
            let read = read_stream(&trace, &packet);
            assert_eq!(read.damage, None);
            assert_eq!(read.packets[0].sequence, Some(77));
            assert_eq!(read.packets[0].packet_bits, Some(packet.len() as u64 * 8));
            assert_eq!(read.packets[0].events_discarded, first.packets[0].events_discarded);
            let kept: Vec<String> =
                first.events[range.clone()].iter().map(|event| format_event(event, true)).collect();
            let found: Vec<String> =
                read.events.iter().map(|event| format_event(event, true)).collect();
            assert_eq!(found, kept, "seed {seed}");
            checked += kept.len();
        }
    }
    assert!(checked > 100, "{checked} events");
}

/// Packets that are written, read and written again have the same bytes, except for padding.
#[test]
fn packets_that_are_written_again_are_the_same() {
    let mut checked = 0;
    for seed in 0..60 {
        let made = random_trace(seed);
        let trace = Trace::parse(made.metadata.as_bytes()).expect("metadata");
        for stream in &made.streams {
            let mut rest = &stream.bytes[..];
            for packet in read_stream(&trace, rest).packets {
                let size = (packet.packet_bits.expect("a size") / 8) as usize;
                let content = (packet.content_bits.expect("a size") / 8) as usize;
                let (bytes, behind) = rest.split_at(size);
                rest = behind;
                let again = rewrite_whole_packet(&trace, bytes, &packet);
                let (head, events) = again.split_at(PACKET_HEADER_BYTES);
                assert_eq!(events, &bytes[PACKET_HEADER_BYTES..content], "seed {seed}");
                // The heads differ only in the packet's size, which includes padding.
                let differing = head.iter().zip(bytes).filter(|(a, b)| a != b).count();
                assert!(differing <= 8 && (differing == 0 || content < size), "seed {seed}");
                assert_eq!(rewrite_whole_packet(&trace, &again, &packet), again, "seed {seed}");
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "{checked} packets");
}

/// Rewrites a packet with all its events.
fn rewrite_whole_packet(trace: &Trace, bytes: &[u8], packet: &Packet) -> Vec<u8> {
    let window = Window::whole(bytes);
    let mut decoder = StreamDecoder::new(trace);
    decoder.begin_packet(window, bytes.len() as u64, &mut Skip, |_| {}).expect("a packet");
    let mut rewriter = PacketRewriter::new(trace, &decoder, window).expect("can be rewritten");
    while let Some(event) = decoder.begin_event(window).expect("an event") {
        rewriter.event(event.whole().expect("an event")).expect("it was decoded before");
    }
    let new = NewPacket {
        timestamp_begin: packet.timestamp_begin,
        timestamp_end: packet.timestamp_end,
        sequence: packet.sequence,
    };
    let mut behind = Vec::new();
    let mut again = rewriter.finish(&new, &mut behind);
    again.append(&mut behind);
    again
}

/// Random bytes form packets of any types, up to the first damage.
#[test]
fn packets_of_any_types_can_be_cut() {
    let (mut checked, mut moved) = (0, 0);
    for seed in 0..4000 {
        let mut random = Random(seed);
        let limits = if seed % 2 == 0 { Limits::Format } else { Limits::Babeltrace };
        let metadata = random_metadata(&mut random, limits);
        // If fields of different byte orders share a byte, they share bits. CTF forbids it, and no
        // such field can be moved unchanged.
        if ["le", "be"].iter().all(|order| metadata.contains(&format!("byte_order = {order}"))) {
            continue;
        }
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let bytes = random_packet(&mut random, &metadata, 600);
        let whole = read_stream(&trace, &bytes).events;
        let mut kept = Vec::new();
        let keep = |number| {
            let keep = random.next_below(2) == 0;
            if keep {
                kept.push(number);
            }
            keep
        };
        let Some((packet, number)) = rewrite_first_packet(&trace, &bytes, keep, seed % 2 == 0)
        else {
            continue;
        };
        assert_eq!(number, whole.len(), "seed {seed}");
        let read = read_stream(&trace, &packet);
        assert_eq!(read.damage, None, "seed {seed}");
        let kept: Vec<String> =
            kept.iter().map(|&number| format_event(&whole[number], false)).collect();
        let found: Vec<String> =
            read.events.iter().map(|event| format_event(event, false)).collect();
        for (found, kept) in found.iter().zip(&kept) {
            assert_eq!(found, kept, "seed {seed}");
        }
        assert_eq!(found.len(), kept.len(), "seed {seed}");
        checked += found.len();
        moved += usize::from(found.len() < whole.len() && !found.is_empty());
    }
    assert!(checked > 2000 && moved > 100, "{checked} events, {moved} packets");
}
