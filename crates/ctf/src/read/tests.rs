//! Comparison of the decoder's fast paths with its general walk. On types of all kinds and on any
//! bytes, whole or cut off, both must return the same values, errors and places.

use std::sync::Arc;

use super::{EventHeader, StreamDecoder, Window};
use crate::model::runs::FlatPart;
use crate::model::types::Type;
use crate::read::testing::{Limits, Random, random_metadata, random_packet};
use crate::read::value::ValueSink;
use crate::read::{DecodeError, Trace};

/// Removes all fast paths from the metadata; returns their number.
fn remove_fast_paths(trace: &mut Trace) -> usize {
    let mut found = 0;
    trace.packet_header.iter_mut().for_each(|kind| found += remove_type_fast_paths(kind));
    for stream in &mut trace.streams {
        found += usize::from(stream.header_plan.take().is_some());
        let scopes =
            [&mut stream.packet_context, &mut stream.event_header, &mut stream.event_context];
        scopes.into_iter().flatten().for_each(|kind| found += remove_type_fast_paths(kind));
        for event in &mut stream.events {
            found += usize::from(event.fixed.take().is_some());
            found += usize::from(event.flat.take().is_some());
            let parts = [&mut event.context, &mut event.fields];
            parts.into_iter().flatten().for_each(|kind| found += remove_type_fast_paths(kind));
        }
    }
    found
}

fn remove_type_fast_paths(kind: &mut Type) -> usize {
    match kind {
        Type::Struct(structure) => {
            let runs = std::mem::take(&mut structure.runs).len();
            runs + structure
                .members
                .iter_mut()
                .map(|m| remove_type_fast_paths(&mut m.kind))
                .sum::<usize>()
        }
        Type::Array(array) => {
            usize::from(array.elements.take().is_some())
                + remove_type_fast_paths(&mut array.element)
        }
        Type::Sequence(sequence) => {
            usize::from(sequence.elements.take().is_some())
                + remove_type_fast_paths(&mut sequence.element)
        }
        Type::Variant(variant) => {
            variant.options.iter_mut().map(|option| remove_type_fast_paths(&mut option.kind)).sum()
        }
        _ => 0,
    }
}

/// Content of an event's header and body, in a comparable form.
type Event = (u64, u64, Option<i64>, String);

/// Reads an event with each of `windows` in turn until one is large enough. Returns the event and
/// the earlier errors.
fn read_by_windows(
    decoder: &mut StreamDecoder<'_>,
    windows: &[Window<'_>],
) -> (Vec<DecodeError>, Option<Event>) {
    let mut errors = Vec::new();
    for window in windows {
        let before = (decoder.position, decoder.state.counts());
        let mut sink = ValueSink::default();
        let read = match decoder.begin_event(*window) {
            Ok(None) => return (errors, None),
            Ok(Some(body)) => {
                let EventHeader { class, clock, time } = body.header;
                body.read(&mut sink).map(|()| (class.id, clock, time, format!("{sink:?}")))
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(event) => return (errors, Some(event)),
            Err(error) => errors.push(error),
        }
        assert_eq!(before, (decoder.position, decoder.state.counts()));
    }
    (errors, None)
}

/// Numbers of prepared fast paths, of events, and of events that needed a second window.
#[derive(Default)]
struct ComparisonCounts {
    worked_out: usize,
    events: usize,
    cut: usize,
}

fn compare_fast_with_walk(seed: u64, total: &mut ComparisonCounts) {
    let mut random = Random(seed);
    let metadata = random_metadata(&mut random, Limits::Format);
    let parse = || Trace::parse(metadata.as_bytes()).unwrap_or_else(|e| panic!("{e}: {metadata}"));
    let (fast, mut slow) = (parse(), parse());
    total.worked_out += remove_fast_paths(&mut slow);
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
        let cut = (at + random.next_below(30) as usize).min(bytes.len());
        let windows = [Window::whole(&bytes[..cut]), whole];
        // `uncut` reads only with the whole window; `skipping` skips the event.
        let mut others = [slow.clone(), fast.clone()];
        let found = read_by_windows(&mut fast, &windows);
        assert_eq!(found, read_by_windows(&mut slow, &windows), "seed {seed}: {metadata}");
        let [uncut, skipping] = &mut others;
        assert_eq!(found.1, read_by_windows(uncut, &[whole]).1, "seed {seed}: {metadata}");
        for decoder in [&slow, &*uncut] {
            assert_eq!(fast.position, decoder.position, "seed {seed}: {metadata}");
            assert_eq!(fast.state.clock, decoder.state.clock, "seed {seed}: {metadata}");
            assert_eq!(fast.state.budget, decoder.state.budget, "seed {seed}: {metadata}");
            assert_eq!(fast.state.slots, decoder.state.slots, "seed {seed}: {metadata}");
        }
        if found.1.is_none() {
            break;
        }
        let body = skipping.begin_event(whole).expect("a header").expect("an event");
        body.skip().expect("a body");
        assert_eq!(fast.position, skipping.position, "seed {seed}: {metadata}");
        total.events += 1;
        total.cut += usize::from(!found.0.is_empty());
    }
}

#[test]
fn fast_paths_find_what_the_walk_finds() {
    let mut total = ComparisonCounts::default();
    for seed in 0..1500 {
        compare_fast_with_walk(seed, &mut total);
    }
    let ComparisonCounts { worked_out, events, cut } = total;
    // Fails if the seeds compared too little.
    assert!(worked_out > 5000 && events > 5000 && cut > 500, "{worked_out} {events} {cut}");
}

/// A range that ends before it begins contains no tag, whichever lookup is used.
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
    assert!(remove_fast_paths(&mut slow) > 0);
    for trace in [&fast, &slow] {
        let window = Window::whole(&packet);
        let mut decoder = StreamDecoder::new(trace);
        let mut sink = ValueSink::default();
        decoder.begin_packet(window, packet.len() as u64, &mut sink, |_| {}).expect("a packet");
        let times = std::iter::from_fn(|| {
            let body = decoder.begin_event(window).expect("a header")?;
            let time = body.header.time;
            body.read(&mut sink).expect("a body");
            time
        });
        assert_eq!(times.collect::<Vec<_>>(), [1, 2, 3]);
    }
}

/// Parsing metadata needs memory in proportion to its size.
#[test]
fn a_large_context_is_there_once_for_all_events() {
    for members in ["integer { size = 8; } ", "string s", "integer { size = 7; } "] {
        let context: String = (0..50).map(|index| format!("{members}{index};\n")).collect();
        let context = context.replace("} ", "} m");
        let events = (0..3).map(|id| {
            format!("event {{ name = e; id = {id}; fields := struct {{ string t; }}; }};\n")
        });
        let metadata = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
             stream {{ event.header := struct {{ integer {{ size = 8; }} id; }};
             event.context := struct {{ {context} }} align(8); }};\n{}",
            events.collect::<String>()
        );
        let trace = Trace::parse(metadata.as_bytes()).unwrap_or_else(|e| panic!("{e}: {metadata}"));
        let parts = trace.streams[0].events.iter().map(|event| {
            let flat = event.flat.as_ref().expect("a context of structures");
            flat.parts().first().expect("a context")
        });
        let parts: Vec<_> = parts.collect();
        let known = |part: &FlatPart| part.numbers.len() + part.texts.len() + part.rest.len();
        assert_eq!(parts.iter().map(|part| known(part)).collect::<Vec<_>>(), [50, 50, 50]);
        for part in &parts {
            assert!(Arc::ptr_eq(&part.numbers, &parts[0].numbers));
            assert!(Arc::ptr_eq(&part.texts, &parts[0].texts));
            assert!(Arc::ptr_eq(&part.rest, &parts[0].rest));
            assert!(Arc::ptr_eq(&part.runs, &parts[0].runs));
        }
    }
}
