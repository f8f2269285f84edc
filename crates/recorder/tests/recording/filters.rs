//! Tests of filters in the window: present before any writer is admitted, kept in a channel that
//! replaces another one, compiled for new events.

use std::sync::atomic::Ordering;

use trackway_abi::session::{SESSIONS_MAX, filters_place, flag, state};
use trackway_jit::block::Block;
use trackway_jit::object::Object;
use trackway_recorder::{BufferOptions, ChannelSettings, FilterSpec, Recording, WindowHandle};
use trackway_ring::Memory;
use trackway_schema::{Encoder, Scalar, Shape};
use trackway_window::MappedMemory;

use crate::test_window::{TestWindow, channel_settings};

const SMALL: BufferOptions =
    BufferOptions { size_bytes: Some(64 << 10), sub_buffers: Some(4), overwrite: false };

fn channel_with_filters(filters: &[&str]) -> ChannelSettings {
    let filters = filters.iter().map(|text| FilterSpec::new(text)).collect();
    ChannelSettings { filters, ..channel_settings("channel0", SMALL) }
}

fn build_recording(world: &TestWindow, settings: &ChannelSettings) -> Recording {
    let built = Recording::build(world.handle(), &world.session(), std::slice::from_ref(settings));
    built.expect("a recording")
}

/// Returns the slot in state `wanted`.
fn slot_in(handle: &WindowHandle, wanted: u32) -> usize {
    let is_so =
        |index: &usize| handle.window().session(*index).state.load(Ordering::Relaxed) == wanted;
    (0..SESSIONS_MAX).find(is_so).expect("a slot")
}

/// Returns id, rules and number of alternatives of each filter in a slot, read like an agent.
fn filters_in(handle: &WindowHandle, slot: usize) -> Vec<(u64, String, usize)> {
    let session = handle.window().session(slot);
    let is_flagged = session.flags.load(Ordering::Relaxed) & flag::FILTERED != 0;
    // A word with size 0 only has the location of the area, and no block.
    let place = filters_place(session.filters.load(Ordering::Acquire));
    let place = place.filter(|(_, size)| *size > 0);
    assert_eq!(is_flagged, place.is_some());
    let Some((offset, size)) = place else { return Vec::new() };
    let mut bytes = vec![0; size];
    MappedMemory(*handle.window()).load(offset, &mut bytes).expect("in the window");
    let block = Block::decode(&bytes).expect("a block");
    let entry = |entry: trackway_jit::block::Entry<'_>| {
        let object = Object::decode(entry.object).expect("an object");
        let rules = String::from_utf8(entry.rules.to_vec()).expect("a text");
        (entry.id, rules, object.alternatives().count())
    };
    block.entries().filter(|entry| !entry.rules.is_empty()).map(entry).collect()
}

#[test]
fn filters_are_there_before_anybody_is_let_in() {
    let world = TestWindow::new();
    let mut recording =
        build_recording(&world, &channel_with_filters(&["app: n > 5", "sample(1/10)"]));
    let handle = world.handle();
    let slot = slot_in(&handle, state::BUILDING);
    let filters = filters_in(&handle, slot);
    assert_eq!(filters.iter().map(|one| one.1.as_str()).collect::<Vec<_>>(), ["app:*", "*"]);
    recording.activate();
    assert_eq!(filters_in(&handle, slot), filters);
    recording.set_filters(0, &[]).expect("none");
    assert_eq!(filters_in(&handle, slot), []);
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn a_channel_in_the_place_of_another_goes_on_with_its_filters() {
    let world = TestWindow::new();
    let settings = channel_with_filters(&["app: state > 5"]);
    let mut recording = build_recording(&world, &settings);
    recording.activate();
    let handle = world.handle();
    let old = slot_in(&handle, state::ACTIVE);
    let filters = filters_in(&handle, old);
    let larger = ChannelSettings { overwrite: true, ..settings };
    recording.replace_channel(0, &larger, 1).expect("another channel");
    let successor = handle.window().session(old).successor.load(Ordering::Relaxed);
    let new = successor.checked_sub(1).expect("a successor") as usize;
    assert_eq!(filters_in(&handle, new), filters, "with what they remember");
    assert_eq!(filters_in(&handle, old), filters, "until it ends");
    recording.end_channel(0).expect("its end");
    assert_eq!(filters_in(&handle, new), filters);
    // The next session in the slot has no filter.
    recording.add_channel(&channel_settings("more", SMALL), 2).expect("a channel");
    let count = |index| filters_in(&handle, index).len();
    let active = (0..SESSIONS_MAX)
        .filter(|&index| handle.window().session(index).state.load(Ordering::Relaxed) == 2);
    assert_eq!(active.map(count).sum::<usize>(), 1);
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn events_that_are_described_meanwhile_get_alternatives() {
    let world = TestWindow::new();
    let mut recording =
        build_recording(&world, &channel_with_filters(&["any(sizes > 5) || number > 7"]));
    recording.activate();
    let handle = world.handle();
    let slot = slot_in(&handle, state::ACTIVE);
    let before = filters_in(&handle, slot);
    let mut buffer = [0; 256];
    let mut encoder = Encoder::new(&mut buffer, b"app", b"value", 6).expect("a name");
    encoder.add_field(b"sizes", Shape::Sequence, Some(Scalar::U16), 0, 0).expect("a field");
    encoder.add_field(b"number", Shape::Scalar, Some(Scalar::U16), 0, 0).expect("a field");
    handle.window().intern_event(encoder.finish()).expect("room");
    let place = || handle.window().session(slot).filters.load(Ordering::Acquire);
    let word = place();
    // The recorder compiles filters for new events ten times a second.
    while place() == word {
        recording.tick(&world.notices).expect("a look");
        std::thread::yield_now();
    }
    let after = filters_in(&handle, slot);
    assert_eq!((after[0].0, before[0].2, after[0].2), (before[0].0, 1, 1));
    recording.finish(&|| false).expect("a trace");
}

#[test]
fn one_that_makes_no_sense_leaves_nothing_behind() {
    let world = TestWindow::new();
    let settings = channel_with_filters(&["app: length(n & 1) > 5"]);
    let built = Recording::build(world.handle(), &world.session(), std::slice::from_ref(&settings));
    let error = built.expect_err("no filter").to_string();
    assert!(error.starts_with("filter:\nlength(n & 1) > 5\n"), "{error}");
    let handle = world.handle();
    let is_free =
        |index| handle.window().session(index).state.load(Ordering::Relaxed) == state::FREE;
    assert!((0..SESSIONS_MAX).all(is_free));
}
