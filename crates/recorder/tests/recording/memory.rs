//! Tests of memory that is taken when needed, and given back.

use trackway_abi::window::GRANULE_BYTES;
use trackway_recorder::{BufferOptions, ChannelSettings, Recording};
use trackway_window::WriterPath;

use crate::DEFAULT;
use crate::test_window::{TestWindow, Writer, channel_settings};

/// Begins a session with memory for a few claim regions only, like on a machine with many CPUs, and
/// with sub-buffers of two mebibytes.
fn begin_lean_recording(world: &TestWindow) -> Recording {
    let large = BufferOptions { sub_buffers: Some(2), ..DEFAULT };
    let settings = ChannelSettings { starts_small: true, ..channel_settings("channel0", large) };
    let built = Recording::build(world.handle(), &world.session(), &[settings]);
    let mut recording = built.expect("a recording");
    recording.activate();
    recording
}

fn window_bytes_in_use(world: &TestWindow) -> u64 {
    world.handle().allocator.bytes_in_use()
}

/// Emits `count` values and checks that none is lost.
fn emit_without_loss(
    world: &TestWindow,
    recording: &mut Recording,
    writer: &mut Writer,
    count: usize,
) {
    for burst in 0..count.div_ceil(1000) {
        for _ in 0..(count - burst * 1000).min(1000) {
            assert!(writer.emit(WriterPath::Sequence), "there is room");
        }
        recording.tick(&world.notices).unwrap();
    }
}

/// Waits until open sub-buffers are written as well.
fn wait_for_flush(world: &TestWindow, recording: &mut Recording) {
    std::thread::sleep(std::time::Duration::from_millis(550));
    recording.tick(&world.notices).unwrap();
}

#[test]
fn what_a_burst_needed_is_given_back_and_had_again() {
    let world = TestWindow::new();
    let mut recording = world.begin_recording(DEFAULT);
    let mut writer = Writer::new(&world.handle());
    let begin = window_bytes_in_use(&world);
    let mut emitted = 0;
    for round in 0..4 {
        // Each burst exceeds the region's initial memory, so that the region grows.
        let mut lost = 0;
        for _ in 0..6 {
            lost += (0..180_000).filter(|_| !writer.emit(WriterPath::Sequence)).count();
            recording.tick(&world.notices).unwrap();
        }
        emitted += 6 * 180_000 - lost;
        assert!(window_bytes_in_use(&world) >= begin, "round {round}");
        wait_for_flush(&world, &mut recording);
        let generation = writer.generation();
        recording.trim();
        recording.trim();
        assert!(
            window_bytes_in_use(&world) <= begin,
            "round {round}: {} of {begin}",
            window_bytes_in_use(&world)
        );
        if lost > 0 {
            assert!(writer.generation() > generation, "round {round}");
        }
        // A few records need no more memory.
        emit_without_loss(&world, &mut recording, &mut writer, 100);
        emitted += 100;
        assert!(window_bytes_in_use(&world) <= begin + GRANULE_BYTES, "round {round}");
    }
    let summary = recording.finish(&|| false).unwrap();
    assert_eq!(summary.recorded, emitted as u64);
    let contents = world.read("channel0_0");
    assert!(contents.values.is_sorted_by(|one, next| one < next), "each once, in order");
    assert_eq!(contents.values.len(), emitted);
}

#[test]
fn an_open_sub_buffer_goes_on_in_other_memory() {
    let world = TestWindow::new();
    let mut recording = begin_lean_recording(&world);
    let begin = window_bytes_in_use(&world);
    let mut writer = Writer::new(&world.handle());
    let mut expected = Vec::new();
    for round in 0..4 {
        let first = writer.request_memory();
        assert!(!writer.emit(WriterPath::Sequence), "round {round}: there is no memory at all");
        recording.tick(&world.notices).unwrap();
        assert!(window_bytes_in_use(&world) > begin);
        // Then the second sub-buffer is open.
        let count = if round == 0 { 200_000 } else { 10 };
        emit_without_loss(&world, &mut recording, &mut writer, count);
        expected.extend((first + 1..).take(count));
        wait_for_flush(&world, &mut recording);
        // A region is idle only if nothing was written between two polls.
        recording.trim();
        assert!(window_bytes_in_use(&world) > begin, "round {round}");
        if round == 3 {
            break;
        }
        recording.trim();
        assert_eq!(window_bytes_in_use(&world), begin, "round {round}");
    }
    // Recovery finds the contents of the open sub-buffer after the recorder was killed.
    expected.push(writer.next());
    assert!(writer.emit(WriterPath::Sequence));
    world.kill(recording);
    let recovered = trackway_recorder::recover_in(world.folder.path(), &world.notices, None);
    assert!(recovered.unwrap()[0].result.is_ok());
    let contents = world.read("channel0_0");
    assert!(contents.values == expected);
    assert_eq!(contents.discarded, 4);
}

#[test]
fn a_recorder_killed_after_it_gave_all_back_has_lost_nothing() {
    let world = TestWindow::new();
    let mut recording = begin_lean_recording(&world);
    let mut writer = Writer::new(&world.handle());
    writer.request_memory();
    recording.tick(&world.notices).unwrap();
    emit_without_loss(&world, &mut recording, &mut writer, 10);
    wait_for_flush(&world, &mut recording);
    (0..2).for_each(|_| recording.trim());
    assert!(!writer.emit(WriterPath::Sequence));
    world.kill(recording);
    let recovered = trackway_recorder::recover_in(world.folder.path(), &world.notices, None);
    assert_eq!(recovered.unwrap()[0].result.as_ref().expect("a trace").lost, 1);
    assert_eq!(world.read("channel0_0").values, (0..10).collect::<Vec<u64>>());
}

#[test]
fn a_claim_that_is_held_keeps_its_memory() {
    let world = TestWindow::new();
    let mut recording = begin_lean_recording(&world);
    let begin = window_bytes_in_use(&world);
    let mut writer = Writer::new(&world.handle());
    // A burst by claim makes the claim region grow.
    let mut claimed = Vec::new();
    for _ in 0..100 {
        for _ in 0..10_000 {
            let value = writer.next();
            claimed.extend(writer.emit(WriterPath::Claim(0)).then_some(value));
        }
        recording.tick(&world.notices).unwrap();
    }
    let grown = window_bytes_in_use(&world);
    assert!(grown > begin, "{grown}");
    wait_for_flush(&world, &mut recording);
    let held = writer.hold_claim(WriterPath::Claim(0));
    (0..3).for_each(|_| recording.trim());
    assert_eq!(window_bytes_in_use(&world), grown, "somebody may write there");
    drop(held);
    (0..2).for_each(|_| recording.trim());
    assert_eq!(window_bytes_in_use(&world), begin);
    claimed.push(writer.next());
    assert!(writer.emit(WriterPath::Claim(0)), "what it began with is still there");
    recording.finish(&|| false).unwrap();
    assert_eq!(world.read("channel0_0_claim0").values, claimed);
}
