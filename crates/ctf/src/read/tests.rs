//! The decoder's fast paths held against the general walk: on types of all kinds and on any
//! bytes, whole or cut off, both give the same values, the same errors, the same places.

use super::{EventHeader, StreamDecoder, Window};
use crate::read::testing::{Limits, Random, random_metadata, random_packet};
use crate::read::types::Type;
use crate::read::value::ValueSink;
use crate::read::{DecodeError, Trace};

/// Takes away all that was worked out for speed; how much that was.
fn strip(trace: &mut Trace) -> usize {
    let mut found = 0;
    trace.packet_header.iter_mut().for_each(|kind| found += strip_type(kind));
    for stream in &mut trace.streams {
        found += usize::from(stream.header_plan.take().is_some());
        let scopes =
            [&mut stream.packet_context, &mut stream.event_header, &mut stream.event_context];
        scopes.into_iter().flatten().for_each(|kind| found += strip_type(kind));
        for event in &mut stream.events {
            found += usize::from(event.fixed.take().is_some());
            found += usize::from(event.flat.take().is_some());
            let parts = [&mut event.context, &mut event.fields];
            parts.into_iter().flatten().for_each(|kind| found += strip_type(kind));
        }
    }
    found
}

fn strip_type(kind: &mut Type) -> usize {
    match kind {
        Type::Struct(structure) => {
            let runs = std::mem::take(&mut structure.runs).len();
            runs + structure.members.iter_mut().map(|m| strip_type(&mut m.kind)).sum::<usize>()
        }
        Type::Array(array) => {
            usize::from(array.elements.take().is_some()) + strip_type(&mut array.element)
        }
        Type::Sequence(sequence) => {
            usize::from(sequence.elements.take().is_some()) + strip_type(&mut sequence.element)
        }
        Type::Variant(variant) => {
            variant.options.iter_mut().map(|option| strip_type(&mut option.kind)).sum()
        }
        _ => 0,
    }
}

/// What an event's header and body gave, as something that can be compared.
type Event = (u64, u64, Option<i64>, String);

/// Reads an event by each of `windows` in turn until one is large enough, also for its body
/// alone; what came of it, and the errors on the way.
fn step(
    decoder: &mut StreamDecoder<'_>,
    windows: &[Window<'_>],
) -> (Vec<DecodeError>, Option<Event>) {
    let mut errors = Vec::new();
    let mut found = None;
    for window in windows {
        let before = (decoder.position, decoder.state.clock, decoder.state.budget);
        if found.is_none() {
            match decoder.event_header(*window) {
                Ok(Some(header)) => found = Some(header),
                Ok(None) => return (errors, None),
                Err(error) => {
                    errors.push(error);
                    assert_eq!(
                        before,
                        (decoder.position, decoder.state.clock, decoder.state.budget)
                    );
                    continue;
                }
            }
        }
        let Some(EventHeader { class, clock, time }) = found else { continue };
        let before = (decoder.position, decoder.state.clock, decoder.state.budget);
        let mut sink = ValueSink::default();
        match decoder.event_body(*window, class, &mut sink) {
            Ok(()) => return (errors, Some((class.id, clock, time, format!("{sink:?}")))),
            Err(error) => errors.push(error),
        }
        assert_eq!(before, (decoder.position, decoder.state.clock, decoder.state.budget));
    }
    (errors, None)
}

/// How much was worked out for speed, how many events were read, how many of them again.
#[derive(Default)]
struct Compared {
    worked_out: usize,
    events: usize,
    cut: usize,
}

fn compare(seed: u64, total: &mut Compared) {
    let mut random = Random(seed);
    let metadata = random_metadata(&mut random, Limits::Format);
    let parse = || Trace::parse(metadata.as_bytes()).unwrap_or_else(|e| panic!("{e}: {metadata}"));
    let (fast, mut slow) = (parse(), parse());
    total.worked_out += strip(&mut slow);
    let bytes = random_packet(&mut random, &metadata, 400);
    let whole = Window::whole(&bytes);
    let [mut fast, mut slow] = [&fast, &slow].map(StreamDecoder::new);
    let begun = [&mut fast, &mut slow].map(|decoder| {
        let mut sink = ValueSink::default();
        let packet = decoder.begin_packet(whole, 400, &mut sink, |_| {});
        (packet, format!("{sink:?}"))
    });
    assert_eq!(begun[0], begun[1], "seed {seed}: {metadata}");
    while begun[0].0.is_ok() {
        let at = fast.position_bits() as usize / 8;
        let cut = (at + random.below(30) as usize).min(bytes.len());
        let windows = [Window::whole(&bytes[..cut]), whole];
        // One never sees the piece, one only passes over the event.
        let mut others = [slow.clone(), fast.clone()];
        let found = step(&mut fast, &windows);
        assert_eq!(found, step(&mut slow, &windows), "seed {seed}: {metadata}");
        let [uncut, skipping] = &mut others;
        assert_eq!(found.1, step(uncut, &[whole]).1, "seed {seed}: {metadata}");
        for decoder in [&slow, &*uncut] {
            assert_eq!(fast.position, decoder.position, "seed {seed}: {metadata}");
            assert_eq!(fast.state.clock, decoder.state.clock, "seed {seed}: {metadata}");
            assert_eq!(fast.state.budget, decoder.state.budget, "seed {seed}: {metadata}");
            assert_eq!(fast.state.slots, decoder.state.slots, "seed {seed}: {metadata}");
        }
        if found.1.is_none() {
            break;
        }
        let header = skipping.event_header(whole).expect("a header").expect("an event");
        skipping.skip_body(whole, header.class).expect("a body");
        assert_eq!(fast.position, skipping.position, "seed {seed}: {metadata}");
        total.events += 1;
        total.cut += usize::from(!found.0.is_empty());
    }
}

#[test]
fn fast_paths_find_what_the_walk_finds() {
    let mut total = Compared::default();
    for seed in 0..1500 {
        compare(seed, &mut total);
    }
    let Compared { worked_out, events, cut } = total;
    // Or else nothing was compared.
    assert!(worked_out > 5000 && events > 5000 && cut > 500, "{worked_out} {events} {cut}");
}

/// Such a range has no tag in it, however it is looked up.
#[test]
fn ranges_that_end_before_they_begin_select_no_header() {
    let metadata = r#"/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        clock { name = c; };
        stream { event.header := struct {
            enum : integer { size = 5; } { compact = 30 ... 0, extended = 31 } id;
            variant <id> {
                struct { integer { size = 27; map = clock.c.value; } timestamp; } compact;
                struct { integer { size = 32; align = 8; } id;
                    integer { size = 64; align = 8; map = clock.c.value; } timestamp; } extended;
            } v;
        } align(8); };
        event { name = "e"; id = 9; fields := struct { }; };"#;
    let mut packet = Vec::new();
    for time in 1..=3_u64 {
        packet.push(31);
        packet.extend(9_u32.to_le_bytes());
        packet.extend(time.to_le_bytes());
    }
    let parse = || Trace::parse(metadata.as_bytes()).expect("metadata");
    let (fast, mut slow) = (parse(), parse());
    assert!(strip(&mut slow) > 0);
    for trace in [&fast, &slow] {
        let window = Window::whole(&packet);
        let mut decoder = StreamDecoder::new(trace);
        let mut sink = ValueSink::default();
        decoder.begin_packet(window, packet.len() as u64, &mut sink, |_| {}).expect("a packet");
        let times = std::iter::from_fn(|| {
            let header = decoder.event_header(window).expect("a header")?;
            decoder.event_body(window, header.class, &mut sink).expect("a body");
            header.time
        });
        assert_eq!(times.collect::<Vec<_>>(), [1, 2, 3]);
    }
}
