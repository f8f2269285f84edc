//! Types of all kinds, in both byte orders, at any bit, must print as babeltrace2 prints them.

mod support;

use support::random_types::{Limits, random_metadata, random_packet, set_content_size};
use support::{Folder, Random, run_babeltrace};
use trackway_ctf::read::{StreamDecoder, Trace, Window};
use trackway_reader::{DataFile, Input, Selection, Settings, print_events};
use trackway_render::{FieldWriter, LineOutput, Pretty, PrettyOptions, ShownNames, utc_date_time};

const PACKET_BYTES: usize = 300;

/// Returns a packet of random bytes that ends after its last readable event, and the number of its
/// events.
fn readable_packet(random: &mut Random, metadata: &str, trace: &Trace) -> Option<(Vec<u8>, usize)> {
    let mut packet = random_packet(random, metadata, PACKET_BYTES);
    let mut decoder = StreamDecoder::new(trace);
    let window = Window::whole(&packet);
    let mut text = Vec::new();
    let mut sink = FieldWriter::new(&mut text, ShownNames::default(), false);
    decoder.begin_packet(window, PACKET_BYTES as u64, &mut sink, |_| {}).ok()?;
    let (mut events, mut end) = (0, decoder.position_bits());
    while let Ok(Some(event)) = decoder.begin_event(window) {
        if event.read(&mut sink).is_err() {
            break;
        }
        (events, end) = (events + 1, decoder.position_bits());
    }
    set_content_size(&mut packet, metadata, end);
    Some((packet, events))
}

#[test]
fn any_types_print_as_babeltrace2_prints_them() {
    let mut compared = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let metadata = random_metadata(&mut random, Limits::Babeltrace);
        let trace = Trace::parse(metadata.as_bytes()).expect("metadata");
        let Some((packet, events)) = readable_packet(&mut random, &metadata, &trace) else {
            continue;
        };
        let folder = Folder::new(&format!("types-{seed}"));
        folder.write("metadata", metadata.as_bytes());
        folder.write("stream", &packet);
        let files = vec![DataFile::new("stream".to_owned(), &packet[..])];
        let input = Input { trace, folder: String::new(), files };
        let (mut ours, mut warnings) = (Vec::new(), Vec::new());
        let settings = Settings::default();
        print_events(
            vec![input],
            &Selection::default(),
            &mut LineOutput::new(Pretty::new(PrettyOptions::default(), utc_date_time), &mut ours),
            &settings,
            &mut warnings,
        )
        .expect("memory");
        assert_eq!(String::from_utf8_lossy(&warnings), "", "seed {seed}: {metadata}");
        let Some((theirs, _)) = run_babeltrace(&folder.0) else { return };
        let (ours, theirs) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
        for (our_line, their_line) in ours.lines().zip(theirs.lines()) {
            assert_eq!(our_line, their_line, "seed {seed}: {metadata}");
        }
        assert_eq!(ours, theirs, "seed {seed}: {metadata}");
        compared += events;
    }
    assert!(compared > 500, "only {compared} events");
}
